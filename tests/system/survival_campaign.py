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
import random
import re
import shutil
import signal
import sys
import tempfile
import time

from disturbed_run import LONGEST, Run, Runs, Setup, catches_term, send
from program import is_alive, wait_until

MESHES = ("dp=2,tp=2", "fsdp=4", "pp=2,dp=2", "pp=2,fsdp=2,tp=2", "pp=4,tp=2", "dp=4", "fsdp=2,tp=2", "pp=2,dp=2,tp=2")
STEPS = 60
CONFIG = {"name": "survivor", "seed": 5,
          "model": {"kind": "llama", "preset": "llama-tiny", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
                    "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 67},
          "data": {"kind": "tokens", "sequence_length": 16, "samples": 256}, "parallel": {"microbatches": 4},
          "train": {"global_batch_size": 16, "steps": STEPS}, "checkpoint": {"save_every": 4}}
TIMEOUT, LATE = 5, 0.8  # seconds until a stopped rank is given up, and until its name is told


class Campaign(Runs):
    def __init__(self, folder, draw, timeout=TIMEOUT, late=LATE):
        super().__init__(folder)
        self.draw, self.timeout, self.late = draw, timeout, late

    def kills(self, setup, words, most):
        """Kills up to `most` ranks of one run; returns how many and what was wrong."""
        expected, seconds = self.expected(setup)
        run = self.run(setup, *words, "--max-restarts", "20")
        killed = []  # (bytes said before, newest checkpoint then)
        for _ in range(self.draw.randint(1, most)):
            run.wait_for_a_moment(self.draw, seconds)
            ranks = run.ranks()
            if not ranks or not run.running():
                continue
            run.note_sockets()
            newest, said = run.newest_checkpoint(), len(run.said())
            victim = self.draw.choice(ranks)
            if send(victim, signal.SIGKILL):
                killed.append((said, newest))
                wait_until(lambda: not is_alive(victim), 5)
        wrong = self.ended_like(run, expected)
        said = run.said()
        for i, (begin, newest) in enumerate(killed):
            between = said[begin:killed[i + 1][0] if i + 1 < len(killed) else None]
            resumed = re.search(r"resumed from \S+ at step (\d+)", between.partition("starting all ranks again")[2])
            if resumed and int(resumed.group(1)) < newest:
                wrong.append(f"went on from step {resumed.group(1)} though the checkpoint of step {newest} was complete")
        return len(killed), self.concluded(run, wrong, f"{len(killed)} kills")

    def stops(self, setup, words, most):
        """Stops up to `most` ranks of one run; returns how many and what was wrong."""
        expected, seconds = self.expected(setup)
        run = self.run(setup, *words, "--max-restarts", "20", "--timeout", self.timeout)
        stopped, wrong = 0, []
        for _ in range(self.draw.randint(1, most)):
            run.wait_for_a_moment(self.draw, seconds)
            ranks = run.ranks()
            if not ranks or not run.running():
                continue
            run.note_sockets()
            victim, for_good = self.draw.randrange(len(ranks)), self.draw.random() < 0.5
            found = (self.stop_for_good if for_good else self.stop_for_a_while)(run, ranks[victim], victim)
            stopped += found is not None
            wrong += found or []
        wrong += self.ended_like(run, expected)
        return stopped, self.concluded(run, wrong, f"{stopped} stops")

    def stop_for_good(self, run, pid, rank):
        """What was wrong; None when the rank had ended."""
        said, named = len(run.said()), f"orthant: rank {rank}: stopped (SIGSTOP) for "
        if not send(pid, signal.SIGSTOP):
            return None
        began = time.monotonic()
        wait_until(lambda: named in run.said()[said:] or not is_alive(pid) and not run.running(), self.timeout + 10)
        took = time.monotonic() - began
        if named not in run.said()[said:]:
            return [f"rank {rank} was stopped and not named: {run.said()[said:]!r}"]
        return [f"rank {rank} was stopped and named after {took:.2f} s"] if took > self.timeout + self.late else []

    def stop_for_a_while(self, run, pid, rank):
        """The same; a stop that a busy machine made as long as the timeout is not judged."""
        said = len(run.said())
        if not send(pid, signal.SIGSTOP):
            return None
        began = time.monotonic()
        time.sleep(self.draw.uniform(0, 0.5 * self.timeout))
        if not send(pid, signal.SIGCONT):
            return None
        took = time.monotonic() - began
        if "stopped (SIGSTOP)" in run.said()[said:] and took < self.timeout:
            return [f"rank {rank} went on after {took:.1f} s and was named all the same"]
        return []

    def term(self, setup, words):
        expected, seconds = self.expected(setup)
        run = self.run(setup, *words)
        wait_until(lambda: catches_term(run.process.pid) or not run.running(), 30)
        delay, whom = self.draw.uniform(0, 1.1 * seconds), self.draw.choice(("launcher", "rank", "all"))
        time.sleep(delay)
        ranks = run.ranks()
        chosen = {"launcher": [run.process.pid], "rank": [self.draw.choice(ranks)] if ranks else [run.process.pid],
                  "all": [run.process.pid, *ranks]}[whom]
        for pid in chosen:
            send(pid, signal.SIGTERM)
        code, wrong, said = run.end(), [], ""
        if code == 75:
            wrong += run.half_checkpoints() + self.left_by(run)
            said = run.said()
            run = Run(run.folder, setup, *words, "--resume", "auto")
        wrong += self.ended_like(run, expected)
        return self.concluded(run, [*wrong, said] if wrong else [], f"SIGTERM to {whom} after {delay:.3f} s")

    @staticmethod
    def ended_like(run, expected):
        """What is wrong with the end of a run that must end like the undisturbed one."""
        code = run.end()
        if code != 0:
            return [f"exit code {code}" if code is not None else f"no step for {LONGEST} s", *run.half_checkpoints()]
        return run.differences(expected) + run.half_checkpoints()

    def left_by(self, run):
        """Of a run that has ended."""
        return run.leftovers()

    def concluded(self, run, wrong, what):
        """The texts of what was wrong, with what is left of the run, whose folder goes away."""
        wrong = [*wrong, *self.left_by(run)]
        text = [f"{' '.join(run.words)}: {what}: {w}" for w in wrong]
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
        campaign = Campaign(folder, random.Random(a.seed))
        rounds = itertools.cycle((Setup(CONFIG, ("--mesh", mesh)), ("--set", f"checkpoint.asynchronous={how}"))
                                 for how, mesh in itertools.product(("false", "true"), MESHES))
        while killed < a.kills:
            number, found = campaign.kills(*next(rounds), min(4, a.kills - killed))
            killed += number
            wrong += found
            print(f"{killed} of {a.kills} kills, {len(wrong)} wrong", file=sys.stderr)
        while stopped < a.stops:
            number, found = campaign.stops(*next(rounds), min(3, a.stops - stopped))
            stopped += number
            wrong += found
            print(f"{stopped} of {a.stops} stops, {len(wrong)} wrong", file=sys.stderr)
        for i in range(a.terms):
            wrong += campaign.term(*next(rounds))
            print(f"{i + 1} of {a.terms} SIGTERMs, {len(wrong)} wrong", file=sys.stderr)
    for line in wrong:
        print(line)
    print(f"{killed} kills, {stopped} stops and {a.terms} SIGTERMs: {len(wrong)} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
