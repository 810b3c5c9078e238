"""A mapper that computes rows with a torch module. Saves the state dict, not the code."""

from __future__ import annotations

import hashlib

from tenfold._errors import UnsupportedError
from tenfold._interop import arrays
from tenfold._interop.frameworks import using
from tenfold._public import set_module
from tenfold.mappers._mapper import StateMapper, register_mapper, registered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable
    from typing import Any


@set_module("tenfold")
@register_mapper("tenfold.ModuleStateMapper")
class ModuleStateMapper(StateMapper):
    """Maps states to rows that a module computes.

    >>> @tenfold.register_mapper("mlp")
    ... def mlp(width):
    ...     return torch.nn.Sequential(torch.nn.Linear(2, width), torch.nn.ReLU())
    >>> mapper = tenfold.ModuleStateMapper("mlp", {"width": 64})
    >>> mapper([(0.5, 1.0), (0.0, 2.0)]).shape
    torch.Size([2, 64])
    >>> mapper.save("mapper.safetensors")       # the name, the config, the state_dict
    >>> tenfold.StateMapper.load("mapper.safetensors")

    States are tensors, or arrays, numbers and tuples of numbers, which `torch.as_tensor` converts:
    a tuple of ints to int64, which a module of floats refuses. A list of states is stacked into a
    batch. A single tensor or array is passed in its own shape, so it may be a state or a batch.
    Inputs are moved to the module's device. Gradients are recorded. Calls do not change the mode of
    the module (`train`, `eval`). A loaded module is in the mode in which the factory creates it,
    for a new module of torch train mode: call ``mapper.module.eval()``.

    Args:
        factory_name: The registered name of the factory (`tenfold.register_mapper`).
        config: Arguments of the factory, ``factory(**config)``, as JSON values.
        module: A module that the factory has created already. None: the factory is called.

    Raises:
        ImportError: If torch is not installed.
        UnsupportedError: If no factory has that name.
        TypeError: If `module`, or the result of the factory, is not a ``torch.nn.Module``.
    """

    def __init__(
        self, factory_name: str, config: dict[str, Any] | None = None, module: Any = None
    ) -> None:
        torch = arrays.import_torch()
        if torch is None:
            raise ImportError("ModuleStateMapper: it needs torch, which cannot be imported")
        self.factory_name = factory_name
        self.factory_config: dict[str, Any] = {} if config is None else dict(config)
        factory = registered(factory_name, "ModuleStateMapper")
        if isinstance(factory, type) and issubclass(factory, StateMapper):
            raise UnsupportedError(
                f'ModuleStateMapper: expected the name of a factory, found "{factory_name}", which '
                "is a StateMapper"
            )
        self.module: Any = factory(**self.factory_config) if module is None else module
        if not isinstance(self.module, torch.nn.Module):
            part = f'factory "{factory_name}"' if module is None else "module"
            raise TypeError(
                f"ModuleStateMapper: {part}: expected a torch.nn.Module, found "
                f"{type(self.module).__name__}"
            )

    def __call__(self, states: Any) -> Any:
        torch = arrays.import_torch()
        if isinstance(states, torch.Tensor):
            return self.module(states.to(self._device()))
        if arrays.is_array(states):
            with using("torch"):
                states = arrays.make_array(states)
            return self.module(states.to(self._device()))
        return super().__call__(states)

    def generate(self, states: list[Any]) -> Any:
        if not states:
            raise ValueError(
                "states: a module does not define the shape of a row: expected at least one "
                "state, found none"
            )
        torch = arrays.import_torch()
        batch = torch.stack([torch.as_tensor(state) for state in states])
        return self.module(batch.to(self._device()))

    def key(self, state: Any) -> Hashable:
        tensor = arrays.import_torch().as_tensor(state)
        return tensor.dtype, tuple(tensor.shape), _bytes_of(tensor).tobytes()

    def stamp(self) -> Any:
        return tuple(
            (tensor.data_ptr(), _version_of(tensor))
            for tensor in (*self.module.parameters(), *self.module.buffers())
        )

    def config(self) -> dict[str, Any]:
        return {"factory": self.factory_name, "config": self.factory_config}

    def tensors(self) -> dict[str, Any]:
        state: dict[str, Any] = self.module.state_dict()
        return state

    @classmethod
    def restore(cls, config: dict[str, Any], tensors: Any) -> ModuleStateMapper:
        from tenfold._errors import CorruptFileError
        from tenfold._io.load_into import load_into

        name, arguments = config.get("factory"), config.get("config")
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise CorruptFileError(
                'state_mapper: config: expected a string "factory" and a JSON object "config", '
                f"found {name!r} and {type(arguments).__name__}"
            )
        mapper = cls(name, arguments)
        load_into(mapper.module, tensors)
        return mapper

    def __reduce__(self) -> tuple[Any, ...]:
        return (*super().__reduce__(), [module.training for module in self.module.modules()])

    def __setstate__(self, modes: list[bool]) -> None:
        for module, training in zip(self.module.modules(), modes, strict=True):
            module.training = training

    def _device(self) -> Any:
        for tensor in (*self.module.parameters(), *self.module.buffers()):
            return tensor.device
        return None

    def __repr__(self) -> str:
        where = f", {self._path!r}" if self._path is not None else ""
        num_parameters = sum(tensor.numel() for tensor in self.module.parameters())
        return (
            f"ModuleStateMapper({self.factory_name!r}, {self.factory_config!r}{where}: "
            f"{num_parameters:,} parameters)"
        )


def _bytes_of(tensor: Any) -> Any:
    """The elements of a tensor as a numpy array of bytes."""
    tensor = tensor.detach().cpu().contiguous()
    return tensor.reshape(-1).view(arrays.import_torch().uint8).numpy()


def _version_of(tensor: Any) -> Any:
    """A value that changes whenever the elements of a tensor change."""
    if tensor.is_inference():  # such a tensor has no version counter
        return hashlib.blake2b(_bytes_of(tensor)).digest()
    return tensor._version
