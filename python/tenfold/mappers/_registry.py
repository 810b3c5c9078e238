"""Which names in a file stand for which classes and factories of this program.

A file never imports anything: a name that this program has not registered is an error.
"""

from __future__ import annotations

from tenfold._errors import UnsupportedError
from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    Thing = TypeVar("Thing", bound=Callable[..., Any])

_things: dict[str, Any] = {}
_names: dict[Any, str] = {}


@set_module("tenfold")
def register_mapper(name: str) -> Callable[[Thing], Thing]:
    """Gives a class or factory the name under which saved mappers find it again.

    Of a subclass of `StateMapper`: files say its name, `StateMapper.load` makes one of it. Of
    anything else that can be called: it makes the module of a `ModuleStateMapper`.

    Args:
        name: What files say. Prefix it (``"lab.grid_world"``) if others may choose the same.

    Raises:
        ValueError: If the name is taken by something else. The same definition again (a module
            that is reloaded, a cell that is run twice) takes the place of the old one.

    Example:
        >>> @tenfold.register_mapper("mlp")
        ... def mlp(width):
        ...     return torch.nn.Sequential(torch.nn.Linear(2, width), torch.nn.ReLU())
    """
    if not isinstance(name, str) or not name:
        found = name if isinstance(name, str) else type(name).__name__
        raise TypeError(
            f'register_mapper: expected a name, as in @tenfold.register_mapper("mlp"), '
            f"found {found!r}"
        )

    def register(thing: Thing) -> Thing:
        if not callable(thing):
            raise TypeError(
                f'register_mapper("{name}"): expected a class or a function, found '
                f"{type(thing).__name__}"
            )
        known = _things.get(name)
        if known is not None and known is not thing and _place_of(known) != _place_of(thing):
            raise ValueError(
                f'register_mapper("{name}"): the name is taken: expected one of its own for '
                f"{_place_of(thing)}, found {_place_of(known)} under it"
            )
        _things[name] = thing
        _names[thing] = name
        return thing

    return register


def _place_of(thing: Any) -> str:
    name = getattr(thing, "__qualname__", type(thing).__qualname__)
    return f"{getattr(thing, '__module__', '?')}.{name}"


def registered(name: str, where: str) -> Any:
    """What `name` stands for. Raises UnsupportedError naming it and the remedy."""
    try:
        return _things[name]
    except KeyError:
        known = ", ".join(f'"{other}"' for other in sorted(_things))
        raise UnsupportedError(
            f'{where}: no class or factory is registered as "{name}": expected one of {known}; '
            f'import the module with @tenfold.register_mapper("{name}") before, because a file '
            "never imports"
        ) from None


def name_of(thing: Any) -> str | None:
    """The name that `thing` was registered under last, or None."""
    return _names.get(thing)
