"""Generates python/tenfold/__init__.pyi from the table of exports in python/tenfold/__init__.py.

Usage: tools/make_stub.py [--check]

With --check, writes nothing, and exits 1 if the stub is out of date.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "python" / "tenfold"
STUB = PACKAGE / "__init__.pyi"
HEAD = "# Made from the table in __init__.py by tools/make_stub.py; do not edit.\n"


def stub(exports: dict[str, list[str]]) -> str:
    """Returns the text of the stub. In a stub, `as` marks a name as exported."""
    # nanobind's stub of _core lacks __version__, which is declared below instead.
    imports = [
        f"from {module} import {name} as {name}\n"
        for module, names in sorted(exports.items())
        for name in sorted(names)
        if not name.startswith("__")
    ]
    return HEAD + "\n" + "".join(imports) + "\n__version__: str\n"


def main() -> int:
    # Executed rather than imported, because importing requires the compiled module.
    text = stub(runpy.run_path(str(PACKAGE / "__init__.py"))["_EXPORTS"])
    if "--check" not in sys.argv[1:]:
        STUB.write_text(text)
    elif not STUB.exists() or STUB.read_text() != text:
        print(f"{STUB}: differs from the table in __init__.py; run make format", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
