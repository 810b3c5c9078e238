"""The functions of `safetensors.torch`."""

from __future__ import annotations

from tenfold import _core
from tenfold._interop import storages
from tenfold._interop.arrays import need_torch
from tenfold._public import set_module
from tenfold.safetensors._open import metadata_of, safe_open, tied_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenfold.safetensors._open import PathLike


@set_module("tenfold.safetensors")
def save_file(
    tensors: dict[str, Any], filename: PathLike, metadata: dict[str, str] | None = None
) -> None:
    """Saves tensors into one file, atomically, as `safetensors.torch.save_file` does.

    Args:
        tensors: Dense, contiguous torch tensors by name, none of which overlap in memory.
        filename: The path. An existing file is replaced when the new one is complete and durable.
        metadata: Strings to store in ``__metadata__``. tenfold adds its checksums. Values of the
            keys ``tensordict`` and ``tenfold`` must describe a tree of these tensors, like the
            values that `safe_open.metadata` returns.

    Raises:
        ValueError: If `tensors` is not a dict of tensors, a tensor is sparse, nested or not
            contiguous, or `metadata` describes a tree of other tensors.
        TypeError: If a name is not a str, or `metadata` is not a dict of str to str.
        RuntimeError: If tensors share memory; `save_model` saves modules that have such tensors.
        UnsupportedError: For a dtype that the format does not have, a quantized tensor, one on the
            meta device, and the name ``__metadata__``.

    Example:
        >>> save_file({"embedding": torch.zeros(512, 1024)}, "model.safetensors")
    """
    _check(tensors)
    _write(tensors, filename, metadata_of(metadata))


@set_module("tenfold.safetensors")
def save(tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> bytes:
    """Returns the bytes of a file that holds the tensors.

    Args:
        tensors: As for `save_file`.
        metadata: As for `save_file`; no checksums are added.

    Raises:
        ValueError, TypeError, RuntimeError, UnsupportedError: As `save_file`.

    Example:
        >>> data = save({"embedding": torch.zeros(512, 1024)})
    """
    _check(tensors)
    return _core.flat_safetensors_bytes(_core.tree(dict(tensors), ""), metadata_of(metadata))


@set_module("tenfold.safetensors")
def load_file(filename: PathLike, device: Any = "cpu", *, backend: str = "mmap") -> dict[str, Any]:
    """Loads all tensors of a file into a dict by name.

    Args:
        filename: The path.
        device: The device of the tensors, as for `safe_open`.
        backend: ``"mmap"`` or ``"pread"``, as for `safe_open`.

    Returns:
        dict[str, torch.Tensor]: In the order of the data in the file.

    Raises:
        FileNotFoundError, CorruptFileError, UnsupportedError, ImportError: As `safe_open`.

    Example:
        >>> load_file("model.safetensors")["embedding"].shape
        torch.Size([512, 1024])
    """
    with safe_open(filename, framework="pt", device=device, backend=backend) as file:
        return file.get_tensors()


@set_module("tenfold.safetensors")
def load(data: bytes) -> dict[str, Any]:
    """Loads all tensors from the bytes of a file; each tensor is a copy with its own memory.

    Args:
        data: The bytes of the file.

    Returns:
        dict[str, torch.Tensor]: In the order of the data in the file.

    Raises:
        CorruptFileError: If the bytes are not a safetensors file.
        UnsupportedError: For a dtype that tenfold or this version of torch does not have.
        TypeError: If `data` is not bytes.
        ImportError: If torch cannot be imported.

    Example:
        >>> load(save({"x": torch.ones(2)}))["x"]
        tensor([1., 1.])
    """
    return tensors_of(data, use_numpy=False)


def tensors_of(data: bytes, use_numpy: bool) -> dict[str, Any]:
    """Loads the tensors from the bytes of a file; see `load`."""
    if not isinstance(data, bytes):
        raise TypeError(f"load: expected bytes, found {type(data).__name__}")
    node, entries, _ = _core.read_flat_safetensors(data)
    tied = tied_of(use_numpy)
    # The result shares no memory with `data`, so it may be writable: mode "c".
    return {name: node.get(name, "c", tied)[0] for name, _, _ in entries}


@set_module("tenfold.safetensors")
def save_model(
    model: Any,
    filename: PathLike,
    metadata: dict[str, str] | None = None,
    force_contiguous: bool = True,
) -> None:
    """Saves the state of a module. Tensors that share memory are stored once, under one name.

    ``__metadata__`` maps the other names to the stored name. If `metadata` has one of these other
    names as a key, its value is kept instead.

    Args:
        model: A torch module.
        filename: As for `save_file`.
        metadata: As for `save_file`.
        force_contiguous: Store non-contiguous tensors as contiguous copies. If false, such a tensor
            raises a ValueError.

    Raises:
        RuntimeError: If tensors share memory and none of them covers the whole storage.
        ValueError, TypeError, UnsupportedError: As `save_file`.

    Example:
        >>> save_model(model, "model.safetensors")
    """
    tensors = dict(model.state_dict())
    _check_dense(tensors)
    pairs = metadata_of(metadata)
    for kept, dropped in storages.duplicate_names("save_model", tensors).items():
        for name in dropped:
            pairs.setdefault(name, kept)
            del tensors[name]
    if force_contiguous:
        tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    _check(tensors, "call contiguous() first, or use save_model(..., force_contiguous=True)")
    _write(tensors, filename, pairs)


@set_module("tenfold.safetensors")
def load_model(
    model: Any,
    filename: PathLike,
    strict: bool = True,
    device: Any = "cpu",
    *,
    backend: str = "mmap",
) -> tuple[list[str] | set[str], list[str]]:
    """Fills a module with the state that `save_model` saved.

    Args:
        model: A torch module; its parameters and buffers are filled in place.
        filename: The path.
        strict: Raise if names are missing or unexpected.
        device: The device on which tensors are loaded before they are copied.
        backend: As for `safe_open`.

    Returns:
        ``(missing, unexpected)``: names of the module that were not loaded, and names of the file
        that the module does not have. If names share memory in the module, `save_model` stores one
        of them: the other names are not missing, and are unexpected if the file has them.

    Raises:
        RuntimeError: With `strict`, if names are missing or unexpected; the message lists them.
            Also without `strict`, for a tensor of another shape, and if tensors of the module
            share memory and none of them covers the whole storage. Parameters may have changed
            before the error, as with the package safetensors.
        FileNotFoundError, CorruptFileError, UnsupportedError: As `safe_open`.

    Example:
        >>> load_model(model, "model.safetensors")
        (set(), [])
    """
    loaded = load_file(filename, device=device, backend=backend)
    duplicates = storages.duplicate_names("load_model", model.state_dict(), loaded)
    found = model.load_state_dict(loaded, strict=False)
    missing, unexpected = set(found.missing_keys), list(found.unexpected_keys)
    for dropped in duplicates.values():
        unexpected += [name for name in dropped if name not in missing]
        missing.difference_update(dropped)
    if strict and (missing or unexpected):
        lines = [f"Error(s) in loading state_dict for {type(model).__name__}:"]
        for what, names in (("Missing", missing), ("Unexpected", unexpected)):
            if names:
                listed = ", ".join(f'"{name}"' for name in sorted(names))
                lines.append(f"    {what} key(s) in state_dict: {listed}")
        raise RuntimeError("\n".join(lines))
    return missing, unexpected


def _check(tensors: Any, remedy: str = "call contiguous() first") -> None:
    """Raises the errors of `save_file` for its argument `tensors`, except UnsupportedError.

    Args:
        tensors: The argument of `save_file`.
        remedy: End of the message about a tensor that is not contiguous.
    """
    if not isinstance(tensors, dict):
        raise ValueError(f"expected a dict of torch tensors, found {type(tensors).__name__}")
    _check_dense(tensors)
    shared = storages.overlapping(tensors)
    if shared:
        raise RuntimeError(
            f"tensors share memory: {[sorted(group) for group in shared]}: they would be stored "
            "twice and be independent when loaded; use save_model, tenfold.save, or clone()"
        )
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(
                f"key {name!r}: expected a contiguous tensor, found strides {tensor.stride()}; "
                f"{remedy}"
            )


def _check_dense(tensors: dict[Any, Any]) -> None:
    """Raises TypeError unless names are str, and ValueError unless values are dense tensors."""
    torch = need_torch("tenfold.safetensors")
    for name, tensor in tensors.items():
        if not isinstance(name, str):
            raise TypeError(f"expected names of type str, found {name!r}")
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(
                f"key {name!r}: expected a torch tensor, found {type(tensor).__name__}"
            )
        if tensor.is_nested:
            raise ValueError(
                f"key {name!r}: expected a dense tensor, found a nested one; "
                "torch.nested.to_padded_tensor() converts it"
            )
        if tensor.layout != torch.strided:
            raise ValueError(
                f"key {name!r}: expected a dense tensor, found layout {tensor.layout}; to_dense() "
                "converts it, but may need much memory"
            )


def _write(tensors: dict[str, Any], filename: PathLike, pairs: dict[str, str]) -> None:
    tree = _core.tree(dict(tensors), str(filename))
    _core.save_flat_safetensors(tree, pairs, filename)
