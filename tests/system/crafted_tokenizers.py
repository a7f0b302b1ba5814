"""Tokenizers that are wrong, each in one named way: tokenizer.json, vocab.txt, vocab.json with merges.txt, tokenizer.model."""
import base64
import os

from crafted_files import write
from crafted_models import edited_json, edited_text, field, piece, sentencepiece_model


def of_bpe():
    def model(**values):
        return edited_json("tokenizer.json", lambda t: t["model"].update(values))

    def vocabulary(edit):
        return edited_json("tokenizer.json", lambda t: edit(t["model"]["vocab"]))

    def top(**values):
        return edited_json("tokenizer.json", lambda t: t.update(values))

    def added(**values):
        return edited_json("tokenizer.json", lambda t: t["added_tokens"][0].update(values))

    def split(pattern):
        return top(pre_tokenizer={"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False})

    cases = {
        "model of an unknown type": model(type="Unigramme"), "model is null": top(model=None), "model is a list": top(model=[]),
        "no model": edited_json("tokenizer.json", lambda t: t.pop("model") and None), "dropout": model(dropout=0.5),
        "vocabulary missing": edited_json("tokenizer.json", lambda t: t["model"].pop("vocab") and None), "vocabulary empty": model(vocab={}),
        "vocabulary is a list": model(vocab=["a"]), "vocabulary is a text": model(vocab="abc"),
        "an id twice": vocabulary(lambda v: v.update(hello=1)), "an id negative": vocabulary(lambda v: v.update(hello=-1)),
        "an id of 2^31": vocabulary(lambda v: v.update(hello=2**31)), "an id of 2^63": vocabulary(lambda v: v.update(hello=2**63)),
        "an id of 10^30": vocabulary(lambda v: v.update(hello=10**30)), "an id of a fraction": vocabulary(lambda v: v.update(hello=1.5)),
        "an id of a text": vocabulary(lambda v: v.update(hello="259")), "an id of null": vocabulary(lambda v: v.update(hello=None)),
        "an id of a list": vocabulary(lambda v: v.update(hello=[1])),
        "merges are a text": model(merges="h e"),
        "merges are an object": model(merges={"h": "e"}), "a merge of one token": model(merges=["he"]), "a merge of three tokens": model(merges=["h e l"]),
        "a merge of unknown tokens": model(merges=["zz yy"]), "a merge into an unknown token": model(merges=["h l"]),
        "a merge of numbers": model(merges=[[1, 2]]), "a merge of one in a list": model(merges=[["h"]]), "a merge nested": model(merges=[[["h", "e"]]]),
        "a merge that is null": model(merges=[None]), "an empty merge": model(merges=[""]),
        "added tokens are a text": top(added_tokens="x"), "an added token of another id": added(id=3), "an added id of 2^31": added(id=2**31),
        "an added id negative": added(id=-1), "an added id of a text": added(id="260"), "an added token without content": added(content=""),
        "an added token that is a number": added(content=7), "an added token that is null": top(added_tokens=[None]),
        "normalizer unknown": top(normalizer={"type": "Sortilege"}), "normalizer is a text": top(normalizer="NFC"),
        "pre_tokenizer unknown": top(pre_tokenizer={"type": "Cleaver"}), "pre_tokenizer without type": top(pre_tokenizer={}),
        "regular expression unclosed": split("(a"), "regular expression with a wrong class": split("[z-a]"),
        "regular expression nested 2000 deep": split("(" * 2000 + "a" + ")" * 2000), "regular expression of a huge count": split("(a{1000}){1000}"),
        "regular expression is a number": top(pre_tokenizer={"type": "Split", "pattern": {"Regex": 1}, "behavior": "Isolated"}),
        "behavior unknown": top(pre_tokenizer={"type": "Split", "pattern": {"String": "a"}, "behavior": "Shredded"}),
        "post_processor unknown": top(post_processor={"type": "Seal"}), "post_processor is a number": top(post_processor=1),
        "template with an unknown token": top(post_processor={"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[X]", "type_id": 0}}],
                                                              "pair": [], "special_tokens": {}}),
        "an escape sequence as type": model(type="\x1b[2J\x07"),
    }
    for name, change in cases.items():
        yield "bpe", f"tokenizer.json: {name}", change
    yield "bpe", "tokenizer.json: only a SentencePiece model that is cut off", lambda folder: (
        [os.remove(f"{folder}/{name}") for name in os.listdir(folder)], write(f"{folder}/tokenizer.model", b"\n\x0e\n\x05<unk>"))
    roles = {"eos_token is a number": {"eos_token": 1}, "eos_token is a list": {"eos_token": []}, "add_prefix_space is a text": {"add_prefix_space": "x"},
             "added_tokens_decoder is a list": {"added_tokens_decoder": [1]}, "added_tokens_decoder of a text id": {"added_tokens_decoder": {"x": {"content": "a"}}}}
    for name, values in roles.items():
        yield "bpe", f"tokenizer_config.json: {name}", edited_json("tokenizer_config.json", lambda t, values=values: t.update(values))


def of_wordpiece():
    def lines(edit):
        return edited_text("vocab.txt", lambda text: edit(text))

    cases = {
        "a token twice": lines(lambda t: t + "hello\n"), "an empty line": lines(lambda t: t.replace("hello", "")),
        "not UTF-8": lambda folder: write(f"{folder}/vocab.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n\xff\xfe\n"),
        "one empty token": lambda folder: write(f"{folder}/vocab.txt", "\n"),
        "no unknown token": lines(lambda t: t.replace("[UNK]", "unknown")),
        "a megabyte in one token, twice": lines(lambda t: t + ("x" * (1 << 20) + "\n") * 2),
        "only line breaks": lambda folder: write(f"{folder}/vocab.txt", "\n" * 100),
    }
    for name, change in cases.items():
        yield "wordpiece", f"vocab.txt: {name}", change
    for name, values in {"do_basic_tokenize off": {"do_basic_tokenize": False}, "do_lower_case is a text": {"do_lower_case": "yes"},
                         "strip_accents is a number": {"strip_accents": 3}, "tokenize_chinese_chars is a list": {"tokenize_chinese_chars": []}}.items():
        yield "wordpiece", f"tokenizer_config.json: {name}", edited_json("tokenizer_config.json", lambda t, values=values: t.update(values))
    yield "wordpiece", "a folder without a tokenizer", lambda folder: os.remove(f"{folder}/vocab.txt")


def of_gpt2_files():
    cases = {
        "vocab.json: an id twice": edited_json("vocab.json", lambda v: v.update(hello=1)),
        "vocab.json: an id negative": edited_json("vocab.json", lambda v: v.update(hello=-7)),
        "vocab.json: an id of 2^40": edited_json("vocab.json", lambda v: v.update(hello=2**40)),
        "vocab.json: an id of a text": edited_json("vocab.json", lambda v: v.update(hello="x")),
        "vocab.json: no tokens": edited_json("vocab.json", lambda v: v.clear()),
        "merges.txt: one token": edited_text("merges.txt", lambda t: t + "hello\n"),
        "merges.txt: three tokens": edited_text("merges.txt", lambda t: t + "h e l\n"),
        "merges.txt: unknown tokens": edited_text("merges.txt", lambda t: t + "qq ww\n"),
        "merges.txt: an escape sequence": edited_text("merges.txt", lambda t: t + "\x1b[31m\n"),
        "merges.txt: spaces": edited_text("merges.txt", lambda t: t + "  \n"),
        "added_tokens.json: an id of 2^31": edited_json("added_tokens.json", lambda v: v.update({"<x>": 2**31})),
        "added_tokens.json: an id negative": edited_json("added_tokens.json", lambda v: v.update({"<x>": -1})),
        "added_tokens.json: an id of a text": edited_json("added_tokens.json", lambda v: v.update({"<x>": "1"})),
        "tokenizer_config.json: another class": edited_json("tokenizer_config.json", lambda t: t.update(tokenizer_class="T5Tokenizer")),
        "tokenizer_config.json: a class that is a number": edited_json("tokenizer_config.json", lambda t: t.update(tokenizer_class=1)),
    }
    for name, change in cases.items():
        yield "gpt2-files", name, change
    yield "gpt2-files", "merges.txt: missing", lambda folder: os.remove(f"{folder}/merges.txt")
    yield "gpt2-files", "vocab.json: missing", lambda folder: os.remove(f"{folder}/vocab.json")


def of_unigram():
    def model(**values):
        return edited_json("tokenizer.json", lambda t: t["model"].update(values))

    def token(value):
        return edited_json("tokenizer.json", lambda t: t["model"]["vocab"].append(value))

    def rule(**values):
        return edited_json("tokenizer.json", lambda t: t["normalizer"]["normalizers"].append(values))

    def table(data):
        return edited_json("tokenizer.json", lambda t: t["normalizer"]["normalizers"][0].update(precompiled_charsmap=base64.b64encode(data).decode()))

    def words(**values):
        return edited_json("tokenizer.json", lambda t: t["pre_tokenizer"].update(values))

    def decoder(**values):
        return edited_json("tokenizer.json", lambda t: t["decoder"]["decoders"].append(values))

    cases = {
        "a token without a score": token(["x"]), "a token that is a text": token("x"), "a token that is a number": token([1, -1]), "a score of a text": token(["x", "-1"]),
        "a score of null": token(["x", None]), "a token with two scores": token(["x", -1, -2]), "a token nested": token([["x", -1], -1]), "a token twice": token(["a", -1]),
        "a token of 5000 bytes": token(["x" * 5000, -1]), "a score that is an object": token(["x", {}]), "unk_id beyond the tokens": model(unk_id=6), "unk_id negative": model(unk_id=-1),
        "unk_id of 2^63": model(unk_id=2**63), "unk_id of a text": model(unk_id="0"), "byte_fallback of a number": model(byte_fallback=1),
        "vocabulary is an object": model(vocab={"a": 1}), "vocabulary empty": model(vocab=[]), "BPE with scores": model(type="BPE"), "WordPiece with scores": model(type="WordPiece"),
        "table not base64": edited_json("tokenizer.json", lambda t: t["normalizer"]["normalizers"][0].update(precompiled_charsmap="@@@@")),
        "table null": edited_json("tokenizer.json", lambda t: t["normalizer"]["normalizers"][0].update(precompiled_charsmap=None)),
        "table empty": table(b""), "table of 3 bytes": table(b"abc"), "table with a trie of 4 GiB": table(b"\xff\xff\xff\xff" + b"x" * 60),
        "table with a trie of 5 bytes": table(b"\x05\0\0\0" + b"x" * 60), "table with results that are not UTF-8": table(b"\x04\0\0\0" + b"\0\0\0\0" + b"\xff\xfe"),
        "rule unknown": rule(type="Nmtt"), "Prepend without text": rule(type="Prepend"), "Replace of nothing": rule(type="Replace", pattern={"String": ""}, content="x"),
        "Replace without pattern": rule(type="Replace", content="x"), "Replace by a number": rule(type="Replace", pattern={"String": "a"}, content=1),
        "Replace with a wrong regular expression": rule(type="Replace", pattern={"Regex": "(a"}, content="x"), "Strip of a text": rule(type="Strip", strip_left="yes"),
        "100 rules": edited_json("tokenizer.json", lambda t: t.update(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}] * 100})),
        "Metaspace of two characters": words(replacement="__"), "Metaspace of nothing": words(replacement=""), "Metaspace of a number": words(replacement=1),
        "Metaspace with an unknown scheme": words(prepend_scheme="last"), "Metaspace with a scheme and without space": words(add_prefix_space=False),
        "Metaspace split of a text": words(split="yes"), "decoder unknown": decoder(type="Shredder"), "Strip of a negative count": decoder(type="Strip", content=" ", start=-1, stop=0),
        "Strip of a count of 2^64": decoder(type="Strip", content=" ", start=2**64, stop=0), "Strip of two characters": decoder(type="Strip", content="ab", start=1, stop=0),
        "a decoder that replaces by 100 bytes": decoder(type="Replace", pattern={"String": "a"}, content="x" * 100),
    }
    for name, change in cases.items():
        yield "unigram", f"tokenizer.json of Unigram: {name}", change


def of_sentencepiece():
    def file(data):
        return lambda folder: write(f"{folder}/tokenizer.model", data)

    good = sentencepiece_model()
    cases = {
        "text of two words": b"hello world\n", "cut off": good[:-1], "cut off in a piece": good[:40],
        "a field of 2^64 - 1 bytes": b"\n" + b"\xff" * 9 + b"\x01", "a number of 11 bytes": b"\xff" * 11, "a group": b"\x0b" + good, "a wire type of 7": b"\x0f" + good,
        "field number 0": b"\0\0" + good, "a piece that is a number": field(1, 7) + good, "a score that is a text": field(1, field(1, b"x") + field(2, b"abcd")) + good,
        "a type of 7": good + piece(b"x", kind=7), "a type of 2^63": good + piece(b"x", kind=2**63), "an empty piece": good + piece(b""), "a piece that is not UTF-8": good + piece(b"\xff\xfe"),
        "a score that is not a number": good + piece(b"x", float("nan")), "a score without end": good + piece(b"x", float("inf")), "a piece twice": good + piece(b"h"),
        "a piece of 10000 bytes": good + piece(b"x" * 10000), "no unknown piece": piece(b"a") + field(2, field(3, 2)), "two unknown pieces": good + piece(b"<other>", kind=2),
        "an unused piece": good + piece(b"x", kind=5), "a byte without byte_fallback": good + piece(b"<0x41>", kind=6), "byte_fallback without bytes": sentencepiece_model(trainer=field(35, 1)),
        "a byte that is none": sentencepiece_model(trainer=field(35, 1)) + piece(b"<0xZZ>", kind=6), "kind word": sentencepiece_model(3), "kind char": sentencepiece_model(4),
        "kind 0": sentencepiece_model(0), "kind 2^40": sentencepiece_model(2**40), "no pieces": field(2, field(3, 2)),
        "a table of 3 bytes": sentencepiece_model(normalizer=field(2, b"abc")), "a table with a trie of 4 GiB": sentencepiece_model(normalizer=field(2, b"\xff" * 40)),
        "a denormalizer": good + field(5, field(2, b"abcdefgh")), "a JSON file": b'{"model": {}}', "an escape sequence as a piece, twice": good + piece(b"\x1b[2J\x07") * 2,
    }
    for name, data in cases.items():
        yield "sentencepiece", f"tokenizer.model: {name}", file(data)
