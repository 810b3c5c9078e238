"""HierarchicalStateMapper: lookups by path, defaults, composition."""

from __future__ import annotations

import enum

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import tenfold  # noqa: E402
from helpers import DTYPES, assert_same, make_tensor  # noqa: E402
from hierarchies import has_level_as_default, keys, levels  # noqa: E402
from tenfold._interop.frameworks import using  # noqa: E402

SEED = {"level1": {"a": 1, "b": 2}, "level2": {"c": 3}}


def test_a_value_is_found_by_its_path():
    mapper = tenfold.HierarchicalStateMapper(SEED)
    assert mapper("level1/b").equal(torch.tensor(2))
    assert mapper(("level1", "b")).equal(torch.tensor(2))
    assert mapper(["level1/a", ("level2", "c")]).equal(torch.tensor([1, 3]))
    assert mapper([]).shape == (0,)


def test_defaults_are_inherited_and_the_deepest_one_wins():
    mapper = tenfold.HierarchicalStateMapper(
        {
            "default": 0,
            "a": {"x": 1, "b": {"default": 2, "y": 3, "c": {"z": 4}}},
            "e": {"default": 5, "f": {}},
        }
    )
    expected = {
        "a/x": 1,
        "a/b/y": 3,
        "a/b/c/z": 4,
        "nowhere": 0,
        "a": 0,  # the path names a level, not a value
        "a/nowhere/at/all": 0,
        "a/b": 2,
        "a/b/nowhere": 2,
        "a/b/c": 2,
        "a/b/c/nowhere": 2,
        "a/x/below/a/value": 0,
        "a/b/y/below": 2,
        "e/f/g": 5,
        "default": 0,
        "e/default": 5,
    }
    for path, value in expected.items():
        assert mapper(path) == value, path
    assert mapper(list(expected)).tolist() == list(expected.values())


def test_default_key_can_be_chosen():
    mapper = tenfold.HierarchicalStateMapper({"*": 1, "default": 2}, default_key="*")
    assert mapper(["x", "default"]).tolist() == [1, 2]
    assert mapper.default_key == "*"


@pytest.mark.parametrize(
    ("path", "level"),
    [("level1/x", '"level1"'), ("x", "the root"), ("level1/a/b", '"level1"'), ("level1", "level1")],
)
def test_an_unknown_state_names_itself_and_the_nearest_level(path, level):
    mapper = tenfold.HierarchicalStateMapper(SEED)
    for states in (path, tuple(path.split("/")), ["level1/a", path]):
        with pytest.raises(KeyError, match=rf"no state .*nearest level that exists is .*{level}"):
            mapper(states)


@pytest.mark.parametrize("path", ["", "/", "a//b", "level1/", "/a", ("a/b",), ("", "a"), ()])
def test_an_invalid_path_is_an_error_even_with_a_default(path):
    mapper = tenfold.HierarchicalStateMapper({"default": 0, "a/b".replace("/", "_"): 1})
    for states in (path, [path]):
        with pytest.raises(ValueError, match="path whose components"):
            mapper(states)


def test_a_component_with_a_slash_does_not_match_a_deeper_path():
    mapper = tenfold.HierarchicalStateMapper({"a": {"b": {"c": 1}}})
    with pytest.raises(ValueError, match="path whose components"):
        mapper([("a/b", "c")])


@pytest.mark.parametrize("state", [None, 1.5, {"a": 1}, ["a"], torch.zeros(2), b"a"])
def test_states_that_are_not_paths_raise_type_error(state):
    mapper = tenfold.HierarchicalStateMapper(SEED)
    with pytest.raises(TypeError, match="expected a str, an int or a tuple"):
        mapper([state])
    if not isinstance(state, list):
        with pytest.raises(TypeError, match="expected a str, an int or a tuple"):
            mapper(state)


def test_components_of_a_subclass_of_str_are_their_characters():
    class Color(str, enum.Enum):
        RED = "red"

    m = tenfold.HierarchicalStateMapper({"a": {Color.RED: 1, "default": 0}})
    assert m(("a", Color.RED)) == m("a/red") == 1


def test_integer_components_equal_their_digits():
    mapper = tenfold.HierarchicalStateMapper({0: {1: 5, "2": 6}, "3": 7})
    assert mapper([(0, 1), "0/2", ("0", 2), 3]).tolist() == [5, 6, 6, 7]
    with pytest.raises(ValueError, match='duplicate key "1"'):
        tenfold.HierarchicalStateMapper({0: {1: 5, "1": 6}})


@pytest.mark.parametrize(
    ("hierarchy", "error", "message"),
    [
        ([], TypeError, "expected a dict, found list"),
        ({"": 1}, ValueError, "not empty"),
        ({"x": {"a/b": 1}}, ValueError, r'level "x": key "a/b"'),
        ({(1, 2): 1}, TypeError, r"root: key \(1, 2\)"),
        ({float("nan"): 1}, TypeError, "key nan"),
        ({True: 1}, TypeError, "key True"),
        ({"a": {"default": {}}}, ValueError, '"a/default": the default of a level is a value'),
        ({"a": {1, 2}}, tenfold.UnsupportedError, '"a": .*found set'),
        ({"a": [object()]}, tenfold.UnsupportedError, '"a": .*found list'),
        ({"a": torch.eye(2).to_sparse()}, tenfold.UnsupportedError, "dense tensor"),
    ],
)
def test_errors_name_unsupported_values(hierarchy, error, message):
    with pytest.raises(error, match=message):
        tenfold.HierarchicalStateMapper(hierarchy)


def test_a_level_inside_itself_is_refused():
    level = {"a": 1}
    level["again"] = level
    with pytest.raises(ValueError, match="at most 512 levels"):
        tenfold.HierarchicalStateMapper(level)


def test_512_levels_are_supported():
    hierarchy = value = {}
    for _ in range(511):
        value["x"] = value = {}
    value["x"] = 7
    mapper = tenfold.HierarchicalStateMapper(hierarchy)
    assert mapper("/".join("x" * 512)) == 7
    assert mapper.hierarchy == hierarchy


def test_values_keep_dtype_and_shape_and_batches_are_stacked():
    for dtype in DTYPES:
        rows = [make_tensor((2, 3), dtype, seed) for seed in range(3)]
        mapper = tenfold.HierarchicalStateMapper({str(i): row for i, row in enumerate(rows)})
        assert_same(mapper("1"), rows[1])
        assert_same(mapper(["2", "0"])[0], rows[2])
        assert_same(mapper.hierarchy["2"], rows[2])


def test_numbers_lists_arrays_and_strings_are_values():
    mapper = tenfold.HierarchicalStateMapper(
        {"i": 1, "f": 0.5, "b": True, "l": [1, 2.5], "m": [[1], [2]], "n": np.float32([1, 2]),
         "t": "text", "none": None, "mixed": [1, "a"], "big": 2**70, "scalar": np.float32(3)}
    )  # fmt: skip
    assert_same(mapper("i"), torch.tensor(1))
    assert_same(mapper("f"), torch.tensor(0.5, dtype=torch.float64))
    assert_same(mapper("b"), torch.tensor(True))
    assert_same(mapper("l"), torch.tensor([1, 2.5], dtype=torch.float64))
    assert_same(mapper("m"), torch.tensor([[1], [2]]))
    assert_same(mapper("n"), torch.tensor([1.0, 2.0]))
    assert_same(mapper("scalar"), torch.tensor(3.0))
    assert mapper("t") == "text"
    assert mapper("none") is None
    assert mapper("big") == 2**70
    assert mapper(["t", "mixed"]) == ["text", [1, "a"]]
    assert mapper(["t", "i"]) == ["text", torch.tensor(1)]


def test_batch_dtype_is_promoted_as_by_torch():
    mapper = tenfold.HierarchicalStateMapper(
        {"i": 1, "f": 0.5, "h": torch.tensor(2.0, dtype=torch.float16), "l": [1.0, 2.0]}
    )
    assert_same(mapper(["i", "f", "i"]), torch.tensor([1, 0.5, 1], dtype=torch.float64))
    assert_same(mapper(["h", "i"]), torch.tensor([2, 1], dtype=torch.float16))
    with pytest.raises(ValueError, match=r"states 'i' and 'l'.*expected \[\], found \[2\]"):
        mapper(["i", "l"])


def test_results_are_copies():
    tensor = torch.ones(2)
    mapper = tenfold.HierarchicalStateMapper({"a": tensor, "b": torch.zeros(2)})
    mapper("a").zero_()
    mapper(["a", "a"]).zero_()
    mapper.hierarchy["a"].zero_()
    assert mapper("a").tolist() == [1, 1]


@tenfold.register_mapper("test.hierarchical_linear")
def linear():
    return torch.nn.Linear(2, 3)


def test_nested_mapper_receives_the_rest_of_the_path():
    net = tenfold.ModuleStateMapper("test.hierarchical_linear")
    inner = tenfold.HierarchicalStateMapper({"x": {"y": [1.0, 2.0, 3.0]}, "z": [4.0, 5.0, 6.0]})
    mapper = tenfold.HierarchicalStateMapper(
        {"net": net, "deep": {"inner": inner}, "row": [7.0, 8.0, 9.0]}
    )
    state = (0.5, 1.0)
    assert mapper(("net", state)).equal(net(state))
    assert mapper("deep/inner/x/y").tolist() == [1, 2, 3]
    batch = mapper(["row", ("net", state), "deep/inner/z", ("net", (0.0, 0.0)), "deep/inner/x/y"])
    assert batch.shape == (5, 3)
    assert batch.dtype == torch.float64
    torch.testing.assert_close(batch[1].float(), net(state))
    torch.testing.assert_close(batch[3].float(), net.module.bias)
    assert batch[[0, 2, 4], 0].tolist() == [7, 4, 1]
    assert mapper([("net", state), ("net", state)]).equal(net([state, state]))
    with pytest.raises(KeyError, match="ends at a mapper: expected a longer path"):
        mapper("net")
    with pytest.raises(KeyError, match=r'below "deep/inner": .*nearest level'):
        mapper("deep/inner/nowhere")
    with pytest.raises(KeyError, match=r'below "deep/inner": .*nearest level'):
        mapper(["row", "deep/inner/nowhere"])


@pytest.mark.parametrize("batch", [[1, 2], torch.tensor([1, 2])])
def test_last_component_is_one_state_even_if_it_is_a_list_or_tensor(batch):
    arm = tenfold.SparseStateMapper([1, 2], torch.eye(2).to_sparse_csr())
    mapper = tenfold.HierarchicalStateMapper({"arm": arm, "row": [0.0, 0.0]})
    for states in (("arm", batch), [("arm", batch)], ["row", ("arm", batch)]):
        with pytest.raises(
            TypeError, match="None, a bool, an int, a float, a str or a tuple of them"
        ):
            mapper(states)
    net = tenfold.ModuleStateMapper("test.hierarchical_linear")
    mapper = tenfold.HierarchicalStateMapper({"net": net})
    assert mapper(("net", [0.5, 1.0])).equal(mapper([("net", (0.5, 1.0))])[0])


def test_default_mapper_receives_the_path_below_its_level():
    inner = tenfold.HierarchicalStateMapper({"a": 1, "b": {"c": 2}})
    mapper = tenfold.HierarchicalStateMapper({"top": {"default": inner, "own": 5, "low": {}}})
    assert mapper(["top/a", "top/b/c", "top/own"]).tolist() == [1, 2, 5]
    assert mapper("top/default/a") == 1
    with pytest.raises(KeyError):
        mapper("top/low/a")


@pytest.mark.parametrize("key", ["a\0b", "a\ud800b"])
def test_a_mapper_may_be_nested_under_any_key(tmp_path, key):
    net = tenfold.ModuleStateMapper("test.hierarchical_linear")
    tenfold.HierarchicalStateMapper({key: net}).save(tmp_path / "mapper")
    loaded = tenfold.StateMapper.load(tmp_path / "mapper")
    assert type(loaded.hierarchy[key]) is tenfold.ModuleStateMapper


def test_gradients_flow_through_a_nested_mapper():
    net = tenfold.ModuleStateMapper("test.hierarchical_linear")
    mapper = tenfold.HierarchicalStateMapper({"net": net, "row": torch.zeros(3)})
    mapper(["row", ("net", (1.0, 2.0))]).sum().backward()
    assert net.module.bias.grad.tolist() == [1, 1, 1]


def test_nested_mapper_may_be_cached():
    inner = tenfold.HierarchicalStateMapper({"a": 1}).cached(1000)
    mapper = tenfold.HierarchicalStateMapper({"inner": inner})
    mapper(["inner/a", "inner/a"])
    assert inner.misses == 1
    assert inner.hits == 1


def test_repr_shows_node_counts_and_value_types():
    mapper = tenfold.HierarchicalStateMapper({"a": {"b": 1}, "c": torch.zeros(2, 3)})
    assert repr(mapper) == "HierarchicalStateMapper(3 nodes: int64 [1], float32 [1, 2, 3])"
    assert repr(tenfold.HierarchicalStateMapper({})) == "HierarchicalStateMapper(0 nodes)"


def walked(hierarchy, path, default_key):
    """Returns (value,): the value at `path`, else the nearest default. None if neither exists."""
    level, default = hierarchy, None
    for part in path:
        if not isinstance(level, dict):
            return default
        if default_key in level:
            default = (level[default_key],)
        if part not in level:
            return default
        level = level[part]
    if isinstance(level, dict):
        return (level[default_key],) if default_key in level else default
    return (level,)


@settings(deadline=None)
@given(levels, st.lists(st.lists(keys, min_size=1, max_size=4), max_size=5))
def test_lookups_match_nested_dicts_and_the_hierarchy_round_trips(hierarchy, paths):
    default_key = "a"
    if has_level_as_default(hierarchy, default_key):
        with pytest.raises(ValueError, match="default of a level is a value"):
            tenfold.HierarchicalStateMapper(hierarchy, default_key)
        return
    mapper = tenfold.HierarchicalStateMapper(hierarchy, default_key)
    assert_same(mapper.hierarchy, hierarchy)
    for path in paths:
        expected = walked(hierarchy, path, default_key)
        if expected is None:
            with pytest.raises(KeyError, match="no state"):
                mapper(tuple(path))
            continue
        found = mapper(tuple(path))
        if torch.is_tensor(expected[0]):
            assert_same(found, expected[0])
        elif torch.is_tensor(found):
            assert_same(found.tolist(), expected[0])
        else:
            assert_same(found, expected[0])


def test_meta_tensor_as_a_default_is_refused_by_its_path():
    torch = pytest.importorskip("torch")
    with pytest.raises(tenfold.UnsupportedError, match=r'hierarchy: ".*default": .*meta device'):
        tenfold.HierarchicalStateMapper({"default": torch.ones(2, device="meta")})


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_arrays_that_are_no_numbers_are_refused_by_their_path(framework):
    with using(framework):
        for value in (
            np.array(["x"]),
            np.array([b"x"]),
            np.array([None]),
            np.array([1], "datetime64[s]"),
            np.datetime64(1, "s"),
        ):
            with pytest.raises(
                tenfold.UnsupportedError, match='"a/b": expected numbers or bools, found an array'
            ):
                tenfold.HierarchicalStateMapper({"a": {"b": value}})
        assert tenfold.HierarchicalStateMapper({"a": np.str_("x")})("a") == "x"
