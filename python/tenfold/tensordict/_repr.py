"""The text of a TensorDict, as tensordict prints its own, made from metadata alone."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenfold.tensordict._tensordict import TensorDict

    # An entry's text, or (prefix, entries) of a node.
    Entry = str | tuple[str, list[tuple[str, Any]]]

_WIDTH = 80
_MAX_HTML_ENTRIES = 200


def text(td: TensorDict) -> str:
    """``TensorDict(batch_size=[3], fields={a: f32[2], b: {c: i64[]}})``, entries by name."""
    head = f"{type(td).__name__}({_header(td)}, fields="
    return head + _rendered(("", _entries(td)), "", len(head), 1) + ")"


def html(td: TensorDict) -> str:
    """The same as nested lists, for notebooks; at most 200 entries."""
    from html import escape

    budget = [_MAX_HTML_ENTRIES]
    return (
        '<div style="font-family:monospace"><details open><summary><b>'
        f"{escape(type(td).__name__)}</b> {escape(_header(td))}</summary>"
        f"{_html_list(_entries(td), budget)}</details></div>"
    )


def _header(td: TensorDict) -> str:
    header = f"batch_size={_lengths(td._batch_size)}"
    return header + (f", device={td._device}" if td._device else "")


def _lengths(lengths: Any) -> str:
    return f"[{','.join(map(str, lengths))}]"


def _short(dtype: str) -> str:
    for long, letter in (("float", "f"), ("uint", "u"), ("int", "i"), ("complex", "c")):
        dtype = dtype.replace(long, letter)
    return dtype


def _entries(td: TensorDict) -> list[tuple[str, Entry]]:
    entries = [(key, _entry(td, key, kind, found)) for key, kind, found in td._kinds()]
    return sorted(entries, key=lambda entry: f"{entry[0]}: {_flat(entry[1])}")


def _entry(td: TensorDict, key: str, kind: str, found: Any) -> Entry:
    batch_ndim = len(td._batch_size)
    if kind == "node":
        prefix = found._kind if found._kind not in ("tensordict", "dict") else ""
        extra = found._batch_size[batch_ndim:]
        return prefix + (_lengths(extra) if extra else ""), _entries(found)
    if kind == "value":
        value, is_stack = (td._items[key], key in td._marks) if found is None else found[:2]
        return "NonTensorStack" if is_stack else type(value).__name__
    place = ""
    if found is None:
        array = td._items[key]
        dtype = _dtype_of(array)
        if getattr(array, "is_nested", False):
            return f"nested {_short(dtype)}[{array.size(0)}]"
        shape, unbatched = tuple(array.shape), td._marks.get(key) == "unbatched"
        device = str(getattr(array, "device", "cpu"))
        place = f"@{device}" if device != "cpu" and not td._device else ""
    else:
        dtype, shape, nested, unbatched = found
        if nested:
            return f"nested {_short(dtype)}[{shape[0]}]"
    return _short(dtype) + _lengths(shape if unbatched else shape[batch_ndim:]) + place


def _dtype_of(array: Any) -> str:
    from tenfold._arrays import dtype_name

    return dtype_name(array.dtype)


def _flat(entry: Entry) -> str:
    if isinstance(entry, str):
        return entry
    prefix, entries = entry
    return f"{prefix}{{{', '.join(f'{key}: {_flat(value)}' for key, value in entries)}}}"


def _rendered(entry: Entry, indent: str, used: int, tail: int) -> str:
    """One line if it fits between `used` columns before and `tail` after it, else one an entry."""
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
            label = f"{escape(key)}: {escape(entry[0])} {len(entry[1])} entries"
            items.append(
                f"<li><details open><summary>{label}</summary>"
                f"{_html_list(entry[1], budget)}</details></li>"
            )
    return "<ul>" + "".join(items) + "</ul>"
