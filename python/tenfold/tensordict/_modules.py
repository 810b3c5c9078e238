"""The parameters and buffers of modules as TensorDicts, and back."""

from __future__ import annotations

from tenfold._interop.arrays import need_torch
from tenfold.tensordict._entries import node_of, unwrapped
from tenfold.tensordict._ops.join import lazy_stack as stack_lazily
from tenfold.tensordict._ops.join import stack
from tenfold.tensordict._protocol import dense

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenfold.tensordict._dense import TensorDict


def from_module(
    module: Any,
    as_module: bool = False,
    lock: bool = False,
    use_state_dict: bool = False,
    filter_empty: bool = True,
) -> TensorDict:
    _refuse_as_module(as_module)
    if use_state_dict:
        made = dense()(dict(module.state_dict())).unflatten_keys(".")
    else:
        made = _of_module(module, filter_empty, {})
    return made.lock_() if lock else made


def from_modules(
    *modules: Any,
    as_module: bool = False,
    lock: bool = True,
    use_state_dict: bool = False,
    lazy_stack: bool = False,
    expand_identical: bool = False,
) -> Any:
    _refuse_as_module(as_module)
    torch = need_torch("from_modules")
    parts = [dense().from_module(module, use_state_dict=use_state_dict) for module in modules]
    if lazy_stack:
        made: Any = stack_lazily(parts)
    else:
        with torch.no_grad():
            made = stack(parts)
        made = _as_parameters(torch, made, parts, expand_identical)
    return made.lock_() if lock else made


def to_module(
    td: Any,
    module: Any,
    *,
    inplace: bool | None,
    return_swap: bool,
    swap_dest: Any,
    use_state_dict: bool,
    non_blocking: bool,
) -> Any:
    need_torch("to_module")
    if use_state_dict:
        before = dense().from_module(module, use_state_dict=True).clone()
        module.load_state_dict(dict(td.flatten_keys(".").items()))
        swapped = before
    else:
        swapped = _swapped_into(td, module, inplace, non_blocking, {})
    if not return_swap:
        return None
    if swap_dest is not None:
        swapped = swap_dest.update(swapped)
    options = {"inplace": inplace, "return_swap": False, "use_state_dict": use_state_dict}
    swapped._undo = ("to_module", (module,), options)
    return swapped


def _swapped_into(
    td: Any, module: Any, inplace: bool | None, non_blocking: bool, memo: dict[int, Any]
) -> Any:
    if id(module) in memo:
        return memo[id(module)]
    before: dict[str, Any] = {}
    for key, entry in td._entries().items():
        node = node_of(entry)
        if node is not None:
            child = module._modules[key]
            before[key] = _swapped_into(node, child, inplace, non_blocking, memo)
            continue
        if getattr(entry, "_is_non_tensor", False):
            continue
        before[key] = _exchange(module, key, unwrapped(entry), inplace, non_blocking)
    made = memo[id(module)] = td._with_entries(before)
    return made


def _exchange(module: Any, key: str, tensor: Any, inplace: bool | None, non_blocking: bool) -> Any:
    """Puts a tensor into a module, and returns the one that was there."""
    torch = need_torch("to_module")
    there: Any
    for registry in (module._parameters, module._buffers):
        if key in registry:
            there = registry[key]
            break
    else:
        if key not in module.__dict__:
            raise KeyError(f'to_module: no parameter or buffer "{key}" in {type(module).__name__}')
        there = module.__dict__[key]
        registry = None
    if inplace and isinstance(there, torch.Tensor):
        before = there.detach().clone()
        with torch.no_grad():
            there.copy_(tensor, non_blocking=non_blocking)
        return before
    # A parameter may be replaced by a plain tensor (that has a graph) and come back: torch's own
    # __setattr__ would refuse that.
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    if isinstance(there, torch.nn.Parameter) and not is_parameter and _is_plain(torch, tensor):
        tensor = torch.nn.Parameter(tensor, requires_grad=there.requires_grad)
        is_parameter = True
    if registry is module._parameters and not is_parameter:
        del module._parameters[key]
        module.__dict__[key] = tensor
    elif registry is None and is_parameter:
        del module.__dict__[key]
        module._parameters[key] = tensor
    elif registry is None:
        module.__dict__[key] = tensor
    else:
        registry[key] = tensor
    return there


def _is_plain(torch: Any, tensor: Any) -> bool:
    """True for a tensor that neither a graph of gradients nor a transform (vmap) is about."""
    return not tensor.requires_grad and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _of_module(module: Any, filter_empty: bool, memo: dict[int, Any]) -> Any:
    if id(module) in memo:
        return memo[id(module)]
    items: dict[str, Any] = {}
    for registry in (module._parameters, module._buffers):
        items.update((key, tensor) for key, tensor in registry.items() if tensor is not None)
    made = memo[id(module)] = dense()._made(items, (), None)
    for key, child in module._modules.items():
        if child is not None:
            below = _of_module(child, filter_empty, memo)
            if below._items or not filter_empty:
                items[key] = below
    return made


def _as_parameters(torch: Any, stacked: Any, parts: list[Any], expand_identical: bool) -> Any:
    """The stacked tensors of parameters as parameters, leaves of the graph of gradients."""

    def change(tensor: Any, *originals: Any) -> Any:
        first = originals[0]
        if expand_identical and all(original is first for original in originals):
            return first.expand(len(originals), *first.shape)
        if isinstance(first, torch.nn.Parameter):
            return torch.nn.Parameter(tensor.detach(), requires_grad=first.requires_grad)
        return tensor

    return stacked.apply(change, *parts, filter_empty=False)


def _refuse_as_module(as_module: bool) -> None:
    if as_module:
        raise NotImplementedError(
            "as_module: expected False, found True; there is no TensorDictParams, keep the "
            "TensorDict itself"
        )
