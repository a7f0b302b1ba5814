"""Schedule files that cannot run are refused before a rank starts (settings: test_refusals.py); ranks that die or hang are named with what the others wait for."""
import json
import os
import re
import signal
import socket
import subprocess
import time
import unittest

from program import ORTHANT, FolderTest, children, clean_environment, is_alive, orthant, wait_until

CONFIG = {"name": "small", "seed": 3,
          "model": {"kind": "llama", "preset": "llama-tiny", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
                    "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 67},
          "data": {"kind": "tokens", "sequence_length": 16, "samples": 256}, "parallel": {"microbatches": 2},
          "train": {"global_batch_size": 64, "steps": 1000000}}
UNITS = ["embed", "layers.0", "layers.1", "layers.2", "layers.3", "head", "loss"]
FORWARD = "0F0 0F1 0BW0 0BW1\n"  # a first line that any second one has to suit
WAITS = r"rank (\d) stage (\d): waiting for (activations|gradients) of microbatch (\d+) from rank (\d)"


class Folder(FolderTest):
    def setUp(self):
        super().setUp()
        with open(self.path("config.json"), "w") as f:
            json.dump(CONFIG, f)

    def words(self, mesh, *settings):
        return ["--config", "config.json", "--mesh", mesh, *(word for value in settings for word in ("--set", value))]


class Refusals(Folder):
    def refused(self, *settings, has):
        """Before a rank starts and a file is written."""
        before = os.listdir(self.folder)
        began = time.monotonic()
        finished = orthant("train", "--output_dir", "run", "--json", *self.words("pp=2", *settings), cwd=self.folder)
        self.assertLess(time.monotonic() - began, 5)
        self.assertEqual((finished.returncode, finished.stdout), (2, ""), finished.stderr)
        self.assertTrue(finished.stderr.startswith("orthant: error: "), finished.stderr)
        self.assertNotIn("[rank", finished.stderr)
        for text in has:
            self.assertIn(text, finished.stderr)
        self.assertEqual(os.listdir(self.folder), before)

    def file_refused(self, text, *settings, has):
        with open(self.path("table.txt"), "w") as f:
            f.write(text)
        self.refused("parallel.schedule=table.txt", *settings, has=has)

    def test_schedule_files(self):
        self.file_refused(FORWARD + "1F0 1BW0\n", has=["1F1 is missing on pp 1", "pp 0     |  0F0   0F1", "add 1F1 to pp 1"])
        self.file_refused("0F0 0F2 0BW0 0BW2\n1F0 1BW0 1F2 1BW2\n", "parallel.microbatches=4",
                          has=["table.txt has 3 microbatches", "parallel.microbatches is 4", "set parallel.microbatches=3"])
        self.file_refused("0F0 0BW0\n1F0 1BW0\n", has=["table.txt has 1 microbatch", "parallel.microbatches is 2"])
        self.file_refused(FORWARD + "1BW0 1F0 1F1 1BW1\n", has=["1BW0 at position 0 of pp 1 has no 1F0 before it", "[1BW0]", "put 1F0 before it"])
        self.file_refused("0F0 0F1 0BW1 0BW0\n1F0 1BW0 1F1 1BW1\n", has=["0BW0 at position 3 of pp 0", "microbatch order", "[0BW0]"])
        self.file_refused("0F0 0BW0 0F1 0BW1\n1F0 1F1 1BW0 1BW1\n",
                          has=["deadlock: pp 0 in", "pp 1 in", "wait for each other", "[0BW0]", "[1F1]"])
        self.file_refused(FORWARD + "1F0 1BW0 1F1 1BW1 1F1\n", has=["1F1 at position 4 of pp 1", "[1F1]"])
        self.file_refused(FORWARD + "1F0 1BW0 1F1 1BW1\n2F0 2BW0 2F1 2BW1\n", has=["table.txt is for 3 pp coordinates", "mesh.pp is 2", "set mesh.pp=3"])
        self.file_refused(FORWARD + "2F0 2BW0 2F1 2BW1\n", has=["no pp coordinate runs stage 1"])
        self.file_refused(FORWARD + "1F0 1F1 0BW0 1BW0 1BW1\n", has=["0BW0", "pp 1"])
        self.file_refused("0F0 0F1\n1F0 1F1\n", has=["table.txt has no backward action", "write a BW, or a B and a W"])
        self.file_refused("# nothing\n", has=["table.txt holds no stage action"])
        self.refused("parallel.schedule=./", has=["./", "cannot be read"])

    def test_a_placement_is_a_list(self):
        self.refused("parallel.placement=0", has=["parallel.placement", "array", "the number 0"])

    def test_words_that_are_no_actions_are_named_with_their_line(self):
        # What is sent follows from the model: a file that says it is refused, so no send can lack its receive.
        for word in ("send", "send0", "1BX0", "1F", "F0", "-1F0", "1F99999999999"):
            self.file_refused(f"# a comment\n{FORWARD}1F0 {word} 1BW0 1F1 1BW1\n", has=[f'table.txt line 3, word 2: "{word}"', "F, B, W or BW"])

    def test_canaries_name_what_exists(self):
        finished = orthant("parity", *self.words("pp=2"), "--inject", "skip-reduce=pp:layers.9.mlp.w1.weight", cwd=self.folder)
        self.assertEqual(finished.returncode, 2, finished.stderr)
        self.assertIn("layers.9", finished.stderr)


class Mismatch(Folder):
    """Ranks of a foreign launcher, each in a folder of its own, with files of one name and other contents."""

    def start(self, rank, port, setting, contents):
        folder = self.path(f"{setting.partition('=')[0]}-{rank}")
        os.mkdir(folder)
        for name, text in (("config.json", json.dumps(CONFIG)), (setting.partition("=")[2], contents)):
            with open(os.path.join(folder, name), "w") as f:
                f.write(text)
        env = clean_environment(RANK=rank, WORLD_SIZE=2, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                                TORCHELASTIC_RUN_ID=f"mismatch-{port}")
        command = [ORTHANT, "train", *self.words("pp=2", setting), "--steps", "2", "--timeout", "20", "--output_dir", self.path(f"run-{setting}")]
        job = subprocess.Popen(command, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(job.kill)
        return job

    def test_ranks_whose_files_cut_the_model_in_other_ways_do_not_train(self):
        costs = [json.dumps({unit: 9.0 if unit == heavy else 1.0 for unit in UNITS}) for heavy in ("layers.0", "layers.3")]
        tables = [FORWARD + "1F0 1BW0 1F1 1BW1\n", "0F0 0F1 1F0 1F1 1BW0 1BW1 0BW0 0BW1\n2F0 2BW0 2F1 2BW1\n"]
        for setting, contents in (("parallel.schedule=table.txt", tables), ("parallel.split_costs=costs.json", costs)):
            with self.subTest(setting), socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
                free.close()
                jobs = [self.start(rank, port, setting, text) for rank, text in enumerate(contents)]
                ends = [(job.communicate(timeout=60)[1], job.returncode) for job in jobs]
                for errors, code in ends:
                    self.assertEqual(code, 2, errors)
                    self.assertIn("on rank 0", errors)
                    self.assertIn("on rank 1", errors)
                self.assertFalse(os.path.exists(self.path(f"run-{setting}")))


class Failures(Folder):
    def start(self, mesh, *more):
        """An endless run, some steps old; most of a step is spent in stages."""
        run = f"run-{len(os.listdir(self.folder))}"
        words = self.words(mesh, "parallel.microbatches=32")
        job = subprocess.Popen([ORTHANT, "train", *words, "--output_dir", run, *more], cwd=self.folder, env=clean_environment(),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(job.kill)
        metrics = self.path(run, "metrics.jsonl")
        self.assertTrue(wait_until(lambda: os.path.exists(metrics) and os.path.getsize(metrics) > 0 or job.poll() is not None, 30))
        self.assertIsNone(job.poll())
        return job, children(job.pid)

    def disturbed(self, meshes, number, seconds, *more):
        """Sends the signal to a rank of every mesh, all at once; yields (mesh, victim, what the job said)."""
        jobs = [(mesh, victim, *self.start(mesh, *more)) for mesh, victim in meshes]
        began = time.monotonic()
        for mesh, victim, job, ranks in jobs:
            os.kill(ranks[victim], number)
        for mesh, victim, job, ranks in jobs:
            _, errors = job.communicate(timeout=60)
            self.assertLess(time.monotonic() - began, seconds, (mesh, victim))
            self.assertEqual(job.returncode, 3, errors)
            self.assertFalse(any(is_alive(pid) for pid in ranks), (mesh, victim))
            yield mesh, victim, errors

    def check_report(self, mesh, victim, errors, waited):
        """Every rank's last action is there; the ranks beside the victim say what they wait for. False when the signal fell between two steps."""
        ranks = int(mesh[3:])
        _, separator, block = errors.partition("\nlast actions:\n")
        self.assertTrue(separator, errors)
        actions = re.findall(r"^  rank (\d): (.+)$", block, re.MULTILINE)[:ranks]
        self.assertEqual([int(rank) for rank, _ in actions], list(range(ranks)), errors)
        reports = [line for line in errors.partition("\northant: rank")[0].splitlines() if re.search(r"^\[rank \d\] error: ", line)]
        self.assertNotIn(f"[rank {victim}] error", errors)
        if not any(re.search(WAITS, line) for line in reports):
            self.assertIn("sum of loss and norm", block)
            return False
        named = set()
        for line in reports:
            found = re.search(WAITS, line)
            if found is None:
                continue
            rank, stage, what, _, peer = found.groups()
            self.assertTrue(line.startswith(f"[rank {rank}] error: "), line)
            self.assertEqual((stage, abs(int(peer) - int(rank))), (rank, 1), line)
            self.assertEqual(what, "activations" if peer < rank else "gradients", line)
            if waited:  # a death is seen at once, when others may still compute
                self.assertIn(found.group().partition(" stage ")[2], dict(actions)[rank], errors)
            named.add(int(peer))
        self.assertIn(victim, named, errors)
        return True

    def reported(self, meshes, *disturbance):
        for _ in range(5):  # a signal between two steps finds everybody at the sum of losses; another one will not
            meshes = [(mesh, victim) for mesh, victim, errors in self.disturbed(meshes, *disturbance)
                      if not self.check_report(mesh, victim, errors, disturbance[0] == signal.SIGSTOP)]
            if not meshes:
                return
        self.fail(f"{meshes}: no rank was found waiting for a stage")

    def test_a_killed_rank_is_reported_by_those_that_wait_for_it(self):
        for mesh, victim in (("pp=2", 0), ("pp=2", 1), ("pp=4", 0), ("pp=4", 2)):
            with self.subTest(mesh=mesh, victim=victim):
                self.reported([(mesh, victim)], signal.SIGKILL, 5)

    def test_a_rank_killed_over_gloo(self):
        for mesh, victim, errors in self.disturbed([("pp=2", 1)], signal.SIGKILL, 5, "--backend", "gloo"):
            self.assertRegex(errors, r"\[rank 0\] error: .*peer: rank 1")
            self.assertRegex(errors, r"\northant: rank 1: killed by SIGKILL\nlast actions:\n  rank 0: .+\n  rank 1: killed by SIGKILL after: ")

    def test_the_launcher_blames_the_killed_rank(self):
        for mesh, victim, errors in self.disturbed([("pp=4", 1)], signal.SIGKILL, 5):
            self.assertIn(f"\northant: rank {victim}: killed by SIGKILL\nlast actions:\n", errors)
            self.assertRegex(errors, rf"\n  rank {victim}: killed by SIGKILL after: \S+")

    def test_a_stopped_rank_is_reported_within_the_timeout(self):
        self.reported([("pp=2", 1), ("pp=4", 2)], signal.SIGSTOP, 9, "--timeout", "3")

    def test_other_axes_beside_it(self):
        for mesh, victim, errors in self.disturbed([("pp=2,dp=2", 3), ("pp=2,tp=2", 3), ("fsdp=2,tp=2", 1)], signal.SIGKILL, 5):
            self.assertIn(f"orthant: rank {victim}: killed by SIGKILL", errors)
            self.assertEqual(len(re.findall(r"^  rank \d: ", errors.partition("\nlast actions:\n")[2], re.MULTILINE)), 4, errors)
            self.assertNotRegex(errors, r"waiting for \w+ of microbatch \d+ from rank 0\b.*rank 3 is gone")


if __name__ == "__main__":
    unittest.main()
