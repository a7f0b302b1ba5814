"""What the crafted folders are made of: small valid files, and the ways in which any file or JSON text can be wrong."""
import json
import os
import socket
import struct

MIB = 1 << 20


def xxh64(data):
    """The 64-bit xxHash of bytes, seed 0: what seals a manifest."""
    mask = (1 << 64) - 1
    p1, p2, p3, p4, p5 = (11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261)

    def turned(x, bits):
        return ((x << bits) | (x >> (64 - bits))) & mask

    def mixed(acc, lane):
        return turned((acc + lane * p2) & mask, 31) * p1 & mask

    at, size = 0, len(data)
    if size >= 32:
        lanes = [(p1 + p2) & mask, p2, 0, (-p1) & mask]
        while at + 32 <= size:
            for i, lane in enumerate(struct.unpack_from("<4Q", data, at)):
                lanes[i] = mixed(lanes[i], lane)
            at += 32
        value = sum(turned(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18))) & mask
        for lane in lanes:
            value = ((value ^ mixed(0, lane)) * p1 + p4) & mask
    else:
        value = p5
    value = (value + size) & mask
    while at + 8 <= size:
        value = (turned(value ^ mixed(0, struct.unpack_from("<Q", data, at)[0]), 27) * p1 + p4) & mask
        at += 8
    if at + 4 <= size:
        value = (turned(value ^ struct.unpack_from("<I", data, at)[0] * p1 & mask, 23) * p2 + p3) & mask
        at += 4
    for byte in data[at:]:
        value = turned(value ^ byte * p5 & mask, 11) * p1 & mask
    value = (value ^ (value >> 33)) * p2 & mask
    value = (value ^ (value >> 29)) * p3 & mask
    return value ^ (value >> 32)


def write(path, data):
    if os.path.lexists(path):
        os.remove(path)
    with open(path, "wb") as f:
        f.write(data.encode() if isinstance(data, str) else data)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def safetensors(header, data):
    """Header (text or object) and data as a file of that format."""
    text = header if isinstance(header, bytes) else (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensors_file(shapes):
    """A valid file of float32 tensors: small numbers, one after the other."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, shape in shapes.items():
        count = 1
        for length in shape:
            count *= length
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack(f"<{count}f", *(((i * 37) % 23 - 11) / 50 for i in range(count)))
    return safetensors(header, data)


def parsed_tensors(path):
    """(header, data) of a file that tensors_file made."""
    raw = read(path)
    size = struct.unpack_from("<Q", raw)[0]
    return json.loads(raw[8:8 + size]), raw[8 + size:]


# What can stand where a file is expected. Each takes the path of the file that is there.
def fifo(path):
    os.remove(path)
    os.mkfifo(path)


def folder(path):
    os.remove(path)
    os.mkdir(path)


def unix_socket(path):
    os.remove(path)
    listener = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(os.path.dirname(path))  # a socket's path is short
    listener.bind(os.path.basename(path))
    os.chdir(here)
    listener.close()


def linked(target):
    def make(path):
        os.remove(path)
        os.symlink(target, path)
    return make


def link_to_itself(path):
    os.remove(path)
    os.symlink(os.path.basename(path), path)


def sparse(size):
    def make(path):
        os.truncate(path, size)
    return make


def emptied(path):
    write(path, b"")


def cut_in_half(path):
    write(path, read(path)[:os.path.getsize(path) // 2])


def without_last_byte(path):
    write(path, read(path).rstrip()[:-1])


def zeros(path):
    write(path, bytes(os.path.getsize(path)))


def noise(path):
    write(path, bytes((i * 197 + i // 7) % 256 for i in range(os.path.getsize(path))))


def utf16(path):
    write(path, b"\xff\xfe" + read(path).decode().encode("utf-16-le"))


KINDS = {
    "fifo": fifo, "folder": folder, "socket": unix_socket, "link-to-dev-zero": linked("/dev/zero"), "link-to-dev-urandom": linked("/dev/urandom"),
    "link-to-dev-null": linked("/dev/null"), "link-to-itself": link_to_itself, "sparse-4GiB": sparse(4 << 30), "sparse-1TiB": sparse(1 << 40),
    "sparse-200MiB": sparse(200 * MIB), "empty": emptied,
}
CONTENTS = {"cut-in-half": cut_in_half, "zeros": zeros, "noise": noise}
TEXTS = {"utf16": utf16}


# What can be wrong with the text of a JSON object. Each takes the text and gives another.
def inside(text, member):
    """The object with one member more in front."""
    return "{" + member + "," + text.lstrip()[1:]


JSON_TEXTS = {
    "nested-100000-deep": lambda text: inside(text, '"deep": ' + "[" * 100_000 + "]" * 100_000),
    "nested-objects-100000-deep": lambda text: inside(text, '"deep": ' + '{"a":' * 100_000 + "1" + "}" * 100_000),
    "opened-1000000-times": lambda text: "[" * 1_000_000,
    "nested-70-deep": lambda text: inside(text, '"deep": ' + "[" * 70 + "]" * 70),
    "comment": lambda text: "// a comment\n" + text,
    "trailing-comma": lambda text: text.rstrip().rstrip("}") + ",}",
    "second-document": lambda text: text + "{}",
    "text-behind": lambda text: text + "x",
    "not-a-number": lambda text: inside(text, '"x": NaN'),
    "number-beyond-double": lambda text: inside(text, '"x": 1e999'),
    "single-quotes": lambda text: text.replace('"', "'"),
    "bad-utf8": lambda text: text.encode().replace(b"{", b'{"\xff\xfe": 1,', 1),
    "overlong-utf8": lambda text: text.encode().replace(b"{", b'{"\xc0\xaf": 1,', 1),
    "lone-surrogate": lambda text: inside(text, '"x": "\\ud800"'),
    "control-character-in-text": lambda text: inside(text, '"x": "\x1b[2J"'),
    "an-array": lambda text: "[" + text + "]",
    "a-text": lambda text: json.dumps(text),
    "a-number": lambda text: "1",
    "null": lambda text: "null",
    "unclosed-text": lambda text: text.rstrip()[:-1] + ',"x": "',
}
