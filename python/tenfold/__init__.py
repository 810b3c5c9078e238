"""PyTorch's data on disk as memory-mapped trees of tensors, without pickle.

>>> import tenfold
>>> tenfold.save({"model": model.state_dict(), "step": 7}, "run/ckpt")
>>> model.load_state_dict(tenfold.load("run/ckpt")["model"])
>>> tenfold.open("run/ckpt")["model", "encoder.weight"]     # reads nothing else

Importing this package imports neither torch nor numpy: the first tensor that is handed over does.
Tensors are torch's if torch can be imported, else numpy arrays.
"""

from __future__ import annotations

from tenfold._core import __version__  # type: ignore[attr-defined]
from tenfold._errors import CorruptFileError, Error, UnsupportedError
from tenfold._io import convert, load, open, probe, save, verify
from tenfold._load_into import load_into

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tenfold._reports import LoadReport, VerifyReport
    from tenfold.tensordict import TensorDict, UnbatchedTensor

__all__ = [
    "CorruptFileError",
    "Error",
    "LoadReport",
    "TensorDict",
    "UnbatchedTensor",
    "UnsupportedError",
    "VerifyReport",
    "__version__",
    "convert",
    "load",
    "load_into",
    "open",
    "probe",
    "save",
    "verify",
]

# Imported when they are first used, which keeps `import tenfold` short.
_LAZY = {
    "LoadReport": "tenfold._reports",
    "TensorDict": "tenfold.tensordict",
    "UnbatchedTensor": "tenfold.tensordict",
    "VerifyReport": "tenfold._reports",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
