#!/usr/bin/env python3
"""How long a live frame takes, from the camera's hand to the last output, and which stage takes what.

    cargo build --release
    MIEN_HOME=... benches/live.py --program target/release/mien --clip faces.mp4

A clip stands in the camera's place, faces are anonymised by the real models, the recording is on.
Writes the table of the README. Percentiles are told in steps of an eighth.
"""
import argparse, json, os, subprocess, tempfile, time

STAGES = ["convert", "queue", "look", "alter", "mark", "deliver"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", required=True)
    p.add_argument("--clip", required=True, help="640x480, MP4 or Y4M")
    p.add_argument("--fps", type=float, default=10)
    p.add_argument("--detector", default="centerface")
    p.add_argument("--size", type=int, default=0, help="of the detector's input [default: its own]")
    p.add_argument("--how", default="solid")
    p.add_argument("--seconds", type=int, default=60)
    p.add_argument("--cores", default="0,1")
    args = p.parse_args()
    program, clip = os.path.abspath(args.program), os.path.abspath(args.clip)
    size = f"detector_size = {args.size}\n" if args.size else ""
    with tempfile.TemporaryDirectory(prefix="mien-live-bench-") as work:
        models = os.path.join(os.environ["MIEN_HOME"], "models")
        models = models if os.path.exists(models) else os.path.join(os.environ["MIEN_HOME"], "plain")
        os.makedirs(f"{work}/home")
        os.symlink(models, f"{work}/home/models")
        open(f"{work}/mien.toml", "w").write(
            f'[worker]\nthreads = {len(args.cores.split(","))}\n'
            f'[[camera]]\nname = "clip"\ndevice = "file:{clip}"\nfps = {args.fps}\n'
            '[[output]]\nname = "rec"\nkind = "segments"\ndir = "rec"\nlength = "10 s"\nkeep_free = "1 MiB"\n'
            '[[pipeline]]\nname = "door"\ncamera = "clip"\noutputs = ["rec"]\n'
            f'detector = "{args.detector}"\n{size}angles = [0]\nanonymise = "{args.how}"\n')
        env = dict(os.environ, MIEN_HOME=f"{work}/home")
        daemon = subprocess.Popen(["taskset", "-c", args.cores, program, "run", "--config", "mien.toml"],
                                  cwd=work, env=env, stderr=subprocess.DEVNULL)
        ask = lambda: json.loads(subprocess.run([program, "status", "--json"], cwd=work, env=env,
                                                capture_output=True, text=True).stdout or "{}")
        try:
            while not ask().get("pipelines") or ask()["pipelines"][0]["state"] != "running":
                time.sleep(0.2)
            time.sleep(args.seconds)
            pipeline = ask()["pipelines"][0]
        finally:
            daemon.terminate()
            daemon.wait()
    stats, lags = pipeline["stats"], {lag["stage"]: lag for lag in pipeline["stats"]["lags"]}
    whole = sum(lags[s]["p50"] for s in STAGES) or 1
    print(f"{pipeline['delivers']['size']}, {pipeline['fps']:.1f} of {args.fps:g} frames a second left, "
          f"{stats['faces']} faces, {args.detector}, {args.how}, cores {args.cores}")
    print(f"captured {stats['captured']}, left {stats['left']}, looks {stats['looks']}, covered whole "
          f"{stats['covered']}, held {stats['held']}, drops {stats['drops']}")
    print("\n| stage | p50 ms | p95 ms | p99 ms | share of p50 |\n|---|---:|---:|---:|---:|")
    for stage in STAGES + ["total", "jitter"]:
        lag = lags[stage]
        cells = " | ".join(f"{lag[q] / 1000:.1f}" for q in ("p50", "p95", "p99"))
        share = f"{100 * lag['p50'] / whole:.0f} %" if stage in STAGES else ""
        print(f"| {stage} | {cells} | {share} |")


if __name__ == "__main__":
    main()
