"""tenfold and torchsnapshot on several ranks read each other's snapshots."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from run_worlds import checks_of, results_of

WORLDS = Path(__file__).with_name("torchsnapshot_worlds.py")
ENVIRONMENT = WORLDS.parents[3] / ".venvs" / "torchsnapshot"

# Look for the package: an environment whose creation was interrupted does not contain it.
is_installed = find_spec("torchsnapshot") is not None or any(
    ENVIRONMENT.glob("lib/python*/site-packages/torchsnapshot")
)
if not is_installed and "TENFOLD_TORCHSNAPSHOT" not in os.environ:
    pytest.skip("no .venvs/torchsnapshot: make deps", allow_module_level=True)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    return results_of(WORLDS, tmp_path_factory.mktemp("torchsnapshot_worlds"))


@pytest.mark.parametrize("check", checks_of(WORLDS))
def test_worlds(check: str, results: dict[str, str | None]) -> None:
    result = results[check]
    if result is not None and "RuntimeError: skip: " in result:
        pytest.skip(result.partition("RuntimeError: skip: ")[2].strip())
    assert result is None, result
