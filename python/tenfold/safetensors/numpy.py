"""The functions of `safetensors.numpy`, with their signatures.

None of them imports torch, except `safe_open` with framework ``"pt"``.

>>> from tenfold.safetensors.numpy import load_file, save_file
"""

from __future__ import annotations

from tenfold import _core
from tenfold._interop.arrays import numpy_module
from tenfold._public import set_module
from tenfold.safetensors._open import SafetensorError, metadata_of, safe_open
from tenfold.safetensors._torch import tensors_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenfold.safetensors._open import PathLike

__all__ = ["SafetensorError", "load", "load_file", "safe_open", "save", "save_file"]


@set_module("tenfold.safetensors.numpy")
def save_file(
    tensor_dict: dict[str, Any], filename: PathLike, metadata: dict[str, str] | None = None
) -> None:
    """Saves arrays into one file, atomically.

    Arrays that share memory are stored separately. Big-endian arrays are stored in little-endian
    byte order, and arrays that are not C-contiguous in C order.

    Args:
        tensor_dict: numpy arrays by name.
        filename: The path. An existing file is replaced when the new one is complete and durable.
        metadata: As for `tenfold.safetensors.save_file`.

    Raises:
        ValueError: If `tensor_dict` is not a dict of arrays, or `metadata` describes a tree of
            other tensors.
        TypeError: If a name is not a str, or `metadata` is not a dict of str to str.
        UnsupportedError: For a dtype that the format does not have, and the name ``__metadata__``.

    Example:
        >>> save_file({"embedding": np.zeros((512, 1024))}, "model.safetensors")
    """
    tree = _core.tree(_checked(tensor_dict), str(filename))
    _core.save_flat_safetensors(tree, metadata_of(metadata), filename)


@set_module("tenfold.safetensors.numpy")
def save(tensor_dict: dict[str, Any], metadata: dict[str, str] | None = None) -> bytes:
    """Returns the bytes of a file that holds the arrays.

    Args:
        tensor_dict: As for `save_file`.
        metadata: As for `save_file`; no checksums are added.

    Raises:
        ValueError, TypeError, UnsupportedError: As `save_file`.

    Example:
        >>> data = save({"embedding": np.zeros((512, 1024))})
    """
    tree = _core.tree(_checked(tensor_dict), "")
    return _core.flat_safetensors_bytes(tree, metadata_of(metadata))


@set_module("tenfold.safetensors.numpy")
def load_file(filename: PathLike, *, backend: str = "mmap") -> dict[str, Any]:
    """Loads all arrays of a file into a dict by name.

    Args:
        filename: The path.
        backend: As for `safe_open`. Arrays over a mapped file are read-only.

    Returns:
        dict[str, numpy.ndarray]: In the order of the data in the file.

    Raises:
        FileNotFoundError, CorruptFileError: As `safe_open`.
        UnsupportedError: For another backend, and for a dtype that numpy does not have.

    Example:
        >>> load_file("model.safetensors")["embedding"].shape
        (512, 1024)
    """
    with safe_open(filename, framework="np", backend=backend) as file:
        return file.get_tensors()


@set_module("tenfold.safetensors.numpy")
def load(data: bytes) -> dict[str, Any]:
    """Loads all arrays from the bytes of a file; each array is a copy with its own memory.

    Args:
        data: The bytes of the file.

    Returns:
        dict[str, numpy.ndarray]: In the order of the data in the file.

    Raises:
        CorruptFileError: If the bytes are not a safetensors file.
        TypeError: If `data` is not bytes.
        UnsupportedError: For a dtype that numpy does not have.

    Example:
        >>> load(save({"x": np.ones(2)}))["x"]
        array([1., 1.])
    """
    return tensors_of(data, use_numpy=True)


def _checked(arrays: Any) -> dict[str, Any]:
    np = numpy_module()
    if not isinstance(arrays, dict):
        raise ValueError(f"expected a dict of numpy arrays, found {type(arrays).__name__}")
    checked = {}
    for name, array in arrays.items():
        if not isinstance(name, str):
            raise TypeError(f"expected names of type str, found {name!r}")
        if not isinstance(array, np.ndarray):
            raise ValueError(f"key {name!r}: expected a numpy array, found {type(array).__name__}")
        checked[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
    return checked
