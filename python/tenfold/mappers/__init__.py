"""State mappers: what turns states into rows of numbers, saved without pickle.

`_mapper` is what all of them do, how they are saved, and the names of classes in files; then a
module for each kind, and `_cached`, which keeps rows that were asked for.
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
