#!/usr/bin/env python3
"""An old program against a new one: steps of the tables step, data, tensor, pipeline and hybrid of bench/run and of the default model, both programs in
turn, as ratios new / old with 95% intervals, and the memory of both.

    bench/old_new.py OLD NEW [--rounds 15] [--steps 3] [--only RE] [--json FILE]

A ratio is the mean over the rounds of the quotient of medians of one round, in logarithms; the side that begins changes from round to round. Nothing else
may run on the machine. Exit code 1 when the interval of a row lies above 1, or a peak of memory is more than 2% larger.
"""
import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STUDENT = {5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262, 11: 2.228, 12: 2.201, 13: 2.179, 14: 2.160, 15: 2.145}  # 95%, by rounds
TOKENS = ("parallel.sequence_parallel=true", "parallel.loss_parallel=true")
DEFAULT = ("pp=2,dp=2,tp=2", "parallel.microbatches=4")


def rows():
    """(name, configuration or None for the default model, mesh, settings)."""
    for config in ("llama_21m.json", "trimodal_22m.json"):
        for count in (1, 4):
            yield f"step {config} {count} microbatches", config, "dp=1", (f"parallel.microbatches={count}",)
    for config, mesh in (("llama_21m.json", "dp=2"), ("llama_21m.json", "fsdp=2"), ("trimodal_22m.json", "dp=2")):
        yield f"data {config} {mesh}", config, mesh, ()
    for more in ((), ("parallel.regather=true",)):
        yield " ".join(("tensor", *more)), "llama_21m.json", "tp=2", (*TOKENS, *more)
    yield "tensor loss parallel", "llama_21m.json", "tp=2", TOKENS[1:]
    for schedule in ("gpipe", "1f1b", "interleaved", "zbh1", "zbv"):
        yield f"pipeline {schedule}", "llama_pp.json", "pp=2", (f"parallel.schedule={schedule}",)
    for mesh in ("fsdp=2,tp=2", "pp=2,tp=2", "pp=2,dp=2", "pp=2,fsdp=2,tp=2"):
        yield f"hybrid {mesh}", "llama_21m.json", mesh, (f"parallel.microbatches={4 if 'pp' in mesh else 1}", *TOKENS)
    yield "default model, one rank", None, "dp=1", ()
    yield "default model, make run", None, DEFAULT[0], DEFAULT[1:]


def measured(program, row, steps):
    _, config, mesh, settings = row
    sets = [word for setting in settings for word in ("--set", setting)]
    given = ["--config", os.path.join(ROOT, "configs", config)] if config else []
    count = steps if config else 40
    words = [program, "bench", "step", *given, "--mesh", mesh, "--steps", str(count), "--warmup", "1", "--json", *sets]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr}")
    document = json.loads(done.stdout.strip().splitlines()[-1])
    return document["median_seconds"], document["peak_rss_bytes_per_rank"]


def interval(ratios):
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.mean(logs)
    half = STUDENT[len(logs)] * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) in STUDENT else math.inf
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--rounds", type=int, default=15, choices=range(2, 16), metavar="N")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--only", default="", metavar="RE")
    parser.add_argument("--json", metavar="FILE")
    a = parser.parse_args()
    chosen = [row for row in rows() if re.search(a.only, row[0])]
    found = {row[0]: {"old": [], "new": []} for row in chosen}
    for number in range(a.rounds):
        sides = [("old", a.old), ("new", a.new)]
        for row in chosen:
            for side, program in sides if number % 2 == 0 else reversed(sides):
                found[row[0]][side].append(measured(program, row, a.steps))
        print(f"round {number + 1} of {a.rounds}", file=sys.stderr, flush=True)
        if a.json:
            with open(a.json, "w") as f:
                json.dump(found, f)
    slower = larger = 0
    print("| row | new / old | 95% interval | old | new | RSS old | RSS new | ratio |\n|---|---|---|---|---|---|---|---|")
    for name, sides in found.items():
        old, new = ([seconds for seconds, _ in sides[side]] for side in ("old", "new"))
        memory = [max(rss for _, rss in sides[side]) / 2**20 for side in ("old", "new")]
        ratio, low, high = interval([b / a for a, b in zip(old, new)])
        slower += low > 1
        larger += memory[1] > 1.02 * memory[0]
        print(f"| {name} | {ratio:.3f} | {low:.3f} to {high:.3f} | {statistics.median(old):.4f} s | {statistics.median(new):.4f} s | "
              f"{memory[0]:.0f} MiB | {memory[1]:.0f} MiB | {memory[1] / memory[0]:.2f} |")
    print(f"\n{len(found)} rows, {slower} slower, {larger} larger")
    sys.exit(1 if slower or larger else 0)


if __name__ == "__main__":
    main()
