"""What `make run` starts: eight ranks over three axes, a table of results, a picture. And what a dry run refuses like a run."""
import json
import os
import re
import shlex
import unittest

from program import SOURCE, FolderTest, only_json, orthant

PICTURE = """
ranks of mesh pp=2,dp=2,tp=2
  pp 0
    dp 0: [0, 1]  host 0
    dp 1: [2, 3]  host 0
  pp 1
    dp 0: [4, 5]  host 0
    dp 1: [6, 7]  host 0

pipeline of 2 stages on 2 pp ranks, the heaviest rank at 1.15 of the mean
  stage 0 on pp 0: primary.embed, primary.layers.0-1
  stage 1 on pp 1: primary.pooler, secondary.embed, secondary.layers.0-1, secondary.pooler, tabular, fusion, loss

Schedule 1f1b, 4 microbatches, a row for each pp coordinate:
time   | 0    1    2    3    4    5    6    7    8    9
rank 0 | 0F0  0F1  .    0BW0 0F2  0BW1 0F3  0BW2 .    0BW3
rank 1 | .    1F0  1BW0 1F1  1BW1 1F2  1BW2 1F3  1BW3 .
"""


def default_words():
    with open(os.path.join(SOURCE, "Makefile")) as f:
        return shlex.split(re.search(r"^DEFAULT_RUN := (.*)$", f.read(), re.M).group(1))


class DefaultRun(FolderTest):
    def test_ends_with_a_table_and_a_picture(self):
        done = orthant(*default_words(), "--steps", "2", "--output_dir", "run", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        table, picture = done.stdout.split("\n\n", 1)
        self.assertRegex(table, r"(?m)^mesh +pp=2,dp=2,tp=2 \(8 ranks\)$")
        self.assertRegex(table, r"(?m)^eval accuracy +0\.\d{4} \(best reachable 0\.9700\)$")
        self.assertEqual("\n" + picture, PICTURE)

    def test_learns_what_one_rank_learns(self):
        words = ("--set", "train.steps=12", "--set", "train.eval_every=0", "--set", "data.samples=1024", "--json")
        ranks = only_json(self, orthant(*default_words(), *words, "--output_dir", "eight", cwd=self.folder))
        one = only_json(self, orthant("train", *words, "--set", "parallel.microbatches=4", "--output_dir", "one", cwd=self.folder))
        self.assertEqual(ranks["world_size"], 8)
        self.assertAlmostEqual(ranks["final_loss"], one["final_loss"], delta=1e-5)
        self.assertAlmostEqual(ranks["eval"]["loss"], one["eval"]["loss"], delta=1e-5)

    def test_one_rank_has_no_picture(self):
        done = orthant("train", "--steps", "1", "--set", "data.samples=512", "--output_dir", "run", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("\n\n", done.stdout)


class DryRun(unittest.TestCase):
    def test_lists_what_every_stage_holds(self):
        done = orthant(*default_words(), "--dry-run")
        self.assertEqual(done.returncode, 0, done.stderr)
        for rank, place in ((0, "pp=0,dp=0,tp=0"), (4, "pp=1,dp=0,tp=0")):
            self.assertIn(f"Parameters of trimodal in float32 on rank {rank}, at {place}\n", done.stdout)
        first, last = done.stdout.split("Parameters of trimodal")[1:]
        self.assertRegex(first, r"\nprimary\.embed\.word\.weight +\[512, 64\] +table rows +\[256, 64\]")
        self.assertNotIn("\nfusion", first)
        self.assertRegex(last, r"\nfusion\.")
        self.assertNotRegex(last, r"\nprimary\.embed\.[a-z.]+ +\[")

    def test_refuses_the_backends_that_a_run_refuses(self):
        for more in ((), ("--dry-run",)):
            done = orthant(*default_words(), "--backend", "nccl", "--device", "cpu", *more)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("--backend nccl with 8 ranks on this host, device cpu", done.stderr)
            self.assertIn("use --backend gloo", done.stderr)

    def test_takes_a_fake_backend_for_any_world(self):
        done = orthant("train", "--mesh", "pp=2,dp=64,tp=2", "--set", "parallel.microbatches=1", "--set", "train.global_batch_size=64",
                       "--backend", "fake", "--dry-run")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("mesh pp=2,dp=64,tp=2: 256 ranks", done.stdout)


class MeshOfAModel(unittest.TestCase):
    def test_a_rank_lists_its_own_stage(self):
        words = ("mesh", "--mesh", "pp=2,tp=2", "--model", os.path.join(SOURCE, "configs", "llama_tiny.json"), "--json")
        names = [{p["name"] for p in only_json(self, orthant(*words, "--rank", str(rank)))["parameters"]} for rank in (0, 2)]
        self.assertIn("embed.weight", names[0])
        self.assertIn("head.norm.weight", names[1] - names[0])
        self.assertEqual(names[0] & names[1], {"embed.weight"} & names[1], "a tied table alone is on both")


class ParityHints(unittest.TestCase):
    def test_the_axis_of_a_missing_sum_is_named_once(self):
        done = orthant("parity", "--config", os.path.join(SOURCE, "configs", "llama_tiny.json"), "--mesh", "fsdp=4", "--inject",
                       "skip-reduce=fsdp", "--json")
        self.assertEqual(done.returncode, 1, done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual(result["first_difference"], "embed.weight")
        self.assertIn("perhaps a sum over fsdp is missing", result["likely_cause"])
        self.assertEqual(done.stderr, "", "the answer is no failure of a rank")


if __name__ == "__main__":
    unittest.main()
