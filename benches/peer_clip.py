#!/usr/bin/env python3
"""The work of `mien process` on a clip as Python tools do it: raw frames through pipes of ffmpeg,
every frame detected, every face embedded, swapped or blurred, encoded by x264. The same models as
mien's, one thread each. It gates nothing and puts no marks on the clip; mien does both.

  peer_clip.py blur|swap CLIP OUT --models DIR [--source NPY] [--swapper ONNX] [--emap BIN]

Prints one line of JSON: frames, faces, and seconds of CPU of inference and of ffmpeg."""

import argparse
import json
import resource
import subprocess

import cv2
import numpy as np

import peer_still as still


def shape(clip):
    """Width, height and rate of a clip."""
    fields = "stream=width,height,r_frame_rate"
    command = ["ffprobe", "-v", "error", "-select_streams", "v:0", "-show_entries", fields]
    text = subprocess.check_output([*command, "-of", "csv=p=0", clip], text=True)
    wide, high, rate = text.strip().split(",")[:3]
    return int(wide), int(high), rate


def children():
    """CPU seconds of ended children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def frames(pipe, wide, high):
    """Frames as arrays, until the pipe ends."""
    while True:
        buffer = np.empty(wide * high * 3, np.uint8)
        view, got = memoryview(buffer), 0
        while got < len(view):
            more = pipe.readinto(view[got:])
            if not more:
                return
            got += more
        yield buffer.reshape(high, wide, 3)


def main():
    """One clip."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["blur", "swap"])
    parser.add_argument("clip")
    parser.add_argument("out")
    parser.add_argument("--models", required=True)
    parser.add_argument("--source")
    parser.add_argument("--swapper")
    parser.add_argument("--emap")
    args = parser.parse_args()
    cv2.setNumThreads(1)
    detector = still.session(f"{args.models}/centerface.onnx")
    if args.mode == "swap":
        embedder = still.session(f"{args.models}/mobilefacenet192.onnx")
        swapper = still.session(args.swapper)
        source = np.load(args.source)
        latent = still.latent_of(source, args.emap)

    wide, high, rate = shape(args.clip)
    before = children()
    raw = ["-f", "rawvideo", "-pix_fmt", "bgr24"]
    ffmpeg = ["ffmpeg", "-v", "error", "-y", "-threads", "1"]
    reader = subprocess.Popen(
        [*ffmpeg, "-i", args.clip, *raw, "-"], stdout=subprocess.PIPE, bufsize=0
    )
    coded = ["-c:v", "libx264", "-preset", "veryfast", "-crf", "18", "-threads", "1"]
    writer = subprocess.Popen(
        [*ffmpeg, *raw, "-s", f"{wide}x{high}", "-r", rate, "-i", "-", *coded]
        + ["-pix_fmt", "yuv420p", args.out],
        stdin=subprocess.PIPE,
        bufsize=0,
    )
    still.METER.seconds["inference"] = 0
    count, found = 0, 0
    for picture in frames(reader.stdout, wide, high):
        faces = still.detect(picture, detector)
        found += len(faces)
        if args.mode == "blur":
            picture = still.blur(picture, faces)
        else:
            for _, _, points in sorted(faces, key=lambda face: face[0][0] - face[0][2]):
                if source @ still.embed(picture, points, embedder) < 2:
                    picture = still.swap(picture, points, latent, swapper)
        writer.stdin.write(np.ascontiguousarray(picture).data)
        count += 1
    writer.stdin.close()
    if reader.wait() or writer.wait():
        raise SystemExit("ffmpeg failed")
    inference = still.METER.seconds["inference"]
    codec = children() - before
    print(json.dumps({"frames": count, "faces": found, "inference": inference, "codec": codec}))


if __name__ == "__main__":
    main()
