"""Values that are looked up by paths through nested levels, each with an optional default."""

from __future__ import annotations

import contextlib
import json
import os

from tenfold import _core
from tenfold._errors import KeyNotFoundError, UnsupportedError
from tenfold._interop import arrays
from tenfold._public import set_module
from tenfold.mappers import _rows
from tenfold.mappers._mapper import (
    StateMapper,
    mapper_of,
    register_mapper,
    register_reader,
    shown,
    tree_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence
    from pathlib import Path
    from typing import Any

    from tenfold._io.files import PathLike

# Used instead of a table's number, as in the engine (src/mapper/state_paths.hpp).
NONE = -1  # neither a value nor a default
TEXT = -2  # JSON that is not in a table: the row is its index among such values
MAPPER = -3  # another mapper: the row is the index of the mapper


@set_module("tenfold")
@register_mapper("tenfold.HierarchicalStateMapper")
class HierarchicalStateMapper(StateMapper):
    """Looks states up in nested levels of numbers, tensors, JSON values and other mappers.

    >>> mapper = tenfold.HierarchicalStateMapper(
    ...     {"default": 0.0, "level1": {"a": 1.0, "b": 2.0}, "level2": {"default": -1.0}}
    ... )
    >>> paths = ["level1/a", ("level1", "b"), "level2/x/y", "level1/z"]
    >>> [mapper(path).item() for path in paths]
    [1.0, 2.0, -1.0, 0.0]
    >>> mapper(["level1/a", "level1/b"])
    tensor([1., 2.], dtype=torch.float64)
    >>> mapper.save("mapper.json")        # one file, readable and editable
    >>> mapper.save("mapper")             # a folder: opening time does not depend on its size

    A state is a path: a str of components with "/" between them, an int, or a tuple of components.
    An int component is the same as the str of its digits. A list is a batch. For a value of shape
    ``S``, one state returns shape ``S`` and a list ``[n, *S]``. Python numbers, and lists of them
    (nested ones with equal lengths), become int64, float64 or bool. A batch of several dtypes has
    the promoted dtype, as in `torch.cat`. Other JSON values (str, None, other lists, ints beyond
    int64) are returned as Python values, tuples as lists. A batch with any of them is a list.

    For a state without a value, the default of the deepest level on its path that has a default is
    returned. If a value is a mapper, it gets the rest of the path, unconverted: one component as it
    is, several as a tuple. For ``("arm", (0.5, 1.0))``, the mapper at "arm" gets ``(0.5, 1.0)``. It
    is one state, also if it is a list or a tensor.

    Args:
        hierarchy: Nested dicts. Later changes of the dicts have no effect; tensors may share memory
            with the mapper.
        default_key: The key of a level's default.

    Raises:
        ValueError: For a key (or `default_key`) that is empty or contains "/", keys such as 1 and
            "1" in one level, a default that is a level, and more than 512 levels.
        TypeError: If `hierarchy` is not a dict, or a key is neither a str nor an int.
        UnsupportedError: For a value that is neither JSON nor a dense tensor nor a mapper.
    """

    def __init__(self, hierarchy: dict[Any, Any], default_key: str = "default") -> None:
        native, mappers = _core.Hierarchy.of_dict(hierarchy, default_key, StateMapper, _simple)
        self._fill(native, native.tables(), mappers)

    def _fill(self, native: _core.Hierarchy, tables: list[Any], mappers: list[Any]) -> None:
        self._native = native
        self._tables = tables
        self._mappers: list[StateMapper] = mappers

    @classmethod
    def _of(
        cls, native: _core.Hierarchy, tables: list[Any], mappers: list[Any]
    ) -> HierarchicalStateMapper:
        mapper = object.__new__(cls)
        mapper._fill(native, tables, mappers)
        return mapper

    @property
    def hierarchy(self) -> dict[str, Any]:
        """The nested dicts with str keys, rebuilt on each access; tensors are copies."""
        return self._native.nested(self._mappers)

    @property
    def default_key(self) -> str:
        """The key of a level's default."""
        return self._native.default_key

    # --- looking up ---

    def __call__(self, states: Any) -> Any:
        """Returns the value of a path, or the values of a list of paths.

        Raises:
            KeyError: If a path has no value and no default (the message names the path and the
                nearest level), ends at a mapper, or has a rest that the mapper does not know.
            ValueError: If the values of a batch are all tensors and differ in shape (the message
                names two states), or a path has no component, an empty one, or in a tuple one that
                contains "/".
            UnsupportedError: If torch cannot promote the dtypes of a batch to a common one.
            TypeError: For a state that is not a path.
        """
        if isinstance(states, list):
            return self.generate(states)
        return self._value(states, *self._native.find_one(states))

    def generate(self, states: list[Any]) -> Any:
        if not states:
            return self._nothing()
        one, tables, rows = self._native.find(states)
        if one is not None:
            return _rows.take(self._tables[one], rows)
        groups: dict[int, list[int]] = {}
        for position, table in enumerate(tables):
            groups.setdefault(table, []).append(position)
        if NONE in groups:
            raise self._unknown(states[groups[NONE][0]])
        if TEXT in groups:
            return [
                self._value(state, table, row)
                for state, table, row in zip(states, tables, rows, strict=True)
            ]
        return self._joined(states, rows, groups)

    def _nothing(self) -> Any:
        """The result for ``[]``: 0 rows of the table if it has all values, else float64 ``[0]``."""
        if len(self._tables) == 1 and not self._native.num_texts and not self._mappers:
            return self._tables[0][:0]
        return _rows.made([], float)

    def _value(self, state: Any, table: int, row: int) -> Any:
        if table == NONE:
            raise self._unknown(state)
        if table == MAPPER:
            # The mapper would take a list, or a tensor of integers, for a batch of states.
            return self._query(row, [self._rest(state, row)])[0]
        if table == TEXT:
            return self._native.value(table, row)
        return _rows.take(self._tables[table], [row])[0]

    def _query(self, number: int, rests: list[Any]) -> Any:
        """The values that a mapper inside the hierarchy returns for `rests`."""
        with self._below(number):
            return self._mappers[number](rests)

    @contextlib.contextmanager
    def _below(self, number: int) -> Iterator[None]:
        """Adds the path of a mapper to the error for an unknown state."""
        try:
            yield
        except KeyNotFoundError as error:
            raise KeyNotFoundError(
                f'{self._where()}: below "{self._native.mapper_paths[number]}": {error.args[0]}'
            ) from None

    def _joined(self, states: list[Any], rows: Sequence[int], groups: dict[int, list[int]]) -> Any:
        """The rows of several tables and mappers as one tensor."""
        parts: list[tuple[list[int], Any]] = []
        for table, positions in groups.items():
            if table != MAPPER:
                taken = _rows.take(self._tables[table], [rows[place] for place in positions])
                parts.append((positions, taken))
                continue
            asked: dict[int, list[int]] = {}
            for position in positions:
                asked.setdefault(rows[position], []).append(position)
            for number, places in asked.items():
                rests = [self._rest(states[place], number) for place in places]
                parts.append((places, self._query(number, rests)))
        if len(parts) == 1:
            return parts[0][1]
        if not all(arrays.is_array(part) for _, part in parts):
            values = [None] * len(states)
            for places, part in parts:
                for place, value in zip(places, part, strict=True):
                    values[place] = value
            return values
        first_places, first = parts[0]
        for places, part in parts:
            if part.shape[1:] != first.shape[1:]:
                raise ValueError(
                    f"states {shown(states[first_places[0]])} and {shown(states[places[0]])}: "
                    "their values differ in shape: expected "
                    f"{list(first.shape[1:])}, found {list(part.shape[1:])}"
                )
        return _rows.joined(parts, len(states))

    def _rest(self, state: Any, number: int) -> Any:
        """The part of a path below a mapper, or below the level whose default is the mapper."""
        parts = _parts(state)
        above = self._native.mapper_paths[number].split("/")
        if [str(part) for part in parts[: len(above)]] != above:
            above = above[:-1]
        rest = parts[len(above) :]
        if not rest:
            raise KeyNotFoundError(
                f"{self._where()}: state {shown(state)}: it ends at a mapper and has no state for "
                f"it: expected a longer path, found one of {len(parts)} components"
            )
        return rest[0] if len(rest) == 1 else rest

    def _unknown(self, state: Any) -> KeyError:
        level = self._native.nearest_level(state)
        return KeyNotFoundError(
            f"{self._where()}: no state {shown(state)}: expected an existing path or a level "
            f'with a "{self.default_key}" above it, found neither; the nearest level that exists '
            + "is "
            + (f'"{level}"' if level else "the root")
        )

    def _where(self) -> str:
        return self._path or "hierarchy"

    def key(self, state: Any) -> Hashable:
        if type(state) is str:
            return state
        # Components are compared as the mapper below compares them: 1 and "1" may be two states
        # there, and two tensors one state.
        table, row = self._native.find_one(state)
        if table == NONE:
            raise self._unknown(state)
        if table == MAPPER:
            with self._below(row):
                return table, row, self._mappers[row].key(self._rest(state, row))
        return table, row

    def stamp(self) -> Any:
        return tuple(mapper.stamp() for mapper in self._mappers)

    # --- saving ---

    def save(
        self,
        path: PathLike,
        *,
        format: str | None = None,
        durable: bool = True,
        overwrite: bool = True,
    ) -> Path:
        """Saves to one readable file (``.json``) or as a tree, such as a folder.

        A JSON file is the hierarchy itself, indented by 4, and is parsed completely when it is
        loaded; files of plain nested JSON from other programs load as well. A tree has an index of
        all paths: the time to open it does not depend on their number, and a lookup reads only a
        few pages.

        Args:
            path: Target path; ``.json`` selects a JSON file, other suffixes as for `tenfold.save`.
            format: As for `tenfold.save`. If it is given, a ``.json`` path is a tree, too.
            durable: fsync before returning.
            overwrite: If false, an existing `path` is an error.

        Returns:
            Path: `path`.

        Raises:
            UnsupportedError: If a JSON file cannot store a value: a mapper, a tensor of more than
                65,536 numbers, or a complex or float4 tensor. For a tree, as `StateMapper.save`.
            FileExistsError: If `path` exists and `overwrite` is false.

        Example:
            >>> mapper = HierarchicalStateMapper({"a": {"b": [1.0, 2.0]}})
            >>> mapper.save("mapper.json").name
            'mapper.json'
        """
        if format is None and os.fsdecode(path).endswith(".json"):
            from pathlib import Path

            self._native.save_json(path, durable, overwrite)
            self._remember(path)
            return Path(os.fsdecode(path))
        return super().save(path, format=format, durable=durable, overwrite=overwrite)

    def config(self) -> dict[str, Any]:
        return {
            "default_key": self.default_key,
            "tables": self._native.origins,
            "mappers": self._native.mapper_paths,
        }

    def tensors(self) -> dict[str, Any]:
        parts = self._native.parts()
        if not self._mappers:
            return parts
        return {**parts, "mappers": [tree_of(mapper) for mapper in self._mappers]}

    @classmethod
    def restore(cls, config: dict[str, Any], tensors: Any) -> HierarchicalStateMapper:
        tree = _core.tree({"config": config, "tensors": tensors}, "state mapper")
        native = _core.Hierarchy.open(tree)
        places = zip(_members(tensors, "mappers"), native.mapper_paths, strict=True)
        mappers = [mapper_of(mapper, f'"{path}"') for mapper, path in places]
        return cls._of(native, _members(tensors, "tables"), mappers)

    def _by_value(self) -> tuple[Any, ...]:
        return HierarchicalStateMapper, (self.hierarchy, self.default_key)

    def __repr__(self) -> str:
        where = f"{self._path!r}: " if self._path is not None else ""
        shapes = ", ".join(
            f"{str(values.dtype).removeprefix('torch.')} {list(values.shape)}"
            for values in self._tables[:4]
        )
        more = ", ..." if len(self._tables) > 4 else ""
        return f"HierarchicalStateMapper({where}{len(self._native):,} nodes: {shapes}{more})"


def _parts(state: Any) -> tuple[Any, ...]:
    """The components of a path, unconverted."""
    if isinstance(state, str):
        return tuple(state.split("/"))
    return state if isinstance(state, tuple) else (state,)


def _members(tensors: Any, key: str) -> list[Any]:
    """The entries of a list in a tree; [] if the tree has no such list."""
    node = tensors[key] if key in tensors.keys() else []  # noqa: SIM118 - may be a TensorDict
    return node if isinstance(node, list) else [node[name] for name in node.keys()]  # noqa: SIM118


def _simple(path: str, value: Any) -> Any:
    """An array as a dense tensor in main memory, other values as JSON."""
    if arrays.is_array(value) or hasattr(value, "__dlpack__") or hasattr(value, "__array__"):
        return _dense(path, value)
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise UnsupportedError(
            f'hierarchy: "{path}": expected a number, a tensor, JSON or a StateMapper, found '
            f"{type(value).__name__} ({error})"
        ) from None


def _dense(path: str, value: Any) -> Any:
    torch = arrays.torch_or_none()
    if torch is None:
        return value
    if not isinstance(value, torch.Tensor):
        value = arrays.make_array(value)
    if value.is_meta:
        raise UnsupportedError(
            f'hierarchy: "{path}": expected a dense tensor, found one on the meta device, which'
            " has no elements"
        )
    if value.layout is not torch.strided or value.is_nested or value.is_quantized:
        raise UnsupportedError(
            f'hierarchy: "{path}": expected a dense tensor, neither nested nor quantized, found '
            f"{value.dtype} of layout {value.layout}; a SparseStateMapper holds sparse rows"
        )
    dense = value.detach().cpu().resolve_conj().resolve_neg()
    return dense if type(dense) is torch.Tensor else dense.as_subclass(torch.Tensor)


def _mapper_of_json(path: str) -> HierarchicalStateMapper | None:
    native = _core.Hierarchy.of_json(path)
    if native is None:
        return None
    return HierarchicalStateMapper._of(native, native.tables(), [])


register_reader(_mapper_of_json)
