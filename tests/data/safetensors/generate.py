#!/usr/bin/env python3
"""Writes the files of this folder.

    ok-*    by safetensors 0.8.0 and tensordict 0.15.3 (torch 2.13.0), and by hand valid files that
            these cannot write
    bad-*   by hand: each violates one rule of the format; the expected messages are in
            tests/formats/safetensors/hostile_test.cpp

Usage: generate.py [folder]
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

DTYPES = [
    "bool",
    "uint8",
    "int8",
    "float8_e5m2",
    "float8_e4m3fn",
    "float8_e8m0fnu",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "int16",
    "uint16",
    "float16",
    "bfloat16",
    "int32",
    "uint32",
    "float32",
    "complex64",
    "float64",
    "int64",
    "uint64",
    "float4_e2m1fn_x2",
]
F32_PAIR = struct.pack("<ff", 1.0, 2.0)
PLAIN = {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}


def container(header: str | bytes, data: bytes = b"", length: int | None = None) -> bytes:
    text = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype="F32", shape=(2,), offsets=(0, 8), **others):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **others}


def compact(header) -> str:
    return json.dumps(header, separators=(",", ":"), ensure_ascii=False)


def bad_structure(root, tensors=None, version=1) -> bytes:
    document = root if isinstance(root, str) else json.dumps({"version": version, "root": root})
    header = {"__metadata__": {"tensordict": document}}
    header.update(PLAIN if tensors is None else tensors)
    return container(compact(header), F32_PAIR)


def bad_files() -> dict[str, bytes]:
    w = compact(entry())
    two = {"a": entry(), "b": entry(offsets=(8, 16))}
    level = {"batch_size": [], "names": None, "keys": {"w": {"tensor": "w"}}}
    files = {
        "empty": b"",
        "seven-bytes": b"\x02\0\0\0\0\0\0",
        "header-too-long": container("{}", length=100_000_001),
        "header-length-huge": container("{}", length=2**64 - 1),
        "header-past-end": container("{}", length=3),
        "header-empty": container(""),
        "header-blank": container("    "),
        "header-not-utf8": container(b'{"\xff":' + compact(entry()).encode() + b"}", F32_PAIR),
        "header-bom": container(b"\xef\xbb\xbf{}"),
        "header-array": container("[]"),
        "header-nul-padding": container("{}\0\0"),
        "header-not-json": container('{"w":}'),
        "header-cut": container('{"w":{"dtype":"F32"'),
        "header-two-documents": container("{}{}"),
        "header-deep": container('{"w":{"x":' + "[" * 600 + "]" * 600 + "}}"),
        "metadata-number": container('{"__metadata__":{"a":1}}'),
        "metadata-array": container('{"__metadata__":[]}'),
        "metadata-nested": container('{"__metadata__":{"a":{}}}'),
        "metadata-twice": container('{"__metadata__":{},"__metadata__":{}}'),
        "metadata-key-twice": container('{"__metadata__":{"a":"1","a":"2"}}'),
        "entry-array": container('{"w":["F32",[2],[0,8]]}', F32_PAIR),
        "entry-string": container('{"w":"F32"}', F32_PAIR),
        "name-twice": container('{"w":' + w + ',"w":' + w + "}", F32_PAIR),
        "name-surrogate": container('{"\\ud800":' + w + "}", F32_PAIR),
        "dtype-missing": container('{"w":{"shape":[2],"data_offsets":[0,8]}}', F32_PAIR),
        "dtype-number": container('{"w":{"dtype":1}}', F32_PAIR),
        "dtype-twice": container('{"w":{"dtype":"F32",' + w[1:] + "}", F32_PAIR),
        "dtype-unknown": container(compact({"w": entry("F6_E2M3", (4,), (0, 3))}), b"abc"),
        "dtype-lower-case": container(compact({"w": entry("f32")}), F32_PAIR),
        "shape-missing": container('{"w":{"dtype":"F32","data_offsets":[0,8]}}', F32_PAIR),
        "shape-number": container('{"w":{"shape":2}}', F32_PAIR),
        "shape-negative": container(compact({"w": entry(shape=(-2,))}), F32_PAIR),
        "shape-fraction": container(compact({"w": entry(shape=(2.5,))}), F32_PAIR),
        "shape-huge": container(compact({"w": entry(shape=(2**64,))}), F32_PAIR),
        "shape-string": container(compact({"w": entry(shape=("2",))}), F32_PAIR),
        "shape-overflow": container(compact({"w": entry(shape=(2**32, 2**32))}), F32_PAIR),
        "shape-wraps-to-fit": container(compact({"w": entry(shape=(2**62, 4, 2))}), F32_PAIR),
        "shape-odd-f4": container(compact({"w": entry("F4", (2, 3), (0, 3))}), b"abc"),
        "shape-scalar-f4": container(compact({"w": entry("F4", (), (0, 1))}), b"a"),
        "offsets-missing": container('{"w":{"dtype":"F32","shape":[2]}}', F32_PAIR),
        "offsets-one": container(compact({"w": entry(offsets=(0,))}), F32_PAIR),
        "offsets-three": container(compact({"w": entry(offsets=(0, 8, 8))}), F32_PAIR),
        "offsets-negative": container(compact({"w": entry(offsets=(-8, 0))}), F32_PAIR),
        "offsets-huge": container(compact({"w": entry(offsets=(0, 2**70))}), F32_PAIR),
        "offsets-backwards": container(
            compact({"a": entry(), "w": entry(offsets=(8, 0))}), F32_PAIR
        ),
        "offsets-first-hole": container(compact({"w": entry(offsets=(4, 12))}), F32_PAIR * 2),
        "offsets-hole": container(
            compact({"a": entry(), "b": entry(offsets=(12, 20))}), F32_PAIR * 3
        ),
        "offsets-overlap": container(
            compact({"a": entry(), "b": entry(offsets=(4, 12))}), F32_PAIR * 2
        ),
        "offsets-alias": container(compact({"a": entry(), "b": entry()}), F32_PAIR),
        "size-mismatch": container(compact({"w": entry(shape=(3,))}), F32_PAIR),
        "data-missing": container(compact(two), F32_PAIR),
        "data-cut": container(compact(two), F32_PAIR + F32_PAIR[:3]),
        "data-trailing": container(compact(PLAIN), F32_PAIR + b"x"),
        "data-trailing-empty": container("{}", b"x"),
        "structure-not-json": bad_structure("{"),
        "structure-array": bad_structure("[]"),
        "structure-version-missing": bad_structure(json.dumps({"root": level})),
        "structure-version-2": bad_structure(level, version=2),
        "structure-root-missing": bad_structure('{"version": 1}'),
        "structure-batch-missing": bad_structure({"names": None, "keys": {}}),
        "structure-keys-missing": bad_structure({"batch_size": [], "names": None}),
        "structure-batch-negative": bad_structure(level | {"batch_size": [-1]}),
        "structure-names-few": bad_structure(
            level | {"batch_size": [2], "names": []} | {"names": ["a", "b"]}
        ),
        "structure-entry-empty": bad_structure(level | {"keys": {"w": {}}}),
        "structure-entry-two": bad_structure(
            level | {"keys": {"w": {"tensor": "w", "non_tensor": 1}}}
        ),
        "structure-tensor-unknown": bad_structure(
            level | {"keys": {"n": {"td": level | {"keys": {"x": {"tensor": "v"}}}}}}
        ),
        "structure-tensor-number": bad_structure(level | {"keys": {"w": {"tensor": 1}}}),
        "structure-batch-mismatch": bad_structure(level | {"batch_size": [3]}),
        "structure-stack-dim": bad_structure(level | {"stack_dim": 0}),
        "structure-stack-huge": bad_structure(
            level | {"stack_dim": 0, "batch_size": [10**12], "keys": {}}
        ),
        "structure-key-twice": bad_structure(
            '{"version": 1, "root": {"batch_size": [], "names": null, "keys": '
            '{"w": {"tensor": "w"}, "w": {"tensor": "w"}}}}'
        ),
        "structure-name-taken": bad_structure(level | {"keys": {"w": {"non_tensor": 1}}}),
        "notes-not-json": container(compact({"__metadata__": {"tenfold": "{"}} | PLAIN), F32_PAIR),
    }
    return {f"bad-{name}.safetensors": data for name, data in files.items()}


def hand_made_files() -> dict[str, bytes]:
    """Returns valid files of older or other writers, or that no available writer makes."""
    shuffled = {"b": entry(offsets=(8, 16)), "a": entry(offsets=(0, 8))}
    zero = {
        "z": entry(shape=(0,), offsets=(0, 0)),
        "a": entry(),
        "b": entry(shape=(3, 0), offsets=(8, 8)),
    }
    tied = {
        "version": 1,
        "root": {
            "batch_size": [],
            "names": None,
            "keys": {
                "a": {"tensor": "w"},
                "n": {"td": {"batch_size": [2], "names": None, "keys": {"b": {"tensor": "w"}}}},
            },
        },
    }
    values = {
        "version": 1,
        "root": {
            "batch_size": [],
            "names": None,
            "keys": {"big": {"non_tensor": 10**30}, "w": {"tensor": "w"}},
        },
    }
    return {
        # As safetensors 0.2 and before: without padding, so the data has an unaligned offset.
        "ok-unpadded.safetensors": container(
            compact(PLAIN | {"e": entry("U8", (0,), (8, 8))}), F32_PAIR
        ),
        "ok-header-order.safetensors": container(compact(shuffled), F32_PAIR + F32_PAIR[::-1]),
        "ok-zero-elements.safetensors": container(compact(zero), F32_PAIR),
        "ok-blanks.safetensors": container(
            " \n" + json.dumps(PLAIN, indent=1) + "\t\r\n ", F32_PAIR
        ),
        "ok-unknown-field.safetensors": container(
            compact({"w": entry(x=[1, {"y": [None, True, 1.5]}], z="s")}), F32_PAIR
        ),
        "ok-metadata-null.safetensors": container(
            compact({"__metadata__": None} | PLAIN), F32_PAIR
        ),
        "ok-no-tensors.safetensors": container("{}"),
        "ok-tied-structure.safetensors": container(
            compact({"__metadata__": {"tensordict": json.dumps(tied)}} | PLAIN), F32_PAIR
        ),
        "ok-big-integer.safetensors": container(
            compact({"__metadata__": {"tensordict": json.dumps(values)}} | PLAIN), F32_PAIR
        ),
        "ok-unlisted-tensor.safetensors": container(
            compact(
                {"__metadata__": {"tensordict": json.dumps(tied)}}
                | PLAIN
                | {"extra": entry("U8", (2,), (8, 10))}
            ),
            F32_PAIR + b"xy",
        ),
    }


def write_reference_files(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file, save_model
    from tensordict import TensorDict, UnbatchedTensor, lazy_stack, tensorclass, to_safetensors

    raw = torch.arange(16, dtype=torch.uint8)
    tensors = {
        name: (raw[:4] > 1 if name == "bool" else raw.view(getattr(torch, name)).clone())
        for name in DTYPES
    }
    save_file(tensors, folder / "ok-dtypes.safetensors", metadata={"format": "pt", "b": "2"})

    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Linear(2, 3, bias=False)
            self.head = torch.nn.Linear(2, 3, bias=False)
            with torch.no_grad():
                self.embed.weight.copy_(torch.arange(6.0).reshape(3, 2))
            self.head.weight = self.embed.weight

    save_model(Tied(), folder / "ok-save-model.safetensors")

    @tensorclass
    class Point:
        x: torch.Tensor
        label: str

    Point.__module__ = "shapes"
    nested = TensorDict(
        {
            "obs": torch.arange(6.0).reshape(2, 3),
            "next": TensorDict({"obs": torch.arange(6.0, 12.0).reshape(2, 3)}, [2], names=["time"]),
            "table": UnbatchedTensor(torch.arange(5)),
        },
        [2],
        names=["time"],
    )
    nested.set_non_tensor("config", {"lr": 0.5, "betas": [0.9, None], "nan": float("nan")})
    to_safetensors(nested, folder / "ok-td-nested.safetensors")
    for dim in (0, 1):
        stack = lazy_stack(
            [
                TensorDict(
                    {
                        "x": torch.arange(6).reshape(3, 2) + 10 * i,
                        "inner": TensorDict({"y": torch.arange(3) + i}, [3]),
                    },
                    [3],
                )
                for i in range(2)
            ],
            dim,
        )
        stack.names = ["a", "b"]
        to_safetensors(TensorDict({"stack": stack}, []), folder / f"ok-td-lazy-{dim}.safetensors")
    point = TensorDict({"point": Point(x=torch.ones(3), label="here", batch_size=[3])}, [3])
    to_safetensors(point, folder / "ok-td-tensorclass.safetensors")


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for name, data in {**bad_files(), **hand_made_files()}.items():
        (folder / name).write_bytes(data)
    write_reference_files(folder)


if __name__ == "__main__":
    main()
