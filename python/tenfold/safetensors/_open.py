"""Access to the tensors of a safetensors file by their names in its header."""

from __future__ import annotations

import os

from tenfold import _core
from tenfold._errors import Error, UnsupportedError
from tenfold._interop.arrays import need_torch
from tenfold._interop.frameworks import code_of
from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Self

    PathLike = str | os.PathLike[str]

# An alias for programs that were written for the package safetensors: their
# `except SafetensorError` catches errors about damaged files, missing names and unsupported
# frameworks.
SafetensorError = Error

_FRAMEWORKS = {
    "pt": "torch",
    "torch": "torch",
    "pytorch": "torch",
    "np": "numpy",
    "numpy": "numpy",
}


@set_module("tenfold.safetensors")
class TensorNotFoundError(Error, KeyError):
    """Raised if the file has no tensor of the requested name."""

    __str__ = Error.__str__


@set_module("tenfold.safetensors")
class safe_open:  # noqa: N801 - safetensors' name
    """Opens a safetensors file lazily, as `safetensors.safe_open` does.

    The whole header is checked; tensors are mapped on access.

    Args:
        filename: The path of one file.
        framework: ``"pt"`` (``"torch"``, ``"pytorch"``) or ``"np"`` (``"numpy"``).
        device: The device of the tensors, as ``torch.device`` accepts it; ``"cpu"`` for numpy.
        backend: ``"mmap"``: torch tensors are private copy-on-write maps of the file; numpy arrays
            are read-only maps. ``"pread"``: tensors and arrays are writable copies in memory. On
            another device than the CPU, tensors are always copies.

    Raises:
        FileNotFoundError: If there is no such file.
        CorruptFileError: If the header is damaged or the file is too short.
        UnsupportedError: For another framework or backend, for numpy with another device than
            ``"cpu"``, and if the file has a dtype that tenfold does not support.
        ImportError: If torch cannot be imported, unless the framework is numpy.

    Example:
        >>> with safe_open("model.safetensors", framework="pt") as f:
        ...     weight = f.get_tensor("weight")
        ...     rows = f.get_slice("embedding")[:100]
    """

    def __init__(
        self,
        filename: PathLike,
        framework: str,
        device: Any = "cpu",
        *,
        backend: str = "mmap",
    ) -> None:
        if framework not in _FRAMEWORKS:
            raise UnsupportedError(
                f'safe_open: framework: expected "pt" or "np", found {framework!r}; open the file '
                "with one of these and convert the tensors"
            )
        if backend not in ("mmap", "pread"):
            raise UnsupportedError(
                f'safe_open: backend: expected "mmap" or "pread", found {backend!r}'
            )
        self._path = os.fsdecode(filename)
        self._use_numpy = _FRAMEWORKS[framework] == "numpy"
        self._device = _checked_device(device, self._use_numpy)
        self._copies = backend == "pread"
        self._node: Any
        self._node, entries, self._metadata = _core.open_flat_safetensors(self._path)
        self._entries = {name: (dtype, shape) for name, dtype, shape in entries}
        self._tied: Any = tied_of(self._use_numpy)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Returned tensors keep the file mapped.
        self._node = self._tied = None

    def keys(self) -> list[str]:
        """Returns the names of the tensors, sorted."""
        self._require_open()
        return sorted(self._entries)

    def offset_keys(self) -> list[str]:
        """Returns the names of the tensors in the order of the data in the file."""
        self._require_open()
        return list(self._entries)

    def metadata(self) -> dict[str, str] | None:
        """Returns ``__metadata__`` without tenfold's checksums; None if it has no other keys."""
        self._require_open()
        return dict(self._metadata) or None

    def get_tensor(self, name: str) -> Any:
        """Returns a tensor; with framework ``"np"`` a numpy array.

        Args:
            name: The name of the tensor in the file.

        Raises:
            KeyError: If the file has no such tensor. The exception is a `SafetensorError` as well.
            SafetensorError: If the file is closed.
            UnsupportedError: For a dtype that numpy or this version of torch does not have.

        Example:
            >>> _ = tenfold.save({"x": torch.ones(2)}, "x.safetensors")
            >>> with safe_open("x.safetensors", framework="pt") as file:
            ...     file.get_tensor("x")
            tensor([1., 1.])
        """
        self._require_tensor(name)
        return self._placed(self._mapped(name))

    def get_tensors(self) -> dict[str, Any]:
        """Returns all tensors by name, in the order of the data in the file."""
        self._require_open()
        return {name: self.get_tensor(name) for name in self._entries}

    def get_slice(self, name: str) -> SafeSlice:
        """Returns a lazy tensor: indexing reads only the selected elements.

        Args:
            name: The name of the tensor in the file.

        Raises:
            KeyError: If the file has no such tensor. The exception is a `SafetensorError` as well.
            SafetensorError: If the file is closed.

        Example:
            >>> _ = tenfold.save({"x": torch.ones(2, 3)}, "x.safetensors")
            >>> with safe_open("x.safetensors", framework="pt") as file:
            ...     file.get_slice("x")[:, :1].shape
            torch.Size([2, 1])
        """
        self._require_tensor(name)
        return SafeSlice(self, name)

    def _mapped(self, name: str) -> Any:
        self._require_open()
        return self._node.get(name, "r", self._tied)[0]

    def _placed(self, tensor: Any) -> Any:
        if self._use_numpy:
            return tensor.copy() if self._copies else tensor
        if self._device is not None:
            return tensor.to(self._device)
        return tensor.clone() if self._copies else tensor

    def _require_open(self) -> None:
        if self._node is None:
            raise Error(f"{self._path}: the file is closed")

    def _require_tensor(self, name: str) -> None:
        self._require_open()
        if name not in self._entries:
            raise TensorNotFoundError(f"{self._path}: no tensor {name!r}")


@set_module("tenfold.safetensors")
class SafeSlice:
    """A tensor of a file that was opened with `safe_open`; indexing reads the selected elements."""

    def __init__(self, file: safe_open, name: str) -> None:
        self._file = file
        self._name = name

    def get_shape(self) -> list[int]:
        """Returns the shape of the tensor."""
        return list(self._file._entries[self._name][1])

    def get_dtype(self) -> str:
        """Returns the name of the dtype in the safetensors format, such as ``"F32"``."""
        return str(self._file._entries[self._name][0])

    def __getitem__(self, index: Any) -> Any:
        file = self._file
        return file._placed(file._mapped(self._name)[index])


def tied_of(use_numpy: bool) -> Any:
    """An empty cache of the arrays of a file, which the binding fills and uses.

    Raises:
        ImportError: If torch is needed and cannot be imported.
    """
    if not use_numpy:
        need_torch("tenfold.safetensors")
    return _core.Tied(code_of("numpy" if use_numpy else "torch"))


def _checked_device(device: Any, use_numpy: bool) -> Any:
    """The torch device to which tensors are copied; None for the CPU."""
    if str(device) == "cpu":
        return None
    if use_numpy:
        raise UnsupportedError(f'safe_open: device: expected "cpu" for numpy, found {device!r}')
    try:
        made = need_torch("safe_open").device(device)
    except (RuntimeError, TypeError) as error:
        raise SafetensorError(f"safe_open: device: {error}") from None
    return None if made.type == "cpu" else made


def metadata_of(metadata: Any) -> dict[str, str]:
    """A copy of `metadata`; {} for None. Raises TypeError unless it is a dict of str to str."""
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise TypeError(f"metadata: expected a dict of str, found {type(metadata).__name__}")
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"metadata: expected str keys and values, found {key!r}: {value!r}")
    return dict(metadata)
