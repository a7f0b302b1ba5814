"""Checkpoints that are wrong, each in one named way. Where the manifest is changed it is sealed anew, so that its hash is right and only its
contents can be refused."""
import json
import os

from crafted_files import CONTENTS, JSON_TEXTS, KINDS, read, sparse, write, xxh64

SHARD = "rank-0.safetensors"


def sealed(text):
    """The text of a manifest without its closing line, with the hash of all that comes before."""
    before = text.encode() if isinstance(text, str) else text
    return before + f',\n "xxh64": "{xxh64(before):016x}"\n}}\n'.encode()


def body(folder):
    """The manifest as an object and without its seal."""
    value = json.loads(read(f"{folder}/manifest.json"))
    value.pop("xxh64")
    return value


def edited(edit):
    def change(folder):
        value = body(folder)
        value = edit(value) or value
        write(f"{folder}/manifest.json", sealed(json.dumps(value, indent=1)[:-2]))
    return change


def tensor(value, place=0):
    """A parameter of the manifest: name and what is said of it."""
    return sorted(value["tensors"].items())[place]


def first_piece(value):
    return tensor(value)[1]["pieces"][0]


def of_kinds():
    for name in ("manifest.json", SHARD):
        for kind, make in KINDS.items():
            yield f"{name}: {kind}", (lambda folder, make=make, name=name: make(f"{folder}/{name}"))
        for kind, make in CONTENTS.items():
            yield f"{name}: {kind}", (lambda folder, make=make, name=name: make(f"{folder}/{name}"))
    yield f"{SHARD}: sparse-1MiB", lambda folder: sparse(1 << 20)(f"{folder}/{SHARD}")
    yield f"{SHARD}: missing", lambda folder: os.remove(f"{folder}/{SHARD}")
    yield "manifest.json: missing", lambda folder: os.remove(f"{folder}/manifest.json")


def of_texts():
    for name in ("nested-100000-deep", "opened-1000000-times", "bad-utf8", "a-number"):
        yield f"manifest.json: {name}", (lambda folder, name=name: write(
            f"{folder}/manifest.json", JSON_TEXTS[name](read(f"{folder}/manifest.json").decode())))
    yield "manifest.json: 6 million numbers", lambda folder: write(f"{folder}/manifest.json", '{"x": [' + "1," * (6 << 20) + "1]}")


def renamed(value):
    name, entry = tensor(value)
    value["tensors"]["\x1b]0;owned\x07\x1b[2Jfake\northant: fine"] = entry
    del value["tensors"][name]


CONTENT = {
    "another version": edited(lambda m: m.update(version=3)), "step negative": edited(lambda m: m.update(step=-1)),
    "step of another name": edited(lambda m: m.update(step=7)), "step of 2^63": edited(lambda m: m.update(step=2**63)),
    "seed negative": edited(lambda m: m.update(seed=-1)), "an unknown key": edited(lambda m: m.update(extra=1)),
    "tensors missing": edited(lambda m: m.pop("tensors") and None), "tensors are a list": edited(lambda m: m.update(tensors=[])),
    "no files": edited(lambda m: m.update(files={})), "a file above the folder": edited(lambda m: m["files"].update({"../x": m["files"][SHARD]})),
    "an absolute file": edited(lambda m: m["files"].update({"/dev/zero": m["files"][SHARD]})),
    "a file of other size": edited(lambda m: m["files"][SHARD].update(bytes=12)), "a file of 2^62 bytes": edited(lambda m: m["files"][SHARD].update(bytes=2**62)),
    "a file without hash": edited(lambda m: m["files"][SHARD].update(xxh64=[])), "a file of other hash": edited(lambda m: m["files"][SHARD].update(xxh64=["0" * 16])),
    "a shape of 2^40 x 2^40": edited(lambda m: tensor(m)[1].update(shape=[2**40, 2**40])), "a shape negative": edited(lambda m: tensor(m)[1].update(shape=[-1])),
    "a dtype unknown": edited(lambda m: tensor(m)[1].update(dtype="float31")), "no pieces": edited(lambda m: tensor(m)[1].update(pieces=[])),
    "a piece twice": edited(lambda m: tensor(m)[1]["pieces"].append(dict(first_piece(m)))),
    "a piece in no file": edited(lambda m: first_piece(m).update(file="rank-9.safetensors")),
    "a piece of no tensor": edited(lambda m: first_piece(m).update(tensor="\x1b[31mnone")),
    "a piece outside": edited(lambda m: first_piece(m).update(offsets=[n + 1 for n in first_piece(m)["offsets"]])),
    "a piece of 10^18": edited(lambda m: first_piece(m).update(lengths=[10**18 for _ in first_piece(m)["lengths"]])),
    "a tensor with an escape sequence in its name": edited(renamed),
    "a tied name without owner": edited(lambda m: m["tied"].update(ghost="none")),
}


def all_cases():
    yield from of_kinds()
    yield from of_texts()
    for name, change in CONTENT.items():
        yield f"manifest.json: {name}", change
