"""A tree and a machine for tools/setup that hold nothing but stubs: nothing is downloaded, and what the real machine has does not show.

The stub of python3 makes virtual environments and obeys pip: it writes what the torch wheels leave in a folder, and counts its calls.
"""
import os
import shutil
import subprocess
import sys
import tempfile

SOURCE = os.environ.get("ORTHANT_SOURCE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

# PIP: `offline` finds nothing, `cpu_only` has no CUDA wheel. SITE: a folder with an installed torch.
PYTHON = f"""#!/bin/bash
case "$*" in
  *'import os, torch'*) PYTHONPATH=$SITE exec {sys.executable} -S "$@" ;;
  *sys.version_info*) echo 3.11 ;;
  '-m venv --clear '*) rm -rf "$4"; mkdir -p "$4/bin"; cp "$0" "$4/bin/python" ;;
  '-m pip install '*)
    pins=$(grep -v '^#' "${{@: -1}}")
    echo "$0 $pins" >> "$CALLS"
    if [[ $PIP == offline || $PIP == cpu_only && $pins == *cuda-crt* ]]; then
      echo 'ERROR: No matching distribution found for torch'
      exit 1
    fi
    site=${{0%/bin/python}}/lib/python3.11/site-packages
    rm -rf "$site"
    mkdir -p "$site/torch/lib" "$site/torch/include"
    touch "$site/torch/lib/libtorch_cpu.so" "$site/torch/lib/libc10.so"
    [[ $pins != *cuda-crt* ]] || touch "$site/torch/lib/libtorch_cuda.so"
    while IFS='=' read -r name _ version; do
      mkdir "$site/${{name//-/_}}-$version.dist-info"
      touch "$site/${{name//-/_}}-$version.dist-info/RECORD"
      [[ $name != torch ]] || echo "__version__ = '$version'" > "$site/torch/version.py"
    done <<< "$pins" ;;
esac
"""
COMMANDS = ("bash", "cat", "chmod", "cp", "cut", "dirname", "env", "grep", "mkdir", "mv", "readlink", "rm", "tail", "timeout", "touch", "tr")
HEADERS = ("nlohmann/json.hpp", "CLI/CLI.hpp", "fmt/format.h", "spdlog/spdlog.h", "gtest/gtest.h")


def write(path, text="", executable=False):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    if executable:
        os.chmod(path, 0o755)


class StubMachine:
    """A tree with the real tools/setup, and the environment to run it in."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.tree, self.bin, self.root = (os.path.join(self.folder.name, name) for name in ("tree", "bin", "root"))
        self.calls = os.path.join(self.folder.name, "calls")
        for name in ("setup", "libtorch", "compiler", "configure", "requirements.txt", "requirements-cuda.txt"):
            os.makedirs(os.path.join(self.tree, "tools"), exist_ok=True)
            shutil.copy(os.path.join(SOURCE, "tools", name), os.path.join(self.tree, "tools", name))
        write(self.path("tools/material"), "#!/bin/bash\n", executable=True)
        for name in COMMANDS:
            os.makedirs(self.bin, exist_ok=True)
            os.symlink(shutil.which(name), os.path.join(self.bin, name))
        for name in ("make", "ninja", "clang++-19"):
            write(os.path.join(self.bin, name), "#!/bin/bash\n", executable=True)
        write(os.path.join(self.bin, "cmake"), "#!/bin/bash\nprintf '%s\\n' \"$@\"\n", executable=True)
        write(os.path.join(self.bin, "python3"), PYTHON, executable=True)
        for name in HEADERS:
            write(os.path.join(self.folder.name, "include", name))
        self.environment = {"PATH": self.bin, "HOME": self.folder.name, "CPATH": os.path.join(self.folder.name, "include"),
                            "ORTHANT_DRIVER_ROOT": self.root, "CALLS": self.calls, "PIP": "", "SITE": ""}

    def close(self):
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.tree, name)

    def run(self, *words, **environment):
        return subprocess.run([self.path(words[0]), *words[1:]], env={**self.environment, **environment}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60)

    def pip_calls(self):
        """The pins of every call of pip since the last question."""
        if not os.path.exists(self.calls):
            return []
        with open(self.calls) as file:
            calls = [call for call in file.read().split(self.folder.name) if call]
        os.remove(self.calls)
        return calls

    def set_driver(self, version, device=True):
        """The driver as the kernel tells of it; None takes it away."""
        shutil.rmtree(self.root, ignore_errors=True)
        if version:
            write(os.path.join(self.root, "proc/driver/nvidia/version"),
                  f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Sun Jul 20 20:50:50 UTC 2025\nGCC version:  gcc version 12.3.0\n")
            if device:
                write(os.path.join(self.root, "dev/nvidia0"))

    def set_nvidia_smi(self, text, code=0):
        write(os.path.join(self.bin, "nvidia-smi"), f"#!/bin/bash\necho '{text}'\nexit {code}\n", executable=True)

    def install_torch(self, version, cuda):
        """A torch that python3 imports; answers its folder."""
        folder = os.path.join(self.folder.name, "site", "torch")
        write(os.path.join(folder, "__init__.py"), f"import types\n__version__ = '{version}'\nversion = types.SimpleNamespace(cuda={cuda!r})\n")
        write(os.path.join(folder, "version.py"), f"__version__ = '{version}'\n")
        write(os.path.join(folder, "lib", "libtorch_cpu.so"))
        if cuda:
            write(os.path.join(folder, "lib", "libtorch_cuda.so"))
        self.environment["SITE"] = os.path.dirname(folder)
        return folder
