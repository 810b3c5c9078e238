"""Which tensorclasses there are, by the name that files have for them."""

from __future__ import annotations

import warnings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_classes: dict[str, type] = {}
_missed: set[str] = set()


def register(cls: type, name: str = "") -> None:
    """Makes `cls` the class of what is saved as `name`, by default its own ``str(cls)``.

    Of several classes of one name the last counts.
    """
    _classes[name or str(cls)] = cls


def registered(name: str) -> type | None:
    """The tensorclass that files call `name`, as ``<class 'module.Name'>``."""
    return _classes.get(name)


def opened(node: Any) -> Any:
    """What stands for a node that was read: an object of its tensorclass, or the node itself.

    Nothing is ever imported for the sake of a file: a class that the program has not defined is
    named in a warning, once, and its fields come as a TensorDict.

    Raises:
        ValueError: If the node has entries that are no fields of the class.
    """
    kind = node._kind
    if kind.name != "tensorclass":
        return node
    cls: Any = _classes.get(kind.class_name)
    if cls is not None:
        return cls._from_tensordict(node, rebuild=False)
    if kind.class_name not in _missed:
        _missed.add(kind.class_name)
        warnings.warn(
            f"tensorclass {kind.class_name}: it is not defined here: expected a class of that "
            "name, found none; its fields come as a TensorDict",
            UserWarning,
            stacklevel=2,
        )
    return node


def stacked(stack: Any, *, rebuild: bool = False) -> Any:
    """A lazy stack; where its members are of one tensorclass, an object of that class over it.

    `rebuild`: it is a new object, whose ``__post_init__`` runs, and not one that was there.
    """
    classes = {type(member) for member in stack.tensordicts}
    cls: Any = classes.pop() if len(classes) == 1 else None
    if not getattr(cls, "_is_tensorclass", False):
        return stack
    stack._read = [member._tensordict for member in stack.tensordicts]
    return cls._from_tensordict(stack) if rebuild else cls._over(stack)


def opened_stack(stack: Any) -> Any:
    """As `stacked`, of a stack on disk, whose members are read only if the first tells a class."""
    node = stack._disk.node
    keys = node.keys()
    first: Any = node.get(keys[0], "r", stack._disk.tied())[0].info() if keys else ("tensordict",)
    if first[0] != "tensorclass" or first[4] not in _classes:
        return stack
    return stacked(stack)
