"""Snapshots of several processes; snapshot_worlds.py takes and restores them."""

from __future__ import annotations

from pathlib import Path

import pytest

from run_worlds import checks_of, results_of

torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("torch without distributed", allow_module_level=True)

# The fixture of the first test runs all checks of snapshot_worlds.py, so this test takes long.
pytestmark = pytest.mark.timeout(600)

WORLDS = Path(__file__).with_name("snapshot_worlds.py")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    return results_of(WORLDS, tmp_path_factory.mktemp("snapshot_worlds"))


@pytest.mark.parametrize("check", checks_of(WORLDS))
def test_worlds(check: str, results: dict[str, str | None]) -> None:
    assert results[check] is None, results[check]
