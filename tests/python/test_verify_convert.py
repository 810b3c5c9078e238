import json
import re

import pytest
import torch

import tenfold
from helpers import assert_same

TREE = {
    "model": {"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(3, dtype=torch.float64)},
    "ids": torch.arange(5),
    "optimizer": {"state": {0: {"step": torch.tensor(1.0)}}, "betas": (0.9, 0.99)},
    "step": 7,
}


@pytest.fixture
def saved(target):
    return tenfold.save(TREE, target)


def test_undamaged_file_verifies(saved):
    report = tenfold.verify(saved)
    assert report.ok
    assert report.problems == ()
    assert report.num_leaves == 4
    assert report.num_bytes >= 24 + 24 + 40 + 4
    assert report.num_checksums > 0


@pytest.mark.parametrize("call", [tenfold.verify, tenfold.probe])
def test_a_device_is_refused(call):
    with pytest.raises(tenfold.CorruptFileError, match="expected a regular file, found a device"):
        call("/dev/null")


def test_damage_is_reported_with_file_and_part(saved):
    damaged = saved / "ids.memmap" if saved.is_dir() else saved
    data = bytearray(damaged.read_bytes())
    at = data.index(torch.arange(5).numpy().tobytes())
    data[at + 8] ^= 1
    damaged.write_bytes(data)
    report = tenfold.verify(saved)
    assert not report.ok
    (problem,) = report.problems
    assert problem.path == str(damaged)
    named = "/data/" if saved.suffix == ".pt" else "ids"  # the record, or the tensor
    assert named in problem.path + problem.part
    assert str(problem).startswith(str(damaged))


def test_damage_of_the_structure_is_reported_not_raised(saved):
    damaged = saved / "meta.json" if saved.is_dir() else saved
    damaged.write_bytes(damaged.read_bytes()[:20])
    assert not tenfold.verify(saved).ok


def test_probe_names_the_format(saved):
    assert tenfold.probe(saved) == ("memmap" if saved.is_dir() else saved.suffix[1:])


def other(saved):
    return saved.parent / ("copy.safetensors" if saved.is_dir() else "copy")


def test_convert_keeps_the_whole_tree(saved):
    assert tenfold.convert(saved, other(saved)) == other(saved)
    assert tenfold.probe(other(saved)) != tenfold.probe(saved)
    assert_same(tenfold.load(other(saved)), TREE)
    assert tenfold.verify(other(saved)).num_checksums > 0


def test_convert_round_trip_keeps_every_byte(tmp_path):
    first = tenfold.save(TREE, tmp_path / "a.safetensors")
    tenfold.convert(tenfold.convert(first, tmp_path / "folder"), tmp_path / "b.safetensors")
    assert (tmp_path / "b.safetensors").read_bytes() == first.read_bytes()


def test_convert_compares_checksums_if_requested(tmp_path):
    source = tenfold.save({"a": torch.ones(2), "z": torch.ones(2)}, tmp_path / "s.safetensors")
    damaged = bytearray(source.read_bytes())
    damaged[-1] ^= 1
    source.write_bytes(damaged)
    target = tmp_path / "t.safetensors"
    with pytest.raises(tenfold.CorruptFileError, match=r"s\.safetensors"):
        tenfold.convert(source, target, verify=True)
    assert not target.exists()
    tenfold.convert(source, target, keys="a", verify=True)
    assert tenfold.load(target)["a"].tolist() == [1, 1]


def test_convert_applies_keys_and_exclude(saved):
    tenfold.convert(saved, other(saved), keys=["model.*", "ids"], exclude=["model.b"])
    assert_same(
        tenfold.load(other(saved)), {"model": {"w": TREE["model"]["w"]}, "ids": TREE["ids"]}
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, "bfloat16"])
def test_convert_casts_floating_point_tensors(saved, dtype):
    tenfold.convert(saved, other(saved), keys=["model.*", "ids"], dtype=dtype)
    found = tenfold.load(other(saved))
    assert_same(found["model"]["w"], TREE["model"]["w"].bfloat16())
    assert found["ids"].dtype == torch.int64


def test_convert_accepts_numpy_dtypes(saved):
    numpy = pytest.importorskip("numpy")
    tenfold.convert(saved, other(saved), keys=["model.*"], dtype=numpy.float16)
    assert tenfold.load(other(saved))["model"]["b"].dtype == torch.float16


@pytest.mark.parametrize(
    "rename",
    [{"ids": "numbers"}, [("^ids$", "numbers")], lambda name: {"ids": "numbers"}.get(name, name)],
    ids=["dict", "regex", "callable"],
)
def test_convert_renames_keys(saved, rename):
    tenfold.convert(saved, other(saved), rename=rename)
    found = tenfold.load(other(saved))
    assert "ids" not in found
    assert torch.equal(found["numbers"], TREE["ids"])


def test_convert_keeps_the_types_of_other_keys_in_a_renamed_dict_or_list(tmp_path):
    tree = {"state": {1: torch.ones(1), 2: torch.ones(1)}, "layers": [torch.ones(1)] * 2}
    tenfold.save(tree, tmp_path / "a")
    rename = {"state.1": "state.first", "layers.0": "layers.first"}
    for name in ("b", "b.safetensors", "b.pt"):
        tenfold.convert(tmp_path / "a", tmp_path / name, rename=rename)
        renamed = tenfold.load(tmp_path / name)
        assert list(renamed["state"]) == ["first", 2]
        assert list(renamed["layers"]) == ["first", 1]


def test_convert_writes_the_requested_format(saved, tmp_path):
    tenfold.convert(saved, tmp_path / "plain", format="safetensors")
    assert tenfold.probe(tmp_path / "plain") == "safetensors"


def test_convert_refuses_an_unknown_dtype(saved):
    with pytest.raises(ValueError, match=r'expected a name as torch spells it.* found "float31"'):
        tenfold.convert(saved, other(saved), dtype="float31")


def test_a_sharded_file_is_read_as_one_tree(tmp_path):
    save_file = pytest.importorskip("safetensors.torch").save_file
    save_file({"a.w": torch.ones(2)}, tmp_path / "model-00001-of-00002.safetensors")
    save_file({"b.w": torch.zeros(3)}, tmp_path / "model-00002-of-00002.safetensors")
    index = {
        "metadata": {"total_size": 20},
        "weight_map": {
            "a.w": "model-00001-of-00002.safetensors",
            "b.w": "model-00002-of-00002.safetensors",
        },
    }
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps(index))
    found = tenfold.load(path)
    assert_same(dict(found), {"a.w": torch.ones(2), "b.w": torch.zeros(3)})


def test_shard_size_splits_an_index_and_is_refused_for_other_formats(tmp_path):
    tree = {name: torch.arange(100) for name in "abc"}
    tenfold.save(tree, tmp_path / "m.safetensors")
    index = tmp_path / "s.safetensors.index.json"
    tenfold.convert(tmp_path / "m.safetensors", index, shard_size=1000)
    shards = set(json.loads(index.read_text())["weight_map"].values())
    assert len(shards) == 3
    assert_same(tenfold.load(index), tree)
    for target in ("m.pt", "folder", "n.safetensors"):
        with pytest.raises(ValueError, match=r'ends in ".safetensors.index.json"'):
            tenfold.convert(tmp_path / "m.safetensors", tmp_path / target, shard_size=1000)
        assert not (tmp_path / target).exists()
    with pytest.raises(ValueError, match="shard_size: expected 1 or more, found 0"):
        tenfold.convert(tmp_path / "m.safetensors", index, shard_size=0)


def test_no_keys_convert_to_an_empty_tree(tmp_path):
    tenfold.save({"a": torch.ones(2)}, tmp_path / "a")
    tenfold.convert(tmp_path / "a", tmp_path / "b", keys=[])
    assert tenfold.load(tmp_path / "b") == {}
    tenfold.convert(tmp_path / "a", tmp_path / "b", keys=None)
    assert list(tenfold.load(tmp_path / "b")) == ["a"]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"exclude": ["zzz"]}, 'no key "zzz"'),
        ({"exclude": ["zzz.*"]}, 'no key matches "zzz'),
        ({"rename": {"zzz": "y"}}, 'rename: no key "zzz"'),
        ({"rename": {"module.a.v": "y"}}, 'did you mean "module.a.w"'),
        ({"rename": {"module": "m"}}, "whole names are renamed"),
    ],
)
@pytest.mark.parametrize("flat", [True, False])
def test_unknown_names_raise_key_error_and_nothing_is_written(tmp_path, options, match, flat):
    tree = {"module.a.w": torch.ones(2)} if flat else {"module": {"a": {"w": torch.ones(2)}}}
    tenfold.save(tree, tmp_path / "a")
    with pytest.raises(KeyError) as caught:
        tenfold.convert(tmp_path / "a", tmp_path / "b", **options)
    assert match in caught.value.args[0]
    assert not (tmp_path / "b").exists()


def test_exclude_may_name_entries_outside_the_keys(tmp_path):
    tenfold.save({"a": {"x": torch.ones(2), "y": torch.ones(2)}, "b": 1}, tmp_path / "a")
    tenfold.convert(tmp_path / "a", tmp_path / "b", keys=["a.*"], exclude=["b", "a.y", "a.*y"])
    assert list(tenfold.load(tmp_path / "b")["a"]) == ["x"]
    tenfold.convert(tmp_path / "a", tmp_path / "b", exclude=["a", "a.y"])
    assert tenfold.load(tmp_path / "b") == {"b": 1}


def test_patterns_of_a_rename_may_match_nothing(tmp_path):
    tenfold.save({"w": torch.ones(2)}, tmp_path / "a")
    tenfold.convert(tmp_path / "a", tmp_path / "b", rename=[("^module[.]", "")])
    assert list(tenfold.load(tmp_path / "b")) == ["w"]


@pytest.mark.parametrize(
    ("rename", "error", "match"),
    [
        ([("(", "q")], ValueError, r"rename: expected a regular expression, found '\('"),
        (
            [("a", r"\9")],
            ValueError,
            r"rename: expected a replacement for 'a', found .*reference 9",
        ),
        ([("a", r"\g<x>")], ValueError, r"rename: expected a replacement for 'a', .*name 'x'"),
        ([(3, "q")], TypeError, r"rename: expected a dict, a list of .*, found \[\(3, 'q'\)\]"),
        ([(b"a", "q")], TypeError, "rename: expected a dict"),
        ([("a", 3)], TypeError, "rename: expected a dict"),
    ],
)
def test_an_invalid_rename_is_refused(tmp_path, rename, error, match):
    tenfold.save({"w": torch.ones(2)}, tmp_path / "a")
    with pytest.raises(error, match=match):
        tenfold.convert(tmp_path / "a", tmp_path / "b", rename=rename)
    assert not (tmp_path / "b").exists()


def test_a_rename_may_have_compiled_patterns_and_functions(tmp_path):
    tenfold.save({"w": torch.ones(2)}, tmp_path / "a")
    rename = [(re.compile("W", re.IGNORECASE), lambda found: found[0] + "x")]
    tenfold.convert(tmp_path / "a", tmp_path / "b", rename=rename)
    assert list(tenfold.load(tmp_path / "b")) == ["wx"]


def test_a_relative_target_inside_the_source_is_refused(tmp_path, monkeypatch):
    tenfold.save({"w": torch.ones(2)}, tmp_path / "a")
    monkeypatch.chdir(tmp_path / "a")
    for source in (tmp_path / "a", "."):
        with pytest.raises(ValueError, match="inside the source"):
            tenfold.convert(source, "i.pt")
    with pytest.raises(ValueError, match="outside of the packed folder"):
        tenfold.pack_memmap(".", "x.tdz")


def test_a_target_inside_the_source_is_refused(tmp_path):
    tenfold.save({"w": torch.ones(2)}, tmp_path / "a")
    for target in (tmp_path / "a" / "inner", tmp_path / "b" / ".." / "a" / "i.pt"):
        with pytest.raises(ValueError, match="inside the source"):
            tenfold.convert(tmp_path / "a", target)
    tenfold.convert(tmp_path / "a", tmp_path / "a")
    tenfold.convert(tmp_path / "a", tmp_path / "ab")
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(
        path.name for path in (tmp_path / "ab").iterdir()
    )


def test_selected_members_of_an_opaque_object_load_and_convert(tmp_path):
    torch.save({"m": torch.nn.Linear(2, 3)}, tmp_path / "m.pt")
    keys = ["m.state._parameters.*"]
    tree = tenfold.load(tmp_path / "m.pt", keys=keys)
    parameters = tree["m"]["state"]["_parameters"]
    assert parameters["weight"].shape == (3, 2)
    tenfold.convert(tmp_path / "m.pt", tmp_path / "m", keys=keys)
    for name, parameter in parameters.items():  # a folder cannot store Parameters
        parameters[name] = parameter.detach()
    assert_same(tenfold.load(tmp_path / "m"), tree)
    for path in ("all", "all.tdz"):
        with pytest.raises(tenfold.UnsupportedError, match=r'key "m": .*Linear'):
            tenfold.convert(tmp_path / "m.pt", tmp_path / path)
    with pytest.raises(tenfold.UnsupportedError, match=r'key "m": .*Linear'):
        tenfold.open(tmp_path / "m.pt").consolidate(tmp_path / "one")
    assert not (tmp_path / "one").exists()
