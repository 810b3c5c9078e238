"""The first rows of a data set as a table."""

from __future__ import annotations

import math
from collections import Counter

from tenfold._html import paragraph, table
from tenfold.dataset._schema import Schema, validity_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from tenfold.dataset._schema import Column

_NUM_ROWS = 5
_NUM_ELEMENTS = 4
_MAX_CELL_CHARACTERS = 30
_MAX_LINE_CHARACTERS = 100
_MAX_COLUMNS_HTML = 30
# The values of a column whose shape has more elements are shown as "..." and not read.
_MAX_VALUE_ELEMENTS = 65_536


def preview(title: str, native: Any, schema: Schema) -> str:
    """The title and a table of the first rows, with the columns that fit in 100 characters.

    The first column is always shown.
    """
    leaves = list(schema._by_keys())
    columns = _columns(native, leaves[:_MAX_COLUMNS_HTML])
    widths = [max(map(len, cells)) for cells in columns]
    shown, width = 0, 0
    while shown < len(columns) and (not shown or width + widths[shown] <= _MAX_LINE_CHARACTERS):
        width += widths[shown] + 2
        shown += 1
    cells_of_lines = zip(*columns[:shown], strict=True)
    lines = ["  ".join(map(str.ljust, cells, widths)).rstrip() for cells in cells_of_lines]
    return "\n".join([title, *lines, *_omitted(len(native), len(leaves) - shown)])


def preview_html(title: str, native: Any, schema: Schema) -> str:
    """The title and a table of the first rows with up to 30 columns, as HTML."""
    leaves = list(schema._by_keys())
    columns = _columns(native, leaves[:_MAX_COLUMNS_HTML])
    names, types, *rows = zip(*columns, strict=True) if columns else ((), ())
    more = "; ".join(_omitted(len(native), len(leaves) - len(columns)))
    made = paragraph(title) + table(names, [types, *rows])
    return made + (paragraph(more) if more else "")


def _omitted(num_rows: int, num_columns: int) -> list[str]:
    omitted = ((num_rows - _NUM_ROWS, "row"), (num_columns, "column"))
    return [
        f"... and {count:,} more {name}{'s' * (count > 1)}" for count, name in omitted if count > 0
    ]


def _columns(native: Any, leaves: Sequence[tuple[tuple[str, ...], Column]]) -> list[list[str]]:
    """Name, type and first values of each column."""
    count = min(len(native), _NUM_ROWS)
    uses = Counter(".".join(path) for path, _ in leaves)
    columns = []
    for path, column in leaves:
        name = ".".join(path)
        # The dotted name of a field may also be that of another column, which would be selected.
        selected = name if uses[name] == 1 else path[0]
        columns.append([name, str(column), *_values(native, selected, path, column, count)])
    return columns


def _values(
    native: Any, selected: str, path: tuple[str, ...], column: Column, count: int
) -> list[str]:
    if math.prod(column.shape) > _MAX_VALUE_ELEMENTS:
        return ["..."] * count
    try:
        view = native.select([selected])
        return [_cell(view.row(position), path) for position in range(count)]
    except (ValueError, OSError) as error:
        # A damaged column must not hide the other columns in a debugger or a notebook.
        return [_shortened(f"({type(error).__name__}: {error})")] * count


def _cell(row: Any, path: tuple[str, ...]) -> str:
    *records, name = path
    for record in records:
        row = row[record]
    valid = row.get(validity_name(name))
    if valid is not None and not bool(valid.all() if hasattr(valid, "all") else valid):
        return "null"
    return _shortened(_text(row[name]))


def _text(value: Any) -> str:
    if isinstance(value, (str, bytes)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return _list_text(value, len(value))
    shape = tuple(value.shape)
    if not shape:
        return _number(value.item())
    return _list_text(value[:_NUM_ELEMENTS].tolist(), shape[0])


def _list_text(values: Sequence[Any], length: int) -> str:
    texts = []
    for value in values[:_NUM_ELEMENTS]:
        if isinstance(value, (list, tuple)):
            texts.append(_list_text(value, len(value)))
        else:
            texts.append(_number(value))
    return f"[{', '.join([*texts, *(['...'] * (length > _NUM_ELEMENTS))])}]"


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def _shortened(text: str) -> str:
    text = text.replace("\n", " ")
    return text if len(text) <= _MAX_CELL_CHARACTERS else f"{text[: _MAX_CELL_CHARACTERS - 3]}..."
