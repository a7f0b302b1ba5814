"""A file system that fails while checkpoints are looked for, read, written or removed: nothing is lost, and the run goes on or says why it ends."""
import argparse
import errno
import json
import os
import resource
import shutil
import tempfile
import unittest

from io_error_campaign import CONFIG, ERRORS, MODES, SAME_PATH, SCENARIOS, Campaign, Folder, campaign
from program import FolderTest, only_json, orthant


class Errors(FolderTest):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.scratch)
        cls.campaign = Campaign(cls.scratch)
        cls.calls = {name: cls.campaign.count(name) for name in ("resume", "two_ranks")}

    def setUp(self):
        super().setUp()
        self.run_dir = self.path("run")

    def position(self, name, call, where):
        return 1 + self.calls[name].index((call, where))

    def fail_for_good(self, name, call, where, error):
        """Runs a scenario in which the first such call on that path fails, and all calls on the path from there on."""
        position = self.position(name, call, where)
        self.campaign.prepare(SCENARIOS[name], self.run_dir)
        before = Folder(self.run_dir)
        finished, _ = self.campaign.disturbed(SCENARIOS[name], self.run_dir, position, error, SAME_PATH)
        return finished, before, Folder(self.run_dir)

    def assert_unchanged(self, before, after):
        self.assertEqual((after.names, after.by_digest, after.lines), (before.names, before.by_digest, before.lines))

    def test_a_listing_that_fails_is_not_an_empty_folder(self):
        for name in ("resume", "two_ranks"):
            with self.subTest(name):
                finished, before, after = self.fail_for_good(name, "readdir", "/checkpoints", errno.EIO)
                self.assertEqual(finished.returncode, 4, finished.stderr)
                self.assertRegex(finished.stderr, rf"error: {self.run_dir}/checkpoints: (listing|lstat) failed: Input/output error\n")
                self.assert_unchanged(before, after)
                shutil.rmtree(self.run_dir)

    def test_a_file_that_cannot_be_read_is_not_damaged(self):
        finished, before, after = self.fail_for_good("resume", "pread", "/checkpoints/step-4/rank-0.safetensors", errno.ESTALE)
        self.assertEqual(finished.returncode, 4, finished.stderr)
        self.assertRegex(finished.stderr, r"error: \S+/step-4/rank-0.safetensors: \w+ failed: Stale file handle\n")
        self.assert_unchanged(before, after)

    def test_an_error_that_passes_is_survived(self):
        position = self.position("resume", "readdir", "/checkpoints")
        self.campaign.prepare(SCENARIOS["resume"], self.run_dir)
        finished, _ = self.campaign.disturbed(SCENARIOS["resume"], self.run_dir, position, errno.ESTALE, 0)
        self.assertEqual(only_json(self, finished)["weights_hash"], self.campaign.undisturbed["resume"])
        self.assertIn("step-4 at step 4\n", finished.stderr)

    def test_a_save_whose_folder_cannot_be_made_at_first_is_of_its_own_step(self):
        position = next(i for i, (call, path) in enumerate(self.calls["resume"], 1) if call == "mkdir" and "/step-6.partial-" in path)
        self.assertEqual(self.campaign.trial("resume", position, "ENOSPC", 0), [])

    def test_a_line_that_waits_is_written_before_its_checkpoint(self):
        writes = [place for place, call in enumerate(self.campaign.count("restart"), 1) if call == ("write", "/metrics.jsonl")]
        self.assertEqual(self.campaign.trial("restart", writes[1], "EACCES", MODES["once"]), [])


class Lost(FolderTest):
    """Checkpoints that are gone beside metrics that tell of steps."""

    def setUp(self):
        super().setUp()
        with open(self.path("config.json"), "w") as f:
            json.dump(CONFIG, f)
        self.run_dir = self.path("run")
        self.whole = only_json(self, self.train("--steps", 4))

    def train(self, *words, **options):
        return orthant("train", "--config", self.path("config.json"), "--output-dir", self.run_dir, "--json", *words, **options)

    def test_checkpoints_are_not_taken_for_never_written(self):
        shutil.move(os.path.join(self.run_dir, "checkpoints"), self.path("elsewhere"))
        before = Folder(self.run_dir)
        finished = self.train("--steps", 4, "--resume", "auto")
        self.assertEqual(finished.returncode, 4, finished.stderr)
        self.assertIn(f"{self.run_dir}/checkpoints: holds no checkpoint, but {self.run_dir}/metrics.jsonl tells of steps\n  fix: bring the "
                      "checkpoints back, or begin at step 0 with --resume auto --from-scratch", finished.stderr)
        self.assertEqual(Folder(self.run_dir).lines, before.lines)
        finished = self.train("--steps", 1, "--resume", "auto", "--from-scratch", "--set", "checkpoint.save_every=0")
        self.assertEqual(only_json(self, finished)["steps"], 1)
        self.assertEqual(Folder(self.run_dir).steps(), [1])
        finished = self.train("--steps", 4, "--resume", "auto")
        self.assertEqual(only_json(self, finished)["weights_hash"], self.whole["weights_hash"])

    def test_another_version_of_the_format_is_not_damage(self):
        path = os.path.join(self.run_dir, "checkpoints", "step-4", "manifest.json")
        with open(path) as f:
            text = f.read()
        with open(path, "w") as f:
            f.write(text.replace('"version": 2,', '"version": 3,'))
        for words in ((), ("--mesh", "fsdp=2")):
            finished = self.train("--steps", 6, "--resume", "auto", *words)
            self.assertEqual(finished.returncode, 4, finished.stderr)
            self.assertIn("step-4/manifest.json: version: this program reads version 2, found 3\n", finished.stderr)
            self.assertEqual(Folder(self.run_dir).names, ["step-2", "step-4"])

    def test_a_run_that_ended_before_its_first_save_may_begin_again(self):
        shutil.rmtree(os.path.join(self.run_dir, "checkpoints"))
        open(os.path.join(self.run_dir, ".unsaved"), "w").close()  # as it is until the first save
        finished = self.train("--steps", 4)
        self.assertEqual(finished.returncode, 2, finished.stderr)
        self.assertIn("holds a run without a checkpoint\n  fix: begin it again at step 0 with --resume auto --from-scratch", finished.stderr)
        finished = self.train("--steps", 4, "--resume", "auto")
        self.assertEqual(finished.returncode, 4, finished.stderr)
        self.assertIn("tells of steps: the run ended before its first save\n  fix: begin at step 0 with --resume auto --from-scratch", finished.stderr)
        finished = self.train("--steps", 4, "--resume", "auto", "--from-scratch")
        self.assertEqual(only_json(self, finished)["weights_hash"], self.whole["weights_hash"])
        self.assertNotIn("had no effect", finished.stderr)
        finished = self.train("--steps", 4, "--resume", "auto", "--from-scratch")
        self.assertIn("--from-scratch had no effect: a checkpoint was there to resume from", finished.stderr)

    def test_from_scratch_alone_is_refused(self):
        finished = self.train("--from-scratch")
        self.assertEqual(finished.returncode, 2, finished.stderr)
        self.assertIn("--from-scratch without --resume auto", finished.stderr)

    def test_what_a_resume_leaves_behind_stays_until_the_next_save(self):
        finished = self.train("--resume", os.path.join(self.run_dir, "checkpoints", "step-2"), "--steps", 2)
        self.assertEqual(only_json(self, finished)["final_loss"], None)
        self.assertIn("step-4.superseded stays until the next save", finished.stderr)
        after = Folder(self.run_dir)
        self.assertEqual((after.names, after.steps()), (["step-2", "step-4.superseded"], [1, 2]))
        self.assertEqual([json.loads(line)["step"] for line in after.lines["metrics.jsonl.superseded"]], [3, 4])
        self.assertEqual(only_json(self, self.train("--resume", "auto", "--steps", 4))["weights_hash"], self.whole["weights_hash"])
        after = Folder(self.run_dir)
        self.assertEqual((after.names, after.steps()), (["step-2", "step-4"], [1, 2, 3, 4]))
        self.assertFalse(os.path.exists(os.path.join(self.run_dir, "metrics.jsonl.superseded")))

    def test_a_file_that_may_not_grow_is_an_error_of_its_name(self):
        def limited():
            resource.setrlimit(resource.RLIMIT_FSIZE, (2600, 2600))
        for words in (("--mesh", "dp=1"), ("--mesh", "fsdp=2", "--backend", "gloo")):
            finished = self.train("--resume", "auto", "--steps", 6, *words, preexec_fn=limited)
            self.assertEqual(finished.returncode, 4, finished.stderr)
            self.assertRegex(finished.stderr, r"checkpoints/step-\d+\S*: write of \d+ bytes after \d+ bytes written failed: File too large")
            self.assertIn("the checkpoint of step 6, the last, was not saved: ", finished.stderr)
            self.assertIn("; training finished, and --resume auto goes on at step 4\n", finished.stderr)
            self.assertIn(4, Folder(self.run_dir).whole_steps)
        finished = self.train("--resume", "auto", "--steps", 6, "--mesh", "fsdp=2", preexec_fn=limited)
        self.assertIn("of shared memory cannot be had: File too large\n", finished.stderr)
        self.assertIn("fix: raise the limit on file sizes (ulimit -f)", finished.stderr)


class Sample(unittest.TestCase):
    def test_a_sample_of_the_campaign(self):
        told = []
        options = argparse.Namespace(scenarios=["earlier", "restart"], errors=ERRORS, modes=list(MODES), per_call=0, sample=12, seed=0, jobs=2)
        self.assertEqual(campaign(options, told.append), [], told)


if __name__ == "__main__":
    unittest.main()
