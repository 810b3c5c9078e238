"""Which rows of a stream a worker of a rank gets, and what is left of them when it stops."""

from __future__ import annotations

from itertools import count, islice
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any


class Deal(NamedTuple):
    """The rows of an epoch, numbered in its order, dealt in turn to the workers of all ranks.

    Shard ``s`` of ``S = world_size * workers`` (worker ``s // world_size`` of rank ``s %
    world_size``) gets the numbers ``position + s + k * S``. Workers run ahead of each other by
    whole batches, so that what was handed out is a prefix and some rows beyond it.

    Attributes:
        position: All rows before were handed out.
        world_size: Number of ranks.
        workers: Of each rank, at least 1.
        taken: Of each shard, how many of its numbers from `position` on were handed out.
        next_worker: Whose batch would have come next. That one's shard goes to the first worker of
            the next iteration, so that its batches come as if there had been no stop.
        holes: Single numbers, handed out by a deal to other shards.
    """

    position: int
    world_size: int
    workers: int
    taken: tuple[int, ...]
    next_worker: int = 0
    holes: frozenset[int] = frozenset()

    @classmethod
    def fresh(cls, world_size: int, workers: int, position: int = 0) -> Deal:
        """Nothing was handed out from `position` on."""
        return cls(position, world_size, workers, (0,) * (world_size * workers))

    def numbers(self, rank: int, worker: int) -> Iterator[int]:
        """Those that a worker has yet to hand out, rising, without end."""
        return (number for number in self._shard(self._shard_of(rank, worker)))

    def _shard_of(self, rank: int, worker: int) -> int:
        return (worker + self.next_worker) % self.workers * self.world_size + rank

    def _shard(self, shard: int) -> Iterator[int]:
        shards = len(self.taken)
        rising = count(self.position + shard + self.taken[shard] * shards, shards)
        return filter(lambda number: number not in self.holes, rising) if self.holes else rising

    def advanced(
        self,
        rows: Sequence[int],
        batches: int = 0,
        num_records: int | None = None,
        dropped: int = 1,
    ) -> Deal:
        """After the workers of every rank have handed out so many rows each, or all they had.

        Args:
            rows: One number for each worker.
            batches: Handed out by all workers of a rank in turn.
            num_records: Of the epoch; None: more than were handed out.
            dropped: Of the last rows of a worker, as many as fill no batch of this size were not
                handed out.
        """
        shards = len(self.taken)
        taken = list(self.taken)
        for rank in range(self.world_size):
            for worker, wanted in enumerate(rows):
                shard = self._shard_of(rank, worker)
                if num_records is not None:
                    left = self._left(shard, num_records)
                    wanted = min(wanted, left - left % dropped)
                if self.holes and wanted > 0:
                    last = next(islice(self._shard(shard), wanted - 1, None))
                    taken[shard] = (last - self.position - shard) // shards + 1
                else:
                    taken[shard] += wanted
        return self._replace(
            taken=tuple(taken), next_worker=(self.next_worker + batches) % self.workers
        )._settled()

    def _left(self, shard: int, num_records: int) -> int:
        """How many rows a shard has yet to hand out."""
        shards = len(self.taken)
        first = self.position + shard + self.taken[shard] * shards
        numbers = range(first, num_records, shards)
        return len(numbers) - sum(hole in numbers for hole in self.holes)

    def _settled(self) -> Deal:
        """The same with the longest prefix."""
        shards = len(self.taken)
        whole = min(self.taken)
        position = self.position + whole * shards
        taken = tuple(number - whole for number in self.taken)
        settled = self._replace(position=position, taken=taken)
        return settled._replace(holes=frozenset(h for h in self.holes if not settled._has(h)))

    def _has(self, number: int) -> bool:
        """Whether it was handed out by this deal itself."""
        if number < self.position:
            return True
        index, shard = divmod(number - self.position, len(self.taken))
        return index < self.taken[shard]

    def dealt_to(self, world_size: int, workers: int) -> Deal:
        """The rest, for another number of ranks or workers."""
        if (world_size, workers) == (self.world_size, self.workers):
            return self
        ahead = range(self.position, self.position + max(self.taken) * len(self.taken))
        holes = {*self.holes, *(number for number in ahead if self._has(number))}
        position = self.position
        while position in holes:
            holes.remove(position)
            position += 1
        fresh = self.fresh(world_size, workers, position)
        return fresh._replace(holes=frozenset(holes))

    # --- as JSON ---

    def to_state(self) -> dict[str, Any]:
        """``{"position": n}``, and more only where rows beyond the prefix were handed out."""
        state: dict[str, Any] = {"position": self.position}
        if any(self.taken) or self.next_worker:
            state["world_size"] = self.world_size
            state["workers"] = self.workers
            state["taken"] = list(self.taken)
            state["next_worker"] = self.next_worker
        if self.holes:
            state["holes"] = sorted(self.holes)
        return state

    @classmethod
    def from_state(cls, state: Any) -> Deal:
        """The other way. Raises ValueError for what is no such state."""
        position = member(state, "position")
        if "taken" in state:
            world_size, workers = member(state, "world_size", 1), member(state, "workers", 1)
            taken = _numbers(state, "taken")
            if len(taken) != world_size * workers:
                raise ValueError(
                    f'iterable dataset: state: member "taken": expected {world_size * workers} '
                    f"numbers, one for each worker of each rank, found {len(taken)}"
                )
            deal = cls(position, world_size, workers, taken, member(state, "next_worker") % workers)
        else:
            deal = cls.fresh(1, 1, position)
        return deal._replace(holes=frozenset(_numbers(state, "holes") if "holes" in state else ()))


def member(state: Any, key: str, at_least: int = 0) -> int:
    """An int of a state. Raises ValueError naming what is wrong with it."""
    value: Any = state.get(key) if isinstance(state, dict) else None
    if not _is_number(value) or value < at_least:
        raise ValueError(
            f'iterable dataset: state: member "{key}": expected an int of {at_least} or more, '
            f"found {value!r}"
        )
    return int(value)


def _numbers(state: Any, key: str) -> tuple[int, ...]:
    values = state[key]
    if not isinstance(values, list) or not all(_is_number(v) and v >= 0 for v in values):
        raise ValueError(
            f'iterable dataset: state: member "{key}": expected a list of ints of 0 or more, '
            f"found {values!r}"
        )
    return tuple(values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
