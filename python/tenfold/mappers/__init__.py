"""State mappers, which map states to rows of numbers, saved without pickle.

`_mapper` has the base class, saving, and the names of classes in files. Each kind of mapper has a
module; `_cached` caches rows.
"""

from tenfold.mappers._cached import CachedStateMapper
from tenfold.mappers._hierarchical import HierarchicalStateMapper
from tenfold.mappers._mapper import StateMapper, register_mapper
from tenfold.mappers._module import ModuleStateMapper
from tenfold.mappers._sparse import SparseStateMapper

__all__ = [
    "CachedStateMapper",
    "HierarchicalStateMapper",
    "ModuleStateMapper",
    "SparseStateMapper",
    "StateMapper",
    "register_mapper",
]
