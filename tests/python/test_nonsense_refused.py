"""`open` and `load` refuse files with contradictory or invalid values; `verify` reports them."""

from __future__ import annotations

import json
import pickle
import struct
import sys
import zipfile

import numpy
import pytest
import torch

import tenfold

TD = "<class 'tensordict._td.TensorDict'>"
LAZY = "<class 'tensordict._lazy.LazyStackedTensorDict'>"


def leaf(shape, dtype="torch.float32"):
    return {"device": "cpu", "shape": shape, "dtype": dtype, "is_nested": False}


def folder(path, meta, **files):
    path.mkdir(parents=True)
    (path / "meta.json").write_text(json.dumps(meta))
    for name, content in files.items():
        (path / f"{name}.memmap").write_bytes(content)
    return path


def node(shape=(), device="cpu", **leaves):
    return {**leaves, "shape": list(shape), "device": device, "_type": TD}


def refused(path, text, error=tenfold.CorruptFileError):
    for call in (tenfold.open, tenfold.load):
        with pytest.raises(error) as caught:
            call(path)
        assert str(path) in str(caught.value)
        assert text in str(caught.value)
    report = tenfold.verify(path)
    assert not report.ok
    assert any(text in f"{problem.part}: {problem.what}" for problem in report.problems)


def test_batch_size_that_matches_no_tensor_is_refused(tmp_path):
    path = folder(tmp_path / "x", node([7], a=leaf([2]), b=leaf([3, 7])), a=bytes(8), b=bytes(84))
    refused(
        path,
        "the batch size fits no tensor: expected the beginning of a tensor's shape, such as [2]",
    )


def test_tensor_outside_the_batch_size_is_read_next_to_a_matching_one(tmp_path):
    # Entry "b" is stored as tensordict up to 0.14 stored an UnbatchedTensor.
    path = folder(tmp_path / "x", node([2], a=leaf([2]), b=leaf([3])), a=bytes(8), b=bytes(12))
    assert tenfold.load(path)["b"].tolist() == [0, 0, 0]
    assert tenfold.verify(path).ok


@pytest.mark.parametrize("device", ["nonsense:99999999999", "cuda:-1", "os.system", "CPU", "cpu:"])
def test_invalid_device_of_a_folder_is_refused(tmp_path, device):
    path = folder(tmp_path / "x", node([2], device=device, a=leaf([2])), a=bytes(8))
    refused(path, "device: expected a type and optionally an index of at most 127")


def test_device_unknown_to_torch_raises_on_access(tmp_path):
    path = folder(tmp_path / "x", node([2], device="newchip:1", a=leaf([2])), a=bytes(8))
    tree = tenfold.TensorDict.load_memmap(path)
    assert tree["a"].tolist() == [0, 0]
    with pytest.raises(tenfold.UnsupportedError) as caught:
        _ = tree.device
    assert str(caught.value).startswith(f"{path}: device: expected a device that torch supports")
    assert 'found "newchip:1"' in str(caught.value)
    assert "newchip:1" in str(tree)
    assert tree.clear_device_().device is None


def stack(path, meta, *shapes):
    folder(path, meta)
    for i, shape in enumerate(shapes):
        size = 4 * int(numpy.prod([1, *shape]))
        folder(path / str(i), node(shape, a=leaf(list(shape))), a=bytes(size))
    return path


def test_lazy_stack_without_stack_dim_is_refused(tmp_path):
    path = stack(tmp_path / "x", {"_type": LAZY}, [2], [2])
    refused(path, "stack_dim: expected an integer, found none")


@pytest.mark.parametrize("dim", [2, 63])
def test_lazy_stack_dim_beyond_the_dimensions_of_its_entries_is_refused(tmp_path, dim):
    path = stack(tmp_path / "x", {"_type": LAZY, "stack_dim": dim}, [2], [2])
    refused(path, f'the number of batch dimensions of entry "0", found {dim}')


def test_lazy_stack_entry_with_fewer_dimensions_is_refused(tmp_path):
    path = stack(tmp_path / "x", {"_type": LAZY, "stack_dim": 2}, [2, 2], [2])
    with pytest.raises(tenfold.CorruptFileError, match='of entry "1", found 2'):
        tenfold.load(path)
    assert 'of entry "1", found 2' in tenfold.verify(path).problems[0].what


def test_a_lazy_stack_along_the_last_dimension_is_read(tmp_path):
    path = stack(tmp_path / "x", {"_type": LAZY, "stack_dim": 1}, [2], [2])
    assert tenfold.verify(path).ok
    assert tuple(tenfold.TensorDict.load_memmap(path).batch_size) == (2, 2)


def test_a_tensorclass_may_have_a_field_called_stack_dim(tmp_path):
    path = folder(tmp_path / "x", {"_type": "<class 'app.Point'>", "stack_dim": 100})
    folder(path / "_tensordict", node([2], a=leaf([2])), a=bytes(8))
    with pytest.warns(UserWarning, match="Point"):
        assert tenfold.TensorDict.load_memmap(path)["a"].tolist() == [0, 0]


# --- files of torch.save -------------------------------------------------------------------------


class Calls:
    """An object that is pickled as the call `function(*arguments)`."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def torch_file(path, value):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", pickle.dumps({"v": value}, protocol=2))
        archive.writestr("x/version", "3\n")
    return path


@pytest.mark.parametrize("name", ["os.system", "torch.float32", "strided"])
def test_invalid_layout_of_a_torch_file_is_refused(tmp_path, name):
    path = torch_file(tmp_path / "x.pt", Calls(torch.serialization._get_layout, name))
    refused(path, 'layout: expected a layout of torch, such as "torch.strided", found "' + name)


@pytest.mark.parametrize("device", [("nonsense:99999999999",), ("cuda", 99999999999), ("rm -rf",)])
def test_invalid_device_of_a_torch_file_is_refused(tmp_path, device):
    class Device:
        def __reduce__(self):
            return torch.device, device

    path = torch_file(tmp_path / "x.pt", Device())
    refused(path, "device: expected a type and optionally an index of at most 127")


def test_devices_and_layouts_of_torch_are_read(tmp_path):
    value = [torch.device("cuda:1"), torch.device("cpu"), torch.strided, torch.sparse_csr]
    torch.save({"v": value}, tmp_path / "x.pt")
    assert tenfold.load(tmp_path / "x.pt")["v"] == value
    tenfold.save({"v": value}, tmp_path / "x")
    assert tenfold.load(tmp_path / "x")["v"] == value


# --- sparse tensors ------------------------------------------------------------------------------


def sparse_tensors():
    dense = torch.tensor([[0.0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 0, 4], [0, 5, 6, 0]])
    return {
        "csr": dense.to_sparse_csr(),
        "csc": dense.to_sparse_csc(),
        "bsr": dense.to_sparse_bsr((2, 2)),
        "bsc": dense.to_sparse_bsc((2, 2)),
        "coo": dense.to_sparse_coo(),
    }


def sort_keys(path):
    for meta in path.rglob("meta.json"):
        meta.write_text(json.dumps(json.loads(meta.read_text()), sort_keys=True))


@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc", "coo"])
@pytest.mark.parametrize("suffix", ["", ".tdz", ".pt", ".consolidated"])
def test_sparse_components_may_be_in_any_order(tmp_path, layout, suffix):
    expected = sparse_tensors()[layout]
    tenfold.save({"s": expected}, tmp_path / "x", checksums=False)
    sort_keys(tmp_path / "x")
    assert tenfold.verify(tmp_path / "x").ok
    path = tmp_path / "x"
    if suffix:
        path = tmp_path / f"y{suffix}"
        format = {".consolidated": "consolidated"}.get(suffix)
        tenfold.convert(tmp_path / "x", path, **({"format": format} if format else {}))
    found = tenfold.load(path)["s"]
    assert found.layout == expected.layout
    assert torch.equal(found.to_dense(), expected.to_dense())
    if suffix == ".pt":
        upstream = torch.load(path, weights_only=True)["s"]
        assert torch.equal(upstream.to_dense(), expected.to_dense())


def sparse_folder(path, layout, shape, **parts):
    leaves = {name: leaf(list(t.shape), str(t.dtype)) for name, t in parts.items()}
    folder(path, node(s={"type": "TensorDict"}))
    files = {name: t.numpy().tobytes() for name, t in parts.items()}
    folder(path / "s", node(**leaves), **files)
    note = {"kind": "sparse", "layout": layout, "shape": shape}
    notes = {"version": 1, "nodes": {"": {"kind": "dict"}, "s": note}}
    (path / "%notes.json").write_text(json.dumps(notes))
    return path


def test_int32_indices_of_more_than_2_31_columns_are_read(tmp_path):
    path = sparse_folder(
        tmp_path / "x",
        "sparse_csr",
        [2, 2**32],
        crow_indices=torch.tensor([0, 1, 2], dtype=torch.int32),
        col_indices=torch.tensor([5, 2**31 - 1], dtype=torch.int32),
        values=torch.ones(2),
    )
    found = tenfold.load(path)["s"]
    assert tuple(found.shape) == (2, 2**32)
    assert found.col_indices().tolist() == [5, 2**31 - 1]
    assert tenfold.verify(path).ok


def test_indices_of_different_dtypes_are_read(tmp_path):
    path = sparse_folder(
        tmp_path / "x",
        "sparse_csr",
        [2, 3],
        crow_indices=torch.tensor([0, 1, 2]),
        col_indices=torch.tensor([2, 1], dtype=torch.int32),
        values=torch.ones(2),
    )
    assert tenfold.load(path)["s"].to_dense().tolist() == [[0, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize("layout", ["sparse_csr", "sparse_coo"])
def test_float_indices_are_refused(tmp_path, layout):
    parts = {"indices": torch.zeros(2, 1)}
    if layout == "sparse_csr":
        parts = {
            "crow_indices": torch.tensor([0.0, 1, 1]),
            "col_indices": torch.tensor([0], dtype=torch.int64),
        }
    path = sparse_folder(tmp_path / "x", layout, [2, 2], **parts, values=torch.ones(1))
    with pytest.raises(tenfold.CorruptFileError, match="expected int64 or int32, found float32"):
        tenfold.load(path)
    assert not tenfold.verify(path).ok


# --- numbers -------------------------------------------------------------------------------------


def long_number_folder(path):
    tenfold.save({"n": 12345678901234567890123, "w": torch.ones(1)}, path)
    for file in path.rglob("*.json"):
        file.write_text(file.read_text().replace("12345678901234567890123", "7" * 5000))
    return path


def test_load_of_an_integer_beyond_the_digit_limit_is_refused(tmp_path):
    path = long_number_folder(tmp_path / "x")
    with pytest.raises(tenfold.UnsupportedError) as caught:
        tenfold.load(path)
    assert str(path) in str(caught.value)
    assert 'key "n": integer is too long: expected at most 4300 digits, found 5000' in str(
        caught.value
    )
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        assert tenfold.load(path)["n"] == int("7" * 5000)
    finally:
        sys.set_int_max_str_digits(limit)


def test_save_of_an_integer_beyond_the_digit_limit_is_refused(tmp_path):
    with pytest.raises(tenfold.UnsupportedError, match=r'key "a.n": integer is too long'):
        tenfold.save({"a": {"n": 10**5000, "w": torch.ones(1)}}, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_save_of_an_integer_key_beyond_the_digit_limit_is_refused(tmp_path):
    for key in (10**5000, (10**5000, 1)):
        with pytest.raises(tenfold.UnsupportedError) as caught:
            tenfold.save({"a": {key: torch.ones(1)}}, tmp_path / "x")
        message = (
            f'{tmp_path / "x"}: key "a": key: integer is too long: expected at most 4300 digits'
        )
        assert str(caught.value).startswith(message)
        assert not (tmp_path / "x").exists()


def test_load_of_an_integer_key_beyond_the_digit_limit_is_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        tenfold.save({"a": {10**5000: torch.ones(1)}}, path)
    finally:
        sys.set_int_max_str_digits(limit)
    with pytest.raises(tenfold.UnsupportedError) as caught:
        tenfold.load(path)
    assert str(path) in str(caught.value)
    assert 'key "1000' in str(caught.value)
    assert "integer is too long: expected at most 4300 digits, found 5001" in str(caught.value)


@pytest.mark.parametrize("shape", [[0, 2**62, 2**62], [2**62, 2**62, 0], [2**63 - 1, 0, 2]])
def test_safetensors_shape_whose_strides_overflow_is_refused(tmp_path, shape):
    header = json.dumps({"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    refused(path, "shape is too large: expected at most 2^63 - 1 bytes")


@pytest.mark.parametrize("shape", [(0, 2**62, 2**62), (2**62, 2**62, 0)])
def test_npy_shape_whose_strides_overflow_is_refused(tmp_path, shape):
    head = repr({"descr": "<f4", "fortran_order": False, "shape": shape})
    head += " " * (-(len(head) + 11) % 64) + "\n"
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
    refused(path, "too large")


# --- metadata ------------------------------------------------------------------------------------


def test_repr_of_a_lazy_stack_with_an_empty_member_shows_its_class(tmp_path):
    path = stack(tmp_path / "x", {"_type": LAZY, "stack_dim": 0})
    folder(path / "0", {"_type": LAZY, "stack_dim": 0})
    tree = tenfold.TensorDict.load_memmap(path)
    assert "LazyStackedTensorDict" in str(tree)
    assert "LazyStackedTensorDict" in repr(tree)
    empty = tree.tensordicts[0]
    assert empty.keys() == []
    assert str(empty)

    outer = folder(tmp_path / "y", node(s={"type": "LazyStackedTensorDict"}))
    folder(outer / "s", {"_type": LAZY, "stack_dim": 0, "stack_dim_name": "t"})
    assert "LazyStackedTensorDict" in str(tenfold.TensorDict.load_memmap(outer))


# --- schemas -------------------------------------------------------------------------------------

BAD_SCHEMAS = {
    "{": "schema",
    "[]": "schema: expected an object, found an array",
    "null": "schema: expected an object, found null",
    '{"columns": 3}': 'schema: member "columns": expected an object, found 3',
    '{"x": {"dtype": "float32"}}': 'schema: member "columns": is missing',
    '{"columns": {"x": 3}}': 'column "x": expected an object, found 3',
    '{"columns": {"x": {}}}': 'column "x": member "dtype": is missing',
    '{"columns": {"x": {"dtype": 3}}}': 'column "x": member "dtype": expected a string, found 3',
    '{"columns": {"x": {"dtype": "flaot32"}}}': 'column "x": member "dtype": expected a dtype',
    '{"columns": {"x": {"dtype": "float32", "shape": 3}}}': 'member "shape": expected an array',
    '{"columns": {"x": {"dtype": "float32", "shape": [-1]}}}': (
        'member "shape[0]": expected an integer'
    ),
    '{"columns": {"x": {"dtype": "float32", "nullable": 1}}}': 'member "nullable": expected true',
    '{"columns": {"r": {"columns": {"x": 3}}}}': 'column "r.x": expected an object',
}


@pytest.mark.parametrize("text", BAD_SCHEMAS)
def test_invalid_schema_json_is_refused(tmp_path, text):
    with pytest.raises(tenfold.CorruptFileError) as caught:
        tenfold.Schema.from_json(text)
    assert str(caught.value).startswith("schema: ")
    assert not str(caught.value).startswith("schema: schema")
    assert BAD_SCHEMAS[text] in str(caught.value)

    path = tmp_path / "schema.json"
    path.write_text(text)
    (tmp_path / "rows.jsonl").write_text('{"x": 1}\n')
    with pytest.raises(tenfold.CorruptFileError) as caught:
        tenfold.ingest(tmp_path / "rows.jsonl", tmp_path / "rows", schema=path)
    assert str(caught.value).startswith(f"{path}: ")
    assert BAD_SCHEMAS[text].removeprefix("schema: ") in str(caught.value)


def test_schema_that_is_not_a_str_or_not_utf8_is_refused(tmp_path):
    with pytest.raises(TypeError, match="text: expected a str, found int"):
        tenfold.Schema.from_json(3)
    path = tmp_path / "schema.json"
    path.write_bytes(b'{"columns": {"\xff": {"dtype": "int64"}}}')
    with pytest.raises(tenfold.CorruptFileError, match=r"schema\.json: "):
        tenfold.ingest([{"x": 1}], tmp_path / "rows", schema=path)
