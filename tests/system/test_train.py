"""orthant train as users meet it: results, files, resuming, stopping, and everything that must be refused."""
import json
import os
import re
import shutil
import signal
import subprocess
import unittest

from program import ORTHANT, SOURCE, FolderTest, clean_environment, only_json, orthant, wait_until

LLAMA = os.path.join(SOURCE, "configs", "llama_tiny.json")
SMALL = ("--set", "model.num_hidden_layers=2", "--set", "model.hidden_size=32", "--set", "model.intermediate_size=48",
         "--set", "data.sequence_length=16", "--set", "data.samples=128", "--set", "train.global_batch_size=8",
         "--set", "train.steps=20", "--set", "train.eval_every=0", "--set", "lr_schedule.warmup_steps=3")


class TrainTest(FolderTest):
    def train(self, *words, code=0, **options):
        finished = orthant("train", "--config", LLAMA, *SMALL, *words, cwd=self.folder, **options)
        self.assertEqual(finished.returncode, code, finished.stderr)
        return finished

    def metrics(self, run):
        with open(self.path(run, "metrics.jsonl")) as f:
            return [{k: v for k, v in json.loads(line).items() if "second" not in k and k != "peak_memory_bytes"} for line in f]


class Training(TrainTest):
    def test_json_is_the_contracts(self):
        result = only_json(self, self.train("--output_dir", "run", "--json"))
        contract = {"steps", "final_loss", "eval", "mesh", "world_size", "output_dir", "parameters", "weights_hash"}
        self.assertEqual(set(result), contract | {"predicted", "measured"})
        self.assertEqual((result["steps"], result["world_size"], result["output_dir"]), (20, 1, "run"))
        self.assertLess(result["final_loss"], 5.5)
        self.assertEqual(set(result["eval"]), {"loss", "perplexity"})
        lines = self.metrics("run")
        self.assertEqual([line["step"] for line in lines], list(range(1, 21)))
        self.assertEqual(set(lines[0]), {"step", "epoch", "loss", "grad_norm", "lr", "samples", "tokens"})
        self.assertEqual((lines[0]["samples"], lines[0]["tokens"], lines[-1]["epoch"]), (8, 128, 1))
        self.assertLess(lines[-1]["loss"], lines[0]["loss"])

    def test_checkpoints_in_a_folder_are_a_run_that_is_not_overwritten(self):
        self.train("--output_dir", "run")
        os.makedirs(self.path("copied", "checkpoints"))
        os.rename(self.path("run", "checkpoints", "step-20"), self.path("copied", "checkpoints", "step-20"))
        refused = self.train("--output_dir", "copied", code=2)
        self.assertIn("holds a run", refused.stderr)
        self.assertTrue(os.path.exists(self.path("copied", "checkpoints", "step-20", "manifest.json")))

    def test_the_last_checkpoint_may_be_the_best(self):
        self.train("--output_dir", "run", "--set", "train.eval_every=6", "--set", "checkpoint.save_every=6")
        with open(self.path("run", "eval.jsonl")) as f:
            losses = {line["step"]: line["loss"] for line in map(json.loads, f)}
        saved = [step for step in losses if os.path.exists(self.path("run", "checkpoints", f"step-{step}"))]
        self.assertIn(20, saved)
        with open(self.path("run", "checkpoints", "best")) as f:
            self.assertEqual(f.read().strip(), f"step-{min(saved, key=losses.get)}")

    def test_tensorboard_reads_the_curves(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        self.train("--output_dir", "run")
        events = EventAccumulator(self.path("run", "tensorboard"))
        events.Reload()
        losses = [(event.step, event.value) for event in events.Scalars("train/loss")]
        for (step, value), line in zip(losses, self.metrics("run"), strict=True):
            self.assertEqual(step, line["step"])
            self.assertAlmostEqual(value, line["loss"], places=4)
        self.assertIn("eval/loss", events.Tags()["scalars"])

    def test_a_checkpoint_is_read_by_safetensors_alone(self):
        from safetensors.numpy import load_file
        self.train("--output_dir", "run", "--set", "checkpoint.save_every=5", "--set", "checkpoint.keep_last=2")
        self.assertEqual(sorted(os.listdir(self.path("run", "checkpoints"))), ["latest", "step-15", "step-20"])
        tensors = load_file(self.path("run", "checkpoints", "step-20", "rank-0.safetensors"))
        self.assertEqual(tensors["layers.0.attention.wq.weight"].shape, (32, 32))
        self.assertEqual(tensors["optimizer.exp_avg_sq.embed.weight"].shape, (256, 32))
        with open(self.path("run", "checkpoints", "step-20", "manifest.json")) as f:
            manifest = json.load(f)
        self.assertEqual(manifest["step"], 20)

    def test_stopping_at_any_step_and_resuming_changes_nothing(self):
        whole = only_json(self, self.train("--output_dir", "whole", "--json"))
        for k in range(1, 21):
            run = f"stopped-{k}"
            self.train("--output_dir", run, "--steps", k)
            resumed = only_json(self, self.train("--output_dir", run, "--resume", "auto", "--json"))
            self.assertEqual(resumed["weights_hash"], whole["weights_hash"], k)
            self.assertEqual(self.metrics(run), self.metrics("whole"), k)

    def test_the_default_folder_is_the_first_free_one(self):
        self.train()
        self.train()
        self.assertEqual(sorted(os.listdir(self.path("runs"))), ["llama-tiny-1", "llama-tiny-2"])

    def test_sigterm_and_ctrl_c_save_and_exit_75(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number):
                self.stop_by(number, f"run-{number}")

    def stop_by(self, number, run):
        job = subprocess.Popen([ORTHANT, "train", "--config", LLAMA, "--set", "train.steps=100000", "--output_dir", run],
                               cwd=self.folder, env=clean_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        metrics = self.path(run, "metrics.jsonl")
        self.assertTrue(wait_until(lambda: os.path.exists(metrics) and os.path.getsize(metrics) > 0, 30))
        job.send_signal(number)
        _, errors = job.communicate(timeout=30)
        self.assertEqual(job.returncode, 75, errors)
        saved = [int(name[len("step-"):]) for name in os.listdir(self.path(run, "checkpoints")) if name != "latest"]
        self.assertEqual(saved, [self.metrics(run)[-1]["step"]])

    def test_a_run_saves_by_the_clock_and_goes_on_exactly(self):
        whole = only_json(self, self.train("--output_dir", "whole", "--json"))
        for mesh in ("dp=1", "pp=2,dp=2"):
            run = f"by-clock-{mesh}"
            words = ("--mesh", mesh, "--set", "checkpoint.save_minutes=0.000001", "--set", "checkpoint.keep_last=100", "--output_dir", run)
            saved = only_json(self, self.train(*words, "--json"))
            names = os.listdir(self.path(run, "checkpoints"))
            self.assertGreater(len(names), 10)  # every step, or every other
            self.assertEqual(saved["final_loss"], only_json(self, self.train("--mesh", mesh, "--output_dir", f"plain-{mesh}", "--json"))["final_loss"])
            for rank in range(saved["world_size"]):
                with open(self.path(run, "log", f"rank-{rank}.log")) as f:
                    log = f.read()
                for name in (name for name in names if name.startswith("step-")):
                    self.assertIn(f"saved the checkpoint of step {name[5:]}\n", log)
            middle = sorted(int(name[5:]) for name in names if name.startswith("step-"))[5]
            resumed = only_json(self, self.train("--mesh", mesh, "--output_dir", f"again-{mesh}", "--resume",
                                                 self.path(run, "checkpoints", f"step-{middle}"), "--json"))
            self.assertEqual(resumed["weights_hash"], saved["weights_hash"])
        self.assertEqual(only_json(self, self.train("--output_dir", "dp=1", "--json"))["weights_hash"], whole["weights_hash"])

    def test_the_clock_is_for_runs_without_an_interval(self):
        for words, minutes in (((), "10.0"), (("--set", "checkpoint.save_every=5"), "0.0"), (("--save_every", "1"), "0.0"),
                               (("--set", "checkpoint.save_every=5", "--set", "checkpoint.save_minutes=2"), "2")):
            self.assertRegex(self.train(*words, "--print-config").stdout, rf"\ncheckpoint\.save_minutes = {minutes} ")

    def test_pointers_name_the_newest_and_the_best_checkpoint(self):
        words = ("--output_dir", "run", "--set", "checkpoint.save_every=5", "--set", "train.eval_every=5", "--set", "checkpoint.keep_last=9", "--set",
                 "data.eval_fraction=0.1")
        self.train(*words)
        with open(self.path("run", "eval.jsonl")) as f:
            losses = {line["step"]: line["loss"] for line in map(json.loads, f)}
        best = min(losses, key=lambda step: (losses[step], -step))
        self.assertEqual((self.pointed("latest"), self.pointed("best")), ("step-20\n", f"step-{best}\n"))
        facts = only_json(self, orthant("checkpoint", "inspect", self.path("run", "checkpoints", "latest"), "--json"))
        self.assertEqual(facts["step"], 20)
        self.assertEqual(orthant("checkpoint", "verify", self.path("run", "checkpoints", "best")).returncode, 0)
        resumed = self.train("--output_dir", "other", "--resume", self.path("run", "checkpoints", "latest"), "--set", "data.eval_fraction=0.1")
        self.assertIn("step-20 at step 20", resumed.stderr)
        # A run that goes on from an older one has no newer to point to.
        self.train(*words, "--resume", self.path("run", "checkpoints", "step-10"), "--steps", "10")
        self.assertEqual(self.pointed("latest"), "step-10\n")
        with open(self.path("run", "checkpoints", "latest"), "w") as f:
            f.write("step-99\n")
        gone = self.train("--output_dir", "gone", "--resume", self.path("run", "checkpoints", "latest"), code=4)
        self.assertIn("names step-99, and there is no such checkpoint beside it", gone.stderr)
        self.assertIn("at step 10", self.train(*words, "--resume", "auto").stderr)  # which asks no pointer
        self.assertEqual(self.pointed("latest"), "step-20\n")

    def pointed(self, name):
        with open(self.path("run", "checkpoints", name)) as f:
            return f.read()

    def test_epochs_end_with_their_averages(self):
        said = self.train("--output_dir", "run", "--set", "data.samples=40").stderr
        lines = re.findall(r"^epoch (\d+): mean loss ([\d.]+) over 5 steps, [\d.]+K? tokens/s, .*s$", said, re.MULTILINE)
        self.assertEqual([int(epoch) for epoch, _ in lines], [1, 2, 3, 4])
        metrics = self.metrics("run")
        for epoch, mean in lines:
            losses = [line["loss"] for line in metrics if line["epoch"] == int(epoch) - 1]
            self.assertAlmostEqual(float(mean), sum(losses) / len(losses), places=3)

    def test_early_stop_ends_when_evaluations_improve_no_more(self):
        still = ("--set", "optimizer.lr=1e-30", "--set", "optimizer.weight_decay=0", "--set", "train.steps=200", "--set", "train.eval_every=3",
                 "--set", "train.early_stop=2", "--set", "data.eval_fraction=0.1")
        for mesh in ("dp=1", "pp=2", "dp=2"):
            done = self.train(*still, "--mesh", mesh, "--output_dir", mesh, "--json")
            self.assertEqual(only_json(self, done)["steps"], 9)  # the first evaluation is the best
            self.assertIn("stopped early after step 9: 2 evaluations in a row had no loss below", done.stderr)
            self.assertTrue(os.path.exists(self.path(mesh, "checkpoints", "step-9", "manifest.json")))
        improving = self.train("--set", "train.eval_every=3", "--set", "train.early_stop=2", "--set", "data.eval_fraction=0.1", "--output_dir", "b",
                               "--json")
        self.assertEqual(only_json(self, improving)["steps"], 20)
        self.assertIn("train.eval_every", self.train("--set", "train.early_stop=2", code=2).stderr)
        nothing = self.train("--set", "train.early_stop=2", "--set", "train.eval_every=3", "--set", "data.eval_fraction=0", code=2)
        self.assertIn("train.early_stop without data to evaluate on", nothing.stderr)

    def test_print_config_says_where_values_come_from(self):
        text = self.train("--print-config").stdout
        self.assertRegex(text, r"model.hidden_size = 32 +\(--set")
        self.assertRegex(text, r"model.rope_theta = 10000.0 +\(.*llama_tiny.json:")
        self.assertRegex(text, r"parallel.microbatches = 1 +\(default\)")
        self.assertEqual(os.listdir(self.folder), [])

    def test_dry_run_prints_schedule_and_memory_and_writes_nothing(self):
        text = self.train("--dry-run", "--verbose").stdout
        self.assertIn("F layers.1 m0", text)
        self.assertIn("parameters", text)
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_dry_run_is_one_screen_unless_more_is_asked_for(self):
        for mesh in ("dp=1", "dp=4", "tp=2", "pp=2,fsdp=2,tp=2", "pp=4", "pp=2,dp=512"):
            words = ("--mesh", mesh, "--set", "parallel.microbatches=4", "--set", "train.global_batch_size=4096", "--set", "data.samples=4096",
                     "--backend", "fake", "--set", "model.num_hidden_layers=40")
            screen, all_of_it = (self.train("--dry-run", *words, *more).stdout for more in ((), ("--verbose",)))
            self.assertLessEqual(screen.count("\n"), 40, screen)
            self.assertTrue(screen.startswith(f"mesh {mesh}: "), screen)
            self.assertIn("nothing was trained. --verbose adds", screen)
            self.assertGreater(all_of_it.count("\n"), 100)
        alone = orthant("train", "--config", LLAMA, "--verbose", cwd=self.folder)
        self.assertEqual((alone.returncode, os.listdir(self.folder)), (2, []))
        self.assertIn("--verbose without --dry-run", alone.stderr)

    def test_a_dry_run_says_that_train_would_refuse_a_rank_that_this_host_cannot_hold(self):
        finished = self.train("--dry-run", "--set", "model.hidden_size=1048576")
        self.assertRegex(finished.stderr, r"orthant: train would be refused with exit code 2: the rank of this run on this host needs \S+ TiB, and "
                                          r"\S+ \SiB of memory are free here; a rank has .*\n  fix: .*; --force trains as it is\n$")
        self.assertRegex(self.train("--dry-run").stderr, r"^orthant: train would start: the rank of this run on this host needs \S+ MiB, and .*\n$")

    def test_the_written_config_trains_the_same(self):
        first = only_json(self, self.train("--output_dir", "first", "--json"))
        again = only_json(self, orthant("train", "--config", self.path("first", "config.json"), "--output_dir", self.path("again"), "--json"))
        self.assertEqual(again["weights_hash"], first["weights_hash"])


class Refusals(TrainTest):
    def refuse(self, code, text, *words):
        finished = self.train(*words, code=code)
        self.assertIn(text, finished.stderr)
        return finished

    def nothing_written(self):
        self.assertEqual(os.listdir(self.folder), [])

    def test_wrong_keys_and_values(self):
        for setting, text in (("model.hiden_size=8", 'hidden_size'), ("optimizer.kind=adan", "adamw"), ("data.kind=token", "tokens"),
                              ("train.steps=0", "at least 1"), ("parallel.microbatches=3", "=6 or 9"),
                              ("precision.params=float16", "float32"), ("lr_schedule.kind=cosin", "cosine"),
                              ("parallel.recompute=some", "none"), ("parallel.schedule=1f2b", "1f1b"), ("parallel.microbatches=4294967296", "at most"), ("parallel.zero=4", "it must be at most 3"),
                              ("model.freeze=[\"*.wq.weight\"]", "freeze both"), ("train.epochs=2", "train.steps"),
                              ("model.num_attention_heads=5", "heads"), ("data.eval_fraction=2", "[0, 1]"),
                              ("parallel.split=[[\"embed\"]]", "layers.0"), ("optimizer.betas=[1]", "[0.9, 0.95]"),
                              ("train.steps=abc", "fix: give train.steps an integer"), ("optimizer.lr=nan", "fix: give optimizer.lr a number"),
                              ("seed=-1", "fix: give seed an integer from 0 to "), (f"name={300 * 'x'}", "name: has 300 letters, and a folder's name at most 240")):
            with self.subTest(setting):
                self.refuse(2, text, "--set", setting, "--dry-run")
        self.nothing_written()

    def test_missing_config(self):
        finished = orthant("train", "--config", "nowhere.json", cwd=self.folder)
        self.assertEqual(finished.returncode, 2)
        self.assertIn("nowhere.json", finished.stderr)
        finished = orthant("train", "--config", "", cwd=self.folder)
        self.assertEqual(finished.returncode, 2)
        self.assertIn("--config is empty", finished.stderr)
        self.nothing_written()

    def test_a_batch_larger_than_the_data(self):
        self.refuse(2, "129", "--set", "train.global_batch_size=129")
        self.nothing_written()

    def test_an_empty_data_set(self):
        self.refuse(2, "samples", "--set", "data.samples=0")
        self.nothing_written()

    def test_model_and_data_that_do_not_fit(self):
        self.refuse(2, "data.kind tokens", "--set", "data.kind=trimodal_demo")
        self.refuse(2, "129", "--set", "data.sequence_length=129")
        finished = orthant("train", "--set", "model.primary.vocab_size=20", cwd=self.folder)
        self.assertEqual(finished.returncode, 2)
        self.assertIn("set model.primary.vocab_size=", finished.stderr)
        self.nothing_written()

    def test_only_damaged_checkpoints(self):
        self.train("--output_dir", "run", "--steps", "2")
        with open(self.path("run", "checkpoints", "step-2", "manifest.json"), "w") as f:
            f.write("{")
        self.refuse(4, "none of its 1 checkpoints", "--output_dir", "run", "--resume", "auto")

    def test_what_would_be_ignored(self):
        self.refuse(2, "--json", "--json", "--dry-run")
        self.refuse(2, "sgd", "--set", "optimizer.momentum=0.9")
        self.refuse(2, "nothing to train", "--set", 'model.freeze=["*"]')
        self.refuse(2, "letters, digits", "--set", "name=../x")
        self.refuse(2, "use one of them", "--mesh", "dp=1", "--dp_size", "1")
        finished = orthant("train", "--set", "model.primary.path=/nowhere", cwd=self.folder)
        self.assertEqual(finished.returncode, 4)
        self.assertIn("/nowhere", finished.stderr)
        self.nothing_written()

    def test_an_axis_that_the_model_has_no_use_for(self):
        self.refuse(2, "the model has no experts for ep", "--mesh", "dp=2,ep=2")
        self.nothing_written()

    def test_a_folder_in_use(self):
        self.train("--output_dir", "run", "--steps", "2")
        self.refuse(2, "holds a run", "--output_dir", "run")
        with open(self.path("run", ".lock"), "r+") as lock:
            import fcntl
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.refuse(2, "in use", "--output_dir", "run", "--resume", "auto")
        with open(self.path("file"), "w"):
            pass
        self.refuse(2, "not a folder", "--output_dir", "file")

    def test_damaged_checkpoints(self):
        self.train("--output_dir", "run", "--steps", "4", "--set", "checkpoint.save_every=2")
        newest = self.path("run", "checkpoints", "step-4", "rank-0.safetensors")
        with open(newest, "r+b") as f:
            f.seek(-5, os.SEEK_END)
            f.write(b"\xff")
        self.refuse(4, "hash", "--output_dir", "run", "--resume", self.path("run", "checkpoints", "step-4"))
        finished = self.train("--output_dir", "run", "--resume", "auto", "--steps", "4")
        self.assertIn("step-4", finished.stderr)
        self.assertIn("at step 2", finished.stderr)
        self.assertIn("is kept as step-4.refused", finished.stderr)
        self.assertTrue(os.path.exists(self.path("run", "checkpoints", "step-4.refused", "manifest.json")))
        self.train("--output_dir", "run", "--resume", self.path("run", "checkpoints", "step-4"), "--steps", "4")
        self.refuse(4, "no such checkpoint", "--output_dir", "other", "--resume", "nowhere")
        self.refuse(4, "no such checkpoint", "--output_dir", "run", "--resume", "nowhere")
        self.refuse(2, "--resume is empty", "--output_dir", "run", "--resume", "")
        shutil.copytree(self.path("run", "checkpoints", "step-4"), self.path("elsewhere", "step-4"))
        self.refuse(2, "another run", "--output_dir", "run", "--resume", "elsewhere/step-4")
        shutil.copytree(self.path("elsewhere", "step-4"), self.path("elsewhere", "step-5"))
        self.refuse(4, "is of step 4, and its folder is called step-5", "--output_dir", "other", "--resume", "elsewhere/step-5")
        kept = orthant("bench", "checkpoint", "--config", LLAMA, *SMALL, "--keep", self.path("elsewhere"))
        self.assertEqual(kept.returncode, 2, kept.stderr)
        self.assertIn("exists already and is not replaced", kept.stderr)
        self.refuse(4, "checkpoints/step-4", "--output_dir", "other", "--resume", self.path("run"))
        self.refuse(4, "another model", "--output_dir", "run", "--resume", "auto", "--set", "model.num_hidden_layers=3")
        self.refuse(4, "model/num_attention_heads was 4 there and is 2 now", "--output_dir", "run", "--resume", "auto",
                    "--set", "model.num_attention_heads=2")
        self.refuse(2, "seed 0", "--output_dir", "run", "--resume", "auto", "--set", "seed=1")
        self.refuse(2, "global_batch_size", "--output_dir", "run", "--resume", "auto", "--set", "train.global_batch_size=4")
        self.refuse(4, "does not have", "--output_dir", "run", "--resume", "auto", "--set", "optimizer.kind=sgd")
        os.remove(self.path("run", "config.json"))
        self.refuse(4, "holds no tensor", "--output_dir", "run", "--resume", "auto", "--set", "model.num_hidden_layers=3")
        self.refuse(4, "in this model", "--output_dir", "run", "--resume", "auto", "--set", "model.intermediate_size=64")


class Parity(TrainTest):
    def parity(self, *words, code=0):
        finished = orthant("parity", *words, cwd=self.folder, timeout=120)
        self.assertEqual(finished.returncode, code, finished.stderr + finished.stdout)
        return json.loads(finished.stdout) if "--json" in words else finished

    def test_comparisons_of_a_file_are_made_by_the_same_ranks(self):
        rows = [["--config", LLAMA, *SMALL, "--mesh", "dp=2"], ["--config", LLAMA, *SMALL, "--set", "parallel.microbatches=2", "--mesh", "pp=2"],
                ["--config", LLAMA, *SMALL, "--mesh", "dp=2", "--inject", "skip-reduce=dp"]]
        path = os.path.join(self.folder, "rows.jsonl")
        with open(path, "w") as f:
            f.write("\n".join(json.dumps(row) for row in rows) + "\n")
        finished = self.parity("--rows", path, code=1)
        results = [json.loads(line) for line in finished.stdout.splitlines()]
        self.assertEqual([result["pass"] for result in results], [True, True, False])
        self.assertTrue(results[1]["bitwise"])
        self.assertIn("mesh pp=2 against mesh dp=1", results[1]["compared"])

    def test_a_line_that_is_no_comparison_is_named(self):
        path = os.path.join(self.folder, "rows.jsonl")
        for text, has in (("dp=2\n", "line 1: no JSON list of words"), ('["--mesh", "dp=2"]\n["--mesh", "dp=0"]\n', "line 2: "), ("\n", "has no line")):
            with open(path, "w") as f:
                f.write(text)
            self.assertIn(has, self.parity("--rows", path, code=2).stderr)

    def test_what_regroups_no_sum_has_equal_bits(self):
        stages = {"llama": '[["embed","layers.0"],["layers.1"],["head"],["loss"]]'}
        for variation in ("parallel.recompute=selective", "parallel.recompute=full", "parallel.split=4",
                          f"parallel.split={stages['llama']}"):
            for schedule in ("gpipe", "1f1b"):
                with self.subTest(variation=variation, schedule=schedule):
                    result = self.parity("--config", LLAMA, *SMALL, "--set", "parallel.microbatches=4", "--set", f"parallel.schedule={schedule}",
                                         "--vary", variation, "--bitwise", "--json")
                    self.assertEqual((result["pass"], result["bitwise"]), (True, True))

    def test_trimodal_with_dropout_has_equal_bits(self):
        dropout = ("--set", "model.primary.hidden_dropout_prob=0.1", "--set", "model.secondary.hidden_dropout_prob=0.1",
                   "--set", "model.primary.attention_probs_dropout_prob=0.1", "--set", "parallel.microbatches=4")
        for variation in ("parallel.recompute=selective", "parallel.recompute=full", "parallel.split=4"):
            with self.subTest(variation):
                self.assertTrue(self.parity(*dropout, "--vary", variation, "--bitwise", "--json")["bitwise"])
        self.assertTrue(self.parity(*dropout, "--resume-at", "2", "--bitwise", "--json")["bitwise"])

    def test_other_microbatches_compute_the_same_numbers(self):
        for words in (("--config", LLAMA, *SMALL), (), ("--set", "train.global_batch_size=4")):
            result = self.parity(*words, "--vary", "parallel.microbatches=4", "--json")
            self.assertTrue(result["pass"])
            self.assertLess(result["max_relative_error"]["gradients"], 1e-11)

    def test_a_difference_is_found_and_named(self):
        finished = self.parity("--config", LLAMA, *SMALL, "--vary", "optimizer.clip=0.01", code=1)
        self.assertIn("DIFFERENT", finished.stdout)
        finished = self.parity("--config", LLAMA, *SMALL, "--vary", "seed=1", code=1)
        self.assertIn("first gradient that differs: embed.weight", finished.stdout)

    def test_what_it_cannot_do_is_refused(self):
        for words, text in ((("--inject", "skip-reduce=dp"), "no dp axis"), (("--dtype", "int8"), "float64"), (("--resume-at", "9"), "1 to 3"), (("--resume-at", "0"), "1 to 3"),
                            (("--mesh", "dp=2,ep=2"), "no experts for ep")):
            self.assertIn(text, self.parity(*words, code=2).stderr)


class DataFiles(TrainTest):
    def test_make_trimodal_writes_what_facts_promise(self):
        made = only_json(self, orthant("data", "make-trimodal", "--rows", 50, "--out", self.path("demo"), "--json"))
        with open(made["facts"]) as f:
            facts = json.load(f)
        with open(made["data"]) as f:
            self.assertEqual(len(f.readlines()), 51)
        self.assertIn("0.97", json.dumps(facts))
        finished = orthant("data", "make-trimodal", "--rows", 0, "--out", self.path("demo"))
        self.assertEqual(finished.returncode, 2)

    def test_export_holds_the_batches(self):
        from safetensors.numpy import load_file
        out = self.path("batches.safetensors")
        finished = orthant("data", "export", "--config", LLAMA, *SMALL, "--steps", 2, "--out", out)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        tensors = load_file(out)
        self.assertEqual(sorted(tensors), ["step.1.input_ids", "step.1.labels", "step.2.input_ids", "step.2.labels"])
        self.assertEqual(tensors["step.2.labels"].shape, (8, 16))


if __name__ == "__main__":
    unittest.main()
