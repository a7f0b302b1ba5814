"""Small tokenizers over characters, trained here with PyPI `sentencepiece`: its own .model files, and tokenizer.json files laid out as those of
Llama 2, Llama 2 with Metaspace, T5, XLM-R and ALBERT are."""
import base64
import json
import os

import mixed_text

REGEX_SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
SPECIAL = ("<unk>", "<s>", "</s>")


def training_text(source, path):
    texts = mixed_text.lines(mixed_text.speeches(source, 3000) + mixed_text.generated(800, seed=77))
    texts = ["".join(c for c in text if c not in "\x00\r\x0b\x0c\x1c\x85\u2028\u2029") for text in texts]
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(text + "\n" for text in texts if text.strip())


def train(folder, name, corpus, **options):
    """The path of a new .model."""
    import sentencepiece
    prefix = os.path.join(folder, name)
    sentencepiece.SentencePieceTrainer.train(input=corpus, model_prefix=prefix, minloglevel=2, character_coverage=0.98, num_threads=1, **options)
    return prefix + ".model"


def train_bpe(folder, corpus, **options):
    """As Llama 2: byte fallback, text as it is."""
    return train(folder, "bpe", corpus, **{"model_type": "bpe", "vocab_size": 2000, "byte_fallback": True, "normalization_rule_name": "identity",
                                           "remove_extra_whitespaces": False, "split_digits": True, **options})


def train_unigram(folder, corpus, **options):
    """As T5: the table of nmt_nfkc, runs of spaces joined."""
    return train(folder, "unigram", corpus, **{"model_type": "unigram", "vocab_size": 2000, **options})


def parsed(path):
    from sentencepiece import sentencepiece_model_pb2
    model = sentencepiece_model_pb2.ModelProto()
    with open(path, "rb") as file:
        model.ParseFromString(file.read())
    return model


def added(model):
    return [{"id": i, "content": piece.piece, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
            for i, piece in enumerate(model.pieces) if piece.piece in SPECIAL]


def template(content, number):
    token = {"SpecialToken": {"id": content, "type_id": 0}}
    parts = [{"Sequence": {"id": "A", "type_id": 0}}]
    parts = [token, *parts] if content == "<s>" else [*parts, token]
    return {"type": "TemplateProcessing", "single": parts, "pair": [*parts, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {content: {"id": content, "ids": [number], "tokens": [content]}}}


def merges_of(model):
    """Every way to make a piece of two others, in the order of scores: what SentencePiece's rule comes to."""
    normal = {piece.piece: piece.score for piece in model.pieces if piece.type == 1}
    merges = [(-score, piece[:cut], piece[cut:]) for piece, score in normal.items() for cut in range(1, len(piece))
              if piece[:cut] in normal and piece[cut:] in normal]
    return [[left, right] for _, left, right in sorted(merges, key=lambda merge: merge[0])]


def llama_json(model, metaspace=False):
    steps = [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added(model),
            "normalizer": None if metaspace else {"type": "Sequence", "normalizers": steps},
            "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False} if metaspace else None,
            "post_processor": template("<s>", 1),
            "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                                                         {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                      "vocab": {piece.piece: i for i, piece in enumerate(model.pieces)}, "merges": merges_of(model)}}


def unigram_json(model, scheme="always", before=(), words=False):
    table = base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added(model),
            "normalizer": {"type": "Sequence", "normalizers": [*before, {"type": "Precompiled", "precompiled_charsmap": table}, REGEX_SPACES]},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]} if words else metaspace,
            "post_processor": template("</s>", 2), "decoder": metaspace,
            "model": {"type": "Unigram", "unk_id": 0, "vocab": [[piece.piece, piece.score] for piece in model.pieces], "byte_fallback": False}}


ALBERT = [{"type": "Replace", "pattern": {"String": "``"}, "content": '"'}, {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]


def write_json(folder, name, value):
    path = os.path.join(folder, name + ".json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False)
    return path
