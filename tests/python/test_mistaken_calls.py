"""Common mistakes in calls raise errors of the right type that state the mistake."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tenfold
from tenfold import BatchLoader, CheckpointManager, Dataset, MappedDict, SparseMatrix, TensorDict


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Creates the files that the calls below use, and makes their folder the working directory."""
    monkeypatch.chdir(tmp_path)
    tenfold.save({"w": torch.zeros(2, 3), "b": torch.zeros(3), "step": 3}, "ckpt")
    tenfold.save({"w": torch.zeros(2, 3), "b": torch.zeros(2)}, "w.safetensors")
    tenfold.ingest({"x": np.arange(10), "y": np.arange(10.0)}, "rows")
    MappedDict.build({"a": torch.zeros(2), "b": torch.ones(2)}, "words")
    SparseMatrix.from_coo([0, 1], [1, 0], [1.0, 2.0], (2, 2), path="matrix")
    manager = CheckpointManager("run")
    manager.save(1, {"model": torch.nn.Linear(3, 2)}).result()
    manager.close()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "readme.txt").write_text("hello")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n3\n")
    (tmp_path / "page.pt").write_text("<!DOCTYPE html><html>404</html>")
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps({"a": 1}))
    whole = (tmp_path / "w.safetensors").read_bytes()
    (tmp_path / "short.safetensors").write_bytes(whole[: len(whole) // 2])
    return tmp_path


Case = tuple[Callable[[], Any], type[Exception], str]


def rows() -> Dataset:
    return Dataset("rows")


def nodes() -> TensorDict:
    return TensorDict({"a": torch.zeros(2, 3), "n": {"b": torch.ones(2)}}, batch_size=[2])


READING: dict[str, Case] = {
    "no such path": (lambda: tenfold.load("nothing"), FileNotFoundError, "nothing: no such file"),
    "a folder of other files": (
        lambda: tenfold.load("notes"),
        tenfold.UnsupportedError,
        "notes: not a known format: .*found a folder without meta.json",
    ),
    "an empty file": (
        lambda: tenfold.load("empty"),
        tenfold.UnsupportedError,
        "empty: not a known format: .*found an empty file",
    ),
    "a web page": (
        lambda: tenfold.load("page.pt"),
        tenfold.UnsupportedError,
        "found an HTML page instead of the file; download the file again",
    ),
    "a pickle": (
        lambda: tenfold.load("plain.pkl"),
        tenfold.UnsupportedError,
        "found a pickle .*load it with pickle and save the result",
    ),
    "half a download": (
        lambda: tenfold.load("short.safetensors"),
        tenfold.CorruptFileError,
        "the file may be truncated",
    ),
    "an open file": (
        lambda: tenfold.load(open("empty", "rb")),  # type: ignore[arg-type]  # noqa: SIM115
        TypeError,
        r"load\(path\): path: expected a str, bytes or os.PathLike, found BufferedReader",
    ),
    "an int as a key": (
        lambda: tenfold.load("ckpt", keys=[0]),  # type: ignore[list-item]
        TypeError,
        "keys: expected a list of str and tuples of str, found 0 in it",
    ),
    "a number as keys": (
        lambda: tenfold.load("ckpt", keys=3),  # type: ignore[arg-type]
        TypeError,
        "keys: expected a list of str and tuples of str, found 3",
    ),
    "a number as exclude": (
        lambda: tenfold.load("ckpt", exclude=3),  # type: ignore[arg-type]
        TypeError,
        "exclude: expected a list of str and tuples of str, found 3",
    ),
    "an empty tuple in exclude": (
        lambda: tenfold.convert("ckpt", "copy", exclude=[()]),
        ValueError,
        "exclude: expected a str or a tuple of str, found an empty tuple",
    ),
    "a key that is not there": (
        lambda: tenfold.load("ckpt", keys=["stp"]),
        KeyError,
        'no key "stp"; did you mean "step"',
    ),
    "an unknown device": (
        lambda: tenfold.load("ckpt", device="gpu"),
        ValueError,
        'load: device: expected a device such as "cpu" or "cuda:0", found \'gpu\'',
    ),
    "two devices": (
        lambda: tenfold.load("ckpt", device="cpu", map_location="cpu"),
        ValueError,
        "expected map_location or device, found both",
    ),
    "a mode of open()": (
        lambda: tenfold.open("ckpt", mode="rb"),  # type: ignore[arg-type]
        ValueError,
        'mode: unknown mode: expected "r", "c" or "r\\+", found "rb"',
    ),
    "a misspelt format": (
        lambda: tenfold.load("w.safetensors", format="safetensor"),
        ValueError,
        'format "safetensor": no such format: expected one of .*"safetensors"',
    ),
    "another framework": (
        lambda: tenfold.load("ckpt", framework="jax"),  # type: ignore[arg-type]
        ValueError,
        'framework: expected "torch", "numpy" or None, found \'jax\'',
    ),
    "str for a bool": (
        lambda: tenfold.load("ckpt", verify="yes"),  # type: ignore[arg-type]
        TypeError,
        "load: verify: expected a bool, found 'yes'",
    ),
    "writing into one file": (
        lambda: tenfold.open("w.safetensors", mode="r+"),
        tenfold.UnsupportedError,
        "save it as a memmap folder",
    ),
    "names joined by dots": (
        lambda: nodes()["n.b"],
        KeyError,
        r"no key \"n.b\": .*; a nested key is a tuple: \('n', 'b'\)",
    ),
    "names joined by dots, in a file": (
        lambda: tenfold.open(tenfold.save({"n": {"b": torch.ones(2)}}, "nested"))["n.b"],
        KeyError,
        r"no key \"n.b\"; a nested key is a tuple: \('n', 'b'\)",
    ),
    "a path through a tensor": (
        lambda: tenfold.open("ckpt")["w", "x"],
        KeyError,
        '"w" is a Tensor: expected a node with an entry "x"',
    ),
}
WRITING: dict[str, Case] = {
    "arguments exchanged": (
        lambda: tenfold.save("ckpt2", {"w": torch.zeros(2)}),  # type: ignore[arg-type]
        TypeError,
        r"save\(obj, path\): path: expected a str, bytes or os.PathLike, found dict",
    ),
    "no path": (
        lambda: tenfold.save({"w": torch.zeros(2)}, None),  # type: ignore[arg-type]
        TypeError,
        r"save\(obj, path\): path: expected .*, found NoneType",
    ),
    "an object without state_dict": (
        lambda: tenfold.save({"a": object()}, "x"),
        tenfold.UnsupportedError,
        'key "a": it cannot be stored: .*found object',
    ),
    "a frame": (
        lambda: tenfold.save(pytest.importorskip("pandas").DataFrame({"a": [1]}), "x"),
        tenfold.UnsupportedError,
        r"found pandas.DataFrame; tenfold.ingest\(table, path\) writes a table",
    ),
    "a folder of other files in the way": (
        lambda: tenfold.save({"w": torch.zeros(2)}, "notes"),
        ValueError,
        "notes: .*save to another path, or remove these first",
    ),
    "a folder in the way of a file": (
        lambda: tenfold.save({"w": torch.zeros(2)}, Path("ckpt").rename("x.safetensors")),
        IsADirectoryError,
        "expected a file or nothing, found a folder; remove it first",
    ),
    "a file in the way of a folder": (
        lambda: tenfold.save({"w": torch.zeros(2)}, "rows.csv", format="memmap"),
        NotADirectoryError,
        "expected a folder or nothing, found a file; remove it first",
    ),
    "threads as text": (
        lambda: tenfold.save({"w": torch.zeros(2)}, "x", num_threads="4"),  # type: ignore[arg-type]
        TypeError,
        "save: num_threads: expected an int, found '4'",
    ),
    "a container in itself": (
        lambda: tenfold.save((lambda tree: tree.setdefault("self", tree))({}), "x"),
        ValueError,
        'key "self": it contains itself',
    ),
    "a name for rename": (
        lambda: tenfold.convert("ckpt", "x", rename="w"),  # type: ignore[arg-type]
        TypeError,
        r"rename: expected a dict, a list of \(regex, replacement\) or a function, found 'w'",
    ),
    "one pair for rename": (
        lambda: tenfold.convert("ckpt", "x", rename=["w", "v"]),  # type: ignore[list-item]
        TypeError,
        r"rename: expected a dict, a list of \(regex, replacement\)",
    ),
    "a size with a unit": (
        lambda: tenfold.convert("ckpt", "x.safetensors.index.json", shard_size="5GB"),  # type: ignore[arg-type]
        TypeError,
        "convert: shard_size: expected an int, found '5GB'",
    ),
    "a dtype of another library": (
        lambda: tenfold.convert("ckpt", "x", dtype="fp16"),
        ValueError,
        'expected a name as torch spells it, such as "float32", found "fp16"',
    ),
    "load_into, exchanged": (
        lambda: tenfold.load_into("ckpt", {"w": torch.zeros(2, 3)}),
        ValueError,
        "target: expected a module, .*, found str",
    ),
    "load_into from nothing": (
        lambda: tenfold.load_into(torch.nn.Linear(2, 2), None),  # type: ignore[arg-type]
        TypeError,
        "source: expected a path, a TensorDict, a dict of tensors or a tensor, found NoneType",
    ),
    "load_into a class": (
        lambda: tenfold.load_into(torch.nn.Linear, "ckpt"),
        ValueError,
        "target: expected a module, .*, found the class Linear",
    ),
    "load_into another shape": (
        lambda: tenfold.load_into(torch.nn.Linear(4, 2), {"weight": torch.zeros(2, 3)}),
        ValueError,
        r'"weight": expected float32 \[2, 4\], found float32 \[2, 3\]',
    ),
}
ROWS: dict[str, Case] = {
    "no such file": (
        lambda: tenfold.ingest("x.csv", "x"),
        FileNotFoundError,
        "x.csv: no such file",
    ),
    "a glob without a match": (
        lambda: tenfold.ingest("x-*.csv", "x"),
        FileNotFoundError,
        "expected files that match, found none",
    ),
    "a folder to ingest": (
        lambda: tenfold.ingest("notes", "x"),
        IsADirectoryError,
        r"expected files, found a folder; pass 'notes/\*.csv' for the files in it",
    ),
    "ingest, exchanged": (
        lambda: tenfold.ingest("x", [{"a": 1}]),  # type: ignore[arg-type]
        TypeError,
        r"ingest\(source, path\): path: expected a str, bytes or os.PathLike, found list",
    ),
    "create, exchanged": (
        lambda: tenfold.create({"x": "int64"}, "x"),  # type: ignore[arg-type]
        TypeError,
        r"create\(path, schema\): path: expected a str, bytes or os.PathLike, found dict",
    ),
    "build, exchanged": (
        lambda: tenfold.MappedDict.build("x", {"a": 1}),  # type: ignore[arg-type]
        TypeError,
        r"MappedDict.build\(items, path\): path: expected a str, .*, found dict",
    ),
    "convert to a tree": (
        lambda: tenfold.convert("ckpt", {"w": 1}),  # type: ignore[arg-type]
        TypeError,
        r"convert\(src, dst\): dst: expected a str, bytes or os.PathLike, found dict",
    ),
    "lines of different lengths": (
        lambda: tenfold.ingest("rows.csv", "x"),
        tenfold.CorruptFileError,
        r"rows.csv: line 3 \(row 1\): expected 2 fields, found 1",
    ),
    "columns of different lengths": (
        lambda: tenfold.ingest({"a": [1, 2, 3], "b": [1, 2]}, "x"),
        ValueError,
        "column 'b': .*: expected 3 rows, as in column 'a', found 2",
    ),
    "rows that are no dicts": (
        lambda: tenfold.ingest([1, 2], "x"),
        ValueError,
        "row 0: expected a dict, found int",
    ),
    "objects in a frame": (
        lambda: tenfold.ingest(pytest.importorskip("pandas").DataFrame({"a": [object()]}), "x"),
        ValueError,
        "expected columns of numbers, text, times or lists, found another type: .*column a",
    ),
    "a dtype as schema": (
        lambda: tenfold.ingest([{"a": 1}], "x", schema="int64"),
        FileNotFoundError,
        "a str is the path of a schema; pass a dict: 'int64'",
    ),
    "a misspelt dtype": (
        lambda: tenfold.ingest([{"a": 1}], "x", schema={"a": "int65"}),
        ValueError,
        "column \"a\": expected a dtype, found 'int65'; did you mean 'int64'",
    ),
    "one name as columns": (
        lambda: tenfold.ingest({"a": [1]}, "x", columns="a"),
        TypeError,
        "ingest: columns: expected a list of names, found 'a'",
    ),
    "a checkpoint as rows": (
        lambda: Dataset("ckpt"),
        ValueError,
        "all columns of a data set have the same number of rows",
    ),
    "text as rows": (
        lambda: Dataset("rows.csv"),
        tenfold.UnsupportedError,
        r"tenfold.ingest\(source, path\) makes a data set of text files",
    ),
    "a list as rows": (
        lambda: BatchLoader([1, 2, 3], 2),
        ValueError,
        r"found a list; tenfold.ingest\(source, path\) makes a data set",
    ),
    "torch's data set": (
        lambda: BatchLoader(torch.utils.data.TensorDataset(torch.zeros(3)), 2),
        tenfold.UnsupportedError,
        r"TensorDataset; tenfold.ingest\(source, path\) makes a data set",
    ),
    "a row after the last": (
        lambda: rows()[10],
        IndexError,
        r"row 10: expected an index in \[-10, 10\)",
    ),
    "a float as index": (
        lambda: rows()[1.5],
        TypeError,
        "data set: expected an int, a slice, or a list, tensor or array of ints or bools, "
        "found float",
    ),
    "an index that is text": (
        lambda: rows().take("0"),
        TypeError,
        "take: indices: expected an int, a slice, or a list, .* found str",
    ),
    "a generator of indices": (
        lambda: rows().take(i for i in range(3)),
        TypeError,
        "take: indices: .* found generator",
    ),
    "a column that is not there": (
        lambda: rows()["z"],
        KeyError,
        'no column "z": expected one of "x", "y"',
    ),
    "a mask of another length": (
        lambda: rows().filter(np.array([True])),
        IndexError,
        r"mask: expected shape \(10,\), found \(1,\)",
    ),
    "a condition as text": (
        lambda: rows().filter("x > 3"),
        TypeError,
        "filter: mask: expected bools, found str",
    ),
    "one fraction": (
        lambda: rows().split(0.8),  # type: ignore[arg-type]
        TypeError,
        r"split: sizes: expected a list such as \[0.9, 0.1\] or \[10, 0\], found 0.8",
    ),
    "fractions beyond 1": (
        lambda: rows().split([0.9, 0.2]),
        ValueError,
        "expected fractions that sum to 1",
    ),
    "a fraction below 0": (
        lambda: rows().split([-0.5, 1.5]),
        ValueError,
        "expected fractions of 0 or more",
    ),
    "a fraction as text": (
        lambda: rows().split(["0.9", 0.1]),  # type: ignore[list-item]
        TypeError,
        "split: sizes: expected numbers",
    ),
    "no function to map": (
        lambda: rows().map(None),  # type: ignore[arg-type]
        TypeError,
        "map: function: expected a function, found None",
    ),
    "a number as transform": (
        lambda: Dataset("rows", transform=3),  # type: ignore[arg-type]
        TypeError,
        "data set: transform: expected a function, found 3",
    ),
    "append in mode r": (
        lambda: rows().append({"x": [1], "y": [1.0]}),
        tenfold.UnsupportedError,
        r'Dataset\(path, mode="r\+"\)',
    ),
    "batches of 0 rows": (
        lambda: BatchLoader("rows", 0),
        ValueError,
        "batch_size: expected at least 1, found 0",
    ),
    "batch_size as text": (
        lambda: BatchLoader("rows", "4"),  # type: ignore[arg-type]
        TypeError,
        "batch loader: batch_size: expected an int, found '4'",
    ),
    "an unknown device of a loader": (
        lambda: BatchLoader("rows", 4, device="gpu"),
        ValueError,
        'batch loader: device: expected a device such as "cpu" or "cuda:0", found \'gpu\'',
    ),
    "a number as the transform of a loader": (
        lambda: BatchLoader("rows", 4, transform=3),  # type: ignore[arg-type]
        TypeError,
        "batch loader: transform: expected a function, found 3",
    ),
    "a rank of world_size or more": (
        lambda: BatchLoader("rows", 4, rank=2, world_size=2),
        ValueError,
        "rank: expected 0 to 1, found 2",
    ),
    "paths to concat": (
        lambda: tenfold.concat(["rows", "rows"]),  # type: ignore[list-item]
        TypeError,
        r"open a folder with tenfold.Dataset\(path\)",
    ),
}
OTHERS: dict[str, Case] = {
    "a dictionary of a checkpoint": (
        lambda: MappedDict("ckpt"),
        ValueError,
        "expected a dictionary",
    ),
    "a dictionary of rows": (
        lambda: MappedDict("rows"),
        ValueError,
        "expected a dictionary, found a data set without an index of keys",
    ),
    "a new key by assignment": (
        lambda: MappedDict("words", "r+").update({"c": torch.zeros(2)}),
        KeyError,
        r"words: no key 'c'; extend\(\) adds new keys",
    ),
    "one str for several keys": (
        lambda: MappedDict("words").get_many("ab"),
        TypeError,
        "keys: expected several keys, found one str",
    ),
    "values of two shapes": (
        lambda: MappedDict.build({"a": torch.zeros(2, 3), "b": torch.zeros(4)}, "x"),
        ValueError,
        r"item 1: value: expected a tensor of shape \[2, 3\], .*found \[4\]",
    ),
    "a dense matrix": (
        lambda: SparseMatrix.from_torch(torch.zeros(2, 2)),
        ValueError,
        "expected a torch tensor of layout sparse_csr, .*found torch.strided",
    ),
    "a column as text": (
        lambda: SparseMatrix("matrix")["a"],
        TypeError,
        "expected an int, a slice, or a list, .*found str",
    ),
    "a manager over a file": (
        lambda: CheckpointManager("empty"),
        NotADirectoryError,
        "expected a directory of steps, found a file: 'empty'",
    ),
    "max_to_keep 0": (
        lambda: CheckpointManager("run", max_to_keep=0),
        ValueError,
        "max_to_keep: expected 1 or more, found 0",
    ),
    "a model in place of the state": (
        lambda: CheckpointManager("run").save(2, torch.nn.Linear(1, 1)),  # type: ignore[arg-type]
        TypeError,
        "app_state: expected a dict, found Linear",
    ),
    "a metric as text": (
        lambda: CheckpointManager("run").save(2, {"a": 1}, metrics={"loss": "low"}),  # type: ignore[dict-item]
        TypeError,
        'metrics: "loss": expected a number, found str',
    ),
    "a step that is not there": (
        lambda: CheckpointManager("run").restore({"model": torch.nn.Linear(3, 2)}, step=9),
        KeyError,
        "step 9: expected one of the steps 1, found no such step",
    ),
    "a misspelt entry": (
        lambda: CheckpointManager("run").restore({"modl": torch.nn.Linear(3, 2)}),
        KeyError,
        r"the entries differ: expected \['modl'\], found \['model'\]",
    ),
    "a batch size that no tensor has": (
        lambda: TensorDict({"a": torch.zeros(2)}, batch_size=[3]),
        RuntimeError,
        r'batch dimension mismatch for key "a": expected a shape that begins with \[3\]',
    ),
    "a list of tensors": (
        lambda: TensorDict([torch.zeros(2)]),  # type: ignore[arg-type]
        ValueError,
        "source: expected a dict or a TensorDict, found list",
    ),
    "a number in place of new entries": (
        lambda: TensorDict({}).update_(3),
        TypeError,
        "input_dict_or_td: expected a dict or a TensorDict, found int",
    ),
    "a number in place of new rows": (
        lambda: TensorDict({}).update_at_(3, 0),  # type: ignore[arg-type]
        TypeError,
        "input_dict_or_td: expected a dict or a TensorDict, found int",
    ),
    "tensorclass of an object": (
        lambda: tenfold.tensorclass(3),  # type: ignore[call-overload]
        TypeError,
        "tensorclass: expected a class, found int",
    ),
    "from_module of a number": (
        lambda: TensorDict.from_module(3),
        TypeError,
        "from_module: expected a torch.nn.Module, found int",
    ),
    "an array without fields": (
        lambda: TensorDict.from_struct_array(np.zeros(3)),
        TypeError,
        "from_struct_array: expected an array with named fields, found float64",
    ),
    "a length below 0": (
        lambda: tenfold.MemoryMappedTensor.zeros(-3),
        RuntimeError,
        r"shape: expected lengths of 0 or more, found \[-3\]",
    ),
}
CASES = {
    f"{group}: {name}": case
    for group, cases in {
        "reading": READING,
        "writing": WRITING,
        "rows": ROWS,
        "others": OTHERS,
    }.items()
    for name, case in cases.items()
}


@pytest.mark.parametrize("name", CASES)
def test_mistake_raises_an_error_of_its_type_and_message(name: str, made: Path) -> None:
    call, kind, text = CASES[name]
    with pytest.raises(kind, match=text):
        call()


@pytest.mark.parametrize("name", ["device", "map_location"])
def test_an_unavailable_device_is_refused_by_the_name_of_its_argument(
    made: Path, name: str
) -> None:
    if torch.cuda.is_available():
        pytest.skip("a CUDA device is available")
    with pytest.raises(tenfold.UnsupportedError, match=f'{name}: .*found "cuda" .*; omit {name},'):
        tenfold.load("ckpt", **{name: "cuda"})


def test_errors_of_calls_without_the_option_cast_do_not_advise_it(made: Path) -> None:
    manager = CheckpointManager("run")
    with pytest.raises(ValueError, match=r"expected float32 \[2, 4\]") as caught:
        manager.restore({"model": torch.nn.Linear(4, 2)})
    assert "option cast" not in str(caught.value)


def test_attribute_error_of_a_misspelt_name_has_name_and_obj() -> None:
    with pytest.raises(AttributeError) as caught:
        tenfold.opne  # type: ignore[attr-defined]  # noqa: B018
    assert caught.value.name == "opne"
    assert caught.value.obj is tenfold


def test_unusual_argument_types_are_accepted(made: Path) -> None:
    assert sorted(tenfold.load(b"ckpt")) == sorted(tenfold.load(Path("ckpt"))) == ["b", "step", "w"]  # type: ignore[arg-type]
    assert [len(part) for part in rows().split([np.int64(8), np.int64(2)])] == [8, 2]
    assert [len(part) for part in rows().split(np.array([0.5, 0.5], np.float32))] == [5, 5]  # type: ignore[arg-type]
    assert len(BatchLoader("rows", np.int64(4))) == 3  # type: ignore[arg-type]
    ds = tenfold.create("made", {"x": ("float32", 3)})
    assert str(ds.schema) == "x: float32[3]"
