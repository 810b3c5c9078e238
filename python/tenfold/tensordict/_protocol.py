"""The basic operations on a node, on which `_ops` builds, and types for annotations."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import EllipsisType
    from typing import Any, Protocol, TypeAlias, TypeVar

    import torch
    from typing_extensions import Self

    from tenfold._interop.node_info import NodeInfo
    from tenfold.tensordict._base import TensorDictBase
    from tenfold.tensordict._dense import TensorDict
    from tenfold.tensordict._lazy import LazyStackedTensorDict
    from tenfold.tensordict._node import Opened
    from tenfold.tensordict._tensor_like import TensorLike

    #: The tree passed to a function of `_ops`, and the result of the same class.
    T = TypeVar("T", bound=TensorDictBase)
    #: Like `T`, for functions that implement methods of TensorLike.
    Like = TypeVar("Like", bound=TensorLike)

    class SupportsArray(Protocol):
        """A NumPy array, or another object with ``__array__``."""

        def __array__(self) -> Any: ...

    Key: TypeAlias = str | tuple[str, ...]
    Device: TypeAlias = str | int | torch.device
    BatchSize: TypeAlias = int | Sequence[int]
    #: A number, a tensor or array that broadcasts with the batch size, or a TensorDict.
    Operand: TypeAlias = complex | torch.Tensor | TensorDictBase | SupportsArray
    IndexPart: TypeAlias = (
        int | slice | EllipsisType | Sequence[int] | Sequence[bool] | SupportsArray | None
    )
    #: An index, as for torch.Tensor.
    Index: TypeAlias = IndexPart | tuple[IndexPart, ...]

_classes: dict[str, Any] = {}


def register_classes(**classes: type) -> None:
    """Sets the class that `dense` or `stacked` returns; the module of the class calls it."""
    _classes.update(classes)


def dense() -> type[TensorDict]:
    """Returns the class TensorDict, for modules that cannot import `_dense` (import cycle)."""
    found: type[TensorDict] = _classes["dense"]
    return found


def stacked() -> type[LazyStackedTensorDict]:
    """Returns the class LazyStackedTensorDict; see `dense`."""
    found: type[LazyStackedTensorDict] = _classes["stacked"]
    return found


class Primitives:
    """The operations that TensorDict and LazyStackedTensorDict each implement.

    An *entry* is a tensor or array, a node, an object of a tensorclass, or an object of a class in
    `WRAPPED` (NonTensorData, NonTensorStack, UnbatchedTensor), for which ``td[key]`` returns the
    wrapped value. The functions of `_ops` call these operations; most methods of TensorDictBase
    call the functions of `_ops`.
    """

    if not TYPE_CHECKING:  # at run time, the classes define these as slots or properties
        __slots__ = ()

    if TYPE_CHECKING:
        #: The leading dimensions of all tensors except unbatched ones; -1 for a length that differs
        #: between the members of a lazy stack.
        _batch_size: tuple[int, ...]
        #: A tuple of a name, or None, for each batch dimension; None: no names.
        _names: tuple[str | None, ...] | None
        #: The device as a str; None if none was set, or if the members of a lazy stack differ.
        _device: str | None
        #: The lock state: False, True, or another value that `_ops.locking.MAPPED` describes.
        _locked: Any
        #: A `Disk`, the engine's node behind this one; None if there is none.
        _disk: Any
        #: Properties of this node; some may be out of date: `_info` returns the current ones.
        _node_info: NodeInfo
        #: The call that undoes the last `lock_`, `unlock_` or `to_module`, as (method name,
        #: arguments, options). The next ``with`` statement makes it at its end. None: no call.
        _undo: Any
        #: Such calls for the ``with`` statements that are being executed, the innermost one last.
        _entered: tuple[Any, ...]
        #: The block made by `consolidate`; None or not set if there is none.
        _consolidated: Any

        @property
        def _opened(self) -> Opened | None: ...

        def _entry(self, key: str) -> Any:
            """The entry under `key`. Raises KeyError if there is none."""
            ...

        def _entries(self) -> dict[str, Any]:
            """All entries by key; loads or stacks tensors. Callers must not change the dict."""
            ...

        def _key_list(self) -> list[str]:
            """The keys, without reading entries; for a stack, the keys that all members have."""
            ...

        def _has(self, key: str) -> bool:
            """True if this node has an entry under `key`."""
            ...

        def _kinds(self, *, shows_damaged: bool = False) -> Iterator[tuple[str, str, Any]]:
            """Yields (key, "tensor" | "value" | "node", found), from metadata where possible.

            `found` is the node, the engine's description of an entry on disk, or None for a tensor
            or value that Python has loaded or that is in a lazy stack. With `shows_damaged`, the
            kind of an entry that cannot be read is "damaged" or "refused"; otherwise such an entry
            raises an error.
            """
            ...

        def _put(self, key: str, entry: Any) -> None:
            """Sets an entry; does not check its shape. Raises RuntimeError if locked."""
            ...

        def _put_locked(self, key: str, entry: Any) -> None:
            """Sets an entry, even if the node is locked; does not check its shape."""
            ...

        def _held(self) -> Iterable[Any]:
            """The entries that Python has loaded; for a lazy stack, the loaded members."""
            ...

        def _own(self) -> Any:
            """Prepares this node for a change. Raises RuntimeError if the node is locked."""
            ...

        def _mark_changed(self) -> None:
            """Records that the engine's node, if there is one, is out of date."""
            ...

        def _remove(self, key: str) -> None:
            """Deletes one existing entry. Raises RuntimeError if the node is locked."""
            ...

        def _each(
            self,
            change: Callable[[Any], Any],
            batch_size: tuple[int, ...],
            names: tuple[str | None, ...] | None = None,
        ) -> Self:
            """A node of `batch_size` with `change(entry)` for each tensor and node.

            For a value that is not a tensor, `change` is called with its `ValueRows`. An
            UnbatchedTensor remains unchanged.
            """
            ...

        def _valued(self, change: Callable[[Any], Any]) -> Self:
            """A tree of the same keys with `change(tensor)` for each tensor, here and below."""
            ...

        def _in_place(self, change: Callable[[Any], Any]) -> Self:
            """Calls `change(tensor)` for each tensor here and below; returns the node."""
            ...

        def _replace_arrays(self, replace: Callable[[Any], Any]) -> None:
            """Replaces every tensor here and below by `replace(tensor)`, even in a locked tree."""
            ...

        def _with_entries(self, items: dict[str, Any]) -> Self:
            """A TensorDict of `items` with the batch size, names and device of this node."""
            ...

        def _like(self, items: dict[str, Any], batch_size: tuple[int, ...]) -> Self:
            """A TensorDict of `items` with `batch_size` and the device of this node."""
            ...

        def _info(self) -> NodeInfo:
            """The properties of this node, for the engine."""
            ...

        def _simplified(self) -> tuple[Any, ...]:
            """Returns what `tenfold._interop.objects.simplify` returns for this node."""
            ...

        # Methods of TensorDictBase that methods of TensorLike call.
        def update(self, input_dict_or_td: Any = None) -> Self: ...
        def update_(self, input_dict_or_td: Any = None) -> Self: ...
        def filter_empty_(self) -> Self: ...
        def apply(self, fn: Callable[..., Any], *, filter_empty: bool | None = None) -> Any: ...
        def _tensors(self) -> Iterator[Any]: ...
        def _rows(self, index: Any) -> Self: ...
        def _as_view(self, made: Self, index: Any = ...) -> Self: ...
        def _moved_in_one_copy(self, device: Any, non_blocking: bool) -> Self: ...
        def is_consolidated(self) -> bool: ...

        @property
        def is_locked(self) -> bool: ...
