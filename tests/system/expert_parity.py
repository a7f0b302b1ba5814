#!/usr/bin/env python3
"""Experts over ranks against one rank: every degree of ep with every other axis trains the same numbers.

  tests/system/expert_parity.py [--all] [--only WORD] [--device cuda --backend gloo]

Each row is one `orthant parity`; rows marked `canary` leave a sum out and must fail. Without --all: one row of each kind
(what `make test` runs); with it the whole campaign, some minutes. Prints a Markdown table; exit code 1 when a row is wrong.
"""
from parity_rows import Row, main
from tensor_parity import JOINED, LOSS, REGATHER, SEQUENCE

# 10 experts divide among no ranks but 2; two of them take a token, so that with 3 tokens a row some have none.
SIZES = {"hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2, "num_hidden_layers": 2, "intermediate_size": 37,
         "vocab_size": 131, "attention_dropout": 0.1}
TEXT = {"kind": "tokens", "sequence_length": 15}
CONFIGS = {
    "mixtral": {"model": {"kind": "mixtral", "preset": "mixtral-tiny", **SIZES, "num_local_experts": 10, "num_experts_per_tok": 2,
                          "sliding_window": 6}, "data": TEXT},
    "qwen3_moe": {"model": {"kind": "qwen3_moe", "preset": "qwen3-moe-tiny", **SIZES, "head_dim": 8, "num_experts": 9,
                            "num_experts_per_tok": 3, "moe_intermediate_size": 21, "norm_topk_prob": True, "num_hidden_layers": 3,
                            "mlp_only_layers": [1]}, "data": TEXT},
    "qwen2_moe": {"model": {"kind": "qwen2_moe", "preset": "qwen2-moe-tiny", **SIZES, "num_experts": 8, "num_experts_per_tok": 2,
                            "moe_intermediate_size": 21, "shared_expert_intermediate_size": 26, "num_hidden_layers": 2}, "data": TEXT},
    # Most experts have no token: a microbatch has 3.
    "starved": {"model": {"kind": "mixtral", "preset": "mixtral-tiny", **SIZES, "num_local_experts": 16, "num_experts_per_tok": 1},
                "data": {"kind": "tokens", "sequence_length": 3}},
    # The text is one word again and again: all tokens are the same, and one expert of each layer takes them all.
    "hogged": {"model": {"kind": "mixtral", "preset": "mixtral-tiny", **SIZES, "attention_dropout": 0.0, "num_local_experts": 8,
                         "num_experts_per_tok": 1},
               "data": {"kind": "text", "path": "one_word.bin", "token_type": "uint16", "sequence_length": 15, "eval_fraction": 0.0}},
    # Experts with room for some of a row's tokens, and biases that training moves.
    "roomy": {"model": {"kind": "qwen2_moe", "preset": "qwen2-moe-tiny", **SIZES, "num_experts": 9, "num_experts_per_tok": 3,
                        "moe_intermediate_size": 21, "shared_expert_intermediate_size": 26, "num_hidden_layers": 2,
                        "capacity_factor": 0.8, "router_bias_update_rate": 0.01}, "data": TEXT},
}
FILES = {"hogged": {"one_word.bin": "\5\0" * 1600}}
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zbh1", "zbv")
SHARED, WHOLE = "parallel.expert_tp=true", "parallel.expert_tp=false"
MODELS = ("mixtral", "qwen3_moe", "qwen2_moe")


def rows():
    for model in CONFIGS:
        files = FILES.get(model)
        for degree in (2, 4, 8):
            yield Row(model, f"dp={degree},ep={degree}", quick=degree == 4, files=files)
        for zero in (0, 1, 2, 3):
            yield Row(model, "fsdp=2,ep=2", f"parallel.zero={zero}", quick=model == "qwen2_moe" and zero == 3, files=files)
            yield Row(model, "fsdp=4,ep=2", f"parallel.zero={zero}", quick=model == "mixtral" and zero == 3, files=files)
        yield Row(model, "dp=2,fsdp=2,ep=4", "parallel.zero=3", "parallel.microbatches=3", steps=2, files=files)
    for model in MODELS:
        yield from combined(model)
    for model in ("starved", "hogged"):
        files = FILES.get(model)
        yield Row(model, "dp=2,ep=2", "parallel.microbatches=12", steps=2, quick=model == "starved", files=files)
        yield Row(model, "dp=2,tp=2,ep=4", SEQUENCE, steps=2, files=files)
        yield Row(model, "pp=2,dp=2,ep=2", "parallel.schedule=zbh1", "parallel.microbatches=4", steps=2, files=files)
    yield from with_room()
    # More ranks of ep than a rank has tokens, and groups that cross replicas.
    yield Row("mixtral", "dp=4,fsdp=2,ep=8", "parallel.zero=3", steps=2, quick=True)
    yield Row("mixtral", "fsdp=2,dp=2,ep=2", "parallel.zero=3", order="pp,fsdp,dp,cp,tp", steps=2)


def combined(model):
    """With every other axis and feature."""
    first = model == "mixtral"
    for mesh in ("dp=2,fsdp=2,ep=2", "dp=2,fsdp=4,ep=2", "dp=2,fsdp=2,ep=4", "dp=4,fsdp=2,ep=4"):
        for zero in (1, 3):
            yield Row(model, mesh, f"parallel.zero={zero}", quick=model == "qwen3_moe" and mesh == "dp=2,fsdp=2,ep=2" and zero == 3)
    # Experts cut over tp like a dense MLP, without ep and with it, and whole ones whose tokens tp ranks share out.
    for settings in ((), (SEQUENCE,), (SEQUENCE, LOSS), (SEQUENCE, LOSS, REGATHER)):
        yield Row(model, "tp=2", *settings, quick=first and len(settings) == 1)
        yield Row(model, "dp=2,tp=2,ep=2", SHARED, *settings, quick=model == "qwen2_moe" and len(settings) == 1)
        if settings:
            yield Row(model, "tp=2", WHOLE, *settings)
            yield Row(model, "dp=2,tp=2,ep=2", WHOLE, *settings)
            yield Row(model, "dp=2,tp=2,ep=4", WHOLE, *settings, quick=model == "qwen3_moe" and len(settings) == 2)
    yield Row(model, "dp=2,tp=2,ep=2", SHARED, quick=first)
    for zero in (0, 1, 2, 3):
        yield Row(model, "fsdp=2,tp=2,ep=4", f"parallel.zero={zero}", SEQUENCE)
        yield Row(model, "fsdp=2,tp=2,ep=2", f"parallel.zero={zero}", SHARED)
    for way in ("ring", "all_to_all", "gather"):
        context = f"parallel.context={way}"
        yield Row(model, "cp=2,ep=2", context, quick=model == "qwen3_moe" and way == "ring")
        yield Row(model, "cp=2,fsdp=2,ep=4", context, "parallel.zero=3")
        yield Row(model, "cp=2,tp=2,ep=4", context, SEQUENCE)
    yield Row(model, "cp=4,ep=4")
    yield Row(model, "cp=2,fsdp=2,ep=2", "parallel.zero=3", "parallel.shard_over_context=false")
    for schedule in SCHEDULES:
        pipeline = (f"parallel.schedule={schedule}", "parallel.microbatches=4")
        yield Row(model, "pp=2,dp=2,ep=2", *pipeline, steps=2, quick=first and schedule in ("1f1b", "zbv"))
        yield Row(model, "pp=2,fsdp=2,ep=2", *pipeline, "parallel.zero=3", steps=2)
    yield Row(model, "pp=2,dp=2,tp=2,ep=4", SEQUENCE, "parallel.microbatches=4", steps=2, quick=model == "qwen2_moe")
    yield Row(model, "pp=2,cp=2,tp=2,ep=4", SEQUENCE, "parallel.microbatches=4", steps=2)
    for recompute in ("selective", "full"):
        yield Row(model, "dp=2,ep=2", f"parallel.recompute={recompute}", "parallel.microbatches=2", quick=first and recompute == "full")
        yield Row(model, "dp=2,tp=2,ep=4", SEQUENCE, f"parallel.recompute={recompute}")
        yield Row(model, "pp=2,dp=2,ep=2", "parallel.schedule=zbh1", f"parallel.recompute={recompute}", "parallel.microbatches=4", steps=2)
    yield Row(model, "fsdp=2,ep=2", "parallel.microbatches=3", "parallel.accumulate=sharded", quick=first)
    yield Row(model, "fsdp=4,ep=2", "parallel.microbatches=3", "parallel.accumulate=sharded")
    yield Row(model, "dp=2,ep=2", "parallel.split=3", "parallel.microbatches=4", steps=2)
    yield Row(model, "dp=2,ep=2", "parallel.microbatches=12", steps=2)  # one row at a time
    yield Row(model, "dp=2,tp=2,ep=2", *JOINED, SEQUENCE, LOSS)
    yield Row(model, "fsdp=2,ep=2", "parallel.offload=params", "parallel.zero=3")
    yield Row(model, "dp=2,ep=2", against="dp=2")
    yield Row(model, "dp=4,ep=2", against="fsdp=4,ep=4")
    yield Row(model, "dp=2,ep=2", resume_at=2, quick=model == "qwen2_moe")
    yield Row(model, "dp=2,ep=2", checked=True, steps=2, quick=first)
    yield Row(model, "dp=2,ep=2", 'model.freeze=["layers.0.experts.*"]', quick=model == "qwen3_moe")
    yield Row(model, "fsdp=4,ep=2", 'model.freeze=["*.router.*","layers.0.experts.*.w2.*"]', "parallel.zero=3")
    yield Row(model, "dp=2,ep=2", "data.samples=50", steps=5)
    for dtype, bound in (("float32", 1e-4), ("bfloat16", 1e-1)):
        yield Row(model, "dp=2,ep=2", dtype=dtype, steps=1, bound=bound, quick=model == "qwen2_moe")
    yield from canaries(model, first)


def with_room():
    """What is dropped and how biases move do not depend on how rows and tokens are dealt out."""
    for mesh in ("dp=2,tp=2,ep=4", "dp=2,tp=2,ep=2", "cp=2,tp=2,ep=4", "pp=2,dp=2,tp=2,ep=4"):
        yield Row("roomy", mesh, SEQUENCE, "parallel.microbatches=4", steps=4, quick=mesh.startswith("cp"))
    yield Row("roomy", "dp=2,tp=2,ep=2", SHARED, steps=4)
    for way in ("ring", "all_to_all", "gather"):
        yield Row("roomy", "cp=2,dp=2,ep=2", f"parallel.context={way}", steps=4)
    yield Row("roomy", "tp=2", SEQUENCE, WHOLE, steps=4)
    yield Row("roomy", "dp=2,ep=2", "parallel.recompute=full", "parallel.microbatches=12", steps=4)
    yield Row("roomy", "pp=2,dp=2,ep=2", "parallel.schedule=zbv", "parallel.microbatches=4", steps=4)
    yield Row("roomy", "dp=2,ep=2", "parallel.offload=optimizer", steps=4)
    yield Row("roomy", "fsdp=4,ep=2", "parallel.zero=3", resume_at=2, steps=4, quick=True)
    yield Row("roomy", "tp=2", SEQUENCE, WHOLE, canary="tp:layers.0", steps=2, spreads=True)
    yield Row("roomy", "cp=2,dp=2,ep=2", canary="cp:layers.0", steps=2, spreads=True, quick=True)


def canaries(model, first):
    yield Row(model, "dp=4,ep=2", canary="dp", steps=2, spreads=True, quick=first)
    yield Row(model, "dp=4,ep=2", canary="dp:layers.0.experts.1.w2.weight", steps=2, quick=model == "qwen2_moe")  # of experts alone
    yield Row(model, "fsdp=4,ep=2", "parallel.zero=3", canary="fsdp:layers.0.experts.1.w2.weight", steps=2)
    yield Row(model, "dp=4,ep=2", canary="dp:layers.0", steps=2, spreads=True)
    yield Row(model, "fsdp=4,ep=2", canary="fsdp", steps=2, spreads=True)
    yield Row(model, "dp=2,tp=2,ep=2", SHARED, canary="tp:layers.0.experts.3.w2.weight", steps=2, spreads=True, quick=first)
    yield Row(model, "dp=2,tp=2,ep=4", SEQUENCE, canary="tp:layers.0.router.weight", steps=2, spreads=True, quick=first)


if __name__ == "__main__":
    main(__doc__, rows(), CONFIGS)
