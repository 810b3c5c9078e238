"""Hugging Face Accelerate: saves the state of an `Accelerator` to a folder, atomically.

>>> from tenfold.accelerate import load_state, save_state
>>> save_state(accelerator, "run/checkpoint")    # instead of accelerator.save_state(...)
>>> load_state(accelerator, "run/checkpoint")
"""

from __future__ import annotations

import os
import random
import re
import warnings
from contextlib import contextmanager
from pathlib import Path

try:
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType, broadcast_object_list, gather_object
except ImportError as error:
    raise ImportError(
        'tenfold.accelerate needs Accelerate: pip install "tenfold[accelerate]"'
    ) from error

from tenfold._errors import UnsupportedError
from tenfold._io.files import load, save
from tenfold._io.load_into import load_into
from tenfold._options import boolean
from tenfold._paths import exists
from tenfold._ranks import described, error_of
from tenfold._staging import (
    MANIFEST,
    Staging,
    check,
    new_token,
    put_back_all,
    remove_all,
    staging_folder,
)
from tenfold.checkpoint._rng import RngState, set_numpy, set_torch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    Result = TypeVar("Result")

    PathLike = str | os.PathLike[str]

__all__ = ["load_state", "save_state"]

_OURS = ".safetensors"
# Suffixes of the file of an object, in the order in which `load_state` tries them. `save_state`
# writes only the first; the suffix that `Accelerator.save_state` writes depends on the object.
_SUFFIXES = (_OURS, ".bin", ".pt", ".pkl")
# Names of the files of `Accelerator.save_state`. If `save_state` replaces a folder that has such
# files, it does not keep them.
_NAMES = re.compile(
    r"model(_\d+)?\.safetensors"
    r"|(pytorch_model|optimizer|scheduler|sampler|dl_state_dict)(_\d+)?\.bin"
    r"|scaler\.pt|(random_states|custom_checkpoint)_\d+\.pkl"
)
_NUMBERED = re.compile(r"checkpoint_\d+")
# The distributed types that `save_state` and `load_state` refuse: with XLA, processes cannot gather
# Python objects; with the other types, each process holds only shards.
SHARDED = (
    DistributedType.FSDP,
    DistributedType.DEEPSPEED,
    DistributedType.MEGATRON_LM,
    DistributedType.XLA,
)


def save_state(accelerator: Any, output_dir: PathLike | None = None) -> Path:
    """Saves what `Accelerator.save_state` saves, atomically, with checksums and without pickle.

    The folder has a safetensors file for each object: ``model``, ``optimizer``, ``scheduler``,
    ``sampler`` (epoch and seed of a loader), ``dl_state_dict`` (of a stateful loader), ``scaler``,
    ``random_states_<rank>`` (Python, NumPy, torch, CUDA) and ``custom_checkpoint_<i>``. A second
    model is ``model_1``, and so on. ``model.safetensors`` has the parameter names of the unwrapped
    model, as `from_pretrained` requires. All processes must call this function; they need a shared
    file system, or ``save_on_each_node``. If one of them fails, all raise an error.

    Args:
        accelerator: The accelerator that prepared the objects to save, or registered them.
        output_dir: A folder for this checkpoint only; ``~`` is the home folder. An existing
            checkpoint, also one of `Accelerator.save_state`, is replaced atomically (by two renames
            if the file system cannot exchange two names). Files that neither function saves are
            kept. With ``automatic_checkpoint_naming``, `output_dir` is ignored: the folder is
            ``checkpoints/checkpoint_<iteration>`` of the project, and the oldest checkpoints beyond
            ``total_limit`` are removed after the save. If a checkpoint with the same or a higher
            number exists, as after a restart, the new number is the highest number plus one.

    Returns:
        Path: The folder.

    Raises:
        UnsupportedError: If an entry cannot be stored (the message names its key), or the training
            is sharded (FSDP, DeepSpeed, Megatron-LM) or uses XLA. An existing checkpoint is
            unchanged.
        CorruptFileError: If a file that was written violates its format. An existing checkpoint is
            unchanged.
        FileExistsError: If `output_dir` is a file, or a folder that is neither empty nor a
            checkpoint.
        ValueError: Without ``automatic_checkpoint_naming``, if `output_dir` is None. With
            ``automatic_checkpoint_naming``, if the accelerator has no ``project_dir``.
        OSError: If a system call failed. An existing checkpoint is unchanged, unless the last fsync
            failed.

    Example:
        >>> model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        >>> tenfold.accelerate.save_state(accelerator, "run/checkpoint")
        PosixPath('run/checkpoint')
    """
    _refuse_sharded(accelerator, "save_state")
    project = accelerator.project_configuration
    target = on_main(_target, accelerator, output_dir)
    writes = _is_first(accelerator)
    with staged_by_all(target, writes, _NAMES) as folder:
        _write(accelerator, folder, writes)
    if project.automatic_checkpoint_naming:
        project.iteration = _number(target) + 1
        on_all(lambda: _prune(target.parent, project.total_limit) if writes else None)
    else:
        project.iteration += 1
    return target


def load_state(accelerator: Any, input_dir: PathLike | None = None, *, strict: bool = True) -> Path:
    """Loads a checkpoint of `save_state` or `Accelerator.save_state`.

    The samplers that `Accelerator.save_state` writes are pickled objects, and are not loaded.
    Before the first object changes, the main process (with ``save_on_each_node``, one process of
    each node) compares the checksums of a checkpoint of `save_state`, and each process opens the
    files that it loads. If one of these two steps fails in a process, all processes raise an error.
    A later error is raised only in the process where it occurs. No pickle is executed.

    Args:
        accelerator: Must have prepared and registered the objects in the same order as when they
            were saved.
        input_dir: The folder. None: with ``automatic_checkpoint_naming``, the checkpoint with the
            highest number.
        strict: As for `tenfold.load_into`, with which each model is loaded.

    Returns:
        Path: The folder.

    Raises:
        FileNotFoundError: If there is no folder, or no file for a model, optimizer, scheduler,
            scaler or registered object.
        CorruptFileError: If files of `save_state` are damaged or missing (the message lists them),
            or a file of Accelerate violates its format.
        UnsupportedError: If a file of Accelerate contains objects that only running code could
            create, or the training is sharded or uses XLA.
        ValueError: With `strict`, if tensors of a model are missing, unexpected or of another dtype
            or shape. If fewer objects are registered than were saved. Without
            ``automatic_checkpoint_naming``, if `input_dir` is None. With it, if `input_dir` is None
            and the accelerator has no ``project_dir``.

    Example:
        >>> tenfold.accelerate.load_state(accelerator, "run/checkpoint")
        PosixPath('run/checkpoint')
    """
    _refuse_sharded(accelerator, "load_state")
    strict = boolean("load_state: strict", strict)
    folder: Path = on_main(_source, accelerator, input_dir)
    on_all(lambda: check(folder) if _is_first(accelerator) else None)
    models = list(accelerator._models)
    for hook in accelerator._load_model_state_pre_hook.values():
        hook(models, str(folder))
    found = on_all(lambda: _read(accelerator, folder, len(models)))
    for model, state in zip(models, found["model"], strict=True):
        load_into(_named_as(state, accelerator, model), state, strict=strict)
    for name, objects in _stateful(accelerator):
        for thing, state in zip(objects, found[name], strict=True):
            thing.load_state_dict(state)
    for loader, state in zip(accelerator._dataloaders, found["sampler"], strict=True):
        if state is not None:
            _restore_loader(loader, state)
    for loader, state in zip(accelerator._dataloaders, found["dl_state_dict"], strict=True):
        if state is not None:
            loader.load_state_dict(state)
    if accelerator.scaler is not None:
        accelerator.scaler.load_state_dict(found["scaler"])
    _restore_random(accelerator, folder, found["random_states"])
    return folder


@contextmanager
def staged_by_all(
    path: Path,
    writes: bool,
    own_names: re.Pattern[str] | None = None,
    is_collective: bool = False,
) -> Iterator[Path]:
    """Yields a temporary folder that all processes fill, and that replaces `path` at the end.

    If a process fails, all processes raise an error, except on XLA (see `raise_on_all`) and with
    `is_collective`.

    Args:
        path: Must be the same in all processes.
        writes: True in the process that creates and publishes the folder; with several file
            systems, in one process for each file system.
        own_names: As for `Staging.publish`.
        is_collective: True if the processes fill the folder by collective operations. A process
            that fails while it fills the folder then raises its error at once, without the other
            processes, because they may be waiting for it in a collective operation.
    """
    (token,) = broadcast_object_list([new_token()])
    staging: Staging | None = None

    def begin() -> None:
        nonlocal staging
        if writes:
            staging = Staging(path, token)

    def publish() -> None:
        if staging is not None:
            staging.publish(own_names)

    error: Exception | None = None
    try:
        on_all(begin)
        try:
            yield staging_folder(path, token)
        except Exception as failure:
            if is_collective:
                raise
            error = failure
        raise_on_all(error)
        on_all(publish)
    finally:
        if staging is not None:
            staging.close()


def on_all(function: Callable[[], Result]) -> Result:
    """Calls `function` and passes its error to `raise_on_all`. All processes must call this."""
    results: list[Result] = []
    error: Exception | None = None
    try:
        results.append(function())
    except Exception as failure:
        error = failure
    raise_on_all(error)
    return results[0]


def raise_on_all(error: Exception | None) -> None:
    """Waits for all processes. If a process passes an error, every process raises an error.

    The failed process raises the error that it passed. The others raise an error of the same class,
    a base class or RuntimeError, which names the failed process. On XLA, where objects cannot be
    gathered, the others do not raise, and a failed process raises without waiting.
    """
    state = PartialState()
    if state.distributed_type == DistributedType.XLA:
        if error is not None:
            raise error
        state.wait_for_everyone()
        return
    sent = gather_object([None if error is None else described(error)])
    if error is not None:
        raise error
    for rank, other in enumerate(sent):
        if other is not None:
            raise error_of(rank, other)


def on_main(function: Callable[..., Result], *args: Any) -> Result:
    """Calls `function` in the main process; all processes return its result or raise its error."""
    outcome: list[Any] = [None, None]
    if PartialState().is_main_process:
        try:
            outcome[0] = function(*args)
        except Exception as error:
            outcome[1] = error
    broadcast_object_list(outcome)
    if outcome[1] is not None:
        raise outcome[1]
    result: Result = outcome[0]
    return result


# --- folders ---


def _refuse_sharded(accelerator: Any, where: str) -> None:
    if accelerator.distributed_type in SHARDED:
        raise UnsupportedError(
            f"{where}: expected training without sharding or XLA, found "
            f"{accelerator.distributed_type.value}; use accelerator.{where}()"
        )


def _is_first(accelerator: Any) -> bool:
    """True in the processes that create and publish the folder.

    These are the main process and, with `save_on_each_node` (nodes without a shared file system),
    the local main process of each node.
    """
    each_node: bool = accelerator.project_configuration.save_on_each_node
    main: bool = accelerator.is_main_process
    local_main: bool = accelerator.is_local_main_process
    return main or (each_node and local_main)


def _target(accelerator: Any, output_dir: PathLike | None) -> Path:
    project = accelerator.project_configuration
    if project.automatic_checkpoint_naming:
        directory = _directory(accelerator, "save_state")
        put_back_all(directory, "checkpoint_*")
        number = max([project.iteration, *(_number(path) + 1 for path in _numbered(directory))])
        return directory / f"checkpoint_{number}"
    if output_dir is None:
        raise ValueError("save_state: output_dir: expected a path, found None")
    path = Path(output_dir).expanduser()
    if path.is_dir() and any(path.iterdir()) and not _is_checkpoint(path):
        raise FileExistsError(
            f"{path}: expected a checkpoint, an empty folder or nothing, found a folder with "
            f"{_first_name(path)!r} and no checkpoint; use a separate folder"
        )
    return path


def _is_checkpoint(path: Path) -> bool:
    return exists(path / MANIFEST) or any(path.glob("random_states_*.pkl"))


def _first_name(path: Path) -> str:
    return min(entry.name for entry in path.iterdir())


def _source(accelerator: Any, input_dir: PathLike | None) -> Path:
    if input_dir is not None:
        path = Path(input_dir).expanduser()
    elif accelerator.project_configuration.automatic_checkpoint_naming:
        directory = _directory(accelerator, "load_state")
        put_back_all(directory, "checkpoint_*")
        checkpoints = _numbered(directory)
        if not checkpoints:
            raise FileNotFoundError(f"{accelerator.project_dir}: it has no checkpoints")
        path = checkpoints[-1]
    else:
        raise ValueError("load_state: input_dir: expected a path, found None")
    return path


def _directory(accelerator: Any, where: str) -> Path:
    """The folder of the checkpoints with automatic names."""
    if accelerator.project_dir is None:
        raise ValueError(
            f"{where}: project_dir: expected a path with automatic_checkpoint_naming, found None; "
            "Accelerator(project_dir=...) sets it"
        )
    return Path(accelerator.project_dir, "checkpoints")


def _numbered(directory: Path) -> list[Path]:
    """The checkpoints with automatic names, by ascending number."""
    found = directory.glob("checkpoint_*")
    return sorted((path for path in found if _NUMBERED.fullmatch(path.name)), key=_number)


def _number(path: Path) -> int:
    return int(path.name.rpartition("_")[2])


def _prune(directory: Path, limit: int | None) -> None:
    if limit is None:
        return
    checkpoints = _numbered(directory)
    remove_all(checkpoints[: max(len(checkpoints) - max(limit, 1), 0)])


# --- writing ---


def _name(stem: str, number: int) -> str:
    return f"{stem}_{number}" if number else stem


def _write(accelerator: Any, folder: Path, writes: bool) -> None:
    # Get random states first: collecting the state of other objects may draw random numbers.
    rng = RngState()
    numbers = rng.state_dict()

    def put(stem: str, state: Any) -> None:
        if writes:  # all processes collect state, which may be a collective operation
            save(state, folder / f"{stem}{_OURS}", durable=False, progress=False)

    weights = [
        accelerator.get_state_dict(_unwrapped(accelerator, model), unwrap=False)
        for model in accelerator._models
    ]
    for hook in accelerator._save_model_state_pre_hook.values():
        hook(accelerator._models, weights, str(folder))
    for number, state in enumerate(weights):
        put(_name("model", number), state)
    for name, objects in _stateful(accelerator):
        for number, thing in enumerate(objects):
            put(f"{name}_{number}" if name == _CUSTOM else _name(name, number), thing.state_dict())
    for number, loader in enumerate(accelerator._dataloaders):
        state = _loader_state(loader)
        if state is not None:
            put(_name("sampler", number), state)
        if getattr(loader, "use_stateful_dataloader", False):
            put(_name("dl_state_dict", number), loader.state_dict())
    if accelerator.scaler is not None:
        put("scaler", accelerator.scaler.state_dict())
    rng.load_state_dict(numbers)
    random_states = {"step": accelerator.step, **numbers}
    name = f"random_states_{accelerator.process_index}{_OURS}"
    save(random_states, folder / name, durable=False, progress=False)


def _unwrapped(accelerator: Any, model: Any) -> Any:
    return accelerator.unwrap_model(model, keep_torch_compile=False)


_CUSTOM = "custom_checkpoint"


def _stateful(accelerator: Any) -> list[tuple[str, list[Any]]]:
    return [
        ("optimizer", accelerator._optimizers),
        ("scheduler", accelerator._schedulers),
        (_CUSTOM, accelerator._custom_objects),
    ]


def _loader_state(loader: Any) -> dict[str, int] | None:
    """The epoch of a loader and, if its sampler has one, the seed.

    None for a loader that does not count epochs.
    """
    if not hasattr(loader, "iteration"):
        return None
    state = {"iteration": int(loader.iteration)}
    seed = getattr(_sampler(loader), "initial_seed", None)
    return state if seed is None else {**state, "initial_seed": int(seed)}


def _sampler(loader: Any) -> Any:
    return loader.get_sampler() if hasattr(loader, "get_sampler") else None


def _restore_loader(loader: Any, state: dict[str, int]) -> None:
    sampler = _sampler(loader)
    if "initial_seed" in state and hasattr(sampler, "initial_seed"):
        sampler.initial_seed = state["initial_seed"]
    if hasattr(loader, "set_epoch"):
        loader.set_epoch(state["iteration"])


# --- reading ---


def _find(folder: Path, *stems: str) -> Path | None:
    for stem in stems:
        for suffix in _SUFFIXES:
            path = folder / f"{stem}{suffix}"
            if path.is_file():
                return path
    return None


def _named_as(state: dict[str, Any], accelerator: Any, model: Any) -> Any:
    """The unwrapped model, or `model` itself if it has more names in common with the state.

    For a model that was compiled before `Accelerator.prepare`, `Accelerator.save_state` saves the
    names of the compiled model.
    """
    models = _unwrapped(accelerator, model), model
    return max(models, key=lambda each: len(state.keys() & each.state_dict().keys()))


def _get(folder: Path, *stems: str) -> Any:
    path = _find(folder, *stems)
    if path is None:
        raise FileNotFoundError(f"{folder}: expected {stems[0]}{_OURS}, found no such file")
    return load(path, framework="torch", progress=False)


def _read(accelerator: Any, folder: Path, num_models: int) -> dict[str, Any]:
    """Loads the states of all objects; None for optional files that are missing or not loaded."""
    found: dict[str, Any] = {
        "model": [
            _get(folder, _name("model", number), _name("pytorch_model", number))
            for number in range(num_models)
        ]
    }
    for name, objects in _stateful(accelerator):
        if name == _CUSTOM:
            names = [f"{name}_{number}" for number in range(len(objects))]
            if _find(folder, f"{name}_{len(objects)}") is not None:
                raise ValueError(
                    f"{folder}: expected the states of {len(objects)} registered objects, found "
                    "more; register all objects that were saved, in the same order as then"
                )
        else:
            names = [_name(name, number) for number in range(len(objects))]
        found[name] = [_get(folder, each) for each in names]
    loaders = range(len(accelerator._dataloaders))
    for stem in ("sampler", "dl_state_dict"):
        paths = [_find(folder, _name(stem, number)) for number in loaders]
        found[stem] = [
            # A sampler that Accelerate saved is a pickled object, and is not loaded.
            None
            if path is None or (stem == "sampler" and path.suffix != _OURS)
            else load(path, framework="torch", progress=False)
            for path in paths
        ]
    if accelerator.scaler is not None:
        found["scaler"] = _get(folder, "scaler")
    path = _find(folder, f"random_states_{accelerator.process_index}")
    found["random_states"] = None if path is None else load(path, framework="torch", progress=False)
    return found


def _restore_random(accelerator: Any, folder: Path, states: dict[str, Any] | None) -> None:
    if states is None:
        warnings.warn(
            f"{folder}: it has no random states of process {accelerator.process_index}; the random "
            "states of this process stay as they are",
            stacklevel=3,
        )
        return
    if "step" in states:
        accelerator.step = states["step"]
    if "random_state" not in states:
        RngState().load_state_dict(states)
        return
    # The states have the form in which Accelerate saves them.
    random.setstate(states["random_state"])
    names = ("name", "words", "position", "has_gauss", "gauss")
    set_numpy(dict(zip(names, states["numpy_random_seed"], strict=True)))
    devices = states.get("torch_cuda_manual_seed", [])
    set_torch({"torch": states["torch_manual_seed"], "cuda": devices})
