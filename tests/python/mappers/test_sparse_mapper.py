"""SparseStateMapper: rows of a sparse matrix by state."""

from __future__ import annotations

import enum
import gc
import pickle
import weakref

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import tenfold  # noqa: E402
from tenfold._interop.frameworks import using  # noqa: E402


def dense_of(num_rows, num_cols=5, dtype=torch.float32):
    dense = torch.arange(num_rows * num_cols).reshape(num_rows, num_cols)
    return torch.where(dense % 3 == 0, 0, dense).to(dtype)


def matrix_of(dense):
    return tenfold.SparseMatrix.from_torch(dense.to_sparse_csr())


def saved(mapper, path):
    mapper.save(path)
    return tenfold.StateMapper.load(path)


TUPLES = [(3, 4), (0, 0), ("a", 1), (0.5, -2), ((1, 2), "b"), ()]
ESCAPED = [('"', "\\"), ("\x7f",), ("\n", 1), ("é", -(2**63)), (2**70, ""), ("[1, 2]",)]


@pytest.mark.parametrize("states", [TUPLES, ESCAPED, [7, -3, 0], ["x", "", "é"], [1, "1", (1,)]])
@pytest.mark.parametrize("name", [None, "mapper", "mapper.tdz"])
def test_state_returns_its_row_and_a_list_returns_a_batch(tmp_path, states, name):
    dense = dense_of(len(states))
    mapper = tenfold.SparseStateMapper(states, matrix_of(dense))
    if name is not None:
        mapper = saved(mapper, tmp_path / name)
    assert len(mapper) == len(states)
    for row, state in enumerate(states):
        assert mapper(state).equal(dense[row])
        assert state in mapper
    order = [len(states) - 1, 0, 0, 1]
    assert mapper([states[row] for row in order]).equal(dense[order])
    assert mapper([]).shape == (0, 5)


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("states", [[5, -1, 7], [5, "a", (1, 2)]])
def test_equal_numbers_of_any_type_are_one_state(tmp_path, folder, states):
    dense = dense_of(3)
    mapper = tenfold.SparseStateMapper(states, matrix_of(dense), 0.5)
    if folder:
        mapper = saved(mapper, tmp_path / "mapper")
    for five in (5, 5.0, np.int8(5), np.array(5), np.float32(5), torch.tensor(5)):
        assert mapper(five).equal(dense[0])
        assert five in mapper
    assert mapper([torch.tensor(5), 4, np.array(5)]).equal(
        torch.stack([dense[0], dense[0] * 0 + 0.5, dense[0]])
    )
    if states[2] == (1, 2):
        assert mapper((torch.tensor(1), np.array(2))).equal(dense[2])
    for wrong in (b"a", [[1]], (1, [2])):
        with pytest.raises(
            TypeError, match="None, a bool, an int, a float, a str or a tuple of them"
        ):
            mapper([wrong])


@pytest.mark.parametrize("folder", [False, True])
def test_unknown_state_raises_key_error_or_returns_the_default(tmp_path, folder):
    dense = dense_of(2)

    def made(default=None):
        mapper = tenfold.SparseStateMapper([(0, 1), (2, 3)], matrix_of(dense), default)
        return saved(mapper, tmp_path / "mapper") if folder else mapper

    with pytest.raises(KeyError, match=r"no state \(4, 4\): expected one of 2"):
        made()([(0, 1), (4, 4), (5, 5)])
    assert made(default=7)([(9, 9), (2, 3), "x"]).tolist() == [[7] * 5, dense[1].tolist(), [7] * 5]
    row = torch.arange(5.0)
    assert made(default=row)((9, 9)).equal(row)
    assert (4, 4) not in made()


@pytest.mark.parametrize("folder", [False, True])
def test_states_compare_as_in_python(tmp_path, folder):
    mapper = tenfold.SparseStateMapper([(1, 2), (0, 0)], matrix_of(dense_of(2)))
    mapper = saved(mapper, tmp_path / "mapper") if folder else mapper
    for state in [(1.0, 2), (True, 2.0), (np.int32(1), np.float64(2))]:
        assert mapper(state).equal(mapper((1, 2)))
    assert mapper((False, -0.0)).equal(mapper((0, 0)))
    numbers = tenfold.SparseStateMapper([1, 2], matrix_of(dense_of(2)))
    numbers = saved(numbers, tmp_path / "numbers") if folder else numbers
    for states in ([1.0, True, np.int8(2)], torch.tensor([1, 1, 2]), np.array([1, 1, 2])):
        assert numbers(states).equal(numbers([1, 1, 2]))
    assert "1" not in numbers
    assert 2**80 not in numbers


@pytest.mark.parametrize("folder", [False, True])
def test_large_integers_of_numpy_and_enums_are_exact_states(tmp_path, folder):
    class Large(enum.IntEnum):
        next = 2**53 + 1

    dense = dense_of(2)
    mapper = tenfold.SparseStateMapper(
        [(np.int64(2**53), 0), (np.int64(2**53 + 1), 0)], matrix_of(dense)
    )
    mapper = saved(mapper, tmp_path / "mapper") if folder else mapper
    for state in [(2**53 + 1, 0), (np.uint64(2**53 + 1), np.int8(0)), (Large.next, 0)]:
        assert mapper(state).equal(dense[1])


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize(
    ("state", "error", "what"),
    [
        (([1], 2), TypeError, r"\[1\].*found list"),
        ({"a": 1}, TypeError, "found dict"),
        ((float("nan"), 1), ValueError, "NaN"),
        ((1, {2}), TypeError, "found set"),
        ((b"a",), TypeError, "found bytes"),
        ((10**5000,), tenfold.UnsupportedError, "^state: .*digits"),
    ],
)
def test_errors_name_unsupported_states(tmp_path, folder, state, error, what):
    mapper = tenfold.SparseStateMapper([(1, 2)], matrix_of(dense_of(1)), default=0)
    mapper = saved(mapper, tmp_path / "mapper") if folder else mapper
    for states in (state, [(1, 2), state]):
        with pytest.raises(error, match=what):
            mapper(states)


@pytest.mark.parametrize(
    ("keys", "error", "what"),
    [
        ([1, 2, 1], ValueError, "state 1: expected it once, found it twice, at positions 0 and 2"),
        ([(1,), (True,)], ValueError, "expected it once"),
        ({"a": 0, "b": 9}, ValueError, r"'b': expected a row of the matrix, in \[0, 3\), found 9"),
        ({"a": -1}, ValueError, "found -1"),
        ({"a": 1.5}, ValueError, "found 1.5"),
        ({"a": True}, ValueError, "found True"),
        ({"a": torch.tensor(1.0)}, ValueError, r"found tensor\(1.\)"),
        ({"a": np.int64(3)}, ValueError, "found 3"),
        (
            {torch.tensor(1): 0, torch.tensor(1): 2},
            ValueError,
            r"state tensor\(1\): expected it once, found it twice, at positions 0 and 1",
        ),
        ([float("nan")], ValueError, "NaN"),
        ([[1]], TypeError, "found list"),
        ([1, 2, 3, 4], ValueError, "at most the 3 rows of the matrix, found 4"),
    ],
)
def test_invalid_keys_raise(keys, error, what):
    with pytest.raises(error, match=what):
        tenfold.SparseStateMapper(keys, matrix_of(dense_of(3)))


def test_a_default_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"default: expected float32 \[5\], found float32 \[4\]"):
        tenfold.SparseStateMapper([1], matrix_of(dense_of(1)), default=torch.zeros(4))


def test_several_states_may_share_a_row(tmp_path):
    dense = dense_of(3)
    mapper = tenfold.SparseStateMapper({"a": 2, "b": 0, "c": 2}, matrix_of(dense), default=1)
    for each in (mapper, saved(mapper, tmp_path / "mapper")):
        assert each(["c", "b", "a", "d"]).equal(torch.cat([dense[[2, 0, 2]], torch.ones(1, 5)]))


@pytest.mark.parametrize("row", [np.int64(2), np.array(2), torch.tensor(2)])
def test_row_numbers_may_be_integers_of_numpy_and_torch(tmp_path, row):
    dense = dense_of(3)
    mapper = tenfold.SparseStateMapper({"a": row, "b": 0}, matrix_of(dense))
    for each in (mapper, saved(mapper, tmp_path / "mapper")):
        assert each(["a", "b"]).equal(dense[[2, 0]])


def test_mapped_dict_can_hold_the_keys(tmp_path):
    dense = dense_of(4)
    words = tenfold.MappedDict.build([(word, 0) for word in "badc"], tmp_path / "words")
    mapper = tenfold.SparseStateMapper(words, matrix_of(dense), default=0)
    for each in (mapper, saved(mapper, tmp_path / "mapper")):
        assert each(["a", "c", "x"]).equal(torch.cat([dense[[1, 3]], torch.zeros(1, 5)]))
    ids = tenfold.MappedDict.build([(number, 0) for number in (5, 3)], tmp_path / "ids")
    assert tenfold.SparseStateMapper(ids, matrix_of(dense))([3, 5]).equal(dense[[1, 0]])
    raw = tenfold.MappedDict.build([(b"x\xff", 0), (b"y", 0)], tmp_path / "raw")
    mapper = saved(tenfold.SparseStateMapper(raw, matrix_of(dense)), tmp_path / "raw_mapper")
    assert mapper([b"y", b"x\xff"]).equal(dense[[1, 0]])
    assert b"z" not in mapper
    assert "y" not in mapper


def test_a_mapper_over_a_mapped_dict_is_pickled_as_its_arguments(tmp_path):
    ids = tenfold.MappedDict.build([(b"x\xff", 0), (b"y", 0)], tmp_path / "ids")
    mapper = tenfold.SparseStateMapper(ids, matrix_of(dense_of(2)), default=7)
    made = pickle.loads(pickle.dumps(mapper))
    assert made([b"y", b"z"]).equal(torch.stack([dense_of(2)[1], torch.full((5,), 7.0)]))


def test_a_mapped_dict_is_neither_kept_open_nor_opened_for_writing(tmp_path):
    words = tenfold.MappedDict.build([("a", 0), ("b", 0)], tmp_path / "words")
    words = tenfold.MappedDict(tmp_path / "words", mode="r+")
    alive = weakref.ref(words)
    mapper = tenfold.SparseStateMapper(words, matrix_of(dense_of(2)))
    del words
    gc.collect()
    assert alive() is None
    pickled = pickle.dumps(mapper)
    assert b"r+" not in pickled
    assert pickle.loads(pickled)("b").equal(dense_of(2)[1])


@pytest.mark.parametrize("change", ["append_rows", "refresh"])
def test_a_mapper_keeps_the_rows_that_its_matrix_had_at_construction(tmp_path, change):
    matrix_of(dense_of(2)).save(tmp_path / "matrix")
    writer = tenfold.SparseMatrix(tmp_path / "matrix", mode="r+")
    matrix = writer if change == "append_rows" else tenfold.SparseMatrix(tmp_path / "matrix")
    mapper = tenfold.SparseStateMapper(["a", "b"], matrix)
    writer.append_rows(matrix_of(dense_of(3)))
    matrix.refresh()
    assert matrix.shape == (5, 5)
    assert mapper.matrix.shape == (2, 5)
    assert saved(mapper, tmp_path / "mapper").matrix.shape == (2, 5)
    assert pickle.loads(pickle.dumps(mapper))("b").equal(dense_of(2)[1])


def test_an_error_of_a_state_is_not_replaced():
    class Broken:
        def __index__(self):
            raise RuntimeError("broken")

    mapper = tenfold.SparseStateMapper([1, 2], matrix_of(dense_of(2)))
    with pytest.raises(RuntimeError, match="broken"):
        mapper(Broken())
    deep = ()
    for _ in range(600):
        deep = (deep,)
    with pytest.raises(ValueError, match="at most 512 levels"):
        mapper(deep)


def test_a_list_that_a_state_clears_is_read_as_it_was():
    states = [1]

    class Clearing:
        def __index__(self):
            states.clear()
            return 5

    mapper = tenfold.SparseStateMapper([1, 5], matrix_of(dense_of(2)))
    states.append(Clearing())
    assert mapper(states).tolist() == mapper([1, 5]).tolist()
    assert states == []


def test_a_large_float_equals_no_int(tmp_path):
    mapper = tenfold.SparseStateMapper([2.0**70, 3], matrix_of(dense_of(2)))
    for each in (mapper, saved(mapper, tmp_path / "mapper")):
        assert 2.0**70 in each
        assert 2**70 not in each


@pytest.mark.parametrize("shape", [lambda state: state, lambda state: (state, ("a",))])
@pytest.mark.parametrize("large", [2.0**70, np.float32(2.0**70)])
def test_a_cached_row_of_a_large_int_is_not_that_of_the_equal_float(shape, large):
    mapper = tenfold.SparseStateMapper([shape(2**70), shape(large)], matrix_of(dense_of(2)))
    mapper = mapper.cached(1 << 20)
    states = [shape(2**70), shape(large), shape(2**70), shape(large)]
    assert mapper(states).equal(dense_of(2)[[0, 1, 0, 1]])
    assert (mapper.hits, mapper.misses) == (2, 2)


def test_scipy_and_torch_matrices_and_paths_are_accepted(tmp_path):
    scipy_sparse = pytest.importorskip("scipy.sparse")
    dense = dense_of(2)
    matrix_of(dense).save(tmp_path / "matrix")
    for matrix in (
        scipy_sparse.csr_matrix(dense.numpy()),
        dense.to_sparse_csr(),
        dense.to_sparse(),
        tmp_path / "matrix",
    ):
        assert tenfold.SparseStateMapper([1, 2], matrix)([2, 1]).equal(dense[[1, 0]])


def test_save_replaces_atomically_and_verifies(tmp_path):
    path = tmp_path / "mapper"
    old = saved(tenfold.SparseStateMapper([1], matrix_of(dense_of(1))), path)
    new = saved(tenfold.SparseStateMapper([2], matrix_of(dense_of(1) + 1)), path)
    assert 1 in old
    assert 1 not in new
    assert tenfold.verify(path).ok
    again = saved(new, tmp_path / "again.tdz")
    assert again(2).equal(new(2))
    assert tenfold.diff(path, tmp_path / "again.tdz").same


def test_saved_mapper_pickles_by_path(tmp_path):
    mapper = tenfold.SparseStateMapper([(1, 2)], matrix_of(dense_of(1)))
    mapper = saved(mapper, tmp_path / "mapper")
    assert len(pickle.dumps(mapper)) < 300
    assert pickle.loads(pickle.dumps(mapper))((1, 2)).equal(mapper((1, 2)))


def test_a_cache_uses_the_keys_of_a_subclass():
    class Folded(tenfold.SparseStateMapper):
        def key(self, state):
            return state[0].lower()

    matrix = tenfold.SparseMatrix.from_coo([0, 1], [0, 1], [1.0, 1.0], (2, 2))
    cached = Folded([("a",), ("A",)], matrix).cached(1 << 20)
    cached([("a",), ("A",)])
    assert cached.misses == 1


def test_hot_rows_are_cached(tmp_path):
    mapper = saved(tenfold.SparseStateMapper([(1, 2), (3, 4)], matrix_of(dense_of(2))),
                   tmp_path / "mapper").cached(1 << 10)  # fmt: skip
    assert mapper([(1, 2), (1, 2), (3, 4)]).equal(dense_of(2)[[0, 0, 1]])
    assert mapper((1, 2)).equal(dense_of(2)[0])
    assert (mapper.hits, mapper.misses) == (2, 2)


def test_repr_shows_path_and_number_of_states(tmp_path):
    mapper = saved(tenfold.SparseStateMapper([1], matrix_of(dense_of(1)), 0), tmp_path / "m")
    assert repr(mapper).startswith(f"SparseStateMapper('{tmp_path / 'm'}', 1 states, with a def")


part = st.one_of(
    st.integers(-3, 3), st.integers(-(2**80), 2**80), st.floats(allow_nan=False), st.booleans(),
    st.text("ab\u00e9\"\\\u20ac", max_size=2), st.none(),
)  # fmt: skip
state = st.one_of(part, st.recursive(part, lambda p: st.lists(p, max_size=3).map(tuple)))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(state, unique=True, max_size=6), st.lists(state, max_size=4))
def test_saved_mapper_finds_the_same_states_as_in_memory(tmp_path, states, others):
    mapper = tenfold.SparseStateMapper(states, matrix_of(dense_of(max(len(states), 1))), default=-1)
    loaded = saved(mapper, tmp_path / "mapper")
    asked = [*states, *others]
    # Omit large numbers: a float and an int beyond 2^63 may be equal in Python, but they are
    # different keys on disk.
    asked = [each for each in asked if "e+" not in repr(each) and len(repr(each)) < 60]
    assert loaded(asked).equal(mapper(asked))
    for each in asked:
        assert loaded([each]).equal(mapper([each]))


def broken(mapper, tmp_path, part, value):
    mapper.save(tmp_path / "good")
    tree = tenfold.open(tmp_path / "good")
    tensors = {key: tree["tensors", key] for key in tree["tensors"].keys() if key != "matrix"}  # noqa: SIM118
    tensors["matrix"] = mapper.matrix.to_torch()
    tensors[part] = value
    if value is None:
        del tensors[part]
    tenfold.save({"state_mapper": tree["state_mapper"], "tensors": tensors}, tmp_path / "bad")
    return tenfold.StateMapper.load(tmp_path / "bad")


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("keys", None),
        ("keys", 3),
        ("keys", torch.zeros(3)),
        ("keys", {"a": torch.zeros(3)}),
        ("matrix", None),
        ("matrix", "x"),
        ("matrix", torch.zeros(3, 5)),
        ("rows", torch.zeros(3, dtype=torch.int64)),
        ("rows", torch.zeros(2)),
        ("rows", "x"),
        ("rows", torch.tensor([0, 99])),
        ("rows", torch.tensor([0, -2])),
        ("default", torch.zeros(4)),
        ("default", torch.zeros(5, dtype=torch.int64)),
        ("default", "x"),
    ],
)
def test_inconsistent_tensors_raise_corrupt_file_error(tmp_path, part, value):
    mapper = tenfold.SparseStateMapper({"a": 1, "b": 0}, matrix_of(dense_of(2)), default=0)
    with pytest.raises(tenfold.CorruptFileError):
        broken(mapper, tmp_path, part, value)(["a", "b"])


@pytest.mark.parametrize("keys", [None, 3, "float", {}])
def test_invalid_keys_in_a_file_raise_corrupt_file_error(tmp_path, keys):
    tenfold.SparseStateMapper(["a"], matrix_of(dense_of(1))).save(tmp_path / "good")
    tree = tenfold.open(tmp_path / "good")
    head = {**dict(tree["state_mapper"]), "config": {"keys": keys}}
    tenfold.save({"state_mapper": head, "tensors": tree["tensors"]}, tmp_path / "bad")
    with pytest.raises(tenfold.CorruptFileError, match="keys"):
        tenfold.StateMapper.load(tmp_path / "bad")


@pytest.mark.parametrize(
    "keys",
    [
        torch.tensor([7, -3, 0]),
        np.array([7, -3, 0], dtype=np.int8),
        [torch.tensor(7), torch.tensor(-3), torch.tensor(0)],
        {torch.tensor(7): 0, torch.tensor(-3): 1, torch.tensor(0): 2},
    ],
)
def test_states_given_as_tensors_are_numbers(tmp_path, keys):
    dense = dense_of(3)
    mapper = tenfold.SparseStateMapper(keys, matrix_of(dense))
    for made in (mapper, saved(mapper, tmp_path / "mapper"), pickle.loads(pickle.dumps(mapper))):
        assert len(made) == 3
        assert -3 in made
        assert made([7, 0]).equal(dense[[0, 2]])
        assert made(torch.tensor([0, -3])).equal(dense[[2, 1]])


def test_tuples_that_hold_tensors_are_found():
    mapper = tenfold.SparseStateMapper([(torch.tensor(1), 2), (3, 4)], matrix_of(dense_of(2)))
    assert (1, 2) in mapper
    with pytest.raises(ValueError, match="expected it once, found it twice, at positions 0 and 1"):
        tenfold.SparseStateMapper([torch.tensor(1), 1], matrix_of(dense_of(2)))


@pytest.mark.parametrize(
    "keys",
    [
        torch.tensor([[0, 0], [0, 1]]),
        torch.tensor([0.5, 1.5]),
        np.zeros((2, 2), dtype=int),
        "ab",
        b"ab",
        7,
        None,
        [torch.tensor([1, 2]), torch.tensor([3, 4])],
        [torch.tensor(1.5), 2],
    ],
)
def test_an_invalid_list_of_states_is_an_error(keys):
    with pytest.raises(TypeError, match="a list of states"):
        tenfold.SparseStateMapper(keys, matrix_of(dense_of(2)))


@pytest.mark.parametrize(
    ("default", "dtype"),
    [
        (1e300, torch.float32),
        (70000, torch.float16),
        (1j, torch.float32),
        (0.5, torch.int64),
        (float("nan"), torch.int64),
        (torch.tensor([0.0, 0.0, 0.0, 0.0, 1e300], dtype=torch.float64), torch.float32),
    ],
)
def test_default_that_the_dtype_cannot_hold_is_refused(default, dtype):
    matrix = matrix_of(dense_of(2, dtype=dtype))
    with pytest.raises(ValueError, match=r"default: expected numbers that .* (can hold|holds)"):
        tenfold.SparseStateMapper([0, 1], matrix, default)
    assert tenfold.SparseStateMapper([0, 1], matrix, 0.0)(9).tolist() == [0] * 5
    if dtype.is_floating_point:
        assert tenfold.SparseStateMapper([0, 1], matrix, float("inf"))(9).isinf().all()


@pytest.mark.parametrize("default", [0.1, [0.1] * 5, (0.1, 0.1, 0.1, 0.1, np.float64(0.1))])
def test_default_of_python_floats_keeps_their_precision(default):
    mapper = tenfold.SparseStateMapper([1], matrix_of(dense_of(1, dtype=torch.float64)), default)
    assert mapper(9).tolist() == [0.1] * 5
    mapper = tenfold.SparseStateMapper([1], matrix_of(dense_of(1, dtype=torch.complex128)), 0.1j)
    assert mapper(9).tolist() == [0.1j] * 5


@pytest.mark.parametrize("default", ["x", torch.ones(5, device="meta"), {}])
def test_a_default_that_is_no_number_is_refused(default):
    with pytest.raises(TypeError, match="default: expected numbers"):
        tenfold.SparseStateMapper([0, 1], matrix_of(dense_of(2)), default)


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_a_default_beyond_int64_is_accepted_if_the_dtype_can_represent_it(framework):
    def made(default, dtype):
        values = torch.ones(1).to(dtype)
        with using(framework):
            matrix = tenfold.SparseMatrix.from_coo([0], [0], values, (1, 5))
            return tenfold.SparseStateMapper([0], matrix, default)

    assert made(2**63, torch.uint64)(9).tolist() == [2**63] * 5
    assert made([2**64 - 1, 0, 1, 2, 3], torch.uint64)(9).tolist() == [2**64 - 1, 0, 1, 2, 3]
    assert made(2**70, torch.float64)(9).tolist() == [2**70] * 5
    assert made([-(2**70), 1, 0.5, 0, 0], torch.float32)(9).tolist() == [-(2**70), 1, 0.5, 0, 0]
    refused = [
        (2**63, torch.int64),
        (-(2**63) - 1, torch.int64),
        (2**70, torch.uint64),
        ([2**63, -1, 0, 0, 0], torch.uint64),
        (2**63, torch.bool),
        (2**200, torch.float32),
        (10**400, torch.float64),
    ]
    for default, dtype in refused:
        with pytest.raises(
            ValueError, match=r"default: expected numbers that \w+ (can hold|holds)"
        ):
            made(default, dtype)
    with pytest.raises(TypeError, match="default: expected numbers"):
        made([None, 2**70, 0, 0, 0], torch.float32)


@pytest.mark.parametrize("default", [465.0, -1e6, float("inf")])
def test_a_default_beyond_float8_is_refused(default):
    eye = torch.eye(2).to(torch.float8_e4m3fn)
    entries = ([0, 1], [0, 1], eye.diagonal().clone(), (2, 2))
    matrix = tenfold.SparseMatrix.from_coo(*entries)
    # 464 rounds to 448, the maximum of float8_e4m3fn. 465 is nearer to 480.
    assert tenfold.SparseStateMapper([0, 1], matrix, 464.0)(9).float().tolist() == [448.0, 448.0]
    with pytest.raises(ValueError, match="default: expected numbers that float8_e4m3fn holds"):
        tenfold.SparseStateMapper([0, 1], matrix, default)


@pytest.mark.skipif(not hasattr(torch, "float8_e8m0fnu"), reason="torch has no float8_e8m0fnu")
@pytest.mark.parametrize("default", [0, -2.0, float("inf")])
def test_a_default_of_float8_e8m0fnu_is_a_positive_number(default):
    ones = torch.ones(2).to(torch.float8_e8m0fnu)
    matrix = tenfold.SparseMatrix.from_coo([0, 1], [0, 1], ones, (2, 2))
    assert tenfold.SparseStateMapper([0, 1], matrix, 2)(9).float().tolist() == [2.0, 2.0]
    with pytest.raises(ValueError, match="default: expected numbers that float8_e8m0fnu holds"):
        tenfold.SparseStateMapper([0, 1], matrix, default)


@pytest.mark.parametrize("row", [True, np.True_, np.array(True), torch.tensor(True)])
def test_a_bool_is_no_row_number(row):
    with pytest.raises(ValueError, match="expected a row of the matrix"):
        tenfold.SparseStateMapper({"a": row}, matrix_of(dense_of(2)))


def test_matrix_of_a_mapper_can_be_closed(tmp_path):
    matrix_of(dense_of(2)).save(tmp_path / "m")
    mapper = tenfold.SparseStateMapper([0, 1], tmp_path / "m")
    with mapper.matrix as matrix:
        pass
    assert matrix[1].equal(dense_of(2)[1])
