"""A trained model on another file: what it says of each row (predict) and how good it is there (evaluate), on any mesh and from any checkpoint."""
import csv
import json
import math
import os
import shutil
import subprocess
import tempfile
import unittest

from program import ORTHANT, clean_environment, free_port, only_json, orthant

WORDS = "the a ship sails over seven seas and comes home again with salt tea silk".split()
TOWER = {"vocab_size": 400, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
         "max_position_embeddings": 32}
LLAMA = {"kind": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 64,
         "max_position_embeddings": 32}
MESHES = ("dp=2", "fsdp=2", "tp=2", "pp=2")


def rows_of(path):
    """The rows of a written file, numbers as numbers; what is missing is None."""
    with open(path, newline="") as f:
        if path.endswith(".jsonl"):
            return [json.loads(line) for line in f]
        found = list(csv.DictReader(f, delimiter="\t" if path.endswith(".tsv") else ","))
    texts = ("prediction", "label")
    return [{k: (v or None) if k in texts else float(v) if v else None for k, v in row.items()} for row in found]


class Scored(unittest.TestCase):
    """Runs that all tests of a class score with, and only read."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name

    @classmethod
    def path(cls, *parts):
        return os.path.join(cls.folder, *parts)

    @classmethod
    def write(cls, name, text):
        with open(cls.path(name), "w", newline="") as f:
            f.write(text)

    @classmethod
    def train(cls, name, config, *words):
        cls.write(name + ".json", json.dumps(config))
        done = orthant("train", "--config", name + ".json", "--output_dir", name, "--json", *words, cwd=cls.folder)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def evaluate(self, run, data, *words):
        return only_json(self, orthant("evaluate", "--run", run, "--data", data, "--json", *words, cwd=self.folder))

    def predict(self, model, data, out, *words):
        facts = only_json(self, orthant("predict", "--model", model, "--data", data, "--out", out, "--json", *words, cwd=self.folder))
        rows = rows_of(self.path(out))
        self.assertEqual(facts["rows"], len(rows))
        self.assertEqual(facts["columns"], list(rows[0]))
        return rows

    def held_out_part(self, run, *words):
        found = only_json(self, orthant("evaluate", "--run", run, "--json", *words, cwd=self.folder))
        found["seconds"] = 0
        return found

    def refused(self, code, text, fix, *words):
        done = orthant(*words, cwd=self.folder)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertIn(text, done.stderr)
        self.assertIn(fix, done.stderr)

    def assert_close(self, found, expected):
        self.assertEqual(len(found), len(expected))
        for one, other in zip(found, expected):
            self.assertEqual(list(one), list(other))
            for key, value in one.items():
                if isinstance(value, float):
                    self.assertAlmostEqual(value, other[key], delta=2e-6 * abs(other[key]) + 1e-8, msg=key)
                else:
                    self.assertEqual(value, other[key], key)


class Classifiers(Scored):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        done = orthant("data", "make-trimodal", "--rows", 240, "--out", cls.folder)
        assert done.returncode == 0, done.stderr
        with open(cls.path("trimodal.csv"), newline="") as f:
            header, *rows = list(csv.reader(f))
        rows = [row[:-1] + ["yes" if row[-1] == "1" else "no, \"never\""] for row in rows]
        cls.held_out = rows[200:]
        for name, part in (("train.csv", [header] + rows[:200]), ("held_out.csv", [header] + cls.held_out),
                           ("unlabelled.csv", [row[:-1] for row in [header] + cls.held_out]), ("header.csv", [header]),
                           ("missing.csv", [[name.replace("feature_3", "other") for name in header]] + cls.held_out),
                           ("blank.csv", [header[:-1] + ["label "]] + cls.held_out), ("unknown.csv", [header] + cls.held_out[:-1] + [cls.held_out[-1][:-1] + ["perhaps"]])):
            with open(cls.path(name), "w", newline="") as f:
                csv.writer(f, lineterminator="\n").writerows(part)
        cls.config = {"name": "t", "seed": 3,
                      "model": {"kind": "trimodal", "primary": TOWER, "secondary": TOWER, "tabular": {"input_dim": 8, "hidden_dim": 8},
                                "fusion": {"hidden_size": 8}, "num_labels": 2},
                      "data": {"kind": "trimodal", "path": "train.csv", "eval_path": "held_out.csv", "primary_text": "dialogue",
                               "secondary_text": "shiptrack", "tabular": [f"feature_{i}" for i in range(1, 9)], "label": "label",
                               "tokenizer": "vocab.txt", "sequence_length": 16, "class_weights": "balanced"},
                      "parallel": {"microbatches": 2}, "optimizer": {"lr": 0.01},
                      "train": {"global_batch_size": 20, "steps": 12, "eval_every": 12}, "checkpoint": {"save_every": 6}}
        cls.result = cls.train("run", cls.config)
        os.rename(cls.path("vocab.txt"), cls.path("moved.txt"))  # the run keeps its tokenizers

    def test_an_evaluation_measures_what_the_training_did(self):
        found = self.evaluate("run", "held_out.csv")
        self.assertEqual(found["eval"], self.result["eval"])
        with open(self.path("run", "eval.jsonl")) as f:
            last = json.loads(f.read().splitlines()[-1])
        self.assertEqual({"step": 12, **found["eval"]}, last)
        self.assertEqual((found["step"], found["samples"]), (12, 40))
        self.assertEqual(self.held_out_part("run"), {**found, "data": None, "seconds": 0})
        earlier = self.evaluate("run", "held_out.csv", "--checkpoint", "run/checkpoints/step-6")
        self.assertEqual(earlier["step"], 6)
        self.assertNotEqual(earlier["eval"]["loss"], found["eval"]["loss"])
        for mesh in MESHES:
            with self.subTest(mesh=mesh):
                other = self.evaluate("run", "held_out.csv", "--mesh", mesh)["eval"]
                self.assertAlmostEqual(other.pop("loss"), found["eval"]["loss"], delta=1e-6)
                self.assertEqual(other, {k: v for k, v in found["eval"].items() if k != "loss"})

    def test_what_the_run_held_out_is_measured_without_a_file(self):
        data = {**self.config["data"], "eval_fraction": 0.2, "eval_path": None, "tokenizer": "moved.txt"}
        result = self.train("part", {**self.config, "data": data, "mesh": {"dp": 2}})
        self.assertEqual(self.held_out_part("part")["samples"], 40)
        self.assertAlmostEqual(self.held_out_part("part")["eval"].pop("loss"), result["eval"]["loss"], delta=1e-6)
        self.assertEqual(self.held_out_part("part", "--mesh", "dp=2")["eval"], result["eval"])
        told = orthant("evaluate", "--run", "part", cwd=self.folder)
        self.assertIn("part at step 12 on the part it held out: 40 samples", told.stdout)
        # Other rows under the same name are another part.
        shutil.copy(self.path("train.csv"), self.path("kept.csv"))
        self.addCleanup(shutil.move, self.path("kept.csv"), self.path("train.csv"))
        with open(self.path("train.csv"), "a") as f:
            f.write(",".join(["ship"] * 2 + ["1"] * 8 + ["yes"]) + "\n")
        self.refused(4, "train.csv has other contents than when that run read it", "put the run's data back, or name a file with --data",
                     "evaluate", "--run", "part")
        os.remove(self.path("train.csv"))
        self.refused(4, "train.csv", "", "evaluate", "--run", "part")

    def test_a_label_column_of_nearly_the_name_is_named(self):
        self.refused(2, 'blank.csv: there is no column "label"', 'fix: did you mean "label "? (one of dialogue, ', "evaluate", "--run", "run", "--data",
                     "blank.csv")

    def test_a_run_that_held_nothing_out_needs_a_file(self):
        self.train("all", {**self.config, "data": {**self.config["data"], "eval_path": None, "tokenizer": "moved.txt"}})
        self.refused(2, "all: the run held nothing out: data.eval_fraction is 0, and there is no data.eval_path", "name a file with --data",
                     "evaluate", "--run", "all")
        self.refused(2, "--separator, --text-column or --bad-rows without --data", "leave them out", "evaluate", "--run", "run", "--bad-rows", "skip")

    def test_every_row_has_a_label_and_probabilities_that_agree_with_the_loss(self):
        rows = self.predict("run", "unlabelled.csv", "all.csv")
        self.assertEqual(list(rows[0]), ["row", "prediction", "probability_no, \"never\"", "probability_yes"])
        self.assertEqual([row["row"] for row in rows], list(range(1, 41)))
        loss, hits = 0, 0
        for row, given in zip(rows, self.held_out):
            chances = {name[len("probability_"):]: value for name, value in row.items() if name.startswith("probability_")}
            self.assertAlmostEqual(sum(chances.values()), 1, delta=1e-8)
            self.assertEqual(row["prediction"], max(chances, key=chances.get))
            loss -= math.log(chances[given[-1]])
            hits += row["prediction"] == given[-1]
        self.assertAlmostEqual(loss / 40, self.result["eval"]["loss"], delta=1e-7)
        self.assertEqual(hits / 40, self.result["eval"]["accuracy"])
        for ending in ("tsv", "jsonl"):
            self.assert_close(self.predict("run/checkpoints/step-12", "unlabelled.csv", "all." + ending), rows)

    def test_every_mesh_says_what_one_rank_says(self):
        expected = self.predict("run", "held_out.csv", "one.csv")
        self.assertEqual([row["label"] for row in expected], [row[-1] for row in self.held_out])
        for mesh in MESHES + ("pp=2,dp=2",):
            with self.subTest(mesh=mesh):
                self.assert_close(self.predict("run", "held_out.csv", "mesh.csv", "--mesh", mesh), expected)

    def test_a_checkpoint_of_another_mesh_needs_no_conversion(self):
        config = {**self.config, "data": {**self.config["data"], "tokenizer": "moved.txt"}}
        result = self.train("sharded", config, "--mesh", "fsdp=2,tp=2", "--steps", "2")
        found = self.evaluate("sharded", "held_out.csv")["eval"]
        self.assertAlmostEqual(found["loss"], result["eval"]["loss"], delta=1e-6)
        self.assertEqual(found["accuracy"], result["eval"]["accuracy"])

    def test_labels_of_rows_to_predict_may_be_anything(self):
        done = orthant("predict", "--model", "run", "--data", "unknown.csv", "--out", "u.csv", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("labels of 1 rows are none of the model's and left out", done.stderr)
        self.assertIsNone(rows_of(self.path("u.csv"))[-1]["label"])

    def test_a_damaged_checkpoint_is_passed_over_unless_it_was_named(self):
        shutil.copytree(self.path("run"), self.path("damaged"))
        with open(self.path("damaged", "checkpoints", "step-12", "rank-0.safetensors"), "r+b") as f:
            f.seek(-5, os.SEEK_END)
            f.write(b"\x7f\x7f")
        done = orthant("evaluate", "--run", "damaged", "--data", "held_out.csv", "--json", cwd=self.folder)
        self.assertEqual(only_json(self, done)["step"], 6)
        self.assertIn("passed over damaged/checkpoints/step-12: ", done.stderr)
        predict = ("predict", "--data", "held_out.csv", "--out", "d.csv", "--model")
        self.refused(4, "the manifest promises", "copy the checkpoint again", *predict, "damaged/checkpoints/step-12")
        shutil.rmtree(self.path("damaged", "checkpoints", "step-6"))
        self.refused(4, "damaged: none of its 1 checkpoints is whole; the newest: ", "or use another run", *predict, "damaged")
        self.assertFalse(os.path.exists(self.path("d.csv")))

    def test_latest_and_best_name_a_checkpoint(self):
        shutil.copytree(self.path("run"), self.path("pointed"))
        folder = "pointed/checkpoints/"
        self.write(folder + "best", "step-6\n")
        expected = self.evaluate("run", "held_out.csv", "--checkpoint", "run/checkpoints/step-6")
        for name, step in (("latest", 12), ("best", 6)):
            found = self.evaluate("pointed", "held_out.csv", "--checkpoint", folder + name)
            self.assertEqual((found["step"], found["checkpoint"]), (step, f"{folder}step-{step}"))
        self.assertEqual(found["eval"], expected["eval"])
        self.assertEqual(self.predict(folder + "best", "held_out.csv", "best.csv"),
                         self.predict("run/checkpoints/step-6", "held_out.csv", "six.csv"))
        self.refused(4, "best: a checkpoint, not the folder of a run", f"--checkpoint {folder}best", "evaluate", "--run", folder + "best",
                     "--data", "held_out.csv")
        self.write(folder + "best", "step-7\n")
        for words in (("evaluate", "--run", "pointed", "--checkpoint"), ("predict", "--out", "x.csv", "--model")):
            self.refused(4, "best: names step-7, and there is no such checkpoint beside it", "name a folder step-N\n", *words,
                         folder + "best", "--data", "held_out.csv")

    def test_what_a_killed_prediction_left_is_cleared_away(self):
        for name in ("left.csv.partial-999999", "left.csv.partial-1-2", "other.csv.partial-999999"):
            self.write(name, "row,predic")
        self.predict("run", "held_out.csv", "left.csv")
        self.assertEqual([name for name in os.listdir(self.folder) if ".partial" in name], ["other.csv.partial-999999"])
        os.remove(self.path("other.csv.partial-999999"))

    def test_bad_rows_can_be_left_out(self):
        with open(self.path("held_out.csv"), newline="") as f:
            header, *rows = list(csv.reader(f))
        rows[2][header.index("feature_3")] = "much"
        with open(self.path("bad.csv"), "w", newline="") as f:
            csv.writer(f, lineterminator="\n").writerows([header] + rows)
        for words in (("predict", "--out", "bad-out.csv", "--model", "run"), ("evaluate", "--run", "run")):
            self.refused(4, '"much" is not a number', "or leave such rows out with --bad-rows skip", *words, "--data", "bad.csv")
            self.refused(2, "--bad-rows skp: there is no such choice", 'did you mean "skip"', *words, "--data", "bad.csv", "--bad-rows", "skp")
        done = orthant("predict", "--out", "bad-out.csv", "--model", "run", "--data", "bad.csv", "--bad-rows", "skip", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1 bad row was left out", done.stderr)
        self.assertEqual([row["row"] for row in rows_of(self.path("bad-out.csv"))], [1, 2] + list(range(4, 41)))
        self.assertEqual(self.evaluate("run", "bad.csv", "--bad-rows", "skip")["samples"], 39)

    def test_ranks_that_see_other_rows_under_the_same_name_are_named(self):
        port = free_port()
        ranks = []
        for rank in range(2):
            os.makedirs(self.path(f"host-{rank}"))
            with open(self.path("held_out.csv")) as f, open(self.path(f"host-{rank}", "rows.csv"), "w") as other:
                other.write(f.read().replace("yes", "yet", rank))  # one label on the second
            env = clean_environment(RANK=rank, WORLD_SIZE=2, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            ranks.append(subprocess.Popen([ORTHANT, "predict", "--model", self.path("run"), "--data", "rows.csv", "--out", "x.csv"], env=env,
                                          cwd=self.path(f"host-{rank}"), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
            self.addCleanup(ranks[-1].kill)
        errors = "".join(rank.communicate(timeout=60)[1] for rank in ranks)
        self.assertEqual([rank.returncode for rank in ranks], [4, 4], errors)
        self.assertRegex(errors, "found other data than rank 0: 40 rows with hash [0-9a-f]{16} instead of 40 rows with hash [0-9a-f]{16}")
        self.assertIn("let every rank read the same files", errors)
        self.assertEqual(os.listdir(self.path("host-0")), ["rows.csv"])

    def test_a_key_is_asked_for(self):
        for name in ("key", "other"):
            self.write(name, name[0] * 64 + "\n")
            os.chmod(self.path(name), 0o600)
        config = {**self.config, "data": {**self.config["data"], "tokenizer": "moved.txt"}, "checkpoint": {"key_file": "key"}}
        self.train("tagged", config, "--steps", "1")
        self.evaluate("tagged", "held_out.csv")
        self.refused(4, "its tag is not of this key", "give the key file", "evaluate", "--run", "tagged", "--data", "held_out.csv",
                     "--key-file", "other")

    def test_what_cannot_be_scored_is_refused_by_name(self):
        self.write("empty.csv", "")
        self.write("text.txt", "the ship sails")
        os.makedirs(self.path("nothing"), exist_ok=True)
        shutil.copytree(self.path("run"), self.path("unsaved"), ignore=shutil.ignore_patterns("checkpoints"))
        orthant("train", "--steps", "1", "--output_dir", "generated", cwd=self.folder)
        predict = ("predict", "--out", "refused.csv", "--model")
        for code, text, fix, words in (
                (4, "none: there is no such folder", "name a checkpoint", (*predict, "none", "--data", "held_out.csv")),
                (4, "nothing: holds neither a checkpoint nor a model", "the folder of a run", (*predict, "nothing", "--data", "held_out.csv")),
                (4, "unsaved: the run has no checkpoint", "train it to its end", (*predict, "unsaved", "--data", "held_out.csv")),
                (2, "generated was trained on generated data (data.kind trimodal_demo)", "use a run on files",
                 (*predict, "generated", "--data", "held_out.csv")),
                (2, "run classifies rows of tables, and text.txt is none", "name a table", (*predict, "run", "--data", "text.txt")),
                (4, "none.csv: there is no such file", "name a table", (*predict, "run", "--data", "none.csv")),
                (2, "missing.csv: there is no column \"feature_3\"", "feature_4", (*predict, "run", "--data", "missing.csv")),
                (4, "empty.csv: there is no header line", "column names", (*predict, "run", "--data", "empty.csv")),
                (4, "header.csv: no rows", "one row per sample", (*predict, "run", "--data", "header.csv")),
                (2, "--out none/a.csv: there is no folder", "make it",
                 ("predict", "--model", "run", "--data", "held_out.csv", "--out", "none/a.csv")),
                (2, "a.txt: the ending says how rows are written", ".csv, .tsv or .jsonl",
                 ("predict", "--model", "run", "--data", "held_out.csv", "--out", "a.txt")),
                (2, "--out held_out.csv: is the file that the rows are read from", "name another file",
                 ("predict", "--model", "run", "--data", "held_out.csv", "--out", "held_out.csv")),
                (2, "its 2 heads cannot be shared by tp=3", "set tp to 1 or 2", (*predict, "run", "--data", "held_out.csv", "--mesh", "tp=3")),
                (2, "has no experts for ep", "--mesh dp=2", (*predict, "run", "--data", "held_out.csv", "--mesh", "dp=2,ep=2")),
                (4, "unknown.csv:41:", "one of no, \"never\", yes", ("evaluate", "--run", "run", "--data", "unknown.csv")),
                (4, "column \"label\": \"perhaps\" is not one of the labels", "one of", ("evaluate", "--run", "run", "--data", "unknown.csv",
                                                                                    "--mesh", "dp=2")),
                (2, "unlabelled.csv: there is no column \"label\"",
                 "fix: evaluate needs labels; to score rows without them use orthant predict", ("evaluate", "--run", "run", "--data", "unlabelled.csv")),
                (4, "step-6: a checkpoint, not the folder of a run", "--checkpoint run/checkpoints/step-6",
                 ("evaluate", "--run", "run/checkpoints/step-6", "--data", "held_out.csv")),
                (4, "step-5: no such checkpoint folder", "name a folder step-N",
                 ("evaluate", "--run", "run", "--checkpoint", "run/checkpoints/step-5", "--data", "held_out.csv"))):
            with self.subTest(words=words):
                self.refused(code, text, fix, *words)
        self.assertFalse([name for name in os.listdir(self.folder) if name.startswith("refused") or ".partial" in name])
        with open(self.path("tokenizers.txt"), "w") as f:
            f.write("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nship\n")
        shutil.copytree(self.path("run"), self.path("swapped"))
        shutil.copy(self.path("tokenizers.txt"), self.path("swapped", "tokenizers", "primary", "vocab.txt"))
        self.refused(4, "preprocessing.json does not describe the data", "use the columns, tokenizers", *predict, "swapped", "--data",
                     "held_out.csv")

    def test_help_shows_an_example(self):
        self.assertIn("orthant predict --model runs/first --data new_rows.csv --out scores.csv", orthant("predict", "--help").stdout)
        self.assertIn("orthant evaluate --run runs/first --data held_out.csv", orthant("evaluate", "--help").stdout)
        for name in ("predict", "evaluate"):
            self.assertRegex(orthant("--help").stdout, rf"\n  {name} ")


class LanguageModels(Scored):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("vocab.txt", "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n")
        cls.documents = [" ".join(WORDS[(i * 3 + j * (i + 1)) % len(WORDS)] for j in range(4 + 5 * (i % 6))) for i in range(14)]
        cls.write("train.txt", "\n\n".join(" ".join(WORDS[(i + j * (i + 1)) % len(WORDS)] for j in range(20 + i % 7)) for i in range(40)) + "\n")
        cls.write("held_out.txt", "\n\n".join(cls.documents) + "\n")
        rows = [{"id": i, "text": text} for i, text in enumerate(cls.documents)]
        rows[3]["text"] = ""
        cls.write("rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        cls.result = cls.train("run", cls.run_config(LLAMA))

    @classmethod
    def run_config(cls, model, **data):
        return {"model": model, "data": {"kind": "text", "path": "train.txt", "eval_path": "held_out.txt", "separator": "blank-line",
                                         "tokenizer": "vocab.txt", "sequence_length": 12, **data},
                "optimizer": {"lr": 0.01}, "train": {"global_batch_size": 4, "steps": 6}}

    def test_an_evaluation_measures_what_the_training_did(self):
        self.assertEqual(self.evaluate("run", "held_out.txt")["eval"], self.result["eval"])
        self.assertEqual(self.held_out_part("run")["eval"], self.result["eval"])
        part = self.train("part", self.run_config(LLAMA, eval_path=None, eval_fraction=0.2))
        self.assertEqual(self.held_out_part("part")["eval"], part["eval"])
        generated = self.train("generated", {"model": LLAMA, "data": {"kind": "tokens", "samples": 40, "eval_fraction": 0.2, "sequence_length": 12},
                                             "train": {"global_batch_size": 4, "steps": 2}})
        self.assertEqual(self.held_out_part("generated")["eval"], generated["eval"])

    def test_documents_begin_as_the_run_says(self):
        self.train("bare", self.run_config(LLAMA, begin_token=False))
        rows = self.predict("bare", "rows.jsonl", "bare.csv")
        self.assertEqual(rows[0]["tokens"], len(self.documents[0].split()), "all words but the first, and the end token")

    def test_the_mesh_does_not_matter(self):
        for mesh in MESHES:
            with self.subTest(mesh=mesh):
                loss = self.evaluate("run", "held_out.txt", "--mesh", mesh)["eval"]["loss"]
                self.assertAlmostEqual(loss, self.result["eval"]["loss"], delta=1e-6)

    def test_documents_have_tokens_losses_and_perplexities(self):
        rows = self.predict("run", "rows.jsonl", "rows.csv")
        self.assertEqual(rows[3], {"row": 4, "tokens": 0, "loss": None, "perplexity": None})
        for row, text in zip(rows, self.documents):
            if row["row"] == 4:
                continue
            self.assertEqual(row["tokens"], len(text.split()) + 1, "its words and the end token; the begin token is given")
            self.assertAlmostEqual(row["perplexity"], math.exp(row["loss"]), delta=1e-5)
        for mesh in MESHES:
            with self.subTest(mesh=mesh):
                self.assert_close(self.predict("run", "rows.jsonl", "mesh.csv", "--mesh", mesh), rows)

    def test_documents_add_up_to_the_loss_of_an_evaluation_of_single_documents(self):
        result = self.train("unpacked", self.run_config(LLAMA, packing=False, sequence_length=32))
        rows = self.predict("unpacked", "held_out.txt", "documents.jsonl")
        tokens = sum(row["tokens"] for row in rows)
        self.assertAlmostEqual(sum(row["loss"] * row["tokens"] for row in rows) / tokens, result["eval"]["loss"], delta=1e-6)

    def test_an_evaluation_reads_texts_as_it_is_told(self):
        whole = self.evaluate("run", "held_out.txt")
        self.write("lines.txt", "\n".join(self.documents) + "\n")
        self.assertEqual(self.evaluate("run", "lines.txt", "--separator", "line")["eval"], whole["eval"])
        self.assertNotEqual(self.evaluate("run", "lines.txt")["eval"], whole["eval"])
        self.write("column.jsonl", "".join(json.dumps({"body": text}) + "\n" for text in self.documents))
        self.assertEqual(self.evaluate("run", "column.jsonl", "--text-column", "body")["eval"], whole["eval"])
        self.refused(2, "--bad-rows for run, a language model", "leave it out", "evaluate", "--run", "run", "--data", "lines.txt",
                     "--bad-rows", "skip")

    def test_masked_models_are_measured_alike(self):
        result = self.train("bert", self.run_config({**LLAMA, "kind": "bert"}))
        self.assertEqual(self.evaluate("bert", "held_out.txt")["eval"], result["eval"])
        self.assert_close(self.predict("bert", "rows.jsonl", "b2.csv", "--mesh", "tp=2"), self.predict("bert", "rows.jsonl", "b1.csv"))

    def test_a_hugging_face_folder_scores_alike(self):
        rows = self.predict("run", "rows.jsonl", "run.csv")
        only_json(self, orthant("checkpoint", "export", "run/checkpoints/step-6", "hf", "--format", "huggingface", "--json", cwd=self.folder))
        self.assert_close(self.predict("hf", "rows.jsonl", "hf.csv", "--sequence-length", "12", "--mesh", "dp=2"), rows)
        lines = self.predict("hf", "held_out.txt", "lines.csv", "--separator", "blank-line")
        self.assertEqual(len(lines), len(self.documents))
        os.remove(self.path("hf", "vocab.txt"))
        self.refused(4, "hf: has no tokenizer", "put the model's tokenizer.json", "predict", "--model", "hf", "--data", "rows.jsonl", "--out",
                     "x.csv")
        shutil.copy(self.path("vocab.txt"), self.path("hf", "vocab.txt"))
        with open(self.path("hf", "model.safetensors"), "r+b") as f:
            header = 8 + int.from_bytes(f.read(8), "little")
            f.seek(0, os.SEEK_END)
            size = f.tell()
            f.seek(header)
            f.write(b"\xff" * (size - header))
        self.refused(4, "rows.jsonl: document 1: the model's answer is not a finite number", "use an earlier checkpoint", "predict", "--model",
                     "hf", "--data", "rows.jsonl", "--out", "x.csv")

    def test_text_of_another_tokenizer_is_refused(self):
        self.write("other.txt", "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *reversed(WORDS)]) + "\n")
        for name in ("vocab", "other"):
            done = orthant("data", "prepare-text", "--input", "held_out.txt", "--tokenizer", name + ".txt", "--separator", "blank-line",
                           "--out", name, cwd=self.folder)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.evaluate("run", "vocab")["eval"], self.result["eval"])
        self.assertEqual(len(self.predict("run", "vocab", "prepared.csv")), len(self.documents))
        for words in (("evaluate", "--run", "run"), ("predict", "--out", "x.csv", "--model", "run")):
            self.refused(4, "is another than the model was trained with", "name the text itself", *words, "--data", "other")
        self.write("empty.txt", "")
        self.refused(4, "there is no text in empty.txt", "name files that hold text", "evaluate", "--run", "run", "--data", "empty.txt")

    def test_runs_on_ids_score_ids_and_what_their_tokenizer_reads(self):
        for name in ("train", "held_out"):
            done = orthant("data", "prepare-text", "--input", name + ".txt", "--tokenizer", "vocab.txt", "--separator", "blank-line",
                           "--out", "ids-" + name, cwd=self.folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            shutil.copy(self.path("ids-" + name, "tokens.bin"), self.path(name + ".bin"))
        entry = {word: i + 5 for i, word in enumerate(WORDS)}
        documents = [[2] + [entry[word] for word in text.split()] + [3] for text in self.documents]
        documents[3] = []
        self.write("keyed.jsonl", "".join(json.dumps({"text": "none", "tokens": ids}) + "\n" for ids in documents))
        self.write("lists.jsonl", "\n".join(json.dumps(ids) for ids in documents))
        self.write("far.jsonl", "[1, 64]\n")
        ids = {"path": "train.bin", "eval_path": "held_out.bin", "token_type": "uint16"}
        keyed = {"path": "keyed.jsonl", "eval_path": None, "ids_column": "tokens"}
        runs = {"bin": {**ids, "tokenizer": None}, "bin-known": ids, "lines": {**keyed, "tokenizer": None}, "lines-known": keyed}
        for name, data in runs.items():
            config = self.run_config(LLAMA, **data)
            config["data"] = {key: value for key, value in config["data"].items() if value is not None}
            result = self.train(name, config)
            is_bin, is_known = name.startswith("bin"), name.endswith("known")
            predict = ("predict", "--out", "x.csv", "--model", name)
            with self.subTest(run=name):
                rows = self.predict(name, "lists.jsonl", "lists.csv")
                self.assertEqual(rows[3], {"row": 4, "tokens": 0, "loss": None, "perplexity": None})
                self.assertEqual([row["tokens"] for row in rows], [max(len(one) - 1, 0) for one in documents])
                whole = self.evaluate(name, "ids-held_out")["eval"]
                self.assertEqual(len(self.predict(name, "ids-held_out", "prepared.csv")), len(documents))
                if is_bin:
                    self.assertEqual(whole, result["eval"])
                    self.assertEqual(self.evaluate(name, "held_out.bin")["eval"], result["eval"])
                    self.refused(4, "held_out.bin: does not say where documents end", "[1, 2, 3], or measure all of it with orthant evaluate",
                                 *predict, "--data", "held_out.bin")
                else:
                    self.assert_close(self.predict(name, "keyed.jsonl", "keyed.csv"), rows)
                    self.assertEqual(self.evaluate(name, "keyed.jsonl")["eval"], self.evaluate(name, "lists.jsonl")["eval"])
                    for words in (predict, ("evaluate", "--run", name)):
                        self.refused(4, "held_out.bin: the run was not trained on a .bin", "write the ids as JSON lines", *words, "--data",
                                     "held_out.bin")
                if is_known:
                    self.assertEqual(self.evaluate(name, "held_out.txt")["eval"], whole)
                    self.assert_close(self.predict(name, "rows.jsonl", "texts.csv"), rows)
                for words in (predict, ("evaluate", "--run", name)):
                    self.refused(4, "far.jsonl has token ids up to 64, but ", "use ids of th", *words, "--data", "far.jsonl")
                    for text in () if is_known else ("held_out.txt", "rows.jsonl"):
                        self.refused(4, text + ": is text, and the run keeps no tokenizer", "name a file of ids, or a folder", *words,
                                     "--data", text)
        self.assertEqual(self.predict("lines-known", "keyed.jsonl", "texts.csv", "--text-column", "text")[3]["tokens"], 2)
        self.assert_close(self.predict("run", "lists.jsonl", "a.csv"), self.predict("run", "rows.jsonl", "b.csv"))

    def test_a_model_without_the_head_of_its_task_is_refused(self):
        self.train("headless", self.run_config({**LLAMA, "kind": "bert"}))
        only_json(self, orthant("checkpoint", "export", "headless/checkpoints/step-6", "body", "--format", "huggingface", "--json",
                                cwd=self.folder))
        with open(self.path("body", "model.safetensors"), "rb") as f:
            size = int.from_bytes(f.read(8), "little")
            header, data = json.loads(f.read(size)), f.read()
        kept, values = {}, b""
        for name, entry in header.items():
            if name != "__metadata__" and not name.startswith("cls."):
                begin, end = entry["data_offsets"]
                kept[name] = {**entry, "data_offsets": [len(values), len(values) + end - begin]}
                values += data[begin:end]
        text = json.dumps(kept).encode()
        with open(self.path("body", "model.safetensors"), "wb") as f:
            f.write(len(text).to_bytes(8, "little") + text + values)
        self.refused(4, "without which nothing can be scored", "the head of its task", "predict", "--model", "body", "--data", "rows.jsonl",
                     "--out", "x.csv")


if __name__ == "__main__":
    unittest.main()
