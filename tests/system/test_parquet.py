"""Texts in Parquet files: read by a build with ORTHANT_PARQUET (class Read), refused with the lines that serve by any other (class Refused)."""
import json
import os
import sys

from program import FolderTest, clean_environment, only_json, orthant, python, run

WORDS = "the a ship sails over seven seas and comes home again with salt tea silk".split()
TEXTS = [" ".join(WORDS[(i * 3 + j * (i + 1)) % len(WORDS)] for j in range(4 + 5 * (i % 6))) for i in range(3000)]
TEXTS[7] = "two\nlines, and \u00e9"
MODEL = {"kind": "llama", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 64,
         "max_position_embeddings": 32}


class Parquet(FolderTest):
    def setUp(self):
        super().setUp()
        self.write("vocab.txt", "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n")

    def write(self, name, text):
        with open(self.path(name), "wb") as f:
            f.write(text if isinstance(text, bytes) else text.encode())

    def prepare(self, name, *words):
        return orthant("data", "prepare-text", "--input", name, "--tokenizer", "vocab.txt", "--out", name + "-ids", "--json", *words,
                       cwd=self.folder)

    def train(self, name, *words, **data):
        config = {"model": MODEL, "data": {"kind": "text", "path": name, "tokenizer": "vocab.txt", "sequence_length": 12, **data},
                  "train": {"global_batch_size": 4, "steps": 2}}
        self.write("run.json", json.dumps(config))
        return orthant("train", "--config", "run.json", "--output_dir", "-".join([name, "run", *words]), "--json", *words, cwd=self.folder)

    def refused(self, finished, code, *texts):
        self.assertEqual((finished.returncode, finished.stdout), (code, ""), finished.stderr)
        for text in texts:
            self.assertIn(text, finished.stderr)


class Refused(Parquet):
    def test_every_command_that_reads_text_says_what_serves(self):
        self.write("x.parquet", b"PAR1")
        lines = "fix: write it as JSON lines: python3 -c \"import json, pyarrow.parquet as p; [print(json.dumps(row, default=str)) for part " \
                "in p.ParquetFile('x.parquet').iter_batches(columns=['text']) for row in part.to_pylist()]\" > x.jsonl"
        then = "; then orthant data prepare-text --input x.jsonl --text-column text --tokenizer T --out FOLDER; or build with -DORTHANT_PARQUET=ON"
        for finished in (self.prepare("x.parquet"), self.train("x.parquet"),
                         orthant("init", "--model", "llama-tiny", "--data", "x.parquet", "--tokenizer", "vocab.txt", "i.json", cwd=self.folder)):
            self.refused(finished, 4, "x.parquet is a Parquet file, which this build does not read", lines + then)
        self.assertEqual(sorted(os.listdir(self.folder)), ["run.json", "vocab.txt", "x.parquet"])


class Tables(Parquet):
    def test_a_table_of_a_classifier_is_refused_with_the_line_that_serves(self):
        self.write("x.parquet", b"PAR1")
        done = orthant("data", "inspect", "x.parquet", cwd=self.folder)
        self.refused(done, 4, "x.parquet is a Parquet file, which is not read as a table", "p.ParquetFile('x.parquet').iter_batches()",
                     "to_pylist()]\" > x.jsonl")


class Read(Parquet):
    def setUp(self):
        super().setUp()
        sys.path.insert(0, os.path.dirname(os.environ["ORTHANT_ARROW_DIR"]))
        self.addCleanup(sys.path.remove, sys.path[0])
        import pyarrow
        import pyarrow.parquet
        self.arrow, self.parquet = pyarrow, pyarrow.parquet

    def table(self, name, texts, large=False, **options):
        kind = self.arrow.large_string() if large else self.arrow.string()
        columns = {"meta": [{"id": i, "tags": [i, i]} for i in range(len(texts))], "text": self.arrow.array(texts, kind), "n": list(range(len(texts)))}
        self.parquet.write_table(self.arrow.table(columns), self.path(name), **options)

    def ids(self, name, *words):
        facts = only_json(self, self.prepare(name, *words))
        with open(self.path(name + "-ids", "tokens.bin"), "rb") as tokens, open(self.path(name + "-ids", "documents.bin"), "rb") as ends:
            return facts["tokens"], facts["empty_documents"], tokens.read(), ends.read()

    def test_texts_are_those_of_json_lines(self):
        texts = [None if i == 11 else text for i, text in enumerate(TEXTS)]
        self.write("rows.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in texts))
        expected = self.ids("rows.jsonl")
        for name, options in (("a.parquet", {"row_group_size": 700}), ("b.parquet", {"compression": "zstd"}), ("c.parquet", {"large": True}),
                              ("d.parquet", {"compression": "none", "use_dictionary": False, "data_page_version": "2.0"})):
            self.table(name, texts, **options)
            with self.subTest(name):
                self.assertEqual(self.ids(name), expected)
        losses = [only_json(self, self.train(name, *words))["final_loss"] for name in ("rows.jsonl", "a.parquet") for words in ((), ("--mesh", "dp=2"))]
        self.assertEqual(losses[2:], losses[:2])

    def test_the_line_that_the_refusal_names_serves(self):
        self.table("a.parquet", TEXTS[:20])
        said = orthant("data", "inspect", "a.parquet", cwd=self.folder).stderr
        code = said.partition('python3 -c "')[2].partition('" > a.jsonl')[0]
        done = run(python(), "-c", code, cwd=self.folder, env=clean_environment(PYTHONPATH=os.path.dirname(os.environ["ORTHANT_ARROW_DIR"])))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.write("a.jsonl", done.stdout)
        self.assertEqual([json.loads(line)["text"] for line in done.stdout.splitlines()], TEXTS[:20])
        self.assertEqual(self.ids("a.jsonl"), self.ids("a.parquet"))

    def test_a_killed_preparation_goes_on(self):
        self.table("a.parquet", TEXTS, row_group_size=700)
        whole = self.ids("a.parquet")
        folder = self.path("a.parquet-ids")
        with open(os.path.join(folder, "index.json")) as f:
            index = json.load(f)
        documents, tokens = 1500, int.from_bytes(whole[3][1499 * 8:1500 * 8], "little")
        index.update(complete=False, tokens=tokens, documents=documents)
        index["next"] = {"file": 0, "position": documents, "inside_document": False, "bytes": sum(map(len, TEXTS[:documents]))}
        for key in ("tokens_xxh64", "documents_xxh64"):
            index.pop(key, None)
        self.write("a.parquet-ids/index.json", json.dumps(index))
        self.write("a.parquet-ids/tokens.bin", whole[2][:tokens * 2])
        self.write("a.parquet-ids/documents.bin", whole[3][:documents * 8])
        self.assertEqual(self.ids("a.parquet")[2:], whole[2:])

    def test_what_cannot_be_read_is_named(self):
        self.table("a.parquet", TEXTS[:50])
        self.refused(self.prepare("a.parquet", "--text-column", "txt"), 2, 'a.parquet: there is no column "txt"', '"text"')
        self.refused(self.prepare("a.parquet", "--text-column", "n"), 2, 'a.parquet: column "n" holds int64, not text', "--text-column")
        self.parquet.write_table(self.arrow.table({"text": TEXTS[:50]}), self.path("one.parquet"))
        with open(self.path("one.parquet"), "rb") as f:
            whole = f.read()
        for name, contents in (("empty", b""), ("short", whole[:-30]), ("magic", b"PAR1"), ("noise", bytes(range(256)) * 9),
                               ("spoilt", whole[:4] + bytes(30) + whole[34:])):
            self.write(name + ".parquet", contents)
            with self.subTest(name):
                self.refused(self.prepare(name + ".parquet"), 4, f"{name}.parquet: cannot be read as Parquet: ", "copy the file again")
        self.refused(self.prepare("none.parquet"), 4, "none.parquet")


if __name__ == "__main__":
    import unittest
    unittest.main()
