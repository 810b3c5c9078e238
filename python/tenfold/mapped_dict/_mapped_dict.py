"""A dictionary on disk."""

from __future__ import annotations

import os
from collections.abc import ItemsView, KeysView, Mapping, ValuesView
from itertools import chain, islice
from typing import Any

from tenfold import _core, _pickle
from tenfold._errors import KeyNotFoundError, UnsupportedError, with_remedy
from tenfold._html import paragraph
from tenfold._interop.arrays import is_array, is_numpy_number
from tenfold._interop.frameworks import code_of, decided
from tenfold._options import path_argument, text
from tenfold._progress import Shown
from tenfold._public import set_module
from tenfold.dataset._dataset import Dataset
from tenfold.dataset._ragged import jagged
from tenfold.dataset._rows import samples_of
from tenfold.dataset._schema import Schema
from tenfold.mapped_dict._build import (
    build,
    checked_keys,
    form_of,
    items_per_batch,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Literal

    from typing_extensions import Self

    from tenfold._interop.frameworks import Framework, Name
    from tenfold._io.files import Mode, PathLike
    from tenfold._progress import Callback

    # At run time, MappedDict is registered as a Mapping instead, because a class cannot have both
    # bases: their metaclasses conflict.
    class _Native(_core.MappedDict, Mapping[Any, Any]): ...
else:
    _Native = _core.MappedDict

# The remedy for items that do not fit a dictionary that was built without items.
_BUILD = (
    "the dictionary was built without items, so the types of its keys and values are unknown: "
    "build() it again"
)


@set_module("tenfold")
class MappedDict(_Native):
    """A dictionary on disk that maps str, bytes or int keys to tensors, scalars, strings or dicts.

    Opening reads only metadata, however large the dictionary is; a lookup accesses a few pages of
    mapped files. If the index does not match the rows, for example after a power failure, opening
    reads all keys and warns. A dictionary is a `collections.abc.Mapping` in insertion order.
    Iteration reads the dictionary in blocks.

    >>> words = tenfold.MappedDict.build({"house": torch.rand(300), "garden": torch.rand(300)}, "w")
    >>> words = tenfold.MappedDict("w")
    >>> words["house"]                                  # float32 [300], a copy
    >>> "tree" in words, words.get("tree")              # False, None
    >>> vectors, found = words.get_many(["garden", "tree"])
    >>> vectors.shape, found                            # [2, 300], tensor([True, False])

    Values are returned in the form in which they were given: a tensor, a dict (``{"x": ...,
    "tokens": ...}``, also with ragged tensors, see `Dataset`), or bool, int, float, str or bytes
    (floats for a mix of ints and floats). Lists of numbers, and numbers in a dict, are returned as
    tensors. If an entry ``"x"`` is None or missing in some dicts, all have ``"x.valid"``, too. A
    lookup with a key of another type finds nothing; bool does not count as int, NumPy's integers
    and 0-d tensors of integers do. A pickle has the path, mode and framework; the dictionary works
    in forked and spawned workers.

    Args:
        path: A folder created by `build`, or a file that `convert` created from one.
        mode: ``"r"`` or ``"c"``: read-only. ``"r+"``: ``d[key] = value`` changes existing keys, and
            `extend` adds new ones. Other processes may read concurrently, and see the old value or
            the new one. One process writes at a time.
        framework: ``"torch"`` or ``"numpy"``, as for `tenfold.load`. None: decided when the
            dictionary is opened; unpickling does not decide again.

    Raises:
        FileNotFoundError: If there is nothing at `path`.
        ValueError: If `path` is not a dictionary, or for another mode.
        UnsupportedError: If `path` is a file and the mode is ``"r+"``. For a ``.tdz`` file, the
            first write raises it instead.
        CorruptFileError: If the metadata or the header of the index is invalid.
    """

    def __init__(self, path: PathLike, mode: Mode = "r", *, framework: Framework = None) -> None:
        self._path = os.path.abspath(os.fspath(path_argument("MappedDict(path)", path)))
        self._mode: Mode = mode
        self._framework: Name = decided(framework)
        super().__init__(
            self._path, text("mapped dict: mode", mode), jagged, code_of(self._framework)
        )

    @classmethod
    def build(
        cls,
        items: Any,
        path: PathLike,
        *,
        key: str = "key",
        duplicates: Literal["error", "last"] = "error",
        progress: Callback | bool | None = None,
    ) -> Self:
        """Writes a dictionary in bounded memory, replaces `path` atomically, and opens it.

        >>> tenfold.MappedDict.build(((word, vector) for word, vector in rows), "words")
        >>> tenfold.MappedDict.build((tenfold.Dataset("flights"), "id"), "flight_by_id")

        Args:
            items: A mapping, an iterable of pairs, or a `Dataset` (or ``(dataset, key)``).
            path: Target folder. An existing dictionary, data set or other folder that tenfold saved
                is replaced atomically.
            key: For a data set: the column of the keys; the other columns are the values.
            duplicates: ``"error"``: a duplicate key is an error. ``"last"``: the last value of a
                duplicate key is stored.
            progress: As for `tenfold.save`.

        Returns:
            MappedDict: The dictionary, opened to read.

        Raises:
            ValueError: For a key that is not str, bytes or an int that int64 can hold, keys of two
                types (the message names both), a duplicate key, and values that cannot be stored
                together: None, values of different forms, scalars of different types (int and float
                may be mixed), tensors whose shapes differ beyond the first dimension, dtypes that
                `ingest` does not promote to a common one, and values that `ingest` would convert to
                strings, such as lists of ints and strs. Also for values with an entry or column
                ``"key"``, an item that is not a pair, and another `duplicates`.
            KeyError: If a data set has no column `key`.
            TypeError: For a key that is not hashable, and for `items` that are not iterable.
            OSError: If there is a file at `path`, or a folder with files that do not belong to a
                saved tree, or if a system call failed.
        """
        path_argument("MappedDict.build(items, path)", path)
        build(items, os.fspath(path), duplicates, key, progress)
        return cls(path)

    # --- many keys ---

    def get_many(self, keys: Any, missing: Literal["mask", "raise"] = "mask") -> tuple[Any, Any]:
        """Returns the values of many keys in one call.

        Looks up tens of thousands of keys on several threads.

        >>> vectors, found = words.get_many(["house", "tree"])
        >>> vectors, found = ids.get_many(torch.tensor([7, 1, 7]))
        >>> packed = {"values": torch.tensor(list(b"housetree"), dtype=torch.uint8),
        ...           "offsets": torch.tensor([0, 5, 9])}    # "house" and "tree"
        >>> vectors, found = words.get_many(packed)

        Args:
            keys: A list or another iterable of keys, but not a str or bytes, nor a dict of keys.
                Keys may be repeated. Integer keys may be a 1-d tensor or array. Keys may be an
                array of Arrow; nulls are missing keys. Keys that are str or bytes may be packed
                into a dict:
                ``{"values": uint8 [M], "offsets": int64 [B + 1]}``.
            missing: ``"mask"``: values of missing keys are zeros, ``""`` or empty. ``"raise"``: a
                missing key is an error.

        Returns:
            ``(values, found)``: a tensor ``[B, *shape]``, a jagged tensor for ragged values (NumPy:
            a list of arrays), a list of str, bytes or lists of them, or a dict of these; and a bool
            tensor ``[B]``.

        Raises:
            KeyError: With ``missing="raise"``, for missing keys; the message names the first ones.
            TypeError: For keys that are not hashable, a single key, tensors that are not dense, and
                tensors or arrays of other numeric dtypes (also uint64 and bool) or dimensions.
            ValueError: For another `missing`, and for packed keys with invalid offsets.
        """
        keys = _several(keys)
        if missing not in ("mask", "raise"):
            raise ValueError(f'missing: expected "mask" or "raise", found {missing!r}')
        both: Any = self._get_many(keys, missing == "raise")
        return both  # type: ignore[no-any-return]

    def rows(self, keys: Any) -> Any:
        """Returns the row indices of keys in ``tenfold.Dataset(path)``.

        ``tenfold.Dataset(path)`` also has superseded rows (of values that were replaced), which
        `dataset` omits. Row indices are valid until `compact`.

        Args:
            keys: As for `get_many`.

        Returns:
            int64 ``[B]``; -1 for missing keys.

        Raises:
            TypeError, ValueError: For invalid `keys`, as for `get_many`.

        Example:
            >>> words.rows(["house", "tree"]).tolist()
            [0, -1]
        """
        return self._rows(_several(keys))

    @property
    def dataset(self) -> Dataset:
        """A data set with one row for each key, in insertion order.

        Its columns are ``"key"`` and the columns of the values; values other than dicts are in the
        column ``"value"``. If no row is superseded, `rows` returns row indices of this data set.
        """
        num_keys = len(self)
        # Read the number of keys first: the data set then has at least these rows.
        rows = None if self._is_dense() else self._ordered_rows()
        if self._mode == "r+":  # open it with mode "r", so that columns are not shared mappings
            dataset = Dataset(self._path, framework=self._framework)
        else:
            dataset = Dataset._of_native(self._dataset(), self._path, self._mode)
            dataset = dataset._with_framework(self._framework)
        if rows is None and len(dataset) == num_keys:  # no rows were added since
            return dataset
        return dataset.take(self._ordered_rows() if rows is None else rows)

    @property
    def schema(self) -> Schema:
        """The columns of the values."""
        return Schema.from_json(self._schema_json())

    @property
    def key_type(self) -> type:
        """The type of the keys: str, bytes or int."""
        return {"str": str, "bytes": bytes, "int": int}[self._key_type()]

    def __repr__(self) -> str:
        counted = f"{len(self):,} {self._key_type()} keys"
        return f"MappedDict({', '.join([repr(self._path), counted, *self.schema._lines('')])})"

    def _repr_html_(self) -> str:
        keys = "key" if len(self) == 1 else "keys"
        line = f"MappedDict: {self._path}, {len(self):,} {self._key_type()} {keys}"
        return paragraph(line) + self.schema._repr_html_()

    # --- as a mapping ---

    def __iter__(self) -> Iterator[Any]:
        for keys, _ in self._blocks(with_values=False):
            yield from keys

    def keys(self) -> KeysView[Any]:
        """The keys, in insertion order, read in blocks."""
        return KeysView(self)

    def values(self) -> ValuesView[Any]:
        """The values, in the order of `keys`, read in blocks."""
        return _Values(self)

    def items(self) -> ItemsView[Any, Any]:
        """Pairs of key and value, in the order of `keys`, read in blocks."""
        return _Items(self)

    def __eq__(self, other: object) -> bool:
        """True if keys and values are equal, and the dtypes and frameworks of tensors, too."""
        if self is other:
            return True
        if not isinstance(other, Mapping):
            return NotImplemented
        if len(self) != len(other):
            return False
        absent = object()
        return all(_is_same(value, other.get(key, absent)) for key, value in self.items())

    __hash__ = None  # type: ignore[assignment]
    __reversed__ = None  # as in collections.abc.Mapping

    def _blocks(self, with_values: bool) -> Iterator[tuple[list[Any], Any]]:
        walk = self._walk()
        while True:
            keys: Any
            keys, values = self._walk_on(walk, with_values)
            if not keys:
                return
            yield keys, values

    def _pairs(self) -> Iterator[tuple[Any, Any]]:
        is_scalar = self._form() == "scalar"
        for keys, values in self._blocks(with_values=True):
            if is_scalar and not isinstance(values, list):
                values = values.tolist()
            samples: Iterable[Any] = (
                values if isinstance(values, list) else samples_of(values, len(keys))
            )
            yield from zip(keys, samples, strict=True)

    # --- writing ---

    def __setitem__(self, key: Any, value: Any) -> None:
        """Assigns a new value to an existing key, atomically for readers and after a crash.

        The row of the old value stays on disk, superseded, until `compact`; the key keeps its
        position.

        Raises:
            KeyError: For a missing key, which `extend` would add.
            ValueError: For a value of another kind or shape, and for numbers that the dtype cannot
                hold. Float dtypes round. In a dictionary of floats, an int that float64 cannot hold
                exactly is an error.
            TypeError: For a key that is not hashable.
            UnsupportedError: If the dictionary is open read-only or closed.
            OSError: If another process is writing (the message names the process), or a system call
                failed.
        """
        self.update([(key, value)])

    def update(self, items: Any) -> None:
        """Assigns each item of a mapping or an iterable of pairs.

        Keys change one by one, each atomically. If the call raises, no key has changed. The values
        may be larger than memory, as for `extend`. After a crash, some keys may keep their old
        values until a process writes to the dictionary again.

        Args:
            items: A mapping or an iterable of pairs of key and value.

        Raises:
            KeyError: For a missing key; the message names it, and nothing has changed.
            ValueError, TypeError, UnsupportedError, OSError: As for assignment. ValueError also for
                an item that is not a pair.

        Example:
            >>> with tenfold.MappedDict("words", "r+") as words:
            ...     words.update({"house": torch.zeros(300)})
        """
        self._require_writer("update")
        self._write_all(items, "assign")

    def extend(self, items: Any, duplicates: Literal["error", "last"] = "error") -> None:
        """Adds keys; readers find all of them or none.

        >>> with tenfold.MappedDict("words", "r+") as words:
        ...     words.extend({"tree": torch.rand(300)})

        Many items are kept in spill files; memory use is then about 100 bytes per key.

        Args:
            items: A mapping or an iterable of pairs.
            duplicates: ``"error"``: an existing or duplicate key is an error. ``"last"``: existing
                keys are assigned, as by `update`; of several pairs with the same key, the last one
                is stored.

        Raises:
            ValueError: For existing or duplicate keys (the message names the first ones), a key of
                another type, a value that does not fit, as for assignment, an item that is not a
                pair, and another `duplicates`. Nothing has been added.
            TypeError, UnsupportedError, OSError: As for assignment.
        """
        self._require_writer("extend")
        if duplicates not in ("error", "last"):
            raise ValueError(f'duplicates: expected "error" or "last", found {duplicates!r}')
        self._write_all(items, duplicates)

    def _write_all(self, items: Any, kind: str) -> None:
        """Writes all pairs. `kind` is "assign", or the argument `duplicates` of `extend`."""
        blocks = self._checked_blocks(items, kind)
        first = next(blocks, None)
        if first is None:
            return
        following = next(blocks, None)
        if following is None:
            self._write(*first, kind)
            return
        spill = self._spill()  # acquires the writer lock before the other items are read
        for block in chain([first, following], blocks):
            self._spill_items(spill, *block)
        self._write_spill(spill, kind)

    def _checked_blocks(self, items: Any, kind: str) -> Iterator[tuple[int, list[Any], list[Any]]]:
        """Yields for each block: the number of its first item, the keys, and the values as rows."""
        for begin, keys, values in _blocks_of(items):
            if kind == "assign":
                for key in keys:
                    if key not in self:
                        raise KeyNotFoundError(
                            f"{self._path}: no key {key!r}; extend() adds new keys"
                        )
            try:
                if kind != "assign":
                    keys = checked_keys(keys, self.key_type, begin)
                rows = self._rows_of(values, begin)
            except ValueError as error:
                if self._is_untyped():
                    raise with_remedy(error, _BUILD) from None
                raise
            yield begin, keys, rows

    def _rows_of(self, values: list[Any], begin: int) -> list[Any]:
        if self._form() != "columns":
            return [{"value": value} for value in values]
        is_untyped = self._is_untyped()
        for i, value in enumerate(values, begin):
            if form_of(value) != "columns":
                name = type(value).__name__
                raise ValueError(f"item {i}: value: expected a dict of columns, found {name}")
            if is_untyped and (names := list(value.keys())):
                raise ValueError(f"item {i}: value: expected no columns, found {names}")
        return values

    def _is_untyped(self) -> bool:
        """True if the dictionary was built without items, and is still empty."""
        return not len(self) and not len(self.schema)

    def __delitem__(self, key: Any) -> None:
        raise TypeError(
            "a key of a mapped dictionary cannot be deleted; build() another dictionary without it"
        )

    def compact(self, *, progress: Callback | bool | None = None) -> None:
        """Rewrites the dictionary without superseded rows, and replaces it atomically.

        Row indices change. Open readers reopen the dictionary at their next lookup, and iterations
        continue. If the file system has no ``flock``, keys that another process adds during the
        call may be lost.

        Args:
            progress: As for `tenfold.save`. It must not use this dictionary.

        Raises:
            UnsupportedError: As for assignment.
            OSError: If the dictionary is also open in mode ``"r+"`` elsewhere, or another process
                has added keys or replaced the dictionary during the call (nothing has changed
                then), or if a system call failed.

        Example:
            >>> with tenfold.MappedDict("words", "r+") as words:
            ...     words["house"] = torch.zeros(300)
            ...     words.compact()
        """
        self._require_writer("compact")
        with Shown(progress) as callback:
            self._compact(callback)

    def flush(self) -> None:
        """Makes all values durable: they survive a power failure."""
        self._require_writer("flush")
        self._flush()

    def close(self) -> None:
        """Calls `flush` and lets another process write. The dictionary can still be read.

        Does nothing if the dictionary was opened read-only or is closed already. After writes
        without `close`, the next writer rebuilds the index, and a power failure may lose the values
        since the last `flush`.

        Raises:
            OSError: ESTALE if the folder was moved after values were written. Nevertheless, another
                process can then write to the dictionary.
        """
        self._close()

    def refresh(self) -> Self:
        """Reads the current state of the files, and returns `self`. Rarely needed.

        Lookups, ``len``, iteration and `dataset` include the keys that other processes have added,
        and the values that they have assigned, without this call.
        """
        self._refresh()
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_writer(self, what: str) -> None:
        if self._mode != "r+":
            raise UnsupportedError(
                f'dictionary: {what}: expected a dictionary opened with mode "r+", found mode '
                f'"{self._mode}"; MappedDict(path, mode="r+")'
            )

    # --- pickling ---

    def __reduce__(self) -> tuple[Any, ...]:
        return _pickle.opened_dict, (type(self), self._path, self._mode, self._framework)


def _is_same(a: Any, b: Any) -> bool:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_is_same(a[key], b[key]) for key in a)
    if is_array(a) or is_array(b):
        if not (is_array(a) and is_array(b)) or a.shape != b.shape or a.dtype != b.dtype:
            return False
        return bool((a == b).all())
    return bool(a == b)


def _several(keys: Any) -> Any:
    """The keys as the engine takes them. Raises TypeError for a number and for None."""
    if keys is None or isinstance(keys, (int, float)) or is_numpy_number(keys):
        found = "None" if keys is None else f"one {type(keys).__name__}"
        raise TypeError(f"keys: expected several keys, found {found}")
    if not hasattr(keys, "to_pylist"):
        return keys
    if not hasattr(keys, "null_count"):
        raise TypeError(f"keys: expected a column of Arrow, found {type(keys).__name__}")
    # An array of Arrow. Its items are scalars of Arrow, not Python objects.
    is_dense = keys.null_count == 0 and str(keys.type).startswith(("int", "uint"))
    return keys.to_numpy() if is_dense else keys.to_pylist()


def _blocks_of(items: Any) -> Iterator[tuple[int, list[Any], list[Any]]]:
    """Yields for each block of a mapping or pairs: number of its first item, keys, values."""
    pairs = iter(items.items() if isinstance(items, Mapping) else items)
    block = list(islice(pairs, 1))
    _check_pairs(block, 0)
    count = items_per_batch(block[0][1]) if block else 0
    block += islice(pairs, count - 1) if block else ()
    begin = 0
    while block:
        _check_pairs(block, begin)
        yield begin, [key for key, _ in block], [value for _, value in block]
        begin += len(block)
        block = list(islice(pairs, count))


def _check_pairs(block: list[Any], begin: int) -> None:
    for number, pair in enumerate(block, begin):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ValueError(
                f"item {number}: expected a pair of key and value, found {type(pair).__name__}"
            )


class _Values(ValuesView[Any]):
    _mapping: MappedDict

    def __iter__(self) -> Iterator[Any]:
        for _, value in self._mapping._pairs():
            yield value

    def __contains__(self, value: object) -> bool:
        return any(_is_same(found, value) for found in self)


class _Items(ItemsView[Any, Any]):
    _mapping: MappedDict

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self._mapping._pairs()

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, tuple) or len(item) != 2 or item[0] not in self._mapping:
            return False
        return _is_same(self._mapping[item[0]], item[1])


# The type stubs of Python do not declare that the metaclass of Mapping is ABCMeta.
Mapping.register(MappedDict)  # pyright: ignore[reportAttributeAccessIssue]
