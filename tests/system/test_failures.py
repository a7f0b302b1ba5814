"""Ranks that die, launchers that die, signals: the right rank is named and nothing is left."""
import os
import signal
import subprocess
import unittest

from kill_campaign import campaign
from program import ORTHANT, children, clean_environment, is_alive, wait_until


def start(*words):
    return subprocess.Popen([ORTHANT, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                            text=True, env=clean_environment())


class Failures(unittest.TestCase):
    def test_a_killed_rank_is_named_and_nothing_is_left(self):
        self.assertEqual(campaign(kills=16, ranks=4, seed=1), [])

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
