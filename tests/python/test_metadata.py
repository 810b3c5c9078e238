"""User metadata of files and folders, and schemas of TensorDicts."""

import importlib
import json

import pytest

import tenfold

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
reference = pytest.importorskip("safetensors.torch")
safe_open = pytest.importorskip("safetensors").safe_open
ours = importlib.import_module("tenfold.safetensors")
ours_numpy = importlib.import_module("tenfold.safetensors.numpy")


def written(tmp_path, metadata):
    path = tmp_path / "theirs.safetensors"
    reference.save_file({"w": torch.ones(3)}, path, metadata=metadata)
    return path


def metadata_of(path):
    with safe_open(path, "pt") as opened:
        return opened.metadata()


def test_open_returns_user_metadata_of_safetensors(tmp_path):
    path = written(tmp_path, {"format": "pt", "author": "me"})
    assert tenfold.open(path).metadata == {"author": "me"}


def test_metadata_survives_conversion_to_a_folder_and_back(tmp_path):
    path = written(tmp_path, {"format": "pt", "ss_steps": "1000", "author": "mé"})
    tenfold.convert(path, tmp_path / "folder")
    tenfold.convert(tmp_path / "folder", tmp_path / "back.safetensors")
    found = metadata_of(tmp_path / "back.safetensors")
    assert {k: found[k] for k in ("format", "ss_steps", "author")} == {
        "format": "pt",
        "ss_steps": "1000",
        "author": "mé",
    }


@pytest.mark.parametrize("name", ["folder", "a.tdz", "a.pt", "a.safetensors"])
@pytest.mark.parametrize("key", ["50%", "a/", "/", "%2F", "", "ü\n"])
def test_metadata_keys_may_have_any_characters(tmp_path, name, key):
    td = tenfold.TensorDict({"a": torch.ones(2)})
    td.metadata = {key: "mine"}
    tenfold.save(td, tmp_path / name)
    assert tenfold.open(tmp_path / name).metadata == {key: "mine"}


def test_metadata_set_in_python_is_saved(tmp_path):
    td = tenfold.TensorDict({"a": torch.ones(2)})
    td.metadata = {"note": "hello"}
    for name in ("f", "f.safetensors"):
        tenfold.save(td, tmp_path / name)
        assert tenfold.open(tmp_path / name).metadata == {"note": "hello"}


@pytest.mark.parametrize("name", ["folder", "m.safetensors", "m.safetensors.index.json"])
def test_metadata_is_kept_under_the_name_of_a_tensor(tmp_path, name):
    metadata = {"a": "hello", "b": "a", "m": "file"}
    tenfold.save({"a": torch.ones(2), "b": torch.zeros(2)}, tmp_path / "plain.safetensors")
    td = tenfold.open(tmp_path / "plain.safetensors")
    td.metadata = metadata
    tenfold.save(td, tmp_path / name)
    opened = tenfold.open(tmp_path / name)
    assert opened.metadata == metadata
    assert list(opened.keys()) == ["a", "b"]


def test_metadata_of_a_bare_tensor_is_kept_under_the_name_of_its_file(tmp_path):
    path = tmp_path / "model.safetensors"
    reference.save_file({"value": torch.ones(3)}, path, metadata={"value": "x", "model": "y"})
    assert tenfold.open(path).metadata == {"value": "x", "model": "y"}


def test_metadata_that_would_be_read_as_an_alias_is_refused(tmp_path):
    path = written(tmp_path, {"format": "pt"})
    td = tenfold.open(path)
    td.metadata = {"best": "w"}
    flat = tenfold.load(path)
    assert flat.keys() == {"w"}
    with pytest.raises(ValueError, match='metadata "best": expected a string that is not a tensor'):
        tenfold.save(td, tmp_path / "again.safetensors")


@pytest.mark.parametrize("key", ["tenfold", "tensordict", "tenfold_xxh3", "format"])
def test_metadata_under_a_key_of_tenfold_is_refused_not_dropped(tmp_path, key):
    td = tenfold.TensorDict({"a": torch.ones(2)})
    td.metadata = {key: "mine"}
    with pytest.raises(ValueError, match=f'metadata "{key}": safetensors files of tenfold use'):
        tenfold.save(td, tmp_path / "m.safetensors")
    assert not list(tmp_path.iterdir())
    tenfold.save(td, tmp_path / "folder")
    assert tenfold.open(tmp_path / "folder").metadata == {key: "mine"}


@pytest.mark.parametrize("key", ["tenfold", "tensordict"])
def test_save_file_refuses_metadata_that_describes_no_tree_of_the_tensors(tmp_path, key):
    path = tmp_path / "m.safetensors"
    for module, tensor in ((ours, torch.ones(2)), (ours_numpy, np.ones(2))):
        with pytest.raises(ValueError, match="use another key"):
            module.save_file({"a": tensor}, path, {key: "mine"})
        with pytest.raises(ValueError, match="use another key"):
            module.save({"a": tensor}, {key: "mine"})
    assert not list(tmp_path.iterdir())


def test_metadata_of_an_opened_file_can_be_written_with_its_tensors(tmp_path):
    tenfold.save({"n": {"x": torch.arange(4)}, "t": (1, torch.ones(2))}, tmp_path / "a.safetensors")
    with safe_open(tmp_path / "a.safetensors", "pt") as opened:  # its metadata includes checksums
        names = opened.keys()
        tensors = {name: opened.get_tensor(name) for name in names}
        metadata = opened.metadata()
    ours.save_file(tensors, tmp_path / "b.safetensors", metadata)
    assert tenfold.verify(tmp_path / "b.safetensors").ok
    assert tenfold.diff(tmp_path / "a.safetensors", tmp_path / "b.safetensors").same


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"a": float("nan")}, "expected a dict of JSON values: Out of range float"),
        ({"a": object()}, "expected a dict of JSON values: Object of type object"),
        ([1], "expected a dict or None, found list"),
    ],
    ids=["NaN", "object", "list"],
)
def test_schemas_are_dicts_of_json(schema, message):
    td = tenfold.TensorDict({}, [])
    with pytest.raises(TypeError, match=f"schema: {message}"):
        td.schema = schema
    assert td.schema is None


@pytest.mark.parametrize("name", ["table", "table.safetensors"])
def test_schema_and_unbatched_tensors_round_trip(tmp_path, name):
    td = tenfold.TensorDict({"text.end": torch.tensor([2, 5])}, batch_size=[2])
    td["text"] = tenfold.UnbatchedTensor(torch.arange(5, dtype=torch.uint8))
    td.schema = {"columns": {"text": {"encoding": "string", "end": "text.end"}}}
    tenfold.save(td, tmp_path / name)
    back = tenfold.open(tmp_path / name)
    assert back.schema == td.schema
    assert back[0]["text"].shape == (5,)
    assert back[1]["text.end"] == 5


def test_metadata_of_a_folder_is_stored_in_its_notes_document(tmp_path):
    td = tenfold.TensorDict({"a": torch.ones(2)})
    td.metadata = {"note": "hello"}
    tenfold.save(td, tmp_path / "f")
    notes = json.loads((tmp_path / "f" / "%notes.json").read_text())
    assert notes == {"version": 1, "metadata": {"note": "hello"}}
