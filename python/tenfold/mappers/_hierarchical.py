"""Looks values up by their paths in nested levels. Each level may have a default value."""

from __future__ import annotations

import contextlib
import json
import os
import sys

from tenfold import _core
from tenfold._errors import KeyNotFoundError, UnsupportedError
from tenfold._interop import arrays
from tenfold._public import set_module
from tenfold.mappers import _rows
from tenfold.mappers._mapper import (
    StateMapper,
    mapper_of,
    register_mapper,
    shown,
    tree_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator
    from pathlib import Path
    from typing import Any

    from tenfold._io.files import PathLike

# Used instead of a table number if the value is in no table (src/mapper/state_paths.hpp).
TEXT = -2  # the value is JSON
MAPPER = -3  # the value is another mapper


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
    An int component is equal to the str of its digits. A list is a batch. If values have shape
    ``S``, a state returns shape ``S``, and a list of n states returns ``[n, *S]``. Ints, floats and
    bools, and lists of them (not empty, nested with equal lengths, no bools among numbers), become
    tensors of int64, float64 or bool. A batch of several dtypes has the promoted dtype, as in
    `torch.cat`.
    Other JSON values (str, None, other lists, ints beyond int64) are returned as Python values,
    tuples as lists. A batch with such a value returns a list.

    For a state without a value, the default of the deepest level on its path that has a default is
    returned. If a value is a mapper, this inner mapper gets the rest of the path, unconverted: a
    single component as it is, several components as a tuple. For ``("arm", (0.5, 1.0))``, the
    mapper at "arm" gets ``(0.5, 1.0)``. The rest of the path is one state of the inner mapper, even
    if it is a list or a tensor.

    Args:
        hierarchy: Nested dicts. Later changes of the dicts have no effect. The mapper may share the
            memory of their tensors.
        default_key: The key of a level's default.

    Raises:
        ValueError: For a key (or `default_key`) that is empty or contains "/", keys such as 1 and
            "1" in one level, a default that is a level, and more than 512 levels.
        TypeError: If `hierarchy` is not a dict, or a key is neither a str nor an int.
        UnsupportedError: For a value that is neither JSON nor a dense tensor nor a mapper.
    """

    def __init__(self, hierarchy: dict[Any, Any], default_key: str = "default") -> None:
        native, mappers = _core.Hierarchy.of_dict(hierarchy, default_key, StateMapper, _simple)
        self._fill(native, mappers)

    def _fill(self, native: _core.Hierarchy, mappers: list[Any]) -> None:
        self._native = native
        self._tables = native.tables()
        self._mappers: list[StateMapper] = mappers

    @classmethod
    def _of(cls, native: _core.Hierarchy, mappers: list[Any]) -> HierarchicalStateMapper:
        mapper = object.__new__(cls)
        mapper._fill(native, mappers)
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
            KeyError: If a path has neither a value nor a default (the message names the path and
                the deepest level on it), if a path ends at a mapper, or if a mapper does not know
                the rest of a path.
            ValueError: If the values of a batch are all tensors and differ in shape (the message
                names two states), if a path has no components or an empty one, or if a component of
                a tuple contains "/".
            UnsupportedError: If torch cannot promote the dtypes of a batch to a common one.
            TypeError: For a state that is not a path.
        """
        if isinstance(states, list):
            return self.generate(states)
        return self._values(*self._native.find_one(states, self._path))[0]

    def generate(self, states: list[Any]) -> Any:
        groups = self._native.groups(list(states), self._path)
        parts = [(places, self._values(*group)) for places, *group in groups]
        if not parts:
            return self._native.no_rows()
        return parts[0][1] if len(parts) == 1 else self._joined(states, parts)

    def _values(self, table: int, mapper: int, found: Any) -> Any:
        """The values of states with the same `table`.

        Args:
            table: The number of a table, TEXT or MAPPER.
            mapper: For MAPPER: the number of the inner mapper.
            found: For each state: its row in the table, its JSON value, or the state that is
                passed to the inner mapper.
        """
        if table == MAPPER:
            with self._below(mapper):
                # `found` is a list even for one state. Otherwise, the mapper would treat a single
                # state that is a list or a tensor as a batch.
                return self._mappers[mapper](found)
        return found if table == TEXT else _rows.take(self._tables[table], found)

    @contextlib.contextmanager
    def _below(self, number: int) -> Iterator[None]:
        """Adds the path of an inner mapper to its error about an unknown state."""
        try:
            yield
        except KeyNotFoundError as error:
            where, path = self._path or "hierarchy", self._native.mapper_paths[number]
            raise KeyNotFoundError(f'{where}: below "{path}": {error.args[0]}') from None

    def _joined(self, states: list[Any], parts: list[tuple[list[int], Any]]) -> Any:
        """Combines `parts` (positions in `states`, values) to a tensor, or to a list for JSON."""
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

    def key(self, state: Any) -> Hashable:
        if type(state) is str:
            return state
        # If the value is a mapper, its `key` decides which states are equal: 1 and "1" may be two
        # states of that mapper, and two equal tensors one state.
        table, row, found = self._native.find_one(state, self._path)
        if table == MAPPER:
            with self._below(row):
                return table, row, self._mappers[row].key(found[0])
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

        A JSON file is the hierarchy itself, with levels indented by 4 spaces. If there are tensors,
        keys that begin with "%", or another default key than "default", it has a header, and a
        tensor is an object with dtype, shape and values. Loading parses the whole file; files of
        plain nested JSON from other programs load as well. A tree has an index of all paths: the
        time to open it does not depend on their number, and a lookup reads only a few pages.

        Args:
            path: Target path; ``.json`` selects a JSON file, other suffixes (also
                ``.safetensors.index.json``) as for `tenfold.save`.
            format: As for `tenfold.save`. If it is given, a tree is saved even at a ``.json`` path.
            durable: fsync before returning.
            overwrite: If false, an existing `path` is an error.

        Returns:
            Path: `path`.

        Raises:
            UnsupportedError: If a JSON file cannot store a value: a mapper, a tensor of more than
                65,536 numbers, or a complex or float4 tensor. For a tree, see `StateMapper.save`.
            FileExistsError: If `path` exists and `overwrite` is false.

        Example:
            >>> mapper = HierarchicalStateMapper({"a": {"b": [1.0, 2.0]}})
            >>> mapper.save("mapper.json").name
            'mapper.json'
        """
        name = os.fsdecode(path)
        is_json = name.endswith(".json") and not name.endswith(".safetensors.index.json")
        if format is None and is_json:
            from pathlib import Path

            self._native.save_json(path, durable, overwrite)
            self._remember(path)
            return Path(name)
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
        places = zip(_mapper_trees(tensors), native.mapper_paths, strict=True)
        mappers = [mapper_of(mapper, shown(path)) for mapper, path in places]
        return cls._of(native, mappers)

    def _by_value(self) -> tuple[Any, ...]:
        return HierarchicalStateMapper, (self.hierarchy, self.default_key)

    def __repr__(self) -> str:
        where = f"{self._path!r}: " if self._path is not None else ""
        shapes = ", ".join(
            f"{str(values.dtype).removeprefix('torch.')} {list(values.shape)}"
            for values in self._tables[:4]
        )
        more = ", ..." if len(self._tables) > 4 else ""
        shapes = f": {shapes}{more}" if shapes else ""
        return f"HierarchicalStateMapper({where}{len(self._native):,} nodes{shapes})"


def _mapper_trees(tensors: Any) -> list[Any]:
    node = _rows.entry(tensors, "mappers")
    if node is None or isinstance(node, list):
        return node or []
    return [node[name] for name in node.keys()]  # noqa: SIM118 - may be a TensorDict


def _simple(path: str, value: Any) -> Any:
    """Converts arrays to dense CPU tensors (without torch: numpy), other values to JSON."""
    is_array = arrays.is_array(value) or hasattr(value, "__dlpack__") or hasattr(value, "__array__")
    if is_array and not isinstance(value, str):  # numpy's strings have __array__
        return _dense(path, value)
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise UnsupportedError(
            f'hierarchy: "{path}": expected a number, a tensor, JSON or a StateMapper, found '
            f"{type(value).__name__} ({error})"
        ) from None


def _dense(path: str, value: Any) -> Any:
    numpy = sys.modules.get("numpy")
    is_numpy = numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))
    if is_numpy and arrays.dtype_name(value.dtype) not in arrays.DTYPES:
        raise UnsupportedError(
            f'hierarchy: "{path}": expected numbers or bools, found an array of dtype {value.dtype}'
        )
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
