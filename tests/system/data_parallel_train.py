"""orthant train on many ranks: the numbers of one rank, one output folder, one way to stop, and checkpoints for any mesh."""
import json
import os
import re
import signal
import socket
import subprocess
import unittest

from program import ORTHANT, SOURCE, FolderTest, children, clean_environment, is_alive, only_json, orthant, wait_until

LLAMA = os.path.join(SOURCE, "configs", "llama_tiny.json")
SMALL = ("--set", "model.num_hidden_layers=2", "--set", "model.hidden_size=32", "--set", "model.intermediate_size=48",
         "--set", "data.sequence_length=16", "--set", "data.samples=126", "--set", "train.global_batch_size=12",
         "--set", "train.steps=6", "--set", "train.eval_every=3", "--set", "lr_schedule.warmup_steps=3")


class RanksTest(FolderTest):
    def train(self, *words, code=0, **options):
        finished = orthant("train", "--config", LLAMA, *SMALL, *words, cwd=self.folder, **options)
        self.assertEqual(finished.returncode, code, finished.stderr)
        return finished

    def lines(self, run, name="metrics.jsonl"):
        with open(self.path(run, name)) as f:
            return [json.loads(line) for line in f]

    def assert_same_training(self, run, expected):
        """Counts are equal, numbers equal but for the rounding of float32."""
        evaluations = {line["step"]: line for line in self.lines(run, "eval.jsonl")}  # a run that stops evaluates then
        for name in ("metrics.jsonl", "eval.jsonl"):
            all_wanted = self.lines(expected, name)
            all_found = self.lines(run, name) if name == "metrics.jsonl" else [evaluations[line["step"]] for line in all_wanted]
            for found, wanted in zip(all_found, all_wanted, strict=True):
                self.assertEqual(set(found), set(wanted))
                for key, value in wanted.items():
                    if "second" in key or key == "peak_memory_bytes":
                        self.assertGreater(found[key], 0)
                    elif isinstance(value, int):
                        self.assertEqual(found[key], value, key)
                    else:
                        self.assertAlmostEqual(found[key], value, delta=1e-4 * max(1, abs(value)), msg=key)


class Training(RanksTest):
    def test_any_mesh_trains_as_one_rank_and_goes_on_from_another(self):
        one = only_json(self, self.train("--output_dir", "one", "--json"))
        run = self.train("--output_dir", "run", "--mesh", "fsdp=2", "--json")
        result = only_json(self, run)
        self.assertEqual(set(result), set(one))
        self.assertEqual((result["world_size"], result["mesh"]["fsdp"], result["output_dir"]), (2, 2, "run"))
        self.assertEqual((result["steps"], result["parameters"]), (one["steps"], one["parameters"]))
        for name, value in one["eval"].items():
            self.assertAlmostEqual(result["eval"][name], value, delta=1e-4 * value)
        self.assert_same_training("run", "one")
        self.assertNotIn("[rank 1]", run.stderr)
        self.assertEqual(sorted(os.listdir(self.path("run"))),
                         [".lock", "checkpoints", "config.json", "eval.jsonl", "flight", "log", "metrics.jsonl", "result.json", "tensorboard"])
        self.assertEqual(sorted(os.listdir(self.path("run", "checkpoints"))), ["best", "latest", "step-6"])
        self.assertEqual(sorted(os.listdir(self.path("run", "checkpoints", "step-6"))),
                         ["manifest.json", "rank-0.safetensors", "rank-1.safetensors"])
        self.assertEqual(sorted(os.listdir(self.path("run", "log"))), ["launcher.jsonl", "rank-0.log", "rank-1.log"])
        with open(self.path("run", "log", "rank-1.log")) as f:
            log = f.read()
        self.assertRegex(log.splitlines()[0], r"Z rank 1 of 2 started: host \S+, process \d+, at fsdp=1 of mesh fsdp=2, device cpu$")
        self.assertRegex(log.splitlines()[-1], "Z done after step 6$")

        # A mesh that another goes on from, and one rank that goes on from that.
        self.train("--output_dir", "parts", "--mesh", "fsdp=2", "--steps", "3")
        self.train("--output_dir", "parts", "--mesh", "dp=3", "--steps", "4", "--resume", "auto")
        resumed = self.train("--output_dir", "parts", "--resume", "auto")
        self.assertIn("at step 4", resumed.stderr)
        self.assert_same_training("parts", "one")
        self.assertEqual(sorted(os.listdir(self.path("parts", "log"))), ["launcher.jsonl", "rank-0.log", "rank-1.log", "rank-2.log"])

    def test_an_explicit_zero_shards_over_dp(self):
        shards = only_json(self, self.train("--output_dir", "fsdp", "--mesh", "fsdp=2", "--set", "parallel.zero=2", "--json"))
        said = self.train("--output_dir", "dp", "--mesh", "dp=2", "--set", "parallel.zero=2", "--json")
        self.assertEqual(said.stderr.count("note: parallel.zero=2 shards over dp: mesh dp=2 trains as fsdp=2"), 1, said.stderr)
        found = only_json(self, said)
        self.assertEqual((found["weights_hash"], found["mesh"]), (shards["weights_hash"], shards["mesh"]))
        for mesh in ("fsdp=3", "dp=1", "tp=2"):
            loaded = only_json(self, self.train("--output_dir", mesh, "--mesh", mesh, "--resume", self.path("dp", "checkpoints", "step-6"), "--json"))
            self.assertEqual(loaded["weights_hash"], found["weights_hash"])
        # The folder's own configuration goes on as it began; replicas stay replicas.
        for run, mesh in (("dp", {"fsdp": 2}), ("replicas", {"dp": 2})):
            if run == "replicas":
                self.train("--output_dir", run, "--mesh", "dp=2", "--steps", "1")
            again = orthant("train", "--config", self.path(run, "config.json"), "--output_dir", self.path(run), "--resume", "auto", "--json")
            self.assertEqual({axis: degree for axis, degree in only_json(self, again)["mesh"].items() if degree > 1}, mesh)
        for shown in (self.train("--mesh", "dp=2", "--set", "parallel.zero=1", "--print-config"),
                      self.train("--mesh", "dp=2", "--set", "parallel.zero=1", "--dry-run")):
            self.assertIn("parallel.zero=1 shards over dp: mesh dp=2 trains as fsdp=2", shown.stderr)

    def test_loading_changes_no_bit(self):
        saved = only_json(self, self.train("--output_dir", "run", "--mesh", "dp=2,fsdp=2", "--set", "parallel.zero=2",
                                           "--steps", "1", "--json"))
        for mesh in ("fsdp=3", "dp=1"):
            loaded = only_json(self, self.train("--output_dir", mesh, "--mesh", mesh, "--steps", "1", "--resume",
                                                self.path("run", "checkpoints", "step-1"), "--json"))
            self.assertEqual(loaded["weights_hash"], saved["weights_hash"])

    def test_other_commands_read_the_checkpoint(self):
        self.train("--output_dir", "run", "--mesh", "fsdp=3,dp=2", "--steps", "1")
        checkpoint = self.path("run", "checkpoints", "step-1")
        self.assertEqual(len(os.listdir(checkpoint)), 7)
        facts = only_json(self, orthant("checkpoint", "inspect", checkpoint, "--json"))
        self.assertEqual((facts["step"], facts["mesh"]), (1, "dp=2,fsdp=3"))
        self.assertEqual(orthant("checkpoint", "verify", checkpoint).returncode, 0)
        exported = orthant("checkpoint", "export", checkpoint, "--format", "huggingface", self.path("exported"))
        self.assertEqual(exported.returncode, 0, exported.stderr)
        from safetensors.numpy import load_file
        tensors = load_file(self.path("exported", "model.safetensors"))
        self.assertEqual(tensors["model.layers.1.self_attn.q_proj.weight"].shape, (32, 32))
        again = orthant("checkpoint", "import", self.path("exported"), self.path("imported"))
        self.assertEqual(again.returncode, 0, again.stderr)
        hashes = {only_json(self, self.train("--output_dir", f"from-{mesh}", "--mesh", mesh, "--steps", "0", "--json", "--resume",
                                             self.path("imported")))["weights_hash"] for mesh in ("fsdp=2", "dp=1")}
        self.assertEqual(len(hashes), 1)


class Stopping(RanksTest):
    def stopped(self, run, mesh, victim):
        """Starts an endless run, asks whoever victim names to end, and gives the steps that were saved."""
        job = subprocess.Popen([ORTHANT, "train", "--config", LLAMA, *SMALL, "--set", "train.steps=1000000", "--set", "train.eval_every=0",
                                "--output_dir", run, "--mesh", mesh],
                               cwd=self.folder, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        metrics = self.path(run, "metrics.jsonl")
        self.assertTrue(wait_until(lambda: os.path.exists(metrics) and os.path.getsize(metrics) > 0, 30))
        ranks = children(job.pid)
        os.kill(victim(job, ranks), signal.SIGTERM)
        output, errors = job.communicate(timeout=30)
        self.assertEqual(job.returncode, 75, errors)
        self.assertIn("weights hash", output)
        self.assertFalse(any(is_alive(pid) for pid in ranks))
        (saved,) = (name for name in os.listdir(self.path(run, "checkpoints")) if name != "latest")
        self.assertEqual(saved, f"step-{self.lines(run)[-1]['step']}")
        for rank in range(len(ranks)):
            with open(self.path(run, "log", f"rank-{rank}.log")) as f:
                self.assertIn(f"stopped on request after {saved.replace('-', ' ')}", f.read())

    def test_a_signal_to_the_launcher_saves_and_exits_75(self):
        self.stopped("run", "fsdp=2", lambda job, ranks: job.pid)
        step = self.lines("run")[-1]["step"]
        resumed = self.train("--output_dir", "run", "--resume", "auto", "--mesh", "dp=3", "--set", "train.steps=1000000", "--steps", step + 1)
        self.assertIn(f"at step {step}", resumed.stderr)

    def test_a_signal_to_one_rank_stops_all(self):
        self.stopped("run", "dp=2,fsdp=2", lambda job, ranks: ranks[2])


class Failing(RanksTest):
    def test_an_error_of_all_is_said_once(self):
        self.train("--output_dir", "run", "--mesh", "dp=2", "--steps", "2")
        finished = self.train("--output_dir", "other", "--mesh", "fsdp=2", "--resume", "run/checkpoints/step-9", code=4)
        self.assertEqual(len(re.findall(r"error: .*step-9: no such checkpoint folder", finished.stderr)), 1, finished.stderr)  # before a rank is started
        self.assertNotIn("[rank", finished.stderr)
        self.assertFalse(os.path.exists(self.path("other")))
        with open(self.path("run", "checkpoints", "step-2", "rank-1.safetensors"), "r+b") as f:
            f.seek(-1, os.SEEK_END)
            f.write(b"\x7f")
        finished = self.train("--output_dir", "run", "--mesh", "dp=3", "--resume", self.path("run", "checkpoints", "step-2"), code=4)
        self.assertIn("rank-1.safetensors: hash", finished.stderr)
        self.assertEqual(len({line.split("]")[0] for line in finished.stderr.splitlines() if line.startswith("[rank")}), 1, finished.stderr)
        self.assertRegex(finished.stderr, r"orthant: rank \d: exit code 4")  # of the rank that hashed it
        self.train("--output_dir", "run", "--mesh", "dp=3", "--resume", "auto", code=4)
        with open(self.path("run", "log", "rank-2.log")) as f:
            self.assertIn("none of its 1 checkpoints can be resumed", f.read())

    def test_a_folder_in_use_is_refused(self):
        self.train("--output_dir", "run", "--mesh", "dp=2", "--steps", "2")
        with open(self.path("run", ".lock"), "r+") as lock:
            import fcntl
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assertIn("in use", self.train("--output_dir", "run", "--mesh", "dp=2", "--resume", "auto", code=2).stderr)

    def test_a_backend_that_moves_nothing_is_refused(self):
        self.assertIn("--backend fake", self.train("--mesh", "dp=2", "--backend", "fake", code=2).stderr)
        self.assertEqual(os.listdir(self.folder), [])


class Mismatch(RanksTest):
    def start(self, rank, port, *words):
        env = clean_environment(RANK=rank, WORLD_SIZE=2, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                                TORCHELASTIC_RUN_ID="mismatch")
        command = [ORTHANT, "train", "--config", LLAMA, *SMALL, "--mesh", "fsdp=2", "--output_dir", self.path("run"), "--timeout", "20", *words]
        return subprocess.Popen(command, env=env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_ranks_with_different_configurations_stop_before_the_first_step_and_name_the_key(self):
        for words, text in ((("--set", "optimizer.lr=0.002"), "optimizer.lr is 0.003 on rank 0 and 0.002 on rank 1"),
                            (("--set", "parallel.zero=1"), "parallel.zero is 3 on rank 0 and 1 on rank 1"),
                            (("--steps", "4"), "--steps is -1 on rank 0 and 4 on rank 1")):
            with self.subTest(words), socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
                free.close()
                jobs = [self.start(0, port), self.start(1, port, *words)]
                for job in jobs:
                    _, errors = job.communicate(timeout=60)
                    self.assertEqual(job.returncode, 2, errors)
                    self.assertIn(f"ranks were given different configurations: {text}", errors)
                self.assertFalse(os.path.exists(self.path("run")))


if __name__ == "__main__":
    unittest.main()
