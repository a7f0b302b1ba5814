"""Hugging Face folders that are wrong, each in one named way: models, models in shards, and five kinds of tokenizer."""
import base64
import json
import os
import struct

import crafted_files as files
from crafted_files import CONTENTS, JSON_TEXTS, KINDS, MIB, TEXTS, parsed_tensors, read, safetensors, write

HIDDEN, LAYERS, VOCABULARY, WIDE = 16, 2, 64, 24
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
          "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": WIDE, "vocab_size": VOCABULARY,
          "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False}


def llama_shapes():
    shapes = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        for name, shape in {"input_layernorm": (HIDDEN,), "self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (8, HIDDEN),
                            "self_attn.v_proj": (8, HIDDEN), "self_attn.o_proj": (HIDDEN, HIDDEN), "post_attention_layernorm": (HIDDEN,),
                            "mlp.gate_proj": (WIDE, HIDDEN), "mlp.up_proj": (WIDE, HIDDEN), "mlp.down_proj": (HIDDEN, WIDE)}.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    shapes["model.norm.weight"] = (HIDDEN,)
    shapes["lm_head.weight"] = (VOCABULARY, HIDDEN)
    return shapes


def byte_alphabet():
    """GPT-2's letters for the 256 bytes."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in kept]
    letters = {b: chr(b) for b in kept} | {b: chr(256 + i) for i, b in enumerate(others)}
    return [letters[b] for b in range(256)]


def bpe_vocabulary():
    return {token: i for i, token in enumerate([*byte_alphabet(), "he", "ll", "hell", "hello", "<|endoftext|>"])}


MERGES = ["h e", "l l", "he ll", "hell o"]


def make_llama(folder):
    write(f"{folder}/config.json", json.dumps(CONFIG, indent=1))
    write(f"{folder}/model.safetensors", files.tensors_file(llama_shapes()))


def make_shards(folder):
    write(f"{folder}/config.json", json.dumps(CONFIG, indent=1))
    names = list(llama_shapes())
    weight_map = {}
    for i, part in enumerate([names[:10], names[10:]]):
        file = f"model-0000{i + 1}-of-00002.safetensors"
        write(f"{folder}/{file}", files.tensors_file({name: llama_shapes()[name] for name in part}))
        weight_map |= {name: file for name in part}
    write(f"{folder}/model.safetensors.index.json", json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}, indent=1))


def make_bpe(folder):
    write(f"{folder}/tokenizer.json", json.dumps({
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": 260, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                          "special": True}],
        "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False,
                  "vocab": bpe_vocabulary(), "merges": MERGES}}))
    write(f"{folder}/tokenizer_config.json", json.dumps({"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>"}))
    write(f"{folder}/special_tokens_map.json", json.dumps({"eos_token": "<|endoftext|>"}))


def make_wordpiece(folder):
    write(f"{folder}/vocab.txt", "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "##s"]) + "\n")
    write(f"{folder}/tokenizer_config.json", json.dumps({"do_lower_case": True}))


def make_gpt2_files(folder):
    write(f"{folder}/vocab.json", json.dumps(bpe_vocabulary()))
    write(f"{folder}/merges.txt", "#version: 0.2\n" + "\n".join(MERGES) + "\n")
    write(f"{folder}/added_tokens.json", json.dumps({"<|endoftext|>": 260}))
    write(f"{folder}/tokenizer_config.json", json.dumps({"tokenizer_class": "GPT2Tokenizer"}))


def make_unigram(folder):
    """Laid out as T5's, with SentencePiece's table as normalizer: one entry, "A" becomes "a"."""
    units = [0] * 256
    units[0] = 1 << 10        # children lie at 1 ^ byte
    units[1 ^ 65] = 65 | 1 << 8 | (1 ^ 65 ^ 2) << 10
    units[2] = 1 << 31        # result 0
    table = struct.pack("<257I", 1024, *units) + b"a\0"
    write(f"{folder}/tokenizer.json", json.dumps({
        "version": "1.0", "added_tokens": [{"id": 1, "content": "</s>", "special": True, "normalized": False}],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}, "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [{"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"},
                                                     {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["</s>", 0], ["\u2581", -2.5], ["a", -3], ["b", -3.5], ["hello", -9]]}}))


def varint(value):
    out = b""
    while value >= 128:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def field(number, value):
    """A field of a protobuf message: bytes, an integer, or a float of four bytes."""
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3) + varint(value) if isinstance(value, int) else varint(number << 3 | 2) + varint(len(value)) + value


def piece(text, score=-1.0, kind=1):
    return field(1, field(1, text) + field(2, score) + field(3, kind))


def sentencepiece_model(kind=2, normalizer=b"", trainer=b""):
    first = piece(b"<unk>", 0.0, 2) + piece(b"<s>", 0.0, 3) + piece(b"</s>", 0.0, 3)
    pieces = b"".join(piece(text.encode(), -float(i)) for i, text in enumerate(["\u2581", "h", "e", "l", "o", "he", "hello"]))
    return first + pieces + field(2, field(3, kind) + trainer) + field(3, normalizer)


def make_sentencepiece(folder):
    write(f"{folder}/tokenizer.model", sentencepiece_model())


BASES = {"unigram": make_unigram, "sentencepiece": make_sentencepiece, "llama": make_llama, "shards": make_shards, "bpe": make_bpe, "wordpiece": make_wordpiece, "gpt2-files": make_gpt2_files}
INDEX = "model.safetensors.index.json"
SHARD = "model-00002-of-00002.safetensors"
JSON_FILES = [("unigram", "tokenizer.json"), ("llama", "config.json"), ("shards", INDEX), ("bpe", "tokenizer.json"), ("bpe", "tokenizer_config.json"),
              ("wordpiece", "tokenizer_config.json"), ("gpt2-files", "vocab.json"), ("gpt2-files", "added_tokens.json")]
OTHER_FILES = [("sentencepiece", "tokenizer.model"), ("llama", "model.safetensors"), ("shards", SHARD), ("wordpiece", "vocab.txt"), ("gpt2-files", "merges.txt")]


def edited_json(name, edit):
    """Changes the object that a JSON file holds."""
    def change(folder):
        value = json.loads(read(f"{folder}/{name}"))
        write(f"{folder}/{name}", json.dumps(edit(value) or value))
    return change


def edited_text(name, edit):
    def change(folder):
        write(f"{folder}/{name}", edit(read(f"{folder}/{name}").decode()))
    return change


def edited_tensors(name, edit):
    """Changes header and data of a file of tensors: edit(header, data) gives what is to be written."""
    def change(folder):
        write(f"{folder}/{name}", edit(*parsed_tensors(f"{folder}/{name}")))
    return change


def of_kinds():
    """Something else where a file should be, or a file of something else. A JSON text may be empty of meaning only by accident."""
    for base, name in JSON_FILES + OTHER_FILES:
        kinds = dict(KINDS)
        if name.endswith((".json", ".txt")):
            kinds |= TEXTS
        if name.endswith(".safetensors"):  # bytes behind the tensors
            kinds["sparse-1MiB"] = files.sparse(MIB)
        if name in ("merges.txt",):
            kinds.pop("empty")  # a vocabulary of bytes alone
        for kind, make in {**kinds, **CONTENTS}.items():
            if name.endswith(".txt") and kind == "cut-in-half":
                continue  # a shorter list is a list
            yield base, f"{name}: {kind}", (lambda folder, make=make, name=name: make(f"{folder}/{name}"))


def of_json_texts():
    for base, name in JSON_FILES:
        for mistake, edit in JSON_TEXTS.items():
            yield base, f"{name}: {mistake}", edited_text(name, edit)
        yield base, f"{name}: 6 million numbers", edited_text(name, lambda text: files.inside(text, '"x": [' + "1," * (6 * MIB) + "1]"))
        if name not in KEYED_BY_TOKENS:
            yield base, f"{name}: a key of 4 MB above 1000 values", edited_text(
                name, lambda text: files.inside(text, '"' + "k" * (4 * MIB) + '": [' + "1," * 1000 + "1]"))


KEYED_BY_TOKENS = ("tokenizer.json",)  # what it says besides may have any key


def of_config_values():
    absurd = {"0": 0, "-1": -1, "10^9": 10**9, "2^31": 2**31, "2^63-1": 2**63 - 1, "10^30": 10**30, "1.5": 1.5, "a text": "16", "a list": [16],
              "an object": {}, "true": True}
    for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size"):
        for name, value in absurd.items():
            yield "llama", f"config.json: {key} is {name}", edited_json("config.json", lambda c, key=key, value=value: c.update({key: value}))
    wrong = {
        "max_position_embeddings is 0": {"max_position_embeddings": 0}, "max_position_embeddings is 2^63-1": {"max_position_embeddings": 2**63 - 1},
        "max_position_embeddings is -5": {"max_position_embeddings": -5}, "rms_norm_eps is 0": {"rms_norm_eps": 0.0},
        "rms_norm_eps is negative": {"rms_norm_eps": -1e-5}, "rope_theta is 0": {"rope_theta": 0}, "rope_theta is negative": {"rope_theta": -1.0},
        "rope_theta is a text": {"rope_theta": "10000"}, "head_dim is 3": {"head_dim": 3}, "head_dim is 2^40": {"head_dim": 2**40},
        "head_dim does not fit": {"head_dim": 4}, "one layer too few": {"num_hidden_layers": 1}, "one layer too many": {"num_hidden_layers": 3},
        "vocabulary does not fit": {"vocab_size": 65}, "model_type unknown": {"model_type": "lama"}, "model_type is a number": {"model_type": 1},
        "model_type with an escape sequence": {"model_type": "\x1b[2Jllama"}, "model_type of another family": {"model_type": "bert"},
        "hidden_act unknown": {"hidden_act": "wave"}, "attention_bias": {"attention_bias": True}, "mlp_bias": {"mlp_bias": True},
        "rope_scaling unknown": {"rope_scaling": {"rope_type": "spiral", "factor": 2.0}},
        "rope_scaling factor is 0": {"rope_scaling": {"rope_type": "linear", "factor": 0}},
        "rope_scaling is a list": {"rope_scaling": [1]}, "attention_dropout is 2": {"attention_dropout": 2.0},
        "tie_word_embeddings is a text": {"tie_word_embeddings": "no"}, "pruned heads": {"pruned_heads": {"0": [1]}},
    }
    for name, values in wrong.items():
        yield "llama", f"config.json: {name}", edited_json("config.json", lambda c, values=values: c.update(values))
    yield "llama", "config.json: no model_type", edited_json("config.json", lambda c: c.pop("model_type") and None)
    yield "llama", "config.json: missing", lambda folder: os.remove(f"{folder}/config.json")


def of_tensor_files():
    first = "model.embed_tokens.weight"

    def header(edit):
        def change(head, data):
            head = edit(head) or head
            return safetensors(head, data)
        return change

    def entry(**values):
        return header(lambda head: head[first].update(values))

    def renamed(head, old, new):
        return {new if name == old else name: value for name, value in head.items()}

    cases = {
        "a tensor missing": header(lambda h: h.pop("lm_head.weight") and None),
        "a tensor renamed": header(lambda h: renamed(h, first, "model.embed.weight")),
        "a tensor with an escape sequence in its name": header(lambda h: renamed(h, first, "\x1b]0;owned\x07\x1b[31mweight\nfake line")),
        "a tensor with an empty name": header(lambda h: renamed(h, first, "")),
        "shape turned": header(lambda h: h[first].update(shape=h[first]["shape"][::-1])),
        "shape with a dim more": header(lambda h: h[first].update(shape=[1, *h[first]["shape"]])),
        "shape negative": entry(shape=[-64, -16]), "shape overflows": entry(shape=[2**62, 4]), "shape of 10^18": entry(shape=[10**18]),
        "shape beyond 64 bits": entry(shape=[10**25]), "shape of 100000 dims": entry(shape=[1] * 100_000), "shape is a text": entry(shape="64x16"),
        "shape of texts": entry(shape=["64", "16"]), "shape of fractions": entry(shape=[64.0, 16.0]), "shape is null": entry(shape=None),
        "shape nested": entry(shape=[[64], [16]]), "shape too small": entry(shape=[63, 16]), "dtype unknown": entry(dtype="F31"),
        "dtype of integers": entry(dtype="I32"), "dtype of other width": entry(dtype="F64"), "dtype is a number": entry(dtype=32),
        "dtype is empty": entry(dtype=""), "offsets turned": entry(data_offsets=[4096, 0]), "offsets beyond the file": entry(data_offsets=[0, 1 << 40]),
        "offsets negative": entry(data_offsets=[-4, 4092]), "offsets of one number": entry(data_offsets=[0]),
        "offsets of three numbers": entry(data_offsets=[0, 4096, 8192]), "offsets beyond 63 bits": entry(data_offsets=[2**63, 2**63 + 4096]),
        "offsets overlap": header(lambda h: h["lm_head.weight"].update(data_offsets=h[first]["data_offsets"])),
        "offsets are a text": entry(data_offsets="0-4096"), "offsets unaligned": entry(data_offsets=[1, 4097]),
        "no dtype": header(lambda h: h[first].pop("dtype") and None), "no shape": header(lambda h: h[first].pop("shape") and None),
        "no offsets": header(lambda h: h[first].pop("data_offsets") and None), "an unknown key": entry(stride=[1, 2]),
        "metadata of numbers": header(lambda h: h.update(__metadata__={"format": 1})), "metadata is a list": header(lambda h: h.update(__metadata__=[])),
        "metadata nested": header(lambda h: h.update(__metadata__={"a": {"b": "c"}})),
        "a tensor is null": header(lambda h: h.update({first: None})), "a tensor is a list": header(lambda h: h.update({first: [1]})),
        "a hole between tensors": lambda h, d: safetensors(shifted(h, first), d + b"\0" * 8),
        "bytes behind the tensors": lambda h, d: safetensors(h, d + b"\0" * 4), "last byte cut": lambda h, d: safetensors(h, d[:-1]),
        "no data": lambda h, d: safetensors(h, b""), "empty header": lambda h, d: safetensors(b"", d), "header {}": lambda h, d: safetensors(b"{}", d),
        "header is an array": lambda h, d: safetensors(b"[]", d), "header of spaces": lambda h, d: safetensors(b" " * 100, d),
        "header nested 100000 deep": lambda h, d: safetensors(b'{"a":' * 100_000, d), "header cut": lambda h, d: safetensors(json.dumps(h)[:-10], d),
        "header not UTF-8": lambda h, d: safetensors(json.dumps(h).encode().replace(b"embed", b"\xff\xfe\xff", 1), d),
        "header with a zero byte": lambda h, d: safetensors(json.dumps(h).encode() + b"\0", d),
        "header with a name twice": lambda h, d: safetensors(json.dumps(h)[:-1] + ', "lm_head.weight": ' + json.dumps(h["lm_head.weight"]) + "}", d),
        "header of 2^63 bytes": lambda h, d: b"\xff" * 7 + b"\x7f" + json.dumps(h).encode() + d,
        "header of 2^64-1 bytes": lambda h, d: b"\xff" * 8 + json.dumps(h).encode() + d,
        "header of 0 bytes": lambda h, d: bytes(8) + json.dumps(h).encode() + d,
        "seven bytes": lambda h, d: b"1234567", "a Git LFS pointer": lambda h, d: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
        "a zip archive": lambda h, d: b"PK\x03\x04" + d, "a pickle": lambda h, d: b"\x80\x02}q\x00." + d,
        "text": lambda h, d: b"these are no tensors\n" * 50,
    }
    for name, edit in cases.items():
        yield "llama", f"model.safetensors: {name}", edited_tensors("model.safetensors", edit)

    def sparse_header(folder):
        path = f"{folder}/model.safetensors"
        write(path, (90_000_000).to_bytes(8, "little") + b"{")
        os.truncate(path, 100_000_000)
    yield "llama", "model.safetensors: a sparse header of 90 MB", sparse_header
    yield "llama", "model.safetensors: missing", lambda folder: os.remove(f"{folder}/model.safetensors")
    yield "llama", "model.safetensors: only a pickle", lambda folder: os.rename(f"{folder}/model.safetensors", f"{folder}/pytorch_model.bin")


def shifted(head, first):
    """All tensors but the first begin eight bytes later."""
    for name, entry in head.items():
        if name not in (first, "__metadata__") and entry["data_offsets"][0] > 0:
            entry["data_offsets"] = [place + 8 for place in entry["data_offsets"]]
    return head


def of_index():
    first = "model.embed_tokens.weight"

    def mapped(**values):
        return edited_json(INDEX, lambda i: i["weight_map"].update(values))

    cases = {
        "a file above the folder": mapped(**{first: "../model.safetensors"}), "an absolute file": mapped(**{first: "/etc/passwd"}),
        "a device": mapped(**{first: "/dev/zero"}), "a pickle": mapped(**{first: "pytorch_model.bin"}), "an empty file name": mapped(**{first: ""}),
        "a file name with a zero byte": mapped(**{first: "a\0b"}), "a file name of 5000 letters": mapped(**{first: "n" * 5000}),
        "a file that is missing": mapped(**{first: "model-00003-of-00003.safetensors"}), "a file that is a number": mapped(**{first: 1}),
        "a file that is null": mapped(**{first: None}), "a file that is a list": mapped(**{first: [SHARD]}), "the other file": mapped(**{first: SHARD}),
        "a tensor that no file has": mapped(**{"model.ghost.weight": SHARD}), "a folder as file": mapped(**{first: "."}),
        "an escape sequence as file": mapped(**{first: "\x1b[2J.safetensors"}),
        "no weight_map": edited_json(INDEX, lambda i: i.pop("weight_map") and None),
        "an empty weight_map": edited_json(INDEX, lambda i: i.update(weight_map={})),
        "a weight_map that is a list": edited_json(INDEX, lambda i: i.update(weight_map=[])),
        "a weight_map that is null": edited_json(INDEX, lambda i: i.update(weight_map=None)),
        "metadata that is a text": edited_json(INDEX, lambda i: i.update(metadata="x")),
        "100000 tensors in one missing file": edited_json(INDEX, lambda i: i.update(weight_map={f"t{n}": "none.safetensors" for n in range(100_000)})),
        "100000 missing files": edited_json(INDEX, lambda i: i.update(weight_map={f"t{n}": f"none-{n}.safetensors" for n in range(100_000)})),
    }
    for name, change in cases.items():
        yield "shards", f"index: {name}", change
    yield "shards", "index: missing", lambda folder: os.remove(f"{folder}/{INDEX}")
    yield "shards", "index: a shard missing", lambda folder: os.remove(f"{folder}/{SHARD}")
    yield "shards", "index: shards exchanged", lambda folder: (
        os.rename(f"{folder}/{SHARD}", f"{folder}/x"), os.rename(f"{folder}/model-00001-of-00002.safetensors", f"{folder}/{SHARD}"),
        os.rename(f"{folder}/x", f"{folder}/model-00001-of-00002.safetensors"))
