"""Behavior that all state mappers share: registered names, files, pickles and worker processes."""

from __future__ import annotations

import pickle

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402

import tenfold  # noqa: E402
from tenfold.mappers import _mapper  # noqa: E402


@tenfold.register_mapper("test.one_hot")
class OneHot(tenfold.StateMapper):
    """The example in the docstring of `tenfold.StateMapper`."""

    def __init__(self, size):
        self.size = size

    def generate(self, states):
        return torch.nn.functional.one_hot(torch.tensor(states, dtype=torch.int64), self.size)

    def config(self):
        return {"size": self.size}


@tenfold.register_mapper("test.table")
class TableMapper(tenfold.StateMapper):
    def __init__(self, rows):
        self.rows = rows

    def generate(self, states):
        return self.rows[states]

    def tensors(self):
        return {"rows": self.rows}


def test_custom_mapper_is_saved_with_name_config_and_tensors(tmp_path):
    OneHot(4).save(tmp_path / "a")
    loaded = tenfold.StateMapper.load(tmp_path / "a")
    assert type(loaded) is OneHot
    assert loaded([1, 3]).tolist() == [[0, 1, 0, 0], [0, 0, 0, 1]]
    assert loaded(2).tolist() == [0, 0, 1, 0]
    assert loaded(torch.tensor([0, 2])).shape == (2, 4)
    TableMapper(torch.rand(5, 2)).save(tmp_path / "b.safetensors")
    assert tenfold.StateMapper.load(tmp_path / "b.safetensors")([4, 0]).shape == (2, 2)


@pytest.mark.parametrize("bools", [torch.tensor([True, False]), np.array([True, False])])
def test_an_array_of_bools_is_no_list_of_states(bools):
    asked = []
    mapper = OneHot(4)
    mapper.generate = lambda states: asked.append(states) or [None]
    mapper(bools)
    assert len(asked[0]) == 1
    assert asked[0][0] is bools
    with pytest.raises(
        TypeError, match=r"a tensor of integers \[n\].*found a tensor \[2\] of bool"
    ):
        tenfold.SparseStateMapper(bools, torch.eye(2).to_sparse_csr())


def test_load_of_a_class_refuses_other_mapper_classes(tmp_path):
    OneHot(4).save(tmp_path / "a")
    assert OneHot.load(tmp_path / "a").size == 4
    with pytest.raises(ValueError, match="expected a TableMapper, found a OneHot"):
        TableMapper.load(tmp_path / "a")


def test_load_on_an_instance_replaces_its_content(tmp_path):
    tenfold.HierarchicalStateMapper({"a": 1}).save(tmp_path / "x.json")
    mapper = tenfold.HierarchicalStateMapper({})
    assert mapper.load(tmp_path / "x.json") is mapper
    assert mapper("a") == 1
    with pytest.raises(ValueError, match="expected a OneHot"):
        OneHot(3).load(tmp_path / "x.json")


def test_registered_name_cannot_be_reused():
    with pytest.raises(ValueError, match=r'"test\.one_hot"\): the name is taken'):
        tenfold.register_mapper("test.one_hot")(TableMapper)
    tenfold.register_mapper("test.one_hot")(OneHot)
    with pytest.raises(TypeError, match=r'as in @tenfold\.register_mapper\("mlp"\)'):
        tenfold.register_mapper(OneHot)
    with pytest.raises(TypeError, match="expected a class or a function, found int"):
        tenfold.register_mapper("test.three")(3)


def test_redefinition_replaces_the_registered_factory():
    def define(module):
        @tenfold.register_mapper("test.again")
        def again():
            return module()

        return again

    define(torch.nn.Identity)
    second = define(torch.nn.ReLU)
    assert isinstance(tenfold.ModuleStateMapper("test.again").module, torch.nn.ReLU)
    tenfold.register_mapper("test.again")(second)  # once more, as when a module is reloaded
    assert isinstance(tenfold.ModuleStateMapper("test.again").module, torch.nn.ReLU)


def test_unregistered_class_cannot_be_saved(tmp_path):
    class Nameless(OneHot):
        pass

    with pytest.raises(
        tenfold.UnsupportedError, match="Nameless: its class has no registered name"
    ):
        Nameless(3).save(tmp_path / "a")
    assert not (tmp_path / "a").exists()


HEAD = {"class": "test.one_hot", "version": 1, "config": {"size": 2}}


@pytest.mark.parametrize(
    ("tree", "error", "what"),
    [
        ({}, "Unsupported", "no state mapper"),
        ({"weights": torch.zeros(1)}, "Unsupported", 'expected an entry "state_mapper"'),
        ({"state_mapper": torch.zeros(2)}, "Corrupt", "expected a JSON object"),
        ({"state_mapper": [1]}, "Corrupt", "expected a JSON object"),
        ({"state_mapper": "x"}, "Corrupt", "expected a JSON object"),
        ({"state_mapper": {}}, "Corrupt", '"version": is missing'),
        ({"state_mapper": {**HEAD, "version": 7}}, "Unsupported", "found 7; use a newer"),
        ({"state_mapper": {**HEAD, "class": 3}}, "Corrupt", '"class": expected a string, found 3'),
        ({"state_mapper": {**HEAD, "config": [1]}}, "Corrupt", '"config": expected an object'),
        ({"state_mapper": {**HEAD, "config": None}}, "Corrupt", '"config": expected an object'),
        ({"state_mapper": {**HEAD, "config": {3: 4}}}, "Corrupt", '"config": expected an object'),
        ({"state_mapper": {**HEAD, "class": "os.system"}}, "Unsupported", '"os.system"'),
        ({"state_mapper": {**HEAD, "class": "test.embedding_factory"}}, "Unsupported", "a factory"),
        ({"state_mapper": {**HEAD, "config": {"size": 2, "depth": 1}}}, "Corrupt", "depth"),
        ({"state_mapper": HEAD, "tensors": 3}, "Corrupt", "tensors: expected a tree"),
        ({"state_mapper": HEAD, "tensors": torch.zeros(2)}, "Corrupt", "tensors: expected a tree"),
    ],
)
def test_invalid_mapper_files_raise_clear_errors(tmp_path, tree, error, what):
    tenfold.register_mapper("test.embedding_factory")(torch.nn.Embedding)
    tree = {"pad": torch.zeros(1), **tree} if tree else {"pad": torch.zeros(1)}
    tenfold.save(tree, tmp_path / "mapper")
    kind = {"Corrupt": tenfold.CorruptFileError, "Unsupported": tenfold.UnsupportedError}[error]
    with pytest.raises(kind) as raised:
        tenfold.StateMapper.load(tmp_path / "mapper")
    assert what in str(raised.value)
    assert str(tmp_path / "mapper") in str(raised.value)


def test_missing_file_raises_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        tenfold.StateMapper.load(tmp_path / "nothing")


def test_verify_detects_damage(tmp_path):
    TableMapper(torch.rand(1000)).save(tmp_path / "mapper")
    file = tmp_path / "mapper" / "tensors" / "rows.memmap"
    content = bytearray(file.read_bytes())
    content[99] ^= 1
    file.write_bytes(content)
    tenfold.StateMapper.load(tmp_path / "mapper")
    with pytest.raises(tenfold.CorruptFileError, match="checksum"):
        tenfold.StateMapper.load(tmp_path / "mapper", verify=True)


def test_verify_diff_and_command_line_read_mappers(tmp_path, run_python):
    TableMapper(torch.rand(5, 2)).save(tmp_path / "a")
    TableMapper(torch.rand(5, 2)).save(tmp_path / "b")
    assert tenfold.verify(tmp_path / "a").num_checksums > 0
    assert [c.key for c in tenfold.diff(tmp_path / "a", tmp_path / "b").changed] == ["tensors.rows"]
    program = "import tenfold.__main__; tenfold.__main__.main()"
    output = run_python(program, "ls", tmp_path / "a")
    assert "tensors.rows" in output


def test_saved_mapper_pickles_by_path_and_unsaved_by_content(tmp_path):
    mapper = TableMapper(torch.rand(5000, 2))
    assert len(pickle.dumps(mapper)) > 40_000
    assert pickle.loads(pickle.dumps(mapper))([3]).equal(mapper([3]))
    mapper.save(tmp_path / "mapper")
    assert len(pickle.dumps(mapper)) < 400
    assert pickle.loads(pickle.dumps(mapper))([3]).equal(mapper([3]))
    loaded = tenfold.StateMapper.load(tmp_path / "mapper")
    assert len(pickle.dumps(loaded)) < 400


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.slow
def test_data_loader_workers_map_states(tmp_path, method, run_python):
    program = """
import sys, torch, tenfold
class States(torch.utils.data.Dataset):
    def __init__(self, mapper): self.mapper = mapper
    def __len__(self): return 20
    def __getitem__(self, index): return index
    def collate(self, states): return self.mapper([f"a/{state}" for state in states])
if __name__ == "__main__":
    levels = {"a": {i: [i, i * i] for i in range(20)}}
    tenfold.HierarchicalStateMapper(levels).save(sys.argv[1] + "/x.json")
    mapper = tenfold.StateMapper.load(sys.argv[1] + "/x.json").cached(10_000)
    data = States(mapper)
    loader = torch.utils.data.DataLoader(
        data, 5, num_workers=2, collate_fn=data.collate, multiprocessing_context=sys.argv[2])
    rows = torch.cat(list(loader))
    assert rows[:, 1].tolist() == [i * i for i in range(20)]
"""
    script = tmp_path / "program.py"
    script.write_text(program)
    run_python("import subprocess, sys; sys.exit(subprocess.call([sys.executable, *sys.argv[1:]]))",
               script, tmp_path, method)  # fmt: skip


def test_load_reads_again_if_the_mapper_is_replaced_during_the_call(tmp_path, monkeypatch):
    path = tmp_path / "mapper"
    TableMapper(torch.zeros(2, 3)).save(path)
    original = _mapper.mapper_of
    left = [TableMapper(torch.ones(4, 3))]

    def replaced(*arguments):
        if left:
            left.pop().save(path)
        return original(*arguments)

    monkeypatch.setattr(_mapper, "mapper_of", replaced)
    assert tenfold.StateMapper.load(path)([3]).tolist() == [[1, 1, 1]]


def test_load_on_an_instance_refuses_a_subclass(tmp_path):
    @tenfold.register_mapper("test.scaled_table")
    class ScaledTable(TableMapper):
        pass

    ScaledTable(torch.zeros(2, 3)).save(tmp_path / "mapper")
    assert type(TableMapper.load(tmp_path / "mapper")) is ScaledTable
    with pytest.raises(ValueError, match="expected a TableMapper, found a ScaledTable"):
        TableMapper(torch.ones(1, 1)).load(tmp_path / "mapper")
