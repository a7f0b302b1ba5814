#!/usr/bin/env python3
"""Trainings on four hosts of two ranks each that lose ranks and hosts at random moments. Hosts are network namespaces: needs root.

  tests/system/host_campaign.py [--losses 100] [--elastic 40] [--seed 1] [--keep FOLDER]

--losses: a rank is killed, or a whole host is: killed and started again, cut off from the network and plugged in again, or frozen and replaced by
another host while it may go on later. The mesh stays. Every training must end with the weights of an undisturbed one, every step in its metrics
once, go on from a checkpoint that is no older than the newest one at the moment of the loss, and a frozen host that goes on must write nothing.

--elastic: hosts leave and come back in random order, and the job goes on with two to four of them on other meshes. Every step and every sample of a
step must be there once, and the loss be that of an undisturbed training but for rounding.

Prints a line per training and, at the end, how long a loss kept the job from its next new step, and the goodput at one loss a minute that follows.
"""
import argparse
import json
import os
import random
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter

from host_network import HostJob, HostNetwork
from program import orthant

STEPS, SAVE_EVERY, ROWS = 150, 5, 48
SILENCE_SECONDS = 8
CONFIG = {"name": "hosts", "seed": 3,
          "model": {"kind": "llama", "preset": "llama-tiny", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
                    "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 67},
          "data": {"kind": "tokens", "sequence_length": 16, "samples": 960, "log_samples": True}, "parallel": {"microbatches": 2},
          "train": {"global_batch_size": ROWS, "steps": STEPS}, "checkpoint": {"save_every": SAVE_EVERY}}
MESHES = ("pp=2,dp=2,tp=2", "pp=2,dp=4", "fsdp=8", "pp=4,tp=2")
HOSTS = 4
SPARE = 4  # takes a frozen host's place
KINDS = ("rank", "host", "cut", "freeze")
MOST_LOSSES = 4  # of one training


class Wrong(Exception):
    pass


class Campaign:
    def __init__(self, network, folder, seed):
        self.network, self.folder, self.draw = network, folder, random.Random(seed)
        self.references, self.lost_seconds, self.counts = {}, [], Counter()
        self.sequence = 0
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(CONFIG, f)

    def reference(self, mesh):
        """An undisturbed training: of one rank, or, with a mesh, on the same hosts, since the order of sums depends on where ranks are."""
        if mesh not in self.references:
            if mesh:
                job = self.job(HOSTS, ("--timeout", 60), ("--mesh", mesh))
                try:
                    result, run = job.end(*range(HOSTS)), job.path(job.run)
                finally:
                    job.close()
            else:
                run = os.path.join(self.folder, "one-rank")
                done = orthant("train", "--config", "config.json", "--output_dir", run, "--json", cwd=self.folder, timeout=300)
                result = json.loads(done.stdout)
            self.references[mesh] = result, samples_of(run)
        return self.references[mesh]

    def job(self, nodes, launch_words, train_words):
        self.sequence += 1
        job = HostJob(self.network, self.folder, nodes, launch_words, train_words, run=f"run-{self.sequence}")
        job.start(*range(HOSTS))
        return job

    def wait_for_new_step(self, job, lost_at_step, began, wanted_attempts):
        """Until the job is further than it was."""
        job.wait_for(lambda: job.attempts_begun() >= wanted_attempts and job.step() > lost_at_step or job.launchers[0].poll() is not None)
        self.lost_seconds.append(time.monotonic() - began)

    def lose(self, job, kind):
        """One loss, and what brings the job back; gives the newest checkpoint of that moment."""
        node, attempts = self.draw.randrange(1, HOSTS), job.attempts_begun()
        saved, reached, began = job.newest_checkpoint(), job.step(), time.monotonic()
        if kind == "rank":
            job.kill_rank(self.draw.randrange(HOSTS), self.draw.randrange(2))
        elif kind == "host":
            job.kill_host(node)
            job.start(node)
        elif kind == "cut":
            self.network.pull(node)
            try:
                job.wait_for(lambda: job.attempts_begun() > attempts)
            finally:
                self.network.plug(node)
        else:
            job.freeze(node)
            job.wait_for(lambda: job.attempts_begun() > attempts)
            job.start(node, host=SPARE)
        self.wait_for_new_step(job, reached, began, attempts + 1)
        return saved

    def losses(self, most):
        """One training; gives how many losses it had."""
        mesh = self.draw.choice(MESHES)
        whole, samples = self.reference(mesh)
        kinds = [self.draw.choice(KINDS[:3]) for _ in range(min(most, MOST_LOSSES))]
        kinds[-1] = self.draw.choice(KINDS)  # the spare host can take one place
        job = self.job(HOSTS, ("--max-restarts", 50, "--timeout", SILENCE_SECONDS, "--run-id", self.sequence), ("--mesh", mesh))
        saved = []
        try:
            for i, kind in enumerate(kinds):
                at = self.draw.randrange(SAVE_EVERY + 30 * i, 25 + 30 * i)  # there is a checkpoint to go on from
                job.wait_for(lambda: job.step() > at)
                time.sleep(self.draw.uniform(0, 0.05))
                if job.launchers[0].poll() is None:
                    saved.append(self.lose(job, kind))
            result = job.end(*range(HOSTS))
            self.check(job, result, whole, samples)
            if result["weights_hash"] != whole["weights_hash"]:
                raise Wrong(f"weights {result['weights_hash']}, not {whole['weights_hash']}")
            resumed = [int(step) for step in re.findall(r"resumed from \S+/step-(\d+) at step", job.said(0))]
            if len(resumed) < len(saved) or any(step < least for step, least in zip(resumed, saved)):
                raise Wrong(f"went on from {resumed}, although {saved} were saved")
            if "frozen" in job.launchers:
                before = job.files()
                job.thaw()
                if job.files() != before:
                    raise Wrong("the frozen host has written into the run")
            self.counts.update(kinds[:len(saved)])
            print(f"{mesh}: {', '.join(kinds[:len(saved)])}: equal bits", flush=True)
            return len(saved)
        except (Wrong, AssertionError) as error:
            raise Wrong(f"{mesh}, {kinds}, {job.run}: {error}") from error
        finally:
            job.close()

    def elastic(self):
        """One sequence of hosts that leave and come back; gives how many changes it had."""
        whole, samples = self.reference("")
        job = self.job(f"2:{HOSTS}", ("--max-restarts", 50, "--timeout", 30, "--regroup-seconds", 1, "--run-id", self.sequence), ())
        gone, story = [], []
        try:
            for i in range(4):
                at = self.draw.randrange(SAVE_EVERY + 30 * i, 25 + 30 * i)
                job.wait_for(lambda: job.step() > at or job.launchers[0].poll() is not None)
                if job.launchers[0].poll() is not None:
                    break
                attempts, reached, began = job.attempts_begun(), job.step(), time.monotonic()
                here = [node for node in range(1, HOSTS) if node not in gone]
                if gone and (len(here) == 1 or self.draw.random() < 0.5):
                    node = gone.pop(self.draw.randrange(len(gone)))
                    job.start(node)
                    story.append(f"+{node}")
                else:
                    node = self.draw.choice(here)
                    job.kill_host(node)
                    gone.append(node)
                    story.append(f"-{node}")
                self.wait_for_new_step(job, reached, began, attempts + 1)
            result = job.end(*(node for node in range(HOSTS) if node not in gone))
            self.check(job, result, whole, samples)
            if abs(result["final_loss"] - whole["final_loss"]) > 1e-4 * abs(whole["final_loss"]):
                raise Wrong(f"loss {result['final_loss']}, not {whole['final_loss']}")
            changes = [f"{line['mesh_before']} to {line['mesh_after']}" for line in job.lines() if "step" not in line]
            print(f"elastic {' '.join(story)}: {', '.join(changes)}: every sample once", flush=True)
            return len(story)
        except (Wrong, AssertionError) as error:
            raise Wrong(f"elastic {story}, {job.run}: {error}") from error
        finally:
            job.close()

    def check(self, job, result, whole, samples):
        if result["steps"] != whole["steps"] or job.steps() != list(range(1, STEPS + 1)):
            raise Wrong(f"steps {job.steps()}")
        if samples_of(job.path(job.run)) != samples:
            raise Wrong("other samples than in an undisturbed training")


def samples_of(run):
    """Of every step its samples in order, from whichever ranks wrote them."""
    found = {}
    for name in os.listdir(os.path.join(run, "log")):
        if not re.fullmatch(r"samples-\d+\.jsonl", name):
            continue
        with open(os.path.join(run, "log", name)) as f:
            for line in map(json.loads, f):
                found.setdefault(line["step"], []).append((line["first_row"], line["samples"]))
    return {step: [sample for _, samples in sorted(parts) for sample in samples] for step, parts in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--losses", type=int, default=100)
    parser.add_argument("--elastic", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="folder for the runs, which stay")
    a = parser.parse_args()
    folder = a.keep or tempfile.mkdtemp()
    os.makedirs(folder, exist_ok=True)
    with HostNetwork(f"oc{os.getpid() % 100000}", HOSTS + 1, 79) as network:
        campaign, wrong, losses, changes, sequences = Campaign(network, folder, a.seed), 0, 0, 0, 0
        while losses < a.losses and wrong < 3:
            try:
                losses += campaign.losses(a.losses - losses)
            except Wrong as error:
                wrong += 1
                print(f"WRONG: {error}", flush=True)
        for _ in range(a.elastic):
            try:
                changes += campaign.elastic()
                sequences += 1
            except Wrong as error:
                wrong += 1
                print(f"WRONG: {error}", flush=True)
                if wrong == 3:
                    break
    if not a.keep:
        shutil.rmtree(folder)
    lost = statistics.mean(campaign.lost_seconds) if campaign.lost_seconds else 0
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(campaign.counts.items()))
    print(f"{losses} losses ({kinds}), {sequences} elastic sequences with {changes} changes: {wrong} wrong")
    print(f"a loss or change costs {lost:.1f} s on average: goodput at one a minute {max(0, 60 - lost) / 60:.0%}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
