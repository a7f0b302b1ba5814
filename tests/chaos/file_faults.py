"""Faults of files and disks: calls that fail, a process that dies between two of them, full disks, damaged checkpoints, folders made to do harm."""
import os
import signal
import subprocess
import time

import crafted_campaign
import io_error_campaign
from disturbed_run import Setup, send
from program import orthant, wait_until
from trial import LLAMA, settings

PAGE = 4096


class Calls:
    """Of io_error_campaign.py: the calls on files that a run of each scenario makes, counted once."""

    def __init__(self, folder):
        self.campaign = io_error_campaign.Campaign(folder)
        self.counted = {}

    def count(self, name):
        if name not in self.counted:
            self.counted[name] = len(self.campaign.count(name))
        return self.counted[name]


def failing_call(trial, modes):
    calls = trial.shared.made("calls", Calls)
    name = trial.draw.choice(("resume", "fresh", "restart", "two_ranks", "background", "best", "earlier", "restart_unsaved"))
    position = trial.draw.randint(1, calls.count(name))
    error, mode = trial.draw.choice(io_error_campaign.ERRORS), trial.draw.choice(modes)
    return calls.campaign.trial(name, position, error, mode)


def io_error(trial):
    trial.check("C3", failing_call(trial, (io_error_campaign.ONCE, io_error_campaign.ALL_LATER, io_error_campaign.SAME_PATH)))


def torn_write(trial):
    trial.check("C1", failing_call(trial, (io_error_campaign.KILLED,)))


class Disk:
    """A disk of few bytes, there while this is entered."""

    def __init__(self, folder, size):
        self.folder, self.size = folder, size

    def __enter__(self):
        os.makedirs(self.folder, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.size}", "tmpfs", self.folder], check=True, capture_output=True)
        return self

    def grow(self, size):
        subprocess.run(["mount", "-o", f"remount,size={size}", self.folder], check=True, capture_output=True)

    def fill(self):
        """Leaves no byte; the file that has them all."""
        path = os.path.join(self.folder, "ballast")
        with open(path, "ab", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(PAGE))
            except OSError:
                return path

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", self.folder], check=True, capture_output=True)


def small_disk(trial):
    """A disk of a random size under the run's folder: too small for the first checkpoint, for the second, or large enough."""
    setup, words = trial.draw_setup()
    trial.expected(setup)
    folder = os.path.join(trial.folder, "disk")
    with Disk(folder, trial.draw.randrange(16 * PAGE, 600 * PAGE, PAGE)) as disk:
        run = trial.run(setup, *words, *settings("checkpoint.retry_seconds=0.2"), output="../disk/run")
        code = run.end()
        said = run.said()
        wrong = run.differences(trial.expected(setup)[0]) if code == 0 else []
        if code not in (0, 4) or code == 4 and not ("No space left on device" in said or "free" in said and os.path.realpath(folder) in said):
            wrong.append(f"exit code {code}: {said}")
        disk.grow(64 << 20)
        wrong += trial.goes_on(run, setup, *words) if code == 4 else []
        trial.check("C3", trial.concluded(run, wrong, f"a disk of {disk.size} bytes"))


def filled_disk(trial):
    """Full for a time in the middle: training goes on, what was saved stays, and the end is that of the undisturbed run."""
    setup, words = trial.draw_setup()
    _, seconds = trial.expected(setup)
    with Disk(os.path.join(trial.folder, "disk"), 64 << 20) as disk:
        run = trial.run(setup, *words, *settings("checkpoint.retry_seconds=0.2"), output="../disk/run")
        run.wait_for_a_moment(trial.draw, seconds)
        before = set(run.checkpoints())
        ballast = disk.fill() if run.running() else None
        time.sleep(trial.draw.uniform(0.05, 0.5 * seconds))
        kept = set(run.checkpoints())
        wrong = [f"checkpoints {sorted(before)} became {sorted(kept)} on a full disk"] if before and not kept else []
        if ballast:
            os.unlink(ballast)
        code = run.end()
        if code == 4:  # it was full until the last step
            wrong += [] if "No space left on device" in run.said() else [run.said()]
            wrong += trial.goes_on(run, setup, *words)
        else:
            wrong += trial.ended_as_undisturbed(run, setup)
        trial.check("C3", trial.concluded(run, wrong, "a disk that is full for a time"))


DAMAGES = ("flip", "cut", "grow", "remove", "swap", "empty")


def damage(draw, folder, how):
    """One file of a checkpoint in one way."""
    names = sorted(os.listdir(folder))
    path = os.path.join(folder, draw.choice(names))
    size = os.path.getsize(path)
    if how == "flip":
        with open(path, "r+b") as f:
            place = draw.randrange(size)
            f.seek(place)
            old = f.read(1)[0]
            f.seek(place)
            f.write(bytes((old ^ 1 << draw.randrange(8),)))
    elif how in ("cut", "empty"):
        os.truncate(path, draw.randrange(size) if how == "cut" else 0)
    elif how == "grow":
        with open(path, "ab") as f:
            f.write(draw.randbytes(draw.randint(1, PAGE)))
    elif how == "remove":
        os.remove(path)
    else:
        other = os.path.join(folder, draw.choice([name for name in names if os.path.join(folder, name) != path]))
        os.rename(path, path + ".swap")
        os.rename(other, path)
        os.rename(path + ".swap", other)
    return os.path.basename(path)


def damaged_checkpoint(trial):
    """Of a job that was killed: its newest one, or its newest two; the next run takes the newest that is whole."""
    setup, words = trial.draw_setup()
    trial.expected(setup)
    run = trial.run(setup, *words, *settings("checkpoint.keep_last=5"))
    wait_until(lambda: len(run.checkpoints()) >= 3 or not run.running(), 60)
    for pid in [run.process.pid, *run.ranks()]:
        send(pid, signal.SIGKILL)
    run.end()
    trial.left_by(run)
    steps = run.checkpoints()
    wrong, done = [], []
    for step in steps[-trial.draw.randint(1, 2):] if len(steps) > 2 else ():
        how, folder = trial.draw.choice(DAMAGES), os.path.join(run.output, "checkpoints", f"step-{step}")
        done.append(f"{how} {damage(trial.draw, folder, how)} of step {step}")
        verified = orthant("checkpoint", "verify", folder)
        if verified.returncode != 4:
            wrong.append(f"checkpoint verify ends with {verified.returncode} after {done[-1]}: {verified.stdout}{verified.stderr}")
    wrong += trial.goes_on(run, setup, *words, kept=r"|step-\d+\.refused")
    trial.check("C4", trial.concluded(run, wrong, ", ".join(done)))


class Crafted:
    def __init__(self, folder):
        self.campaign = crafted_campaign.Campaign(folder, busy=True)
        self.checkpoints, self.folders = crafted_campaign.all_cases()


def crafted(trial):
    """A folder that is wrong by name; no run: a command is given it."""
    made = trial.shared.made("crafted", Crafted)
    of_checkpoint = trial.draw.random() < 0.3
    cases = trial.draw.sample(made.checkpoints if of_checkpoint else made.folders, 4)
    for case in cases:
        wrong = made.campaign.faults(case)
        trial.check("S4" if of_checkpoint else "S5", [f"{case} [{case.commands[0]}]: {text}: {made.campaign.last.output!r}" for text in wrong])


def odd_names(trial):
    """A folder for output whose name would lead a careless program astray."""
    name = trial.draw.choice(("a b", "-x", "naïve", "q'uote", 'd"ouble', "$HOME", "*", "%s%n", "x" * 200, "new\nline", "\x1b[31mred", ".hidden", "a/../b"))
    setup = Setup(LLAMA, ("--mesh", trial.draw.choice(("dp=1", "dp=2"))))
    trial.expected(setup)
    run = trial.run(setup, *settings("checkpoint.save_every=20"), output=os.path.join(".", name))
    wrong = trial.ended_as_undisturbed(run, setup)
    wrong += ["an escape sequence was printed"] if "\x1b[31m" in run.said() else []
    trial.check("S4", trial.concluded(run, wrong, f"output folder {name!r}"))
