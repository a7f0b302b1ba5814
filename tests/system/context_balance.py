#!/usr/bin/env python3
"""How evenly ranks of cp share attention: pairs of a query and a key that each rank computes, and its CPU seconds.

  tests/system/context_balance.py [--cp 2 4 8] [--tokens 32768] [--seconds] [--program build/bin/orthant]

Rows are one causal document, and packed documents of lengths drawn from a log-normal distribution (seeded). Pairs are counted from the cut of
graph/context.h (Note [Context cuts]). Imbalance: what the busiest rank has over the mean. `--seconds` also trains a small
Llama on two ranks and prints the CPU seconds of each (a rank that waits for the other sleeps).
"""
import argparse
import json
import os
import random
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def chunk(tokens, parts, index):
    return index * tokens // parts, (index + 1) * tokens // parts


def positions(tokens, cp, rank, zigzag):
    """The ranges of a row that a rank has."""
    if not zigzag:
        return [chunk(tokens, cp, rank)]
    return [chunk(tokens, 2 * cp, rank), chunk(tokens, 2 * cp, 2 * cp - 1 - rank)]


def pairs_of(ranges, documents):
    """Causal pairs of the queries in these ranges, within documents."""
    total = 0
    for begin, end in ranges:
        for first, last in documents:
            low, high = max(begin, first) - first, min(end, last) - first
            if low < high:
                total += (high * (high + 1) - low * (low + 1)) // 2
    return total


def imbalance(tokens, cp, documents, zigzag=True):
    work = [pairs_of(positions(tokens, cp, rank, zigzag), documents) for rank in range(cp)]
    return max(work) * cp / sum(work) - 1


def drawn(tokens, mean, rng):
    documents, begin = [], 0
    while begin < tokens:
        size = max(1, round(rng.lognormvariate(0, 1) * mean / 1.6487))
        documents.append((begin, min(tokens, begin + size)))
        begin += size
    return documents


def share_of_attention(tokens, documents, hidden):
    """Of a layer's products and attention, by FLOPs of a Llama layer of so many channels (inner ones 8/3 of them)."""
    products = tokens * 2 * hidden * hidden * (4 + 8)
    attention = 4 * hidden * pairs_of([(0, tokens)], documents)
    return attention / (attention + products)


def print_pairs(arguments):
    rng = random.Random(17)
    print(f"Rows of {arguments.tokens} tokens; packed: mean of 200 drawn rows, and the worst of them.\n")
    print("| documents | cp | more pairs than the mean, busiest rank | worst row | attention's share of a layer of 1,024 channels | step longer by |")
    print("|---|---|---|---|---|---|")
    for cp in arguments.cp:
        one = imbalance(arguments.tokens, cp, [(0, arguments.tokens)])
        print(f"| one | {cp} | {100 * one:.2f}% | | {100 * share_of_attention(arguments.tokens, [(0, arguments.tokens)], 1024):.0f}% | |")
    for mean in (arguments.tokens // 4, arguments.tokens // 16, arguments.tokens // 64):
        for cp in arguments.cp:
            rows = [drawn(arguments.tokens, mean, rng) for _ in range(200)]
            each = [imbalance(arguments.tokens, cp, row) for row in rows]
            share = [share_of_attention(arguments.tokens, row, 1024) for row in rows]
            longer = [i * s for i, s in zip(each, share)]
            print(f"| {mean} tokens in the mean | {cp} | {100 * sum(each) / 200:.0f}% | {100 * max(each):.0f}% | {100 * sum(share) / 200:.0f}% "
                  f"| {100 * sum(longer) / 200:.1f}% |")


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rank_seconds(command):
    """CPU seconds of each rank that a command starts, as last seen before it ended."""
    seconds = {}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        while run.poll() is None:
            for pid in children(run.pid):
                try:
                    seconds[pid] = cpu_seconds(pid)
                except (FileNotFoundError, ProcessLookupError):
                    pass
            time.sleep(0.1)
    if run.returncode != 0:
        raise SystemExit(f"exit code {run.returncode}: {' '.join(command)}")
    return [seconds[pid] for pid in sorted(seconds)]


def print_seconds(program):
    print("\n| way | CPU seconds of ranks | above the mean |\n|---|---|---|")
    for way in ("ring", "all_to_all", "gather"):
        with tempfile.TemporaryDirectory() as folder:
            config = os.path.join(folder, "run.json")
            with open(config, "w") as file:
                json.dump({**CONFIG, "parallel": {"context": way}}, file)
            seconds = rank_seconds([program, "train", "--config", config, "--output_dir", os.path.join(folder, "out"), "--threads", "1"])
        mean = sum(seconds) / len(seconds)
        print(f"| {way} | {', '.join(f'{one:.2f}' for one in seconds)} | {100 * (max(seconds) / mean - 1):.1f}% |", flush=True)


# Attention is most of its work.
CONFIG = {"name": "balance", "model": {"kind": "llama", "preset": "llama-tiny", "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2,
                                       "num_hidden_layers": 2, "intermediate_size": 344, "max_position_embeddings": 8192},
          "data": {"kind": "tokens", "sequence_length": 8192, "samples": 64}, "mesh": {"cp": 2},
          "train": {"global_batch_size": 1, "steps": 4}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cp", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--seconds", action="store_true")
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "bin", "orthant"))
    arguments = parser.parse_args()
    print_pairs(arguments)
    if arguments.seconds:
        print_seconds(arguments.program)


if __name__ == "__main__":
    main()
