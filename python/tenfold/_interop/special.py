"""Python's and torch's values that are no JSON: bytes, sets, dtypes, sparse tensors, Opaque."""

from __future__ import annotations

import sys
from collections import Counter

from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# By class: torch.Size is a tuple and a Counter is a dict, so the exact class is asked for.
_OF_CLASS = {
    bytes: "bytes",
    bytearray: "bytearray",
    complex: "complex",
    set: "set",
    frozenset: "frozenset",
    Counter: "Counter",
}


def special(name: str, text: Any, items: list[Any]) -> Any:
    """The value of that name (`tenfold::Value::Special`); without torch, text of what it has."""
    if name in ("bytes", "bytearray"):
        return text if name == "bytes" else bytearray(text)
    if name == "complex":
        return complex(*items)
    if name in ("set", "frozenset"):
        return set(items) if name == "set" else frozenset(items)
    if name == "Counter":
        return Counter(items[0])
    from tenfold._interop.arrays import torch_or_none

    torch = torch_or_none()
    if name == "torch.Size":
        return tuple(items) if torch is None else torch.Size(items)
    if torch is None:
        return text
    if name == "torch.device":
        try:
            return torch.device(text)
        except RuntimeError:  # of another version of torch
            return text
    # Not getattr: torch imports modules by name when it is asked for an attribute it lacks.
    found = vars(torch).get(text.removeprefix("torch."))
    wanted = getattr(torch, name.removeprefix("torch."))  # dtype, layout or qscheme
    return found if isinstance(found, wanted) else text


@set_module("tenfold")
class Opaque:
    """What a pickle would have made by calling something that tenfold does not know.

    Nothing was imported or called. `tenfold.load(path, allow_opaque=True)` gives these in the
    places of such objects.

    Attributes:
        name: What would have been called: ``"module.Class"``.
        args: The arguments, a tuple; None for a class or function that is only named.
        state: What the object's ``__setstate__`` or ``__dict__`` would have got, or None.
        parts: All that the pickle says of it: ``args``, ``state``, ``kwargs``, ``items`` (what was
            appended), ``entries`` (keys and values in turn), ``callable`` (what has no plain name).

    Example:
        >>> tenfold.load("run.pt", allow_opaque=True)["config"]
        <Opaque my.project.Config args=() state={'lr': 0.1}>
    """

    __slots__ = ("name", "parts")

    def __init__(self, name: str, parts: dict[str, Any]) -> None:
        self.name = name
        self.parts = parts

    @property
    def args(self) -> Any:
        return self.parts.get("args")

    @property
    def state(self) -> Any:
        return self.parts.get("state")

    def __repr__(self) -> str:
        shown = " ".join(f"{key}={value!r}" for key, value in self.parts.items())
        return f"<Opaque {self.name}{' ' if shown else ''}{shown}>"


def opaque(name: str, parts: dict[str, Any]) -> Opaque:
    """For the engine's binding. A tensor of the meta device is made again: it has no bytes."""
    made = _meta_tensor(parts) if name == _META_TENSOR else None
    return Opaque(name, parts) if made is None else made


_META_TENSOR = "torch._utils._rebuild_meta_tensor_no_storage"


def _meta_tensor(parts: dict[str, Any]) -> Any:
    """None without torch, and for what it cannot make."""
    from tenfold._interop.arrays import torch_or_none

    torch = torch_or_none()
    if torch is None:
        return None
    try:
        dtype, shape, strides, requires_grad = parts["args"]
        made = torch.empty_strided(
            shape, strides, dtype=dtype, device="meta", requires_grad=requires_grad
        )
        if "parameter" in parts:
            made = torch.nn.Parameter(made, requires_grad=parts["parameter"])
        return made
    except (KeyError, TypeError, ValueError, RuntimeError):
        return None


def sparse(layout: str, shape: Any, is_coalesced: bool, parts: dict[str, Any]) -> Any:
    """The torch tensor of these parts, which torch checks once more; the parts without torch."""
    from tenfold._interop.arrays import torch_or_none

    torch = torch_or_none()
    if torch is None:
        return parts
    if layout == "jagged":
        return torch.nested.nested_tensor_from_jagged(
            parts["values"],
            parts["offsets"],
            parts.get("lengths"),
            jagged_dim=list(shape).index(-1),
        )
    if layout == "sparse_coo":
        return torch.sparse_coo_tensor(
            parts["indices"],
            parts["values"],
            shape,
            is_coalesced=is_coalesced or None,
            check_invariants=True,
        )
    by_row = layout in ("sparse_csr", "sparse_bsr")
    compressed = parts["crow_indices" if by_row else "ccol_indices"]
    plain = parts["col_indices" if by_row else "row_indices"]
    # torch wants indices of one dtype, which can count the shape.
    if compressed.dtype != plain.dtype or max(shape) > torch.iinfo(torch.int32).max:
        compressed, plain = compressed.long(), plain.long()
    return torch.sparse_compressed_tensor(
        compressed,
        plain,
        parts["values"],
        shape,
        layout=getattr(torch, layout),
        check_invariants=True,
    )


def sparse_parts(tensor: Any) -> tuple[str, tuple[int, ...], bool, dict[str, Any]]:
    """Layout, shape, is_coalesced and parts of a sparse or jagged tensor of torch."""
    layout = str(tensor.layout).removeprefix("torch.")
    if layout == "jagged":
        # Of its shape the length that differs is no number.
        shape = (tensor.offsets().numel() - 1, *tensor.values().shape)
        ragged = tensor._ragged_idx
        parts = {"values": tensor.values(), "offsets": tensor.offsets()}
        if tensor.lengths() is not None:
            parts["lengths"] = tensor.lengths()
        return layout, (*shape[:ragged], -1, *shape[ragged + 1 :]), False, parts
    shape = tuple(int(length) for length in tensor.shape)
    if layout == "sparse_coo":
        # Not indices(): that demands a coalesced tensor, and coalescing would change it.
        parts = {"indices": tensor._indices(), "values": tensor._values()}
        return layout, shape, bool(tensor.is_coalesced()), parts
    by_row = layout in ("sparse_csr", "sparse_bsr")
    names = ("crow_indices", "col_indices") if by_row else ("ccol_indices", "row_indices")
    parts = {name: getattr(tensor, name)() for name in names}
    return layout, shape, False, {**parts, "values": tensor.values()}


def special_of(obj: Any) -> tuple[str, bytes | str, list[Any]] | None:
    """Name, text and items of a value of exactly these classes; None for another."""
    cls = type(obj)
    name = _OF_CLASS.get(cls)
    if name is None:
        return _special_of_torch(obj)
    if name in ("bytes", "bytearray"):
        return name, bytes(obj), []
    if name == "complex":
        return name, "", [obj.real, obj.imag]
    if name == "Counter":
        return name, "", [dict(obj)]
    return name, "", _in_order(obj)


def _special_of_torch(obj: Any) -> tuple[str, str, list[Any]] | None:
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    for name in ("dtype", "device", "layout", "qscheme"):
        if type(obj) is getattr(torch, name):
            return f"torch.{name}", str(obj), []
    if type(obj) is torch.Size:
        return "torch.Size", "", [int(length) for length in obj]
    return None


def _in_order(items: Any) -> list[Any]:
    """The same for equal sets where their items have an order, so that equal trees are equal."""
    try:
        return sorted(items)
    except TypeError:
        return list(items)
