"""One change of mesh, A -> B: the four runs that show it, and what must hold among them. reshard_campaign.py draws such pairs."""
import collections
import dataclasses
import glob
import json
import os
import re
import shlex
import shutil
import subprocess

from checkpoint_weights import read_state
from parity_rows import TRAINING
from program import ORTHANT, run
from random_parity import MODELS

AXES = ("pp", "dp", "fsdp", "tp", "ep")
RANKS = AXES[:-1]  # ep is a second view of a stage's ranks
BOUNDS = {"float64": 1e-10, "float32": 1e-3, "float16": 1e-2}  # what `orthant parity` asks for
DEFAULT = "trimodal default"  # what `orthant train` trains without --config
SECONDS = 300
STAGES_ALONE = ("parallel.schedule", "parallel.virtual_stages", "parallel.split", "parallel.recompute")  # no sum is grouped by them
COUNTERS = ("step", "epoch", "position", "samples_seen", "seed", "updates", "loss_scale", "good_steps", "tied")


class Refused(Exception):
    pass


class Wrong(Exception):
    pass


@dataclasses.dataclass
class Side:
    mesh: dict  # degrees of the axes that have one
    settings: list
    order: str = None
    files: dict = dataclasses.field(default_factory=dict)

    def degree(self, axis):
        return self.mesh.get(axis, 1)

    def replicas(self):
        return self.degree("dp") * self.degree("fsdp")

    def mesh_text(self):
        return ",".join(f"{axis}={degree}" for axis, degree in self.mesh.items()) or "dp=1"

    def words(self):
        words = ["--mesh", self.mesh_text()] + (["--order", self.order] if self.order else [])
        return words + [word for setting in self.settings for word in ("--set", setting)]

    def text(self):
        named = [setting.replace("parallel.", "").replace("checkpoint.", "") for setting in self.settings]
        short = [re.sub(r"=(\[\[).*", "=by name", setting) for setting in named]
        return f"{self.mesh_text()} ({' '.join(short + [f'order={self.order}'] * bool(self.order))})"

    def sums(self):
        """What decides in which order numbers are added."""
        order = [axis for axis in (self.order or ",".join(RANKS)).split(",") if axis != "pp" and self.degree(axis) > 1]
        order += ["ep"] * (self.degree("ep") > 1)
        return order, [self.degree(axis) for axis in order], {s for s in self.settings if s.startswith("parallel.") and key_of(s) not in STAGES_ALONE}


@dataclasses.dataclass
class Pair:
    model: str
    settings: list  # of both sides
    a: Side
    b: Side
    steps: int
    saved_at: int
    samples: int
    dtype: str = "float64"
    in_place: bool = False  # B goes on in (a copy of) A's folder

    def text(self):
        shown = [setting.partition(".")[2] for setting in self.settings if setting.startswith(("optimizer.kind", "model."))]
        return f"{self.a.text()} -> {self.b.text()} | {self.model} {' '.join(shown)} {self.dtype}, {self.saved_at} of {self.steps} steps"

    def precision(self):
        """float16 with a loss scale that is changed every other step."""
        if self.dtype == "float16":
            return ["precision.compute=float16", 'precision.loss_scale={"initial":1024,"growth":2,"backoff":0.5,"interval":2}']
        return [f"precision.{part}={self.dtype}" for part in ("params", "compute", "reduce")]

    def base(self, folder):
        words = [ORTHANT, "train", "--json"]
        if self.model != DEFAULT:
            path = os.path.join(folder, "model.json")
            with open(path, "w") as f:
                json.dump({**MODELS[self.model], **TRAINING}, f)
            words += ["--config", path]
        for name, text in {**self.a.files, **self.b.files}.items():
            with open(os.path.join(folder, name), "w") as f:
                f.write(text)
        common = [*self.settings, f"train.steps={self.steps}", f"data.samples={self.samples}", "data.log_samples=true", "data.eval_fraction=0",
                  "train.eval_every=0", "lr_schedule.kind=cosine", "lr_schedule.warmup_steps=2",
                  *self.precision()]
        return words + [word for setting in common for word in ("--set", setting)]


def key_of(setting):
    return setting.partition("=")[0]


def accepted(words, folder):
    done = run(*words, timeout=SECONDS, cwd=folder)
    if done.returncode == 2 and re.search(r"^ *(\[rank \d+\] )?fix: ", done.stderr, re.M | re.S):
        raise Refused(done.stderr)
    if done.returncode != 0:
        raise Wrong(f"exit code {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done


def samples_of(folder):
    """(epoch, ids) of every step that a run logged, the rows of all replicas in order."""
    rows = collections.defaultdict(list)
    for path in glob.glob(os.path.join(folder, "log", "samples-*.jsonl")):
        with open(path) as f:
            for line in map(json.loads, f):
                rows[line["step"]].append((line["first_row"], len(line["samples"]), line["epoch"], line["samples"]))
    found = {}
    for step, replicas in rows.items():
        replicas.sort()
        begins = [sum(replica[1] for replica in replicas[:i]) for i in range(len(replicas))]
        if [replica[0] for replica in replicas if replica[1]] != [begin for begin, replica in zip(begins, replicas) if replica[1]]:
            raise Wrong(f"{folder}: step {step}: rows of the replicas do not follow each other: {replicas}")
        if len({replica[2] for replica in replicas}) != 1:
            raise Wrong(f"{folder}: step {step}: replicas are in different epochs")
        found[step] = replicas[0][2], [sample for replica in replicas for sample in replica[3]]
    return found


def metrics_of(folder):
    with open(os.path.join(folder, "metrics.jsonl")) as f:
        lines = [json.loads(line) for line in f]
    return {line["step"]: {k: v for k, v in line.items() if "second" not in k and k != "peak_memory_bytes"} for line in lines}


def relative_errors(found, wanted):
    """By name, as `orthant parity` measures weights."""
    least = 0.01 * max(abs(tensor).max() for tensor in wanted.values())
    return {name: abs(found[name] - tensor).max() / max(abs(tensor).max(), least) for name, tensor in wanted.items()}


def relative(found, wanted):
    """The largest of them."""
    return max(relative_errors(found, wanted).values())


def parameters(state):
    return {name: tensor for name, tensor in state.items() if not name.startswith("optimizer.")}


def same_bits(found, wanted):
    """The first tensor that differs, or nothing."""
    if found.keys() != wanted.keys():
        return f"tensors {sorted(found.keys() ^ wanted.keys())[:3]}"
    for name, tensor in wanted.items():
        if found[name].dtype != tensor.dtype or found[name].shape != tensor.shape or found[name].tobytes() != tensor.tobytes():
            return name
    return None


class Trial:
    """The four runs of a pair and what must hold among them. `commands` are what was run; `worst` is the largest relative error."""

    def __init__(self, pair, folder, extra=()):
        self.pair, self.folder = pair, folder
        self.base = [*pair.base(folder), *extra]
        self.commands, self.worst, self.bits = [], 0.0, False

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def checkpoint(self, name, step):
        return self.path(name, "checkpoints", f"step-{step}")

    def train(self, name, side, *more):
        words = [*self.base, *side.words(), "--output_dir", self.path(name), *map(str, more)]
        self.commands.append(shlex.join(words))
        try:
            return json.loads(accepted(words, self.folder).stdout)
        except subprocess.TimeoutExpired:
            raise Wrong(f"{name}: no answer within {SECONDS} s") from None
        except (Wrong, Refused) as error:
            raise Wrong(f"{name}: {error}") from None

    def look_at_both_sides(self):
        """Refused without training anything, where one of them is."""
        for side in (self.pair.a, self.pair.b):
            accepted([word for word in [*self.base, *side.words(), "--dry-run"] if word != "--json"], self.folder)

    def require(self, holds, text):
        if not holds:
            raise Wrong(text)

    def loads_without_changing_a_bit(self):
        at = self.pair.saved_at
        self.train("again", self.pair.b, "--resume", self.checkpoint("a", at), "--steps", at)
        (saved, wanted), (loaded, found) = (read_state(self.checkpoint(run_name, at)) for run_name in ("a", "again"))
        for key in COUNTERS:
            self.require(loaded[key] == saved[key], f"{key} was saved as {saved[key]} and is {loaded[key]} after B loaded it")
        self.require(saved["step"] == at and saved["samples_seen"] == sum(len(ids) for _, ids in list(self.order.values())[:at]),
                     f"saved at step {saved['step']} after {saved['samples_seen']} samples")
        different = same_bits(found, wanted)
        self.require(not different, f"B changed {different} by loading and saving it")
        return saved["tied"]

    def keeps_the_order(self):
        """One rank's log names every sample of an epoch once; A's and B's are the same."""
        pair = self.pair
        self.require(list(self.order) == list(range(1, pair.steps + 1)), f"one rank logged the steps {list(self.order)}")
        for epoch in {epoch for epoch, _ in self.order.values()}:
            ids = [sample for of, step in self.order.values() if of == epoch for sample in step]
            self.require(len(set(ids)) == len(ids) and set(ids) <= set(range(pair.samples)), f"epoch {epoch} of one rank repeats or invents samples")
            last = epoch == self.order[pair.steps][0]
            self.require(last or len(ids) == pair.samples, f"epoch {epoch} of one rank has {len(ids)} of {pair.samples} samples")
        late = {step: found for step, found in self.order.items() if step > pair.saved_at}
        for name, wanted in (("a", self.order), ("again", {}), ("b", self.order if pair.in_place else late)):
            found = samples_of(self.path(name))
            for step in sorted(found.keys() | wanted.keys()):
                self.require(found.get(step) == wanted.get(step), f"{name}: samples of step {step} are {found.get(step)}, not {wanted.get(step)}")

    def goes_on_as(self, name):
        """B's later steps and weights against another run's."""
        pair = self.pair
        found, wanted = metrics_of(self.path("b")), metrics_of(self.path(name))
        first = 1 if pair.in_place else pair.saved_at + 1
        self.require(sorted(found) == list(range(first, pair.steps + 1)), f"B has metrics of the steps {sorted(found)}")
        for step in range(pair.saved_at + 1, pair.steps + 1):
            for key, value in wanted[step].items():
                if key in ("loss", "grad_norm", "auxiliary_loss"):
                    self.note(abs(found[step][key] - value) / abs(value), f"{key} of step {step} against {name}")
                elif key != "expert_loads" or pair.dtype == "float64":  # rounding may let another expert take a token
                    self.require(found[step][key] == value, f"{key} of step {step} is {found[step][key]}, not {value}")
        states = [read_state(self.checkpoint(of, pair.steps))[1] for of in ("b", name)]
        self.note(relative(*map(parameters, states)), f"final weights against {name}")
        return [found[step] == wanted[step] for step in range(pair.saved_at + 1, pair.steps + 1)], same_bits(*states)

    def note(self, error, what):
        self.worst = max(self.worst, error)
        self.require(error <= BOUNDS[self.pair.dtype], f"{what}: relative error {error:.1e}")

    def must_have_equal_bits(self, tied):
        return self.pair.a.sums() == self.pair.b.sums() and (not tied or self.pair.a.replicas() == 1)

    def run(self):
        pair = self.pair
        self.train("one", Side({}, []))
        self.order = dict(sorted(samples_of(self.path("one")).items()))
        whole = self.train("a", pair.a, "--set", f"checkpoint.save_every={pair.saved_at}", "--set", "checkpoint.keep_last=99")
        tied = self.loads_without_changing_a_bit()
        source = "b" if pair.in_place else "a"
        if pair.in_place:
            shutil.copytree(self.path("a"), self.path("b"))
        result = self.train("b", pair.b, "--resume", self.checkpoint(source, pair.saved_at))
        self.keeps_the_order()
        metrics, different = self.goes_on_as("a")
        self.bits = all(metrics) and not different and result["weights_hash"] == whole["weights_hash"]
        self.required = self.must_have_equal_bits(tied)
        self.require(self.bits or not self.required, f"other bits than A's: first step with other metrics "
                     f"{pair.saved_at + 1 + metrics.index(False) if False in metrics else 'none'}, first tensor {different}")
        self.goes_on_as("one")
