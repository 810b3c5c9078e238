"""The checkpoints of a training run: saving, retention and restoring."""

from tenfold.checkpoint._background import SaveHandle
from tenfold.checkpoint._manager import CheckpointManager
from tenfold.checkpoint._preemption import Preemption
from tenfold.checkpoint._results import Estimate, RestoreResult, StepStatus
from tenfold.checkpoint._rng import RngState

__all__ = [
    "CheckpointManager",
    "Estimate",
    "Preemption",
    "RestoreResult",
    "RngState",
    "SaveHandle",
    "StepStatus",
]
