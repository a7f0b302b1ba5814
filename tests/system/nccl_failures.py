#!/usr/bin/env python3
"""Ranks killed and stopped inside collectives and inside pipeline exchanges over NCCL, several ranks on one card.

  tests/system/nccl_failures.py [--trials 15] [--seed 0]

Each trial trains a tiny model for ever on a mesh, and after some steps one rank gets SIGKILL or SIGSTOP. The job must end with exit
code 3 within the timeout and a grace, name the rank, and leave no process. Prints a line for each trial; exit code 1 when one went
otherwise.
"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

from program import ORTHANT, children, clean_environment, is_alive, wait_until

CONFIG = {"seed": 3, "model": {"kind": "llama", "preset": "llama-tiny", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
                               "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 67},
          "data": {"kind": "tokens", "sequence_length": 16, "samples": 256}, "parallel": {"microbatches": 2},
          "train": {"global_batch_size": 8, "steps": 1000000}}
MESHES = ("fsdp=2", "pp=2", "tp=2")
TIMEOUT = 5
GRACE = 8  # to see it, to tell it, to end the others


def steps_made(folder):
    try:
        with open(os.path.join(folder, "run", "metrics.jsonl")) as f:
            return sum(1 for _ in f)
    except OSError:
        return 0


def trial(number, rng):
    """(as it must be, line)."""
    how, mesh, rank = ("KILL", "STOP")[number % 2], MESHES[number // 2 % len(MESHES)], rng.randrange(2)
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(CONFIG, f)
        words = [ORTHANT, "train", "--config", "config.json", "--mesh", mesh, "--device", "cuda", "--backend", "nccl", "--ranks-per-device", "2",
                 "--timeout", f"start=60,step={TIMEOUT}", "--output-dir", "run"]
        job = subprocess.Popen(words, cwd=folder, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               text=True)
        if not wait_until(lambda: steps_made(folder) >= 3 or job.poll() is not None, 60) or job.poll() is not None:
            job.kill()
            return False, f"{how} {mesh}: no step was made: {job.communicate()[1][-500:]}"
        time.sleep(rng.random() * 0.2)
        ranks = children(job.pid)
        victim = ranks[rank]
        began = time.monotonic()
        os.kill(victim, getattr(signal, f"SIG{how}"))
        try:
            errors = job.communicate(timeout=TIMEOUT + GRACE + 20)[1]
        except subprocess.TimeoutExpired:
            job.kill()
            errors = job.communicate()[1]
        seconds = time.monotonic() - began
        left = [pid for pid in ranks if is_alive(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        named = f"rank {rank}" in errors
        right = job.returncode == 3 and named and not left and seconds < TIMEOUT + GRACE
        first = next((line for line in errors.splitlines() if "error" in line), "")
        line = f"{how} rank {rank} of {mesh}: exit code {job.returncode} after {seconds:.1f} s, {'named' if named else 'NOT NAMED'}, {len(left)} left: {first[:300]}"
        return right, line if right else line + "\n" + errors[-1500:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    rng = random.Random(a.seed)
    wrong = 0
    for number in range(a.trials):
        right, line = trial(number, rng)
        wrong += not right
        print(f"{'ok   ' if right else 'WRONG'} {line}", flush=True)
    print(f"\n{a.trials} trials, {wrong} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
