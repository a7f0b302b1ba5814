#!/usr/bin/env python3
"""Links, paths and texts that somebody else put there: what the program refuses, what it leaves alone, and how it says so."""
import json
import os
import re
import shutil
import stat
import subprocess
import unittest
from concurrent.futures import ThreadPoolExecutor

import crafted_checkpoints
import crafted_files
import crafted_models
from program import ORTHANT, FolderTest, clean_environment, orthant

TINY = ["--set", "model.kind=llama", "--set", "model.hidden_size=8", "--set", "model.num_hidden_layers=1", "--set", "model.num_attention_heads=1",
        "--set", "model.intermediate_size=8", "--set", "model.vocab_size=16", "--set", "model.max_position_embeddings=8", "--set", "data.kind=tokens",
        "--set", "data.sequence_length=8", "--set", "data.samples=8", "--set", "train.global_batch_size=2", "--set", "train.steps=1"]
NOBODY = 65534


def train(*words, **options):
    return orthant("train", *TINY, *words, **options)


def error_of(finished):
    """The error without the name of the rank, or of the program, that stands before it."""
    lines = [line.removeprefix("[rank 0] ").removeprefix("orthant: ") for line in finished.stderr.splitlines()]
    begin = next((i for i, line in enumerate(lines) if "error: " in line), None)
    return "\n".join(lines[begin:begin + 2]) if begin is not None else ""


class Links(FolderTest):
    def test_no_link_in_an_output_folder_is_followed(self):
        mine = os.path.join(self.folder, "mine")
        names = {".lock": False, "metrics.jsonl": False, "eval.jsonl": False, "config.json": False, "log": True, "checkpoints": True, "tensorboard": True}
        for name, is_folder in names.items():
            with self.subTest(name):
                run = os.path.join(self.folder, "run" + name)
                os.mkdir(run)
                if is_folder:
                    os.makedirs(mine + ".d", exist_ok=True)
                    os.symlink(mine + ".d", os.path.join(run, name))
                else:
                    crafted_files.write(mine, "every byte of mine")
                    os.symlink(mine, os.path.join(run, name))
                for words in (["--dry-run"], []):
                    done = train("--output-dir", run, *words)
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertIn(f"{run}/{name}: is a symbolic link, and a run follows none in its output folder", done.stderr)
                if is_folder:
                    self.assertEqual(os.listdir(mine + ".d"), [])
                else:
                    self.assertEqual(crafted_files.read(mine), b"every byte of mine")

    def test_an_output_folder_may_be_a_link_itself(self):
        os.mkdir(os.path.join(self.folder, "real"))
        os.symlink("real", os.path.join(self.folder, "named"))
        done = train("--output-dir", os.path.join(self.folder, "named"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(os.path.exists(os.path.join(self.folder, "real", "metrics.jsonl")))


class Texts(FolderTest):
    def refused_without_escapes(self, *words, codes=(2, 4)):
        done = orthant(*words)
        self.assertIn(done.returncode, codes, done.stderr)
        for text in (done.stdout, done.stderr):
            self.assertNotRegex(text, r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
        return done.stderr

    def test_escape_sequences_of_a_tensor_and_a_configuration(self):
        model = os.path.join(self.folder, "model")
        os.mkdir(model)
        crafted_models.make_llama(model)
        header, data = crafted_files.parsed_tensors(f"{model}/model.safetensors")
        header["\x1b]0;owned\x07\x1b[2J"] = header.pop("lm_head.weight")
        crafted_files.write(f"{model}/model.safetensors", crafted_files.safetensors(header, data))
        noted = self.refused_without_escapes("checkpoint", "import", model, f"{self.folder}/out", codes=(0,))
        self.assertIn("not used: \\x1b]0;owned\\x07", noted)
        crafted_files.write(f"{self.folder}/c.json", json.dumps({"name": "\x1b[31mred", "model": {"kind": "llama\u202e"}}))
        self.refused_without_escapes("train", "--config", f"{self.folder}/c.json")
        crafted_files.write(f"{self.folder}/c.json", json.dumps({"mo\x1b[31mdel\n": 1, "model": {"kind": "llama"}}))
        self.assertIn("mo\\x1b[31mdel\\x0a", self.refused_without_escapes("train", "--config", f"{self.folder}/c.json"))
        done = orthant("train", "--print-config", "--set", "model.freeze=[\"\x9b31m*\"]")
        self.assertNotIn("\x9b", done.stdout + done.stderr)

    def test_a_path_in_a_result(self):
        run, shown = f"{self.folder}/r\x1b[31m\nun", f"{self.folder}/r\\x1b[31m\\x0aun"
        done = train("--output-dir", run)
        self.assertRegex(done.stdout, "output +" + re.escape(shown) + "\n")
        done = train("--output-dir", run, "--resume", "auto")
        self.assertIn(f"resumed from {shown}/checkpoints/step-1 at step 1\n", done.stderr)
        done = orthant("checkpoint", "verify", f"{run}/checkpoints/step-1")
        self.assertIn(f"{shown}/checkpoints/step-1: valid, step 1", done.stdout)
        self.assertNotIn("\x1b", done.stdout)

    def test_a_name_in_a_manifest(self):
        run = os.path.join(self.folder, "run")
        self.assertEqual(train("--output-dir", run).returncode, 0)
        checkpoint = f"{run}/checkpoints/step-1"
        crafted_checkpoints.edited(crafted_checkpoints.renamed)(checkpoint)
        for words in (["checkpoint", "inspect", checkpoint], ["checkpoint", "verify", checkpoint]):
            self.assertIn("\\x1b]0;owned\\x07\\x1b[2Jfake\\x0aorthant: fine", self.refused_without_escapes(*words))


class ExitCodes(FolderTest):
    def refused(self, done, text, codes=(2, 4)):
        self.assertIn(done.returncode, codes, done.stderr)
        self.assertIn(text, done.stderr)
        self.assertIn("fix: ", done.stderr)

    def test_paths_that_are_too_long(self):
        name = "n" * 300
        crafted_files.write(f"{self.folder}/i", crafted_files.safetensors({"input_ids": {"dtype": "I64", "shape": [1, 2], "data_offsets": [0, 16]}}, bytes(16)))
        for words in (["train", "--config", name], ["train", "--output-dir", name], ["train", "--output-dir", f"{self.folder}/r", "--resume", name],
                      ["checkpoint", "verify", name], ["checkpoint", "import", name, f"{self.folder}/o"], ["tokenize", "--tokenizer", name],
                      ["train", "--set", f"model.path={name}"], ["data", "inspect", name],
                      ["forward", "--model", name, "--inputs", f"{self.folder}/i", "--out", "o"]):
            with self.subTest(words[:2]):
                self.refused(orthant(*words), "File name too long")

    def test_what_lies_below_a_file(self):
        crafted_files.write(f"{self.folder}/file", "")
        for words in (["checkpoint", "verify", f"{self.folder}/file/x"], ["tokenize", "--tokenizer", f"{self.folder}/file/x"]):
            with self.subTest(words[0]):
                self.refused(orthant(*words), "no such")
        self.refused(train("--output-dir", f"{self.folder}/file/x"), "Not a directory")

    def test_json_is_valid_where_a_path_is_not_utf8(self):
        run = os.fsencode(self.folder) + b"/run-\xff\xfe"
        done = subprocess.run([ORTHANT, "train", *TINY, "--json", "--output-dir", run], capture_output=True, env=clean_environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(json.loads(done.stdout.decode("utf-8"))["output_dir"].endswith("run-\ufffd\ufffd"))
        done = subprocess.run([ORTHANT, "checkpoint", "verify", run + b"/none"], capture_output=True, env=clean_environment())
        self.assertEqual(done.returncode, 4)
        self.assertIn(b"run-\\xff\\xfe/none: no such checkpoint folder", done.stderr)

    def test_few_descriptors_and_little_memory_are_no_defects(self):
        large = ["--set", "model.vocab_size=8000000", "--set", "model.hidden_size=64"]
        for limit, words, code, text in (("ulimit -n 12", ["--mesh", "dp=2"], 2, "fix: raise ulimit -n"),
                                         ("ulimit -n 9", [], 4, "fix: raise the limit on open files (ulimit -n)"),
                                         ("ulimit -v 1200000", ["--mesh", "dp=2"], 3, "fix: raise the limit on address space (ulimit -v)"),
                                         ("ulimit -v 900000", large, 4,
                                          "error: rank 0: out of memory at dp=0 in making parameters, gradients and optimizer state")):
            with self.subTest(limit):
                done = subprocess.run(["sh", "-c", f'{limit}; exec "$@"', "sh", ORTHANT, "train", *TINY, *words, "--output-dir",
                                       f"{self.folder}/{limit.split()[-1]}"], capture_output=True, text=True, env=clean_environment(), timeout=60)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(text, done.stderr)
                self.assertNotIn("terminate called", done.stderr)


class PlainUser(FolderTest):
    """Root ignores modes: the program runs as nobody. Label root."""

    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o755)

    def as_nobody(self, *words):
        return subprocess.run(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", ORTHANT, *words], capture_output=True, text=True,
                              env=clean_environment(HOME="/"), timeout=60)

    def test_what_may_not_be_read_is_not_called_missing(self):
        closed = os.path.join(self.folder, "closed")
        os.mkdir(closed)
        crafted_models.make_llama(closed)
        crafted_models.make_bpe(closed)
        commands = (["checkpoint", "import", closed, "/tmp/none"], ["tokenize", "--tokenizer", closed], ["tokenize", "--tokenizer", closed + "/tokenizer.json"],
                    ["checkpoint", "verify", closed + "/step-1"], ["train", "--set", f"model.path={closed}"], ["train", "--config", closed + "/config.json"])
        for mode in (0o000, 0o644):
            os.chmod(closed, mode)
            with ThreadPoolExecutor() as pool:  # some are patient with what may be granted in a moment
                finished = list(pool.map(lambda words: self.as_nobody(*words), commands))
            for words, done in zip(commands, finished):
                with self.subTest(words=words, mode=oct(mode)):
                    self.assertIn(done.returncode, (2, 4), done.stderr)
                    self.assertIn("ermission denied", done.stderr)
                    self.assertNotIn("no such", done.stderr.lower())
                    self.assertIn("fix: check the permissions", done.stderr)

    def test_an_output_folder_that_may_not_be_written(self):
        for words in (["--dry-run"], []):
            done = self.as_nobody("train", *TINY, "--output-dir", f"{self.folder}/run", *words)
            self.assertEqual(done.returncode, 4, done.stderr)
            self.assertIn(f"output folder {self.folder}/run cannot be written: {self.folder}: Permission denied", done.stderr)


class Starts(FolderTest):
    def test_starts_at_once_take_folders_of_their_own(self):
        starts = [subprocess.Popen([ORTHANT, "train", *TINY, "--set", "name=race"], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   env=clean_environment(OMP_NUM_THREADS=1)) for _ in range(6)]
        said = [start.communicate(timeout=120)[1].decode() for start in starts]
        self.assertEqual([start.returncode for start in starts], [0] * len(starts), said)
        self.assertEqual(sorted(os.listdir(f"{self.folder}/runs")), [f"race-{n + 1}" for n in range(len(starts))])

    def test_a_dry_run_claims_nothing(self):
        done = orthant("train", *TINY, "--dry-run", "--max-restarts", "1", cwd=self.folder)
        self.assertEqual((done.returncode, os.listdir(self.folder)), (0, []), done.stderr)


class DryRun(FolderTest):
    """A dry run refuses what a start refuses, in the same words."""

    def cases(self):
        def made(name, text=""):
            crafted_files.write(os.path.join(self.folder, name), text)
            return os.path.join(self.folder, name)

        text = ["--set", "data.kind=text", "--set", "model.kind=llama"]
        table = ["--set", "data.kind=trimodal", "--set", "data.primary_text=a", "--set", "data.label=b"]
        model = os.path.join(self.folder, "model")
        os.mkdir(model)
        crafted_models.make_llama(model)
        os.remove(f"{model}/model.safetensors")
        os.mkfifo(f"{self.folder}/pipe.csv")
        run = os.path.join(self.folder, "run")
        self.assertEqual(train("--output-dir", run).returncode, 0)
        damaged = os.path.join(self.folder, "step-1")
        shutil.copytree(f"{run}/checkpoints/step-1", damaged)
        crafted_files.zeros(f"{damaged}/rank-0.safetensors")
        tiny = [word for word in TINY]
        yield "a tokenizer that is missing", [*text, "--set", f"data.path={made('a.txt', 'words')}", "--set", "data.tokenizer=none"]
        yield "a text without tokenizer", [*text, "--set", f"data.path={made('b.txt', 'words')}"]
        yield "a table that is a pipe", [*table, "--set", f"data.path={self.folder}/pipe.csv"]
        yield "a table without the column", [*table, "--set", f"data.path={made('c.csv', 'x,y' + chr(10) + '1,2' + chr(10))}"]
        yield "weights that are missing", ["--set", f"model.path={model}", "--set", "data.kind=tokens", "--set", "data.sequence_length=8"]
        yield "a folder that holds a run", [*tiny, "--output-dir", run]
        yield "a folder that is a file", [*tiny, "--output-dir", made("file")]
        yield "a checkpoint that is missing", [*tiny, "--output-dir", f"{self.folder}/o", "--resume", f"{self.folder}/none"]
        yield "a checkpoint that is damaged", [*tiny, "--output-dir", f"{self.folder}/o", "--resume", damaged]
        yield "a checkpoint of another seed", [*tiny, "--output-dir", f"{self.folder}/o", "--resume", f"{run}/checkpoints/step-1", "--set", "seed=5"]
        yield "a checkpoint of another model", [*tiny, "--output-dir", f"{self.folder}/o", "--resume", f"{run}/checkpoints/step-1",
                                                "--set", "model.hidden_size=16"]
        yield "a key that is missing", [*tiny, "--output-dir", f"{self.folder}/o", "--set", "checkpoint.key_file=none"]
        yield "a batch larger than the data", [*tiny, "--set", "train.global_batch_size=100"]
        yield "a schedule file that is missing", [*tiny, "--mesh", "pp=2", "--set", "parallel.schedule=none.txt"]

    def test_it_says_that_data_is_absent(self):
        """Plans are made where the data is not."""
        done = orthant("train", "--set", "data.kind=text", "--set", "model.kind=llama", "--set", "data.path=none.txt", "--set", "data.tokenizer=none",
                       "--set", "data.sequence_length=8", "--dry-run", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("orthant: none.txt is not here: a start would be refused, and no data was looked at", done.stderr)

    def test_it_refuses_what_a_start_refuses(self):
        for name, words in self.cases():
            with self.subTest(name):
                dry = orthant("train", *words, "--dry-run", cwd=self.folder)
                start = orthant("train", *words, "--force", cwd=self.folder)  # of memory a dry run only warns: it may be made elsewhere
                self.assertIn(start.returncode, (2, 4), start.stderr)
                self.assertEqual((dry.returncode, error_of(dry)), (start.returncode, error_of(start)))
                self.assertFalse(os.path.exists(f"{self.folder}/runs") and stat.S_ISDIR(os.stat(f"{self.folder}/runs").st_mode) and os.listdir(f"{self.folder}/runs"))


if __name__ == "__main__":
    unittest.main()
