"""Simulates old versions of torch: DLPack without an exchange API, DTensors of torch 2.4."""

import subprocess
import sys
import textwrap
import types
from pathlib import Path

import pytest
import torch

from tenfold._interop import sharded

# Makes torch.from_dlpack accept only what torch 2.1 accepts: capsules named "dltensor", and the
# pairs of a DLPack type code and a number of bits in READ.
AS_OLD_TORCH = """
import ctypes
import sys

import torch

torch.Tensor.__dlpack_c_exchange_api__ = None
READ = {(0, 8), (0, 16), (0, 32), (0, 64), (1, 8), (2, 16), (2, 32), (2, 64), (4, 16),
        (5, 32), (5, 64), (5, 128)}
pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
read, crossed = torch.from_dlpack, 0


def from_dlpack(capsule):
    global crossed
    if type(capsule).__name__ == "PyCapsule":
        dtype = ctypes.string_at(pointer_of(capsule, b"dltensor") + 20, 4)
        assert (dtype[0], dtype[1]) in READ, tuple(dtype)
        crossed += 1
    return read(capsule)


torch.from_dlpack = from_dlpack
import tenfold
"""


def with_old_torch(program: str, *arguments: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", AS_OLD_TORCH + textwrap.dedent(program), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_dtensors_of_torch_2_4_are_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    class DTensor:
        pass

    package = types.ModuleType("torch.distributed.tensor")  # without the class
    for name in (package.__name__, "torch.distributed._shard.sharded_tensor"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, package.__name__, package)
    private = types.ModuleType("torch.distributed._tensor")
    monkeypatch.delitem(sys.modules, private.__name__, raising=False)
    assert sharded.shards_of(3) is None
    monkeypatch.delitem(sys.modules, package.__name__)
    assert not sharded.has_classes()
    private.DTensor = DTensor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, private.__name__, private)
    assert sharded.has_classes()
    assert sharded.is_dtensor(DTensor())
    assert sharded.shards_of(3) is None


@pytest.mark.parametrize("suffix", [".tdz", ".pt", ".safetensors", ""])
def test_every_dtype_is_saved_and_loaded(tmp_path: Path, suffix: str) -> None:
    answer = with_old_torch(
        """
        from tenfold._interop import arrays

        tree = {
            name: torch.arange(48, dtype=torch.uint8).view(getattr(torch, name)).reshape(3, -1)
            for name in sorted(arrays.DTYPES)
            if hasattr(torch, name)
            and not (name.startswith("complex") and sys.argv[1].endswith("tensors"))
        }
        tree["bool"] = tree["uint8"] % 2 == 0
        tree["scalar"] = torch.tensor(True)
        tree["empty"] = torch.zeros(0, 3, dtype=torch.uint16)
        tree["turned"] = torch.arange(6, dtype=torch.float32).reshape(2, 3).T
        tenfold.save(tree, sys.argv[1])
        back = tenfold.load(sys.argv[1])
        assert crossed >= len(tree) - 1, crossed
        for name, tensor in tree.items():
            assert back[name].dtype == tensor.dtype and back[name].shape == tensor.shape, name
            assert bytes(back[name].contiguous().flatten().view(torch.uint8)) == bytes(
                tensor.contiguous().flatten().view(torch.uint8)
            ), name
        """,
        tmp_path / f"tree{suffix}",
    )
    assert answer == ""


def test_rows_batches_and_dictionaries_are_read(tmp_path: Path) -> None:
    with_old_torch(
        """
        folder = sys.argv[1]
        rows = [{"x": i, "y": [0.5 * i] * 2, "ok": i % 2 == 0} for i in range(10)]
        data = tenfold.ingest(rows, folder + "/rows")
        assert data[3]["x"] == 3 and data[3]["ok"].dtype == torch.bool
        assert data[torch.tensor([1, -1])]["x"].tolist() == [1, 9]
        assert data.take(torch.tensor([4]))[0]["x"] == 4
        batches = list(tenfold.BatchLoader(data, batch_size=4))
        assert torch.cat([b["x"] for b in batches]).tolist() == list(range(10))
        assert [b["ok"].dtype for b in batches] == [torch.bool] * 3
        words = tenfold.MappedDict.build({"a": torch.ones(2), "b": torch.zeros(2)}, folder + "/d")
        assert words["a"].tolist() == [1, 1]
        assert crossed > 0
        """,
        tmp_path,
    )


def test_mapped_trees_are_written_and_flushed(tmp_path: Path) -> None:
    with_old_torch(
        """
        td = tenfold.TensorDict({"x": torch.ones(2)}).memmap_(sys.argv[1])
        sizes = torch.tensor([[2], [3]])
        td.make_memmap("n", sizes, dtype=torch.float32)
        td["x"].fill_(2)
        td["x"].flush()
        td.flush()
        back = tenfold.load_memmap(sys.argv[1])
        assert back["x"].tolist() == [2, 2]
        assert [part.shape[0] for part in back["n"].unbind()] == [2, 3]
        assert crossed > 0
        """,
        tmp_path / "tree",
    )


def test_sharded_states_are_saved_and_loaded(tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed.checkpoint")
    with_old_torch(
        """
        import tenfold.distributed

        state = {"w": torch.arange(6.0).reshape(2, 3), "ok": torch.tensor([True, False])}
        tenfold.distributed.save(state, sys.argv[1], no_dist=True)
        assert tenfold.load(sys.argv[1])["w"].tolist() == state["w"].tolist()
        found = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
        tenfold.distributed.load(found, sys.argv[1], no_dist=True)
        assert all(torch.equal(found[name], state[name]) for name in state)
        """,
        tmp_path / "state.safetensors",
    )


def test_parameters_stay_parameters(tmp_path: Path) -> None:
    with_old_torch(
        """
        tenfold.save({"w": torch.nn.Parameter(torch.ones(2))}, sys.argv[1])
        assert type(tenfold.load(sys.argv[1])["w"]) is torch.nn.Parameter
        """,
        tmp_path / "w.pt",
    )


@pytest.mark.skipif(not hasattr(torch, "float8_e8m0fnu"), reason="torch has no float8_e8m0fnu")
def test_dtype_missing_in_torch_raises_an_error_naming_the_leaf(tmp_path: Path) -> None:
    answer = with_old_torch(
        """
        tenfold.save({"w": torch.zeros(4).to(torch.float8_e8m0fnu)}, sys.argv[1])
        del torch.float8_e8m0fnu
        try:
            tenfold.load(sys.argv[1])
        except tenfold.UnsupportedError as error:
            print(error)
        """,
        tmp_path / "one.safetensors",
    )
    assert "one.safetensors: w: torch" in answer
    assert "has no float8_e8m0fnu: expected a newer torch" in answer


@pytest.mark.skipif(not hasattr(torch, "float8_e8m0fnu"), reason="torch has no float8_e8m0fnu")
@pytest.mark.parametrize("name", ["two.pt", "two.tdz"])
def test_missing_dtype_of_a_shared_storage_raises_an_error_naming_the_leaf(
    tmp_path: Path, name: str
) -> None:
    answer = with_old_torch(
        """
        x = torch.zeros(4, dtype=torch.uint8)
        tenfold.save({"x": x, "w": x.view(torch.float8_e8m0fnu)}, sys.argv[1])
        del torch.float8_e8m0fnu
        try:
            tenfold.load(sys.argv[1])
        except tenfold.UnsupportedError as error:
            print(error)
        """,
        tmp_path / name,
    )
    assert f"{name}: w: torch" in answer
    assert "has no float8_e8m0fnu: expected a newer torch" in answer
