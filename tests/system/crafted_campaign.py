#!/usr/bin/env python3
"""Feeds the program checkpoints and Hugging Face folders that are wrong, each in one named way, and demands of every one: refused by name with exit
code 2 or 4, within one second and 64 MiB above what the program takes without any work, nothing written, nothing on the terminal that moves a cursor.

  python3 tests/system/crafted_campaign.py             all of them: at least 61 checkpoints and 710 folders
  python3 tests/system/crafted_campaign.py --count 24  evenly spread over all of them
  python3 tests/system/crafted_campaign.py --list      their names"""
import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import crafted_checkpoints
import crafted_files
import crafted_models
import crafted_tokenizers
from program import ORTHANT, clean_environment

SECONDS, BUSY_SECONDS, BYTES = 1.0, 15.0, 64 << 20
LEAST_CHECKPOINTS, LEAST_FOLDERS = 61, 710
TRAIN = ["--set", "data.kind=tokens", "--set", "data.sequence_length=8", "--set", "data.samples=8", "--set", "train.global_batch_size=2", "--steps", "1"]
TINY = ["--set", "model.kind=llama", "--set", "model.hidden_size=8", "--set", "model.num_hidden_layers=1", "--set", "model.num_attention_heads=1",
        "--set", "model.intermediate_size=8", "--set", "model.vocab_size=16", "--set", "model.max_position_embeddings=8", *TRAIN]


class Finished:
    """A program that has ended: what it said, its exit code, wall time, processor time and the most memory it had."""

    def __init__(self, *words, text=""):
        environment = clean_environment(CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
        with tempfile.TemporaryFile() as out:
            begin = time.monotonic()
            process = subprocess.Popen([ORTHANT, *words], stdin=subprocess.PIPE, stdout=out, stderr=out, env=environment)
            limit = threading.Timer(20, process.kill)  # what hangs must not hold the campaign
            limit.start()
            try:
                process.stdin.write(text.encode())
                process.stdin.close()
            except BrokenPipeError:
                pass
            _, status, usage = os.wait4(process.pid, 0)
            self.seconds = time.monotonic() - begin
            limit.cancel()
            out.seek(0)
            self.output = out.read()
        process.returncode = self.code = os.waitstatus_to_exitcode(status)
        self.cpu_seconds = usage.ru_utime + usage.ru_stime
        self.bytes = usage.ru_maxrss << 10

    def within(self, busy):
        """Whether it kept to its second: by the clock, or on a busy machine by its processor's time."""
        return self.cpu_seconds <= SECONDS and self.seconds <= (BUSY_SECONDS if busy else SECONDS)


class Case:
    def __init__(self, group, base, name, change, commands):
        self.group, self.base, self.name, self.change, self.commands = group, base, name, change, commands

    def __str__(self):
        return f"{self.group}, {self.base}: {self.name}"


def model_commands():
    """How a folder of a model reaches the program: by one command after the other."""
    return itertools.cycle([["import"], ["forward"], ["train"]])


def checkpoint_commands():
    return itertools.cycle([["verify"], ["resume"]])


def spread(items, count):
    """That many of them, evenly."""
    items = list(items)
    return items if count >= len(items) else [items[i * len(items) // count] for i in range(count)]


def all_cases():
    ways = checkpoint_commands()
    checkpoints = [Case("checkpoint", "tiny", name, change, next(ways)) for name, change in crafted_checkpoints.all_cases()]
    models = itertools.chain(crafted_models.of_kinds(), crafted_models.of_json_texts(), crafted_models.of_config_values(),
                             crafted_models.of_tensor_files(), crafted_models.of_index(), crafted_tokenizers.of_bpe(),
                             crafted_tokenizers.of_wordpiece(), crafted_tokenizers.of_gpt2_files(),
                             crafted_tokenizers.of_unigram(), crafted_tokenizers.of_sentencepiece())
    ways = model_commands()
    folders = [Case("folder", base, name, change, next(ways) if base in ("llama", "shards") else ["tokenize"]) for base, name, change in models]
    return checkpoints, folders


class Campaign:
    def __init__(self, scratch, busy):
        self.scratch, self.busy = scratch, busy
        self.base_bytes = max(Finished("--version").bytes for _ in range(3))
        self.bases = {}
        for name, make in crafted_models.BASES.items():
            self.bases[name] = os.path.join(scratch, "base", name)
            os.makedirs(self.bases[name])
            make(self.bases[name])
        run = os.path.join(scratch, "base", "run")
        done = Finished("train", *TINY, "--output-dir", run)
        if done.code != 0:
            sys.exit(f"the valid run failed: {done.output.decode()}")
        self.bases["tiny"] = os.path.join(run, "checkpoints", "step-1")
        self.inputs = os.path.join(scratch, "in.safetensors")
        header = {"input_ids": {"dtype": "I64", "shape": [1, 2], "data_offsets": [0, 16]}}
        crafted_files.write(self.inputs, crafted_files.safetensors(header, bytes(16)))

    def words(self, case, folder, out):
        kind = case.commands[0]
        return {"verify": ["checkpoint", "verify", folder], "import": ["checkpoint", "import", folder, out],
                "resume": ["train", *TINY, "--resume", folder, "--output-dir", out],
                "forward": ["forward", "--model", folder, "--inputs", self.inputs, "--out", out],
                "train": ["train", "--set", f"model.path={folder}", *TRAIN, "--output-dir", out],
                "tokenize": ["tokenize", "--tokenizer", folder]}[kind]

    def valid_ones_pass(self):
        """The folders before they are changed: a refusal must come from the change."""
        for group, base, way in [("checkpoint", "tiny", "verify"), *(("folder", base, way) for base in ("llama", "shards") for way in ("import", "forward", "train")),
                                 *(("folder", base, "tokenize") for base in ("bpe", "wordpiece", "gpt2-files"))]:
            case = Case(group, base, "unchanged", None, [way])
            out = os.path.join(self.scratch, "valid")
            done = Finished(*self.words(case, self.bases[base], out), text="hello world\n")
            if done.code != 0:
                sys.exit(f"{case} by {way}: refused though it is right: {done.output.decode()}")
            shutil.rmtree(out, ignore_errors=True)
            if os.path.exists(out):
                os.remove(out)

    def faults(self, case):
        """What is wrong with the program's answer; a slow one is asked again, for the machine may be busy."""
        folder = os.path.join(self.scratch, os.path.basename(self.bases[case.base]))
        out = os.path.join(self.scratch, "out")
        shutil.copytree(self.bases[case.base], folder)
        try:
            case.change(folder)
            for _ in range(3):
                done = Finished(*self.words(case, folder, out), text="hello world\n")
                if done.within(self.busy):
                    break
        finally:
            shutil.rmtree(folder)
        self.last = done
        wrong = []
        if done.code not in (2, 4):
            wrong.append(f"exit code {done.code}")
        if not done.within(self.busy):
            wrong.append(f"{done.seconds:.2f} s ({done.cpu_seconds:.2f} s of the processor)")
        if done.bytes - self.base_bytes > BYTES:
            wrong.append(f"{(done.bytes - self.base_bytes) / (1 << 20):.0f} MiB above the base")
        if re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", done.output):
            wrong.append("control characters in its text")
        if done.code in (2, 4) and not re.match(rb"(.*\n)*orthant: error: |error: ", done.output):
            wrong.append("no error line")
        if os.path.exists(os.path.join(out, "config.json")) or os.path.exists(os.path.join(out, "manifest.json")) or os.path.isfile(out):
            wrong.append("something was written")
        shutil.rmtree(out, ignore_errors=True)
        return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=None, help="only so many, evenly spread")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--only", default="", help="only names with this text")
    parser.add_argument("--busy", action="store_true", help="the machine is busy: the second is one of the processor, not of the clock")
    parser.add_argument("--quiet", action="store_true", help="print faults and the sum alone")
    options = parser.parse_args()
    checkpoints, folders = all_cases()
    names = [str(case) for case in checkpoints + folders]
    if len(checkpoints) < LEAST_CHECKPOINTS or len(folders) < LEAST_FOLDERS or len(set(names)) != len(names):
        sys.exit(f"{len(checkpoints)} checkpoints and {len(folders)} folders, {len(names) - len(set(names))} names twice")
    cases = checkpoints + folders
    if options.list:
        print("\n".join(map(str, cases)))
        return 0
    cases = [case for case in cases if options.only in str(case)]
    if options.count:
        cases = spread(cases, options.count)
    scratch = tempfile.mkdtemp(prefix="orthant-crafted-")
    failed, slowest, largest = 0, 0.0, 0
    try:
        campaign = Campaign(scratch, options.busy)
        campaign.valid_ones_pass()
        for case in cases:
            wrong = campaign.faults(case)
            failed += bool(wrong)
            slowest = max(slowest, campaign.last.seconds)
            largest = max(largest, campaign.last.bytes - campaign.base_bytes)
            if wrong or not options.quiet:
                said = campaign.last.output.decode(errors="backslashreplace").strip().splitlines()
                line = next((text for text in said if "error" in text), said[-1] if said else "")
                print(f"{'FAILED ' + '; '.join(wrong) if wrong else 'refused'}: {case} [{case.commands[0]}]: {line[:160]}", flush=True)
    finally:
        shutil.rmtree(scratch)
    print(f"{len(cases) - failed} of {len(cases)} crafted folders refused by name; slowest {slowest:.2f} s, "
          f"most memory {largest / (1 << 20):.0f} MiB above the {campaign.base_bytes / (1 << 20):.0f} MiB of the program")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
