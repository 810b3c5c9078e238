"""Shuffled batches of the rows of a sparse matrix, which threads of the library prepare."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tenfold
from tenfold import SparseMatrix

sp = pytest.importorskip("scipy.sparse")
torch = pytest.importorskip("torch")

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "recommender.py"


@pytest.fixture
def pair(tmp_path):
    x = sp.random(103, 30, 0.2, "csr", random_state=0, dtype=np.float32)
    SparseMatrix.from_scipy(x).save(tmp_path / "m")
    return x, SparseMatrix(tmp_path / "m")


@pytest.mark.parametrize("layout", ["csr", "padded"])
def test_batches_follow_the_permutation(pair, layout):
    _, m = pair
    loader = m.batches(10, layout=layout, shuffle=True, seed=3)
    assert len(loader) == 11
    order = tenfold.permutation(103, 3, 0)[:]
    for number, batch in enumerate(loader):
        rows = m.rows(order[10 * number : 10 * number + 10], layout)
        if layout == "csr":
            assert batch.layout is torch.sparse_csr
            assert batch.col_indices().dtype == torch.int32
            torch.testing.assert_close(batch.to_dense(), rows.to_dense())
        else:
            assert sorted(batch) == sorted(rows)
            for name, part in rows.items():
                torch.testing.assert_close(batch[name], part)
    assert number == 10


def test_batches_are_transformed_and_resume(pair):
    x, m = pair
    loader = m.batches(10, transform=lambda batch: batch.to_dense().sum())
    batches = iter(loader)
    first = [next(batches) for _ in range(4)]
    state = loader.state_dict()
    again = m.batches(10, transform=lambda batch: batch.to_dense().sum())
    again.load_state_dict(state)
    assert sum(first) + sum(again) == pytest.approx(x.sum(), rel=1e-5)


def test_batches_need_the_csr_layout(pair):
    _, m = pair
    with pytest.raises(ValueError, match="expected layout csr, found csc"):
        m.to_layout("csc").batches(10)
    with pytest.raises(ValueError, match='expected "csr" or "padded", found \'dense\''):
        m.batches(10, layout="dense")
    with pytest.raises(TypeError, match="unexpected keyword argument 'pad'"):
        m.batches(10, pad=0)


@pytest.mark.usefixtures("pair")
def test_batch_with_a_damaged_column_index_raises(tmp_path):
    path = tmp_path / "m" / "col_indices.memmap"
    numbers = np.fromfile(path, np.int32)
    numbers[50] = 30
    numbers.tofile(path)
    assert not tenfold.verify(tmp_path / "m").ok
    damaged = SparseMatrix(tmp_path / "m")
    for layout in ("csr", "padded"):
        with pytest.raises(tenfold.CorruptFileError, match="index of an entry: expected 0 to 29"):
            list(damaged.batches(10, layout=layout))
        with pytest.raises(tenfold.CorruptFileError, match="expected 0 to 29, found 30"):
            damaged.rows(list(range(103)), layout)
    for call in (damaged.to_torch, damaged.to_scipy, lambda: tenfold.load(tmp_path / "m")):
        with pytest.raises(tenfold.CorruptFileError, match="col_indices: expected 0 to 29"):
            call()


@pytest.mark.usefixtures("pair")
def test_batches_refuse_a_first_end_offset_that_is_not_0(tmp_path):
    path = tmp_path / "m" / "crow_indices.memmap"
    ends = np.fromfile(path, np.int32)
    ends[0] = 1
    ends.tofile(path)
    with pytest.raises(
        tenfold.CorruptFileError, match="crow_indices: expected 0 as the first offset, found 1"
    ):
        SparseMatrix(tmp_path / "m").batches(10)


def test_batch_with_an_entry_in_a_matrix_without_columns_raises(tmp_path):
    SparseMatrix.from_coo([0], [0], [1.0], (1, 1), path=tmp_path / "m")
    file = tmp_path / "m" / "%notes.json"
    file.write_text(file.read_text().replace("[1, 1]", "[1, 0]"))
    with pytest.raises(tenfold.CorruptFileError, match="expected none in an axis of length 0"):
        next(iter(SparseMatrix(tmp_path / "m").batches(1)))


def test_will_need_accepts_row_indices(pair):
    _, m = pair
    m.will_need([3, 1, -1])
    m.will_need(torch.arange(5))
    with pytest.raises(IndexError):
        m.will_need([103])


def test_recommender_example_beats_the_mean_ratings(tmp_path):
    command = [sys.executable, EXAMPLE, tmp_path, "--users", 1000, "--films", 300]
    command += ["--ratings", 60_000, "--epochs", 8]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    usual, error = map(float, re.findall(r"error of .* (\d\.\d+) stars", done.stdout))
    assert error < 0.85 * usual
