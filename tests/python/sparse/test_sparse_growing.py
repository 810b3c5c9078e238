"""Rows that are streamed to disk, and rows that are added while other processes read."""

from __future__ import annotations

import multiprocessing
import time

import numpy as np
import pytest

import tenfold
from tenfold import SparseMatrix

sp = pytest.importorskip("scipy.sparse")
torch = pytest.importorskip("torch")


def example(rows=6, seed=0, dtype=np.float32):
    return sp.random(rows, 8, 0.4, "csr", random_state=seed, dtype=np.float64).astype(dtype)


def test_build_streams_rows_of_dicts_to_disk(tmp_path):
    rows = [{3: 1.5, 0: 2.0}, {}, {5: -1.0}, {}]
    m = SparseMatrix.build(iter(rows), tmp_path / "m", num_cols=9)
    assert (m.layout, m.shape, m.nnz, m.dtype) == ("csr", (4, 9), 3, torch.float64)
    assert m[0].tolist() == [2, 0, 0, 1.5, 0, 0, 0, 0, 0]
    assert m.index_dtype == torch.int32
    assert tenfold.verify(tmp_path / "m").ok
    m = SparseMatrix.build(rows, tmp_path / "n", dtype=torch.float16)
    assert m.shape == (4, 6)
    assert m.dtype == torch.float16
    assert SparseMatrix.build([{1: 2}, {0: 3}], tmp_path / "i").dtype == torch.int64
    assert SparseMatrix.build([], tmp_path / "e", num_cols=3).shape == (0, 3)
    many = SparseMatrix.build(({i % 7: i, 7: 1} for i in range(70_000)), tmp_path / "many")
    assert many.nnz == 140_000
    assert many[69_999, 69_999 % 7] == 69_999


def test_invalid_rows_are_named_by_number(tmp_path):
    path = tmp_path / "m"
    with pytest.raises(ValueError, match="row 1: column: expected 0 to 2, found 3"):
        SparseMatrix.build([{0: 1}, {3: 1}], path, num_cols=3)
    with pytest.raises(ValueError, match="row 0: column: expected 0 or more, found -1"):
        SparseMatrix.build([{-1: 1}], path)
    with pytest.raises(
        TypeError, match="row 1: expected a dict from column to element, found list"
    ):
        SparseMatrix.build([{0: 1}, [1]], path)
    with pytest.raises(TypeError, match="row 0: column: expected an int, found 'a'"):
        SparseMatrix.build([{"a": 1}], path)
    with pytest.raises(
        ValueError, match=r"row 1: expected int8, found 0\.5; pass another dtype to build"
    ):
        SparseMatrix.build([{0: 1}, {0: 0.5}], path, dtype=torch.int8)
    assert not path.exists()


def test_append_rows_accepts_every_sparse_type(tmp_path):
    x = example()
    SparseMatrix.from_scipy(x).save(tmp_path / "m")
    reader = SparseMatrix(tmp_path / "m")
    more = [example(2, 1), example(3, 2).tocsc(), example(1, 3).tocoo()]
    with SparseMatrix(tmp_path / "m", mode="r+") as m:
        assert m.append_rows(more[0]) == 8
        assert m.append_rows(SparseMatrix.from_scipy(more[1])) == 11
        tensor = SparseMatrix.from_scipy(more[2]).to_torch()
        assert m.append_rows(tensor) == 12
        assert m.append_rows([{1: 2.5}, {}]) == 14
        expected = np.concatenate([x.toarray(), *(part.toarray() for part in more)])
        last = np.zeros((2, 8))
        last[0, 1] = 2.5
        expected = np.concatenate([expected, last])
        np.testing.assert_array_equal(m[:], expected.astype(np.float32))
        assert len(reader) == 6
        np.testing.assert_array_equal(reader.refresh()[:], m[:])
        np.testing.assert_array_equal(SparseMatrix(tmp_path / "m")[:], m[:])
        np.testing.assert_array_equal(m.to_torch().to_dense(), m[:])
    assert tenfold.verify(tmp_path / "m").ok
    assert tenfold.load(tmp_path / "m").shape == (14, 8)
    np.testing.assert_array_equal(tenfold.load(tmp_path / "m").to_dense(), expected)


def test_invalid_appends_raise(tmp_path):
    x = example()
    SparseMatrix.from_scipy(x).save(tmp_path / "m")
    SparseMatrix.from_scipy(x).save(tmp_path / "m.tdz")
    with pytest.raises(tenfold.UnsupportedError, match='mode "r\\+"'):
        SparseMatrix(tmp_path / "m").append_rows(x)
    with pytest.raises(tenfold.UnsupportedError, match="expected a folder, found one file"):
        SparseMatrix(tmp_path / "m.tdz", mode="r+").append_rows(x)
    with pytest.raises(tenfold.UnsupportedError, match="found one in memory or in a tree"):
        SparseMatrix.from_scipy(x).append_rows(x)
    m = SparseMatrix(tmp_path / "m", mode="r+")
    with pytest.raises(ValueError, match="expected float32, found float64"):
        m.append_rows(example(dtype=np.float64))
    m.append_rows(x)
    with pytest.raises(OSError, match="one writer at a time"):
        SparseMatrix(tmp_path / "m", mode="r+").append_rows(x)
    m.close()
    m.close()
    with pytest.raises(tenfold.UnsupportedError, match="it was closed"):
        m.append_rows(x)
    assert SparseMatrix(tmp_path / "m", mode="r+").append_rows(x) == 18


def read_until(path, rows):
    m = SparseMatrix(path)
    while True:
        sums = m.rows(list(range(len(m))), "csr").to_dense().sum(1)
        assert sums.tolist() == [row % 5 + 1 for row in range(len(m))]
        if len(m) >= rows:
            return len(m)
        path.with_name("has_read").touch()
        m.refresh()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_readers_in_other_processes_see_only_complete_rows(tmp_path, method):
    def row(i):
        return dict.fromkeys(range(i % 5 + 1), 1.0)

    path = tmp_path / "m"
    SparseMatrix.build([row(0)], path, num_cols=5)
    with multiprocessing.get_context(method).Pool(1) as pool:
        reading = pool.apply_async(read_until, (path, 121))
        end = time.monotonic() + 60
        while not path.with_name("has_read").exists():  # so that the reader overlaps the appends
            assert time.monotonic() < end
            time.sleep(0.001)
        with SparseMatrix(path, mode="r+") as m:
            for begin in range(1, 121, 4):
                m.append_rows([row(i) for i in range(begin, begin + 4)])
        assert reading.get(60) == 121


@pytest.mark.parametrize("value", [465.0, -1e6, float("inf")])
def test_values_beyond_float8_are_refused_and_those_that_round_are_stored(tmp_path, value):
    dtype = torch.float8_e4m3fn
    with pytest.raises(ValueError, match=r"row 1: expected float8_e4m3fn\b"):
        SparseMatrix.build([{0: 464.0}, {0: value}], tmp_path / "m", dtype=dtype)
    m = SparseMatrix.build([{0: 464.0, 1: float("nan")}], tmp_path / "m", dtype=dtype)
    assert m[0].float().tolist()[0] == 448  # the maximum of float8_e4m3fn, to which 464 rounds
    assert m[0].float()[1].isnan()


@pytest.mark.parametrize("value", [2.5, 2, -1, float("nan"), 1j])
def test_elements_of_a_bool_matrix_are_bools(tmp_path, value):
    with pytest.raises(ValueError, match=r"row 1: expected bool, found "):
        SparseMatrix.build([{0: True}, {0: value}], tmp_path / "m", dtype=torch.bool)
    row = {0: True, 1: False, 2: 1, 3: np.True_, 4: 0.0}
    m = SparseMatrix.build([row], tmp_path / "m", dtype=torch.bool)
    assert m[0].tolist() == [True, False, True, True, False]


def test_dtypes_are_those_of_the_refreshed_matrix(tmp_path):
    SparseMatrix.from_scipy(example()).save(tmp_path / "m")
    m = SparseMatrix(tmp_path / "m")
    assert (m.dtype, m.index_dtype) == (torch.float32, torch.int32)
    other = SparseMatrix.from_coo(np.array([0]), np.array([1]), np.array([2.5]), (6, 8))
    other.save(tmp_path / "m")
    m.refresh()
    assert (m.dtype, m.index_dtype) == (torch.float64, torch.int64)
