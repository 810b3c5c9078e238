"""ModuleStateMapper: saves the parameters, and finds the code by its registered name."""

from __future__ import annotations

import json
import pickle

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402

import tenfold  # noqa: E402
from tenfold._interop.frameworks import using  # noqa: E402

nn = torch.nn


@tenfold.register_mapper("test.StateMapperNet")
class StateMapperNet(nn.Module):
    """The network in the second example of the web page that test_published_examples.py tests."""

    def __init__(self, input_dim, output_dim, hidden_dim=64):
        super().__init__()
        self.fc1 = nn.Linear(input_dim, hidden_dim)
        self.fc2 = nn.Linear(hidden_dim, output_dim)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.fc2(self.relu(self.fc1(x)))


@tenfold.register_mapper("test.embedding")
def embedding(size, dim):
    return nn.Embedding(size, dim)


CONFIG = {"input_dim": 100, "output_dim": 50}


@pytest.mark.parametrize("name", ["mapper", "mapper.tdz", "mapper.safetensors", "mapper.pt"])
def test_registered_module_round_trips(tmp_path, name):
    mapper = tenfold.ModuleStateMapper("test.StateMapperNet", CONFIG)
    mapper.save(tmp_path / name)
    loaded = tenfold.StateMapper.load(tmp_path / name)
    assert isinstance(loaded, tenfold.ModuleStateMapper)
    assert isinstance(loaded.module, StateMapperNet)
    states = [torch.rand(100) for _ in range(7)]
    assert loaded(states).shape == (7, 50)
    assert loaded(states).equal(mapper(states))
    assert loaded(states[0]).equal(mapper(states[0]))
    assert loaded(states[0]).shape == (50,)
    assert tenfold.verify(tmp_path / name).ok


def test_saved_tree_holds_the_state_dict_and_a_json_config(tmp_path):
    mapper = tenfold.ModuleStateMapper("test.StateMapperNet", CONFIG)
    mapper.save(tmp_path / "mapper")
    tree = tenfold.load(tmp_path / "mapper")
    assert tree["state_mapper"] == {
        "class": "tenfold.ModuleStateMapper",
        "version": 1,
        "config": {"factory": "test.StateMapperNet", "config": CONFIG},
    }
    assert list(tree["tensors"]) == list(mapper.module.state_dict())
    assert json.loads(json.dumps(tree["state_mapper"])) == tree["state_mapper"]


def test_saved_parameters_load_into_another_module(tmp_path):
    mapper = tenfold.ModuleStateMapper("test.StateMapperNet", CONFIG)
    mapper.save(tmp_path / "mapper")
    net = StateMapperNet(**CONFIG)
    assert tenfold.load_into(net, tenfold.open(tmp_path / "mapper")["tensors"]).ok
    x = torch.rand(100)
    assert net(x).equal(mapper(x))


def test_given_module_is_used_without_a_copy():
    net = StateMapperNet(4, 2)
    mapper = tenfold.ModuleStateMapper(
        "test.StateMapperNet", {"input_dim": 4, "output_dim": 2}, net
    )
    assert mapper.module is net
    x = torch.rand(4)
    assert mapper(x).equal(net(x))


def test_states_are_numbers_tuples_and_tensors():
    mapper = tenfold.ModuleStateMapper("test.StateMapperNet", {"input_dim": 2, "output_dim": 3})
    one = mapper((0.5, 1.0))
    assert one.shape == (3,)
    torch.testing.assert_close(mapper([(0.5, 1.0), (2.0, 3.0)])[0], one)
    torch.testing.assert_close(mapper(torch.tensor([[0.5, 1.0], [2.0, 3.0]]))[0], one)
    lookup = tenfold.ModuleStateMapper("test.embedding", {"size": 9, "dim": 4})
    assert lookup(3).equal(lookup.module.weight[3])
    assert lookup([3, 5]).equal(lookup.module.weight[[3, 5]])
    assert lookup(torch.tensor([3, 5])).equal(lookup.module.weight[[3, 5]])


def test_gradients_flow_through_a_mapper():
    mapper = tenfold.ModuleStateMapper("test.embedding", {"size": 9, "dim": 4})
    mapper([1, 1, 2]).sum().backward()
    assert mapper.module.weight.grad[1].eq(2).all()
    assert mapper.module.weight.grad[3].eq(0).all()


def test_empty_list_of_states_is_refused():
    mapper = tenfold.ModuleStateMapper("test.embedding", {"size": 9, "dim": 4})
    with pytest.raises(ValueError, match="at least one state, found none"):
        mapper([])


def test_unregistered_factory_is_named_with_the_remedy(tmp_path):
    with pytest.raises(tenfold.UnsupportedError, match=r'registered as "nobody"'):
        tenfold.ModuleStateMapper("nobody")
    head = {"class": "tenfold.ModuleStateMapper", "version": 1}
    tree = {"state_mapper": {**head, "config": {"factory": "lab.net", "config": {}}}}
    tenfold.save({**tree, "tensors": {"w": torch.zeros(1)}}, tmp_path / "mapper")
    with pytest.raises(
        tenfold.UnsupportedError, match=r'"lab\.net".*@tenfold\.register_mapper\("lab\.net"\)'
    ):
        tenfold.StateMapper.load(tmp_path / "mapper")


def test_parameters_of_another_shape_are_all_listed(tmp_path):
    tenfold.ModuleStateMapper("test.StateMapperNet", CONFIG).save(tmp_path / "mapper")
    tree = tenfold.load(tmp_path / "mapper")
    tree["state_mapper"]["config"]["config"]["hidden_dim"] = 5
    tenfold.save(tree, tmp_path / "other")
    with pytest.raises(ValueError, match="3 mismatched") as caught:
        tenfold.StateMapper.load(tmp_path / "other")
    for part in (
        '"fc1.weight": expected float32 [5, 100], found float32 [64, 100]',
        '"fc1.bias": expected float32 [5], found float32 [64]',
        '"fc2.weight": expected float32 [50, 5], found float32 [50, 64]',
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize("config", [[], {"factory": 3, "config": {}}, {"factory": "x"}])
def test_invalid_config_raises_corrupt_file_error(tmp_path, config):
    head = {"class": "tenfold.ModuleStateMapper", "version": 1, "config": config}
    tenfold.save({"state_mapper": head, "tensors": {"w": torch.zeros(1)}}, tmp_path / "mapper")
    with pytest.raises(tenfold.CorruptFileError, match="config"):
        tenfold.StateMapper.load(tmp_path / "mapper")


def test_factory_that_returns_no_module_raises_type_error():
    @tenfold.register_mapper("test.no_module")
    def no_module():
        return 3

    with pytest.raises(TypeError, match=r"torch\.nn\.Module, found int"):
        tenfold.ModuleStateMapper("test.no_module")


def test_config_that_is_not_json_is_named_and_nothing_is_written(tmp_path):
    mapper = tenfold.ModuleStateMapper(
        "test.embedding", {"size": 9, "dim": torch.tensor(4)}, nn.Embedding(9, 4)
    )
    with pytest.raises(tenfold.UnsupportedError, match=r'"config\.dim": expected JSON'):
        mapper.save(tmp_path / "mapper")
    assert not (tmp_path / "mapper").exists()


def test_unchanged_mapper_pickles_by_path_and_a_trained_one_by_parameters(tmp_path):
    mapper = tenfold.ModuleStateMapper("test.StateMapperNet", CONFIG)
    mapper.save(tmp_path / "mapper")
    assert len(pickle.dumps(mapper)) < 300
    x = torch.rand(100)
    assert pickle.loads(pickle.dumps(mapper))(x).equal(mapper(x))
    with torch.no_grad():
        mapper.module.fc2.bias += 1
    assert pickle.loads(pickle.dumps(mapper))(x).equal(mapper(x))


def test_repr_shows_factory_config_and_path(tmp_path):
    mapper = tenfold.ModuleStateMapper("test.embedding", {"size": 9, "dim": 4})
    assert repr(mapper) == (
        "ModuleStateMapper('test.embedding', {'size': 9, 'dim': 4}: 36 parameters)"
    )
    mapper.save(tmp_path / "mapper")
    assert str(tmp_path / "mapper") in repr(mapper)


def test_cached_rows_follow_parameters_that_inference_mode_created():
    with torch.inference_mode():
        mapper = tenfold.ModuleStateMapper("test.embedding", {"size": 4, "dim": 2})
        cached = mapper.cached(1 << 20)
        mapper.module.weight.fill_(1)
        assert cached([3]).tolist() == [[1, 1]]
        assert cached([3]).tolist() == [[1, 1]]
        assert cached.hits == 1
        mapper.module.weight[3, 1] = 2
        assert cached([3]).tolist() == [[1, 2]]


def test_arrays_are_states_with_framework_numpy(tmp_path):
    mapper = tenfold.ModuleStateMapper("test.embedding", {"size": 4, "dim": 2})
    mapper.save(tmp_path / "m")
    with using("numpy"):
        assert mapper(np.array([3, 1])).equal(mapper.module.weight[[3, 1]])
        loaded = tenfold.StateMapper.load(tmp_path / "m")
        assert loaded(np.array([3, 1])).equal(mapper.module.weight[[3, 1]])


@pytest.mark.parametrize("is_saved", [False, True])
def test_pickles_keep_the_mode_of_each_module(tmp_path, is_saved):
    mapper = tenfold.ModuleStateMapper("test.StateMapperNet", CONFIG)
    mapper.module.fc1.eval()
    if is_saved:
        mapper.save(tmp_path / "mapper")
    copy = pickle.loads(pickle.dumps(mapper))
    assert (copy.module.training, copy.module.fc1.training) == (True, False)
