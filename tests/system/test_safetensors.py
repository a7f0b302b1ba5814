"""Our safetensors files and the PyPI package's, both ways; what each refuses; and the script that turns pickles into them."""
import contextlib
import io
import json
import os
import random
import re
import runpy
import struct
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import safetensors
import torch
from safetensors.torch import load_file, save_file

from program import BUILD, SOURCE, only_json, run

PEER = os.path.join(BUILD, "tests", "safetensors_peer")
SCRIPT = os.path.join(SOURCE, "tools", "state_dict_to_safetensors.py")

# What our reader refuses and the package accepts, as src/orthant/files/safetensors.h lists it.
STRICTER = {
    "white space before the header": r"the header does not begin with \{",
    "a name given twice": r"the header has \".*\" twice",
    "a metadata key given twice": r"__metadata__ has the key .* twice",
    "null metadata": r"the header has null at \"__metadata__\"",
    "a description as an array": r"the header has an array at",
    "a type that is not a string": r"has an object at \"dtype\"",
    "unknown keys": r"has the unknown key",
    "more than 64 dimensions": r"has more than 64 elements",
    "an overflow beside a zero": r"takes more bytes than 63 bits can count|at \"shape\", which takes more than 63 bits",
    "elements of 4 and 6 bits": r"are not whole bytes and are not supported",
}


def raw_bytes(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def many_tensors():
    torch.manual_seed(3)
    floats = {f"float.{d}".replace("torch.", ""): torch.randn(3, 5).to(d)
              for d in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
                        torch.complex64)}
    whole = {f"int.{d}".replace("torch.", ""): torch.randint(0, 100, (4, 3)).to(d)
             for d in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64)}
    odd = {"bool": torch.tensor([True, False, True]), "scalar": torch.tensor(2.5), "empty": torch.empty(0),
           "empty.inside": torch.empty(3, 0, 2, dtype=torch.bfloat16), "été 模型 🙂 \"quoted\"\n": torch.ones(2)}
    return {**floats, **whole, **odd}


class BothWays(unittest.TestCase):
    def check_contents(self, found, tensors):
        self.assertEqual(set(found), set(tensors))
        for name, tensor in tensors.items():
            self.assertEqual(found[name][1:], [list(tensor.shape), raw_bytes(tensor).hex()], name)

    def test_files_of_the_package_are_read(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            tensors, metadata = many_tensors(), {"format": "pt", "été": "模型\n\"x\"", "": ""}
            save_file(tensors, path, metadata=metadata)
            self.check_contents(only_json(self, run(PEER, "contents", folder)), tensors)
            self.assertEqual(only_json(self, run(PEER, "metadata", path)), metadata)
            save_file({}, path)
            self.assertEqual(only_json(self, run(PEER, "contents", path)), {})

    def test_our_files_are_read_by_the_package(self):
        with tempfile.TemporaryDirectory() as folder:
            tensors = many_tensors()
            path = os.path.join(folder, "a.safetensors")
            save_file(tensors, path)
            for shard_bytes, files in ((10**9, 1), (100, 8)):
                copy = os.path.join(folder, f"copy-{shard_bytes}")
                self.assertEqual(run(PEER, "copy", path, copy, shard_bytes).returncode, 0)
                self.check_contents(only_json(self, run(PEER, "contents", copy)), tensors)
                names = [name for name in os.listdir(copy) if name.endswith(".safetensors")]
                self.assertGreaterEqual(len(names), files)
                read = {}
                for name in names:
                    with safetensors.safe_open(os.path.join(copy, name), "pt") as f:
                        self.assertEqual(f.metadata(), {"format": "pt"})
                    read.update(load_file(os.path.join(copy, name)))
                self.assertEqual(set(read), set(tensors))
                for name, tensor in tensors.items():
                    self.assertEqual((read[name].dtype, read[name].shape), (tensor.dtype, tensor.shape), name)
                    self.assertEqual(raw_bytes(read[name]), raw_bytes(tensor), name)
            with open(os.path.join(copy, "model.safetensors.index.json")) as f:
                index = json.load(f)
            self.assertEqual(set(index["weight_map"]), set(tensors))
            self.assertEqual(index["metadata"]["total_size"], sum(t.nbytes for t in tensors.values()))


class Mutations:
    """Headers near the valid ones: values of the JSON changed, then letters of the text, then the lengths."""

    VALUES = [0, 1, 2, 3, 4, 7, 8, 16, 24, 33, -1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 1.0, 1e3, None, True,
              "", "x", [], {}, [0], [[0]], {"F32": None}, "F32", "BF16", "F64", "U8", "BOOL", "C64", "F4", "F6_E2M3", "F6_E3M2",
              "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "f32", "I4", "C128"]
    LETTERS = "0123456789,:[]{}\"- .e\\\n\t\0\x7fné"

    def __init__(self, seed):
        self.random = random.Random(seed)

    def valid(self):
        """A header and the length of its data."""
        sizes = {"F32": 4, "BF16": 2, "U8": 1, "F64": 8, "F8_E4M3": 1, "I16": 2}
        header, end = {}, 0
        if self.random.random() < 0.4:
            header["__metadata__"] = {"format": "pt", "k": "v"}
        for name in self.random.sample(["a", "b", "c.weight", "é", ""], self.random.randint(0, 4)):
            dtype = self.random.choice(list(sizes))
            shape = [self.random.choice([0, 1, 2, 3, 4]) for _ in range(self.random.randint(0, 3))]
            begin, count = end, sizes[dtype]
            for size in shape:
                count *= size
            end += count
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        return header, end

    def change_value(self, header):
        tensors = [t for n, t in header.items() if isinstance(t, dict) and "shape" in t and isinstance(t["shape"], list)]
        choice = self.random.randint(0, 8)
        if choice == 0 or not tensors:
            header[self.random.choice(["__metadata__", "x", "a"])] = self.random.choice(self.VALUES)
            return
        tensor = self.random.choice(tensors)
        if choice == 1:
            tensor[self.random.choice(["dtype", "shape", "data_offsets", "other"])] = self.random.choice(self.VALUES)
        elif choice == 2:
            tensor.pop(self.random.choice(list(tensor)))
        elif choice == 3:
            tensor["dtype"] = self.random.choice([v for v in self.VALUES if isinstance(v, str)])
        elif choice in (4, 5):
            array = tensor.get(self.random.choice(["shape", "data_offsets"]))
            if isinstance(array, list):
                array.insert(self.random.randint(0, len(array)), self.random.choice(self.VALUES))
                if self.random.random() < 0.7 and len(array) > 1:
                    array.pop(self.random.randrange(len(array)))
        elif choice == 6:
            tensor["shape"] = [1] * self.random.choice([63, 64, 65]) + tensor["shape"]
        elif choice == 7:
            tensor["shape"] = self.random.sample([0, 2**32, 2**32, 2**31], 4)
            if isinstance(tensor.get("data_offsets"), list):
                tensor["data_offsets"] = tensor["data_offsets"][:1] * 2
        else:
            name = next(n for n, t in header.items() if t is tensor)
            header[name] = [tensor.get("dtype"), tensor.get("shape"), tensor.get("data_offsets")]

    def change_text(self, text):
        choice = self.random.randint(0, 6)
        at = self.random.randint(0, len(text))
        if choice == 0:
            return " " * self.random.randint(1, 3) + text
        if choice == 1:
            return text + self.random.choice([" ", "\n", "\t ", "\0", "}", "x", "\v"])
        if choice == 2:  # what the object holds once more
            return "{" + text[1:-1] + "," + text[1:-1] + "}"
        if choice == 3:
            return text.replace('"k":', '"format":')
        if choice == 4:
            return text[:at] + text[at + self.random.randint(1, 3):]
        letter = self.random.choice(self.LETTERS)
        return text[:at] + letter + text[at + (choice == 5):]

    def file(self):
        header, data = self.valid()
        for _ in range(self.random.choice([0, 0, 1, 1, 2])):
            self.change_value(header)
        items = list(header.items())
        self.random.shuffle(items)
        text = json.dumps(dict(items), separators=(",", ":"), ensure_ascii=self.random.random() < 0.5)
        for _ in range(self.random.choice([0, 0, 1, 1, 2])):
            text = self.change_text(text)
        encoded = text.encode()
        if self.random.random() < 0.05:
            encoded = encoded[:-1] + bytes([self.random.randrange(256)]) + encoded[-1:]
        length = len(encoded) + (self.random.choice([-1, 1, 8, 10**8, 2**63]) if self.random.random() < 0.05 else 0)
        data += self.random.choice([-1, 1]) if self.random.random() < 0.05 else 0
        return struct.pack("<Q", max(length, 0)) + encoded + bytes(max(data, 0))


class Verdicts(unittest.TestCase):
    def test_the_package_and_we_refuse_the_same_but_for_what_is_listed(self):
        mutations, files = Mutations(17), []
        with tempfile.TemporaryDirectory() as folder:
            for i in range(5000):
                files.append(mutations.file())
                with open(os.path.join(folder, f"{i:05}"), "wb") as f:
                    f.write(files[-1])
            ours = only_json(self, run(PEER, "verdicts", folder))
        seen, accepted, refused = set(), 0, 0
        for content, verdict in zip(files, ours, strict=True):
            try:
                theirs = {name: [t["dtype"], t["shape"]] for name, t in safetensors.deserialize(content)}
            except safetensors.SafetensorError as error:
                theirs = None
                self.assertIsInstance(verdict, str, f"we accept what the package refuses: {error}: {content!r}")
                refused += 1
                continue
            if isinstance(verdict, str):
                reasons = [name for name, pattern in STRICTER.items() if re.search(pattern, verdict)]
                self.assertTrue(reasons, f"we refuse what the package accepts: {verdict}: {content!r}")
                seen.update(reasons)
            else:
                self.assertEqual(verdict, theirs, content)
                accepted += 1
        self.assertEqual(seen, set(STRICTER), "reasons that no file showed")
        self.assertGreater(accepted, 500)
        self.assertGreater(refused, 1000)


class NotATensor:
    pass


class StateDicts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def convert(self, *words):
        """Runs the script within this process, which has loaded torch already."""
        output, errors, code = io.StringIO(), io.StringIO(), 0
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors), \
                mock.patch.object(sys, "argv", [SCRIPT, *words]):
            try:
                runpy.run_path(SCRIPT, run_name="__main__")
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
                errors.write(end.code if isinstance(end.code, str) else "")
        return subprocess.CompletedProcess(words, code, output.getvalue(), errors.getvalue())

    def lightning(self, **more):
        """A checkpoint as PyTorch Lightning writes it, with tied weights, a view, and things that are not the model's."""
        table, block = torch.randn(10, 4), torch.randn(2, 3, 4)
        weights = {"model.embed.weight": table, "model.head.weight": table, "model.blocks.0.w": block[0], "model.blocks.1.w": block[1],
                   "model.blocks.0.t": torch.randn(3, 4).t(), "model.steps": torch.tensor(7), "loss.scale": torch.ones(1)}
        torch.save({"epoch": 3, "global_step": 12, "pytorch-lightning_version": "2.4.0", "state_dict": weights,
                    "optimizer_states": [{"state": {}, "param_groups": []}], "hyper_parameters": {"lr": 0.1}, **more},
                   self.path("last.ckpt"))
        return weights

    def test_a_lightning_checkpoint_becomes_a_folder_that_we_read(self):
        weights = self.lightning()
        finished = self.convert(self.path("last.ckpt"), "-o", self.path("out"), "--strip-prefix", "model.", "--drop", "^loss",
                                "--rename", r"^blocks\.(\d+)\.=encoder.layer.\1.")
        self.assertEqual(finished.returncode, 0, finished.stderr)
        names = {"embed.weight": "model.embed.weight", "head.weight": "model.head.weight", "steps": "model.steps",
                 "encoder.layer.0.w": "model.blocks.0.w", "encoder.layer.1.w": "model.blocks.1.w", "encoder.layer.0.t": "model.blocks.0.t"}
        read = load_file(self.path("out/model.safetensors"))
        self.assertEqual(set(read), set(names))
        for new, old in names.items():
            self.assertTrue(torch.equal(read[new], weights[old]), new)
            self.assertRegex(finished.stdout, rf"(?m)^{re.escape(new)} +{re.escape(old)} ")
        self.assertRegex(finished.stdout, r"head\.weight .* shares memory with embed\.weight, copied")
        self.assertRegex(finished.stdout, r"loss\.scale +left out: dropped by --drop")
        self.assertIn("6 tensors", finished.stdout)
        ours = only_json(self, run(PEER, "contents", self.path("out")))
        self.assertEqual(ours["encoder.layer.0.t"], ["F32", [4, 3], raw_bytes(weights["model.blocks.0.t"]).hex()])
        self.assertIn("exists already", self.convert(self.path("last.ckpt"), "-o", self.path("out")).stderr)

    def test_tied_weights_can_be_dropped(self):
        self.lightning()
        finished = self.convert(self.path("last.ckpt"), "-o", self.path("a.safetensors"), "--shared", "drop")
        self.assertEqual(finished.returncode, 0, finished.stderr)
        read = load_file(self.path("a.safetensors"))
        self.assertIn("model.embed.weight", read)
        self.assertNotIn("model.head.weight", read)
        self.assertIn("model.blocks.1.w", read)
        metadata = only_json(self, run(PEER, "metadata", self.path("a.safetensors")))
        self.assertEqual(metadata, {"format": "pt", "model.head.weight": "model.embed.weight"})

    def test_a_plain_state_dict_in_parts_and_an_old_pickle(self):
        torch.save({"a": torch.ones(2), "version": 3}, self.path("1.bin"))
        torch.save({"b": torch.zeros(3)}, self.path("2.bin"), _use_new_zipfile_serialization=False)
        finished = self.convert(self.path("1.bin"), self.path("2.bin"), "-o", self.path("out"))
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertEqual({n: t.tolist() for n, t in load_file(self.path("out/model.safetensors")).items()},
                         {"a": [1, 1], "b": [0, 0, 0]})
        self.assertRegex(finished.stdout, r"version +left out: a int, not a tensor")

    def test_what_would_run_code_is_refused_unless_trusted(self):
        self.lightning(callbacks=NotATensor())
        finished = self.convert(self.path("last.ckpt"), "-o", self.path("out"))
        self.assertEqual(finished.returncode, 1)
        self.assertIn("holds more than tensors", finished.stderr)
        self.assertIn("--trust", finished.stderr)
        self.assertFalse(os.path.exists(self.path("out")))
        trusted = self.convert(self.path("last.ckpt"), "-o", self.path("out"), "--trust")
        self.assertEqual(trusted.returncode, 0, trusted.stderr)

    def test_mistakes_are_told(self):
        self.lightning()
        def refusal(*words):
            finished = self.convert(self.path("last.ckpt"), "-o", self.path("out"), *words)
            self.assertEqual((finished.returncode, os.path.exists(self.path("out"))), (1, False), finished.stdout)
            return finished.stderr
        self.assertIn("both become embed", refusal("--rename", r".*(embed|head).*=embed"))
        self.assertIn("no 'ema' of --key ema; there is epoch, ", refusal("--key", "ema"))
        self.assertIn("no state dict found in lr", refusal("--key", "hyper_parameters"))
        self.assertIn("expected OLD=NEW", refusal("--rename", "abc"))
        self.assertIn("nothing is left", refusal("--drop", "."))


if __name__ == "__main__":
    unittest.main()
