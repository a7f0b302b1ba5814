"""Memory limits of control groups: a run that would not fit is stopped before it starts, with a line that fits; a rank that the kernel kills is
reported as such. Needs root, to make a control group."""
import os
import re
import shlex
import sys
import tempfile
import unittest

from program import ORTHANT, SOURCE, run

sys.path.insert(0, os.path.join(SOURCE, "bench"))
from memory_limit import Limit  # noqa: E402

# Rank 1 takes what it may and more.
GREEDY = """
import os, time
if os.environ["RANK"] == "1":
    taken = [bytearray(b"x" * (1 << 24)) for _ in range(1000)]
time.sleep(60)
"""


class Killed(unittest.TestCase):
    def test_for_lack_of_memory_is_said_with_the_limit_and_what_to_do(self):
        group = Limit(f"orthant-test-{os.getpid()}", 400 << 20)
        self.addCleanup(group.remove)
        enter = f'echo $$ > {group.path}/cgroup.procs && exec "$@"'
        finished = run("sh", "-c", enter, "sh", ORTHANT, "launch", "--nproc", 2, "--", sys.executable, "-c", GREEDY)
        self.assertEqual(finished.returncode, 4, finished.stderr)
        self.assertRegex(finished.stderr, r"orthant: rank 1: killed by SIGKILL: out of memory: its control group may use 400 MiB "
                                          r"\(oom_kill in memory\.\w+ rose\)\n  fix: ")

    def test_by_somebody_else_is_not(self):
        finished = run(ORTHANT, "launch", "--nproc", 2, "--", "sh", "-c", "if [ $RANK = 1 ]; then kill -9 $$; fi; sleep 60")
        self.assertEqual(finished.returncode, 3, finished.stderr)
        self.assertIn("orthant: rank 1: killed by SIGKILL\n", finished.stderr)


MIB = 1 << 20
LLAMA = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 256,
         "max_position_embeddings": 512}


class TooLarge(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def train(self, limit, *words, launcher=(), **model):
        sets = [f"model.{key}={value}" for key, value in {"kind": "llama", **LLAMA, **model}.items()]
        sets += ["name=large", 'data={"kind": "tokens", "sequence_length": 512, "samples": 64}', "train.steps=1", "lr_schedule.warmup_steps=0"]
        output = os.path.join(self.folder.name, f"run-{len(os.listdir(self.folder.name))}")
        json = [] if "--dry-run" in words else ["--json"]
        command = [ORTHANT, *launcher, "train", *json, "--output_dir", output, *(word for text in sets for word in ("--set", text)), *words]
        if limit is None:
            return run(*command), output
        group = Limit(f"orthant-test-{os.getpid()}", limit)
        try:
            return run("sh", "-c", f'echo $$ > {group.path}/cgroup.procs && exec "$@"', "sh", *command), output
        finally:
            group.remove()

    def refused_then_trained(self, limit, *words, **model):
        """What was refused before a rank started trains with the words of the remedy."""
        finished, output = self.train(limit, *words, **model)
        self.assertEqual(finished.returncode, 2, finished.stderr)
        self.assertFalse(os.path.exists(output))
        remedy = re.search(r"  fix: (?:add|use) (.*?)( instead of the mesh .*)?; --force trains as it is\n", finished.stderr)
        self.assertTrue(remedy, finished.stderr)
        self.assertRegex(finished.stderr, r"orthant: error: the (rank|\d ranks) of this run on this host needs? [\d.]+ [KMG]iB, and [\d.]+ MiB of memory "
                                          r"are free here; a rank has .* of parameters, .* of gradients, .* of optimizer state, .* of activations\n")
        kept = words[:words.index("--mesh")] if remedy.group(2) else words
        mended, _ = self.train(limit, *kept, *shlex.split(remedy.group(1)), **model)
        self.assertEqual(mended.returncode, 0, mended.stderr)
        return remedy.group(1), finished.stderr

    def test_batches_are_cut_into_microbatches(self):
        added, said = self.refused_then_trained(190 * MIB, "--set", "train.global_batch_size=32")
        self.assertRegex(added, r"^--set parallel.microbatches=\d+$")
        self.assertIn("fits", said)

    def test_odd_batches_are_cut_too(self):
        added, _ = self.refused_then_trained(190 * MIB, "--set", "train.global_batch_size=33")
        self.assertRegex(added, r"^--set parallel.microbatches=(3|11|33)$")

    def test_replicas_become_shards(self):
        added, _ = self.refused_then_trained(740 * MIB, "--set", "train.global_batch_size=2", "--mesh", "dp=2", hidden_size=512,
                                             intermediate_size=1024, num_hidden_layers=8)
        self.assertEqual(added, "--set parallel.zero=3")

    def test_a_dry_run_says_what_train_would_do(self):
        said, output = self.train(190 * MIB, "--set", "train.global_batch_size=32", "--dry-run")
        refused, _ = self.train(190 * MIB, "--set", "train.global_batch_size=32")
        self.assertEqual((said.returncode, refused.returncode), (0, 2), said.stderr)
        self.assertFalse(os.path.exists(output))
        self.assertIn("--set parallel.microbatches=", said.stderr)
        self.assertIn("\northant: train would be refused with exit code 2: the rank of this run on this host needs ", said.stderr)
        self.assertEqual(said.stderr.splitlines()[-1], refused.stderr.splitlines()[-1])
        fits, _ = self.train(400 * MIB, "--set", "train.global_batch_size=32", "--dry-run")
        self.assertRegex(fits.stderr, r"^orthant: train would start: the rank of this run on this host needs \S+ MiB, and \S+ MiB of memory are "
                                      r"free here\n$")

    def test_ranks_of_a_launcher_refuse_alike_and_one_says_why(self):
        finished, output = self.train(190 * MIB, "--set", "train.global_batch_size=64", "--mesh", "dp=2", launcher=["launch", "--nproc", "2", "--", ORTHANT])
        self.assertEqual(finished.returncode, 2, finished.stderr)
        self.assertFalse(os.path.exists(output))
        self.assertEqual(finished.stderr.count("of memory are free here"), 1, finished.stderr)
        self.assertIn("error: rank 0: the 2 ranks of this run on this host need ", finished.stderr)

    def test_ranks_in_control_groups_of_their_own_are_judged_one_by_one(self):
        """Each of both fits into its own; together they would not."""
        groups = [Limit(f"orthant-test-{os.getpid()}-{rank}", 300 * MIB) for rank in range(2)]
        for group in groups:
            self.addCleanup(group.remove)
        enter = f'echo $$ > {os.path.dirname(groups[0].path)}/orthant-test-{os.getpid()}-$RANK/cgroup.procs && exec "$@"'
        finished, _ = self.train(None, "--set", "train.global_batch_size=32", "--mesh", "dp=2", hidden_size=128, intermediate_size=512,
                                 launcher=["launch", "--nproc", "2", "--", "sh", "-c", enter, "sh", ORTHANT])
        self.assertEqual(finished.returncode, 0, finished.stderr)

    def test_what_fits_nowhere_is_said_so(self):
        finished, _ = self.train(300 * MIB, "--set", "train.global_batch_size=1", hidden_size=4096, intermediate_size=8192)
        self.assertEqual(finished.returncode, 2, finished.stderr)
        self.assertIn("fix: take a smaller model, shorter sequences, or ranks on more hosts (orthant plan finds a mesh); --force trains as it is",
                      finished.stderr)

    def test_a_rank_that_the_kernel_kills_is_named_with_what_it_held(self):
        finished, _ = self.train(220 * MIB, "--set", "train.global_batch_size=64", "--mesh", "dp=2", "--force")
        self.assertEqual(finished.returncode, 4, finished.stderr)
        self.assertRegex(finished.stderr, r"orthant: rank [01]: killed by SIGKILL: out of memory: its control group may use 220 MiB \(oom_kill in "
                                          r"memory\.\w+ rose\); it held [\d.]+ [KM]iB in tensors, in: step 1, .*\n  fix: raise the limit, or ")
        self.assertIn("\nlast actions:\n", finished.stderr)

    def test_force_tries_and_the_death_of_one_rank_is_told(self):
        """The run starts, its folder is there, and the kernel kills the one rank: its activations alone are 120 MiB."""
        finished, output = self.train(150 * MIB, "--set", "train.global_batch_size=32", "--force")
        self.assertEqual(finished.returncode, 4, finished.stderr)
        self.assertTrue(os.path.exists(os.path.join(output, "config.json")), finished.stderr)
        self.assertRegex(finished.stderr, r"^orthant: warning: the rank of this run on this host needs \S+ MiB, and \S+ MiB of memory are free here; "
                                          r"--force trains as it is\n")
        self.assertIn("orthant: rank 0: killed by SIGKILL: out of memory: its control group may use 150 MiB", finished.stderr)


if __name__ == "__main__":
    unittest.main()
