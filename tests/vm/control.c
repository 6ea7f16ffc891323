/* Sets a control of a video device by its name: control DEVICE NAME VALUE. For the VM's tests alone.
 * Static, so that it runs in the guest as it is: cc -static -o control control.c */
#include <fcntl.h>
#include <linux/videodev2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

int main(int count, char **words)
{
    if (count != 4)
        return fprintf(stderr, "control DEVICE NAME VALUE\n"), 2;
    int fd = open(words[1], O_RDWR | O_NONBLOCK);
    if (fd < 0)
        return perror(words[1]), 3;
    struct v4l2_query_ext_ctrl found = {.id = V4L2_CTRL_FLAG_NEXT_CTRL};
    while (ioctl(fd, VIDIOC_QUERY_EXT_CTRL, &found) == 0) {
        if (strcmp(found.name, words[2]) == 0) {
            struct v4l2_ext_control one = {.id = found.id, .value = atoi(words[3])};
            struct v4l2_ext_controls all = {.which = V4L2_CTRL_WHICH_CUR_VAL, .count = 1, .controls = &one};
            if (ioctl(fd, VIDIOC_S_EXT_CTRLS, &all) == 0)
                return 0;
            return perror(words[2]), 1;
        }
        found.id |= V4L2_CTRL_FLAG_NEXT_CTRL;
    }
    return fprintf(stderr, "%s has no control `%s`\n", words[1], words[2]), 1;
}
