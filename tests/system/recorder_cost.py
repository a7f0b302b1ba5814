#!/usr/bin/env python3
"""What recording costs: rounds, and the 95% interval of their mean ratio.

  tests/system/recorder_cost.py                        time on a core of a step that is profiled, its part of the trace's file included, against one
                                                       that is not
  tests/system/recorder_cost.py --recorded PROGRAM     by the wall clock, odd steps, which are recorded, against even ones, which PROGRAM leaves out

For the latter begin the constructor of Span in trace/recorder.cpp with
`if (recorder_ && recorder_->step_ % 2 == 0 && !recorder_->capture_.load()) recorder_ = nullptr;`, build, and keep the program."""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

from program import ORTHANT, SOURCE, clean_environment

CONFIG = os.path.join(SOURCE, "configs", "llama_tiny.json")
STEPS = 160
STUDENT = 2.145  # 95% of 15 rounds


def trained(program, mesh, steps, *more):
    """Seconds of each step but the first ten, by number; and seconds that cores worked for the run."""
    with tempfile.TemporaryDirectory() as folder:
        run = os.path.join(folder, "run")
        process = subprocess.Popen([program, "train", "--config", CONFIG, "--mesh", mesh, "--steps", str(steps), "--output-dir", run,
                                    "--set", "checkpoint.save_every=0", "--set", "train.eval_every=0", *more], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment())
        _, status, used = os.wait4(process.pid, 0)
        assert status == 0
        with open(os.path.join(run, "metrics.jsonl")) as file:
            lines = [json.loads(line) for line in file]
    return {line["step"]: line["step_seconds"] for line in lines if line["step"] > 10}, used.ru_utime + used.ru_stime


def profiled_ratio(mesh):
    """What 125 steps more cost, and what it costs to profile them."""
    short, long, profiled = (trained(ORTHANT, mesh, steps, "--profile", f"20-{last}")[1] for steps, last in ((STEPS - 125, 24), (STEPS, 24), (STEPS, 149)))
    return (profiled - short) / (long - short)


def recorded_ratio(mesh, program):
    seconds, _ = trained(program, mesh, STEPS)
    odd, even = ([one for step, one in seconds.items() if step % 2 == rest] for rest in (1, 0))
    return statistics.median(odd) / statistics.median(even)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recorded")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--mesh", default="dp=1")
    arguments = parser.parse_args()
    logs = []
    for number in range(arguments.rounds):
        ratio = recorded_ratio(arguments.mesh, arguments.recorded) if arguments.recorded else profiled_ratio(arguments.mesh)
        logs.append(math.log(ratio))
        print(f"round {number + 1}: {ratio:.3f}", flush=True)
    mean, error = statistics.mean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
    low, high = (math.exp(mean + sign * STUDENT * error) for sign in (-1, 1))
    print(f"{'recorded / not' if arguments.recorded else 'profiled / not'}: {math.exp(mean):.4f}, 95% interval {low:.4f} to {high:.4f}, "
          f"median of rounds {math.exp(statistics.median(logs)):.4f}")
    return 0 if low <= 1 or not arguments.recorded else 1


if __name__ == "__main__":
    sys.exit(main())
