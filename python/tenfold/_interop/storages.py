"""Finds torch tensors that share memory, as safetensors does before saving."""

from __future__ import annotations

from tenfold._interop.arrays import extent, torch_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any


def overlapping(tensors: Mapping[str, Any]) -> list[set[str]]:
    """Groups the names of tensors that overlap in one storage; omits groups of one name.

    Ignores values without one storage: other objects, and meta, sparse and nested tensors.
    A tensor occupies all bytes from its first element to its last one, including gaps.
    """
    spans: dict[tuple[Any, int, int], list[tuple[int, int, str]]] = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage() if _has_storage(tensor) else None
        if storage is not None and storage.data_ptr() and storage.nbytes():
            begin = tensor.data_ptr()
            size = extent(tensor.shape, tensor.stride()) * tensor.element_size()
            place = (tensor.device, storage.data_ptr(), storage.nbytes())
            spans.setdefault(place, []).append((begin, begin + size, name))
    groups = []
    for spans_of_storage in spans.values():
        group: set[str] = set()
        end_of_group = 0
        for begin, end, name in sorted(spans_of_storage):
            if group and begin >= end_of_group:
                groups.append(group)
                group = set()
            group.add(name)
            end_of_group = max(end_of_group, end)
        groups.append(group)
    return [group for group in groups if len(group) > 1]


def is_whole_storage(tensor: Any) -> bool:
    """True if the tensor begins where its storage begins and has as many bytes as the storage."""
    storage = tensor.untyped_storage()
    return bool(
        tensor.data_ptr() == storage.data_ptr()
        and tensor.nelement() * tensor.element_size() == storage.nbytes()
    )


def duplicate_names(
    call: str, tensors: Mapping[str, Any], preferred: Iterable[str] = ()
) -> dict[str, list[str]]:
    """Returns ``{name to keep: names to drop}``, one item for each group of aliases.

    Args:
        call: Prefix of the error: ``"save_model"``.
        tensors: The state dict of a module.
        preferred: Names to keep if their tensors cover their whole storage. A group without such a
            name keeps another name whose tensor covers its whole storage. Of several candidates,
            the alphabetically first one is kept.

    Raises:
        RuntimeError: If no tensor of a group covers its whole storage.
    """
    kept: dict[str, list[str]] = {}
    for group in overlapping(tensors):
        whole = {name for name in group if is_whole_storage(tensors[name])}
        if not whole:
            raise RuntimeError(
                f"{call}: {sorted(group)}: these tensors share memory, and none covers its "
                "whole storage: expected a tensor that does; clone() the tensors first"
            )
        keep = min(whole.intersection(preferred) or whole)
        kept[keep] = sorted(group - {keep})
    return kept


def _has_storage(value: Any) -> bool:
    torch = torch_of(value)
    is_dense = torch is not None and value.layout is torch.strided and not value.is_nested
    return is_dense and not value.is_meta
