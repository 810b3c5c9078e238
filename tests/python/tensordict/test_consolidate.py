"""`consolidate` stores a tree in one block of memory or in one file, as in tensordict."""

import copy
import pickle
import threading
import warnings

import pytest
import tensordict
import torch

import tenfold
from tenfold import TensorDict, UnbatchedTensor, lazy_stack, tensorclass

DTYPES = [
    getattr(torch, name)
    for name in [
        "bool",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex32",
        "complex64",
        "complex128",
    ]
]


def tree(cls=TensorDict):
    return cls(
        {
            "a": torch.arange(6.0).reshape(3, 2),
            "n": {"b": torch.ones(3, dtype=torch.int8), "t": "text"},
            "c": torch.arange(12).reshape(4, 3).T,
        },
        [3],
        names=["rows"],
    )


def storages(td):
    return {value.untyped_storage().data_ptr() for value in td.values(True, True) if value.numel()}


def bits(tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def same(left, right) -> bool:
    return bool((left == right).all()) and left.batch_size == right.batch_size


@pytest.mark.parametrize("threads", [0, 3])
def test_all_tensors_are_views_of_one_storage(threads):
    td = tree()
    made = td.consolidate(num_threads=threads)
    assert same(made, td)
    assert made.names == ["rows"]
    assert len(storages(made)) == 1
    assert len(storages(td)) == 3
    assert made.is_consolidated()
    assert made.is_locked
    assert not td.is_consolidated()
    assert made.consolidate() is made
    assert made["a"].is_contiguous()
    assert not td["c"].is_contiguous()


def test_consolidated_storage_equals_that_of_tensordict():
    ours, theirs = tree().consolidate(), tree(tensordict.TensorDict).consolidate()
    assert torch.equal(ours._consolidated.storage, theirs._consolidated["storage"])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_is_copied(tmp_path, dtype):
    values = torch.arange(-3, 4).to(torch.float32).to(dtype)
    td = TensorDict({"odd": torch.ones(3, dtype=torch.uint8), "x": values, "none": values[:0]})
    for made in (td.consolidate(), td.consolidate(tmp_path / "f")):
        assert made["x"].dtype == dtype
        assert bits(made["x"]) == bits(values)
        assert made["none"].shape == (0,)
    theirs = tensordict.TensorDict.from_consolidated(tmp_path / "f")
    assert bits(theirs["x"]) == bits(values)


def test_consolidated_file_is_written_through_its_views(tmp_path):
    td = tree().consolidate(tmp_path / "f")
    td["n", "b"][1] = 9
    for cls in (TensorDict, tensordict.TensorDict):
        found = cls.from_consolidated(tmp_path / "f")
        assert found["n", "b"].tolist() == [1, 9, 1]
        found["a"].zero_()  # private
        assert found.is_consolidated()
        assert not found.is_locked
    assert cls.from_consolidated(tmp_path / "f")["a"].sum() == 15


def test_use_buffer_makes_the_file_a_copy(tmp_path):
    td = tree().consolidate(tmp_path / "f", use_buffer=True)
    td["a"].zero_()
    assert TensorDict.from_consolidated(tmp_path / "f")["a"].sum() == 15


def test_locked_tree_is_locked_after_from_consolidated(tmp_path):
    tree().lock_().consolidate(tmp_path / "f")
    for cls in (TensorDict, tensordict.TensorDict):
        assert cls.from_consolidated(tmp_path / "f").is_locked
    assert not tenfold.open(tmp_path / "f").is_locked


def test_readers_of_a_replaced_file_keep_their_data(tmp_path):
    old = tree().consolidate(tmp_path / "f")
    TensorDict({"a": torch.zeros(1)}).consolidate(tmp_path / "f")
    assert old["a"].sum() == 15
    assert list(TensorDict.from_consolidated(tmp_path / "f").keys()) == ["a"]


def test_inplace_consolidates_the_tree_itself(tmp_path):
    for filename in (None, tmp_path / "f"):
        td = tree()
        assert td.consolidate(filename, inplace=True) is td
        assert td.is_consolidated()
        assert len(storages(td)) == 1
        assert same(td, tree())


def test_consolidated_tensors_do_not_require_grad():
    td = TensorDict({"x": torch.ones(3, requires_grad=True)})
    assert not td.consolidate()["x"].requires_grad


@pytest.mark.parametrize("change", ["unlock", "replace", "add"])
def test_a_changed_tree_is_no_longer_consolidated(tmp_path, change):
    td = tree().consolidate(tmp_path / "f")
    if change == "unlock":
        td.unlock_()
    else:
        td = TensorDict.from_consolidated(tmp_path / "f")  # not locked
        assert td.is_consolidated()
        td["a" if change == "replace" else "new"] = torch.zeros(3)
    assert not td.is_consolidated()


def test_consolidated_tree_pickles_as_one_storage():
    td = TensorDict({str(i): torch.full((2,), i) for i in range(100)}, [2]).consolidate()
    data = pickle.dumps(td)
    assert data.count(b"_rebuild_tensor_v2") == 1
    found = pickle.loads(data)
    assert same(found, td)
    assert found.is_consolidated()
    assert found.is_locked
    assert len(storages(found)) == 1
    assert same(copy.deepcopy(td), td)


def test_dimension_names_set_later_are_pickled(tmp_path):
    td = tree().consolidate(tmp_path / "f")
    td.names = ["other"]
    assert pickle.loads(pickle.dumps(td)).names == ["other"]
    assert td.consolidate(tmp_path / "f") is td  # its own file
    assert tensordict.TensorDict.from_consolidated(tmp_path / "f").names == ["other"]
    td["a"].zero_()
    assert tensordict.TensorDict.from_consolidated(tmp_path / "f")["a"].sum() == 0


def test_ignored_filename_and_share_memory_warn(tmp_path):
    td = tree().consolidate()
    with pytest.warns(UserWarning, match="writes nothing"):
        assert td.consolidate(tmp_path / "f") is td
    with pytest.warns(FutureWarning, match="ignores share_memory=True"):
        td.consolidate(share_memory=True)
    assert not list(tmp_path.iterdir())


def test_return_early_returns_a_future(tmp_path):
    future = tree().consolidate(tmp_path / "f", num_threads=2, return_early=True)
    made = future.result()
    assert same(made, tree())
    assert made.is_consolidated()
    for option in ("use_buffer", "non_blocking"):
        with pytest.raises(NotImplementedError, match="return_early"):
            tree().consolidate(num_threads=2, return_early=True, **{option: True})


def test_to_device_moves_one_storage():
    made = tree().consolidate().to("meta")
    assert made.is_consolidated()
    assert made.device == torch.device("meta")
    assert made["a"].untyped_storage()._cdata == made["c"].untyped_storage()._cdata


def test_share_memory_makes_shared_tensors():
    assert tree().consolidate(share_memory=True)["a"].is_shared()


def test_lazy_stacks_and_values_are_consolidated(tmp_path):
    stack = lazy_stack([TensorDict({"x": torch.ones(n), "s": str(n)}) for n in (2, 3)])
    td = TensorDict({"stack": stack, "v": tenfold.NonTensorStack("a", "b")}, [2])
    for made in (td.consolidate(), td.consolidate(tmp_path / "f"), stack.consolidate()):
        members = getattr(made, "tensordicts", None) or made["stack"].tensordicts
        assert len({one["x"].untyped_storage().data_ptr() for one in members}) == 1
        assert made.is_consolidated()
        assert pickle.loads(pickle.dumps(made)).is_consolidated()
    found = tensordict.TensorDict.from_consolidated(tmp_path / "f")
    assert found["stack"][1]["x"].tolist() == [1, 1, 1]
    assert found["stack"][0]["s"] == "2"
    assert found["v"] == ["a", "b"]


@tensorclass
class Sample:
    x: torch.Tensor
    label: str


def test_tensorclasses_are_consolidated(tmp_path):
    sample = Sample(torch.ones(2, 3), "cat", batch_size=[2])
    for made in (sample.consolidate(), pickle.loads(pickle.dumps(sample.consolidate()))):
        assert isinstance(made, Sample)
        assert made.label == "cat"
        assert made.is_consolidated()
    TensorDict({"s": sample}, [2]).consolidate(tmp_path / "f")
    assert isinstance(TensorDict.from_consolidated(tmp_path / "f")["s"], Sample)
    tenfold.save(sample, tmp_path / "root", format="consolidated")
    assert isinstance(tenfold.load(tmp_path / "root"), Sample)


@pytest.mark.parametrize("lengths", [None, torch.tensor([1, 2])])
def test_jagged_tensors_are_consolidated_in_memory(lengths):
    jagged = torch.nested.nested_tensor_from_jagged(
        torch.arange(10.0).reshape(5, 2), torch.tensor([0, 2, 5]), lengths
    )
    made = TensorDict({"j": jagged, "x": torch.ones(2)}, [2]).consolidate()
    for found in (made, pickle.loads(pickle.dumps(made))):
        assert torch.equal(found["j"]._values, jagged._values)
        parts = [one._values if one.is_nested else one for one in (found["j"], found["x"])]
        assert len({part.untyped_storage().data_ptr() for part in parts}) == 1
        assert [row.tolist() for row in found["j"].unbind()] == [
            row.tolist() for row in jagged.unbind()
        ]


def test_unsupported_tensors_are_refused_by_key(tmp_path):
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    unbatched = UnbatchedTensor(torch.ones(7))
    for value, words in ((nested, "layout"), (unbatched, "UnbatchedTensor")):
        td = TensorDict({"n": {"x": value}}, [2])
        for filename in (None, tmp_path / "f"):
            with pytest.raises(NotImplementedError, match=rf"'n\.x': .*{words}"):
                td.consolidate(filename)
    with pytest.raises(tenfold.UnsupportedError, match='key "x": tensordict cannot read'):
        TensorDict({"x": torch.ones(2).to(torch.float8_e5m2)}).consolidate(tmp_path / "f")
    with pytest.raises(RuntimeError, match="mutually exclusive"):
        tree().consolidate(tmp_path / "f", device="meta")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.eye(2).to_sparse(), "sparse"),
        (lambda: torch.eye(2).to_sparse_csr(), "sparse"),
        (lambda: torch.zeros(2).to_mkldnn(), "layout _mkldnn"),
        (lambda: torch.quantize_per_tensor(torch.eye(2), 1.0, 0, torch.qint8), "quantized"),
        (lambda: torch.zeros(2, device="meta"), "meta device"),
    ],
)
def test_tensors_without_dense_elements_are_refused_by_key(make, words, tmp_path):
    td = TensorDict({"n": {"x": make()}})
    for filename in (None, tmp_path / "f"):
        with pytest.raises(tenfold.UnsupportedError, match=rf"'n\.x': .*found a .*{words}"):
            td.consolidate(filename)
    assert not list(tmp_path.iterdir())


def test_meta_tensors_are_consolidated_on_the_meta_device():
    td = TensorDict({"x": torch.zeros(2, device="meta")})
    assert td.consolidate(device="meta")["x"].is_meta
    td.auto_device_()
    assert td.consolidate()["x"].is_meta


def test_from_consolidated_refuses_other_files(tmp_path):
    tenfold.save({"x": torch.ones(2)}, tmp_path / "m.safetensors")
    with pytest.raises(tenfold.CorruptFileError):
        TensorDict.from_consolidated(tmp_path / "m.safetensors")
    with pytest.raises(FileNotFoundError):
        TensorDict.from_consolidated(tmp_path / "none")


def test_threads_end_and_nothing_is_warned(tmp_path):
    before = threading.active_count()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tree().consolidate(tmp_path / "f", num_threads=4)
        tree().consolidate(num_threads=4)
    assert threading.active_count() == before


def test_a_tree_without_rows_is_consolidated(tmp_path):
    stack = tenfold.NonTensorStack.from_list([])
    td = TensorDict({"s": stack, "x": torch.zeros(0, 3)}, [0])
    for made in (td.consolidate(), td.consolidate(tmp_path / "file")):
        assert made.is_consolidated()
        assert made["s"] == []
        assert made["x"].shape == (0, 3)
    assert TensorDict.from_consolidated(tmp_path / "file")["s"] == []
