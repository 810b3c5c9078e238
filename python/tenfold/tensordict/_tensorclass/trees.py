"""A tensorclass as a dict or a TensorDict, and fields taken from one."""

from __future__ import annotations

from tenfold.tensordict._base import TensorDictBase
from tenfold.tensordict._entries import node_of
from tenfold.tensordict._keys import path_of
from tenfold.tensordict._node import PLAIN
from tenfold.tensordict._protocol import stacked
from tenfold.tensordict._tensorclass.fields import missing, remove, require, set_field
from tenfold.tensordict._tensorclass.making import with_classes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class TreeMethods:
    """`to_dict`, `to_tensordict`, `select`, `rename_keys`, `update` and its relatives."""

    def to_dict(self: Any, *, retain_none: bool = True, **options: Any) -> dict[str, Any]:
        """The fields as a dict, objects in them as dicts too; see `TensorDict.to_dict`.

        Args:
            retain_none: If false, without the fields that are None.
            **options: As for `TensorDict.to_dict`.
        """
        made: dict[str, Any] = self._tensordict.to_dict(retain_none=retain_none, **options)
        if retain_none and isinstance(made, dict):
            made.update(dict.fromkeys(missing(self)))
        return made

    def to_tensordict(self: Any, *, retain_none: bool | None = None) -> Any:
        """A copy of the fields as a TensorDict; objects in them become TensorDicts, too.

        Args:
            retain_none: If true, with entries of None for the fields that are None.
        """
        made = _plain_copy(self._tensordict)
        for name in missing(self) if retain_none else ():
            made.set_non_tensor(name, None)
        return made

    def select(
        self: Any,
        *keys: Any,
        inplace: bool = False,
        strict: bool = True,
        as_tensordict: bool = False,
    ) -> Any:
        """An object in which the other fields are None; see `TensorDict.select`.

        Args:
            *keys: Fields, or paths of keys.
            inplace: Change this object instead.
            strict: If false, keys that name nothing are passed over.
            as_tensordict: Give a TensorDict.
        """
        made = self._tensordict.select(*keys, inplace=inplace, strict=strict)
        if as_tensordict:
            return made
        return self if made is self._tensordict else type(self)._from_tensordict(made)

    def rename_keys(self: Any, mapping: Mapping[Any, Any], *, strict: bool = True) -> Any:
        """An object whose entries have moved to other fields; see `TensorDict.rename_keys`.

        Raises:
            AttributeError: If a new key is no field.
            KeyError: If `strict` and an old key names nothing.
        """
        for new in mapping.values():
            require(type(self), path_of(new)[0])
        return type(self)._from_tensordict(self._tensordict.rename_keys(mapping, strict=strict))

    def replace(self: Any, *args: Any, **kwargs: Any) -> Any:
        """A copy, sharing its tensors, with some fields replaced.

        Raises:
            ValueError: If there is no such field.
        """
        if len(args) > 1:
            raise ValueError(f"replace: expected at most one dict, found {len(args)} arguments")
        if not args and not kwargs:
            return self
        source = args[0] if args else {}
        return TreeMethods.update(self.copy(), source, **kwargs)

    def update(
        self: Any, input_dict_or_td: Any = None, clone: bool = False, inplace: bool = False,
        **options: Any,
    ) -> Any:  # fmt: skip
        """Sets every field of a dict, a TensorDict or an object. Returns this object.

        Nodes are merged; None in a dict makes a field None.

        Args:
            input_dict_or_td: The fields.
            clone: Copy the tensors first.
            inplace: Write into tensors that are there.
            **options: As for `TensorDict.update`, and more fields.

        Raises:
            ValueError: If a key is no field.
            RuntimeError: If a shape does not fit, or this object is locked.
        """
        more, options = _parted(options)
        options.update(clone=clone, inplace=inplace)
        if input_dict_or_td is None or isinstance(input_dict_or_td, dict):
            given = {**(input_dict_or_td or {}), **more}
            return _update_from_dict(self, given, options) if given else self
        node = node_of(input_dict_or_td)
        if node is not None:
            _check_keys(type(self), node._key_list())
        self._tensordict.update(input_dict_or_td if node is None else node, **options)
        return _update_from_dict(self, more, options) if more else self

    def update_(
        self: Any, input_dict_or_td: Any = None, clone: bool = False, **options: Any
    ) -> Any:
        """Writes fields into the tensors that are there; see `TensorDict.update_`."""
        more, options = _parted(options)
        for source in (input_dict_or_td, more):
            if source is not None and (source is not more or more):
                node = node_of(source)
                self._tensordict.update_(source if node is None else node, clone, **options)
        return self


_UPDATE_OPTIONS = frozenset(
    ["keys_to_update", "non_blocking", "update_batch_size", "ignore_lock", "is_leaf", "inplace"]
)


def _parted(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keywords that are fields, and those that are options."""
    more = {name: value for name, value in options.items() if name not in _UPDATE_OPTIONS}
    return more, {name: value for name, value in options.items() if name in _UPDATE_OPTIONS}


def _check_keys(cls: Any, keys: Any) -> None:
    unknown = {path_of(key)[0] for key in keys} - set(cls._field_names)
    if unknown:
        raise ValueError(
            f"{cls.__name__}: expected the keys {sorted(cls._field_names)} at most, found "
            f"{sorted(unknown)} too, which are no fields"
        )


def _update_from_dict(obj: Any, given: dict[Any, Any], options: dict[str, Any]) -> Any:
    cls = type(obj)
    _check_keys(cls, given)
    wanted = options.get("keys_to_update")
    wanted = None if wanted is None else {path_of(key)[0] for key in wanted}
    rest = {}
    for key, value in given.items():
        if value is None and key in cls._field_names:
            if wanted is None or key in wanted:
                remove(obj, key)
        elif isinstance(value, (bool, int, float)) and not options["inplace"] and wanted is None:
            if isinstance(key, str):
                set_field(obj, key, value)
            else:
                rest[key] = value
        else:
            rest[key] = value
    if rest:
        source = with_classes(cls, TensorDictBase.from_dict(rest))
        obj._tensordict.update(source, **options)
    return obj


def _plain_copy(node: Any) -> Any:
    """A copy of a tree without tensorclasses."""
    if isinstance(node, stacked()):
        members = [_plain_copy(node_of(member)) for member in node.tensordicts]
        return stacked()._of(members, node.stack_dim, node._dim_name)
    made = node._with_entries({})
    made._kind = PLAIN
    for key, entry in node._entries().items():
        inner = node_of(entry)
        made._put(key, entry.clone() if inner is None else _plain_copy(inner))
    return made
