"""State mappers: what turns states into rows of numbers, saved without pickle.

`_mapper` what all of them do; `_saved` how they lie in a tree; `_registry` which names stand for
which classes; then a file for each kind, and `_cached`, which caches rows.
"""

from tenfold.mappers._cached import CachedStateMapper
from tenfold.mappers._hierarchical import HierarchicalStateMapper
from tenfold.mappers._mapper import StateMapper
from tenfold.mappers._module import ModuleStateMapper
from tenfold.mappers._saved import register_mapper
from tenfold.mappers._sparse import SparseStateMapper

__all__ = [
    "CachedStateMapper",
    "HierarchicalStateMapper",
    "ModuleStateMapper",
    "SparseStateMapper",
    "StateMapper",
    "register_mapper",
]
