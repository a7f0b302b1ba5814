"""orthant tokenize: the same ids as PyPI `tokenizers`, every byte back, and clear errors. WordPiece is in test_wordpiece.py, tokenizers over characters
in test_sentencepiece.py."""
import json
import os
import tempfile
import unittest

import mixed_text
from program import SOURCE, orthant

MATERIAL = os.path.join(SOURCE, ".material")
GPT2 = os.path.join(MATERIAL, "tokenizer-gpt2", "models", "tokenizer.json")
LLAMA3 = os.path.join(MATERIAL, "tokenizer-llama3", "models", "tokenizer.json")

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def tokenize(path, data, *flags):
    """Runs the program on bytes; returns the finished process, with bytes."""
    return orthant("tokenize", "--tokenizer", path, *flags, given=data, timeout=120)


def joined(lines):
    return "".join(line + "\n" for line in lines).encode()


def ids_of(test, path, lines, *flags):
    finished = tokenize(path, joined(lines), *flags)
    test.assertEqual(finished.returncode, 0, finished.stderr.decode())
    return [json.loads(line) for line in finished.stdout.decode().splitlines()]


def differences(lines, ours, theirs):
    """Nothing, or what the first lines are that differ, and how many there are."""
    wrong = [i for i in range(len(lines)) if ours[i] != theirs[i]]
    return "" if not wrong else f"{len(wrong)} of {len(lines)} lines differ: " + "; ".join(
        f"{lines[i]!r}: {ours[i]} instead of {theirs[i]}" for i in wrong[:3])


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def steps(*parts):
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [*parts, BYTES]}}


def added(content, number, **flags):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True, **flags}


VARIANTS = {
    "a space before text": {"pre_tokenizer": {**BYTES, "add_prefix_space": True, "use_regex": True}},
    "one word": {"pre_tokenizer": BYTES},
    "Qwen 2": {**steps(split(QWEN2)), "normalizer": {"type": "NFC"}},
    "o200k": steps(split(O200K)),
    "DeepSeek": steps(*map(split, DEEPSEEK)),
    "digits alone": steps({"type": "Digits", "individual_digits": True}),
    "words and signs": steps({"type": "Whitespace"}),
    "without white space": steps({"type": "WhitespaceSplit"}),
    "a literal": steps(split("the", "MergedWithPrevious", kind="String")),
    "white space with the next": steps(split(r"\s", "MergedWithNext")),
    "runs of punctuation": steps(split(r"\p{P}", "Contiguous")),
    "words only": steps(split(r"\w+", "Removed", invert=True)),
    "empty matches": steps(split(r"(?=[A-Z])")),
    "lines and looking back": steps(split(r"^a|z$|(?<=e)[^a-z]|[\S]\d")),
    "a script": steps(split(r"\p{Han}+|\p{^L}")),
    "NFKC and lower case": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]}},
    "NFD": {"normalizer": {"type": "NFD"}},
    "added tokens": {"normalizer": {"type": "Lowercase"},
                     "added_tokens": [added("<|endoftext|>", 50256), added("the", 1169, single_word=True, special=False), added("<mask>", 50257, lstrip=True),
                                      added("[MASK]", 50258, rstrip=True), added("[CLS]", 50259, lstrip=True, rstrip=True),
                                      added("été", 50260, normalized=True, special=False), added(" or", 50261, special=False),
                                      added("A", 32, normalized=True, special=False)]},
    "a post-processor": {"post_processor": {"type": "RobertaProcessing", "sep": ["b", 65], "cls": ["a", 64], "trim_offsets": True, "add_prefix_space": True}},
}


class ByteLevel(unittest.TestCase):
    def check(self, path, lines):
        from tokenizers import Tokenizer
        peer = Tokenizer.from_file(path)
        self.assertEqual(differences(lines, ids_of(self, path, lines), [e.ids for e in peer.encode_batch(lines)]), "")

    def test_gpt2_and_llama3_give_the_same_ids(self):
        lines = mixed_text.lines(mixed_text.generated(20000) + mixed_text.speeches(SOURCE, 2000))
        self.assertGreaterEqual(len(lines), 22000)
        for path in (GPT2, LLAMA3):
            with self.subTest(path=path):
                self.check(path, lines)

    def test_other_settings_give_the_same_ids(self):
        with open(GPT2, encoding="utf-8") as f:
            base = json.load(f)
        lines = mixed_text.lines(mixed_text.generated(1000, seed=11) + mixed_text.speeches(SOURCE, 50))
        with tempfile.TemporaryDirectory() as folder:
            for name, change in VARIANTS.items():
                path = os.path.join(folder, "tokenizer.json")
                with self.subTest(variant=name):
                    with open(path, "w", encoding="utf-8") as f:
                        json.dump({**base, **change}, f)
                    self.check(path, lines)

    def test_merges_as_pairs_and_words_that_ignore_them_give_the_same_ids(self):
        with open(GPT2, encoding="utf-8") as f:
            base = json.load(f)
        merges = base["model"]["merges"]
        lines = mixed_text.lines(mixed_text.generated(500, seed=12) + mixed_text.speeches(SOURCE, 200))
        with tempfile.TemporaryDirectory() as folder:
            for change in ({"merges": [m.split(" ") for m in merges]}, {"merges": merges[:2000] + merges[30000:], "ignore_merges": True}):
                path = os.path.join(folder, "tokenizer.json")
                with open(path, "w", encoding="utf-8") as f:
                    json.dump({**base, "model": {**base["model"], **change}}, f)
                self.check(path, lines)

    def test_every_byte_comes_back(self):
        lines = joined(mixed_text.lines(mixed_text.generated(3000, seed=13)))
        lines += bytes(b for b in range(256) if b != 10) + b"\n" + b"\xe4\xb8 \xff\xfe<|endoftext|>\x80\n"
        for path in (GPT2, LLAMA3):
            with self.subTest(path=path):
                encoded = tokenize(path, lines)
                self.assertEqual(encoded.returncode, 0, encoded.stderr)
                self.assertEqual(tokenize(path, encoded.stdout, "--decode").stdout, lines)

    def test_gpt2_files_give_the_ids_of_their_tokenizer_json(self):
        with open(GPT2, encoding="utf-8") as f:
            model = json.load(f)["model"]
        lines = mixed_text.lines(mixed_text.generated(1000, seed=14))
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "vocab.json"), "w", encoding="utf-8") as f:
                json.dump(model["vocab"], f)
            with open(os.path.join(folder, "merges.txt"), "w", encoding="utf-8") as f:
                f.write("#version: 0.2\n" + "\n".join(model["merges"]) + "\n")
            self.assertEqual(differences(lines, ids_of(self, folder, lines), ids_of(self, GPT2, lines)), "")

    def test_roberta_files_give_the_ids_of_transformers(self):
        from transformers import RobertaTokenizer
        with open(GPT2, encoding="utf-8") as f:
            model = json.load(f)["model"]
        tokens = ["<s>", "<pad>", "</s>", "<unk>", *(t for t in sorted(model["vocab"], key=model["vocab"].get) if t != "<|endoftext|>"), "<mask>"]
        mask = {"content": "<mask>", "lstrip": True, "rstrip": False, "single_word": False, "normalized": False, "__type": "AddedToken"}
        lines = mixed_text.lines(mixed_text.generated(1000, seed=15))
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "vocab.json"), "w", encoding="utf-8") as f:
                json.dump({token: i for i, token in enumerate(tokens)}, f)
            with open(os.path.join(folder, "merges.txt"), "w", encoding="utf-8") as f:
                f.write("#version: 0.2\n" + "\n".join(model["merges"]) + "\n")
            for prefix in (False, True):
                with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
                    json.dump({"tokenizer_class": "RobertaTokenizer", "add_prefix_space": prefix, "mask_token": mask}, f)
                peer = RobertaTokenizer.from_pretrained(folder).backend_tokenizer
                for flags in ([], ["--no-special"]):
                    theirs = [e.ids for e in peer.encode_batch(lines, add_special_tokens=not flags)]
                    self.assertEqual(differences(lines, ids_of(self, folder, lines, *flags), theirs), "")


class Command(unittest.TestCase):
    def test_decoding_leaves_special_tokens_out_when_asked(self):
        ids = tokenize(GPT2, b"a<|endoftext|>b\n").stdout
        self.assertEqual(ids, b"[64, 50256, 65]\n")
        self.assertEqual(tokenize(GPT2, ids, "--decode").stdout, b"a<|endoftext|>b\n")
        self.assertEqual(tokenize(GPT2, ids, "--decode", "--no-special").stdout, b"ab\n")
        self.assertEqual(tokenize(GPT2, b"[]\n [ 198 ,64]\r\n", "--decode").stdout, b"\n\na\n")
        self.assertEqual(tokenize(GPT2, b"").stdout, b"")
        self.assertEqual(tokenize(GPT2, b"\n\nx").stdout, b"[]\n[]\n[87]\n")

    def test_bad_lines_are_named(self):
        for line, where in ((b"[1, 2", "line 2, column 6"), (b"[1, x]", "line 2, column 5"), (b"7", "line 2, column 1"), (b"[1] 2", "line 2, column 5"),
                            (b"[99999999999]", "line 2, column 2"), (b"", "line 2, column 1"), (b"[1.5]", "line 2, column 3")):
            with self.subTest(line=line):
                finished = tokenize(GPT2, b"[64]\n" + line + b"\n", "--decode")
                self.assertEqual(finished.returncode, 4, finished)
                self.assertIn(f"{where}: not a list of ids", finished.stderr.decode())
        finished = tokenize(GPT2, b"[64]\n[50257]\n", "--decode")
        self.assertEqual(finished.returncode, 4)
        self.assertIn("line 2: id 50257 is not in the vocabulary", finished.stderr.decode())

    def test_tokenizers_that_are_not_read_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tokenizer.json")
            for text, message in (('{"model": {"type": "WordLevel", "vocab": {"a": 1}}}', 'model.type is "WordLevel", which is not read'),
                                  ("{", "this is not JSON"), ("[" * 100000, "nested deeper than 64 levels")):
                with open(path, "w", encoding="utf-8") as f:
                    f.write(text)
                finished = tokenize(path, b"")
                self.assertEqual(finished.returncode, 4, finished)
                self.assertIn(message, finished.stderr.decode())
            finished = tokenize(os.path.join(folder, "bert-base-cased"), b"")
            self.assertEqual(finished.returncode, 4)
            self.assertIn("no such tokenizer", finished.stderr.decode())

    def test_a_megabyte_in_one_word_is_quick(self):
        finished = tokenize(GPT2, b"a" * 1000000 + b"\n")
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertEqual(tokenize(GPT2, finished.stdout, "--decode").stdout, b"a" * 1000000 + b"\n")

    def test_help_says_how_newlines_are_shown(self):
        finished = orthant("tokenize", "--help")
        self.assertEqual(finished.returncode, 0)
        self.assertIn("newline", finished.stdout)


if __name__ == "__main__":
    unittest.main()
