"""What users of other stacks met and reported, and must not meet here: a test per complaint, named after it. docs/complaints.md has the table.

Gradients are looked at from outside: a step of plain SGD with a learning rate of 1 in float64 changes every weight by its gradient, and checkpoints
hold the weights before and after. So what `metrics.jsonl` and `orthant parity` say is not taken on trust."""
import json
import math
import os
import re
import unittest

from checkpoint_weights import read_weights
from dry_run import DryRun
from pipeline_parity import SCHEDULES
from program import FolderTest, only_json, orthant

# First weights are large enough for attention to differ from a mean: queries and keys have gradients that count.
SIZES = {"hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 25, "num_hidden_layers": 4, "vocab_size": 67, "initializer_range": 0.3}
LLAMA = {"kind": "llama", "preset": "llama-tiny", **SIZES, "num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True, "attention_dropout": 0.1}
TIED = {**LLAMA, "tie_word_embeddings": True}
GPT2 = {"kind": "gpt2", "preset": "gpt2-tiny", **SIZES, "resid_pdrop": 0.1}
BERT = {**SIZES, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
MASKED_LM = {"kind": "bert", "preset": "bert-tiny", **BERT}
TOWER = {**BERT, "num_hidden_layers": 2, "vocab_size": 167}
TRIMODAL = {"kind": "trimodal", "preset": "trimodal-tiny", "primary": TOWER, "secondary": TOWER, "tabular": {"input_dim": 8}, "class_weights": [1.0, 9.0]}
# Messages and state that are large beside what a step needs for a while.
LARGE = {"kind": "llama", "preset": "llama-tiny", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 160,
         "num_hidden_layers": 6, "vocab_size": 1024}
TOKENS = {"kind": "tokens", "sequence_length": 6, "samples": 96}
PAIRS = {"kind": "random", "sequence_length": 7, "secondary_length": 5, "samples": 96}
TEXTS = {"kind": "trimodal_demo", "sequence_length": 22, "secondary_length": 22, "samples": 96}  # of 16 tokens and more
FLOAT64 = {"params": "float64", "compute": "float64", "reduce": "float64"}
SGD = {"optimizer": {"kind": "sgd", "lr": 1.0, "momentum": 0, "weight_decay": 0, "clip": 0}, "precision": FLOAT64}
ADAMW = {"optimizer": {"kind": "adamw", "lr": 1e-3, "clip": 0.5, "weight_decay": 0.1}}


def config(model, data, training, **sections):
    """Settings of a whole run."""
    return {"seed": 3, "model": model, "data": data, "lr_schedule": {"kind": "constant"}, "train": {"global_batch_size": 12, "steps": 50}, **training, **sections}


# Two stages that weigh some MiB, beside which buffers of messages and the like are small.
STAGES = config(LARGE, {"kind": "tokens", "sequence_length": 64, "samples": 64}, {"optimizer": {"kind": "adamw"}}, parallel={"microbatches": 4},
                train={"global_batch_size": 8, "steps": 50})


def pp_of(schedule):
    """Ranks that give four stages."""
    return 2 if schedule in ("interleaved", "zbv") else 4


def norm(numbers):
    return math.sqrt(math.fsum(x * x for x in numbers))


class ComplaintTest(FolderTest):
    def setUp(self):
        super().setUp()
        self.runs = 0

    def words(self, document, mesh, settings, option="--set"):
        path = self.path(f"config-{self.runs}.json")
        with open(path, "w") as f:
            json.dump(document, f)
        return ["--config", path, "--mesh", mesh, *(word for setting in settings for word in (option, setting))]

    def train(self, document, mesh, *settings, steps=1, words=()):
        """The closing document of a run, and its lines of metrics and its folder."""
        self.runs += 1
        run = self.path(f"run-{self.runs}")
        result = only_json(self, orthant("train", *self.words(document, mesh, settings), "--output_dir", run, "--steps", steps, "--json", *words))
        with open(os.path.join(run, "metrics.jsonl")) as f:
            return {**result, "lines": [json.loads(line) for line in f], "folder": run}

    def dry_run(self, document, mesh, *settings):
        finished = orthant("train", *self.words(document, mesh, settings), "--dry-run", "--verbose", cwd=self.folder)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        return finished.stdout

    def compared(self, document, mesh, *settings, words=()):
        """With one rank and one microbatch, or what the document says."""
        finished = orthant("parity", *self.words(document, mesh, settings, "--vary"), "--json", *words)
        self.assertIn(finished.returncode, (0, 1), f"{mesh} {settings}: {finished.stderr[-800:]}")
        return json.loads(finished.stdout)

    def assert_parity(self, document, mesh, *settings, words=()):
        result = self.compared(document, mesh, *settings, words=words)
        self.assertTrue(result["pass"] and result["replicas_equal"], (mesh, settings, result))

    def weights(self, result):
        """Whole tensors of the run's last checkpoint by name."""
        return read_weights(os.path.join(result["folder"], "checkpoints", f"step-{result['steps']}"))[0]

    def gradients(self, document, mesh, *settings, before=None, **options):
        """Of one step of SGD: what it took off every weight; and the run."""
        before = before or self.weights(self.train(document, "dp=1", steps=0))
        result = self.train(document, mesh, *settings, **options)
        after = self.weights(result)
        self.assertEqual(sorted(after), sorted(before))
        return {name: [a - b for a, b in zip(before[name], after[name], strict=True)] for name in before}, result

    def assert_close(self, found, wanted, message, tolerance=1e-9):
        self.assertLessEqual(abs(found - wanted), tolerance * abs(wanted), message)

    def assert_gradient_of_the_loss(self, document):
        """Steps along it lower the loss of the only batch there is as they must: neither sums nor means are out by a factor."""
        rate = 1e-7
        small = {**document, "data": {**document["data"], "samples": document["train"]["global_batch_size"]}}
        first, second = self.train(small, "dp=1", f"optimizer.lr={rate}", steps=2)["lines"]
        self.assert_close((first["loss"] - second["loss"]) / rate, first["grad_norm"] ** 2, "loss over a step", 1e-3)

    def assert_same_gradients(self, found, wanted, message):
        """Each parameter's, in proportion to itself."""
        largest = max(abs(x) for numbers in wanted.values() for x in numbers)
        for name, numbers in wanted.items():
            scale = max(max(map(abs, numbers)), 1e-4 * largest)
            error = max(abs(a - b) for a, b in zip(found[name], numbers, strict=True)) / scale
            self.assertLess(error, 1e-8, (*message, name))


class Complaints(ComplaintTest):
    def test_06_skip_connections_cross_stages_under_every_schedule(self):
        """primary.pooled goes from the second of four stages to the last one, over the third."""
        split = [["primary.embed", "primary.layers.0"], ["primary.layers.1", "primary.pooler"],
                 ["secondary.embed", "secondary.layers.0", "secondary.layers.1"], ["secondary.pooler", "tabular", "fusion", "loss"]]
        document = config(TRIMODAL, PAIRS, ADAMW, parallel={"microbatches": 6, "split": split})
        at_pp_1 = self.dry_run(document, "pp=4").partition("Schedule of a step at pp 1,")[2].partition("Schedule of")[0]
        self.assertIn("\n  send primary.pooled m0 -> 3\n", at_pp_1)
        self.assertIn("\n  receive_gradient primary.pooled of fusion m0 <- 3\n", at_pp_1)
        one = self.train(document, "dp=1", steps=3)
        for schedule in SCHEDULES:
            result = self.train(document, f"pp={pp_of(schedule)}", f"parallel.schedule={schedule}", steps=3)
            self.assertEqual(result["weights_hash"], one["weights_hash"], schedule)
            self.assertEqual([line["loss"] for line in result["lines"]], [line["loss"] for line in one["lines"]], schedule)

    def test_08_tied_embedding_under_a_pipeline_is_one_parameter(self):
        document = config(TIED, TOKENS, ADAMW, parallel={"microbatches": 3})
        one = self.train(document, "dp=1", steps=3)
        table = SIZES["vocab_size"] * SIZES["hidden_size"]
        self.assertEqual(one["parameters"], self.train(config(LLAMA, TOKENS, ADAMW), "dp=1", steps=0)["parameters"] - table)
        for mesh, schedule in (("pp=2", "1f1b"), ("pp=3", "zbv")):
            result = self.train(document, mesh, f"parallel.schedule={schedule}", steps=3)
            self.assertEqual(result["parameters"], one["parameters"], mesh)
            self.assertEqual(result["weights_hash"], one["weights_hash"], mesh)
            tables = {name: len(numbers) for name, numbers in self.weights(result).items() if len(numbers) == table}
            self.assertEqual(tables, {"embed.weight": table}, mesh)
            self.assertEqual([line["grad_norm"] for line in result["lines"]], [line["grad_norm"] for line in one["lines"]], mesh)
        apart = self.compared(document, "pp=2", words=("--inject", "skip-reduce=pp:embed.weight"))  # two parameters that drift apart
        self.assertEqual((apart["pass"], apart["first_difference"], apart["replicas_equal"]), (False, "embed.weight", False))

    def test_09_gradient_norm_is_global_under_pp_fsdp_tp(self):
        """The norm of metrics is one rank's, and clipping by it scales the gradient of every parameter on every rank alike, of a tied one too."""
        document = config(TIED, TOKENS, SGD)
        before = self.weights(self.train(document, "dp=1", steps=0))
        wanted, one = self.gradients(document, "dp=1", before=before)
        whole = one["lines"][0]["grad_norm"]
        self.assert_close(norm(x for numbers in wanted.values() for x in numbers), whole, "one rank")
        quarter = {name: [x / 4 for x in numbers] for name, numbers in wanted.items()}
        for mesh in ("pp=2,fsdp=2,tp=2", "pp=3,dp=2"):
            found, result = self.gradients(document, mesh, "parallel.microbatches=2", f"optimizer.clip={whole / 4!r}", before=before)
            self.assert_close(result["lines"][0]["grad_norm"], whole, mesh)
            self.assert_same_gradients(found, quarter, (mesh,))

    def test_10_norm_omits_no_parameter_and_unequal_degrees_mix_no_gradients(self):
        """Every kind of parameter, key/value heads that are copied over tp, degrees that do not divide each other."""
        for name, model, data, meshes in (("llama", LLAMA, TOKENS, ("fsdp=3,tp=2", "pp=2,tp=4")), ("gpt2", GPT2, TOKENS, ("pp=2,tp=2",)),
                                          ("trimodal", TRIMODAL, PAIRS, ("pp=2,fsdp=3",))):
            document = config(model, data, SGD)
            before = self.weights(self.train(document, "dp=1", steps=0))
            wanted, _ = self.gradients(document, "dp=1", before=before)
            for mesh in meshes:
                more = ("parallel.sequence_parallel=true", "parallel.loss_parallel=true") if "tp" in mesh else ("parallel.zero=2",)
                found, result = self.gradients(document, mesh, *more, before=before)
                self.assertEqual(sum(map(len, found.values())), result["parameters"], (name, mesh))
                squares = {parameter: math.fsum(x * x for x in numbers) for parameter, numbers in found.items()}
                told = result["lines"][0]["grad_norm"]
                self.assert_close(told, math.sqrt(math.fsum(squares.values())), (name, mesh), 1e-13)
                # The norm without any one parameter would have been another number, but for keys' biases, whose gradient is none.
                unseen = [p for p, square in squares.items() if square < 1e-12 * told**2]
                self.assertTrue(all(re.search(r"(wk|key)\.bias$", parameter) for parameter in unseen), unseen)
                self.assert_same_gradients(found, wanted, (name, mesh))

    def test_11_pipeline_gradients_are_not_scaled_by_tokens(self):
        """Microbatches whose targets weigh differently: the gradient is that of the whole batch's mean, whatever number of them runs where."""
        tower = {**TOWER, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
        document = config({**TRIMODAL, "primary": tower, "secondary": tower, "fusion": {"dropout": 0}}, PAIRS, SGD)
        before = self.weights(self.train(document, "dp=1", steps=0))
        wanted, one = self.gradients(document, "dp=1", before=before)
        for mesh, schedule in (("pp=2", "1f1b"), ("pp=2,dp=2", "zbh1")):
            found, result = self.gradients(document, mesh, "parallel.microbatches=3", f"parallel.schedule={schedule}", before=before)
            self.assert_close(result["lines"][0]["loss"], one["lines"][0]["loss"], mesh)
            self.assert_same_gradients(found, wanted, (mesh,))
        self.assert_gradient_of_the_loss(document)
        # The mean of the microbatches' own means would have been another loss.
        parts = self.train(document, "dp=1", "train.global_batch_size=4", "optimizer.lr=1e-30", steps=3)["lines"]
        self.assertGreater(abs(sum(line["loss"] for line in parts) / 3 - one["lines"][0]["loss"]), 1e-6)
        # Some 15% of the tokens, more in one row than in the next, are targets.
        self.assert_parity(config(MASKED_LM, TOKENS, SGD), "pp=2", "parallel.microbatches=6")

    def test_12_an_axis_of_degree_one_doubles_nothing(self):
        """Whichever axes are named with degree 1, in every microbatch and with both ways to accumulate."""
        document = config({**LLAMA, "attention_dropout": 0}, TOKENS, SGD)
        before = self.weights(self.train(document, "dp=1", steps=0))
        wanted, one = self.gradients(document, "dp=1", before=before)
        self.assert_gradient_of_the_loss(document)
        for mesh, accumulate in (("pp=1,dp=1,fsdp=1,tp=1", "full"), ("pp=1,dp=1,fsdp=1,tp=1", "sharded"), ("pp=2,dp=1,fsdp=1", "sharded"),
                                 ("dp=1,fsdp=2", "sharded"), ("dp=1,fsdp=1,tp=2", "full")):
            found, result = self.gradients(document, mesh, "parallel.microbatches=3", f"parallel.accumulate={accumulate}", before=before)
            self.assert_close(result["lines"][0]["grad_norm"], one["lines"][0]["grad_norm"], (mesh, accumulate))
            self.assert_same_gradients(found, wanted, (mesh, accumulate))

    def test_13_loss_is_the_same_on_every_tp_degree(self):
        """Dropout on, one seed; a vocabulary and an MLP that no degree divides."""
        model = {**LLAMA, "hidden_size": 24, "num_attention_heads": 12, "num_key_value_heads": 12, "num_hidden_layers": 2, "intermediate_size": 25}
        document = config(model, TOKENS, ADAMW, precision=FLOAT64)
        one = self.train(document, "dp=1", steps=3)
        losses = [line["loss"] for line in one["lines"]]
        sequence, loss = "parallel.sequence_parallel=true", "parallel.loss_parallel=true"
        for degree, settings in ((2, ()), (3, (sequence, loss)), (6, (loss,))):
            result = self.train(document, f"tp={degree}", *settings, steps=3)
            for found, wanted in zip(result["lines"], one["lines"], strict=True):
                for key in ("loss", "grad_norm"):
                    self.assert_close(found[key], wanted[key], (degree, key))
        plain = self.train(document, "tp=2", "model.attention_dropout=0", steps=3)
        self.assertGreater(abs(plain["lines"][2]["loss"] - losses[2]), 1e-6)  # dropout has its say

    def test_14_replicated_parameters_do_not_drift_over_tp(self):
        """Fifty steps in float32: ranks that hold the same elements hold the same bits."""
        for model, mesh, more in ((LLAMA, "tp=4", "false"), (GPT2, "tp=2", "true")):
            result = self.compared(config(model, TOKENS, ADAMW), mesh, f"parallel.sequence_parallel={more}", words=("--dtype", "float32", "--steps", 50))
            self.assertTrue(result["replicas_equal"], mesh)
            self.assertLess(result["max_relative_error"]["loss"], 1e-4, mesh)
        drifted = self.compared(config(LLAMA, TOKENS, ADAMW), "tp=2", "parallel.sequence_parallel=true",
                                words=("--inject", "skip-reduce=tp:layers.1.norm1.weight"))
        self.assertEqual((drifted["pass"], drifted["replicas_equal"]), (False, False))

    def test_15_initial_weights_do_not_depend_on_the_mesh(self):
        for model, data, meshes in ((LLAMA, TOKENS, ("fsdp=3", "tp=4", "pp=3", "pp=2,dp=2,tp=2")), (TIED, TOKENS, ("pp=2,fsdp=2,tp=2",)),
                                    (TRIMODAL, PAIRS, ("pp=2,fsdp=2,tp=2",))):
            document = config(model, data, ADAMW)
            one = self.train(document, "dp=1", steps=0)
            for mesh in meshes:
                result = self.train(document, mesh, *(("parallel.schedule=zbv",) if mesh == "pp=3" else ()), steps=0)
                self.assertEqual(result["weights_hash"], one["weights_hash"], (model["kind"], mesh))
            self.assertEqual(self.weights(result), self.weights(one))  # of the last mesh, without the hash
        self.assertNotEqual(self.train(document, "pp=2", "seed=4", steps=0)["weights_hash"], one["weights_hash"])

    def test_19_messages_between_stages_cannot_deadlock(self):
        """Messages both ways at the same time, more of them than receives are posted; large ones fit into no buffer of a connection."""
        small = config(LLAMA, TOKENS, ADAMW, parallel={"microbatches": 6})
        wide = {**LARGE, "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 8, "num_hidden_layers": 2, "vocab_size": 8}
        large = config(wide, {"kind": "tokens", "sequence_length": 16, "samples": 1728}, ADAMW, parallel={"microbatches": 3},
                       train={"global_batch_size": 1728, "steps": 50})
        self.assertIn("pp 0: over pp it sends 3.4 MiB in 3 messages", self.dry_run(large, "pp=4"))
        for document, schedules, backends in ((small, ("gpipe", "interleaved", "zbh1"), (("gloo", "--check-collectives"),)),
                                              (large, ("1f1b", "zbv"), (("gloo",), ("shm",)))):
            one = self.train(document, "dp=1")
            for schedule in schedules:
                for backend in backends:
                    result = self.train(document, f"pp={pp_of(schedule)}", f"parallel.schedule={schedule}", words=("--timeout", 20, "--backend", *backend))
                    self.assertEqual(result["weights_hash"], one["weights_hash"], (schedule, backend))
        # A table of actions that would wait for each other never starts.
        with open(self.path("table.txt"), "w") as f:
            f.write("0F0 0BW0 0F1 0BW1\n1F0 1F1 1BW0 1BW1\n")
        words = self.words(small, "pp=2", (f"parallel.schedule={self.path('table.txt')}", "parallel.microbatches=2"))
        refused = orthant("train", *words, "--output_dir", self.path("never"))
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("deadlock: pp 0", refused.stderr)

    def assert_predicted(self, document, mesh, *settings):
        """What a dry run says of the fullest stage is what that stage takes, with little besides; returns which one it is."""
        told = DryRun(self.dry_run(document, mesh, *settings))
        predicted = max(told.peaks)
        measured = self.train(document, mesh, *settings, steps=2)["lines"][-1]["peak_memory_bytes"]
        self.assertLess(abs(measured - predicted), 0.1 * measured, (mesh, settings, predicted, measured))
        return told.fullest

    def test_21_stages_are_balanced_and_memory_is_bounded(self):
        cut = re.compile(r"the heaviest at ([\d.]+) of the mean\n  stage 0 on pp 0: embed, layers\.0-(\d)\n")
        imbalance, last = cut.search(self.dry_run(STAGES, "pp=2")).groups()
        self.assertEqual(last, "3")  # two layers beside the head, four beside the embedding
        by_name = {}
        for count in (2, 3, 5):
            split = [["embed", *(f"layers.{i}" for i in range(count))], [*(f"layers.{i}" for i in range(count, 6)), "head", "loss"]]
            by_name[count] = f"parallel.split={json.dumps(split)}"
            self.assertLess(float(imbalance), float(cut.search(self.dry_run(STAGES, "pp=2", by_name[count])).group(1)), count)
        stages = [self.assert_predicted(STAGES, mesh, *settings) for mesh, *settings in (("pp=2", by_name[2]), ("pp=2", by_name[5]), ("pp=2,fsdp=2",))]
        self.assertEqual(stages[:2], [1, 0])
        # A bound on a rank's memory moves the cut, and is kept.
        free = max(DryRun(self.dry_run(STAGES, "pp=2")).peaks)
        held = max(DryRun(self.dry_run(STAGES, "pp=2", f"parallel.split_memory_gb={0.9 * free / 2**30}")).peaks)
        self.assertLess(held, 0.9 * free)
        refused = orthant("train", *self.words(STAGES, "pp=2", (f"parallel.split_memory_gb={0.5 * free / 2**30}",)), "--dry-run")
        self.assertEqual(refused.returncode, 2, refused.stdout)
        self.assertRegex(refused.stderr, r"stages that fit into [\d.]+ MiB per rank: .* stage \d .* needs [\d.]+ MiB\n  fix: set parallel.split_memory_gb=0")

    def test_21_memory_of_zero_bubble_is_told_before_it_runs(self):
        """What waits for the weights' gradients is counted, recomputed or not."""
        for schedule, recompute in (("zbh1", "full"), ("zbv", "none")):
            self.assert_predicted(STAGES, "pp=2", f"parallel.schedule={schedule}", f"parallel.recompute={recompute}")

    def test_22_zero_bubble_composes(self):
        """With replicas, sharded parameters, tensor parallelism, recomputation and masks of padded texts."""
        document = config(TRIMODAL, TEXTS, ADAMW)
        for schedule, mesh, *more in (("zbh1", "pp=2,dp=2", "recompute=full"), ("zbh1", "pp=2,fsdp=2", "zero=3", "accumulate=sharded"),
                                      ("zbv", "pp=2,tp=2", "recompute=selective", "sequence_parallel=true"), ("zbv", "pp=2,fsdp=2", "zero=3", "recompute=full")):
            settings = (f"parallel.{setting}" for setting in (f"schedule={schedule}", "microbatches=3", *more))
            self.assert_parity(document, mesh, *settings)
        # Recomputing does not keep more than it saves.
        kept, recomputed = (self.train(STAGES, "pp=2", "parallel.schedule=zbh1", f"parallel.recompute={value}")["lines"][0]["peak_memory_bytes"]
                            for value in ("none", "full"))
        self.assertLess(recomputed, 0.9 * kept)

    def test_23_zero_2_and_3_run_under_a_pipeline(self):
        """One rank's numbers, and shards in truth: each rank holds less than with zero 0."""
        document = config(TIED, TOKENS, ADAMW)
        for schedule, zero, accumulate in (("1f1b", 3, "sharded"), ("interleaved", 3, "full"), ("zbv", 2, "sharded")):
            self.assert_parity(document, "pp=2,fsdp=2", f"parallel.schedule={schedule}", "parallel.microbatches=3", f"parallel.zero={zero}",
                               f"parallel.accumulate={accumulate}")
        deep = config({**LARGE, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 16, "vocab_size": 67}, TOKENS, SGD, parallel={"microbatches": 2},
                      train={"global_batch_size": 8, "steps": 50})
        held = [self.train(deep, "pp=2,fsdp=4", f"parallel.zero={zero}", f"parallel.accumulate={accumulate}")["lines"][0]["peak_memory_bytes"]
                for zero, accumulate in ((0, "full"), (2, "sharded"), (3, "sharded"))]
        self.assertLess(held[1], 0.85 * held[0], held)
        self.assertLess(held[2], 0.85 * held[1], held)


class Texts(ComplaintTest):
    def table_of_texts(self):
        """Rows of 2 to 40 words; as a data section."""
        words = [f"word{number}" for number in range(40)]
        rows = [f"{' '.join(words[:2 + row * 17 % 39])},{' '.join(words[row % 7:][:2 + row * 5 % 31])},{row % 10},{row * 7 % 13},{row % 2}" for row in range(96)]
        with open(self.path("table.csv"), "w") as f:
            f.write("\n".join(("first,second,x,y,label", *rows)) + "\n")
        only_json(self, orthant("data", "make-vocabulary", "--data", self.path("table.csv"), "--columns", "first,second", "--size", 160, "--out",
                                self.path("vocab.txt"), "--json"))
        return {"kind": "trimodal", "path": self.path("table.csv"), "primary_text": "first", "secondary_text": "second", "tabular": ["x", "y"],
                "label": "label", "tokenizer": self.path("vocab.txt"), "sequence_length": 48}

    def test_24_shapes_may_vary_per_microbatch(self):
        """Texts of a file are padded to the longest of their microbatch; the mask goes with them. Own modules: tests/train/complaints_test.cpp."""
        model, data = {**TRIMODAL, "tabular": {"input_dim": 2}}, self.table_of_texts()
        self.assert_parity(config(model, data, ADAMW), "pp=2", "parallel.microbatches=6", "parallel.schedule=zbh1")  # against one microbatch
        document = config(model, data, ADAMW, parallel={"microbatches": 6})
        one = self.train(document, "dp=1", steps=2)
        for schedule in ("1f1b", "interleaved", "zbv"):
            result = self.train(document, f"pp={pp_of(schedule)}", f"parallel.schedule={schedule}", steps=2)
            self.assertEqual(result["weights_hash"], one["weights_hash"], schedule)
            self.assertEqual([line["loss"] for line in result["lines"]], [line["loss"] for line in one["lines"]], schedule)
        full = self.train(document, "dp=1", "data.padding=full", steps=2)
        self.assertNotEqual(full["weights_hash"], one["weights_hash"])  # other shapes add up in another order: something was cut
        self.assert_close(full["final_loss"], one["final_loss"], "padding", 1e-5)


if __name__ == "__main__":
    unittest.main()
