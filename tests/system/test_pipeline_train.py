"""orthant train over pp, alone and beside dp and tp: the bits of one rank, evaluations, checkpoints for any pipeline, stops, schedule files."""
import json
import os
import re
import signal
import subprocess
import unittest

from program import ORTHANT, SOURCE, FolderTest, children, clean_environment, is_alive, only_json, orthant, wait_until

SIZES = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
TRAINING = {"optimizer": {"kind": "adamw", "lr": 1e-2, "clip": 0.5}, "lr_schedule": {"kind": "constant"}, "parallel": {"microbatches": 4},
            "train": {"global_batch_size": 16, "steps": 6, "eval_every": 3}}
LLAMA = {"name": "llama", "seed": 3, **TRAINING,
         "model": {"kind": "llama", "preset": "llama-tiny", **SIZES, "num_hidden_layers": 6, "num_key_value_heads": 2, "vocab_size": 67,
                   "tie_word_embeddings": True, "attention_dropout": 0.1},
         "data": {"kind": "tokens", "sequence_length": 12, "samples": 128, "eval_fraction": 0.125}}
TRIMODAL = {"name": "trimodal", "seed": 5, **TRAINING,
            "model": {"kind": "trimodal", "preset": "trimodal-tiny", "primary": {**SIZES, "num_hidden_layers": 3, "hidden_dropout_prob": 0.1},
                      "secondary": {**SIZES, "num_hidden_layers": 2, "attention_probs_dropout_prob": 0.1}, "tabular": {"input_dim": 8}},
            "data": {"kind": "trimodal_demo", "sequence_length": 20, "secondary_length": 22, "samples": 256, "eval_fraction": 0.25}}
ENDLESS = ("--set", "train.steps=1000000", "--set", "train.eval_every=0")


def settings(*values):
    return [word for value in values for word in ("--set", value)]


class PipelineTest(FolderTest):
    def config(self, document, name="config"):
        with open(self.path(f"{name}.json"), "w") as f:
            json.dump(document, f)
        return self.path(f"{name}.json")

    def command(self, config, run, mesh, *words):
        config = config if isinstance(config, str) else self.config(config, config["name"])
        return "train", "--config", config, "--output_dir", run, "--mesh", mesh, "--json", *words

    def train(self, config, run, mesh, *words):
        return only_json(self, orthant(*self.command(config, run, mesh, *words), cwd=self.folder))

    def start(self, config, run, mesh, *words):
        """An endless run, in its second step or later."""
        job = subprocess.Popen([ORTHANT, *map(str, self.command(config, run, mesh, *ENDLESS, *words))], cwd=self.folder, text=True,
                               env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(job.kill)
        self.assertTrue(wait_until(lambda: self.num_lines(run) > 0 or job.poll() is not None, 30))
        return job

    def num_lines(self, run):
        try:
            with open(self.path(run, "metrics.jsonl"), "rb") as f:
                return f.read().count(b"\n")
        except OSError:
            return 0

    def lines(self, run, name="metrics.jsonl"):
        """Without what time and memory say."""
        with open(self.path(run, name)) as f:
            return [{key: value for key, value in json.loads(line).items() if "second" not in key and key != "peak_memory_bytes"} for line in f]

    def assert_same_bits(self, run, result, wanted_run, wanted):
        self.assertEqual(self.lines(run), self.lines(wanted_run), run)
        self.assertEqual(self.lines(run, "eval.jsonl"), self.lines(wanted_run, "eval.jsonl"), run)
        for key in ("steps", "final_loss", "eval", "parameters", "weights_hash"):
            self.assertEqual(result[key], wanted[key], (run, key))

    def assert_close(self, found, wanted, tolerance, message):
        self.assertEqual(set(found), set(wanted), message)
        for key, value in wanted.items():
            self.assertLessEqual(abs(found[key] - value), tolerance * abs(value), (*message, key))


class Training(PipelineTest):
    def test_pipelines_have_every_bit_of_one_rank(self):
        for config, keys in ((LLAMA, {"loss", "perplexity"}), (TRIMODAL, {"loss", "accuracy", "f1", "f1_macro", "roc_auc"})):
            name = config["name"]
            one = self.train(config, f"{name}-one", "dp=1")
            self.assertEqual(set(one["eval"]), keys)
            self.assertEqual([line["step"] for line in self.lines(f"{name}-one")], list(range(1, 7)))
            for mesh, *more in (("pp=2",), ("pp=3", "parallel.schedule=zbh1"), ("pp=4", "parallel.schedule=zbv"),
                                ("pp=2", "parallel.placement=[1,0]"), ("pp=2", "parallel.schedule=interleaved", "parallel.recompute=full")):
                run = "-".join((name, mesh, *more))
                result = self.train(config, run, mesh, *settings(*more))
                self.assert_same_bits(run, result, f"{name}-one", one)
                self.assertEqual((result["world_size"], result["mesh"]["pp"]), (int(mesh[3:]),) * 2)
                with open(self.path(run, "log", f"rank-{int(mesh[3:]) - 1}.log")) as f:
                    self.assertRegex(f.read().splitlines()[-1], "Z done after step 6$")

    def test_beside_other_axes_the_numbers_are_close(self):
        for config in (LLAMA, TRIMODAL):
            name = config["name"]
            exact = settings(*(f"precision.{key}=float64" for key in ("params", "compute", "reduce")))
            one = self.train(config, f"{name}-one", "dp=1", *exact)
            for mesh in ("pp=2,dp=2", "pp=2,tp=2"):
                run = f"{name}-{mesh}"
                result = self.train(config, run, mesh, *exact)
                self.assert_close(result["eval"], one["eval"], 1e-8, (run, "eval"))
                for file in ("metrics.jsonl", "eval.jsonl"):
                    for found, wanted in zip(self.lines(run, file), self.lines(f"{name}-one", file), strict=True):
                        self.assert_close(found, wanted, 1e-8, (run, file, wanted["step"]))

    def test_first_weights_are_the_same_bits_on_every_mesh(self):
        for config in (LLAMA, TRIMODAL):
            name = config["name"]
            one = self.train(config, f"{name}-one", "dp=1", "--steps", 0)
            for mesh in ("pp=2", "pp=4", "pp=2,fsdp=2", "pp=2,tp=2"):
                self.assertEqual(self.train(config, f"{name}-{mesh}", mesh, "--steps", 0)["weights_hash"], one["weights_hash"], (name, mesh))
            other = self.train(config, f"{name}-other", "pp=2", "--steps", 0, "--set", "seed=7")
            self.assertNotEqual(other["weights_hash"], one["weights_hash"])

    def test_the_loss_is_printed_wherever_its_stage_lies(self):
        for placement in ("[0,1]", "[1,0]"):
            finished = orthant(*self.command(LLAMA, f"run-{placement}", "pp=2", "--set", f"parallel.placement={placement}"), cwd=self.folder)
            self.assertEqual(finished.returncode, 0, finished.stderr)
            printed = [float(loss) for loss in re.findall(r"step \d/6  loss ([\d.]+)", finished.stderr)]
            for found, line in zip(printed, self.lines(f"run-{placement}"), strict=True):
                self.assertAlmostEqual(found, line["loss"], delta=1e-4)
            self.assertEqual(len(re.findall(r"evaluation after step \d: loss [\d.]+ perplexity [\d.]+", finished.stderr)), 2, finished.stderr)
            self.assertNotIn("[rank 1]", finished.stderr)

    def test_the_last_batch_of_an_epoch_may_leave_microbatches_without_samples(self):
        # 112 samples: 7 batches of 15 and one of 7 in five microbatches, or two of 55 and one of 2.
        for size, epochs in ((15, 1), (55, 2)):
            epoch = settings(f"train.global_batch_size={size}", "parallel.microbatches=5", f"train.epochs={epochs}")
            config = {**LLAMA, "data": {**LLAMA["data"], "samples": 112, "eval_fraction": 0}, "train": {}}
            one = self.train(config, f"one-{size}", "dp=1", *epoch)
            self.assertEqual(min(line["samples"] for line in self.lines(f"one-{size}")), 112 % size)
            for schedule in ("1f1b", "zbv"):
                run = f"{schedule}-{size}"
                self.assert_same_bits(run, self.train(config, run, "pp=2", *epoch, "--set", f"parallel.schedule={schedule}"), f"one-{size}", one)

    def test_reduced_precision_and_frozen_parts(self):
        for name, config, *more in (("low", LLAMA, "precision.compute=bfloat16"), ("frozen", TRIMODAL, 'model.freeze=["primary.*"]')):
            one = self.train(config, f"{name}-one", "dp=1", *settings(*more))
            for schedule in ("1f1b", "zbh1"):
                run = f"{name}-{schedule}"
                result = self.train(config, run, "pp=2", *settings(*more, f"parallel.schedule={schedule}"))
                self.assert_same_bits(run, result, f"{name}-one", one)

    def test_print_config_and_dry_run_know_the_pipeline(self):
        words = ("--set", "parallel.schedule=zbh1", "--set", "parallel.placement=[1,0]")
        shown = orthant("train", "--config", self.config(LLAMA), "--mesh", "pp=2", *words, "--print-config")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
        for line in ("mesh.pp = 2 (--set mesh.pp=2)", 'parallel.schedule = "zbh1" (--set parallel.schedule=zbh1)',
                     "parallel.placement = [1,0] (--set parallel.placement=[1,0])", 'parallel.split = "auto" (default)',
                     "parallel.virtual_stages = 1 (default)", "parallel.split_costs = null (default)",
                     "parallel.split_memory_gb = null (default)"):
            self.assertIn(line, lines)
        dry = orthant("train", "--config", self.config(LLAMA), "--mesh", "pp=2", *words, "--dry-run", "--verbose", cwd=self.folder)
        self.assertEqual(dry.returncode, 0, dry.stderr)
        for text in ("mesh pp=2: 2 ranks", "receive hidden.", "send_gradient hidden."):  # rank 0 has the last stage
            self.assertIn(text, dry.stdout)
        self.assertFalse(os.path.exists(self.path("runs")))

    def test_a_dry_run_tells_of_every_pp_coordinate(self):
        words = ("--config", self.config(LLAMA), "--mesh", "pp=2,dp=2", "--dry-run", "--verbose")
        text = orthant("train", *words, cwd=self.folder).stdout
        self.assertIn("\n  stage 0 on pp 0: embed, layers.0", text)
        self.assertIn("\nSchedule 1f1b, 4 microbatches, a row for each pp coordinate:\ntime | 0    1 ", text)
        self.assertIn("\npp 1 | .    1F0  1BW0", text)
        message = 4 * 2 * 12 * 32 * 4  # microbatches, rows, tokens, channels, float32
        table = 67 * 32  # tied; a multiple of the padding
        for pp, sends, receives, in_flight in ((0, "sends", "receives gradients of", "2 forwards"), (1, "receives", "sends gradients of", "1 forward")):
            self.assertIn(f"pp {pp}: over pp it {sends} {message // 1024} KiB in 4 messages, {receives} {message // 1024} KiB in 4 messages, and sums "
                          f"gradients of tied parameters of {table * 4 / 1024:.1f} KiB in 1 all-reduce.\n", text)
            self.assertRegex(text, rf"pp {pp}: a rank keeps [\d.]+ KiB of parameters, [\d.]+ KiB of gradients, [\d.]+ KiB of optimizer state\.\n")
            self.assertRegex(text, rf"pp {pp}: a rank has at most {in_flight} in flight and keeps [\d.]+ KiB of activations\.\n")
            self.assertRegex(text, rf"\nSchedule of a step at pp {pp}, \d\d actions:\n  (F embed|receive hidden\.\d) m0")
        self.assertNotIn("more\n", text)
        many = orthant("train", *words, *settings("train.global_batch_size=128", "parallel.microbatches=64"), cwd=self.folder).stdout
        self.assertRegex(many, r"at pp 0, [4-9]\d\d actions:\n(  .*\n){200}  \.\.\. \d+ more\n\nSchedule of a step at pp 1,")
        self.assertNotIn("at pp", orthant("train", *words, "--mesh", "dp=2", cwd=self.folder).stdout)

    def test_a_dry_run_of_thousands_of_ranks_takes_no_time(self):
        words = settings("train.global_batch_size=1024", "data.samples=4096", "model.num_attention_heads=8")
        dry = orthant("train", "--config", self.config(LLAMA), "--mesh", "pp=8,dp=64,tp=8", *words, "--backend", "fake", "--dry-run", "--verbose", timeout=10)
        self.assertEqual(dry.returncode, 0, dry.stderr)
        self.assertIn("\nSchedule of a step at pp 7,", dry.stdout)

    def test_settings_of_the_pipeline_have_no_effect_on_one_pp_coordinate(self):
        plain = self.train(LLAMA, "plain", "dp=1", "--steps", 2)
        for name in ("zbh1", "interleaved", "zbv", "nowhere.txt"):
            more = self.train(LLAMA, f"run-{name}", "dp=1", "--steps", 2, "--set", f"parallel.schedule={name}")
            self.assertEqual(more["weights_hash"], plain["weights_hash"], name)


class Texts(PipelineTest):
    def test_texts_whose_length_differs_from_microbatch_to_microbatch(self):
        words = [f"word{number}" for number in range(40)]
        rows = [f"{' '.join(words[row % 40:][:1 + row * 7 % 17])},{' '.join(words[row * 3 % 40:][:1 + row * 5 % 9])},{row % 10},{row * 7 % 13},{row % 2}"
                for row in range(120)]
        with open(self.path("table.csv"), "w") as f:
            f.write("\n".join(("first,second,x,y,label", *rows)) + "\n")
        only_json(self, orthant("data", "make-vocabulary", "--data", self.path("table.csv"), "--columns", "first,second", "--size", 200, "--out",
                                self.path("vocab.txt"), "--json"))
        config = {**TRIMODAL, "model": {**TRIMODAL["model"], "tabular": {"input_dim": 2}},
                  "data": {"kind": "trimodal", "path": self.path("table.csv"), "primary_text": "first", "secondary_text": "second",
                           "tabular": ["x", "y"], "label": "label", "tokenizer": self.path("vocab.txt"), "sequence_length": 24, "eval_fraction": 0.2}}
        one = self.train(config, "one", "dp=1")
        self.assertGreater(len({line["tokens"] for line in self.lines("one")}), 3)
        for mesh, schedule in (("pp=2", "zbh1"), ("pp=4", "1f1b")):
            result = self.train(config, mesh, mesh, "--set", f"parallel.schedule={schedule}")
            self.assert_same_bits(mesh, result, "one", one)


class ScheduleFiles(PipelineTest):
    def test_a_schedule_from_a_file_trains_the_same_bits(self):
        one = self.train(LLAMA, "one", "pp=2")
        for schedule, separator in (("zbh1", " "), ("zbv", ","), ("gpipe", " ")):
            table = only_json(self, orthant("simulate", "--schedule", schedule, "--stages", 2, "--microbatches", 4, "--json"))["ranks"]
            with open(self.path(f"{schedule}.txt"), "w") as f:
                f.write(f"# {schedule}\n" + "".join(separator.join(rank) + "\n" for rank in table))
            result = self.train(LLAMA, schedule, "pp=2", "--set", f"parallel.schedule={schedule}.txt")
            self.assert_same_bits(schedule, result, "one", one)

    def test_a_schedule_that_no_generator_makes(self):
        one = self.train(LLAMA, "one", "pp=2", "--set", "parallel.microbatches=2")
        with open(self.path("own.csv"), "w") as f:
            f.write("# stages 0 and 3 | 1 and 2, weights late\n0F0,0F1,,3F0,3B0,3F1,3B1,0B0,0B1,3W0,3W1,0W0,0W1\n"
                    "1F0,2F0,1F1,2F1,2B0,1B0,2BW1\n")
        bad = orthant(*self.command(LLAMA, "own", "pp=2", *settings("parallel.schedule=own.csv", "parallel.microbatches=2")), cwd=self.folder)
        self.assertEqual(bad.returncode, 2, bad.stderr)
        self.assertIn("2BW1", bad.stderr)
        with open(self.path("own.csv"), "w") as f:
            f.write("# stages 0 and 3 | 1 and 2, weights late\n0F0,0F1,,3F0,3B0,3F1,3B1,0B0,0B1,3W0,3W1,0W0,0W1\n"
                    "1F0,2F0,1F1,2F1,2B0,1B0,2W0,2BW1,1W0,1BW1\n")
        result = self.train(LLAMA, "own", "pp=2", *settings("parallel.schedule=own.csv", "parallel.microbatches=2"))
        self.assert_same_bits("own", result, "one", one)

    def test_a_run_with_a_file_resumes(self):
        with open(self.path("table.txt"), "w") as f:
            f.write("0F0 0F1 0BW0 0BW1\n1F0 1BW0 1F1 1BW1\n")
        words = settings("parallel.schedule=table.txt", "parallel.microbatches=2")
        whole = self.train(LLAMA, "whole", "pp=2", *words)
        self.train(LLAMA, "run", "pp=2", *words, "--steps", 3)
        resumed = only_json(self, orthant("train", "--config", "run/config.json", "--output_dir", "run", "--resume", "auto", "--json", cwd=self.folder))
        self.assert_same_bits("run", resumed, "whole", whole)


class Resuming(PipelineTest):
    def test_any_pipeline_goes_on_from_any_other_with_the_same_bits(self):
        for config in (LLAMA, TRIMODAL):
            whole = self.train(config, "whole", "dp=1")
            saved = self.train(config, "saved", "pp=2", "--steps", 3)
            checkpoint = self.path("saved", "checkpoints", "step-3")
            self.assertEqual(only_json(self, orthant("checkpoint", "inspect", checkpoint, "--json"))["mesh"], "pp=2")
            self.assertEqual(orthant("checkpoint", "verify", checkpoint).returncode, 0)
            for mesh, *more in (("dp=1",), ("pp=4", "parallel.schedule=zbv"), ("pp=3", "parallel.schedule=gpipe")):
                run = f"resumed-{mesh}"
                resumed = self.train(config, run, mesh, "--resume", checkpoint, *settings(*more))
                self.assertEqual(self.lines(run), self.lines("whole")[3:], run)
                self.assertEqual((resumed["weights_hash"], resumed["eval"]), (whole["weights_hash"], whole["eval"]), run)
            for mesh in ("dp=2", "pp=2,tp=2") if config is LLAMA else ("pp=2,dp=2",):
                loaded = self.train(config, f"loaded-{mesh}", mesh, "--resume", checkpoint, "--steps", 3)
                self.assertEqual(loaded["weights_hash"], saved["weights_hash"], mesh)
                self.train(config, f"resumed-{mesh}", mesh, "--resume", checkpoint)
                for found, wanted in zip(self.lines(f"resumed-{mesh}"), self.lines("whole")[3:], strict=True):
                    self.assert_close(found, wanted, 1e-3, (mesh, wanted["step"]))
            for run in os.listdir(self.folder):
                if os.path.isdir(self.path(run)):
                    os.rename(self.path(run), self.path(f"{run}-{config['name']}"))

    def test_one_run_wanders_over_pipelines(self):
        whole = self.train(LLAMA, "whole", "dp=1")
        for step, mesh, schedule in ((1, "dp=1", "1f1b"), (2, "pp=2", "1f1b"), (3, "pp=4", "zbv"), (4, "dp=1", "gpipe"), (5, "pp=3", "zbh1"),
                                     (6, "pp=2", "interleaved")):
            result = self.train(LLAMA, "run", mesh, "--resume", "auto", "--steps", step, "--set", f"parallel.schedule={schedule}")
        self.assertEqual(self.lines("run"), self.lines("whole"))
        self.assertEqual(result["weights_hash"], whole["weights_hash"])

    def test_other_commands_read_a_pipelines_checkpoint(self):
        one = self.train(LLAMA, "one", "dp=1", "--steps", 1)
        self.train(LLAMA, "run", "pp=3", "--steps", 1)
        for run in ("one", "run"):
            only_json(self, orthant("checkpoint", "export", self.path(run, "checkpoints", "step-1"), self.path(f"{run}-exported"), "--format",
                                    "huggingface", "--json"))
        with open(self.path("one-exported", "model.safetensors"), "rb") as a, open(self.path("run-exported", "model.safetensors"), "rb") as b:
            self.assertEqual(a.read(), b.read())
        only_json(self, orthant("checkpoint", "import", self.path("run-exported"), self.path("imported"), "--json"))
        for mesh in ("pp=4", "dp=1"):
            loaded = self.train(LLAMA, f"from-{mesh}", mesh, "--steps", 0, "--resume", self.path("imported"))
            self.assertEqual(loaded["weights_hash"], one["weights_hash"], mesh)


class Stopping(PipelineTest):
    def test_a_signal_saves_exits_75_and_a_resumed_run_is_the_undisturbed_one(self):
        for victim, run in ((lambda job: job.pid, "all"), (lambda job: children(job.pid)[1], "one")):
            job = self.start(LLAMA, run, "pp=2")
            ranks = children(job.pid)
            os.kill(victim(job), signal.SIGTERM)
            _, errors = job.communicate(timeout=30)
            self.assertEqual(job.returncode, 75, errors)
            self.assertIn(f"go on with orthant train --config {run}/config.json --output-dir {run} --resume auto\n", errors)
            self.assertFalse(any(is_alive(pid) for pid in ranks))
            step = self.lines(run)[-1]["step"]
            self.assertEqual(sorted(os.listdir(self.path(run, "checkpoints"))), ["latest", f"step-{step}"])
            for rank in range(2):
                with open(self.path(run, "log", f"rank-{rank}.log")) as f:
                    self.assertIn(f"stopped on request after step {step}", f.read())
            last = step + 3
            resumed = self.train(LLAMA, run, "pp=2", *ENDLESS, "--resume", "auto", "--steps", last)
            whole = self.train(LLAMA, f"{run}-whole", "dp=1", *ENDLESS, "--steps", last)
            self.assertEqual(resumed["weights_hash"], whole["weights_hash"])
            self.assertEqual(self.lines(run), self.lines(f"{run}-whole"))

    def test_a_killed_rank_is_started_again_from_the_last_checkpoint(self):
        words = ("--set", "checkpoint.save_every=4", "--steps", 60)
        job = self.start(LLAMA, "run", "pp=2", *words, "--max-restarts", 1, "--resume", "auto")
        self.assertTrue(wait_until(lambda: self.num_lines("run") > 9, 30))
        os.kill(children(job.pid)[1], signal.SIGKILL)
        output, errors = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 0, errors)
        self.assertIn("rank 1: killed by SIGKILL", errors)
        self.assertRegex(errors, r"at step \d")
        whole = self.train(LLAMA, "whole", "dp=1", *ENDLESS, *words)
        self.assertEqual(json.loads(output)["weights_hash"], whole["weights_hash"])
        self.assertEqual(self.lines("run"), self.lines("whole"))


class Folders(PipelineTest):
    """Weights that training starts from, in a Hugging Face folder."""

    def exported(self, name, config):
        self.train({**config, "name": name}, f"{name}-source", "dp=1", "--steps", 1)
        only_json(self, orthant("checkpoint", "export", self.path(f"{name}-source", "checkpoints", "step-1"), self.path(name), "--format", "huggingface",
                                "--json"))
        return self.path(name)

    def bytes_read(self, run, ranks):
        """What every rank says it read."""
        sizes = {"B": 1, "KiB": 1024, "MiB": 1 << 20}
        found = []
        for rank in range(ranks):
            with open(self.path(run, "log", f"rank-{rank}.log")) as f:
                said = re.findall(r"read ([\d.]+) (\w+) of weights", f.read())
            self.assertLessEqual(len(said), 1)
            found.append(sum(float(number) * sizes[unit] for number, unit in said))
        return found

    def check(self, name, config, meshes):
        one = self.train(config, f"{name}-one", "dp=1")
        (whole,) = self.bytes_read(f"{name}-one", 1)
        self.assertGreater(whole, 0)
        for mesh in meshes:
            run, ranks = f"{name}-{mesh}", int(mesh[3:])
            self.assert_same_bits(run, self.train(config, run, mesh), f"{name}-one", one)
            yield whole, self.bytes_read(run, ranks)

    def test_every_rank_reads_its_stages_alone(self):
        for tied in (False, True):
            name = f"llama-{tied}"
            source = {**LLAMA, "model": {**LLAMA["model"], "tie_word_embeddings": tied}}
            folder = self.exported(name, source)
            again = 67 * 32 * 4 if tied else 0  # the last stage has the table, too
            for whole, read in self.check(f"{name}-loaded", {**source, "name": f"{name}-loaded", "model": {"path": folder}}, ("pp=2", "pp=4")):
                self.assertAlmostEqual(sum(read), whole + again, delta=0.02 * whole)
                self.assertGreater(min(read), 0)
                self.assertLess(max(read), 1.5 * (whole + again) / len(read), read)

    def test_a_tower_is_read_where_its_stage_lies(self):
        bert = {**LLAMA, "model": {"kind": "bert", "preset": "bert-tiny", **SIZES, "num_hidden_layers": 2, "vocab_size": 512}}
        folder = self.exported("bert", bert)
        model = {**TRIMODAL["model"], "primary": {"path": folder}}
        towers = {**TRIMODAL, "name": "towers", "model": model, "parallel": {"microbatches": 4, "split": [
            ["primary.embed", "primary.layers.0", "primary.layers.1", "primary.pooler"],
            ["secondary.embed", "secondary.layers.0", "secondary.layers.1", "secondary.pooler", "tabular", "fusion", "loss"]]}}
        for whole, read in self.check("towers", towers, ("pp=2",)):
            self.assertEqual(read, [whole, 0])


class Configurations(PipelineTest):
    """The files in configs/, with layers and batches made small."""

    SMALL = {"trimodal": ("primary.hidden_size=32", "primary.intermediate_size=48", "primary.vocab_size=512", "secondary.hidden_size=32",
                          "secondary.intermediate_size=48", "secondary.vocab_size=512"),
             "llama": ("hidden_size=48", "intermediate_size=64", "vocab_size=256")}

    def test_they_train_the_bits_of_one_rank(self):
        for name, ranks in (("trimodal_pp2", 2), ("trimodal_pp4", 4), ("trimodal_branch", 2), ("llama_pp", 2)):
            kind = name.split("_", maxsplit=1)[0]
            path = os.path.join(SOURCE, "configs", f"{name}.json")
            small = settings(*(f"model.{value}" for value in self.SMALL[kind]), "data.sequence_length=16")
            result = only_json(self, orthant("train", "--config", path, *small, "--steps", 2, "--output_dir", name, "--json", cwd=self.folder))
            self.assertEqual((result["steps"], result["world_size"], result["mesh"]["pp"]), (2, ranks, ranks), name)
            with open(path) as f:
                document = json.load(f)
            same = settings(f"parallel.microbatches={document['parallel']['microbatches']}")
            compared = only_json(self, orthant("parity", "--config", path, *small, *same, "--mesh", f"pp={ranks}", "--against", "one", "--dtype",
                                               "float32", "--steps", 2, "--json", cwd=self.folder))
            self.assertEqual((compared["pass"], compared["bitwise"]), (True, True), name)


if __name__ == "__main__":
    unittest.main()
