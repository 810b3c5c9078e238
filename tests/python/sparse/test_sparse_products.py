"""Products, sums, transposes and dense copies, compared with scipy."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tenfold
from tenfold import SparseMatrix
from tenfold.sparse import _products

sparse = pytest.importorskip("scipy.sparse")
LAYOUTS = ["csr", "csc", "coo"]


def scipy_matrix(layout: str, dtype: Any = np.float64) -> Any:
    made = sparse.random(40, 25, density=0.1, format="csr", random_state=1)
    made.data = np.round(made.data * 10) + 1
    return made.astype(dtype).asformat(layout)


@pytest.fixture(params=["one block", "many blocks"])
def blocks(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "many blocks":
        monkeypatch.setattr(_products, "_BLOCK_ELEMENTS", 7)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
def test_products_match_scipy(layout: str, dtype: Any) -> None:
    expected = scipy_matrix(layout, dtype)
    matrix = SparseMatrix.from_scipy(expected)
    dense = np.arange(75, dtype=dtype).reshape(25, 3)
    found = matrix @ torch.from_numpy(dense)
    assert found.dtype == torch.from_numpy(dense).dtype
    np.testing.assert_allclose(found.numpy(), expected @ dense)
    np.testing.assert_allclose(
        (matrix @ torch.from_numpy(dense[:, 0])).numpy(), expected @ dense[:, 0]
    )
    by_numpy = matrix @ dense
    assert type(by_numpy) is np.ndarray
    np.testing.assert_allclose(by_numpy, expected @ dense)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_product_is_on_the_device_of_the_dense_operand(layout: str) -> None:
    expected = scipy_matrix(layout)
    found = SparseMatrix.from_scipy(expected) @ torch.ones(25, 2, device="cuda").double()
    assert found.device.type == "cuda"
    np.testing.assert_allclose(found.cpu().numpy(), expected @ np.ones((25, 2)))


@pytest.mark.usefixtures("blocks")
def test_product_with_an_array_supports_the_dtypes_of_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    matrix = SparseMatrix.from_torch(torch.eye(3, dtype=torch.bfloat16).to_sparse_csr())
    dense = np.arange(6, dtype=np.float32).reshape(3, 2)
    for dtype in (np.float32, ml_dtypes.bfloat16):
        found = matrix @ dense.astype(dtype)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found.astype(np.float32), dense)
    with pytest.raises(tenfold.UnsupportedError, match="numpy has no complex32"):
        SparseMatrix.from_coo([0], [0], torch.ones(1, dtype=torch.complex32), (1, 3)) @ dense


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.complex64])
def test_sums_match_scipy(layout: str, dtype: Any) -> None:
    expected = scipy_matrix(layout, dtype)
    matrix = SparseMatrix.from_scipy(expected)
    for axis in (0, 1, -1, -2):
        found = matrix.sum(axis)
        assert found.shape == (expected.shape[1 - axis % 2],)
        np.testing.assert_allclose(found.numpy(), np.asarray(expected.sum(axis)).reshape(-1))
    assert matrix.sum().shape == ()
    assert matrix.sum().item() == expected.sum()
    assert matrix.sum().dtype == torch.from_numpy(np.zeros(1, dtype)).sum().dtype


def test_sum_of_many_small_floats_is_accurate() -> None:
    count = 1 << 18
    values = torch.full((count,), 0.1)
    matrix = SparseMatrix.from_coo(
        torch.zeros(count).long(), torch.arange(count), values, (1, count)
    )
    assert abs(matrix.sum().item() - 0.1 * count) < 0.01


@pytest.mark.parametrize("layout", LAYOUTS)
def test_transpose_matches_scipy(tmp_path: Path, layout: str) -> None:
    expected = scipy_matrix(layout)
    matrix = SparseMatrix(SparseMatrix.from_scipy(expected).save(tmp_path / "m"))
    transposed = matrix.T
    assert transposed.shape == (25, 40)
    assert transposed.layout == {"csr": "csc", "csc": "csr", "coo": "coo"}[layout]
    np.testing.assert_array_equal(transposed.toarray(), expected.T.toarray())
    np.testing.assert_array_equal(transposed.T.toarray(), expected.toarray())
    again = pickle.loads(pickle.dumps(transposed))
    np.testing.assert_array_equal(again.toarray(), expected.T.toarray())
    transposed.save(tmp_path / "t")
    np.testing.assert_array_equal(SparseMatrix(tmp_path / "t").toarray(), expected.T.toarray())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_toarray_returns_a_dense_numpy_array(layout: str) -> None:
    expected = scipy_matrix(layout, np.float32)
    found = SparseMatrix.from_scipy(expected).toarray()
    assert type(found) is np.ndarray
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected.toarray())


def test_matrix_without_entries_is_all_zeros() -> None:
    matrix = SparseMatrix.from_scipy(sparse.csr_matrix((3, 4)))
    assert (matrix @ torch.ones(4, 2)).tolist() == [[0, 0]] * 3
    assert matrix.sum(0).tolist() == [0] * 4
    assert matrix.sum().item() == 0


def test_invalid_operands_and_axes_raise() -> None:
    matrix = SparseMatrix.from_scipy(scipy_matrix("csr"))
    with pytest.raises(
        ValueError, match=r"@: expected shape \(25,\) or \(25, n\), found \(40, 2\)"
    ):
        matrix @ torch.ones(40, 2)
    for other in ([1, 2], torch.eye(25).to_sparse(), 3):
        with pytest.raises(TypeError, match="@: expected a dense tensor"):
            matrix @ other
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor([torch.ones(2)] * 25, layout=layout)
        with pytest.raises(TypeError, match="@: expected a dense tensor, found a nested"):
            matrix @ nested
    for axis in (2, "x", True, 1.0, torch.tensor([0, 1])):
        with pytest.raises(ValueError, match="sum: axis: expected None, 0, 1, -1 or -2"):
            matrix.sum(axis)  # type: ignore[arg-type]


def test_subclasses_of_arrays_are_multiplied_as_arrays_unless_masked() -> None:
    x = scipy_matrix("csr")
    matrix = SparseMatrix.from_scipy(x)
    dense = np.arange(50.0).reshape(25, 2)
    for other in (np.matrix(dense), np.ma.masked_array(dense)):
        np.testing.assert_allclose(matrix @ other, x @ dense)
    masked = np.ma.masked_array(np.ones(25), [1] + [0] * 24)
    with pytest.raises(
        TypeError, match="@: expected a dense array, found one with masked elements"
    ):
        matrix @ masked


def test_out_of_range_column_index_raises_corrupt_file_error(tmp_path: Path) -> None:
    path = tmp_path / "m"
    SparseMatrix.from_scipy(scipy_matrix("csr")).save(path)
    file = path / "col_indices.memmap"
    damaged = np.fromfile(file, np.int32)
    damaged[3] = 1_000_000
    damaged.tofile(file)
    matrix = SparseMatrix(path)
    for call in (lambda: matrix @ torch.ones(25, 2), lambda: matrix.sum(0)):
        with pytest.raises(tenfold.CorruptFileError, match="col_indices: expected 0 to 24"):
            call()


@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_end_offsets_that_decrease_raise_corrupt_file_error(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "m"
    SparseMatrix.from_scipy(scipy_matrix(layout)).save(path)
    file = path / ("crow_indices.memmap" if layout == "csr" else "ccol_indices.memmap")
    ends = np.fromfile(file, np.int32)
    ends[5] = ends[9]
    ends.tofile(file)
    for call in (
        lambda matrix: matrix @ torch.ones(25, 2),
        lambda matrix: matrix @ np.ones((25, 2)),
        lambda matrix: matrix.sum(0),
        lambda matrix: matrix.sum(1),
    ):
        with pytest.raises(tenfold.CorruptFileError, match=r"sparse tensor: .*_indices"):
            call(SparseMatrix(path))
