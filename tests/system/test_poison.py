"""Steps that are not finite, through orthant train: train.bad_steps stop and skip, with faults put in by train.poison."""
import glob
import json
import math
import os
import unittest

from checkpoint_weights import read_tensors
from program import SOURCE, FolderTest, orthant

CONFIG = os.path.join(SOURCE, "configs", "llama_tiny.json")
SMALL = ("model.num_hidden_layers=2", "model.hidden_size=32", "model.intermediate_size=48", "model.vocab_size=64", "data.sequence_length=8",
         "data.samples=256", "train.global_batch_size=8", "train.steps=6", "train.eval_every=0", "checkpoint.keep_last=9",
         'parallel.split=[["embed","layers.0"],["layers.1","head","loss"]]')


class PoisonTest(FolderTest):
    def train(self, name, mesh, poison, *settings, code=0):
        words = ["--config", CONFIG, "--mesh", mesh, "--output_dir", self.path(name)]
        for setting in (*SMALL, *settings, *([f"train.poison={json.dumps(poison)}"] if poison else [])):
            words += ["--set", setting]
        finished = orthant("train", *words)
        self.assertEqual(finished.returncode, code, finished.stderr)
        return finished.stderr + finished.stdout

    def tensors(self, name, step):
        """Bytes of every tensor that is saved after that step, by file."""
        files = sorted(glob.glob(self.path(name, "checkpoints", f"step-{step}", "*.safetensors")))
        self.assertTrue(files, f"no checkpoint of step {step}")
        found = {os.path.basename(file): read_tensors(file) for file in files}
        for file, tensors in found.items():
            for tensor, numbers in tensors.items():
                self.assertTrue(all(map(math.isfinite, numbers)), (step, file, tensor))
        return found

    def losses(self, name):
        with open(self.path(name, "metrics.jsonl")) as f:
            return {line["step"]: line["loss"] for line in map(json.loads, f)}


class Stop(PoisonTest):
    def test_the_error_names_rank_unit_and_parameter(self):
        text = self.train("run", "dp=2", ["gradient:rank=1,unit=layers.1,step=3,value=nan,parameter=layers.1.norm2.weight"],
                          "checkpoint.save_every=1", code=4)
        self.assertIn("rank 1: step 3: loss ", text)
        self.assertIn("gradient norm nan; the update was left out; rank 1, unit layers.1: the gradient of layers.1.norm2.weight is not finite", text)
        self.assertIn("fix: lower optimizer.lr", text)
        self.tensors("run", 2)
        self.assertFalse(os.path.exists(self.path("run", "checkpoints", "step-3")))

    def test_the_last_step_of_a_run_is_explained_too(self):
        text = self.train("run", "tp=2", ["activation:rank=1,unit=layers.0,step=6,value=inf"], code=4)
        self.assertIn("step 6: loss ", text)
        self.assertIn("rank 1, unit layers.0: its output is not finite", text)
        self.assertFalse(glob.glob(self.path("run", "checkpoints", "*")))

    def test_a_damaged_parameter_stops_the_run_whatever_the_policy(self):
        text = self.train("run", "fsdp=2", ["parameter:rank=1,unit=layers.0,step=4,value=inf"], "train.bad_steps=skip", "checkpoint.save_every=2",
                          code=4)
        self.assertRegex(text, r"step 4: .* rank 1, unit layers\.0: parameter layers\.0\.\S+ is not finite")
        self.assertIn("fix: resume from a checkpoint: the parameter itself is damaged on that rank", text)
        self.assertEqual(sorted(os.listdir(self.path("run", "checkpoints"))), ["latest", "step-2"])
        self.tensors("run", 2)


class Skip(PoisonTest):
    def test_bad_steps_change_nothing_and_are_noted(self):
        faults = {1: ("activation:rank=1,unit=embed,value=inf", "rank 1, unit embed: its output is not finite"),
                  3: ("loss:rank=2,value=nan", "rank 2, unit loss: its loss is not finite"),
                  4: ("gradient:rank=3,unit=head,value=inf,parameter=embed.weight", "rank 3, unit head: the gradient of embed.weight is not finite")}
        text = self.train("run", "pp=2,fsdp=2", [f"{poison},step={step}" for step, (poison, _) in faults.items()], "train.bad_steps=skip",
                          "checkpoint.save_every=1", "parallel.zero=3", "parallel.microbatches=2")
        for step, (_, report) in faults.items():
            self.assertRegex(text, rf"step {step}: loss \S+, gradient norm \S+; the update was left out; {report}")
        self.assertEqual(text.count("the update was left out"), 3)
        for step in range(2, 7):
            same = self.tensors("run", step) == self.tensors("run", step - 1)
            self.assertEqual(same, step in faults, f"step {step}")
        self.assertTrue(all(math.isfinite(loss) for step, loss in self.losses("run").items() if step not in faults))


class Refusals(PoisonTest):
    def test_a_fault_that_has_no_place_is_refused(self):
        for poison, parts in (("nonsense", ("there is no ':'", "fix: write KIND:rank=R,unit=U,step=S,value=nan|inf")),
                              ("activation:rank=0,unit=layer.1,step=1,value=nan", ('no unit "layer.1"', 'did you mean "layers.1"?')),
                              ("activation:rank=0,unit=layers.1,step=1,value=nan", ("the rank does not run unit layers.1", "name a rank at pp 1")),
                              ("loss:rank=7,step=1,value=nan", ("the mesh pp=2 has 2 ranks", "use 0 to 1"))):
            text = self.train("run", "pp=2", [poison], code=2)
            for part in parts:
                self.assertIn(part, text)
            self.assertFalse(os.path.exists(self.path("run", "checkpoints")))


if __name__ == "__main__":
    unittest.main()
