"""Mixtures of experts: losses of routers and routers themselves against transformers, and what a run tells of its experts."""
import json
import math
import os
import random
import shutil
import tempfile
import types
import unittest

import numpy
import torch
import transformers
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from checkpoint_weights import read_state
from program import only_json, orthant
from test_hugging_face import all_in_float64, largest_difference, randomize, run_forward

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
SIZES = dict(vocab_size=83, hidden_size=24, intermediate_size=30, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
FLOAT64 = [word for part in ("params", "compute", "reduce") for word in ("--set", f"precision.{part}=float64")]


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="orthant-experts-")
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, value):
        with open(self.path(name), "w") as f:
            json.dump(value, f)
        return self.path(name)


class Losses(Folder):
    def trained(self, model, rows, sequence, *words):
        """metrics.jsonl of a run over so many rows of random ids, and the ids."""
        model.save_pretrained(self.path("model"))
        ids = numpy.random.default_rng(3).integers(0, SIZES["vocab_size"], rows * sequence + 1, dtype="uint16")
        ids.tofile(self.path("ids.bin"))
        config = self.write("run.json", {
            "model": {"path": self.path("model")}, "data": {"kind": "text", "path": self.path("ids.bin"), "token_type": "uint16",
                                                            "sequence_length": sequence, "eval_fraction": 0.0},
            "optimizer": {"kind": "adamw", "lr": 1e-3}, "train": {"global_batch_size": rows, "steps": 2, "eval_every": 0}})
        out = self.path("run")
        shutil.rmtree(out, ignore_errors=True)
        done = orthant("train", "--config", config, "--output-dir", out, "--force", "--json", *FLOAT64, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(out, "metrics.jsonl")) as f:
            lines = [json.loads(line) for line in f]
        return lines, torch.tensor(ids[:-1].astype("int64")).view(rows, sequence), torch.tensor(ids[1:].astype("int64")).view(rows, sequence)

    def model(self, layers, **sizes):
        config = transformers.MixtralConfig(**SIZES, num_hidden_layers=layers, num_local_experts=6, num_experts_per_tok=2,
                                            router_aux_loss_coef=0.3, sliding_window=None, experts_implementation="eager", **sizes)
        return randomize(transformers.MixtralForCausalLM(config).double(), layers)

    def expected(self, model, ids):
        """Of each row and layer by itself, as transformers has it for a batch and all layers."""
        losses = []
        for row in ids:
            with torch.no_grad(), all_in_float64():
                found = model(row[None], output_router_logits=True)
            losses.append([load_balancing_loss_func((logits,), 6, 2).item() for logits in found.router_logits])
        return losses

    def test_one_row_through_one_layer_is_what_transformers_adds(self):
        model = self.model(1)
        lines, ids, labels = self.trained(model, 1, 29)
        with torch.no_grad(), all_in_float64():
            model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
            found = model(ids, output_router_logits=True)
            words = torch.nn.functional.cross_entropy(found.logits[0].double(), labels[0])
        self.assertAlmostEqual(lines[0]["auxiliary_loss"], 0.3 * found.aux_loss.item(), delta=1e-6)  # which adds up in float32
        self.assertAlmostEqual(lines[0]["loss"] - lines[0]["auxiliary_loss"], words.item(), delta=1e-9)

    def test_rows_and_layers_have_the_mean(self):
        model = self.model(3)
        for words in ((), ("--mesh", "dp=2,ep=2"), ("--mesh", "dp=2,tp=2,ep=4", "--set", "parallel.sequence_parallel=true"),
                      ("--mesh", "cp=2,ep=2"), ("--mesh", "pp=2,dp=2,ep=2", "--set", "parallel.microbatches=2")):
            lines, ids, _ = self.trained(model, 4, 17, *words)
            losses = self.expected(model, ids)
            self.assertAlmostEqual(lines[0]["auxiliary_loss"], 0.3 * numpy.mean(losses), delta=1e-6, msg=str(words))

    def test_loads_are_counted(self):
        model = self.model(2)
        with torch.no_grad(), all_in_float64():
            model.save_pretrained(self.path("model"))
        alone, ids, _ = self.trained(model, 4, 17)
        with torch.no_grad(), all_in_float64():
            found = model(ids, output_router_logits=True)
        for layer, logits in enumerate(found.router_logits):
            taken = torch.bincount(logits.topk(2, dim=-1).indices.flatten(), minlength=6).double() / (2 * logits.shape[0])
            self.assertEqual(alone[0]["expert_loads"][f"layers.{layer}"], taken.tolist())
        for words in (("--mesh", "dp=2,ep=2"), ("--mesh", "tp=2"), ("--mesh", "pp=2,cp=2,tp=2,ep=4", "--set", "parallel.sequence_parallel=true")):
            lines, _, _ = self.trained(model, 4, 17, *words)
            for one, other in zip(alone, lines):
                self.assertEqual(one["expert_loads"], other["expert_loads"], words)

    def choices(self, model, ids):
        """Per layer which two experts every token chooses: [rows, sequence, experts] of zeros and ones."""
        with torch.no_grad(), all_in_float64():
            model.save_pretrained(self.path("model"))
            model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
            found = model(ids, output_router_logits=True)
        return [torch.zeros_like(logits).scatter(1, logits.topk(2, dim=-1).indices, 1).view(*ids.shape, -1) for logits in found.router_logits]

    def test_what_has_no_room_is_dropped_and_counted(self):
        model = self.model(1)
        words = ("--set", "model.capacity_factor=0.75")
        alone, ids, _ = self.trained(model, 4, 17, *words)
        chosen = self.choices(model, ids)[0]
        capacity = math.ceil(0.75 * 17 * 2 / 6)
        expected = (chosen.sum(1) - capacity).clamp(min=0).sum().item() / chosen.sum().item()
        self.assertGreater(expected, 0)
        self.assertAlmostEqual(alone[0]["dropped_share"], expected, delta=1e-12)
        for mesh in (("--mesh", "dp=2,ep=2"), ("--mesh", "cp=2,tp=2,ep=4", "--set", "parallel.sequence_parallel=true")):
            lines, _, _ = self.trained(model, 4, 17, *words, *mesh)
            self.assertEqual([line["dropped_share"] for line in lines], [line["dropped_share"] for line in alone], mesh)
        roomy, _, _ = self.trained(model, 4, 17, "--set", "model.capacity_factor=100")
        plain, _, _ = self.trained(model, 4, 17)
        self.assertEqual([line["loss"] for line in roomy], [line["loss"] for line in plain])
        self.assertEqual(plain[0]["dropped_share"], 0)


class Balancing(Folder):
    """Biases that training moves instead of a loss."""
    RATE = 0.01
    MODEL = {"kind": "mixtral", "preset": "mixtral-tiny", "num_hidden_layers": 2, "router_aux_loss_coef": 0, "initializer_range": 0.2}

    def trained(self, name, steps, *words, rate=RATE):
        config = self.write(f"{name}.json", {
            "model": {**self.MODEL, "router_bias_update_rate": rate}, "data": {"kind": "tokens", "sequence_length": 32},
            "train": {"global_batch_size": 8, "steps": steps, "eval_every": 0}})
        done = orthant("train", "--config", config, "--output-dir", self.path(name), "--json", *FLOAT64, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path(name, "metrics.jsonl")) as f:
            return [json.loads(line) for line in f]

    def biases(self, run, step):
        """What a checkpoint has of them, states of an optimizer included."""
        _, state = read_state(self.path(run, "checkpoints", f"step-{step}"))
        return {name: torch.from_numpy(value).flatten() for name, value in state.items() if "router.bias" in name}

    def test_biases_follow_loads_on_any_mesh_and_through_a_resume(self):
        saved = ("--set", "checkpoint.save_every=3")
        lines = self.trained("alone", 6, *saved)
        expected = {f"layers.{layer}.router.bias": 0 for layer in range(2)}
        for line in lines:
            for layer, loads in line["expert_loads"].items():
                loads = torch.tensor(loads, dtype=torch.float64)
                expected[f"{layer}.router.bias"] = expected[f"{layer}.router.bias"] + self.RATE * torch.sign(1 / len(loads) - loads)
        found = self.biases("alone", 6)
        self.assertEqual(found.keys(), expected.keys())
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=0, atol=1e-15)
        shutil.copytree(self.path("alone"), self.path("resumed"))
        shutil.rmtree(self.path("resumed", "checkpoints", "step-6"))
        self.trained("resumed", 6, "--mesh", "fsdp=4,ep=2", "--set", "parallel.zero=3", "--resume", "auto", *saved)
        for name, value in self.biases("resumed", 6).items():
            self.assertTrue(torch.equal(value, found[name]), name)

    def test_loads_become_even(self):
        def most(lines):
            return numpy.mean([max(loads) * len(loads) for line in lines[-10:] for loads in line["expert_loads"].values()])
        uneven, even = most(self.trained("uneven", 60, rate=0)), most(self.trained("even", 60, "--mesh", "dp=2,ep=2"))
        self.assertLess(even - 1, (uneven - 1) / 2)


class Forward(Folder):
    def test_ranks_of_tp_and_cp_compute_what_one_does(self):
        sizes = {**SIZES, "num_hidden_layers": 2, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 14,
                 "shared_expert_intermediate_size": 10, "experts_implementation": "eager"}
        model = randomize(transformers.Qwen2MoeForCausalLM(transformers.Qwen2MoeConfig(**sizes)).double(), 3)
        model.save_pretrained(self.path("model"))
        ids = torch.randint(0, SIZES["vocab_size"], (4, 19), generator=torch.Generator().manual_seed(1))
        alone = run_forward(self, self.path("model"), self.path("out"), "float64", input_ids=ids)["logits"]
        for mesh in ("tp=2", "cp=2", "tp=2,cp=2"):
            found = run_forward(self, (self.path("model"), "--mesh", mesh), self.path("out"), "float64", input_ids=ids)["logits"]
            self.assertLess(largest_difference(found, alone), 1e-11, mesh)


class Routers(Folder):
    def test_deepseek_v3(self):
        """1,000 tokens, each through two layers, by transformers' router in the place of Qwen3-MoE's."""
        for seed in range(4):
            rng = random.Random(seed)
            groups = rng.choice((1, 2, 4))
            count = groups * rng.randint(2, 5)
            taken = rng.randint(1, groups)
            router = dict(n_group=groups, topk_group=taken, routed_scaling_factor=rng.choice((1.0, 2.5)), norm_topk_prob=rng.random() < 0.5,
                          num_experts_per_tok=rng.randint(1, count // groups * taken))
            config = transformers.Qwen3MoeConfig(**SIZES, head_dim=6, num_hidden_layers=2, num_experts=count, moe_intermediate_size=14,
                                                 experts_implementation="eager", **{k: router[k] for k in ("norm_topk_prob", "num_experts_per_tok")})
            model = randomize(transformers.Qwen3MoeForCausalLM(config).double(), seed)
            folder = self.path(f"model-{seed}")
            model.save_pretrained(folder)
            for layer in model.model.layers:
                gate = DeepseekV3TopkRouter(types.SimpleNamespace(**router, num_local_experts=count, hidden_size=24)).double()
                gate.weight = layer.mlp.gate.weight
                layer.mlp.gate = gate
            ids = torch.randint(0, SIZES["vocab_size"], (10, 25), generator=torch.Generator().manual_seed(seed))
            with torch.no_grad(), all_in_float64():
                model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
                expected = model(ids).logits
            checkpoint = self.path(f"imported-{seed}", "step-0")
            os.mkdir(os.path.dirname(checkpoint))
            only_json(self, orthant("checkpoint", "import", folder, checkpoint, "--json"))
            with open(os.path.join(folder, "config.json")) as f:
                saved = json.load(f)
            keys = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
                    "max_position_embeddings", "rms_norm_eps", "moe_intermediate_size")
            run = self.write(f"run-{seed}.json", {"model": {"kind": "qwen3_moe", **{key: saved[key] for key in keys}, "num_experts": count,
                                                            "scoring_func": "sigmoid", **router}})
            found = run_forward(self, (checkpoint, "--config", run), self.path("out"), "float64", input_ids=ids)["logits"]
            self.assertLess(largest_difference(found, expected), 1e-9, router)
