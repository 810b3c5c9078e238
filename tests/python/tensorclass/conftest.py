"""Puts classes.py, and the comparison with tensordict, where the tests find them."""

import pathlib
import sys

import pytest

pytest.importorskip("torch")
HERE = pathlib.Path(__file__).parent
# Append it last: this folder has a conftest.py, too.
sys.path.append(str(HERE))
sys.path.append(str(HERE.parent / "upstream" / "semantics"))
