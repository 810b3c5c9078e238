"""Converts a folder of .pt, .pth and .bin files to safetensors, without executing their pickles.

    python convert_pt.py old_weights new_weights

A file whose pickle would run code is reported and not converted. Every value of a converted file
is compared with its source. Exits with 1 if a file was not converted.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import tenfold


def convert(source: Path, target: Path) -> str | None:
    """Converts `source`. Returns None, or the reason why `source` was not converted."""
    try:
        report = tenfold.scan(source)  # what unpickling would call; nothing is imported
        dangerous = [finding.name for finding in report.findings if finding.risk == "dangerous"]
        if dangerous:
            return f"unpickling it would call {', '.join(dangerous)}"
        tenfold.convert(source, target)  # in bounded memory; `target` is created atomically
    except tenfold.Error as error:  # such as: not a torch file, or a class that is not supported
        return str(error)
    difference = tenfold.diff(source, target)
    assert difference.same, difference
    assert tenfold.verify(target).ok  # the checksums of the new file
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    sources: dict[Path, Path] = {}  # the source of each target that was written
    files = sorted(p for p in options.source.rglob("*") if p.suffix in (".pt", ".pth", ".bin"))
    for file in files:
        target = options.target / file.relative_to(options.source).with_suffix(".safetensors")
        target.parent.mkdir(parents=True, exist_ok=True)
        if target in sources:  # a.bin and a.pt, for example, have the same target
            reason: str | None = f"{target} was written from {sources[target]}"
        else:
            reason = convert(file, target)
        if reason is None:
            sources[target] = file
        print(f"{file}: not converted: {reason}" if reason else f"{file} -> {target}")
    print(f"{len(sources)} of {len(files)} files converted")
    return int(len(sources) < len(files))


if __name__ == "__main__":
    raise SystemExit(main())
