"""Trains for very many steps and checks that resident memory stays flat.

  python3 memory_campaign.py --steps 100000 --ranks 1,2

ORTHANT names the program (default: build/bin/orthant). A model of a few hundred parameters makes a thousand steps a second. Every rank's
resident memory, and the launcher's, is read from /proc while it trains: between step 5,000 (or a tenth of the steps, when that is fewer)
and the end it must not grow by more than 1%. 100,000 steps of one rank and of two take about four minutes on 2 cores.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from program import ORTHANT, children, clean_environment

CONFIG = {"name": "tiny", "seed": 5,
          "model": {"kind": "llama", "preset": "llama-tiny", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1,
                    "num_key_value_heads": 1, "intermediate_size": 8, "vocab_size": 67},
          "data": {"kind": "tokens", "sequence_length": 16, "samples": 256},
          "train": {"global_batch_size": 4}, "checkpoint": {"save_every": 0}}
MOST_GROWTH = 0.01


def resident_kib(pid):
    """0 when the process is ending."""
    try:
        with open(f"/proc/{pid}/status") as f:
            return next((int(line.split()[1]) for line in f if line.startswith("VmRSS:")), 0)
    except OSError:
        return 0


class Lines:
    """How many lines a growing file has."""

    def __init__(self, path):
        self.path, self.at, self.count = path, 0, 0

    def look(self):
        try:
            with open(self.path, "rb") as f:
                f.seek(self.at)
                new = f.read()
        except OSError:
            return self.count
        self.at += len(new)
        self.count += new.count(b"\n")
        return self.count


def memory_of_a_run(mesh, steps, folder):
    """[(step, [KiB of the process that was started and of each rank it started])] while it trained."""
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump({**CONFIG, "train": {**CONFIG["train"], "steps": steps}}, f)
    command = [ORTHANT, "train", "--config", "config.json", "--mesh", mesh, "--output_dir", "run", "--json"]
    samples, metrics = [], Lines(os.path.join(folder, "run", "metrics.jsonl"))
    with open(os.path.join(folder, "errors"), "w+") as errors:
        job = subprocess.Popen(command, cwd=folder, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
        while job.poll() is None:
            step = metrics.look()
            memory = [resident_kib(pid) for pid in [job.pid, *children(job.pid)]]
            if step and all(memory) and (not samples or len(memory) == len(samples[-1][1])):
                samples.append((step, memory))
            time.sleep(0.05)
        errors.seek(0)
        if job.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: exit code {job.returncode}\n{errors.read()}")
    return samples


def grown(samples, steps):
    """What was wrong, and a line of figures."""
    settled = min(5000, steps // 10)
    first = next(s for s in samples if s[0] >= settled)
    last = samples[-1]
    wrong, figures = [], []
    names = ["rank 0"] if len(last[1]) == 1 else ["launcher", *(f"rank {r}" for r in range(len(last[1]) - 1))]
    for name, before, after in zip(names, first[1], last[1]):
        growth = (after - before) / before
        figures.append(f"{name} {before} KiB -> {after} KiB ({growth:+.2%})")
        if growth > MOST_GROWTH:
            wrong.append(f"{name} grew by {(after - before) * 1024 / (last[0] - first[0]):.0f} bytes a step")
    return wrong, f"steps {first[0]} to {last[0]}: " + ", ".join(figures)


def campaign(meshes, steps, report=None):
    """Returns everything that was wrong."""
    wrong = []
    for mesh in meshes:
        with tempfile.TemporaryDirectory() as folder:
            found, figures = grown(memory_of_a_run(mesh, steps, folder), steps)
        wrong += [f"{mesh}: {text}" for text in found]
        if report:
            report(f"{mesh}, {figures}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--ranks", default="1,2", help="numbers of dp ranks, one run each (default 1,2)")
    parser.add_argument("--mesh", action="append", default=[], help="a mesh to run besides")
    a = parser.parse_args()
    meshes = [f"dp={n}" for n in a.ranks.split(",") if n] + a.mesh
    wrong = campaign(meshes, a.steps, print)
    for line in wrong:
        print(line)
    print(f"{len(meshes)} runs of {a.steps} steps: {len(wrong)} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
