"""cmake --install, then a program of ten lines finds the package, builds, and runs on two ranks."""
import os
import tempfile
import unittest

from program import BUILD, SOURCE, clean_environment, run


class Install(unittest.TestCase):
    def test_a_small_program_builds_against_the_installed_library(self):
        with tempfile.TemporaryDirectory() as tmp:
            prefix, build = os.path.join(tmp, "prefix"), os.path.join(tmp, "build")
            self.step("cmake", "--install", BUILD, "--prefix", prefix)
            self.step("cmake", "-S", os.path.join(SOURCE, "examples", "all_reduce"), "-B", build, "-G", "Ninja",
                      f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CXX_COMPILER={os.environ['ORTHANT_CXX']}")
            self.step("cmake", "--build", build)
            finished = run(os.path.join(prefix, "bin", "orthant"), "launch", "--nproc", 2, "--", os.path.join(build, "all_reduce"))
            self.assertEqual(finished.returncode, 0, finished.stderr)
            self.assertEqual(sorted(finished.stdout.splitlines()), ["[rank 0] rank 0 of 2: sum 1", "[rank 1] rank 1 of 2: sum 1"])

    def step(self, *words):
        finished = run(*words, timeout=300)
        self.assertEqual(finished.returncode, 0, finished.stdout + finished.stderr)


if __name__ == "__main__":
    unittest.main()
