"""mypy accepts typed_uses.py, and finds the mistakes in mistyped_uses.py."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import tenfold

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

pytestmark = [
    pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed"),
    pytest.mark.timeout(600),  # the first run checks all of torch
]


def mypy(name: str) -> subprocess.CompletedProcess[str]:
    package = Path(tenfold.__file__).parents[1]
    path = {} if package.name == "site-packages" else {"MYPYPATH": str(package)}
    command = ["mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), str(HERE / name)]
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env=path, capture_output=True, text=True
    )


def test_typed_uses_pass_mypy():
    done = mypy("typed_uses.py")
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_reports_each_mistake_and_nothing_else():
    lines = (HERE / "mistyped_uses.py").read_text().splitlines()
    mistakes = [number for number, line in enumerate(lines, 1) if line.endswith("# mistake")]
    assert len(mistakes) == 5
    done = mypy("mistyped_uses.py")
    found = re.findall(r"mistyped_uses\.py:(\d+): error: ", done.stdout)
    assert [int(number) for number in found] == mistakes, done.stdout + done.stderr
