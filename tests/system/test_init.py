"""orthant init: a model and data in, a commented configuration out that passes --dry-run and trains."""
import json
import os
import shlex
import struct

import crafted_models
from crafted_files import tensors_file
from program import FolderTest, only_json, orthant

WORDS = "the a ship sails over seven seas and comes home again with salt tea silk".split()
BERT = {"model_type": "bert", "architectures": ["BertModel"], "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 24, "vocab_size": 24, "max_position_embeddings": 64, "type_vocab_size": 2}
GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32, "vocab_size": 261}


def bert_shapes():
    hidden, inner, vocabulary, positions = (BERT[key] for key in ("hidden_size", "intermediate_size", "vocab_size", "max_position_embeddings"))
    shapes = {"embeddings.word_embeddings.weight": (vocabulary, hidden), "embeddings.position_embeddings.weight": (positions, hidden),
              "embeddings.token_type_embeddings.weight": (2, hidden)}
    linears = {"attention.self.query": (hidden, hidden), "attention.self.key": (hidden, hidden), "attention.self.value": (hidden, hidden),
               "attention.output.dense": (hidden, hidden), "intermediate.dense": (inner, hidden), "output.dense": (hidden, inner)}
    for name, shape in {**{f"encoder.layer.0.{name}": shape for name, shape in linears.items()}, "pooler.dense": (hidden, hidden)}.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    for norm in ("embeddings", "encoder.layer.0.attention.output", "encoder.layer.0.output"):
        shapes |= {f"{norm}.LayerNorm.weight": (hidden,), f"{norm}.LayerNorm.bias": (hidden,)}
    return shapes


def gpt2_shapes():
    hidden = GPT2["n_embd"]
    shapes = {"wte.weight": (GPT2["vocab_size"], hidden), "wpe.weight": (GPT2["n_positions"], hidden)}
    for name, width, inner in (("attn.c_attn", hidden, 3 * hidden), ("attn.c_proj", hidden, hidden), ("mlp.c_fc", hidden, 4 * hidden),
                               ("mlp.c_proj", 4 * hidden, hidden)):
        shapes |= {f"h.0.{name}.weight": (width, inner), f"h.0.{name}.bias": (inner,)}
    for norm in ("h.0.ln_1", "h.0.ln_2", "ln_f"):
        shapes |= {f"{norm}.weight": (hidden,), f"{norm}.bias": (hidden,)}
    return {f"transformer.{name}": shape for name, shape in shapes.items()}


class InitTest(FolderTest):
    def write(self, name, content):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb") as f:
            f.write(content if isinstance(content, bytes) else content.encode())
        return name

    def init(self, *words):
        return orthant("init", *words, cwd=self.folder)

    def written(self, *words):
        """What init says of these options; its file must be accepted as it is."""
        said = only_json(self, self.init(*words, "run.json", "--force", "--json"))
        with open(self.path("run.json")) as f:
            self.assertEqual(json.load(f), said["config"])
        dry = orthant("train", "--config", "run.json", "--dry-run", cwd=self.folder)
        self.assertEqual(dry.returncode, 0, dry.stderr)
        return said

    def trains(self):
        done = only_json(self, orthant("train", "--config", "run.json", "--steps", 2, "--json", cwd=self.folder))
        self.assertEqual(done["steps"], 2)
        return done

    def sentence(self, i, words=12):
        return " ".join(WORDS[(i * 7 + j * (i + 1)) % len(WORDS)] for j in range(words))

    def text(self, name="notes.txt", lines=120):
        return self.write(name, "\n".join(self.sentence(i) for i in range(lines)) + "\n")

    def vocabulary(self, name="vocab.txt"):
        return self.write(name, "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n")

    def table(self, name="claims.csv", rows=40, more=""):
        lines = [f"{i},{self.sentence(i)},{self.sentence(i, 3)},{i % 5}.5,{'late' if i % 4 else 'lost'}" for i in range(rows)]
        return self.write(name, "id,story,note,days,outcome\n" + "\n".join(lines) + "\n" + more)

    def llama(self):
        os.makedirs(self.path("my-llama"))
        crafted_models.make_llama(self.path("my-llama"))
        self.vocabulary("my-llama/vocab.txt")
        return "my-llama"

    def bert(self):
        self.write("my-bert/config.json", json.dumps(BERT))
        self.write("my-bert/model.safetensors", tensors_file(bert_shapes()))
        self.vocabulary("my-bert/vocab.txt")
        return "my-bert"


class Written(InitTest):
    def test_a_folder_with_weights_and_text_is_fine_tuned(self):
        said = self.written("--model", self.llama(), "--data", self.text())
        config = said["config"]
        self.assertEqual((said["for"], config["name"]), ("finetune", "notes-finetune"))
        self.assertIn("a model with weights (--for says otherwise)", said["found"]["use"])
        self.assertEqual(config["model"]["path"], "my-llama")
        self.assertEqual((config["data"]["tokenizer"], config["data"]["sequence_length"], config["data"]["eval_fraction"]), ("my-llama", 16, 0.05))
        self.assertEqual((config["optimizer"]["lr"], config["train"]["epochs"], config["train"]["global_batch_size"]), (2e-5, 3, 8))
        self.assertEqual(config["precision"]["compute"], "float32")
        self.assertTrue(all("_comment" in section for section in config.values() if isinstance(section, dict)))
        self.assertIn("perplexity", self.trains()["eval"])
        # Values of the file, and none of the demo's.
        printed = orthant("train", "--config", "run.json", "--print-config", cwd=self.folder).stdout
        self.assertNotIn("the embedded default", printed)
        # From scratch: the same sizes without the weights.
        said = self.written("--model", "my-llama", "--data", "notes.txt", "--for", "pretrain")
        self.assertNotIn("path", said["config"]["model"])
        self.assertEqual((said["config"]["model"]["hidden_size"], said["config"]["optimizer"]["lr"]), (16, 1e-3))

    def test_gpt2_reads_a_column_of_documents(self):
        self.write("my-gpt2/config.json", json.dumps(GPT2))
        self.write("my-gpt2/model.safetensors", tensors_file(gpt2_shapes()))
        crafted_models.make_bpe(self.path("my-gpt2"))
        self.write("lines.jsonl", "".join(json.dumps({"content": self.sentence(i), "label": i % 2}) + "\n" for i in range(60)))
        said = self.written("--model", "my-gpt2", "--data", "lines.jsonl")
        self.assertEqual((said["for"], said["config"]["data"]["text_column"]), ("finetune", "content"))
        self.assertEqual(said["config"]["data"]["sequence_length"], 32, "the model has no more positions")
        self.trains()

    def test_a_table_is_classified(self):
        said = self.written("--data", self.table(more="short\n"), "--tokenizer", self.vocabulary())
        data = said["config"]["data"]
        self.assertEqual((said["for"], data["label"], data["tabular"]), ("classify", "outcome", ["days"]))
        self.assertEqual((data["primary_text"], data["secondary_text"]), ("story", "note"))
        self.assertEqual((data["sequence_length"], data["secondary_length"], data["bad_rows"]), (16, 8, "skip"))
        self.assertEqual(data["class_weights"], "balanced", "there are three times as many of one class")
        self.assertIn("late (30), lost (10)", said["found"]["label"])
        self.assertEqual(said["found"]["unused"], "id")
        self.trains()
        said = self.written("--model", self.bert(), "--data", "claims.csv")
        self.assertEqual((said["config"]["model"]["primary"], said["config"]["optimizer"]["lr"]), ({"path": "my-bert"}, 2e-5))
        self.trains()
        said = self.written("--model", "bert-tiny", "--data", "claims.csv", "--tokenizer", "vocab.txt", "--label", "days")
        self.assertEqual((said["config"]["model"]["num_labels"], said["config"]["data"]["tabular"]), (5, []))

    def test_one_bad_cell_leaves_a_column_what_it_is(self):
        good = self.written("--data", self.table(), "--tokenizer", self.vocabulary())["config"]["data"]
        self.assertEqual(good["bad_rows"], "stop")
        for place, rows, cells in ((8, 40, 'days: 1 of 40 cells is not a number, in line 10: "two weeks"'),
                                   (1500, 2000, 'days: 1 of 2000 cells is not a number, in line 1502: "two weeks"')):
            with self.subTest(place=place):
                with open(self.path(self.table(rows=rows))) as f:
                    lines = f.read().splitlines()
                fields = lines[place + 1].split(",")
                lines[place + 1] = ",".join(fields[:3] + ["two weeks"] + fields[4:])
                self.write("claims.csv", "\n".join(lines) + "\n")
                said = self.written("--data", "claims.csv", "--tokenizer", "vocab.txt")
                self.assertEqual(said["found"]["cells"], cells + "; such rows are left out (data.bad_rows skip)")
                for key in ("primary_text", "secondary_text", "tabular", "label", "sequence_length", "secondary_length"):
                    self.assertEqual(said["config"]["data"][key], good[key])
                self.assertEqual(said["config"]["data"]["bad_rows"], "skip")
                self.trains()

    def test_a_column_of_words_among_numbers_is_named(self):
        lines = [f"{self.sentence(i)},{'unknown' if i % 3 == 0 else i},{i % 2}" for i in range(30)]
        said = self.written("--data", self.write("t.csv", "story,days,label\n" + "\n".join(lines) + "\n"), "--tokenizer", self.vocabulary())
        self.assertEqual(said["found"]["cells"],
                         'days: 10 of 30 cells are not numbers, the first in line 2: "unknown"; too many for a column of numbers')
        self.assertEqual((said["config"]["data"]["tabular"], said["config"]["data"]["secondary_text"]), ([], "days"))

    def test_dates_and_amounts_are_not_taken_for_texts(self):
        lines = [f"{self.sentence(i, 2)},${i}.50,2024-01-{i % 28 + 1:02d},{i % 2}" for i in range(30)]
        said = self.written("--data", self.write("t.csv", "story,price,date,label\n" + "\n".join(lines) + "\n"), "--tokenizer", self.vocabulary())
        self.assertEqual((said["config"]["data"]["primary_text"], said["config"]["data"]["secondary_text"]), ("story", None))
        self.assertEqual(said["found"]["cells"], 'price: neither numbers nor texts, such as "$0.50" in line 2; write numbers like -2.5 or 1e3; '
                         'date: neither numbers nor texts, such as "2024-01-01" in line 2; write numbers like -2.5 or 1e3')
        self.assertEqual(said["found"]["unused"], "price, date")
        asked = self.written("--data", "t.csv", "--tokenizer", "vocab.txt", "--text-column", "date")
        self.assertEqual(asked["config"]["data"]["primary_text"], "date")

    def test_what_spreadsheet_programs_write(self):
        plain = self.written("--data", self.table(), "--tokenizer", self.vocabulary())
        with open(self.path("claims.csv"), "rb") as f:
            table = f.read()
        self.write("EXCEL.CSV", b"\xef\xbb\xbf" + table.replace(b"\n", b"\r\n") + b"\r\n\r\n")
        said = self.written("--data", "EXCEL.CSV", "--tokenizer", "vocab.txt")
        self.assertEqual({**said["config"]["data"], "path": "claims.csv"}, plain["config"]["data"])
        self.assertEqual(said["found"]["label"], plain["found"]["label"])
        self.trains()

    def test_labels_that_may_be_misspelt_are_named(self):
        lines = [f"{self.sentence(i)},{i},{'late' if i % 4 else 'lost'}" for i in range(60)]
        lines += [f"{self.sentence(1)},1,Late", f"{self.sentence(2)},2,losst", f"{self.sentence(3)},3,lost "]
        self.write("t.csv", "story,days,Outcome \n" + "\n".join(lines) + "\n")
        typos = ('"Late" (1 row, line 62) may be "late", "losst" (1 row, line 63) may be "lost", "lost " (1 row, line 64) may be "lost"')
        said = self.written("--data", "t.csv", "--tokenizer", self.vocabulary())
        self.assertEqual(said["found"]["misspelt?"], typos + ": if so, mend the table; else each is a class of its own")
        self.assertIn('"Outcome ": 5 classes: late (45), lost (15), Late (1), losst (1), "lost " (1)', said["found"]["label"])
        self.assertIn(f"  misspelt? {typos}\n", orthant("data", "inspect", "t.csv", cwd=self.folder).stdout)
        trained = orthant("train", "--config", "run.json", "--steps", 1, cwd=self.folder)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertIn('WARNING: labels may be misspelt: "Late" (1 row) may be "late", "losst" (1 row) may be "lost", "lost " (1 row) may be "lost"; '
                      "each is a class of its own. Mend the table, or list the classes in data.labels", trained.stderr)
        listed = orthant("train", "--config", "run.json", "--steps", 1, "--set", 'data.labels=["late","lost","Late","lost ","losst"]', cwd=self.folder)
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertNotIn("misspelt", listed.stderr)

    def test_ids_and_prepared_tokens(self):
        ids = [(i * 7) % 200 for i in range(4096)]
        for name, letter, kind in (("two.bin", "H", "uint16"), ("four.bin", "I", "uint32")):
            self.write(name, struct.pack(f"<{len(ids)}{letter}", *ids))
            said = self.written("--model", "llama-tiny", "--data", name)
            self.assertEqual((said["for"], said["config"]["data"]["token_type"]), ("pretrain", kind))
            self.assertEqual((said["config"]["data"]["sequence_length"], said["config"]["model"]["preset"]), (64, "llama-tiny"))
        self.write("ids.jsonl", "".join(json.dumps({"input_ids": ids[i:i + 30]}) + "\n" for i in range(0, 3000, 30)))
        said = self.written("--model", "gpt2-tiny", "--data", "ids.jsonl")
        self.assertEqual((said["config"]["data"]["ids_column"], said["config"]["data"]["sequence_length"]), ("input_ids", 32))
        prepared = orthant("data", "prepare-text", "--input", self.text(), "--tokenizer", self.vocabulary(), "--out", "tokens", cwd=self.folder)
        self.assertEqual(prepared.returncode, 0, prepared.stderr)
        self.assertRegex(prepared.stdout, "^tokens: [0-9]+ tokens in 1 document from .* in 1 file, ")
        self.assertRegex(orthant("data", "inspect", "tokens", cwd=self.folder).stdout, "^tokens: [0-9]+ tokens, 1 document [(]0 empty ones")
        said = self.written("--data", "tokens")
        self.assertEqual((said["config"]["model"]["vocab_size"], said["config"]["data"]["path"]), (20, "tokens"))
        said = self.written("--model", "bert-tiny", "--data", "tokens")
        self.assertEqual(said["config"]["model"]["vocab_size"], 20, "a preset takes the tokenizer's vocabulary")
        self.trains()

    def test_without_data_the_run_can_be_tried(self):
        said = self.written("--model", "llama-tiny")
        self.assertEqual((said["config"]["data"]["kind"], said["config"]["name"]), ("tokens", "llama-tiny-pretrain"))
        self.assertIn("name yours with --data", said["found"]["data"])

    def test_a_folder_of_text_files(self):
        self.text("books/a.txt")
        self.text("books/b.txt")
        said = self.written("--data", "books", "--tokenizer", self.vocabulary())
        self.assertEqual(said["config"]["data"]["path"], ["books/a.txt", "books/b.txt"])

    def test_documents_of_a_text_end_where_the_separator_says(self):
        self.write("notes.txt", "\n\n".join(self.sentence(i) for i in range(90)) + "\n\n \n")
        words = ("--model", self.llama(), "--data", "notes.txt")
        said = self.written(*words)
        self.assertEqual(said["config"]["data"]["separator"], "file")
        self.assertIn("blank-line", said["config"]["data"]["_comment_separator"])
        self.assertEqual(said["found"]["documents"], "1: the end token is hardly seen; --separator blank-line would give 90")
        said = self.written(*words, "--separator", "blank-line")
        self.assertEqual((said["config"]["data"]["separator"], said["found"]["documents"]), ("blank-line", "90"))
        self.assertEqual(said["found"]["begin"], "each document begins with [CLS], as the tokenizer has it; data.begin_token=false leaves it out")
        self.assertIsNone(said["config"]["data"]["begin_token"])
        self.assertIn("99 of 100 documents have at most 14,", said["found"]["length"])
        self.trains()
        self.assertEqual(self.written(*words, "--separator", "file")["found"]["documents"], "1: the end token is hardly seen")
        self.assertNotIn("line ends", said["found"])
        self.write("windows.txt", "".join(f"{self.sentence(i)}\r\n{self.sentence(i + 1)}\r\n\r\n" for i in range(90)))
        said = self.written("--model", "my-llama", "--data", "windows.txt", "--separator", "blank-line")
        self.assertEqual((said["found"]["documents"], said["found"]["line ends"]),
                         ("90", "of Windows: the model learns \\r before each line end; sed -i 's/\\r$//' windows.txt removes it"))
        self.assertNotIn("line ends", self.written("--model", "my-llama", "--data", "windows.txt", "--separator", "line")["found"])
        self.text("lines.txt", lines=70)
        said = self.written("--model", "my-llama", "--data", "lines.txt")
        self.assertEqual(said["found"]["documents"], "1: the end token is hardly seen; --separator line would give 70")
        self.write("large.txt", "\n\n".join(self.sentence(0, 100) for _ in range(8000)))
        said = self.written("--model", "my-llama", "--data", "large.txt")
        self.assertRegex(said["found"]["documents"], "^1: the end token is hardly seen; --separator blank-line would give about (79|80)[0-9][0-9]$")

    def test_a_fine_tuned_model_is_exported_as_the_last_lines_say(self):
        self.written("--model", self.llama(), "--data", self.text())
        done = orthant("train", "--config", "run.json", "--output-dir", "tuned", "--epochs", 1, "--set", "optimizer.lr=0.01", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, "notes.txt: [0-9]+ tokens in 1 document; [0-9]+ samples to train on")
        with open(self.path("tuned", "eval.jsonl")) as f:
            losses = {line["step"]: line["loss"] for line in map(json.loads, f)}
        with open(self.path("tuned", "checkpoints", "best")) as f:
            step = int(f.read().removeprefix("step-"))
        self.assertEqual(losses[step], min(losses.values()))
        self.assertRegex(done.stdout, f"\nbest eval loss +{losses[step]:.4f} at step {step}: tuned/checkpoints/best\n")
        self.assertRegex(done.stdout, r"\nexport +orthant checkpoint export tuned/checkpoints/best --format huggingface FOLDER\n")
        exported = orthant("checkpoint", "export", "tuned/checkpoints/best", "--format", "huggingface", "exported", cwd=self.folder)
        self.assertEqual(exported.returncode, 0, exported.stderr)
        self.written("--model", "my-llama", "--data", "notes.txt", "--for", "pretrain")
        scratch = orthant("train", "--config", "run.json", "--steps", 1, "--output-dir", "scratch", cwd=self.folder)
        self.assertEqual(scratch.returncode, 0, scratch.stderr)
        self.assertNotIn("export", scratch.stdout)

    def test_weights_in_pickles_are_left_out_when_asked(self):
        os.rename(self.path(self.llama(), "model.safetensors"), self.path("my-llama", "pytorch_model.bin"))
        said = self.written("--model", "my-llama", "--data", self.text(), "--for", "pretrain")
        self.assertIn("without weights", said["found"]["model"])
        self.assertNotIn("path", said["config"]["model"])

    def test_people_are_told_what_was_found(self):
        done = self.init("--model", "llama-tiny", "--data", self.text(), "--tokenizer", self.vocabulary(), "run.json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for line in ("model      llama-tiny: llama, ", "use        pretrain: no weights to start from", "tokenizer  vocab.txt: WordPiece, 20 tokens",
                     "data       notes.txt: text, about 1.4K tokens", "length     16 tokens a sample", "training   learning rate 0.001, 10 x about ",
                     "wrote      run.json: orthant train --config run.json"):
            self.assertIn(line, done.stdout)
        self.assertIn("Example:\n  orthant init --model Llama-3.2-1B --data notes.txt run.json", self.init("--help").stdout)
        self.assertIn("  init ", orthant("--help").stdout)


class WithoutInit(InitTest):
    def test_a_model_of_ones_own_takes_nothing_from_the_demo(self):
        words = ("train", "--set", f"model.path={self.llama()}", "--set", "data.kind=text", "--set", f"data.path={self.text()}",
                 "--set", "data.tokenizer=my-llama")
        printed = orthant(*words, "--print-config", cwd=self.folder)
        self.assertEqual(printed.returncode, 0, printed.stderr)
        for value in ("name=finetune", "optimizer.lr=2e-05", "train.epochs=3", "train.global_batch_size=16", "data.sequence_length=32"):
            self.assertIn(f"(default of finetune: {value})", printed.stdout)
        self.assertNotIn("the embedded default", printed.stdout)
        done = only_json(self, orthant(*words, "--steps", 2, "--json", cwd=self.folder))
        self.assertEqual((done["steps"], os.path.basename(done["output_dir"])), (2, "finetune-1"))


class Refused(InitTest):
    def refused(self, code, message, remedy, *words):
        before = sorted(os.listdir(self.folder))
        done = self.init(*words)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertIn(message, done.stderr)
        self.assertIn(remedy, done.stderr.split("fix: ")[1])
        self.assertEqual(sorted(os.listdir(self.folder)), before, "nothing is written")

    def test_a_file_that_is_there_stays(self):
        self.write("run.json", "mine")
        self.refused(2, "run.json is there already", "--force", "--model", "llama-tiny", "run.json")
        with open(self.path("run.json")) as f:
            self.assertEqual(f.read(), "mine")

    def test_a_fix_is_quoted_for_the_shell(self):
        self.write("my claims.csv", "the story;long,it's,label\n" + "".join(f"{self.sentence(i)},{self.sentence(i, 3)},{i % 2}\n" for i in range(30)))
        done = self.init("--data", "my claims.csv", "--tokenizer", "my own", "run.json")
        self.assertEqual(done.returncode, 4, done.stderr)
        line = done.stderr.split("your data: ")[1].strip()
        self.assertEqual(shlex.split(line), ["orthant", "data", "make-vocabulary", "--data", "my claims.csv", "--columns", "the story;long,it's",
                                             "--out", "models/my own/vocab.txt"])
        made = orthant(*shlex.split(line)[1:], cwd=self.folder)
        self.assertEqual(made.returncode, 0, made.stderr)
        done = self.init("--data", "my claims.csv", "--tokenizer", "my own", "my run.json")
        self.assertIn("wrote      my run.json: orthant train --config 'my run.json'\n", done.stdout)

    def test_a_text_column_is_one_of_the_table_with_texts(self):
        table = ("--data", self.table(), "--tokenizer", self.vocabulary())
        for code, column, message, remedy in (
                (2, "storys", "--text-column storys: claims.csv has no such column", 'did you mean "story"?'),
                (4, "days", "claims.csv: column days is the label, or does not hold texts (columns: id, story", "--text-column COLUMN"),
                (4, "outcome", "claims.csv: column outcome is the label, or does not hold texts", "the label with --label COLUMN")):
            with self.subTest(column=column):
                self.refused(code, message, remedy, *table, "--text-column", column, "run.json")

    def test_a_classifier_reads_the_named_text_first(self):
        table = ("--data", self.table(), "--tokenizer", self.vocabulary(), "--json", "--force", "run.json")
        for words, texts in (((), ("story", "note")), (("--text-column", "note"), ("note", "story"))):
            data = only_json(self, self.init(*table, *words))["config"]["data"]
            self.assertEqual((data["primary_text"], data["secondary_text"]), texts)

    def test_a_missing_vocabulary_is_made_where_it_was_looked_for(self):
        for path in ("vocab.txt", "words/of/mine.txt"):
            with self.subTest(path=path):
                words = ("--data", self.table(), "--tokenizer", path, "--force", "run.json")
                done = self.init(*words)
                self.assertEqual(done.returncode, 4, done.stderr)
                self.assertIn(f"--tokenizer: there is no {path} and no models/{path}\n  fix: name a file that is there, by its path from this folder; "
                              f"or make a vocabulary from your data: orthant data make-vocabulary --data claims.csv --columns story,note --out {path}\n",
                              done.stderr)
                made = orthant(*shlex.split(done.stderr.split("your data: orthant ")[1]), cwd=self.folder)
                self.assertEqual(made.returncode, 0, made.stderr)
                self.assertEqual(self.init(*words).returncode, 0)
        done = self.init("--data", self.table(), "--tokenizer", "tokenizer.json", "run.json", "--force")
        self.assertTrue(done.stderr.endswith("fix: name a file that is there, by its path from this folder\n"), done.stderr)

    def test_what_does_not_go_together(self):
        text, vocabulary, table, llama = self.text(), self.vocabulary(), self.table(), self.llama()
        self.write("empty.txt", "")
        self.write("picture.png", b"\x89PNG\0\0")
        self.write("claims.xlsx", b"PK\3\4")
        self.write("far.bin", struct.pack("<400H", *range(400)))
        self.write("plain.csv", "text,n\n" + "".join(f"{self.sentence(i)} {i},{i}\n" for i in range(30)))
        self.write("stories.csv", "prose,n\n" + "".join(f"{self.sentence(i)} {i},{i}\n" for i in range(30)))
        os.makedirs(self.path("void"))
        self.write("numbers.csv", "n,label\n" + "".join(f"{i},{i % 2}\n" for i in range(30)))
        self.write("rowless.csv", "text,label\n")
        self.write("few.txt", "the ship\n")
        self.write("pickled/pytorch_model.bin", "")
        with open(self.path(llama, "config.json")) as f:
            self.write("pickled/config.json", f.read())
        self.write("other/vocab.txt", "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *reversed(WORDS)]) + "\n")
        self.assertEqual(orthant("data", "prepare-text", "--input", text, "--tokenizer", "other", "--out", "tokens", cwd=self.folder).returncode, 0)
        for code, message, remedy, words in (
                (2, "neither --model nor --data is given", "name a Hugging Face folder or a preset", ()),
                (2, "--for tune: unknown use", "finetune", ("--model", "llama-tiny", "--for", "tune")),
                (2, "--model llama-tiney: there is no such folder, no models/llama-tiney and no such preset", "the preset llama-tiny?", ("--model", "llama-tiney")),
                (2, "--model notes.txt: is a file", "name the folder", ("--model", text)),
                (4, "pickled: has no safetensors, only pytorch_model.bin",
                 "pickle files are never read; turn them into safetensors with tools/state_dict_to_safetensors.py; or start without weights: --for pretrain",
                 ("--model", "pickled", "--data", text, "--tokenizer", vocabulary)),
                (4, "pickled: has no safetensors, only pytorch_model.bin", "never read", ("--model", "pickled", "--data", text, "--for", "finetune")),
                (2, "unknown separator \"lines\"", "line", ("--data", text, "--tokenizer", vocabulary, "--separator", "lines")),
                (2, "--separator line with claims.csv: only text files have a separator", "leave --separator out", ("--data", table, "--separator", "line")),
                (2, "--separator line with no --data", "name a text file", ("--model", llama, "--separator", "line")),
                (4, "--data nothing.txt: there is no such file or folder", "name a text file, a table", ("--data", "nothing.txt")),
                (4, "--data empty.txt: is empty", "name other data", ("--data", "empty.txt")),
                (4, "--data picture.png: is not text", "name a text file", ("--data", "picture.png")),
                (4, "void: a folder without .txt files", "a folder of .txt files", ("--data", "void")),
                (2, "--tokenizer is missing: text needs a tokenizer", "set --tokenizer to", ("--data", text)),
                (2, "--tokenizer is missing: text needs a tokenizer", "make-vocabulary --data claims.csv --columns story,note", ("--data", table)),
                (2, "--for finetune needs weights, found no --model", "use --for pretrain", ("--data", text, "--for", "finetune")),
                (2, "--for finetune needs weights, found none in llama-tiny", "model.safetensors", ("--model", "llama-tiny", "--for", "finetune")),
                (2, "--for classify needs a table, found notes.txt", "name a .csv", ("--data", text, "--for", "classify")),
                (2, "--for classify with --model my-llama: a llama model does not classify here", "BERT or RoBERTa", ("--model", llama, "--data", table, "--for", "classify")),
                (2, "--model trimodal-tiny classifies rows of a table, and --for is pretrain", "--for classify", ("--model", "trimodal-tiny", "--data", text)),
                (2, "stories.csv: none of its columns is called text (columns: prose, n)", "--text-column", ("--model", llama, "--data", "stories.csv")),
                (4, "stories.csv: no column looks like a label", "--label COLUMN", ("--data", "stories.csv", "--tokenizer", vocabulary)),
                (4, "claims.csv: column id has more than 50 values", "--label COLUMN", ("--data", self.table(rows=80), "--tokenizer", vocabulary, "--label", "id")),
                (4, "numbers.csv: no column holds texts (columns: n, label)", "one column of text", ("--data", "numbers.csv", "--tokenizer", vocabulary)),
                (4, "rowless.csv: has no rows", "a file with rows", ("--data", "rowless.csv")),
                (4, "--data claims.xlsx: a workbook of a spreadsheet program", 'save the sheet from there as "CSV UTF-8"', ("--data", "claims.xlsx")),
                (4, "few.txt has 4 tokens, too few to train on", "16 tokens at least", ("--data", "few.txt", "--tokenizer", vocabulary)),
                (2, "--model bert-tiny learns masked tokens, and the tokenizer of far.bin has no mask token", "--tokenizer",
                 ("--model", "bert-tiny", "--data", "far.bin")),
                (4, "tokens was prepared with another tokenizer than my-llama", "prepare-text --tokenizer my-llama", ("--model", llama, "--data", "tokens")),
                (4, "far.bin has ids up to 399, and the vocabulary of my-llama has 64", "own tokenizer", ("--model", llama, "--data", "far.bin"))):
            with self.subTest(message=message):
                self.refused(code, message, remedy, *words, "run.json")
