"""The examples of a web page about large state mappers, with classes of tenfold.

The page has the title "How can PyTorch handle large state mappers without pickle issues?". Its
examples: a memory-mapped sparse mapping, a network whose parameters are saved, and a hierarchy that
is saved as JSON.
"""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import tenfold  # noqa: E402
from tenfold import HierarchicalStateMapper  # noqa: E402


class StateMapperNet(nn.Module):
    def __init__(self, input_dim, output_dim, hidden_dim=64):
        super().__init__()
        self.fc1 = nn.Linear(input_dim, hidden_dim)
        self.fc2 = nn.Linear(hidden_dim, output_dim)
        self.relu = nn.ReLU()

    def forward(self, x):
        x = self.relu(self.fc1(x))
        return self.fc2(x)


def test_a_sparse_mapping_is_stored_on_disk(tmp_path):
    # As published: an array of 8 GB in which three elements are set. The file of the array is
    # sparse, so only the three pages with these elements take space on disk.
    shape = (1000000, 1000)
    state_indices = torch.tensor([(10, 20), (100, 500), (50000, 900)])
    state_values = torch.tensor([1.2, 3.14, -2.7], dtype=torch.float64)
    mmap_file = tenfold.MemoryMappedTensor.zeros(
        shape, dtype=torch.float64, filename=tmp_path / "state_mapper.memmap"
    )
    mmap_file[state_indices[:, 0], state_indices[:, 1]] = state_values
    assert mmap_file[10, 20] == 1.2
    assert (tmp_path / "state_mapper.memmap").stat().st_blocks * 512 < 1 << 20

    # As a sparse matrix, the same mapping takes 24 bytes per stored element, and some KB for the
    # keys. An unknown state has a default row, and only the requested rows become dense.
    matrix = tenfold.SparseMatrix.from_coo(
        state_indices[:, 0], state_indices[:, 1], state_values, shape, layout="coo"
    )
    states = {int(row): int(row) for row in state_indices[:, 0]}
    tenfold.SparseStateMapper(states, matrix, default=0.0).save(tmp_path / "state_mapper")
    state_mapper = tenfold.StateMapper.load(tmp_path / "state_mapper")
    assert state_mapper(10)[20] == 1.2
    assert state_mapper([100, 7, 50000])[[0, 1, 2], [500, 0, 900]].tolist() == [3.14, 0.0, -2.7]
    assert state_mapper([100, 7, 50000]).equal(mmap_file[[100, 7, 50000]])
    size = sum(file.stat().st_size for file in (tmp_path / "state_mapper").rglob("*"))
    assert size < 200_000
    assert tenfold.verify(tmp_path / "state_mapper").ok


def test_only_the_parameters_of_a_network_are_saved(tmp_path):
    # As published, but with save and load of tenfold instead of torch: nothing is unpickled, bytes
    # have checksums, and tensors are mapped instead of copied.
    state_mapper = StateMapperNet(input_dim=100, output_dim=50)
    tenfold.save(state_mapper.state_dict(), tmp_path / "state_mapper_params.pth")
    loaded_state_mapper = StateMapperNet(input_dim=100, output_dim=50)
    loaded_state_mapper.load_state_dict(tenfold.load(tmp_path / "state_mapper_params.pth"))
    x = torch.rand(3, 100)
    assert loaded_state_mapper(x).equal(state_mapper(x))

    # The file of a ModuleStateMapper holds the config, so load() needs no sizes.
    tenfold.register_mapper("page.StateMapperNet")(StateMapperNet)
    config = {"input_dim": 100, "output_dim": 50}
    mapper = tenfold.ModuleStateMapper("page.StateMapperNet", config, state_mapper)
    mapper.save(tmp_path / "state_mapper")
    assert tenfold.StateMapper.load(tmp_path / "state_mapper")(list(x)).equal(state_mapper(x))
    assert tenfold.verify(tmp_path / "state_mapper").ok


def test_hierarchy_is_saved_as_json_and_looked_up(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # As published, line by line.
    mapper = HierarchicalStateMapper({"level1": {"a": 1, "b": 2}, "level2": {"c": 3}})
    mapper.save("hierarchy.json")
    loaded_mapper = HierarchicalStateMapper({})
    loaded_mapper.load("hierarchy.json")

    # The body of the published __call__ is `pass`. The __call__ of tenfold's class returns values.
    assert loaded_mapper(["level1/a", ("level1", "b"), "level2/c"]).tolist() == [1, 2, 3]
    with pytest.raises(KeyError, match=r"no state 'level2/d'.*nearest level .*level2"):
        loaded_mapper("level2/d")

    # The published code reads tenfold's file, and tenfold reads the published code's file.
    with open("hierarchy.json") as f:
        hierarchy = json.load(f)
    assert hierarchy == {"level1": {"a": 1, "b": 2}, "level2": {"c": 3}}
    with open("theirs.json", "w") as f:
        json.dump(hierarchy, f, indent=4)
    assert HierarchicalStateMapper.load("theirs.json").hierarchy == hierarchy
    assert (tmp_path / "hierarchy.json").read_text() == (
        tmp_path / "theirs.json"
    ).read_text() + "\n"
