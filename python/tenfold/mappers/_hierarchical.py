"""Values found by paths through levels, which pass their defaults on to the levels below."""

from __future__ import annotations

import os

from tenfold._errors import CorruptFileError, KeyNotFoundError
from tenfold._public import set_module
from tenfold.mappers import _rows
from tenfold.mappers._hierarchy import (
    MAPPER,
    NONE,
    TEXT,
    flattened,
    known_of,
    nested,
    parts_of,
    text_of,
    value_at,
)
from tenfold.mappers._hierarchy_json import is_json, read_json, write_json
from tenfold.mappers._hierarchy_tree import hierarchy_of, tensors_of
from tenfold.mappers._mapper import StateMapper, register_mapper, register_reader, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence
    from pathlib import Path
    from typing import Any

    from tenfold._io.files import PathLike
    from tenfold.mappers._hierarchy import Hierarchy


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

    A state is a path: a str with "/" or a tuple of components; integers are their digits. A list is
    a batch. A value of shape ``S`` gives ``S`` for one state and ``[n, *S]`` for a list; Python
    numbers and lists of them give int64, float64 or bool. A batch of several dtypes has the
    promoted dtype, as in `torch.cat`. Other JSON values (str, None, mixed lists) are returned
    unchanged, and a batch with any of them is a list.

    A state without a value has the default of the deepest level on its path that has one. A value
    that is a mapper gets the rest of the path: for ``("arm", (0.5, 1.0))``, the mapper at "arm"
        gets ``(0.5, 1.0)``.

    Args:
        hierarchy: Nested dicts, which are copied.
        default_key: The key of a level's default.

    Raises:
        ValueError: For a key that is empty or contains "/", a default that is a level, and more
            than 512 levels.
        UnsupportedError: For a value that is neither JSON nor a tensor nor a mapper.
    """

    def __init__(self, hierarchy: dict[Any, Any], default_key: str = "default") -> None:
        self._flat = flattened(hierarchy, default_key)

    @classmethod
    def _of(cls, flat: Hierarchy) -> HierarchicalStateMapper:
        mapper = object.__new__(cls)
        mapper._flat = flat
        return mapper

    @property
    def hierarchy(self) -> dict[str, Any]:
        """The nested dicts, rebuilt from all values."""
        return nested(self._flat)

    @property
    def default_key(self) -> str:
        """The key of a level's default."""
        return self._flat.default_key

    # --- looking up ---

    def __call__(self, states: Any) -> Any:
        """The value of a path, or the values of a list of paths.

        Raises:
            KeyError: If a path has no value and no default, naming it and the nearest level.
            ValueError: If values of a batch differ in shape, naming two states; for a path with an
                empty component.
            TypeError: For what is not a path.
        """
        if isinstance(states, list):
            return self.generate(states)
        tables, rows, _ = self._find([states])
        return self._value(states, int(tables[0]), int(rows[0]))

    def generate(self, states: list[Any]) -> Any:
        if not states:
            return self._nothing()
        tables, rows, one = self._find(states)
        if one is not None and one >= 0:
            return self._take(one, rows)
        tables, rows = _rows.numbers(tables), _rows.numbers(rows)
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
        """The result for no states: zero rows of the common shape, if there is one."""
        tables = self._flat.tables
        if len(tables) == 1 and not self._flat.texts and not self._flat.mappers:
            return tables[0].values[:0]
        return _rows.made([], float)

    def _find(self, states: list[Any]) -> tuple[Any, Any, int | None]:
        texts = [text_of(state) for state in states]
        if None not in texts:
            return self._flat.paths.find(texts)  # type: ignore[arg-type]
        known = {
            position: known_of(states[position])
            for position, text in enumerate(texts)
            if text is None
        }
        for position, (text, _) in known.items():
            texts[position] = text
        goes_on = [position for position, (_, others_follow) in known.items() if others_follow]
        for position in goes_on:
            texts[position] = "_"  # looked up below
        tables, rows, one = self._flat.paths.find(texts)  # type: ignore[arg-type]
        if not goes_on:
            return tables, rows, one
        tables, rows = _rows.numbers(tables), _rows.numbers(rows)
        for position in goes_on:
            tables[position], rows[position] = self._flat.paths.find_below(known[position][0])
        return tables, rows, None

    def _take(self, table: int, rows: Any) -> Any:
        try:
            return _rows.take(self._flat.tables[table].values, rows)
        except IndexError as error:
            raise CorruptFileError(
                f"{self._where()}: paths: expected rows of {len(self._flat.tables)} tables, found "
                f"others in table {table}: {error}"
            ) from None

    def _value(self, state: Any, table: int, row: int) -> Any:
        if table == NONE:
            raise self._unknown(state)
        if table == MAPPER:
            return self._query(row, self._rest(state, row))
        if table == TEXT:
            return value_at(self._flat, table, row)
        return self._take(table, [row])[0]

    def _mapper(self, number: int) -> StateMapper:
        if not 0 <= number < len(self._flat.mappers):
            raise CorruptFileError(
                f"{self._where()}: paths: expected one of {len(self._flat.mappers)} mappers, found "
                f"number {number}"
            )
        return self._flat.mappers[number]

    def _query(self, number: int, rest: Any) -> Any:
        """The values of a mapper inside the hierarchy."""
        mapper = self._mapper(number)
        try:
            return mapper(rest)
        except KeyNotFoundError as error:
            raise KeyNotFoundError(
                f'{self._where()}: below "{self._flat.mapper_paths[number]}": {error.args[0]}'
            ) from None

    def _joined(self, states: list[Any], rows: Sequence[int], groups: dict[int, list[int]]) -> Any:
        """The rows of several tables and mappers as one tensor."""
        parts: list[tuple[list[int], Any]] = []
        for table, positions in groups.items():
            if table != MAPPER:
                parts.append((positions, self._take(table, [rows[place] for place in positions])))
                continue
            asked: dict[int, list[int]] = {}
            for position in positions:
                asked.setdefault(rows[position], []).append(position)
            for number, places in asked.items():
                rest = [self._rest(states[place], number) for place in places]
                parts.append((places, self._query(number, rest)))
        if len(parts) == 1:
            return parts[0][1]
        if not all(_rows.is_tensor(part) for _, part in parts):
            values = [None] * len(states)
            for places, part in parts:
                for place, value in zip(places, part, strict=True):
                    values[place] = value
            return values
        first_places, first = parts[0]
        for places, part in parts:
            if part.shape[1:] != first.shape[1:]:
                raise ValueError(
                    f"states {shown(states[first_places[0]])} and {shown(states[places[0]])}: the "
                    "values of a batch have one shape: expected "
                    f"{list(first.shape[1:])}, found {list(part.shape[1:])}"
                )
        return _rows.joined(parts, len(states))

    def _rest(self, state: Any, number: int) -> Any:
        """The part of a path below a mapper, or below the level that has it as its default."""
        self._mapper(number)  # which must exist
        parts = parts_of(state)
        above = self._flat.mapper_paths[number].split("/")
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
        known, _ = known_of(state)
        level = self._flat.paths.nearest_level(known)
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
        parts = parts_of(state)
        return tuple(str(part) if isinstance(part, int) else part for part in parts)

    def stamp(self) -> Any:
        return tuple(mapper.stamp() for mapper in self._flat.mappers)

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

        A JSON file is the hierarchy itself, indented by 4, and is parsed whole when it is loaded; a
        file of plain nested JSON from elsewhere loads as well. A tree has an index of all paths:
        opening takes constant time, and a lookup reads only its result.

        Args:
            path: Destination; ``.json`` selects a JSON file, no suffix a folder.
            format: As for `StateMapper.save`.
            durable: As for `StateMapper.save`.
            overwrite: As for `StateMapper.save`.

        Raises:
            UnsupportedError: If a JSON file cannot hold a value: a mapper, a tensor of more than
                65,536 numbers or of complex ones.
        """
        if format is None and os.fsdecode(path).endswith(".json"):
            saved = write_json(self._flat, path, durable=durable, overwrite=overwrite)
            self._remember(path)
            return saved
        return super().save(path, format=format, durable=durable, overwrite=overwrite)

    def config(self) -> dict[str, Any]:
        return {
            "default_key": self.default_key,
            "tables": [table.origin for table in self._flat.tables],
            "mappers": self._flat.mapper_paths,
        }

    def tensors(self) -> dict[str, Any]:
        return tensors_of(self._flat)

    @classmethod
    def restore(cls, config: dict[str, Any], tensors: Any) -> HierarchicalStateMapper:
        return cls._of(hierarchy_of(config, tensors))

    def _by_value(self) -> tuple[Any, ...]:
        return HierarchicalStateMapper, (self.hierarchy, self.default_key)

    def __repr__(self) -> str:
        where = f"{self._path!r}: " if self._path is not None else ""
        flat = self._flat
        shapes = ", ".join(
            f"{str(values.dtype).removeprefix('torch.')} {list(values.shape)}"
            for _, values in flat.tables[:4]
        )
        more = ", ..." if len(flat.tables) > 4 else ""
        return f"HierarchicalStateMapper({where}{len(flat.paths):,} nodes: {shapes}{more})"


def _mapper_of_json(path: str) -> HierarchicalStateMapper:
    members, default_key = read_json(path)
    try:
        return HierarchicalStateMapper(members, default_key)
    except (TypeError, ValueError) as error:
        raise CorruptFileError(f"{path}: {error}") from error


register_reader(is_json, _mapper_of_json)
