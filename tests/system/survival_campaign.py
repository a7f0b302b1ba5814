"""Disturbs trainings at random moments, again and again, and checks that nothing but time is lost.

  python3 survival_campaign.py --kills 200 --stops 100
  python3 survival_campaign.py --terms 50

ORTHANT names the program (default: build/bin/orthant). The rounds go through eight meshes of 4 and 8 ranks, with checkpoints that are
saved at once and in the background.

--kills: SIGKILL to a random rank, up to four times a run, while ranks start, train, save and start again; `--max-restarts` brings the
job back. Each run: exit code 0, the weights_hash of the undisturbed run, every step's metrics once, no restart that goes on from before
the newest checkpoint that was complete when the rank was killed, no hang, and no process, listening port, shared memory, temporary file
or half-written checkpoint left.

--stops: SIGSTOP to a random rank, up to three times a run, half of them for good and half followed by SIGCONT within the timeout of 5 s.
One that is stopped for good is named within 5.8 s and `--max-restarts` brings the job back; one that goes on is not named. Else as --kills.

--terms: one SIGTERM to the launcher, to a random rank or to all of them at a random moment, from when the program takes signals on. Each
round: exit code 75 (0 when it was done), nothing left, and a resumed run with the weights_hash of the undisturbed one.

All need minutes: a run of 8 ranks on 2 cores takes some 5 s, and each restart adds to it.
"""
import argparse
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from program import ORTHANT, children, clean_environment, is_alive, listening, sockets_of, wait_until

MESHES = ("dp=2,tp=2", "fsdp=4", "pp=2,dp=2", "pp=2,fsdp=2,tp=2", "pp=4,tp=2", "dp=4", "fsdp=2,tp=2", "pp=2,dp=2,tp=2")
STEPS = 60
CONFIG = {"name": "survivor", "seed": 5,
          "model": {"kind": "llama", "preset": "llama-tiny", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
                    "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 67},
          "data": {"kind": "tokens", "sequence_length": 16, "samples": 256}, "parallel": {"microbatches": 4},
          "train": {"global_batch_size": 16, "steps": STEPS}, "checkpoint": {"save_every": 4}}
LONGEST = 300  # seconds of a run, however often it is disturbed
TIMEOUT, LATE = 5, 0.8  # seconds until a stopped rank is given up, and until its name is told


def catches_term(pid):
    try:
        with open(f"/proc/{pid}/status") as f:
            return bool(int(re.search(r"SigCgt:\s*(\w+)", f.read()).group(1), 16) >> signal.SIGTERM - 1 & 1)
    except (OSError, AttributeError):
        return False


class Run:
    """One training in a folder of its own."""

    def __init__(self, folder, mesh, asynchronous, *words):
        self.folder, self.output = folder, os.path.join(folder, "run")
        os.makedirs(folder, exist_ok=True)
        self.tmp = os.path.join(folder, "tmp")
        os.makedirs(self.tmp, exist_ok=True)
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(CONFIG, f)
        self.shm = set(os.listdir("/dev/shm"))
        self.command = [ORTHANT, "train", "--config", "config.json", "--mesh", mesh, "--set", f"checkpoint.asynchronous={asynchronous}",
                        "--output_dir", "run", "--json", *words]
        self.errors = os.path.join(folder, "errors")
        self.began = time.monotonic()
        with open(os.path.join(folder, "output"), "w") as out, open(self.errors, "w") as err:
            self.process = subprocess.Popen(self.command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, cwd=folder,
                                            env=clean_environment(TMPDIR=self.tmp))
        self.pids, self.sockets = set(), set()

    def running(self):
        return self.process.poll() is None

    def said(self):
        with open(self.errors) as f:
            return f.read()

    def ranks(self):
        found = children(self.process.pid)
        self.pids |= set(found)
        return found

    def steps_done(self):
        try:
            with open(os.path.join(self.output, "metrics.jsonl")) as f:
                return f.read().count("\n")
        except OSError:
            return 0

    def newest_checkpoint(self):
        try:
            names = os.listdir(os.path.join(self.output, "checkpoints"))
        except OSError:
            return -1
        return max((int(name[5:]) for name in names if re.fullmatch(r"step-\d+", name)), default=-1)

    def end(self):
        """The exit code, or None after a hang, which is ended."""
        try:
            return self.process.wait(max(1, LONGEST - (time.monotonic() - self.began)))
        except subprocess.TimeoutExpired:
            for pid in [*children(self.process.pid), self.process.pid]:
                os.kill(pid, signal.SIGKILL)
            self.process.wait()
            return None

    def result(self):
        with open(os.path.join(self.folder, "output")) as f:
            return json.loads(f.read() or "{}")

    def leftovers(self):
        wrong = []
        if any(is_alive(pid) for pid in self.pids):
            wrong.append("a rank is still alive")
        if self.sockets & set(listening()):
            wrong.append("a port is still listened on")
        if set(os.listdir("/dev/shm")) - self.shm:
            wrong.append("shared memory is left")
        if os.listdir(self.tmp):
            wrong.append(f"temporary files are left: {os.listdir(self.tmp)}")
        checkpoints = os.path.join(self.output, "checkpoints")
        names = os.listdir(checkpoints) if os.path.isdir(checkpoints) else []
        halves = [name for name in names if not re.fullmatch(r"step-\d+|latest|best", name)]
        return wrong + ([f"left in checkpoints: {halves}"] if halves else [])

    def differences(self, expected):
        """Of a run that ended well from the undisturbed one."""
        found = self.result()
        wrong = []
        if found.get("weights_hash") != expected["weights_hash"]:
            wrong.append(f"weights_hash {found.get('weights_hash')} instead of {expected['weights_hash']}")
        with open(os.path.join(self.output, "metrics.jsonl")) as f:
            steps = [json.loads(line)["step"] for line in f]
        if steps != list(range(1, STEPS + 1)):
            wrong.append(f"metrics of steps {steps}")
        return wrong


class Campaign:
    def __init__(self, folder, seed):
        self.folder, self.draw, self.undisturbed, self.rounds = folder, random.Random(seed), {}, 0

    def run(self, mesh, asynchronous, *words):
        self.rounds += 1
        return Run(os.path.join(self.folder, str(self.rounds)), mesh, asynchronous, *words)

    def expected(self, mesh):
        """The result of the undisturbed run and the seconds it took."""
        if mesh not in self.undisturbed:
            run = self.run(mesh, "false")
            if run.end() != 0:
                raise SystemExit(f"the undisturbed run of {mesh} failed:\n{run.said()}")
            self.undisturbed[mesh] = (run.result(), time.monotonic() - run.began)
            shutil.rmtree(run.folder)
        return self.undisturbed[mesh]

    def wait_for_a_moment(self, run, seconds):
        """By the clock after ranks were started, or by the steps of the run."""
        if not wait_until(lambda: run.ranks() or not run.running(), 30):
            return
        if self.draw.random() < 0.5:
            time.sleep(self.draw.uniform(0, 0.6 * seconds))
        else:
            step = self.draw.randrange(STEPS)
            wait_until(lambda: run.steps_done() >= step or not run.running(), seconds)
            time.sleep(self.draw.uniform(0, 0.03))

    def kills(self, mesh, asynchronous, most):
        """Kills up to `most` ranks of one run; returns how many and what was wrong."""
        expected, seconds = self.expected(mesh)
        run = self.run(mesh, asynchronous, "--max-restarts", "20")
        killed = []  # (bytes said before, newest checkpoint then)
        for _ in range(self.draw.randint(1, most)):
            self.wait_for_a_moment(run, seconds)
            ranks = run.ranks()
            if not ranks or not run.running():
                continue
            run.sockets |= sockets_of([run.process.pid, *ranks])
            newest, said = run.newest_checkpoint(), len(run.said())
            victim = self.draw.randrange(len(ranks))
            try:
                os.kill(ranks[victim], signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed.append((said, newest))
            wait_until(lambda: not is_alive(ranks[victim]), 5)
        code = run.end()
        wrong = [f"exit code {code}" if code is not None else f"still running after {LONGEST} s"] if code != 0 else []
        said = run.said()
        for i, (begin, newest) in enumerate(killed):
            between = said[begin:killed[i + 1][0] if i + 1 < len(killed) else None]
            resumed = re.search(r"resumed from \S+ at step (\d+)", between.partition("starting all ranks again")[2])
            if resumed and int(resumed.group(1)) < newest:
                wrong.append(f"went on from step {resumed.group(1)} though the checkpoint of step {newest} was complete")
        wrong += run.leftovers() + (run.differences(expected) if code == 0 else [])
        return len(killed), self.concluded(run, wrong, f"{len(killed)} kills")

    def stops(self, mesh, asynchronous, most):
        """Stops up to `most` ranks of one run; returns how many and what was wrong."""
        expected, seconds = self.expected(mesh)
        run = self.run(mesh, asynchronous, "--max-restarts", "20", "--timeout", str(TIMEOUT))
        stopped, wrong = 0, []
        for _ in range(self.draw.randint(1, most)):
            self.wait_for_a_moment(run, seconds)
            ranks = run.ranks()
            if not ranks or not run.running():
                continue
            run.sockets |= sockets_of([run.process.pid, *ranks])
            victim, for_good, said = self.draw.randrange(len(ranks)), self.draw.random() < 0.5, len(run.said())
            try:
                os.kill(ranks[victim], signal.SIGSTOP)
            except ProcessLookupError:
                continue
            began = time.monotonic()
            named = f"orthant: rank {victim}: stopped (SIGSTOP) for "
            if for_good:
                wait_until(lambda: named in run.said()[said:] or not is_alive(ranks[victim]) and not run.running(), TIMEOUT + 10)
                took = time.monotonic() - began
                if named not in run.said()[said:]:
                    wrong.append(f"rank {victim} was stopped and not named: {run.said()[said:]!r}")
                elif took > TIMEOUT + LATE:
                    wrong.append(f"rank {victim} was stopped and named after {took:.2f} s")
            else:
                time.sleep(self.draw.uniform(0, 0.5 * TIMEOUT))
                try:
                    os.kill(ranks[victim], signal.SIGCONT)
                except ProcessLookupError:
                    continue
                if "stopped (SIGSTOP)" in run.said()[said:]:
                    wrong.append(f"rank {victim} went on after {time.monotonic() - began:.1f} s and was named all the same")
            stopped += 1
        code = run.end()
        wrong += [f"exit code {code}" if code is not None else f"still running after {LONGEST} s"] if code != 0 else []
        wrong += run.leftovers() + (run.differences(expected) if code == 0 else [])
        return stopped, self.concluded(run, wrong, f"{stopped} stops")

    def term(self, mesh, asynchronous):
        expected, seconds = self.expected(mesh)
        run = self.run(mesh, asynchronous)
        wait_until(lambda: catches_term(run.process.pid) or not run.running(), 30)
        delay, whom = self.draw.uniform(0, 1.1 * seconds), self.draw.choice(("launcher", "rank", "all"))
        time.sleep(delay)
        ranks = run.ranks()
        chosen = {"launcher": [run.process.pid], "rank": [self.draw.choice(ranks)] if ranks else [run.process.pid],
                  "all": [run.process.pid, *ranks]}[whom]
        for pid in chosen:
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
        code = run.end()
        wrong = [f"exit code {code}"] if code not in (0, 75) else []
        wrong += run.leftovers()
        if code == 75:
            said = run.said()
            run = Run(run.folder, mesh, asynchronous, "--resume", "auto")
            if run.end() != 0:
                wrong.append("could not be resumed")
            wrong += run.leftovers()
            wrong = wrong and [*wrong, said]
        if code in (0, 75) and run.process.returncode == 0:
            wrong += run.differences(expected)
        return self.concluded(run, wrong, f"SIGTERM to {whom} after {delay:.3f} s")

    def concluded(self, run, wrong, what):
        text = [f"{' '.join(run.command[3:])}: {what}: {w}" for w in wrong]
        if wrong:
            text.append(run.said())
        shutil.rmtree(run.folder)
        return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--stops", type=int, default=0)
    parser.add_argument("--terms", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    if a.kills + a.stops + a.terms == 0:
        parser.error("nothing to do: give --kills N, --stops N or --terms N")
    wrong, killed, stopped = [], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(folder, a.seed)
        rounds = itertools.cycle(itertools.product(("false", "true"), MESHES))
        while killed < a.kills:
            asynchronous, mesh = next(rounds)
            number, found = campaign.kills(mesh, asynchronous, min(4, a.kills - killed))
            killed += number
            wrong += found
            print(f"{killed} of {a.kills} kills, {len(wrong)} wrong", file=sys.stderr)
        while stopped < a.stops:
            asynchronous, mesh = next(rounds)
            number, found = campaign.stops(mesh, asynchronous, min(3, a.stops - stopped))
            stopped += number
            wrong += found
            print(f"{stopped} of {a.stops} stops, {len(wrong)} wrong", file=sys.stderr)
        for i in range(a.terms):
            asynchronous, mesh = next(rounds)
            wrong += campaign.term(mesh, asynchronous)
            print(f"{i + 1} of {a.terms} SIGTERMs, {len(wrong)} wrong", file=sys.stderr)
    for line in wrong:
        print(line)
    print(f"{killed} kills, {stopped} stops and {a.terms} SIGTERMs: {len(wrong)} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
