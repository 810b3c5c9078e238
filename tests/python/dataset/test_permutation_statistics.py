"""Statistics of shuffled orders must be distributed like the statistics of numpy's permutations.

A statistic is one number for each order. Its mean and spread over many seeds and epochs are
compared with the mean and spread for numpy's orders, so that its theoretical distribution is not
needed. The seeds are fixed, so a test that passes once always passes.
"""

from __future__ import annotations

from collections import Counter
from math import factorial
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import sparse, stats

import tenfold

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Order = NDArray[np.int64]
    Shuffle = Callable[[int, int, int], Order]

#: A statistic differs from numpy's if the p-value is below P_VALUE. The tests compute about 850
#: p-values, so the probability that one of them is this small by chance is 0.001.
P_VALUE = 1e-6


def by_tenfold(size: int, seed: int, epoch: int) -> Order:
    return np.asarray(tenfold.permutation(size, seed, epoch)[:])


def by_numpy(size: int, seed: int, epoch: int) -> Order:
    return np.random.default_rng([size, seed, epoch]).permutation(size)


def by_affine_map(size: int, seed: int, epoch: int) -> Order:
    """A bad shuffle, which the tests must detect: it checks the tests themselves."""
    rng = np.random.default_rng([size, seed, epoch])
    factor = 2 * int(rng.integers(1 << 20)) + 1
    while np.gcd(factor, size) != 1:
        factor += 2
    return (np.arange(size) * factor + rng.integers(size)) % size


def cycle_lengths(order: Order) -> Order:
    size = len(order)
    graph = sparse.coo_array((np.ones(size, np.int8), (np.arange(size), order)), shape=(size, size))
    count, labels = sparse.csgraph.connected_components(graph, directed=False)
    return np.bincount(labels, minlength=count)


def statistics(order: Order) -> dict[str, float]:
    size = len(order)
    found: dict[str, float] = {}
    steps = np.diff(order)
    found["adjacent pairs"] = np.count_nonzero(np.abs(steps) == 1)
    found["near pairs"] = np.count_nonzero(np.abs(steps) <= size // 64)
    found["rising pairs"] = np.count_nonzero(steps > 0)
    differences = np.bincount(steps % size)
    found["most common difference"] = differences.max()
    found["equal differences"] = np.sum(differences * (differences - 1.0))
    even = size // 2 * 2
    found["most common exclusive or"] = np.bincount(order[:even:2] ^ order[1:even:2]).max()
    centred = order - (size - 1) / 2
    found["serial correlation"] = float(centred[:-1] @ centred[1:]) / size**3
    found["correlation with the position"] = (
        float(centred @ (np.arange(size) - (size - 1) / 2)) / size**3
    )
    found["fixed points"] = np.count_nonzero(order == np.arange(size))
    if size <= 100_000:  # the cycles of larger orders take seconds
        lengths = cycle_lengths(order)
        found["cycles"] = len(lengths)
        found["longest cycle"] = lengths.max()
        found["parity"] = (size - len(lengths)) % 2
    for stride in (2, 16, 32, 64, 1024):
        if stride < size:
            apart = np.abs(order[stride:] - order[:-stride])
            found[f"neighbours {stride} apart"] = np.count_nonzero(apart == 1)
            found[f"positions {stride} apart, rows too"] = np.count_nonzero(apart == stride)
    if size >= 1000:
        cells = np.arange(size) * 16 // size * 16 + order * 16 // size
        found["rows by positions"] = np.sum((np.bincount(cells, minlength=256) - size / 256) ** 2)
    return found


def sample(shuffle: Shuffle, size: int, count: int) -> dict[str, NDArray[np.float64]]:
    """Returns the statistics of `count` orders, half of which vary the seed and half the epoch."""
    orders = [(i, 0) if i % 2 == 0 else (5, i) for i in range(count)]
    found = [statistics(shuffle(size, seed, epoch)) for seed, epoch in orders]
    return {name: np.array([values[name] for values in found]) for name in found[0]}


def p_value(some: NDArray[np.float64], others: NDArray[np.float64]) -> float:
    if np.ptp(some) == np.ptp(others) == 0:
        return float(some[0] == others[0])
    return float(stats.ttest_ind(some, others, equal_var=False).pvalue)


def unlike_numpy(shuffle: Shuffle, size: int, count: int) -> dict[str, float]:
    """Returns the statistics that differ between `shuffle` and numpy, with their p-values."""
    found = sample(shuffle, size, count)
    expected = sample(by_numpy, size, count)
    unlike = {}
    for name in found:
        centre = expected[name].mean()
        values = {
            name: p_value(found[name], expected[name]),
            f"spread of {name}": p_value(
                (found[name] - centre) ** 2, (expected[name] - centre) ** 2
            ),
        }
        unlike.update({name: p for name, p in values.items() if not p >= P_VALUE})
    return unlike


SIZES = [
    *((size, 1500) for size in (7, 31, 100, 500, 1000, 1023, 1024, 1025, 2000, 3000, 4096)),
    *((size, 400) for size in (5000, 10_000, 16_384, 20_000)),
    *((size, 100) for size in (65_536, 100_000, 131_072)),
    (1_000_000, 20),
    (10_000_000, 4),
]


@pytest.mark.filterwarnings("ignore:Precision loss")
@pytest.mark.parametrize(("size", "count"), SIZES)
def test_statistics_of_permutations_match_those_of_numpy(size: int, count: int) -> None:
    assert unlike_numpy(by_tenfold, size, count) == {}


@pytest.mark.filterwarnings("ignore:Precision loss")
def test_statistics_detect_a_bad_shuffle() -> None:
    assert len(unlike_numpy(by_affine_map, 1009, 100)) > 5


def uniformity(counts: NDArray[np.int64], freedom: int) -> float:
    expected = counts.sum() / counts.size
    return float(stats.chi2.sf(np.sum((counts - expected) ** 2) / expected, freedom))


@pytest.mark.parametrize("shuffle", [by_tenfold, by_numpy])
@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
def test_all_orders_of_few_rows_are_equally_likely(shuffle: Shuffle, size: int) -> None:
    orders = factorial(size)
    count = max(2000, 40 * orders)
    for pairs in ([(i, 3) for i in range(count)], [(3, i) for i in range(count)]):
        seen = Counter(tuple(shuffle(size, *pair).tolist()) for pair in pairs)
        counts = np.zeros(orders, np.int64)
        counts[: len(seen)] = [*seen.values()]
        assert uniformity(counts, orders - 1) > P_VALUE


@pytest.mark.parametrize("shuffle", [by_tenfold, by_numpy])
@pytest.mark.parametrize("size", [12, 61])
def test_each_row_is_equally_likely_at_each_position(shuffle: Shuffle, size: int) -> None:
    count = 200 * size
    for pairs in ([(i, 1) for i in range(count)], [(1, i) for i in range(count)]):
        counts = np.zeros((size, size), np.int64)
        for pair in pairs:
            counts[np.arange(size), shuffle(size, *pair)] += 1
        assert uniformity(counts, (size - 1) ** 2) > P_VALUE


@pytest.mark.parametrize("shuffle", [by_tenfold, by_numpy])
def test_successive_epochs_and_seeds_are_independent(shuffle: Shuffle) -> None:
    size, count = 16, 8000
    for pairs in ([(i, 0) for i in range(count)], [(0, i) for i in range(count)]):
        first = np.array([shuffle(size, *pair)[0] for pair in pairs])
        counts = np.bincount(first[:-1] * size + first[1:], minlength=size * size)
        assert uniformity(counts, size * size - 1) > P_VALUE
