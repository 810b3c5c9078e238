"""Compares two wheels of tenfold by the rows of bench/run.py, interleaved on one machine.

    python bench/compare_wheels.py build/wheel/tenfold-*.whl dist/tenfold-*.whl
    python bench/compare_wheels.py A.whl B.whl open_many save_many --rounds 4

Each round runs the benchmarks with A and with B, in alternating order; the smallest time of a row
counts. Prints the ratio of the times of B and A for each row of tenfold, and the geometric mean.
With --write, the first round with A also updates the tables in docs/performance/. Exits 1 if the mean is above 1.05 or if B misses in every round a goal that A meets in one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

BENCH = Path(__file__).resolve().parent
AT_MOST = 1.05


def measure(site: Path, arguments: list[str], scratch: Path) -> list[dict]:
    """Returns the results of bench/run.py with the package that is unpacked in `site`."""
    results = scratch / "results.json"
    subprocess.run(
        [
            *(sys.executable, str(BENCH / "run.py"), *arguments),
            *("--results", str(results)),
        ],
        env={**os.environ, "PYTHONPATH": str(site)},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return json.loads(results.read_text())


def add(rows: dict[str, float], missed: dict[str, int], found: list[dict]) -> None:
    """Keeps the smallest time of each row of tenfold, and counts missed goals."""
    for result in found:
        for contender in result["ours"]:
            name = f"{result['name']}: {contender}"
            rows[name] = min(rows.get(name, math.inf), *result["seconds"][contender])
        for goal in result["goals"]:
            name = f"{result['name']}: {goal['goal']}"
            missed[name] = missed.get(name, 0) + (not goal["met"])


def main() -> None:
    """Unpacks the wheels, measures, prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("a", type=Path)
    parser.add_argument("b", type=Path)
    parser.add_argument("names", nargs="*", help="benchmarks (default: all)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--write", action="store_true", help="update docs/performance/ from A")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        sites = []
        for which, wheel in (("a", options.a), ("b", options.b)):
            sites.append(scratch / which)
            pip = [sys.executable, "-m", "pip", "--quiet", "install", "--no-deps", "--target"]
            subprocess.run([*pip, str(sites[-1]), str(wheel)], check=True)
        rows: list[dict[str, float]] = [{}, {}]
        missed: list[dict[str, int]] = [{}, {}]
        arguments = [*options.names, "--repetitions", str(options.repetitions)]
        for index in range(options.rounds):
            for which in (0, 1) if index % 2 == 0 else (1, 0):
                write = ["--write"] if options.write and index == 0 and which == 0 else []
                found = measure(sites[which], [*arguments, *write], scratch)
                add(rows[which], missed[which], found)

    ratios = {name: rows[1][name] / time for name, time in rows[0].items() if time > 0}
    for name, ratio in sorted(ratios.items(), key=lambda item: item[1]):
        print(f"{ratio:6.3f}  {name} ({rows[0][name] * 1e3:.3g} ms)")
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    print(f"{mean:6.3f}  geometric mean of {len(ratios)} rows, at most {AT_MOST}")
    lost = [
        name
        for name, times in missed[1].items()
        if times == options.rounds and missed[0][name] < options.rounds
    ]
    for name in lost:
        print(f"goal missed by {options.b.name} alone: {name}")
    sys.exit(mean > AT_MOST or bool(lost))


if __name__ == "__main__":
    main()
