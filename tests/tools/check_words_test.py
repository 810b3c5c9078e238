"""Tests of tools/check_words.py. Standard library only: CTest runs it without a virtual env."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import check_words

FOUND = [
    # file, line, what is found, term
    ("README.md", "A save survives any kill.", "any kill", "crash"),
    ("docs/page.md", "Pages are read one after the other", "one after the other", "sequentially"),
    ("docs/topic/page.md", "Somebody else holds it.", "Somebody", "another process"),
    ("include/tenfold/a.hpp", "/// Rows of unequal length.", "unequal length", "ragged"),
    ("include/tenfold/a.hpp", "void require_holdable();", "require_holdable", "check_supported"),
    ("cli/ls.cpp", '"written through"', "written through", "shared mapping"),
    ("src/base/text.cpp", "f();  // Whoever calls this.", "Whoever", "another process"),
    ("src/io/a.hpp", "/// Written through: see map().", "Written through", "shared mapping"),
    ("src/base/text.cpp", "const bool left_out = true;", "left_out", "report_ignored"),
    ("src/base/text.cpp", "f(kMostAtOnce);", "kMostAtOnce", "kMaxEntries"),
    ("tests/a_test.cpp", "// Nobody else has it.", "Nobody else", "no other process"),
    ("bench/a.py", "x = 1  # robbed of a core", "robbed of", "loses"),
    ("python/tenfold/_io/files.py", "left_out = 1", "left_out", "report_ignored"),
    ("python/tenfold/_io/files.py", '"""A twin of the file."""', "twin", "duplicate"),
]

FINE = [
    ("README.md", "A crash leaves the old version. Seldom a killer feature, twinned with a kilt."),
    (
        "docs/page.md",
        "Set by another boot. Lines, text, ends and places may be plain words.",
    ),
    ("CHANGELOG.md", "Somebody wrote this, meanwhile."),
    ("src/base/text.cpp", 'throw Error("whoever");  // A page written through a mapping.'),
    ("src/base/text.cpp", "const bool left = twin;"),
    ("tests/python/test_a.py", '"""Whoever calls."""'),
    ("include/tenfold/a.hpp", "bool is_left_out_of_all();"),
]


def findings(name: str, text: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return check_words.check(Path(folder))


class CheckWords(unittest.TestCase):
    def test_names_line_word_and_term(self):
        for name, line, word, term in FOUND:
            with self.subTest(file=name, line=line):
                found = findings(name, f"\n{line}\n")
                self.assertEqual(len(found), 1, found)
                self.assertIn(f'{name}:2: "{word}": write "{term}', found[0])

    def test_accepts_other_words_and_files(self):
        for name, line in FINE:
            with self.subTest(file=name, line=line):
                self.assertEqual(findings(name, f"{line}\n"), [])

    def test_finds_each_word_of_a_line(self):
        self.assertEqual(len(findings("README.md", "whoever, meanwhile, whoever\n")), 3)


if __name__ == "__main__":
    unittest.main()
