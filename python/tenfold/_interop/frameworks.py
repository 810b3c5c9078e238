"""The framework of returned arrays: torch tensors, or numpy arrays."""

from __future__ import annotations

import functools
import os
import sys

from tenfold import _core
from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Name = Literal["torch", "numpy"]
    Framework = Literal["torch", "pt", "numpy", "np"] | None

_NAMES: dict[str, Name] = {"torch": "torch", "pt": "torch", "numpy": "numpy", "np": "numpy"}
# The number of each framework in the engine's binding (python/src/torch_api.hpp).
_CODES = {None: 0, "torch": 1, "numpy": 2}
_SCOPED: tuple[Name | None, ...] = (None, "torch", "numpy")

_default: Name | None = None


def checked(framework: object, where: str = "framework") -> Name | None:
    """Returns ``"torch"`` for "torch" or "pt", ``"numpy"`` for "numpy" or "np", None for None.

    Raises:
        ValueError: For any other value; the message begins with `where`.
    """
    if framework is None:
        return None
    if isinstance(framework, str) and framework in _NAMES:
        return _NAMES[framework]
    raise ValueError(f'{where}: expected "torch", "numpy" or None, found {framework!r}')


@set_module("tenfold")
def set_framework(framework: Framework) -> None:
    """Sets the framework of the arrays that calls without ``framework=`` return.

    Regardless of this setting, `load` and `load_memmap` with a device other than the CPU, and
    `BatchLoader` with pinned memory or any device, return torch tensors. The entries of a
    `TensorDict` on a device other than the CPU are torch tensors, too. Open handles keep their
    framework. The environment variable ``TENFOLD_FRAMEWORK`` sets the initial framework of a
    process.

    Args:
        framework: ``"torch"`` (``"pt"``), ``"numpy"`` (``"np"``), or None: torch if it is imported,
            else numpy if it is imported, else torch if it is installed, else numpy.

    Raises:
        ValueError: For another value.

    Example:
        >>> tenfold.set_framework("numpy")
        >>> type(tenfold.load("run/ckpt")["w"])
        <class 'numpy.ndarray'>
    """
    global _default
    _default = checked(framework)
    _core.set_default_framework(_CODES[_default])


def decided(framework: object = None, needs_torch: bool = False) -> Name:
    """The framework of a call or a new handle.

    Args:
        framework: The argument of the call.
        needs_torch: Whether the call needs torch, for pinned memory or for a device.

    Raises:
        ValueError: If `framework` is unknown, or is numpy and `needs_torch` is true.
        ImportError: If `framework` is torch, and torch is not installed.
    """
    name = checked(framework)
    if name == "numpy" and needs_torch:
        raise ValueError('framework: expected "torch" for a device or pinned memory, found "numpy"')
    if name == "torch" and not _is_imported("torch") and not _is_torch_installed():
        raise ImportError('framework: expected the package torch for "torch", found none')
    if name is None and not needs_torch:
        name = _SCOPED[_core.framework_scope()] or _default
    if name is not None:
        return name
    if needs_torch or _is_imported("torch"):
        return "torch"
    if _is_imported("numpy"):
        return "numpy"
    return "torch" if _is_torch_installed() else "numpy"


def code_of(framework: Name | None) -> int:
    """The number of the framework in the engine's binding."""
    return _CODES[framework]


def _is_imported(name: str) -> bool:
    return sys.modules.get(name) is not None  # None: the program blocks the import


@functools.cache
def _is_torch_installed() -> bool:
    import importlib.util

    return importlib.util.find_spec("torch") is not None


class using:  # noqa: N801 - read as a statement
    """Context manager: in this thread, calls without ``framework=`` create arrays of `framework`.

    Has no effect if `framework` is None.
    """

    __slots__ = ("_before", "_code")

    def __init__(self, framework: Name | None) -> None:
        self._code = _CODES[framework]

    def __enter__(self) -> None:
        self._before = _core.set_framework_scope(self._code) if self._code else -1

    def __exit__(self, *_: object) -> None:
        if self._before >= 0:
            _core.set_framework_scope(self._before)


if "TENFOLD_FRAMEWORK" in os.environ:
    _default = checked(os.environ["TENFOLD_FRAMEWORK"] or None, "TENFOLD_FRAMEWORK")
    _core.set_default_framework(_CODES[_default])
