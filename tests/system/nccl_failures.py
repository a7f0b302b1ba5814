#!/usr/bin/env python3
"""Ranks killed and stopped inside collectives and inside pipeline exchanges over NCCL, several ranks on one card.

  tests/system/nccl_failures.py [--trials 15] [--seed 0] [--restarts] [--device cuda] [--backend nccl]

Each trial trains a tiny model for ever on a mesh, and after some steps one rank gets SIGKILL or SIGSTOP. The job must end with exit
code 3 within the timeout and a grace, name the rank, and leave no process. With --restarts a rank is killed once and the job, started
again, must end with the weights of one that nothing befell. Prints a line for each trial; exit code 1 when one went otherwise.
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


def place_of(a):
    return ["--device", a.device, "--backend", a.backend, *(["--ranks-per-device", "2"] if a.backend == "nccl" else [])]


def start(words, folder):
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(CONFIG, f)
    return subprocess.Popen([ORTHANT, "train", "--config", "config.json", *words, "--output-dir", "run"], cwd=folder, env=clean_environment(),
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def how_it_hangs(pids):
    """State and place in the system of each thread that is not asleep in poll: for those who must find out why."""
    found = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as stat, open(f"/proc/{pid}/wchan") as place:
                found.append(f"{pid} {stat.read().rsplit(')', 1)[1].split()[0]} in {place.read() or '?'}")
        except OSError:
            continue
    return ", ".join(found)


def trial(number, rng, place):
    """(as it must be, line)."""
    how, mesh, rank = ("KILL", "STOP")[number % 2], MESHES[number // 2 % len(MESHES)], rng.randrange(2)
    with tempfile.TemporaryDirectory() as folder:
        job = start(["--mesh", mesh, *place, "--timeout", f"start=60,step={TIMEOUT}"], folder)
        if not wait_until(lambda: steps_made(folder) >= 3 or job.poll() is not None, 60) or job.poll() is not None:
            job.kill()
            return False, f"{how} {mesh}: no step was made: {job.communicate()[1][-500:]}"
        time.sleep(rng.random() * 0.2)
        ranks = children(job.pid)
        began = time.monotonic()
        os.kill(ranks[rank], getattr(signal, f"SIG{how}"))
        hangs = ""
        try:
            errors = job.communicate(timeout=TIMEOUT + GRACE)[1]
        except subprocess.TimeoutExpired:
            hangs = how_it_hangs([job.pid, *ranks])
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
        return right, line if right else f"{line}\n{hangs}\n{errors[-1500:]}"


def weights_after(words, kill, rng):
    """(exit code, hash of the weights) of a short run, one of whose ranks is killed once."""
    with tempfile.TemporaryDirectory() as folder:
        job = start([*words, "--set", "train.steps=12", "--set", "checkpoint.save_every=3", "--set", "train.deterministic=true", "--max-restarts", "2",
                     "--timeout", f"start=60,step={TIMEOUT}", "--json"], folder)
        if kill:
            if wait_until(lambda: steps_made(folder) >= 5 or job.poll() is not None, 90) and job.poll() is None:
                os.kill(children(job.pid)[rng.randrange(2)], signal.SIGKILL)
        try:
            out, errors = job.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            job.kill()
            return None, job.communicate()[1][-500:]
        return job.returncode, json.loads(out)["weights_hash"] if job.returncode == 0 else errors[-500:]


def restarted(mesh, rng, place):
    words = ["--mesh", mesh, *place]
    untouched, killed = weights_after(words, False, rng), weights_after(words, True, rng)
    return untouched == killed and killed[0] == 0, f"restart of {mesh}: {killed[0]}, weights {killed[1]}, without a loss {untouched[1]}"


def parser_of_trials():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=15)
    parser.add_argument("--restarts", action="store_true", help="restarts of a killed job, too")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--backend", default="nccl")
    return parser


def outcomes(a):
    """Yields (as it must be, line)."""
    rng = random.Random(a.seed)
    for number in range(a.trials):
        yield trial(number, rng, place_of(a))
    for mesh in MESHES if a.restarts else ():
        yield restarted(mesh, rng, place_of(a))


def main():
    wrong = count = 0
    for right, line in outcomes(parser_of_trials().parse_args()):
        wrong += not right
        count += 1
        print(f"{'ok   ' if right else 'WRONG'} {line}", flush=True)
    print(f"\n{count} trials, {wrong} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
