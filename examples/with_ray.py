"""Ray Data writes a data set on two workers, two ranks train on it, and one process resumes.

python examples/with_ray.py                  # a minute
python examples/with_ray.py --without-ray    # two processes write the parts instead
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import tenfold

ROWS, BATCH = 2000, 100
SCHEMA = {"x": ("float32", (2,)), "y": "float32"}


def write_with_ray(path: Path) -> tenfold.Dataset:
    """Computes the rows and writes the parts on two workers of Ray."""
    import ray

    import tenfold.ray

    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=256 << 20)
    try:
        ids = ray.data.range(ROWS, override_num_blocks=4)
        rows = ids.map(lambda row: {"x": [row["id"] / ROWS, 1.0], "y": 3 * row["id"] / ROWS + 1})
        return tenfold.ray.write(rows, path, schema=SCHEMA)
    finally:
        ray.shutdown()


def write_part(path: Path, begin: int, end: int) -> None:
    x = torch.arange(begin, end) / ROWS
    columns = {"x": torch.stack([x, torch.ones_like(x)], 1), "y": 3 * x + 1}
    tenfold.ingest(columns, path, schema=SCHEMA)


def write_without_ray(path: Path) -> tenfold.Dataset:
    """Writes a part in each of two processes, as on two hosts, and commits the parts."""
    context = multiprocessing.get_context("spawn")
    half = ROWS // 2
    workers = [
        context.Process(target=write_part, args=(path / f"worker-{i}", i * half, (i + 1) * half))
        for i in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise SystemExit("a worker failed")
    return tenfold.commit_parts(path)


def train(folder: Path, run: str, stop_after: int | None) -> list[float]:
    """Trains on this rank. Returns the loss of each step, over the rows of all ranks."""
    rank = int(os.environ.get("RANK", "0"))
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size > 1:
        torch.distributed.init_process_group("gloo", timeout=datetime.timedelta(minutes=2))
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = tenfold.Dataset(folder / "rows")
    loader = tenfold.BatchLoader(
        rows, BATCH, shuffle=True, seed=7, rank=rank, world_size=world_size
    )
    losses = []
    with tenfold.CheckpointManager(folder / run) as manager:
        state = {"model": model, "optimizer": optimizer, "loader": loader}
        step = manager.restore(state, missing_ok=True).step or 0
        for batch in loader:
            # The sum of the losses of all ranks is the mean loss of the whole batch.
            loss = ((model(batch["x"])[:, 0] - batch["y"]) ** 2).sum() / BATCH
            optimizer.zero_grad()
            loss.backward()
            total = loss.detach().clone()
            if world_size > 1:
                for tensor in (total, *(p.grad for p in model.parameters())):
                    torch.distributed.all_reduce(tensor)
            optimizer.step()
            losses.append(round(total.item(), 4))
            step += 1
            if step == stop_after:
                manager.save(step, state)
                break
    if world_size > 1:
        torch.distributed.destroy_process_group()
    return losses


def on_ranks(folder: Path, run: str, ranks: int, stop_after: int | None) -> list[float]:
    """Runs `train` under torchrun, and returns the losses."""
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *(f"--nproc-per-node={ranks}", __file__, "--folder", str(folder), "--train", run),
    ]
    if stop_after is not None:
        command += ["--stop-after", str(stop_after)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    line = next(line for line in done.stdout.splitlines() if line.startswith("losses"))
    return [float(loss) for loss in line.split()[1:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="a new folder (default: a temporary one)")
    parser.add_argument("--without-ray", action="store_true", help="two processes write the parts")
    parser.add_argument("--train", help="used by the program itself: the name of a run")
    parser.add_argument("--stop-after", type=int)
    options = parser.parse_args()
    if options.train:
        losses = train(options.folder, options.train, options.stop_after)
        if os.environ.get("RANK", "0") == "0":
            print("losses", *losses)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        write = write_without_ray if options.without_ray else write_with_ray
        ds = write(folder / "rows")
        print(f"{len(ds):,} rows in", len(list((folder / "rows").glob("*/meta.json"))), "parts")
        expected = train(folder, "whole", None)
        first = on_ranks(folder, "parts", 2, 8)
        rest = train(folder, "parts", None)
    print(f"{len(first)} steps on two ranks, {len(rest)} on one")
    same = all(abs(a - b) <= 2e-4 for a, b in zip(first + rest, expected, strict=True))
    print("the same losses:", same)


if __name__ == "__main__":
    main()
