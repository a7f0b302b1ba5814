"""Any mesh takes over any mesh's checkpoint: chosen pairs over every axis, the example of docs/checkpoints.md, and the checkpoint commands.

reshard_campaign.py draws such pairs at random.
"""
import json
import os
import re
import tempfile
import unittest

from program import SOURCE, FolderTest, only_json, orthant
from reshard_trial import DEFAULT, Pair, Side, Trial, Wrong


def layers(count):
    return [f"model.num_hidden_layers={count}"]


def towers(primary, secondary):
    return [f"model.primary.num_hidden_layers={primary}", f"model.secondary.num_hidden_layers={secondary}"]


def side(mesh, *settings):
    degrees = {axis: int(degree) for axis, degree in (word.split("=") for word in mesh.split(",")) if degree != "1"}
    return Side(degrees, [setting if re.match(r"\w+\.\w", setting) else f"parallel.{setting}" for setting in settings])


ASYNCHRONOUS = "checkpoint.asynchronous=true"
STAGES = 'parallel.split=[["embed"],["layers.0"],["layers.1","layers.2","head","loss"]]'
SGD = ["optimizer.kind=sgd", "optimizer.lr=1"]


def batch(rows):
    return [f"train.global_batch_size={rows}"]


class Pairs(FolderTest):
    """World sizes 1, 2, 3, 4, 6 and 8; every axis comes, goes and changes its degree."""

    def trial(self, *words, equal_bits, **more):
        trial = Trial(Pair(*words, **more), self.folder)
        try:
            trial.run()
        except Wrong as error:
            self.fail("\n".join([str(error), *trial.commands]))
        self.assertEqual(trial.required, equal_bits)

    def test_every_axis_changes_and_odd_sizes_do_not_divide(self):
        a = side("pp=2,fsdp=2,tp=2", "schedule=interleaved", "microbatches=3", "sequence_parallel=true", "loss_parallel=true", ASYNCHRONOUS)
        b = side("dp=3,fsdp=2", "zero=2", "microbatches=2", "recompute=full")
        self.trial("llama", layers(3) + batch(12), a, b, 7, 3, 31, equal_bits=False)

    def test_from_one_rank_to_stages_by_name_in_the_same_folder(self):
        a, b = side("dp=1", "microbatches=4"), side("pp=3", "microbatches=4", "schedule=zbh1", STAGES, ASYNCHRONOUS)
        self.trial("llama tied", layers(3) + batch(8), a, b, 6, 4, 24, in_place=True, equal_bits=True)

    def test_from_three_tensor_ranks_to_pipelines_of_replicas(self):
        a = side("tp=3", "sequence_parallel=true", "loss_parallel=true", ASYNCHRONOUS)
        b = side("pp=2,dp=2", "schedule=zbv", "microbatches=3")
        self.trial("gpt2", layers(4) + batch(12), a, b, 6, 2, 30, equal_bits=False)

    def test_more_stages_beside_shards_keep_every_bit(self):
        a = side("pp=2,fsdp=2", "microbatches=4", "schedule=zbv", "zero=1")
        b = side("pp=4,fsdp=2", "microbatches=4", "zero=1", "recompute=selective", ASYNCHRONOUS)
        self.trial("trimodal", towers(3, 2) + batch(8), a, b, 6, 3, 19, dtype="float32", equal_bits=True)

    def test_from_replicas_to_tensor_ranks_with_momentum(self):
        a, b = side("dp=2", "zero=0", "bucket_mb=0.01"), side("tp=4", "microbatches=2", ASYNCHRONOUS)
        self.trial("bert", layers(2) + batch(8) + SGD + ["optimizer.momentum=0.9"], a, b, 6, 5, 17, equal_bits=False)

    def test_experts_over_ranks_to_shards_of_some_and_stages(self):
        a = side("dp=2,tp=2,ep=4", "sequence_parallel=true", "microbatches=2", ASYNCHRONOUS)
        b = side("pp=2,fsdp=4,ep=2", "zero=3", "schedule=zbv", "microbatches=3")
        self.trial("qwen2_moe", layers(4) + batch(12) + ["model.mlp_only_layers=[1]"], a, b, 6, 3, 31, equal_bits=False)

    def test_a_loss_scale_goes_along(self):
        a, b = side("fsdp=2", ASYNCHRONOUS), side("tp=2,dp=3")
        self.trial(DEFAULT, batch(12) + SGD, a, b, 6, 3, 36, dtype="float16", in_place=True, equal_bits=False)


def edit(path, change):
    with open(path, "rb") as f:
        data = f.read()
    with open(path, "wb") as f:
        f.write(change(data))


class TamperedTrial(Trial):
    """A trial in which a file of one run is changed as soon as it has been written."""

    def __init__(self, pair, folder, run, path, change):
        super().__init__(pair, folder)
        self.tampered = run, path, change

    def train(self, name, *words):
        result = super().train(name, *words)
        run, path, change = self.tampered
        if name == run:
            edit(self.path(run, path), change)
        return result


class Notices(FolderTest):
    """What a trial would say if a change of mesh lost something."""

    def test_changes_of_every_kind(self):
        def last_bit(data):
            return data[:-8] + bytes([data[-8] ^ 1]) + data[-7:]

        def larger_loss(data):
            return re.sub(rb'"loss":([\d.]+)', lambda loss: b'"loss":%.16g' % (float(loss[1]) * (1 + 1e-9)), data)

        for run, path, change, text in (
                ("again", "checkpoints/step-2/rank-0.safetensors", last_bit, r"B changed \S+ by loading and saving it"),
                ("again", "checkpoints/step-2/manifest.json", lambda data: data.replace(b'"updates": 2', b'"updates": 1'),
                 "updates was saved as 2 and is 1"),
                ("b", "checkpoints/step-4/rank-0.safetensors", last_bit, r"other bits than A's: .* none, first tensor \S+"),
                ("b", "metrics.jsonl", larger_loss, r"loss of step 3 against a: relative error 1.0e-09"),
                ("b", "log/samples-0.jsonl", lambda data: re.sub(rb"\[(\d+),\d+", rb"[\1,\1", data), "b: samples of step 3 are"),
                ("b", "log/samples-0.jsonl", lambda data: data[data.index(b"\n") + 1:], "b: samples of step 3 are None")):
            with self.subTest(path=path, text=text):
                place = tempfile.mkdtemp(dir=self.folder)
                pair = Pair("llama", layers(1) + batch(8), side("dp=1"), side("dp=1"), 4, 2, 20)
                with self.assertRaisesRegex(Wrong, text):
                    TamperedTrial(pair, place, run, path, change).run()


class Commands(FolderTest):
    def example(self):
        """The reader of docs/checkpoints.md."""
        with open(os.path.join(SOURCE, "docs", "checkpoints.md")) as f:
            (block,) = re.findall(r"```python\n(.*?)```", f.read(), re.S)
        return block

    def train(self, run, mesh, *words):
        settings = ("model.num_hidden_layers=2", "model.hidden_size=32", "model.intermediate_size=50", "model.vocab_size=67",
                    "data.sequence_length=16", "data.samples=40", "train.global_batch_size=8", "train.steps=3", "train.eval_every=0",
                    "lr_schedule.warmup_steps=1")
        config = os.path.join(SOURCE, "configs", "llama_tiny.json")
        sets = [word for setting in settings for word in ("--set", setting)]
        return only_json(self, orthant("train", "--config", config, *sets, "--mesh", mesh, "--output_dir", run, *words, "--json", cwd=self.folder))

    def test_ten_lines_and_four_commands_read_what_eight_ranks_wrote(self):
        from safetensors.numpy import load_file
        self.train("many", "pp=2,fsdp=2,tp=2")
        many, one = self.path("many", "checkpoints", "step-3"), self.path("one", "checkpoints", "step-3")
        loaded = self.train("one", "dp=1", "--resume", many)

        self.assertLessEqual(len([line for line in self.example().splitlines() if line.strip()]), 10)
        names = {}
        exec(self.example(), names)
        wanted = load_file(os.path.join(one, "rank-0.safetensors"))
        with open(os.path.join(many, "manifest.json")) as f:
            tensors = json.load(f)["tensors"]
        self.assertEqual(set(tensors), set(wanted))
        self.assertTrue(any("range" in piece for tensor in tensors.values() for piece in tensor["pieces"]))
        for name, tensor in wanted.items():
            found = names["read"](many, name)
            self.assertEqual((found.shape, found.dtype, found.tobytes()), (tensor.shape, tensor.dtype, tensor.tobytes()), name)

        facts = only_json(self, orthant("checkpoint", "inspect", many, "--json"))
        self.assertEqual((facts["step"], facts["mesh"], facts["parameters"]), (3, "pp=2,fsdp=2,tp=2", loaded["parameters"]))
        self.assertTrue(only_json(self, orthant("checkpoint", "verify", many, "--json"))["valid"])
        for folder, out in ((many, "many-exported"), (one, "one-exported")):
            only_json(self, orthant("checkpoint", "export", folder, self.path(out), "--format", "huggingface", "--json"))
        self.assertEqual(*({name: tensor.tobytes() for name, tensor in load_file(self.path(out, "model.safetensors")).items()}
                           for out in ("many-exported", "one-exported")))
        only_json(self, orthant("checkpoint", "import", self.path("many-exported"), self.path("imported"), "--json"))
        again = self.train("from-imported", "fsdp=2", "--resume", self.path("imported"), "--steps", "0")
        self.assertEqual(again["weights_hash"], loaded["weights_hash"])


if __name__ == "__main__":
    unittest.main()
