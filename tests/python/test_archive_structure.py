"""Changes of an archive outside the data of its entries, where no CRC-32 detects them.

`verify` detects them with a checksum in the archive comment. Other readers ignore the comment.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import zipfile

import numpy
import pytest
import torch

import tenfold

tensordict = pytest.importorskip("tensordict")

SUFFIXES = ["pt", "tdz", "npz"]
CHANGED = "bytes outside the entries changed since tenfold wrote them"


@pytest.fixture(params=SUFFIXES)
def archive(request, tmp_path):
    path = tmp_path / f"x.{request.param}"
    tenfold.save({f"w{i}": torch.arange(20.0) + i for i in range(6)}, path)
    return path


def flip(path, bit):
    with open(path, "r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def is_detected(path):
    try:
        return not tenfold.verify(path).ok
    except tenfold.Error:  # its first bytes match no format any more
        return True


def test_random_bit_flips_are_detected(archive):
    generator = random.Random(0)
    missed = []
    for bit in generator.sample(range(8 * os.path.getsize(archive)), 900):
        flip(archive, bit)
        if not is_detected(archive):
            missed.append(bit)
        flip(archive, bit)
    assert missed == []
    assert tenfold.verify(archive).ok


def test_bit_flips_in_the_central_directory_are_detected(archive):
    with zipfile.ZipFile(archive) as file:
        begin = file.start_dir
    missed = []
    for bit in range(8 * begin, 8 * os.path.getsize(archive), 3):
        flip(archive, bit)
        if not is_detected(archive):
            missed.append(bit)
        flip(archive, bit)
    assert missed == []


def change_date(path):
    """Changes the date in the first local header, which no CRC-32 covers."""
    with open(path, "r+b") as file:
        file.seek(12)
        file.write(struct.pack("<H", 0x22))


def test_problem_names_the_archive_and_the_remedy(archive):
    change_date(archive)
    (problem,) = tenfold.verify(archive).problems
    assert (problem.path, problem.part) == (str(archive), "archive")
    assert problem.what.startswith(
        f"{CHANGED}: damage, or another tool edited the archive: expected the comment "
    )
    remedy = "refresh_archive_checksums" if archive.suffix == ".tdz" else "save it again"
    assert remedy in problem.what
    assert torch.equal(torch.as_tensor(tenfold.load(archive)["w3"]), torch.arange(20.0) + 3)


def test_entry_added_by_another_tool_is_detected(tmp_path):
    path = tmp_path / "x.tdz"
    tenfold.save({"w": torch.ones(3)}, path)
    with zipfile.ZipFile(path, "a") as file:  # keeps the comment
        file.writestr("more.txt", "more")
    assert [CHANGED in problem.what for problem in tenfold.verify(path).problems] == [True]
    tenfold.refresh_archive_checksums(path)
    assert tenfold.verify(path).ok


@pytest.mark.parametrize("comment", [b"", b"made by hand"])
def test_archives_without_our_comment_verify(archive, comment):
    with zipfile.ZipFile(archive, "a") as file:
        file.comment = comment
    change_date(archive)
    assert tenfold.verify(archive).ok


def test_archives_written_by_other_tools_verify(tmp_path):
    torch.save({"w": torch.ones(3)}, tmp_path / "x.pt")
    numpy.savez(tmp_path / "x.npz", w=numpy.ones(3))
    tensordict.TensorDict({"w": torch.ones(3)}, batch_size=[3]).memmap(tmp_path / "x.tdz")
    for suffix in SUFFIXES:
        assert tenfold.verify(tmp_path / f"x.{suffix}").ok


def test_mode_r_plus_keeps_the_archive_checksum_valid(tmp_path):
    path = tmp_path / "x.tdz"
    tenfold.save({"w": torch.zeros(1000), "n": {"v": torch.ones(3)}}, path)
    tree = tenfold.open(path, mode="r+")
    tree["w"][5] = 7.0
    tree["n"]["v"][0] = 8.0
    tree.flush()
    assert tenfold.verify(path).ok
    tree["w"][6] = 9.0
    del tree
    assert tenfold.verify(path).ok
    assert tenfold.load(path)["w"][5:7].tolist() == [7.0, 9.0]


def test_packed_and_deflated_archives_have_the_checksum(tmp_path):
    tree = tenfold.TensorDict({"w": torch.zeros(1000), "v": torch.ones(3)}, batch_size=[])
    tree.memmap(tmp_path / "folder")
    tenfold.pack_memmap(tmp_path / "folder", tmp_path / "packed.tdz")
    tree.memmap(tmp_path / "deflated.tdz", compression="deflate")
    for name in ["packed.tdz", "deflated.tdz"]:
        assert tenfold.verify(tmp_path / name).ok
        change_date(tmp_path / name)
        assert CHANGED in tenfold.verify(tmp_path / name).problems[0].what


@pytest.mark.parametrize("suffix", ["pt", "npz"])
def test_empty_dict_round_trips_and_damage_is_detected(tmp_path, suffix):
    path = tmp_path / f"x.{suffix}"
    tenfold.save({}, path)
    assert tenfold.load(path) == {}
    assert tenfold.verify(path).ok
    flip(path, 8 * (os.path.getsize(path) - 1))
    assert is_detected(path)


def test_upstream_readers_ignore_the_comment(archive):
    expected = torch.arange(20.0) + 3
    with zipfile.ZipFile(archive) as file:
        assert file.testzip() is None
        assert file.comment.startswith(b"tenfold_xxh3 ")
    if archive.suffix == ".pt":
        for options in [{}, {"weights_only": True}, {"weights_only": True, "mmap": True}]:
            assert torch.equal(torch.load(archive, **options)["w3"], expected)
    elif archive.suffix == ".npz":
        with numpy.load(archive) as arrays:
            assert arrays["w3"].tolist() == expected.tolist()
    else:
        read = tensordict.TensorDict.load_memmap(archive)
        assert torch.equal(read["w3"], expected)
    unzip = shutil.which("unzip")
    if unzip:
        subprocess.run([unzip, "-tqq", archive], check=True)
