"""A training is killed or preempted at random moments, and resumes with the same losses.

Runs two test files of tests/python/checkpoint with more signals, and reports their counts.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree

from case import Options, Row
from children import run_program

TESTS = {
    "one process": "tests/python/checkpoint/test_resume.py",
    "two ranks": "tests/python/checkpoint/test_resume_ranks.py",
}
SECONDS_A_SIGNAL = 60  # an upper bound for eight tests, each of which stops a training once
#: Seconds after which the tests of a file count as hung. Each test has a timeout of its own.
_LONGEST = 8 * 3600


def run(options: Options) -> list[Row]:
    """A training that SIGKILL ends, or that saves at SIGTERM, resumes with the same losses."""
    signals = options.count or max(1, min(20, int(options.seconds / SECONDS_A_SIGNAL)))
    rows = []
    for subject, path in TESTS.items():
        if options.wants(subject):
            options.say(f"{subject}: {signals} signals in each of four tests")
            rows += [options.finished(row) for row in _rows_of(subject, path, signals, options)]
    return rows


def _rows_of(subject: str, path: str, signals: int, options: Options) -> list[Row]:
    """Runs the tests of a file, and returns a row for each."""
    with options.folder() as folder:
        report = folder / "report.xml"
        done = run_program(
            [
                *(sys.executable, "-m", "pytest", "-q", options.repository / path),
                *(f"--junit-xml={report}", f"--basetemp={folder / 'work'}"),
            ],
            _LONGEST,
            environment={"TENFOLD_KILLS": str(signals), "TENFOLD_SEED": str(options.seed)},
            folder=options.repository,
        )
        tests = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
        if not tests:
            row = Row(subject)
            row.problem(f"status {done.status}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
            return [row]
    rows = []
    for test in tests:
        # An example of a name: test_training_resumes_bit_for_bit_after_sigkill[async]
        number, *mode = test.attrib["name"].rpartition("_after_")[2].rstrip("]").split("[")
        row = Row(", ".join([subject, number.upper(), *mode]))
        for found in test.iter("property"):
            row.counts[found.attrib["name"]] = int(found.attrib["value"])
        failures = [*test.iter("failure"), *test.iter("error")]
        row.count("different", len(failures))
        for failure in failures:
            row.problem((failure.text or failure.attrib["message"])[-2000:])
        if not failures and not row.counts.get("signals"):
            row.problem("no training was stopped")
        rows.append(row)
    return rows
