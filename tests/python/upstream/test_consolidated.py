"""Consolidated files: each library reads those of the other; consolidate() writes equal bytes."""

import functools
import pathlib

import pytest
import tensordict
import torch
import trees
from describe import assert_same, describe, order, transform
from ours import as_tenfold, describe_ours
from tensordict import TensorDict, lazy_stack
from trees import TREES

import tenfold

# Trees that consolidate() of tensordict cannot write, and the exceptions that it raises.
NOT_WRITTEN: dict[str, type[Exception]] = {
    "float8": KeyError,
    "float4": KeyError,
    "nested_tensors": NotImplementedError,
    "nested_tensors_with_empty_components": NotImplementedError,
    "conjugate_and_negative_views": RuntimeError,
    "tensordict_params": RuntimeError,
    "typed_tensordict": RuntimeError,
}
# tensordict writes the files of these trees. Then consolidate() raises an error, because it cannot
# view a tensor whose bytes start at an unaligned offset.
ODD_PLACES = ["scalars", "random_0", "random_2"]
# tensordict writes the files of these trees, but cannot read them.
NOT_READ = ["lazy_stack_of_tensorclasses", "lazy_stack_of_equal_tensorclasses"]
NAMES = [name for name in TREES if name not in (*NOT_WRITTEN, *ODD_PLACES, *NOT_READ)]


@pytest.fixture(scope="module")
def file_of(tmp_path_factory):
    """Returns a function that takes the name of a tree, and writes it with `consolidate`.

    The function returns the path. Each file is written once, and must not be changed.
    """
    root = tmp_path_factory.mktemp("consolidated")

    @functools.cache
    def write(name: str) -> pathlib.Path:
        path = root / name
        trees.build(name).consolidate(path)
        return path

    return write


@pytest.mark.parametrize("name", NAMES)
def test_open_matches_from_consolidated_of_tensordict(name, file_of):
    expected = describe(TensorDict.from_consolidated(file_of(name)))
    found = describe_ours(tenfold.open(file_of(name)))
    assert_same(found, expected)
    assert order(found) == order(expected)


@pytest.mark.parametrize("name", NAMES)
def test_load_returns_the_tree_saved_by_tensordict(name, file_of):
    built = describe(trees.build(name))
    if built[0] == "tensorclass":
        built = built[2]  # the class of the root is not stored
    assert_same(describe_ours(tenfold.load(file_of(name))), built)


@pytest.mark.parametrize("name", NAMES)
def test_files_of_tensordict_are_recognized_and_verify(name, file_of):
    assert tenfold.probe(file_of(name)) == "consolidated"
    report = tenfold.verify(file_of(name))
    assert report.ok, report.problems
    assert report.num_checksums == 0


@pytest.mark.parametrize("name", ODD_PLACES)
def test_unaligned_tensors_are_read_where_tensordict_fails(name, tmp_path):
    with pytest.raises(RuntimeError, match="must be divisible by 16"):
        trees.build(name).consolidate(tmp_path / "t")
    assert_same(describe_ours(tenfold.open(tmp_path / "t")), describe(trees.build(name)))


@pytest.mark.parametrize("name", NOT_READ)
def test_lazy_stack_of_tensorclasses_is_refused_by_name(name, tmp_path):
    trees.build(name).consolidate(tmp_path / "t")
    with pytest.raises(TypeError, match="stack_dim"):
        TensorDict.from_consolidated(tmp_path / "t")
    with pytest.raises(tenfold.UnsupportedError, match="a tensorclass around a lazy stack"):
        tenfold.open(tmp_path / "t")


@pytest.mark.parametrize("name", NOT_WRITTEN)
def test_tensordict_still_cannot_write(name, tmp_path):
    with pytest.raises(NOT_WRITTEN[name]):
        trees.build(name).consolidate(tmp_path / "t")


def jagged_entries():
    values = torch.arange(24.0).reshape(6, 4)
    offsets = torch.tensor([0, 2, 2, 6])
    jagged = torch.nested.nested_tensor_from_jagged
    return {
        "rows": jagged(values, offsets),
        "holes": jagged(values.to(torch.int16), offsets, torch.tensor([1, 0, 3])),
        "turned": jagged(values, offsets).transpose(1, 2),
        "flat": jagged(torch.arange(6), offsets.to(torch.int64)),
        "x": torch.zeros(3),
    }


def assert_same_jagged(found, expected):
    assert found.layout is torch.jagged
    assert found._ragged_idx == expected._ragged_idx
    for part in ("_values", "_offsets", "_lengths"):
        one, other = getattr(found, part), getattr(expected, part)
        assert (one is None) == (other is None)
        assert one is None or (torch.equal(one, other) and one.dtype == other.dtype)
    assert [row.tolist() for row in found.unbind()] == [row.tolist() for row in expected.unbind()]


def test_jagged_tensors_of_tensordict_round_trip(tmp_path):
    TensorDict({"n": jagged_entries()}, [3]).consolidate(tmp_path / "t")
    assert tenfold.verify(tmp_path / "t").ok
    for td in (
        tenfold.open(tmp_path / "t"),
        tenfold.load(tmp_path / "t"),
        tenfold.TensorDict.from_consolidated(tmp_path / "t"),
    ):
        for key, expected in jagged_entries().items():
            if key != "x":
                assert_same_jagged(td["n", key], expected)
    for name in ("folder", "x.tdz", "again.td"):
        fmt = "consolidated" if name == "again.td" else None
        tenfold.save(tenfold.load(tmp_path / "t"), tmp_path / name, format=fmt)
        assert_same_jagged(tenfold.load(tmp_path / name)["n"]["holes"], jagged_entries()["holes"])
        assert tenfold.diff(tmp_path / "t", tmp_path / name).same
        tenfold.convert(tmp_path / "t", tmp_path / f"c-{name}", format=fmt)
        assert tenfold.diff(tmp_path / name, tmp_path / f"c-{name}").same


@pytest.mark.parametrize("how", ["consolidate", "save"])
def test_tensordict_reads_jagged_tensors(tmp_path, how):
    td = tenfold.TensorDict({"n": jagged_entries(), "a": jagged_entries()["rows"]}, [3])
    if how == "save":
        tenfold.save(td, tmp_path / "t", format="consolidated")
    else:
        made = td.consolidate(tmp_path / "t")
        assert_same_jagged(made["n", "turned"], jagged_entries()["turned"])
        td.to_tensordict().consolidate(tmp_path / "theirs")
        assert (tmp_path / "t").read_bytes() == (tmp_path / "theirs").read_bytes()
    found = TensorDict.from_consolidated(tmp_path / "t")
    for key, expected in jagged_entries().items():
        if key != "x":
            assert_same_jagged(found["n", key], expected)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".npz"])
def test_other_formats_refuse_jagged_tensors_by_key(tmp_path, suffix):
    with pytest.raises(tenfold.UnsupportedError, match=r'key "n\.rows": .*jagged'):
        tenfold.save({"n": {"rows": jagged_entries()["rows"]}}, tmp_path / f"x{suffix}")
    assert not any(tmp_path.iterdir())


def test_offsets_beyond_the_values_raise_corrupt_file_error(tmp_path):
    jagged = torch.nested.nested_tensor_from_jagged(torch.arange(6.0), torch.tensor([0, 2, 6]))
    jagged._offsets[-1] = 7_000_000
    TensorDict({"x": jagged}, [2]).consolidate(tmp_path / "t")
    for read in (tenfold.load, lambda path: tenfold.open(path)["x"]):
        with pytest.raises(tenfold.CorruptFileError, match="offsets: expected numbers from 0 to 6"):
            read(tmp_path / "t")


def test_a_file_converts_to_a_folder_that_tensordict_reads(tmp_path):
    td = lazy_stack([TensorDict({"x": torch.ones(n), "s": "text"}, []) for n in (2, 3)])
    td.consolidate(tmp_path / "t")
    tenfold.convert(tmp_path / "t", tmp_path / "folder")
    assert_same(describe(TensorDict.load_memmap(tmp_path / "folder")), describe(td))


# --- tensordict reads what tenfold writes ---

# Trees that tenfold refuses to write, because tensordict cannot read float8, float4 and strided
# nested tensors; the values are parts of the messages.
REFUSED = {
    "float8": "tensordict cannot read this dtype",
    "float4": "tensordict cannot read this dtype",
    "nested_tensors": "a nested tensor cannot be stored",
    "nested_tensors_with_empty_components": "a nested tensor cannot be stored",
}
SAVED = [name for name in TREES if name not in REFUSED]


@pytest.fixture(scope="module")
def ours_of(tmp_path_factory):
    """Returns a function that writes a tree: with consolidate() if `exact`, else with save().

    The function returns the path. Each file is written once, and must not be changed.
    """
    root = tmp_path_factory.mktemp("ours")

    @functools.cache
    def write(name: str, exact: bool) -> pathlib.Path:
        path = root / f"{name}-{exact}"
        built = trees.build(name)
        tree = as_tenfold(built)
        if built.is_locked:
            tree.lock_()
        if exact:
            tree.consolidate(path)
        else:
            tenfold.save(tree, path, format="consolidated")
        return path

    return write


def expected_of(name: str) -> list:
    """Returns the description of a tree that was converted to tenfold's classes."""
    return describe_ours(as_tenfold(trees.build(name)))


@pytest.mark.parametrize("exact", [False, True], ids=["save", "consolidate"])
@pytest.mark.parametrize("name", SAVED)
def test_tensordict_reads_consolidated_files_of_tenfold(name, exact, ours_of):
    found = describe(TensorDict.from_consolidated(ours_of(name, exact)))
    expected = expected_of(name)
    if exact and expected[0] == "tensorclass":
        expected = expected[2]
    assert_same(as_stacks(found), as_stacks(expected))


def as_stacks(description: list) -> list:
    """Replaces each tensorclass of a lazy stack by a lazy stack of tensorclasses, as in files."""

    def change(path, part):
        if part[0] == "tensorclass" and part[2][0] == "lazy_stack":
            stack = part[2]
            return [*stack[:3], [["tensorclass", part[1], one] for one in stack[3]]]
        return part

    return transform(description, change)


@pytest.mark.parametrize("exact", [False, True], ids=["save", "consolidate"])
@pytest.mark.parametrize("name", SAVED)
def test_consolidated_files_round_trip(name, exact, ours_of):
    found = describe_ours(tenfold.load(ours_of(name, exact)))
    expected = expected_of(name)
    if exact and expected[0] == "tensorclass":
        expected = expected[2]
    assert_same(found, expected)
    if not exact:
        assert order(found) == order(expected)
    report = tenfold.verify(ours_of(name, exact))
    assert report.ok, report.problems
    assert (report.num_checksums > 0) == (not exact)


@pytest.mark.parametrize("name", NAMES)
def test_consolidate_writes_the_same_bytes_as_tensordict(name, file_of, ours_of):
    assert ours_of(name, True).read_bytes() == file_of(name).read_bytes()


@pytest.mark.parametrize("name", REFUSED)
def test_trees_that_tensordict_cannot_read_are_refused(name, tmp_path):
    tree = as_tenfold(trees.build(name))
    with pytest.raises(tenfold.UnsupportedError, match=REFUSED[name]):
        tenfold.save(tree, tmp_path / "t", format="consolidated")
    assert not list(tmp_path.iterdir())


def test_containers_integer_keys_and_aliases_round_trip(tmp_path):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.rand(2, 3)).sum().backward()
    optimizer.step()
    state = {
        "z": [torch.ones(2), 3, {"a": (1, 2)}],
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    state["tied"] = state["model"]["weight"]
    tenfold.save(state, tmp_path / "t", format="consolidated")
    found = tenfold.load(tmp_path / "t", verify=True)
    assert list(found) == list(state)
    assert found["z"][1:] == state["z"][1:]
    assert list(found["optimizer"]["state"]) == [0, 1]
    optimizer.load_state_dict(found["optimizer"])
    assert found["tied"].data_ptr() == found["model"]["weight"].data_ptr()
    assert TensorDict.from_consolidated(tmp_path / "t")["z", "1"] == 3


def value_stacks(library):
    """Returns stacks of values along dimension 1, and a stack of a NonTensorStack and a value."""
    data, stack = library.NonTensorData, library.NonTensorStack
    columns = [stack(*"ad"), stack(*"be"), stack(*"cf")]
    return {
        "stacks": stack(*columns, stack_dim=1),
        "shared": stack(*(data(value, batch_size=[2]) for value in "abc"), stack_dim=1),
        "mixed": stack(
            stack(*"abc"),
            data("d", batch_size=[3]),
        ),
    }


def test_stacks_along_later_dimensions_keep_the_order_of_the_batch(tmp_path):
    expected = {key: value.tolist() for key, value in value_stacks(tensordict).items()}
    assert expected["stacks"] == [["a", "b", "c"], ["d", "e", "f"]]
    td = TensorDict(value_stacks(tensordict), [2, 3])
    td.consolidate(tmp_path / "theirs")
    tenfold.save(td, tmp_path / "ours", format="consolidated")
    own = tenfold.TensorDict(value_stacks(tenfold.tensordict), [2, 3])
    tenfold.save(own, tmp_path / "own", format="consolidated")
    for name in ("theirs", "ours", "own"):
        assert tenfold.verify(tmp_path / name).ok
        opened = tenfold.open(tmp_path / name)
        upstream = TensorDict.from_consolidated(tmp_path / name)
        for key, values in expected.items():
            assert opened.get(key).tolist() == values, (name, key)
            assert upstream.get(key).tolist() == values, (name, key)
            assert opened[1].get(key).tolist() == values[1], (name, key)
            assert opened[:, 2].get(key).tolist() == [row[2] for row in values], (name, key)
