"""Adds the folders of classes.py and compare.py to sys.path."""

import pathlib
import sys

import pytest

pytest.importorskip("torch")
HERE = pathlib.Path(__file__).parent
# Appended, not prepended, as this folder also has a conftest.py, which must not be found first.
sys.path.append(str(HERE))
sys.path.append(str(HERE.parent / "upstream" / "semantics"))
