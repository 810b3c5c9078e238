"""Batch size, dimension names and device of a TensorDict; reshaping, splitting and gathering."""

from __future__ import annotations

from tenfold._errors import UnsupportedError
from tenfold._interop import arrays
from tenfold._interop.arrays import dim_in, need_torch, probe
from tenfold.tensordict._entries import (
    LEAF,
    batch_size_of,
    called,
    class_kind,
    node_of,
    rewrapped,
    shape_of,
    written,
)
from tenfold.tensordict._ops.locking import locked_as
from tenfold.tensordict._protocol import stacked
from tenfold.tensordict._values import NonTensorData, ValueRows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from tenfold.tensordict._protocol import Like


def viewed(td: Like, change: Callable[[Any], Any], batch_size: Any, names: Any = None) -> Like:
    return locked_as(td, td._each(change, batch_size, names))


def _mapped_view(td: Like, change: Callable[[Any], Any], batch_size: Any, names: Any) -> Like:
    """Creates a view; if `td` is a mapped tree, marks the view as mapped too."""
    return locked_as(td, td._as_view(td._each(change, batch_size, names)))


def expanded(td: Like, wanted: tuple[int, ...], *, shared_below: bool = False) -> Like:
    """Implements `expand`.

    `shared_below`: If true, NonTensorData in nodes below, except in lazy stacks, remains
    NonTensorData. If false, new dimensions turn it into a NonTensorStack.
    """
    new = tuple(probe(td._batch_size, "expand").expand(wanted).shape)
    ndim = len(td._batch_size)
    names = None
    if td._names is not None:
        names = (*[None] * (len(new) - ndim), *td._names)

    def change(value: Any) -> Any:
        shape = (*new, *value.shape[ndim:])
        node = node_of(value)
        if node is None:
            return called("expand", shape)(value)
        made = node._expanded(shape, shared_below=shared_below)
        return rewrapped(value, _with_shared_values(made, node) if shared_below else made)

    return viewed(td, change, new, names)


def expand_as(td: Like, other: Any) -> Like:
    made = td._expanded(tuple(other.shape), shared_below=True)
    made._set_names(None)
    return made


def _with_shared_values(td: Like, node: Any) -> Like:
    """Puts the NonTensorData of `node` into `td`, with the batch size of `td`."""
    for key, entry in node._entries().items():
        if type(entry) is NonTensorData:
            td._put_locked(key, entry._resized(tuple(td._batch_size)))
    return td


def view(td: Like, shape: tuple[Any, ...], size: Any, batch_size: Any) -> Like:
    torch = need_torch("view")
    if len(shape) == 1 and isinstance(shape[0], torch.dtype):
        return _viewed_as(td, shape[0], batch_size)
    return td._reshaped(sizes(shape, size), "view")


def _viewed_as(td: Like, dtype: Any, batch_size: Any) -> Like:
    made = td._valued(called("view", dtype))
    if batch_size is not None:
        _set_batch_sizes(made, batch_size)
    _check_batch_sizes(made)
    return made


def _set_batch_sizes(td: Any, batch_size: Any) -> None:
    """Sets the batch size of all nodes except those in lazy stacks, which cannot change theirs."""
    if not isinstance(td, stacked()):
        for node in map(node_of, td._entries().values()):
            if node is not None and not isinstance(node, stacked()):
                _set_batch_sizes(node, batch_size)
    td.batch_size = batch_size


def _check_batch_sizes(td: Any) -> None:
    """Checks the tensors of all nodes against the batch sizes of their nodes."""
    td._check_batch_size(tuple(td._batch_size))
    for node in map(node_of, td._entries().values()):
        if node is not None:
            _check_batch_sizes(node)


def reshaped(td: Like, wanted: tuple[Any, ...], method: str) -> Like:
    ndim = len(td._batch_size)
    new = tuple(probe(td._batch_size, method).reshape(wanted).shape)
    if new == tuple(td._batch_size):
        return td

    def change(value: Any) -> Any:
        shape = (*new, *value.shape[ndim:])
        return called(method, shape)(value) if method == "view" else value.reshape(shape)

    made = td._each(change, new)
    return locked_as(td, td._as_view(made) if method == "view" else made)


def flatten(
    td: Like, start_dim: int | None = None, end_dim: int | None = None, *, inplace: bool = False
) -> Like:
    _refuse_inplace(inplace, "flatten")
    ndim = len(td._batch_size)
    start = dim_in(0 if start_dim is None else start_dim, ndim, "flatten")
    end = dim_in(-1 if end_dim is None else end_dim, ndim, "flatten")
    if end <= start:
        if end < start:
            raise ValueError(f"flatten: expected an end_dim of at least {start}, found {end}")
        return locked_as(td, td.clone(recurse=False))
    count = 1
    for length in td._batch_size[start : end + 1]:
        count *= length
    new = (*td._batch_size[:start], count, *td._batch_size[end + 1 :])
    names = None
    if td._names is not None:
        names = (*td._names[:start], None, *td._names[end + 1 :])
    return viewed(td, called("flatten", start, end), new, names)


def unflattened(length: int, dim: int, unflattened_size: Any) -> tuple[int, ...]:
    """The lengths that a dimension is split into.

    Raises:
        TypeError: If `unflattened_size` is not a sequence of ints.
        RuntimeError: If the product of the lengths is not `length`.
    """
    try:
        lengths = tuple(unflattened_size)
        return tuple(probe((length,), "unflatten").unflatten(0, lengths).shape)
    except (TypeError, RuntimeError) as error:
        raise type(error)(
            f"unflatten: unflattened_size: expected lengths whose product is {length}, the length "
            f"of dimension {dim} (one of them may be -1), found {unflattened_size!r}"
        ) from None


def unflatten(td: Like, dim: int, unflattened_size: Any, *, inplace: bool = False) -> Like:
    _refuse_inplace(inplace, "unflatten")
    ndim = len(td._batch_size)
    dim = dim_in(dim, ndim, "unflatten")
    lengths = unflattened(td._batch_size[dim], dim, unflattened_size)
    new = (*td._batch_size[:dim], *lengths, *td._batch_size[dim + 1 :])
    names = None
    if td._names is not None:
        more = (None,) * (len(new) - ndim)
        names = (*td._names[:dim], *more, *td._names[dim:])
    return viewed(td, called("unflatten", dim, lengths), new, names)


def permute(td: Like, dims: tuple[int, ...]) -> Like:
    ndim = len(td._batch_size)
    order = tuple(dim + ndim if dim < 0 else dim for dim in dims)
    if sorted(order) != list(range(ndim)):
        raise ValueError(
            f"permute: expected each of {ndim} batch dimensions once, found {list(dims)}"
        )
    if order == tuple(range(ndim)):
        return td
    new = tuple(td._batch_size[dim] for dim in order)
    names = None if td._names is None else tuple(td._names[dim] for dim in order)

    def change(value: Any) -> Any:
        return called("permute", *order, *range(ndim, value.ndim))(value)

    return _mapped_view(td, change, new, names)


def transpose(td: Like, dim0: int, dim1: int) -> Like:
    ndim = len(td._batch_size)
    first, second = two_dims(dim0, dim1, ndim)
    if first == second:
        return td
    order = list(range(ndim))
    order[first], order[second] = order[second], order[first]
    new = tuple(td._batch_size[dim] for dim in order)
    names = None if td._names is None else tuple(td._names[dim] for dim in order)
    return _mapped_view(td, called("transpose", first, second), new, names)


def movedim(td: Like, source: Any, destination: Any) -> Like:
    ndim = len(td._batch_size)
    sources = _different_dims(source, ndim, "source")
    targets = _different_dims(destination, ndim, "destination")
    if len(sources) != len(targets):
        raise ValueError(
            f"movedim: expected a destination for each source, found the sources {sources} and the "
            f"destinations {targets}"
        )
    order = [dim for dim in range(ndim) if dim not in sources]
    for target, dim in sorted(zip(targets, sources, strict=True)):
        order.insert(target, dim)
    return td.permute(*order)


def _different_dims(dims: Any, ndim: int, name: str) -> list[int]:
    found = [dim_in(dim, ndim, "movedim") for dim in ([dims] if isinstance(dims, int) else dims)]
    if len(set(found)) != len(found):
        raise RuntimeError(f"movedim: {name}: expected different dimensions, found {found}")
    return found


def unsqueeze(td: Like, dim: int) -> Like:
    ndim = len(td._batch_size)
    at = dim + ndim + 1 if dim < 0 else dim
    if not 0 <= at <= ndim:
        raise RuntimeError(f"unsqueeze: expected a dim from {-ndim - 1} to {ndim}, found {dim}")
    new = (*td._batch_size[:at], 1, *td._batch_size[at:])
    names = None if td._names is None else (*td._names[:at], None, *td._names[at:])
    return _mapped_view(td, called("unsqueeze", at), new, names)


def squeeze(td: Like, dim: int | None) -> Like:
    if dim is None:
        ones = tuple(dim for dim, length in enumerate(td._batch_size) if length == 1)
        return _squeezed(td, ones) if ones else td
    at = dim_in(dim, len(td._batch_size), "squeeze")
    if td._batch_size[at] != 1:
        return td
    new = (*td._batch_size[:at], *td._batch_size[at + 1 :])
    names = None if td._names is None else (*td._names[:at], *td._names[at + 1 :])
    return _mapped_view(td, lambda value: value.squeeze(at), new, names)


def _squeezed(td: Like, dims: tuple[int, ...], *, below: bool = False) -> Like:
    """Removes the dimensions `dims`, which have length 1.

    `below`: True if `td` is a nested node. As in tensordict, a NonTensorStack in a nested node is
    reshaped, but one in the root may be unbound: see `ValueRows.squeeze_all`.
    """
    new = tuple(n for dim, n in enumerate(td._batch_size) if dim not in dims)
    names = td._names and tuple(n for i, n in enumerate(td._names) if i not in dims)

    def change(value: Any) -> Any:
        node = node_of(value)
        if node is not None:
            made = _squeezed(node, dims, below=True)
            made._names = None
            return rewrapped(value, made)
        if type(value) is ValueRows:
            return value.squeeze_all(dims, reshape=below)
        for dim in reversed(dims):
            value = value.squeeze(dim)
        return value

    return viewed(td, change, new, names)


def atleast_2d(td: Like) -> Like:
    ndim = len(td._batch_size)
    return td if ndim >= 2 else td.reshape(1, 1) if ndim == 0 else td.unsqueeze(0)


def atleast_3d(td: Like) -> Like:
    ndim = len(td._batch_size)
    if ndim >= 3:
        return td
    if ndim == 2:
        return td.unsqueeze(-1)
    return td.reshape(1, 1, 1) if ndim == 0 else td.unsqueeze(0).unsqueeze(-1)


def sizes(args: tuple[Any, ...], whole: Any) -> tuple[int, ...]:
    """Returns the sizes in `args` (ints or one sequence), or in `whole` if `args` is empty."""
    if not args and whole is not None:
        args = (whole,)
    if len(args) == 1 and not isinstance(args[0], int):
        args = tuple(args[0])
    return tuple(int(size) for size in args)


def two_dims(dim0: int, dim1: int, ndim: int) -> tuple[int, int]:
    try:
        return dim_in(dim0, ndim, "transpose"), dim_in(dim1, ndim, "transpose")
    except IndexError as error:
        raise ValueError(str(error)) from None


def _refuse_inplace(inplace: bool, what: str) -> None:
    if inplace:
        raise ValueError(f"{what}() does not support inplace=True")


def assigned_batch_size(batch_size: Any) -> tuple[int, ...]:
    """Converts a value that is assigned to `batch_size`; unlike `batch_size_of`, refuses an int."""
    if batch_size is not None and not hasattr(batch_size, "__iter__"):
        raise TypeError(f"batch_size: expected a sequence of int, found {batch_size!r}")
    return batch_size_of(batch_size)


def set_batch_size(td: Any, batch_size: Any) -> None:
    new = assigned_batch_size(batch_size)
    if new != tuple(td._batch_size):
        td._check_batch_size(new)
        td._change_batch_size(new)


def check_batch_size(td: Any, new: tuple[int, ...]) -> None:
    for key, entry in td._entries().items():
        node = node_of(entry)
        if node is not None:
            if len(node._batch_size) < len(new):
                node._check_batch_size(new)
                continue
            shape = node._batch_size
        elif class_kind(type(entry)) == LEAF:
            shape = shape_of(entry)
        elif getattr(entry, "_values", None) is not None:
            shape = entry._batch_size
        else:
            continue
        if tuple(shape[: len(new)]) != new:
            raise RuntimeError(
                f'batch_size: key "{key}": expected a shape that begins with {list(new)}, '
                f"found {list(shape)}"
            )


def change_batch_size(td: Any, new: tuple[int, ...]) -> None:
    names = td._names
    td._mark_changed()
    td._batch_size = new
    if names is not None:
        kept = names[: len(new)]
        td._names = (*kept, *[None] * (len(new) - len(kept)))
    for key, entry in td._entries().items():
        node = node_of(entry)
        if node is not None:
            if len(node._batch_size) < len(new):
                node._change_batch_size(new)
        elif hasattr(entry, "_resized") and tuple(entry._batch_size[: len(new)]) != new:
            td._put_locked(key, entry._resized(new))


def auto_batch_size_(
    td: Like, batch_dims: int | None = None, keep_compliant_size: bool = False
) -> Like:
    sizes = []
    for key, entry in list(td._entries().items()):
        node = node_of(entry)
        if node is not None:
            is_compliant = batch_dims is not None and len(node._batch_size) >= batch_dims
            if not (keep_compliant_size and is_compliant) and not isinstance(node, stacked()):
                node.auto_batch_size_(batch_dims)
            if not node.is_empty() or isinstance(node, stacked()):
                sizes.append(tuple(node._batch_size))
        elif class_kind(type(entry)) == LEAF:
            sizes.append(shape_of(entry))
        elif getattr(entry, "_batch_size", ()):  # a value without batch dimensions fits any size
            sizes.append(entry._batch_size)
            is_resized = batch_dims and not keep_compliant_size and not isinstance(td, stacked())
            if is_resized and type(entry) is NonTensorData:
                td._put_locked(key, entry._resized(entry._batch_size[:batch_dims]))
    if sizes:
        common: list[int] = []
        for lengths in zip(*sizes, strict=False):
            if len(set(lengths)) > 1 or len(common) == batch_dims:
                break
            common.append(lengths[0])
        td.batch_size = common
    elif batch_dims is not None and td._key_list():
        td.batch_size = td._batch_size[:batch_dims]
    return td


def numel(td: Any) -> int:
    count = 1
    for length in td._batch_size:
        count *= length
    return max(1, count)


def assign_names(td: Any, names: Sequence[str | None] | None) -> None:
    if names is None:
        td._set_names(None)
        return
    if isinstance(names, str) or not hasattr(names, "__iter__"):
        raise TypeError(f"names: expected a sequence of str or None, found {names!r}")
    names = tuple(names)
    for name in names:
        check_name(name, "names")
    if len(names) != len(td._batch_size):
        raise ValueError(
            f"names: expected one for each of {len(td._batch_size)} batch dimensions, "
            f"found {len(names)}"
        )
    given = [name for name in names if name is not None]
    for name in given:
        if given.count(name) > 1:
            raise ValueError(
                f"names: expected a different name for each dimension, found {name!r} "
                f"{given.count(name)} times in {list(names)}"
            )
    td._set_names(names if given else None)


def check_name(name: object, where: str) -> None:
    if name is not None and not isinstance(name, str):
        raise TypeError(f"{where}: expected a str or None, found {name!r}")


def set_names(td: Any, names: tuple[str | None, ...] | None) -> None:
    if names != td._names:
        td._names = names
        td._mark_changed()
    for entry in td._entries().values():
        node = node_of(entry)
        if node is not None:
            if names is None:
                node._set_names(None)
                continue
            own = node._names or (None,) * len(node._batch_size)
            node._set_names((*names, *own[len(names) :]))


def refine_names(td: Like, *names: Any) -> Like:
    given = list(names)
    if given.count(Ellipsis) > 1:
        raise ValueError(
            f"refine_names: expected at most one Ellipsis, found {given.count(Ellipsis)}"
        )
    if Ellipsis in given:
        at = given.index(Ellipsis)
        missing = len(td._batch_size) - (len(given) - 1)
        given[at : at + 1] = td.names[at : at + missing]
    for old, new in zip(td.names, given, strict=False):
        if old is not None and old != new:
            raise RuntimeError(
                f"refine_names: expected {old!r}, the name that the dimension has, found {new!r}"
            )
    td.names = given
    return td


def rename_(td: Like, *names: Any, **rename_map: str) -> Like:
    if names and rename_map:
        raise ValueError("rename: expected names or keywords, found both")
    if len(names) == 1 and (names[0] is None or isinstance(names[0], (list, tuple))):
        td.names = names[0]
    elif names:
        td.names = names
    else:
        old = td.names
        for name in rename_map:
            if name not in old:
                raise ValueError(f"rename: expected one of {old}, found {name!r}")
        td.names = [name and rename_map.get(name, name) for name in old]
    return td


def device(td: Any) -> Any:
    if not td._device:
        return None
    torch = arrays.torch_or_none()
    if torch is None:
        return td._device
    try:
        return torch.device(td._device)
    except RuntimeError as error:
        opened = td._opened
        where = f"{opened.path}: " if opened is not None else ""
        raise UnsupportedError(
            f'{where}device: expected a device that torch supports, found "{td._device}"; '
            "clear_device_() removes it"
        ) from error


def device_type(td: Any) -> str:
    """The device type, such as "cuda" for "cuda:0"; "" if `td` has no device."""
    return str(td._device or "").partition(":")[0]


def clear_device_(td: Like) -> Like:
    if td._device is not None:
        td._device = None
        td._mark_changed()
    for key, entry in list(td._entries().items()):
        node = node_of(entry)
        if node is not None:
            node.clear_device_()
        elif hasattr(entry, "_on"):
            td._put_locked(key, entry._on(None))
    return td


def auto_device_(td: Like) -> Like:
    devices = {str(tensor.device) for tensor in td._tensors()}
    if len(devices) == 1:
        td._set_device(devices.pop())
    else:
        td.clear_device_()
    return td


def rows_of(td: Any) -> Iterator[Any]:
    if not td._batch_size:
        raise TypeError(
            "iteration over a 0-d TensorDict: expected a batch dimension, found batch_size []; "
            "use keys(), values() or items()"
        )
    return (td[row] for row in range(td._batch_size[0]))


def unbind(td: Like, dim: int) -> tuple[Like, ...]:
    ndim = len(td._batch_size)
    at = dim_in(dim, ndim, "unbind")
    need_torch("unbind")
    shape = (*td._batch_size[:at], *td._batch_size[at + 1 :])
    names = td._names
    if names is not None:
        names = (*names[:at], *names[at + 1 :])
    count = td._batch_size[at]
    return _parted(td, called("unbind", at), [shape] * count, names)


def _parted(td: Like, part: Any, shapes: list[Any], names: Any) -> tuple[Like, ...]:
    """Splits entries with `part(entry)`; returns a TensorDict for each batch size in `shapes`."""
    count = len(shapes)
    made: list[dict[str, Any]] = [{} for _ in range(count)]
    for key, entry in td._entries().items():
        if class_kind(type(entry)) == LEAF or not hasattr(entry, "_parted_entry"):
            parts = part(entry)
        else:
            parts = entry._parted_entry(part, shapes)
        for items, piece in zip(made, parts, strict=True):
            items[key] = piece
    found = []
    for items, shape in zip(made, shapes, strict=True):
        made_td = td._like(items, tuple(shape))
        made_td._names = names
        found.append(td._as_view(made_td))
    return tuple(found)


def split_sizes(split_size: Any, length: int) -> list[int]:
    """The lengths of the parts that `split` makes of a dimension."""
    if isinstance(split_size, int):
        if split_size <= 0:
            raise ValueError(f"split: expected a size over 0, found {split_size}")
        return [min(split_size, length - begin) for begin in range(0, length, split_size)] or [0]
    sizes = [int(size) for size in split_size]
    if sum(sizes) != length or any(size < 0 for size in sizes):
        raise RuntimeError(
            f"split: expected sizes of at least 0 that add up to {length}, found {sizes}"
        )
    return sizes


def split(td: Like, split_size: Any, dim: int = 0) -> tuple[Like, ...]:
    at = dim_in(dim, len(td._batch_size), "split")
    sizes = split_sizes(split_size, td._batch_size[at])
    shapes = [(*td._batch_size[:at], size, *td._batch_size[at + 1 :]) for size in sizes]
    parts = _parted(td, called("split", sizes, at), shapes, td._names)
    return tuple(locked_as(td, part) for part in parts)


def chunk(td: Like, chunks: int, dim: int = 0) -> tuple[Like, ...]:
    if chunks < 1:
        raise ValueError(f"chunk: expected at least 1 chunk, found {chunks}")
    at = dim_in(dim, len(td._batch_size), "chunk")
    length = td._batch_size[at]
    return td.split(-(length // -chunks) or [0] * chunks, at)


def tensor_split(td: Like, indices_or_sections: Any, dim: int = 0) -> tuple[Like, ...]:
    at = dim_in(dim, len(td._batch_size), "tensor_split")
    rows = _row_probe(td, at, "tensor_split")
    sizes = [len(part) for part in rows.tensor_split(indices_or_sections)]
    if sum(sizes) != len(rows):
        raise RuntimeError(
            "tensor_split: expected row indices in ascending order, found "
            f"{list(map(int, indices_or_sections))}"
        )
    return td.split(sizes, at)


def narrow(td: Like, dim: int, start: int, length: int) -> Like:
    at = dim_in(dim, len(td._batch_size), "narrow")
    rows = _row_probe(td, at, "narrow").narrow(0, start, length)
    if -1 in td._batch_size:  # a lazy stack whose entries may not fit into one tensor
        begin = rows.storage_offset()
        return td._rows((*[slice(None)] * at, slice(begin, begin + len(rows))))
    new = (*td._batch_size[:at], len(rows), *td._batch_size[at + 1 :])
    made = td._each(called("narrow", at, start, length), new, td._names)
    return locked_as(td, td._as_view(made))


def _row_probe(td: Any, at: int, what: str) -> Any:
    """A meta tensor with one element for each row of the dimension `at`."""
    refuse_ragged(td, at, what)
    return probe((td._batch_size[at],), what)


def refuse_ragged(td: Any, at: int, what: str) -> None:
    """Raises RuntimeError if the members of a lazy stack differ in the length of a dimension."""
    if td._batch_size[at] == -1:
        raise RuntimeError(
            f"{what}: expected a dimension that has the same length in all stacked tensordicts, "
            f"found dimension {at} of batch_size {list(td._batch_size)}, where -1 means that "
            "the lengths differ"
        )


def gather(td: Like, dim: int, index: Any, out: Any = None, *, inplace: bool = False) -> Like:
    torch = need_torch("gather")
    if inplace:
        raise ValueError("gather() does not support inplace=True")
    ndim = len(td._batch_size)
    at = dim_in(dim, ndim, "gather", RuntimeError)
    shape = tuple(index.shape)
    if len(shape) != ndim:
        raise RuntimeError(f"gather: expected an index of {ndim} dimensions, found {len(shape)}")

    def change(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value.gather(at, _right(index, value.shape, ndim, at))
        return torch.gather(value, at, _right(index, value.shape, ndim, at))

    made = td._each(change, shape, td._names)
    return made if out is None else written(out, made)


def repeat(td: Like, *repeats: Any, inplace: bool = False) -> Like:
    if inplace:
        raise ValueError("repeat() does not support inplace=True")
    if len(repeats) == 1 and not isinstance(repeats[0], int):
        repeats = tuple(repeats[0])
    ndim = len(td._batch_size)
    if len(repeats) != ndim:
        raise ValueError(
            f"repeat: expected {ndim} numbers, one for each batch dimension, found {len(repeats)}"
        )
    if any(count < 0 for count in repeats):
        raise RuntimeError(f"repeat: expected no negative number, found {list(repeats)}")
    new = tuple(a * b for a, b in zip(td._batch_size, repeats, strict=True))

    def change(value: Any) -> Any:
        return called("repeat", (*repeats, *[1] * (value.ndim - ndim)))(value)

    return viewed(td, change, new, td._names)


def tile(td: Like, dims: Any) -> Like:
    dims = (dims,) if isinstance(dims, int) else tuple(dims)
    dims = (1,) * (len(td._batch_size) - len(dims)) + dims
    made = td
    while len(made._batch_size) < len(dims):
        made = made.unsqueeze(0)
    return made.repeat(*dims)


def repeat_interleave(
    td: Like,
    repeats: Any,
    dim: int | None = None,
    *,
    output_size: int | None = None,
    inplace: bool = False,
) -> Like:
    torch = need_torch("repeat_interleave")
    if inplace:
        raise ValueError("repeat_interleave() does not support inplace=True")
    if dim is None:
        if len(td._batch_size) > 1:
            return td.reshape(-1).repeat_interleave(repeats, 0, output_size=output_size)
        dim = 0
    if not td._batch_size:
        return td.unsqueeze(0).repeat_interleave(repeats, 0, output_size=output_size)
    at = dim_in(dim, len(td._batch_size), "repeat_interleave")
    rows = torch.arange(td._batch_size[at], device="cpu")
    repeats = torch.as_tensor(repeats, device="cpu")  # the tensor may be on a GPU
    rows = rows.repeat_interleave(repeats, output_size=output_size)
    return td._chosen(rows, at)


def chosen(td: Like, rows: Any, at: int) -> Like:
    """Copies the rows with the indices `rows` along the batch dimension `at`."""
    new = (*td._batch_size[:at], len(rows), *td._batch_size[at + 1 :])

    def change(value: Any) -> Any:
        if class_kind(type(value)) == LEAF:
            tensor = arrays.tensor(value, "repeat_interleave")
            return tensor.index_select(at, rows.to(tensor.device))
        if type(value) is ValueRows:
            return value.index_select(at, rows)
        return value._chosen(rows, at)

    return viewed(td, change, new, td._names)


def flip(td: Like, dims: Any) -> Like:
    dims = (dims,) if isinstance(dims, int) else tuple(dims)
    ndim = len(td._batch_size)
    at = tuple(dim_in(dim, ndim, "flip") for dim in dims)
    return viewed(td, called("flip", at), tuple(td._batch_size), td._names)


def roll(td: Like, shifts: Any, dims: Any = None, *, inplace: bool = False) -> Like:
    if inplace:
        raise ValueError("roll() does not support inplace=True")
    batch_size = tuple(td._batch_size)
    if dims is None:
        return td.reshape(-1).roll(shifts, 0).reshape(batch_size)
    dims = (dims,) if isinstance(dims, int) else tuple(dims)
    at = tuple(dim_in(dim, len(batch_size), "roll") for dim in dims)
    return viewed(td, called("roll", shifts, at), batch_size, td._names)


def rot90(td: Like, k: int = 1, dims: Any = (0, 1)) -> Like:
    first, second = (dim_in(dim, len(td._batch_size), "rot90") for dim in dims)
    if first == second:
        raise ValueError(f"rot90: expected two different dimensions, found {tuple(dims)}")
    turns = k % 4
    if turns == 0:
        return td.clone()
    if turns == 2:
        return td.flip((first, second))
    moved = td.flip(second) if turns == 1 else td.flip(first)
    return moved.transpose(first, second)


def masked_select(td: Like, mask: Any, *, inplace: bool = False) -> Like:
    if inplace:
        raise ValueError("masked_select() does not support inplace=True")
    return td._rows(mask)


def _right(index: Any, shape: Any, ndim: int, dim: int) -> Any:
    """Expands `index` by the dimensions of `shape` after the `ndim` batch dimensions."""
    extra = tuple(shape[ndim:])
    return index.reshape(*index.shape, *[1] * len(extra)).expand(*index.shape, *extra)
