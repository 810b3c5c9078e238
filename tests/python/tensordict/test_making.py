import collections
import dataclasses

import numpy as np
import pytest
import torch

import tenfold
from tenfold import LazyStackedTensorDict, TensorDict


@dataclasses.dataclass
class Run:
    loss: torch.Tensor
    name: str


Pair = collections.namedtuple("Pair", "left right")


def test_dataclass_namedtuple_and_tuple_fields_become_entries():
    td = TensorDict.from_dataclass(Run(torch.zeros(3), "x"), auto_batch_size=True)
    assert td.batch_size == (3,)
    assert td["name"] == "x"
    pair = TensorDict.from_namedtuple(Pair(torch.zeros(3), {"x": 1}))
    assert pair.keys(True, True) == ["left", ("right", "x")]
    assert TensorDict.from_tuple((torch.zeros(3), 1)).keys() == ["0", "1"]
    with pytest.raises(TypeError, match=r"expected an instance of a dataclass, found .*Run"):
        TensorDict.from_dataclass(Run)


@pytest.mark.parametrize(
    "scalar",
    [np.int64(3), np.uint8(3), np.float32(1.5), np.float64(1.5), np.bool_(1), np.complex64(1j)],
)
def test_numbers_of_numpy_become_tensors_of_their_dtype(scalar, tmp_path):
    found = TensorDict({"a": scalar}).get("a")
    assert found.numpy().dtype == scalar.dtype
    assert found.item() == scalar
    TensorDict({}).set("a", scalar).save(tmp_path / "saved")
    assert TensorDict.load(tmp_path / "saved")["a"].item() == scalar


def test_other_scalars_of_numpy_remain_values():
    for scalar in (np.bytes_(b"a"), np.datetime64("2020-01-01"), np.longdouble(1)):
        assert TensorDict({"a": scalar})["a"] == scalar


ARRAYS = {
    "fields": np.zeros(3, [("a", "f4"), ("b", "i4", (2,))]),
    "two_dims": np.arange(6, dtype="i8").reshape(2, 3).view([("a", "i8")]),
    "nested": np.ones(3, [("n", [("a", "f4"), ("b", "u1")])]),
    "odd_strides": np.ones(3, [("a", "i8"), ("b", "f4")]),
    "text": np.array([("x", 1), ("yz", 2)], [("s", "U2"), ("a", "i8")]),
    "reversed": np.array([(1, 2), (3, 4)], [("a", "f4"), ("b", "i8")])[::-1],
    "big_endian": np.array([(1, (2,)), (3, (4,))], [("a", ">f4"), ("n", [("b", ">i2")])]),
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_structured_arrays_round_trip(array):
    td = TensorDict.from_struct_array(array)
    assert td.batch_size == array.shape
    found = td.to_struct_array()
    assert found.dtype.fields.keys() == array.dtype.fields.keys()
    assert (found == array).all()


def test_text_of_a_structured_scalar_is_a_value():
    array = np.array(("abc", 1.0), [("s", "U3"), ("x", "f4")])
    td = TensorDict.from_struct_array(array)
    assert td["s"] == "abc"
    assert td.to_struct_array() == array


def test_tensors_of_a_structured_array_share_its_memory():
    array = ARRAYS["fields"].copy()
    td = TensorDict.from_struct_array(array)
    array["a"][1] = 5
    assert td["a"].tolist() == [0, 5, 0]


def test_arrays_that_torch_cannot_view_are_copied():
    array = np.arange(6.0).reshape(2, 3)
    fields = np.zeros(2, [("a", "u1"), ("b", "f4")])
    values = [array[:, ::-1], array.astype(">f8"), array[::-1].astype(">i4"), fields["b"]]
    for value in values:
        td = TensorDict({"a": value}, batch_size=[2])
        assert td["a"].numpy().tolist() == value.tolist()
        assert td["a"].dtype.itemsize == value.dtype.itemsize


def test_names_of_tensordict():
    assert isinstance("a", tenfold.NestedKey)
    assert isinstance(("a", "b"), tenfold.NestedKey)
    assert not isinstance(1, tenfold.NestedKey)
    assert tenfold.assert_allclose_td(TensorDict({"a": 1.0}), TensorDict({"a": 1.0}))


def test_from_schema_makes_zeros_in_every_storage(tmp_path):
    schema = {"x": ([3], torch.float32), "y": ([], torch.int64)}
    for storage, options in [
        (None, {}), ("shared", {}), ("memmap", {"prefix": tmp_path / "m"})
    ]:  # fmt: skip
        td = TensorDict.from_schema(schema, batch_size=[4], storage=storage, **options)
        assert {k: (tuple(v.shape), v.dtype, int(v.sum())) for k, v in td.items()} == {
            "x": ((4, 3), torch.float32, 0),
            "y": ((4,), torch.int64, 0),
        }
        assert td.is_shared() == (storage == "shared")
        assert td.is_memmap() == (storage == "memmap")
    td["x"][1] = 2
    assert TensorDict.load_memmap(tmp_path / "m")["x"].sum() == 6
    with pytest.raises(ValueError, match="found 'redis'"):
        TensorDict.from_schema(schema, storage="redis")


def write(td):
    td["n", "x"][1] = 7
    td.set_("v", torch.ones(2))


def test_a_child_process_writes_into_shared_tensors():
    td = TensorDict({"n": {"x": torch.zeros(2)}, "v": torch.zeros(2), "s": "text"}, [2])
    assert not td.is_shared()
    td.share_memory_()
    assert td.is_shared()
    assert td.is_locked
    process = torch.multiprocessing.get_context("spawn").Process(target=write, args=(td,))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert td["n", "x"].tolist() == [0, 7]
    assert td["v"].sum() == 2


def test_share_memory_refuses_mapped_tensors(tmp_path):
    td = TensorDict({"x": torch.zeros(2)}).memmap(tmp_path / "m")
    with pytest.raises(RuntimeError, match="expected tensors in memory, found memory-mapped"):
        td.share_memory_()


def test_lazy_stack_extend_appends_members():
    stack = LazyStackedTensorDict(TensorDict({"x": torch.zeros(1)}, [1]))
    stack.extend(TensorDict({"x": torch.ones(2, 1)}, [2, 1]).unbind(0))
    assert stack["x"].flatten().tolist() == [0, 1, 1]
