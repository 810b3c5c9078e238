"""The README as the description on PyPI, for scikit-build-core.

Links to files of the repository do not work there, so they are replaced by their text. Links to the
web and images are kept.
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
