#!/usr/bin/env python3
"""Generation beside transformers on one thread: milliseconds of processor time for each further token of all texts, by how many texts are worked on
side by side, after prompts of 128 tokens. Both programs run one after the other, again and again; the fastest round counts.

    PEERS=FOLDER .venv/bin/python bench/generate.py [--batch 1 8 32] [--new 64] [--rounds 2]

PEERS is a folder with generate.py, a script that generates with transformers. The model is a Llama of 21 million random weights in float32. Processor
time is what a machine shows that others use, too: the time of a run of `--new` + 2 tokens less that of a run of 2.
"""
import argparse
import os
import resource
import subprocess
import sys
import tempfile

import torch
import transformers

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ORTHANT = os.environ.get("ORTHANT", os.path.join(ROOT, "build", "bin", "orthant"))
SIZES = dict(vocab_size=8192, hidden_size=384, intermediate_size=1280, num_hidden_layers=8, num_attention_heads=6, num_key_value_heads=2,
             max_position_embeddings=512, rms_norm_eps=1e-5, bos_token_id=None, eos_token_id=None)


def processor_seconds(*words):
    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime
    before = used()
    subprocess.run([str(word) for word in words], check=True, capture_output=True)
    return used() - before


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    if "PEERS" not in os.environ:
        sys.exit("PEERS names no folder with generate.py")
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).save_pretrained(folder)

        def theirs(batch, new):  # which generates twice
            return processor_seconds(sys.executable, os.path.join(os.environ["PEERS"], "generate.py"), folder, "--batch", batch, "--new", new) / 2

        def ours(batch, new):
            return processor_seconds(ORTHANT, "bench", "generate", "--model", folder, "--batch", batch, "--new", new, "--rounds", 1)

        for batch in given.batch:
            best = {}
            for _ in range(given.rounds):
                for name, run in (("theirs", theirs), ("ours", ours)):
                    token = (run(batch, given.new + 2) - run(batch, 2)) / given.new * 1e3
                    best[name] = min(token, best.get(name, token))
            print(f"batch {batch:3}: {best['ours']:.2f} ms a token, transformers {best['theirs']:.2f} ms: {best['theirs'] / best['ours']:.2f} times as fast",
                  flush=True)


if __name__ == "__main__":
    main()
