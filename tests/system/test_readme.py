"""The two stories of the README, line by line as they stand there: a fine-tuned model used in transformers, and a table to scored rows."""
import csv
import os
import random
import re
import subprocess
import sys

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from program import ORTHANT, SOURCE, FolderTest, clean_environment

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
WORDS = "the a ship sails over seven seas and comes home again with salt tea silk quick slow old dark bright".split()


def blocks():
    """The code blocks of the section, each a list of lines."""
    with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as f:
        section = f.read().split("## Your model, your text, your table")[1].split("\n## ")[0]
    return [block.strip().splitlines() for block in re.findall(r"```\n(.*?)```", section, re.S)]


class Stories(FolderTest):
    def setUp(self):
        super().setUp()
        os.makedirs(self.path("build", "bin"))
        os.symlink(os.path.realpath(ORTHANT), self.path("build", "bin", "orthant"))
        self.random = random.Random(3)

    def sentence(self, words, low, high):
        return " ".join(self.random.choice(words) for _ in range(self.random.randint(low, high)))

    def follow(self, lines):
        """What each line printed; all must succeed."""
        environment = clean_environment(PATH=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"], HF_HUB_OFFLINE="1")
        printed = []
        for line in lines:
            done = subprocess.run(["bash", "-c", line], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, line + "\n" + done.stderr)
            printed.append(done.stdout)
        return printed

    def make_llama(self, texts):
        bpe = Tokenizer(models.BPE())
        bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        bpe.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=320, special_tokens=["<s>", "</s>"], show_progress=False,
                                                           initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        bpe.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 0)])
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<s>", eos_token="</s>", pad_token="</s>")
        torch.manual_seed(0)
        config = transformers.LlamaConfig(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
                                          num_key_value_heads=2, max_position_embeddings=64, bos_token_id=0, eos_token_id=1, pad_token_id=1)
        transformers.LlamaForCausalLM(config).save_pretrained(self.path("my-llama"))
        tokenizer.save_pretrained(self.path("my-llama"))

    def test_a_fine_tuned_model_is_used_in_transformers(self):
        texts = [self.sentence(WORDS, 4, 20) for _ in range(200)]
        with open(self.path("notes.txt"), "w") as f:
            f.write("\n\n".join(texts) + "\n")
        self.make_llama(texts)
        printed = self.follow(blocks()[0])
        self.assertIn("documents  200\n", printed[0])
        self.assertRegex(printed[2], r"on the part it held out: [0-9]+ samples")
        self.assertTrue(printed[3].strip())
        self.assertRegex(printed[5], "'generated_text': ['\"]Once")

    def test_a_table_becomes_scored_rows(self):
        header = ["id", "message", "note", "amount", "label"]
        rows = [[i, self.sentence(WORDS[:12] if i % 2 else WORDS[8:], 1, 9), self.random.choice(["", "phone", "web form"]),
                 self.random.choice(["", f"{self.random.gauss(i % 2, 1):.2f}"]), "spam" if i % 2 else "ham"] for i in range(200)]
        # As a spreadsheet program on Windows saves it.
        with open(self.path("claims.csv"), "w", newline="", encoding="utf-8-sig") as f:
            csv.writer(f, lineterminator="\r\n").writerows([header] + rows)
        with open(self.path("new.csv"), "w", newline="") as f:
            csv.writer(f).writerows([header[:-1]] + [row[:-1] for row in rows[:20]])
        printed = self.follow(blocks()[1])
        self.assertIn("texts      message and note;", printed[2])
        self.assertIn("on the part it held out: 20 samples", printed[4])
        self.assertEqual(printed[6].splitlines()[0], "row,prediction,probability_ham,probability_spam")
        with open(self.path("scores.csv"), newline="") as f:
            found = list(csv.DictReader(f))
        self.assertEqual(len(found), 20)
        self.assertGreater(sum(row["prediction"] == ("spam" if i % 2 else "ham") for i, row in enumerate(found)), 14)
