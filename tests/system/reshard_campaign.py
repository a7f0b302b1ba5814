#!/usr/bin/env python3
"""Random pairs of meshes A -> B: whatever A saves, B takes over without changing a bit, and goes on as A would have.

  tests/system/reshard_campaign.py [--pairs 40] [--seed 0] [--start N] [--jobs 2] [--all-axes] [--backend gloo]
                                   [--models mixtral qwen2_moe]

Of each pair, with one model, optimizer, batch and small data set whose epochs end during the run:
  - A trains to the end and saves on the way; one rank trains the same, undisturbed;
  - B loads that checkpoint and saves it again: every global tensor, parameters and optimizer state, has the same bits, and the counters
    the same values;
  - B trains on from it, in a folder of its own or in A's: losses, gradient norms and final weights are those of A and of one rank within
    the bound of `orthant parity`; to the bit where A and B differ in stages, schedule and recompute alone (with tied parameters: where
    dp = fsdp = 1);
  - the samples that all replicas log, put in order, are one rank's in every step: none lost, none twice.
World sizes 1, 2, 3, 4, 6 and 8 take turns as A's; --all-axes makes one side pp=2,dp=2,fsdp=2,tp=2. Draws that are refused (exit code 2
with a line `fix:`) are counted and drawn again. Pair N of a seed is always the same; --start N --pairs 1 repeats it. A wrong pair is
printed with its commands, and its files stay. Exit code 1 when a pair is wrong, or not every world size and axis has had its turn.
"""
import argparse
import collections
import concurrent.futures
import dataclasses
import json
import math
import os
import random
import re
import shutil
import sys
import tempfile

from random_parity import DRAWN, MODELS, draw_experts, draw_mesh, draw_model, draw_pipeline, draw_settings
from reshard_trial import AXES, BOUNDS, DEFAULT, RANKS, STAGES_ALONE, Pair, Refused, Side, Trial, Wrong, accepted, key_of

WORLDS = (1, 2, 3, 4, 6, 8)


def mesh_of(rng, world):
    mesh = {}
    while math.prod(mesh.values()) != world:
        mesh = draw_mesh(rng, max(WORLDS))
    return mesh


def draw_order(rng, mesh, like=None):
    """Any, or with pp somewhere between the axes of another order."""
    if like is None:
        return ",".join(rng.sample(tuple(mesh), len(mesh))) if mesh and rng.random() < 0.3 else None
    rest = [axis for axis in (like.order or ",".join(RANKS)).split(",") if axis != "pp" and axis in mesh]
    rest.insert(rng.randint(0, len(rest)), "pp")
    return ",".join(axis for axis in rest if axis in mesh) or None


def draw_names(rng, units, stages):
    """A cut into so many stages by the names of their units."""
    cuts = [0, *sorted(rng.sample(range(1, len(units)), stages - 1)), len(units)]
    return json.dumps([units[begin:end] for begin, end in zip(cuts, cuts[1:])], separators=(",", ":"))


def draw_stages(rng, mesh, microbatches, units):
    files, settings = draw_pipeline(rng, mesh, microbatches)
    if rng.random() < 0.4 and not files:
        chosen = dict(setting.split("=") for setting in settings)
        several = 2 if chosen.get("parallel.schedule") in ("interleaved", "zbv") else 1
        stages = mesh.get("pp", 1) * int(chosen.get("parallel.virtual_stages", several)) if mesh.get("pp", 1) > 1 else rng.randint(1, 4)
        if stages <= len(units):
            settings = [s for s in settings if key_of(s) != "parallel.split"] + [f"parallel.split={draw_names(rng, units, stages)}"]
    if rng.random() < 0.4:
        settings.append(f"parallel.recompute={rng.choice(('none', 'selective', 'full'))}")
    return files, settings


def draw_side(rng, mesh, model, units, batch, like=None):
    """Any settings; or, with the same sums as `like`, other stages."""
    side = Side(mesh, [])
    if like:
        side.settings = [setting for setting in like.settings if setting.startswith("parallel.") and key_of(setting) not in STAGES_ALONE]
        microbatches = next(int(s.partition("=")[2]) for s in side.settings if key_of(s) == "parallel.microbatches")
    else:
        rows = batch // side.replicas()
        microbatches = rng.choice([n for n in range(1, rows + 1) if rows % n == 0])
        side.settings = [s for s in draw_settings(rng, model) if key_of(s) != "parallel.recompute"] + [f"parallel.microbatches={microbatches}"]
    side.files, stages = draw_stages(rng, mesh, microbatches, units)
    side.order = draw_order(rng, mesh, like)
    side.settings += stages + ["checkpoint.asynchronous=true"] * (rng.random() < 0.5)
    return side


def draw_meshes(rng, world, all_axes):
    """(A's, B's, whether they differ in pp alone)."""
    a = mesh_of(rng, world)
    if all_axes:
        b = {axis: 2 for axis in RANKS}
        return (a, b, False) if rng.random() < 0.5 else (b, a, False)
    if rng.random() < 0.35:
        rest = {axis: degree for axis, degree in a.items() if axis != "pp"}
        most = max(WORLDS) // math.prod(rest.values())
        pp = rng.choice([n for n in range(1, most + 1) if n * math.prod(rest.values()) in WORLDS])
        return a, {**({"pp": pp} if pp > 1 else {}), **rest}, True
    return a, mesh_of(rng, rng.choice(WORLDS)), False


def units_of(model, settings, folder):
    """Names of the model's units, from the list of actions of one rank."""
    words = [word for word in Pair(model, settings, Side({}, []), Side({}, []), 4, 2, 64).base(folder) if word != "--json"]
    return re.findall(r"^ *F (\S+) m0", accepted([*words, "--dry-run", "--verbose"], folder).stdout, re.M)


def draw(rng, world, all_axes, folder, models):
    mesh_a, mesh_b, pipelines = draw_meshes(rng, world, all_axes)
    experts = models != DRAWN
    if experts:
        model, settings = draw_model(rng, models)
        names = model
    elif rng.random() < 0.12:
        model, names, settings = DEFAULT, "trimodal", [f"model.primary.num_hidden_layers={rng.choice((2, 3))}"]
    else:
        model, settings = draw_model(rng)
        names = model
    share = math.lcm(*(mesh.get("dp", 1) * mesh.get("fsdp", 1) for mesh in (mesh_a, mesh_b)))
    batch = share * rng.randint(math.ceil(8 / share), 24 // share)
    settings = settings + [f"train.global_batch_size={batch}"]
    units = units_of(model, settings, folder)
    a = draw_side(rng, mesh_a, names, units, batch)
    b = draw_side(rng, mesh_b, names, units, batch, a if pipelines else None)
    if experts:
        draw_experts(rng, mesh_a, model, a.settings)
        draw_experts(rng, mesh_b, model, b.settings)
        if mesh_a.get("ep") == mesh_b.get("ep"):
            raise Refused("the same degree of ep")
        settings += [s for s in a.settings if s.startswith("model.")]
        for side in (a, b):
            side.settings = [s for s in side.settings if not s.startswith("model.")]
    dtype = rng.choices(("float64", "float32", "float16"), (14, 5, 1))[0]
    # AdamW makes full updates of gradients that are nothing but the rounding of float16.
    adamw = [] if dtype == "float16" else [[], []]
    settings += rng.choice([*adamw, ["optimizer.kind=sgd", "optimizer.momentum=0.9", "optimizer.lr=1"], ["optimizer.kind=sgd", "optimizer.lr=1"]])
    steps = rng.randint(6, 9)
    samples = rng.choice((2, 3)) * batch - rng.choice((0, rng.randint(1, batch - 1)))
    return Pair(model, settings, a, b, steps, rng.randint(1, steps - 1), samples, dtype, rng.random() < 0.3)


@dataclasses.dataclass
class Outcome:
    number: int
    pair: Pair
    error: str  # nothing: right
    worst: float
    bits: str
    commands: list
    refused: int
    folder: str


def attempt(seed, number, folder, all_axes, extra, models=DRAWN):
    """Draws until a pair is accepted, and tries it."""
    rng = random.Random(f"reshard {seed}:{number}")
    deck = random.Random(f"worlds {seed}").sample(WORLDS, len(WORLDS))
    refused = 0
    while True:
        place = os.path.join(folder, f"pair-{number}")
        shutil.rmtree(place, ignore_errors=True)
        os.makedirs(place)
        try:
            pair = draw(rng, deck[number % len(deck)], all_axes, place, models)
            trial = Trial(pair, place, extra)
            trial.look_at_both_sides()
        except Refused:
            refused += 1
            continue
        try:
            trial.run()
        except (Wrong, AssertionError) as error:
            return Outcome(number, pair, str(error), trial.worst, "", trial.commands, refused, place)
        shutil.rmtree(place)
        bits = "equal bits" if trial.bits else "other bits"
        return Outcome(number, pair, "", trial.worst, bits + " (required)" * trial.required, [], refused, place)


def close(outcomes, seed, most):
    """The last line, and whether all is well."""
    wrong = [outcome for outcome in outcomes if outcome.error]
    pairs = [outcome.pair for outcome in outcomes]
    worlds = collections.Counter(math.prod(side.mesh.get(axis, 1) for axis in RANKS) for pair in pairs for side in (pair.a, pair.b))
    changed = {axis: sum(pair.a.degree(axis) != pair.b.degree(axis) for pair in pairs) for axis in AXES}
    worst = {dtype: max((o.worst for o in outcomes if o.pair.dtype == dtype), default=0) for dtype in BOUNDS}
    bits = collections.Counter(outcome.bits for outcome in outcomes)
    required = bits["equal bits (required)"]
    print(f"\n{len(pairs)} pairs of seed {seed}: {len(pairs) - len(wrong)} right, {len(wrong)} wrong; equal bits in {required + bits['equal bits']}, "
          f"{required} of them required; largest relative error " + ", ".join(f"{dtype} {error:.1e}" for dtype, error in worst.items()) +
          "; world sizes " + ", ".join(f"{world} ({worlds[world]}x)" for world in sorted(worlds)) +
          "; pairs that change " + ", ".join(f"{axis} {count}" for axis, count in changed.items()) +
          f"; {sum(outcome.refused for outcome in outcomes)} draws refused")
    missing = [f"world size {world}" for world in WORLDS if not worlds[world]] + [axis for axis in RANKS if not changed[axis]]
    if missing and len(pairs) >= most:
        print(f"no turn had: {', '.join(missing)}")
    return not wrong and not (missing and len(pairs) >= most)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="number of the first pair")
    parser.add_argument("--jobs", type=int, default=2, help="pairs at the same time")
    parser.add_argument("--all-axes", action="store_true", help="one side of every pair is pp=2,dp=2,fsdp=2,tp=2")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), default=DRAWN, help="mixtures to draw from; the degree of ep changes in every pair")
    a = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="orthant-reshard-")
    outcomes = []
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        tries = lambda number: attempt(a.seed, number, folder, a.all_axes, ("--backend", a.backend), a.models)
        for outcome in pool.map(tries, range(a.start, a.start + a.pairs)):
            outcomes.append(outcome)
            verdict = f"WRONG: {outcome.error}" if outcome.error else f"right | {outcome.worst:.1e} | {outcome.bits}"
            print(f"{outcome.number} | {outcome.pair.text()} | {verdict}", flush=True)
            if outcome.error:
                print("".join(f"    {command}\n" for command in outcome.commands) + f"    files in {outcome.folder}", flush=True)
    well = close(outcomes, a.seed, most=2 * len(WORLDS))
    if not any(outcome.error for outcome in outcomes):
        shutil.rmtree(folder)
    sys.exit(0 if well and outcomes else 1)


if __name__ == "__main__":
    main()
