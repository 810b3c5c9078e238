"""The state of a tensorclass: of `state_dict`, of files, of pickles."""

from __future__ import annotations

import os

from tenfold import _core
from tenfold._errors import KeyNotFoundError
from tenfold.tensordict import _registry
from tenfold.tensordict._base import TensorDictBase
from tenfold.tensordict._entries import node_of, unwrapped
from tenfold.tensordict._node import ON_DISK
from tenfold.tensordict._tensorclass.fields import missing, remove
from tenfold.tensordict._values import NonTensorStack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    PathLike = str | os.PathLike[str]


class StateMethods:
    """`state_dict`, `load_state_dict`; what a file is given."""

    def state_dict(
        self: Any,
        destination: Any = None,
        prefix: str = "",
        keep_vars: bool = False,
        flatten: bool = True,
    ) -> Any:
        """The tensors by dotted names; the other fields, and the class, in ``_metadata``.

        Args:
            destination: An OrderedDict that the tensors are added to.
            prefix: In front of every name.
            keep_vars: Keep the tensors in the graph of gradients.
            flatten: If false, nodes become OrderedDicts in it.
        """
        state = self._tensordict.empty().state_dict(destination, prefix, keep_vars, flatten)
        StateMethods._add_state(self, state, state._metadata, prefix, keep_vars, flatten)
        return state

    def _add_state(
        self: Any, state: Any, metadata: Any, prefix: str, keep_vars: bool, flatten: bool
    ) -> None:
        node = self._tensordict
        node._add_state(state, metadata, prefix, keep_vars, flatten)
        values: dict[str, Any] = dict.fromkeys(missing(self))
        stacks = []
        for key, entry in node._entries().items():
            if getattr(entry, "_is_non_tensor", False):
                values[key] = unwrapped(entry)
                if type(entry) is NonTensorStack:
                    stacks.append(key)
                metadata.pop(prefix + key, None)
        metadata[prefix[:-1]] = {
            "batch_size": node.batch_size,
            "device": node.device,
            "_type": type(self).__qualname__,
            "_non_tensor": values,
            **({"_stacks": stacks} if stacks else {}),
        }

    def load_state_dict(
        self: Any,
        state_dict: Any,
        strict: bool = True,
        assign: bool = False,
        from_flatten: bool | None = None,
    ) -> Any:
        """Takes over what `state_dict` gave. Returns this object.

        Args:
            state_dict: Tensors by dotted names, or nested.
            strict: If false, keys may be missing on either side.
            assign: Put the tensors in the place of those here rather than copying their values.
            from_flatten: Whether the names are dotted; None: find out.

        Raises:
            KeyError: If a key is of no field, or `strict` and of one that is None.
            RuntimeError: If `strict` and a tensor is missing.
        """
        node = self._tensordict
        about = (getattr(state_dict, "_metadata", None) or {}).get("", {})
        values = about.get("_non_tensor", {})
        here = set(node._key_list()) | set(values)
        for name in (*state_dict, *values):
            first = name.partition(".")[0]
            known = here if strict and name not in values else type(self)._field_names
            if first not in known:
                raise KeyNotFoundError(
                    f'load_state_dict: key "{name}": expected one of {sorted(known)}'
                )
        node.load_state_dict(state_dict, strict, assign, from_flatten)
        for name, value in values.items():
            if value is None:
                remove(self, name)
        return self

    def _simplified(self: Any) -> tuple[Any, ...]:
        """What `objects.simplify` answers for it: a node with the name of its class."""
        cls = type(self)
        node = self._tensordict
        disk: Any = node._disk
        members = getattr(node, "tensordicts", None)
        if members is not None:
            wrapped = [cls._over(node_of(member)) for member in members]
            return ("node", node._info(), [str(i) for i in range(len(wrapped))], wrapped)
        info = node._info()._replace(kind="tensorclass", class_name=str(cls))
        was_changed = getattr(disk, "changed", True)  # in memory there is no disk
        if was_changed or node._kind.class_name != str(cls):
            keys = node._key_list()
            held = node._items
            values = [
                disk.node.item(key) if held.get(key, ON_DISK) is ON_DISK else held[key]
                for key in keys
            ]
            return ("node", info, keys, values)
        return node._simplified()  # type: ignore[no-any-return]

    def __getstate__(self: Any) -> Any:
        return {"tensordict": self._tensordict}

    def __setstate__(self: Any, state: Any) -> None:
        self.__dict__["_tensordict"] = state["tensordict"]


def plain_metadata(metadata: Any) -> dict[str, Any]:
    """The metadata of a state without tensorclasses: as if TensorDicts had their fields.

    A tensorclass names its class and all its values in one place; None stands for no entry.
    """
    made: dict[str, Any] = {}
    for name, about in metadata.items():
        values = about.get("_non_tensor")
        if values is None or about.get("_type") in ("NonTensorData", "NonTensorStack"):
            made[name] = about
            continue
        made[name] = {key: about[key] for key in ("batch_size", "device") if key in about}
        for key, value in values.items():
            if value is not None:
                kind = "NonTensorStack" if key in about.get("_stacks", ()) else "NonTensorData"
                place = f"{name}.{key}" if name else key
                made[place] = {**made[name], "_type": kind, "_non_tensor": {"data": value}}
    return made


class FileMethods:
    """`load_memmap` and `load`; the methods that write are TensorDict's."""

    @classmethod
    def load_memmap(cls: Any, prefix: PathLike, *args: Any, **options: Any) -> Any:
        """What is saved in a folder: an object of this class, if it is one of a class of its name.

        That class may have been in another module, or in the program that was run. What else is
        saved in the folder comes as what it is.

        Args:
            prefix: The folder.
            *args: As for `TensorDict.load_memmap`.
            **options: As for `TensorDict.load_memmap`.

        Raises:
            FileNotFoundError: If there is nothing at `prefix`.
            CorruptFileError: If a file is damaged or too short.
            ValueError: If what is saved has other fields.

        Example:
            >>> Sample(torch.zeros(4), label="cat", batch_size=[4]).memmap("saved")
            >>> Sample.load_memmap("saved").label
            'cat'
        """
        _claim(cls, os.fsdecode(prefix))
        return TensorDictBase.load_memmap(prefix, *args, **options)

    @classmethod
    def load(cls: Any, prefix: PathLike, *args: Any, **options: Any) -> Any:
        """`TensorDict.load` with this class in mind, as `load_memmap`."""
        _claim(cls, os.fsdecode(prefix))
        return TensorDictBase.load(prefix, *args, **options)


def _claim(cls: Any, prefix: str) -> None:
    """Makes `cls` the class of what is saved under its name by another module."""
    if not os.path.isdir(prefix):
        return  # the loader says what is wrong
    name = str(_core.open_memmap(os.path.abspath(prefix), "r").info()[4])
    if not name or _registry.registered(name) is not None:
        return
    module, _, found = name[len("<class '") : -len("'>")].rpartition("." + cls.__qualname__)
    if module and not found and "<locals>" not in module:
        _registry.register(cls, name)
