"""The common base of the storage classes of torch.distributed.checkpoint: a path."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class HasPath:
    """A checkpoint that is a file or folder of this machine."""

    path: str | None

    @property
    def checkpoint_id(self) -> Any:
        """The path of the checkpoint."""
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """True for a path."""
        return isinstance(checkpoint_id, (str, os.PathLike)) and "://" not in os.fspath(
            checkpoint_id
        )
