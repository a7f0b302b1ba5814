#!/usr/bin/env python3
"""Pipelines against one rank: every model, cut and schedule trains the same bits, dropout and clipping on.

  tests/system/pipeline_parity.py [--all] [--only WORD] [--device cuda --backend gloo]

Each row is one `orthant parity`. Rows with pp alone must have every bit of one rank with the same microbatches; those beside
other axes, where sums are grouped otherwise, the float64 bound. Rows marked `canary` leave a sum out and must fail. Without
--all: one row of each kind (what `make test` runs); with it the whole campaign, some minutes. Prints a Markdown table; exit
code 1 when a row is wrong.
"""
from parity_rows import Row, main

SIZES = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 14, "intermediate_size": 48, "vocab_size": 67}
BERT = {**SIZES, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
TOWER = {**BERT, "num_hidden_layers": 5}
TEXT = {"kind": "tokens", "sequence_length": 11}
LLAMA = {"kind": "llama", "preset": "llama-tiny", **SIZES, "num_key_value_heads": 2, "attention_dropout": 0.1}
PAIRS = {"kind": "random", "sequence_length": 11, "secondary_length": 7}
CONFIGS = {
    "llama": {"model": LLAMA, "data": TEXT},
    "llama tied": {"model": {**LLAMA, "tie_word_embeddings": True, "attention_bias": True}, "data": TEXT},
    "gpt2": {"model": {"kind": "gpt2", "preset": "gpt2-tiny", **SIZES, "attn_pdrop": 0.1, "resid_pdrop": 0.1, "embd_pdrop": 0.1},
             "data": TEXT},
    "bert": {"model": {"kind": "bert", "preset": "bert-tiny", **BERT}, "data": {"kind": "random", "sequence_length": 11}},
    "trimodal": {"model": {"kind": "trimodal", "preset": "trimodal-tiny", "primary": {**TOWER, "num_hidden_layers": 6},
                           "secondary": TOWER, "class_weights": [1.0, 3.0]}, "data": PAIRS},
    "trimodal shared": {"model": {"kind": "trimodal", "preset": "trimodal-tiny", "primary": TOWER, "secondary": TOWER, "shared_towers": True},
                        "data": PAIRS},
    "encoder_lm": {"model": {"kind": "encoder_lm", "preset": "encoder-lm-tiny", **SIZES, "dropout": 0.1}, "data": TEXT},
}
# Models that are a Llama but for an option.
FAMILIES = {
    "qwen3": {"model": {"kind": "qwen3", "preset": "qwen3-tiny", **SIZES, "head_dim": 10, "num_key_value_heads": 2, "attention_dropout": 0.1},
              "data": TEXT},
    "mistral": {"model": {"kind": "mistral", "preset": "mistral-tiny", **SIZES, "num_key_value_heads": 2, "sliding_window": 4,
                          "attention_dropout": 0.1}, "data": TEXT},
}
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zbh1", "zbv")
TIED = {"llama tied": "embed.weight", "gpt2": "embed.wte.weight", "bert": "embed.word.weight", "trimodal shared": "primary.layers.2"}
# Two towers at the same time, their outputs meeting in the last stage.
BRANCHES = ('parallel.split=[["primary.embed","primary.layers.0","primary.layers.1","primary.layers.2","primary.layers.3","primary.layers.4",'
            '"primary.layers.5","primary.pooler"],["secondary.embed","secondary.layers.0","secondary.layers.1","secondary.layers.2",'
            '"secondary.layers.3","secondary.layers.4","secondary.pooler","tabular"],["fusion","loss"]]')


def schedule(name, microbatches, recompute="none"):
    return f"parallel.schedule={name}", f"parallel.microbatches={microbatches}", f"parallel.recompute={recompute}"


def bitwise_rows():
    counts = {2: 4, 3: 6, 4: 8, 8: 8}
    for model in {**CONFIGS, **FAMILIES}:
        for pp in (2, 3, 4, 8):
            for name in SCHEDULES:
                for recompute in ("none", "full"):
                    quick = (pp, recompute) == (4, "full") and name in ("zbv", "interleaved") or (pp, recompute) == (2, "none") and name == "zbh1"
                    yield Row(model, f"pp={pp}", *schedule(name, counts[pp], recompute), steps=5, bitwise=True, dtype="float32", quick=quick)
        for name in SCHEDULES:  # fewer microbatches than stages, and numbers that do not divide
            yield Row(model, "pp=4", *schedule(name, 1), steps=3, bitwise=True, dtype="float32", quick=model == "trimodal")
            yield Row(model, "pp=4", *schedule(name, 3), steps=3, bitwise=True, quick=model == "gpt2")
            yield Row(model, "pp=3", *schedule(name, 8, "selective"), steps=3, bitwise=True)
        if not model.startswith("trimodal"):  # head and loss as one unit, of chunks that do not divide its tokens
            for name in SCHEDULES:
                yield Row(model, "pp=2", *schedule(name, 4), "train.join_head_and_loss=on", "train.loss_chunk_rows=7", steps=3, bitwise=True,
                          dtype="float32", quick=model == "llama tied" and name in ("gpipe", "zbh1") or model == "bert" and name == "zbv")
        yield Row(model, "pp=2", *schedule("interleaved", 4), "parallel.virtual_stages=4", steps=3, bitwise=True)
        yield Row(model, "pp=3", *schedule("1f1b", 4), steps=4, resume_at=2, bitwise=True, quick=model == "llama tied")
    for name in ("gpipe", "1f1b", "zbh1"):
        yield Row("trimodal", "pp=2", *schedule(name, 4), BRANCHES, "parallel.placement=[0,1,1]", steps=5, bitwise=True, dtype="float32",
                  quick=True)
        yield Row("trimodal", "pp=3", *schedule(name, 6), BRANCHES, "parallel.placement=[0,1,2]", steps=5, bitwise=True, dtype="float32")
        yield Row("trimodal", "pp=3", *schedule(name, 6), BRANCHES, "parallel.placement=[2,0,1]", steps=5, bitwise=True, dtype="float32")
    yield Row("trimodal", "pp=2", *schedule("1f1b", 4), "parallel.split=towers", bitwise=True, dtype="float32", quick=True)
    for model in ("llama", "encoder_lm"):  # a head that makes its logits again when the weights' gradients come later
        for name in ("zbh1", "zbv"):
            yield Row(model, "pp=2,fsdp=2", *schedule(name, 2), "parallel.zero=3", "train.join_head_and_loss=on", "train.loss_chunk_rows=3",
                      quick=name == "zbh1")
    for name in ("zbh1", "zbv"):  # weights are not gathered when the gradients of the norms of heads are made
        yield Row("qwen3", "pp=2,fsdp=2", *schedule(name, 2), "parallel.zero=3", quick=name == "zbh1")
    for model, freeze in (("llama", '["embed.*","layers.0.*"]'), ("trimodal", '["primary.*"]'), ("llama tied", '["embed.*"]')):
        for name in SCHEDULES:
            yield Row(model, "pp=4", *schedule(name, 4), f"model.freeze={freeze}", bitwise=True, quick=name == "zbv")


def rows():
    yield from bitwise_rows()
    for model in {**CONFIGS, **FAMILIES}:
        for name in SCHEDULES:
            yield Row(model, "pp=2,dp=2", *schedule(name, 3), quick=model == "llama tied" and name == "1f1b")
            yield Row(model, "pp=2,tp=2", *schedule(name, 3), "parallel.sequence_parallel=true", "parallel.loss_parallel=true",
                      quick=model in ("trimodal", "gpt2") and name == "zbh1")
            for zero in (0, 1, 2, 3):
                yield Row(model, "pp=2,fsdp=2", *schedule(name, 3), f"parallel.zero={zero}",
                          quick=model in ("bert", "trimodal shared") and name == "1f1b" and zero in (1, 3))
        yield Row(model, "pp=2,fsdp=2", *schedule("1f1b", 4), "parallel.accumulate=sharded")
        yield Row(model, "pp=2,dp=2,tp=2", *schedule("zbv", 4), quick=model == "llama")
        yield Row(model, "pp=2,fsdp=2,tp=2", *schedule("interleaved", 4), "parallel.sequence_parallel=true")
    for model, name in TIED.items():
        for mesh in ("pp=2", "pp=4", "pp=2,dp=2"):
            yield Row(model, mesh, *schedule("1f1b", 4), canary=f"pp:{name}", quick=mesh == "pp=2" and model == "gpt2")


if __name__ == "__main__":
    main(__doc__, list(rows()), {**CONFIGS, **FAMILIES})
