"""Stages of the card campaign that compare numbers: kernels with formulas, graphs with eager steps, the card with the CPU."""
import concurrent.futures
import json
import math
import os
import shutil
import statistics
import subprocess
import sys

from card_stage import say, stage
from program import ORTHANT, SOURCE, clean_environment

SEEDS = (0, 1, 2)
KEEP_BITS = "DeviceAttention.DropsWhatTheCpuDrops:DeviceActivation.DropoutDrawsAsTheCpuDoes"
TINY = ("model.hidden_size=32", "model.intermediate_size=64", "model.num_hidden_layers=1", "model.vocab_size=97")


@stage("machine", "27 28 29", "what the machine has, and that the program runs there", 30, 120)
def machine(c):
    doctor = c.json("doctor")
    c.tell("", "doctor", "", json.dumps(doctor)[:1500])
    done = c.json("parity", "--config", c.config("configs", "llama_tiny.json"), "--device", c.device, *(() if c.rehearsed else ("--against-device", "cpu")),
                  codes=(0, 1))
    c.tell("", "a small model on the card in float64 against the CPU", "equal", str(done["max_relative_error"]), done["pass"])


@stage("kernel tests", "27", "every kernel against plain formulas in float64, 200 random shapes, twice", 120, 400)
def kernel_tests(c):
    for program, rehearsed in (("test_operations_device", "DeviceKernels.Rotary"), ("test_train_device", "OptimizerOnDevice.CopiesAreRoundedAsOnTheHost")):
        c.test_program(27, f"{program}: kernels against plain float64 formulas, 200 shapes each, poisoned outputs, twice for equal bits", program,
                       f"-StepOnACard*:{KEEP_BITS}", rehearsed, shards=1 if c.rehearsed else 6)


@stage("keep bits", "27", "masks of attention and dropout against the CPU's", 30, 120)
def keep_bits(c):
    c.test_program(27, "keep bits equal to the CPU's on 500 random sites, steps, rows, heads, lengths, offsets", "test_operations_device", KEEP_BITS,
                   "DeviceActivation.DropoutDrawsAsTheCpuDoes")


@stage("sanitizer", "27", "kernels under compute-sanitizer", 90, 300)
def sanitizer(c):
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not c.rehearsed and not os.path.exists(tool):
        c.tell(27, "kernels under compute-sanitizer", "clean", "this machine has no compute-sanitizer")
        return
    # Every tensor has memory of its own there, so that reads and writes beyond its end are seen.
    c.test_program(27, "kernels under compute-sanitizer's memcheck, two shapes each", "test_operations_device", f"Device*-{KEEP_BITS}",
                   launcher=["env", "PYTORCH_NO_CUDA_MEMORY_CACHING=1", tool, "--error-exitcode", "9"], asked="clean", shapes=2, shards=12)


@stage("step tests", "28", "recorded steps: bits, changing shapes, memory, no waits", 90, 300)
def step_tests(c):
    c.test_program(28, "recorded steps against others, a bad step, 2,000 steps of changing shapes without growth or captures beyond the cache",
                   "test_train_device", "StepOnACard*")


LLAMA = {"kind": "llama", "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 256,
         "vocab_size": 256, "max_position_embeddings": 128}
BERT = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256, "vocab_size": 256, "max_position_embeddings": 128,
        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
MODELS = {
    "llama": {**LLAMA, "attention_dropout": 0.1}, "qwen3": {**LLAMA, "kind": "qwen3", "head_dim": 32}, "mistral": {**LLAMA, "kind": "mistral"},
    "gpt2": {"kind": "gpt2", "n_embd": 128, "n_layer": 2, "n_head": 4, "vocab_size": 256, "n_positions": 128, "embd_pdrop": 0.1, "attn_pdrop": 0.1,
             "resid_pdrop": 0.1},
    "bert": {"kind": "bert", **BERT},
    "trimodal": {"kind": "trimodal", "primary": BERT, "secondary": {**BERT, "num_hidden_layers": 1}, "tabular": {"input_dim": 3, "hidden_dim": 32},
                 "fusion": {"hidden_size": 64, "dropout": 0.1}, "pooling": "cls", "projection": None, "num_labels": 2},
    "encoder_lm": {"kind": "encoder_lm", "preset": "encoder-lm-tiny"},
}
CASES = [(model, "dropout and clip", ()) for model in MODELS] + [
    ("gpt2", "4 microbatches", ("parallel.microbatches=4",)), ("llama", "4 microbatches", ("parallel.microbatches=4",)),
    ("llama", "recompute full", ("parallel.recompute=full", "parallel.microbatches=2")), ("gpt2", "recompute selective", ("parallel.recompute=selective",)),
    ("llama", "float16 with a loss scale", ("precision.compute=float16",)), ("llama", "bf16_remainder", ("precision.master=bf16_remainder",)),
    ("trimodal", "a bad step", ("train.bad_steps=skip", 'train.poison=["gradient:rank=0,unit=fusion,step=9,value=nan"]')),
    ("llama", "a bad step", ("train.bad_steps=skip", 'train.poison=["gradient:rank=0,unit=layers.1,step=9,value=nan"]')),
    ("gpt2", "resumed", ()),
]


def bits_of(c, model, name, settings, graph):
    """The weights' hash after the steps, or why there is none."""
    steps = 3 if c.rehearsed else 50
    kind = "random" if model == "trimodal" else "tokens"
    folder = c.path(f"{model}-{name}-{graph}".replace(" ", "_"))
    os.makedirs(folder)
    config = {"name": "bits", "seed": 5, "model": MODELS[model], "data": {"kind": kind, "sequence_length": 32 if model == "encoder_lm" else 64, "samples": 256},
              "precision": {"compute": "float32" if c.rehearsed else "bfloat16"}, "optimizer": {"kind": "adamw", "lr": 1e-3, "clip": 0.5},
              "train": {"global_batch_size": 8, "steps": 50, "deterministic": True, "cuda_graph": graph}}
    if model == "encoder_lm":
        del config["data"]["sequence_length"]
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    words = ["train", "--config", os.path.join(folder, "config.json"), "--device", c.device, "--output-dir", os.path.join(folder, "run")]
    words += c.settings(settings, [f"precision.compute={'float32'}", "precision.master=float32"])
    saves = ["--set", f"checkpoint.save_every={steps // 2}"] if name == "resumed" else []
    if name == "resumed":
        c.orthant(*words, *saves, "--steps", steps // 2)
        saves += ["--resume", "auto"]
    done = c.orthant(*words, *saves, "--steps", steps, "--json", codes=(0, 2, 3, 4, 70))
    return json.loads(done.stdout)["weights_hash"] if done.returncode == 0 else f"exit code {done.returncode}: {done.stderr.strip()[-200:]}"


@stage("graph bits", "28", "graph against eager steps, every kind of model", 150, 420)
def graph_bits(c):
    cases = CASES
    with concurrent.futures.ThreadPoolExecutor(1 if c.rehearsed else 4) as pool:
        jobs = [(model, name, [pool.submit(bits_of, c, model, name, settings, graph) for graph in (("off", "auto") if c.rehearsed else ("off", "on"))])
                for model, name, settings in cases]
        for model, name, both in jobs:
            off, on = (job.result() for job in both)
            sound = off == on and "exit code" not in off
            c.tell(28, f"{model}, {name}: weights after 50 steps, graph against eager, train.deterministic", "equal bits", off if sound else f"{off} | {on}", sound)


def perplexity_words(folder, device, c=None):
    settings = c.settings(["precision.compute=bfloat16"], ["precision.compute=float32", "train.steps=3"]) if c else []
    return ["train", "--config", os.path.join(folder, "config.json"), "--set", f"data.path={os.path.join(folder, 'train')}", "--set",
            f"data.eval_path={os.path.join(folder, 'held_out')}", "--device", device, *settings]


@stage("perplexity", "28", "300 steps of the perplexity run on the card in bf16 against the CPU in float32", 60, 300)
def perplexity(c):
    folder, reference = os.path.join(c.reference_folder, "perplexity"), c.reference("perplexity")
    if reference is None:
        c.tell(28, "perplexity after 300 steps", "within 1% of the CPU's", "no reference: --prepare DIR makes it on any machine", None if c.rehearsed else False)
        return
    found = c.json(*perplexity_words(folder, c.device, c), "--output-dir", c.path("run"))["eval"]["perplexity"]
    c.tell(28, "perplexity after 300 steps, bf16 and graph on the card against float32 on the CPU", "within 1%", f"{found:.3f} against {reference:.3f}",
           None if c.rehearsed else abs(found / reference - 1) < 0.01)


def demo_words(seed, device, epochs):
    return ["train", "--epochs", str(epochs), "--mesh", "dp=1", "--set", f"seed={seed}", "--device", device]


@stage("demo", "27", "ten epochs of the trimodal demo, three seeds, against the CPU", 60, 240)
def demo(c):
    reference = c.reference("demo")
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(c.json, *demo_words(seed, c.device, 1 if c.rehearsed else 10), "--output-dir", c.path(f"demo-{seed}"),
                            *(["--steps", "3"] if c.rehearsed else [])) for seed in SEEDS]
        card = [run.result()["eval"]["accuracy"] for run in runs]
    told = ", ".join(f"{value:.4f}" for value in card)
    if reference is None:
        c.tell(27, "ten epochs of the trimodal demo on three seeds", "the CPU's accuracy within the seeds' spread", f"{told}; no reference: --prepare DIR", None)
        return
    spread = max(max(reference) - min(reference), 1e-3)
    right = abs(statistics.mean(card) - statistics.mean(reference)) <= spread
    c.tell(27, "ten epochs of the trimodal demo on three seeds, accuracy", "the CPU's within the seeds' spread",
           f"{told} on the card, {', '.join(f'{value:.4f}' for value in reference)} on the CPU", None if c.rehearsed else right)


def answer(*words):
    done = subprocess.run([ORTHANT, *map(str, words), "--json"], capture_output=True, text=True, env=clean_environment())
    if done.returncode != 0:
        sys.exit(f"orthant {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def prepare_corpus(folder, quick):
    """Token files of both parts and the configuration of bench/perplexity.py."""
    sys.path.insert(0, os.path.join(SOURCE, "bench"))
    import perplexity as bench
    sizes = bench.QUICK if quick else bench.LONG
    bench.write_corpus(folder, sizes, "no such program")
    facts = {}
    for part in ("train", "held_out"):
        facts[part] = answer("data", "prepare-text", "--input", os.path.join(folder, f"{part}.jsonl"), "--tokenizer", os.path.join(folder, "tokenizer.json"),
                             "--out", os.path.join(folder, part))
        os.remove(os.path.join(folder, f"{part}.jsonl"))
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(bench.config_of(folder, sizes, facts["train"]["vocab_size"]), f)


def prepare(folder, quick):
    """What the CPU computes, as reference.json in a folder that is carried along. What is there is not made again."""
    path = os.path.join(folder, "reference.json")
    os.makedirs(folder, exist_ok=True)
    reference = {}
    if os.path.exists(path):
        with open(path) as f:
            reference = json.load(f)
    if "perplexity" not in reference:
        say("the perplexity run in float32")
        corpus = os.path.join(folder, "perplexity")
        os.makedirs(corpus, exist_ok=True)
        prepare_corpus(corpus, quick)
        reference["perplexity"] = answer(*perplexity_words(corpus, "cpu"), "--output-dir", os.path.join(folder, "run-perplexity"))["eval"]["perplexity"]
    if "demo" not in reference:
        say("ten epochs of the demo on three seeds")
        steps = ["--steps", "3"] if quick else []
        reference["demo"] = [answer(*demo_words(seed, "cpu", 1 if quick else 10), *steps, "--output-dir", os.path.join(folder, f"run-demo-{seed}"))["eval"]["accuracy"]
                             for seed in SEEDS]
    if not math.isfinite(reference["perplexity"]):
        sys.exit("the perplexity run did not train")
    for name in os.listdir(folder):
        if name.startswith("run-"):
            subprocess.run(["rm", "-r", os.path.join(folder, name)], check=True)
    with open(path, "w") as f:
        json.dump(reference, f, indent=1)
    print(path)
    return 0
