"""Texts one after the other, as a tree of tensors: their bytes, and where each ends."""

from __future__ import annotations

import itertools

from tenfold._errors import CorruptFileError
from tenfold._interop import arrays
from tenfold.mappers import _rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any


def packed(texts: Iterable[str]) -> tuple[Any, Any]:
    """uint8 [bytes] and int64 [texts]."""
    parts = [text.encode("utf-8", "surrogatepass") for text in texts]
    ends = list(itertools.accumulate(map(len, parts)))
    return _rows.of_bytes(b"".join(parts)), _rows.made(ends, int)


class Texts:
    """Those texts again, each decoded when it is asked for."""

    def __init__(self, content: Any, ends: Any, part: str) -> None:
        for array, dtype in ((content, "uint8"), (ends, "int64")):
            if (
                not arrays.is_array(array)
                or array.ndim != 1
                or arrays.dtype_name(array.dtype) != dtype
            ):
                raise CorruptFileError(
                    f"state mapper: {part}: expected {dtype} of one dimension, found another entry"
                )
        self._content = content
        self._ends = ends
        self._part = part

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, row: int) -> str:
        if not 0 <= row < len(self):
            raise CorruptFileError(
                f"state mapper: {self._part}: expected one of {len(self)}, found number {row}"
            )
        begin, end = int(self._ends[row - 1]) if row else 0, int(self._ends[row])
        self._check(begin, end)
        return _decoded(_rows.bytes_of(self._content[begin:end]), self._part)

    def __iter__(self) -> Iterator[str]:
        return iter(self.all())

    def _check(self, begin: int, end: int) -> None:
        if not 0 <= begin <= end <= len(self._content):
            raise CorruptFileError(
                f"state mapper: {self._part}: expected ends that rise to {len(self._content)}, "
                f"found {begin} before {end}"
            )

    def all(self) -> list[str]:
        """All of them at once."""
        content = _rows.bytes_of(self._content)
        texts = []
        begin = 0
        for end in self._ends.tolist():
            self._check(begin, end)
            texts.append(_decoded(content[begin:end], self._part))
            begin = end
        return texts


def _decoded(content: bytes, part: str) -> str:
    try:
        return content.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise CorruptFileError(
            f"state mapper: {part}: expected UTF-8, found another text: {error}"
        ) from None
