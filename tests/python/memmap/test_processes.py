"""Several processes use one mapped tree: fork, spawn, DataLoader workers, readers and writers."""

import multiprocessing
import time

import pytest
import torch

import tenfold
from tenfold import MemoryMappedTensor, TensorDict, append_memmap
from tenfold.tensordict._files import folder

METHODS = ["fork", "spawn"]


def run(method, target, *arguments):
    process = multiprocessing.get_context(method).Process(target=target, args=arguments)
    process.start()
    process.join(60)
    assert process.exitcode == 0


def fill_rows(td, start, stop):
    td["x"][start:stop] = torch.arange(start, stop).view(-1, 1).expand(-1, 4)
    td.flush()


def add_one(tensor):
    tensor += 1


def grow(path):
    td = TensorDict.load_memmap(path).memmap_()
    td.make_memmap(("sub", "new"), (8,)).fill_(3)


def append_repeatedly(path, times, reads):
    for i in range(times):
        assert reads.acquire(timeout=60)
        append_memmap(path, TensorDict({"x": torch.full((10, 4), i)}, [10]))


def same(batch):
    return batch


@pytest.mark.parametrize("method", METHODS)
def test_processes_fill_one_preallocated_tree(tmp_path, method):
    datum = TensorDict({"x": torch.zeros(4, dtype=torch.int64)})
    td = datum.expand(100).memmap_like(tmp_path / "p")
    context = multiprocessing.get_context(method)
    bounds = [(0, 50), (50, 100)]
    workers = [context.Process(target=fill_rows, args=(td, *some)) for some in bounds]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert torch.equal(td["x"][:, 0], torch.arange(100))
    assert torch.equal(tenfold.load(tmp_path / "p")["x"][:, 3], torch.arange(100))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("named", [True, False], ids=["file", "anonymous"])
def test_tensor_sent_to_a_process_shares_memory(tmp_path, method, named):
    filename = tmp_path / "x.memmap" if named else None
    tensor = MemoryMappedTensor.from_tensor(torch.arange(6).view(2, 3), filename=filename)
    run(method, add_one, tensor[1])
    assert tensor.tolist() == [[0, 1, 2], [4, 5, 6]]


@pytest.mark.parametrize("method", METHODS)
def test_anonymous_tree_is_shared_with_a_process(method):
    td = TensorDict({"x": torch.zeros(8, 4, dtype=torch.int64)}, [8]).memmap_()
    run(method, fill_rows, td, 2, 5)
    assert td["x"][:, 0].tolist() == [0, 0, 2, 3, 4, 0, 0, 0]


def test_entries_added_by_another_process_are_visible_after_a_refresh(tmp_path):
    td = TensorDict({"x": torch.zeros(8)}, [8]).memmap_(tmp_path / "p")
    run("spawn", grow, tmp_path / "p")
    assert "sub" not in td
    assert td.memmap_refresh_()["sub", "new"].tolist() == [3] * 8


def test_readers_see_complete_rows_while_rows_are_appended(tmp_path):
    TensorDict({"x": torch.zeros(10, 4, dtype=torch.int64)}, [10]).memmap(tmp_path / "p")
    times = 40
    context = multiprocessing.get_context("fork")
    reads = context.Semaphore(0)  # each release allows one append, which may overlap the next read
    process = context.Process(target=append_repeatedly, args=(tmp_path / "p", times, reads))
    process.start()
    seen = set()
    end = time.monotonic() + 60
    while process.is_alive() and time.monotonic() < end:
        td = TensorDict.load_memmap(tmp_path / "p", mode="r")
        length = td.batch_size[0]
        assert td["x"].shape == (length, 4)
        assert length % 10 == 0
        appended = torch.arange(-1, length // 10 - 1).clamp(min=0)  # 10 rows of zeros come first
        assert torch.equal(td["x"], appended.repeat_interleave(10).view(-1, 1).expand(-1, 4))
        seen.add(length)
        reads.release()
    process.join(60)
    assert process.exitcode == 0
    assert len(seen) > 1
    assert TensorDict.load_memmap(tmp_path / "p").batch_size[0] == 10 + 10 * times


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("opened", ["load_memmap", "memmap_"])
def test_a_data_loader_reads_a_mapped_tree_in_workers(tmp_path, method, opened):
    source = TensorDict({"x": torch.arange(12.0).view(12, 1), "n": {"i": torch.arange(12)}}, [12])
    td = source.memmap_(tmp_path / "p")
    if opened == "load_memmap":
        td = TensorDict.load_memmap(tmp_path / "p")
    loader = torch.utils.data.DataLoader(
        td, batch_size=5, num_workers=2, collate_fn=same, multiprocessing_context=method
    )
    batches = list(loader)
    assert [batch.batch_size[0] for batch in batches] == [5, 5, 2]
    assert torch.cat([batch["n", "i"] for batch in batches]).tolist() == list(range(12))
    assert torch.cat([batch["x"] for batch in batches]).flatten().tolist() == list(range(12))


@pytest.mark.parametrize("into", [False, True])
def test_load_memmap_reads_again_if_the_folder_is_replaced_during_it(tmp_path, monkeypatch, into):
    path = tmp_path / "tree"
    TensorDict({"a": torch.zeros(3), "old": torch.zeros(3)}).memmap(path)
    original = folder.map_now
    left = [{"a": torch.ones(3), "new": torch.ones(3)}]

    def replaced(*arguments):
        if left:
            tenfold.save(left.pop(), path)
        return original(*arguments)

    monkeypatch.setattr(folder, "map_now", replaced)
    td = TensorDict({}).load_memmap_(path) if into else TensorDict.load_memmap(path)
    assert sorted(td.keys()) == ["a", "new"]
    assert td["a"].tolist() == td["new"].tolist() == [1, 1, 1]
