"""Saves and loads of one process, and functions that merge the plans of several ranks."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import pickle
import re
import shutil
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tenfold

torch = pytest.importorskip("torch")
dcp = pytest.importorskip("torch.distributed.checkpoint")
distributed = pytest.importorskip("tenfold.distributed")
SavePlanner = distributed.SavePlanner
StorageReader = distributed.StorageReader
StorageWriter = distributed.StorageWriter

from tenfold.distributed._planner import LoadPlanner  # noqa: E402
from tenfold.distributed._plans import (  # noqa: E402
    BoxesOfDTensors,
    Items,
    Kind,
    without_duplicates,
)
from tenfold.distributed._reader import _checks_of  # noqa: E402
from tenfold.distributed._tree import StoredTensor, flatten, merge, nest  # noqa: E402


def save(state: dict[str, Any], path: Path, layout: str = "plain", **options: Any) -> None:
    writer = StorageWriter(path, layout=layout, durable=False)
    dcp.save(state, storage_writer=writer, no_dist=True, **options)


def files_of(path: Path) -> set[str]:
    """Returns the name of a checkpoint file and, if it is an index, the names of its shards."""
    if path.suffix != ".json":
        return {path.name}
    return {path.name, *json.loads(path.read_text())["weight_map"].values()}


def files_in(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def failure(call: Any, *args: Any, **kwargs: Any) -> BaseException:
    """Returns the error of the only rank."""
    with pytest.raises(dcp.api.CheckpointException) as caught:
        call(*args, **kwargs)
    error: BaseException = caught.value.failures[0][0]
    return error


@pytest.mark.parametrize("name", ["m.safetensors", "m.safetensors.index.json", "m"])
def test_a_checkpoint_is_a_plain_tree(name: str, tmp_path: Path) -> None:
    state = {"model": {"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2)}, "step": 3}
    save(state, tmp_path / name)
    loaded = tenfold.load(tmp_path / name, verify=True)
    assert loaded["step"] == 3
    assert torch.equal(loaded["model"]["w"], state["model"]["w"])
    assert list(loaded["model"]) == ["w", "b"]


def test_flat_state_is_a_plain_safetensors_file(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    state = {"a.weight": torch.arange(6.0).reshape(2, 3), "a.bias": torch.ones(2)}
    save(state, tmp_path / "m.safetensors")
    loaded = safetensors.load_file(tmp_path / "m.safetensors")
    assert {key: value.tolist() for key, value in loaded.items()} == {
        key: value.tolist() for key, value in state.items()
    }


def test_shards_of_an_index_are_plain_safetensors_files(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    state = {"b": torch.arange(6.0).reshape(2, 3), "a": torch.ones(2)}
    path = tmp_path / "model.safetensors.index.json"
    distributed.save(state, path, shard_size=24, durable=False, no_dist=True)
    weight_map = json.loads(path.read_text())["weight_map"]
    assert weight_map == {
        "b": "model-00001-of-00002.safetensors",
        "a": "model-00002-of-00002.safetensors",
    }
    for name, file in weight_map.items():
        assert safetensors.load_file(tmp_path / file)[name].tolist() == state[name].tolist()
    assert repr(tenfold.load(path, verify=True)) == repr(state)
    # With the default shard size of 5 GB, there is one shard.
    distributed.save({"a": torch.zeros(2)}, path, durable=False, no_dist=True)
    names = {"model.safetensors.index.json", "model-00001-of-00001.safetensors"}
    assert {file.name for file in tmp_path.iterdir()} == names


def test_a_shard_size_needs_an_index(tmp_path: Path) -> None:
    for name, layout in [("m.safetensors", "plain"), ("m", "plain"), ("m", "shards")]:
        writer = StorageWriter(tmp_path / name, layout=layout, shard_size=10)
        error = failure(dcp.save, {"w": torch.ones(1)}, storage_writer=writer, no_dist=True)
        assert isinstance(error, ValueError)
        assert "only an index of shards has a shard size" in str(error)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match=r"^storage writer: shard_size: expected 1 or more"):
        StorageWriter(tmp_path / "m.safetensors.index.json", shard_size=0)


@pytest.mark.parametrize(
    "name", ["m.safetensors", "m.safetensors.index.json", "m", "m.pt", "m.npz", "m.tdz"]
)
def test_any_format_is_loaded(name: str, tmp_path: Path) -> None:
    state = {"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, dtype=torch.int64)}
    tenfold.save(state, tmp_path / name)
    into = {key: torch.zeros_like(value) for key, value in state.items()}
    into["w"] = torch.zeros(3, 2).t()  # with other strides
    dcp.load(into, storage_reader=StorageReader(tmp_path / name, verify=True), no_dist=True)
    assert torch.equal(into["w"], state["w"])
    assert torch.equal(into["b"], state["b"])


def test_load_converts_the_dtype_like_copy(tmp_path: Path) -> None:
    tenfold.save({"w": torch.arange(4.0)}, tmp_path / "m.safetensors")
    into = {"w": torch.zeros(4, dtype=torch.bfloat16)}
    distributed.load(into, tmp_path / "m.safetensors", no_dist=True)
    assert into["w"].tolist() == [0, 1, 2, 3]


def test_load_fills_lazily_conjugated_and_negated_tensors(tmp_path: Path) -> None:
    state = {"z": torch.tensor([1 + 2j, 3 - 4j]), "x": torch.tensor([5.0, -6.0])}
    save(state, tmp_path / "m.safetensors")
    zeros = torch.zeros(2, 2, dtype=torch.complex64).conj()
    into = {"z": zeros[0], "x": zeros[1].imag}
    assert into["z"].is_conj()
    assert into["x"].is_neg()
    dcp.load(into, storage_reader=StorageReader(tmp_path / "m.safetensors"), no_dist=True)
    assert into["z"].tolist() == state["z"].tolist()
    assert into["x"].tolist() == state["x"].tolist()


def test_values_are_stored_as_plain_data_and_never_unpickled(tmp_path: Path) -> None:
    values = {"i": 2**70, "f": float("inf"), "s": "ä", "n": None, "l": [1, [True]], "t": (1, 2)}
    state: dict[str, Any] = {"w": torch.ones(1), **values}
    save(state, tmp_path / "m.safetensors")  # torch's planner pickles the values
    assert {key: tenfold.load(tmp_path / "m.safetensors")[key] for key in values} == values
    into = {"w": torch.zeros(1), **dict.fromkeys(values, 0)}
    dcp.load(into, storage_reader=StorageReader(tmp_path / "m.safetensors"), no_dist=True)
    assert {key: into[key] for key in values} == values


class Pickling(dcp.DefaultSavePlanner):
    """A planner that overrides `transform_object`, so that the writer gets values as pickles."""

    def transform_object(self, write_item: Any, object: Any) -> Any:
        return super().transform_object(write_item, object)


def test_values_pickled_by_a_planner_are_decoded(tmp_path: Path) -> None:
    state = {"w": torch.ones(1), "names": ["a", 1, None]}
    save(state, tmp_path / "m.safetensors", planner=Pickling())
    assert tenfold.load(tmp_path / "m.safetensors")["names"] == ["a", 1, None]


class Evil:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("was_executed"),))


@pytest.mark.parametrize("planner", [None, SavePlanner(), Pickling()])
def test_an_unsupported_value_raises_an_error_with_its_name(
    planner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    state = {"w": torch.ones(1), "bad": Evil()}
    error = failure(save, state, tmp_path / "m.safetensors", planner=planner)
    assert isinstance(error, tenfold.UnsupportedError)
    assert 'key "bad": it cannot be stored: ' in str(error)
    assert list(tmp_path.iterdir()) == []


# The name and layout of each kind of checkpoint.
EVERY_KIND = [
    ("m.safetensors", "plain"),
    ("m.safetensors.index.json", "plain"),
    ("m", "plain"),
    ("m", "shards"),
    ("m", "torch"),
]


def unpickled(saved: Any) -> Any:
    assert saved.dtype == torch.uint8
    assert saved.dim() == 1
    return torch.load(io.BytesIO(saved.numpy().tobytes()), weights_only=False)


@pytest.mark.parametrize(("name", "layout"), EVERY_KIND)
@pytest.mark.parametrize("caching", [False, True])
def test_objects_are_stored_as_the_bytes_of_torch_save(
    name: str, layout: str, caching: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    state = {
        "w": torch.ones(2),
        "args": Namespace(lr=0.5, names=["a"]),
        "nested": {"step": 3, "objects": [Namespace(x=torch.arange(3))]},
        "evil": Evil(),
    }
    writer = StorageWriter(tmp_path / name, layout=layout, allow_opaque=True, durable=False)
    planner = SavePlanner(enable_plan_caching=caching)
    dcp.save(state, storage_writer=writer, planner=planner, no_dist=True)
    found = tenfold.load(tmp_path / name, verify=True)
    assert list(found) == list(state)
    assert unpickled(found["args"]) == state["args"]
    assert found["nested"]["step"] == 3
    (inner,) = unpickled(found["nested"]["objects"])
    assert inner.x.tolist() == [0, 1, 2]
    into = {"w": torch.zeros(2), "args": Namespace(), "nested": {"step": 0}, "evil": None}
    distributed.load(into, tmp_path / name, verify=True, no_dist=True)
    assert unpickled(into["args"]) == state["args"]
    assert into["evil"].tolist() == found["evil"].tolist()
    assert into["nested"] == {"step": 3}
    assert not (tmp_path / "was_executed").exists()


@pytest.mark.parametrize("name", ["m", "m.safetensors"])
def test_objects_and_tuples_under_keys_of_any_type_are_loaded(name: str, tmp_path: Path) -> None:
    saved = {"d": [{1: (torch.ones(2), 3), None: Namespace(x=1)}, torch.ones(1)], True: [()]}
    distributed.save(saved, tmp_path / name, no_dist=True, allow_opaque=True)
    found: dict[Any, Any] = {"d": [{1: None, None: None}, torch.zeros(1)], True: None}
    distributed.load(found, tmp_path / name, no_dist=True)
    assert found["d"][0][1][0].tolist() == [1, 1]
    assert found["d"][0][1][1] == 3
    assert found["d"][0][None].dtype == torch.uint8
    assert found[True] == [()]


@pytest.mark.parametrize("name", ["m.npy", "m.safetensors"])
def test_a_single_tensor_replaces_a_value_that_is_no_tensor(name: str, tmp_path: Path) -> None:
    tenfold.save(torch.arange(3, dtype=torch.uint8), tmp_path / name)
    found: dict[str, Any] = {"value": None}
    distributed.load(found, tmp_path / name, no_dist=True)
    assert found["value"].tolist() == [0, 1, 2]


def test_a_saved_tensor_replaces_no_int_and_no_tensor_of_another_size(tmp_path: Path) -> None:
    tenfold.save({"bytes": torch.ones(3, dtype=torch.uint8), "w": torch.ones(3)}, tmp_path / "m")
    error = failure(distributed.load, {"w": 1}, tmp_path / "m", no_dist=True)
    assert isinstance(error, ValueError)
    error = failure(
        distributed.load, {"bytes": torch.zeros(2, dtype=torch.uint8)}, tmp_path / "m", no_dist=True
    )
    assert "Size mismatch" in str(error)


@pytest.mark.parametrize("layout", ["plain", "shards", "torch"])
def test_a_container_that_contains_itself_is_named(tmp_path: Path, layout: str) -> None:
    flat: list[Any] = [1]
    flat.append(flat)
    inner: list[Any] = [[1]]
    inner[0].append(inner)
    pair: tuple[Any, ...] = ([],)
    pair[0].append(pair)
    keyed: dict[str, Any] = {}
    keyed["k"] = [keyed]
    tensors: list[Any] = [torch.ones(2)]
    tensors.append(tensors)
    deep: list[Any] = [1]
    for _ in range(2000):
        deep = [deep]
    for value, name in (
        (flat, "a.b.1"),
        (inner, "a.b.0.1"),
        (pair, "a.b.0.0"),
        ([torch.ones(2), flat], "a.b.1.1"),
        (keyed, "a.b.k.0"),
        (tensors, "a.b.1"),
        (deep, r"a\.b\.0.*"),
    ):
        state = {"a": {"b": value}, "w": torch.ones(2)}
        error = failure(distributed.save, state, tmp_path / "m", layout=layout, no_dist=True)
        assert type(error) is ValueError
        found = "nested too deeply" if value is deep else "it contains itself"
        assert re.search(rf"""["']{name}["']: {found}: expected""", str(error)), error
    distributed.save({"a": flat}, tmp_path / "m", layout=layout, no_dist=True, allow_opaque=True)
    assert tenfold.load(tmp_path / "m")["a"].dtype == torch.uint8


def test_allow_opaque_needs_our_planner(tmp_path: Path) -> None:
    writer = StorageWriter(tmp_path / "m", allow_opaque=True)
    error = failure(dcp.save, {"args": Namespace()}, storage_writer=writer, no_dist=True)
    assert isinstance(error, tenfold.UnsupportedError)
    assert str(error).startswith('key "args": it cannot be stored: ')
    assert "tenfold.distributed.SavePlanner saves" in str(error)
    assert "allow_opaque=True" in str(error)
    assert list(tmp_path.iterdir()) == []


def test_an_object_that_cannot_be_pickled_is_refused_by_name(tmp_path: Path) -> None:
    state = {"function": lambda: 0}
    error = failure(distributed.save, state, tmp_path / "m", allow_opaque=True, no_dist=True)
    assert isinstance(error, tenfold.UnsupportedError)
    assert "'function': it cannot be stored: expected an object that torch.save can pickle" in str(
        error
    )
    assert list(tmp_path.iterdir()) == []


def tuples() -> dict[str, Any]:
    shared = torch.arange(6.0).reshape(2, 3)
    return {
        "w": torch.arange(5, dtype=torch.int16),
        "pair": (torch.arange(3), 1),
        "model": {
            "deep": (shared.t(), [torch.tensor(2.5), {"x": torch.zeros(0, 4)}], shared),
            "bias": torch.ones(2),
        },
        "large": (torch.arange(5_000_000), None),  # several blocks of checksums
        "half": (torch.ones(3).bfloat16(), torch.tensor([True, False]), "text"),
        "step": 7,
    }


@pytest.mark.parametrize("planner", [None, Pickling()])
@pytest.mark.parametrize("name", ["m.safetensors", "m.safetensors.index.json", "m"])
def test_tuples_with_tensors_are_saved_with_torchs_planner(
    name: str, planner: Any, tmp_path: Path
) -> None:
    state = tuples()
    save(state, tmp_path / name, planner=planner)
    assert files_in(tmp_path) == files_of(tmp_path / name)
    assert tenfold.verify(tmp_path / name).ok
    assert repr(tenfold.load(tmp_path / name, verify=True)) == repr(state)
    assert tenfold.diff(tmp_path / name, state).same
    into: dict[str, Any] = {
        "w": torch.zeros(5, dtype=torch.int16),
        "pair": (),
        "model": {"deep": None, "bias": torch.zeros(2)},
        **dict.fromkeys(("large", "half", "step")),
    }
    reader = StorageReader(tmp_path / name, verify=True)
    dcp.load(into, storage_reader=reader, no_dist=True)
    assert repr(into) == repr(state)


def test_tensors_in_values_are_the_last_ones_of_the_file(tmp_path: Path) -> None:
    save(tuples(), tmp_path / "m.safetensors")
    header = json.loads(header_of(tmp_path / "m.safetensors"))
    del header["__metadata__"]
    names = sorted(header, key=lambda name: header[name]["data_offsets"])
    assert names[:2] == ["model.bias", "w"]  # as the safetensors package sorts them
    assert len(names) == 10


def test_tensors_in_values_have_further_shards_of_an_index(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    path = tmp_path / "m.safetensors.index.json"
    state = {"pair": (torch.arange(100), [torch.ones(2)]), "w": torch.ones(3), "step": 7}
    for _ in range(3):  # each save removes the shards of the previous one
        writer = StorageWriter(path, durable=False, shard_size=800, num_threads=2)
        dcp.save(state, storage_writer=writer, no_dist=True)
        assert files_in(tmp_path) == files_of(path)
        assert repr(tenfold.load(path, verify=True)) == repr(state)
    weight_map = json.loads(path.read_text())["weight_map"]
    assert len(set(weight_map.values())) == 3
    for name, file in weight_map.items():
        assert file.endswith("-values.safetensors") == name.startswith("pair")
        assert name in safetensors.load_file(tmp_path / file)
    save({"w": torch.zeros(3)}, path)
    assert files_in(tmp_path) == files_of(path)
    assert len(files_of(path)) == 2


@pytest.mark.parametrize("name", ["m.safetensors", "m.safetensors.index.json", "m"])
def test_a_flipped_bit_of_a_tensor_in_a_value_is_detected(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    save({"a": torch.ones(3), "z": (torch.arange(100), 1)}, path)
    file = next((tmp_path / name).glob("z/*.memmap"), path)
    if path.suffix == ".json":
        file = next(tmp_path.glob("*-values.safetensors"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.unlink()
    file.write_bytes(content)
    assert not tenfold.verify(path).ok
    loaded = {"a": torch.zeros(3)}
    dcp.load(loaded, storage_reader=StorageReader(path, verify=True), no_dist=True)
    reader = StorageReader(path, verify=True)
    error = failure(dcp.load, {"z": None}, storage_reader=reader, no_dist=True)
    assert isinstance(error, tenfold.CorruptFileError)


def test_tuples_with_tensors_of_our_planner_need_no_copy(tmp_path: Path) -> None:
    state = tuples()
    writer = NotingWriter(tmp_path / "m.safetensors", durable=False)
    dcp.save(state, storage_writer=writer, planner=SavePlanner(), no_dist=True)
    assert (tmp_path / "m.safetensors").stat().st_ino == writer.inode
    assert repr(tenfold.load(tmp_path / "m.safetensors", verify=True)) == repr(state)


class Point(NamedTuple):
    x: Any
    y: Any


def test_named_tuples_with_tensors_are_values_of_our_planner(tmp_path: Path) -> None:
    save({"p": Point(torch.ones(2), 3)}, tmp_path / "m", planner=SavePlanner())
    assert repr(tenfold.load(tmp_path / "m", verify=True)) == repr({"p": (torch.ones(2), 3)})


def test_values_of_unsupported_structure_are_stored_as_the_bytes_of_torch_save(
    tmp_path: Path,
) -> None:
    itself: list[Any] = [1]
    itself.append(itself)
    state = {"keys": Point({frozenset({2}): 1}, 3), "itself": Point(itself, 0)}
    distributed.save(state, tmp_path / "m", no_dist=True, allow_opaque=True)
    found = tenfold.load(tmp_path / "m")
    assert unpickled(found["keys"]) == state["keys"]
    (again, _) = unpickled(found["itself"])
    assert again[1] is again
    error = failure(distributed.save, state, tmp_path / "n", no_dist=True)
    assert 'key "keys.0": its keys cannot be stored' in str(error)


@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize(("name", "layout"), EVERY_KIND)
def test_objects_tuples_and_values_are_saved_together(
    name: str, layout: str, caching: bool, tmp_path: Path
) -> None:
    path = tmp_path / name
    for number in range(3):
        size = 10 ** (number // 2)  # save 1 can reuse the plan of save 0; save 2 has longer values
        state = {
            "w": torch.full((2,), number),
            "args": Namespace(text="x" * size, number=number),
            "pair": (torch.arange(3) + number, "text"),
            "point": Point(torch.ones(2) * number, 3),
            "mixed": Point(torch.ones(2), Namespace(number=number)),
            "long": "y" * 1000 * size,
        }
        writer = StorageWriter(path, layout=layout, allow_opaque=True, durable=False, num_threads=2)
        planner = SavePlanner(enable_plan_caching=caching)
        dcp.save(state, storage_writer=writer, planner=planner, no_dist=True)
        assert files_in(tmp_path) == files_of(path)
        assert tenfold.verify(path).ok
        found = tenfold.load(path, verify=True)
        assert list(found) == list(state)
        assert found["w"].tolist() == [number, number]
        assert unpickled(found["args"]) == state["args"]
        assert repr(found["pair"]) == repr(state["pair"])
        assert unpickled(found["mixed"]).y == Namespace(number=number)
        assert found["long"] == state["long"]
        if layout == "plain":  # a value that a tree can hold is not opaque
            assert repr(found["point"]) == repr(tuple(state["point"]))
        else:
            assert repr(unpickled(found["point"])) == repr(state["point"])
        into: dict[str, Any] = {"args": None, "point": None, "w": torch.zeros(2)}
        distributed.load(into, path, verify=True, no_dist=True)
        assert unpickled(into["args"]) == state["args"]
        assert into["w"].tolist() == [number, number]
        if layout == "plain":
            assert repr(into["point"]) == repr(found["point"])


def test_objects_have_exact_space_in_the_header(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    state = {"args": Namespace(text="x" * 10_000), "text": "y" * 10_000, "w": torch.ones(2)}
    writer = NotingWriter(path, allow_opaque=True, durable=False)
    dcp.save(state, storage_writer=writer, planner=SavePlanner(), no_dist=True)
    header = header_of(path)
    assert len(header) - len(header.rstrip(b" ")) < 64
    assert path.stat().st_ino == writer.inode  # the file was not copied
    assert unpickled(tenfold.load(path, verify=True)["args"]) == state["args"]


@pytest.mark.parametrize("layout", ["shards", "torch"])
def test_tuples_with_tensors_need_our_planner_in_other_layouts(layout: str, tmp_path: Path) -> None:
    error = failure(save, tuples(), tmp_path / "m", layout=layout)
    assert isinstance(error, tenfold.UnsupportedError)
    assert f"'pair': it cannot be stored in layout '{layout}'" in str(error)
    assert "SavePlanner" in str(error)
    save(tuples(), tmp_path / "m", layout=layout, planner=SavePlanner())
    assert repr(tenfold.load(tmp_path / "m", verify=True)) == repr(tuples())


def test_an_unsupported_tensor_in_a_value_is_refused_by_name(tmp_path: Path) -> None:
    save({"old": torch.ones(1)}, tmp_path / "m.safetensors")
    for tensor in (torch.ones(2, dtype=torch.complex128), torch.ones(2).to_sparse()):
        state = {"w": torch.ones(2), "pair": (1, tensor)}
        error = failure(save, state, tmp_path / "m.safetensors")
        assert isinstance(error, tenfold.UnsupportedError)
        assert '"pair.1"' in str(error)
        assert list(tenfold.load(tmp_path / "m.safetensors")) == ["old"]
    save({"pair": (1, torch.ones(2, dtype=torch.complex128))}, tmp_path / "m")
    assert tenfold.load(tmp_path / "m")["pair"][1].dtype == torch.complex128


def test_distributed_save_and_load_keep_containers(tmp_path: Path) -> None:
    state: dict[Any, Any] = {
        "o": OrderedDict(b=torch.ones(1), a=1),
        "by_number": {1: torch.ones(2), 0: "x"},
        "empty": [{}, [], ()],
        "nothing": {},
    }
    distributed.save(state, tmp_path / "m", no_dist=True)
    assert repr(tenfold.load(tmp_path / "m")) == repr(state)
    into = {"by_number": {1: torch.zeros(2), 0: ""}, "new": 1}
    distributed.load(into, tmp_path / "m", strict=False, no_dist=True)
    assert repr(into) == repr({"by_number": state["by_number"], "new": 1})


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_in_sequences_keep_the_positions_of_later_items(tmp_path: Path) -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    state = {"list": [nested, torch.arange(3.0)], "values": [nested, 5], "pair": (nested, 7)}
    tenfold.save(state, tmp_path / "m")
    reader = StorageReader(tmp_path / "m", verify=True)
    assert list(reader.read_metadata().state_dict_metadata) == ["list.1", "values.1", "pair"]
    into: dict[str, Any] = {"pair": None}
    dcp.load(into, storage_reader=reader, no_dist=True)
    assert repr(into) == repr({"pair": state["pair"]})
    error = failure(dcp.load, {"list": [torch.zeros(3)]}, storage_reader=reader, no_dist=True)
    assert "list.0" in str(error)


def test_our_planner_works_with_the_writer_of_torch(tmp_path: Path) -> None:
    state = {"w": torch.arange(4.0), "step": 7, "names": ["a"]}
    dcp.save(state, checkpoint_id=tmp_path / "theirs", planner=SavePlanner(), no_dist=True)
    into = {"w": torch.zeros(4), "step": 0, "names": []}
    dcp.load(into, checkpoint_id=tmp_path / "theirs", no_dist=True)
    assert torch.equal(into["w"], state["w"])
    assert (into["step"], into["names"]) == (7, ["a"])


def test_the_metadata_of_a_save_are_those_of_torch(tmp_path: Path) -> None:
    state = {"model": {"w": torch.ones(2, 3), "h": torch.ones(2).half()}, "x": [torch.ones(1), 2]}
    found = [
        dcp.save(state, storage_writer=StorageWriter(tmp_path / "m"), planner=planner, no_dist=True)
        for planner in (SavePlanner(), dcp.DefaultSavePlanner())
    ]
    assert found[0].state_dict_metadata == found[1].state_dict_metadata
    assert found[1].planner_data.items() <= found[0].planner_data.items()
    again = pickle.loads(pickle.dumps(found[0]))
    assert again.state_dict_metadata == found[1].state_dict_metadata


def test_a_cached_plan_is_not_used_for_another_dtype(tmp_path: Path) -> None:
    for dtype in (torch.float32, torch.float64, torch.int64):
        state = {"w": torch.ones(4, dtype=dtype)}
        save(state, tmp_path / "m", planner=SavePlanner(enable_plan_caching=True))
        assert tenfold.load(tmp_path / "m")["w"].dtype == dtype


class Doubling(SavePlanner):
    """A custom planner, which doubles all tensors and values."""

    def lookup_object(self, index: Any) -> Any:
        return 2 * super().lookup_object(index)


class Omitting(SavePlanner):
    """A custom planner, which omits entry "b"."""

    def create_local_plan(self) -> Any:
        plan = super().create_local_plan()
        kept = [item for item in plan.items if item.index.fqn != "b"]
        return dataclasses.replace(plan, items=kept)


def test_overrides_of_subclasses_of_our_planner_are_called(tmp_path: Path) -> None:
    state = {"a": torch.ones(2), "b": torch.ones(3), "n": 2}
    save(state, tmp_path / "double", planner=Doubling())
    assert repr(tenfold.load(tmp_path / "double")) == repr(
        {"a": 2 * state["a"], "b": 2 * state["b"], "n": 4}
    )
    save({"a": torch.ones(2), "b": torch.ones(3)}, tmp_path / "less", planner=Omitting())
    assert list(tenfold.load(tmp_path / "less")) == ["a"]


class Caching(dcp.DefaultSavePlanner):
    pass


def test_plans_that_another_planner_caches_are_refused_by_its_name(tmp_path: Path) -> None:
    planner = Caching(enable_plan_caching=True)
    error = failure(save, {"a": torch.ones(2)}, tmp_path / "m", planner=planner)
    assert "found Caching, whose cached plans" in str(error)
    assert list(tmp_path.iterdir()) == []


def test_states_of_objects_are_requested_in_the_order_of_their_keys(tmp_path: Path) -> None:
    requested = []

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def state_dict(self) -> dict[str, Any]:
            requested.append(self.name)
            return {"n": 1}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            requested.append(f"load {self.name}")

    state = {name: Named(name) for name in ("b", "c", "a")}
    distributed.save(state, tmp_path / "m", no_dist=True)
    assert requested == ["a", "b", "c"]
    assert list(tenfold.load(tmp_path / "m")) == ["b", "c", "a"]
    distributed.load(state, tmp_path / "m", no_dist=True)
    assert requested[3:] == ["a", "b", "c", "load a", "load b", "load c"]


def test_states_of_objects_are_saved_and_loaded_by_our_calls(tmp_path: Path) -> None:
    class Counter:
        def __init__(self, count: int) -> None:
            self.count = torch.tensor(count)

        def state_dict(self) -> dict[str, Any]:
            return {"count": self.count, "word": "x"}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.count = state["count"] + 0
            self.word = state["word"]

    model = torch.nn.Linear(2, 1)
    distributed.save({"model": model, "n": Counter(3)}, tmp_path / "m", no_dist=True)
    assert tenfold.load(tmp_path / "m")["n"]["count"] == 3
    state = {"model": torch.nn.Linear(2, 1), "n": Counter(0)}
    distributed.load(state, tmp_path / "m", no_dist=True)
    assert state["n"].count == 3
    assert state["n"].word == "x"
    assert torch.equal(state["model"].weight, model.weight)


@pytest.mark.parametrize("planner", [None, SavePlanner()])
def test_two_entries_with_one_name_are_refused_in_a_state(planner: Any, tmp_path: Path) -> None:
    state = {"a.b": torch.ones(1), "a": {"b": torch.zeros(1)}}
    error = failure(save, state, tmp_path / "m", planner=planner)
    assert isinstance(error, ValueError)
    assert "a.b" in str(error)
    if planner is not None:
        assert "expected one entry with this name, found two, with the keys ['a.b']" in str(error)
    assert list(tmp_path.iterdir()) == []


def test_two_entries_with_one_name_are_refused_in_a_checkpoint(tmp_path: Path) -> None:
    tenfold.save({"a.b": torch.ones(1), "a": {"b": torch.zeros(1)}}, tmp_path / "m")
    for state in ({"a.b": torch.full((1,), 5.0)}, {"a": {"b": torch.full((1,), 5.0)}}):
        error = failure(dcp.load, state, storage_reader=StorageReader(tmp_path / "m"), no_dist=True)
        assert "'a.b'" in str(error)
        assert "with the keys ['a.b'] and ['a', 'b']" in str(error)
        assert repr(state).count("5.") == 1  # it did not change


def test_tensors_that_need_grad_are_read_into(tmp_path: Path) -> None:
    distributed.save({"w": torch.arange(3.0)}, tmp_path / "m", no_dist=True)
    parameter = torch.nn.Parameter(torch.zeros(3))
    distributed.load({"w": parameter}, tmp_path / "m", no_dist=True)
    assert parameter.tolist() == [0, 1, 2]
    assert parameter.requires_grad
    distributed.save({"w": parameter}, tmp_path / "again", no_dist=True)
    assert tenfold.load(tmp_path / "again")["w"].tolist() == [0, 1, 2]


def test_values_longer_than_the_reserved_space_are_saved(tmp_path: Path) -> None:
    state = {"w": torch.arange(100_000.0), "text": "x" * 1_000_000}
    save(state, tmp_path / "m.safetensors")
    loaded = tenfold.load(tmp_path / "m.safetensors", verify=True)
    assert loaded["text"] == state["text"]
    assert torch.equal(loaded["w"], state["w"])
    assert [path.name for path in tmp_path.iterdir()] == ["m.safetensors"]


def header_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(int.from_bytes(file.read(8), "little"))


class NotingWriter(StorageWriter):
    """Records the inode of the staged file before it is published."""

    inode = 0

    def finish(self, metadata: Any, results: Any) -> None:
        (staged,) = [
            file
            for file in Path(self.path).parent.iterdir()
            if file.name.startswith(".") and file.is_file()
        ]
        self.inode = staged.stat().st_ino
        super().finish(metadata, results)


VALUES: dict[str, Any] = {
    "none": None,
    "long": 'x\n"ä' * 250_000,
    "pair": (1, ("x", 2.5)),
    "empty": [{}, (), []],
    "by_number": {1: {0.5: None}, (1, 2): b"bytes"},
    "large": 2**70,
    "ordered": OrderedDict(b=1, a={"deep": [True]}),
}


@pytest.mark.parametrize("is_caching", [False, True])
def test_values_of_our_planner_have_exact_space_in_the_header(
    is_caching: bool, tmp_path: Path
) -> None:
    for number in range(2):
        path = tmp_path / str(number) / "m.safetensors"
        path.parent.mkdir()
        state = {"exact": torch.arange(1000.0), **VALUES, "number": [10**50] * (1 + 999 * number)}
        writer = NotingWriter(path, durable=False)
        planner = SavePlanner(enable_plan_caching=is_caching)
        dcp.save(state, storage_writer=writer, planner=planner, no_dist=True)
        header = header_of(path)
        assert len(header) - len(header.rstrip(b" ")) < 64
        assert path.stat().st_ino == writer.inode  # the file was not copied
        assert [file.name for file in path.parent.iterdir()] == ["m.safetensors"]
        assert repr(tenfold.load(path, verify=True)) == repr(state)


def test_values_changed_by_a_subclass_of_our_planner_are_stored(
    tmp_path: Path,
) -> None:
    save({"text": "x" * 1000}, tmp_path / "m.safetensors", planner=Doubling())
    assert tenfold.load(tmp_path / "m.safetensors")["text"] == "x" * 2000


def test_a_header_beyond_the_limit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    # "\x01" takes seven bytes: JSON escapes it as \u0001, and the header, JSON too, escapes the \.
    state = {"w": torch.ones(1), "long": "\x01" * 15_000_000}
    path = tmp_path / "new" / "m.safetensors"
    error = failure(save, state, path, planner=SavePlanner())
    assert isinstance(error, tenfold.UnsupportedError)
    assert "the header is too long: expected at most 100000000 bytes" in str(error)
    assert not path.parent.exists()  # not even the folder was created


def test_a_header_beyond_the_limit_keeps_the_old_version(tmp_path: Path) -> None:
    save({"w": torch.zeros(1)}, tmp_path / "m.safetensors")
    # torch's planner, unlike tenfold's, passes values to the writer only when the ranks write.
    error = failure(
        save, {"w": torch.ones(1), "long": "\x01" * 15_000_000}, tmp_path / "m.safetensors"
    )
    assert isinstance(error, tenfold.UnsupportedError)
    assert "the header is too long" in str(error)
    assert tenfold.load(tmp_path / "m.safetensors", verify=True)["w"].tolist() == [0]
    save({"w": torch.ones(1)}, tmp_path / "m.safetensors")
    assert [file.name for file in tmp_path.iterdir()] == ["m.safetensors"]


def test_a_dtype_that_the_format_lacks_is_refused_by_name(tmp_path: Path) -> None:
    state = {"z": torch.ones(2, dtype=torch.complex128)}
    error = failure(save, state, tmp_path / "m.safetensors")
    assert isinstance(error, tenfold.UnsupportedError)
    assert '"z"' in str(error)
    save(state, tmp_path / "m")
    assert torch.equal(tenfold.load(tmp_path / "m")["z"], state["z"])


@pytest.mark.parametrize("layout", ["", "Plain", "distcp"])
def test_unknown_layouts_are_refused(layout: str, tmp_path: Path) -> None:
    names = "'plain', 'shards', 'torch'"
    with pytest.raises(ValueError, match=rf"^layout: expected one of {names}, found '{layout}'"):
        StorageWriter(tmp_path / "m", layout=layout)
    with pytest.raises(ValueError, match=r"^layout: expected one of 'plain'"):
        distributed.save({}, tmp_path / "m", layout=layout, no_dist=True)


def test_the_format_overrides_the_suffix(tmp_path: Path) -> None:
    state = {"w": torch.arange(4.0)}
    for name, format, layout in [
        ("file", "safetensors", "plain"),
        ("m.safetensors", "memmap", "plain"),
        ("m.pt", "dcp", "torch"),
        ("m", "dcp", "shards"),
    ]:
        path = tmp_path / name
        distributed.save(
            state, path, layout=layout, format=format, durable=False, num_threads=2, no_dist=True
        )
        assert tenfold.probe(path) == format
        assert path.is_file() == (format == "safetensors")
        assert repr(tenfold.load(path, verify=True)) == repr(state)


def test_a_format_that_a_layout_lacks_is_refused(tmp_path: Path) -> None:
    for format, layout, said in [
        ("pt", "plain", 'found one of format "pt"'),
        ("memmap", "shards", 'format: expected "dcp"'),
        ("none", "plain", "no such format"),
    ]:
        writer = StorageWriter(tmp_path / "m", format=format, layout=layout)
        error = failure(dcp.save, {"w": torch.ones(1)}, storage_writer=writer, no_dist=True)
        assert isinstance(error, ValueError)
        assert said in str(error)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TypeError, match=r"^storage writer: format: expected a str, found 1"):
        StorageWriter(tmp_path / "m", format=1)
    with pytest.raises(ValueError, match=r"^storage writer: num_threads: expected 0 to 2147483647"):
        StorageWriter(tmp_path / "m", num_threads=-1)


STATE: dict[Any, Any] = {
    "model": OrderedDict({"a.b/c": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2).half()}),
    "by_number": {1: torch.ones(2), 0: "x"},
    "pair": (torch.arange(3), (1, {"deep": None})),
    "empty": [{}, [], ()],
    "values": {"i": 2**70, "f": float("inf"), "s": "ä", "t": (1, 2), "b": b"ab"},
    "nothing": {},
    "scalar": torch.tensor(2, dtype=torch.uint8),
    "none": torch.zeros(0, 4),
}


@pytest.mark.parametrize("layout", ["shards", "torch"])
def test_shards_and_torch_layouts_load_as_the_same_tree(layout: str, tmp_path: Path) -> None:
    distributed.save(STATE, tmp_path / "m", layout=layout, no_dist=True)
    assert tenfold.probe(tmp_path / "m") == "dcp"
    assert repr(tenfold.load(tmp_path / "m", verify=True)) == repr(STATE)
    assert tenfold.diff(tmp_path / "m", STATE).same
    tenfold.convert(tmp_path / "m", tmp_path / "m.safetensors")
    assert repr(tenfold.load(tmp_path / "m.safetensors")) == repr(STATE)
    distributed.save({"new": torch.ones(1)}, tmp_path / "m", layout=layout, no_dist=True)
    assert list(tenfold.load(tmp_path / "m")) == ["new"]
    assert {path.name for path in tmp_path.iterdir()} == {"m", "m.safetensors"}


@pytest.mark.parametrize("layout", ["shards", "torch"])
def test_verify_reports_a_manifest_that_does_not_end_with_a_checksum(
    layout: str, tmp_path: Path
) -> None:
    distributed.save(STATE, tmp_path / "m", layout=layout, no_dist=True)
    assert tenfold.verify(tmp_path / "m").ok
    manifest = tmp_path / "m" / "metadata.json"
    manifest.write_bytes(manifest.read_bytes() + b"\n")
    (problem,) = tenfold.verify(tmp_path / "m").problems
    assert "it has no checksum: expected 16 hexadecimal digits" in problem.what


def test_metadata_of_the_torch_layout_equals_that_of_torch(tmp_path: Path) -> None:
    state = {
        "model": {"w": torch.arange(6.0).reshape(2, 3), "h": torch.ones(2, dtype=torch.bfloat16)},
        "list": [torch.ones(1), {"x": 1}],
        "plain": [1, "a"],
        "step": 3,
    }
    save(state, tmp_path / "ours", layout="torch")
    dcp.save(state, checkpoint_id=tmp_path / "theirs", no_dist=True)
    found = [dcp.FileSystemReader(tmp_path / name).read_metadata() for name in ("ours", "theirs")]
    assert found[0].state_dict_metadata == found[1].state_dict_metadata
    assert found[0].planner_data == found[1].planner_data
    assert found[0].storage_data.keys() == found[1].storage_data.keys()
    assert found[0].version == found[1].version


def test_torch_loads_every_entry_of_its_layout(tmp_path: Path) -> None:
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    state = {
        "model": {"w": torch.arange(6.0).reshape(2, 3), "e": torch.zeros(0, 2)},
        "f8": torch.arange(4).to(torch.float8_e4m3fn),
        "values": {"t": (1, None), "b": b"ab", "f": 0.5},
        "list": [torch.ones(1), {"x": [1]}],
    }
    save(state, tmp_path / "m", layout="torch")
    dcp_to_torch_save(tmp_path / "m", tmp_path / "m.pt")
    assert repr(torch.load(tmp_path / "m.pt", weights_only=True)) == repr(state)


def test_foreign_files_are_not_replaced(tmp_path: Path) -> None:
    for layout in ("shards", "torch"):
        (tmp_path / "mine").mkdir(exist_ok=True)
        (tmp_path / "mine" / "notes.txt").write_text("mine")
        error = failure(save, {"w": torch.ones(1)}, tmp_path / "mine", layout=layout)
        assert isinstance(error, ValueError)
        assert 'found "notes.txt"' in str(error)
        assert files_in(tmp_path / "mine") == {"notes.txt"}
        assert (tmp_path / "mine" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["m.pt", "m.npz", "m.tdz", "m.bin.index.json"])
def test_unsupported_file_suffixes_are_refused(name: str, tmp_path: Path) -> None:
    error = failure(save, {"w": torch.ones(1)}, tmp_path / name)
    assert isinstance(error, ValueError)
    expected = '".safetensors" or ".safetensors.index.json", or a folder'
    assert f"expected a name that ends in {expected}" in str(error)


@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        ("value", "value 'step': expected a rank that writes it, found none"),
        ("result", 'tensor "w": expected a receipt for its box'),
    ],
)
def test_a_missing_result_of_a_rank_keeps_the_old_version(
    lost: str, expected: str, tmp_path: Path
) -> None:
    class Losing(StorageWriter):
        def finish(self, metadata: Any, results: Any) -> None:
            ((result,),) = results
            without_values = dataclasses.replace(
                result, storage_data=(result.storage_data[0], {}, [])
            )
            super().finish(metadata, [[without_values] if lost == "value" else []])

    path = tmp_path / "m.safetensors"
    save({"w": torch.zeros(1), "step": 1}, path)
    writer = Losing(path, durable=False)
    state = {"w": torch.ones(1), "step": 2}
    planner = None if lost == "value" else SavePlanner()  # which sends values with its plan
    error = failure(dcp.save, state, storage_writer=writer, planner=planner, no_dist=True)
    assert isinstance(error, ValueError)
    assert expected in str(error)
    assert tenfold.load(path, verify=True)["step"] == 1


def test_saves_without_collectives_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BaseException, match="use_collectives: expected True, found False"):
        dcp.save(
            {"w": torch.ones(1)},
            storage_writer=StorageWriter(tmp_path / "m"),
            no_dist=True,
            use_collectives=False,
        )


def test_an_existing_checkpoint_is_kept_if_overwrite_is_false(tmp_path: Path) -> None:
    save({"w": torch.ones(1)}, tmp_path / "m")
    writer = StorageWriter(tmp_path / "m", overwrite=False)
    error = failure(dcp.save, {"w": torch.zeros(1)}, storage_writer=writer, no_dist=True)
    assert isinstance(error, FileExistsError)
    assert tenfold.load(tmp_path / "m")["w"].tolist() == [1]


def test_an_entry_that_cannot_be_read_raises_an_error_with_its_key(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-2"
    shutil.copytree(Path(__file__).resolve().parents[2] / "data/bundle/trainer", folder)
    (folder / "merges.txt").write_text("#version: 0.2\na b\n")
    error = failure(distributed.load, {"merges.txt": None}, folder, no_dist=True)
    assert isinstance(error, tenfold.UnsupportedError)
    assert 'key "merges.txt": not a known format' in str(error)
    found = {"trainer_state": {"global_step": 0}}
    distributed.load(found, folder, no_dist=True)
    assert found["trainer_state"]["global_step"] == 2


def test_a_missing_checkpoint_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        StorageReader(tmp_path / "none").read_metadata()
    reader = StorageReader(tmp_path / "none")
    with pytest.raises(dcp.api.CheckpointException, match="none"):
        dcp.load({"w": torch.ones(1)}, storage_reader=reader, no_dist=True)


def test_tensors_in_tuples_are_verified(tmp_path: Path) -> None:
    tenfold.save({"pair": (torch.ones(3), {"deep": torch.ones(4)}), "step": 1}, tmp_path / "m")
    state: dict[str, Any] = {"pair": None, "step": None}
    dcp.load(state, storage_reader=StorageReader(tmp_path / "m", verify=True), no_dist=True)
    assert state["pair"][1]["deep"].tolist() == [1] * 4
    (file,) = (tmp_path / "m").rglob("deep.memmap")
    file.write_bytes(bytes(16))
    reader = StorageReader(tmp_path / "m", verify=True)
    error = failure(dcp.load, {"pair": None}, storage_reader=reader, no_dist=True)
    assert isinstance(error, tenfold.CorruptFileError)


class Rows(torch.Tensor):
    """A shard of a 17 MiB tensor: some rows, and the methods that dcp calls for custom shards."""

    begin: int
    shape = torch.Size([17, 1 << 20])

    @staticmethod
    def of(begin: int, num_rows: int) -> Rows:
        rows = torch.zeros(num_rows, 1 << 20, dtype=torch.uint8).as_subclass(Rows)
        rows.begin = begin
        return rows

    def size(self, dim: Any = None) -> Any:
        return self.shape

    def __create_chunk_list__(self) -> Any:
        sizes = self.as_subclass(torch.Tensor).size()
        return [dcp.metadata.ChunkStorageMetadata(torch.Size([self.begin, 0]), sizes)]

    def __get_tensor_shard__(self, index: Any) -> Any:
        return self.as_subclass(torch.Tensor)


@pytest.mark.parametrize("name", ["m.safetensors", "m"])
def test_verify_reads_the_blocks_of_loaded_boxes_only(name: str, tmp_path: Path) -> None:
    whole = torch.arange(17, dtype=torch.uint8)[:, None].expand(17, 1 << 20)
    tenfold.save({"w": whole, "v": torch.ones(3)}, tmp_path / name, durable=False)
    file = tmp_path / name
    file = file / "w.memmap" if file.is_dir() else file
    damaged = bytearray(file.read_bytes())
    at = damaged.rindex(16)  # in the last row, which is the second block
    damaged[at] = 0
    file.unlink()
    file.write_bytes(damaged)

    def load(begin: int, num_rows: int, planner: Any) -> torch.Tensor:
        rows = Rows.of(begin, num_rows)
        reader = StorageReader(tmp_path / name, verify=True)
        dcp.load({"w": rows}, storage_reader=reader, planner=planner, no_dist=True)
        return rows.as_subclass(torch.Tensor)

    for planner in (None, LoadPlanner()):
        assert torch.equal(load(2, 14, planner), whole[2:16])
        error = failure(load, 15, 2, planner)
        assert isinstance(error, tenfold.CorruptFileError)
    into = {"v": torch.zeros(3)}
    distributed.load(into, tmp_path / name, verify=True, no_dist=True)
    assert into["v"].tolist() == [1, 1, 1]


def test_each_entry_is_checked_by_one_rank() -> None:
    def stored(*shape: int) -> Any:
        return ("w",), StoredTensor(0, "uint8", shape, ("w",))

    def plan(**boxes: Any) -> Any:
        return dcp.planner.LoadPlan([], planner_data=boxes)

    plans = [
        plan(half=((0, 0), (2, 3)), whole=((0, 0), (2, 3)), copied=None, value=None),
        plan(half=((2, 0), (1, 3)), whole=((2, 0), (2, 3)), copied=None),
    ]
    entries = {name: stored(4, 3) for name in ("half", "whole", "copied")}
    checks = _checks_of(plans, {**entries, "value": (("value",), 7)})
    assert checks == [
        [("half", [((0, 0), (2, 3)), ((2, 0), (1, 3))]), ("copied", None), ("value", None)],
        [("whole", None)],
    ]


def test_the_rank_with_the_fewest_bytes_writes_a_replicated_tensor() -> None:
    def items(**sizes: int) -> Items:
        state = {name: torch.zeros(size) for name, size in sizes.items()}
        return Items.of_state(state, BoxesOfDTensors())

    plans = [items(own=1000, x=100, y=10), items(x=100, y=10), items(x=100, y=10)]
    balanced = without_duplicates(plans, to_lowest_rank=False)
    assert [plan.names for plan in balanced] == [["own"], ["x"], ["y"]]
    lowest = without_duplicates(plans, to_lowest_rank=True)
    assert [plan.names for plan in lowest] == [["own", "x", "y"], [], []]


def test_a_shard_counts_with_its_own_bytes_not_with_those_of_the_tensor() -> None:
    def items(shard_rows: int, *names: str) -> Items:
        made = Items()
        kind = Kind(dcp.planner.WriteItemType.SHARD, torch.uint8, (100,), (0,), (shard_rows,))
        made.add("shard", made.number_of(kind))
        for name, of_tensor in Items.of_state(
            {name: torch.zeros(1) for name in names}, BoxesOfDTensors()
        ):
            made.add(name, made.number_of(of_tensor))
        return made

    first, second = items(60, "x"), items(1, "x")
    second.kinds[0] = second.kinds[0]._replace(offsets=(99,))
    written = without_duplicates([first, second], to_lowest_rank=False)
    assert [plan.names for plan in written] == [["shard"], ["shard", "x"]]


def test_an_entry_that_differs_between_ranks_is_refused_with_the_difference() -> None:
    def items(**fields: Any) -> Items:
        kind = Kind(dcp.planner.WriteItemType.SHARD, torch.uint8, (4,), (0,), (2,))
        made = Items()
        made.add("x", made.number_of(kind._replace(**fields)))
        return made

    for fields, expected, found in (
        ({"sizes": (3,)}, r"the box of shape \[2\] at \[0\]", r"the box of shape \[3\] at \[0\]"),
        (
            {"is_opaque": True},
            r"torch\.uint8 of shape",
            r"an object, stored as torch\.uint8 of shape",
        ),
    ):
        with pytest.raises(ValueError, match=f"expected .*{expected}.* found .*{found}"):
            without_duplicates([items(), items(**fields)], to_lowest_rank=True)


def test_a_container_on_some_ranks_only_is_refused_with_its_path() -> None:
    value, below = (("x", "a"), 1), (("x", "a", "b"), 2)
    for leaves in ([value, below], [below, value]):
        with pytest.raises(ValueError, match=r"^'x\.a': expected a container on all ranks"):
            nest(leaves, {})


def test_a_list_on_some_ranks_and_a_dict_on_others_are_refused_with_their_path() -> None:
    states = [{"x": {"a": a}} for a in ([torch.ones(1)], {"1": 6}, {"k": 6}, {}, (torch.ones(1),))]
    for other in states[1:]:
        for ranks in ((states[0], other), (other, states[0])):
            with pytest.raises(ValueError, match=r"^'x\.a': it differs between ranks: expected a "):
                merge(flatten(state)[1] for state in ranks)
    for part in ("1", "k"):  # leaves of torch's planner, which saves no types of containers
        with pytest.raises(ValueError, match=r"^'x\.a': it differs between ranks: expected a list"):
            nest([(("x", "a", 0), 1), (("x", "a", part), 6)], {})
    merged = merge(flatten({"x": of_rank})[1] for of_rank in ({}, OrderedDict(a=1)))
    assert merged[("%container", "x")] == ("dict", ("a",))


def test_meta_tensors_are_allocated_without_a_process_group(tmp_path: Path) -> None:
    state = {"w": torch.arange(4.0), "l": [{1: torch.ones(2, 3).half()}, 5]}
    distributed.save(state, tmp_path / "m", no_dist=True)
    meta = [torch.empty_like(tensor, device="meta") for tensor in (state["w"], state["l"][0][1])]
    into = {"w": meta[0], "l": [{1: meta[1]}, 0], "other": meta[0], "kept": {3}}
    distributed.load(into, tmp_path / "m", strict=False, no_dist=True)
    assert repr({key: into[key] for key in state}) == repr(state)
    assert (into["other"].device.type, into["kept"]) == ("cpu", {3})


def test_arguments_of_wrong_types_are_refused(tmp_path: Path) -> None:
    for call in (distributed.save, distributed.load):
        with pytest.raises(
            TypeError, match=r"state_dict, path\): path: expected a str, .* NoneType"
        ):
            call({}, None, no_dist=True)
        with pytest.raises(TypeError, match="state_dict: expected a dict, found int"):
            call(5, tmp_path / "m", no_dist=True)
    with pytest.raises(TypeError, match=r"^layout: expected a str, found 5"):
        distributed.save({}, tmp_path / "m", layout=5, no_dist=True)


class BytesPath(os.PathLike):  # type: ignore[type-arg]
    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> bytes:
        return os.fsencode(self.path)


def test_a_checkpoint_id_is_a_path(tmp_path: Path) -> None:
    writer = StorageWriter()
    for name in ("a", "b"):
        dcp.save(
            {"w": torch.ones(1)}, checkpoint_id=tmp_path / name, storage_writer=writer, no_dist=True
        )
        assert tenfold.load(tmp_path / name)["w"].tolist() == [1]
    assert StorageWriter.validate_checkpoint_id(tmp_path)
    assert StorageWriter.validate_checkpoint_id(BytesPath(tmp_path))
    assert not StorageWriter.validate_checkpoint_id("s3://bucket/x")
    with pytest.raises(BaseException, match="expected a path, or a checkpoint_id"):
        dcp.save({"w": torch.ones(1)}, storage_writer=StorageWriter(), no_dist=True)


def test_writers_readers_and_planners_pickle_without_pending_operations(
    tmp_path: Path,
) -> None:
    writer = StorageWriter(tmp_path / "m")
    writer.reset()
    reader = StorageReader(tmp_path / "m", verify=True)
    planner = SavePlanner(enable_plan_caching=True)
    copies = pickle.loads(pickle.dumps((writer, reader, planner)))
    assert copies[0].path == writer.path
    assert copies[1].verify
    dcp.save({"w": torch.ones(1)}, storage_writer=copies[0], planner=copies[2], no_dist=True)
    into = {"w": torch.zeros(1)}
    dcp.load(into, storage_reader=copies[1], no_dist=True)
    assert into["w"].tolist() == [1]


def test_state_dict_is_built_from_a_checkpoint_without_a_target(tmp_path: Path) -> None:
    from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

    state = {"model": {"w": torch.arange(4.0)}, "list": [torch.ones(1), 2]}
    save(state, tmp_path / "m")
    found: dict[str, Any] = {}
    _load_state_dict(
        found,
        storage_reader=StorageReader(tmp_path / "m"),
        planner=_EmptyStateDictLoadPlanner(),
        no_dist=True,
    )
    assert repr(found) == repr(state)


def test_keys_of_all_ranks_keep_their_types() -> None:
    ranks: list[Any] = [
        {"a": {1: torch.ones(1), "x": 1}},
        {"a": {2: torch.ones(1), None: 2}},
        {"a": {1: torch.ones(1)}, "b": {3: torch.ones(1)}},
    ]
    flat = [flatten(state) for state in ranks]
    merged = merge(data for _, data in flat)
    leaves = {name: leaf for items, _ in flat for name, leaf in items.items()}
    paths = {name: path for name, path in merged.items() if isinstance(name, str)}
    made = nest([(paths[name], leaf) for name, leaf in leaves.items()], merged)
    assert list(made["a"]) == [1, "x", 2, None]
    assert list(made["b"]) == [3]
    for one, other in (({1: 1}, {"1": 1}), ({"None": 1}, {None: 1})):
        with pytest.raises(ValueError, match="'a': it differs between ranks: expected the key"):
            merge([flatten({"a": one})[1], flatten({"a": other})[1]])
