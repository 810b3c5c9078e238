"""`HasPath`, the base class of `StorageReader` and `StorageWriter`."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class HasPath:
    """Base class of a reader or writer of a checkpoint at a local path."""

    path: str | None

    @property
    def checkpoint_id(self) -> Any:
        """The path of the checkpoint; None if it is not known yet."""
        return self.path

    def _absolute_path(self) -> str:
        """The absolute path, which must be the same on all ranks."""
        assert self.path is not None
        return os.path.abspath(os.fsdecode(self.path))

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Returns whether this class supports a checkpoint ID of torch.distributed.checkpoint.

        Args:
            checkpoint_id: Anything.

        Returns:
            bool: True for a path, False for a URL or any other object.

        Example:
            >>> from tenfold.distributed import StorageWriter
            >>> StorageWriter.validate_checkpoint_id("s3://bucket/run")
            False
        """
        return isinstance(checkpoint_id, (str, os.PathLike)) and "://" not in os.fsdecode(
            checkpoint_id
        )
