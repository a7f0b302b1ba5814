"""A whole trimodal model as a folder: `predict` and `evaluate` read it without its run, and so does examples/load_trimodal in PyTorch."""
import csv
import importlib.util
import json
import os
import shutil
import tempfile
import unittest

import torch
import transformers
from safetensors.torch import load_file

from program import SOURCE, only_json, orthant

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
TOWER = {"vocab_size": 400, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
         "max_position_embeddings": 32, "initializer_range": 0.2}
ROBERTA = {**TOWER, "pad_token_id": 0, "position_offset": 1, "hidden_size": 24}
BOUND = 1e-5  # of a probability, float32


def loader():
    spec = importlib.util.spec_from_file_location("load_trimodal", os.path.join(SOURCE, "examples", "load_trimodal", "load_trimodal.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TrimodalExport(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        done = orthant("data", "make-trimodal", "--rows", 120, "--out", cls.folder)
        assert done.returncode == 0, done.stderr
        with open(cls.path("trimodal.csv"), newline="") as f:
            header, *rows = list(csv.reader(f))
        rows[3][header.index("feature_2")] = ""  # a missing number
        rows[5][header.index("dialogue")] = ""
        with open(cls.path("trimodal.csv"), "w", newline="") as f:
            csv.writer(f).writerows([header] + rows)
        cls.config = {"name": "t", "seed": 3,
                      "model": {"kind": "trimodal", "primary": TOWER, "secondary": ROBERTA, "tabular": {"input_dim": 8, "hidden_dim": 8},
                                "fusion": {"hidden_size": 8}, "num_labels": 2, "projection": 12},
                      "data": {"kind": "trimodal", "path": "trimodal.csv", "primary_text": "dialogue", "secondary_text": "shiptrack",
                               "tabular": [f"feature_{i}" for i in range(1, 9)], "label": "label", "tokenizer": "vocab.txt",
                               "sequence_length": 16, "secondary_length": 9},
                      "optimizer": {"lr": 0.03}, "train": {"global_batch_size": 20, "steps": 20}}
        cls.train("run", cls.config)

    @classmethod
    def path(cls, *parts):
        return os.path.join(cls.folder, *parts)

    @classmethod
    def train(cls, name, config, *words):
        with open(cls.path(name + ".json"), "w") as f:
            json.dump(config, f)
        done = orthant("train", "--config", name + ".json", "--output_dir", name, *words, cwd=cls.folder)
        assert done.returncode == 0, done.stderr

    def export(self, run, out, *words):
        return only_json(self, orthant("checkpoint", "export", f"{run}/checkpoints/latest", out, "--format", "huggingface", "--json", *words,
                                       cwd=self.folder))

    def predict(self, model, out, *words):
        facts = only_json(self, orthant("predict", "--model", model, "--data", "trimodal.csv", "--out", out, "--json", *words, cwd=self.folder))
        self.assertEqual(facts["rows"], 120)
        with open(self.path(out), newline="") as f:
            return [[float(row["probability_0"]), float(row["probability_1"])] for row in csv.DictReader(f)]

    def loaded(self, folder):
        model = loader().Trimodal(self.path(folder))
        with open(self.path("trimodal.csv"), newline="") as f:
            rows = list(csv.DictReader(f))
        return [chances for first in range(0, 120, 50) for chances in model.probabilities(rows[first:first + 50]).tolist()]

    def assert_within(self, found, expected, bound=BOUND):
        self.assertEqual(len(found), len(expected))
        self.assertLess(max(abs(a - b) for one, other in zip(found, expected) for a, b in zip(one, other)), bound)

    def test_predict_and_the_loader_say_what_the_run_says(self):
        result = self.export("run", "out")
        self.assertEqual(result["files"], ["model.safetensors", "config.json", "preprocessing.json", "tokenizers/primary/vocab.txt",
                                           "tokenizers/secondary/vocab.txt"])
        self.assertEqual(result["notes"], [])
        expected = self.predict("run", "run.csv")
        self.assertGreater(max(row[0] for row in expected) - min(row[0] for row in expected), 0.01, "rows must differ")
        os.makedirs(self.path("alone"))
        shutil.move(self.path("out"), self.path("alone", "out"))  # it needs nothing of the run
        self.assertEqual(self.predict("alone/out", "out.csv"), expected)
        self.assert_within(self.predict("alone/out", "mesh.csv", "--mesh", "fsdp=2,tp=2"), expected, 2e-6)
        self.assert_within(self.loaded("alone/out"), expected)
        with open(self.path("alone", "out", "config.json")) as f:
            text = f.read()
        self.assertNotIn(self.folder, text)
        self.assertNotIn("vocab.txt", text)
        measured = [only_json(self, orthant("evaluate", "--run", run, "--data", "trimodal.csv", "--json", cwd=self.folder))
                    for run in ("run", "alone/out")]
        self.assertEqual(measured[1]["eval"], measured[0]["eval"])
        self.assertEqual((measured[0]["step"], measured[1]["step"]), (20, None))

    def test_towers_have_the_names_of_transformers(self):
        self.export("run", "named")
        tensors = load_file(self.path("named", "model.safetensors"))
        self.assertEqual({name.split(".")[0] for name in tensors}, {"primary", "secondary", "tabular", "fusion"})
        self.assertIn("primary.encoder.layer.1.attention.self.query.weight", tensors)
        self.assertIn("secondary.pooler.projection.weight", tensors)
        self.assertIn("have no place in this folder", self.export("run", "tower", "--tower", "secondary")["notes"][0])

    def test_other_models(self):
        changes = {"shared": {"secondary": TOWER, "shared_towers": True}, "plain": {"pooling": "cls", "projection": None, "tabular": None}}
        for name, model in changes.items():
            data = {**self.config["data"], "tabular": [] if name == "plain" else self.config["data"]["tabular"]}
            self.train(name, {**self.config, "model": {**self.config["model"], **model}, "data": data}, "--mesh", "fsdp=2")
            self.export(name, name + "-out")
            with self.subTest(name):
                expected = self.predict(name, name + ".csv")
                self.assertEqual(self.predict(name + "-out", name + "-out.csv"), expected)
                self.assert_within(self.loaded(name + "-out"), expected)

    def test_shards_by_ranks_and_another_dtype(self):
        expected = self.predict("run", "run-again.csv")
        result = self.export("run", "shards", "--mesh", "dp=3", "--max-shard-size", "20KB")
        self.assertEqual(len(result["bytes_per_rank"]), 3)
        self.assertGreater(min(result["bytes_per_rank"]), 0)
        self.assertIn("model.safetensors.index.json", result["files"])
        self.assertEqual(self.predict("shards", "shards.csv"), expected)
        self.assert_within(self.loaded("shards"), expected)
        self.export("run", "half", "--dtype", "bfloat16")
        self.assert_within(self.predict("half", "half.csv"), expected, 0.02)
        self.assert_within(self.loaded("half"), self.predict("half", "half-again.csv"))

    def refused(self, code, text, fix, *words):
        done = orthant(*words, cwd=self.folder)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertIn(text, done.stderr)
        self.assertIn(fix, done.stderr)

    def test_what_is_missing_is_named(self):
        self.export("run", "broken")
        score = ("--data", "trimodal.csv")
        self.refused(4, "broken: an exported model, which has no checkpoints", "leave --checkpoint out", "evaluate", "--run", "broken",
                     "--checkpoint", "run/checkpoints/step-20", *score)
        predict = ("predict", "--model", "broken", "--out", "x.csv", *score)
        config = self.path("broken", "config.json")
        with open(config) as f:
            values = json.load(f)
        for change, text in (({"fusion": {**values["model"]["fusion"], "hidden_size": 9}},
                              "fusion.hidden.weight: [8, 32] there, [9, 32] in this model"),
                             ({"primary": {**values["model"]["primary"], "num_hidden_layers": 3}},
                              "primary.layers.2.attention.query.weight: missing")):
            with open(config, "w") as f:
                json.dump({**values, "model": {**values["model"], **change}}, f)
            self.refused(4, text, "use the config.json that was exported with these weights", *predict)
        with open(config, "w") as f:
            json.dump(values, f)
        os.remove(self.path("broken", "preprocessing.json"))
        self.refused(4, "broken: no preprocessing.json says how rows are prepared", "use a checkpoint of a run", *predict)
        done = orthant("train", "--steps", "1", "--output_dir", "demo", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        notes = self.export("demo", "demo-out")["notes"]
        self.assertIn("has no preprocessing.json: the run was on generated data, and predict cannot prepare rows", notes[0])
        self.refused(2, "demo-out was trained on generated data", "use a run on files", "predict", "--model", "demo-out", "--out", "x.csv", *score)


if __name__ == "__main__":
    unittest.main()
