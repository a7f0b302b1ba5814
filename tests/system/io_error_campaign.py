#!/usr/bin/env python3
"""Lets every call on files of a run fail, one after the other, and checks that nothing is lost.

  python3 io_error_campaign.py --jobs 16                  # every call, every error, once and for good
  python3 io_error_campaign.py --per-call 1 --seed 1      # every call, so many errors of each, drawn
  python3 io_error_campaign.py --sample 20 --seed 1       # so many of all these, drawn

A shim before the C library (fault_shim.c) counts the calls of one undisturbed run of each scenario. Then the run is repeated with the
first call failing, the second, and so on: with each error, that call alone, all calls on its path from there on, or all calls from there on;
or with the process killed before that call. After each run: the exit code is 0 with the weights of the undisturbed run, or 4 (3 from a
launcher whose ranks ended) with a message that names a path of the run, or the process was killed; every checkpoint and metric of before is there under some name, unless a newer checkpoint is whole and the rules
let the old one go; so is a checkpoint of every save that the run got past without a complaint, or a newer one; and a run without faults goes on
from the newest whole checkpoint (after exit code 0: of the last step) to the same weights, with every metric, and leaves nothing half-done.
Metrics of new steps may be missing only where metrics.jsonl itself could not be written to the end, and the run said so.
"""
import argparse
import collections
import errno
import hashlib
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from program import FORK_SERVER, ORTHANT, clean_environment
from warm_program import WarmProgram

HERE = os.path.dirname(os.path.abspath(__file__))
ERRORS = ("EIO", "EACCES", "ESTALE", "EMFILE", "ENOSPC")
ONCE, ALL_LATER, SAME_PATH, KILLED = 0, 1, 2, 3
MODES = {"once": ONCE, "all": ALL_LATER, "path": SAME_PATH, "killed": KILLED}
KEEP_LAST, SAVE_EVERY = 2, 2
CONFIG = {"name": "io", "seed": 1,
          "model": {"kind": "llama", "preset": "llama-tiny", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
                    "num_key_value_heads": 1, "vocab_size": 11},
          "data": {"kind": "tokens", "sequence_length": 4, "samples": 64},
          "optimizer": {"kind": "sgd", "lr": 1e-2}, "lr_schedule": {"kind": "constant"},
          "train": {"global_batch_size": 2, "steps": 100},
          "checkpoint": {"save_every": SAVE_EVERY, "keep_last": KEEP_LAST, "retry_seconds": 0.05}}
PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
WORD = (1 << 64) - 1

# What is in the folder before (made by a run of so many steps; 0: no folder), what becomes of it, and the options.
Scenario = collections.namedtuple("Scenario", "before change options kill_at last")
SCENARIOS = {
    "resume": Scenario(4, None, ("--resume", "auto"), 0, 6),
    "earlier": Scenario(4, None, ("--resume", "{run}/checkpoints/step-2"), 0, 4),
    "damaged": Scenario(4, "damage", ("--resume", "auto"), 0, 4),
    "restart": Scenario(4, None, ("--resume", "auto", "--max-restarts", "1"), 3, 8),
    "restart_unsaved": Scenario(0, None, ("--max-restarts", "1", "--set", "checkpoint.save_every=4"), 3, 4),
    "fresh": Scenario(0, None, (), 0, 6),
    "from_scratch": Scenario(4, "lose", ("--resume", "auto", "--from-scratch"), 0, 2),
    "background": Scenario(4, None, ("--resume", "auto", "--set", "checkpoint.asynchronous=true"), 0, 8),
    "best": Scenario(0, None, ("--set", "checkpoint.keep_best=1", "--set", "train.eval_every=2", "--set", "data.eval_fraction=0.25"), 0, 6),
    "two_ranks": Scenario(4, None, ("--resume", "auto", "--mesh", "fsdp=2"), 0, 6),
}


def xxh64(data):
    """Written from the description of the hash, not from the program's."""
    def rotated(value, bits):
        return (value << bits | value >> 64 - bits) & WORD

    def mixed(lane, word):
        return rotated((lane + word * PRIMES[1]) & WORD, 31) * PRIMES[0] & WORD

    place = 0
    if len(data) >= 32:
        lanes = [(PRIMES[0] + PRIMES[1]) & WORD, PRIMES[1], 0, -PRIMES[0] & WORD]
        while place + 32 <= len(data):
            lanes = [mixed(lane, word) for lane, word in zip(lanes, struct.unpack_from("<4Q", data, place))]
            place += 32
        value = sum(rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18))) & WORD
        for lane in lanes:
            value = ((value ^ mixed(0, lane)) * PRIMES[0] + PRIMES[3]) & WORD
    else:
        value = PRIMES[4]
    value = (value + len(data)) & WORD
    while place + 8 <= len(data):
        value = (rotated(value ^ mixed(0, struct.unpack_from("<Q", data, place)[0]), 27) * PRIMES[0] + PRIMES[3]) & WORD
        place += 8
    if place + 4 <= len(data):
        value = (rotated(value ^ struct.unpack_from("<I", data, place)[0] * PRIMES[0] & WORD, 23) * PRIMES[1] + PRIMES[2]) & WORD
        place += 4
    for byte in data[place:]:
        value = rotated(value ^ byte * PRIMES[4] & WORD, 11) * PRIMES[0] & WORD
    for shift, prime in ((33, PRIMES[1]), (29, PRIMES[2])):
        value = (value ^ value >> shift) * prime & WORD
    return f"{value ^ value >> 32:016x}"


def contents(folder):
    found = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(parent, name), "rb") as f:
                found[os.path.relpath(os.path.join(parent, name), folder)] = f.read()
    return found


def digest(files):
    return hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()


def is_whole(name, files):
    """Of the step in its name, and every file of the manifest with its size and hash, and the manifest's own."""
    text = files.get("manifest.json", b"")
    closing = re.search(rb',\n "xxh64": "([0-9a-f]{16})"\n}\n$', text)
    if not closing or closing.group(1).decode() != xxh64(text[:closing.start()]):
        return False
    manifest = json.loads(text)
    if not re.fullmatch(rf"step-{manifest['step']}(\..*)?", name):
        return False
    return all(name in files and len(files[name]) == file["bytes"] and [xxh64(files[name])] == file["xxh64"]
               for name, file in manifest["files"].items())


class Folder:
    """What a run's folder holds."""

    def __init__(self, run):
        parent = os.path.join(run, "checkpoints")
        names = sorted(set(os.listdir(parent)) - {"latest", "best"}) if os.path.isdir(parent) else []
        files = {name: contents(os.path.join(parent, name)) for name in names}
        self.names = names
        whole = {name: digest(found) for name, found in files.items() if is_whole(name, found)}  # two may hold the same
        self.by_digest = {found: name for name, found in whole.items()}
        self.kept = [name for name in whole if ".partial-" not in name]
        self.whole_steps = {int(name[5:]): found for name, found in whole.items() if re.fullmatch(r"step-\d+", name)}
        # A step that is trained again has the bytes of before in other files.
        self.inodes = {step: os.stat(os.path.join(parent, f"step-{step}", "manifest.json")).st_ino for step in self.whole_steps}
        self.lines = {}
        for name in ("metrics.jsonl", "metrics.jsonl.superseded"):
            path = os.path.join(run, name)
            self.lines[name] = []
            if os.path.exists(path):
                with open(path, "rb") as f:
                    self.lines[name] = [line for line in f.read().split(b"\n")[:-1]]

    def steps(self):
        return [json.loads(line)["step"] for line in self.lines["metrics.jsonl"]]


def lost(before, after, resumed_at, expendable):
    """What was there before and is gone without right."""
    wrong = []
    new = set(after.inodes.values()) - set(before.inodes.values())
    for found, name in before.by_digest.items():
        if found in after.by_digest:
            continue
        step = int(re.match(r"step-(\d+)", name).group(1))
        newer = [other for other in after.whole_steps if other > step]
        superseded = step > resumed_at or expendable
        if not new or not (superseded or len(newer) >= KEEP_LAST):
            wrong.append(f"checkpoint {name} is gone; now: {after.names}")
    kept = set(after.lines["metrics.jsonl"]) | set(after.lines["metrics.jsonl.superseded"])
    for line in before.lines["metrics.jsonl"]:
        if line in kept or (new and json.loads(line)["step"] > (0 if expendable else resumed_at)):
            continue
        wrong.append(f"metric {line[:40]} is gone")
    return wrong


def unsaved(scenario, finished, after):
    """Saves that the run got past without a word, and whose checkpoint is not there, nor a newer one."""
    every = 4 if "checkpoint.save_every=4" in scenario.options else SAVE_EVERY
    # The next save begins when the one in the background has ended.
    margin = every if "checkpoint.asynchronous=true" in scenario.options else 0
    told = {int(step) for step in re.findall(r"the checkpoint of step (\d+) was not saved", finished.stderr)}
    newest = max(after.whole_steps, default=0)
    past = [step for step in range(every, max(after.steps(), default=0) - margin, every) if step not in told]
    return [f"steps up to {max(after.steps())}, saved at {past}, and of {after.names} the newest whole one is of step {newest}"] if past[-1:] > [newest] else []


class Campaign:
    def __init__(self, scratch):
        self.scratch = scratch
        self.config = os.path.join(scratch, "config.json")
        with open(self.config, "w") as f:
            json.dump(CONFIG, f)
        self.shim = os.path.join(scratch, "fault_shim.so")
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-shared", "-fPIC", "-o", self.shim, os.path.join(HERE, "fault_shim.c"), "-ldl"], check=True)
        self.environment = clean_environment(CUDA_VISIBLE_DEVICES="")
        self.program = WarmProgram(ORTHANT, [FORK_SERVER, self.shim], self.environment)
        self.template = os.path.join(scratch, "template")
        finished = self.train(self.template, 4)
        assert finished.returncode == 0, finished.stderr
        self.undisturbed = {}

    def train(self, run, last, options=(), **environment):
        words = [ORTHANT, "train", "--config", self.config, "--output-dir", run, "--steps", str(last), "--json",
                 *(word.format(run=run) for word in options)]
        try:
            return self.program.run(words, self.scratch, {**self.environment, **{key: str(value) for key, value in environment.items()}}, 60)
        except subprocess.TimeoutExpired as late:
            return subprocess.CompletedProcess(words, "hung", "", str(late.stderr))

    def prepare(self, scenario, run):
        if scenario.before:
            shutil.copytree(self.template, run)
        if scenario.change == "damage":
            with open(os.path.join(run, "checkpoints", "step-4", "manifest.json"), "r+b") as f:
                f.seek(30)
                f.write(b"#")
        if scenario.change == "lose":
            shutil.rmtree(os.path.join(run, "checkpoints"))

    @staticmethod
    def further_options(scenario, after):
        """Only where there is no checkpoint to lose may the next run begin anew."""
        pairs = zip(scenario.options[::2], scenario.options[1::2]) if "--from-scratch" not in scenario.options else ()
        settings = [word for option, value in pairs if option in ("--mesh", "--set") for word in (option, value)]
        return ("--resume", "auto", *(() if after.kept else ("--from-scratch",)), *settings)

    def disturbed(self, scenario, run, position, error, mode, log=None):
        counter = run + ".counter"
        with open(counter, "wb") as f:
            f.write(bytes(4096))
        environment = {"FAULT_ROOT": run, "FAULT_COUNTER": counter, "FAULT_AT": position, "FAULT_ERRNO": error,
                       "FAULT_LASTING": mode, "FAULT_KILL_AT": scenario.kill_at}
        if log:
            environment["FAULT_LOG"] = log
        finished = self.train(run, scenario.last, scenario.options, **environment)
        with open(counter, "rb") as f:
            calls = struct.unpack("<q", f.read(8))[0]
        os.remove(counter)
        return finished, calls

    def count(self, name):
        """Runs the scenario undisturbed; the calls it makes, as (call, path)."""
        scenario, run, log = SCENARIOS[name], os.path.join(self.scratch, f"count-{name}"), os.path.join(self.scratch, f"log-{name}")
        self.prepare(scenario, run)
        finished, _ = self.disturbed(scenario, run, 0, 0, ONCE, log)
        assert finished.returncode == 0, finished.stderr
        self.undisturbed[name] = json.loads(finished.stdout)["weights_hash"]
        further = self.train(run, scenario.last + 2, self.further_options(scenario, Folder(run)))
        assert further.returncode == 0, further.stderr
        self.undisturbed[name, "further"] = json.loads(further.stdout)["weights_hash"]
        with open(log) as f:
            calls = [line.split(" ", 2)[1:] for line in f]
        shutil.rmtree(run)
        os.remove(log)
        return [(call, path.strip().removeprefix(run)) for call, path in calls]

    def trial(self, name, position, error, mode):
        """What was wrong; empty when all is well."""
        scenario = SCENARIOS[name]
        run = tempfile.mkdtemp(dir=self.scratch)
        os.rmdir(run)
        self.prepare(scenario, run)
        before = Folder(run)
        finished, _ = self.disturbed(scenario, run, position, getattr(errno, error), mode)
        after = Folder(run)
        wrong = self.judge(scenario, name, finished, run, mode, before, after)
        if not wrong:
            unwritten = mode == SAME_PATH and finished.returncode == 4 and re.search(r"error: .*/metrics\.jsonl: ", finished.stderr)
            wrong = self.go_on(scenario, name, run, finished.returncode, after, bool(unwritten))
        shutil.rmtree(run, ignore_errors=True)
        return [f"{name} call {position} {error} {mode}: {text}" for text in wrong]

    def judge(self, scenario, name, finished, run, mode, before, after):
        last_words = finished.stderr[-1500:]
        resumed_at = 2 if name in ("earlier", "damaged") else scenario.before
        wrong = lost(before, after, resumed_at, scenario.change == "lose")
        wrong += [] if after.steps() == list(range(1, len(after.steps()) + 1)) else [f"metrics of steps {after.steps()}"]
        # Where checkpoints were taken away before, metrics of before tell of saves that are gone.
        if scenario.change != "lose":
            wrong += unsaved(scenario, finished, after)
        if finished.returncode == 0:
            result = json.loads(finished.stdout)
            if (result["steps"], result["weights_hash"]) != (scenario.last, self.undisturbed[name]):
                wrong.append(f"another result: {result}; {last_words}")
            if after.steps() != list(range(1, scenario.last + 1)):
                wrong.append(f"exit code 0 with metrics of steps {after.steps()}")
            return wrong
        launched = "--mesh" in scenario.options or "--max-restarts" in scenario.options
        if mode == KILLED and finished.returncode in (3, -signal.SIGKILL):
            return wrong
        if finished.returncode not in ((3, 4) if launched else (4,)):
            wrong.append(f"exit code {finished.returncode}: {last_words}")
        elif finished.returncode == 4 and not re.search(r"error: .*" + re.escape(run), last_words):
            wrong.append(f"no path is named: {last_words}")
        return wrong

    def go_on(self, scenario, name, run, exit_code, after, unwritten):
        """The next run, undisturbed."""
        finished = self.train(run, scenario.last + 2, self.further_options(scenario, after))
        if finished.returncode != 0:
            return [f"the next run: exit code {finished.returncode}: {finished.stderr[-1500:]}"]
        further = Folder(run)
        wrong = []
        resumed = re.search(r"resumed from \S+ at step (\d+)\n", finished.stderr)
        resumed_at = int(resumed.group(1)) if resumed else 0
        # A death between two names leaves a whole one beside, which gets its name back.
        if resumed_at < (scenario.last if exit_code == 0 else max(after.whole_steps, default=0)):
            wrong.append(f"the next run went on at step {resumed_at} of {after.names}")
        if json.loads(finished.stdout)["weights_hash"] != self.undisturbed[name, "further"]:
            wrong.append("the next run: other weights")
        if further.steps() != list(range(1, scenario.last + 3)) and not unwritten:
            wrong.append(f"the next run: metrics of steps {further.steps()}; before it {after.steps()}")
        allowed = r"step-\d+(\.refused(-\d+)?)?" if scenario.change == "damage" else r"step-\d+"
        left = [item for item in further.names if not re.fullmatch(allowed, item)]
        left += [item for item in os.listdir(run) if "partial" in item or "superseded" in item]
        if left or scenario.last + 2 not in further.whole_steps:
            wrong.append(f"the next run left {further.names} {left}")
        with open(os.path.join(run, "checkpoints", "latest")) as f:
            if f.read() != f"step-{scenario.last + 2}\n":
                wrong.append("the next run: latest names another checkpoint")
        return wrong


def campaign(options, report=print):
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory, prefix="orthant-io-") as scratch, ThreadPoolExecutor(options.jobs) as pool:
        made = Campaign(scratch)
        trials, kinds, draw = [], collections.Counter(), random.Random(options.seed)
        for name, calls in zip(options.scenarios, pool.map(made.count, options.scenarios)):
            report(f"{name}: {len(calls)} calls")
            kinds.update(call for call, _ in calls)
            for position in range(1, len(calls) + 1):
                ways = [(name, position, error, MODES[mode]) for error in options.errors for mode in options.modes if mode != "killed"]
                ways += [(name, position, options.errors[0], KILLED)] if "killed" in options.modes else []
                trials += draw.sample(ways, min(options.per_call or len(ways), len(ways)))
        report("calls: " + ", ".join(f"{call} {count}" for call, count in kinds.most_common()))
        if options.sample:
            trials = draw.sample(trials, min(options.sample, len(trials)))
        wrong = []
        for done, found in enumerate(pool.map(lambda trial: made.trial(*trial), trials), 1):
            wrong += found
            for text in found:
                report("WRONG " + text)
            if done % 500 == 0:
                report(f"{done} of {len(trials)} done, {len(wrong)} wrong")
        report(f"{len(trials)} faults at {len({trial[:2] for trial in trials})} positions, {len(wrong)} wrong")
        return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--errors", nargs="+", choices=ERRORS, default=list(ERRORS))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--per-call", type=int, default=0, help="so many errors of each call, drawn (default: all)")
    parser.add_argument("--sample", type=int, default=0, help="so many faults in all, drawn (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    sys.exit(1 if campaign(parser.parse_args(), lambda text: print(text, flush=True)) else 0)


if __name__ == "__main__":
    main()
