#!/usr/bin/env python3
"""Random combinations of everything against one rank: model, mesh, order of ranks, schedule and settings.

  tests/system/random_parity.py [--count 100] [--seed 0] [--ranks 8] [--jobs 2] [--start N] [--refusals] [--backend gloo]
                                [--models qwen3 mistral]

Each draw is one `orthant parity` in float64. It must agree with one rank within 1e-10, or be refused: exit code 2 before any rank
trains, with a line `fix:`. Anything else is a failure, printed with the command that repeats it (its files stay in the folder named
at the end). Draw number N of a seed is always the same; --start and --count 1 repeat one. Refusals are counted by reason;
--refusals prints the draws as well. Exit code 1 when a draw failed.
"""
import argparse
import collections
import concurrent.futures
import copy
import json
import math
import random
import re
import shlex
import subprocess
import sys
import tempfile

import expert_parity
from parity_rows import Row, config_of, largest_error
from pipeline_parity import CONFIGS, FAMILIES, SCHEDULES
from program import orthant, run

BOUND = 1e-10
SECONDS = 300
# 12 heads can be shared by 2, 3, 4 and 6 ranks; vocabulary, MLP and sequence length do not divide.
SIZES = {"hidden_size": 48, "num_attention_heads": 12, "intermediate_size": 50, "vocab_size": 67}
FREEZE = {"llama": ('["embed.*"]', '["layers.0.*","layers.1.*"]', '["*.norm1.weight"]', '["head.*"]'),
          "qwen3": ('["layers.0.*"]', '["*_norm.weight"]', '["*.q_norm.weight"]', '["*.wq.weight"]'), "mistral": ('["embed.*"]', '["layers.0.*"]'),
          "gpt2": ('["embed.*"]', '["layers.0.*"]', '["*.bias"]'), "bert": ('["embed.*"]', '["layers.1.*"]', '["*.bias"]'),
          "encoder_lm": ('["embed.*"]', '["layers.0.*"]', '["*.norm.weight"]'),
          "mixtral": ('["layers.0.*"]', '["*.router.*"]', '["*.experts.*"]'), "qwen3_moe": ('["layers.0.*"]', '["*.experts.*.w2.*"]'),
          "qwen2_moe": ('["*.shared_expert*"]', '["*.router.*"]', '["embed.*"]'),
          "trimodal": ('["primary.*"]', '["primary.embed.*"]', '["*.pooler.*","tabular.*"]', '["fusion.*"]')}


def models():
    """The models of the pipeline campaign in sizes that more degrees divide."""
    found = copy.deepcopy({**CONFIGS, **FAMILIES, **{name: expert_parity.CONFIGS[name] for name in expert_parity.MODELS}})
    for config in found.values():
        model = config["model"]
        for sizes in [model[tower] for tower in ("primary", "secondary") if tower in model] or [model]:
            sizes.update(SIZES)
    return found


MODELS = models()
DRAWN = tuple(CONFIGS)  # unless --models says otherwise
MIXTURES = expert_parity.MODELS


def draw_experts(rng, mesh, model, settings):
    """How a mixture's experts lie: the degree of ep, which divides a stage, and what is said of tp."""
    stage = math.prod(degree for axis, degree in mesh.items() if axis != "pp")
    ep = rng.choice([degree for degree in range(1, stage + 1) if stage % degree == 0])
    if ep > 1:
        mesh["ep"] = ep
    if rng.random() < 0.5:
        settings.append(f"parallel.expert_tp={rng.choice(('true', 'false'))}")
    if model != "mixtral" and rng.random() < 0.3:
        settings.append(f"model.mlp_only_layers={rng.choice(('[]', '[0]', '[1]'))}")
    if rng.random() < 0.4:
        settings += ["model.router_aux_loss_coef=0.3", f"model.router_z_loss_coef={rng.choice((0, 0.05))}"]


AXES = ("pp", "pp", "dp", "fsdp", "fsdp", "tp", "tp")


def draw_mesh(rng, most, axes=AXES):
    """Any number of ranks from 2 on, its prime factors dealt to the axes; more often those that divide the batch."""
    world = rng.choice([n for n in range(2, most + 1) for _ in range(1 if n % 5 == 0 or n % 7 == 0 else 4)])
    degrees, rest = collections.Counter(), world
    for prime in (2, 3, 5, 7, 11, 13):
        while rest % prime == 0:
            axis = rng.choice(axes)
            degrees[axis] = max(degrees[axis], 1) * prime
            rest //= prime
    return dict(degrees) if rest == 1 else {"dp": world}


def draw_model(rng, names=DRAWN):
    model = rng.choice(names)
    kind = MODELS[model]["model"]["kind"]
    layers = rng.choice((2, 4, 7, 9))
    if kind == "trimodal":
        other = layers if model == "trimodal shared" else rng.choice((1, 3, 5))
        settings = [f"model.primary.num_hidden_layers={layers}", f"model.secondary.num_hidden_layers={other}"]
    else:
        settings = [f"model.num_hidden_layers={layers}"]
    if kind in ("llama", "qwen3", "mistral", *MIXTURES):
        settings.append(f"model.num_key_value_heads={rng.choice((1, 2, 3, 6, 12))}")
    if rng.random() < 0.3:
        settings.append(f"model.freeze={rng.choice(FREEZE[kind])}")
    if kind == "mistral":
        settings.append(f"model.sliding_window={rng.choice((1, 3, 7, 100))}")
    if kind in ("llama", "qwen3", "mistral", "gpt2") and rng.random() < 0.2:
        settings.append(f"model.tie_word_embeddings={rng.choice(('true', 'false'))}")
    return model, settings


def draw_units(rng, model):
    tower = "primary." if MODELS[model]["model"]["kind"] == "trimodal" else ""
    return rng.choice(('"layer"', '{"min_params":20000}', '{"min_params":1000000000}', '[["*"]]', f'[["{tower}layers.0","{tower}layers.1"]]',
                       f'[["{tower}embed","{tower}layers.0"],["{tower}layers.1"]]'))


def schedule_file(rng, pp, microbatches):
    """The table of a generator, as a file."""
    name = rng.choice(SCHEDULES)
    words = ["simulate", "--schedule", name, "--stages", pp, "--microbatches", microbatches, "--json"]
    table = json.loads(orthant(*words).stdout)["ranks"]
    return f"{name}-{pp}-{microbatches}.txt", "".join(" ".join(rank) + "\n" for rank in table)


def draw_pipeline(rng, mesh, microbatches):
    files, settings = {}, []
    kind = rng.choice(SCHEDULES + ("file", None))
    if kind == "file" and mesh.get("pp", 1) > 1:
        name, text = schedule_file(rng, mesh["pp"], microbatches)
        files[name] = text
        settings.append(f"parallel.schedule={name}")
    elif kind and kind != "file":
        settings.append(f"parallel.schedule={kind}")
    if rng.random() < 0.25:
        settings.append(f"parallel.virtual_stages={rng.choice((1, 2, 2, 3))}")
    if rng.random() < 0.1:
        settings.append(f"parallel.split={rng.choice((1, 2, 3, 4, 6))}")
    return files, settings


def draw_settings(rng, model):
    """Few or many settings, sensible or not."""
    rate = rng.choice((0.2, 0.4, 0.7))
    choices = {
        "zero": (0, 1, 2, 3), "accumulate": ("full", "sharded"), "keep_gathered": ("true",), "limit_all_gathers": (1, 2, 3, 100),
        "units": (draw_units(rng, model),), "bucket_mb": (0, 0.01, 25), "offload": ("none", "optimizer", "params"),
        "sequence_parallel": ("true",), "loss_parallel": ("true",), "regather": ("true",), "recompute": ("none", "selective", "full"),
        "comm_hook": ("none",), "context": ("ring", "all_to_all", "gather", "auto"), "shard_over_context": ("true", "false")}
    return [f"parallel.{key}={rng.choice(values)}" for key, values in choices.items() if rng.random() < rate]


def draw(seed, number, most, names=DRAWN):
    rng = random.Random(f"{seed}:{number}")
    mesh = draw_mesh(rng, most, AXES + ("cp", "cp"))
    model, settings = draw_model(rng, names)
    microbatches = rng.choice((1, 1, 2, 2, 3, 4, 4, 6, 8, 12, 5))
    settings.append(f"parallel.microbatches={microbatches}")
    # Mostly a batch that the mesh can share.
    parts = mesh.get("dp", 1) * mesh.get("fsdp", 1) * microbatches
    batch = parts * rng.choice((1, 1, 2, 3)) if rng.random() < 0.95 else 24
    settings.append(f"train.global_batch_size={batch}")
    files, pipeline = draw_pipeline(rng, mesh, microbatches)
    settings += pipeline + draw_settings(rng, model)
    if rng.random() < 0.3:
        settings += ["optimizer.kind=sgd", "optimizer.momentum=0.9", "optimizer.lr=1"]
    if rng.random() < 0.15:
        settings.append(f"data.samples={rng.randint(batch, 3 * batch)}")  # an epoch's last batch has fewer rows
    order = ",".join(rng.sample(tuple(mesh), len(mesh))) if rng.random() < 0.5 else None
    steps = rng.choice((1, 2, 3, 4))
    resume_at = rng.randint(1, steps) if rng.random() < 0.1 else None
    if MODELS[model]["model"]["kind"] in MIXTURES:
        draw_experts(rng, mesh, model, settings)
    text = ",".join(f"{axis}={mesh[axis]}" for axis in rng.sample(tuple(mesh), len(mesh)))
    return Row(model, text, *settings, order=order, steps=steps, resume_at=resume_at, files=files)


def judge(words, folder):
    """(verdict, text): `equal`, `refused` or `FAILED`."""
    try:
        done = run(*words, timeout=SECONDS, cwd=folder)
    except subprocess.TimeoutExpired:
        return "FAILED", f"no answer within {SECONDS} s"
    errors = done.stderr.strip()
    if done.returncode == 0:
        result = json.loads(done.stdout)
        right = result["pass"] and largest_error(result) <= BOUND
        return "equal" if right else "FAILED", done.stdout.strip()
    if done.returncode == 2:
        reason = re.search(r"^orthant: error: (.*?)^  fix: ([^\n]+)", errors, re.M | re.S)
        if not reason:
            return "FAILED", f"refused without a remedy, or after ranks were started: {errors}"
        return "refused", f"{reason[1].strip()} -> {reason[2]}"
    return "FAILED", f"exit code {done.returncode}: {done.stdout.strip()}\n{errors[-3000:]}"


def trials(seed, numbers, most, folder, jobs=2, extra=(), names=DRAWN):
    """(number, words, verdict, text) of each draw, in order."""
    rows = [draw(seed, number, most, names) for number in numbers]
    commands = [[*row.words(config_of(row, MODELS, folder)), *extra] for row in rows]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for number, words, (verdict, text) in zip(numbers, commands, pool.map(lambda words: judge(words, folder), commands)):
            yield number, words, verdict, text


def group_of(refusal):
    """The refusal without its numbers and names."""
    names = r"\b(layers|primary|secondary|embed|head|fusion|tabular|gpipe|1f1b|interleaved|zbh1|zbv|llama|qwen3|mistral|gpt2|bert|trimodal|encoder_lm)[\w.-]*"
    return re.sub(r"\d+", "N", re.sub(names, "NAME", refusal.partition(" -> ")[0]))[:150]


def report(refusals, all_of_them):
    groups = collections.defaultdict(list)
    for refusal, words in refusals:
        groups[group_of(refusal)].append((refusal, words))
    for group in sorted(groups, key=lambda group: -len(groups[group])):
        print(f"refused {len(groups[group])}: {groups[group][0][0]}")
        for refusal, words in groups[group] if all_of_them else ():
            print(f"    {refusal}\n    {shlex.join(words)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=8, help="most ranks of a draw")
    parser.add_argument("--jobs", type=int, default=2, help="draws at the same time")
    parser.add_argument("--start", type=int, default=0, help="number of the first draw")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), default=DRAWN, help="models to draw from (default: all but the families of llama)")
    parser.add_argument("--refusals", action="store_true", help="print every refused draw")
    a = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="orthant-random-parity-")
    counts, refusals, worst = collections.Counter(), [], 0.0
    numbers = range(a.start, a.start + a.count)
    for number, words, verdict, text in trials(a.seed, numbers, a.ranks, folder, a.jobs, ("--backend", a.backend), a.models):
        counts[verdict] += 1
        if verdict == "refused":
            refusals.append((text, words))
        elif verdict == "equal":
            worst = max(worst, largest_error(json.loads(text)))
        else:
            print(f"FAILED draw {number}: {text}\n  {shlex.join(words)}", flush=True)
    report(refusals, a.refusals)
    print(f"\n{a.count} draws of seed {a.seed}: {counts['equal']} equal (largest relative error {worst:.1e}), {counts['refused']} refused, "
          f"{counts['FAILED']} failed; files in {folder}")
    sys.exit(1 if counts["FAILED"] or not counts["equal"] else 0)


if __name__ == "__main__":
    main()
