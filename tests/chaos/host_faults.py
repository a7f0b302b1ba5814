"""Faults of hosts, which are network namespaces: links that go down for a while or for good, strangers at the ports of a job. Needs root."""
import json
import os
import secrets
import signal
import subprocess
import time

import stranger
import strangers_campaign
from disturbed_run import LONGEST, Setup, processes_of, send
from program import ORTHANT, clean_environment, wait_until
from trial import GPT2, LLAMA

TIMEOUT, LATE = 8, 12  # seconds; the launchers wait for each other in turn
LONGER = {"train": {"global_batch_size": 16, "steps": 120}, "checkpoint": {"save_every": 10}}
MESHES = (("dp=2,tp=2", 2), ("pp=2,dp=2", 2), ("fsdp=2", 1), ("pp=2", 1), ("tp=2", 1), ("dp=2,cp=2", 2))


class TwoHosts:
    """A launcher and its ranks on each of two hosts joined by a cable, with one folder for the output."""

    def __init__(self, folder, setup, ranks_per_host, *words):
        self.folder, self.tmp = folder, os.path.join(folder, "tmp")
        os.makedirs(self.tmp, exist_ok=True)
        with open(os.path.join(self.folder, "config.json"), "w") as f:
            json.dump(setup.config, f)
        self.token, self.launchers = secrets.token_hex(32), []
        for node in (0, 1):
            line = ["ip", "netns", "exec", strangers_campaign.NAMESPACES["ab"[node]], ORTHANT, "launch", "--nproc", ranks_per_host, "--nnodes", 2,
                    "--node_rank", node, "--rendezvous", f"{strangers_campaign.ADDRESS_A}:29400", "--timeout", TIMEOUT, "--", ORTHANT, "train",
                    "--config", "config.json", "--output_dir", "run", "--json", "--timeout", TIMEOUT, *setup.words, *words]
            with open(os.path.join(self.folder, f"out-{node}"), "w") as out, open(os.path.join(self.folder, f"errors-{node}"), "w") as errors:
                self.launchers.append(subprocess.Popen([*map(str, line)], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
                                                       env=clean_environment(TMPDIR=self.tmp, ORTHANT_TOKEN=self.token)))

    def said(self, node):
        with open(os.path.join(self.folder, f"errors-{node}"), errors="replace") as f:
            return f.read()

    def steps_done(self):
        try:
            with open(os.path.join(self.folder, "run", "metrics.jsonl")) as f:
                return f.read().count("\n")
        except OSError:
            return 0

    def running(self):
        return any(launcher.poll() is None for launcher in self.launchers)

    def end(self, seconds=LONGEST):
        """Exit codes of both, once they have ended or have made no step for so long; None of one that hangs, which is ended."""
        done, since = -1, time.monotonic()
        while self.running() and time.monotonic() - since < seconds:
            if self.steps_done() != done:
                done, since = self.steps_done(), time.monotonic()
            time.sleep(0.02)
        codes = [launcher.poll() for launcher in self.launchers]
        for pid in processes_of(self.tmp) if None in codes else ():
            send(pid, signal.SIGKILL)
        for launcher in self.launchers:
            launcher.wait()
        return codes

    def result(self):
        with open(os.path.join(self.folder, "out-0")) as f:
            return json.loads(f.read() or "{}")


    def wrong_end(self, expected):
        """What is wrong with the end of a job that must end like the undisturbed one."""
        codes = self.end()
        if codes != [0, 0]:
            return [f"exit codes {codes}", self.said(0), self.said(1)]
        found = self.result()["weights_hash"]
        return [] if found == expected["weights_hash"] else [f"weights_hash {found} instead of {expected['weights_hash']}"]


def link(state):
    strangers_campaign.ip("-n", strangers_campaign.NAMESPACES["b"], "link", "set", "osba", state)


def undisturbed(trial, setup, ranks_per_host):
    """The result of the job on two hosts: sums over ranks of several hosts are not added in the order of one host."""
    key = json.dumps(("two hosts", setup))
    if key not in trial.undisturbed:
        job = TwoHosts(os.path.join(trial.folder, "undisturbed"), setup, ranks_per_host)
        if job.end() != [0, 0]:
            raise RuntimeError(job.said(0) + job.said(1))
        trial.undisturbed[key] = job.result()
    return trial.undisturbed[key]


def started(trial):
    """A job on two hosts at a random moment of its training, and what the undisturbed one comes to."""
    mesh, ranks_per_host = trial.draw.choice(MESHES)
    setup = Setup({**(LLAMA if "cp" in mesh or trial.draw.random() < 0.5 else GPT2), **LONGER}, ("--mesh", mesh))
    expected = undisturbed(trial, setup, ranks_per_host)
    job = TwoHosts(trial.folder, setup, ranks_per_host)
    step = trial.draw.randrange(LONGER["train"]["steps"])
    wait_until(lambda: job.steps_done() >= step or not job.running(), 60)
    time.sleep(trial.draw.uniform(0, 0.05))
    return setup, ranks_per_host, job, expected


def no_process_left(trial, job):
    trial.check("K6", [] if wait_until(lambda: not processes_of(job.tmp), 5) else ["a process is left"])


def link_flaps(trial):
    """Out for a part of the timeout: nothing comes of it."""
    with strangers_campaign.Place("hosts"):
        _, _, job, expected = started(trial)
        link("down")
        time.sleep(trial.draw.uniform(0.05, 0.4 * TIMEOUT))
        link("up")
        wrong = job.wrong_end(expected)
        no_process_left(trial, job)
    trial.check("R4", wrong)


def link_is_cut(trial):
    """Out for good: both hosts end by name within the timeout; when it is back, the next job goes on to the same end."""
    with strangers_campaign.Place("hosts"):
        setup, ranks_per_host, job, expected = started(trial)
        training = job.running()
        link("down")
        began = time.monotonic()
        codes = job.end(TIMEOUT + LATE)
        wrong = [] if not training or set(codes) <= {0, 3} else [f"exit codes {codes} after {time.monotonic() - began:.1f} s"]
        wrong += [f"node {node} gives no reason" for node in (0, 1) if codes[node] == 3 and "orthant: " not in job.said(node)]
        wrong += [job.said(0), job.said(1)] if wrong else []
        no_process_left(trial, job)
        link("up")
        again = TwoHosts(trial.folder, setup, ranks_per_host, "--resume", "auto", "--from-scratch")
        wrong += [f"the next job: {text}" for text in again.wrong_end(expected)]
        no_process_left(trial, again)
    trial.check("R4", wrong)


def stranger_at_the_door(trial):
    """One kind of stranger at the ports of a job on two nodes, as another user of this host or from another host."""
    visited = trial.shared.made("strangers", Visited)
    kind = trial.draw.choice(stranger.KINDS)
    with strangers_campaign.Place(trial.draw.choice(("root", "hosts"))) as place:
        wrong = visited.campaign.trial(place, [kind], 2, search=trial.draw.random() < 0.3)
    trial.check("S2", [f"{kind} at {place.where}: {text}" for text in wrong])


class Visited:
    def __init__(self, folder):
        os.chmod(folder, 0o755)  # another user reads the stranger's program there
        self.campaign = strangers_campaign.Campaign(folder, dumps=False)
        self.campaign.undisturbed()
