"""Checkpoints with tags of a key: whole ones that somebody else wrote or rearranged are refused by name."""
import json
import os
import re
import shutil
import unittest

from io_error_campaign import CONFIG, xxh64
from program import FolderTest, only_json, orthant


def sealed_anew(text):
    body = re.sub(r',\n "xxh64": "[0-9a-f]{16}"\n}\n$', "", text)
    return f'{body},\n "xxh64": "{xxh64(body.encode())}"\n}}\n'


class Authenticity(FolderTest):
    def setUp(self):
        super().setUp()
        self.key, self.run_dir = self.path("key"), self.path("run")
        with open(self.path("config.json"), "w") as f:
            json.dump(CONFIG, f)
        for name in ("key", "other"):
            with open(os.open(self.path(name), os.O_WRONLY | os.O_CREAT, 0o600), "wb") as f:
                f.write(name.encode() * 16)
        self.whole = only_json(self, self.train("--steps", 4))
        self.newest = os.path.join(self.run_dir, "checkpoints", "step-4")

    def train(self, *words, key="key"):
        with_key = ["--set", f"checkpoint.key_file={self.path(key)}"] if key else []
        return orthant("train", "--config", self.path("config.json"), "--output-dir", self.run_dir, "--json", *with_key, *words)

    def verify(self, *words):
        return orthant("checkpoint", "verify", self.newest, *words)

    def edit_manifest(self, change):
        path = os.path.join(self.newest, "manifest.json")
        with open(path) as f:
            text = change(f.read())
        with open(path, "w") as f:
            f.write(sealed_anew(text))

    def cross_two_tensors(self, text):
        """Pieces of two tensors of one shape change places."""
        lines = text.split("\n")
        norms = [i for i, line in enumerate(lines) if re.match(r'  "layers\.0\.norm\d\.weight":', line)]
        self.assertEqual(len(norms), 2)
        (first, one), (second, two) = (lines[i].rstrip(",").split(": ", 1) for i in norms)
        for i, crossed in zip(norms, (f"{first}: {two}", f"{second}: {one}")):
            lines[i] = crossed + "," * lines[i].endswith(",")
        return "\n".join(lines)

    def assert_refused(self, reason, *others):
        """By verify, by a resume, and by what else was tried."""
        before = sorted(os.listdir(os.path.join(self.run_dir, "checkpoints")))
        for finished in (self.verify("--key-file", self.key), self.train("--steps", 6, "--resume", "auto"), *others):
            self.assertEqual(finished.returncode, 4, finished.stderr)
            self.assertIn(reason, finished.stderr)
        self.assertEqual(sorted(os.listdir(os.path.join(self.run_dir, "checkpoints"))), before)

    def test_the_key_proves_and_goes_on(self):
        self.assertEqual(only_json(self, self.verify("--key-file", self.key, "--json"))["authentic"], True)
        self.assertIn("valid and authentic, step 4", self.verify("--key-file", self.key).stdout)
        self.assertEqual(only_json(self, self.train("--steps", 6, "--resume", "auto", "--mesh", "fsdp=2"))["steps"], 6)
        plain = self.path("plain")
        finished = orthant("train", "--config", self.path("config.json"), "--output-dir", plain, "--json", "--steps", 4)
        self.assertEqual(only_json(self, finished)["weights_hash"], self.whole["weights_hash"])

    def test_an_imported_model_is_tagged_on_demand(self):
        out, start = self.path("out"), self.path("start")
        for words in (("export", self.newest, out, "--format", "huggingface", "--key-file", self.key), ("import", out, start, "--key-file", self.key),
                      ("verify", start, "--key-file", self.key)):
            finished = orthant("checkpoint", *words)
            self.assertEqual(finished.returncode, 0, finished.stderr)
        config = os.path.join(start, "config.json")
        with open(config) as f:
            text = f.read()
        for changed in (text.replace("1e-05", "1e-01"), text + " "):
            self.assertNotEqual(changed, text)
            with open(config, "w") as f:
                f.write(changed)
            for words in (("verify", start), ("export", start, self.path("again"), "--format", "huggingface")):
                finished = orthant("checkpoint", *words, "--key-file", self.key)
                self.assertEqual(finished.returncode, 4, finished.stderr)
                self.assertIn(f"error: {config}: ", finished.stderr)
        with open(config, "w") as f:
            f.write(text)
        with open(os.path.join(start, "vocab.txt"), "w") as f:
            f.write("[PAD]\n")
        finished = orthant("checkpoint", "export", start, self.path("again"), "--format", "huggingface", "--key-file", self.key)
        self.assertEqual(finished.returncode, 4, finished.stderr)
        self.assertIn("start/vocab.txt: is not in the manifest, so it has no tag", finished.stderr)

    def test_tags_that_nobody_checks_are_told(self):
        self.assertIn("step-4: its HMAC tags were not checked: no key was given", self.verify().stderr)
        finished = self.train("--steps", 6, "--resume", "auto", key=None)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertIn("step-4: its HMAC tags were not checked: no key was given, and new checkpoints of this run have no tags", finished.stderr)

    def test_an_empty_key_is_no_way_to_drop_the_check(self):
        for finished in (self.verify("--key-file", ""), orthant("checkpoint", "import", self.path("hf"), self.path("out"), "--key-file", ""),
                         orthant("checkpoint", "export", self.newest, self.path("out"), "--format", "huggingface", "--key-file", "")):
            self.assertEqual((finished.returncode, finished.stdout), (2, ""), finished.stderr)
            self.assertIn("--key-file is empty", finished.stderr)
        for words, reason in ((("--set", "checkpoint.key_file="), "checkpoint.key_file: is empty"),
                              (("--key-file", self.key), "--set checkpoint.key_file=FILE"),
                              (("--set", f"checkpoint.key_file={self.path('none')}"), "key file " + self.path("none") + ": there is no such file")):
            finished = self.train("--resume", "auto", *words, key=None)
            self.assertEqual((finished.returncode, finished.stdout), (2, ""), finished.stderr)
            self.assertIn(reason, finished.stderr)

    def test_two_crossed_tensors_verify_without_the_key_and_are_refused_with_it(self):
        self.edit_manifest(self.cross_two_tensors)
        self.assertEqual(self.verify().returncode, 0, self.verify().stderr)
        self.assert_refused("step-4/manifest.json: its tag is not of this key", self.train("--steps", 6, "--resume", "auto", "--mesh", "fsdp=2"),
                            self.train("--steps", 6, "--resume", self.newest),
                            orthant("checkpoint", "export", self.newest, self.path("out"), "--format", "huggingface", "--key-file", self.key))

    def test_another_key_is_refused(self):
        verified = self.verify("--key-file", self.path("other"))
        self.assertEqual(verified.returncode, 4)
        self.assertIn(f"its tag is not of this key, {self.path('other')}: either another key was given, or ", verified.stderr)
        finished = self.train("--steps", 6, "--resume", "auto", key="other")
        self.assertEqual(finished.returncode, 4, finished.stderr)
        self.assertIn("step-4/manifest.json: its tag is not of this key", finished.stderr)

    def test_a_file_without_tags_is_refused(self):
        os.remove(os.path.join(self.newest, "manifest.hmac"))
        self.assert_refused("step-4/manifest.json: has no tags, and a key was given")

    def test_a_checkpoint_of_another_step_under_this_name_is_refused(self):
        shutil.rmtree(self.newest)
        shutil.copytree(os.path.join(self.run_dir, "checkpoints", "step-2"), self.newest)
        self.edit_manifest(lambda text: text.replace('"step": 2', '"step": 4'))
        self.assert_refused("step-4/manifest.json: its tag is not of this key")

    def test_damage_is_not_forgery(self):
        with open(os.path.join(self.newest, "rank-0.safetensors"), "r+b") as f:
            f.seek(-1, os.SEEK_END)
            f.write(b"\x77")
        finished = self.train("--steps", 6, "--resume", "auto")
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertIn("step-2 at step 2", finished.stderr)

    def test_a_key_that_others_may_read_is_refused_before_a_rank_starts(self):
        os.chmod(self.key, 0o644)
        finished = self.train("--steps", 6, "--resume", "auto", "--dry-run")
        self.assertEqual(finished.returncode, 2, finished.stderr)
        finished = self.train("--steps", 6, "--resume", "auto")
        self.assertEqual(finished.returncode, 2, finished.stderr)
        self.assertIn(f"key file {self.key}: others may use it (mode 644)\n  fix: chmod 600 {self.key}", finished.stderr)


if __name__ == "__main__":
    unittest.main()
