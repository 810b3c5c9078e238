"""Python and torch values that JSON cannot express, in folders, safetensors and torch files."""

import collections

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tenfold

hashable = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.text(st.characters(codec="utf-8"), max_size=5),
        st.binary(max_size=5),
        st.complex_numbers(allow_nan=False),
    ),
    lambda inner: st.one_of(st.tuples(inner, inner), st.frozensets(inner, max_size=3)),
    max_leaves=5,
)
special = st.one_of(
    st.binary(max_size=40),
    st.binary(max_size=5).map(bytearray),
    st.complex_numbers(allow_nan=False),
    st.sets(hashable, max_size=4),
    st.frozensets(hashable, max_size=4),
    st.dictionaries(st.text("ab~/", max_size=3), st.integers(0, 9)).map(collections.Counter),
    st.dictionaries(st.integers(), st.integers(0, 9), min_size=1).map(collections.Counter),
    st.lists(st.integers(-1, 2**40), max_size=3).map(torch.Size),
    st.sampled_from(
        [
            torch.float32,
            torch.bool,
            torch.device("cuda:3"),
            torch.sparse_coo,
            torch.per_tensor_affine,
        ]
    ),
)
keys = st.text("ab~/%", max_size=3)
values = st.recursive(
    special,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(keys, inner, max_size=3),
    ),
    max_leaves=6,
)


def assert_same(ours, expected):
    assert type(ours) is type(expected)
    if isinstance(expected, (list, tuple)):
        assert len(ours) == len(expected)
        for mine, theirs in zip(ours, expected, strict=True):
            assert_same(mine, theirs)
    elif isinstance(expected, dict):
        assert list(ours) == list(expected)
        for key, value in expected.items():
            assert_same(ours[key], value)
    else:
        assert ours == expected


@settings(max_examples=40, deadline=None)
@given(value=values)
def test_special_values_round_trip(value, tmp_path_factory):
    folder = tmp_path_factory.mktemp("t")
    tree = {"v": value, "x": torch.ones(2)}
    tenfold.save(tree, folder / "t", durable=False)
    assert_same(tenfold.load(folder / "t")["v"], value)
    tenfold.convert(folder / "t", folder / "m.safetensors")
    assert_same(tenfold.load(folder / "m.safetensors")["v"], value)


def test_torch_loads_special_values_from_a_pt_file(tmp_path):
    tree = {
        "v": [b"\x00\xff", b"", bytearray(b"a"), {1, (2, b"x")}, 1j, torch.Size([2])],
        "c": collections.Counter(a=1),
        "t": [torch.int8, torch.device("cpu"), torch.sparse_csc],
        "x": torch.ones(1),
    }
    tenfold.save(tree, tmp_path / "m.pt")
    theirs = torch.load(tmp_path / "m.pt", weights_only=True)
    del theirs["x"], tree["x"]
    assert_same(theirs, tree)
    tree["f"] = frozenset({1})
    with pytest.raises(tenfold.UnsupportedError, match='key "f": a frozenset cannot be stored'):
        tenfold.save(tree, tmp_path / "f.pt")


@pytest.mark.parametrize(
    ("plain", "kind"),
    [("[[1]]", "set"), ('"%%"', "bytes"), ("[1]", "complex"), ("[0.5]", "torch.Size")],
)
def test_inconsistent_value_types_in_the_notes_document_are_ignored(tmp_path, plain, kind):
    tenfold.save({"v": ["mark"], "x": torch.ones(1)}, tmp_path / "t", checksums=False)
    meta = next(p for p in tmp_path.rglob("meta.json") if "mark" in p.read_text())
    meta.write_text(meta.read_text().replace('["mark"]', plain))
    notes = tmp_path / "t" / "%notes.json"
    said = notes.read_text()
    text = '"values": {"v": {"types": {"": "' + kind + '"}}}'
    notes.write_text(said[:-1] + ", " + text + "}")
    with pytest.warns(
        UserWarning, match="notes of tuples, key types, ordered dicts and extended scalars"
    ):
        tenfold.load(tmp_path / "t")


def test_nested_frozensets_are_stored_in_the_same_order_in_every_run(tmp_path, run_python):
    program = """
import sys, tenfold
sets = [frozenset({x, "b"}) for x in "acdef"]
tenfold.save({"sets": set(sets), "pairs": {(item, 1) for item in sets}}, sys.argv[1])
"""
    files = [tmp_path / f"{seed}.tdz" for seed in range(3)]
    for seed, file in enumerate(files):
        run_python(program, file, environment={"PYTHONHASHSEED": str(seed)})
    assert len({file.read_bytes() for file in files}) == 1


@pytest.mark.parametrize("name", ["saved", "saved.safetensors", "saved.pt", "saved.tdz"])
def test_versions_of_a_module_without_tensors_are_kept(tmp_path, name):
    state = torch.nn.Sequential(torch.nn.ReLU()).state_dict()
    tenfold.save({"model": state, "x": torch.ones(2)}, tmp_path / name)
    loaded = tenfold.load(tmp_path / name)["model"]
    assert loaded == state
    assert loaded._metadata == state._metadata
