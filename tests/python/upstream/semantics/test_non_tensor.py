"""Values that are not tensors: NonTensorData, NonTensorStack, and plain Python values."""

import pytest
import torch
from compare import assert_same_outcome
from fixtures import new_folder, numbers

VALUES = {
    "str": "text",
    "empty_str": "",
    "none": None,
    "dict": {"k": [1, {"x": None}], "m": {"z": 2.5}},
    "list_of_str": ["a", "b"],
    "mixed_list": ["a", 1, None],
    "tuple": ("a", 1),
    "int": 3,
    "float": 2.5,
    "bool": True,
    "function": len,
    "object": Ellipsis,
}

SETTERS = {
    "set_non_tensor": lambda td, value, lib: td.set_non_tensor("v", value),
    "set_non_tensor_path": lambda td, value, lib: td.set_non_tensor(("n", "v"), value),
    "non_tensor_data": lambda td, value, lib: td.set(
        "v", lib.NonTensorData(value, batch_size=td.batch_size)
    ),
    "non_tensor_data_without_batch_size": lambda td, value, lib: td.set(
        "v", lib.NonTensorData(value)
    ),
    "non_tensor_data_of_a_longer_batch_size": lambda td, value, lib: td.set(
        "v", lib.NonTensorData(value, batch_size=[4, 3])
    ),
    "non_tensor_data_of_another_batch_size": lambda td, value, lib: td.set(
        "v", lib.NonTensorData(value, batch_size=[5, 3])
    ),
}


def base(lib):
    return lib.TensorDict({"x": numbers(4, 3)}, batch_size=[4])


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("setter", SETTERS.values(), ids=SETTERS)
def test_non_tensor_setters_match_tensordict(setter, value):
    def call(td, lib):
        setter(td, value, lib)
        key = "v" if "v" in td.keys() else ("n", "v")  # noqa: SIM118
        return [td[key], td.get(key).data, td.get(key).batch_size, type(td.get(key))]

    assert_same_outcome(base, call)


PLAIN = {name: VALUES[name] for name in ("str", "empty_str", "none", "mixed_list")}


@pytest.mark.parametrize("value", PLAIN.values(), ids=PLAIN)
def test_plain_values_without_batch_dimensions_match_tensordict(value):
    def build(lib):
        return lib.TensorDict({"x": numbers(3)})

    def call(td, lib):
        td["v"] = value
        return [td["v"], td.get("v"), list(td.keys())]

    assert_same_outcome(build, call)


@pytest.mark.parametrize("value", ["text", None, ["a", "b", "c", "d"]], ids=repr)
def test_plain_values_with_batch_dimensions_match_tensordict(value):
    def call(td, lib):
        td["v"] = value
        return [td["v"], td.get("v").batch_size]

    assert_same_outcome(base, call)


def with_values(lib):
    td = lib.TensorDict({"x": numbers(4, 3)}, batch_size=[4])
    td["same"] = lib.NonTensorData("same", batch_size=[4])
    td["each"] = lib.NonTensorStack(*[lib.NonTensorData(f"row {i}") for i in range(4)])
    td["n"] = lib.TensorDict({"inner": lib.NonTensorData({"k": 1}, batch_size=[4])}, [4])
    return td


CALLS = {
    "getitem": lambda td, lib: td["same"],
    "get": lambda td, lib: td.get("same"),
    "type_of_get": lambda td, lib: [type(td.get("same")), type(td.get("each"))],
    "get_nested": lambda td, lib: td["n", "inner"],
    "get_stack": lambda td, lib: td["each"],
    "get_non_tensor": lambda td, lib: [td.get_non_tensor("same"), td.get_non_tensor(("n", "inner"))],  # noqa: E501
    "get_non_tensor_of_a_tensor": lambda td, lib: td.get_non_tensor("x"),
    "keys_leaves": lambda td, lib: list(td.keys(True, True)),
    "items": lambda td, lib: list(td.items()),
    "values_leaves": lambda td, lib: list(td.values(True, True)),
    "row": lambda td, lib: td[0],
    "row_values": lambda td, lib: [td[i]["each"] for i in range(4)],
    "rows": lambda td, lib: td[1:3],
    "rows_values": lambda td, lib: td[1:3]["each"],
    "rows_list": lambda td, lib: td[[3, 0]]["each"],
    "rows_mask": lambda td, lib: td[torch.tensor([True, False, False, True])]["each"],
    "rows_tensor": lambda td, lib: td[torch.tensor([[0, 1], [2, 3]])]["each"],
    "none": lambda td, lib: td[None]["each"],
    "view": lambda td, lib: td.view(2, 2)["same"],
    "reshape_stack": lambda td, lib: td.reshape(2, 2)["each"],
    "expand": lambda td, lib: td.expand(2, 4)["same"],
    "expand_stack": lambda td, lib: td.expand(2, 4)["each"],
    "unsqueeze": lambda td, lib: td.unsqueeze(0)["each"],
    "unbind": lambda td, lib: [part["each"] for part in td.unbind(0)],
    "split": lambda td, lib: [part["each"] for part in td.split([1, 3])],
    "clone": lambda td, lib: td.clone(),
    "select": lambda td, lib: td.select("same", ("n", "inner")),
    "exclude": lambda td, lib: td.exclude("same"),
    "pop": lambda td, lib: td.pop("same"),
    "del": lambda td, lib: td.__delitem__("same"),
    "rename": lambda td, lib: td.rename_key_("same", "other"),
    "flatten_keys": lambda td, lib: td.flatten_keys(),
    "flatten_keys_values": lambda td, lib: td.flatten_keys(".")["n.inner"],
    "unflatten_keys": lambda td, lib: td.flatten_keys(".").unflatten_keys("."),
    "to_dict": lambda td, lib: td.to_dict(),
    "to": lambda td, lib: td.to(torch.float64),
    "apply": lambda td, lib: td.apply(lambda x: x + 1),
    "add": lambda td, lib: td + 1,
    "eq": lambda td, lib: (td == td.clone()).all(),
    "eq_other_value": lambda td, lib: td == td.clone().set_non_tensor("same", "other"),
    "stack_same": lambda td, lib: torch.stack([td, td.clone()])["same"],
    "stack_same_type": lambda td, lib: type(torch.stack([td, td.clone()]).get("same")),
    "stack_other": lambda td, lib: torch.stack([td, td.clone().set_non_tensor("same", "o")])["same"],  # noqa: E501
    "stack_other_dim_1": lambda td, lib: torch.stack(
        [td, td.clone().set_non_tensor("same", "other")], 1
    )["same"],
    "stack_each": lambda td, lib: torch.stack([td, td.clone()])["each"],
    "cat_same": lambda td, lib: torch.cat([td, td.clone()])["same"],
    "cat_each": lambda td, lib: torch.cat([td, td.clone()])["each"],
    "lazy_stack": lambda td, lib: lib.lazy_stack([td, td.clone()])["same"],
    "set_over_a_value": lambda td, lib: td.set_non_tensor("same", "changed"),
    "set_a_tensor_over_a_value": lambda td, lib: td.set("same", torch.ones(4)),
    "set_a_value_over_a_tensor": lambda td, lib: td.set_non_tensor("x", "value"),
    "update": lambda td, lib: td.update({"same": "changed"}),
    "update_with_a_td": lambda td, lib: td.update(td.clone().set_non_tensor("same", "changed")),
    "setitem_row": lambda td, lib: td.__setitem__(0, td[1].clone()),
    "setitem_row_each": lambda td, lib: td.__setitem__(0, td[1].clone()) or td["each"],
    "setitem_row_same": lambda td, lib: td.__setitem__(
        0, td[1].clone().set_non_tensor("same", "first")
    ) or td["same"],
    "locked_set": lambda td, lib: td.lock_().set_non_tensor("same", "changed"),
    "repr": lambda td, lib: repr(td),
    "repr_of_a_value": lambda td, lib: [repr(td.get("same")), repr(td.get("each"))],
    "is_empty": lambda td, lib: td.select("same").is_empty(),
    "state_dict": lambda td, lib: td.state_dict(),
    "where": lambda td, lib: td.where(torch.ones(4, dtype=torch.bool), td.clone()),
    "contiguous": lambda td, lib: td.contiguous(),
    "permute": lambda td, lib: td.unsqueeze(0).permute(1, 0)["each"],
    "gather": lambda td, lib: td.gather(0, torch.tensor([3, 0]))["same"],
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_operations_with_values_match_tensordict(call):
    assert_same_outcome(with_values, call)


DATA = {
    "data": lambda v, lib: v.data,
    "batch_size": lambda v, lib: v.batch_size,
    "tolist": lambda v, lib: v.tolist(),
    "index": lambda v, lib: v[0].data,
    "index_slice": lambda v, lib: v[:1].batch_size,
    "device": lambda v, lib: v.device,
    "eq": lambda v, lib: v == v.clone(),
    "stack": lambda v, lib: torch.stack([v, v]).tolist(),
    "expand": lambda v, lib: v.expand(3, 2).tolist(),
    "unbind": lambda v, lib: [part.data for part in v.unbind(0)],
    "clone": lambda v, lib: v.clone(),
    "view": lambda v, lib: v.view(-1).tolist(),
    "reshape": lambda v, lib: v.reshape(1, -1),
    "flatten": lambda v, lib: v.flatten().tolist(),
    "permute": lambda v, lib: v.permute(0).tolist(),
    "transpose": lambda v, lib: torch.stack([v, v]).transpose(0, 1),
    "split": lambda v, lib: v.split(1),
    "to": lambda v, lib: [v.to("cpu"), v.cpu(), v.to("cpu").device],
    "contiguous": lambda v, lib: [v.contiguous(), v.detach()],
    "in_a_td": lambda v, lib: lib.TensorDict({"v": v}, [2])["v"],
    "in_a_td_without_rows": lambda v, lib: lib.TensorDict({"v": v})["v"],
}


@pytest.mark.parametrize("call", DATA.values(), ids=DATA)
@pytest.mark.parametrize("value", ["text", {"k": 1}, [1, 2], 7], ids=repr)
def test_non_tensor_data_matches_tensordict(call, value):
    assert_same_outcome(lambda lib: lib.NonTensorData(value, batch_size=[2]), call)


STACK = {
    "tolist": lambda s, lib: s.tolist(),
    "batch_size": lambda s, lib: [s.batch_size, s.stack_dim],
    "index": lambda s, lib: s[1].data,
    "index_negative": lambda s, lib: s[-1].data,
    "index_out_of_range": lambda s, lib: s[5],
    "slice": lambda s, lib: s[1:].tolist(),
    "list": lambda s, lib: s[[2, 0]].tolist(),
    "mask": lambda s, lib: s[torch.tensor([True, False, True])].tolist(),
    "len": lambda s, lib: len(s),
    "iterate": lambda s, lib: [part.data for part in s],
    "unbind": lambda s, lib: [part.data for part in s.unbind(0)],
    "stack": lambda s, lib: torch.stack([s, s]).tolist(),
    "stack_dim_1": lambda s, lib: torch.stack([s, s], 1).tolist(),
    "cat": lambda s, lib: torch.cat([s, s]).tolist(),
    "unsqueeze": lambda s, lib: s.unsqueeze(0).tolist(),
    "clone": lambda s, lib: s.clone().tolist(),
    "view": lambda s, lib: s.view(-1).tolist(),
    "reshape": lambda s, lib: s.reshape(1, -1),
    "flatten": lambda s, lib: s.flatten().tolist(),
    "permute": lambda s, lib: s.permute(0).tolist(),
    "transpose": lambda s, lib: torch.stack([s, s]).transpose(0, 1),
    "split": lambda s, lib: s.split(1),
    "to": lambda s, lib: [s.to("cpu"), s.cpu(), s.to("cpu").device],
    "contiguous": lambda s, lib: [s.contiguous(), s.detach()],
    "from_list_of_lists": lambda s, lib: lib.NonTensorStack.from_list(
        [["a", "b"], ["c", "d"]]
    ).batch_size,
    "from_nontensordata": lambda s, lib: lib.NonTensorStack.from_nontensordata(
        lib.NonTensorData("x", batch_size=[3])
    ).tolist(),
    "set_an_item": lambda s, lib: s.__setitem__(0, lib.NonTensorData("new")) or s.tolist(),
    "set_an_item_plainly": lambda s, lib: s.__setitem__(0, "new") or s.tolist(),
    "repr": lambda s, lib: repr(s),
    "in_a_td": lambda s, lib: lib.TensorDict({"s": s}, [3])["s"],
    "in_a_td_of_another_batch_size": lambda s, lib: lib.TensorDict({"s": s}, [2]),
}  # fmt: skip


@pytest.mark.parametrize("call", STACK.values(), ids=STACK)
@pytest.mark.parametrize(
    "values", [("a", "b", "c"), (1, None, {"k": 2}), ([1], [2], [3])], ids=repr
)
def test_non_tensor_stack_matches_tensordict(call, values):
    assert_same_outcome(
        lambda lib: lib.NonTensorStack(*[lib.NonTensorData(value) for value in values]), call
    )


def test_a_stack_of_different_values_has_no_data():
    def build(lib):
        return lib.NonTensorStack(lib.NonTensorData("a"), lib.NonTensorData("b"))

    assert_same_outcome(build, lambda s, lib: s.data, raises=AttributeError)


def test_values_round_trip_through_a_folder():
    def build(lib):
        return with_values(lib).memmap_(new_folder())

    assert_same_outcome(build, lambda td, lib: [td, td["each"], td["n", "inner"]])
    assert_same_outcome(build, lambda td, lib: lib.TensorDict.load_memmap(td.saved_path))
