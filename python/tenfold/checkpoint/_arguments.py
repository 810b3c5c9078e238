"""Checks the arguments of a CheckpointManager, and converts them for the engine."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter, OrderedDict
from collections.abc import Mapping
from contextlib import contextmanager

from tenfold import _core
from tenfold._errors import UnsupportedError
from tenfold._interop.arrays import is_array, torch_of
from tenfold._options import integer, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    Format = str | Mapping[str, str]


def whole(where: str, value: int | None) -> int | None:
    """Checks that a value is None or a positive int."""
    return None if value is None else integer(where, value, 1)


def number_of(where: str, value: Any) -> float:
    """Converts a real number (of Python or numpy), or an array with one element, to a float.

    Raises:
        TypeError: For any other value, including bools and complex numbers.
        ValueError: For an int or Fraction that is too large for a float.
    """
    number = value
    try:
        if is_array(value) and torch_of(value) is None:
            number = value.reshape(())[()]
        dtype = str(getattr(number, "dtype", "")).removeprefix("torch.")
        is_other = isinstance(number, (bool, str, bytes)) or dtype.startswith(("bool", "complex"))
        if not is_other and (hasattr(number, "__float__") or hasattr(number, "__index__")):
            return float(number)
    except OverflowError:
        raise ValueError(
            f"{where}: expected a number that a float can hold, found a larger one"
        ) from None
    except (TypeError, ValueError, RuntimeError):
        pass
    raise TypeError(f"{where}: expected a number, found {type(value).__name__}")


def metrics_of(metrics: Mapping[str, float] | None) -> dict[str, float]:
    """Returns metrics as floats, or an empty dict for None.

    Raises:
        TypeError: If `metrics` is not a mapping, a name is not a str or a value is not a number.
        ValueError: If an int or Fraction is too large for a float, or a name has an unpaired
            surrogate.
    """
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping):
        raise TypeError(f"metrics: expected a dict, found {type(metrics).__name__}")
    return {
        text("metrics: name", name): number_of(f'metrics: "{name}"', value)
        for name, value in metrics.items()
    }


def rules_of(format: Format) -> list[tuple[str, str]]:
    """Converts `format` to pairs ``(name, format)``; each name is an entry's name or a glob."""
    where = "checkpoint manager: format"
    if isinstance(format, str):
        return [("*", text(where, format))]
    if not isinstance(format, Mapping):
        raise TypeError(f"{where}: expected a str or a dict, found {type(format).__name__}")
    return [(text(where, name), text(where, value)) for name, value in format.items()]


def check_name(verify: Any) -> str:
    """Converts `verify` to "full", "structure", "auto" or "none"."""
    names = ("auto", "full", "structure")
    if verify is True:
        return "full"
    if verify is False:
        return "none"
    if isinstance(verify, str) and verify in names:
        return verify
    raise ValueError(
        f'verify: expected "auto", "full", "structure", True or False, found {verify!r}'
    )


def more_of(extra: Any) -> Any:
    """Returns an engine node with `extra` and the versions of Python, torch and numpy.

    The versions of torch and numpy are included only if these packages are imported.

    Raises:
        UnsupportedError: If ``json.dumps`` cannot write `extra`, or if JSON would change a value in
            it, such as a tuple or an int key.
    """
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in ("torch", "numpy"):
        module = sys.modules.get(name)
        if module is not None:
            versions[name] = str(module.__version__)
    try:
        json.dumps(extra, ensure_ascii=False, allow_nan=False).encode()
        value = _json_value(extra)
    except (TypeError, ValueError, RecursionError) as error:
        raise UnsupportedError(f"extra: expected a JSON value: {error}") from None
    return _core.tree({"extra": value, "versions": versions}, "extra")


@contextmanager
def named_cycles(states: dict[str, Any], where: str) -> Iterator[None]:
    """Replaces a RecursionError of a traversal of `states` by a ValueError that names the key."""
    try:
        yield
    except RecursionError:
        _core.tree(states, where)  # refuses containers that contain themselves, or are too deep
        raise


def _json_value(value: Any) -> Any:
    """Converts numpy.float64, which is a float for json and an array for the engine, to float.

    Raises:
        TypeError: For a container or a key that JSON would change.
    """
    if isinstance(value, tuple) or type(value) in (Counter, OrderedDict):
        raise TypeError(f"{type(value).__name__} is not a list or dict")
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"key {key!r} is not a str")
        return {key: _json_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(_json_value, value))
    return float(value) if isinstance(value, float) else value


def metadata_of(document: str) -> dict[str, Any]:
    """Parses the ``checkpoint.json`` of a step, and converts its metrics to floats."""
    found: dict[str, Any] = json.loads(document)
    special = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
    found["metrics"] = {
        name: special[value] if isinstance(value, str) else float(value)
        for name, value in found["metrics"].items()
    }
    return found
