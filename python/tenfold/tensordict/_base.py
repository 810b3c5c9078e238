"""`TensorDictBase`: what TensorDict and LazyStackedTensorDict have in common."""

from __future__ import annotations

from tenfold._public import set_module
from tenfold.tensordict import _repr
from tenfold.tensordict._convert import ConversionMethods, StateMethods
from tenfold.tensordict._files.consolidated import ConsolidatedMethods
from tenfold.tensordict._files.memmap import MemmapMethods
from tenfold.tensordict._locking import LockingMethods
from tenfold.tensordict._making import MakingMethods
from tenfold.tensordict._modules import ModuleMethods
from tenfold.tensordict._ops.apply import ApplyMethods
from tenfold.tensordict._ops.batch import BatchMethods
from tenfold.tensordict._ops.casts import CastMethods
from tenfold.tensordict._ops.comparison import ComparisonMethods
from tenfold.tensordict._ops.indexing import IndexingMethods
from tenfold.tensordict._ops.mapping import MappingMethods
from tenfold.tensordict._ops.pointwise import ArithmeticMethods
from tenfold.tensordict._ops.reductions import ReductionMethods
from tenfold.tensordict._ops.rows import RowMethods
from tenfold.tensordict._ops.select import SelectionMethods
from tenfold.tensordict._ops.shape import ShapeMethods
from tenfold.tensordict._ops.structure import StructureMethods
from tenfold.tensordict._ops.torch_functions import TorchFunctionMethods
from tenfold.tensordict._ops.writing import WritingMethods
from tenfold.tensordict._root import RootMethods


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
