"""examples/distributed.py runs: two ranks save one file, three go on from it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch.distributed.fsdp")
pytest.importorskip("safetensors")

EXAMPLE = Path(__file__).parents[3] / "examples" / "distributed.py"


@pytest.mark.timeout(600)
def test_three_ranks_resume_from_a_save_of_two(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLE, "--folder", tmp_path], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (first, _), (second, last) = re.findall(r"loss ([\d.]+) at first, ([\d.]+)", done.stdout)
    assert float(last) < float(second) < float(first)
    assert re.search(r"longer.safetensors: 4 tensors, \d+ checksums, whole", done.stdout)
    assert "  0.weight: [30, 16]" in done.stdout
