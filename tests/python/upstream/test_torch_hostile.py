"""Crafted files of torch.save with inconsistent pickles raise errors that name the file."""

from __future__ import annotations

import collections
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import tenfold

NO_HOOKS: Any = collections.OrderedDict()


class Call:
    """An object that is pickled as a call of `function`, and with `state` unless it is None."""

    def __init__(self, function: Any, *arguments: Any, state: Any = None) -> None:
        self.reduced = (function, arguments, *(() if state is None else (state,)))

    def __reduce__(self) -> Any:
        return self.reduced


class Named:
    """An object that is pickled as the global `name`, which need not exist."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self) -> None:
        """pickle requires a callable."""


class Stored:
    """An object that is pickled as a storage: a persistent ID with these parts."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts


class Pickler(pickle._Pickler):  # type: ignore[name-defined]  # only this one has `save`
    def persistent_id(self, obj: Any) -> Any:
        return obj.parts if isinstance(obj, Stored) else None

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        if not isinstance(obj, Named):
            super().save(obj, save_persistent_id)
            return
        module, _, name = obj.name.rpartition(".")
        self.write(b"c" + module.encode() + b"\n" + name.encode() + b"\n")


RECORD = bytes(range(64))
LONGS = Stored("storage", Named("torch.LongStorage"), "0", "cpu", 8)
FLOATS = Stored("storage", Named("torch.FloatStorage"), "0", "cpu", 16)
BYTES = Stored("storage", Named("torch.storage.UntypedStorage"), "0", "cpu", 64)
INTS8 = Stored("storage", Named("torch.QInt8Storage"), "0", "cpu", 64)
BOOLS = Stored("storage", Named("torch.BoolStorage"), "0", "cpu", 64)


def utils(name: str, *arguments: Any) -> Call:
    return Call(Named(f"torch._utils.{name}"), *arguments)


def tensor(storage: Any, shape: Any = (2,), strides: Any = (1,), *more: Any) -> Call:
    return utils("_rebuild_tensor_v2", storage, 0, shape, strides, *(more or (False, NO_HOOKS)))


def typed(function: Any, of: Any, arguments: Any) -> Call:
    return Call(Named("torch._tensor._rebuild_from_type_v2"), function, of, arguments, None)


def quantized(storage: Any, scheme: Any) -> Call:
    return utils("_rebuild_qtensor", storage, 0, (4,), (1,), scheme, False, NO_HOOKS)


def jagged(**parts: Any) -> Call:
    rebuild = Named("torch.nested._internal.nested_tensor._rebuild_njt")
    of = Named("torch.nested._internal.nested_tensor.NestedTensor")
    return typed(rebuild, of, (parts,))


def sparse(layout: str, *parts: Any) -> Call:
    told = Call(Named("torch.serialization._get_layout"), layout)
    return utils("_rebuild_sparse_tensor", told, parts)


def nested(*numbers: Any) -> Call:
    rebuild = torch._utils._rebuild_nested_tensor
    return Call(rebuild, *(torch.tensor(value) for value in numbers))


def array(of: Any = None, state: Any = None, dtype: Any = None) -> Call:
    known = Call(Named("numpy.dtype"), "f4", False, True, state=(3, "<", None, None, None, -1, 0))
    whole = (1, (2,), dtype or known, False, b"8 bytes!")
    rebuild = Named("numpy.core.multiarray._reconstruct")
    return Call(rebuild, of or Named("numpy.ndarray"), (0,), b"b", state=state or whole)


HUGE = 2**62
QPER_TENSOR = Named("torch.per_tensor_affine")
QPER_CHANNEL = Named("torch.per_channel_affine")
CASES: dict[str, tuple[Any, str]] = {
    "no dtype": (tensor(BYTES), "storage: expected one with a dtype"),
    "no storage": (tensor(5), "storage: expected a storage of the file"),
    "short storage": (tensor(Stored("storage", 1)), 'expected ."storage", class, key, location'),
    "other ID": (tensor(Stored("file", *FLOATS.parts[1:])), 'expected ."storage", class, key'),
    "view of a storage": (
        tensor(Stored(*FLOATS.parts, ("0", 0, 4))),
        "a view of a storage cannot be read",
    ),
    "no class": (tensor(Stored("storage", 7, "0", "cpu", 16)), "storage: expected a class"),
    "unknown class": (
        tensor(Stored("storage", Named("os.system"), "0", "cpu", 16)),
        "os.system",
    ),
    "storage key that is an int": (
        tensor(Stored("storage", Named("torch.FloatStorage"), 0, "cpu", 16)),
        "storage key: expected a string",
    ),
    "no record": (
        tensor(Stored("storage", Named("torch.FloatStorage"), "7", "cpu", 16)),
        'the file lacks it: expected the storage "7"',
    ),
    "wrong size": (
        tensor(Stored("storage", Named("torch.FloatStorage"), "0", "cpu", 15)),
        "its size does not fit: expected 15 elements of float32, found 64 bytes",
    ),
    "size that overflows": (
        tensor(Stored("storage", Named("torch.FloatStorage"), "0", "cpu", HUGE)),
        "its size does not fit",
    ),
    "too few arguments": (utils("_rebuild_tensor_v2", FLOATS, 0), "argument"),
    "negative offset": (
        utils("_rebuild_tensor_v2", FLOATS, -1, (2,), (1,), False, NO_HOOKS),
        "storage offset",
    ),
    "offset that overflows": (
        utils("_rebuild_tensor_v2", FLOATS, 2**63 - 1, (2,), (1,), False, NO_HOOKS),
        "it reaches beyond its storage",
    ),
    "too few strides": (tensor(FLOATS, (2, 2), (1,)), "strides do not fit"),
    "shape that overflows": (tensor(FLOATS, (HUGE, HUGE), (1, 1)), "shape: too large"),
    "shape of floats": (tensor(FLOATS, (1.5,)), "shape"),
    "strides that overflow": (tensor(FLOATS, (3, 3), (HUGE, HUGE)), "it reaches beyond"),
    "beyond the storage": (
        tensor(FLOATS, (17,)),
        "it reaches beyond its storage: expected at most 16 elements",
    ),
    "requires_grad of 1": (
        tensor(FLOATS, (2,), (1,), 1, NO_HOOKS),
        "requires_grad: expected a bool",
    ),
    "integers with a gradient": (
        tensor(LONGS, (2,), (1,), True, NO_HOOKS),
        "requires_grad: expected a tensor of floating-point or complex numbers, found int64",
    ),
    "metadata": (
        tensor(FLOATS, (2,), (1,), False, NO_HOOKS, {"odd": True}),
        'a tensor with unknown metadata cannot be read: expected "conj" or "neg", found "odd"',
    ),
    "metadata that is no dict": (
        tensor(FLOATS, (2,), (1,), False, NO_HOOKS, 5),
        "metadata: expected a dict",
    ),
    "negative bools": (
        tensor(BOOLS, (2,), (1,), False, NO_HOOKS, {"neg": True}),
        "a negative view cannot be read",
    ),
    "v3 without a dtype": (
        utils("_rebuild_tensor_v3", BYTES, 0, (2,), (1,), False, NO_HOOKS, Named("torch.odd")),
        "dtype: it cannot be read",
    ),
    "parameter of a number": (
        utils("_rebuild_parameter", 5, True, NO_HOOKS),
        "tensor: expected a call",
    ),
    "parameter of another call": (
        utils("_rebuild_parameter", Call(Named("os.system"), "x"), True, NO_HOOKS),
        "os.system",
    ),
    "type without a function": (
        typed(5, Named("torch.Tensor"), ()),
        "_rebuild_from_type_v2: expected a function and a tuple",
    ),
    "type with another function": (
        typed(Named("os.system"), Named("torch.Tensor"), ("x",)),
        "os.system",
    ),
    "quantized bytes": (
        quantized(BYTES, (QPER_TENSOR, 0.5, 0)),
        "quantized tensor: expected a storage of quantized elements",
    ),
    "scheme": (
        quantized(INTS8, (Named("torch.odd"), 0.5, 0)),
        "expected one that is quantized per tensor or per channel, found another scheme",
    ),
    "scale that is a string": (
        quantized(INTS8, (QPER_TENSOR, "1", 0)),
        "quantized tensor: expected a float as scale and an int as zero point",
    ),
    "axis": (
        quantized(INTS8, (QPER_CHANNEL, tensor(FLOATS), tensor(LONGS), 1)),
        "quantized tensor: axis: expected a dimension",
    ),
    "scales of another length": (
        quantized(INTS8, (QPER_CHANNEL, tensor(FLOATS), tensor(LONGS), 0)),
        "quantized tensor: scales: expected a tensor",
    ),
    "layout": (
        sparse("torch.strided", tensor(LONGS), tensor(FLOATS), (2,)),
        "sparse tensor: expected a layout of torch and its parts",
    ),
    "sparse parts": (
        sparse("torch.sparse_coo", 5, tensor(FLOATS), (2,)),
        "sparse tensor: indices: expected a tensor, found another value",
    ),
    "CSR with is_coalesced": (
        sparse("torch.sparse_csr", tensor(LONGS), tensor(LONGS), tensor(FLOATS), (2, 2), True),
        "sparse tensor: expected a layout of torch and its parts",
    ),
    "is_coalesced that is a string": (
        sparse("torch.sparse_coo", tensor(LONGS), tensor(FLOATS), (2,), "yes"),
        "sparse tensor: is_coalesced: expected a bool or None",
    ),
    "jagged without parts": (
        typed(
            Named("torch.nested._internal.nested_tensor._rebuild_njt"),
            Named("torch.nested._internal.nested_tensor.NestedTensor"),
            (),
        ),
        "jagged tensor: expected a dict of its parts",
    ),
    "jagged without values": (jagged(offsets=tensor(LONGS)), "jagged tensor: values: expected"),
    "jagged values that are a string": (
        jagged(values="x", offsets=tensor(LONGS)),
        "jagged tensor: values: expected a tensor, found another value",
    ),
    "ragged dimension": (
        jagged(values=tensor(FLOATS), offsets=tensor(LONGS), _ragged_idx=2),
        "jagged tensor: expected offsets of shape .n . 1. and a ragged dimension",
    ),
    "nested of numbers": (
        utils("_rebuild_nested_tensor", 1, 2, 3, 4),
        "nested tensor: expected tensors",
    ),
    "nested views": (
        nested([1.0, 2.0], [[1], [1]], [[1], [1]], [1, 0]),
        "nested tensor: expected contiguous components, found other offsets or strides",
    ),
    "nested sizes that overflow": (
        nested([1.0], [[HUGE], [HUGE]], [[1], [1]], [0, HUGE]),
        "nested tensor",
    ),
    "nested sizes that do not fit": (
        nested([1.0], [[2], [2]], [[1], [1]], [0, 2]),
        "values do not fit the sizes: expected 4 elements, found 1",
    ),
    "array of a class": (array(of=Named("numpy.matrix")), "array: expected numpy.ndarray"),
    "array without a state": (array(state=(1, 2)), "array: expected a state of 5 parts"),
    "array of no dtype": (array(dtype="f4"), "dtype: expected a dtype of NumPy"),
    "dtype without a state": (
        array(dtype=Call(Named("numpy.dtype"), "f4", False, True)),
        "dtype: expected a state with a byte order",
    ),
    "array whose bytes are a string": (
        array(state=(1, (2,), numpy.dtype("f4"), False, "8 bytes!")),
        "array: expected its bytes",
    ),
    "array that overflows": (
        array(state=(1, (HUGE, HUGE), numpy.dtype("f4"), False, b"")),
        "shape: too large",
    ),
}


def write(path: Path, value: Any) -> None:
    pickled = io.BytesIO()
    Pickler(pickled, protocol=2).dump({"x": value})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", pickled.getvalue())
        archive.writestr("a/byteorder", "little")
        archive.writestr("a/data/0", RECORD)
        archive.writestr("a/version", "3\n")


@pytest.mark.parametrize("name", CASES)
def test_inconsistent_pickle_is_refused_with_the_path(tmp_path: Path, name: str) -> None:
    value, words = CASES[name]
    path = tmp_path / "m.pt"
    if name.startswith("nested") and name != "nested of numbers":
        torch.save({"x": value}, path)  # with a record for each tensor
        text = path.read_bytes()
        assert b"_rebuild_nested_tensor" in text
    else:
        write(path, value)
    with pytest.raises((tenfold.CorruptFileError, tenfold.UnsupportedError), match=words) as found:
        tenfold.load(path)
    assert str(found.value).startswith(f"{path}: ")


def test_handmade_file_with_a_consistent_pickle_is_read(tmp_path: Path) -> None:
    write(tmp_path / "m.pt", {"t": tensor(LONGS), "a": array(), "b": tensor(BOOLS, (0,))})
    found = tenfold.load(tmp_path / "m.pt")["x"]
    assert found["t"].tolist() == [0x0706050403020100, 0x0F0E0D0C0B0A0908]
    assert found["a"].dtype == torch.float32
    assert found["b"].shape == (0,)
