"""The tensors of a checkpoint, put together from outside by what its manifest.json says alone."""
import array
import json
import math
import os
import struct

NUMBERS = {"F32": "f", "F64": "d"}


def read_tensors(path):
    """Name to numbers of a safetensors file's floating-point tensors."""
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    return {name: array.array(NUMBERS[entry["dtype"]], data[slice(*entry["data_offsets"])])
            for name, entry in header.items() if name != "__metadata__" and entry["dtype"] in NUMBERS}


def indices(shape, offsets, lengths):
    """Where the elements of a box lie in the whole tensor, both in row-major order."""
    if not shape:
        return [0]
    inner = indices(shape[1:], offsets[1:], lengths[1:])
    step = math.prod(shape[1:])
    return [row * step + index for row in range(offsets[0], offsets[0] + lengths[0]) for index in inner]


def whole(name, tensor, files):
    """The numbers of one tensor. Every element has been written, and once."""
    numbers = [None] * math.prod(tensor["shape"])
    for piece in tensor["pieces"]:
        begin, end = piece.get("range", (0, math.prod(piece["lengths"])))
        places = indices(tensor["shape"], piece["offsets"], piece["lengths"])[begin:end]
        for at, value in zip(places, files[piece["file"]][piece["tensor"]], strict=True):
            if numbers[at] is not None:
                raise AssertionError(f"{name}[{at}] was written twice")
            numbers[at] = value
    if None in numbers:
        raise AssertionError(f"{name}: elements are missing, the first at {numbers.index(None)}")
    return numbers


def read_weights(folder):
    """Numbers of every parameter by name, and the names of the files that hold them. Optimizer state is left out."""
    with open(os.path.join(folder, "manifest.json")) as f:
        tensors = {name: tensor for name, tensor in json.load(f)["tensors"].items() if not name.startswith("optimizer.")}
    names = {piece["file"] for tensor in tensors.values() for piece in tensor["pieces"]}
    files = {name: read_tensors(os.path.join(folder, name)) for name in names}
    return {name: whole(name, tensor, files) for name, tensor in tensors.items()}, names


def read_state(folder):
    """The manifest, and every global tensor by name as a numpy array: parameters and optimizer state. Every element has been written, and once."""
    import numpy
    with open(os.path.join(folder, "manifest.json")) as f:
        manifest = json.load(f)
    files = {name: read_tensors(os.path.join(folder, name)) for name in manifest["files"] if name.endswith(".safetensors")}
    state = {}
    for name, tensor in manifest["tensors"].items():
        size = math.prod(tensor["shape"])
        where, times, found = numpy.arange(size).reshape(tensor["shape"]), numpy.zeros(size, int), numpy.empty(size, tensor["dtype"])
        for piece in tensor["pieces"]:
            box = where[tuple(slice(begin, begin + length) for begin, length in zip(piece["offsets"], piece["lengths"], strict=True))].ravel()
            places = box[slice(*piece.get("range", (0, box.size)))]
            numbers = numpy.frombuffer(files[piece["file"]][piece["tensor"]], tensor["dtype"])
            if numbers.size != places.size:
                raise AssertionError(f"{name}: {piece} names {places.size} elements and its file holds {numbers.size}")
            found[places] = numbers
            times[places] += 1
        if (times != 1).any():
            raise AssertionError(f"{name}: element {(times != 1).argmax()} was written {times[(times != 1).argmax()]} times")
        state[name] = found.reshape(tensor["shape"])
    return manifest, state
