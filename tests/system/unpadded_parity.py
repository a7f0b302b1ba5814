#!/usr/bin/env python3
"""Rows without padding: they train the numbers of padded rows, dropout included, on one rank and on every mesh.

  tests/system/unpadded_parity.py [--all] [--only WORD]

Each row is one `orthant parity`: without padding on the mesh, padded on one rank. Rows marked `canary` leave a sum out and must fail.
Without --all: one row of each kind (what `make test` runs). Prints a Markdown table; exit code 1 when a row is wrong.
"""
import json

from parity_rows import TRAINING, Row, main
from tensor_parity import LOSS, SEQUENCE

WORDS = "the a ship sails over seven seas and comes home again with salt tea silk".split()
SIZES = {"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 2, "intermediate_size": 37, "vocab_size": 61}
TOWER = {**SIZES, "max_position_embeddings": 64, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
ROWS = 72


def text(row, longest):
    """A few words, seldom many."""
    count = longest if row % 12 == 5 else 1 + row * 5 % (longest // 4)
    return " ".join(WORDS[(row * 3 + i * (row % 4 + 1)) % len(WORDS)] for i in range(count))


FILES = {"vocab.txt": "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n",
         "lines.txt": "".join(text(row, 40) + "\n" for row in range(ROWS)),
         "table.jsonl": "".join(json.dumps({"a": text(row, 40), "b": text(row + 5, 20), "x": row % 7, "y": "ny"[row % 3 % 2]}) + "\n"
                                for row in range(ROWS))}
TEXT = {"kind": "text", "path": "lines.txt", "tokenizer": "vocab.txt", "separator": "line", "packing": False, "sequence_length": 40}
TABLE = {"kind": "trimodal", "path": "table.jsonl", "primary_text": "a", "secondary_text": "b", "tabular": ["x"], "label": "y",
         "tokenizer": "vocab.txt", "sequence_length": 40, "secondary_length": 24}
MODELS = {
    "bert": ({"kind": "bert", "preset": "bert-tiny", **TOWER}, TEXT),
    "trimodal": ({"kind": "trimodal", "preset": "trimodal-tiny", "primary": TOWER, "secondary": TOWER, "tabular": {"input_dim": 1}}, TABLE),
    "llama": ({"kind": "llama", "preset": "llama-tiny", **SIZES, "num_key_value_heads": 2, "attention_dropout": 0.1}, TEXT),
    "gpt2": ({"kind": "gpt2", "preset": "gpt2-tiny", **SIZES, "attn_pdrop": 0.1, "resid_pdrop": 0.1, "embd_pdrop": 0.1}, TEXT),
    "encoder_lm": ({"kind": "encoder_lm", "preset": "encoder-lm-tiny", **SIZES, "dropout": 0.1}, TEXT),
}
CONFIGS = {}
for name, (model, data) in MODELS.items():
    CONFIGS[name] = {"model": model, "data": {**data, "padding": "none"}}
    FILES[f"{name}_padded.json"] = json.dumps({"model": model, "data": {**data, "padding": "full"}, **TRAINING})


def rows():
    for model in MODELS:
        padded = f"{model}_padded.json"
        encoder = model in ("bert", "trimodal")
        yield Row(model, "dp=1", against=padded, files=FILES, quick=True)
        for mesh, *settings in (("dp=1", "parallel.microbatches=3"), ("dp=2",), ("fsdp=2", "parallel.zero=3"), ("tp=2",), ("tp=2", SEQUENCE),
                                ("tp=3", SEQUENCE, LOSS), ("pp=2", "parallel.schedule=1f1b", "parallel.microbatches=4"),
                                ("pp=2", "parallel.schedule=zbv", "parallel.microbatches=4"),
                                ("pp=2,tp=2", SEQUENCE, "parallel.microbatches=2"), ("dp=2", "parallel.recompute=full")):
            if mesh == "tp=3" and model == "llama":
                continue  # two key/value heads
            wanted = encoder and mesh in ("dp=1", "fsdp=2", "pp=2,tp=2")
            yield Row(model, mesh, *settings, against=padded, files=FILES, quick=wanted)
        yield Row(model, "tp=2", SEQUENCE, canary="tp", against=padded, files=FILES, quick=model == "bert")


if __name__ == "__main__":
    main(__doc__, list(rows()), CONFIGS)
