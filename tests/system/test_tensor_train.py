"""orthant train over tp, alone and with fsdp and dp: equal first weights, checkpoints for any mesh, refusals; orthant mesh --model."""
import json
import math
import os
import signal
import subprocess
import unittest

from program import ORTHANT, SOURCE, FolderTest, children, clean_environment, is_alive, only_json, orthant, wait_until

LLAMA = os.path.join(SOURCE, "configs", "llama_tp_fsdp.json")
TRIMODAL = os.path.join(SOURCE, "configs", "trimodal_tp_dp.json")
SHORT = ("--set", "train.steps=6", "--set", "train.eval_every=3")


class TensorTest(FolderTest):
    def train(self, config, run, *words, code=0):
        finished = orthant("train", "--config", config, *SHORT, "--output_dir", run, "--json", *words, cwd=self.folder)
        self.assertEqual(finished.returncode, code, finished.stderr)
        return json.loads(finished.stdout) if code == 0 else finished.stderr

    def lines(self, run, name="metrics.jsonl"):
        with open(self.path(run, name)) as f:
            return [json.loads(line) for line in f]

    def losses(self, run):
        return {line["step"]: line["loss"] for line in self.lines(run)}

    def assert_close(self, found, wanted, tolerance, message):
        self.assertLessEqual(abs(found - wanted), tolerance * abs(wanted), message)


class Traffic(FolderTest):
    """What `train --json` says of calls and payload bytes."""

    def traffic(self, *words):
        result = only_json(self, orthant("train", "--json", "--steps", 2, "--output-dir", "run", *words, cwd=self.folder))
        return result["measured"]["traffic"]

    def test_one_rank_calls_nobody(self):
        self.assertEqual(self.traffic(), {})

    def test_is_that_of_all_ranks_and_steps(self):
        # A tower of two layers has four sums a layer and one of its table; 64 rows of 32 and 24 tokens, hidden size 64, float32.
        self.assertEqual(self.traffic("--mesh", "tp=2"),
                         {"tp": {"all_reduce": {"calls": 2 * 2 * 2 * 9, "payload_bytes": 2 * 2 * 9 * 64 * (32 + 24) * 64 * 4}}})

    def test_names_subgroups(self):
        words = ("model.kind=gpt2", "model.preset=gpt2-tiny", "data.kind=tokens", "data.sequence_length=8", "parallel.microbatches=2")
        found = self.traffic("--mesh", "pp=2", *(word for setting in words for word in ("--set", setting)))
        self.assertEqual(found["pp"]["send"], found["pp"]["receive"])
        self.assertEqual(found["pp"]["send"]["calls"], 2 * 2 * 2)  # microbatches forth and back, steps
        tied = {name: operations for name, operations in found.items() if name != "pp"}
        self.assertEqual([operations["all_reduce"]["calls"] for operations in tied.values()], [2 * 2])  # ranks, steps


class Training(TensorTest):
    def test_the_configurations_train_on_their_meshes(self):
        llama = self.train(LLAMA, "llama")
        self.assertEqual((llama["mesh"]["tp"], llama["mesh"]["fsdp"], llama["world_size"], llama["steps"]), (2, 2, 4, 6))
        losses = self.losses("llama")
        self.assertLess(losses[6], losses[1] - 0.5)
        trimodal = self.train(TRIMODAL, "trimodal")
        self.assertEqual((trimodal["mesh"]["tp"], trimodal["mesh"]["dp"], trimodal["world_size"], trimodal["steps"]), (2, 2, 4, 6))
        self.assertTrue(all(math.isfinite(loss) for loss in self.losses("trimodal").values()))

    def test_first_weights_are_the_same_bits_on_every_mesh(self):
        for name, config, *more in (("llama", LLAMA), ("copies", LLAMA, "--set", "model.num_key_value_heads=2"),
                                    ("uneven", LLAMA, "--set", "model.vocab_size=1021"), ("trimodal", TRIMODAL)):
            one = self.train(config, f"{name}-one", "--mesh", "dp=1", "--steps", "0", *more)
            for mesh in ("tp=2", "tp=4", "tp=2,fsdp=2", "tp=2,dp=2"):
                result = self.train(config, f"{name}-{mesh}", "--mesh", mesh, "--steps", "0", *more)
                self.assertEqual(result["weights_hash"], one["weights_hash"], (name, mesh))
            other = self.train(config, f"{name}-other", "--mesh", "tp=2", "--steps", "0", "--set", "seed=7", *more)
            self.assertNotEqual(other["weights_hash"], one["weights_hash"], name)

    def test_losses_and_evaluations_are_those_of_one_rank(self):
        for name, config in (("llama", LLAMA), ("trimodal", TRIMODAL)):
            one = self.train(config, f"{name}-one", "--mesh", "dp=1")
            for setting in ("false", "true"):
                run = f"{name}-{setting}"
                result = self.train(config, run, "--mesh", "tp=2", "--set", f"parallel.sequence_parallel={setting}",
                                    "--set", f"parallel.loss_parallel={setting}")
                evaluations, expected = self.lines(run, "eval.jsonl"), self.lines(f"{name}-one", "eval.jsonl")
                self.assertEqual([line["step"] for line in evaluations], [3, 6])
                for found, wanted in zip([*evaluations, result["eval"]], [*expected, one["eval"]], strict=True):
                    self.assertEqual(set(found), set(wanted))
                    for key in one["eval"]:
                        self.assert_close(found[key], wanted[key], 1e-4, (run, key))
                for step, loss in self.losses(f"{name}-one").items():
                    self.assert_close(self.losses(run)[step], loss, 1e-4, (run, step))

    def test_any_mesh_goes_on_from_a_checkpoint_of_tp_and_fsdp(self):
        self.train(LLAMA, "whole")
        saved = self.train(LLAMA, "stopped", "--steps", "3")
        checkpoint = self.path("stopped", "checkpoints", "step-3")
        self.assertEqual(only_json(self, orthant("checkpoint", "inspect", checkpoint, "--json"))["mesh"], "fsdp=2,tp=2")
        for mesh in ("dp=1", "tp=2", "dp=4", "tp=4"):
            loaded = self.train(LLAMA, f"loaded-{mesh}", "--mesh", mesh, "--resume", checkpoint, "--steps", "3")
            self.assertEqual(loaded["weights_hash"], saved["weights_hash"], mesh)
            self.train(LLAMA, f"resumed-{mesh}", "--mesh", mesh, "--resume", checkpoint)
            resumed = self.losses(f"resumed-{mesh}")
            self.assertEqual(sorted(resumed), [4, 5, 6])
            for step, loss in resumed.items():
                self.assert_close(loss, self.losses("whole")[step], 1e-3, (mesh, step))

    def test_settings_of_tp_have_no_effect_on_one_tp_rank(self):
        on, off = (self.train(LLAMA, f"run-{setting}", "--mesh", "dp=1", "--steps", "2", "--set", f"parallel.sequence_parallel={setting}",
                              "--set", f"parallel.loss_parallel={setting}", "--set", f"parallel.regather={setting}")
                   for setting in ("true", "false"))
        self.assertEqual(on["weights_hash"], off["weights_hash"])

    def test_a_signal_to_one_rank_saves_exits_75_and_another_mesh_resumes(self):
        endless = ("--set", "train.steps=1000000", "--set", "train.eval_every=0")
        job = subprocess.Popen([ORTHANT, "train", "--config", LLAMA, *endless, "--output_dir", "run", "--mesh", "tp=2"], cwd=self.folder,
                               env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        metrics = self.path("run", "metrics.jsonl")
        self.assertTrue(wait_until(lambda: os.path.exists(metrics) and os.path.getsize(metrics) > 0, 30))
        ranks = children(job.pid)
        os.kill(ranks[1], signal.SIGTERM)
        _, errors = job.communicate(timeout=30)
        self.assertEqual(job.returncode, 75, errors)
        self.assertFalse(any(is_alive(pid) for pid in ranks))
        step = self.lines("run")[-1]["step"]
        self.assertEqual(sorted(os.listdir(self.path("run", "checkpoints"))), ["latest", f"step-{step}"])
        for mesh in ("tp=2", "dp=2,tp=2"):
            step += 1
            resumed = self.train(LLAMA, "run", *endless, "--mesh", mesh, "--resume", "auto", "--steps", step)
            self.assertEqual(resumed["steps"], step)
        self.assertEqual([line["step"] for line in self.lines("run")], list(range(1, step + 1)))


class Refusals(TensorTest):
    def refused(self, *words, has, mesh="tp=2", config=LLAMA):
        """By a training, which leaves nothing behind, and by the table alike."""
        table = orthant("mesh", "--model", config, "--mesh", mesh, *words)
        self.assertEqual((table.returncode, table.stdout), (2, ""), table.stderr)
        for errors in (self.train(config, "run", "--mesh", mesh, *words, code=2), table.stderr):
            for text in has:
                self.assertIn(text, errors)
        self.assertEqual(os.listdir(self.folder), [])

    def plan(self, **styles):
        return ("--set", "parallel.plan=" + json.dumps({name.replace("_", "."): style for name, style in styles.items()}))

    def test_degrees_that_do_not_fit_are_refused_with_those_that_do(self):
        self.refused(mesh="tp=3", has=["layers.0.attention.wq.weight: its 8 heads cannot be shared by tp=3", "set tp to 1, 2 or 4"])
        self.refused(mesh="tp=16", has=["layers.0.attention.wo.weight: its 8 heads cannot be shared by tp=16", "set tp to 1, 2, 4 or 8"])
        self.refused(mesh="tp=3", config=TRIMODAL, has=["primary.layers.0.attention.query.weight: its 4 heads cannot be shared by tp=3", "set tp to 1, 2 or 4"])
        self.refused("--set", "model.vocab_size=2", mesh="tp=4", has=["embed.weight: its 2 entries cannot be shared by tp=4", "set tp to 1 or 2"])

    def test_plans_that_would_give_wrong_sums_are_refused_with_the_reason(self):
        self.refused(*self.plan(mlp_w1="replicate"), has=['"mlp.w1" cannot be replicate', "the sum would be tp times too large",
                                                          "replicate all of layers.0.mlp.w1.weight"])
        self.refused(*self.plan(mlp_w2="colwise"), has=['"mlp.w2" cannot be column', "use row (the default)"])
        self.refused(*self.plan(norm1="replicate"), has=['"norm1" cannot be replicate', "its gradient is a partial sum", "use sequence"])
        self.refused(*self.plan(mlp_w9="rowwise"), has=['"mlp.w9" matches no parameter of llama', 'did you mean "mlp.w'])
        self.refused(*self.plan(mlp_w1="colum"), has=['"colum"', 'did you mean "column"'])
        self.refused("--set", "parallel.plan=[]", has=["parallel.plan", '{"mlp": "replicate"}'])

    def test_a_plan_that_is_right_trains(self):
        one = self.train(LLAMA, "one", "--mesh", "dp=1", "--steps", "2")
        planned = self.train(LLAMA, "planned", "--mesh", "tp=2", "--steps", "2", *self.plan(mlp="replicate"))
        self.assert_close(planned["final_loss"], one["final_loss"], 1e-4, "loss")

    def test_options_of_the_table(self):
        for words, text in ((("--rank", "1"), "--rank without --model"), (("--set", "seed=1"), "--set without --model"),
                            (("--model", LLAMA, "--rank", "2"), "--rank 2: mesh tp=2 has 2 ranks"), (("--model", LLAMA, "--rank", "-1"), "--rank -1"),
                            (("--model", "nowhere.json"), "nowhere.json"), (("--model", LLAMA, "--set", "model.hiden_size=8"), "hiden_size")):
            finished = orthant("mesh", "--mesh", "tp=2", *words)
            self.assertEqual((finished.returncode, finished.stdout), (2, ""), finished.stderr)
            self.assertIn(text, finished.stderr)


class Table(unittest.TestCase):
    def test_the_table_follows_the_mesh_text(self):
        mesh = orthant("mesh", "--mesh", "tp=2,fsdp=2").stdout
        shown = orthant("mesh", "--mesh", "tp=2,fsdp=2", "--model", LLAMA, "--rank", "3", env=clean_environment(RANK=0, WORLD_SIZE=7))
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertTrue(shown.stdout.startswith(mesh))
        lines = [line.split() for line in shown.stdout[len(mesh):].splitlines()]
        self.assertEqual(" ".join(lines[1]), "Parameters of llama in float32 on rank 3, at fsdp=1,tp=1")
        for line in ("embed.weight [1024, 128] table rows [512, 128] 256 KiB", "layers.0-3.mlp.w2.weight x4 [128, 344] row [128, 172] 344 KiB",
                     "layers.0-3.norm1.weight x4 [128] whole, partial [128] 2 KiB", "hidden.0-4 x5 [8, 64, 128] tokens [256, 128]",
                     "logits [8, 64, 1024] vocabulary [8, 64, 512]", "head 65.7K 256.5 KiB 128.2 KiB",
                     "The model has 988.3K parameters, 3.8 MiB. This rank's part has 494.7K, 1.9 MiB; a shard of its flat buffers has 966.2 KiB."):
            self.assertIn(line.split(), lines)

    def test_json_has_every_parameter(self):
        mesh = only_json(self, orthant("mesh", "--mesh", "tp=8", "--json"))
        document = only_json(self, orthant("mesh", "--mesh", "tp=8", "--model", LLAMA, "--json", "--set", "precision.params=float64", "--set",
                                           "precision.compute=float64"))
        self.assertEqual({key: document[key] for key in mesh}, mesh)
        self.assertEqual(set(document) - set(mesh), {"rank", "parameters", "values"})
        rows = {row["name"]: row for row in document["parameters"]}
        self.assertEqual(len(rows), 1 + 4 * 9 + 2)
        self.assertEqual(rows["layers.2.attention.wv.weight"], {"name": "layers.2.attention.wv.weight", "shape": [64, 128],
                         "placement": "column, 2 copies", "local_shape": [16, 128], "bytes": 8 * 16 * 128})
        self.assertEqual(rows["head.norm.weight"]["placement"], "whole, partial")
        self.assertEqual([(row["name"], row["placement"]) for row in document["values"]],
                         [(f"hidden.{i}", "tokens") for i in range(5)] + [("logits", "vocabulary")])
        held = sum(row["bytes"] for rank in range(8) for row in only_json(self, orthant(
            "mesh", "--mesh", "tp=8", "--model", LLAMA, "--json", "--rank", rank))["parameters"]
                   if row["placement"] in ("column", "row", "table rows"))
        whole = sum(4 * math.prod(row["shape"]) for row in rows.values() if row["placement"] in ("column", "row", "table rows"))
        self.assertEqual(held, whole)

    def test_a_dry_run_says_what_travels_over_tp(self):
        text = orthant("train", "--config", LLAMA, "--dry-run").stdout
        self.assertIn("Over tp it sums 12 KiB in 3 all-reduces, gathers 4.5 MiB in 18 all-gathers, scatters sums of 4.5 MiB in 18 "
                      "reduce-scatters, and sums partial gradients of 4.5 KiB in 5 all-reduces.\nA rank keeps ", text)
        copies = orthant("train", "--config", LLAMA, "--dry-run", "--mesh", "tp=8").stdout
        self.assertIn("sends a few numbers for loss and norm.\nOver tp it ", copies)
        self.assertIn("and sums gradients of copied heads of 64 KiB in 4 all-reduces.\n", copies)
        self.assertIn("Over tp it sums 2 MiB in 18 all-reduces.\n", orthant("train", "--config", TRIMODAL, "--dry-run").stdout)
        self.assertNotIn("Over tp", orthant("train", "--config", LLAMA, "--dry-run", "--mesh", "fsdp=2").stdout)


if __name__ == "__main__":
    unittest.main()
