#!/usr/bin/env python3
"""Puts values that are not finite into random places of random trainings, and checks what becomes of them.

  tests/system/poison_campaign.py [--count 500] [--seed 0] [--ranks 8] [--jobs 1] [--start N]

Each draw is one `orthant train` of a small model on a random mesh with faults by train.poison: NaN or infinity in a loss, an output,
a gradient or a parameter, on a random rank, in a random unit and step. Several faults a run where the policy is skip, one where a
parameter is damaged, which always stops. Checked: every bad step is reported and no other; each report names the right rank, unit and
parameter; a step that was left out changed no bit of parameters and optimizer state, and every other one did; no checkpoint holds a
value that is not finite; what follows is finite. --count counts faults. Draw number N of a seed is always the same; --start repeats
from there. Exit code 1 when a draw was wrong, with the command that repeats it (its files stay in the folder named at the end).
"""
import argparse
import collections
import concurrent.futures
import glob
import json
import os
import random
import re
import shlex
import shutil
import sys
import tempfile

import numpy

from checkpoint_weights import read_state
from pipeline_parity import TIED
from program import ORTHANT, orthant, run
from random_parity import MODELS, draw_mesh

NAMES = ("llama", "llama tied", "gpt2", "bert", "trimodal", "trimodal shared")
LAYERS = {"num_hidden_layers": 3}
STEPS = 12
SECONDS = 240
NOTE = re.compile(r"step (\d+): loss \S+, gradient norm \S+; the update was left out; (.*)$", re.M)


def model_of(name):
    model = {**MODELS[name]["model"], **({} if name.startswith("trimodal") else LAYERS)}
    for tower in ("primary", "secondary"):
        if tower in model:
            model[tower] = {**model[tower], **LAYERS}
    return {"model": model, "data": MODELS[name]["data"]}


class Model:
    """Units and parameters of a model, asked of the program."""

    def __init__(self, name, folder):
        self.name = name
        self.config = os.path.join(folder, name.replace(" ", "-") + ".json")
        with open(self.config, "w") as f:
            json.dump({**model_of(name), "optimizer": {"kind": "adamw", "lr": 1e-3, "clip": 1.0}, "lr_schedule": {"kind": "constant"},
                       "train": {"global_batch_size": 4, "steps": 1}}, f)
        asked = orthant("train", "--config", self.config, "--output_dir", os.path.join(folder, "asked"),
                        "--set", 'train.poison=["activation:rank=0,unit=?,step=1,value=nan"]')
        self.units = re.search(r"one of ([^)\n]*)", asked.stderr).group(1).split(", ")
        first = os.path.join(folder, name.replace(" ", "-") + "-first")
        finished = orthant("train", "--config", self.config, "--output_dir", first, "--steps", "0")
        if finished.returncode != 0:
            raise RuntimeError(finished.stderr)
        with open(os.path.join(first, "checkpoints", "step-0", "manifest.json")) as f:
            names = [tensor for tensor in json.load(f)["tensors"] if not tensor.startswith("optimizer.")]
        self.parameters = {unit: [n for n in names if n.startswith(unit + ".")] for unit in self.units}
        self.used = dict(self.parameters)  # and those a unit borrows
        for unit in self.units:
            if name == "trimodal shared" and unit.startswith("secondary.") and not self.parameters[unit]:
                self.used[unit] = self.parameters[unit.replace("secondary.", "primary.")]
            if unit == "head" and name in TIED:
                self.used[unit] = [*self.parameters[unit], TIED[name]]


def stages_of(rng, units, pp, schedule):
    """Random contiguous stages, and the pp coordinate of every unit."""
    count = 2 * pp if schedule in ("interleaved", "zbv") else pp
    if count > len(units):
        return None
    cuts = [0, *sorted(rng.sample(range(1, len(units)), count - 1)), len(units)]
    stages = [units[a:b] for a, b in zip(cuts, cuts[1:])]
    place = {"interleaved": lambda s: s % pp, "zbv": lambda s: min(s, 2 * pp - 1 - s)}.get(schedule, lambda s: s)
    return stages, {unit: place(s) for s, stage in enumerate(stages) for unit in stage}


class Draw:
    def __init__(self, seed, number, models, most):
        rng = random.Random(f"{seed}/{number}")
        self.model = models[rng.choice(tuple(models))]
        degrees = {} if rng.random() < 0.15 else draw_mesh(rng, most)
        self.mesh = {axis: degrees.get(axis, 1) for axis in ("pp", "dp", "fsdp", "tp")}
        self.world = self.mesh["pp"] * self.mesh["dp"] * self.mesh["fsdp"] * self.mesh["tp"]
        self.stops = rng.random() < 0.5
        self.saves = self.stops or rng.random() < 0.5
        self.settings = self.draw_settings(rng)
        self.faults = {}  # by step: (the text of train.poison, the report that is expected)
        steps = [rng.randint(1, STEPS)] if self.stops else rng.sample(range(1, STEPS + 1), rng.randint(2, 9))
        for step in sorted(steps):
            self.faults[step] = self.draw_fault(rng, step)

    def draw_settings(self, rng):
        pp, tp = self.mesh["pp"], self.mesh["tp"]
        self.microbatches = rng.choice((1, 2, 3)) * (pp if pp > 1 else 1)
        replicas = self.mesh["dp"] * self.mesh["fsdp"]
        # Rows that tp divides: under sequence parallelism every rank's tokens then begin with a row.
        batch = replicas * self.microbatches * max(tp, rng.choice((1, 2)))
        settings = [f"train.global_batch_size={batch}", f"data.samples={batch * STEPS}", f"train.steps={STEPS}", "data.eval_fraction=0",
                    f"parallel.microbatches={self.microbatches}", f"parallel.recompute={rng.choice(('none', 'selective', 'full'))}",
                    f"parallel.zero={rng.randint(0, 3)}", f"checkpoint.keep_last={STEPS + 1}",
                    f"train.bad_steps={'stop' if self.stops and rng.random() < 0.5 else 'skip'}"]
        settings += ["checkpoint.save_every=1"] * self.saves
        if tp > 1:
            settings += [f"parallel.{key}={rng.choice(('true', 'false'))}" for key in ("sequence_parallel", "loss_parallel")]
        if self.mesh["fsdp"] > 1 and settings[6][-1] in "23" and rng.random() < 0.4:
            settings.append("parallel.accumulate=sharded")
        if rng.random() < 0.2:
            settings.append("precision.compute=bfloat16")
        self.place = dict.fromkeys(self.model.units, 0)
        if pp > 1:
            schedule = rng.choice(("gpipe", "1f1b", "zbh1", "interleaved", "zbv"))
            drawn = stages_of(rng, self.model.units, pp, schedule)
            if drawn is None:
                schedule, drawn = "1f1b", stages_of(rng, self.model.units, pp, "1f1b")
            if drawn is None:  # fewer units than stages: the program says so
                return [*settings, f"parallel.schedule={schedule}"]
            stages, self.place = drawn
            settings += [f"parallel.schedule={schedule}", f"parallel.split={json.dumps(stages)}"]
        return settings

    def draw_fault(self, rng, step):
        kind = "parameter" if self.stops else rng.choice(("loss", "activation", "activation", "gradient", "gradient"))
        named = self.model.parameters if kind == "parameter" else self.model.used
        units = {"loss": ["loss"], "activation": self.model.units}.get(kind, [unit for unit in self.model.units if named[unit]])
        unit = rng.choice(units)
        per_stage = self.world // self.mesh["pp"]
        rank = self.place[unit] * per_stage + rng.randrange(per_stage)
        text = f"{kind}:rank={rank},unit={unit},step={step},value={rng.choice(('nan', 'inf'))}"
        where = f"rank {rank}, unit {unit}: "
        if kind in ("loss", "activation"):
            if rng.random() < 0.5:
                text += f",microbatch={rng.randrange(self.microbatches)}"
            return kind, text, re.escape(where + ("its loss" if unit == "loss" else "its output") + " is not finite")
        if kind == "parameter":  # the first that the rank owns a part of
            names = self.model.used[unit]  # a borrowed one is named with its owner, where both are on the rank
            units = {unit, *(other for other in self.model.units if set(self.model.parameters[other]) & set(names))}
            return kind, text, (f"rank {rank}, unit ({'|'.join(map(re.escape, units))}): "
                                f"parameter ({'|'.join(map(re.escape, names))}) is not finite")
        name = rng.choice(named[unit])
        return kind, f"{text},parameter={name}", re.escape(f"{where}the gradient of {name} is not finite")

    def words(self, folder):
        poison = json.dumps([text for _, text, _ in self.faults.values()])
        mesh = ",".join(f"{axis}={degree}" for axis, degree in self.mesh.items() if degree > 1) or "dp=1"
        words = [ORTHANT, "train", "--config", self.model.config, "--mesh", mesh, "--output_dir", folder]
        for setting in (*self.settings, f"train.poison={poison}"):
            words += ["--set", setting]
        return words


def wrong_checkpoints(folder, draw):
    """What is wrong with the checkpoints of every step."""
    before = None
    last = min(draw.faults) - 1 if draw.stops else STEPS
    found = sorted(int(path.rsplit("-", 1)[1]) for path in glob.glob(os.path.join(folder, "checkpoints", "step-*")))
    if draw.saves and found != list(range(1, last + 1)):
        yield f"checkpoints of steps {found}, not 1 to {last}"
    for step in found:
        state = read_state(os.path.join(folder, "checkpoints", f"step-{step}"))[1]
        for name, tensor in state.items():
            if not numpy.isfinite(tensor).all():
                yield f"step {step}: {name} was saved and is not finite"
        if before is not None and step - 1 in found:
            same = all(tensor.tobytes() == before[name].tobytes() for name, tensor in state.items())
            if same != (step in draw.faults):
                yield f"step {step} {'changed nothing' if same else 'was poisoned and changed a weight'}"
        before = state


def judge(draw, folder):
    """(verdict, what was wrong): `caught`, `refused` or `WRONG`."""
    finished = run(*draw.words(folder), timeout=SECONDS)
    if finished.returncode == 2 and "fix:" in finished.stderr:
        return "refused", finished.stderr.strip().splitlines()[-2:]
    wrong = []
    if finished.returncode != (4 if draw.stops else 0):
        wrong.append(f"exit code {finished.returncode}: {finished.stderr[-600:]}")
    reports = dict(NOTE.findall(finished.stderr + finished.stdout))
    for step, (_, text, expected) in draw.faults.items():
        found = reports.pop(str(step), "nothing")
        if not re.fullmatch(expected, found):
            wrong.append(f"{text}\n    reported: {found}")
    wrong += [f"step {step} was reported: {found}" for step, found in reports.items()]
    wrong += wrong_checkpoints(folder, draw)
    return "WRONG" if wrong else "caught", wrong


def trials(seed, start, count, models, most, folder, jobs):
    """(number, draw, verdict, wrong), until so many faults were put in."""
    def one(number):
        draw = Draw(seed, number, models, most)
        own = os.path.join(folder, f"run-{number}")
        verdict, wrong = judge(draw, own)
        if verdict != "WRONG":
            shutil.rmtree(own, ignore_errors=True)
        return number, draw, verdict, wrong

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        faults, number, waiting = 0, start, collections.deque()
        while faults < count or waiting:
            while faults < count and len(waiting) < jobs:
                waiting.append(pool.submit(one, number))
                number += 1
            done = waiting.popleft().result()
            faults += len(done[1].faults) if done[2] != "refused" else 0
            yield done


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500, help="faults")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--ranks", type=int, default=8, help="the largest mesh")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--start", type=int, default=0, help="number of the first draw")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="poison-")
    models = {name: Model(name, folder) for name in NAMES}
    verdicts, kinds = collections.Counter(), collections.Counter()
    for number, draw, verdict, wrong in trials(options.seed, options.start, options.count, models, options.ranks, folder, options.jobs):
        verdicts[verdict] += 1
        if verdict == "refused":
            print(f"draw {number}: refused: {' '.join(wrong)}", flush=True)
            continue
        kinds.update(kind for kind, _, _ in draw.faults.values())
        print(f"draw {number}: {draw.model.name} on {draw.mesh}: {len(draw.faults)} faults {verdict}", flush=True)
        if wrong:
            print("  " + "\n  ".join(wrong) + f"\n  {shlex.join(draw.words(os.path.join(folder, f'again-{number}')))}", flush=True)
    print(f"{sum(kinds.values())} faults ({', '.join(f'{n} {kind}' for kind, n in sorted(kinds.items()))}) in "
          f"{verdicts['caught'] + verdicts['WRONG']} runs: {verdicts['WRONG']} runs wrong; {verdicts['refused']} draws were refused")
    if verdicts["WRONG"]:
        print(f"files: {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
