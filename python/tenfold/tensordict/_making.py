"""TensorDicts of other containers, of a list of shapes, and in memory that processes share."""

from __future__ import annotations

from tenfold.tensordict._entries import LEAF, batch_size_of, class_kind, node_of
from tenfold.tensordict._protocol import Primitives
from tenfold.tensordict._torch import need_torch
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
        from tenfold.tensordict._dense import TensorDict

        return TensorDict.from_dict(entries, **options)

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
        from tenfold.tensordict._dense import TensorDict

        batch_size = struct_array.shape if batch_size is None else batch_size_of(batch_size)
        made = TensorDict(batch_size=batch_size, device=device)
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
        import numpy as np

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
        from tenfold.tensordict._dense import TensorDict

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
        made = TensorDict(entries, batch_size=rows, device=None if is_mapped else device)
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
