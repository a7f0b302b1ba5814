"""train.verify_replicas: ranks that must hold equal bits are compared, and the odd one out is named."""
import json
import os
import unittest

from program import SOURCE, FolderTest, orthant

CONFIG = os.path.join(SOURCE, "configs", "llama_tiny.json")
SMALL = ("model.num_hidden_layers=2", "model.hidden_size=32", "model.intermediate_size=48", "model.vocab_size=64", "data.sequence_length=8",
         "data.samples=256", "train.global_batch_size=12", "train.steps=6", "train.eval_every=0", "checkpoint.keep_last=9")
WEIGHT = "parameter=layers.1.mlp.w1.weight"


class Replicas(FolderTest):
    def train(self, name, mesh, *settings, every=1, poison=(), code=0, more=()):
        words = ["--config", CONFIG, "--mesh", mesh, "--output-dir", self.path(name), "--json", *more]
        for setting in (*SMALL, *settings, f"train.verify_replicas={every}", *([f"train.poison={json.dumps(poison)}"] if poison else [])):
            words += ["--set", setting]
        finished = orthant("train", *words)
        self.assertEqual(finished.returncode, code, finished.stderr)
        return json.loads(finished.stdout)["weights_hash"] if code == 0 else finished.stderr

    def test_nothing_is_found_where_nothing_is_broken(self):
        """Replicas of dp, shards with whole copies, cp, norms over tp, tied parameters over stages, halves of the optimizer's copy."""
        for number, (mesh, *settings) in enumerate((
                ("dp=2,tp=2", "parallel.sequence_parallel=true"), ("fsdp=2,dp=2", "parallel.zero=1", "precision.compute=bfloat16"),
                ("fsdp=2,cp=2", "parallel.zero=3", "parallel.shard_over_context=false"), ("pp=2,dp=2", "parallel.microbatches=2"),
                ("dp=2", "precision.compute=bfloat16", "precision.master=bf16_remainder"))):
            with self.subTest(mesh):
                on = self.train(f"on-{number}", mesh, *settings, "train.steps=2")
                self.assertEqual(on, self.train(f"off-{number}", mesh, *settings, "train.steps=2", every=0))

    def test_a_parameter_that_differs_ends_the_run_and_names_the_rank(self):
        said = self.train("run", "dp=3", every=2, poison=[f"parameter:rank=1,unit=layers.1,step=3,value=flip,{WEIGHT}"], code=4)
        self.assertRegex(said, r"rank 1: step 4: unit layers\.1: the parameter layers\.1\.mlp\.w1\.weight of rank 1 \(host \S+\) is not that of ranks 0 and 2")
        self.assertIn("fix: look at the memory, processor and cards of that host, and leave it out; --resume auto goes on from", said)

    def test_the_parameter_is_blamed_and_not_the_copies_that_were_gathered_from_it(self):
        said = self.train("run", "fsdp=2,dp=3", "parallel.zero=2", every=2, poison=["parameter:rank=1,unit=embed,step=3,value=flip"], code=4)
        self.assertRegex(said, r"rank 1: step 4: unit embed: the parameter embed\.weight of rank 1 \(host \S+\) is not that of ranks 3 and 5 \(\d+ more differ\)")

    def test_norms_over_tp_count_and_two_replicas_cannot_tell_which_is_right(self):
        said = self.train("run", "tp=2", poison=["parameter:rank=1,unit=layers.0,step=2,value=flip,parameter=layers.0.norm1.weight"], code=4)
        self.assertRegex(said, r"step 2: unit layers\.0: the parameter layers\.0\.norm1\.weight differs between ranks 0 \(host \S+\) and 1 \(host \S+\), and no")

    def test_a_gradient_that_is_right_the_second_time_is_a_transient_fault_and_training_goes_on(self):
        fault = f"gradient_sum:rank=1,unit=layers.1,step=3,value=flip,{WEIGHT}"
        words = ["--set", f"train.poison={json.dumps([fault])}"]
        expected = self.train("good", "dp=2", every=0)
        self.assertEqual(self.train("mended", "dp=2", more=words), expected)
        self.assertNotEqual(self.train("missed", "dp=2", every=0, more=words), expected)

    def test_a_transient_fault_is_told_and_one_that_comes_again_ends_the_run(self):
        fault = f"gradient_sum:rank=1,unit=layers.1,step=3,value=flip,{WEIGHT}"
        words = ["train", "--config", CONFIG, "--mesh", "dp=2", "--output-dir", self.path("told")]
        for setting in (*SMALL, "train.verify_replicas=3", f"train.poison={json.dumps([fault])}"):
            words += ["--set", setting]
        told = orthant(*words)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertRegex(told.stderr, r"step 3: unit layers\.1: the summed gradient of layers\.1\.mlp\.w1\.weight differs between ranks 0 .*; done again, the step left "
                                      r"all equal, with other gradients on rank 1: a transient fault; training goes on")
        said = self.train("ended", "dp=3", poison=[fault, fault], code=4)
        self.assertRegex(said, r"rank 1: step 3: unit layers\.1: the summed gradient of \S+ of rank 1 \(host \S+\) is not that of ranks 0 and 2; "
                               r"done again, the step differed again: a persistent fault")

    def test_no_checkpoint_holds_what_differs(self):
        poison = ["parameter:rank=1,unit=layers.1,step=3,value=flip"]
        said = self.train("run", "dp=3", "checkpoint.save_every=2", every=100, poison=poison, code=4)
        self.assertRegex(said, r"rank 1: after step 4: unit layers\.1: ")
        self.assertEqual(sorted(os.listdir(self.path("run", "checkpoints"))), ["latest", "step-2"])
        again = self.train("run", "dp=3", "checkpoint.save_every=2", every=100, more=("--resume", "auto"))
        self.assertEqual(again, self.train("good", "dp=3", every=0))


if __name__ == "__main__":
    unittest.main()
