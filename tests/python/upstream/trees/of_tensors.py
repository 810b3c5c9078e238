"""Trees that differ in their tensors: dtypes, shapes and memory layouts."""

import contextlib
import math

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictParams

from trees.registry import (
    COMPLEX,
    FLOAT8,
    FLOATS,
    INTEGERS,
    LOADABLE,
    WIDE_UNSIGNED,
    by_dtype,
    numbers,
    tree,
    values,
)

with contextlib.suppress(ImportError):
    from tensordict import TypedTensorDict


# --- dtypes and shapes ---


@tree()
def integers():
    return TensorDict(by_dtype(INTEGERS, 4, 3), batch_size=[4])


@tree()
def wide_unsigned_integers():
    return TensorDict(by_dtype(WIDE_UNSIGNED, 4, 3), batch_size=[4])


@tree()
def floats():
    return TensorDict(by_dtype(FLOATS, 4, 3), batch_size=[4])


@tree()
def floats_that_are_hard_to_write_as_text():
    special = [math.nan, -math.nan, math.inf, -math.inf, -0.0, 5e-324, 1e-45, 0.1, 1e300]
    return TensorDict({str(d).removeprefix("torch."): torch.tensor(special).to(d) for d in FLOATS})


@tree()
def complex_numbers():
    return TensorDict(by_dtype(COMPLEX, 4, 3), batch_size=[4])


@tree(
    upstream_cannot_load=tuple(str(d).removeprefix("torch.") for d in FLOAT8),
    upstream_load_raises=KeyError,
)
def float8():
    return TensorDict(by_dtype(FLOAT8, 4, 3) | {"plain": numbers(4)}, batch_size=[4])


@tree(upstream_cannot_load=("nested/float4_e2m1fn_x2",), upstream_load_raises=KeyError)
def float4():
    return TensorDict(
        {"nested": by_dtype([torch.float4_e2m1fn_x2], 4, 3), "plain": numbers(4)}, batch_size=[4]
    )


@tree()
def scalars():
    return TensorDict(by_dtype(LOADABLE))


@tree()
def zero_elements():
    shapes = {"a": (0,), "b": (3, 0, 2), "c": (0, 0)}
    dtypes = {"a": torch.float32, "b": torch.int64, "c": torch.bool}
    return TensorDict(
        {k: torch.empty(shapes[k], dtype=dtypes[k]) for k in shapes} | {"d": numbers(2)}
    )


@tree()
def zero_elements_of_every_dtype():
    return TensorDict(by_dtype(LOADABLE, 2, 0), batch_size=[2])


@tree()
def one_element_in_twenty_dimensions():
    return TensorDict({"x": torch.full((1,) * 20, 7.0), "y": values(torch.int16, *[2, 1] * 6)})


@tree()
def sizes_around_64_kib():
    return TensorDict(
        {
            f"n{n}": values(torch.uint8, n)
            for n in (1, 4095, 4096, 4097, 65535, 65536, 65537, 300_000)
        }
    )


@tree()
def a_leaf_over_16_mib():
    return TensorDict(
        {"big": torch.arange((17 << 20) // 4, dtype=torch.int32), "small": numbers(3)}
    )


@tree()
def many_leaves():
    return TensorDict({f"leaf_{i:03}": torch.full((i % 7,), i) for i in range(300)})


# --- nested tensors ---


def ragged(dtype, *shapes):
    return torch.nested.nested_tensor([values(dtype, *shape) for shape in shapes])


@tree()
def nested_tensors():
    return TensorDict(
        {
            "rows": ragged(torch.float32, (2, 3), (5, 3)),
            "areas": ragged(torch.int64, (2, 3), (4, 1)),
            "vectors": ragged(torch.float64, (3,), (1,)),
            "deep": {"r": ragged(torch.float16, (1, 2, 3), (3, 2, 1))},
            "x": numbers(2),
        },
        batch_size=[2],
    )


@tree()
def nested_tensors_with_empty_components():
    return TensorDict(
        {
            "r": ragged(torch.float32, (0, 3), (2, 3), (0, 3)),
            "a": ragged(torch.int32, (0,), (0,), (4,)),
        }
    )


# --- memory layout ---


@tree()
def strided_views():
    base = numbers(6, 4)
    return TensorDict(
        {
            "transposed": base.t(),
            "expanded": numbers(3, 1).expand(3, 5),
            "every_other_row": base[1::2],
            "column": base[:, 2],
            "with_offset": base[2:],
            "permuted": values(torch.int16, 2, 3, 4).permute(2, 0, 1),
            "overlapping": base.as_strided((5, 4), (1, 2)),
            "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
            "scalar_of_another": base[3, 3],
        }
    )


@tree()
def conjugate_and_negative_views():
    z = torch.randn(3, 2, dtype=torch.complex64)
    return TensorDict(
        {"conj": z.conj(), "neg": z.conj().imag, "both": z.conj().t(), "imag": z.imag}
    )


@tree()
def tensors_that_require_grad():
    leaf = torch.randn(3, requires_grad=True)
    return TensorDict(
        {"leaf": leaf, "result": leaf * 2, "n": {"parameter": torch.nn.Parameter(torch.randn(2))}}
    )


@tree()
def tensors_that_share_memory():
    base = numbers(8)
    return TensorDict(
        {"all": base, "same": base, "half": base[4:], "n": {"same": base, "alias": base.view(2, 4)}}
    )


# --- modules ---


def small_model():
    return torch.nn.Sequential(
        torch.nn.Linear(3, 4),
        torch.nn.BatchNorm1d(4),
        torch.nn.Sequential(torch.nn.Linear(4, 2, bias=False)),
    )


@tree()
def module_parameters():
    return TensorDict.from_module(small_model())


@tree()
def module_state_dict():
    return TensorDict(dict(small_model().state_dict()))


@tree()
def tensordict_params():
    return TensorDictParams(TensorDict.from_module(small_model()), no_convert=True)


@tree()
def module_parameters_of_an_ensemble():
    return TensorDict.from_modules(small_model(), small_model())


@tree(needs="0.14")
def typed_tensordict():
    class State(TypedTensorDict):
        obs: torch.Tensor
        done: torch.Tensor

    return State(obs=numbers(4, 3), done=values(torch.bool, 4, 1), batch_size=[4])
