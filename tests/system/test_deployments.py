"""Every configuration against the table of docs/deployments.md, and the printed launch lines as real trainings against one rank.

`python3 test_deployments.py --table` prints the table's rows with what --dry-run says now."""
import concurrent.futures
import json
import math
import os
import re
import shutil
import sys
import tempfile
import unittest

from checkpoint_weights import read_weights
from dry_run import DryRun
from program import ORTHANT, SOURCE, only_json, orthant, python, run

DOCS = os.path.join(SOURCE, "docs", "deployments.md")
CONFIGS = os.path.abspath(os.path.join(SOURCE, "configs"))


# The table: | text | configuration | words | mesh | ranks | parameters | state | activations | dp, fsdp | pp | tp |

class TableRow:
    def __init__(self, line):
        self.text, config, words, *self.cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        self.config = config.strip("`")
        self.words = words.strip("`").split()

    def dry_run(self, *more):
        finished = orthant("train", "--config", os.path.join(SOURCE, self.config), *self.words, "--dry-run", "--verbose", *more, timeout=30)
        if finished.returncode != 0:
            raise AssertionError(f"{self.config} {self.words}: {finished.stderr}")
        return DryRun(finished.stdout)


def table():
    with open(DOCS, encoding="utf-8") as f:
        return [TableRow(line) for line in f if line.startswith("|") and "| `configs/" in line]


def all_configs():
    found = {os.path.join("configs", name) for name in os.listdir(CONFIGS) if name.endswith(".json")}
    return found | {os.path.join("configs", "deployments", name) for name in os.listdir(os.path.join(CONFIGS, "deployments"))}


def number_of(text):
    return float(text.rstrip("KMB")) * {"K": 1e3, "M": 1e6, "B": 1e9}.get(text[-1], 1)


class Table(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rows = table()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            # Worlds that no machine here could start are asked for with the backend that starts nobody.
            cls.runs = list(pool.map(lambda row: row.dry_run(*(["--backend", "fake"] if int(row.cells[1]) > 8 else [])), cls.rows))

    def test_every_configuration_has_a_row(self):
        self.assertEqual({row.config for row in self.rows}, all_configs())

    def test_the_rows_say_what_dry_runs_say(self):
        for row, found in zip(self.rows, self.runs):
            self.assertEqual(row.cells, found.cells(), (row.config, row.words))

    def test_meshes_and_sizes_are_those_of_the_texts(self):
        names = {"PP": "pp", "DP": "dp", "TP": "tp", "FSDP": "fsdp"}
        sized = 0
        for row in self.rows:
            asked = {names[name]: int(degree) for name, degree in re.findall(r"\b(PP|DP|TP|FSDP)=(\d+)", row.text)}
            if asked:
                mesh = {axis: int(degree) for axis, degree in re.findall(r"(\w+)=(\d+)", row.cells[0])}
                self.assertEqual(mesh, {axis: degree for axis, degree in asked.items() if degree > 1}, row.text)
                self.assertEqual(math.prod(mesh.values()), int(row.cells[1]), row.text)
            size = re.search(r"(>|<|~)?([\d.]+[MB])\b(?:-([\d.]+[MB])\b)?", row.text)
            if size is None:
                continue
            sized += 1
            kind, low, high = size.groups()
            parameters, low = number_of(row.cells[2]), number_of(low)
            if high:
                self.assertTrue(low <= parameters <= number_of(high), row.text)
            elif kind == ">":
                self.assertGreater(parameters, low, row.text)
            elif kind == "<":
                self.assertLess(parameters, low, row.text)
            else:
                self.assertLess(abs(parameters - low), 0.1 * low, row.text)
        self.assertGreater(sized, 12)

    def test_dry_runs_print_groups_stages_and_schedule(self):
        for row, found in zip(self.rows, self.runs):
            for axis, degree in re.findall(r"(\w+)=(\d+)", found.mesh):
                count = found.ranks // int(degree)
                groups = f"{axis}: {count} group{'s' if count > 1 else ''} of {degree}" if found.ranks > 1 else "none: one rank"
                self.assertIn(f"\n  {groups}", found.text, row.config)
            self.assertRegex(found.text, r"\nSchedule of a step(, | at pp 0, )\d+ actions:\n", row.config)
            stages = re.search(r"pp=(\d+)", found.mesh)
            if stages:
                self.assertEqual(len(found.stages), int(stages.group(1)), row.config)
                places = {int(pp) for pp in re.findall(r"^  stage \d+ on pp (\d+): \S", found.text, re.M)}
                self.assertEqual(places, set(range(len(found.stages))), row.config)
                self.assertIn("microbatches, a row for each pp coordinate:\n", found.text)

    def test_the_fake_backend_says_the_same(self):
        row = next(row for row in self.rows if row.config.endswith("hybrid_pp_dp_16gpu.json"))
        self.assertEqual(row.dry_run().text, row.dry_run("--backend", "fake").text)


# The printed lines, on models of the printed shape in small.

TOWER = ("hidden_size=16", "num_hidden_layers=4", "num_attention_heads=4", "intermediate_size=24", "vocab_size=300", "max_position_embeddings=34")
SMALL = [f"model.{tower}.{value}" for tower in ("primary", "secondary") for value in TOWER] + [
    "model.projection=16", "model.tabular.hidden_dim=16", "model.fusion.hidden_size=16", "data.sequence_length=24", "lr_schedule.warmup_steps=1",
    "optimizer.lr=2e-3", "optimizer.clip=0.05"]
STEPS = 2


class PrintedLines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        for words in (("make-trimodal", "--rows", 600, "--out", "demo"),
                      ("make-vocabulary", "--data", "demo/trimodal.csv", "--columns", "dialogue,shiptrack", "--size", 300, "--cased", "--out", "vocab.txt")):
            finished = orthant("data", *words, cwd=cls.folder)
            if finished.returncode != 0:
                raise AssertionError(finished.stderr)
        for name in ("bert-base-cased", "bert-large-cased", "roberta-large"):
            os.makedirs(os.path.join(cls.folder, "models", name))
            for file in ("vocab.txt", "tokenizer_config.json"):
                shutil.copy(os.path.join(cls.folder, file), os.path.join(cls.folder, "models", name))

    def words(self, config, run_name, *words, steps=STEPS, more=()):
        sets = [word for value in (*SMALL, *more) for word in ("--set", value)]
        return ["train", "--config", os.path.join(CONFIGS, config), "--data_path", "demo/trimodal.csv", *words, "--steps", steps, "--json",
                "--output_dir", run_name, *sets]

    def train(self, *words, **options):
        return only_json(self, orthant(*self.words(*words, **options), cwd=self.folder))

    def torchrun(self, ranks, *words, **options):
        program = os.path.join(os.path.dirname(python()), "torchrun")
        line = (program, "--no-python", f"--nproc_per_node={ranks}", ORTHANT, *self.words(*words, **options))
        return only_json(self, run(*line, cwd=self.folder, timeout=120))

    def metrics(self, run_name):
        with open(os.path.join(self.folder, run_name, "metrics.jsonl")) as f:
            return [json.loads(line) for line in f]

    def checkpoint(self, run_name, step=STEPS):
        return os.path.join(self.folder, run_name, "checkpoints", f"step-{step}")

    def check(self, result, many, config, batch, more=()):
        """A run on many ranks against one rank with the same global batch: every step, every unit's weights, and its checkpoint resumed on one rank."""
        one, start, resumed = (f"{many}-{name}" for name in ("one", "start", "resumed"))
        self.assertEqual(result["steps"], STEPS)
        wanted = self.train(config, one, "--batch_size", batch, steps=STEPS + 1, more=(*more, f"checkpoint.save_every={STEPS}"))
        self.assertEqual(wanted["parameters"], result["parameters"])
        for found, line in zip(self.metrics(many), self.metrics(one)):
            self.assertGreater(line["grad_norm"], 0.1)  # far above the clip
            for key in ("loss", "grad_norm", "lr"):
                self.assertLessEqual(abs(found[key] - line[key]), 1e-5 * abs(line[key]), (many, line["step"], key))
        self.train(config, start, "--batch_size", batch, steps=0, more=more)
        self.check_weights(result["world_size"], many, one, start)
        # Everything was saved: one rank goes on from it as if it had been alone from the start.
        again = self.train(config, resumed, "--batch_size", batch, "--resume", self.checkpoint(many), steps=STEPS + 1, more=more)
        self.assertLessEqual(abs(again["final_loss"] - wanted["final_loss"]), 1e-5 * wanted["final_loss"])
        return wanted

    def check_weights(self, ranks, many, one, start):
        found, files = read_weights(self.checkpoint(many))
        wanted, _ = read_weights(self.checkpoint(one))
        first, _ = read_weights(self.checkpoint(start, 0))
        self.assertEqual(files, {f"rank-{rank}.safetensors" for rank in range(ranks)})
        self.assertEqual(set(found), set(wanted))
        moved, wrong = {}, {}
        for name in wanted:
            unit = ".".join(name.split(".")[:3] if ".layers." in name else name.split(".")[:2])
            self.assertNotEqual(found[name], first[name], f"{name} was not stepped")
            moved[unit] = moved.get(unit, 0) + sum(abs(a - b) for a, b in zip(wanted[name], first[name]))
            wrong[unit] = wrong.get(unit, 0) + sum(abs(a - b) for a, b in zip(wanted[name], found[name]))
        for unit in moved:
            self.assertLess(wrong[unit], 1e-4 * moved[unit], f"{unit} moved otherwise than on one rank")

    def test_pp_dp_on_8_ranks(self):
        config = "hybrid_pp_dp_8gpu.json"
        result = self.torchrun(8, config, "pp-dp", "--pp_size", 2, "--batch_size", 32, "--num_microbatches", 4)
        self.assertEqual({axis: degree for axis, degree in result["mesh"].items() if degree > 1}, {"pp": 2, "dp": 4})
        self.check(result, "pp-dp", config, 128)

    def test_fsdp_pp_on_8_ranks(self):
        config = "hybrid_fsdp_pp_8gpu.json"
        result = self.torchrun(8, config, "fsdp-pp", "--pp_size", 2, "--fsdp_size", 4, "--batch_size", 16)
        self.assertEqual({axis: degree for axis, degree in result["mesh"].items() if degree > 1}, {"pp": 2, "fsdp": 4})
        self.check(result, "fsdp-pp", config, 64)

    def test_3d_on_16_ranks(self):
        config = "hybrid_3d_16gpu.json"
        # The padding is that of the vocabulary made here. Under sgd weights move by the clipped gradient itself.
        more = [*(f"model.{tower}.pad_token_id=0" for tower in ("primary", "secondary")), "optimizer.kind=sgd", "optimizer.lr=1"]
        result = self.train(config, "3d", "--pp_size", 4, "--tp_size", 2, "--dp_size", 2, "--batch_size", 32, more=more)
        self.assertEqual({axis: degree for axis, degree in result["mesh"].items() if degree > 1}, {"pp": 4, "tp": 2, "dp": 2})
        self.assertEqual(result["world_size"], 16)
        self.check(result, "3d", config, 64, more)


class Inference(unittest.TestCase):
    """Degrees that a launcher's world leaves open, and flags that cannot be meant."""

    def dry_run(self, config, *words, world=8):
        place = ("--rank", 0, "--world-size", world, "--rendezvous", "127.0.0.1:1") if world else ()
        return orthant("train", "--config", os.path.join(CONFIGS, config), "--data_path", "data.csv", *words, *place, "--dry-run")

    def test_of_the_printed_lines(self):
        for config, world, words, mesh in (("hybrid_pp_dp_8gpu.json", 8, ("--pp_size", 2), "pp=2,dp=4"),
                                           ("hybrid_fsdp_pp_8gpu.json", 8, ("--pp_size", 2, "--fsdp_size", 4), "pp=2,fsdp=4"),
                                           ("hybrid_fsdp_pp_8gpu.json", 8, ("--pp_size", 2, "--dp_size", 1), "pp=2,fsdp=4"),
                                           ("hybrid_3d_16gpu.json", 16, ("--pp_size", 4, "--tp_size", 2), "pp=4,dp=2,tp=2"),
                                           ("hybrid_pp_dp_8gpu.json", 15, ("--pp_size", 3), "pp=3,dp=5")):
            finished = self.dry_run(config, *words, "--batch_size", 16, world=world)
            self.assertEqual(finished.returncode, 0, finished.stderr)
            self.assertEqual(DryRun(finished.stdout).mesh, mesh, (config, words))

    def test_a_world_that_stages_do_not_divide_is_refused(self):
        finished = self.dry_run("hybrid_pp_dp_8gpu.json", "--pp_size", 3, "--batch_size", 32)
        self.assertEqual(finished.returncode, 2)
        self.assertIn("dp cannot be inferred: pp=3 needs 3 ranks, which does not divide the world of 8\n"
                      "  fix: start 6 or 9 ranks, or set the mesh to pp=4,dp=2", finished.stderr)

    def test_what_a_world_is_told_to_do_can_be_done(self):
        for config, words, world, fix in (("llama_tp_fsdp.json", (), 7, "start 4 or 8 ranks"), ("llama_tiny.json", ("--tp_size", 4), 7, "start 4 or 8 ranks"),
                                          ("trimodal_tp_dp.json", ("--set", "train.global_batch_size=8"), 11, "start another number of ranks"),
                                          ("llama_tiny.json", ("--mesh", "pp=2,tp=2"), 6, "set the mesh to pp=3,tp=2, or start 4 ranks"),
                                          ("llama_tiny.json", ("--mesh", "pp=2,tp=2"), 7, "start 4 ranks")):
            finished = orthant("train", "--config", os.path.join(CONFIGS, config), *words, "--rank", 0, "--world-size", world, "--rendezvous",
                               "127.0.0.1:1", "--dry-run")
            self.assertEqual(finished.returncode, 2, finished.stderr)
            self.assertIn(f"\n  fix: {fix}", finished.stderr)
            self.assertEqual("set the mesh" in finished.stderr, "set the mesh" in fix, finished.stderr)

    def test_replicas_that_a_world_leaves_are_named(self):
        said = self.dry_run("hybrid_fsdp_pp_8gpu.json", "--pp_size", 2, "--batch_size", 16)
        self.assertEqual(said.stderr.count("note: 8 ranks leave dp=4: whole replicas; --fsdp_size 4 shards"), 1, said.stderr)
        for words in (("--fsdp_size", 4), ("--dp_size", 4), ("--set", "parallel.zero=3")):
            self.assertNotIn("whole replicas", self.dry_run("hybrid_fsdp_pp_8gpu.json", "--pp_size", 2, "--batch_size", 16, *words).stderr)

    def test_rows_that_microbatches_do_not_divide_are_refused(self):
        finished = self.dry_run("hybrid_pp_dp_8gpu.json", "--pp_size", 2, "--batch_size", 30, "--num_microbatches", 4)
        self.assertEqual(finished.returncode, 2)
        self.assertIn("train.global_batch_size is 120, not a multiple of dp x fsdp x parallel.microbatches = 4 x 4\n"
                      "  fix: set train.global_batch_size=112 or 128 (--batch_size 28 or 32)", finished.stderr)

    def test_the_flat_form_clips_as_the_printed_program_does(self):
        shown_config = orthant("train", "--config", os.path.join(CONFIGS, "hybrid_pp_dp_8gpu.json"), "--data_path", "data.csv", "--print-config")
        self.assertRegex(shown_config.stdout, r"\noptimizer\.clip = 1\.0 ")

    def test_the_printed_tensor_plan_is_refused_with_its_reason(self):
        def plan(**entries):
            return orthant("train", "--config", os.path.join(CONFIGS, "deployments", "gpt2_7b_fsdp8_tp8.json"), "--dry-run", "--set",
                           f"parallel.plan={json.dumps(entries)}")

        for entry, reason, fix in (({"wte": "ColwiseParallel"}, '"wte" cannot be column', "use row, which cuts it over its entries"),
                                   ({"lm_head": "RowwiseParallel"}, '"lm_head" matches no parameter', "one of wte, wpe, attn.c_attn,")):
            refused = plan(**entry)
            self.assertEqual(refused.returncode, 2)
            self.assertRegex(refused.stderr, rf"{reason}.*\n  fix: {fix}")
        # Together they are one cut of the one table.
        rest = {"attn.c_attn": "ColwiseParallel", "mlp.c_fc": "ColwiseParallel", "mlp.c_proj": "RowwiseParallel"}
        for entries in ({}, {"wte": "ColwiseParallel", "lm_head": "RowwiseParallel"}, {"lm_head": "ColwiseParallel"},
                        {"wte": "RowwiseParallel", "lm_head": "ColwiseParallel"}):
            accepted = plan(**rest, **entries)
            self.assertEqual(accepted.returncode, 0, accepted.stderr)
        for entries in ({"wte": "ColwiseParallel", "lm_head": "ColwiseParallel"}, {"wte": "RowwiseParallel", "lm_head": "RowwiseParallel"}):
            self.assertEqual(plan(**rest, **entries).returncode, 2)


def print_table():
    for row in table():
        words = f"`{' '.join(row.words)}`" if row.words else ""
        print("|", " | ".join((row.text, f"`{row.config}`", words, *row.dry_run().cells())), "|")


if __name__ == "__main__":
    if sys.argv[1:] == ["--table"]:
        print_table()
    else:
        unittest.main()
