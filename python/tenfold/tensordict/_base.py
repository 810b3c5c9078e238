"""`TensorDictBase`: what TensorDict and LazyStackedTensorDict have in common."""

from __future__ import annotations

from tenfold._public import set_module
from tenfold.tensordict import _repr
from tenfold.tensordict._apply import ApplyMethods
from tenfold.tensordict._arithmetic import ArithmeticMethods
from tenfold.tensordict._batch import BatchMethods
from tenfold.tensordict._casts import CastMethods
from tenfold.tensordict._comparison import ComparisonMethods
from tenfold.tensordict._consolidated import ConsolidatedMethods
from tenfold.tensordict._conversion import ConversionMethods, StateMethods
from tenfold.tensordict._indexing import IndexingMethods
from tenfold.tensordict._locking import LockingMethods
from tenfold.tensordict._making import MakingMethods
from tenfold.tensordict._mapping import MappingMethods
from tenfold.tensordict._memmap import MemmapMethods
from tenfold.tensordict._modules import ModuleMethods
from tenfold.tensordict._reductions import ReductionMethods
from tenfold.tensordict._root import RootMethods
from tenfold.tensordict._rows import RowMethods
from tenfold.tensordict._selection import SelectionMethods
from tenfold.tensordict._shape import ShapeMethods
from tenfold.tensordict._structure import StructureMethods
from tenfold.tensordict._torch_function import TorchFunctionMethods
from tenfold.tensordict._writing import WritingMethods


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
