#!/usr/bin/env python3
"""How long two hosts (network namespaces) take to start ranks, let them meet and end: this program against an earlier one. Needs root.

    python3 tests/system/hosts_startup.py --against /path/to/earlier/orthant --rounds 15
"""
import argparse
import statistics
import subprocess
import sys
import time

from program import ORTHANT, clean_environment
from test_hosts import ADDRESSES, HOSTS, TOKEN, TwoHosts


def seconds_of(program, nproc):
    started = time.monotonic()
    jobs = []
    for node in (0, 1):
        words = ["ip", "netns", "exec", HOSTS[node], program, "launch", "--nproc", str(nproc), "--nnodes", "2", "--node_rank", str(node), "--rendezvous",
                 f"{ADDRESSES[0]}:29400", "--", program, "bench", "startup", "--json"]
        jobs.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
                                     env=clean_environment(ORTHANT_TOKEN=TOKEN)))
    for job in jobs:
        _, errors = job.communicate(timeout=120)
        assert job.returncode == 0, errors
    return time.monotonic() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", required=True)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--nproc", type=int, default=2)
    options = parser.parse_args()
    programs = (options.against, ORTHANT)
    seconds = {program: [] for program in programs}
    TwoHosts.setUpClass()
    try:
        for _ in range(options.rounds):
            for program in programs:
                seconds[program].append(seconds_of(program, options.nproc))
    finally:
        TwoHosts.tearDownClass()
    before, after = (statistics.median(seconds[program]) for program in programs)
    print(f"2 hosts x {options.nproc} ranks, median of {options.rounds}: {before:.3f} s before, {after:.3f} s now, {1000 * (after - before):+.0f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
