"""orthant simulate: JSON, text and picture of every schedule, files that round-trip, and refusals before anything runs."""
import os
import tempfile
import unittest
import xml.etree.ElementTree

from program import only_json, orthant

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zbh1", "zbv")


class Simulate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name, text=None):
        path = os.path.join(self.folder, name)
        if text is not None:
            with open(path, "w") as file:
                file.write(text)
        return path

    def simulated(self, *words):
        return only_json(self, orthant("simulate", "--json", *words))

    def refused(self, *words, has):
        finished = orthant("simulate", *words)
        self.assertEqual(finished.returncode, 2, finished.stdout + finished.stderr)
        self.assertEqual(finished.stdout, "")
        for part in has:
            self.assertIn(part, finished.stderr)

    def test_closed_forms(self):
        for schedule, makespan in (("gpipe", 33), ("1f1b", 33), ("interleaved", 57), ("zbh1", 27), ("zbv", 51)):
            result = self.simulated("--schedule", schedule, "--stages", 4, "--microbatches", 8)
            self.assertEqual(list(result), ["valid", "makespan", "bubble_fraction", "peak_in_flight", "ranks"])
            self.assertIs(result["valid"], True)
            self.assertEqual(result["makespan"], makespan, schedule)
            stages = 2 if schedule in ("interleaved", "zbv") else 1
            self.assertAlmostEqual(result["bubble_fraction"], 1 - 24 * stages / makespan, msg=schedule)
            self.assertEqual(len(result["ranks"]), 4)
        result = self.simulated("--schedule", "1f1b", "--stages", 4, "--microbatches", 8)
        self.assertEqual(result["peak_in_flight"], [4, 3, 2, 1])
        self.assertEqual(result["ranks"][3][:4], ["3F0", "3BW0", "3F1", "3BW1"])

    def test_costs(self):
        words = ("--schedule", "1f1b", "--stages", 2, "--microbatches", 4, "--cost")
        self.assertEqual(self.simulated(*words, "F=1,B=2,W=2")["makespan"], 25)
        self.assertEqual(self.simulated(*words, "F=1/2,B=1/2,W=1/2")["makespan"], 27)
        self.assertGreater(self.simulated(*words, "P2P=0.5")["makespan"], 15)
        self.refused(*words, "F=1,X=2", has=["X=2", "F, B, W, P2P"])
        self.refused(*words, "F=fast", has=["fast", "fix:"])
        self.refused(*words, "F=-1", has=["-1"])
        self.refused(*words, "F=1/2/3", has=["3 times for 2 stages"])
        self.refused(*words, "F", has=["F=1,B=1,W=1,P2P=0"])

    def test_files_round_trip(self):
        for schedule in SCHEDULES:
            made = self.simulated("--schedule", schedule, "--stages", 3, "--microbatches", 4)
            for name, separator in (("table.txt", " "), ("table.csv", ",")):
                path = self.path(name, "".join(separator.join(rank) + "\n" for rank in made["ranks"]))
                self.assertEqual(self.simulated("--from", path), made, schedule)
                self.assertEqual(self.simulated("--from", path, "--stages", 3, "--microbatches", 4), made, schedule)

    def test_text_and_picture(self):
        svg = self.path("picture.svg")
        finished = orthant("simulate", "--schedule", "zbh1", "--stages", 2, "--microbatches", 2, "--svg", svg)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertEqual(finished.stdout,
                         "time | 0   1   2   3   4   5   6\n"
                         "pp 0 | 0F0 0F1 .   0B0 0W0 0B1 0W1\n"
                         "pp 1 | .   1F0 1B0 1F1 1B1 1W0 1W1\n"
                         "zbh1: 2 pp coordinates, 2 stages, 2 microbatches\n"
                         "makespan 7, bubble 14.3%, peak in flight per pp coordinate 2 2\n")
        boxes = [title.text for title in xml.etree.ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}title")]
        self.assertIn("1W1 from 6 to 7", boxes)
        self.assertEqual(len(boxes), 1 + 12)

    def test_bad_schedules_are_refused_with_the_grid(self):
        cases = (("0F0 0F1 0BW0", ["0BW1 is missing on pp 0", "[0F1]"]),
                 ("0F0 0BW0\n1F0 1F0 1BW0", ["1F0 at position 1 of pp 1", "[1F0]"]),
                 ("0F0 0F1 0BW1 0BW0", ["microbatch order", "[0BW0]"]),
                 ("0F0 0BW0 0F1 0BW1\n1F0 1F1 1BW0 1BW1", ["deadlock", "[0BW0]", "[1F1]"]),
                 ("0F0 0BW0\n2F0 2BW0", ["no pp coordinate runs stage 1"]),
                 ("0F0 1F0 1BW0 0BW0\n-", ["2 pp coordinates", "stages lie on 1", "fix:"]),
                 ("0F0 oops", ["line 1, word 2", "oops"]),
                 ("", ["holds no stage action"]))
        for text, parts in cases:
            self.refused("--from", self.path("bad.txt", text), has=parts)
        good = self.path("good.txt", "0F0 0BW0\n1F0 1BW0\n")
        self.refused("--from", good, "--microbatches", 2, has=["0F1 is missing"])
        self.refused("--from", good, "--stages", 3, has=["--stages 3", "2 pp coordinates"])
        self.refused("--from", good, "--virtual", 2, has=["--virtual 2", "2 stages on 2 pp coordinates"])
        self.refused("--from", self.path("none.txt"), has=["none.txt", "cannot be read"])

    def test_bad_requests_are_refused(self):
        self.refused("--schedule", "1f1", "--stages", 2, "--microbatches", 2, has=['"1f1"', "1f1b"])
        self.refused("--schedule", "zbv", "--stages", 2, "--microbatches", 2, "--virtual", 3, has=["zbv", "3 stages"])
        self.refused("--schedule", "1f1b", "--microbatches", 2, has=["--stages is missing", "--from"])
        self.refused("--stages", 2, "--microbatches", 2, has=["--schedule is missing"])
        self.refused("--schedule", "1f1b", "--stages", 0, "--microbatches", 2, has=["--stages"])
        self.refused("--schedule", "1f1b", "--stages", 100000, "--microbatches", 100000, has=["1000000", "fix:"])
        self.refused("--schedule", "1f1b", "--stages", 2, "--microbatches", 2, "--svg", self.path("no/where.svg"),
                     has=["where.svg", "cannot be written"])

    def test_help_says_what_stages_are(self):
        finished = orthant("simulate", "--help")
        self.assertEqual(finished.returncode, 0)
        for part in ("pp coordinate", "interleaved", "F=1/2/1", "Example:"):
            self.assertIn(part, finished.stdout)


if __name__ == "__main__":
    unittest.main()
