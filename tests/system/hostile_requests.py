"""Requests that no honest client sends, each with the statuses that are a proper answer to it. All of them are made from a random number."""
import json
import socket
import struct
import time

from serving import CHAT, TEXT

GOOD = json.dumps({"prompt": "a word", "max_tokens": 2})
SECONDS = 30  # until a server that says nothing has failed


def head(path=TEXT, method="POST", headers=("Content-Type: application/json",), host="Host: localhost", version="HTTP/1.1"):
    return "\r\n".join([f"{method} {path} {version}", *([host] if host else []), *headers]).encode() + b"\r\n"


def post(body, path=TEXT, headers=("Content-Type: application/json",), length=None):
    data = body if isinstance(body, bytes) else body.encode()
    return head(path, headers=headers) + b"Content-Length: %d\r\n\r\n" % (len(data) if length is None else length) + data


def sizes(rng):
    """Too long lines, too many headers, bodies of wrong, forged and absurd sizes."""
    return rng.choice((
        (b"GET /" + b"a" * rng.randint(8200, 100000) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", (414,)),
        (head(headers=[f"X-{i}: {i}" for i in range(rng.randint(101, 400))]) + b"\r\n", (431,)),
        (head(headers=["X: " + "a" * rng.randint(33000, 200000)]) + b"\r\n", (431,)),
        (post("", length=rng.choice((9 << 20, 1 << 40, 10 ** 30))), (413,)),
        (head() + b"Content-Length: -1\r\n\r\n", (400,)),
        (head() + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", (400,)),
        (head() + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", (400,)),
        (head() + b"Transfer-Encoding: gzip, chunked\r\n\r\n", (501,)),
        (head() + b"Transfer-Encoding: chunked\r\n\r\n" + rng.choice((b"zz\r\n", b"-1\r\n", b"ffffffffffffffffff\r\n", b"900000\r\n")), (400, 413)),
        (post(json.dumps({"prompt": "a" * rng.randint(500000, 3000000), "max_tokens": 1})), (400,)),
        (post(json.dumps({"prompt": ["a"] * rng.randint(257, 5000)})), (400,)),
        (post(json.dumps({"prompt": [1] * rng.randint(270000, 400000)})), (400,)),
        (post(json.dumps({"prompt": "a", "n": rng.choice((0, -1, 129, 1 << 40))})), (400,)),
        (post(json.dumps({"prompt": "a", "max_tokens": rng.choice((0, -5, -(1 << 40)))})), (400,)),
        (post(json.dumps({"messages": [{"role": "user", "content": "a"}] * 5000}), CHAT), (400,))))


def documents(rng):
    """JSON that is none, is too deep, or says what cannot be."""
    deep = rng.randint(100, 100000)
    return rng.choice((
        (post("{" * deep), (400,)), (post("[" * deep + "]" * deep), (400,)),
        (post('{"prompt":' * 200 + "1" + "}" * 200), (400,)),
        (post(GOOD[:rng.randrange(len(GOOD))]), (400,)),
        (post(GOOD + rng.choice(("}", " 1", "\0", "[]"))), (400,)),
        (post('{"prompt": "a", "prompt": "b"}'), (400,)),
        (post(rng.choice(("null", "1", '"a"', "[]", "true", ""))), (400,)),
        (post(json.dumps({"prompt": rng.choice((None, 1, {}, [], [[]], [1.5], [-1], [1 << 70], ["a", 1], True))})), (400,)),
        (post(json.dumps({"prompt": "a", rng.choice(("temperature", "top_p", "min_p", "stop", "seed", "logprobs")): {"a": []}})), (400,)),
        (post('{"prompt": "a", "temperature": 1e999}'), (400,)), (post('{"prompt": "a", "temperature": NaN}'), (400,)),
        (post(json.dumps({"prompt": "a", "seed": 1 << 70})), (400,)),
        (post(json.dumps({"prompt": "a", "invented": 1})), (400,)),
        (post(json.dumps({"messages": rng.choice((1, [1], [{}], [{"role": 1}], [{"role": "user", "content": {"a": 1}}], [{"role": "robot"}]))}), CHAT), (400,)),
        (post(json.dumps({"messages": [{"role": "user", "content": "a"}], "tools": "all"}), CHAT), (400,))))


def bytes_in_texts(rng):
    """Bytes that are no UTF-8, surrogates, zeros."""
    bad = rng.choice((b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\x80", b"\xc0\xaf"))
    return rng.choice((
        (post(b'{"prompt": "' + bad + b'"}'), (400,)), (post(b'{"' + bad + b'": 1}'), (400,)),
        (post('{"prompt": "\\ud800", "max_tokens": 1}'), (400,)), (post('{"prompt": "a\\u0000b", "max_tokens": 1}'), (200, 400)),
        (post(b"\xef\xbb\xbf" + GOOD.encode()), (200, 400)), (post(GOOD.encode("utf-16")), (400,)),
        (post(json.dumps({"messages": [{"role": "user", "content": "\x00\x1b[31m\u202e"}], "max_tokens": 1}), CHAT), (200,)),
        (b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n", (400, 404))))


def lines_and_headers(rng):
    """Request lines and headers that are none, or that two programs could read differently."""
    return rng.choice((
        (rng.randbytes(rng.randint(1, 300)).replace(b"\n", b"?").replace(b"\r", b"?") + b"\r\n\r\n", (400, 414, 505)),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", (400,)),
        (head(version="HTTP/9.9") + b"\r\n", (505,)), (head(version="HTP/1.1") + b"\r\n", (400,)),
        (head(host=None) + b"\r\n", (400,)), (head(host="Host: evil.example") + b"\r\n", (403,)),
        (head(headers=["Host: localhost"]) + b"\r\n", (400,)),
        (head(headers=["Content-Type : application/json"]) + b"\r\n", (400,)), (head(headers=["no colon"]) + b"\r\n", (400,)),
        (head(headers=[": empty"]) + b"\r\n", (400,)), (head(headers=["X: a\x00b"]) + b"\r\n", (400,)), (head(headers=["X: a\rb"]) + b"\r\n", (400,)),
        (b"GET / HTTP/1.1\nHost: localhost\n\n", (400,)), (head(headers=["Expect: miracles"]) + b"\r\n", (417,)),
        (head(headers=["X: a", " folded"]) + b"\r\n", (400,)),
        (head(method=rng.choice(("PUT", "DELETE", "PATCH", "BREW", "OPTIONS"))) + b"Content-Length: 0\r\n\r\n", (405,)),
        (head(method="G@T") + b"\r\n", (400,)),
        (head(path=rng.choice(("/..", "/v1/../etc/passwd", "/%00", "/v1/models/../../x", "//", "/v1/completions/x")), method="GET", headers=()) + b"\r\n", (404,)),
        (head(path="http://evil.example/", method="CONNECT") + b"\r\n", (400, 404, 405)),
        (post(GOOD, headers=("Content-Type: text/plain",)), (415,)), (post(GOOD, headers=()), (415,)),
        (b"\r\n" * rng.randint(5, 50) + b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", (400,))))


KINDS = {"sizes": sizes, "JSON": documents, "UTF-8": bytes_in_texts, "headers": lines_and_headers}


def status_of(received):
    return int(received[9:12]) if received.startswith(b"HTTP/1.1 ") and received[9:12].isdigit() else 0


def receive(client):
    """What comes until the head is whole, or the end."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = client.recv(65536)
        if not part:
            break
        received += part
    return received


def ask(port, data):
    """The status of the first answer to these bytes; 0: the server ended the connection without one."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as client:
        try:
            client.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has answered and hung up before it had all
        return status_of(receive(client))


def slow(port, rng):
    """A request that comes byte by byte is answered; one that stops in the middle is ended by the server or by its client."""
    data = post(GOOD)
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as client:
        cut = rng.randrange(1, len(data))
        for begin in range(0, cut, max(1, cut // 20)):
            client.sendall(data[begin:min(cut, begin + max(1, cut // 20))])
            time.sleep(0.002)
        if rng.random() < 0.5:
            return True  # and goes away
        client.sendall(data[cut:])
        return status_of(receive(client)) == 200


def half_closed(port, rng):
    """Who shuts the sending side before the answer has come is told; who resets the connection takes nothing with them."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as client:
        data = post(json.dumps({"prompt": "a word", "max_tokens": 5000, "stream": rng.random() < 0.5}))
        client.sendall(data[:rng.choice((len(data), len(data), rng.randrange(1, len(data))))])
        if rng.random() < 0.5:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset instead of an end
            return True
        client.shutdown(socket.SHUT_WR)
        received = b"".join(iter(lambda: client.recv(65536), b""))
        return not received or status_of(received) in (200, 400)
