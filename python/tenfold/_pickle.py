"""The functions that pickles of this package's objects call to recreate them.

A pickle names functions by module and name, and may be kept for years. So these functions keep
their module and parameters, although the modules that they call may change. Other names in a
pickle that may be kept are public classes (`tenfold._public.set_module`). Pickles that are only
sent to other ranks (`tenfold.distributed._plans`) name private functions as well.
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
        entries: By key.
        info: The fields of the node that are not entries, as `NodeInfo` orders them. In old pickles
            the last five are in a tuple, which may lack `is_bare`, or are None.
        locked: Whether it is locked.
    """
    from tenfold._interop.node_info import NodeInfo
    from tenfold.tensordict._dense import rebuilt

    if len(info) == 11:
        *first, last = info
        info = (*first, *(last or ()))
    return rebuilt(cls, entries, NodeInfo(*info), locked)


def lazy_stack(members: list[Any], stack_dim: int, name: str | None, locked: bool) -> Any:
    """A LazyStackedTensorDict of these members; `name` is that of the stack dimension."""
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

    Raises:
        OSError: ESTALE, if the path has another file or folder than `identity` (device and inode of
            its meta.json if it has one, else of itself).
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
    """As `opened_tree`, for the result of `memmap` or `load_memmap`; `marked` sets `is_memmap`."""
    from tenfold.tensordict._files.folder import reopened

    return reopened(path, mode, marked, identity, keys, framework, locked)


def marked_memmap(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """The tree that `function(*arguments)` returns, marked as `is_memmap`."""
    from tenfold.tensordict._files.folder import lock

    made = function(*arguments)
    lock(made)
    return made


def consolidated(skeleton: Any, storage: Any, locked: bool) -> Any:
    """A consolidated tree.

    Args:
        skeleton: The tree, with positions in `storage` instead of tensors: ``(dtype, shape, start,
            stop)``. For a jagged tensor, those of its values, lengths (or None) and offsets, and
            its ragged dimension.
        storage: One uint8 tensor of all bytes.
        locked: Whether it is locked.
    """
    from tenfold.tensordict._files.consolidated import rebuilt

    return rebuilt(skeleton, storage, locked)


def non_tensor_stack(
    values: list[Any], positions: Any, batch_size: Any, stacked: tuple[int, ...], device: Any
) -> Any:
    """A NonTensorStack whose row i is ``values[positions[i]]``.

    Args:
        values: The distinct values.
        positions: For each row, in row-major order, the index of its value.
        batch_size: Shape of the rows.
        stacked: The dimensions along which values were stacked, the last stacked one first.
        device: Its device, or None.
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
    """A MemoryMappedTensor over anonymous memory, which `handler` owns."""
    from tenfold.tensordict._files.mapped_tensor import rebuilt

    return rebuilt(handler.path, handler, "r+", None, offset, dtype, shape, strides)


def anonymous_file(descriptor: Any) -> Any:
    """Anonymous shared memory; `descriptor` was sent by multiprocessing."""
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
        path: Path of its folder or file.
        mode: As for `Dataset`.
        identity: Boot ID of the host, device, inode and creation time of the opened file or folder.
        rows: Number of rows of the data set when its first view was created; None without views.
        steps: Name and arguments of each view, in order.
        maps: Function and `batched` of each `map`, in order.
        framework: The framework of its tensors.

    Raises:
        OSError: ESTALE, if the path has another file or folder now, or fewer than `rows` rows.
            After a reboot and on another host, the identity is not compared.
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
    """A view of `concat` (`weights` is None) or `mix`; other arguments as for `dataset`.

    `framework` is None in old pickles: that of the first data set.
    """
    from tenfold.dataset._dataset import rejoined

    return rejoined(datasets, weights, steps, maps, framework)


def samples(rows: list[Any], ragged: frozenset[str], framework: Any = None) -> Any:
    """The rows that functions of `Dataset.map` returned in a worker process of a loader."""
    from tenfold.dataset._rows import Samples

    return Samples(rows, ragged, framework)


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
    """The state mapper that is saved as `tree`."""
    from tenfold.mappers._mapper import restored

    return restored(tree, "state mapper")
