"""The function `print_directory_tree`, with the interface of the one in `tensordict.utils`."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    PathLike = str | os.PathLike[str]

_UNITS = ("B", "KB", "MB", "GB", "TB")


def print_directory_tree(path: PathLike, indent: str = "", display_metadata: bool = True) -> str:
    """Prints `path` and everything below it, one name per line; folders end in a slash.

    Symbolic links below `path` are listed by their names, but not followed.

    Args:
        path: A folder, or a file.
        indent: Prefix of the line of each file and folder; each level adds four spaces.
        display_metadata: Print the total size of all files first, on a line without `indent`.

    Returns:
        str: The printed text.

    Raises:
        FileNotFoundError: If there is nothing at `path`.

    Example:
        >>> _ = TensorDict({"a": torch.zeros(3), "b": {"c": torch.ones(3)}}).memmap("saved")
        >>> _ = print_directory_tree("saved", display_metadata=False)
        saved/
            a.memmap
            b/
                c.memmap
                meta.json
            meta.json
    """
    path = os.fsdecode(path)
    os.stat(path)  # raises FileNotFoundError
    lines = []
    if display_metadata:
        lines.append(f"Directory size: {_readable(_size_of(path))}")
    lines.extend(_lines(path, indent, follows_link=True))
    text = "\n".join(lines)
    print(text)
    return text


def _lines(path: str, indent: str, *, follows_link: bool) -> list[str]:
    name = os.path.basename(os.path.normpath(path))
    is_link = os.path.islink(path) and not follows_link
    if is_link or not os.path.isdir(path):
        return [f"{indent}{name}"]
    lines = [f"{indent}{name}/"]
    for entry in sorted(os.listdir(path)):
        lines.extend(_lines(os.path.join(path, entry), indent + "    ", follows_link=False))
    return lines


def _size_of(path: str) -> int:
    if not os.path.isdir(path):
        return os.path.getsize(path)
    return sum(
        os.lstat(os.path.join(folder, name)).st_size
        for folder, _, names in os.walk(path)
        for name in names
    )


def _readable(size: float) -> str:
    for unit in _UNITS[:-1]:
        if size < 1024:
            return f"{size:.2f} {unit}"
        size /= 1024
    return f"{size:.2f} {_UNITS[-1]}"
