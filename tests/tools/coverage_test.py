"""Tests of tools/coverage.py. Standard library only: CTest runs it without a virtual env."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import coverage


def described(name, counts, folder="/elsewhere"):
    lines = [{"line_number": number, "count": count} for number, count in counts]
    return {"current_working_directory": folder, "files": [{"file": name, "lines": lines}]}


class TestCoverage(unittest.TestCase):
    def test_every_listed_source_exists(self):
        for name in [*coverage.PARSERS, *coverage.NOT_PARSERS]:
            path = coverage.REPOSITORY / (name if name.endswith("/") else f"{name}.cpp")
            with self.subTest(name):
                self.assertTrue(path.exists())

    def test_parsers_are_the_sources_that_read_files(self):
        found = coverage.parsers()
        for name in (
            "src/codecs/yaml.cpp",
            "src/formats/folder/append/appendable.cpp",
            "src/formats/safetensors/tree.cpp",
            "src/formats/snapshot/tree.cpp",
            "src/ingest/text/row_builder.cpp",
        ):
            self.assertIn(name, found)
        for name in (
            "src/codecs/zip/writer.cpp",
            "src/dict/index_writer.cpp",
            "src/formats/folder/append/append.cpp",
            "src/os/fs/file.cpp",
            "tests/codecs/yaml_test.cpp",
        ):
            self.assertFalse(coverage.is_parser(name), name)

    def test_a_line_ran_if_it_ran_in_one_object_file(self):
        counts = {}
        source = str(coverage.REPOSITORY / "src/codecs/yaml.cpp")
        coverage.add(described(source, [(1, 0), (2, 5), (3, 0)]), counts)
        folder = str(coverage.REPOSITORY / "build")
        coverage.add(described("../src/codecs/yaml.cpp", [(1, 2), (3, 0)], folder), counts)
        coverage.add(described("/usr/include/stdio.h", [(1, 2)]), counts)
        self.assertEqual(counts, {"src/codecs/yaml.cpp": {1: 2, 2: 5, 3: 0}})

    def test_each_parser_has_to_reach_the_goal(self):
        well = dict.fromkeys(range(100), 1)
        badly = {number: int(number >= 6) for number in range(100)}
        problems = coverage.problems_of(
            {"a.cpp": well, "b.cpp": badly}, ["a.cpp", "b.cpp", "c.cpp"]
        )
        self.assertEqual(len(problems), 2)
        self.assertEqual(
            problems[0], "b.cpp: expected 95.0 %, found 94.0; not run: 0, 1, 2, 3, 4, 5"
        )
        self.assertIn("c.cpp: no counters", problems[1])


if __name__ == "__main__":
    unittest.main()
