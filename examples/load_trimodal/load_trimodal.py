"""Scores the rows of a CSV table in PyTorch with a trimodal model that `orthant checkpoint export` wrote.

    orthant checkpoint export runs/claims/checkpoints/latest claims-model --format huggingface
    python examples/load_trimodal/load_trimodal.py claims-model claims/trimodal_eval.csv

prints the probability of every class, a line a row. The folder needs nothing of orthant: config.json has the sizes,
preprocessing.json says how a row becomes tensors, tokenizers/ has a tokenizer for each tower, and in model.safetensors
the towers have the tensor names of transformers behind "primary." and "secondary.".
"""
import csv
import json
import math
import os
import sys

import torch
import transformers
from safetensors.torch import load_file
from tokenizers import BertWordPieceTokenizer, Tokenizer


def read_json(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return json.load(f)


def read_weights(folder):
    """All tensors by name, from one file or from the shards that the index lists."""
    index = os.path.join(folder, "model.safetensors.index.json")
    files = sorted(set(read_json(index)["weight_map"].values())) if os.path.exists(index) else ["model.safetensors"]
    return {name: tensor.float() for file in files for name, tensor in load_file(os.path.join(folder, file)).items()}


def read_tokenizer(folder, length):
    """tokenizer.json, or a vocab.txt of BERT. Texts are cut at `length` tokens; shorter ones are padded to the longest."""
    if os.path.exists(os.path.join(folder, "tokenizer.json")):
        tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    else:
        settings = os.path.join(folder, "tokenizer_config.json")
        cased = os.path.exists(settings) and not read_json(settings).get("do_lower_case", True)
        tokenizer = BertWordPieceTokenizer(os.path.join(folder, "vocab.txt"), lowercase=not cased)
    tokenizer.enable_truncation(length)
    tokenizer.no_padding()
    return tokenizer


class Tower(torch.nn.Module):
    """A text tower: the first token's vector, through the pooler and a projection where the model has them."""

    def __init__(self, settings, pooling, weights):
        super().__init__()
        roberta = settings["position_offset"] > 0
        config = (transformers.RobertaConfig if roberta else transformers.BertConfig)(**settings)
        self.pad = config.pad_token_id
        self.body = (transformers.RobertaModel if roberta else transformers.BertModel)(config, add_pooling_layer=pooling == "pooler")
        # What transformers does not know is ours: the projection after the pooler.
        projection = {name[len("pooler.projection."):]: weights.pop(name) for name in list(weights) if name.startswith("pooler.projection.")}
        self.body.load_state_dict(weights)
        self.projection = linear(projection) if projection else torch.nn.Identity()

    def forward(self, ids):
        longest = max(len(row) for row in ids)
        tokens = torch.tensor([row + [self.pad] * (longest - len(row)) for row in ids])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in ids])
        found = self.body(input_ids=tokens, attention_mask=mask)
        pooled = found.pooler_output
        return self.projection(found.last_hidden_state[:, 0] if pooled is None else pooled)


def linear(weights):
    layer = torch.nn.Linear(weights["weight"].shape[1], weights["weight"].shape[0])
    layer.load_state_dict(weights)
    return layer


class Trimodal(torch.nn.Module):
    def __init__(self, folder):
        super().__init__()
        model = read_json(folder, "config.json")["model"]
        self.preprocessing = read_json(folder, "preprocessing.json")
        weights = read_weights(folder)

        def under(prefix):
            return {name[len(prefix):]: tensor for name, tensor in weights.items() if name.startswith(prefix)}

        self.tokenizers = [read_tokenizer(os.path.join(folder, "tokenizers", tower), self.preprocessing[tower]["length"])
                           for tower in ("primary", "secondary")]
        self.primary = Tower(model["primary"], model["pooling"], under("primary."))
        self.secondary = self.primary if model["shared_towers"] else Tower(model["secondary"], model["pooling"], under("secondary."))
        if model["tabular"]:
            self.norm = torch.nn.LayerNorm(model["tabular"]["input_dim"])
            self.norm.load_state_dict(under("tabular.norm."))
            self.tabular = linear(under("tabular.linear."))
        self.hidden, self.output = linear(under("fusion.hidden.")), linear(under("fusion.output."))
        self.eval()

    def forward(self, primary, secondary, numbers):
        """ids of both texts as lists, numbers [rows, columns] -> logits [rows, labels]"""
        features = [self.primary(primary), self.secondary(secondary)]
        if numbers.shape[1] > 0:
            features.append(self.tabular(self.norm(numbers)).relu())
        return self.output(self.hidden(torch.cat(features, 1)).relu())

    @torch.no_grad()
    def probabilities(self, rows):
        """Of rows as csv.DictReader gives them: [rows, labels], in the order of preprocessing["labels"]."""
        ids = []
        for tokenizer, tower in zip(self.tokenizers, ("primary", "secondary")):
            column = self.preprocessing[tower]["column"]
            ids.append([tokenizer.encode(row[column] if column else "").ids for row in rows])
        numbers = [[standardised(row[number["column"]], number) for number in self.preprocessing["numbers"]] for row in rows]
        return self(*ids, torch.tensor(numbers, dtype=torch.float32).reshape(len(rows), -1)).softmax(1)


def standardised(text, number):
    """A missing number is the mean, which is 0."""
    text = text.strip().lower()
    if text in ("", "na", "n/a", "nan", "null", "none"):
        return 0.0
    value = {"true": 1.0, "false": 0.0}.get(text)
    value = float(text) if value is None else value
    assert math.isfinite(value), text
    return (value - number["mean"]) / number["scale"]


def main(folder, table, batch=32):
    model = Trimodal(folder)
    with open(table, newline="", encoding="utf-8") as f:
        rows = list(csv.DictReader(f))
    print(",".join(["row", *model.preprocessing["labels"]]))
    for first in range(0, len(rows), batch):
        for number, chances in enumerate(model.probabilities(rows[first:first + batch]).tolist(), first + 1):
            print(",".join([str(number), *(f"{chance:.9g}" for chance in chances)]))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
