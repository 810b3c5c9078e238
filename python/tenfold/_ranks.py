"""Collective operations of processes that save and restore together."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from datetime import timedelta

from tenfold._errors import (
    CorruptFileError,
    KeyNotFoundError,
    UnsupportedError,
    fields_of,
    with_fields,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T")

# How long a rank waits for the other ranks, which may be writing, before it raises an error.
_TIMEOUT = timedelta(minutes=30)

# If `work` raises an exception on one rank (see `Ranks.run`), the other ranks raise an error of the
# first class in this tuple of which that exception is an instance, or a RuntimeError if there is
# none. `described` handles OSErrors separately.
_CLASSES: tuple[type[Exception], ...] = (
    CorruptFileError,
    UnsupportedError,
    KeyNotFoundError,
    KeyError,
    TypeError,
    ValueError,
    MemoryError,
    RuntimeError,
)


class Ranks:
    """The ranks of a process group, or a single process.

    Args:
        rank: Number of this process.
        size: Number of ranks.
        group: A gloo group that no other object uses; None for a single process.
        owner: Name of the calling function or class, for messages.
    """

    def __init__(self, rank: int, size: int, group: Any, owner: str = "") -> None:
        self.rank = rank
        self.size = size
        self._group = group
        self._owner = owner
        self._failure = ""  # why an operation failed and made this rank leave the group

    @property
    def is_alone(self) -> bool:
        return self.size == 1

    def run(
        self, call: str, work: Callable[[], T], send: Callable[[T], Any] = lambda result: None
    ) -> tuple[T, list[Any]]:
        """Runs `work` on every rank. If `work` fails on one rank, all ranks raise an error.

        Args:
            call: Name of the call, which must be the same on all ranks.
            work: Called on this rank.
            send: Converts the result of `work` to a JSON value for the other ranks.

        Returns:
            The result of `work` on this rank, and the results of `send` on all ranks, by rank.

        Raises:
            Exception: If `work` or `send` failed. The lowest failed rank raises its own exception.
                The other ranks raise an error of the same class, of a base class, or RuntimeError.
                This error has the fields of that exception, and its message names the failed rank.
            RuntimeError: If the ranks make different calls; or if a rank does not answer. If a rank
                does not answer, this rank leaves the group. All ranks then raise an error, in this
                call and in all later calls.
        """
        if self.is_alone:
            result = work()
            return result, [send(result)]
        results: list[T] = []  # one, or none if `work` failed
        failure: BaseException | None = None
        message: dict[str, Any] = {"call": call}
        try:
            results.append(work())
            message["sent"] = send(results[0])
        except BaseException as error:
            failure = error
            message["error"] = described(error)
        messages = self._together(call, lambda: self._gather(message), failure)
        if failure is not None and not isinstance(failure, Exception):
            raise failure  # KeyboardInterrupt or SystemExit
        calls = [other["call"] for other in messages]
        if len(set(calls)) > 1:
            raise RuntimeError(
                f"{self._owner}: expected the same call on all ranks, found {_by_rank(calls)}"
            ) from failure
        for rank, other in enumerate(messages):
            if "error" in other:
                if rank == self.rank and failure is not None:
                    raise failure
                raise error_of(rank, other["error"]) from failure
        return results[0], [other["sent"] for other in messages]

    def any(self, flag: bool) -> bool:
        """True on all ranks if `flag` is true on at least one rank. Makes one all-reduce."""
        if self.is_alone:
            return flag
        torch = sys.modules["torch"]
        number = torch.tensor([int(flag)], dtype=torch.int32, device="cpu")
        reduce = torch.distributed.all_reduce
        most = torch.distributed.ReduceOp.MAX
        self._together("a flag", lambda: reduce(number, op=most, group=self._group))
        return bool(number.item())

    def leave(self) -> None:
        """Destroys the group. Idempotent."""
        group, self._group = self._group, None
        if group is not None:
            with contextlib.suppress(ValueError):  # the program has destroyed all groups
                sys.modules["torch"].distributed.destroy_process_group(group)

    def _gather(self, message: Any) -> list[Any]:
        """All-gathers JSON values, not pickles, so no rank executes code from another rank."""
        torch = sys.modules["torch"]
        distributed = torch.distributed
        data = json.dumps(message).encode()
        size = torch.tensor([len(data)], dtype=torch.int64, device="cpu")
        sizes = [torch.zeros_like(size) for _ in range(self.size)]
        distributed.all_gather(sizes, size, group=self._group)
        longest = max(int(other) for other in sizes)
        padded = torch.zeros(longest, dtype=torch.uint8, device="cpu")
        padded[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        distributed.all_gather(parts, padded, group=self._group)
        return [
            json.loads(part[: int(other)].numpy().tobytes())
            for part, other in zip(parts, sizes, strict=True)
        ]

    def _together(
        self, call: str, operate: Callable[[], T], cause: BaseException | None = None
    ) -> T:
        """Calls `operate`, which performs a collective operation of the group.

        If the operation fails, this rank leaves the group, and raises RuntimeError from `cause`.
        Leaving closes the connections of this rank, so the ranks that wait for it fail too, even if
        they exchange no messages with the process that ended.
        """
        if self._group is not None:
            begin = time.monotonic()
            try:
                return operate()
            except RuntimeError as error:
                is_late = time.monotonic() - begin >= _TIMEOUT.total_seconds()
                what = f"hung for {_TIMEOUT}" if is_late else "ended, or left after an error"
                self._failure = f"a process {what}: {error}"
            # Not in the except block: the traceback of the error keeps the group alive.
            self.leave()
        raise RuntimeError(
            f"{self._owner}: {call}: rank {self.rank} of {self.size}: expected answers from "
            f"all ranks, found fewer: {self._failure}"
        ) from cause


def alone() -> Ranks:
    """A single process without a group."""
    return Ranks(0, 1, None)


def join(owner: str, count: int, group: Any = None) -> list[Ranks]:
    """Returns `count` `Ranks` objects, each with a new gloo group of all ranks of `group`.

    A single process gets objects without a group. If `group` has several ranks, all of them must
    call this function.

    Args:
        owner: Name of the calling function or class, for messages.
        count: Number of objects. Each thread that makes collective calls needs its own.
        group: A process group. None: the default group.

    Raises:
        ValueError: If this process is not in the group.
    """
    distributed = distributed_module()
    if distributed is None:
        return [alone() for _ in range(count)]
    size = distributed.get_world_size(group)
    if size < 1:
        raise ValueError(
            f"{owner}: process group: expected a group that contains this process, found one "
            "that does not"
        )
    if size == 1:
        return [alone() for _ in range(count)]
    # `new_group` must not wait for processes outside the group: they do not make this call.
    part: dict[str, Any] = {}
    if size < distributed.get_world_size():
        part["ranks"] = distributed.get_process_group_ranks(group)
        part["use_local_synchronization"] = True
    made = []
    for _ in range(count):
        own = distributed.new_group(backend="gloo", timeout=_TIMEOUT, **part)
        made.append(Ranks(distributed.get_rank(own), size, own, owner))
    return made


def distributed_module() -> Any:
    """``torch.distributed`` if its default process group is initialized, else None."""
    module = sys.modules.get("torch.distributed")
    if module is None or not module.is_available() or not module.is_initialized():
        return None
    return module


def rank_of(group: Any) -> int:
    """The rank of this process in `group` (None: the default group).

    Returns -1 if the group does not contain this process, and 0 if torch.distributed is not
    initialized.
    """
    distributed = distributed_module()
    return 0 if distributed is None else int(distributed.get_rank(group))


def require_equal(where: str, values: list[Any]) -> None:
    """Raises ValueError if the ranks have different values."""
    if any(value != values[0] for value in values):
        raise ValueError(f"{where}: expected the same value on all ranks, found {_by_rank(values)}")


def _by_rank(values: list[Any]) -> str:
    """Formats values for a message: ``5 on rank 0, 6 on ranks 1, 2``."""
    ranks: dict[str, list[int]] = {}
    for rank, value in enumerate(values):
        ranks.setdefault(repr(value), []).append(rank)
    return ", ".join(
        f"{value} on rank{'s' if len(found) > 1 else ''} {', '.join(map(str, found))}"
        for value, found in ranks.items()
    )


def described(error: BaseException) -> dict[str, Any]:
    """Converts an error to a JSON value. On another rank, `error_of` makes an error from it."""
    fields = fields_of(error)
    if isinstance(error, OSError):
        text = error.strerror or str(error)
        kind = type(error).__name__
        return {"kind": kind, "errno": error.errno, "text": text, "fields": fields}
    kinds = (kind.__name__ for kind in _CLASSES if isinstance(error, kind))
    name = next(kinds, "RuntimeError")
    text = str(error) if isinstance(error, Exception) else type(error).__name__
    return {"kind": name, "text": text or type(error).__name__, "fields": fields}


def error_of(rank: int, sent: dict[str, Any]) -> Exception:
    """Makes an error from `sent`, the result of `described` for the error on rank `rank`."""
    text = f"rank {rank}: {sent['text']}"
    return with_fields(_error(sent, text), sent["fields"])


def _error(sent: dict[str, Any], text: str) -> Exception:
    if sent.get("errno") is not None:
        return OSError(sent["errno"], text)  # Python selects the subclass by the errno
    if "errno" in sent:
        kinds_of_system = (FileNotFoundError, FileExistsError, PermissionError)
        names = {kind.__name__: kind for kind in kinds_of_system}
        return names.get(sent["kind"], OSError)(text)
    kinds = {kind.__name__: kind for kind in _CLASSES}
    return kinds[sent["kind"]](text)
