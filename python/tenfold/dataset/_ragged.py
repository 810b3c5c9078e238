"""Ragged rows in batches."""

from __future__ import annotations

from numbers import Rational, Real

from tenfold import _core, _pickle
from tenfold._interop.arrays import DTYPES, dtype_name, need_torch, numpy_module, torch_or_none
from tenfold._options import column_name, integer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tenfold.dataset._dataset import Dataset

    Pad = int | float | str | None | dict[str, int | float | str | None]


class _NoRows(list):  # type: ignore[type-arg]
    """An empty list of ragged numpy rows. The empty array `values` has their dtype and shape."""

    def __init__(self, values: Any) -> None:
        super().__init__()
        self.values = values

    def __reduce__(self) -> tuple[Any, ...]:
        return list, ()  # pickles must not name private classes


def jagged(values: Any, offsets: Any) -> Any:
    """A jagged ``torch.nested`` tensor over the same memory; for numpy, a list of arrays.

    Args:
        values: ``[total, *shape]``.
        offsets: int64 ``[B + 1]``.
    """
    torch = torch_or_none()
    if torch is None:
        if len(offsets) == 1:
            return _NoRows(values[:0])
        return [values[offsets[i] : offsets[i + 1]] for i in range(len(offsets) - 1)]
    return torch.nested.nested_tensor_from_jagged(values, offsets)


def is_jagged(value: Any) -> bool:
    """True for a nested tensor of torch, such as `jagged` returns."""
    return bool(getattr(value, "is_nested", False))


def is_ragged(value: Any) -> bool:
    """True for a nested tensor, and for a list of numpy arrays such as `jagged` returns."""
    if not isinstance(value, list):
        return is_jagged(value)
    if isinstance(value, _NoRows):
        return True
    return bool(value) and all(
        type(row).__module__ == "numpy"
        and getattr(row, "ndim", 0) > 0
        and row.dtype.kind not in "OSU"
        and (row.dtype, row.shape[1:]) == (value[0].dtype, value[0].shape[1:])
        for row in value
    )


def parts_of(rows: Any) -> tuple[Any, Any]:
    """The values and offsets of ragged rows."""
    if not isinstance(rows, list):
        if rows.lengths() is None:
            return rows.values(), rows.offsets()
        # `values()` of a narrowed jagged tensor also has elements that are outside its rows.
        torch = need_torch("ragged rows")
        parts = rows.unbind()
        offsets = torch.tensor([0, *map(len, parts)], device=rows.device).cumsum(0)
        return torch.cat([rows.values()[:0], *parts]), offsets
    np = numpy_module()
    if isinstance(rows, _NoRows):
        return rows.values, np.zeros(1, np.int64)
    return np.concatenate(rows), np.cumsum([0, *map(len, rows)], dtype=np.int64)


def padded(rows: Any, value: float, name: str) -> tuple[Any, Any]:
    """Ragged rows as ``[B, longest, *shape]`` padded with `value`, and their lengths ``[B]``.

    Raises:
        ValueError: If the dtype of the column `name` cannot represent `value`.
    """
    values, offsets = parts_of(rows)
    module = numpy_module() if isinstance(rows, list) else need_torch("pad")
    dtype = dtype_name(values.dtype)
    if dtype in DTYPES:  # a function of rows may return other dtypes, such as datetime64
        _core.check_pad(name, dtype, value)
    lengths = offsets[1:] - offsets[:-1]
    longest = int(lengths.max()) if len(lengths) else 0
    made = module.full((len(lengths), longest, *values.shape[1:]), value, dtype=values.dtype)
    made[module.arange(longest) < lengths[:, None]] = values
    return made, lengths


def _checked_pad(value: Any) -> int | float | str | None:
    """Checks a value of the option `pad`, and converts a number to an int or float.

    Raises:
        ValueError: For another value, or a number that neither int64 nor float64 can represent.
    """
    if value is None or (isinstance(value, str) and value == "offsets"):
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(
            f'batch loader: pad: expected a number, "offsets" or None, found {value!r}'
        )
    if isinstance(value, Rational) and value.denominator == 1:
        return integer("batch loader: pad", value.numerator)
    try:
        number = float(value)
    except OverflowError:  # a large fraction
        number = float("nan")
    if number != value and value == value:
        raise ValueError(
            f"batch loader: pad: expected a number that float64 can represent, found {value!r}"
        )
    return number


class Offsets(dict):  # type: ignore[type-arg]
    """A ragged column as ``{"values", "offsets"}``. A dict of another class is a nested record."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _pickle.offsets, (dict(self),)


def as_offsets(values: Any, offsets: Any) -> Offsets:
    """Returns the two arrays as `Offsets`, unchanged."""
    return Offsets(values=values, offsets=offsets)


class Padding:
    """The option `pad` of a loader, and whether the engine or Python pads.

    The engine pads while it gathers. But functions of single rows get unpadded rows, and `after`
    applies `pad` to their results. Without such functions, `after` applies `pad` to columns that
    functions of batches add, and converts columns to `Offsets` if only some columns have the
    option "offsets".

    Attributes:
        of_engine: Padding values of the engine by column; the key None is for all columns.
        ragged: Converts values and offsets of columns that the engine does not pad.
        is_after: True if `after` must be called for each batch.

    Args:
        pad: As in `BatchLoader`.
        dataset: The rows of the batches.

    Raises:
        ValueError: For an invalid pad.
        KeyError: For a column that is not a ragged column of numbers, unless the data set has
            functions of `map`, which may add columns.
        TypeError: For a column name that is not a str or tuple of str.
    """

    def __init__(self, pad: Pad, dataset: Dataset) -> None:
        has_row_maps = any(not step.batched for step in dataset._maps)
        gathered: set[str | None] = {None}
        self._by_column: dict[Any, Any]
        if not isinstance(pad, dict):
            self._by_column = {None: _checked_pad(pad)}
        else:
            self._by_column = {
                column_name("batch loader: pad", name): _checked_pad(value)
                for name, value in pad.items()
            }
            gathered.update(
                name
                for name, column in dataset.schema._leaves()
                if column.ragged and column.dtype not in ("string", "bytes")
            )
            if not dataset._maps:
                dataset._native.check_pads(dict.fromkeys(self._by_column, 0))
        offsets = "offsets" in self._by_column.values()
        everywhere = offsets and not has_row_maps and set(self._by_column) == {None}
        self.of_engine: dict[str | None, int | float] = {}
        if not has_row_maps:
            self.of_engine = {
                name: value
                for name, value in self._by_column.items()
                if name in gathered and value is not None and value != "offsets"
            }
        self.ragged: Callable[[Any, Any], Any] = as_offsets if everywhere else jagged
        self.is_after = (offsets and not everywhere) or any(
            value is not None and (has_row_maps or name not in gathered)
            for name, value in self._by_column.items()
        )

    def after(self, batch: Any) -> Any:
        """Returns the batch after applying `pad` to the columns that the engine has not padded."""
        return self._padded(batch, "") if self.is_after and isinstance(batch, dict) else batch

    def _padded(self, batch: dict[str, Any], prefix: str) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in batch.items():
            name = f"{prefix}{key}"
            pad = self._by_column.get(name, self._by_column.get(None))
            if isinstance(value, dict):
                made[key] = self._padded(value, f"{name}.")
            elif pad is None or not is_ragged(value):
                made[key] = value
            elif pad == "offsets":
                made[key] = as_offsets(*parts_of(value))
            else:
                if f"{key}.length" in batch:
                    raise ValueError(
                        f'batch loader: pad: column "{name}": the lengths of its rows are named '
                        f'"{name}.length": expected no other column of that name, found one'
                    )
                made[key], made[f"{key}.length"] = padded(value, pad, name)
        return made
