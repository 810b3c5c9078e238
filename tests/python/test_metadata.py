"""What a safetensors file says about itself, and what a data set says about its columns."""

import json

import pytest

import tenfold

torch = pytest.importorskip("torch")
reference = pytest.importorskip("safetensors.torch")
safe_open = pytest.importorskip("safetensors").safe_open


def written(tmp_path, metadata):
    path = tmp_path / "theirs.safetensors"
    reference.save_file({"w": torch.ones(3)}, path, metadata=metadata)
    return path


def metadata_of(path):
    with safe_open(path, "pt") as opened:
        return opened.metadata()


def test_open_shows_what_people_put_into_the_metadata(tmp_path):
    path = written(tmp_path, {"format": "pt", "author": "me"})
    assert tenfold.open(path).metadata == {"author": "me"}


def test_converting_keeps_metadata_through_a_folder_and_back(tmp_path):
    path = written(tmp_path, {"format": "pt", "ss_steps": "1000", "author": "mé"})
    tenfold.convert(path, tmp_path / "folder")
    tenfold.convert(tmp_path / "folder", tmp_path / "back.safetensors")
    found = metadata_of(tmp_path / "back.safetensors")
    assert {k: found[k] for k in ("format", "ss_steps", "author")} == {
        "format": "pt",
        "ss_steps": "1000",
        "author": "mé",
    }


def test_metadata_set_in_python_is_saved(tmp_path):
    td = tenfold.TensorDict({"a": torch.ones(2)})
    td.metadata = {"note": "hello"}
    for name in ("f", "f.safetensors"):
        tenfold.save(td, tmp_path / name)
        assert tenfold.open(tmp_path / name).metadata == {"note": "hello"}


def test_metadata_that_would_be_read_as_a_tie_is_refused(tmp_path):
    path = written(tmp_path, {"format": "pt"})
    td = tenfold.open(path)
    td.metadata = {"best": "w"}
    flat = tenfold.load(path)
    assert flat.keys() == {"w"}
    with pytest.raises(ValueError, match='metadata "best": expected a string that is not a tensor'):
        tenfold.save(td, tmp_path / "again.safetensors")


@pytest.mark.parametrize("name", ["table", "table.safetensors"])
def test_schema_and_unbatched_tensors_come_back(tmp_path, name):
    td = tenfold.TensorDict({"text.end": torch.tensor([2, 5])}, batch_size=[2])
    td["text"] = tenfold.UnbatchedTensor(torch.arange(5, dtype=torch.uint8))
    td.schema = {"columns": {"text": {"encoding": "string", "end": "text.end"}}}
    tenfold.save(td, tmp_path / name)
    back = tenfold.open(tmp_path / name)
    assert back.schema == td.schema
    assert back[0]["text"].shape == (5,)
    assert back[1]["text.end"] == 5


def test_metadata_of_a_folder_is_stored_in_its_sidecar(tmp_path):
    td = tenfold.TensorDict({"a": torch.ones(2)})
    td.metadata = {"note": "hello"}
    tenfold.save(td, tmp_path / "f")
    notes = json.loads((tmp_path / "f" / "%notes.json").read_text())
    assert notes == {"version": 1, "metadata": {"note": "hello"}}
