#!/usr/bin/env python3
"""Somebody who is no member of a job and tries to disturb it: one kind of attack, some times over, on the ports of node 0.

    stranger.py KIND HOST COUNT PORT...

The first port is the launchers' rendezvous, the others what node 0 listens on besides. Run as another user, or on another host. Says `ready`
when it begins (an impostor: when it listens), then how each attempt ended as soon as it has."""
import hashlib
import hmac
import json
import os
import random
import socket
import struct
import sys
import threading
import time

MAGIC = b"orthant\0"
HEAD, NONCE, PROOF = 12, 32, 32
NODE, STORE = 1, 2
WITH_TOKEN, OPEN = 1, 2
KINDS = ("no-token", "wrong-token", "replayed", "half-open", "garbage", "flood", "slow", "impostor-first", "impostor-late", "node-twice",
         "store-commands", "oversized")
LIES = [{"hello": "orthant", "version": v, "node_rank": 1, "num_nodes": 2, "num_ranks": 1, "run_id": "none", "max_restarts": 0, "min_nodes": 2}
        for v in (1, 2, 3)] + [
    {"failed": "\x1b[2Jall is well", "node": 1, "rank": 1, "exit_code": 0}, {"end": 0},
    {"world_size": 1, "rank_offset": 0, "master_address": "127.0.0.1", "master_port": 1}, {"refused": "go away"}]
LINES = b"".join(json.dumps(lie).encode() + b"\n" for lie in LIES)


def head(mode, purpose, last=0):
    return MAGIC + bytes((1, mode, purpose, last))


def proof(token, role, purpose, server, client):
    return hmac.new(token, MAGIC + bytes((1, role, purpose)) + server + client, hashlib.sha256).digest()


def answer(challenge, token, purpose):
    """The 76 bytes of a client with this token; None: one that says it needs none."""
    own = os.urandom(NONCE)
    made = bytes(PROOF) if token is None else proof(token, 1, purpose, challenge[HEAD:], own)
    return head(OPEN if token is None else WITH_TOKEN, purpose) + own + made


def receive(connection, size):
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            break
        data += piece
    return data


def outcome(connection):
    """What becomes of a connection on which everything was said: closed, or something was told."""
    try:
        rest = b""
        while piece := connection.recv(4096):
            rest += piece
    except ConnectionError:
        pass
    except socket.timeout:
        return "still open"
    verdict = rest[:HEAD + PROOF]
    welcome = len(verdict) == HEAD + PROOF and verdict.startswith(MAGIC) and verdict[HEAD - 1] == 0
    return "welcomed" if welcome or len(rest) > HEAD + PROOF else "closed"


class Stranger:
    def __init__(self, host, ports):
        self.host, self.ports = host, ports
        self.turn = 0

    def connect(self, port=None, timeout=20, source=""):
        connection = socket.create_connection((self.host, port or self.ports[0]), timeout=timeout, source_address=(source, 0))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def purpose(self):
        return (NODE, STORE)[self.turn % 2]

    def with_frame(self, make, more=LINES):
        """One attempt at every port: whatever `make` makes of the challenge, and lines of the launchers' language."""
        ends = []
        for port in self.ports:
            with self.connect(port) as connection:
                challenge = receive(connection, HEAD + NONCE)
                try:
                    connection.sendall(make(challenge) + more)
                    ends.append(outcome(connection))
                except ConnectionError:
                    ends.append("closed")
        return ",".join(sorted(set(ends)))

    def no_token(self):
        return self.with_frame(lambda challenge: answer(challenge, None, self.purpose()))

    def wrong_token(self):
        return self.with_frame(lambda challenge: answer(challenge, os.urandom(32), self.purpose()))

    def replayed(self):
        """What a member said before, as somebody on the wire has it; then what the server itself said, turned back."""
        recorded = bytes.fromhex(os.environ["STRANGER_RECORDED"])
        ends = {self.with_frame(lambda challenge: recorded)}
        ends.add(self.with_frame(lambda challenge: recorded[:HEAD] + challenge[HEAD:] + recorded[HEAD + NONCE:]))
        return ",".join(sorted(ends))

    def half_open(self):
        """Connects and says nothing, or only half of what is expected, until it is sent away."""
        connections = [self.connect(port) for port in self.ports]
        for connection in connections:
            receive(connection, HEAD + NONCE)
            if self.turn % 2:
                connection.sendall(head(WITH_TOKEN, NODE))
        return ",".join(sorted({outcome(connection) for connection in connections}))

    def garbage(self):
        texts = [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(200), LINES, os.urandom(5000),
                 b"\0" * 100, b"SSH-2.0-OpenSSH_9.2\r\n", b"\n" * 300]
        return self.with_frame(lambda challenge: texts[self.turn % len(texts)], more=b"")

    def flood(self):
        """As many connections at once as it may have, most of them held; where STRANGER_NETWORKS says so, from a network of its own each."""
        held = []
        networks = int(os.environ.get("STRANGER_NETWORKS", 0))
        for i in range(400):
            source = f"127.{i % networks // 250 + 1}.{i % networks % 250}.1" if networks else ""
            try:
                connection = self.connect(self.ports[i % len(self.ports)], timeout=2, source=source)
            except OSError:
                continue
            if i % 3 == 0:
                connection.close()
            else:
                held.append(connection)
        for connection in held:
            connection.close()
        return "closed"

    def slow(self):
        """An answer that would take half a minute."""
        with self.connect(random.choice(self.ports)) as connection:
            receive(connection, HEAD + NONCE)
            try:
                for byte in head(WITH_TOKEN, NODE) + os.urandom(NONCE + PROOF):
                    connection.sendall(bytes((byte,)))
                    time.sleep(0.4)
            except ConnectionError:
                return "closed"
            return outcome(connection)

    def impostor_first(self):
        """Listens where node 0 is expected and answers whoever comes, each in another way; leaves after some."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((self.host, self.ports[0]))
        listener.listen()
        listener.settimeout(20)
        print("ready", flush=True)
        with listener:
            connection, _ = listener.accept()
        with connection:
            connection.settimeout(10)
            way = self.turn % 4
            try:
                if way == 0:  # the language without proofs
                    connection.sendall(LINES)
                    return "heard" if receive(connection, 1) else "closed"
                token, nonce = os.urandom(32), os.urandom(NONCE)
                connection.sendall(head(OPEN if way == 1 else WITH_TOKEN, 0) + nonce)
                said = receive(connection, HEAD + NONCE + PROOF)
                if way == 1:
                    return "heard" if said else "closed"
                # Welcomes anybody, with a proof of its own or with the client's own words.
                made = proof(token, 2, NODE, nonce, said[HEAD:HEAD + NONCE]) if way == 2 else said[HEAD + NONCE:]
                connection.sendall(head(WITH_TOKEN, NODE) + made)
                return "heard" if receive(connection, 1) else "closed"
            except ConnectionError:
                return "closed"

    def impostor_late(self):
        """Wants the ports of a running job for itself, and says to node 0 that it is another node."""
        taken = 0
        for port in self.ports:
            for address in (self.host, "0.0.0.0", "127.0.0.1"):
                for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
                    with socket.socket() as listener:
                        listener.setsockopt(socket.SOL_SOCKET, option, 1)
                        listener.settimeout(0.05)
                        try:
                            listener.bind((address, port))
                            listener.listen()
                            connection, _ = listener.accept()
                            connection.close()
                            taken += 1
                        except OSError:
                            pass
        end = self.with_frame(lambda challenge: answer(challenge, os.urandom(32), self.purpose()))
        return f"took {taken} connections" if taken else end

    def node_twice(self):
        """Says that it is node 1, which is there."""
        return self.with_frame(lambda challenge: answer(challenge, os.urandom(32), NODE), more=LINES[:LINES.index(b"\n") + 1])

    def store_commands(self):
        """Sets, adds, deletes and waits, in the languages of both stores, without a proof."""
        texts = []
        for code in range(12):  # length, request, command, then texts with their lengths
            body = struct.pack("<QB", self.turn, code) + struct.pack("<I", 9) + b"arrived/1" + struct.pack("<I", 4) + b"evil"
            texts.append(struct.pack("<I", len(body)) + body)
        texts.append(b"\x00" + struct.pack("<I", 0x3C85F7CE) + b"\x01" + struct.pack("<Q", 9) + b"arrived/1" + struct.pack("<Q", 4) + b"evil")
        return self.with_frame(lambda challenge: texts[self.turn % len(texts)] * 3, more=b"")

    def oversized(self):
        sizes = (77, 4097, 1 << 16, 1 << 20, 8 << 20)
        start = head(WITH_TOKEN, NODE) if self.turn % 2 else b"\xff" * 8
        return self.with_frame(lambda challenge: start + bytes(sizes[self.turn % len(sizes)]), more=b"")


def main():
    kind, host, count, *ports = sys.argv[1:]
    stranger = Stranger(host, [int(port) for port in ports])
    attempt = getattr(stranger, kind.replace("-", "_"))
    one_by_one = kind not in ("slow", "half-open")
    if kind != "impostor-first":
        print("ready", flush=True)
    threads = []
    for turn in range(int(count)):
        stranger.turn = turn
        if one_by_one:
            print(attempt(), flush=True)
            continue
        one = Stranger(host, stranger.ports)  # those who take their time do so together
        one.turn = turn
        threads.append(threading.Thread(target=lambda one=one: print(getattr(one, kind.replace("-", "_"))() + "\n", end="", flush=True)))
        threads[-1].start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
