"""The page that `orthant plan --html` and `orthant estimate --html` write: one file that loads nothing, holds what --json says,
and, in the class that needs a browser, draws every section without an error."""
import html.parser
import json
import os
import re
import resource
import shutil
import unittest

from program import FolderTest, only_json, orthant, run

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SMALL = ("--model", "llama-1b", "--gpus", 8, "--gpu", "h100-80gb", "--global-batch", 64, "--seq", 2048)
TOO_LARGE = ("--model", "llama3-405b", "--gpus", 8, "--gpu", "h100-80gb", "--global-batch", 64, "--seq", 8192)
ONE = ("--model", "llama3-70b", "--gpu", "h100-80gb", "--mesh", "pp=8,tp=8", "--micro-batch", 1, "--global-batch", 32, "--seq", 4096)
SVG_NAMESPACE = "http://www.w3.org/2000/svg"


class Page(html.parser.HTMLParser):
    """Elements by id with their attributes and text, addresses that elements name, and pictures by the id around them."""

    def __init__(self, text):
        super().__init__()
        self.attributes, self.text, self.addresses, self.pictures = {}, {}, [], []
        self.root, self.open_ids = {}, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.addresses += [values[name] for name in ("src", "href", "srcset", "data", "action") if name in values]
        if tag == "html":
            self.root = values
        if tag == "svg":
            self.pictures += [ident for _, ident in self.open_ids if ident]
        if tag not in ("meta", "link", "br", "img", "input", "hr"):
            self.open_ids.append((tag, values.get("id")))
        if "id" in values:
            self.attributes[values["id"]] = values
            self.text.setdefault(values["id"], "")

    def handle_endtag(self, tag):
        while self.open_ids and self.open_ids.pop()[0] != tag:
            pass

    def handle_data(self, data):
        for _, ident in self.open_ids:
            if ident:
                self.text[ident] += data

    def is_shown(self, ident):
        return "hidden" not in self.attributes[ident]


class ReportTest(FolderTest):
    def written(self, *words):
        """The JSON of a run and the text of the page that it wrote."""
        path = self.path("report.html")
        document = only_json(self, orthant(*words, "--json", "--html", path))
        with open(path, encoding="utf-8") as file:
            return document, file.read()


class Files(ReportTest):
    def loads_nothing(self, text):
        page = Page(text)
        self.assertEqual(sorted(set(page.addresses)), ["#answer", "data:,"])
        self.assertEqual(set(re.findall(r'\w+://[^"\s]*', text)) - {SVG_NAMESPACE}, set())
        self.assertEqual(set(re.findall(r"url\(([^)]*)", text)), {"#hatch"})
        for word in ("@import", "fetch(", "XMLHttpRequest", "WebSocket", "import("):
            self.assertNotIn(word, text)
        return json.loads(page.text["report-data"])

    def test_a_search(self):
        document, text = self.written("plan", *SMALL, "--tokens", "1e10")
        data = self.loads_nothing(text)
        self.assertEqual(data["plans"], document["plans"])
        self.assertEqual(data["plans"][0], document["best"])
        for key in ("rejected", "evaluated", "advice", "simple"):
            self.assertEqual(data[key], document[key], key)
        self.assertEqual(data["budget"]["tokens"], 1e10)
        best = data["plans"][0]
        rate = best["tokens_per_second_per_gpu"] * 8
        self.assertAlmostEqual(data["budget"]["days"], 1e10 / rate / 86400, places=6)
        columns = data["points"]["columns"]
        self.assertGreater(len(data["points"]["rows"]), 100)
        self.assertTrue(all(len(row) == len(columns) for row in data["points"]["rows"]))
        self.assertEqual(len(data["timeline"]["ranks"]), best["mesh"]["pp"])

    def test_nothing_fits(self):
        document, text = self.written("plan", *TOO_LARGE)
        data = self.loads_nothing(text)
        self.assertIsNone(document["best"])
        self.assertEqual(data["plans"], [])
        self.assertEqual(data["advice"], document["advice"])
        self.assertNotIn("timeline", data)

    def test_one_plan(self):
        document, text = self.written("estimate", *ONE)
        data = self.loads_nothing(text)
        self.assertEqual(data["plans"], [document])
        self.assertNotIn("points", data)
        self.assertEqual(len(data["timeline"]["ranks"]), 8)

    def test_a_file_that_cannot_be_written(self):
        finished = orthant("plan", *SMALL, "--html", self.path("no", "where.html"))
        self.assertEqual(finished.returncode, 2, finished.stderr)
        self.assertIn("where.html cannot be written: No such file or directory", finished.stderr)
        limited = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        finished = orthant("plan", *SMALL, "--html", self.path("page.html"), preexec_fn=limited)
        self.assertEqual(finished.returncode, 4, finished.stderr)
        self.assertIn("page.html cannot be written: File too large\n  fix: raise the limit on file size", finished.stderr)
        self.assertEqual(os.listdir(self.folder), [])


class Drawn(ReportTest):
    """Needs one of BROWSERS."""

    def drawn(self, *words, theme="light"):
        document, _ = self.written(*words)
        browser = next(filter(None, map(shutil.which, BROWSERS)), None)
        self.assertIsNotNone(browser, f"none of {', '.join(BROWSERS)} is installed")
        finished = run(browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
                       f"--user-data-dir={self.path('profile')}", "--window-size=1280,2000", "--dump-dom",
                       f"file://{self.path('report.html')}?theme={theme}", timeout=100)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertEqual([line for line in finished.stderr.splitlines() if "CONSOLE" in line], [])
        page = Page(finished.stdout)
        self.assertNotIn("data-error", page.root)
        self.assertEqual((page.root.get("data-drawn"), page.root.get("data-theme")), ("true", theme))
        return document, page

    def test_a_search(self):
        document, page = self.drawn("plan", *SMALL, theme="dark")
        self.assertIn("llama-1b", page.text["headline"])
        self.assertIn(document["best"]["train"], page.text["command"])
        for ident in ("scatter", "memory", "timeline", "time"):
            self.assertIn(ident, page.pictures)
        for ident in ("scatter", "memory", "timeline", "time", "heat", "plans"):
            self.assertTrue(page.is_shown(f"{ident}-section"), ident)
        self.assertIn("pp 1", page.text["heat"])

    def test_nothing_fits(self):
        document, page = self.drawn("plan", *TOO_LARGE)
        self.assertIn("does not fit", page.text["headline"])
        self.assertIn(document["advice"][0]["change"], page.text["advice"])
        for ident in ("memory", "timeline", "time", "plans", "command"):
            self.assertFalse(page.is_shown(f"{ident}-section"), ident)

    def test_one_plan(self):
        _, page = self.drawn("estimate", *ONE)
        for ident in ("memory", "timeline", "time"):
            self.assertIn(ident, page.pictures)
        for ident in ("scatter", "heat", "scaling", "plans", "rejected"):
            self.assertFalse(page.is_shown(f"{ident}-section"), ident)
        self.assertIn("pp 7", page.text["timeline"])


if __name__ == "__main__":
    unittest.main()
