"""`memmap_`, `memmap`, `memmap_like` and `save`: what their arguments mean."""

from __future__ import annotations

import os
import warnings

from tenfold.tensordict._files import archive as archives
from tenfold.tensordict._files import folder as folders
from tenfold.tensordict._protocol import Primitives

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    PathLike = str | os.PathLike[str]

_noted_share_non_tensor = False


class MemmapWriters(Primitives):
    """`memmap_`, `memmap`, `memmap_like`, `save`, `dumps`."""

    __slots__ = ()

    def memmap_(
        self,
        prefix: PathLike | None = None,
        copy_existing: bool = False,
        *,
        num_threads: int = 0,
        return_early: bool = False,
        share_non_tensor: bool = False,
        existsok: bool = True,
        robust_key: bool | None = True,
        atomic: bool | None = None,
        durable: bool = False,
    ) -> Any:
        """Writes every tensor to a file and maps it: this TensorDict is then the files.

        It is locked afterwards, and its device is the CPU. The files are those that tensordict
        writes; it opens them, too.

        Args:
            prefix: The folder. None: where the tree was saved before, else memory without a name
                that processes share.
            copy_existing: Copy tensors that are mapped from other files; otherwise they are an
                error, so that nobody copies a large file by accident.
            num_threads: That write; 0: ``TENFOLD_NUM_THREADS``, or up to 8.
            return_early: With `num_threads` above 1: return a future at once, whose ``result()``
                is what this would have returned, or raises what it would have raised.
            share_non_tensor: Accepted and ignored.
            existsok: If false, a tensor's file that exists is an error.
            robust_key: False: keys are file names as they stand, as tensordict before 0.14 had it.
            atomic: None: a new or empty folder appears whole by one rename, one that exists is
                replaced whole, unless tensors are mapped from it already: then only new tensors
                and metadata are written, each by one rename. True: it is replaced whole in any
                case. False: its files are written over where they are, and none is removed.
            durable: Return only when all is on the device.

        Returns:
            TensorDict: This one.

        Raises:
            RuntimeError: If a tensor is mapped from another file and `copy_existing` is false; if
                a file exists and `existsok` is false; if the folder holds entries that no metadata
                names and `atomic` is not False; if it leads through a symlink.
            UnsupportedError: If a value is not JSON, or a tensor is not dense; it names the key.
            OSError: If the system failed. With `atomic` None or True the old tree is untouched.

        Example:
            >>> td = TensorDict({"a": torch.zeros(3), "b": {"c": torch.ones(3)}}, [3])
            >>> td.memmap_("saved")["b", "c"].filename
            '/data/saved/b/c.memmap'
        """
        return self._write(
            prefix,
            copy_existing,
            (num_threads, return_early, share_non_tensor, robust_key, atomic, durable),
            existsok=existsok,
            in_place=True,
        )

    def memmap(
        self,
        prefix: PathLike | None = None,
        copy_existing: bool = False,
        *,
        num_threads: int = 0,
        return_early: bool = False,
        share_non_tensor: bool = False,
        existsok: bool = True,
        robust_key: bool | None = True,
        archive: bool | None = None,
        compression: str | None = None,
        atomic: bool | None = None,
        durable: bool = False,
    ) -> Any:
        """As `memmap_`, but this TensorDict stays as it is, and a new one is the files.

        Tensors that are mapped from their place in `prefix` already are the same objects in both.

        Args:
            prefix: As for `memmap_`, and so are the others.
            copy_existing: As for `memmap_`.
            num_threads: As for `memmap_`.
            return_early: As for `memmap_`.
            share_non_tensor: Accepted and ignored.
            existsok: As for `memmap_`.
            robust_key: As for `memmap_`.
            archive: One file, a ``.tdz``, instead of a folder. None: if `prefix` ends so.
            compression: Of an archive: None or ``"deflate"``.
            atomic: As for `memmap_`.
            durable: As for `memmap_`.

        Returns:
            TensorDict: The files, locked; of an archive as `load_memmap` opens it.

        Raises:
            ValueError: If `compression` is asked for without an archive.

        Example:
            >>> files = td.memmap("saved")
            >>> files["a"][0] = 5
            >>> TensorDict.load_memmap("saved")["a"]
            MemoryMappedTensor([5., 0., 0.])
        """
        return self._write(
            prefix,
            copy_existing,
            (num_threads, return_early, share_non_tensor, robust_key, atomic, durable),
            existsok=existsok,
            as_archive=archives.is_wanted(prefix, archive, compression),
            compression=compression,
        )

    def memmap_like(
        self,
        prefix: PathLike | None = None,
        copy_existing: bool = False,
        *,
        existsok: bool = True,
        num_threads: int = 0,
        return_early: bool = False,
        share_non_tensor: bool = False,
        robust_key: bool | None = True,
        archive: bool | None = None,
        atomic: bool | None = None,
        durable: bool = False,
    ) -> Any:
        """Files of zeros for tensors of the same shapes and dtypes, to be written into.

        No tensor is read, and new files take no space on the disk before they are written into, so
        that data sets far larger than memory can be prepared from one expanded example. Values that
        are no tensors are copied.

        Args:
            prefix: As for `memmap`, and so are the others. None: memory that processes share.
            copy_existing: Ignored: nothing is copied.
            existsok: As for `memmap`.
            num_threads: As for `memmap`.
            return_early: As for `memmap`.
            share_non_tensor: Accepted and ignored.
            robust_key: As for `memmap`.
            archive: As for `memmap`.
            atomic: As for `memmap`.
            durable: As for `memmap`.

        Returns:
            TensorDict: The files, locked.

        Example:
            >>> datum = TensorDict({"image": torch.zeros(3, 64, 64, dtype=torch.uint8)})
            >>> data = datum.expand(1_000_000).memmap_like("images")
            >>> data["image"].shape
            torch.Size([1000000, 3, 64, 64])
        """
        return self._write(
            prefix,
            True,
            (num_threads, return_early, share_non_tensor, robust_key, atomic, durable),
            existsok=existsok,
            zeros=True,
            as_archive=archives.is_wanted(prefix, archive, None),
        )

    def save(
        self,
        prefix: PathLike,
        copy_existing: bool = False,
        *,
        num_threads: int = 0,
        return_early: bool = False,
        share_non_tensor: bool = False,
        robust_key: bool | None = True,
        archive: bool | None = None,
        compression: str | None = None,
        atomic: bool | None = None,
        durable: bool = True,
        **options: Any,
    ) -> Any:
        """Saves the tree as a whole, by `tenfold.save`: durable, with checksums, in any format.

        Where tensors of it are mapped from `prefix` already, it is `memmap` with ``durable=True``.

        Args:
            prefix: The folder, or a file: its suffix, or ``format=``, tells the format.
            copy_existing: As for `memmap`, and so are the others.
            num_threads: As for `memmap`.
            return_early: As for `memmap`.
            share_non_tensor: Accepted and ignored.
            robust_key: As for `memmap`.
            archive: As for `memmap`.
            compression: As for `memmap`.
            atomic: As for `memmap`; False writes over the files that are there, as `memmap` does.
            durable: Return only when all is on the device.
            **options: Of `tenfold.save`: `format`, `checksums`, `overwrite`, `progress`.

        Returns:
            TensorDict: What was saved, as it is on disk, locked. Writing into it does not reach the
            files, whose checksums would no longer hold: `memmap` gives one that writes through.

        Raises:
            RuntimeError, UnsupportedError, OSError: As `memmap_` and `tenfold.save`.

        Example:
            >>> td.save("run/ckpt").saved_path
            PosixPath('/data/run/ckpt')
        """
        from tenfold.tensordict._files import save as _memmap_save

        if archives.is_wanted(prefix, archive, compression):
            options.setdefault("format", archives.FORMAT)
            level = archives.deflate_level(compression)
            if level > 0 and set(options) != {"format"}:
                raise ValueError(f"options: expected none with a compression, found {options}")
            if level > 0:
                return archives.save_deflated(
                    self, prefix, level, durable=durable, num_threads=num_threads
                )
        _note_share_non_tensor(share_non_tensor)
        return _early_or_now(
            lambda: _memmap_save.save(
                self,
                prefix,
                copy_existing=copy_existing,
                num_threads=num_threads,
                robust_key=robust_key,
                atomic=atomic,
                durable=durable,
                options=options,
            ),
            return_early and num_threads > 1,
        )

    dumps = save

    def _write(
        self,
        prefix: PathLike | None,
        copy_existing: bool,
        common: tuple[Any, ...],
        *,
        existsok: bool,
        zeros: bool = False,
        in_place: bool = False,
        as_archive: bool = False,
        compression: str | None = None,
    ) -> Any:
        from tenfold.tensordict._files import write

        num_threads, return_early, share_non_tensor, robust_key, atomic, durable = common
        _note_share_non_tensor(share_non_tensor)
        options = write.Options(
            copy_existing, num_threads, existsok, robust_key, atomic, durable, zeros, in_place
        )
        path = folders.prefix_of(self) if prefix is None and not zeros else prefix

        def run() -> Any:
            if as_archive:
                return archives.write(self, prefix, options, compression)
            if path is None:
                return write.write_anonymous(self, options)
            return write.write(self, os.fsdecode(path), options)

        return _early_or_now(run, return_early and num_threads > 1)


def _note_share_non_tensor(share_non_tensor: bool) -> None:
    global _noted_share_non_tensor
    if share_non_tensor and not _noted_share_non_tensor:
        _noted_share_non_tensor = True
        warnings.warn(
            "share_non_tensor is ignored: values that are no tensors are in the files, and other "
            "processes see changes of them after memmap_refresh_()",
            stacklevel=4,
        )


def _early_or_now(run: Callable[[], Any], early: bool) -> Any:
    """`run()`, or a future whose ``result()`` it is."""
    if not early:
        return run()
    from concurrent.futures import ThreadPoolExecutor

    executor = ThreadPoolExecutor(1, thread_name_prefix="tenfold-memmap")
    try:
        return executor.submit(run)
    finally:
        executor.shutdown(wait=False)
