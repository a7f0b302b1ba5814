"""Ranks that use a GPU: started by fork and exec, talking over Gloo when they share it and over NCCL when they do not."""
import os
import tempfile
import unittest

from program import SOURCE, only_json, orthant

LLAMA = ("--config", os.path.join(SOURCE, "configs", "llama_tiny.json"))
TRIMODAL = ("--set", "model.primary.hidden_dropout_prob=0.1", "--set", "model.secondary.attention_probs_dropout_prob=0.1")


class Cuda(unittest.TestCase):
    def test_two_ranks_share_a_gpu_over_gloo(self):
        finished = orthant("doctor", "--mesh", "dp=2", "--device", "cuda", timeout=120)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertIn("All groups agree.", finished.stdout)

    def test_every_operation_is_timed_on_cuda_tensors(self):
        for mesh in ("dp=2", "dp=1"):
            finished = orthant("bench", "comm", "--mesh", mesh, "--device", "cuda", "--max-bytes", "1MiB", "--rounds", 2, "--json", timeout=120)
            self.assertTrue(only_json(self, finished)["rows"])


class Calibration(unittest.TestCase):
    def test_a_card_is_measured_into_a_file_that_prices_its_steps(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "card.json")
            card = only_json(self, orthant("plan", "--calibrate", path, "--device", "cuda", "--json", timeout=200))
            self.assertIs(card["on_host"], False)
            self.assertLess(card["products"]["shares"][0], 0.5)
            for figure, low, high in (("peak_flops", 1e13, 5e15), ("attention_share", 0.1, 1), ("memory_bandwidth", 2e11, 2e13),
                                      ("memory_efficiency", 0.5, 1), ("kernel_seconds", 5e-7, 5e-5), ("update_rate", 1e11, 2e13),
                                      ("dropped_attention_share", 0.02, 1), ("reserve_bytes", 1e8, 4e9), ("reserve_share", 0.01, 0.1)):
                self.assertTrue(low < card[figure] <= high, f"{figure} is {card[figure]}")
            self.assertEqual(card["draw_rate"], 0)  # kernels draw where they drop
            priced = only_json(self, orthant("estimate", "--model", "gpt2", "--gpu", path, "--mesh", "dp=1", "--micro-batch", 4, "--global-batch", 4,
                                             "--seq", 512, "--json"))
            self.assertIs(priced["fits"], True)
            half = ("--set", "precision.compute=bfloat16", "--set", "train.steps=12", "--output-dir", os.path.join(folder, "run"))
            told = only_json(self, orthant("train", *LLAMA, *half, "--device", "cuda", "--hardware", path, "--json", timeout=200))
            self.assertGreater(told["predicted"]["step_seconds"], 0)

    def test_a_card_is_known_by_its_products_in_16_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            finished = orthant("plan", "--calibrate", os.path.join(folder, "card.json"), "--device", "cuda", "--compute", "float32")
            self.assertEqual(finished.returncode, 2, finished.stderr)
            self.assertIn("bfloat16", finished.stderr)


class Training(unittest.TestCase):
    def parity(self, *words):
        result = only_json(self, orthant("parity", *words, "--device", "cuda", "--json", timeout=120))
        self.assertTrue(result["pass"], result)
        return result

    def test_a_gpu_computes_the_numbers_of_the_cpu(self):
        for model in (LLAMA, TRIMODAL):
            self.parity(*model, "--against-device", "cpu")
            self.parity(*model, "--against-device", "cpu", "--dtype", "float32")
            self.parity(*model, "--dtype", "bfloat16")

    def test_tf32_rounds_products_of_float32(self):
        for other in (("--against-device", "cpu"), ()):
            self.assertFalse(self.parity(*LLAMA, "--dtype", "float32", "--vary", "precision.tf32=true", *other)["bitwise"])

    def test_measured_plans_compute_the_same_numbers(self):
        for model in (LLAMA, TRIMODAL):
            measured = (*model, "--vary", "train.product_plans=measured")
            self.parity(*measured, "--dtype", "bfloat16")
            self.parity(*measured, "--dtype", "float32", "--against-device", "cpu")
            self.parity(*model, "--dtype", "bfloat16", "--set", "train.product_plans=measured", "--resume-at", "2")
            self.parity(*measured, "--dtype", "bfloat16", "--mesh", "tp=2", "--backend", "gloo", "--set", "train.global_batch_size=24")

    def test_a_continued_run_keeps_its_plans(self):
        with tempfile.TemporaryDirectory() as folder:
            words = (*LLAMA, "--device", "cuda", "--set", "precision.compute=bfloat16", "--set", "train.product_plans=measured",
                     "--set", "train.deterministic=true", "--set", "train.steps=6", "--json")
            first = only_json(self, orthant("train", *words, "--output-dir", os.path.join(folder, "run"), "--steps", 3, timeout=120))
            self.assertEqual(first["steps"], 3)
            plans = os.path.join(folder, "run", "product_plans.json")
            with open(plans, "rb") as file:
                kept = file.read()
            resume = ("--output-dir", os.path.join(folder, "run"), "--resume", "auto")
            os.rename(plans, plans + ".aside")
            refused = orthant("train", *words, *resume, timeout=120)
            self.assertEqual(refused.returncode, 2, refused.stderr)
            self.assertIn("product_plans.json: is missing", refused.stderr)
            os.rename(plans + ".aside", plans)
            last = only_json(self, orthant("train", *words, *resume, timeout=120))
            self.assertEqual(last["steps"], 6)
            with open(plans, "rb") as file:
                self.assertEqual(file.read(), kept)
            whole = os.path.join(folder, "whole")
            os.mkdir(whole)
            with open(os.path.join(whole, "product_plans.json"), "wb") as file:
                file.write(kept)
            unbroken = only_json(self, orthant("train", *words, "--output-dir", whole, timeout=120))
            self.assertEqual(unbroken["weights_hash"], last["weights_hash"])

    def test_other_ways_to_train_compute_the_same_numbers(self):
        for model in (LLAMA, TRIMODAL):
            for variation in ("parallel.recompute=selective", "parallel.recompute=full", "parallel.split=4"):
                self.parity(*model, "--set", "parallel.microbatches=4", "--vary", variation)
            self.parity(*model, "--vary", "parallel.microbatches=4")
            self.parity(*model, "--resume-at", "2")

    def test_data_parallel_ranks_share_a_gpu_over_gloo(self):
        for model in (LLAMA, TRIMODAL):
            words = (*model, "--set", "train.global_batch_size=24", "--backend", "gloo")
            self.parity(*words, "--mesh", "dp=2")
            for zero in (1, 2, 3):
                self.parity(*words, "--mesh", "fsdp=2", "--vary", f"parallel.zero={zero}", "--set", "parallel.microbatches=2")
            self.parity(*words, "--mesh", "dp=2,fsdp=2", "--vary", "parallel.accumulate=sharded", "--set", "parallel.microbatches=2")
            self.parity(*words, "--mesh", "fsdp=2", "--vary", "parallel.zero=1", "--resume-at", "2")
            for offload in ("optimizer", "params"):
                self.parity(*words, "--mesh", "fsdp=2", "--vary", f"parallel.offload={offload}")
            self.parity(*words, "--mesh", "fsdp=2", "--dtype", "bfloat16")
            self.parity(*words, "--mesh", "dp=2", "--against-device", "cpu")

    def test_tensor_parallel_ranks_share_a_gpu_over_gloo(self):
        sequence, loss = ("--vary", "parallel.sequence_parallel=true"), ("--vary", "parallel.loss_parallel=true")
        for model in (LLAMA, TRIMODAL):
            words = (*model, "--set", "train.global_batch_size=24", "--backend", "gloo")
            self.parity(*words, "--mesh", "tp=2")
            self.parity(*words, "--mesh", "tp=2", *loss, "--against-device", "cpu")
            self.parity(*words, "--mesh", "tp=2", *sequence, "--set", "parallel.microbatches=2", "--vary", "parallel.recompute=full")
            self.parity(*words, "--mesh", "tp=2", *sequence, *loss, "--vary", "parallel.regather=true", "--resume-at", "2")
            self.parity(*words, "--mesh", "tp=2,fsdp=2", *sequence, *loss)
            self.parity(*words, "--mesh", "tp=2", *sequence, *loss, "--dtype", "float32")
        finished = orthant("parity", *LLAMA, "--mesh", "tp=2", "--device", "cuda", "--backend", "gloo", "--inject", "skip-reduce=tp:layers.0.mlp.w2.weight")
        self.assertEqual(finished.returncode, 1, finished.stderr)

    def test_pipeline_ranks_share_a_gpu_over_gloo(self):
        def schedule(name):
            return "--vary", f"parallel.schedule={name}"

        for model in (LLAMA, TRIMODAL):  # embedding and head are tied in one, two towers meet in the other
            words = (*model, "--set", "train.global_batch_size=24", "--set", "parallel.microbatches=4", "--backend", "gloo")
            for name in ("1f1b", "zbh1"):
                self.parity(*words, "--mesh", "pp=2", *schedule(name))
                self.parity(*words, "--mesh", "pp=2", *schedule(name), "--against-device", "cpu")
                self.parity(*words, "--mesh", "pp=2", *schedule(name), "--dtype", "float32")
            self.parity(*words, "--mesh", "pp=2", *schedule("zbv"), "--vary", "parallel.recompute=full")
            self.parity(*words, "--mesh", "pp=3", *schedule("gpipe"), "--vary", "parallel.placement=[2,0,1]")
            self.parity(*words, "--mesh", "pp=2", *schedule("interleaved"), "--resume-at", "2")
            self.parity(*words, "--mesh", "pp=2", "--dtype", "bfloat16")
            self.parity(*words, "--mesh", "pp=2,tp=2", *schedule("zbh1"), "--vary", "parallel.sequence_parallel=true", "--vary",
                        "parallel.loss_parallel=true")
            self.parity(*words, "--mesh", "pp=2,tp=2", "--against-device", "cpu")
            self.parity(*words, "--mesh", "pp=2,fsdp=2", "--vary", "parallel.zero=3", "--vary", "parallel.microbatches=2")
        finished = orthant("parity", *LLAMA, "--mesh", "pp=2", "--device", "cuda", "--backend", "gloo", "--inject", "skip-reduce=pp:embed.weight")
        self.assertEqual(finished.returncode, 1, finished.stderr)

    def test_two_axes_and_three_share_a_gpu_over_gloo(self):
        sequence_and_loss = ("--vary", "parallel.sequence_parallel=true", "--vary", "parallel.loss_parallel=true")
        for model in (LLAMA, TRIMODAL):
            words = (*model, "--set", "train.global_batch_size=24", "--set", "parallel.microbatches=3", "--backend", "gloo")
            for mesh in ("pp=2,dp=2", "pp=2,fsdp=2", "pp=2,tp=2", "dp=2,tp=2", "fsdp=2,tp=2", "dp=2,fsdp=2"):
                self.parity(*words, "--mesh", mesh, *(sequence_and_loss if "tp" in mesh else ()))
                self.parity(*words, "--mesh", mesh, "--dtype", "float32")
            for zero in (1, 2, 3):
                self.parity(*words, "--mesh", "pp=2,fsdp=2", "--vary", f"parallel.zero={zero}", "--vary", "parallel.schedule=zbv")
            self.parity(*words, "--mesh", "pp=2,fsdp=2,tp=2", *sequence_and_loss, "--against-device", "cpu")
            self.parity(*words, "--mesh", "pp=2,dp=2,tp=2", "--vary", "parallel.schedule=interleaved", "--resume-at", "2")
        # Stages talk over Gloo when nobody says how.
        self.parity(*LLAMA, "--set", "train.global_batch_size=24", "--set", "parallel.microbatches=3", "--mesh", "pp=2,dp=2")

    def test_every_axis_through_the_kernels(self):
        rows = [("tp=2", "parallel.sequence_parallel=true"), ("tp=2", "parallel.loss_parallel=true"), ("dp=2", ""), ("fsdp=2", "parallel.zero=3"),
                ("pp=2", "parallel.schedule=zbh1")]
        words = (*LLAMA, "--set", "train.global_batch_size=24", "--set", "parallel.microbatches=2", "--backend", "gloo")
        for dtype in ("bfloat16", "float32"):
            for mesh, variation in rows:
                result = self.parity(*words, "--mesh", mesh, *(("--vary", variation) if variation else ()), "--dtype", dtype)
                self.assertGreater(result["kernel_launches"], 100, (mesh, dtype))
            finished = orthant("parity", *words, "--mesh", "tp=2", "--dtype", dtype, "--device", "cuda", "--inject", "skip-reduce=tp")
            self.assertEqual(finished.returncode, 1, finished.stderr)
        double = self.parity(*words, "--mesh", "dp=2", "--dtype", "float64")
        self.assertEqual(double["kernel_launches"], 0)

    def train(self, *words):
        return only_json(self, orthant("train", *LLAMA, *words, "--set", "train.steps=8", "--device", "cuda", "--json", timeout=120))

    def test_background_saves_resume_on_another_mesh(self):
        with tempfile.TemporaryDirectory() as folder:
            whole = os.path.join(folder, "whole")
            saves = ("--set", "checkpoint.save_every=2", "--set", "checkpoint.asynchronous=true", "--set", "checkpoint.keep_last=9")
            kept = self.train("--mesh", "pp=2,fsdp=2", "--set", "parallel.microbatches=2", "--output_dir", whole, *saves)
            for mesh in ("pp=2,fsdp=2", "tp=2", "dp=1"):
                resumed = self.train("--mesh", mesh, "--set", "parallel.microbatches=2", "--resume", os.path.join(whole, "checkpoints", "step-4"),
                                     "--output_dir", os.path.join(folder, mesh), *saves)
                self.assertEqual(resumed["steps"], 8)
                self.assertAlmostEqual(resumed["final_loss"], kept["final_loss"], places=3)
                if mesh == "pp=2,fsdp=2":
                    self.assertEqual(resumed["weights_hash"], kept["weights_hash"])

    def test_a_step_that_is_not_finite_is_named_and_left_out(self):
        for fault, named in (("activation:rank=1,unit=layers.1,step=3,value=nan", "rank 1, unit layers.1"),
                             ("gradient:rank=0,unit=layers.0,step=3,value=inf", "rank 0, unit layers.0")):
            with tempfile.TemporaryDirectory() as folder:
                finished = orthant("train", *LLAMA, "--mesh", "dp=2", "--set", "train.steps=5", "--set", f'train.poison=["{fault}"]', "--set",
                                   "train.bad_steps=skip", "--device", "cuda", "--output_dir", os.path.join(folder, "run"), "--json", timeout=120)
                self.assertEqual(only_json(self, finished)["steps"], 5)
                self.assertIn(named, finished.stderr)

    def test_one_rank_over_nccl(self):
        self.parity(*LLAMA, "--backend", "nccl", "--mesh", "dp=1", "--against-device", "cpu")
        self.parity(*LLAMA, "--backend", "nccl", "--mesh", "dp=1", "--vary", "parallel.offload=params")

    def test_trimodal_bert_base_trains_on_one_gpu(self):
        towers = [f"model.{side}={{\"preset\": \"bert-base-cased\"}}" for side in ("primary", "secondary")]
        with tempfile.TemporaryDirectory() as folder:
            words = [word for setting in (*towers, "precision.compute=bfloat16", "train.steps=12", "train.eval_every=0", "data.eval_fraction=0",
                                          "train.global_batch_size=32", "optimizer.lr=5e-5") for word in ("--set", setting)]
            result = only_json(self, orthant("train", *words, "--device", "cuda", "--output_dir", os.path.join(folder, "run"), "--json", timeout=240))
        self.assertEqual(result["steps"], 12)
        self.assertGreater(result["parameters"], 200_000_000)
        self.assertLess(result["final_loss"], 1.0)


if __name__ == "__main__":
    unittest.main()
