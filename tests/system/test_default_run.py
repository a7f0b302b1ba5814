"""What `make run` starts: eight ranks over three axes, a table of results, a picture."""
import os
import re
import shlex
import unittest

from program import SOURCE, FolderTest, only_json, orthant


def shown_run():
    """What README.md shows of `make run`."""
    with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as f:
        return re.search(r"^```\n\$ make run\n(.*?)^```$", f.read(), re.M | re.S).group(1)


def default_words():
    with open(os.path.join(SOURCE, "Makefile")) as f:
        return shlex.split(re.search(r"^DEFAULT_RUN := (.*)$", f.read(), re.M).group(1))


class DefaultRun(FolderTest):
    def test_ends_with_a_table_and_a_picture(self):
        done = orthant(*default_words(), "--steps", "2", "--output_dir", "run", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        (table, picture), (_, shown_picture) = (text.split("\n\n", 1) for text in (done.stdout, shown_run()))
        self.assertRegex(table, r"(?m)^mesh +pp=2,dp=2,tp=2 \(8 ranks\)$")
        self.assertRegex(table, r"(?m)^eval accuracy +0\.\d{4} \(best reachable 0\.9700\)$")
        self.assertEqual(picture, shown_picture)

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


class DefaultDryRun(unittest.TestCase):
    def test_lists_what_every_stage_holds(self):
        done = orthant(*default_words(), "--dry-run", "--verbose")
        self.assertEqual(done.returncode, 0, done.stderr)
        for rank, place in ((0, "pp=0,dp=0,tp=0"), (4, "pp=1,dp=0,tp=0")):
            self.assertIn(f"Parameters of trimodal in float32 on rank {rank}, at {place}\n", done.stdout)
        first, last = done.stdout.split("Parameters of trimodal")[1:]
        self.assertRegex(first, r"\nprimary\.embed\.word\.weight +\[512, 64\] +table rows +\[256, 64\]")
        self.assertNotIn("\nfusion", first)
        self.assertRegex(last, r"\nfusion\.")
        self.assertNotRegex(last, r"\nprimary\.embed\.[a-z.]+ +\[")


if __name__ == "__main__":
    unittest.main()
