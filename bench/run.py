"""Measures tenfold against its peers and bare system calls, interleaved in one run.

python bench/run.py                      everything
python bench/run.py save_many checksums  selected benchmarks
python bench/run.py --write              also updates the tables in docs/performance/
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import batches
import calls
import checkpoints
import dictionaries
import dictionary_larger_than_memory
import growing
import ingest_sources
import ingest_text
import larger_than_memory
import libtorch
import reading
import saving
import snapshots
import sparse_matrices
import state_mappers
import summary
import torch
import torch_files
from harness import ROOT, Result, release_memory, save_json

import tenfold

# For each page of docs/performance/, the modules that measure the tables of the page.
TOPICS = {
    "saving": (saving, snapshots, checkpoints),
    "loading": (reading, torch_files, libtorch),
    "batches": (batches, larger_than_memory),
    "tensordict": (calls,),
    "ingest": (growing, ingest_text, ingest_sources),
    "dictionaries": (dictionaries, dictionary_larger_than_memory),
    "matrices": (state_mappers, sparse_matrices),
}

# The packages whose versions the pages name, if they are installed.
PACKAGES = (
    "torch",
    "numpy",
    "safetensors",
    "tensordict",
    "torchsnapshot",
    "pyarrow",
    "duckdb",
    "pandas",
    "datasets",
    "lmdb",
    "scipy",
)

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def machine() -> str:
    name = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    return (
        f"{name}, {os.cpu_count()} cores, Linux {platform.release()}, "
        f"Python {platform.python_version()}, tenfold {tenfold.__version__}, {versions()}"
    )


def versions() -> str:
    found = []
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{package} {importlib.metadata.version(package)}")
    return ", ".join(found)


def write_pages(results: dict[str, list[Result]]) -> None:
    """Writes the tables of each topic to its page, and updates the summary of all topics."""
    for topic, of_topic in results.items():
        write_page(of_topic, summary.TOPICS / f"{topic}.md")
    summary.write()


def write_page(results: list[Result], page: Path) -> None:
    """Updates the measured tables and the machine between the markers of the page."""
    text = page.read_text()
    head, rest = text.split(BEGIN)
    before, tail = rest.split(END)
    sections = summary.updated_tables(before, {r.name: r.markdown() for r in results})
    body = "\n".join([f"Machine: {machine()}. Medians of interleaved runs.\n", *sections])
    page.write_text(f"{head}{BEGIN}\n{body}{END}{tail}")


def benchmarks() -> dict[str, tuple[str, Callable[[Path, int], Result | None]]]:
    """Returns the topic and the function of each benchmark, by its name."""
    return {
        work.__name__: (topic, work)
        for topic, modules in TOPICS.items()
        for module in modules
        for work in module.ALL
    }


def main() -> None:
    every = benchmarks()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(every))
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument(
        "--folder", type=Path, help="where to create temporary folders (default: build/bench)"
    )
    parser.add_argument("--write", action="store_true", help="update docs/performance/")
    parser.add_argument(
        "--width",
        type=int,
        default=checkpoints.WIDTH,
        help="width of the GPT-2 whose checkpoints are measured (default: %(default)s, 1.5 GB)",
    )
    parser.add_argument(
        "--results", type=Path, help="JSON file to write (default: build/bench/results.json)"
    )
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in every]
    if unknown:
        parser.error(f"unknown benchmarks: {', '.join(unknown)}")
    checkpoints.WIDTH = options.width
    base = options.folder or ROOT / "build" / "bench"
    base.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    print(machine(), flush=True)
    results: dict[str, list[Result]] = {}
    failed = []
    for name in options.names or every:
        topic, work = every[name]
        with tempfile.TemporaryDirectory(dir=base) as folder:
            os.sync()
            try:
                result = work(Path(folder), options.repetitions)
            except Exception:
                traceback.print_exc()
                failed.append(name)
                continue
            finally:
                release_memory()
        if result is not None:
            results.setdefault(topic, []).append(result)
            print("\n" + result.markdown(), flush=True)
    measured = [result for of_topic in results.values() for result in of_topic]
    save_json(measured, options.results or ROOT / "build" / "bench" / "results.json")
    if options.write:
        write_pages(results)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
