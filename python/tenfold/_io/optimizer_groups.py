"""Which parameters and groups of an optimizer are which of a saved state."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from tenfold._reports import Mismatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenfold._io.load_into import Renamer


class Group(NamedTuple):
    # Positions in the target. Ids in the source: int, or names in torch.distributed.checkpoint.
    params: list[Any]
    names: list[str] | None
    options: dict[str, Any]


def group_from(group: dict[str, Any], params: list[Any], rename: Renamer = None) -> Group:
    names = group.get("param_names")
    if names is None and params and isinstance(params[0], str):
        names = params
    if names is not None:
        names = [rename(name) if rename else name for name in names]
    options = {key: value for key, value in group.items() if key != "params"}
    return Group(params, names, options)


def target_groups(optimizer: Any) -> list[Group]:
    groups = []
    begin = 0
    for group in optimizer.param_groups:
        end = begin + len(group["params"])
        groups.append(group_from(group, list(range(begin, end))))
        begin = end
    return groups


def unique_names(groups: list[Group]) -> bool:
    if not groups or any(group.names is None for group in groups):
        return False
    names = [name for group in groups for name in group.names or ()]
    return len(set(names)) == len(names)


class Pairing:
    """Parameters and groups of the target with those of the source, by name or else by order."""

    def __init__(self, targets: list[Group], sources: list[Group]) -> None:
        self.ids: dict[int, Any] = {}  # of the source, by position in the target
        self.groups: dict[int, int] = {}  # of the source, by group of the target
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.mismatched: list[Mismatch] = []
        self.groups_of_other_names: list[int] = []  # of the target: they keep their options
        self.by_name = unique_names(targets) and unique_names(sources)
        if self.by_name:
            self._pair_by_name(targets, sources)
        else:
            self._pair_by_order(targets, sources)

    def _pair_by_order(self, targets: list[Group], sources: list[Group]) -> None:
        counts = [len(group.params) for group in targets]
        found = [len(group.params) for group in sources]
        if len(counts) != len(found):
            self.mismatched.append(
                Mismatch("param_groups", _groups_text(counts), _groups_text(found))
            )
        for position, (target, source) in enumerate(zip(targets, sources, strict=False)):
            if len(target.params) == len(source.params):
                self.groups[position] = position
                self.ids.update(zip(target.params, source.params, strict=True))
            elif len(counts) == len(found):
                name = f"param_groups.{position}.params"
                self.mismatched.append(
                    Mismatch(name, _count(len(target.params)), _count(len(source.params)))
                )

    def _pair_by_name(self, targets: list[Group], sources: list[Group]) -> None:
        places = {
            name: (position, number)
            for position, group in enumerate(sources)
            for name, number in zip(group.names or (), group.params, strict=True)
        }
        wanted = {name for group in targets for name in group.names or ()}
        self.unexpected += [name for name in places if name not in wanted]
        for position, target in enumerate(targets):
            names = target.names or []
            self.missing += [name for name in names if name not in places]
            votes = Counter(places[name][0] for name in names if name in places)
            for name, number in zip(names, target.params, strict=True):
                if name in places:
                    self.ids[number] = places[name][1]
            if not votes:
                if not names and position < len(sources):
                    self.groups[position] = position
                continue
            best = max(votes, key=lambda group: (votes[group], group == position))
            expected = {name for name in names if name in places}
            found = {name for name in sources[best].names or () if name in wanted}
            if expected == found:
                self.groups[position] = best
            else:
                self.groups_of_other_names.append(position)


def _count(number: int) -> str:
    return "1 parameter" if number == 1 else f"{number} parameters"


def _groups_text(counts: list[int]) -> str:
    groups = "1 group" if len(counts) == 1 else f"{len(counts)} groups"
    return f"{groups} of {', '.join(map(str, counts))} parameters"
