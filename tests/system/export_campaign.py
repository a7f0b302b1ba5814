"""Random Hugging Face folders of every family (odd special ids, generation settings, templates, unknown keys) through `checkpoint import` and export,
and through a run of one step and export: every file and key must be as in the original but for what training changes, and the greedy text of
transformers from the original and from the untouched export must be equal. Prints a line a folder; exits 1 when one differs.

  .venv/bin/python tests/system/export_campaign.py                        # 40 folders, about ten seconds
  .venv/bin/python tests/system/export_campaign.py --count 6 --seed 100
"""
import argparse
import json
import os
import shutil
import sys
import tempfile

import torch
import transformers

from export_folders import DECODERS, FAMILIES, differences, greedy_text, make_folder, read_json
from program import orthant

TRAIN = {"name": "export", "data": {"kind": "tokens", "sequence_length": 8, "samples": 8}, "train": {"global_batch_size": 2, "steps": 1}}


def command(*words):
    finished = orthant(*words)
    if finished.returncode != 0:
        raise RuntimeError(" ".join(map(str, words)) + ": " + finished.stderr)


def export(checkpoint, out):
    command("checkpoint", "export", checkpoint, out, "--format", "huggingface")
    return out


def changed_by_training(folder):
    """A run writes float32, and with a head the class that has one."""
    config = read_json(folder, "config.json")
    keys = [key for key in ("dtype", "torch_dtype") if config.get(key, "float32") != "float32"]
    encoder = config["model_type"] not in DECODERS
    return keys + (["architectures"] if encoder and config["architectures"][0].endswith("Model") else [])


def problems(place, family, seed):
    folder = make_folder(os.path.join(place, "model"), family, seed)
    command("checkpoint", "import", folder, os.path.join(place, "imported"))
    with open(os.path.join(place, "run.json"), "w") as f:
        json.dump({**TRAIN, "model": {"path": folder}}, f)
    command("train", "--config", os.path.join(place, "run.json"), "--output-dir", os.path.join(place, "run"))
    text = greedy_text(folder)
    away = os.path.join(place, "away")
    os.rename(folder, away)
    untouched = export(os.path.join(place, "imported"), os.path.join(place, "untouched"))
    trained = export(os.path.join(place, "run", "checkpoints", "step-1"), os.path.join(place, "trained"))
    found = ["import: " + line for line in differences(away, untouched)]
    found += ["run: " + line for line in differences(away, trained, changed_by_training(away))]
    if greedy_text(untouched) != text:
        found.append("another text from the untouched export")
    greedy_text(trained)  # loads
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0, help="of the first folder")
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    bad = 0
    for seed in range(options.seed, options.seed + options.count):
        family = FAMILIES[seed % len(FAMILIES)]
        place = tempfile.mkdtemp(prefix="orthant-export-")
        try:
            found = problems(place, family, seed)
        finally:
            shutil.rmtree(place)
        bad += bool(found)
        print(f"{seed} {family}: {'; '.join(found) or 'as in the original'}", flush=True)
    print(f"{options.count - bad} of {options.count} folders as in the original")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
