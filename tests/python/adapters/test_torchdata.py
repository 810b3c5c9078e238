"""torchdata's `StatefulDataLoader` over data sets and streams of tenfold."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchdata", reason="torchdata is not installed")

from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402

import tenfold  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*set_vital.*")


@pytest.fixture
def dataset(tmp_path):
    return tenfold.ingest({"x": torch.arange(103.0) / 2, "y": torch.arange(103)}, tmp_path / "rows")


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({"y": y, "x": y / 2}) + "\n" for y in range(103)))
    return path


def over_rows(dataset, workers: int, **options):
    return StatefulDataLoader(
        dataset,
        batch_size=8,
        shuffle=True,
        generator=torch.Generator().manual_seed(3),
        collate_fn=tenfold.collate,
        num_workers=workers,
        **options,
    )


def over_stream(source, workers: int, **options):
    stream = tenfold.IterableDataset(source, shuffle=True, seed=7)
    return StatefulDataLoader(stream, batch_size=8, num_workers=workers, **options)


def numbers(batch) -> list[int]:
    assert torch.equal(batch["x"], batch["y"] / 2)
    return batch["y"].tolist()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["rows", "stream", "text"])
@pytest.mark.parametrize("stop", [0, 5, 12])
def test_resumes_within_an_epoch(dataset, log, tmp_path, kind, workers, stop) -> None:
    make = over_rows if kind == "rows" else over_stream
    source = log if kind == "text" else dataset
    whole, state = [], None
    loader = make(source, workers)
    for number, batch in enumerate(loader):
        whole.append(numbers(batch))
        if number == stop:
            state = loader.state_dict()
    assert sorted(number for batch in whole for number in batch) == list(range(103))
    tenfold.save(state, tmp_path / "state.safetensors")  # without pickle
    again = make(source, workers)
    again.load_state_dict(tenfold.load(tmp_path / "state.safetensors"))
    assert [numbers(batch) for batch in again] == whole[stop + 1 :]


@pytest.mark.parametrize("workers", [0, 2])
def test_next_epoch_follows_a_resumed_epoch(dataset, workers) -> None:
    loader = over_stream(dataset, workers)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    del batches
    again = over_stream(dataset, workers)
    again.load_state_dict(state)
    rest = [number for batch in again for number in numbers(batch)]
    assert len(set(rest)) == 95
    again.dataset.set_epoch(1)
    second = [number for batch in again for number in numbers(batch)]
    assert sorted(second) == list(range(103))
    assert second[:95] != rest


def test_state_of_another_worker_is_refused(dataset) -> None:
    loader = over_stream(dataset, 2)
    next(iter(loader))
    state = loader.state_dict()
    snapshots = state["_snapshot"]["_worker_snapshots"]
    snapshots["worker_0"], snapshots["worker_1"] = snapshots["worker_1"], snapshots["worker_0"]
    again = over_stream(dataset, 2)
    again.load_state_dict(state)
    with pytest.raises(ValueError, match=r"expected the state of \{'worker': [01]"):
        next(iter(again))


def test_checkpoint_manager_saves_and_restores_the_loader(dataset, tmp_path) -> None:
    loader = over_rows(dataset, 0)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    manager = tenfold.CheckpointManager(tmp_path / "run")
    manager.save(3, {"loader": loader})
    expected = [numbers(batch) for batch in batches]
    again = over_rows(dataset, 0)
    manager.restore({"loader": again})
    assert [numbers(batch) for batch in again] == expected
    manager.close()
