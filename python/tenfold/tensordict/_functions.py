"""Functions that create TensorDicts, and predicates for leaves."""

from __future__ import annotations

from tenfold import _pickle
from tenfold._interop import arrays, objects
from tenfold._public import set_module
from tenfold.tensordict._base import TensorDictBase
from tenfold.tensordict._dense import TensorDict
from tenfold.tensordict._entries import NODE, TENSORCLASS, class_kind
from tenfold.tensordict._ops.join import register_collate
from tenfold.tensordict._values import NonTensorData, NonTensorStack, UnbatchedTensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@set_module("tenfold")
def from_module(module: Any, as_module: bool = False, lock: bool = True, **options: Any) -> Any:
    """Returns the parameters and buffers of a module, like `TensorDict.from_module`.

    Args:
        module: The module.
        as_module: Not supported: there is no TensorDictParams.
        lock: Lock the result. The default here is true; that of `TensorDict.from_module` is false.
        **options: Options of `TensorDict.from_module`: ``use_state_dict``, ``filter_empty``.

    Raises:
        NotImplementedError: If `as_module` is true.
        TypeError: If `module` is not a ``torch.nn.Module``.

    Example:
        >>> tenfold.tensordict.from_module(torch.nn.Linear(2, 3))["weight"].shape
        torch.Size([3, 2])
    """
    return TensorDict.from_module(module, as_module, lock, **options)


@set_module("tenfold")
def from_modules(*modules: Any, **options: Any) -> Any:
    """Stacks parameters and buffers of several modules, like `TensorDict.from_modules`.

    Args:
        *modules: The modules; unless ``lazy_stack`` is true, of the same architecture.
        **options: ``lock``, ``use_state_dict``, ``lazy_stack`` and ``expand_identical`` of
            `TensorDict.from_modules`.

    Returns:
        TensorDict: With one batch dimension, whose length is the number of modules; with
            ``lazy_stack``, a LazyStackedTensorDict.

    Raises:
        RuntimeError: If there is no module, or if the architectures differ and ``lazy_stack`` is
            false.
        TypeError: If an object is not a ``torch.nn.Module``.

    Example:
        >>> layers = [torch.nn.Linear(2, 3) for _ in range(4)]
        >>> tenfold.tensordict.from_modules(*layers)["weight"].shape
        torch.Size([4, 3, 2])
    """
    return TensorDict.from_modules(*modules, **options)


@set_module("tenfold")
def from_dict(d: Any, **options: Any) -> Any:
    """Creates a TensorDict from nested dicts, like `TensorDict.from_dict`.

    Args:
        d: The entries.
        **options: ``batch_size``, ``device``, ``auto_batch_size``, ``batch_dims`` and ``names`` of
            `TensorDict.from_dict`.

    Returns:
        TensorDict: The tree.

    Raises:
        KeyError: If a key is neither a str nor a tuple of str.
        ValueError, RuntimeError: As for `TensorDict.from_dict`.

    Example:
        >>> tenfold.tensordict.from_dict({"a": {"b": torch.zeros(3)}})["a", "b"]
        tensor([0., 0., 0.])
    """
    return TensorDict.from_dict(d, **options)


@set_module("tenfold")
def from_any(obj: Any, **options: Any) -> Any:
    """Creates a TensorDict from a dict, (named) tuple or dataclass, like `TensorDict.from_any`.

    Args:
        obj: The object; a list becomes a NonTensorStack; other objects are returned unchanged.
        **options: ``batch_size``, ``device``, ``auto_batch_size`` and ``batch_dims`` of
            `TensorDict.from_any`.

    Returns:
        A TensorDict; for a list, a NonTensorStack; for other objects, `obj`.

    Raises:
        KeyError, ValueError, RuntimeError: As for `from_dict`.

    Example:
        >>> tenfold.tensordict.from_any({"a": torch.zeros(3)})["a"]
        tensor([0., 0., 0.])
    """
    return TensorDict.from_any(obj, **options)


@set_module("tenfold")
def from_pytree(pytree: Any, **options: Any) -> Any:
    """Creates a TensorDict from nested lists, tuples and dicts, like `TensorDict.from_pytree`.

    Args:
        pytree: The containers; other objects are returned unchanged.
        **options: ``batch_size``, ``auto_batch_size``, ``batch_dims`` of `TensorDict.from_pytree`.

    Returns:
        A TensorDict; for other objects, `pytree`.

    Raises:
        ValueError, RuntimeError: As for `TensorDict.from_pytree`.

    Example:
        >>> tenfold.tensordict.from_pytree([torch.zeros(3)]).to_pytree()
        [tensor([0., 0., 0.])]
    """
    return TensorDict.from_pytree(pytree, **options)


@set_module("tenfold")
def from_namedtuple(named_tuple: Any, **options: Any) -> Any:
    """Creates a TensorDict from the fields of a named tuple, like `TensorDict.from_namedtuple`.

    Args:
        named_tuple: The named tuple.
        **options: ``batch_size``, ``device``, ``auto_batch_size``, ``batch_dims`` and ``names`` of
            `TensorDict.from_dict`.

    Returns:
        TensorDict: An entry for each field.

    Raises:
        AttributeError: If `named_tuple` is not a named tuple.
        ValueError, RuntimeError: As for `TensorDict.from_dict`.

    Example:
        >>> from collections import namedtuple
        >>> Point = namedtuple("Point", ["x", "y"])
        >>> tenfold.tensordict.from_namedtuple(Point(torch.zeros(3), torch.ones(3)))["y"]
        tensor([1., 1., 1.])
    """
    return TensorDict.from_namedtuple(named_tuple, **options)


@set_module("tenfold")
def from_tuple(obj: Any, **options: Any) -> Any:
    """Creates a TensorDict from a tuple, with keys "0", "1", ..., like `TensorDict.from_tuple`.

    Args:
        obj: The tuple.
        **options: ``batch_size``, ``device``, ``auto_batch_size``, ``batch_dims`` and ``names`` of
            `TensorDict.from_dict`.

    Returns:
        TensorDict: An entry for each item.

    Raises:
        ValueError, RuntimeError: As for `TensorDict.from_dict`.

    Example:
        >>> tenfold.tensordict.from_tuple((torch.zeros(3), torch.ones(3)))["1"]
        tensor([1., 1., 1.])
    """
    return TensorDict.from_tuple(obj, **options)


@set_module("tenfold")
def from_struct_array(struct_array: Any, **options: Any) -> Any:
    """Creates a TensorDict from a NumPy structured array, like `TensorDict.from_struct_array`.

    Args:
        struct_array: The array. The tensors share its memory, with the exceptions that
            `TensorDict.from_struct_array` lists.
        **options: ``batch_size``, ``device``, ``auto_batch_size`` and ``batch_dims`` of
            `TensorDict.from_struct_array`.

    Returns:
        TensorDict: An entry for each field.

    Raises:
        TypeError, RuntimeError, ValueError: As for `TensorDict.from_struct_array`.

    Example:
        >>> array = numpy.zeros(3, [("a", "f4")])
        >>> tenfold.tensordict.from_struct_array(array)["a"]
        tensor([0., 0., 0.])
    """
    return TensorDict.from_struct_array(struct_array, **options)


@set_module("tenfold")
def fromkeys(keys: Any, value: Any = 0) -> Any:
    """Creates a TensorDict with one value for every key, like `TensorDict.fromkeys`.

    Args:
        keys: The keys.
        value: The value of every key: a number, tensor or plain value.

    Returns:
        TensorDict: With batch size [].

    Example:
        >>> tenfold.tensordict.fromkeys(["a", "b"], 1.5)["b"]
        tensor(1.5000)
    """
    return TensorDict.fromkeys(keys, value)


@set_module("tenfold")
def load_memmap(prefix: Any, *args: Any, **options: Any) -> Any:
    """Opens a folder or archive of `TensorDict.memmap`, like `TensorDict.load_memmap`.

    Args:
        prefix: The folder or ``.tdz`` archive.
        *args: As for `TensorDict.load_memmap`.
        **options: As for `TensorDict.load_memmap`.

    Returns:
        TensorDict: The tree, or an object of its tensorclass, over the mapped files; ``out`` if it
            is given. By default, writes reach the files of a folder whose meta.json this user may
            write to; ``mode`` changes this. With a ``device`` other than the CPU, no tensor of the
            result is mapped.

    Raises:
        FileNotFoundError, CorruptFileError, ValueError, RuntimeError, UnsupportedError: As for
            `TensorDict.load_memmap`.

    Example:
        >>> files = td.memmap("rollout")
        >>> tenfold.load_memmap("rollout")["a"].shape
        torch.Size([3])
    """
    return TensorDict.load_memmap(prefix, *args, **options)


@set_module("tenfold")
def from_consolidated(filename: Any) -> Any:
    """Opens a file of `TensorDict.consolidate`, like `TensorDict.from_consolidated`.

    Args:
        filename: The file.

    Returns:
        TensorDict: The tree, whose tensors are private views of the file.

    Raises:
        FileNotFoundError, CorruptFileError: As for `TensorDict.from_consolidated`.

    Example:
        >>> _ = td.consolidate("one.bin")
        >>> tenfold.tensordict.from_consolidated("one.bin")["a"].shape
        torch.Size([3])
    """
    return TensorDict.from_consolidated(filename)


@set_module("tenfold")
def is_leaf_nontensor(cls: type) -> bool:
    """An argument for ``keys(is_leaf=...)``: tensors and values that are not tensors are leaves.

    Args:
        cls: The class of an entry.

    Returns:
        bool: False for TensorDict, LazyStackedTensorDict and tensorclasses, else True.

    Example:
        >>> is_leaf = tenfold.tensordict.is_leaf_nontensor
        >>> TensorDict({"a": 1, "name": "run"}).keys(True, True, is_leaf)
        ['a', 'name']
    """
    return class_kind(cls) not in (NODE, TENSORCLASS)


@set_module("tenfold")
def default_is_leaf(cls: type) -> bool:
    """An argument for ``keys(is_leaf=...)``: only tensors are leaves.

    Args:
        cls: The class of an entry.

    Returns:
        bool: False for TensorDict, LazyStackedTensorDict, tensorclasses, NonTensorData and
            NonTensorStack, else True.

    Example:
        >>> tenfold.tensordict.default_is_leaf(torch.Tensor)
        True
    """
    return class_kind(cls) not in (NODE, TENSORCLASS) and not getattr(cls, "_is_non_tensor", False)


def simplify(obj: Any) -> tuple[Any, ...] | None:
    """Implements `tenfold._interop.objects.simplify` for TensorDicts and some entries.

    These entries are objects of tensorclasses, NonTensorData, NonTensorStack and UnbatchedTensor.
    Returns None for other objects, such as tensors.
    """
    if isinstance(obj, (TensorDictBase, NonTensorData, NonTensorStack, UnbatchedTensor)):
        return obj._simplified()
    if class_kind(type(obj)) == TENSORCLASS:
        return tuple(obj._simplified())
    return None


def _register(torch: Any) -> None:
    """Registers TensorDicts for torch's ``default_collate`` and ``load(weights_only=True)``.

    Omits the functions of `_pickle` that open files, and `consolidated`, which does not check the
    offsets of jagged tensors.
    """
    register_collate(torch, TensorDictBase)
    functions = [_pickle.tensordict, _pickle.lazy_stack, _pickle.non_tensor_stack]
    torch.serialization.add_safe_globals([*functions, TensorDict, NonTensorData])


objects.register_trees(simplify)
arrays.on_torch(_register)
