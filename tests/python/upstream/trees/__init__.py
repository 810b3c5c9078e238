"""Named trees with every kind of node and entry of tensordict.

The tests build the trees with several versions of tensordict; old versions run in separate
processes. Each function that builds a tree must run with tensordict 0.11, unless `needs` names a
later version. The content of a tree depends only on its name, so that all processes build equal
bytes.
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
