"""The table of the cases, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable

import calls
import flips
import harness
import kills
import memory
import places
import power
import ranks
import resume
import sharing
from case import Options, Row

CASES: dict[str, Callable[[Options], list[Row]]] = {
    "kills": kills.run,
    "power": power.run,
    "calls": calls.run_writers,
    "reads": calls.run_readers,
    "harness": harness.run,
    "flips": flips.run_flips,
    "cuts": flips.run_cuts,
    "many-flips": flips.run_many_flips,
    "readers": sharing.run_readers,
    "writers": sharing.run_writers,
    "full-disk": places.run_full,
    "quota": places.run_quota,
    "places": places.run,
    "memory": memory.run,
    "ranks": ranks.run,
    "resume": resume.run,
}
