"""cmake --install, then a program finds the package, builds, and runs; the other examples, built in the tree, run with what is installed."""
import os
import tempfile
import unittest

from program import BUILD, SOURCE, clean_environment, run

EXAMPLES = os.path.join(BUILD, "tests", "examples")


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.prefix = os.path.join(cls.folder.name, "prefix")
        finished = run("cmake", "--install", BUILD, "--prefix", cls.prefix, timeout=300)
        assert finished.returncode == 0, finished.stdout + finished.stderr

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def build(self, example):
        """Builds examples/NAME against the installed library; returns the program. Unoptimised, which takes half the time, and through the build's
        own compiler cache, to which the folder's name does not matter: as long as source and headers are the same, it is compiled once."""
        folder = os.path.join(self.folder.name, example)
        self.step("cmake", "-S", os.path.join(SOURCE, "examples", example), "-B", folder, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={self.prefix}",
                  "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=", f"-DCMAKE_CXX_COMPILER={os.environ['ORTHANT_CXX']}",
                  f"-DCMAKE_CXX_COMPILER_LAUNCHER={os.environ['ORTHANT_CXX_LAUNCHER']}")
        self.step("cmake", "--build", folder, env=clean_environment(CCACHE_BASEDIR=self.folder.name, CCACHE_NOHASHDIR=1))
        return os.path.join(folder, example)

    def step(self, *words, env=None):
        finished = run(*words, timeout=300, env=env)
        self.assertEqual(finished.returncode, 0, finished.stdout + finished.stderr)

    def test_ranks_of_a_small_program_talk(self):
        finished = run(os.path.join(self.prefix, "bin", "orthant"), "launch", "--nproc", 2, "--", os.path.join(EXAMPLES, "all_reduce"))
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertEqual(sorted(finished.stdout.splitlines()), ["[rank 0] rank 0 of 2: sum 1", "[rank 1] rank 1 of 2: sum 1"])

    def test_a_users_modules_are_trained_and_resumed(self):
        program = self.build("train_module")
        losses = []
        for last_step in (50, 100):
            finished = run(program, cwd=self.folder.name)
            self.assertEqual(finished.returncode, 0, finished.stderr)
            words = finished.stdout.split()
            self.assertEqual(words[:2], ["step", str(last_step)])
            losses.append(float(words[3]))
        self.assertLess(losses[1], 0.7 * losses[0])

    def test_one_loop_plain_ddp_and_fsdp_learns_the_same(self):
        plain = run(os.path.join(EXAMPLES, "train_plain"))
        self.assertEqual(plain.returncode, 0, plain.stderr)
        expected = float(plain.stdout.split()[1])
        self.assertLess(expected, 1)
        launch = [os.path.join(self.prefix, "bin", "orthant"), "launch", "--nproc"]
        for program in ("train_ddp", "train_fsdp"):
            for ranks in (1, 2, 4):
                finished = run(*launch, ranks, "--", os.path.join(EXAMPLES, program))
                self.assertEqual(finished.returncode, 0, finished.stderr)
                losses = [float(line.split()[-1]) for line in finished.stdout.splitlines()]
                self.assertEqual(len(losses), ranks)
                for loss in losses:
                    self.assertAlmostEqual(loss / expected, 1, delta=1e-3, msg=f"{program} on {ranks} ranks")

    def test_a_mixed_graph_learns_the_same_on_every_mesh(self):
        program = os.path.join(EXAMPLES, "train_mixed")
        alone = run(program)
        self.assertEqual(alone.returncode, 0, alone.stderr)
        expected = float(alone.stdout.split()[1])
        self.assertLess(expected, 0.2)
        launch = [os.path.join(self.prefix, "bin", "orthant"), "launch", "--nproc"]
        for ranks, arguments in ((1, "dp=1 1f1b full"), (2, "tp=2"), (2, "fsdp=2"), (4, "pp=2,tp=2 zbh1 none"),
                                 (4, "pp=2,tp=2 zbh1 full"), (4, "fsdp=2,tp=2 1f1b full")):
            finished = run(*launch, ranks, "--", program, *arguments.split())
            self.assertEqual(finished.returncode, 0, finished.stderr)
            losses = [float(line.split()[-1]) for line in finished.stdout.splitlines()]
            self.assertEqual(len(losses), ranks)
            for loss in losses:
                self.assertAlmostEqual(loss / expected, 1, delta=1e-10, msg=f"{arguments} on {ranks} ranks")


if __name__ == "__main__":
    unittest.main()
