"""Trees with every kind of node and entry of tensordict, each with a name.

The tests call these functions with several versions of tensordict; those with old versions run in
separate processes. All functions must run with version 0.11 unless `needs` names a later one. A
tree depends only on its name, so that all processes build the same bytes.
"""

from trees.of_nodes import TABLE_KEYS
from trees.of_tensors import small_model
from trees.of_values import Point, Sample, Segment
from trees.registry import FLOAT8, LOADABLE, TREES, Tree, build, numbers, values

__all__ = [
    "FLOAT8",
    "LOADABLE",
    "TABLE_KEYS",
    "TREES",
    "Point",
    "Sample",
    "Segment",
    "Tree",
    "build",
    "numbers",
    "small_model",
    "values",
]
