"""Conversion between the objects of a training run and trees of tensors and values."""

from __future__ import annotations

import dataclasses
import errno
import sys
from collections import OrderedDict

from tenfold import _core
from tenfold._errors import CorruptFileError, KeyNotFoundError, UnsupportedError, with_remedy
from tenfold._interop import arrays
from tenfold._io.optimizer import changes_state_itself, lacking_options
from tenfold._io.snapshot import RNGState
from tenfold._options import text
from tenfold._reports import LoadReport, Mismatch
from tenfold.checkpoint._rng import load_derived

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import Any

    Renamer = Callable[[str], str] | None


def check_names(app_state: Any) -> None:
    """Checks that `app_state` is a dict with str keys and at most one RNGState.

    RngState is a subclass of RNGState.

    Raises:
        TypeError: If `app_state` is not a dict, or a name is not a str.
        ValueError: For a name with an unpaired surrogate.
        RuntimeError: If there is more than one RNGState.
    """
    if not isinstance(app_state, dict):
        raise TypeError(f"app_state: expected a dict, found {type(app_state).__name__}")
    for name in app_state:
        if not isinstance(name, str):
            raise TypeError(f"app_state: expected names that are str, found {name!r}")
        text("app_state: name", name)
    random = [name for name, value in app_state.items() if isinstance(value, RNGState)]
    if len(random) > 1:
        raise RuntimeError(f"app_state: expected one RngState at most, found {random}")


def is_stateful(value: Any) -> bool:
    """Returns True for an object (not a class) with the methods state_dict and load_state_dict."""
    return not isinstance(value, type) and all(
        callable(getattr(value, method, None)) for method in ("state_dict", "load_state_dict")
    )


def states_of(app_state: dict[str, Any]) -> dict[str, Any]:
    """Returns the state of every entry: its state_dict(), or the entry itself if it has none.

    The state_dict() of an RNGState (or its subclass RngState) is called first. At the end, that
    state is restored, because the state_dict() of other objects may draw random numbers.

    Raises:
        TypeError, ValueError, RuntimeError: As for `check_names`.
        UnsupportedError: For an object with state_dict but without load_state_dict, and for a class
            with state_dict.
    """
    check_names(app_state)
    for name, value in app_state.items():
        if callable(getattr(value, "state_dict", None)) and not is_stateful(value):
            raise UnsupportedError(
                f'entry "{name}": expected an object with state_dict() and load_state_dict(), '
                f"found {value!r}, which could not be restored; save its state_dict()"
            )
    random = {name: value for name, value in app_state.items() if isinstance(value, RNGState)}
    first = {name: value.state_dict() for name, value in random.items()}
    states = {
        name: first[name] if name in first else value.state_dict() if is_stateful(value) else value
        for name, value in app_state.items()
    }
    for name, value in random.items():
        value.load_state_dict(first[name])
    return states


def constant_names(app_state: dict[str, Any]) -> list[str]:
    """Returns the names of entries that may be equal in successive saves.

    These are entries without state_dict (tensors and values), random states, and modules without
    trainable parameters. If any other entry with tensors is unchanged since the previous step, the
    save warns, once for each entry.
    """
    names = []
    for name, value in app_state.items():
        if (
            isinstance(value, RNGState)
            or not is_stateful(value)
            or (arrays.is_module(value) and not any(p.requires_grad for p in value.parameters()))
        ):
            names.append(name)
    return names


def is_damage(error: Exception, folder: str = "") -> bool:
    """Returns True if the error means that a step is damaged, or that another process removed it.

    Args:
        error: The error.
        folder: The folder of the step. An OSError (ENOENT, ESTALE or EIO) counts only if the path
            of its file begins with `folder`.
    """
    if isinstance(error, CorruptFileError):
        return True
    codes = (errno.ENOENT, errno.ESTALE, errno.EIO)
    is_of_files = isinstance(error, OSError) and error.errno in codes
    path = getattr(error, "path", None) or getattr(error, "filename", None) or ""
    return (is_of_files or isinstance(error, FileNotFoundError)) and str(path).startswith(folder)


class Restoring:
    """Loads entries of a step into the objects of a program.

    The constructor compares the names of entries, the tensors of modules (except modules with load
    hooks, see `_has_load_hooks`) and the parameter groups of optimizers. No object changes before
    `apply`.

    Args:
        node: The engine's node of the step, or of the selected part of it.
        app_state: The objects by name.
        where: The step's folder, for messages.
        strict: Raise if entries or tensors are missing or unexpected, or if a saved tensor has
            another dtype or shape than the tensor of the module.
        keys: The requested part of the step, as paths; None: everything. Entries and tensors of
            `app_state` that `keys` and `exclude` do not select are not missing.
        exclude: Entries and tensors to omit, as paths, or None. If it or `keys` is given,
            entries of the step that are not in `app_state` are not unexpected.
        rename: A function that maps the saved name of a tensor to its name in the module.
        rank: Rank of this process.
        lacking: Names of the per-rank entries if the ranks that saved the step were too few to
            include this rank; otherwise empty. For these names, `node` has the entries of rank 0.
        copy: A function that takes the name of an entry, and returns a node with a copy of the
            entry in memory. With ``compares=True``, it compares each block with its checksum.
        copied_first: Names of the entries that `read` copies into memory, comparing their
            checksums.
        compares_later: Compare the checksums of each entry when it is loaded, not before.
        place: For each entry whose object has DTensors, a function that converts the saved state to
            a state with DTensors.

    Raises:
        KeyError: If `strict` and entries are missing or unexpected. Also if `strict` and an entry
            in `lacking` is not a random state.
        ValueError: If `strict` and tensors of a module are missing, unexpected or of another dtype
            or shape; the message lists up to 20 of each. Also if `strict` and options that an
            optimizer needs, such as the momentum of SGD, are missing. Also if the entry of a module
            or optimizer is not a dict, or if the parameter groups of an optimizer had other sizes
            when saved.
    """

    def __init__(
        self,
        node: Any,
        app_state: dict[str, Any],
        where: str,
        *,
        strict: bool,
        keys: list[tuple[str, ...]] | None,
        exclude: list[tuple[str, ...]] | None,
        rename: Renamer,
        rank: int = 0,
        lacking: Collection[str] = (),
        copy: Callable[..., Any],
        copied_first: Collection[str] = (),
        compares_later: bool = False,
        place: Mapping[str, Callable[[Any], Any]] | None = None,
    ) -> None:
        self._node = node
        self._where = where
        self._rank = rank
        self._lacking = lacking
        self._copy = copy
        self._compares_later = compares_later
        self._place = place or {}
        self._changed: list[str] = []
        self._app_state = app_state
        self._strict = strict
        self._keys = keys
        self._exclude = exclude
        self._is_part = keys is not None or exclude is not None
        self._rename = rename
        saved: list[str] = node.keys()
        missing = [name for name in app_state if name not in saved and self._selected([(name,)])]
        unexpected = [] if self._is_part else [name for name in saved if name not in app_state]
        if strict and (missing or unexpected):
            expected = sorted(missing + [name for name in app_state if name in saved])
            raise KeyNotFoundError(
                f"{where}: the entries differ: expected {expected}, found "
                f"{sorted(saved)}; strict=False restores the common ones"
            )
        names = [name for name in app_state if name in saved]
        without = [
            name for name in names if name in lacking and not isinstance(app_state[name], RNGState)
        ]
        if strict and without:
            raise KeyNotFoundError(
                f"{where}: {without}: expected entries of rank {rank}, found a step that fewer "
                "ranks saved; to restore the other entries only, use strict=False"
            )
        names = [name for name in names if name not in without]
        missing += without
        # Restore random states last, because loading other objects may draw numbers.
        self._names = sorted(names, key=lambda name: isinstance(app_state[name], RNGState))
        self._loaded: list[str] = []
        self._missing = missing
        self._unexpected = unexpected
        self._mismatched: list[Mismatch] = []
        self._module_states: dict[str, Any] = {}
        self._dropped: dict[str, list[str]] = {}
        # For each optimizer, the options of each group that were not saved.
        self._kept_options: dict[str, list[dict[str, Any]]] = {}
        for name in self._names:
            self._compare(name, where)
        self._copied_first = [name for name in copied_first if name in saved]
        self._copies: dict[str, Any] = {}

    def read(self) -> None:
        """Copies the entries in `copied_first` into memory; no object changes.

        Raises:
            CorruptFileError: If a block of an entry does not match its checksum.
        """
        for name in self._copied_first:
            self._copies[name] = self._copy(name, compares=True)

    def apply(self) -> LoadReport:
        """Loads every entry.

        Raises:
            CorruptFileError: If a block of an entry does not match its checksum; `changed` lists
                the entries that were loaded before this entry.
            OSError: ENOENT or ESTALE if another process removed the step, EIO if a file of the step
                cannot be read.
            RuntimeError: If an entry cannot be loaded after others were loaded; the message lists
                the loaded entries. If the first entry fails, its error is raised unchanged.
        """
        for name in self._names:
            try:
                self._load(name)
            except Exception as error:
                if is_damage(error, self._where) or not self._changed:
                    raise
                raise RuntimeError(
                    f'entry "{name}" could not be loaded: {error}; loaded before it: '
                    f"{self._changed}"
                ) from error
            self._changed.append(name)
        return LoadReport(
            tuple(self._loaded),
            tuple(self._missing),
            tuple(self._unexpected),
            tuple(self._mismatched),
        )

    @property
    def changed(self) -> list[str]:
        """Names of the entries that were loaded, in the order in which they were loaded."""
        return self._changed

    def _selected(self, paths: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """Returns those of `paths`, of entries or tensors, that `keys` and `exclude` select."""
        return list(_core.selected_paths(paths, self._keys, self._exclude))

    def _selected_tensors(self, name: str, keys: Iterable[str]) -> list[str]:
        """Returns those of the `keys` of a module that `keys` and `exclude` select."""
        return [path[1] for path in self._selected([(name, key) for key in keys])]

    def _is_whole(self, name: str, module: Any) -> bool:
        """True if `keys` and `exclude` select every tensor of a module."""
        if not self._is_part:
            return True
        own = module.state_dict()
        return len(self._selected_tensors(name, own)) == len(own)

    def _compare(self, name: str, where: str) -> None:
        target = self._app_state[name]
        if arrays.is_module(target):
            self._compare_module(name, target, where)
        elif arrays.is_optimizer(target):
            state = self._state_of(name, "an optimizer", where)
            expected = [len(group["params"]) for group in target.param_groups]
            try:
                found = [len(group["params"]) for group in state.get("param_groups", ())]
            except (KeyError, TypeError):
                raise ValueError(
                    f'{where}: entry "{name}": expected parameter groups of sizes {expected}, '
                    'found groups without a list "params"'
                ) from None
            if found != expected:
                raise ValueError(
                    f'{where}: entry "{name}": expected parameter groups of sizes {expected}, '
                    f"found {found}"
                )
            self._compare_options(name, target, state["param_groups"], where)

    def _compare_options(self, name: str, optimizer: Any, groups: Any, where: str) -> None:
        if changes_state_itself(optimizer):
            return
        kept: list[dict[str, Any]] = []
        missing = []
        for position, (group, saved) in enumerate(zip(optimizer.param_groups, groups, strict=True)):
            options, names = lacking_options(optimizer, group, saved)
            kept.append({option: options[option] for option in names})
            missing += [f"param_groups.{position}.{option}" for option in names]
        if self._strict:
            _core.require_ok(f'{where}: entry "{name}"', missing, [], [])
        self._missing += [f"{name}.{option}" for option in missing]
        self._kept_options[name] = kept

    def _state_of(self, name: str, kind: str, where: str) -> dict[str, Any]:
        state = entry_of(self._node, name, in_memory=False)
        if not isinstance(state, dict):
            raise ValueError(
                f'{where}: entry "{name}": expected the state of {kind}, found '
                f"{type(state).__name__}"
            )
        return state

    def _compare_module(self, name: str, module: Any, where: str) -> None:
        state = self._renamed(self._state_of(name, "a module", where))
        self._module_states[name] = state
        if _has_load_hooks(module):
            return  # Hooks and overridden methods may rename keys, so names cannot be compared.
        own = module.state_dict()
        missing = self._selected_tensors(name, [key for key in own if key not in state])
        unexpected = [key for key in state if key not in own]
        mismatched = [
            Mismatch(key, _text(own[key]), _text(state[key]))
            for key in own
            if key in state and not _fits(own[key], state[key])
        ]
        if self._strict:
            # False: the message does not suggest `cast`, an option that restore() does not have.
            listed = [(found.name, found.expected, found.found, False) for found in mismatched]
            try:
                _core.require_ok(f'{where}: entry "{name}"', missing, unexpected, listed)
            except ValueError as error:
                if not any(
                    _shape_of(own[found.name]) == _shape_of(state[found.name])
                    for found in mismatched
                ):
                    raise
                remedy = (
                    f'tenfold.load_into(module, tenfold.open("{where}")["{name}"], cast=True) '
                    "converts dtypes"
                )
                raise with_remedy(error, remedy) from None
        self._dropped[name] = [found.name for found in mismatched]
        for key in self._dropped[name]:
            del state[key]  # torch would raise an error for the shape, or cast the dtype
        self._missing += [f"{name}.{key}" for key in missing]
        self._unexpected += [f"{name}.{key}" for key in unexpected]
        self._mismatched += [
            dataclasses.replace(found, name=f"{name}.{found.name}") for found in mismatched
        ]

    def _placed(self, name: str, state: Any) -> Any:
        """Returns the saved state. If the object has DTensors, the state contains DTensors, too."""
        return self._place[name](state) if name in self._place else state

    def _renamed(self, state: Any) -> Any:
        if self._rename is None:
            return state
        metadata = getattr(state, "_metadata", None)
        state = OrderedDict((self._rename(key), value) for key, value in state.items())
        if metadata is not None:
            state._metadata = metadata
        return state

    def _load(self, name: str) -> None:
        target = self._app_state[name]
        if name in self._module_states:
            state = self._module_states.pop(name)
            if self._compares_later:
                copy = self._copy(name, compares=True)
                state = self._renamed(entry_of(copy, name, in_memory=True))
                for key in self._dropped.get(name, ()):
                    del state[key]
            state = self._placed(name, state)
            strict = self._strict and self._is_whole(name, target)
            result = target.load_state_dict(state, strict=strict)
            unexpected = dict.fromkeys(getattr(result, "unexpected_keys", ()))
            self._loaded += [f"{name}.{key}" for key in state if key not in unexpected]
            if name not in self._dropped:  # `_compare_module` could not compare the names
                self._unexpected += [f"{name}.{key}" for key in unexpected]
                missing = self._selected_tensors(name, getattr(result, "missing_keys", ()))
                self._missing += [f"{name}.{key}" for key in missing]
            return
        if name in self._place:
            state = self._placed(name, entry_of(self._node, name, in_memory=False))
        else:
            copy = self._copies.pop(name, None)
            if copy is None:
                copy = self._copy(name, compares=self._compares_later)
            state = entry_of(copy, name, in_memory=True)
        if name in self._lacking:
            load_derived(target, state, self._rank)
        elif is_stateful(target):
            for position, kept in enumerate(self._kept_options.get(name, ())):
                state["param_groups"][position].update(kept)
            target.load_state_dict(state)
        else:
            self._app_state[name] = state
        self._loaded.append(name)


def entry_of(node: Any, name: str, *, in_memory: bool) -> Any:
    """Returns an entry in its original containers.

    Args:
        node: The engine's node of a step.
        name: The entry.
        in_memory: True if the tensors in `node` are copies in memory, which the program may change;
            False if they are mapped from files.
    """
    mode = "c" if in_memory else "r"
    described = node.describe(name)
    if described[0] == "value":
        return described[1]
    if described[0] == "tensor":
        return node.get(name, mode, _core.Tied())[0]
    return described[1].to_containers(mode, _core.Tied(), None, _tree_of)


def state_of(node: Any) -> dict[str, Any]:
    """All entries, mapped from their files."""
    names: list[str] = node.keys()
    return {name: entry_of(node, name, in_memory=False) for name in names}


def _tree_of(native: Any, _keys: tuple[str, ...]) -> Any:
    from tenfold.tensordict import TensorDict

    return TensorDict._from_native(native, None)


def _text(value: Any) -> str:
    if not arrays.is_array(value):
        return type(value).__name__
    return f"{arrays.dtype_name(value.dtype)} {list(value.shape)}"


def _shape_of(value: Any) -> tuple[int, ...] | None:
    return tuple(value.shape) if arrays.is_array(value) else None


def _fits(own: Any, saved: Any) -> bool:
    if not arrays.is_array(own) or not arrays.is_array(saved):
        return arrays.is_array(own) == arrays.is_array(saved)
    torch = arrays.imported_torch()
    if torch is not None and torch.nn.parameter.is_lazy(own):
        return True
    return own.dtype == saved.dtype and tuple(own.shape) == tuple(saved.shape)


def _has_load_hooks(module: Any) -> bool:
    torch = sys.modules["torch"]
    return any(
        getattr(part, "_load_state_dict_pre_hooks", None)
        or (
            type(part)._load_from_state_dict is not torch.nn.Module._load_from_state_dict
            and not type(part).__module__.startswith("torch.nn.")
        )
        or type(part).load_state_dict is not torch.nn.Module.load_state_dict
        for part in module.modules()
    )
