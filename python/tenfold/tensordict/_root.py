"""What only the root of a tree has: the schema of a data set, and metadata."""

from __future__ import annotations

import json

from tenfold.tensordict._protocol import Primitives

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class RootMethods(Primitives):
    """`schema` and `metadata`."""

    __slots__ = ()

    @property
    def schema(self) -> dict[str, Any] | None:
        """What the columns of a data set mean, a JSON value of the root; None if nothing is said.

        It is stored with the tree (a folder's notes) and changes nothing about its entries.
        """
        text = self._kind.schema
        return None if text is None else json.loads(text)

    @schema.setter
    def schema(self, schema: dict[str, Any] | None) -> None:
        self._own()
        self._kind = self._kind._replace(schema=None if schema is None else json.dumps(schema))

    @property
    def metadata(self) -> dict[str, str]:
        """What people put into safetensors' ``__metadata__``; a folder keeps it in its notes.

        Of a root; assign a dict of str to change it.

        Raises:
            TypeError: If what is assigned is not str to str.
        """
        return dict(self._kind.metadata)

    @metadata.setter
    def metadata(self, metadata: Mapping[str, str]) -> None:
        for key, text in metadata.items():
            if not isinstance(key, str) or not isinstance(text, str):
                raise TypeError(f"metadata: expected str to str, found {key!r}: {text!r}")
        self._own()
        self._kind = self._kind._replace(metadata=dict(metadata))
