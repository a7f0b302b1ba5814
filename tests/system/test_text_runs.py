"""Language models on a user's own text files: from raw text, resumed, and refused when the text is another one."""
import json
import os
import tempfile
import unittest

from program import orthant

WORDS = "the a ship sails over seven seas and comes home again with salt tea silk".split()
LLAMA = {"kind": "llama", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 64,
         "max_position_embeddings": 32}
BERT = {"kind": "bert", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 64,
        "max_position_embeddings": 32}


class TextRuns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.write("vocab.txt", "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n")
        self.write("a.txt", self.text(1))

    def text(self, step):
        return "\n\n".join(" ".join(WORDS[(i * step + j * (i + 1)) % len(WORDS)] for j in range(20 + i % 7)) for i in range(40)) + "\n"

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w") as f:
            f.write(text)

    def config(self, model, **data):
        self.write("config.json", json.dumps({
            "model": model, "data": {"kind": "text", "path": "a.txt", "tokenizer": "vocab.txt", "sequence_length": 12, **data},
            "train": {"global_batch_size": 4, "steps": 4}}))

    def train(self, *words):
        return orthant("train", "--config", "config.json", "--output_dir", "run", *words, cwd=self.folder)

    def test_documents_are_packed_or_one_a_sample(self):
        for model in (LLAMA, BERT):
            for packing in (True, False):
                with self.subTest(model=model["kind"], packing=packing):
                    self.config(model, packing=packing, separator="blank-line", eval_fraction=0.2)
                    done = orthant("train", "--config", "config.json", "--output_dir", f"run-{model['kind']}-{packing}", "--json", cwd=self.folder)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn("perplexity", json.loads(done.stdout)["eval"])

    def test_packed_documents_stay_apart_and_are_evaluated_and_resumed_so(self):
        self.config(LLAMA, pack=True, separator="blank-line", eval_fraction=0.2)
        self.assertEqual(self.train("--steps", "2").returncode, 0)
        resumed = self.train("--resume", "auto", "--json")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertIn("perplexity", json.loads(resumed.stdout)["eval"])
        refused = self.train("--resume", "auto", "--set", "data.pack=false")
        self.assertEqual(refused.returncode, 4, refused.stderr)
        self.assertIn('/packing was "documents" there and is true now', refused.stderr)
        for command in (("evaluate", "--run", "run"), ("predict", "--model", "run", "--out", "scores.jsonl")):
            done = orthant(*command, "--data", "a.txt", cwd=self.folder)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_documents_that_cannot_stay_apart_are_refused(self):
        with open(os.path.join(self.folder, "ids.bin"), "wb") as f:
            f.write(b"\1\0" * 100)
        dynamic = {**LLAMA, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}
        for model, data, message in (
                (BERT, {}, "data.pack with a model of kind bert, whose tokens see all documents of a row"),
                (dynamic, {"pack": False, "padding": "none"}, "its frequencies depend on the length of a row"),
                (LLAMA, {"padding": "nothing"}, 'found "nothing"'),
                (dynamic, {}, "whose frequencies depend on the length of each document"),
                (LLAMA, {"padding": "none"}, "is none beside data.pack, whose rows have no padding"),
                (LLAMA, {"packing": False}, "is true beside data.packing false"),
                (LLAMA, {"path": "ids.bin", "token_type": "uint16"}, "data.pack is true, but ids.bin does not say where documents end")):
            with self.subTest(message=message):
                self.config(model, **{"pack": True, **data})
                refused = self.train()
                self.assertEqual(refused.returncode, 2, refused.stderr)
                self.assertIn(message, refused.stderr)
                self.assertIn("fix: ", refused.stderr)
                self.assertFalse(os.path.exists(os.path.join(self.folder, "run")))

    def test_a_resumed_run_refuses_other_text(self):
        self.config(LLAMA)
        self.assertEqual(self.train("--steps", "2").returncode, 0)
        self.write("a.txt", self.text(3))
        refused = self.train("--resume", "auto")
        self.assertEqual(refused.returncode, 4, refused.stderr)
        self.assertRegex(refused.stderr, r"other data: \S*a\.txt has other contents than when that run read it")
        self.write("a.txt", self.text(1))
        resumed = self.train("--resume", "auto", "--json")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertEqual(json.loads(resumed.stdout)["steps"], 4)

    def test_forward_refuses_a_damaged_checkpoint(self):
        self.config(LLAMA)
        self.assertEqual(self.train("--steps", "1").returncode, 0)
        header = json.dumps({"input_ids": {"dtype": "I64", "shape": [1, 3], "data_offsets": [0, 24]}}).encode()
        with open(os.path.join(self.folder, "in.safetensors"), "wb") as f:
            f.write(len(header).to_bytes(8, "little") + header + b"".join(i.to_bytes(8, "little") for i in (5, 6, 7)))
        forward = ("forward", "--model", "run/checkpoints/step-1", "--inputs", "in.safetensors", "--out", "out.safetensors")
        self.assertEqual(orthant(*forward, cwd=self.folder).returncode, 0)
        with open(os.path.join(self.folder, "run/checkpoints/step-1/rank-0.safetensors"), "r+b") as f:
            f.seek(-5, os.SEEK_END)
            f.write(b"\x7f\x7f")
        refused = orthant(*forward, cwd=self.folder)
        self.assertEqual(refused.returncode, 4, refused.stderr)
        self.assertIn("the manifest promises", refused.stderr)

    def losses(self, name, **data):
        """Of the steps of a run on other data."""
        self.config(LLAMA, **{"tokenizer": None, **data})
        done = orthant("train", "--config", "config.json", "--output_dir", name, "--json", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(self.folder, name, "metrics.jsonl")) as f:
            return [json.loads(line)["loss"] for line in f if "loss" in line]

    def test_ids_of_another_program_train_as_a_prepared_folder(self):
        prepared = orthant("data", "prepare-text", "--input", "a.txt", "--tokenizer", "vocab.txt", "--separator", "blank-line", "--out", "ids", cwd=self.folder)
        self.assertEqual(prepared.returncode, 0, prepared.stderr)
        expected = self.losses("run-folder", path="ids")
        self.assertEqual(len(expected), 4)
        with open(os.path.join(self.folder, "ids", "tokens.bin"), "rb") as f:
            data = f.read()
        ids = [int.from_bytes(data[i:i + 2], "little") for i in range(0, len(data), 2)]
        for name, content in (("two.bin", data), ("four.bin", b"".join(i.to_bytes(4, "little") for i in ids)),
                              ("ids.jsonl", json.dumps({"tokens": ids[:50]}).encode() + b"\n" + json.dumps(ids[50:]).encode())):
            with open(os.path.join(self.folder, name), "wb") as f:
                f.write(content)
        self.assertEqual(self.losses("run-two", path="two.bin", token_type="uint16"), expected)
        self.assertEqual(self.losses("run-four", path="four.bin", token_type="uint32"), expected)
        self.assertEqual(self.losses("run-lines", path="ids.jsonl", ids_column="tokens"), expected)
        self.assertEqual(self.losses("run-known", path="two.bin", token_type="uint16", tokenizer="vocab.txt", eval_path="two.bin"), expected)

    def test_ids_that_do_not_fit_are_refused(self):
        for name, content in (("ids.bin", bytes(range(100))), ("odd.bin", b"abc"), ("wide.bin", b"\1\0\0\0" * 20)):
            with open(os.path.join(self.folder, name), "wb") as f:
                f.write(content)
        for data, code, message in (({"path": "ids.bin"}, 2, "data.token_type does not say how wide they are"),
                                    ({"path": "ids.bin", "token_type": "uint8"}, 2, 'data.token_type is "uint8"'),
                                    ({"path": "ids.bin", "token_type": "uint16"}, 4, "vocab.txt has a vocabulary of 20"),
                                    ({"path": "ids.bin", "token_type": "uint16", "tokenizer": None}, 2, "set model.vocab_size=25443"),
                                    ({"path": "wide.bin", "token_type": "uint16"}, 4, "set data.token_type=uint32"),
                                    ({"path": "odd.bin", "token_type": "uint16"}, 4, "odd.bin has 3 bytes, which are not a whole number of ids"),
                                    ({"path": "ids.bin", "token_type": "uint16", "packing": False}, 2, "does not say where documents end"),
                                    ({"path": "a.txt", "token_type": "uint16"}, 2, "data.path names no .bin file"),
                                    ({"path": "ids.bin", "token_type": "uint16", "begin_token": True}, 2,
                                     "data.begin_token is true, but ids.bin holds ids already"),
                                    ({"path": "a.txt", "ids_column": "ids"}, 4, "a.txt:1: this is not JSON")):
            with self.subTest(**data):
                self.config(LLAMA, **data)
                refused = self.train()
                self.assertEqual(refused.returncode, code, refused.stderr)
                self.assertIn(message, refused.stderr)
                self.assertFalse(os.path.exists(os.path.join(self.folder, "run")))

    def test_a_missing_tokenizer_says_where_to_put_it(self):
        self.config(LLAMA, tokenizer="roberta-base")
        refused = self.train()
        self.assertEqual(refused.returncode, 4)
        self.assertIn("models/roberta-base", refused.stderr)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "run")))

    def test_bert_needs_a_mask_token(self):
        self.write("vocab.txt", "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]) + "\n")
        self.config(BERT)
        refused = self.train()
        self.assertEqual(refused.returncode, 2)
        self.assertIn("has no mask token", refused.stderr)


if __name__ == "__main__":
    unittest.main()
