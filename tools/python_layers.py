"""Checks the imports between the modules of python/tenfold against the layers of ARCHITECTURE.md.

At its top level, a module may import its own layer and lower ones. A function may import a lower
layer, so that the import happens later. It may import its own layer or a higher one only if
`TIES` gives a reason. Only `_interop/` and the modules of `LIBRARY_USERS` import torch, numpy and
the tensordict package. At most `LARGEST_CYCLE` modules import each other in a cycle. The modules of
`ENTRANCES` may import any module of the package.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# From low to high. A name is a module or a whole folder; the longest match applies.
LAYERS = [
    [
        "_context_manager",
        "_core",
        "_errors",
        "_html",
        "_options",
        "_paths",
        "_pickle",
        "_progress",
        "_public",
        "_ranks",
        "_reports",
        "_staging",
        "_unreplaced",
        "utils",
    ],
    ["_interop"],
    ["tensordict._protocol"],
    [
        "tensordict._entries",
        "tensordict._index",
        "tensordict._node",
        "tensordict._repr",
        "tensordict._values",
    ],
    ["tensordict._ops"],
    ["tensordict._convert", "tensordict._files"],
    ["tensordict._base", "tensordict._tensor_like"],
    [
        "tensordict",
        "tensordict._dense",
        "tensordict._lazy",
        "tensordict._lazy_rows",
    ],
    ["tensordict._tensorclass"],
    ["_io", "safetensors"],
    ["dataset", "snapshot"],
    ["mapped_dict", "sparse"],
    ["mappers"],
    ["checkpoint", "distributed"],
    ["accelerate", "lightning", "ray", "torchrl", "transformers"],
]
RANKS = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}

# Modules that may import any other: they import a module when one of its names is used.
ENTRANCES = {"", "__main__", "_pickle"}

# The greatest allowed number of modules in an import cycle. Imports in functions count; imports of
# the modules in `ENTRANCES` do not.
LARGEST_CYCLE = 4

# Allowed imports, within functions, of modules of the importer's own layer or of a higher one:
# importer -> imported module -> reason.
TIES = {
    "_io.load_into": {
        "_io.optimizer": "load_into and optimizer import each other",
    },
    "dataset._dataset": {
        "dataset._ingest.save": "Dataset.save() uses the code of ingest, which reads data sets",
    },
    "dataset._ingest.ingest": {
        "dataset._ingest.sources": "imports the readers of Arrow and tables only for such sources",
    },
    "mappers._mapper": {
        "mappers._cached": "the class of cached mappers is a subclass of the class of mappers",
    },
    "tensordict._files.folder": {
        "tensordict._files.mapped_tensor": "imports torch",
    },
    "tensordict._files.write": {
        "tensordict._files.mapped_tensor": "imports torch and multiprocessing",
    },
}

LIBRARIES = {"torch", "numpy", "tensordict"}
# Modules outside _interop/ that may import one of LIBRARIES -> reason.
LIBRARY_USERS = {
    "distributed._save_load": "calls torch.distributed.checkpoint",
    "distributed._planner": "derives classes from classes of torch.distributed.checkpoint",
    "distributed._plans": "derives classes from classes of torch.distributed.checkpoint",
    "distributed._reader": "derives a class from a class of torch.distributed.checkpoint",
    "distributed._tree": "finds the values of a tree that are instances of torch.Tensor",
    "distributed._values": "calls torch.save",
    "distributed._writer": "derives a class from a class of torch.distributed.checkpoint",
    "torchrl": "an adapter whose rows are TensorDicts of the tensordict package",
    "tensordict._files.mapped_tensor": "derives a class from torch.Tensor",
}


class Import(NamedTuple):
    """One imported module.

    Attributes:
        name: The full name, such as "torch.nn" or "tenfold._io.files".
        line: The line of the import.
        is_late: Whether the import is within a function.
    """

    name: str
    line: int
    is_late: bool


def check(root: Path) -> list[str]:
    """Returns the violations below `root`, each as `<file>:<line>: <what is wrong>`."""
    package = root / "python" / "tenfold"
    modules = {_module_of(path, package): path for path in sorted(package.rglob("*.py"))}
    problems = []
    used: set[tuple[str, str]] = set()
    imported: dict[str, set[str]] = {module: set() for module in modules}
    for module, path in modules.items():
        name = path.relative_to(root).as_posix()
        for found in imports_of(path, set(modules)):
            top, _, target = found.name.partition(".")
            if top == "tenfold" and target in modules and module not in ENTRANCES:
                imported[module].add(target)
            problem = _problem(module, found, used)
            if problem is not None:
                problems.append(f"{name}:{found.line}: {found.name}: {problem}")
    for importer in sorted(modules.keys() & TIES.keys()):
        name = modules[importer].relative_to(root).as_posix()
        problems += [
            f"{name}:1: {target}: tools/python_layers.py lists an import that does not exist"
            for target in TIES[importer]
            if (importer, target) not in used
        ]
    for cycle in _cycles(imported):
        if len(cycle) > LARGEST_CYCLE:
            name = modules[cycle[0]].relative_to(root).as_posix()
            problems.append(
                f"{name}:1: {', '.join(cycle)}: {len(cycle)} modules import each other: at most "
                f"{LARGEST_CYCLE} may"
            )
    return problems


def _cycles(imported: dict[str, set[str]]) -> list[list[str]]:
    """Returns the groups of modules that import each other, directly or not; sorts each group."""
    reached = {module: _reached(module, imported) for module in imported}
    groups = {
        tuple(sorted(other for other in found if module in reached[other]))
        for module, found in reached.items()
        if module in found
    }
    return [list(group) for group in sorted(groups)]


def _reached(module: str, imported: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    left = [module]
    while left:
        new = imported[left.pop()] - found
        found |= new
        left += new
    return found


def _problem(module: str, found: Import, used: set[tuple[str, str]]) -> str | None:
    if found.name.startswith("."):
        return "write the full name of the module, not a relative import"
    top, _, target = found.name.partition(".")
    if top in LIBRARIES:
        if module.startswith("_interop") or module in LIBRARY_USERS:
            return None
        return "only _interop/ may import it; get the module from there"
    if top != "tenfold" or module in ENTRANCES:
        return None
    if not target:
        return "import the module that defines the name, not the package"
    mine, other = _rank(module), _rank(target)
    if mine is None or other is None:
        return f"{module if mine is None else target} is in no layer of tools/python_layers.py"
    if not found.is_late:
        return f"{_layer(module)} is below {_layer(target)}" if other > mine else None
    if other < mine:
        return None
    if target in TIES.get(module, {}):
        used.add((module, target))
        return None
    where = "a higher layer" if other > mine else "its own layer"
    return f"a function imports a module of {where}: move it to the top, or give the reason in TIES"


def _layer(module: str) -> str:
    while module not in RANKS:
        module = module.rpartition(".")[0]
    return module


def _rank(module: str) -> int | None:
    while module and module not in RANKS:
        module = module.rpartition(".")[0]
    return RANKS.get(module)


def _module_of(path: Path, package: Path) -> str:
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path, modules: set[str]) -> Iterator[Import]:
    """Yields the imports of a file, except those below `if TYPE_CHECKING:`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    yield from _imports_below(tree, modules, is_late=False)


def _imports_below(node: ast.AST, modules: set[str], is_late: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and getattr(child.test, "id", "") == "TYPE_CHECKING":
            for other in child.orelse:
                yield from _imports_below(ast.Module([other], []), modules, is_late)
            continue
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, is_late)
        elif isinstance(child, ast.ImportFrom) and child.level:
            yield Import("." * child.level + (child.module or ""), child.lineno, is_late)
        elif isinstance(child, ast.ImportFrom) and child.module:
            for alias in child.names:
                full = f"{child.module}.{alias.name}"
                inner = full.partition(".")[2]
                is_module = inner in modules or inner == "_core"
                yield Import(full if is_module else child.module, child.lineno, is_late)
        late = is_late or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        yield from _imports_below(child, modules, late)
