"""Kills a random rank with SIGKILL at a random moment, again and again, and checks what the launcher makes of it.

  python3 kill_campaign.py --kills 200 --ranks 4

ORTHANT names the program (default: build/bin/orthant). The rounds go through Gloo and shared memory, with and without checks,
as ranks of the command itself and of `orthant launch`. Each round: exit code 3, the right rank named, the job ended within 5 s, and no process,
listening port or temporary file left. The moments cover start, rendezvous, making of groups, and communication.
"""
import argparse
import os
import random
import subprocess
import sys
import tempfile
import time

from program import ORTHANT, children, clean_environment, is_alive, listening, sockets_of, wait_until


def job_command(ranks, kind, backend=None):
    bench = [ORTHANT, "bench", "comm", "--mesh", f"dp={ranks}", "--rounds", "100000", "--warmup", "0"]
    bench += ["--backend", backend or ("gloo", "shm")[kind % 2]]
    if kind // 2 % 2:
        bench.append("--check-collectives")
    if kind // 4 % 2:
        bench = [ORTHANT, "launch", "--nproc", str(ranks), "--", *bench]
    return bench


def one_kill(ranks, delay, tmp, choose, command, slowest):
    """Returns a list of what was wrong; empty when all is well."""
    shm = set(os.listdir("/dev/shm"))
    with tempfile.TemporaryFile("w+") as errors:
        job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, stdin=subprocess.DEVNULL,
                               env=clean_environment(TMPDIR=tmp))
        if not wait_until(lambda: children(job.pid), 10):
            job.kill()
            return ["no rank was started"]
        time.sleep(delay)
        pids = children(job.pid)
        victim = choose(len(pids))
        sockets = sockets_of([job.pid, *pids])
        killed_at = time.monotonic()
        os.kill(pids[victim], 9)
        try:
            code = job.wait(20)
        except subprocess.TimeoutExpired:
            for pid in [*children(job.pid), job.pid]:
                os.kill(pid, 9)
            return [f"rank {victim} killed after {delay:.3f} s: still running 20 s later"]
        seconds = time.monotonic() - killed_at
        errors.seek(0)
        text = errors.read()
    wrong = []
    if code != 3:
        wrong.append(f"exit code {code}")
    if f"rank {victim}: killed by SIGKILL" not in text:
        wrong.append(f"rank {victim} not named in: {text[-400:]!r}")
    if seconds > slowest:
        wrong.append(f"took {seconds:.1f} s")
    if any(is_alive(pid) for pid in pids) or children(job.pid):
        wrong.append("a rank is still alive")
    if sockets & set(listening()):
        wrong.append("a port is still listened on")
    left = set(os.listdir(tmp)) | set(os.listdir("/dev/shm")) - shm
    if left:
        wrong.append(f"files left behind: {' '.join(sorted(left))}")
    return [f"{' '.join(command[1:])}: rank {victim} killed after {delay:.3f} s: {w}" for w in wrong]


def campaign(kills, ranks, seed=0, report=None, backend=None, slowest=5.0):
    """Runs `kills` rounds; returns everything that was wrong."""
    draw = random.Random(seed)
    wrong = []
    with tempfile.TemporaryDirectory() as tmp:
        for i in range(kills):
            # Half of the kills fall into the first 150 ms, where ranks meet and make their groups.
            delay = draw.uniform(0, 0.15) if i % 2 else draw.uniform(0, 1.0)
            wrong += one_kill(ranks, delay, tmp, draw.randrange, job_command(ranks, i, backend), slowest)
            if report:
                report(i + 1, wrong)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", choices=["gloo", "shm"], help="this backend alone (default: both in turn)")
    parser.add_argument("--slowest", type=float, default=5.0, help="seconds from kill to end of the job (default 5)")
    a = parser.parse_args()

    def report(done, wrong):
        if done % 10 == 0:
            print(f"{done} of {a.kills} kills, {len(wrong)} wrong", file=sys.stderr)

    wrong = campaign(a.kills, a.ranks, a.seed, report, a.backend, a.slowest)
    for line in wrong:
        print(line)
    print(f"{a.kills} kills of {a.ranks} ranks: {len(wrong)} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
