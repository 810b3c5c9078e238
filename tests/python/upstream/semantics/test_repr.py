"""repr, str and format of a TensorDict return the same string as in tensordict."""

import pytest
import torch
from compare import assert_same_outcome
from fixtures import ALL, my_class, new_folder, numbers, over

TEXTS = {
    "repr": lambda td, lib: repr(td),
    "str": lambda td, lib: str(td),
    "format": lambda td, lib: f"{td}",
    "a_row": lambda td, lib: repr(td[0]) if td.batch_dims else repr(td),
    "empty": lambda td, lib: repr(td.empty()),
    "keys": lambda td, lib: repr(list(td.keys(True, True))),
}


@over(ALL, TEXTS)
def test_repr_matches_tensordict(build, call):
    assert_same_outcome(build, call)


MADE = {
    "nothing": lambda lib: lib.TensorDict(),
    "batch_only": lambda lib: lib.TensorDict(batch_size=[3, 2]),
    "device": lambda lib: lib.TensorDict({"x": numbers(2)}, [2], device="cpu"),
    "dtypes": lambda lib: lib.TensorDict(
        {str(d): torch.zeros(2, dtype=d) for d in (torch.bool, torch.uint8, torch.int64,
         torch.float16, torch.bfloat16, torch.float64, torch.complex64)}, [2]
    ),
    "shapes": lambda lib: lib.TensorDict(
        {"scalar": torch.tensor(1), "vector": numbers(3), "matrix": numbers(3, 2), "none": torch.zeros(0)}  # noqa: E501
    ),
    "deep": lambda lib: lib.TensorDict({"a": {"b": {"c": {"d": {"e": numbers(2)}}}}}, [2]),
    "wide": lambda lib: lib.TensorDict({f"key_{i:02}": numbers(2, i + 1) for i in range(20)}, [2]),
    "long_keys": lambda lib: lib.TensorDict({"k" * 90: numbers(2), "l" * 40: {"m" * 50: numbers(2)}}),  # noqa: E501
    "order": lambda lib: lib.TensorDict({"z": numbers(1), "b": {"y": numbers(1)}, "a": numbers(1)}),
    "values": lambda lib: lib.TensorDict({"s": "text", "n": None, "d": {"k": 1}, "x": numbers(2)}),
    "stack_of_values": lambda lib: lib.TensorDict(
        {"s": lib.NonTensorStack(*map(lib.NonTensorData, "ab"))}, [2]
    ),
    "tensorclass": lambda lib: my_class(lib)(x=numbers(3), z="z", batch_size=[3]),
    "nested_tensorclass": lambda lib: lib.TensorDict(
        {"t": my_class(lib)(x=numbers(3), y=my_class(lib)(x=numbers(3), batch_size=[3]), batch_size=[3])}, [3]  # noqa: E501
    ),
    "child_with_more_dims": lambda lib: lib.TensorDict(
        {"n": lib.TensorDict({"x": numbers(3, 2, 4)}, [3, 2])}, [3]
    ),
    "lazy_stack_inside": lambda lib: lib.TensorDict(
        {"l": lib.lazy_stack([lib.TensorDict({"x": numbers(i + 1)}) for i in range(2)])}, [2]
    ),
    "lazy_stack_of_unequal": lambda lib: lib.lazy_stack(
        [lib.TensorDict({"x": numbers(i + 1)}) for i in range(2)]
    ),
    "unicode_keys": lambda lib: lib.TensorDict({"é": numbers(1), "日本": numbers(1)}),
    "memmap": lambda lib: lib.TensorDict({"x": numbers(3)}, [3]).memmap_(new_folder()),
    "loaded": lambda lib: load(lib),
    "parameters": lambda lib: lib.TensorDict.from_module(torch.nn.Linear(2, 2)),
    "non_tensor_data": lambda lib: lib.NonTensorData("text", batch_size=[2]),
}  # fmt: skip


def load(lib):
    path = new_folder()
    lib.TensorDict({"x": numbers(3), "n": {"s": "text"}}, []).memmap_(path)
    return lib.TensorDict.load_memmap(path)


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_repr_of_constructed_objects_matches_tensordict(make):
    assert_same_outcome(lambda lib: None, lambda _, lib: repr(make(lib)))
