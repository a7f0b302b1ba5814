#!/usr/bin/env python3
"""Generated text: the tokens that transformers has, alone, side by side, in chunks and on any mesh; sampled answers that a mesh does not change;
a cache that is too small; texts, files of prompts, and what is refused.

    test_generate.py --all [--models 10] [--prompts 200]     every family in every way, and float32 with its ties counted"""
import argparse
import contextlib
import json
import os
import pty
import subprocess
import sys
import tempfile
import unittest

import torch
import transformers

from generation_models import DECODERS, greedy_answers, random_decoder, random_prompts
from program import BUILD, ORTHANT, FolderTest, clean_environment, only_json, orthant, run
from serving import make_model
from test_hugging_face import Folder, randomize

EXACT = ("--dtype", "float64", "--temperature", 0)
LONGEST = 20  # tokens of an answer
# Each by another way of scheduling, cutting or keeping.
WAYS = {"side by side": (), "alone": ("--max-batch", 1), "in chunks": ("--prefill-chunk", 5), "tp=2": ("--mesh", "tp=2"), "pp=2": ("--mesh", "pp=2"),
        "tp=2,pp=2": ("--mesh", "tp=2,pp=2"), "dp=2": ("--mesh", "dp=2"), "preempted": ("--cache-tokens", 176, "--prefill-chunk", 11)}


# Experts over replicas, over ranks that share the layers, over both, and over stages.
EXPERT_MESHES = ("dp=2,ep=2", "tp=2,ep=2", "dp=2,tp=2,ep=2", "pp=2,dp=2,ep=2")


def write_prompts(path, prompts):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"token_ids": prompt}) + "\n" for prompt in prompts)
    return path


def generate(*words, **options):
    return orthant("generate", *words, "--json", **options)


class Generation(Folder):
    def answers(self, folder, prompts, *words):
        model = ("--model", folder) if folder else ()
        facts = only_json(self, generate(*model, "--prompts", write_prompts(self.path("prompts.jsonl"), prompts), *words, timeout=600))
        self.assertEqual(facts["errors"], [])
        return [output["token_ids"] for output in facts["outputs"]], facts

    def decoder(self, family="llama", seed=0):
        return self.saved(random_decoder(family, seed).double(), f"{family}{seed}")


class Greedy(Generation):
    def test_every_family_answers_as_transformers_does(self):
        for seed, family in enumerate(DECODERS):
            model = random_decoder(family, seed).double()
            folder = self.saved(model, family)
            prompts = random_prompts(model.config.vocab_size, 6, seed)
            expected, _ = greedy_answers(model, prompts)
            for way in ("in chunks", "tp=2,pp=2"):
                found, _ = self.answers(folder, [prompt for prompt, _ in prompts], *EXACT, "--max-tokens", LONGEST, *WAYS[way])
                self.assertEqual([answer[:len(tokens)] for answer, tokens in zip(found, expected)], expected, (family, way))

    def test_every_way_to_schedule_answers_alike(self):
        folder = self.decoder()
        prompts = [prompt for prompt, _ in random_prompts(60, 12, 1)]
        expected, _ = self.answers(folder, prompts, *EXACT, "--max-tokens", LONGEST)
        for way, words in WAYS.items():
            found, facts = self.answers(folder, prompts, *EXACT, "--max-tokens", LONGEST, *words)
            self.assertEqual(found, expected, way)
            self.assertEqual(facts["preempted"] > 0, way == "preempted", way)

    def test_experts_on_ranks_of_their_own_change_no_answer(self):
        for family in ("mixtral", "qwen2_moe"):
            configs = ((seed, random_decoder(family, seed).config) for seed in range(50))
            seed = next(seed for seed, config in configs if getattr(config, "num_local_experts", getattr(config, "num_experts", 1)) >= 2)
            folder = self.decoder(family, seed)
            prompts = [prompt for prompt, _ in random_prompts(60, 5, seed)]
            expected, _ = self.answers(folder, prompts, *EXACT, "--max-tokens", LONGEST)
            for mesh in EXPERT_MESHES:
                found, _ = self.answers(folder, prompts, *EXACT, "--max-tokens", LONGEST, "--prefill-chunk", 9, "--mesh", mesh)
                self.assertEqual(found, expected, (family, mesh))
            alone, _ = self.answers(folder, prompts[:1], *EXACT, "--max-tokens", LONGEST, "--mesh", "dp=2,ep=2")  # a replica without a text
            self.assertEqual(alone, expected[:1], family)

    def test_a_cache_for_a_quarter_of_the_load_changes_no_answer(self):
        folder = self.decoder("mistral", 3)
        prompts = [prompt for prompt, _ in random_prompts(60, 16, 2)]
        expected, roomy = self.answers(folder, prompts, *EXACT, "--max-tokens", LONGEST)
        load = sum(len(prompt) + LONGEST for prompt in prompts)
        found, facts = self.answers(folder, prompts, *EXACT, "--max-tokens", LONGEST, "--cache-tokens", load // 4)
        self.assertEqual(found, expected)
        self.assertEqual(roomy["preempted"], 0)
        self.assertLessEqual(facts["cache_tokens"], load // 4 + 16)

    def test_a_checkpoint_of_shards_answers_as_its_export(self):
        config = {"name": "small", "seed": 3, "data": {"kind": "tokens", "sequence_length": 16, "samples": 64},
                  "model": {"kind": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                            "intermediate_size": 48, "vocab_size": 67, "max_position_embeddings": 64},
                  "train": {"global_batch_size": 8, "steps": 3}, "optimizer": {"kind": "adamw", "lr": 0.01},
                  "precision": {"params": "float64", "compute": "float64", "reduce": "float64"}}
        with open(self.path("config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        run = self.path("run")
        trained = orthant("train", "--config", self.path("config.json"), "--mesh", "fsdp=2", "--output_dir", run)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        checkpoint = os.path.join(run, "checkpoints", "step-3")
        exported = orthant("checkpoint", "export", checkpoint, "--format", "huggingface", self.path("out"))
        self.assertEqual(exported.returncode, 0, exported.stderr)
        model = transformers.AutoModelForCausalLM.from_pretrained(self.path("out"), dtype=torch.float64)
        prompts = random_prompts(67, 5, 3)
        expected, _ = greedy_answers(model, prompts)
        for mesh in ("dp=1", "tp=2"):
            found, _ = self.answers(checkpoint, [prompt for prompt, _ in prompts], *EXACT, "--max-tokens", LONGEST, "--mesh", mesh)
            self.assertEqual([answer[:len(tokens)] for answer, tokens in zip(found, expected)], expected, mesh)
        named, _ = self.answers(os.path.join(run, "checkpoints", "latest"), [prompt for prompt, _ in prompts], *EXACT, "--max-tokens", LONGEST)
        self.assertEqual(named, found)
        self.assertIn(f"fix: use {checkpoint}", generate("--model", run, "--prompt", "a").stderr)


class Sampled(Generation):
    def test_answers_depend_on_seed_and_options_not_on_the_mesh(self):
        folder = self.decoder("qwen3", 1)
        prompts = [prompt for prompt, _ in random_prompts(60, 6, 4)]
        drawn = ("--dtype", "float64", "--max-tokens", 12, "--temperature", 0.9, "--top-p", 0.9, "--top-k", 20, "--min-p", 0.01,
                 "--repetition-penalty", 1.2)
        expected, _ = self.answers(folder, prompts, *drawn, "--seed", 5)
        for way in ("alone", "in chunks", "tp=2", "pp=2"):
            found, _ = self.answers(folder, prompts, *drawn, "--seed", 5, *WAYS[way])
            self.assertEqual(found, expected, way)
        other, _ = self.answers(folder, prompts, *drawn, "--seed", 6)
        self.assertNotEqual(other, expected)
        several, _ = self.answers(folder, prompts, *drawn, "--seed", 5, "--n", 2)
        self.assertEqual(several[::2], expected)
        self.assertEqual(several[1::2], other)

    def test_log_probabilities_are_those_of_transformers(self):
        model = random_decoder("gpt2", 2).double()
        folder = self.saved(model, "gpt2")
        prompt = list(range(1, 9))
        _, facts = self.answers(folder, [prompt], *EXACT, "--max-tokens", 3, "--logprobs", 4)
        output = facts["outputs"][0]
        for i, told in enumerate(output["logprobs"]):
            with torch.no_grad():
                logits = model(torch.tensor([prompt + output["token_ids"][:i]])).logits[0, -1]
            expected = torch.log_softmax(logits, -1).topk(4)
            self.assertEqual(told["token_id"], int(expected.indices[0]))
            for one, value, token in zip(told["most_probable"], expected.values, expected.indices):
                self.assertEqual(one["token_id"], int(token))
                self.assertAlmostEqual(one["logprob"], float(value), places=5)


class Texts(Generation):
    def setUp(self):
        super().setUp()
        import tokenizers
        tokenizer = tokenizers.ByteLevelBPETokenizer()
        tokenizer.train_from_iterator(["what may follow a word of a text is a word again"] * 4, vocab_size=280, min_frequency=1)
        sizes = dict(vocab_size=280, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                     max_position_embeddings=64)
        model = randomize(transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)), 5)
        self.model = self.saved(model)
        tokenizer.save(os.path.join(self.model, "tokenizer.json"))
        self.tokenizer = tokenizer

    def ask(self, *words):
        return only_json(self, generate("--model", self.model, "--temperature", 0, *words))["outputs"]

    def test_a_prompt_is_gone_on_with(self):
        output = self.ask("--prompt", "a word", "--max-tokens", 8)[0]
        self.assertEqual(output["prompt"], "a word")
        self.assertEqual(output["finish_reason"], "length")
        self.assertEqual(len(output["token_ids"]), 8)
        self.assertEqual(output["text"], self.tokenizer.decode(output["token_ids"]))
        plain = orthant("generate", "--model", self.model, "--temperature", 0, "--prompt", "a word", "--max-tokens", 8)
        self.assertEqual(plain.stdout, output["text"] + "\n")

    def test_a_program_of_a_users_own_has_the_same_answers(self):
        example = os.path.join(BUILD, "tests", "examples", "generate")
        prompts = ("a word", "text of", "what")
        expected = [prompt + self.ask("--prompt", prompt, "--max-tokens", 16)[0]["text"] for prompt in prompts]
        for launched, mesh in (((), "dp=1"), ((ORTHANT, "launch", "--nproc", 2, "--"), "tp=2"), ((ORTHANT, "launch", "--nproc", 2, "--"), "dp=2")):
            finished = run(*launched, example, self.model, mesh, *prompts)
            self.assertEqual(finished.returncode, 0, finished.stderr)
            self.assertEqual(finished.stdout.replace("[rank 0] ", ""), "".join(text + "\n" for text in expected), mesh)
        refused = run(example, self.model, "tp=2", "a")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("mesh tp=2 in a program of one rank", refused.stderr)

    def test_answers_end_at_texts_and_at_end_tokens(self):
        ids = self.ask("--prompt", "text", "--max-tokens", 16)[0]["token_ids"]
        whole = self.tokenizer.decode(ids)
        stop = whole[len(whole) // 2:len(whole) // 2 + 3]
        output = self.ask("--prompt", "text", "--max-tokens", 16, "--stop", stop, "--stop", "never said")[0]
        self.assertEqual((output["text"], output["finish_reason"]), (whole[:whole.index(stop)], "stop"))
        end = next(token for token in ids if token != ids[0])
        with open(os.path.join(self.model, "generation_config.json"), "w", encoding="utf-8") as file:
            json.dump({"eos_token_id": [end, 279]}, file)
        output = self.ask("--prompt", "text", "--max-tokens", 16)[0]
        self.assertEqual((output["token_ids"], output["finish_reason"]), (ids[:ids.index(end)], "stop"))

    def test_bad_lines_are_told_by_number_and_the_others_answered(self):
        lines = ['"a word"', "{", '{"prompt": 3}', "", '{"prompt": "text", "max_tokens": 1, "id": "mine"}', json.dumps({"token_ids": [1, 280]}),
                 json.dumps({"token_ids": []}), json.dumps({"token_ids": [1] * 64}), '{"other": 1}', '{"prompt": "a", "max_tokens": 0}',
                 '{"prompt": "a", "temperature": 1}', '{"token_ids": [1, 18446744073709551615]}']
        path = self.path("prompts.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines))
        finished = generate("--model", self.model, "--prompts", path, "--temperature", 0, "--max-tokens", 2, "--cache-tokens", 64)
        self.assertEqual(finished.returncode, 4, finished.stderr)
        facts = json.loads(finished.stdout)
        self.assertEqual([(output["line"], len(output["token_ids"])) for output in facts["outputs"]], [(1, 2), (5, 1)])
        self.assertEqual(facts["generated_tokens"], 3)
        self.assertEqual([(bad["line"], bad["error"]) for bad in facts["errors"]], [
            (2, "it is no JSON"), (3, "its prompt is no text"), (6, "the prompt has token 280; the model's tokens are 0 to 279"),
            (7, "a prompt without tokens: there is nothing to go on from"),
            (8, "a prompt of 64 tokens leaves no room for an answer: prompt and answer together have at most 64"),
            (9, "it has neither prompt nor token_ids"), (10, "its max_tokens is 0"),
            (11, "it has temperature, which the command line has for all prompts"), (12, "its token_ids hold 18446744073709551615")])
        self.assertIn(f"{path} line 3: its prompt is no text", finished.stderr)


class Terminals(FolderTest):
    def shown(self, *words):
        """The process, and the terminal that it writes to."""
        ours, its = pty.openpty()
        self.addCleanup(os.close, ours)
        process = subprocess.Popen([ORTHANT, "generate", "--model", self.model, "--temperature", "0", *words], stdout=its, stderr=subprocess.DEVNULL,
                                   stdin=subprocess.DEVNULL, env=clean_environment())
        os.close(its)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, ours

    def test_text_comes_as_it_is_made_and_cannot_move_the_cursor(self):
        self.model = make_model(self.path("tiny"))
        whole = only_json(self, generate("--model", self.model, "--temperature", 0, "--prompt", "a word", "--max-tokens", 40))["outputs"][0]["text"]
        unsafe = [letter for letter in whole if ord(letter) < 32 and letter != "\n"]
        self.assertTrue(unsafe)
        for mesh in ("dp=1", "tp=2"):
            process, terminal = self.shown("--prompt", "a word", "--max-tokens", "40", "--mesh", mesh)
            shown = b""
            with contextlib.suppress(OSError):  # it has ended
                while part := os.read(terminal, 4096):
                    shown += part
            self.assertFalse(set(shown) & {ord(letter) for letter in unsafe} - {ord("\r")}, (mesh, shown))
            self.assertIn(f"\\x{ord(unsafe[0]):02x}".encode(), shown, mesh)
            self.assertEqual(process.wait(), 0)
            process, terminal = self.shown("--prompt", "a word", "--max-tokens", "60000", "--mesh", mesh)
            os.read(terminal, 1)
            process.terminate()  # long before the answer is whole
            self.assertNotEqual(process.wait(), 0, mesh)


class Refusals(Generation):
    def refused(self, *words, code=2):
        finished = orthant("generate", *words)
        self.assertEqual(finished.returncode, code, finished.stderr)
        self.assertEqual(finished.stdout, "")
        return finished.stderr

    def test_axes_without_a_generation(self):
        folder = self.decoder()
        for axis, reason, fix in (("fsdp", "weights that lie in shards would be gathered again for every token", "use tp or pp to cut the model"),
                                  ("cp", "the next token of a sequence has one position, which cannot be cut", "use tp to share attention")):
            text = self.refused("--model", folder, "--prompt", "a", "--mesh", f"{axis}=2")
            self.assertIn(f"a generation has no {axis} axis: {reason}", text)
            self.assertIn(fix, text)

    def test_experts_that_are_not_there(self):
        folder = self.decoder()
        self.assertIn("mesh dp=2,ep=2: the model has no experts for ep", self.refused("--model", folder, "--prompt", "a", "--mesh", "dp=2,ep=2"))

    def test_what_cannot_be_asked(self):
        folder = self.decoder()
        for words, reason in ((("--prompt", "a", "--temperature", -1), "temperature is -1"), (("--prompt", "a", "--top-k", -1), "--top-k is -1"),
                              (("--prompt", "a", "--n", 0), "--n is 0"), (("--prompt", "a", "--n", 5000), "use 1 to 4096"),
                              (("--prompt", "a", "--logprobs", 1), "--logprobs without --json: a text has no place for them"), (("--prompt", "a", "--stop", ""), "--stop is empty"),
                              (("--prompt", "a", "--max-batch", 0), "--max-batch is 0"), ((), "neither --prompt nor --prompts is given"),
                              (("--prompt", "a", "--mesh", "pp=64"), "set pp to at most"), (("--prompt", "a", "--dry-run"), "has nothing to show")):
            self.assertIn(reason, self.refused("--model", folder, *words))
        self.assertIn("no tokenizer lies there", self.refused("--model", folder, "--prompt", "a", code=4))
        self.assertIn("No such file", self.refused("--model", folder, "--prompts", self.path("none.jsonl"), code=4))
        self.assertIn("it is a folder", self.refused("--model", folder, "--prompts", self.folder, code=4))
        prompts = write_prompts(self.path("prompts.jsonl"), [[1]])
        self.assertRegex(self.refused("--model", folder, "--prompts", prompts, "--cache-tokens", 10 ** 15),
                         "a cache of 1000000000000000 tokens takes .* each, and .* are free\n.*give the cache at most")

    def test_a_model_without_a_next_token(self):
        config = transformers.BertConfig(vocab_size=97, hidden_size=42, num_hidden_layers=1, num_attention_heads=6, intermediate_size=67)
        folder = self.saved(transformers.BertModel(config), "bert")
        self.assertIn("a model of kind bert does not generate text: it learns no next token", self.refused("--model", folder, "--prompt", "a"))


def count_ties(expected, found):
    """Answers that are another from some token on."""
    return sum(answer[:len(tokens)] != tokens for answer, tokens in zip(found, expected))


class Campaign(Generation):
    """Every family, `--models` of each with `--prompts`, in every way; not a test of make test."""
    models, prompts, families = 10, 200, DECODERS

    def sharded(self, folder):
        """A checkpoint that two fsdp ranks wrote, of the same weights: a step that changes none."""
        config = {"name": "shards", "model": {"path": folder}, "data": {"kind": "tokens", "sequence_length": 8, "samples": 16},
                  "train": {"global_batch_size": 8, "steps": 1}, "optimizer": {"kind": "sgd", "lr": 0, "weight_decay": 0},
                  "precision": {"params": "float64", "compute": "float64", "reduce": "float64"}}
        with open(self.path("config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        run = tempfile.mkdtemp(dir=self.folder)
        trained = orthant("train", "--config", self.path("config.json"), "--mesh", "fsdp=2", "--output_dir", os.path.join(run, "run"),
                          timeout=600)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        return os.path.join(run, "run", "checkpoints", "step-1")

    def runTest(self):
        for family in self.families:
            tried, wrong, ties = 0, [], 0
            for seed in range(self.models):
                model = random_decoder(family, seed).double()
                folder = self.saved(model, f"{family}{seed}")
                prompts = random_prompts(model.config.vocab_size, self.prompts, seed)
                expected, lead = greedy_answers(model, prompts)
                given = [prompt for prompt, _ in prompts]
                shards = {"from shards": ("--model", self.sharded(folder), "--mesh", "tp=2")}
                for way, words in {**WAYS, **shards}.items():
                    found, _ = self.answers(None if way in shards else folder, given, *EXACT, "--max-tokens", LONGEST, *words)
                    tried += len(found)
                    if count_ties(expected, found):
                        wrong.append((seed, way, count_ties(expected, found), lead))
                single, _ = self.answers(folder, given, "--temperature", 0, "--max-tokens", LONGEST)
                ties += count_ties(expected, single)
            print(f"{family}: {tried} answers in float64, other than transformers': {wrong or 'none'}; in float32 "
                  f"{ties} of {self.models * self.prompts}", flush=True)
            self.assertEqual(wrong, [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--models", type=int, default=10)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--families", default=",".join(DECODERS))
    given = parser.parse_args()
    if not given.all:
        unittest.main(argv=sys.argv[:1])
    Campaign.models, Campaign.prompts, Campaign.families = given.models, given.prompts, given.families.split(",")
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(Campaign()).wasSuccessful())
