"""How objects of a tensorclass are made of TensorDicts, dicts and one another."""

from __future__ import annotations

import dataclasses

from tenfold._errors import KeyNotFoundError
from tenfold.tensordict._base import TensorDictBase
from tenfold.tensordict._entries import FOREIGN, TENSORCLASS, batch_size_of, class_kind, node_of
from tenfold.tensordict._tensorclass.delegate import delivered
from tenfold.tensordict._tensorclass.fields import class_of, fits, hint_of
from tenfold.tensordict._tensorclass.init import post_init_arguments
from tenfold.tensordict._values import NonTensorData

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class MakingMethods:
    """`from_tensordict`, `from_dict`, `empty`, copies."""

    @classmethod
    def _over(cls: Any, node: Any) -> Any:
        """An object over a TensorDict, as it is."""
        made = cls.__new__(cls)
        made.__dict__["_tensordict"] = node
        return made

    @classmethod
    def _from_tensordict(
        cls: Any, node: Any, non_tensordict: Any = None, *, rebuild: bool = True
    ) -> Any:
        """An object over a TensorDict whose keys are fields; `rebuild`: that of another object."""
        unknown = set(node._key_list()) - set(cls._field_names)
        if unknown:
            raise ValueError(
                f"{cls.__name__}: expected the keys {sorted(cls._field_names)} at most, found "
                f"{sorted(unknown)} too, which are no fields"
            )
        made = cls._over(node)
        if hasattr(cls, "__post_init__") and not (rebuild and cls._skip_post_init_on_rebuild):
            _post_init(cls, made, node)
        return made

    @classmethod
    def from_tensordict(cls: Any, tensordict: Any, non_tensordict: Any = None) -> Any:
        """An object over a TensorDict, without copying tensors.

        Nodes of fields that are annotated with a tensorclass become objects of it.

        Args:
            tensordict: The fields; of tenfold, or of the tensordict package.
            non_tensordict: More of them, as a dict.

        Raises:
            RuntimeError: If it is no TensorDict.
            ValueError: If a key is no field.
            KeyError: If a field is given twice.

        Example:
            >>> MyData.from_tensordict(TensorDict({"x": torch.zeros(3)}, [3])).x.shape
            torch.Size([3])
        """
        if class_kind(type(tensordict)) == FOREIGN:
            tensordict = TensorDictBase.from_tensordict(tensordict)
        if not isinstance(tensordict, TensorDictBase):
            raise RuntimeError(
                f"from_tensordict: expected a TensorDict, found a {type(tensordict).__name__}"
            )
        node = with_classes(cls, tensordict)
        for name, value in (non_tensordict or {}).items():
            if value is None:
                continue
            if node._has(name):
                raise KeyNotFoundError(f'from_tensordict: field "{name}": found two values')
            node = node.copy() if node is tensordict else node
            node.set_non_tensor(name, value)
        return cls._from_tensordict(node, rebuild=False)

    @classmethod
    def from_dict(
        cls: Any,
        input_dict: Mapping[Any, Any],
        *,
        auto_batch_size: bool | None = None,
        batch_size: Any = None,
        device: Any = None,
        batch_dims: int | None = None,
    ) -> Any:
        """An object of the fields in a dict; those that it lacks are None.

        Args:
            input_dict: The fields; nested dicts become TensorDicts, or what the field is annotated
                with.
            auto_batch_size: Find out the longest batch size that all tensors share.
            batch_size: The batch size.
            device: Where tensors are moved to.
            batch_dims: Find out the batch size, of at most so many dimensions.

        Raises:
            ValueError: If a key is no field.
        """
        given = {key: value for key, value in input_dict.items() if value is not None}
        if batch_size_of(batch_size):
            given = _with_values(given, batch_size_of(batch_size), device)
        node = TensorDictBase.from_dict(
            given,
            auto_batch_size=auto_batch_size,
            batch_size=batch_size,
            device=device,
            batch_dims=batch_dims,
        )
        return MakingMethods.from_tensordict.__func__(cls, node)  # type: ignore[attr-defined]

    def from_dict_instance(self: Any, input_dict: Any, **options: Any) -> Any:
        """`from_dict` with the class of this object."""
        return type(self).from_dict(input_dict, **options)

    def empty(self: Any, recurse: bool = False, **options: Any) -> Any:
        """An object whose fields are all None, otherwise as this one; see `TensorDict.empty`."""
        return type(self)._over(self._tensordict.empty(recurse, **options))

    @classmethod
    def fields(cls: Any) -> tuple[dataclasses.Field[Any], ...]:
        """The fields of the class, as `dataclasses.fields` tells them."""
        return dataclasses.fields(cls)

    def __copy__(self: Any) -> Any:
        return type(self)._from_tensordict(self._tensordict.copy())

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        return type(self)._from_tensordict(self._tensordict.clone())

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Torch's functions give objects of the class of their first argument that is one."""
        kwargs = kwargs or {}
        given = [*args, *kwargs.values()]
        flat = [one for arg in given for one in (arg if isinstance(arg, (list, tuple)) else [arg])]
        first = next(one for one in flat if class_kind(type(one)) == TENSORCLASS)
        plain = {name: _bare(arg) for name, arg in kwargs.items()}
        result = TensorDictBase.__torch_function__(
            func, types, tuple(_bare(arg) for arg in args), plain
        )
        out = kwargs.get("out")
        return out if out is not None and result is node_of(out) else delivered(first, result)


def _bare(argument: Any) -> Any:
    """An argument of torch's with TensorDicts for objects."""
    if isinstance(argument, (list, tuple)):
        return type(argument)(map(_bare, argument)) if type(argument) in (list, tuple) else argument
    return argument._tensordict if class_kind(type(argument)) == TENSORCLASS else argument


def _post_init(cls: Any, obj: Any, node: Any) -> None:
    members = getattr(node, "tensordicts", None)
    if members is None:
        obj.__post_init__(*post_init_arguments(cls))
        return
    for member in members:  # in a stack, shapes may differ
        _post_init(cls, cls._over(node_of(member)), node_of(member))


def _with_values(given: Any, batch_size: tuple[int, ...], device: Any) -> dict[Any, Any]:
    """The dict with values for numbers, which as tensors would not fit a batch size."""
    made: dict[Any, Any] = {}
    for key, value in given.items():
        if isinstance(value, dict):
            made[key] = _with_values(value, batch_size, device)
        elif isinstance(value, (bool, int, float)):
            made[key] = NonTensorData(value, batch_size, device)
        else:
            made[key] = value
    return made


def with_classes(cls: Any, node: Any) -> Any:
    """`node`, or a shallow copy in which fields annotated with a tensorclass are of that class."""
    made = node
    for name in cls._field_names:
        entry = node._entry(name) if node._has(name) else None
        if not isinstance(entry, TensorDictBase):
            continue
        inner = class_of(hint_of(cls, name))
        if inner is None or not fits(inner, entry):
            continue
        if made is node:
            made = node.copy()
        made._put(name, inner._from_tensordict(with_classes(inner, entry), rebuild=False))
    if made is not node and node.is_locked:
        made.lock_()
    return made
