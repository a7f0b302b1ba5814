"""Faults of processes: killed, crashed, stopped, slow, asked to stop, started twice."""
import os
import signal
import time

from diagnosis_campaign import halting
from disturbed_run import Run, catches_term, send
from program import ORTHANT, is_alive, wait_until
from trial import TIMEOUT, settings

LATE_TO_END = 6  # seconds beyond the timeout in which the other ranks of a stopped one have ended
CRASHES = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGKILL")


def kill(trial):
    setup, words = trial.draw_setup()
    trial.check("K1", trial.kills(setup, words, 2)[1])


def ranks_at_a_moment(trial, run, setup):
    """The ranks of a run at a random moment; none when it has ended before."""
    run.wait_for_a_moment(trial.draw, trial.expected(setup)[1])
    run.note_sockets()
    return run.ranks()


def kill_several(trial):
    """Also while they meet, and while they start again."""
    setup, words = trial.draw_setup(least=2)
    trial.expected(setup)
    run = trial.run(setup, *words, "--max-restarts", 20)
    for _ in range(trial.draw.randint(1, 3)):
        if trial.draw.random() < 0.5:
            wait_until(lambda: run.ranks() or not run.running(), 30)
            time.sleep(trial.draw.uniform(0, 0.3))
            ranks = run.ranks()
        else:
            ranks = ranks_at_a_moment(trial, run, setup)
        for pid in trial.draw.sample(ranks, trial.draw.randint(1, len(ranks))) if ranks else []:
            send(pid, signal.SIGKILL)
    trial.check("K3", trial.concluded(run, trial.ended_as_undisturbed(run, setup), "several killed"))


def once_each(trial):
    """L1: every sample once, in the order of the undisturbed run, whoever was killed."""
    setup, words = trial.draw_setup(least=2)
    undisturbed = trial.run(setup, *words)
    if undisturbed.end() != 0:
        raise RuntimeError(undisturbed.said())
    expected = trial.samples_of(undisturbed)
    run = trial.run(setup, *words, "--max-restarts", 20)
    for pid in ranks_at_a_moment(trial, run, setup)[:1]:
        send(pid, signal.SIGKILL)
    wrong = trial.ended_as_undisturbed(run, setup)
    found = trial.samples_of(run)
    wrong += [f"step {step}: samples {found.get(step)} instead of {rows}" for step, rows in expected.items() if found.get(step) != rows][:3]
    wrong += [f"samples of steps {sorted(found)}"] if set(found) != set(expected) else []
    trial.left_by(undisturbed)
    trial.check("L1", trial.concluded(run, wrong, "samples after a kill"))


def kill_launcher(trial):
    """Its ranks end with it, and the next run goes on."""
    setup, words = trial.draw_setup()
    trial.expected(setup)
    run = trial.run(setup, *words)
    ranks = ranks_at_a_moment(trial, run, setup)
    for pid in [run.process.pid, *(ranks if trial.draw.random() < 0.3 else [])]:
        send(pid, signal.SIGKILL)
    code = run.end()
    wrong = [f"exit code {code}"] if code not in (0, -signal.SIGKILL) else []
    trial.left_by(run)
    if code != 0:
        wrong += trial.goes_on(run, setup, *words)
    trial.check("K2", trial.concluded(run, wrong, "launcher killed"))


def crash(trial):
    setup, words = trial.draw_setup(least=2)
    name = trial.draw.choice(CRASHES)
    run = trial.run(setup, *words, *settings("train.steps=100000"))
    step = trial.draw.randrange(1, 8)
    wait_until(lambda: run.steps_done() >= step or not run.running(), 60)
    ranks = run.ranks()
    victim = trial.draw.randrange(len(ranks))
    send(ranks[victim], getattr(signal, name))
    wrong = trial.failed_with(run, 3, f"orthant: rank {victim}: killed by {name}")
    trial.diagnosed(run, {"killed"} if name == "SIGKILL" else {"crashed"})
    trial.check("K4", trial.concluded(run, wrong, f"rank {victim} gets {name}"))


def leave_early(trial):
    """A rank that ends by itself while others need it, with success or not."""
    setup, words = trial.draw_setup(least=2)
    victim, code = trial.draw.randrange(trial.num_ranks(setup)), trial.draw.choice((0, 1, 9))
    leave = f'if [ "$RANK" = {victim} ]; then sleep {trial.draw.uniform(0, 1):.2f}; exit {code}; fi; exec "$0" "$@"'
    launcher = (ORTHANT, "launch", "--nproc", str(trial.num_ranks(setup)), "--", "sh", "-c", leave)
    run = trial.run(setup, *words, "--timeout", TIMEOUT, launcher=launcher)
    told = f"orthant: rank {victim}: exit code {code}" if code else f"orthant: rank {victim}: ended with exit code 0 while rank "
    trial.check("K4", trial.concluded(run, trial.failed_with(run, code or 3, told), f"rank {victim} leaves with {code}"))


def crash_loop(trial):
    """The same rank dies in every attempt before the first save."""
    setup, words = trial.draw_setup(least=2)
    allowed = trial.draw.randint(1, 3)
    run = trial.run(setup, *words, *settings("train.steps=100000", "checkpoint.save_every=0"), "--max-restarts", allowed)
    killed = set()
    victim, delay = trial.draw.randrange(trial.num_ranks(setup)), trial.draw.uniform(0, 0.5)
    while run.running() and time.monotonic() < run.began + 120:
        ranks = run.ranks()
        if len(ranks) == trial.num_ranks(setup) and ranks[victim] not in killed:
            time.sleep(delay)
            killed.add(ranks[victim])
            send(ranks[victim], signal.SIGKILL)
        time.sleep(0.002)
    restarts = "1 restart" if allowed == 1 else f"{allowed} restarts"
    wrong = trial.failed_with(run, 3, f"rank {victim}: killed by SIGKILL", f"{restarts} without progress, not even a first checkpoint: giving up")
    wrong += [f"{len(killed)} attempts"] if len(killed) != allowed + 1 else []
    trial.check("K5", trial.concluded(run, wrong, f"rank {victim} dies in each attempt"))


def stop(trial):
    """For good, in the middle of a run that may not start again."""
    setup, words = trial.draw_setup(least=2)
    run = trial.run(setup, *words, *settings("train.steps=100000"), "--timeout", TIMEOUT)
    step = trial.draw.randrange(1, 12)
    wait_until(lambda: run.steps_done() >= step or not run.running(), 60)
    time.sleep(trial.draw.uniform(0, 0.05))
    ranks = run.ranks()
    victim = trial.draw.randrange(len(ranks))
    began = time.monotonic()
    send(ranks[victim], signal.SIGSTOP)
    wrong = trial.failed_with(run, 3, f"orthant: rank {victim}: stopped (SIGSTOP) for ")
    took = time.monotonic() - began
    wrong += [f"named after {took:.1f} s"] if took > TIMEOUT + LATE_TO_END else []
    trial.diagnosed(run, {"stopped rank"})
    trial.check("H1", trial.concluded(run, wrong, f"rank {victim} stopped"))


def stop_and_survive(trial):
    """Stopped for good or for a while, with restarts."""
    setup, words = trial.draw_setup()
    trial.check("H2", trial.stops(setup, words, 2)[1])


def jitter(trial):
    """Every rank is halted for moments again and again; nothing may come of it."""
    setup, words = trial.draw_setup(least=2)
    trial.expected(setup)
    run = trial.run(setup, *words, "--timeout", TIMEOUT)
    wait_until(lambda: run.ranks() or not run.running(), 30)
    until = time.monotonic() + trial.draw.uniform(1, 4)
    while run.running() and time.monotonic() < until:
        for pid in run.ranks():
            if trial.draw.random() < 0.4 and send(pid, signal.SIGSTOP):
                time.sleep(trial.draw.uniform(0, 0.02))
                send(pid, signal.SIGCONT)
        time.sleep(trial.draw.uniform(0, 0.01))
    wrong = trial.ended_as_undisturbed(run, setup)
    wrong += ["somebody was said to be stopped"] if "stopped (SIGSTOP)" in run.said() else []
    trial.check("D1", trial.concluded(run, wrong, "all ranks halted at random"))


def slow(trial):
    """One rank has its core for a part of the time alone."""
    setup, words = trial.draw_setup(least=2)
    trial.expected(setup)
    run = trial.run(setup, *words, "--timeout", TIMEOUT)
    wait_until(lambda: len(run.ranks()) == trial.num_ranks(setup) or not run.running(), 30)
    if run.running():
        ended, thread = halting(run, trial.draw.randrange(trial.num_ranks(setup)), share=trial.draw.uniform(0.3, 0.8))
        wrong = trial.ended_as_undisturbed(run, setup)
        ended.set()
        thread.join()
    else:
        wrong = trial.ended_as_undisturbed(run, setup)
    trial.check("R3", trial.concluded(run, wrong, "one rank is slow"))


def term(trial):
    setup, words = trial.draw_setup()
    trial.check("P1", trial.term(setup, words))


def term_and_more(trial):
    """An impatient scheduler: SIGTERM, and soon another, or SIGKILL to all."""
    setup, words = trial.draw_setup()
    trial.expected(setup)
    run = trial.run(setup, *words)
    wait_until(lambda: catches_term(run.process.pid) or not run.running(), 30)
    ranks_at_a_moment(trial, run, setup)
    how = trial.draw.choice(("another", "kill"))
    send(run.process.pid, signal.SIGTERM)
    time.sleep(trial.draw.uniform(0, 0.3))
    for pid in [run.process.pid] if how == "another" else [run.process.pid, *run.ranks()]:
        send(pid, signal.SIGTERM if how == "another" else signal.SIGKILL)
    code = run.end()
    right = (0, 75, 128 + signal.SIGTERM, -signal.SIGTERM) if how == "another" else (0, 75, -signal.SIGKILL)
    wrong = [f"exit code {code}"] if code not in right else []
    trial.left_by(run)
    if code != 0:
        wrong += trial.goes_on(run, setup, *words)
    trial.check("P2", trial.concluded(run, wrong, f"SIGTERM, then {how}"))


def two_jobs(trial):
    """The second one is refused and the first goes on."""
    setup, words = trial.draw_setup()
    trial.expected(setup)
    run = trial.run(setup, *words)
    config = os.path.join(run.output, "config.json")
    wait_until(lambda: os.path.exists(config) or not run.running(), 30)
    again = ("--resume", "auto") if trial.draw.random() < 0.5 else ()
    second = Run(os.path.join(trial.folder, "second"), setup, *words, *again, output=run.output)
    code, wrong = second.end(), []
    if run.running() or code != 0:  # else it came when the first had ended, and had nothing to do
        wrong += [] if code == 2 and f"output folder {run.output} " in second.said() else [f"the second ended with {code}: {second.said()}"]
    wrong += trial.ended_as_undisturbed(run, setup)
    trial.left_by(second)
    trial.check("C7", trial.concluded(run, wrong, "two jobs in one folder"))


def mixed(trial):
    """Kills, stops and requests one after another, by as many runs as it takes."""
    setup, words = trial.draw_setup(least=2)
    trial.expected(setup)
    run = trial.run(setup, *words, "--max-restarts", 20, "--timeout", TIMEOUT)
    wrong = []
    for _ in range(trial.draw.randint(2, 4)):
        ranks = ranks_at_a_moment(trial, run, setup)
        if not ranks or not run.running():
            break
        rank = trial.draw.randrange(len(ranks))
        how = trial.draw.choice(("kill", "stop", "pause", "term"))
        if how == "kill":
            send(ranks[rank], trial.draw.choice((signal.SIGKILL, signal.SIGSEGV)))
            wait_until(lambda: not is_alive(ranks[rank]), 5)
        elif how == "stop":
            wrong += trial.stop_for_good(run, ranks[rank], rank) or []
        elif how == "pause":
            wrong += trial.stop_for_a_while(run, ranks[rank], rank) or []
        elif send(run.process.pid, signal.SIGTERM) and run.end() == 75:
            trial.left_by(run)
            run = Run(run.folder, setup, *words, "--resume", "auto", "--max-restarts", 20, "--timeout", TIMEOUT)
    wrong += trial.ended_as_undisturbed(run, setup)
    trial.check("X1", trial.concluded(run, wrong, "several faults"))
