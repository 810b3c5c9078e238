"""Uses whose types a type checker knows: checked by ``mypy --strict``, not run."""

from typing import Any

import torch
from typing_extensions import assert_type

import tenfold
from tenfold import LazyStackedTensorDict, TensorClass, TensorDict, TensorDictBase


def entries(td: TensorDict, stack: LazyStackedTensorDict, positions: torch.Tensor) -> None:
    assert_type(td["a"], Any)
    assert_type(td["a", "b"], Any)
    assert_type(td[0], TensorDict)
    assert_type(td[1:], TensorDict)
    assert_type(td[[0, 2]], TensorDict)
    assert_type(td[positions], TensorDict)
    assert_type(td[..., None, 0], TensorDict)
    assert_type(stack[0:1], LazyStackedTensorDict)
    assert_type(td.get("a"), Any | None)
    assert_type(td.get(("a", "b"), 5), Any | int)
    assert_type(td.set("a", 1), TensorDict)
    assert_type(td.update({"a": 1}).update_({"a": 2}), TensorDict)
    assert_type(td.select("a").exclude("b"), TensorDict)
    assert_type(td.sorted_keys, list[str])
    assert_type(td.popitem(), tuple[str, Any])


def shapes(td: TensorDict) -> None:
    assert_type(td.batch_size, torch.Size)
    assert_type(td.size(), torch.Size)
    assert_type(td.size(0), int)
    assert_type(td.device, torch.device | None)
    assert_type(td.names, list[str | None])
    assert_type(td.reshape(2, -1).permute(1, 0).unsqueeze(0), TensorDict)
    assert_type(td.expand(2, 3), TensorDict)
    assert_type(td.unbind(0), tuple[TensorDict, ...])
    assert_type(td.split([1, 2]), tuple[TensorDict, ...])
    for row in td:
        assert_type(row, TensorDict)


def values(td: TensorDict, tensor: torch.Tensor) -> None:
    assert_type(td + 1, TensorDict)
    assert_type(2 * td - tensor, TensorDict)
    assert_type(td < 2, TensorDict)
    assert_type(td.exp().clamp(0, 1), TensorDict)
    assert_type(td.all(), bool)
    assert_type(td.any(0), TensorDict)
    assert_type(td.apply(torch.sin, filter_empty=False), TensorDict)
    assert_type(td.apply(torch.sin), TensorDict | Any)
    assert_type(td.to(torch.float16), TensorDict)
    assert_type(td.to("cpu", non_blocking=True), TensorDict)
    assert_type(td.float().clone().detach(), TensorDict)
    assert_type(td.bytes(), int)
    assert_type(td.dtype, torch.dtype | None)


def stacks(tds: list[TensorDict], tensors: list[torch.Tensor]) -> None:
    assert_type(tenfold.stack(tds), TensorDict)
    assert_type(tenfold.stack(tensors), torch.Tensor)
    assert_type(tenfold.cat(tds, dim=1), TensorDict)
    assert_type(tenfold.lazy_stack(tds), LazyStackedTensorDict)
    assert_type(TensorDict.stack(tds, 0), TensorDict)


def files(td: TensorDict) -> None:
    assert_type(tenfold.open("path"), TensorDict)
    assert_type(td.memmap("path"), TensorDict)
    assert_type(TensorDict.load_memmap("path", mode="r"), TensorDict)
    assert_type(TensorDict.load("path"), TensorDict)
    assert_type(TensorDict.from_dict({"a": 1}, batch_size=[]), TensorDict)
    with td.unlock_() as unlocked:
        assert_type(unlocked, TensorDict)


class Sample(TensorClass, autocast=True):
    image: torch.Tensor
    label: str = ""


def tensorclasses(data: Sample) -> None:
    made = Sample(torch.zeros(4, 3), label="cat", batch_size=[4], device="cpu", lock=True)
    assert_type(made, Sample)
    assert_type(made.image, torch.Tensor)
    assert_type(made.label, str)
    assert_type(data[:2], Sample)
    assert_type(data[0].label, str)
    assert_type(data.batch_size, torch.Size)
    assert_type(data.to("cpu").clone(), Sample)
    assert_type(data + 1, Sample)
    assert_type(tenfold.stack([data, data]), Sample)
    assert_type(Sample.load_memmap("path"), Sample)
    base: TensorDictBase = data
    assert_type(base.numel(), int)


@tenfold.tensorclass
class Point:
    x: torch.Tensor
    y: torch.Tensor


def decorated() -> None:
    assert_type(Point(torch.zeros(3), y=torch.zeros(3)).x, torch.Tensor)


def dictionaries(words: tenfold.MappedDict) -> None:
    vector: torch.Tensor = words["house"]
    both = torch.stack([vector, words["garden"], words.get("tree", vector)])
    assert_type(both, torch.Tensor)
    assert_type("tree" in words, bool)
