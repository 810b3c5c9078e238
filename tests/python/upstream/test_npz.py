"""tenfold and NumPy read each other's .npz archives; mode "r+" of .npy files."""

import zipfile

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

import tenfold

DTYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"]
SHAPES = [(), (0,), (7,), (2, 3), (3, 0, 2), (2, 3, 4), (1,) * 20, (12345,)]

keys = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\\/.:"), max_size=8
)
arrays = st_numpy.arrays(
    st.sampled_from(DTYPES), st_numpy.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
)
any_order = st.tuples(arrays, st.sampled_from("CF")).map(lambda p: np.asarray(p[0], order=p[1]))


def numbers(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    return (np.arange(np.prod(shape, dtype=int)) % 100).astype(dtype).reshape(shape)


def every_array() -> dict[str, np.ndarray]:
    return {f"{dtype}/{shape}": numbers(dtype, shape) for dtype in DTYPES for shape in SHAPES}


def same(tensor: torch.Tensor, array: np.ndarray) -> bool:
    found = tensor.numpy()
    return (found.dtype, found.shape) == (array.dtype, array.shape) and (
        np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(array).tobytes()
    )


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed], ids=["stored", "deflated"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("load", [tenfold.load, tenfold.open], ids=["load", "open"])
def test_archives_saved_by_numpy_are_loaded(tmp_path, save, order, load):
    arrays = {key: np.asarray(array, order=order) for key, array in every_array().items()}
    save(tmp_path / "x.npz", **arrays)
    assert tenfold.probe(tmp_path / "x.npz") == "npz"
    found = load(tmp_path / "x.npz")
    assert list(found.keys()) == list(arrays)
    for key, array in arrays.items():
        assert same(found[key], array), key
    report = tenfold.verify(tmp_path / "x.npz")
    assert report.ok, report.problems
    assert report.num_checksums == report.num_leaves == len(arrays)


def test_numpy_reads_archives_of_tenfold(tmp_path):
    arrays = every_array()
    tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
    tensors["view"] = torch.arange(24.0).reshape(4, 6).T[::2]
    tenfold.save(tensors, tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz") as found:
        assert list(found) == list(tensors)
        for key, tensor in tensors.items():
            assert same(tensor, found[key]), key
    again = tenfold.load(tmp_path / "x.npz", verify=True)
    for key, tensor in tensors.items():
        assert torch.equal(again[key], tensor), key
        assert again[key].data_ptr() % 64 == 0 or not tensor.numel()


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.dictionaries(keys, any_order, max_size=5), st.booleans())
def test_any_npz_archive_round_trips(tmp_path, arrays, deflated):
    path, again = tmp_path / "x.npz", tmp_path / "y.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if deflated else 0) as archive:
        for key, array in arrays.items():
            with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array)
    found = tenfold.load(path)
    assert list(found) == list(arrays)
    assert all(same(found[key], array) for key, array in arrays.items())
    tenfold.save(found, again)
    with np.load(again) as read:
        assert list(read) == list(arrays)
        assert all(same(found[key], read[key]) for key in arrays)


def test_a_large_deflated_member_is_converted(tmp_path):
    array = np.random.default_rng(0).integers(0, 50, (3000, 1000))
    np.savez_compressed(tmp_path / "x.npz", a=array, f=np.asfortranarray(array))
    tenfold.convert(tmp_path / "x.npz", tmp_path / "x.safetensors")
    found = tenfold.load(tmp_path / "x.safetensors")
    assert same(found["a"], array)
    assert same(found["f"], array)


def test_mode_c_is_private_and_mode_r_plus_is_refused(tmp_path):
    tenfold.save({"x": torch.ones(3)}, tmp_path / "x.npz")
    tenfold.load(tmp_path / "x.npz", mode="c")["x"].zero_()
    assert tenfold.load(tmp_path / "x.npz")["x"].sum() == 3
    with pytest.raises(tenfold.UnsupportedError, match="cannot be changed in place"):
        tenfold.load(tmp_path / "x.npz", mode="r+")


def test_unsupported_members_are_named_and_others_load(tmp_path):
    np.savez(
        tmp_path / "x.npz", good=np.ones(2), obj=np.array([{}], dtype=object), text=np.array(["a"])
    )
    with pytest.raises(
        tenfold.UnsupportedError, match=r'member "obj\.npy": dtype: an array of Python objects'
    ):
        tenfold.load(tmp_path / "x.npz")
    assert same(tenfold.load(tmp_path / "x.npz", keys=["good"])["good"], np.ones(2))
    td = tenfold.open(tmp_path / "x.npz")
    assert same(td["good"], np.ones(2))
    with pytest.raises(tenfold.UnsupportedError, match=r'member "text\.npy"'):
        td["text"]
    assert tenfold.verify(tmp_path / "x.npz").ok


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"a": {"b": torch.ones(1)}}, 'key "a": .* found a node'),
        ({"a": 3}, 'key "a": .* found a JSON value'),
        ({"a": torch.ones(1, dtype=torch.bfloat16)}, 'key "a": NumPy has no name'),
        ({"../a": torch.ones(1)}, r'key "\.\./a": a zip archive cannot have a member of this name'),
        ({1: torch.ones(1)}, "integer keys"),
        ([torch.ones(1)], "its kind"),
    ],
    ids=["nested", "value", "bfloat16", "name", "int", "list"],
)
def test_save_refuses_values_unsupported_by_npz_by_key(tmp_path, tree, words):
    with pytest.raises(tenfold.UnsupportedError, match=words):
        tenfold.save(tree, tmp_path / "x.npz")
    assert not list(tmp_path.iterdir())


def test_aliases_are_refused_by_key_and_copies_are_saved(tmp_path):
    weight = torch.ones(2)
    with pytest.raises(tenfold.UnsupportedError, match=r'key "head": .*found that of key "embed"'):
        tenfold.save({"embed": weight, "head": weight}, tmp_path / "x.npz")
    tenfold.save({"embed": weight, "head": weight.clone()}, tmp_path / "x.npz")
    assert len(tenfold.load(tmp_path / "x.npz")) == 2


def test_state_dicts_are_saved(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    tenfold.save(model.state_dict(), tmp_path / "m.npz")
    with torch.no_grad():
        expected = model(torch.ones(3))
        for parameter in model.parameters():
            parameter.zero_()
        tenfold.load_into(model, tmp_path / "m.npz")
        assert torch.equal(model(torch.ones(3)), expected)


@pytest.mark.parametrize("damage", ["cut", "flipped", "twice"])
def test_damage_is_detected(tmp_path, damage):
    path = tmp_path / "x.npz"
    np.savez(path, a=np.arange(1000), b=np.arange(1000))
    data = path.read_bytes()
    if damage == "cut":
        path.write_bytes(data[:-100])
    elif damage == "flipped":
        at = data.index(np.arange(1000).tobytes()) + 77
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    else:
        with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as archive:
            archive.writestr("a.npy", b"x")
    assert not tenfold.verify(path).ok
    with pytest.raises(tenfold.CorruptFileError):
        tenfold.load(path, verify=True)


def test_mode_r_plus_writes_npy_files(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6.0).reshape(2, 3))
    td = tenfold.open(tmp_path / "x.npy", mode="r+")
    td["x"][1, 2] = 50
    td.flush()
    assert np.load(tmp_path / "x.npy")[1, 2] == 50
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r+")
    mapped[0, 0] = 7
    assert td["x"][0, 0] == 7
    tenfold.open(tmp_path / "x.npy", mode="c")["x"].zero_()
    assert np.load(tmp_path / "x.npy")[1, 2] == 50
    np.save(tmp_path / "f.npy", np.asfortranarray(np.ones((2, 3))))
    with pytest.raises(tenfold.UnsupportedError, match="fortran_order: an array in Fortran"):
        tenfold.open(tmp_path / "f.npy", mode="r+")


def test_members_that_tensors_cannot_represent_are_no_damage(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, a=np.array(["text"]), b=np.ones(3), c=np.array(["2026-01-01"], "M8[D]"))
    report = tenfold.verify(path)
    assert report.ok
    assert (report.num_leaves, report.num_checksums) == (1, 3)
    data = path.read_bytes()
    at = data.index("text".encode("utf-32-le"))
    path.write_bytes(data[:at] + b"T" + data[at + 1 :])
    (problem,) = tenfold.verify(path).problems
    assert "a.npy" in problem.part
