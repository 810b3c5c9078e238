"""Ranks of torch.distributed save and load checkpoints in every layout, and are killed.

Without --short, each rank and each background process is also killed in every phase of a save.
"""

from __future__ import annotations

import json
import sys
import time

from case import Options, Row
from children import run_program

WORLDS = "tests/python/distributed/worlds.py"
FIRST_KILLS = 4
KILLS_AT_A_TIME = 10
#: Seconds after which the checks count as hung. Each world has a timeout of its own.
_LONGEST = 4 * 3600


def run(options: Options) -> list[Row]:
    """Worlds of one to four ranks load each other's checkpoints; ranks are killed (SIGKILL)."""
    subject = "distributed.save, all layouts"
    if not options.wants(subject):
        return []
    worlds = "1,2" if options.short else "1,2,3,4"
    row = Row(subject, counts={"worlds": worlds, "kills": 0, "checks": 0, "failed": 0})
    begin = time.monotonic()
    is_whole = _check("", FIRST_KILLS, worlds, row, options)
    while is_whole and (
        int(row.counts["kills"]) < options.count
        if options.count
        else time.monotonic() < options.end
    ):
        is_whole = _check("sigkill_of_a_rank", KILLS_AT_A_TIME, worlds, row, options)
        options.say(f"{row.counts['kills']} kills")
    row.count("seconds", int(time.monotonic() - begin))
    return [options.finished(row)]


def _check(name: str, kills: int, worlds: str, row: Row, options: Options) -> bool:
    """Runs the checks whose names contain `name`. Returns False after a failure."""
    environment = {
        "OMP_NUM_THREADS": "1",
        "TENFOLD_WORLDS": worlds,
        "TENFOLD_KILLS": str(kills),
        # Each batch has a different seed, so that it kills at other moments.
        "TENFOLD_SEED": f"{options.seed} {row.counts['kills']}",
        **({} if options.short else {"TENFOLD_EVERY_FAULT": "1"}),
    }
    with options.folder() as folder:
        done = run_program(
            [sys.executable, options.repository / WORLDS, folder, *([name] if name else [])],
            _LONGEST,
            environment=environment,
        )
    if done.status != 0:
        row.problem(f"status {done.status}: {done.stderr[-2000:]}")
        return False
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    row.count("kills", kills)
    row.count("checks", len(found))
    row.count("failed", sum(said is not None for said in found.values()))
    for check, said in found.items():
        if said is not None:
            row.problem(f"{check}: {said[-1000:]}")
    return not row.problems
