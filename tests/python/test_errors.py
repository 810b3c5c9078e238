import errno
import json
import os
import pickle

import pytest
import torch

import tenfold


def test_tenfold_errors_are_value_errors():
    for error in (tenfold.CorruptFileError, tenfold.UnsupportedError):
        assert issubclass(error, tenfold.Error)
        assert issubclass(error, ValueError)


@pytest.mark.parametrize("call", [tenfold.open, tenfold.load, tenfold.probe, tenfold.verify])
def test_missing_path_raises_file_not_found_error(call, tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing"):
        call(tmp_path / "nothing")


def test_str_of_a_key_error_is_its_message(target):
    tenfold.save({"x": torch.zeros(1)}, target)
    with pytest.raises(KeyError) as caught:
        tenfold.open(target)["y"]
    assert str(caught.value) == caught.value.args[0]


def test_a_key_error_can_be_pickled(target):
    tenfold.save({"x": torch.zeros(1)}, target)
    with pytest.raises(KeyError) as caught:
        tenfold.open(target)["y"]
    copied = pickle.loads(pickle.dumps(caught.value))
    assert str(copied) == str(caught.value)


def test_existing_target_raises_file_exists_error(target):
    tenfold.save({"x": torch.zeros(1)}, target)
    with pytest.raises(FileExistsError) as caught:
        tenfold.save({"x": torch.ones(1)}, target, overwrite=False)
    assert caught.value.errno == errno.EEXIST
    assert os.fspath(caught.value.filename) == str(target)
    assert str(caught.value).count(str(target)) == 1
    assert tenfold.load(target)["x"] == 0


def test_parent_that_is_a_file_raises_not_a_directory_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="file"):
        tenfold.save({"x": torch.zeros(1)}, tmp_path / "file" / "x.safetensors")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file_raises_permission_error(tmp_path):
    path = tenfold.save({"x": torch.zeros(1)}, tmp_path / "x.safetensors")
    path.chmod(0)
    with pytest.raises(PermissionError):
        tenfold.load(path)


def test_random_bytes_raise_unsupported_error(tmp_path):
    path = tmp_path / "garbage"
    path.write_bytes(b"\xff" * 100)
    with pytest.raises(tenfold.UnsupportedError, match="garbage"):
        tenfold.open(path)


def test_truncated_file_raises_corrupt_file_error(tmp_path):
    path = tenfold.save({"x": torch.zeros(100)}, tmp_path / "x.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(tenfold.CorruptFileError, match=r"x.safetensors"):
        tenfold.open(path)["x"]


def test_truncated_leaf_raises_corrupt_file_error(tmp_path):
    path = tenfold.save({"x": torch.zeros(100)}, tmp_path / "saved")
    os.truncate(path / "x.memmap", 399)
    with pytest.raises(tenfold.CorruptFileError, match="400 bytes, found 399"):
        tenfold.load(path)


@pytest.mark.parametrize("name", ["s\u00e4ve", "with space", "\U0001f600", "a\nb", "caf\udce9"])
def test_paths_of_any_name_work(tmp_path, name):
    path = tmp_path / name
    tenfold.save({"x": torch.ones(1)}, path)
    assert tenfold.load(path)["x"] == 1
    assert tenfold.load(os.fsencode(path))["x"] == 1


@pytest.mark.parametrize(
    "key", ["", "a/b", "..", "a.b", "\u00e4", "\U0001f600", "%41", "shape", "a\x00b"]
)
def test_keys_with_any_characters_round_trip(target, key):
    tree = {key: torch.arange(2), "node": {key: {"y": torch.ones(1)}}}
    tenfold.save(tree, target)
    found = tenfold.load(target)
    assert list(found) == [key, "node"]
    assert torch.equal(found[key], torch.arange(2))
    assert found["node"][key]["y"] == 1


# --- the parts of messages as attributes ---------------------------------------------------------

FIELDS = ("path", "part", "problem", "expected", "found", "remedy")


def fields(error):
    return {name: getattr(error, name) for name in FIELDS}


def raised(kind, call, *args, **options):
    with pytest.raises(kind) as caught:
        call(*args, **options)
    return caught.value


def test_corrupt_safetensors_error_has_part_expected_and_found(tmp_path):
    path = tenfold.save({"w": torch.zeros(4)}, tmp_path / "m.safetensors", checksums=False)
    path.write_bytes(path.read_bytes()[:-1])
    error = raised(tenfold.CorruptFileError, tenfold.open, path)
    assert fields(error) == {
        "path": str(path),
        "part": 'tensor "w"',
        "problem": "data reaches past the end of the file",
        "expected": "at most 15 bytes",
        "found": "16",
        "remedy": "the file may be truncated",
    }
    assert str(error) == (
        f'{path}: tensor "w": data reaches past the end of the file: expected at most 15 bytes, '
        "found 16; the file may be truncated"
    )


def test_truncated_leaf_error_has_the_path_of_the_leaf(tmp_path):
    path = tenfold.save({"x": torch.zeros(100)}, tmp_path / "saved")
    os.truncate(path / "x.memmap", 399)
    error = raised(tenfold.CorruptFileError, tenfold.load, path)
    assert error.path == str(path / "x.memmap")
    assert error.part == 'tensor "x"'
    assert error.problem == "the file is too short"
    assert (error.expected, error.found) == ("400 bytes", "399")
    assert error.remedy == "it may be truncated"


def test_file_not_found_error_has_path_and_problem(tmp_path):
    error = raised(FileNotFoundError, tenfold.open, tmp_path / "nothing")
    assert error.path == str(tmp_path / "nothing")
    assert error.problem == "no such file or folder"
    assert error.part is error.expected is error.found is error.remedy is None


def test_file_exists_error_has_fields_in_addition_to_filename(tmp_path):
    path = tenfold.save({"x": torch.zeros(1)}, tmp_path / "x.safetensors")
    error = raised(FileExistsError, tenfold.save, {}, path, overwrite=False)
    assert error.path == error.filename == str(path)
    assert error.problem == "it exists already"
    assert error.expected == "nothing there"
    assert error.remedy == "to replace it, use the option overwrite"


def test_invalid_pickle_error_has_expected_and_found(tmp_path):
    path = tmp_path / "m.pt"
    torch.save({"w": torch.zeros(2)}, path, _use_new_zipfile_serialization=False)
    data = bytearray(path.read_bytes())
    data[0] = 0x81  # not an opcode with which a pickle begins
    path.write_bytes(data)
    error = raised(tenfold.Error, tenfold.open, path, format="pt")
    assert error.path == str(path)
    assert error.problem
    assert error.expected
    assert error.found


def test_missing_column_error_lists_the_columns(tmp_path):
    tenfold.ingest([{"x": 1, "y": 2.0}, {"x": 2, "y": 3.0}], tmp_path / "d")
    error = raised(KeyError, tenfold.Dataset(tmp_path / "d").select, ["z"])
    assert error.part == "data set"
    assert error.problem == 'no column "z"'
    assert '"x"' in error.expected
    assert error.found == '"z"'


def test_argument_error_has_a_part_and_no_path():
    error = raised(ValueError, tenfold.load, "x", mode="w")
    assert error.path is None
    assert error.part == "mode"
    assert error.found == '"w"'


def test_errors_raised_from_python_have_the_fields():
    assert fields(tenfold.CorruptFileError("damaged")) == dict.fromkeys(FIELDS)


@pytest.mark.parametrize("kind", ["missing", "exists", "corrupt", "key", "argument"])
def test_pickled_errors_keep_their_fields(tmp_path, kind):
    path = tenfold.save({"x": torch.zeros(100)}, tmp_path / "saved")
    if kind == "corrupt":
        os.truncate(path / "x.memmap", 399)
    calls = {
        "missing": lambda: tenfold.open(tmp_path / "nothing"),
        "exists": lambda: tenfold.save({}, path, overwrite=False),
        "corrupt": lambda: tenfold.load(path),
        "key": lambda: tenfold.open(path)["y"],
        "argument": lambda: tenfold.open(path, mode="w"),
    }
    error = raised(Exception, calls[kind])
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is type(error)
    assert str(copied) == str(error)
    assert fields(copied) == fields(error)
    assert copied.problem or copied.expected


def test_error_of_an_object_that_cannot_be_stored_has_fields(tmp_path):
    with pytest.raises(tenfold.UnsupportedError) as raised:
        tenfold.save({"a": {"b": object()}}, tmp_path / "x.safetensors")
    assert raised.value.path == str(tmp_path / "x.safetensors")
    assert raised.value.part == 'key "a.b"'
    assert raised.value.problem == "it cannot be stored"
    assert raised.value.found == "object"
    assert raised.value.remedy is None


@pytest.mark.parametrize("content", [b"\xff", None])
def test_error_of_another_rank_has_the_fields(tmp_path, content):
    from tenfold._ranks import described, error_of

    path = tmp_path / "x.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises((tenfold.Error, FileNotFoundError)) as raised:
        tenfold.open(path)
    made = error_of(3, json.loads(json.dumps(described(raised.value))))
    assert type(made) is type(raised.value)
    assert str(made) == f"rank 3: {raised.value}"
    names = ("path", "part", "problem", "expected", "found", "remedy")
    assert [getattr(made, name) for name in names] == [
        getattr(raised.value, name) for name in names
    ]


def test_problems_of_a_report_have_the_fields(tmp_path):
    path = tenfold.save({"x": torch.zeros(100)}, tmp_path / "saved")
    os.truncate(path / "x.memmap", 399)
    problems = tenfold.verify(path).problems
    problem = next(problem for problem in problems if problem.expected == "400 bytes")
    assert problem.path == str(path / "x.memmap")
    assert problem.part == 'tensor "x"'
    assert problem.found == "399"
    assert problem.remedy == "it may be truncated"
    assert problem.what == (
        "the file is too short: expected 400 bytes, found 399; it may be truncated"
    )


def test_errors_and_warnings_accept_paths_that_are_not_utf8(tmp_path):
    name = os.fsdecode(b"\xff.safetensors")
    error = raised(FileNotFoundError, tenfold.open, tmp_path / name)
    assert error.path == str(tmp_path / name)
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    with pytest.warns(UserWarning, match="did you mean"):
        tenfold.save({"x": torch.ones(1)}, folder / "m.safetensor")
