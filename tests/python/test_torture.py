"""Tests tests/torture: short runs of its cases, its harness, and the tables of its long runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

TORTURE = Path(__file__).resolve().parents[1] / "torture"
# Cases whose short form takes a second or two; `make torture` runs all cases for hours.
SHORT = "kills,calls,reads,flips,cuts,readers,writers,full-disk,quota,places,memory"


@pytest.mark.timeout(600)
def test_short_torture_run_finds_no_violation():
    subjects = ["save, folder", "MappedDict.update"]
    for arguments in (
        ["--only", SHORT, "--subjects", subjects[0], "--seconds", "2"],
        ["--only", "kills,readers", "--subjects", subjects[1], "--seconds", "2"],
        ["--only", "kills", "--subjects", ".npz;StateMapper", "--jobs", "2", "--seconds", "2"],
        ["--only", "flips,cuts,many-flips", "--subjects", ".safetensors", "--seconds", "2"],
        ["--only", "places", "--subjects", "m", "--seconds", "2"],
        # One system call fails in each trial. A failed lookup must not count as a missing file.
        ["--only", "reads", "--subjects", "save, .safetensors", "--count", "40", "--seconds", "20"],
    ):
        run = subprocess.run(
            [sys.executable, TORTURE / "run.py", "--short", *arguments],
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
        assert run.stdout.startswith("seed 0, ")
        assert run.stdout.endswith("\n0 broken promises\n")
        assert re.search(r"^\| [^|]+ \| [1-9]", run.stdout, re.MULTILINE), run.stdout


def test_torture_run_detects_a_writer_that_loses_data():
    """Tests the harness: numpy.savez overwrites the only copy, so the harness must count damage."""
    arguments = ["--short", "--only", "calls", "--seconds", "20", "--count", "12"]
    run = subprocess.run(
        [sys.executable, TORTURE / "run.py", *arguments, "--subjects", "numpy.savez"],
        capture_output=True,
        text=True,
    )
    # Failures of numpy.savez, a compared library, do not change the exit status.
    assert run.returncode == 0, run.stdout + run.stderr
    row = next(line for line in run.stdout.splitlines() if line.startswith("| numpy.savez"))
    header = next(line for line in run.stdout.splitlines() if line.startswith("| subject"))
    counts = dict(zip(header.split(" | "), row.split(" | "), strict=True))
    assert int(counts["refused"]) > 0, counts


FAILED_ALLOCATIONS = """
import errno, os, sys
from pathlib import Path

sys.path.insert(0, {torture!r})
import faults

faults.preload(Path({folder!r}))
import torch
from children import in_child

import tenfold

path = os.path.join({folder!r}, "m.safetensors")
tenfold.save({{"x": torch.arange(40), "y": torch.arange(50)}}, path)
opened = tenfold.open(path)
assert opened["x"][3] == 3  # imports and allocates what only the first tensor needs


def load_without(number):
    fault = faults.Fault(faults.FAIL, faults.MEMORY, errno=errno.ENOMEM)
    fault.arm(number)
    try:
        opened["y"]
    except BaseException:
        return number
    finally:
        made = fault.disarm()
    return made


number = 0
while True:
    number += 1
    outcome = in_child(lambda: load_without(number))
    nanobind_aborts = outcome.value == "SIGABRT" and "double free" not in outcome.last_words
    assert outcome.returned or nanobind_aborts, (number, outcome)
    if outcome.returned and outcome.value < number:
        break
print("failed", number - 1)
"""


def test_no_failed_allocation_of_torch_frees_a_tensor_twice(tmp_path):
    program = FAILED_ALLOCATIONS.format(torture=str(TORTURE), folder=str(tmp_path))
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert int(run.stdout.split()[-1]) > 5, run.stdout


CLASSES_OF_CALLS = """
import errno, fcntl, os, sys
from pathlib import Path

sys.path.insert(0, {torture!r})
import faults

faults.preload(Path({folder!r}))


def calls_of(classes):
    made = []
    for call in (lambda: os.stat(fd), lambda: os.read(fd, 1), lambda: fcntl.flock(fd, LOCK)):
        fault = faults.Fault(faults.FAIL, classes, errno=errno.EIO)
        fault.arm(1)
        try:
            call()
        except OSError as error:
            assert error.errno == errno.EIO, error
        fault.disarm()
        made.append(fault.fired)
    return made


LOCK = fcntl.LOCK_SH
fd = os.open(faults.__file__, os.O_RDONLY)
assert calls_of(faults.LOOKUPS) == [1, 0, 0]
assert calls_of(faults.READS) == [0, 1, 0]
assert calls_of(faults.LOCKS) == [0, 0, 1]
assert calls_of(faults.EVERY_CALL) == [1, 1, 1]
"""


def test_reads_lookups_and_locks_fail_separately(tmp_path):
    program = CLASSES_OF_CALLS.format(torture=str(TORTURE), folder=str(tmp_path))
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def run_harness(program: str, **values: str) -> None:
    """Runs a program that imports the harness in a child process.

    In the process of pytest, the names of the harness modules could clash with other modules.
    """
    head = f"import sys\nsys.path.insert(0, {str(TORTURE)!r})\n"
    run = subprocess.run(
        [sys.executable, "-c", head + program.format(**values)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr


EVEN_ORDER = """
from calls import in_even_order

for shift in (0.0, 0.3, 0.9):
    order = in_even_order(1000, shift)
    assert sorted(order) == list(range(1, 1001))
    for size in (5, 40, 300):
        tested = [0, *sorted(order[:size]), 1001]
        gaps = [after - before for before, after in zip(tested, tested[1:])]
        assert max(gaps) < 3 * 1000 / size, (shift, size, max(gaps))
assert in_even_order(1000, 0.0)[:5] != in_even_order(1000, 0.3)[:5]
assert in_even_order(0, 0.3) == []
"""


def test_calls_tested_before_the_time_limit_are_spread_evenly():
    run_harness(EVEN_ORDER)


HUNG_CHILDREN = """
import time

import children

outcome = children.in_child(lambda: time.sleep(1000), timeout=0.1)
assert outcome.kind == "hung", outcome
outcome = children.in_child(lambda: lambda: 0)  # cannot be pickled
assert outcome.kind == "raised", outcome
done = children.run_program(["sh", "-c", "echo begun; sleep 1000 & sleep 1000"], 0.5)
assert done.status is None, done
done = children.run_program(["sh", "-c", "echo $NAME; exit 3"], 100, environment={{"NAME": "x"}})
assert (done.status, done.stdout) == (3, "x\\n"), done

children.PATIENCE = 0.2
child = children.LoopingChild(lambda: time.sleep(1000), 7)
child.ready()
assert "did not answer" in child.error, child.error
assert child.kill() == 7


def steps():
    return lambda number: time.sleep(1000) if number > 2 else None


children.PATIENCE = 600
child = children.LoopingChild(steps, 0)
child.ready()
assert child.error is None and child.next() == 1 and child.next() == 2
children.PATIENCE = 0.2
assert child.next() is None and "did not answer" in child.error
assert child.kill() == 2
"""


def test_children_that_hang_do_not_stop_the_harness():
    run_harness(HUNG_CHILDREN)


SURVIVED_ERRORS = """
import os
from pathlib import Path
from types import SimpleNamespace

import children
import resume
from case import Options, Row, rows_of

program = children.run_program(["printf", r"a\\377b"], 100)
assert program.stdout == "a" + chr(0xFFFD) + "b", program


def steps():
    raise OSError(chr(0xDCFF))


child = children.LoopingChild(steps, 0)
child.ready()
assert child.error.startswith("error OSError"), child.error
child.kill()

options = Options("x", True, 10, 0, Path({folder!r}), Path(), Path(), subjects="one;", jobs=2)
assert options.wants("Number one") and not options.wants("two")
options.subjects = ""
assert options.wants("two")


def one(subject, end, options):
    if subject.name == "dies":
        os._exit(1)
    return Row(subject.name)


subjects = [SimpleNamespace(name=name, is_peer=False) for name in ("dies", "a", "with it", "b")]
rows = rows_of(subjects, options, one)
assert [row.subject for row in rows] == ["dies", "a", "with it", "b"], rows
assert [len(row.problems) for row in rows] == [1, 0, 1, 0], rows


def report_of(text):
    def run_program(command, timeout, **options):
        report = next(str(part) for part in command if str(part).startswith("--junit-xml="))
        Path(report.partition("=")[2]).write_text(text)
        return children.Finished(5, "", "")

    resume.run_program = run_program
    return resume._rows_of("one process", "x", 1, options)


skipped = '<testsuite><testcase name="t_after_sigkill[x]"><skipped/></testcase></testsuite>'
for text in ("<testsuite/>", skipped):
    rows = report_of(text)
    assert len(rows) == len(rows[0].problems) == 1, (text, rows)
"""


def test_harness_survives_errors_of_programs_and_jobs(tmp_path):
    run_harness(SURVIVED_ERRORS, folder=str(tmp_path))


FATAL_DAMAGE = """
import os, signal, time
from pathlib import Path

import flips
from case import Options


def make(path, sizes):
    path.write_bytes(b"abc")


def load(path):
    if path.read_bytes() != b"abc":
        os.kill(os.getpid(), signal.SIGKILL)
    return 1


options = Options("flips", True, 0, 0, Path({folder!r}), Path(), Path())
sample = flips.Sample("x", make, load)
row = flips._damage(sample, flips._flips, flips.TINY, time.monotonic() - 1, options)
assert row.counts["damages"] == row.counts["crashed or hung"] == 1, row
assert row.counts["left out"] == 2, row
"""


def test_damage_that_ends_the_reader_is_tried_once_when_the_time_is_over(tmp_path):
    run_harness(FATAL_DAMAGE, folder=str(tmp_path))


CRASH_TESTS = """
from pathlib import Path

import harness
from case import Options

folder = Path({folder!r})
(folder / "tests").mkdir()
program = folder / "tests" / "dict_crash_test"
program.write_text('''#!/bin/sh
case "$1" in
--gtest_list_tests) printf 'Crash.\\\\n  Passes\\\\n  Fails\\\\n'; exit 0 ;;
--gtest_filter=Crash.Passes)
  test='{{"kills": "3", "failed_calls": "40", "power_failures": "2"}}' status=0 ;;
*) test='{{"kills": "1", "failures": [{{"failure": "lost", "type": ""}}]}}' status=1 ;;
esac
echo '{{"testsuites": [{{"testsuite": ['"$test"']}}]}}' > "${{2#--gtest_output=json:}}"
exit $status
''')
program.chmod(0o755)
options = Options("harness", True, 60, 0, folder, Path(), folder)
(row,) = harness.run(options)
counts = [row.counts[name] for name in (*harness.COUNTS, "tests", "failed tests")]
assert counts == [4, 40, 2, 2, 1], counts
assert row.problems == ["Crash.Fails: lost"], row
"""


def test_reports_of_crash_tests_are_added_up(tmp_path):
    run_harness(CRASH_TESTS, folder=str(tmp_path))


OUTCOMES_OF_CALLS = """
from pathlib import Path

import calls
from case import Row
from children import Outcome
from writers import Writer

mode = next(mode for mode in calls.READING if mode.name == "no memory")


def excused(words):
    return calls._aborts_without_memory(mode, Outcome("killed", "SIGABRT", words))


assert excused("memory allocation of 80 bytes failed")
assert excused("Critical nanobind error: nb_malloc(): out of memory!")
assert not excused("double free or corruption (out)")
assert not excused("terminate called without an active exception")
assert not excused("")


class NoFault:
    fired = 0

    def arm(self, at):
        pass

    def disarm(self):
        return 5


calls.Mode.fault = lambda mode: NoFault()
for version, problems in ((1, 0), (2, 1)):
    writer = Writer("x", "data", None, lambda path: version)
    row = Row("x")
    total = calls._read_with(writer, mode, Path(), Path(), 0, row)
    assert (total, len(row.problems)) == (0 if problems else 5, problems), (total, row)
"""


def test_only_aborts_for_lack_of_memory_are_excused():
    run_harness(OUTCOMES_OF_CALLS)


REPEATED_STEP = """
from pathlib import Path

import tenfold
import writers

flushed = []


class Dict(tenfold.MappedDict):
    def flush(self):
        flushed.append(1)
        super().flush()


tenfold.MappedDict.build({{"last": 0}}, {folder!r} + "/d")
with tenfold.MappedDict({folder!r} + "/d", "r+") as mapping:
    mapping.extend({{f"1-{{i}}": i for i in range(20)}})
tenfold.MappedDict = Dict
with writers._updating(Path({folder!r}) / "d", True) as update:
    update(1)
    assert flushed == [1], flushed
    update(2)
    assert flushed == [1, 1], flushed
assert writers._found_updated(Path({folder!r}) / "d") == 2
"""


def test_repeated_step_of_a_writer_is_flushed(tmp_path):
    run_harness(REPEATED_STEP, folder=str(tmp_path))


UNREADABLE_STEP = """
from pathlib import Path

import tenfold
import writers

path = Path({folder!r}) / "run"
writer = next(w for w in writers.tenfold_writers() if w.name == "CheckpointManager")
writer.save(path, 1, writers.SMALL, False)
assert writer.found(path) == 1
(path / "step_00000001" / "checkpoint.json").write_text("no JSON")
try:
    found = writer.found(path)
except tenfold.CorruptFileError as error:
    assert "step_00000001" in str(error), error
else:
    raise AssertionError(found)
"""


def test_step_that_cannot_be_read_does_not_count_as_missing(tmp_path):
    run_harness(UNREADABLE_STEP, folder=str(tmp_path))


CLOSED_PARENT = """
import os
from pathlib import Path

import places
from case import Row
from children import in_child

home = Path({folder!r}) / "home"
folder = home / "work" / "folder"
folder.mkdir(parents=True)
home.chmod(0o700)
places.tenfold_writers = lambda: []
row = Row("x")
outcome = in_child(lambda: places._counted(places.read_only, folder, places.Checks(row), row))
assert outcome.returned, outcome
assert home.stat().st_mode & 0o777 == 0o700, oct(home.stat().st_mode)
assert os.getuid() or list(outcome.value[0]) == ["skipped"], outcome
"""


def test_folders_outside_the_run_keep_their_modes(tmp_path):
    run_harness(CLOSED_PARENT, folder=str(tmp_path))


ADDED_RUNS = """
import report


# For a size such as "peak, MB", added() keeps the value of the run that was added last.
def entry(seed, peak):
    counts = {{"MB": 512, "limit, MB": 51, "bytes": 7, "kills": 3, "peak, MB": peak}}
    return {{"runs": [seed], "rows": [{{"subject": "x", "counts": counts, "problems": []}}]}}


both = report.added(entry(1, 9.5), entry(2, 8.5))
assert both["runs"] == [1, 2]
expected = {{"MB": 512, "limit, MB": 51, "bytes": 7, "kills": 6, "peak, MB": 8.5}}
assert both["rows"][0]["counts"] == expected, both
"""


def test_added_runs_sum_counts_but_not_sizes():
    run_harness(ADDED_RUNS)


def test_torture_tables_match_the_results():
    done = subprocess.run(
        [sys.executable, TORTURE / "run.py", "--check-tables"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_stored_torture_results_have_no_violation():
    stored = json.loads((TORTURE / "results.json").read_text())
    for name, entry in stored.items():
        assert entry["runs"], name
        assert all(run["machine"] for run in entry["runs"]), name
        broken = [row["problems"] for row in entry["rows"] if not row["is_peer"] if row["problems"]]
        assert not broken, (name, broken)
