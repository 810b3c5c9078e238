"""The base class of state mappers: mapping states to rows, saving, pickling.

A mapper is saved as this tree:

    {"state_mapper": {"class": "tenfold.ModuleStateMapper", "version": 1, "config": {...}},
     "tensors": {...}}

The entry "tensors" is omitted if it would be empty. A mapper within a mapper is saved as such
a tree within "tensors" of the outer mapper.
"""

from __future__ import annotations

import inspect
import os
import sys
from types import MethodType

from tenfold import _core, _pickle
from tenfold._errors import CorruptFileError, UnsupportedError
from tenfold._interop import arrays
from tenfold._public import set_module
from tenfold._unreplaced import read_unreplaced
from tenfold.mappers import _rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from pathlib import Path
    from typing import Any, ClassVar, TypeVar

    from tenfold._io.files import PathLike
    from tenfold.mappers._cached import CachedStateMapper

    Thing = TypeVar("Thing", bound=Callable[..., Any])

# --- names in files ---

_functions: dict[str, Any] = {}
_names: dict[Any, str] = {}


@set_module("tenfold")
def register_mapper(name: str) -> Callable[[Thing], Thing]:
    """Registers a class or factory under the name that saved mappers contain.

    A subclass of `StateMapper` is instantiated by `StateMapper.load`. Any other callable creates
    the module of a `ModuleStateMapper`.

    Args:
        name: The name in files. Prefix it (``"lab.grid_world"``) to avoid collisions.

    Returns:
        A decorator that returns its argument unchanged.

    Raises:
        TypeError: If the name is empty or not a str, or the decorated object is not callable.
        ValueError: If the name is registered for another class or factory. A class or factory with
            the same module and qualified name (a reloaded module, a repeated notebook cell)
            replaces the registered one.

    Example:
        >>> @tenfold.register_mapper("mlp")
        ... def mlp(width):
        ...     return torch.nn.Sequential(torch.nn.Linear(2, width), torch.nn.ReLU())
    """
    if not isinstance(name, str) or not name:
        found = repr(name) if isinstance(name, str) else type(name).__name__
        raise TypeError(
            f'register_mapper: expected a name, as in @tenfold.register_mapper("mlp"), '
            f"found {found}"
        )

    def register(mapped: Thing) -> Thing:
        if not callable(mapped):
            raise TypeError(
                f'register_mapper("{name}"): expected a class or a function, found '
                f"{type(mapped).__name__}"
            )
        known = _functions.get(name)
        if known is not None and known is not mapped and _place_of(known) != _place_of(mapped):
            raise ValueError(
                f'register_mapper("{name}"): the name is taken: expected another name for '
                f"{_place_of(mapped)}, found {_place_of(known)} registered under this name"
            )
        _functions[name] = mapped
        _names[mapped] = name
        return mapped

    return register


def _place_of(mapped: Any) -> str:
    name = getattr(mapped, "__qualname__", type(mapped).__qualname__)
    return f"{getattr(mapped, '__module__', '?')}.{name}"


def registered(name: str, where: str) -> Any:
    """Returns the object registered as `name`. Raises UnsupportedError if there is none."""
    try:
        return _functions[name]
    except KeyError:
        known = ", ".join(f'"{other}"' for other in sorted(_functions))
        raise UnsupportedError(
            f'{where}: no class or factory is registered as "{name}": expected one of {known}; '
            f'import the module with @tenfold.register_mapper("{name}") before, because '
            "loading a file imports nothing"
        ) from None


def name_of(mapped: Any) -> str | None:
    """The name under which `mapped` was registered last, or None."""
    return _names.get(mapped)


# --- the class ---


class _Load:
    """A descriptor that binds `_load` to the class or the instance on which `load` is called."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.__doc__ = function.__doc__
        self._function = function

    def __get__(self, instance: StateMapper | None, owner: type) -> Callable[..., Any]:
        return MethodType(self._function, owner if instance is None else instance)


def _load(target: Any, path: PathLike, *, verify: bool = False) -> Any:
    """Opens a saved mapper, in any format.

    ``StateMapper.load(path)`` returns a mapper of the class that was saved;
    ``SparseStateMapper.load(path)`` raises unless that class is SparseStateMapper or a subclass;
    ``mapper.load(path)`` replaces the content of `mapper`, which must have the saved class, and
    returns `mapper`. Tensors are mapped and read on access, with two exceptions: a JSON file is
    parsed completely, and the parameters of a module are copied into a new module.

    Args:
        target: The class or mapper on which `load` is called.
        path: A file or folder that `save` wrote, or a JSON file of a hierarchy.
        verify: Check the structure and compare all checksums first. A JSON file has no checksums;
            it is parsed completely in any case.

    Raises:
        FileNotFoundError: If there is nothing at `path`.
        UnsupportedError: If the file is not a mapper, it has another version of the format, or the
            name of its class or factory is not registered; the message contains the name.
        ValueError: If the saved mapper has another class than `target`, or the saved parameters do
            not fit the module.
        CorruptFileError: If a JSON file is invalid, the parts of the mapper contradict each other,
            or `verify` finds damage.
    """
    wanted = target if isinstance(target, type) else type(target)
    loaded = load_mapper(os.fsdecode(path), wanted, verify)
    if isinstance(target, type):
        return loaded
    if type(loaded) is not wanted:
        raise ValueError(
            f"{os.fsdecode(path)}: a mapper of a subclass: expected a {wanted.__name__}, found a "
            f"{type(loaded).__name__}; {type(loaded).__name__}.load creates one"
        )
    target.__dict__.clear()
    target.__dict__.update(loaded.__dict__)
    return target


@set_module("tenfold")
class StateMapper:
    """Maps states to rows of numbers: a state to ``[dim]``, a list of n states to ``[n, dim]``.

    A subclass registers a name, generates rows, and returns its config:

    >>> @tenfold.register_mapper("one_hot")
    ... class OneHot(tenfold.StateMapper):
    ...     def __init__(self, size):
    ...         self.size = size
    ...     def generate(self, states):
    ...         return torch.nn.functional.one_hot(torch.tensor(states), self.size)
    ...     def config(self):
    ...         return {"size": self.size}
    >>> OneHot(4).save("mapper")
    >>> tenfold.StateMapper.load("mapper")([1, 3]).shape
    torch.Size([2, 4])

    Only the name, `config` (JSON) and `tensors` are saved: no object is pickled, and loading
    imports nothing. A mapper that was saved or loaded pickles as its path, unless its `stamp` has
    changed since.
    """

    # The path of the last save or load, and the stamp at that time.
    _path: str | None = None
    _saved_stamp: Any = None
    load: ClassVar[Any] = _Load(_load)

    # --- to be overridden ---

    def generate(self, states: list[Any]) -> Any:
        """Generates the rows of states.

        Args:
            states: A list of states.

        Returns:
            A tensor or array ``[len(states), dim]``: the rows in the order of `states`.

        Raises:
            NotImplementedError: If the subclass does not override this method.
            KeyError, ValueError, CorruptFileError: Depending on the subclass, for example for a
                state without a row.

        Example:
            >>> mapper = HierarchicalStateMapper({"a": [1.0, 2.0], "b": [3.0, 4.0]})
            >>> mapper.generate(["b"]).tolist()
            [[3.0, 4.0]]
        """
        raise NotImplementedError(f"{type(self).__name__}.generate")

    def config(self) -> dict[str, Any]:
        """Returns the constructor arguments other than tensors, as a dict of JSON values.

        A subclass that overrides `restore` may return any dict of JSON values.
        """
        return {}

    def tensors(self) -> dict[str, Any]:
        """Returns the tensors of the mapper: a dict of anything that `tenfold.save` supports."""
        return {}

    @classmethod
    def restore(cls, config: dict[str, Any], tensors: dict[str, Any]) -> StateMapper:
        """Creates a mapper from the results of `config` and `tensors`; `load` calls it.

        Args:
            config: The result of `config`.
            tensors: The result of `tensors`, from the opened file or a pickle.

        Returns:
            StateMapper: ``cls(**config, **tensors)``, unless overridden.

        Raises:
            CorruptFileError: In overrides, if config and tensors contradict each other.

        Example:
            >>> @tenfold.register_mapper("constant")
            ... class Constant(tenfold.StateMapper):
            ...     def __init__(self, value):
            ...         self.value = value
            >>> Constant.restore({"value": 2}, {}).value
            2
        """
        return cls(**config, **tensors)

    def key(self, state: Any) -> Hashable:
        """Returns the cache key of a state: by default the state itself.

        Args:
            state: A state.

        Raises:
            TypeError: If the state cannot be hashed.

        Example:
            >>> mapper = HierarchicalStateMapper({"a": [1.0, 2.0], "b": [3.0, 4.0]})
            >>> mapper.key("a")
            'a'
        """
        try:
            hash(state)
        except TypeError:
            raise TypeError(
                f"state {shown(state)}: states are looked up by their hash: expected a hashable "
                "value, such as an int, a str or a tuple of them, found "
                f"{type(state).__name__}; a batch is a list of states"
            ) from None
        return state  # type: ignore[no-any-return]

    def _cache_keys(self, states: list[Any]) -> list[Hashable]:
        """The cache keys of `states`; overridden where a batch of keys is quicker than each key."""
        return [self.key(state) for state in states]

    def stamp(self) -> Any:
        """Returns a value that changes whenever rows change; by default None: rows never change."""
        return None

    def saved_as(self) -> StateMapper:
        """Returns the mapper that `save` stores: this one, or for a cache the mapper it caches."""
        return self

    # --- common methods ---

    def __call__(self, states: Any) -> Any:
        """Returns the row of a state, ``[dim]``, or the rows of a list of states, ``[n, dim]``.

        A tensor or array of integers ``[n]`` is a list of n states as well.

        Raises:
            KeyError: For an unknown state; the message names it.
            TypeError: For an object that cannot be a state.
            ValueError: If `generate` returns another number of rows.
        """
        batch = self._batch(states)
        return self._checked_rows([states])[0] if batch is None else self._checked_rows(batch)

    def _checked_rows(self, states: list[Any]) -> Any:
        """The result of `generate`, after a check of the number of rows."""
        count = len(states)  # the methods of a state may change the list
        made = self.generate(states)
        if len(made) != count:
            raise ValueError(
                f"{type(self).__name__}.generate: expected a row for each of {count} states, "
                f"found {len(made)} rows"
            )
        return made

    def _batch(self, states: Any) -> list[Any] | None:
        """`states` as a list; None if `states` is a single state."""
        if isinstance(states, list):
            return states
        return integers(states)

    def save(
        self,
        path: PathLike,
        *,
        format: str | None = None,
        durable: bool = True,
        overwrite: bool = True,
    ) -> Path:
        """Saves the name of the class, `config` and `tensors`, as `tenfold.save` saves a tree.

        Args:
            path: Target path. Its suffix selects the format; without a suffix, a folder is written.
                An existing file or folder is replaced atomically.
            format: The name of the format, as for `tenfold.save`; None: by the suffix.
            durable: fsync before returning.
            overwrite: If false, an existing `path` is an error.

        Returns:
            Path: `path`.

        Raises:
            UnsupportedError: If the class is not registered (`register_mapper`), `config` contains
                a tensor, or the format cannot store an entry. Nothing has been written.
            TypeError: If `config` does not return a dict.
            FileExistsError: If `path` exists and `overwrite` is false.

        Example:
            >>> mapper = HierarchicalStateMapper({"a": [1.0, 2.0], "b": [3.0, 4.0]})
            >>> mapper.save("mapper").name
            'mapper'
        """
        from tenfold._io.files import save

        saved = save(tree_of(self), path, format=format, durable=durable, overwrite=overwrite)
        self._remember(path)
        return saved

    def _remember(self, path: PathLike) -> None:
        self._path = os.path.abspath(os.fsdecode(path))
        self._saved_stamp = self.stamp()

    def cached(self, max_bytes: int) -> CachedStateMapper:
        """Returns a mapper that caches the most recently used rows of this mapper.

        Args:
            max_bytes: Maximum total size of the cached rows in bytes. 0: no row is cached.

        Returns:
            CachedStateMapper: with ``.hits``, ``.misses``, ``.nbytes``. A batch generates only the
                missing rows, unless they differ from the cached rows in dtype or shape.

        Raises:
            TypeError: If `max_bytes` is not an int.
            ValueError: If `max_bytes` is negative.

        Example:
            >>> mapper = HierarchicalStateMapper({"a": [1.0, 2.0], "b": [3.0, 4.0]})
            >>> cached = mapper.cached(max_bytes=1 << 20)
            >>> _ = cached(["a", "b", "a"])
            >>> cached.misses
            2
        """
        from tenfold.mappers._cached import CachedStateMapper

        return CachedStateMapper(self, max_bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._path is not None and self._saved_stamp == self.stamp():
            return _pickle.opened_mapper, (type(self), self._path)
        return self._by_value()

    def _by_value(self) -> tuple[Any, ...]:
        """Pickles the content. Used without a path, or if rows changed since the save or load."""
        return _pickle.mapper_of_tree, (tree_of(self),)

    def __repr__(self) -> str:
        parts = [f"{name}={value!r}" for name, value in self.config().items()]
        if self._path is not None:
            parts.append(repr(self._path))
        return f"{type(self).__name__}({', '.join(parts)})"


def integers(states: Any) -> list[int] | None:
    """A 1-d tensor or array of integers (not of bools) as a list; None for anything else."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(states, torch.Tensor):
        whole = not (
            states.is_floating_point() or states.is_complex() or states.dtype == torch.bool
        )
    elif numpy is not None and isinstance(states, numpy.ndarray):
        whole = states.dtype.kind in "iu"
    else:
        return None
    return states.tolist() if whole and states.ndim == 1 else None


def shown(state: Any) -> str:
    """Formats a state for messages, in at most 80 characters."""
    text = repr(state)
    return text if len(text) <= 80 else f"{text[:60]}...{text[-16:]}"


# --- representation in files ---

VERSION = 1
HEAD = "state_mapper"
_HIERARCHY = "tenfold.HierarchicalStateMapper"


def tree_of(mapper: StateMapper) -> dict[str, Any]:
    """The tree that `StateMapper.save` saves."""
    mapper = mapper.saved_as()
    name = name_of(type(mapper))
    if name is None:
        raise UnsupportedError(
            f"{type(mapper).__name__}: its class has no registered name: expected one; to "
            'register a name, use @tenfold.register_mapper("...")'
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
            f'config: key "{".".join(path)}": expected JSON, found a tensor; return it from '
            "tensors() instead"
        )
    if isinstance(value, (dict, list, tuple)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, child in items:
            _refuse_tensors(child, (*path, str(key)))


def load_mapper(path: str, wanted: type, verify: bool) -> StateMapper:
    """See `StateMapper.load`."""
    from tenfold._io import files

    def read() -> StateMapper:
        hierarchy = _core.Hierarchy.of_json(path)
        if hierarchy is not None:
            mapper: StateMapper = registered(_HIERARCHY, path)._of(hierarchy, [])
            return mapper
        if verify and (problems := files.verify(path, progress=False).problems):
            first = problems[0]
            raise CorruptFileError(f"{first.path}: {first.part}: {first.what}")
        return mapper_of(files.open(path), path)

    mapper = read_unreplaced(path, read)
    if not isinstance(mapper, wanted):
        raise ValueError(
            f"{path}: a mapper of another class: expected a {wanted.__name__}, found a "
            f"{type(mapper).__name__}; tenfold.StateMapper.load accepts any"
        )
    mapper._remember(path)
    return mapper


def mapper_of(tree: Any, where: str) -> StateMapper:
    """Checks a saved tree, such as an opened file, and creates its mapper."""
    _core.check_mapper(_core.tree(tree, where), where)
    return restored(tree, where)


def restored(tree: Any, where: str) -> StateMapper:
    """Creates a mapper from a tree as returned by `tree_of`."""
    name, config = tree[HEAD]["class"], tree[HEAD]["config"]
    cls = registered(name, where)
    if not (isinstance(cls, type) and issubclass(cls, StateMapper)):
        raise UnsupportedError(
            f'{where}: class: expected the name of a StateMapper, found "{name}", which is '
            "registered as a factory"
        )
    tensors = _rows.entry(tree, "tensors")
    tensors = {} if tensors is None else tensors
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
