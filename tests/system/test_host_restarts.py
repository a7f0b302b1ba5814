"""Trainings on several hosts that lose ranks and hosts and go on: hosts are network namespaces. Needs root."""
import contextlib
import hashlib
import json
import os
import re
import secrets
import signal
import subprocess
import unittest

from host_network import HostNetwork
from program import ORTHANT, FolderTest, children, is_alive, only_json, orthant, wait_until

STEPS = 60
CONFIG = {"name": "hosts", "seed": 3,
          "model": {"kind": "llama", "preset": "llama-tiny", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
                    "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 67},
          "data": {"kind": "tokens", "sequence_length": 16, "samples": 256}, "parallel": {"microbatches": 4},
          "train": {"global_batch_size": 16, "steps": STEPS}, "checkpoint": {"save_every": 5}}
PATIENT = ("--timeout", "60")
QUICK = ("--timeout", "4")  # until a silent launcher is lost


def files_of(folder):
    """A hash of every file by its path."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(place, name), "rb") as f:
                found[os.path.relpath(os.path.join(place, name), folder)] = hashlib.sha256(f.read()).hexdigest()
    return found


class HostRestarts(FolderTest):
    whole = None

    @classmethod
    def setUpClass(cls):
        cls.network = HostNetwork("ohr", 3, 78)
        cls.enterClassContext(cls.network)

    def setUp(self):
        super().setUp()
        self.token, self.launchers = secrets.token_hex(32), {}
        with open(self.path("config.json"), "w") as f:
            json.dump(CONFIG, f)
        if HostRestarts.whole is None:
            HostRestarts.whole = only_json(self, orthant("train", "--config", "config.json", "--output_dir", "whole", "--mesh", "pp=2,dp=2", "--json",
                                                            cwd=self.folder))
        self.addCleanup(self.end_all)

    def end_all(self):
        for process in self.launchers.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.communicate()

    def start(self, node, *words, host=None, key=None):
        """The launcher of a node on its host, or another one."""
        key = node if key is None else key
        program = [ORTHANT, "train", "--config", "config.json", "--output_dir", "run", "--mesh", "pp=2,dp=2", "--json"]
        with open(self.path(f"errors-{key}"), "a") as errors:
            self.launchers[key] = self.network.launch(node if host is None else host, ["--nproc", 2, "--nnodes", 2, "--node_rank", node, "--max-restarts", 3,
                                                                                       *words], program, self.token, errors, cwd=self.folder)
        return self.launchers[key]

    def said(self, key):
        with open(self.path(f"errors-{key}")) as f:
            return f.read()

    def everything_said(self):
        return "\n".join(f"{key}: {self.said(key)}" for key in self.launchers)

    def step(self):
        try:
            with open(self.path("run", "metrics.jsonl")) as f:
                return f.read().count("\n")
        except OSError:
            return 0

    def wait_for(self, condition, seconds=60):
        self.assertTrue(wait_until(condition, seconds), self.everything_said())

    def end(self, *keys):
        """Waits for the end of these launchers; the result that the first of them printed."""
        results = [self.launchers[key].communicate(timeout=90)[0] for key in keys]
        self.assertEqual([self.launchers[key].returncode for key in keys], [0] * len(keys), self.everything_said())
        result = json.loads(re.search(r"\{.*\}", results[0], re.DOTALL).group())
        self.assertEqual((result["weights_hash"], result["steps"]), (self.whole["weights_hash"], STEPS))
        with open(self.path("run", "metrics.jsonl")) as f:
            self.assertEqual([json.loads(line)["step"] for line in f], list(range(1, STEPS + 1)))
        return result

    def test_a_killed_rank_and_a_killed_host_that_comes_back(self):
        for node in (0, 1):
            self.start(node, *PATIENT)
        self.wait_for(lambda: self.step() > 12)
        os.kill(children(self.launchers[1].pid)[1], signal.SIGKILL)
        again = "starting all ranks again"
        self.wait_for(lambda: self.said(0).count(again) == 1 and self.step() > 20)
        ranks = children(self.launchers[1].pid)
        self.launchers[1].kill()
        self.launchers[1].communicate()
        self.wait_for(lambda: not any(map(is_alive, ranks)), 10)
        self.start(1, *PATIENT)
        self.end(0, 1)
        self.assertRegex(self.said(0), r"orthant: node 1, rank 3: killed by SIGKILL\n(.*\n)*orthant: starting all ranks again \(1 of 3\)\n")
        self.assertRegex(self.said(0), r"orthant: node 1: its launcher is gone\n(.*\n)*orthant: starting all ranks again \(2 of 3\)\n")
        self.assertEqual(len(re.findall(r"resumed from \S+/step-\d+ at step \d+", self.said(0))), 2, self.said(0))

    def test_a_host_that_is_cut_off_joins_again(self):
        for node in (0, 1):
            self.start(node, *QUICK)
        self.wait_for(lambda: self.step() > 12)
        self.network.pull(1)
        self.addCleanup(self.network.plug, 1)
        for node in (0, 1):
            self.wait_for(lambda: re.search(r"orthant: node \d: its launcher was silent for 4\.\d s\n", self.said(node)), 20)
        self.network.plug(1)
        self.end(0, 1)
        self.assertIn("orthant: meeting the other hosts for another attempt\n", self.said(1))

    def test_a_frozen_host_that_was_replaced_writes_nothing_when_it_goes_on(self):
        for node in (0, 1):
            self.start(node, *QUICK)
        self.wait_for(lambda: self.step() > 12)
        frozen = [self.launchers[1].pid, *children(self.launchers[1].pid)]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        self.launchers["frozen"] = self.launchers.pop(1)
        os.rename(self.path("errors-1"), self.path("errors-frozen"))
        self.wait_for(lambda: "node 1: its launcher was silent" in self.said(0), 20)
        self.start(1, *QUICK, host=2)
        self.end(0, 1)
        before = files_of(self.path("run"))
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
        self.launchers["frozen"].communicate(timeout=60)
        self.assertEqual(self.launchers["frozen"].returncode, 3, self.said("frozen"))
        self.assertIn("orthant: node 0: its launcher is gone\n", self.said("frozen"))
        after = files_of(self.path("run"))
        forensic = {name for name in after if name.startswith("flight/") and name.endswith(".previous")}  # its own last events
        self.assertEqual({name for name in after if after[name] != before.get(name)} - forensic, set())
        self.assertEqual(set(before), set(after))


if __name__ == "__main__":
    unittest.main()
