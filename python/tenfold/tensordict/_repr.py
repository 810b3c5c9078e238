"""The repr of a TensorDict, in tensordict's compact form.

Entries on disk are described from metadata where possible. Other entries, such as jagged tensors
and those of lazy stacks, are loaded.
"""

from __future__ import annotations

from tenfold._errors import CorruptFileError, Error
from tenfold.tensordict._entries import LEAF, TENSORCLASS, class_kind, node_of
from tenfold.tensordict._values import NonTensorData, UnbatchedTensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeGuard

    from tenfold.tensordict._base import TensorDictBase
    from tenfold.tensordict._lazy import LazyStackedTensorDict

    # An entry's string, or (prefix, entries) for a node.
    Entry = str | tuple[str, list[tuple[str, Any]]]

_WIDTH = 80
_MAX_HTML_ENTRIES = 200


def text(td: TensorDictBase) -> str:
    """Returns the repr; keys are sorted.

    Example: ``TensorDict(batch_size=[3], fields={a: f32[2], b: {c: i64[]}})``.
    """
    head = f"{type(td).__name__}({_header(td)}, fields="
    tail = _exclusive(td) if is_stack(td) else ""
    return head + _rendered(("", _entries(td)), "", len(head), len(tail) + 1) + tail + ")"


def html(td: TensorDictBase) -> str:
    """The repr as nested HTML lists, for notebooks; at most 200 entries."""
    from html import escape

    budget = [_MAX_HTML_ENTRIES]
    return (
        '<div style="font-family:monospace"><details open><summary><b>'
        f"{escape(type(td).__name__)}</b> {escape(_header(td))}</summary>"
        f"{_html_list(_entries(td), budget)}</details></div>"
    )


def _header(td: TensorDictBase) -> str:
    header = f"batch_size={_lengths(td._batch_size)}"
    header += f", device={td._device}" if td._device else ""
    return header + (f", stack_dim={td.stack_dim}" if is_stack(td) else "")


def is_stack(td: TensorDictBase) -> TypeGuard[LazyStackedTensorDict]:
    """True for a lazy stack."""
    return hasattr(td, "tensordicts")


def _lengths(lengths: Any) -> str:
    return f"[{','.join(map(str, lengths))}]"


def _short(dtype: str) -> str:
    for long, letter in (("float", "f"), ("uint", "u"), ("int", "i"), ("complex", "c")):
        dtype = dtype.replace(long, letter)
    return dtype


def _entries(td: TensorDictBase) -> list[tuple[str, Entry]]:
    if is_stack(td):
        entries = _stacked_entries(td._nodes())
    else:
        kinds = td._kinds(shows_damaged=True)
        entries = [(key, _shown(_entry, td, key, kind, found)) for key, kind, found in kinds]
    return _in_order(entries)


def _shown(describe: Callable[..., Entry], *args: Any) -> Entry:
    """Returns `describe(*args)`, or what is shown for an entry that cannot be read."""
    try:
        return describe(*args)
    except CorruptFileError:
        return "damaged"
    except (Error, OSError):
        return "not read"


def _in_order(entries: list[tuple[str, Entry]]) -> list[tuple[str, Entry]]:
    return sorted(entries, key=lambda entry: f"{entry[0]}: {_flat(entry[1])}")


def _entry(td: TensorDictBase, key: str, kind: str, found: Any) -> Entry:
    batch_ndim = len(td._batch_size)
    if kind == "node":
        entry = td._entry(key)
        if class_kind(type(entry)) == TENSORCLASS:
            extra = found._batch_size[batch_ndim:]
            return type(entry).__name__ + (_lengths(extra) if extra else ""), entry._shown()
        name = "LazyStackedTensorDict" if is_stack(found) else found._node_info.kind
        prefix = name if name not in ("tensordict", "dict") else ""
        extra = found._batch_size[batch_ndim:]
        return prefix + (_lengths(extra) if extra else ""), _entries(found)
    if kind in ("refused", "damaged"):
        return "damaged" if kind == "damaged" else "not read"
    if kind == "value":
        if found is not None:
            value, is_stacked = found[:2]
            return "NonTensorStack" if is_stacked else type(value).__name__
        entry = td._entry(key)
        is_data = type(entry) is NonTensorData
        return type(entry.data).__name__ if is_data else "NonTensorStack"
    place = ""
    if found is None:
        array = td._entry(key)
        unbatched = type(array) is UnbatchedTensor
        array = array.data if unbatched else array
        dtype = _dtype_of(array)
        if getattr(array, "is_nested", False):
            return f"nested {_short(dtype)}[{array.size(0)}]"
        shape = tuple(array.shape)
        device = str(getattr(array, "device", "cpu"))
        place = f"@{device}" if device != "cpu" and not td._device else ""
    else:
        dtype, shape, nested, unbatched = found
        if nested:
            return f"nested {_short(dtype)}[{shape[0]}]"
    return _short(dtype) + _lengths(shape if unbatched else shape[batch_ndim:]) + place


def _stacked_entries(nodes: list[Any]) -> list[tuple[str, Entry]]:
    """The entries that all members of a stack have; -1 stands for a length that differs."""
    if not nodes:
        return []
    keys = [key for key in nodes[0]._key_list() if all(node._has(key) for node in nodes)]
    return [(key, _shown(_stacked_entry, nodes, key)) for key in keys]


def _stacked_entry(nodes: list[Any], key: str) -> Entry:
    entries = [node._entry(key) for node in nodes]
    first = entries[0]
    inner = [node_of(entry) for entry in entries]
    if all(node is not None for node in inner):
        if class_kind(type(first)) != TENSORCLASS:
            return "", _in_order(_stacked_entries(inner))
        none = [(name, "None") for name in type(first)._field_names if not inner[0]._has(name)]
        return type(first).__name__, [*_in_order(_stacked_entries(inner)), *none]
    if type(first) is NonTensorData:
        return type(first.data).__name__
    if class_kind(type(first)) != LEAF:
        return "NonTensorStack" if hasattr(first, "tolist") else type(first).__name__
    shapes = [tuple(getattr(entry, "shape", ())) for entry in entries]
    ndim = len(nodes[0]._batch_size)
    lengths = [n[0] if len(set(n)) == 1 else -1 for n in zip(*shapes, strict=False)]
    return _short(_dtype_of(first)) + _lengths(lengths[ndim:])


def _exclusive(td: Any) -> str:
    """The entries that only some members of a stack have."""
    common = set(td._key_list())
    parts = []
    for i, node in enumerate(td._nodes()):
        own = [(key, entry) for key, entry in _entries(node) if key not in common]
        if own:
            parts.append(f"{i}: {_flat(('', own))}")
    return f", exclusive_fields={{{', '.join(parts)}}}" if parts else ""


def _dtype_of(array: Any) -> str:
    from tenfold._interop.arrays import dtype_name

    return dtype_name(array.dtype)


def _flat(entry: Entry) -> str:
    if isinstance(entry, str):
        return entry
    prefix, entries = entry
    return f"{prefix}{{{', '.join(f'{key}: {_flat(value)}' for key, value in entries)}}}"


def _rendered(entry: Entry, indent: str, used: int, tail: int) -> str:
    """One line if it fits into 80 columns with `used` before and `tail` after it; else several."""
    flat = _flat(entry)
    if isinstance(entry, str) or not entry[1] or used + len(flat) + tail <= _WIDTH:
        return flat
    prefix, entries = entry
    inner = indent + 4 * " "
    lines = []
    for position, (key, value) in enumerate(entries):
        after = tail + 1 if position == len(entries) - 1 else 1
        lines.append(f"{inner}{key}: {_rendered(value, inner, len(inner) + len(key) + 2, after)}")
    return prefix + "{\n" + ",\n".join(lines) + "}"


def _html_list(entries: list[tuple[str, Entry]], budget: list[int]) -> str:
    from html import escape

    items = []
    for position, (key, entry) in enumerate(entries):
        if budget[0] <= 0:
            items.append(f"<li>... and {len(entries) - position} more</li>")
            break
        budget[0] -= 1
        if isinstance(entry, str):
            items.append(f"<li>{escape(key)}: {escape(entry)}</li>")
        else:
            count = len(entry[1])
            label = (
                f"{escape(key)}: {escape(entry[0])} {count} {'entry' if count == 1 else 'entries'}"
            )
            items.append(
                f"<li><details open><summary>{label}</summary>"
                f"{_html_list(entry[1], budget)}</details></li>"
            )
    return "<ul>" + "".join(items) + "</ul>"
