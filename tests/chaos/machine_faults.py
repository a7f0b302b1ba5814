"""Faults of the machine: too little memory, too few descriptors, little shared memory, a wall clock that jumps; and values that are not finite."""
import os
import re
import resource
import subprocess

import out_of_memory_campaign
import poison_campaign
from trial import settings

HERE = os.path.dirname(os.path.abspath(__file__))


def too_little_memory(trial, attempt):
    said = []
    campaign = out_of_memory_campaign.Campaign(said.append)
    attempt(campaign)
    trial.check("R1", said if campaign.failures or 70 in campaign.codes else [])


def data_limit(trial):
    """RLIMIT_DATA: a rank gets no memory in the middle of a step."""
    case = trial.draw.choice(out_of_memory_campaign.RUN_OUT)
    too_little_memory(trial, lambda campaign: campaign.runs_out(*case))


def memory_group(trial):
    """A control group's limit: the kernel kills a rank."""
    case = trial.draw.choice(out_of_memory_campaign.KILLED)
    too_little_memory(trial, lambda campaign: campaign.is_killed(*case))


def few(trial, what, run, setup, words, named):
    """Of a run that has little of something: it trains as ever, or is refused with the name of what it lacks, and then goes on with enough."""
    code, said = run.end(), run.said()
    if code == 0:
        wrong = run.differences(trial.expected(setup)[0])
    elif code not in (2, 3, 4) or not re.search(named, said):
        wrong = [f"exit code {code}: {said}"]
    else:
        wrong = trial.goes_on(run, setup, *words)
    trial.check("R2", trial.concluded(run, wrong, what))


def few_descriptors(trial):
    setup, words = trial.draw_setup()
    trial.expected(setup)
    most = trial.draw.randint(6, 48)
    run = trial.run(setup, *words, before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)))
    few(trial, f"{most} descriptors", run, setup, words, r"Too many open files|ulimit -n|descriptors")


def short_files(trial):
    setup, words = trial.draw_setup()
    trial.expected(setup)
    most = trial.draw.choice((1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 4 << 20))
    run = trial.run(setup, *words, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)))
    few(trial, f"files of {most} bytes", run, setup, words, r"File too large|ulimit -f")


def little_shared_memory(trial):
    """/dev/shm, where memory between ranks is not: a file without a name serves it."""
    setup, words = trial.draw_setup(least=2)
    trial.expected(setup)
    size = trial.draw.choice((4096, 1 << 16, 1 << 20))
    inside = f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$0" "$@"'
    run = trial.run(setup, *words, launcher=("unshare", "--mount", "sh", "-c", inside))
    trial.check("R2", trial.concluded(run, trial.ended_as_undisturbed(run, setup), f"/dev/shm of {size} bytes"))


def made_clock(folder):
    path = os.path.join(folder, "clock_shim.so")
    subprocess.run([os.environ.get("CC", "cc"), "-O1", "-shared", "-fPIC", "-o", path, os.path.join(HERE, "clock_shim.c")], check=True)
    return path


def clock_jumps(trial):
    setup, words = trial.draw_setup()
    trial.expected(setup)
    jumping = {"LD_PRELOAD": trial.shared.made("clock", made_clock), "CLOCK_JUMPS": str(trial.draw.randrange(1, 1 << 30))}
    run = trial.run(setup, *words, "--timeout", 60, environment=jumping)
    trial.check("R5", trial.concluded(run, trial.ended_as_undisturbed(run, setup), "a wall clock that jumps"))


class Poisoned:
    """Models of poison_campaign.py, each asked for its units once."""

    def __init__(self, folder):
        self.folder, self.models = folder, {}

    def model(self, name):
        if name not in self.models:
            self.models[name] = poison_campaign.Model(name, self.folder)
        return self.models[name]


def not_finite(trial):
    name = trial.draw.choice(poison_campaign.NAMES)
    model = trial.shared.made("poisoned", Poisoned).model(name)
    for number in range(20):  # a draw that the program refuses is no trial
        draw = poison_campaign.Draw(trial.draw.random(), number, {name: model}, 4)
        verdict, wrong = poison_campaign.judge(draw, os.path.join(trial.folder, str(number)))
        if verdict != "refused":
            trial.check("N1", [f"{' '.join(draw.words('OUT'))}: {text}" for text in wrong])
            return
    raise RuntimeError(f"20 draws of {name} were refused")
