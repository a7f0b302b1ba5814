"""orthant train --dry-run --programs: the operations of units as text and as JSON, held to what ranks then exchange; recompute by the
names of operations: equal bits, fewer kept bytes, refusals."""
import json
import os
import unittest

from pipeline_parity import CONFIGS
from program import SOURCE, FolderTest, only_json, orthant

LLAMA = os.path.join(SOURCE, "configs", "llama_tiny.json")
SEQUENCE = "parallel.sequence_parallel=true"
MICROBATCHES = 2
CALLS = {"sum": "all_reduce", "gather": "all_gather", "scatter": "reduce_scatter"}


def settings(*given):
    return [word for setting in given for word in ("--set", setting)]


class ProgramsTest(FolderTest):
    def dry_run(self, *words):
        finished = orthant("train", "--config", LLAMA, "--dry-run", "--programs", *words, cwd=self.folder)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        return finished.stdout

    def document(self, *words):
        return json.loads(self.dry_run("--json", *words))["programs"]

    def refusal(self, *words):
        finished = orthant("train", "--config", LLAMA, *words, cwd=self.folder)
        self.assertEqual((finished.returncode, finished.stdout), (2, ""), finished.stderr)
        return finished.stderr


class Printed(ProgramsTest):
    def test_a_section_for_every_kind_of_unit(self):
        text = self.dry_run("--mesh", "tp=2", *settings(SEQUENCE))
        heads = [line for line in text.splitlines() if line.endswith(" of 64 tokens")]
        self.assertEqual(heads, ["embed (llama.embed), 16 rows of 64 tokens", "layers.0-3 (llama.layer), 16 rows of 64 tokens",
                                 "head (llama.head), 16 rows of 64 tokens", "loss (cross_entropy), 16 rows of 64 tokens"])
        self.assertIn("mesh tp=2: 2 ranks", text)
        for line in ("in hidden [tokens/tp, 64]", "forward: 2 gathers 512 KiB, 2 scatters 512 KiB",
                     "  start gather tp: normed -> normed.all"):
            self.assertIn("\n" + line, text)
        self.assertNotIn("backward of inputs", text)

    def test_a_schedule_that_splits_backward_shows_both_halves(self):
        text = self.dry_run("--mesh", "pp=2", *settings("parallel.schedule=zbh1", "parallel.microbatches=4"))
        self.assertIn("\nbackward of inputs\n", text)
        self.assertIn("\nbackward of weights\n", text)
        self.assertIn("\ndefer ", text)

    def test_the_document_has_every_unit_once(self):
        found = self.document()
        self.assertEqual([unit for one in found for unit in one["units"]],
                         ["embed", "layers.0", "layers.1", "layers.2", "layers.3", "head", "loss"])
        layer = found[1]
        size = {value["name"]: value["bytes"] for value in layer["values"] if value["number"] in ("compute", "statistic")}
        self.assertEqual(layer["kept_bytes"], sum(size.get(name, 0) for name in layer["kept"]))
        self.assertEqual(layer["inputs"], ["hidden"])
        self.assertEqual(layer["forward"]["operations"][0]["name"], "rms_norm")

    def test_without_a_dry_run_it_is_refused(self):
        self.assertIn("--programs without --dry-run, which prints them", self.refusal("--programs"))
        self.assertIn("add --programs to --dry-run", self.refusal("--dry-run", "--json"))

    def test_help_names_it(self):
        self.assertIn("--programs", orthant("train", "--help", cwd=self.folder).stdout)


class Exchanged(ProgramsTest):
    """Ranks exchange what is printed: calls and payload bytes of a step over tp."""

    def test_ranks_exchange_what_programs_say(self):
        for number, given in enumerate(((), ("parallel.loss_parallel=true",), (SEQUENCE,), (SEQUENCE, "parallel.regather=true"),
                      ("parallel.recompute=full",), (SEQUENCE, "parallel.recompute=full"),
                      (SEQUENCE, "parallel.regather=true", "parallel.recompute=full"),
                      (SEQUENCE, 'parallel.recompute=["rms_norm", "product"]'), ("train.join_head_and_loss=on",))):
            with self.subTest(given):
                words = ("--mesh", "tp=2", *settings(f"parallel.microbatches={MICROBATCHES}", "data.eval_fraction=0", *given))
                said = {call: [0, 0] for call in CALLS.values()}
                for one in self.document(*words):
                    for part in ("forward", "backward"):
                        for kind, entry in one[part]["exchanged"].items():
                            said[CALLS[kind]][0] += entry["calls"] * len(one["units"]) * MICROBATCHES
                            said[CALLS[kind]][1] += entry["bytes"] * len(one["units"]) * MICROBATCHES
                found = only_json(self, orthant("train", "--config", LLAMA, "--json", "--steps", 1, "--output-dir", f"run{number}",
                                                *words, cwd=self.folder))["measured"]["traffic"]["tp"]
                ranks = 2
                for call, (calls, size) in said.items():
                    counted = found.get(call, {"calls": 0, "payload_bytes": 0})
                    if call == "all_reduce" and SEQUENCE in given:
                        # Besides: gradients of norms, two of 64 numbers in each layer and one in the head; one call a unit.
                        calls, size = calls + 5, size + 9 * 64 * 4
                    self.assertEqual((counted["calls"], counted["payload_bytes"]), (ranks * calls, ranks * size), call)


class Recompute(ProgramsTest):
    def kept(self, recompute):
        return self.document(*settings(f"parallel.recompute={recompute}"))[1]["kept_bytes"]

    def test_named_operations_keep_less(self):
        token = 16 * 64 * 4  # bytes of a channel of all tokens
        self.assertEqual(self.kept("none") - self.kept('["rms_norm"]'), token * (64 + 64 + 1 + 1))
        self.assertEqual(self.kept('["attention"]'), self.kept("selective"))
        self.assertEqual(self.kept("none") - self.kept('["rms_norm", "product"]'), token * (64 + 64 + 1 + 1 + 2 * 172))
        self.assertEqual(self.kept('["swiglu"]'), self.kept("none"))
        self.assertEqual(self.kept("[]"), self.kept("none"))

    def test_the_table_of_a_dry_run_says_so(self):
        self.assertIn("recompute rms_norm, attention,", self.dry_run(*settings('parallel.recompute=["rms_norm", "attention"]')))

    def test_bits_are_those_of_none(self):
        lists = ('["rms_norm", "layer_norm"]', '["attention", "layer_norm", "rms_norm", "swiglu"]',
                 '["product", "bias", "add", "dropout", "rms_norm", "layer_norm"]')
        for model in ("llama tied", "gpt2", "bert", "encoder_lm"):
            path = self.path(f"{model}.json")
            with open(path, "w") as out:
                json.dump({**CONFIGS[model], "train": {"global_batch_size": 8, "steps": 2}}, out)
            for mesh in ((), ("--mesh", "tp=2", "--set", SEQUENCE), ("--mesh", "pp=2", "--set", "parallel.schedule=zbh1")):
                hashes = {}
                for number, recompute in enumerate(("none", *lists)):
                    run = f"{model} {mesh[1] if mesh else 'one'} {number}"
                    finished = orthant("train", "--config", path, "--steps", 2, "--output-dir", run, "--json", *mesh,
                                       *settings("parallel.microbatches=2", "data.samples=16", "model.num_hidden_layers=2",
                                                 f"parallel.recompute={recompute}"), cwd=self.folder)
                    self.assertEqual(finished.returncode, 0, finished.stderr)
                    hashes[recompute] = json.loads(finished.stdout)["weights_hash"]
                self.assertEqual(len(set(hashes.values())), 1, (model, mesh, hashes))

    def test_unknown_names_are_refused(self):
        # Rotation alone would round otherwise than the kernel that rotates and attends.
        self.assertIn('no operation of a layer is named "rotary"', self.refusal("--dry-run", *settings('parallel.recompute=["rotary"]')))
        text = self.refusal("--dry-run", *settings('parallel.recompute=["rmsnorm"]'))
        self.assertIn('parallel.recompute: no operation of a layer is named "rmsnorm"', text)
        self.assertIn('did you mean "rms_norm"?', text)

    def test_times_of_a_list_are_not_predicted(self):
        text = self.refusal("--dry-run", "--hardware", "cpu", *settings('parallel.recompute=["rms_norm"]'))
        self.assertIn("--hardware beside a list as parallel.recompute: the planner prices its memory and not its time", text)


if __name__ == "__main__":
    unittest.main()
