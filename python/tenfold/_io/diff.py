"""What differs between two trees."""

from __future__ import annotations

import os

from tenfold import _core
from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenfold._io.files import Progress
    from tenfold._reports import DiffReport


@set_module("tenfold")
def diff(
    a: Any, b: Any, *, rtol: float = 0, atol: float = 0, progress: Progress = None
) -> DiffReport:
    """Compares two trees, in any two formats or in memory.

    Tensors and JSON values are matched by path, else by dotted name. Tensors are read in pieces, in
    parallel: memory does not grow with them. The order of keys does not count, nor whether
    a dict is an OrderedDict.

    Args:
        a: A path, or what `save` takes: containers of tensors, a TensorDict, a module.
        b: The same.
        rtol: Values are the same if ``|a - b| <= atol + rtol * |b|``, and NaN if both are NaN. With
            zeros they are compared exactly, integers of 64 bits too.
        atol: See `rtol`. Dtypes, shapes, kinds of nodes and JSON values are compared exactly.
        progress: As for `save`.

    Returns:
        DiffReport: ``same``, ``added``, ``removed`` and ``changed``.

    Raises:
        FileNotFoundError, CorruptFileError, UnsupportedError, OSError: As for `open`.
        ValueError: If a tolerance is negative.

    Example:
        >>> report = tenfold.diff("run/step_3", "run/step_4.safetensors", rtol=1e-5)
        >>> [(change.key, change.max_abs) for change in report.changed]
        [('model.weight', 0.0078125)]
    """
    from tenfold._progress import Shown
    from tenfold._reports import Change, DiffReport

    with Shown(progress) as callback:
        added, removed, changed, num_leaves, num_bytes = _core.diff(
            _node(a), _node(b), _tolerance("rtol", rtol), _tolerance("atol", atol), callback
        )
    return DiffReport(added, removed, [Change(*found) for found in changed], num_leaves, num_bytes)


def _node(source: Any) -> Any:
    if isinstance(source, (str, os.PathLike)):
        return _core.open(source, "r", "")
    return _core.tree(source, "")


def _tolerance(name: str, value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"diff: {name}: expected a float, found a larger number") from None
