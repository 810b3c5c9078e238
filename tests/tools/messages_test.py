"""Error messages of the engine have no Python syntax, because C++ and the shell also show them."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
# Finds, for example, `overwrite=True`, `format=\"memmap\"`, `keys=[...]`, `rename=lambda name: ...`
PYTHON = re.compile(r"\b[a-z_]+=(?:\\\"|True\b|False\b|None\b|lambda\b|\[)|\blambda [a-z]+:")


class Messages(unittest.TestCase):
    def test_messages_contain_no_python_syntax(self):
        found = []
        for path in sorted((ROOT / "src").rglob("*.[ch]pp")):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if line.lstrip().startswith(("//", "#include")):
                    continue
                found += [
                    f"{path.relative_to(ROOT)}:{number}: {literal}"
                    for literal in LITERAL.findall(line)
                    if PYTHON.search(literal)
                ]
        self.assertEqual(found, [])

    def test_pattern_matches_only_python_syntax(self):
        for text in ("pass overwrite=True", r"format=\"memmap\" can", "keys=[x]"):
            self.assertRegex(text, PYTHON)
        for text in ("the option overwrite", r"the format \"memmap\"", "a == b", "x=3"):
            self.assertNotRegex(text, PYTHON)


if __name__ == "__main__":
    unittest.main()
