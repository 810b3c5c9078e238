"""The path of the repository. Not in conftest.py, of which several folders have one."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
