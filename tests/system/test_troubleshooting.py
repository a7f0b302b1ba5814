"""Messages that docs/troubleshooting.md quotes are ones that the program can print: each part between two "..." or marks is in one text of the
source."""
import glob
import os
import re
import unittest

from program import SOURCE

PAGE = os.path.join(SOURCE, "docs", "troubleshooting.md")
LITERALS = re.compile(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*')


def texts_of_source():
    """The string literals of all sources, neighbours joined, each cut where a value is put in."""
    texts = []
    for path in glob.glob(os.path.join(SOURCE, "src", "**", "*.cpp"), recursive=True) + glob.glob(os.path.join(SOURCE, "src", "**", "*.h"), recursive=True):
        with open(path) as f:
            for found in LITERALS.findall(re.sub(r"^\s*//.*$|^#include.*$", "", f.read(), flags=re.M)):
                joined = "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', found))
                texts += re.split(r"\{[^{}]*\}", joined)
    return texts


def quoted_messages():
    """Of each row's first column, what is code."""
    with open(PAGE) as f:
        rows = [line for line in f if line.startswith("| ") and not line.startswith(("| you see", "|---"))]
    return [message for row in rows for message in re.findall(r"`([^`]+)`", row.split(" | ")[0])]


class Messages(unittest.TestCase):
    def test_are_the_programs_own(self):
        texts = texts_of_source()
        messages = quoted_messages()
        self.assertGreater(len(messages), 25)
        for message in messages:
            for part in re.split(r"\.\.\.|[:;,] |[()]", message):
                words = part.strip()
                if len(words) > 2:
                    self.assertTrue(any(words in text for text in texts), f"{message!r}: no source has {words!r}")

    def test_one_that_nobody_prints_would_be_found(self):
        self.assertFalse(any("the moon is full" in text for text in texts_of_source()))


if __name__ == "__main__":
    unittest.main()
