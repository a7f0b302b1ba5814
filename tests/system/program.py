"""What the system tests share: where the program is, running it, and looking at the processes it leaves."""
import contextlib
import glob
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from warm_program import WarmProgram

ORTHANT = os.environ.get("ORTHANT", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build", "bin", "orthant"))
SOURCE = os.environ.get("ORTHANT_SOURCE", os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = os.environ.get("ORTHANT_BUILD", os.path.join(SOURCE, "build"))

# Variables of a launcher that may have started the tests themselves must not reach the program under test.
FOREIGN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "OMPI_", "PMI_", "PMIX_", "SLURM_", "PALS_", "JSM_")


def clean_environment(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    return {**kept, **{k: str(v) for k, v in more.items()}}


FORK_SERVER = os.path.join(BUILD, "tests", "libfork_server.so")
_starting = threading.Lock()
_warm = None


def warm_orthant():
    """The loaded program; None where it was not built."""
    global _warm
    with _starting:
        if _warm is None and os.path.exists(FORK_SERVER):
            _warm = WarmProgram(ORTHANT, [FORK_SERVER], clean_environment())
        return _warm


def run(*words, timeout=60, env=None, cwd=None, given=None, **options):
    """Runs a command to its end; returns the finished process with text output, or bytes where bytes are given for stdin. Our own program comes
    from a loaded one where that makes no difference."""
    words, environment = [str(word) for word in words], env or clean_environment()
    options = {name: value for name, value in options.items() if value is not None}
    if words[0] == ORTHANT and not options:
        warm = warm_orthant()
        if warm and warm.can_run(environment):
            return warm.run(words, cwd, environment, timeout, given)
    return subprocess.run(words, capture_output=True, text=given is None, timeout=timeout, env=environment, cwd=cwd, input=given,
                          stdin=subprocess.DEVNULL if given is None else None, **options)


def orthant(*words, **options):
    return run(ORTHANT, *words, **options)


def only_json(test, finished):
    """The one JSON document that is all of stdout."""
    test.assertEqual(finished.returncode, 0, finished.stderr)
    return json.loads(finished.stdout)


def children(pid):
    """Process numbers of a process' children, in the order they were started."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(word) for word in f.read().split()]
    except OSError:
        return []


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def sockets_of(pids):
    """Inodes of the sockets these processes hold."""
    found = set()
    for path in (path for pid in pids for path in glob.glob(f"/proc/{pid}/fd/*")):
        with contextlib.suppress(OSError):  # closed since it was listed
            link = os.readlink(path)
            found |= {link[len("socket:["):-1]} if link.startswith("socket:[") else set()
    return found


def listening():
    """Address by inode of every listening TCP socket."""
    found = {}
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path) as f:
                found.update({w[9]: w[1].rsplit(":", 1)[0] for w in (line.split() for line in f.readlines()[1:]) if w[3] == "0A"})
        except OSError:
            pass
    return found


def free_port(host="127.0.0.1"):
    with socket.create_server((host, 0)) as probe:
        return probe.getsockname()[1]


def wait_until(condition, seconds):
    """True as soon as the condition holds, False when it did not within the time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.002)
    return condition()


def python():
    return sys.executable


class FolderTest(unittest.TestCase):
    """A test with a folder of its own, which goes away with it."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)
