"""Rows of a parity campaign: each is one `orthant parity` of a model on a mesh against one rank. A row with a canary leaves a
sum out and must fail."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

from program import ORTHANT, clean_environment

TRAINING = {"optimizer": {"kind": "adamw", "lr": 1e-3, "clip": 0.5, "weight_decay": 0.1}, "lr_schedule": {"kind": "constant"},
            "train": {"global_batch_size": 24, "steps": 50}}


class Row:
    def __init__(self, model, mesh, *settings, canary=None, dtype="float64", steps=3, quick=False, against=None, bound=None,
                 spreads=False, resume_at=None, bitwise=False):
        self.model, self.mesh, self.settings = model, mesh, settings
        self.canary, self.dtype, self.steps, self.quick, self.against, self.bound = canary, dtype, steps, quick, against, bound
        self.resume_at = resume_at
        self.bitwise = bitwise  # nothing is added in another order: every bit must be there, with the same microbatches
        self.spreads = spreads  # the missing sum changes other parameters' gradients, too

    def words(self, config):
        words = [ORTHANT, "parity", "--config", config, "--mesh", self.mesh, "--dtype", self.dtype, "--steps", str(self.steps), "--json"]
        for setting in self.settings:
            words += ["--vary", setting]
        if self.canary:
            words += ["--inject", f"skip-reduce={self.canary}"]
        if self.resume_at:
            words += ["--resume-at", str(self.resume_at)]
        if self.against:
            words += ["--against", self.against]
        return words

    def name(self):
        extras = [s.replace("parallel.", "") for s in self.settings]
        extras += [self.dtype] * (self.dtype != "float64") + [f"{self.steps} steps"] * (self.steps != 3)
        extras += [f"without the sum over {self.canary}"] * bool(self.canary) + [f"against {self.against}"] * bool(self.against)
        extras += [f"resumed at {self.resume_at}"] * bool(self.resume_at)
        return f"{self.model} | {self.mesh} | {', '.join(extras)}"


def run(row, configs, folder, extra):
    path = os.path.join(folder, row.model.replace(" ", "_") + ".json")
    if not os.path.exists(path):
        with open(path, "w") as f:
            json.dump({**configs[row.model], **TRAINING}, f)
    words = row.words(path)
    # What is frozen and how many samples there are hold for both sides, and a hook against another mesh.
    both = ("model.freeze", "data.samples", "data.sequence_length") + (("parallel.comm_hook",) if row.against else ())
    both += ("parallel.microbatches",) * row.bitwise
    words = [("--set" if w == "--vary" and words[i + 1].startswith(both) else w) for i, w in enumerate(words)]
    done = subprocess.run(words + extra, capture_output=True, text=True, env=clean_environment(), timeout=300, stdin=subprocess.DEVNULL)
    if done.returncode not in (0, 1) or not done.stdout.strip():
        return False, f"exit code {done.returncode}: {done.stderr.strip()[-300:]}"
    result = json.loads(done.stdout)
    errors = result["max_relative_error"]
    text = "every bit" if result["bitwise"] else ", ".join(f"{name} {errors[name]:.1e}" if errors[name] is not None else f"{name} -"
                                                           for name in ("loss", "gradients", "weights"))
    right = not result["pass"] if row.canary else result["pass"] and (result["bitwise"] or not row.bitwise)
    if row.bound:  # gradients are rounded on their way: not the numbers of one rank, but near
        right = result["replicas_equal"] and (1e-6 if row.dtype == "float64" else 0) < errors["gradients"] < row.bound and errors["loss"] < (1e-10 if row.dtype == "float64" else 1e-3)
    name = row.canary.partition(":")[2] if row.canary else ""
    if name and not row.spreads:
        right = right and result["first_difference"].startswith(".".join(name.split(".")[:2]))
    return right, text + (f"; first {result['first_difference']}" if row.canary else "")


def campaign(rows, configs, everything, only="", extra=()):
    """Runs the rows; returns (number run, list of wrong ones)."""
    wrong, count = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for row in rows:
            if not (everything or row.quick) or only not in row.name():
                continue
            right, text = run(row, configs, folder, list(extra))
            count += 1
            print(f"| {row.name()} | {text} | {'as it must be' if right else 'WRONG'} |", flush=True)
            if not right:
                wrong.append(f"{row.name()}: {text}")
    return count, wrong


def main(description, rows, configs):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="the whole campaign")
    parser.add_argument("--only", default="", help="rows whose text contains this")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", default="auto")
    a = parser.parse_args()
    print("| model | mesh | settings | largest relative errors | |\n|---|---|---|---|---|", flush=True)
    count, wrong = campaign(rows, configs, a.all, a.only, ["--device", a.device, "--backend", a.backend])
    print(f"\n{count} rows, {len(wrong)} wrong")
    sys.exit(1 if wrong or count == 0 else 0)
