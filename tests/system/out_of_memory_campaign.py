#!/usr/bin/env python3
"""Runs that have too little memory. Those that do not fit must be refused before a rank allocates (exit code 2) with a line that, followed, trains under
the same limit. Those that run out in the middle must say which rank, where, what it did and what it held (exit code 4). No run may end with 70.

  sudo python3 tests/system/out_of_memory_campaign.py             20 that do not fit, 5 under RLIMIT_DATA, 3 killed in a control group
  sudo python3 tests/system/out_of_memory_campaign.py --short     a few of each

A limit on what does not fit is a control group's (needs root): three quarters of what the run would need, and what the program itself takes."""
import argparse
import itertools
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile

from program import ORTHANT, SOURCE

sys.path.insert(0, os.path.join(SOURCE, "bench"))
from memory_limit import Limit  # noqa: E402

MIB = 1 << 20
PROGRAM = 60 * MIB  # what the program has in a control group before it allocates
LLAMA = ["model.kind=llama", "model.hidden_size=128", "model.num_hidden_layers=2", "model.num_attention_heads=4", "model.num_key_value_heads=2",
         "model.intermediate_size=256", "model.vocab_size=512", "model.max_position_embeddings=512"]
DATA = ['data={"kind": "tokens", "sequence_length": 256, "samples": 256}']
WIDE = ["model.hidden_size=512", "model.intermediate_size=1408", "model.num_hidden_layers=6", "model.vocab_size=4096"]
BATCH = ["train.global_batch_size=64"]
SMALL = ["train.global_batch_size=4"]

# Name, settings and mesh: activations, state or both are too much.
DO_NOT_FIT = [
    ("one rank, large batch", [*LLAMA, *DATA, *BATCH], "dp=1"),
    ("one rank, odd batch", [*LLAMA, *DATA, "train.global_batch_size=63"], "dp=1"),
    ("one rank, long sequences", [*LLAMA, 'data={"kind": "tokens", "sequence_length": 512, "samples": 256}', *BATCH], "dp=1"),
    ("one rank, large vocabulary", [*LLAMA, *DATA, *BATCH, "model.vocab_size=8192"], "dp=1"),
    ("one rank, deep", [*LLAMA, *DATA, *BATCH, "model.num_hidden_layers=8"], "dp=1"),
    ("one rank, a batch of one row", [*LLAMA, *DATA, "train.global_batch_size=1", "data.sequence_length=512", "model.num_hidden_layers=24"], "dp=1"),
    ("one rank, microbatches already", [*LLAMA, *DATA, *BATCH, "parallel.microbatches=2"], "dp=1"),
    ("one rank, float64", [*LLAMA, *DATA, *BATCH, "precision.params=float64", "precision.compute=float64", "precision.reduce=float64"], "dp=1"),
    ("one rank, bfloat16", [*LLAMA, *DATA, *BATCH, "precision.compute=bfloat16"], "dp=1"),
    ("gpt2", ["model.kind=gpt2", *LLAMA[1:4], "model.vocab_size=512", "model.max_position_embeddings=512", *DATA, *BATCH], "dp=1"),
    ("bert", ["model.kind=bert", *LLAMA[1:4], "model.intermediate_size=512", "model.vocab_size=512", "model.max_position_embeddings=512", *DATA, *BATCH], "dp=1"),
    ("trimodal classifier", ["train.global_batch_size=512"], "dp=1"),
    ("replicas, large batch", [*LLAMA, *DATA, *BATCH], "dp=2"),
    ("replicas, large state", [*LLAMA, *DATA, *WIDE, *SMALL], "dp=2"),
    ("shards, large batch", [*LLAMA, *DATA, *BATCH], "fsdp=2"),
    ("optimizer in shards, large state", [*LLAMA, *DATA, *WIDE, *SMALL, "parallel.zero=1"], "fsdp=2"),
    ("tensor parallel", [*LLAMA, *DATA, *BATCH], "tp=2"),
    ("pipeline", [*LLAMA, *DATA, *BATCH, "parallel.microbatches=2"], "pp=2"),
    ("pipeline, gpipe", [*LLAMA, *DATA, *BATCH, "parallel.microbatches=4", "parallel.schedule=gpipe"], "pp=2"),
    ("pipeline of replicas", [*LLAMA, *DATA, *BATCH, "parallel.microbatches=2"], "pp=2,dp=2"),
]

# Under RLIMIT_DATA: name, settings, mesh, limit, and what the line must name.
RUN_OUT = [
    ("forward of one rank", [*LLAMA, *DATA, *BATCH], "dp=1", 300 * MIB, r"rank 0: out of memory at dp=0 in step 1, F layers\.\d m0: "),
    ("forward of a replica", [*LLAMA, *DATA, *BATCH], "dp=2", 340 * MIB, r"rank [01]: out of memory at dp=[01] in step 1, F layers\.\d m0: "),
    ("a stage", [*LLAMA, *DATA, *BATCH, "parallel.microbatches=2"], "pp=2", 340 * MIB, r"rank [01]: out of memory at pp=[01] in step 1, \S+ \S+ m\d: "),
    ("making the model", [*LLAMA, *DATA, *WIDE, "model.hidden_size=1024", *SMALL], "dp=1", 300 * MIB,
     r"rank 0: out of memory at dp=0 in making parameters, gradients and optimizer state: "),
    ("backward, large state", [*LLAMA, *DATA, *WIDE, *SMALL], "dp=1", 700 * MIB, r"rank 0: out of memory at dp=0 in step 1, (F|BW) \S+ m0: "),
]
LINE = (r".* in use( and .* more asked for)?, .* predicted(; most is \S+ \S+ of [^,;]+, \S+ \S+ of [^,;]+, \S+ \S+ of [^,;]+)?; its process may have "
        r"\S+ MiB \(ulimit -d\)\n.*  fix: use less memory per rank, first what helps most here: ")

# Killed by the kernel: name, settings, mesh, limit.
KILLED = [
    ("one rank", [*LLAMA, *DATA, *BATCH], "dp=1", 200 * MIB),
    ("replicas", [*LLAMA, *DATA, *BATCH], "dp=2", 240 * MIB),
    ("stages", [*LLAMA, *DATA, *BATCH, "parallel.microbatches=2"], "pp=2", 240 * MIB),
]


class Campaign:
    def __init__(self, say=print):
        self.failures, self.codes, self.count, self.say = [], [], itertools.count(), say
        self.folder = tempfile.TemporaryDirectory()

    def train(self, settings, mesh, *words, limit=None, data_limit=None):
        output = os.path.join(self.folder.name, f"run-{next(self.count)}")
        sets = [*settings, "name=large", "train.steps=3", "lr_schedule.warmup_steps=0"]
        command = [ORTHANT, "train", "--output_dir", output, *(word for text in sets for word in ("--set", text))]
        command += [*(["--mesh", mesh] if "--mesh" not in words else []), *words]
        group = Limit(f"orthant-campaign-{os.getpid()}", limit) if limit else None
        before = (lambda: resource.setrlimit(resource.RLIMIT_DATA, (data_limit, data_limit))) if data_limit else None
        try:
            if group:
                command = ["sh", "-c", f'echo $$ > {group.path}/cgroup.procs && exec "$@"', "sh", *command]
            finished = subprocess.run(command, capture_output=True, text=True, timeout=600, preexec_fn=before)
        finally:
            if group:
                group.remove()
        self.codes.append(finished.returncode)
        return finished, output

    def report(self, kind, name, problem, note, finished):
        if problem:
            self.failures.append(name)
            self.say(f"FAILED: {kind}: {name}: {problem}\n{finished.stderr[-3000:]}")
        else:
            self.say(f"fine: {kind}: {name}: {note}")

    def does_not_fit(self, name, settings, mesh):
        asked, _ = self.train(settings, mesh, "--dry-run")
        needs = re.search(r"train would start: .* needs? ([\d.]+) ([KMG])iB, and", asked.stderr)
        if not needs:
            return self.report("does not fit", name, "the dry run does not say what it needs", "", asked)
        needed = float(needs.group(1)) * {"K": 1 << 10, "M": MIB, "G": 1 << 30}[needs.group(2)]
        limit = int(needed * 0.75) + PROGRAM
        refused, output = self.train(settings, mesh, limit=limit)
        remedy = re.search(r"  fix: (?:add|use) (.*?)(?: instead of the mesh .*)?; --force trains as it is\n", refused.stderr)
        if refused.returncode != 2 or os.path.exists(output) or not remedy:
            return self.report("does not fit", name, f"exit code {refused.returncode}, not refused with a line to add", "", refused)
        mended, _ = self.train(settings, mesh, *shlex.split(remedy.group(1)), limit=limit)
        problem = "" if mended.returncode == 0 else f"exit code {mended.returncode} with {remedy.group(1)} below {limit // MIB} MiB"
        self.report("does not fit", name, problem, f"{needs.group(1)} {needs.group(2)}iB needed, limit {limit // MIB} MiB, trains with {remedy.group(1)}", mended)

    def runs_out(self, name, settings, mesh, limit, line):
        finished, _ = self.train(settings, mesh, "--force", data_limit=limit)
        found = re.search(r"error: (" + line + ")" + LINE, finished.stderr)
        problem = "" if finished.returncode == 4 and found else f"exit code {finished.returncode}, or not named"
        if "frame #" in finished.stderr:
            problem = "frames of C++"
        self.report("runs out", name, problem, found.group(0).split("\n")[0] if found else "", finished)

    def is_killed(self, name, settings, mesh, limit):
        finished, _ = self.train(settings, mesh, "--force", limit=limit)
        found = re.search(r"orthant: rank \d: killed by SIGKILL: out of memory: its control group may use \d+ MiB \(oom_kill in memory\.\w+ rose\); it held "
                          r"\S+ MiB in tensors, in: step 1, .*\n  fix: ", finished.stderr)
        problem = "" if finished.returncode == 4 and found else f"exit code {finished.returncode}, or not named"
        self.report("killed", name, problem, found.group(0).split("\n")[0] if found else "", finished)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    if os.geteuid() != 0:
        sys.exit("out_of_memory_campaign.py makes control groups: run it as root")
    campaign = Campaign()
    parts = [(campaign.does_not_fit, DO_NOT_FIT, 5), (campaign.runs_out, RUN_OUT, 2), (campaign.is_killed, KILLED, 2)]
    for run, cases, step in parts:
        for case in cases[::step] if short else cases:
            run(*case)
    if 70 in campaign.codes:
        campaign.failures.append("a run ended with 70")
    print(f"{len(campaign.codes)} runs, exit codes {sorted(set(campaign.codes))}; {len(campaign.failures)} findings {campaign.failures or ''}")
    sys.exit(1 if campaign.failures else 0)


if __name__ == "__main__":
    main()
