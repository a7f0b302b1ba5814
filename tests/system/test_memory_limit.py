"""A rank that a control group's memory limit kills is reported as such. Needs root, to make a control group."""
import os
import sys
import unittest

from program import ORTHANT, SOURCE, run

sys.path.insert(0, os.path.join(SOURCE, "bench"))
from memory_limit import Limit  # noqa: E402

# Rank 1 takes what it may and more.
GREEDY = """
import os, time
if os.environ["RANK"] == "1":
    taken = [bytearray(b"x" * (1 << 24)) for _ in range(1000)]
time.sleep(60)
"""


class Killed(unittest.TestCase):
    def test_for_lack_of_memory_is_said_with_the_limit_and_what_to_do(self):
        group = Limit(f"orthant-test-{os.getpid()}", 400 << 20)
        self.addCleanup(group.remove)
        enter = f'echo $$ > {group.path}/cgroup.procs && exec "$@"'
        finished = run("sh", "-c", enter, "sh", ORTHANT, "launch", "--nproc", 2, "--", sys.executable, "-c", GREEDY)
        self.assertEqual(finished.returncode, 3, finished.stderr)
        self.assertIn("orthant: rank 1: killed by SIGKILL: out of memory: its control group may use 400 MiB\n  fix: ", finished.stderr)

    def test_by_somebody_else_is_not(self):
        finished = run(ORTHANT, "launch", "--nproc", 2, "--", "sh", "-c", "if [ $RANK = 1 ]; then kill -9 $$; fi; sleep 60")
        self.assertEqual(finished.returncode, 3, finished.stderr)
        self.assertIn("orthant: rank 1: killed by SIGKILL\n", finished.stderr)


if __name__ == "__main__":
    unittest.main()
