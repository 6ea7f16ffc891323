# A camera that is unplugged $1 times, and the driver's own faults: each time frames come again.
cycles=$1
drv=/sys/bus/platform/drivers/vivid
mien run --config /vm/mien.toml >/mnt/share/daemon.log 2>&1 & daemon=$!
# Waits until frames leave and more have left than before.
moved() { mien status --json 2>/dev/null | grep '"moved"' | tr -dc '0-9'; }
goes_on() {
  was=$(moved); n=0
  while :; do
    now=$(moved); [ -n "$now" ] && [ "$now" -gt "${was:-0}" ] && return 0
    n=$((n+1)); [ $n -lt 200 ] || { echo "no frame after: $1"; mien status; tail -5 /mnt/share/daemon.log; return 1; }
    sleep 0.2
  done
}
goes_on start || exit 20
fds0=$(ls /proc/$daemon/fd | wc -l)
for fault in "Inject V4L2_BUF_FLAG_ERROR" "Inject VIDIOC_REQBUFS Error" "Inject VIDIOC_QUEUE_SETUP Error" \
    "Inject VIDIOC_BUF_PREPARE Error" "Inject VIDIOC_STREAMON Error" "Inject VIDIOC_QBUF Error" \
    "Inject VIDIOC_DQBUF Error" "Inject Fatal Streaming Error"; do
  control /dev/video0 "$fault" 1 && { goes_on "$fault" || exit 21; echo "recovered: $fault"; }
done
control /dev/video0 "Percentage of Dropped Buffers" 30; goes_on "dropped buffers" || exit 22
control /dev/video0 "Percentage of Dropped Buffers" 0
control /dev/video0 "Wrap Sequence Number" 1 && { goes_on "wrap" || exit 23; echo "recovered: wrap"; }
control /dev/video0 "Wrap Sequence Number" 0
control /dev/video0 "Disconnect" 1 && sleep 1
i=0
while [ $i -lt $cycles ]; do
  echo vivid.0 >$drv/unbind; [ $((i % 4)) = 0 ] && sleep 1; echo vivid.0 >$drv/bind
  goes_on "unbind $i" || exit 24
  i=$((i+1))
done
sleep 2
fds1=$(ls /proc/$daemon/fd | wc -l)
echo "cycles $cycles fds $fds0 $fds1"
mien status --json >/mnt/share/status.json; mien status
kill -TERM $daemon; wait $daemon; rc=$?
[ $fds1 -le $((fds0 + 2)) ] || rc=25
exit $rc
