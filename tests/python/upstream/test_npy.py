"""tenfold and NumPy read each other's .npy files."""

import numpy as np
import pytest
import torch

import tenfold

DTYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"]
SHAPES = [(), (0,), (1,), (7,), (2, 3), (3, 0, 2), (2, 3, 4), (1,) * 20, (123456,)]


def numbers(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    return (np.arange(np.prod(shape, dtype=int)) % 100).astype(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_files_equal_those_of_numpy_byte_for_byte(tmp_path, dtype, shape):
    array = numbers(dtype, shape)
    np.save(tmp_path / "numpy.npy", array)
    tenfold.save(torch.from_numpy(array), tmp_path / "tenfold.npy")
    assert (tmp_path / "tenfold.npy").read_bytes() == (tmp_path / "numpy.npy").read_bytes()


@pytest.mark.parametrize(
    "load",
    [tenfold.load, lambda path: tenfold.open(path)["value"], lambda path: tenfold.open(path)["x"]],
    ids=["load", "value", "stem"],
)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_files_saved_by_numpy_are_loaded(tmp_path, load, order, dtype):
    for shape in SHAPES:
        array = np.asarray(numbers(dtype, shape), order=order)
        np.save(tmp_path / "x.npy", array)
        tensor = load(tmp_path / "x.npy")
        assert tensor.dtype == torch.from_numpy(array).dtype
        assert tensor.shape == array.shape
        assert np.array_equal(tensor.numpy(), array)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)], ids=str)
def test_every_npy_version_is_read(tmp_path, version):
    array = numbers("f4", (2, 3))
    with open(tmp_path / "x.npy", "wb") as file:
        np.lib.format.write_array(file, array, version=version)
    assert np.array_equal(tenfold.load(tmp_path / "x.npy").numpy(), array)


def test_fortran_order_loads_with_its_strides(tmp_path):
    np.save(tmp_path / "x.npy", np.asfortranarray(numbers("i8", (4, 5, 6))))
    assert tenfold.load(tmp_path / "x.npy").stride() == (1, 4, 20)


def test_numpy_reads_saved_views(tmp_path):
    tensor = torch.arange(24.0).reshape(4, 6)
    for view in (tensor.T, tensor[::2], tensor[:, 1::2], tensor[1].expand(3, 6)):
        tenfold.save(view, tmp_path / "x.npy")
        assert np.array_equal(np.load(tmp_path / "x.npy"), view.numpy())


def test_array_is_found_by_its_file_name(tmp_path):
    np.save(tmp_path / "a.b.npy", np.zeros(2))
    (tmp_path / "a.b.npy").rename(tmp_path / "weights.v2.dat")
    assert tenfold.probe(tmp_path / "weights.v2.dat") == "npy"
    opened = tenfold.open(tmp_path / "weights.v2.dat")
    assert list(opened.keys()) == ["value"]
    assert opened["weights.v2"] is opened["value"]
    assert "weights.v2" in opened
    assert "weights" not in opened


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros(2, ">f4"), "big-endian elements cannot be mapped"),
        (np.array([{}], dtype=object), "an array of Python objects is a pickle"),
        (np.zeros(2, [("x", "f4"), ("y", "i2")]), "a structured array is not a tensor"),
        (np.array(["a"]), "torch has no such dtype"),
        (np.zeros(2, "M8[s]"), "torch has no such dtype"),
        (np.zeros(2, np.longdouble), "torch has no such dtype"),
    ],
    ids=lambda value: str(value.dtype) if isinstance(value, np.ndarray) else "",
)
def test_unsupported_arrays_are_refused_by_dtype(tmp_path, array, words):
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    with pytest.raises(tenfold.UnsupportedError, match=words):
        tenfold.load(tmp_path / "x.npy")


@pytest.mark.parametrize(
    "tree",
    [
        torch.zeros(2, dtype=torch.bfloat16),
        torch.zeros(2, dtype=torch.float8_e4m3fn),
        {"x": torch.zeros(2)},
        {"a": torch.zeros(2), "x": torch.zeros(2)},
        [torch.zeros(2)],
        "text",
    ],
    ids=["bfloat16", "float8", "dict", "two", "list", "text"],
)
def test_save_refuses_trees_and_dtypes_unsupported_by_npy(tmp_path, tree):
    with pytest.raises(tenfold.UnsupportedError, match=r"x\.npy: root: "):
        tenfold.save(tree, tmp_path / "x.npy")
    assert not list(tmp_path.iterdir())
