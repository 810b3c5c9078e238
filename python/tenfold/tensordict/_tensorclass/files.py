"""Files of a tensorclass: what `load_memmap` gives when it is called on a class."""

from __future__ import annotations

import os

from tenfold import _core
from tenfold.tensordict._base import TensorDictBase
from tenfold.tensordict._tensorclass import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    PathLike = str | os.PathLike[str]


class FileMethods:
    """`load_memmap` and `load`; the methods that write are TensorDict's."""

    @classmethod
    def load_memmap(cls: Any, prefix: PathLike, *args: Any, **options: Any) -> Any:
        """What is saved in a folder: an object of this class, if it is one of a class of its name.

        That class may have been in another module, or in the program that was run. What else is
        saved in the folder comes as what it is.

        Args:
            prefix: The folder.
            *args: As for `TensorDict.load_memmap`.
            **options: As for `TensorDict.load_memmap`.

        Raises:
            FileNotFoundError: If there is nothing at `prefix`.
            CorruptFileError: If a file is damaged or too short.
            ValueError: If what is saved has other fields.

        Example:
            >>> Sample(torch.zeros(4), label="cat", batch_size=[4]).memmap("saved")
            >>> Sample.load_memmap("saved").label
            'cat'
        """
        _claim(cls, os.fsdecode(prefix))
        return TensorDictBase.load_memmap(prefix, *args, **options)

    @classmethod
    def load(cls: Any, prefix: PathLike, *args: Any, **options: Any) -> Any:
        """`TensorDict.load` with this class in mind, as `load_memmap`."""
        _claim(cls, os.fsdecode(prefix))
        return TensorDictBase.load(prefix, *args, **options)


def _claim(cls: Any, prefix: str) -> None:
    """Makes `cls` the class of what is saved under its name by another module."""
    if not os.path.isdir(prefix):
        return  # the loader says what is wrong
    name = str(_core.open_memmap(os.path.abspath(prefix), "r").info()[4])
    if not name or registry.registered(name) is not None:
        return
    module, _, found = name[len("<class '") : -len("'>")].rpartition("." + cls.__qualname__)
    if module and not found and "<locals>" not in module:
        registry.register(cls, name)
