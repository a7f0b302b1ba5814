#!/usr/bin/env python3
"""Sets every integer of a configuration to absurd values, and some together to the largest that are allowed. Each dry run must end within one second
and 64 MiB above what the program takes without any work, whether it is accepted or refused (exit code 2 or 4).

  python3 tests/system/absurd_sizes_campaign.py             all of them
  python3 tests/system/absurd_sizes_campaign.py --count 24  evenly spread over all of them"""
import argparse
import re
import sys

from crafted_campaign import BYTES, Finished, spread

VALUES = [0, -1, 10**9, 10**12, 2**31, 2**63 - 1]
TOKENS = ["data.kind=tokens"]
MODELS = {
    "default": [],
    "llama": ["model.kind=llama", *TOKENS], "gpt2": ["model.kind=gpt2", *TOKENS], "bert": ["model.kind=bert", *TOKENS],
    "encoder_lm": ["model.kind=encoder_lm", *TOKENS], "random": ["model.kind=llama", "data.kind=random"],
}
# Lists, and sizes that are fine one by one.
TOGETHER = {
    "many microbatches": ["parallel.microbatches=1048576", "train.global_batch_size=1048576", "data.samples=1048576"],
    "many microbatches in a pipeline": ["mesh.pp=2", "parallel.microbatches=1048576", "train.global_batch_size=1048576", "data.samples=1048576"],
    "many microbatches under interleaved": ["mesh.pp=2", "parallel.schedule=interleaved", "parallel.microbatches=1048576",
                                            "train.global_batch_size=1048576", "data.samples=1048576"],
    "4096 microbatches on 64 stages": ["mesh.pp=64", "model.kind=llama", "model.num_hidden_layers=64", "parallel.microbatches=4096", *TOKENS,
                                       "train.global_batch_size=4096", "data.samples=4096"],
    "deepest model": ["model.kind=llama", "model.num_hidden_layers=16384", *TOKENS],
    "deep model": ["model.kind=llama", "model.num_hidden_layers=512", *TOKENS],
    "deep model in a pipeline": ["model.kind=llama", "model.num_hidden_layers=1024", "mesh.pp=1024", *TOKENS],
    "widest mesh": ["mesh.dp=1048576", "train.global_batch_size=1048576", "data.samples=1048576"],
    "wide mesh of four axes": ["mesh.dp=64", "mesh.fsdp=64", "mesh.tp=1", "train.global_batch_size=4096", "data.samples=4096"],
    "largest batch": ["train.global_batch_size=1099511627776", "data.samples=1099511627776"],
    "longest sequence": ["model.kind=llama", "model.max_position_embeddings=2147483647", "data.sequence_length=2147483647", *TOKENS],
    "largest vocabulary": ["model.kind=llama", "model.vocab_size=2147483647", *TOKENS],
    "vocabulary of tokens": ["model.kind=llama", "model.vocab_size=16777216", *TOKENS],
    "vocabulary of bert": ["model.kind=bert", "model.vocab_size=16777216", *TOKENS],
    "random data": ["model.kind=llama", "data.kind=random", "data.samples=1099511627776", "data.sequence_length=128"],
    "long run": ["train.steps=1099511627776"], "many epochs": ["train.steps=0", "train.epochs=1099511627776"],
    "many labels": ["model.num_labels=4194304"],
    "one name in 10000 lists": ["parallel.split=" + "[" + ",".join(['["a"]'] * 10_000) + "]"],
    "a placement of 10000": ["parallel.placement=" + str([0] * 10_000).replace(" ", "")],
    "a freeze of 10000": ["model.freeze=" + "[" + ",".join(['"a*"'] * 10_000) + "]"],
}


def integer_keys(settings):
    """The keys of a configuration whose values are integers."""
    done = Finished("train", "--print-config", *(word for setting in settings for word in ("--set", setting)))
    if done.code != 0:
        sys.exit(f"{settings}: {done.output.decode()}")
    return re.findall(r"^(\S+) = -?\d+ ", done.output.decode(), re.M)


def all_cases():
    for model, settings in MODELS.items():
        seen = [setting.partition("=")[0] for setting in settings]
        for key in integer_keys(settings):
            for value in VALUES:
                if key not in seen:
                    yield f"{model}: {key}={value}", [*settings, f"{key}={value}"]
    for name, settings in TOGETHER.items():
        yield name, settings


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=None, help="only so many, evenly spread")
    parser.add_argument("--only", default="", help="only names with this text")
    parser.add_argument("--busy", action="store_true", help="the machine is busy: the second is one of the processor, not of the clock")
    parser.add_argument("--quiet", action="store_true", help="print faults and the sum alone")
    options = parser.parse_args()
    base = max(Finished("--version").bytes for _ in range(3))
    cases = [case for case in all_cases() if options.only in case[0]]
    cases = spread(cases, options.count) if options.count else cases
    failed, slowest, largest = 0, 0.0, 0
    for name, settings in cases:
        words = ["train", "--dry-run", *(word for setting in settings for word in ("--set", setting))]
        for _ in range(3):
            done = Finished(*words)
            if done.within(options.busy):
                break
        wrong = []
        if done.code not in (0, 2, 4):
            wrong.append(f"exit code {done.code}")
        if not done.within(options.busy):
            wrong.append(f"{done.seconds:.2f} s ({done.cpu_seconds:.2f} s of the processor)")
        if done.bytes - base > BYTES:
            wrong.append(f"{(done.bytes - base) / (1 << 20):.0f} MiB above the base")
        failed += bool(wrong)
        slowest, largest = max(slowest, done.seconds), max(largest, done.bytes - base)
        if wrong or not options.quiet:
            said = done.output.decode(errors="backslashreplace")
            line = next((text for text in said.splitlines() if "error" in text), "accepted")
            print(f"{'FAILED ' + '; '.join(wrong) if wrong else 'fine'}: {name}: {line[:160]}", flush=True)
    print(f"{len(cases) - failed} of {len(cases)} configurations within bounds; slowest {slowest:.2f} s, most memory {largest / (1 << 20):.0f} MiB above "
          f"the {base / (1 << 20):.0f} MiB of the program")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
