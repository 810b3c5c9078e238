"""`load_memmap`, `memmap_refresh_`, `make_memmap`... : what their arguments mean."""

from __future__ import annotations

import os

from tenfold.tensordict._files import folder as folders
from tenfold.tensordict._protocol import Primitives

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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
        from tenfold.tensordict._files import load as _memmap_load

        _memmap_load.check_pickle(allow_pickle)
        return _memmap_load.load(prefix, device, non_blocking, out, subpath, mode)

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
        from tenfold.tensordict._files import load as _memmap_load

        _memmap_load.check_pickle(allow_pickle)
        return _memmap_load.load_into(self, prefix, mode)

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
        from tenfold.tensordict._files import grow

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
        from tenfold.tensordict._files import grow

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
        from tenfold.tensordict._files import grow

        return grow.make_from_storage(self, key, storage, shape, dtype, robust_key)
