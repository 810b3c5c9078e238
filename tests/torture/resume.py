"""A training is killed or preempted at random moments, and resumes with the same losses.

Runs the tests of tests/python/checkpoint with more signals, and counts what they compared.
"""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

from case import Options, Row

TESTS = {
    "one process": "tests/python/checkpoint/test_resume.py",
    "two ranks": "tests/python/checkpoint/test_resume_ranks.py",
}
SECONDS_A_SIGNAL = 60  # at most: eight tests, each of which starts the training and stops it


def run(options: Options) -> list[Row]:
    """A training stopped by SIGKILL, or SIGTERM and a save, resumes with the same losses."""
    signals = options.count or max(1, min(20, int(options.seconds / SECONDS_A_SIGNAL)))
    return [
        row
        for subject, path in TESTS.items()
        if options.wants(subject)
        for row in rows_of_tests(subject, path, signals, options)
    ]


def rows_of_tests(subject: str, path: str, signals: int, options: Options) -> list[Row]:
    """Runs the tests of a file, and returns a row for each."""
    with options.folder() as folder:
        report = folder / "report.xml"
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", options.repository / path),
                *(f"--junit-xml={report}", f"--basetemp={folder / 'work'}"),
            ],
            env={**os.environ, "TENFOLD_KILLS": str(signals)},
            cwd=options.repository,
            capture_output=True,
            text=True,
            check=False,
        )
        if not report.exists():
            row = Row(subject)
            row.problem(done.stdout[-2000:] + done.stderr[-2000:])
            return [row]
        tests = list(ElementTree.parse(report).iter("testcase"))
    rows = []
    for test in tests:
        # test_training_resumes_bit_for_bit_after_sigkill[async]
        number, *mode = test.attrib["name"].rpartition("_after_")[2].rstrip("]").split("[")
        row = Row(", ".join([subject, number.upper(), *mode]))
        for found in test.iter("property"):
            row.counts[found.attrib["name"]] = int(found.attrib["value"])
        failures = [*test.iter("failure"), *test.iter("error")]
        row.count("different", len(failures))
        for failure in failures:
            row.problem((failure.text or failure.attrib["message"])[-2000:])
        rows.append(row)
    return rows
