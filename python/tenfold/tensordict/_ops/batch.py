"""The batch dimensions of a TensorDict: their size and names; its device; iteration."""

from __future__ import annotations

from tenfold._errors import UnsupportedError
from tenfold._interop import arrays
from tenfold.tensordict._entries import LEAF, batch_size_of, class_kind, node_of
from tenfold.tensordict._protocol import Primitives

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any


class BatchMethods(Primitives):
    """`batch_size` and its relatives, `names`, `device`, iteration."""

    __slots__ = ()

    @property
    def batch_size(self) -> Any:
        """The leading dimensions that all tensors share.

        Assign another one to change it; nodes below that have fewer dimensions follow.

        Raises:
            RuntimeError: On assignment, if the shape of a tensor does not begin with it.
        """
        return arrays.batch_shape(self._batch_size)

    @batch_size.setter
    def batch_size(self, batch_size: Any) -> None:
        if isinstance(batch_size, int):
            raise TypeError(f"batch_size: expected a sequence of int, found {batch_size!r}")
        new = batch_size_of(batch_size)
        if new != tuple(self._batch_size):
            self._check_batch_size(new)
            self._change_batch_size(new)

    def _check_batch_size(self, new: tuple[int, ...]) -> None:
        for key, entry in self._entries().items():
            node = node_of(entry)
            if node is not None:
                if len(node._batch_size) < len(new):
                    node._check_batch_size(new)
                    continue
                shape = node._batch_size
            elif class_kind(type(entry)) == LEAF:
                shape = tuple(entry.shape)
            elif getattr(entry, "_values", None) is not None:
                shape = entry._batch_size
            else:
                continue
            if tuple(shape[: len(new)]) != new:
                raise RuntimeError(
                    f'batch_size: key "{key}": expected a shape that begins with {list(new)}, '
                    f"found {list(shape)}"
                )

    def _change_batch_size(self, new: tuple[int, ...]) -> None:
        names = self._names
        self._batch_size = new
        if names is not None:
            kept = names[: len(new)]
            self._names = (*kept, *[None] * (len(new) - len(kept)))
        for key, entry in self._entries().items():
            node = node_of(entry)
            if node is not None:
                if len(node._batch_size) < len(new):
                    node._change_batch_size(new)
            elif hasattr(entry, "_resized") and entry.ndim < len(new):
                self._put_anyway(key, entry._resized(new))

    def auto_batch_size_(
        self, batch_dims: int | None = None, keep_compliant_size: bool = False
    ) -> Any:
        """Takes the longest batch size that all tensors share. Returns this TensorDict.

        Args:
            batch_dims: At most so many dimensions.
            keep_compliant_size: If true, nodes whose batch size is long enough keep it.
        """
        sizes = []
        for entry in self._entries().values():
            node = node_of(entry)
            if node is not None:
                if not (keep_compliant_size and len(node._batch_size) >= (batch_dims or 1)):
                    node.auto_batch_size_(batch_dims)
                if not node.is_empty():
                    sizes.append(tuple(node._batch_size))
            elif class_kind(type(entry)) == LEAF:
                sizes.append(tuple(entry.shape))
            elif getattr(entry, "_values", None) is not None:
                sizes.append(entry._batch_size)
        if sizes:
            common: list[int] = []
            for lengths in zip(*sizes, strict=False):
                if len(set(lengths)) > 1 or len(common) == batch_dims:
                    break
                common.append(lengths[0])
            self.batch_size = common
        elif batch_dims is not None and self._key_list():
            self.batch_size = self._batch_size[:batch_dims]
        return self

    @property
    def shape(self) -> Any:
        """The batch size."""
        return self.batch_size

    @property
    def batch_dims(self) -> int:
        """The number of batch dimensions."""
        return len(self._batch_size)

    @property
    def ndim(self) -> int:
        """The number of batch dimensions."""
        return len(self._batch_size)

    def dim(self) -> int:
        """The number of batch dimensions."""
        return len(self._batch_size)

    def ndimension(self) -> int:
        """The number of batch dimensions."""
        return len(self._batch_size)

    def size(self, dim: int | None = None) -> Any:
        """The batch size, or one of its dimensions."""
        return self.batch_size if dim is None else self._batch_size[dim]

    def numel(self) -> int:
        """The number of rows: the product of the batch size, at least 1."""
        count = 1
        for length in self._batch_size:
            count *= length
        return max(1, count)

    # --- names -----------------------------------------------------------------------------------

    @property
    def names(self) -> list[str | None]:
        """A name, or None, for each batch dimension; assign a list, or None, to change them.

        Raises:
            ValueError: On assignment, if a name is there twice or their number is not that of the
                batch dimensions.
        """
        return list(self._names or ()) or [None] * len(self._batch_size)

    @names.setter
    def names(self, names: Sequence[str | None] | None) -> None:
        if names is None:
            self._set_names(None)
            return
        names = tuple(names)
        if len(names) != len(self._batch_size):
            raise ValueError(
                f"names: expected {len(self._batch_size)}, one for each batch dimension, "
                f"found {len(names)}"
            )
        given = [name for name in names if name is not None]
        if len(set(given)) != len(given):
            raise ValueError(f"names: expected different ones, found {list(names)}")
        self._set_names(names if given else None)

    def _set_names(self, names: tuple[str | None, ...] | None) -> None:
        self._names = names
        for entry in self._entries().values():
            node = node_of(entry)
            if node is not None:
                if names is None:
                    node._set_names(None)
                    continue
                own = node._names or (None,) * len(node._batch_size)
                node._set_names((*names, *own[len(names) :]))

    def refine_names(self, *names: Any) -> Any:
        """Names dimensions that have no name yet; ``...`` stands for those in between.

        Returns this TensorDict.

        Raises:
            RuntimeError: If a dimension has another name already.
        """
        given = list(names)
        if Ellipsis in given:
            at = given.index(Ellipsis)
            missing = len(self._batch_size) - (len(given) - 1)
            given[at : at + 1] = self.names[at : at + missing]
        for old, new in zip(self.names, given, strict=False):
            if old is not None and old != new:
                raise RuntimeError(
                    f"refine_names: expected a dimension without a name, found {old!r} for {new!r}"
                )
        self.names = given
        return self

    def rename(self, *names: Any, **rename_map: str) -> Any:
        """A copy, sharing its tensors, with other names of the dimensions.

        Args:
            *names: A name, or None, for each batch dimension.
            **rename_map: New name by old name.
        """
        return self.clone(recurse=False).rename_(*names, **rename_map)

    def rename_(self, *names: Any, **rename_map: str) -> Any:
        """Gives the dimensions other names, as `rename`. Returns this TensorDict.

        Raises:
            ValueError: If there is no dimension of an old name.
        """
        if len(names) == 1 and (names[0] is None or isinstance(names[0], (list, tuple))):
            self.names = names[0]
        elif names:
            if rename_map:
                raise ValueError("rename: expected names or keywords, found both")
            self.names = names
        else:
            old = self.names
            for name in rename_map:
                if name not in old:
                    raise ValueError(f"rename: expected one of {old}, found {name!r}")
            self.names = [name and rename_map.get(name, name) for name in old]
        return self

    # --- device ----------------------------------------------------------------------------------

    @property
    def device(self) -> Any:
        """The device that the tensors were said to be on; None if nobody said.

        Raises:
            UnsupportedError: If the file names a device that this torch does not know.
        """
        if not self._device:
            return None
        torch = arrays.torch_or_none()
        if torch is None:
            return self._device
        try:
            return torch.device(self._device)
        except RuntimeError as error:
            opened = self._opened
            where = f"{opened.path}: " if opened is not None else ""
            raise UnsupportedError(
                f'{where}device: expected one that this torch knows, found "{self._device}"; '
                "clear_device_() forgets it"
            ) from error

    @device.setter
    def device(self, device: Any) -> None:
        raise RuntimeError("device: expected td.to(device), found an assignment")

    def clear_device_(self) -> Any:
        """Forgets the device of this and all nodes below; no tensor moves. Returns this one."""
        self._device = None
        for key, entry in list(self._entries().items()):
            node = node_of(entry)
            if node is not None:
                node.clear_device_()
            elif hasattr(entry, "_on"):
                self._put_anyway(key, entry._on(None))
        return self

    def auto_device_(self) -> Any:
        """Takes the device that all tensors are on, if it is one. Returns this TensorDict."""
        devices = {str(tensor.device) for tensor in self.values(True, True)}
        if len(devices) == 1:
            self._device = devices.pop()
        return self

    @property
    def is_cuda(self) -> bool:
        """True if the device is a GPU of NVIDIA or AMD."""
        return self.device is not None and self.device.type == "cuda"

    @property
    def is_cpu(self) -> bool:
        """True if the device is the CPU."""
        return self.device is not None and self.device.type == "cpu"

    @property
    def is_meta(self) -> bool:
        """True if the device is torch's for tensors without bytes."""
        return self.device is not None and self.device.type == "meta"

    # --- rows ------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        raise RuntimeError(
            "a TensorDict is neither true nor false: expected len(td.keys()) or td.is_empty()"
        )

    def __iter__(self) -> Iterator[Any]:
        if not self._batch_size:
            raise TypeError(
                "iteration over a 0-d TensorDict: expected a batch dimension, found batch_size []; "
                "use keys(), values() or items()"
            )
        return (self[row] for row in range(self._batch_size[0]))
