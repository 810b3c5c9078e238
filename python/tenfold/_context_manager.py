"""The base class of objects that are closed at the end of a `with` block."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing_extensions import Self


class Closing:
    """Base class of context managers: the end of a `with` block calls `close`."""

    def close(self) -> None:
        """Closes the object."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
