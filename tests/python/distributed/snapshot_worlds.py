"""Process groups that take and restore snapshots: the checks that test_snapshots.py runs.

Usage: snapshot_worlds.py FOLDER [PART OF A CHECK'S NAME]
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharding_spec import (
    ChunkShardingSpec,
    EnumerableShardingSpec,
    ShardMetadata,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from worlds import FOLDER, in_world, main, make_model, numbered, spread, strided, train

import tenfold
from tenfold import RNGState, Snapshot, StateDict

GOLDEN = Path(__file__).parents[2] / "data" / "snapshot"


def failure_of(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Exception:
    try:
        call(*args, **kwargs)
    except Exception as error:
        return error
    raise AssertionError("expected it to fail")


def taken_in_the_background(*args: Any, **kwargs: Any) -> Snapshot:
    return Snapshot.async_take(*args, **kwargs).wait()


def sharded(whole: torch.Tensor, dim: int, size: int) -> Any:
    """Returns `whole` as a ShardedTensor, split along `dim` among `size` ranks."""
    placements = [f"rank:{rank}/cpu" for rank in range(size)]
    made = sharded_tensor.empty(ChunkShardingSpec(dim, placements), *whole.shape, dtype=whole.dtype)
    for shard in made.local_shards():
        begin, length = shard.metadata.shard_offsets[dim], shard.metadata.shard_sizes[dim]
        shard.tensor.copy_(whole.narrow(dim, begin, length))
    return made


def same_shards(found: Any, expected: Any) -> bool:
    if isinstance(expected, DTensor):
        return torch.equal(found.to_local(), expected.to_local())
    pairs = zip(found.local_shards(), expected.local_shards(), strict=True)
    return all(torch.equal(a.tensor, b.tensor) for a, b in pairs)


WHOLE = {
    "rows": numbered(torch.float32, 7, 5),
    "columns": numbered(torch.bfloat16, 6, 8),
    "few": numbered(torch.int64, 1, 3),  # some ranks have none of it
    "complex": numbered(torch.complex64, 4, 4),
}


def state_of(rank: int, size: int, dims: tuple[int, int] = (0, 1), fill: bool = True) -> StateDict:
    """Returns a state of DTensors, ShardedTensors, and the replicated values in REPLICATED."""
    mesh = init_device_mesh("cpu", (size,))
    whole = {key: value if fill else torch.zeros_like(value) for key, value in WHOLE.items()}
    return StateDict(
        rows=spread(whole["rows"], mesh, [Shard(dims[0])]),
        columns=spread(whole["columns"], mesh, [Shard(dims[1])]),
        few=spread(whole["few"], mesh, [Shard(0)]),
        complex=spread(whole["complex"], mesh, [Shard(dims[0])]),
        copy=spread(whole["rows"].clone(), mesh, [Replicate()]),
        table=sharded(whole["rows"], dims[1], size),
        nested=[{"table": sharded(whole["columns"], dims[0], size)}, 1],
        shared=numbered(torch.float32, 9) if fill else torch.zeros(9),
        epoch=7 if fill else 0,
        pair=(1, "x") if fill else None,
    )


REPLICATED = ["state/shared", "state/epoch", "state/pair", "state/nested/1"]


def check_every_world_size_restores_snapshots_of_every_other() -> None:
    def take(rank: int, size: int) -> None:
        snapshot = Snapshot.take(
            FOLDER / f"of-{size}",
            {"state": state_of(rank, size)},
            replicated=REPLICATED,
            durable=False,
        )
        assert snapshot.metadata.world_size == size

    def restore(rank: int, size: int) -> None:
        for taken in (1, 2, 3):
            state = state_of(rank, size, (1, 0), fill=False)
            kept = dict(state)
            Snapshot(FOLDER / f"of-{taken}").restore({"state": state})
            expected = state_of(rank, size, (1, 0))
            for key, value in expected.items():
                if key in ("shared", "copy", "rows", "columns", "few", "complex", "table"):
                    assert state[key] is kept[key], key  # filled in place
                if key == "nested":
                    assert same_shards(state[key][0]["table"], value[0]["table"])
                    assert state[key][1] == 1
                elif isinstance(value, DTensor) or key == "table":
                    assert same_shards(state[key], value), key
                elif isinstance(value, torch.Tensor):
                    assert torch.equal(state[key], value), key
                else:
                    assert state[key] == value, key

    for size in (1, 2, 3):
        in_world(size, take)
        report = tenfold.verify(FOLDER / f"of-{size}")
        assert report.ok, report.problems
        tree = tenfold.load(FOLDER / f"of-{size}")
        state = (tree if size == 1 else tree[str(size - 1)])["state"]
        for key, value in WHOLE.items():
            assert torch.equal(state[key], value), key
    for size in (1, 2, 3):
        in_world(size, restore)
    # One process without a process group.
    state = StateDict(rows=torch.zeros(7, 5))
    Snapshot(FOLDER / "of-3").restore({"state": state})
    assert torch.equal(state["rows"], WHOLE["rows"])
    assert torch.equal(state["table"], WHOLE["rows"])
    assert state["epoch"] == 7


def check_each_rank_has_its_own_entries() -> None:
    path = FOLDER / "own"

    def take(rank: int, size: int) -> None:
        torch.manual_seed(rank)
        state: dict[str, Any] = {
            "state": StateDict(x=torch.full((3,), rank), step=rank, shared=torch.ones(2)),
            "random": RNGState(),
        }
        if rank == 1:
            state["more"] = StateDict(a=[rank])
        Snapshot.take(path, state, replicated=["state/shared"], durable=False)
        expected = torch.rand(3)
        found = StateDict(x=torch.zeros(3, dtype=torch.int64), step=9, shared=torch.zeros(2))
        torch.manual_seed(99)
        into: dict[str, Any] = {"state": found, "random": RNGState()}
        if rank == 1:
            into["more"] = StateDict()
        Snapshot(path).restore(into)
        assert found["x"].tolist() == [rank] * 3
        assert found["step"] == rank
        assert torch.equal(torch.rand(3), expected)
        if rank == 1:
            assert dict(into["more"]) == {"a": [1]}

    def restore(rank: int, size: int) -> None:
        state = StateDict(x=torch.zeros(3, dtype=torch.int64), shared=torch.zeros(2))
        error = failure_of(Snapshot(path).restore, {"state": state})
        assert isinstance(error, KeyError), error
        assert '"state.x"' in str(error), error
        assert ("rank 2:" in str(error)) == (rank != 2), error
        assert state["shared"].sum() == 0  # nothing has changed on any rank

    in_world(2, take)
    assert Snapshot(path).get_manifest()["1/state/step"].get_value() == 1
    snapshot = Snapshot(path)
    assert snapshot.read_object("1/state/shared").tolist() == [1, 1]
    assert snapshot.read_object("1/more/a/0") == 1
    in_world(3, restore)


def check_reads_one_object_into_shards() -> None:
    path = FOLDER / "object"

    def take(rank: int, size: int) -> None:
        Snapshot.take(path, {"state": state_of(rank, size)}, replicated=["*"], durable=False)
        mesh = init_device_mesh("cpu", (size,))
        into = spread(torch.zeros(7, 5), mesh, [Shard(1)])
        snapshot = Snapshot(path)
        assert snapshot.read_object("0/state/rows", into) is into
        assert same_shards(into, spread(WHOLE["rows"], mesh, [Shard(1)]))
        assert torch.equal(snapshot.read_object("1/state/rows"), WHOLE["rows"])
        wide = spread(torch.zeros(7, 5, dtype=torch.float64), mesh, [Shard(0)])
        snapshot.read_object("0/state/rows", wide)
        assert same_shards(wide, spread(WHOLE["rows"].double(), mesh, [Shard(0)]))
        other = spread(torch.zeros(7, 6), mesh, [Shard(0)])
        error = failure_of(snapshot.read_object, "0/state/rows", other)
        assert isinstance(error, ValueError), error
        assert "(7, 5)" in str(error)
        turns = StateDict(turns=torch.full((4,), 1j))
        snapshot = Snapshot.take(path, {"state": turns}, replicated=["*"], durable=False)
        real = spread(torch.zeros(4), mesh, [Shard(0)])
        error = failure_of(snapshot.read_object, "0/state/turns", real)
        assert isinstance(error, ValueError), error
        assert "expected a complex tensor for complex64, found float32" in str(error)

    in_world(2, take)


def check_a_mesh_of_two_dimensions() -> None:
    path = FOLDER / "mesh"
    whole = numbered(torch.float32, 8, 6)

    def take(rank: int, size: int) -> None:
        mesh = init_device_mesh("cpu", (2, 2))
        state = StateDict(
            grid=spread(whole, mesh, [Shard(0), Shard(1)]),
            both=spread(whole, mesh, [Shard(0), Shard(0)]),
            half=spread(whole, mesh, [Replicate(), Shard(1)]),
        )
        Snapshot.take(path, {"state": state}, durable=False)
        sums = DTensor.from_local(whole, mesh, [Partial(), Replicate()], run_check=False)
        error = failure_of(Snapshot.take, path, {"state": StateDict(a=[sums])})
        assert isinstance(error, tenfold.UnsupportedError), error
        assert '"state.a.0"' in str(error), error

    def restore(rank: int, size: int) -> None:
        mesh = init_device_mesh("cpu", (size,))
        state = StateDict(
            {key: spread(torch.zeros(8, 6), mesh, [Shard(1)]) for key in ("grid", "both", "half")}
        )
        Snapshot(path).restore({"state": state})
        for tensor in state.values():
            assert same_shards(tensor, spread(whole, mesh, [Shard(1)]))

    in_world(4, take)
    # Each half of the tensor "half" is written once, although two ranks have it.
    manifest = json.loads((path / ".snapshot_metadata").read_text())["manifest"]
    places = {
        (shard["tensor"]["location"], *(shard["tensor"]["byte_range"] or ()))
        for rank in range(4)
        for shard in manifest[f"{rank}/state/half"]["shards"]
    }
    assert len(places) == 2, places
    assert manifest["3/state/half"]["mesh"] == [[0, 1], [2, 3]]
    assert manifest["3/state/half"]["dim_map"] == [[-1], [1]]
    in_world(3, restore)


def check_strided_shards() -> None:
    path = FOLDER / "strided"
    whole = numbered(torch.float32, 8, 3)

    def take(rank: int, size: int) -> None:
        state = StateDict(w=strided(whole, size, has_gaps=False))
        Snapshot.take(path, {"state": state}, durable=False)
        into = StateDict(w=strided(torch.zeros(8, 3), size, has_gaps=False))
        Snapshot(path).restore({"state": into})
        assert same_shards(into["w"], state["w"])
        gaps = {"state": StateDict(w=strided(torch.zeros(8, 3), size, has_gaps=True))}
        cases = [
            (lambda: Snapshot(path).restore(gaps), 'entry "0/state/w": DTensor: placements'),
            (lambda: Snapshot.take(path, gaps), 'key "state.w": DTensor: placements'),
        ]
        for call, said in cases:
            error = failure_of(call)
            assert isinstance(error, tenfold.UnsupportedError), error
            assert said in str(error), error
            assert "found one with gaps in dimension 0" in str(error), error
        assert not gaps["state"]["w"].to_local().any()

    in_world(4, take)
    assert torch.equal(Snapshot(path).read_object("0/state/w"), whole)


def check_ranks_outside_of_a_mesh_have_no_part() -> None:
    path = FOLDER / "outside"
    whole = numbered(torch.float32, 4, 3)

    def state_of_mesh(size: int, fill: bool) -> dict[str, Any]:
        pair, rest = (DeviceMesh("cpu", ranks) for ranks in ([0, 1], list(range(1, size))))
        values = whole.clone() if fill else torch.zeros(4, 3)
        state = {
            "cut": spread(values, pair, [Shard(0)]),
            "same": [1, spread(values, pair, [Replicate()])],
            "rest": spread(values, rest, [Shard(1)]),
            "empty": spread(torch.zeros(0, 4), pair, [Shard(1)]),
        }
        return {"state": StateDict(state)}

    def take(rank: int, size: int) -> None:
        Snapshot.take(path, state_of_mesh(size, True), durable=False)
        into, expected = state_of_mesh(size, False), state_of_mesh(size, True)
        Snapshot(path).restore(into)
        for key in ("cut", "rest", "empty"):
            assert same_shards(into["state"][key], expected["state"][key]), key
        assert same_shards(into["state"]["same"][1], expected["state"]["same"][1])
        scalar = DTensor.from_local(
            torch.tensor(1.0), DeviceMesh("cpu", [0, 1]), [Replicate()], run_check=False
        )
        error = failure_of(Snapshot.take, path, {"state": StateDict(a=scalar)})
        assert isinstance(error, tenfold.UnsupportedError), error
        assert 'rank 2: snapshot: key "state.a"' in str(error) or rank == 2, error
        assert "expected all ranks in the mesh of a tensor without dimensions" in str(error)

    in_world(3, take)
    for rank in range(3):
        state = tenfold.load(path)[str(rank)]["state"]
        for tensor in (state["cut"], state["same"][1], state["rest"]):
            assert torch.equal(tensor, whole)
        assert state["empty"].shape == (0, 4)


def check_fully_sharded_training() -> None:
    path = FOLDER / "fsdp"

    def made() -> tuple[Any, Any]:
        model = make_model()
        fully_shard(model)
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)

    def take(rank: int, size: int) -> None:
        model, optimizer = made()
        train(model, optimizer)
        snapshot = Snapshot.async_take(
            path, {"model": model, "optim": optimizer}, replicated=["**"], durable=False
        )
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(5)
        snapshot.wait()

    def restore(rank: int, size: int) -> None:
        model, optimizer = made()
        train(model, optimizer)  # creates the state of the optimizer
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(7)
        Snapshot(path).restore({"model": model, "optim": optimizer})
        alone = make_model()
        trained = torch.optim.AdamW(alone.parameters(), lr=0.01)
        train(alone, trained)
        for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(ours.full_tensor(), theirs)
            moments = optimizer.state[ours]["exp_avg"].full_tensor()
            torch.testing.assert_close(moments, trained.state[theirs]["exp_avg"])

    in_world(2, take)
    in_world(3, restore)


def check_ddp_state_is_replicated() -> None:
    path = FOLDER / "ddp"

    def take(rank: int, size: int) -> None:
        model = torch.nn.parallel.DistributedDataParallel(make_model())
        Snapshot.take(path, {"mo/del": model}, durable=False)

    def restore(rank: int, size: int) -> None:
        model = torch.nn.parallel.DistributedDataParallel(make_model())
        with torch.no_grad():
            model.module[0].weight.zero_()
        Snapshot(path).restore({"mo/del": model})
        assert torch.equal(model.module[0].weight, make_model()[0].weight)

    in_world(2, take)
    manifest = Snapshot(path).get_manifest()
    assert manifest["0/mo%2Fdel/module.0.weight"].replicated
    assert "1/mo%2Fdel/module.0.weight" not in manifest
    in_world(3, restore)


def check_a_subset_of_the_ranks_takes_a_snapshot() -> None:
    path = FOLDER / "part"

    def take(rank: int, size: int) -> None:
        pair = dist.new_group([1, 2])
        alone = dist.new_group([0])
        if rank == 0:
            state = {"state": StateDict(x=torch.ones(2))}
            Snapshot.take(FOLDER / "alone", state, pg=alone, durable=False).restore(state)
            error = failure_of(Snapshot.take, path, state, pg=pair)
            assert isinstance(error, ValueError), error
            return
        state = {"state": StateDict(x=torch.full((2,), rank))}
        for _ in range(3):
            Snapshot.take(path, state, pg=pair, durable=False)
            assert Snapshot.async_take(path, state, pg=pair).wait().pg is pair
        into = StateDict(x=torch.zeros(2, dtype=torch.int64))
        Snapshot(path, pg=pair).restore({"state": into})
        assert into["x"].tolist() == [rank] * 2

    in_world(3, take)
    assert Snapshot(path).metadata.world_size == 2
    assert Snapshot(path).read_object("1/state/x").tolist() == [2, 2]


def check_async_saves_keep_their_order() -> None:
    path = FOLDER / "order"

    def take(rank: int, size: int) -> None:
        pending = []
        for number in range(4):
            tensor = torch.full((1000,), number)
            pending.append(Snapshot.async_take(path, {"state": StateDict(x=tensor)}, durable=False))
            tensor.fill_(99)
        for snapshot in reversed(pending):
            snapshot.wait()

    in_world(2, take)
    for rank in "01":
        assert set(Snapshot(path).read_object(f"{rank}/state/x").tolist()) == {3}


def check_path_of_rank_0_is_used() -> None:
    def take(rank: int, size: int) -> None:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            snapshot = Snapshot.take(
                FOLDER / f"path-{rank}", {"s": StateDict(a=rank)}, durable=False
            )
        assert snapshot.path == str(FOLDER / "path-0")
        said = [str(warning.message) for warning in found]
        assert any("path-0" in text for text in said) == (rank == 1), said

    in_world(2, take)
    assert not (FOLDER / "path-1").exists()


def check_error_on_one_rank_is_raised_on_all_ranks() -> None:
    path = FOLDER / "errors"

    def take(rank: int, size: int) -> None:
        class Failing(StateDict):
            def state_dict(self) -> Any:
                if rank == 1:
                    raise ValueError("no state today")
                return super().state_dict()

        good = {"state": StateDict(a=torch.ones(2))}
        cases: list[tuple[type, str, dict[str, Any], Any]] = [
            (ValueError, "no state today", {"state": Failing(a=1)}, None),
            (TypeError, "Expected Stateful", good if rank == 0 else {"state": 3}, None),
            (TypeError, "replicated", good, "state/*" if rank == 1 else ["state/*"]),
            (
                tenfold.UnsupportedError,
                "state.a",
                good if rank == 0 else {"state": StateDict(a=object())},
                None,
            ),
            (ValueError, '"state/a"', {"state": StateDict(a=torch.ones(2 + rank))}, ["state/*"]),
            (ValueError, '"state/n"', {"state": StateDict(n=rank)}, ["*"]),
        ]
        for kind, said, state, globs in cases:
            for take in (
                Snapshot.take,
                lambda *args, **more: Snapshot.async_take(*args, **more).wait(),
            ):
                error = failure_of(take, path, state, replicated=globs)
                assert isinstance(error, kind), (error, said)
                assert said in str(error), error
        Snapshot.take(path, good, replicated=["*"], durable=False)
        error = failure_of(Snapshot(path).restore, good if rank == 0 else {"other": StateDict()})
        assert isinstance(error, KeyError), error
        assert "other" in str(error)

    in_world(2, take)
    assert [name for name in os.listdir(FOLDER) if "errors" in name] == ["errors"]


class Dying:
    """Patches the native classes so that this process exits in `phase` of the next save."""

    def __init__(self, phase: str) -> None:
        from tenfold import _core

        part, writer = _core.SnapshotPart, _core.SnapshotWriter

        def end(name: str) -> None:
            if name == phase:
                os._exit(9)

        class Part:
            def __init__(self, *args: Any) -> None:
                self._part = part(*args)

            def outline(self) -> str:
                end("outline")
                return self._part.outline()

            def write(self, *args: Any) -> str:
                end("before writing")
                receipt = self._part.write(*args)
                end("after writing")
                return receipt

        class Writer:
            def __init__(self, *args: Any) -> None:
                self._writer = writer(*args)
                end("begun")

            def ticket(self) -> str:
                return self._writer.ticket()

            def publish(self, receipts: list[str]) -> None:
                end("before publishing")
                self._writer.publish(receipts)
                end("after publishing")

        _core.SnapshotPart = Part  # type: ignore[misc, assignment]
        _core.SnapshotWriter = Writer  # type: ignore[misc, assignment]


def check_exit_of_one_rank_keeps_a_complete_snapshot() -> None:
    cases = [
        ("outline", 0),
        ("outline", 1),
        ("begun", 0),
        ("before writing", 0),
        ("before writing", 1),
        ("after writing", 1),
        ("after writing", 0),
        ("before publishing", 0),
        ("after publishing", 0),
    ]

    def state_of_version(rank: int, version: int) -> dict[str, Any]:
        return {"state": StateDict(x=torch.full((1000,), rank), version=version)}

    def take(rank: int, size: int, path: Path, version: int) -> None:
        Snapshot.take(path, state_of_version(rank, version), durable=False)

    for number, (phase, who) in enumerate(cases):
        path = FOLDER / f"dying-{number}" / "s"
        path.parent.mkdir()
        in_world(2, lambda rank, size, path=path: take(rank, size, path, 1))  # type: ignore[misc]

        call = Snapshot.take if number % 2 else taken_in_the_background

        def die(
            rank: int,
            size: int,
            phase: str = phase,
            who: int = who,
            path: Path = path,
            call: Any = call,
        ) -> None:
            if rank == who:
                Dying(phase)
            error = failure_of(call, path, state_of_version(rank, 2))
            assert isinstance(error, (RuntimeError, dist.DistError)), error

        in_world(2, die, dying=who)
        assert tenfold.verify(path).ok
        version = 2 if phase == "after publishing" else 1
        assert Snapshot(path).read_object("1/state/version") == version
        in_world(2, lambda rank, size, path=path: take(rank, size, path, 3))  # type: ignore[misc]
        assert Snapshot(path).read_object("1/state/version") == 3
        assert os.listdir(path.parent) == ["s"], os.listdir(path.parent)


def check_exit_of_one_rank_during_a_restore_raises_on_the_others() -> None:
    path = FOLDER / "restoring"

    def state_of_rank(rank: int, kind: type[StateDict], fill: int) -> dict[str, Any]:
        return {
            "first": kind(x=torch.full((3,), fill), own=rank),
            "second": StateDict(x=torch.full((3,), fill)),
        }

    def take(rank: int, size: int) -> None:
        Snapshot.take(path, state_of_rank(rank, StateDict, 1), durable=False)

    in_world(2, take)
    for phase, who in (("state_dict", 0), ("load_state_dict", 1)):

        class Ending(StateDict):
            def state_dict(self) -> Any:
                return self._end("state_dict") or super().state_dict()

            def load_state_dict(self, state_dict: Any) -> None:
                self._end("load_state_dict")
                super().load_state_dict(state_dict)

            def _end(self, call: str, phase: str = phase, who: int = who) -> None:
                if call == phase and dist.get_rank() == who:
                    os._exit(9)

        def restore(rank: int, size: int, ending: Any = Ending) -> None:
            state = state_of_rank(rank, ending, 0)
            error = failure_of(Snapshot(path).restore, state)
            assert isinstance(error, (RuntimeError, dist.DistError)), error
            assert "first" in str(error), error
            assert not state["second"]["x"].any()  # the restore did not get to it

        in_world(2, restore, dying=who)
        assert tenfold.verify(path).ok


def check_full_disk_on_one_rank_keeps_the_old_snapshot() -> None:
    import errno
    import resource

    path = FOLDER / "full" / "s"
    path.parent.mkdir()

    def take(rank: int, size: int) -> None:
        Snapshot.take(path, {"state": StateDict(version=1)}, durable=False)
        if rank == 1:
            # The kernel refuses writes beyond a limit.
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (16, resource.RLIM_INFINITY))
        state = {"state": StateDict(x=torch.ones(1000), version=2)}
        error = failure_of(Snapshot.take, path, state)
        assert isinstance(error, OSError), error
        assert error.errno == errno.EFBIG

    in_world(2, take)
    assert Snapshot(path).read_object("1/state/version") == 1
    assert os.listdir(path.parent) == ["s"]


def check_tables_of_single_ranks_are_restored_on_any_rank() -> None:
    """Each rank has its own whole tables, as in recommender models."""
    path = FOLDER / "tables"

    def table(owner: int, fill: bool) -> Any:
        spec = EnumerableShardingSpec([ShardMetadata([0, 0], [4, 2], f"rank:{owner}/cpu")])
        made = sharded_tensor.empty(spec, 4, 2)
        for shard in made.local_shards():
            shard.tensor.copy_(numbered(torch.float32, 4, 2) + owner if fill else torch.zeros(4, 2))
        return made

    def take(rank: int, size: int) -> None:
        tables = [table(owner, True) for owner in range(size)]
        state = StateDict({f"t{rank}": tables[rank], "all": tables[0]})
        Snapshot.take(path, {"state": state}, durable=False)

    def restore(rank: int, size: int) -> None:
        tables = [table((owner + 1) % size, False) for owner in range(2)]
        wanted = (rank + 1) % 2
        state = StateDict({f"t{wanted}": tables[wanted], "all": tables[0]})
        Snapshot(path).restore({"state": state})
        for shard in state[f"t{wanted}"].local_shards():
            assert torch.equal(shard.tensor, numbered(torch.float32, 4, 2) + wanted)
        # A rank gets every table that its saved state had, and another table only if requested.
        assert sorted(state) == ["all", "t0", "t1"], sorted(state)
        empty = StateDict()
        Snapshot(path).restore({"state": empty})
        assert sorted(empty) == ["all", f"t{rank}"], sorted(empty)

    in_world(2, take)
    in_world(2, restore)


def check_reads_snapshots_taken_by_two_ranks_of_torchsnapshot() -> None:
    def restore(rank: int, size: int) -> None:
        for name in ("ok-ranks", "ok-dtensors"):
            whole = torch.arange(24.0).reshape(4, 6)
            mesh = init_device_mesh("cpu", (size,))
            tables = {
                "ok-ranks": sharded(torch.zeros(4, 6), 0, size),
                "ok-dtensors": spread(torch.zeros(4, 6), mesh, [Shard(0)]),
            }
            state = StateDict(table=tables[name], shared=torch.zeros(3))
            call = Snapshot(GOLDEN / name).restore
            if size == 3:
                error = failure_of(call, {"state": state})
                assert isinstance(error, KeyError), error
                assert "state.own" in str(error), error
                continue
            call({"state": state})
            right = (
                sharded(whole, 0, size) if name == "ok-ranks" else spread(whole, mesh, [Shard(0)])
            )
            assert same_shards(state["table"], right)
            assert torch.equal(state["shared"], torch.arange(3.0))
            assert (state["own"].tolist(), state["step"]) == ([rank], rank)

    for size in (1, 2, 3):
        in_world(size, restore)


def check_dtensors_are_restored_with_other_placements() -> None:
    # tests/python/upstream/torchsnapshot_worlds.py has a similar check that needs torchsnapshot.
    whole = numbered(torch.float32, 7, 6)
    kinds = {"rows": Shard(0), "columns": Shard(1), "copy": Replicate()}

    def state_of_kind(size: int, placement: Any, fill: bool) -> dict[str, Any]:
        mesh = init_device_mesh("cpu", (size,))
        values = whole.clone() if fill else torch.zeros(7, 6)
        return {"a": spread(values, mesh, [placement]), "list": [1, 2] if fill else [0, 0]}

    def take(rank: int, size: int) -> None:
        for name, placement in kinds.items():
            state = {"state": StateDict(**state_of_kind(size, placement, True))}
            Snapshot.take(
                FOLDER / f"placed-{name}-{size}", state, replicated=["state/list/*"], durable=False
            )

    def restore(rank: int, size: int) -> None:
        for taken, saved, (name, placement) in itertools.product((1, 2), kinds, kinds.items()):
            kept = state_of_kind(size, placement, False)
            state = StateDict(**kept)
            Snapshot(FOLDER / f"placed-{saved}-{taken}").restore({"state": state})
            assert state["a"] is kept["a"], (saved, name)  # filled in place
            expected = state_of_kind(size, placement, True)["a"]
            assert same_shards(state["a"], expected), (saved, name)
            assert state["list"] == [1, 2]

    for size in (1, 2):
        in_world(size, take)
    for size in (1, 2):
        in_world(size, restore)


def check_replicas_of_a_dtensor_are_written_once() -> None:
    whole = numbered(torch.float32, 7, 6)
    path = FOLDER / "replicas"

    def both(rank: int, size: int) -> None:
        mesh = init_device_mesh("cpu", (2, 1))
        placements = [Replicate(), Shard(0)]
        state = StateDict(a=spread(whole.clone(), mesh, placements))
        Snapshot.take(path, {"state": state}, durable=False)
        found = StateDict(a=spread(torch.zeros(7, 6), mesh, placements))
        Snapshot(path).restore({"state": found})
        assert isinstance(found["a"], DTensor)
        assert same_shards(found["a"], state["a"])

    in_world(2, both)
    manifest = json.loads((path / ".snapshot_metadata").read_text())["manifest"]
    entries = [manifest[f"{rank}/state/a"] for rank in range(2)]
    places = {
        (shard["tensor"]["location"], *(shard["tensor"]["byte_range"] or ()))
        for entry in entries
        for shard in entry["shards"]
    }
    assert len(places) == 1, places
    for entry in entries:
        assert entry["type"] == "DTensor"
        assert entry["mesh"] == [[0], [1]]
        assert entry["dim_map"] == [[1], [-1]]


def without_places(entry: Any) -> Any:
    """Returns a manifest entry without file names, which are random, and without byte ranges."""
    if isinstance(entry, dict):
        return {
            key: without_places(value)
            for key, value in entry.items()
            if key not in ("location", "byte_range")
        }
    return [without_places(item) for item in entry] if isinstance(entry, list) else entry


def check_entries_of_dtensors_are_those_of_torchsnapshot() -> None:
    path = FOLDER / "entries"

    def take(rank: int, size: int) -> None:
        # Makes the same state as tests/data/snapshot/generate.py, which wrote the golden snapshot.
        mesh = init_device_mesh("cpu", (size,))
        table = spread(torch.arange(24.0).reshape(4, 6), mesh, [Shard(1)])
        state = StateDict(
            table=table, shared=torch.arange(3.0), own=torch.tensor([rank]), step=rank
        )
        Snapshot.take(path, {"state": state}, replicated=["state/shared"], durable=False)

    in_world(2, take)
    ours, theirs = (
        json.loads((folder / ".snapshot_metadata").read_text())
        for folder in (path, GOLDEN / "ok-dtensors")
    )
    assert without_places(ours) == without_places(theirs)


if __name__ == "__main__":
    main(globals())
