"""Trainings on several hosts that lose ranks and hosts and go on: hosts are network namespaces. Needs root."""
import json
import re
import unittest

from host_network import HostJob, HostNetwork
from program import FolderTest, only_json, orthant

STEPS = 60
CONFIG = {"name": "hosts", "seed": 3,
          "model": {"kind": "llama", "preset": "llama-tiny", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
                    "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 67},
          "data": {"kind": "tokens", "sequence_length": 16, "samples": 256}, "parallel": {"microbatches": 4},
          "train": {"global_batch_size": 16, "steps": STEPS}, "checkpoint": {"save_every": 5}}
MESH = ("--mesh", "pp=2,dp=2")
PATIENT = ("--max-restarts", 3, "--timeout", 60)
QUICK = ("--max-restarts", 3, "--timeout", 4)  # until a silent launcher is lost


class HostRestarts(FolderTest):
    whole = None

    @classmethod
    def setUpClass(cls):
        cls.network = HostNetwork("ohr", 3, 78)
        cls.enterClassContext(cls.network)

    def setUp(self):
        super().setUp()
        with open(self.path("config.json"), "w") as f:
            json.dump(CONFIG, f)
        if HostRestarts.whole is None:
            HostRestarts.whole = only_json(self, orthant("train", "--config", "config.json", "--output_dir", "whole", *MESH, "--json", cwd=self.folder))

    def job(self, words, nodes=2, mesh=MESH):
        job = HostJob(self.network, self.folder, nodes, words, mesh)
        self.addCleanup(job.close)
        job.start(0, 1)
        job.wait_for(lambda: job.step() > 12)
        return job

    def assert_undisturbed(self, job, result):
        self.assertEqual((result["weights_hash"], result["steps"]), (self.whole["weights_hash"], STEPS))
        self.assertEqual(job.steps(), list(range(1, STEPS + 1)))

    def test_a_killed_rank_and_a_killed_host_that_comes_back(self):
        job = self.job(PATIENT)
        job.kill_rank(1, 1)
        job.wait_for(lambda: job.attempts_begun() == 1 and job.step() > 20)
        job.kill_host(1)
        job.start(1)
        self.assert_undisturbed(job, job.end(0, 1))
        self.assertRegex(job.said(0), r"orthant: node 1, rank 3: killed by SIGKILL\n(.*\n)*orthant: starting all ranks again \(1 of 3\)\n")
        self.assertRegex(job.said(0), r"orthant: node 1: its launcher is gone\n(.*\n)*orthant: starting all ranks again \(2 of 3\)\n")
        self.assertEqual(len(re.findall(r"resumed from \S+/step-\d+ at step \d+", job.said(0))), 2, job.said(0))

    def test_a_host_that_is_cut_off_joins_again(self):
        job = self.job(QUICK)
        self.addCleanup(self.network.plug, 1)
        self.network.pull(1)
        for node in (0, 1):
            job.wait_for(lambda: re.search(r"orthant: node \d: its launcher was silent for 4\.\d s\n", job.said(node)))
        self.network.plug(1)
        self.assert_undisturbed(job, job.end(0, 1))
        self.assertIn("orthant: meeting the other hosts for another attempt\n", job.said(1))

    def test_a_frozen_host_that_was_replaced_writes_nothing_when_it_goes_on(self):
        job = self.job(QUICK)
        job.freeze(1)
        job.wait_for(lambda: "node 1: its launcher was silent" in job.said(0))
        job.start(1, host=2)
        self.assert_undisturbed(job, job.end(0, 1))
        before = job.files()
        self.assertEqual(job.thaw(), 3, job.said("frozen"))
        self.assertIn("orthant: node 0: its launcher is gone\n", job.said("frozen"))
        self.assertEqual(job.files(), before)

    def test_a_job_goes_on_with_fewer_hosts_and_grows_again(self):
        longer = ("--set", "train.steps=240")  # so that it has not ended before the host is back
        whole = only_json(self, orthant("train", "--config", "config.json", "--output_dir", "longer", *longer, "--json", cwd=self.folder))
        job = self.job((*PATIENT, "--regroup-seconds", 1), nodes="1:2", mesh=("--mesh", "auto", *longer))
        job.kill_host(1)
        reached = job.step()
        job.wait_for(lambda: job.attempts_begun() == 1 and job.step() > reached)
        job.start(1)
        result = job.end(0, 1)
        self.assertEqual(job.steps(), list(range(1, 241)))
        self.assertAlmostEqual(result["final_loss"], whole["final_loss"], delta=1e-4 * whole["final_loss"])
        self.assertEqual(result["world_size"], 4)
        changes = [line for line in job.lines() if "step" not in line]
        self.assertEqual(len(changes), 2)
        self.assertEqual(changes[0]["mesh_before"], changes[1]["mesh_after"])
        self.assertEqual(changes[0]["mesh_after"], changes[1]["mesh_before"])
        for line in changes:
            self.assertGreater(line["predicted_step_seconds"], 0)
            self.assertNotEqual(line["mesh_before"], line["mesh_after"])
            self.assertIn(f"mesh {line['mesh_before']} becomes {line['mesh_after']} after step {line['after_step']}: the job goes on with other hosts\n",
                          job.said(0))


if __name__ == "__main__":
    unittest.main()
