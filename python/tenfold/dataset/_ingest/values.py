"""Converts values that the engine's reader of rows (python/src/row_reader.cpp) does not convert.

The reader converts dicts, lists, numbers, strings, bytes and arrays of numbers itself.
"""

from __future__ import annotations

import datetime
import decimal
import json
import sys
from collections.abc import Mapping, Sequence

from tenfold._interop.arrays import (
    has_mask,
    is_numpy_number,
    numpy_module,
    unmasked_row,
    without_elements,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# NumPy's type codes of real and complex long double, with the dtypes to convert them to: columns
# have no long double.
_FLOATS_OF_LONG_DOUBLE = {"g": "float64", "G": "complex128"}


def is_decimal(value: object) -> bool:
    """True for a `decimal.Decimal`."""
    return isinstance(value, decimal.Decimal)


def simple(value: Any) -> object:
    """Converts `value` to a list, dict, str, ...; returns it unchanged if no conversion applies.

    Raises:
        ValueError: For a meta, sparse or quantized tensor, and for NumPy's long double.
    """
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        if has_mask(value):
            return unmasked_row(value)
        if isinstance(value, numpy.ma.MaskedArray):
            return value.data
        if value.dtype.kind in "OUST":  # objects and strings
            return value.tolist() if value.ndim else value.item()
        if value.dtype.kind in "mM" and value.ndim:
            return list(value)
        if value.dtype.kind == "b" or not value.dtype.isnative:
            return value.astype(value.dtype.newbyteorder("="))
        if value.dtype.char in _FLOATS_OF_LONG_DOUBLE:
            raise ValueError(
                f"expected a dtype that columns support, found {value.dtype}; convert it with "
                f'astype("{_FLOATS_OF_LONG_DOUBLE[value.dtype.char]}")'
            )
        return value if value.ndim else numpy.asarray(value)  # a scalar of ml_dtypes
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if refused := without_elements(value):
            raise ValueError(f"expected a dense tensor, found {refused}")
        if value.is_nested:
            return value
        plain = value.detach()
        is_plain = not (plain.is_conj() or plain.is_neg()) and plain.device.type == "cpu"
        if is_plain and type(value) is torch.Tensor:
            return value
        plain = plain.cpu().resolve_conj().resolve_neg()
        return plain.as_subclass(torch.Tensor) if type(plain) is not torch.Tensor else plain
    if is_decimal(value):
        return str(value)
    if isinstance(value, memoryview):
        return value.tolist()
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):  # pandas, images
        made = numpy_module().asarray(value)
        # NumPy puts a class, such as numpy.float32, into an array of objects.
        return value if made.ndim == 0 and made.item() is value else made
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, list, tuple)):
        return list(value)
    return row_of(value)


_MICROSECOND = datetime.timedelta(microseconds=1)
# Units of numpy that are stored unchanged, with their names in a schema.
_NUMPY_UNITS = {"D": "days", "s": "s", "ms": "ms", "us": "us", "ns": "ns"}
# Other units of numpy: the unit to convert them to, and the factor; 0 for years and months, which
# have different numbers of days.
_LARGER_UNITS = {"Y": ("D", 0), "M": ("D", 0), "W": ("D", 7), "h": ("s", 3600), "m": ("s", 60)}
_EPOCH = datetime.date(1970, 1, 1)
# The calendar repeats after 400 years.
_CYCLE_MONTHS = 4800
_CYCLE_DAYS = 146_097


def time_count(value: Any) -> tuple[int | None, str, bool]:
    """Converts a date, time stamp, time of day or duration to ``(count, unit, is_utc)``.

    Dates and time stamps count from 1970-01-01, times of day from midnight. The unit is days for
    Python's ``date``, microseconds for Python's other types, and nanoseconds for pandas. For numpy,
    the unit is that of the value if it is days, s, ms, us or ns, else the next smaller one of these
    units. `is_utc` is true if the value has a time zone. The count is exact, so int64 may be too
    small for it. The result for NaT (not a time) is ``(None, "", False)``.

    Raises:
        ValueError: For a value that cannot be converted to a count.
    """
    if type(value).__module__ == "numpy":
        return _numpy_count(value)
    if type(value).__name__ == "NaTType":
        return None, "", False
    if hasattr(value, "asm8"):  # pandas
        is_utc = getattr(value, "tzinfo", None) is not None
        # Before pandas 2, all time stamps and durations are in nanoseconds.
        precise = value.as_unit("ns") if hasattr(value, "as_unit") else value
        count, unit, _ = _numpy_count(precise.asm8)
        return count, unit, is_utc
    if isinstance(value, datetime.datetime):
        offset = value.utcoffset()
        local = value.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)
        # Subtract the offset from a timedelta: a datetime in UTC could be outside of the years 1 to
        # 9999.
        since = local - (offset or datetime.timedelta())
        return since // _MICROSECOND, "us", offset is not None
    if isinstance(value, datetime.date):
        return (value - _EPOCH).days, "days", False
    if isinstance(value, datetime.timedelta):
        return value // _MICROSECOND, "us", False
    if value.tzinfo is not None:
        raise ValueError(f"expected a time of day without a time zone, found {value!r}")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000 + value.microsecond, "us", False


def _numpy_count(value: Any) -> tuple[int | None, str, bool]:
    np = numpy_module()

    if np.isnat(value):
        return None, "", False
    unit, step = np.datetime_data(value.dtype)
    target, factor = (unit, 1) if unit in _NUMPY_UNITS else _LARGER_UNITS.get(unit, (None, 0))
    if target is None or (value.dtype.kind == "m" and unit in ("Y", "M")):
        raise ValueError(
            "expected a time stamp with a unit from years to nanoseconds, or a duration with a "
            f"unit from weeks to nanoseconds, found {value!r}"
        )
    # ints, because astype() wraps around at the limits of int64
    count = int(value.view("i8")) * step
    if unit in ("Y", "M"):
        count = _days_of_months(count * 12 if unit == "Y" else count)
    else:
        count *= factor
    return count, _NUMPY_UNITS[target], False


def _days_of_months(months: int) -> int:
    """The days from 1970-01-01 to the first day of the month `months` after January 1970."""
    cycles, month = divmod(months, _CYCLE_MONTHS)
    first = datetime.date(_EPOCH.year + month // 12, month % 12 + 1, 1)
    return cycles * _CYCLE_DAYS + (first - _EPOCH).days


def row_of(value: Any) -> object:
    """Converts a mapping or a TensorDict to a dict; other values are returned unchanged."""
    if isinstance(value, Mapping):
        return value if isinstance(value, dict) else dict(value)
    if is_tensordict(value):
        return {key: _entry(value.get(key)) for key in value.keys()}  # noqa: SIM118
    return value


def _entry(value: Any) -> Any:
    if hasattr(value, "tolist") and hasattr(value, "batch_size"):  # NonTensorData and stacks of it
        return value.tolist() if len(value.batch_size) else value.data
    return value


def is_tensordict(value: object) -> bool:
    """True for nodes of tenfold and tensordict, including tensorclasses."""
    cls = type(value)
    return bool(getattr(cls, "_is_tensorclass", False)) or any(
        base.__name__ == "TensorDictBase"
        and base.__module__.partition(".")[0] in ("tenfold", "tensordict")
        for base in cls.__mro__
    )


def is_tensor_node(value: object) -> bool:
    """True for the nodes of `is_tensordict`, except NonTensorData and stacks of it."""
    names = {base.__name__ for base in type(value).__mro__}
    return is_tensordict(value) and not names & {
        "NonTensorData",
        "NonTensorDataBase",
        "NonTensorStack",
    }


def json_text(value: object) -> str:
    """`value` as ``json.dumps`` writes it; arrays and tensors become lists or numbers.

    Raises:
        TypeError: For a type that JSON cannot represent, and for a meta, sparse, quantized or
            nested tensor.
        ValueError: For a list or dict that contains itself.
    """
    return json.dumps(value, default=_json_value)


def _json_value(value: Any) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if refused := without_elements(value):
        raise TypeError(f"JSON lacks {refused}")
    if hasattr(value, "tolist") and not getattr(value, "is_nested", False):
        made = value.tolist()
        if type(made) is not type(value):  # tolist() of NumPy's long double returns a long double
            return made
    raise TypeError(f"JSON lacks {type(value).__name__}")


def row_text(row: object, max_characters: int) -> str:
    """Formats a skipped row for ``bad_rows.jsonl``."""
    try:
        text = json.dumps(row, default=_shown) if isinstance(row, dict) else repr(row)
    except Exception:  # an unsupported key, lists nested too deep, or an error of __repr__
        text = object.__repr__(row)
    return text if len(text) <= max_characters else text[:max_characters] + "..."


def _shown(value: Any) -> object:
    """Converts a number of numpy to one of Python, and other values by `repr`."""
    number = value.item() if is_numpy_number(value) else None
    return number if isinstance(number, (bool, int, float)) else repr(value)
