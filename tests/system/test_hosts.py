"""Two hosts, made of network namespaces joined by a virtual cable: launchers meet, ranks talk, failures cross. Needs root."""
import json
import os
import subprocess
import unittest

from program import ORTHANT, clean_environment, run

HOSTS = ("orthant-a", "orthant-b")
ADDRESSES = ("10.213.77.1", "10.213.77.2")


class Hosts(unittest.TestCase):
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

    def test_ranks_of_two_hosts_talk(self):
        jobs = [self.start(node, [ORTHANT, "doctor", "--mesh", "dp=2,tp=2", "--json"]) for node in (1, 0)]
        results = [job.communicate(timeout=60) for job in jobs]
        for job, (_, errors) in zip(jobs, results):
            self.assertEqual(job.returncode, 0, errors)
        text = "".join(line.split("] ", 1)[1] for line in results[1][0].splitlines(keepends=True))
        document = json.loads(text)
        self.assertEqual(document["check"]["world_size"], 4)
        self.assertEqual({g["group"] for g in document["check"]["groups"]}, {"dp", "tp", "world"})

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


if __name__ == "__main__":
    unittest.main()
