"""A TensorDict as something else, and the other way round."""

from __future__ import annotations

from collections import OrderedDict

from tenfold._interop.arrays import need_torch, numpy_module
from tenfold.tensordict._entries import KINDS, LEAF, batch_size_of, class_kind, node_of, unwrapped
from tenfold.tensordict._protocol import Primitives, dense
from tenfold.tensordict._values import NonTensorStack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class MakingMethods(Primitives):
    """`from_dataclass`, `from_namedtuple`, `from_struct_array`, `from_schema`, `share_memory_`."""

    __slots__ = ()

    @classmethod
    def from_dataclass(cls, dataclass: Any, **options: Any) -> Any:
        """A TensorDict of the fields of a dataclass's object.

        Args:
            dataclass: The object.
            **options: Those of `from_dict`.

        Raises:
            TypeError: If it is no object of a dataclass.
        """
        import dataclasses

        if not dataclasses.is_dataclass(dataclass) or isinstance(dataclass, type):
            raise TypeError(
                "from_dataclass: expected an object of a dataclass, found "
                f"{dataclass!r}; tenfold.tensorclass makes a class of TensorDicts"
            )
        fields = {f.name: getattr(dataclass, f.name) for f in dataclasses.fields(dataclass)}
        return cls._from_dict(fields, options)

    @classmethod
    def from_namedtuple(cls, named_tuple: Any, **options: Any) -> Any:
        """A TensorDict of the fields of a named tuple; options as of `from_dict`."""
        pairs = zip(named_tuple._fields, named_tuple, strict=True)
        return cls._from_dict(dict(pairs), options)

    @classmethod
    def from_tuple(cls, obj: Any, **options: Any) -> Any:
        """A TensorDict of a tuple, under the keys "0", "1", ...; options as of `from_dict`."""
        return cls._from_dict({str(i): item for i, item in enumerate(obj)}, options)

    @classmethod
    def _from_dict(cls, entries: dict[str, Any], options: dict[str, Any]) -> Any:
        return dense().from_dict(entries, **options)

    @classmethod
    def from_struct_array(
        cls, struct_array: Any, *, batch_size: Any = None, device: Any = None
    ) -> Any:
        """A TensorDict of the fields of a NumPy structured array.

        The tensors share the array's memory, but for fields that torch has no strides for. Fields
        of text become values.

        Args:
            struct_array: The array; fields may be structured themselves.
            batch_size: Default: the shape of the array.
            device: Where the tensors are moved to.

        Example:
            >>> array = numpy.zeros(3, [("a", "f4"), ("b", "i8", (2,))])
            >>> TensorDict.from_struct_array(array)["b"].shape
            torch.Size([3, 2])
        """
        batch_size = struct_array.shape if batch_size is None else batch_size_of(batch_size)
        made = dense()(batch_size=batch_size, device=device)
        for name in struct_array.dtype.names:
            field = struct_array[name]
            if field.dtype.names is not None:
                value = cls.from_struct_array(field, device=device)
            elif field.dtype.kind in "US":
                value = NonTensorStack.from_list(field.tolist())
            else:
                fits = all(stride % field.itemsize == 0 for stride in field.strides)
                value = field if fits else field.copy()
            made.set(name, value)
        return made

    def to_struct_array(self) -> Any:
        """A NumPy structured array of the batch size, of copies of the entries.

        Example:
            >>> TensorDict({"a": torch.zeros(3, 2)}, [3]).to_struct_array().dtype
            dtype([('a', '<f4', (2,))])
        """
        np = numpy_module()

        ndim = len(self._batch_size)
        columns: dict[str, Any] = {}
        for key, entry in self._entries().items():
            if node_of(entry) is not None:
                columns[key] = node_of(entry).to_struct_array()
            elif class_kind(type(entry)) == LEAF:
                columns[key] = entry.detach().cpu().numpy()
            else:
                columns[key] = np.array(entry.tolist())
        fields = [(key, column.dtype, column.shape[ndim:]) for key, column in columns.items()]
        made = np.empty(self._batch_size, fields)
        for key, column in columns.items():
            made[key] = column
        return made

    @classmethod
    def from_schema(
        cls,
        schema: Mapping[str, tuple[Any, Any]],
        *,
        batch_size: Any = None,
        storage: str | None = None,
        device: Any = None,
        **kwargs: Any,
    ) -> Any:
        """A TensorDict of zeros.

        Args:
            schema: By key the shape of an entry beyond the batch dimensions, and its dtype.
            batch_size: The batch size.
            storage: None; "memmap", a folder, whose files are sparse; or "shared".
            device: Of the tensors, unless they are mapped.
            **kwargs: Of `memmap_like`: ``prefix=`` and the like.

        Raises:
            ValueError: If `storage` is another one.

        Example:
            >>> TensorDict.from_schema({"obs": ([3], torch.float32)}, batch_size=[4])["obs"].shape
            torch.Size([4, 3])
        """
        torch = need_torch("from_schema")
        if storage not in (None, "memmap", "shared"):
            raise ValueError(
                f'from_schema: expected storage None, "memmap" or "shared", found {storage!r}'
            )
        rows = batch_size_of(batch_size)
        is_mapped = storage == "memmap"
        entries = {
            key: torch.zeros((), dtype=dtype).expand(*rows, *shape)
            if is_mapped
            else torch.zeros((*rows, *shape), dtype=dtype, device=device)
            for key, (shape, dtype) in schema.items()
        }
        made = dense()(entries, batch_size=rows, device=None if is_mapped else device)
        if is_mapped:
            return made.memmap_like(**kwargs)
        return made.share_memory_() if storage == "shared" else made

    # --- memory that processes share -------------------------------------------------------------

    def share_memory_(self) -> Any:
        """Moves every tensor to memory that child processes share, and locks this TensorDict.

        Returns this TensorDict. Values that are no tensors are copied to each process.

        Raises:
            RuntimeError: If it is a mapped one, which processes share as it is.
        """
        if self.is_memmap():
            raise RuntimeError(
                "share_memory_: expected tensors in memory, found mapped ones, which processes "
                "share by their files"
            )
        self._in_place(lambda tensor: tensor.share_memory_())
        return self.lock_()

    def is_shared(self) -> bool:
        """True if it is locked and every tensor is in memory that processes share."""
        return self.is_locked and all(tensor.is_shared() for tensor in self._tensors())


#: Under this key `from_pytree` keeps which container a node was.
PYTREE_TYPE = "_pytree_type"


class ConversionMethods(Primitives):
    """`to_dict`, `from_dict`, `tolist`, `numpy`, `to_pytree`, `to_tensordict`, ..."""

    __slots__ = ()

    def to_dict(
        self,
        *,
        retain_none: bool = True,
        convert_tensors: bool = False,
        tolist_first: bool = False,
    ) -> Any:
        """The tree as plain containers: a dict, or the list or tuple that a node was saved from.

        Args:
            retain_none: If false, entries that are None are left out.
            convert_tensors: Tensors become numbers and lists of numbers.
            tolist_first: A list of one dict for each row, for nodes with batch dimensions.

        Example:
            >>> TensorDict({"a": 1, "b": {"c": "text"}}).to_dict()
            {'a': tensor(1), 'b': {'c': 'text'}}
        """
        if tolist_first and self._batch_size:
            return self.tolist(convert_tensors=convert_tensors, tolist_first=True)
        entries: dict[Any, Any] = {}
        for key, entry in self._entries().items():
            if node_of(entry) is not None:
                value = entry.to_dict(
                    retain_none=retain_none,
                    convert_tensors=convert_tensors,
                    tolist_first=tolist_first,
                )
            else:
                value = unwrapped(entry)
                if value is None and not retain_none:
                    continue
                if convert_tensors and class_kind(type(entry)) == LEAF:
                    value = value.tolist()
            entries[key] = value
        return self._as_container(entries)

    def _as_container(self, entries: dict[Any, Any]) -> Any:
        return entries

    def tolist(
        self,
        *,
        convert_nodes: bool = True,
        convert_tensors: bool = False,
        tolist_first: bool = False,
        as_linked_list: bool = False,
    ) -> Any:
        """Nested lists along the batch dimensions, of dicts.

        Args:
            convert_nodes: If false, of TensorDicts.
            convert_tensors: Tensors become numbers and lists of numbers.
            tolist_first: Nodes below with more batch dimensions become lists, too.
            as_linked_list: Accepted; the lists are plain ones.
        """
        if self._batch_size:
            return [
                row.tolist(
                    convert_nodes=convert_nodes,
                    convert_tensors=convert_tensors,
                    tolist_first=tolist_first,
                )
                for row in self.unbind(0)
            ]
        if not convert_nodes:
            return self
        return self.to_dict(convert_tensors=convert_tensors, tolist_first=tolist_first)

    def numpy(self) -> Any:
        """The tree as dicts of numpy arrays over the same memory."""
        return {
            key: entry.numpy() if node_of(entry) is not None else _as_numpy(entry)
            for key, entry in self._entries().items()
        }

    @classmethod
    def from_dict(
        cls,
        input_dict: Any,
        *,
        auto_batch_size: bool | None = None,
        batch_size: Any = None,
        device: Any = None,
        batch_dims: int | None = None,
        names: Any = None,
    ) -> Any:
        """A TensorDict of nested dicts.

        Args:
            input_dict: The entries.
            auto_batch_size: Find out the longest batch size that all tensors share.
            batch_size: The batch size.
            device: Where tensors are moved to.
            batch_dims: Find out the batch size, of at most so many dimensions.
            names: Of the batch dimensions.

        Raises:
            ValueError: If both `batch_size` and `batch_dims` are given.

        Example:
            >>> TensorDict.from_dict({"a": torch.zeros(2, 3)}, auto_batch_size=True).batch_size
            torch.Size([2, 3])
        """
        if batch_size is not None and (batch_dims is not None or auto_batch_size):
            raise ValueError(
                "from_dict: expected one of batch_size, batch_dims and auto_batch_size, found two"
            )
        made = dense()(input_dict, batch_size=batch_size, device=device)
        if auto_batch_size or batch_dims is not None:
            made.auto_batch_size_(batch_dims)
        if names is not None:
            made.names = names
        return made

    def from_dict_instance(self, input_dict: Any, **options: Any) -> Any:
        """`from_dict` with the class of this TensorDict."""
        return self.from_dict(input_dict, **options)

    @classmethod
    def from_any(
        cls,
        obj: Any,
        *,
        auto_batch_size: bool = False,
        batch_dims: int | None = None,
        device: Any = None,
        batch_size: Any = None,
    ) -> Any:
        """A TensorDict of a dict, a named tuple, a dataclass or a TensorDict; else `obj` itself."""
        import dataclasses

        options: dict[str, Any] = {
            "auto_batch_size": auto_batch_size,
            "batch_dims": batch_dims,
            "device": device,
            "batch_size": batch_size,
        }
        if node_of(obj) is not None:
            return obj
        if isinstance(obj, dict):
            return cls.from_dict(obj, **options)
        if isinstance(obj, tuple) and hasattr(obj, "_fields"):
            return MakingMethods.from_namedtuple(obj, **options)
        if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
            return MakingMethods.from_dataclass(obj, **options)
        if isinstance(obj, tuple):
            return MakingMethods.from_tuple(obj, **options)
        if isinstance(obj, list):
            return NonTensorStack.from_list(obj)
        return obj

    @classmethod
    def fromkeys(cls, keys: Any, value: Any = 0) -> Any:
        """A TensorDict with one value for every key."""
        return dense()(dict.fromkeys(keys, value))

    @classmethod
    def from_pytree(
        cls,
        pytree: Any,
        *,
        batch_size: Any = None,
        auto_batch_size: bool = False,
        batch_dims: int | None = None,
    ) -> Any:
        """A TensorDict of nested lists, tuples and dicts of tensors; `to_pytree` gives them back.

        Anything else comes back as it is.
        """
        if not isinstance(pytree, (dict, list, tuple)):
            return pytree
        made = _from_pytree(pytree, batch_size_of(batch_size))
        if auto_batch_size or batch_dims is not None:
            made.auto_batch_size_(batch_dims)
        return made

    def to_pytree(self) -> Any:
        """The lists, tuples and dicts that `from_pytree` was given; else this TensorDict."""
        if not self._has(PYTREE_TYPE):
            return self
        kind = unwrapped(self._entry(PYTREE_TYPE))
        entries = {
            key: unwrapped(entry) if node_of(entry) is None else entry.to_pytree()
            for key, entry in self._entries().items()
            if key != PYTREE_TYPE
        }
        if issubclass(kind, dict):
            return kind(entries)
        values = list(entries.values())
        return kind(*values) if hasattr(kind, "_fields") else kind(values)

    def to_namedtuple(self, dest_cls: Any = None) -> Any:
        """A named tuple of the entries, nodes as named tuples, too."""
        from collections import namedtuple

        values = {
            key: unwrapped(entry) if node_of(entry) is None else entry.to_namedtuple()
            for key, entry in self._entries().items()
        }
        made = dest_cls or namedtuple("GenericDict", list(values))
        return made(**values)

    def to_tensordict(self, *, retain_none: bool | None = None) -> Any:
        """A TensorDict of the tensordict package over the same memory.

        Args:
            retain_none: If false, entries that are None are left out.

        Raises:
            ImportError: If tensordict cannot be imported.
        """
        from tenfold._interop import tensordict_package

        return tensordict_package.made_of(self, retain_none is not False)

    @classmethod
    def from_tensordict(cls, tensordict: Any) -> Any:
        """One of ours over the same memory as a TensorDict of the tensordict package.

        Raises:
            ImportError: If tensordict cannot be imported.
            TypeError: If `tensordict` is no tree of that package.
        """
        from tenfold._interop import tensordict_package

        return tensordict_package.taken_over(tensordict)


class StateMethods(Primitives):
    """`state_dict`, `load_state_dict`."""

    __slots__ = ()

    def state_dict(
        self,
        destination: Any = None,
        prefix: str = "",
        keep_vars: bool = False,
        flatten: bool = True,
    ) -> Any:
        """The tensors by dotted names, as a module's ``state_dict()``.

        Batch sizes, devices and values that are no tensors are in its attribute ``_metadata``.

        Args:
            destination: An OrderedDict that the tensors are added to.
            prefix: In front of every name.
            keep_vars: Keep the tensors in the graph of gradients.
            flatten: If false, nodes become OrderedDicts in it.
        """
        state: Any = OrderedDict() if destination is None else destination
        if not hasattr(state, "_metadata"):
            state._metadata = OrderedDict()
        self._add_state(state, state._metadata, prefix, keep_vars, flatten)
        return state

    def _add_state(
        self, state: Any, metadata: Any, prefix: str, keep_vars: bool, flatten: bool
    ) -> None:
        metadata[prefix[:-1]] = {"batch_size": self.batch_size, "device": self.device}
        for key, entry in self._entries().items():
            node = node_of(entry)
            if node is not None:
                if flatten:
                    entry._add_state(state, metadata, f"{prefix}{key}.", keep_vars, flatten)
                    continue
                below: Any = OrderedDict()
                entry._add_state(below, metadata, f"{prefix}{key}.", keep_vars, flatten)
                state[prefix + key] = below
            elif getattr(entry, "_is_non_tensor", False):
                metadata[prefix + key] = {
                    "batch_size": self.batch_size,
                    "device": self.device,
                    "_type": type(entry).__name__,
                    "_non_tensor": {"data": unwrapped(entry)},
                }
            else:
                tensor = unwrapped(entry)
                state[prefix + key] = tensor if keep_vars else tensor.detach()

    def load_state_dict(
        self,
        state_dict: Any,
        strict: bool = True,
        assign: bool = False,
        from_flatten: bool | None = None,
    ) -> Any:
        """Takes over what `state_dict` gave. Returns this TensorDict.

        Args:
            state_dict: Tensors by dotted names, or nested.
            strict: If false, keys may be missing on either side.
            assign: Put the tensors in the place of those here rather than copying their values.
            from_flatten: Whether the names are dotted; None: find out.

        Raises:
            RuntimeError: If `strict` and the keys differ.
        """
        from tenfold.tensordict._tensorclass.state import plain_metadata

        metadata = plain_metadata(getattr(state_dict, "_metadata", None) or {})
        found = {
            name: value
            for name, value in _flat_state(state_dict, "")
            if not name.rpartition(".")[2].startswith("__")
        }
        sizes = _older_metadata(state_dict, "")
        mine = {name: path for path, name in self._state_names("", ())}
        missing = sorted(name for name in mine if name not in found and name not in metadata)
        unexpected = sorted(name for name in found if name not in mine)
        if strict and (missing or (unexpected and mine)):
            raise RuntimeError(
                f"load_state_dict: expected the keys {sorted(mine)}, missing {missing}, "
                f"unexpected {unexpected}"
            )
        sizes.update(
            (name, about["batch_size"])
            for name, about in metadata.items()
            if "_non_tensor" not in about and "batch_size" in about
        )
        self._take_sizes(sizes, make=False)
        for name, value in found.items():
            path = mine.get(name) or tuple(name.split("."))
            if path in self and not assign:
                self.set_(path, value)
            elif path in self or not mine or not strict:
                self.set(path, value)
        self._take_sizes(sizes, make=True)
        for name, about in metadata.items():
            if "_non_tensor" in about:
                self._take_value(tuple(name.split(".")), about)
        return self

    def _take_sizes(self, sizes: dict[str, Any], *, make: bool) -> None:
        """Gives nodes the batch sizes that they had, the outer ones first.

        Nodes that are not there are passed over, or made.
        """
        mine = {name: path for path, name in self._node_names("", ())}
        for name in sorted(sizes, key=lambda name: name.count(".") if name else -1):
            path = mine.get(name) or tuple(name.split("."))
            if not name:
                self.batch_size = sizes[name]
            elif make or name in mine:
                self._node_for((*path, "")).batch_size = sizes[name]

    def _take_value(self, path: tuple[str, ...], about: Any) -> None:
        data = about["_non_tensor"].get("data")
        if about.get("_type") == "NonTensorStack" and isinstance(data, list):
            self.set(path, NonTensorStack.from_list(data))
        else:
            self.set_non_tensor(path, data)

    def _node_names(self, prefix: str, above: tuple[str, ...]) -> Any:
        for key, entry in self._entries().items():
            node = node_of(entry)
            if node is not None:
                yield (*above, key), prefix + key
                yield from node._node_names(f"{prefix}{key}.", (*above, key))

    def _state_names(self, prefix: str, above: tuple[str, ...]) -> Any:
        for key, entry in self._entries().items():
            node = node_of(entry)
            if node is not None:
                yield from node._state_names(f"{prefix}{key}.", (*above, key))
            elif not getattr(entry, "_is_non_tensor", False):
                yield (*above, key), prefix + key


def _flat_state(state: Any, prefix: str) -> Any:
    for key, value in state.items():
        if isinstance(value, dict):
            yield from _flat_state(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _older_metadata(state: Any, prefix: str) -> dict[str, Any]:
    """Batch sizes by prefix as tensordict until 0.12 stored them, under ``__batch_size``."""
    found = {}
    for key, value in state.items():
        if key == "__batch_size":
            found[prefix[:-1]] = value
        elif isinstance(value, dict):
            found.update(_older_metadata(value, f"{prefix}{key}."))
    return found


def _from_pytree(pytree: Any, batch_size: tuple[int, ...]) -> Any:
    is_dict = isinstance(pytree, dict)
    pairs = pytree.items() if is_dict else enumerate(pytree)
    made = dense()(batch_size=batch_size)
    for key, value in pairs:
        if isinstance(value, (dict, list, tuple)):
            value = _from_pytree(value, batch_size)
        made.set(str(key), value)
    made.set_non_tensor(PYTREE_TYPE, type(pytree))
    return made


def _as_numpy(entry: Any) -> Any:
    value = unwrapped(entry)
    return value.numpy() if hasattr(value, "numpy") else value


def register(torch: Any) -> None:
    """Tells torch how to take a TensorDict apart and make one again."""
    torch.utils._pytree.register_pytree_node(dense(), _flatten, _unflatten)


class _Shapes(list):  # type: ignore[type-arg]
    """Shapes of tensors: nothing that tells the structures of two trees apart."""

    __slots__ = ()
    __hash__ = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shapes)

    def __ne__(self, other: object) -> bool:
        return not self == other


def _flatten(td: Any) -> tuple[list[Any], Any]:
    entries = td._entries()
    kept = {key: entry for key, entry in entries.items() if _is_value(entry)}
    keys = [key for key in entries if key not in kept]
    values = [entries[key] for key in keys]
    # torch puts other things than tensors into a tree, to say what becomes of each.
    shapes = _Shapes(tuple(getattr(value, "shape", ())) for value in values)
    return values, (keys, kept, tuple(td._batch_size), td._device, shapes)


def _is_value(entry: Any) -> bool:
    return KINDS[type(entry)] != LEAF and hasattr(entry, "_unwrapped")


def _unflatten(values: Any, context: Any) -> Any:
    keys, kept, batch_size, device, old = context
    items = dict(zip(keys, values, strict=True))
    new = [tuple(getattr(value, "shape", shape)) for value, shape in zip(values, old, strict=True)]
    return dense()._made({**items, **kept}, _batch_size_after(batch_size, list(old), new), device)


def _batch_size_after(
    batch_size: tuple[int, ...], old: list[tuple[int, ...]], new: list[tuple[int, ...]]
) -> tuple[int, ...]:
    """The batch size of entries whose shapes were `old` and are `new`.

    ``torch.vmap`` takes one dimension away from all tensors of its arguments, and puts one into
    those of its results.
    """
    if old == new:
        return batch_size
    for at in range(len(batch_size)):
        if [_less(shape, at) for shape in old] == new:
            return _less(batch_size, at)
    for at in range(len(batch_size) + 1):
        lengths = {shape[at] for shape in new if len(shape) > at}
        if len(lengths) == 1 and [_less(shape, at) for shape in new] == old:
            return (*batch_size[:at], *lengths, *batch_size[at:])
    return batch_size if all(shape[: len(batch_size)] == batch_size for shape in new) else ()


def _less(shape: tuple[int, ...], at: int) -> tuple[int, ...]:
    """A shape without the dimension `at`."""
    return (*shape[:at], *shape[at + 1 :])
