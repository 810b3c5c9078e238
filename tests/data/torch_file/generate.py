#!/usr/bin/env python3
"""Writes the files of this folder, golden.txt and expected.txt (torch 2.13.0).

golden.txt describes each ok file, in the notation of `text_of` in
tests/formats/safetensors/support.hpp. expected.txt has a line for each bad file: its name, the kind
of error, and a part of the message. The opaque files name classes and functions that are not read;
an unreadable file has one entry that cannot be read; special-values.pt has values that JSON lacks,
and keys-values.pt has keys that are not strings.

Usage: generate.py
"""

from __future__ import annotations

import collections
import io
import json
import pickle
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy
import torch

HERE = Path(__file__).parent
DTYPES = [
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    "float4_e2m1fn_x2",
]


def trained(module, optimizer):
    module(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    return optimizer


def checkpoints() -> dict:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    base = torch.arange(12, dtype=torch.int32).reshape(3, 4)
    shared = {"in": [1, (2, 3)]}
    tied = torch.nn.Parameter(torch.arange(4.0))
    optimizer = trained(module, torch.optim.AdamW(module.parameters()))
    raw = torch.arange(48, dtype=torch.uint8)
    return {
        "state-dict": module.state_dict(),
        "optimizer": {
            "model": module.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 3).state_dict(),
            "epoch": 3,
        },
        "views": {
            "whole": base,
            "transposed": base.t(),
            "column": base[:, 1],
            "rows": base[1:],
            "stepped": base[::2, ::2],
            "expanded": base[0, :1].expand(5),
            "element": base[2, 3],
            "nothing": base[3:],
            "channels-last": torch.arange(16.0)
            .reshape(1, 2, 2, 4)
            .contiguous(memory_format=torch.channels_last),
        },
        "tied": [tied, {"again": tied}, (tied.detach()[2:], torch.ones(()), torch.zeros(0, 3))],
        "dtypes": {
            name: raw[: 2 * getattr(torch, name).itemsize].clone().view(getattr(torch, name))
            if name != "bool"
            else torch.tensor([True, False])
            for name in DTYPES
        },
        "values": {
            "size": torch.Size([2, 3]),
            "dtype": torch.bfloat16,
            "device": torch.device("cuda:1"),
            "none": None,
            "big": 2**70,
            "numbers": [1.5, -3, True, float("inf")],
            "text": "caf\u00e9",
            "ordered": collections.OrderedDict(b=1, a=2),
            "default": collections.defaultdict(list, x=[1]),
            "counter": collections.Counter("aab"),
            "ints": {3: "c", -1: "a"},
            "empty": [{}, (), []],
            "shared": [shared, shared],
        },
        "numpy": {
            "scalar": numpy.float64(2.5),
            "int": numpy.int32(7),
            "array": numpy.arange(6, dtype=numpy.int16).reshape(2, 3),
            "fortran": numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)),
            "empty": numpy.zeros((0, 2), numpy.float32),
            "bool": numpy.array([True, False]),
        },
        "tensor": torch.arange(3),
        "text": "text",
        "quantized": quantized(),
        "lazy-views": lazy_views(),
        "no-tensor": {"epoch": 1},
    }


def quantized() -> dict:
    values = torch.arange(6.0).reshape(2, 3)
    scales, zeros = torch.tensor([0.5, 0.25, 1.0]).double(), torch.tensor([0, 1, -2])
    return {
        "tensor": torch.quantize_per_tensor(values, 0.5, -3, torch.qint8),
        "transposed": torch.quantize_per_tensor(values, 0.125, 7, torch.quint8).t(),
        "wide": torch.quantize_per_tensor(values, 2.0**-20, 0, torch.qint32),
        "channels": torch.quantize_per_channel(values, scales, zeros, 1, torch.qint8),
        "parameter": torch.nn.Parameter(
            torch.quantize_per_tensor(values, 0.5, 0, torch.qint8), requires_grad=False
        ),
    }


def lazy_views() -> dict:
    numbers = torch.complex(torch.arange(6.0), torch.arange(1.0, 7.0)).reshape(2, 3)
    shared = numbers.conj()
    return {
        "conj": shared,
        "again": shared,
        "transposed": numbers.mH,
        "neg": numbers.clone().conj().imag,
        "double": numbers.to(torch.complex128)[1].conj(),
        "half": torch._neg_view(torch.arange(3).half()),
        "both": torch._neg_view(numbers.conj()),
    }


def as_read(obj):
    """Returns what tenfold reads: the parts of a quantized tensor, the values of a lazy view."""
    if isinstance(obj, dict):
        return type(obj)((key, as_read(value)) for key, value in obj.items())
    if not isinstance(obj, torch.Tensor):
        return obj
    if not obj.is_quantized:
        return obj.detach().resolve_conj().resolve_neg()
    parts = {"int_repr": obj.int_repr(), "dtype": obj.dtype, "qscheme": obj.qscheme()}
    if obj.qscheme() == torch.per_tensor_affine:
        return {**parts, "scale": obj.q_scale(), "zero_point": obj.q_zero_point()}
    return {
        **parts,
        "scales": obj.q_per_channel_scales(),
        "zero_points": obj.q_per_channel_zero_points(),
        "axis": obj.q_per_channel_axis(),
    }


def numpy_tensor(array):
    return torch.from_numpy(numpy.ascontiguousarray(array).reshape(array.shape))


def is_leaf(obj) -> bool:
    return isinstance(obj, (torch.Tensor, numpy.ndarray, numpy.generic))


def is_container(obj) -> bool:
    return isinstance(obj, (dict, list, tuple))


def has_leaf(obj) -> bool:
    if isinstance(obj, dict):
        return any(map(has_leaf, obj.values()))
    return any(map(has_leaf, obj)) if isinstance(obj, (list, tuple)) else is_leaf(obj)


def text_of_leaf(obj) -> str:
    if not isinstance(obj, torch.Tensor):
        obj = numpy_tensor(numpy.asarray(obj))
    data = obj.detach().clone(memory_format=torch.contiguous_format)
    raw = data.reshape(-1).view(torch.uint8).numpy().tobytes() if data.numel() else b""
    name = str(obj.dtype).removeprefix("torch.")
    return f"{name} [{''.join(f'{n},' for n in obj.shape)}] {raw.hex()}\n"


def text_of(obj, indent="") -> str:
    if isinstance(obj, dict):
        kind = "ordered_dict" if isinstance(obj, collections.OrderedDict) else "dict"
        entries = list(obj.items())
    else:
        kind = type(obj).__name__
        entries = list(enumerate(obj))
    is_int = isinstance(obj, dict) and bool(entries) and isinstance(entries[0][0], int)
    text = f"{indent}{kind}{' int' if is_int else ''} [] ()  \n"
    for key, value in entries:
        text += f"{indent}  {key}: "
        if is_leaf(value):
            text += text_of_leaf(value)
        elif has_leaf(value):
            text += "\n" + text_of(value, indent + "  ")
        else:
            text += json.dumps(value, default=str) + "\n"
    return text


def saved(obj, **options) -> bytes:
    file = io.BytesIO()
    torch.save(obj, file, **options)
    return file.getvalue()


def rezipped(data: bytes, root="archive", method=zipfile.ZIP_STORED, last="", **records) -> bytes:
    """Returns an archive of the same records under `root`, with the record `last` at the end.

    `records` replaces or adds records; None removes one.
    """
    source = zipfile.ZipFile(io.BytesIO(data))
    file = io.BytesIO()
    names = [name.partition("/")[2] for name in source.namelist()]
    names.sort(key=lambda name: name == last)
    with zipfile.ZipFile(file, "w", method) as target:
        for name in [*names, *(name for name in records if name not in names)]:
            content = records[name] if name in records else source.read(f"archive/{name}")
            if content is not None:
                info = zipfile.ZipInfo(f"{root}/{name}", (1980, 1, 1, 0, 0, 0))
                target.writestr(info, content, compress_type=method)
    return file.getvalue()


def with_pickle(data: bytes, old: bytes, new: bytes) -> bytes:
    """Returns the file with `old` replaced by `new` in its pickle."""
    content = zipfile.ZipFile(io.BytesIO(data)).read("archive/data.pkl")
    assert content.count(old) == 1, (old, content)
    return rezipped(data, **{"data.pkl": content.replace(old, new)})


class Evil:
    def __reduce__(self):
        import os

        return os.system, ("touch /tmp/it-was-executed",)


class Own:
    pass


def nested(levels: int):
    value: object = torch.zeros(1)
    for _ in range(levels):
        value = [value]
    return value


def doubled(levels: int):
    value: list = [1]
    for _ in range(levels):
        value = [value, value]
    return value


def tar() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as target:
        target.addfile(tarfile.TarInfo("storages"))
    return file.getvalue()


def opaque_files() -> dict[str, bytes]:
    """Returns files that name classes and functions that are not read, each under the key "x"."""
    Own.__module__ = "my_net"  # which is missing for a reader
    sys.modules["my_net"] = sys.modules["__main__"]
    return {
        "global": saved({"x": Evil()}),
        "legacy-global": saved({"x": Evil()}, _use_new_zipfile_serialization=False),
        "class": saved({"x": Own()}),
    }


def unreadable_files() -> dict[str, bytes]:
    """Returns files of which one entry cannot be read."""
    good = saved({"w": torch.arange(6.0).reshape(2, 3)})
    cycle: list = []
    cycle.append(cycle)
    return {
        "key": saved({frozenset([1]): 3}),
        "key-twice": saved({1: "int", "1": "str"}),
        "cycle": saved({"c": cycle}),
        "surrogate": saved({"t": "\ud800"}),
        "storage-class": with_pickle(good, b"FloatStorage", b"QInt8Storage"),
    }


def special_objects() -> dict[str, object]:
    return {
        "special": {
            "bytes": b"\x00\xff",
            "set": {1},
            "complex": 1 - 2j,
            "size": torch.Size([2, 3]),
            "sparse": torch.eye(2).to_sparse(),
        },
        "keys": {
            "node": {0.5: torch.ones(1), None: 2, 1: torch.ones(2), (1, "a"): {}},
            7: [{0.5: 0.9, True: 1, "text": 2}],
        },
    }


def bad_files() -> dict[str, tuple[bytes, str, str]]:
    good = saved({"w": torch.arange(6.0).reshape(2, 3)})
    legacy = saved({"w": torch.ones(1)}, _use_new_zipfile_serialization=False)
    channels = saved({"w": quantized()["channels"]})
    tensor = saved({"w": quantized()["tensor"]})
    return {
        "quantized-axis": (
            with_pickle(channels, b"K\x01tq\x1d", b"K\x02tq\x1d"),
            "corrupt",
            "axis: expected a dimension of [2, 3], found 2",
        ),
        "quantized-scales": (
            with_pickle(channels, b"K\x01tq\x1d", b"K\x00tq\x1d"),
            "corrupt",
            "scales: expected a tensor of [2], found [3]",
        ),
        "quantized-scale": (
            with_pickle(tensor, b"G?\xe0" + bytes(6), b"K\x01"),
            "corrupt",
            "expected a float as scale",
        ),
        "quantized-shape": (
            with_pickle(tensor, b"K\x02K\x03\x86", b"K\x02K\x04\x86"),
            "corrupt",
            "it reaches beyond its storage",
        ),
        "too-deep": (saved(nested(600)), "unsupported", "nested too deeply"),
        "repeats": (saved(doubled(40)), "unsupported", "too often"),
        "big-endian": (rezipped(good, byteorder=b"big"), "unsupported", 'found "big"'),
        "byteorder": (rezipped(good, byteorder=b"middle"), "corrupt", 'found "middle"'),
        "version-missing": (rezipped(good, version=None), "corrupt", '"version" is missing'),
        "version-future": (rezipped(good, version=b"11\n"), "unsupported", "found 11"),
        "version-text": (rezipped(good, version=b"x\n"), "corrupt", 'found "x"'),
        "torchscript": (
            rezipped(good, **{"constants.pkl": b"x"}),
            "unsupported",
            "a TorchScript archive contains code",
        ),
        "storage-missing": (
            rezipped(good, **{"data/0": None}),
            "corrupt",
            'key "w": storage: the file lacks it: expected the storage "0"',
        ),
        "storage-short": (
            rezipped(good, **{"data/0": b"\0" * 20}),
            "corrupt",
            "expected 6 elements of float32, found 20 bytes",
        ),
        "beyond": (
            with_pickle(good, b"K\x00K\x02K\x03\x86", b"K\x01K\x02K\x03\x86"),
            "corrupt",
            "reaches beyond its storage: expected at most 6 elements, found shape [2, 3]",
        ),
        "stride-huge": (
            with_pickle(good, b"K\x03K\x01\x86", b"J\xff\xff\xff\x7fK\x01\x86"),
            "corrupt",
            "reaches beyond its storage",
        ),
        "stride-negative": (
            with_pickle(good, b"K\x03K\x01\x86", b"J\xff\xff\xff\xffK\x01\x86"),
            "corrupt",
            "strides: expected an integer from 0, found -1",
        ),
        "shape-huge": (
            with_pickle(
                good,
                b"K\x00K\x02K\x03\x86",
                b"K\x00" + 2 * b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f" + b"\x86",
            ),
            "corrupt",
            "shape: too large",
        ),
        "strides-few": (
            with_pickle(good, b"K\x03K\x01\x86", b"K\x03\x85"),
            "corrupt",
            "strides do not fit: expected 2",
        ),
        "pickle-cut": (
            rezipped(good, **{"data.pkl": b"\x80\x02"}),
            "corrupt",
            'record "data.pkl"',
        ),
        "no-pickle": (
            rezipped(good, **{"data.pkl": None}),
            "unsupported",
            'expected a record "data.pkl"',
        ),
        "cut": (good[:-30], "corrupt", "the file may be truncated"),
        "legacy-big-endian": (
            legacy.replace(b"little_endian" + b"q\x02\x88", b"little_endian" + b"q\x02\x89"),
            "unsupported",
            "byte order: expected little-endian",
        ),
        "legacy-cut": (legacy[:-1], "corrupt", "does not fit the file: expected at most 3 bytes"),
        "legacy-protocol": (
            legacy.replace(b"M\xe9\x03", b"M\xea\x03"),
            "unsupported",
            "protocol: expected 1001",
        ),
        "tar": (tar(), "unsupported", "the tar layout"),
        "plain-pickle": (pickle.dumps({"a": 1}), "unsupported", "a plain pickle"),
        "text": (b"hello\n", "corrupt", 'a file that starts with "hello'),
        "empty": (b"", "corrupt", "an empty file"),
    }


def main() -> None:
    for old in HERE.glob("*-*.pt"):
        old.unlink()
    golden = ""
    files = checkpoints()
    for name, obj in files.items():
        (HERE / f"ok-{name}.pt").write_bytes(saved(obj))
        read = as_read(obj) if name in ("quantized", "lazy-views") else obj
        golden += f"== ok-{name}\n" + text_of(read if is_container(read) else {"value": read})
    views = saved(files["views"])
    others = {
        "legacy": saved(files["views"], _use_new_zipfile_serialization=False),
        "unaligned": rezipped(views, root="a b"),
        "deflated": rezipped(views, method=zipfile.ZIP_DEFLATED),
        "pickle-last": rezipped(views, root="r", last="data.pkl"),
        "first-writer": rezipped(
            views,
            byteorder=None,
            **dict.fromkeys((".format_version", ".storage_alignment", ".data/serialization_id")),
        ),
    }
    for name, data in others.items():
        (HERE / f"ok-{name}.pt").write_bytes(data)
        golden += f"== ok-{name}\n" + text_of(files["views"])
    (HERE / "ok-legacy-dtypes.pt").write_bytes(
        saved(files["dtypes"], _use_new_zipfile_serialization=False)
    )
    golden += "== ok-legacy-dtypes\n" + text_of(files["dtypes"])
    (HERE / "golden.txt").write_text(golden, "utf-8")
    for name, data in opaque_files().items():
        (HERE / f"opaque-{name}.pt").write_bytes(data)
    for name, data in unreadable_files().items():
        (HERE / f"unreadable-{name}.pt").write_bytes(data)
    for name, obj in special_objects().items():
        (HERE / f"{name}-values.pt").write_bytes(saved(obj))
    expected = ""
    for name, (data, kind, message) in bad_files().items():
        (HERE / f"bad-{name}.pt").write_bytes(data)
        expected += f"bad-{name}\t{kind}\t{message}\n"
    (HERE / "expected.txt").write_text(expected, "utf-8")


if __name__ == "__main__":
    sys.setrecursionlimit(10_000)
    main()
