"""Tokenizers over characters: the ids of PyPI `tokenizers` for a tokenizer.json, and of `sentencepiece` for a .model. tokenizer_campaign.py has more lines."""
import os
import random
import tempfile
import unittest

import mixed_text
import trained_tokenizers as trained
from program import SOURCE
from test_tokenize import differences, ids_of, tokenize

ODDITIES = ["  lead", "trail  ", " ", "   ", "", "▁a▁▁b", "née <mask>x<c>", "¶ ¶¶", "<unk><s></s>", "<0x41>", "a" * 1000, "中" * 300, "\ufffd", "x\u3000\u3000y",
            "ﬁ ½ ① e\u0301 e\u0301\u0301\u0301 \r", "``x''"]
BROKEN = [b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80"]


def some_lines(count, seed):
    return mixed_text.lines(mixed_text.generated(count, seed=seed) + mixed_text.speeches(SOURCE, count // 4)) + ODDITIES


def broken_lines(lines, seed=3):
    """As bytes, some of them not UTF-8."""
    rng = random.Random(seed)
    out = []
    for line in lines:
        data = line.encode()
        if rng.random() < 0.2:
            at = rng.randrange(len(data) + 1)
            data = data[:at] + rng.choice(BROKEN) + data[at:]
        out.append(data)
    return out


def ids_of_bytes(test, path, lines):
    finished = tokenize(path, b"".join(line + b"\n" for line in lines))
    test.assertEqual(finished.returncode, 0, finished.stderr.decode())
    return [[int(i) for i in line.strip("[]").split(",") if i.strip()] for line in finished.stdout.decode().splitlines()]


def decoded(test, path, ids):
    finished = tokenize(path, "".join(f"{list(i)}\n" for i in ids).encode(), "--decode")
    test.assertEqual(finished.returncode, 0, finished.stderr.decode())
    return finished.stdout.decode()


class Trained(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.made = tempfile.TemporaryDirectory()
        cls.folder = cls.made.name
        cls.corpus = os.path.join(cls.folder, "corpus.txt")
        trained.training_text(SOURCE, cls.corpus)

    @classmethod
    def tearDownClass(cls):
        cls.made.cleanup()

    def check_json(self, name, value, lines):
        from tokenizers import Tokenizer
        path = trained.write_json(self.folder, name, value)
        peer = Tokenizer.from_file(path)
        theirs = [encoded.ids for encoded in peer.encode_batch(lines)]
        self.assertEqual(differences(lines, ids_of(self, path, lines), theirs), "")
        bare = [encoded.ids for encoded in peer.encode_batch(lines, add_special_tokens=False)]
        self.assertEqual(differences(lines, ids_of(self, path, lines, "--no-special"), bare), "")
        self.assertEqual(decoded(self, path, theirs), "".join(peer.decode(i, skip_special_tokens=False) + "\n" for i in theirs))

    def check_model(self, path, lines):
        import sentencepiece
        peer = sentencepiece.SentencePieceProcessor(model_file=path)
        theirs = [peer.encode(line) for line in lines]
        self.assertEqual(differences(lines, ids_of_bytes(self, path, lines), theirs), "")
        rng = random.Random(7)
        ids = [i for i in theirs if i] + [[rng.randrange(peer.vocab_size()) for _ in range(rng.randint(1, 12))] for _ in range(300)]
        self.assertEqual(decoded(self, path, ids), "".join(peer.decode(i) + "\n" for i in ids))

    def test_byte_fallback_bpe(self):
        path = trained.train_bpe(self.folder, self.corpus)
        lines = some_lines(300, seed=21)
        self.check_model(path, broken_lines(lines))
        model = trained.parsed(path)
        self.check_json("llama2", trained.llama_json(model), lines)
        self.check_json("llama2_metaspace", trained.llama_json(model, metaspace=True), lines)

    def test_unigram(self):
        path = trained.train_unigram(self.folder, self.corpus)
        lines = some_lines(300, seed=22)
        self.check_model(path, broken_lines(lines))
        model = trained.parsed(path)
        self.check_json("t5", trained.unigram_json(model), lines)
        self.check_json("t5_first", trained.unigram_json(model, scheme="first"), lines)
        self.check_json("xlm_roberta", trained.unigram_json(model, words=True), lines)
        self.check_json("albert", trained.unigram_json(model, before=trained.ALBERT), lines)

    def test_other_settings_of_models(self):
        symbols = {"user_defined_symbols": ["<mask>", "née", "▁the▁"], "control_symbols": ["<c>", "¶"]}
        lines = broken_lines(some_lines(150, seed=23))
        for options in ({"normalization_rule_name": "nmt_nfkc_cf", "byte_fallback": True, "vocab_size": 1200, **symbols},
                        {"add_dummy_prefix": False, "remove_extra_whitespaces": False, "vocab_size": 1000},
                        {"treat_whitespace_as_suffix": True, "vocab_size": 1000}):
            with self.subTest(kind="unigram", **options):
                self.check_model(trained.train_unigram(self.folder, self.corpus, **options), lines)
        for options in ({"normalization_rule_name": "nmt_nfkc", "byte_fallback": False, "remove_extra_whitespaces": True, "vocab_size": 1200, **symbols},
                        {"treat_whitespace_as_suffix": True, "vocab_size": 1000}, {"split_by_whitespace": False, "vocab_size": 1000}):
            with self.subTest(kind="bpe", **options):
                self.check_model(trained.train_bpe(self.folder, self.corpus, **options), lines)

    def test_a_folder_and_prepared_text(self):
        import numpy
        import sentencepiece
        from program import orthant
        path = trained.train_bpe(self.folder, self.corpus)
        folder = os.path.join(self.folder, "model")
        os.makedirs(folder)
        os.rename(path, os.path.join(folder, "tokenizer.model"))
        lines = [line for line in mixed_text.lines(mixed_text.speeches(SOURCE, 50)) if line.strip()]
        text = os.path.join(self.folder, "text.txt")
        with open(text, "w", encoding="utf-8") as file:
            file.write("\n".join(lines))
        out = os.path.join(self.folder, "prepared")
        finished = orthant("data", "prepare-text", "--input", text, "--separator", "line", "--tokenizer", folder, "--out", out)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        peer = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "tokenizer.model"))
        expected = [i for line in lines for i in [*peer.encode(line), peer.eos_id()]]
        self.assertEqual(numpy.fromfile(os.path.join(out, "tokens.bin"), dtype="uint16").tolist(), expected)


if __name__ == "__main__":
    unittest.main()
