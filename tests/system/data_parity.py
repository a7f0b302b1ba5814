#!/usr/bin/env python3
"""Data parallelism against one rank: every mesh, policy and setting trains the same numbers.

  tests/system/data_parity.py [--all] [--only WORD] [--device cuda --backend gloo]

Each row is one `orthant parity`; rows marked `canary` leave a sum out and must fail. Without --all: one row of each kind
(what `make test` runs); with it the whole campaign, some minutes. Prints a Markdown table; exit code 1 when a row is wrong.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

from program import ORTHANT, clean_environment

CONFIGS = {
    "llama": {"model": {"kind": "llama", "preset": "llama-tiny"}, "data": {"kind": "tokens", "sequence_length": 16}},
    "llama tied": {"model": {"kind": "llama", "preset": "llama-tiny", "tie_word_embeddings": True},
                   "data": {"kind": "tokens", "sequence_length": 16}},
    "trimodal": {"model": {"kind": "trimodal", "preset": "trimodal-tiny"},
                 "data": {"kind": "random", "sequence_length": 16, "secondary_length": 8}},
    "bert": {"model": {"kind": "bert", "preset": "bert-tiny"}, "data": {"kind": "random", "sequence_length": 16}},
    "encoder_lm": {"model": {"kind": "encoder_lm", "preset": "encoder-lm-tiny"}, "data": {"kind": "tokens", "sequence_length": 16}},
}
TRAINING = {"optimizer": {"kind": "adamw", "lr": 1e-3, "clip": 0.5, "weight_decay": 0.1}, "lr_schedule": {"kind": "constant"},
            "train": {"global_batch_size": 24, "steps": 50}}
FROZEN = {"llama": '["embed.*","layers.0.*"]', "llama tied": '["layers.0.*"]', "trimodal": '["primary.*"]', "bert": '["layers.0.*"]',
          "encoder_lm": '["layers.0.*"]'}


class Row:
    def __init__(self, model, mesh, *settings, canary=None, dtype="float64", steps=3, quick=False, against=None, bound=None):
        self.model, self.mesh, self.settings = model, mesh, settings
        self.canary, self.dtype, self.steps, self.quick, self.against, self.bound = canary, dtype, steps, quick, against, bound

    def words(self, config):
        words = [ORTHANT, "parity", "--config", config, "--mesh", self.mesh, "--dtype", self.dtype, "--steps", str(self.steps), "--json"]
        for setting in self.settings:
            words += ["--vary", setting]
        if self.canary:
            words += ["--inject", f"skip-reduce={self.canary}"]
        if self.against:
            words += ["--against", self.against]
        return words

    def name(self):
        extras = [s.replace("parallel.", "") for s in self.settings]
        extras += [self.dtype] * (self.dtype != "float64") + [f"{self.steps} steps"] * (self.steps != 3)
        extras += [f"without the sum over {self.canary}"] * bool(self.canary) + [f"against {self.against}"] * bool(self.against)
        return f"{self.model} | {self.mesh} | {', '.join(extras)}"


def rows():
    for model in CONFIGS:
        quick = model in ("llama tied", "trimodal")
        for degree in (2, 3, 4):
            yield Row(model, f"dp={degree}", quick=quick and degree == 3)
        for degree in (2, 3, 4, 8):
            for zero in (1, 2, 3):
                yield Row(model, f"fsdp={degree}", f"parallel.zero={zero}", quick=degree == 3 and (quick or zero == 3))
        yield Row(model, "fsdp=2", "parallel.zero=0")
        for mesh in ("dp=2,fsdp=2", "dp=2,fsdp=4"):
            for zero in (0, 1, 2, 3):
                yield Row(model, mesh, f"parallel.zero={zero}", quick=model == "llama tied" and mesh == "dp=2,fsdp=2")
        for zero in (1, 2, 3):
            yield Row(model, "fsdp=2", f"parallel.zero={zero}", "parallel.microbatches=3", quick=quick and zero == 2)
        for zero in (2, 3):
            yield Row(model, "dp=2,fsdp=2", f"parallel.zero={zero}", "parallel.microbatches=3", "parallel.accumulate=sharded", quick=quick)
        yield Row(model, "fsdp=3", "parallel.recompute=full", quick=quick)
        yield Row(model, "dp=2", "parallel.recompute=selective", "parallel.microbatches=2")
        yield Row(model, "fsdp=2", f"model.freeze={FROZEN[model]}", quick=quick)
        yield Row(model, "dp=2", f"model.freeze={FROZEN[model]}")
        yield Row(model, "fsdp=2", 'parallel.units={"min_params":20000}', "parallel.limit_all_gathers=1")
        yield Row(model, "fsdp=2", 'parallel.units=[["*"]]', "parallel.microbatches=2", "parallel.accumulate=sharded", quick=quick)
        yield Row(model, "fsdp=2", "parallel.keep_gathered=true", "parallel.microbatches=2", "parallel.limit_all_gathers=4")
        yield Row(model, "fsdp=2", "parallel.offload=params")
        yield Row(model, "dp=2,fsdp=2", "parallel.offload=optimizer", "parallel.zero=1")
        yield Row(model, "dp=2", "parallel.bucket_mb=0.01")
        for mesh, zero in (("dp=2", 0), ("fsdp=2", 1), ("fsdp=2", 3)):
            yield Row(model, mesh, f"parallel.zero={zero}", "parallel.comm_hook=bf16", steps=1, bound=2e-2, quick=quick)
        # The parts of some gradients cancel, so rounded parts may be far from one rank's sum; all policies round alike.
        yield Row(model, "fsdp=4", "parallel.comm_hook=bf16", against="dp=4", quick=quick)
        yield Row(model, "dp=2", dtype="bfloat16", quick=quick)
        yield Row(model, "dp=2,fsdp=2", dtype="bfloat16")
        yield Row(model, "fsdp=2", "parallel.zero=3", against="dp=2", quick=quick)
        yield Row(model, "dp=2,fsdp=2", steps=20, quick=model == "llama tied")
        # Batches of 24, 24 and 2 rows: the last leaves replicas without a row.
        yield Row(model, "fsdp=4", "data.samples=50", steps=5, quick=quick)
        yield Row(model, "dp=3", "data.samples=49", "parallel.microbatches=2", steps=4)
        yield Row(model, "dp=2", canary="dp", quick=quick)
        for zero in (0, 1, 2, 3):
            yield Row(model, "fsdp=2", f"parallel.zero={zero}", canary="fsdp", quick=quick and zero == 3)
        yield Row(model, "dp=2,fsdp=2", canary="dp")
    yield Row("llama", "dp=2,fsdp=2", canary="fsdp:layers.1.mlp.w2.weight", quick=True)
    yield Row("trimodal", "dp=2,fsdp=2", canary="dp:fusion", quick=True)


def run(row, folder, extra):
    path = os.path.join(folder, row.model.replace(" ", "_") + ".json")
    if not os.path.exists(path):
        with open(path, "w") as f:
            json.dump({**CONFIGS[row.model], **TRAINING}, f)
    words = row.words(path)
    # What is frozen and how many samples there are hold for both sides, and a hook against another mesh.
    both = ("model.freeze", "data.samples") + (("parallel.comm_hook",) if row.against else ())
    words = [("--set" if w == "--vary" and words[i + 1].startswith(both) else w) for i, w in enumerate(words)]
    done = subprocess.run(words + extra, capture_output=True, text=True, env=clean_environment(), timeout=300, stdin=subprocess.DEVNULL)
    if done.returncode not in (0, 1) or not done.stdout.strip():
        return False, f"exit code {done.returncode}: {done.stderr.strip()[-300:]}"
    result = json.loads(done.stdout)
    errors = result["max_relative_error"]
    text = "every bit" if result["bitwise"] else ", ".join(f"{name} {errors[name]:.1e}" if errors[name] is not None else f"{name} -"
                                                           for name in ("loss", "gradients", "weights"))
    right = not result["pass"] if row.canary else result["pass"]
    if row.bound:  # gradients are rounded on their way: not the numbers of one rank, but near
        right = result["replicas_equal"] and 1e-6 < errors["gradients"] < row.bound and errors["loss"] < 1e-10
    name = row.canary.partition(":")[2] if row.canary else ""
    if name:
        right = right and result["first_difference"].startswith(".".join(name.split(".")[:2]))
    return right, text + (f"; first {result['first_difference']}" if row.canary else "")


def campaign(everything, only="", extra=()):
    """Runs the rows; returns (number run, list of wrong ones)."""
    wrong, count = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for row in rows():
            if not (everything or row.quick) or only not in row.name():
                continue
            right, text = run(row, folder, list(extra))
            count += 1
            print(f"| {row.name()} | {text} | {'as it must be' if right else 'WRONG'} |", flush=True)
            if not right:
                wrong.append(f"{row.name()}: {text}")
    return count, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="the whole campaign")
    parser.add_argument("--only", default="", help="rows whose text contains this")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", default="auto")
    a = parser.parse_args()
    print("| model | mesh | settings | largest relative errors | |\n|---|---|---|---|---|", flush=True)
    count, wrong = campaign(a.all, a.only, ["--device", a.device, "--backend", a.backend])
    print(f"\n{count} rows, {len(wrong)} wrong")
    sys.exit(1 if wrong or count == 0 else 0)


if __name__ == "__main__":
    main()
