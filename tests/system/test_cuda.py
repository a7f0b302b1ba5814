"""Ranks that use a GPU: started by fork and exec, talking over Gloo when they share it and over NCCL when they do not."""
import unittest

from program import only_json, orthant


class Cuda(unittest.TestCase):
    def test_two_ranks_share_a_gpu_over_gloo(self):
        finished = orthant("doctor", "--mesh", "dp=2", "--device", "cuda", timeout=120)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertIn("All groups agree.", finished.stdout)

    def test_every_operation_is_timed_on_cuda_tensors(self):
        for mesh in ("dp=2", "dp=1"):
            finished = orthant("bench", "comm", "--mesh", mesh, "--device", "cuda", "--max-bytes", "1MiB", "--rounds", 2, "--json", timeout=120)
            self.assertTrue(only_json(self, finished)["rows"])


if __name__ == "__main__":
    unittest.main()
