"""Maps states to rows of a sparse matrix, which are converted to dense rows on access."""

from __future__ import annotations

import os
from collections.abc import Iterable

from tenfold import _core
from tenfold._errors import CorruptFileError, KeyNotFoundError
from tenfold._interop import arrays
from tenfold._public import set_module
from tenfold.mapped_dict import MappedDict
from tenfold.mappers import _rows
from tenfold.mappers._mapper import StateMapper, integers, register_mapper, shown
from tenfold.mappers._state_keys import StatesInMemory, StatesOnDisk, plain
from tenfold.sparse import SparseMatrix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable
    from typing import Any

    from tenfold.mappers._state_keys import Keys


@set_module("tenfold")
@register_mapper("tenfold.SparseStateMapper")
class SparseStateMapper(StateMapper):
    """Maps states to rows of a sparse matrix; only requested rows are converted to dense ones.

    >>> matrix = tenfold.SparseMatrix.build(rows, "features", num_cols=1000)   # on disk
    >>> mapper = tenfold.SparseStateMapper([(0, 0), (0, 1), (3, 4)], matrix, default=0.0)
    >>> mapper((3, 4)).shape, mapper([(3, 4), (0, 1), (9, 9)]).shape
    (torch.Size([1000]), torch.Size([3, 1000]))
    >>> mapper.save("mapper")
    >>> mapper = tenfold.StateMapper.load("mapper")        # mapped: no row is read
    >>> mapper([(3, 4)]).shape
    torch.Size([1, 1000])

    States are ints, floats, strings, None and tuples of these, and compare as in Python:
    ``(True, 2.0)`` equals ``(1, 2)``. In a saved mapper, a float of magnitude 2^63 or more equals
    no int. Only the keys of a `MappedDict` may be bytes.

    Args:
        keys: A list of states, or a tensor of integers ``[n]``, in the order of the matrix rows; a
            dict from states to row numbers; or a `MappedDict` without superseded rows, whose keys
            are the states, in the order of the matrix rows.
        matrix: A `SparseMatrix`, its path, or a sparse matrix of scipy or torch. Reading rows is
            fast in layout csr.
        default: The row of unknown states, ``[dim]``, or a number that fills it; None: unknown
            states raise a KeyError.

    Raises:
        ValueError: For a duplicate state, NaN, a row number that is not an int or that the matrix
            does not have (in a list: more states than rows), and a default of another shape or
            outside the range of the dtype.
        TypeError: For objects that cannot be states, and a default that is not numeric.
        UnsupportedError: For a `MappedDict` with superseded rows.
    """

    def __init__(self, keys: Any, matrix: Any, default: Any = None) -> None:
        self.matrix: SparseMatrix = _matrix_of(matrix)
        self._keys: Keys = _keys_of(keys)
        self._check_rows()
        self._default = None if default is None else self._row_of(default)

    def _check_rows(self) -> None:
        num_rows = self.matrix.shape[0]
        if isinstance(self._keys, StatesInMemory):
            for state, row in self._keys.items().items():
                if type(row) is not int or not 0 <= row < num_rows:
                    raise ValueError(
                        f"keys: state {shown(state)}: expected a row of the matrix, in [0, "
                        f"{num_rows}), found {row!r}"
                    )
        elif len(self._keys) > num_rows:
            raise ValueError(
                f"keys: expected at most {num_rows:,} states, one for each row of the matrix, "
                f"found {len(self._keys):,}"
            )

    def _row_of(self, default: Any) -> Any:
        """The default as a row of the matrix's dtype."""
        shape = (self.matrix.shape[1],)
        row = _rows.row_like(default, shape, self.matrix.dtype)
        if tuple(row.shape) != shape:
            raise ValueError(
                f"default: expected a number or a row of shape {list(shape)}, found "
                f"{list(row.shape)}"
            )
        return row

    def __len__(self) -> int:
        """The number of states."""
        return len(self._keys)

    def __contains__(self, state: Any) -> bool:
        return int(self._keys.rows([state])[0]) >= 0

    def generate(self, states: list[Any]) -> Any:
        rows = self._keys.rows(states)
        unknown = _rows.negative(rows)
        if not unknown:
            return self._dense(rows)
        if self._default is None:
            raise KeyNotFoundError(
                f"{self._path or 'state mapper'}: no state {shown(states[unknown[0]])}: expected "
                f"one of {len(self):,} states, or a default row, found neither"
            )
        missing = set(unknown)
        known = [position for position in range(len(states)) if position not in missing]
        some = self._dense([int(rows[position]) for position in known])
        made = _rows.empty(len(states), some)
        _rows.put(made, known, some)
        made[unknown] = self._default
        return made

    def _dense(self, rows: Any) -> Any:
        try:
            return self.matrix.rows(rows, layout="dense")
        except IndexError as error:
            # The row numbers come from a file: the constructor checks those that a program passes.
            raise CorruptFileError(
                f"{self._path or 'state mapper'}: rows: expected row numbers below "
                f"{self.matrix.shape[0]:,}, found others: {error}"
            ) from None

    def key(self, state: Any) -> Hashable:
        try:
            hash(state)
        except TypeError:
            plain(state)
            raise
        return state  # type: ignore[no-any-return]

    # --- saving ---

    def config(self) -> dict[str, Any]:
        kind, _ = self._parts()
        return {"keys": kind}

    def tensors(self) -> dict[str, Any]:
        _, parts = self._parts()
        made = {**parts, "matrix": _core.sparse_item(self.matrix._native)}
        return made if self._default is None else {**made, "default": self._default}

    def _parts(self) -> tuple[str, dict[str, Any]]:
        return self._keys.parts()

    @classmethod
    def restore(cls, config: dict[str, Any], tensors: Any) -> SparseStateMapper:
        kind = config.get("keys")
        if not isinstance(kind, str):
            raise CorruptFileError(f"state mapper: config: keys: expected a str, found {kind!r}")
        for part in ("keys", "matrix"):
            # A TensorDict is not a dict.
            if part not in tensors.keys() or not hasattr(tensors[part], "keys"):  # noqa: SIM118
                raise CorruptFileError(f"state mapper: {part}: expected a tree, found none")
        tree = _core.tree(tensors, "state mapper")
        made: SparseStateMapper = object.__new__(cls)
        try:
            made.matrix = SparseMatrix._of_native(_core.sparse_of(tree, "matrix"))
        except (KeyError, ValueError) as error:
            raise CorruptFileError(f"state mapper: matrix: {error}") from error
        native = _core.StateKeys(tree, "keys", kind)
        made._keys = _on_disk(tree, native, kind, _rows.entry(tensors, "rows"))
        made._default = _rows.entry(tensors, "default")
        made._check_parts()
        return made

    def _check_parts(self) -> None:
        default = self._default
        if default is not None and (
            not arrays.is_array(default)
            or tuple(default.shape) != (self.matrix.shape[1],)
            or arrays.dtype_name(default.dtype) != arrays.dtype_name(self.matrix.dtype)
        ):
            raise CorruptFileError(
                f"state mapper: default: expected a row [{self.matrix.shape[1]}] of "
                f"{arrays.dtype_name(self.matrix.dtype)}, found another entry"
            )

    def _by_value(self) -> tuple[Any, ...]:
        keys = self._keys
        states = keys.items() if isinstance(keys, StatesInMemory) else None
        if states is None:
            from tenfold._errors import UnsupportedError

            raise UnsupportedError(
                "state mapper: it has no path and its states are on disk, so it cannot be pickled: "
                "expected one that was saved or loaded, found neither; save it first"
            )
        return SparseStateMapper, (states, self.matrix, self._default)

    def __repr__(self) -> str:
        where = f"{self._path!r}, " if self._path is not None else ""
        default = "" if self._default is None else ", with a default"
        return f"SparseStateMapper({where}{len(self):,} states{default}, {self.matrix!r})"


def _matrix_of(matrix: Any) -> SparseMatrix:
    if isinstance(matrix, SparseMatrix):
        return matrix
    if isinstance(matrix, (str, os.PathLike)):
        return SparseMatrix(matrix)
    torch = arrays.imported_torch()
    if torch is not None and isinstance(matrix, torch.Tensor):
        return SparseMatrix.from_torch(matrix)
    return SparseMatrix.from_scipy(matrix)


def _keys_of(keys: Any) -> Keys:
    if isinstance(keys, MappedDict):
        item, type_name = _core.StateKeys.of_dict(keys._path)
        kind = {"str": "str", "int": "int", "bytes": "bytes"}[type_name]
        tree = _core.tree({"keys": item}, "keys")
        return _on_disk(tree, _core.StateKeys(tree, "keys", kind), kind, None)
    if isinstance(keys, dict):
        return StatesInMemory.of_dict(keys)
    if arrays.is_array(keys):
        numbers = integers(keys)
        if numbers is None:
            raise TypeError(
                f"keys: expected a list of states, a tensor of integers [n], a dict or a "
                f"MappedDict, found a tensor {list(keys.shape)} of "
                f"{arrays.dtype_name(keys.dtype)}; [tuple(state) for state in keys.tolist()] makes "
                f"a list of states of a 2-d tensor"
            )
        keys = numbers
    if isinstance(keys, (str, bytes)) or not isinstance(keys, Iterable):
        raise TypeError(
            f"keys: expected a list of states, a dict or a MappedDict, found {shown(keys)}"
        )
    return StatesInMemory.of_list(keys)


def _on_disk(tree: Any, native: Any, kind: str, numbers: Any) -> StatesOnDisk:
    parts = {"keys": tree.item("keys")}
    if numbers is None:
        return StatesOnDisk(native, kind, None, parts)
    if (
        not arrays.is_array(numbers)
        or tuple(numbers.shape) != (len(native),)
        or arrays.dtype_name(numbers.dtype) != "int64"
    ):
        raise CorruptFileError(
            f"state mapper: rows: expected int64 [{len(native)}], found another entry"
        )
    return StatesOnDisk(native, kind, numbers, {**parts, "rows": numbers})
