"""Gives scikit-build-core the README as the description on PyPI.

Links to files of the repository do not work on PyPI, so each is replaced by its text. Images and
links to web pages are kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

__all__ = ["dynamic_metadata"]

LOCAL_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?://)[^)]+\)")


def dynamic_metadata(
    settings: Mapping[str, object], project: Mapping[str, object]
) -> dict[str, dict[str, str]]:
    """Returns the field `readme` of the project's metadata."""
    text = Path("README.md").read_text(encoding="utf-8")
    return {"readme": {"text": LOCAL_LINK.sub(r"\1", text), "content-type": "text/markdown"}}
