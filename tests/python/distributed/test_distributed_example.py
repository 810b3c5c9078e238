"""examples/distributed.py: two ranks load a plain file; three ranks resume a save of two ranks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tenfold

torch = pytest.importorskip("torch")
pytest.importorskip("torch.distributed.fsdp")
pytest.importorskip("safetensors")

EXAMPLE = Path(__file__).parents[3] / "examples" / "distributed.py"


@pytest.mark.timeout(600)
def test_three_ranks_resume_a_save_of_two(tmp_path: Path) -> None:
    from safetensors import safe_open

    done = subprocess.run(
        [sys.executable, EXAMPLE, "--folder", tmp_path], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (first, _), (second, last) = re.findall(r"loss ([\d.]+) at first, ([\d.]+)", done.stdout)
    assert float(last) < float(second) < float(first)
    assert re.search(r"longer.safetensors: 4 tensors, \d+ checksums, whole", done.stdout)
    assert "  0.weight: [30, 16]" in done.stdout
    # The two ranks saved a plain safetensors file.
    loaded = tenfold.load(tmp_path / "model.safetensors", verify=True)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert file.metadata()["format"] == "pt"  # transformers requires it
        assert set(file.keys()) == set(loaded) == {"0.weight", "0.bias", "2.weight", "2.bias"}
        for name in file.keys():  # noqa: SIM118 (not a dict)
            assert torch.equal(file.get_tensor(name), loaded[name]), name


@pytest.mark.timeout(600)
def test_ranks_load_weights_from_a_plain_safetensors_file(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    model = torch.nn.Sequential(torch.nn.Linear(16, 30), torch.nn.ReLU(), torch.nn.Linear(30, 1))
    torch.nn.init.constant_(model[2].bias, 100.0)
    save_file(model.state_dict(), tmp_path / "hub.safetensors")
    weights = ["--weights", tmp_path / "hub.safetensors"]
    for _ in range(2):  # the second run finds the files of the first
        done = subprocess.run(
            [sys.executable, EXAMPLE, "--folder", tmp_path / "run", *weights],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    first = re.search(r"2 ranks: loss ([\d.]+) at first", done.stdout)
    assert first is not None
    # With the bias of 100 from hub.safetensors, the mean squared error is about 100 squared.
    assert 9_000 < float(first[1]) < 11_000
