#!/usr/bin/env python3
"""Finds the phrases in PHRASES and IDENTIFIERS, which this project replaces by standard terms.

Usage: tools/check_words.py [repository root]

Checks the whole text of the documentation, the public headers, the Python package and the command
line, and the comments and identifiers of other code (COMMENTS_CHECKED), except the files SKIPPED.
Prints one line per finding, `<file>:<line>: "<found>": write "<term>"`. Exits 1 if there is any.
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
# In these files PHRASES are searched in comments only, because strings may contain any text.
COMMENTS_CHECKED = (
    "src/**/*.?pp",
    "python/src/*.?pp",
    "fuzz/*.?pp",
    "examples/**/*.?pp",
    "examples/**/*.py",
    "bench/**/*.?pp",
    "bench/**/*.py",
    "tests/**/*.?pp",
    "tests/**/*.py",
    "tools/*.py",
)
# The changelog describes old releases with older terms. The other files contain PHRASES as data.
SKIPPED = (
    "CHANGELOG.md",
    "tools/check_words.py",
    "tests/tools/check_words_test.py",
)

# Patterns of phrases, in upper or lower case and as whole words, and what to write instead.
PHRASES = {
    r"(?:values|parts) apart": "unbatched leaves",
    r"of another boot": "boot ID",
    r"written through(?! (?:a |the )?mappings?)": "shared mapping (r+)",
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
    r"nobody else|those who|the one who": "no other process, callers, users",
    r"vouch\w* for": "guarantee",
    r"robbed of": "loses, without",
    r"to be had": "available",
    r"the life of|lives? as long": "lifetime",
    r"the ends of (?:rows|lists|strings|values)|where (?:the )?rows end": "row offsets",
    r"the begin of|ends by itself": "the start of, the end of",
    r"lies? (?:end to end|there|behind|in turns)|bytes lie": "contiguous, stored, follows",
    r"brought into memory": "page cache",
    r"ragged text": "strings of different lengths",
    r"child(?:ren)? of a fork": "forked child process",
    r"in no order": "unordered",
    r"now and then": "periodically, sometimes",
    r"first[- ]level cache": "L1",
    r"the processor": "the CPU",
    r"hands? over": "passes, transfers",
    r"litter": "leftover files",
    r"asleep": "waiting",
    r"of no use": "unused, not needed",
    r"of its own accord": "by itself",
    r"for nothing": "needlessly",
    r"laid flat": "flattened",
    r"mend(?:s|ed|ing)?": "repair",
}
# Patterns of identifiers and what to write instead. Searched in the whole text of all files.
IDENTIFIERS = {
    r"HashesApart": "ChecksumTasks",
    r"require_holdable": "check_supported",
    r"lies_as_written": "is_contiguous",
    r"\w+_asking_for": "copy_with_prefetch",
    r"(?:begin|end)_asking": "start_prefetching",
    r"ask_for(?:_\w+)?": "prefetch_values",
    r"k\w*Asked\w*": "kPrefetchedRows",
    r"take_back": "rollback",
    r"left_out_?": "report_ignored, excluded",
    r"in_vain_": "futile_prefetches_",
    r"looks_resident": "is_sample_cached",
    r"k(?:First|Second)Cache": "kL1, kL2",
    r"kMost[A-Z]\w*": "kMaxEntries",
    r"\w*Companion": "HelperThread",
    r"\w*Spool\w*": "SpillFile",
    r"told_\w+|\w+_told": "difference_of",
}

# The patterns of prose and of identifiers, each with its term. Pattern i becomes the group "w<i>".
WORDS = [(rf"(?i:{phrase})", term) for phrase, term in PHRASES.items()]
NAMES = list(IDENTIFIERS.items())


def compiled(words: list[tuple[str, str]]) -> re.Pattern[str]:
    alternatives = "|".join(f"(?P<w{i}>{pattern})" for i, (pattern, _) in enumerate(words))
    return re.compile(rf"(?<![\w-])(?:{alternatives})(?![\w-])")


PROSE = compiled(WORDS)
CODE = compiled(NAMES)


def comments_of(text: str, marker: str) -> str:
    """Returns `text` with only the part of each line after its first comment marker."""
    return "\n".join(line.partition(marker)[2] for line in text.split("\n"))


def check(root: Path) -> list[str]:
    """Returns the findings in the checked files below `root`, by file and line."""
    found = []
    whole = {path for pattern in CHECKED for path in root.glob(pattern)}
    comments = {path for pattern in COMMENTS_CHECKED for path in root.glob(pattern)} - whole
    for path in sorted(whole | comments):
        name = path.relative_to(root).as_posix()
        if name.startswith(SKIPPED):
            continue
        text = path.read_text(encoding="utf-8")
        marker = "#" if path.suffix == ".py" else "//"
        prose = comments_of(text, marker) if path in comments else text
        for words, pattern, part in ((WORDS, PROSE, prose), (NAMES, CODE, text)):
            for match in pattern.finditer(part):
                line = part.count("\n", 0, match.start()) + 1
                term = words[int(match.lastgroup[1:])][1]
                found.append(f'{name}:{line}: "{match[0]}": write "{term}"')
    return found


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    found = check(root)
    print("\n".join(found) if found else "words: no findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
