"""`save` and `load`: torch.distributed.checkpoint with the classes of this package."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import contextmanager

import torch
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save
from torch.distributed.checkpoint.stateful import Stateful

from tenfold._options import path_argument
from tenfold._public import set_module
from tenfold.distributed._planner import LoadPlanner, SavePlanner
from tenfold.distributed._reader import StorageReader
from tenfold.distributed._writer import StorageWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from torch.distributed import ProcessGroup

    from tenfold._io.files import PathLike


@set_module("tenfold.distributed")
def save(
    state_dict: dict[str, Any],
    path: PathLike,
    *,
    layout: str = "plain",
    format: str | None = None,
    durable: bool = True,
    checksums: bool = True,
    overwrite: bool = True,
    num_threads: int | None = None,
    allow_opaque: bool = False,
    shard_size: int | None = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
) -> None:
    """Saves a state that is distributed over ranks as one checkpoint. Collective.

    Equivalent to ``dcp.save`` with a `StorageWriter` and a `SavePlanner`.

    Args:
        state_dict: Nested dicts, lists and tuples of tensors, DTensors and plain values. Items of
            `state_dict` itself may also be objects with ``state_dict`` and ``load_state_dict``.
        path: A name that ends in ``.safetensors`` or ``.safetensors.index.json``, or a folder. It
            is replaced when the new version is complete.
        layout: ``"plain"``; or ``"shards"`` or ``"torch"``, which are folders with separate files
            for each rank. See `StorageWriter`.
        format: For layout ``"plain"``: ``"safetensors"`` or ``"memmap"`` (a folder). For layouts
            ``"shards"`` and ``"torch"``: ``"dcp"``. None: by the suffix of `path`.
        durable: fsync before returning.
        checksums: Store checksums, which `tenfold.verify` compares. Layout ``"torch"`` always has
            the CRC-32s of its format.
        overwrite: If false, an existing `path` is an error.
        num_threads: Threads of each rank, as for `StorageWriter`. None: ``TENFOLD_NUM_THREADS``
            (by default the number of cores, at most 8) divided by the number of ranks that write.
        allow_opaque: Store each object that `tenfold.save` does not support as the bytes that
            torch.save writes for it, a uint8 tensor of shape [num_bytes], which is never
            unpickled. If false, such an object is an error that names its entry.
        shard_size: For a ``.safetensors.index.json``: the greatest number of tensor bytes in a
            file with more than one tensor. None: 5 GB.
        process_group: The ranks that save. None: all ranks.
        no_dist: If true, this process saves alone.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: For an unknown layout, or numbers out of range.
        CheckpointException: If a rank failed (a BaseException of torch). `path` is unchanged,
            unless the checkpoint was published before the failure.

    Example:
        >>> import tenfold.distributed
        >>> state = {"model": model.state_dict(), "step": 7}
        >>> tenfold.distributed.save(state, "run/state.safetensors", no_dist=True)
    """
    _check_state("save", state_dict)
    writer = StorageWriter(
        path_argument("distributed.save(state_dict, path)", path),
        layout=layout,
        format=format,
        durable=durable,
        checksums=checksums,
        overwrite=overwrite,
        num_threads=num_threads,
        allow_opaque=allow_opaque,
        shard_size=shard_size,
    )
    planner = SavePlanner()
    planner.state_to_save, _ = _with_states(state_dict)
    with _no_dist_expected(no_dist):
        # Pass the state by the planner: for a state in the first argument, torch would process and
        # log each entry separately, in 20 us each.
        dcp_save(
            {},
            storage_writer=writer,
            planner=planner,
            process_group=process_group,
            no_dist=no_dist,
        )


@set_module("tenfold.distributed")
def load(
    state_dict: dict[str, Any],
    path: PathLike,
    *,
    verify: bool = False,
    strict: bool = True,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
) -> None:
    """Loads a file or folder into a state of any sharding, in place. Collective.

    Like ``dcp.load`` with a `StorageReader`, but keys need not be str.

    Args:
        state_dict: A state as for `save`. Its tensors are filled; its values, and its tuples, are
            replaced. In place of an object that was saved with `allow_opaque`, the uint8 tensor
            with the bytes of torch.save is loaded. Meta tensors are replaced by tensors on the
            device of the process group, or in main memory without a process group.
        path: A checkpoint in any format that `tenfold.open` reads, saved by any number of ranks.
        verify: Compare checksums before reading, as for `StorageReader`.
        strict: Raise an error if the checkpoint lacks an entry of `state_dict`. If false, such
            entries do not change, except that meta tensors become uninitialized tensors.
        process_group: The ranks that load. None: all ranks.
        no_dist: If true, this process loads alone.

    Raises:
        TypeError: If `state_dict` is not a dict, `path` not a path, or `verify` not a bool.
        CheckpointException: If a rank failed (a BaseException of torch).

    Example:
        >>> import tenfold.distributed
        >>> state = model.state_dict()
        >>> tenfold.distributed.load(state, "model.safetensors", no_dist=True)
    """
    _check_state("load", state_dict)
    path_argument("distributed.load(state_dict, path)", path)
    planner = LoadPlanner(allow_partial_load=not strict)
    state, stateful = _with_states(state_dict)
    planner.state_to_load = state
    with _no_dist_expected(no_dist):
        dcp_load(
            {},  # as in save()
            storage_reader=StorageReader(path, verify=verify),
            planner=planner,
            process_group=process_group,
            no_dist=no_dist,
        )
    for key in stateful:
        state_dict[key].load_state_dict(state[key])
    for key in state_dict.keys() - set(stateful):
        state_dict[key] = state[key]


def _check_state(call: str, state_dict: Any) -> None:
    if not isinstance(state_dict, Mapping):
        raise TypeError(
            f"distributed.{call}(state_dict, path): state_dict: expected a dict, found "
            f"{type(state_dict).__name__}"
        )


def _with_states(state_dict: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """`state_dict` with states in place of Stateful objects, and the keys of these objects."""
    # Sort: all ranks must use the same order, because state_dict() may be collective.
    stateful = sorted((key for key, value in state_dict.items() if _is_stateful(value)), key=str)
    return {**state_dict, **{key: state_dict[key].state_dict() for key in stateful}}, stateful


def _is_stateful(value: Any) -> bool:
    """True for a Stateful: an object whose state torch's functions save."""
    return not isinstance(value, torch.Tensor) and isinstance(value, Stateful)


@contextmanager
def _no_dist_expected(no_dist: bool) -> Iterator[None]:
    """If `no_dist` is true, suppresses torch's warning about a missing process group."""
    if not no_dist:
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled, unavailable")
        yield
