"""Conversion from and to the tensordict package. Only `package` imports it."""

from __future__ import annotations

from tenfold._interop.node_info import NodeInfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def simplify(obj: Any) -> tuple[Any, ...] | None:
    """Describes an object of tensordict as `objects.simplify` does; None for other objects."""
    names = {base.__name__ for base in type(obj).__mro__}
    if "UnbatchedTensor" in names or hasattr(obj, "_base_tensor"):
        return ("unbatched", obj._base_tensor())
    if "NonTensorStack" in names:
        return ("stack", _plain_lists(obj.tolist()), obj.stack_dim, str(obj.device or ""))
    if "NonTensorData" in names or getattr(type(obj), "_is_non_tensor", False):
        return ("value", obj.data)
    if "LazyStackedTensorDict" in names:
        members = list(obj.tensordicts)
        info = _info(obj, "lazy_stack", stack_dim=obj.stack_dim)
        return ("node", info, [str(i) for i in range(len(members))], members)
    if getattr(type(obj), "_is_tensorclass", False):
        inner = obj._tensordict
        if "LazyStackedTensorDict" in {base.__name__ for base in type(inner).__mro__}:
            # A stack of tensorclass objects becomes a lazy stack; its members have the class name.
            info = _info(inner, "lazy_stack", stack_dim=inner.stack_dim)
            members = [type(obj)._from_tensordict(part) for part in inner.tensordicts]
            return ("node", info, [str(i) for i in range(len(members))], members)
        keys, values = _entries(inner)
        for key, value in obj._non_tensordict.items():
            keys.append(key)
            values.append(value)
        return ("node", _info(inner, "tensorclass", class_name=str(type(obj))), keys, values)
    if "TensorDictBase" in names:
        return ("node", _info(obj, "tensordict"), *_entries(obj))
    return None


def is_collection(cls: type) -> bool:
    """True for the package's TensorDicts and stacks, tensorclasses and NonTensorData."""
    names = {base.__name__ for base in cls.__mro__}
    if "UnbatchedTensor" in names:
        return False
    return "TensorDictBase" in names or bool(getattr(cls, "_is_tensorclass", False))


def _entries(node: Any) -> tuple[list[str], list[Any]]:
    get = getattr(node, "_get_str", None) or node.get
    keys = list(node.keys())
    return keys, [get(key, None) for key in keys]


def _info(node: Any, kind: str, *, class_name: str = "", stack_dim: int = 0) -> NodeInfo:
    names = tuple(node.names or ())
    if all(name is None for name in names):
        names = ()
    stack_dim_name = None
    batch_size = tuple(node.batch_size)
    if kind == "lazy_stack":
        stack_dim_name = names[stack_dim] if names else None
        batch_size, names = (), ()
    device = "" if node.device is None else str(node.device)
    return NodeInfo(
        kind=kind,
        batch_size=batch_size,
        names=names,
        class_name=class_name,
        stack_dim=stack_dim,
        stack_dim_name=stack_dim_name,
        device=device,
    )


def _plain_lists(value: Any) -> Any:
    """Converts nested lists to plain lists; some versions of tensordict return a LinkedList."""
    return [_plain_lists(item) for item in value] if isinstance(value, list) else value


def package() -> Any:
    """The tensordict package. Raises ImportError if it cannot be imported."""
    try:
        import tensordict
    except ImportError as error:
        raise ImportError(
            "TensorDict: expected the package tensordict, which cannot be imported"
        ) from error
    return tensordict
