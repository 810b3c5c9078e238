"""Rows that are added to a sparse matrix."""

from __future__ import annotations

from tenfold._closing import Closing
from tenfold.sparse import _taking_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Self


class Growing(Closing):
    """The part of `SparseMatrix` that adds rows: to a csr matrix in a folder, in mode ``"r+"``."""

    _native: Any
    _path: str | None
    _shape: tuple[int, int]
    _dtype_name: str

    def _read(self) -> None:
        """Looks at what the engine has now."""
        raise NotImplementedError

    def append_rows(self, rows: Any) -> int:
        """Adds rows at the end: whoever opens or `refresh`-es the matrix sees them, all at once.

        For a csr matrix in a folder, opened with mode ``"r+"``; one process at a time appends. A
        kill leaves the rows as they were before or after; a power loss those of the last `flush`.

        >>> with tenfold.SparseMatrix("ratings", mode="r+") as m:
        ...     m.append_rows(new_users)

        Args:
            rows: A SparseMatrix, a scipy matrix, a torch sparse tensor, or an iterable of dicts as
                `build` takes them; of as many columns and the same dtype.

        Returns:
            int: The rows there are now.

        Raises:
            ValueError: For rows that do not fit; nothing is appended.
            UnsupportedError: For another layout or format, and mode ``"r"``.
            OSError: If another process appends.
        """
        self._native.append_rows(self._rows_to_append(rows))
        self._read()
        return int(self._shape[0])

    def _rows_to_append(self, rows: Any) -> Any:
        if isinstance(rows, Growing):
            return rows._native
        if hasattr(rows, "format") and hasattr(rows, "tocsr"):
            return _taking_in.of_scipy(rows)
        if hasattr(rows, "layout"):
            return _taking_in.of_torch(rows)
        return _taking_in.of_rows(rows, self._shape[1], self._dtype_name, None, None)

    def flush(self) -> None:
        """Brings every row to the device: a power loss takes none of them any more."""
        self._native.flush()

    def close(self) -> None:
        """`flush`, and lets another process append. Reading goes on; twice is fine."""
        if self._path is not None:
            self._native.close()

    def refresh(self) -> Self:
        """Sees the rows that other processes have added since; returns itself."""
        self._native.refresh()
        self._read()
        return self
