"""Reads the rows that `ingest` omitted from a data set."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_BAD_ROWS = "bad_rows.jsonl"
_MANIFEST = "%parts.json"


def bad_rows_of(path: str | None) -> list[dict[str, Any]]:
    """The rows in `bad_rows.jsonl` of a data set or its parts; empty without such a file."""
    rows = []
    for folder in _folders_of(path) if path else []:
        file = os.path.join(folder, _BAD_ROWS)
        if os.path.isfile(file):
            with open(file, encoding="utf-8") as lines:
                rows += [json.loads(line) for line in lines]
    return rows


def _folders_of(path: str) -> list[str]:
    """The folders of a data set: those of its parts or, without parts, its own."""
    manifest = os.path.join(path, _MANIFEST)
    if not os.path.isfile(manifest):
        return [path]
    with open(manifest, encoding="utf-8") as file:
        return [os.path.join(path, part["path"]) for part in json.load(file)["parts"]]
