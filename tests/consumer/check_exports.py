#!/usr/bin/env python3
"""Checks that the shared library exports the public API, all of it and nothing else.

Usage: check_exports.py <libtenfold.so> <include/tenfold>

The public API is what the headers mark with TENFOLD_API. Prints one line per problem, then the
numbers of names and of problems. Exits 1 if there is any problem: an exported name that no header
marks, a marked name that is not exported, a declaration without a mark, a wrong SONAME.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

# A function at namespace scope: its declaration up to the first `;` or `{`.
FUNCTION = re.compile(
    r"^(?!template|inline|constexpr|using|namespace|#|//)([\w:<>,&* ]+?[ &*](\w+)\([^;{]*)[;{]"
)
CLASS = re.compile(
    r"^(?:class|struct) (TENFOLD_API )?(\w+)[^;{]*\{\n(.*?)^\};", re.MULTILINE | re.DOTALL
)
# A member function that is defined elsewhere.
DECLARED_MEMBER = re.compile(r"^  (?! )[^={}\n]*\)(?: const| noexcept|&| )*;$", re.MULTILINE)


def public_api(folder: Path) -> tuple[set[str], dict[str, str], list[str]]:
    """Returns the public functions, the bodies of the public classes by name, and the problems."""
    functions: set[str] = set()
    classes: dict[str, str] = {}
    problems = []
    for path in sorted(folder.glob("*.hpp")):
        if path.name == "torch.hpp":  # header-only
            continue
        text = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
        for mark, name, body in CLASS.findall(text):
            if mark:
                classes[name] = body
            elif DECLARED_MEMBER.search(body):
                problems.append(f"{path.name}: class {name} has no TENFOLD_API")
        functions.update(re.findall(r"^TENFOLD_API .*\b(operator)<<\(", text, re.MULTILINE))
        previous = ""
        for match in re.finditer(r"^\S.*", text, re.MULTILINE):
            function = FUNCTION.match(text[match.start() :])
            if (
                function
                and "::" + function[2] not in function[1]
                and not previous.startswith("template")
            ):
                functions.add(function[2])
                if not function[1].startswith("TENFOLD_API "):
                    problems.append(f"{path.name}: {function[2]}() has no TENFOLD_API")
            previous = match[0]
    return functions, classes, problems


def exported_names(library: Path) -> list[str]:
    lines = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--demangle", library],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return [line.split(maxsplit=2)[2] for line in lines]


def soname(library: Path) -> str:
    text = subprocess.run(
        ["readelf", "--dynamic", library], capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"\(SONAME\).*\[(.*)\]", text)
    return found[1] if found else ""


def main() -> int:
    library, folder = Path(sys.argv[1]), Path(sys.argv[2])
    functions, classes, problems = public_api(folder)
    names = exported_names(library)
    seen = set()
    for name in names:
        parts = re.fullmatch(
            r"(?:typeinfo for |typeinfo name for |vtable for )?tenfold::(\w+)((?:::~?\w+)*)(.*)",
            name,
        )
        first, members = (parts[1], parts[2].split("::")[1:]) if parts else ("", [])
        if first == "detail" and members:  # inline functions of the headers call it
            first, members = members[0], members[1:]
        if first in classes:
            body = classes[first]
            local = re.findall(r"TENFOLD_LOCAL (\w+)", body)
            for member in members:
                if member in local or not re.search(rf"\b{member.lstrip('~')}\b", body + first):
                    problems.append(f"exported, but no public member: {name}")
        elif first not in functions or members:
            problems.append(f"exported, but not in the public headers: {name}")
        seen.add(first)
    defined = {name for name, body in classes.items() if DECLARED_MEMBER.search(body)}
    problems += [f"not exported: tenfold::{name}" for name in sorted((functions | defined) - seen)]

    version = (folder / "version.hpp").read_text(encoding="utf-8")
    major, minor = re.search(r'TENFOLD_VERSION_STRING "(\d+)\.(\d+)', version).groups()
    if soname(library) != f"libtenfold.so.{major}.{minor}":
        problems.append(
            f"SONAME: expected libtenfold.so.{major}.{minor}, found {soname(library)!r}"
        )

    for problem in problems:
        print(problem)
    print(f"{library.name}: {len(names)} exported names, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
