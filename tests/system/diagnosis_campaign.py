#!/usr/bin/env python3
"""Runs with faults put in on purpose, and what `orthant doctor RUN` makes of each: a table, and exit code 1 when it names the right cause first in
fewer than all but two, or a wrong one as certain. `orthant report` must show each run as well.

  tests/system/diagnosis_campaign.py               all of them, about five minutes on two cores
  tests/system/diagnosis_campaign.py --only REGEX  some
  tests/system/diagnosis_campaign.py --list"""
import argparse
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from program import ORTHANT, children, clean_environment, free_port, is_alive, orthant, wait_until

SMALL = {"name": "small", "seed": 3,
         "model": {"kind": "llama", "preset": "llama-tiny", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
                   "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 64},
         "data": {"kind": "tokens", "sequence_length": 64, "samples": 512}, "parallel": {"microbatches": 2},
         "train": {"global_batch_size": 16, "steps": 100000}, "checkpoint": {"save_every": 0}}
LARGE = ("model.hidden_size=128", "model.intermediate_size=512", "data.sequence_length=128")  # whose work outweighs the rest
TINY = ("data.sequence_length=8", "model.hidden_size=16", "model.intermediate_size=16", "model.num_attention_heads=2",
        "model.num_key_value_heads=2")
STEPS = 40


class Fault:
    """A run in a folder of its own; make() leaves it as the fault did, and doctor is asked while it still stands."""

    def __init__(self, folder):
        self.folder, self.run, self.process = folder, os.path.join(folder, "run"), None
        self.stopped = []

    def start(self, mesh, *settings, words=(), before=None, steps=None):
        with open(os.path.join(self.folder, "config.json"), "w") as file:
            json.dump(SMALL, file)
        line = [ORTHANT, "train", "--config", "config.json", "--mesh", mesh, "--output-dir", self.run, *map(str, words)]
        for setting in (*settings, *([f"train.steps={steps}"] if steps else [])):
            line += ["--set", setting]
        with open(os.path.join(self.folder, "said"), "w") as said:
            self.process = subprocess.Popen(line, cwd=self.folder, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                                            start_new_session=True, preexec_fn=before)
        return self

    def steps(self):
        try:
            with open(os.path.join(self.run, "metrics.jsonl")) as file:
                return file.read().count("\n")
        except OSError:
            return 0

    def reach(self, steps):
        wait_until(lambda: self.steps() >= steps or self.process.poll() is not None, 90)
        return self

    def ranks(self):
        return children(self.process.pid)

    def signal_rank(self, rank, number):
        pid = self.ranks()[rank]
        os.kill(pid, number)
        if number == signal.SIGSTOP:
            self.stopped.append(pid)

    def ended(self, seconds=120):
        self.process.wait(timeout=seconds)

    def end_now(self):
        """Ends the run as a user would, so that it has steps and nothing wrong but its speed."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGTERM)
        self.ended()

    def clean(self):
        for pid in self.stopped:
            if is_alive(pid):
                os.kill(pid, signal.SIGCONT)
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def killed_rank(fault, mesh="dp=2", number=signal.SIGKILL):
    fault.start(mesh).reach(5).signal_rank(1, number)
    fault.ended()


def killed_job(fault):
    fault.start("dp=2").reach(5)
    pids = [*fault.ranks(), fault.process.pid]
    for pid in [fault.process.pid, *pids[:-1]]:
        os.kill(pid, signal.SIGKILL)
    fault.ended()
    wait_until(lambda: not any(is_alive(pid) for pid in pids), 10)


def stopped_now(fault):
    fault.start("tp=2").reach(5).signal_rank(1, signal.SIGSTOP)
    time.sleep(1)


def stopped_until_timeout(fault):
    fault.start("pp=2", words=("--timeout", "step=3")).reach(5).signal_rank(0, signal.SIGSTOP)
    fault.ended()


def halting(fault, rank, share=0.7, period=0.02):
    """The rank is on its core for a part of the time alone, as beside another program."""
    pid = fault.ranks()[rank]
    ended = threading.Event()

    def halt():
        while not ended.is_set() and is_alive(pid):
            try:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(period * share)
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                return
            time.sleep(period * (1 - share))

    thread = threading.Thread(target=halt)
    thread.start()
    return ended, thread


def slow_rank(fault, mesh="dp=2"):
    fault.start(mesh, *LARGE, "parallel.microbatches=1").reach(5)
    ended, thread = halting(fault, 1)
    begun = fault.steps()
    fault.reach(begun + STEPS)
    fault.end_now()
    ended.set()
    thread.join()


def timed(mesh, *settings, words=()):
    def make(fault):
        fault.start(mesh, *settings, words=words, steps=STEPS)
        fault.ended()
    return make


def not_finite(fault, bad_steps, poison="activation"):
    fault.start("dp=2", f"train.bad_steps={bad_steps}",
                'train.poison=["' + f"{poison}:rank=1,unit=layers.2,step=4,value=nan" + '"]', steps=12)
    fault.ended()


def memory_limit(fault):
    limit = 700 << 20
    fault.start("dp=1", "train.global_batch_size=512", "parallel.microbatches=1", "model.hidden_size=256", "model.intermediate_size=2048",
                words=("--force",), steps=4, before=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)))
    fault.ended()


def full_disk(fault):
    fault.run = os.path.join(fault.folder, "small", "run")
    os.makedirs(os.path.dirname(fault.run))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", os.path.dirname(fault.run)], check=True)
    try:
        fault.start("dp=1", "checkpoint.save_every=2", "checkpoint.retry_seconds=0", "model.hidden_size=128", "model.intermediate_size=1024", steps=4)
        fault.ended()
        shutil.copytree(fault.run, os.path.join(fault.folder, "run"))
    finally:
        subprocess.run(["umount", os.path.dirname(fault.run)], check=True)
        fault.run = os.path.join(fault.folder, "run")


def stopped_on_request(fault):
    fault.start("dp=2").reach(5)
    fault.end_now()


def still_running(fault):
    fault.start("dp=1").reach(5)


def restarted(fault):
    fault.start("dp=2", *LARGE, "checkpoint.save_every=40", words=("--max-restarts", "2"), steps=120).reach(45).signal_rank(1, signal.SIGKILL)
    fault.ended()


UNEVEN = 'parallel.split=[["embed"],["layers.0","layers.1","layers.2","layers.3","head","loss"]]'

# Name: how it is made, and the causes that are right.
FAULTS = {
    "killed rank of dp": (killed_rank, {"killed"}),
    "killed rank of pp": (lambda fault: killed_rank(fault, "pp=2"), {"killed"}),
    "killed rank of tp": (lambda fault: killed_rank(fault, "tp=2"), {"killed"}),
    "crashed rank": (lambda fault: killed_rank(fault, "dp=2", signal.SIGSEGV), {"crashed"}),
    "aborted rank": (lambda fault: killed_rank(fault, "tp=2", signal.SIGABRT), {"crashed"}),
    "killed with its launcher": (killed_job, {"killed"}),
    "stopped rank, still stopped": (stopped_now, {"stopped rank"}),
    "stopped rank, timed out": (stopped_until_timeout, {"stopped rank"}),
    "slow rank of dp": (slow_rank, {"slow rank"}),
    "slow rank of tp": (lambda fault: slow_rank(fault, "tp=2"), {"slow rank"}),
    "uneven split": (timed("pp=2", *LARGE, UNEVEN, "parallel.microbatches=4"), {"uneven split"}),
    "bubble": (timed("pp=2", *LARGE, "parallel.microbatches=1"), {"bubble"}),
    "tiny microbatches": (timed("dp=1", *TINY, "parallel.microbatches=16", "model.num_hidden_layers=12"), {"tiny microbatches"}),
    "data slower than steps": (timed("dp=1", *TINY, "parallel.microbatches=1", "model.num_hidden_layers=1"), {"slow data"}),
    "not finite, stops": (lambda fault: not_finite(fault, "stop"), {"not finite"}),
    "not finite, goes on": (lambda fault: not_finite(fault, "skip"), {"not finite"}),
    "learning rate too large": (timed("dp=1", "optimizer.lr=1e30", "optimizer.clip=0", "train.bad_steps=stop"), {"not finite"}),
    "memory limit": (memory_limit, {"out of memory"}),
    "slow saves": (timed("dp=1", "checkpoint.save_every=1"), {"slow disk"}),
    "full disk": (full_disk, {"disk full"}),
    "too many threads": (timed("dp=2", *LARGE, words=("--threads", os.cpu_count() * 2)), {"too many threads"}),
    "exchange over loopback": (timed("tp=2", "data.sequence_length=16", words=("--backend", "gloo")), {"exposed exchange"}),
    "stopped on request": (stopped_on_request, {"nothing wrong"}),
    "still running": (still_running, {"running"}),
    "restarted and done": (restarted, {"nothing wrong"}),
}


def doctor(fault):
    """What doctor says first, and whether report shows the run."""
    told = orthant("doctor", fault.run, "--json")
    if told.returncode != 0:
        return {"cause": f"exit code {told.returncode}", "confidence": 0, "answer": told.stderr.strip()}
    page = os.path.join(fault.folder, "page.html")
    shown = orthant("report", fault.run, "--html", page)
    finding = json.loads(told.stdout)["findings"][0]
    with open(page) if shown.returncode == 0 else open(os.devnull) as file:
        if finding["cause"] not in file.read():
            return {"cause": f"report does not show {finding}", "confidence": 0, "answer": shown.stderr.strip()}
    return finding


def tried(name):
    """(finding, whether it is right)"""
    make, right = FAULTS[name]
    folder = tempfile.mkdtemp()
    fault = Fault(folder)
    try:
        make(fault)
        finding = doctor(fault)
    finally:
        fault.clean()
        shutil.rmtree(folder, ignore_errors=True)
    return finding, finding["cause"] in right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    names = [name for name in FAULTS if re.search(arguments.only, name)]
    if arguments.list:
        print("\n".join(names))
        return 0
    right = 0
    certain_and_wrong = []
    for name in names:
        finding, is_right = tried(name)
        right += is_right
        if not is_right and finding["confidence"] >= 0.9:
            certain_and_wrong.append(name)
        print(f"{'right' if is_right else 'WRONG':6} {name:28} {finding['cause']} ({finding['confidence']:.2f}): {finding['answer'][:150]}", flush=True)
    print(f"{right} of {len(names)} right, {len(certain_and_wrong)} wrong with certainty")
    return 0 if right >= len(names) - 2 and not certain_and_wrong else 1


if __name__ == "__main__":
    sys.exit(main())
