"""`consolidate` and `from_consolidated`: all tensors in one block of memory, or in one file."""

from __future__ import annotations

import os
import warnings

from tenfold.tensordict._protocol import Primitives

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    PathLike = str | os.PathLike[str]


class ConsolidatedMethods(Primitives):
    """`consolidate`, `from_consolidated`, `is_consolidated`."""

    __slots__ = ()

    def consolidate(
        self,
        filename: PathLike | None = None,
        *,
        num_threads: int | None = 0,
        device: Any = None,
        non_blocking: bool = False,
        inplace: bool = False,
        return_early: bool = False,
        use_buffer: bool = False,
        share_memory: bool = False,
        pin_memory: bool = False,
        metadata: bool = False,
    ) -> Any:
        """Copies all tensors into one block of memory, of which those of the result are views.

        Such a tree is pickled, sent and moved to another device as one block. It is locked:
        unlocking it ends that. A tree that is consolidated already is returned as it is.

        Args:
            filename: A file to have the block in, the same that tensordict writes; it appears whole
                or not at all. Writing into the tensors of the result writes into the file.
            num_threads: That copy; 0: this one.
            device: Of the block, where it is in memory. None: that of the tree, else the CPU.
            non_blocking: As for `Tensor.to`.
            inplace: Put the views into this TensorDict, and return it.
            return_early: With `num_threads` above 1: return a future at once, whose ``result()`` is
                what this would have returned.
            use_buffer: With `filename`: the block is in memory; writing into the result does not
                reach the file.
            share_memory: Have the block in memory that processes share.
            pin_memory: Have it in pinned memory.
            metadata: Accepted; what the tree is, is always kept with the block.

        Returns:
            TensorDict: A new one, unless `inplace`.

        Raises:
            RuntimeError: If `filename` comes with a `device` other than the CPU.
            NotImplementedError: If a tensor is unbatched, or nested other than jagged; if
                `return_early` is asked for with `use_buffer` or `non_blocking`.
            UnsupportedError: If `filename` is given and tensordict could not read the tree back; it
                names the key. Nothing has been written.

        Example:
            >>> td = TensorDict({"a": torch.zeros(3), "b": {"c": torch.ones(3)}}, [3])
            >>> one = td.consolidate("one.bin")
            >>> one["a"].untyped_storage().data_ptr() == one["b", "c"].untyped_storage().data_ptr()
            True
            >>> TensorDict.from_consolidated("one.bin")["b", "c"]
            tensor([1., 1., 1.])
        """
        from tenfold.tensordict._files import consolidating as work

        if self.is_consolidated() and not work.must_pin(
            self, pin_memory, filename, inplace, device, return_early, num_threads
        ):
            return work.again(self, filename, device, share_memory)
        options = work.Options(
            filename=None if filename is None else os.path.abspath(os.fsdecode(filename)),
            num_threads=num_threads or 0,
            device=device,
            non_blocking=non_blocking,
            inplace=inplace,
            return_early=return_early,
            use_buffer=use_buffer,
            share_memory=share_memory,
            pin_memory=pin_memory,
        )
        return work.consolidate(self, options)

    @classmethod
    def from_consolidated(cls, filename: PathLike) -> Any:
        """The tree in a file that `consolidate`, or tensordict's, wrote.

        Its tensors are private views of the file: writing into them changes no file. It is locked
        if the one that was written was.

        Args:
            filename: The file.

        Raises:
            FileNotFoundError: If there is nothing.
            CorruptFileError: If it is damaged, or something else.

        Example:
            >>> _ = TensorDict({"a": torch.zeros(3)}, [3]).consolidate("one.bin")
            >>> TensorDict.from_consolidated("one.bin").is_consolidated()
            True
        """
        from tenfold import _core
        from tenfold.tensordict._dense import TensorDict
        from tenfold.tensordict._opened import Opened

        native, was_locked = _core.open_consolidated(filename)
        opened = Opened(os.fsdecode(filename), "c", "consolidated", keeps_parts=True)
        made: TensorDict = TensorDict._from_native(native, opened)
        if was_locked:
            made.lock_()
        return made

    def is_consolidated(self) -> bool:
        """True if the tensors are views of the one block that `consolidate` made.

        No longer true once it was unlocked, or an entry or value was replaced. Writing into its
        tensors in place changes nothing of that.
        """
        state = getattr(self, "_consolidated", None)
        if state is not None:
            return bool(state.holds(self))
        opened = self._opened
        return opened is not None and opened.format == "consolidated" and not opened.changed


def warn_written_elsewhere(filename: Any, has_file: bool) -> None:
    """As tensordict warns of a file that is not written."""
    reason = (
        "only the file it was consolidated into is rewritten"
        if has_file
        else "it has no file of its own to rewrite"
    )
    warnings.warn(
        f"consolidate(filename={os.fsdecode(filename)!r}) writes nothing: the tensordict is "
        f"already consolidated, and {reason}. Call td.contiguous().consolidate(filename=...) to "
        "write a new file.",
        UserWarning,
        stacklevel=4,
    )
