"""`orthant train --mesh auto`: the planner picks the mesh for the ranks that there are."""
import json
import os
import unittest

from program import ORTHANT, FolderTest, only_json, orthant

CONFIG = {"name": "small", "seed": 3,
          "model": {"kind": "llama", "preset": "llama-tiny", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
                    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 4096},
          "data": {"kind": "tokens", "sequence_length": 16, "samples": 64}, "mesh": {"pp": 4, "dp": 8},
          "parallel": {"schedule": "zbv", "microbatches": 2, "zero": 3},
          "train": {"global_batch_size": 16, "steps": 4}, "checkpoint": {"save_every": 1}}
TIGHT = {"preset": "cpu", "memory_bytes": 8 << 20}  # of a rank: less than the model takes with its optimizer


class AutoMesh(FolderTest):
    def setUp(self):
        super().setUp()
        for name, document in (("run.json", CONFIG), ("tight.json", TIGHT)):
            with open(self.path(name), "w") as file:
                json.dump(document, file)

    def picked(self, finished, ranks):
        """The words after "--mesh auto:", which are said once."""
        lines = [line for line in finished.stderr.splitlines() if "--mesh auto: " in line]
        self.assertEqual(len(lines), 1, finished.stderr)
        self.assertRegex(lines[0], rf" for {ranks} ranks? (of|on) .*; a step is predicted to take [\d.]+ \w+ by (cpu|tight)")
        mesh, _, settings = lines[0].partition("--mesh auto: ")[2].partition(f" for {ranks} ")[0].partition(" with ")
        return mesh, settings.split(", ")

    def train(self, *words):
        return orthant("train", "--config", "run.json", "--mesh", "auto", "--json", *words, cwd=self.folder)

    def test_takes_the_places_of_this_machine_and_trains_as_the_same_mesh_does_when_it_is_named(self):
        finished = self.train("--output-dir", "auto", "--steps", 2)
        result = only_json(self, finished)
        self.assertLessEqual(result["world_size"], len(os.sched_getaffinity(0)))
        mesh, settings = self.picked(finished, result["world_size"])
        words = [word for setting in settings for word in ("--set", setting)]
        named = orthant("train", "--config", "run.json", "--mesh", mesh, *words, "--steps", 2, "--json", "--output-dir", "named", cwd=self.folder)
        self.assertEqual(only_json(self, named)["weights_hash"], result["weights_hash"])
        with open(self.path("auto", "config.json")) as auto, open(self.path("named", "config.json")) as named_config:
            resolved = json.load(auto)
            self.assertEqual(resolved, json.load(named_config))
        self.assertEqual(resolved["train"]["global_batch_size"], 16)
        again = orthant("train", "--config", "auto/config.json", "--output-dir", "auto", "--resume", "auto", "--json", cwd=self.folder)
        self.assertEqual(only_json(self, again)["steps"], 4)

    def test_ranks_of_a_launcher_pick_alike_and_a_run_goes_on_with_fewer_of_them(self):
        def launched(ranks, *words):
            return orthant("launch", "--nproc", ranks, "--", ORTHANT, "train", "--config", "run.json", "--mesh", "auto", "--hardware", "tight.json",
                           "--json", "--output-dir", "out", "--force", *words, cwd=self.folder)
        first = launched(4, "--steps", 2)
        self.assertEqual(only_json(self, first)["world_size"], 4)
        mesh, _ = self.picked(first, 4)
        self.assertNotEqual(mesh, "dp=4")  # a rank cannot hold the model
        second = launched(2, "--resume", "auto")
        result = only_json(self, second)
        self.assertEqual((result["world_size"], result["steps"]), (2, 4))
        self.picked(second, 2)
        with open(self.path("out", "metrics.jsonl")) as file:
            self.assertEqual([json.loads(line)["step"] for line in file], [1, 2, 3, 4])

    def test_says_why_nothing_fits(self):
        with open(self.path("tiny.json"), "w") as file:
            json.dump({**TIGHT, "memory_bytes": 1 << 20}, file)
        finished = orthant("train", "--config", "run.json", "--mesh", "auto", "--hardware", "tiny.json", "--rank", 0, "--world-size", 2,
                           "--rendezvous", "127.0.0.1:1", cwd=self.folder)
        self.assertEqual((finished.returncode, finished.stdout), (2, ""), finished.stderr)
        self.assertIn("--mesh auto: small (", finished.stderr)
        self.assertIn("on 2 ranks of 1 MiB each, 16 rows of 16 tokens a step: nothing fits\n  fix: ", finished.stderr)

    def test_what_is_wrong_on_every_mesh_is_told_with_its_place(self):
        finished = self.train("--set", "train.steps=-1")
        self.assertEqual((finished.returncode, finished.stdout), (2, ""), finished.stderr)
        self.assertIn("orthant: error: --set train.steps=-1: ", finished.stderr)

    def test_other_commands_refuse_it_by_name(self):
        for words in (("parity", "--config", "run.json"), ("bench", "step", "--config", "run.json"), ("mesh",), ("doctor",), ("bench", "comm")):
            finished = orthant(*words, "--mesh", "auto", cwd=self.folder)
            self.assertEqual((finished.returncode, finished.stdout), (2, ""), finished.stderr)
            self.assertIn("mesh auto: orthant train alone picks its mesh\n  fix: write degrees such as pp=2,dp=2,tp=2", finished.stderr)


if __name__ == "__main__":
    unittest.main()
