import multiprocessing
import pickle
import signal
import subprocess
import sys
import threading

import pytest
import torch

import tenfold
from forks import exit_status, forked


class Rows(torch.utils.data.Dataset):
    def __init__(self, td):
        self.td = td

    def __len__(self):
        return 4

    def __getitem__(self, i):
        return self.td["a", "x"][i]


def total(td):
    return float(td["a", "x"].sum())


def total_of_path(path):
    return float(tenfold.load(path)["a"]["x"].sum())


def write_row(arguments):
    td, row = arguments
    td["x"][row] = row
    td.flush()


@pytest.fixture
def saved(target):
    return tenfold.save({"a": {"x": torch.ones(1000)}}, target)


def test_spawned_workers_open_a_pickled_tree(saved):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(total, [tenfold.open(saved)] * 2) == [1000.0, 1000.0]


def test_spawned_workers_write_to_the_mapped_file(tmp_path):
    td = tenfold.TensorDict({"x": torch.zeros(4)}, [4]).memmap(tmp_path / "td")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(write_row, [(td, row) for row in range(4)])
    assert td["x"].tolist() == [0, 1, 2, 3]


@pytest.fixture
def one_torch_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_torch_thread")
def test_a_forked_child_loads_and_saves_after_the_parent_did(saved, tmp_path):
    # Large enough that the save starts threads in the parent before the fork.
    tenfold.save({str(i): torch.ones(100_000) for i in range(40)}, tmp_path / "warm")
    opened = tenfold.open(saved)

    def work():
        assert total(opened) == total_of_path(saved) == 1000
        tree = tenfold.load(tmp_path / "warm")
        tenfold.save(tree, tmp_path / "child")
        assert tenfold.verify(tmp_path / "child").ok

    assert exit_status(forked(work)) == 0


def test_tree_is_pickled_by_path_and_read_in_data_loader_workers(saved):
    rows = Rows(tenfold.open(saved))
    assert len(pickle.dumps(rows.td)) < 1000
    loader = torch.utils.data.DataLoader(
        rows, batch_size=2, num_workers=1, multiprocessing_context="spawn"
    )
    assert [batch.tolist() for batch in loader] == [[1.0, 1.0], [1.0, 1.0]]


def matrix_at(path):
    tenfold.save(torch.eye(3).to_sparse_csr(), path)
    return tenfold.SparseMatrix(path), lambda matrix: matrix.rows([1]).to_dense().tolist()


def dataset_at(path):
    tenfold.save({"x": torch.arange(3.0)}, path)
    return tenfold.Dataset(path), lambda dataset: dataset[2]["x"].item()


def dict_at(path):
    tenfold.MappedDict.build({"a": 1.0, "b": 2.0}, path)
    return tenfold.MappedDict(path), lambda dictionary: dictionary["b"]


@pytest.mark.usefixtures("one_torch_thread")
@pytest.mark.parametrize("make", [matrix_at, dataset_at, dict_at])
def test_a_child_that_is_forked_during_a_refresh_reads_the_rows(make, tmp_path):
    rows, read = make(tmp_path / "rows")
    expected = read(rows)
    is_done = threading.Event()

    def refresh():
        while not is_done.is_set():
            rows.refresh()

    def work():
        signal.alarm(60)
        assert read(rows) == expected
        rows.refresh()
        assert read(rows) == expected

    thread = threading.Thread(target=refresh)
    thread.start()
    try:
        assert [exit_status(forked(work)) for _ in range(20)] == [0] * 20
    finally:
        is_done.set()
        thread.join()


def test_a_daemon_thread_does_not_crash_the_exit(saved):
    code = """
import sys, threading, time
import tenfold

def work():
    while True:
        tenfold.verify(sys.argv[1])
        began.set()

began = threading.Event()
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
began.wait()
time.sleep(0.1)
"""
    subprocess.run([sys.executable, "-c", code, saved], check=True, timeout=60)
