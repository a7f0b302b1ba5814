#!/usr/bin/env python3
"""Steps of a batch of texts without padding against the same batch padded: interleaved rounds, one thread, on the CPU.

  bench/unpadded.py [--rounds 5] [--program build/bin/orthant]

The 32 texts of every batch have 256 tokens at most and 40% of that in the mean; a BERT of 4 layers and 256 channels learns masked language
modelling from them with dropout. Prints the seconds of a step by `data.padding` and their ratio, of each round and of the medians.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORDS = "the a ship sails over seven seas and comes home again with salt tea silk".split()
BATCH, LONGEST, SPECIAL = 32, 256, 2
MODEL = {"kind": "bert", "preset": "bert-tiny", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024,
         "vocab_size": 1024, "max_position_embeddings": LONGEST, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}


def lengths():
    """Of a batch, in tokens: one longest text, the others spread evenly so that the mean is 40% of it."""
    others = (0.4 * LONGEST * BATCH - LONGEST) / (BATCH - 1)
    return [LONGEST] + [round(others * (0.3 + 1.4 * i / (BATCH - 2))) for i in range(BATCH - 1)]


def write(folder):
    with open(os.path.join(folder, "vocab.txt"), "w") as file:
        file.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n")
    with open(os.path.join(folder, "lines.txt"), "w") as file:
        # An epoch is one batch, so that every step has all texts.
        for row, length in enumerate(lengths()):
            count = length - SPECIAL
            file.write(" ".join(WORDS[(row * 3 + i * (row % 4 + 1)) % len(WORDS)] for i in range(count)) + "\n")
    data = {"kind": "text", "path": os.path.join(folder, "lines.txt"), "tokenizer": os.path.join(folder, "vocab.txt"), "separator": "line",
            "packing": False, "sequence_length": LONGEST, "eval_fraction": 0}
    config = {"name": "unpadded", "model": MODEL, "data": data, "train": {"global_batch_size": BATCH, "steps": 50},
              "optimizer": {"kind": "adamw", "lr": 1e-3}}
    path = os.path.join(folder, "run.json")
    with open(path, "w") as file:
        json.dump(config, file)
    return path


def step_seconds(program, config, padding):
    command = [program, "bench", "step", "--config", config, "--mesh", "dp=1", "--threads", "1", "--set", f"data.padding={padding}", "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["median_seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "bin", "orthant"))
    arguments = parser.parse_args()
    mean = statistics.mean(lengths()) / LONGEST
    print(f"{BATCH} texts of {100 * mean:.0f}% of {LONGEST} tokens in the mean\n\n| round | longest, s | none, s | ratio |\n|---|---|---|---|")
    seconds = {"longest": [], "none": []}
    with tempfile.TemporaryDirectory() as folder:
        config = write(folder)
        for number in range(arguments.rounds):
            for padding in seconds:
                seconds[padding].append(step_seconds(arguments.program, config, padding))
            longest, none = (seconds[padding][-1] for padding in seconds)
            print(f"| {number + 1} | {longest:.3f} | {none:.3f} | {none / longest:.3f} |", flush=True)
    longest, none = (statistics.median(seconds[padding]) for padding in seconds)
    print(f"| median | {longest:.3f} | {none:.3f} | {none / longest:.3f} |")


if __name__ == "__main__":
    main()
