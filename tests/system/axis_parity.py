#!/usr/bin/env python3
"""One row for each axis against one rank: the parity that `make check` runs. The campaigns hold the others.

  tests/system/axis_parity.py [--only WORD] [--device cuda --backend gloo]

Prints a Markdown table; exit code 1 when a row is wrong.
"""
import data_parity
import pipeline_parity
import tensor_parity
from parity_rows import Row, main

CONFIGS = {"llama": data_parity.CONFIGS["llama"], "llama of uneven cuts": tensor_parity.CONFIGS["llama"],
           "llama of 14 layers": pipeline_parity.CONFIGS["llama"]}
ROWS = [
    Row("llama", "dp=2", quick=True),
    Row("llama", "fsdp=2", "parallel.zero=3", quick=True),
    Row("llama of uneven cuts", "tp=4", quick=True),
    Row("llama of uneven cuts", "tp=4", tensor_parity.SEQUENCE, quick=True),
    Row("llama of uneven cuts", "cp=3", "parallel.context=ring", quick=True),
    Row("llama of 14 layers", "pp=2", *pipeline_parity.schedule("1f1b", 4), bitwise=True, dtype="float32", quick=True),
]


if __name__ == "__main__":
    main(__doc__, ROWS, CONFIGS)
