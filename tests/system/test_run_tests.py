"""tools/run_tests leaves out what needs a library that is missing, and says why; CMake tells the tests where the library is."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

from setup_stubs import SOURCE, write

TESTS = 'add_test(plain true)\nadd_test(kernels true)\nset_tests_properties(kernels PROPERTIES LABELS "pure;nvrtc")\n'
PROJECT = f"""cmake_minimum_required(VERSION 3.22)
project(environment NONE)
enable_testing()
include({SOURCE}/cmake/OrthantTest.cmake)
foreach(name plain kernels)
  add_test(NAME ${{name}} COMMAND true)
endforeach()
orthant_test_environment(plain "pure" A=1)
orthant_test_environment(kernels "pure;nvrtc" A=1 EMPTY=)
"""


class Nvrtc(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.build = os.path.join(self.folder.name, "build")

    def configure(self):
        subprocess.run(["cmake", "-S", self.folder.name, "-B", self.build, f"-Dtorch_root={self.folder.name}/nvidia"],
                       check=True, capture_output=True, timeout=60)

    def environments(self):
        """The environment of each test, by its name."""
        listing = subprocess.run(["ctest", "--show-only=json-v1"], cwd=self.build, check=True, capture_output=True, timeout=60).stdout
        tests = json.loads(listing)["tests"]
        return {test["name"]: [p["value"] for p in test["properties"] if p["name"] == "ENVIRONMENT"][0] for test in tests}

    def run_tests(self, library):
        write(os.path.join(self.build, "CTestTestfile.cmake"), TESTS)
        write(os.path.join(self.build, "CMakeCache.txt"), f"ORTHANT_NVRTC:FILEPATH={library}\n")
        finished = subprocess.run([os.path.join(SOURCE, "tools", "run_tests")], env={**os.environ, "BUILD": self.build},
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        self.assertEqual(finished.returncode, 0, finished.stdout + finished.stderr)
        return finished.stdout

    def test_tests_without_the_library_are_left_out_by_name(self):
        for missing in ("ORTHANT_NVRTC-NOTFOUND", os.path.join(self.folder.name, "gone.so")):
            said = self.run_tests(missing)
            self.assertIn("left out: 1 labelled nvrtc: no libnvrtc.so.13 was found", said)
            self.assertIn("kernels", said.splitlines()[0])
            self.assertIn("out of 1", said)

    def test_with_the_library_they_run(self):
        library = os.path.join(self.folder.name, "libnvrtc.so.13")
        write(library)
        said = self.run_tests(library)
        self.assertNotIn("left out", said)
        self.assertIn("out of 2", said)

    def test_libtorchs_own_library_goes_first_then_that_of_the_venv(self):
        write(os.path.join(self.folder.name, "CMakeLists.txt"), PROJECT)
        places = ["nvidia/cu13/lib", *(f"{venv}/lib/python3.11/site-packages/nvidia/cu13/lib" for venv in (".venv", ".venv-cuda"))]
        libraries = [os.path.join(self.folder.name, place, "libnvrtc.so.13") for place in places]
        for library in libraries:
            write(library)
        for library in libraries:
            shutil.rmtree(self.build, ignore_errors=True)
            self.configure()
            self.assertTrue(os.path.samefile(self.environments()["kernels"][2].split("=")[1], library))
            os.remove(library)

    def test_only_tests_with_the_label_are_told_the_library(self):
        library = os.path.join(self.folder.name, "nvidia", "cu13", "lib", "libnvrtc.so.13")
        write(library)
        write(os.path.join(self.folder.name, "CMakeLists.txt"), PROJECT)
        self.configure()
        environment = self.environments()
        self.assertEqual(environment["plain"], ["A=1"])
        self.assertEqual(environment["kernels"][:2], ["A=1", "EMPTY="])
        name, found = environment["kernels"][2].split("=")
        self.assertEqual(name, "ORTHANT_NVRTC")
        self.assertTrue(os.path.samefile(found, library), found)


if __name__ == "__main__":
    unittest.main()
