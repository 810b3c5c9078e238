"""Puts compare.py and fixtures.py where the tests find them."""

import pathlib
import sys

import pytest

pytest.importorskip("tensordict")
sys.path.insert(0, str(pathlib.Path(__file__).parent))
