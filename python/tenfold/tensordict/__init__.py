"""Trees of tensors in Python: `TensorDict`, in memory or over an opened file."""

from __future__ import annotations

from tenfold.tensordict._base import TensorDictBase
from tenfold.tensordict._dense import TensorDict
from tenfold.tensordict._functions import (
    default_is_leaf,
    from_any,
    from_dict,
    from_module,
    from_modules,
    from_namedtuple,
    from_pytree,
    from_struct_array,
    from_tuple,
    fromkeys,
    is_leaf_nontensor,
    load_memmap,
)
from tenfold.tensordict._lazy import LazyStackedTensorDict
from tenfold.tensordict._ops.join import (
    assert_close,
    cat,
    collate,
    dense_stack_tds,
    is_tensor_collection,
    is_tensorclass,
    lazy_stack,
    maybe_dense_stack,
    merge_tensordicts,
    pad,
    pad_sequence,
    stack,
    unravel_key,
    unravel_key_list,
    unravel_key_to_tuple,
)
from tenfold.tensordict._values import NonTensorData, NonTensorStack, UnbatchedTensor, is_non_tensor

__all__ = [
    "LazyStackedTensorDict",
    "NonTensorData",
    "NonTensorStack",
    "TensorDict",
    "TensorDictBase",
    "UnbatchedTensor",
    "assert_close",
    "cat",
    "collate",
    "default_is_leaf",
    "dense_stack_tds",
    "from_any",
    "from_dict",
    "from_module",
    "from_modules",
    "from_namedtuple",
    "from_pytree",
    "from_struct_array",
    "from_tuple",
    "fromkeys",
    "is_leaf_nontensor",
    "is_non_tensor",
    "is_tensor_collection",
    "is_tensorclass",
    "lazy_stack",
    "load_memmap",
    "maybe_dense_stack",
    "merge_tensordicts",
    "pad",
    "pad_sequence",
    "stack",
    "unravel_key",
    "unravel_key_list",
    "unravel_key_to_tuple",
]
