"""The path of the repository. Not in conftest.py: several folders have a module `conftest`."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
