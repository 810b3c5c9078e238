"""Sets the public module of classes and functions."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def set_module(name: str) -> Callable[[Decorated], Decorated]:
    """Decorates a class or function whose documented home is the module `name`.

    Pickles, tracebacks and ``help()`` then name that module and not the private one that defines
    the class, which may be renamed. ``inspect.getsource`` of the class (not of its methods) no
    longer works, because it searches the named module; classes of numpy and pandas have the same
    limitation.
    """

    def decorate(decorated: Decorated) -> Decorated:
        decorated.__module__ = name
        if "__firstlineno__" in vars(decorated):  # Python 3.13+: a line of another file than `name`
            del decorated.__firstlineno__  # type: ignore[attr-defined]
        return decorated

    return decorate
