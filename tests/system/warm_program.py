"""A program that is loaded once and started often: fork_server.cpp makes each process from one that is loaded."""
import array
import contextlib
import io
import os
import selectors
import signal
import socket
import struct
import subprocess
import threading
import time

# Variables that are read while a program is loaded: a process that needs others is started as ever.
READ_WHEN_LOADED = ("LD_", "MALLOC_", "GLIBC_", "OMP_", "GOMP_", "KMP_", "MKL_", "ATEN_", "TORCH_", "CUDA_", "ASAN_", "UBSAN_")


def loaded_with(environment):
    return {key: value for key, value in environment.items() if key.startswith(READ_WHEN_LOADED)}


def stream_of(data):
    """A pipe's end from which this comes, written by a thread; an empty stream for None."""
    if data is None:
        return open(os.devnull, "rb")
    from_here, to_here = os.pipe()

    def write():
        with contextlib.suppress(BrokenPipeError), open(to_here, "wb") as stream:
            stream.write(data)
    threading.Thread(target=write, daemon=True).start()
    return open(from_here, "rb", 0)


class WarmProgram:
    def __init__(self, path, libraries, environment):
        self.path, self.loaded_with = path, loaded_with(environment)
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.lock = threading.Lock()
        with theirs:
            self.server = subprocess.Popen([path], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                                           env={**environment, "LD_PRELOAD": " ".join(libraries), "FORK_SERVER": str(theirs.fileno())})

    def can_run(self, environment):
        return loaded_with(environment) == self.loaded_with and self.server.poll() is None

    def run(self, words, cwd, environment, timeout, given=None):
        """As subprocess.run with captured output: text, or bytes where bytes are given for stdin."""
        out, err, answers = os.pipe(), os.pipe(), socket.socketpair()
        with answers[0], open(out[0], "rb", 0) as out_read, open(err[0], "rb", 0) as err_read:
            with answers[1], open(out[1], "wb", 0), open(err[1], "wb", 0), stream_of(given) as stdin:
                strings = [cwd or os.getcwd(), str(len(words)), *words, *(f"{key}={value}" for key, value in environment.items())]
                fds = array.array("i", [stdin.fileno(), out[1], err[1], answers[1].fileno()])
                with self.lock:
                    self.socket.sendmsg([b"".join(os.fsencode(text) + b"\0" for text in strings)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
            code, *streams = self.finished(words, answers[0], out_read, err_read, timeout)
        if given is None:
            streams = [io.TextIOWrapper(io.BytesIO(stream)).read() for stream in streams]
        return subprocess.CompletedProcess(words, code, *streams)

    @staticmethod
    def finished(words, answers, out, err, timeout):
        """Exit code and the bytes of both streams."""
        read = {out: b"", err: b"", answers: b""}
        deadline = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            for stream in read:
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    os.kill(struct.unpack_from("i", read[answers])[0], signal.SIGKILL)
                    raise subprocess.TimeoutExpired(words, timeout, read[out], read[err])
                for key, _ in ready:
                    stream = key.fileobj
                    piece = stream.recv(1 << 16) if stream is answers else stream.read(1 << 16)
                    read[stream] += piece
                    if not piece:
                        selector.unregister(stream)
        if len(read[answers]) != 8:
            raise RuntimeError(f"the fork server of {words[0]} ended")
        return os.waitstatus_to_exitcode(struct.unpack("ii", read[answers])[1]), read[out], read[err]
