"""`StateDict` and `RNGState`, and functions that collect the states of objects."""

from __future__ import annotations

from collections import OrderedDict, UserDict
from typing import Any

from tenfold._interop.arrays import need_torch
from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from tenfold._ranks import Ranks

    class Stateful(Protocol):
        """A module, an optimizer, a scheduler: any object that saves and loads its state."""

        def state_dict(self) -> Any: ...
        def load_state_dict(self, state_dict: Any) -> Any: ...


@set_module("tenfold")
class StateDict(UserDict[Any, Any]):
    """A UserDict with `state_dict` and `load_state_dict`, for tensors and values in `app_state`.

    Example:
        >>> progress = tenfold.StateDict(epoch=3, losses=[0.5, 0.25])
        >>> tenfold.Snapshot.take("run/snapshot", {"progress": progress})
        Snapshot('run/snapshot')
    """

    def state_dict(self) -> dict[Any, Any]:
        """The underlying dict (``data``), not a copy."""
        return self.data

    def load_state_dict(self, state_dict: dict[Any, Any]) -> None:
        """Adds or replaces the entries in `state_dict`; the other entries remain.

        Args:
            state_dict: The entries, by key.

        Example:
            >>> progress = StateDict(step=1)
            >>> progress.load_state_dict({"step": 7})
            >>> progress["step"]
            7
        """
        self.data.update(state_dict)


@set_module("tenfold")
class RNGState:
    """The state of torch's random number generator for the CPU.

    `Snapshot.take` reads this state before all other states of the `app_state`, and
    `Snapshot.restore` sets it after all others. So after a restore, torch draws the same numbers on
    the CPU as it drew in the original program after the snapshot.
    """

    def state_dict(self) -> dict[str, Any]:
        """Returns ``{"rng_state": tensor}``, with a 1-d uint8 tensor."""
        torch = need_torch("snapshot")

        return {"rng_state": torch.get_rng_state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Sets the state of torch's random number generator for the CPU.

        Args:
            state_dict: The result of `state_dict`: ``{"rng_state": tensor}``.

        Raises:
            KeyError: If `state_dict` has no key ``rng_state``.

        Example:
            >>> rng = RNGState()
            >>> rng.load_state_dict(rng.state_dict())
        """
        torch = need_torch("snapshot")

        torch.set_rng_state(state_dict["rng_state"])


def check(app_state: Any) -> None:
    if not isinstance(app_state, dict):
        raise TypeError(f"app_state: expected a dict, found {type(app_state).__name__}")
    for key, value in app_state.items():
        if not isinstance(key, str):
            raise TypeError(f"app_state: expected names that are str, found {key!r}")
        for method in ("state_dict", "load_state_dict"):
            if not callable(getattr(value, method, None)):
                raise TypeError(
                    f"Expected Stateful in app_state for key {key}, got {type(value)}: it has no "
                    f"{method}(); tenfold.StateDict holds tensors and plain values"
                )
    random = [key for key, value in app_state.items() if isinstance(value, RNGState)]
    if len(random) > 1:
        raise RuntimeError(f"Multiple RNGState objects in app state: {random}")


def states_of(ranks: Ranks, app_state: dict[str, Stateful], keys: list[str]) -> dict[str, Any]:
    """Collects the state of each object.

    The state of an `RNGState` is read first, and set again at the end, because state_dict() of the
    other objects may draw random numbers.

    Args:
        ranks: The ranks. state_dict() may be collective, so all ranks call it in the same order.
        app_state: The objects of this rank, by name.
        keys: The names in the `app_state` of any rank.
    """
    random = {key: value for key, value in app_state.items() if isinstance(value, RNGState)}
    states = {key: value.state_dict() for key, value in random.items()}

    def state_of(key: str) -> None:
        if key in app_state and key not in random:
            states[key] = _plain(app_state[key].state_dict())

    first = {key: states[key] for key in random}
    for key in keys:
        ranks.run(f"take: state of {key}", lambda key=key: state_of(key))  # type: ignore[misc]
    for key, value in random.items():
        value.load_state_dict(first[key])
    return {key: states[key] for key in app_state}


def _plain(state: Any, above: tuple[int, ...] = ()) -> Any:
    """Copies nested dicts, lists and tuples, without `_metadata` that JSON cannot represent.

    `above` has the ids of the containers around `state`. A container that contains itself is not
    copied; the engine refuses it.
    """
    if type(state) not in (dict, OrderedDict, list, tuple) or id(state) in above:
        return state
    above = (*above, id(state))
    if type(state) in (list, tuple):
        return type(state)(_plain(item, above) for item in state)
    made = type(state)((key, _plain(value, above)) for key, value in state.items())
    if type(state) is OrderedDict and _is_json(getattr(state, "_metadata", None)):
        # The versions of a module's layers, which load_state_dict() uses.
        made._metadata = state._metadata  # type: ignore[attr-defined]
    return made


def _is_json(metadata: Any) -> bool:
    """True for metadata that JSON represents, such as a module's.

    False for the metadata of a tensordict's state, which `restore` copies from the current state of
    the object.
    """
    import json

    try:
        return metadata is not None and json.loads(json.dumps(metadata)) == metadata
    except (TypeError, ValueError):
        return False
