#!/usr/bin/env python3
"""mien against the same work in Python on one picture, side by side: started by still.sh.

Both sides run in turns, so that a busy machine treats them alike; the least of each figure counts.
CPU is user and system time of the process and all its children. Inference is the CPU that the
models' runs take: the sessions' calls on the Python side, what the report's stages say on mien's.
Memory is the most that all processes of a side hold at a time, what they share counted once (PSS).
The time to the first result ends when the file is written."""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The goals of the README's specification.
GOALS = {"outside": 1 / 5, "memory": 1 / 3, "first": 1 / 3}


def tree(pid):
    """A process and all below it."""
    found = [pid]
    for each in found:
        try:
            for task in os.listdir(f"/proc/{each}/task"):
                children = Path(f"/proc/{each}/task/{task}/children").read_text().split()
                found += [int(child) for child in children]
        except OSError:
            pass
    return found


def held(pid):
    """The memory that a process holds, in MiB; 0 when it is gone."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0


def run(command, out, env=None):
    """Runs one side; CPU seconds, peak MiB, seconds to the output, and what it printed."""
    out.unlink(missing_ok=True)
    read, write = os.pipe()
    begin = time.time()
    child = subprocess.Popen(command, stdout=write, env=env)
    os.close(write)
    most = 0
    while True:
        most = max(most, sum(map(held, tree(child.pid))))
        pid, status, used = os.wait4(child.pid, os.WNOHANG)
        if pid:
            break
        time.sleep(0.004)
    child.returncode = os.waitstatus_to_exitcode(status)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    if child.returncode or not out.exists():
        raise SystemExit(f"{' '.join(map(str, command))} ended with {child.returncode}")
    return {
        "cpu": used.ru_utime + used.ru_stime,
        "memory": most,
        "first": max(out.stat().st_mtime - begin, 0),
        "said": json.loads(text),
    }


class Sides:
    """The two commands for one mode and picture."""

    def __init__(self, args, mode, picture):
        self.args, self.mode, self.picture = args, mode, picture
        self.out = args.work / f"out-{mode}.jpg"

    def peer(self, repeat=1):
        """The Python side."""
        args = self.args
        command = [sys.executable, HERE / "peer_still.py", self.mode, self.picture, self.out]
        command += ["--models", args.models, "--repeat", str(repeat)]
        if self.mode == "swap":
            command += ["--source", args.work / "source.npy", "--emap", args.work / "emap.bin"]
            command += ["--swapper", args.work / "swapper-bench.onnx"]
        found = run(command, self.out, {**os.environ, "PYTHONPATH": str(args.packages)})
        found["inference"] = sum(found["said"]["inference"])
        return found

    def mien(self, repeat=1):
        """mien: one picture, or a folder of links to it."""
        source, out = self.picture, self.out
        if repeat > 1:
            source, out = self.args.work / f"many-{self.mode}", self.args.work / "many-out"
            source.mkdir(exist_ok=True)
            for index in range(repeat):
                link = source / f"{index:03}.jpg"
                link.unlink(missing_ok=True)
                link.hardlink_to(self.picture)
        command = [self.args.mien, "process", source, "-o", out, "--json", "-q", "--threads", "1"]
        if self.mode == "swap":
            command += ["--swap", "bench-source", "--swapper", "swapper-bench"]
            command += ["--mode", "reference", "--reference", "bench-target"]
        else:
            command += ["--anonymise", "blur"]
        command += ["--detector-size", "640", "--score", "0.5"]
        found = run(command, out if repeat == 1 else out / f"{repeat - 1:03}.jpg")
        pictures = (picture["report"]["stages"] for picture in found["said"]["pictures"])
        found["inference"] = sum(s["inference_cpu_ms"] for stages in pictures for s in stages) / 1e3
        return found


def compare(sides, rounds, repeat):
    """Figures of both sides: one picture from the start, and each further picture."""
    once = {"mien": [], "peer": []}
    many = {"mien": [], "peer": []}
    for _ in range(rounds):
        for name in once:
            once[name].append(getattr(sides, name)())
            many[name].append(getattr(sides, name)(repeat))
    return {name: figures(once[name], many[name], repeat) for name in once}


def figures(once, many, repeat):
    """The least of each figure of one side."""
    for each in once + many:
        each["outside"] = each["cpu"] - each["inference"]
    least = {key: min(each[key] for each in once) for key in ("memory", "first")}
    for key in ("cpu", "inference", "outside"):
        least[key] = min(each[key] for each in once)
        further = min(each[key] for each in many) - least[key]
        least["warm " + key] = further / (repeat - 1)
    return least


def show(title, result):
    """One table: mien, the peer, their ratio and the goal."""
    rows = [
        ("start to first result, ms", "first", 1000),
        ("peak memory, MiB", "memory", 1),
        ("CPU of one picture, ms", "cpu", 1000),
        ("  inference", "inference", 1000),
        ("  outside inference", "outside", 1000),
        ("CPU of each further picture, ms", "warm cpu", 1000),
        ("  inference", "warm inference", 1000),
        ("  outside inference", "warm outside", 1000),
    ]
    print(f"\n{title}\n{'':34}{'mien':>9}{'Python':>9}{'ratio':>8}{'goal':>8}")
    for label, key, unit in rows:
        ours, theirs = result["mien"][key] * unit, result["peer"][key] * unit
        goal = GOALS.get(key.replace("warm ", ""))
        ratio = ours / theirs if theirs > 0 else float("nan")
        aim = "" if goal is None else f"{goal:8.2f}" + ("" if ratio <= goal else "  missed")
        print(f"{label:34}{ours:9.1f}{theirs:9.1f}{ratio:8.2f}{aim}")


def main():
    """Measures and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mien", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=11)
    parser.add_argument("--modes", default="blur,swap")
    parser.add_argument("pictures", nargs="+", type=Path)
    args = parser.parse_args()
    results = {}
    for picture in args.pictures:
        for mode in args.modes.split(","):
            result = compare(Sides(args, mode, picture), args.rounds, args.repeat)
            results[f"{mode} {picture.name}"] = result
            show(f"{mode}, {picture.name}, one thread", result)
    load = os.getloadavg()[0]
    print(f"\n{args.rounds} rounds in turns, {os.cpu_count()} cores, load {load:.1f}")
    (args.work / "still.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
