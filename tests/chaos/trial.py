"""What all kinds of faults share: the small trainings that are disturbed, and a trial, which keeps what was checked by the ids of docs/chaos.md."""
import collections
import json
import os
import random

from disturbed_run import Run, Setup
from program import orthant
from survival_campaign import Campaign

TIMEOUT = 8  # seconds until a stopped rank is given up: on a busy machine a rank that works is silent for some of them
LATE = 4

STEPS = 40
COMMON = {"name": "chaos", "seed": 11, "parallel": {"microbatches": 4}, "train": {"global_batch_size": 16, "steps": STEPS},
          "checkpoint": {"save_every": 4}}
TOKENS = {"kind": "tokens", "sequence_length": 16, "samples": 256, "log_samples": True}
SIZES = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 67}
LLAMA = {**COMMON, "data": TOKENS, "model": {"kind": "llama", "preset": "llama-tiny", **SIZES, "num_key_value_heads": 2, "attention_dropout": 0.1}}
GPT2 = {**COMMON, "data": TOKENS, "model": {"kind": "gpt2", "preset": "gpt2-tiny", **SIZES, "resid_pdrop": 0.1}}
EXPERTS = {**COMMON, "data": TOKENS, "model": {"kind": "mixtral", "preset": "mixtral-tiny", **SIZES, "num_key_value_heads": 2,
                                               "num_local_experts": 4, "num_experts_per_tok": 2}}
TRIMODAL = {**COMMON, "data": {"kind": "random", "sequence_length": 11, "secondary_length": 7, "samples": 256, "log_samples": True},
            "model": {"kind": "trimodal", "preset": "trimodal-tiny"}}


def settings(*texts):
    return tuple(word for text in texts for word in ("--set", text))


SETUPS = (
    Setup(LLAMA, ("--mesh", "dp=2")), Setup(LLAMA, ("--mesh", "fsdp=2", *settings("parallel.zero=3"))), Setup(LLAMA, ("--mesh", "tp=2")),
    Setup(LLAMA, ("--mesh", "cp=2")), Setup(LLAMA, ("--mesh", "pp=2", *settings("parallel.schedule=zbh1"))),
    Setup(GPT2, ("--mesh", "pp=2,dp=2", *settings("parallel.schedule=1f1b"))), Setup(EXPERTS, ("--mesh", "dp=2,ep=2")),
    Setup(EXPERTS, ("--mesh", "fsdp=4,ep=2")), Setup(TRIMODAL, ("--mesh", "fsdp=2,dp=2")), Setup(LLAMA, ("--mesh", "fsdp=2,tp=2")),
    Setup(GPT2, ("--mesh", "dp=3", *settings("train.global_batch_size=24"))), Setup(LLAMA, ("--mesh", "pp=2,tp=2", *settings("parallel.schedule=interleaved"))),
    Setup(LLAMA, ("--mesh", "dp=2,cp=2")), Setup(LLAMA, ("--mesh", "dp=2", "--backend", "gloo")), Setup(LLAMA, ("--mesh", "dp=1")),
    Setup(LLAMA, ("--mesh", "pp=2,fsdp=2,tp=2")))


class Trial(Campaign):
    """One fault, drawn from its kind and seed alone. `shared` lives as long as the command: a folder, and what is made once."""

    def __init__(self, shared, kind, seed):
        super().__init__(os.path.join(shared.folder, f"{kind}-{seed}"), random.Random(f"{kind}/{seed}"), TIMEOUT, LATE)
        self.shared, self.undisturbed = shared, shared.undisturbed
        self.checked = collections.defaultdict(list)  # by id: what was wrong
        os.makedirs(self.folder)

    def check(self, identity, wrong):
        self.checked[identity] += wrong

    def left_by(self, run):
        self.check("K6", run.leftovers())
        self.check("S1", [f"listens at {address} for other hosts" for address in sorted(run.exposed)])
        return []

    def draw_setup(self, least=1):
        """One of at least so many ranks, and how it saves."""
        chosen = self.draw.choice([setup for setup in SETUPS if self.num_ranks(setup) >= least])
        return chosen, settings(f"checkpoint.asynchronous={self.draw.choice(('true', 'false'))}")

    @staticmethod
    def num_ranks(setup):
        count = 1
        for part in setup.words[1].split(","):
            axis, degree = part.split("=")
            count *= int(degree) if axis != "ep" else 1  # experts lie on the ranks of other axes
        return count

    def samples_of(self, run):
        """By step: the global batch, in order."""
        steps = collections.defaultdict(list)
        folder = os.path.join(run.output, "log")
        for name in sorted(os.listdir(folder)):
            if name.startswith("samples-"):
                with open(os.path.join(folder, name)) as f:
                    for line in map(json.loads, f):
                        steps[line["step"]].append((line["first_row"], line["samples"]))
        return {step: sorted(rows) for step, rows in steps.items()}

    def ended_as_undisturbed(self, run, setup):
        expected, _ = self.expected(setup)
        return self.ended_like(run, expected)

    def goes_on(self, run, setup, *words, kept=""):
        """What is wrong with a run that goes on in the folder of one that ended in the middle, undisturbed. `kept`: names that it may leave."""
        again = Run(run.folder, setup, *words, "--resume", "auto", "--from-scratch", output=run.below)
        again.checkpoint_names += kept
        wrong = self.ended_as_undisturbed(again, setup)
        self.left_by(again)
        return [f"the next run: {text}" for text in wrong] + ([again.said()] if wrong else [])

    def diagnosed(self, run, causes):
        """X2: what doctor says first of a run that failed."""
        told = orthant("doctor", run.output, "--json")
        found = json.loads(told.stdout)["findings"][0]["cause"] if told.returncode == 0 else told.stderr
        self.check("X2", [] if found in causes else [f"doctor says {found!r} instead of {' or '.join(sorted(causes))}"])

    @staticmethod
    def failed_with(run, code, *texts):
        """What is wrong with the end of a run that must fail with this code and say all this (regular expressions are not meant)."""
        found = run.end()
        wrong = [f"exit code {found} instead of {code}"] if found != code else []
        said = run.said()
        return wrong + [f"does not say {text!r}" for text in texts if text not in said]
