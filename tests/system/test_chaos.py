"""tests/chaos/run: a fixed short campaign of faults, and that a program which does wrong is found out."""
import json
import os
import stat
import subprocess
import sys
import unittest

from program import ORTHANT, SOURCE, FolderTest, clean_environment

RUN = os.path.join(SOURCE, "tests", "chaos", "run")
SHORT = ("kill", "crash", "term", "torn-write", "io-error", "damaged-checkpoint", "few-descriptors", "clock-jumps", "crafted")


def chaos(*words, **environment):
    return subprocess.run([sys.executable, RUN, "--json", *map(str, words)], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
                          env=clean_environment(**environment))


class Short(unittest.TestCase):
    def test_every_verdict_is_right(self):
        finished = chaos("--seed", 7, "--trials", len(SHORT), *(word for kind in SHORT for word in ("--only", kind)))
        self.assertEqual(finished.returncode, 0, finished.stderr)
        found = json.loads(finished.stdout)
        self.assertEqual((found["wrong"], found["left_out"]), ([], []))
        self.assertLessEqual({"K1", "K4", "K6", "P1", "C1", "C3", "C4", "R2", "R5", "S1", "X2"}, {row["id"] for row in found["table"]})
        self.assertTrue(all(row["right"] == row["runs"] > 0 for row in found["table"]), found["table"])


class Notices(FolderTest):
    def program(self, script):
        """A program that does what ours does, and this."""
        path = self.path("orthant")
        with open(path, "w") as f:
            f.write(f'#!/bin/sh\nreal={ORTHANT}\n{script}\n')
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        return path

    def wrong_rows(self, script):
        finished = chaos("--only", "clock-jumps", "--seed", 3, "--trials", 1, ORTHANT=self.program(script))
        self.assertEqual(finished.returncode, 1, finished.stderr)
        found = json.loads(finished.stdout)
        self.assertEqual(found["wrong"], ["tests/chaos/run --only clock-jumps --seed 3 --trials 1"])
        return {row["id"] for row in found["table"] if row["wrong"]}, finished.stderr

    def test_what_is_left(self):
        rows, said = self.wrong_rows('"$real" "$@"; code=$?; [ -z "$CLOCK_JUMPS" ] || : > "$TMPDIR/left"; exit $code')
        self.assertEqual(rows, {"K6"})
        self.assertIn("temporary files are left: ['left']", said)

    def test_other_weights(self):
        rows, said = self.wrong_rows('if [ -n "$CLOCK_JUMPS" ]; then exec "$real" "$@" --set seed=12; fi; exec "$real" "$@"')
        self.assertEqual(rows, {"R5"})
        self.assertRegex(said, r"weights_hash [0-9a-f]+ instead of [0-9a-f]+")


if __name__ == "__main__":
    unittest.main()
