"""Creates the tables of the results, and writes them into docs/reliability.md."""

from __future__ import annotations

import itertools
import json
import re
import sys
from pathlib import Path
from typing import Any


def table(rows: list[dict[str, Any]]) -> str:
    """Returns a Markdown table: one line per subject, one column per count."""
    columns = list(dict.fromkeys(name for row in rows for name in row["counts"]))
    lines = ["| subject | " + " | ".join(columns) + " |", "| --- |" + " ---: |" * len(columns)]
    for row in rows:
        cells = [str(row["counts"].get(column, "")) for column in columns]
        lines.append(f"| {row['subject']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


#: Counts that added() does not sum, because they are sizes of the last run.
_SIZES = ("bytes", "MB", "limit, MB")


def added(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Merges two entries of a case: concatenates the runs, and adds the counts of each subject.

    Counts that are not integers, and sizes, are taken from the new entry.
    """
    rows = {row["subject"]: row for row in json.loads(json.dumps(old["rows"]))}
    for row in new["rows"]:
        known = rows.setdefault(row["subject"], {**row, "counts": {}, "problems": []})
        known["problems"] += row["problems"]
        for name, count in row["counts"].items():
            before = known["counts"].get(name, 0)
            both = isinstance(count, int) and isinstance(before, int) and name not in _SIZES
            known["counts"][name] = before + count if both else count
    return {"runs": [*old["runs"], *new["runs"]], "rows": list(rows.values())}


def described(name: str, entry: dict[str, Any]) -> str:
    """Returns the text of one case: how it was run, and its table."""
    lines = []
    where = ("date", "machine", "file system", "note")
    for (date, machine, disk, note), runs in itertools.groupby(
        entry["runs"], key=lambda run: [run.get(member, "") for member in where]
    ):
        seconds = [run["seconds"] for run in runs]
        times = f"{len(seconds)} runs of {sum(seconds)} s" if seconds[1:] else f"{seconds[0]} s"
        lines.append(f"{date}, {times}, {machine}, {disk}. {note}".rstrip())
    command = f'`make torture TORTURE_ARGS="--only {name}"`'
    versions = entry["runs"][-1]["versions"]
    runs = "\n".join(f"* {line}" for line in lines)
    return f"{command}, {versions}:\n\n{runs}\n\n{table(entry['rows'])}"


def fuzz_table(record: dict[str, dict[str, Any]]) -> str:
    """Returns the table of the results that tools/fuzz.py stored."""
    columns = ("date", "cpu seconds", "inputs run", "corpus", "edges", "failed")
    lines = ["| target | " + " | ".join(columns) + " |", "| --- | --- |" + " ---: |" * 5]
    for name, result in record.items():
        cells = ["no" if result[c] is False else str(result[c]) for c in columns]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def coverage_table(record: dict[str, Any]) -> str:
    """Returns the table of the coverage that tools/coverage.py stored, by folder."""
    folders: dict[str, list[int]] = {}
    for name, counts in record["files"].items():
        sums = folders.setdefault(name.rpartition("/")[0], [0, 0])
        sums[0] += counts["run"]
        sums[1] += counts["lines"]
    folders["all parsers"] = [record["run"], record["lines"]]
    lines = [f"{record['date']}, {record['what ran']}.", "", "| parsers of | lines | run | % |"]
    lines.append("| --- | ---: | ---: | ---: |")
    for name, (run, total) in folders.items():
        lines.append(f"| {name} | {total} | {run} | {100 * run / total:.1f} |")
    return "\n".join(lines)


def main(results: Path, repository: Path, *, check: bool) -> int:
    """Writes the tables between the markers of docs/reliability.md.

    With `check`, only compares the tables. Returns 1 if `check` finds other tables, else 0.
    """
    page = repository / "docs" / "reliability.md"
    text = page.read_text()
    stored = json.loads(results.read_text())

    def replaced(match: re.Match[str]) -> str:
        begin, name, end = match.group(1), match.group(2), match.group(3)
        body = described(name, stored[name]) if name in stored else "Not run yet."
        return f"{begin}\n{body}\n{end}"

    pattern = re.compile(r"(<!-- torture: ([\w-]+) -->)\n.*?(<!-- end -->)", re.DOTALL)
    made = pattern.sub(replaced, text)
    for marker, table_of in (("fuzzing", fuzz_table), ("coverage", coverage_table)):
        record = results.with_name(f"{marker}.json")
        body = table_of(json.loads(record.read_text())) if record.exists() else "Not run yet."
        begin, end = f"<!-- {marker} -->", "<!-- end -->"
        made = re.sub(
            rf"{begin}\n.*?{end}",
            lambda _, text=f"{begin}\n{body}\n{end}": text,
            made,
            flags=re.DOTALL,
        )
    if check:
        if made != text:
            print(f"{page}: run: python tests/torture/run.py --tables", file=sys.stderr)
            return 1
        return 0
    page.write_text(made)
    return 0
