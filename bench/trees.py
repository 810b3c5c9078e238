"""The trees that the benchmarks save and load.

Their numbers are random, so that no two large pages of memory are equal. Only the steps of Adam are
all equal; they are scalars.
"""

from __future__ import annotations

import torch


def large() -> dict[str, torch.Tensor]:
    """Returns 8 tensors of 64 MiB."""
    return {f"w{i}": torch.rand(16, 1 << 20) for i in range(8)}


def many(count: int = 2000, size_bytes: int = 16 << 10) -> dict[str, torch.Tensor]:
    """Returns `count` tensors of `size_bytes`."""
    return {f"layer{i:05}.weight": torch.rand(size_bytes // 4) for i in range(count)}


def gpt2_parameters(width: int = 768) -> dict[str, torch.Tensor]:
    """Returns the 148 parameters of GPT-2 small: 124 million numbers with the default width."""
    shapes: dict[str, tuple[int, ...]] = {"wte": (50257, width), "wpe": (1024, width)}
    for i in range(12):
        for key, shape in {
            "ln_1.weight": (width,),
            "ln_1.bias": (width,),
            "attn.c_attn.weight": (width, 3 * width),
            "attn.c_attn.bias": (3 * width,),
            "attn.c_proj.weight": (width, width),
            "attn.c_proj.bias": (width,),
            "ln_2.weight": (width,),
            "ln_2.bias": (width,),
            "mlp.c_fc.weight": (width, 4 * width),
            "mlp.c_fc.bias": (4 * width,),
            "mlp.c_proj.weight": (4 * width, width),
            "mlp.c_proj.bias": (width,),
        }.items():
            shapes[f"h.{i}.{key}"] = shape
    shapes["ln_f.weight"] = shapes["ln_f.bias"] = (width,)
    return {name: torch.rand(shape) for name, shape in shapes.items()}


def gpt2_with_adam(width: int = 768) -> dict[str, torch.Tensor]:
    """Returns GPT-2 small and the state of Adam: 592 tensors, 1.5 GB with the default width."""
    tree = {}
    for name, tensor in gpt2_parameters(width).items():
        tree[f"model.{name}"] = tensor
        tree[f"optimizer.{name}.step"] = torch.tensor(1000.0)
        tree[f"optimizer.{name}.exp_avg"] = torch.rand_like(tensor)
        tree[f"optimizer.{name}.exp_avg_sq"] = torch.rand_like(tensor)
    return tree
