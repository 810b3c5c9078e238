"""Rows of a csr matrix: cached batches, opening, and blocks of rows that are not cached."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from harness import Contender, Goal, Result, compare, drop_caches, load_raw, memory_note

import tenfold

ROWS, COLS, ROW_ENTRIES = 200_000, 100_000, 20
BATCH = 256
# The matrix for reads from the disk has long rows: a row is a cell, and a column is a gene.
CELLS, GENES, CELL_ENTRIES = 100_000, 30_000, 1_000
BLOCK_ROWS = 64
AHEAD = 4  # number of batches to prefetch


def _matrix(rows: int, cols: int, entries: int) -> scipy.sparse.csr_matrix:
    rng = np.random.default_rng(0)
    # One entry in each of `entries` equal parts of the row, so columns are sorted and unique.
    width = cols // entries
    indices = np.arange(entries, dtype=np.int32) * width
    indices = indices + rng.integers(0, width, (rows, entries), dtype=np.int32)
    ends = np.arange(0, rows * entries + 1, entries, dtype=np.int32)
    values = rng.random(rows * entries, dtype=np.float32)
    return scipy.sparse.csr_matrix((values, indices.reshape(-1), ends), shape=(rows, cols))


def matrix(work: Path) -> Path:
    path = work / "matrix"
    x = _matrix(ROWS, COLS, ROW_ENTRIES)
    tenfold.SparseMatrix.from_scipy(x).save(path, durable=False, progress=False)
    scipy.sparse.save_npz(work / "matrix.npz", x, compressed=False)
    for part in ("data", "indices", "indptr"):
        np.save(work / f"{part}.npy", getattr(x, part))
    return path


def _mapped(work: Path) -> scipy.sparse.csr_matrix:
    """Returns a scipy matrix whose arrays are memory-mapped .npy files."""
    parts = [np.load(work / f"{part}.npy", mmap_mode="r") for part in ("data", "indices", "indptr")]
    return scipy.sparse.csr_matrix(tuple(parts), shape=(ROWS, COLS))


def _csr_of_scipy(x: scipy.sparse.csr_matrix, rows: np.ndarray) -> torch.Tensor:
    taken = x[rows]
    return torch.sparse_csr_tensor(
        torch.from_numpy(taken.indptr),
        torch.from_numpy(taken.indices),
        torch.from_numpy(taken.data),
        taken.shape,
        check_invariants=False,
    )


def _padded_of_scipy(x: scipy.sparse.csr_matrix, rows: np.ndarray) -> tuple[torch.Tensor, ...]:
    taken = x[rows]
    lengths = np.diff(taken.indptr)
    there = np.arange(lengths.max()) < lengths[:, None]
    indices = np.zeros(there.shape, np.int32)
    values = np.zeros(there.shape, np.float32)
    indices[there], values[there] = taken.indices, taken.data
    return torch.from_numpy(indices), torch.from_numpy(values), torch.from_numpy(lengths)


def sparse_rows(work: Path, repetitions: int) -> Result:
    m, x = tenfold.SparseMatrix(matrix(work)), _mapped(work)
    m.to_torch().values().sum()
    x.sum()
    rng = np.random.default_rng(1)
    batches = [rng.integers(0, ROWS, BATCH) for _ in range(400)]
    few = batches[:8]
    return compare(
        "sparse_rows",
        "Batches of 256 shuffled rows of a csr matrix of 200 k x 100 k, 20 entries a row, in the "
        "page cache: 400 batches as csr and as padded, 8 as dense, each of which is summed",
        {
            "csr": Contender(lambda: [m.rows(rows, "csr") for rows in batches]),
            "scipy, csr": Contender(lambda: [_csr_of_scipy(x, rows) for rows in batches]),
            "padded": Contender(lambda: [m.rows(rows, "padded") for rows in batches]),
            "scipy, padded": Contender(lambda: [_padded_of_scipy(x, rows) for rows in batches]),
            "dense": Contender(lambda: [m.rows(rows).sum() for rows in few]),
            "scipy, dense": Contender(
                lambda: [torch.from_numpy(x[rows].toarray()).sum() for rows in few]
            ),
        },
        [
            Goal("csr", "scipy, csr", 1.4),
            Goal("csr", at_most_seconds=400 * BATCH / 10e6, text="10 M rows/s as csr"),
            Goal("padded", "scipy, padded", 2.0),
            Goal("dense", "scipy, dense", 2.0),
        ],
        repetitions,
    )


def sparse_open(work: Path, repetitions: int) -> Result:
    path = matrix(work)
    result = compare(
        "sparse_open",
        "Open the csr matrix of 200 k x 100 k",
        {
            "SparseMatrix": Contender(lambda: tenfold.SparseMatrix(path)),
            "scipy over mapped .npy": Contender(lambda: _mapped(work)),
            "scipy.load_npz": Contender(lambda: scipy.sparse.load_npz(work / "matrix.npz")),
        },
        [
            Goal("SparseMatrix", "scipy.load_npz", 20),
            Goal("SparseMatrix", at_most_seconds=0.5e-3, text="open"),
        ],
        repetitions,
    )
    opening = "kept = tenfold.SparseMatrix(sys.argv[1])"
    once = "import tenfold; tenfold.SparseMatrix(sys.argv[1])"
    result.notes.append(memory_note("Memory of opening it", 1, once, opening, path))
    return result


def sparse_blocks_cold(work: Path, repetitions: int) -> Result | None:
    if not drop_caches():
        print("sparse_blocks_cold is left out: dropping the page cache needs root")
        return None
    path = work / "cells"
    x = _matrix(CELLS, GENES, CELL_ENTRIES)
    tenfold.SparseMatrix.from_scipy(x).save(path, progress=False)
    del x
    raw = load_raw()
    files = [path / "col_indices.memmap", path / "values.memmap"]
    order = tenfold.permutation(CELLS // BLOCK_ROWS // 4 * 4, 0, 0)[:]
    rows = (order[:, None] * BLOCK_ROWS + torch.arange(BLOCK_ROWS)).reshape(-1, 4 * BLOCK_ROWS)
    batches = list(rows.unbind())

    def in_blocks() -> None:
        m = tenfold.SparseMatrix(path)
        for coming in batches[1:AHEAD]:
            m.will_need(coming)
        for i, batch in enumerate(batches):
            m.will_need(batches[min(i + AHEAD, len(batches) - 1)])
            m.rows(batch, "csr")

    def bare_blocks() -> None:
        size = BLOCK_ROWS * CELL_ENTRIES * 4
        descriptors = [os.open(file, os.O_RDONLY) for file in files]

        def read(block: int) -> None:
            for descriptor in descriptors:
                os.pread(descriptor, size, block * size)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(read, order.tolist()))
        for descriptor in descriptors:
            os.close(descriptor)

    return compare(
        "sparse_blocks_cold",
        "Rows of a csr matrix of 100 k x 30 k, 1,000 entries a row (800 MB), not cached, in "
        "shuffled blocks of 64 rows, 4 blocks a batch",
        {
            "SparseMatrix, csr batches": Contender(in_blocks, drop_caches),
            "the bare reads of these blocks, 4 threads": Contender(bare_blocks, drop_caches),
            "bare sequential reads of both files": Contender(
                lambda: [raw.raw_read_file(str(file).encode(), 2) for file in files],
                drop_caches,
            ),
        },
        [
            Goal("SparseMatrix, csr batches", "the bare reads of these blocks, 4 threads", 0.8),
            Goal("SparseMatrix, csr batches", "bare sequential reads of both files", 0.8),
        ],
        min(repetitions, 3),
    )


ALL = [sparse_rows, sparse_open, sparse_blocks_cold]
