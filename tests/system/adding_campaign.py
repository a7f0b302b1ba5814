#!/usr/bin/env python3
"""docs/adding.md, done: its operation and its family are added to a copy of the tree as the page says, built and tried.

  tests/system/adding_campaign.py [--scratch DIR] [--jobs 2]

After `make build`. The copy goes away at the end, and the tree is only read: see planted_defects.py. A paragraph that begins
with a path in backquotes and ends in "new:" makes a file of the block of code that follows; "a line:" puts the block at the end
of a list, "a function:" behind the last function of a header. Nothing else is changed. Takes some minutes, most of them builds.
Prints a line for each check; exit code 1 when one fails.
"""
import argparse
import json
import os
import re
import sys
import tempfile

from planted_defects import ROOT, Broken, Copy

BLOCK = re.compile(r"^`(src/[^`]+)`, (new|a line|a function):\n\n```cpp\n(.*?)```$", re.M | re.S)
MODEL = ["--set", "model.kind=toy", "--set", "model.preset=toy-tiny"]
DATA = ["--set", "data.kind=tokens", "--set", "data.sequence_length=16"]
TRAINED = [*MODEL, *DATA, "--set", "train.global_batch_size=8", "--set", "parallel.microbatches=2"]
SEQUENCE = ["--set", "parallel.sequence_parallel=true", "--set", "parallel.loss_parallel=true"]
# What runs, and whether it must succeed.
CHECKS = [
    ("tp and pp equal one rank", ["parity", *TRAINED, "--mesh", "tp=2,pp=2"], True),
    ("split backward, sequence parallel", ["parity", *TRAINED, *SEQUENCE, "--mesh", "tp=2,pp=2", "--set", "parallel.schedule=zbh1"], True),
    ("sharded, over cp", ["parity", *TRAINED, "--mesh", "fsdp=2,cp=2"], True),
    ("a sum left out is noticed", ["parity", *TRAINED, *SEQUENCE, "--mesh", "tp=2", "--inject", "skip-reduce=tp:layers.0.scale.weight"], False),
    ("trains", ["train", *TRAINED, "--mesh", "tp=2,pp=2", "--steps", "3"], True),
    ("is priced", ["estimate", "--model", "toy-tiny", "--mesh", "tp=2,pp=2", "--gpu", "h100-80gb", "--micro-batch", "4",
                   "--global-batch", "8", "--seq", "16"], True),
    ("is planned", ["plan", "--model", "toy-tiny", "--gpus", "8", "--gpu", "h100-80gb", "--global-batch", "16", "--seq", "16"], True),
]


def write_blocks(tree):
    """Returns the paths that the page names."""
    with open(os.path.join(ROOT, "docs", "adding.md"), encoding="utf-8") as file:
        blocks = BLOCK.findall(file.read())
    for path, how, text in blocks:
        whole = os.path.join(tree, path)
        if how != "new":
            with open(whole, encoding="utf-8") as file:
                old = file.read()
            before, closing, after = old.rpartition("\n}  // namespace") if how == "a function" else (old, "", "")
            text = before + ("\n" if closing else "") + text + closing + after
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        with open(whole, "w", encoding="utf-8") as file:
            file.write(text)
    return [path for path, _, _ in blocks]


def failed_checks(copy):
    failed = 0
    for what, words, succeeds in CHECKS:
        if words[0] == "train":
            words = [*words, "--output_dir", "toy-run"]
        done = copy.run("build/bin/orthant", *words, "--json")
        good = (done.returncode == 0) == succeeds
        if good and what == "is priced":
            good = json.loads(done.stdout)["fits"]
        failed += not good
        print(f"{'ok' if good else 'FAILED'}: {what}" + ("" if good else "\n" + done.stdout[-2000:]), flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", help="folder for the copy, which needs about 1 GiB; else the system's own")
    parser.add_argument("--jobs", type=int, default=2, help="of the build")
    options = parser.parse_args()
    if not os.path.exists(os.path.join(ROOT, "build", "build.ninja")):
        sys.exit("adding_campaign.py: nothing is built: run make build")
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix="orthant-adding-") as scratch:
        copy = Copy(scratch, options.jobs)
        paths = write_blocks(copy.tree)
        print(f"{len(paths)} places: {' '.join(paths)}", flush=True)
        try:
            copy.build("orthant")
        except Broken as error:
            sys.exit(f"FAILED: {error}")
        return 1 if failed_checks(copy) else 0


if __name__ == "__main__":
    sys.exit(main())
