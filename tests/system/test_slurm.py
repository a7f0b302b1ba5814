"""The job script of `orthant launch --script slurm` on a Slurm of one machine: submitted, preempted, put back into the queue, and trained to the end."""
import json
import os
import sys
import unittest

from program import ORTHANT, FolderTest, orthant, wait_until
from slurm_cluster import SlurmCluster

CONFIG = {"name": "small", "seed": 3,
          "model": {"kind": "llama", "preset": "llama-tiny", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
                    "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 67},
          "data": {"kind": "tokens", "sequence_length": 16, "samples": 256}, "mesh": {"pp": 2}, "parallel": {"microbatches": 2},
          "lr_schedule": {"kind": "constant"}, "train": {"global_batch_size": 4}}
ENDLESS = 1_000_000  # steps: no attempt ends before it is preempted, however fast the machine is


class SlurmTest(FolderTest):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("slurm"))
        self.slurm = SlurmCluster(self.path("slurm"), cpus=2)
        self.addCleanup(self.slurm.stop)

    def configure(self, name, steps):
        with open(self.path("new.json"), "w") as file:
            json.dump({**CONFIG, "train": {**CONFIG["train"], "steps": steps}}, file)
        os.replace(self.path("new.json"), self.path(name + ".json"))

    def weights(self, output):
        return json.loads(output.strip().splitlines()[-1])["weights_hash"]

    def steps(self, name):
        try:
            with open(self.path(name, "metrics.jsonl")) as file:
                return [json.loads(line)["step"] for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def submit(self, name):
        """The number of a job that trains in the folder of that name."""
        self.configure(name, ENDLESS)
        script = orthant("launch", "--nproc", 2, "--script", "slurm", "--job-name", name, "--queue", "low", "--", ORTHANT, "train", "--config",
                         self.path(name + ".json"), "--output-dir", self.path(name), "--resume", "auto", "--json")
        self.assertEqual(script.returncode, 0, script.stderr)
        file = self.path(name + ".sh")
        with open(file, "w") as out:
            out.write(script.stdout)
        return self.slurm.submit(f"--output={self.path(name)}.out", file)

    def said(self, name):
        with open(self.path(name + ".out"), errors="replace") as file:
            return file.read()

    def wait_for_steps(self, name, count):
        self.assertTrue(wait_until(lambda: len(self.steps(name)) >= count, 60), self.said(name))

    def preempt(self, name, more):
        """A job of the other queue takes the node, and has it until the training is told to end after so many more steps; which step that is."""
        release = self.path(name + ".release")
        urgent = self.slurm.submit("--partition=high", "--cpus-per-task=2", f"--output={self.path('urgent.out')}", "--wrap",
                                   f"until [ -e {release} ]; do sleep 0.1; done")
        self.slurm.wait_for(urgent, "RUNNING", 90)
        end = self.steps(name)[-1] + more
        self.configure(name, end)
        with open(release, "w"):
            pass
        self.slurm.wait_for(urgent, "COMPLETED")
        return end

    def trial(self, number, after):
        """One submission that is preempted after so many steps or some more, and ends with the weights of an undisturbed run."""
        name = f"trial-{number}"
        job = self.submit(name)
        self.wait_for_steps(name, after)
        end = self.preempt(name, more=20)
        self.slurm.wait_for(job, "COMPLETED", 120)
        self.assertEqual(self.slurm.facts(job)["Restarts"], "1", self.said(name))
        self.assertEqual(self.steps(name), list(range(1, end + 1)))
        self.assertIn("stopped on request, saved; go on with", self.said(name))
        undisturbed = orthant("train", "--config", name + ".json", "--output-dir", name + "-undisturbed", "--json", cwd=self.folder, timeout=120)
        self.assertEqual(undisturbed.returncode, 0, undisturbed.stderr)
        self.assertEqual(self.weights(self.said(name)), self.weights(undisturbed.stdout), self.said(name))


class Slurm(SlurmTest):
    def test_a_job_that_is_preempted_saves_goes_back_into_the_queue_and_ends_with_equal_bits(self):
        self.trial(0, after=20)

    def test_a_job_that_is_cancelled_or_fails_is_not_put_back(self):
        job = self.submit("cancelled")
        self.wait_for_steps("cancelled", 20)
        self.slurm.run("scancel", job)
        self.slurm.wait_for(job, "CANCELLED")
        failing = self.slurm.submit(f"--output={self.path('failing.out')}", self.failing_script())
        self.slurm.wait_for(failing, "FAILED")
        for number in (job, failing):
            self.slurm.expect(lambda: "COMPLETING" not in self.slurm.run("squeue", "-h", "-o", "%T"), 30)
            self.assertEqual(self.slurm.facts(number)["Restarts"], "0")
        self.assertEqual(self.slurm.run("squeue", "-h"), "")
        self.assertEqual(self.slurm.facts(failing)["ExitCode"], "2:0")

    def failing_script(self):
        script = orthant("launch", "--script", "slurm", "--queue", "low", "--", ORTHANT, "train", "--mesh", "dp=0")
        file = self.path("failing.sh")
        with open(file, "w") as out:
            out.write(script.stdout)
        return file


class Campaign(SlurmTest):
    """--trials N: so many submissions, each preempted at another moment."""
    trials = 0

    def runTest(self):
        for number in range(self.trials):
            self.trial(number, after=1 + number * 15)
            print(f"submission {number + 1}: preempted, requeued, equal bits", flush=True)
        print(f"{self.trials} submissions with preemption and requeue: 0 wrong")


if __name__ == "__main__":
    if "--trials" in sys.argv:
        Campaign.trials = int(sys.argv[sys.argv.index("--trials") + 1])
        sys.exit(not unittest.TextTestRunner().run(Campaign()).wasSuccessful())
    unittest.main()
