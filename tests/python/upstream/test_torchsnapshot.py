"""tenfold and torchsnapshot read each other's snapshots; examples of tensordict's docs run."""

import glob
import pathlib
import subprocess
import sys
import textwrap
import uuid
import warnings
from collections import OrderedDict

import pytest
import torch

import tenfold
from peak_memory import PEAK_OF

HERE = pathlib.Path(__file__).parent
ENVIRONMENT = HERE.parents[2] / ".venvs" / "torchsnapshot"


@pytest.fixture(scope="module")
def torchsnapshot():
    """Yields torchsnapshot, from a separate environment whose packages are searched last."""
    packages = glob.glob(str(ENVIRONMENT / "lib" / "python*" / "site-packages"))
    sys.path.extend(packages)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield pytest.importorskip("torchsnapshot", reason="no .venvs/torchsnapshot: make deps")
    finally:
        for package in packages:
            sys.path.remove(package)


@pytest.fixture(autouse=True)
def _ignore_torchsnapshot_warnings():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*TypedStorage is deprecated.*")
        yield


def trained():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.rand(4, 5)).sum().backward()
    optimizer.step()
    return model, optimizer


def values():
    return {
        "raw": [torch.ones(2, dtype=dtype) for dtype in (torch.bfloat16, torch.int8, torch.bool)],
        "complex": torch.tensor([1 + 2j, -1j]),
        "scalar": torch.tensor(7),
        "strided": torch.arange(12.0).reshape(3, 4).t(),
        "empty": torch.zeros(0, 4),
        "none": None,
        "betas": (0.9, (1, "two")),
        "tensors": (torch.ones(2), [torch.zeros(1)]),
        "numbers": {0: 1.5, -7: torch.ones(1)},
        "ordered": OrderedDict(b=1, a=True),
        "large": 2**80,
        "bytes": b"\x00\xff",
        "\U0001f600": "\U0001f600 \x7f\x85\u2028",
        "we/ird%k": [],
    }


def same(found, expected):
    import helpers

    helpers.assert_same(found, expected)
    return True


def test_torchsnapshot_restores_our_snapshots(torchsnapshot, tmp_path):
    model, optimizer = trained()
    state = tenfold.StateDict(values())
    tenfold.Snapshot.take(tmp_path / "s", {"model": model, "optim": optimizer, "state": state})
    torch.manual_seed(1)
    other = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.BatchNorm1d(3))
    other_optimizer = torch.optim.Adam(other.parameters(), lr=9.0)
    found = torchsnapshot.StateDict(strided=torch.zeros(4, 3))
    torchsnapshot.Snapshot(str(tmp_path / "s")).restore(
        {"model": other, "optim": other_optimizer, "state": found}
    )
    assert same(other.state_dict(), OrderedDict(model.state_dict()))
    assert same(other_optimizer.state_dict(), optimizer.state_dict())
    assert list(found) == ["strided"] + [key for key in values() if key != "strided"]
    for key, value in values().items():
        assert same(found[key], value)


def test_torchsnapshot_restores_every_tied_tensor(torchsnapshot, tmp_path):
    """If entries share bytes of a file, torchsnapshot's batched reads fill only the last entry."""
    tied = torch.arange(6.0).reshape(2, 3)
    state = tenfold.StateDict(a=tied, b=tied, c=tied.view(-1), d=torch.ones(2))
    tenfold.Snapshot.take(tmp_path / "s", {"state": state})
    found = torchsnapshot.StateDict(**{key: torch.zeros_like(state[key]) for key in state})
    torchsnapshot.Snapshot(str(tmp_path / "s")).restore({"state": found})
    for key, value in state.items():
        assert torch.equal(found[key], value), key
    again = tenfold.load(tmp_path / "s")["state"]
    assert again["a"].data_ptr() == again["b"].data_ptr()


def test_snapshots_of_torchsnapshot_are_restored(torchsnapshot, tmp_path):
    model, optimizer = trained()
    expected = {key: value for key, value in values().items() if key not in ("empty", "\U0001f600")}
    state = torchsnapshot.StateDict(**expected, text=b"bytes")
    state["text"] = "plain"
    torchsnapshot.Snapshot.take(
        str(tmp_path / "s"), {"model": model, "optim": optimizer, "state": state}
    )
    other = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.BatchNorm1d(3))
    other_optimizer = torch.optim.Adam(other.parameters(), lr=9.0)
    found = tenfold.StateDict()
    tenfold.Snapshot(tmp_path / "s").restore(
        {"model": other, "optim": other_optimizer, "state": found}
    )
    assert same(OrderedDict(other.state_dict()), OrderedDict(model.state_dict()))
    assert same(other_optimizer.state_dict(), optimizer.state_dict())
    assert same(dict(found), {**expected, "text": "plain"})
    report = tenfold.verify(tmp_path / "s")
    assert report.ok, report.problems


def test_torchsnapshot_reads_our_chunks_and_files(torchsnapshot, tmp_path):
    """Sets small chunk and file sizes, which only the internal interface of the engine accepts."""
    source = {"state": {"big": torch.arange(40.0).reshape(10, 4), "w": torch.ones(3)}}
    from tenfold import _core

    _core.save_snapshot(_core.tree(source), tmp_path / "s", True, ["state/w"], None, 1, 48)
    snapshot = torchsnapshot.Snapshot(str(tmp_path / "s"))
    assert snapshot.get_manifest()["0/state/big"].type == "ChunkedTensor"
    found = torchsnapshot.StateDict(big=torch.zeros(10, 4))
    snapshot.restore({"state": found})
    assert same(dict(found), source["state"])


# --- published examples, run with `torchsnapshot` bound to tenfold ---

IN_MEMORY = """
tensordict_source = TensorDict({"a": torch.randn(3), "b": {"c": torch.randn(3)}}, [])
state = {"state": tensordict_source}
path = f"{folder}/{uuid.uuid4()}"
snapshot = torchsnapshot.Snapshot.take(app_state=state, path=path)
# later
snapshot = torchsnapshot.Snapshot(path=path)
tensordict2 = TensorDict()
target_state = {
    "state": tensordict2
}
snapshot.restore(app_state=target_state)
assert (tensordict_source == tensordict2).all()
"""

PREALLOCATED = """
td = TensorDict({"a": torch.randn(3), "b": TensorDict({"c": torch.randn(3, 1)}, [3, 1])}, [3])
td.memmap_()
assert isinstance(td["b", "c"], MemoryMappedTensor)

app_state = {
    "state": torchsnapshot.StateDict(tensordict=td.state_dict(keep_vars=True))
}
snapshot = torchsnapshot.Snapshot.take(app_state=app_state, path=f"{folder}/{uuid.uuid4()}")


td_dest = TensorDict({"a": torch.zeros(3), "b": TensorDict({"c": torch.zeros(3, 1)}, [3, 1])}, [3])
td_dest.memmap_()
assert isinstance(td_dest["b", "c"], MemoryMappedTensor)
app_state = {
    "state": torchsnapshot.StateDict(tensordict=td_dest.state_dict(keep_vars=True))
}
snapshot.restore(app_state=app_state)
# sanity check
assert (td_dest == td).all()
assert (td_dest["b"].batch_size == td["b"].batch_size)
assert isinstance(td_dest["b", "c"], MemoryMappedTensor)
"""

TENSORCLASS = """
@tensorclass
class MyClass:
    x: torch.Tensor
    y: Optional["MyClass"] = None

tc = MyClass(x=torch.randn(3), y=MyClass(x=torch.randn(3), batch_size=[]), batch_size=[])
tc.memmap_()
assert isinstance(tc.y.x, MemoryMappedTensor)

app_state = {
    "state": torchsnapshot.StateDict(tensordict=tc.state_dict(keep_vars=True))
}
snapshot = torchsnapshot.Snapshot.take(app_state=app_state, path=f"{folder}/{uuid.uuid4()}")

tc_dest = MyClass(x=torch.randn(3), y=MyClass(x=torch.randn(3), batch_size=[]), batch_size=[])
tc_dest.memmap_()
assert isinstance(tc_dest.y.x, MemoryMappedTensor)
app_state = {
    "state": torchsnapshot.StateDict(tensordict=tc_dest.state_dict(keep_vars=True))
}
snapshot.restore(app_state=app_state)

assert (tc_dest == tc).all()
assert (tc_dest.y.batch_size == tc.y.batch_size)
assert isinstance(tc_dest.y.x, MemoryMappedTensor)
"""

EXAMPLES = {"in_memory": IN_MEMORY, "preallocated": PREALLOCATED, "tensorclass": TENSORCLASS}


@pytest.mark.parametrize("collections", ["tensordict", "tenfold"])
@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_run_with_only_the_import_changed(tmp_path, example, collections):
    module = pytest.importorskip(collections)
    names = ("TensorDict", "MemoryMappedTensor", "tensorclass")
    scope = {
        "__name__": "__main__",
        "torch": torch,
        "torchsnapshot": tenfold,
        "uuid": uuid,
        "folder": tmp_path,
        "Optional": __import__("typing").Optional,
        **{name: getattr(module, name) for name in names},
    }
    text = EXAMPLES[example]
    if collections == "tensordict":
        # tensordict 0.15.3 cannot load a state into an empty TensorDict, with either library.
        text = text.replace("= TensorDict()", "= tensordict_source.clone().zero_()")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(text, example, "exec"), scope)


def test_restore_into_a_mapped_file_takes_little_memory(tmp_path):
    """restore() and read_object() of 256 MiB each take less than 32 MiB of anonymous memory."""
    program = f"""
        import torch, tenfold
        path = {str(tmp_path)!r}
        size = 64 << 20
        # The source is also a mapped file, so the process never holds 256 MiB in anonymous memory.
        source = tenfold.MemoryMappedTensor.empty(size, filename=path + "/a", dtype=torch.float32)
        target = tenfold.MemoryMappedTensor.empty(size, filename=path + "/b", dtype=torch.float32)
        source[::4096] = 3
        tenfold.Snapshot.take(path + "/s", {{"s": tenfold.StateDict(a=source)}}, durable=False)
        snapshot = tenfold.Snapshot(path + "/s")
        for restore in (
            lambda: snapshot.restore({{"s": tenfold.StateDict(a=target)}}),
            lambda: snapshot.read_object("0/s/a", obj_out=target, memory_budget_bytes=1 << 20),
        ):
            target[::4096] = 0
            print(peak_of(restore) >> 20)
            assert torch.equal(target[::4096], source[::4096])
    """
    done = subprocess.run(
        [sys.executable, "-c", PEAK_OF + textwrap.dedent(program)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert all(int(peak) < 32 for peak in done.stdout.split()), done.stdout
