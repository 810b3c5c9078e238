#!/usr/bin/env python3
"""Checks the #include lines against the layers of ARCHITECTURE.md.

    base  <-  os, codecs  <-  core  <-  formats  <-  io, scan  <-  dataset
    dataset  <-  dict, sparse, mapper  <-  verify, ingest  <-  { python, cli, examples }
    io  <-  checkpoint  <-  { python, cli, examples }

`a <- b` means that b may include a, and also what a may include. LAYERS forbids some of these
includes. For example, no other layer of src/ may include scan.

Also checks the imports between the modules of python/tenfold (python_layers.py).

Usage: tools/check_layers.py [repository root]

Prints one line per violation, `<file>:<line>: <what is wrong>`, and exits 1 if there is any.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import python_layers

# The layers of src/ from low to high, each with the lower layers that it must not include.
LAYERS = {
    "base": [],
    "os": [],
    "codecs": ["os"],
    "core": [],
    "formats": [],
    "io": [],
    "scan": ["io"],
    "dataset": ["scan"],
    "dict": ["scan"],
    "sparse": ["scan", "dict"],
    "mapper": ["scan", "sparse"],
    "verify": ["scan", "sparse", "mapper"],
    "ingest": ["scan", "sparse", "mapper", "verify"],
    "checkpoint": ["scan", "dataset", "dict", "sparse", "mapper", "verify", "ingest"],
}
BELOW = {
    layer: [left for left in list(LAYERS)[:position] if left not in LAYERS[layer]]
    for position, layer in enumerate(LAYERS)
}

# The public headers that base, os and codecs may include: these layers do not use tensors. Other
# layers may include every public header.
PUBLIC_HEADERS = {
    "base": ["tenfold/error.hpp"],
    "os": ["tenfold/error.hpp", "tenfold/buffer.hpp"],
    "codecs": ["tenfold/error.hpp"],
}

# A folder of formats/ is one format. Its files may include the headers of their own folder, and
# these headers, which all formats share.
FORMATS_SHARE = ("formats/format.hpp", "formats/shared/")

# Includes that are allowed although the rules forbid them: (folder of src/, header): reason.
FURTHER_EDGES = {
    ("formats/bundle", "io/registry.hpp"): "finds the format of each entry of a bundle",
}

# The headers of libraries, by prefix or name, and the folders that may include them.
LIBRARIES = {
    "fmt/": {"src", "cli", "examples"},
    "xxhash.h": {"src"},
    "libdeflate.h": {"src"},
    "zlib.h": {"src"},
    "zstd.h": {"src"},
    "zstd_errors.h": {"src"},
    "bzlib.h": {"src"},
    "lzma.h": {"src"},
    "CLI/": {"cli"},
    "nanobind/": {"python/src"},
    "Python.h": {"python/src"},
    "datetime.h": {"python/src"},  # a header of Python
    "ATen/": {"torch.hpp", "examples"},
    "c10/": {"torch.hpp", "examples"},
    "torch/": {"torch.hpp", "examples"},
}
# Headers of the compiler, not of the operating system, so not only src/os/ may include them.
COMPILER_HEADERS = {"immintrin.h", "x86intrin.h", "cpuid.h", "arm_neon.h", "arm_acle.h"}

# The only file outside src/os/ that may include system headers, to get the width of the terminal.
TERMINAL = "cli/terminal.cpp"

SUFFIXES = {".cpp", ".hpp", ".h", ".cc"}
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def check(root: Path) -> list[str]:
    """Returns the violations below `root`, each as `<file>:<line>: <what is wrong>`."""
    problems = []
    for top in ("include", "src", "python/src", "cli", "examples"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in SUFFIXES:
                problems += check_file(root, path)
    return problems + python_layers.check(root)


def check_file(root: Path, path: Path) -> list[str]:
    name = path.relative_to(root).as_posix()
    room, layer = room_of(name)
    if room == "src" and layer not in BELOW:
        return [f"{name}:1: {layer!r} is not a layer of src/"]
    problems = []
    for line, quote, target in includes_of(path):
        if target.startswith("tenfold/"):
            wrong = public_problem(layer, target)
        elif quote == '"':
            wrong = own_problem(name, room, layer, target)
        else:
            wrong = foreign_problem(name, room, layer, target)
        if wrong:
            problems.append(f"{name}:{line}: {target}: {wrong}")
    return problems


def room_of(name: str) -> tuple[str, str]:
    """Returns the top folder and, in src/, the layer: ("src", "core"), ("cli", ""), ..."""
    parts = name.split("/")
    if parts[0] == "src":
        return "src", parts[1] if len(parts) > 2 else ""
    if parts[0] == "include":
        is_torchs = parts[-1] == "torch.hpp" or "torch" in parts[2:-1]
        return ("torch.hpp" if is_torchs else "include"), ""
    return ("python/src" if parts[0] == "python" else parts[0]), ""


def includes_of(path: Path):
    """Yields (line number, quote character, target) of each #include that is not in a comment."""
    text = path.read_text(encoding="utf-8")
    text = BLOCK_COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
    for number, line in enumerate(text.splitlines(), start=1):
        match = INCLUDE.match(line)
        if match:
            yield number, match[1], match[2]


def public_problem(layer: str, target: str) -> str | None:
    allowed = PUBLIC_HEADERS.get(layer)
    if allowed is not None and target not in allowed:
        return f"{layer}/ may include no other public header than {', '.join(allowed)}"
    return None


def own_problem(name: str, room: str, layer: str, target: str) -> str | None:
    """Returns what is wrong with an include in quotes, which names a file of this project."""
    owner = target.split("/")[0] if "/" in target else None
    if ".." in target.split("/"):
        return "write the path from src/, without .."
    if room in ("cli", "examples", "python/src"):
        if owner in BELOW and room != "python/src":
            return f"{room}/ may include only include/tenfold/"
        return None
    if room in ("include", "torch.hpp"):
        return "public headers include <tenfold/...> and the standard library only"
    if owner not in BELOW:
        return "write the path from src/, as in core/tensor/cast.hpp"
    if owner == layer:
        return format_problem(name, target) if layer == "formats" else None
    if owner not in BELOW[layer]:
        folder = "/".join(name.split("/")[1:-1])
        if (folder, target) in FURTHER_EDGES:
            return None
        allowed = ", ".join([layer, *BELOW[layer]])
        return f"{layer}/ may include {allowed}"
    return None


def format_problem(name: str, target: str) -> str | None:
    if target.startswith(FORMATS_SHARE):
        return None
    folder = name.split("/")[2]
    if folder == "shared":
        return "formats/shared/ includes no format"
    if target.split("/")[1] != folder:
        return f"formats/{folder}/ may include formats/{folder}/ and formats/shared/"
    return None


def foreign_problem(file: str, room: str, layer: str, target: str) -> str | None:
    """Returns what is wrong with an include in <>: the standard library, a library, the system."""
    if "/" not in target and "." not in target:
        return None  # <vector>
    if target in COMPILER_HEADERS:
        return None if room == "src" else "only src/ uses the compiler's own headers"
    for prefix, rooms in LIBRARIES.items():
        if target.startswith(prefix):
            return None if room in rooms else f"only {', '.join(sorted(rooms))} may include it"
    if layer == "os" or file == TERMINAL:
        return None
    if room in ("include", "torch.hpp"):
        return "public headers include <tenfold/...> and the standard library only"
    return "only src/os/ includes system headers"


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    problems = check(root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
