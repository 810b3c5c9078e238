"""Reads commit pages, which docs/format.md describes under "`%commit`: the commit page"."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from xxh3 import xxh3

SEED = 0x00646C6F666E6574
BOOT_ID = bytes.fromhex(Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", ""))


def committed_rows(read: Callable[[str], bytes], boot: bytes = BOOT_ID) -> int | None:
    """Returns the number of committed rows of a folder, or None if it has no commit page.

    Without a commit page, the shape in meta.json has the number of rows.

    `read` returns the bytes of a file of the folder, b"" if the file does not exist. `boot` is the
    boot ID: live records of another boot are ignored.
    """
    if not (page := read("%commit")):
        return None
    rows = np.frombuffer(page, "<u8").reshape(-1, 8)
    assert bytes(rows[4, :2]) == b"tenfold%commit 1"
    assert xxh3(rows[4, :3], SEED) == rows[4, 3]
    # A record with a wrong checksum was not written completely: its sequence number counts as 0.
    records = [row if xxh3(row[:7], SEED) == row[7] else row * 0 for row in rows[:4]]
    live, durable = (max(records[i : i + 2], key=lambda row: row[0]) for i in (0, 2))
    if bytes(live[1:3]) == boot:
        return int(live[3])
    capacity, batch_size = rows[4, 2], json.loads(read("meta.json"))["shape"]
    return int(durable[3]) if capacity else next(iter(batch_size), None)
