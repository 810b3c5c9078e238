"""Which entries a TensorDict has, and under which keys: selections, renamings, flat keys."""

from __future__ import annotations

from tenfold._errors import KeyNotFoundError
from tenfold.tensordict._entries import NODE, class_kind, node_of, rewrapped
from tenfold.tensordict._keys import NOTHING, path_of
from tenfold.tensordict._protocol import Primitives

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from tenfold.tensordict._protocol import Key


class StructureMethods(Primitives):
    """`select`, `exclude`, `split_keys`, `rename_key_`, `flatten_keys`, `empty`, ..."""

    __slots__ = ()

    def select(
        self, *keys: Key, inplace: bool = False, strict: bool = True, as_tensordict: bool = False
    ) -> Any:
        """A TensorDict of these entries only, which are shared, not copied.

        Args:
            *keys: Keys or paths of keys.
            inplace: Delete the other entries of this TensorDict instead.
            strict: If false, keys that name nothing are passed over.
            as_tensordict: Accepted; a TensorDict is what comes in any case.

        Raises:
            KeyError: If `strict` and a key names nothing.

        Example:
            >>> TensorDict({"a": 1, "b": {"c": 2, "d": 3}}).select("a", ("b", "c")).keys(True, True)
            ['a', ('b', 'c')]
        """
        if any(not isinstance(key, (str, tuple)) for key in keys):
            raise RuntimeError(f"select: expected keys or paths of keys, found {list(keys)}")
        return self._selected(_grouped(keys), inplace, strict)

    def _selected(self, wanted: Any, inplace: bool, strict: bool) -> Any:
        if inplace:
            self._check_unlocked()
        kept: dict[str, Any] = {}
        for key, below in wanted.items():
            if not self._has(key):
                if strict:
                    self._entry(key)  # raises
                continue
            entry = self._entry(key)
            if below:
                node = node_of(entry)
                if node is None:
                    if strict:
                        self._walk((key, next(iter(below))))
                    continue
                entry = rewrapped(entry, node._selected(below, inplace, strict))
            kept[key] = entry
        if inplace:
            for key in self._key_list():
                if key not in kept:
                    self._remove(key)
            return self
        return self._with_entries(kept)

    def exclude(self, *keys: Key, inplace: bool = False) -> Any:
        """A TensorDict of all entries but these; keys that name nothing are passed over.

        Args:
            *keys: Keys or paths of keys.
            inplace: Delete the entries of this TensorDict instead.
        """
        return self._excluded(_grouped(keys), inplace)

    def _excluded(self, unwanted: Any, inplace: bool) -> Any:
        if inplace:
            self._check_unlocked()
        kept: dict[str, Any] = {}
        for key, entry in list(self._entries().items()):
            below = unwanted.get(key)
            if below is None:
                kept[key] = entry
            elif below:
                node = node_of(entry)
                kept[key] = (
                    entry if node is None else rewrapped(entry, node._excluded(below, inplace))
                )
            elif inplace:
                self._remove(key)
        return self if inplace else self._with_entries(kept)

    def split_keys(
        self,
        *key_sets: Any,
        inplace: bool = False,
        default: Any = NOTHING,
        strict: bool = True,
        reproduce_struct: bool = False,
    ) -> tuple[Any, ...]:
        """One TensorDict for each set of keys, and one of what is left.

        Args:
            *key_sets: Each a list of keys, or a dict from key to new key.
            inplace: The last one is this TensorDict, less what the others took.
            default: What a missing key gives; not given: it is an error, or left out if not strict.
            strict: If false, keys that name nothing are passed over.
            reproduce_struct: Each TensorDict has all nodes, also those that stay empty.

        Raises:
            KeyError: If a key names nothing.
        """
        if default is not NOTHING and not strict:
            raise TypeError("split_keys: expected default or strict=False, found both")
        rest = self if inplace else self.copy()
        rest._check_unlocked()
        made = []
        for key_set in key_sets:
            part = self.empty(recurse=reproduce_struct)
            pairs = (
                key_set.items() if hasattr(key_set, "items") else [(key, key) for key in key_set]
            )
            for key, new_key in pairs:
                found = rest.get(key, NOTHING)
                if found is NOTHING:
                    if default is NOTHING and strict:
                        rest._walk(path_of(key))
                    if default is not NOTHING and default is not None:
                        part.set(new_key, default)
                    continue
                part.set(new_key, found)
                rest.del_(key)
            made.append(part)
        if not reproduce_struct:
            rest.filter_empty_()
        return (*made, rest)

    def separates(
        self,
        *keys: Key,
        default: Any = NOTHING,
        strict: bool = True,
        filter_empty: bool = True,
    ) -> Any:
        """Takes entries out of this TensorDict and returns them as one of their own.

        Raises:
            KeyError: If `strict` and a key names nothing.
        """
        part, _ = self.split_keys(list(keys), inplace=True, default=default, strict=strict)
        if not filter_empty:
            return part
        return part

    def filter_empty_(self) -> Any:
        """Deletes nodes in which there is nothing. Returns this TensorDict."""
        for key, entry in list(self._entries().items()):
            if class_kind(type(entry)) == NODE and entry.filter_empty_().is_empty():
                self._remove(key)
        return self

    def filter_non_tensor_data(self) -> Any:
        """A TensorDict of the tensors only."""
        kept = {}
        for key, entry in self._entries().items():
            node = node_of(entry)
            if node is not None:
                kept[key] = rewrapped(entry, node.filter_non_tensor_data())
            elif not getattr(entry, "_is_non_tensor", False):
                kept[key] = entry
        return self._with_entries(kept)

    def rename_key_(self, old_key: Key, new_key: Key, safe: bool = False) -> Any:
        """Moves an entry to another key. Returns this TensorDict.

        Args:
            old_key: A key that is there.
            new_key: Where to; nodes on the way are made.
            safe: If true, an entry at `new_key` is an error.

        Raises:
            KeyError: If there is no `old_key`, or `safe` and there is a `new_key`.
        """
        self._check_unlocked()
        if not isinstance(new_key, (str, tuple)):
            raise TypeError(f"rename_key_: expected a key or a path of keys, found {new_key!r}")
        old, new = path_of(old_key), path_of(new_key)
        if old == new:
            self._walk(old)
            return self
        if safe and new in self:
            raise KeyNotFoundError(
                f'rename_key_: "{".".join(new)}" is there: expected a new key, found an entry'
            )
        entry = self._walk(old)
        # A node that moves into itself, or takes the place of a node above it, goes first.
        shorter = min(len(old), len(new))
        goes_first = old[:shorter] == new[:shorter]
        if goes_first:
            self.del_(old)
        if len(old) == len(new) == 1:
            self._put(new[0], entry)
        else:
            self._node_for(new)._put_value(new[-1], entry)
        if not goes_first:
            self.del_(old)
        return self

    def rename_keys(self, mapping: Mapping[Key, Key], *, strict: bool = True) -> Any:
        """A TensorDict whose entries have other keys; entries are shared.

        Args:
            mapping: New key by old key.
            strict: If false, old keys that name nothing are passed over.

        Raises:
            KeyError: If `strict` and an old key names nothing.
        """
        made = self.copy()
        taken = []
        for old, new in mapping.items():
            found = made.get(old, NOTHING)
            if found is NOTHING:
                if strict:
                    made._walk(path_of(old))
                continue
            made.del_(old)
            taken.append((new, found))
        for new, entry in taken:
            made.set(new, entry)
        return made

    def flatten_keys(
        self,
        separator: str = ".",
        inplace: bool = False,
        is_leaf: Callable[[type], bool] | None = None,
    ) -> Any:
        """A TensorDict without nodes: ``{"a": {"b": t}}`` becomes ``{"a.b": t}``.

        Args:
            separator: Between the keys of a path.
            inplace: Change this TensorDict instead.
            is_leaf: Which classes of entries stay as they are.

        Raises:
            KeyError: If two entries would have one key.
        """
        flat: dict[str, Any] = {}
        for path, entry in self._leaf_paths((), is_leaf):
            name = separator.join(path)
            if name in flat:
                raise KeyNotFoundError(
                    f'flatten_keys: expected different keys, found "{name}" twice'
                )
            flat[name] = entry
        if not inplace:
            return self._with_entries(flat)
        self._check_unlocked()
        for key in self._key_list():
            if key not in flat:
                self._remove(key)
        for key, entry in flat.items():
            if not self._has(key):
                self._put(key, entry)
        return self

    def _leaf_paths(self, above: tuple[str, ...], is_leaf: Callable[[type], bool] | None) -> Any:
        for key, entry in self._entries().items():
            node = node_of(entry)
            if node is None or (is_leaf is not None and is_leaf(type(entry))):
                yield (*above, key), entry
            else:
                yield from node._leaf_paths((*above, key), is_leaf)

    def unflatten_keys(self, separator: str = ".", inplace: bool = False) -> Any:
        """Nodes for keys with a separator in them: ``{"a.b": t}`` becomes ``{"a": {"b": t}}``.

        The keys of nodes below stay as they are.

        Args:
            separator: Between the keys of a path.
            inplace: Change this TensorDict instead.

        Raises:
            KeyError: If a path leads through a tensor.
        """
        made = self if inplace else self.copy()
        made._check_unlocked()
        for key in made._key_list():
            if separator not in key:
                continue
            path = tuple(key.split(separator))
            entry = made._entry(key)
            if path in made:
                raise KeyNotFoundError(
                    f'unflatten_keys: expected different keys, found "{key}" twice'
                )
            made._node_for(path)._put(path[-1], entry)
            made._remove(key)
        return made

    def empty(
        self,
        recurse: bool = False,
        *,
        batch_size: Any = None,
        device: Any = NOTHING,
        names: Any = NOTHING,
    ) -> Any:
        """A TensorDict without entries that is otherwise as this one.

        Args:
            recurse: Keep the nodes below, empty too, and what is no tensor.
            batch_size: Another batch size.
            device: Another device, or None.
            names: Other names of the dimensions, or None.
        """
        made = self._with_entries({})
        if batch_size is not None:
            made.batch_size = batch_size
        if device is not NOTHING:
            made._device = None if device is None else str(device)
        if names is not NOTHING:
            made.names = names
        if recurse:
            for key, entry in self._entries().items():
                if node_of(entry) is not None:
                    made._put(key, entry.empty(recurse=True))
                elif getattr(entry, "_is_non_tensor", False):
                    made._put(key, entry.clone())
        return made

    def clear(self) -> Any:
        """Deletes all entries. Returns this TensorDict."""
        self._check_unlocked()
        for key in self._key_list():
            self._remove(key)
        return self

    def copy(self) -> Any:
        """The same tensors in new nodes: ``clone(recurse=False)``."""
        return self.clone(recurse=False)

    def replace(self, *args: Any, **kwargs: Any) -> Any:
        """A copy, sharing its tensors, with some entries replaced.

        Args:
            *args: A dict or TensorDict of new entries, at most one.
            **kwargs: New entries.

        Raises:
            KeyError: If there is no such entry yet.
        """
        if len(args) > 1:
            raise ValueError(f"replace: expected at most one dict, found {len(args)} arguments")
        entries = dict(args[0].items()) if args else {}
        entries.update(kwargs)
        if not entries:
            return self
        return self.copy().update(entries)


def _grouped(keys: tuple[Any, ...]) -> dict[str, Any]:
    """Paths as nested dicts; an empty dict takes the whole entry."""
    grouped: dict[str, Any] = {}
    whole = set()
    for key in keys:
        path = path_of(key)
        level = grouped
        for depth, part in enumerate(path):
            if path[: depth + 1] in whole:
                break
            if depth == len(path) - 1:
                level[part] = {}
                whole.add(path)
            else:
                level = level.setdefault(part, {})
    return grouped
