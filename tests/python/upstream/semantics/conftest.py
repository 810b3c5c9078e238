"""Adds this folder to sys.path, so that tests can import compare.py; skips without tensordict."""

import pathlib
import sys

import pytest

pytest.importorskip("tensordict")
sys.path.insert(0, str(pathlib.Path(__file__).parent))
