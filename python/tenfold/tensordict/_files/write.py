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
        kept: keys -> tensor, for contiguous tensors that are shared mappings (r+) of their final
            file, from its first byte on.
        there: The final files that need not be written, as paths relative to the target: those of
            the tensors in `kept`, and of the tensors that are not loaded yet from a folder that is
            open in mode "r+".
        written: The final files that are not in `there`. Empty if no tensor is mapped.
        elsewhere: (dotted key path, path, MappedFile) of each tensor that is mapped from another
            file, or from a part of its final file. The MappedFile is None if the tensor is not
            loaded.
        native: The tree of the engine. None if no tensor is mapped.
    """

    def __init__(self, tree: Any, target: str, robust_key: bool | None = None) -> None:
        self.target = target
        self.kept: dict[tuple[str, ...], Any] = {}
        self.there: list[str] = []
        self.written: set[str] = set()
        self.elsewhere: list[tuple[str, str, Any]] = []
        self.native: Any = None
        nodes = list(folders.nodes_of(tree))
        for node in nodes:
            _let_go_if_renamed(node)
        if not any(map(_has_mapped, nodes)):
            return
        self.native = _core.tree(tree, target)
        parents: dict[tuple[str, ...], Any] = {}
        for keys, place, stored in _core.planned_files(self.native, robust_key is not False):
            above = keys[:-1]
            if above not in parents:
                parents[above] = node_of(folders.entry_at(tree, above))
            final = os.path.join(target, place)
            if self._is_there(parents[above], keys, final, stored):
                self.there.append(place)
            else:
                self.written.add(final)

    def _is_there(self, node: Any, keys: tuple[str, ...], final: str, stored: str | None) -> bool:
        """Inspects a tensor of `node`, and returns whether its file `final` need not be written.

        `stored` is the file of a tensor that is not loaded.
        """
        if node is None:  # a component of a sparse tensor, which the engine stores as a node
            return False
        value = node._items.get(keys[-1], ON_DISK)
        if value is ON_DISK:
            opened = node._disk.opened
            if stored is None or not isinstance(opened, folders.MemmapFolder):
                return False
            if stored != final:
                self.elsewhere.append((".".join(keys), stored, None))
                return False
            return opened.mode == "r+"  # a private mapping must be written to its file
        file = value._file if type(value) is folders.mapped_class_if_imported() else None
        if file is None or file.path is None:
            return False
        if file.path == final:
            if not _is_same_file(file):
                return False  # the mapped file was replaced: writing `final` does not change it
            if file.mode == "r+" and _is_whole(value, file):
                self.kept[keys] = value
                return True
            if file.mode != "r+" and _is_all(value, file):
                return False  # a private mapping of the whole file must be written to it
        self.elsewhere.append((".".join(keys), file.path, file))
        return False


def _let_go_if_renamed(node: Any) -> None:
    """Detaches a node whose batch size, names or device differ from those of its engine node.

    Loads all its entries and marks it as changed.
    """
    disk = node._disk
    if folders.is_stack(node) or disk is None or disk.changed:
        return
    if node._info() == disk.node.info():
        return
    node._entries()
    disk.changed = True


def _has_mapped(node: Any) -> bool:
    """True if a node is mapped from a folder, or has a tensor that is mapped from a file."""
    disk = folders.disk_of(node)
    if disk is not None and isinstance(disk.opened, folders.MemmapFolder):
        return True
    mapped = folders.mapped_class_if_imported()
    return mapped is not None and mapped in map(type, folders.held(node).values())


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

    Returns a tree over the files: `tree` itself if `options.in_place`, otherwise a new one.
    """
    target = os.path.abspath(prefix)
    kept = _write(tree, target, options)
    if options.in_place:
        handle = _core.open_memmap(target, "r+")
        folders.adopt(tree, handle, folders.MemmapFolder(target, "r+"), (), kept)
        made = tree
    else:
        made = folders.open_folder(target, "r+")
        for keys, tensor in kept.items():
            node_of(folders.entry_at(made, keys[:-1]))._items[keys[-1]] = tensor
    folders.map_now(made)
    folders.lock(made)
    return made


def _refuse(survey: _Targets) -> None:
    """Raises RuntimeError if a tensor is mapped from elsewhere; see `_Targets.elsewhere`."""
    for key, path, _ in survey.elsewhere:
        raise RuntimeError(
            f'{survey.target}: key "{key}": A filename was provided but the tensor already has a '
            f"file associated: expected a tensor in memory, found one mapped from {path}; pass "
            "copy_existing=True"
        )


def _refuse_overwritten(survey: _Targets) -> None:
    """Raises RuntimeError if a write in place would overwrite the file of a mapped tensor."""
    for key, path, file in survey.elsewhere:
        if path in survey.written and (file is None or _is_same_file(file)):
            raise RuntimeError(
                f'{survey.target}: key "{key}": atomic=False overwrites the file that the tensor '
                f"is mapped from: expected a tensor in memory, found one mapped from {path}; "
                "clone it, or pass atomic=True"
            )


def _write(tree: Any, target: str, options: Options) -> dict[tuple[str, ...], Any]:
    """Writes the files; returns the tensors whose files were kept, as `_Targets.kept`."""
    try:
        survey = _Targets(tree, target, options.robust_key)
        if not options.copy_existing and not options.zeros:
            _refuse(survey)
        if options.atomic is False and not options.zeros:
            _refuse_overwritten(survey)
        there = [] if options.atomic is True else survey.there
        _core.write_memmap(
            _core.tree(tree, target) if survey.native is None else survey.native,
            target,
            num_threads=integer("memmap: num_threads", options.num_threads, 0, INT32_MAX),
            zeros=options.zeros,
            durable=boolean("memmap: durable", options.durable),
            in_place=options.atomic is False,
            existing_ok=boolean("memmap: existsok", options.existsok),
            robust_names=options.robust_key is not False,
            already_mapped=there,
        )
        return survey.kept if there else {}
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
    order: list[Any] = []  # for each tensor: the tensor if it is kept, else its key in `tensors`

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
    is_folder = os.path.isdir(path)
    written = Options(copy_existing, num_threads, True, robust_key, atomic, durable, False, False)
    if not options and (atomic is False or robust_key is False):
        return write(tree, path, written)
    may_keep = is_folder and not options
    if may_keep or not copy_existing:
        survey = _Targets(tree, path)
        if may_keep and survey.there:
            return write(tree, path, written)
        if not copy_existing:
            _refuse(survey)
    if path.endswith(archives.SUFFIX) and options.get("format") is None:
        options["format"] = "memmap"  # a folder: for an archive, the caller has set the format
    save_node(
        _core.tree(tree, path), path, durable=durable, num_threads=num_threads or None, **options
    )
    if not os.path.isdir(path):
        return open_tree(path)
    made = folders.open_folder(path, "r")
    folders.map_now(made)
    folders.lock(made)
    return made
