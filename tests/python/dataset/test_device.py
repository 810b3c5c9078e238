"""Batches on a device and in pinned memory; fakes of both record the copies and waits."""

from __future__ import annotations

import contextlib
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tenfold
from tenfold import BatchLoader, Dataset
from tenfold.dataset import _loader

ROWS = 1000


class FakeCuda:
    """A fake ``torch.cuda`` that records the calls of its streams and events."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.recorded: list[torch.Tensor] = []  # those on which record_stream was called
        cuda = self

        class Stream:
            def __init__(self, device: object) -> None:
                cuda.notes.append("stream")

            def wait_event(self, event: Event) -> None:
                cuda.notes.append(f"wait {event.number}")

        class Event:
            made = 0

            def __init__(self) -> None:
                self.number = Event.made
                Event.made += 1

            def record(self, stream: Stream) -> None:
                cuda.notes.append(f"record {self.number}")

        self.Stream, self.Event = Stream, Event

    def stream(self, stream: object) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def current_stream(self, device: object) -> object:
        return self.Stream(device)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    monkeypatch.setattr(_loader, "streams_of", lambda device: fake)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda t, stream: fake.recorded.append(t))
    return fake


def tensors_in(batch: dict[str, Any]) -> list[torch.Tensor]:
    items = (tensors_in(item) if isinstance(item, dict) else [item] for item in batch.values())
    return [tensor for of_item in items for tensor in of_item]


def test_batches_are_moved_to_the_device(ds: Dataset) -> None:
    batch = next(iter(BatchLoader(ds, 4, device="meta")))
    assert batch["x"].device.type == "meta"
    assert batch["camera"]["gain"].device.type == "meta"
    here = next(iter(BatchLoader(ds, 4, device=torch.device("cpu"), transform=lambda b: b["id"])))
    assert here.tolist() == [0, 1, 2, 3]
    td = next(iter(BatchLoader(ds, 4, device="cpu", as_tensordict=True)))
    assert td.batch_size == torch.Size([4])
    assert td.device == torch.device("cpu")


def test_next_batch_is_copied_before_waiting_for_the_current_one(
    ds: Dataset, cuda: FakeCuda
) -> None:
    batches = iter(BatchLoader(ds.range(0, 8), 2, device="cpu"))
    cuda.notes.clear()
    assert next(batches)["id"].tolist() == [0, 1]
    assert cuda.notes == ["record 0", "record 1", "stream", "wait 0"]
    cuda.notes.clear()
    assert next(batches)["id"].tolist() == [2, 3]
    assert cuda.notes == ["record 2", "stream", "wait 1"]
    assert [batch["id"].tolist() for batch in batches] == [[4, 5], [6, 7]]


def test_memory_of_a_batch_is_recorded_on_the_stream_of_the_caller(
    ds: Dataset, cuda: FakeCuda
) -> None:
    for batch in BatchLoader(ds.range(0, 8), 2, device="cpu"):
        expected = [id(tensor) for tensor in tensors_in(batch)]
        assert len(expected) == 6
        assert [id(tensor) for tensor in cuda.recorded] == expected
        cuda.recorded.clear()


def test_prefetched_batch_does_not_advance_the_state(ds: Dataset) -> None:
    loader = BatchLoader(ds.range(0, 30), 10, device="cpu", shuffle=True)
    plain = BatchLoader(ds.range(0, 30), 10, shuffle=True)
    for _ in range(2):
        for batch, expected in zip(loader, plain, strict=True):
            assert torch.equal(batch["id"], expected["id"])
            assert loader.state_dict() == plain.state_dict()
            assert loader.epoch == plain.epoch
    assert loader.state_dict() == {"seed": 0, "epoch": 2, "position": 0}
    iterator = iter(loader)
    next(iterator)
    next(iterator)  # the third batch, the last of the epoch, was prefetched
    assert loader.epoch == 2
    again = [batch["id"].tolist() for batch in loader]
    assert again == [batch["id"].tolist() for batch in plain]
    iterator = iter(loader)
    next(iterator)
    del iterator
    assert loader.state_dict() == {"seed": 0, "epoch": 3, "position": 10}
    loader.load_state_dict({"seed": 0, "epoch": 0, "position": 20})
    assert loader.state_dict()["position"] == 20
    assert len(list(loader)) == 1


def test_transform_error_is_raised_at_its_own_batch(ds: Dataset) -> None:
    def fail_at_two(batch: dict) -> dict:
        if 4 in batch["id"]:
            raise RuntimeError("mine")
        return batch

    for device in ("cpu", None):
        loader = BatchLoader(ds.range(0, 8), 2, device=device, transform=fail_at_two)
        batches = iter(loader)
        assert next(batches)["id"].tolist() == [0, 1]
        assert next(batches)["id"].tolist() == [2, 3]
        with pytest.raises(RuntimeError, match="mine"):
            next(batches)
        # A loader that loads this state skips the batch that failed.
        assert loader.state_dict()["position"] == 6


def test_copy_error_is_raised_at_its_own_batch(ds: Dataset) -> None:
    class Failing:
        batch_size = (2,)

        def to(self, *args: Any, **options: Any) -> None:
            raise RuntimeError("out of memory")

    def fail_at_two(batch: dict) -> Any:
        return Failing() if 4 in batch["id"] else batch

    loader = BatchLoader(ds.range(0, 8), 2, device="cpu", transform=fail_at_two)
    batches = iter(loader)
    assert next(batches)["id"].tolist() == [0, 1]
    assert next(batches)["id"].tolist() == [2, 3]
    assert loader.state_dict()["position"] == 4
    with pytest.raises(RuntimeError, match="out of memory"):
        next(batches)
    assert loader.state_dict()["position"] == 6
    assert [batch["id"].tolist() for batch in batches] == [[6, 7]]
    assert loader.epoch == 1


class FakePinned:
    """Fake pinned memory that records its blocks and counts the calls of Tensor.pin_memory."""

    def __init__(self) -> None:
        self.blocks: list[weakref.ref[torch.Tensor]] = []
        self.num_copied = 0

    def block(self, size_bytes: int) -> torch.Tensor:
        block = torch.empty(size_bytes, dtype=torch.uint8)
        self.blocks.append(weakref.ref(block.untyped_storage()))
        return block

    def storages(self) -> set[int]:
        return {storage.data_ptr() for ref in self.blocks if (storage := ref()) is not None}

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        if tensor.is_nested:
            tensor = tensor.values()
        return tensor.untyped_storage().data_ptr() in self.storages()

    def pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        self.num_copied += 1
        copy = tensor.clone()
        stored = copy.values() if copy.is_nested else copy
        self.blocks.append(weakref.ref(stored.untyped_storage()))
        return copy


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> FakePinned:
    fake = FakePinned()
    monkeypatch.setattr(_loader, "may_pin", lambda: True)
    monkeypatch.setattr(_loader, "pinned_block", fake.block)
    monkeypatch.setattr(_loader, "is_pinned", fake.is_pinned)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: fake.pin_memory(tensor))
    return fake


@pytest.mark.parametrize("num_threads", [1, 3])
def test_batches_are_gathered_into_pinned_memory(
    ds: Dataset, pinned: FakePinned, num_threads: int
) -> None:
    options = {"batch_size": 10, "shuffle": True, "num_threads": num_threads}
    loader = BatchLoader(ds, pin_memory=True, **options)
    plain = BatchLoader(ds, **options)
    for _ in range(2):
        for batch, expected in zip(loader, plain, strict=True):
            assert batch.keys() == expected.keys()
            assert torch.equal(batch["x"], expected["x"])
            assert torch.equal(batch["frame"], expected["frame"])
            assert torch.equal(batch["half"], expected["half"])
            assert torch.equal(batch["camera"]["gain"], expected["camera"]["gain"])
    # Only the batches that were made before the loader returned the first batch were copied.
    num_fields = 6
    assert pinned.num_copied <= 5 * num_fields
    pinned.num_copied = 0
    batches = list(loader)
    assert pinned.num_copied == 0
    assert len({batch["x"].untyped_storage().data_ptr() for batch in batches}) == len(batches)
    assert all(pinned.is_pinned(batch["x"]) for batch in batches)


def test_pinned_block_is_not_reused(ds: Dataset, pinned: FakePinned) -> None:
    """A copy from a buffer may still run when no tensor refers to the buffer any more."""
    seen: set[int] = set()
    held = []
    for batch in BatchLoader(ds, 10, pin_memory=True):
        storage = batch["id"].untyped_storage()
        if storage.data_ptr() in pinned.storages():
            assert storage.data_ptr() not in seen
            seen.add(storage.data_ptr())
            held.append(storage)  # so that no new block can have its address
    assert len(seen) > 90


def test_pinned_blocks_are_freed_with_their_batches(ds: Dataset, pinned: FakePinned) -> None:
    loader = BatchLoader(ds, 10, pin_memory=True)
    for _ in range(3):
        for _batch in loader:
            pass
    assert len(pinned.storages()) <= 8
    del loader, _batch
    assert not pinned.storages()


def test_results_of_a_transform_are_pinned_too(ds: Dataset, pinned: FakePinned) -> None:
    loader = BatchLoader(
        ds, 100, pin_memory=True, transform=lambda b: {"x": b["x"], "y": b["x"] * 2}
    )
    list(loader)
    pinned.num_copied = 0
    for batch in loader:
        assert torch.equal(batch["y"], batch["x"] * 2)
        assert pinned.is_pinned(batch["x"])
        assert pinned.is_pinned(batch["y"])
    # The copies are "y" of each batch, and "x" of batches that were made while no block was free.
    assert len(loader) <= pinned.num_copied <= len(loader) + 5
    list(BatchLoader(ds, 100, pin_memory=True, as_tensordict=True))


@pytest.mark.parametrize("pad", [None, 0, "offsets"])
def test_ragged_rows_are_gathered_into_pinned_memory(
    tmp_path: Path, pinned: FakePinned, pad: object
) -> None:
    rows = [{"t": list(range(i % 7)), "s": "x" * (i % 5)} for i in range(300)]
    ds = tenfold.ingest(rows, tmp_path / "rows", progress=False)
    loader = BatchLoader(ds, 10, shuffle=True, pad=pad, pin_memory=True)
    list(loader)
    pinned.num_copied = 0
    plain = BatchLoader(ds, 10, shuffle=True, pad=pad)
    plain.set_epoch(1)
    for batch, expected in zip(loader, plain, strict=True):
        assert batch["s"] == expected["s"]
        assert type(batch["t"]) is type(expected["t"])
        if pad is None:
            assert torch.equal(batch["t"].values(), expected["t"].values())
            assert torch.equal(batch["t"].offsets(), expected["t"].offsets())
        elif pad == 0:
            assert torch.equal(batch["t"], expected["t"])
        else:
            assert torch.equal(batch["t"]["values"], expected["t"]["values"])
    assert pinned.num_copied <= 10


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_cuda_device_raises_and_pin_memory_warns(ds: Dataset) -> None:
    with pytest.raises(tenfold.UnsupportedError, match=r'found "cuda:1", but torch\.cuda'):
        BatchLoader(ds, 4, device="cuda:1")
    with pytest.warns(UserWarning, match="batches are not pinned"):
        loader = BatchLoader(ds, 4, pin_memory=True)
    assert not next(iter(loader))["x"].is_pinned()
    with pytest.raises(ValueError, match="found 'nowhere'"):
        BatchLoader(ds, 4, device="nowhere")


@pytest.mark.skipif(torch.xpu.is_available(), reason="there is an XPU device")
def test_a_device_that_the_machine_lacks_is_refused_before_iteration(
    ds: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(tenfold.UnsupportedError, match=r'found "xpu", but torch.xpu.is_available'):
        BatchLoader(ds, 4, device="xpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(
        tenfold.UnsupportedError, match=r'"cuda:2", but torch.*device_count\(\) is 2'
    ):
        BatchLoader(ds, 4, device="cuda:2")
    BatchLoader(ds, 4, device="cuda:1")


@pytest.mark.filterwarnings("ignore:batch loader. pin_memory")
@pytest.mark.parametrize("pin", [True, np.True_])
def test_pinned_batches_of_a_numpy_data_set_are_tensors(path: Path, pin: Any) -> None:
    ds = Dataset(path, framework="numpy")
    assert isinstance(next(iter(BatchLoader(ds, 4, pin_memory=pin)))["x"], torch.Tensor)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_pinned_batches_are_copied_to_the_gpu_intact(ds: Dataset) -> None:
    loader = BatchLoader(ds, 16, shuffle=True, device="cuda", pin_memory=True)
    order = tenfold.permutation(ROWS, 0, 0)[:]
    found = [batch["id"] for batch in loader]
    assert all(ids.is_cuda for ids in found)
    assert torch.equal(torch.cat(found).cpu(), order)
