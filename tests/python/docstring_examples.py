"""The examples in the docstrings of the public API, and the data that they use.

Examples use variables and files that a user would have (`model`, "run/ckpt", "flights"). `prepare`
makes them.
"""

from __future__ import annotations

import doctest
import gzip
import inspect
import json
import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import tenfold
import tenfold.distributed as _distributed
import tenfold.safetensors.numpy
import tenfold.utils

PACKAGE = str(Path(tenfold.__file__).parent)


def _documented(name: str, thing: Any) -> Iterator[tuple[str, Any]]:
    """Yields name and object of `thing` and, if it is a class, of its public members."""
    yield name, thing
    if inspect.isclass(thing):
        for member in dir(thing):
            if not member.startswith("_"):
                found = inspect.getattr_static(thing, member)
                if isinstance(found, property):
                    found = found.fget
                yield f"{name}.{member}", inspect.unwrap(getattr(found, "__func__", found))


def _is_ours(thing: Any) -> bool:
    """Returns True for every module or class, and for functions that this package defines."""
    if inspect.isfunction(thing):
        return thing.__code__.co_filename.startswith(PACKAGE)
    return inspect.isclass(thing) or inspect.ismodule(thing)


def examples() -> dict[str, doctest.DocTest]:
    """Returns examples by public name. A docstring that several names share is included once."""
    public = {f"tenfold.{name}": getattr(tenfold, name) for name in tenfold._MODULE_OF}
    aliases = [
        n for n, v in public.items() if inspect.isclass(v) and not n.endswith(f".{v.__name__}")
    ]
    for alias in aliases:
        del public[alias]
    distributed = {
        f"tenfold.distributed.{n}": getattr(_distributed, n) for n in _distributed.__all__
    }
    helpers = {f"tenfold.utils.{n}": v for n, v in vars(tenfold.utils).items() if n[0] != "_"}
    for module in (tenfold.safetensors, tenfold.safetensors.numpy):
        helpers |= {f"{module.__name__}.{n}": getattr(module, n) for n in module.__all__}
    named: dict[str, str] = {}
    for name, thing in {"tenfold": tenfold, **public, **distributed, **helpers}.items():
        for documented, member in _documented(name, thing):
            doc = getattr(member, "__doc__", None)
            if isinstance(doc, str) and ">>>" in doc and _is_ours(member):
                kept = named.get(doc, documented)
                # If names share a docstring, keep the one of TensorDict, or the one outside .numpy.
                named[doc] = min(
                    kept,
                    documented,
                    key=lambda n: ("LazyStacked" in n, "TensorClass" in n, ".numpy." in n, n),
                )
    parser = doctest.DocTestParser()
    return {
        name: parser.get_doctest(inspect.cleandoc(doc), {}, name, None, 0)
        for doc, name in sorted(named.items(), key=lambda item: item[1])
    }


class Checker(doctest.OutputChecker):
    """Accepts any output if an example states none. In outputs, /data is the working directory."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        """Returns True if `want` is empty or matches `got`."""
        got = got.replace(os.getcwd(), "/data")
        return not want or super().check_output(want, got, optionflags)


class Encoder(torch.nn.Module):
    def __init__(self, width: int = 384) -> None:
        super().__init__()
        self.encoder = torch.nn.Linear(width, width)


class Executed:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("false",)


def prepare(name: str, text: str) -> dict[str, Any]:
    """Makes files in the working directory; returns the variables that the example `name` uses.

    Makes a model and the data set "flights" only if `text`, the example, seems to use them.
    """
    names = {
        "__name__": "__main__",
        **{public: getattr(tenfold, public) for public in tenfold._MODULE_OF if public[0] != "_"},
        "DataLoader": torch.utils.data.DataLoader,
        "numpy": numpy,
        "print_directory_tree": tenfold.utils.print_directory_tree,
        "tenfold": tenfold,
        "torch": torch,
        "train": lambda batch: None,
    }
    td = tenfold.TensorDict({"a": torch.zeros(3), "b": {"c": torch.ones(3)}}, [3])
    names["td"] = td
    if any(word in text for word in ("model", "optimizer", "run/")):
        names["model"] = model = Encoder()
        names["optimizer"] = torch.optim.AdamW(model.parameters())
        tenfold.save({"model": model.state_dict(), "step": 7}, "run/ckpt")
    if any(word in text for word in ("ds", "flights")):
        flights = {"id": torch.arange(1000), "price": torch.rand(1000), "origin": ["LIS"] * 1000}
        names["ds"] = tenfold.ingest(flights, "flights")
    if name.startswith("tenfold.safetensors."):
        package = tenfold.safetensors
        module = package.numpy if ".numpy." in name else package
        names |= {"np": numpy, **{public: getattr(module, public) for public in module.__all__}}
    names |= PARTICULAR.get(name, dict)()
    return names


def _plain_weights() -> dict[str, Any]:
    model = Encoder(8)
    tenfold.save(model.state_dict(), "model.safetensors")
    return {"model": model}


def _embedding() -> dict[str, Any]:
    weights = {"embedding": torch.zeros(512, 1024), "weight": torch.zeros(3)}
    tenfold.save(weights, "model.safetensors")
    return {}


def _text_files() -> dict[str, Any]:
    Path("flights.csv").write_text("price,origin\n1.5,LIS\n2.5,\n")
    os.mkdir("logs")
    for path in ("flights-1.jsonl.gz", "logs/1.jsonl.gz"):
        with gzip.open(path, "wt") as file:
            file.writelines(
                json.dumps({"price": i / 2, "origin": "LIS"}) + "\n" for i in range(1000)
            )
    return {}


def _parts() -> dict[str, Any]:
    tenfold.ingest([{"x": 1.0}], "trips/a")
    tenfold.commit_parts("trips")
    return {}


def _log() -> dict[str, Any]:
    return {"ds": tenfold.create("log", {"x": ("float32", (3,)), "name": "string"})}


def _nullable() -> dict[str, Any]:
    schema = {"price": "float32", "origin": {"dtype": "string", "nullable": True}}
    return {"ds": tenfold.ingest([{"price": 1, "origin": None}], "nullable", schema=schema)}


def _training() -> dict[str, Any]:
    model = torch.nn.Linear(84, 1)
    ds = tenfold.ingest({"x": torch.rand(1000, 84), "y": torch.rand(1000, 1)}, "training")
    return {
        "criterion": torch.nn.functional.mse_loss,
        "ds": ds,
        "loader": tenfold.BatchLoader(ds, 64),
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }


def _create() -> dict[str, Any]:
    row = {"x": torch.zeros(3)}
    pixels = torch.zeros(2500, 84, 84, dtype=torch.uint8)
    return {"worker": 1, "pixels": pixels, "row": row, "batch": {"x": torch.rand(8, 3)}}


def _words() -> dict[str, Any]:
    words = tenfold.MappedDict.build({"house": torch.rand(300)}, "words")
    ids = tenfold.MappedDict.build({1: torch.rand(3), 7: torch.rand(3)}, "ids")
    return {"words": words, "ids": ids, "rows": [("house", torch.rand(300))]}


def _ratings() -> dict[str, Any]:
    sparse = pytest.importorskip("scipy.sparse")
    ends = numpy.arange(0, 4_000_001, 20)
    films = numpy.tile(numpy.arange(20, dtype=numpy.int32), 200_000)
    parts = (numpy.ones(4_000_000, numpy.float32), films, ends)
    ratings = sparse.csr_matrix(parts, shape=(200_000, 100_000))
    return {"ratings": ratings}


def _small_matrix() -> dict[str, Any]:
    coordinates = torch.arange(40)
    stars, shape = torch.ones(40), (40, 50)
    m = tenfold.SparseMatrix.from_coo(coordinates, coordinates, stars, shape, path="ratings")
    return {
        "docs": [[3, 1], [], [2, 900]],
        "films": coordinates,
        "m": m,
        "new_users": m.to_torch(),
        "rows": [{1: 1.0}, {}, {999: 0.5}],
        "shape": shape,
        "stars": stars,
        "users": coordinates,
        "weights": torch.rand(50),
    }


def _saved() -> dict[str, Any]:
    td = tenfold.TensorDict({"a": torch.zeros(3), "b": {"c": torch.ones(3)}}, [3])
    files = td.memmap("saved")
    td.save("run/ckpt.tdz")
    return {"files": files}


def _mapped_file() -> dict[str, Any]:
    tenfold.MemoryMappedTensor.from_tensor(torch.arange(3), filename="x.memmap")
    return {}


def _module() -> dict[str, Any]:
    module = torch.nn.Linear(3, 4)
    params = tenfold.TensorDict.from_module(module)
    return {"model": module, "module": module, "params": params, "x": torch.rand(3)}


def _classes() -> dict[str, Any]:
    @tenfold.tensorclass
    class MyData:
        x: torch.Tensor
        name: str = "run"

    @tenfold.tensorclass
    class Sample:
        image: torch.Tensor
        label: str

    return {"MyData": MyData, "Sample": Sample, "obj": MyData(torch.zeros(3), batch_size=[3])}


def _two_steps() -> dict[str, Any]:
    weight = torch.zeros(3)
    tenfold.save({"model": {"weight": weight}}, "run/step_3")
    tenfold.save({"model": {"weight": weight + 0.0078125}}, "run/step_4.safetensors")
    return {}


def _bert() -> dict[str, Any]:
    tenfold.save({"bert.weight": torch.rand(3)}, "model.safetensors")
    return {}


def _pickles() -> dict[str, Any]:
    config = type("Config", (), {"__module__": "my.project"})
    modules = {name: types.ModuleType(name) for name in ("my", "my.project")}
    modules["my.project"].Config = config
    instance = config()
    instance.lr = 0.1
    sys.modules |= modules  # where pickle looks up the class
    try:
        torch.save({"config": instance}, "run.pt")
    finally:
        for name in modules:
            del sys.modules[name]
    torch.save({"weight": Executed()}, "downloaded.pt")
    return {}


def _steps() -> dict[str, Any]:
    model = Encoder()
    state = {"model": model}
    manager = tenfold.CheckpointManager("run", async_save="overlap")
    manager.save(500, state, block=True)
    return {
        "evaluate": lambda path: manager.close(),
        "manager": manager,
        "model": model,
        "num_steps": 3,
        "start": 0,
        "state": state,
    }


def _followed() -> dict[str, Any]:
    """Returns variables of an example; `manager.follow` ends after the saved steps."""
    names = _steps()
    manager = names["manager"]
    steps = iter(manager.all_steps())
    manager.follow = lambda timeout: steps
    return names


def _new_run() -> dict[str, Any]:
    return {"manager": tenfold.CheckpointManager("run")}


def _weights() -> dict[str, Any]:
    tenfold.save({"w": torch.rand(3)}, "run/ckpt")
    return {}


def _prices() -> dict[str, Any]:
    rows = {"price": torch.tensor([12.5, 99.0, 7.0]), "origin": ["LIS", "OPO", "LIS"]}
    return {"ds": tenfold.ingest(rows, "prices")}


PARTICULAR: dict[str, Callable[[], dict[str, Any]]] = {
    **{
        f"tenfold.CheckpointManager.{name}": _steps
        for name in (
            *("delete", "estimate", "hold", "import_step", "metadata", "path", "save"),
            *("set_metrics", "should_save", "verify"),
        )
    },
    **{
        f"tenfold.SparseMatrix.{name}": _small_matrix
        for name in ("cols", "from_scipy", "from_torch", "rows", "save", "to_layout", "will_need")
    },
    **{f"tenfold.MappedDict.{name}": _words for name in ("compact", "rows", "update")},
    "tenfold.distributed.StorageReader": _plain_weights,
    "tenfold.distributed.load": _plain_weights,
    "tenfold.BatchLoader": _training,
    "tenfold.CheckpointManager.export": _steps,
    "tenfold.CheckpointManager.follow": _followed,
    "tenfold.CheckpointManager.lock": _steps,
    "tenfold.CheckpointManager.preemption": _steps,
    "tenfold.CheckpointManager.restore": _steps,
    "tenfold.Dataset.head": _prices,
    "tenfold.Dataset.rename": _prices,
    "tenfold.RngState": _new_run,
    "tenfold.SparseMatrix.sum": _small_matrix,
    "tenfold.SparseMatrix.toarray": _small_matrix,
    "tenfold.set_framework": _weights,
    "tenfold.Dataset.append": _log,
    "tenfold.IterableDataset": _text_files,
    "tenfold.MappedDict.build": _words,
    "tenfold.MappedDict.extend": _words,
    "tenfold.MappedDict.get_many": _words,
    "tenfold.MemoryMappedTensor.from_filename": _mapped_file,
    "tenfold.MemoryMappedTensor.from_storage": _mapped_file,
    "tenfold.Opaque": _pickles,
    "tenfold.Schema": _nullable,
    "tenfold.Snapshot": _module,
    "tenfold.SparseMatrix": _ratings,
    "tenfold.SparseMatrix.append_rows": _small_matrix,
    "tenfold.SparseMatrix.batches": _small_matrix,
    "tenfold.SparseMatrix.build": _small_matrix,
    "tenfold.SparseMatrix.from_coo": _small_matrix,
    "tenfold.SparseStateMapper": _small_matrix,
    "tenfold.TensorClass.from_tensordict": _classes,
    "tenfold.TensorClass.get": _classes,
    "tenfold.TensorClass.load_memmap": _classes,
    "tenfold.TensorDict.load_memmap": _saved,
    "tenfold.TensorDict.make_memmap": _saved,
    "tenfold.TensorDict.to_module": _module,
    "tenfold.accumulate": _training,
    "tenfold.commit_parts": _text_files,
    "tenfold.compact": _parts,
    "tenfold.convert": _bert,
    "tenfold.create": _create,
    "tenfold.diff": _two_steps,
    "tenfold.infer_schema": _text_files,
    "tenfold.ingest": _text_files,
    "tenfold.refresh_archive_checksums": _saved,
    "tenfold.safetensors.load_file": _embedding,
    "tenfold.safetensors.load_model": _plain_weights,
    "tenfold.safetensors.numpy.load_file": _embedding,
    "tenfold.safetensors.safe_open": _embedding,
    "tenfold.scan": _pickles,
    "tenfold.unpack_memmap": _saved,
}
