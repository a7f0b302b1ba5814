"""Ranks that die, launchers that die, signals: the right rank is named and nothing is left."""
import os
import signal
import subprocess
import time
import unittest

from kill_campaign import campaign
from program import BUILD, ORTHANT, children, clean_environment, is_alive, orthant, wait_until


def start(*words):
    return subprocess.Popen([ORTHANT, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                            text=True, env=clean_environment())


class Leftovers(unittest.TestCase):
    def test_a_killed_rank_is_named_and_nothing_is_left(self):
        self.assertEqual(campaign(kills=16, ranks=4, seed=1), [])


class Failures(unittest.TestCase):
    def test_calls_that_do_not_match_between_processes_are_reported(self):
        program = os.path.join(BUILD, "tests", "mismatch_program")
        expected = {"operation": "operation all_reduce here, broadcast there", "dtype": "float32 here, float64 there",
                    "shape": "shape [64] here, [65] there", "missing": "left without making the call", "exit": "left without making the call"}
        for kind, text in expected.items():
            began = time.monotonic()
            finished = orthant("launch", "--nproc", 3, "--", program, kind, 1)
            self.assertEqual(finished.returncode, 3, finished.stderr)
            self.assertIn(text, finished.stderr)
            self.assertIn("rank 1", finished.stderr)
            self.assertLess(time.monotonic() - began, 5)
        self.assertRegex(finished.stderr, r"\northant: rank 1: ended with exit code 0 while rank [02] was still running\n")

    def test_the_rank_that_failed_first_is_blamed_even_when_it_serves_nothing(self):
        # Rank 0 refuses its input while others wait for it; they fail too, but later and because of it.
        script = 'if [ $RANK = 0 ]; then echo the real reason >&2; sleep 0.1; exit 2; fi; sleep 30; exit 3'
        finished = orthant("launch", "--nproc", 3, "--", "sh", "-c", script)
        self.assertEqual(finished.returncode, 2)
        self.assertIn("rank 0: exit code 2", finished.stderr)
        self.assertIn("the real reason", finished.stderr)

    def test_a_lost_rank_is_started_again_while_restarts_are_left(self):
        script = 'if [ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT -lt 2 ]; then kill -9 $$; fi; echo attempt $TORCHELASTIC_RESTART_COUNT'
        finished = orthant("launch", "--nproc", 2, "--max-restarts", 3, "--", "sh", "-c", script)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertIn("[rank 1] attempt 2", finished.stdout)
        finished = orthant("launch", "--nproc", 2, "--max-restarts", 1, "--", "sh", "-c", script)
        self.assertEqual(finished.returncode, 3)

    def test_ranks_end_with_their_launcher(self):
        job = start("bench", "comm", "--mesh", "dp=3", "--rounds", "100000")
        self.assertTrue(wait_until(lambda: len(children(job.pid)) == 3, 10))
        pids = children(job.pid)
        job.kill()
        job.communicate()
        self.assertTrue(wait_until(lambda: not any(is_alive(p) for p in pids), 5))

    def test_signals_reach_all_ranks(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            job = start("bench", "comm", "--mesh", "dp=3", "--rounds", "100000")
            self.assertTrue(wait_until(lambda: len(children(job.pid)) == 3, 10))
            pids = children(job.pid)
            os.kill(job.pid, number)
            job.communicate(timeout=10)
            self.assertEqual(job.returncode, 128 + number)
            self.assertFalse(any(is_alive(p) for p in pids))


if __name__ == "__main__":
    unittest.main()
