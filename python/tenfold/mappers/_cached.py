"""A cache of a mapper's rows, bounded in bytes."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict

from tenfold._interop import arrays
from tenfold._options import integer
from tenfold._public import set_module
from tenfold.mappers import _rows
from tenfold.mappers._mapper import StateMapper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable
    from pathlib import Path
    from typing import Any

# All rows are cached in one tensor. If each row were a tensor, collecting a batch would take longer
# than copying its rows. This constant is the initial number of rows of the tensor, unless the first
# batch needs more or `max_bytes` allows fewer.
_FIRST_ROWS = 64


@set_module("tenfold")
class CachedStateMapper(StateMapper):
    """Caches the most recently used rows; created by `StateMapper.cached`.

    For each batch, the mapper generates the missing rows in one call, each row once. The returned
    rows share no memory with the cache and have no gradients. If the rows of the mapper have
    changed, for example because a module was trained, the next call clears the cache. Writes that
    torch's version counter does not count (through ``.data``, or a NumPy view of a detached
    parameter), and a change of the module's mode, are not noticed: call `clear`. The first rows
    that are cached determine dtype and shape: rows with another dtype or shape are not cached, but
    generated each time. A batch that has cached rows and rows with another dtype or shape is
    generated as a whole. If the mapper promotes the dtypes of a batch, the cached rows have the
    promoted dtype.

    The cache may be used from several threads. A saved or pickled cache contains the mapper, but
    no rows.

    Attributes:
        mapper: The mapper that generates the rows.
        max_bytes: Maximum total size of the cached rows in bytes.
        hits: Number of states whose row was cached, or was generated for an equal state that comes
            earlier in the same batch.
        misses: Number of states whose row was not cached. Equal states of a batch count once.
    """

    def __init__(self, mapper: StateMapper, max_bytes: int) -> None:
        if not isinstance(mapper, StateMapper):
            raise TypeError(f"mapper: expected a StateMapper, found {type(mapper).__name__}")
        self.mapper = mapper
        self.max_bytes: int = integer("max_bytes", max_bytes, 0)
        self.hits: int = 0
        self.misses: int = 0
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._stamp = self.mapper.stamp()
        self._forget()

    def _begin_after_fork(self) -> None:
        """In a forked child, resets lock and rows: a thread may have held the lock at the fork."""
        if self._process != os.getpid():
            self._begin()

    def _forget(self) -> None:
        self._slots: OrderedDict[Hashable, int] = OrderedDict()  # least recently used first
        self._free: list[int] = []
        self._rows: Any = None

    @property
    def nbytes(self) -> int:
        """Total size of the cached rows in bytes."""
        return len(self._slots) * self._row_bytes()

    def _row_bytes(self) -> int:
        rows = self._rows
        return 0 if rows is None else rows[:1].nbytes

    def clear(self) -> None:
        """Removes all rows from the cache; does not reset `hits` and `misses`."""
        self._begin_after_fork()
        with self._lock:
            self._forget()

    def generate(self, states: list[Any]) -> Any:
        self._begin_after_fork()
        keys = self.mapper._cache_keys(states)
        with self._lock:
            stamp, kept, places, missing = self._look_up(keys, states)
        if kept is not None and not missing:
            return kept
        made = self._generated(list(missing.values()))
        is_tensor = arrays.is_array(made)
        if is_tensor:
            with self._lock:
                # If the mapper changed while it generated the rows, they are returned, but not
                # cached.
                if stamp == self._stamp == self.mapper.stamp() and self._fits(made):
                    self._keep(made, list(missing))
        if len(missing) == len(keys):
            return made
        if places and not (is_tensor and _rows.same_kind(made, kept)):
            # The new rows are not tensors, or differ from the cached rows in dtype or shape. Only
            # the mapper can combine such rows.
            return self._generated(states)
        return self._joined(kept, places, made, missing, keys)

    def _generated(self, states: list[Any]) -> Any:
        """The rows of the mapper, without gradients, even if they are views of parameters."""
        with _rows.without_gradients():
            made = self.mapper._checked_rows(states)
        return list(map(_rows.detached, made)) if isinstance(made, list) else _rows.detached(made)

    def _look_up(
        self, keys: list[Hashable], states: list[Any]
    ) -> tuple[Any, Any, list[int], dict[Hashable, Any]]:
        """Returns the stamp, cached rows or None, their positions in the batch, missing states."""
        stamp = self.mapper.stamp()
        if stamp != self._stamp:
            self._forget()
            self._stamp = stamp
        slots = list(map(self._slots.get, keys))
        places = list(range(len(keys)))
        missing: dict[Hashable, Any] = {}
        if None in slots:
            places = [place for place in places if slots[place] is not None]
            missing = {keys[i]: states[i] for i, slot in enumerate(slots) if slot is None}
            slots = [slots[place] for place in places]
        for place in places:
            self._slots.move_to_end(keys[place])
        self.misses += len(missing)
        self.hits += len(states) - len(missing)
        return stamp, _rows.take(self._rows, slots) if slots else None, places, missing

    def _fits(self, made: Any) -> bool:
        return self._rows is None or _rows.same_kind(made, self._rows)

    def _keep(self, made: Any, keys: list[Hashable]) -> None:
        row_bytes = made[:1].nbytes
        limit = self.max_bytes // row_bytes if row_bytes else 0
        keys = keys[-limit:] if limit else []
        if not keys:
            return
        self._make_room(made, min(limit, len(self._slots) + len(keys)))
        slots = []
        for key in keys:
            # Another thread may have cached this row already.
            slot = self._slots.pop(key, None)
            if slot is None:
                slot = self._free.pop() if self._free else self._slots.popitem(last=False)[1]
            self._slots[key] = slot
            slots.append(slot)
        _rows.put(self._rows, slots, made[len(made) - len(keys) :])

    def _make_room(self, made: Any, num_rows: int) -> None:
        """Grows the cache to at least `num_rows` rows, which must fit `max_bytes`."""
        have = 0 if self._rows is None else len(self._rows)
        if num_rows <= have:
            return
        limit = self.max_bytes // made[:1].nbytes
        size = min(limit, max(num_rows, 2 * have, _FIRST_ROWS))
        grown = _rows.empty(size, made)
        if have:
            grown[:have] = self._rows
        self._rows = grown
        self._free.extend(range(size - 1, have - 1, -1))

    def _joined(
        self,
        kept: Any,
        places: list[int],
        made: Any,
        missing: dict[Hashable, Any],
        keys: list[Hashable],
    ) -> Any:
        number = {key: position for position, key in enumerate(missing)}
        if not arrays.is_array(made):
            return [made[number[key]] for key in keys]
        filled = set(places)
        others = [place for place in range(len(keys)) if place not in filled]
        rows = _rows.empty(len(keys), made)
        _rows.put(rows, others, _rows.take(made, [number[keys[place]] for place in others]))
        if places:
            _rows.put(rows, places, kept)
        return rows

    # --- delegation to the mapper ---

    def config(self) -> dict[str, Any]:
        return self.mapper.config()

    def tensors(self) -> dict[str, Any]:
        return self.mapper.tensors()

    def key(self, state: Any) -> Hashable:
        return self.mapper.key(state)

    def _cache_keys(self, states: list[Any]) -> list[Hashable]:
        return self.mapper._cache_keys(states)

    def stamp(self) -> Any:
        return self.mapper.stamp()

    def _batch(self, states: Any) -> list[Any] | None:
        return self.mapper._batch(states)

    def saved_as(self) -> StateMapper:
        return self.mapper.saved_as()

    def save(self, path: Any, **options: Any) -> Path:
        """Saves `mapper`, without the cached rows.

        Args:
            path: As for the mapper's `save`.
            **options: Options of the mapper's `save`: ``format``, ``durable``, ``overwrite``.

        Returns:
            Path: `path`.

        Raises:
            UnsupportedError, FileExistsError: As for `StateMapper.save`.

        Example:
            >>> mapper = HierarchicalStateMapper({"a": [1.0, 2.0], "b": [3.0, 4.0]})
            >>> mapper.cached(max_bytes=1 << 20).save("mapper").name
            'mapper'
        """
        return self.mapper.save(path, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        return CachedStateMapper, (self.mapper, self.max_bytes)

    def __repr__(self) -> str:
        return (
            f"CachedStateMapper({self.mapper!r}, max_bytes={self.max_bytes:,}: "
            f"{len(self._slots):,} rows, {self.nbytes:,} bytes, {self.hits:,} hits, "
            f"{self.misses:,} misses)"
        )
