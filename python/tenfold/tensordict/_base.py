"""`TensorDictBase`: what TensorDict and LazyStackedTensorDict have in common."""

from __future__ import annotations

import json

from tenfold._public import set_module
from tenfold.tensordict import _repr
from tenfold.tensordict._convert import ConversionMethods, MakingMethods, StateMethods
from tenfold.tensordict._files.consolidated import ConsolidatedMethods
from tenfold.tensordict._files.memmap import MemmapMethods
from tenfold.tensordict._locking import LockingMethods
from tenfold.tensordict._modules import ModuleMethods
from tenfold.tensordict._ops.apply import ApplyMethods
from tenfold.tensordict._ops.batch import BatchMethods
from tenfold.tensordict._ops.casts import CastMethods
from tenfold.tensordict._ops.indexing import IndexingMethods
from tenfold.tensordict._ops.mapping import MappingMethods
from tenfold.tensordict._ops.pointwise import ArithmeticMethods, ComparisonMethods
from tenfold.tensordict._ops.reductions import ReductionMethods
from tenfold.tensordict._ops.rows import RowMethods
from tenfold.tensordict._ops.select import SelectionMethods
from tenfold.tensordict._ops.shape import ShapeMethods
from tenfold.tensordict._ops.structure import StructureMethods
from tenfold.tensordict._ops.torch_functions import TorchFunctionMethods
from tenfold.tensordict._ops.writing import WritingMethods
from tenfold.tensordict._protocol import Primitives

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class RootMethods(Primitives):
    """`schema` and `metadata`."""

    __slots__ = ()

    @property
    def schema(self) -> dict[str, Any] | None:
        """What the columns of a data set mean, a JSON value of the root; None if nothing is said.

        It is stored with the tree (a folder's notes) and changes nothing about its entries.
        """
        text = self._kind.schema
        return None if text is None else json.loads(text)

    @schema.setter
    def schema(self, schema: dict[str, Any] | None) -> None:
        self._own()
        self._kind = self._kind._replace(schema=None if schema is None else json.dumps(schema))

    @property
    def metadata(self) -> dict[str, str]:
        """What people put into safetensors' ``__metadata__``; a folder keeps it in its notes.

        Of a root; assign a dict of str to change it.

        Raises:
            TypeError: If what is assigned is not str to str.
        """
        return dict(self._kind.metadata)

    @metadata.setter
    def metadata(self, metadata: Mapping[str, str]) -> None:
        for key, text in metadata.items():
            if not isinstance(key, str) or not isinstance(text, str):
                raise TypeError(f"metadata: expected str to str, found {key!r}: {text!r}")
        self._own()
        self._kind = self._kind._replace(metadata=dict(metadata))


@set_module("tenfold")
class TensorDictBase(
    IndexingMethods,
    MappingMethods,
    WritingMethods,
    StructureMethods,
    BatchMethods,
    ShapeMethods,
    RowMethods,
    ApplyMethods,
    ComparisonMethods,
    ArithmeticMethods,
    ReductionMethods,
    SelectionMethods,
    CastMethods,
    ConversionMethods,
    MakingMethods,
    StateMethods,
    ModuleMethods,
    LockingMethods,
    MemmapMethods,
    ConsolidatedMethods,
    RootMethods,
    TorchFunctionMethods,
):
    """A tree of tensors, whatever holds its entries. Make a TensorDict or a stack of them."""

    __slots__ = ()

    def __repr__(self) -> str:
        return _repr.text(self)

    def _repr_html_(self) -> str:
        return _repr.html(self)
