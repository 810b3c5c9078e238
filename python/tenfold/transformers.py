"""Hugging Face transformers: the checkpoints of a `Trainer`, saved atomically.

>>> from tenfold.transformers import AtomicCheckpointMixin
>>> class MyTrainer(AtomicCheckpointMixin, transformers.Trainer): ...
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

try:
    import accelerate  # noqa: F401
    from transformers.trainer import TRAINER_STATE_NAME, Trainer
    from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, sort_checkpoints
except ImportError as error:
    raise ImportError(
        "tenfold.transformers needs transformers and Accelerate: "
        'pip install "tenfold[transformers]"'
    ) from error

from tenfold._errors import CorruptFileError
from tenfold._paths import exists
from tenfold._staging import check, put_back, put_back_all, remove_all
from tenfold.accelerate import SHARDED, on_all, on_main, staged_by_all

__all__ = ["AtomicCheckpointMixin"]


# The type Any lets type checkers accept the methods of Trainer, even if transformers is missing.
_Base: Any = object


class AtomicCheckpointMixin(_Base):  # type: ignore[misc]
    """Saves each ``checkpoint-<step>`` of a `transformers.Trainer` atomically.

    A checkpoint is written into a temporary folder next to the final one, checked, synced and
    renamed. It has the files that the Trainer writes, so programs without this class can read it,
    and ``tenfold_checksums.json`` with their sizes and CRC-32. An existing folder is replaced by
    one system call, or by renames if the system cannot exchange folders. Files of the old folder
    that its ``tenfold_checksums.json`` does not list are kept, unless the new checkpoint has files
    of the same names.

    `train` compares the checksums of the checkpoint that it resumes from, and
    ``load_best_model_at_end`` compares those of the best checkpoint. With
    ``resume_from_checkpoint=True``, `train` resumes from the undamaged checkpoint with the highest
    step, and warns about each damaged checkpoint with a higher step. A checkpoint that a Trainer
    without this class saved has no checksums, so its files are not checked. With
    ``resume_from_checkpoint=True``, it is skipped if it lacks ``trainer_state.json``. If
    ``save_total_limit`` is set, each save removes the oldest checkpoints beyond the limit, each
    atomically, but neither the newest nor the best one.

    If several processes train, they need a shared file system, or ``save_on_each_node``.

    Raises:
        TypeError: If a subclass lists this class after `Trainer` in its bases, because this class
            would then have no effect.

    Example:
        >>> class MyTrainer(AtomicCheckpointMixin, transformers.Trainer):
        ...     pass
        >>> MyTrainer(model, arguments, train_dataset=rows).train(resume_from_checkpoint=True)
    """

    # The temporary parent of `checkpoint-<step>` while Trainer writes it; otherwise None.
    _staged_run: str | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        order = cls.__mro__
        if Trainer in order and order.index(Trainer) < order.index(AtomicCheckpointMixin):
            raise TypeError(
                f"{cls.__name__}: AtomicCheckpointMixin must come before Trainer: "
                f"class {cls.__name__}(AtomicCheckpointMixin, Trainer)"
            )

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **options: Any) -> Any:
        """Trains as `Trainer.train` does; first checks the checkpoint that it resumes from.

        Args:
            resume_from_checkpoint: A path; or True: the undamaged checkpoint with the highest step
                in ``output_dir``. None or False: start from the beginning.
            *args: As for `Trainer.train`.
            **options: As for `Trainer.train`.

        Returns:
            transformers.trainer_utils.TrainOutput: The result of `Trainer.train`.

        Raises:
            CorruptFileError: If the checkpoint is damaged; for ``resume_from_checkpoint=True``, if
                there are checkpoints and all are damaged. The message names the damaged files.
            UnsupportedError: If the version of ``tenfold_checksums.json`` is not supported.
            ValueError: If there is no checkpoint at the path; for ``resume_from_checkpoint=True``,
                if there is none in ``output_dir``.
        """
        if resume_from_checkpoint is True:
            resume_from_checkpoint = on_main(_last_whole, self.args.output_dir)
        elif resume_from_checkpoint:
            on_main(_check_existing, Path(resume_from_checkpoint))
        return super().train(resume_from_checkpoint, *args, **options)

    # --- called by Trainer ---

    def _save_checkpoint(self, model: Any, trial: Any, *args: Any, **options: Any) -> None:
        run = super()._get_output_dir(trial)
        final = os.path.join(run, f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
        is_collective = self.accelerator.distributed_type in SHARDED
        with staged_by_all(
            Path(final), self.args.should_save, is_collective=is_collective
        ) as folder:
            self._staged_run = str(folder.parent)
            try:
                super()._save_checkpoint(model, trial, *args, **options)
            finally:
                self._staged_run = None
            self._name_best(run, final)
            if self.args.should_save:
                self.state.save_to_json(str(folder / TRAINER_STATE_NAME))
        if self.args.push_to_hub:
            self._push_from_checkpoint(final)
        on_all(lambda: self._prune(run) if self.args.should_save else None)

    def _get_output_dir(self, trial: Any) -> str:
        run: str = self._staged_run or super()._get_output_dir(trial)
        return run

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        if self._staged_run is None:  # otherwise the checkpoint does not have its final name yet
            super()._push_from_checkpoint(checkpoint_folder)

    def _load_best_model(self) -> None:
        on_main(check, Path(self.state.best_model_checkpoint))
        super()._load_best_model()

    # --- implementation ---

    def _name_best(self, run: str, final: str) -> None:
        """Sets the final path of the best checkpoint. Trainer would name the temporary folder."""
        if self.state.best_global_step:
            best = os.path.join(run, f"{PREFIX_CHECKPOINT_DIR}-{self.state.best_global_step}")
            if best == final or exists(best):
                self.state.best_model_checkpoint = best

    def _prune(self, run: str) -> None:
        """Removes the oldest checkpoints beyond the limit, but neither the newest nor the best."""
        limit = self.args.save_total_limit
        if limit is None or limit <= 0:
            return
        checkpoints = sort_checkpoints(run, use_mtime=True)  # oldest first
        protected = {checkpoints[-1]}
        if self.state.best_model_checkpoint is not None:
            protected.add(str(Path(self.state.best_model_checkpoint)))
        num_surplus = len(checkpoints) - max(limit, len(protected))
        candidates = [Path(path) for path in checkpoints if path not in protected]
        remove_all(candidates[: max(num_surplus, 0)])


def _check_existing(path: Path) -> None:
    """Compares the checksums of a checkpoint. If there is no folder, Trainer raises the error."""
    put_back(path)
    if path.is_dir():
        check(path)


def _last_whole(run: str) -> str | bool:
    """Returns the undamaged checkpoint with the highest step; True if there is no checkpoint.

    Raises:
        CorruptFileError: If all checkpoints are damaged.
        UnsupportedError: If the version of a ``tenfold_checksums.json`` is not supported.
    """
    if not os.path.isdir(run):
        return True
    put_back_all(Path(run), f"{PREFIX_CHECKPOINT_DIR}-*")
    damaged: list[str] = []
    paths: list[str] = sort_checkpoints(run)
    for path in reversed(paths):
        try:
            if not check(Path(path)) and not exists(os.path.join(path, TRAINER_STATE_NAME)):
                raise CorruptFileError(f"{path}: expected {TRAINER_STATE_NAME}, found no such file")
        except CorruptFileError as error:
            damaged.append(str(error))
            continue
        for problem in damaged:
            warnings.warn(f"{problem}; training resumes from {path}", stacklevel=2)
        return path
    if damaged:
        raise CorruptFileError("all checkpoints are damaged: " + "; ".join(damaged))
    return True  # Trainer raises the error that there is no checkpoint
