"""Batches on a device: copied while the batch before is worked on."""

from __future__ import annotations

import warnings
import weakref

from tenfold._errors import UnsupportedError
from tenfold._interop.arrays import torch_or_none
from tenfold.dataset._ragged import Offsets, is_jagged, jagged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


def checked_device(device: Any) -> Any:
    """The torch device that `device` names.

    Raises:
        UnsupportedError: If this torch cannot use it here, or there is no torch.
        ValueError: If it names none.
    """
    torch = torch_or_none()
    if torch is None:
        raise UnsupportedError(
            f"batch loader: device: expected torch to be installed, found none for {device!r}"
        )
    try:
        made = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"batch loader: device: expected one of torch, found {error}") from None
    if made.type == "cuda" and not torch.cuda.is_available():
        raise UnsupportedError(
            f'batch loader: device: expected one that is here, found "{made}" and '
            "torch.cuda.is_available() false; leave device out, or install a torch with CUDA"
        )
    return made


def may_pin() -> bool:
    """Whether memory can be pinned here; a warning if not, as torch's ``DataLoader`` gives it."""
    torch = torch_or_none()
    if torch is not None and torch.cuda.is_available():
        return True
    warnings.warn(
        "batch loader: pin_memory: expected a CUDA device, found none; batches are not pinned",
        stacklevel=3,
    )
    return False


def pinned_block(size_bytes: int) -> Any:
    """So much pinned memory, as a uint8 tensor."""
    torch = torch_or_none()
    return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)


def is_pinned(tensor: Any) -> bool:
    """Whether the memory of a torch tensor is pinned."""
    return bool(tensor.is_pinned())


def pinned(batch: Any) -> Any:
    """The batch with those of its tensors copied into pinned memory that are not there."""
    return _with_tensors(batch, lambda tensor: tensor if is_pinned(tensor) else tensor.pin_memory())


class PinnedMemory:
    """Pinned blocks that the engine makes batches in, without a copy.

    torch lends them, and lends a block again when its last tensor is gone and every copy from it
    has ended that torch was asked for: it knows them by the storage of the tensor. So each block is
    used for one batch, and the tensors of batches are made anew over its storage.

    Args:
        native: The engine's loader, of the option ``use_supplied_memory``.
    """

    def __init__(self, native: Any) -> None:
        self._native = native
        # By address. The engine holds those that wait, then the batch's tensors do.
        self._blocks: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def bound(self, batch: Any) -> Any:
        """The batch, its tensors over the storages of their blocks; supplies blocks for others.

        Tensors that the engine found no block for stay as they are.
        """
        made = _with_tensors(batch, self._bound) if self._blocks else batch
        for size_bytes in self._native.sizes_taken():
            block = pinned_block(1 << max(size_bytes - 1, 4095).bit_length())
            self._blocks[block.data_ptr()] = block
            self._native.supply(block.data_ptr(), block.nbytes, block)
        return made

    def _bound(self, tensor: Any) -> Any:
        torch = torch_or_none()
        if is_jagged(tensor):
            return jagged(self._bound(tensor.values()), self._bound(tensor.offsets()))
        address = tensor.data_ptr()
        for begin, block in self._blocks.items():
            if begin <= address < begin + block.nbytes:
                return torch.empty(0, dtype=tensor.dtype).set_(
                    block.untyped_storage(),
                    (address - begin) // tensor.itemsize,
                    tensor.shape,
                    tensor.stride(),
                )
        return tensor


class Standing:
    """How far `DeviceBatches` have come.

    Attributes:
        state: What `state_of` gave when the batch was taken that was handed out last.
        is_at_end: All batches were handed out.
    """

    def __init__(self, state_of: Callable[[], Any]) -> None:
        self.state_of = state_of
        self.state = state_of()
        self.is_at_end = False


class DeviceBatches:
    """Batches on `device`, one of them copied ahead.

    On CUDA devices the copies go through a stream of their own, beside what the caller's stream
    computes. From pinned memory the processor does not wait for them either; torch keeps that
    memory until they have ended.
    """

    def __init__(self, batches: Iterator[Any], device: Any, standing: Standing) -> None:
        self._batches = batches
        self._device = device
        self._cuda = streams_of(device)
        self._stream = None if self._cuda is None else self._cuda.Stream(device)
        self._standing = standing
        self._ahead: tuple[Any, Any] | None = None
        self._failure: BaseException | None = None
        self._began = False

    def __iter__(self) -> DeviceBatches:
        return self

    def __next__(self) -> Any:
        if not self._began:
            self._began = True
            self._take()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._ahead is None:
            self._standing.is_at_end = True
            raise StopIteration
        batch, copied = self._ahead
        self._standing.state = self._standing.state_of()
        self._take()
        if self._cuda is not None:
            current = self._cuda.current_stream(self._device)
            current.wait_event(copied)
            # Its memory is not used again before what the caller's stream does with it.
            _with_tensors(batch, lambda tensor: tensor.record_stream(current))
        return batch

    def _take(self) -> None:
        self._ahead = None
        try:
            batch = next(self._batches)
        except StopIteration:
            return
        except Exception as error:
            # It belongs to the call that asks for that batch.
            self._failure = error
            return
        if self._cuda is None:
            self._ahead = moved(batch, self._device), None
            return
        with self._cuda.stream(self._stream):
            copy = moved(batch, self._device)
            copied = self._cuda.Event()
            copied.record(self._stream)
        self._ahead = copy, copied


def streams_of(device: Any) -> Any:
    """``torch.cuda`` for its devices, None for those whose copies are waited for."""
    torch = torch_or_none()
    return torch.cuda if device.type == "cuda" else None


def moved(batch: Any, device: Any) -> Any:
    """The batch with its tensors on `device`."""
    if hasattr(batch, "batch_size"):
        return batch.to(device, non_blocking=True)  # a TensorDict
    return _with_tensors(batch, lambda tensor: tensor.to(device, non_blocking=True))


def _with_tensors(value: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        made = {key: _with_tensors(item, function) for key, item in value.items()}
        return Offsets(made) if isinstance(value, Offsets) else made
    if isinstance(value, tuple):
        items = [_with_tensors(item, function) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [_with_tensors(item, function) for item in value]
    if hasattr(value, "batch_size"):
        return value.apply(function)  # a TensorDict
    return function(value) if hasattr(value, "to") else value
