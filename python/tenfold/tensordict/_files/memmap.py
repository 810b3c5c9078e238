"""Memory-mapped files of a TensorDict, with the names that tensordict gave to them."""

from __future__ import annotations

import os
import warnings

from tenfold import _core, _pickle
from tenfold._interop.frameworks import checked, using
from tenfold.tensordict._files import archive as archives
from tenfold.tensordict._files import folder as folders
from tenfold.tensordict._files import grow, write
from tenfold.tensordict._files import load as loading
from tenfold.tensordict._protocol import Primitives

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from tenfold._interop.frameworks import Framework

    PathLike = str | os.PathLike[str]


class MemmapReaders(Primitives):
    """`load_memmap`, `load`, `load_memmap_`, `memmap_refresh_`, `make_memmap*`."""

    __slots__ = ()

    @classmethod
    def load_memmap(
        cls,
        prefix: PathLike,
        device: Any = None,
        non_blocking: bool = False,
        *,
        out: Any = None,
        robust_key: bool | None = True,
        subpath: str | tuple[str, ...] | None = None,
        mode: str | None = None,
        num_threads: int = 0,
        allow_pickle: bool | None = None,
        framework: Framework = None,
    ) -> Any:
        """The tree in a folder that tenfold or tensordict wrote, over its files.

        Tensors are mapped when they are asked for, and their files' sizes checked.

        Args:
            prefix: The folder.
            device: Where tensors are copied to; ``"meta"``: tensors without bytes, no file is
                opened. None: they stay over the files.
            non_blocking: As for `Tensor.to`.
            out: A TensorDict that gets the entries instead; it loses those that are not saved.
            robust_key: Accepted; both kinds of names are read.
            subpath: Only the node of this path: keys joined with "/", or a tuple of them.
            mode: None: writing into a tensor writes into its file, if that may be written.
                ``"r"``, ``"c"``: it changes the tensor in memory only. ``"r+"``: it writes, or is
                an error.
            num_threads: Ignored: mapping takes no time.
            allow_pickle: None or False; nothing is ever unpickled.
            framework: ``"torch"`` or ``"numpy"``: whose tensors they are, as of `tenfold.load`.

        Returns:
            TensorDict: Unlocked. `memmap_` without arguments locks it and makes it `is_memmap`.

        Raises:
            FileNotFoundError: If there is nothing at `prefix`.
            CorruptFileError: If a file is damaged or too short.
            ValueError: If `prefix` is a file, `subpath` names no node, or `mode` is another one.
            UnsupportedError: If `allow_pickle` is true.

        Example:
            >>> TensorDict.load_memmap("saved", mode="r")["b", "c"]
            MemoryMappedTensor([1., 1., 1.])
        """
        loading.check_pickle(allow_pickle)
        with using(checked(framework)):
            return loading.load(prefix, device, non_blocking, out, subpath, mode)

    @classmethod
    def load(cls, prefix: PathLike, *arguments: Any, **options: Any) -> Any:
        """`load_memmap`."""
        return cls.load_memmap(prefix, *arguments, **options)

    def load_memmap_(
        self,
        prefix: PathLike,
        robust_key: bool | None = True,
        *,
        allow_pickle: bool | None = None,
        mode: str | None = None,
    ) -> Any:
        """Makes this TensorDict what a folder holds: as `load_memmap`, in place.

        Nodes that are on both sides stay the same objects. What was `is_memmap` before is so again,
        unless `mode` says that nothing is written through.

        Raises:
            RuntimeError: If it is locked, and not because it is mapped.
            FileNotFoundError, CorruptFileError: As `load_memmap`.
        """
        loading.check_pickle(allow_pickle)
        return loading.load_into(self, prefix, mode)

    def memmap_refresh_(self, *, allow_pickle: bool | None = None) -> Any:
        """Reads the folder again: entries that another process added, replaced or removed.

        Raises:
            RuntimeError: If this is not the result of `memmap*` with a folder.
        """
        path = folders.prefix_of(self)
        if path is None or not folders.is_marked(self):
            raise RuntimeError(
                "Cannot refresh a TensorDict that is not memory mapped: expected the result of "
                "memmap, memmap_ or memmap_like with a folder"
            )
        return self.load_memmap_(path, allow_pickle=allow_pickle)

    # --- growing ---------------------------------------------------------------------------------

    def make_memmap(
        self, key: Any, shape: Any, *, dtype: Any = None, robust_key: bool | None = True
    ) -> Any:
        """Adds a tensor of zeros with a file of its own to a memory-mapped tree, locked or not.

        Other processes see it after `memmap_refresh_`.

        Args:
            key: Its key, or a path of keys; nodes on the way are made.
            shape: Its shape; an int64 tensor ``[n, k]`` of sizes makes a nested tensor.
            dtype: None: torch's default.
            robust_key: As for `memmap`.

        Returns:
            MemoryMappedTensor: The entry.

        Raises:
            RuntimeError: If the tree is not memory-mapped, or has an entry of that key.

        Example:
            >>> files.make_memmap(("b", "d"), (3, 2), dtype=torch.int64).sum()
            tensor(0)
        """
        return grow.make_from_shape(self, key, shape, dtype, robust_key)

    def make_memmap_from_tensor(
        self,
        key: Any,
        tensor: Any,
        *,
        copy_data: bool = True,
        existsok: bool = True,
        robust_key: bool | None = True,
    ) -> Any:
        """As `make_memmap`, with the shape, dtype and values of a tensor.

        Args:
            key: As for `make_memmap`.
            tensor: What is copied.
            copy_data: False: only its shape and dtype are taken.
            existsok: Take a file that exists but that no entry names.
            robust_key: As for `memmap`.

        Returns:
            MemoryMappedTensor: The entry.

        Raises:
            RuntimeError: As `make_memmap`; if the file exists and `existsok` is false.
        """
        return grow.make_from_tensor(self, key, tensor, copy_data, existsok, robust_key)

    def make_memmap_from_storage(
        self, key: Any, storage: Any, shape: Any, *, dtype: Any = None, robust_key: Any = True
    ) -> Any:
        """As `make_memmap`, over a storage that torch mapped from the entry's own file.

        Args:
            key: As for `make_memmap`.
            storage: As `torch.UntypedStorage.from_file` gives it.
            shape: As for `make_memmap`.
            dtype: None: torch's default.
            robust_key: As for `memmap`.

        Returns:
            MemoryMappedTensor: The entry.

        Raises:
            RuntimeError: As `make_memmap`; if the storage is mapped from another file, or from
                none.
        """
        return grow.make_from_storage(self, key, storage, shape, dtype, robust_key)


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
            lambda: write.save(
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


class MemmapMethods(MemmapWriters, MemmapReaders):
    """`memmap_`, `memmap`, `memmap_like`, `save`, `load_memmap`, `make_memmap` and their relatives.

    The results of `memmap*` and `load_memmap` hold MemoryMappedTensors: writing into them writes
    into the files, from every process that has them open. `tenfold.open` and `tenfold.load` give
    plain tensors, which never change a file.
    """

    __slots__ = ()

    def is_memmap(self) -> bool:
        """True for the results of `memmap*`, as long as they are locked, and for their parts.

        True, too, for a node that `tenfold.open` gave, as long as nothing was set or deleted.
        """
        if folders.is_stack(self):
            members = list(folders.held(self).values())
            return bool(members) and all(folders.node_of(one).is_memmap() for one in members)
        if folders.is_marked(self):
            return True
        disk = folders.disk_of(self)
        if disk is None or isinstance(disk.opened, folders.MemmapFolder):
            return False
        return not disk.opened.changed

    @property
    def saved_path(self) -> Path | None:
        """The file, or the node's own folder, that this was written to or opened from.

        None for memory without a name, which processes share.

        Raises:
            AttributeError: If it is not `is_memmap`.
        """
        from pathlib import Path

        if not self.is_memmap():
            raise AttributeError("this TensorDict is in memory: it has no saved path")
        disk = folders.disk_of(self)
        if disk is None:
            return None
        path = disk.opened.path
        return Path(disk.node.where() if os.path.isdir(path) else path)

    def flush(self) -> None:
        """Waits until what was written into mapped files is on the device.

        Raises:
            ValueError: If nothing is written through: the tree is in memory or opened "r" or "c".
        """
        disk = folders.disk_of(self)
        mode = "r" if disk is None else disk.mode
        if mode != "r+" and not folders.is_marked(self):
            raise ValueError(
                f'flush: nothing is written through: expected mode "r+", found "{mode}"'
            )
        if disk is not None:
            disk.node.flush()
        for node in folders.nodes_of(self):
            _flush_own(node)

    def __reduce_ex__(self, protocol: Any) -> Any:
        disk = folders.disk_of(self)
        marked = folders.is_marked(self)
        opened = None if disk is None else disk.opened
        if disk is None or not isinstance(opened, folders.MemmapFolder) or opened.changed:
            reduced = self.__reduce__()
            return (_pickle.marked_memmap, reduced[:2]) if marked else reduced
        # The path, not the data.
        return _pickle.memmap_tree, (
            opened.path,
            opened.mode,
            marked,
            opened.identity,
            disk.keys_above,
            opened.framework,
        )

    def _is_written(self, key: str, entry: Any) -> bool:
        """True for a value of a mapped tree, which has been written to its folder by then."""
        if not getattr(entry, "_is_non_tensor", False) or not folders.is_marked(self):
            return False
        return grow.write_value(self, key, entry)

    def _as_view(self, made: Any, index: Any = ...) -> Any:
        """`made`, a view of this TensorDict: `is_memmap`, if this is and `index` allows it."""
        if self._locked and made is not self and folders.is_marked(self):
            parts = index if type(index) is tuple else (index,)
            if all(_begins_at_zero(part) for part in parts):
                made._locked = folders.MAPPED
        return made


def _begins_at_zero(part: Any) -> bool:
    """Which views of mapped trees tensordict calls mapped, too."""
    if isinstance(part, slice):
        return part.start is None or part.start == 0
    return part is None or part is Ellipsis or (isinstance(part, int) and part is not True)


def _flush_own(node: Any) -> None:
    """Tensors that were mapped by themselves, not by the engine's node."""
    mapped = folders.mapped_class_if_imported()
    for value in folders.held(node).values():
        if type(value) is mapped and value._file is not None and value._file.path is not None:
            _core.sync_tensor(value, str(value._file.path))
