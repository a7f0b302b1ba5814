"""Two hosts, made of network namespaces joined by a virtual cable: launchers meet, ranks talk and train, failures cross. Needs root."""
import json
import os
import re
import signal
import subprocess
import unittest

from program import ORTHANT, FolderTest, clean_environment, is_alive, only_json, run, wait_until

HOSTS = ("orthant-a", "orthant-b")
ADDRESSES = ("10.213.77.1", "10.213.77.2")

STEPS, MICROBATCHES, ROWS, TOKENS, CHANNELS, VOCABULARY = 4, 4, 16, 16, 64, 4096
CONFIG = {"name": "two-hosts", "seed": 3,
          "model": {"kind": "llama", "preset": "llama-tiny", "hidden_size": CHANNELS, "num_hidden_layers": 4, "vocab_size": VOCABULARY},
          "data": {"kind": "tokens", "sequence_length": TOKENS, "samples": 64},
          "parallel": {"microbatches": MICROBATCHES, "sequence_parallel": True, "loss_parallel": True},
          "optimizer": {"kind": "adamw", "lr": 1e-2, "clip": 0.5}, "train": {"global_batch_size": ROWS, "steps": STEPS}}
TABLE_GRADIENTS = STEPS * VOCABULARY * CHANNELS * 4  # bytes; embedding and head, one on each stage, have such a table


class TwoHosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.remove()
        cls.ip("link", "add", "oveth0", "type", "veth", "peer", "name", "oveth1")
        for i, host in enumerate(HOSTS):
            cls.ip("netns", "add", host)
            cls.ip("link", "set", f"oveth{i}", "netns", host)
            cls.ip("-n", host, "addr", "add", f"{ADDRESSES[i]}/24", "dev", f"oveth{i}")
            cls.ip("-n", host, "link", "set", f"oveth{i}", "up")
            cls.ip("-n", host, "link", "set", "lo", "up")

    @classmethod
    def tearDownClass(cls):
        cls.remove()

    @classmethod
    def remove(cls):
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", host], capture_output=True)
        subprocess.run(["ip", "link", "del", "oveth0"], capture_output=True)

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def start(self, node, program, nproc=2, timeout=30):
        words = ["ip", "netns", "exec", HOSTS[node], ORTHANT, "launch", "--nproc", str(nproc), "--nnodes", "2", "--node_rank", str(node),
                 "--rendezvous", f"{ADDRESSES[0]}:29400", "--timeout", str(timeout), "--", *program]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
                                env=clean_environment())


class Hosts(TwoHosts):
    def test_ranks_of_two_hosts_talk(self):
        jobs = [self.start(node, [ORTHANT, "doctor", "--mesh", "dp=2,tp=2", "--json"]) for node in (1, 0)]
        results = [job.communicate(timeout=60) for job in jobs]
        for job, (_, errors) in zip(jobs, results):
            self.assertEqual(job.returncode, 0, errors)
        text = "".join(line.split("] ", 1)[1] for line in results[1][0].splitlines(keepends=True))
        document = json.loads(text)
        self.assertEqual(document["check"]["world_size"], 4)
        backends = {g["group"]: g["backend"] for g in document["check"]["groups"]}
        self.assertEqual(backends, {"dp": "gloo", "tp": "shm", "world": "gloo"})

    def test_a_rank_that_dies_on_one_host_ends_the_job_on_both(self):
        program = ["sh", "-c", 'if [ "$RANK" = 3 ]; then kill -9 $$; fi; exec sleep 60']
        jobs = [self.start(node, program) for node in (0, 1)]
        for job in jobs:
            _, errors = job.communicate(timeout=20)
            self.assertEqual(job.returncode, 3, errors)
            self.assertIn("rank 3: killed by SIGKILL", errors)

    def test_a_host_that_never_comes_is_named(self):
        job = self.start(0, ["true"], timeout=1)
        _, errors = job.communicate(timeout=20)
        self.assertEqual(job.returncode, 3, errors)
        self.assertIn("these never arrived: 1", errors)


class Training(FolderTest, TwoHosts):
    """Stages on two hosts, replicas or shares of a layer inside each."""

    def setUp(self):
        super().setUp()
        with open(self.path("config.json"), "w") as f:
            json.dump(CONFIG, f)

    def command(self, run, mesh, *words):
        return [ORTHANT, "train", "--config", self.path("config.json"), "--output_dir", self.path(run), "--mesh", mesh, "--json", *words]

    def traffic(self):
        """Per host, bytes that its loopback and its end of the cable have sent."""
        found = []
        for i, host in enumerate(HOSTS):
            text = run("ip", "netns", "exec", host, "cat", "/proc/net/dev").stdout
            sent = {line.split(":")[0].strip(): int(line.split(":")[1].split()[8]) for line in text.splitlines()[2:]}
            found.append((sent["lo"], sent[f"oveth{i}"]))
        return found

    def train(self, mesh, *words):
        """The result of two hosts, that of one, and what each of the two sent inside itself and over the cable."""
        before = self.traffic()
        jobs = [self.start(node, self.command(f"two-{mesh}", mesh, *words)) for node in (0, 1)]
        for job in jobs:
            self.addCleanup(job.kill)
        one = only_json(self, run(*self.command(f"one-{mesh}", mesh, *words)))
        results = [job.communicate(timeout=60) for job in jobs]
        for job, (_, errors) in zip(jobs, results):
            self.assertEqual(job.returncode, 0, errors)
        self.assertEqual(results[1][0], "")
        sent = [tuple(b - a for a, b in zip(*host)) for host in zip(before, self.traffic())]
        return json.loads(results[0][0].removeprefix("[rank 0] ")), one, sent

    def check(self, mesh, inside_bytes):
        """Bits of one host; every stage boundary crosses the cable, and nothing of what travels inside a host its loopback."""
        two, one, sent = self.train(mesh)
        for key in ("steps", "final_loss", "mesh", "world_size", "parameters", "weights_hash"):
            self.assertEqual(two[key], one[key], (mesh, key))
        messages = STEPS * ROWS * TOKENS * CHANNELS * 4
        for host, (loopback, cable) in zip(HOSTS, sent):
            self.assertGreater(cable, messages, host)
            self.assertLess(cable, messages + inside_bytes / 2, host)
            self.assertLess(loopback, inside_bytes / 4, host)

    def test_stages_across_hosts_and_replicas_inside(self):
        self.check("pp=2,dp=2", TABLE_GRADIENTS)

    def test_stages_across_hosts_and_tensor_and_sequence_parallelism_inside(self):
        self.check("pp=2,tp=2", STEPS * 4 * 8 * ROWS * TOKENS * CHANNELS * 4)  # four gathers and four scatters in each of four layers

    def test_gloo_inside_a_host_would_be_seen_on_its_loopback(self):
        two, one, sent = self.train("pp=2,dp=2", "--backend", "gloo")
        self.assertEqual(two["weights_hash"], one["weights_hash"])
        for host, (loopback, _) in zip(HOSTS, sent):
            self.assertGreater(loopback, TABLE_GRADIENTS, host)

    def test_a_rank_killed_on_the_second_host_ends_both_launchers_with_its_name(self):
        words = ("--set", "train.steps=1000000")
        jobs = [self.start(node, self.command("endless", "pp=2,dp=2", *words)) for node in (0, 1)]
        for job in jobs:
            self.addCleanup(job.kill)
        metrics = self.path("endless", "metrics.jsonl")
        self.assertTrue(wait_until(lambda: os.path.exists(metrics) and os.path.getsize(metrics) > 0, 30))
        pids = []
        for rank in range(4):
            with open(self.path("endless", "log", f"rank-{rank}.log")) as f:
                pids.append(int(re.search(r"started: host .*, process (\d+), at ", f.read()).group(1)))
        os.kill(pids[3], signal.SIGKILL)
        for job in jobs:
            _, errors = job.communicate(timeout=20)
            self.assertEqual(job.returncode, 3, errors)
            self.assertRegex(errors, r"orthant: (node 1, )?rank 3: killed by SIGKILL\n")
            self.assertNotRegex(errors, r"orthant: (node \d, )?rank [012]:")
        self.assertTrue(wait_until(lambda: not any(map(is_alive, pids)), 5))


if __name__ == "__main__":
    unittest.main()
