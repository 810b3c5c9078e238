"""Installs a wheel into empty virtual environments and uses it there.

Usage: run.py <wheel> [--glibc 2.28] [--floors] [--without-torch]

There are three environments: without numpy and torch, with numpy, with numpy and torch. The command
line is tested in each of them, and a part of the test suite in the third. Programs there see no
compiler (PATH contains only the environment), no PYTHONPATH and no package of this repository.
--floors installs the oldest versions of numpy, torch and ml_dtypes that pyproject.toml allows.
--without-torch omits the third environment, which takes most of the time.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import re
import struct
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PINS = dict(
    line.split("==")
    for name in ("dev", "torch")
    for line in (REPOSITORY / f"tools/requirements/{name}.txt").read_text().split()
    if "==" in line
)
PROJECT = (REPOSITORY / "pyproject.toml").read_text()
EXTRAS = PROJECT.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
FLOORS = dict(re.findall(r'"(\w+)>=([0-9.]+)"', EXTRAS))
TEST_TOOLS = ("pytest", "pytest-timeout", "hypothesis")
# Libraries with which the tests compare tenfold. --floors takes the versions that pip selects for
# the oldest torch.
PEERS = ("tensordict", "safetensors")

# The part of the test suite that runs in the environment with torch: formats, values, errors,
# processes, and the examples of README.md.
TESTS = (
    "test_distribution.py",
    "test_save_load.py",
    "test_open.py",
    "test_verify_convert.py",
    "test_errors.py",
    "test_load_into.py",
    "test_without_torch.py",
    "test_docs.py::test_python_blocks_of_a_page_run[README.md]",
    "test_docs.py::test_shell_commands_of_the_readme_run",
    "dataset/test_batch_loader.py",
    "mapped_dict/test_lookups.py",
)

USE_WITHOUT_NUMPY = """
import sys
import tenfold
td = tenfold.open(sys.argv[1])
assert td.keys(True) == ["weight"], td.keys(True)
assert tenfold.verify(sys.argv[1]).ok
tenfold.convert(sys.argv[1], sys.argv[2])
assert tenfold.diff(sys.argv[1], sys.argv[2]).same
tenfold.save({"step": 7, "name": "x"}, sys.argv[2] + "_values")
assert tenfold.load(sys.argv[2] + "_values") == {"step": 7, "name": "x"}
try:
    tenfold.open(sys.argv[1] + ".missing")
except FileNotFoundError as error:
    assert ".missing" in str(error)
else:
    raise AssertionError("a missing file was opened")
assert not {"numpy", "torch"} & sys.modules.keys()
"""

USE_WITH_NUMPY = """
import sys
import numpy
import tenfold
found = tenfold.load(sys.argv[1])["weight"]
assert type(found) is numpy.ndarray and found.tolist() == [0.0, 1.0, 2.0]
tree = {"a": [numpy.arange(6, dtype=numpy.int16).reshape(2, 3)], "b": numpy.zeros(70_000)}
tenfold.save(tree, sys.argv[2])
assert tenfold.diff(sys.argv[2], tree).same
assert "torch" not in sys.modules
"""


class Environment:
    """A virtual environment with the wheel and some packages in it."""

    def __init__(self, folder: Path, wheel: Path, packages: list[str]) -> None:
        """Creates the environment and installs into it, without building anything from source."""
        venv.create(folder, with_pip=False)
        self.folder = folder
        self.python = folder / "bin" / "python"
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "--quiet", "install"]
        subprocess.run([*pip, "--only-binary=:all:", *packages, str(wheel)], check=True)

    def run(
        self, *arguments: object, status: int = 0, cwd: Path | None = None, **environment: str
    ) -> str:
        """Runs a program of the environment and returns what it prints."""
        program, *rest = map(str, arguments)
        done = subprocess.run(
            [self.folder / "bin" / program, *rest],
            env={"PATH": str(self.folder / "bin"), "HOME": str(self.folder), **environment},
            cwd=cwd or self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def write_safetensors(path: Path) -> Path:
    """Writes a safetensors file of three float32 values without a library; returns its path."""
    header = json.dumps(
        {"weight": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}}
    ).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<3f", 0, 1, 2))
    return path


def use_the_command(environment: Environment) -> None:
    """Runs tenfold commands on tensors, pickles, a CSV file and a path that does not exist."""
    folder = environment.folder / "command"
    folder.mkdir()
    file = write_safetensors(folder / "given.safetensors")

    def tenfold(*arguments: object, status: int = 0) -> str:
        return environment.run("tenfold", *arguments, status=status, cwd=folder)

    assert re.fullmatch(r"tenfold \d+\.\d+\.\d+\n", tenfold("--version"))
    assert "weight" in tenfold("ls", file)
    assert "weight" in tenfold("tree", file)
    (statistics,) = json.loads(tenfold("stat", "--json", file))
    assert (statistics["min"], statistics["max"]) == (0, 2), statistics
    assert json.loads(tenfold("head", "--json", file, "weight"))["rows"] == [0, 1, 2]
    tenfold("verify", file)
    tenfold("convert", file, "converted.npz")
    tenfold("diff", file, "converted.npz")

    (folder / "values.pkl").write_bytes(pickle.dumps({"step": 7}))
    assert "all safe" in tenfold("scan", "values.pkl")
    (folder / "code.pkl").write_bytes(pickle.dumps(os.getcwd))
    assert "getcwd" in tenfold("scan", "code.pkl", status=1)

    (folder / "trips.csv").write_text("id,distance\n1,0.5\n2,1.5\n")
    tenfold("ingest", "trips.csv", "trips")
    rows = json.loads(tenfold("head", "--json", "trips"))["rows"]
    assert rows == [{"id": 1, "distance": 0.5}, {"id": 2, "distance": 1.5}], rows

    tenfold("ls", "missing.safetensors", status=2)


def extension_path(environment: Environment) -> str:
    """Returns the path of the extension module that is installed."""
    where = "import tenfold._core; print(tenfold._core.__file__)"
    return environment.run("python", "-c", where).strip()


def check_linkage(extension: str, glibc: str) -> None:
    """Checks that the extension runs with version `glibc` of glibc and without a C++ runtime.

    The extension must use memcpy, memmove and memset of glibc, not the slower ones that zig links.
    """
    dump = subprocess.run(
        ["objdump", "-p", "-T", extension], capture_output=True, text=True, check=True
    ).stdout
    versions = set(re.findall(r"\(([A-Z]+_[0-9.]+)\)", dump))
    oldest = tuple(map(int, glibc.split(".")))
    assert versions, "no versioned symbol"
    for version in versions:
        assert version.startswith("GLIBC_"), f"{extension} needs {version}"
        number = version.removeprefix("GLIBC_").split(".")
        assert tuple(map(int, number)) <= oldest, f"{extension} needs {version}"
    allowed = r"lib(c|m|dl|pthread|rt)\.so\.\d|ld-linux.*\.so\.\d"
    for name in re.findall(r"NEEDED +(\S+)", dump):
        assert re.fullmatch(allowed, name), f"{extension} needs {name}"
    for name in ("memcpy", "memmove", "memset"):
        assert re.search(rf"\*UND\*.*GLIBC_\S+ +{name}$", dump, re.M), f"{name} is not glibc's"


def main() -> None:
    """Creates the environments and uses the wheel in each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--glibc", help="the oldest version of glibc that the wheel must support")
    parser.add_argument("--floors", action="store_true")
    parser.add_argument("--without-torch", action="store_true")
    options = parser.parse_args()
    wheel = options.wheel.resolve()
    versions = {**PINS, **(FLOORS if options.floors else {})}

    def pinned(*names: str) -> list[str]:
        return [f"{name}=={versions[name]}" for name in names]

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        file = write_safetensors(folder / "given.safetensors")

        bare = Environment(folder / "bare", wheel, [])
        extension = extension_path(bare)
        if "abi3" in wheel.name:
            assert extension.endswith(".abi3.so"), f"{extension} is not abi3"
        if options.glibc:
            check_linkage(extension, options.glibc)
        use_the_command(bare)
        bare.run("python", "-c", USE_WITHOUT_NUMPY, file, folder / "converted")
        print("without numpy and torch: ok", flush=True)

        numpy = Environment(folder / "numpy", wheel, pinned("numpy", "ml_dtypes", *TEST_TOOLS))
        use_the_command(numpy)
        numpy.run("python", "-c", USE_WITH_NUMPY, file, folder / "arrays")
        print("with numpy: ok", flush=True)

        if options.without_torch:
            return
        packages = pinned("torch", "numpy", "ml_dtypes", *TEST_TOOLS)
        packages += PEERS if options.floors else pinned(*PEERS)
        packages += os.environ.get("TORCH_PIP_ARGS", "").split()
        torch = Environment(folder / "torch", wheel, packages)
        use_the_command(torch)
        output = torch.run(
            *("python", "-m", "pytest", "-q", "-c", REPOSITORY / "pyproject.toml"),
            *("--rootdir", REPOSITORY, "-p", "no:cacheprovider"),
            *(REPOSITORY / "tests/python" / test for test in TESTS),
            cwd=REPOSITORY,  # child processes of tests import tests.python
            TENFOLD_PYTHON_WITHOUT_TORCH=str(numpy.python),
        )
        print(f"with numpy and torch: {output.splitlines()[-1]}")


if __name__ == "__main__":
    main()
