#!/usr/bin/env python3
"""Writes the files of this folder.

    ok-*    by NumPy, and by hand the headers that NumPy reads but does not write: with another
            spelling, without padding, of Python 2
    bad-*   by NumPy if the array cannot be a tensor, otherwise by hand or from a file of NumPy: each
            of the latter violates one rule of the format; tests/formats/numpy/npy_test.cpp has the
            expected messages

Usage: generate.py [folder]
"""

from __future__ import annotations

import io
import struct
import sys
from pathlib import Path

import numpy as np

DTYPES = "?,u1,u2,u4,u8,i1,i2,i4,i8,f2,f4,f8,c8,c16".split(",")
DATA = struct.pack("<ff", 1.0, 2.0)
PLAIN = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"


def saved(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version)
    return file.getvalue()


def by_hand(header: str | bytes = PLAIN, data: bytes = DATA, version: int = 1) -> bytes:
    text = header.encode() if isinstance(header, str) else header
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


def header(descr: str = "'<f4'", order: str = "False", shape: str = "(2,)") -> bytes:
    return by_hand(f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}")


def good() -> dict[str, bytes]:
    numbers = np.arange(6, dtype=np.int32).reshape(2, 3)
    pair = np.frombuffer(DATA, np.float32)
    files = {f"dtype-{np.dtype(d).name}": saved(np.arange(3).astype(d)) for d in DTYPES}
    files |= {
        "fortran": saved(np.asfortranarray(numbers)),
        "fortran-3d": saved(np.asfortranarray(np.arange(24, dtype=np.int16).reshape(2, 3, 4))),
        "fortran-zero": saved(np.zeros((0, 3), np.int32, order="F")),
        "no-dimensions": saved(np.array(5, dtype=np.int64)),
        "no-elements": saved(np.zeros((3, 0, 2), np.float32)),
        "version-2": saved(numbers, version=(2, 0)),
        "version-3": saved(numbers, version=(3, 0)),
        "another-spelling": by_hand(
            '{"shape":(2,),\n\t"fortran_order" : False,"descr":"<f4"}   \n'
        ),
        "no-padding": by_hand(),
        "odd-offset": by_hand(PLAIN + " "),
        "python-2": by_hand("{'descr': '<f4', 'fortran_order': False, 'shape': (2L,), }"),
    }
    assert np.array_equal(np.load(io.BytesIO(files["another-spelling"])), pair)
    return files


def bad() -> dict[str, bytes]:
    pair = np.frombuffer(DATA, np.float32)
    fields = np.zeros(2, dtype=[("x", "<f4"), ("y", "<i8", (2,))])
    files = {
        "array-of-dates": saved(np.zeros(2, "M8[s]")),
        "array-of-objects": saved(np.array([{}, None], dtype=object)),
        "array-of-texts": saved(np.array(["a", "bc"])),
        "array-of-voids": saved(np.zeros(2, "V2")),
        "array-structured": saved(fields),
        "big-endian": saved(pair.astype(">f4")),
        "data-cut": saved(pair)[:-1],
        "data-missing": saved(pair)[:-8],
        "data-trailing": saved(pair) + saved(pair),
        "descr-empty": header(descr="''"),
        "descr-missing": by_hand("{'fortran_order': False, 'shape': (2,), }"),
        "descr-number": header(descr="4"),
        "descr-twice": by_hand(PLAIN[:-1] + "'descr': '<f4', }"),
        "descr-unclosed": by_hand("{'descr': '<f4"),
        "empty": b"",
        "header-call": header(shape="tuple([2])"),
        "header-cut": by_hand()[:40],
        "header-list": by_hand("[]"),
        "header-missing": by_hand("", b""),
        "header-more": by_hand(PLAIN + ", 1"),
        "header-too-long": b"\x93NUMPY\x02\x00" + struct.pack("<I", (1 << 20) + 1),
        "key-unknown": by_hand(PLAIN[:-1] + "'order': 1, }"),
        "length-cut": b"\x93NUMPY\x01\x00\x46",
        "magic": b"\x93NUMPI\x01\x00",
        "order-number": header(order="0"),
        "python-2-in-version-3": by_hand(PLAIN.replace("2,", "2L,"), version=3),
        "shape-deep": header(descr="[" * 40),
        "shape-dimensions": header(shape="(" + "1, " * 65 + ")"),
        "shape-huge": header(shape="(9223372036854775808,)"),
        "shape-list": header(shape="[2]"),
        "shape-negative": header(shape="(-2,)"),
        "shape-number": header(shape="(2)"),
        "shape-overflow": header(shape="(4294967296, 4294967296)"),
        "version-4": b"\x93NUMPY\x04\x00" + by_hand()[8:],
        "version-cut": b"\x93NUMPY\x01",
    }
    return files


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for start, files in (("ok", good()), ("bad", bad())):
        for name, content in files.items():
            (folder / f"{start}-{name}.npy").write_bytes(content)


if __name__ == "__main__":
    main()
