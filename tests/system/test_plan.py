"""orthant plan and orthant estimate as users meet them: documents, text, refusals, and that what is recommended can be run."""
import json
import os
import shlex
import subprocess
import tempfile
import unittest

import crafted_models
from program import ORTHANT, only_json, orthant

STAGE_KEYS = ["parameters_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes", "logits_bytes", "temporary_bytes", "reserve_bytes",
              "total_bytes"]
PLAN_KEYS = ["mesh", "schedule", "virtual_stages", "micro_batch", "microbatches", "recompute", "zero", "sequence_parallel", "fits", "memory",
             "communication", "time", "tokens_per_second_per_gpu", "model_tflops_per_gpu", "mfu"]
TIME_KEYS = ["step_seconds", "compute_seconds", "bubble_seconds", "exposed_communication_seconds", "optimizer_seconds"]
REQUEST = ("--model", "llama3-8b", "--gpus", 16, "--gpu", "h100-80gb", "--global-batch", 64, "--seq", 4096)
ONE = ("--model", "llama3-8b", "--gpu", "h100-80gb", "--mesh", "pp=2,fsdp=4,tp=2", "--micro-batch", 1, "--global-batch", 64, "--seq", 4096)


def estimate_words(plan):
    """What `orthant estimate` is told to price a plan of `orthant plan` again."""
    mesh = ",".join(f"{axis}={degree}" for axis, degree in plan["mesh"].items() if degree > 1) or "dp=1"
    words = ["--mesh", mesh, "--micro-batch", plan["micro_batch"], "--global-batch", plan["global_batch"], "--seq", plan["sequence"], "--schedule",
             plan["schedule"], "--virtual", plan["virtual_stages"], "--zero", plan["zero"], "--recompute", plan["recompute"], "--split", "auto",
             "--accumulate", plan["accumulate"]]
    return words + [f"--{key.replace('_', '-')}" for key in ("sequence_parallel", "loss_parallel", "regather") if plan[key]]


class Documents(unittest.TestCase):
    def check_plan(self, plan):
        self.assertEqual(list(plan)[:len(PLAN_KEYS)], PLAN_KEYS)
        self.assertEqual(sorted(plan["mesh"]), ["cp", "dp", "ep", "fsdp", "pp", "tp"])
        stages = plan["memory"]["per_stage"]
        self.assertEqual(len(stages), plan["mesh"]["pp"])
        for stage in stages:
            self.assertEqual(list(stage), STAGE_KEYS)
            self.assertEqual(sum(stage[key] for key in STAGE_KEYS[:-1]), stage["total_bytes"])
        self.assertEqual(list(plan["time"]), TIME_KEYS)
        parts = sum(plan["time"][key] for key in TIME_KEYS[1:])
        self.assertAlmostEqual(parts, plan["time"]["step_seconds"], delta=1e-6 * parts)
        for key in ("tp_bytes", "pp_bytes", "dp_bytes"):
            self.assertIn(key, plan["communication"])
        tokens = plan["global_batch"] * plan["sequence"]
        cards = plan["mesh"]["pp"] * plan["mesh"]["dp"] * plan["mesh"]["fsdp"] * plan["mesh"]["cp"] * plan["mesh"]["tp"]
        self.assertAlmostEqual(plan["tokens_per_second_per_gpu"] * cards * plan["time"]["step_seconds"] / tokens, 1)
        self.assertTrue(0 < plan["mfu"] < 1)

    def test_plan(self):
        result = only_json(self, orthant("plan", *REQUEST, "--top", 3, "--json"))
        self.assertEqual(list(result)[:5], ["best", "plans", "rejected", "evaluated", "search_seconds"])
        self.assertEqual(len(result["plans"]), 3)
        self.assertEqual(result["best"], result["plans"][0])
        for plan in result["plans"]:
            self.check_plan(plan)
            self.assertTrue(plan["fits"])
        self.assertGreater(result["evaluated"], 1000)
        self.assertTrue(all(count > 0 for count in result["rejected"].values()))

    def test_estimate(self):
        plan = only_json(self, orthant("estimate", *ONE, "--json"))
        self.check_plan(plan)
        self.assertEqual((plan["schedule"], plan["virtual_stages"], plan["zero"], plan["recompute"]), ("1f1b", 1, 3, "none"))
        self.assertEqual(plan["microbatches"], 16)

    def test_estimate_hears_every_option(self):
        plain = only_json(self, orthant("estimate", *ONE, "--json"))
        for words in (("--schedule", "interleaved", "--virtual", 4), ("--zero", 1), ("--recompute", "full"), ("--sequence-parallel",),
                      ("--sequence-parallel", "--regather"), ("--grads", "bfloat16"), ("--split", "14,18"), ("--split", "auto"), ("--accumulate", "sharded"),
                      ("--stack", "megatron"), ("--stack", "megatron", "--flash", "off"), ("--stack", "torchtitan", "--recompute", "op"),
                      ("--gpus-per-node", 4), ("--join-head-and-loss", "off"), ("--loss-chunk-rows", 64), ("--deterministic",), ("--master", "bf16_remainder")):
            other = only_json(self, orthant("estimate", *ONE, *words, "--json"))
            self.assertNotEqual((plain["memory"], plain["time"]), (other["memory"], other["time"]), words)
        apart = ("--join-head-and-loss", "off")
        whole, cut = (only_json(self, orthant("estimate", *ONE, *apart, *words, "--json")) for words in ((), ("--loss-parallel",)))
        self.assertNotEqual((whole["memory"], whole["time"]), (cut["memory"], cut["time"]))
        for option, word, nearest in (("--context", "rings", "ring"), ("--shard-over-context", "of", "off"), ("--expert-tp", "onn", "on")):
            unknown = orthant("estimate", *ONE, option, word)
            self.assertEqual(unknown.returncode, 2, unknown.stderr)
            self.assertIn(f"{option} {word}: unknown value", unknown.stderr)
            self.assertIn(nearest, unknown.stderr.split("unknown value")[1])
        refused = orthant("estimate", *ONE, "--compute", "float32")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("16 bits", refused.stderr)

    def test_an_explicit_zero_shards_over_dp(self):
        def priced(*words):
            plan = only_json(self, orthant("estimate", "--model", "llama3-8b", "--gpu", "h100-80gb", "--micro-batch", 1, "--global-batch", 64,
                                           "--seq", 8192, "--json", *words))
            return plan["mesh"], plan["memory"], plan["communication"]

        for zero in (1, 2, 3):
            self.assertEqual(priced("--mesh", "dp=8", "--zero", zero), priced("--mesh", "fsdp=8", "--zero", zero))
        self.assertEqual(priced("--mesh", "dp=8")[0]["dp"], 8)

    def test_what_was_planned_is_estimated_alike(self):
        for request in (REQUEST, ("--model", "gpt2-xl", "--gpus", 8, "--gpu", "a100-40gb", "--global-batch", 64, "--seq", 1024),
                        ("--model", "llama3-70b", "--gpus", 64, "--gpu", "a100-80gb", "--global-batch", 128, "--seq", 4096)):
            for plan in only_json(self, orthant("plan", *request, "--json"))["plans"][:2]:
                again = only_json(self, orthant("estimate", *request[:2], *request[4:6], *estimate_words(plan), "--json"))
                self.assertEqual(again["memory"], plan["memory"])
                self.assertEqual(again["time"], plan["time"])
                self.assertEqual(again["communication"], plan["communication"])

    def test_underscores_and_dashes(self):
        words = [str(word).replace("--global-batch", "--global_batch") for word in REQUEST]
        self.assertTrue(only_json(self, orthant("plan", *words, "--gpus_per_node", 4, "--json"))["plans"])

    def test_strategies_differ(self):
        best = {name: only_json(self, orthant("plan", *REQUEST, "--strategy", name, "--json"))["best"] for name in ("throughput", "memory", "latency")}
        peak = {name: plan["memory"]["peak_bytes"] for name, plan in best.items()}
        self.assertLess(peak["memory"], peak["throughput"])
        self.assertLess(best["throughput"]["time"]["step_seconds"], best["memory"]["time"]["step_seconds"])
        self.assertEqual(best["latency"]["mesh"]["pp"], 1)

    def test_budget(self):
        result = only_json(self, orthant("plan", *REQUEST, "--tokens", "1e12", "--json"))
        days = 1e12 / (16 * result["best"]["tokens_per_second_per_gpu"]) / 86400
        self.assertAlmostEqual(result["budget"]["days"], days, delta=1e-6 * days)
        self.assertGreater(result["budget"]["dollars"], 0)

    def test_scaling_and_inference(self):
        result = only_json(self, orthant("plan", *REQUEST, "--scaling", "8,16,32", "--json"))
        self.assertEqual(len(result["scaling"]["points"]), 3)
        self.assertTrue(only_json(self, orthant("plan", "--inference", "--model", "llama3-8b", "--gpu", "a100-80gb", "--json")))


class Text(unittest.TestCase):
    def test_the_answer_comes_first_and_fits_the_terminal(self):
        for words in (("plan", *REQUEST), ("estimate", *ONE), ("plan", "--model", "llama3-405b", "--gpus", 64, *REQUEST[4:])):
            finished = orthant(*words)
            self.assertEqual(finished.returncode, 0, finished.stderr)
            self.assertLessEqual(max(map(len, finished.stdout.splitlines())), 100, finished.stdout)
        text = orthant("plan", *REQUEST).stdout
        self.assertTrue(text.startswith("llama3-8b (8B parameters) on 16 x h100-80gb"))
        places = [text.index(part) for part in ("mesh ", "fits ", "MFU ", "Memory of a card", "Run it", "The best 5", "Rejected")]
        self.assertEqual(places, sorted(places))

    def test_small_models_are_told_to_use_data_parallelism(self):
        text = orthant("plan", "--model", "gpt2", "--gpus", 8, "--gpu", "a100-80gb", "--global-batch", 512, "--seq", 1024).stdout
        self.assertIn("Plain data parallelism will do", text)
        self.assertIn("orthant init --model gpt2 run.json && orthant train --config run.json --mesh dp=8", text)

    def test_the_reserve_is_named_and_can_be_changed(self):
        text = orthant("plan", *REQUEST).stdout
        self.assertRegex(text, r"\nreserve +[\d.]+ GiB of the card, [\d.]+%, kept free of tensors \(--reserve PERCENT changes it\)\n")
        for share in (0, 25):
            stages = only_json(self, orthant("plan", *REQUEST, "--reserve", share, "--json"))["best"]["memory"]["per_stage"]
            self.assertEqual({round(100 * stage["reserve_bytes"] / 84932978278) for stage in stages}, {share})
        host = ("--model", "gpt2-tiny", "--gpus", 2, "--gpu", "cpu", "--global-batch", 8, "--seq", 64)
        self.assertIn("819.2 MiB of the card, 5.0%, kept free of tensors", orthant("plan", *host).stdout)
        self.assertIn("none: tensors may fill the card (--reserve PERCENT keeps some free)", orthant("plan", *host, "--reserve", 0).stdout)

    def test_several_nodes_are_said(self):
        self.assertIn("2 nodes: see docs/launch.md", orthant("plan", *REQUEST).stdout)
        self.assertNotIn("nodes: see", orthant("plan", *REQUEST, "--gpus-per-node", 16).stdout)

    def test_nothing_fits(self):
        request = ("plan", "--model", "llama3-405b", "--gpus", 8, "--gpu", "h100-80gb", "--global-batch", 8, "--seq", 8192)
        text = orthant(*request).stdout
        self.assertTrue(text.startswith("Nothing fits: llama3-405b"))
        self.assertIn("What would:", text)
        self.assertIn("cards", text[text.index("What would:"):])
        result = only_json(self, orthant(*request, "--json"))
        self.assertIsNone(result["best"])
        self.assertIsNone(result["run"])
        self.assertEqual(result["plans"], [])
        self.assertTrue(result["advice"][0]["effect"].startswith("fits"))

    def test_help_has_an_example(self):
        for command in ("plan", "estimate"):
            self.assertIn(f"Example:\n  orthant {command} --model", orthant(command, "--help").stdout)

    def test_a_page(self):
        with tempfile.TemporaryDirectory() as folder:
            for words in (("plan", *REQUEST, "--tokens", "1e12"), ("estimate", *ONE)):
                path = os.path.join(folder, words[0] + ".html")
                self.assertEqual(orthant(*words, "--html", path).returncode, 0)
                with open(path, encoding="utf-8") as page:
                    self.assertIn("llama3-8b", page.read())


class Refusals(unittest.TestCase):
    def refused(self, *words, has):
        finished = orthant(*words)
        self.assertEqual(finished.returncode, 2, finished.stdout + finished.stderr)
        self.assertEqual(finished.stdout, "")
        for part in has:
            self.assertIn(part, finished.stderr)

    def plan(self, *words, has):
        given = {REQUEST[i]: REQUEST[i + 1] for i in range(0, len(REQUEST), 2)}
        given.update({words[i]: words[i + 1] for i in range(0, len(words), 2)})
        self.refused("plan", *(word for pair in given.items() for word in pair if word is not None), has=has)

    def test_names(self):
        self.plan("--model", "llama3-8x", has=["llama3-8x", 'did you mean "llama3-8b"?'])
        self.plan("--gpu", "h100-80", has=["h100-80", 'did you mean "h100-80gb"?'])
        self.plan("--strategy", "latancy", has=["latancy", 'did you mean "latency"?'])
        self.plan("--grads", "bfloat61", has=["--grads bfloat61", 'did you mean "bfloat16"?'])
        self.refused("plan", *REQUEST, "--tops", 3, has=["--tops", "did you mean --top?"])
        self.refused("plan", "--seed001", has=["unknown option '--seed001'", "orthant plan --help"])
        self.refused("estimate", *ONE, "--stack", "megatorn", has=["megatorn", 'did you mean "megatron"?'])
        self.refused("estimate", *ONE, "--recompute", "ful", has=["ful", "full"])
        self.refused("estimate", *ONE, "--schedule", "1f2b", has=["1f2b", 'did you mean "1f1b"?'])
        self.refused("estimate", *ONE, "--flash", "maybe", has=["--flash maybe", "on"])
        self.refused("estimate", *ONE, "--join-head-and-loss", "of", has=['"of"', "off"])
        self.refused("estimate", *ONE, "--stack", "megatron", "--deterministic", has=["--deterministic", "--stack orthant"])
        self.refused("estimate", *ONE, "--compute", "float16", "--master", "bf16_remainder", has=["compute is float16", "--master float32"])

    def test_sizes(self):
        for count in (0, -3):
            self.plan("--gpus", count, has=[f"--gpus {count}", "at least 1"])
        self.plan("--global-batch", 0, has=["--global-batch 0", "at least 1"])
        self.plan("--seq", -1, has=["--seq -1", "at least 1"])
        self.plan("--top", 0, has=["--top 0", "at least 1"])
        self.plan("--seq", 8193, has=["llama3-8b has 8192 positions", "set --seq to at most 8192"])
        self.plan("--gpus-per-node", -8, has=["--gpus-per-node -8"])

    def test_a_batch_that_nothing_divides(self):
        self.refused("plan", "--model", "gpt2", "--gpus", 64, "--gpu", "a100-40gb", "--global-batch", 7, "--seq", 512,
                     has=["a global batch of 7 on 64 cards", "divides the batch", "set --global-batch 6 or 8"])
        self.refused("estimate", *ONE[:-4], "--global-batch", 66, "--seq", 4096, has=["66", "no multiple of 4"])

    def test_missing_options(self):
        for option in ("--model", "--gpus", "--gpu", "--global-batch", "--seq"):
            words = [word for i in range(0, len(REQUEST), 2) if REQUEST[i] != option for word in REQUEST[i:i + 2]]
            self.refused("plan", *words, has=[f"{option} is missing"])

    def test_what_train_refuses_estimate_refuses(self):
        mesh = ONE.index("--mesh") + 1
        for other, parts in (("tp=3", ["32 heads", "tp=3"]), ("pp=64", ["64 stages", "34 units"]), ("fsdp=3", ["64"])):
            self.refused("estimate", *ONE[:mesh], other, *ONE[mesh + 1:], has=parts)
        self.refused("estimate", *ONE, "--schedule", "zbv", "--virtual", 3, has=["zbv", "3"])
        self.refused("estimate", *ONE, "--zero", 1, "--accumulate", "sharded", has=["parallel.zero=2 or 3"])
        self.plan("--params", "bfloat16", has=["--params bfloat16", "float32"])


class Runs(unittest.TestCase):
    """What is recommended, `orthant train` accepts in the words that are printed."""

    MODEL = {"kind": "llama", "hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 192,
             "vocab_size": 256, "max_position_embeddings": 128}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name, document):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            json.dump(document, file)
        return path

    def card(self, memory_bytes):
        return self.path(f"card_{memory_bytes}.json", {"preset": "cpu", "memory_bytes": memory_bytes})

    def test_dry_runs(self):
        config = self.path("run.json", {"model": self.MODEL, "data": {"kind": "tokens", "sequence_length": 64, "samples": 64}, "train": {"steps": 1}})
        seen = set()
        for cards, batch, memory, strategy in ((4, 8, 1 << 34, "throughput"), (8, 16, 1 << 34, "latency"), (8, 32, 1 << 34, "memory"), (6, 12, 1 << 34, "throughput"),
                                               (8, 8, 3 << 20, "throughput"), (8, 16, 2 << 20, "throughput")):
            words = ("--model", config, "--gpus", cards, "--gpu", self.card(memory), "--global-batch", batch, "--seq", 64, "--strategy", strategy)
            plans = only_json(self, orthant("plan", *words, "--top", 8, "--json"))["plans"]
            self.assertTrue(plans, words)
            for plan in (plans[0], plans[-1]):
                seen.add(json.dumps(plan["mesh"]))
                finished = orthant("train", "--config", config, "--dry-run", *shlex.split(plan["train"]))
                self.assertEqual(finished.returncode, 0, f"{plan['train']}\n{finished.stderr}")
        self.assertGreater(len(seen), 4)

    # What the plan must take back where it plans otherwise.
    ODD = {"schedule": "zbv", "zero": 2, "recompute": "full", "split": "auto", "accumulate": "sharded", "sequence_parallel": True}

    def run_config(self, name="run.json", **more):
        return self.path(name, {"name": "mine", "model": self.MODEL, "data": {"kind": "tokens", "sequence_length": 64, "samples": 64},
                                "train": {"steps": 2, "global_batch_size": 16}, **more})

    def plan_words(self, model, *more):
        return ("plan", "--model", model, "--gpus", 2, "--gpu", "cpu", "--global-batch", 8, "--seq", 32, *more)

    def printed_line(self, *words):
        finished = orthant(*words, cwd=self.folder)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        line = finished.stdout.split("\nRun it", 1)[1].split(":\n", 1)[1].split("\n\n", 1)[0]
        again = ["--force"] if "--write-config" in words and "--force" not in words else []
        self.assertEqual(" ".join(line.replace("\\\n", " ").split()), only_json(self, orthant(*words, *again, "--json", cwd=self.folder))["run"])
        return line

    def trains(self, line):
        """Pasted as it is printed, but for the number of steps."""
        environment = {**os.environ, "PATH": os.path.dirname(ORTHANT) + ":" + os.environ["PATH"]}
        finished = subprocess.run(["bash", "-c", line + " --steps 2"], cwd=self.folder, env=environment, capture_output=True, text=True)
        self.assertEqual(finished.returncode, 0, f"{line}\n{finished.stderr}")
        self.assertRegex(finished.stderr, r"step +2/")

    def test_the_printed_line_trains(self):
        os.mkdir(os.path.join(self.folder, "my models"))
        crafted_models.make_llama(os.path.join(self.folder, "my models"))
        alone = self.path("sizes.json", self.MODEL)
        gpt = self.path("gpt.json", {"model": {"kind": "gpt", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 128}})
        for model in (self.run_config(parallel=self.ODD), "bert-tiny", "trimodal-tiny", "my models", alone, gpt):
            self.trains(self.printed_line(*self.plan_words(model)))
            if os.path.exists(os.path.join(self.folder, "run.json")):
                os.remove(os.path.join(self.folder, "run.json"))

    def test_a_line_takes_back_what_the_configuration_says_otherwise(self):
        config = self.run_config(parallel=self.ODD)
        best = only_json(self, orthant(*self.plan_words(config, "--json")))["best"]
        self.assertEqual((best["mesh"]["dp"], best["recompute"]), (2, "none"))
        for part in ("parallel.schedule=1f1b", "parallel.zero=0", "parallel.recompute=none", "parallel.accumulate=full", "parallel.sequence_parallel=false"):
            self.assertIn(f"--set {part}", best["train"])
        plain = only_json(self, orthant(*self.plan_words(self.run_config(), "--json")))["best"]
        self.assertNotIn("recompute", plain["train"])

    def test_write_config(self):
        config = self.run_config(parallel={"_comment": "mine", **self.ODD}, optimizer={"lr": 0.002})
        written = os.path.join(self.folder, "planned.json")
        line = self.printed_line(*self.plan_words(config, "--write-config", "planned.json"))
        self.assertEqual(line.strip(), "orthant train --config planned.json")
        with open(written) as file:
            document = json.load(file)
        self.assertEqual(document["mesh"], {"dp": 2})
        self.assertEqual(document["optimizer"], {"lr": 0.002})
        self.assertEqual(document["train"]["global_batch_size"], 8)
        self.assertEqual(document["parallel"], {"_comment": "Chosen by orthant plan.", "schedule": "1f1b", "zero": 0, "recompute": "none", "split": "auto",
                                                "accumulate": "full", "sequence_parallel": False, "microbatches": 1})
        self.assertEqual(document["precision"], {"params": "float32", "compute": "bfloat16", "reduce": "float32"})
        self.trains(line)
        again = orthant(*self.plan_words(config, "--write-config", "planned.json"), cwd=self.folder)
        self.assertEqual(again.returncode, 2)
        self.assertIn("planned.json is there already", again.stderr)
        self.assertIn("replace it with --force", again.stderr)
        for model in ("gpt2-tiny", "trimodal-tiny"):
            self.trains(self.printed_line(*self.plan_words(model, "--write-config", "planned.json", "--force")))

    def test_write_config_without_a_plan(self):
        tight = self.plan_words(self.run_config(), "--write-config", "planned.json")
        tight = [self.card(1 << 16) if word == "cpu" else word for word in tight]
        finished = orthant(*tight, cwd=self.folder)
        self.assertEqual(finished.returncode, 2)
        self.assertIn("nothing fits, so there is no plan to write", finished.stderr)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "planned.json")))
        useless = orthant(*self.plan_words(self.run_config(), "--force"))
        self.assertEqual(useless.returncode, 2)
        self.assertIn("--force without --write-config", useless.stderr)


if __name__ == "__main__":
    unittest.main()
