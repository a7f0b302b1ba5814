"""Stages of the card campaign that generate: tokens a second beside transformers, and the tokens themselves beside the CPU's."""
import json
import random
import sys

from card_stage import stage

TINY = {"kind": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
        "vocab_size": 97, "max_position_embeddings": 512}
SMALL = {**TINY, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "vocab_size": 1024, "rms_norm_eps": 1e-5, "rope_theta": 10000.0}
LIMITS = {1: 1.1, 32: 1.6}  # ms a token
PREFILL_MS = 15  # of 32 prompts
THEIRS_MS = 45  # a token of transformers, of another run


def random_llama(c, name, model=None):
    """A folder with drawn weights."""
    folder, words = c.path(name), []
    if model:
        with open(c.path(f"{name}.json"), "w") as f:
            json.dump({"model": model}, f)
        words = ["--config", c.path(f"{name}.json")]
    done = c.run_program(sys.executable, c.config("bench", "random_llama.py"), folder, *words)
    if done.returncode != 0:
        raise RuntimeError(f"bench/random_llama.py: {done.stderr[-1000:]}")
    return folder


@stage("generate", "34", "a token of Llama 1.5B at batch 1, 8 and 32, and 32 prompts of 128 tokens, beside transformers", 100, 300, timed=True)
def generate(c):
    folder = random_llama(c, "llama", {**TINY, "rms_norm_eps": 1e-5, "rope_theta": 10000.0} if c.rehearsed else None)
    dtype, new = ("float32", 4) if c.rehearsed else ("bfloat16", 128)
    document = c.json("bench", "generate", "--model", folder, "--device", c.device, "--dtype", dtype, "--batch", "1,8,32", "--new", new, "--rounds", 3)
    rows = {row["batch"]: row for row in document["rows"]}
    peers = c.peer("generate.py", folder, "--device", "cuda", "--dtype", "bfloat16", "--new", 64,
                   rehearsed=[{"batch": batch, "prefill_ms": 30, "decode_ms_per_token": THEIRS_MS} for batch in rows])
    peers = {row["batch"]: row for row in peers}
    for batch, row in rows.items():
        found, theirs = row["decode_ms_per_token"], peers.get(batch, {}).get("decode_ms_per_token")
        claim = f"Llama 1.5B bfloat16, batch {batch}, a token of each text" + (f" (transformers {theirs:.1f} ms)" if theirs else "")
        if batch in LIMITS:
            c.at_most(34, claim, LIMITS[batch], found, "ms")
        else:
            c.tell(34, claim, "", f"{found:.3f} ms")
        c.at_least(34, f"batch {batch}, beside transformers{'' if theirs else ' of another run'}", 3, (theirs or THEIRS_MS) / found, "times")
    c.at_most(34, "32 prompts of 128 tokens until all have their first token", PREFILL_MS, rows[32]["prefill_ms"], "ms")
    c.tell(34, "prompts of 128 tokens", "", ", ".join(f"batch {batch}: {row['prefill_ms']:.2f} ms" for batch, row in rows.items()))
    c.tell(34, "steps played back as CUDA graphs", "more than none", document["graphs"], c.rehearsed or document["graphs"]["played"] > 0)


def prompts_file(c, vocabulary):
    rng = random.Random(7)
    with open(c.path("prompts.jsonl"), "w") as f:
        for _ in range(4 if c.rehearsed else 24):
            f.write(json.dumps({"token_ids": [rng.randrange(vocabulary) for _ in range(rng.choice((1, 2, 17, 60, 300)))]}) + "\n")
    return c.path("prompts.jsonl")


def answers(c, folder, device, dtype, *words):
    document = c.json("generate", "--model", folder, "--prompts", c.path("prompts.jsonl"), "--device", device, "--dtype", dtype, "--max-tokens", 24, *words)
    return [output["token_ids"] for output in document["outputs"]]


def trained(c, config):
    """The checkpoint of two steps on the CPU."""
    c.orthant("train", "--config", c.config("configs", config), "--steps", 2, "--output-dir", c.path(config), "--device", "cpu",
              *c.settings(["train.steps=2", "checkpoint.save_every=2", "train.global_batch_size=4"]))
    return c.path(config, "checkpoints", "step-2")


@stage("generate numbers", "34", "tokens of a card are the CPU's in float64, and one request's do not depend on others", 60, 240)
def generate_numbers(c):
    c.test_program(34, "kernels of a generation and recorded steps, 60 shapes each", "test_generate_device", "*", "DeviceChoice.*",
                   shapes=None if c.rehearsed else 60)
    c.test_program(34, "products of few rows and attention over a cache against plain float64 formulas, 60 shapes each, twice for equal bits",
                   "test_operations_device", "DeviceGeneration*", "DeviceGeneration.RefusesRows*", shapes=None if c.rehearsed else 60)
    for name, folder, vocabulary in (("llama", random_llama(c, "small", SMALL), SMALL["vocab_size"]), ("mixtral", trained(c, "mixtral_tiny.json"), 64)):
        prompts_file(c, vocabulary)
        greedy = ("--temperature", 0)
        exact = answers(c, folder, "cpu", "float64", *greedy)
        c.tell(34, f"{name}: greedy tokens in float64 beside the CPU's", "equal", f"{len(exact)} answers", answers(c, folder, c.device, "float64", *greedy) == exact)
        near = answers(c, folder, c.device, "bfloat16", *greedy)
        same = sum(a == b for one, other in zip(near, exact) for a, b in zip(one, other)) / sum(map(len, exact))
        c.tell(34, f"{name}: greedy tokens in bfloat16 that are float64's, place by place", "", f"{same:.3f}")
        alone = answers(c, folder, c.device, "bfloat16", *greedy, "--max-batch", 1)
        same = sum(one == other for one, other in zip(alone, near)) / len(near)
        c.tell(34, f"{name}: answers in bfloat16 that are the same one by one and side by side", "", f"{same:.3f}")
        drawn = ("--temperature", 0.8, "--top-k", 20, "--seed", 3)
        c.tell(34, f"{name}: sampled tokens in float64 beside the CPU's", "equal", f"{len(exact)} answers",
               answers(c, folder, "cpu", "float64", *drawn) == answers(c, folder, c.device, "float64", *drawn))
