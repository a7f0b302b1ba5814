"""Rows of a parity campaign: each is one `orthant parity` of a model on a mesh against one rank. A row with a canary leaves a
sum out and must fail."""
import argparse
import json
import math
import os
import sys
import tempfile

from program import ORTHANT, run

TRAINING = {"optimizer": {"kind": "adamw", "lr": 1e-3, "clip": 0.01, "weight_decay": 0.1}, "lr_schedule": {"kind": "constant"},
            "train": {"global_batch_size": 24, "steps": 50}}
ROUNDINGS = 4  # a mesh rounds in other places than one rank does, so it may be some times as far off


class Row:
    def __init__(self, model, mesh, *settings, canary=None, dtype="float64", steps=3, quick=False, against=None, bound=None,
                 spreads=False, resume_at=None, bitwise=False, label=None, order=None, files=None, yardstick=None,
                 differs=False, checked=False):
        self.model, self.mesh, self.settings = model, mesh, settings
        self.canary, self.dtype, self.steps, self.quick, self.against, self.bound = canary, dtype, steps, quick, against, bound
        self.resume_at = resume_at
        self.bitwise = bitwise  # nothing is added in another order: every bit must be there, with the same microbatches
        self.spreads = spreads  # the missing sum changes other parameters' gradients, too
        self.label = label  # what the row stands for
        self.order = order  # of the axes
        self.checked = checked  # calls are compared before they run
        self.files = files or {}  # text by name; the row runs in their folder
        self.differs = differs  # the two sides do not train the same: the row must fail
        self.yardstick = yardstick  # a row that shows what rounding does on one rank, and so how far this one may be from it

    def holds_for_both(self, setting):
        """Model, data and optimizer are those of both sides; so is a hook against another mesh."""
        if setting.startswith(("train.join_head_and_loss", "train.loss_chunk_rows")):
            return self.bitwise
        if not setting.startswith(("parallel.", "precision.")):
            return True
        return setting.startswith(("parallel.comm_hook",) * bool(self.against) + ("parallel.microbatches",) * self.bitwise)

    def words(self, config):
        words = [ORTHANT, "parity", "--config", config, "--mesh", self.mesh, "--dtype", self.dtype, "--steps", str(self.steps), "--json"]
        for setting in self.settings:
            words += ["--set" if self.holds_for_both(setting) else "--vary", setting]
        words += ["--check-collectives"] * self.checked
        for option, value in (("--order", self.order), ("--resume-at", self.resume_at), ("--against", self.against),
                              ("--inject", self.canary and f"skip-reduce={self.canary}")):
            if value:
                words += [option, str(value)]
        return words

    def ranks(self):
        return math.prod(int(axis.partition("=")[2]) for axis in self.mesh.split(",") if not axis.startswith("ep="))

    def cells(self):
        extras = [s.replace("parallel.", "") for s in self.settings]
        extras += [self.dtype] * (self.dtype != "float64") + [f"{self.steps} steps"] * (self.steps != 3)
        extras += [f"without the sum over {self.canary}"] * bool(self.canary) + [f"against {self.against}"] * bool(self.against)
        extras += ["must differ"] * self.differs + ["checked"] * self.checked
        extras += [f"resumed at {self.resume_at}"] * bool(self.resume_at) + [f"order {self.order}"] * bool(self.order)
        return [self.model, self.mesh, ", ".join(extras)]

    def name(self):
        return " | ".join(self.cells())

    def outcome(self, configs, folder, extra):
        """(largest relative error and the norm's as text, whether the row is as it must be)."""
        try:
            bound = ROUNDINGS * largest_error(compare(self.yardstick, configs, folder, extra)) if self.yardstick else None
            result = compare(self, configs, folder, extra)
        except RuntimeError as error:
            return str(error), False
        norm = result["max_relative_error"]["grad_norm"]
        text = f"{largest_error(result):.1e}, norm {float('inf') if norm is None else norm:.1e}"
        if self.bitwise and result["bitwise"]:
            text = "every bit"
        text += f"; bound {bound:.1e}" if bound else ""
        text += f"; first {result['first_difference']}" if self.canary else ""
        return text, is_right(self, result, bound)


def write_once(path, text):
    """Rows of a campaign share files by name; they must mean the same."""
    if os.path.exists(path):
        with open(path) as f:
            if f.read() != text:
                raise ValueError(f"{path}: another row has a file of this name with other contents")
        return
    with open(path, "w") as f:
        f.write(text)


def config_of(row, configs, folder):
    path = os.path.join(folder, row.model.replace(" ", "_") + ".json")
    for name, text in {path: json.dumps({**configs[row.model], **TRAINING}), **row.files}.items():
        write_once(os.path.join(folder, name), text)
    return path


def compare(row, configs, folder, extra):
    """What `orthant parity --json` answers. RuntimeError with its message where it compares nothing."""
    done = run(*row.words(config_of(row, configs, folder)), *extra, timeout=300, cwd=folder)
    if done.returncode not in (0, 1) or not done.stdout.strip():
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)


def largest_error(result):
    errors = result["max_relative_error"].values()
    return float("inf") if None in errors else max(errors)


def is_right(row, result, measured_bound=None):
    errors = result["max_relative_error"]
    right = not result["pass"] if row.canary or row.differs else result["pass"] and (result["bitwise"] or not row.bitwise)
    if measured_bound:
        right = result["replicas_equal"] and 0 < largest_error(result) <= measured_bound
    elif row.bound:  # gradients are rounded on their way: not the numbers of one rank, but near
        least, most = (1e-6, 1e-10) if row.dtype == "float64" else (0, 1e-3)
        right = result["replicas_equal"] and least < errors["gradients"] < row.bound and errors["loss"] < most
    name = row.canary.partition(":")[2] if row.canary else ""
    if name and not row.spreads:
        right = right and result["first_difference"].startswith(".".join(name.split(".")[:2]))
    return right


def campaign(rows, configs, everything, only="", extra=()):
    """Runs the rows; returns (number run, list of wrong ones)."""
    wrong, count = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for row in rows:
            if not (everything or row.quick) or only not in row.name():
                continue
            text, right = row.outcome(configs, folder, extra)
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
    print("| model | mesh | settings | largest relative error | |\n|---|---|---|---|---|", flush=True)
    count, wrong = campaign(rows, configs, a.all, a.only, ["--device", a.device, "--backend", a.backend])
    print(f"\n{count} rows, {len(wrong)} wrong")
    sys.exit(1 if wrong or count == 0 else 0)
