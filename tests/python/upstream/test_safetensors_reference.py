"""tenfold, the reference implementation and tensordict read each other's safetensors files."""

import json
import re

import pytest
import safetensors
import safetensors.torch
import torch
import trees
from describe import assert_same, describe, describe_tensor, order, transform
from ours import describe_ours
from tensordict import NonTensorData, TensorDict, from_safetensors, lazy_stack, to_safetensors
from trees import TREES

import tenfold

# Dtypes for which the reference has no name.
NAMELESS = (torch.complex32, torch.complex128)
DTYPES = [d for d in (*trees.LOADABLE, *trees.FLOAT8) if d not in NAMELESS]

# Trees that tensordict's to_safetensors rejects, and the type of its error for each tree.
REFUSED: dict[str, type[Exception]] = {
    "complex_numbers": KeyError,  # complex32 has no name in safetensors
    "scalars": KeyError,
    "zero_elements_of_every_dtype": KeyError,
    "random_3": KeyError,
    "lazy_stack_of_different_shapes": RuntimeError,
    "lazy_stack_below_a_node": RuntimeError,
    "lazy_stack_of_lazy_stacks": RuntimeError,
    "lazy_stack_of_tensorclasses": RuntimeError,
    "lazy_stack_of_different_keys_and_dtypes": TypeError,
    "lazy_stack_of_strings": TypeError,
    "random_0": TypeError,
    "random_2": TypeError,
    "random_4": TypeError,
    "random_7": TypeError,
    "stack_of_strings": TypeError,
    "stack_of_strings_with_a_device": TypeError,
    "stack_of_mixed_values": TypeError,
    "stack_of_stacks": TypeError,
    "stack_of_equal_values": TypeError,
    "nested_tensors": TypeError,
    "nested_tensors_with_empty_components": TypeError,
}
# Trees that tensordict saves with wrong values: it ignores that a tensor is a conjugate view.
WRONG = {"conjugate_and_negative_views"}
KEPT = [name for name in TREES if name not in REFUSED]


def tensors_of_every_dtype() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    shapes = [(), (3,), (2, 3), (0, 4)]
    return {f"{str(d)[6:]}.{len(s)}": trees.values(d, *s) for d in DTYPES for s in shapes}


def described(tensors) -> dict[str, list]:
    return {name: describe_tensor(tensor) for name, tensor in tensors.items()}


# --- flat files and the reference ---


def test_tenfold_loads_files_of_the_reference(tmp_path):
    tensors = tensors_of_every_dtype()
    safetensors.torch.save_file(tensors, tmp_path / "m.safetensors")
    loaded = tenfold.load(tmp_path / "m.safetensors")
    assert described(loaded) == described(tensors)


def test_reference_loads_files_of_tenfold(tmp_path):
    tensors = tensors_of_every_dtype()
    tenfold.save(tensors, tmp_path / "m.safetensors")
    assert described(safetensors.torch.load_file(tmp_path / "m.safetensors")) == described(tensors)
    with safetensors.safe_open(tmp_path / "m.safetensors", framework="pt") as file:
        assert sorted(file.keys()) == sorted(tensors)
        for name in tensors:
            assert describe_tensor(file.get_tensor(name)) == describe_tensor(tensors[name])
            assert list(file.get_slice(name).get_shape()) == list(tensors[name].shape)


def test_data_order_equals_that_of_the_reference(tmp_path):
    """Tensors are sorted by dtype, from larger to smaller items, and then by name."""
    tensors = tensors_of_every_dtype()
    tenfold.save(tensors, tmp_path / "ours.safetensors")
    safetensors.torch.save_file(tensors, tmp_path / "theirs.safetensors")
    assert by_offset(tmp_path / "ours.safetensors") == by_offset(tmp_path / "theirs.safetensors")


def by_offset(path) -> list[tuple[str, list[int]]]:
    raw = path.read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    header.pop("__metadata__", None)
    return sorted(
        ((k, v["data_offsets"]) for k, v in header.items()), key=lambda item: (item[1], item[0])
    )


def test_the_reference_accepts_our_metadata(tmp_path):
    """transformers refuses a file whose metadata does not contain "format": "pt"."""
    tree = {"a": {"b": trees.numbers(2)}, "n": 3, "tied": (trees.numbers(2),)}
    tenfold.save(tree, tmp_path / "m.safetensors")
    with safetensors.safe_open(tmp_path / "m.safetensors", framework="pt") as file:
        metadata = file.metadata()
    assert metadata["format"] == "pt"
    assert all(type(key) is str and type(value) is str for key, value in metadata.items())


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_dtype_round_trips_through_the_reference(dtype, tmp_path):
    tensor = trees.values(dtype, 3, 4)
    tenfold.save({"x": tensor}, tmp_path / "1.safetensors")
    again = safetensors.torch.load_file(tmp_path / "1.safetensors")
    safetensors.torch.save_file(again, tmp_path / "2.safetensors")
    assert describe_tensor(tenfold.load(tmp_path / "2.safetensors")["x"]) == describe_tensor(tensor)


def test_state_dicts_are_interchangeable_with_the_reference(tmp_path):
    model = trees.small_model()
    tenfold.save(model, tmp_path / "ours.safetensors")
    other = trees.small_model()
    safetensors.torch.load_model(other, tmp_path / "ours.safetensors")
    assert described(other.state_dict()) == described(model.state_dict())
    safetensors.torch.save_model(model, tmp_path / "theirs.safetensors")
    other = trees.small_model()
    other.load_state_dict(tenfold.load(tmp_path / "theirs.safetensors"))
    assert described(other.state_dict()) == described(model.state_dict())


def test_tied_tensors_are_compatible_with_save_model(tmp_path):
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Linear(3, 4, bias=False)
            self.head = torch.nn.Linear(3, 4, bias=False)
            self.head.weight = self.embed.weight

    model, other = Tied(), Tied()
    tenfold.save(model.state_dict(), tmp_path / "ours.safetensors")
    with safetensors.safe_open(tmp_path / "ours.safetensors", framework="pt") as file:
        assert len(file.keys()) == 1
    safetensors.torch.load_model(other, tmp_path / "ours.safetensors")
    assert torch.equal(other.head.weight, model.head.weight)
    safetensors.torch.save_model(model, tmp_path / "theirs.safetensors")
    loaded = tenfold.load(tmp_path / "theirs.safetensors")
    assert sorted(loaded) == ["embed.weight", "head.weight"]
    assert loaded["embed.weight"].data_ptr() == loaded["head.weight"].data_ptr()


# --- trees and tensordict ---


@pytest.mark.parametrize("name", REFUSED)
def test_tensordict_refuses_to_save_this_tree(name, tmp_path):
    with pytest.raises(REFUSED[name]):
        to_safetensors(trees.build(name), tmp_path / "t.safetensors")


@pytest.mark.parametrize("name", [name for name in KEPT if name not in WRONG])
def test_tenfold_opens_files_of_to_safetensors(name, tmp_path):
    to_safetensors(trees.build(name), tmp_path / "t.safetensors")
    expected = describe(trees.build(name))
    found = describe_ours(tenfold.open(tmp_path / "t.safetensors"))
    assert_same(found, expected)
    assert order(found) == order(expected)


@pytest.mark.parametrize("name", KEPT)
def test_from_safetensors_reads_files_of_tenfold(name, tmp_path):
    tenfold.save(trees.build(name), tmp_path / "t.safetensors", durable=False)
    assert_same(describe(from_safetensors(tmp_path / "t.safetensors")), describe(trees.build(name)))


@pytest.mark.parametrize("name", [name for name in TREES if REFUSED.get(name) is not KeyError])
def test_trees_round_trip_as_safetensors_or_are_refused(name, tmp_path):
    refused = keys_without_a_form(describe(trees.build(name)))
    if refused:
        keys = "|".join(map(re.escape, refused))
        message = rf'key "({keys})": (a nested tensor|the dtype) cannot be stored'
        with pytest.raises(tenfold.UnsupportedError, match=message):
            tenfold.save(trees.build(name), tmp_path / "t.safetensors")
        return
    tenfold.save(trees.build(name), tmp_path / "t.safetensors", durable=False)
    found = describe_ours(tenfold.load(tmp_path / "t.safetensors", verify=True))
    assert_same(found, describe(trees.build(name)))
    assert order(found) == order(describe(trees.build(name)))


def keys_without_a_form(description) -> list[str]:
    """Returns the keys of nested tensors, and of tensors whose dtype safetensors does not have."""
    found = []

    def note(path, part):
        nameless = part[0] == "tensor" and getattr(torch, part[1]) in NAMELESS
        if part[0] == "nested" or nameless:
            found.append(path.replace("/", "."))
        return part

    transform(description, note)
    return found


@pytest.mark.parametrize("name", [n for n in KEPT if not TREES[n].not_described and n not in WRONG])
def test_tree_converts_from_a_folder_to_safetensors_and_back(name, tmp_path, memmap_of):
    tenfold.convert(memmap_of(name), tmp_path / "t.safetensors")
    assert_same(describe(from_safetensors(tmp_path / "t.safetensors")), describe(trees.build(name)))
    tenfold.convert(tmp_path / "t.safetensors", tmp_path / "t")
    assert_same(describe_ours(tenfold.load(tmp_path / "t")), describe(trees.build(name)))


@pytest.mark.parametrize("dtype", NAMELESS)
def test_dtype_unsupported_by_safetensors_is_refused_by_key(dtype, tmp_path):
    with pytest.raises(tenfold.UnsupportedError, match=rf'"n\.z".*{str(dtype)[6:]}'):
        tenfold.save({"n": {"z": trees.values(dtype, 2)}}, tmp_path / "t.safetensors")
    assert not (tmp_path / "t.safetensors").exists()


def test_keys_with_the_same_joined_name_are_both_kept(tmp_path):
    td = TensorDict({"a.b": trees.numbers(2), "a": {"b": trees.numbers(3)}})
    with pytest.raises(ValueError, match="safetensors name"):
        to_safetensors(td, tmp_path / "theirs.safetensors")
    tenfold.save(td, tmp_path / "t.safetensors")
    assert_same(describe_ours(tenfold.load(tmp_path / "t.safetensors")), describe(td))


def test_foreign_file_opens_flat_with_its_names(tmp_path):
    tensors = {
        "0.weight": torch.ones(4, 3),
        "0.bias": torch.zeros(4),
        "": torch.ones(1),
        "a/b": torch.ones(2),
    }
    safetensors.torch.save_file(tensors, tmp_path / "m.safetensors")
    assert described(tenfold.load(tmp_path / "m.safetensors")) == described(tensors)


def test_lazy_stack_round_trips_with_equal_members(tmp_path):
    stack = lazy_stack(
        [TensorDict({"x": trees.numbers(4) + i}, batch_size=[4]) for i in range(3)], 1
    )
    to_safetensors(stack, tmp_path / "t.safetensors")
    found = describe_ours(tenfold.open(tmp_path / "t.safetensors"))
    assert found[:2] == ["lazy_stack", 1]
    assert_same(found, describe(stack))


def test_json_values_keep_their_types(tmp_path):
    td = TensorDict(
        {"v": NonTensorData([1, 1.0, True, None, "1", 2**70, {"k": []}]), "x": trees.numbers(1)}
    )
    to_safetensors(td, tmp_path / "t.safetensors")
    assert repr(tenfold.load(tmp_path / "t.safetensors")["v"]) == repr(td["v"])
