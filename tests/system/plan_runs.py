#!/usr/bin/env python3
"""The planner against real runs on CPU ranks: memory of every pp coordinate, and the time of a step.

  tests/system/plan_runs.py [--rounds N | --hardware FILE] [--steps N] [--only TEXT]
  tests/system/plan_runs.py --random 100 [--seed 0] [--start N] [--ranks 8]

Each row is one `orthant train --json`, which compares what the planner says of it with what its ranks took. An error is that of the pp
coordinate that is furthest off; of a step it is that of the median after two steps, where every rank has a core. With --rounds every
round runs the rows that can be timed, each after an `orthant plan --calibrate` of its own, so that both sides see the machine as fast as
it then was; medians over the rounds count. --hardware takes a file of an earlier calibration. Of rows with the same model, batch
and number of ranks the planner picks one: the one it says is fastest. Exit code 1 when memory is off by more than 5% on average or 10% at
worst, steps by more than 10% on average, or a pick is more than 5% slower than the fastest of its rows.

--random draws models, sizes, meshes and settings instead; draw N of a seed is always the same. Draws that `train` refuses are counted.
"""
import argparse
import collections
import json
import math
import os
import random
import re
import shlex
import statistics
import sys
import tempfile

from dry_run import shown
from program import orthant
from random_parity import draw_mesh

AVERAGE, WORST, STEP, PICK = 0.05, 0.10, 0.10, 0.05
SECONDS = 600


def sized(kind, hidden, layers, heads, inner, **more):
    return {"kind": kind, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": inner,
            "max_position_embeddings": 512, **more}


def tower(hidden, layers, heads, inner, **more):
    sizes = sized("bert", hidden, layers, heads, inner, vocab_size=1024, **more)
    return {key: value for key, value in sizes.items() if key != "kind"}


def trimodal(first, second, **more):
    return {"kind": "trimodal", "preset": "trimodal-tiny", "primary": first, "secondary": second, "tabular": {"input_dim": 8}, **more}


def small_model(kind):
    """A small one of that kind."""
    return sized(kind, 128, 4, 4, 512, vocab_size=512)


MODELS = {
    "llama": sized("llama", 384, 8, 6, 1280, num_key_value_heads=2, vocab_size=8192),
    "llama tied": sized("llama", 256, 6, 8, 688, num_key_value_heads=8, vocab_size=2048, tie_word_embeddings=True),
    "gpt2": sized("gpt2", 256, 6, 8, 1024, vocab_size=4096),
    "bert": sized("bert", 256, 6, 8, 1024, vocab_size=4096),
    "encoder_lm": sized("encoder_lm", 256, 6, 8, 1024, vocab_size=4096),
    "trimodal": trimodal(tower(256, 4, 4, 1024), tower(256, 2, 4, 1024)),
}


def document(model, sequence, batch, steps=50, **more):
    """Settings of a whole run; data is generated."""
    data = {"kind": "tokens", "sequence_length": sequence, "samples": 4 * batch}
    if model["kind"] == "trimodal":
        data = {"kind": "trimodal_demo", "sequence_length": sequence, "secondary_length": max(22, sequence // 2), "samples": 4 * batch}
    return {"seed": 3, "model": model, "data": data, "optimizer": {"kind": "adamw", "lr": 1e-4}, "lr_schedule": {"kind": "constant"},
            "train": {"global_batch_size": batch, "steps": steps}, **more}


class Row:
    def __init__(self, model, mesh, *settings, sequence=128, batch=8):
        self.model, self.mesh, self.settings = model, mesh, settings
        self.document = document(MODELS[model] if isinstance(model, str) else model, sequence, batch)

    def ranks(self):
        return math.prod(int(degree) for degree in re.findall(r"\d+", self.mesh))

    def is_timed(self):
        """Whether every rank has a core."""
        return self.ranks() <= os.cpu_count()

    def label(self):
        name = self.model if isinstance(self.model, str) else self.model["kind"]
        return " ".join((name, self.mesh, *(setting.removeprefix("parallel.") for setting in self.settings)))


ROWS = (
    Row("llama", "dp=1"),
    Row("llama", "dp=1", "parallel.recompute=full", "parallel.microbatches=2"),
    Row("llama", "dp=2", "parallel.recompute=selective"),
    Row("llama", "fsdp=2", "parallel.zero=3"),
    Row("llama", "tp=2", "parallel.sequence_parallel=true", "parallel.loss_parallel=true"),
    Row("llama", "pp=2", "parallel.microbatches=4"),
    Row("llama", "pp=2", "parallel.microbatches=4", "parallel.schedule=zbh1"),
    Row("llama", "pp=4", "parallel.microbatches=8", "parallel.schedule=1f1b"),
    Row("llama", "pp=2,dp=2,tp=2", "parallel.microbatches=2"),
    Row("llama", "fsdp=4", "parallel.zero=1", "parallel.microbatches=2"),
    Row("llama tied", "pp=2,fsdp=2", "parallel.zero=2", "parallel.microbatches=4"),
    Row("gpt2", "dp=1", batch=16),
    Row("gpt2", "pp=2", "parallel.microbatches=4", "parallel.schedule=zbv"),
    Row("gpt2", "pp=2,fsdp=2,tp=2", "parallel.zero=3", "parallel.microbatches=4", "parallel.accumulate=sharded", batch=16),
    Row("bert", "dp=2", batch=16),
    Row("bert", "pp=2", "parallel.microbatches=4", "parallel.schedule=gpipe", batch=16),
    Row("encoder_lm", "pp=2", "parallel.microbatches=4", "parallel.schedule=interleaved", "parallel.virtual_stages=3", batch=16),
    Row("encoder_lm", "fsdp=8", "parallel.zero=2", batch=32),
    Row("trimodal", "dp=1", batch=32),
    Row("trimodal", "pp=2,tp=2", "parallel.microbatches=4", "parallel.sequence_parallel=true", batch=32),
)


def draw_model(rng):
    kind = rng.choice(("llama", "llama", "gpt2", "bert", "encoder_lm", "trimodal"))
    heads = rng.choice((4, 8, 12))
    hidden = heads * rng.choice((16, 32))
    inner = rng.choice((hidden, 2 * hidden, 4 * hidden, 3 * hidden - 8))
    layers = rng.choice((2, 3, 4, 6, 8))
    words = rng.choice((128, 1024, 5000))
    if kind == "trimodal":
        return trimodal(tower(hidden, layers, heads, inner), tower(hidden, rng.choice((1, 2, layers)), heads, inner))
    more = {"num_key_value_heads": rng.choice((heads // 4, heads // 2, heads))} if kind == "llama" else {}
    if kind in ("llama", "gpt2") and rng.random() < 0.3:
        more["tie_word_embeddings"] = rng.random() < 0.5
    return sized(kind, hidden, layers, heads, inner, vocab_size=words, **more)


def draw(seed, number, most):
    """A row of its own for every number."""
    rng = random.Random(f"{seed}:{number}")
    mesh = {"dp": 1} if rng.random() < 0.15 else draw_mesh(rng, most)
    model = draw_model(rng)
    microbatches = rng.choice((1, 2, 2, 4, 4, 6, 8))
    pp = mesh.get("pp", 1)
    settings = [f"parallel.microbatches={microbatches}"]
    choices = {"zero": (0, 1, 2, 3), "accumulate": ("full", "sharded"), "limit_all_gathers": (1, 2, 3), "keep_gathered": ("true",),
               "bucket_mb": (0, 25), "sequence_parallel": ("true",), "loss_parallel": ("true",), "regather": ("true",),
               "recompute": ("none", "selective", "full")}
    rate = rng.choice((0.3, 0.6))
    settings += [f"parallel.{key}={rng.choice(values)}" for key, values in choices.items() if rng.random() < rate]
    if pp > 1:
        settings.append(f"parallel.schedule={rng.choice(('gpipe', '1f1b', '1f1b', 'interleaved', 'zbh1', 'zbv'))}")
    if rng.random() < 0.15:
        settings.append("precision.compute=bfloat16")
    if rng.random() < 0.2:
        settings += ["optimizer.kind=sgd", f"optimizer.momentum={rng.choice((0, 0.9))}"]
    batch = mesh.get("dp", 1) * mesh.get("fsdp", 1) * microbatches * rng.choice((1, 2, 4, 8))
    sequence = rng.choice((32, 64, 128, 200))
    return Row(model, ",".join(f"{axis}={degree}" for axis, degree in mesh.items()), *settings, sequence=sequence, batch=batch)


def words_of(row, folder, number, options, hardware=None):
    path = os.path.join(folder, f"{number}.json")
    with open(path, "w") as f:
        json.dump(row.document, f)
    words = ["train", "--config", path, "--mesh", row.mesh, "--steps", options.steps, "--json", "--output-dir",
             tempfile.mkdtemp(prefix=f"run-{number}-", dir=folder)]
    for setting in row.settings:
        words += ["--set", setting]
    return [*words, *(("--hardware", hardware) if hardware else ())]


def error_of(predicted, measured):
    """Of the one that is furthest off: what is predicted over what is measured, less 1."""
    return max((p / m - 1 for p, m in zip(predicted, measured, strict=True)), key=abs)


class Campaign:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.memory, self.failures, self.refused = [], [], 0
        self.steps = collections.defaultdict(list)  # by row: seconds of a step, predicted and measured
        self.alike = collections.defaultdict(list)  # rows by model, batch and ranks

    def run(self, number, row, hardware=None):
        words = words_of(row, self.folder, number, self.options, hardware)
        done = orthant(*words, timeout=SECONDS)
        if done.returncode == 2:
            self.refused += 1
            return
        if done.returncode != 0:
            self.failures.append(f"{row.label()}: exit code {done.returncode}: {done.stderr[-500:]}")
            print(f"FAILED {self.failures[-1]}", flush=True)
            return
        result = json.loads(done.stdout)
        predicted, measured = result["predicted"], result["measured"]
        error = error_of(predicted["memory_bytes"], measured["memory_bytes"])
        self.memory.append((error, row.label()))
        fullest = max(range(len(measured["memory_bytes"])), key=measured["memory_bytes"].__getitem__)
        cells = [f"{shown(predicted['memory_bytes'][fullest]):>10}", f"{shown(measured['memory_bytes'][fullest]):>10}", f"{error:+7.1%}"]
        if hardware and row.is_timed():
            seconds = predicted["step_seconds"], measured["step_seconds"]
            if row not in self.steps:
                self.alike[json.dumps((row.document, row.ranks()))].append(row)
            self.steps[row].append(seconds)
            cells += [f"{seconds[0]:8.3f} s", f"{seconds[1]:8.3f} s", f"{seconds[0] / seconds[1] - 1:+7.1%}"]
        elif hardware:
            cells.append(f"{'-':>31}")
        print("  ".join([f"{number:4}", *cells, row.label()]), flush=True)
        if abs(error) > WORST:
            print(f"      {shlex.join(str(word) for word in words)}", flush=True)

    def middle(self, row):
        """Seconds of a step, predicted and measured: medians over the rounds."""
        return tuple(statistics.median(seconds) for seconds in zip(*self.steps[row], strict=True))

    def step_error(self, row):
        return statistics.median(predicted / measured - 1 for predicted, measured in self.steps[row])

    def verdict(self):
        """Whether the bounds hold, and the figures."""
        text, good = [], not self.failures and bool(self.memory)
        steps = [(self.step_error(row), row.label()) for row in self.steps]
        if any(len(rounds) > 1 for rounds in self.steps.values()):
            text += [f"{error:+7.1%}  {label}" for error, label in steps]
        for name, errors, average, worst in (("memory", self.memory, AVERAGE, WORST), ("step", steps, STEP, None)):
            if not errors:
                continue
            mean = statistics.fmean(abs(error) for error, _ in errors)
            furthest, label = max(errors, key=lambda one: abs(one[0]))
            text.append(f"{name}: {len(errors)} runs, off by {mean:.1%} on average and {furthest:+.1%} at worst ({label})")
            good = good and mean <= average and (worst is None or abs(furthest) <= worst)
        for rows in self.alike.values():
            if len(rows) < 2:
                continue
            pick = min(rows, key=lambda row: self.middle(row)[0])
            slower = self.middle(pick)[1] / min(self.middle(row)[1] for row in rows) - 1
            text.append(f"pick of {len(rows)}: {pick.label()}, {slower:.1%} slower than the fastest")
            good = good and slower <= PICK
        if self.refused:
            text.append(f"{self.refused} draws refused")
        return good, text + self.failures


def calibrated(folder):
    """A file of this machine as fast as it is now."""
    path = os.path.join(folder, "hardware.json")
    done = orthant("plan", "--calibrate", path, timeout=SECONDS)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return path


def run_all(campaign, rows, options):
    for number, row in rows:
        if not options.rounds or not row.is_timed():
            campaign.run(number, row, options.hardware)
    for number in range(1, options.rounds + 1):
        print(f"round {number} of {options.rounds}", flush=True)
        for row_number, row in rows:
            if row.is_timed():
                campaign.run(row_number, row, calibrated(campaign.folder))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=0, help="compares steps, too: runs every row so often, each time after a calibration")
    parser.add_argument("--hardware", help="file of `orthant plan --calibrate`: compares steps, too, once")
    parser.add_argument("--steps", type=int, help="of each run (default 3, or 8 where steps are compared)")
    parser.add_argument("--only", default="", help="rows with this text in their label")
    parser.add_argument("--random", type=int, default=0, help="so many draws instead of the rows")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="number of the first draw")
    parser.add_argument("--ranks", type=int, default=8, help="most ranks of a draw")
    options = parser.parse_args()
    if options.rounds and options.hardware:
        parser.error("--rounds makes calibrations of its own: give one of --rounds and --hardware")
    timed = options.rounds or options.hardware
    options.steps = options.steps or (8 if timed else 3)
    numbers = range(options.start, options.start + options.random)
    rows = [(n, draw(options.seed, n, options.ranks)) for n in numbers] if options.random else list(enumerate(ROWS))
    rows = [(n, row) for n, row in rows if options.only in row.label()]
    print("  ".join(["  no", " predicted", "  measured", "  error", *(["      step", "  measured", "  error"] if timed else [])]))
    with tempfile.TemporaryDirectory(prefix="orthant-plan-runs-") as folder:
        campaign = Campaign(options, folder)
        run_all(campaign, rows, options)
    good, text = campaign.verdict()
    print("\n".join(text))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
