"""Reports which lines of the parsers run in the fuzz targets and in the C++ tests.

    make coverage
    python tools/coverage.py [--build build/coverage] [--corpus-only] [--record FILE]

The preset `coverage` builds everything with gcc's counters. This runs the programs, asks gcov for
the lines of each parser, prints a table and writes it to a file. A parser is a source that reads
bytes of a file or of another program: PARSERS lists them. Exits with 1 if fewer lines ran than the
goal.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
RECORD = REPOSITORY / "tests" / "torture" / "coverage.json"
GOAL = 95.0
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
    "src/formats/bundle/",
    "src/formats/consolidated/",
    "src/formats/dcp/metadata",
    "src/formats/folder/append/appendable",
    "src/formats/folder/append/commit_",
    "src/formats/folder/append/growing_sums",
    "src/formats/folder/meta/",
    "src/formats/numpy/npy_array",
    "src/formats/safetensors/header",
    "src/formats/shared/dcp_manifest",
    "src/formats/shared/folder_checksums",
    "src/formats/shared/hub_index",
    "src/formats/shared/json_checksums",
    "src/formats/shared/parts_manifest",
    "src/formats/shared/tree_notes",
    "src/formats/snapshot/manifest_read",
    "src/formats/torch_file/",
    "src/ingest/arrow/",
    "src/ingest/text/",
    "src/mapper/",
    "src/scan/",
    "src/sparse/",
)
# Sources that only write, or that compute what is written.
WRITERS = (
    "writer",
    "deflate",
    "/write",
    "builder",
    "growth",
    "parts/commit",
    "arrow/export",
    "mapper/state_keys",
)


def is_parser(name: str) -> bool:
    return (
        name.endswith(".cpp")
        and name.startswith(PARSERS)
        and not any(word in name for word in WRITERS)
    )


def run_programs(build: Path, corpus_only: bool) -> None:
    """Runs all C++ tests, or with `corpus_only` the fuzz targets over their corpus only."""
    command = ["ctest", "--test-dir", str(build), "--output-on-failure"]
    if corpus_only:
        command += ["-L", "fuzz"]
    subprocess.run(command, check=False)


def lines_run(build: Path) -> dict[str, dict[int, int]]:
    """Returns how often each line of each parser ran, by file and line number."""
    counts: dict[str, dict[int, int]] = {}
    notes = [p for p in build.rglob("*.gcda") if "CMakeFiles" in p.parts]
    with tempfile.TemporaryDirectory() as folder:
        for path in notes:
            done = subprocess.run(
                ["gcov", "--json-format", "--stdout", str(path)],
                cwd=folder,
                capture_output=True,
            )
            if done.returncode:
                continue
            data = done.stdout
            if data[:2] == b"\x1f\x8b":
                data = gzip.decompress(data)
            for line in data.splitlines():
                if line.strip():
                    add(json.loads(line), counts)
    return counts


def add(described: dict[str, object], counts: dict[str, dict[int, int]]) -> None:
    for file in described["files"]:  # type: ignore[attr-defined]
        path = Path(file["file"])
        if path.is_absolute() and path.is_relative_to(REPOSITORY):
            path = path.relative_to(REPOSITORY)
        if not is_parser(str(path)):
            continue
        lines = counts.setdefault(str(path), {})
        for line in file["lines"]:
            number = line["line_number"]
            lines[number] = max(lines.get(number, 0), line["count"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=REPOSITORY / "build" / "coverage")
    parser.add_argument("--what", default="", help="text of the record: what was run")
    parser.add_argument("--corpus-only", action="store_true", help="run only the fuzz targets")
    parser.add_argument("--no-run", action="store_true", help="use the counters of earlier runs")
    parser.add_argument("--record", type=Path, default=RECORD)
    options = parser.parse_args()
    if not options.no_run:
        run_programs(options.build, options.corpus_only)
    counts = lines_run(options.build)
    if not counts:
        print(f"{options.build}: no counters; build the preset coverage first", file=sys.stderr)
        return 2
    total = run = 0
    files = {}
    for name in sorted(counts):
        lines = counts[name]
        hit = sum(count > 0 for count in lines.values())
        missed = sorted(number for number, count in lines.items() if count == 0)
        files[name] = {"lines": len(lines), "run": hit, "missed": missed}
        total, run = total + len(lines), run + hit
        print(f"{100 * hit / len(lines):6.1f} %  {hit:5} of {len(lines):5}  {name}")
    percent = 100 * run / total
    print(f"{percent:6.1f} %  {run:5} of {total:5}  all parsers (goal: {GOAL} %)")
    what = "the fuzz corpora" if options.corpus_only else "the fuzz corpora and the C++ tests"
    record = {
        "date": datetime.date.today().isoformat(),
        "what ran": options.what or what,
        "lines": total,
        "run": run,
        "files": {name: {"lines": f["lines"], "run": f["run"]} for name, f in files.items()},
    }
    options.record.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if percent >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
