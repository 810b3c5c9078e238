"""tensordict and tenfold read each other's archives (.tdz)."""

import gc
import pickle
import warnings
import zipfile

import pytest
import tensordict
import torch
import trees
from describe import assert_same, describe, order, without
from ours import as_tenfold, describe_ours
from tensordict import TensorDict
from trees import TREES

import tenfold

NAMES = list(TREES)
LOADABLE_BY_TENSORDICT = [name for name in NAMES if not TREES[name].upstream_load_raises]
PLAIN = ["nested", "tensorclass_in_a_tensorclass", "lazy_stack_below_a_node", "json_containers"]


def members(path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def tree_of(folder) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def sample(**extra):
    return tenfold.TensorDict({"a": torch.arange(6.0), "n": {"b": torch.ones(6, 2)}, **extra}, [6])


# --- tensordict writes ---


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("compression", [None, "deflate"])
def test_tenfold_reads_archives_packed_by_tensordict(name, compression, memmap_of, tmp_path):
    path = tensordict.pack_memmap(memmap_of(name), tmp_path / "t.tdz", compression=compression)
    expected = without(describe(trees.build(name)), TREES[name].not_described)
    assert tenfold.probe(path) == "tdz"
    found = describe_ours(tenfold.open(path))
    assert_same(found, expected)
    assert order(found) == order(expected)
    assert_same(describe_ours(tenfold.load(path)), expected)


@pytest.mark.parametrize("name", PLAIN)
def test_archives_packed_by_tensordict_verify(name, memmap_of, tmp_path):
    path = tensordict.pack_memmap(memmap_of(name), tmp_path / "t.tdz")
    report = tenfold.verify(path)
    assert report.ok
    assert report.num_checksums == len(members(path))


def test_changes_by_tensordict_are_detected_and_checksums_refreshed(tmp_path):
    path = tmp_path / "t.tdz"
    TensorDict({"a": torch.zeros(4)}).save(path)
    TensorDict.load_memmap(path, mode="r+")["a"].add_(1)
    (problem,) = tenfold.verify(path).problems
    assert "refresh_archive_checksums" in problem.what
    assert tenfold.refresh_archive_checksums(path) == path
    assert tenfold.verify(path).ok
    assert zipfile.ZipFile(path).testzip() is None


def test_archive_functions_report_progress_and_can_be_cancelled(tmp_path):
    path = tmp_path / "t.tdz"
    TensorDict({"a": torch.zeros(1 << 20)}).save(path)
    TensorDict.load_memmap(path, mode="r+")["a"].add_(1)
    before = path.read_bytes()

    def stop(done, total, what):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tenfold.refresh_archive_checksums(path, progress=stop)
    assert path.read_bytes() == before
    told = []
    tenfold.refresh_archive_checksums(path, progress=lambda *report: told.append(report))
    assert told[-1][0] == told[-1][1] >= 4 << 20
    for work in (
        lambda progress: tenfold.unpack_memmap(path, tmp_path / "folder", progress=progress),
        lambda progress: tenfold.pack_memmap(
            tmp_path / "folder", tmp_path / "new.tdz", progress=progress
        ),
    ):
        with pytest.raises(KeyboardInterrupt):
            work(stop)
        # No temporary file remains, whether the interrupt came before or after the commit.
        names = {entry.name for entry in tmp_path.iterdir()}
        assert names <= {"t.tdz", "folder", "new.tdz"}
        told.clear()
        work(lambda *report: told.append(report))
        assert told[-1][0] == told[-1][1] > 4 << 20


@pytest.mark.parametrize("compression", ["bzip2", "lzma"])
def test_other_compressions_are_refused_by_name(compression, tmp_path):
    TensorDict({"a": torch.zeros(400)}).save(tmp_path / "t.tdz", compression=compression)
    with pytest.raises(tenfold.UnsupportedError, match=compression):
        tenfold.open(tmp_path / "t.tdz")


# --- tenfold writes ---


@pytest.mark.parametrize("name", LOADABLE_BY_TENSORDICT)
def test_tensordict_loads_saved_archives(name, tmp_path):
    tenfold.save(trees.build(name), tmp_path / "t.tdz", durable=False)
    found = TensorDict.load_memmap(tmp_path / "t.tdz")
    assert_same(
        describe(found), without(describe(trees.build(name)), TREES[name].upstream_cannot_load)
    )


@pytest.mark.parametrize("name", NAMES)
def test_saved_archives_round_trip(name, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tenfold.save(trees.build(name), tmp_path / "t.tdz", durable=False)
    assert_same(
        describe_ours(tenfold.load(tmp_path / "t.tdz", verify=True)), describe(trees.build(name))
    )


@pytest.mark.parametrize("name", PLAIN)
def test_memmap_writes_the_archive_members_of_tensordict(name, memmap_of, tmp_path):
    as_tenfold(trees.build(name)).memmap(tmp_path / "ours.tdz")
    tensordict.pack_memmap(memmap_of(name), tmp_path / "theirs.tdz")
    ours, theirs = members(tmp_path / "ours.tdz"), members(tmp_path / "theirs.tdz")
    assert list(ours) == list(theirs)
    assert ours == theirs


def test_tensors_are_64_byte_aligned_in_one_mapping(tmp_path):
    sample().memmap(tmp_path / "t.tdz")
    loaded = tenfold.TensorDict.load_memmap(tmp_path / "t.tdz")
    distance = loaded["n", "b"].data_ptr() - loaded["a"].data_ptr()
    assert loaded["a"].data_ptr() % 64 == 0
    assert distance % 64 == 0
    assert 0 < distance < 4096


# --- mode "r+" and further methods ---


def test_mode_r_plus_updates_the_file_and_its_checksums(tmp_path):
    path = tmp_path / "t.tdz"
    sample().memmap(path)
    through = tenfold.TensorDict.load_memmap(path, mode="r+")
    through["n", "b"][2] = 7
    through.flush()
    assert zipfile.ZipFile(path).testzip() is None
    through["a"][0] = -1
    a = through["a"]
    del through
    a[1] = -2
    del a
    gc.collect()
    assert zipfile.ZipFile(path).testzip() is None
    theirs = TensorDict.load_memmap(path)
    assert theirs["a"].tolist() == [-1, -2, 2, 3, 4, 5]
    assert theirs["n", "b"][2].tolist() == [7, 7]


def test_default_mode_does_not_change_the_file(tmp_path):
    path = tmp_path / "t.tdz"
    before = sample().memmap(path) is not None and path.read_bytes()
    tenfold.TensorDict.load_memmap(path)["a"].zero_()
    assert path.read_bytes() == before


def test_memmap_like_makes_zeros_that_can_be_written(tmp_path):
    path = tmp_path / "t.tdz"
    like = sample().memmap_like(path)
    assert tenfold.verify(path).ok
    like["a"][:] = torch.arange(6)
    del like
    gc.collect()
    assert zipfile.ZipFile(path).testzip() is None
    assert TensorDict.load_memmap(path)["a"].tolist() == list(range(6))


def test_archive_option_overrides_the_suffix(tmp_path):
    sample().memmap(tmp_path / "data", archive=True)
    assert tenfold.is_memmap_archive(tmp_path / "data")
    assert tensordict.is_memmap_archive(tmp_path / "data")
    sample().save(tmp_path / "more", archive=True)
    assert tenfold.TensorDict.load_memmap(tmp_path / "more")["a"].tolist() == list(range(6))
    sample().memmap(tmp_path / "folder.tdz", archive=False)
    assert (tmp_path / "folder.tdz/meta.json").exists()
    assert (sample().save(tmp_path / "saved.tdz", archive=False) == sample()).all()
    assert (tmp_path / "saved.tdz/meta.json").exists()
    with pytest.raises(ValueError, match="found a folder"):
        sample().memmap(tmp_path / "folder.tdz")


def test_existsok_false_keeps_an_existing_archive(tmp_path):
    path = tmp_path / "t.tdz"
    sample().memmap(path)
    before = path.read_bytes()
    with pytest.raises(RuntimeError, match="already exists"):
        sample().memmap(path, existsok=False)
    assert path.read_bytes() == before


def test_subpath_loads_a_child_node(tmp_path):
    sample().memmap(tmp_path / "t.tdz")
    part = tenfold.TensorDict.load_memmap(tmp_path / "t.tdz", subpath="n")
    assert part["b"].shape == (6, 2)


def test_loaded_archive_pickles_by_path(tmp_path):
    tenfold.TensorDict({"a": torch.zeros(100_000)}).memmap(tmp_path / "t.tdz")
    loaded = tenfold.TensorDict.load_memmap(tmp_path / "t.tdz")
    data = pickle.dumps(loaded)
    assert len(data) < 10_000
    assert pickle.loads(data)["a"].shape == (100_000,)


def test_a_folder_is_converted_to_an_archive_and_back(tmp_path):
    state = {"w": [torch.ones(3), (1, 2)], "tied": torch.zeros(2)}
    state["also"] = state["tied"]
    tenfold.save(state, tmp_path / "a")
    tenfold.convert(tmp_path / "a", tmp_path / "b.tdz")
    tenfold.convert(tmp_path / "b.tdz", tmp_path / "c")
    loaded = tenfold.load(tmp_path / "c")
    assert loaded["w"][1] == (1, 2)
    assert loaded["also"].data_ptr() == loaded["tied"].data_ptr()


def test_functions_refuse_files_that_are_not_archives(tmp_path):
    (tmp_path / "x").write_bytes(b"PK\3\4")
    assert not tenfold.is_memmap_archive(tmp_path / "x")
    assert not tenfold.is_memmap_archive(tmp_path / "nothing")
    with pytest.raises(ValueError, match="not a memory-mapped tensordict archive"):
        tenfold.refresh_archive_checksums(tmp_path / "x")
    with pytest.raises(FileNotFoundError):
        tenfold.refresh_archive_checksums(tmp_path / "nothing")


# --- packing, unpacking, deflating ---


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("compression", [None, "deflate"])
def test_tensordict_reads_archives_packed_by_tenfold(name, compression, memmap_of, tmp_path):
    path = tenfold.pack_memmap(memmap_of(name), tmp_path / "t.tdz", compression=compression)
    expected = tensordict.pack_memmap(memmap_of(name), tmp_path / "theirs.tdz")
    assert list(members(path)) == list(members(expected))
    assert members(path) == members(expected)
    assert_same(describe(TensorDict.load_memmap(path)), describe(trees.build(name)))


@pytest.mark.parametrize("name", NAMES)
def test_unpack_restores_the_packed_folder(name, save_of, tmp_path):
    tenfold.pack_memmap(save_of(name), tmp_path / "t.tdz", compression="deflate")
    assert tenfold.verify(tmp_path / "t.tdz").ok
    tenfold.unpack_memmap(tmp_path / "t.tdz", tmp_path / "again")
    before, after = save_of(name), tmp_path / "again"
    paths = sorted(p.relative_to(before) for p in before.rglob("*") if p.is_file())
    assert paths == sorted(p.relative_to(after) for p in after.rglob("*") if p.is_file())
    for path in paths:
        assert (after / path).read_bytes() == (before / path).read_bytes()
    assert tenfold.verify(after).ok


def test_deflate_stores_metadata_and_incompressible_tensors(tmp_path):
    torch.manual_seed(0)
    noise = torch.randint(256, (50_000,), dtype=torch.uint8)
    td = tenfold.TensorDict({"zeros": torch.zeros(50_000), "noise": noise})
    path = tmp_path / "t.tdz"
    td.memmap(path, compression="deflate")
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        methods = {info.filename: info.compress_type for info in archive.infolist()}
    assert methods["zeros.memmap"] == zipfile.ZIP_DEFLATED
    assert methods["noise.memmap"] == zipfile.ZIP_STORED
    assert methods["meta.json"] == zipfile.ZIP_STORED
    assert path.stat().st_size < 60_000
    assert path.read_bytes().index(noise.numpy().tobytes()) % 64 == 0
    for loaded in (tenfold.load(path), TensorDict.load_memmap(path)):
        assert torch.equal(loaded["noise"], td["noise"])
        assert torch.equal(loaded["zeros"], td["zeros"])
    with pytest.raises(tenfold.UnsupportedError, match=r"zeros\.memmap: mode \"r\+\""):
        tenfold.load(path, mode="r+")


def test_deflated_save_keeps_aliases_and_values(tmp_path):
    tied = torch.zeros(1000)
    value = tenfold.NonTensorData({"k": (1, 2)})
    td = tenfold.TensorDict({"a": tied, "n": {"b": tied}, "value": value})
    td.save(tmp_path / "t.tdz", compression="deflate")
    loaded = tenfold.load(tmp_path / "t.tdz")
    assert loaded["a"].data_ptr() == loaded["n", "b"].data_ptr()
    assert loaded["a"].tolist() == [0] * 1000
    assert loaded["value"] == {"k": (1, 2)}


def test_pack_refuses_its_own_folder_missing_metadata_and_links(memmap_of, tmp_path):
    folder = tmp_path / "f"
    sample().memmap(folder)
    with pytest.raises(ValueError, match="outside of the packed folder"):
        tenfold.pack_memmap(folder, folder / "x.tdz")
    with pytest.raises(ValueError, match=r"meta\.json"):
        tenfold.pack_memmap(tmp_path, tmp_path / "x.tdz")
    (folder / "link.memmap").symlink_to(folder / "a.memmap")
    with pytest.raises(tenfold.UnsupportedError, match="link"):
        tenfold.pack_memmap(folder, tmp_path / "x.tdz")


def test_a_growing_data_set_is_not_packed_without_its_new_rows(tmp_path):
    folder = tmp_path / "rows"
    tenfold.create(folder, {"x": "int64"}).close()
    with tenfold.Dataset(folder, "r+") as rows:
        rows.append({"x": [1, 2, 3]})
        with pytest.raises(tenfold.UnsupportedError, match="a data set that grows"):
            tenfold.pack_memmap(folder, tmp_path / "x.tdz")
        assert not (tmp_path / "x.tdz").exists()
    tenfold.pack_memmap(folder, tmp_path / "x.tdz")
    assert tenfold.open(tmp_path / "x.tdz")["x"].tolist() == [1, 2, 3]


def test_a_circular_buffer_is_refused_with_a_remedy_that_works(tmp_path):
    folder = tmp_path / "ring"
    with tenfold.create(folder, {"x": "int64"}, capacity=4) as rows:
        rows.append({"x": [1, 2, 3, 4, 5]})
    message = 'a circular buffer: .*%commit" file; save its rows to another path'
    with pytest.raises(tenfold.UnsupportedError, match=message):
        tenfold.pack_memmap(folder, tmp_path / "x.tdz")
    more = tenfold.TensorDict({"x": torch.tensor([6])}, [1])
    with pytest.raises(tenfold.UnsupportedError, match=message):
        tenfold.append_memmap(folder, more)
    tenfold.save(tenfold.open(folder), tmp_path / "rows")
    tenfold.append_memmap(tmp_path / "rows", more)
    assert sorted(tenfold.load(tmp_path / "rows")["x"].tolist()) == [2, 3, 4, 5, 6]


def test_unpacking_a_damaged_archive_changes_nothing(tmp_path):
    path = tmp_path / "t.tdz"
    sample().memmap(path)
    with zipfile.ZipFile(path) as archive:
        at = archive.getinfo("n/b.memmap").header_offset
    data = bytearray(path.read_bytes())
    data[data.index(b"\x00\x00\x80\x3f", at)] ^= 1
    path.write_bytes(data)
    (sample(c=torch.zeros(6)) + 1).memmap(tmp_path / "f")
    before = tree_of(tmp_path / "f")
    with pytest.raises(tenfold.CorruptFileError, match=r'entry "n/b.memmap": CRC-32 differs'):
        tenfold.unpack_memmap(path, tmp_path / "f")
    assert tree_of(tmp_path / "f") == before
    (tmp_path / "f/mine.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"mine\.txt"):
        tenfold.unpack_memmap(path, tmp_path / "f")


@pytest.mark.parametrize(
    ("compression", "error"),
    [("bzip2", tenfold.UnsupportedError), (14, tenfold.UnsupportedError), ("zip", ValueError)],
)
def test_unsupported_compression_is_named(compression, error, tmp_path):
    with pytest.raises(error, match=f"compression: .*found {compression!r}"):
        sample().memmap(tmp_path / "t.tdz", compression=compression)
    assert not (tmp_path / "t.tdz").exists()
