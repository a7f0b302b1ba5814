"""A training in a folder of its own that somebody disturbs: what it does meanwhile, how it ends, what it leaves, and whether it differs from the run
that nobody disturbed."""
import collections
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import time

from program import ORTHANT, children, clean_environment, is_alive, listening, sockets_of, wait_until

LONGEST = 120  # seconds without a step, which is a hang: a busy machine may take several for each
LOOPBACK = ("0100007F", "00000000000000000000000001000000")  # as /proc/net/tcp and tcp6 write it

# A configuration, and the words of the command line that every run of it has: its mesh, for example.
Setup = collections.namedtuple("Setup", "config words")


def catches_term(pid):
    try:
        with open(f"/proc/{pid}/status") as f:
            return bool(int(re.search(r"SigCgt:\s*(\w+)", f.read()).group(1), 16) >> signal.SIGTERM - 1 & 1)
    except (OSError, AttributeError):
        return False


def processes_of(tmp):
    """Process numbers of everything that was started with this folder for temporary files, orphans included."""
    found, mark = [], f"TMPDIR={tmp}\0".encode()
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as f:
                found += [int(path.split("/")[2])] if mark in f.read() else []
        except OSError:
            pass
    return [pid for pid in found if is_alive(pid)]


def send(pid, number):
    """Whether there was a process to signal."""
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


class Run:
    """Begins at once. `launcher` comes before the program, `environment` besides the usual; `before` runs in its process first."""

    def __init__(self, folder, setup, *words, launcher=(), environment=None, before=None, output="run"):
        self.folder, self.below, self.output = folder, output, os.path.join(folder, output)
        self.tmp = os.path.join(folder, "tmp")
        os.makedirs(self.tmp, exist_ok=True)
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(setup.config, f)
        self.steps = setup.config["train"]["steps"]
        self.shm = set(os.listdir("/dev/shm"))
        self.words = [*setup.words, *map(str, words)]
        self.command = [*launcher, ORTHANT, "train", "--config", "config.json", "--output_dir", output, "--json", *self.words]
        self.errors = os.path.join(folder, "errors")
        self.began = time.monotonic()
        with open(os.path.join(folder, "output"), "w") as out, open(self.errors, "w") as err:
            self.process = subprocess.Popen(self.command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, cwd=folder, preexec_fn=before,
                                            env=clean_environment(TMPDIR=self.tmp, **(environment or {})))
        self.pids, self.sockets, self.exposed = set(), set(), set()
        self.checkpoint_names = r"step-\d+|latest|best"  # of what may be among the checkpoints of a run that ended in order

    def running(self):
        return self.process.poll() is None

    def said(self):
        with open(self.errors, errors="replace") as f:
            return f.read()

    def ranks(self):
        found = children(self.process.pid)
        self.pids |= set(found)
        return found

    def note_sockets(self):
        """Remembers what the job listens on, and which of it is open to others than this host."""
        held = sockets_of([self.process.pid, *self.ranks()])
        self.sockets |= held
        self.exposed |= {address for inode, address in listening().items() if inode in held and address not in LOOPBACK}

    def steps_done(self):
        try:
            with open(os.path.join(self.output, "metrics.jsonl")) as f:
                return f.read().count("\n")
        except OSError:
            return 0

    def checkpoints(self):
        """Steps of those that are complete by name."""
        try:
            names = os.listdir(os.path.join(self.output, "checkpoints"))
        except OSError:
            return []
        return sorted(int(name[5:]) for name in names if re.fullmatch(r"step-\d+", name))

    def newest_checkpoint(self):
        return max(self.checkpoints(), default=-1)

    def wait_for_a_moment(self, draw, seconds):
        """By the clock after ranks were started, or by the steps of the run; `seconds` is about what the run takes."""
        if not wait_until(lambda: self.ranks() or not self.running(), 30):
            return
        if draw.random() < 0.5:
            time.sleep(draw.uniform(0, 0.6 * seconds))
        else:
            step, delay = draw.randrange(self.steps), draw.uniform(0, 0.03)
            wait_until(lambda: self.steps_done() >= step or not self.running(), seconds)
            time.sleep(delay)

    def end(self):
        """The exit code, or None after a hang, which is ended."""
        done, since = -1, time.monotonic()
        while True:
            try:
                return self.process.wait(1)
            except subprocess.TimeoutExpired:
                if self.steps_done() != done:
                    done, since = self.steps_done(), time.monotonic()
                elif time.monotonic() - since > LONGEST:
                    self.kill()
                    return None

    def kill(self):
        for pid in [*children(self.process.pid), self.process.pid]:
            send(pid, signal.SIGKILL)
        self.process.wait()

    def result(self):
        with open(os.path.join(self.folder, "output")) as f:
            return json.loads(f.read() or "{}")

    def leftovers(self):
        wrong = []
        if not wait_until(lambda: not processes_of(self.tmp) and not any(map(is_alive, self.pids)), 5):
            wrong.append("a process is still alive")
        if self.sockets & set(listening()):
            wrong.append("a port is still listened on")
        if set(os.listdir("/dev/shm")) - self.shm:
            wrong.append("shared memory is left")
        if os.listdir(self.tmp):
            wrong.append(f"temporary files are left: {os.listdir(self.tmp)}")
        return wrong

    def half_checkpoints(self):
        """What else is there."""
        checkpoints = os.path.join(self.output, "checkpoints")
        names = os.listdir(checkpoints) if os.path.isdir(checkpoints) else []
        halves = [name for name in names if not re.fullmatch(self.checkpoint_names, name)]
        return [f"left in checkpoints: {halves}"] if halves else []

    def differences(self, expected):
        """Of a run that ended well from the undisturbed one."""
        found = self.result()
        wrong = []
        if found.get("weights_hash") != expected["weights_hash"]:
            wrong.append(f"weights_hash {found.get('weights_hash')} instead of {expected['weights_hash']}")
        with open(os.path.join(self.output, "metrics.jsonl")) as f:
            steps = [json.loads(line)["step"] for line in f]
        if steps != list(range(1, self.steps + 1)):
            wrong.append(f"metrics of steps {steps}")
        return wrong


class Runs:
    """Runs of one campaign, each in a folder of its own, and the undisturbed one of every setup."""

    def __init__(self, folder):
        self.folder, self.undisturbed, self.rounds = folder, {}, 0

    def run(self, setup, *words, **options):
        self.rounds += 1
        return Run(os.path.join(self.folder, str(self.rounds)), setup, *words, **options)

    def expected(self, setup):
        """The result of the undisturbed run and the seconds it took."""
        key = json.dumps(setup)
        if key not in self.undisturbed:
            run = self.run(setup)
            if run.end() != 0:
                raise RuntimeError(f"the undisturbed run of {' '.join(setup.words)} failed:\n{run.said()}")
            self.undisturbed[key] = (run.result(), time.monotonic() - run.began)
            shutil.rmtree(run.folder)
        return self.undisturbed[key]
