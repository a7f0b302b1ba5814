"""Where ranks of one host meet: no port, nobody of another user, no question to a name server."""
import os
import signal
import socket
import struct
import subprocess
import unittest

from program import (ORTHANT, FolderTest, children, clean_environment, free_port, is_alive, listening, orthant, run, sockets_of,
                     wait_until)

ENDLESS = ["bench", "comm", "--max-bytes", "4KiB", "--rounds", "100000"]
STRANGER = 65534


def descendants(pid):
    found = [pid]
    for child in children(pid):
        found += descendants(child)
    return found


def shared_memories(pid):
    """How many ranks' memories a process has mapped."""
    try:
        with open(f"/proc/{pid}/maps") as f:
            return len({line.split()[4] for line in f if "memfd:orthant " in line})
    except OSError:
        return 0


def meeting_places():
    """Names of the Unix-domain sockets of ours that somebody listens at."""
    with open("/proc/net/unix") as f:
        lines = [line.split() for line in f.readlines()[1:]]
    return [words[7][1:] for words in lines if len(words) > 7 and words[7].startswith("@orthant-") and int(words[3], 16) & 0x10000]


class Jobs(unittest.TestCase):
    """Starting jobs and looking at their processes."""

    def end(self, process):
        """By SIGTERM first: a launcher that is killed outright, such as mpirun, would leave its ranks running."""
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def start(self, *words, **options):
        process = subprocess.Popen([str(w) for w in words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   text=True, env=clean_environment(OMPI_MCA_plm="isolated"), **options)
        self.addCleanup(process.stderr.close)
        self.addCleanup(self.end, process)
        return process

    def wait_for_ranks(self, processes, count):
        """The ranks among these processes and their descendants, once each has mapped the memory of all."""
        def ranks():
            return [p for top in processes for p in descendants(top.pid) if shared_memories(p) == count]
        self.assertTrue(wait_until(lambda: len(ranks()) == count, 60), [p.stderr.read() for p in processes if p.poll() is not None])
        return ranks()

    def assert_no_listener(self, processes):
        held = sockets_of([p for top in processes for p in descendants(top.pid)])
        self.assertEqual({inode: at for inode, at in listening().items() if inode in held}, {})


class OneHost(Jobs):
    def test_ranks_that_we_fork_open_no_port(self):
        job = self.start(ORTHANT, *ENDLESS, "--mesh", "dp=3")
        self.wait_for_ranks([job], 3)
        self.assert_no_listener([job])

    def test_ranks_that_we_execute_open_no_port(self):
        job = self.start(ORTHANT, "launch", "--nproc", 2, "--", ORTHANT, *ENDLESS)
        self.wait_for_ranks([job], 2)
        self.assert_no_listener([job])

    def test_a_wrapper_script_passes_the_connection_on(self):
        finished = orthant("launch", "--nproc", 2, "--", "sh", "-c", f"{ORTHANT} doctor --mesh dp=2; exit $?")
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertIn("All groups agree", finished.stdout)

    def test_ranks_given_by_flags_open_no_port(self):
        place = f"127.0.0.1:{free_port()}"
        job = [self.start(ORTHANT, *ENDLESS, "--rank", r, "--world-size", 2, "--rendezvous", place) for r in (1, 0)]
        self.wait_for_ranks(job, 2)
        self.assert_no_listener(job)
        self.assertEqual(meeting_places(), [], "nobody can come any more")

    def test_gloo_listens_on_loopback_alone(self):
        job = self.start(ORTHANT, *ENDLESS, "--mesh", "dp=2", "--backend", "gloo")

        def addresses():
            held = sockets_of(descendants(job.pid))
            return [at for inode, at in listening().items() if inode in held]
        self.assertTrue(wait_until(lambda: len(addresses()) == 2, 60), job.poll())
        self.assertEqual(set(addresses()), {"0100007F"})

    def test_gloo_is_on_loopback_where_ranks_meet_there(self):
        # Two ranks that are told nothing about being on one host.
        place = f"127.0.0.1:{free_port()}"
        job = [self.start(ORTHANT, *ENDLESS, "--backend", "gloo", "--rank", r, "--world-size", 2, "--local-rank", 0,
                          "--local-world-size", 1, "--rendezvous", place, "--no-token") for r in (0, 1)]

        def addresses():
            held = sockets_of([p.pid for p in job])
            return [at for inode, at in listening().items() if inode in held]
        self.assertTrue(wait_until(lambda: len(addresses()) >= 3, 60), [p.poll() for p in job])
        self.assertEqual(set(addresses()), {"0100007F"})

    def test_a_dead_launcher_is_no_mystery_to_its_ranks(self):
        job = self.start(ORTHANT, *ENDLESS, "--mesh", "dp=2")
        ranks = self.wait_for_ranks([job], 2)
        job.send_signal(signal.SIGKILL)
        self.assertTrue(wait_until(lambda: not any(is_alive(p) for p in ranks), 10))


class OpenMpi(Jobs):
    def test_ranks_of_mpirun_open_no_port(self):
        job = self.start("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", 2, ORTHANT, *ENDLESS)
        ranks = self.wait_for_ranks([job], 2)
        held = sockets_of(ranks)
        self.assertEqual({inode: at for inode, at in listening().items() if inode in held}, {})


class Names(FolderTest):
    """No name server is asked: its death costs nothing."""

    SHIM = r"""
#include <dlfcn.h>
#include <netdb.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
static void note(const char* call, const char* host) {
  FILE* file = fopen(getenv("NAMES_ASKED"), "a");
  if (file) { fprintf(file, "%s %s\n", call, host); fclose(file); }
}
extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints, addrinfo** found) {
  using Real = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static Real real = (Real)dlsym(RTLD_NEXT, "getaddrinfo");
  unsigned char bytes[16];
  if (host && inet_pton(AF_INET, host, bytes) != 1 && inet_pton(AF_INET6, host, bytes) != 1) note("getaddrinfo", host);
  return real(host, service, hints, found);
}
extern "C" int getnameinfo(const sockaddr* a, socklen_t n, char* h, socklen_t hn, char* s, socklen_t sn, int flags) {
  using Real = int (*)(const sockaddr*, socklen_t, char*, socklen_t, char*, socklen_t, int);
  static Real real = (Real)dlsym(RTLD_NEXT, "getnameinfo");
  if (h && hn && !(flags & NI_NUMERICHOST)) note("getnameinfo", "");
  return real(a, n, h, hn, s, sn, flags);
}
"""

    def asked(self, *words):
        with open(self.path("shim.cpp"), "w") as f:
            f.write(self.SHIM)
        shim, log = self.path("shim.so"), self.path("asked")
        compiler = os.environ.get("ORTHANT_CXX", "c++")
        self.assertEqual(run(compiler, "-shared", "-fPIC", "-o", shim, self.path("shim.cpp"), "-ldl").returncode, 0)
        finished = orthant(*words, env=clean_environment(LD_PRELOAD=shim, NAMES_ASKED=log))
        self.assertEqual(finished.returncode, 0, finished.stderr)
        return open(log).read() if os.path.exists(log) else ""

    def test_of_ranks_that_share_memory(self):
        self.assertEqual(self.asked("bench", "startup", "--mesh", "dp=2"), "")

    def test_of_ranks_that_use_gloo(self):
        self.assertEqual(self.asked("bench", "startup", "--mesh", "dp=2", "--backend", "gloo"), "")


class Strangers(Jobs):
    """Processes of another user beside a job of root. Needs root to become somebody else."""

    MEETING = "orthant-0-flags-port-{}"

    def stranger(self, work, *arguments):
        """Runs work(say, *arguments) as another user; returns its number and what it says."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.setgroups([])
                os.setgid(STRANGER)
                os.setuid(STRANGER)
                work(lambda text: os.write(writing, f"{text}\n".encode()), *arguments)
            finally:
                os._exit(0)
        os.close(writing)
        said = os.fdopen(reading)
        self.addCleanup(said.close)
        self.addCleanup(os.waitpid, pid, 0)
        self.addCleanup(os.kill, pid, signal.SIGKILL)
        return pid, said

    def rank(self, number, port):
        return self.start(ORTHANT, "doctor", "--mesh", "dp=2", "--timeout", 30, "--rank", number, "--world-size", 2, "--rendezvous",
                          f"127.0.0.1:{port}")

    def test_cannot_enter_the_store(self):
        port = 29781
        first = self.rank(0, port)
        self.assertTrue(wait_until(lambda: self.MEETING.format(port) in meeting_places(), 30))

        def knock(say, name):
            for text in (struct.pack("<ii", 1, 2), b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 4096, b""):
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
                    s.connect("\0" + name)
                    s.settimeout(20)
                    try:
                        s.sendall(text)
                        say(len(s.recv(100)))
                    except OSError:
                        say(0)
        pid, said = self.stranger(knock, self.MEETING.format(port))
        self.assertEqual(said.read().split(), ["0"] * 4, "not one byte for a stranger")
        second = self.rank(1, port)
        errors = [p.communicate(timeout=60)[1] for p in (first, second)]
        self.assertEqual([first.returncode, second.returncode], [0, 0], errors)
        self.assertEqual(errors[0].count("turned away"), 1, errors[0])
        self.assertIn(f"the ranks' store turned away process {pid} of user {STRANGER}", errors[0])

    def meet_beside(self, port, squat):
        """What ranks 1 and 0 say that meet where a stranger was first, and the stranger's number."""
        pid, said = self.stranger(squat, self.MEETING.format(port))
        self.assertEqual(said.readline(), "ready\n")
        job = [self.rank(r, port) for r in (1, 0)]
        errors = [p.communicate(timeout=60)[1] for p in job]
        self.assertEqual([p.returncode for p in job], [0, 0], errors)
        return errors, pid

    def test_who_takes_the_name_first_is_named_and_keeps_nobody_from_meeting(self):
        def squat(say, name):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
                s.bind("\0" + name)
                s.listen(100)
                say("ready")
                while True:
                    try:
                        with s.accept()[0] as visitor:
                            visitor.sendall(b"y" * 100)
                    except OSError:
                        pass  # who has seen enough hangs up
        errors, pid = self.meet_beside(29782, squat)
        for text in errors:
            self.assertEqual(text.count(f"process {pid} of user {STRANGER} listens at the meeting place"), 1, errors)

    def test_who_takes_the_name_and_leaves_again_keeps_nobody_from_meeting(self):
        def squat(say, name):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
                s.bind("\0" + name)
                s.listen(100)
                say("ready")
                s.accept()
                s.accept()
        self.meet_beside(29783, squat)

    def test_who_takes_the_name_and_answers_nobody_keeps_nobody_from_meeting(self):
        def squat(say, name):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
                s.bind("\0" + name)
                say("ready")
                signal.pause()
        self.meet_beside(29784, squat)

    def test_find_nothing_to_connect_to_beside_ranks_of_our_own(self):
        job = self.start(ORTHANT, *ENDLESS, "--mesh", "dp=2")
        ranks = self.wait_for_ranks([job], 2)
        with open("/proc/net/unix") as f:
            named = {words[6] for words in map(str.split, f.readlines()[1:]) if len(words) > 7}
        self.assertEqual(sockets_of([job.pid, *ranks]) & named, set())
        self.assert_no_listener([job])

        def look(say, *pids):
            for pid in pids:
                try:
                    say(len(os.listdir(f"/proc/{pid}/fd")))
                except PermissionError:
                    say("refused")
        said = self.stranger(look, job.pid, *ranks)[1]
        self.assertEqual(said.read().split(), ["refused"] * 3)


if __name__ == "__main__":
    unittest.main()
