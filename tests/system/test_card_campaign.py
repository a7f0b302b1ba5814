"""The card campaign without a card: its list, stages that are rehearsed, that hang or die, and the folder that is carried to a card."""
import json
import os
import subprocess
import sys
import time
import types
import unittest
import zipfile
from unittest import mock

import card_campaign
import card_ranks
import card_stage
from card_stage import Stage
from program import BUILD, SOURCE, FolderTest, clean_environment, run, wait_until

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "card_campaign.py")


class Campaign(FolderTest):
    def campaign(self, *words):
        return run(sys.executable, SCRIPT, "--rehearse", "--out", self.path("found"), "--peers", self.path("peers"), *words, timeout=200)

    def results(self):
        with open(self.path("found", "results.json")) as f:
            return {result["stage"]: result for result in json.load(f)}

    def test_stages_are_listed_with_their_seconds(self):
        listed = run(sys.executable, SCRIPT, "--list").stdout
        for words in ("trimodal b8", "nccl parity 2", "kills", "graph bits", "s in all", "issues 27 28"):
            self.assertIn(words, listed)

    def test_stages_are_rehearsed_once(self):
        finished = self.campaign("--only", "^(trimodal b8|counters|bench kernels)$", "--together", "2")
        self.assertEqual(finished.returncode, 0, finished.stdout + finished.stderr)
        results = self.results()
        self.assertEqual({result["status"] for result in results.values()}, {"done"})
        self.assertIn("whole step one graph", results["trimodal b8"]["lines"][0]["claim"])
        self.assertTrue(all(line["right"] for line in results["counters"]["lines"]))
        with open(self.path("found", "table.md")) as f:
            self.assertEqual(f.read().count("| printed |"), sum(line["right"] is None for result in results.values() for line in result["lines"]))
        again = self.campaign("--only", "^trimodal b8$")
        self.assertIn("0 lines of 0 stages", again.stdout)
        for folder, _, names in os.walk(SOURCE):  # nothing lies about
            self.assertNotIn("trimodal-b8.jsonl", names, folder)
            break

    def test_a_stage_without_time_is_left_for_the_next_call(self):
        finished = self.campaign("--only", "^bench kernels$", "--budget", "1")
        self.assertIn("no time for: bench kernels", finished.stdout)


class Stages(FolderTest):
    """Stages that do what stages must not do."""

    def run_stage(self, text, limit):
        program = self.path("stage.py")
        with open(program, "w") as f:
            f.write(text)
        a = types.SimpleNamespace(out=self.folder, words=[], program="orthant", tests="tests")
        stage = Stage("bad stage", "29", "", 1, limit, False, None)
        with mock.patch.object(card_campaign, "__file__", program):
            return card_campaign.run_stage(stage, a, limit)

    LINE = 'import os, sys, time\nprint(\'{"issue": 29, "claim": "x", "asked": "", "found": "1", "right": true}\', file=open(OUT, "w"))\n'

    def test_what_it_wrote_before_it_died_stays(self):
        result = self.run_stage(self.LINE.replace("OUT", repr(self.path("bad-stage.jsonl"))) + "os.abort()\n", 60)
        self.assertEqual(result["status"], "ended with exit code -6")
        self.assertEqual(len(result["lines"]), 1)

    def test_one_that_hangs_is_ended_with_all_that_it_started(self):
        text = self.LINE.replace("OUT", repr(self.path("bad-stage.jsonl")))
        text += f"import subprocess\nchild = subprocess.Popen(['sleep', '1000'], process_group=0)\nopen({self.path('pid')!r}, 'w').write(str(child.pid))\ntime.sleep(1000)\n"
        result = self.run_stage(text, 3)
        self.assertEqual(result["status"], "not over after 3 s")
        self.assertEqual(len(result["lines"]), 1)
        with open(self.path("pid")) as f:
            self.assertFalse(os.path.exists(f"/proc/{f.read()}/exe"))

    def test_one_that_finds_nothing_is_not_done(self):
        self.assertEqual(self.run_stage("", 60)["status"], "found nothing")

    def test_of_a_test_program_that_hangs_the_test_is_told(self):
        program = self.path("tests")
        with open(program, "w") as f:
            f.write("#!/bin/sh\necho '[ RUN      ] A.b'; echo '[       OK ] A.b (1 ms)'; echo '[ RUN      ] A.c/2Ranks'; sleep 1000\n")
        os.chmod(program, 0o755)
        stage = types.SimpleNamespace(action=lambda c: c.test_program(29, "operations", "tests", "*", timeout=2), file="operations")
        a = types.SimpleNamespace(tests=self.folder, out=self.folder, peers="", reference="", rehearse=False)
        card_stage.StageRun(a, stage).run()
        with open(self.path("operations.jsonl")) as f:
            line = json.loads(f.read())
        self.assertEqual((line["found"], line["right"]), ("0 pass, not over after 2 s, in A.c/2Ranks", False))

    def stage_run(self):
        a = types.SimpleNamespace(tests=self.folder, out=self.folder, peers="", reference="", rehearse=False)
        found = card_stage.StageRun(a, types.SimpleNamespace(file="hung"))
        found.folder = self.folder
        return found

    def waits_for_no_end(self, act):
        """That processes which heed no SIGTERM hold nobody up, and are gone."""
        began = time.monotonic()
        with mock.patch.object(card_stage.end_job, "__defaults__", (1,)):
            act()
        self.assertLess(time.monotonic() - began, 20)
        with open(self.path("pids")) as f:
            for pid in map(int, f.read().split()):
                wait_until(lambda: not card_stage.process_tree([pid]), 5)

    # As a launcher and its rank, which has a group of its own and holds the output open.
    STUBBORN = r"""trap '' TERM; set -m; sleep 1000 & printf 'not \xff UTF-8\n'; echo $$ $! >> "$0"; sleep 1000"""

    def test_a_program_that_heeds_no_signal_is_over_in_time(self):
        def act():
            code, text = self.stage_run().run_telling("bash", "-c", self.STUBBORN, self.path("pids"), timeout=4)
            self.assertIsNone(code)
            self.assertIn("UTF-8", text)

        self.waits_for_no_end(act)

    def test_programs_side_by_side_have_one_time(self):
        def act():
            hung, done = self.stage_run().run_together(["bash", "-c", self.STUBBORN, self.path("pids")],
                                                       ["bash", "-c", "echo 7; exit 3"], timeout=4)
            self.assertIsNone(hung[0])
            self.assertIn("UTF-8", hung[1])
            self.assertEqual(done, (3, "7\n", ""))

        self.waits_for_no_end(act)

    def test_launchers_that_say_nothing_are_a_wrong_line(self):
        for results, words in (([(0, "no json", ""), (0, "", "")], "no document"), ([(0, '{"max_relative_error": 0}', ""), (None, "", "hangs")], "hangs")):
            c = mock.Mock(rehearsed=False)
            c.ranks.return_value = []
            c.run_together.return_value = results
            card_ranks.nccl_hosts(c)
            *_, found, right = c.tell.call_args.args
            self.assertIn(words, found)
            self.assertFalse(right)

    def test_what_was_missed_stands_in_the_table(self):
        text = card_campaign.table([{"stage": "s", "status": "done", "lines": [{"issue": 29, "claim": "c", "asked": "1", "found": "2", "right": False}]},
                                    {"stage": "t", "status": "not over after 3 s", "lines": []}])
        self.assertIn("| 29 | c | 1 | 2 | MISSED |", text)
        self.assertIn("| stage t | to its end | not over after 3 s | MISSED |", text)


class Packed(FolderTest):
    def test_the_folder_that_is_carried_runs(self):
        packed = run(sys.executable, os.path.join(SOURCE, "tools", "pack"), "--build", BUILD, "--out", self.path("there"), timeout=120)
        self.assertEqual(packed.returncode, 0, packed.stderr)
        self.assertIn("MiB", packed.stdout)
        torch = next(line.split()[2] for line in subprocess.run(["ldd", os.path.join(BUILD, "bin", "orthant")], capture_output=True, text=True,
                                                                check=True).stdout.splitlines() if "libtorch_cpu" in line)
        environment = clean_environment(LD_LIBRARY_PATH=f"{self.path('there', 'lib')}:{os.path.dirname(torch)}")
        told = subprocess.run([self.path("there", "orthant"), "--version"], capture_output=True, text=True, env=environment, check=True).stdout
        self.assertTrue(told.startswith("orthant "))
        self.assertTrue(os.listdir(self.path("there", "lib")))

    def test_wheels_that_were_carried_are_unpacked_once(self):
        program, out = self.path("there", "orthant"), self.path("found")
        os.makedirs(self.path("there", "wheels"))
        os.makedirs(out)
        with zipfile.ZipFile(self.path("there", "wheels", "toy-1-py3-none-any.whl"), "w") as wheel:
            wheel.writestr("toy.py", "ANSWER = 7\n")
        with mock.patch.object(card_stage, "ORTHANT", program):
            run = types.SimpleNamespace(out=out)
            self.assertEqual(card_stage.StageRun.unpacked_wheels(run), [os.path.join(out, "python")])
            self.assertEqual(card_stage.StageRun.unpacked_wheels(run), [os.path.join(out, "python")])
        self.assertEqual(os.listdir(os.path.join(out, "python")), ["toy.py"])

    def test_too_much_is_refused(self):
        packed = run(sys.executable, os.path.join(SOURCE, "tools", "pack"), "--build", BUILD, "--out", self.path("there"), "--most-mib", "0.5", timeout=120)
        self.assertNotEqual(packed.returncode, 0)
        self.assertIn("more than 0.5 MiB", packed.stderr)


if __name__ == "__main__":
    unittest.main()
