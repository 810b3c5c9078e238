"""Reports which lines of the parsers run in the fuzz targets and in the C++ tests.

    make coverage
    python tools/coverage.py [--build build/coverage] [--corpus-only] [--record FILE]

The CMake preset `coverage` builds everything with gcc's counters. This script runs the programs and
asks gcov which lines of each parser ran. It prints a table, and writes the numbers to the file of
--record. A parser is a source that reads bytes of a file or of another program: a source of PARSERS
that is not in NOT_PARSERS.

Exits with 1 if a test failed, or if less than GOAL percent of the lines of a parser ran. Exits with
2 if there are no counters.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
RECORD = REPOSITORY / "tests" / "torture" / "coverage.json"
GOAL = 95.0
#: Folders that contain parsers, and parsers in other folders (names without ".cpp").
PARSERS = (
    "src/checkpoint/document",
    "src/checkpoint/shard_ticket",
    "src/codecs/",
    "src/core/notes/",
    "src/dataset/parts/",
    "src/dict/check",
    "src/dict/dict_note",
    "src/dict/index",
    "src/dict/state",
    "src/formats/",
    "src/ingest/",
    "src/mapper/",
    "src/scan/",
    "src/sparse/",
)
#: Sources in these folders that are no parsers: they write, move bytes or use parsed values.
NOT_PARSERS = frozenset(
    {
        "src/codecs/json/writer",
        "src/codecs/pickle/writer",
        "src/codecs/zip/deflate",
        "src/codecs/zip/writer",
        "src/dataset/parts/parts",
        "src/dataset/parts/growth",
        "src/formats/dcp/writer",
        "src/formats/folder/append/append",
        "src/formats/folder/append/growing",
        "src/formats/folder/archive/format",
        "src/formats/folder/archive/pack",
        "src/formats/folder/archive/refresh_crc32s",
        "src/formats/folder/archive/writer",
        "src/formats/folder/arena",
        "src/formats/folder/checksums",
        "src/formats/folder/folder",
        "src/formats/folder/handle",
        "src/formats/folder/links",
        "src/formats/folder/meta/write",
        "src/formats/folder/plan",
        "src/formats/folder/update",
        "src/formats/folder/write_through_lock",
        "src/formats/folder/writer",
        "src/formats/format",
        "src/formats/safetensors/header_writer",
        "src/formats/safetensors/plan",
        "src/formats/safetensors/stack",
        "src/formats/shared/commit",
        "src/formats/shared/earlier_version",
        "src/formats/shared/file_part",
        "src/formats/shared/leaf_writer",
        "src/formats/shared/mapped_zip",
        "src/formats/shared/problem",
        "src/formats/shared/progress",
        "src/formats/shared/verify_filter",
        "src/formats/shared/zip_archive",
        "src/formats/snapshot/plan",
        "src/formats/torch_file/write",
        "src/ingest/arrow/export",
        "src/ingest/bad_row",
        "src/ingest/ingest",
        "src/ingest/promotion",
        "src/ingest/row_type",
        "src/ingest/rows/column",
        "src/ingest/rows/table",
        "src/ingest/source_report",
        "src/ingest/table/column_builder",
        "src/ingest/table/convert_chunk",
        "src/ingest/table/fit_chunk",
        "src/ingest/table/mapped_dict_builder",
        "src/ingest/table/part_file",
        "src/ingest/table/table_writer",
        "src/mapper/hierarchy_builder",
        "src/mapper/state_keys",
        "src/sparse/builder",
        "src/sparse/growth",
    }
)


def is_parser(name: str) -> bool:
    source = name.removesuffix(".cpp")
    is_listed = source in PARSERS or source.startswith(tuple(p for p in PARSERS if p[-1] == "/"))
    return name.endswith(".cpp") and is_listed and source not in NOT_PARSERS


def parsers() -> list[str]:
    """Returns the parsers of this repository."""
    paths = (REPOSITORY / "src").rglob("*.cpp")
    names = (path.relative_to(REPOSITORY).as_posix() for path in paths)
    return sorted(name for name in names if is_parser(name))


def run_programs(build: Path, corpus_only: bool) -> bool:
    """Runs all tests of CTest, or with `corpus_only` the fuzz targets over their corpus only.

    Returns:
        False if a test failed.
    """
    for counters in build.rglob("*.gcda"):
        counters.unlink()  # otherwise the programs would add to the counts of an earlier run
    command = ["ctest", "--test-dir", str(build), "--output-on-failure"]
    command += ["--parallel", str(os.cpu_count() or 1)]
    if corpus_only:
        command += ["-L", "fuzz"]
    return subprocess.run(command, check=False).returncode == 0


def lines_run(build: Path) -> dict[str, dict[int, int]]:
    """Returns how often each line of each parser ran, by file and line number."""
    counts: dict[str, dict[int, int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for path in build.rglob("*.gcda"):
            done = subprocess.run(
                ["gcov", "--json-format", "--stdout", str(path)],
                cwd=folder,
                capture_output=True,
                check=False,
            )
            if done.returncode:
                raise RuntimeError(f"gcov {path}: {done.stderr.decode(errors='replace')}")
            data = done.stdout
            if data[:2] == b"\x1f\x8b":
                data = gzip.decompress(data)
            for line in data.splitlines():
                if line.strip():
                    add(json.loads(line), counts)
    return counts


def add(described: dict[str, Any], counts: dict[str, dict[int, int]]) -> None:
    """Adds the counts of an object file.

    A line may be compiled several times, for example in a template. The greatest count is kept.
    """
    for file in described["files"]:
        path = (Path(described["current_working_directory"]) / file["file"]).resolve()
        if not path.is_relative_to(REPOSITORY):
            continue
        name = path.relative_to(REPOSITORY).as_posix()
        if not is_parser(name):
            continue
        lines = counts.setdefault(name, {})
        for line in file["lines"]:
            number = line["line_number"]
            lines[number] = max(lines.get(number, 0), line["count"])


def problems_of(counts: dict[str, dict[int, int]], sources: list[str]) -> list[str]:
    """Returns a message for each parser without counts, or with under GOAL % of its lines run."""
    problems = []
    for name in sources:
        lines = counts.get(name)
        if not lines:
            problems.append(f"{name}: no counters: no program that ran contains it")
            continue
        missed = sorted(number for number, count in lines.items() if count == 0)
        percent = 100 * (1 - len(missed) / len(lines))
        if percent < GOAL:
            numbers = ", ".join(map(str, missed))
            problems.append(f"{name}: expected {GOAL} %, found {percent:.1f}; not run: {numbers}")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=REPOSITORY / "build" / "coverage")
    parser.add_argument("--what", default="", help="description of the programs, for the record")
    parser.add_argument("--corpus-only", action="store_true", help="run only the fuzz targets")
    parser.add_argument("--no-run", action="store_true", help="use the counters of earlier runs")
    parser.add_argument("--record", type=Path, default=RECORD)
    options = parser.parse_args()
    have_passed = options.no_run or run_programs(options.build, options.corpus_only)
    counts = lines_run(options.build)
    if not counts:
        print(f"{options.build}: no counters; build the preset coverage first", file=sys.stderr)
        return 2
    files = {
        name: {"lines": len(lines), "run": sum(count > 0 for count in lines.values())}
        for name, lines in sorted(counts.items())
        if lines
    }
    total, run = (sum(file[key] for file in files.values()) for key in ("lines", "run"))
    rows = {**files, f"all parsers (goal of each: {GOAL} %)": {"lines": total, "run": run}}
    for name, row in rows.items():
        percent = 100 * row["run"] / row["lines"]
        print(f"{percent:6.1f} %  {row['run']:5} of {row['lines']:5}  {name}")
    what = "the fuzz corpora" if options.corpus_only else "the fuzz corpora and the C++ tests"
    record = {
        "date": datetime.date.today().isoformat(),
        "what ran": options.what or what,
        "lines": total,
        "run": run,
        "files": files,
    }
    options.record.write_text(json.dumps(record, indent=1) + "\n")
    problems = problems_of(counts, parsers())
    if not have_passed:
        problems.append("a test failed")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
