#!/usr/bin/env python3
"""What cannot be trained is refused before a rank starts, with its reason and a setting that works: docs/refusals.md, row by row.

With --all every setting that a row names is followed, else the first."""
import functools
import json
import os
import re
import resource
import shlex
import shutil
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

from program import SOURCE, FolderTest, clean_environment, only_json, orthant

PAGE = os.path.join(SOURCE, "docs", "refusals.md")
ENVIRONMENT = clean_environment(CUDA_VISIBLE_DEVICES="")  # the page speaks of a machine without a GPU
ALL = "--all" in sys.argv
TABLE = "0F0 0F1 0BW0 0BW1\n1F0 1BW0 1F1 1BW1\n"


class Remedy:
    """One setting of the last column: what it changes in the options, and whether the message must name it."""

    def __init__(self, before, options):
        self.options = words_of(options)
        self.leaves_out = before.endswith("leave out ")
        self.is_named = not self.leaves_out and not before.endswith("such as ")

    def followed(self, asked):
        keys = [key for key, _ in self.options]
        kept = [(key, value) for key, value in asked if key not in keys]
        return kept if self.leaves_out else kept + self.options

    def new_words(self, asked):
        """The words that are in no option asked for: they can only come from the message."""
        known = set().union(*map(pieces, asked))
        return set().union(*map(pieces, self.options)) - known


class RefusalRow:
    def __init__(self, group, asked, why, nearest):
        self.group, self.text = group, asked.strip().strip("`")
        self.asked = words_of(self.text)
        self.reasons = re.findall(r"`([^`]+)`", why)
        code = re.search(r"\(exit code (\d)\)", why)
        self.exit_code = int(code.group(1)) if code else 2
        parts = re.split(r"`(--[^`]+)`", nearest)
        self.remedies = [Remedy(parts[i], parts[i + 1]) for i in range(0, len(parts) - 1, 2)]


def words_of(options):
    """[(key, value)]: the key of `--set a.b=1` is `--set a.b`; an option without a value has an empty one."""
    words, found = shlex.split(options), []
    for i, word in enumerate(words):
        if not word.startswith("--"):
            continue
        value = words[i + 1] if i + 1 < len(words) and not words[i + 1].startswith("--") else None
        found.append((f"{word} {value.partition('=')[0]}" if word == "--set" else word, value))
    return found


def given(options):
    return [word for key, value in options for word in (key.split()[0], value) if word is not None]


def pieces(option):
    """What a message must have to name an option: the last part of a key and the words of its value."""
    key, value = option
    if value is None:
        return {key}
    if key.startswith("--set "):
        value = f"{key.rpartition('.')[2]} {value.partition('=')[2]}"
    return set(re.findall(r"[^\s,:={}\[\]\"]+", value))


def page():
    with open(PAGE) as f:
        text = f.read()
    rows, group = [], ""
    for line in text.splitlines():
        if line.startswith("## "):
            group = line[3:]
        elif line.startswith("| `"):
            rows.append(RefusalRow(group, *line.strip("|").split(" | ")))
    return json.loads(re.search(r"```json\n(.*?)```", text, re.DOTALL).group(1)), rows, text


CONFIG, ROWS, TEXT = page()


def few_descriptors():
    # Where a mesh is too large for a host, and would be started all the same.
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))


class Trial:
    """A folder with the configuration, for one command; in a test's folder, which goes away with it."""

    def __init__(self, parent, run=None):
        self.folder = tempfile.mkdtemp(dir=parent)
        with open(os.path.join(self.folder, "config.json"), "w") as f:
            json.dump(CONFIG, f)
        with open(os.path.join(self.folder, "table.txt"), "w") as f:
            f.write(TABLE)
        if run:
            shutil.copytree(run, os.path.join(self.folder, "run"))
            shutil.copytree(run, os.path.join(self.folder, "lost"), ignore=shutil.ignore_patterns("checkpoints"))
            for name in ("linked", "piped"):
                os.mkdir(os.path.join(self.folder, name))
            os.symlink("../config.json", os.path.join(self.folder, "linked", "metrics.jsonl"))
            os.mkfifo(os.path.join(self.folder, "piped", ".lock"))

    def files(self):
        return sorted(os.listdir(self.folder))

    def train(self, options, *more, command=("train",)):
        if not any(key == "--timeout" for key, _ in options):
            more += ("--timeout", "5")  # for what is not refused, and waits for ranks that nobody started
        bound = few_descriptors if ("--mesh", "dp=2048") in options else None
        return orthant(*command, "--config", "config.json", *given(options), *more, cwd=self.folder, env=ENVIRONMENT, preexec_fn=bound)


def problem_of(row, folder, run=None):
    """Why a row is not as the page says; empty when it is."""
    folder_given = any(key == "--output_dir" or key == "--resume" for key, _ in row.asked)
    trial = Trial(folder, run)
    before = trial.files()
    refused = trial.train(row.asked, *([] if folder_given else ["--output_dir", "out"]))
    after = trial.files()
    shown = f"{row.text}: exit code {refused.returncode}: {refused.stderr}"
    message, _, fix = refused.stderr.partition("\n  fix: ")
    if refused.returncode != row.exit_code or not message.startswith("orthant: error: ") or refused.stdout:
        return shown
    if "[rank" in refused.stderr or (after != before and not folder_given):
        return "ranks were started by " + shown
    missing = [reason for reason in row.reasons if reason not in message]
    for remedy in row.remedies:
        missing += sorted(word for word in remedy.new_words(row.asked) if remedy.is_named and not re.search(rf"(?<!\w){re.escape(word)}(?!\w)", fix))
    if missing or not fix.strip() or not row.remedies:
        return f"{missing} is missing in {shown}"
    for remedy in row.remedies if ALL else row.remedies[:1]:
        if problem := problem_of_remedy(tuple(remedy.followed(row.asked)), folder, run):
            return f"{row.text} -> {problem}"
    return ""


@functools.cache
def problem_of_remedy(options, folder, run):
    followed = Trial(folder, run).train(options, *([] if run or ("--dry-run", None) in options else ["--dry-run"]))
    return "" if followed.returncode == 0 else f"{given(options)}: exit code {followed.returncode}: {followed.stderr}"


class Tables(FolderTest):
    def check(self, group, least, run=None):
        rows = [row for row in ROWS if row.group == group]
        self.assertGreaterEqual(len(rows), least, "the page lost rows, or they are written in another way")
        with ThreadPoolExecutor(2) as pool:
            problems = [problem for problem in pool.map(lambda row: problem_of(row, self.folder, run), rows) if problem]
        if problems:
            self.fail("\n\n".join(["not as the page says:", *problems]))

    def test_mesh_and_ranks(self):
        self.check("Mesh and ranks", 20)

    def test_batches_and_microbatches(self):
        self.check("Batches and microbatches", 12)

    def test_stages_and_schedules(self):
        self.check("Stages and schedules", 36)

    def test_tensor_parallelism(self):
        self.check("Tensor parallelism", 14)

    def test_sharding_and_precision(self):
        self.check("Sharding and precision", 12)

    def test_backends_and_devices(self):
        self.check("Backends and devices", 7)

    def test_launchers(self):
        self.check("Launchers", 10)

    def test_folders_and_checkpoints(self):
        trial = Trial(self.folder)
        self.assertEqual(trial.train([], "--output_dir", "run").returncode, 0)
        self.check("Folders and checkpoints", 12, run=os.path.join(trial.folder, "run"))


class Commands(FolderTest):
    """A dry run and the other commands that train refuse the same."""

    def refused(self, words, *command):
        trial = Trial(self.folder)
        refused = trial.train(words_of(words), command=command)
        self.assertEqual(trial.files(), ["config.json", "table.txt"])
        self.assertEqual((refused.returncode, refused.stdout), (2, ""), refused.stderr)
        self.assertNotIn("[rank", refused.stderr)
        self.assertIn("\n  fix: ", refused.stderr)
        return refused.stderr

    def test_they_refuse_as_train_does(self):
        for words, reason in (("--mesh pp=8", "7 units"), ("--mesh dp=2 --set 'model.freeze=[\"*\"]'", "frozen"), ("--mesh dp=2 --backend nccl", "NCCL"),
                              ("--mesh pp=2 --set parallel.schedule=nowhere.txt", "cannot be read"),
                              ("--mesh pp=2 --set 'parallel.split=[[\"embed\"],[\"loss\"]]'", "no stage holds layers.0")):
            for command in (("train", "--dry-run"), ("parity", "--json"), ("bench", "step", "--json")):
                with self.subTest(words=words, command=command):
                    self.assertIn(reason, self.refused(words, *command))

    def test_parity_compares_one_model(self):
        self.assertIn("parameter layers.0.mlp.w1.weight is not alike", self.refused("--mesh dp=2 --vary model.intermediate_size=32", "parity"))
        self.assertIn("parameter layers.3", self.refused("--mesh dp=2 --vary model.num_hidden_layers=3", "parity"))

    def test_parity_takes_one_precision(self):
        self.assertIn("beside --set precision.compute=bfloat16", self.refused("--mesh dp=2 --dtype float32 --set precision.compute=bfloat16", "parity"))

    def test_a_dry_run_takes_the_fake_backend(self):
        self.assertEqual(Trial(self.folder).train(words_of("--mesh pp=2,dp=2 --backend fake"), "--dry-run").returncode, 0)


class NamesOfOtherPrograms(FolderTest):
    """docs/other_programs.md: each name is answered with ours, as a key and as an option, before a rank starts."""

    def rows(self):
        with open(os.path.join(SOURCE, "docs", "other_programs.md")) as f:
            return re.findall(r"^\| `([^`]+)` \| ([^|]+) \| (?:`([a-z_.]+)[^`]*`)?(.*) \|$", f.read(), re.MULTILINE)

    def test_every_name_is_answered(self):
        rows = self.rows()
        self.assertGreaterEqual(len(rows), 40)
        with ThreadPoolExecutor(2) as pool:
            for (name, owner, key, note), done in zip(rows, pool.map(lambda row: self.asked("--set", f"{row[0]}=1"), rows)):
                with self.subTest(name=name):
                    self.assertIn(f"unknown key {name.partition('.')[0]}", done)
                    self.assertIn(f"\n  fix: {name} is {owner}'s name: {f'set {key}' if key else note.strip()}", done)

    def test_options_are_answered_too(self):
        for name, key in (("gradient_accumulation_steps", "parallel.microbatches"), ("learning-rate", "optimizer.lr"), ("max_steps", "train.steps"),
                          ("per_device_train_batch_size", "train.global_batch_size"), ("warmup_ratio", "lr_schedule.warmup_steps"),
                          ("fp16", "precision.compute"), ("tensor_model_parallel_size", "mesh.tp")):
            with self.subTest(name=name):
                self.assertIn(f"use --set {key}=", self.asked(f"--{name}", "1"))

    def test_what_is_off_is_to_be_left_out(self):
        for words in (("--set", "fp16=false"), ("--fp16", "false"), ("--fp16=false",), ("--fp16", "0", "--steps", "3")):
            with self.subTest(words=words):
                self.assertIn("\n  fix: fp16 is Hugging Face's name: leave it out\n", self.asked(*words))

    def test_the_nearest_name_is_still_given(self):
        self.assertIn('fix: use "steps"', self.asked("--set", "train.step=1"))
        self.assertIn("did you mean --mesh?", self.asked("--mehs", "dp=2"))

    def asked(self, *words):
        trial = Trial(self.folder)
        done = trial.train([], *words)
        self.assertEqual((done.returncode, done.stdout, trial.files()), (2, "", ["config.json", "table.txt"]), done.stderr)
        return done.stderr


class WithoutEffect(FolderTest):
    """What the page's last section lists changes no bit and makes no file."""

    _, _, LISTED = TEXT.partition("\n## Accepted without effect\n")

    def outcome(self, options):
        trial = Trial(self.folder)
        weights_hash = only_json(self, trial.train(options, "--output_dir", "out", "--json"))["weights_hash"]
        return weights_hash, sorted(os.listdir(trial.folder) + os.listdir(os.path.join(trial.folder, "out")))

    def test_settings_of_axes_that_are_not_there(self):
        bullets = re.findall(r"^- without [^`]+`([^`]+)`", self.LISTED, re.MULTILINE)
        self.assertEqual(len(bullets), 5)
        self.assertEqual(self.outcome([option for options in bullets for option in words_of(options)]), self.outcome([]))

    def test_they_are_named_once(self):
        bullets = re.findall(r"^- without [^`]+`([^`]+)`", self.LISTED, re.MULTILINE)
        options = [option for options in bullets for option in words_of(options)]
        said = Trial(self.folder).train(options, "--output_dir", "out").stderr
        for key, _ in options:
            with self.subTest(key=key):
                noted = [line for line in said.splitlines() if "no effect" in line and key.split()[1] in line]
                self.assertEqual(len(noted), 1, said)
        said = Trial(self.folder).train(words_of("--mesh pp=2"), "--output_dir", "out").stderr
        self.assertEqual(said.count("note: parallel.microbatches is 1 with mesh.pp 2"), 1, said)
        quiet = Trial(self.folder).train(words_of("--mesh pp=2 --set parallel.microbatches=4"), "--output_dir", "out").stderr
        self.assertNotIn("note: ", quiet)

    def test_settings_beside_others(self):
        bullets = re.findall(r"^- `([^`]+)` beside `([^`]+)`", self.LISTED, re.MULTILINE)
        self.assertEqual(len(bullets), 6)
        for idle, others in bullets:
            with self.subTest(idle=idle, others=others):
                self.assertEqual(self.outcome(words_of(f"{others} {idle}")), self.outcome(words_of(others)))


if __name__ == "__main__":
    unittest.main(argv=[word for word in sys.argv if word != "--all"])
