"""Batches on a device: copied while the batch before is worked on."""

from __future__ import annotations

import warnings

from tenfold._arrays import torch_or_none
from tenfold._errors import UnsupportedError

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


def pinned(batch: Any) -> Any:
    """The batch with its tensors in pinned memory."""
    return _with_tensors(batch, lambda tensor: tensor.pin_memory())


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
        return {key: _with_tensors(item, function) for key, item in value.items()}
    if isinstance(value, tuple):
        items = [_with_tensors(item, function) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [_with_tensors(item, function) for item in value]
    if hasattr(value, "batch_size"):
        return value.apply(function)  # a TensorDict
    return function(value) if hasattr(value, "to") else value
