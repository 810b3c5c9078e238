"""Every writer, killed (SIGKILL) at random moments."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from pathlib import Path

from case import BAD, Clock, Options, Row, classify, look
from children import LoopingChild, in_child
from writers import LARGE, Writer, peers, tenfold_writers

COLUMNS = ("kills", "whole", *BAD)


def run(options: Options) -> list[Row]:
    """After a SIGKILL the path has the last acknowledged version, or the next one."""
    writers = [w for w in [*tenfold_writers(), *peers()] if options.wants(w.name)]
    wanted = options.count or (3 if options.short else 100)
    clock = Clock(options.seconds, len(writers))
    return [_kill(writer, wanted, clock.next_subject(), options) for writer in writers]


def _kill(writer: Writer, wanted: int, end: float, options: Options) -> Row:
    row = Row(writer.name, writer.is_peer, dict.fromkeys(COLUMNS, 0))
    try:
        _kill_each(writer, wanted, end, options, row)
    except RuntimeError as error:
        row.problem(str(error))
        row.counts["failed to save"] = str(error)[:60]
    return row


def _kill_each(writer: Writer, wanted: int, end: float, options: Options, row: Row) -> None:
    random = options.random(writer.name)
    with options.folder() as folder:
        path = folder / writer.file_name
        seconds = {durable: _pace(writer, path, durable) for durable in (False, True)}
        start = _start_again(writer, path)
        while int(row.counts["kills"]) < wanted and (
            time.monotonic() < end or int(row.counts["kills"]) < 3
        ):
            durable = random.random() < 0.3
            child = LoopingChild(lambda durable=durable: writer.steps(path, LARGE, durable), start)
            # The first save of a process takes longer than later ones.
            time.sleep(random.uniform(0, 2.5 * seconds[durable] + 0.003))
            done = child.kill()
            if child.error:
                row.count("failed to save")
                row.problem(f"a writer failed: {child.error}")
            outcome = look(writer, path)
            what = classify(outcome, {done, done + 1})
            row.count("kills")
            row.count(what)
            if what == "whole":
                start = int(outcome.value)
                # Data sets that grow without limit make every check slower.
                if writer.session is None or start < 400:
                    continue
            else:
                row.problem(
                    f"kill {row.counts['kills']}: expected version {done} or {done + 1}, {what}: "
                    f"{outcome.kind} {outcome.value}"
                )
            start = _start_again(writer, path)
        if not writer.is_peer:
            _check_leftovers(writer, path, start, row)


def _pace(writer: Writer, path: Path, durable: bool) -> float:
    """Seconds that a save takes."""
    child = LoopingChild(lambda: writer.steps(path, LARGE, durable), _start_again(writer, path))
    times = []
    for _ in range(4):
        begin = time.monotonic()
        if child.next() is None:
            child.kill()
            raise RuntimeError(f"{writer.name}: cannot save: {child.error}")
        times.append(time.monotonic() - begin)
    child.kill()
    return statistics.median(times)


def _start_again(writer: Writer, path: Path) -> int:
    """Makes version 1, whole, where nothing was before."""
    for left in path.parent.iterdir():
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
    made = in_child(lambda: writer.save(path, 1, LARGE, True))
    if not made.returned:
        raise RuntimeError(f"{writer.name}: cannot save: {made.value}")
    return 1


def _check_leftovers(writer: Writer, path: Path, version: int, row: Row) -> None:
    """One more save removes what the killed ones left."""
    made = in_child(lambda: writer.save(path, version + 1, LARGE, True))
    if not made.returned:
        row.problem(f"the save after the last kill: {made.value}")
    names = sorted(os.listdir(path.parent))
    if names != [path.name]:
        row.problem(f"leftovers after one more save: {names}")
