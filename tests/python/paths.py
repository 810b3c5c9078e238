"""The path of the repository.

It is not in conftest.py, because several folders have a module of that name to import.
"""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
