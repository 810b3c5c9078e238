import io
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import torch

import tenfold
from tenfold import _progress

SIZE = 64 << 20


@pytest.fixture(scope="module")
def big():
    return {"x": torch.zeros(SIZE, dtype=torch.uint8), "y": torch.ones(SIZE, dtype=torch.uint8)}


def test_progress_is_reported_to_the_end(big, target):
    seen = []
    tenfold.save(big, target, progress=lambda done, total, what: seen.append((done, total, what)))
    assert seen
    assert seen[-1][0] == seen[-1][1] >= 2 * SIZE
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert all(isinstance(what, str) and what for _, _, what in seen)


@pytest.mark.parametrize("call", ["load", "verify", "convert"])
def test_load_verify_and_convert_report_progress(big, target, tmp_path, call):
    tenfold.save(big, target)
    seen = []

    def progress(done, total, what):
        seen.append((done, total))

    arguments = (target, tmp_path / "copy") if call == "convert" else (target,)
    getattr(tenfold, call)(*arguments, progress=progress)
    assert seen[-1][0] == seen[-1][1] > 0


def test_exception_of_progress_aborts_the_save_and_keeps_the_old_version(big, target):
    tenfold.save({"x": torch.zeros(1)}, target)

    def progress(done, total, what):
        raise ZeroDivisionError("enough")

    with pytest.raises(ZeroDivisionError, match="enough"):
        tenfold.save(big, target, progress=progress)
    assert tenfold.load(target)["x"].shape == (1,)
    assert os.listdir(target.parent) == [target.name]


def test_progress_must_be_a_callable_or_bool(target):
    with pytest.raises(TypeError, match="progress: expected None, a bool or a callable"):
        tenfold.save({"x": torch.zeros(1)}, target, progress=3)


def test_progress_false_shows_nothing_and_true_a_bar(big, target, capsys, monkeypatch):
    monkeypatch.setattr(_progress, "_make_tqdm", lambda *_: None)
    monkeypatch.setattr(_progress, "_DELAY_SECONDS", 0.0)
    tenfold.save(big, target, progress=False)
    assert capsys.readouterr() == ("", "")
    tenfold.save(big, target, progress=True)
    assert "[####" in capsys.readouterr().err


def test_progress_true_without_standard_error_is_ignored(big, target, monkeypatch):
    monkeypatch.setattr(_progress, "_make_tqdm", lambda *_: None)
    monkeypatch.setattr(_progress, "_DELAY_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", None)
    tenfold.save(big, target, progress=True)
    assert target.exists()


def test_keyboard_interrupt_aborts_a_save_and_leaves_no_file(target):
    if target.suffix == ".pt":
        pytest.skip("a .pt file stores the memory of an expanded tensor once, so the save is short")
    # An expanded source: 4 MiB in memory, but the save writes 4 GiB.
    big = {"x": torch.zeros(1 << 20).expand(1 << 10, 1 << 20)}
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))

    def interrupted_save() -> None:
        timer.start()
        tenfold.save(big, target)

    with pytest.raises(KeyboardInterrupt):
        interrupted_save()
    assert not os.listdir(target.parent)


def test_progress_bar_appears_after_the_delay(capsys, monkeypatch):
    now = 100.0
    monkeypatch.setattr(_progress, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(_progress, "_make_tqdm", lambda *_: None)
    with _progress.Shown(True) as update:
        now += 0.99
        update(0, 4_000_000_000, "save")
        assert capsys.readouterr().err == ""
        now += 0.01
        update(1_000_000_000, 4_000_000_000, "save")
    assert "save [#######---" in capsys.readouterr().err


def test_progress_bar_without_a_total_shows_size_and_speed(capsys, monkeypatch):
    now = 100.0
    monkeypatch.setattr(_progress, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(_progress, "_make_tqdm", lambda *_: None)
    with _progress.Shown(True) as update:
        update(0, 0, "ingest")
        now += 2
        update(1_000_000_000, 0, "ingest")
    assert "ingest 1.00 GB 0.50 GB/s\x1b" in capsys.readouterr().err


def test_the_speed_of_a_part_counts_from_the_last_report_of_the_previous_part(capsys, monkeypatch):
    now = 100.0
    monkeypatch.setattr(_progress, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(_progress, "_make_tqdm", lambda *_: None)
    with _progress.Shown(True) as update:
        now += 2
        update(3_000_000_000, 0, "ingest")
        now += 2
        update(1_000_000_000, 0, "save")
    shown = capsys.readouterr().err
    assert "ingest 3.00 GB 1.50 GB/s\x1b" in shown
    assert "save 1.00 GB 0.50 GB/s\x1b" in shown


def test_the_speed_of_tqdm_excludes_the_bytes_before_the_bar(monkeypatch):
    pytest.importorskip("tqdm")
    monkeypatch.setattr(_progress, "_DELAY_SECONDS", 0.0)
    bar = _progress._Bar()
    bar.update(500_000_000, 1_000_000_000, "save")
    assert bar._tqdm.initial == bar._tqdm.n == 500_000_000
    bar.close()


def test_progress_without_a_total_never_decreases(tmp_path):
    pa = pytest.importorskip("pyarrow")
    batch = pa.RecordBatch.from_pydict({"x": list(range(1000))})
    reader = pa.RecordBatchReader.from_batches(batch.schema, [batch] * 3)
    seen = []

    def progress(done, total, what):
        if what == "ingest":  # "save" has its own numbers
            seen.append((done, total))

    tenfold.ingest(reader, tmp_path / "d", progress=progress)
    assert seen[-1][0] == seen[-1][1] > 0
    assert seen == sorted(seen)


def test_save_releases_the_gil(big, target):
    ticks = []
    done = threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    during_saves = []
    for _ in range(5):  # on a busy machine, the thread may not run during one save
        start = time.monotonic()
        tenfold.save(big, target)
        end = time.monotonic()
        during_saves.append(len([t for t in ticks if start < t < end]))
        if during_saves[-1] > 3:
            break
    done.set()
    thread.join()
    assert during_saves[-1] > 3, during_saves


def test_a_terminal_without_a_size_shows_the_whole_bar(monkeypatch):
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(fileno=lambda: 2))
    monkeypatch.setattr(os, "get_terminal_size", lambda fd: os.terminal_size((0, 0)))
    assert _progress._columns() is None


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 200])
def test_progress_bar_fits_the_current_terminal_width(monkeypatch, columns):
    written = io.StringIO()
    monkeypatch.setattr(written, "fileno", lambda: 2, raising=False)
    monkeypatch.setattr(sys, "stderr", written)
    monkeypatch.setattr(_progress, "_make_tqdm", lambda *_: None)
    monkeypatch.setattr(_progress, "_DELAY_SECONDS", 0.0)
    bar = _progress._Bar()
    for width in (columns, columns - 5):  # the window became narrower
        monkeypatch.setattr(os, "get_terminal_size", lambda fd, w=width: os.terminal_size((w, 24)))
        bar.update(123_400_000_000, 999_900_000_000, "checksums")
        line = written.getvalue().split("\r")[-2].removesuffix("\x1b[J")
        assert line.startswith("checksums")
        assert len(line) < width
        assert "12%" in line or width < 16


def test_a_daemon_thread_in_a_progress_callable_does_not_abort_at_exit(tmp_path):
    program = """
import sys, threading, time
import numpy
import tenfold
inside = threading.Event()

def progress(done, total, what):
    inside.set()
    while True:
        time.sleep(0)  # acquires the GIL

def save():
    tenfold.save({"x": numpy.zeros(1 << 20)}, sys.argv[1], progress=progress)

threading.Thread(target=save, daemon=True).start()
inside.wait()
"""
    command = [sys.executable, "-c", program, str(tmp_path / "x")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
