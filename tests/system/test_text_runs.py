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

    def test_a_resumed_run_refuses_other_text(self):
        self.config(LLAMA)
        self.assertEqual(self.train("--steps", "2").returncode, 0)
        self.write("a.txt", self.text(3))
        refused = self.train("--resume", "auto")
        self.assertEqual(refused.returncode, 4, refused.stderr)
        self.assertIn("other data: /text/sources/0 was", refused.stderr)
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
