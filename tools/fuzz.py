"""Fuzzes every target for a number of CPU-seconds, keeps new inputs, and records the runs.

    make fuzz-release FUZZ_SECONDS=600
    python tools/fuzz.py --seconds 600 [--only zip,json] [--build build/fuzz] [--record FILE]

Inputs that reach new code are added to build/fuzz/corpus/<target>. After the run of a target, this
folder is merged with fuzz/corpus/<target>: it keeps the fewest inputs with the coverage of both.
With `--keep`, inputs of up to 16 KiB that run new branches are also copied to fuzz/corpus; commit
them. Exits with 1 if a target failed; build/fuzz/findings then has the input. Exits with 2 if no
target is built, or if `--only` has an unknown name.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
RECORD = REPOSITORY / "tests" / "torture" / "fuzzing.json"
MOST_BYTES = 16 << 10
COMMON = ["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"]


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def fuzz(program: Path, seconds: float, folders: list[Path], findings: Path) -> dict[str, object]:
    """Runs a target until it fails or has used the CPU-seconds.

    A run of libFuzzer can limit its wall-clock time only, so several runs may be necessary.
    """
    begin = cpu_seconds()
    executed, failed, coverage = 0, False, 0
    while not failed and cpu_seconds() - begin < seconds:
        left = max(1, round(seconds - (cpu_seconds() - begin)))
        options = [f"-max_total_time={left}", f"-artifact_prefix={findings}/{program.name}-"]
        done = subprocess.run(
            [program, *COMMON, *options, *folders],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            errors="replace",
        )
        units = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
        executed += int(units.group(1)) if units else 0
        edges = re.findall(r"\bcov: (\d+)", done.stderr)
        coverage = max([coverage, *map(int, edges)])
        failed = done.returncode != 0
        if failed:
            sys.stderr.write(done.stderr[-4000:])
    return {
        "cpu seconds": round(cpu_seconds() - begin),
        "inputs run": executed,
        "edges": coverage,
        "failed": failed,
    }


def merge(program: Path, target: Path, sources: list[Path]) -> None:
    """Replaces the folder `target` by the fewest inputs with the coverage of all `sources`.

    If the merge fails, `target` does not change.
    """
    merged = target.with_name(target.name + ".merged")
    shutil.rmtree(merged, ignore_errors=True)
    merged.mkdir(parents=True)
    old = target.with_name(target.name + ".old")
    if old.is_dir():  # an earlier merge was interrupted after its first rename()
        sources = [*sources, old]
    done = subprocess.run([program, "-merge=1", *COMMON, merged, *sources], capture_output=True)
    if done.returncode == 0:
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
        merged.rename(target)
        shutil.rmtree(old)


def keep(program: Path, inputs: list[Path], given: Path) -> None:
    """Copies small inputs to `given` if they run branches that no input in `given` runs.

    An input that only runs a known branch more often is not copied, because there are several times
    as many such inputs.
    """
    given.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as small:
        for path in inputs:
            if path.stat().st_size <= MOST_BYTES:
                shutil.copyfile(path, Path(small, path.name))
        command = [program, "-merge=1", "-use_counters=0", *COMMON, given, small]
        subprocess.run(command, capture_output=True, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600, help="CPU-seconds for each target")
    parser.add_argument("--only", default="", help="targets, separated by commas")
    parser.add_argument("--build", type=Path, default=REPOSITORY / "build" / "fuzz")
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument(
        "--keep", action="store_true", help="adds small inputs with new branches to fuzz/corpus"
    )
    options = parser.parse_args()

    programs = sorted((options.build / "fuzz").glob("fuzz_*"))
    programs = [p for p in programs if p.is_file() and os.access(p, os.X_OK)]
    names = options.only.split(",") if options.only else []
    known = {p.name.removeprefix("fuzz_").removesuffix("_fuzz"): p for p in programs}
    unknown = [name for name in names if name not in known]
    if programs and unknown:
        print(f"--only: unknown targets: {', '.join(unknown)}", file=sys.stderr)
        return 2
    programs = [known[name] for name in known if not names or name in names]
    if not programs:
        print(f"{options.build}: no fuzz targets; build them with make fuzz", file=sys.stderr)
        return 2
    findings = options.build / "findings"
    findings.mkdir(exist_ok=True)
    record = json.loads(options.record.read_text()) if options.record.exists() else {}
    failed = False
    for program in programs:
        name = program.name.removeprefix("fuzz_")
        own, given = options.build / "corpus" / name, REPOSITORY / "fuzz" / "corpus" / name
        own.mkdir(parents=True, exist_ok=True)
        sources = [own, *([given] if given.is_dir() else [])]
        result = fuzz(program, options.seconds, sources, findings)
        failed |= bool(result["failed"])
        merge(program, own, sources)
        inputs = [path for path in own.iterdir() if path.is_file()]
        result["corpus"] = len(inputs)
        result["date"] = datetime.date.today().isoformat()
        record[name] = result
        if options.keep:
            keep(program, inputs, given)
        print(f"{name}: {result}", flush=True)
        options.record.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
