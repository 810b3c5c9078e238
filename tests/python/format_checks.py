"""Compares the files that format_reader.py reads, and parts of data sets, with their checksums."""

import json
import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from format_reader import open_file
from format_tables import parts
from xxh3 import xxh3

BLOCK = 16 << 20


def hex16(data: bytes) -> str:
    return f"{xxh3(data):016x}"


def wrong_checksums(path: str | Path) -> list[str]:
    """Returns the names of tensors, files and documents that differ from their checksum.

    If there are no checksums, raises a KeyError for a safetensors file, and returns ["%checksums"]
    for a folder. In an archive, compares the CRC-32 values, and names only the first entry that
    differs. Also compares the checksum in the comment of the archive, if there is one.
    """
    path, wrong = Path(path), []
    if path.suffix == ".safetensors":
        checks = checks_of_safetensors(path.read_bytes())
    elif path.is_dir():
        checks = checks_of_folder(path)
    else:
        archive = zipfile.ZipFile(path)
        checks, wrong = checks_of_archive(archive, path.read_bytes()), [archive.testzip()]
    wrong += [name for name, data, checksum in checks if hex16(data) != checksum]
    return [name for name in wrong if name]


def wrong_parts(path: str | Path) -> list[str]:
    """Returns the parts that differ from the manifest, and their files with wrong checksums.

    Open parts may have more rows than the manifest states. Their checksums are not compared.
    """
    wrong = []
    for part in parts(path):
        folder, is_open = Path(path) / part["path"], part.get("open", False)
        num_rows = open_file(folder).tree.info["batch_size"][0]
        is_right = num_rows >= part["num_rows"] if is_open else num_rows == part["num_rows"]
        if (folder / "%checksums").is_file() and not is_open:
            is_right &= hex16((folder / "%checksums").read_bytes()) == part["checksum"]
            wrong += [f"{part['path']}/{name}" for name in wrong_checksums(folder)]
        wrong += [] if is_right else [part["path"]]
    return wrong


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def box(data: bytes, shape: list[int], offsets: list[int], sizes: list[int]) -> bytes:
    slices = tuple(slice(at, at + size) for at, size in zip(offsets, sizes, strict=True))
    return np.frombuffer(data, "u1").reshape(shape)[slices].tobytes()


def checks_of_folder(path: Path) -> Iterator[tuple[str, bytes, str]]:
    file = path / "%checksums"
    body, _, last = (file.read_bytes() if file.is_file() else b"").rpartition(b"xxh3 ")
    yield "%checksums", body, last.decode().strip()
    for line in body.decode().splitlines():
        checksum, offset, length, name = line.split(" ", 3)
        if offset == "box":
            offsets, sizes, name = name.split(" ", 2)
            boxes = map(numbers, (length, offsets, sizes))
            yield name, box((path / name).read_bytes(), *boxes), checksum
        elif not line.startswith("#"):
            data = (path / name).read_bytes() if (path / name).is_file() else b""
            yield name, data[int(offset) :][: int(length)], checksum


def checks_of_archive(archive: zipfile.ZipFile, data: bytes) -> Iterator[tuple[str, bytes, str]]:
    structure, pieces, end = bytearray(data), [], 0
    for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
        at = info.header_offset
        structure[at + 14 : at + 18] = bytes(4)
        begin = at + 30 + sum(struct.unpack_from("<HH", data, at + 26))
        pieces.append(structure[end:begin])
        end = begin + info.compress_size
    at = archive.start_dir
    while data[at : at + 4] == b"PK\1\2":
        structure[at + 16 : at + 20] = bytes(4)
        at += 46 + sum(struct.unpack_from("<HHH", data, at + 28))
    pieces.append(structure[end : len(data) - len(archive.comment)])
    if archive.comment:
        yield "structure", b"".join(pieces), archive.comment.decode().removeprefix("tenfold_xxh3 ")


def checks_of_safetensors(data: bytes) -> Iterator[tuple[str, bytes, str]]:
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = json.loads(data[8:start])
    metadata = tensors.pop("__metadata__", {})
    boxes = metadata.get("tenfold_boxes")
    text = boxes or metadata["tenfold_xxh3"]
    yield "header", data[:start].replace(text[:16].encode(), b"0" * 16, 1), text[:16]
    of_blocks, of_tensors = iter(re.findall("[0-9a-f]{16}", text[16:])), iter(text.split(";")[1:])
    for name, entry in sorted(tensors.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = (start + offset for offset in entry["data_offsets"])
        shape, itemsize = entry["shape"], (end - begin) // max(int(np.prod(entry["shape"])), 1)
        for at in range(begin, end, BLOCK) if not boxes else ():
            yield name, data[at : min(at + BLOCK, end)], next(of_blocks)
        for checksum, *where in (part.split(":") for part in next(of_tensors, "").split()):
            offsets, sizes = map(numbers, where) if where else ([0] * len(shape), shape)
            in_box = box(data[begin:end], [*shape, itemsize], [*offsets, 0], [*sizes, itemsize])
            yield name, in_box, checksum
