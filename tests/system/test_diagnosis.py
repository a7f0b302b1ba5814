"""orthant doctor RUN and orthant report on runs with faults put in on purpose: a handful of diagnosis_campaign.py, and the pages."""
import html.parser
import json
import os
import unittest

from diagnosis_campaign import tried
from program import FolderTest, orthant


class Faults(unittest.TestCase):
    def assert_named(self, name):
        finding, is_right = tried(name)
        self.assertTrue(is_right, finding)

    def test_a_killed_rank(self):
        self.assert_named("killed rank of tp")

    def test_a_job_that_was_killed_with_its_launcher(self):
        self.assert_named("killed with its launcher")

    def test_a_stopped_rank(self):
        self.assert_named("stopped rank, still stopped")

    def test_values_that_are_not_finite(self):
        self.assert_named("not finite, stops")

    def test_a_restarted_run(self):
        self.assert_named("restarted and done")


class Page(html.parser.HTMLParser):
    VOID = {"meta", "link", "br", "hr", "input", "img"}
    DRAWN = {"line", "path", "circle", "rect"}

    def __init__(self, text):
        super().__init__()
        self.addresses, self.ids, self.open, self.text = [], [], [], ""
        self.problems = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.addresses += [values[name] for name in ("src", "href") if name in values]
        self.ids += [values["id"]] if "id" in values else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.ids += [value for name, value in attributes if name == "id"]

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            self.problems.append(f"</{tag}> ends {self.open[-1:]}")
        else:
            self.open.pop()

    def handle_data(self, data):
        self.text += data


class Reports(FolderTest):
    def trained(self, name, *words):
        path = self.path(name)
        done = orthant("train", "--config", self.config(), "--steps", 8, "--output-dir", path, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return path

    def config(self):
        path = self.path("config.json")
        with open(path, "w") as file:
            json.dump({"name": "small", "model": {"kind": "llama", "preset": "llama-tiny"}, "data": {"kind": "tokens", "samples": 256},
                       "train": {"global_batch_size": 8, "steps": 8, "eval_every": 4}, "checkpoint": {"save_every": 4}}, file)
        return path

    def page(self, *runs):
        path = self.path("page.html")
        done = orthant("report", *runs, "--html", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path, encoding="utf-8") as file:
            page = Page(file.read())
        self.assertEqual(page.problems, [])
        self.assertEqual(page.open, [])
        self.assertEqual(sorted(set(page.addresses)), ["#answer", "data:,"])  # loads nothing
        self.assertEqual(len(page.ids), len(set(page.ids)))
        return page

    def test_one_run_with_a_profile(self):
        run = self.trained("run", "--mesh", "pp=2", "--profile", "3")
        page = self.page(run)
        for words in ("What became of it", "Loss", "Where the step goes, rank by rank", "products", "as executed", "The simulator's step", "rank 1"):
            self.assertIn(words, page.text)
        text = orthant("report", run).stdout
        self.assertIn("where the step of the slowest rank goes:", text)
        self.assertRegex(text, r"\n1\. .+ \((certain|likely|possible)\): ")

    def test_two_runs_side_by_side(self):
        runs = [self.trained("a"), self.trained("b", "--set", "optimizer.lr=1e-4")]
        page = self.page(*runs)
        for words in ("2 runs side by side", "Settings that differ", "optimizer.lr"):
            self.assertIn(words, page.text)
        self.assertIn("optimizer.lr: ", orthant("report", *runs).stdout)

    def test_what_is_no_run(self):
        for command in ("report", "doctor"):
            done = orthant(command, self.folder)
            self.assertEqual(done.returncode, 2)
            self.assertIn("holds nothing of a run", done.stderr)
        done = orthant("doctor", self.folder, "--mesh", "dp=2")
        self.assertEqual(done.returncode, 2)
        self.assertIn("orthant doctor RUN beside --mesh", done.stderr)

    def test_damaged_files_are_left_out_and_named(self):
        run = self.trained("run")
        with open(os.path.join(run, "flight", "rank-0.events"), "r+b") as file:
            file.truncate(5000)
        with open(os.path.join(run, "eval.jsonl"), "a") as file:
            file.write("nonsense\n")
        done = orthant("doctor", run)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("rank-0.events: no record of a rank: it has 5000 of", done.stdout)
        self.assertIn("eval.jsonl has lines that are no JSON objects", done.stdout)


if __name__ == "__main__":
    unittest.main()
