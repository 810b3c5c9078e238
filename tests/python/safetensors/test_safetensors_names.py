"""`tenfold.safetensors` compared with the package safetensors, call by call."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tenfold
import tenfold.safetensors as ours
import tenfold.safetensors.numpy as ours_numpy
from helpers import DTYPES, assert_same, make_tensor

real_package = pytest.importorskip("safetensors")
real = pytest.importorskip("safetensors.torch")
real_numpy = pytest.importorskip("safetensors.numpy")

WITHOUT_NAME = {torch.complex32, torch.complex128}
SHARED = [dtype for dtype in DTYPES if dtype not in WITHOUT_NAME]


def tensors() -> dict[str, torch.Tensor]:
    made = {f"t.{dtype}": make_tensor((3, 4), dtype) for dtype in SHARED}
    return {**made, "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3), "é": torch.ones(1)}


@pytest.mark.parametrize(
    "name", ["save_file", "load_file", "save", "load", "save_model", "load_model"]
)
def test_signatures_match_those_of_safetensors(name: str) -> None:
    def names(module: Any) -> list[Any]:
        parameters = inspect.signature(getattr(module, name)).parameters.values()
        return [(p.name, p.kind, p.default) for p in parameters]

    assert names(ours) == names(real)
    if hasattr(real_numpy, name):
        assert names(ours_numpy) == names(real_numpy)


@pytest.mark.parametrize(("writer", "reader"), [(ours, real), (real, ours), (ours, ours)])
def test_files_and_bytes_are_interchangeable(tmp_path: Path, writer: Any, reader: Any) -> None:
    path = tmp_path / "m.safetensors"
    # The `load` of the package safetensors supports neither float4 nor e8m0.
    without = ("float4", "e8m0") if real in (writer, reader) else ()
    made = {name: t for name, t in tensors().items() if not any(part in name for part in without)}
    writer.save_file(made, path, {"k": "v"})
    found = reader.load_file(path)
    assert set(found) == set(made)
    for name, tensor in made.items():
        assert_same(found[name], tensor)
    again = reader.load(writer.save(made, {"k": "v"}))
    assert set(again) == set(made)
    for name, tensor in made.items():
        assert_same(again[name], tensor)


def test_files_have_checksums_and_are_replaced_atomically(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    ours.save_file({"x": torch.arange(5)}, path)
    mapped = ours.load_file(path)
    ours.save_file({"x": mapped["x"] + 1, "y": mapped["x"].clone()}, path)
    assert mapped["x"].tolist() == [0, 1, 2, 3, 4]
    assert ours.load_file(path)["x"].tolist() == [1, 2, 3, 4, 5]
    report = tenfold.verify(path)
    assert report.ok
    assert report.num_checksums > 0
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


@pytest.mark.parametrize("framework", ["pt", "np"])
def test_safe_open_matches_safetensors(tmp_path: Path, framework: str) -> None:
    path = tmp_path / "m.safetensors"
    made = {"b": torch.arange(24.0).view(2, 3, 4), "a": torch.arange(3, dtype=torch.int8)}
    real.save_file(made, path, {"format": "pt", "k": "v"})
    with (
        real_package.safe_open(path, framework) as theirs,
        ours.safe_open(path, framework) as mine,
    ):
        assert list(mine.keys()) == list(theirs.keys())
        assert list(mine.offset_keys()) == list(theirs.offset_keys())
        assert mine.metadata() == theirs.metadata()
        for name in made:
            assert type(mine.get_tensor(name)) is type(theirs.get_tensor(name))
            assert mine.get_tensor(name).tolist() == theirs.get_tensor(name).tolist()
        for index in (0, -1, slice(1, 2), (0, slice(None), 1), ..., (slice(None), slice(0, 2))):
            mine_part, their_part = mine.get_slice("b")[index], theirs.get_slice("b")[index]
            assert mine_part.tolist() == their_part.tolist()
        assert mine.get_slice("b").get_shape() == theirs.get_slice("b").get_shape()
        assert mine.get_slice("a").get_dtype() == theirs.get_slice("a").get_dtype()
        for call in ("get_tensor", "get_slice"):
            with pytest.raises(real_package.SafetensorError, match="nope"):
                getattr(theirs, call)("nope")
            with pytest.raises(ours.SafetensorError, match="no tensor 'nope'") as caught:
                getattr(mine, call)("nope")
            assert isinstance(caught.value, KeyError)
        found = mine.get_tensors()
    assert found["b"].tolist() == made["b"].tolist()  # returned tensors outlive the handle
    with pytest.raises(ours.SafetensorError, match="the file is closed"):
        mine.get_tensor("b")
    with pytest.raises(real_package.SafetensorError):
        theirs.get_tensor("b")


def test_metadata_round_trips_and_is_none_by_default(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    for metadata in (None, {"format": "np", "k": "é"}):
        ours.save_file({"x": torch.ones(2)}, path, metadata)
        assert ours.safe_open(path, "pt").metadata() == metadata
        theirs = real_package.safe_open(path, "pt").metadata()
        theirs.pop("tenfold_xxh3")
        assert (theirs or None) == metadata
    with pytest.raises(TypeError, match="metadata: expected str keys and values, found 'a': 1"):
        ours.save_file({"x": torch.ones(2)}, path, {"a": 1})
    assert ours.safe_open(path, "pt").metadata() == {"format": "np", "k": "é"}


SHARING = torch.arange(6.0)
REFUSED: dict[str, tuple[Any, type[Exception]]] = {
    "no dict": ([torch.ones(2)], ValueError),
    "no tensor": ({"a": 1}, ValueError),
    "sparse": ({"a": torch.eye(3).to_sparse()}, ValueError),
    "not contiguous": ({"a": torch.arange(6).view(2, 3).T}, ValueError),
    "one tensor twice": ({"a": SHARING, "b": SHARING}, RuntimeError),
    "overlapping views": ({"a": SHARING[:4], "b": SHARING[2:]}, RuntimeError),
    "key": ({1: torch.ones(2)}, TypeError),
}


@pytest.mark.parametrize("case", REFUSED)
def test_error_types_match_safetensors_and_nothing_is_written(tmp_path: Path, case: str) -> None:
    value, kind = REFUSED[case]
    for module, path in ((real, tmp_path / "theirs"), (ours, tmp_path / "mine")):
        with pytest.raises(kind):
            module.save_file(value, path)
        with pytest.raises(kind):
            module.save(value)
        assert not path.exists()


def test_disjoint_views_of_one_storage_are_not_shared_memory(tmp_path: Path) -> None:
    made = {"a": SHARING[:3], "b": SHARING[3:], "empty": SHARING[3:3]}
    for module in (real, ours):
        module.save_file(made, tmp_path / "m")
        assert module.load_file(tmp_path / "m")["b"].tolist() == [3, 4, 5]


def test_damaged_and_missing_files_raise_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ours.safe_open(tmp_path / "nothing", "pt")
    path = tmp_path / "bad"
    path.write_bytes(b"abc")
    for call in (lambda: ours.load_file(path), lambda: ours.load(b"abc")):
        with pytest.raises(ours.SafetensorError) as caught:
            call()
        assert isinstance(caught.value, tenfold.CorruptFileError)
    with pytest.raises(TypeError, match="expected bytes, found str"):
        ours.load("abc")


def test_other_frameworks_backends_and_devices_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m"
    ours.save_file({"x": torch.ones(2)}, path)
    with pytest.raises(tenfold.UnsupportedError, match='expected "pt" or "np"'):
        ours.safe_open(path, "tf")
    with pytest.raises(tenfold.UnsupportedError, match='expected "mmap" or "pread"'):
        ours.safe_open(path, "pt", backend="zz")
    with pytest.raises(tenfold.UnsupportedError, match='device: expected "cpu"'):
        ours.safe_open(path, "np", device="cuda:0")
    with pytest.raises(ours.SafetensorError, match="foo"):
        ours.safe_open(path, "pt", device="foo")
    assert ours.load_file(path, device="meta")["x"].is_meta
    copied = ours.load_file(path, backend="pread")["x"]
    assert copied.tolist() == [1, 1]


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(5, 3)
        self.head = torch.nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.other = torch.nn.Linear(3, 2)


@pytest.mark.parametrize(("writer", "reader"), [(ours, real), (real, ours), (ours, ours)])
def test_tied_weights_are_interchangeable(tmp_path: Path, writer: Any, reader: Any) -> None:
    path = tmp_path / "m.safetensors"
    model, other = Tied(), Tied()
    writer.save_model(model, path)
    assert reader.load_model(other, path) == (set(), [])
    assert_same(dict(other.state_dict()), dict(model.state_dict()))
    assert other.head.weight is other.embedding.weight
    names = {"embedding.weight", "other.weight", "other.bias"}
    assert set(reader.load_file(path)) == set(real.load_file(path)) == names
    assert real_package.safe_open(path, "pt").metadata()["head.weight"] == "embedding.weight"
    assert set(tenfold.load(path)) == names | {"head.weight"}


def test_load_model_errors_match_those_of_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    ours.save_file({"other.weight": torch.ones(2, 3), "more": torch.ones(1)}, path)
    texts = []
    for module in (real, ours):
        with pytest.raises(RuntimeError) as caught:
            module.load_model(Tied(), path)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    assert ours.load_model(Tied(), path, strict=False) == real.load_model(
        Tied(), path, strict=False
    )


def test_save_model_refuses_partially_overlapping_buffers(tmp_path: Path) -> None:
    model = torch.nn.Module()
    model.register_buffer("a", SHARING[:4])
    model.register_buffer("b", SHARING[2:])
    for module in (real, ours):
        with pytest.raises(RuntimeError):
            module.save_model(model, tmp_path / "m")
    ours.save_file({"a": SHARING[:4]}, tmp_path / "m")
    with pytest.raises(RuntimeError, match=r"load_model: \['a', 'b'\]: these tensors share memory"):
        ours.load_model(model, tmp_path / "m")


class Extra(torch.nn.Module):
    def get_extra_state(self) -> dict[str, int]:
        return {"a": 1}

    def set_extra_state(self, state: Any) -> None:
        raise AssertionError(state)


NESTED = [torch.ones(2), torch.ones(3)]
NOT_DENSE = {
    "coo": torch.eye(2).to_sparse(),
    "csr": torch.eye(2).to_sparse_csr(),
    "nested": torch.nested.nested_tensor(NESTED),
    "jagged": torch.nested.nested_tensor(NESTED, layout=torch.jagged),
    "extra": None,
}


@pytest.mark.parametrize("case", NOT_DENSE)
def test_save_model_refuses_and_load_model_skips_what_is_not_a_dense_tensor(
    tmp_path: Path, case: str
) -> None:
    model = torch.nn.Module() if NOT_DENSE[case] is not None else Extra()
    name = "buffer" if NOT_DENSE[case] is not None else "_extra_state"
    if NOT_DENSE[case] is not None:
        model.register_buffer(name, NOT_DENSE[case])
    model.register_buffer("a", torch.zeros(2))
    with pytest.raises(ValueError, match=f"^key '{name}': expected a (dense|torch) tensor"):
        ours.save_model(model, tmp_path / "m")
    assert not (tmp_path / "m").exists()
    ours.save_file({"a": torch.ones(2)}, tmp_path / "m")
    assert ours.load_model(model, tmp_path / "m", strict=False) == ({name}, [])
    assert model.a.tolist() == [1, 1]


def test_save_model_makes_tensors_contiguous_unless_disabled(tmp_path: Path) -> None:
    model = torch.nn.Module()
    model.register_buffer("a", torch.arange(6).view(2, 3).T)
    ours.save_model(model, tmp_path / "m")
    assert ours.load_file(tmp_path / "m")["a"].tolist() == model.a.tolist()
    with pytest.raises(ValueError, match=r"contiguous.*force_contiguous=True"):
        ours.save_model(model, tmp_path / "m", force_contiguous=False)


def test_save_model_names_force_contiguous_for_tensors_that_are_not_contiguous_only(
    tmp_path: Path,
) -> None:
    model = torch.nn.Module()
    model.register_buffer("a", torch.ones(2, dtype=torch.complex128))
    with pytest.raises(tenfold.UnsupportedError) as raised:
        ours.save_model(model, tmp_path / "m", force_contiguous=False)
    assert "force_contiguous" not in str(raised.value)
    model.a = torch.ones(2)
    described = {"tensordict": "{}"}
    with pytest.raises(ValueError, match="tensordict") as refused:
        ours.save_model(model, tmp_path / "m", described, force_contiguous=False)
    assert "force_contiguous" not in str(refused.value)


def test_numpy_arrays_are_interchangeable(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    shared = np.arange(4)
    made = {"x": np.arange(6.0).reshape(2, 3), "a": shared, "b": shared}
    made["big"] = np.arange(3, dtype=">i4")
    ours_numpy.save_file(made, path, {"k": "v"})
    for found in (
        real_numpy.load_file(path),
        ours_numpy.load_file(path),
        ours_numpy.load(ours_numpy.save(made)),
        real_numpy.load(ours_numpy.save(made)),
    ):
        assert set(found) == set(made)
        for name, array in made.items():
            assert type(found[name]) is np.ndarray
            np.testing.assert_array_equal(found[name], array)
    assert not ours_numpy.load_file(path)["x"].flags.writeable
    assert ours_numpy.load_file(path, backend="pread")["x"].flags.writeable
    with pytest.raises(ValueError, match="key 'x': expected a numpy array, found list"):
        ours_numpy.save_file({"x": [1]}, path)


def test_numpy_arrays_with_other_strides_are_stored_in_c_order(tmp_path: Path) -> None:
    transposed = np.arange(6).reshape(2, 3).T
    ours_numpy.save_file({"x": transposed}, tmp_path / "m")
    np.testing.assert_array_equal(real_numpy.load_file(tmp_path / "m")["x"], transposed)


def test_numpy_functions_do_not_import_torch(run_python: Any, tmp_path: Path) -> None:
    run_python(
        """
import sys
import numpy as np
from tenfold.safetensors.numpy import load_file, safe_open, save, load, save_file
save_file({"x": np.arange(3)}, sys.argv[1])
assert load_file(sys.argv[1])["x"].tolist() == [0, 1, 2]
assert load(save({"x": np.ones(2)}))["x"].tolist() == [1, 1]
assert safe_open(sys.argv[1], "np").get_slice("x")[1:].tolist() == [1, 2]
assert "torch" not in sys.modules
""",
        tmp_path / "m",
    )


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="torch has no float4")
def test_a_dtype_that_numpy_lacks_names_the_framework_to_use(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    ours.save_file({"w": torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)}, path)
    with pytest.raises(tenfold.UnsupportedError, match='use the framework "torch"'):
        ours.safe_open(path, "np").get_tensor("w")


def test_torch_that_cannot_be_imported_is_an_import_error(tmp_path: Path, run_python: Any) -> None:
    path = tmp_path / "m.safetensors"
    ours.save_file({"w": torch.ones(2)}, path)
    program = """
import sys
sys.modules["torch"] = None
from pathlib import Path
from tenfold.safetensors import load, load_file, safe_open
from tenfold.safetensors.numpy import load_file as load_arrays

path = sys.argv[1]
calls = [
    lambda: safe_open(path, "pt"), lambda: load_file(path), lambda: load(Path(path).read_bytes())
]
for call in calls:
    try:
        call()
    except ImportError as error:
        print(error)
print(load_arrays(path)["w"].tolist(), safe_open(path, "np").get_tensor("w").tolist())
"""
    message = "tenfold.safetensors: expected the package torch, which cannot be imported"
    assert run_python(program, path).splitlines() == [message] * 3 + ["[1.0, 1.0] [1.0, 1.0]"]


def test_names_with_lone_surrogates_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    path, name = tmp_path / "m.safetensors", "a\ud800"
    for module, value in ((ours, torch.ones(1)), (ours_numpy, np.ones(1))):
        with pytest.raises(tenfold.UnsupportedError):
            module.save({name: value})  # type: ignore[attr-defined]
        with pytest.raises(tenfold.UnsupportedError):
            module.save_file({name: value}, path)  # type: ignore[attr-defined]
        assert list(tmp_path.iterdir()) == []
