"""Saves and loads of several processes; worlds.py runs them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("torch without distributed", allow_module_level=True)

# All worlds run in the fixture of the first test.
pytestmark = pytest.mark.timeout(600)

WORLDS = Path(__file__).with_name("worlds.py")
CHECKS = re.findall(r"^def (check_\w+)", WORLDS.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TENFOLD_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, str(WORLDS), str(tmp_path_factory.mktemp("worlds"))],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("check", CHECKS)
def test_worlds(check: str, results: dict[str, str | None]) -> None:
    assert results[check] is None, results[check]
