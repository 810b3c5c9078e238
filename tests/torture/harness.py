"""Runs the crash harness of the C++ tests: kills and failures at every change, power failures.

Unlike faults.c, the harness is called by the engine before each change of the file system. It also
kills the process half-way through writes. It replays power failures on a model of a disk, which
drops, reorders and tears all that was not synced.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

from case import Options, Row

#: The test programs, each with the test filter for --short.
PROGRAMS = {
    "formats_crash_test": "*/TorchFile:*/MemmapFolder",
    "dataset_growth_crash_test": "*",
    "dict_mapped_dict_crash_test": "*",
    "sparse_growth_test": "*ACrash*:*Power*",
    "checkpoint_crash_test": "*",
}


def run(options: Options) -> list[Row]:
    """The C++ crash harness: a SIGKILL, a failed call or a power failure at every change."""
    rows = []
    for program, few in PROGRAMS.items():
        path = options.build / "tests" / program
        row = Row(program)
        rows.append(row)
        if not path.exists():
            row.counts["skipped"] = "not built: make build"
            continue
        if options.short and program != "dict_mapped_dict_crash_test":
            row.counts["skipped"] = "the test suite runs it itself"
            continue
        _run(path, "*" if not options.short else few, row, options)
    return rows


def _run(path: Path, tests: str, row: Row, options: Options) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    begin = time.monotonic()
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        done = subprocess.run(
            [path, f"--gtest_filter={tests}", f"--gtest_output=json:{report.name}"],
            capture_output=True,
            text=True,
            env=environment,
        )
        described = json.loads(Path(report.name).read_text() or "{}")
    cases = [case for suite in described.get("testsuites", []) for case in suite["testsuite"]]
    for count in ("kills", "failures", "power failures"):
        row.counts[count] = sum(int(case.get(count.replace(" ", "_"), 0)) for case in cases)
    row.counts["tests"] = len(cases)
    row.counts["failed tests"] = described.get("failures", -1)
    row.counts["seconds"] = round(time.monotonic() - begin)
    if done.returncode:
        failed = [case["name"] for case in cases if case.get("failures")]
        row.problem(f"failed: {', '.join(failed) or done.stderr[-500:]}")
