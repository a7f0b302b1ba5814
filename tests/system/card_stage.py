"""What a stage of the card campaign is, and what it has at hand while it runs: our program, programs of tests, PyTorch's programs, and a file for
its lines. On a rehearsal there is no card: models are tiny, devices are CPUs, and what only a card can answer is answered by `rehearsed`,
so that what is made of the answer is tested."""
import concurrent.futures
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from dataclasses import dataclass
from typing import Callable

from program import ORTHANT, SOURCE, clean_environment


@dataclass
class Stage:
    name: str
    issues: str
    shows: str
    seconds: int  # that it is expected to take on a card
    limit: int
    timed: bool  # nothing else runs beside it
    action: Callable

    @property
    def file(self):
        return self.name.replace(" ", "-")

    def seconds_here(self, rehearsed):
        return (10, 300) if rehearsed else (self.seconds, self.limit)


def stage(name, issues, shows, seconds, limit, timed=False):
    """Makes a stage of the function below it, which takes a StageRun."""
    def decorate(action):
        action.stage = Stage(name, issues, shows, seconds, limit, timed, action)
        return action
    return decorate


def stages_by_name(modules):
    found = [value.stage for module in modules for value in vars(module).values() if isinstance(getattr(value, "stage", None), Stage)]
    return {one.name: one for one in found}


class StageRun:
    def __init__(self, arguments, stage):
        self.tests_folder, self.out, self.peers, self.reference_folder = arguments.tests, arguments.out, arguments.peers, arguments.reference
        self.rehearsed = arguments.rehearse
        self.device = "cpu" if self.rehearsed else "cuda"
        self.stage = stage

    def run(self):
        with tempfile.TemporaryDirectory() as self.folder, open(os.path.join(self.out, f"{self.stage.file}.jsonl"), "a") as self.lines:
            self.stage.action(self)
        return 0

    def tell(self, issue, claim, asked, found, right=None):
        """One line. `right`: None where nothing was asked, or it cannot be judged here."""
        if self.rehearsed and right is not None and asked_of_speed(asked):
            right = None  # tiny models on CPUs say nothing of a card's speed
        cells = {"claim": claim, "asked": asked, "found": str(found)}
        cells = {name: " ".join(text.replace("|", "/").split()) for name, text in cells.items()}  # a row of a table
        self.lines.write(json.dumps({"issue": issue, **cells, "right": right}) + "\n")
        self.lines.flush()
        print(f"{claim}: {found}", flush=True)

    def at_most(self, issue, claim, limit, found, unit):
        self.tell(issue, claim, f"at most {limit:.4g} {unit}", f"{found:.4g} {unit}", bool(found <= limit))

    def at_least(self, issue, claim, limit, found, unit):
        self.tell(issue, claim, f"at least {limit:.4g} {unit}", f"{found:.4g} {unit}", bool(found >= limit))

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def run_program(self, *words, timeout=None, environment=None):
        words = [str(word) for word in words]
        print("$", " ".join(words), flush=True)
        done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=timeout, cwd=self.folder,
                              env=clean_environment(**(environment or {})))
        print(done.stderr[-3000:], flush=True)
        return done

    def run_telling(self, *words, timeout=None, environment=None):
        """The same of a program whose lines are told as they come: (exit code, or None when the time was over, its lines). It is over in time
        whatever becomes of its ranks: where one is stuck in its device, even SIGKILL ends neither it nor its output."""
        words = [str(word) for word in words]
        print("$", " ".join(words), flush=True)
        job = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                               cwd=self.folder, env=clean_environment(**(environment or {})), process_group=0)
        lines, began, code = [], time.monotonic(), None

        def tell():
            with job.stdout:
                for line in job.stdout:
                    lines.append(line)
                    print(f"{time.monotonic() - began:7.1f} {line}", end="", flush=True)

        reader = threading.Thread(target=tell, daemon=True)
        reader.start()
        try:
            reader.join(timeout)
            if not reader.is_alive():
                code = job.wait(None if timeout is None else max(0, began + timeout - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        finally:
            if code is None:
                end_job(job)
                reader.join(1)  # what it said last
        return code, "".join(lines)

    def run_together(self, *programs, timeout):
        """Programs side by side, all within one time: of each (exit code, or None when the time was over, its output, its errors)."""
        end, jobs = time.monotonic() + timeout, []
        paths = [(self.path(f"together{i}.out"), self.path(f"together{i}.err")) for i in range(len(programs))]
        try:
            for words, (out, errors) in zip(programs, paths):
                print("$", *words, flush=True)
                with open(out, "w") as o, open(errors, "w") as e:
                    jobs.append(subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=o, stderr=e, cwd=self.folder,
                                                 env=clean_environment(), process_group=0))
            for job in jobs:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    job.wait(max(0, end - time.monotonic()))
        finally:
            codes = [job.poll() for job in jobs]
            for job in jobs:
                if job.poll() is None:
                    end_job(job)
        results = []
        for code, pair in zip(codes, paths):
            texts = []
            for path in pair:
                with open(path, errors="replace") as f:
                    texts.append(f.read())
            print(texts[1][-3000:], flush=True)
            results.append((code, *texts))
        return results

    def orthant(self, *words, codes=(0,), timeout=None):
        done = self.run_program(ORTHANT, *words, timeout=timeout)
        if done.returncode not in codes:
            raise RuntimeError(f"orthant {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr[-2000:]}")
        return done

    def json(self, *words, rehearsed=None, codes=(0,), timeout=None):
        """The document of a command. `rehearsed`: the answer where there is no card and the command needs one."""
        if self.rehearsed and rehearsed is not None:
            return rehearsed
        return json.loads(self.orthant(*words, "--json", codes=codes, timeout=timeout).stdout)

    def peer(self, script, *words, rehearsed):
        """The JSON lines of a PyTorch program; empty where it is not there or fails, which is told."""
        path = os.path.join(self.peers, script)
        if self.rehearsed:
            return rehearsed
        if not os.path.exists(path):
            self.tell("", f"{script} beside ours", "it runs", "not in the folder of peers")
            return []
        done = self.run_program("python3", path, *words, environment={"PYTHONPATH": ":".join([self.peers, *self.unpacked_wheels()])})
        documents = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if not documents:
            self.tell("", f"{script} beside ours", "it runs", f"exit code {done.returncode}: {(done.stdout + done.stderr).strip()[-300:]}", False)
        return documents

    def unpacked_wheels(self):
        """The folder of what tools/pack --wheels carried, unpacked once; none where nothing was."""
        wheels, folder = os.path.join(os.path.dirname(ORTHANT), "wheels"), os.path.join(self.out, "python")
        if not os.path.isdir(wheels):
            return []
        if not os.path.isdir(folder):
            for name in sorted(os.listdir(wheels)):
                with zipfile.ZipFile(os.path.join(wheels, name)) as wheel:
                    wheel.extractall(folder + ".new")
            os.replace(folder + ".new", folder)
        return [folder]

    def test_program(self, issue, claim, program, topic, rehearsed_topic=None, launcher=(), asked="all pass", shapes=None, shards=1, timeout=None):
        """Tests of a GoogleTest program, in so many processes, each of which has so many seconds. `topic`: a filter. On a rehearsal those of `rehearsed_topic` on the emulated card, or
        their list alone."""
        path = os.path.join(self.tests_folder, program)
        if not os.path.exists(path):
            return self.tell(issue, claim, asked, f"no {path}: build it and carry it along", None if self.rehearsed else False)
        if self.rehearsed and not rehearsed_topic:
            done = self.run_program(path, f"--gtest_filter={topic}", "--gtest_list_tests")
            return self.tell(issue, claim, asked, f"{sum(line.startswith('  ') for line in done.stdout.splitlines())} tests")
        emulated = {"ORTHANT_EMULATED_CARD": os.path.join(self.tests_folder, "emulated_card"), "ORTHANT_SHAPES": 1, "OMP_NUM_THREADS": 1}
        environment = emulated if self.rehearsed else {"ORTHANT_SHAPES": shapes} if shapes else {}

        def run_shard(shard):
            part = {"GTEST_TOTAL_SHARDS": shards, "GTEST_SHARD_INDEX": shard} if shards > 1 else {}
            return self.run_telling(*launcher, path, f"--gtest_filter={rehearsed_topic or topic if self.rehearsed else topic}",
                                    timeout=timeout, environment={**environment, **part})

        with concurrent.futures.ThreadPoolExecutor(shards) as pool:
            parts = list(pool.map(run_shard, range(shards)))
        count, failed = 0, set()
        for _, text in parts:
            count += max(map(int, re.findall(r"\[  PASSED  \] (\d+) test", text)), default=0)
            failed.update(re.findall(r"\[  FAILED  \] ([\w./]+)", text))
        codes = [code for code, _ in parts]
        right = all(code == 0 for code in codes) and count > 0
        found = f"{count} pass" + (f", {len(failed)} fail: {', '.join(sorted(failed)[:6])}" if failed else "")
        if None in codes:
            begun = re.findall(r"\[ RUN      \] ([\w./]+)", parts[codes.index(None)][1])
            found += f", not over after {timeout} s, in {begun[-1] if begun else 'its start'}"
        elif not right and not failed:
            found += f", exit code {next((code for code in codes if code != 0), 0)}"
        return self.tell(issue, claim, asked, found, right)

    def ranks(self, count, backend="nccl"):
        """The options that put so many ranks on one card."""
        if self.rehearsed:
            return ["--device", "cpu", "--backend", "gloo"]
        return ["--device", "cuda", "--backend", backend, *(["--ranks-per-device", str(count)] if backend == "nccl" else [])]

    def config(self, *parts):
        return os.path.join(SOURCE, *parts)

    def settings(self, given, tiny=()):
        """--set for each; on a rehearsal those of a tiny model, which count more, behind them."""
        return [word for setting in [*given, *(tiny if self.rehearsed else ())] for word in ("--set", setting)]

    def reference(self, name):
        """What --prepare found on the CPU; None where it was not made."""
        try:
            with open(os.path.join(self.reference_folder, "reference.json")) as f:
                return json.load(f).get(name)
        except OSError:
            return None


def process_tree(roots):
    """Those of the processes that live, and what they started and what is in their groups, too."""
    alive = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as f:
                state, parent, group = f.read().rsplit(")", 1)[1].split()[:3]
        except (OSError, ValueError):
            continue
        if state not in "ZX":
            alive[int(name)] = int(parent), int(group)
    found, size = set(roots), 0
    while size < len(found):
        size = len(found)
        found |= {pid for pid, (parent, group) in alive.items() if parent in found or group in found}
    return found & alive.keys()


def end_job(job, grace=5):
    """Ends a job, the leader of a process group, with all that it started: by SIGTERM, and what is left after so many seconds by SIGKILL.
    Waits no longer for what does not come to its end even so."""
    left, end = process_tree([job.pid]), time.monotonic() + grace
    with contextlib.suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGTERM)
    while left and time.monotonic() < end:
        time.sleep(0.05)
        job.poll()
        left = process_tree(left)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        job.wait(1)


def asked_of_speed(asked):
    return bool(re.search(r"\b(ms|GiB|times|share)\b", asked))


def say(text):
    print(text, file=sys.stderr, flush=True)
