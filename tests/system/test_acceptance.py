"""The acceptance list: a row of each kind that no other parity campaign runs in `make test`, what the list holds, and that it notices
what is wrong. The whole list: acceptance.py."""
import contextlib
import io
import json
import unittest

import acceptance
import random_parity
from parity_rows import Row
from pipeline_parity import CONFIGS
from program import FolderTest, orthant

# What a user of several axes asks for first; every entry has rows.
ASKED = ("1F1B", "PP+DP", "PP+TP GPipe", "3D, saved and resumed", "interleaved", "zero bubble zbh1", "zero bubble zbv", "schedule from a file", "DDP",
         "HSDP", "HSDP+TP", "FSDP+TP", "FSDP+PP", "ZeRO-1 x PP", "ZeRO-2 x PP", "ZeRO-3 x PP", "TP+SP+PP", "accumulation", "accumulation, sharded",
         "validation under TP x PP", "frozen units", "tied over two stages, sharded", "precision: compute bfloat16", "kept gathered", "every model",
         "a sum left out")


def printed(rows):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        count, wrong = acceptance.table(rows)
    return count, wrong, text.getvalue()


class List(unittest.TestCase):
    def test_rows_of_every_kind_are_as_they_must_be(self):
        quick = [row for row in acceptance.rows() if row.quick]
        count, wrong = acceptance.table(quick)
        self.assertEqual((count, wrong), (len(quick), []))

    def test_everything_asked_for_has_rows_on_4_or_8_ranks(self):
        rows = list(acceptance.rows())
        self.assertEqual([name for name in ASKED if name not in {row.label for row in rows}], [])
        self.assertEqual({row.ranks() for row in rows}, {4, 8})
        self.assertEqual({row.model for row in rows if row.mesh == "pp=2,fsdp=2,tp=2" and row.label == "every model"}, set(CONFIGS))
        self.assertEqual({row.canary for row in rows if row.canary}, {"pp", "dp", "fsdp", "tp"})
        self.assertEqual({row.dtype for row in rows if not row.yardstick}, {"float64"})
        self.assertEqual({row.mesh for row in acceptance.long_rows()}, {"pp=4,tp=2,dp=2", "pp=2,fsdp=2,tp=2,dp=2"})

    def test_a_wrong_row_is_told(self):
        # Gradients rounded on their way are not one rank's; a row that is refused has no numbers at all.
        rounded = Row("llama", "dp=2", "parallel.comm_hook=bf16", label="rounded")
        refused = Row("llama", "tp=3", label="refused")
        count, wrong, text = printed([rounded, refused])
        self.assertEqual((count, len(wrong)), (2, 2))
        self.assertEqual(text.count("| WRONG |"), 2)
        self.assertIn("4 heads cannot be shared by tp=3", text)


class Comparisons(FolderTest):
    def parity(self, model, *words):
        config = acceptance.config_of(Row(model, "dp=1"), CONFIGS, self.folder)
        return orthant("parity", "--config", config, "--json", *words)

    def test_leaving_out_a_sum_never_passes(self):
        # Nothing is tied here, so that no gradient is summed over pp: refused, since it could not fail.
        for fault in ("skip-reduce=pp", "skip-reduce=pp:layers.0"):
            finished = self.parity("llama", "--mesh", "pp=2,tp=2", "--steps", 1, "--inject", fault)
            self.assertEqual(finished.returncode, 2, f"{fault}: {finished.stdout}{finished.stderr}")
            self.assertIn("fix: ", finished.stderr)

    def test_a_precision_that_was_set_holds_on_both_sides(self):
        # float64 on the tested side alone: the reference's rounding must show.
        finished = self.parity("llama", "--mesh", "dp=1", "--steps", 1, "--set", "precision.compute=bfloat16", "--vary", "precision.compute=float64")
        self.assertIn(finished.returncode, (0, 1), finished.stderr)
        self.assertGreater(json.loads(finished.stdout)["max_relative_error"]["gradients"], 1e-6)


    def test_rows_do_not_share_a_file_of_other_contents(self):
        for text in ("0F0", "0F0"):
            acceptance.config_of(Row("llama", "pp=2", files={"own.txt": text}), CONFIGS, self.folder)
        with self.assertRaisesRegex(ValueError, "own.txt: another row has a file of this name"):
            acceptance.config_of(Row("llama", "pp=2", files={"own.txt": "0F1"}), CONFIGS, self.folder)


class Draws(FolderTest):
    def test_some_are_equal_and_some_refused(self):
        verdicts = {number: (verdict, text) for number, _, verdict, text in random_parity.trials(7, (5, 4, 8, 11, 13), 8, self.folder)}
        self.assertEqual([verdict for verdict, _ in verdicts.values()], ["refused"] + ["equal"] * 4, verdicts)

    def test_draws_follow_the_seed_and_reach_everything(self):
        words = [random_parity.draw(7, number, 8).words("config.json") for number in range(150)]
        self.assertEqual(words[11], random_parity.draw(7, 11, 8).words("config.json"))
        self.assertNotEqual(words[11], random_parity.draw(8, 11, 8).words("config.json"))
        text = " ".join(" ".join(w) for w in words)
        keys = ("schedule virtual_stages split microbatches zero accumulate keep_gathered limit_all_gathers units bucket_mb offload "
                "sequence_parallel loss_parallel regather recompute comm_hook").split()
        self.assertEqual([key for key in keys if f"--vary parallel.{key}=" not in text], [])
        self.assertEqual([word for word in ("--order", "--resume-at", "model.freeze=", "data.samples=", ".txt") if word not in text], [])


if __name__ == "__main__":
    unittest.main()
