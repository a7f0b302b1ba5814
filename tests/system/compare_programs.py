#!/usr/bin/env python3
"""An old and a new build of the program on 40 small configurations: do they train the same?

  .venv/bin/python tests/system/compare_programs.py OLD NEW [--only REGEX] [--list] [--rounds N] [--without WHAT] [--json] [--keep FOLDER]

Every configuration (compared_configurations.py; --list prints them) is trained for three steps by both programs, one thread per rank, at
most two trainings at a time. Four things are compared:

  weights   every bit of every parameter of the last checkpoint, by full name, and the hash that the program prints
  metrics   every number of metrics.jsonl and eval.jsonl as printed (loss, gradient norm, ...), but for times and memory
  counters  calls and payload bytes of the steps by axis and operation, all ranks together (`measured.traffic` of `train --json`)
  peak      most bytes of tensors per pp coordinate (`measured.memory_bytes`); larger by more than the printed tolerance differs

Where weights differ, the first such parameter is named with the largest error of all, measured as `orthant parity` does: rounding is near
the precision's epsilon, a defect is far from it. A peak that is smaller is told and is no difference. A program that does not report
something fails the comparison, unless --without names it. With --rounds N every program trains N times, and each run is compared with
OLD's first: what OLD does not repeat is told as such. Exit code 1 when something differs, 2 for wrong use.
"""
import argparse
import concurrent.futures
import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time

from checkpoint_weights import read_state
from compared_configurations import CONFIGURATIONS, STEPS
from program import clean_environment, run
from reshard_trial import parameters, relative_errors, same_bits

WHAT = ("weights", "metrics", "counters", "peak")
PEAK_TOLERANCE_BYTES = 256  # runs of one program are up to 80 bytes apart
TRAININGS = 2  # at a time
SECONDS = 120


@dataclasses.dataclass
class Outcome:
    """What one training came to. Counters are nothing where the program does not report them."""
    weights: dict
    printed_hash: str
    metrics: dict  # text by place
    counters: dict
    peak: list  # bytes per pp coordinate


class Failed(Exception):
    pass


def printed_numbers(path):
    """Every value of a file of JSON lines as it is printed, by file, step and key."""
    found, file = {}, os.path.basename(path)
    if os.path.exists(path):
        with open(path) as f:
            for line in f:
                values = json.loads(line, parse_float=str, parse_int=str)
                found.update({f"{file} step {values['step']} {key}": str(value) for key, value in values.items()
                              if "second" not in key and key != "peak_memory_bytes"})
    return found


def read_counters(measured):
    if "traffic" not in measured:
        return None
    return {f"{group} {operation} {name}": count for group, operations in measured["traffic"].items()
            for operation, entry in operations.items() for name, count in entry.items()}


def read_outcome(folder, result):
    """Of the run in that folder, which printed this document."""
    state = read_state(os.path.join(folder, "checkpoints", f"step-{STEPS}"))[1]
    metrics = {**printed_numbers(os.path.join(folder, "metrics.jsonl")), **printed_numbers(os.path.join(folder, "eval.jsonl"))}
    return Outcome(parameters(state), result["weights_hash"], metrics, read_counters(result["measured"]), result["measured"]["memory_bytes"])


def train(program, configuration, folder):
    os.makedirs(folder)
    configuration.write(folder)
    words = [program, *configuration.arguments()]
    try:
        done = run(*words, cwd=folder, timeout=SECONDS, env=clean_environment(CUDA_VISIBLE_DEVICES=""))
    except subprocess.TimeoutExpired:
        raise Failed(f"no answer within {SECONDS} s: {shlex.join(words)}") from None
    if done.returncode != 0:
        raise Failed(f"exit code {done.returncode}: {' '.join(done.stderr.split())[-300:]}")
    return read_outcome(os.path.join(folder, "run"), json.loads(done.stdout))


def weights_difference(old, new):
    first = same_bits(new.weights, old.weights)
    if first is None:
        return None if old.printed_hash == new.printed_hash else f"equal bits, but the printed hash is {new.printed_hash}, not {old.printed_hash}"
    if old.weights.keys() != new.weights.keys() or any(new.weights[name].shape != tensor.shape for name, tensor in old.weights.items()):
        return f"other names or shapes: {first}"
    errors = relative_errors(new.weights, old.weights)
    worst = max(errors, key=errors.get)
    count = sum(new.weights[name].tobytes() != tensor.tobytes() for name, tensor in old.weights.items())
    return f"first {first}, {count} of {len(errors)} parameters; largest relative difference {errors[worst]:.1e} in {worst}"


def values_difference(old, new):
    """The first of two dictionaries' values that is not the same, and how many are not."""
    different = [place for place in {**old, **new} if old.get(place) != new.get(place)]
    if not different:
        return None
    place = different[0]
    return f"{place} is {new.get(place, 'absent')}, not {old.get(place, 'absent')}; {len(different)} of {len({**old, **new})} values"


def counters_difference(old, new):
    missing = [name for name, outcome in (("OLD", old), ("NEW", new)) if outcome.counters is None]
    if missing:
        return f"not reported by {' and '.join(missing)}; --without counters compares the rest"
    return values_difference(old.counters, new.counters)


def larger_peak(old, new):
    if len(old.peak) != len(new.peak):
        return f"of {len(new.peak)} pp coordinates, not {len(old.peak)}"
    for pp, (was, is_now) in enumerate(zip(old.peak, new.peak)):
        if is_now > was + PEAK_TOLERANCE_BYTES:
            return f"pp {pp}: {is_now} bytes, {is_now - was} more than {was}"
    return None


def smaller_peak(old, new):
    """By how many bytes a pp coordinate has less, where none has more."""
    saved = max((was - is_now for was, is_now in zip(old.peak, new.peak)), default=0)
    return saved if saved > PEAK_TOLERANCE_BYTES and not larger_peak(old, new) else 0


def differences(old, new, without=()):
    """Text by what differs."""
    found = {"weights": weights_difference(old, new), "metrics": values_difference(old.metrics, new.metrics),
             "counters": counters_difference(old, new), "peak": larger_peak(old, new)}
    return {what: text for what, text in found.items() if text and what not in without}


@dataclasses.dataclass
class Verdict:
    name: str
    differences: list  # of one run with OLD's first: {"run", "what", "text"}
    smaller_peak_bytes: int = 0

    def text(self):
        if self.differences:
            return "; ".join(f"{d['run']} differs in {d['what']}: {d['text']}" for d in self.differences)
        return "equal" + f", peak smaller by {self.smaller_peak_bytes} bytes" * bool(self.smaller_peak_bytes)


def judge(configuration, options, folder):
    """Trains with both programs in turn and compares every run with the first."""
    verdict, first = Verdict(configuration.name, []), None
    for number in range(options.rounds):
        for side, program in (("OLD", options.old), ("NEW", options.new)):
            label = side if number == 0 else f"{side} again" if side == "OLD" else f"NEW, round {number + 1}"
            try:
                outcome = train(program, configuration, os.path.join(folder, configuration.name.replace(" ", "-"), f"{side}-{number + 1}"))
            except Failed as failure:
                verdict.differences.append({"run": label, "what": "outcome", "text": str(failure)})
                return verdict
            if first is None:
                first = outcome
                continue
            verdict.differences += [{"run": label, "what": what, "text": text}
                                    for what, text in differences(first, outcome, options.without).items()]
            if side == "NEW":
                verdict.smaller_peak_bytes = max(verdict.smaller_peak_bytes, smaller_peak(first, outcome))
    return verdict


def summary(verdicts, options, seconds):
    different = sum(bool(verdict.differences) for verdict in verdicts)
    compared = ", ".join(what for what in WHAT if what not in options.without)
    left_out = f"; NOT compared: {', '.join(options.without)}" * bool(options.without)
    return (f"{len(verdicts)} configurations, {len(verdicts) - different} equal, {different} differ in {seconds:.0f} s; compared: {compared} "
            f"(peak may be {PEAK_TOLERANCE_BYTES} bytes larger){left_out}")


def document(verdicts, options):
    return {"old": options.old, "new": options.new, "rounds": options.rounds, "without": options.without,
            "peak_tolerance_bytes": PEAK_TOLERANCE_BYTES, "equal": sum(not verdict.differences for verdict in verdicts),
            "differ": sum(bool(verdict.differences) for verdict in verdicts),
            "configurations": [{**dataclasses.asdict(verdict), "equal": not verdict.differences} for verdict in verdicts]}


def compare(chosen, options, folder):
    """Verdicts in the order of the configurations; a table on the way."""
    verdicts, began = [], time.monotonic()
    if not options.json:
        print("| configuration | old against new |\n|---|---|", flush=True)
    with concurrent.futures.ThreadPoolExecutor(TRAININGS) as pool:
        for verdict in pool.map(lambda configuration: judge(configuration, options, folder), chosen):
            verdicts.append(verdict)
            if not options.json:
                print(f"| {verdict.name} | {verdict.text()} |", flush=True)
    print(json.dumps(document(verdicts, options), indent=1) if options.json else f"\n{summary(verdicts, options, time.monotonic() - began)}")
    return verdicts


def program_path(text):
    if not os.access(text, os.X_OK) or os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"{text} is not a program that can be run")
    return os.path.abspath(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=program_path, nargs="?", metavar="OLD")
    parser.add_argument("new", type=program_path, nargs="?", metavar="NEW")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), metavar="REGEX", help="configurations with this in their name")
    parser.add_argument("--list", action="store_true", help="print names and settings; train nothing")
    parser.add_argument("--rounds", type=int, default=1, help="how often each program trains (default 1)")
    parser.add_argument("--without", action="append", choices=WHAT, default=[], help="leave this out; may be repeated")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of the table")
    parser.add_argument("--keep", metavar="FOLDER", help="a new folder for the runs, which stay there")
    options = parser.parse_args()
    chosen = [configuration for configuration in CONFIGURATIONS if options.only.search(configuration.name)]
    if options.list:
        for configuration in chosen:
            print(f"{configuration.name}: {configuration.mesh()} {' '.join(configuration.settings())}")
        return 0
    if not options.new or options.rounds < 1 or not chosen:
        parser.error("needs OLD and NEW, one round or more, and a configuration that --only leaves")
    if options.keep:
        os.makedirs(options.keep)
        verdicts = compare(chosen, options, os.path.abspath(options.keep))
    else:
        with tempfile.TemporaryDirectory(prefix="orthant-compare-") as folder:
            verdicts = compare(chosen, options, folder)
    return 1 if any(verdict.differences for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
