"""Adds the folders of classes.py and compare.py to sys.path."""

import pathlib
import sys

import pytest

pytest.importorskip("torch")
HERE = pathlib.Path(__file__).parent
# Append instead of inserting at the front: each folder has a conftest.py, which would otherwise be
# found before other modules of this name.
sys.path.append(str(HERE))
sys.path.append(str(HERE.parent / "upstream" / "semantics"))
