"""Jobs that survive: ranks that die or hang and are started again, and requests to stop at any moment."""
import json
import os
import random
import re
import signal
import subprocess
import time
import unittest

from program import ORTHANT, FolderTest, children, clean_environment, only_json, orthant, wait_until

CONFIG = {"name": "small", "seed": 3,
          "model": {"kind": "llama", "preset": "llama-tiny", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
                    "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 67},
          "data": {"kind": "tokens", "sequence_length": 16, "samples": 256}, "parallel": {"microbatches": 4},
          "train": {"global_batch_size": 16, "steps": 120}, "checkpoint": {"save_every": 5}}
ENDLESS = ("--set", "train.steps=100000", "--set", "checkpoint.save_every=0")
RARE = ("--set", "checkpoint.save_every=20")  # a slow disk is no hung rank
AGAIN = "orthant: starting all ranks again"


class Job:
    """A training in the background, whose files tell how far it is."""

    def __init__(self, test, run, *words, launcher=()):
        self.test, self.metrics = test, test.path(run, "metrics.jsonl")
        self.errors = test.path(f"errors-{len(os.listdir(test.folder))}")
        with open(self.errors, "w") as errors:
            self.process = subprocess.Popen([ORTHANT, *launcher, "train", "--config", "config.json", "--json", *words], cwd=test.folder, text=True,
                                            env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        test.addCleanup(self.process.kill)

    def said(self):
        with open(self.errors) as f:
            return f.read()

    def step(self):
        try:
            with open(self.metrics) as f:
                return f.read().count("\n")
        except OSError:
            return 0

    def ranks(self):
        return children(self.process.pid)

    def wait_for(self, condition, seconds=30):
        self.test.assertTrue(wait_until(lambda: condition() or self.process.poll() is not None, seconds), self.said())
        self.test.assertIsNone(self.process.poll(), self.said())

    def kill_rank(self, rank, number=signal.SIGKILL):
        os.kill(self.ranks()[rank], number)

    def end(self, code=0):
        """Waits for the end; the result of the run, if it has one."""
        output, _ = self.process.communicate(timeout=60)
        self.test.assertEqual(self.process.returncode, code, self.said())
        self.test.assertEqual(self.ranks(), [])
        return json.loads(output) if output and code == 0 else None


class SurvivalTest(FolderTest):
    """What one rank computes undisturbed is what every pipeline has to."""

    whole = None

    def setUp(self):
        super().setUp()
        with open(self.path("config.json"), "w") as f:
            json.dump(CONFIG, f)
        if SurvivalTest.whole is None:
            SurvivalTest.whole = only_json(self, orthant("train", "--config", "config.json", "--output_dir", "whole", "--json", cwd=self.folder))

    def assert_undisturbed(self, result, run):
        self.assertEqual((result["weights_hash"], result["steps"]), (self.whole["weights_hash"], 120))
        with open(self.path(run, "metrics.jsonl")) as f:
            self.assertEqual([json.loads(line)["step"] for line in f], list(range(1, 121)))
        names = os.listdir(self.path(run, "checkpoints"))
        self.assertEqual([name for name in names if not re.fullmatch(r"step-\d+|latest", name)], [])

    def resumed(self, run, mesh="pp=2"):
        finished = orthant("train", "--config", "config.json", "--output_dir", run, "--resume", "auto", "--mesh", mesh, "--json", cwd=self.folder)
        self.assert_undisturbed(only_json(self, finished), run)


class Restarts(SurvivalTest):
    def killed_once(self, job, rank=0):
        job.wait_for(lambda: job.step() > 12)
        job.kill_rank(rank)
        result = job.end()
        self.assert_undisturbed(result, result["output_dir"])
        self.assertRegex(job.said(), AGAIN + r" from step \d+: restart 1, 1 of 2 without progress\n")
        self.assertRegex(job.said(), r"resumed from \S+/step-\d+ at step \d+")

    def test_a_killed_rank_in_the_default_folder(self):
        self.killed_once(Job(self, "runs/small-1", "--mesh", "pp=2", "--max-restarts", "2"), rank=1)
        self.assertEqual(os.listdir(self.path("runs")), ["small-1"])

    def test_a_job_of_one_rank(self):
        job = Job(self, "run", "--output_dir", "run", "--max-restarts", "2", "--set", "checkpoint.asynchronous=true")
        self.killed_once(job)

    def test_under_a_launcher_that_starts_ranks_again(self):
        os.makedirs(self.path("runs", "small-1"))
        with open(self.path("runs", "small-1", "config.json"), "w") as f:
            f.write("{}")  # another run, older than the launcher
        os.utime(self.path("runs", "small-1", "config.json"), (1e9, 1e9))
        job = Job(self, "runs/small-2", "--mesh", "pp=2", launcher=("launch", "--nproc", "2", "--max-restarts", "2", "--", ORTHANT))
        job.wait_for(lambda: job.step() > 12)
        job.kill_rank(0)
        output, _ = job.process.communicate(timeout=60)
        self.assertEqual(job.process.returncode, 0, job.said())
        result = json.loads(re.search(r"\{.*\}", output).group())
        self.assertEqual(result["output_dir"], "runs/small-2")
        self.assert_undisturbed(result, "runs/small-2")
        self.assertEqual(sorted(os.listdir(self.path("runs"))), ["small-1", "small-2"])

    def test_deaths_without_progress(self):
        run = ("--output_dir", "run", "--mesh", "pp=2", *ENDLESS)
        finished = orthant("train", "--config", "config.json", *run, "--steps", 5, cwd=self.folder)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        job = Job(self, "run", *run, "--resume", "auto", "--max-restarts", "3")
        killed = []
        while job.process.poll() is None:
            ranks = job.ranks()
            if len(ranks) == 2 and ranks[1] not in killed and job.step() > 5:
                killed.append(ranks[1])
                os.kill(ranks[1], signal.SIGKILL)
            time.sleep(0.002)
        job.end(3)
        self.assertEqual(len(killed), 4)
        self.assertEqual(job.said().count(AGAIN + " from step 5: "), 3)
        self.assertTrue(job.said().endswith("\northant: 3 restarts without progress since step 5: giving up\n"), job.said())

    def test_what_a_restart_cannot_mend_is_not_started_again(self):
        job = Job(self, "run", "--output_dir", "run", "--mesh", "pp=2", "--max-restarts", "3", "--set", "optimizer.lr=1e30")
        job.end(4)
        self.assertNotIn(AGAIN, job.said())


class Watchdog(SurvivalTest):
    def test_a_stopped_rank_is_named_and_survived(self):
        job = Job(self, "run", "--output_dir", "run", "--mesh", "pp=2", "--max-restarts", "1", "--timeout", "3", *RARE)
        job.wait_for(lambda: job.step() > 3)
        job.kill_rank(1, signal.SIGSTOP)
        time.sleep(1.5)  # half of its patience
        before = job.step()
        job.kill_rank(1, signal.SIGCONT)
        job.wait_for(lambda: job.step() > before + 3)
        job.kill_rank(1, signal.SIGSTOP)
        self.assert_undisturbed(job.end(), "run")
        headline = re.search(r"^orthant: .*", job.said(), re.MULTILINE).group()
        self.assertRegex(headline, r"^orthant: rank 1: stopped \(SIGSTOP\) for 3\.\d s while in: step \d+, .+")
        self.assertEqual(job.said().count(AGAIN), 1)

    def test_a_rank_that_nobody_waits_for(self):
        job = Job(self, "run", "--output_dir", "run", "--max-restarts", "1", "--timeout", "1.5", *RARE)
        job.wait_for(lambda: job.step() > 12)
        job.kill_rank(0, signal.SIGSTOP)
        self.assert_undisturbed(job.end(), "run")
        self.assertRegex(job.said(), r"\northant: rank 0: stopped \(SIGSTOP\) for 1\.\d s while in: step \d+, ")


class Stopped(SurvivalTest):
    def test_is_named_within_one_timeout_on_every_mesh(self):
        draw = random.Random(7)
        for mesh, ranks in (("dp=2", 2), ("pp=2", 2), ("tp=2", 2), ("pp=2,dp=2,tp=2", 8)):
            with self.subTest(mesh=mesh):
                run = mesh.replace(",", "-")
                job = Job(self, run, "--output_dir", run, "--mesh", mesh, "--timeout", "2", *ENDLESS)
                victim, step, delay = draw.randrange(ranks), draw.randrange(10), draw.uniform(0, 0.05)
                job.wait_for(lambda: job.step() > step)
                time.sleep(delay)
                job.kill_rank(victim, signal.SIGSTOP)
                began = time.monotonic()
                job.end(3)
                self.assertLess(time.monotonic() - began, 2.8, job.said())
                headline = re.search(r"^orthant: .*", job.said(), re.MULTILINE).group()
                self.assertRegex(headline, rf"^orthant: rank {victim}: stopped \(SIGSTOP\) for 2\.\d s while in: step \d+")


class Phases(SurvivalTest):
    def test_a_rank_that_stops_before_its_first_step_has_the_time_of_the_start(self):
        job = Job(self, "run", "--output_dir", "run", "--mesh", "dp=2", "--timeout", "start=1,step=60,save=60")
        job.wait_for(lambda: len(job.ranks()) == 2)
        job.kill_rank(1, signal.SIGSTOP)
        job.end(3)
        self.assertRegex(job.said(), r"orthant: rank 1: stopped \(SIGSTOP\) for 1\.\d s")

    def test_a_rank_that_stops_in_a_later_step_has_the_time_of_a_step(self):
        job = Job(self, "run", "--output_dir", "run", "--mesh", "dp=2", "--timeout", "start=60,step=1,save=60", *ENDLESS)
        job.wait_for(lambda: job.step() > 3)
        job.kill_rank(1, signal.SIGSTOP)
        job.end(3)
        self.assertRegex(job.said(), r"orthant: rank 1: stopped \(SIGSTOP\) for 1\.\d s while in: step \d+")


class Stops(SurvivalTest):
    def stop(self, job, whom):
        ranks = job.ranks()
        for pid in {"launcher": [job.process.pid], "rank": ranks[:1], "all": [*ranks, job.process.pid]}[whom]:
            os.kill(pid, signal.SIGTERM)

    def test_right_after_the_start(self):
        moments = [("launcher", 0), ("rank", 0.05), ("launcher", 0.1), ("all", 0.1), ("all", 0.2)]
        for whom, delay in moments:
            with self.subTest(whom=whom, delay=delay):
                run = f"{whom}-{delay}"
                job = Job(self, run, "--output_dir", run, "--mesh", "pp=2")
                job.wait_for(job.ranks)
                time.sleep(delay)
                self.stop(job, whom)
                job.end(75)
        self.resumed("launcher-0")

    def test_before_a_rank_is_started(self):
        job = Job(self, "run", "--output_dir", "run", "--mesh", "pp=2")

        def catches():
            with open(f"/proc/{job.process.pid}/status") as f:
                return int(re.search(r"SigCgt:\s*(\w+)", f.read()).group(1), 16) >> signal.SIGTERM - 1 & 1
        job.wait_for(catches)
        os.kill(job.process.pid, signal.SIGTERM)
        job.end(75)
        self.assertIn("stopped on request", job.said())

    def test_while_ranks_are_started_again(self):
        for seconds in (0, 0.03, None):
            with self.subTest(seconds=seconds):
                run = f"run-{seconds}"
                job = Job(self, run, "--output_dir", run, "--mesh", "pp=2", "--max-restarts", "3")
                job.wait_for(lambda: job.step() > 7)
                job.kill_rank(1)
                if seconds is None:
                    job.wait_for(lambda: AGAIN in job.said())
                else:
                    time.sleep(seconds)
                os.kill(job.process.pid, signal.SIGTERM)
                job.end(75)
                self.assertLessEqual(job.said().count(AGAIN), 1)
        self.resumed("run-None")


if __name__ == "__main__":
    unittest.main()
