"""`tenfold.IterableDataset` over data sets."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
import time
from itertools import islice
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import tenfold
from forks import exit_status, forked
from tenfold import Dataset, IterableDataset

ROWS = 1000


def ids(rows: object) -> list[int]:
    return [int(row["id"]) for row in rows]


def batch_ids(loader: DataLoader) -> list[list[int]]:
    return [batch["id"].tolist() for batch in loader]


def flat(batches: list[list[int]]) -> list[int]:
    return [row for batch in batches for row in batch]


def test_rows_equal_those_of_the_dataset_in_order(ds: Dataset, path: Path) -> None:
    rows = list(IterableDataset(path))
    assert ids(rows) == list(range(ROWS))
    expected = ds[617]
    assert list(rows[617]) == list(expected)
    for name in ("x", "id", "flag", "half", "frame"):
        assert rows[617][name].dtype == expected[name].dtype
        assert torch.equal(rows[617][name], expected[name])
    assert rows[617]["camera"] == expected["camera"]


def test_shuffle_follows_the_permutation_of_each_epoch(ds: Dataset) -> None:
    rows = IterableDataset(ds, shuffle=True, seed=3)
    for epoch in range(2):
        assert ids(rows) == tenfold.permutation(ROWS, 3, epoch)[:].tolist()
    rows.set_epoch(0)
    assert ids(rows) == tenfold.permutation(ROWS, 3, 0)[:].tolist()


def test_shuffle_buffer_shuffles_nearby_rows(ds: Dataset) -> None:
    rows = IterableDataset(ds, shuffle_buffer=64, seed=5)
    first, second = ids(rows), ids(rows)
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert first != second
    assert first != sorted(first)
    assert all(abs(row - position) < 64 for position, row in enumerate(first))


def test_columns_views_maps_and_transforms_apply(ds: Dataset) -> None:
    view = ds.range(10, 13).map(lambda row: {"id": row["id"], "twice": row["id"] * 2})
    rows = IterableDataset(view, transform=lambda row: int(row["twice"]))
    assert list(rows) == [20, 22, 24]
    assert list(IterableDataset(ds, columns=["id", ("camera", "gain")]).schema) == ["id", "camera"]
    with pytest.raises(KeyError, match="nope"):
        IterableDataset(ds, columns=["nope"])


def test_is_a_torch_iterable_dataset_without_length(ds: Dataset) -> None:
    rows = IterableDataset(ds)
    assert isinstance(rows, torch.utils.data.IterableDataset)
    with pytest.raises(TypeError):
        len(rows)


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("shuffle", [False, True])
def test_ranks_and_workers_partition_the_rows(path: Path, workers: int, shuffle: bool) -> None:
    seen = []
    for rank in range(2):
        rows = IterableDataset(path, shuffle=shuffle, rank=rank, world_size=2)
        seen += flat(batch_ids(DataLoader(rows, batch_size=7, num_workers=workers)))
    assert sorted(seen) == list(range(ROWS))


def test_spawned_workers_partition_the_rows(path: Path) -> None:
    loader = DataLoader(
        IterableDataset(path), batch_size=64, num_workers=2, multiprocessing_context="spawn"
    )
    assert sorted(flat(batch_ids(loader))) == list(range(ROWS))


@given(
    size=st.integers(0, 300),
    cut=st.integers(0, 320),
    shuffle=st.booleans(),
    buffer=st.sampled_from([0, 1, 16]),
    world_size=st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_another_number_of_ranks_resumes_the_rest_of_the_epoch(
    size: int, cut: int, shuffle: bool, buffer: int, world_size: int
) -> None:
    data = Dataset({"id": torch.arange(size)})
    options = {"shuffle": shuffle, "shuffle_buffer": buffer}
    whole = ids(IterableDataset(data, seed=5, **options))
    first = IterableDataset(data, seed=5, **options)
    seen = ids(islice(first, cut))
    state = json.loads(json.dumps(first.state_dict()))
    if cut > size:
        assert state == {"seed": 5, "epoch": 1, "position": 0}
        return
    assert state == {"seed": 5, "epoch": 0, "position": min(cut, size)}
    rest: list[list[int]] = []
    for rank in range(world_size):
        rows = IterableDataset(data, rank=rank, world_size=world_size, **options)
        rows.load_state_dict(state)
        rest.append(ids(rows))
        assert rows.state_dict() == {"seed": 5, "epoch": 1, "position": 0}
    for step in range(max(map(len, rest))):
        seen += [rows[step] for rows in rest if step < len(rows)]
    assert seen == whole


@pytest.mark.parametrize("cut", [1, 2, 3, 6, 7, 40])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_loader_with_workers_resumes_exactly(path: Path, cut: int, workers: int) -> None:
    def loader(rows: IterableDataset) -> DataLoader:
        return DataLoader(rows, batch_size=10, num_workers=workers)

    whole = batch_ids(loader(IterableDataset(path, shuffle=True, seed=2)))
    first = IterableDataset(path, shuffle=True, seed=2)
    iterator = iter(loader(first))
    seen = [next(iterator)["id"].tolist() for _ in range(cut)]
    state = json.loads(json.dumps(first.state_dict()))
    second = IterableDataset(path, shuffle=True)
    second.load_state_dict(state)
    assert seen + batch_ids(loader(second)) == whole


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_resumes_with_another_number_of_workers(path: Path, workers: int) -> None:
    first = IterableDataset(path, shuffle=True)
    iterator = iter(DataLoader(first, batch_size=10, num_workers=3))
    seen = [next(iterator)["id"].tolist() for _ in range(17)]
    second = IterableDataset(path, shuffle=True)
    second.load_state_dict(first.state_dict())
    seen += batch_ids(DataLoader(second, batch_size=8, num_workers=workers))
    assert sorted(flat(seen)) == list(range(ROWS))


@pytest.mark.parametrize("cut", range(6))
def test_resumes_a_state_whose_workers_have_unequal_numbers_of_rows_left(
    ds: Dataset, cut: int
) -> None:
    first = IterableDataset(ds.range(0, 20))
    iterator = iter(DataLoader(first, batch_size=6, num_workers=2))
    seen = [next(iterator)["id"].tolist() for _ in range(3)]
    state = first.state_dict()
    assert (state["position"], state["taken"]) == (12, [4, 0])
    second = IterableDataset(ds.range(0, 20))
    second.load_state_dict(state)
    iterator = iter(DataLoader(second, batch_size=1, num_workers=2))
    seen += [batch["id"].tolist() for batch in islice(iterator, cut)]
    time.sleep(0.2)
    state = second.state_dict()
    if cut < 4:
        third = IterableDataset(ds.range(0, 20))
        third.load_state_dict(state)
        seen += batch_ids(DataLoader(third, batch_size=3, num_workers=2))
    assert sorted(flat(seen)) == list(range(20))
    assert state["epoch"] == (cut >= 4)


def test_state_after_the_last_batch_is_the_next_epoch(path: Path) -> None:
    rows = IterableDataset(path)
    iterator = iter(DataLoader(rows, batch_size=100, num_workers=2))
    assert len(batch_ids(iterator)) == 10
    assert rows.state_dict() == {"seed": 0, "epoch": 1, "position": 0}
    for drop_last, batches in ((False, 10), (True, 8)):
        rows = IterableDataset(path)
        iterator = iter(DataLoader(rows, batch_size=120, num_workers=2, drop_last=drop_last))
        assert len(list(iterator)) == batches
        assert rows.state_dict() == {"seed": 0, "epoch": 1, "position": 0}


def test_state_dict_after_an_abandoned_loop_raises(path: Path) -> None:
    rows = IterableDataset(path)
    for _ in DataLoader(rows, batch_size=10, num_workers=2):
        break
    with pytest.raises(tenfold.UnsupportedError, match=r"call state_dict\(\) within the loop"):
        rows.state_dict()
    rows.set_epoch(0)
    assert rows.state_dict()["position"] == 0


class Wrapped(torch.utils.data.IterableDataset):
    def __init__(self, rows: IterableDataset) -> None:
        self.rows = rows

    def __iter__(self) -> object:
        return iter(self.rows)


@pytest.mark.parametrize("wrapped", [False, True])
def test_state_dict_without_the_iterator_raises_after_workers_read_all_rows(
    ds: Dataset, wrapped: bool
) -> None:
    rows = IterableDataset(ds.range(0, 6))
    loader = DataLoader(Wrapped(rows) if wrapped else rows, batch_size=2, num_workers=2)
    iterator = iter(loader)
    next(iterator)
    time.sleep(1)
    if not wrapped:
        del iterator
    with pytest.raises(
        tenfold.UnsupportedError, match="released in the middle of the epoch or at its end"
    ):
        rows.state_dict()


def test_a_forked_process_creates_a_stream_after_torch_used_threads() -> None:
    if torch.get_num_threads() > 1:
        (torch.ones(1_000_000) + 1).sum()
    child = multiprocessing.get_context("fork").Process(
        target=IterableDataset, args=({"id": torch.arange(4)},)
    )
    child.start()
    child.join(60)
    exit_code = child.exitcode
    child.kill()
    assert exit_code == 0


def test_forked_processes_do_not_share_a_position(path: Path) -> None:
    rows = IterableDataset(path)
    rows.load_state_dict({"seed": 0, "epoch": 0, "position": 900})

    def work() -> None:
        iterator = iter(DataLoader(rows, batch_size=10, num_workers=2))
        seen = [next(iterator)["id"].tolist() for _ in range(2)]
        assert sorted(flat(seen)) == list(range(900, 920))
        assert rows.state_dict() == {"seed": 0, "epoch": 0, "position": 920}

    for _ in range(2):
        assert exit_status(forked(work)) == 0
    assert rows.state_dict() == {"seed": 0, "epoch": 0, "position": 900}


def set_epoch_3(worker: int) -> None:
    torch.utils.data.get_worker_info().dataset.set_epoch(3)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_an_epoch_that_a_worker_sets_is_that_of_its_next_iteration(
    path: Path, context: str
) -> None:
    rows = IterableDataset(path, shuffle=True)
    options = {"worker_init_fn": set_epoch_3, "multiprocessing_context": context}
    loader = DataLoader(rows, num_workers=1, persistent_workers=True, **options)
    iterator = iter(loader)
    seen = [int(next(iterator)["id"])]
    with pytest.raises(tenfold.UnsupportedError, match="found a call of set_epoch"):
        rows.state_dict()
    assert seen + flat(batch_ids(iterator)) == tenfold.permutation(ROWS, 0, 3)[:].tolist()
    iterator = iter(loader)
    assert int(next(iterator)["id"]) == tenfold.permutation(ROWS, 0, 0)[0]
    assert rows.state_dict() == {"seed": 0, "epoch": 0, "position": 1}


def start_worker_1_late(worker: int) -> None:
    time.sleep(2 * worker)


@pytest.mark.parametrize("is_text", [False, True])
@pytest.mark.parametrize("persistent", [False, True])
def test_state_counts_the_rows_of_a_worker_that_starts_late(
    tmp_path: Path, is_text: bool, persistent: bool
) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(f'{{"id": {i}}}\n' for i in range(4)))
    rows = IterableDataset(source if is_text else tenfold.ingest(source, tmp_path / "ds"))
    loader = DataLoader(
        rows,
        batch_size=2,
        num_workers=2,
        worker_init_fn=start_worker_1_late,
        persistent_workers=persistent,
    )
    iterator = iter(loader)
    assert next(iterator)["id"].tolist() == [0, 2]
    time.sleep(0.5)
    state = rows.state_dict()
    assert (state["epoch"], state["position"], state["taken"]) == (0, 0, [2, 0])
    assert batch_ids(iterator) == [[1, 3]]
    assert rows.state_dict() == {"seed": 0, "epoch": 1, "position": 0}


def test_state_dict_with_in_order_false_raises(path: Path) -> None:
    rows = IterableDataset(path)
    iterator = iter(DataLoader(rows, batch_size=10, num_workers=2, in_order=False))
    next(iterator)
    with pytest.raises(tenfold.UnsupportedError, match="in_order=False"):
        rows.state_dict()


def test_persistent_workers_apply_the_epoch_and_refuse_a_state(path: Path) -> None:
    rows = IterableDataset(path, shuffle=True, seed=1)
    loader = DataLoader(rows, batch_size=1, num_workers=1, persistent_workers=True)
    for epoch in (0, 3):
        rows.set_epoch(epoch)
        assert flat(batch_ids(loader)) == tenfold.permutation(ROWS, 1, epoch)[:].tolist()
    rows.load_state_dict({"seed": 1, "epoch": 0, "position": 10})
    with pytest.raises(tenfold.UnsupportedError, match="create a new DataLoader"):
        next(iter(loader))


@pytest.mark.parametrize("taken", range(1, 4))
def test_ranks_with_unequal_numbers_of_rows_resume(ds: Dataset, taken: int) -> None:
    def make(rank: int) -> IterableDataset:
        return IterableDataset(ds.range(0, 5), rank=rank, world_size=2)

    first = make(0)
    iterator = iter(first)
    seen = ids(islice(iterator, taken))
    seen += ids(islice(make(1), taken))
    for rank in range(2):
        resumed = make(rank)
        resumed.load_state_dict(first.state_dict())
        seen += ids(resumed)
    assert sorted(seen) == list(range(5))


def test_break_restarts_the_epoch_and_a_state_is_used_once(ds: Dataset) -> None:
    rows = IterableDataset(ds.range(0, 10))
    assert ids(islice(rows, 4)) == ids(islice(rows, 4)) == [0, 1, 2, 3]
    rows.load_state_dict({"seed": 0, "epoch": 0, "position": 7})
    assert ids(islice(rows, 1)) == [7]
    assert ids(islice(rows, 1)) == [0]


def test_only_the_first_pass_resumes_with_any_number_of_workers(ds: Dataset) -> None:
    rows = IterableDataset(ds.range(0, 20))
    rows.load_state_dict({"seed": 0, "epoch": 0, "position": 10})
    for workers, first in ((2, 10), (4, 0), (3, 0)):
        iterator = iter(DataLoader(rows, batch_size=2, num_workers=workers))
        assert sorted(flat(batch_ids(iterator))) == list(range(first, 20))
        assert rows.state_dict() == {"seed": 0, "epoch": 1, "position": 0}


def test_pickle_keeps_the_path_and_the_position(path: Path) -> None:
    rows = IterableDataset(path, rank=1, world_size=2)
    rows.load_state_dict({"seed": 0, "epoch": 2, "position": 990})
    again = pickle.loads(pickle.dumps(rows))
    assert ids(again) == [991, 993, 995, 997, 999]


@pytest.mark.parametrize("resumes", [False, True])
def test_state_counts_the_rows_of_workers_after_an_iteration_in_this_process(
    path: Path, resumes: bool
) -> None:
    rows = IterableDataset(path)
    if resumes:
        rows.load_state_dict({"seed": 0, "epoch": 0, "position": 5})
    peeked = iter(rows)
    next(peeked)
    iterator = iter(DataLoader(rows, batch_size=2, num_workers=2))
    assert sorted(flat([next(iterator)["id"].tolist() for _ in range(4)])) == list(range(8))
    assert rows.state_dict() == {"seed": 0, "epoch": 0, "position": 8}
    list(peeked)
    assert rows.state_dict() == {"seed": 0, "epoch": 0, "position": 8}


def test_a_late_worker_keeps_the_epoch_and_position_of_its_start(ds: Dataset) -> None:
    rows = IterableDataset(ds.range(0, 20))
    rows.load_state_dict({"seed": 0, "epoch": 0, "position": 10})
    options = {"num_workers": 2, "worker_init_fn": start_worker_1_late}
    iterator = iter(DataLoader(rows, batch_size=2, **options))
    next(iter(rows))
    assert sorted(flat(batch_ids(iterator))) == list(range(10, 20))


def by_pickle(rows: IterableDataset) -> IterableDataset:
    return pickle.loads(pickle.dumps(rows))


@pytest.mark.parametrize("copied", [by_pickle, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_a_copy_has_its_own_position_and_epoch(path: Path, copied: object, context: str) -> None:
    first = IterableDataset(path, shuffle=True, seed=1)
    rows = copied(first)
    first.set_epoch(7)
    loader = DataLoader(
        rows,
        batch_size=2,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context=context,
    )
    for epoch in range(2):
        rows.set_epoch(epoch)
        iterator = iter(loader)
        order = tenfold.permutation(ROWS, 1, epoch)[:8].tolist()
        assert sorted(flat([next(iterator)["id"].tolist() for _ in range(4)])) == sorted(order)
        assert rows.state_dict() == {"seed": 1, "epoch": epoch, "position": 8}
        assert first.state_dict() == {"seed": 1, "epoch": 7, "position": 0}


def test_a_copy_of_a_begun_stream_begins_at_the_first_row(ds: Dataset) -> None:
    rows = IterableDataset(ds.range(0, 10))
    rows.load_state_dict({"seed": 0, "epoch": 0, "position": 5})
    next(iter(rows))
    again = by_pickle(rows)
    assert again.state_dict()["position"] == 0
    assert ids(again) == list(range(10))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed"),
        ({"shuffle_buffer": -1}, "shuffle_buffer"),
        ({"on_error": "ignore"}, "on_error"),
        ({"rank": 1}, "rank and world_size"),
        ({"rank": 2, "world_size": 2}, "expected 0 to 1"),
    ],
    ids=str,
)
def test_invalid_options_raise(ds: Dataset, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        IterableDataset(ds, **options)


def test_a_transform_that_cannot_be_called_is_refused(ds: Dataset) -> None:
    with pytest.raises(TypeError, match="iterable dataset: transform: expected a function"):
        IterableDataset(ds, transform=5)  # type: ignore[arg-type]


def test_invalid_states_raise(ds: Dataset) -> None:
    rows = IterableDataset(ds)
    with pytest.raises(ValueError, match="1000 rows"):
        rows.load_state_dict({"seed": 0, "epoch": 0, "position": ROWS + 1})
    with pytest.raises(ValueError, match='"epoch"'):
        rows.load_state_dict({"seed": 0, "position": 1})
    with pytest.raises(ValueError, match="epoch"):
        rows.set_epoch(-1)


def test_an_invalid_state_does_not_change_the_stream(path: Path) -> None:
    rows = IterableDataset(path)
    rows.load_state_dict({"seed": 0, "epoch": 0, "position": 980})
    for state in (
        {"seed": 0, "epoch": 2**62 + 1, "position": 0},
        {"seed": 2**64, "epoch": 0, "position": 0},
        {"seed": 0, "epoch": 0, "position": ROWS + 1},
        {
            "seed": 0,
            "epoch": 0,
            "position": 0,
            "world_size": 1,
            "workers": 2,
            "next_worker": 0,
            "taken": [10**9, 0],
        },
    ):
        with pytest.raises(ValueError, match=r"^iterable dataset: state: "):
            rows.load_state_dict(state)
    assert batch_ids(DataLoader(rows, batch_size=20, num_workers=1)) == [list(range(980, ROWS))]


def test_schema_is_accepted_for_text_files_only(path: Path) -> None:
    schema = Dataset(path).schema
    for source in (path, Dataset(path)):
        with pytest.raises(
            ValueError, match="schema: expected None, because a data set has its own"
        ):
            IterableDataset(source, schema=schema)


def test_epoch_wraps_to_zero_after_the_last(path: Path) -> None:
    stream = IterableDataset(path, shuffle=True)
    stream.set_epoch(2**62)
    for _ in stream:
        pass
    state = stream.state_dict()
    assert state["epoch"] == 0
    stream.load_state_dict(state)
