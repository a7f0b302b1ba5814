#!/usr/bin/env python3
"""Generation beside transformers, by how many texts are worked on side by side, after prompts of 128 tokens.

    PEERS=FOLDER .venv/bin/python bench/generate.py [--batch 1 8 32] [--new 64] [--rounds 2]
    PEERS=FOLDER python3 bench/generate.py --device cuda

PEERS is a folder with generate.py, a script that generates with transformers. On the CPU: milliseconds of processor time on one thread for each
further token of all texts, with a Llama of 21 million random weights in float32. Both programs run one after the other, again and again; the
fastest round counts. Processor time is what a machine shows that others use, too: the time of a run of `--new` + 2 tokens less that of a run of 2.
On a card: milliseconds until all prompts have their first token, and for each further token, with the Llama of 1.5 billion random weights of
bench/llama_1b5.json in bfloat16; without PEERS ours alone.
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile

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


def on_the_cpu(given, folder):
    import torch
    import transformers
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


def on_a_card(given, folder):
    subprocess.run([sys.executable, os.path.join(ROOT, "bench", "random_llama.py"), folder], check=True)
    batches = [str(batch) for batch in given.batch]
    ours = subprocess.run([ORTHANT, "bench", "generate", "--model", folder, "--device", "cuda", "--dtype", "bfloat16", "--batch", ",".join(batches),
                           "--new", str(given.new), "--rounds", str(given.rounds), "--json"], check=True, stdout=subprocess.PIPE, text=True)
    peers = {}
    if "PEERS" in os.environ:
        theirs = subprocess.run([sys.executable, os.path.join(os.environ["PEERS"], "generate.py"), folder, "--device", "cuda", "--dtype", "bfloat16",
                                 "--new", str(given.new), "--batch", *batches], stdout=subprocess.PIPE, text=True)
        peers = {row["batch"]: row for row in map(json.loads, filter(lambda line: line.startswith("{"), theirs.stdout.splitlines()))}
    for row in json.loads(ours.stdout)["rows"]:
        text = f"batch {row['batch']:3}: prompts {row['prefill_ms']:.2f} ms, then {row['decode_ms_per_token']:.3f} ms a token"
        if peer := peers.get(row["batch"]):
            text += (f"; transformers {peer['prefill_ms']:.1f} ms, then {peer['decode_ms_per_token']:.2f} ms: "
                     f"{peer['decode_ms_per_token'] / row['decode_ms_per_token']:.1f} times as fast")
        print(text, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    given = parser.parse_args()
    if given.device == "cpu" and "PEERS" not in os.environ:
        sys.exit("PEERS names no folder with generate.py")
    with tempfile.TemporaryDirectory() as folder:
        (on_the_cpu if given.device == "cpu" else on_a_card)(given, folder)


if __name__ == "__main__":
    main()
