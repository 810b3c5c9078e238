"""Reading, writing, deleting and moving entries; keys, constructors, casts and gradients."""

import collections
import dataclasses

import pytest
import torch
from compare import assert_same_outcome
from fixtures import BATCH, DENSE, VARIED, my_class, numbers, over

Pair = collections.namedtuple("Pair", "x y")


@dataclasses.dataclass
class Run:
    x: object
    y: object


def ones(td):
    return torch.ones(td.batch_size)


def node(lib, td, **entries):
    return lib.TensorDict(entries, batch_size=td.batch_size)


READS = {
    "keys": lambda td, lib: list(td.keys()),
    "keys_nested": lambda td, lib: list(td.keys(include_nested=True)),
    "keys_leaves": lambda td, lib: list(td.keys(leaves_only=True)),
    "keys_nested_leaves": lambda td, lib: list(td.keys(True, True)),
    "keys_sorted": lambda td, lib: list(td.keys(sort=True)),
    "keys_nested_sorted": lambda td, lib: list(td.keys(True, True, sort=True)),
    "key_in_keys": lambda td, lib: ["a" in td.keys(), "zz" in td.keys(), ("a", "b") in td.keys(True)],  # noqa: E501, SIM118
    "path_in_keys": lambda td, lib: ("my_nested_td", "inner") in td.keys(True),
    "len_of_keys": lambda td, lib: len(td.keys()),
    "items": lambda td, lib: list(td.items()),
    "items_nested": lambda td, lib: list(td.items(include_nested=True)),
    "items_nested_leaves": lambda td, lib: list(td.items(True, True)),
    "items_sorted": lambda td, lib: list(td.items(sort=True)),
    "values": lambda td, lib: list(td.values()),
    "values_leaves": lambda td, lib: list(td.values(leaves_only=True)),
    "values_nested_leaves": lambda td, lib: list(td.values(True, True)),
    "values_nested_sorted": lambda td, lib: list(td.values(True, sort=True)),
    "contains": lambda td, lib: ["a" in td, ("a",) in td, "zz" in td, ("zz", "a") in td],
    "len": lambda td, lib: len(td),
    "get": lambda td, lib: td.get("a"),
    "get_of_a_tuple": lambda td, lib: td.get(("a",)),
    "get_missing": lambda td, lib: td.get("zz"),
    "get_missing_with_a_default": lambda td, lib: td.get("zz", 3),
    "get_missing_path_with_a_default": lambda td, lib: td.get(("zz", "y"), None),
    "getitem": lambda td, lib: td["a"],
    "getitem_of_a_tuple": lambda td, lib: td["a",],
    "getitem_missing": lambda td, lib: td["zz"],
    "getitem_missing_path": lambda td, lib: td["zz", "y"],
    "getitem_below_a_tensor": lambda td, lib: td["a", "x"],
    "get_at": lambda td, lib: td.get_at("a", 1),
    "get_at_slice": lambda td, lib: td.get_at("a", slice(0, 2)),
    "get_at_missing": lambda td, lib: td.get_at("zz", 1),
    "get_at_missing_with_a_default": lambda td, lib: td.get_at("zz", 1, None),
    "is_empty": lambda td, lib: td.is_empty(),
    "batch_size": lambda td, lib: [td.batch_size, td.shape, td.size(), td.batch_dims, td.ndim],
    "dim_size_numel": lambda td, lib: [td.dim(), td.ndimension(), td.numel()],
    "device": lambda td, lib: td.device,
    "is_contiguous": lambda td, lib: td.is_contiguous(),
    "requires_grad": lambda td, lib: td.requires_grad,
    "is_locked": lambda td, lib: td.is_locked,
    "names": lambda td, lib: td.names,
    "to_dict": lambda td, lib: td.to_dict(),
}  # fmt: skip

WRITES = {
    "set": lambda td, lib: td.set("new", ones(td)),
    "set_over": lambda td, lib: td.set("a", ones(td)),
    "set_over_with_another_dtype": lambda td, lib: td.set("a", ones(td).int()),
    "set_inplace": lambda td, lib: td.set("a", torch.zeros_like(td.get("a")), inplace=True),
    "set_path": lambda td, lib: td.set(("new", "x"), ones(td)),
    "set_deep_path": lambda td, lib: td.set(("new", "x", "y"), ones(td)),
    "set_a_dict": lambda td, lib: td.set("new", {"x": ones(td)}),
    "set_a_node": lambda td, lib: td.set("new", node(lib, td, x=ones(td))),
    "set_a_list": lambda td, lib: td.set("new", ones(td).tolist()),
    "set_an_array": lambda td, lib: td.set("new", ones(td).numpy()),
    "setitem": lambda td, lib: td.__setitem__("new", ones(td)),
    "setitem_path": lambda td, lib: td.__setitem__(("new", "x"), ones(td)),
    "setdefault_new": lambda td, lib: td.setdefault("new", ones(td)),
    "setdefault_known": lambda td, lib: td.setdefault("a", ones(td)),
    "set_": lambda td, lib: td.set_("a", torch.zeros_like(td.get("a"))),
    "set_at_": lambda td, lib: td.set_at_("a", torch.zeros_like(td.get("a")[0]), 0),
    "set_at_slice": lambda td, lib: td.set_at_("a", torch.zeros_like(td.get("a")[:2]), slice(2)),
    "set_at_mask": lambda td, lib: td.set_at_("a", 1.0, torch.tensor([True, False, True, False])),
    "set_at_a_number": lambda td, lib: td.set_at_("a", 1.0, 0),
    "pop": lambda td, lib: td.pop("a"),
    "pop_missing_with_a_default": lambda td, lib: td.pop("zz", None),
    "del": lambda td, lib: td.__delitem__("a"),
    "del_": lambda td, lib: td.del_("a"),
    "update_with_a_dict": lambda td, lib: td.update({"a": ones(td), "new": ones(td)}),
    "update_with_a_nested_dict": lambda td, lib: td.update({"n": {"x": ones(td)}}),
    "update_with_a_path": lambda td, lib: td.update({("n", "x"): ones(td)}),
    "update_with_a_td": lambda td, lib: td.update(node(lib, td, a=ones(td), new=ones(td))),
    "update_with_itself": lambda td, lib: td.update(td.clone()),
    "update_inplace": lambda td, lib: td.update({"a": torch.zeros_like(td.get("a"))}, inplace=True),
    "update_cloning": lambda td, lib: td.update({"new": ones(td)}, clone=True),
    "update_some": lambda td, lib: td.update(
        {"a": ones(td), "b": ones(td)}, keys_to_update=["b"]
    ),
    "update_": lambda td, lib: td.update_({"a": torch.zeros_like(td.get("a"))}),
    "update_with_the_whole": lambda td, lib: td.update_(td.clone().zero_()),
    "update_at_": lambda td, lib: td.update_at_({"a": torch.zeros_like(td.get("a")[0])}, 0),
    "update_at_slice": lambda td, lib: td.update_at_(td[:2].clone().zero_(), slice(2)),
    "select": lambda td, lib: td.select("a"),
    "select_two": lambda td, lib: td.select("b", "a"),
    "select_nothing": lambda td, lib: td.select(),
    "select_missing_not_strict": lambda td, lib: td.select("a", "zz", strict=False),
    "select_inplace": lambda td, lib: td.select("a", inplace=True),
    "exclude": lambda td, lib: td.exclude("a"),
    "exclude_missing": lambda td, lib: td.exclude("zz"),
    "exclude_inplace": lambda td, lib: td.exclude("a", inplace=True),
    "split_keys": lambda td, lib: td.split_keys(["a"], ["b"]),
    "split_keys_without_the_rest": lambda td, lib: td.split_keys(["a"], ["c"])[:2],
    "split_keys_inplace": lambda td, lib: td.split_keys(["a"], inplace=True),
    "rename_key_": lambda td, lib: td.rename_key_("a", "z"),
    "rename_key_to_itself": lambda td, lib: td.rename_key_("a", "a"),
    "rename_key_over_another": lambda td, lib: td.rename_key_("a", "b"),
    "rename_key_into_a_node": lambda td, lib: td.rename_key_("a", ("new", "x")),
    "flatten_keys": lambda td, lib: td.flatten_keys(),
    "flatten_keys_by_commas": lambda td, lib: td.flatten_keys(","),
    "flatten_keys_inplace": lambda td, lib: td.flatten_keys(".", inplace=True),
    "flatten_and_unflatten_keys": lambda td, lib: td.flatten_keys("|").unflatten_keys("|"),
    "unflatten_keys": lambda td, lib: td.unflatten_keys("."),
    "empty": lambda td, lib: td.empty(),
    "empty_recursive": lambda td, lib: td.empty(recurse=True),
    "copy": lambda td, lib: td.copy(),
    "clone": lambda td, lib: td.clone(),
    "clone_shallow": lambda td, lib: td.clone(recurse=False),
    "clone_then_set": lambda td, lib: td.clone(False).set("new", ones(td)),
    "replace": lambda td, lib: td.replace({"a": ones(td)}),
    "replace_by_keyword": lambda td, lib: td.replace(a=ones(td)),
    "to_cpu": lambda td, lib: td.to("cpu"),
    "cpu": lambda td, lib: td.cpu(),
    "to_dtype": lambda td, lib: td.to(torch.float64),
    "double": lambda td, lib: td.double(),
    "float": lambda td, lib: td.float(),
    "half": lambda td, lib: td.half(),
    "bfloat16": lambda td, lib: td.bfloat16(),
    "int": lambda td, lib: td.int(),
    "contiguous": lambda td, lib: td.contiguous(),
    "detach": lambda td, lib: td.detach(),
    "zero_": lambda td, lib: td.zero_(),
    "fill_": lambda td, lib: td.fill_("a", 2.0),
    "copy_": lambda td, lib: td.copy_(td.clone().zero_()),
    "clear_device_": lambda td, lib: td.clear_device_(),
    "auto_device_": lambda td, lib: td.auto_device_(),
}  # fmt: skip


@over([*VARIED, "td_with_empty_nodes"], READS)
def test_reads_match_tensordict(build, call):
    assert_same_outcome(build, call)


@over([*VARIED, "td_with_empty_nodes"], WRITES)
def test_writes_match_tensordict(build, call):
    assert_same_outcome(build, call)


SHARING = {
    name: WRITES[name]
    for name in (
        "select", "select_two", "exclude", "split_keys", "flatten_keys", "copy", "clone",
        "clone_shallow", "replace", "to_cpu", "contiguous", "detach", "to_dtype", "update_cloning",
    )
}  # fmt: skip


@over(["nested_td", "idx_td", "td_with_unbatched", "memmap_td"], SHARING)
def test_memory_sharing_matches_tensordict(build, call):
    assert_same_outcome(build, call, memory=True)


NESTED = {
    "get": lambda td, lib: td.get(("my_nested_td", "inner")),
    "getitem": lambda td, lib: td["my_nested_td", "inner"],
    "getitem_of_a_nested_tuple": lambda td, lib: td[("my_nested_td", ("inner",))],
    "getitem_node": lambda td, lib: td["my_nested_td"],
    "getitem_missing": lambda td, lib: td["my_nested_td", "zz"],
    "get_missing": lambda td, lib: td.get(("my_nested_td", "zz"), "default"),
    "contains": lambda td, lib: [("my_nested_td", "inner") in td, ("my_nested_td", "zz") in td],
    "set": lambda td, lib: td.set(("my_nested_td", "new"), ones(td)),
    "set_over_a_node": lambda td, lib: td.set("my_nested_td", ones(td)),
    "set_a_node_over_a_tensor": lambda td, lib: td.set("a", node(lib, td, x=ones(td))),
    "set_below_a_tensor": lambda td, lib: td.set(("a", "x"), ones(td)),
    "set_": lambda td, lib: td.set_(
        ("my_nested_td", "inner"), torch.zeros_like(td["my_nested_td", "inner"])
    ),
    "set_a_node_inplace": lambda td, lib: td.set_("my_nested_td", td["my_nested_td"].clone()),
    "set_at_": lambda td, lib: td.set_at_(("my_nested_td", "inner"), 0.0, (slice(None), 1)),
    "setdefault": lambda td, lib: td.setdefault(("my_nested_td", "new"), ones(td)),
    "pop": lambda td, lib: td.pop(("my_nested_td", "inner")),
    "pop_node": lambda td, lib: td.pop("my_nested_td"),
    "pop_missing": lambda td, lib: td.pop(("my_nested_td", "zz"), None),
    "del": lambda td, lib: td.__delitem__(("my_nested_td", "inner")),
    "update_nested": lambda td, lib: td.update({"my_nested_td": {"new": ones(td)}}),
    "update_node_by_tensor": lambda td, lib: td.update({"my_nested_td": ones(td)}),
    "update_nested_td": lambda td, lib: td.update(
        node(lib, td, my_nested_td=node(lib, td, new=ones(td)))
    ),
    "update_some_nested": lambda td, lib: td.update(
        td.clone().zero_(), keys_to_update=[("my_nested_td", "inner")]
    ),
    "update_nested_inplace": lambda td, lib: td.update(td.clone().zero_(), inplace=True),
    "update_": lambda td, lib: td.update_(
        {"my_nested_td": {"inner": torch.zeros_like(td["my_nested_td", "inner"])}}
    ),
    "select": lambda td, lib: td.select(("my_nested_td", "inner"), "a"),
    "select_twice": lambda td, lib: td.select("my_nested_td", ("my_nested_td", "inner")),
    "select_inplace": lambda td, lib: td.select(("my_nested_td", "inner"), inplace=True),
    "exclude": lambda td, lib: td.exclude(("my_nested_td", "inner")),
    "exclude_node_inplace": lambda td, lib: td.exclude("my_nested_td", inplace=True),
    "split_keys": lambda td, lib: td.split_keys([("my_nested_td", "inner")], ["a"]),
    "rename": lambda td, lib: td.rename_key_(("my_nested_td", "inner"), ("my_nested_td", "z")),
    "rename_out": lambda td, lib: td.rename_key_(("my_nested_td", "inner"), "z"),
    "rename_node": lambda td, lib: td.rename_key_("my_nested_td", "z"),
    "rename_safely": lambda td, lib: td.rename_key_("a", ("my_nested_td", "z"), safe=True),
    "flatten_keys_clash": lambda td, lib: td.set("my_nested_td.inner", ones(td)).flatten_keys(),
    "fill_": lambda td, lib: td.fill_(("my_nested_td", "inner"), 1.0),
    "change_the_child": lambda td, lib: td["my_nested_td"].set("new", ones(td)),
}  # fmt: skip


NESTING = ["nested_td", "nested_stacked_td", "td_with_names", "locked_td", "nested_tensorclass"]
# In tensordict, select() of a child and of one of its descendants returns an unlocked child, but
# select() of the child alone returns a locked one.
UNLOCKED = [("locked_td", "select_twice")]


@over(NESTING, NESTED, skip=UNLOCKED)
def test_nested_keys_match_tensordict(build, call):
    assert_same_outcome(build, call)


DOTTED = {
    "unflatten_keys": lambda td, lib: td.unflatten_keys("."),
    "unflatten_keys_inplace": lambda td, lib: td.unflatten_keys(".", inplace=True),
    "unflatten_by_another": lambda td, lib: td.unflatten_keys("/"),
    "select": lambda td, lib: td.select("n.x"),
}


@pytest.mark.parametrize("call", DOTTED.values(), ids=DOTTED)
def test_dotted_keys_match_tensordict(call):
    def build(lib):
        entries = {"n.x": numbers(3), "n.m.y": numbers(3, 2), "z": numbers(3), "n.b": numbers(3)}
        return lib.TensorDict({**entries, "m": {"p.q": numbers(3)}}, batch_size=[3])

    assert_same_outcome(build, call)


def rows(lib, **kwargs):
    return lib.TensorDict({"x": numbers(3, 2), "n": {"y": numbers(3)}}, **kwargs)


MAKING = {
    "nothing": lambda _, lib: lib.TensorDict(),
    "none": lambda _, lib: lib.TensorDict(None, [2]),
    "empty": lambda _, lib: lib.TensorDict({}, batch_size=[3, 2]),
    "no_batch_size": lambda _, lib: rows(lib),
    "batch_size_as_list": lambda _, lib: rows(lib, batch_size=[3]),
    "batch_size_as_int": lambda _, lib: rows(lib, batch_size=3),
    "batch_size_as_tuple": lambda _, lib: rows(lib, batch_size=(3,)),
    "batch_size_as_size": lambda _, lib: rows(lib, batch_size=torch.Size([3])),
    "batch_size_too_small": lambda _, lib: rows(lib, batch_size=[2]),
    "batch_size_too_long": lambda _, lib: rows(lib, batch_size=[3, 2, 1]),
    "batch_size_that_no_child_has": lambda _, lib: rows(lib, batch_size=[3, 2]),
    "positional": lambda _, lib: lib.TensorDict({"x": numbers(3)}, [3], "cpu"),
    "device": lambda _, lib: rows(lib, device="cpu"),
    "device_object": lambda _, lib: rows(lib, device=torch.device("cpu"), batch_size=[3]),
    "meta_device": lambda _, lib: lib.TensorDict({"x": numbers(3)}, [3], device="meta").device,
    "names": lambda _, lib: rows(lib, batch_size=[3], names=["time"]),
    "names_of_two": lambda _, lib: lib.TensorDict(
        {"x": numbers(3, 2)}, batch_size=[3, 2], names=["a", None]
    ),
    "names_too_long": lambda _, lib: rows(lib, batch_size=[3], names=["a", "b"]),
    "names_twice": lambda _, lib: lib.TensorDict(batch_size=[3, 2], names=["a", "a"]),
    "kwargs": lambda _, lib: lib.TensorDict(a=numbers(3), b=numbers(3, 2), batch_size=[3]),
    "kwargs_of_nodes": lambda _, lib: lib.TensorDict(a=numbers(3), n={"x": numbers(3)}),
    "kwargs_with_a_source": lambda _, lib: lib.TensorDict({"a": numbers(3)}, b=numbers(3)),
    "locked": lambda _, lib: rows(lib, batch_size=[3], lock=True),
    "from_a_td": lambda _, lib: lib.TensorDict(rows(lib, batch_size=[3]), batch_size=[3]),
    "from_a_td_without_batch_size": lambda _, lib: lib.TensorDict(rows(lib, batch_size=[3])),
    "from_a_locked_td": lambda _, lib: lib.TensorDict(rows(lib).lock_()),
    "from_pairs": lambda _, lib: lib.TensorDict([("a", numbers(3))], [3]),
    "from_a_list": lambda _, lib: lib.TensorDict([numbers(3)], [3]),
    "from_a_tensor": lambda _, lib: lib.TensorDict(numbers(3), [3]),
    "numbers": lambda _, lib: lib.TensorDict({"i": 1, "f": 2.5, "b": True, "c": 1j}),
    "numbers_with_batch_size": lambda _, lib: lib.TensorDict({"i": 1}, [3]),
    "lists": lambda _, lib: lib.TensorDict({"x": [1, 2], "y": [[1.0], [2.0]]}, [2]),
    "empty_list": lambda _, lib: lib.TensorDict({"x": []}),
    "tuples": lambda _, lib: lib.TensorDict({"x": (1, 2)}, [2]),
    "arrays": lambda _, lib: lib.TensorDict({"x": numbers(2).numpy()}, [2]),
    "path_keys": lambda _, lib: lib.TensorDict({("n", "x"): numbers(2), ("n", "y"): numbers(2)}),
    "path_keys_of_one": lambda _, lib: lib.TensorDict({("x",): numbers(2)}),
    "int_keys": lambda _, lib: lib.TensorDict({0: numbers(2)}),
    "keys_in_order": lambda _, lib: lib.TensorDict({k: numbers(1) for k in "zybxa"}),
    "zero_rows": lambda _, lib: lib.TensorDict({"x": torch.zeros(0, 3)}, [0]),
    "scalar_for_rows": lambda _, lib: lib.TensorDict({"x": torch.tensor(1.0)}, [3]),
    "child_with_less": lambda _, lib: lib.TensorDict(
        {"n": lib.TensorDict({"x": numbers(3, 2)}, [3])}, [3, 2]
    ),
    "child_with_another": lambda _, lib: lib.TensorDict({"n": lib.TensorDict({}, [2])}, [3]),
    "parameters": lambda _, lib: lib.TensorDict({"p": torch.nn.Parameter(numbers(2))}),
    "from_dict": lambda _, lib: lib.TensorDict.from_dict({"a": numbers(3), "n": {"b": numbers(3)}}),
    "from_dict_batch_size": lambda _, lib: lib.TensorDict.from_dict(
        {"a": numbers(3, 2), "n": {"b": numbers(3, 2)}}, batch_size=[3]
    ),
    "from_dict_batch_dims": lambda _, lib: lib.TensorDict.from_dict(
        {"a": numbers(3, 2), "n": {"b": numbers(3, 2, 5)}}, batch_dims=1
    ),
    "from_dict_auto": lambda _, lib: lib.TensorDict.from_dict(
        {"a": numbers(3, 2), "n": {"b": numbers(3, 2, 5)}}, auto_batch_size=True
    ),
    "from_dict_device_names": lambda _, lib: lib.TensorDict.from_dict(
        {"a": numbers(3)}, batch_size=[3], device="cpu", names=["t"]
    ),
    "from_dict_of_values": lambda _, lib: lib.TensorDict.from_dict({"a": "x", "b": 1, "c": None}),
    "from_dict_of_tuples": lambda _, lib: lib.TensorDict.from_dict(
        {"t": (numbers(3), {"x": (numbers(3), "a")}), "p": Pair(1, (2,)), "r": Run((1,), Run(2, 3))}
    ),
    "from_dict_of_tuples_batch_size": lambda _, lib: lib.TensorDict.from_dict(
        {"t": (numbers(3), (numbers(3),)), "p": Pair(numbers(3), numbers(3))}, batch_size=[3]
    ),
    "from_dict_of_tuples_auto": lambda _, lib: lib.TensorDict.from_dict(
        {"t": (numbers(3), (numbers(3, 2),))}, auto_batch_size=True
    ),
    "from_tuple": lambda _, lib: lib.TensorDict.from_tuple((numbers(3), ("a", Pair(1, 2)))),
    "from_namedtuple": lambda _, lib: lib.TensorDict.from_namedtuple(Pair(Pair(numbers(3), 1), ())),
    "from_namedtuple_of_torch": lambda _, lib: lib.TensorDict.from_namedtuple(numbers(2, 2).max(0)),
    "from_dataclass": lambda _, lib: lib.TensorDict.from_dataclass(Run((1, 2), Run(3, "a"))),
    "from_any_dict": lambda _, lib: lib.TensorDict.from_any({"b": (numbers(3), numbers(2))}),
    "from_any_tensorclass": lambda _, lib: lib.TensorDict.from_any({"b": (point(lib, 0),)}),
    "from_any_numbers": lambda _, lib: lib.TensorDict.from_any([1, 2]),
    "from_any_values": lambda _, lib: lib.TensorDict.from_any([{"k": 1}, "a"]),
    "tensorclass_from_dict_of_tuples": lambda _, lib: my_class(lib).from_dict({"x": (1, "a")}),
    "to_dict_and_back": lambda _, lib: lib.TensorDict.from_dict(rows(lib).to_dict()),
    "to_dict_without_none": lambda _, lib: rows(lib, batch_size=[3]).to_dict(retain_none=False),
}  # fmt: skip


@pytest.mark.parametrize("call", MAKING.values(), ids=MAKING)
def test_constructors_match_tensordict(call):
    assert_same_outcome(lambda lib: None, call)


def named_above(lib, node):
    first = lib.TensorDict({"n": node}, [2], names=["t"])
    second = lib.TensorDict(batch_size=[2], names=["u"]).update({"n": node})
    return [first["n"].names, second["n"].names, node.names]


UNNAMED = {
    "td": lambda lib: lib.TensorDict({"a": numbers(2, 3)}, [2]),
    "locked": lambda lib: lib.TensorDict({"a": numbers(2, 3)}, [2]).lock_(),
    "more_batch_dims": lambda lib: lib.TensorDict({"a": numbers(2, 3)}, [2, 3]),
    "lazy_stack": lambda lib: lib.lazy_stack([lib.TensorDict({"a": numbers(3)}, [3])] * 2),
    "tensorclass": lambda lib: my_class(lib)(x=numbers(2), batch_size=[2]),
}


@pytest.mark.parametrize("build", UNNAMED.values(), ids=UNNAMED)
def test_a_node_keeps_its_names_in_a_node_with_names_as_in_tensordict(build):
    assert_same_outcome(build, lambda node, lib: named_above(lib, node))


def point(lib, start):
    return my_class(lib)(x=numbers(3, start=start), batch_size=[])


LISTS = {
    "numbers": lambda lib: [1, 2],
    "mixed_numbers": lambda lib: [1, 2.5],
    "nested_numbers": lambda lib: [[1, 2], [3, 4]],
    "complex": lambda lib: [1j, 2],
    "tuples": lambda lib: [(1, 2), (3, 4)],
    "scalar_tensors": lambda lib: [torch.tensor(1.0), torch.tensor(2.0)],
    "one_element_tensors": lambda lib: [numbers(1), numbers(1)],
    "tensors": lambda lib: [numbers(3), numbers(3, start=3)],
    "tensors_with_gradients": lambda lib: [numbers(1).requires_grad_() * 2 for _ in range(2)],
    "tensors_of_two_dtypes": lambda lib: [numbers(3), numbers(3, dtype=torch.int64)],
    "tensors_of_two_shapes": lambda lib: [numbers(1), numbers(2)],
    "nested_tensors": lambda lib: [[numbers(3)], [numbers(3)]],
    "tensor_and_number": lambda lib: [torch.tensor(1.0), 2.0],
    "tds": lambda lib: [lib.TensorDict(a=numbers(3)), lib.TensorDict(a=numbers(3, start=3))],
    "tds_of_two_shapes": lambda lib: [lib.TensorDict(a=numbers(3)), lib.TensorDict(a=numbers(2))],
    "tds_with_other_keys": lambda lib: [lib.TensorDict(a=numbers(3)), lib.TensorDict()],
    "td_and_str": lambda lib: [lib.TensorDict(a=numbers(3)), "a"],
    "tensorclasses": lambda lib: [point(lib, 0), point(lib, 3)],
    "dicts": lambda lib: [{"k": 1}, {"k": 2}],
    "nested_dicts": lambda lib: [[{"k": 1}], [{"k": 2}]],
    "bytes": lambda lib: [b"a", b"b"],
    "none": lambda lib: [None, None],
    "number_and_none": lambda lib: [1, None],
    "str": lambda lib: ["a", "b"],
    "str_and_none": lambda lib: ["a", None],
    "nested_str": lambda lib: [["a", "b"], ["c", "d"]],
    "list_and_number": lambda lib: [[1], 2],
    "objects": lambda lib: [len, sum],
    "values": lambda lib: [lib.NonTensorData("a"), "b"],
    "tuple_of_numbers": lambda lib: (1, 2),
    "tuple_of_tensors": lambda lib: (numbers(3), numbers(3)),
}  # fmt: skip


def set_in_stack(lib, value):
    stack = lib.lazy_stack([lib.TensorDict(z=numbers(n)) for n in (1, 2)])
    return [member["k"] for member in stack.set("k", value).tensordicts]


LIST_SETTERS = {
    "constructor": lambda lib, value: lib.TensorDict({"k": value}, [2])["k"],
    "row": lambda lib, value: lib.TensorDict({"k": value}, [2])[0]["k"],
    "no_batch_dims": lambda lib, value: lib.TensorDict({"k": value})["k"],
    "other_batch": lambda lib, value: lib.TensorDict({"k": value}, [5])["k"],
    "set_nested": lambda lib, value: lib.TensorDict(batch_size=[2]).set(("n", "k"), value)["n"],
    "update": lambda lib, value: lib.TensorDict(batch_size=[2]).update({"k": value})["k"],
    "tensorclass": lambda lib, value: my_class(lib)(x=value, batch_size=[2]).x,
    "lazy_stack": set_in_stack,
}


@pytest.mark.parametrize("value", LISTS.values(), ids=LISTS)
@pytest.mark.parametrize("setter", LIST_SETTERS.values(), ids=LIST_SETTERS)
def test_lists_become_the_same_entries_as_in_tensordict(setter, value):
    assert_same_outcome(value, lambda items, lib: setter(lib, items))


ROWS_OF_VALUES = {
    "str": lambda td: td.__setitem__(slice(0, 2), {"k": ["a", "b"]}),
    "new_str": lambda td: td.__setitem__(slice(0, 2), {"new": ["a", "b"]}),
    "set_at": lambda td: td.set_at_("k", ["a", "b"], slice(0, 2)),
}


@pytest.mark.parametrize("write", ROWS_OF_VALUES.values(), ids=ROWS_OF_VALUES)
def test_lists_are_split_over_the_rows_that_they_replace_as_in_tensordict(write):
    def call(td, lib):
        write(td)
        return td

    assert_same_outcome(lambda lib: lib.TensorDict({"k": ["x", "y", "z"]}, [3]), call)


RAGGED = {
    "set": lambda td: td.set("k", [numbers(2, 3), numbers(2, 4)]),
    "set_inplace": lambda td: td.set_("z", [numbers(2, 1, start=5), numbers(2, 2, start=5)]),
}


@pytest.mark.parametrize("write", RAGGED.values(), ids=RAGGED)
def test_members_of_a_stack_get_tensors_of_two_shapes_as_in_tensordict(write):
    def build(lib):
        return lib.lazy_stack([lib.TensorDict({"z": numbers(2, n)}, [2]) for n in (1, 2)])

    assert_same_outcome(build, lambda td, lib: write(td).tensordicts)


@pytest.mark.parametrize("cast", ["double", "float", "half", "bfloat16", "int", "bool"])
def test_casts_match_tensordict(cast):
    def build(lib):
        return lib.TensorDict({"x": numbers(3), "i": numbers(3, dtype=torch.int32), "s": "text"})

    assert_same_outcome(build, lambda td, lib: getattr(td, cast)())


GRADIENTS = {
    "requires_grad_": lambda td, lib: td.requires_grad_(),
    "requires_grad_false": lambda td, lib: td.requires_grad_().requires_grad_(False),
    "detach": lambda td, lib: td.requires_grad_().detach(),
    "detach_": lambda td, lib: td.requires_grad_().detach_(),
    "data": lambda td, lib: td.requires_grad_().data,
    "grad": lambda td, lib: td.grad,
    "grad_after_backward": lambda td, lib: [
        sum(x.sum() for x in td.requires_grad_().values(True, True)).backward(),
        td.grad,
    ],
    "zero_grad": lambda td, lib: td.requires_grad_().zero_grad(),
    "requires_grad": lambda td, lib: [td.requires_grad, td.requires_grad_().requires_grad],
}


@pytest.mark.parametrize("call", GRADIENTS.values(), ids=GRADIENTS)
def test_gradients_match_tensordict(call):
    def build(lib):
        return lib.TensorDict({"x": torch.ones(3), "n": {"y": torch.ones(3, 2)}}, batch_size=[3])

    assert_same_outcome(build, call)


OF_SOME_MEMBERS = {
    "grad": lambda td, lib: td.grad,
    "grad_of_a_key": lambda td, lib: [td.grad.get("x"), td.grad["x"]],
    "apply": lambda td, lib: td.apply(lambda x: x if x.grad is not None else None),
    "apply_all": lambda td, lib: td.apply(lambda x: None),
    "apply_inplace": lambda td, lib: (
        td.detach().clone().apply(lambda x: x + 1 if x.sum() == 3 else None, inplace=True)
    ),
}


@pytest.mark.parametrize("call", OF_SOME_MEMBERS.values(), ids=OF_SOME_MEMBERS)
def test_results_for_some_members_of_a_stack_match_tensordict(call):
    def build(lib):
        members = [lib.TensorDict({"x": torch.full((3,), i)}, [3]) for i in (1.0, 2.0)]
        members[0].requires_grad_()["x"].sum().backward()
        return lib.lazy_stack(members)

    assert_same_outcome(build, call)


def test_fixtures_have_the_expected_batch_size():
    import fixtures
    import tensordict

    for name in DENSE:
        if name != "deeper_nested_td":
            assert fixtures.FIXTURES[name](tensordict).batch_size == BATCH, name
