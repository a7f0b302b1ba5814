"""Chat templates print what `apply_chat_template` of transformers prints, byte for byte, and refuse what it refuses."""
import json
import os
import tempfile
import unittest

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from chat_templates import CONVERSATIONS, TEMPLATES, TOOLS, USER
from program import orthant

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def oracle():
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>")), **TOKENS)


def expected(tokenizer, template, conversation):
    """The text, or the exception."""
    more = dict(conversation)
    messages = more.pop("messages")
    more.setdefault("add_generation_prompt", True)
    try:
        return tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, **more)
    except Exception as error:  # whatever the template's author or Jinja throws
        return error


class Templates(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tokenizer = oracle()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name

    def config(self, **more):
        with open(os.path.join(self.folder, "tokenizer_config.json"), "w") as file:
            json.dump({**TOKENS, "unk_token": {"content": "<unk>"}, **more}, file)

    @staticmethod
    def text_of(result):
        result.stdout, result.stderr = result.stdout.decode(), result.stderr.decode()
        return result

    def render(self, conversations, *arguments):
        lines = "".join(json.dumps(conversation) + "\n" for conversation in conversations)
        return self.text_of(orthant("tokenize", "--tokenizer", self.folder, "--chat", "--text", *arguments, given=lines.encode()))

    def test_bytes_equal_those_of_transformers(self):
        printed = refused = 0
        for name, template in TEMPLATES.items():
            with self.subTest(template=name):
                self.config(chat_template=template)
                answers = [expected(self.tokenizer, template, each) for each in CONVERSATIONS]
                good = [(each, text) for each, text in zip(CONVERSATIONS, answers) if isinstance(text, str)]
                result = self.render([each for each, _ in good])
                self.assertEqual(result.returncode, 0, result.stderr)
                lines = result.stdout.split("\n")[:-1]
                self.assertEqual(len(lines), len(good))
                for (each, text), line in zip(good, lines):
                    self.assertEqual(json.loads(line), text, each)
                printed += len(good)
                bad = [(each, error) for each, error in zip(CONVERSATIONS, answers) if not isinstance(error, str)]
                for each, error in bad[:2]:
                    result = self.render([each])
                    self.assertEqual(result.returncode, 4, f"{error!r}: {result.stdout}")
                    if type(error).__name__ == "TemplateError":
                        self.assertIn("the chat template refuses these messages: " + str(error), result.stderr)
                    refused += 1
        self.assertGreaterEqual(len(TEMPLATES), 30)
        self.assertGreater(printed, 500)
        self.assertGreater(refused, 20)

    def test_a_file_of_its_own_and_named_templates(self):
        self.config()
        result = self.render([{"messages": [USER]}])
        self.assertEqual(result.returncode, 4)
        self.assertIn("has no chat template", result.stderr)
        chatml = self.render([{"messages": [USER]}], "--chat-template", "chatml")
        self.assertEqual(json.loads(chatml.stdout), "<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\n")
        llama3 = self.render([{"messages": [USER], "add_generation_prompt": False}], "--chat-template", "llama3")
        self.assertEqual(json.loads(llama3.stdout), "<s><|start_header_id|>user<|end_header_id|>\n\nWhat is 2 + 2?<|eot_id|>")
        with open(os.path.join(self.folder, "chat_template.jinja"), "w") as file:
            file.write("{{ messages[0].content }} of the file")
        self.addCleanup(os.remove, os.path.join(self.folder, "chat_template.jinja"))
        self.assertEqual(json.loads(self.render([{"messages": [USER]}]).stdout), "What is 2 + 2? of the file")
        wrong = self.render([{"messages": [USER]}], "--chat-template", "llama9")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("use chatml, llama3, or the path of a Jinja file", wrong.stderr)

    def test_a_list_of_templates_has_a_default(self):
        self.config(chat_template=[{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain {{ eos_token }}"}])
        self.assertEqual(json.loads(self.render([{"messages": [USER]}]).stdout), "plain </s>")

    def test_lines_that_are_no_conversations(self):
        self.config(chat_template=TEMPLATES["chatml"])
        for line in ("", "[]", '{"messages": 1}', '{"messages": [}'):
            result = self.text_of(orthant("tokenize", "--tokenizer", self.folder, "--chat", "--text", given=line.encode() + b"\n"))
            self.assertEqual(result.returncode, 4, line)
            self.assertIn("no JSON object with a list of messages", result.stderr)


if __name__ == "__main__":
    unittest.main()
