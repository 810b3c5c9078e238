"""`load_into` for optimizers: the state of each parameter, and the options of each group."""

from __future__ import annotations

import contextlib
import warnings
from typing import NamedTuple

from tenfold import _core
from tenfold._errors import KeyNotFoundError, UnsupportedError
from tenfold._interop.arrays import dtype_name, need_torch
from tenfold._io.files import exact_names, renamer
from tenfold._io.load_into import load_into, source_node
from tenfold._reports import LoadReport, Mismatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from tenfold._io.files import Rename
    from tenfold._io.load_into import Renamer


def load_optimizer(
    optimizer: Any, source: Any, *, strict: bool, rename: Rename, cast: bool
) -> LoadReport:
    """Loads the result of `Optimizer.state_dict()`. See `load_into`."""
    node = source_node(source)
    saved = _containers(node)
    _require_layout(saved, node.where() or "source")
    if changes_state_itself(optimizer):
        return _load_native(optimizer, node, renamer(rename))
    plan = _Plan(optimizer, saved, renamer(rename), cast)
    _require_names(exact_names(rename), saved["param_groups"], node.where() or "source")
    if strict:
        mismatched = [
            (found.name, found.expected, found.found, found.name in plan.cast_helps)
            for found in plan.mismatched
        ]
        _core.require_ok(node.where(), plan.missing, plan.unexpected, mismatched)
    if plan.groups_of_other_names:
        groups = ", ".join(plan.groups_of_other_names)
        warnings.warn(
            f"{node.where() or 'source'}: {groups}: no group of the source has the same "
            "parameters: the states of the parameters are loaded by name, the options (lr, ...) of "
            "these groups are not changed",
            stacklevel=3,
        )
    plan.apply(node)
    return LoadReport(
        tuple(plan.loaded), tuple(plan.missing), tuple(plan.unexpected), tuple(plan.mismatched)
    )


def _containers(node: Any, place: Any = None) -> Any:
    """Rebuilds the containers of a file (with mapped tensors) or of an object in memory.

    A TensorDict becomes a dict. If `place` is given, it converts each tensor.
    """

    def as_dict(native: Any, _keys: tuple[str, ...]) -> Any:
        from tenfold.tensordict import TensorDict

        return TensorDict._from_native(native, None).to_dict()

    return node.to_containers("c", _core.Tied(), place, as_dict)


def _require_layout(saved: Any, where: str) -> None:
    if not isinstance(saved, dict) or not {"state", "param_groups"} <= saved.keys():
        found = sorted(map(str, saved)) if isinstance(saved, dict) else type(saved).__name__
        inside = [
            f'; its node "{key}" has them, pass tenfold.open(path)["{key}"]'
            for key, value in (saved.items() if isinstance(saved, dict) else ())
            if isinstance(value, dict) and {"state", "param_groups"} <= value.keys()
        ]
        raise ValueError(
            f'{where}: no optimizer state: expected the keys "state" and "param_groups", found '
            f"{found}" + "".join(inside[:1])
        )
    if not isinstance(saved["state"], dict):
        _refuse(where, "state", "a dict", saved["state"])
    if not isinstance(saved["param_groups"], (list, tuple)):
        _refuse(where, "param_groups", "a list or tuple", saved["param_groups"])
    for position, group in enumerate(saved["param_groups"]):
        part = f"param_groups.{position}"
        if not isinstance(group, dict):
            _refuse(where, part, "a dict", group)
        params = group.get("params")
        if not isinstance(params, (list, tuple)) or {type(i) for i in params} not in (
            set(),
            {int},
            {str},
        ):
            _refuse(where, f"{part}.params", "a list or tuple of int only, or of str only", params)
        names = group.get("param_names", [""] * len(params))
        are_names = isinstance(names, (list, tuple)) and all(isinstance(i, str) for i in names)
        if not are_names or len(names) != len(params):
            _refuse(where, f"{part}.param_names", f"a list or tuple of {len(params)} str", names)


def _require_names(names: list[str], groups: Any, where: str) -> None:
    known = {name for group in groups for name in group.get("param_names", group["params"])}
    for name in names:
        if name not in known:
            raise KeyNotFoundError(f'{where}: rename: no parameter is called "{name}"')


def _refuse(where: str, part: str, expected: str, found: Any) -> NoReturn:
    shown = type(found).__name__
    if isinstance(found, (list, tuple)):
        kinds = sorted({type(item).__name__ for item in found})
        shown = f"a {shown} of length {len(found)}" + (f" ({', '.join(kinds)})" if kinds else "")
    raise ValueError(
        f"{where}: {part}: not a valid optimizer state: expected {expected}, found {shown}"
    )


def changes_state_itself(optimizer: Any) -> bool:
    """True if the optimizer overrides load_state_dict() or has a pre-hook for it."""
    torch = need_torch("load_into")

    return bool(
        type(optimizer).load_state_dict is not torch.optim.Optimizer.load_state_dict
        or getattr(optimizer, "_optimizer_load_state_dict_pre_hooks", None)
    )


def lacking_options(
    optimizer: Any, current: dict[str, Any], saved: dict[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Compares the options of a group with the saved ones.

    Returns:
        The options in `current` that `saved` lacks and `__setstate__` does not add to it (it adds
        those that older versions of torch did not save); and the names of those among them that the
        class of the optimizer needs.
    """
    group = {**saved, "params": []}
    probe: Any = object.__new__(type(optimizer))
    # An error: a user-defined class that requires more state.
    with contextlib.suppress(Exception):
        probe.__setstate__({"defaults": {}, "state": {}, "param_groups": [group]})
    kept = {option: value for option, value in current.items() if option not in group}
    return kept, [option for option in kept if option in optimizer.defaults]


def _load_native(optimizer: Any, node: Any, rename: Renamer) -> LoadReport:
    if rename is not None:
        raise ValueError(
            "rename: it does not apply to an optimizer with its own load_state_dict or hooks"
        )
    optimizer.load_state_dict(_containers(node, lambda tensor: tensor.clone()))
    return LoadReport(tuple(".".join(path) for path, _, _ in node.leaves()), (), (), ())


class _Plan:
    """The plan of a load. Creating it changes nothing; `apply` changes the optimizer."""

    def __init__(self, optimizer: Any, saved: Any, rename: Renamer, cast: bool) -> None:
        self._optimizer = optimizer
        self._targets = target_groups(optimizer)
        self._sources = [
            group_from(group, list(group["params"]), rename) for group in saved["param_groups"]
        ]
        pairing = Pairing(self._targets, self._sources)
        if not pairing.by_name and any(
            isinstance(number, str) for group in self._sources for number in group.params
        ):
            raise ValueError(
                "source: its state is keyed by parameter names: expected unique names in the "
                "optimizer, as in Optimizer(model.named_parameters()), found no names, or "
                "duplicates"
            )
        if rename is not None and not pairing.by_name:
            raise ValueError(
                "rename: it does not apply to an optimizer whose parameters are matched by order: "
                'expected unique names, as "param_names" in the groups of the source and of the '
                "optimizer (Optimizer(model.named_parameters())), found no names, or duplicates"
            )
        self.loaded: list[str] = []
        self.missing = pairing.missing
        self.unexpected = pairing.unexpected
        self.mismatched = pairing.mismatched
        self.groups_of_other_names = pairing.groups_of_other_names
        self.cast_helps: set[str] = set()
        self._params = [param for group in optimizer.param_groups for param in group["params"]]
        self._new_groups = [
            self._options(position, pairing) for position in range(len(self._targets))
        ]
        self._destinations: dict[str, Any] = {}  # tensors to fill, by their names in the source
        self._new_state: dict[int, Any] = {}
        self._global_state: dict[Any, Any] = {}
        self._plan_state({str(key): value for key, value in saved["state"].items()}, pairing, cast)

    def _options(self, position: int, pairing: Pairing) -> dict[str, Any]:
        """The new options of the target group at `position`, for `Optimizer.load_state_dict`.

        These are the saved options, in saved order, followed by the options that only the target
        has. Options that `__setstate__` adds are left out, so that `__setstate__` sets their
        defaults, as in torch.
        """
        target = self._targets[position]
        names = target.names
        options: dict[str, Any] = {}
        if position in pairing.groups:
            source = self._sources[pairing.groups[position]]
            if source.names is not None and not pairing.by_name:
                names = source.names
            for option, value in source.options.items():
                if isinstance(value, list) and isinstance(target.options.get(option), tuple):
                    value = tuple(value)
                options[option] = names if option == "param_names" else value
                self.loaded.append(f"param_groups.{position}.{option}")
            kept, missing = lacking_options(self._optimizer, target.options, source.options)
            self.missing += [f"param_groups.{position}.{option}" for option in missing]
        else:
            kept = target.options
        for option, value in kept.items():
            options.setdefault(option, value)
        return {**options, "params": target.params}

    def _plan_state(self, saved: dict[str, Any], pairing: Pairing, cast: bool) -> None:
        options = {str(number): group.options for group in self._sources for number in group.params}
        for key, value in saved.items():
            if key in options:
                continue
            if key.lstrip("-").isdigit() or any(isinstance(i, str) for i in pairing.ids.values()):
                self.unexpected.append(f"state.{key}")
            else:
                self._global_state[key] = value  # of no parameter: torch loads it unchanged
        tied: dict[Any, Any] = {}
        first: dict[int, int] = {}
        for position, number in pairing.ids.items():
            if number in first:
                self._plan_again(position, first[number])
                continue
            first[number] = position
            state = ParameterState(self._optimizer, self._params[position], cast, tied)
            names = (f"state.{position}", f"state.{number}")
            new = state.build(saved.get(str(number)), options[str(number)], *names)
            self.mismatched += state.mismatched
            self.cast_helps |= state.cast_helps
            if state.mismatched:
                continue
            self.loaded += state.loaded
            self._destinations.update(state.destinations)
            self._new_state[position] = new

    def _plan_again(self, position: int, first: int) -> None:
        """Plans that the parameter at `position` gets the same new state as the one at `first`.

        Adds a mismatch instead if these are different parameters.
        """
        if self._params[position] is not self._params[first]:
            name = f"state.{position}"
            self.mismatched.append(Mismatch(name, "state of its own", f"that of state.{first}"))
        elif first in self._new_state:
            self._new_state[position] = self._new_state[first]

    def apply(self, node: Any) -> None:
        """Fills the tensors; `Optimizer.load_state_dict` then assigns tensors and options."""
        if self._destinations:
            load_into(self._destinations, node, strict=False, cast=True)
        optimizer = self._optimizer
        before = dict(optimizer.state)
        state = dict(self._global_state)
        state.update((at, new) for at, new in self._new_state.items() if new is not None)
        optimizer.load_state_dict({"state": state, "param_groups": self._new_groups})
        for position, param in enumerate(self._params):
            if position not in self._new_state and param in before:
                optimizer.state[param] = before[param]


class Group(NamedTuple):
    # The parameters of the group. Target: their positions. Source: their IDs, which are int, or
    # names if torch.distributed.checkpoint wrote the source.
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


class Pairing:
    """Matches parameters and groups of target and source.

    Matches by name if all parameters of both have unique names; otherwise by order.
    """

    def __init__(self, targets: list[Group], sources: list[Group]) -> None:
        (
            self.by_name,
            groups,
            numbers,
            self.missing,
            self.unexpected,
            mismatched,
            # "param_groups.<i>" for each group i of the target whose parameters are saved, but not
            # as one group: this group keeps its options. Empty if parameters are matched by order.
            self.groups_of_other_names,
        ) = _core.pair_parameters(
            [(len(group.params), group.names) for group in targets],
            [(len(group.params), group.names) for group in sources],
        )
        self.mismatched = [Mismatch(*found) for found in mismatched]
        #: Index of the group of the source, by index of the group of the target.
        self.groups = {at: group for at, group in enumerate(groups) if group is not None}
        ids = [number for group in sources for number in group.params]
        #: ID of the parameter in the source, by position of the parameter in the target.
        self.ids = {at: ids[number] for at, number in enumerate(numbers) if number is not None}


# In the state of torch's optimizers, tensors with these keys have the shape of the parameter.
_PARAMETER_SHAPED = frozenset(
    [
        "acc_delta",
        "ax",
        "exp_avg",
        "exp_avg_sq",
        "exp_inf",
        "grad_avg",
        "max_exp_avg_sq",
        "momentum_buffer",
        "prev",
        "square_avg",
        "step_size",
        "sum",
        "variance",
    ]
)


class ParameterState:
    """Builds the new state of one parameter, with a tensor to fill for each saved tensor."""

    def __init__(self, optimizer: Any, param: Any, cast: bool, tied: dict[Any, Any]) -> None:
        torch = need_torch("load_into")

        self.loaded: list[str] = []
        self.mismatched: list[Mismatch] = []
        self.cast_helps: set[str] = set()
        self.destinations: dict[str, Any] = {}
        self._param = param
        self._current = optimizer.state.get(param)
        self._cast = cast
        self._tied = tied
        self._is_torchs = type(optimizer).__module__.startswith("torch.optim")
        self._torch = torch

    def build(self, saved: Any, options: dict[str, Any], name: str, source_name: str) -> Any:
        """Returns a copy of `saved` that has a tensor to fill where `saved` has a saved tensor.

        For a saved tensor that does not fit, the copy has None, and a mismatch is added.

        Args:
            saved: The state of the parameter in the source, usually a dict. If it is None,
                the result is None.
            options: Options of the parameter's group in the source.
            name: Name of the state in reports: ``"state.0"``.
            source_name: Name of the state in the source.
        """
        self._on_device = bool(options.get("capturable") or options.get("fused"))
        self._name, self._source_name = name, source_name
        return None if saved is None else self._build(saved, self._current, (), None)

    def _build(self, saved: Any, current: Any, path: tuple[str, ...], key: Any) -> Any:
        if isinstance(saved, self._torch.Tensor):
            return self._destination(saved, current, path, key)
        if isinstance(saved, dict):
            known = current if isinstance(current, dict) else {}
            return {
                name: self._build(value, known.get(name), (*path, str(name)), name)
                for name, value in saved.items()
            }
        if isinstance(saved, (list, tuple)):
            items = current if isinstance(current, (list, tuple)) else ()
            return type(saved)(
                self._build(value, items[at] if at < len(items) else None, (*path, str(at)), None)
                for at, value in enumerate(saved)
            )
        self.loaded.append(".".join((self._name, *path)))
        return saved

    def _destination(self, saved: Any, current: Any, path: tuple[str, ...], key: Any) -> Any:
        """Returns the tensor to fill, with the dtype and device that torch chooses.

        The tensor is `current`, the target's tensor, if it can be filled, otherwise a new one.
        Returns None and adds a mismatch if the shapes differ, or if the dtypes differ and a cast is
        impossible or not allowed. A tensor without dimensions may be cast even if the caller passed
        ``cast=False``.
        """
        name = ".".join((self._name, *path))
        if saved.is_nested or saved.layout is not self._torch.strided:
            raise UnsupportedError(
                f"source: {name}: it cannot be loaded in place: expected a dense tensor, found a "
                "sparse or nested one; optimizer.load_state_dict(tenfold.load(path)) loads it"
            )
        dtype, device = self._dtype_and_device(saved, key)
        shape = self._shape(saved, current, key)
        casts = dtype != saved.dtype and saved.ndim > 0 and not self._cast
        impossible = not _core.can_cast(dtype_name(saved.dtype), dtype_name(dtype))
        if shape != saved.shape or casts or impossible:
            self.mismatched.append(
                Mismatch(name, _text(dtype, shape), _text(saved.dtype, saved.shape))
            )
            if shape == saved.shape and not impossible:
                self.cast_helps.add(name)
            return None
        self.loaded.append(name)
        made = current
        if not self._can_be_filled(current, saved.shape, dtype, device):
            made = self._new(saved, dtype, device)
        self.destinations[".".join((self._source_name, *path))] = made
        return made

    def _new(self, saved: Any, dtype: Any, device: Any) -> Any:
        # Restore sharing: states that share a tensor in the source share a tensor in the target.
        same = (saved.data_ptr(), saved.shape, saved.stride(), saved.dtype, dtype, device)
        if saved.numel() == 0:
            return self._torch.empty(saved.shape, dtype=dtype, device=device)
        if same not in self._tied:
            self._tied[same] = self._torch.empty(saved.shape, dtype=dtype, device=device)
        return self._tied[same]

    def _dtype_and_device(self, saved: Any, key: Any) -> tuple[Any, Any]:
        """The dtype and device to which `Optimizer.load_state_dict` converts a saved tensor."""
        if key == "step":
            if self._on_device:
                return self._torch.float32, self._param.device
            return saved.dtype, saved.device
        floating = self._param.is_floating_point()
        return self._param.dtype if floating else saved.dtype, self._param.device

    def _shape(self, saved: Any, current: Any, key: Any) -> Any:
        if self._is_torchs and key in _PARAMETER_SHAPED:
            return self._param.shape
        if isinstance(current, self._torch.Tensor) and key not in (None, "step"):
            return current.shape
        return saved.shape

    def _can_be_filled(self, tensor: Any, shape: Any, dtype: Any, device: Any) -> bool:
        return bool(
            isinstance(tensor, self._torch.Tensor)
            and tensor.layout is self._torch.strided
            and not tensor.requires_grad
            and (tensor.shape, tensor.dtype, tensor.device) == (shape, dtype, device)
            and all(
                step > 0
                for size, step in zip(tensor.shape, tensor.stride(), strict=True)
                if size > 1
            )
        )


def _text(dtype: Any, shape: Any) -> str:
    return f"{str(dtype).removeprefix('torch.')} {list(shape)}"
