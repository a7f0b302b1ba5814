"""A disk that is full: training goes on, what was saved stays, the next save with room works. A tmpfs of limited size; needs root."""
import json
import os
import re
import subprocess
import threading
import unittest

from program import ORTHANT, FolderTest, clean_environment, only_json, orthant, wait_until

STEPS, SAVE_EVERY, KIB = 200, 10, 1024
FLIGHT = 980 * KIB  # a rank's last events, which lie beside the checkpoints
CONFIG = {"name": "full-disk", "seed": 5,
          "model": {"kind": "llama", "preset": "llama-tiny", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 256},
          "data": {"kind": "tokens", "sequence_length": 16, "samples": 64},
          "optimizer": {"kind": "adamw", "lr": 1e-3}, "train": {"global_batch_size": 4, "steps": STEPS},
          "checkpoint": {"save_every": SAVE_EVERY, "keep_last": 1}}
NOT_SAVED = re.compile(r"the checkpoint of step (\d+) was not saved: (.*); training goes on")
REASON = re.compile(r"/disk/run/checkpoints/step-\d+\S*: write of \d+ bytes after \d+ bytes written failed: No space left on device")


def lines_of(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


class FullDisk(FolderTest):
    def setUp(self):
        super().setUp()
        with open(self.path("config.json"), "w") as f:
            json.dump(CONFIG, f)
        self.disk = self.path("disk")
        self.run_dir = os.path.join(self.disk, "run")

    def mount(self, size):
        os.mkdir(self.disk)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", self.disk], check=True, capture_output=True)
        self.addCleanup(subprocess.run, ["umount", self.disk], check=True)

    def words(self, *more):
        return ["train", "--config", self.path("config.json"), "--output_dir", self.run_dir, "--json", *more]

    def besides(self, words):
        """Metrics, logs and the last events of two ranks, or of one."""
        return 512 * KIB + FLIGHT * (2 if "--mesh" in words else 1)

    def checkpoint_bytes(self):
        """What one takes on a disk of whole pages."""
        there = self.path("measure")
        only_json(self, orthant("train", "--config", self.path("config.json"), "--output_dir", there, "--json", "--set", "train.steps=1"))
        folder = os.path.join(there, "checkpoints", "step-1")
        return sum(-(-os.path.getsize(os.path.join(folder, name)) // 4096) * 4096 for name in os.listdir(folder))

    def checkpoints(self):
        """Steps of those that are whole, and every other name beside them but the pointer, which must name one of them."""
        folder = os.path.join(self.run_dir, "checkpoints")
        steps, others = [], []
        with open(os.path.join(folder, "latest")) as f:
            self.assertIn(f.read().rstrip("\n"), os.listdir(folder))
        for name in os.listdir(folder):
            if name == "latest":
                continue
            if not re.fullmatch(r"step-\d+", name):
                others.append(name)
                continue
            finished = orthant("checkpoint", "verify", os.path.join(folder, name))
            self.assertEqual(finished.returncode, 0, finished.stderr)
            steps.append(int(name.removeprefix("step-")))
        return sorted(steps), others

    def fill(self):
        """Leaves no byte: what is written to the disk from now on fails, until the file goes."""
        ballast = os.path.join(self.disk, "ballast")
        with open(ballast, "ab", buffering=0) as f:
            try:
                while True:
                    f.write(b"x" * 4096)
            except OSError:
                pass
        return ballast

    def train_while_the_disk_is_full_for_a_time(self, *more):
        size = self.checkpoint_bytes()
        self.mount(3 * size + self.besides(more))  # two checkpoints, metrics and logs have room
        job = subprocess.Popen([ORTHANT, *self.words(*more)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               stdin=subprocess.DEVNULL, env=clean_environment())
        self.addCleanup(job.kill)
        told, said = [], []
        reading = threading.Thread(target=lambda: told.extend(iter(job.stderr.readline, "")))
        reading.start()
        printing = threading.Thread(target=lambda: said.append(job.stdout.read()))
        printing.start()
        first = os.path.join(self.run_dir, "checkpoints", f"step-{SAVE_EVERY}", "manifest.json")
        self.assertTrue(wait_until(lambda: os.path.exists(first), 60), told)
        ballast = self.fill()
        self.assertTrue(wait_until(lambda: any(NOT_SAVED.search(line) for line in told), 60), told)
        kept = [name for name in os.listdir(os.path.join(self.run_dir, "checkpoints")) if re.fullmatch(r"step-\d+", name)]
        os.remove(ballast)
        self.assertEqual(len(kept), 1, kept)
        printing.join(120)
        reading.join(10)
        job.stdout.close()
        job.stderr.close()
        errors = "".join(told)
        self.assertEqual(job.wait(10), 0, errors)
        return json.loads(said[0]), errors, int(kept[0].removeprefix("step-"))

    def check_recovered(self, *more):
        result, errors, before = self.train_while_the_disk_is_full_for_a_time(*more)
        failed = NOT_SAVED.findall(errors)
        self.assertTrue(failed, errors)
        for step, reason in failed:
            self.assertGreater(int(step), before)
            self.assertRegex(reason, r"/disk/run/checkpoints/step-\d+.*: No space left on device")
        self.assertLess(int(failed[-1][0]), STEPS, errors)  # saves after it went well
        self.assertEqual(result["steps"], STEPS)
        self.assertEqual([line["step"] for line in lines_of(os.path.join(self.run_dir, "metrics.jsonl"))], list(range(1, STEPS + 1)))
        self.assertEqual(self.checkpoints(), ([STEPS], []))

    def check_room_for_two_of_three(self, *more):
        size = self.checkpoint_bytes()
        self.mount(2 * size + size // 2 + self.besides(more))
        finished = orthant(*self.words("--set", "checkpoint.keep_last=3", *more), timeout=120)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertNotRegex(finished.stderr, NOT_SAVED)
        made = re.findall(r"made room for the checkpoint of step (\d+), which takes \S+ \S+ where \S+ \S+ were free: removed (step-\d+)", finished.stderr)
        self.assertEqual(made, [(str(step), f"step-{step - 2 * SAVE_EVERY}") for step in range(3 * SAVE_EVERY, STEPS + 1, SAVE_EVERY)], finished.stderr)
        self.assertEqual(self.checkpoints(), ([STEPS - SAVE_EVERY, STEPS], []))

    def test_that_takes_two_of_three_takes_every_save(self):
        self.check_room_for_two_of_three()

    def test_that_takes_two_of_three_takes_every_save_in_the_background_of_two_ranks(self):
        self.check_room_for_two_of_three("--mesh", "fsdp=2", "--set", "checkpoint.asynchronous=true")

    def test_that_gets_room_again_takes_the_next_save(self):
        self.check_recovered()

    def test_that_gets_room_again_takes_the_next_save_in_the_background_of_two_ranks(self):
        self.check_recovered("--mesh", "fsdp=2", "--set", "checkpoint.asynchronous=true")

    def check_never_recovered(self, *more):
        size = self.checkpoint_bytes()
        self.mount(size + size // 2 + self.besides(more))  # one checkpoint and a half
        finished = orthant(*self.words(*more), timeout=120)
        self.assertEqual(finished.returncode, 4, finished.stderr)
        failed = NOT_SAVED.findall(finished.stderr)
        self.assertEqual(sorted({int(step) for step, _ in failed}), list(range(2 * SAVE_EVERY, STEPS, SAVE_EVERY)), finished.stderr)
        for _, reason in failed:
            self.assertRegex(reason, REASON)
        self.assertRegex(finished.stderr, rf"error: .*/step-{STEPS}\S*: write of \d+ bytes after \d+ bytes written failed: No space left on device")
        self.assertEqual([line["step"] for line in lines_of(os.path.join(self.run_dir, "metrics.jsonl"))], list(range(1, STEPS + 1)))
        self.assertEqual(self.checkpoints(), ([SAVE_EVERY], []))
        subprocess.run(["mount", "-o", f"remount,size={8 * size}", self.disk], check=True, capture_output=True)
        result = only_json(self, orthant(*self.words(*more, "--resume", "auto"), timeout=120))
        self.assertEqual(result["steps"], STEPS)
        self.assertEqual(self.checkpoints(), ([STEPS], []))

    def test_to_the_end_ends_the_command_with_the_reason_and_keeps_what_was_saved(self):
        self.check_never_recovered()

    def test_to_the_end_is_told_by_two_ranks_that_save_in_the_background(self):
        self.check_never_recovered("--mesh", "dp=2", "--set", "checkpoint.asynchronous=true")


if __name__ == "__main__":
    unittest.main()
