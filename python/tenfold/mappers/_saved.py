"""A mapper as a tree, and back.

    {"state_mapper": {"class": "tenfold.ModuleStateMapper", "version": 1, "config": {...}},
     "tensors": {...}}

A mapper within a mapper is such a tree among the tensors of the outer one.
"""

from __future__ import annotations

import inspect

from tenfold._errors import CorruptFileError, UnsupportedError
from tenfold._interop import arrays
from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    Thing = TypeVar("Thing", bound=Callable[..., Any])
    from typing import Any

    from tenfold.mappers._mapper import StateMapper


_things: dict[str, Any] = {}
_names: dict[Any, str] = {}


@set_module("tenfold")
def register_mapper(name: str) -> Callable[[Thing], Thing]:
    """Registers a class or factory under the name that saved mappers contain.

    A subclass of `StateMapper` is instantiated by `StateMapper.load`. Any other callable creates
    the module of a `ModuleStateMapper`.

    Args:
        name: The name in files. Prefix it (``"lab.grid_world"``) to avoid collisions.

    Raises:
        ValueError: If the name is taken by another definition. The same definition again (a
            reloaded module, a repeated notebook cell) replaces the old one.

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
    """The registered object. Raises UnsupportedError with the name and the remedy."""
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


VERSION = 1
HEAD = "state_mapper"


def tree_of(mapper: StateMapper) -> dict[str, Any]:
    """The tree that `StateMapper.save` saves."""
    mapper = mapper.saved_as()
    name = name_of(type(mapper))
    if name is None:
        raise UnsupportedError(
            f"{type(mapper).__name__}: its class has no name that a file could say: expected one; "
            '@tenfold.register_mapper("...") gives it'
        )
    config = mapper.config()
    if not isinstance(config, dict):
        raise TypeError(
            f"{type(mapper).__name__}.config: expected a dict, found {type(config).__name__}"
        )
    _refuse_tensors(config, ())
    tree = {HEAD: {"class": name, "version": VERSION, "config": config}}
    tensors = mapper.tensors()
    return {**tree, "tensors": tensors} if tensors else tree


def _refuse_tensors(value: Any, path: tuple[str, ...]) -> None:
    if arrays.is_array(value):
        raise UnsupportedError(
            f'config: key "{".".join(path)}": expected JSON, found a tensor; what tensors() gives '
            "is saved as tensors"
        )
    if isinstance(value, (dict, list, tuple)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, child in items:
            _refuse_tensors(child, (*path, str(key)))


def load_mapper(path: str, wanted: type, verify: bool) -> StateMapper:
    """See `StateMapper.load`."""
    from tenfold._io import files

    if verify:
        problems = files.verify(path, progress=False).problems
        if problems:
            first = problems[0]
            raise CorruptFileError(f"{first.path}: {first.part}: {first.what}")
    from tenfold.mappers._hierarchy_json import is_json, mapper_of_json

    mapper = mapper_of_json(path) if is_json(path) else mapper_of(files.open(path), path)
    if not isinstance(mapper, wanted):
        raise ValueError(
            f"{path}: a mapper of another class: expected a {wanted.__name__}, found a "
            f"{type(mapper).__name__}; tenfold.StateMapper.load takes any"
        )
    mapper._remember(path)
    return mapper


def mapper_of(tree: Any, where: str) -> StateMapper:
    """The mapper of a tree of `tree_of`; an opened tree is read on demand."""
    from tenfold.mappers._mapper import StateMapper

    name, config = _head_of(tree, where)
    cls = registered(name, where)
    if not (isinstance(cls, type) and issubclass(cls, StateMapper)):
        raise UnsupportedError(
            f'{where}: class: expected the name of a StateMapper, found "{name}", which is '
            "registered as a factory"
        )
    tensors = _tensors_of(tree, where)
    if cls.restore.__func__ is not StateMapper.restore.__func__:  # type: ignore[attr-defined]
        return cls.restore(config, tensors)
    try:
        inspect.signature(cls).bind(**config, **tensors)
    except TypeError as error:
        raise CorruptFileError(
            f"{where}: {HEAD}: config: expected the arguments of {cls.__name__}, found others: "
            f"{error}"
        ) from None
    return cls.restore(config, tensors)


def _head_of(tree: Any, where: str) -> tuple[str, dict[str, Any]]:
    head = _entry(tree, HEAD)
    if head is None:
        found = ", ".join(f'"{key}"' for key in list(tree.keys())[:5]) or "an empty tree"
        raise UnsupportedError(
            f'{where}: no state mapper: expected an entry "{HEAD}", found {found}; tenfold.load '
            "reads other trees"
        )
    if not isinstance(head, dict):
        raise CorruptFileError(
            f"{where}: {HEAD}: expected a JSON object, found {type(head).__name__}"
        )
    version = head.get("version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise CorruptFileError(f"{where}: {HEAD}: version: expected an int, found {version!r}")
    if version != VERSION:
        raise UnsupportedError(
            f"{where}: {HEAD}: version: expected {VERSION}, found {version}; a newer tenfold reads "
            "it"
        )
    name, config = head.get("class"), head.get("config")
    if not isinstance(name, str):
        raise CorruptFileError(f"{where}: {HEAD}: class: expected a str, found {name!r}")
    if not isinstance(config, dict) or not all(isinstance(key, str) for key in config):
        raise CorruptFileError(
            f"{where}: {HEAD}: config: expected an object, found {type(config).__name__}"
        )
    return name, config


def _tensors_of(tree: Any, where: str) -> Any:
    tensors = _entry(tree, "tensors")
    if tensors is None:
        return {}
    if not hasattr(tensors, "keys"):
        raise CorruptFileError(f"{where}: tensors: expected a tree, found {type(tensors).__name__}")
    return tensors


def _entry(tree: Any, key: str) -> Any:
    return tree[key] if key in tree.keys() else None  # noqa: SIM118 - a TensorDict is no dict
