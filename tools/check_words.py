#!/usr/bin/env python3
"""Finds words that are not terms of docs/glossary.md: identifiers and exact phrases.

Usage: tools/check_words.py [repository root]

Checks the documentation, the public headers, the Python package and the command line. Prints one
line per finding, `<file>:<line>: "<found>": write "<term>"`, and exits 1 if there is any.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHECKED = (
    "*.md",
    "docs/**/*.md",
    "examples/*.md",
    "packaging/*.md",
    "include/**/*.hpp",
    "cli/*.?pp",
    "python/tenfold/**/*.py",
)
SKIPPED = ("CHANGELOG.md",)  # history is not changed

# Phrases in any case, as whole words: what to write instead.
PHRASES = {
    r"(?:values|parts) apart": "unbatched leaves",
    r"of another boot": "boot ID",
    r"written through": "shared mapping (r+)",
    r"until the device has it|brings? \w+ to the device|on the device when": "durable, fsynced",
    r"asked for ahead|asks? for (?:all )?(?:its |of its )?pages": "prefetch",
    r"looks resident": "in the page cache",
    r"what is in memory": "cached",
    r"(?:a|any) kill|in mid-save": "crash (SIGKILL), power failure",
    r"proved right": "end-to-end checksums",
    r"unequal length": "ragged",
    r"twins?|there twice": "duplicate",
    r"holdable": "supported",
    r"meanwhile": "concurrently",
    r"somebody|whoever": "another process, the caller",
    r"second cache": "L2",
    r"one after the other": "sequentially",
    r"in turns": "interleaved",
    r"a look at": "a check, a sample",
    r"seed examples": "published examples",
}
# Identifiers: what to call them instead.
IDENTIFIERS = {
    "HashesApart": "ChecksumTasks",
    "require_holdable": "check_supported",
    "lies_as_written": "is_contiguous",
    "copy_asking_for": "copy_with_prefetch",
    "take_back": "rollback",
    "left_out": "report_ignored",
    "in_vain_": "futile_prefetches_",
}

# One pattern of named groups for all of them, and the term of each group.
WORDS = [(rf"(?i:(?<![\w-])(?:{phrase})(?![\w-]))", term) for phrase, term in PHRASES.items()]
WORDS += [(rf"\b{re.escape(name)}\b", term) for name, term in IDENTIFIERS.items()]
ANY = re.compile("|".join(f"(?P<w{i}>{pattern})" for i, (pattern, _) in enumerate(WORDS)))


def check(root: Path) -> list[str]:
    """The findings in the checked files below `root`, in order."""
    found = []
    paths = {path for pattern in CHECKED for path in root.glob(pattern)}
    for path in sorted(paths):
        name = path.relative_to(root).as_posix()
        if name in SKIPPED:
            continue
        text = path.read_text(encoding="utf-8")
        for match in ANY.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            term = WORDS[int(match.lastgroup[1:])][1]
            found.append(f'{name}:{line}: "{match[0]}": write "{term}"')
    return found


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    found = check(root)
    print("\n".join(found) if found else "words: no findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
