"""Every writer, killed (SIGKILL) at random moments."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from pathlib import Path

import writers
from case import BAD, Options, Row, classify, look, rows_of
from children import LoopingChild, in_child
from writers import LARGE, MEDIUM, Sizes, Writer

COLUMNS = ("kills", "whole", *BAD)
MOST_KILLS_OF_A_PEER = 100


def run(options: Options) -> list[Row]:
    """After a SIGKILL the path has the last acknowledged version, or the next one."""
    return rows_of(options.writers(), options, _kill)


def _kill(writer: Writer, end: float, options: Options) -> Row:
    wanted = options.count or (3 if options.short else 500)
    if writer.is_peer:
        wanted = min(wanted, MOST_KILLS_OF_A_PEER)
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
        kinds = [(sizes, durable) for sizes in (MEDIUM, LARGE) for durable in (False, True)]
        seconds = {kind: _pace(writer, path, *kind) for kind in kinds}
        start = _start_again(writer, path)
        while int(row.counts["kills"]) < wanted and (
            time.monotonic() < end or int(row.counts["kills"]) < 3
        ):
            sizes = LARGE if random.random() < 0.2 else MEDIUM
            durable = random.random() < 0.3
            child = LoopingChild(lambda s=sizes, d=durable: writer.steps(path, s, d), start)
            opening, saving = seconds[sizes, durable]
            if writer.session is not None and random.random() < 0.25:
                # Kill the child while it opens the store and repairs what the last kill left.
                time.sleep(random.uniform(0, opening))
            else:
                child.ready()
                # The first save of a process takes longer than later ones.
                time.sleep(random.uniform(0, 2.5 * saving + 0.003))
            done = child.kill()
            writers.remove_sources(child.pid)
            if child.error:
                row.count("failed to save")
                row.problem(f"a writer failed: {child.error}")
            outcome = look(writer, path)
            what = classify(outcome, {done, done + 1})
            row.count("kills")
            row.count(what)
            if what == "whole":
                start = int(outcome.value)
                # Replace a growing store after some versions, because each makes its checks slower.
                if writer.session is None or start < writer.last_version:
                    continue
            else:
                row.problem(
                    f"kill {row.counts['kills']}: expected version {done} or {done + 1}, {what}: "
                    f"{outcome.kind} {outcome.value}"
                )
            start = _start_again(writer, path)
        if not writer.is_peer:
            _check_leftovers(writer, path, start, row)


def _pace(writer: Writer, path: Path, sizes: Sizes, durable: bool) -> tuple[float, float]:
    """Returns the seconds until a child can save (a store is open), and those of a median save."""
    start = _start_again(writer, path)
    begin = time.monotonic()
    child = LoopingChild(lambda: writer.steps(path, sizes, durable), start)
    child.ready()
    opening = time.monotonic() - begin
    times = []
    for _ in range(4):
        begin = time.monotonic()
        if child.next() is None:
            child.kill()
            raise RuntimeError(f"{writer.name}: cannot save: {child.error}")
        times.append(time.monotonic() - begin)
    child.kill()
    writers.remove_sources(child.pid)
    return opening, statistics.median(times)


def _start_again(writer: Writer, path: Path) -> int:
    """Empties the folder of `path` and saves version 1."""
    for left in path.parent.iterdir():
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
    made = in_child(lambda: writer.save(path, 1, LARGE, True))
    if not made.returned:
        raise RuntimeError(f"{writer.name}: cannot save: {made.kind} {made.value}")
    return 1


def _check_leftovers(writer: Writer, path: Path, version: int, row: Row) -> None:
    """Reports a problem unless one more save removes what killed saves left."""
    made = in_child(lambda: writer.save(path, version + 1, LARGE, True))
    if not made.returned:
        row.problem(f"the save after the last kill: {made.kind} {made.value}")
    names = sorted(os.listdir(path.parent))
    if names != [path.name]:
        row.problem(f"leftovers after one more save: {names}")
