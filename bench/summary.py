"""Generates the table and the picture of docs/performance.md from the tables in docs/performance/.

    python bench/summary.py          writes both, as bench/run.py --write does
    python bench/summary.py --check  exits with 1 if one of them is out of date

Uses only the standard library.
"""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
PICTURE = ROOT / "docs" / "performance.svg"
TOPICS = ROOT / "docs" / "performance"
BEGIN, END = "<!-- summary: begin -->", "<!-- summary: end -->"


@dataclass
class Row:
    """A row of the summary: a contender of tenfold and its peers in one table of a topic."""

    task: str
    topic: str
    title: str
    ours: str
    peers: tuple[str, ...]


ROWS = (
    Row(
        "Save 512 MiB, 8 tensors, as a folder",
        "saving",
        "Save 8 x 64 MiB to a new path, not durable",
        "tenfold folder",
        ("safetensors", "torch.save", "tensordict folder", "tensordict folder, 2 threads"),
    ),
    Row(
        "Save 1.5 GB, 592 tensors, as a .pt file",
        "saving",
        "Save 1.5 GB, 592 tensors, into one new file, not durable",
        "tenfold .pt",
        ("torch.save",),
    ),
    Row(
        "Save 2,000 tensors of 16 KiB in one file",
        "saving",
        "Save 2,000 x 16 KiB to a new path, not durable",
        "tenfold safetensors",
        ("safetensors", "torch.save"),
    ),
    Row(
        "Take a snapshot of 2,000 tensors",
        "saving",
        "Take a snapshot of 2,000 x 16 KiB",
        "tenfold",
        ("torchsnapshot",),
    ),
    Row(
        "Load 10,000 tensors from a safetensors file",
        "loading",
        "Open 10,000 tensors of 64 bytes in one file",
        "tenfold.load, all torch tensors",
        ("safetensors, all torch tensors", "torch.load(weights_only, mmap)"),
    ),
    Row(
        "Load 10,000 tensors from a .pt file",
        "loading",
        "Open a `.pt` of 10,000 tensors of 1 KiB, all of them made",
        "tenfold",
        ("torch.load(mmap)", "torch.load", "safetensors, the same tensors"),
    ),
    Row(
        "Load a folder of 2,000 tensors",
        "loading",
        "Open a folder of 2,000 x 16 KiB",
        "tenfold.load",
        ("tensordict",),
    ),
    Row(
        "Read 1.5 GB, not cached",
        "loading",
        "Open and read all of 1.5 GB, page cache dropped before each",
        "tenfold folder",
        ("safetensors", "torch.load(mmap)"),
    ),
    Row(
        "Copy 1.5 GB into an existing model, 2 threads",
        "loading",
        "Copy 592 parameters, 1.5 GB, from a cached file into existing tensors",
        "tenfold.load_into, 2 threads",
        ("safetensors + copy_", "torch.load(mmap) + copy_"),
    ),
    Row(
        "400 shuffled batches of 256 rows",
        "batches",
        "400 batches of 256 shuffled rows of 8 fields, 2 M rows in the page cache",
        "BatchLoader, 1 thread",
        ("index_select per field, 1 thread", "tensordict td[index]", "DataLoader over rows"),
    ),
    Row(
        "Ingest 280 MB of JSON lines, 2 threads",
        "ingest",
        "JSON lines to columns on disk, 280 MB, 38 numbers and a text a record",
        "tenfold, 2 threads",
        ("pyarrow, streamed -> memmap", "DuckDB -> Parquet, 2 threads"),
    ),
    Row(
        "102,400 dictionary lookups, 2 threads",
        "dictionaries",
        "Look up 400 batches of 256 keys, and 10,240 keys one by one: 1,000,000 strings to "
        "float32[32], in the page cache",
        "MappedDict, list of str",
        ("lmdb", "Python dict, itemgetter and index_select, in memory"),
    ),
)


@dataclass
class Comparison:
    row: Row
    ours_ms: float
    peer: str
    peer_ms: float

    @property
    def factor(self) -> float:
        return self.peer_ms / self.ours_ms


def timings(topic: str) -> dict[str, dict[str, float]]:
    """Returns the medians of all tables of a topic: title -> contender -> milliseconds."""
    text = (TOPICS / f"{topic}.md").read_text(encoding="utf-8")
    tables = {}
    for section in text.split("\n### ")[1:]:
        title, _, body = section.partition("\n")
        rows = re.findall(r"^\| ([^|]+) \| ([\d.e+-]+) \| [\d.e+-]+ \|$", body, re.MULTILINE)
        tables[title.strip()] = {name: float(median) for name, median in rows}
    return tables


def updated_tables(text: str, measured: dict[str, str]) -> list[str]:
    """Returns the tables of the page `text`, in its order; `measured` tables replace older ones.

    A comment below the title of a table names its benchmark, so that a table whose title has
    changed is replaced. A table without this comment is replaced by the new table with the same
    title. New benchmarks follow at the end.
    """
    new = {name: table.replace("\n", f"\n<!-- {name} -->\n", 1) for name, table in measured.items()}
    names = {table.split("\n", 1)[0]: name for name, table in new.items()}
    tables = {}
    for part in text.split("### ")[1:]:
        table = f"### {part.rstrip()}\n"
        title, _, body = table.partition("\n")
        marked = re.match(r"<!-- (\w+) -->\n", body)
        tables[marked[1] if marked else names.get(title, title)] = table
    return list({**tables, **new}.values())


def comparisons() -> list[Comparison]:
    """Compares tenfold in each row with its fastest peer, by the medians of one table."""
    by_topic = {topic: timings(topic) for topic in {row.topic for row in ROWS}}
    found = []
    for row in ROWS:
        table = by_topic[row.topic][row.title]
        peer = min(row.peers, key=table.__getitem__)
        found.append(Comparison(row, table[row.ours], peer, table[peer]))
    return found


def shown_ms(milliseconds: float) -> str:
    return f"{milliseconds:,.0f} ms" if milliseconds >= 100 else f"{milliseconds:.3g} ms"


def shown_factor(factor: float) -> str:
    return f"{factor:.0f}x" if factor >= 10 else f"{factor:.2g}x"


def table_of(found: list[Comparison]) -> str:
    lines = ["| task | tenfold | best peer | speedup |", "| --- | ---: | ---: | ---: |"]
    for c in found:
        task = f"[{c.row.task}](performance/{c.row.topic}.md)"
        peer = f"{shown_ms(c.peer_ms)} ({c.peer})"
        lines.append(f"| {task} | {shown_ms(c.ours_ms)} | {peer} | {shown_factor(c.factor)} |")
    return "\n".join(lines)


def picture_of(found: list[Comparison]) -> str:
    """Draws bars of the speedups on a logarithmic axis. A dark line marks 1x, the best peer."""
    left, bar, gap, width = 330, 18, 8, 820
    powers = math.ceil(math.log2(max(c.factor for c in found)))
    least = min(0, math.floor(math.log2(min(c.factor for c in found))))
    scale = (width - left - 70) / (powers - least)

    def x_of(factor: float) -> float:
        return left + (math.log2(factor) - least) * scale

    height = 40 + len(found) * (bar + gap) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13" role="img" '
        'aria-label="Speedup of tenfold over the best peer">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        '<text x="8" y="22" font-weight="bold">Speedup over the best peer (log scale)</text>',
    ]
    bottom = height - 28
    for power in range(least, powers + 1):
        x = x_of(2.0**power)
        color = "#444444" if power == 0 else "#dddddd"
        label = f"{2**power}x" if power >= 0 else f"1/{2**-power}x"
        parts.append(f'<path d="M{x:.1f} 36V{bottom}" stroke="{color}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{label}</text>')
    for i, c in enumerate(found):
        y = 40 + i * (bar + gap)
        begin, end = sorted((x_of(1), x_of(c.factor)))
        color = "#2a7f62" if c.factor >= 1 else "#b5533c"
        parts.append(
            f'<rect x="{begin:.1f}" y="{y}" width="{max(end - begin, 1):.1f}" height="{bar}" '
            f'fill="{color}"/>'
        )
        task = escape(c.row.task)
        parts.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{task}</text>')
        parts.append(f'<text x="{end + 6:.1f}" y="{y + 14}">{shown_factor(c.factor)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def made() -> dict[Path, str]:
    """Returns the new contents of the page and of the picture."""
    found = comparisons()
    head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    tail = rest.split(END)[1]
    page = f"{head}{BEGIN}\n{table_of(found)}\n{END}{tail}"
    return {PAGE: page, PICTURE: picture_of(found)}


def write() -> None:
    for path, text in made().items():
        path.write_text(text, encoding="utf-8")


def main() -> int:
    if "--check" not in sys.argv[1:]:
        write()
        return 0
    stale = [path for path, text in made().items() if path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)}: is out of date; run python bench/summary.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
