"""The same weights and batches in PyTorch and here give the same losses."""
import json
import os
import sys
import tempfile
import unittest

from program import SOURCE, clean_environment, run

SMALL = {"llama": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
                   "vocab_size": 200, "max_position_embeddings": 32},
         "tower": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48, "vocab_size": 90,
                   "max_position_embeddings": 32}}


class Losses(unittest.TestCase):
    def compare(self, model, config):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "config.json")
            with open(path, "w") as f:
                json.dump(config, f)
            finished = run(sys.executable, os.path.join(SOURCE, "bench", "losses.py"), model, "--config", path, "--steps", 20, "--peers", folder,
                           timeout=200, env=clean_environment(OMP_NUM_THREADS=1))
        self.assertEqual(finished.returncode, 0, finished.stderr)
        result = json.loads(finished.stdout)
        self.assertEqual(len(result["ours"]), 20)
        self.assertLess(result["max_relative_difference"], 1e-4)

    def config(self, name):
        with open(os.path.join(SOURCE, "configs", name)) as f:
            config = json.load(f)
        config["data"]["sequence_length"] = 32
        config["train"]["global_batch_size"] = 4
        return config

    def test_llama(self):
        for tied in (False, True):
            config = self.config("llama_21m.json")
            config["model"].update(SMALL["llama"], tie_word_embeddings=tied)
            self.compare("llama", config)

    def test_trimodal(self):
        config = self.config("trimodal_22m.json")
        for tower in ("primary", "secondary"):
            config["model"][tower].update(SMALL["tower"])
        self.compare("trimodal", config)


if __name__ == "__main__":
    unittest.main()
