"""The functions of `safetensors.torch`, with their signatures, over tenfold's engine.

>>> from tenfold.safetensors import load_file, safe_open, save_file

Saved files are replaced atomically and have checksums, which `tenfold.verify` compares. The package
safetensors can read them. `tenfold.safetensors.numpy` has the functions of `safetensors.numpy`.
"""

from __future__ import annotations

# Classes that are imported "as" themselves are not public. They must be attributes of this module,
# because tracebacks and pickles name them ``tenfold.safetensors.<name>``.
from tenfold.safetensors._open import SafeSlice as SafeSlice
from tenfold.safetensors._open import SafetensorError, safe_open
from tenfold.safetensors._open import TensorNotFoundError as TensorNotFoundError
from tenfold.safetensors._torch import load, load_file, load_model, save, save_file, save_model

__all__ = [
    "SafetensorError",
    "load",
    "load_file",
    "load_model",
    "safe_open",
    "save",
    "save_file",
    "save_model",
]
