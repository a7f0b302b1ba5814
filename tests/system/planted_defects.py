#!/usr/bin/env python3
"""Defects put in on purpose, one at a time: the tests named beside each must notice it.

  tests/system/planted_defects.py [--only WORD] [--list] [--scratch DIR] [--jobs 2]

After `make build`. Works on a copy of the tree in a scratch folder, which goes away at the end; the tree itself is only read.
For each defect: the named tests pass without it, the change is made, what they need is built, and they must fail; then the
change is taken back. Prints a Markdown table; exit code 1 when a defect was not found or could not be put in.

Build folders hold absolute paths. So the copy, with the times of its files, lies in the place of the tree in a name space of
its own, where little is built anew and no process outlives a command. Where the system allows no such name spaces, the copy is
configured and built by itself first, which takes as long as `make build` without a cache.
"""
import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Never changed here and too large to copy; the copy sees those of the tree.
SHARED = (".venv", ".material")


@dataclass
class Defect:
    what: str
    file: str  # below src/orthant
    before: str  # stands there once
    after: str
    target: str
    tests: str  # expression of ctest


DEFECTS = [
    Defect("a missing sum", "ops/exchange/bind.cpp",
           "frame.arriving[static_cast<std::size_t>(to)] = frame.pass.tensor->sum(frame[to], subject);", "",
           "test_interpret", "^interpret.linear$"),
    Defect("a wrong index", "mesh/mesh.cpp", "rank / stride(axis) % degree(axis)", "(rank + 1) / stride(axis) % degree(axis)",
           "test_mesh", "^mesh.mesh$"),
    Defect("a changed refusal text", "mesh/mesh.cpp", "a degree must be at least 1", "a degree must be positive",
           "test_mesh", "^mesh.mesh(_text)?$"),
    Defect("a leaked process", "launch/supervisor.cpp", "    kill(-rank.pid, SIGKILL);\n    take_report(rank);\n",
           "    take_report(rank);\n", "test_launch", "^launch.(forked_ranks|program)$"),
    Defect("a signal that ends at the wrapper", "launch/supervisor.cpp", "if (rank.alive) kill(-rank.pid, signal);",
           "if (rank.alive) kill(rank.pid, signal);", "test_launch", "^launch.program$"),
    Defect("a gradient not scaled", "ops/cross_entropy/cross_entropy.cpp", "const double scale = d_loss * targets.weight(token);",
           "const double scale = (d_loss == 0 ? 0 : 1) * targets.weight(token);", "test_operations", "^operations.cross_entropy$"),
    Defect("a wrong rounding of a split", "layout/rows.cpp", "divided_up(share.replica * global_batch, share.replicas)",
           "share.replica * global_batch / share.replicas", "test_layout", "^layout.rows$"),
    Defect("a lock not taken", "files/folder_lock.cpp", "  while (::flock(file.fd(), how | LOCK_NB) != 0) {", "  while (false) {",
           "test_files", "^files.folder_lock$"),
    Defect("a checkpoint byte not checked", "checkpoint/checkpoint.cpp", "if (hash != promised.xxh64[block]) {",
           "if (hash.size() != promised.xxh64[block].size()) {", "test_checkpoint", "^checkpoint.corruption$"),
    Defect("a schedule action out of order", "schedule/generators.cpp",
           "forwards = ahead;\n      actions.push_back({s, StageKind::BW, m});",
           "forwards = ahead;\n      actions.push_back({s, StageKind::BW, microbatches - 1 - m});",
           "test_schedule", "^schedule.(generators|named_schedules)$"),
    Defect("a step of a ring left out", "ops/attention/context_ring.cpp", "    join(here.keys_values, ring.read_pieces(step));",
           "    if (step > 1) join(here.keys_values, ring.read_pieces(step));", "orthant", "^system.context_parity$"),
    Defect("blocks merged without their statistic", "ops/attention/cpu_kernels.inc",
           "kept[row] = join_sums(lse[row], inverses[row], sums.lse);", "join_sums(lse[row], inverses[row], sums.lse), kept[row] = 1;",
           "test_operations", "^operations.attention_blocks$"),
    Defect("a help text without example", "cli/command.cpp", 'app.footer("Example:\\n  " + example);', "",
           "orthant", "^system.commands$"),
]


class Broken(Exception):
    """The campaign itself cannot go on."""


def namespace():
    """The command that gives another command name spaces of its own; None where the system allows none."""
    words = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--mount", "--pid", "--fork", "--kill-child",
             "--mount-proc"]
    try:
        return words if subprocess.run([*words, "true"], capture_output=True).returncode == 0 else None
    except OSError:
        return None


class Copy:
    """A copy of the tree in which commands run."""

    def __init__(self, scratch, jobs):
        self.tree, self.jobs, self.apart = os.path.join(scratch, "tree"), jobs, namespace()
        left_out = [*SHARED, ".git", "runs", "__pycache__", "build-*"] + ([] if self.apart else ["build"])
        shutil.copytree(ROOT, self.tree, symlinks=True, ignore=shutil.ignore_patterns(*left_out))  # copies times, too
        self.shared = [name for name in SHARED if os.path.isdir(os.path.join(ROOT, name))]
        for name in self.shared:
            path = os.path.join(self.tree, name)
            os.mkdir(path) if self.apart else os.symlink(os.path.join(ROOT, name), path)
        if not self.apart:
            print("no name spaces here: building the copy first", flush=True)
            self.must("tools/configure", "release")

    def run(self, *words):
        """In the copy's root; returns the finished process with all it said."""
        if self.apart:
            mounts = [f'mount --bind "$1/{name}" "$0/{name}"' for name in self.shared]
            script = " && ".join([*mounts, 'mount --rbind "$0" "$1"', 'cd "$1"', "shift", 'exec "$@"'])
            command = [*self.apart, "bash", "-c", script, self.tree, ROOT, *words]
        else:
            command = words
        return subprocess.run(command, cwd=self.tree, env={**os.environ, "BUILD": "build"}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")

    def must(self, *words):
        done = self.run(*words)
        if done.returncode != 0:
            raise Broken(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout[-2000:]}")

    def build(self, target):
        self.must("cmake", "--build", "build", "--parallel", str(self.jobs), "--target", target)

    def failed(self, tests):
        """Names of the tests that failed, from ctest's closing list."""
        done = self.run("tools/run_tests", "-R", tests)
        if done.returncode == 0:
            return []
        lines = done.stdout.partition("The following tests FAILED:")[2].splitlines()
        names = [line.split()[2] for line in lines if " - " in line]
        if not names:
            raise Broken(f"tools/run_tests -R '{tests}' ran nothing:\n{done.stdout[-2000:]}")
        return names


def put_in(copy, defect):
    """Returns the names of the tests that noticed it."""
    path = os.path.join(copy.tree, "src", "orthant", defect.file)
    with open(path) as file:
        whole = file.read()
    if whole.count(defect.before) != 1:
        raise Broken(f"{defect.file} has {whole.count(defect.before)} times, not once: {defect.before.strip()}")
    copy.build(defect.target)
    already = copy.failed(defect.tests)
    if already:
        raise Broken(f"without the defect these fail: {' '.join(already)}")
    try:
        with open(path, "w") as file:
            file.write(whole.replace(defect.before, defect.after))
        copy.build(defect.target)
        return copy.failed(defect.tests)
    finally:
        with open(path, "w") as file:
            file.write(whole)


def fits(defect):
    with open(os.path.join(ROOT, "src", "orthant", defect.file)) as file:
        return file.read().count(defect.before) == 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="defects whose name contains this")
    parser.add_argument("--list", action="store_true", help="print the defects and end; exit code 1 when one can no longer be put in")
    parser.add_argument("--scratch", help="folder for the copy, which needs about 1 GiB; else the system's own")
    parser.add_argument("--jobs", type=int, default=2, help="of the build")
    options = parser.parse_args()
    chosen = [defect for defect in DEFECTS if options.only in defect.what]
    if options.list:
        for defect in chosen:
            print(f"{defect.what}: {defect.file}, {defect.tests}" + ("" if fits(defect) else ": ITS TEXT DOES NOT STAND THERE ONCE"))
        return 0 if all(map(fits, chosen)) else 1
    if not os.path.exists(os.path.join(ROOT, "build", "build.ninja")):
        sys.exit("planted_defects.py: nothing is built: run make build")
    found = 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the copy goes then, too
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix="orthant-defects-") as scratch:
        copy = Copy(scratch, options.jobs)
        print("| defect | file | noticed by | |\n|---|---|---|---|", flush=True)
        for defect in chosen:
            try:
                noticed = put_in(copy, defect)
            except Broken as error:
                noticed, verdict = [str(error)], "NOT TRIED"
            else:
                verdict = "found" if noticed else "NOT FOUND"
                found += bool(noticed)
            print(f"| {defect.what} | {defect.file} | {' '.join(noticed)} | {verdict} |", flush=True)
    print(f"\n{found} of {len(chosen)} found")
    return 0 if chosen and found == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
