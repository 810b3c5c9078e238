"""The functions that pickles of this package's objects call to recreate them.

A pickle names functions by module and name, and users may keep pickles for years. So these
functions stay in this module and keep their parameters; the functions that they call may change.
All other names of this package in such pickles are classes in public modules, which
`tenfold._public.set_module` sets. Pickles that are only sent to other ranks
(`tenfold.distributed._plans`) may name private functions.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Steps = tuple[tuple[str, Any], ...]
    Maps = tuple[tuple[Callable[[Any], Any], bool], ...]

# --- trees ---------------------------------------------------------------------------------------


def tensordict(cls: type, entries: dict[str, Any], info: tuple[Any, ...], locked: bool) -> Any:
    """A TensorDict in memory.

    Args:
        cls: TensorDict or a subclass.
        entries: Entries by key.
        info: The fields of `NodeInfo`, in order. In old pickles, the last five fields are one item:
            a tuple, which may lack `is_bare`, or None if the five fields have their defaults.
        locked: Whether the TensorDict is locked.
    """
    from tenfold._interop.node_info import NodeInfo
    from tenfold.tensordict._dense import rebuilt

    if len(info) == 11:
        *first, last = info
        info = (*first, *(last or ()))
    return rebuilt(cls, entries, NodeInfo(*info), locked)


def lazy_stack(members: list[Any], stack_dim: int, name: str | None, locked: bool) -> Any:
    """A LazyStackedTensorDict of `members`; `name` is the name of the stack dimension."""
    from tenfold.tensordict._lazy import rebuilt

    return rebuilt(members, stack_dim, name, locked)


def opened_tree(
    path: str,
    mode: str,
    format: str,
    keeps_parts: bool,
    identity: tuple[int, int] | None,
    keys: tuple[str, ...],
    framework: Any = None,
    locked: bool = False,
) -> Any:
    """The node at `keys` of a file or folder, with tensors of `framework`, locked if `locked`.

    If `keeps_parts` is true, a sparse tensor is a node of its component tensors. `identity` is the
    device and inode of the file; for a folder, those of its meta.json, or of the folder if it has
    no meta.json.

    Raises:
        OSError: ESTALE, if the file or folder at `path` has another identity.
    """
    from tenfold.tensordict._dense import reopen

    return reopen(path, mode, format, keeps_parts, identity, keys, framework, locked)


def memmap_tree(
    path: str,
    mode: str,
    marked: bool,
    identity: tuple[int, int] | None,
    keys: tuple[str, ...],
    framework: Any = None,
    locked: bool = False,
) -> Any:
    """A node of a tree that `memmap` or `load_memmap` returned; arguments as for `opened_tree`.

    If `marked` is true, ``is_memmap()`` of the node returns True.
    """
    from tenfold.tensordict._files.folder import reopened

    return reopened(path, mode, marked, identity, keys, framework, locked)


def marked_memmap(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """The tree that `function(*arguments)` returns; its ``is_memmap()`` returns True."""
    from tenfold.tensordict._files.folder import lock

    made = function(*arguments)
    lock(made)
    return made


def keys(found: list[Any]) -> Any:
    """The result of ``keys()`` of a TensorDict with the keys `found`."""
    from tenfold.tensordict._entries import Keys

    return Keys(found)


def consolidated(skeleton: Any, storage: Any, locked: bool) -> Any:
    """A consolidated tree.

    Args:
        skeleton: The tree, in which each tensor is replaced by its position in `storage`:
            ``(dtype, shape, start, stop)``, in bytes. A jagged tensor is replaced by a tuple: the
            positions of its values, lengths (or None) and offsets, and the index of its ragged
            dimension.
        storage: One uint8 tensor with the bytes of all tensors.
        locked: Whether the tree is locked.
    """
    from tenfold.tensordict._files.consolidated import rebuilt

    return rebuilt(skeleton, storage, locked)


def non_tensor_stack(
    values: list[Any], positions: Any, batch_size: Any, stacked: tuple[int, ...], device: Any
) -> Any:
    """A NonTensorStack in which row i has the value ``values[positions[i]]``.

    Args:
        values: The list of values, which rows may share.
        positions: For each row, in row-major order, the index of its value in `values`.
        batch_size: The batch size of the stack.
        stacked: The dimensions along which values were stacked, the most recent one first.
        device: The device of the stack, or None.
    """
    from tenfold.tensordict._values import restored

    return restored(values, positions, batch_size, stacked, device)


# --- mapped tensors ------------------------------------------------------------------------------


def mapped_tensor(
    path: str, mode: str, identity: Any, offset: int, dtype: str, shape: Any, strides: Any
) -> Any:
    """A MemoryMappedTensor of a file. Raises OSError (ESTALE) if the file was replaced."""
    from tenfold.tensordict._files.mapped_tensor import rebuilt

    return rebuilt(path, None, mode, identity, offset, dtype, shape, strides)


def anonymous_tensor(handler: Any, offset: int, dtype: str, shape: Any, strides: Any) -> Any:
    """A MemoryMappedTensor of the anonymous file `handler`."""
    from tenfold.tensordict._files.mapped_tensor import rebuilt

    return rebuilt(handler.path, handler, "r+", None, offset, dtype, shape, strides)


def anonymous_file(descriptor: Any) -> Any:
    """The anonymous file whose descriptor multiprocessing sent."""
    from tenfold.tensordict._files.mapped_tensor import received

    return received(descriptor)


# --- data sets, matrices and mappers -------------------------------------------------------------


def dataset(
    path: str,
    mode: Any,
    identity: tuple[bytes, int, int, int] | None,
    rows: int | None,
    steps: Steps,
    maps: Maps,
    framework: Any = None,
) -> Any:
    """A view of a data set.

    Args:
        path: Path of the folder or file of the data set.
        mode: As for `Dataset`.
        identity: Boot ID of the host, and device, inode and creation time of the file or folder.
        rows: Number of rows of the data set when the first of the views in `steps` was created;
            None if `steps` is empty.
        steps: For each view, in order, the engine's method that creates it (or ``"split"``), and
            the arguments.
        maps: Function and argument `batched` of each call of `map`, in order.
        framework: The framework of the tensors.

    Raises:
        OSError: ESTALE, if the file or folder at the path was replaced, or has fewer than `rows`
            rows. After a reboot, or on another host, only the number of rows is checked.
    """
    from tenfold.dataset._dataset import reopened

    return reopened(path, mode, identity, rows, steps, maps, framework)


def joined_dataset(
    datasets: Sequence[Any],
    weights: Sequence[float] | None,
    steps: Steps,
    maps: Maps,
    framework: Any = None,
) -> Any:
    """A view of ``concat(datasets)`` if `weights` is None, else of ``mix(datasets, weights)``.

    `steps` and `maps` are as for `dataset`. If `framework` is None, as in old pickles, the view has
    the framework of the first data set.
    """
    from tenfold.dataset._dataset import rejoined

    return rejoined(datasets, weights, steps, maps, framework)


def samples(rows: list[Any], ragged: frozenset[str], framework: Any = None) -> Any:
    """A batch of results of the functions given to `Dataset.map`."""
    from tenfold.dataset._rows import Samples

    return Samples(rows, ragged, framework)


def offsets(arrays: dict[str, Any]) -> Any:
    """A ragged column of a batch with ``pad="offsets"``: the arrays ``values`` and ``offsets``."""
    from tenfold.dataset._ragged import Offsets

    return Offsets(arrays)


def sparse_matrix(layout: str, parts: tuple[Any, ...], shape: Any, framework: Any = None) -> Any:
    """A SparseMatrix in memory, made of the component arrays of its layout."""
    from tenfold.sparse._sparse_matrix import of_parts

    return of_parts(layout, parts, shape, framework)


def opened_dict(cls: type, path: str, mode: str, framework: Any) -> Any:
    """The MappedDict at `path`, with tensors of `framework`."""
    return cls(path, mode, framework=framework)


def opened_matrix(cls: type, path: str, framework: Any) -> Any:
    """The SparseMatrix at `path`, with tensors of `framework`."""
    return cls(path, framework=framework)


def opened_mapper(cls: type, path: str) -> Any:
    """The state mapper at `path`, an instance of `cls`."""
    from tenfold.mappers._mapper import load_mapper

    return load_mapper(path, cls, False)


def mapper_of_tree(tree: dict[str, Any]) -> Any:
    """The state mapper whose saved form is `tree`."""
    from tenfold.mappers._mapper import restored

    return restored(tree, "state mapper")
