"""`CheckpointManager`: the checkpoints of a training, one folder per step."""

from __future__ import annotations

import contextlib
import errno
import os
import time
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from tenfold import _core
from tenfold._errors import CorruptFileError, UnsupportedError, with_remedy
from tenfold._interop import arrays
from tenfold._io.files import key_paths, renamer
from tenfold._options import boolean, integer, path_argument, text
from tenfold._public import set_module
from tenfold._ranks import join, require_equal
from tenfold._reports import LoadReport, VerifyReport, verify_report
from tenfold.checkpoint._app_state import check_names, constant_names, is_damage, states_of
from tenfold.checkpoint._arguments import (
    check_name,
    metadata_of,
    metrics_of,
    more_of,
    named_cycles,
    number_of,
    rules_of,
    whole,
)
from tenfold.checkpoint._background import SaveHandle, StepLock, Writer
from tenfold.checkpoint._live_tensors import LiveTensors
from tenfold.checkpoint._preemption import Preemption
from tenfold.checkpoint._rank_entries import Comparison, Described, patterns_of
from tenfold.checkpoint._restoring import RestorePlan
from tenfold.checkpoint._results import Estimate, RestoreResult, StepStatus
from tenfold.checkpoint._save_request import SaveRequest, write_step
from tenfold.checkpoint._sharded import ShardedEntries, outlines_of, templates_of, whole_states

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType
    from typing import Any, Literal

    from tenfold._io.files import Keys, PathLike, Progress, Rename
    from tenfold.checkpoint._save_request import Trees

    Format = str | Mapping[str, str]
    Check = Literal["auto", "full", "structure"] | bool

# Seconds between two checks of `follow` for a new step.
_POLL_SECONDS = 1.0


@set_module("tenfold")
class CheckpointManager:
    """The checkpoints of a training: a directory with one folder per step.

    A step exists completely or not at all, even after a crash (SIGKILL). The current lineage is the
    newest step and the earlier steps that it continues. By default, `restore` restores the newest
    step of the current lineage whose checksums match. A step needs no files outside of the
    directory, so another process, or a C++ program, can use the same steps.

    Args:
        directory: The directory of the steps; the first save creates it.
        max_to_keep: Number of newest steps of the current lineage to keep; steps that are known to
            be damaged do not count. Steps of other lineages are kept, unless they are known to be
            damaged. None: keep all steps.
        keep_every: Also keep steps whose number is a multiple of this.
        best: The name of a metric: also keep the best steps by this metric.
        best_mode: ``"min"`` or ``"max"``.
        best_to_keep: Number of best steps to keep.
        every_steps: For `should_save`: a save is due at each multiple of this number.
        every_seconds: For `should_save`: seconds between saves.
        format: ``"safetensors"``, ``"memmap"``, ``"tdz"``, ``"pt"`` or ``"npz"``; or a dict from
            names or globs of entries to these: ``{"model": "safetensors", "*": "memmap"}``. Entries
            that JSON can represent are JSON files.
        async_save: True: `save` returns when the tensors are copied, and a thread writes them.
            ``"overlap"``: parameters and optimizer tensors (except those in ``param_groups``) are
            copied in the background, too; the optimizer must step within `lock`.
        share_unchanged: Create hard links to files of the newest step of the lineage that have
            equal checksums: per leaf for memmap entries, per file for others. Equal memmap and
            safetensors files are not written. JSON files and entries that several ranks write
            together are not linked.
        per_rank: In a process group of several ranks: names or globs of entries that each rank
            saves and restores separately, like `RngState`.
        verify: The checks of `restore`. ``"full"`` or True: every checksum, before an object
            changes. ``"structure"``: files, sizes and the checksums of metadata, and all bytes of
            entries other than safetensors and memmap. False: nothing. ``"auto"``: like ``"full"``
            for steps below 8 GB, or if an object has DTensors. For other steps: like
            ``"structure"`` before an object changes, and then the checksum of each block when the
            block is copied for an object.
        on_error: ``"raise"``: a failed save raises its error; after a save in the background, the
            next call that waits for it (`save`, `restore`, `wait`, `close`, ...) raises the error.
            ``"warn"``: an error while a step is written causes a warning, and the training
            continues. `save` still raises errors of its arguments. An entry that its format cannot
            store is detected only when the step is written, so it causes a warning.
        retries: Number of retries of a save that fails with an OSError.
        durable: fsync before a save is done.

    Raises:
        ValueError, TypeError: If an argument is invalid, or an option differs between the ranks.
        NotADirectoryError: If `directory` is a file.
        RuntimeError: If a rank of the process group does not create its manager.

    Example:
        >>> manager = tenfold.CheckpointManager("run", max_to_keep=3, best="loss")
        >>> state = {"model": model, "optimizer": optimizer, "rng": tenfold.RngState(), "epoch": 0}
        >>> start = manager.restore(state, missing_ok=True).step or 0
        >>> manager.save(start + 1, state, metrics={"loss": 0.25})
        <SaveHandle step=1 done>
    """

    def __init__(
        self,
        directory: PathLike,
        *,
        max_to_keep: int | None = None,
        keep_every: int | None = None,
        best: str | None = None,
        best_mode: Literal["min", "max"] = "min",
        best_to_keep: int = 1,
        every_steps: int | None = None,
        every_seconds: float | None = None,
        format: Format = "safetensors",
        async_save: bool | Literal["overlap"] = False,
        share_unchanged: bool = False,
        per_rank: str | Iterable[str] | None = None,
        verify: Check = "auto",
        on_error: Literal["raise", "warn"] = "raise",
        retries: int = 0,
        durable: bool = True,
    ) -> None:
        # Create the groups before anything can raise an error on only some ranks.
        self._ranks, self._writing_ranks = groups = join("checkpoint manager", 2)
        options = {
            name: value
            for name, value in locals().items()
            if name not in ("self", "directory", "groups")
        }
        try:
            _, shown = self._ranks.run(
                "CheckpointManager",
                lambda: self._open(directory, **options),
                lambda _: {name: repr(value) for name, value in options.items()},
            )
            for name in options:
                require_equal(f"checkpoint manager: {name}", [other[name] for other in shown])
        except BaseException:
            for group in groups:
                group.leave()
            raise
        self.directory: Path = Path(self._native.directory())

    def _open(
        self,
        directory: PathLike,
        *,
        max_to_keep: int | None,
        keep_every: int | None,
        best: str | None,
        best_mode: str,
        best_to_keep: int,
        every_steps: int | None,
        every_seconds: float | None,
        format: Format,
        async_save: bool | str,
        share_unchanged: bool,
        per_rank: str | Iterable[str] | None,
        verify: Check,
        on_error: str,
        retries: int,
        durable: bool,
    ) -> None:
        where = "checkpoint manager: "
        if async_save not in (False, True, "overlap"):
            raise ValueError(
                f'{where}async_save: expected False, True or "overlap", found {async_save!r}'
            )
        if on_error not in ("raise", "warn"):
            raise ValueError(f'{where}on_error: expected "raise" or "warn", found {on_error!r}')
        self._async: bool | str = async_save
        self._check = check_name(verify)
        self._per_rank = patterns_of(per_rank)
        self._comparison = Comparison()
        self._is_timed = every_seconds is not None
        self._pool = _core.StagingPool()
        self._own_pool = _core.StagingPool()  # entries of this rank alone
        self._part_pool = _core.StagingPool()  # parts of sharded entries
        self._lock = StepLock()
        self._warned_of_memory = False
        self._native = _core.CheckpointManager.make(
            os.fspath(path_argument("CheckpointManager(directory)", directory, "directory")),
            whole(where + "max_to_keep", max_to_keep),
            whole(where + "keep_every", keep_every),
            "" if best is None else text(where + "best", best),
            text(where + "best_mode", best_mode),
            integer(where + "best_to_keep", best_to_keep, 1),
            whole(where + "every_steps", every_steps),
            None if every_seconds is None else number_of(where + "every_seconds", every_seconds),
            rules_of(format),
            boolean(where + "share_unchanged", share_unchanged),
            boolean(where + "durable", durable),
        )
        retries = integer(where + "retries", retries, 0)
        self._writer = Writer(self._native.directory(), on_error, retries)

    def __repr__(self) -> str:
        return f"CheckpointManager({str(self.directory)!r}, latest_step={self.latest_step()})"

    def __enter__(self) -> CheckpointManager:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- saving ---

    def should_save(self, step: int) -> bool:
        """True if a save is due according to `every_steps` or `every_seconds`.

        A save is due if a multiple of `every_steps` was reached or skipped, or `every_seconds` have
        passed, since the last save or restore. Before the first save or restore, steps count from
        0, and seconds from the creation of the manager. With `every_seconds`, all ranks of a
        process group must call this method the same number of times; all get the same result.

        Args:
            step: The number of the step that the training has just finished.

        Returns:
            bool: Whether a save is due; always True if neither option is set.

        Raises:
            TypeError, ValueError: If `step` is not an int of 0 or more.

        Example:
            >>> if manager.should_save(501):
            ...     manager.save(501, state).result()
            PosixPath('/data/run/step_00000501')
        """
        due = self._native.should_save(integer("should_save: step", step, 0))
        # All ranks pass the same step number, but their clocks differ, so they share the decision.
        return self._ranks.any(due) if self._is_timed else due

    def save(
        self,
        step: int,
        app_state: dict[str, Any],
        *,
        metrics: Mapping[str, float] | None = None,
        extra: Any = None,
        force: bool = False,
        block: bool | None = None,
    ) -> SaveHandle:
        """Saves a step, then removes the steps that no rule keeps.

        Args:
            step: The number of the step. An existing step is replaced, with a warning; an existing
                step of a newer format version is an error.
            app_state: By name, objects with ``state_dict()`` and ``load_state_dict()`` (modules,
                optimizers, schedulers, scalers, loaders, `RngState`), tensors, and plain values in
                any nesting.
            metrics: Numbers by name. The option `best` of the manager names the metric by which
                the best steps are chosen.
            extra: A JSON value that `metadata` returns.
            force: If true, replace an existing step without a warning.
            block: True: return when the step is written, even if `async_save` is set.

        Returns:
            SaveHandle: A Future of the step's path. It is done, unless the save continues in the
                background. An error in the background is not raised here: see `on_error`.

        Raises:
            UnsupportedError: If an entry cannot be stored (the message names its key), or `extra`
                is not JSON. No step has been written.
            TypeError: If an argument has the wrong type: for example, `app_state` is not a dict
                with str keys, or a metric is not a number. No step has been written.
            ValueError: If `step` is negative, or the ranks of a process group differ in step,
                names, dtypes, shapes or the position of a BatchLoader. Also if a key cannot be
                stored, such as one that is too long for the name of a file, or a container contains
                itself; the message names the key. No step has been written.
            RuntimeError: If there is more than one `RngState`, or a rank does not call `save`. With
                ``async_save="overlap"``, also if `save` is called in a ``with manager.lock()``
                block, unless ``block=True``.
            OSError: If a system call failed, the disk is too full, or another process or manager
                writes into the directory. Also in a forked child, if the manager saved before the
                fork.

        Example:
            >>> handle = manager.save(501, state, metrics={"loss": 0.25})
            >>> handle.result()
            PosixPath('/data/run/step_00000501')
        """
        request, messages = self._ranks.run(
            "save",
            lambda: self._prepare(step, app_state, metrics, extra, force, block),
            lambda request: request.message,
        )
        if not self._ranks.is_alone:
            self._comparison.check(messages, str(self.directory), self._ranks.rank == 0)
            request.num_bytes_of_ranks = sum(message["own_bytes"] for message in messages)
            request.boxes = [
                [
                    (*box, rank)
                    for rank, message in enumerate(messages)
                    for box in message["boxes"][number]
                ]
                for number in range(len(messages[0]["sharded"]))
            ]
        # From here on, if there are several ranks, pass errors to a collective call, which raises
        # them on all ranks. If only this rank raised, the other ranks would wait for it.
        handle = SaveHandle(request.step, request.path)
        if request.live is not None:
            self._save_overlapped(handle, request, request.live)
            return handle
        if not self._async or block:
            self._writer.run(handle, partial(self._write, request, lambda: request.trees))
            return handle
        try:
            trees = self._copied(request.trees)
        except MemoryError:
            self._warn_of_memory()
            self._writer.run(handle, partial(self._write, request, lambda: request.trees))
            return handle
        except Exception as error:
            if self._ranks.is_alone:
                raise
            self._writer.run(handle, partial(self._write, request, partial(_raise, error)))
            return handle
        handle.staged.set_result(None)
        self._writer.start(handle, partial(self._write, request, lambda: trees))
        return handle

    def set_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Adds or replaces metrics of a saved step, for example after a validation.

        Any process may call it, also one that does not save.

        Args:
            step: An existing step.
            metrics: Numbers by name; other metrics of the step do not change.

        Raises:
            KeyError: If there is no such step.
            TypeError: If `step` is not an int, or a metric is not a number.
            ValueError: If `step` is negative, or a metric does not fit a float.
            CorruptFileError: If ``checkpoint.json`` of the step is damaged; the file is not
                changed.
            UnsupportedError: If ``checkpoint.json`` of the step has a newer format version.
            OSError: If a system call failed, or if other processes set metrics of the step and
                this process cannot lock the step within 10 s.

        Example:
            >>> manager.set_metrics(500, {"accuracy": 0.93})
        """
        number = integer("set_metrics: step", step, 0)
        values = metrics_of(metrics)
        if self._writer.step_in_flight == number:
            self._writer.wait()
        self._native.set_metrics(number, values)

    def estimate(self, app_state: dict[str, Any]) -> Estimate:
        """Returns the size that a save of this state would have, and the free space.

        In a process group, the size does not include the per-rank entries of other ranks.

        Args:
            app_state: As for `save`.

        Returns:
            Estimate: Bytes of each entry and of all entries, free bytes of the disk, and bytes that
                pruning would free.

        Raises:
            UnsupportedError: If an entry cannot be stored; the message names its key.
            ValueError: If a key cannot be stored, as for `save`.

        Example:
            >>> manager.estimate(state).num_bytes > 0
            True
        """
        tree = _core.tree(outlines_of(states_of(app_state)), str(self.directory))
        entries, num_bytes, free_bytes, prunable_bytes = self._native.estimate(tree)
        return Estimate(dict(entries), num_bytes, free_bytes, prunable_bytes)

    def lock(self) -> contextlib.AbstractContextManager[Any]:
        """Returns a context manager in which the optimizer may step.

        With ``async_save="overlap"``, a save holds the lock while it copies tensors, so that the
        optimizer does not change them. A call of `save` in the ``with`` block then raises
        RuntimeError, unless ``block=True``.

        Example:
            >>> with manager.lock():
            ...     optimizer.step()
        """
        return self._lock

    def preemption(self, signals: Iterable[int] | None = None) -> Preemption:
        """Returns a flag that becomes true when a scheduler announces the end of the job.

        Args:
            signals: Numbers of signals. None: SIGTERM and SIGUSR1.

        Returns:
            Preemption: A context manager, for the main thread only. Its truth value becomes true
                when one of the signals arrives in the ``with`` block, on any rank.

        Raises:
            ValueError: If the ``with`` block is entered outside of the main thread.

        Example:
            >>> with manager.preemption() as stop:
            ...     for step in range(start, num_steps):
            ...         train(step)
            ...         if stop:
            ...             manager.save(step, state, block=True)
            ...             break
        """
        if signals is None:
            import signal

            signals = (signal.SIGTERM, signal.SIGUSR1)
        return Preemption(signals, self._ranks)

    # --- restoring ---

    def restore(
        self,
        app_state: dict[str, Any] | None = None,
        *,
        step: int | None = None,
        path: PathLike | None = None,
        keys: Keys = None,
        exclude: Keys = None,
        rename: Rename = None,
        strict: bool = True,
        verify: Check | None = None,
        discard_later: bool = False,
        missing_ok: bool = False,
    ) -> RestoreResult:
        """Loads a step; later saves continue its lineage, unless it is from another `path`.

        Names, dtypes and shapes of the tensors of modules are compared before the first object
        changes, except for modules with load hooks or their own loading methods, whose
        ``load_state_dict()`` checks them. `verify` selects the checksums that are compared.

        Args:
            app_state: As for `save`. Objects are restored by ``load_state_dict()``; tensors and
                plain values are replaced in the dict. None: `RestoreResult.state` has the entries.
            step: The step to restore. None: the newest undamaged step of the lineage; a warning
                names each damaged step that was skipped.
            path: The directory, or the folder of a step, of another run.
            keys: Restore only these entries or tensors: ``"model"``, ``"model.encoder.*"``.
            exclude: Restore all entries and tensors but these.
            rename: Maps saved names of a module's tensors to its own names, as for `convert`.
            strict: Raise for missing or unexpected entries and tensors, and for other dtypes or
                shapes. With `keys` or `exclude`, an entry or tensor counts as missing only if they
                select its name, and other entries of the step are no errors.
            verify: As for the manager. None: the option of the manager.
            discard_later: Remove all steps with higher numbers, except those that a process holds.
                Not with `path`.
            missing_ok: A directory without steps is not an error, unless `step` is given. If all
                steps are damaged, an error is raised anyway.

        Returns:
            RestoreResult: ``.step``, ``.report``, ``.skipped``, ``.metadata``, ``.state``.

        Raises:
            FileNotFoundError: If `step` is None and there are no steps.
            KeyError: If `step` does not exist; if one of `keys` or `exclude` matches nothing; if
                `strict` and entries are missing or unexpected.
            ValueError: If `strict` and tensors of modules are missing, unexpected or of another
                dtype or shape; if the groups of an optimizer have other sizes, or if `strict` and
                they lack options that its class needs; for `discard_later` with `path`.
            CorruptFileError: If the step, or every step, is damaged; the message names files.
            UnsupportedError: If the requested step, or every step, is of a newer version.
            OSError: If a system call failed; for `discard_later`, if another process writes into
                the directory.
            RuntimeError: If an object raises an error after other objects were loaded; the message
                names the loaded objects.

        Example:
            >>> manager.restore({"model": model}, keys="model").step
            500
        """
        begin = partial(
            self._begin_restore,
            app_state,
            step,
            path,
            keys,
            exclude,
            rename,
            strict,
            verify,
            discard_later,
            missing_ok,
        )
        changed: list[str] = []  # entries loaded from steps that were found damaged afterwards
        for num_reads in range(_core.MAX_READS):
            result = self._restore_listed(begin, app_state, changed, may_differ=num_reads < 3)
            if result is not None:
                return result
        raise OSError(
            errno.ESTALE,
            f"in each of {_core.MAX_READS} attempts, a step was removed or replaced during the "
            "restore; protect the step with CheckpointManager.hold()",
            str(self.directory),
        )

    def _restore_listed(
        self,
        begin: Callable[[], RestorePlan],
        app_state: dict[str, Any] | None,
        changed: list[str],
        may_differ: bool,
    ) -> RestoreResult | None:
        """Restores the first undamaged step of those that `begin` lists.

        Returns None, so that the caller lists the steps again, if a step could not be restored
        because it was removed or replaced. With `may_differ`, also returns None if the ranks list
        different steps, which can happen while another job saves.
        """
        ranks = self._ranks
        plan, messages = ranks.run("restore", begin, lambda plan: plan.candidates)
        if any((found is None) != (messages[0] is None) for found in messages):
            if may_differ:
                return None
            raise FileNotFoundError(
                f"{self.directory}: expected steps on all ranks or on none, found them on some "
                "ranks only; all ranks must use the same shared directory"
            )
        if messages[0] is None:
            return RestoreResult(None, None, LoadReport((), (), (), ()))
        try:
            for number, seq, num_bytes in messages[0]:
                (index, found, _), answers = ranks.run(
                    "restore: check",
                    partial(plan.open, number, seq, num_bytes, app_state, ranks),
                    lambda checked: (checked[0] >= 0, checked[2]),
                )
                if not all(is_listed for is_listed, _ in answers):
                    if may_differ:
                        return None
                    raise FileNotFoundError(
                        f"{self.directory}: expected step {number} on all ranks, found it on "
                        "rank 0, but not on all other ranks; all ranks must use the same "
                        "shared directory"
                    )
                problems = [problem for _, problem in answers]
                result = None
                if not any(problems):
                    result, problems = self._load(plan, found, num_bytes, app_state, changed)
                if result is not None:
                    return result
                problem = next(text for text in problems if text)
                _, are_listed = ranks.run(
                    "restore: skip",
                    partial(plan.steps.skip, index, problem, ranks.rank == 0),
                    lambda is_listed: is_listed,
                )
                if not all(are_listed):
                    return None
            plan.steps.fail()
        except CorruptFileError as error:
            if not changed:
                raise
            raise CorruptFileError(
                f"{error}; entries loaded before the damage was found: {changed}"
            ) from None
        raise AssertionError("steps.fail() raises")

    # --- the directory ---

    def latest_step(self) -> int | None:
        """The highest step of the current lineage (of the newest save); None without steps."""
        return self._native.latest_step()

    def all_steps(self) -> list[int]:
        """All steps with a readable ``checkpoint.json``, in any lineage, ascending."""
        return self._native.all_steps()

    def best_step(self) -> int | None:
        """The best of all steps by the metric `best`; of equally good steps, the one saved last.

        Returns:
            int | None: The step; None if no step has a finite value of the metric. A warning names
                the metrics of the steps if none has this one.

        Raises:
            ValueError: If the manager was created without `best`.
        """
        return self._native.best_step()

    def status(self) -> list[StepStatus]:
        """The steps that `all_steps` returns, each with the rules that keep it."""
        return [
            StepStatus(step, Path(path), seq, in_current_lineage, held, tuple(rules))
            for step, path, seq, in_current_lineage, held, rules in self._native.status()
        ]

    def metadata(self, step: int) -> dict[str, Any]:
        """Returns the content of `checkpoint.json`: step, seq, lineage, time, metrics, extra, ...

        Args:
            step: An existing step.

        Returns:
            dict: The members of the document. ``"seq"`` is the number of the save, ``"extra"`` the
                argument of `save`.

        Raises:
            TypeError, ValueError: If `step` is not an int of 0 or more.
            KeyError: If there is no such step.
            FileNotFoundError, CorruptFileError, UnsupportedError: If the folder of the step has no
                ``checkpoint.json``, or one that cannot be parsed, that is of another step or that
                has a newer format version.

        Example:
            >>> manager.metadata(500)["step"]
            500
        """
        return metadata_of(self._native.metadata(integer("metadata: step", step, 0)))

    def path(self, step: int) -> Path:
        """Returns the folder of a step, whose files `tenfold.load` and other tools read.

        Args:
            step: An existing step.

        Returns:
            Path: The folder.

        Raises:
            TypeError, ValueError: If `step` is not an int of 0 or more.
            KeyError, FileNotFoundError, CorruptFileError, UnsupportedError: As for `metadata`.

        Example:
            >>> manager.path(500)
            PosixPath('/data/run/step_00000500')
        """
        return Path(self._native.path(integer("path: step", step, 0)))

    def verify(self, step: int, *, progress: Progress = None) -> VerifyReport:
        """Checks the files, sizes and checksums of a step.

        Args:
            step: An existing step.
            progress: As for `tenfold.save`.

        Returns:
            VerifyReport: Lists the damage, also that of `checkpoint.json`; damage raises no error.

        Raises:
            TypeError, ValueError: If `step` is not an int of 0 or more.
            KeyError: If there is no such step.
            UnsupportedError: If `checkpoint.json` of the step has a newer format version.

        Example:
            >>> manager.verify(500).ok
            True
        """
        from tenfold._progress import Shown

        with Shown(progress) as callback:
            return verify_report(self._native.verify(integer("verify: step", step, 0), callback))

    def follow(self, after: int | None = None, timeout: float | None = None) -> Iterator[int]:
        """Yields the newest step, then each step that is saved later.

        This is for a job that evaluates checkpoints. While it waits, it lists the steps once per
        second; a step that is saved and removed between two listings is not yielded.

        Args:
            after: Begin with the first step that was saved after this step, not with the newest.
            timeout: End after this many seconds without a new step. None: never.

        Yields:
            int: Numbers of steps, in the order of the saves.

        Raises:
            TypeError, ValueError: If an argument is invalid; raised when the iteration starts.

        Example:
            >>> for step in manager.follow(timeout=600):
            ...     with manager.hold(step):
            ...         evaluate(manager.path(step))
        """
        after = None if after is None else integer("follow: after", after, 0)
        timeout = None if timeout is None else number_of("follow: timeout", timeout)
        seen: int | None = None
        waited_since = time.monotonic()
        while True:
            steps = sorted(self.status(), key=lambda status: status.seq)
            if seen is None and after is not None:
                given = [status.seq for status in steps if status.step == after]
                earlier = [status.seq for status in steps if status.step <= after]
                seen = max(given or earlier or [-1])
            elif seen is None and steps:
                seen = steps[-1].seq - 1
            new = [status for status in steps if seen is not None and status.seq > seen]
            for status in new:
                seen = status.seq
                yield status.step
            if new:
                waited_since = time.monotonic()
                continue
            if timeout is not None and time.monotonic() - waited_since >= timeout:
                return
            time.sleep(_POLL_SECONDS)

    @contextlib.contextmanager
    def hold(self, step: int) -> Iterator[Path]:
        """Protects a step in a ``with`` block: no process or host can prune or delete it.

        A `save` with the same step number still replaces the step.

        Args:
            step: An existing step.

        Yields:
            Path: Its folder.

        Raises:
            TypeError, ValueError: If `step` is not an int of 0 or more.
            KeyError, FileNotFoundError, CorruptFileError, UnsupportedError: As for `metadata`.
            OSError: If a system call failed, or the step has 1,024 holds.

        Example:
            >>> with manager.hold(500) as folder:
            ...     weights = tenfold.load(folder / "model.safetensors")
        """
        number = integer("hold: step", step, 0)
        held = self._native.hold(number)
        try:
            yield self.path(number)
        finally:
            held.release()

    def delete(self, step: int) -> None:
        """Removes a step.

        Args:
            step: An existing step.

        Raises:
            TypeError, ValueError: If `step` is not an int of 0 or more.
            KeyError, FileNotFoundError, CorruptFileError, UnsupportedError: As for `metadata`.
            OSError: If a system call failed, a process holds the step, or another process or
                manager writes into the directory.

        Example:
            >>> manager.delete(500)
            >>> manager.all_steps()
            []
        """
        self._writer.wait()
        self._native.remove(integer("delete: step", step, 0))

    def prune(self) -> list[int]:
        """Removes the steps that no rule keeps, as each save does. Returns their numbers."""
        self._writer.wait()
        return self._native.prune()

    def export(
        self,
        step: int,
        path: PathLike,
        *,
        keys: Keys = None,
        dtype: Any = None,
        progress: Progress = None,
    ) -> Path:
        """Converts a step, or a part of it, to any format that `convert` writes.

        If several ranks saved the step, the per-rank entries of ranks other than 0 are not
        converted; a warning names these entries. All checksums of the converted entries are
        compared first.

        Args:
            step: Number of the step.
            path: Destination; its suffix selects the format.
            keys: Entries or tensors. If all belong to one entry, the names in the file omit the
                name of the entry, unless it is a single tensor: ``keys="model"`` writes weights
                that other tools read.
            dtype: The dtype to which floating-point tensors are cast. None: no cast.
            progress: As for `tenfold.save`.

        Returns:
            Path: `path`.

        Raises:
            KeyError: If there is no such step, or one of `keys` matches nothing.
            FileNotFoundError, CorruptFileError: As for `metadata`; if a converted entry is damaged.
            UnsupportedError: As for `metadata`; if the format cannot store an entry.
            TypeError: If `step` is not an int.
            ValueError: If `step` is negative, if `path` is in the folder of the step, or as for
                `convert`.
            OSError: If a system call failed.

        Example:
            >>> manager.export(500, "model.safetensors", keys="model", dtype=torch.bfloat16)
            PosixPath('model.safetensors')
        """
        from tenfold._progress import Shown

        name = None if dtype is None else text("export: dtype", arrays.dtype_name(dtype))
        with Shown(progress) as callback:
            self._native.export_step(
                integer("export: step", step, 0), os.fspath(path), key_paths(keys), name, callback
            )
        return Path(os.fsdecode(path))

    def import_step(self, path: PathLike, step: int) -> Path:
        """Saves the content of a file or folder as a step.

        Args:
            path: A checkpoint in any format: its top-level keys become entries. A checkpoint with
                tensors at the top level (a ``state_dict``) becomes the entry ``"model"``, unless it
                is a step of a manager.
            step: Number of the new step.

        Returns:
            Path: The folder of the step.

        Raises:
            TypeError, ValueError: If `step` is not an int of 0 or more.
            FileNotFoundError, CorruptFileError, UnsupportedError: As for `tenfold.load` of `path`.
            OSError: If a system call failed, or another process or manager writes into the
                directory.

        Example:
            >>> tenfold.save({"model": model}, "downloaded")
            PosixPath('downloaded')
            >>> manager.import_step("downloaded", 600)
            PosixPath('/data/run/step_00000600')
        """
        self._writer.wait()
        number = integer("import_step: step", step, 0)
        return Path(self._native.import_step(os.fspath(path), number, more_of(None)))

    def wait(self) -> None:
        """Waits until the current save is done and the files of removed steps are deleted.

        Raises:
            Exception: The error of a save in the background, once. Not with ``on_error="warn"``.
        """
        self._writer.wait()
        self._native.wait()

    def close(self) -> None:
        """Waits as `wait` does, then releases the directory, so that another manager may save."""
        self._writer.close(self._native.close)

    # --- implementation ---

    def _path_of(self, step: int) -> Path:
        try:
            return Path(self._native.path(step))
        except (KeyError, CorruptFileError, UnsupportedError, OSError):
            # There is no such step, or it is damaged; a save may replace a damaged step.
            return self.directory / f"step_{step:08}"

    def _warn_of_memory(self) -> None:
        if not self._warned_of_memory:
            self._warned_of_memory = True
            warnings.warn(
                f"{self.directory}: not enough memory for a copy of the state: the training "
                "waits until the state is written",
                stacklevel=3,
            )

    def _prepare(
        self,
        step: int,
        app_state: dict[str, Any],
        metrics: Mapping[str, float] | None,
        extra: Any,
        force: bool,
        block: bool | None,
    ) -> SaveRequest:
        """Checks the arguments of a save, and collects the state of every object on this rank."""
        number = integer("save: step", step, 0)
        values = metrics_of(metrics)
        force = boolean("save: force", force)
        check_names(app_state)
        if self._async == "overlap" and not block:
            self._lock.require_outside()
        self._writer.require_own_process()
        self._writer.wait()
        # Called before the writing thread starts, so that should_save() counts from this step at
        # once.
        self._native.begin_save(number)
        more = more_of(extra)
        states = states_of(app_state)
        path = self._path_of(number)
        where = str(path)
        with named_cycles(states, where):
            message: dict[str, Any] = {}
            own: dict[str, Any] = {}
            if self._ranks.is_alone:
                states = whole_states(states)
                sharded = ShardedEntries({}, 0, where)
            else:
                sharded = ShardedEntries(states, self._ranks.rank, where)
                described = Described(
                    app_state, states, self._per_rank, number, self._comparison.is_first, sharded
                )
                message = described.message
                own = described.own
                if self._ranks.rank != 0:
                    states = own
                states = {
                    name: state for name, state in states.items() if name not in sharded.parts
                }
            live = None
            parts: dict[str, Any] = sharded.parts
            if self._async == "overlap" and not block:
                live = LiveTensors(app_state, states)
                states = live.states
                parts = live.parts_of(app_state, sharded)
            trees = (
                _core.tree(
                    {name: state for name, state in states.items() if name not in own}, where
                ),
                _core.tree({name: states[name] for name in own}, where),
                _core.tree(parts, where),
            )
            message["own_bytes"] = self._native.planned_bytes(trees[1]) if own else 0
            constant = constant_names(app_state)
            return SaveRequest(
                number,
                path,
                values,
                more,
                force,
                constant,
                trees,
                live,
                bool(own),
                message,
                sharded.tree(where) if sharded.parts and self._ranks.rank == 0 else None,
            )

    def _begin_restore(
        self,
        app_state: dict[str, Any] | None,
        step: int | None,
        path: PathLike | None,
        keys: Keys,
        exclude: Keys,
        rename: Rename,
        strict: bool,
        verify: Check | None,
        discard_later: bool,
        missing_ok: bool,
    ) -> RestorePlan:
        """Checks the arguments of a restore, and lists the candidate steps."""
        if app_state is not None:
            check_names(app_state)
        self._writer.wait()
        number = None if step is None else integer("restore: step", step, 0)
        place = None if path is None else os.fspath(path)
        if not place and place is not None:
            raise ValueError("restore: path: expected a path, found an empty string")
        check = self._check if verify is None else check_name(verify)
        discard_later = boolean("restore: discard_later", discard_later)
        try:
            steps = self._native.find(number, place, discard_later)
        except FileNotFoundError as error:
            if number is not None:
                raise
            if not boolean("restore: missing_ok", missing_ok):
                remedy = "with missing_ok=True, restore returns a result without a step"
                raise with_remedy(error, remedy) from None
            steps = None
        return RestorePlan(
            steps,
            place,
            keys,
            exclude,
            renamer(rename),
            boolean("restore: strict", strict),
            check,
            discard_later,
            templates_of(app_state),
        )

    def _load(
        self,
        plan: RestorePlan,
        found: Any,
        num_bytes: int,
        app_state: dict[str, Any] | None,
        changed: list[str],
    ) -> tuple[RestoreResult | None, list[str | None]]:
        """Loads a checked step. Returns the result, or None and the damage that each rank found."""
        ranks = self._ranks
        (restoring, state, document, _), problems = ranks.run(
            "restore: compare",
            lambda: plan.compare(found, num_bytes, app_state, ranks, self._per_rank),
            lambda compared: compared[3],
        )
        if any(problems):
            return None, problems

        def load() -> tuple[LoadReport, str | None]:
            nothing = LoadReport((), (), (), ())
            if restoring is None:
                return nothing, None
            try:
                return restoring.apply(), None
            except (CorruptFileError, OSError) as error:
                if not is_damage(error, found.path):
                    raise
                changed.extend(name for name in restoring.changed if name not in changed)
                return nothing, str(error)

        (report, _), problems = ranks.run("restore: load", load, lambda loaded: loaded[1])
        if any(problems):
            return None, problems

        def go_on() -> None:
            discards = plan.discard_later and ranks.rank == 0
            self._native.continue_from(found, plan.place, discards)

        ranks.run("restore: continue", go_on)
        # Not earlier: the step might have been damaged and skipped.
        if plan.warning is not None and ranks.rank == 0:
            warnings.warn(plan.warning, stacklevel=4)
        result = RestoreResult(
            found.step,
            Path(found.path),
            report,
            tuple(found.skipped),
            metadata_of(document),
            state,
        )
        return result, []

    def _write(self, request: SaveRequest, stage: Callable[[], Trees]) -> str:
        return write_step(self._native, self._writing_ranks, request, stage)

    def _copied(self, trees: Trees) -> Trees:
        return (
            self._pool.copy(trees[0]),
            self._own_pool.copy(trees[1]),
            self._part_pool.copy(trees[2]),
        )

    def _save_overlapped(self, handle: SaveHandle, request: SaveRequest, live: LiveTensors) -> None:
        # Acquire the lock here, so that no optimizer steps before the thread releases the lock.
        self._lock.acquire()
        is_locked = True
        copies: list[Trees] = []

        def unlock() -> None:
            nonlocal is_locked
            if is_locked:
                is_locked = False
                self._lock.release()

        def stage() -> Trees:
            if copies:
                return copies[0]
            if not is_locked:  # a retry: the lock was released, so the tensors may be changing
                raise MemoryError("not enough memory for a copy of the state")
            live.require_unchanged(handle.step)
            try:
                copy = self._copied(request.trees)
            except MemoryError:
                self._warn_of_memory()
                return request.trees  # the lock is held until the tensors are written
            live.require_unchanged(handle.step)
            unlock()
            handle.staged.set_result(None)
            copies.append(copy)
            return copy

        def work() -> str:
            try:
                return self._write(request, stage)
            finally:
                unlock()

        try:
            self._writer.start(handle, work)
        except BaseException:
            unlock()
            raise


def _raise(error: Exception) -> Trees:
    raise error
