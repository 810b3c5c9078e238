"""`tenfold.BatchLoader` and `tenfold.accumulate`."""

from __future__ import annotations

import gc
import json
import multiprocessing
import pickle
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tenfold
from tenfold import BatchLoader, Dataset

ROWS = 1000


def ids(loader: BatchLoader) -> list[int]:
    return [row for batch in loader for row in batch["id"].tolist()]


def test_batches_follow_the_shuffled_order(ds: Dataset, path: Path) -> None:
    tree = tenfold.load(path)
    loader = BatchLoader(ds, 64, shuffle=True, seed=3)
    for epoch in range(2):
        order = tenfold.permutation(ROWS, 3, epoch)
        begin = 0
        for batch in loader:
            rows = order[begin : begin + 64]
            begin += len(rows)
            for name in ("x", "id", "flag", "half", "frame"):
                assert torch.equal(batch[name], tree[name][rows])
            assert torch.equal(batch["camera"]["gain"], tree["camera", "gain"][rows])
        assert begin == ROWS


def test_permutation_supports_indexing_and_unit_slices() -> None:
    order = tenfold.permutation(1000, seed=1)
    assert sorted(order) == list(range(1000))
    assert order[3] == order[3:4].item() == order[-997]
    with pytest.raises(IndexError):
        order[1000]
    with pytest.raises(ValueError, match="step of 1"):
        order[::2]
    with pytest.raises(ValueError, match=r"permutation: size: expected 0 to 2\^62"):
        tenfold.permutation(-1)


@given(
    rows=st.integers(0, 300),
    batch_size=st.integers(1, 50),
    cut=st.integers(0, 10),
    world_size=st.integers(1, 9),
    shuffle=st.booleans(),
    block=st.none() | st.integers(1, 40),
)
@settings(max_examples=60, deadline=None)
def test_another_number_of_ranks_resumes_the_rest_of_the_epoch(
    rows: int, batch_size: int, cut: int, world_size: int, shuffle: bool, block: int | None
) -> None:
    data = Dataset({"id": torch.arange(rows)})
    options = {"shuffle": shuffle, "seed": 5, "shuffle_block": block}
    whole = ids(BatchLoader(data, batch_size, **options))
    first = BatchLoader(data, batch_size, **options)
    iterator = iter(first)
    seen = []
    for _ in range(min(cut, len(first))):
        seen += next(iterator)["id"].tolist()
    state = json.loads(json.dumps(first.state_dict()))
    if state["epoch"] == 1:
        assert seen == whole
        return
    parts = []
    for rank in range(world_size):
        loader = BatchLoader(data, 7, rank=rank, world_size=world_size, **options)
        loader.load_state_dict(state)
        parts.append([batch["id"].tolist() for batch in loader])
    for step in zip(*parts, strict=True):
        for rows_of_rank in step:
            seen += rows_of_rank
    assert seen == whole


def test_drop_last_omits_the_partial_batch_from_iteration_and_len(ds: Dataset) -> None:
    assert len(BatchLoader(ds, 300)) == 4
    loader = BatchLoader(ds, 300, drop_last=True)
    assert len(loader) == 3
    assert [len(batch["id"]) for batch in loader] == [300] * 3


def test_complete_iteration_advances_the_epoch_and_a_break_does_not(ds: Dataset) -> None:
    loader = BatchLoader(ds, 100, shuffle=True)
    first = ids(loader)
    assert loader.epoch == 1
    assert ids(loader) != first
    loader.set_epoch(0)
    for _ in loader:
        break
    assert loader.epoch == 0
    assert ids(loader) == first


def test_load_state_dict_validates_the_state(ds: Dataset) -> None:
    loader = BatchLoader(ds, 100)
    with pytest.raises(ValueError, match="position"):
        loader.load_state_dict({"seed": 0, "epoch": 0, "position": ROWS + 1})
    with pytest.raises(ValueError, match="seed"):
        loader.load_state_dict({})
    assert len(json.dumps(loader.state_dict(), separators=(",", ":"))) <= 64


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"batch_size": 0}, ValueError),
        ({"rank": 1}, ValueError),
        ({"seed": -1}, ValueError),
        ({"prefetch": -1}, ValueError),
        ({"columns": ["nope"]}, KeyError),
        ({"pad": "zero"}, ValueError),
    ],
    ids=str,
)
def test_invalid_options_raise(ds: Dataset, options: dict, error: type) -> None:
    with pytest.raises(error):
        BatchLoader(ds, **options)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"batch_size": 2.5}, TypeError, "batch_size: expected an int, found 2.5"),
        ({"batch_size": True}, TypeError, "batch_size: expected an int, found True"),
        ({"batch_size": 2**63}, ValueError, "batch_size: expected an int that fits int64"),
        ({"shuffle": None}, TypeError, "shuffle: expected a bool, found None"),
        ({"shuffle": 1}, TypeError, "shuffle: expected a bool, found 1"),
        ({"drop_last": "yes"}, TypeError, "drop_last: expected a bool, found 'yes'"),
        ({"rank": None}, TypeError, "rank: expected an int, found None"),
        ({"world_size": "2"}, TypeError, "world_size: expected an int, found '2'"),
        ({"seed": 2**64}, ValueError, "seed: expected 0 to 18446744073709551615"),
        ({"seed": -1}, ValueError, "seed: expected 0 to 18446744073709551615, found -1"),
        ({"seed": 10**5000}, ValueError, "found an int of 16610 bits"),
        ({"prefetch": 1.0}, TypeError, "prefetch: expected an int, found 1.0"),
        ({"num_threads": 2**31}, ValueError, "num_threads: expected 0 to 2147483647"),
        ({"shuffle_block": float("nan")}, TypeError, "shuffle_block: expected an int, found nan"),
    ],
)
def test_options_of_wrong_type_or_range_are_named(
    ds: Dataset, options: dict, error: type, text: str
) -> None:
    with pytest.raises(error, match=f"^batch loader: .*{text}"):
        BatchLoader(ds, **options)


def test_extreme_but_valid_options_are_accepted(ds: Dataset) -> None:
    assert [len(batch["id"]) for batch in BatchLoader(ds, 2**63 - 1)] == [len(ds)]
    blocks = BatchLoader(ds, len(ds), shuffle=True, shuffle_block=2**58)
    assert sorted(next(iter(blocks))["id"].tolist()) == list(range(len(ds)))
    for seed in (2**63, 2**64 - 1):
        loader = BatchLoader(ds, 64, shuffle=True, seed=seed)
        other = BatchLoader(ds, 64, shuffle=True)
        other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        assert other.state_dict() == loader.state_dict()
        assert torch.equal(next(iter(other))["id"], next(iter(loader))["id"])
    with pytest.raises(ValueError, match="batch loader: epoch: expected 0 to 4611686018427387904"):
        loader.set_epoch(2**63 - 1)
    with pytest.raises(TypeError, match="batch loader: epoch: expected an int, found None"):
        loader.set_epoch(None)


def test_batches_apply_columns_transform_as_tensordict_and_map(ds: Dataset) -> None:
    assert list(next(iter(BatchLoader(ds, 4, columns=["id", ("camera", "gain")])))) == [
        "id",
        "camera",
    ]
    doubled = BatchLoader(ds, 4, transform=lambda batch: batch["id"] * 2)
    assert next(iter(doubled)).tolist() == [0, 2, 4, 6]
    td = next(iter(BatchLoader(ds, 4, as_tensordict=True)))
    assert td.batch_size == torch.Size([4])
    assert td["camera", "gain"].tolist() == [0, 1, 2, 3]
    mapped = BatchLoader(ds.map(lambda row: {"n": row["id"] + 1}), 3)
    assert next(iter(mapped))["n"].tolist() == [1, 2, 3]


def test_loader_yields_the_rows_of_a_view(ds: Dataset) -> None:
    view = tenfold.concat([ds.range(0, 10), ds.take([500, 20])]).select(["id"])
    assert sorted(ids(BatchLoader(view, 5, shuffle=True))) == sorted([*range(10), 500, 20])


def test_memory_of_batches_in_use_is_not_reused(ds: Dataset) -> None:
    loader = BatchLoader(ds.select(["id"]), 10, num_threads=3)
    held = [batch["id"] for batch in loader]
    gc.collect()
    ids(loader)
    assert torch.cat(held).tolist() == list(range(ROWS))


def test_stats_name_the_bottleneck(ds: Dataset) -> None:
    loader = BatchLoader(ds, 100)
    ids(loader)
    stats = loader.stats()
    assert stats["batches"] == 10
    assert stats["rows"] == ROWS
    assert stats["limit"] in ("consumer", "memory", "storage")
    assert stats["rows_per_second"] > 0
    assert stats["residency"] in ("resident", "willneed")
    assert f"residency={stats['residency']}" in repr(loader)


def _resources() -> dict[str, int]:
    """Returns KiB of anonymous memory, and the numbers of descriptors, mappings and threads."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "memory": int(status["RssAnon"].split()[0]),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "maps": len(Path("/proc/self/maps").read_text().splitlines()),
        "threads": int(status["Threads"]),
    }


def test_finished_and_abandoned_epochs_release_their_resources(ds: Dataset) -> None:
    loader = BatchLoader(ds, 16, shuffle=True, num_threads=3)
    for _ in range(5):
        ids(loader)
    gc.collect()
    before = _resources()
    for i in range(20):
        ids(loader)
        next(iter(loader))  # and an iteration that is abandoned
        loader.set_epoch(i)
    gc.collect()
    after = _resources()
    assert after["descriptors"] <= before["descriptors"]
    assert after["threads"] <= before["threads"]
    assert after["maps"] <= before["maps"] * 1.02
    assert after["memory"] <= before["memory"] * 1.02


@pytest.mark.parametrize(
    "options",
    [{}, {"num_threads": 1}, {"prefetch": 0}, {"transform": dict}, {"device": "cpu"}],
    ids=str,
)
def test_threads_sharing_an_iterator_get_each_row_once_and_terminate(
    ds: Dataset, options: dict[str, Any]
) -> None:
    loader = BatchLoader(ds, 7, **options)

    def rows_of(batches: Iterator[Any]) -> list[int]:
        return [row for batch in batches for row in batch["id"].tolist()]

    for epoch in range(3):
        shared = iter(loader)
        with ThreadPoolExecutor(4) as pool:
            parts = pool.map(rows_of, [shared] * 4)
        assert sorted(row for part in parts for row in part) == list(range(ROWS))
        assert next(shared, None) is None
        assert loader.state_dict()["epoch"] == epoch + 1


def _sum_of_rows(ds: Dataset) -> int:
    return sum(ids(BatchLoader(ds, 64, shuffle=True)))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_loaders_work_in_other_processes(ds: Dataset, method: str) -> None:
    ids(BatchLoader(ds, 10, num_threads=3))  # starts threads, which a forked child does not have
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(_sum_of_rows, (ds,)) == sum(range(ROWS))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_torch_data_loader_returns_all_rows_in_order(ds: Dataset, num_workers: int) -> None:
    loader = torch.utils.data.DataLoader(
        ds, batch_size=128, num_workers=num_workers, collate_fn=tenfold.collate
    )
    found = [row for batch in loader for row in batch["id"].tolist()]
    assert found == list(range(ROWS))
    plain = torch.utils.data.DataLoader(ds, batch_size=128, num_workers=num_workers)
    assert [row for batch in plain for row in batch["id"].tolist()] == found


def test_accumulated_gradients_equal_those_of_one_large_batch() -> None:
    torch.manual_seed(0)
    rows = 103
    data = Dataset({"x": torch.rand(rows, 4).double(), "y": torch.rand(rows, 1).double()})
    model = torch.nn.Linear(4, 1).double()
    loader = BatchLoader(data, 10)
    begin = 0
    windows = list(tenfold.accumulate(loader, steps=4))
    assert [len(window) for window in windows] == [4, 4, 3]
    assert [window.rows for window in windows] == [40, 40, 23]
    for window in windows:
        model.zero_grad()
        for batch, weight in window:
            (torch.nn.functional.mse_loss(model(batch["x"]), batch["y"]) * weight).backward()
        accumulated = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        whole = data[begin : begin + window.rows]
        torch.nn.functional.mse_loss(model(whole["x"]), whole["y"]).backward()
        for gradient, parameter in zip(accumulated, model.parameters(), strict=True):
            assert torch.allclose(gradient, parameter.grad, rtol=0, atol=1e-12)
        begin += window.rows
    assert begin == rows


@pytest.mark.parametrize("device", [None, "cpu"])
def test_state_within_a_window_is_the_start_of_the_window(device: Any) -> None:
    loader = BatchLoader({"x": torch.arange(100)}, 10, shuffle=True, seed=5, device=device)

    def state(epoch: int, position: int) -> dict[str, int]:
        return {"seed": 5, "epoch": epoch, "position": position}

    states = []
    for window in tenfold.accumulate(loader, steps=4):
        states.extend(loader.state_dict() for _ in window)
    starts = [0, 0, 0, 40, 40, 40, 40, 80, 80]
    assert states == [*(state(0, start) for start in starts), state(1, 0)]
    assert loader.state_dict() == state(1, 0)

    windows = tenfold.accumulate(loader, steps=5)
    assert next(windows)[-1].weight == 0.2
    assert loader.state_dict() == state(1, 50)
    second = next(windows)
    assert second[0].weight == 0.2
    assert loader.state_dict() == state(1, 50)
    assert loader.epoch == 1

    resumed = BatchLoader({"x": torch.arange(100)}, 10, shuffle=True)
    resumed.load_state_dict(loader.state_dict())
    again = next(tenfold.accumulate(resumed, steps=5))
    for (batch, _), (expected, _) in zip(again, second, strict=True):
        assert torch.equal(batch["x"], expected["x"])

    # This iteration ends within the last window of epoch 1, so the next iteration repeats epoch 1.
    resumed.load_state_dict(state(1, 50))
    assert next(tenfold.accumulate(resumed, steps=5)).rows == 50
    assert resumed.state_dict() == state(1, 50)
    assert len(list(resumed)) == 10
    assert resumed.state_dict() == state(2, 0)
    loader.set_epoch(7)
    assert loader.state_dict() == state(7, 0)


def test_an_error_within_a_window_keeps_the_start_of_the_window() -> None:
    fail_at = iter([False] * 5 + [True])

    def transform(batch: dict[str, Any]) -> dict[str, Any]:
        if next(fail_at):
            raise OSError("stop")
        return batch

    loader = BatchLoader({"x": torch.arange(100)}, 10, transform=transform)
    windows = tenfold.accumulate(loader, steps=4)
    assert next(windows)[3][0]["x"].tolist() == list(range(30, 40))
    with pytest.raises(OSError, match="stop"):
        next(windows)
    assert loader.state_dict()["position"] == 40


def test_accumulate_accepts_any_iterable_of_batches() -> None:
    batches = [(torch.zeros(4, 2), torch.zeros(4)), (torch.zeros(2, 2), torch.zeros(2))]
    (window,) = tenfold.accumulate(batches, steps=5)
    assert [weight for _, weight in window] == [4 / 6, 2 / 6]
    with pytest.raises(ValueError, match="steps: expected 1 or more, found 0"):
        tenfold.accumulate(batches, steps=0)
    with pytest.raises(ValueError, match="expected a tensor"):
        list(tenfold.accumulate([{"a": 1}], steps=1))


def test_accumulate_gives_a_batch_of_empty_lists_weight_0() -> None:
    batches = [{"name": [], "nested": {"tags": []}}, {"nested": {"tags": []}, "x": torch.ones(2)}]
    (window,) = tenfold.accumulate(batches, steps=2)
    assert [weight for _, weight in window] == [0, 1]
    with pytest.raises(ValueError, match="expected a tensor or a list of strings"):
        list(tenfold.accumulate([[]], steps=1))


def test_accumulate_counts_ragged_rows_of_numpy() -> None:
    batch = {"tokens": [np.zeros(3), np.zeros(5)], "y": np.zeros(2)}
    (window,) = tenfold.accumulate([batch], steps=1)
    assert window.rows == 2


@pytest.mark.parametrize("pad", [None, 0, "offsets"])
def test_accumulate_counts_rows_independent_of_column_order(tmp_path: Path, pad: object) -> None:
    rows = [{"tokens": [1] * (i % 4), "tags": ["a"] * (i % 3), "name": "n"} for i in range(10)]
    data = tenfold.ingest(rows, tmp_path / "ds", progress=False)
    for columns in (None, ["tags"], ["name"]):
        loader = BatchLoader(data, 4, pad=pad, columns=columns)
        windows = list(tenfold.accumulate(loader, steps=2))
        assert [[weight for _, weight in window] for window in windows] == [[0.5, 0.5], [1.0]]


def test_complex_columns_are_padded(tmp_path: Path) -> None:
    schema = {"z": {"dtype": "complex64", "ragged": True}}
    tenfold.ingest([{"z": [1 + 2j]}, {"z": []}], tmp_path / "ds", schema=schema, progress=False)
    batch = next(iter(BatchLoader(Dataset(tmp_path / "ds"), 2, pad=-3)))
    assert batch["z"].tolist() == [[1 + 2j], [-3]]
    assert batch["z.length"].tolist() == [1, 0]


@pytest.fixture
def texts() -> Dataset:
    """Returns four rows with 2, 0, 3 and 1 tokens. Each row has one mark and a name.

    One of the names is empty.
    """
    td = tenfold.TensorDict(
        {
            "n": torch.arange(4),
            "tokens.end": torch.tensor([2, 2, 5, 6]),
            "marks.end": torch.tensor([1, 2, 3, 4]),
            "name.end": torch.tensor([3, 8, 8, 11]),
        },
        batch_size=[4],
    )
    td["tokens"] = tenfold.UnbatchedTensor(torch.arange(1, 7, dtype=torch.int32))
    td["marks"] = tenfold.UnbatchedTensor(torch.arange(4, dtype=torch.int32))
    name = torch.frombuffer(bytearray(b"AnnBobbyZoe"), dtype=torch.uint8)
    td["name"] = tenfold.UnbatchedTensor(name)
    td.schema = {
        "columns": {
            "tokens": {"dtype": "int32", "ragged": True},
            "marks": {"dtype": "int32", "ragged": True},
            "name": {"dtype": "string"},
            "n": {"dtype": "int64"},
        }
    }
    return Dataset(td)


PADDED = [[1, 2, -1], [-1, -1, -1], [3, 4, 5], [6, -1, -1]]


@pytest.mark.parametrize("mapped", [False, True], ids=["plain", "mapped by rows"])
def test_ragged_columns_are_nested_or_padded_per_column(texts: Dataset, mapped: bool) -> None:
    seen: list[int] = []

    def same(row: dict) -> dict:
        seen.append(len(row["tokens"]))
        return row

    ds = texts.map(same) if mapped else texts
    batch = next(iter(BatchLoader(ds, 4)))
    assert batch["tokens"].is_nested
    assert batch["marks"].is_nested
    assert batch["tokens"].offsets().tolist() == [0, 2, 2, 5, 6]
    batch = next(iter(BatchLoader(ds, 4, pad=-1)))
    assert batch["tokens"].tolist() == PADDED
    assert batch["tokens.length"].tolist() == [2, 0, 3, 1]
    assert batch["marks"].shape == (4, 1)
    batch = next(iter(BatchLoader(ds, 4, pad="offsets")))
    assert {key: value.tolist() for key, value in batch["tokens"].items()} == {
        "values": [1, 2, 3, 4, 5, 6],
        "offsets": [0, 2, 2, 5, 6],
    }
    batch = next(iter(BatchLoader(ds, 4, pad={"tokens": -1, "marks": "offsets"})))
    assert batch["tokens"].tolist() == PADDED
    assert batch["marks"]["values"].tolist() == [0, 1, 2, 3]
    batch = next(iter(BatchLoader(ds, 4, pad={"marks": "offsets"})))
    assert batch["tokens"].is_nested
    assert batch["name"] == ["Ann", "Bobby", "", "Zoe"]
    assert not mapped or set(seen) == {2, 0, 3, 1}, "map() passed padded rows to its function"


@pytest.mark.parametrize("mapped", [False, True], ids=["plain", "mapped by rows"])
@pytest.mark.parametrize("default", ["torch", "numpy"])
@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_ragged_columns_are_padded_in_the_framework_of_the_loader(
    texts: Dataset, mapped: bool, default: str, framework: str
) -> None:
    ds = texts.map(dict) if mapped else texts
    tenfold.set_framework(default)
    try:
        pads = {"tokens": -1, "marks": "offsets"}
        batch = next(iter(BatchLoader(ds, 4, pad=pads, framework=framework)))
        short = next(iter(BatchLoader(ds, 1, pad=-1, framework=framework)))
    finally:
        tenfold.set_framework(None)
    kind = torch.Tensor if framework == "torch" else np.ndarray
    arrays = [batch["tokens"], batch["tokens.length"], *batch["marks"].values(), short["tokens"]]
    assert all(isinstance(array, kind) for array in arrays)
    assert batch["tokens"].tolist() == PADDED
    assert batch["tokens.length"].tolist() == [2, 0, 3, 1]
    assert batch["marks"]["values"].tolist() == [0, 1, 2, 3]
    assert batch["marks"]["offsets"].tolist() == [0, 1, 2, 3, 4]
    assert short["tokens"].tolist() == [[1, 2]]
    assert short["tokens.length"].tolist() == [2]


@pytest.mark.parametrize("pad", [None, -1, "offsets"])
def test_tensordict_batches_hold_ragged_and_string_columns(texts: Dataset, pad: object) -> None:
    td = next(iter(BatchLoader(texts, 3, pad=pad, as_tensordict=True)))
    assert td.batch_size == torch.Size([3])
    assert list(td["name"]) == ["Ann", "Bobby", ""]
    if pad == "offsets":
        assert td["tokens", "values"].tolist() == [1, 2, 3, 4, 5]
        assert td["tokens", "offsets"].tolist() == [0, 2, 2, 5]
    elif pad is None:
        assert td["tokens"].is_nested
    else:
        assert td["tokens"].tolist() == PADDED[:3]
        assert td["tokens.length"].tolist() == [2, 0, 3]


def test_torch_data_loader_collates_ragged_mapped_rows(texts: Dataset) -> None:
    ds = texts.select(["tokens", "n"]).map(lambda row: {**row, "twice": row["n"] * 2})
    (batch,) = torch.utils.data.DataLoader(ds, batch_size=4, collate_fn=tenfold.collate)
    assert batch["tokens"].offsets().tolist() == [0, 2, 2, 5, 6]
    assert batch["twice"].tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize(
    "function",
    [lambda batch: batch["tokens"], lambda batch: (batch["tokens"], [1, 2, 3, 4])],
    ids=["column", "tuple"],
)
def test_collate_returns_the_batch_of_a_batched_function(texts: Dataset, function: Any) -> None:
    ds = texts.map(function, batched=True)
    rows = ds.__getitems__([0, 1, 2, 3])
    assert [len(row) for row in pickle.loads(pickle.dumps(rows))] == [len(row) for row in rows]
    (loaded,) = torch.utils.data.DataLoader(ds, batch_size=4, collate_fn=tenfold.collate)
    for batch in (tenfold.collate(rows), loaded):
        tokens = batch[0] if isinstance(batch, tuple) else batch
        assert tokens.offsets().tolist() == [0, 2, 2, 5, 6]


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_mapped_rows_are_stacked_in_the_framework_of_the_data_set(
    tmp_path: Path, framework: Any
) -> None:
    rows = [{"tokens": [i, i + 1], "n": i} for i in range(4)]
    columns = {"tokens": {"dtype": "int32", "ragged": True}, "n": "int64"}
    tenfold.ingest(rows, tmp_path / "rows", schema=columns)
    ds = Dataset(tmp_path / "rows", framework=framework)
    by_rows = ds.map(dict)
    seen: list[Any] = []
    both = by_rows.map(lambda batch: seen.append(batch) or batch, batched=True)
    list(both)
    both.__getitems__([0, 1, 2, 3])
    samples = by_rows.__getitems__([0, 1, 2, 3])
    seen += [
        both[:],
        tenfold.collate(samples),
        tenfold.collate(pickle.loads(pickle.dumps(samples))),
    ]
    kind = torch.Tensor if framework == "torch" else np.ndarray
    for batch in seen:
        assert isinstance(batch["n"], kind)
        assert [row.tolist() for row in batch["tokens"]] == [row["tokens"] for row in rows]
        assert batch["tokens"].is_nested if framework == "torch" else len(batch["tokens"]) == 4


@pytest.mark.parametrize("lengths", [[0, 1, 2, 3], [0, 0]], ids=["different", "equal"])
def test_ragged_arrays_of_row_functions_become_jagged_tensors(
    texts: Dataset, lengths: list[int]
) -> None:
    arrays = texts.map(lambda row: {"tokens": row["tokens"].numpy()})
    tensors = texts.map(lambda row: {"tokens": row["tokens"]})
    expected = tensors[lengths]["tokens"]
    for batch in (arrays[lengths], tenfold.collate(arrays.__getitems__(lengths))):
        assert batch["tokens"].offsets().tolist() == expected.offsets().tolist()
        assert batch["tokens"].values().tolist() == expected.values().tolist()
        assert batch["tokens"].dtype == torch.int32


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (torch.tensor(1), RuntimeError, "number of dimensions of the first sample, 1, found 0"),
        (np.ones((1, 2)), RuntimeError, "number of dimensions of the first sample, 1, found 2"),
        (1, TypeError, "a tensor or array, as the first sample is, found int"),
        ([1], TypeError, "a tensor or array, as the first sample is, found list"),
    ],
    ids=["0-d", "2-d", "int", "list"],
)
@pytest.mark.parametrize("name", ["tokens", "other"])
def test_rows_that_cannot_be_stacked_are_named(
    texts: Dataset, name: str, value: object, error: type[Exception], message: str
) -> None:
    ds = texts.map(lambda row: {name: row["tokens"] if row["n"] < 3 else value})
    with pytest.raises(
        error, match=rf'^sample 2 of the batch: entry "{name}": expected .*{message}$'
    ):
        ds[[0, 2, 3]]
    first = texts.map(lambda row: {name: row["tokens"] if row["n"] > 0 else torch.tensor(1)})
    with pytest.raises(RuntimeError, match="dimensions of the first sample, 0, found 1"):
        first[:]


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_functions_may_return_a_number_for_a_ragged_column(texts: Dataset, framework: Any) -> None:
    summed = texts.map(lambda row: {"tokens": row["tokens"].sum()})
    (batch,) = BatchLoader(summed, 4, framework=framework)
    assert batch["tokens"].tolist() == [3, 0, 12, 6]


def test_a_rank_without_rows_gets_an_empty_mapped_batch(texts: Dataset) -> None:
    ds = texts.map(lambda row: {"tokens": row["tokens"], "name": row["name"], "n": row["n"] * 2})
    batch = next(iter(BatchLoader(ds, 1, rank=0, world_size=2)))
    assert len(batch["n"]) == 0
    assert batch["n"].dtype == torch.int64
    assert batch["name"] == []
    assert batch["tokens"].offsets().tolist() == [0]
    assert texts.map(lambda row: (row["n"], row["name"]))[0:0][1] == []


@pytest.mark.parametrize("mapped", [False, True], ids=["plain", "mapped by rows"])
@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_ragged_columns_of_a_batch_without_rows_are_padded(
    texts: Dataset, framework: Any, mapped: bool
) -> None:
    ds = texts.map(dict) if mapped else texts
    for pad in (-1, {"tokens": -1, "marks": "offsets"}, "offsets"):
        loader = BatchLoader(ds, 1, rank=0, world_size=2, pad=pad, framework=framework)
        batch = next(iter(loader))
        if pad != "offsets":
            assert tuple(batch["tokens"].shape) == (0, 0)
            assert str(batch["tokens"].dtype).endswith("int32")
            assert batch["tokens.length"].tolist() == []
        if pad != -1:
            assert batch["marks"]["values"].tolist() == []
            assert str(batch["marks"]["values"].dtype).endswith("int32")
            assert batch["marks"]["offsets"].tolist() == [0]
        assert batch["name"] == []


def _narrowed(batch: Any) -> dict[str, Any]:
    values = torch.arange(8).reshape(2, 4)
    starts, lengths = torch.tensor([0, 1]), torch.tensor([2, 1])
    return {"t": torch.nested.narrow(values, 1, starts, lengths, layout=torch.jagged)}


def test_narrowed_jagged_tensors_are_padded(ds: Dataset) -> None:
    mapped = ds.range(0, 2).map(dict).map(_narrowed, batched=True)
    batch = next(iter(BatchLoader(mapped, 2, pad=-1)))
    assert batch["t"].tolist() == [[0, 1], [5, -1]]
    assert batch["t.length"].tolist() == [2, 1]
    batch = next(iter(BatchLoader(mapped, 2, pad="offsets")))
    assert batch["t"]["values"].tolist() == [0, 1, 5]
    assert batch["t"]["offsets"].tolist() == [0, 2, 3]


def test_lists_of_ragged_numpy_rows_without_rows_pickle_as_lists(texts: Dataset) -> None:
    batch = next(iter(BatchLoader(texts, 1, rank=0, world_size=2, framework="numpy")))
    assert batch["tokens"] == []
    assert type(pickle.loads(pickle.dumps(batch["tokens"]))) is list


def test_map_may_return_tuples(texts: Dataset) -> None:
    ds = texts.map(lambda row: (row["n"], row["name"]))
    assert ds[1] == (torch.tensor(1), "Bobby")
    numbers, names = next(iter(BatchLoader(ds, 3)))
    assert numbers.tolist() == [0, 1, 2]
    assert names == ["Ann", "Bobby", ""]
    assert [name for _, name in ds] == ["Ann", "Bobby", "", "Zoe"]
    numbers, names = next(iter(torch.utils.data.DataLoader(ds, batch_size=3)))
    assert numbers.tolist() == [0, 1, 2]
    batched = texts.select(["n"]).map(lambda batch: batch["n"] + 1, batched=True)
    (batch,) = torch.utils.data.DataLoader(batched, batch_size=4)
    assert batch.tolist() == [1, 2, 3, 4]


def test_stats_name_a_slow_transform(ds: Dataset) -> None:
    loader = BatchLoader(ds.range(0, 100), 10, transform=lambda batch: time.sleep(0.01))
    for _ in loader:
        pass
    stats = loader.stats()
    assert stats["limit"] == "transform"
    assert 0.1 <= stats["transform_seconds"] < 10


@pytest.mark.parametrize("mapped", [False, True], ids=["plain", "mapped by rows"])
@pytest.mark.parametrize("framework", ["torch", "numpy"])
@pytest.mark.parametrize(
    ("dtype", "pad", "found"),
    [
        ("int64", 0.5, "0.5"),
        ("int64", float("nan"), "NaN"),
        ("int32", float("-inf"), "-Infinity"),
        ("uint8", 256, "256"),
        ("uint8", -1, "-1"),
        ("bool", 2, "2"),
    ],
)
def test_a_pad_that_the_dtype_cannot_represent_is_refused(
    tmp_path: Path, framework: Any, mapped: bool, dtype: str, pad: float, found: str
) -> None:
    schema = {"v": {"dtype": dtype, "ragged": True}}
    ds = tenfold.ingest([{"v": [1, 0]}, {"v": [1]}], tmp_path / "ds", schema=schema)
    ds = ds.map(dict) if mapped else ds
    (batch,) = BatchLoader(ds, 2, pad=1.0, framework=framework)
    assert batch["v"].tolist() == [[1, 0], [1, 1]]
    message = f'pad: column "v": expected a value that {dtype} can represent, found {found}$'
    with pytest.raises(ValueError, match=message):
        list(BatchLoader(ds, 2, pad=pad, framework=framework))


@pytest.mark.parametrize("mapped", [False, True], ids=["plain", "mapped by rows"])
@pytest.mark.parametrize("pad", [-(2**63), 2**63 - 1])
def test_a_pad_may_be_a_limit_of_int64(tmp_path: Path, mapped: bool, pad: int) -> None:
    ds = tenfold.ingest([{"v": [1, 0]}, {"v": [1]}], tmp_path / "ds")
    (batch,) = BatchLoader(ds.map(dict) if mapped else ds, 2, pad=pad)
    assert batch["v"].tolist() == [[1, 0], [1, pad]]


@pytest.mark.parametrize("mapped", [False, True], ids=["plain", "mapped by rows"])
def test_a_pad_may_be_a_number_of_any_class(texts: Dataset, mapped: bool) -> None:
    ds = texts.map(dict) if mapped else texts
    for pad in (np.float32(-1), np.float16(-1), np.int8(-1), Fraction(-1), np.longdouble(-1)):
        (batch,) = BatchLoader(ds, 4, pad={"tokens": pad})
        assert batch["tokens"].tolist() == PADDED
    for value in (Fraction(1, 3), Fraction(10**400, 3)):
        with pytest.raises(ValueError, match="pad: expected a number that float64 can represent"):
            BatchLoader(ds, 4, pad=value)
    with pytest.raises(ValueError, match='pad: expected a number, "offsets" or None, found array'):
        BatchLoader(ds, 4, pad=np.zeros(2))


@pytest.mark.parametrize("value", [0, "offsets", None])
def test_pad_of_a_missing_column_names_it(texts: Dataset, value: object) -> None:
    ragged = r'ragged columns of numbers \("tokens", "marks"\), found '
    with pytest.raises(KeyError, match=f'pad: column "typo": .*{ragged}no such column'):
        BatchLoader(texts, 4, pad={"typo": value})
    with pytest.raises(KeyError, match=f'pad: column "n": .*{ragged}int64'):
        BatchLoader(texts, 4, pad={"n": value})
    with pytest.raises(KeyError, match=r'"marks": .*found no such column'):
        BatchLoader(texts, 4, columns=["tokens"], pad={"marks": value})
    with pytest.raises(TypeError, match="pad: expected a str, found 1"):
        BatchLoader(texts, 4, pad={1: value})
    # The loader does not know in advance which columns a function of map() adds.
    added = texts.map(lambda row: {"typo": row["tokens"]})
    assert len(list(BatchLoader(added, 4, pad={"typo": value}))) > 0
    batched = texts.map(lambda batch: {"new": batch["tokens"]}, batched=True)
    (batch,) = BatchLoader(batched, 4, pad={"new": value})
    if value == 0:
        assert batch["new"].shape == (4, 3)
    else:
        assert isinstance(batch["new"], dict) == (value == "offsets")


def test_epoch_wraps_to_zero_after_the_last(ds: Dataset) -> None:
    loader = BatchLoader(ds, 100, shuffle=True)
    loader.set_epoch(2**62)
    assert len(list(loader)) == 10
    state = loader.state_dict()
    assert state["epoch"] == 0
    loader.load_state_dict(state)
