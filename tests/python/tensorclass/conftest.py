"""Adds the folders of classes.py and compare.py to sys.path."""

import pathlib
import sys

import pytest

pytest.importorskip("torch")
HERE = pathlib.Path(__file__).parent
# Append: both folders have a conftest.py, which an import of conftest must not find first.
sys.path.append(str(HERE))
sys.path.append(str(HERE.parent / "upstream" / "semantics"))
