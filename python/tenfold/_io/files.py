"""Save, load, open, probe, verify, convert: the same for every format."""

from __future__ import annotations

import os

from tenfold import _core
from tenfold._interop.frameworks import decided, using
from tenfold._options import INT32_MAX, boolean, integer_or_zero, text, text_or_empty
from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Sequence
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
    """Saves a tree of tensors so that `path` holds, at every moment, the old version or the new.

    Tensors are written from where they are; those that share their bytes are stored once and stay
    tied. Nothing is pickled.

    Args:
        obj: Any nesting of dict, OrderedDict, list, tuple, None, bool, int, float and str with
            torch tensors, numpy arrays or anything with ``__dlpack__``; a TensorDict; anything with
            ``state_dict()``; a `Dataset` or a view of one. The keys of a dict are str, int, float,
            bool, None or tuples of these.
            In a ``.npy`` file, a tensor or array by itself.
        path: Where to. What is there is replaced, unless it holds other things.
        format: ``"memmap"``, ``"safetensors"``, ...; None: by the suffix of `path`, and a folder of
            memory-mapped files if it has none or an unknown one; one that resembles a known suffix
            (``.safetensor``) is a warning.
        durable: Return only when the data is on the device.
        checksums: Store checksums, which `verify` compares.
        num_threads: None: ``TENFOLD_NUM_THREADS``, or up to 8.
        overwrite: If false, an existing `path` is an error.
        progress: None (a bar on a terminal, if it takes over a second), False, or
            ``callable(done_bytes, total_bytes, what)``; an exception from it stops the work.

    Returns:
        Path: `path`.

    Raises:
        UnsupportedError: If the format cannot hold something; the message names its key. Nothing
            has been written.
        ValueError: If a key is none of these, two have one text, or a container holds itself.
        FileExistsError: If there is something at `path` and `overwrite` is false.
        OSError: If the system failed. The old version is untouched.

    Example:
        >>> tenfold.save({"model": model.state_dict(), "step": 7}, "run/ckpt")
        PosixPath('run/ckpt')
    """
    rows = getattr(type(obj), "_save_rows", None)
    if rows is not None:
        if not checksums:
            raise ValueError("save: checksums must be true for a data set, got False")
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
    return save_node(
        _core.tree(_named(obj, path, format), os.fsdecode(path)),
        path,
        format=format,
        durable=durable,
        checksums=checksums,
        num_threads=num_threads,
        overwrite=overwrite,
        progress=progress,
    )


def _named(obj: Any, path: PathLike, format: str | None) -> Any:
    """An array by itself under the name that it is read back with, where a file holds just one."""
    from tenfold._interop.arrays import is_array

    name = os.path.basename(os.fsdecode(path))
    is_npy = format == "npy" or (format is None and name.endswith(".npy") and name != ".npy")
    return {os.path.splitext(name)[0]: obj} if is_npy and is_array(obj) else obj


def save_node(
    node: Any,
    path: PathLike,
    *,
    format: str | None,
    durable: bool,
    checksums: bool,
    num_threads: int | None,
    overwrite: bool,
    progress: Progress,
) -> Path:
    """`save` of a tree that the engine holds."""
    from pathlib import Path

    from tenfold._progress import Shown

    with Shown(progress) as callback:
        _core.save(
            node,
            os.fspath(path),
            text_or_empty("save: format", format),
            boolean("save: durable", durable),
            boolean("save: checksums", checksums),
            integer_or_zero("save: num_threads", num_threads, INT32_MAX),
            boolean("save: overwrite", overwrite),
            callback,
        )
    return Path(os.fsdecode(path))


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
    """Loads what was saved: the same nesting, key types and containers, over mapped files.

    Every leaf is mapped and its file's size checked; the bytes are paged in when they are used, so
    loading takes little time and memory whatever the size. Files stay mapped until the last tensor
    over them is gone.

    Of a ring (``create(..., capacity=n)``) that somebody writes to it shows the slots as they are,
    half written ones too: `Dataset` gives whole rows.

    Args:
        path: A file or folder in any format that `probe` knows.
        keys: Only these leaves: dotted names, globs over dotted names (``"model.encoder.*"``), or
            tuples of keys. None: all; an empty list: nothing.
        exclude: But not these.
        map_location: Device that tensors are copied to, as ``Tensor.to`` takes it.
        mode: ``"r"``: the file never changes: torch tensors are private copies on write, numpy
            arrays are read-only. ``"c"``: the same with writable numpy arrays. ``"r+"``: writes
            reach the file.
        format: The name of the format; None: by content, never by suffix.
        verify: Compare checksums first: those of metadata, headers and what is loaded.
        aliases: Tensors that shared their bytes share them again.
        allow_opaque: Objects of classes that are not read, and values that cannot be read, come as
            `Opaque`, which says what they were made of. If false, they are an error that names
            them. Nothing is imported or called either way.
        progress: As for `save`.
        framework: ``"torch"`` (``"pt"``) or ``"numpy"`` (``"np"``): whose arrays. None:
            `tenfold.set_framework`; ``TENFOLD_FRAMEWORK``; torch if it is imported or a device is
            given; numpy if it is imported; torch if it is installed; numpy.
        device: The same as `map_location`.

    Returns:
        The containers that were saved; a TensorDict for what was one.

    Raises:
        FileNotFoundError: If there is nothing at `path`.
        KeyError: If one of `keys` or `exclude` names nothing.
        CorruptFileError: If the bytes break the promises of the format.
        UnsupportedError: If it is in no known format; if something that is not read is among what
            is loaded.

    Example:
        >>> model.load_state_dict(tenfold.load("run/ckpt")["model"])
        <All keys matched successfully>
    """
    from tenfold._progress import Shown
    from tenfold.tensordict._dense import TensorDict
    from tenfold.tensordict._node import Opened

    if device is not None and map_location is not None:
        raise ValueError("load: expected map_location or device, found both")
    place = _place(map_location if device is None else device)
    name = decided(framework, needs_torch=place is not None)
    opened = Opened(os.fsdecode(path), mode, format or "", framework=name)
    paths = key_paths(keys)
    excluded = key_paths(exclude)
    # What was selected or copied cannot be had by opening the file again.
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
    """Opens a tree lazily: reads the metadata of its root and no tensor byte.

    A ring that somebody writes to it shows as `load` does: slots, not rows.

    Args:
        path: A file or folder in any format that `probe` knows.
        mode: As for `load`.
        format: The name of the format; None: by content.
        framework: As for `load`. It is decided once, now, and pickled along.

    Returns:
        TensorDict: Its nodes read their metadata when they are entered, its tensors are mapped when
        they are asked for. Dicts, lists and tuples appear as nodes too, and so do sparse tensors,
        which `SparseMatrix` takes; ``to_dict()`` gives them back.

    Raises:
        FileNotFoundError, CorruptFileError, UnsupportedError, OSError: As for `load`.

    Example:
        >>> tenfold.open("run/ckpt")["model", "encoder.weight"].shape
        torch.Size([384, 384])
    """
    from tenfold.tensordict._dense import TensorDict
    from tenfold.tensordict._node import Opened

    opened = Opened(
        os.fsdecode(path), mode, format or "", keeps_parts=True, framework=decided(framework)
    )
    native = _core.open(
        os.fspath(path), text("open: mode", mode), text_or_empty("open: format", format)
    )
    made: TensorDict = TensorDict._from_native(native, opened)
    return made


@set_module("tenfold")
def probe(path: PathLike) -> str:
    """The name of the format that `path` is in, by content: ``"memmap"``, ``"safetensors"``, ...

    Raises:
        FileNotFoundError: If there is nothing at `path`.
        UnsupportedError: If it is in no known format.
    """
    return _core.probe(os.fspath(path))


@set_module("tenfold")
def scan(path: PathLike) -> ScanReport:
    """Lists every global (class or function) that the pickles in a file or folder name, with risks.

    Args:
        path: A file of torch.save, a pickle, a zip archive with pickles or archives in it
            (``.npz`` too), a ``.npy`` file of objects or a file of torch.distributed.checkpoint;
            or a folder, whose files are all looked into.

    Returns:
        ScanReport: Nothing was imported, called or executed. What was not looked into
            (compressed files, bytes after a pickle, in a folder also files and folders that
            cannot be read) is named as suspicious.

    Raises:
        FileNotFoundError: If there is nothing at `path`.
        CorruptFileError: If it is an archive that cannot be read; in a folder, that is a
            finding.
        PermissionError: If the file, or the folder itself, cannot be read.

    Example:
        >>> tenfold.scan("downloaded.pt").findings[0]
        ScanFinding(name='posix.system', risk='dangerous',
                    where='record "downloaded/data.pkl" at byte 18')
    """
    from tenfold._reports import ScanFinding, ScanReport

    num_pickles, findings = _core.scan(os.fspath(path))
    return ScanReport(tuple(ScanFinding(*found) for found in findings), num_pickles)


@set_module("tenfold")
def verify(path: PathLike, *, progress: Progress = None) -> VerifyReport:
    """Checks the whole structure and every checksum, in parallel and in bounded memory.

    Args:
        path: A file or folder in any format that `probe` knows.
        progress: As for `save`.

    Returns:
        VerifyReport: Damage is reported here, not raised.

    Raises:
        FileNotFoundError: If there is nothing at `path`.
        UnsupportedError: If it is in no known format, such as a plain pickle.

    Example:
        >>> report = tenfold.verify("run/ckpt")
        >>> report.ok, report.problems
        (True, ())
    """
    from tenfold._progress import Shown
    from tenfold._reports import verify_report

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
    durable: bool = True,
    progress: Progress = None,
) -> Path:
    """Copies a tree into another format, in bounded memory, and replaces `dst` as `save` does.

    Args:
        src: A file or folder in any format that `probe` knows.
        dst: Where to.
        format: Of `dst`; None: by its suffix, as for `save`.
        keys: Only these leaves, as for `load`.
        exclude: But not these.
        rename: ``{old: new}`` of dotted names, a list of ``(regex, replacement)`` applied in order,
            or a callable from dotted name to dotted name. A name that a dict gives must be there;
            patterns may match nothing.
        dtype: Casts floating-point tensors: a torch or numpy dtype, or its name.
        shard_size: Of a ``.safetensors.index.json``: the most bytes of tensors in a shard, unless
            it holds one tensor only. None: 5 GB.
        durable: Return only when the data is on the device.
        progress: As for `save`.

    Returns:
        Path: `dst`.

    Raises:
        UnsupportedError: If the format of `dst` cannot hold something; nothing has been written.
        KeyError: If one of `keys`, of `exclude` or of the names in `rename` names nothing.
        ValueError: If `dst` lies inside the folder `src`, or has no shards for a `shard_size`.

    Example:
        >>> tenfold.convert("model.safetensors", "model", rename=[("^bert[.]", "")])
        PosixPath('model')
    """
    from pathlib import Path

    from tenfold._interop.arrays import dtype_name
    from tenfold._progress import Shown

    if shard_size is not None and shard_size < 1:
        raise ValueError(f"shard_size: expected at least 1 byte, found {shard_size}")
    with Shown(progress) as callback:
        _core.convert(
            os.fspath(src),
            os.fspath(dst),
            text_or_empty("convert: format", format),
            key_paths(keys),
            key_paths(exclude),
            renamer(rename),
            exact_names(rename),
            None if dtype is None else text("convert: dtype", dtype_name(dtype)),
            integer_or_zero("convert: shard_size", shard_size),
            boolean("convert: durable", durable),
            callback,
        )
    return Path(os.fsdecode(dst))


def key_paths(keys: Keys) -> list[tuple[str, ...]] | None:
    """`keys=` as the engine takes it: one text is a dotted name or a glob, more are a path."""
    if keys is None:
        return None
    if isinstance(keys, str):
        keys = [keys]
    paths = []
    for key in keys:
        path = (key,) if isinstance(key, str) else tuple(str(part) for part in key)
        if not path:
            raise ValueError("keys: expected a str or a tuple of str, found an empty tuple")
        paths.append(path)
    return paths


def exact_names(rename: Rename) -> list[str]:
    """The names that `rename=` expects to find."""
    return list(rename) if isinstance(rename, dict) else []


def renamer(rename: Rename) -> Callable[[str], str] | None:
    """`rename=` as one function of dotted names."""
    if rename is None or callable(rename):
        return rename
    if isinstance(rename, dict):
        names = rename
        return lambda name: names.get(name, name)
    patterns = [(_compiled(pattern), replacement) for pattern, replacement in rename]

    def apply(name: str) -> str:
        for pattern, replacement in patterns:
            name = pattern.sub(replacement, name)
        return name

    return apply


def _compiled(pattern: str) -> re.Pattern[str]:
    import re

    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(
            f"rename: expected a regular expression, found {pattern!r}: {error}"
        ) from None


def _place(map_location: Any) -> Callable[[Any], Any] | None:
    if map_location is None:
        return None
    from tenfold._interop.arrays import import_torch

    if str(map_location) == "cpu":
        return None
    torch = import_torch()
    if torch is None:
        raise ImportError("map_location: moving tensors needs torch, which cannot be imported")
    try:
        device = torch.device(map_location)
    except (RuntimeError, TypeError):
        raise ValueError(
            f"load: map_location: expected a device of this machine, found {map_location!r}"
        ) from None
    return None if device.type == "cpu" else lambda tensor: tensor.to(device)


@set_module("tenfold")
def diff(
    a: Any, b: Any, *, rtol: float = 0, atol: float = 0, progress: Progress = None
) -> DiffReport:
    """Compares two trees, in any two formats or in memory.

    Tensors and JSON values are matched by path, else by dotted name. Tensors are read in pieces, in
    parallel: memory does not grow with them. The order of keys does not count, nor whether
    a dict is an OrderedDict.

    Args:
        a: A path, or what `save` takes: containers of tensors, a TensorDict, a module.
        b: The same.
        rtol: Values are the same if ``|a - b| <= atol + rtol * |b|``, and NaN if both are NaN. With
            zeros they are compared exactly, integers of 64 bits too.
        atol: See `rtol`. Dtypes, shapes, kinds of nodes and JSON values are compared exactly.
        progress: As for `save`.

    Returns:
        DiffReport: ``same``, ``added``, ``removed`` and ``changed``.

    Raises:
        FileNotFoundError, CorruptFileError, UnsupportedError, OSError: As for `open`.
        ValueError: If a tolerance is negative.

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
    return _core.tree(source, "")


def _tolerance(name: str, value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"diff: {name}: expected a float, found a larger number") from None
