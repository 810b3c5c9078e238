"""`mapper.cached(max_bytes)` keeps the most recently used rows in bounded memory."""

from __future__ import annotations

import os
import pickle
import signal
import threading

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import tenfold  # noqa: E402
from forks import exit_status, forked  # noqa: E402


@tenfold.register_mapper("test.squares")
class Squares(tenfold.StateMapper):
    """Maps a state to ``[state, state ** 2]``; records the states passed to `generate`."""

    def __init__(self):
        self.asked = []

    def generate(self, states):
        self.asked.append(list(states))
        numbers = torch.tensor(states, dtype=torch.float64).reshape(-1)
        return torch.stack([numbers, numbers**2], 1)


ROW_BYTES = 16


def test_batch_generates_each_missing_row_once():
    mapper = Squares()
    cached = mapper.cached(1 << 20)
    assert cached([1, 2, 1]).tolist() == [[1, 1], [2, 4], [1, 1]]
    assert cached([2, 3, 1, 3]).tolist() == [[2, 4], [3, 9], [1, 1], [3, 9]]
    assert cached(3).tolist() == [3, 9]
    assert mapper.asked == [[1, 2], [3]]
    assert (cached.hits, cached.misses) == (5, 3)
    assert cached.nbytes == 3 * ROW_BYTES


def test_another_number_of_rows_than_states_raises():
    class Short(Squares):
        def generate(self, states):
            return super().generate(states)[1:]

    for mapper in (Short(), Short().cached(1 << 20)):
        for states in ([1, 2], 1):
            with pytest.raises(ValueError, match=r"Short.generate: expected a row for each of"):
                mapper(states)


def test_the_least_recently_used_rows_are_evicted_first():
    mapper = Squares()
    cached = mapper.cached(3 * ROW_BYTES)
    cached([1, 2, 3])
    cached(1)
    cached(4)
    mapper.asked.clear()
    assert cached([1, 3, 4]).tolist() == [[1, 1], [3, 9], [4, 16]]
    assert mapper.asked == []
    cached(2)
    assert mapper.asked == [[2]]
    assert cached.nbytes == 3 * ROW_BYTES


@pytest.mark.parametrize("max_bytes", [0, ROW_BYTES - 1])
def test_cache_too_small_for_a_row_returns_correct_rows(max_bytes):
    mapper = Squares()
    cached = mapper.cached(max_bytes)
    for _ in range(2):
        assert cached([3, 3]).tolist() == [[3, 9], [3, 9]]
    assert cached.nbytes == 0
    assert len(mapper.asked) == 2


def test_batch_larger_than_the_cache_returns_correct_rows():
    cached = Squares().cached(4 * ROW_BYTES)
    for _ in range(2):
        assert cached(list(range(50)))[:, 1].tolist() == [i * i for i in range(50)]
    assert cached.nbytes == 4 * ROW_BYTES


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 12), max_size=9), max_size=12), st.integers(0, 10))
def test_cached_rows_equal_those_of_the_mapper(batches, num_rows):
    plain, cached = Squares(), Squares().cached(num_rows * ROW_BYTES)
    for batch in batches:
        assert cached(batch).equal(plain(batch))
        assert cached.nbytes <= num_rows * ROW_BYTES
    assert cached.hits + cached.misses == sum(map(len, batches))


def test_rows_are_copies():
    cached = Squares().cached(1 << 20)
    cached([1, 2]).zero_()
    cached([1, 2]).zero_()
    cached(1).zero_()
    assert cached([1, 2]).tolist() == [[1, 1], [2, 4]]


def test_training_the_module_invalidates_the_cache():
    @tenfold.register_mapper("test.cached_linear")
    def linear():
        return torch.nn.Linear(2, 3)

    mapper = tenfold.ModuleStateMapper("test.cached_linear")
    cached = mapper.cached(1 << 20)
    before = cached((1.0, 2.0))
    assert cached((1.0, 2.0)).equal(before)
    assert cached.hits == 1
    optimizer = torch.optim.SGD(mapper.module.parameters(), 0.1)
    mapper((1.0, 2.0)).sum().backward()
    optimizer.step()
    torch.testing.assert_close(cached((1.0, 2.0)), mapper((1.0, 2.0)).detach())
    assert not cached((1.0, 2.0)).equal(before)
    assert not cached((1.0, 2.0)).requires_grad


def test_tensors_are_compared_by_content():
    @tenfold.register_mapper("test.cached_flatten")
    def flatten():
        return torch.nn.Flatten()

    cached = tenfold.ModuleStateMapper("test.cached_flatten").cached(1 << 20)
    a, b = torch.rand(2, 2), torch.rand(2, 2)
    assert cached([a, b, a.clone()]).shape == (3, 4)
    assert (cached.hits, cached.misses) == (1, 2)


def test_rows_of_mixed_types_are_correct_but_not_cached():
    mapper = tenfold.HierarchicalStateMapper({"a": 1, "b": 2.5, "c": "text", "d": [1.0, 2.0]})
    cached = mapper.cached(1 << 20)
    for _ in range(2):
        for batch in (["a"], ["a", "b"], ["b", "b"], ["c", "a"], ["d"], "c", "d", ["c", "c"]):
            expected, found = mapper(batch), cached(batch)
            assert found.equal(expected) if torch.is_tensor(expected) else found == expected
            assert type(found) is type(expected)
            if torch.is_tensor(expected):
                assert found.dtype == expected.dtype
    assert cached.nbytes == 8


@tenfold.register_mapper("test.cached_sum")
class Sum(torch.nn.Module):
    def forward(self, states):
        return states.sum(1, keepdim=True)


def test_states_that_differ_below_a_mapper_have_rows_of_their_own():
    rows = tenfold.SparseStateMapper([1, "1", "True"], torch.eye(3).double().to_sparse_csr())
    mapper = tenfold.HierarchicalStateMapper(
        {"m": rows, "default": [9.0] * 3, "l": {"1": [8.0] * 3}}
    )
    states = [("m", 1), ("m", "1"), ("m", True), ("m", "True"), ("l", 1), ("l", True), ("l", "1")]
    cached = mapper.cached(1 << 20)
    for state in states:
        assert cached(state).equal(mapper(state))
    assert cached(states).equal(mapper(states))
    assert cached.misses == 5


def test_tensors_in_paths_are_compared_by_content():
    net = tenfold.ModuleStateMapper("test.cached_sum")
    cached = tenfold.HierarchicalStateMapper({"net": net}).cached(1 << 20)
    state = torch.tensor([1.0, 2.0])
    assert cached(("net", state)).item() == 3
    assert cached(("net", state.clone())).item() == 3
    assert (cached.hits, cached.misses) == (1, 1)
    state += 1
    assert cached(("net", state)).item() == 5


def test_cache_names_the_mapper_below_which_a_state_is_unknown():
    inner = tenfold.HierarchicalStateMapper({"a": 1})
    cached = tenfold.HierarchicalStateMapper({"in": inner}).cached(1 << 20)
    for state in (("in", ("x", "y")), ("in", "x"), ("in", 1, 2)):
        with pytest.raises(KeyError, match=r'below "in": .*no state'):
            cached(state)
    with pytest.raises(KeyError, match=r"no state .*nearest level that exists is the root"):
        cached([("out", 1)])


def test_exception_keeps_the_cache_unchanged():
    mapper = tenfold.HierarchicalStateMapper({"a": 1})
    cached = mapper.cached(100)
    cached("a")
    with pytest.raises(KeyError):
        cached(["a", "x"])
    assert cached(["a"]).tolist() == [1]
    assert cached.nbytes == 8


def test_concurrent_lookups_return_correct_rows():
    cached = Squares().cached(20 * ROW_BYTES)
    wrong = []

    def ask(seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(150):
            batch = torch.randint(0, 40, (16,), generator=generator).tolist()
            if cached(batch)[:, 1].tolist() != [i * i for i in batch]:
                wrong.append(batch)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert cached.hits + cached.misses == 4 * 150 * 16
    assert cached.nbytes <= 20 * ROW_BYTES


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_has_a_new_cache_even_if_the_lock_was_held():
    cached = Squares().cached(1 << 20)
    cached([1, 2])

    def look_up():
        signal.alarm(60)  # ends the process if it waits for the lock
        assert cached([1, 3]).tolist() == [[1, 1], [3, 9]]

    def clear():
        signal.alarm(60)
        cached.clear()
        assert cached.nbytes == 0

    for work in (look_up, clear):
        with cached._lock:
            child = forked(work)
        assert exit_status(child) == 0
    assert cached.nbytes == 2 * ROW_BYTES


def test_pickle_and_save_store_the_underlying_mapper(tmp_path):
    mapper = tenfold.HierarchicalStateMapper({"a": 1})
    mapper.save(tmp_path / "x.json")
    cached = mapper.cached(1000)
    cached("a")
    again = pickle.loads(pickle.dumps(cached))
    assert again.max_bytes == 1000
    assert again.nbytes == 0
    assert again("a") == 1
    cached.save(tmp_path / "y.json")
    assert tenfold.StateMapper.load(tmp_path / "y.json").hierarchy == {"a": 1}


def test_repr_shows_size_hits_and_misses():
    cached = Squares().cached(1000)
    cached([1, 1])
    assert repr(cached) == (
        "CachedStateMapper(Squares(), max_bytes=1,000: 1 rows, 16 bytes, 1 hits, 1 misses)"
    )
    cached.clear()
    assert cached.nbytes == 0


def test_a_negative_size_is_refused():
    with pytest.raises(ValueError, match="max_bytes: expected 0 or more, found -1"):
        Squares().cached(-1)


def test_unhashable_states_are_named():
    with pytest.raises(TypeError, match=r"state \(\[1\], 2\).*a batch is a list of states"):
        Squares().cached(10)([([1], 2)])


class OfTwoDtypes(tenfold.StateMapper):
    """Generates float32 rows if all states of the batch are even, else float64 rows."""

    def __init__(self):
        self.weight = torch.ones(1, requires_grad=True)

    def generate(self, states):
        numbers = torch.tensor(states, dtype=torch.float64).reshape(-1, 1)
        dtype = torch.float64 if any(state % 2 for state in states) else torch.float32
        return (numbers * self.weight).to(dtype)


def test_rows_of_several_dtypes_have_no_gradients():
    cached = OfTwoDtypes().cached(1 << 20)
    assert not cached([2]).requires_grad
    rows = cached([2, 3])  # the dtype differs from that of the cached row: all rows are generated
    assert rows.dtype == torch.float64
    assert not rows.requires_grad


@tenfold.register_mapper("test.parameters")
class OfParameters(tenfold.StateMapper):
    """Returns views of a parameter: float64 if a state is odd, as a list if a state is negative."""

    def __init__(self):
        self.weight = torch.nn.Parameter(torch.zeros(4, 1))
        self.wide = torch.nn.Parameter(torch.zeros(4, 1, dtype=torch.float64))

    def generate(self, states):
        weight = self.wide if any(state % 2 for state in states) else self.weight
        rows = weight[: len(states)]
        return list(rows) if min(states) < 0 else rows


def test_views_of_parameters_have_no_gradients():
    cached = OfParameters().cached(1 << 20)
    assert not cached([2]).requires_grad
    assert cached([2, 3]).dtype == torch.float64
    assert not cached([2, 3]).requires_grad
    assert not any(row.requires_grad for row in cached([-1, 2]))
    assert not any(row.requires_grad for row in cached([-1, -2]))


@tenfold.register_mapper("test.lazy_views")
class LazyViews(tenfold.StateMapper):
    """Generates rows that are lazy conjugates (complex64), or lazy negatives (float16)."""

    def __init__(self, is_negative=False):
        self.is_negative = is_negative

    def generate(self, states):
        dtype = torch.complex32 if self.is_negative else torch.complex64
        rows = torch.complex(torch.ones(len(states), 1), torch.tensor(states)[:, None] + 0.0)
        rows = rows.to(dtype).conj()
        return rows.imag if self.is_negative else rows


@pytest.mark.parametrize("is_negative", [False, True])
def test_lazy_conjugates_and_negatives_are_cached(is_negative):
    cached = LazyViews(is_negative).cached(1 << 20)
    row = (lambda state: [-state]) if is_negative else (lambda state: [1 - 1j * state])
    for states in ([1, 2], [2], [3, 1, 3]):
        assert cached(states).tolist() == [row(state) for state in states]
