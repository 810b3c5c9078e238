"""Tests the guarantees of tenfold under faults; counts outcomes, also of other libraries.

    make torture                                          # every case, hours
    make torture TORTURE_ARGS="--only kills --seconds 60"
    python tests/torture/run.py --short                   # seconds; what the test suite runs
    python tests/torture/run.py --list

Each case prints its progress, and begins no new trial after `--seconds`. It makes at least one
trial of each subject, except that `memory` and `places` skip the subjects for which no time is
left. A case that tries every possible fault also reports how many faults it had no time for. The
counts of a case replace those in --results, or are added to them with `--add` (use another
`--seed`). A run with `--subjects` is stored only with `--add`. `--tables` writes all stored counts
into docs/reliability.md. Exits with 1 if a guarantee of tenfold was violated or a case failed, and
with 2 for an unknown case, or if no subject of the cases matches `--subjects`.
"""

from __future__ import annotations

import argparse
import datetime
import fcntl
import gc
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
RESULTS = HERE / "results.json"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="cases, separated by commas; default: all")
    parser.add_argument(
        "--subjects",
        default="",
        help="only subjects whose name contains one of these; separated by semicolons",
    )
    parser.add_argument("--add", action="store_true", help="adds to the stored counts")
    parser.add_argument(
        "--seconds", type=float, default=0, help="for each case; default: 1200, or 3 with --short"
    )
    parser.add_argument("--count", type=int, default=0, help="trials for each subject")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="subjects tested concurrently")
    parser.add_argument("--no-peers", action="store_true", help="without other libraries")
    parser.add_argument("--short", action="store_true", help="only a few trials of each subject")
    parser.add_argument("--list", action="store_true", help="prints the cases")
    parser.add_argument(
        "--results", type=Path, help=f"JSON file; default: {RESULTS}, or none with --short"
    )
    parser.add_argument(
        "--tables", action="store_true", help="writes the stored counts into the docs; runs no case"
    )
    parser.add_argument(
        "--check-tables",
        action="store_true",
        help="fails if the docs differ from the stored counts",
    )
    parser.add_argument("--build", type=Path, default=REPOSITORY / "build" / "release")
    parser.add_argument("--folder", type=Path, help="where to work; default: a temporary folder")
    return parser.parse_args()


def machine() -> str:
    kernel = platform.release().split("-")[0]
    with open("/proc/meminfo") as file:
        gib = round(int(file.readline().split()[1]) / 2**20)
    return f"{os.cpu_count()} cores, {gib} GiB, Linux {kernel}"


def file_system(path: Path) -> str:
    found = subprocess.run(
        ["stat", "-f", "-c", "%T", str(path)], capture_output=True, text=True
    ).stdout.strip()
    return {"ext2/ext3": "ext4"}.get(found, found)


def versions() -> str:
    import numpy
    import torch

    import tenfold

    parts = [f"tenfold {tenfold.__version__}", f"torch {torch.__version__}"]
    parts.append(f"numpy {numpy.__version__}")
    peers = ("safetensors", "tensordict", "torchsnapshot", "torch_checkpointing")
    used = (name for name in peers if name in sys.modules)
    parts += [f"{name} {importlib.metadata.version(name)}" for name in used]
    return ", ".join(parts)


def store(results: Path, name: str, entry: dict, options: argparse.Namespace) -> None:
    """Stores the entry of a case in the results; a lock serialises concurrent runs."""
    import report

    with open(results.with_name(results.name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stored = json.loads(results.read_text()) if results.exists() else {}
        if options.add and name in stored:
            entry = report.added(stored[name], entry)
        stored[name] = entry
        results.write_text(json.dumps(stored, indent=1) + "\n")


def main() -> int:
    options = arguments()
    import report

    if options.tables or options.check_tables:
        return report.main(RESULTS, REPOSITORY, check=options.check_tables)

    import faults

    if not options.list:
        faults.preload(REPOSITORY / "build" / "torture")
    from cases import CASES

    if options.list:
        for name, case in CASES.items():
            print(f"{name:12} {(case.__doc__ or '').splitlines()[0]}")
        return 0
    names = options.only.split(",") if options.only else list(CASES)
    unknown = [name for name in names if name not in CASES]
    if unknown:
        print(f"no such case: {', '.join(unknown)}; there are: {', '.join(CASES)}", file=sys.stderr)
        return 2

    import children
    import torch
    import writers
    from case import Options

    torch.set_num_threads(1)  # its threads do not survive a fork
    writers.import_everything()
    gc.collect()
    gc.freeze()
    children.compact_memory()
    seconds = options.seconds or (3 if options.short else 1200)
    results = options.results or (None if options.short else RESULTS)
    print(f"seed {options.seed}, {seconds:g} s for each of: {', '.join(names)}", flush=True)
    broken = num_rows = 0
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(
            prefix="torture-", dir=options.folder, ignore_cleanup_errors=True
        ) as work,
        tempfile.TemporaryDirectory(prefix="torture-", dir=memory) as sources,
    ):
        writers.SOURCES = Path(sources)
        for name in names:
            begin = time.monotonic()
            chosen = Options(
                case=name,
                short=options.short,
                seconds=seconds,
                seed=options.seed,
                work=Path(work),
                repository=REPOSITORY,
                build=options.build,
                subjects=options.subjects,
                count=options.count,
                with_peers=not options.no_peers,
                jobs=options.jobs,
            )
            try:
                rows = CASES[name](chosen)
            except Exception:  # the other cases run nevertheless
                traceback.print_exc()
                print(f"BROKEN: {name}: the harness failed", flush=True)
                broken += 1
                continue
            took = time.monotonic() - begin
            run = {
                "date": datetime.date.today().isoformat(),
                "machine": machine(),
                "file system": file_system(Path(work)),
                "versions": versions(),
                "seconds": round(took),
                "seed": options.seed,
            }
            print(f"\n## {name} ({took:.0f} s)\n")
            print(report.table([vars(row) for row in rows]))
            broken += sum(len(row.problems) for row in rows)
            num_rows += len(rows)
            sys.stdout.flush()
            if results is not None and (options.add or not options.subjects):
                store(results, name, {"runs": [run], "rows": [vars(row) for row in rows]}, options)
    print(f"\n{broken} broken promises")
    if not broken and not num_rows:
        print(f"no subject of these cases contains {options.subjects!r}", file=sys.stderr)
        return 2
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
