"""Runs one call on tenfold's TensorDict and on tensordict's, and asserts the same outcome.

Both results are described by values that do not depend on the library:

    Leaf                     a tensor: dtype, shape, requires_grad, device, values
    Value                    any other value: NonTensorData, NonTensorStack, int, bool, ...
    Node                     TensorDict, LazyStackedTensorDict or a tensorclass, with its entries
    Raised                   an exception
    str, None                themselves
    list, tuple              a list or tuple of the descriptions of the items
    dict                     a list of the class name and the (key, description) pairs
    torch.Size, dtype, ...   a str; so are devices and classes
    nested tensor            a list of a str and the Leaf of each component

Descriptions use only public members, that is, names without a leading underscore.
"""

from __future__ import annotations

import dataclasses
import traceback
import warnings

import tensordict as upstream
import torch

import tenfold

# Exceptions that indicate a mistake in the test, such as a method that tensordict does not have. A
# test fails if tensordict raises one of them, unless the test passes the class as `raises`.
NOT_A_CONTRACT = (AttributeError, NameError, SyntaxError, NotImplementedError)


@dataclasses.dataclass(eq=False)
class Leaf:
    """A tensor. Floats may differ by rounding, because sums may be computed in another order."""

    values: torch.Tensor

    def __eq__(self, other):
        if not isinstance(other, Leaf) or self.facts() != other.facts():
            return False
        a, b = self.values, other.values
        if torch.equal(a, b):
            return True
        if not a.is_floating_point() and not a.is_complex():
            return False
        return torch.allclose(a, b, rtol=1e-6, atol=1e-7, equal_nan=True)

    __hash__ = None

    def facts(self):
        values = self.values
        return (values.dtype, tuple(values.shape), values.requires_grad, str(values.device))

    def __str__(self):
        dtype = str(self.values.dtype).removeprefix("torch.")
        extra = " requires_grad" if self.values.requires_grad else ""
        flat = self.values.detach().reshape(-1)
        shown = ", ".join(f"{item:.6g}" if item == item else "nan" for item in real(flat[:6]))
        return f"{dtype}{list(self.values.shape)}{extra} {shown}{', ...' * (flat.numel() > 6)}"


def real(flat):
    return [abs(item) if isinstance(item, complex) else item for item in flat.tolist()]


@dataclasses.dataclass(eq=False)
class Value:
    """A value that is neither tensor nor tree. True, 1 and 1.0 are unequal, also in containers."""

    value: object
    shape: list | None = None  # the batch size of NonTensorData and NonTensorStack

    def __eq__(self, other):
        if not isinstance(other, Value) or self.shape != other.shape:
            return False
        return is_same(self.value, other.value)

    __hash__ = None

    def __str__(self):
        return f"value {self.value!r}" + (f" {self.shape}" if self.shape else "")


def is_same(a, b):
    """Returns whether a and b have equal types and values, also in dicts, lists and tuples."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return is_same(list(a), list(b)) and is_same(list(a.values()), list(b.values()))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(is_same, a, b))
    return a is b or a == b


@dataclasses.dataclass
class Node:
    kind: str
    batch_size: list
    names: list
    device: str
    locked: bool
    memmap: bool
    entries: list  # (key, Leaf | Value | Node), in order

    def __str__(self):
        flags = " locked" * self.locked + " memmap" * self.memmap
        return f"{self.kind} {self.batch_size} names={self.names} device={self.device}{flags}"


@dataclasses.dataclass
class Raised:
    error: BaseException

    def __str__(self):
        shown = traceback.format_exception(self.error)[-4:]
        return f"raised {type(self.error).__name__}: {self.error}\n" + "".join(shown)


# --- describing ------------------------------------------------------------------------------


def describe(item):
    """Returns the description of a value, as in the table at the top."""
    kind = kind_of(item)
    if kind == "UnbatchedTensor":
        return Leaf(plain(item.data))
    if isinstance(item, torch.Tensor):
        if item.is_nested:
            return ["nested tensor", [Leaf(plain(part)) for part in item.unbind(0)]]
        return Leaf(plain(item))
    if kind == "NonTensorData":
        return Value(without_subclasses(item.data), list(item.batch_size))
    if kind == "NonTensorStack":
        return Value(without_subclasses(item.tolist()), list(item.batch_size))
    if kind is not None:
        return describe_node(item, kind)
    if isinstance(item, torch.Size):
        return f"Size({list(item)})"
    if isinstance(item, (torch.dtype, torch.device)):
        return str(item)
    if isinstance(item, type):
        return item.__name__
    if isinstance(item, dict):
        # A list, because the order of items must match too, for example in state_dict().
        return [type(item).__name__, [(key, describe(value)) for key, value in item.items()]]
    if isinstance(item, (list, tuple)):
        described = [describe(part) for part in item]
        return tuple(described) if isinstance(item, tuple) else described
    return item if item is None or isinstance(item, str) else Value(item)


def kind_of(item):
    """Returns the name of the tensordict or tenfold class that `item` is an instance of, or None.

    For a tensorclass, it is the name of the tensorclass.
    """
    if isinstance(item, type):
        return None
    names = [base.__name__ for base in type(item).__mro__]
    for kind in (
        "UnbatchedTensor",
        "NonTensorStack",
        "NonTensorData",
        "LazyStackedTensorDict",
        "TensorDict",
    ):
        if kind in names:
            return kind
    if dataclasses.is_dataclass(item) and hasattr(item, "batch_size"):
        return type(item).__name__
    return None


def describe_node(node, kind):
    if kind == "LazyStackedTensorDict":
        entries = [(str(i), describe(part)) for i, part in enumerate(node.tensordicts)]
        kind = f"{kind}({node.stack_dim})"
    elif kind == "TensorDict":
        entries = [(key, described_entry(value)) for key, value in node.items()]
    else:
        fields = [field.name for field in dataclasses.fields(node)]
        entries = [(name, described_entry(getattr(node, name))) for name in fields]
        kind = f"tensorclass {kind}"
    return Node(
        kind,
        list(node.batch_size),
        list(node.names),
        str(node.device),
        bool(node.is_locked),
        bool(node.is_memmap()),
        entries,
    )


def described_entry(value):
    """Describes an entry. A value and the object that wraps it have the same description."""
    is_plain = kind_of(value) is None and not isinstance(value, torch.Tensor)
    return Value(without_subclasses(value)) if is_plain else describe(value)


def plain(tensor):
    """A copy of the values as a plain torch.Tensor."""
    requires_grad = tensor.requires_grad
    with torch.no_grad():
        bare = tensor.detach().as_subclass(torch.Tensor).clone()
    return bare.requires_grad_() if requires_grad else bare


def without_subclasses(value):
    """Converts subclasses of list to list, recursively, and describes tensors and nodes."""
    if isinstance(value, list):
        return [without_subclasses(item) for item in value]
    return describe(value) if isinstance(value, torch.Tensor) or kind_of(value) else value


def tensors_of(item):
    """Returns the tensors in a value, in order."""
    kind = kind_of(item)
    if kind == "UnbatchedTensor" or isinstance(item, torch.Tensor):
        return [item]
    if kind in ("NonTensorData", "NonTensorStack"):
        return []
    if kind == "LazyStackedTensorDict":
        parts = item.tensordicts
    elif kind == "TensorDict" or isinstance(item, dict):
        parts = item.values()
    elif kind is not None:
        parts = [getattr(item, field.name) for field in dataclasses.fields(item)]
    else:
        parts = item if isinstance(item, (list, tuple)) else []
    return [tensor for part in parts for tensor in tensors_of(part)]


def lines(description, key="", indent=0):
    """Yields the lines of a readable form of a description, one for each part."""
    label = "  " * indent + (f"{key}: " if key else "")
    if isinstance(description, (list, tuple)):
        yield f"{label}{type(description).__name__} of {len(description)}"
        for i, part in enumerate(description):
            yield from lines(part, f"[{i}]", indent + 1)
        return
    yield label + str(description)
    if isinstance(description, Node):
        for name, part in description.entries:
            yield from lines(part, repr(name), indent + 1)


def text(description):
    return "\n".join(lines(description))


# --- comparing -------------------------------------------------------------------------------


@dataclasses.dataclass
class Outcome:
    """The outcome of a call.

    result: the description of the result, or Raised
    after: the description of the argument after the call; None if the call raised
    is_first_argument: whether the call returned the argument itself
    shares_memory: for each tensor of the result, whether it shares storage with a tensor of the
        argument; None if this was not tested or the call raised
    """

    result: object
    after: object = None
    is_first_argument: bool = False
    shares_memory: list | None = None


def outcome(library, build, call, *, memory=False):
    """Builds the argument with `build(library)`, and returns the outcome of `call` on it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.default_generator.manual_seed(0)  # torch.manual_seed also queries devices: 2 ms
        argument = build(library)
        before = {address(tensor) for tensor in tensors_of(argument)} if memory else None
        try:
            result = call(argument, library)
            shared = [address(t) in before for t in tensors_of(result)] if memory else None
            return Outcome(describe(result), describe(argument), result is argument, shared)
        except Exception as error:
            return Outcome(Raised(error))


def address(tensor):
    if kind_of(tensor) == "UnbatchedTensor":
        tensor = tensor.data
    return tensor.untyped_storage().data_ptr()


def assert_same_outcome(build, call, *, memory=False, raises=None):
    """Asserts that a call has the same outcome in tenfold as in tensordict.

    build: takes the library (tensordict or tenfold) and returns the argument
    call: takes the argument and the library
    memory: whether to compare which tensors of the result share memory with the argument
    raises: the exception class that tensordict must raise. If None, tensordict may return a result
        or raise any exception that is not in NOT_A_CONTRACT
    """
    expected = outcome(upstream, build, call, memory=memory)
    error = expected.result.error if isinstance(expected.result, Raised) else None
    if raises is not None:
        assert isinstance(error, raises), f"expected {raises.__name__}\n{expected.result}"
    else:
        is_meant = not isinstance(error, NOT_A_CONTRACT)
        assert is_meant, f"tensordict does not have this:\n{expected.result}"
    found = outcome(tenfold, build, call, memory=memory)
    assert_equal(found, expected)


def assert_equal(found, expected, *, in_order=True):
    if isinstance(expected.result, Raised) and isinstance(found.result, Raised):
        assert_same_kind(found.result, expected.result)
        return
    for what, *both in (
        ("returned", found.result, expected.result),
        ("left its argument as", found.after, expected.after),
    ):
        assert_described(what, *(both if in_order else map(unordered, both)))
    assert found.is_first_argument == expected.is_first_argument, (
        f"returns its argument: tensordict {expected.is_first_argument}, "
        f"tenfold {found.is_first_argument}"
    )
    assert found.shares_memory == expected.shares_memory, (
        f"tensors sharing memory with the argument: tensordict {expected.shares_memory}, "
        f"tenfold {found.shares_memory}"
    )


def assert_same_kind(found, expected):
    """Asserts that an `except` for tensordict's exception also catches tenfold's exception."""
    kind = type(found.error)
    for wanted in public_classes(type(expected.error)):
        assert issubclass(kind, wanted), (
            f"expected {wanted.__name__}, found {kind.__name__}\n"
            f"tensordict: {expected}\ntenfold: {found}"
        )


def public_classes(kind):
    """Returns the class if it is public, else its nearest public base classes."""
    if not kind.__name__.startswith("_"):
        return [kind]
    return [public for base in kind.__bases__ for public in public_classes(base)]


def unordered(description):
    """Sorts entries by key, because the libraries load the same files in different orders."""
    if isinstance(description, Node):
        entries = [(key, unordered(part)) for key, part in description.entries]
        return dataclasses.replace(description, entries=sorted(entries, key=lambda e: e[0]))
    if isinstance(description, (list, tuple)):
        return type(description)(map(unordered, description))
    return description


def assert_described(what, found, expected):
    if found == expected:
        return
    raise AssertionError(
        f"{what}: first difference at {first_difference(found, expected)}\n"
        f"--- tensordict {what}\n{text(expected)}\n--- tenfold {what}\n{text(found)}"
    )


def first_difference(found, expected, where="the root"):
    """Names the part in which two descriptions differ."""
    if isinstance(found, Node) and isinstance(expected, Node):
        for field in ("kind", "batch_size", "names", "device", "locked", "memmap"):
            if getattr(found, field) != getattr(expected, field):
                return f"{where}: {field}"
        keys = [[key for key, _ in node.entries] for node in (found, expected)]
        if keys[0] != keys[1]:
            return f"{where}: keys, expected {keys[1]}, found {keys[0]}"
        for (key, a), (_, b) in zip(found.entries, expected.entries, strict=True):
            if a != b:
                return first_difference(a, b, f"{where} / {key!r}")
    if isinstance(found, (list, tuple)) and type(found) is type(expected):
        for i, (a, b) in enumerate(zip(found, expected, strict=False)):
            if a != b:
                return first_difference(a, b, f"{where} [{i}]")
    return where
