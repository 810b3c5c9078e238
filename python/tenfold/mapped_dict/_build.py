"""Checks Python keys and values, and writes them as a dictionary on disk."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from itertools import islice

from tenfold import _core
from tenfold._errors import KeyNotFoundError
from tenfold._interop.arrays import bytes_of, is_array
from tenfold._options import column_name, path_text
from tenfold._progress import Shown
from tenfold.dataset._dataset import Dataset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from tenfold._progress import Callback

    Pair = tuple[Any, Any]

# Limits of a batch of items that is converted to columns: number of Python objects, and bytes.
# As few as 700 new objects start Python's garbage collector, which sometimes traverses all objects.
# If the source is a list of 20 million keys, the traversals take longer than storing the keys.
_BATCH_OBJECTS = 512
_BATCH_BYTES = 16 << 20
_KEY_TYPES: dict[type, str] = {str: "str", bytes: "bytes", int: "int"}
# Functions that convert a key to Python's own type. Like lookups, they ignore methods of
# subclasses, such as __str__ of an Enum.
_PLAIN_KEYS: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    bytes: lambda key: bytes(memoryview(key)),
    int: operator.index,
}
_shape_of = operator.attrgetter("shape")
_INT64 = range(-(2**63), 2**63)


def build(items: Any, path: str, duplicates: str, key: str, progress: Any) -> None:
    """Writes the dictionary; see `MappedDict.build`."""
    with Shown(progress) as callback:
        _build(items, path, duplicates, key, callback)


def _build(items: Any, path: str, duplicates: str, key: str, progress: Callback | None) -> None:
    if duplicates not in ("error", "last"):
        raise ValueError(f'duplicates: expected "error" or "last", found {duplicates!r}')
    if isinstance(items, tuple) and len(items) == 2 and isinstance(items[0], Dataset):
        items, key = items
    elif (
        isinstance(items, tuple)
        and len(items) == 2
        and isinstance(items[1], str)
        and not isinstance(items[0], (tuple, list, str))
    ):
        raise TypeError(
            "items: expected a Dataset before the name of the column of keys, found "
            f"{type(items[0]).__name__}; ingest() makes a data set of a table"
        )
    if isinstance(items, Dataset):
        key = column_name("key", key)
        if not items._maps:
            _core.build_mapped_dict(items._native, path, key, duplicates, progress)
            return
        items = _pairs_of(items, key)
    pairs = iter(items.items() if isinstance(items, Mapping) else items)
    first = list(islice(pairs, 1))
    if not first:
        schema = '{"columns": {"key": {"dtype": "string"}}}'
        _ingest(path, "columns", duplicates, schema, progress).finish()
        return
    Items(first, pairs).write(path, duplicates, progress)


def _ingest(
    path: str, form: str, duplicates: str, schema: str | None, progress: Callback | None
) -> _core.RowIngest:
    where = path_text(path)
    return _core.RowIngest(
        path, where, schema, [], "raise", 0, True, True, progress, [], [], (form, duplicates)
    )


def _pairs_of(dataset: Dataset, key: str) -> Iterator[Pair]:
    for number, row in enumerate(dataset):
        values = dict(row)
        if key not in values:
            names = ", ".join(f'"{name}"' for name in values)
            raise KeyNotFoundError(
                f'data set: row {number}: no column "{key}": expected one of {names}, found "{key}"'
            )
        yield values.pop(key), values


class Items:
    """Pairs whose keys have the same type and whose values have the same form."""

    def __init__(self, first: list[Pair], rest: Iterable[Pair]) -> None:
        self._rest = iter(rest)
        self._first = first
        key, value = _pair(first[0], 0)
        self.key_type = key_type_of(key, 0)
        self.form = form_of(value)
        if value is None:
            raise ValueError("item 0: value: expected a tensor, a dict or a scalar, found None")
        self._forms = Forms(self.form, value)

    def blocks(self) -> Iterator[tuple[int, list[Any], list[Any]]]:
        """Yields for each block: the number of its first pair, the keys and the values."""
        begin = 0
        count = items_per_batch(self._first[0][1])
        block = self._first + list(islice(self._rest, count - 1))
        while block:
            try:
                keys = [key for key, _ in block]
                values = [value for _, value in block]
            except (TypeError, ValueError):
                for i, pair in enumerate(block):
                    _pair(pair, begin + i)
                raise
            yield begin, checked_keys(keys, self.key_type, begin), values
            begin += len(block)
            block = list(islice(self._rest, count))

    def write(self, path: str, duplicates: str, progress: Callback | None) -> None:
        ingest = _ingest(path, self.form, duplicates, None, progress)
        for begin, keys, values in self.blocks():
            self._forms.check(values, begin)
            if self.form != "columns":
                columns = {("key",): keys, ("value",): values}
                if not ingest.add_columns(columns, 0, len(keys), 0):
                    raise ValueError("values: expected tensors or scalars, found a dict")
                continue
            rows = []
            for key, value in zip(keys, values, strict=True):
                if "key" in value:
                    raise ValueError(
                        'value: entry "key": expected another name, because the column of the '
                        'keys is named "key"'
                    )
                rows.append({"key": key, **value})
            ingest.add_rows(rows, 0)
        ingest.finish()


def items_per_batch(value: Any) -> int:
    """The number of items per batch, if all values are as large as `value`."""
    num_objects = 1 + _objects_of(value)  # including the pair
    num_bytes = max(bytes_of(value), 1)
    return max(1, min(_BATCH_OBJECTS // num_objects, _BATCH_BYTES // num_bytes))


def _objects_of(value: Any) -> int:
    if isinstance(value, Mapping):
        # 2: the mapping, and the row that is made from it.
        return 2 + sum(map(_objects_of, value.values()))
    return 0 if isinstance(value, (bool, int, float, str, bytes)) else 1


def _pair(pair: Any, number: int) -> Pair:
    try:
        key, value = pair
    except (TypeError, ValueError):
        raise ValueError(
            f"item {number}: expected a pair of key and value, found {type(pair).__name__}"
        ) from None
    return key, value


def key_type_of(key: Any, number: int) -> type:
    """Returns the type of a key: str, bytes or int.

    Raises:
        TypeError: For a key that is not hashable.
        ValueError: For a key of another type.
    """
    for kind in (str, bytes):
        if isinstance(key, kind):
            return kind
    if _is_int(key):
        return int
    hash(key)
    raise ValueError(
        f"item {number}: key: expected str, bytes or int, found {type(key).__name__} {key!r}"
    )


def _is_int(key: Any) -> bool:
    if isinstance(key, bool):
        return False
    if is_array(key):  # also 0-d tensors, which rows of data sets contain
        return key.ndim == 0 and "int" in str(key.dtype)
    # As in lookups, accept all NumPy classes with __index__ except bool: the name of an integer
    # class may lack "int" (longlong).
    kind = type(key)
    is_numpy = kind.__module__ == "numpy" and not kind.__name__.startswith("bool")
    return isinstance(key, int) or (is_numpy and hasattr(key, "__index__"))


def checked_keys(keys: list[Any], expected: type, begin: int) -> list[Any]:
    """Converts keys to Python's own types, and checks that all have the type `expected`.

    Args:
        keys: The keys of a block.
        expected: The type of the dictionary's keys: str, bytes or int.
        begin: Number of the first item of the block, for messages.

    Raises:
        TypeError: For a key that is not hashable.
        ValueError: For a key of another type, a str with a lone surrogate, or an int that int64
            cannot hold; the message names the key.
    """
    if set(map(type, keys)) != {expected}:
        for i, key in enumerate(keys):
            found = key_type_of(key, begin + i)
            if found is not expected:
                raise ValueError(
                    f"item {begin + i}: key {key!r}: expected {_KEY_TYPES[expected]}, the type of "
                    f"the dictionary's keys, found {_KEY_TYPES[found]}"
                )
        keys = list(map(_PLAIN_KEYS[expected], keys))
    if expected is str:
        for i, key in enumerate(keys, begin):
            _check_text(key, i)
    if expected is int and keys and not (min(keys) in _INT64 and max(keys) in _INT64):
        key = next(key for key in keys if key not in _INT64)
        raise ValueError(f"key: expected an int that fits int64, found {key}")
    return keys


def _check_text(key: str, number: int) -> None:
    try:
        key.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"item {number}: key {key!r}: expected text, found a str with a lone surrogate, which "
            "UTF-8 cannot encode"
        ) from None


def form_of(value: Any) -> str:
    """The form of a value: "columns", "scalar" or "tensor".

    A mapping or TensorDict is "columns". A bool, int, float or str is "scalar". Any other value,
    such as an array, a list or bytes, is "tensor".
    """
    if isinstance(value, Mapping) or hasattr(value, "batch_size"):
        return "columns"
    if isinstance(value, (bool, int, float, str)) and not is_array(value):
        return "scalar"
    return "tensor"


def _python_type(scalar: Any) -> type:
    """The type of a scalar; float or str for an instance of a subclass, such as numpy's float64."""
    for base in (float, str):
        if isinstance(scalar, base):
            return base
    return type(scalar)


class Forms:
    """Checks that all values can be stored like the first one.

    All values must have the same form. Scalars must have the same type, except that floats and ints
    may be mixed; the engine refuses ints that the dtype of the column cannot hold exactly.
    Instances of subclasses of float and str, such as numpy's float64 and str_, count as floats and
    strs. The shapes of tensors may differ only in the size of the first dimension.
    """

    def __init__(self, form: str, first: Any) -> None:
        self._form = form
        first_type = _python_type(first)
        self._first = first_type.__name__
        self._allowed: set[type] = {first_type}
        self._shape: tuple[int, ...] | None = None
        if first_type in (int, float):
            self._allowed = {int, float}

    def check(self, values: list[Any], begin: int) -> None:
        """Raises ValueError if a value does not fit; `begin` is the number of the first value."""
        kinds = set(map(type, values))
        for kind in kinds - self._allowed:
            index = next(i for i, value in enumerate(values) if type(value) is kind)
            if not self._fits(values[index]):
                self._refuse(begin + index, values[index])
            self._allowed.add(kind)
        if self._form == "tensor":
            self._check_shapes(values, begin)

    def _fits(self, value: Any) -> bool:
        if self._form == "scalar":
            return _python_type(value) in self._allowed
        return value is not None and form_of(value) == self._form

    def _check_shapes(self, values: list[Any], begin: int) -> None:
        """Checks shapes of tensors, which may differ only in the size of the first dimension."""
        try:
            shapes = list(map(_shape_of, values))
        except AttributeError:  # not tensors, but for example lists of numbers
            return
        if self._shape is None:
            self._shape = tuple(shapes[0])
        for shape in set(shapes):
            if len(shape) != len(self._shape) or tuple(shape[1:]) != self._shape[1:]:
                raise ValueError(
                    f"item {begin + shapes.index(shape)}: value: expected a tensor of shape "
                    f"{list(self._shape)}, as the first value is, found {list(shape)}; "
                    "values may differ in their first dimension only: pad them, or build with "
                    "dicts of the flattened values and the shape"
                )

    def _refuse(self, number: int, found: Any) -> None:
        expected = {"columns": "a dict", "tensor": "a tensor"}.get(self._form, self._first)
        name = "None" if found is None else type(found).__name__
        raise ValueError(
            f"item {number}: value: expected {expected}, as the first value is, found {name}"
        )
