"""The 40 configurations on which compare_programs.py trains two programs. A configuration's name is a list of words: a model, a mesh with
what belongs to it, and other settings. Every model and every mesh is there with every value of the other settings that it takes; of
models and meshes, which are more pairs than rows, each model is there with eight meshes or so."""
import copy
import dataclasses
import json

from parity_rows import TRAINING
from pipeline_parity import CONFIGS
from random_parity import FREEZE

STEPS = 3
MESHES = {"one": {}, "dp2": {"dp": 2}, "fsdp2": {"fsdp": 2}, "tp2": {"tp": 2}, "pp2": {"pp": 2}}
SETTINGS = {
    "fsdp2": ("parallel.zero=3",), "sp": ("parallel.sequence_parallel=true",), "regather": ("parallel.regather=true",),
    "lp": ("parallel.loss_parallel=true",), "mb2": ("parallel.microbatches=2",), "mb4": ("parallel.microbatches=4",),
    "selective": ("parallel.recompute=selective",), "full": ("parallel.recompute=full",),
    "f64": tuple(f"precision.{part}=float64" for part in ("params", "compute", "reduce")), "bf16": ("precision.compute=bfloat16",),
    "joined": ("train.join_head_and_loss=on", "train.loss_chunk_rows=7"), "apart": ("train.join_head_and_loss=off",),
    "kv1": ("model.num_key_value_heads=1",),  # fewer than tp2 has ranks
    "tied": ("model.tie_word_embeddings=true",), "untied": ("model.tie_word_embeddings=false",),
    "uneven": ("data.samples=19",),  # the second step has 7 rows
    "eval": ("data.eval_fraction=0.25",),  # after the last step
    **{name: (f"parallel.schedule={name}",) for name in ("gpipe", "1f1b", "interleaved", "zbh1", "zbv")}}
DROPOUTS = ("attention_dropout", "attn_pdrop", "resid_pdrop", "embd_pdrop", "hidden_dropout_prob", "attention_probs_dropout_prob", "dropout")
NAMES = (
    "llama one mb4 selective bf16 apart uneven",
    "llama dp2 mb2 full bf16 drop tied joined uneven",
    "llama tp2 mb2 selective kv1 tied",
    "llama tp2 sp mb2 full f64 kv1 joined uneven",
    "llama tp2 sp regather mb4 bf16 uneven",
    "llama tp2 lp selective f64 drop kv1 tied frozen apart",
    "llama pp2 1f1b mb2 full bf16 drop frozen apart",
    "llama pp2 zbv mb4 drop tied frozen uneven eval",
    "llama pp2 tp2 sp zbh1 mb4 selective bf16 drop kv1 frozen apart eval",
    "gpt2 one drop frozen joined eval",
    "gpt2 dp2 untied apart uneven eval",
    "gpt2 fsdp2 selective untied apart uneven",
    "gpt2 tp2 mb4 f64 drop untied frozen joined",
    "gpt2 tp2 sp regather mb2 full drop frozen joined eval",
    "gpt2 pp2 gpipe mb4 f64 drop untied apart",
    "gpt2 pp2 1f1b mb4 f64 drop joined uneven",
    "gpt2 pp2 zbh1 mb2 full bf16 untied frozen uneven",
    "bert tp2 full bf16 apart uneven eval",
    "bert tp2 sp mb4 frozen apart uneven",
    "bert tp2 lp mb4 full bf16 eval",
    "bert pp2 gpipe mb2 selective bf16 frozen joined uneven eval",
    "bert pp2 interleaved mb2 selective bf16 apart",
    "bert pp2 zbh1 mb4 drop joined uneven",
    "bert pp2 zbv mb4 selective f64 drop joined",
    "bert pp2 tp2 sp zbh1 mb2 f64 drop joined uneven eval",
    "encoder_lm fsdp2 mb2 bf16 drop frozen joined",
    "encoder_lm tp2 sp regather selective f64 apart uneven eval",
    "encoder_lm tp2 lp mb2 joined uneven eval",
    "encoder_lm pp2 interleaved mb4 joined uneven",
    "encoder_lm pp2 zbh1 mb2 selective f64 apart eval",
    "encoder_lm pp2 zbv mb2 full bf16 frozen apart eval",
    "encoder_lm pp2 tp2 sp zbh1 mb2 full",
    "trimodal one mb2 full f64 drop",
    "trimodal dp2 mb2 selective f64 drop frozen",
    "trimodal fsdp2 mb2 full f64 uneven eval",
    "trimodal tp2 sp selective bf16 drop eval",
    "trimodal pp2 gpipe mb2 full drop uneven eval",
    "trimodal pp2 1f1b mb4 selective uneven eval",
    "trimodal pp2 interleaved mb4 full f64 drop frozen eval",
    "trimodal pp2 tp2 sp zbh1 mb2 bf16 uneven",
)


def sized(model, layers, drop):
    """A model or tower in a size that trains in no time."""
    kept = {key: value for key, value in model.items() if drop or key not in DROPOUTS}
    return {**kept, "num_hidden_layers": layers, **{key: 0.0 for key in model if key in DROPOUTS and not drop}}


@dataclasses.dataclass(frozen=True)
class Configuration:
    name: str

    def words(self):
        return self.name.split()

    def model(self):
        return self.words()[0]

    def mesh(self):
        degrees = {axis: degree for word in self.words() for axis, degree in MESHES.get(word, {}).items()}
        return ",".join(f"{axis}={degree}" for axis, degree in degrees.items()) or "dp=1"

    def settings(self):
        found = [setting for word in self.words()[1:] for setting in SETTINGS.get(word, ())]
        return found + [f"model.freeze={FREEZE[self.model()][0]}"] * ("frozen" in self.words())

    def document(self):
        """All but the settings; 12 rows a step, 11 tokens a row and 67 words, so that cuts are uneven."""
        document, drop = copy.deepcopy(CONFIGS[self.model()]), "drop" in self.words()
        model = document["model"]
        if self.model() == "trimodal":
            model.update({tower: sized(model[tower], 2, drop) for tower in ("primary", "secondary")})
            model["fusion"] = {"dropout": 0.1 if drop else 0.0}
        else:
            document["model"] = sized(model, 4, drop)
        document["data"].update(samples=36, eval_fraction=0)
        return {**document, **TRAINING, "train": {"global_batch_size": 12, "steps": STEPS}}

    def arguments(self):
        """Of the program, in a folder with this configuration's document in config.json."""
        words = ["train", "--config", "config.json", "--mesh", self.mesh(), "--output-dir", "run", "--json", "--device", "cpu", "--threads", "1"]
        return words + [word for setting in self.settings() for word in ("--set", setting)]

    def write(self, folder):
        with open(f"{folder}/config.json", "w") as f:
            json.dump(self.document(), f)


def unknown_words(name):
    known = (*MESHES, *SETTINGS, "drop", "frozen")
    return [word for word in name.split()[1:] if word not in known]


CONFIGURATIONS = tuple(map(Configuration, NAMES))
