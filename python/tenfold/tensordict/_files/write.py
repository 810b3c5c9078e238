"""Writes a tree as memory-mapped files, for `memmap`, `memmap_`, `memmap_like` and `save`."""

from __future__ import annotations

import errno
import os
from collections import namedtuple

from tenfold import _core
from tenfold._errors import with_remedy
from tenfold._options import INT32_MAX, boolean, integer
from tenfold.tensordict._entries import node_of
from tenfold.tensordict._files import archive as archives
from tenfold.tensordict._files import folder as folders
from tenfold.tensordict._files.any_format import open_tree, save_node
from tenfold.tensordict._node import ON_DISK, identity_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


#: Options for writing a tree: arguments of `TensorDict.memmap_`; `zeros`: write zeros instead of
#: the tensors' values; `in_place`: map the files into the tree itself instead of a new one.
Options = namedtuple(
    "Options", "copy_existing num_threads existsok robust_key atomic durable zeros in_place"
)

# errno values that mean that nothing can be created next to the target, or renamed to it.
_NO_SIBLING = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV)
_IN_PLACE = "pass atomic=False to write into the folder as it is"


class _Targets:
    """The tensors of a tree that are mapped from files, and the files to be written.

    The *final file* of a tensor is its file in the target. Tensors mapped from unnamed files count
    as tensors in memory.

    Attributes:
        kept: id of a node -> key -> tensor, for contiguous tensors that are shared mappings (r+) of
            their final file, from its first byte on.
        there: Paths within the target of final files that need not be written: those of the tensors
            in `kept`, and of tensors of a folder opened with mode "r+" that are not loaded yet.
        elsewhere: (dotted key path, file) of the first tensor not in `kept` that is mapped from
            another file, or from a part of its final file; otherwise None.
        written: Paths within the target of the final files that are not in `there`.
        sources: (dotted key path, file) of each tensor like `elsewhere` whose file is in the
            target.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.kept: dict[int, dict[str, Any]] = {}
        self.there: list[str] = []
        self.elsewhere: tuple[str, str] | None = None
        self.written: set[str] = set()
        self.sources: list[tuple[str, str]] = []
        self._mapped = folders.mapped_class_if_imported()

    def visit(
        self,
        entry: Any,
        within: str,
        keys: tuple[str, ...],
        cls: type | None = None,
        bare: bool = False,
    ) -> None:
        """Inspects the tensors of a tree and the files that they will have.

        Args:
            entry: The tree: a node or an object of a tensorclass.
            within: The tree's folder within the target: empty, or a path that ends with a slash.
            keys: The keys from the root to `entry`.
            cls: The tensorclass of the stack that `entry` is a member of, or None.
            bare: True for a member of a stack whose members all have the same tensorclass. The
                class is stored once, for the whole stack.
        """
        node = node_of(entry)
        if cls is None and node is not entry:
            cls = type(entry)
        if folders.is_stack(node):
            members = node.tensordicts
            has_class = _has_common_class(members, cls)
            if has_class:
                within += "_tensordict/"
            for number, member in enumerate(members):
                self.visit(member, f"{within}{number}/", (*keys, str(number)), cls, has_class)
            return
        if not bare and _class_name(node, cls):
            within += "_tensordict/"
        _let_go_if_renamed(node)
        self._visit_unfetched(node, within, keys)
        for key, value in folders.held(node).items():
            if self._mapped is not None and type(value) is self._mapped:
                self._visit_mapped(node, key, value, within, keys)
            elif node_of(value) is not None:
                self.visit(value, f"{within}{_core.encode_key(key)}/", (*keys, key))
            elif not getattr(value, "_is_non_tensor", False):
                self.written.add(within + _core.encode_key(key) + ".memmap")

    def _visit_unfetched(self, node: Any, within: str, keys: tuple[str, ...]) -> None:
        """Inspects the tensors of a node that are not loaded; loads the nodes directly below it.

        Does nothing unless the node is mapped from a folder.
        """
        disk = folders.disk_of(node)
        if disk is None or not isinstance(disk.opened, folders.MemmapFolder):
            return
        if disk.whole and not any(value is ON_DISK for value in node._items.values()):
            return
        own = str(folders.folder_of(node))
        is_own_file = own == os.path.normpath(os.path.join(self.target, within))
        for key, kind, description in node._kinds():
            if kind != "tensor" or description is None:
                continue
            name = _core.encode_key(key) + ".memmap"
            if is_own_file and disk.mode == "r+":
                self.there.append(within + name)
                continue
            self.written.add(within + name)
            if is_own_file:
                continue  # a private mapping of the file that its content replaces
            self._add_elsewhere((*keys, key), os.path.join(own, name))

    def _visit_mapped(
        self, node: Any, key: str, tensor: Any, within: str, keys: tuple[str, ...]
    ) -> None:
        file = tensor._file
        place = within + _core.encode_key(key) + ".memmap"
        if file is None or file.path is None:
            self.written.add(place)
            return
        exists = file.path == os.path.join(self.target, place)
        if exists and file.mode == "r+" and _is_whole(tensor, file) and _is_same_file(file):
            self.kept.setdefault(id(node), {})[key] = tensor
            self.there.append(place)
            return
        self.written.add(place)
        if exists and not _is_same_file(file):
            return  # the file was replaced or deleted: writing to its path changes no mapped bytes
        if exists and file.mode != "r+" and _is_all(tensor, file):
            return  # a private mapping of the whole file, which the tensor's content replaces
        self._add_elsewhere((*keys, key), file.path, file)

    def _add_elsewhere(self, keys: tuple[str, ...], path: str, file: Any = None) -> None:
        """Adds a tensor to `sources` if its file is in the target; sets `elsewhere` if None."""
        if self.elsewhere is None:
            self.elsewhere = (".".join(keys), path)
        is_within = path.startswith(os.path.join(self.target, ""))
        if is_within and (file is None or _is_same_file(file)):
            self.sources.append((".".join(keys), path))


def _let_go_if_renamed(node: Any) -> None:
    """Loads all entries and marks the node as changed if its engine node has other properties."""
    disk = node._disk
    if disk is None or disk.changed or node._info() == disk.node.info():
        return
    node._entries()
    disk.changed = True


def _has_common_class(members: list[Any], cls: type | None) -> bool:
    """True if the members of a stack, whose tensorclass is `cls`, are stored as one class."""
    names = {_class_name(member, cls) for member in members}
    return len(names) == 1 and names != {""}


def _class_name(entry: Any, cls: type | None) -> str:
    """The name of the class that is stored for an entry of a stack with the tensorclass `cls`.

    Empty for TensorDicts and for stacks: the class of a stack is stored with its members.
    """
    node = node_of(entry)
    if folders.is_stack(node):
        return ""
    if cls is not None or node is not entry:
        return str(cls or type(entry))
    return node._node_info.class_name if node._node_info.kind == "tensorclass" else ""


def _is_whole(tensor: Any, file: Any) -> bool:
    if not tensor.is_contiguous():
        return False
    return not tensor.numel() or tensor.data_ptr() == file.base


def _is_all(tensor: Any, file: Any) -> bool:
    """True if a tensor has all bytes of its file, so that replacing the file loses none."""
    return _is_whole(tensor, file) and tensor.nbytes == os.path.getsize(file.path)


def _is_same_file(file: Any) -> bool:
    found = identity_of(file.path)
    return found is not None and file.identity in (None, found)


def write(tree: Any, prefix: str, options: Options) -> Any:
    """Writes `tree` to the folder `prefix`.

    Returns a tree over the files: with `options.in_place` `tree` itself, otherwise a new one.
    """
    target = os.path.abspath(prefix)
    survey = find_targets(tree, target)
    if not options.copy_existing and not options.zeros:
        _refuse(survey)
    if options.atomic is False and not options.zeros:
        _refuse_overwritten(survey)
    native = _core.tree(tree, target)
    there = [] if options.atomic is True else survey.there
    _write(native, target, options, there)
    kept = survey.kept if there else {}
    if options.in_place:
        handle = _core.open_memmap(target, "r+")
        folders.adopt(tree, handle, folders.MemmapFolder(target, "r+"), (), kept)
        made = tree
    else:
        made = folders.open_folder(target, "r+")
        _put_back(made, tree, kept)
    folders.map_now(made)
    folders.lock(made)
    return made


def find_targets(tree: Any, target: str) -> _Targets:
    """Finds which tensors of `tree` are mapped from files, in or outside of `target`."""
    survey = _Targets(target)
    survey.visit(tree, "", ())
    return survey


def refuse_elsewhere(tree: Any, target: str) -> None:
    """Raises RuntimeError if a tensor is mapped from elsewhere; see `_Targets.elsewhere`."""
    _refuse(find_targets(tree, target))


def _refuse(survey: _Targets) -> None:
    if survey.elsewhere is None:
        return
    key, file = survey.elsewhere
    raise RuntimeError(
        f'{survey.target}: key "{key}": A filename was provided but the tensor already has a file '
        f"associated: expected a tensor in memory, found one mapped from {file}; pass "
        "copy_existing=True"
    )


def _refuse_overwritten(survey: _Targets) -> None:
    """Raises RuntimeError if a write in place would overwrite a file in `survey.sources`."""
    for key, file in survey.sources:
        if os.path.relpath(file, survey.target) in survey.written:
            raise RuntimeError(
                f'{survey.target}: key "{key}": atomic=False overwrites the file that the tensor '
                f"is mapped from: expected a tensor in memory, found one mapped from {file}; "
                "clone it, or pass atomic=True"
            )


def _write(native: Any, target: str, options: Options, there: list[str]) -> None:
    try:
        _core.write_memmap(
            native,
            target,
            num_threads=integer("memmap: num_threads", options.num_threads, 0, INT32_MAX),
            zeros=options.zeros,
            durable=boolean("memmap: durable", options.durable),
            in_place=options.atomic is False,
            existing_ok=boolean("memmap: existsok", options.existsok),
            robust_names=options.robust_key is not False,
            already_mapped=there,
        )
    except FileExistsError as error:
        raise RuntimeError(_text(error)) from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RuntimeError(_text(error)) from None
        if error.errno in _NO_SIBLING and options.atomic is None:
            raise with_remedy(error, _IN_PLACE) from None
        raise
    except ValueError as error:
        if getattr(error, "part", None) == "folder to replace":
            raise RuntimeError(f"{error}; {_IN_PLACE}") from None
        if folders.is_invalid_file_name(error):
            raise RuntimeError(str(error)) from None
        raise


def _text(error: OSError) -> str:
    return f"{os.fsdecode(error.filename or '')}: {error.strerror}"


def _put_back(made: Any, tree: Any, kept: dict[int, dict[str, Any]]) -> None:
    """Sets the tensors in `kept` in the new tree `made`, so that they are not mapped again."""
    source, target = node_of(tree), node_of(made)
    if not kept or folders.is_stack(source) != folders.is_stack(target):
        return
    if not folders.is_stack(target):
        target._items.update(kept.get(id(source), {}))
    for key, value in folders.held(source).items():
        if node_of(value) is not None:
            is_stack = folders.is_stack(target)
            below = target.tensordicts[int(key)] if is_stack else target._entry(key)
            if node_of(below) is not None:
                _put_back(below, value, kept)


# --- without a prefix ----------------------------------------------------------------------------


def write_anonymous(tree: Any, options: Options) -> Any:
    """Like `write`, but writes to one unnamed file, which processes can share.

    Tensors that are already mapped from an unnamed file are kept, unless `options.zeros`.
    """
    mapped = folders.mapped_class()
    if mapped is None:
        raise ImportError(
            "memmap without a prefix: expected the framework torch, which is not in use or cannot "
            "be imported; pass a prefix"
        )
    tensors: dict[str, Any] = {}
    order: list[Any] = []  # for each tensor: the tensor itself, or its name in `tensors`

    def collect(tensor: Any) -> Any:
        if not options.zeros and type(tensor) is mapped and _is_anonymous(tensor):
            order.append(tensor)
        else:
            order.append(str(len(tensors)))
            tensors[order[-1]] = tensor
        return tensor

    made = tree if options.in_place else _copied(tree)
    node_of(made)._replace_arrays(collect)
    new = _mapped_together(tensors, options)
    places = iter(order)

    def replace(tensor: Any) -> Any:
        place = next(places)
        return new[place] if isinstance(place, str) else place

    node_of(made)._replace_arrays(replace)
    for node in folders.nodes_of(made):
        node._disk = None
        if not folders.is_stack(node):
            node._device = "cpu"
    folders.lock(made)
    return made


def _is_anonymous(tensor: Any) -> bool:
    return tensor._file is not None and tensor._file.path is None


def _mapped_together(tensors: dict[str, Any], options: Options) -> dict[str, Any]:
    from tenfold.tensordict._files.mapped_tensor import AnonymousFile

    if not tensors:
        return {}
    mapped = folders.mapped_class()
    room = sum(tensor.numel() * tensor.dtype.itemsize for tensor in tensors.values())
    handler = AnonymousFile(0 if options.zeros else room)
    source = _core.tree(tensors, "memmap")
    native, base = _core.memmap_into(source, handler.path, options.zeros, options.num_threads)
    file = _core.MappedFile(None, "r+", base, handler)
    made, _ = native.fill("r+", _core.Tied(mapped, file))
    return dict(made)


def _copied(tree: Any) -> Any:
    """Copies the nodes of a tree, with the same tensors."""
    return tree.clone(recurse=False)


# --- in any format -------------------------------------------------------------------------------


def save(
    tree: Any,
    prefix: Any,
    *,
    copy_existing: bool,
    num_threads: int,
    robust_key: bool | None,
    atomic: bool | None,
    durable: bool,
    options: dict[str, Any],
) -> Any:
    """Implements `TensorDict.save`, except for deflated archives; returns the opened tree."""
    path = os.path.abspath(os.fsdecode(prefix))
    if not options and (atomic is False or robust_key is False or _is_mapped_from(tree, path)):
        written = Options(
            copy_existing, num_threads, True, robust_key, atomic, durable, False, False
        )
        return write(tree, path, written)
    if not copy_existing:
        refuse_elsewhere(tree, path)
    if path.endswith(archives.SUFFIX) and options.get("format") is None:
        options["format"] = "memmap"  # for an archive, the caller sets the format
    save_node(
        _core.tree(tree, path), path, durable=durable, num_threads=num_threads or None, **options
    )
    if not os.path.isdir(path):
        return open_tree(path)
    made = folders.open_folder(path, "r")
    folders.map_now(made)
    folders.lock(made)
    return made


def _is_mapped_from(tree: Any, path: str) -> bool:
    return bool(find_targets(tree, path).there)
