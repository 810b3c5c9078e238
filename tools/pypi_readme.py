"""The README as the description on PyPI, for scikit-build-core.

Links to files of the repository lead nowhere there: their text stays, the link goes. Links to the
web and images keep theirs.
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
