"""Tests of tools/check_layers.py. Standard library only: CTest runs it without a virtual env."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import check_layers

FORBIDDEN = [
    # file, include, part of the message
    ("src/base/text.cpp", '"core/tensor/cast.hpp"', "base/ may include base"),
    ("src/base/text.cpp", "<tenfold/tensor.hpp>", "no other public header"),
    ("src/os/fs/file.cpp", "<tenfold/tensor.hpp>", "no other public header"),
    ("src/os/fs/file.cpp", '"codecs/json/json.hpp"', "os/ may include os, base"),
    ("src/codecs/zip/zip.cpp", '"os/fs/file.hpp"', "codecs/ may include codecs, base"),
    ("src/codecs/zip/zip.cpp", "<tenfold/dtype.hpp>", "no other public header"),
    ("src/core/tensor/cast.cpp", '"formats/format.hpp"', "core/ may include"),
    ("src/formats/numpy/npz.cpp", '"io/registry.hpp"', "formats/ may include"),
    ("src/formats/bundle/bundle.cpp", '"io/tree.hpp"', "formats/ may include"),
    ("src/formats/numpy/npz.cpp", '"formats/dcp/tree.hpp"', "may include formats/numpy/ and"),
    ("src/formats/shared/commit.cpp", '"formats/dcp/tree.hpp"', "includes no format"),
    ("src/io/load.cpp", '"dataset/table.hpp"', "io/ may include"),
    ("src/dataset/schema.cpp", '"ingest/table/table_writer.hpp"', "dataset/ may include"),
    ("src/dataset/schema.cpp", '"dict/state.hpp"', "dataset/ may include"),
    ("src/sparse/sum.cpp", '"dict/state.hpp"', "sparse/ may include"),
    ("src/io/load.cpp", '"scan/risk.hpp"', "io/ may include"),
    ("src/core/tensor/cast.cpp", '"buffer.hpp"', "write the path from src/"),
    ("src/core/tensor/cast.cpp", '"../os/fs/file.hpp"', "without .."),
    ("src/core/tensor/cast.cpp", "<sys/mman.h>", "only src/os/ includes system headers"),
    ("src/io/load.cpp", "<fcntl.h>", "only src/os/ includes system headers"),
    ("src/formats/numpy/npy.cpp", "<unistd.h>", "only src/os/ includes system headers"),
    ("python/src/module.cpp", "<dirent.h>", "only src/os/ includes system headers"),
    ("cli/main.cpp", "<pthread.h>", "only src/os/ includes system headers"),
    ("src/core/tensor/cast.cpp", "<nanobind/nanobind.h>", "only python/src may include it"),
    ("src/core/tensor/cast.cpp", "<Python.h>", "only python/src may include it"),
    ("cli/convert.cpp", '"io/convert.hpp"', "may include only include/tenfold/"),
    ("cli/convert.cpp", "<xxhash.h>", "only src may include it"),
    ("examples/train.cpp", '"core/tensor/cast.hpp"', "may include only include/tenfold/"),
    ("examples/train.cpp", "<CLI/CLI.hpp>", "only cli may include it"),
    ("include/tenfold/tensor.hpp", '"core/tensor/cast.hpp"', "the standard library only"),
    ("include/tenfold/tensor.hpp", "<sys/stat.h>", "the standard library only"),
    ("include/tenfold/tensor.hpp", "<fmt/format.h>", "may include it"),
    ("include/tenfold/tensor.hpp", "<ATen/core/Tensor.h>", "may include it"),
    ("src/misc/odd.cpp", "<vector>", "'misc' is not a layer"),
]

PYTHON = [
    # file, text, line, part of the message
    ("tensordict/_protocol.py", "import torch", 1, "only _interop/ may import it"),
    ("dataset/_rows.py", "def f():\n    import numpy as np", 2, "only _interop/ may import it"),
    ("tensordict/_ops/shape.py", "from tenfold.tensordict._dense import TensorDict", 1, "is below"),
    ("_io/files.py", "from tenfold.dataset import Dataset", 1, "_io is below dataset"),
    (
        "tensordict/_ops/shape.py",
        "def f():\n    from tenfold.tensordict._ops import join",
        2,
        "a module of its own layer",
    ),
    (
        "_io/files.py",
        "def f():\n    from tenfold.dataset._dataset import Dataset",
        2,
        "a module of a higher layer",
    ),
    ("mappers/_rows.py", "def f():\n    import tenfold", 2, "not the package"),
    (
        "_io/files.py",
        "from . import load_into",
        1,
        "write the full name of the module, not a relative import",
    ),
    (
        "_io/files.py",
        "if TYPE_CHECKING:\n    pass\nelse:\n    import torch",
        4,
        "only _interop/ may import it",
    ),
    ("odd.py", "from tenfold._errors import Error", 1, "is in no layer"),
    ("_io/load_into.py", "import os", 1, "lists an import that does not exist"),
]

PYTHON_ALLOWED = [
    ("_interop/other.py", "import torch"),
    ("tensordict/_dense.py", "from tenfold.tensordict._ops.shape import f"),
    ("_io/files.py", "def f():\n    from tenfold._reports import VerifyReport"),
    ("_io/load_into.py", "def f():\n    from tenfold._io.optimizer import load_optimizer"),
    ("_io/files.py", "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    import torch"),
    ("_pickle.py", "def f():\n    from tenfold.mappers._mapper import load_mapper"),
]

ALLOWED = [
    ("src/base/text.cpp", "<tenfold/error.hpp>"),
    ("src/base/hash/checksum.cpp", "<xxhash.h>"),
    ("src/os/fs/file.cpp", "<sys/mman.h>"),
    ("src/os/memory/mapping.hpp", "<tenfold/buffer.hpp>"),
    ("src/os/fs/file.cpp", '"base/checked.hpp"'),
    ("src/core/tensor/cast.cpp", "<tenfold/tensor.hpp>"),
    ("src/core/tensor/cast.cpp", '"os/fs/file.hpp"'),
    ("src/formats/safetensors/plan.cpp", '"formats/safetensors/tree.hpp"'),
    ("src/formats/safetensors/plan.cpp", '"formats/format.hpp"'),
    ("src/formats/numpy/npz.cpp", '"formats/shared/commit.hpp"'),
    ("src/formats/bundle/bundle.cpp", '"io/registry.hpp"'),
    ("src/formats/folder/append/grow.cpp", '"formats/folder/meta/meta.hpp"'),
    ("src/io/registry.cpp", '"formats/numpy/npz_source.hpp"'),
    ("src/dataset/dataset.cpp", '"io/registry.hpp"'),
    ("src/mapper/state_index.cpp", '"dict/builder.hpp"'),
    ("src/verify/rows.cpp", '"dict/state.hpp"'),
    ("src/ingest/table/table_writer.cpp", '"dataset/table.hpp"'),
    ("python/src/module.cpp", "<nanobind/nanobind.h>"),
    ("python/src/module.cpp", '"bindings.hpp"'),
    ("python/src/module.cpp", '"core/tensor/cast.hpp"'),
    ("cli/convert.cpp", '"cli.hpp"'),
    ("cli/convert.cpp", "<CLI/CLI.hpp>"),
    ("cli/convert.cpp", "<tenfold/tenfold.hpp>"),
    ("include/tenfold/torch.hpp", "<ATen/core/Tensor.h>"),
    ("include/tenfold/torch/optimizer.hpp", "<ATen/core/Tensor.h>"),
    ("include/tenfold/tensor.hpp", "<tenfold/buffer.hpp>"),
    ("include/tenfold/tensor.hpp", "<span>"),
]


def problems_with(name: str, text: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.parent.mkdir(parents=True)
        path.write_text(text)
        return check_layers.check(Path(folder))


class CheckLayers(unittest.TestCase):
    def test_names_the_line_of_a_forbidden_include(self):
        for name, target, message in FORBIDDEN:
            with self.subTest(file=name, include=target):
                problems = problems_with(name, f"#pragma once\n#include {target}\n")
                self.assertEqual(len(problems), 1)
                line = 1 if "is not a layer" in message else 2
                self.assertTrue(problems[0].startswith(f"{name}:{line}: "), problems[0])
                self.assertIn(message, problems[0])

    def test_accepts_an_allowed_include(self):
        for name, target in ALLOWED:
            with self.subTest(file=name, include=target):
                self.assertEqual(problems_with(name, f"#include {target}\n"), [])

    def test_parses_includes_with_unusual_spacing(self):
        problems = problems_with(
            "src/core/tensor/cast.cpp", "\n\n  #  include  <unistd.h>  // why\n"
        )
        expected = "src/core/tensor/cast.cpp:3: unistd.h: only src/os/ includes system headers"
        self.assertEqual(problems, [expected])

    def test_ignores_comments(self):
        text = "// #include <unistd.h>\n/* #include <unistd.h>\n#include <fcntl.h>\n*/\n"
        self.assertEqual(problems_with("src/core/tensor/cast.cpp", text), [])

    def test_names_the_line_of_a_forbidden_import(self):
        for name, text, line, message in PYTHON:
            with self.subTest(file=name, text=text):
                problems = problems_with(f"python/tenfold/{name}", f"{text}\n")
                self.assertEqual(len(problems), 1)
                self.assertTrue(problems[0].startswith(f"python/tenfold/{name}:{line}: "))
                self.assertIn(message, problems[0])

    def test_accepts_an_allowed_import(self):
        for name, text in PYTHON_ALLOWED:
            with self.subTest(file=name, text=text):
                self.assertEqual(problems_with(f"python/tenfold/{name}", f"{text}\n"), [])

    def test_names_a_cycle_of_five_modules_and_accepts_one_of_four(self):
        for count in (4, 5):
            with self.subTest(count=count), tempfile.TemporaryDirectory() as root:
                ops = Path(root) / "python/tenfold/tensordict/_ops"
                ops.mkdir(parents=True)
                for number in range(count):
                    after = (number + 1) % count
                    text = f"from tenfold.tensordict._ops import m{after}\n"
                    (ops / f"m{number}.py").write_text(text)
                problems = check_layers.check(Path(root))
                self.assertEqual(len(problems), count - 4, problems)
                if problems:
                    self.assertTrue(
                        problems[0].startswith("python/tenfold/tensordict/_ops/m0.py:1")
                    )
                    self.assertIn("5 modules import each other: at most 4 may", problems[0])


if __name__ == "__main__":
    unittest.main()
