"""Large uncompressed writes are refused before they start if the disk has too little free space."""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tenfold

torch = pytest.importorskip("torch")

ROWS = 25_000
COLUMNS = 1_000
SIZE = ROWS * COLUMNS * 4  # 100 MB: does not fit on `small_disk`; save() checks the free space


@pytest.fixture(scope="module")
def large() -> torch.Tensor:
    return torch.zeros(ROWS, COLUMNS)


@contextlib.contextmanager
def refused(path: Path, needed: int = SIZE) -> Iterator[None]:
    """Expects an OSError that names `path`, the bytes needed and the bytes free."""
    with pytest.raises(OSError, match="no space left on device") as caught:
        yield
    error = caught.value
    assert error.errno == errno.ENOSPC
    assert error.filename == str(path)
    numbers = re.search(r"expected (\d+) bytes free, found (\d+)", str(error))
    assert numbers, error
    assert needed <= int(numbers[1]) < needed + 2_000_000
    assert int(numbers[2]) < int(numbers[1])


def saved(large: torch.Tensor, name: str):
    return large if name.endswith(".npy") else {"w": large}


NAMES = ["folder", "m.safetensors", "m.safetensors.index.json", "m.tdz", "m.pt", "m.npz", "m.npy"]


@pytest.mark.parametrize("name", NAMES)
def test_save_without_enough_space_is_refused_before_it_writes(
    small_disk: Path, large: torch.Tensor, name: str
) -> None:
    with refused(small_disk / name):
        tenfold.save(saved(large, name), small_disk / name)
    assert list(small_disk.iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
def test_replacing_save_needs_space_in_addition_to_the_old_version(
    make_disk, large: torch.Tensor, name: str
) -> None:
    disk = make_disk(128)
    tenfold.save(saved(large, name), disk / name, durable=False)
    with refused(disk / name):
        tenfold.save(saved(large, name), disk / name)
    (loaded,) = tenfold.open(disk / name).values()
    assert torch.equal(loaded, large)


def test_tree_that_fits_the_free_space_is_saved(make_disk, large: torch.Tensor) -> None:
    disk = make_disk(128)
    tenfold.save({"w": large}, disk / "a.safetensors", durable=False)
    (disk / "a.safetensors").unlink()
    tenfold.save({"w": large}, disk / "folder", durable=False)
    assert tenfold.verify(disk / "folder").ok


def test_tensors_that_share_storage_are_counted_once(make_disk, large: torch.Tensor) -> None:
    disk = make_disk(128)
    for name in ("folder", "m.safetensors", "m.pt"):
        path = tenfold.save({"a": large, "b": large}, disk / name, durable=False)
        assert tenfold.verify(path).ok
        if path.is_file():
            path.unlink()
        else:
            tenfold.save({}, path)


def test_sparse_files_are_not_counted(small_disk: Path, large: torch.Tensor) -> None:
    row = tenfold.TensorDict({"w": large[0]}, batch_size=[])
    made = row.expand(1_000_000).memmap_like(small_disk / "holes")
    assert made["w"].shape == (1_000_000, COLUMNS)


def test_writing_in_place_needs_no_space(make_disk, large: torch.Tensor) -> None:
    disk = make_disk(128)
    td = tenfold.TensorDict({"w": large}, batch_size=[ROWS])
    mapped = td.memmap(disk / "folder")
    mapped.update_({"w": large + 1})
    assert tenfold.load_memmap(disk / "folder")["w"][-1, -1] == 1


def test_convert_pack_and_unpack_are_refused_before_they_write(
    tmp_path: Path, small_disk: Path, large: torch.Tensor
) -> None:
    td = tenfold.TensorDict({"w": large}, batch_size=[ROWS])
    td.memmap(tmp_path / "folder")
    with refused(small_disk / "m.safetensors"):
        tenfold.convert(tmp_path / "folder", small_disk / "m.safetensors")
    with refused(small_disk / "m.safetensors", 2 * SIZE):
        tenfold.convert(tmp_path / "folder", small_disk / "m.safetensors", dtype=torch.float64)
    with refused(small_disk / "m.tdz"):
        tenfold.pack_memmap(tmp_path / "folder", small_disk / "m.tdz")
    tenfold.pack_memmap(tmp_path / "folder", tmp_path / "m.tdz")
    with refused(small_disk / "unpacked"):
        tenfold.unpack_memmap(tmp_path / "m.tdz", small_disk / "unpacked")
    assert list(small_disk.iterdir()) == []


def test_compressed_writes_are_not_checked_in_advance(
    tmp_path: Path, small_disk: Path, large: torch.Tensor
) -> None:
    tenfold.TensorDict({"w": large}, batch_size=[ROWS]).memmap(tmp_path / "folder")
    tenfold.pack_memmap(tmp_path / "folder", small_disk / "m.tdz", compression="deflate")
    assert tenfold.verify(small_disk / "m.tdz").ok


def test_datasets_are_refused_before_their_rows_are_written(
    tmp_path: Path, small_disk: Path, large: torch.Tensor
) -> None:
    path = small_disk / "rows"
    with refused(path):
        tenfold.create(path, {"x": ("float32", (COLUMNS,))}, num_rows=ROWS)
    with refused(path):
        tenfold.ingest({"x": large}, path)
    with refused(path):
        tenfold.ingest(tenfold.TensorDict({"x": large}, batch_size=[ROWS]), path)
    pa = pytest.importorskip("pyarrow")
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(large.numpy().ravel()), COLUMNS)
    with refused(path):
        tenfold.ingest(pa.table({"x": fixed}), path)
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"x": fixed}), tmp_path / "x.parquet")
    with refused(path):
        tenfold.ingest(tmp_path / "x.parquet", path)
    source = tenfold.ingest({"x": large, "id": torch.arange(ROWS)}, tmp_path / "source")
    with refused(path, SIZE + ROWS * 8):
        tenfold.ingest(source, path)
    with refused(path, SIZE + ROWS * 8):
        tenfold.MappedDict.build((source, "id"), path)
    assert list(small_disk.iterdir()) == []


def test_appends_are_refused_before_they_write(small_disk: Path, large: torch.Tensor) -> None:
    with tenfold.create(small_disk / "rows", {"x": ("float32", (COLUMNS,))}) as ds:
        ds.append({"x": large[:10]})
        with refused(small_disk / "rows"):
            ds.append({"x": large})
        assert ds.append({"x": large[:10]}) == 20
    assert tenfold.verify(small_disk / "rows").ok
    tenfold.TensorDict({"w": large[:10]}, batch_size=[10]).memmap(small_disk / "folder")
    with refused(small_disk / "folder"):
        rows = tenfold.TensorDict({"w": large}, batch_size=[ROWS])
        tenfold.append_memmap(small_disk / "folder", rows)
    assert tenfold.load_memmap(small_disk / "folder").batch_size == torch.Size([10])


def test_compact_is_refused_before_it_writes(
    tmp_path: Path, make_disk, large: torch.Tensor
) -> None:
    source = tenfold.ingest({"x": large, "id": torch.arange(ROWS)}, tmp_path / "source")
    path = make_disk(160) / "words"
    tenfold.MappedDict.build((source, "id"), path)
    with tenfold.MappedDict(path, "r+") as words:
        words[3] = {"x": large[0] + 1}
        with refused(path, SIZE + ROWS * 8):
            words.compact()
        assert words[3]["x"][0] == 1
    assert tenfold.verify(path).ok


def test_sparse_matrices_are_refused_before_they_write(tmp_path: Path, small_disk: Path) -> None:
    ones = [1.0]
    with pytest.raises(OSError, match=r"no space left on device: expected \d+ bytes free"):
        tenfold.SparseMatrix.from_coo(
            [0], [0], ones, (2**41, 2**41), layout="csr", path=small_disk / "m"
        )
    made = tenfold.SparseMatrix.from_coo([0], [0], ones, (10_000_000, 3), layout="csr")
    with refused(small_disk / "m", 80_000_000):
        made.save(small_disk / "m")
    assert list(small_disk.iterdir()) == []
