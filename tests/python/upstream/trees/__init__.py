"""Trees of every kind that tensordict can hold, by name.

The same functions run under every version of tensordict that the tests meet, in processes of their
own for the old ones: nothing here may need more than version 0.11 has, except where `needs` says
so. A tree depends on its name alone, so that two processes build the same bytes.
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
