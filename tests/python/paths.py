"""Where things are. Not in conftest.py: several folders have one, and the first imported counts."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
