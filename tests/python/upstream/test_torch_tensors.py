"""Files of torch.save with NumPy arrays, parameters, and sparse, jagged and meta tensors."""

import collections
import warnings
import zipfile

import numpy
import pytest
import torch
from torch_files import assert_same, roundtrip

import tenfold


def test_types_that_torch_allows_only_explicitly_are_read(tmp_path):
    obj = {
        "f": numpy.float64(2.5),
        "i": numpy.int32(-7),
        "a": numpy.arange(6).reshape(2, 3).T,
        "d": collections.defaultdict(list, x=[1]),
        "z": [frozenset({1}), b""],
    }
    torch.save(obj, tmp_path / "n.pt")
    ours = tenfold.load(tmp_path / "n.pt")
    assert ours["f"].dtype == torch.float64
    assert ours["f"] == 2.5
    assert ours["i"].dtype == torch.int32
    assert ours["i"] == -7
    assert torch.equal(ours["a"], torch.from_numpy(obj["a"].copy()))
    assert ours["d"] == {"x": [1]}
    assert type(ours["d"]) is dict
    assert ours["z"] == obj["z"]
    assert type(ours["z"][0]) is frozenset


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            (b"abc", numpy.dtype("f8"), (5,), "C"),
            "bytes do not fit the shape: expected 40 bytes, found 3",
        ),
        ((b"abcd", numpy.dtype("f4"), (1,), "A"), 'order: expected "C", "F" or "K" with axes'),
        ((b"abcd", numpy.dtype("f4"), (-1,), "C"), "shape"),
        ((b"abcd", numpy.dtype(">f4"), (1,), "C"), "big-endian"),
        ((b"abcd", numpy.dtype("f4"), (1,)), "argument"),
    ],
)
def test_inconsistent_protocol_5_arrays_are_refused(tmp_path, arguments, words):
    class Array:
        def __reduce__(self):
            return numpy.empty(0).__reduce_ex__(5)[0], arguments

    torch.save({"a": Array()}, tmp_path / "m.pt", pickle_protocol=5)
    with pytest.raises((tenfold.CorruptFileError, tenfold.UnsupportedError), match=words):
        tenfold.load(tmp_path / "m.pt")


def test_sparse_tensors_are_read_as_by_torch_and_converted(tmp_path):
    dense = torch.tensor([[0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 4, 0], [0, 0, 0, 5.0]])
    coo = torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (3, 4), check_invariants=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = {
            "coo": dense.to_sparse(),
            "uncoalesced": coo,
            "hybrid": torch.eye(3).reshape(3, 3, 1).to_sparse(2),
            "csr": dense.to_sparse_csr(),
            "batched": torch.stack([dense, dense]).to_sparse_csr(),
            "csc": dense.to_sparse_csc(),
            "bsr": dense.to_sparse_bsr((2, 2)),
            "bsc": dense.to_sparse_bsc((2, 1)),
            "empty": torch.zeros(3, 0).to_sparse(),
            "x": [dense],
        }
        ours = roundtrip(tmp_path, tree)
        for target in ("folder", "m.pt", "m.tdz", "m.td"):
            form = "consolidated" if target == "m.td" else None
            tenfold.convert(tmp_path / "checkpoint.pt", tmp_path / target, format=form)
            assert_same(tenfold.load(tmp_path / target), ours)
            assert tenfold.verify(tmp_path / target).ok
            tenfold.save(ours, tmp_path / f"again-{target}", format=form)
            assert_same(tenfold.load(tmp_path / f"again-{target}"), ours)
            assert_same(tenfold.open(tmp_path / target).to_dict(), dict(ours))
        torch.load(tmp_path / "m.pt", weights_only=True)
    with pytest.raises(
        tenfold.UnsupportedError, match=r'key "coo": format "safetensors" cannot hold it'
    ):
        tenfold.convert(tmp_path / "checkpoint.pt", tmp_path / "m.safetensors")
    with pytest.raises(
        tenfold.UnsupportedError, match=r'key "coo": format "safetensors" cannot hold it'
    ):
        tenfold.save(ours, tmp_path / "m.safetensors")
    assert not (tmp_path / "m.safetensors").exists()


def test_invalid_sparse_indices_are_refused_before_construction(tmp_path):
    def hostile(tensor, part, value):
        getattr(tensor, part)()[..., -1] = value
        return tensor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = {
            "indices: expected 0 to 2, found 3": hostile(torch.eye(3).to_sparse(), "_indices", 3),
            "indices: expected 0 to 2, found -1": hostile(torch.eye(3).to_sparse(), "_indices", -1),
            "crow_indices: expected 3 as the last offset, found 9": hostile(
                torch.eye(3).to_sparse_csr(), "crow_indices", 9
            ),
            "col_indices: expected 0 to 2, found 7": hostile(
                torch.eye(3).to_sparse_csr(), "col_indices", 7
            ),
            "row_indices: expected 0 to 2, found 8": hostile(
                torch.eye(3).to_sparse_csc(), "row_indices", 8
            ),
        }
    for message, tensor in made.items():
        torch.save({"a": {"s": tensor}}, tmp_path / "m.pt")
        with pytest.raises(tenfold.CorruptFileError, match=f'key "a.s": sparse tensor: {message}'):
            tenfold.load(tmp_path / "m.pt")


@pytest.mark.filterwarnings("error")
def test_jagged_tensors_are_read(tmp_path):
    rows = [torch.arange(2.0), torch.arange(3.0)]
    wide = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(1, 4)], layout=torch.jagged)
    tree = {
        "rows": torch.nested.nested_tensor(rows, layout=torch.jagged),
        "wide": wide,
        "turned": wide.transpose(1, 2),
        "holes": torch.nested.narrow(
            torch.arange(20.0).reshape(4, 5),
            1,
            torch.tensor([0, 1, 2, 0]),
            torch.tensor([2, 3, 1, 5]),
            layout=torch.jagged,
        ),
    }
    torch.save(tree, tmp_path / "m.pt")
    tenfold.convert(tmp_path / "m.pt", tmp_path / "folder")
    for name in ("m.pt", "folder"):
        loaded = tenfold.load(tmp_path / name)
        for key, expected in tree.items():
            found = loaded[key]
            assert found.layout is torch.jagged, key
            assert found.dtype == expected.dtype
            assert found._ragged_idx == expected._ragged_idx
            assert torch.equal(found.values(), expected.values())
            assert torch.equal(found.offsets(), expected.offsets())
            assert (found.lengths() is None) == (expected.lengths() is None)
            if expected.lengths() is not None:
                assert torch.equal(found.lengths(), expected.lengths())


def test_meta_tensors_are_loaded_and_refused_by_save(tmp_path):
    meta = torch.empty(2, 3, dtype=torch.float16, device="meta").t()
    tree = {"a": [meta], "p": torch.nn.Parameter(meta, requires_grad=False), "x": torch.ones(1)}
    torch.save(tree, tmp_path / "m.pt")
    for loaded in (tenfold.load(tmp_path / "m.pt"), tenfold.open(tmp_path / "m.pt").to_dict()):
        for made in (loaded["a"][0], loaded["p"]):
            assert made.device.type == "meta"
            assert (made.dtype, made.shape) == (meta.dtype, meta.shape)
            assert made.stride() == meta.stride()
        assert type(loaded["a"][0]) is torch.Tensor
        assert type(loaded["p"]) is torch.nn.Parameter
        assert not loaded["p"].requires_grad
    assert tenfold.verify(tmp_path / "m.pt").ok
    with pytest.raises(tenfold.UnsupportedError, match=r'key "a\.0": a tensor on the meta device'):
        tenfold.convert(tmp_path / "m.pt", tmp_path / "folder")
    with pytest.raises(tenfold.UnsupportedError, match=r'key "a\.0": a tensor on the meta device'):
        tenfold.save(tenfold.open(tmp_path / "m.pt"), tmp_path / "folder")


def autograd_tensors():
    tied = torch.nn.Parameter(torch.arange(4.0))
    return {
        "prompt": torch.nn.Parameter(torch.ones(2, 3)),
        "frozen": torch.nn.Parameter(torch.arange(3), requires_grad=False),
        "tied": [tied, tied],
        "plain over it": tied.detach(),
        "leaf": torch.ones(2, dtype=torch.complex64, requires_grad=True),
        "plain": torch.zeros(2),
    }


def assert_same_grads(found, expected):
    for key, value in expected.items():
        pairs = zip(found[key], value, strict=True) if key == "tied" else [(found[key], value)]
        for one, other in pairs:
            assert type(one) is type(other), key
            assert one.requires_grad == other.requires_grad, key
            assert one.is_leaf
            assert torch.equal(one, other), key
    one, other = found["tied"]
    assert one.data_ptr() == other.data_ptr() == found["plain over it"].data_ptr()


@pytest.mark.parametrize("legacy", [False, True])
def test_parameters_are_loaded_as_parameters(tmp_path, legacy):
    torch.save(autograd_tensors(), tmp_path / "a.pt", _use_new_zipfile_serialization=not legacy)
    expected = torch.load(tmp_path / "a.pt", weights_only=True)
    found = tenfold.load(tmp_path / "a.pt")
    assert_same_grads(found, expected)
    assert found["tied"][0] is found["tied"][1]
    assert_same_grads(tenfold.open(tmp_path / "a.pt").to_dict(), expected)
    tenfold.convert(tmp_path / "a.pt", tmp_path / "b.pt")
    tenfold.save(autograd_tensors(), tmp_path / "c.pt")
    for path in (tmp_path / "b.pt", tmp_path / "c.pt"):
        assert_same_grads(torch.load(path, weights_only=True, mmap=True), autograd_tensors())


def test_integer_tensor_with_requires_grad_is_refused(tmp_path):
    torch.save({"a": torch.ones(2)}, tmp_path / "a.pt", pickle_protocol=2)
    with zipfile.ZipFile(tmp_path / "a.pt") as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(tmp_path / "b.pt", "w") as archive:
        for name, record in records.items():
            if name.endswith("data.pkl"):
                # requires_grad is the only False in the pickle.
                assert record.count(b"\x89") == 1
                record = record.replace(b"\x89", b"\x88").replace(b"FloatStorage", b"IntStorage")
            archive.writestr(name, record)
    with pytest.raises(tenfold.CorruptFileError, match=r"requires_grad.*found int32"):
        tenfold.load(tmp_path / "b.pt")


class Jagged:
    """An object that is pickled as a jagged tensor of these parts, which may be inconsistent."""

    def __init__(self, *parts):
        self.parts = parts

    def __reduce__(self):
        from torch.nested._internal import nested_tensor

        arguments = (nested_tensor._rebuild_njt, nested_tensor.NestedTensor, self.parts, None)
        return torch._tensor._rebuild_from_type_v2, arguments


WHOLE = {"values": torch.arange(5.0), "offsets": torch.tensor([0, 2, 5]), "_ragged_idx": 1}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (([1, 2],), "expected a dict of its parts"),
        ((WHOLE, WHOLE), "expected a dict of its parts"),
        (({},), "values: expected a tensor"),
        (({**WHOLE, "values": 3},), "values: expected a tensor"),
        (({**WHOLE, "offsets": None},), "offsets: expected a tensor"),
        (({**WHOLE, "lengths": "x"},), "lengths: expected a tensor"),
        (
            ({**WHOLE, "offsets": torch.zeros(2, 2, dtype=torch.int64)},),
            r"expected offsets of shape \[n",
        ),
        (({**WHOLE, "_ragged_idx": 2},), "a ragged dimension from 1 to 1"),
        (({**WHOLE, "_ragged_idx": 0},), "a ragged dimension from 1 to 1"),
        (({**WHOLE, "_ragged_idx": -1},), "ragged dimension"),
        (({**WHOLE, "offsets": torch.tensor([0, 2, 6])},), "offsets"),
        (({**WHOLE, "offsets": torch.tensor([0, 4, 3])},), "offsets"),
        (({**WHOLE, "offsets": torch.tensor([0.0, 2.0])},), "offsets"),
        (({**WHOLE, "lengths": torch.tensor([9, 1])},), "lengths"),
    ],
)
def test_inconsistent_jagged_tensors_are_refused(tmp_path, parts, message):
    torch.save({"x": Jagged(WHOLE), "bad": Jagged(*parts)}, tmp_path / "m.pt")
    with pytest.raises(tenfold.CorruptFileError, match=message):
        tenfold.load(tmp_path / "m.pt")


def test_consistent_jagged_tensor_is_read(tmp_path):
    torch.save({"x": Jagged(WHOLE)}, tmp_path / "m.pt")
    assert [row.tolist() for row in tenfold.load(tmp_path / "m.pt")["x"].unbind()] == [
        [0.0, 1.0],
        [2.0, 3.0, 4.0],
    ]
