"""Replicated and per-rank entries of a save; checks that the ranks agree on them."""

from __future__ import annotations

import sys
import warnings
from fnmatch import fnmatchcase

from tenfold import _core
from tenfold._errors import UnsupportedError
from tenfold._interop import arrays
from tenfold._interop.arrays import is_module
from tenfold._interop.sharded import is_dtensor
from tenfold._io.snapshot import RNGState
from tenfold._options import text
from tenfold._ranks import require_equal
from tenfold.checkpoint._sharded import ShardedEntries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any


def patterns_of(per_rank: str | Iterable[str] | None) -> tuple[str, ...]:
    """Checks `per_rank` and converts it to a tuple of names and globs."""
    if per_rank is None:
        return ()
    names = (per_rank,) if isinstance(per_rank, str) else tuple(per_rank)
    return tuple(text("checkpoint manager: per_rank", name) for name in names)


def is_per_rank(name: str, value: Any, patterns: tuple[str, ...]) -> bool:
    """True for a per-rank entry: a random state, or an entry whose name matches a pattern."""
    return isinstance(value, RNGState) or any(fnmatchcase(name, pattern) for pattern in patterns)


class Described:
    """Describes the state of this rank in a message (a JSON value) to the other ranks.

    Args:
        app_state: Objects by name.
        states: The state of each object.
        patterns: Names and globs of the per-rank entries.
        step: The number of the step.
        with_bytes: Add checksums of the bytes of parameters that are not DTensors.
        sharded: The entries with DTensors, and the parts of them that this rank has.

    Raises:
        UnsupportedError: If a per-rank entry contains a DTensor.
    """

    def __init__(
        self,
        app_state: dict[str, Any],
        states: dict[str, Any],
        patterns: tuple[str, ...],
        step: int,
        with_bytes: bool,
        sharded: ShardedEntries,
    ) -> None:
        self.own = {
            name: state
            for name, state in states.items()
            if is_per_rank(name, app_state[name], patterns)
        }
        for name in sharded.parts.keys() & self.own.keys():
            raise UnsupportedError(
                f'entry "{name}": per_rank: expected whole tensors, found a DTensor, which all '
                "ranks save together"
            )
        self.replicated = {name: state for name, state in states.items() if name not in self.own}
        shown = _core.tree(
            {
                name: sharded.outlines[name] if name in sharded.outlines else _shape_of(state)
                for name, state in self.replicated.items()
            },
            "",
        )
        self.message = {
            "step": step,
            "entries": sorted(self.replicated),
            "per_rank": sorted(self.own),
            "sharded": list(sharded.boxes),
            "boxes": list(sharded.boxes.values()),
            "digests": {
                name: [structure, values] for name, structure, values in _core.entry_digests(shown)
            },
            "loaders": sorted(name for name in self.replicated if _is_loader(app_state[name])),
            "bytes": _parameter_digests(app_state, self.replicated) if with_bytes else {},
        }


class Comparison:
    """Compares the messages of all ranks. Every rank does this, and raises the same error."""

    def __init__(self) -> None:
        self.is_first = True
        self._warned: set[str] = set()

    def check(self, messages: list[dict[str, Any]], where: str, warns: bool) -> None:
        """Raises an error, or warns once for each entry, if the ranks differ.

        Args:
            messages: `Described.message` of each rank.
            where: The directory.
            warns: True on the rank that emits the warnings.

        Raises:
            ValueError: If steps, names, dtypes, shapes or positions of a BatchLoader differ; the
                message names the ranks. A difference in other values of replicated entries, or in
                the checksums of parameters, causes a warning.
        """
        self.is_first = False
        require_equal("save: step", [message["step"] for message in messages])
        require_equal("save: entries", [message["entries"] for message in messages])
        require_equal("save: entries with DTensors", [message["sharded"] for message in messages])
        require_equal("save: per-rank entries", [message["per_rank"] for message in messages])
        first = messages[0]
        for name, (structure, values) in first["digests"].items():
            other = [message["digests"][name] for message in messages]
            ranks = [rank for rank, digest in enumerate(other) if digest[0] != structure]
            if ranks:
                raise ValueError(
                    f'entry "{name}": expected the same keys, dtypes and shapes on all ranks, '
                    f"found differences between rank 0 and {ranks_text(ranks)}; "
                    f'per_rank=["{name}"] saves the entry of each rank'
                )
            ranks = [rank for rank, digest in enumerate(other) if digest[1] != values]
            if ranks and name in first["loaders"]:
                raise ValueError(
                    f'entry "{name}": expected a BatchLoader at the same position on all ranks, '
                    f"found different states on rank 0 and {ranks_text(ranks)}; all ranks must "
                    "read the same number of batches"
                )
            if ranks and warns:
                self._warn(where, name, "values", ranks)
        for name, digest in first["bytes"].items():
            other = [message["bytes"].get(name) for message in messages]
            ranks = [rank for rank, found in enumerate(other) if found != digest]
            if ranks and warns:
                self._warn(where, name, "parameters", ranks)

    def _warn(self, where: str, name: str, what: str, ranks: list[int]) -> None:
        if name in self._warned:
            return
        self._warned.add(name)
        warnings.warn(
            f'{where}: entry "{name}": its {what} on {ranks_text(ranks)} are not those of rank 0, '
            f'which are saved; per_rank=["{name}"] saves those of each rank',
            stacklevel=4,
        )


def ranks_text(ranks: Sequence[int]) -> str:
    """Numbers of ranks in a message: ``rank 1`` or ``ranks 1, 2``."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _is_loader(value: Any) -> bool:
    module = sys.modules.get("tenfold.dataset._loader")
    return module is not None and isinstance(value, module.BatchLoader)


def _shape_of(state: Any) -> Any:
    """Copies containers, and replaces tensors outside of CPU memory by placeholders without data.

    The engine would copy the tensors themselves to the CPU.
    """
    if isinstance(state, dict):
        return {key: _shape_of(value) for key, value in state.items()}
    if type(state) in (list, tuple):
        return type(state)(_shape_of(value) for value in state)
    if arrays.is_array(state) and getattr(getattr(state, "device", None), "type", "cpu") != "cpu":
        torch = sys.modules["torch"]
        return torch.empty((), dtype=state.dtype, device="cpu").expand(state.shape)
    return state


def _parameter_digests(app_state: dict[str, Any], states: dict[str, Any]) -> dict[str, str]:
    """Returns, for each module, one checksum of its parameters that are not DTensors.

    Buffers are not included, because they may differ between ranks (unsynchronized batch norm).
    """
    chosen: dict[str, Any] = {}
    for name, state in states.items():
        module = app_state[name]
        if is_module(module) and isinstance(state, dict):
            own = dict(module.named_parameters(remove_duplicate=False))
            chosen[name] = {
                key: value for key, value in state.items() if key in own and not is_dtensor(value)
            }
    return dict(_core.tensor_digests(_core.tree(chosen, "")))
