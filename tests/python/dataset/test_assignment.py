"""The assignment of the rows of a stream to ranks and workers."""

from __future__ import annotations

import json
from itertools import count, islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenfold.dataset._stream import Assignment


def all_numbers(assignment: Assignment, rows: list[int]) -> list[int]:
    """Returns the first `rows[worker]` row numbers of each worker of each rank."""
    return [
        number
        for rank in range(assignment.world_size)
        for worker, wanted in enumerate(rows)
        for number in islice(assignment.numbers(rank, worker), wanted)
    ]


@given(
    legs=st.lists(
        st.tuples(
            st.integers(1, 4),
            st.lists(st.integers(0, 9), min_size=1, max_size=4),
            st.integers(0, 20),
        ),
        min_size=1,
        max_size=5,
    )
)
@settings(max_examples=200, deadline=None)
def test_each_number_is_returned_once_for_any_ranks_and_workers(
    legs: list[tuple[int, list[int], int]],
) -> None:
    assignment = Assignment.fresh(1, 1)
    seen: list[int] = []
    for world_size, rows, batches in legs:
        assignment = Assignment.from_state(json.loads(json.dumps(assignment.to_state())))
        assignment = assignment.reassigned(world_size, len(rows))
        seen += all_numbers(assignment, rows)
        assignment = assignment.advanced(rows, batches)
    assert len(set(seen)) == len(seen)
    missing = (number for number in count() if number not in set(seen))
    rest = assignment.reassigned(1, 1).numbers(0, 0)
    assert list(islice(rest, 50)) == list(islice(missing, 50))
    assert set(range(assignment.position)) <= set(seen)


@given(
    num_records=st.integers(0, 60),
    world_size=st.integers(1, 4),
    workers=st.integers(1, 3),
    size=st.integers(1, 5),
    batches=st.integers(0, 12),
    other=st.integers(1, 5),
)
@settings(max_examples=300, deadline=None)
def test_partial_last_batches_in_some_ranks_repeat_no_row(
    num_records: int, world_size: int, workers: int, size: int, batches: int, other: int
) -> None:
    assignment = Assignment.fresh(world_size, workers)
    rows = [size * ((batches - worker + workers - 1) // workers) for worker in range(workers)]
    seen = [number for number in all_numbers(assignment, rows) if number < num_records]
    rest = assignment.advanced(rows, batches, num_records).reassigned(other, 1)
    for rank in range(other):
        for number in rest.numbers(rank, 0):
            if number >= num_records:
                break
            seen.append(number)
    assert sorted(seen) == list(range(num_records))


def test_state_is_one_position_if_all_workers_are_equal() -> None:
    assignment = Assignment.fresh(2, 4).advanced([64] * 4, 4)
    assert assignment.to_state() == {"position": 512}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (None, '"position"'),
        ({}, '"position": expected an int of 0 or more, found None'),
        ({"position": -1}, "found -1"),
        ({"position": True}, "found True"),
        ({"position": 0, "taken": [0]}, '"world_size"'),
        (
            {"position": 0, "taken": [0], "world_size": 2, "workers": 1, "next_worker": 0},
            "expected 2 numbers",
        ),
        (
            {"position": 0, "taken": [-1], "world_size": 1, "workers": 1, "next_worker": 0},
            "list of ints",
        ),
        (
            {"position": 0, "taken": [0], "world_size": 1, "workers": 0, "next_worker": 0},
            '"workers": expected an int of 1',
        ),
        ({"position": 0, "holes": "12"}, '"holes"'),
    ],
    ids=str,
)
def test_an_invalid_state_is_an_error(state: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Assignment.from_state(state)
