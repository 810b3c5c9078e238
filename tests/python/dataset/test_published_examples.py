"""The examples of two web pages about PyTorch and memory-mapped data, with classes of tenfold.

The pages are "How can PyTorch handle memory-mapped dictionaries or lists of dictionaries from
disk?" and "How can memmap arrays be used with PyTorch for gradient accumulation?". The training
loops are the same as on the pages. Classes of tenfold replace the data code of the pages: arrays
made from lists of dicts, a Dataset over np.memmap with transform, start and end, an IterableDataset
over a file of records, and a pool of processes that converts data.
"""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn, optim
from torch.utils.data import DataLoader

import tenfold

RECORDS = [{"feature1": i, "feature2": i / 2 + 0.5, "label": int(i % 3 == 0)} for i in range(100)]


def sample_of(item: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the features, float32 [2], and the label."""
    return torch.stack([item["feature1"].float(), item["feature2"].float()]), item["label"]


def assert_batches_are_the_records(loader: DataLoader, batch_size: int = 32) -> None:
    found = []
    for features_batch, labels_batch in loader:
        assert features_batch.dtype == torch.float32
        assert labels_batch.dtype == torch.int64
        assert len(features_batch) == len(labels_batch) <= batch_size
        found += [
            (*features, label)
            for features, label in zip(features_batch.tolist(), labels_batch.tolist(), strict=True)
        ]
    expected = [(r["feature1"], r["feature2"], r["label"]) for r in RECORDS]
    assert sorted(found) == sorted(expected)


# --- dictionaries and lists of dictionaries ---


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_reads_arrays_made_from_a_list_of_dicts(tmp_path: Path, workers: int) -> None:
    features = np.array([[item["feature1"], item["feature2"]] for item in RECORDS])
    labels = np.array([item["label"] for item in RECORDS])
    columns = {
        "features": torch.tensor(features, dtype=torch.float32),
        "labels": torch.tensor(labels, dtype=torch.int64),
    }
    path = tenfold.save(columns, tmp_path / "data", durable=False)

    dataset = tenfold.Dataset(path, transform=lambda row: (row["features"], row["labels"]))
    dataloader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=workers)
    assert_batches_are_the_records(dataloader)
    assert dataset[3][0].tolist() == features[3].tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_streams_records_from_a_file(tmp_path: Path, workers: int) -> None:
    with open(tmp_path / "data.jsonl", "w") as f:
        for item in RECORDS:
            f.write(json.dumps(item) + "\n")

    dataset = tenfold.IterableDataset(tmp_path / "data.jsonl", transform=sample_of)
    dataloader = DataLoader(dataset, batch_size=32, num_workers=workers)
    assert_batches_are_the_records(dataloader)


def process_chunk(chunk: tuple[Path, list[dict]]) -> Path:
    path, items = chunk
    columns = {
        "features": torch.tensor([[item["feature1"], item["feature2"]] for item in items]),
        "label": torch.tensor([item["label"] for item in items], dtype=torch.int64),
    }
    return tenfold.save(columns, path, durable=False)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_several_processes_convert_a_list_of_dicts(tmp_path: Path, method: str) -> None:
    count = 3
    size = len(RECORDS) // count
    chunks = [(tmp_path / f"part{i}", RECORDS[i : i + size]) for i in range(0, len(RECORDS), size)]
    with multiprocessing.get_context(method).Pool(processes=count) as pool:
        parts = pool.map(process_chunk, chunks)

    dataset = tenfold.concat([tenfold.Dataset(part) for part in parts])
    assert len(dataset) == len(RECORDS)
    dataset = dataset.map(lambda row: (row["features"], row["label"]))
    assert_batches_are_the_records(DataLoader(dataset, batch_size=32, shuffle=True))


def write_chunk(chunk: tuple[Path, int, list[dict]]) -> None:
    path, begin, items = chunk
    rows = tenfold.Dataset(path, mode="r+")
    rows[list(range(begin, begin + len(items)))] = {
        "features": torch.tensor([[item["feature1"], item["feature2"]] for item in items]),
        "label": torch.tensor([item["label"] for item in items], dtype=torch.int64),
    }


def test_several_processes_write_one_data_set(tmp_path: Path) -> None:
    columns = {"features": (torch.float32, (2,)), "label": torch.int64}
    path = tmp_path / "data"
    tenfold.create(path, columns, num_rows=len(RECORDS))
    chunks = [(path, i, RECORDS[i : i + 34]) for i in range(0, len(RECORDS), 34)]
    with multiprocessing.get_context("fork").Pool(processes=3) as pool:
        pool.map(write_chunk, chunks)

    dataset = tenfold.Dataset(path, transform=lambda row: (row["features"], row["label"]))
    assert_batches_are_the_records(DataLoader(dataset, batch_size=32, shuffle=True))


# --- memory-mapped arrays and gradient accumulation ---


class SimpleModel(nn.Module):
    def __init__(self, input_size: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(input_size, 64)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(64, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.relu(self.fc1(x)))


def mapped_rows(path: Path, rows: int, width: int) -> torch.Tensor:
    """Copies random float32 rows to a memory-mapped tensor at `path`, and returns the rows."""
    mock_data = np.random.default_rng(0).random((rows, width)).astype(np.float32)
    mem_map = tenfold.TensorDict({"data": torch.empty(rows, width)}, batch_size=[rows])
    mem_map = mem_map.memmap_like(path)
    mem_map["data"].copy_(torch.from_numpy(mock_data))
    return torch.from_numpy(mock_data)


def test_an_array_is_loaded_row_by_row_and_gradients_accumulate(tmp_path: Path) -> None:
    mock_data = mapped_rows(tmp_path / "mock_data", 1000, 10)

    dataset = tenfold.Dataset(tmp_path / "mock_data", transform=lambda row: row["data"])
    dataloader = DataLoader(dataset, batch_size=32, shuffle=True)
    model = torch.nn.Linear(10, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    criterion = torch.nn.MSELoss()
    accumulation_steps = 4
    steps, rows = 0, []
    for batch_idx, data in enumerate(dataloader):
        rows.append(data)
        output = model(data)
        loss = criterion(output, torch.rand_like(output))
        loss = loss / accumulation_steps
        loss.backward()
        if (batch_idx + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
    assert steps == 8
    seen = torch.cat(rows)
    assert torch.equal(seen[seen[:, 0].argsort()], mock_data[mock_data[:, 0].argsort()])


def some_transformation(data: torch.Tensor) -> torch.Tensor:
    return data * 2 - 1


def transformed(row: dict) -> torch.Tensor:
    return some_transformation(row["data"])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_part_of_an_array_is_transformed(tmp_path: Path, workers: int) -> None:
    data = mapped_rows(tmp_path / "large_data", 1000, 20)

    start_index, end_index = 100, 600
    dataset = tenfold.Dataset(tmp_path / "large_data", transform=transformed)
    dataset = dataset.range(start_index, end_index)
    assert len(dataset) == end_index - start_index
    assert torch.equal(dataset[0], data[start_index] * 2 - 1)
    dataloader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=workers)
    model = SimpleModel(20)
    optimizer = optim.Adam(model.parameters(), lr=0.001)
    criterion = nn.MSELoss()
    accumulation_steps = 8
    model.train()
    rows = []
    for batch_idx, batch in enumerate(dataloader):
        rows.append(batch)
        target = torch.rand(batch.shape[0], 1)
        loss = criterion(model(batch), target) / accumulation_steps
        loss.backward()
        if (batch_idx + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
    seen, expected = torch.cat(rows), data[start_index:end_index] * 2 - 1
    assert torch.equal(seen[seen[:, 0].argsort()], expected[expected[:, 0].argsort()])


def test_batch_loader_accumulates_every_window(tmp_path: Path) -> None:
    mapped_rows(tmp_path / "large_data", 1000, 20)
    dataset = tenfold.Dataset(tmp_path / "large_data").range(0, 500)
    dataloader = tenfold.BatchLoader(
        dataset, 16, shuffle=True, transform=lambda batch: some_transformation(batch["data"])
    )
    model = SimpleModel(20)
    optimizer = optim.Adam(model.parameters(), lr=0.001)
    criterion = nn.MSELoss()
    epochs, rows = 3, 0
    for _ in range(epochs):
        for window in tenfold.accumulate(dataloader, steps=8):
            for batch, weight in window:
                target = torch.rand(batch.shape[0], 1)
                (criterion(model(batch), target) * weight).backward()
                rows += len(batch)
            optimizer.step()
            optimizer.zero_grad()
    assert rows == 3 * 500
