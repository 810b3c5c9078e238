"""A hierarchy as a tree: an index of paths and tables of values."""

from __future__ import annotations

import pickle

import pytest

torch = pytest.importorskip("torch")

from hypothesis import HealthCheck, assume, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import tenfold  # noqa: E402
from helpers import DTYPES, assert_same, make_tensor  # noqa: E402
from hierarchies import has_level_as_default, keys, levels, with_one_nan  # noqa: E402


@pytest.fixture(params=["mapper", "mapper.tdz", "mapper.safetensors", "mapper.pt"])
def path(request, tmp_path):
    return tmp_path / request.param


def saved(hierarchy, path, default_key="default"):
    tenfold.HierarchicalStateMapper(hierarchy, default_key).save(path)
    return tenfold.StateMapper.load(path)


def test_a_mapper_of_each_format_returns_the_same_values(path):
    hierarchy = {
        "default": 0,
        "a": {"x": 1, "b": {"default": 2, "y": 3, "c": {"z": 4}}},
        "e": {"default": 5, "f": {}},
        "t": "text",
    }
    mapper = tenfold.HierarchicalStateMapper(hierarchy)
    loaded = saved(hierarchy, path)
    paths = ["a/x", "a/b/y", "a/b/c/z", "nowhere", "a", "a/nowhere/at/all", "a/b", "a/b/nowhere",
             "a/x/below/a/value", "a/b/y/below", "e/f/g", "default", ("a", "x")]  # fmt: skip
    assert loaded(paths).equal(mapper(paths))
    for each in paths:
        assert loaded(each).equal(mapper(each))
    assert loaded("t") == "text"
    assert loaded(["t", "a/x"]) == ["text", torch.tensor(1)]
    assert loaded.hierarchy == hierarchy
    assert tenfold.verify(path).ok
    with pytest.raises(ValueError, match="path whose components"):
        loaded("a//x")
    assert loaded(["a/x"] * 3).tolist() == [1, 1, 1]


def test_unknown_states_name_the_nearest_level(path):
    loaded = saved({"level1": {"a": 1}, "level2": {"c": {"d": 2}}}, path)
    for state, level in [("level2/c/x", '"level2/c"'), ("level1/a/b", '"level1"'), ("x", "root")]:
        for states in (state, ["level1/a", state], tuple(state.split("/"))):
            with pytest.raises(
                KeyError, match=f"no state .*nearest level that exists is .*{level}"
            ):
                loaded(states)


def test_every_dtype_round_trips(tmp_path):
    for dtype in DTYPES:
        rows = {str(i): make_tensor((2, 3), dtype, i) for i in range(3)}
        loaded = saved({"a": rows}, tmp_path / "mapper")
        assert_same(loaded("a/1"), rows["1"])
        assert_same(loaded(["a/2", "a/0"])[0], rows["2"])
        assert_same(loaded.hierarchy, {"a": rows})


def states_of(hierarchy, prefix=()):
    for key, value in hierarchy.items():
        yield (*prefix, key)
        if isinstance(value, dict):
            yield from states_of(value, (*prefix, key))


def answer(mapper, state):
    try:
        return mapper(state)
    except KeyError:
        return KeyError


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(levels, st.lists(st.lists(keys, min_size=1, max_size=4).map(tuple), max_size=4))
def test_memory_json_and_folder_agree(tmp_path, hierarchy, others):
    assume(not has_level_as_default(hierarchy, "a"))
    mapper = tenfold.HierarchicalStateMapper(hierarchy, "a")
    mapper.save(tmp_path / "x.json")
    mapper.save(tmp_path / "folder")
    loaded = [tenfold.StateMapper.load(tmp_path / name) for name in ("x.json", "folder")]
    assert_same(loaded[1].hierarchy, hierarchy)
    asked = [*states_of(hierarchy), *others]
    for state in asked:
        expected = answer(mapper, state)
        for each in loaded:
            found = answer(each, state)
            assert_same(with_one_nan(found), with_one_nan(expected))
    known = [state for state in asked if answer(mapper, state) is not KeyError]
    try:
        expected = mapper(known)
    except ValueError as error:
        for each in loaded:
            with pytest.raises(type(error)):
                each(known)
    else:
        for each in loaded:
            assert_same(with_one_nan(each(known)), with_one_nan(expected))


@tenfold.register_mapper("test.tree_linear")
def linear(size):
    return torch.nn.Linear(size, 3)


def test_nested_mappers_are_saved(path):
    if path.suffix == ".safetensors":
        sparse = None
    else:
        matrix = tenfold.SparseMatrix.from_torch(torch.eye(3).to_sparse_csr())
        sparse = tenfold.SparseStateMapper([(0, 1), (2, 3), (4, 5)], matrix)
    net = tenfold.ModuleStateMapper("test.tree_linear", {"size": 2})
    inner = tenfold.HierarchicalStateMapper({"x": [1.0, 2.0, 3.0]}).cached(1000)
    hierarchy = {"net": net, "deep": {"default": inner, "own": [7.0, 8.0, 9.0]}}
    states = [("net", (0.5, 1.0)), "deep/own", "deep/x", ("deep", "default", "x")]
    if sparse is not None:
        hierarchy["sparse"] = sparse
        states.append(("sparse", (2, 3)))
        states.append(("sparse", 4, 5))
    mapper = tenfold.HierarchicalStateMapper(hierarchy)
    loaded = saved(hierarchy, path)
    assert loaded(states).equal(mapper(states))
    for state in states:
        assert loaded(state).equal(mapper(state))
    assert isinstance(loaded.hierarchy["net"].module, torch.nn.Linear)


def test_a_saved_mapper_is_saved_again(tmp_path):
    hierarchy = {"a": {"b": 1, "c": "text"}, "d": torch.rand(3)}
    loaded = saved(hierarchy, tmp_path / "one")
    loaded.save(tmp_path / "two.tdz")
    loaded.save(tmp_path / "one")
    for name in ("one", "two.tdz"):
        assert_same(tenfold.StateMapper.load(tmp_path / name).hierarchy, hierarchy)


def test_an_empty_hierarchy_is_saved(path):
    loaded = saved({}, path)
    assert loaded.hierarchy == {}
    assert loaded([]).shape == (0,)
    with pytest.raises(KeyError, match="root"):
        loaded("x")


def test_saved_mapper_pickles_by_path(tmp_path):
    loaded = saved({"a": 1}, tmp_path / "mapper")
    assert len(pickle.dumps(loaded)) < 300
    assert pickle.loads(pickle.dumps(loaded))("a") == 1
    plain = tenfold.HierarchicalStateMapper({"a": 1})
    assert pickle.loads(pickle.dumps(plain))("a") == 1


def test_mapper_of_many_nodes_is_loaded_and_looked_up(tmp_path):
    loaded = saved({"a": {str(i): i for i in range(20_000)}}, tmp_path / "mapper")
    assert loaded([f"a/{i}" for i in range(0, 20_000, 7)]).equal(torch.arange(0, 20_000, 7))
    assert repr(loaded).endswith("20,001 nodes: int64 [20000])")


def broken(tmp_path, hierarchy, change):
    tenfold.HierarchicalStateMapper(hierarchy).save(tmp_path / "good")
    tree = tenfold.open(tmp_path / "good")
    head = dict(tree["state_mapper"])
    tensors = {key: tree["tensors", key] for key in tree["tensors"].keys()}  # noqa: SIM118
    change(head["config"], tensors)
    tenfold.save({"state_mapper": head, "tensors": tensors}, tmp_path / "bad")
    return tenfold.StateMapper.load(tmp_path / "bad")


def with_column(column, value):
    def change(config, tensors):
        paths = tensors["paths"]
        torch_column = paths[column].clone()
        torch_column[:] = value
        tensors["paths"] = paths.clone() if hasattr(paths, "clone") else paths
        tensors["paths"][column] = torch_column

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda config, tensors: tensors.pop("paths"),
        lambda config, tensors: tensors.update(paths=3),
        lambda config, tensors: tensors.update(paths=torch.zeros(3)),
        lambda config, tensors: tensors.update(paths={"table": torch.zeros(3)}),
        lambda config, tensors: tensors.pop("tables"),
        lambda config, tensors: tensors.update(tables=[]),
        lambda config, tensors: tensors.update(tables=torch.zeros(2)),
        lambda config, tensors: tensors.update(tables=[torch.tensor(1)]),
        lambda config, tensors: tensors.update(tables=["x"]),
        lambda config, tensors: tensors.update(texts=torch.zeros(4)),
        lambda config, tensors: tensors.pop("text_ends"),
        lambda config, tensors: tensors.update(text_ends=torch.tensor([99])),
        lambda config, tensors: tensors.update(text_ends=torch.tensor([-1])),
        lambda config, tensors: tensors.update(texts=torch.zeros(6, dtype=torch.uint8)),
        lambda config, tensors: tensors.update(text_ends=torch.zeros(0, dtype=torch.int64)),
        lambda config, tensors: config.update(default_key=3),
        lambda config, tensors: config.update(tables=["number", "number"]),
        lambda config, tensors: config.update(tables=["pickle"]),
        lambda config, tensors: config.update(tables=3),
        lambda config, tensors: config.update(mappers=["a/b"]),
        lambda config, tensors: config.update(mappers=[3]),
        lambda config, tensors: config.update(mappers=None),
        with_column("table", 7),
        with_column("table", -9),
        with_column("table", -3),
        with_column("row", 999),
        with_column("row", -1),
    ],
)
def test_inconsistent_tensors_raise_corrupt_file_error(tmp_path, change):
    def open_and_look_up():
        mapper = broken(tmp_path, {"a": {"b": 1}, "t": "text"}, change)
        return mapper("t"), mapper(["a/b", "a/b"]), mapper("a/b")

    with pytest.raises(tenfold.CorruptFileError):
        open_and_look_up()


def other_first_letter(config, tensors):
    tensors["paths"]["key"][0] = ord("z")  # "a" is the first path


@pytest.mark.parametrize(
    "change",
    [
        with_column("table", 7),
        with_column("table", -9),
        with_column("table", -3),
        with_column("row", 999),
        with_column("row", -1),
        other_first_letter,
    ],
)
def test_hierarchy_of_inconsistent_tensors_raises_corrupt_file_error(tmp_path, change):
    mapper = broken(tmp_path, {"a": {"b": 1}, "t": "text"}, change)
    with pytest.raises(tenfold.CorruptFileError):
        _ = mapper.hierarchy
