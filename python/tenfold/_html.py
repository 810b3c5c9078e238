"""HTML for notebooks. All strings are escaped."""

from __future__ import annotations

from html import escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# Maximum number of rows of a table: with more rows, notebooks scroll slowly.
_MAX_ROWS = 200


def paragraph(text: str) -> str:
    """One paragraph of plain text."""
    return f"<p>{escape(text)}</p>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], max_rows: int = _MAX_ROWS) -> str:
    """A table of plain text.

    Args:
        head: The names of the columns.
        rows: The cells of each row, one for each column.
        max_rows: Maximum number of rows to show; a line below shows the number of omitted rows.
    """
    body = "".join(_row(row, "td") for row in rows[:max_rows])
    made = f"<table><thead>{_row(head, 'th')}</thead><tbody>{body}</tbody></table>"
    num_omitted = len(rows) - max_rows
    return made + (paragraph(f"... and {num_omitted:,} more") if num_omitted > 0 else "")


def _row(cells: Sequence[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
