#!/usr/bin/env python3
"""Flips bits of random parameters and summed gradients on random ranks of small trainings, and checks who is blamed (train.verify_replicas).

  tests/system/replica_campaign.py [--count 100] [--seed 0] [--clean-steps 10000]

Each draw is one `orthant train` on a mesh where every parameter has at least three holders. A parameter that was flipped must end the run with
exit code 4 at the next comparison, and name the rank and the parameter; a summed gradient must be told as a transient fault of the rank, and
the run must end with the weights of an undisturbed one. Then as many steps without a fault are compared, step by step: none may be blamed.
"""
import argparse
import json
import os
import random
import re
import sys
import tempfile

from program import SOURCE, orthant

CONFIG = os.path.join(SOURCE, "configs", "llama_tiny.json")
SMALL = ("model.num_hidden_layers=2", "model.hidden_size=32", "model.intermediate_size=48", "model.vocab_size=64", "data.sequence_length=8",
         "data.samples=256", "train.global_batch_size=12", "train.steps=8", "train.eval_every=0", "lr_schedule.kind=constant", "lr_schedule.warmup_steps=0")
MESHES = (("dp=3",), ("dp=4", "parallel.comm_hook=bf16"), ("dp=3,tp=2", "parallel.sequence_parallel=true"), ("dp=3,cp=2",),
          ("pp=2,dp=3", "parallel.microbatches=2"), ("fsdp=2,dp=3", "parallel.zero=2"), ("fsdp=2,dp=3", "parallel.zero=3"))
PARAMETERS = {"embed": ("embed.weight",), "head": ("head.norm.weight",),
              **{f"layers.{i}": tuple(f"layers.{i}.{name}.weight" for name in ("attention.wq", "attention.wo", "mlp.w1", "mlp.w2", "norm1")) for i in (0, 1)}}


def train(folder, name, *settings):
    words = ["--config", CONFIG, "--output-dir", os.path.join(folder, name)]
    for setting in (*SMALL, *settings):
        words += ["--set", setting] if not setting.startswith("--") else setting.split()
    return orthant("train", *words, timeout=600)


def weights(finished):
    found = re.search(r"^weights hash +(\w+)$", finished.stdout, re.M)
    return found and found.group(1)


def draw(number, seed, folder, references):
    """What is wrong with it; None: nothing."""
    rng = random.Random(f"{seed}/{number}")
    mesh, *settings = rng.choice(MESHES)
    every, step, kind = rng.choice((1, 2, 3)), rng.randint(2, 6), rng.choice(("parameter", "gradient_sum"))
    if kind == "gradient_sum":
        step = every * max(1, step // every)  # sums are compared in those steps
    unit = rng.choice(list(PARAMETERS))
    world = 1
    for degree in mesh.split(","):
        world *= int(degree.split("=")[1])
    for rank in rng.sample(range(world), world):  # the first that holds a part of it: others are refused
        fault = f"{kind}:rank={rank},unit={unit},step={step},value=flip,parameter={rng.choice(PARAMETERS[unit])}"
        finished = train(folder, f"draw-{number}-{rank}", f"--mesh {mesh}", *settings, f"train.verify_replicas={every}", f"train.poison={json.dumps([fault])}")
        if finished.returncode != 2:
            break
    told = f"{mesh} {settings} every {every} {fault}: exit code {finished.returncode}\n{finished.stderr[-1500:]}"
    parameter = fault.rsplit("=", 1)[1]
    if kind == "parameter":
        due = -(-step // every) * every
        right = finished.returncode == 4 and re.search(rf"(step {due}|after step 8): unit {unit}: the (parameter|copy of) {parameter}.* of rank {rank} \(host", finished.stderr)
        return None if right else told
    key = (mesh, *settings)
    if key not in references:
        references[key] = weights(train(folder, f"reference-{len(references)}", f"--mesh {mesh}", *settings))
    right = finished.returncode == 0 and re.search(rf"step {step}: unit {unit}: the summed gradient of {parameter} of rank {rank} .* on rank {rank}: a transient",
                                                   finished.stderr)
    return None if right and weights(finished) == references[key] else told


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clean-steps", type=int, default=10000)
    options = parser.parse_args()
    wrong, references = 0, {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.count):
            problem = draw(number, options.seed, folder, references)
            if problem:
                wrong += 1
                print(f"draw {number}: {problem}", flush=True)
        print(f"{options.count} flipped bits: {wrong} not named right", flush=True)
        if options.clean_steps:
            clean = train(folder, "clean", "--mesh dp=2,tp=2", f"train.steps={options.clean_steps}", "train.verify_replicas=1")
            blamed = clean.returncode != 0 or "a transient fault" in clean.stderr
            wrong += blamed
            print(f"{options.clean_steps} steps without a fault: {'one was' if blamed else 'none'} blamed")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
