"""Lightning: saves checkpoints of a `Trainer` atomically, with checksums, optionally in a thread.

>>> from tenfold.lightning import CheckpointIO
>>> trainer = lightning.Trainer(plugins=[CheckpointIO(async_save=True)])
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tenfold import _core
from tenfold._errors import UnsupportedError, with_remedy
from tenfold._interop.arrays import import_torch
from tenfold._io.files import load
from tenfold._options import boolean, text
from tenfold._staging import remove
from tenfold.tensordict._files.any_format import save_node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from typing import Any

try:
    from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO as _Interface
except ImportError:
    try:
        from lightning_fabric.plugins.io.checkpoint_io import CheckpointIO as _Interface
    except ImportError as error:
        raise ImportError(
            'tenfold.lightning needs Lightning: pip install "tenfold[lightning]"'
        ) from error

__all__ = ["CheckpointIO"]


class CheckpointIO(_Interface):  # type: ignore[misc]
    """Saves and loads the checkpoints of a Lightning `Trainer`: ``Trainer(plugins=[...])``.

    A crash leaves the complete previous checkpoint or the complete new one. Loading compares
    all stored checksums first and runs no pickle.

    Args:
        format: ``"pt"``, ``"memmap"``, ``"safetensors"`` or another format that `tenfold.save`
            writes. None: the suffix of the path selects it, as for `tenfold.save`; ``.ckpt``
            selects ``"pt"``, which Lightning reads without this plugin as well.
        async_save: Copy the tensors, and write the copies in a thread. If there is not enough
            memory for copies, `save_checkpoint` returns only after the save has ended. At most one
            save runs at a time: `save_checkpoint` first waits for the previous save. Removals run
            after the saves that were requested before them. If a save or removal fails, the saves
            and removals in the queue are skipped, and a later save or load, or the end of the
            training, raises the error. Paths such as ``ModelCheckpoint.best_model_path`` exist only
            once their saves have ended. `load_checkpoint` waits for all queued saves.

    Raises:
        ValueError: If `format` is not the name of a format.
        UnsupportedError: If tenfold cannot write `format`.
        TypeError: If `format` is not a str or None, or `async_save` is not a bool.

    Example:
        >>> plugin = tenfold.lightning.CheckpointIO(async_save=True)
        >>> trainer = lightning.Trainer(plugins=[plugin], max_epochs=3)
        >>> trainer.fit(model, loader, ckpt_path="last")
    """

    def __init__(self, format: str | None = None, async_save: bool = False) -> None:
        super().__init__()
        if format is not None:
            if not text("CheckpointIO: format", format):
                raise ValueError('CheckpointIO: format: expected the name of a format, found ""')
            _core.format_to_save("checkpoint", format)
        self._format = format
        self._async = boolean("CheckpointIO: async_save", async_save)
        self._forget()
        # A Trainer of the package pytorch_lightning requires the interface of lightning_fabric.
        other = sys.modules.get("lightning_fabric.plugins.io.checkpoint_io")
        if other is not None and not isinstance(self, other.CheckpointIO):
            other.CheckpointIO.register(type(self))

    def _forget(self) -> None:
        self._pool: Any = None
        self._executor: ThreadPoolExecutor | None = None
        self._saving: Future[None] | None = None
        self._failure: BaseException | None = None

    def __repr__(self) -> str:
        return f"CheckpointIO(format={self._format!r}, async_save={self._async})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles only the options, not running saves, for launchers that spawn processes."""
        return type(self), (self._format, self._async)

    def save_checkpoint(
        self,
        checkpoint: dict[str, Any],
        path: str | os.PathLike[str],
        storage_options: Any = None,
    ) -> None:
        """Saves a checkpoint. Replaces an existing checkpoint at `path` atomically.

        Args:
            checkpoint: Lightning's checkpoint: nested containers of tensors and plain values.
            path: A local path. Missing parent folders are created.
            storage_options: Must be None.

        Raises:
            TypeError: If `storage_options` are given.
            UnsupportedError: If `path` is a URL, or an entry cannot be stored; the message names
                the key of the entry. `path` is unchanged.
            OSError: If a system call failed, or if a file would replace a folder or a folder a
                file. The previous version at `path` is unchanged, unless the last fsync failed.
            Exception: With `async_save`, the exception of a previous save or removal. A later call
                raises the OSError of this save, unless this call waits for the save because there
                is not enough memory for copies.
        """
        if storage_options is not None:
            raise TypeError("CheckpointIO: storage_options: expected None, as files are local")
        target = _local(path)
        tree = self._tree(checkpoint, target)
        # Create the parent folder now: Lightning may create a link to the checkpoint
        # before the save has ended.
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        if not self._async:
            _save(tree, target, self._format)
            return
        self._wait_for_save()
        copy = self._copied(tree)
        self._saving = self._submit(_save, tree if copy is None else copy, target, self._format)
        if copy is None:  # not enough memory for a copy: save before returning
            self._wait_for_save()

    def load_checkpoint(
        self,
        path: str | os.PathLike[str],
        map_location: Any = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Compares the checksums of a checkpoint, and loads it as `tenfold.load` does.

        Args:
            path: A checkpoint in any format that tenfold reads, including Lightning's own.
            map_location: A device or its name. Or, as for `torch.load`: a dict, whose value for
                ``"cpu"`` is used; or a callable, which is called with ``(storage, "cpu")``.
            weights_only: Ignored; Lightning passes it. Pickles are never run.

        Returns:
            The checkpoint: nested containers of tensors and plain values.

        Raises:
            FileNotFoundError: If there is nothing at `path`.
            CorruptFileError: If a checksum does not match, or the file violates its format.
            UnsupportedError: If `path` is a URL, or the checkpoint has an unknown format or
                contains objects that only running code could create; the message names them.
            Exception: With `async_save`, the exception of a previous save or removal.
        """
        self._drain()
        found: dict[str, Any] = load(_local(path), verify=True, map_location=_device(map_location))
        return found

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Removes a checkpoint; with `async_save`, after the saves that were requested before.

        Args:
            path: A file or folder. If there is none, nothing happens.

        Raises:
            UnsupportedError: If `path` is a URL.
            OSError: If a system call failed. With `async_save`, a later call raises it.
        """
        target = Path(_local(path))
        if self._async:
            self._submit(remove, target)
        else:
            remove(target)

    def teardown(self) -> None:
        """Waits for saves and removals. The plugin can be used again afterwards.

        Raises:
            Exception: The first exception of a save or removal, if `async_save` is set.
        """
        try:
            self._drain()
        finally:
            self._pool = None

    # --- the queue of saves and removals ---

    def _tree(self, checkpoint: dict[str, Any], target: str) -> Any:
        try:
            return _core.tree(checkpoint, target)
        except UnsupportedError as error:
            if (error.part or "").startswith('key "hyper_parameters.'):
                hint = "self.save_hyperparameters(ignore=[...]) omits it"
                raise with_remedy(error, hint) from None
            raise

    def _copied(self, tree: Any) -> Any:
        if self._pool is None:
            self._pool = _core.StagingPool()
        try:
            return self._pool.copy(tree)
        except MemoryError:
            return None

    def _submit(self, work: Callable[..., None], *arguments: Any) -> Future[None]:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="tenfold-lightning")
        return self._executor.submit(self._run, work, arguments)

    def _run(self, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if self._failure is not None:
            return  # removing after a failed save would remove the last good checkpoint
        try:
            work(*arguments)
        except BaseException as error:
            self._failure = error

    def _wait_for_save(self) -> None:
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.result()
        if self._failure is not None:
            self._drain()

    def _drain(self) -> None:
        executor, self._executor, self._saving = self._executor, None, None
        if executor is not None:
            executor.shutdown(wait=True)
        # Here the queue is empty: `_run` has skipped the work that was queued after the failure.
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def _save(tree: Any, target: str, format: str | None) -> None:
    save_node(
        tree,
        target,
        format=format,
        durable=True,
        checksums=True,
        num_threads=None,
        overwrite=True,
        progress=False,
    )


def _local(path: str | os.PathLike[str]) -> str:
    target = os.fspath(path)
    if "://" in target:
        raise UnsupportedError(f"{target}: expected a local path, found a URL")
    return target


def _device(map_location: Any) -> Any:
    """The device that `map_location` selects for tensors on the CPU."""
    if isinstance(map_location, dict):
        return map_location.get("cpu")
    if callable(map_location):
        torch = import_torch()
        storage: Any = map_location(torch.UntypedStorage(0), "cpu")
        return None if storage is None else storage.device
    return map_location
