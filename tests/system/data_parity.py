#!/usr/bin/env python3
"""Data parallelism against one rank: every mesh, policy and setting trains the same numbers.

  tests/system/data_parity.py [--all] [--only WORD] [--device cuda --backend gloo]

Each row is one `orthant parity`; rows marked `canary` leave a sum out and must fail. Without --all: one row of each kind
(what `make test` runs); with it the whole campaign, some minutes. Prints a Markdown table; exit code 1 when a row is wrong.
"""
from parity_rows import Row, main

CONFIGS = {
    "llama": {"model": {"kind": "llama", "preset": "llama-tiny"}, "data": {"kind": "tokens", "sequence_length": 16}},
    "llama tied": {"model": {"kind": "llama", "preset": "llama-tiny", "tie_word_embeddings": True},
                   "data": {"kind": "tokens", "sequence_length": 16}},
    "trimodal": {"model": {"kind": "trimodal", "preset": "trimodal-tiny"},
                 "data": {"kind": "random", "sequence_length": 16, "secondary_length": 8}},
    "bert": {"model": {"kind": "bert", "preset": "bert-tiny"}, "data": {"kind": "random", "sequence_length": 16}},
    "encoder_lm": {"model": {"kind": "encoder_lm", "preset": "encoder-lm-tiny"}, "data": {"kind": "tokens", "sequence_length": 16}},
    "qwen3": {"model": {"kind": "qwen3", "preset": "qwen3-tiny"}, "data": {"kind": "tokens", "sequence_length": 16}},
    "mistral": {"model": {"kind": "mistral", "preset": "mistral-tiny", "sliding_window": 5}, "data": {"kind": "tokens", "sequence_length": 16}},
}
FROZEN = {"llama": '["embed.*","layers.0.*"]', "llama tied": '["layers.0.*"]', "trimodal": '["primary.*"]', "bert": '["layers.0.*"]',
          "encoder_lm": '["layers.0.*"]', "qwen3": '["layers.0.*"]', "mistral": '["layers.0.*"]'}



def rows():
    for model in CONFIGS:
        quick = model in ("llama tied", "trimodal")
        for degree in (2, 3, 4):
            yield Row(model, f"dp={degree}", quick=quick and degree == 3)
        for degree in (2, 3, 4, 8):
            for zero in (1, 2, 3):
                yield Row(model, f"fsdp={degree}", f"parallel.zero={zero}", quick=degree == 3 and (quick or zero == 3))
        yield Row(model, "fsdp=2", "parallel.zero=0")
        for zero in (1, 2, 3):  # over the ranks of dp
            yield Row(model, "dp=2", f"parallel.zero={zero}", quick=quick and zero == 2)
            yield Row(model, "dp=2", f"parallel.zero={zero}", canary="fsdp", quick=quick and zero == 1)
        yield Row(model, "dp=3", "parallel.zero=3", "parallel.microbatches=2", "parallel.accumulate=sharded", quick=quick)
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


if __name__ == "__main__":
    main(__doc__, rows(), CONFIGS)
