"""Quantized tensors, and lazy conjugate and negative views, in files of torch.save."""

import pytest
import torch
from torch_files import assert_same

import tenfold

pytestmark = pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions:UserWarning")

VALUES = torch.arange(12.0).reshape(3, 4) / 4
SCALES = torch.tensor([0.5, 0.25, 1.0])
ZEROS = torch.tensor([0, 1, -2])


def per_tensor(dtype, tensor=VALUES):
    return torch.quantize_per_tensor(tensor, 0.25, 3, dtype)


QUANTIZED = {
    "qint8": lambda: per_tensor(torch.qint8),
    "quint8": lambda: per_tensor(torch.quint8),
    "qint32": lambda: per_tensor(torch.qint32),
    "transposed": lambda: per_tensor(torch.qint8).t(),
    "row": lambda: per_tensor(torch.qint8)[1],
    "empty": lambda: per_tensor(torch.qint8, torch.zeros(0, 2)),
    "channels": lambda: torch.quantize_per_channel(VALUES, SCALES, ZEROS, 0, torch.qint8),
    "float": lambda: torch.quantize_per_channel(VALUES, SCALES, ZEROS.float(), 0, torch.quint8),
    "parameter": lambda: torch.nn.Parameter(per_tensor(torch.qint8), requires_grad=False),
}


def parts_of(tensor):
    parts = {"int_repr": tensor.int_repr(), "dtype": tensor.dtype, "qscheme": tensor.qscheme()}
    if tensor.qscheme() is torch.per_tensor_affine:
        return {**parts, "scale": tensor.q_scale(), "zero_point": tensor.q_zero_point()}
    return {
        **parts,
        "scales": tensor.q_per_channel_scales(),
        "zero_points": tensor.q_per_channel_zero_points(),
        "axis": tensor.q_per_channel_axis(),
    }


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("which", QUANTIZED)
def test_quantized_tensor_is_read_as_its_components(tmp_path, which, zipped):
    tensor = QUANTIZED[which]()
    state = {"q": tensor, "x": torch.ones(1)}
    torch.save(state, tmp_path / "m.pt", _use_new_zipfile_serialization=zipped)
    found = tenfold.load(tmp_path / "m.pt")
    # torch saves per_channel_affine_float_qparams under the name per_channel_affine.
    expected = parts_of(torch.load(tmp_path / "m.pt", weights_only=True)["q"].detach())
    expected["qscheme"] = found["q"]["qscheme"] if which == "float" else expected["qscheme"]
    assert_same(found, {"q": expected, "x": torch.ones(1)})
    assert tenfold.verify(tmp_path / "m.pt").ok
    # If the tensor is the root of the file, it has the same parts.
    torch.save(tensor, tmp_path / "bare.pt", _use_new_zipfile_serialization=zipped)
    assert_same(tenfold.load(tmp_path / "bare.pt"), expected)


@pytest.mark.parametrize("name", ["m", "m.safetensors", "m.tdz", "again.pt"])
def test_quantized_components_convert_and_restore_the_tensor(tmp_path, name):
    tensor, channels = per_tensor(torch.qint8), QUANTIZED["channels"]()
    torch.save({"q": tensor, "c": channels}, tmp_path / "m.pt")
    tenfold.convert(tmp_path / "m.pt", tmp_path / name)
    found = tenfold.load(tmp_path / name)
    q, c = found["q"], found["c"]
    again = torch._make_per_tensor_quantized_tensor(q["int_repr"], q["scale"], q["zero_point"])
    assert torch.equal(again.dequantize(), tensor.dequantize())
    again = torch._make_per_channel_quantized_tensor(
        c["int_repr"], c["scales"], c["zero_points"], c["axis"]
    )
    assert torch.equal(again.dequantize(), channels.dequantize())


def test_packed_quantized_tensors_are_refused_by_name(tmp_path):
    packed = torch.quantize_per_channel(VALUES, SCALES, ZEROS.float(), 0, torch.quint4x2)
    torch.save({"q": packed, "x": torch.ones(1)}, tmp_path / "m.pt")
    with pytest.raises(tenfold.UnsupportedError, match=r'key "q": .*QUInt4x2Storage'):
        tenfold.load(tmp_path / "m.pt")
    assert_same(tenfold.load(tmp_path / "m.pt", keys="x"), {"x": torch.ones(1)})


def complex_of(dtype):
    part = torch.arange(12, dtype=torch.float64).reshape(3, 4)
    return torch.complex(part, part + 0.5).to(dtype)


LAZY = {
    "complex64": lambda: complex_of(torch.complex64).conj(),
    "complex128": lambda: complex_of(torch.complex128).conj(),
    "complex32": lambda: complex_of(torch.complex64).to(torch.complex32).conj(),
    "hermitian": lambda: complex_of(torch.complex64).mH,
    "row": lambda: complex_of(torch.complex64).conj()[1:, 2],
    "imag": lambda: complex_of(torch.complex64).conj().imag,
    "both": lambda: torch._neg_view(complex_of(torch.complex64).conj()),
    "half": lambda: torch._neg_view(torch.arange(5).half()),
    "bfloat16": lambda: torch._neg_view(torch.arange(5).bfloat16()),
    "special": lambda: torch._neg_view(torch.tensor([0.0, -0.0, float("inf"), float("nan")])),
    "scalar": lambda: torch.tensor(1 + 2j).conj(),
    "empty": lambda: torch.zeros(0, 2, dtype=torch.complex64).conj(),
    "trained": lambda: complex_of(torch.complex64).requires_grad_().conj().detach(),
}


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("which", LAZY)
def test_conjugate_and_negative_views_are_read_as_values(tmp_path, which, zipped):
    tensor = LAZY[which]()
    assert tensor.is_conj() or tensor.is_neg()
    resolved = tensor.resolve_conj().resolve_neg()
    torch.save(
        {"v": tensor, "list": [1, tensor]},
        tmp_path / "m.pt",
        _use_new_zipfile_serialization=zipped,
    )
    found = tenfold.load(tmp_path / "m.pt")
    for loaded in (found["v"], found["list"][1], tenfold.open(tmp_path / "m.pt")["v"]):
        assert not loaded.is_conj()
        assert not loaded.is_neg()
        assert loaded.dtype == tensor.dtype
        ours, theirs = (x.contiguous().reshape(-1).view(torch.uint8) for x in (loaded, resolved))
        if tensor.dtype != torch.complex32:
            assert torch.equal(loaded.nan_to_num(7), resolved.nan_to_num(7))
        # For -(conj(z)), torch's kernels return zeros of either sign.
        assert which == "both" or torch.equal(ours, theirs)
    if tensor.numel():
        assert found["v"].data_ptr() == found["list"][1].data_ptr()
    assert tenfold.verify(tmp_path / "m.pt").ok
    tenfold.convert(tmp_path / "m.pt", tmp_path / "m")
    assert tenfold.diff(tmp_path / "m.pt", tmp_path / "m").same
    torch.save(tensor, tmp_path / "bare.pt")
    bare = tenfold.load(tmp_path / "bare.pt")
    assert torch.equal(bare.contiguous().reshape(-1).view(torch.uint8), ours)


def test_large_lazy_views_are_converted(tmp_path):
    real = torch.randn(700, 1000)
    tensor = torch.complex(real, real + 1)
    torch.save({"v": tensor.conj(), "t": tensor.mH, "plain": tensor}, tmp_path / "m.pt")
    tenfold.convert(tmp_path / "m.pt", tmp_path / "m")
    found = tenfold.load(tmp_path / "m", verify=True)
    assert torch.equal(found["v"], tensor.conj().resolve_conj())
    assert torch.equal(found["t"], tensor.mH.resolve_conj())
    assert torch.equal(found["plain"], tensor)
