"""Files that state or contain huge sizes are read with little memory.

In a process that may map only 400 MiB more, calls return or raise a documented error.
"""

import json
import subprocess
import sys
import zipfile

import pytest

CHILD = """
import resource, sys
import numpy, tenfold
with open("/proc/self/statm") as statm:
    room = int(statm.read().split()[0]) * resource.getpagesize() + (400 << 20)
resource.setrlimit(resource.RLIMIT_AS, (room, room))
path, other = sys.argv[1], sys.argv[1] + ".out"
try:
    print(repr({call}))
except (tenfold.Error, KeyError, ValueError) as error:
    print(type(error).__name__, error)
"""


def with_little_memory(call, path):
    run = subprocess.run(
        [sys.executable, "-c", CHILD.replace("{call}", call), str(path)],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout


def node(**leaves):
    described = {
        key: {"device": "cpu", "shape": shape, "dtype": "torch.uint8", "is_nested": False}
        for key, shape in leaves.items()
    }
    return {
        **described,
        "shape": [],
        "device": "cpu",
        "_type": "<class 'tensordict._td.TensorDict'>",
    }


@pytest.fixture(scope="module")
def deflated(tmp_path_factory):
    """An archive of 5 MB with a member that inflates to 1 GiB, although its tensor has 16 bytes."""
    path = tmp_path_factory.mktemp("deflated") / "x.tdz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("meta.json", json.dumps(node(x=[16])))
        with archive.open("x.memmap", "w") as entry:
            for _ in range(64):
                entry.write(bytes(16 << 20))
    return path


@pytest.mark.parametrize(
    "call",
    [
        "tenfold.load(path)",
        "tenfold.open(path)['x']",
        "tenfold.diff(path, path)",
        "tenfold.convert(path, other)",
        "tenfold.verify(path).problems",
    ],
)
def test_entry_that_inflates_far_beyond_its_tensor_is_refused(deflated, call):
    said = with_little_memory(call, deflated)
    assert "x.tdz/x.memmap" in said
    assert "much longer than its tensor" in said
    assert "expected about 16 bytes, found 1073741824" in said


def test_highly_compressed_archive_can_be_unpacked(deflated):
    said = with_little_memory(
        "(tenfold.unpack_memmap(path, other), tenfold.load(other)['x'].shape)", deflated
    )
    assert said.endswith(", (16,))\n"), said


def folder_of(path, meta, **files):
    path.mkdir()
    (path / "meta.json").write_text(json.dumps(meta))
    for name, size in files.items():
        (path / f"{name}.memmap").write_bytes(bytes(size))
    return path


@pytest.mark.parametrize("power", [40, 46, 50, 62])
@pytest.mark.parametrize(
    "call",
    [
        "tenfold.diff(path, path)",
        "tenfold.convert(path, other + '.safetensors')",
        "tenfold.convert(path, other + '.tdz')",
        "tenfold.convert(path, other + '.pt')",
        "tenfold.convert(path, other + '.npz', dtype='float16')",
        "tenfold.save(tenfold.open(path), other)",
        "tenfold.load(path)",
        "tenfold.verify(path).problems",
    ],
)
def test_shape_larger_than_the_file_is_refused_without_allocating(tmp_path, call, power):
    path = folder_of(tmp_path / "x", node(x=[2**power]), x=16)
    said = with_little_memory(call, path)
    assert "x.memmap" in said
    assert f"expected {2**power} bytes, found 16" in said


@pytest.mark.parametrize("command", [["stat"], ["head", "x"], ["head", "x", "--json"]])
def test_commands_refuse_a_shape_larger_than_the_file(tmp_path, command):
    path = folder_of(tmp_path / "x", node(x=[2**50]), x=16)
    name, *arguments = command
    run = subprocess.run(
        [sys.executable, "-m", "tenfold", name, path, *arguments], capture_output=True, text=True
    )
    assert run.returncode == 2
    assert run.stdout == ""
    assert f"expected {2**50} bytes, found 16" in run.stderr


@pytest.mark.parametrize("call", ["tenfold.open(path)[0]", "tenfold.verify(path).problems"])
def test_stack_dim_beyond_the_dimension_limit_is_refused(tmp_path, call):
    meta = {"_type": "<class 'tensordict._lazy.LazyStackedTensorDict'>", "stack_dim": 2**27}
    path = folder_of(tmp_path / "x", meta)
    folder_of(path / "0", node(x=[16]), x=16)
    said = with_little_memory(call, path)
    assert "stack_dim" in said
    assert f"expected 0 to 63, found {2**27}" in said


class Rebuilt:
    """An object that torch.save pickles as the call `function(*arguments)`."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.fixture(scope="module")
def repeated(tmp_path_factory):
    """Files of a few kilobytes: strides of 0 repeat a few bytes 2**36 times."""
    torch = pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("repeated")
    many = 2**36
    zeros = torch.zeros(1, dtype=torch.int64)
    values = torch.zeros(1).expand(many)

    def sparse(layout, *parts):
        return Rebuilt(torch._utils._rebuild_sparse_tensor, layout, parts)

    objects = {
        "nested": Rebuilt(
            torch._utils._rebuild_nested_tensor,
            values,
            torch.tensor([[many]]),
            torch.tensor([[1]]),
            zeros,
        ),
        "coo": sparse(
            torch.sparse_coo, zeros.view(1, 1).expand(1, many), values, torch.Size([5]), False
        ),
        "csr": sparse(
            torch.sparse_csr,
            zeros.expand(many + 1),
            torch.zeros(0, dtype=torch.int64),
            torch.zeros(0),
            torch.Size([many, 5]),
        ),
        "rows": zeros.view(1, 1, 1).expand(1, many, 1).transpose(1, 2),
    }
    for name, value in objects.items():
        torch.save({"x": value}, folder / f"{name}.pt")
    return folder


@pytest.mark.parametrize(
    ("name", "call", "cause"),
    [
        ("nested", "tenfold.load(path)", "contiguous components"),
        ("coo", "tenfold.load(path)", "repeats its elements"),
        ("csr", "tenfold.load(path)", "repeats its elements"),
        ("rows", "tenfold.Dataset(path)", "repeats its elements"),
    ],
)
def test_tensor_that_repeats_its_elements_is_refused_without_a_copy(repeated, name, call, cause):
    said = with_little_memory(call, repeated / f"{name}.pt")
    assert f"{name}.pt" in said
    assert said.startswith("UnsupportedError"), said
    assert cause in said
