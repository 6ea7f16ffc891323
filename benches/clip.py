#!/usr/bin/env python3
"""mien against the same work in Python, and against deface, on one clip: started by clip.sh.

All sides run in turns, so that a busy machine treats them alike; the least of each figure counts.
CPU is user and system time of the process and all its children. Codec is what mien's decode and
encode stages take, and what ffmpeg takes on the other sides. Inference is the CPU that the models'
runs take: what mien's stages say, and the sessions' calls on the peer's. Memory is the most that
all processes of a side hold at a time, what they share counted once. Figures are of a whole run:
starting and loading are spread over the frames."""

import argparse
import json
import os
import sys
from pathlib import Path

import still

HERE = Path(__file__).resolve().parent
# The goals: of the peer's, and of deface's.
GOALS = {"outside": 1 / 5, "total": 1, "memory": 1 / 3}
DEFACE = {"total": 1 / 2}


class Sides:
    """The commands for one mode and clip."""

    def __init__(self, args, mode, clip):
        self.args, self.mode, self.clip = args, mode, clip
        self.out = args.work / f"clip-{mode}.mp4"

    def python(self):
        """The environment of the Python sides: one thread each."""
        threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        return {**os.environ, **threads, "PYTHONPATH": str(self.args.packages)}

    def peer(self):
        """The Python side."""
        args = self.args
        command = [sys.executable, HERE / "peer_clip.py", self.mode, self.clip, self.out]
        command += ["--models", args.models]
        if self.mode == "swap":
            command += ["--source", args.work / "source.npy", "--emap", args.work / "emap.bin"]
            command += ["--swapper", args.work / "swapper-bench.onnx"]
        found = still.run(command, self.out, self.python())
        said = found["said"]
        return figures(found, said["frames"], said["faces"], said["inference"], said["codec"])

    def mien(self):
        """mien."""
        command = [self.args.mien, "process", self.clip, "-o", self.out, "--json", "-q"]
        command += ["--threads", "1", "--no-audio", "--detector-size", "640"]
        if self.mode == "swap":
            command += ["--swap", "bench-source", "--swapper", "swapper-bench", "--score", "0.5"]
        else:
            command += ["--anonymise", "blur"]
        found = still.run(command, self.out)
        report = found["said"]["clips"][0]["report"]
        stages = {stage["stage"]: stage for stage in report["stages"]}
        codec = sum(stages[name]["cpu_ms"] for name in ("decode", "encode")) / 1e3
        inference = sum(stage["inference_cpu_ms"] for stage in stages.values()) / 1e3
        return figures(found, report["frames"], report["faces"], inference, codec)

    def deface(self):
        """deface 1.5.0, which blurs; its inference is not told apart."""
        code = "from deface.deface import main; main()"
        command = [sys.executable, "-c", code, self.clip, "-o", self.out, "--scale", "640x360"]
        command += ["--backend", "onnxrt"]
        found = still.run(["bash", "-c", 'taskset -c 0 "$@" >&2; echo "{}"', "-", *command],
                          self.out, self.python())
        return figures(found, self.args.frames, 0, 0, 0)


def figures(found, frames, faces, inference, codec):
    """Milliseconds of CPU a frame, and MiB."""
    each = 1e3 / max(frames, 1)
    total, codec, inference = found["cpu"] * each, codec * each, inference * each
    return {
        "frames": frames, "faces": faces, "memory": found["memory"],
        "total": total, "codec": codec, "inference": inference,
        "outside": total - codec - inference,
    }


def compare(sides, names, rounds):
    """The least figures of each side; runs take turns."""
    runs = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            runs[name].append(getattr(sides, name)())
    return {
        name: {key: min(run[key] for run in all_runs) for key in all_runs[0]}
        for name, all_runs in runs.items()
    }


def show(title, result):
    """One table: every side, the ratio to the peer and its goal, the ratio to deface and its."""
    print(f"\n{title}")
    names = list(result)
    print(f"{'':34}" + "".join(f"{name:>9}" for name in names) + f"{'of peer':>9}{'goal':>6}"
          + (f"{'of deface':>11}{'goal':>6}" if "deface" in result else ""))
    rows = [
        ("CPU ms a frame", "total"), ("  codec", "codec"), ("  inference", "inference"),
        ("  outside inference and codec", "outside"), ("peak memory, MiB", "memory"),
        ("faces, counted in each frame", "faces"),
    ]
    for label, key in rows:
        line = f"{label:34}" + "".join(f"{result[name][key]:9.1f}" for name in names)
        for other, goals, width in (("peer", GOALS, 9), ("deface", DEFACE, 11)):
            if other in result and key in goals:
                theirs = result[other][key]
                ratio = result["mien"][key] / theirs if theirs > 0 else float("nan")
                missed = "" if ratio <= goals[key] else "  missed"
                line += f"{ratio:{width}.2f}{goals[key]:6.2f}{missed}"
        print(line)


def main():
    """Measures and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mien", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--frames", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--modes", default="blur,swap")
    parser.add_argument("clips", nargs="+", type=Path)
    args = parser.parse_args()
    results = {}
    for clip in args.clips:
        for mode in args.modes.split(","):
            names = ["mien", "peer"] + (["deface"] if mode == "blur" else [])
            result = compare(Sides(args, mode, clip), names, args.rounds)
            results[f"{mode} {clip.name}"] = result
            show(f"{mode}, {clip.name}, one thread", result)
    load = os.getloadavg()[0]
    print(f"\n{args.rounds} rounds in turns, {os.cpu_count()} cores, load {load:.1f}")
    (args.work / "clip.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
