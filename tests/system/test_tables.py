"""Tables in, a trained classifier out: the commands about tables, bad rows, and the movies of bench/movies.py."""
import json
import os
import shutil
import subprocess
import sys

from program import ORTHANT, SOURCE, FolderTest, only_json, orthant

sys.path.insert(0, os.path.join(SOURCE, "bench"))

TOWER = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 600,
         "max_position_embeddings": 16}


class TableTest(FolderTest):
    def write(self, name, text):
        with open(self.path(name), "w") as f:
            f.write(text)
        return self.path(name)

    def refused(self, code, *words):
        finished = orthant(*words, cwd=self.folder)
        self.assertEqual(finished.returncode, code, finished.stderr)
        self.assertEqual(finished.stdout, "")
        return finished.stderr


class Commands(TableTest):
    TABLE = 'text,n,label\n"good, ""old"" film",1.5,yes\nbad film,,no\nshort\ngood film,NA,yes\n'

    def test_inspect_says_what_a_table_holds(self):
        path = self.write("t.csv", self.TABLE)
        facts = only_json(self, orthant("data", "inspect", path, "--json"))
        self.assertEqual((facts["rows"], facts["bad_rows"]["count"]), (3, 1))
        self.assertIn("t.csv:4:6: a row of 1 field, but the header has 3", facts["bad_rows"]["reasons"][0])
        text, number, label = facts["columns"]
        self.assertEqual((text["name"], text["kind"], text["distinct"]), ("text", "text", 3))
        self.assertEqual((number["kind"], number["missing"], number["min"], number["max"]), ("number", 2, 1.5, 1.5))
        self.assertEqual(label["values"], [{"value": "yes", "count": 2}, {"value": "no", "count": 1}])
        one = orthant("data", "inspect", self.write("one.csv", "label\nyes\n"))
        self.assertIn("one.csv: 1 row, 1 column\n", one.stdout)
        shown = orthant("data", "inspect", path, "--columns", "label")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn("values: yes (2), no (1)", shown.stdout)

    def test_a_vocabulary_knows_every_word_it_was_made_from(self):
        path = self.write("t.csv", self.TABLE)
        made = only_json(self, orthant("data", "make-vocabulary", "--data", path, "--columns", "text", "--size", 200, "--out",
                                       self.path("vocab.txt"), "--json"))
        with open(self.path("vocab.txt")) as f:
            lines = f.read().splitlines()
        self.assertEqual((lines[:5], len(lines)), (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], made["tokens"]))
        self.assertIn("film", lines)
        facts = only_json(self, orthant("data", "inspect", path, "--tokenizer", self.path("vocab.txt"), "--json"))
        self.assertEqual(facts["columns"][0]["tokens"]["unknown"], 0)

    def test_other_separators_are_named(self):
        for separator, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
            path = self.write("t.csv", separator.join(("text", "n", "label")) + "\n" + separator.join(("good", "1", "yes")) + "\n")
            errors = self.refused(2, "data", "make-vocabulary", "--data", path, "--columns", "text", "--out", self.path("vocab.txt"))
            self.assertIn(f"t.csv: its columns are separated by {name}, and those of a .csv file by commas\n  fix: ", errors)
        self.assertIn("name it .tsv", self.refused(2, "data", "prepare-text", "--input", self.write("u.csv", "text\tn\na\t1\n"), "--text-column", "text",
                                                   "--tokenizer", self.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"), "--out", "out"))
        self.assertFalse(os.path.exists(self.path("out")))

    def test_semicolons_are_named_wherever_a_table_is_looked_at(self):
        vocabulary = self.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
        for name, row in (("points.csv", "{};good, old film;1.5;yes\n"), ("commas.csv", "{};good film;1,5;yes\n"),
                          ("plain.csv", "{};good film;1;yes\n")):
            self.write(name, "id;text;n;label\n" + "".join(row.format(i) for i in range(30)))
            for words in (("data", "inspect", name), ("data", "inspect", name, "--columns", "text"), ("init", "--data", name, "out.json"),
                          ("init", "--data", name, "--tokenizer", vocabulary, "out.json")):
                with self.subTest(words=words):
                    errors = self.refused(2, *words)
                    self.assertIn(f"{name}: its columns are separated by semicolons, and those of a .csv file by commas\n"
                                  "  fix: save it with commas between columns and points in numbers: python3 -c ", errors)
        self.assertFalse(os.path.exists(self.path("out.json")))
        made = subprocess.run(errors.split("in numbers: ")[1], shell=True, cwd=self.folder, capture_output=True, text=True)
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        facts = only_json(self, orthant("data", "inspect", "plain-commas.csv", "--json", cwd=self.folder))
        self.assertEqual([column["name"] for column in facts["columns"]], ["id", "text", "n", "label"])

    def test_bytes_that_are_not_utf8_are_named_with_the_line_that_converts_the_file(self):
        vocabulary = self.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nfilm\n")
        word = "caf\xe9"
        rows = "".join(f"{'good film' if i != 20 else word},{i},{i % 2}\n" for i in range(40))
        for name, text, place in (("my table.csv", "text,n,label\n" + rows, 'my table.csv:22:4: column "text": byte 0xe9 is not UTF-8'),
                                  ("header.csv", "text,n\xe9,label\n" + rows, "header.csv:1:7: in the header: byte 0xe9 is not UTF-8"),
                                  ("lines.jsonl", '{"text": "film", "label": 1}\n{"text": "caf\xe9", "label": 0}\n',
                                   "lines.jsonl:2:14: byte 0xe9 is not UTF-8")):
            with open(self.path(name), "wb") as f:
                f.write(text.encode("latin-1"))
            for words in (("init", "--data", name, "--tokenizer", vocabulary, "--label", "label", "out.json"),
                          ("data", "prepare-text", "--input", name, "--tokenizer", vocabulary, "--out", "out"),
                          ("data", "make-vocabulary", "--data", name, "--columns", "text", "--out", "made.txt")):
                with self.subTest(name=name, words=words):
                    errors = self.refused(4, *words)
                    self.assertIn(place + "\n  fix: save the file as UTF-8: iconv -f WINDOWS-1252 -t UTF-8 ", errors)
        self.assertFalse(os.path.exists(self.path("out.json")) or os.path.exists(self.path("out")))
        errors = self.refused(4, "init", "--data", "my table.csv", "--tokenizer", vocabulary, "out.json")
        made = subprocess.run(errors.split("as UTF-8: ")[1], shell=True, cwd=self.folder, capture_output=True, text=True)
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        done = orthant("init", "--data", "my table-utf8.csv", "--tokenizer", vocabulary, "out.json", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        shown = orthant("data", "inspect", "my table.csv", cwd=self.folder).stdout
        self.assertIn('1 bad row:\n  my table.csv:22:4: column "text": byte 0xe9 is not UTF-8\n', shown)

    def test_text_that_is_not_utf8_is_refused_or_kept(self):
        vocabulary = self.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nship\n")
        with open(self.path("notes.txt"), "wb") as f:
            f.write(b"ship\n" * 300 + b"ship \xe4\n" + b"ship\n" * 300)
        prepare = ("data", "prepare-text", "--input", "notes.txt", "--tokenizer", vocabulary, "--out", "out")
        for words in (("init", "--model", "llama-tiny", "--data", "notes.txt", "--tokenizer", vocabulary, "run.json"), prepare):
            self.assertIn("notes.txt:301:6: byte 0xe4 is not UTF-8\n  fix: save the file as UTF-8: iconv -f WINDOWS-1252 -t UTF-8 notes.txt > notes-utf8.txt; "
                          "or keep such bytes as they are: data.keep_invalid_utf8=true (prepare-text: --keep-invalid-utf8)", self.refused(4, *words))
        kept = orthant(*prepare, "--keep-invalid-utf8", cwd=self.folder)
        self.assertEqual(kept.returncode, 0, kept.stderr)
        train = ("train", "--set", 'model={"preset": "llama-tiny"}', "--set", "data.kind=text", "--set", "data.path=notes.txt", "--set", f"data.tokenizer={vocabulary}",
                 "--set", "data.sequence_length=16", "--steps", 1, "--output-dir", "run")
        self.assertIn("notes.txt:301:6: byte 0xe4 is not UTF-8", self.refused(4, *train))
        kept = orthant(*train, "--set", "data.keep_invalid_utf8=true", cwd=self.folder)
        self.assertEqual(kept.returncode, 0, kept.stderr)
        with open(self.path("wide.txt"), "wb") as f:
            f.write("ship\n".encode("utf-16") * 30)
        self.assertIn("wide.txt: the file begins with the mark of UTF-16, and UTF-8 is read\n  fix: save the file as UTF-8: iconv -f UTF-16 -t UTF-8 wide.txt",
                      self.refused(4, "init", "--model", "llama-tiny", "--data", "wide.txt", "--tokenizer", vocabulary, "run.json"))

    def test_an_empty_corpus_leaves_no_folder(self):
        empty = self.write("empty.txt", "")
        vocabulary = self.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
        before = sorted(os.listdir(self.folder))
        for command in (("data", "prepare-text", "--input", empty, "--tokenizer", vocabulary, "--out", "out"),
                        ("train", "--set", "model.kind=bert", "--set", "model.preset=bert-tiny", "--set", "data.kind=text", "--set", f"data.path={empty}",
                         "--set", f"data.tokenizer={vocabulary}", "--output_dir", "run")):
            self.assertIn(f"there is no text in {empty} (0 bytes, ", self.refused(4, *command))
            self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_mistakes_are_named(self):
        path = self.write("t.csv", self.TABLE)
        errors = self.refused(2, "data", "inspect", path, "--columns", "labels")
        self.assertIn('t.csv: there is no column "labels"', errors)
        self.assertIn('did you mean "label"?', errors)
        self.assertIn("set --size to", self.refused(2, "data", "make-vocabulary", "--data", path, "--columns", "text", "--size", 9,
                                                    "--out", self.path("v.txt")))
        self.refused(4, "data", "inspect", self.path("none.csv"))


class Runs(TableTest):
    def setUp(self):
        super().setUp()
        made = only_json(self, orthant("data", "make-trimodal", "--rows", 200, "--out", self.folder, "--json"))
        self.data = made["data"]

    def config(self, **data):
        tabular = [f"feature_{i}" for i in range(1, 9)]
        config = {"name": "t", "seed": 3,
                  "model": {"kind": "trimodal", "primary": TOWER, "secondary": TOWER, "tabular": {"input_dim": 8, "hidden_dim": 8},
                            "fusion": {"hidden_size": 8}, "num_labels": 2},
                  "data": {"kind": "trimodal", "path": self.data, "primary_text": "dialogue", "secondary_text": "shiptrack",
                           "tabular": tabular, "label": "label", "tokenizer": self.path("vocab.txt"), "sequence_length": 16,
                           "eval_fraction": 0.2, **data},
                  "train": {"global_batch_size": 16, "steps": 4}}
        return self.write("config.json", json.dumps(config))

    def test_preprocessing_is_saved_and_a_run_goes_on_with_the_same_data_only(self):
        config = self.config(class_weights="balanced")
        run = self.path("run")
        result = only_json(self, orthant("train", "--config", config, "--output_dir", run, "--steps", 2, "--json"))
        self.assertIn("accuracy", result["eval"])
        for place in (run, self.path("run", "checkpoints", "step-2")):
            with open(os.path.join(place, "preprocessing.json")) as f:
                saved = json.load(f)
            self.assertEqual(saved["labels"], ["0", "1"])
            self.assertEqual([number["column"] for number in saved["numbers"]], [f"feature_{i}" for i in range(1, 9)])
            self.assertEqual(len(saved["class_weights"]), 2)
        only_json(self, orthant("train", "--config", config, "--output_dir", run, "--steps", 3, "--resume", "auto", "--json"))
        with open(self.data) as f:
            lines = f.read().splitlines()
        self.write("trimodal.csv", "\n".join(lines[:-20]) + "\n")
        errors = self.refused(4, "train", "--config", config, "--output_dir", run, "--resume", "auto", "--json")
        self.assertIn(f"other data: {self.data} has other contents than when that run read it", errors)
        self.assertIn("start a new run", errors)

    def test_checkpoints_are_proved_shown_and_exported(self):
        run, step = self.path("run"), self.path("run", "checkpoints", "step-2")
        only_json(self, orthant("train", "--config", self.config(), "--output_dir", run, "--steps", 2, "--json"))
        facts = only_json(self, orthant("checkpoint", "verify", step, "--json"))
        self.assertTrue(facts["valid"])
        facts = only_json(self, orthant("checkpoint", "inspect", step, "--json"))
        self.assertLessEqual({"preprocessing.json", "rank-0.safetensors"}, {file["name"] for file in facts["files"]})
        for tower in ("primary", "secondary"):
            result = only_json(self, orthant("checkpoint", "export", step, self.path(tower), "--format", "huggingface", "--tower", tower,
                                             "--json"))
            self.assertEqual(result["files"], ["model.safetensors", "config.json", "vocab.txt"])
            with open(self.path(tower, "vocab.txt")) as ours, open(self.path("vocab.txt")) as given:
                self.assertEqual(ours.read(), given.read())

    def test_towers_from_folders_that_are_gone_are_trained_on(self):
        only_json(self, orthant("train", "--config", self.config(), "--output_dir", self.path("first"), "--steps", 1, "--json"))
        for tower in ("primary", "secondary"):
            only_json(self, orthant("checkpoint", "export", self.path("first", "checkpoints", "step-1"), self.path(tower), "--format",
                                    "huggingface", "--tower", tower, "--json"))
        config = self.config(tokenizer=None)
        with open(config) as f:
            values = json.load(f)
        del values["data"]["tokenizer"]
        for tower in ("primary", "secondary"):
            values["model"][tower] = {"path": self.path(tower)}
        self.write("config.json", json.dumps(values))
        whole = only_json(self, orthant("train", "--config", config, "--output_dir", self.path("whole"), "--json"))
        run = self.path("run")
        only_json(self, orthant("train", "--config", config, "--output_dir", run, "--steps", 2, "--json"))
        for tower in ("primary", "secondary"):
            shutil.rmtree(self.path(tower))
        resumed = only_json(self, orthant("train", "--config", self.path("run", "config.json"), "--output_dir", run, "--resume", "auto",
                                          "--json"))
        self.assertEqual((resumed["steps"], resumed["weights_hash"]), (4, whole["weights_hash"]))
        result = only_json(self, orthant("checkpoint", "export", self.path("run", "checkpoints", "step-4"), self.path("out"), "--format",
                                         "huggingface", "--tower", "secondary", "--json"))
        self.assertIn("vocab.txt", result["files"])

    def test_ranks_say_once_what_is_wrong_with_the_data(self):
        for words, text in ((("--set", "data.label=lable"), 'there is no column "lable"'), (("--set", "data.path=none.csv"), "none.csv"),
                            (("--set", "data.tokenizer=none"), "none")):
            finished = orthant("train", "--config", self.config(), "--mesh", "dp=2", "--output_dir", self.path("run"), *words, cwd=self.folder)
            self.assertIn(finished.returncode, (2, 4), finished.stderr)
            self.assertEqual(finished.stderr.count("error: "), 1, finished.stderr)
            self.assertEqual(finished.stderr.count("fix: "), 1, finished.stderr)
            self.assertIn(text, finished.stderr)
            self.assertNotIn("last lines", finished.stderr)
            self.assertFalse(os.path.exists(self.path("run")))

    def test_sizes_of_the_model_are_asked_for_together(self):
        errors = self.refused(2, "train", "--config", self.config(), "--output_dir", self.path("run"), "--set", "model.tabular.input_dim=3",
                              "--set", "model.num_labels=5")
        self.assertIn("model.tabular.input_dim is 3, but data.tabular names 8 columns", errors)
        self.assertIn("; model.num_labels is 5, but column label of ", errors)
        self.assertIn("fix: set model.tabular.input_dim=8 and model.num_labels=2", errors)

    def test_a_table_is_read_once_on_a_host(self):
        """Only the first rank finds the file where it runs; the pipeline computes the bits of one rank all the same."""
        config = self.config(path="table.csv")
        for rank in range(2):
            os.makedirs(self.path(f"rank{rank}"))
        os.rename(self.data, self.path("rank0", "table.csv"))
        script = 'cd "$0/rank$LOCAL_RANK" && exec "$@"'
        words = ("train", "--config", config, "--json")
        shared = orthant("launch", "--nproc", 2, "--", "sh", "-c", script, self.folder, ORTHANT, *words, "--mesh", "pp=2", "--output_dir", self.path("two"))
        self.assertEqual(shared.returncode, 0, shared.stderr)
        with open(self.path("two", "log", "rank-1.log")) as f:
            self.assertIn("rows are shared with rank 0, which read them", f.read())
        with open(self.path("two", "log", "rank-0.log")) as f:
            self.assertNotIn("are shared with", f.read())
        alone = only_json(self, orthant(*words, "--output_dir", self.path("one"), cwd=self.path("rank0")))
        result = json.loads(shared.stdout.removeprefix("[rank 0] "))
        for key in ("weights_hash", "eval"):
            self.assertEqual(result[key], alone[key], key)

    def test_rates_are_refused_before_ranks_start(self):
        for setting in ("optimizer.lr=-1", "lr_schedule.warmup_steps=-1", "lr_schedule.final_fraction=2"):
            errors = self.refused(2, "train", "--config", self.config(), "--mesh", "dp=2", "--output_dir", self.path("run"), "--set", setting)
            self.assertTrue(errors.startswith("orthant: error: "), errors)
            self.assertIn(setting.partition("=")[0], errors)
            self.assertNotIn("[rank", errors)

    def test_a_tower_of_none_is_named(self):
        errors = self.refused(2, "train", "--config", self.config(), "--set", "model.secondary=null")
        self.assertIn("model.secondary: is null, and a trimodal model has two towers\n  fix: leave secondary out", errors)

    def test_a_vocabulary_follows_its_tokenizer(self):
        with open(self.path("vocab.txt")) as f:
            size = len(f.read().splitlines())
        words = ("--set", "model.primary.vocab_size=null", "--set", "model.secondary.vocab_size=null")
        shown = orthant("train", "--config", self.config(), *words, "--print-config").stdout
        for tower in ("primary", "secondary"):
            self.assertRegex(shown, rf"\nmodel\.{tower}\.vocab_size = {size} +\(data\.{tower}_tokenizer: ")
        run = self.path("run")
        first = only_json(self, orthant("train", "--config", self.config(), *words, "--mesh", "dp=2", "--output_dir", run, "--steps", 2, "--json"))
        self.assertEqual(first["steps"], 2)
        os.rename(self.path("vocab.txt"), self.path("gone.txt"))  # the folder has its own
        again = orthant("train", "--config", self.path("run", "config.json"), "--output_dir", run, "--resume", "auto", "--json")
        self.assertEqual(only_json(self, again)["steps"], 4)
        errors = self.refused(2, "train", "--config", self.config(tokenizer=None), *words)
        self.assertIn("model.primary.vocab_size is null, and there is no data.primary_tokenizer to follow", errors)

    def test_a_cased_vocabulary_given_as_a_file_stays_cased(self):
        vocabulary = self.path("cased", "vocab.txt")
        only_json(self, orthant("data", "make-vocabulary", "--data", self.data, "--columns", "dialogue,shiptrack", "--cased", "--size", 500,
                                "--out", vocabulary, "--json"))
        run, export = self.path("run"), self.path("export")
        only_json(self, orthant("train", "--config", self.config(tokenizer=vocabulary), "--output_dir", run, "--steps", 2, "--json"))
        shutil.rmtree(self.path("cased"))  # the run has its own
        only_json(self, orthant("evaluate", "--run", run, "--data", self.data, "--json"))
        only_json(self, orthant("checkpoint", "export", self.path("run", "checkpoints", "step-2"), export, "--format", "huggingface", "--json"))
        scores = []
        for model in (run, export):
            only_json(self, orthant("predict", "--model", model, "--data", self.data, "--out", self.path("scores.csv"), "--json"))
            with open(self.path("scores.csv")) as f:
                scores.append(f.read())
            for tower in ("primary", "secondary"):
                with open(os.path.join(model, "tokenizers", tower, "tokenizer_config.json")) as f:
                    self.assertIs(json.load(f)["do_lower_case"], False)
        self.assertEqual(scores[0], scores[1])

    def test_a_vocabulary_for_a_cased_name_keeps_case(self):
        for name, cased in (("bert-base-cased", True), ("bert-base-uncased", False), ("roberta-large", True), ("own", False)):
            errors = self.refused(4, "train", "--config", self.config(), "--set", f"data.tokenizer={name}", "--output_dir", self.path("run"))
            made = f"orthant data make-vocabulary --data {self.data} --columns dialogue,shiptrack{' --cased' if cased else ''} --out models/{name}/vocab.txt"
            self.assertIn(made, errors)

    def test_a_bad_row_stops_the_run_or_is_left_out(self):
        with open(self.data) as f:
            lines = f.read().splitlines()
        lines[9] = lines[9].rsplit(",", 2)[0] + ",much,1"
        self.write("trimodal.csv", "\n".join(lines) + "\n")
        errors = self.refused(4, "train", "--config", self.config(), "--output_dir", self.path("run"), "--json")
        self.assertRegex(errors, r'trimodal\.csv:10:\d+: column "feature_8": "much" is not a number')
        finished = orthant("train", "--config", self.config(bad_rows="skip"), "--output_dir", self.path("run"), "--json")
        only_json(self, finished)
        self.assertIn("1 bad row was left out", finished.stderr)

    def test_mistakes_are_named(self):
        errors = self.refused(2, "train", "--config", self.config(label="lable"), "--output_dir", self.path("run"))
        self.assertIn('there is no column "lable"', errors)
        self.assertIn('did you mean "label"?', errors)
        errors = self.refused(4, "train", "--config", self.config(tokenizer="bert-base-cased"), "--output_dir", self.path("run"))
        self.assertIn("make-vocabulary", errors)


class Movies(TableTest):
    def test_all_parts_beat_the_majority_class(self):
        import movies
        majority = movies.write_fold(self.folder, 0, 4)
        movies.make_vocabulary(self.folder)
        accuracy = movies.accuracy(self.folder, movies.PARTS[0], epochs=4)
        self.assertGreater(accuracy, majority + 0.1)
