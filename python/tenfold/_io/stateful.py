"""What a snapshot can hold besides modules and optimizers: a dict, and torch's random numbers."""

from __future__ import annotations

from collections import UserDict

from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Stateful(Protocol):
        """A module, an optimizer, a scheduler: what gives and takes its state."""

        def state_dict(self) -> Any: ...
        def load_state_dict(self, state_dict: Any) -> Any: ...


@set_module("tenfold")
class StateDict(UserDict):  # type: ignore[type-arg]
    """A dict that is its own state, for loose values in an `app_state`.

    Example:
        >>> progress = tenfold.StateDict(epoch=3, losses=[0.5, 0.25])
        >>> tenfold.Snapshot.take("run/snapshot", {"progress": progress})
        Snapshot('run/snapshot')
    """

    def state_dict(self) -> dict[Any, Any]:
        """The dict itself, not a copy."""
        return self.data

    def load_state_dict(self, state_dict: dict[Any, Any]) -> None:
        """Takes over the entries of `state_dict`; others stay."""
        self.data.update(state_dict)


@set_module("tenfold")
class RNGState:
    """The state of torch's random numbers on the CPU.

    In an `app_state` it is taken before and restored after everything else, so that drawing goes on
    after a restore as it went on after the snapshot.
    """

    def state_dict(self) -> dict[str, Any]:
        """``{"rng_state": tensor}``, uint8 of one dimension."""
        import torch

        return {"rng_state": torch.get_rng_state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Sets the state of torch's generator."""
        import torch

        torch.set_rng_state(state_dict["rng_state"])


RngState = RNGState
