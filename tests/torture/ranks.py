"""Ranks of torch.distributed save and load checkpoints in every layout, and are killed.

Without --short, each rank and its background process is also killed in every phase of a save.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from case import Options, Row

WORLDS = "tests/python/distributed/worlds.py"
SECONDS_A_KILL = 4  # at most: two ranks start, one is killed, and they start again


def run(options: Options) -> list[Row]:
    """Worlds of one to four ranks save and load each other's checkpoints; ranks are killed."""
    subject = "distributed.save, all layouts"
    if not options.wants(subject):
        return []
    row = Row(subject)
    kills = options.count or max(4, int(options.seconds / SECONDS_A_KILL))
    worlds = "1,2" if options.short else "1,2,3,4"
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "TENFOLD_WORLDS": worlds,
        "TENFOLD_KILLS": str(kills),
        **({} if options.short else {"TENFOLD_EVERY_FAULT": "1"}),
    }
    begin = time.monotonic()
    with options.folder() as folder:
        done = subprocess.run(
            [sys.executable, options.repository / WORLDS, folder],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        row.problem(done.stderr[-2000:])
        return [row]
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    row.counts["worlds"] = worlds
    row.count("kills", kills)
    row.count("checks", len(found))
    row.count("failed", sum(said is not None for said in found.values()))
    row.count("seconds", int(time.monotonic() - begin))
    for name, said in found.items():
        if said is not None:
            row.problem(f"{name}: {said[-500:]}")
    return [row]
