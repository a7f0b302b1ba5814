"""What `orthant train` says at its end of the planner's figures beside what it measured. plan_runs.py has the campaign."""
import os
import re
import unittest

import plan_runs
from program import FolderTest, only_json, orthant


class Options:
    def __init__(self, steps=3):
        self.steps = steps


class PlanRuns(FolderTest):
    def setUp(self):
        super().setUp()
        self.runs = 0

    def words(self, row, *more, steps=3):
        """Of `orthant train`, without --json."""
        self.runs += 1
        words = plan_runs.words_of(row, self.folder, self.runs, Options(steps))
        words.remove("--json")
        return [*words, *more]

    def test_memory_is_what_the_planner_says(self):
        """One rank, shards, a pipeline with weights' gradients apart, tp with cut sequences; and two draws of the campaign."""
        small = plan_runs.sized("llama", 128, 4, 4, 344, num_key_value_heads=2, vocab_size=512)
        rows = [plan_runs.Row(small, "dp=1", "parallel.recompute=full"),
                plan_runs.Row(small, "fsdp=2", "parallel.zero=3", "parallel.microbatches=2"),
                plan_runs.Row(small, "pp=2", "parallel.microbatches=4", "parallel.schedule=zbh1"),
                plan_runs.Row(plan_runs.small_model("gpt2"), "tp=2", "parallel.sequence_parallel=true"),
                plan_runs.draw(1, 26, 8), plan_runs.draw(1, 46, 8)]
        campaign = plan_runs.Campaign(Options(), self.folder)
        for number, row in enumerate(rows):
            campaign.run(number, row)
        good, text = campaign.verdict()
        self.assertTrue(good, text)
        self.assertEqual(len(campaign.memory), len(rows))

    def test_a_run_ends_with_predicted_and_measured_figures(self):
        row = plan_runs.Row(plan_runs.small_model("bert"), "pp=2", "parallel.microbatches=4", batch=8)
        plain = orthant(*self.words(row))
        self.assertEqual(plain.returncode, 0, plain.stderr)
        figures = r"[\d.]+ \w+ predicted, [\d.]+ \w+ measured \([+-][\d.]+%\)"
        told = r"\nmemory pp 0 +{0}\nmemory pp 1 +{0}\nstep +[\d.]+ m?s measured; --hardware FILE predicts it, orthant plan --calibrate FILE makes"
        self.assertRegex(plain.stdout, told.format(figures))
        timed = orthant(*self.words(row, "--hardware", "cpu"))
        self.assertEqual(timed.returncode, 0, timed.stderr)
        stage = r"memory pp {1} +{0}\nbusy pp {1} +{0}\n"
        told = r"\n" + stage.format(figures, 0) + stage.format(figures, 1) + rf"step +{figures}, by cpu\n"
        self.assertRegex(timed.stdout, told)
        short = orthant(*self.words(row, "--hardware", "cpu", steps=1))
        self.assertRegex(short.stdout, rf"\nmemory pp 1 +{figures}\n\n")

    def test_json_has_both_figures(self):
        row = plan_runs.Row(plan_runs.small_model("gpt2"), "pp=2", "parallel.microbatches=2")
        result = only_json(self, orthant(*self.words(row, "--json", "--hardware", "cpu")))
        for figures in (result["predicted"], result["measured"]):
            self.assertEqual(len(figures["memory_bytes"]), 2)
            self.assertEqual(len(figures["busy_seconds"]), 2)
            self.assertGreater(figures["step_seconds"], 0)
        nothing = only_json(self, orthant(*self.words(row, "--json", steps=0)))
        self.assertNotIn("predicted", nothing)

    def test_unknown_hardware_is_refused_before_anything_is_trained(self):
        row = plan_runs.Row(plan_runs.small_model("gpt2"), "dp=1")
        refused = orthant(*self.words(row, "--hardware", "h100-80"), cwd=self.folder)
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("h100-80gb", refused.stderr)
        other = orthant(*self.words(row, "--hardware", "h100-80gb", "--device", "cpu"), cwd=self.folder)
        self.assertEqual(other.returncode, 2, other.stderr)
        self.assertIn("--hardware h100-80gb describes GPUs, and this run trains on cores", other.stderr)
        self.assertEqual(os.listdir(self.folder).count("runs"), 0)

    def test_copies_of_background_saves_are_no_memory_of_a_step(self):
        row = plan_runs.Row(plan_runs.small_model("llama"), "pp=2,fsdp=2", "parallel.zero=1", "parallel.microbatches=2",
                            "checkpoint.asynchronous=true", "checkpoint.save_every=2")
        campaign = plan_runs.Campaign(Options(steps=6), self.folder)
        campaign.run(0, row)
        good, text = campaign.verdict()
        self.assertTrue(good, text)


if __name__ == "__main__":
    unittest.main()
