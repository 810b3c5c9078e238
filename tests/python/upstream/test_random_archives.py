"""Random zip archives: tenfold and Python's zipfile read equal members from valid archives."""

import io
import zipfile
import zlib

import numpy
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import tenfold

SETTINGS = settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

part = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\\/.:"),
    min_size=1,
    max_size=8,
)
names = st.lists(part, min_size=1, max_size=3).map("/".join)
members = st.lists(
    st.fixed_dictionaries(
        {
            "name": names,
            "data": st.one_of(
                st.binary(max_size=300),
                st.integers(0, 5000).map(lambda n: b"abc" * n),
            ),
            "deflated": st.booleans(),
            "level": st.integers(0, 9),
            "wide": st.booleans(),
            "extra": st.binary(max_size=12).map(
                lambda b: b"\xfe\xca" + len(b).to_bytes(2, "little") + b
            ),
            "comment": st.binary(max_size=9),
            "year": st.integers(1980, 2107),
        }
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda member: member["name"],
)


class Pipe(io.RawIOBase):
    """An output stream that cannot seek, so that zipfile writes data descriptors after members."""

    def __init__(self):
        self.bytes = bytearray()

    def writable(self):
        return True

    def write(self, more):
        self.bytes += more
        return len(more)


def archive_of(listed, comment, through_pipe):
    target = Pipe() if through_pipe else io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.comment = comment
        for member in listed:
            info = zipfile.ZipInfo(member["name"] + ".npy", (member["year"], 1, 2, 3, 4, 6))
            info.compress_type = zipfile.ZIP_DEFLATED if member["deflated"] else zipfile.ZIP_STORED
            info._compresslevel = member["level"]
            info.extra = member["extra"]
            info.comment = member["comment"]
            with archive.open(info, "w", force_zip64=member["wide"]) as file:
                file.write(npy_of(member["data"]))
    return bytes(target.bytes) if through_pipe else target.getvalue()


def npy_of(data):
    file = io.BytesIO()
    numpy.lib.format.write_array(file, numpy.frombuffer(data, numpy.uint8))
    return file.getvalue()


def contents_of(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {
            info.filename: (archive.read(info), info.CRC, info.file_size)
            for info in archive.infolist()
        }


def compare(path, theirs):
    """Asserts that tenfold reads the members `theirs`: names in order, sizes, CRC-32s, contents."""
    ours = tenfold.load(path, verify=True)
    assert [f"{key}.npy" for key in ours] == list(theirs)
    for key, array in ours.items():
        content, crc, size = theirs[f"{key}.npy"]
        mine = npy_of(array.numpy().tobytes())
        assert mine == content
        assert (zlib.crc32(mine), len(mine)) == (crc, size)
    report = tenfold.verify(path)
    assert report.ok, report.problems
    assert report.num_checksums == report.num_leaves == len(theirs)


@SETTINGS
@given(listed=members, comment=st.binary(max_size=20), through_pipe=st.booleans())
def test_any_archive_is_read_as_by_zipfile(tmp_path, listed, comment, through_pipe):
    data = archive_of(listed, comment, through_pipe)
    (tmp_path / "x.npz").write_bytes(data)
    compare(tmp_path / "x.npz", contents_of(data))


@SETTINGS
@given(listed=members, comment=st.binary(max_size=20), data=st.data())
def test_mutated_archive_is_refused_or_read_as_by_zipfile(tmp_path, listed, comment, data):
    raw = bytearray(archive_of(listed, comment, data.draw(st.booleans())))
    where = st.integers(0, len(raw) - 1)
    # Many changes are in the last 200 bytes, which contain directory records of the archive.
    late = st.integers(max(0, len(raw) - 200), len(raw) - 1)
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.one_of(late, where))] = data.draw(st.integers(0, 255))
    path = tmp_path / "x.npz"
    path.write_bytes(raw)
    try:
        ours = tenfold.load(path, verify=True, format="npz")
    except (tenfold.CorruptFileError, tenfold.UnsupportedError):
        return
    try:
        theirs = contents_of(bytes(raw))
    except NotImplementedError:
        assume(False)  # zipfile checks which version of zip a member requires
    except zipfile.BadZipFile as error:
        # tenfold must check all fields of the directory that zipfile checks, even those that do not
        # affect the contents, such as disk numbers.
        pytest.fail(f"zipfile refuses what tenfold reads: {error}")
    assume(all(name.endswith(".npy") for name in theirs))
    assert [f"{key}.npy" for key in ours] == list(theirs)
    for key, array in ours.items():
        header_and_bytes = theirs[f"{key}.npy"][0]
        expected = numpy.lib.format.read_array(io.BytesIO(header_and_bytes))
        assert array.numpy().tobytes() == expected.tobytes()


@settings(SETTINGS, max_examples=60)
@given(
    contents=st.dictionaries(names, st.binary(max_size=2000), max_size=6),
    checksums=st.booleans(),
)
def test_zipfile_reads_archives_of_tenfold(tmp_path, contents, checksums):
    # Copies, because CPython uses the same object for equal bytes objects of length 1, and tenfold
    # refuses aliases in an .npz file.
    arrays = {key: numpy.frombuffer(data, numpy.uint8).copy() for key, data in contents.items()}
    for path in (tmp_path / "x.npz", tmp_path / "x.tdz"):
        tenfold.save(arrays, path, durable=False, checksums=checksums)
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            assert len(set(archive.namelist())) == len(archive.namelist())
            if path.suffix == ".npz":
                listed = {info.filename: info.file_size for info in archive.infolist()}
                assert listed == {f"{k}.npy": len(npy_of(v)) for k, v in contents.items()}
                for key, data in contents.items():
                    found = numpy.lib.format.read_array(archive.open(f"{key}.npy"))
                    assert found.tobytes() == data
