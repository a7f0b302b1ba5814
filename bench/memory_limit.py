#!/usr/bin/env python3
"""A model that ZeRO-3 trains under a memory limit per rank and DDP cannot.

  sudo bench/memory_limit.py [--ranks 4] [--limit-mib 900] [--steps 3]

Every rank is put into a control group of its own with that limit (cgroup v1 or v2; needs root), no swap. The same
configuration is trained twice: sharded (fsdp=N, zero 3), which must end, and replicated (dp=N), which is refused without
--force and must be killed with it.
"""
import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ORTHANT = os.environ.get("ORTHANT", os.path.join(ROOT, "build", "bin", "orthant"))

CONFIG = {"name": "limited", "seed": 0,
          "model": {"kind": "llama", "hidden_size": 768, "num_hidden_layers": 14, "num_attention_heads": 12, "num_key_value_heads": 4,
                    "intermediate_size": 2048, "vocab_size": 4096, "max_position_embeddings": 64, "tie_word_embeddings": False},
          "data": {"kind": "tokens", "sequence_length": 32, "samples": 256},
          "optimizer": {"kind": "adamw", "lr": 3e-4, "clip": 1.0}, "lr_schedule": {"kind": "constant"},
          "train": {"global_batch_size": 8, "steps": 3}}


class Limit:
    """A control group with a memory limit, of either version."""

    def __init__(self, name, limit):
        v1 = "/sys/fs/cgroup/memory"
        self.v1 = os.path.isdir(v1)
        self.path = os.path.join(v1 if self.v1 else "/sys/fs/cgroup", name)
        os.mkdir(self.path)
        self.write("memory.limit_in_bytes" if self.v1 else "memory.max", limit)
        if os.path.exists(os.path.join(self.path, "memory.swap.max")):
            self.write("memory.swap.max", 0)

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w") as f:
            f.write(str(value))

    def peak(self):
        with open(os.path.join(self.path, "memory.max_usage_in_bytes" if self.v1 else "memory.peak")) as f:
            return int(f.read())

    def remove(self):
        os.rmdir(self.path)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def train(mesh, config, ranks, limit, steps, *words):
    """Returns the ranks' exit codes, their peaks in bytes, and what rank 0 printed."""
    groups = [Limit(f"orthant-{os.getpid()}-{mesh.split('=')[0]}-{r}", limit) for r in range(ranks)]
    port, jobs = free_port(), []
    out = tempfile.mkdtemp()
    try:
        for rank, group in enumerate(groups):
            env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks),
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "limited"}
            command = [ORTHANT, "train", "--config", config, "--mesh", mesh, "--steps", str(steps), "--output_dir", os.path.join(out, "run"),
                       "--timeout", "60", "--json", *words]
            shell = ["sh", "-c", f'echo $$ > {group.path}/cgroup.procs && exec "$@"', "sh", *command]
            jobs.append(subprocess.Popen(shell, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        texts = [job.communicate(timeout=600) for job in jobs]
        return [job.returncode for job in jobs], [g.peak() for g in groups], texts
    finally:
        for job in jobs:
            if job.poll() is None:
                job.kill()
                job.wait()
        for group in groups:
            group.remove()
        shutil.rmtree(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--limit-mib", type=int, default=900)
    parser.add_argument("--steps", type=int, default=3)
    a = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("bench/memory_limit.py makes control groups: run it as root")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(CONFIG, f)
        f.flush()
        results = {}
        for mesh in (f"fsdp={a.ranks}", f"dp={a.ranks}"):
            words = ["--force"] if mesh.startswith("dp") else []
            codes, peaks, texts = train(mesh, f.name, a.ranks, a.limit_mib << 20, a.steps, *words)
            results[mesh] = codes
            done = codes == [0] * a.ranks
            text = f"exit codes {codes}, peaks {[p >> 20 for p in peaks]} MiB of {a.limit_mib}"
            if done:
                result = json.loads(texts[0][0])
                text += f", {result['parameters'] / 1e6:.1f}M parameters (16 bytes each: {result['parameters'] * 16 >> 20} MiB), loss {result['final_loss']:.4f}"
            print(f"{mesh}: {'trained' if done else 'did not'}; {text}", flush=True)
            if not done and mesh.startswith("fsdp"):
                print(texts[0][1][-2000:], file=sys.stderr)
    sharded, replicated = results.values()
    sys.exit(0 if not any(sharded) and any(code in (-9, 137) for code in replicated) else 1)


if __name__ == "__main__":
    main()
