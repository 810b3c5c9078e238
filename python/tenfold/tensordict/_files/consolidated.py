"""`consolidate` and `from_consolidated`: all tensors in one block of memory, or in one file."""

from __future__ import annotations

import os
import warnings
from collections import namedtuple

from tenfold import _core, _pickle
from tenfold._errors import UnsupportedError
from tenfold._interop import arrays
from tenfold._interop.arrays import need_torch
from tenfold.tensordict._entries import LEAF, VALUE, class_kind, node_of
from tenfold.tensordict._node import Opened
from tenfold.tensordict._protocol import dense
from tenfold.tensordict._values import NonTensorStack, UnbatchedTensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    PathLike = str | os.PathLike[str]
    from collections.abc import Iterator


def consolidate(
    td: Any,
    filename: PathLike | None = None,
    *,
    num_threads: int | None = 0,
    device: Any = None,
    non_blocking: bool = False,
    inplace: bool = False,
    return_early: bool = False,
    use_buffer: bool = False,
    share_memory: bool = False,
    pin_memory: bool = False,
) -> Any:
    if td.is_consolidated() and not must_pin(
        td, pin_memory, filename, inplace, device, return_early, num_threads
    ):
        return again(td, filename, device, share_memory)
    options = Options(
        filename=None if filename is None else os.path.abspath(os.fsdecode(filename)),
        num_threads=num_threads or 0,
        device=device,
        non_blocking=non_blocking,
        inplace=inplace,
        return_early=return_early,
        use_buffer=use_buffer,
        share_memory=share_memory,
        pin_memory=pin_memory,
    )
    return _consolidate(td, options)


def from_consolidated(filename: PathLike) -> Any:
    native, was_locked = _core.open_consolidated(filename)
    opened = Opened(os.fsdecode(filename), "c", "consolidated", keeps_parts=True)
    made: Any = dense()._from_native(native, opened)
    if was_locked:
        made.lock_()
    return made


def is_consolidated(td: Any) -> bool:
    state = getattr(td, "_consolidated", None)
    if state is not None:
        return bool(state.holds(td))
    opened = td._opened
    return opened is not None and opened.format == "consolidated" and not opened.changed


def warn_written_elsewhere(filename: Any, has_file: bool) -> None:
    """Warns, as tensordict does, that `consolidate` does not write the file."""
    reason = (
        "only the file it was consolidated into is rewritten"
        if has_file
        else "only a file that consolidate() has written for this object is rewritten"
    )
    warnings.warn(
        f"consolidate(filename={os.fsdecode(filename)!r}) writes nothing: the tensordict is "
        f"already consolidated, and {reason}. Call td.contiguous().consolidate(filename=...) to "
        "write a new file.",
        UserWarning,
        stacklevel=5,
    )


Options = namedtuple(
    "Options",
    "filename num_threads device non_blocking inplace return_early use_buffer share_memory "
    "pin_memory",
)

#: Location of a tensor in the block. In a pickle, a tuple of these fields replaces the tensor.
Place = namedtuple("Place", "dtype shape start stop")

#: Locations of the components of a jagged tensor; `lengths` may be None.
JaggedPlace = namedtuple("JaggedPlace", "values lengths offsets ragged_idx")


class Block:
    """The block of a consolidated tree.

    Attributes:
        storage: 1-d uint8 tensor that contains the bytes of all tensors.
        file: Path and identity of the file that `storage` is mapped from; None if it is not mapped.
        entries: All tensors and values, to detect that one was replaced.
        shape: Batch sizes and names of all nodes when the file was written; None if `file` is None.
    """

    __slots__ = ("entries", "file", "shape", "storage")

    def __init__(self, storage: Any, tree: Any, file: Any = None) -> None:
        self.storage = storage
        self.file = file
        self.entries = list(entries_of(tree))
        self.shape = shape_of(tree) if file is not None else None

    def holds(self, tree: Any) -> bool:
        now = list(entries_of(tree))
        return len(now) == len(self.entries) and all(
            one is other for one, other in zip(now, self.entries, strict=True)
        )


def entries_of(tree: Any) -> Iterator[Any]:
    """Yields every tensor, and the data of every plain value, in the order of the entries."""
    members = getattr(tree, "tensordicts", None)
    entries = tree._entries().values() if members is None else members
    for entry in entries:
        node = node_of(entry)
        if node is not None:
            yield from entries_of(node)
        elif class_kind(type(entry)) == VALUE and type(entry) is not UnbatchedTensor:
            # NonTensorStack.data raises an error if the stack has no rows or different values.
            yield entry._values if type(entry) is NonTensorStack else entry.data
        else:
            yield entry


def shape_of(tree: Any) -> list[Any]:
    """Batch size and names of every node, each node before its children."""
    members = getattr(tree, "tensordicts", None)
    found = [(tuple(tree._batch_size), tree._names)]
    for entry in tree._entries().values() if members is None else members:
        node = node_of(entry)
        if node is not None:
            found += shape_of(node)
    return found


def file_id(path: str) -> tuple[int, int, int] | None:
    """The file's identity, to detect later that it was replaced; None if there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size


# --- a consolidated tree --------------------------------------------------------------------------


def must_pin(
    tree: Any,
    pin_memory: bool,
    filename: Any,
    inplace: bool,
    device: Any,
    return_early: bool,
    num_threads: int | None,
) -> bool:
    """True if an unpinned block must be copied into a pinned one."""
    state = getattr(tree, "_consolidated", None)
    if not pin_memory or filename is not None or inplace or state is None:
        return False
    if return_early and (num_threads or 0) > 1:
        return False
    torch = need_torch("consolidate")
    if device is not None and torch.device(device).type != "cpu":
        return False
    storage = state.storage
    return bool(
        storage.device.type == "cpu"
        and torch.accelerator.is_available()
        and not storage.is_pinned()
    )


def again(tree: Any, filename: Any, device: Any, share_memory: bool) -> Any:
    """Implements `consolidate` for a tree that is consolidated already; returns `tree`.

    Replaces the file only if the tree is mapped from `filename`, and its batch sizes or names have
    changed since the file was written.
    """
    state = getattr(tree, "_consolidated", None)
    if filename is not None:
        path = os.path.realpath(os.fsdecode(filename))
        own = None if state is None else state.file
        if own is None or own != (path, file_id(path)):
            warn_written_elsewhere(filename, own is not None)
        elif state is not None and state.shape != shape_of(tree):
            _write_again(tree, path)
    if state is None:
        return tree
    torch = need_torch("consolidate")
    ignored = []
    if device is not None and torch.device(device).type != state.storage.device.type:
        ignored.append(f"device={str(device)!r}")
    on_cpu = state.storage.device.type == "cpu"
    if share_memory and filename is None and on_cpu and not state.storage.is_shared():
        ignored.append("share_memory=True")
    if ignored:
        warnings.warn(
            f"consolidate() ignores {' and '.join(ignored)} on a tensordict that is already "
            "consolidated, and returns it as is. Call td.contiguous().consolidate(...) to get "
            "that result.",
            FutureWarning,
            stacklevel=4,
        )
    return tree


def _write_again(tree: Any, path: str) -> None:
    """Rewrites the tree's file with the current batch sizes and names; maps the new file."""
    torch = need_torch("consolidate")
    _core.consolidate(_core.tree(tree, path), path, 0, bool(tree._locked))
    _, places, size = planned(tree)
    storage = mapped(torch, path, size)
    views = iter([view_of(torch, storage, place) for place in places])
    tree._replace_arrays(lambda _: next(views))
    tree._consolidated = Block(storage, tree, (path, file_id(path)))


# --- a tree that is not consolidated --------------------------------------------------------------


def planned(tree: Any) -> tuple[list[tuple[Any, Place]], list[Any], int]:
    """The dense tensors of a tree, the positions of its entries, and the block's size in bytes.

    The dense tensors are pairs (tensor, Place), in the order of their bytes. A jagged tensor has
    two or three pairs, one for each component, but one position, a JaggedPlace.
    """
    pairs: list[tuple[Any, Place]] = []
    places: list[Any] = []
    layout = _core.BlockLayout()

    def place(tensor: Any) -> Place:
        size = tensor.element_size() * tensor.numel()
        start = layout.add(tensor.element_size(), size)
        found = Place(tensor.dtype, tuple(tensor.shape), start, start + size)
        pairs.append((tensor, found))
        return found

    def visit(tensor: Any) -> Any:
        tensor = tensor.detach().resolve_conj().resolve_neg()
        if not tensor.is_nested:
            places.append(place(tensor))
            return tensor
        parts = [tensor._values, tensor._lengths, tensor._offsets]
        values, lengths, offsets = (None if one is None else place(one) for one in parts)
        places.append(JaggedPlace(values, lengths, offsets, tensor._ragged_idx))
        return tensor

    tree._valued(visit)
    return pairs, places, layout.size_bytes()


def check(tree: Any, path: tuple[str, ...], to_meta: bool) -> None:
    """Raises an error naming the key of an entry that cannot be part of a block.

    It is an UnsupportedError for a sparse or quantized tensor, and for a meta tensor unless
    `to_meta`, which means that the block is on the meta device; otherwise a NotImplementedError.
    """
    members = getattr(tree, "tensordicts", None)
    entries = tree._entries() if members is None else {str(i): one for i, one in enumerate(members)}
    for key, entry in entries.items():
        node = node_of(entry)
        where = ".".join((*path, key))
        if node is not None:
            check(node, (*path, key), to_meta)
        elif type(entry) is UnbatchedTensor:
            raise NotImplementedError(
                f"consolidate: key {where!r}: expected batched tensors, found an UnbatchedTensor"
            )
        elif class_kind(type(entry)) == LEAF and getattr(entry, "is_nested", False):
            torch = need_torch("consolidate")
            if entry.layout is not torch.jagged:
                raise NotImplementedError(
                    f"consolidate: key {where!r}: expected dense or jagged tensors, found a "
                    f"nested tensor of layout {entry.layout}"
                )
        found = arrays.without_elements(entry)
        if found and not (to_meta and entry.is_meta):
            raise UnsupportedError(
                f"consolidate: key {where!r}: expected dense or jagged tensors, found {found}"
            )


def view_of(torch: Any, storage: Any, place: Any) -> Any:
    """The tensor at a position in a block."""
    if isinstance(place, JaggedPlace):
        parts = [
            None if part is None else view_of(torch, storage, part)
            for part in (place.values, place.offsets, place.lengths)
        ]
        return torch.nested.nested_tensor_from_jagged(*parts, jagged_dim=place.ragged_idx)
    return storage[place.start : place.stop].view(place.dtype).view(place.shape)


def _consolidate(tree: Any, options: Options) -> Any:
    torch = need_torch("consolidate")
    device = None if options.device is None else torch.device(options.device)
    if options.filename is not None and device is not None and device.type != "cpu":
        raise RuntimeError(
            "consolidate: device and filename are mutually exclusive: expected no "
            f"device, or the CPU, with a filename, found {options.device}"
        )
    early = options.return_early and options.num_threads > 1
    if early and (options.use_buffer or options.non_blocking):
        raise NotImplementedError(
            "consolidate: return_early does not support use_buffer or non_blocking"
        )
    if not early:
        return _consolidated(torch, tree, device, options)
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(1, thread_name_prefix="tenfold-consolidate")
    future = pool.submit(_consolidated, torch, tree, device, options)
    pool.shutdown(wait=False)
    return future


def _consolidated(torch: Any, tree: Any, device: Any, options: Options) -> Any:
    filename = options.filename
    where = device if device is not None else tree.device
    check(tree, (), filename is None and where is not None and torch.device(where).type == "meta")
    pairs, places, size = planned(tree)
    if filename is not None:
        native = _core.tree(tree, filename)
        _core.consolidate(native, filename, options.num_threads, bool(tree._locked))
    mapped_path = None if options.use_buffer else filename
    if mapped_path is None:
        storage = _filled(torch, tree, pairs, size, device, options)
    else:
        storage = mapped(torch, mapped_path, size)
    views = iter([view_of(torch, storage, place) for place in places])
    if options.inplace:
        tree._replace_arrays(lambda _: next(views))
        made = tree
    else:
        made = tree._valued(lambda _: next(views))
    _set_device(made, device, options)
    made.lock_()
    made._undo = None
    file = None
    if mapped_path is not None:
        path = os.path.realpath(mapped_path)
        file = (path, file_id(path))
    made._consolidated = Block(storage, made, file)
    return made


def _set_device(made: Any, device: Any, options: Options) -> None:
    """Sets the device of the result: the CPU if a file was written, otherwise `device`, if given.

    A tree without a device stays without one, except for a new tree (not `inplace`) if a file was
    written: its device is the CPU.
    """
    was = None if made._device is None else str(made._device)
    if options.filename is not None:
        if not options.inplace or (was is not None and was != "cpu"):
            made._set_device("cpu")
    elif device is not None and was is not None and str(device) != was:
        made._set_device(str(device))


def mapped(torch: Any, path: str, size: int) -> Any:
    """Maps the first `size` bytes of a file, which contain the tensors, as a shared mapping."""
    if size == 0:
        return torch.empty(0, dtype=torch.uint8)
    return torch.from_file(path, shared=True, size=size, dtype=torch.uint8)


def _filled(
    torch: Any,
    tree: Any,
    pairs: list[tuple[Any, Place]],
    size: int,
    device: Any,
    options: Options,
) -> Any:
    """Creates a new block on `device` (None: the tree's device), with copies of the tensors."""
    where = device if device is not None else tree.device
    on_cuda = where is not None and torch.device(where).type == "cuda"
    storage = torch.empty(size, dtype=torch.uint8, device=where, pin_memory=options.pin_memory)
    if options.share_memory and not on_cuda:
        storage.share_memory_()

    def copy(part: list[Any]) -> None:
        for tensor, place in part:
            target = view_of(torch, storage, place)
            target.copy_(tensor.as_subclass(torch.Tensor), non_blocking=options.non_blocking)

    _zero_gaps(storage, [place for _, place in pairs], size)
    parts = _parts(pairs, size, options.num_threads)
    if len(parts) < 2:
        copy(pairs)
    else:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(options.num_threads) as pool:
            for done in [pool.submit(copy, part) for part in parts]:
                done.result()
    if options.non_blocking and not on_cuda and torch.cuda.is_available():
        torch.cuda.synchronize()
    return storage


def _zero_gaps(storage: Any, places: list[Place], size: int) -> None:
    ends = [place.stop for place in places]
    starts = [*[place.start for place in places[1:]], size]
    for end, start in zip(ends, starts, strict=False):
        if start > end:
            storage[end:start].zero_()


def _parts(pairs: list[Any], size: int, num_threads: int) -> list[list[Any]]:
    """Splits (tensor, position) pairs into consecutive parts for the threads.

    A part covers at most 1/num_threads of the block, unless it has only one pair.
    """
    if num_threads < 2:
        return [pairs]
    parts: list[list[Any]] = [[]]
    share = -(-size // num_threads)
    for pair in pairs:
        if parts[-1] and pair[1].stop - parts[-1][0][1].start > share:
            parts.append([])
        parts[-1].append(pair)
    return parts


# --- pickles, and other devices -------------------------------------------------------------------


def reduced(tree: Any) -> tuple[Any, tuple[Any, ...]]:
    """Pickles the block, and the tree with positions instead of tensors."""
    _, places, _ = planned(tree)
    left = iter(places)
    skeleton = tree._valued(lambda _: _as_tuple(next(left)))
    return _pickle.consolidated, (skeleton, tree._consolidated.storage, bool(tree._locked))


def _as_tuple(place: Any) -> tuple[Any, ...]:
    """A position as a plain tuple, because pickles must not name its class."""
    return tuple(tuple(part) if isinstance(part, Place) else part for part in place)


def _as_place(found: tuple[Any, ...]) -> Any:
    values, lengths, offsets, ragged_idx = found
    if not isinstance(values, tuple):
        return Place(*found)
    parts = [None if part is None else Place(*part) for part in (values, lengths, offsets)]
    return JaggedPlace(parts[0], parts[1], parts[2], ragged_idx)


def rebuilt(skeleton: Any, storage: Any, locked: bool) -> Any:
    """Restores a pickled consolidated tree."""
    torch = need_torch("consolidate")
    made = skeleton._valued(lambda found: view_of(torch, storage, _as_place(found)))
    if locked:
        made.lock_()
        made._undo = None
    made._consolidated = Block(storage, made)
    return made


def moved(tree: Any, device: Any, non_blocking: bool) -> Any:
    """Copies the tree to another device, as one block."""
    torch = need_torch("to")
    _, places, _ = planned(tree)
    storage = tree._consolidated.storage.to(device, non_blocking=non_blocking)
    views = iter([view_of(torch, storage, place) for place in places])
    made = tree._valued(lambda _: next(views))
    made._set_device(str(device))
    made.lock_()
    made._undo = None
    made._consolidated = Block(storage, made)
    return made
