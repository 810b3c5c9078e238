"""Data sets on disk, which may be larger than memory, and loaders of their rows in batches.

>>> ds = tenfold.Dataset("flights")
>>> for batch in tenfold.BatchLoader(ds, batch_size=256, shuffle=True):
...     train(batch["price"])
"""

from __future__ import annotations

from tenfold._reports import IngestReport, Promotion
from tenfold.dataset._accumulate import Weighted, Window, accumulate
from tenfold.dataset._create import create
from tenfold.dataset._dataset import Dataset, concat, mix
from tenfold.dataset._ingest.ingest import infer_schema, ingest
from tenfold.dataset._loader import BatchLoader
from tenfold.dataset._parts import commit_parts, compact, create_parts
from tenfold.dataset._permutation import permutation
from tenfold.dataset._rows import Rows, collate
from tenfold.dataset._schema import Column, Schema

__all__ = [
    "BatchLoader",
    "Column",
    "Dataset",
    "IngestReport",
    "Promotion",
    "Rows",
    "Schema",
    "Weighted",
    "Window",
    "accumulate",
    "collate",
    "commit_parts",
    "compact",
    "concat",
    "create",
    "create_parts",
    "infer_schema",
    "ingest",
    "mix",
    "permutation",
]
