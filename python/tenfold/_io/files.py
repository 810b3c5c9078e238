"""Functions for more than one format: save, load, open, probe, scan, verify, convert, diff."""

from __future__ import annotations

import os
from collections.abc import Iterable

from tenfold import _core
from tenfold._errors import UnsupportedError, with_remedy
from tenfold._interop.frameworks import decided, using
from tenfold._options import boolean, integer, path_argument, text, text_or_empty
from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Any, Literal

    from tenfold._interop.frameworks import Framework
    from tenfold._reports import ScanReport, VerifyReport
    from tenfold.tensordict import TensorDict

    PathLike = str | os.PathLike[str]
    Mode = Literal["r", "c", "r+"]
    Keys = str | Iterable[str | Sequence[str]] | None
    Rename = dict[str, str] | list[tuple[str, str]] | Callable[[str], str] | None
    Progress = Callable[[int, int, str], object] | bool | None

    from tenfold._reports import DiffReport


@set_module("tenfold")
def save(
    obj: Any,
    path: PathLike,
    *,
    format: str | None = None,
    durable: bool = True,
    checksums: bool = True,
    num_threads: int | None = None,
    overwrite: bool = True,
    progress: Progress = None,
) -> Path:
    """Saves a tree of tensors and replaces `path` atomically.

    A crash leaves the old version or the new one, never a partial file; a folder on a file system
    that cannot exchange two names is absent for an instant while it is replaced. Tensors over the
    same bytes, such as tied weights, are stored once and share memory again after loading; a
    ``.npz`` file cannot store them. No object is pickled; a ``.pt`` file contains a pickle of
    containers, tensors and values only.

    Args:
        obj: Any nesting of dict, OrderedDict, list, tuple, None, bool, int, float and str with
            torch tensors, numpy arrays or anything with ``__dlpack__``; a TensorDict; anything with
            ``state_dict()``; a `Dataset` or a view of one. The keys of a dict are str, int, float,
            bool, None or tuples of these. Folders, ``.tdz``, safetensors and ``.pt`` files can also
            store a single tensor, array or value, which `load` then returns; ``.npy`` and ``.npz``
            files can store a single tensor or array.
        path: Target path. A file replaces an existing file, a folder an existing folder. An
            existing folder with files that its metadata does not name is not replaced: an error.
        format: ``"memmap"``, ``"safetensors"``, ...; None: the suffix of `path` selects it; a path
            without a suffix, or with an unknown one, becomes a folder of memory-mapped files.
            ``.pkl`` is an error. A suffix that resembles a known one (``.safetensor``), or belongs
            to a format that tenfold does not write (``.csv``), causes a warning.
        durable: fsync before returning.
        checksums: Store checksums, which `verify` compares. Must be true for a `Dataset`.
        num_threads: Maximum number of threads, at most 256. None or 0: ``TENFOLD_NUM_THREADS``, or
            the number of cores, at most 8. No effect for a `Dataset`.
        overwrite: If false, an existing `path` is an error.
        progress: None (a bar if standard error is a terminal), True (a bar), False, or
            ``callable(done_bytes, total_bytes, what)``; an exception from it stops the work. A bar
            appears after a second.

    Returns:
        Path: `path`.

    Raises:
        UnsupportedError: If the format cannot store an entry, for example several arrays in a
            ``.npy`` file; the message names the key of the entry. Nothing has been written.
        ValueError: If a key has another type, two keys of a dict have the same ``str()``, a
            container contains itself, `format` is unknown, `path` is a folder with files that its
            metadata does not name, or `checksums` is false for a `Dataset`.
        FileExistsError: If `path` exists and `overwrite` is false.
        OSError: If a system call failed, or if a file would replace a folder, or a folder a file.
            The old version is unchanged, unless the last fsync failed.

    Example:
        >>> tenfold.save({"model": model.state_dict(), "step": 7}, "run/ckpt")
        PosixPath('run/ckpt')
        >>> tenfold.save(torch.arange(3), "order.npy")
        PosixPath('order.npy')
    """
    path_argument("save(obj, path)", path)
    rows = getattr(type(obj), "_save_rows", None)
    if rows is not None:
        if not checksums:
            raise ValueError("save: checksums: expected true for a data set, found false")
        done: Path = rows(
            obj,
            path,
            format=format,
            overwrite=overwrite,
            durable=durable,
            num_threads=num_threads,
            progress=progress,
        )
        return done
    from tenfold.tensordict._files.any_format import save_node

    try:
        tree = _core.tree(obj, os.fsdecode(path), bare=True)
    except UnsupportedError as error:
        if not (hasattr(obj, "__arrow_c_stream__") or hasattr(obj, "__dataframe__")):
            raise
        raise with_remedy(error, "tenfold.ingest(table, path) writes a table") from None
    return save_node(
        tree,
        path,
        format=format,
        durable=durable,
        checksums=checksums,
        num_threads=num_threads,
        overwrite=overwrite,
        progress=progress,
    )


@set_module("tenfold")
def load(
    path: PathLike,
    *,
    keys: Keys = None,
    exclude: Keys = None,
    map_location: Any = None,
    mode: Mode = "r",
    format: str | None = None,
    verify: bool = False,
    aliases: bool = True,
    allow_opaque: bool = False,
    progress: Progress = None,
    framework: Framework = None,
    device: Any = None,
) -> Any:
    """Loads a saved tree with the same nesting, key types and containers, over mapped files.

    Every selected leaf is mapped and the size of its file checked; tensors that are compressed or
    misaligned in the file, or moved to another device, are copied. The bytes of a mapped tensor are
    read from the disk later: on access, or ahead of it by background threads. So without such
    copies and without `verify`, loading is fast and takes little memory, independent of the size.
    Files stay mapped until the last tensor over them is released.

    All slots of a circular buffer (``create(..., capacity=n)``) are loaded, including those that
    another process is overwriting; `Dataset` returns complete rows only.

    Args:
        path: A file or folder in any format that `probe` recognises.
        keys: Load only these entries and all entries below them: dotted names, globs over dotted
            names (``"model.encoder.*"``), or tuples of keys. None: all; an empty list: nothing.
        exclude: Entries to omit, named like `keys`.
        map_location: Device for the tensors, as in ``Tensor.to``.
        mode: ``"r"``: the file never changes; torch tensors are private (copy on write), numpy
            arrays are read-only. ``"c"``: the same with writable numpy arrays. ``"r+"``: a shared
            mapping, writes reach the file.
        format: The name of the format. None: detected from the content, not from the suffix.
        verify: Compare checksums first: those of metadata, headers and the loaded tensors.
        aliases: Restore shared storage; if false, each tensor has its own memory.
        allow_opaque: Return objects of unsupported classes, and unreadable values, as `Opaque`
            with their pickled content. If false, the first of them raises an error. Nothing is
            imported or called either way.
        progress: As for `save`.
        framework: ``"torch"`` (``"pt"``) or ``"numpy"`` (``"np"``). None: torch if a device other
            than the CPU is given, otherwise the first that applies: `tenfold.set_framework`;
            ``TENFOLD_FRAMEWORK``; torch if it is imported; numpy if it is imported; torch if it is
            installed; numpy.
        device: The same as `map_location`.

    Returns:
        The saved containers; a TensorDict if one was saved; a single tensor or value if one was
        saved, as ``torch.load`` and ``np.load`` return it.

    Raises:
        FileNotFoundError: If `path` does not exist.
        KeyError: If one of `keys` or `exclude` matches nothing, or if one of them is given for a
            file of a single tensor or value.
        ValueError: If `map_location` and `device` are both given, the given one is no device,
            `mode`, `format` or `framework` is unknown, `aliases` is false with mode ``"r+"``, or
            `framework` is numpy with a device other than the CPU.
        ImportError: If torch is requested, or a device other than the CPU, and torch is missing.
        CorruptFileError: If the bytes violate the format.
        UnsupportedError: If the format is unknown or does not support `mode`, a selected entry
            cannot be read, or torch finds no CUDA device.
        OSError: If a system call failed.

    Example:
        >>> model.load_state_dict(tenfold.load("run/ckpt")["model"])
        <All keys matched successfully>
    """
    from tenfold._progress import Shown
    from tenfold.tensordict._dense import TensorDict
    from tenfold.tensordict._node import Opened

    if device is not None and map_location is not None:
        raise ValueError("load: expected map_location or device, found both")
    place = _place("map_location", map_location) if device is None else _place("device", device)
    name = decided(framework, needs_torch=place is not None)
    path_argument("load(path)", path)
    opened = Opened(os.fsdecode(path), mode, format or "", framework=name)
    paths = key_paths(keys)
    excluded = key_paths(exclude, "exclude")
    # With these options, a pickle of the TensorDict must contain the tensors: opening the file
    # again would not repeat the selection, the copy to a device or the separation of aliases.
    opened.changed = paths is not None or bool(excluded) or place is not None or not aliases
    with Shown(progress) as callback:
        node = _core.load(
            os.fspath(path),
            text("load: mode", mode),
            text_or_empty("load: format", format),
            paths,
            excluded,
            boolean("load: verify", verify),
            boolean("load: aliases", aliases),
            boolean("load: allow_opaque", allow_opaque),
            callback,
        )

    def wrap(native: Any, keys_above: tuple[str, ...]) -> TensorDict:
        made: TensorDict = TensorDict._from_native(native, opened, keys_above)
        if place is not None:
            made._replace_arrays(place)
        return made

    with using(name):
        return node.to_containers(mode, opened.tied, place, wrap)


@set_module("tenfold")
def open(
    path: PathLike,
    *,
    mode: Mode = "r",
    format: str | None = None,
    framework: Framework = None,
) -> TensorDict:
    """Opens a tree lazily: reads only metadata, in a ``memmap`` folder only the root's.

    All slots of a circular buffer (``create(..., capacity=n)``) are opened, including those that
    another process is overwriting.

    Args:
        path: A file or folder in any format that `probe` recognises.
        mode: As for `load`.
        format: The name of the format. None: detected from the content.
        framework: As for `load`. Determined once, in this call; pickles of the result keep it.

    Returns:
        TensorDict: The root. In a ``memmap`` folder, access to a node reads its metadata. Access to
        a tensor maps it, or copies it if it is compressed or misaligned. Dicts, lists, tuples and
        sparse tensors are nodes, too; `SparseMatrix` accepts a node of a sparse tensor, and
        ``to_dict()`` restores the containers. A single tensor or value is the entry ``"value"``
        (in an ``.npz`` file of `save`: ``"arr_0"``), which the file's name without its suffix
        selects as well: ``open("x.npy")["x"]``.

    Raises:
        FileNotFoundError, CorruptFileError, UnsupportedError, OSError: As for `load`.
        ValueError: If `mode`, `format` or `framework` is unknown.
        ImportError: If `framework` is torch, and torch is not installed.

    Example:
        >>> tenfold.open("run/ckpt")["model", "encoder.weight"].shape
        torch.Size([384, 384])
    """
    from tenfold.tensordict._files.any_format import open_tree

    return open_tree(path, mode, format, framework)


@set_module("tenfold")
def probe(path: PathLike) -> str:
    """Returns the name of the format of a file or folder, by content.

    Args:
        path: A file or folder.

    Returns:
        str: ``"memmap"``, ``"tdz"`` (an archive of a memmap folder), ``"safetensors"``, ``"npy"``,
            ``"npz"``, ``"pt"`` (torch.save), ``"consolidated"`` (a consolidated TensorDict),
            ``"parts"`` (a data set of parts), ``"snapshot"`` (torchsnapshot), ``"dcp"``
            (torch.distributed.checkpoint) or ``"bundle"`` (a folder of a trainer, or a step of a
            `CheckpointManager`).

    Raises:
        FileNotFoundError: If `path` does not exist.
        CorruptFileError: If `path` is neither a file nor a folder.
        UnsupportedError: If the format is unknown.
        OSError: If a system call failed.

    Example:
        >>> tenfold.probe("run/ckpt")
        'memmap'
    """
    return _core.probe(os.fspath(path_argument("probe(path)", path)))


@set_module("tenfold")
def scan(path: PathLike) -> ScanReport:
    """Lists the globals (classes and functions) that pickles refer to, and the risk of each.

    Args:
        path: A file of torch.save, a pickle, a zip archive with pickles or nested archives
            (``.npz`` too), a ``.npy`` file of objects or a file of torch.distributed.checkpoint;
            or a folder: scans its files at any depth, but does not follow links to folders.

    Returns:
        ScanReport: The globals and their risks. Nothing is imported, called or executed to find
            them. The report lists content that was not scanned as suspicious: compressed files,
            bytes after the end of a pickle, and, in a folder, unreadable files and folders, and
            links to folders outside it.

    Raises:
        FileNotFoundError: If `path` does not exist.
        CorruptFileError, UnsupportedError: If `path` is an archive that cannot be read. If `path`
            is a folder with such an archive, the report lists the archive as a finding instead.
        OSError: If the file, or the folder itself, cannot be read, for example for lack of
            permission.

    Example:
        >>> tenfold.scan("downloaded.pt").findings[0]
        ScanFinding(name='posix.system', risk='dangerous',
                    where='record "downloaded/data.pkl" at byte 18')
    """
    from tenfold._reports import ScanFinding, ScanReport

    num_pickles, findings = _core.scan(os.fspath(path_argument("scan(path)", path)))
    return ScanReport(tuple(ScanFinding(*found) for found in findings), num_pickles)


@set_module("tenfold")
def verify(path: PathLike, *, progress: Progress = None) -> VerifyReport:
    """Checks the structure and all checksums of a saved tree, in parallel and in bounded memory.

    Args:
        path: A file or folder in any format that `probe` recognises.
        progress: As for `save`.

    Returns:
        VerifyReport: Damage is reported, not raised.

    Raises:
        FileNotFoundError: If `path` does not exist.
        CorruptFileError: If `path` is neither a file nor a folder.
        UnsupportedError: If the format is unknown, for example if the file is a plain pickle.
        OSError: If a system call failed.

    Example:
        >>> report = tenfold.verify("run/ckpt")
        >>> report.ok, report.problems
        (True, ())
    """
    from tenfold._progress import Shown
    from tenfold._reports import verify_report

    path_argument("verify(path)", path)
    with Shown(progress) as callback:
        return verify_report(_core.verify(os.fspath(path), callback))


@set_module("tenfold")
def convert(
    src: PathLike,
    dst: PathLike,
    *,
    format: str | None = None,
    keys: Keys = None,
    exclude: Keys = None,
    rename: Rename = None,
    dtype: Any = None,
    shard_size: int | None = None,
    verify: bool = False,
    durable: bool = True,
    progress: Progress = None,
) -> Path:
    """Copies a tree into another format, in bounded memory, and replaces `dst` as `save` does.

    Args:
        src: A file or folder in any format that `probe` recognises.
        dst: Target path. A ``.npy`` file requires a tree whose only entry is a tensor, and does not
            store the name of the entry.
        format: The format of `dst`; None: by its suffix, as for `save`.
        keys: Only these entries, as for `load`.
        exclude: Entries to omit.
        rename: ``{old: new}`` of dotted names, a list of ``(regex, replacement)`` applied in order,
            or a callable from dotted name to dotted name. Names in a dict must exist;
            patterns may match nothing. If `src` is a single tensor or value, its name is
            ``"value"``; another name makes `dst` a dict.
        dtype: A floating-point dtype of torch or numpy, except float4, or its name. Floating-point
            tensors, except those of float4, are cast to it.
        shard_size: For a ``.safetensors.index.json``: the greatest number of tensor bytes in a
            shard with more than one tensor. None: 5 GB.
        verify: Compare the checksums of the converted entries first. The checksums of `dst` are
            computed from the bytes that are read. So without `verify`, the function `verify` does
            not find damage of `src` in `dst`.
        durable: fsync before returning.
        progress: As for `save`.

    Returns:
        Path: `dst`.

    Raises:
        UnsupportedError: If the format of `src` is unknown, or the format of `dst` can only be read
            or cannot store an entry. Nothing has been written.
        KeyError: If one of `keys`, `exclude` or the names in `rename` matches nothing.
        ValueError: If `format` is unknown, `dst` is inside the folder `src`, `dst` is a folder with
            files that its metadata does not name, `shard_size` is given although the format of
            `dst` has no shards, `dtype` is not a supported floating-point dtype, a pattern or
            replacement in `rename` is invalid, or two entries get the same name.
        FileNotFoundError, CorruptFileError, OSError: As for `load` and `save`. If `verify` finds
            damage, CorruptFileError is raised, and nothing has been written.

    Example:
        >>> tenfold.convert("model.safetensors", "model", rename=[("^bert[.]", "")])
        PosixPath('model')
    """
    from pathlib import Path

    from tenfold._interop.arrays import dtype_name
    from tenfold._progress import Shown

    path_argument("convert(src, dst)", src, "src")
    path_argument("convert(src, dst)", dst, "dst")
    shard_bytes = 0 if shard_size is None else integer("convert: shard_size", shard_size, 1)
    with Shown(progress) as callback:
        _core.convert(
            os.fspath(src),
            os.fspath(dst),
            text_or_empty("convert: format", format),
            key_paths(keys),
            key_paths(exclude, "exclude"),
            renamer(rename),
            exact_names(rename),
            None if dtype is None else text("convert: dtype", dtype_name(dtype)),
            shard_bytes,
            boolean("convert: durable", durable),
            boolean("convert: verify", verify),
            callback,
        )
    return Path(os.fsdecode(dst))


def key_paths(keys: Keys, name: str = "keys") -> list[tuple[str, ...]] | None:
    """Converts the argument `keys` of a call to a list of tuples; None for None.

    `keys` may be a single str. Each str is a dotted name or a glob, and becomes a tuple of one
    item. A tuple or list in `keys` is a path of keys, and becomes a tuple of str. `name` is the
    name of the argument, for messages.
    """
    if keys is None:
        return None
    if isinstance(keys, str):
        keys = [keys]
    if not isinstance(keys, Iterable):
        raise TypeError(f"{name}: expected a list of str and tuples of str, found {keys!r}")
    paths = []
    for key in keys:
        if not isinstance(key, (str, tuple, list)):
            raise TypeError(
                f"{name}: expected a list of str and tuples of str, found {key!r} in it"
            )
        path = (key,) if isinstance(key, str) else tuple(str(part) for part in key)
        if not path:
            raise ValueError(f"{name}: expected a str or a tuple of str, found an empty tuple")
        paths.append(path)
    return paths


def exact_names(rename: Rename) -> list[str]:
    """Returns the names in `rename` that must exist in the source: the keys of a dict."""
    return list(rename) if isinstance(rename, dict) else []


def renamer(rename: Rename) -> Callable[[str], str] | None:
    """Converts `rename=` to a function from old to new dotted name; None for None."""
    if rename is None or callable(rename):
        return rename
    if isinstance(rename, dict):
        names = rename
        return lambda name: names.get(name, name)
    is_list = isinstance(rename, Iterable) and not isinstance(rename, (str, bytes))
    pairs = list(rename) if is_list else []
    if not is_list or not all(_is_rule(pair) for pair in pairs):
        raise TypeError(
            "rename: expected a dict, a list of (regex, replacement) or a function, found "
            f"{rename!r}"
        )
    patterns = [(_compiled(pattern, replacement), replacement) for pattern, replacement in pairs]

    def apply(name: str) -> str:
        for pattern, replacement in patterns:
            name = pattern.sub(replacement, name)
        return name

    return apply


def _is_rule(pair: Any) -> bool:
    """True for a pair of a str or compiled regex and a replacement, a str or a function."""
    import re

    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        return False
    pattern, replacement = pair
    regex = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
    return isinstance(regex, str) and (isinstance(replacement, str) or callable(replacement))


def _compiled(pattern: str | re.Pattern[str], replacement: Any) -> re.Pattern[str]:
    import re

    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(
            f"rename: expected a regular expression, found {pattern!r}: {error}"
        ) from None
    try:
        if isinstance(replacement, str):
            compiled.sub(replacement, "")  # checks the references to groups, even without a match
    except (re.error, IndexError) as error:
        raise ValueError(
            f"rename: expected a replacement for {pattern!r}, found {replacement!r}: {error}"
        ) from None
    return compiled


def _place(name: str, value: Any) -> Callable[[Any], Any] | None:
    """Returns a function that moves tensors to a device; None for None and the CPU.

    `name` is the name of the argument `value`, for messages.
    """
    if value is None:
        return None
    from tenfold._interop.arrays import need_torch

    if str(value) == "cpu":
        return None
    torch = need_torch(f"load: {name}")
    try:
        device = torch.device(value)
    except (RuntimeError, TypeError):
        raise ValueError(
            f'load: {name}: expected a device such as "cpu" or "cuda:0", found {value!r}'
        ) from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UnsupportedError(
            f'load: {name}: expected an available device, found "{device}" although '
            f"torch.cuda.is_available() is false; omit {name}, or install a torch with CUDA"
        )
    return None if device.type == "cpu" else lambda tensor: tensor.to(device)


@set_module("tenfold")
def diff(
    a: Any, b: Any, *, rtol: float = 0, atol: float = 0, progress: Progress = None
) -> DiffReport:
    """Compares two trees. Each may be in any format or in memory.

    Tensors and JSON values of the two trees are matched by path; those without a match by path are
    matched by dotted name. Tensors are read in chunks, in parallel and in bounded memory. The order
    of keys, and whether a node is a dict or an OrderedDict, are ignored.

    Args:
        a: A path, or an object that `save` accepts, except a `Dataset`: containers of tensors, a
            TensorDict, a module, a tensor.
        b: The other tree, in the same forms.
        rtol: Finite elements of tensors are equal if ``|a - b| <= atol + rtol * |b|``. Elements
            that are not finite are equal if both are NaN or the same infinity. The real and
            imaginary parts of complex elements are compared separately. If `rtol` and `atol` are 0,
            the comparison is exact, also for 64-bit integers. Dtypes, shapes, JSON values and kinds
            of nodes (except dict and OrderedDict) must always be equal.
        atol: See `rtol`.
        progress: As for `save`.

    Returns:
        DiffReport: The differences: ``same``, ``added``, ``removed`` and ``changed``.

    Raises:
        FileNotFoundError, CorruptFileError, UnsupportedError, OSError: As for `open`.
            An object in memory raises the errors of `save`.
        TypeError: If a tolerance is not a number.
        ValueError: If a tolerance is negative, NaN or an int too large for a float.

    Example:
        >>> report = tenfold.diff("run/step_3", "run/step_4.safetensors", rtol=1e-5)
        >>> [(change.key, change.max_abs) for change in report.changed]
        [('model.weight', 0.0078125)]
    """
    from tenfold._progress import Shown
    from tenfold._reports import Change, DiffReport

    with Shown(progress) as callback:
        added, removed, changed, num_leaves, num_bytes = _core.diff(
            _node(a), _node(b), _tolerance("rtol", rtol), _tolerance("atol", atol), callback
        )
    return DiffReport(
        tuple(added),
        tuple(removed),
        tuple(Change(*found) for found in changed),
        num_leaves,
        num_bytes,
    )


def _node(source: Any) -> Any:
    if isinstance(source, (str, os.PathLike)):
        return _core.open(source, "r", "")
    return _core.tree(source, "", bare=True)


def _tolerance(name: str, value: Any) -> float:
    try:
        if isinstance(value, (str, bytes, bytearray)):  # float() would parse it
            raise TypeError
        return float(value)
    except OverflowError:
        raise ValueError(
            f"diff: {name}: expected a number that a float can hold, found a larger one"
        ) from None
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"diff: {name}: expected a float, found {value!r}") from None
