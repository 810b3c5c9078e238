"""Rows, columns and elements, compared with scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tenfold
from tenfold import SparseMatrix

sp = pytest.importorskip("scipy.sparse")
torch = pytest.importorskip("torch")

LAYOUTS = ["csr", "csc", "coo"]


def random_matrix(rows=13, cols=7, layout="csr", dtype=np.float32, seed=0, density=0.3):
    generator = np.random.default_rng(seed)
    dense = generator.integers(1, 50, (rows, cols)) * (generator.random((rows, cols)) < density)
    return sp.csr_matrix(dense.astype(dtype)).asformat(layout)


@pytest.fixture(params=LAYOUTS)
def pair(request, tmp_path):
    """Returns a scipy matrix, and a SparseMatrix with the same content, opened from disk."""
    x = random_matrix(layout=request.param)
    SparseMatrix.from_scipy(x).save(tmp_path / "m")
    return x, SparseMatrix(tmp_path / "m")


def test_repr_and_attributes_describe_the_matrix(pair):
    x, m = pair
    assert (m.layout, m.shape, m.nnz, len(m)) == (x.format, x.shape, x.nnz, 13)
    assert (m.dtype, m.index_dtype) == (torch.float32, torch.int32)
    assert f"{x.format}, 13 x 7, {x.nnz} entries, float32)" in repr(m)


def test_rows_of_every_layout_match_scipy(pair):
    x, m = pair
    for index in ([3, 0, 3, -1], slice(2, 5), slice(None, None, -2), []):
        expected = x.toarray()[index] if index != [] else np.zeros((0, 7))
        for layout in ("dense", "csr", "coo"):
            rows = m.rows(index, layout)
            assert rows.shape == expected.shape
            assert rows.dtype == torch.float32
            if layout != "dense":
                assert rows.layout is getattr(torch, f"sparse_{layout}")
                rows = rows.to_dense()
            np.testing.assert_array_equal(rows, expected)


def test_padded_rows_hold_entries_and_trailing_zeros(pair):
    x, m = pair
    x = x.tocsr()
    batch = m.rows([5, 0, 5], "padded")
    lengths = [x[[i]].nnz for i in (5, 0, 5)]
    assert batch["length"].tolist() == lengths
    assert batch["length"].dtype == torch.int64
    assert batch["indices"].shape == batch["values"].shape == (3, max(lengths))
    for i, row in enumerate((5, 0, 5)):
        n = lengths[i]
        assert batch["indices"][i, :n].tolist() == x[[row]].indices.tolist()
        assert batch["values"][i, :n].tolist() == x[[row]].data.tolist()
        assert not batch["values"][i, n:].any()
        assert not batch["indices"][i, n:].any()


def test_columns_of_every_layout_match_scipy(pair):
    x, m = pair
    for index in ([3, 0, 3, -1], slice(1, 4), []):
        expected = x.tocsc()[:, index].toarray() if index != [] else np.zeros((13, 0))
        for layout in ("dense", "csr", "coo"):
            cols = m.cols(index, layout)
            assert cols.shape == expected.shape
            cols = cols if layout == "dense" else cols.to_dense()
            np.testing.assert_array_equal(cols, expected)
    np.testing.assert_array_equal(m[:, [2, 1]], x.tocsc()[:, [2, 1]].toarray())
    np.testing.assert_array_equal(m[:, -1], x.tocsc()[:, [-1]].toarray()[:, 0])


def test_padded_columns_hold_row_indices_and_values(pair):
    x, m = pair
    x = x.tocsc()
    batch = m.cols([2, 4], "padded")
    for i, col in enumerate((2, 4)):
        n = int(batch["length"][i])
        assert batch["indices"][i, :n].tolist() == x[:, [col]].indices.tolist()
        assert batch["values"][i, :n].tolist() == x[:, [col]].data.tolist()


def test_single_rows_and_elements_match_scipy(pair):
    x, m = pair
    dense = x.toarray()
    np.testing.assert_array_equal(m[4], dense[4])
    np.testing.assert_array_equal(m[-1], dense[-1])
    np.testing.assert_array_equal(m[4, :], dense[4])
    for i, j in np.ndindex(*x.shape):
        assert m[i, j].shape == ()
        assert m[i, j] == dense[i, j]
    assert m[-1, -2] == dense[-1, -2]
    np.testing.assert_array_equal(torch.stack(list(m)), dense)


def test_masks_and_tensors_are_valid_indices(pair):
    x, m = pair
    dense = x.toarray()
    mask = np.arange(13) % 3 == 0
    for index in (mask, torch.from_numpy(mask), mask.tolist()):
        np.testing.assert_array_equal(m[index], dense[mask])
        np.testing.assert_array_equal(m.rows(index), dense[mask])
    np.testing.assert_array_equal(m[torch.tensor([1, -2], dtype=torch.int32)], dense[[1, -2]])


def test_invalid_indices_raise_index_error(pair):
    _, m = pair
    for index in (13, -14, [0, 13], [True]):
        with pytest.raises(IndexError):
            m[index]
    with pytest.raises(IndexError, match=r"row 13: expected an index in \[-13, 13\)"):
        m.rows([13])
    with pytest.raises(IndexError, match=r"column 7: expected an index in \[-7, 7\)"):
        m.cols([0, 7])
    with pytest.raises(IndexError, match=r"column -8"):
        m[0, -8]
    with pytest.raises(IndexError, match="one index or two, found 3"):
        m[0, 0, 0]
    with pytest.raises(IndexError, match="found another pair"):
        m[[0], [0]]
    with pytest.raises(IndexError, match="found a tuple of 2; pass a list for several"):
        m.cols((1, 2))
    with pytest.raises(TypeError):
        m[1.0]
    with pytest.raises(TypeError, match="indices: expected a dense tensor"):
        m.rows(torch.tensor([0, 1]).to_sparse())
    with pytest.raises(ValueError, match='"padded", found "wide"'):
        m.rows([0], "wide")


@pytest.mark.parametrize("dtype", ["bool", "int8", "int16", "int64", "float64", "complex128"])
def test_elements_of_every_size_are_copied_completely(tmp_path, dtype):
    x = random_matrix(dtype=dtype)
    SparseMatrix.from_scipy(x).save(tmp_path / "m")
    m = SparseMatrix(tmp_path / "m")
    np.testing.assert_array_equal(m[:], x.toarray())
    np.testing.assert_array_equal(m.rows([2, 1], "csr").to_dense(), x[[2, 1]].toarray())
    np.testing.assert_array_equal(m.cols([2, 1]), x[:, [2, 1]].toarray())


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    layout=st.sampled_from(LAYOUTS),
    wide=st.booleans(),
    data=st.data(),
)
def test_any_rows_and_columns_match_scipy(shape, layout, wide, data):
    x = random_matrix(*shape, layout, seed=data.draw(st.integers(0, 99)))
    m = SparseMatrix.from_torch(as_torch(x, wide))
    dense = x.toarray()
    for dim, take in ((0, m.rows), (1, m.cols)):
        index = []
        if shape[dim]:
            index = data.draw(st.lists(st.integers(-shape[dim], shape[dim] - 1), max_size=12))
        expected = np.take(dense, np.array(index, dtype=np.int64), axis=dim)
        np.testing.assert_array_equal(take(index), expected)
        np.testing.assert_array_equal(take(index, "csr").to_dense(), expected)
        np.testing.assert_array_equal(take(index, "coo").to_dense(), expected)


def as_torch(x, wide):
    kind = torch.int64 if wide else torch.int32
    if x.format == "coo":
        indices = torch.tensor(np.stack([x.row, x.col]), dtype=torch.int64)
        return torch.sparse_coo_tensor(indices, torch.tensor(x.data), x.shape)
    ends, indices = torch.tensor(x.indptr, dtype=kind), torch.tensor(x.indices, dtype=kind)
    layout = getattr(torch, f"sparse_{x.format}")
    return torch.sparse_compressed_tensor(
        ends, indices, torch.tensor(x.data), x.shape, layout=layout
    )


def test_large_batches_are_gathered_by_several_threads(tmp_path, monkeypatch):
    monkeypatch.setenv("TENFOLD_NUM_THREADS", "4")
    x = sp.random(3000, 4000, density=0.2, format="csr", dtype=np.float64, random_state=1)
    m = SparseMatrix.from_scipy(x)
    index = np.random.default_rng(0).integers(0, 3000, 2000)
    expected = x[index]
    rows = m.rows(index, "csr")
    np.testing.assert_array_equal(rows.crow_indices(), expected.indptr)
    np.testing.assert_array_equal(rows.col_indices(), expected.indices)
    np.testing.assert_array_equal(rows.values(), expected.data)
    np.testing.assert_array_equal(m.rows(index), expected.toarray())
    padded = m.rows(index, "padded")
    assert padded["length"].tolist() == np.diff(expected.indptr).tolist()
    np.testing.assert_allclose(padded["values"].sum(1), expected.sum(1).A1)


def test_torch_data_loader_batches_rows(pair):
    x, m = pair
    loader = torch.utils.data.DataLoader(m, batch_size=5)
    np.testing.assert_array_equal(torch.cat(list(loader)), x.toarray())


def test_million_rows_with_three_entries_take_kilobytes(tmp_path):
    shape = (1_000_000, 1_000)
    rows, cols, values = [10, 100, 50_000], [20, 500, 900], [1.2, 3.14, -2.7]
    m = SparseMatrix.from_coo(
        rows, cols, np.array(values), shape, layout="coo", path=tmp_path / "m"
    )
    assert m.layout == "coo"
    assert m.dtype == torch.float64
    assert sum(f.stat().st_size for f in (tmp_path / "m").iterdir()) < 4096
    assert m[10, 20] == 1.2
    assert m[50_000][900] == -2.7
    assert m[999_999].sum() == 0
    dense = tenfold.MemoryMappedTensor.zeros(
        shape, dtype=torch.float64, filename=tmp_path / "dense.memmap"
    )
    dense[rows, cols] = torch.tensor(values, dtype=torch.float64)
    assert (tmp_path / "dense.memmap").stat().st_size == 8_000_000_000
    assert (tmp_path / "dense.memmap").stat().st_blocks * 512 < 1 << 20
    assert dense[100, 500] == m[100, 500]


def test_lists_of_bools_of_any_kind_are_masks():
    x = random_matrix(4, 4)
    m = SparseMatrix.from_scipy(x)
    for kind in (bool, np.bool_, np.array, torch.tensor):
        mask = [kind(value) for value in (True, False, True, True)]
        np.testing.assert_array_equal(m.rows(mask), x.toarray()[[0, 2, 3]])
        np.testing.assert_array_equal(m.cols(mask), x.toarray()[:, [0, 2, 3]])
        m.will_need(mask)
        with pytest.raises(IndexError, match="mask"):
            m.rows(mask[:3])
