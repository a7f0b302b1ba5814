"""What an export keeps of the Hugging Face folder that a model began with: every file and key but for what training changes."""
import filecmp
import json
import os
import shutil
import tempfile
import unittest

import torch
import transformers
from safetensors.torch import load_file

import crafted_models
from export_folders import differences, greedy_text, make_folder, read_json, write
from program import ORTHANT, only_json, orthant, python, run

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
DTYPE_KEYS = ("dtype", "torch_dtype")


def peak_bytes(*words):
    """Resident memory of the largest process of a command, at its peak. A small program starts it: a child begins with its parent's."""
    code = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); " \
           "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    done = run(python(), "-c", code, *words)
    assert done.returncode == 0, done.stderr
    return int(done.stdout) << 10


class Export(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="orthant-export-")
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def command(self, *words):
        return only_json(self, orthant(*words, "--json"))

    def import_and_export(self, folder, out, *more):
        self.command("checkpoint", "import", folder, self.path(out + "-step-0"))
        return self.export(self.path(out + "-step-0"), out, *more)

    def export(self, checkpoint, out, *more):
        self.command("checkpoint", "export", checkpoint, self.path(out), "--format", "huggingface", *more)
        return self.path(out)

    def train(self, out, steps, path, *more):
        config = {"name": "export", "model": {"path": path}, "data": {"kind": "tokens", "sequence_length": 8, "samples": 8},
                  "train": {"global_batch_size": 2, "steps": 2}}
        with open(self.path("run.json"), "w") as f:
            json.dump(config, f)
        self.command("train", "--config", self.path("run.json"), "--output-dir", self.path(out), "--steps", steps, *more)
        return self.path(out, "checkpoints", f"step-{steps}")


class RoundTrips(Export):
    def test_imported_and_trained_models_keep_what_training_does_not_change(self):
        for seed, family in enumerate(("llama", "gpt2", "bert", "qwen3", "mistral")):
            folder = make_folder(self.path(family), family, seed, bare=False, dtype="float32")
            text = greedy_text(folder)
            exported = self.import_and_export(folder, family + "-out")
            self.assertEqual(differences(folder, exported), [])
            self.assertEqual(greedy_text(exported), text)
            started = self.train(family + "-start", 0, folder)
            trained = self.train(family + "-run", 2, folder)
            os.rename(folder, self.path(family + "-away"))  # an export does not need it
            folder = self.path(family + "-away")
            exported = self.export(started, family + "-started")
            self.assertEqual(differences(folder, exported), [])
            self.assertEqual(greedy_text(exported), text)
            self.assertEqual(differences(folder, self.export(trained, family + "-trained")), [])

    def test_resumed_runs_and_runs_from_checkpoints_keep_it_too(self):
        folder = make_folder(self.path("model"), "llama", 11, dtype="float32")
        imported = self.path("imported")
        self.command("checkpoint", "import", folder, imported)
        first = self.train("first", 1, folder)
        os.rename(folder, self.path("away"))
        self.assertEqual(differences(self.path("away"), self.export(self.train("a", 1, imported), "a-out")), [])
        for out, resume in (("b", imported), ("c", first), ("first", "auto")):
            self.command("train", "--config", self.path("first", "config.json"), "--output-dir", self.path(out), "--resume", resume)
            exported = self.export(self.path(out, "checkpoints", "step-2"), out + "-out")
            self.assertEqual(differences(self.path("away"), exported), [], out)

    def test_one_tokenizer_file_of_the_folder_stands_for_all(self):
        folder = make_folder(self.path("model"), "gpt2", 5, bare=False, dtype="float32")
        write(self.folder, "text.txt", "w01 w02 w03 w04 w05 w06 w07 w08 w09\n" * 20)
        text = ["--set", "data.kind=text", "--set", f"data.path={self.path('text.txt')}"]
        for number, tokenizer in enumerate((folder, os.path.join(folder, "tokenizer.json"))):
            checkpoint = self.train(f"run-{number}", 1, folder, *text, "--set", f"data.tokenizer={tokenizer}")
            self.assertEqual(differences(folder, self.export(checkpoint, f"out-{number}")), [])
        # Byte-level BPE of vocab.json and merges.txt is whole by either name.
        os.mkdir(self.path("two"))
        crafted_models.make_gpt2_files(self.path("two"))
        for name in ("vocab.json", "merges.txt"):
            config = {"name": "two", "model": {"preset": "gpt2-tiny", "vocab_size": 261}, "data": {"kind": "text", "path": self.path("text.txt"), "sequence_length": 8,
                                                                             "tokenizer": self.path("two", name)},
                      "train": {"global_batch_size": 2, "steps": 1}}
            write(self.folder, "two.json", json.dumps(config))
            self.command("train", "--config", self.path("two.json"), "--output-dir", self.path("two-" + name))
            exported = self.export(self.path("two-" + name, "checkpoints", "step-1"), "out-" + name)
            for file in ("vocab.json", "merges.txt", "added_tokens.json"):
                self.assertTrue(filecmp.cmp(os.path.join(exported, file), self.path("two", file), shallow=False), file)
            self.assertFalse({"tokenizer.json", "vocab.txt"} & set(os.listdir(exported)))
        # A tokenizer from elsewhere comes without the templates and settings of the folder.
        os.mkdir(self.path("own"))
        shutil.copy(os.path.join(folder, "tokenizer.json"), self.path("own"))
        checkpoint = self.train("run", 1, folder, *text, "--set", f"data.tokenizer={self.path('own')}")
        self.assertEqual(sorted(os.listdir(self.export(checkpoint, "out"))),
                         sorted({"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}))


class Changes(Export):
    def test_dtype_is_changed_under_the_name_it_has(self):
        folder = make_folder(self.path("model"), "llama", 3, bare=False, dtype="bfloat16")
        config = read_json(folder, "config.json")
        for key in DTYPE_KEYS:
            config.pop(key, None)
        for key in DTYPE_KEYS:
            write(folder, "config.json", {**config, key: "bfloat16"})
            exported = self.import_and_export(folder, key + "-out", "--dtype", "float16")
            self.assertEqual(differences(folder, exported, [key]), [])
            self.assertEqual(read_json(exported, "config.json")[key], "float16")
        self.command("checkpoint", "import", folder, self.path("wide"), "--dtype", "float32")
        self.assertEqual(read_json(self.export(self.path("wide"), "wide-out"), "config.json")["torch_dtype"], "float32")
        exported = self.export(self.train("run", 1, folder), "run-out")
        self.assertEqual(differences(folder, exported, ["torch_dtype"]), [])
        self.assertEqual(read_json(exported, "config.json")["torch_dtype"], "float32")
        write(self.folder, "other.json", {**config, "dtype": "bfloat16", "eos_token_id": 33})
        exported = self.export(self.path("wide"), "other-out", "--config", self.path("other.json"))
        self.assertEqual(read_json(exported, "config.json"), {**config, "dtype": "float32", "eos_token_id": 33})
        write(folder, "config.json", config)
        self.assertEqual(differences(folder, self.import_and_export(folder, "none", "--dtype", "float16")), [])

    def test_keys_that_the_run_sets_and_the_head_that_it_trains_are_changed(self):
        llama = make_folder(self.path("llama"), "llama", 4, bare=False, dtype="float32")
        checkpoint = self.train("run", 1, llama, "--set", "model.attention_dropout=0.25", "--set", "model.rope_theta=500")
        exported = self.export(checkpoint, "out")
        changed = ["attention_dropout", "rope_theta", "rope_scaling", "rope_parameters"]
        self.assertEqual(differences(llama, exported, changed), [])
        config = read_json(exported, "config.json")
        self.assertEqual((config["attention_dropout"], config["rope_theta"], config["rope_parameters"]["rope_theta"]), (0.25, 500, 500))
        camembert = make_folder(self.path("camembert"), "camembert", 5, bare=True, dtype="float32")
        self.assertEqual(differences(camembert, self.import_and_export(camembert, "bare")), [])
        exported = self.export(self.train("masked", 1, camembert), "masked-out")
        self.assertEqual(differences(camembert, exported, ["architectures"]), [])
        self.assertEqual(read_json(exported, "config.json")["architectures"], ["CamembertForMaskedLM"])


class Shards(Export):
    def test_shards_of_many_ranks_are_what_one_file_holds(self):
        for seed, (family, mesh) in enumerate((("llama", "fsdp=2"), ("gpt2", "tp=2"), ("bert", "pp=2"))):
            folder = make_folder(self.path(family), family, seed, bare=False, dtype="float32")
            checkpoint = self.train(family + "-run", 1, folder, "--mesh", mesh)
            single = load_file(os.path.join(self.export(checkpoint, family + "-single"), "model.safetensors"))
            size = max(tensor.nbytes for tensor in single.values())
            out = self.path(family + "-shards")
            result = self.command("checkpoint", "export", checkpoint, out, "--format", "huggingface", "--max-shard-size", f"{size}B",
                                  "--mesh", "dp=2")
            self.assertEqual(sum(result["bytes_per_rank"]), result["bytes"])
            self.assertGreater(min(result["bytes_per_rank"]), 0)
            index = read_json(out, "model.safetensors.index.json")
            names = sorted(set(index["weight_map"].values()))
            self.assertEqual(names, [f"model-{i + 1:05}-of-{len(names):05}.safetensors" for i in range(len(names))])
            self.assertEqual(index["metadata"]["total_size"], result["bytes"])
            found = {}
            for name in names:
                shard = load_file(os.path.join(out, name))
                self.assertLessEqual(sum(tensor.nbytes for tensor in shard.values()), size)
                self.assertEqual({tensor: name for tensor in shard}, {t: f for t, f in index["weight_map"].items() if f == name})
                found.update(shard)
            self.assertEqual(sorted(found), sorted(single))
            for name, tensor in single.items():
                self.assertTrue(torch.equal(found[name], tensor), name)
            self.assertEqual(greedy_text(out), greedy_text(self.path(family + "-single")))

    def test_tied_words_are_written_once_and_tied_again(self):
        config = transformers.LlamaConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
                                          vocab_size=70, tie_word_embeddings=True)
        model = transformers.LlamaForCausalLM(config)
        model.save_pretrained(self.path("tied"))
        self.command("checkpoint", "import", self.path("tied"), self.path("step-0"))
        self.command("checkpoint", "export", self.path("step-0"), self.path("out"), "--format", "huggingface", "--max-shard-size", "9KB",
                     "--mesh", "dp=3")
        self.assertNotIn("lm_head.weight", read_json(self.path("out"), "model.safetensors.index.json")["weight_map"])
        loaded = transformers.LlamaForCausalLM.from_pretrained(self.path("out"))
        ids = torch.arange(12).reshape(2, 6)
        with torch.no_grad():
            self.assertTrue(torch.equal(loaded(ids).logits, model.eval()(ids).logits))

    def test_the_program_does_not_grow_with_the_model(self):
        config = transformers.LlamaConfig(hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048, vocab_size=20000)
        transformers.LlamaForCausalLM(config).save_pretrained(self.path("model"))
        self.command("checkpoint", "import", self.path("model"), self.path("step-0"))
        size = os.path.getsize(self.path("model", "model.safetensors"))
        self.assertGreater(size, 170 << 20)
        bare = peak_bytes(ORTHANT, "--version")
        for number, words in enumerate((("--mesh", "dp=1"), ("--mesh", "dp=2"), ("--dtype", "bfloat16"))):
            peak = peak_bytes(ORTHANT, "checkpoint", "export", self.path("step-0"), self.path(f"out-{number}"), "--format", "huggingface",
                              "--max-shard-size", "8MB", *words)
            self.assertLess(peak - bare, 48 << 20, words)

    def test_what_cannot_be_written_leaves_nothing(self):
        folder = make_folder(self.path("model"), "gpt2", 2, dtype="float32")
        checkpoint = self.train("run", 1, folder)
        os.mkdir(self.path("taken"))
        words = ("checkpoint", "export", checkpoint, "--format", "huggingface", "--mesh", "dp=2")
        for code, text, out, more in ((4, "exists already and is not replaced", "taken", ()),
                                      (2, "--max-shard-size 0B: must be at least 1 byte", "out", ("--max-shard-size", "0B")),
                                      (2, "--backend fake moves nothing between ranks", "out", ("--backend", "fake")),
                                      (4, "mkdir failed", "none/out", ())):
            done = orthant(*words, self.path(out), *more)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertEqual(done.stderr.count(text), 1, done.stderr)
        self.assertEqual([name for name in os.listdir(self.folder) if "partial" in name or name == "out"], [])


class Refusals(Export):
    def refused(self, finished, *texts):
        self.assertEqual(finished.returncode, 4, finished.stderr)
        for text in texts:
            self.assertIn(text, finished.stderr)

    def test_damaged_files_of_checkpoints(self):
        step = self.train("run", 1, make_folder(self.path("model"), "gpt2", 7, dtype="float32"))
        write(step, "generation_config.json", "{}")
        text = "generation_config.json: 2 bytes, the manifest promises"
        self.refused(orthant("checkpoint", "verify", step), text)
        self.refused(orthant("checkpoint", "export", step, self.path("out"), "--format", "huggingface"), text)
        self.assertFalse(os.path.exists(self.path("out")))

    def test_files_of_folders(self):
        folder = make_folder(self.path("model"), "gpt2", 7, dtype="float32")
        self.train("run", 1, folder)
        file = os.path.join(folder, "generation_config.json")
        os.rename(file, self.path("elsewhere.json"))
        with open(file, "w") as f:
            f.truncate((16 << 20) + 1)
        self.folder_refused(folder, "generation_config.json: it has 16 MiB, and such a file has at most 16 MiB")
        os.remove(file)
        os.mkfifo(file)
        self.folder_refused(folder, "generation_config.json: it is a named pipe, not a regular file")
        os.remove(file)
        os.symlink(self.path("elsewhere.json"), file)
        self.folder_refused(folder, "generation_config.json: it is a link that leads out of its folder, to ", "elsewhere.json",
                            "fix: put the file itself there, or remove the link")

    def folder_refused(self, folder, *texts):
        self.refused(orthant("checkpoint", "import", folder, self.path("step-0")), *texts)
        self.refused(orthant("train", "--config", self.path("run.json"), "--output-dir", self.path("again")), *texts)
        for name in ("step-0", "again"):
            self.assertFalse(os.path.exists(self.path(name)), name)

    def test_links_of_the_librarys_cache_are_followed(self):
        snapshot = self.path("models--x", "snapshots", "abc")
        os.makedirs(self.path("models--x", "blobs"))
        make_folder(snapshot, "llama", 8, dtype="float32")
        for number, name in enumerate(sorted(os.listdir(snapshot))):
            os.rename(os.path.join(snapshot, name), self.path("models--x", "blobs", str(number)))
            os.symlink(f"../../blobs/{number}", os.path.join(snapshot, name))
        self.assertEqual(differences(snapshot, self.import_and_export(snapshot, "out")), [])


if __name__ == "__main__":
    unittest.main()
