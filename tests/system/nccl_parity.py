#!/usr/bin/env python3
"""Every axis over NCCL against one rank, several ranks on one card.

  tests/system/nccl_parity.py [--ranks 2 4 8] [--only WORD] [--random 20] [--all] [--context] [--device cuda] [--backend nccl]

Rows of a number of ranks are run by one set of processes (`orthant parity --rows`), since a small call over NCCL on one card
takes 5 ms with 2 ranks and 50 ms with 8. Each row must agree with one rank within the float64 bound, those in bfloat16 through the
kernels within theirs; rows marked `canary` leave a sum out and must fail. --random draws meshes as random_parity.py does, those of
up to 4 ranks; --context runs cp in its three ways instead. A row that hangs or ends its ranks is wrong, and those behind it run with
new ranks. Without --all: the rows that `make test` runs on a card. Prints a Markdown table; exit code 1 when a row is wrong.
"""
import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile

import random_parity
from parity_rows import Row, config_of, is_right, largest_error
from program import ORTHANT, clean_environment

SIZES = {"hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 4, "intermediate_size": 36, "vocab_size": 37}
BERT = {**SIZES, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
TEXT = {"kind": "tokens", "sequence_length": 11}
LLAMA = {"kind": "llama", "preset": "llama-tiny", **SIZES, "num_key_value_heads": 2, "attention_dropout": 0.1}
KERNELS = {"hidden_size": 128, "num_hidden_layers": 2, "intermediate_size": 256, "vocab_size": 128}
HALF = {**LLAMA, **KERNELS}
MIXTURE = {"kind": "mixtral", "preset": "mixtral-tiny", **SIZES, **KERNELS, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2}
WHOLE = {**HALF, "attention_dropout": 0.0, "max_position_embeddings": 2048}
CONFIGS = {
    "llama": {"model": LLAMA, "data": TEXT},
    "llama tied": {"model": {**LLAMA, "tie_word_embeddings": True}, "data": TEXT},
    "llama of kernels": {"model": HALF, "data": {**TEXT, "sequence_length": 32}},
    # Attention over cp by our kernels, and by cuDNN: blocks of 2^18 pairs and more.
    "llama of blocks": {"model": WHOLE, "data": {**TEXT, "sequence_length": 500}},
    "llama of long blocks": {"model": WHOLE, "data": {**TEXT, "sequence_length": 2048}},
    "mixtral of kernels": {"model": MIXTURE, "data": {**TEXT, "sequence_length": 32}},
    "trimodal": {"model": {"kind": "trimodal", "preset": "trimodal-tiny", "primary": BERT, "secondary": {**BERT, "num_hidden_layers": 3}},
                 "data": {"kind": "random", "sequence_length": 11, "secondary_length": 7}},
}
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zbh1", "zbv")
BRANCHES = ('parallel.split=[["primary.embed","primary.layers.0","primary.layers.1","primary.layers.2","primary.layers.3","primary.pooler"],'
            '["secondary.embed","secondary.layers.0","secondary.layers.1","secondary.layers.2","secondary.pooler","tabular"],["fusion","loss"]]')
AXES = ("pp", "dp", "fsdp", "tp")
SUMS = {"dp": "dp", "fsdp": "fsdp", "tp": "tp"}


def microbatches(mesh):
    return ("parallel.microbatches=2",) if "pp" in mesh else ()


def schedule(name, count):
    return f"parallel.schedule={name}", f"parallel.microbatches={count}"


def rows_of_two():
    for axis in AXES:
        yield Row("llama", f"{axis}=2", *microbatches(axis), steps=2, quick=True)
    for name in SCHEDULES:
        yield Row("llama tied", "pp=2", *schedule(name, 4), steps=2, quick=name in ("1f1b", "zbv"))
    for zero in (0, 1, 2, 3):
        yield Row("llama", "fsdp=2", f"parallel.zero={zero}", "parallel.microbatches=2", steps=2, quick=zero in (0, 3))
    yield Row("llama", "tp=2", "parallel.sequence_parallel=true", "parallel.loss_parallel=true", steps=2, quick=True)
    yield Row("trimodal", "pp=2", *schedule("1f1b", 4), BRANCHES, "parallel.placement=[0,1,1]", steps=2, quick=True)
    for axis in SUMS:
        yield Row("llama", f"{axis}=2", canary=axis, steps=1, quick=True)
    yield Row("llama tied", "pp=2", *schedule("1f1b", 2), canary="pp:embed.weight", steps=1, spreads=True, quick=True)
    for mesh in ("tp=2", "dp=2", "fsdp=2", "pp=2"):
        yield Row("llama of kernels", mesh, *microbatches(mesh), dtype="bfloat16", steps=2, quick=mesh == "pp=2")
    for mesh in ("dp=2", "dp=2,ep=2"):  # a score that rounds otherwise may choose another expert
        yield Row("mixtral of kernels", mesh, dtype="bfloat16", steps=1, bound=1e-1, quick="ep" in mesh)
    yield Row("llama", "pp=2", *schedule("1f1b", 2), checked=True, steps=1)


def rows_of_four():
    for i, first in enumerate(AXES):
        for second in AXES[i + 1:]:
            mesh = f"{first}=2,{second}=2"
            yield Row("llama", mesh, *microbatches(mesh), *(("parallel.zero=3",) if "fsdp" in mesh else ()), steps=1,
                      quick=mesh in ("pp=2,fsdp=2", "dp=2,fsdp=2", "fsdp=2,tp=2"))
    yield Row("llama", "pp=4", *schedule("1f1b", 4), steps=1)
    yield Row("trimodal", "pp=3", *schedule("zbh1", 3), BRANCHES, "parallel.placement=[2,0,1]", steps=1)
    yield Row("llama tied", "pp=2,dp=2", *schedule("1f1b", 2), canary="pp:embed.weight", steps=1, spreads=True)


def rows_of_eight():
    yield Row("llama", "pp=2,fsdp=2,tp=2", "parallel.microbatches=2", steps=1, quick=True)
    yield Row("llama", "dp=2,fsdp=2,tp=2", "parallel.zero=3", steps=1)


def rows_of_context():
    for way in ("ring", "all_to_all", "gather"):
        yield Row("llama", "cp=2", f"parallel.context={way}", steps=2, quick=True)
        yield Row("llama of kernels", "cp=2", f"parallel.context={way}", dtype="bfloat16", steps=2)
        yield Row("llama of blocks", "cp=2", f"parallel.context={way}", dtype="bfloat16", steps=2)
        yield Row("llama of long blocks", "cp=2", f"parallel.context={way}", dtype="bfloat16", steps=2)
        yield Row("llama", "cp=4", f"parallel.context={way}", steps=1)
    yield Row("llama", "cp=2", "parallel.context=ring", canary="cp", steps=1, quick=True)
    yield Row("llama", "cp=2,tp=2", "parallel.context=ring", steps=1)
    yield Row("llama", "pp=2,cp=2", "parallel.context=ring", "parallel.microbatches=2", steps=1)


ROWS = {2: rows_of_two, 4: rows_of_four, 8: rows_of_eight}


def random_rows(count, seed):
    number = 0
    while count > 0:
        row = random_parity.draw(seed, number, 4)
        number += 1
        if row.ranks() in (2, 3, 4):
            count -= 1
            yield row


def answers_of(words, folder, timeout):
    """(exit code, or None when the time was over, stdout, stderr)."""
    with open(os.path.join(folder, "answers"), "w+") as answers, open(os.path.join(folder, "errors"), "w+") as errors:
        job = subprocess.Popen(words, cwd=folder, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=answers, stderr=errors)
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = job.wait(timeout)
        if code is None:
            job.kill()
            job.wait()
        for file in (answers, errors):
            file.seek(0)
        return code, answers.read(), errors.read()


def place_of(a, ranks):
    """The options that say where rows of so many ranks run."""
    return ["--device", a.device, "--backend", a.backend, *(["--ranks-per-device", str(ranks)] if a.backend == "nccl" else [])]


def whole_documents(text):
    """Those of all lines but one that was broken off."""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def run_rows(rows, ranks, place, folder, timeout, extra=()):
    """Yields each row with its document, or None, and what else there is to say: why it was refused, or how its ranks ended."""
    kept = list(rows)
    path = os.path.join(folder, f"rows-{ranks}.jsonl")
    while kept:
        with open(path, "w") as f:
            for row in kept:
                configs = random_parity.MODELS if row.model not in CONFIGS or row.label == "random" else CONFIGS
                words = row.words(config_of(row, configs, folder))[2:]
                f.write(json.dumps([word for word in words if word not in ("--json", "--check-collectives")]) + "\n")
        checked = ["--check-collectives"] * kept[0].checked
        code, answers, errors = answers_of([ORTHANT, "parity", "--rows", path, *place, "--timeout", "start=120,step=30", *checked, *extra], folder, timeout)
        line = re.search(r"rows-\d+\.jsonl line (\d+): ([^\n]*)", errors) if code == 2 else None
        if line:
            yield kept.pop(int(line[1]) - 1), None, f"refused: {line[2]}"
            continue
        documents = whole_documents(answers)
        for document in documents:
            yield kept.pop(0), document, ""
        if kept:
            yield kept.pop(0), None, f"not run: exit code {code}: {errors.strip()[-400:]}".replace("\n", " ")


def batches_of(a):
    """(ranks, rows): those of a batch run by one set of processes."""
    if a.context:
        rows = list(rows_of_context())
        return [(ranks, [row for row in rows if (a.all or row.quick) and a.only in row.name() and row.ranks() == ranks]) for ranks in a.ranks]
    batches = [(ranks, [row for row in ROWS[ranks]() if (a.all or row.quick) and a.only in row.name() and row.checked == checked])
               for ranks in a.ranks for checked in (False, True)]
    drawn = list(random_rows(a.random, a.seed))
    for row in drawn:
        row.label = "random"
    return batches + [(ranks, [row for row in drawn if row.ranks() == ranks]) for ranks in (2, 3, 4)]


def outcomes(a, extra=()):
    """Yields (row, text, whether it is as it must be; None where a drawn row was refused)."""
    with tempfile.TemporaryDirectory() as folder:
        for ranks, rows in batches_of(a):
            for row, document, words in run_rows(rows, ranks, place_of(a, ranks), folder, a.timeout, extra):
                if document is None:
                    yield row, words, None if row.label == "random" and words.startswith("refused") else False
                else:
                    yield row, f"{largest_error(document):.1e}", is_right(row, document)


def parser_of_rows():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="the whole campaign")
    parser.add_argument("--context", action="store_true", help="rows of cp instead, by ring, all_to_all and gather")
    parser.add_argument("--ranks", type=int, nargs="+", default=sorted(ROWS), choices=sorted(ROWS))
    parser.add_argument("--only", default="", help="rows whose text contains this")
    parser.add_argument("--random", type=int, default=0, help="random meshes")
    parser.add_argument("--seed", type=int, default=29)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--timeout", type=int, default=600, help="seconds for the rows of a number of ranks")
    return parser


def main():
    a, extra = parser_of_rows().parse_known_args()
    wrong, count, num_refused = [], 0, 0
    print("| model | mesh | settings | largest relative error | |\n|---|---|---|---|---|", flush=True)
    for row, text, right in outcomes(a, extra):
        count += 1
        num_refused += right is None
        wrong += [row.name()] * (right is False)
        print(f"| {row.name()} | {text} | {'WRONG' if right is False else 'as it must be' if right else 'as it may be'} |", flush=True)
    print(f"\n{count - num_refused} rows, {len(wrong)} wrong, {num_refused} refused")
    sys.exit(1 if wrong or count == 0 else 0)


if __name__ == "__main__":
    main()
