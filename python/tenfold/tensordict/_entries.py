"""Keys and kinds of the entries of a TensorDict, and the conversion of values to entries."""

from __future__ import annotations

import enum
import operator
from collections.abc import Mapping
from typing import Any

from tenfold import _core, _pickle
from tenfold._errors import KeyNotFoundError
from tenfold._interop import arrays, tensordict_package
from tenfold.tensordict._node import stack_with_class, with_class
from tenfold.tensordict._protocol import Primitives, dense, stacked
from tenfold.tensordict._values import (
    NonTensorData,
    NonTensorStack,
    UnbatchedTensor,
    ValueRows,
    is_non_tensor,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    Made = TypeVar("Made")


class Nothing(enum.Enum):
    """The type of `NOTHING`: an enumeration, which torch.compile can trace as a default value."""

    NOTHING = enum.auto()

    def __repr__(self) -> str:
        return "<nothing>"


#: Means "not given" where None has a meaning.
NOTHING: Any = Nothing.NOTHING


def is_path(key: object) -> bool:
    """True for a non-empty tuple of str; it may also contain such tuples, to any depth."""
    return (
        isinstance(key, tuple)
        and bool(key)
        and all(type(part) is str or isinstance(part, str) or is_path(part) for part in key)
    )


def path_of(key: Any) -> tuple[str, ...]:
    """Converts a key to a path of keys, with nested tuples flattened.

    Raises:
        KeyError: If the key is neither a str nor a path (`is_path`).
    """
    if isinstance(key, str):
        return (key,)
    if is_path(key):
        return tuple(part for inner in key for part in path_of(inner))
    raise KeyNotFoundError(f"key: expected a str or a non-empty tuple of str, found {key!r}")


def key_of(path: tuple[str, ...]) -> Any:
    """Converts a path to a key: a str if the path has one part, otherwise the path itself."""
    return path[0] if len(path) == 1 else path


class Keys(list[Any]):
    """The keys of a TensorDict, as they were when `keys` was called.

    A list that also has `isdisjoint` and the operators ``& | - ^`` of a dict's keys view. ``==``
    with a set or a keys view ignores the order.

    Example:
        >>> TensorDict({"a": 1, "b": 2}).keys() - {"a"}
        {'b'}
    """

    __slots__ = ()
    __hash__ = None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (set, frozenset)) or type(other) in _KEY_VIEWS:
            return set(self) == set(other)  # type: ignore[call-overload, no-any-return]
        return list.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __contains__(self, key: object) -> bool:
        if isinstance(key, str):
            return list.__contains__(self, key)
        if not is_path(key):
            raise TypeError(f"key: expected a str or a non-empty tuple of str, found {key!r}")
        return list.__contains__(self, key_of(path_of(key)))

    def __and__(self, other: Any) -> set[Any]:
        return set(self) & set(other)

    def __or__(self, other: Any) -> set[Any]:
        return set(self) | set(other)

    def __sub__(self, other: Any) -> set[Any]:
        return set(self) - set(other)

    def __xor__(self, other: Any) -> set[Any]:
        return set(self) ^ set(other)

    def __rsub__(self, other: Any) -> set[Any]:
        return set(other) - set(self)

    __rand__ = __and__
    __ror__ = __or__
    __rxor__ = __xor__

    def __reduce__(self) -> tuple[Any, ...]:
        return _pickle.keys, (list(self),)

    def isdisjoint(self, other: Any) -> bool:
        """True if no key is in `other`."""
        return set(self).isdisjoint(other)


_KEY_VIEWS = frozenset([type({}.keys()), Keys])


#: Kinds of entries, by class. LEAF: a tensor, an array, or a value to be converted. VALUE: an
#: object of a class in `WRAPPED`, or a ValueRows. NODE: a TensorDict or a stack of them.
#: TENSORCLASS: an object of a tensorclass, whose `_tensordict` is a NODE. FOREIGN: an object of the
#: tensordict package, which is converted.
LEAF, VALUE, NODE, TENSORCLASS, FOREIGN = range(5)

#: Classes of entries that wrap a value: ``td[key]`` returns ``_unwrapped()`` of the entry.
WRAPPED = frozenset([NonTensorData, NonTensorStack, UnbatchedTensor])


#: Tensor and Parameter, each once `_array` has received an object of exactly this class. For items
#: of these classes, `set` has a fast path that only checks the shape.
TENSORS: set[type] = set()


class _Kinds(dict):  # type: ignore[type-arg]
    def __missing__(self, cls: type) -> int:
        if cls in WRAPPED:
            kind = VALUE
        elif issubclass(cls, Primitives):
            kind = NODE
        elif _is_foreign(cls):
            kind = FOREIGN
        elif getattr(cls, "_is_tensorclass", False):
            kind = TENSORCLASS
        else:
            kind = LEAF
        self[cls] = kind
        return kind


def _is_foreign(cls: type) -> bool:
    """True for classes of the tensordict package whose objects are converted to tenfold's classes.

    These are the package's own classes, their subclasses, and tensorclasses that users define with
    the package. Of the subclasses of torch.Tensor, only UnbatchedTensor is converted.
    """
    if hasattr(cls, "untyped_storage") and not hasattr(cls, "_base_tensor"):
        return False
    if getattr(cls, "_is_tensorclass", False) and not hasattr(cls, "_simplified"):
        return True  # a user's class that is a tensorclass of the tensordict package
    return any(base.__module__.partition(".")[0] == "tensordict" for base in cls.__mro__)


#: The kind of an entry by its class.
# Built-in types are entered here, because torch.compile cannot iterate over their bases later.
KINDS: dict[type, int] = _Kinds(
    {ValueRows: VALUE}
    | dict.fromkeys([bool, int, float, complex, str, bytes, list, tuple, dict, type(None)], LEAF)
)
class_kind = KINDS.__getitem__


def node_of(entry: Any) -> Any:
    """The TensorDict, or stack of them, that an entry is or wraps; None for any other object."""
    kind = KINDS[type(entry)]
    if kind == NODE:
        return entry
    return entry._tensordict if kind == TENSORCLASS else None


def called(name: str, *args: Any, **options: Any) -> Callable[[Any], Any]:
    """A function that calls the method `name` of a tensor, a node or a ValueRows.

    The function raises an error for numpy arrays (see `arrays.tensor`): they lack most methods of
    tensors, and some that they have, such as `repeat`, do something else.
    """

    def call(value: Any) -> Any:
        if type(value) not in TENSORS:
            arrays.tensor(value.positions if type(value) is ValueRows else value, name)
        return getattr(value, name)(*args, **options)

    return call


def tree_or(value: Any) -> Any:
    """Returns `node_of(value)`, or `value` if that is None; never calls `bool(value)`."""
    node = node_of(value)
    return value if node is None else node


def check_field(entry: Any, key: str) -> None:
    """Raises AttributeError if `entry` is an object of a tensorclass without a field `key`."""
    if KINDS[type(entry)] == TENSORCLASS:
        type(entry)._require_field(key)


def rewrapped(entry: Any, node: Any) -> Any:
    """`node`, wrapped in the class of `entry` if that is a tensorclass."""
    if KINDS[type(entry)] == TENSORCLASS:
        return type(entry)._from_tensordict(node, dict(entry._non_tensordict))
    return node


def written(out: Any, made: Made) -> Made:
    """Writes the values of `made` into the tensors of `out`, and returns `out`.

    For type checkers, the result has the type of `made`.

    Raises:
        RuntimeError: Before anything is written, if torch cannot cast a result to the dtype of its
            tensor in `out`, such as floats to integers.
    """
    _check_casts(node_of(out), node_of(made), ())
    result: Made = out.update_(made)
    return result


def _check_casts(out: Any, made: Any, above: tuple[str, ...]) -> None:
    """Checks the dtypes of two nodes, and those of the members of lazy stacks one by one."""
    if out is None or made is None:
        return
    if isinstance(made, stacked()) or isinstance(out, stacked()):
        outs = out._nodes() if isinstance(out, stacked()) else [out]
        results = made._nodes() if isinstance(made, stacked()) else [made]
        if len(outs) == len(results):
            pairs = list(zip(outs, results, strict=True))
        else:
            pairs = [(one, result) for one in outs for result in results]
        for one, result in pairs:
            _check_casts(one, result, above)
        return
    theirs = out._entries()
    for key, entry in made._entries().items():
        if key not in theirs:
            continue
        there = theirs[key]
        if node_of(entry) is not None:
            _check_casts(node_of(there), node_of(entry), (*above, key))
            continue
        there, entry = unwrapped(there), unwrapped(entry)
        torch = arrays.torch_of(entry)
        if torch is None or arrays.torch_of(there) is None:
            continue
        if not torch.can_cast(entry.dtype, there.dtype):
            raise RuntimeError(
                f'out: key "{".".join((*above, key))}": expected a dtype that {entry.dtype} can be '
                f"cast to, found {there.dtype}"
            )


def unwrapped(entry: Any) -> Any:
    """The result of ``td[key]`` for an entry."""
    return entry._unwrapped() if type(entry) in WRAPPED else entry


def with_values(entry: Any, change: Callable[[Any], Any]) -> Any:
    """An entry in which `change(tensor)` replaces each tensor; batch shapes do not change."""
    kind = KINDS[type(entry)]
    if kind == LEAF:
        return change(entry)
    if kind == TENSORCLASS:
        return rewrapped(entry, entry._tensordict._valued(change))
    return entry._valued(change)


def batch_size_of(batch_size: Any) -> tuple[int, ...]:
    """Converts None, an int or a sequence to a batch size. Raises ValueError for other values."""
    if batch_size is None:
        return ()
    try:
        lengths = tuple(batch_size) if hasattr(batch_size, "__iter__") else (batch_size,)
        if not isinstance(batch_size, (str, bytes, bytearray)):
            types = set(map(type, lengths))
            if types <= {int}:
                return lengths
            if bool not in types:
                return tuple(map(operator.index, lengths))
    except TypeError:
        pass
    raise ValueError(f"batch_size: expected an int or a sequence of int, found {batch_size!r}")


def device_name(device: Any) -> str | None:
    """Converts a device to its name. Raises RuntimeError if torch does not know the device.

    If the framework is numpy, returns ``str(device)``.
    """
    if device is None or (type(device) is str and device == "cpu"):
        return device
    torch = arrays.torch_or_none()
    return str(device if torch is None else torch.device(device))


def read_entry(value: Any, mark: Any, node: Any) -> Any:
    """Converts a value and its `mark` from the engine (python/src/tree_out.hpp) to an entry."""
    if mark is None and arrays.is_array(value):
        return value
    if mark == "unbatched":
        return UnbatchedTensor(value)
    if mark is None:
        return NonTensorData(value, node._batch_size, node.device)
    return NonTensorStack._stored(value, node._batch_size, node.device)


def foreign_entry(obj: Any, batch_size: tuple[int, ...], device: Any) -> Any:
    """Converts an object of the tensordict package to an entry that shares its tensors.

    Returns None for an object that `tensordict_package.simplify` does not support. `batch_size` and
    `device` are used only for the result of a NonTensorData or NonTensorStack.
    """
    found = tensordict_package.simplify(obj)
    if found is None:
        return None
    kind, first, *more = found
    if kind == "unbatched":
        return UnbatchedTensor(first)
    if kind == "value":
        return NonTensorData(first, batch_size, device)
    if kind == "stack":
        return NonTensorStack._stored(first, batch_size, device)
    info, (keys, values) = first, more
    if info.kind == "lazy_stack":
        members = [foreign_entry(member, (), None) for member in values]
        return stack_with_class(stacked()._of(members, info.stack_dim, info.stack_dim_name))
    made = dense()._made({}, (), None)
    made._use_info(info)
    for key, value in zip(keys, values, strict=True):
        made._items[key] = _entry_below(value, made)
    return with_class(made) if info.kind == "tensorclass" else made


def as_own(value: Any) -> Any:
    """Converts an object of the tensordict package to an entry; returns other objects unchanged."""
    if KINDS[type(value)] != FOREIGN:
        return value
    entry = foreign_entry(value, (), None)
    return value if entry is None else entry


def type_name(value: Any) -> str:
    """The name of the type of `value` for error messages, with a remedy for tensordict's types."""
    name = type(value).__name__
    if KINDS[type(value)] != FOREIGN:
        return name
    return f"tensordict.{name} (convert it with TensorDict.from_tensordict)"


def _entry_below(value: Any, node: Any) -> Any:
    """Converts an entry of an object of the tensordict package to an entry of `node`."""
    if KINDS[type(value)] == FOREIGN:
        entry = foreign_entry(value, node._batch_size, node.device)
        if entry is not None:
            return entry
    if arrays.is_array(value) or node_of(value) is not None:
        return value
    return NonTensorData(value, node._batch_size, node.device)


def as_entry(key: str, value: Any, node: Any) -> Any:
    """Converts `value` to the entry of `node` under `key`.

    Raises RuntimeError, as tensordict does, if the shape of a tensor or NonTensorStack does not
    begin with the batch size of `node`; an UnbatchedTensor may have any shape. A NonTensorData
    whose batch size does not begin with that of `node` is replaced by one with the batch size of
    `node`. For a node, see `_node_entry`. Raises TypeError if torch has no dtype for a numpy array.
    """
    kind = KINDS[type(value)]
    batch_size, device = node._batch_size, node._device
    if kind == VALUE:
        if type(value) is UnbatchedTensor:
            data = _on_device(value.data, device)
            return value if data is value.data else UnbatchedTensor(data)
        return _non_tensor_entry(key, value, node)
    if kind == FOREIGN:
        entry = foreign_entry(value, batch_size, node.device)
        if entry is None:
            entry = dense()._from_native(_core.tree({key: value}), None)._entry(key)
        return as_entry(key, entry, node)
    if kind != LEAF:
        return _node_entry(key, value, node)
    if isinstance(value, Mapping):
        return dense()(value, batch_size, device, names=node._names)
    if value is None or isinstance(value, str):
        return NonTensorData(value, batch_size, node.device)
    if isinstance(value, (list, tuple)):
        return as_entry(key, list_entry(f'key "{key}"', value), node)
    array = _array(key, value)
    if array is None:
        return NonTensorData(value, batch_size, node.device)
    array = _on_device(array, device)
    _check(key, shape_of(array), batch_size)
    return array


def _node_entry(key: str, value: Any, node: Any) -> Any:
    """Converts a node to a child of `node`.

    If the child's batch size does not begin with the parent's, the child gets the parent's batch
    size. Tensors are moved to the parent's device, if the parent has one. A child without dimension
    names gets the parent's names. A child that changes is copied first; the copy shares its
    tensors.

    Raises RuntimeError if the shape of a tensor does not begin with the parent's batch size, or if
    the batch size of a lazy stack would have to change; an UnbatchedTensor may have any shape.
    """
    child = node_of(value)
    batch_size = node._batch_size
    if child._batch_size[: len(batch_size)] != batch_size:
        value = value.clone(False)
        child = node_of(value)
        try:
            child.batch_size = batch_size
        except RuntimeError as error:
            raise RuntimeError(f'batch dimension mismatch for key "{key}": {error}') from None
    if node._device is not None and str(child._device) != str(node._device):
        value = value.to(node.device)
        child = node_of(value)
    if node._names is not None and child._names is None:
        value = value.clone(False)
        child = node_of(value)
        child._set_names((*node._names, *[None] * (len(child._batch_size) - len(batch_size))))
    return value


def _non_tensor_entry(key: str, value: Any, node: Any) -> Any:
    batch_size = tuple(node._batch_size)
    if node._device is not None and str(value.device) != str(node._device):
        value = value._on(node.device)
    if type(value) is NonTensorData and value._batch_size[: len(batch_size)] != batch_size:
        return NonTensorData(value.data, batch_size, value.device)
    _check(key, value._batch_size, batch_size)
    return value


def list_entry(where: str, items: list[Any] | tuple[Any, ...]) -> Any:
    """Converts a list or tuple to one entry, as tensordict does by default.

    Numbers, arrays of equal shape, TensorDicts or objects of a tensorclass are stacked, as are
    nested lists of them. Any other list becomes a NonTensorStack with one value for each item; any
    other tuple becomes a NonTensorData. `where` begins the messages of errors.

    Raises RuntimeError if TensorDicts cannot be stacked, or only some items are TensorDicts.
    """
    made = stack_of(items)
    if made is not None:
        return made
    types = set(map(type, items))
    if any(KINDS[cls] in (NODE, TENSORCLASS) for cls in types):
        raise RuntimeError(
            f"{where}: expected a list of TensorDicts only, or of other items only, found "
            f"{sorted(cls.__name__ for cls in types)}"
        )
    if isinstance(items, tuple):
        return NonTensorData(items)
    if any(map(is_non_tensor, types)):
        return NonTensorStack(*items)
    return NonTensorStack.from_list(items)


def stack_of(items: list[Any] | tuple[Any, ...]) -> Any:
    """Stacks items into an array or node; None if they are of another kind or differ in shape."""
    if all(map(_is_number, _leaf_of_each_type(items).values())):
        try:  # nested lists, too, in one call: as fast as torch.tensor()
            return arrays.make_array(items)
        except (TypeError, ValueError):  # lists of different lengths, an int of more than 64 bits
            return None
    if all(isinstance(item, (list, type(items))) for item in items):
        items = [stack_of(item) for item in items]
    if FOREIGN in map(class_kind, set(map(type, items))):
        items = [as_own(item) for item in items]
    if all(node_of(item) is not None for item in items):
        return dense().stack(items)
    if not all(map(arrays.is_array, items)):
        return None
    if len({shape_of(item) for item in items}) != 1:
        return None
    torch = arrays.torch_or_none()
    if torch is None:
        return arrays.numpy_module().stack(items)
    try:
        items = [
            arrays.tensor_of(item) if arrays.torch_of(item) is None else item for item in items
        ]
    except TypeError:  # a dtype that torch lacks, such as that of strings
        return None
    return torch.stack(items)


def _leaf_of_each_type(items: list[Any] | tuple[Any, ...]) -> dict[type, Any]:
    """One item of each type in nested lists.

    Tuples in a list are values, as in tensordict.
    """
    leaves = {type(item): item for item in items}
    if not leaves.keys() <= {list, type(items)}:
        return leaves
    return {cls: leaf for item in items for cls, leaf in _leaf_of_each_type(item).items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float)) or arrays.is_numpy_number(value)


def _on_device(array: Any, device: Any) -> Any:
    """Moves a tensor or numpy array to `device`; returns it unchanged if it is there already.

    A numpy array becomes a tensor on a device other than the CPU, as in `load`.
    """
    if device is None:
        return array
    if arrays.torch_of(array) is None:
        if str(device) == "cpu":
            return array
        arrays.need_torch(f'device "{device}"')
        array = arrays.tensor_of(array)
    return array if str(array.device) == str(device) else array.to(device)


def _array(key: str, value: Any) -> Any:
    """Converts a number or an array to a tensor.

    If the framework is numpy, returns a numpy array instead. Returns None for any other value, and
    for a Python complex. Raises TypeError, which names `key`, if torch has no dtype for a numpy
    array.
    """
    if arrays.torch_of(value) is not None:
        # Call the functions given to on_torch() now, because torch.compile cannot trace them.
        torch = arrays.import_torch()
        if type(value) in (torch.Tensor, torch.nn.Parameter):
            TENSORS.add(type(value))
        return value
    if arrays.torch_or_none() is None and arrays.is_array(value):
        return value
    is_number = _is_number(value)
    if not (is_number or arrays.is_array(value) or hasattr(value, "__dlpack__")):
        return None
    try:
        return arrays.make_array(value)
    except (TypeError, ValueError) as error:
        if is_number:
            return None
        if not isinstance(error, TypeError) or not arrays.is_array(value):
            raise
        remedy = "use from_struct_array()" if value.dtype.names else "pass its tolist()"
        raise TypeError(
            f'key "{key}": expected an array of numbers or bool, found one of dtype {value.dtype}; '
            f"{remedy}, or wrap it in NonTensorData, which cannot be saved"
        ) from None


def shape_of(array: Any) -> tuple[int, ...]:
    """The shape of a tensor or array; for a nested tensor, only the number of its components."""
    if getattr(array, "is_nested", False):
        return (array.size(0),)
    return tuple(array.shape)


def _check(key: str, shape: tuple[int, ...], batch_size: tuple[int, ...]) -> None:
    if tuple(shape[: len(batch_size)]) != tuple(batch_size):
        raise RuntimeError(
            f'batch dimension mismatch for key "{key}": expected a shape that begins with '
            f"{list(batch_size)}, found {list(shape)}"
        )
