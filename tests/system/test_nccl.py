"""NCCL with several ranks on one card: operations, every axis against one rank, ranks that are lost."""
import os
import sys
import tempfile
import unittest

from program import BUILD, SOURCE, only_json, orthant, run

HERE = os.path.dirname(os.path.abspath(__file__))
SHARED = ("--device", "cuda", "--backend", "nccl", "--ranks-per-device", 2)


class Nccl(unittest.TestCase):
    def campaign(self, *words):
        finished = run(sys.executable, os.path.join(HERE, words[0]), *words[1:], timeout=280)
        self.assertEqual(finished.returncode, 0, finished.stdout + finished.stderr)

    def test_every_operation_among_processes(self):
        program = os.path.join(BUILD, "tests", "test_comm_nccl")
        for ranks in (2, 4):
            finished = orthant("launch", "--nproc", ranks, "--ranks-per-device", ranks, "--", program, timeout=200)
            self.assertEqual(finished.returncode, 0, finished.stdout[-3000:] + finished.stderr[-3000:])
            self.assertIn(f"{ranks} ranks share a GPU", finished.stderr)

    def test_axes_against_one_rank(self):
        self.campaign("nccl_parity.py", "--ranks", "2", "4")

    def test_three_axes_against_one_rank(self):
        self.campaign("nccl_parity.py", "--ranks", "8")

    def test_lost_ranks_are_named(self):
        self.campaign("nccl_failures.py", "--trials", "4")

    def test_groups_are_checked_and_timed(self):
        result = only_json(self, orthant("doctor", "--mesh", "dp=2", *SHARED, "--json", timeout=120))
        groups = result["check"]["groups"]
        self.assertTrue(all(group["backend"] == "nccl" for group in groups if group["size"] > 1))
        self.assertTrue(all(group["bus_bytes_per_second"] > 0 for group in groups if group["size"] > 1))
        rows = only_json(self, orthant("bench", "comm", "--mesh", "dp=2", *SHARED, "--max-bytes", "64KiB", "--rounds", 1, "--json", timeout=120))["rows"]
        for row in rows:
            factor = 1 if row["op"] in ("all_reduce", "broadcast", "send_receive") else 0.5
            self.assertAlmostEqual(row["bus_bytes_per_second"], factor * row["bytes"] / row["median_seconds"], delta=1)

    def test_calls_and_bytes_are_those_over_gloo(self):
        """Which equal the closed forms: train.pipeline_counters and its like."""
        config = os.path.join(SOURCE, "configs", "llama_tiny.json")
        for mesh in ("fsdp=2", "tp=2", "pp=2", "cp=2"):
            traffic = []
            for backend in (("--backend", "gloo"), ("--backend", "nccl", "--ranks-per-device", 2)):
                with tempfile.TemporaryDirectory() as folder:
                    result = only_json(self, orthant("train", "--config", config, "--mesh", mesh, "--device", "cuda", *backend, "--set", "train.steps=2",
                                                     "--set", "parallel.microbatches=2", "--output-dir", os.path.join(folder, "run"), "--json", timeout=120))
                traffic.append(result["measured"]["traffic"])
            self.assertEqual(*traffic, mesh)

    def test_more_ranks_than_cards_need_to_be_asked_for(self):
        finished = orthant("doctor", "--mesh", "dp=64", "--device", "cuda", "--backend", "nccl")
        self.assertEqual(finished.returncode, 2, finished.stderr)
        self.assertIn("--ranks-per-device", finished.stderr)


if __name__ == "__main__":
    unittest.main()
