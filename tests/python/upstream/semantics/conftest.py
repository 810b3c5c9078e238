"""Adds this folder to sys.path for compare.py and others; skips its tests without tensordict."""

import pathlib
import sys

import pytest

pytest.importorskip("tensordict")
sys.path.insert(0, str(pathlib.Path(__file__).parent))
