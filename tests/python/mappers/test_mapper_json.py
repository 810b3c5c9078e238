"""A hierarchy as one readable JSON file."""

from __future__ import annotations

import json
import os
import stat

import pytest

torch = pytest.importorskip("torch")

from hypothesis import HealthCheck, assume, given, settings  # noqa: E402

import tenfold  # noqa: E402
from helpers import DTYPES, assert_same, make_tensor  # noqa: E402
from hierarchies import has_level_as_default, levels, with_one_nan  # noqa: E402

SEED = {"level1": {"a": 1, "b": 2}, "level2": {"c": 3}}


def test_plain_hierarchy_is_saved_as_plain_json(tmp_path):
    tenfold.HierarchicalStateMapper(SEED).save(tmp_path / "hierarchy.json")
    text = (tmp_path / "hierarchy.json").read_text()
    assert text == json.dumps(SEED, indent=4) + "\n"


def test_save_does_not_change_the_umask_and_leaves_no_temporary_files(tmp_path, monkeypatch):
    def refuse(mask):
        raise AssertionError("the umask, which all threads share, was changed")

    monkeypatch.setattr(os, "umask", refuse)
    mapper = tenfold.HierarchicalStateMapper(SEED)
    for _ in range(2):
        mapper.save(tmp_path / "x.json", overwrite=True)
    assert os.listdir(tmp_path) == ["x.json"]
    with pytest.raises(FileExistsError, match="overwrite"):
        mapper.save(tmp_path / "x.json", overwrite=False)
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(IsADirectoryError):
        mapper.save(tmp_path / "folder.json", overwrite=True)


def test_plain_json_files_are_loaded(tmp_path):
    (tmp_path / "x.json").write_text(json.dumps({"%a": {"%%b": 1}, **SEED}))
    mapper = tenfold.StateMapper.load(tmp_path / "x.json")
    assert mapper("%a/%%b") == 1
    assert mapper("level2/c") == 3


def test_load_with_verify_parses_a_json_file(tmp_path):
    tenfold.HierarchicalStateMapper(SEED).save(tmp_path / "x.json")
    assert tenfold.StateMapper.load(tmp_path / "x.json", verify=True)("level2/c") == 3
    (tmp_path / "x.json").write_text('{"a": 1')
    with pytest.raises(tenfold.CorruptFileError, match=r"x\.json"):
        tenfold.StateMapper.load(tmp_path / "x.json", verify=True)


def test_tensors_are_readable_json_and_round_trip_exactly(tmp_path):
    hierarchy = {"a": torch.tensor([[1.5, 2.0]]), "%b": {"%%c": torch.tensor(3)}, "d": [0.1, 2.0]}
    tenfold.HierarchicalStateMapper(hierarchy, "else").save(tmp_path / "x.json")
    assert (tmp_path / "x.json").read_text() == (
        "{\n"
        '    "%state_mapper": {"version": 1, "default_key": "else"},\n'
        '    "a": {"%tensor": "float32", "shape": [1, 2], "values": [[1.5, 2.0]]},\n'
        '    "%%b": {\n'
        '        "%%%c": {"%tensor": "int64", "shape": [], "values": 3}\n'
        "    },\n"
        '    "d": [0.1, 2.0]\n'
        "}\n"
    )
    loaded = tenfold.StateMapper.load(tmp_path / "x.json")
    assert loaded.default_key == "else"
    assert_same(loaded.hierarchy, hierarchy)


def test_real_dtypes_round_trip(tmp_path):
    for dtype in DTYPES:
        if dtype.is_complex or dtype == getattr(torch, "float4_e2m1fn_x2", None):
            continue
        tensor = make_tensor((3, 2), dtype)
        if dtype.is_floating_point:  # JSON does not distinguish NaN payloads
            wide = tensor if dtype == torch.float64 else tensor.float()
            tensor = torch.nan_to_num(wide).to(dtype)
        tenfold.HierarchicalStateMapper({"x": tensor}).save(tmp_path / "x.json")
        assert_same(tenfold.StateMapper.load(tmp_path / "x.json")("x"), tensor)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(levels)
def test_any_hierarchy_round_trips(tmp_path, hierarchy):
    assume(not has_level_as_default(hierarchy, "a"))
    mapper = tenfold.HierarchicalStateMapper(hierarchy, "a")
    mapper.save(tmp_path / "x.json")
    loaded = tenfold.HierarchicalStateMapper.load(tmp_path / "x.json")
    assert loaded.default_key == "a"
    assert_same(with_one_nan(loaded.hierarchy), with_one_nan(hierarchy))


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (torch.zeros(65_537), "at most 65,536 numbers, found 65537; save to a folder"),
        (torch.zeros(2, dtype=torch.complex64), "JSON has no complex64"),
        (tenfold.HierarchicalStateMapper({}), "no mapper among the values"),
    ],
)
def test_values_without_a_readable_json_form_are_refused(tmp_path, value, what):
    with pytest.raises(tenfold.UnsupportedError, match=rf'x\.json: "a/b": .*{what}'):
        tenfold.HierarchicalStateMapper({"a": {"b": value}}).save(tmp_path / "x.json")
    assert os.listdir(tmp_path) == []


def test_file_is_replaced_atomically_and_keeps_its_permissions(tmp_path):
    path = tmp_path / "x.json"
    tenfold.HierarchicalStateMapper({"a": 1}).save(path)
    path.chmod(0o640)
    with open(path) as old:
        assert tenfold.HierarchicalStateMapper({"a": 2}).save(str(path)) == path
        assert json.load(old) == {"a": 1}
    assert json.loads(path.read_text()) == {"a": 2}
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["x.json"]
    with pytest.raises(FileExistsError, match=r"x\.json"):
        tenfold.HierarchicalStateMapper({}).save(path, overwrite=False)
    (tmp_path / "y.json").mkdir()
    with pytest.raises(IsADirectoryError, match=r"y\.json"):
        tenfold.HierarchicalStateMapper({}).save(tmp_path / "y.json")


HEAD = '"%state_mapper": {"version": 1, "default_key": "default"}'


@pytest.mark.parametrize(
    ("text", "error", "what"),
    [
        ('{"a": ', "Corrupt", "not valid json"),
        ('{"a": 1} x', "Corrupt", "not valid json"),
        ('{"a": "\xff"}', "Corrupt", "not valid json"),
        ('{"a": ' * 100_000, "Corrupt", "at most 512 levels"),
        ('{"a": ' + "[" * 100_000, "Corrupt", "at most 512 levels"),
        ('{"a": ' * 600 + "1" + "}" * 600, "Corrupt", "512 levels"),
        ('{"a": 1, "a": 2}', "Corrupt", 'key "a": duplicate key'),
        ('{"a/b": 1}', "Corrupt", "without"),
        ('{"": 1}', "Corrupt", "not empty"),
        ('{"x": {"default": {}}}', "Corrupt", "default of a level is a value"),
        ('{"%state_mapper": 3}', "Corrupt", "version: expected an int"),
        ('{"%state_mapper": {"version": true}}', "Corrupt", "version: expected an int"),
        ('{"%state_mapper": {"version": 2}}', "Unsupported", "found 2; use a newer version"),
        ('{"%state_mapper": {"version": 1}}', "Corrupt", "default_key"),
        ('{"%state_mapper": {"version": 1, "default_key": ""}}', "Corrupt", "default_key"),
        (f'{{{HEAD}, "%x": 1}}', "Corrupt", '"%x"'),
        (f'{{{HEAD}, "x": {{"%tensor": "int9", "shape": [], "values": 1}}}}', "Corrupt", "int9"),
        (f'{{{HEAD}, "x": {{"%tensor": [], "shape": [], "values": 1}}}}', "Corrupt", "dtype"),
        (f'{{{HEAD}, "x": {{"%tensor": "int8", "shape": 3, "values": 1}}}}', "Corrupt", "shape"),
        (f'{{{HEAD}, "x": {{"%tensor": "int8", "shape": [2], "values": [1]}}}}', "Corrupt", "[1]"),
        (f'{{{HEAD}, "x": {{"%tensor": "int8", "shape": [1], "values": [999]}}}}', "Corrupt", "x"),
        (f'{{{HEAD}, "x": {{"%tensor": "int8", "shape": [1], "values": ["a"]}}}}', "Corrupt", "x"),
        (f'{{{HEAD}, "x": {{"%tensor": "int8", "shape": [1], "values": null}}}}', "Corrupt", "x"),
        (f'{{{HEAD}, "x": {{"%tensor": "int8", "shape": [-1, 0], "values": []}}}}', "Corrupt", "x"),
    ],
)  # fmt: skip
def test_malformed_json_raises_clear_errors(tmp_path, text, error, what):
    (tmp_path / "x.json").write_bytes(text.encode("latin-1"))
    kind = {"Corrupt": tenfold.CorruptFileError, "Unsupported": tenfold.UnsupportedError}[error]
    with pytest.raises(kind) as raised:
        tenfold.StateMapper.load(tmp_path / "x.json")
    assert str(raised.value).startswith(str(tmp_path / "x.json"))
    assert what in str(raised.value)


def test_a_tensor_without_elements_may_have_a_long_dimension(tmp_path):
    tensor = '{"%tensor": "int8", "shape": [9999999999, 0], "values": []}'
    (tmp_path / "x.json").write_text(f'{{{HEAD}, "x": {tensor}}}')
    assert tenfold.StateMapper.load(tmp_path / "x.json")("x").shape == (9999999999, 0)


def test_longer_integers_than_python_converts_are_refused_when_they_are_read(tmp_path):
    (tmp_path / "x.json").write_text('{"a": 1' + "0" * 5000 + ', "b": 2}')
    mapper = tenfold.StateMapper.load(tmp_path / "x.json")
    assert mapper("b") == 2
    with pytest.raises(tenfold.UnsupportedError, match="integer is too long"):
        mapper("a")


def test_top_level_array_is_refused(tmp_path):
    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(tenfold.UnsupportedError):
        tenfold.StateMapper.load(tmp_path / "x.json")


def test_name_of_a_safetensors_index_selects_safetensors(tmp_path):
    mapper = tenfold.HierarchicalStateMapper(SEED)
    for name in ("x.safetensors.index.json", "y.index.json"):
        mapper.save(tmp_path / name)
        assert tenfold.StateMapper.load(tmp_path / name).hierarchy == SEED
    assert tenfold.probe(tmp_path / "x.safetensors.index.json") == "safetensors"
    assert json.loads((tmp_path / "y.index.json").read_text()) == SEED
