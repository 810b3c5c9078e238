"""Compares the times of two wheels of tenfold in bench/run.py, interleaved on one machine.

    python bench/compare_wheels.py build/wheel/tenfold-*.whl dist/tenfold-*.whl
    python bench/compare_wheels.py A.whl B.whl open_folder save_many --rounds 4

In each round, each benchmark runs once with A and once with B, and the order alternates between
rounds. A row is one contender of one benchmark, and its smallest time counts. For each row of a
contender that uses tenfold, the program prints the time of B divided by the time of A. At the end,
it prints the geometric mean of these ratios. With --write, the first round with A also updates the
tables in docs/performance/.

Exits with 1 if the mean is above 1.05, if there are no rows to compare, if a benchmark fails, or if
B misses a goal in all rounds and A meets this goal in at least one.
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

from run import benchmarks

BENCH = Path(__file__).resolve().parent
AT_MOST = 1.05


class Measured:
    """The results of a wheel: the smallest time of each row, and how often it missed each goal."""

    def __init__(self, site: Path) -> None:
        self.site = site
        self.rows: dict[str, float] = {}
        self.missed: dict[str, int] = {}

    def run(self, arguments: list[str], results: Path) -> None:
        """Adds the results of bench/run.py with the package that is unpacked in `site`."""
        subprocess.run(
            [sys.executable, BENCH / "run.py", *arguments, "--results", results],
            env={**os.environ, "PYTHONPATH": str(self.site)},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        for result in json.loads(results.read_text()):
            for contender in result["ours"]:
                name = f"{result['name']}: {contender}"
                fastest = min(result["seconds"][contender])
                self.rows[name] = min(self.rows.get(name, math.inf), fastest)
            for goal in result["goals"]:
                name = f"{result['name']}: {goal['goal']}"
                self.missed[name] = self.missed.get(name, 0) + (not goal["met"])


def main() -> None:
    """Unpacks the wheels, runs the benchmarks and prints the ratios. Exits with 0 or 1."""
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

    failed = []
    shown: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        wheels = []
        for which, wheel in (("a", options.a), ("b", options.b)):
            wheels.append(Measured(Path(folder) / which))
            pip = [sys.executable, "-m", "pip", "--quiet", "install", "--no-deps", "--target"]
            subprocess.run([*pip, str(wheels[-1].site), str(wheel)], check=True)
        a, b = wheels
        for name in options.names or benchmarks():
            arguments = [name, "--repetitions", str(options.repetitions)]
            try:
                for index in range(options.rounds):
                    for wheel in (a, b) if index % 2 == 0 else (b, a):
                        write = options.write and index == 0 and wheel is a
                        more = ["--write"] if write else []
                        wheel.run([*arguments, *more], Path(folder) / "results.json")
            except subprocess.CalledProcessError:
                failed.append(name)
            for row in a.rows.keys() - shown:
                if row in b.rows and a.rows[row] > 0:
                    ratio = b.rows[row] / a.rows[row]
                    print(f"{ratio:6.3f}  {row} ({a.rows[row] * 1e3:.3g} ms)", flush=True)
            shown |= a.rows.keys()

    ratios = [b.rows[row] / a.rows[row] for row in a.rows if row in b.rows and a.rows[row] > 0]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.inf
    print(f"{mean:6.3f}  geometric mean of {len(ratios)} rows, wanted: at most {AT_MOST}")
    lost = [
        name
        for name, times in b.missed.items()
        if times == options.rounds and a.missed.get(name, 0) < options.rounds
    ]
    for name in lost:
        print(f"goal missed by {options.b.name} alone: {name}")
    for name in failed:
        print(f"failed: {name}")
    sys.exit(mean > AT_MOST or bool(lost) or bool(failed))


if __name__ == "__main__":
    main()
