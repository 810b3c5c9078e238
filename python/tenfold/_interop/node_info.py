"""The properties of a node, in the form that the binding uses (python/src/node.cpp)."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class NodeInfo(NamedTuple):
    """The properties of a node other than its entries.

    Pickles and the binding rely on the order of the attributes. This is a named tuple, because
    torch.compile cannot trace a class of the binding.

    Attributes:
        kind: The container type that was saved.
        int_keys: True if all keys were int; False if all were str; otherwise a dict from the
            stored form of each key that was not str, such as ``"0.5"``, to the key.
        batch_size: The batch size. Python nodes store their current batch size, names and device
            themselves; these three attributes of ``node._node_info`` may be outdated.
        names: A name, or None, for each batch dimension; empty if no dimension has a name.
        class_name: The name of the class of a tensorclass node or an opaque node; otherwise "".
        stack_dim: Lazy stack only: the dimension along which its members are stacked.
        stack_dim_name: Lazy stack only: the name of that dimension, or None.
        device: The saved device; "" for none.
        schema: Root only: the schema of its columns (``TensorDict.schema``), as JSON; or None.
        metadata: Root only: the user's metadata.
        layout: Sparse tensor only: its layout; otherwise "".
        dense_shape: Sparse tensor only: its shape.
        is_coalesced: The ``is_coalesced()`` of a sparse COO tensor; otherwise False.
        module_versions: The ``_metadata`` of a module's state_dict(), as JSON; otherwise None.
        is_bare: Root only: True if the saved object was a single tensor, neither sparse nor
            jagged, or a single value. It is then the only entry of the root.
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
