#!/usr/bin/env python3
"""Turns a PyTorch state dict (.pt, .pth, .bin, .ckpt) into safetensors, which is all that orthant reads.

    .venv/bin/python tools/state_dict_to_safetensors.py pytorch_model.bin -o folder/
    .venv/bin/python tools/state_dict_to_safetensors.py last.ckpt -o folder/ --strip-prefix model. \\
        --rename '^encoder\\.blocks\\.(\\d+)\\.=encoder.layer.\\1.' --drop '^loss\\.'

The state dict is the file's content, or what lies in it under `state_dict` (PyTorch Lightning), `model_state_dict`, `model`
or `module`; --key names another place. Names are first dropped, then lose the prefix, then are renamed, in the order of the
options. Tensors that share memory (tied weights) are written once for each name; with --shared drop only the first name is
written and the others are noted in the metadata. What is not a tensor is left out and listed.

Files are loaded with weights_only=True, so that a pickle cannot run code. A file that needs more than that (Lightning
checkpoints with objects among their hyperparameters) is refused; --trust loads it nevertheless and runs whatever it contains.
"""
import argparse
import os
import pickle
import re
import sys
import zipfile

NESTED = ("state_dict", "model_state_dict", "model", "module")


def fail(message):
    sys.exit(f"state_dict_to_safetensors: {message}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", metavar="FILE", help="one file, or all parts of a state dict in several")
    parser.add_argument("-o", "--output", required=True, help="a .safetensors file, or a folder that gets model.safetensors")
    parser.add_argument("--key", help="where the state dict lies in the file, a.b.c; '' for the whole file")
    parser.add_argument("--drop", action="append", default=[], metavar="PATTERN", help="leave out names that match (search)")
    parser.add_argument("--strip-prefix", action="append", default=[], metavar="PREFIX", help="cut this off names that begin so")
    parser.add_argument("--rename", action="append", default=[], metavar="OLD=NEW", help="re.sub(OLD, NEW, name)")
    parser.add_argument("--shared", choices=("clone", "drop"), default="clone", help="tensors that share memory")
    parser.add_argument("--trust", action="store_true", help="let the pickle run code: only for files you made yourself")
    parser.add_argument("--force", action="store_true", help="replace an existing output")
    return parser.parse_args()


def load(torch, path, trust):
    try:
        mapped = zipfile.is_zipfile(path)  # older files are one pickle and cannot be mapped
        return torch.load(path, map_location="cpu", weights_only=not trust, mmap=mapped)
    except pickle.UnpicklingError as error:
        if trust:
            fail(f"{path}: not a PyTorch file: {error}")
        first = str(error).strip().splitlines()[0]
        fail(f"{path}: holds more than tensors, or is no PyTorch file: {first}\n"
             "  fix: save only model.state_dict(), or, if you made the file yourself, add --trust")
    except (OSError, EOFError, RuntimeError) as error:
        fail(f"{path}: {error}")


def is_dict_of_tensors(torch, value):
    return isinstance(value, dict) and any(isinstance(v, torch.Tensor) for v in value.values())


def find_state_dict(torch, content, key, path):
    if key is not None:
        for step in filter(None, key.split(".")):
            if not isinstance(content, dict) or step not in content:
                known = ", ".join(map(str, content)) if isinstance(content, dict) else type(content).__name__
                fail(f"{path}: no {step!r} of --key {key}; there is {known[:300]}")
            content = content[step]
    elif isinstance(content, dict):
        content = next((content[k] for k in NESTED if is_dict_of_tensors(torch, content.get(k))), content)
    if not is_dict_of_tensors(torch, content):
        keys = ", ".join(map(str, content)) if isinstance(content, dict) else f"a {type(content).__name__}"
        fail(f"{path}: no state dict found in {keys[:300]}\n  fix: name its place with --key")
    return content


def new_name(name, options):
    if any(re.search(pattern, name) for pattern in options.drop):
        return None
    for prefix in options.strip_prefix:
        if name.startswith(prefix):
            name = name[len(prefix):]
            break
    for rule in options.rename:
        old, equals, new = rule.partition("=")
        if not equals or not old:
            fail(f"--rename {rule}: expected OLD=NEW")
        name = re.sub(old, new, name)
    return name


def collect(torch, options):
    """{new name: tensor}, {new name: old name}, and what was left out with the reason."""
    tensors, origins, left_out = {}, {}, []
    for path in options.inputs:
        for old, value in find_state_dict(torch, load(torch, path, options.trust), options.key, path).items():
            name = new_name(str(old), options)
            if not isinstance(value, torch.Tensor):
                left_out.append((old, f"a {type(value).__name__}, not a tensor"))
            elif name is None:
                left_out.append((old, "dropped by --drop"))
            elif not name or name == "__metadata__":
                fail(f"{path}: {old} would become {name!r}, which no tensor can be called")
            elif name in tensors:
                fail(f"{path}: {origins[name]} and {old} both become {name}\n  fix: change --rename or --strip-prefix, or --drop one")
            elif value.layout != torch.strided or value.is_quantized:
                fail(f"{path}: {old} is a {'quantized' if value.is_quantized else value.layout} tensor, which safetensors cannot hold")
            else:
                tensors[name], origins[name] = value.detach(), str(old)
    return tensors, origins, left_out


def separate(tensors, shared):
    """Contiguous tensors that share no memory, {dropped name: kept name}, and notes for the table."""
    by_storage, result, dropped, notes = {}, {}, {}, {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage().data_ptr()
        first = by_storage.setdefault(storage, name) if tensor.numel() else name
        alike = first != name and tensor.stride() == tensors[first].stride() and tensor.shape == tensors[first].shape \
            and tensor.dtype == tensors[first].dtype and tensor.data_ptr() == tensors[first].data_ptr()
        if alike and shared == "drop":
            dropped[name] = first
            notes[name] = f"the same as {first}, dropped"
            continue
        notes[name] = f"shares memory with {first}, copied" if first != name else ""
        result[name] = tensor.clone() if first != name else tensor.contiguous()
        if result[name].untyped_storage().nbytes() != result[name].numel() * result[name].element_size():
            result[name] = result[name].clone()  # a view of something larger
        result[name] = result[name].contiguous()
    return result, dropped, notes


def print_table(tensors, origins, notes, left_out):
    rows = [("name", "was", "dtype", "shape", "bytes", "")]
    for name in origins:
        tensor = tensors.get(name)
        facts = (str(tensor.dtype).split(".")[-1], str(list(tensor.shape)), str(tensor.nbytes)) if tensor is not None else ("", "", "0")
        rows.append((name, "" if origins[name] == name else origins[name], *facts, notes.get(name, "")))
    rows += [("", str(old), "", "", "", f"left out: {why}") for old, why in left_out]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    print(f"{len(tensors)} tensors, {sum(t.nbytes for t in tensors.values())} bytes")


def main():
    options = arguments()
    try:
        import torch
        from safetensors.torch import save_file
    except ImportError as error:
        fail(f"{error}\n  fix: run it with .venv/bin/python, where tools/setup installed torch and safetensors")
    output = options.output
    if not output.endswith(".safetensors"):
        output = os.path.join(output, "model.safetensors")
    if os.path.exists(output) and not options.force:
        fail(f"{output}: exists already\n  fix: choose another name, or --force")
    tensors, origins, left_out = collect(torch, options)
    tensors, dropped, notes = separate(tensors, options.shared)
    if not tensors:
        fail("nothing is left to write")
    os.makedirs(os.path.dirname(output) or ".", exist_ok=True)
    partial = f"{output}.partial-{os.getpid()}"
    try:
        save_file(tensors, partial, metadata={"format": "pt", **dropped})
        os.replace(partial, output)
    except Exception as error:
        fail(f"{output}: {error}")
    finally:
        if os.path.exists(partial):
            os.remove(partial)
    print_table(tensors, origins, notes, left_out)
    print(f"written: {output}")


if __name__ == "__main__":
    main()
