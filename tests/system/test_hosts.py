"""Two hosts, made of network namespaces joined by a virtual cable: launchers meet, ranks talk and train, failures cross. Needs root."""
import json
import os
import re
import secrets
import signal
import subprocess
import time
import unittest

from program import ORTHANT, FolderTest, clean_environment, is_alive, only_json, run, wait_until

HOSTS = ("orthant-a", "orthant-b")
TOKEN = secrets.token_hex(32)
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

    def start(self, node, program, nproc=2, timeout=30, token={"ORTHANT_TOKEN": TOKEN}):
        words = ["ip", "netns", "exec", HOSTS[node], ORTHANT, "launch", "--nproc", str(nproc), "--nnodes", "2", "--node_rank", str(node),
                 "--rendezvous", f"{ADDRESSES[0]}:29400", "--timeout", str(timeout), "--", *program]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
                                env=clean_environment(**token))


class Hosts(TwoHosts):
    def test_ranks_of_two_hosts_talk(self):
        jobs = [self.start(node, [ORTHANT, "doctor", "--mesh", "dp=2,tp=2", "--json"]) for node in (1, 0)]
        results = [job.communicate(timeout=60) for job in jobs]
        for job, (_, errors) in zip(jobs, results):
            self.assertEqual(job.returncode, 0, errors)
        text = results[1][0]
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

    def test_without_a_token_they_are_refused_with_the_way_to_make_one(self):
        for node in (0, 1):
            job = self.start(node, ["true"], token={})
            _, errors = job.communicate(timeout=20)
            self.assertEqual(job.returncode, 2, errors)
            self.assertIn("2 hosts without a job token", errors)
            self.assertIn("orthant launch --make-token FILE", errors)

    def test_with_another_token_a_host_is_kept_out_and_both_say_why(self):
        jobs = [self.start(0, ["true"], timeout=2), self.start(1, ["true"], timeout=1, token={"ORTHANT_TOKEN": secrets.token_hex(32)})]
        errors = [job.communicate(timeout=20)[1] for job in jobs]
        self.assertEqual([job.returncode for job in jobs], [3, 3], errors)
        self.assertIn(f"a connection from {ADDRESSES[1]} to the launcher of node 0 at {ADDRESSES[0]}:29400 did not prove that it belongs to the job "
                      "and was turned away: its token is not the token of this job", errors[0])
        self.assertIn("did not prove to be node 0 of this job: it did not accept this side's token; trying again", errors[1])
        self.assertIn("give every host the same token", errors[1])

    def test_a_host_that_never_comes_is_named(self):
        job = self.start(0, ["true"], timeout=1)
        _, errors = job.communicate(timeout=20)
        self.assertEqual(job.returncode, 3, errors)
        self.assertIn("these never arrived: 1", errors)


class TrainingTest(FolderTest, TwoHosts):
    def setUp(self):
        super().setUp()
        with open(self.path("config.json"), "w") as f:
            json.dump(CONFIG, f)

    def command(self, run, mesh, *words):
        return [ORTHANT, "train", "--config", self.path("config.json"), "--output_dir", self.path(run), "--mesh", mesh, "--json", *words]


class Training(TrainingTest):
    """Stages on two hosts, replicas or shares of a layer inside each."""

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
        return json.loads(results[0][0]), one, sent

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

    def ranks_by_hand(self, folder, words, environment=None):
        """One rank on each host that no launcher of ours started."""
        ranks = []
        for rank in (0, 1):
            command = ["ip", "netns", "exec", HOSTS[rank], *self.command(folder, "dp=2"), "--rank", str(rank), "--world-size", "2", "--timeout", "20",
                       "--rendezvous", f"{ADDRESSES[0]}:29500", *words]
            ranks.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
                                          env=clean_environment(**(environment or {}))))
            self.addCleanup(ranks[-1].kill)
        return [(rank.communicate(timeout=60), rank.returncode) for rank in ranks]

    def test_ranks_of_a_foreign_launcher_know_each_other_by_the_token(self):
        one = only_json(self, run(*self.command("one", "dp=2")))
        with open(os.open(self.path("job.token"), os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
            f.write(TOKEN + "\n")
        for name, words, environment in (("file", ["--token-file", self.path("job.token")], {}), ("variable", [], {"ORTHANT_TOKEN": TOKEN}),
                                         ("open", ["--no-token"], {})):
            (((out, errors), code), ((_, other_errors), other_code)) = self.ranks_by_hand(name, words, environment)
            self.assertEqual((code, other_code), (0, 0), errors + other_errors)
            self.assertEqual(json.loads(out)["weights_hash"], one["weights_hash"])
        for (_, errors), code in self.ranks_by_hand("none", []):
            self.assertEqual(code, 2, errors)
            self.assertIn("2 ranks on several hosts without a job token", errors)

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

    def test_a_cable_that_is_cut_ends_both_launchers_soon_after_the_timeout(self):
        words = ("--set", "train.steps=1000000", "--timeout", "3")
        jobs = [self.start(node, self.command("cut", "pp=2,dp=2", *words)) for node in (0, 1)]
        for job in jobs:
            self.addCleanup(job.kill)
        metrics = self.path("cut", "metrics.jsonl")
        self.assertTrue(wait_until(lambda: os.path.exists(metrics) and os.path.getsize(metrics) > 0, 30))
        self.addCleanup(self.ip, "-n", HOSTS[1], "link", "set", "oveth1", "up")
        self.ip("-n", HOSTS[1], "link", "set", "oveth1", "down")
        began = time.monotonic()
        for job in jobs:
            _, errors = job.communicate(timeout=60)
            self.assertEqual(job.returncode, 3, errors)
            self.assertIn("orthant: ", errors)
        self.assertLess(time.monotonic() - began, 15)  # the system itself notices after 20 s


# mpirun's way to a host: it starts its daemon there, under a name that its files in /tmp are told apart by.
MPI_AGENT = f"""#!/bin/sh
case $1 in {ADDRESSES[0]}) host={HOSTS[0]};; *) host={HOSTS[1]};; esac
shift
exec ip netns exec $host unshare --uts sh -c "hostname $host; $*"
"""


class OpenMpi(TrainingTest):
    def test_ranks_that_mpirun_starts_on_two_hosts_train_with_the_bits_of_one(self):
        with open(self.path("agent"), "w") as file:
            file.write(MPI_AGENT)
        os.chmod(self.path("agent"), 0o755)
        mpirun = ["mpirun", "--allow-run-as-root", "--host", ",".join(f"{address}:2" for address in ADDRESSES), "--mca", "plm_rsh_agent", self.path("agent"),
                  "--mca", "oob_tcp_if_include", f"{ADDRESSES[0]}/24", "-x", "ORTHANT_TOKEN", "-n", "4"]
        place = ["ip", "netns", "exec", HOSTS[0], "unshare", "--uts", "sh", "-c", f'hostname {HOSTS[0]}; exec "$@"', "sh"]
        for mesh in ("pp=2,dp=2", "dp=2,tp=2"):
            one = only_json(self, run(*self.command(f"one-{mesh}", mesh)))
            two = only_json(self, run(*place, *mpirun, *self.command(f"two-{mesh}", mesh), "--rendezvous", f"{ADDRESSES[0]}:29400",
                                      env=clean_environment(ORTHANT_TOKEN=TOKEN)))
            for key in ("steps", "final_loss", "mesh", "world_size", "weights_hash"):
                self.assertEqual(two[key], one[key], (mesh, key))


if __name__ == "__main__":
    unittest.main()
