"""Trees of tensors in Python: `TensorDict`, in memory or over an opened file."""

from __future__ import annotations

from tenfold.tensordict._tensordict import TensorDict
from tenfold.tensordict._unbatched import UnbatchedTensor

__all__ = ["TensorDict", "UnbatchedTensor"]
