"""Ray Data on two workers of this machine, offline."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed")

import numpy as np  # noqa: E402

import tenfold  # noqa: E402
import tenfold.ray  # noqa: E402
from forks import exit_status, forked  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ROWS = 1000


@pytest.fixture(scope="module", autouse=True)
def workers():
    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=256 << 20,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}},
    )
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True  # Ray's default is the order of completion
    yield
    ray.shutdown()


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    columns = {
        "x": np.arange(3 * ROWS, dtype=np.float32).reshape(ROWS, 3),
        "id": np.arange(ROWS),
        "name": [f"row {i}" for i in range(ROWS)],
    }
    tenfold.ingest(columns, tmp_path / "rows")
    return tmp_path / "rows"


def test_reads_all_rows_in_order(rows) -> None:
    ds = tenfold.ray.read(rows, override_num_blocks=4)
    assert ds.count() == ROWS
    batches = list(ds.iter_batches(batch_size=ROWS, batch_format="numpy"))
    assert batches[0]["id"].tolist() == list(range(ROWS))
    assert batches[0]["x"].shape == (ROWS, 3)
    assert batches[0]["x"].dtype == np.float32
    assert batches[0]["name"].tolist() == [f"row {i}" for i in range(ROWS)]


def test_read_tasks_report_their_row_counts_and_sizes(rows) -> None:
    source = tenfold.ray.TenfoldDatasource(rows)
    tasks = source.get_read_tasks(7)
    counts = [task.metadata.num_rows for task in tasks]
    assert sum(counts) == ROWS
    assert len(counts) >= 7
    (table,) = tasks[-1]()
    assert table.num_rows == counts[-1]
    names = sum(len(f"row {i}") for i in range(ROWS))
    assert source.estimate_inmemory_data_size() == ROWS * (12 + 8 + 8) + names


def test_read_tasks_have_at_most_65536_rows_and_a_block_of_ray(tmp_path) -> None:
    tenfold.ingest({"x": np.arange(140_000)}, tmp_path / "many")
    source = tenfold.ray.TenfoldDatasource(tmp_path / "many")

    def counts(**context: Any) -> list[int]:
        tasks = source.get_read_tasks(1, **context)
        return [task.metadata.num_rows for task in tasks]

    assert counts() == [65_536, 65_536, 8_928]
    small = SimpleNamespace(target_max_block_size=80_000)  # bytes
    assert counts(data_context=small) == [10_000] * 14


def test_reads_only_the_requested_columns(rows) -> None:
    ds = tenfold.ray.read(rows, columns=["id"])
    assert ds.columns() == ["id"]
    assert ds.sum("id") == sum(range(ROWS))
    assert tenfold.ray.read(rows).select_columns(["id", "name"]).columns() == ["id", "name"]
    with pytest.raises(KeyError, match="no column"):
        tenfold.ray.read(rows, columns=["idd"])


def test_parts_are_written_in_the_order_of_the_blocks(rows, tmp_path) -> None:
    ds = tenfold.ray.read(rows, override_num_blocks=4)
    written = tenfold.ray.write(ds, tmp_path / "out")
    assert tenfold.probe(tmp_path / "out") == "parts"
    assert written["id"].tolist() == list(range(ROWS))
    assert tuple(written["x"].shape) == (ROWS, 3)
    assert written["name"][7] == "row 7"
    assert tenfold.verify(tmp_path / "out").ok
    more = tenfold.ray.write(tenfold.ray.read(rows).limit(10), tmp_path / "out")
    assert len(more) == ROWS + 10
    assert [p for p in os.listdir(tmp_path / "out") if "staging" in p] == []


def test_column_nullable_in_one_part_is_nullable_in_all(tmp_path) -> None:
    items = [{"i": i, "y": None if i == 90 else float(i)} for i in range(100)]
    ds = ray.data.from_items(items, override_num_blocks=4)
    written = tenfold.ray.write(ds, tmp_path / "out")
    assert written.schema["y"].nullable
    missing = [
        i
        for i, there in zip(written["i"].tolist(), written["y.valid"].tolist(), strict=True)
        if not there
    ]
    assert missing == [90]


def test_null_in_a_column_that_is_not_nullable_in_the_data_set_raises(tmp_path) -> None:
    import pyarrow as pa

    path = tmp_path / "out"
    tenfold.ingest({"i": [1], "r": [{"y": 1.0}]}, path / "first")
    tenfold.commit_parts(path)
    sink = tenfold.ray.TenfoldDatasink(path)
    sink.on_write_start()
    tables = [pa.table({"i": [1], "r": [{"y": y}]}) for y in (2.0, None)]
    written = [
        sink.write([table], SimpleNamespace(task_idx=i, kwargs={}))
        for i, table in enumerate(tables)
    ]
    with pytest.raises(ValueError, match=r'column "r\.y": expected .* float64 of the data set'):
        sink.on_write_complete(SimpleNamespace(write_returns=written))
    assert len(tenfold.commit_parts(path)) == 1
    assert [name for name in os.listdir(path) if "ray-" in name] == []


def test_failed_write_task_leaves_no_data(rows, tmp_path) -> None:
    def fail(batch):
        if 500 in batch["id"]:
            raise ValueError("row 500 is refused")
        return batch

    ds = tenfold.ray.read(rows, override_num_blocks=4).map_batches(fail)
    with pytest.raises(Exception, match="row 500 is refused"):
        tenfold.ray.write(ds, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("existed", [True, False])
def test_a_write_without_rows_leaves_a_folder_only_if_it_existed(tmp_path, existed) -> None:
    path = tmp_path / "out"
    if existed:
        path.mkdir()
    with pytest.raises(ValueError, match="expected rows, found none: no data set was created"):
        tenfold.ray.write(ray.data.range(8).filter(lambda row: False), path)
    assert path.exists() == existed
    assert not existed or not list(path.iterdir())


def test_only_parts_of_tasks_that_returned_are_committed(rows, tmp_path) -> None:
    """A repeated task leaves a second part, which the manifest does not list."""
    import types

    from ray.data.block import BlockAccessor

    sink = tenfold.ray.TenfoldDatasink(tmp_path / "out")
    sink.on_write_start()
    block = next(iter(tenfold.ray.TenfoldDatasource(rows).get_read_tasks(4)[0]()))
    context = types.SimpleNamespace(task_idx=0, kwargs={})
    sink.write([block], context)  # its result is lost
    kept = sink.write([block], context)
    empty = sink.write([BlockAccessor.for_block(block).slice(0, 0)], context)
    assert empty is None
    sink.on_write_complete(types.SimpleNamespace(write_returns=[kept, None]))
    assert len(tenfold.Dataset(tmp_path / "out")) == block.num_rows
    manifest = json.loads((tmp_path / "out" / "%parts.json").read_text())
    assert len(manifest["parts"]) == 1


def test_parts_of_tasks_with_more_than_six_digits_are_committed_in_order(tmp_path) -> None:
    import pyarrow as pa

    sink = tenfold.ray.TenfoldDatasink(tmp_path / "out")
    sink.on_write_start()
    tasks = [1_000_001, 1_000_000, 999_999]
    written = [
        sink.write([pa.table({"i": [task]})], SimpleNamespace(task_idx=task, kwargs={}))
        for task in tasks
    ]
    sink.on_write_complete(SimpleNamespace(write_returns=written))
    assert tenfold.Dataset(tmp_path / "out")["i"].tolist() == sorted(tasks)


def test_the_next_write_removes_the_part_of_a_driver_killed_before_its_commit(
    rows, tmp_path, monkeypatch
) -> None:
    path = tmp_path / "out"
    block = next(iter(tenfold.ray.TenfoldDatasource(rows).get_read_tasks(4)[0]()))
    tenfold.ray.write(ray.data.from_arrow(block), path)

    def drive() -> None:
        monkeypatch.setattr(
            tenfold.ray, "commit_parts", lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        )
        sink = tenfold.ray.TenfoldDatasink(path)
        sink.on_write_start()
        written = sink.write([block], SimpleNamespace(task_idx=0, kwargs={}))
        sink.on_write_complete(SimpleNamespace(write_returns=[written]))

    assert exit_status(forked(drive)) == -signal.SIGKILL
    assert len([p for p in os.listdir(path) if p.startswith("ray-")]) == 2
    ds = tenfold.ray.write(ray.data.from_arrow(block), path)
    assert len(ds) == 2 * block.num_rows
    assert len([p for p in os.listdir(path) if "ray-" in p]) == 2


def test_next_commit_does_not_add_the_parts_of_a_failed_commit(rows, tmp_path) -> None:
    path = tmp_path / "out"
    path.mkdir()
    block = next(iter(tenfold.ray.TenfoldDatasource(rows).get_read_tasks(4)[0]()))
    sink = tenfold.ray.TenfoldDatasink(path)
    sink.on_write_start()
    written = sink.write([block], SimpleNamespace(task_idx=0, kwargs={}))
    lease = tenfold._core.Lease.acquire(path, ".parts.tenfold-lease")  # of another writer
    with pytest.raises(OSError, match="another writer") as raised:
        sink.on_write_complete(SimpleNamespace(write_returns=[written]))
    sink.on_write_failed(raised.value)  # Ray calls it after on_write_complete raised
    lease.release()
    tenfold.ingest({"id": np.arange(3)}, path / "next")
    assert tenfold.commit_parts(path)["id"].tolist() == [0, 1, 2]
    assert [name for name in os.listdir(path) if "ray-" in name] == []


def test_existing_dataset_is_not_overwritten(rows, tmp_path) -> None:
    ds = tenfold.ray.read(rows)
    with pytest.raises(Exception, match="a data set in one folder"):
        tenfold.ray.write(ds, rows)
    assert len(tenfold.Dataset(rows)) == ROWS


def test_rows_are_appended_to_a_data_set_of_one_part(tmp_path) -> None:
    (tmp_path / "x.jsonl").write_text('{"id": 1000}\n')
    path = tmp_path / "parts"
    tenfold.ingest(tmp_path / "x.jsonl", path, schema={"id": "int64"}, part=(0, 1))
    tenfold.commit_parts(path)
    ds = tenfold.ray.write(ray.data.range(3), path, schema={"id": "int64"})
    assert ds["id"].tolist() == [1000, 0, 1, 2]
