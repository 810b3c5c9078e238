"""Trees with tensorclasses and JSON values, and random trees of all kinds."""

import contextlib
import math

import torch
from tensordict import (
    NonTensorData,
    NonTensorStack,
    TensorClass,
    TensorDict,
    lazy_stack,
    tensorclass,
)

from trees.registry import LOADABLE, numbers, tree, values

with contextlib.suppress(ImportError):
    from tensordict import MetaData


# --- tensorclasses ---


@tensorclass
class Point:
    x: torch.Tensor
    y: torch.Tensor | None = None
    label: str | None = None


@tensorclass
class Segment:
    begin: Point
    end: Point
    weight: torch.Tensor


class Sample(TensorClass):
    obs: torch.Tensor
    info: TensorDict
    tags: list | None = None


@tree()
def tensorclass_with_all_fields():
    return Point(x=numbers(4, 3), y=numbers(4), label="é", batch_size=[4])


@tree()
def tensorclass_with_none_fields():
    return TensorDict({"p": Point(x=numbers(4, 3), batch_size=[4])}, batch_size=[4])


@tree()
def tensorclass_subclass():
    return Sample(
        obs=numbers(2, 3),
        info=TensorDict({"a": numbers(2), "n": {"b": numbers(2)}}, batch_size=[2]),
        tags=NonTensorData(["x", 1, None, {"k": 2.5}]),
        batch_size=[2],
    )


@tree()
def tensorclass_in_a_tensorclass():
    def point(n):
        return Point(x=numbers(2) + n, label=f"p{n}", batch_size=[2])

    return TensorDict(
        {"s": Segment(begin=point(1), end=point(2), weight=numbers(2), batch_size=[2])}
    )


@tree()
def tensorclass_with_dim_names():
    return Point(x=numbers(4, 3), batch_size=[4, 3], names=["time", None])


@tree()
def lazy_stack_of_tensorclasses():
    return TensorDict(
        {"p": lazy_stack([Point(x=numbers(i + 1), batch_size=[]) for i in range(3)])},
        batch_size=[3],
    )


@tree()
def lazy_stack_of_equal_tensorclasses():
    points = [Point(x=numbers(4, 2) + i, batch_size=[4]) for i in range(3)]
    return TensorDict({"p": lazy_stack(points, 1)}, batch_size=[4])


# --- JSON values ---


def as_values(**data):
    return TensorDict({key: NonTensorData(value) for key, value in data.items()})


@tree()
def json_scalars():
    return as_values(
        text="text",
        empty="",
        one=1,
        minus=-1,
        zero=0,
        yes=True,
        no=False,
        none=None,
        half=0.5,
        minus_zero=-0.0,
    )


@tree()
def json_floats():
    data = [
        0.1,
        1e308,
        5e-324,
        1.7976931348623157e308,
        1e22,
        1e16,
        123456789.123,
        1 / 3,
        2.0,
        -1e-7,
        1e21,
        1e-5,
    ]
    return as_values(**{f"f{i}": value for i, value in enumerate(data)}, all=data)


@tree(needs="0.15")
def json_nan_and_infinity():
    return as_values(nan=math.nan, inf=math.inf, minus=-math.inf, all=[math.nan, {"x": math.inf}])


@tree()
def json_integers_of_64_bits():
    return as_values(a=2**63 - 1, b=-(2**63), c=2**64 - 1, d=2**53 + 1, e=[2**32, -(2**31)])


@tree(needs="0.15")
def json_integers_of_any_size():
    return as_values(a=2**64, b=-(2**63) - 1, c=2**1000, d=[-(2**200)], e=10**25)


@tree()
def json_strings():
    return as_values(
        scripts="é 日本 ключ 🙂 \u00a0 \u2028 \uffff \U0001d4b3",
        quotes="\"'\\/",
        controls="".join(map(chr, range(32))) + "\x7f\x80",
        nul="a\0b",
        markup='</script>{"a": [1]}',
        long="0123456789" * 20_000,
    )


@tree(needs="0.15")
def json_lone_surrogates():
    return as_values(text="\ud800x", pair="\ude42\ud83d", keys={"\udfff": "\ud800"})


@tree()
def json_containers():
    return as_values(
        empty_list=[],
        empty_dict={},
        nested=[[], [[]], {}, [{}], {"a": {}}],
        mixed=[1, "two", 3.0, None, True, [4, [5]], {"six": [7]}],
        keys={
            "": 1,
            "_type": "x",
            "shape": [1],
            "device": None,
            "data": {"data": 0},
            "é": 1,
            "a/b": 2,
            "a.b": 3,
        },
        order={"z": 1, "a": 2, "m": 3},
    )


@tree()
def json_deeply_nested():
    value = "bottom"
    for _ in range(100):
        value = [value, {"k": value if isinstance(value, str) else None}]
    return as_values(deep=value)


@tree()
def json_values_among_tensors():
    return TensorDict(
        {
            "t": numbers(4, 3),
            "note": NonTensorData("n", batch_size=[4]),
            "data": {"non_tensor": NonTensorData({"k": [1, 2]}, batch_size=[4]), "x": numbers(4)},
        },
        batch_size=[4],
    )


@tree()
def json_meta_data():
    return TensorDict({"m": MetaData("text"), "t": numbers(3)}, batch_size=[3])


@tree()
def stack_of_strings():
    return TensorDict({"s": NonTensorStack("a", "", "é\n🙂", "b"), "x": numbers(4)}, batch_size=[4])


@tree()
def stack_of_strings_with_a_device():
    return TensorDict({"s": NonTensorStack("a", "b")}, batch_size=[2], device="cpu")


@tree()
def stack_of_mixed_values():
    items = [None, 1, 2.5, "x", True, {"k": [1]}, []]
    return TensorDict(
        {"s": NonTensorStack(*[NonTensorData(i) for i in items])}, batch_size=[len(items)]
    )


@tree()
def stack_of_stacks():
    rows = [NonTensorStack(*[NonTensorData(f"{i}{j}") for j in range(3)]) for i in range(2)]
    return TensorDict({"s": torch.stack(rows)}, batch_size=[2])


@tree()
def stack_of_equal_values():
    return TensorDict({"s": torch.stack([NonTensorData(7), NonTensorData(7)])}, batch_size=[2])


# --- everything at once ---


def random_node(generator: torch.Generator, batch: tuple[int, ...], depth: int):
    def below(n):
        return int(torch.randint(0, n, (), generator=generator))

    def leaf():
        dtype = LOADABLE[below(len(LOADABLE))]
        return values(dtype, *batch, *(below(4) for _ in range(below(3))))

    td = TensorDict(batch_size=batch)
    for i in range(1 + below(5)):
        kind = below(8 if depth else 4)
        key = f"{'xyz日éß'[below(6)]}{i}"
        if kind < 3:
            td[key] = leaf()
        elif kind == 3:
            td.set_non_tensor(key, ["text", 1, None, {"k": [below(9)]}][below(4)])
        elif kind == 4:
            parts = [random_node(generator, batch[1:], depth - 1) for _ in range(batch[0])]
            td[key] = lazy_stack(parts)
        elif kind == 5:
            td[key] = Point(x=leaf(), label=[None, "é"][below(2)], batch_size=batch)
        else:
            td[key] = random_node(generator, (*batch, 1 + below(3)), depth - 1)
    return td


def register_random(seed: int) -> None:
    def build():
        return random_node(torch.Generator().manual_seed(seed), (2, 3), 2)

    build.__name__ = f"random_{seed}"
    tree()(build)


for _seed in range(8):
    register_random(_seed)
