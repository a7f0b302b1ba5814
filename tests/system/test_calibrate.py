"""orthant plan --calibrate: measures this machine into a file that the planner reads, and refuses before it measures."""
import json
import os
import re
import tempfile
import time
import unittest

from program import only_json, orthant

ESTIMATE = ("estimate", "--model", "gpt2-tiny", "--mesh", "dp=2", "--global-batch", 8, "--micro-batch", 4, "--seq", 64, "--compute",
            "float32", "--json")


class Calibrate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_writes_a_machine_that_the_planner_reads(self):
        path = os.path.join(self.folder, "here.json")
        finished = orthant("plan", "--calibrate", path, "--device", "cpu", "--rounds", 3, "--json", timeout=200)
        printed = only_json(self, finished)
        self.assertEqual(re.findall(r"round (\d+) of (\d+)", finished.stderr), [("1", "3"), ("2", "3"), ("3", "3")])
        with open(path) as file:
            machine = json.load(file)
        self.assertEqual(printed, machine)
        self.assertEqual(os.listdir(self.folder), ["here.json"])
        self.check_figures(machine)
        step = self.step_seconds(path)
        # Twice the speed of everything is half the time: the figures are what a step is priced from.
        machine["draw_rate"] *= 2
        with open(path, "w") as file:
            json.dump(machine, file)
        self.assertLess(self.step_seconds(path), step)
        for figure in ("peak_flops", "memory_bandwidth", "update_rate"):
            machine[figure] *= 2
        machine["kernel_seconds"] /= 2
        machine["local"]["bandwidth"] *= 2
        machine["local"]["latency"] /= 2
        with open(path, "w") as file:
            json.dump(machine, file)
        faster = self.step_seconds(path)
        self.assertAlmostEqual(faster, step / 2, delta=1e-3 * step)

    def step_seconds(self, path):
        plan = only_json(self, orthant(*ESTIMATE, "--gpu", path))
        self.assertIs(plan["fits"], True)
        return plan["time"]["step_seconds"]

    def check_figures(self, machine):
        """What every machine that runs the tests has."""
        sizes, shares = machine["products"]["flops"], machine["products"]["shares"]
        self.assertEqual(sizes, sorted(sizes))
        self.assertGreaterEqual(len(sizes), 12)
        self.assertLessEqual(sizes[0], 2e5)
        self.assertGreaterEqual(sizes[-1], 5e9)
        self.assertEqual(max(shares), 1)
        self.assertLess(shares[0], 1)  # small products are slower
        for figure, low, high in (("peak_flops", 1e9, 1e13), ("attention_share", 0.01, 1), ("memory_bandwidth", 1e9, 1e12),
                                  ("memory_efficiency", 0.01, 1), ("kernel_seconds", 1e-7, 1e-3), ("update_rate", 1e8, 1e12),
                                  ("draw_rate", 1e7, 1e12)):
            self.assertTrue(low < machine[figure] <= high, f"{figure} is {machine[figure]}")
        self.assertEqual(machine["dropped_attention_share"], 0)  # of a card alone
        self.assertTrue(0 <= machine["interrupted"] < 0.5, machine["interrupted"])
        cores = len(os.sched_getaffinity(0))
        self.assertEqual(machine["cards_per_node"], cores)
        self.assertIs(machine["on_host"], True)
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.assertAlmostEqual(machine["memory_bytes"] * cores / memory, 1, delta=0.05)
        self.assertTrue(0 <= machine["local"]["slows_compute"] <= 1)
        self.assertTrue(1e7 < machine["local"]["bandwidth"] < 1e12, machine["local"])

    def test_refuses_what_cannot_be_written_before_it_measures(self):
        taken = os.path.join(self.folder, "folder.json")
        os.mkdir(taken)
        for path, says in ((os.path.join(self.folder, "no", "where.json"), "cannot be written"),
                           (taken, "cannot be written"),
                           (os.path.join(self.folder, "machine"), "machine.json")):
            began = time.monotonic()
            finished = orthant("plan", "--calibrate", path)
            self.assertEqual(finished.returncode, 2, finished.stderr)
            self.assertIn(says, finished.stderr)
            self.assertIn("fix:", finished.stderr)
            self.assertNotIn("round", finished.stderr)
            self.assertLess(time.monotonic() - began, 5)
        self.assertEqual(os.listdir(self.folder), ["folder.json"])

    def test_refuses_what_it_cannot_measure(self):
        path = os.path.join(self.folder, "here.json")
        for words, says in ((("--compute", "int8"), "int8"), (("--device", "tpu"), "tpu"), (("--rounds", 2), "--rounds")):
            finished = orthant("plan", "--calibrate", path, *words)
            self.assertEqual(finished.returncode, 2, finished.stderr)
            self.assertIn(says, finished.stderr)
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    unittest.main()
