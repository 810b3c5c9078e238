"""Maps states to rows of a sparse matrix, which are converted to dense rows on access."""

from __future__ import annotations

import contextlib
import itertools
import operator
import os
from collections.abc import Iterable

from tenfold import _core
from tenfold._errors import UnsupportedError
from tenfold._interop import arrays
from tenfold._interop.frameworks import decided, using
from tenfold._public import set_module
from tenfold.dataset._indexing import is_bool
from tenfold.mapped_dict import MappedDict
from tenfold.mappers import _rows
from tenfold.mappers._mapper import StateMapper, integers, register_mapper, shown
from tenfold.sparse import SparseMatrix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable
    from typing import Any

    # A str is the path of a MappedDict.
    Keys = list[Any] | dict[Any, Any] | str


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

    States are ints, floats, strings, None and tuples of these. They compare as in Python (for
    example, ``(True, 2.0)`` equals ``(1, 2)``), with one exception: a float of magnitude 2^63 or
    more equals no int.
    States may be bytes only if `keys` is a `MappedDict`.

    Args:
        keys: A list of states, or a tensor of integers ``[n]``, in the order of the matrix rows; a
            dict from states to row numbers; or a `MappedDict` without superseded rows, whose keys
            are the states, in the order of the matrix rows.
        matrix: A `SparseMatrix`, its path, or a sparse matrix of scipy or torch. Reading rows is
            fast in layout csr. Rows that are appended later are not included.
        default: The row of unknown states, ``[dim]``, or a number that fills it; None: unknown
            states raise a KeyError.

    Raises:
        ValueError: For a duplicate state, NaN in a state, a row number that is not an int or is not
            a row of the matrix, more states than the matrix has rows (unless `keys` is a dict), and
            a default of another shape or with a number that the dtype of the matrix cannot hold.
        TypeError: For objects that cannot be states, and a default that is not numeric.
        UnsupportedError: For a `MappedDict` with superseded rows, which its `compact` removes.
    """

    def __init__(self, keys: Any, matrix: Any, default: Any = None) -> None:
        matrix = _matrix_of(matrix)
        self._keys: Keys | None = _keys_of(keys)  # for pickling
        self._matrix_path: str | None = matrix._path
        self._framework = matrix._framework
        numbers = None if default is None else _rows.numbers_of(default, matrix.dtype)
        self._native = _native_of(self._keys, matrix, numbers)

    @property
    def matrix(self) -> SparseMatrix:
        """The matrix, without rows that were appended after the mapper was created or loaded."""
        made = SparseMatrix._of_native(self._native.matrix)
        made._path, made._framework = self._matrix_path, self._framework
        return made

    def __len__(self) -> int:
        """The number of states."""
        return len(self._native)

    def __contains__(self, state: Any) -> bool:
        return state in self._native

    def generate(self, states: list[Any]) -> Any:
        with using(self._framework):
            return self._native.rows(list(states), self._path)

    def key(self, state: Any) -> Hashable:
        parts = state if type(state) is tuple else (state,)
        if _NO_FLOATS.issuperset(map(type, parts)):  # a fast check that is true for most states
            return state  # type: ignore[no-any-return]
        try:
            hash(state)
        except TypeError:
            _ = state in self._native  # raises an error that names the state, unless it is valid
            raise
        # In Python, a float of magnitude 2^63 or more may equal an int; here, it equals none.
        return (float, repr(state)) if _has_large_float(state) else state

    def _cache_keys(self, states: list[Any]) -> list[Hashable]:
        is_own = type(self).key is SparseStateMapper.key
        if is_own and set(map(type, states)) == {tuple}:
            parts = itertools.chain.from_iterable(states)
            if _NO_FLOATS.issuperset(map(type, parts)):
                return states
        return super()._cache_keys(states)

    # --- saving ---

    def config(self) -> dict[str, Any]:
        return {"keys": self._native.kind}

    def tensors(self) -> dict[str, Any]:
        return self._native.parts()

    @classmethod
    def restore(cls, config: dict[str, Any], tensors: Any) -> SparseStateMapper:
        made: SparseStateMapper = object.__new__(cls)
        tree = _core.tree({"config": config, "tensors": tensors}, "state mapper")
        made._native = _core.SparseMapper.open(tree)
        made._keys = made._matrix_path = None
        made._framework = decided()
        return made

    def _by_value(self) -> tuple[Any, ...]:
        if self._keys is None:
            raise UnsupportedError(
                "state mapper: it has no path and its states are on disk, so it cannot be pickled: "
                "expected a mapper that was saved or loaded, found neither; save it first"
            )
        keys = MappedDict(self._keys) if isinstance(self._keys, str) else self._keys
        return SparseStateMapper, (keys, self.matrix, self._native.fallback)

    def __repr__(self) -> str:
        where = f"{self._path!r}, " if self._path is not None else ""
        default = "" if self._native.fallback is None else ", with a default"
        return f"SparseStateMapper({where}{len(self):,} states{default}, {self.matrix!r})"


_NO_FLOATS = frozenset({str, int, bytes})


def _has_large_float(state: Any) -> bool:
    """True if `state` is or contains a float of magnitude 2^63 or more."""
    left = [state]
    while left:
        part = left.pop()
        if isinstance(part, tuple):
            left.extend(part)
            continue
        is_float = hasattr(part, "is_integer") and not hasattr(part, "__index__")
        if is_float and abs(part) >= 2**63:
            return True
    return False


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
        path: str = keys._path
        return path
    if isinstance(keys, dict):
        return dict(keys)
    if arrays.is_array(keys):
        numbers = integers(keys)
        if numbers is None:
            raise TypeError(
                f"keys: expected a list of states, a tensor of integers [n], a dict or a "
                f"MappedDict, found a tensor {list(keys.shape)} of "
                f"{arrays.dtype_name(keys.dtype)}; [tuple(state) for state in keys.tolist()] makes "
                f"a list of states of a 2-d tensor"
            )
        return numbers
    if isinstance(keys, (str, bytes)) or not isinstance(keys, Iterable):
        raise TypeError(
            f"keys: expected a list of states, a dict or a MappedDict, found {shown(keys)}"
        )
    return list(keys)


def _native_of(keys: Keys, matrix: SparseMatrix, default: Any) -> _core.SparseMapper:
    if isinstance(keys, str):
        return _core.SparseMapper.of_dict(keys, matrix._native, default)
    rows = _row_numbers(keys, matrix.shape[0]) if isinstance(keys, dict) else None
    return _core.SparseMapper.of_states(list(keys), rows, matrix._native, default)


def _row_numbers(rows: dict[Any, Any], num_rows: int) -> list[int] | None:
    """The matrix row of each state; None if the rows are 0, 1, 2, ..."""
    numbers = []
    for state, row in rows.items():
        number = row
        if not is_bool(row):
            with contextlib.suppress(TypeError):
                number = operator.index(row)
        if type(number) is not int or not 0 <= number < num_rows:
            raise ValueError(
                f"keys: state {shown(state)}: expected a row of the matrix, in [0, {num_rows}), "
                f"found {number!r}"
            )
        numbers.append(number)
    return None if numbers == list(range(len(numbers))) else numbers
