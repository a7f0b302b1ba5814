"""tools/setup: which libtorch it takes on which machine, what it installs and what it leaves alone. Everything around it is a stub."""
import os
import shutil
import unittest

from setup_stubs import StubMachine, write

CUDA_PINS = ("torch==2.11.0", "nvidia-cuda-crt==13.0.88", "nvidia-cuda-cccl==13.0.85", "numpy==", "transformers==")


class Machine(unittest.TestCase):
    def setUp(self):
        self.machine = StubMachine()
        self.addCleanup(self.machine.close)

    def setup(self, *words, code=0, **environment):
        """Runs tools/setup; answers what it says."""
        finished = self.machine.run("tools/setup", *words, **environment)
        self.assertEqual(finished.returncode, code, finished.stdout + finished.stderr)
        return finished.stderr

    def plan(self, *words, **environment):
        """What a dry run prints, by its first word."""
        finished = self.machine.run("tools/setup", "--dry-run", *words, **environment)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertFalse(os.path.exists(self.machine.path(".venv")))
        self.assertEqual(self.machine.pip_calls(), [])
        return dict(line.split(": ", 1) for line in finished.stdout.splitlines())

    def holds_cuda(self, venv=".venv"):
        return os.path.exists(self.machine.path(f"{venv}/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so"))


class Choice(Machine):
    def check_cuda(self, plan, venv=".venv"):
        self.assertEqual(plan["libtorch"].split()[:2], ["cuda", venv])
        for pin in CUDA_PINS:
            self.assertIn(pin, plan["pip"])
        self.assertEqual(plan["pip"].count(" torch=="), 0)  # it is the first, and the only one

    def test_the_cpu_wheel_without_a_driver(self):
        plan = self.plan()
        self.assertEqual(plan["libtorch"], "cpu .venv")
        self.assertIn("torch==2.13.0", plan["pip"])
        self.assertIn("nvidia-cuda-nvrtc==13.0.88", plan["pip"])
        self.assertNotIn("nvidia-cuda-crt", plan["pip"])

    def test_the_cuda_wheel_with_a_driver(self):
        self.machine.set_driver("580.65.06")
        self.check_cuda(self.plan())
        self.check_cuda(self.plan("cuda"))

    def test_the_open_kernel_module_is_a_driver(self):
        self.machine.set_driver("580.65.06")
        write(os.path.join(self.machine.root, "proc/driver/nvidia/version"),
              "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  590.44  Release Build  (dvs-builder@U16)\n")
        self.check_cuda(self.plan())

    def test_a_container_without_a_device_has_no_driver(self):
        self.machine.set_driver("580.65.06", device=False)
        self.assertEqual(self.plan()["libtorch"], "cpu .venv")

    def test_nvidia_smi_tells_of_the_driver_too(self):
        self.machine.set_nvidia_smi("590.44.01\n590.44.01")
        self.check_cuda(self.plan())
        self.machine.set_nvidia_smi("NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver. 590.44.01 ", code=9)
        self.assertEqual(self.plan()["libtorch"], "cpu .venv")

    def test_a_driver_that_is_too_old_is_named_with_what_to_do(self):
        self.machine.set_driver("535.183.01")
        plan = self.plan()
        self.assertEqual(plan["libtorch"].split()[:2], ["cpu", ".venv"])
        for words in ("535.183.01 is too old", "update it to 580 or newer", "set TORCH_DIR"):
            self.assertIn(words, plan["libtorch"])
        self.assertIn("torch==2.13.0", plan["pip"])

    def test_preset_cuda_without_a_driver_has_a_venv_of_its_own(self):
        self.check_cuda(self.plan("cuda"), venv=".venv-cuda")
        self.machine.set_driver("535.183.01")
        self.check_cuda(self.plan("cuda"), venv=".venv-cuda")

    def test_torch_dir_goes_before_everything(self):
        folder = self.machine.install_torch("2.11.0", "13.0")
        os.mkdir(os.path.join(folder, "include"))
        self.machine.set_driver("580.65.06")
        plan = self.plan(TORCH_DIR=folder)
        self.assertEqual(plan["libtorch"], f"dir {folder}")
        self.assertNotIn("pip", plan)

    def test_an_unknown_option_is_refused(self):
        self.assertIn("unknown option --dry", self.setup("--dry", code=2))


class Installing(Machine):
    def test_nothing_is_done_twice(self):
        for driver in (None, "580.65.06"):
            self.machine.set_driver(driver)
            self.setup()
            self.assertEqual(len(self.machine.pip_calls()), 1)
            self.assertIn("ready:", self.setup())
            self.assertEqual(self.machine.pip_calls(), [])

    def test_a_venv_is_brought_over_when_a_driver_came(self):
        self.setup()
        self.assertFalse(self.holds_cuda())
        self.machine.set_driver("580.65.06")
        said = self.setup()
        self.assertIn("bringing .venv over from the CPU wheel to the CUDA wheel", said)
        self.assertIn("libtorch 2.11.0 in ", said)
        self.assertTrue(self.holds_cuda())

    def test_the_cuda_wheel_stays_when_the_driver_went(self):
        self.machine.set_driver("580.65.06")
        self.setup()
        self.machine.pip_calls()
        self.machine.set_driver(None)
        self.assertIn(".venv holds the CUDA wheel, which computes on the CPU too", self.setup())
        self.setup("cuda")
        self.assertEqual(self.machine.pip_calls(), [])
        self.machine.set_driver("535.183.01")
        self.assertIn("bringing .venv over from the CUDA wheel to the CPU wheel", self.setup())
        self.assertFalse(self.holds_cuda())

    def test_preset_cuda_leaves_the_other_venv_alone(self):
        self.setup()
        self.setup("cuda")
        self.assertFalse(self.holds_cuda())
        self.assertTrue(self.holds_cuda(".venv-cuda"))
        self.machine.pip_calls()
        self.setup()
        self.setup("cuda")
        self.assertEqual(self.machine.pip_calls(), [])

    def test_a_changed_pin_is_brought_up(self):
        self.setup()
        with open(self.machine.path("tools/requirements.txt"), "a") as file:
            file.write("another-package==1.0\n")
        self.machine.pip_calls()
        self.assertIn("bringing .venv up to tools/requirements", self.setup())
        self.assertEqual(len(self.machine.pip_calls()), 1)

    def test_a_venv_with_the_wheel_is_completed_not_emptied(self):
        self.setup("cuda")
        kept = self.machine.path(".venv-cuda/kept")
        write(kept)
        os.remove(self.machine.path(".venv-cuda/orthant-setup"))
        shutil.rmtree(self.machine.path(".venv-cuda/lib/python3.11/site-packages/numpy-2.4.6.dist-info"))
        self.assertIn("adding to .venv-cuda what it lacks", self.setup("cuda"))
        self.assertTrue(os.path.exists(kept))

    def test_a_link_is_never_emptied(self):
        kept = os.path.join(self.machine.folder.name, "elsewhere", "kept")
        write(kept)
        os.symlink(os.path.dirname(kept), self.machine.path(".venv-cuda"))
        self.assertIn("remove the link", self.setup("cuda", code=1))
        self.assertTrue(os.path.exists(kept))


class Offline(Machine):
    def test_an_installed_torch_with_cuda_is_taken(self):
        folder = self.machine.install_torch("2.12.1+cu130", "13.0")
        self.machine.set_driver("580.65.06")
        said = self.setup(PIP="offline")
        self.assertIn(f"taking the torch with CUDA in {folder}", said)
        self.assertIn(f"libtorch 2.12.1+cu130 in {folder}", said)
        self.assertFalse(os.path.exists(self.machine.path(".venv")))
        self.machine.pip_calls()
        self.assertIn("remove .torch_dir to try again", self.setup(PIP="offline"))
        self.assertEqual(self.machine.pip_calls(), [])

    def test_the_build_takes_it_too(self):
        folder = self.machine.install_torch("2.11.0+cu130", "13.0")
        self.setup("cuda", PIP="offline")
        finished = self.machine.run("tools/configure", "cuda")
        self.assertEqual(finished.returncode, 0, finished.stderr)
        with open(self.machine.path("build-cuda/configure.log")) as file:
            self.assertIn(f"-DTORCH_DIR:PATH={folder}", file.read().splitlines())

    def test_it_is_forgotten_when_it_is_gone(self):
        folder = self.machine.install_torch("2.11.0+cu130", "13.0")
        self.machine.set_driver("580.65.06")
        self.setup(PIP="offline")
        shutil.rmtree(folder)
        self.setup()
        self.assertTrue(self.holds_cuda())
        self.assertFalse(os.path.exists(self.machine.path(".torch_dir")))

    def test_it_serves_where_no_venv_can_be_made(self):
        folder = self.machine.install_torch("2.11.0+cu130", "13.0")
        self.machine.set_driver("580.65.06")
        python = os.path.join(self.machine.bin, "python3")
        with open(python) as file:
            text = file.read()
        write(python, text.replace('case "$*" in', 'case "$*" in\n  *ensurepip*) exit 1 ;;'), executable=True)
        self.assertIn(f"taking the torch with CUDA in {folder}", self.setup(PIP="offline"))

    def test_a_torch_too_old_or_without_cuda_is_not_taken(self):
        self.machine.set_driver("580.65.06")
        for version, cuda in (("2.10.0+cu130", "13.0"), ("2.13.0+cpu", None)):
            self.machine.install_torch(version, cuda)
            self.assertIn("pip could not install the cpu wheel", self.setup(PIP="offline", code=1))
            self.assertIn("pip could not install the cuda wheel", self.setup("cuda", PIP="offline", code=1))

    def test_the_cpu_wheel_serves_where_only_the_cuda_wheel_cannot_be_had(self):
        self.setup()
        self.machine.set_driver("580.65.06")
        said = self.setup(PIP="cpu_only")
        self.assertIn("going on with the CPU wheel", said)
        self.assertIn("libtorch 2.13.0 in ", said)
        self.machine.pip_calls()
        self.assertIn("remove build/setup.no-cuda to try again", self.setup(PIP="cpu_only"))
        self.assertEqual(self.machine.pip_calls(), [])
        os.remove(self.machine.path("build/setup.no-cuda"))
        self.setup()
        self.assertTrue(self.holds_cuda())


if __name__ == "__main__":
    unittest.main()
