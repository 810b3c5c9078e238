"""Public functions and methods with parameters have a docstring of Google style, with all sections.

A docstring has Args with every parameter, Returns (or a summary that begins with "Returns") if a
value is returned, Raises if the body raises an exception, and an example. The tests parse the
source, so the libraries that the adapters import need not be installed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tenfold

PACKAGE = Path(tenfold.__file__).parent
ADAPTERS = ("accelerate", "lightning", "ray", "torchrl", "transformers")
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef

# Maps prefixes of methods that another library calls or defines to the callers. These methods need
# all sections but Example.
CALLED_BY = {
    "tenfold.distributed.SavePlanner.": "torch.distributed.checkpoint",
    "tenfold.distributed.StorageReader.": "torch.distributed.checkpoint",
    "tenfold.distributed.StorageWriter.": "torch.distributed.checkpoint",
    "tenfold.lightning.CheckpointIO.": "a Trainer of Lightning",
    "tenfold.ray.TenfoldDatasink.": "Ray Data",
    "tenfold.ray.TenfoldDatasource.": "Ray Data",
    "tenfold.torchrl.RingStorage.": "a ReplayBuffer of TorchRL",
    "tenfold.torchrl.RingStorageCheckpointer.": "a ReplayBuffer of TorchRL",
    "tenfold.transformers.AtomicCheckpointMixin.": "a program that uses the class as a Trainer",
}
# Maps classes that users do not construct to what creates their objects. The docstrings of these
# constructors are not checked.
CREATED_BY = {
    "tenfold.Opaque": "tenfold.load(allow_opaque=True)",
    "tenfold.PendingSnapshot": "tenfold.Snapshot.async_take",
    "tenfold.Preemption": "tenfold.CheckpointManager.preemption",
    "tenfold.SaveHandle": "tenfold.CheckpointManager.save",
    "tenfold.SnapshotMetadata": "tenfold.Snapshot.metadata",
    "tenfold.CachedStateMapper": "tenfold.StateMapper.cached",
    "tenfold.dataset.Rows": "tenfold.IterableDataset",
    "tenfold.dataset.Window": "tenfold.accumulate",
}


def _modules() -> dict[str, ast.Module]:
    modules = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(("tenfold", *file.relative_to(PACKAGE).with_suffix("").parts))
        modules[name.removesuffix(".__init__")] = ast.parse(file.read_text(encoding="utf-8"))
    return modules


def _listed(module: ast.Module) -> list[str]:
    """Returns the names in ``__all__``; no names if ``__all__`` is not a list."""
    for node in module.body:
        is_list = isinstance(node, ast.Assign) and isinstance(node.value, ast.List)
        if is_list and ast.unparse(node.targets[0]) == "__all__":
            return [str(ast.literal_eval(item)) for item in node.value.elts]
    return []


class Source:
    """The parsed modules of the package; finds definitions by following the imports in them."""

    def __init__(self) -> None:
        self.modules = _modules()
        self._defined: dict[str, dict[str, Definition]] = {}
        self._imported: dict[str, dict[str, tuple[str, str]]] = {}
        for name, module in self.modules.items():
            self._defined[name] = {
                node.name: node for node in module.body if isinstance(node, Definition)
            }
            self._imported[name] = {
                alias.asname or alias.name: (node.module, alias.name)
                for node in ast.walk(module)
                if isinstance(node, ast.ImportFrom) and node.module
                for alias in node.names
            }

    def find(self, module: str, name: str) -> tuple[str, Definition] | None:
        """Follows imports from `name` of `module`; returns the defining module and the definition.

        Returns None if `name` is not a function or class, or comes from another package.
        """
        if module not in self.modules:
            return None
        if name in self._defined[module]:
            return module, self._defined[module][name]
        source = self._imported[module].get(name)
        return None if source is None or source[0] == module else self.find(*source)

    def public(self) -> Iterator[tuple[str, str, Definition]]:
        """Yields the public name, module and definition of each public function and class."""
        named = {f"tenfold.{name}": (module, name) for name, module in tenfold._MODULE_OF.items()}
        for module, tree in self.modules.items():
            if not any(part.startswith("_") for part in module.split(".")[1:]):
                named |= {f"{module}.{name}": (module, name) for name in _listed(tree)}
        for node in self.modules["tenfold.utils"].body:
            if isinstance(node, Function) and not node.name.startswith("_"):
                named[f"tenfold.utils.{node.name}"] = ("tenfold.utils", node.name)
        seen: set[Definition] = set()
        for public, (module, name) in named.items():
            found = self.find(module, name)
            if found is not None and found[1] not in seen:
                seen.add(found[1])
                yield public, *found

    def functions(self) -> Iterator[tuple[str, Function, str | None]]:
        """Yields the public name, definition and docstring of each function and method."""
        seen: set[Definition] = set()
        for public, module, node in self.public():
            if isinstance(node, Function):
                yield public, node, ast.get_docstring(node)
                continue
            classes = [(public, module, node)]
            for name, owner, made in classes:
                for base in made.bases:
                    found = self.find(owner, ast.unparse(base).split("[")[0])
                    if found is not None and isinstance(found[1], ast.ClassDef):
                        classes.append((f"tenfold.{found[1].name}", *found))
                has_new = any(isinstance(m, Function) and m.name == "__new__" for m in made.body)
                for member in made.body:
                    if not isinstance(member, Function) or member in seen:
                        continue
                    seen.add(member)
                    if member.name == "__new__" or (member.name == "__init__" and not has_new):
                        yield name, member, ast.get_docstring(made)
                    elif not member.name.startswith("_") and not _is_declared(member):
                        yield f"{name}.{member.name}", member, self._docstring(classes, member)

    @staticmethod
    def _docstring(classes: list[tuple[str, str, ast.ClassDef]], member: Function) -> str | None:
        """Returns the docstring of a method, else that of the method that it overrides."""
        docs = [ast.get_docstring(member)]
        for _, _, made in classes:
            same = (node for node in made.body if isinstance(node, Function))
            docs += [ast.get_docstring(node) for node in same if node.name == member.name]
        return next((doc for doc in docs if doc), None)


def _is_declared(node: Function) -> bool:
    """Returns True for setters and overloads: another definition has their docstring."""
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    return any(name == "overload" or name.endswith(".setter") for name in decorators)


def _parameters(node: Function) -> list[str]:
    arguments = node.args
    names = [item.arg for item in (*arguments.posonlyargs, *arguments.args)]
    if names[:1] in (["self"], ["cls"]):
        del names[0]
    names += [item.arg for item in arguments.kwonlyargs]
    if arguments.vararg:
        names.append("*" + arguments.vararg.arg)
    if arguments.kwarg:
        names.append("**" + arguments.kwarg.arg)
    return [name for name in names if not name.startswith("_")]


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes of a body, except those of nested functions, lambdas and classes."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, Definition | ast.Lambda):
            yield child
            yield from _own(child)


def _returns(node: Function) -> bool:
    if node.name in ("__init__", "__new__"):
        return False
    values = [item.value for item in _own(node) if isinstance(item, ast.Return)]
    is_value = [
        v is not None and not (isinstance(v, ast.Constant) and v.value is None) for v in values
    ]
    return any(is_value) and (node.returns is None or ast.unparse(node.returns) != "None")


def faults(node: Function, doc: str | None) -> list[str]:
    """Returns the missing parts of the docstring of a public function."""
    if not doc:
        return ["docstring"]
    names = _parameters(node)
    if not names:
        return []
    found = []
    sections = dict(
        re.findall(
            r"^(Args|Returns|Yields|Raises|Example):\n((?:\s*\n| +.*\n?)+)", doc + "\n", re.M
        )
    )
    documented = re.findall(
        r"^ {4}([^\s:].*?): ", sections.get("Args", "").replace(":\n", ": \n"), re.M
    )
    listed = {name.strip(" `") for line in documented for name in line.split(",")}
    found += [f"Args: {name}" for name in names if name not in listed]
    begins = doc.startswith(("Returns ", "Yields "))
    if _returns(node) and not begins and not {"Returns", "Yields"} & {*sections}:
        found.append("Returns")
    if any(isinstance(item, ast.Raise) and item.exc is not None for item in _own(node)):
        found += [] if "Raises" in sections else ["Raises"]
    if ">>> " not in doc:
        found.append("Example")
    return found


FUNCTIONS = [*Source().functions()]  # no dict: classes of two modules may have one public name
NAMES = {name for name, _, _ in FUNCTIONS}


def test_the_rule_finds_what_a_docstring_lacks() -> None:
    source = (
        'def f(x, *rest, **more):\n    """Does it."""\n    if x: raise ValueError\n    return x\n'
    )
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.FunctionDef)
    assert faults(node, "Does it.") == [
        *("Args: x", "Args: *rest", "Args: **more", "Returns", "Raises", "Example")
    ]
    doc = """Does it.

Args:
    x: A number.
    *rest: Others.
    **more: Options of `g`.

Returns:
    int: The number.

Raises:
    ValueError: If it is not 0.

Example:
    >>> f(0)
"""
    assert faults(node, doc) == []
    assert faults(node, doc.replace("    x: A number.\n", "")) == ["Args: x"]


def test_public_functions_of_each_module_are_found() -> None:
    assert len(FUNCTIONS) > 500
    assert {
        *("tenfold.save", "tenfold.TensorDict", "tenfold.TensorDictBase.update", "tenfold.stack"),
        *("tenfold.Growing.append", "tenfold.lightning.CheckpointIO", "tenfold.ray.read"),
        *("tenfold.MemoryMappedTensor.from_tensor", "tenfold.safetensors.numpy.save_file"),
    } <= NAMES
    for prefix in (*CALLED_BY, *(f"tenfold.{adapter}." for adapter in ADAPTERS)):
        assert any(name.startswith(prefix) for name in NAMES), prefix
    assert {*CREATED_BY} <= NAMES


@pytest.mark.parametrize(
    ("name", "node", "doc"),
    [pytest.param(*found, id=found[0]) for found in FUNCTIONS if found[0] not in CREATED_BY],
)
def test_docstring_has_all_sections(name: str, node: Function, doc: str | None) -> None:
    found = faults(node, doc)
    if "Example" in found and name.rpartition(".")[0] + "." in CALLED_BY:
        found.remove("Example")
    assert found == [], f"{name}: its docstring lacks {found}"
