#!/usr/bin/env python3
"""Writes a Llama of random weights as a Hugging Face folder, in bfloat16, without transformers: for measuring how fast a model generates.

    python3 bench/random_llama.py FOLDER [--config bench/llama_1b5.json] [--device cpu|cuda]

The configuration's model section has the sizes. Weights are normal with a standard deviation of 0.02, norms are ones.
"""
import argparse
import json
import os
import sys

import torch


def shapes(model):
    """Parameters by their names, in the order of the file."""
    hidden, inner, vocabulary = model["hidden_size"], model["intermediate_size"], model["vocab_size"]
    head = hidden // model["num_attention_heads"]
    keys = model["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", (vocabulary, hidden)
    for layer in range(model["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (hidden,)
        for name, rows, columns in (("q_proj", hidden, hidden), ("k_proj", keys, hidden), ("v_proj", keys, hidden), ("o_proj", hidden, hidden)):
            yield f"{prefix}self_attn.{name}.weight", (rows, columns)
        yield prefix + "post_attention_layernorm.weight", (hidden,)
        for name, rows, columns in (("gate_proj", inner, hidden), ("up_proj", inner, hidden), ("down_proj", hidden, inner)):
            yield f"{prefix}mlp.{name}.weight", (rows, columns)
    yield "model.norm.weight", (hidden,)
    if not model.get("tie_word_embeddings"):
        yield "lm_head.weight", (vocabulary, hidden)


def values(shape, device):
    if len(shape) == 1:
        return torch.ones(shape, dtype=torch.bfloat16)
    return torch.empty(shape, dtype=torch.bfloat16, device=device).normal_(0, 0.02).cpu()


def write(folder, model, device):
    os.makedirs(folder, exist_ok=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "hidden_act": "silu", "bos_token_id": None,
              "eos_token_id": None, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, **{key: value for key, value in model.items() if key != "kind"}}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes(model):
        size = 2 * torch.Size(shape).numel()
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, shape in shapes(model):
            file.write(memoryview(values(shape, device).view(torch.uint8).numpy()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--config", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "llama_1b5.json"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    with open(given.config, encoding="utf-8") as file:
        write(given.folder, json.load(file)["model"], given.device)


if __name__ == "__main__":
    sys.exit(main())
