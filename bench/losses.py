#!/usr/bin/env python3
"""The same weights, the same batches, in PyTorch and here: the losses of some training steps side by side.

  .venv/bin/python bench/losses.py llama|trimodal [--steps 20] [--peers DIR] [--config FILE]

Exports our initial weights and batches, loads both into PyTorch (the decoder of llama_model.py in --peers or the variable
PEERS, else transformers' Llama; transformers' BertModel for the towers), trains both and prints one JSON document with the
largest relative difference of the loss.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from types import SimpleNamespace

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ORTHANT = os.environ.get("ORTHANT", os.path.join(ROOT, "build", "bin", "orthant"))


def orthant(*words):
    finished = subprocess.run([ORTHANT, *map(str, words)], capture_output=True, text=True)
    if finished.returncode != 0:
        sys.exit(f"orthant {' '.join(map(str, words))}: exit code {finished.returncode}\n{finished.stderr}")
    return finished.stdout


def our_side(config, steps, folder):
    """Our losses, initial weights and batches."""
    from safetensors.torch import load_file
    run = os.path.join(folder, "run")
    orthant("train", "--config", config, "--steps", 0, "--output_dir", run)
    weights = load_file(os.path.join(run, "checkpoints", "step-0", "rank-0.safetensors"))
    orthant("train", "--config", config, "--steps", steps, "--output_dir", run, "--resume", "auto")
    with open(os.path.join(run, "metrics.jsonl")) as f:
        losses = [json.loads(line)["loss"] for line in f]
    batches = os.path.join(folder, "batches.safetensors")
    orthant("data", "export", "--config", config, "--steps", steps, "--out", batches)
    return losses, weights, load_file(batches)


def peer_llama(c, weights, peers):
    """llama_model.Llama with our weights; its names for ours."""
    sys.path.insert(0, peers)
    import llama_model
    model = llama_model.Llama(SimpleNamespace(hidden=c["hidden_size"], heads=c["num_attention_heads"], kv_heads=c["num_key_value_heads"],
                                              ffn=c["intermediate_size"], vocab=c["vocab_size"], layers=c["num_hidden_layers"],
                                              seq=c["max_position_embeddings"]))
    names = {"embed.weight": "embed.weight", "norm.weight": "head.norm.weight", "head.weight": "head.weight"}
    for i in range(c["num_hidden_layers"]):
        for part in ("norm1", "norm2", "mlp.w1", "mlp.w2", "mlp.w3"):
            names[f"layers.{i}.{part}.weight"] = f"layers.{i}.{part}.weight"
        for part in ("wq", "wk", "wv", "wo"):
            names[f"layers.{i}.attn.{part}.weight"] = f"layers.{i}.attention.{part}.weight"
    model.load_state_dict({theirs: weights[ours] for theirs, ours in names.items()})
    return lambda batch: model(batch["input_ids"]), model


def hf_llama(c, weights):
    from transformers import LlamaConfig, LlamaForCausalLM
    keys = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size",
            "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings")
    model = LlamaForCausalLM(LlamaConfig(**{k: c[k] for k in keys}, rope_parameters={"rope_type": "default", "rope_theta": c["rope_theta"]}))
    head = "embed.weight" if c["tie_word_embeddings"] else "head.weight"
    names = {"model.embed_tokens.weight": "embed.weight", "model.norm.weight": "head.norm.weight", "lm_head.weight": head}
    parts = {"input_layernorm": "norm1", "post_attention_layernorm": "norm2", "self_attn.q_proj": "attention.wq",
             "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv", "self_attn.o_proj": "attention.wo",
             "mlp.gate_proj": "mlp.w1", "mlp.up_proj": "mlp.w3", "mlp.down_proj": "mlp.w2"}
    for i in range(c["num_hidden_layers"]):
        for theirs, ours in parts.items():
            names[f"model.layers.{i}.{theirs}.weight"] = f"layers.{i}.{ours}.weight"
    model.load_state_dict({theirs: weights[ours] for theirs, ours in names.items()})
    return lambda batch: model(batch["input_ids"]).logits, model


def bert_tower(c, weights, prefix):
    from transformers import BertConfig, BertModel
    keys = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size", "max_position_embeddings",
            "hidden_dropout_prob", "attention_probs_dropout_prob")
    model = BertModel(BertConfig(**{k: c[k] for k in keys}), add_pooling_layer=False)
    names = {}
    for theirs, ours in (("word_embeddings", "word"), ("position_embeddings", "position"), ("token_type_embeddings", "token_type")):
        names[f"embeddings.{theirs}.weight"] = f"embed.{ours}.weight"
    parts = {"attention.self.query": "attention.query", "attention.self.key": "attention.key", "attention.self.value": "attention.value",
             "attention.output.dense": "attention.output", "attention.output.LayerNorm": "attention.norm", "intermediate.dense": "mlp.up",
             "output.dense": "mlp.down", "output.LayerNorm": "mlp.norm"}
    for kind in ("weight", "bias"):
        names[f"embeddings.LayerNorm.{kind}"] = f"embed.norm.{kind}"
        for i in range(c["num_hidden_layers"]):
            for theirs, ours in parts.items():
                names[f"encoder.layer.{i}.{theirs}.{kind}"] = f"layers.{i}.{ours}.{kind}"
    model.load_state_dict({theirs: weights[f"{prefix}.{ours}"] for theirs, ours in names.items()})
    return model


def torch_trimodal(c, weights):
    import torch
    from torch import nn

    class Trimodal(nn.Module):
        def __init__(self):
            super().__init__()
            self.primary, self.secondary = (bert_tower(c[side], weights, side) for side in ("primary", "secondary"))
            tab, hidden = c["tabular"], c["fusion"]["hidden_size"]
            width = c["primary"]["hidden_size"] + c["secondary"]["hidden_size"] + tab["hidden_dim"]
            self.tab = nn.Sequential(nn.LayerNorm(tab["input_dim"]), nn.Linear(tab["input_dim"], tab["hidden_dim"]), nn.ReLU())
            self.fusion = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, c["num_labels"]))
            for module, name in ((self.tab[0], "tabular.norm"), (self.tab[1], "tabular.linear"), (self.fusion[0], "fusion.hidden"),
                                 (self.fusion[2], "fusion.output")):
                module.load_state_dict({kind: weights[f"{name}.{kind}"] for kind in ("weight", "bias")})

        def forward(self, batch):
            towers = [tower(input_ids=batch[f"{side}_ids"], attention_mask=batch[f"{side}_mask"]).last_hidden_state[:, 0]
                      for side, tower in (("primary", self.primary), ("secondary", self.secondary))]
            return self.fusion(torch.cat((*towers, self.tab(batch["tabular"])), -1))

    model = Trimodal()
    return model, model


def torch_losses(forward, model, config, batches, steps):
    """AdamW without decay on vectors, clip by global norm, constant learning rate: what the configuration says."""
    import torch
    o = config["optimizer"]
    params = list(model.parameters())
    groups = [{"params": [p for p in params if p.dim() > 1]}, {"params": [p for p in params if p.dim() <= 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=o["lr"], betas=o["betas"], eps=o["eps"], weight_decay=o["weight_decay"])
    losses = []
    for step in range(1, steps + 1):
        batch = {name.split(".", 2)[2]: tensor for name, tensor in batches.items() if name.startswith(f"step.{step}.")}
        logits = forward(batch)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), batch["labels"].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, o["clip"])
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=("llama", "trimodal"))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--config")
    parser.add_argument("--peers", default=os.environ.get("PEERS", os.path.join(ROOT, "..", "shared", "peers")))
    a = parser.parse_args()
    path = a.config or os.path.join(ROOT, "configs", {"llama": "llama_21m.json", "trimodal": "trimodal_22m.json"}[a.model])
    with open(path) as f:
        config = json.load(f)
    with tempfile.TemporaryDirectory() as folder:
        ours, weights, batches = our_side(path, a.steps, folder)
    if a.model == "trimodal":
        source, (forward, model) = "transformers.BertModel", torch_trimodal(config["model"], weights)
    elif os.path.exists(os.path.join(a.peers, "llama_model.py")) and not config["model"]["tie_word_embeddings"]:
        source, (forward, model) = "llama_model.Llama", peer_llama(config["model"], weights, a.peers)
    else:
        source, (forward, model) = "transformers.LlamaForCausalLM", hf_llama(config["model"], weights)
    theirs = torch_losses(forward, model, config, batches, a.steps)
    print(json.dumps({"model": source, "steps": a.steps, "max_relative_difference": max(abs(x - y) / abs(y) for x, y in zip(ours, theirs)),
                      "ours": ours, "theirs": theirs}))


if __name__ == "__main__":
    main()
