"""Runs the C++ crash tests: a crash, a failed call or a power failure at every change.

The engine calls the harness of these tests before each change of the file system, whereas faults.c
wraps the C library. The harness also ends the process half-way through writes. It simulates power
failures with a model of a disk, which may drop, reorder and tear writes that were not synced.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from case import Clock, Options, Row
from children import PATIENCE, run_program

#: The test programs, each with the GoogleTest filter that selects its crash tests.
PROGRAMS = {
    "formats_crash_test": "*",
    "dataset_growth_crash_test": "*",
    "dataset_parts_crash_test": "*",
    "dict_crash_test": "*",
    "sparse_growth_test": "*Crash*",
    "checkpoint_crash_test": "*",
    "checkpoint_sharded_writer_test": "*Crash*",
}
COUNTS = ("kills", "failed calls", "power failures")
#: Seconds after which a test counts as hung; the longest one takes minutes under load.
_LONGEST_TEST = 3600


def run(options: Options) -> list[Row]:
    """The C++ crash tests: a crash, a failed call or a power failure at every change."""
    programs = [name for name in PROGRAMS if options.wants(name)]
    if options.short:  # the test suite runs the others itself
        programs = [name for name in programs if name == "dict_crash_test"]
    clock = Clock(options.seconds, len(programs))
    return [options.finished(_run(name, clock.next_subject(), options)) for name in programs]


def _run(program: str, end: float, options: Options) -> Row:
    """Runs the tests of a program in random order, each in its own process, until `end`."""
    path = options.build / "tests" / program
    row = Row(program)
    if not path.exists():
        row.counts["skipped"] = "not built: make build"
        return row
    begin = time.monotonic()
    row.counts.update(dict.fromkeys((*COUNTS, "tests", "failed tests"), 0))
    names = _tests_of(path, PROGRAMS[program])
    options.random(program).shuffle(names)
    for number, name in enumerate(names):
        if number and time.monotonic() > end:
            row.count("left out", len(names) - number)
            break
        problem = _run_test(path, name, row, options)
        row.count("tests")
        options.say(f"{program}: {name}: {'failed' if problem else 'passed'}")
        if problem:
            row.count("failed tests")
            row.problem(f"{name}: {problem[:2000]}")
    row.counts["seconds"] = round(time.monotonic() - begin)
    if not names:
        row.problem("it has no tests")
    return row


def _tests_of(path: Path, wanted: str) -> list[str]:
    listed = run_program([path, "--gtest_list_tests", f"--gtest_filter={wanted}"], PATIENCE)
    names, suite = [], ""
    for line in listed.stdout.splitlines():
        name = line.partition("#")[0].strip()
        if line.startswith("  "):
            names.append(suite + name)
        elif name.endswith("."):
            suite = name
    return names


def _run_test(path: Path, name: str, row: Row, options: Options) -> str:
    """Runs a test and adds its counts to the row. Returns the text of its failure, or ""."""
    with options.folder() as folder:
        report = folder / "report.json"
        done = run_program(
            [path, f"--gtest_filter={name}", f"--gtest_output=json:{report}"], _LONGEST_TEST
        )
        described = json.loads(report.read_text()) if report.exists() else {}
    suites: list[dict[str, Any]] = described.get("testsuites", [])
    failed = ""
    for test in (test for suite in suites for test in suite["testsuite"]):
        for count in COUNTS:
            row.count(count, int(test.get(count.replace(" ", "_"), 0)))
        failed += "".join(failure["failure"] for failure in test.get("failures", []))
    if done.status == 0:
        return ""
    how = "hung" if done.status is None else f"status {done.status}"
    return failed or f"{how}: {(done.stdout + done.stderr)[-1500:]}"
