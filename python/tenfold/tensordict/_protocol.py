"""The few operations on a node that all others are said in terms of."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Key = str | tuple[str, ...]

_classes: dict[str, Any] = {}


def register_classes(**classes: type) -> None:
    """Tells `dense` or `stacked` its class, which the module of the class does at its end."""
    _classes.update(classes)


def dense() -> Any:
    """The class TensorDict, for modules that it is built on and that cannot import it."""
    return _classes["dense"]


def stacked() -> Any:
    """The class LazyStackedTensorDict: see `dense`."""
    return _classes["stacked"]


class Primitives:
    """What TensorDict and LazyStackedTensorDict each implement; the method groups build on it.

    An *entry* is a tensor, a node, or an object of a class in `WRAPPED` (NonTensorData,
    NonTensorStack, UnbatchedTensor), which stands for the value that ``td[key]`` gives.
    """

    if not TYPE_CHECKING:  # a group of methods may set what only the classes have in slots
        __slots__ = ()

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The methods of the other groups, which every node has as well."""

        def __getitem__(self, key: Any) -> Any: ...
        def __setitem__(self, key: Any, value: Any) -> None: ...
        def __iter__(self) -> Any: ...

        _batch_size: tuple[int, ...]
        _names: tuple[str | None, ...] | None
        _device: Any
        _locked: Any
        _disk: Any
        _kind: Any
        _undo: Any
        _consolidated: Any
        _opened: Any

        def _entry(self, key: str) -> Any:
            """The entry of one key. Raises KeyError if there is none."""

        def _entries(self) -> dict[str, Any]:
            """All entries in order, tensors fetched or stacked; not to be changed."""

        def _key_list(self) -> list[str]:
            """The keys in order, reading nothing."""

        def _has(self, key: str) -> bool:
            """True if there is an entry of that one key."""

        def _kinds(self) -> Any:
            """(key, "tensor" | "value" | "node", node or description), reading no tensor."""

        def _put(self, key: str, entry: Any) -> None:
            """Sets one entry that fits. Raises RuntimeError if the node is locked."""

        def _put_anyway(self, key: str, entry: Any) -> None:
            """Sets one entry that fits, even if the node is locked."""

        def _held(self) -> Any:
            """The entries that are in Python's memory."""

        def _own(self) -> Any:
            """Tells the node that it is about to be changed. Raises RuntimeError if locked."""

        def _remove(self, key: str) -> None:
            """Deletes one entry that is there. Raises RuntimeError if the node is locked."""

        def _each(
            self,
            change: Callable[[Any], Any],
            batch_size: tuple[int, ...],
            names: tuple[str | None, ...] | None = None,
        ) -> Any:
            """A node of `batch_size` with `change(entry)` for each tensor and node."""

        def _valued(self, change: Callable[[Any], Any]) -> Any:
            """The same tree with `change(tensor)` for each tensor here and below."""

        def _in_place(self, change: Callable[[Any], Any]) -> Any:
            """Calls `change(tensor)` for each tensor here and below; returns the node."""

        def _with_entries(self, items: dict[str, Any]) -> Any:
            """A TensorDict of other entries that is otherwise as this node."""

        def _like(self, items: dict[str, Any], batch_size: tuple[int, ...]) -> Any:
            """A TensorDict of other entries and batch size on the same device."""

        def _simplified(self) -> tuple[Any, ...]:
            """What `tenfold._interop.objects.simplify` answers for it."""
