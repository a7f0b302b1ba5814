"""compare_programs.py on doctored results: what differs is found and named, and the list of configurations covers what it says."""
import copy
import dataclasses
import functools
import itertools
import json
import os
import re
import shutil
import struct
import tempfile
import unittest

import compare_programs
from compare_programs import PEAK_TOLERANCE_BYTES, differences, read_outcome, smaller_peak, train
from compared_configurations import CONFIGURATIONS, MESHES, SETTINGS, STEPS, unknown_words
from program import ORTHANT, FolderTest, python, run

TRAINED = next(configuration for configuration in CONFIGURATIONS if configuration.name.startswith("llama tp2 mb2"))
PARAMETER = "layers.2.mlp.w2.weight"


def chosen(words, *choices):
    return next((choice for choice in choices if choice in words), "")


class Configurations(unittest.TestCase):
    def test_are_40_of_known_words(self):
        names = [configuration.name for configuration in CONFIGURATIONS]
        self.assertEqual((len(names), len(set(names))), (40, 40))
        self.assertEqual([word for name in names for word in unknown_words(name)], [])
        used = {word for name in names for word in name.split()}
        self.assertEqual({*MESHES, *SETTINGS, "drop", "frozen"} - used, set())
        self.assertEqual({name.split()[0] for name in names}, {"llama", "gpt2", "bert", "encoder_lm", "trimodal"})

    def test_have_every_pair_of_values(self):
        rows = []
        for words in (configuration.name.split() for configuration in CONFIGURATIONS):
            mesh = " ".join(word for word in words if word in (*MESHES, "sp", "regather", "lp", "gpipe", "1f1b", "interleaved", "zbh1", "zbv"))
            rows.append({"model": words[0], "mesh": mesh, "recompute": chosen(words, "selective", "full"), "precision": chosen(words, "f64", "bf16"),
                         "head": chosen(words, "joined", "apart"), "microbatches": chosen(words, "mb2", "mb4"),
                         **{word: chosen(words, word) for word in ("drop", "frozen", "uneven", "eval")}})
        values = {factor: {row[factor] for row in rows} for factor in rows[0]}
        self.assertEqual(len(values["mesh"]), 13)
        missing = {(one, other, b) for a, b in itertools.combinations(values, 2) if (a, b) != ("model", "mesh")
                   for one, other in itertools.product(values[a], values[b]) if not any(row[a] == one and row[b] == other for row in rows)}
        # A classifier has no head to join; pipelines have several microbatches; 12 rows are no multiple of 2 x 4.
        impossible = {("trimodal", "joined", "head"), ("trimodal", "apart", "head"), ("dp2", "mb4", "microbatches"), ("fsdp2", "mb4", "microbatches")}
        impossible |= {(mesh, "", "microbatches") for mesh in values["mesh"] if mesh.startswith("pp2")}
        self.assertEqual(missing - impossible, set())


@functools.cache
def stored_run():
    """Folder, printed document and outcome of one training, with counters of our own."""
    folder = tempfile.mkdtemp()
    unittest.addModuleCleanup(shutil.rmtree, folder)
    trained = train(ORTHANT, TRAINED, os.path.join(folder, "work"))
    traffic = {"tp": {"all_reduce": {"calls": 24, "payload_bytes": 4096}}}
    document = {"weights_hash": trained.printed_hash, "measured": {"memory_bytes": trained.peak, "traffic": traffic}}
    run_folder = os.path.join(folder, "work", "run")
    return run_folder, document, read_outcome(run_folder, document)


class StoredRunTest(FolderTest):
    """A test with one training, and copies of it that are changed."""

    def setUp(self):
        super().setUp()
        self.run_folder, document, self.outcome = stored_run()
        self.document = copy.deepcopy(document)

    def copied(self, name="copy"):
        return shutil.copytree(self.run_folder, self.path(name))

    def change_weight(self, folder, change):
        """The first number of the parameter that rank 0 stores."""
        path = os.path.join(folder, "checkpoints", f"step-{STEPS}", "rank-0.safetensors")
        with open(path, "r+b") as f:
            length = struct.unpack("<Q", f.read(8))[0]
            f.seek(8 + length + json.loads(f.read(length))[PARAMETER]["data_offsets"][0])
            bits = struct.unpack("<I", f.read(4))[0]
            f.seek(-4, os.SEEK_CUR)
            f.write(struct.pack("<I", change(bits)))


class Doctored(StoredRunTest):
    def found(self, folder=None, document=None, without=()):
        return differences(self.outcome, read_outcome(folder or self.run_folder, document or self.document), without)

    def measured(self, **changes):
        return {**self.document, "measured": {**self.document["measured"], **changes}}

    def test_the_same_run_is_equal(self):
        self.assertEqual(self.found(self.copied()), {})

    def test_a_bit_of_a_weight_is_rounding(self):
        folder = self.copied()
        self.change_weight(folder, lambda bits: bits ^ 1)
        found = self.found(folder)
        self.assertEqual(list(found), ["weights"])
        self.assertRegex(found["weights"], rf"^first {PARAMETER}, 1 of \d+ parameters; largest relative difference \d\.\de-(0[6-9]|[1-9]\d) in {PARAMETER}$")

    def test_another_weight_is_a_defect(self):
        folder = self.copied()
        self.change_weight(folder, lambda bits: struct.unpack("<I", struct.pack("<f", 1.0))[0])
        self.assertRegex(self.found(folder)["weights"], r"largest relative difference \d\.\de[+]\d\d in")

    def test_a_parameter_that_is_missing_is_named(self):
        weights = {name: tensor for name, tensor in self.outcome.weights.items() if name != PARAMETER}
        found = differences(self.outcome, dataclasses.replace(self.outcome, weights=weights))
        self.assertEqual(found, {"weights": f"other names or shapes: tensors ['{PARAMETER}']"})

    def test_a_printed_hash_that_does_not_follow_the_weights(self):
        self.assertIn("printed hash is 0, not", self.found(document={**self.document, "weights_hash": "0"})["weights"])

    def test_the_last_digit_of_a_metric(self):
        for key in ("loss", "grad_norm"):
            folder = self.copied(key)
            path = os.path.join(folder, "metrics.jsonl")
            with open(path) as f:
                lines = f.readlines()
            lines[1] = re.sub(rf'("{key}":[\d.e-]+)', r"\g<1>1", lines[1])
            with open(path, "w") as f:
                f.writelines(lines)
            found = self.found(folder)
            self.assertEqual(list(found), ["metrics"])
            self.assertRegex(found["metrics"], rf"^metrics.jsonl step 2 {key} is [\d.]+1, not [\d.]+; 1 of \d+ values$")

    def test_an_evaluation_that_is_missing(self):
        with_evaluation = dataclasses.replace(self.outcome, metrics={**self.outcome.metrics, "eval.jsonl step 3 loss": "4.5"})
        self.assertRegex(differences(with_evaluation, self.outcome)["metrics"], r"^eval.jsonl step 3 loss is absent, not 4.5; ")

    def test_a_call_more(self):
        traffic = {"tp": {"all_reduce": {"calls": 25, "payload_bytes": 4096}}}
        self.assertEqual(self.found(document=self.measured(traffic=traffic)),
                         {"counters": "tp all_reduce calls is 25, not 24; 1 of 2 values"})

    def test_counters_that_nobody_reports_are_not_equal(self):
        measured = {"memory_bytes": self.outcome.peak}
        document = {**self.document, "measured": measured}
        self.assertEqual(self.found(document=document), {"counters": "not reported by NEW; --without counters compares the rest"})
        self.assertEqual(self.found(document=document, without=("counters",)), {})

    def test_a_peak_beyond_the_tolerance(self):
        def with_peak(more):
            return self.measured(memory_bytes=[self.outcome.peak[0] + more])
        self.assertEqual(self.found(document=with_peak(PEAK_TOLERANCE_BYTES)), {})
        self.assertRegex(self.found(document=with_peak(PEAK_TOLERANCE_BYTES + 1))["peak"], r"^pp 0: \d+ bytes, 257 more than \d+$")
        less = with_peak(-1000)
        self.assertEqual(self.found(document=less), {})
        self.assertEqual(smaller_peak(self.outcome, read_outcome(self.run_folder, less)), 1000)


class Command(StoredRunTest):
    """The command on programs that train nothing: each leaves a stored run, the first so many times and then another one."""

    def program(self, name, *folders):
        with open(self.path("document.json"), "w") as f:
            json.dump(self.document, f)
        path = self.path(name)
        with open(path, "w") as f:
            f.write(f'#!/bin/sh\necho >> {path}.calls\nset -- {" ".join(folders)}\n'
                    f'n=$(wc -l < {path}.calls)\nwhile [ $n -gt 1 ] && [ $# -gt 1 ]; do shift; n=$((n - 1)); done\n'
                    f'cp -r "$1" run\ncat {self.path("document.json")}\n')
        os.chmod(path, 0o755)
        return path

    def compare(self, *words):
        return run(python(), compare_programs.__file__, *words, "--only", f"^{TRAINED.name}$")

    def changed(self):
        folder = self.copied("changed")
        self.change_weight(folder, lambda bits: bits ^ 1)
        return folder

    def test_equal_programs(self):
        same = self.program("same", self.run_folder)
        done = self.compare(same, same)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(f"| {TRAINED.name} | equal |", done.stdout)
        self.assertIn("1 configurations, 1 equal, 0 differ in", done.stdout)

    def test_a_program_that_differs(self):
        old, new = self.program("old", self.run_folder), self.program("new", self.changed())
        done = self.compare(old, new)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"| {TRAINED.name} | NEW differs in weights: first {PARAMETER}, 1 of", done.stdout)
        self.assertIn("0 equal, 1 differ", done.stdout)
        done = self.compare(old, new, "--json")
        self.assertEqual(done.returncode, 1, done.stderr)
        document = json.loads(done.stdout)
        self.assertEqual((document["equal"], document["differ"]), (0, 1))
        self.assertEqual([(d["run"], d["what"]) for d in document["configurations"][0]["differences"]], [("NEW", "weights")])

    def test_an_old_program_that_does_not_repeat_itself(self):
        done = self.compare(self.program("old", self.run_folder, self.changed()), self.program("new", self.run_folder), "--rounds", 2, "--json")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual([d["run"] for d in json.loads(done.stdout)["configurations"][0]["differences"]], ["OLD again"])

    def test_counters_that_neither_reports_are_told_once(self):
        del self.document["measured"]["traffic"]
        same = self.program("same", self.run_folder)
        done = self.compare(same, same)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"| {TRAINED.name} | NEW differs in counters: not reported by OLD and NEW; --without counters compares the rest |", done.stdout)
        done = self.compare(same, same, "--without", "counters")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("NOT compared: counters", done.stdout)

    def test_a_program_that_fails(self):
        done = self.compare(self.program("old", self.run_folder), shutil.which("false"))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("NEW differs in outcome: exit code 1", done.stdout)

    def test_wrong_use(self):
        for words, text in ((("absent", "absent"), "absent is not a program that can be run"), ((), "needs OLD and NEW")):
            done = self.compare(*words)
            self.assertEqual(done.returncode, 2)
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    unittest.main()
