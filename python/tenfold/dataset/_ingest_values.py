"""Says in plain types what the engine's reader of rows (python/src/row_reader.cpp) does not know.

The reader walks dicts, lists, numbers, text, bytes and arrays of numbers by itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def simple(value: object) -> object:
    """A list, dict, str, ... that stands for `value`; `value` itself if there is none."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        if value.dtype.kind in "OUST":  # objects and text
            return value.tolist() if value.ndim else value.item()
        if value.dtype.kind == "b" or not value.dtype.isnative:
            return value.astype(value.dtype.newbyteorder("="))
        return value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        plain = value.detach()
        if plain.is_nested or plain.layout is not torch.strided:
            return value
        plain = plain.cpu().resolve_conj().resolve_neg()
        return plain.as_subclass(torch.Tensor) if type(plain) is not torch.Tensor else plain
    return row_of(value)


def row_of(value: Any) -> object:
    """The dict that a mapping or a TensorDict is; `value` itself if it is none."""
    if isinstance(value, Mapping):
        return dict(value)
    if is_tensordict(value):
        return {key: _entry(value.get(key)) for key in value.keys()}  # noqa: SIM118
    return value


def _entry(value: Any) -> Any:
    if hasattr(value, "tolist") and hasattr(value, "batch_size"):  # NonTensorData and stacks of it
        return value.tolist() if len(value.batch_size) else value.data
    return value


def is_tensordict(value: object) -> bool:
    """True for nodes of ours and of tensordict's, tensorclasses included."""
    cls = type(value)
    return bool(getattr(cls, "_is_tensorclass", False)) or any(
        base.__name__ == "TensorDictBase"
        and base.__module__.partition(".")[0] in ("tenfold", "tensordict")
        for base in cls.__mro__
    )


def is_tensor_node(value: object) -> bool:
    """The same, but for values in the guise of nodes: NonTensorData and stacks of it."""
    names = {base.__name__ for base in type(value).__mro__}
    return is_tensordict(value) and not names & {
        "NonTensorData",
        "NonTensorDataBase",
        "NonTensorStack",
    }


def json_text(value: object) -> str:
    """`value` as ``json.dumps`` writes it; arrays as lists.

    Raises:
        TypeError: For what JSON lacks.
    """
    return json.dumps(value, default=_json_value)


def _json_value(value: Any) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"JSON lacks {type(value).__name__}")


def row_text(row: object, max_characters: int) -> str:
    """A row that is left out, for ``bad_rows.jsonl``."""
    text = json.dumps(row, default=repr) if isinstance(row, dict) else repr(row)
    return text if len(text) <= max_characters else text[:max_characters] + "..."
