#!/usr/bin/env python3
"""A real task of three parts: what kind of movie is it? npm vega-datasets, movies.json.

  bench/movies.py [--folds 4] [--keep DIR]

First text: director and rating; second text: creative type and source; nine numbers with gaps (budget, gross, running time, votes,
...; amounts as logarithms); label: the major genre, one of five. Writes CSV files, makes a vocabulary from them with `orthant data
make-vocabulary`, and trains on each fold with all three parts and with each of them left out. Every movie is evaluated on once.
Prints accuracies, the majority class, and by how much all three parts are better, with the standard error over folds; exit code 1
when they are not better than any two.
"""
import argparse
import csv
import json
import math
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ORTHANT = os.environ.get("ORTHANT", os.path.join(ROOT, "build", "bin", "orthant"))
MOVIES = os.path.join(ROOT, ".material", "vega", "data", "movies.json")

GENRES = ["Drama", "Comedy", "Action", "Thriller/Suspense", "Horror"]
PRIMARY = ("Director", "MPAA Rating")
SECONDARY = ("Creative Type", "Source")
AMOUNTS = ("US Gross", "Worldwide Gross", "US DVD Sales", "Production Budget", "IMDB Votes")
NUMBERS = (*AMOUNTS, "Running Time min", "Rotten Tomatoes Rating", "IMDB Rating", "Year")
COLUMNS = ["credits", "kind", *NUMBERS, "genre"]
PARTS = ("all three", "without the first text", "without the second text", "without the numbers")


def year(text):
    """The file has years of two digits brought to the wrong century."""
    found = int(re.search(r"(\d{4})$", text).group(1))
    return found - 100 if found > 2011 else found


def number(movie, column):
    if column == "Year":
        return year(movie["Release Date"])
    if movie[column] is None:
        return ""
    return f"{math.log10(1 + movie[column]):.4f}" if column in AMOUNTS else movie[column]


def rows():
    """One list of cells per movie of a known genre; what is not known is an empty cell."""
    with open(MOVIES) as f:
        movies = json.load(f)
    for movie in movies:
        if movie["Major Genre"] not in GENRES:
            continue
        text = [", ".join(str(movie[key]) for key in keys if movie[key] is not None) for keys in (PRIMARY, SECONDARY)]
        yield [*text, *(number(movie, column) for column in NUMBERS), movie["Major Genre"]]


def write_csv(path, lines):
    with open(path, "w", newline="") as f:
        csv.writer(f).writerows([COLUMNS, *lines])


def write_fold(folder, fold, folds):
    """train.csv and eval.csv: movie i is evaluated on in fold i % folds. Answers the share of the majority class."""
    lines = list(rows())
    held = [line for i, line in enumerate(lines) if i % folds == fold]
    rest = [line for i, line in enumerate(lines) if i % folds != fold]
    write_csv(os.path.join(folder, "train.csv"), rest)
    write_csv(os.path.join(folder, "eval.csv"), held)
    genres = [line[-1] for line in rest]
    majority = max(GENRES, key=genres.count)
    return sum(line[-1] == majority for line in held) / len(held)


def orthant(*words):
    finished = subprocess.run([ORTHANT, *map(str, words)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if finished.returncode != 0:
        sys.exit(f"orthant {' '.join(map(str, words))}: exit code {finished.returncode}\n{finished.stderr}")
    return finished.stdout


def config(folder, parts, seed, epochs):
    tower = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 3000,
             "max_position_embeddings": 32, "hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.1}
    texts = ["credits", "kind"]
    if parts == PARTS[1]:
        texts = ["kind", None]
    if parts == PARTS[2]:
        texts = ["credits", None]
    numbers = [] if parts == PARTS[3] else list(NUMBERS)
    return {"name": "movies", "seed": seed,
            "model": {"kind": "trimodal", "primary": tower, "secondary": tower,
                      "tabular": {"input_dim": len(numbers), "hidden_dim": 64} if numbers else None,
                      "fusion": {"hidden_size": 64, "dropout": 0.5}, "pooling": "cls", "projection": None,
                      "num_labels": len(GENRES)},
            "data": {"kind": "trimodal", "path": os.path.join(folder, "train.csv"), "eval_path": os.path.join(folder, "eval.csv"),
                     "primary_text": texts[0], "secondary_text": texts[1], "tabular": numbers, "label": "genre",
                     "tokenizer": os.path.join(folder, "vocab.txt"), "sequence_length": 24, "secondary_length": 24},
            "optimizer": {"kind": "adamw", "lr": 2e-3, "betas": [0.9, 0.98], "weight_decay": 0.05, "clip": 1.0},
            "lr_schedule": {"kind": "cosine", "warmup_steps": 50, "final_fraction": 0.05},
            "train": {"global_batch_size": 32, "epochs": epochs}}


def accuracy(folder, parts, seed=0, epochs=16):
    """Of one run, on the rows held out."""
    name = f"{parts.replace(' ', '-')}-{seed}"
    path = os.path.join(folder, name + ".json")
    with open(path, "w") as f:
        json.dump(config(folder, parts, seed, epochs), f, indent=1)
    return json.loads(orthant("train", "--config", path, "--output_dir", os.path.join(folder, name), "--json"))["eval"]["accuracy"]


def make_vocabulary(folder):
    orthant("data", "make-vocabulary", "--data", os.path.join(folder, "train.csv"), "--columns", "credits,kind", "--size", 3000,
            "--out", os.path.join(folder, "vocab.txt"))


def mean_and_error(values):
    mean = sum(values) / len(values)
    spread = sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)
    return mean, math.sqrt(spread / len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--keep", help="folder for files and runs (default: a temporary one)")
    options = parser.parse_args()
    found, majority = {parts: [] for parts in PARTS}, []
    with tempfile.TemporaryDirectory() as temporary:
        for fold in range(options.folds):
            folder = os.path.join(options.keep or temporary, f"fold-{fold}")
            os.makedirs(folder)
            majority.append(write_fold(folder, fold, options.folds))
            make_vocabulary(folder)
            for parts in PARTS:
                found[parts].append(accuracy(folder, parts, fold, options.epochs))
                print(f"fold {fold}: {parts}: {found[parts][-1]:.4f}", file=sys.stderr, flush=True)
    print(f"{'':26} {'accuracy':>8}   all three are better by")
    worst = math.inf
    for name, values in [("majority class", majority), *found.items()]:
        line = f"{name:26} {mean_and_error(values)[0]:8.4f}"
        if name != PARTS[0]:
            margin, error = mean_and_error([a - b for a, b in zip(found[PARTS[0]], values)])
            worst = min(worst, margin)
            line += f"   {margin:.4f} +- {error:.4f}"
        print(line)
    sys.exit(0 if worst > 0 else 1)


if __name__ == "__main__":
    main()
