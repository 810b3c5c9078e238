"""State mappers: they map states to rows of numbers, and are saved without pickle.

`_mapper` has the base class, the code that saves mappers, and the registry of the names by which
files refer to classes and factories. Each kind of mapper has its own module. `_cached` has a
wrapper that caches rows.
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
