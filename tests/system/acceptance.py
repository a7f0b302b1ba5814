#!/usr/bin/env python3
"""The acceptance list: every axis, alone and with the others, trains the numbers of one rank.

  tests/system/acceptance.py [--long] [--quick] [--only WORD] [--device cuda --backend gloo]

One Markdown table. A row is one `orthant parity` on 4 or 8 ranks against one rank, in float64 with dropout and clipping on:
loss, gradient norm, gradients and weights must agree within 1e-10. Rows in a narrower dtype compare the same precision policy
on both sides; their bound is four times the largest error of a comparison on one rank (other microbatches, or the policy against
float64), made in the same run and printed. Rows `a sum left out` must fail. --long adds 16 ranks; --quick runs what `make test`
runs. Exit code 1 when a row is wrong.
"""
import argparse
import json
import os
import shutil
import sys
import tempfile

from parity_rows import Row, config_of
from pipeline_parity import CONFIGS, SCHEDULES
from program import orthant

SEQUENCE, LOSS, REGATHER = "parallel.sequence_parallel=true", "parallel.loss_parallel=true", "parallel.regather=true"
SHARDED, KEPT = "parallel.accumulate=sharded", "parallel.keep_gathered=true"
# AdamW hardly notices a norm that is wrong by a constant factor; SGD's weights do.
SGD = ("optimizer.kind=sgd", "optimizer.momentum=0.9", "optimizer.lr=1")
# Made by no generator: whole and split backwards mixed.
OWN_SCHEDULE = """# two ranks, four microbatches
0F0 0F1 0F2 0BW0 0F3 0B1 0W1 0B2 0B3 0W2 0W3
1F0 1F1 1BW0 1F2 1B1 1F3 1B2 1W1 1W2 1BW3
"""
BOUND = 1e-10
EVALUATED = {"data.eval_fraction": 0.5, "data.samples": 100, "train.steps": 4, "train.eval_every": 2, "train.global_batch_size": 24,
             "optimizer.lr": 1e-2, "precision.params": "float64", "precision.compute": "float64", "precision.reduce": "float64"}


class Validation(Row):
    """`orthant train` on a mesh and on one rank: evaluations of both must agree in every metric."""

    def __init__(self, model, mesh, *settings, quick=False):
        super().__init__(model, mesh, *settings, quick=quick, label="validation under TP x PP")

    def train(self, config, folder, name, mesh, device):
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
        words = ["train", "--config", config, "--output_dir", name, "--json", "--mesh", mesh, *device]
        for setting in self.settings + tuple(f"{key}={value}" for key, value in EVALUATED.items()):
            words += ["--set", setting]
        done = orthant(*words, cwd=folder, timeout=300)
        if done.returncode != 0:
            raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip()[-300:]}")
        with open(os.path.join(folder, name, "eval.jsonl")) as f:
            return [json.loads(done.stdout)["eval"]] + [json.loads(line) for line in f]

    def outcome(self, configs, folder, device):
        config = config_of(self, configs, folder)
        try:
            one, mesh = (self.train(config, folder, name, name, device) for name in ("dp=1", self.mesh))
        except RuntimeError as error:
            return str(error), False
        worst = 0.0
        for expected, found in zip(one, mesh, strict=True):
            if set(found) != set(expected) or len(one) < 3:
                return f"other metrics: {found}, {expected}", False
            for name in (name for name in expected if "second" not in name):
                worst = max(worst, abs(found[name] - expected[name]) / max(abs(expected[name]), 1e-300))
        names = ", ".join(name for name in one[0] if "second" not in name)
        return f"{worst:.1e} of {names}", worst <= BOUND


def run_with(name, microbatches):
    return f"parallel.schedule={name}", f"parallel.microbatches={microbatches}"


def pipeline_rows():
    yield Row("llama", "pp=4", *run_with("1f1b", 8), label="1F1B")
    yield Row("trimodal", "pp=4,dp=2", *run_with("1f1b", 3), label="1F1B")
    yield Row("trimodal", "pp=2,dp=2", *run_with("1f1b", 4), label="PP+DP")
    yield Row("llama tied", "pp=2,dp=4", *run_with("1f1b", 3), label="PP+DP")
    yield Row("llama", "pp=2,tp=2", *run_with("gpipe", 4), label="PP+TP GPipe")
    yield Row("bert", "pp=4,tp=2", *run_with("gpipe", 3), label="PP+TP GPipe", quick=True)
    for model in ("llama", "trimodal"):
        yield Row(model, "pp=2,dp=2,tp=2", *run_with("1f1b", 4), steps=4, resume_at=2, label="3D, saved and resumed", quick=model == "trimodal")
    for name, models in (("interleaved", ("gpt2", "trimodal")), ("zbh1", ("encoder_lm", "llama tied")), ("zbv", ("bert", "llama"))):
        label = name if name == "interleaved" else f"zero bubble {name}"
        yield Row(models[0], "pp=4", *run_with(name, 8), label=label)
        yield Row(models[1], "pp=2,dp=2,tp=2", *run_with(name, 4), label=label)
    yield Row("llama tied", "pp=2,dp=2", "parallel.schedule=own.txt", "parallel.microbatches=4", files={"own.txt": OWN_SCHEDULE},
              label="schedule from a file")
    yield Row("gpt2", "pp=2,fsdp=2,tp=2", "parallel.schedule=own.txt", "parallel.microbatches=4", files={"own.txt": OWN_SCHEDULE},
              label="schedule from a file", quick=True)


def data_rows():
    yield Row("llama", "dp=4", "parallel.bucket_mb=0.02", label="DDP")
    yield Row("trimodal", "dp=2,fsdp=2", label="HSDP")
    yield Row("llama tied", "dp=2,fsdp=2,tp=2", SEQUENCE, LOSS, label="HSDP+TP")
    yield Row("trimodal", "fsdp=2,tp=2", label="FSDP+TP")
    yield Row("gpt2", "fsdp=4,tp=2", LOSS, label="FSDP+TP")
    yield Row("encoder_lm", "pp=2,fsdp=2", *run_with("1f1b", 4), label="FSDP+PP")
    for zero in (1, 2, 3):
        yield Row("llama tied", "pp=2,fsdp=4", *run_with("1f1b", 3), f"parallel.zero={zero}", label=f"ZeRO-{zero} x PP", quick=zero == 2)
        yield Row("trimodal", "pp=2,fsdp=2,tp=2", *run_with("zbh1", 4), f"parallel.zero={zero}", label=f"ZeRO-{zero} x PP x TP")
    yield Row("llama", "pp=2,tp=2", *run_with("1f1b", 4), SEQUENCE, label="TP+SP+PP")
    yield Row("bert", "pp=2,dp=2,tp=2", *run_with("zbv", 4), SEQUENCE, LOSS, REGATHER, label="TP+SP+PP", quick=True)
    yield Row("trimodal", "dp=2,fsdp=2", "parallel.microbatches=6", label="accumulation")
    yield Row("llama tied", "pp=2,fsdp=2", *run_with("zbh1", 6), SHARDED, label="accumulation, sharded")
    yield Row("trimodal shared", "pp=2,fsdp=2,dp=2", *run_with("interleaved", 3), SHARDED, "parallel.zero=2", label="accumulation, sharded",
              quick=True)
    yield Validation("trimodal", "pp=2,tp=2", "parallel.microbatches=4", quick=True)
    yield Validation("llama tied", "pp=2,tp=2", *run_with("zbv", 4), SEQUENCE, LOSS)
    yield Validation("bert", "pp=2,fsdp=2,tp=2", *run_with("interleaved", 3))


def precision_rows():
    narrow = {"dtype": "bfloat16", "steps": 1}
    yield Row("llama tied", "pp=2,dp=2,fsdp=2", *run_with("1f1b", 3), *SGD, **narrow, label="precision: compute bfloat16",
              yardstick=Row("llama tied", "dp=1", "parallel.microbatches=12", *SGD, **narrow))
    for dtype in ("bfloat16", "float16"):
        policy = (f"precision.compute={dtype}", "precision.params=float32", "precision.reduce=float32")
        for model in ("llama", "trimodal"):
            yield Row(model, "pp=2,fsdp=2,tp=2", *run_with("1f1b", 4), SEQUENCE, *SGD, dtype=dtype, label=f"precision: compute {dtype}",
                      yardstick=Row(model, "dp=1", *SGD, *policy), quick=(model, dtype) == ("llama", "bfloat16"))


def further_rows():
    for model in ("llama", "llama tied", "gpt2", "bert", "trimodal", "trimodal shared", "encoder_lm"):
        yield Row(model, "pp=2,fsdp=2,tp=2", *run_with("1f1b", 4), label="every model")
    for i, name in enumerate(SCHEDULES):
        yield Row(tuple(CONFIGS)[i + 1], "pp=2,fsdp=2,tp=2", *run_with(name, 3), SEQUENCE, LOSS, "parallel.recompute=full",
                  label=f"recompute, {name}", quick=name == "zbh1")
    yield Row("llama", "pp=2,fsdp=2,tp=2", *run_with("1f1b", 4), 'model.freeze=["embed.*","layers.0.*"]', label="frozen units")
    yield Row("trimodal", "pp=2,dp=2,fsdp=2", *run_with("zbh1", 3), 'model.freeze=["primary.*"]', label="frozen units", quick=True)
    yield Row("llama tied", "pp=2,fsdp=2", *run_with("1f1b", 4), label="tied over two stages, sharded")
    for zero in (2, 3):
        yield Row("llama tied", "pp=2,fsdp=2,tp=2", *run_with("interleaved", 4), f"parallel.zero={zero}", SHARDED,
                  label="tied over two stages, sharded", quick=zero == 3)
    yield Row("llama tied", "pp=4,fsdp=2", *run_with("zbh1", 4), 'model.freeze=["embed.*"]', label="tied and frozen")
    yield Row("llama", "pp=2,fsdp=2", *run_with("1f1b", 4), "parallel.zero=3", KEPT, label="kept gathered")
    yield Row("llama tied", "pp=2,fsdp=2,tp=2", *run_with("zbv", 4), "parallel.zero=3", KEPT, SHARDED, label="kept gathered", quick=True)
    for model, mesh in (("trimodal", "pp=2,dp=2,tp=2"), ("llama tied", "pp=2,fsdp=2,tp=2"), ("bert", "pp=2,dp=2,fsdp=2")):
        yield Row(model, mesh, *run_with("1f1b", 2), *SGD, steps=5, label="one norm clips all", quick=model == "llama tied")
    for order in ("tp,dp,pp", "dp,tp,pp"):
        yield Row("llama tied", "pp=2,dp=2,tp=2", *run_with("1f1b", 4), order=order, label="another order of ranks", quick=order == "tp,dp,pp")


def canary_rows():
    for mesh in ("pp=2,dp=2,tp=2", "pp=2,fsdp=2,tp=2"):
        for axis in (word.partition("=")[0] for word in mesh.split(",")):
            yield Row("llama tied", mesh, *run_with("1f1b", 4), canary=axis, label="a sum left out", quick=(mesh, axis) == ("pp=2,fsdp=2,tp=2", "pp"))


def long_rows():
    for i, name in enumerate(SCHEDULES):
        for model in (tuple(CONFIGS)[i], tuple(CONFIGS)[(i + 2) % len(CONFIGS)]):
            yield Row(model, "pp=4,tp=2,dp=2", *run_with(name, 4), label=f"16 ranks, {name}")
            yield Row(model, "pp=2,fsdp=2,tp=2,dp=2", *run_with(name, 3), SEQUENCE, label=f"16 ranks, {name}")
    for zero in (1, 2, 3):
        yield Row("llama tied", "pp=2,fsdp=2,tp=2,dp=2", *run_with("1f1b", 3), f"parallel.zero={zero}", *SGD, label="16 ranks, one norm")
    yield Row("trimodal", "pp=4,tp=2,dp=2", *run_with("1f1b", 4), steps=4, resume_at=2, label="16 ranks, saved and resumed")
    yield Row("trimodal", "pp=2,fsdp=2,tp=2,dp=2", *run_with("1f1b", 3), steps=4, resume_at=2, label="16 ranks, saved and resumed")
    for axis in ("pp", "fsdp", "tp", "dp"):
        yield Row("llama tied", "pp=2,fsdp=2,tp=2,dp=2", *run_with("1f1b", 3), canary=axis, label="16 ranks, a sum left out")


def rows(long=False):
    for part in (pipeline_rows, data_rows, further_rows, precision_rows, canary_rows) + (long_rows,) * long:
        yield from part()


def table(chosen, device=()):
    """Prints the table; returns (number of rows, the wrong ones)."""
    print("| what | model | mesh | settings | ranks | largest relative error | verdict |\n|---|---|---|---|---|---|---|", flush=True)
    wrong, count = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for row in chosen:
            text, right = row.outcome(CONFIGS, folder, device)
            cells = [row.label, *row.cells(), str(row.ranks()), text, ("fails, as it must" if row.canary else "equal") if right else "WRONG"]
            print("| " + " | ".join(cells) + " |", flush=True)
            count += 1
            wrong += [] if right else [" | ".join(cells)]
    return count, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="the rows on 16 ranks as well")
    parser.add_argument("--quick", action="store_true", help="what `make test` runs")
    parser.add_argument("--only", default="", help="rows whose text contains this")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", default="auto")
    a = parser.parse_args()
    chosen = [row for row in rows(a.long) if (row.quick or not a.quick) and a.only in f"{row.label} | {row.name()}"]
    count, wrong = table(chosen, ["--device", a.device, "--backend", a.backend])
    print(f"\n{count} rows, {len(wrong)} wrong")
    sys.exit(1 if wrong or count == 0 else 0)


if __name__ == "__main__":
    main()
