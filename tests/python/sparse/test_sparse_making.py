"""Matrices from scipy, torch and coordinates; saved, opened, converted, sent to workers."""

from __future__ import annotations

import multiprocessing
import pickle
from decimal import Decimal

import numpy as np
import pytest

import tenfold
from tenfold import SparseMatrix
from tenfold._interop.frameworks import using

sp = pytest.importorskip("scipy.sparse")
torch = pytest.importorskip("torch")

LAYOUTS = ["csr", "csc", "coo"]
FORMATS = ["memmap", "tdz", "consolidated", "pt"]


def example(layout="csr", dtype=np.float32):
    x = sp.random(20, 11, density=0.2, format="csr", random_state=3, dtype=np.float64)
    x.data[:3] = 0  # entries that are 0
    return x.astype(dtype).asformat(layout)


def same(m, x):
    assert m.nnz == x.nnz
    assert m.shape == x.shape
    np.testing.assert_array_equal(m[:], x.toarray())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_scipy_conversion_round_trips_and_shares_memory_unless_coo(layout):
    x = example(layout)
    m = SparseMatrix.from_scipy(x)
    same(m, x)
    back = m.to_scipy()
    assert back.format == layout
    assert (back != x).nnz == 0
    assert back.nnz == x.nnz
    if layout != "coo":
        assert np.shares_memory(back.data, x.data)
        assert back.indices.dtype == np.int32
        assert np.shares_memory(back.indices, x.indices)
        assert np.shares_memory(back.indptr, x.indptr)


def test_matrix_of_arrays_that_are_not_contiguous_has_one_copy_of_them():
    x = example()
    wide = np.repeat(x.data, 2)
    x.data = wide[::2]
    m = SparseMatrix.from_scipy(x)
    dense = x.toarray()
    wide[:] = 7
    for found in (m[:].numpy(), m.to_scipy().toarray(), m.to_torch().to_dense().numpy()):
        np.testing.assert_array_equal(found, dense)
    values = torch.arange(6.0)
    for tensor in (
        torch.sparse_csr_tensor([0, 1, 3], [0, 0, 1], values[::2], (2, 2)),
        torch.sparse_coo_tensor([[0, 1, 1], [0, 0, 1]], values[::2], (2, 2), is_coalesced=True),
    ):
        made = SparseMatrix.from_torch(tensor)
        made.to_torch().values()[0] = 9
        assert made[0, 0] == 9
        assert values[0] == 0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("format", FORMATS)
def test_saved_matrix_loads_as_a_torch_sparse_tensor(tmp_path, layout, format):
    x = example(layout)
    path = SparseMatrix.from_scipy(x).save(tmp_path / "m", format=format)
    assert tenfold.verify(path).ok
    assert tenfold.probe(path) == format
    m = SparseMatrix(path)
    assert m.layout == layout
    same(m, x)
    tensor = m.to_torch()
    assert tensor.layout is getattr(torch, f"sparse_{layout}")
    np.testing.assert_array_equal(tensor.to_dense(), x.toarray())
    loaded = tenfold.load(path)
    assert loaded.layout is tensor.layout
    np.testing.assert_array_equal(loaded.to_dense(), x.toarray())
    np.testing.assert_array_equal(m.to_scipy().toarray(), x.toarray())
    same(SparseMatrix.from_torch(loaded), x)
    tenfold.save(tensor, tmp_path / "again", format=format)
    same(SparseMatrix(tmp_path / "again"), x)


def test_tensordict_reads_the_components_as_plain_tensors(tmp_path):
    tensordict = pytest.importorskip("tensordict")
    x = example()
    SparseMatrix.from_scipy(x).save(tmp_path / "m")
    td = tensordict.TensorDict.load_memmap(tmp_path / "m")
    np.testing.assert_array_equal(td["col_indices"], x.indices)
    np.testing.assert_array_equal(td["values"], x.data)


@pytest.mark.parametrize("index", [0, slice(1), [1], (0,)])
def test_rows_of_an_opened_sparse_tensor_are_refused_by_name(tmp_path, index):
    td = tenfold.TensorDict({"x": torch.ones(2, 4), "s": torch.eye(2, 3).to_sparse()}, [2])
    tenfold.save(td, tmp_path / "saved")
    opened = tenfold.open(tmp_path / "saved")
    message = r"saved/s: rows of a sparse tensor on disk cannot be taken: .*; exclude it, or use"
    with pytest.raises(tenfold.UnsupportedError, match=message):
        opened[index]
    assert opened.exclude("s")[index]["x"].shape == td["x"][index].shape
    assert opened["s"][...]["values"].tolist() == [1, 1]


def test_sparse_tensor_in_a_tree_opens_as_a_matrix(tmp_path):
    x = example()
    tenfold.save({"graph": SparseMatrix.from_scipy(x).to_torch(), "n": 3}, tmp_path / "t")
    same(SparseMatrix(tenfold.open(tmp_path / "t")["graph"]), x)


def test_opened_tree_keeps_a_matrix_and_a_loaded_tree_has_the_tensor(tmp_path):
    graph = SparseMatrix.from_scipy(example()).to_torch()
    tenfold.save(tenfold.TensorDict({"n": {"graph": graph}}), tmp_path / "t")
    opened = pickle.loads(pickle.dumps(tenfold.open(tmp_path / "t")))
    same(SparseMatrix(opened["n", "graph"]), example())
    loaded = tenfold.load(tmp_path / "t")["n", "graph"]
    assert torch.equal(loaded.to_dense(), graph.to_dense())


def test_matrix_can_be_a_leaf_of_any_tree(tmp_path):
    x = example("csc")
    SparseMatrix.from_scipy(x).save(tmp_path / "m")
    tenfold.save({"a": SparseMatrix(tmp_path / "m"), "n": 3}, tmp_path / "t.tdz")
    assert tenfold.load(tmp_path / "t.tdz")["a"].layout is torch.sparse_csc
    same(SparseMatrix(tenfold.open(tmp_path / "t.tdz")["a"]), x)


def test_int64_indices_are_kept(tmp_path):
    x = example()
    x.indices, x.indptr = x.indices.astype(np.int64), x.indptr.astype(np.int64)
    SparseMatrix.from_scipy(x).save(tmp_path / "m")
    m = SparseMatrix(tmp_path / "m")
    assert m.index_dtype == torch.int64
    assert m.rows([1, 2], "csr").col_indices().dtype == torch.int64
    assert m.to_scipy().indices.dtype == np.int64


def test_unsorted_and_duplicate_entries_are_sorted_and_summed():
    ends, indices = np.array([0, 3, 4]), np.array([4, 0, 4, 1])
    x = sp.csr_matrix((np.array([1.0, 2.0, 3.0, 4.0]), indices, ends), shape=(2, 5))
    m = SparseMatrix.from_scipy(x)
    assert m[0].tolist() == [2, 0, 0, 0, 4]
    assert m.nnz == 3
    assert x.indices.tolist() == [4, 0, 4, 1]  # untouched
    t = torch.sparse_coo_tensor([[1, 0, 1], [2, 0, 2]], [1.0, 2.0, 3.0], (2, 3))
    m = SparseMatrix.from_torch(t)
    assert m.layout == "coo"
    assert m.nnz == 2
    assert m[1, 2] == 4


def test_invalid_matrix_types_are_refused():
    with pytest.raises(ValueError, match=r"found lil; x\.tocsr\(\) makes one"):
        SparseMatrix.from_scipy(sp.lil_matrix((2, 2)))
    with pytest.raises(ValueError, match="csr, csc or coo format, found ndarray"):
        SparseMatrix.from_scipy(np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"found torch\.strided"):
        SparseMatrix.from_torch(torch.zeros(2, 2))
    with pytest.raises(ValueError, match="two sparse dimensions"):
        SparseMatrix.from_torch(torch.zeros(2, 2, 2).to_sparse(3))
    bad = torch.sparse_csr_tensor([0, 1], [7], [1.0], (1, 3), check_invariants=False)
    with pytest.raises(ValueError, match="col_indices: expected 0 to 2, found 7"):
        SparseMatrix.from_torch(bad)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_elements_of_a_dtype_that_torch_does_not_have_are_refused(layout):
    x = sp.eye(3, format=layout, dtype=np.longdouble)
    with pytest.raises(tenfold.UnsupportedError, match="expected numbers or bool, found an array"):
        SparseMatrix.from_scipy(x)
    with pytest.raises(tenfold.UnsupportedError, match="expected numbers or bool, found an array"):
        SparseMatrix.from_coo([0], [0], x.data[:1], (1, 1), layout=layout)


def test_files_without_a_matrix_are_refused(tmp_path):
    tenfold.save({"a": torch.zeros(2)}, tmp_path / "dict")
    with pytest.raises(ValueError, match="kind: expected a sparse tensor, found a dict"):
        SparseMatrix(tmp_path / "dict")
    with pytest.raises(FileNotFoundError):
        SparseMatrix(tmp_path / "nothing")
    tenfold.save(torch.ones(2, 2, 2).to_sparse(), tmp_path / "cube")
    with pytest.raises(ValueError, match=r"expected a matrix \[rows, columns\]"):
        SparseMatrix(tmp_path / "cube")


# --- coordinates ---


def coordinates(n=500, rows=40, cols=30, seed=0):
    generator = np.random.default_rng(seed)
    return (
        generator.integers(0, rows, n),
        generator.integers(0, cols, n),
        generator.integers(-9, 9, n).astype(np.float64),
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("memory_bytes", [1 << 20, 4096])
def test_from_coo_matches_scipy(tmp_path, layout, memory_bytes):
    rows, cols, values = coordinates(3000)
    expected = sp.coo_matrix((values, (rows, cols)), shape=(40, 30)).tocsr()
    m = SparseMatrix.from_coo(
        rows,
        cols,
        values,
        (40, 30),
        layout=layout,
        memory_bytes=memory_bytes,
        path=tmp_path / "m",
    )
    assert m.layout == layout
    assert m.nnz == expected.nnz
    assert m.index_dtype == torch.int64
    np.testing.assert_array_equal(m.to_scipy().toarray(), expected.toarray())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m"]
    assert tenfold.verify(tmp_path / "m").ok


def test_from_coo_accepts_chunks_and_memory_maps(tmp_path):
    rows, cols, values = coordinates()
    pieces = [slice(0, 7), slice(7, 7), slice(7, 500)]
    m = SparseMatrix.from_coo(
        (rows[p] for p in pieces), [cols[p] for p in pieces], (values[p] for p in pieces), (40, 30)
    )
    expected = sp.coo_matrix((values, (rows, cols)), shape=(40, 30)).toarray()
    np.testing.assert_array_equal(m[:], expected)
    pieces = ([[3, 0], [1]], ([2, 2], [0]), [[1.0, 2.0], [4.0]])
    assert SparseMatrix.from_coo(*pieces, (4, 4)).to_scipy().nnz == 3
    np.save(tmp_path / "rows.npy", rows.astype(np.int32))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    m = SparseMatrix.from_coo(mapped, cols.astype(np.int32), values, (40, 30))
    assert m.index_dtype == torch.int32
    np.testing.assert_array_equal(m[:], expected)


def test_duplicate_entries_are_named_by_their_coordinate(tmp_path):
    rows, cols = [3, 1, 3], [2, 0, 2]
    with pytest.raises(ValueError, match=r"coordinate \(3, 2\): expected one entry, found two"):
        SparseMatrix.from_coo(
            rows, cols, [1, 2, 3], (4, 4), duplicates="error", layout="csc", path=tmp_path / "m"
        )
    assert not (tmp_path / "m").exists()
    assert SparseMatrix.from_coo(rows, cols, [1, 2, 3], (4, 4))[3, 2] == 4


def test_invalid_coordinates_are_refused():
    with pytest.raises(
        ValueError, match=r"coordinate \(4, 0\): expected one in the shape \[4, 4\]"
    ):
        SparseMatrix.from_coo([4], [0], [1.0], (4, 4))
    with pytest.raises(ValueError, match=r"coordinate \(0, -1\)"):
        SparseMatrix.from_coo([0], [-1], [1.0], (4, 4))
    with pytest.raises(ValueError, match="equal lengths, found 2, 1 and 1"):
        SparseMatrix.from_coo([0, 1], [1], [1.0], (4, 4))
    with pytest.raises(
        ValueError, match=r"^sparse matrix: coordinates: .*found fewer pieces of columns"
    ):
        SparseMatrix.from_coo([[0], [1]], [[0]], [[1.0], [1.0]], (4, 4))
    with pytest.raises(ValueError, match="three iterables of arrays, found both"):
        SparseMatrix.from_coo([0, 1], (np.zeros(1) for _ in "a"), [1.0, 2.0], (4, 4))
    with pytest.raises(ValueError, match=r"shape: expected \(rows, columns\)"):
        SparseMatrix.from_coo([0], [0], [1.0], (4,))
    with pytest.raises(ValueError, match="expected lengths of 0 or more"):
        SparseMatrix.from_coo([], [], [], (-1, 4))
    with pytest.raises(ValueError, match='layout: expected "csr"'):
        SparseMatrix.from_coo([0], [0], [1.0], (4, 4), layout="lil")
    with pytest.raises(ValueError, match='duplicates: expected "sum" or "error"'):
        SparseMatrix.from_coo([0], [0], [1.0], (4, 4), duplicates="last")
    with pytest.raises(ValueError, match="expected ints that fit int64, found one that does not"):
        SparseMatrix.from_coo([2**70], [0], [1.0], (4, 4))


def test_arrays_of_other_forms_are_refused():
    one = np.array(0)
    with pytest.raises(ValueError, match=r"of one dimension, found shapes \[\], \[\] and \[\]"):
        SparseMatrix.from_coo(one, one, one, (1, 1))
    nested = torch.nested.nested_tensor([torch.ones(1)])
    for other in (torch.ones(1).to_sparse(), nested, torch.ones(1, device="meta")):
        with pytest.raises(
            tenfold.UnsupportedError, match="coordinates and elements: expected dense arrays"
        ):
            SparseMatrix.from_coo([0], [0], other, (1, 1))
        with pytest.raises(
            tenfold.UnsupportedError, match="coordinates and elements: expected dense arrays"
        ):
            SparseMatrix.from_coo(iter([[0]]), iter([[0]]), iter([other]), (1, 1))


def test_no_coordinates_make_an_empty_matrix(tmp_path):
    for layout in LAYOUTS:
        m = SparseMatrix.from_coo([], [], [], (3, 4), layout=layout, path=tmp_path / layout)
        assert m.nnz == 0
        assert m[:].tolist() == [[0] * 4] * 3
        assert m.rows([0, 2], "csr")._nnz() == 0
        assert m.to_scipy().nnz == 0
        assert m.to_torch()._nnz() == 0


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "float16", "bfloat16", "complex64"])
def test_sums_of_duplicates_match_torch(dtype):
    values = torch.tensor([3, 200, 5]).to(getattr(torch, dtype))
    m = SparseMatrix.from_coo([1, 1, 0], [1, 1, 0], values, (2, 2))
    assert m[1, 1] == (values[0] + values[1] if dtype != "bool" else torch.tensor(True))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("wanted", LAYOUTS)
def test_layouts_are_converted_on_disk(tmp_path, layout, wanted):
    x = example(layout)
    m = SparseMatrix.from_scipy(x)
    m.save(tmp_path / "m")
    made = SparseMatrix(tmp_path / "m").to_layout(wanted, tmp_path / "made", memory_bytes=4096)
    assert made.layout == wanted
    same(made, x)
    assert (made.to_scipy().tocsr() != x.tocsr()).nnz == 0
    same(m.to_layout(wanted), x)


def test_uncoalesced_coo_must_be_converted_before_indexing(tmp_path):
    t = torch.sparse_coo_tensor([[1, 0, 1], [2, 0, 2]], [1.0, 2.0, 3.0], (2, 3))
    tenfold.save(t, tmp_path / "m")
    m = SparseMatrix(tmp_path / "m")
    for call in (lambda: m[0], lambda: m[0, 0], lambda: m.cols([0])):
        with pytest.raises(tenfold.UnsupportedError, match=r'to_layout\("csr"\) \(in C\+\+'):
            call()
    assert not m.to_torch().is_coalesced()
    assert m.to_layout("csr")[1, 2] == 4
    assert m.to_layout("coo").to_torch().is_coalesced()


# --- other processes and environments ---


def row_sum(m):
    return m.rows([1, 2], "csr").to_dense().sum().item()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_saved_matrix_pickles_by_path_to_other_processes(tmp_path, method):
    x = example()
    SparseMatrix.from_scipy(x).save(tmp_path / "m")
    m = SparseMatrix(tmp_path / "m")
    assert len(pickle.dumps(m)) < 300
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(row_sum, (m,)) == pytest.approx(x[[1, 2]].sum())
    same(pickle.loads(pickle.dumps(SparseMatrix.from_scipy(x))), x)


def test_numpy_and_scipy_functions_work_without_torch(tmp_path):
    import subprocess
    import sys

    SparseMatrix.from_scipy(example()).save(tmp_path / "m")
    code = """
import sys; sys.modules["torch"] = None
import numpy as np, scipy.sparse, tenfold
m = tenfold.SparseMatrix(sys.argv[1])
x = m.to_scipy()
assert isinstance(m[0], np.ndarray) and (m[:] == x.toarray()).all()
assert (m.rows([1, 2], "csr").toarray() == x[[1, 2]].toarray()).all()
assert m.rows([1, 2], "padded")["length"].tolist() == np.diff(x[[1, 2]].indptr).tolist()
assert m.dtype == np.float32
again = tenfold.SparseMatrix.from_scipy(x.tocsc())
assert (again.cols([3], "coo").toarray() == x[:, [3]].toarray()).all()
assert tenfold.SparseMatrix.from_coo([1], [2], [0.5], (3, 4))[1, 2] == 0.5
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "m")], check=True)


def test_inconsistent_scipy_matrices_are_refused():
    for indptr in ([0, 5, 2], [0, 2, 9], [1, 1, 2], [0, -4, 2]):
        x = sp.csr_matrix(([1.0, 2.0], [1, 0], [0, 1, 2]), shape=(2, 2))
        x.indptr = np.array(indptr, np.int32)
        with pytest.raises(ValueError, match=r"^sparse matrix: "):
            SparseMatrix.from_scipy(x)
    x = sp.csr_matrix(([1.0, 2.0], [1, 0], [0, 1, 2]), shape=(2, 2))
    x.indices = np.array([1, 2**30], np.int32)
    with pytest.raises(ValueError, match=r"^sparse matrix: "):
        SparseMatrix.from_scipy(x)


def test_scipy_matrix_with_spare_capacity_is_accepted():
    x = sp.csr_matrix(([1.0, 2.0, 7.0], [1, 0, 0], [0, 1, 3]), shape=(2, 2))
    x.indptr = np.array([0, 1, 2], np.int32)
    assert SparseMatrix.from_scipy(x).nnz == 2
    assert len(x.data) == 3


@pytest.mark.parametrize(
    ("element", "dtype"),
    [(70000.0, "float16"), (1e300, "float32"), (-1e39, "bfloat16"), (1e39j, "complex64")],
)
def test_finite_elements_that_overflow_the_dtype_raise(tmp_path, element, dtype):
    with pytest.raises(ValueError, match=rf"row 1: expected {dtype}"):
        tenfold.SparseMatrix.build([{0: 1}, {1: element}], tmp_path / "m", dtype=dtype)
    infinite = [{0: float("inf"), 1: float("nan")}]
    made = tenfold.SparseMatrix.build(infinite, tmp_path / "m", dtype=dtype)
    assert not made[0].isfinite().any()


@pytest.mark.parametrize(
    ("element", "dtype"), [(-1, "uint8"), (256, "uint8"), (-1, "uint64"), (2**63, None)]
)
def test_ints_beyond_the_dtype_are_refused(tmp_path, element, dtype):
    with pytest.raises(ValueError, match=r"row 1: expected u?int\d+, found"):
        SparseMatrix.build([{0: 1}, {1: element}], tmp_path / "m", dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "bfloat16"])
@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_floats_may_be_ints_of_any_size(tmp_path, framework, dtype):
    with using(framework):
        SparseMatrix.build([{0: 2**70, 1: -(2**63) - 1, 2: 2**64 - 1}], tmp_path / "m", dtype=dtype)
    with using("torch"):
        row = SparseMatrix(tmp_path / "m")[0]
    assert row.to(torch.complex128).tolist() == [2.0**70, -(2.0**63), 2.0**64]


@pytest.mark.parametrize("framework", ["torch", "numpy"])
@pytest.mark.parametrize(
    ("element", "dtype"),
    [
        (np.complex64(1 + 2j), "float32"),
        (torch.ones(1), "float32"),
        (torch.tensor(2**64 - 1, dtype=torch.uint64), "int64"),
        (0, "float8_e8m0fnu"),
        (-1.0, "float8_e8m0fnu"),
        (Decimal("1.5"), "float64"),
    ],
)
def test_elements_are_never_changed_beyond_rounding(tmp_path, framework, element, dtype):
    with using(framework), pytest.raises(ValueError, match=rf"row 1: expected {dtype}"):
        SparseMatrix.build([{0: 1}, {0: element}], tmp_path / "m", dtype=dtype)


def test_elements_may_be_scalar_tensors(tmp_path):
    floats = [{0: torch.tensor(1.5)}, {1: np.float32(2.5)}]
    assert SparseMatrix.build(floats, tmp_path / "m")[:, 1].tolist() == [0.0, 2.5]
    ints = [{0: torch.tensor(7)}, {1: np.int8(-2)}]
    assert SparseMatrix.build(ints, tmp_path / "m").dtype == torch.int64
    others = [{0: torch.tensor(2**64 - 1, dtype=torch.uint64), 1: np.True_}]
    made = SparseMatrix.build(others, tmp_path / "m", dtype="uint64")
    assert made[0].tolist() == [2**64 - 1, 1]
    ml_dtypes = pytest.importorskip("ml_dtypes")
    others = [{0: ml_dtypes.bfloat16(1.5), 1: torch.tensor(2.5, requires_grad=True)}]
    with using("numpy"):
        assert SparseMatrix.build(others, tmp_path / "m")[0].tolist() == [1.5, 2.5]


@pytest.mark.parametrize("framework", ["torch", "numpy"])
@pytest.mark.parametrize(
    "element",
    ["1", None, 1j, [1.0], np.array([1.0]), torch.ones(2), torch.ones(1).to_sparse()],
    ids=["str", "None", "complex", "list", "array", "tensor", "sparse"],
)
def test_elements_that_are_no_numbers_are_named(tmp_path, framework, element):
    for rows in ([{0: 1.5}, {0: element}], [{}, {0: element}]):
        with using(framework), pytest.raises(ValueError, match=r"row 1: .*expected .*, found"):
            SparseMatrix.build(rows, tmp_path / "m")
    with using(framework), pytest.raises(ValueError, match=r"^sparse matrix: row 1: expected "):
        SparseMatrix.build([{0: 1}, {0: element}], tmp_path / "m", dtype="bool")


def test_dtype_of_elements_may_be_a_type_of_python(tmp_path):
    for dtype, made in ((float, "float64"), (int, "int64"), (bool, "bool"), ("f4", "float32")):
        m = SparseMatrix.build([{0: 1}], tmp_path / "m", dtype=dtype)
        assert m.dtype == getattr(torch, made)
    with pytest.raises(ValueError, match=r'no such dtype: .* found "complex"'):
        SparseMatrix.build([{0: 1}], tmp_path / "m", dtype=complex)
    if hasattr(torch, "float4_e2m1fn_x2"):
        with pytest.raises(ValueError, match=r"row 0: expected float4_e2m1fn_x2, found 1"):
            SparseMatrix.build([{0: 1}], tmp_path / "m", dtype=torch.float4_e2m1fn_x2)


@pytest.mark.parametrize("column", [True, 1.0, "1", torch.tensor(1.0), torch.tensor([0, 1])])
def test_columns_that_are_no_ints_are_named(tmp_path, column):
    with pytest.raises(TypeError, match=r"row 1: column: expected an int"):
        SparseMatrix.build([{0: 1}, {column: 2}], tmp_path / "m")


def test_columns_may_be_scalar_tensors(tmp_path):
    rows = [{torch.tensor(2): 1, np.int8(0): 2}]
    assert SparseMatrix.build(rows, tmp_path / "m")[0].tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (
            lambda: SparseMatrix.from_coo([0], [0], [1.0], (2**63, 2)),
            "shape: rows: expected",
        ),
        (lambda: SparseMatrix.from_coo([0], [0], ["a"], (2, 2)), "expected numbers, found others"),
        (
            lambda: SparseMatrix.from_coo([0], [0], [10**400], (2, 2)),
            "expected ints that fit int64",
        ),
        (lambda: SparseMatrix.from_coo([0], [0], [None], (2, 2)), "expected numbers"),
        (lambda: SparseMatrix.from_torch(torch.eye(2).to_sparse().to("meta")), "meta device"),
        (
            lambda: SparseMatrix.build([{2**63: 1}], "m"),
            "row 0: column: expected 0 to 9223372036854775806",
        ),
        (
            lambda: SparseMatrix.build([{0: 1}], "m", 0),
            "column: expected none, as there are no columns",
        ),
    ],
)
def test_invalid_input_is_named(tmp_path, monkeypatch, call, named):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=named):
        call()


@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_read_only_arrays_can_be_used_in_every_way_and_never_change(layout):
    x = example(layout, np.float64)
    for part in (x.indptr, x.indices, x.data):
        part.flags.writeable = False
    dense = x.toarray()
    for framework in ("torch", "numpy"):
        with using(framework):
            m = SparseMatrix.from_scipy(x)
        as_torch = m.to_torch()
        as_torch.values().zero_()
        np.testing.assert_array_equal(m.to_torch().to_dense().numpy(), dense)
        np.testing.assert_array_equal(m.to_scipy().toarray(), dense)
        np.testing.assert_array_equal(m.T.to_scipy().toarray(), dense.T)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(m))[:], dense)
        np.testing.assert_allclose(m.sum(), dense.sum())
        np.testing.assert_allclose(m @ torch.ones(11, dtype=torch.float64), dense.sum(1))
        if layout == "csr":
            assert next(iter(m.batches(4))).shape == (4, 11)


def test_tensors_over_read_only_arrays_of_ml_dtypes_are_copies():
    eye = torch.eye(3, dtype=torch.bfloat16)
    with using("numpy"):
        m = SparseMatrix.from_torch(eye.to_sparse_csr())
    buffers = []
    pickled = pickle.dumps(m, protocol=5, buffer_callback=buffers.append)
    copy = pickle.loads(pickled, buffers=[bytes(buffer) for buffer in buffers])
    assert copy.to_torch().to_dense().equal(eye)
