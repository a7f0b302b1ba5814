"""cmake/OrthantTorch.cmake on folders that look like wheels: which libtorch it takes, and the flags that each kind needs."""
import os
import shutil
import subprocess
import tempfile
import unittest

from setup_stubs import SOURCE, write

# No compiler is asked: the file looks at names and versions only.
PROJECT = """cmake_minimum_required(VERSION 3.22)
project(flags NONE)
include(cmake/OrthantTorch.cmake)
foreach(kind COMPILE_OPTIONS LINK_OPTIONS COMPILE_DEFINITIONS)
  get_target_property(values orthant_torch INTERFACE_${kind})
  message(STATUS "${kind}: ${values}")
endforeach()
get_directory_property(everywhere COMPILE_OPTIONS)
message(STATUS "everywhere: ${everywhere}")
"""
CLANG = ("-DCMAKE_CXX_COMPILER_ID=Clang", "-DCMAKE_CXX_COMPILER_VERSION=19.1.7")
ABI = "-fclang-abi-compat=17"


class TorchCmake(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.tree = os.path.realpath(self.folder.name)
        os.mkdir(os.path.join(self.tree, "cmake"))
        shutil.copy(os.path.join(SOURCE, "cmake", "OrthantTorch.cmake"), os.path.join(self.tree, "cmake"))
        write(os.path.join(self.tree, "CMakeLists.txt"), PROJECT)

    def make_wheel(self, venv, version, cuda=False, headers=()):
        """A wheel's folder; `headers` are those of the nvidia packages beside it."""
        site = os.path.join(self.tree, venv, "lib", "python3.11", "site-packages")
        libraries = ["torch_cpu", "c10", *(["torch_cuda"] if cuda else [])]
        for name in ("include/ATen/ATen.h", "include/torch/csrc/distributed/c10d/ProcessGroupGloo.hpp", *(f"lib/lib{n}.so" for n in libraries)):
            write(os.path.join(site, "torch", name))
        major, minor = version.split(".")
        write(os.path.join(site, "torch/include/torch/headeronly/version.h"),
              f"#define TORCH_VERSION_MAJOR {major}\n#define TORCH_VERSION_MINOR {minor}\n#define TORCH_VERSION_PATCH 0\n")
        for name in headers:
            write(os.path.join(site, "nvidia", name))
        return os.path.join(site, "torch")

    def make_cuda_wheel(self, venv, version="2.11"):
        return self.make_wheel(venv, version, cuda=True, headers=("cu13/include/crt/host_config.h", "cu13/include/cccl/nv/target",
                                                                  "nccl/include/nccl.h"))

    def configure(self, *definitions, environment=()):
        build = os.path.join(self.tree, "build")
        shutil.rmtree(build, ignore_errors=True)
        kept = {name: value for name, value in os.environ.items() if name not in ("TORCH_DIR", "CUDA_HOME", "NCCL_HOME")}
        return subprocess.run(["cmake", "-S", self.tree, "-B", build, *definitions], env={**kept, **dict(environment)},
                              capture_output=True, text=True, timeout=60)

    def facts(self, *definitions, **more):
        """What was found: the status lines by their first word."""
        finished = self.configure(*definitions, **more)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        lines = [line[3:] for line in finished.stdout.splitlines() if line.startswith("-- ")]
        return {line.split()[0].rstrip(":"): line for line in lines}

    def test_the_preset_cuda_passes_over_a_wheel_without_cuda(self):
        cpu, cuda = self.make_wheel(".venv", "2.13"), self.make_cuda_wheel(".venv-cuda")
        self.assertIn(f"2.13 in {cpu} (CUDA OFF", self.facts()["libtorch"])
        self.assertIn(f"2.11 in {cuda} (CUDA ON, NCCL ON)", self.facts("-DORTHANT_CUDA=ON")["libtorch"])

    def test_the_preset_cuda_takes_a_venv_with_cuda(self):
        folder = self.make_cuda_wheel(".venv")
        self.assertIn(f"in {folder} (CUDA ON", self.facts("-DORTHANT_CUDA=ON")["libtorch"])

    def test_the_preset_cuda_without_a_cuda_wheel_says_what_to_run(self):
        cpu = self.make_wheel(".venv", "2.13")
        finished = self.configure("-DORTHANT_CUDA=ON")
        self.assertNotEqual(finished.returncode, 0)
        self.assertIn("Run tools/setup cuda", " ".join(finished.stderr.split()))
        finished = self.configure("-DORTHANT_CUDA=ON", environment={"TORCH_DIR": cpu}.items())
        self.assertIn("has no lib/libtorch_cuda.so", " ".join(finished.stderr.split()))

    def test_torch_dir_names_a_cuda_wheel_that_is_used_alike(self):
        self.make_wheel(".venv", "2.13")
        folder = self.make_cuda_wheel("elsewhere")
        facts = self.facts(*CLANG, environment={"TORCH_DIR": folder}.items())
        self.assertIn(f"in {folder} (CUDA ON, NCCL ON)", facts["libtorch"])
        self.assertIn(ABI, facts["COMPILE_OPTIONS"])
        self.assertIn("--allow-shlib-undefined", facts["LINK_OPTIONS"])
        self.assertIn("USE_C10D_NCCL", facts["COMPILE_DEFINITIONS"])

    def test_the_wheels_headers_go_before_a_toolkits(self):
        folder = self.make_cuda_wheel(".venv")
        toolkit = os.path.join(self.tree, "toolkit")
        for name in ("crt/host_config.h", "nv/target", "nccl.h"):
            write(os.path.join(toolkit, "include", name))
        options = self.facts(environment={"CUDA_HOME": toolkit}.items())["COMPILE_OPTIONS"]
        nvidia = os.path.join(os.path.dirname(folder), "nvidia")
        for name in ("cu13/include", "cu13/include/cccl", "nccl/include"):
            self.assertIn(f"-idirafter {nvidia}/{name}", options.replace("torch/../", ""))
        self.assertNotIn(toolkit, options)

    def test_a_toolkit_serves_where_the_wheel_lacks_headers(self):
        self.make_wheel(".venv", "2.13", cuda=True, headers=("nccl/include/nccl.h",))
        toolkit = os.path.join(self.tree, "toolkit")
        for name in ("crt/host_config.h", "nv/target"):
            write(os.path.join(toolkit, "include", name))
        facts = self.facts(environment={"CUDA_HOME": toolkit}.items())
        self.assertIn("NCCL ON", facts["libtorch"])
        self.assertIn(f"-idirafter {toolkit}/include", facts["COMPILE_OPTIONS"])

    def test_headers_that_are_missing_are_named_with_what_brings_them(self):
        self.make_wheel(".venv", "2.11", cuda=True, headers=("cu13/include/crt/host_config.h", "nccl/include/nccl.h"))
        facts = self.facts()
        self.assertIn("CUDA ON, NCCL OFF", facts["libtorch"])
        self.assertIn("pip install nvidia-cuda-cccl", facts["Building"])

    def test_only_clang_with_libtorch_2_11_takes_the_older_names(self):
        self.make_wheel(".venv", "2.11")
        facts = self.facts(*CLANG)
        self.assertIn(ABI, facts["COMPILE_OPTIONS"])
        self.assertIn(ABI, facts["everywhere"])
        self.assertNotIn(ABI, self.facts("-DCMAKE_CXX_COMPILER_ID=GNU", "-DCMAKE_CXX_COMPILER_VERSION=13")["COMPILE_OPTIONS"])
        self.assertNotIn(ABI, self.facts(CLANG[0], "-DCMAKE_CXX_COMPILER_VERSION=17.0")["COMPILE_OPTIONS"])
        self.make_wheel(".venv", "2.13")
        self.assertNotIn(ABI, self.facts(*CLANG)["COMPILE_OPTIONS"])

    def test_a_libtorch_without_cuda_gets_no_flags_for_it(self):
        self.make_wheel(".venv", "2.13")
        self.assertNotIn("--allow-shlib-undefined", self.facts()["LINK_OPTIONS"])


if __name__ == "__main__":
    unittest.main()
