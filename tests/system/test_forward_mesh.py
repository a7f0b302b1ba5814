"""Hugging Face folders on many ranks: a forward pass over tp is that of one rank, and every rank reads its slices alone."""
import json
import os
import shutil
import unittest

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from program import only_json, orthant
from test_hugging_face import Folder, largest_difference, randomize

MODELS = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=211, hidden_size=64, intermediate_size=91, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2,
        max_position_embeddings=64)),
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=211, n_embd=64, n_layer=2, n_head=8, n_positions=32)),
    "bert": lambda: transformers.BertModel(transformers.BertConfig(
        vocab_size=211, hidden_size=64, num_hidden_layers=2, num_attention_heads=8, intermediate_size=117, max_position_embeddings=32)),
}
WHOLE = ("norm", "ln_", "LayerNorm", "wpe", "position_embeddings", "token_type", "pooler", "o_proj.bias", "c_proj.bias", "output.dense.bias")


def is_whole(name):
    """Whether every tp rank has all of this tensor."""
    return any(part in name for part in WHOLE)


def file_bytes(folder):
    """Bytes of the tensors that tp cuts, of those it leaves whole, and of the keys and values of a llama, which may be held in copies."""
    cut, whole, copied = 0, 0, 0
    with safe_open(os.path.join(folder, "model.safetensors"), "pt") as file:
        for name in file.keys():
            size = file.get_tensor(name).nbytes
            if is_whole(name):
                whole += size
            else:
                cut += size
                copied += size if "k_proj" in name or "v_proj" in name else 0
    return cut, whole, copied


class Slices(Folder):
    def forward(self, folder, inputs, mesh, *more):
        save_file(inputs, self.path("in.safetensors"))
        facts = only_json(self, orthant("forward", "--model", folder, "--inputs", self.path("in.safetensors"), "--out",
                                        self.path("out.safetensors"), "--mesh", mesh, "--json", *more))
        return facts, load_file(self.path("out.safetensors"))

    def test_tp_computes_what_one_rank_does_and_reads_slices(self):
        for seed, (name, make) in enumerate(MODELS.items()):
            folder = self.saved(randomize(make(), seed), name)
            cut, whole, copied = file_bytes(folder)
            ids = torch.randint(0, 211, (3, 13), generator=torch.Generator().manual_seed(seed))
            mask = torch.ones_like(ids)
            mask[1, 9:] = 0
            inputs = {"input_ids": ids, "attention_mask": mask}
            facts, expected = self.forward(folder, inputs, "tp=1")
            self.assertEqual(facts["bytes_read_per_rank"], [cut + whole], name)
            for degree in (2, 4):
                facts, found = self.forward(folder, inputs, f"tp={degree}")
                self.assertEqual(sorted(found), sorted(expected))
                for key, value in expected.items():
                    self.assertLess(largest_difference(found[key], value), 1e-5, (name, degree, key))
                read = facts["bytes_read_per_rank"]
                self.assertEqual((len(read), facts["bytes_read"]), (degree, read[0]))
                again = copied * (max(degree // 2, 1) - 1) if name == "llama" else 0
                self.assertEqual(sum(read), cut + again + degree * whole, (name, degree))
                self.assertLess(max(read), 1.05 * ((cut + again) / degree + whole), (name, degree))
                planned = only_json(self, orthant("forward", "--model", folder, "--inputs", "-", "--out", "-", "--mesh", f"tp={degree}",
                                                  "--dry-run", "--json"))
                self.assertEqual([rank["read_bytes"] for rank in planned["ranks"]], read)

    def test_cp_computes_what_one_rank_does(self):
        for seed, (name, make) in enumerate(MODELS.items()):
            folder = self.saved(randomize(make(), seed), name)
            ids = torch.randint(0, 211, (3, 13), generator=torch.Generator().manual_seed(seed))
            mask = torch.ones_like(ids)
            mask[1, 9:] = 0
            inputs = {"input_ids": ids, "attention_mask": mask}
            _, expected = self.forward(folder, inputs, "tp=1")
            for mesh in ("cp=2", "cp=3", "cp=2,tp=2"):
                facts, found = self.forward(folder, inputs, mesh)
                self.assertEqual(sorted(found), sorted(expected))
                for key, value in expected.items():
                    self.assertLess(largest_difference(found[key], value), 1e-5, (name, mesh, key))

    def test_checkpoints_and_bfloat16(self):
        folder = self.saved(randomize(MODELS["gpt2"](), 1).to(torch.bfloat16))
        inputs = {"input_ids": torch.randint(0, 211, (2, 9))}
        only_json(self, orthant("checkpoint", "import", folder, self.path("imported"), "--json"))
        one, expected = self.forward(folder, inputs, "tp=1")
        for source in (folder, self.path("imported")):
            facts, found = self.forward(source, inputs, "tp=2")
            self.assertLess(largest_difference(found["logits"], expected["logits"]), 1e-5)
            self.assertLess(facts["bytes_read"], 0.56 * one["bytes_read"])

    def test_training_starts_from_equal_weights(self):
        for seed, (name, make) in enumerate(MODELS.items()):
            folder = self.saved(randomize(make(), seed), name)
            config = {"name": "hf", "seed": 3, "model": {"path": folder}, "data": {"kind": "tokens", "sequence_length": 12},
                      "train": {"global_batch_size": 4, "steps": 2}}
            with open(self.path("config.json"), "w") as f:
                json.dump(config, f)
            hashes = set()
            for mesh, zero in (("dp=1", 0), ("tp=2", 0), ("tp=2,fsdp=2", 3)):
                shutil.rmtree(self.path("run"), ignore_errors=True)
                result = only_json(self, orthant("train", "--config", self.path("config.json"), "--output-dir", self.path("run"), "--mesh", mesh,
                                                 "--set", f"parallel.zero={zero}", "--steps", "0", "--json"))
                hashes.add(result["weights_hash"])
            self.assertEqual(len(hashes), 1, name)

    def refused(self, code, *texts, **options):
        save_file({"input_ids": torch.full((1, 4), options.pop("token", 0))}, self.path("in.safetensors"))
        words = [word for key, value in options.items() for word in (f"--{key}", value)]
        finished = orthant("forward", "--model", self.folder + "/model", "--inputs", self.path("in.safetensors"), "--out",
                           self.path("out.safetensors"), *words)
        self.assertEqual(finished.returncode, code, finished.stderr)
        for text in texts:
            self.assertIn(text, finished.stderr)
        self.assertFalse(os.path.exists(self.path("out.safetensors")))

    def test_refusals(self):
        self.saved(MODELS["llama"]())
        self.refused(2, "mesh dp=2: a forward pass computes its rows once, in one stage: it uses tp and cp, and has no dp axis",
                     "use --mesh tp=2", mesh="dp=2")
        self.refused(2, "has no pp axis", mesh="pp=2,tp=2")
        self.refused(4, "rows of 4 tokens over cp=3: a chunk of them would have none", "or a smaller cp", mesh="cp=3")
        self.refused(2, "cannot be shared by tp=3", "set tp to 1, 2", mesh="tp=3")
        self.refused(2, "--backend fake moves nothing between ranks", mesh="tp=2", backend="fake")
        self.refused(4, "in.safetensors: input_ids holds 999; vocab_size is 211", mesh="tp=2", token=999)


if __name__ == "__main__":
    unittest.main()
