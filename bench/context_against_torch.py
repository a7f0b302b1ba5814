#!/usr/bin/env python3
"""Context parallelism of torch.distributed on CPUs over Gloo, two ranks against one, beside ours; interleaved rounds, one thread a rank.

  .venv/bin/python bench/context_against_torch.py [--rounds 5] [--tokens 4096] [--program build/bin/orthant]

torch: forward and backward of one causal attention (8 heads of 64 channels) in `context_parallel`, which replaces
scaled_dot_product_attention inside its block. What it raises is printed with the place that raises it.
Ours: a step of configs/llama_21m.json over cp=2 by ring, against one rank.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def torch_rank(rank, world, tokens, meeting, answers):
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    torch.manual_seed(0)
    whole = [torch.randn(1, 8, tokens, 64) for _ in range(3)]

    def attend(q, k, v):
        F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()

    def alone():
        attend(*(x.clone().requires_grad_() for x in whole))

    def shared():
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.experimental import context_parallel
        buffers = [x.clone() for x in whole]
        with context_parallel(init_device_mesh("cpu", (world,)), buffers=buffers, buffer_seq_dims=[2, 2, 2]):
            attend(*(x.detach().requires_grad_() for x in buffers))

    try:
        found = []
        for _ in range(3):
            start = time.perf_counter()
            alone() if world == 1 else shared()
            found.append(time.perf_counter() - start)
        answer = min(found)
    except Exception as error:  # what it raises is the answer
        last = traceback.extract_tb(error.__traceback__)[-1]
        answer = f"{type(error).__name__}: {str(error).splitlines()[0][:200]} ({os.path.basename(last.filename)}:{last.lineno}, {last.name})"
    if rank == 0:
        answers.put(answer)
    dist.destroy_process_group()


def torch_seconds(world, tokens):
    import torch.multiprocessing
    context = torch.multiprocessing.get_context("spawn")
    answers = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=torch_rank, args=(rank, world, tokens, os.path.join(folder, "meeting"), answers)) for rank in range(world)]
        for rank in ranks:
            rank.start()
        answer = answers.get(timeout=300)
        for rank in ranks:
            rank.join()
    return answer


def our_seconds(program, tokens, mesh):
    settings = ["parallel.context=ring", f"data.sequence_length={tokens}", f"model.max_position_embeddings={tokens}", "train.global_batch_size=1",
                "parallel.microbatches=1"]
    command = [program, "bench", "step", "--config", os.path.join(ROOT, "configs", "llama_21m.json"), "--mesh", mesh, "--threads", "1", "--json"]
    for setting in settings:
        command += ["--set", setting]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["median_seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "bin", "orthant"))
    arguments = parser.parse_args()
    ratios = {"torch": [], "ours": []}
    for _ in range(arguments.rounds):
        if ratios["torch"] is not None:
            one, two = torch_seconds(1, arguments.tokens), torch_seconds(2, arguments.tokens)
            if isinstance(two, str):
                print(f"torch does not run: {two}", flush=True)
                ratios["torch"] = None
            else:
                ratios["torch"].append(one / two)
        ratios["ours"].append(our_seconds(arguments.program, arguments.tokens, "dp=1") / our_seconds(arguments.program, arguments.tokens, "cp=2"))
    for name, found in ratios.items():
        if found:
            print(f"{name}: two ranks are {statistics.median(found):.2f} times as fast as one (rounds: {', '.join(f'{one:.2f}' for one in found)})")


if __name__ == "__main__":
    sys.exit(main())
