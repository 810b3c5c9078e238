"""Calls without torch, run in the environment without torch that `make deps` makes."""

import os
from pathlib import Path

import pytest
import torch

import tenfold
from helpers import make_tensor
from paths import REPOSITORY

# tests/wheel/run.py sets TENFOLD_PYTHON_WITHOUT_TORCH to a Python with the wheel installed.
PYTHON = Path(
    os.environ.get("TENFOLD_PYTHON_WITHOUT_TORCH", REPOSITORY / ".venvs/notorch/bin/python")
)

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="no .venvs/notorch: make deps")


@pytest.fixture
def without_torch(run_python, tmp_path_factory):
    def run(program, *arguments):
        prelude = (
            "import os, sys, pathlib, pytest\n"
            "import numpy as np, tenfold\n"
            "assert 'torch' not in sys.modules\n"
            f"where = pathlib.Path({str(tmp_path_factory.mktemp('where'))!r})\n"
        )
        environment = {}
        if "PYTHONPATH" in os.environ:
            environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
        return run_python(prelude + program, *arguments, python=PYTHON, environment=environment)

    return run


def test_arrays_round_trip(without_torch):
    without_torch(
        """
tree = {"a": np.arange(6, dtype=np.int16).reshape(2, 3), "b": [np.float32(1.5), 3], "c": {0: "x"},
        "d": np.zeros((0, 2)), "e": np.array([1 + 2j], np.complex64)}
for name in ("folder", "x.safetensors"):
    tenfold.save(tree, where / name)
    found = tenfold.load(where / name)
    assert type(found["a"]) is np.ndarray and found["a"].dtype == np.int16
    assert (found["a"] == tree["a"]).all()
    assert found["b"][0].dtype == np.float32 and found["b"][0].shape == () and found["b"][0] == 1.5
    assert found["b"][1] == 3 and found["c"] == {0: "x"}
    assert found["d"].shape == (0, 2) and found["d"].dtype == np.float64
    assert (found["e"] == tree["e"]).all()
"""
    )


def test_arrays_are_read_only_by_default(without_torch):
    without_torch(
        """
tenfold.save({"x": np.zeros(3), "big": np.zeros(100_000)}, where / "saved")
for key in ("x", "big"):
    assert not tenfold.load(where / "saved")[key].flags.writeable
    with pytest.raises(ValueError):
        tenfold.open(where / "saved")[key].flags.writeable = True
    private = tenfold.load(where / "saved", mode="c")[key]
    private[0] = 5
    assert tenfold.load(where / "saved")[key][0] == 0
    shared = tenfold.load(where / "saved", mode="r+")[key]
    shared[1] = 7
    assert tenfold.load(where / "saved")[key][1] == 7
"""
    )


def test_files_saved_with_torch_are_read(without_torch, tmp_path):
    tree = {"f": torch.arange(3.0), "h": make_tensor((4,), torch.bfloat16), "t": torch.ones(2)}
    tenfold.save({**tree, "tied": tree["t"]}, tmp_path / "saved")
    without_torch(
        """
import ml_dtypes
found = tenfold.load(sys.argv[1])
assert found["f"].tolist() == [0, 1, 2]
assert found["h"].dtype == ml_dtypes.bfloat16
assert found["tied"] is found["t"]
""",
        tmp_path / "saved",
    )


def test_without_ml_dtypes_the_error_names_it(without_torch, tmp_path):
    tenfold.save({"a": {"h": torch.zeros(2, dtype=torch.bfloat16)}}, tmp_path / "saved")
    without_torch(
        """
sys.modules["ml_dtypes"] = None
with pytest.raises(tenfold.UnsupportedError, match="h: numpy has no bfloat16: .* ml_dtypes"):
    tenfold.load(sys.argv[1])
""",
        tmp_path / "saved",
    )


def test_dtype_missing_in_numpy_raises_an_error_naming_torch(without_torch, tmp_path):
    tenfold.save({"h": torch.zeros(2, dtype=torch.complex32)}, tmp_path / "saved")
    without_torch(
        """
with pytest.raises(tenfold.UnsupportedError, match="h: numpy has no complex32: expected torch"):
    tenfold.load(sys.argv[1])
""",
        tmp_path / "saved",
    )


@pytest.mark.filterwarnings("ignore")
def test_nested_tensors_are_lists_of_arrays(without_torch, tmp_path):
    nested = torch.nested.nested_tensor([torch.zeros(2, 3), torch.ones(1, 3)])
    tenfold.save({"n": nested}, tmp_path / "saved")
    without_torch(
        """
found = tenfold.load(sys.argv[1])["n"]
assert [part.shape for part in found] == [(2, 3), (1, 3)]
assert found[1].sum() == 3
""",
        tmp_path / "saved",
    )


def test_tensordict_is_mapped_and_indexed(without_torch):
    without_torch(
        """
td = tenfold.TensorDict({"x": np.arange(6).reshape(3, 2), "n": {"y": np.ones(3)}, "s": "t"}, [3])
td["n", "z"] = np.zeros((3, 1))
td.save(where / "td")
found = tenfold.load(where / "td")
assert isinstance(found, tenfold.TensorDict) and found.batch_size == (3,)
assert found[1]["x"].tolist() == [2, 3] and found[1].batch_size == ()
assert found[[0, 2]]["n", "y"].shape == (2,)
assert found[np.array([True, False, True])].batch_size == (2,)
assert found[..., 0:1].batch_size == (1,)
assert found.keys(True, True) == ["x", ("n", "y"), ("n", "z")]
assert "x: i64[2]" in repr(found)
files = td.memmap(where / "files")
files["x"][0, 0] = 42
assert tenfold.open(where / "files")["x"][0, 0] == 42
with pytest.raises(RuntimeError, match="batch dimension mismatch"):
    td["bad"] = np.zeros(4)
"""
    )


def test_verify_convert_and_load_into_work(without_torch):
    without_torch(
        """
tenfold.save({"a": {"x": np.arange(4.0)}}, where / "saved")
assert tenfold.verify(where / "saved").ok
tenfold.convert(where / "saved", where / "x.safetensors", dtype=np.float32)
x = np.zeros(4, np.float32)
assert tenfold.load_into({"a": {"x": x}}, where / "x.safetensors").ok
assert x.tolist() == [0, 1, 2, 3]
"""
    )


def test_load_onto_a_device_raises_an_error_naming_the_argument_and_torch(without_torch):
    without_torch(
        """
tenfold.save({"x": np.zeros(1)}, where / "saved")
for name in ("map_location", "device"):
    with pytest.raises(ImportError, match=f"load: {name}: expected the package torch"):
        tenfold.load(where / "saved", **{name: "cuda"})
"""
    )


def test_rows_are_streamed_and_mapped_as_arrays(without_torch):
    without_torch(
        """
import itertools, json
ds = tenfold.Dataset({"id": np.arange(20), "x": np.zeros((20, 3), np.float32)})
stream = tenfold.IterableDataset(ds, shuffle=True)
seen = [int(row["id"]) for row in itertools.islice(stream, 5)]
again = tenfold.IterableDataset(ds, shuffle=True)
again.load_state_dict(stream.state_dict())
assert sorted(seen + [int(row["id"]) for row in again]) == list(range(20))
records = [
    {"id": i, "tokens": list(range(i % 3)), "name": None if i % 2 else "a"} for i in range(9)
]
(where / "data.jsonl").write_text("".join(json.dumps(record) + "\\n" for record in records))
rows = list(tenfold.IterableDataset(where / "data.jsonl"))
assert rows[5]["id"].shape == () and rows[5]["id"] == 5
assert rows[5]["tokens"].tolist() == [0, 1] and rows[5]["name"] == "" and not rows[5]["name.valid"]
mapped = ds.map(lambda row: {"twice": row["id"] * 2, "name": "n"})
assert mapped[[3, 1]]["twice"].tolist() == [6, 2] and mapped[3]["name"] == "n"
with pytest.raises(tenfold.UnsupportedError, match="expected an installed torch"):
    tenfold.BatchLoader(ds, 2, device="cpu")
"""
    )


def test_default_row_of_a_mapper_holds_its_numbers(without_torch):
    without_torch(
        """
def mapped(dtype, default):
    matrix = tenfold.SparseMatrix.from_coo([0], [1], np.ones(1, dtype), (1, 3))
    return tenfold.SparseStateMapper(["a"], matrix, default)("b")

row = np.array([0.5, 1.0, 2.0])
for dtype, default, expected in ((np.float64, [0.1, 1, 2], [0.1, 1, 2]), (np.float32, row, row),
                                 (np.int64, 7, [7] * 3), (np.int64, 2.0, [2] * 3),
                                 (np.float32, np.inf, [np.inf] * 3), (np.complex64, 1j, [1j] * 3)):
    made = mapped(dtype, default)
    assert made.dtype == dtype and made.tolist() == list(expected)
for dtype, default in ((np.int64, 0.5), (np.int64, np.nan), (np.float32, 1e300), (np.float32, 1j),
                       (np.int64, 2.0**63), (np.int8, [0, 1, 128])):
    with pytest.raises(ValueError, match="default: expected numbers that .* (can hold|holds)"):
        mapped(dtype, default)
for default in ("x", {}, [[1], [2, 3]], np.array(["a"])):
    with pytest.raises(TypeError, match="default: expected numbers"):
        mapped(np.float64, default)
"""
    )


def test_rows_of_values_and_names_are_indexed(without_torch):
    without_torch(
        """
from tenfold import NonTensorStack, TensorDict
td = TensorDict({"x": np.zeros((3, 4)), "s": NonTensorStack("a", "b", "c"), "t": "t"}, [3],
                names=["row"])
assert td[np.array([True, False, True])]["s"] == ["a", "c"]
for index in ([0, 1], range(2), [True, True, False]):
    assert td[index].names == ["row"] and td[index]["s"] == ["a", "b"]
assert td[[]].batch_size == (0,)
td[0] = {"s": "q", "t": "u"}
assert td["s"] == ["q", "b", "c"] and td["t"] == ["u", "t", "t"]
for call in (lambda: td.unbind(0), lambda: td.get("s").unbind(0),
             lambda: td.get("s").unsqueeze(0), lambda: td.get("s").expand(2, 3)):
    with pytest.raises(ImportError, match="expected the package torch"):
        call()
"""
    )


def test_methods_of_tensors_need_torch(without_torch):
    without_torch(
        """
from tenfold import NonTensorStack, TensorDict, lazy_stack

def make():
    return TensorDict({"a": np.arange(6.0).reshape(2, 3), "v": NonTensorStack("a", "b")}, [2])

def grid():
    return TensorDict({"n": {"a": np.arange(6.0).reshape(2, 3)}}, [2, 3])

calls = [
    (make, "repeat(2)"), (make, "tile(2)"), (make, "split(1)"), (make, "chunk(2)"),
    (make, "unsqueeze(0)"), (make, "atleast_2d()"), (make, "atleast_3d()"), (make, "flip(0)"),
    (make, "flipud()"), (make, "roll(1, 0)"), (make, "is_contiguous()"), (make, "contiguous()"),
    (make, "detach()"), (make, "detach_()"), (make, "is_floating_point()"), (make, "grad"),
    (make, "requires_grad"), (make, "requires_grad_()"), (make, "zero_grad()"), (make, "zero_()"),
    (make, "masked_fill(np.array([True, False]), 0)"), (make, "softmax(0)"),
    (make, "new_zeros(2)"), (make, "new_full((2,), 1)"), (make, "pin_memory()"),
    (make, "share_memory_()"), (make, "state_dict()"), (make, "to_struct_array()"),
    (grid, "transpose(0, 1)"), (grid, "swapaxes(0, 1)"), (grid, "permute(1, 0)"),
    (grid, "movedim(0, 1)"), (grid, "flatten()"), (grid, "rot90()"), (grid, "fliplr()"),
    (lambda: lazy_stack([make()]), "set('b', np.zeros((1, 2)))"),
    (lambda: lazy_stack([make()]), "where(np.array([True]), 0)"),
    (lambda: lazy_stack([make()]), "unsqueeze(0)"),
    (lambda: TensorDict({"v": NonTensorStack("a", "b")}, [2]), "flip(0)"),
    (lambda: TensorDict({"v": NonTensorStack("a")}, [1]), "squeeze(0)"),
]
for build, call in calls:
    td = build()
    with pytest.raises(ImportError, match=": expected the package torch"):
        eval("td." + call)

assert make().squeeze(0).batch_size == (2,)
assert TensorDict({"a": np.zeros((1, 3))}, [1]).squeeze(0)["a"].shape == (3,)
"""
    )
