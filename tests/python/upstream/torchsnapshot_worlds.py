"""Process groups in which tenfold and torchsnapshot restore each other's snapshots.

Usage: torchsnapshot_worlds.py FOLDER [PART OF A CHECK'S NAME]

If torchsnapshot is not installed, it is imported from the paths in the environment variable
TENFOLD_TORCHSNAPSHOT, or else from .venvs/torchsnapshot.
"""

from __future__ import annotations

import glob
import os
import sys
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "distributed"))
sys.path += filter(None, os.environ.get("TENFOLD_TORCHSNAPSHOT", "").split(os.pathsep))
sys.path += glob.glob(str(HERE.parents[2] / ".venvs/torchsnapshot/lib/python*/site-packages"))
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torchsnapshot  # noqa: E402
import torchsnapshot.manifest  # noqa: E402
from snapshot_worlds import same_shards, sharded  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard  # noqa: E402
from worlds import FOLDER, in_world, main, make_model, numbered, spread, train  # noqa: E402

import tenfold  # noqa: E402

# torchsnapshot 0.1.0 has no DTensorEntry, unlike the last version in its repository.
HAS_DTENSORS = hasattr(torchsnapshot.manifest, "DTensorEntry")

TABLE = numbered(torch.float32, 7, 6)
GLOBS = ["state/shared", "state/epoch", "state/pair", "state/list/*", "model/**", "optim/**"]


def values(rank: int, size: int, dim: int, fill: bool = True) -> dict[str, Any]:
    return {
        "table": sharded(TABLE if fill else torch.zeros(7, 6), dim, size),
        "shared": numbered(torch.float32, 9) if fill else torch.zeros(9),
        "epoch": 7 if fill else 0,
        "pair": (1, "x") if fill else None,
        "list": [torch.arange(3) if fill else torch.zeros(3, dtype=torch.int64), None],
        "own": torch.full((2,), rank if fill else -1),
        "step": rank if fill else -1,
        "ordered": OrderedDict(b=rank, a=[rank]) if fill else None,
    }


def expect(found: dict[str, Any], rank: int, size: int, dim: int, kept: dict[str, Any]) -> None:
    for key, value in values(rank, size, dim).items():
        if key == "table":
            assert found[key] is kept[key]
            assert same_shards(found[key], value)
        elif key == "list":
            assert torch.equal(found[key][0], value[0])
            assert found[key][1] is None
        elif isinstance(value, torch.Tensor):
            assert torch.equal(found[key], value), key
        else:
            assert found[key] == value, key


def trained(seed: int) -> tuple[Any, Any]:
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * seed)
    for _ in range(seed):
        train(model, optimizer)
    return model, optimizer


def both_ways(taking: Any, restoring: Any, path: Path) -> None:
    def take(rank: int, size: int) -> None:
        model, optimizer = trained(1)
        state = taking.StateDict(**values(rank, size, 1))
        taking.Snapshot.take(
            str(path),
            {"state": state, "model": model, "optim": optimizer, "random": taking.RNGState()},
            replicated=GLOBS,
        )
        snapshot = taking.Snapshot.async_take(
            str(path) + "-async", {"state": state}, replicated=GLOBS
        )
        snapshot.wait()

    def restore(rank: int, size: int) -> None:
        model, optimizer = trained(2)
        other, other_optimizer = trained(1)
        kept = values(rank, size, 0, fill=False)
        state = restoring.StateDict(**kept)
        torch.manual_seed(rank)
        app_state = {"state": state, "model": model, "optim": optimizer}
        if size == 2:
            app_state["random"] = restoring.RNGState()
            restoring.Snapshot(str(path)).restore(app_state)
            expect(dict(state), rank, size, 0, kept)
            again = restoring.StateDict(**values(rank, size, 0, fill=False))
            restoring.Snapshot(str(path) + "-async").restore({"state": again})
            assert torch.equal(again["shared"], numbered(torch.float32, 9))
        else:
            # The snapshot has no entries of a third rank, so `state` cannot be restored.
            app_state = {"model": model, "optim": optimizer}
            restoring.Snapshot(str(path)).restore(app_state)
            entry = restoring.Snapshot(str(path)).read_object("0/state/table", kept["table"])
            assert same_shards(entry, sharded(TABLE, 0, size))
        for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
            assert torch.equal(ours, theirs)
            moments = optimizer.state[ours]["exp_avg"]
            assert torch.equal(moments, other_optimizer.state[theirs]["exp_avg"])
        assert optimizer.param_groups[0]["lr"] == other_optimizer.param_groups[0]["lr"]

    in_world(2, take)
    in_world(2, restore)
    in_world(3, restore)
    assert tenfold.verify(path).ok


def check_torchsnapshot_restores_snapshots_of_our_ranks() -> None:
    both_ways(tenfold, torchsnapshot, FOLDER / "ours")


def check_snapshots_of_torchsnapshot_ranks_are_restored() -> None:
    both_ways(torchsnapshot, tenfold, FOLDER / "theirs")


def check_dtensors_are_interchangeable() -> None:
    if not HAS_DTENSORS:
        raise RuntimeError(
            "skip: this torchsnapshot has no DTensors; TENFOLD_TORCHSNAPSHOT may "
            "name a checkout of its repository"
        )

    def state(size: int, placements: Any, fill: bool) -> dict[str, Any]:
        mesh = init_device_mesh("cpu", (size,))
        whole = TABLE if fill else torch.zeros(7, 6)
        return {"a": spread(whole.clone(), mesh, placements), "list": [1, 2]}

    for taking, restoring in ((tenfold, torchsnapshot), (torchsnapshot, tenfold)):
        path = FOLDER / f"dtensors-{taking.__name__}"

        def take(rank: int, size: int, taking: Any = taking, path: Path = path) -> None:
            made = {"state": taking.StateDict(**state(size, [Shard(1)], True))}
            taking.Snapshot.take(str(path), made, replicated=["state/list/*"])

        def restore(rank: int, size: int, restoring: Any = restoring, path: Path = path) -> None:
            kept = state(size, [Shard(0)], False)
            found = restoring.StateDict(**kept)
            restoring.Snapshot(str(path)).restore({"state": found})
            assert found["a"] is kept["a"]
            assert same_shards(found["a"], state(size, [Shard(0)], True)["a"])
            assert found["list"] == [1, 2]

        in_world(2, take)
        in_world(2, restore)
        in_world(3, restore)


def check_torchsnapshot_without_dtensors_restores_the_other_entries() -> None:
    if HAS_DTENSORS:
        raise RuntimeError("skip: this torchsnapshot has DTensors")
    path = FOLDER / "without"

    def both(rank: int, size: int) -> None:
        mesh = init_device_mesh("cpu", (size,))
        state = tenfold.StateDict(
            table=sharded(TABLE, 1, size),
            sharded=spread(TABLE.clone(), mesh, [Shard(1)]),
            copy=spread(TABLE.clone(), mesh, [Replicate()]),
            own=torch.full((2,), rank),
        )
        tenfold.Snapshot.take(path, {"state": state}, durable=False)
        kept = {
            "table": sharded(torch.zeros(7, 6), 0, size),
            "copy": torch.zeros(7, 6),
            "own": torch.zeros(2, dtype=torch.int64),
        }
        found = torchsnapshot.StateDict(**kept)
        torchsnapshot.Snapshot(str(path)).restore({"state": found})
        assert same_shards(kept["table"], sharded(TABLE, 0, size))
        # A fully replicated DTensor is stored as an ordinary replicated tensor.
        assert torch.equal(kept["copy"], TABLE)
        assert kept["own"].tolist() == [rank] * 2

    in_world(2, both)


def check_torchsnapshot_restores_replicated_dtensors() -> None:
    if not HAS_DTENSORS:
        raise RuntimeError("skip: this torchsnapshot has no DTensors")
    path = FOLDER / "mesh"

    def both(rank: int, size: int) -> None:
        mesh = init_device_mesh("cpu", (2, 2))
        placements = [Replicate(), Shard(0)]
        state = tenfold.StateDict(a=spread(TABLE.clone(), mesh, placements))
        tenfold.Snapshot.take(path, {"state": state})
        found = torchsnapshot.StateDict(a=spread(torch.zeros(7, 6), mesh, placements))
        torchsnapshot.Snapshot(str(path)).restore({"state": found})
        assert isinstance(found["a"], DTensor)
        assert same_shards(found["a"], state["a"])

    in_world(4, both)


if __name__ == "__main__":
    main(globals())
