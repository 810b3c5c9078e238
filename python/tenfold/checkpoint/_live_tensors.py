"""Tensors that are copied in the background while a training run continues."""

from __future__ import annotations

import copy
from collections import OrderedDict

from tenfold._interop import arrays
from tenfold._interop.arrays import is_module, is_optimizer, tensors_in, torch_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tenfold.checkpoint._sharded import ShardedEntries


class LiveTensors:
    """Copies of states that share only some tensors with the program.

    The shared tensors are the parameters of modules, and the tensors of optimizers outside of their
    parameter groups (which may contain a tensor as learning rate). A tensor whose changes cannot be
    detected (see `_has_version`) is not shared.

    Args:
        app_state: The objects by name.
        states: The states by name, as returned by `states_of`.

    Attributes:
        states: The states by name, with copies of all tensors that are not shared.
    """

    def __init__(self, app_state: dict[str, Any], states: dict[str, Any]) -> None:
        self.states: dict[str, Any] = {}
        self._versions: list[tuple[str, Any, int]] = []
        for name, state in states.items():
            target = app_state[name]
            if is_module(target) and isinstance(state, dict):
                self.states[name] = self._of_module(name, target, state)
            elif is_optimizer(target):
                self.states[name] = self._of_optimizer(name, state)
            else:
                self.states[name] = _copied(state)

    def parts_of(self, app_state: dict[str, Any], sharded: ShardedEntries) -> dict[str, Any]:
        """Returns the parts of sharded entries. Shares the same kinds of tensors as `states`."""
        parts: dict[str, Any] = {}
        for name, tensors in sharded.parts.items():
            target = app_state[name]
            own: Any = {}
            if is_module(target):
                own = dict(target.named_parameters(remove_duplicate=False))
            elif is_optimizer(target):
                own = {
                    key: value
                    for key, value in sharded.live[name].items()
                    if not key.startswith("param_groups.")
                }
            own = {key: own[key] for key in tensors if key in own and _has_version(own[key])}
            parts[name] = {
                key: value if key in own else _copied(value) for key, value in tensors.items()
            }
            # In-place operations increment the version of the DTensor, not that of its local part.
            self._watch(name, own)
        return parts

    def require_unchanged(self, step: int) -> None:
        """Raises RuntimeError if the version of a tensor that is not a copy has changed."""
        for name, tensor, version in self._versions:
            if tensor._version != version:
                raise RuntimeError(
                    f'step {step} was not saved: tensor "{name}" changed before it was copied; '
                    "call optimizer.step() within `with manager.lock():`"
                )

    def _of_module(self, name: str, module: Any, state: dict[str, Any]) -> Any:
        own = dict(module.named_parameters(remove_duplicate=False))
        parameters = {
            key: value for key, value in state.items() if key in own and _has_version(value)
        }
        self._watch(name, parameters)
        made = OrderedDict(
            (key, value if key in parameters else _copied(value)) for key, value in state.items()
        )
        metadata = getattr(state, "_metadata", None)
        if metadata is not None:
            made._metadata = metadata  # type: ignore[attr-defined]
        return made

    def _of_optimizer(self, name: str, state: Any) -> Any:
        made = _copied(state, _has_version)
        if isinstance(made, dict) and "param_groups" in made:
            # Schedulers change learning rates that are tensors, outside of the lock.
            made["param_groups"] = _copied(made["param_groups"])
        self._watch(name, made)
        return made

    def _watch(self, name: str, state: Any) -> None:
        for key, tensor in tensors_in(state):
            if _has_version(tensor):
                self._versions.append((f"{name}.{key}", tensor, tensor._version))


def _has_version(tensor: Any) -> bool:
    """True for a tensor whose `_version` counts changes: no numpy array or inference tensor."""
    return torch_of(tensor) is not None and not tensor.is_inference()


def _copied(state: Any, is_shared: Callable[[Any], bool] = lambda tensor: False) -> Any:
    """Copies nested dicts, lists and tuples, and the tensors, arrays and trees of tensors in them.

    Other objects, and those for which `is_shared` returns true, are not copied.
    """
    if is_shared(state):
        return state
    if arrays.is_array(state) or hasattr(state, "clone"):
        return arrays.copied(state)
    made: Any
    if isinstance(state, dict):
        made = copy.copy(state)
        for key, value in state.items():
            made[key] = _copied(value, is_shared)
        return made
    if isinstance(state, list):
        made = copy.copy(state)
        made[:] = [_copied(value, is_shared) for value in state]
        return made
    if isinstance(state, tuple):
        items = [_copied(value, is_shared) for value in state]
        if all(item is value for item, value in zip(items, state, strict=True)):
            return state  # for example a torch.Size
        make = getattr(type(state), "_make", type(state))
        return make(items)
    return state
