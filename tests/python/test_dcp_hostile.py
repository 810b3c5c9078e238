"""Metadata of torch.distributed.checkpoint that contradicts itself: clear errors."""

from __future__ import annotations

import argparse
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tenfold

torch = pytest.importorskip("torch")
checkpoint = pytest.importorskip("torch.distributed.checkpoint")
pytestmark = pytest.mark.filterwarnings("ignore")

OTHER = argparse.Namespace(x=1)


def index(metadata: Any, name: str) -> Any:
    return next(key for key in metadata.storage_data if key.fqn == name)


def info(metadata: Any, name: str, **values: Any) -> None:
    """Changes where an entry is stored."""
    for key, value in values.items():
        setattr(metadata.storage_data[index(metadata, name)], key, value)


def entry(metadata: Any, **values: Any) -> None:
    """Changes the description of the tensor."""
    for key, value in values.items():
        setattr(metadata.state_dict_metadata["w"], key, value)


def chunk(metadata: Any, **values: Any) -> None:
    for key, value in values.items():
        setattr(metadata.state_dict_metadata["w"].chunks[0], key, value)


def properties(metadata: Any, **values: Any) -> None:
    for key, value in values.items():
        setattr(metadata.state_dict_metadata["w"].properties, key, value)


CASES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no metadata": (
        lambda m: OTHER,
        'not the metadata of torch.distributed.checkpoint: expected an object of "Metadata"',
    ),
    "no storage": (lambda m: delattr(m, "storage_data"), 'expected the attribute "storage_data"'),
    "no entries": (
        lambda m: delattr(m, "state_dict_metadata"),
        'expected the attribute "state_dict_metadata"',
    ),
    "storage by name": (
        lambda m: setattr(m, "storage_data", {"w": m.storage_data[index(m, "w")]}),
        'storage_data: expected keys of "MetadataIndex"',
    ),
    "another writer": (
        lambda m: m.storage_data.update({index(m, "w"): OTHER}),
        'stored by another writer: expected an object of "_StorageInfo"',
    ),
    "a path that leads away": (
        lambda m: info(m, "w", relative_path="../w"),
        'relative_path: expected the name of a file in the folder, found "../w"',
    ),
    "an extension": (
        lambda m: info(m, "w", transform_descriptors=["odd/1"]),
        'stored through an extension: expected plain bytes or "stream.zstd/1", found "odd/1"',
    ),
    "a negative offset": (lambda m: info(m, "w", offset=-1), "offset"),
    "a short item": (
        lambda m: info(m, "w", length=3),
        "it does not fit its item: expected at least 24 bytes, found 3",
    ),
    "a compressed item that is too short": (
        lambda m: (
            entry(m, size=torch.Size([2**20, 2**20])),
            chunk(m, sizes=torch.Size([2**20, 2**20])),
            info(m, "w", length=1, transform_descriptors=["stream.zstd/1"]),
        ),
        "it does not fit its item: expected at least .* compressed bytes, found 1",
    ),
    "stored nowhere": (
        lambda m: m.storage_data.pop(index(m, "w")),
        "it is stored nowhere: expected an entry of storage_data, found none",
    ),
    "another kind of entry": (
        lambda m: m.state_dict_metadata.update(w=OTHER),
        "neither tensor nor object: expected one of",
    ),
    "another kind of chunk": (
        lambda m: entry(m, chunks=[OTHER]),
        'chunks: expected objects of "ChunkStorageMetadata"',
    ),
    "chunks that are no list": (lambda m: entry(m, chunks=5), "chunks: expected a list"),
    "a size that overflows": (
        lambda m: entry(m, size=torch.Size([2**40, 2**40])),
        "size: too large: expected a size of at most 63 bits",
    ),
    "a size of text": (lambda m: entry(m, size="x"), "size"),
    "no dtype": (
        lambda m: properties(m, dtype="x"),
        "the dtype cannot be read: expected one of torch's",
    ),
    "no properties": (
        lambda m: entry(m, properties=OTHER),
        'properties: expected an object of "TensorProperties"',
    ),
    "no key": (lambda m: setattr(m, "planner_data", {"w": ()}), "planner_data: expected 1 to"),
    "a key of bytes": (lambda m: setattr(m, "planner_data", {"w": (b"",)}), "planner_data"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    state = {"w": torch.arange(6.0).reshape(2, 3), "o": {"n": 5}}
    checkpoint.save(state, checkpoint_id=tmp_path / "dcp", no_dist=True)
    return tmp_path / "dcp"


def changed(path: Path, change: Callable[[Any], Any]) -> None:
    metadata = pickle.loads(path.read_bytes())
    made = change(metadata)
    path.write_bytes(pickle.dumps(made if made is OTHER else metadata))


@pytest.mark.parametrize("name", CASES)
def test_metadata_that_contradicts_itself_is_refused_by_name(folder: Path, name: str) -> None:
    change, words = CASES[name]
    changed(folder / ".metadata", change)
    with pytest.raises((tenfold.CorruptFileError, tenfold.UnsupportedError), match=words) as found:
        tenfold.load(folder)
    assert str(found.value).startswith(str(folder))


@pytest.mark.parametrize(
    "change",
    [
        lambda m: entry(m, size=torch.Size([3, 2])),
        lambda m: properties(m, dtype=torch.float64),
        lambda m: m.state_dict_metadata.update(w=m.state_dict_metadata["o.n"]),
        lambda m: m.planner_data.update({"w": ("other", "w")}),
    ],
)
def test_ranks_that_disagree_are_refused(folder: Path, change: Callable[[Any], Any]) -> None:
    (folder / ".metadata").rename(folder / "__0.metadata")
    assert tenfold.load(folder)["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    shutil.copy(folder / "__0.metadata", folder / "__1.metadata")
    assert tenfold.load(folder)["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    changed(folder / "__1.metadata", change)
    with pytest.raises(tenfold.CorruptFileError):
        tenfold.load(folder)
