"""Trains with fully_shard on two ranks, saves one file, and resumes on three ranks.

The two ranks begin with weights from a plain file, such as a download from the Hugging Face hub;
each rank reads its part. Their checkpoint is one model.safetensors. Three ranks load it into their
own sharding, and safe_open of the safetensors package reads it like any other file.

    python examples/distributed.py --folder run
    python examples/distributed.py --folder run --weights model.safetensors
"""

# torch documents dcp.save and dcp.load, but does not export them:
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import argparse
import datetime
import multiprocessing
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard

import tenfold
from tenfold.distributed import StorageReader, StorageWriter


def make_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 30), torch.nn.ReLU(), torch.nn.Linear(30, 1))


def train(rank: int, path: Path, start: Path) -> None:
    model = make_model()
    fully_shard(model)
    state = get_model_state_dict(model)
    dcp.load(state, storage_reader=StorageReader(start, verify=True))
    set_model_state_dict(model, state)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    x = torch.randn(256, 16)
    y = x.sum(1, keepdim=True)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if rank == 0:
        ranks = dist.get_world_size()
        print(f"{ranks} ranks: loss {losses[0]:.3f} at first, {losses[-1]:.3f} at last")
    dcp.save(get_model_state_dict(model), storage_writer=StorageWriter(path))


def run_rank(rank: int, size: int, folder: Path, path: Path, start: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder.absolute()}/group-{size}",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=60),
    )
    train(rank, path, start)
    dist.destroy_process_group()


def run_ranks(size: int, folder: Path, path: Path, start: Path) -> None:
    # Remove the store of an earlier run, which has the addresses of processes that have ended.
    (folder / f"group-{size}").unlink(missing_ok=True)
    context = multiprocessing.get_context("spawn")
    ranks = [
        context.Process(target=run_rank, args=(rank, size, folder, path, start))
        for rank in range(size)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    if any(process.exitcode for process in ranks):
        raise SystemExit("a rank failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("run"), help="default: run")
    parser.add_argument("--weights", type=Path, help="initial weights (default: generated)")
    arguments = parser.parse_args()
    folder = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    model, longer = folder / "model.safetensors", folder / "longer.safetensors"

    weights = arguments.weights
    if weights is None:
        from safetensors.torch import save_file

        weights = folder / "downloaded.safetensors"
        save_file(make_model().state_dict(), weights)
    run_ranks(2, folder, model, weights)
    run_ranks(3, folder, longer, model)

    report = tenfold.verify(longer)
    print(
        f"{longer.name}: {report.num_leaves} tensors, {report.num_checksums} checksums, "
        f"{'whole' if report.ok else 'damaged'}"
    )
    from safetensors import safe_open

    with safe_open(longer, "pt") as file:
        for name in file.keys():  # noqa: SIM118 (not a dict)
            print(f"  {name}: {list(file.get_tensor(name).shape)}")
    make_model().load_state_dict(tenfold.load(longer))  # without sharding


if __name__ == "__main__":
    main()
