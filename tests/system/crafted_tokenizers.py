"""Tokenizers that are wrong, each in one named way: tokenizer.json, vocab.txt, vocab.json with merges.txt."""
import os

from crafted_files import write
from crafted_models import edited_json, edited_text


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
    yield "bpe", "tokenizer.json: only a SentencePiece model", lambda folder: (
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
