"""The state of the global random number generators of a program."""

from __future__ import annotations

import hashlib
import random
import sys
import warnings
from collections.abc import Mapping

from tenfold._interop import arrays
from tenfold._interop.arrays import numpy_module
from tenfold._io.snapshot import RNGState
from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@set_module("tenfold")
class RngState(RNGState):
    """The random states of Python, NumPy, torch and each CUDA device, as an entry of a state.

    It is read before all other entries and restored after them, so that a restore continues the
    same random sequence. Libraries that are not imported, and CUDA before its initialization, have
    no state; generators that a program creates itself (``numpy.random.default_rng()``) are not
    saved.

    Example:
        >>> manager.save(500, {"model": model, "rng": tenfold.RngState()})
        <SaveHandle step=500 done>
    """

    def state_dict(self) -> dict[str, Any]:
        """The states: ``{"python": ..., "numpy": ..., "torch": ..., "cuda": [...]}``.

        Returns:
            ``"python"`` is a dict with the words of the generator as int64 ``[625]``, ``"numpy"``
            a dict with its words as int64 ``[624]``. ``"torch"`` and each item of ``"cuda"`` are
            uint8 tensors of one dimension. If numpy uses another generator than MT19937
            (``numpy.random.set_bit_generator``), ``"numpy"`` is the dict of
            ``numpy.random.get_state(legacy=False)``, with arrays as lists.
        """
        version, words, gauss = random.getstate()
        state: dict[str, Any] = {
            "python": {"version": version, "words": _tensor(words), "gauss": gauss}
        }
        numpy = sys.modules.get("numpy")
        if numpy is not None and hasattr(numpy, "random"):
            state["numpy"] = _numpy_state(numpy)
        torch = sys.modules.get("torch")
        if torch is not None:
            state["torch"] = torch.get_rng_state()
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                state["cuda"] = torch.cuda.get_rng_state_all()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Sets every generator of which `state_dict` has the state.

        A library that is not installed, or a CUDA device that is missing, is skipped with a
        warning.

        Args:
            state_dict: The result of `state_dict`, or ``{"rng_state": tensor}`` of an `RNGState`.

        Raises:
            TypeError: If `state_dict` is not a mapping.
            KeyError, TypeError, ValueError, RuntimeError: If a state does not fit its generator.

        Example:
            >>> rng = RngState()
            >>> state = rng.state_dict()
            >>> first = torch.rand(3)
            >>> rng.load_state_dict(state)
            >>> torch.equal(torch.rand(3), first)
            True
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(
                f"RngState: state_dict: expected a dict, found {type(state_dict).__name__}"
            )
        if "rng_state" in state_dict:
            super().load_state_dict(state_dict)
            return
        if "python" in state_dict:
            python = state_dict["python"]
            words = tuple(map(int, _words_of("python", python)))
            random.setstate((python["version"], words, python["gauss"]))
        else:
            _warn("python", "the step has no state of Python, because a C++ program saved it")
        if "numpy" in state_dict:
            set_numpy(state_dict["numpy"])
        if "torch" in state_dict:
            set_torch(state_dict)


def load_derived(target: RNGState, state: dict[str, Any], rank: int) -> None:
    """Seeds the generators of a rank that did not exist when the state was saved.

    Args:
        target: The object to restore. For an `RNGState`, only the generators of torch are seeded.
        state: The state that rank 0 saved.
        rank: Rank of this process. Each such rank gets different random numbers, which are the same
            at each restore of the state.
    """
    digest = hashlib.sha256(b"rank %d" % rank)
    for part in (state.get("python"), state.get("numpy")):
        if part is not None:
            digest.update(repr(part["words"].tolist() if "words" in part else part).encode())
    words = state.get("torch", state.get("rng_state"))
    if words is not None:
        digest.update(bytes(words.tolist()))
    seed = digest.digest()
    torch = arrays.import_torch()
    if torch is not None and words is not None:
        torch.manual_seed(int.from_bytes(seed[:8], "little") >> 1)
    if not isinstance(target, RngState):
        return
    random.seed(seed)
    if "numpy" in state and "numpy" in sys.modules:
        numpy = numpy_module()
        seeds = numpy.frombuffer(seed, dtype="uint32")
        if "words" in state["numpy"]:
            numpy.random.seed(seeds)
        else:  # numpy cannot seed other generators in place
            generator = getattr(numpy.random, state["numpy"]["bit_generator"])
            numpy.random.set_bit_generator(generator(seeds))


def _tensor(words: Any) -> Any:
    torch = arrays.torch_or_none()
    if torch is not None:
        return torch.tensor(list(words), dtype=torch.int64)
    return numpy_module().array(list(words), dtype="int64")


def _words_of(part: str, saved: dict[str, Any]) -> list[Any]:
    words = saved["words"]
    if not hasattr(words, "tolist"):
        raise TypeError(f"RngState: {part}: words: expected a tensor, found {type(words).__name__}")
    found: list[Any] = words.tolist()
    return found


def _numpy_state(numpy: Any) -> dict[str, Any]:
    state: dict[str, Any] = numpy.random.get_state(legacy=False)
    if state["bit_generator"] != "MT19937":
        plain: dict[str, Any] = _plain(state)
        return plain
    return {
        "name": "MT19937",
        "words": _tensor(state["state"]["key"].tolist()),
        "position": int(state["state"]["pos"]),
        "has_gauss": int(state["has_gauss"]),
        "gauss": float(state["gauss"]),
    }


def _plain(value: Any) -> Any:
    """Converts numpy scalars and arrays in nested dicts to ints, floats and lists."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


def set_numpy(saved: dict[str, Any]) -> None:
    """Sets the generator of numpy to the saved state; warns if numpy is not installed."""
    try:
        numpy = numpy_module()
    except ImportError:
        _warn("numpy", "it is not installed")
        return
    if "words" not in saved:
        current = numpy.random.get_state(legacy=False)["bit_generator"]
        if current != saved["bit_generator"]:
            raise ValueError(
                "RngState: numpy: expected the generator that was saved, "
                f"{saved['bit_generator']}, found {current}; call "
                "numpy.random.set_bit_generator before the restore"
            )
        numpy.random.set_state(saved)
        return
    words = numpy.array(_words_of("numpy", saved), dtype="uint32")
    numpy.random.set_state(
        (saved["name"], words, saved["position"], saved["has_gauss"], saved["gauss"])
    )


def set_torch(saved: dict[str, Any]) -> None:
    """Sets torch's generators, those of the CPU and of CUDA devices, to their saved states.

    Warns if torch is not installed, or a device is missing.
    """
    torch = arrays.import_torch()
    if torch is None:
        _warn("torch", "it is not installed")
        return
    torch.set_rng_state(saved["torch"])
    devices = saved.get("cuda", [])
    present = torch.cuda.device_count() if devices and torch.cuda.is_available() else 0
    if len(devices) > present:
        _warn(
            f"cuda from device {present}",
            f"the states of {len(devices)} devices were saved, {present} devices are available",
        )
    for device, state in list(enumerate(devices))[:present]:
        torch.cuda.set_rng_state(state, device)


def _warn(part: str, why: str) -> None:
    warnings.warn(f"RngState: {part}: random numbers are not restored: {why}", stacklevel=2)
