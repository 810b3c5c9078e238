"""The arguments of a restore, and its candidate steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tenfold._errors import CorruptFileError
from tenfold._interop.arrays import is_module
from tenfold._io.files import key_paths
from tenfold.checkpoint._app_state import Restoring, is_damage, state_of
from tenfold.checkpoint._rank_entries import is_per_rank, ranks_text
from tenfold.checkpoint._sharded import sharded_like

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tenfold._io.files import Keys
    from tenfold._ranks import Ranks

# Size of a step in bytes. With verify="auto", every checksum of a smaller step is compared before
# an object changes, and most entries that are not modules are loaded from copies in memory, so that
# they are read only once (see `_copied_first`). For a larger step, these copies would take too much
# memory, so the checksum of each block is compared while objects are loaded. If any of the objects
# has DTensors, a step of any size is treated like a smaller one (see `_compares_later`).
FULL_CHECK_BYTES = 8_000_000_000


@dataclass
class RestorePlan:
    """The checked arguments of a restore.

    Attributes:
        steps: The engine's candidates; None if there is no step and `missing_ok` is set.
        place: The argument `path` of `restore`: the directory or a step of another run, or None.
        keys: The argument of `restore`.
        exclude: The argument of `restore`.
        rename: The argument of `restore` as a function of names, or None.
        strict: The argument of `restore`.
        check: The option `verify`, as "auto", "full", "structure" or "none".
        discard_later: Remove the steps with higher numbers than the restored one.
        templates: The result of `templates_of`.
        warning: The warning about per-rank entries that are not restored as they were saved,
            because the step was saved by more or fewer ranks; None if there are none.
    """

    steps: Any
    place: str | None
    keys: Keys
    exclude: Keys
    rename: Callable[[str], str] | None
    strict: bool
    check: str
    discard_later: bool
    templates: dict[str, Any]
    warning: str | None = None

    @property
    def candidates(self) -> list[tuple[int, int, int]] | None:
        """Step, seq and size in bytes of each candidate, the preferred one first."""
        return None if self.steps is None else self.steps.candidates()

    def _compares_later(self, num_bytes: int) -> bool:
        """True if checksums of a step of this size are compared while objects are loaded."""
        # Not if an object has DTensors: a rank copies only its parts of them, but a checksum covers
        # a whole block.
        return self.check == "auto" and num_bytes >= FULL_CHECK_BYTES and not self.templates

    def _copied_first(self, num_bytes: int, app_state: dict[str, Any] | None) -> list[str]:
        """Entries that are copied into memory and verified before an object changes.

        Modules are not among them: the checksums of their tensors are compared without a copy, and
        the tensors are then read directly into the memory of the module. Nor are objects with
        DTensors, because a rank copies only its parts of them.
        """
        is_part = self.keys is not None or self.exclude is not None
        if self._compares_later(num_bytes) or app_state is None or is_part:
            return []
        if self.check not in ("auto", "full"):
            return []
        return [
            name
            for name, value in app_state.items()
            if not is_module(value) and name not in self.templates
        ]

    def open(
        self,
        step: int,
        seq: int,
        num_bytes: int,
        app_state: dict[str, Any] | None,
        ranks: Ranks,
    ) -> tuple[int, Any, str | None]:
        """Opens a candidate that rank 0 has chosen, and does the checks before `compare`.

        Returns:
            The index of the candidate, or -1 if this rank has not listed the step; the opened step,
            or None if it is not listed or damaged; and a description of the damage, if any.
        """
        known = [candidate[:2] for candidate in self.candidates or ()]
        if (step, seq) not in known:
            return -1, None, None
        index = known.index((step, seq))
        check = self.check
        if check == "auto":
            check = "structure" if self._compares_later(num_bytes) else "full"
        copied = self._copied_first(num_bytes, app_state)
        try:
            return index, self.steps.open(index, check, ranks.rank, ranks.size, copied, None), None
        except (CorruptFileError, OSError) as error:
            if not is_damage(error):
                raise
            return index, None, str(error)

    def compare(
        self,
        found: Any,
        num_bytes: int,
        app_state: dict[str, Any] | None,
        ranks: Ranks,
        patterns: tuple[str, ...],
    ) -> tuple[Restoring | None, dict[str, Any] | None, str, str | None]:
        """Compares a step with the objects without changing them, and copies entries into memory.

        Returns:
            A `Restoring` that loads the state into the objects, or None without an `app_state`; the
            state, or None with an `app_state`; the text of ``checkpoint.json``; and None. If the
            step is damaged: None, None, "" and a description of the damage.
        """
        try:
            document = Path(found.path, "checkpoint.json").read_text(encoding="utf-8")
            return *self._compared(found, num_bytes, app_state, ranks, patterns), document, None
        except (CorruptFileError, OSError) as error:
            if not is_damage(error, found.path):  # such as the error of an object's state_dict()
                raise
            return None, None, "", str(error)

    def _compared(
        self,
        found: Any,
        num_bytes: int,
        app_state: dict[str, Any] | None,
        ranks: Ranks,
        patterns: tuple[str, ...],
    ) -> tuple[Restoring | None, dict[str, Any] | None]:
        own = {name for name, rank in found.entries() if rank is not None}
        if app_state is not None and found.world_size == 1 and not ranks.is_alone:
            names = (name for name, _ in found.entries() if name in app_state)
            own |= {name for name in names if is_per_rank(name, app_state[name], patterns)}
        keys, exclude = key_paths(self.keys), key_paths(self.exclude, "exclude")
        node = found.select(keys, exclude)
        own &= set(node.keys())
        if app_state is not None:
            own &= app_state.keys()
        lacking = own if ranks.rank >= found.world_size else set()
        is_other_size = bool(own) and found.world_size != ranks.size
        self.warning = _other_size(found, own, ranks) if is_other_size else None
        if app_state is None:
            state = state_of(node)
            return None, {name: value for name, value in state.items() if name not in lacking}
        restoring = Restoring(
            node,
            app_state,
            found.path,
            strict=self.strict,
            keys=keys,
            exclude=exclude,
            rename=self.rename,
            rank=ranks.rank,
            lacking=lacking,
            copy=partial(found.copied_entry, node, rank=ranks.rank),
            copied_first=self._copied_first(num_bytes, app_state),
            compares_later=self._compares_later(num_bytes),
            place={
                name: partial(sharded_like, template=template, name=name)
                for name, template in self.templates.items()
            },
        )
        restoring.read()
        return restoring, None


def _other_size(found: Any, own: set[str], ranks: Ranks) -> str:
    saved, now = found.world_size, ranks.size
    what = (
        f"no entries of {ranks_text(range(saved, now))}, where an RngState restarts with a seed "
        "that is derived from that of rank 0"
        if saved < now
        else f"entries of {ranks_text(range(now, saved))} are not restored"
    )
    return f"{found.path}: {sorted(own)}: saved by {saved} rank(s), restored by {now}: {what}"
