#!/usr/bin/env python3
"""Everything that only a card can show, as named stages in the order of their worth, one line per claim: asked, found, right or not.

  tests/system/card_campaign.py [--program FILE] [--tests DIR] [--out DIR] [--peers DIR] [--budget SECONDS] [--only RE] [--skip RE]
  tests/system/card_campaign.py --list         # stages, expected seconds, what they show
  tests/system/card_campaign.py --prepare DIR  # where there is no card: the CPU's side of comparisons, into DIR
  tests/system/card_campaign.py --rehearse     # the same stages on the CPU with tiny models, so that the stages themselves are tested

Each stage is a process of its own with a time limit; one that hangs or dies costs its limit, and the lines that it wrote before stay.
--out keeps what was found (STAGE.jsonl, results.json, table.md); stages that are done are left out when the command is given again, so
that several calls of ten minutes make one campaign (--again repeats them). --budget ends a call in time: no stage begins that is
expected to take longer than what is left. --reference names what --prepare made (default: beside --out). Peers are PyTorch programs
(h200_trimodal_graph.py, h200_gpt2_hf.py, h200_llama_hf.py, moe_step.py), run between ours, with transformers of `tools/pack --wheels`
where it was carried along. Exit code 1 when a line is wrong or a stage
did not come to its end.
"""
import argparse
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import card_generation
import card_numbers
import card_ranks
import card_speed
from card_stage import StageRun, stages_by_name
from program import BUILD, ORTHANT, SOURCE

MODULES = (card_generation, card_numbers, card_ranks, card_speed)
ORDER = ("machine", "compiled peers", "nccl operations", "nccl parity 2", "cp", "keep bits", "trimodal b8", "trimodal b32", "trimodal b32 s512", "gpt2", "llama", "generate", "generate numbers", "kills",
         "kernel tests", "graph bits", "step tests", "nccl parity 4", "bench kernels", "trimodal b256", "gaps", "overlap", "experts", "counters",
         "nccl parity 8", "nccl random", "nccl graph", "nccl hosts", "perplexity", "demo", "padding", "links", "restarts", "cp 4", "sanitizer",
         "calibration")


def all_stages():
    found = stages_by_name(MODULES)
    if set(found) != set(ORDER):
        raise ValueError(f"stages and their order differ: {set(found) ^ set(ORDER)}")
    return [found[name] for name in ORDER]


def descendants_in_session(session):
    """Processes of a session that we started."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as f:
                if int(f.read().rsplit(")", 1)[1].split()[3]) == session:
                    found.append(int(name))
        except (OSError, IndexError):
            continue
    return found


def end_session(job):
    """Ends a stage and all that it started: ranks have process groups of their own, but its session."""
    for _ in range(3):
        for pid in descendants_in_session(job.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        time.sleep(0.1)


def lines_of(path):
    try:
        with open(path) as f:
            return [json.loads(line) for line in f.read().splitlines(keepends=True) if line.endswith("\n")]
    except OSError:
        return []


def run_stage(stage, a, limit):
    """What became of it: status, seconds, lines."""
    log, found = os.path.join(a.out, f"{stage.file}.log"), os.path.join(a.out, f"{stage.file}.jsonl")
    if os.path.exists(found):
        os.remove(found)
    words = [sys.executable, os.path.abspath(__file__), *a.words, "--stage", stage.name]
    environment = {**os.environ, "ORTHANT": a.program, "ORTHANT_BUILD": os.path.dirname(a.tests)}
    began = time.monotonic()
    with open(log, "w") as f:
        job = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=f, stderr=f, start_new_session=True, env=environment)
        try:
            code = job.wait(limit)
            status = "done" if code == 0 else f"ended with exit code {code}"
        except subprocess.TimeoutExpired:
            status = f"not over after {limit:.0f} s"
        end_session(job)
        job.wait()
    lines = lines_of(found)
    if status == "done" and not lines:
        status = "found nothing"
    return {"stage": stage.name, "status": status, "seconds": round(time.monotonic() - began, 1), "lines": lines}


def verdict(right):
    return {True: "as asked", False: "MISSED", None: "printed"}[right]


def table(results):
    lines = ["| issue | what | asked | found | |", "|---|---|---|---|---|"]
    for result in results:
        for line in result["lines"]:
            lines.append(f"| {line['issue']} | {line['claim']} | {line['asked']} | {line['found']} | {verdict(line['right'])} |")
        if result["status"] != "done":
            lines.append(f"| | stage {result['stage']} | to its end | {result['status']} | MISSED |")
    return "\n".join(lines) + "\n"


def write_results(a, results):
    ordered = [results[stage.name] for stage in all_stages() if stage.name in results]
    path = os.path.join(a.out, "results.json")
    with open(path + ".new", "w") as f:
        json.dump(ordered, f, indent=1)
    os.replace(path + ".new", path)
    with open(os.path.join(a.out, "table.md"), "w") as f:
        f.write(table(ordered))
    return ordered


def old_results(a):
    try:
        with open(os.path.join(a.out, "results.json")) as f:
            return {result["stage"]: result for result in json.load(f)}
    except OSError:
        return {}


def chosen_stages(a, results):
    for stage in all_stages():
        wanted = re.search(a.only, stage.name) and not (a.skip and re.search(a.skip, stage.name))
        done = results.get(stage.name, {}).get("status") == "done" and not a.again
        if wanted and not done:
            yield stage


def phases_of(stages, together):
    """(stages, how many at a time): with several at a time, those that time nothing come first, and then the others alone, in their order."""
    if together == 1:
        return [(stages, 1)]
    return [([stage for stage in stages if not stage.timed], together), ([stage for stage in stages if stage.timed], 1)]


def campaign(a):
    os.makedirs(a.out, exist_ok=True)
    began = time.monotonic()
    results = old_results(a)
    ran, left_out, telling = [], [], threading.Lock()

    def run_in_time(stage):
        left = a.budget - (time.monotonic() - began) if a.budget else float("inf")
        expected, limit = stage.seconds_here(a.rehearse)
        if expected > left:
            left_out.append(stage.name)
            return
        result = run_stage(stage, a, min(limit, left))
        with telling:
            for line in result["lines"]:
                print(f"{verdict(line['right']):8} {line['issue']} {line['claim']}: {line['found']} (asked: {line['asked']})", flush=True)
            print(f"         {result['stage']}: {result['status']}, {result['seconds']} s", flush=True)
            results[result["stage"]] = result
            ran.append(result)
            write_results(a, results)

    for stages, at_a_time in phases_of(list(chosen_stages(a, results)), a.together):
        with concurrent.futures.ThreadPoolExecutor(at_a_time) as pool:
            list(pool.map(run_in_time, stages))
    if left_out:
        print(f"no time for: {', '.join(left_out)}")
    wrong = sum(line["right"] is False for result in ran for line in result["lines"])
    broken = sum(result["status"] != "done" for result in ran)
    print(f"\n{sum(len(result['lines']) for result in ran)} lines of {len(ran)} stages, {wrong} missed, {broken} stages not at their end; "
          f"all that is known: {os.path.join(a.out, 'table.md')}")
    return 1 if wrong or broken else 0


def list_stages(a):
    total = 0
    for stage in all_stages():
        expected, limit = stage.seconds_here(a.rehearse)
        total += expected
        print(f"{stage.name:20} {expected:4} s, at most {limit:4} s  {'alone' if stage.timed else '     '}  issues {stage.issues:12} {stage.shows}")
    print(f"{'':20} {total:4} s in all")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ORTHANT)
    parser.add_argument("--tests", default=os.path.join(BUILD, "tests"), help="folder of the test programs of cards")
    parser.add_argument("--out", default=os.path.join(SOURCE, "build", "card"))
    parser.add_argument("--peers", default=os.environ.get("PEERS", os.path.join(SOURCE, "..", "shared", "peers")))
    parser.add_argument("--reference", help="what --prepare made")
    parser.add_argument("--budget", type=float, help="seconds for this call")
    parser.add_argument("--only", default="", metavar="RE")
    parser.add_argument("--skip", default="", metavar="RE")
    parser.add_argument("--together", type=int, default=1, help="stages that time nothing run so many side by side, before the others (default 1)")
    parser.add_argument("--again", action="store_true", help="also stages that are done")
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--prepare", metavar="DIR")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    a = parser.parse_args()
    for name in ("program", "tests", "out", "peers"):
        setattr(a, name, os.path.abspath(getattr(a, name)))
    a.reference = os.path.abspath(a.reference or os.path.join(os.path.dirname(a.out), "reference"))
    if a.list:
        return list_stages(a)
    if a.prepare:
        return card_numbers.prepare(os.path.abspath(a.prepare), a.rehearse)
    if a.stage:
        return StageRun(a, next(stage for stage in all_stages() if stage.name == a.stage)).run()
    a.words = ["--program", a.program, "--tests", a.tests, "--out", a.out, "--peers", a.peers, "--reference", a.reference]
    a.words += ["--rehearse"] * a.rehearse
    return campaign(a)


if __name__ == "__main__":
    sys.exit(main())
