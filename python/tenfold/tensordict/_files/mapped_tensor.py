"""`MemoryMappedTensor`: a tensor over a file, or over memory that processes can share."""

from __future__ import annotations

import math
import os
import tempfile
from multiprocessing import reduction

import torch

from tenfold import _core, _pickle
from tenfold._interop import arrays
from tenfold._options import path_argument
from tenfold._paths import exists
from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    PathLike = str | os.PathLike[str]


_SHARED_MEMORY = "/dev/shm"
_NOT_SET: Any = object()  # the fill value of `MemoryMappedTensor.empty`: elements are not set


class AnonymousFile:
    """An unnamed temporary file, freed when no process has it open or mapped.

    It is in /dev/shm if there is enough space, otherwise in the folder for temporary files. It
    takes no space until it is written.

    Args:
        size_bytes: Initial size in bytes.

    Attributes:
        path: A path that opens the file in this process.
    """

    __slots__ = ("_file", "path")

    def __init__(self, size_bytes: int) -> None:
        # The file stays open during the lifetime of this object.
        file = tempfile.TemporaryFile(  # noqa: SIM115
            prefix="tenfold-", dir=_folder_for(size_bytes)
        )
        self._hold(file)
        if size_bytes:
            os.ftruncate(self._file.fileno(), size_bytes)

    def _hold(self, file: Any) -> None:
        self._file = file
        self.path = f"/dev/fd/{file.fileno()}"

    def __reduce__(self) -> NoReturn:
        raise RuntimeError(
            "shared memory cannot be pickled: expected a tensor of a named file, or a call of "
            "multiprocessing, which sends the memory itself; create the tensor with filename=, or "
            "the TensorDict with memmap(prefix)"
        )


def _folder_for(size_bytes: int) -> str | None:
    try:
        found = os.statvfs(_SHARED_MEMORY)
    except OSError:
        return None
    return _SHARED_MEMORY if found.f_bavail * found.f_frsize >= size_bytes else None


def _reduced(file: AnonymousFile) -> tuple[Any, tuple[Any, ...]]:
    return _pickle.anonymous_file, (reduction.DupFd(file._file.fileno()),)


def received(descriptor: Any) -> AnonymousFile:
    """Restores an AnonymousFile from a file descriptor that another process sent."""
    made = AnonymousFile.__new__(AnonymousFile)
    made._hold(os.fdopen(descriptor.detach(), "r+b", buffering=0))
    return made


# Registered only with multiprocessing's pickler, because only this one can send file descriptors.
reduction.register(AnonymousFile, _reduced)


def map_file(
    path: str,
    offset: int,
    dtype: Any,
    shape: Any,
    strides: Any,
    mode: str,
    handler: Any,
    identity: Any = None,
) -> tuple[Any, Any]:
    """Maps a part of a file. Returns a plain tensor and its MappedFile.

    If the shape has no elements, no file is opened, and the file need not exist.
    """
    if not torch.Size(shape).numel():
        plain = torch.empty(torch.Size(shape), dtype=dtype)
        named = os.path.abspath(path) if handler is None else None
        return plain, _core.MappedFile(named, mode, 0, handler)
    name = arrays.dtype_name(dtype)
    return _core.map_tensor(path, offset, name, tuple(shape), strides, mode, handler, identity)


def _lengths_of(shape: Any) -> tuple[int, ...]:
    """The shape in the file; the elements of a nested tensor are stored in one dimension."""
    return (nested_numel(shape),) if isinstance(shape, torch.Tensor) else shape


def _component_numels(tensor: torch.Tensor) -> list[int]:
    """Numbers of elements of the components of a nested tensor, or of the rows of a dense one."""
    if tensor.is_nested:
        return [math.prod(sizes) for sizes in tensor._nested_tensor_size().tolist()]
    return [math.prod(tensor.shape[1:])] * len(tensor)


def checked_shape(shape: Any, at_least: int = 0) -> Any:
    """Returns a shape as a torch.Size, and the sizes of a nested tensor unchanged.

    `at_least`: -1 if a length may be -1, as in ``torch.Tensor.view``.

    Raises:
        TypeError: If `shape` is neither an int, nor a sequence of ints, nor a tensor ``[n, k]``.
        RuntimeError: If a length is too small.
    """
    is_nested = isinstance(shape, torch.Tensor) and shape.ndim == 2
    if is_nested:
        lengths, at_least = shape.flatten().tolist(), 0
    else:
        try:
            given: Any = [shape] if isinstance(shape, int) else shape
            lengths = torch.Size(given)
        except TypeError:
            raise TypeError(
                "shape: expected an int, a sequence of ints, or for a nested tensor an int64 "
                f"tensor [n, k] of sizes, found {shape!r}"
            ) from None
    if any(length < at_least for length in lengths):
        raise RuntimeError(f"shape: expected lengths of {at_least} or more, found {list(lengths)}")
    return shape if is_nested else lengths


def _shown(shape: Any) -> list[Any]:
    shown: list[Any] = shape.tolist() if isinstance(shape, torch.Tensor) else list(shape)
    return shown


def _checked_dtype(dtype: Any) -> torch.dtype:
    """Returns the dtype of torch for a dtype of torch or numpy, or for its name.

    Raises:
        TypeError: If `dtype` is neither a str nor a dtype that torch has.
        ValueError: If `dtype` is a str that is not the name of a dtype.
    """
    if isinstance(dtype, torch.dtype):
        return dtype
    name = arrays.dtype_name(dtype)
    found: torch.dtype | None = getattr(torch, name, None) if name in arrays.DTYPES else None
    if found is not None:
        return found
    error: type[Exception] = ValueError if isinstance(dtype, str) else TypeError
    raise error(f"dtype: expected a torch.dtype, such as torch.float32, found {dtype!r}")


def _is_cpu(device: Any) -> bool:
    try:
        return device is None or torch.device(device).type == "cpu"
    except (TypeError, RuntimeError):
        raise TypeError(f"device: expected None or the cpu, found {device!r}") from None


def reserve(filename: PathLike, size_bytes: int, existsok: bool) -> None:
    """Creates a file of `size_bytes`, or extends a shorter file. Creates none for 0 bytes."""
    path = os.path.abspath(filename)
    if os.path.islink(path):
        raise RuntimeError(
            f"{path}: refusing to write memory-mapped tensor through symlink: expected a file or "
            "nothing, found a link; remove it first"
        )
    if not existsok and exists(path):
        raise _exists(path)
    if not size_bytes:
        return
    try:
        _core.reserve_file(path, size_bytes, existsok)
    except FileExistsError:
        raise _exists(path) from None
    except FileNotFoundError:
        raise RuntimeError(
            f"No such file or directory: {path}: expected its folder to exist, found none"
        ) from None


def _exists(path: str) -> RuntimeError:
    return RuntimeError(f"{path}: the file already exists: expected none; pass existsok=True")


def is_view(whole: torch.Tensor, part: torch.Tensor, index: Any) -> bool:
    """True if `part`, the result of `whole[index]`, shares the bytes of `whole`."""
    kind = type(index)
    if kind is int or kind is slice or index is None or index is Ellipsis:
        return True
    if kind is tuple and all(type(i) is int or type(i) is slice for i in index):
        return True
    return part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()


def shape_from(size: tuple[Any, ...], options: dict[str, Any]) -> Any:
    if not size:
        if "shape" not in options:
            raise TypeError("shape: expected lengths, found none")
        shape: Any = options.pop("shape")
    else:
        shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    return checked_shape(shape)


def nested_numel(sizes: torch.Tensor) -> int:
    return int(sizes.prod(-1).sum())


def as_nested(flat: torch.Tensor, sizes: torch.Tensor | None) -> torch.Tensor:
    if sizes is None:
        return flat
    made: torch.Tensor = arrays.nested_array(flat, [tuple(row) for row in sizes.tolist()])
    return made


def _dense_shape(input: Any) -> Any:
    """The shape of `input`, the argument of a ``_like`` form.

    Raises:
        TypeError: If `input` is neither a tensor nor an array.
        ValueError: If `input` is nested.
    """
    if not arrays.is_array(input):
        raise TypeError(f"input: expected a tensor, found {type(input).__name__}")
    if getattr(input, "is_nested", False):
        raise ValueError(
            "input: expected a tensor that is not nested, found a nested one; call empty, zeros, "
            "ones or full with shape=, an int64 tensor [n, k] of sizes"
        )
    return input.shape


@set_module("tenfold")
class MemoryMappedTensor(torch.Tensor):
    """A tensor in main memory whose bytes are those of a file.

    Writing into the tensor writes into the file, unless the file was opened with mode "r" or "c".
    Without a file name, `from_tensor`, `empty`, `zeros`, `ones`, `full` and the ``_like`` forms use
    memory that processes share. Indexing that returns a view (except of a tensor that the
    constructor or `from_storage` created without a file), `unbind`, `split`, `chunk` and `detach`
    return MemoryMappedTensors over the same bytes. In-place operations return the tensor itself, as
    do operations that have nothing to change, such as `contiguous` and `cpu`. All other operations
    return plain tensors, without extra cost.

    The tensor pickles as the file's path, so that no data is sent to another process. A tensor
    in memory that processes share can be sent by `multiprocessing` only. A tensor that the
    constructor or `from_storage` created without a file pickles with its data.

    Create a MemoryMappedTensor with `from_tensor`, `from_filename`, `from_storage`, `empty`,
    `zeros`, `ones`, `full` or the ``_like`` forms of the last four. The constructor calls one of
    the first three, except for a tensor without `filename`, which it wraps.

    Args:
        source: A tensor or another object that ``torch.as_tensor`` accepts; or a storage; or the
            name of a file as a str, which requires `dtype` and `shape`.
        dtype: Element type in the file, or of the storage. Ignored for a tensor without `filename`.
        shape: Shape of the tensor in the file, or over the storage. Ignored for a tensor without
            `filename`.
        index: Applied to the result.
        device: None or the CPU.
        filename: A file that a tensor is copied to, or from which a storage is mapped. None: a
            tensor is wrapped without a copy or a file.

    Raises:
        ValueError: If `device` is not the CPU.
        TypeError: If `source` is a file name, and `filename` is given or `dtype` or `shape` is
            missing; if `source` is a tensor, and both `filename` and `dtype` are given.
        RuntimeError, NotImplementedError, OSError, CorruptFileError: As for `from_tensor`,
            `from_storage` and `from_filename`.

    Example:
        >>> x = MemoryMappedTensor.from_tensor(torch.zeros(2, 3), filename="x.memmap")
        >>> x[0] += 1
        >>> MemoryMappedTensor.from_filename("x.memmap", torch.float32, (2, 3)).sum()
        tensor(3.)
    """

    #: Location of the bytes, a `_core.MappedFile`; None if no file is known.
    _file: Any = None

    # Operations run as on plain tensors, and the tensors that they create are plain.
    __torch_function__: Any = torch._C._disabled_torch_function_impl

    def __new__(
        cls,
        source: Any,
        *,
        dtype: Any = None,
        shape: Any = None,
        index: Any = None,
        device: Any = None,
        filename: PathLike | None = None,
    ) -> Any:
        if not _is_cpu(device):
            raise ValueError(f"device: expected the cpu, found {device}")
        if isinstance(source, str):
            given = {"dtype": dtype, "shape": shape}
            missing = [name for name, value in given.items() if value is None]
            if missing or filename is not None:
                found = f"no {' and no '.join(missing)}" if missing else "filename"
                raise TypeError(
                    f"source is a file name: expected dtype, shape and no filename, found {found}"
                )
            return cls.from_filename(source, dtype, shape, index)
        if isinstance(source, (torch.UntypedStorage, torch.TypedStorage)):
            return cls.from_storage(
                source, shape=shape, dtype=dtype, index=index, filename=filename
            )
        try:
            tensor = torch.as_tensor(source)
        except (RuntimeError, TypeError, ValueError) as error:
            raise type(error)(
                "source: expected a tensor, another object that torch.as_tensor accepts, a storage "
                f"or the name of a file as a str, found {type(source).__name__}: {error}"
            ) from None
        if filename is None:
            made = tensor.as_subclass(cls)
        elif dtype is not None:
            raise TypeError(
                f"dtype: expected None if source is a tensor, which has a dtype, found {dtype}"
            )
        else:
            made = cls.from_tensor(tensor, filename=filename, shape=shape)
        return made if index is None else made[index]

    def __init__(self, *arguments: Any, **options: Any) -> None: ...

    # --- constructors ----------------------------------------------------------------------------

    @classmethod
    def from_tensor(
        cls,
        input: torch.Tensor,
        *,
        filename: PathLike | None = None,
        existsok: bool = False,
        copy_existing: bool = False,
        copy_data: bool = True,
        shape: Any = None,
    ) -> MemoryMappedTensor:
        """Copies a tensor into a file.

        Args:
            input: A dense tensor, or a strided nested one.
            filename: The file; None: memory that processes share.
            existsok: Overwrite an existing file.
            copy_existing: Copy `input` to `filename` even if `input` is mapped from a named file.
            copy_data: If false, only create the file, filled with zeros, or keep the content of an
                existing one.
            shape: Shape of the result; if data is copied, with as many elements as `input`. For a
                nested tensor, an int64 tensor ``[n, k]`` of sizes; component i has as many elements
                as component i (or row i) of `input`. An `input` without dimensions is expanded to
                `shape`.

        Returns:
            MemoryMappedTensor: The copy; `input` itself, whatever `shape` is, if it is mapped from
            `filename` with mode "r+", or if `filename` is None and it is mapped from a file without
            a name.

        Raises:
            RuntimeError: If the file exists and `existsok` is false, if the path is a symlink or
                its folder is missing, if `input` requires grad or does not fit `shape`, or if
                `filename` is given, `copy_existing` is false, and `input` is mapped from another
                named file, or from `filename` with mode "r" or "c".
            TypeError: If `input` is not a tensor, or another argument has another type.
            NotImplementedError: If `input` is a jagged nested tensor; or if data is copied, and
                `input` is sparse, quantized or on the meta device.

        Example:
            >>> MemoryMappedTensor.from_tensor(torch.arange(3), filename="x.memmap")
            MemoryMappedTensor([0, 1, 2])
        """
        if not isinstance(input, torch.Tensor):
            raise TypeError(f"input: expected a torch.Tensor, found {type(input).__name__}")
        if isinstance(input, MemoryMappedTensor) and input._file is not None:
            named = input._file.path
            if _is_mapped_from(input, filename):
                return input
            if named is not None and filename is not None and not copy_existing:
                raise RuntimeError(
                    f"{os.path.abspath(filename)}: A filename was provided but the tensor already "
                    f"has a file associated: expected a tensor in memory, found one mapped from "
                    f"{named}; pass copy_existing=True"
                )
        if input.requires_grad:
            raise RuntimeError(
                "input: a tensor that requires grad cannot be mapped: expected "
                "requires_grad=False, found True; pass tensor.detach()"
            )
        if input.is_nested and input.layout is not torch.strided:
            raise NotImplementedError(
                "memmap does not support nested tensors with the torch.jagged layout: expected the "
                "torch.strided layout; convert it with torch.nested.nested_tensor(list("
                "tensor.unbind()), layout=torch.strided)"
            )
        if shape is None:
            shape = input._nested_tensor_size() if input.is_nested else input.shape
        else:
            shape = checked_shape(shape)
        if copy_data:
            cls._require_copyable(input, shape)
            whole = getattr(input, "full_tensor", None)  # for a DTensor
            input = input if whole is None else whole()
        made = cls._made(shape, input.dtype, filename, existsok)
        if copy_data:
            made._copy(input)
        return made

    @staticmethod
    def _require_copyable(source: torch.Tensor, shape: Any) -> None:
        """Raises an error unless `_copy` can copy `source` to a tensor of `shape`."""
        missing = arrays.without_elements(source)
        if missing:
            raise NotImplementedError(f"input: expected a dense tensor, found {missing}")
        if source.ndim and math.prod(_lengths_of(shape)) != source.numel():
            raise RuntimeError(
                f"shape: expected a shape of {source.numel()} elements, as the tensor has, found "
                f"{_shown(shape)}"
            )
        if isinstance(shape, torch.Tensor) and source.ndim:
            wanted, found = shape.tolist(), _component_numels(source)
            if len(wanted) != len(found):
                raise RuntimeError(
                    f"shape: expected sizes of {len(found)} components, as the tensor has, found "
                    f"{len(wanted)}"
                )
            for number, (sizes, count) in enumerate(zip(wanted, found, strict=True)):
                if math.prod(sizes) != count:
                    raise RuntimeError(
                        f"shape: component {number}: expected sizes whose product is {count}, "
                        f"its number of elements, found {sizes}"
                    )
        elif source.is_nested and source.numel():
            raise RuntimeError(
                "shape: expected an int64 tensor [n, k] of sizes for a nested tensor, found "
                f"{list(shape)}"
            )

    def _copy(self, source: torch.Tensor) -> None:
        if self.is_nested:
            components = self.unbind()
            sources = source.unbind() if source.ndim else [source] * len(components)
            for mine, theirs in zip(components, sources, strict=True):
                mine.copy_(theirs.reshape(mine.shape) if theirs.ndim else theirs)
        elif self.numel():
            self.copy_(
                source.expand(self.shape) if source.ndim == 0 else source.reshape(self.shape)
            )

    @classmethod
    def _made(
        cls, shape: Any, dtype: torch.dtype, filename: PathLike | None, existsok: bool
    ) -> MemoryMappedTensor:
        """Creates a tensor of zeros in a new file, or a tensor over an existing file."""
        if filename is not None:
            path_argument("MemoryMappedTensor", filename, "filename")
        sizes = shape if isinstance(shape, torch.Tensor) else None
        lengths = _lengths_of(shape)
        size_bytes = torch.Size(lengths).numel() * dtype.itemsize
        name = arrays.dtype_name(dtype)
        if size_bytes and name not in arrays.DTYPES:
            raise ValueError(f"dtype: expected one that files can store, found {name!r}")
        if filename is None:
            handler: Any = AnonymousFile(size_bytes)
            plain, file = map_file(handler.path, 0, dtype, lengths, None, "r+", handler)
        else:
            reserve(filename, size_bytes, existsok)
            plain, file = map_file(os.fspath(filename), 0, dtype, lengths, None, "r+", None)
        return cls._wrapped(as_nested(plain, sizes), file)

    @classmethod
    def _wrapped(cls, plain: Any, file: Any) -> MemoryMappedTensor:
        """Converts `plain` in place, by assigning its class."""
        plain.__class__ = cls
        plain._file = file
        made: MemoryMappedTensor = plain
        return made

    @classmethod
    def from_filename(
        cls,
        filename: PathLike,
        dtype: torch.dtype,
        shape: Any,
        index: Any = None,
        mode: str | None = None,
    ) -> MemoryMappedTensor:
        """Maps a file of raw elements as a tensor.

        Args:
            filename: An existing file; it may be longer than needed. Not opened if the tensor has
                no elements.
            dtype: Element type.
            shape: Shape of the tensor; for a nested one an int64 tensor ``[n, k]`` of sizes.
            index: Applied to the result.
            mode: ``"r"``: writes stay in memory. ``"r+"``: writes reach the file. None: ``"r+"`` if
                this user may write to the file, else ``"r"``.

        Returns:
            MemoryMappedTensor: Over the file. With an `index` that copies, a plain tensor.

        Raises:
            FileNotFoundError: If there is no file and the tensor has elements.
            CorruptFileError: If the file is too short, or is a folder.
            PermissionError: If this user may not read the file, or `mode` is ``"r+"`` and this user
                may not write to it.
            TypeError: If an argument has another type.
            ValueError: If `mode` or the name of a dtype is unknown.
            RuntimeError: If a length in `shape` is negative.

        Example:
            >>> MemoryMappedTensor.from_filename("x.memmap", torch.int64, (3,), mode="r")
            MemoryMappedTensor([0, 1, 2])
        """
        path_argument("MemoryMappedTensor", filename, "filename")
        shape, dtype = checked_shape(shape), _checked_dtype(dtype)
        if mode not in (None, "r", "r+"):
            raise ValueError(f"mode: expected None, 'r' or 'r+', found {mode!r}")
        if mode is None:
            mode = "r" if os.path.exists(filename) and not os.access(filename, os.W_OK) else "r+"
        sizes = shape if isinstance(shape, torch.Tensor) else None
        lengths = _lengths_of(shape)
        plain, file = map_file(os.fspath(filename), 0, dtype, lengths, None, mode, None)
        made = cls._wrapped(as_nested(plain, sizes), file)
        return made if index is None else made._part(index)

    @classmethod
    def from_storage(
        cls,
        storage: Any,
        *,
        shape: Any = None,
        dtype: torch.dtype | None = None,
        device: Any = None,
        index: Any = None,
        filename: PathLike | None = None,
    ) -> MemoryMappedTensor:
        """Creates a tensor over a storage, without a copy.

        Args:
            storage: A storage, preferably one that torch mapped from a file, so that it has a path.
            shape: Shape of the tensor; None: one dimension.
            dtype: Element type. None: the type of a typed storage; int64 for an untyped storage.
            device: Ignored.
            index: Applied to the result.
            filename: The file from which the storage is mapped, if the storage has no path.

        Returns:
            MemoryMappedTensor: Over the memory of `storage`. With an `index`, a plain tensor if the
            index copies or no file is known.

        Raises:
            TypeError: If an argument has another type.
            ValueError: If there is no dtype of this name.
            RuntimeError: If the storage has a path, and `filename` is given and is another path; if
                the storage does not have as many elements as `shape`, or, for a nested tensor, has
                fewer; or if a length in `shape` is negative.

        Example:
            >>> storage = torch.UntypedStorage.from_file("x.memmap", shared=True, nbytes=24)
            >>> MemoryMappedTensor.from_storage(storage, dtype=torch.int64).filename
            '/data/x.memmap'
        """
        if not isinstance(storage, (torch.UntypedStorage, torch.TypedStorage)):
            raise TypeError(
                f"storage: expected a torch storage, found {type(storage).__name__}; for a tensor, "
                "pass tensor.untyped_storage()"
            )
        if filename is not None:
            path_argument("MemoryMappedTensor", filename, "filename")
        known = getattr(storage, "filename", None)
        given = [os.path.abspath(os.fsdecode(one)) for one in (filename, known) if one is not None]
        if len(set(given)) > 1:
            raise RuntimeError(
                f"{filename}: Providing a storage with an associated filename that differs from "
                f"the filename argument is not permitted: expected {known}; pass filename=None"
            )
        if isinstance(storage, torch.TypedStorage):
            dtype = dtype or storage.dtype
            storage = storage._untyped_storage
        dtype = torch.int64 if dtype is None else _checked_dtype(dtype)
        count = storage.nbytes() // dtype.itemsize
        flat = torch.empty(0, dtype=dtype).set_(storage, 0, (count,), (1,))
        if shape is not None:
            shape = checked_shape(shape, -1)
            try:
                if isinstance(shape, torch.Tensor):
                    flat = as_nested(flat, shape)
                else:
                    flat = flat.view(shape)
            except RuntimeError:
                raise RuntimeError(
                    f"shape: expected a shape that fits the {count} elements of {dtype} in the "
                    f"storage, found {_shown(shape)}"
                ) from None
        file = _core.MappedFile(given[0], "r+", storage.data_ptr(), None) if given else None
        made = cls._wrapped(flat, file)
        return made if index is None else made._part(index)

    @classmethod
    def empty(cls, *size: Any, **options: Any) -> MemoryMappedTensor:
        """Creates a tensor whose values are not set (in a new file they are zeros).

        No file is created for a tensor without elements.

        Args:
            *size: Lengths, or one sequence of them, or ``shape=``; an int64 tensor ``[n, k]`` makes
                a nested tensor.
            **options: `dtype` (torch's default), `device`, `filename` (None: memory that processes
                share), `existsok` (False).

        Returns:
            MemoryMappedTensor: Over the file.

        Raises:
            RuntimeError: If the file exists and `existsok` is false, its path is a symlink, its
                folder is missing, a length is negative, or `device` is not the CPU.
            TypeError: If there is no shape, or an option is unknown or has another type.
            ValueError: If there is no dtype of this name.

        Example:
            >>> MemoryMappedTensor.empty(2, 3, filename="x.memmap").shape
            torch.Size([2, 3])
        """
        return cls._filled(size, options, _NOT_SET)

    @classmethod
    def zeros(cls, *size: Any, **options: Any) -> MemoryMappedTensor:
        """Creates a tensor of zeros; a new file takes no space until it is written.

        Args:
            *size: Lengths, or one sequence of them, or ``shape=``; an int64 tensor ``[n, k]`` makes
                a nested tensor.
            **options: `dtype`, `device`, `filename` and `existsok`, as for `empty`.

        Returns:
            MemoryMappedTensor: Over the file.

        Raises:
            RuntimeError, TypeError, ValueError: As for `empty`.

        Example:
            >>> MemoryMappedTensor.zeros(2, filename="x.memmap")
            MemoryMappedTensor([0., 0.])
        """
        return cls._filled(size, options, 0)

    @classmethod
    def ones(cls, *size: Any, **options: Any) -> MemoryMappedTensor:
        """Creates a tensor of ones.

        Args:
            *size: Lengths, or one sequence of them, or ``shape=``; an int64 tensor ``[n, k]`` makes
                a nested tensor.
            **options: `dtype`, `device`, `filename` and `existsok`, as for `empty`.

        Returns:
            MemoryMappedTensor: Over the file.

        Raises:
            RuntimeError, TypeError, ValueError: As for `empty`.

        Example:
            >>> MemoryMappedTensor.ones(2, filename="x.memmap")
            MemoryMappedTensor([1., 1.])
        """
        return cls._filled(size, options, 1)

    @classmethod
    def full(cls, *size: Any, fill_value: Any, **options: Any) -> MemoryMappedTensor:
        """Creates a tensor of one value.

        Args:
            *size: Lengths, or one sequence of them, or ``shape=``; an int64 tensor ``[n, k]`` makes
                a nested tensor.
            fill_value: The value of every element.
            **options: `dtype`, `device`, `filename` and `existsok`, as for `empty`. As in
                tensordict, and unlike in ``torch.full``, the default `dtype` does not depend on
                `fill_value`.

        Returns:
            MemoryMappedTensor: Over the file.

        Raises:
            RuntimeError: As for `empty`; if conversion of the value to `dtype` would overflow.
            OverflowError: If the value is an int that exceeds 64 bits.
            TypeError: As for `empty`; if the value is not a number.
            ValueError: As for `empty`.

        Example:
            >>> MemoryMappedTensor.full(2, fill_value=7, filename="x.memmap")
            MemoryMappedTensor([7., 7.])
        """
        return cls._filled(size, options, fill_value)

    @classmethod
    def _filled(
        cls, size: tuple[Any, ...], options: dict[str, Any], value: Any
    ) -> MemoryMappedTensor:
        shape = shape_from(size, options)
        device = options.pop("device", None)
        if not _is_cpu(device):
            raise RuntimeError(f"device: Only CPU tensors are supported: found {device}")
        dtype = options.pop("dtype", None)
        dtype = torch.get_default_dtype() if dtype is None else _checked_dtype(dtype)
        filename = options.pop("filename", None)
        if filename is not None:
            path_argument("MemoryMappedTensor", filename, "filename")
        existsok = options.pop("existsok", False)
        if options:
            raise TypeError(f"unexpected keyword argument {next(iter(options))!r}")
        is_new = filename is None or not exists(filename)
        is_zero = type(value) is int and value == 0  # not -0.0: its bytes are not all 0
        if value is _NOT_SET or (is_new and is_zero):
            return cls._made(shape, dtype, filename, existsok)
        try:
            torch.zeros((), dtype=dtype).fill_(value)  # raises before a file is created
        except TypeError:
            raise TypeError(f"fill_value: expected a number, found {value!r}") from None
        except RuntimeError as error:
            raise RuntimeError(
                f"fill_value: {error}: expected a {dtype}, found {value!r}"
            ) from None
        made = cls._made(shape, dtype, filename, existsok)
        made.fill_(value)
        return made

    @classmethod
    def empty_like(cls, input: Any, *, filename: PathLike | None = None) -> MemoryMappedTensor:
        """Creates a tensor of the shape and dtype of another one, like `empty`.

        Args:
            input: A tensor that is not nested; only its shape and dtype are used.
            filename: The file, which must not exist; None: memory that processes share.

        Returns:
            MemoryMappedTensor: Over the file.

        Raises:
            TypeError: If `input` is neither a tensor nor an array.
            ValueError: If `input` is nested.
            RuntimeError: If the file exists, its path is a symlink, or its folder is missing.

        Example:
            >>> MemoryMappedTensor.empty_like(torch.arange(3), filename="x.memmap").dtype
            torch.int64
        """
        return cls.empty(shape=_dense_shape(input), dtype=input.dtype, filename=filename)

    @classmethod
    def zeros_like(cls, input: Any, *, filename: PathLike | None = None) -> MemoryMappedTensor:
        """Creates zeros of the shape and dtype of another tensor, like `zeros`.

        Args:
            input: A tensor that is not nested; only its shape and dtype are used.
            filename: The file, which must not exist; None: memory that processes share.

        Returns:
            MemoryMappedTensor: Over the file.

        Raises:
            TypeError: If `input` is neither a tensor nor an array.
            ValueError: If `input` is nested.
            RuntimeError: If the file exists, its path is a symlink, or its folder is missing.

        Example:
            >>> MemoryMappedTensor.zeros_like(torch.arange(3), filename="x.memmap")
            MemoryMappedTensor([0, 0, 0])
        """
        return cls.zeros(shape=_dense_shape(input), dtype=input.dtype, filename=filename)

    @classmethod
    def ones_like(cls, input: Any, *, filename: PathLike | None = None) -> MemoryMappedTensor:
        """Creates ones of the shape and dtype of another tensor, like `ones`.

        Args:
            input: A tensor that is not nested; only its shape and dtype are used.
            filename: The file, which must not exist; None: memory that processes share.

        Returns:
            MemoryMappedTensor: Over the file.

        Raises:
            TypeError: If `input` is neither a tensor nor an array.
            ValueError: If `input` is nested.
            RuntimeError: If the file exists, its path is a symlink, or its folder is missing.

        Example:
            >>> MemoryMappedTensor.ones_like(torch.arange(3), filename="x.memmap")
            MemoryMappedTensor([1, 1, 1])
        """
        return cls.ones(shape=_dense_shape(input), dtype=input.dtype, filename=filename)

    @classmethod
    def full_like(
        cls, input: Any, fill_value: Any, *, filename: PathLike | None = None
    ) -> MemoryMappedTensor:
        """Creates a tensor of one value, of the shape and dtype of another one, like `full`.

        Args:
            input: A tensor that is not nested; only its shape and dtype are used.
            fill_value: The value.
            filename: The file, which must not exist; None: memory that processes share.

        Returns:
            MemoryMappedTensor: Over the file.

        Raises:
            TypeError: If `input` is neither a tensor nor an array, or the value is not a number.
            ValueError: If `input` is nested.
            RuntimeError: If the file exists, its path is a symlink, its folder is missing, or
                conversion of the value to the dtype would overflow.

        Example:
            >>> MemoryMappedTensor.full_like(torch.arange(3), 7, filename="x.memmap")
            MemoryMappedTensor([7, 7, 7])
        """
        return cls.full(
            shape=_dense_shape(input), dtype=input.dtype, fill_value=fill_value, filename=filename
        )

    # --- the file --------------------------------------------------------------------------------

    @property
    def filename(self) -> str:
        """The absolute path of the file.

        Raises:
            RuntimeError: If there is no file, or it has no name.
        """
        path = None if self._file is None else self._file.path
        if path is None:
            raise RuntimeError(
                "The MemoryMappedTensor has no file associated: expected one made with filename="
            )
        return str(path)

    def flush(self) -> None:
        """Waits until data written into the file is durable (msync).

        Does nothing if writes into the tensor do not reach a file.
        """
        path = None if self._file is None else self._file.path
        values = self.values() if self.is_nested else self
        _core.sync_tensor(values, "mapped file" if path is None else str(path))

    # --- views -----------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Any:
        made: Any = super().__getitem__(index)
        file = self._file
        if file is None or not is_view(self, made, index):
            return made
        made.__class__ = MemoryMappedTensor
        made._file = file
        return made

    def _part(self, index: Any) -> MemoryMappedTensor:
        part: MemoryMappedTensor = self[index]
        return part

    def _views(self, parts: Any) -> Any:
        return tuple(MemoryMappedTensor._wrapped(part, self._file) for part in parts)

    def unbind(self, dim: int = 0) -> Any:
        """Splits the tensor along a dimension, like ``torch.Tensor.unbind``.

        Args:
            dim: The dimension; a negative one counts from the end.

        Returns:
            tuple[MemoryMappedTensor, ...]: Views of the same file.

        Example:
            >>> x = MemoryMappedTensor.from_tensor(torch.arange(3), filename="x.memmap")
            >>> x.unbind(0)[1]
            MemoryMappedTensor(1)
        """
        return self._views(super().unbind(dim))

    def split(self, split_size: Any, dim: int = 0) -> Any:
        """Splits the tensor into parts, like ``torch.Tensor.split``.

        Args:
            split_size: Length of each part (the last one may be shorter), or a list of lengths.
            dim: The dimension; a negative one counts from the end.

        Returns:
            tuple[MemoryMappedTensor, ...]: Views of the same file.

        Example:
            >>> MemoryMappedTensor.from_tensor(torch.arange(3), filename="x.memmap").split(2)[1]
            MemoryMappedTensor([2])
        """
        return self._views(super().split(split_size, dim))  # type: ignore[no-untyped-call]

    def chunk(self, chunks: int, dim: int = 0) -> Any:
        """Splits the tensor into at most `chunks` parts, like ``torch.Tensor.chunk``.

        Args:
            chunks: The maximum number of parts.
            dim: The dimension; a negative one counts from the end.

        Returns:
            tuple[MemoryMappedTensor, ...]: Views of the same file.

        Example:
            >>> MemoryMappedTensor.from_tensor(torch.arange(3), filename="x.memmap").chunk(2)[0]
            MemoryMappedTensor([0, 1])
        """
        return self._views(super().chunk(chunks, dim))

    def detach(self) -> Any:
        """Like `torch.Tensor.detach`; returns a MemoryMappedTensor.

        ``torch.nn.Parameter`` requires a result of the same class.
        """
        return MemoryMappedTensor._wrapped(super().detach(), self._file)

    # --- copies ----------------------------------------------------------------------------------

    def _layout(self) -> tuple[Any, ...]:
        """Returns (offset in bytes, dtype, shape or sizes, strides) of this view of its file."""
        name = arrays.dtype_name(self.dtype)
        if self.is_nested:
            offset = self.untyped_storage().data_ptr() - self._file.base
            return (offset, name, self._nested_tensor_size().tolist(), None)
        offset = self.data_ptr() - self._file.base if self.numel() else 0
        return (offset, name, tuple(self.shape), self.stride())

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()

    def __reduce__(self) -> tuple[Any, ...]:
        file = self._file
        if file is None:
            plain: Any = self.as_subclass(torch.Tensor)
            reduced: tuple[Any, ...] = plain.__reduce_ex__(2)
            return reduced
        if file.handler is not None:
            return _pickle.anonymous_tensor, (file.handler, *self._layout())
        identity = file.identity
        if identity is None and self.numel():
            found = os.stat(file.path)
            identity = (found.st_dev, found.st_ino)
        return _pickle.mapped_tensor, (file.path, file.mode, identity, *self._layout())

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        made = self.clone()
        memo[id(self)] = made
        return made


def rebuilt(
    path: str,
    handler: Any,
    mode: str,
    identity: Any,
    offset: int,
    dtype: str,
    shape: Any,
    strides: Any,
) -> MemoryMappedTensor:
    """Restores a pickled tensor."""
    kind = getattr(torch, dtype)
    if strides is not None:
        plain, file = map_file(path, offset, kind, shape, strides, mode, handler, identity)
        return MemoryMappedTensor._wrapped(plain, file)
    width = len(shape[0]) if shape else 0
    sizes = torch.tensor(shape, dtype=torch.int64).reshape(len(shape), width)
    count = (nested_numel(sizes),)
    plain, file = map_file(path, offset, kind, count, None, mode, handler, identity)
    return MemoryMappedTensor._wrapped(as_nested(plain, sizes), file)


def _is_mapped_from(tensor: MemoryMappedTensor, filename: PathLike | None) -> bool:
    file = tensor._file
    if filename is None:
        return file.path is None
    # With another mode, the tensor may have private pages, whose content is not in the file.
    return bool(file.path == os.path.abspath(filename) and file.mode == "r+")


#: The name in older versions of tensordict.
MemmapTensor = MemoryMappedTensor

_core.set_mapped_type(MemoryMappedTensor)
