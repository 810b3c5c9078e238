"""The properties of a node, as the binding returns and takes them (python/src/node.cpp)."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class NodeInfo(NamedTuple):
    """The properties of a node other than its entries. Pickles have them in this order.

    A named tuple, because torch.compile cannot trace a class of the binding.

    Attributes:
        kind: The container type that was saved.
        int_keys: True if all keys were integers; otherwise a dict of the keys that were not str, by
            their str(), or False.
        batch_size: As saved; of a node of Python that was changed since, see its own.
        names: A name, or None, for each batch dimension; empty if none has one.
        class_name: The name of its tensorclass, or of the class of an opaque node; otherwise "".
        stack_dim: Of a lazy stack.
        stack_dim_name: Of a lazy stack.
        device: As saved; "" for none.
        schema: Root only: its schema, as JSON.
        metadata: Root only: the user's metadata.
        layout: Of a sparse tensor; otherwise "".
        dense_shape: Of a sparse tensor.
        is_coalesced: Of a sparse tensor.
        module_versions: The ``_metadata`` of a module's state_dict(), as JSON.
        is_bare: Whether it is a bare root.
    """

    kind: str = "tensordict"
    int_keys: bool | dict[str, Any] = False
    batch_size: tuple[int, ...] = ()
    names: tuple[str | None, ...] = ()
    class_name: str = ""
    stack_dim: int = 0
    stack_dim_name: str | None = None
    device: str = ""
    schema: str | None = None
    metadata: dict[str, str] = {}  # noqa: RUF012
    layout: str = ""
    dense_shape: tuple[int, ...] = ()
    is_coalesced: bool = False
    module_versions: str | None = None
    is_bare: bool = False
