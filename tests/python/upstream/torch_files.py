"""Compares what tenfold loads from files of torch.save with what torch loads."""

import torch

import tenfold


def assert_same(ours, theirs, where="root"):
    """Asserts equal types, nesting, key order, dtypes, shapes, requires_grad and bytes.

    Sparse and nested tensors are compared only by layout and printed form.
    """
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, torch.Tensor), where
        assert ours.layout == theirs.layout, where
        if theirs.layout is not torch.strided or theirs.is_nested:
            assert str(ours) == str(theirs), where
            return
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), where
        assert (type(ours), ours.requires_grad) == (type(theirs), theirs.requires_grad), where
        assert raw(ours) == raw(theirs), where
        return
    assert type(ours) is type(theirs), where
    assert getattr(ours, "_metadata", None) == getattr(theirs, "_metadata", None), where
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), where
        for key, value in theirs.items():
            assert_same(ours[key], value, f"{where}.{key}")
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), where
        for i, value in enumerate(theirs):
            assert_same(ours[i], value, f"{where}.{i}")
    else:
        assert ours == theirs, where


def raw(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().clone(memory_format=torch.contiguous_format)
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def roundtrip(tmp_path, obj, **options):
    path = tmp_path / "checkpoint.pt"
    torch.save(obj, path, **options)
    assert tenfold.probe(path) == "pt"
    assert tenfold.verify(path).ok
    ours = tenfold.load(path)
    assert_same(ours, torch.load(path, weights_only=True))
    return ours
