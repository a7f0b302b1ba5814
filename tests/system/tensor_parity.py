#!/usr/bin/env python3
"""Tensor, sequence and loss parallelism against one rank: every degree and setting trains the same numbers, dropout on.

  tests/system/tensor_parity.py [--all] [--only WORD] [--device cuda --backend gloo]

Each row is one `orthant parity`; rows marked `canary` leave a sum out and must fail. Without --all: one row of each kind
(what `make test` runs); with it the whole campaign, some minutes. Prints a Markdown table; exit code 1 when a row is wrong.
"""
from parity_rows import Row, main

# 24 heads divide among 2, 3, 4 and 8 ranks; vocabulary, MLP and sequence do not.
SIZES = {"hidden_size": 96, "num_attention_heads": 24, "num_hidden_layers": 2, "intermediate_size": 101, "vocab_size": 131}
BERT = {**SIZES, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
TEXT = {"kind": "tokens", "sequence_length": 15}
LLAMA = {"kind": "llama", "preset": "llama-tiny", **SIZES, "attention_dropout": 0.1}
CONFIGS = {
    "llama": {"model": {**LLAMA, "num_key_value_heads": 2}, "data": TEXT},  # copies of key/value heads from 4 ranks on
    "llama 3 kv": {"model": {**LLAMA, "num_key_value_heads": 3, "attention_bias": True, "mlp_bias": True}, "data": TEXT},
    "llama tied": {"model": {**LLAMA, "num_key_value_heads": 24, "tie_word_embeddings": True, "attention_bias": True}, "data": TEXT},
    "qwen3": {"model": {"kind": "qwen3", "preset": "qwen3-tiny", **SIZES, "head_dim": 6, "num_key_value_heads": 2, "attention_dropout": 0.1},
              "data": TEXT},
    "mistral": {"model": {"kind": "mistral", "preset": "mistral-tiny", **SIZES, "num_key_value_heads": 2, "sliding_window": 4,
                          "attention_dropout": 0.1}, "data": TEXT},
    "gpt2": {"model": {"kind": "gpt2", "preset": "gpt2-tiny", **SIZES, "attn_pdrop": 0.1, "resid_pdrop": 0.1, "embd_pdrop": 0.1},
             "data": TEXT},
    "bert": {"model": {"kind": "bert", "preset": "bert-tiny", **BERT}, "data": {"kind": "random", "sequence_length": 15}},
    "trimodal": {"model": {"kind": "trimodal", "preset": "trimodal-tiny", "primary": BERT,
                           "secondary": {**BERT, "num_hidden_layers": 3}, "class_weights": [1.0, 3.0]},
                 "data": {"kind": "random", "sequence_length": 15, "secondary_length": 7}},
    "trimodal shared": {"model": {"kind": "trimodal", "preset": "trimodal-tiny", "primary": BERT, "secondary": BERT, "shared_towers": True},
                        "data": {"kind": "random", "sequence_length": 15, "secondary_length": 7}},
    "encoder_lm": {"model": {"kind": "encoder_lm", "preset": "encoder-lm-tiny", **SIZES, "dropout": 0.1}, "data": TEXT},
}
SEQUENCE, LOSS, REGATHER = "parallel.sequence_parallel=true", "parallel.loss_parallel=true", "parallel.regather=true"
JOINED = "train.join_head_and_loss=on", "train.loss_chunk_rows=7"  # the other side has head and loss apart
SETTINGS = ((), (SEQUENCE,), (LOSS,), (SEQUENCE, LOSS), (SEQUENCE, LOSS, REGATHER))
# Every kind of layer: a column product, a row product, a table, a head, a loss; under SEQUENCE a norm and a row bias.
CANARIES = {
    "llama": ("layers.1.attention.wq.weight", "layers.0.attention.wo.weight", "layers.1.mlp.w1.weight", "layers.0.mlp.w2.weight",
              "embed.weight", "head.weight", "loss", "layers.1"),
    "gpt2": ("layers.1.attn.c_attn.weight", "layers.0.attn.c_proj.weight", "layers.1.mlp.c_fc.weight", "layers.0.mlp.c_proj.weight",
             "embed.wte.weight", "loss"),
    "bert": ("layers.1.attention.query.weight", "layers.0.attention.output.weight", "layers.1.mlp.up.weight",
             "layers.0.mlp.down.weight", "embed.word.weight", "loss"),
    "encoder_lm": ("layers.1.attention.key.weight", "layers.0.mlp.down.weight", "embed.weight", "head.weight", "loss"),
    "trimodal": ("primary.layers.1.attention.query.weight", "secondary.layers.0.mlp.down.weight", "primary.embed.word.weight"),
}
SEQUENCE_CANARIES = {
    "llama": ("layers.0.norm1.weight", "head.norm.weight"),
    "llama 3 kv": ("layers.0.attention.wo.bias", "layers.1.mlp.w2.bias"),
    "gpt2": ("layers.0.ln_2.weight", "layers.1.attn.c_proj.bias", "embed.wpe.weight", "head.ln_f.bias"),
    "bert": ("layers.0.attention.norm.weight", "layers.1.mlp.down.bias", "embed.position.weight", "embed.norm.bias", "head.dense.weight"),
    "trimodal": ("primary.layers.0.attention.norm.bias", "secondary.embed.token_type.weight", "primary.pooler"),
    "encoder_lm": ("layers.1.mlp.norm.weight",),
}

FROZEN = {"llama": '["embed.*","layers.0.*"]', "trimodal": '["primary.*"]', "trimodal shared": '["primary.embed.*"]'}


def degrees(model):
    return {"llama": (2, 4, 8), "qwen3": (2, 4, 8), "mistral": (2, 4, 8), "llama 3 kv": (3, 6)}.get(model, (2, 3, 4, 8))


def rows():
    for model in CONFIGS:
        first = degrees(model)[0]
        for degree in degrees(model):
            for settings in SETTINGS:
                if LOSS in settings and model.startswith("trimodal") and settings == (LOSS,):
                    continue  # its loss is over two classes, which nothing cuts
                quick = (degree == 3 and SEQUENCE in settings and LOSS in settings) or (degree == first and settings in ((), (SEQUENCE,)))
                quick = quick or (model, degree, settings) == ("qwen3", 4, ())  # copies of heads whose norms are summed over all ranks
                yield Row(model, f"tp={degree}", *settings, quick=quick)
        for settings in ((), (SEQUENCE, LOSS)):
            yield Row(model, f"tp={first},dp=2", *settings, quick=model == "llama" and bool(settings))
            for zero in (0, 1, 2, 3):
                yield Row(model, f"tp={first},fsdp=2", f"parallel.zero={zero}", *settings,
                          quick=model in ("llama tied", "trimodal") and bool(settings))
            yield Row(model, f"tp={first},dp=2,fsdp=2", *settings, quick=model == "gpt2" and bool(settings))
            yield Row(model, f"tp={first}", "parallel.recompute=full", "parallel.microbatches=2", *settings, quick=model == "bert")
            yield Row(model, f"tp={first}", "parallel.recompute=selective", "parallel.microbatches=3", *settings)
            yield Row(model, f"tp={first},fsdp=2", "parallel.microbatches=3", "parallel.accumulate=sharded", *settings,
                      quick=model == "encoder_lm" and bool(settings))
            yield Row(model, f"tp={first}", *settings, "parallel.split=3", "parallel.microbatches=4", steps=2)
        if not model.startswith("trimodal"):
            for settings in SETTINGS:
                yield Row(model, f"tp={first}", *JOINED, *settings, quick=model in ("llama", "bert") and settings in ((LOSS,), (SEQUENCE, LOSS, REGATHER)))
            yield Row(model, f"tp={first},fsdp=2", *JOINED, "parallel.zero=3", "parallel.microbatches=3", "parallel.accumulate=sharded",
                      quick=model == "llama tied")
            for name in ("loss", "head"):
                yield Row(model, f"tp={first}", *JOINED, canary=f"tp:{name}", spreads=True, quick=model == "llama")
        yield Row(model, f"tp={first},dp=2", SEQUENCE, steps=20, quick=model == "trimodal shared")
        # Sums of rounded parts are not one rank's sums, and AdamW makes much of a small gradient's sign.
        for dtype, bound in (("float32", 1e-4), ("bfloat16", 1e-1)):
            yield Row(model, f"tp={first}", SEQUENCE, LOSS, dtype=dtype, steps=1, bound=bound, quick=model == "llama 3 kv")
        yield Row(model, f"tp={first}", "parallel.microbatches=24", SEQUENCE, steps=2)  # one row at a time
        yield Row(model, f"tp={first},fsdp=2", "parallel.offload=params", SEQUENCE)
        yield Row(model, f"tp={first},dp=2", "parallel.comm_hook=bf16", SEQUENCE, LOSS, against=f"tp={first},dp=2")
        yield Row(model, f"tp={first}", "data.samples=50", SEQUENCE, LOSS, steps=5, quick=model == "bert")
        yield Row(model, f"tp={first}", SEQUENCE, LOSS, against="dp=2")
        yield Row(model, f"tp={first}", "model.freeze=" + FROZEN.get(model, '["layers.0.*"]'), SEQUENCE, REGATHER, quick=model == "llama tied")
        yield Row(model, f"tp={first}", SEQUENCE, LOSS, resume_at=2, quick=model == "llama 3 kv")
        yield Row(model, f"tp={first}", canary="tp", quick=model == "llama tied")
    for model, names in CANARIES.items():
        for name in names:
            for settings in ((LOSS,), (SEQUENCE, LOSS)) if name == "loss" else ((), (SEQUENCE, LOSS)):
                yield Row(model, "tp=2", *settings, canary=f"tp:{name}", steps=2, spreads=True,
                          quick=model == "llama" and len(settings) < 2)
    yield Row("llama", "tp=4", canary="tp:layers.1.attention.wk.weight", steps=2, spreads=True, quick=True)  # copies
    yield Row("llama", "tp=8", SEQUENCE, canary="tp:layers.0.attention.wv.weight", steps=2, spreads=True)
    for model, names in SEQUENCE_CANARIES.items():
        for name in names:
            yield Row(model, "tp=3" if model == "llama 3 kv" else "tp=2", SEQUENCE, canary=f"tp:{name}", steps=2,
                      quick=model in ("llama", "gpt2"))
    # Each rank sees its own heads, whether tokens are cut or not; from 4 ranks on copies of heads of keys.
    for name in ("q_norm", "k_norm"):
        for mesh, settings in (("tp=2", ()), ("tp=2", (SEQUENCE,)), ("tp=4", ()), ("tp=4", (SEQUENCE, LOSS))):
            yield Row("qwen3", mesh, *settings, canary=f"tp:layers.1.attention.{name}.weight", steps=2, quick=mesh == "tp=2" or not settings)
    yield Row("qwen3", "tp=2", 'parallel.plan={"attention":"replicate"}', quick=True)
    # More ranks than a microbatch has tokens.
    yield Row("llama", "tp=8", "data.sequence_length=3", "parallel.microbatches=12", SEQUENCE, LOSS, steps=2, quick=True)
    yield Row("llama", "tp=2", 'parallel.plan={"mlp":"replicate"}', quick=True)
    yield Row("llama", "tp=2", 'parallel.plan={"mlp":"replicate","embed":"replicate"}', SEQUENCE, LOSS, quick=True)
    yield Row("gpt2", "tp=3", 'parallel.plan={"attn":"replicate"}')
    # Seed 002's plan: the tied table by both of its names.
    seed_002 = '"attn.c_attn":"ColwiseParallel","mlp.c_fc":"ColwiseParallel","mlp.c_proj":"RowwiseParallel"'
    for table in ('"wte":"ColwiseParallel","lm_head":"RowwiseParallel"', '"lm_head":"ColwiseParallel"'):
        yield Row("gpt2", "tp=2", f"parallel.plan={{{seed_002},{table}}}", quick=True)
    yield Row("bert", "tp=2", 'parallel.plan={"layers.0.mlp":"replicate"}', SEQUENCE)


if __name__ == "__main__":
    main(__doc__, rows(), CONFIGS)
