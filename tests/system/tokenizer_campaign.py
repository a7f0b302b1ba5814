"""Eight kinds of tokenizers against PyPI `tokenizers` and `sentencepiece`, line by line. Prints a line a kind; exits 1 when a line differs.

  .venv/bin/python tests/system/tokenizer_campaign.py                  # 20,000 lines each, about two minutes
  .venv/bin/python tests/system/tokenizer_campaign.py --lines 1000 --seed 9
  .venv/bin/python tests/system/tokenizer_campaign.py FILE...          # your own tokenizer.json and .model files
"""
import argparse
import os
import sys
import tempfile
import unittest

import mixed_text
import test_wordpiece
import trained_tokenizers as trained
from program import SOURCE
from test_sentencepiece import ODDITIES, broken_lines, ids_of_bytes
from test_tokenize import GPT2, LLAMA3

MINILM = os.path.join(test_wordpiece.MINILM, "tokenizer.json")


def kinds(folder):
    corpus = os.path.join(folder, "corpus.txt")
    trained.training_text(SOURCE, corpus)
    bpe = trained.train_bpe(folder, corpus, vocab_size=4000)
    unigram = trained.train_unigram(folder, corpus, vocab_size=4000)
    yield "byte-level BPE, GPT-2", GPT2
    yield "byte-level BPE, Llama 3", LLAMA3
    yield "WordPiece, uncased", MINILM
    yield "WordPiece, cased", cased_wordpiece(folder)
    yield "BPE with byte fallback, tokenizer.json", trained.write_json(folder, "bpe", trained.llama_json(trained.parsed(bpe)))
    yield "BPE with byte fallback, .model", bpe
    yield "Unigram, tokenizer.json", trained.write_json(folder, "unigram", trained.unigram_json(trained.parsed(unigram)))
    yield "Unigram, .model", unigram


def cased_wordpiece(folder):
    from tokenizers import BertWordPieceTokenizer
    tokens = test_wordpiece.sotu_vocabulary()
    path = os.path.join(folder, "cased.json")
    BertWordPieceTokenizer({token: i for i, token in enumerate(tokens)}, lowercase=False).save(path)
    return path


def compare(path, lines):
    """The numbers of the lines that differ. A .model also gets bytes that are not UTF-8, whose ids `sentencepiece` knows."""
    test = unittest.TestCase()
    if path.endswith(".json"):
        from tokenizers import Tokenizer
        peer = Tokenizer.from_file(path)
        peer.no_truncation()
        peer.no_padding()
        given = [line.encode() for line in lines]
        theirs = [encoded.ids for encoded in peer.encode_batch(lines)]
    else:
        import sentencepiece
        peer = sentencepiece.SentencePieceProcessor(model_file=path)
        given = broken_lines(lines)
        theirs = [peer.encode(line) for line in given]
    ours = ids_of_bytes(test, path, given)
    return [i for i in range(len(lines)) if ours[i] != theirs[i]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    num_speeches = options.lines // 5
    lines = mixed_text.lines(mixed_text.generated(options.lines - num_speeches - len(ODDITIES), seed=options.seed) +
                             mixed_text.speeches(SOURCE, num_speeches)) + ODDITIES
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for name, path in [(path, path) for path in options.files] or kinds(folder):
            differing = compare(path, lines)
            print(f"{name}: {len(differing)} of {len(lines)} lines differ", *(repr(lines[i]) for i in differing[:3]), sep="\n  ", flush=True)
            failed = failed or bool(differing)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
