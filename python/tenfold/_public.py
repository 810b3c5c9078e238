"""Sets the public module of classes and functions."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def set_module(name: str) -> Callable[[Decorated], Decorated]:
    """Decorates a class or function whose documented home is the module `name`.

    Pickles, tracebacks and ``help()`` then name this module instead of the private module that
    defines the class or function, so the private module may be renamed. ``inspect.getsource`` of
    a class (not of its methods) does not work, because it searches the module `name`.
    """

    def decorate(decorated: Decorated) -> Decorated:
        decorated.__module__ = name
        # Python 3.13+: a line number in the file of the private module.
        if "__firstlineno__" in vars(decorated):
            del decorated.__firstlineno__  # type: ignore[attr-defined]
        return decorated

    return decorate
