#!/usr/bin/env python3
"""Packed documents: a packed run trains the numbers of a run in which each document is a row of its own, and every mesh those of one rank.

  tests/system/packed_parity.py [--all] [--only WORD] [--device cuda --backend gloo]

Each row is one `orthant parity`. Rows marked `canary` leave a sum out, rows of `crossing` let attention cross documents: both must fail.
Without --all: one row of each kind (what `make test` runs). Prints a Markdown table; exit code 1 when a row is wrong.
"""
import json

from parity_rows import TRAINING, Row, main
from tensor_parity import LOSS, REGATHER, SEQUENCE

LENGTH = 20
SAMPLES = TRAINING["train"]["global_batch_size"]  # a step has all of them, so that orders of samples do not matter
CUTS = ((4, 5, 3, 8), (7, 1, 12), (20,), (2, 18), (1, 1, 1, 17), (10, 10))  # documents of one sample
SIZES = {"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 2, "intermediate_size": 37, "vocab_size": 61}
MODELS = {
    "llama": {"kind": "llama", "preset": "llama-tiny", **SIZES, "num_key_value_heads": 2},
    "qwen3": {"kind": "qwen3", "preset": "qwen3-tiny", **SIZES, "head_dim": 8, "num_key_value_heads": 2},
    "mistral": {"kind": "mistral", "preset": "mistral-tiny", **SIZES, "num_key_value_heads": 2, "sliding_window": 4},
    "gpt2": {"kind": "gpt2", "preset": "gpt2-tiny", **SIZES, "embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0},
}
DROPOUT = {"llama": {"attention_dropout": 0.1}, "qwen3": {"attention_dropout": 0.1}, "mistral": {"attention_dropout": 0.1},
           "gpt2": {"attn_pdrop": 0.1, "resid_pdrop": 0.1, "embd_pdrop": 0.1}}


def documents():
    """Ids per document. The last one is a target that no sample needs."""
    lengths = [length for sample in range(SAMPLES) for length in CUTS[sample % len(CUTS)]] + [1]
    return [[(7 * d + 3 * i * (d + 1) + i * i) % SIZES["vocab_size"] for i in range(n)] for d, n in enumerate(lengths)]


DATA = {"kind": "text", "path": "documents.jsonl", "ids_column": "ids", "sequence_length": LENGTH}
FILES = {"documents.jsonl": "".join(json.dumps({"ids": ids}) + "\n" for ids in documents())}
# A document of one token has no target.
ROWS_OF_THEIR_OWN = {**TRAINING, "train": {**TRAINING["train"], "global_batch_size": sum(len(ids) > 1 for ids in documents())}}
CONFIGS = {}
for name, model in MODELS.items():
    CONFIGS[name] = {"model": {**model, **DROPOUT[name]}, "data": {**DATA, "pack": True}}
    CONFIGS[f"{name} without dropout"] = {"model": model, "data": {**DATA, "pack": True}}
    CONFIGS[f"{name} crossing"] = {"model": model, "data": DATA}
    FILES[f"{name}_documents.json"] = json.dumps({"model": model, "data": {**DATA, "packing": False}, **ROWS_OF_THEIR_OWN})


def rows():
    for model in MODELS:
        first = model == "llama"
        alone = f"{model}_documents.json"
        yield Row(f"{model} without dropout", "dp=1", against=alone, files=FILES, quick=True)
        yield Row(f"{model} without dropout", "tp=2", SEQUENCE, against=alone, files=FILES, quick=model == "gpt2")
        yield Row(f"{model} crossing", "dp=1", against=alone, files=FILES, differs=True, quick=True)
        for mesh, *settings in (("dp=2",), ("dp=3", "parallel.microbatches=2"), ("fsdp=2", "parallel.zero=3"),
                                ("dp=2,fsdp=2", "parallel.zero=2"), ("tp=2",), ("tp=2", SEQUENCE), ("tp=2", SEQUENCE, LOSS, REGATHER),
                                ("pp=2", "parallel.schedule=1f1b", "parallel.microbatches=4"),
                                ("pp=2", "parallel.schedule=zbv", "parallel.microbatches=4"),
                                ("pp=2,tp=2", SEQUENCE, "parallel.microbatches=2"),
                                ("fsdp=2,tp=2", SEQUENCE, "parallel.recompute=full"),
                                ("dp=2", "parallel.recompute=selective"), ("tp=2", SEQUENCE, "train.join_head_and_loss=on")):
            wanted = first and mesh in ("dp=2", "fsdp=2", "pp=2,tp=2") or model == "gpt2" and (mesh, *settings) == ("tp=2", SEQUENCE)
            yield Row(model, mesh, *settings, files=FILES, quick=wanted)
        yield Row(model, "dp=2", canary="dp", files=FILES, quick=first)
        yield Row(model, "tp=2", canary="tp", files=FILES)


if __name__ == "__main__":
    main(__doc__, list(rows()), CONFIGS)
