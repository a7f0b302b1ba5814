#!/usr/bin/env python3
"""Context parallelism against one rank: every degree, way and model trains the same numbers, dropout and padding on.

  tests/system/context_parity.py [--all] [--only WORD] [--device cuda --backend gloo]

Each row is one `orthant parity`; rows marked `canary` leave a sum out and must fail. Without --all: one row of each kind
(what `make test` runs); with it the whole campaign, some minutes. Prints a Markdown table; exit code 1 when a row is wrong.
"""
from parity_rows import Row, main
from tensor_parity import BERT, LOSS, REGATHER, SEQUENCE

# 6 heads do not divide among 4 or 8 ranks, a row of 37 tokens among none.
SIZES = {"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 2, "intermediate_size": 101, "vocab_size": 131}
TEXT = {"kind": "tokens", "sequence_length": 37}
LLAMA = {"kind": "llama", "preset": "llama-tiny", **SIZES, "attention_dropout": 0.1}
TOWER = {**BERT, **SIZES}
CONFIGS = {
    "llama": {"model": {**LLAMA, "num_key_value_heads": 2}, "data": TEXT},
    "llama 3 kv": {"model": {**LLAMA, "num_key_value_heads": 3, "tie_word_embeddings": True}, "data": TEXT},
    "qwen3": {"model": {"kind": "qwen3", "preset": "qwen3-tiny", **SIZES, "head_dim": 6, "num_key_value_heads": 2, "attention_dropout": 0.1},
              "data": TEXT},
    "mistral": {"model": {"kind": "mistral", "preset": "mistral-tiny", **SIZES, "num_key_value_heads": 2, "sliding_window": 9,
                          "attention_dropout": 0.1}, "data": TEXT},
    "gpt2": {"model": {"kind": "gpt2", "preset": "gpt2-tiny", **SIZES, "attn_pdrop": 0.1, "resid_pdrop": 0.1, "embd_pdrop": 0.1},
             "data": TEXT},
    "bert": {"model": {"kind": "bert", "preset": "bert-tiny", **TOWER}, "data": {"kind": "random", "sequence_length": 37}},
    "trimodal": {"model": {"kind": "trimodal", "preset": "trimodal-tiny", "primary": TOWER, "secondary": {**TOWER, "num_hidden_layers": 3},
                           "class_weights": [1.0, 3.0]}, "data": {"kind": "random", "sequence_length": 37, "secondary_length": 19}},
    "encoder_lm": {"model": {"kind": "encoder_lm", "preset": "encoder-lm-tiny", **SIZES, "dropout": 0.1}, "data": TEXT},
}
WAYS = ("ring", "all_to_all", "gather")
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zbh1", "zbv")


def rows():
    for model in CONFIGS:
        for way in WAYS:
            context = f"parallel.context={way}"
            for degree in (2, 3, 4, 8):
                yield Row(model, f"cp={degree}", context, quick=degree == (2, 3, 4)[WAYS.index(way)])
            yield from combined(model, way, context)
        yield Row(model, "cp=2,dp=2", steps=12)
        for canary in ("cp", "cp:layers.0") if model not in ("trimodal",) else ("cp", "cp:primary.layers.0"):
            yield Row(model, "cp=2", canary=canary, spreads=True, quick=canary == "cp" and model in ("llama", "trimodal"))
        yield Row(model, "cp=2,fsdp=2", canary="cp", spreads=True, quick=model == "gpt2")
    # The gradients of gathered keys and values.
    yield Row("llama", "cp=2", "parallel.context=gather", canary="cp:layers.1", spreads=True, quick=True)
    yield Row("llama", "cp=2,fsdp=2,tp=2", "parallel.zero=3", SEQUENCE, order="pp,dp,fsdp,cp,tp", quick=True)
    yield Row("llama", "cp=2,fsdp=2", order="pp,dp,cp,fsdp,tp")
    yield Row("llama", "cp=2,fsdp=2", "parallel.shard_over_context=false", order="pp,cp,dp,tp,fsdp", quick=True)


def combined(model, way, context):
    """The way with every other axis."""
    first = way == "ring"
    tp = 3 if model == "llama 3 kv" else 2
    yield Row(model, f"cp=2,tp={tp}", context, quick=model == "llama" and not first)
    yield Row(model, f"cp=2,tp={tp}", context, SEQUENCE, LOSS, REGATHER, quick=model in ("gpt2", "trimodal") and first)
    yield Row(model, "cp=2,dp=2", context, "parallel.microbatches=3")
    for zero in (0, 1, 2, 3):
        yield Row(model, "cp=2,fsdp=2", context, f"parallel.zero={zero}", quick=model == "qwen3" and first)
    yield Row(model, "cp=3,fsdp=2", context, "parallel.zero=3", "parallel.shard_over_context=false", quick=model == "bert" and first)
    yield Row(model, "cp=2,dp=2,fsdp=2", context, "parallel.microbatches=2", "parallel.accumulate=sharded", quick=model == "encoder_lm" and first)
    for recompute in ("selective", "full"):
        yield Row(model, "cp=2", context, f"parallel.recompute={recompute}", "parallel.microbatches=2", quick=model == "mistral")
    for schedule in SCHEDULES:
        yield Row(model, "pp=2,cp=2", context, f"parallel.schedule={schedule}", "parallel.microbatches=4", steps=2,
                  quick=model == "llama" and schedule == ("1f1b", "zbh1", "zbv")[WAYS.index(way)])
    yield Row(model, f"pp=2,cp=2,tp={tp}", context, SEQUENCE, "parallel.microbatches=4", steps=2, quick=model == "bert" and way == "all_to_all")
    yield Row(model, "cp=2", context, "parallel.microbatches=24", steps=2)  # one row at a time
    yield Row(model, "cp=3", context, checked=True, steps=2, quick=model == "mistral")
    yield Row(model, "cp=2", context, resume_at=2, quick=model == "encoder_lm" and first)
    for dtype, bound in (("float32", 1e-4), ("bfloat16", 1e-1)):
        yield Row(model, "cp=2", context, dtype=dtype, steps=1, bound=bound, quick=model == "llama" and first)


if __name__ == "__main__":
    main(__doc__, rows(), CONFIGS)
