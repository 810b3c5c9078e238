"""Sparse files of more than 4 GiB, and archives of more than 65,535 members."""

import os
import struct
import zipfile

import pytest
import torch

import tenfold

GIB = 1 << 30


@pytest.fixture
def sparse_files(tmp_path):
    """A folder for large sparse files. Skips the test if the file system does not support them."""
    probe = tmp_path / "probe"
    with probe.open("wb") as file:
        file.truncate(1 << 20)
    if probe.stat().st_blocks * 512 > 1 << 16:
        pytest.skip("sparse files are unsupported here")
    probe.unlink()
    yield tmp_path
    taken = sum(path.stat().st_blocks * 512 for path in tmp_path.rglob("*"))
    assert taken < 16 << 20, "a test of sparse files filled the disk"


def put(path, offset, data):
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def data_offset(path, name):
    with zipfile.ZipFile(path) as archive:
        header_offset = archive.getinfo(name).header_offset
    with path.open("rb") as file:
        file.seek(header_offset)
        lengths = struct.unpack("<HH", file.read(30)[26:])
    return header_offset + 30 + sum(lengths)


def test_storages_above_2_and_4_gib_load_as_in_torch(sparse_files):
    path = sparse_files / "m.pt"
    large = torch.empty(5 * GIB // 4, dtype=torch.int32)
    tree = {
        "over_2": torch.empty(3 * GIB, dtype=torch.uint8),
        "over_4": large,
        "tied": large[-10:],
        "after": torch.arange(5),
    }
    with torch.serialization.skip_data():
        torch.save(tree, path)
    assert path.stat().st_size > 8 * GIB
    put(path, data_offset(path, "m/data/0") + 3 * GIB - 1, b"\x07")
    put(path, data_offset(path, "m/data/1") + 5 * GIB - 8, struct.pack("<ii", -5, 6))
    put(path, data_offset(path, "m/data/2"), torch.arange(5).numpy().tobytes())
    theirs = torch.load(path, weights_only=True, mmap=True)
    for ours in (tenfold.load(path), tenfold.open(path).to_dict()):
        for key, tensor in tree.items():
            assert ours[key].shape == tensor.shape
            assert torch.equal(ours[key][-10:], theirs[key][-10:])
        assert ours["over_2"][-1] == 7
        assert ours["tied"].tolist() == [0] * 8 + [-5, 6]
        assert ours["after"].tolist() == [0, 1, 2, 3, 4]
        assert ours["tied"].data_ptr() == ours["over_4"][-10:].data_ptr()


def test_a_small_tensor_of_a_large_file_is_converted(sparse_files):
    path = sparse_files / "m.pt"
    with torch.serialization.skip_data():
        torch.save({"large": torch.empty(5 * GIB, dtype=torch.uint8), "x": torch.ones(3)}, path)
    put(path, data_offset(path, "m/data/1"), torch.ones(3).numpy().tobytes())
    tenfold.convert(path, sparse_files / "x.safetensors", keys="x")
    assert tenfold.load(sparse_files / "x.safetensors")["x"].tolist() == [1, 1, 1]


def test_safetensors_file_above_4_gib_is_read(sparse_files):
    path = sparse_files / "m.safetensors"
    end = 5 * GIB
    header = (
        f'{{"large":{{"dtype":"I32","shape":[{end // 4}],"data_offsets":[0,{end}]}},'
        f'"after":{{"dtype":"U8","shape":[3],"data_offsets":[{end},{end + 3}]}}}}'
    ).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(path, 8 + len(header) + end + 3)
    put(path, 8 + len(header) + end - 4, struct.pack("<i", -7) + b"abc")
    ours = tenfold.open(path)  # load() would prefetch the whole file
    assert ours["large"][-2:].tolist() == [0, -7]
    assert ours["after"].tolist() == [97, 98, 99]


COUNT = 66_000


def test_npz_with_more_than_65535_members_is_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        for i in range(COUNT):
            archive.writestr(f"{i}.npy", _npy(i))
    ours = tenfold.load(tmp_path / "x.npz")
    assert list(ours) == [str(i) for i in range(COUNT)]
    assert [ours[key].item() for key in ("0", "65535", "65999")] == [0, 65_535, 65_999]


def _npy(number):
    header = b"{'descr': '<i4', 'fortran_order': False, 'shape': (1,), }"
    header = header.ljust(117) + b"\n"
    return (
        b"\x93NUMPY\x01\x00"
        + len(header).to_bytes(2, "little")
        + header
        + number.to_bytes(4, "little")
    )


def test_torch_file_with_more_than_65535_storages_round_trips(tmp_path):
    numbers = torch.arange(COUNT, dtype=torch.int32)
    path = tmp_path / "x.pt"
    tenfold.save([number.clone() for number in numbers], path, durable=False)
    for loaded in (tenfold.load(path), torch.load(path, weights_only=True, mmap=True)):
        assert len(loaded) == COUNT
        assert [loaded[i].item() for i in (0, 65_535, 65_999)] == [0, 65_535, 65_999]
    with zipfile.ZipFile(path) as archive:
        assert len(archive.namelist()) > COUNT
