"""The base of all state mappers: map states to rows, save, pickle."""

from __future__ import annotations

import os
import sys
from types import MethodType

from tenfold import _pickle
from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from pathlib import Path
    from typing import Any, ClassVar

    from tenfold._io.files import PathLike
    from tenfold.mappers._cached import CachedStateMapper


class _Load:
    """`StateMapper.load`: of a class it makes a mapper, of a mapper it replaces what that holds."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.__doc__ = function.__doc__
        self._function = function

    def __get__(self, instance: StateMapper | None, owner: type) -> Callable[..., Any]:
        return MethodType(self._function, owner if instance is None else instance)


def _load(target: Any, path: PathLike, *, verify: bool = False) -> Any:
    """Opens a mapper that was saved, in any format, lazily.

    ``StateMapper.load(path)`` gives a mapper of the class that was saved;
    ``SparseStateMapper.load(path)`` insists on that class; ``mapper.load(path)`` puts what was
    saved into `mapper`, which is of that class, and returns it.

    Args:
        target: The class or mapper that it is called on.
        path: The argument of `save`.
        verify: Compare checksums first.

    Raises:
        FileNotFoundError: If there is nothing at `path`.
        UnsupportedError: If it is no mapper, or the name of its class or factory is not registered;
            the message says which and what to do.
        ValueError: If it is a mapper of another class.
        CorruptFileError: If the parts of it contradict each other.
    """
    from tenfold.mappers._saved import load_mapper

    wanted = target if isinstance(target, type) else type(target)
    loaded = load_mapper(os.fsdecode(path), wanted, verify)
    if isinstance(target, type):
        return loaded
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
    imports nothing. A mapper that was saved or loaded pickles as its path.
    """

    # The path of the last save or load, whose content equals this mapper.
    _path: str | None = None
    _saved_stamp: Any = None
    load: ClassVar[Any] = _Load(_load)

    # --- to be overridden ---

    def generate(self, states: list[Any]) -> Any:
        """The rows of `states`, in their order: ``[len(states), dim]``."""
        raise NotImplementedError(f"{type(self).__name__}.generate")

    def config(self) -> dict[str, Any]:
        """The constructor arguments other than tensors: JSON."""
        return {}

    def tensors(self) -> dict[str, Any]:
        """The tensors of the mapper: any tree that `tenfold.save` supports."""
        return {}

    @classmethod
    def restore(cls, config: dict[str, Any], tensors: dict[str, Any]) -> StateMapper:
        """Creates a mapper from `config` and `tensors`; by default they are its arguments."""
        return cls(**config, **tensors)

    def key(self, state: Any) -> Hashable:
        """The cache key of a state; by default the state itself."""
        try:
            hash(state)
        except TypeError:
            raise TypeError(
                f"state {shown(state)}: states are looked up by their hash: expected an int, a str "
                f"or a tuple of them, found {type(state).__name__}; a batch is a list of states"
            ) from None
        return state  # type: ignore[no-any-return]

    def stamp(self) -> Any:
        """A value that changes whenever the rows of this mapper change."""
        return None

    def saved_as(self) -> StateMapper:
        """The mapper that is saved instead of this one."""
        return self

    # --- common methods ---

    def __call__(self, states: Any) -> Any:
        """The row of a state, ``[dim]``, or the rows of a list of them, ``[n, dim]``.

        A tensor or array of integers ``[n]`` is a list of n states as well.

        Raises:
            KeyError: For a state that is not known, naming it.
            TypeError: For what cannot be a state.
        """
        batch = self._batch(states)
        return self.generate([states])[0] if batch is None else self.generate(batch)

    def _batch(self, states: Any) -> list[Any] | None:
        """`states` as a list; None if they are one state."""
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
        """Saves the name of its class, `config` and `tensors`, as `tenfold.save` saves a tree.

        Args:
            path: Target path; its suffix selects the format, without one it is a folder. An
                existing file or folder is replaced atomically.
            format: As for `tenfold.save`.
            durable: As for `tenfold.save`.
            overwrite: As for `tenfold.save`.

        Returns:
            Path: `path`.

        Raises:
            UnsupportedError: If its class has no name (`register_mapper`), or `config` is not JSON.
                Nothing has been written.
        """
        from tenfold._io.files import save
        from tenfold.mappers._saved import tree_of

        saved = save(tree_of(self), path, format=format, durable=durable, overwrite=overwrite)
        self._remember(path)
        return saved

    def _remember(self, path: PathLike) -> None:
        self._path = os.path.abspath(os.fsdecode(path))
        self._saved_stamp = self.stamp()

    def cached(self, max_bytes: int) -> CachedStateMapper:
        """Returns this mapper behind a cache of the most recently used rows.

        Args:
            max_bytes: Greatest total size of the cached rows. 0 keeps none.

        Returns:
            CachedStateMapper: with ``.hits``, ``.misses``, ``.nbytes``. A batch generates only the
            rows that are missing.
        """
        from tenfold.mappers._cached import CachedStateMapper

        return CachedStateMapper(self, max_bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._path is not None and self._saved_stamp == self.stamp():
            return _pickle.opened_mapper, (type(self), self._path)
        return self._by_value()

    def _by_value(self) -> tuple[Any, ...]:
        """Pickles the content of a mapper that differs from the file at its path."""
        from tenfold.mappers._saved import tree_of

        return _pickle.mapper_of_tree, (tree_of(self),)

    def __repr__(self) -> str:
        parts = [f"{name}={value!r}" for name, value in self.config().items()]
        if self._path is not None:
            parts.append(repr(self._path))
        return f"{type(self).__name__}({', '.join(parts)})"


def integers(states: Any) -> list[int] | None:
    """The numbers of a tensor or array of integers of one dimension; None for anything else."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(states, torch.Tensor):
        whole = not (states.is_floating_point() or states.is_complex())
    elif numpy is not None and isinstance(states, numpy.ndarray):
        whole = states.dtype.kind in "iu"
    else:
        return None
    return states.tolist() if whole and states.ndim == 1 else None


def shown(state: Any) -> str:
    """A state as messages show it: not longer than a line."""
    text = repr(state)
    return text if len(text) <= 80 else f"{text[:60]}...{text[-16:]}"
