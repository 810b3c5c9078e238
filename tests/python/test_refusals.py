import dataclasses
import enum

import numpy as np
import pytest
import torch

import tenfold


def _resized(tensor, size_bytes):
    tensor.untyped_storage().resize_(size_bytes)
    return tensor


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Point:
    x: int = 0


REFUSED = {
    "memoryview": (lambda: memoryview(b"x"), "found memoryview; store bytes"),
    "set of tensors": (lambda: {torch.zeros(1)}, "expected a value without tensors"),
    "enum": (lambda: Color.RED, "Color; store its value"),
    "dataclass": (Point, "Point"),
    "function": (lambda: len, "found builtin_function_or_method"),
    "smaller storage": (
        lambda: _resized(torch.zeros(1000), 40),
        "found a tensor whose storage has only 40 bytes",
    ),
    "smaller storage of a view": (
        lambda: _resized(torch.zeros(10)[5:], 39),
        "found a tensor whose storage has only 39 bytes",
    ),
    "smaller storage of a parameter": (
        lambda: torch.nn.Parameter(_resized(torch.zeros(1000), 40)),
        "found a tensor whose storage has only 40 bytes",
    ),
    "meta": (lambda: torch.zeros(1, device="meta"), "found a tensor on the meta device"),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.zeros(2), 1.0, 0, torch.quint8),
        "found a quantized tensor",
    ),
    "bits": (lambda: torch.zeros(2, dtype=torch.uint8).view(torch.bits8), "found dtype bits8"),
    # DLPack describes them as uint8 and int8.
    "uint4": (lambda: torch.zeros(2, dtype=torch.uint8).view(torch.uint4), "found dtype uint4"),
    "int2": (lambda: torch.zeros(2, dtype=torch.int8).view(torch.int2), "found dtype int2"),
    "lazy": (torch.nn.parameter.UninitializedParameter, "found a UninitializedParameter"),
    "strings": (lambda: np.array(["a"]), "found an array of dtype <U1"),
    "objects": (lambda: np.array([None]), "found an array of dtype object"),
    "dates": (lambda: np.array(["2020-01-01"], "M8[D]"), "found an array of dtype datetime64"),
    "masked": (lambda: np.ma.array([1], mask=[True]), "MaskedArray; store its data and its mask"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", REFUSED)
def test_unsupported_values_are_refused_by_key(target, kind):
    make, found = REFUSED[kind]
    with pytest.raises(tenfold.UnsupportedError, match=f'key "a.b.0": .*{found}'):
        tenfold.save({"a": {"b": [make()]}, "x": torch.zeros(1)}, target)
    assert not target.exists()


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ([b"a"], "its keys cannot be stored: .*, found b'a' of type bytes"),
        ([np.int64(1)], "its keys cannot be stored: .* of type numpy.int64"),
        (
            [(1, frozenset())],
            r"its keys cannot be stored: .*, found \(1, frozenset\(\)\) of type tuple",
        ),
        ([1, "1"], 'two of its keys are "1" as a str'),
        (["None", None], 'two of its keys are "None" as a str'),
        ([float("nan"), float("nan")], 'two of its keys are "nan" as a str'),
    ],
)
@pytest.mark.parametrize("value", [torch.zeros(1), 1], ids=["tensors", "values"])
def test_unsupported_keys_are_refused(target, keys, found, value):
    with pytest.raises(ValueError, match=f'key "t": {found}'):
        tenfold.save({"t": dict.fromkeys(keys, value)}, target)
    assert not target.exists()


def test_dict_that_contains_itself_is_refused(target):
    tree = {"a": {"x": torch.zeros(1)}}
    tree["a"]["b"] = tree
    with pytest.raises(ValueError, match=r'key "a.b": it contains itself'):
        tenfold.save(tree, target)


def test_list_that_contains_itself_is_refused(target):
    items = [1]
    items.append(items)
    with pytest.raises(ValueError, match='key "1": it contains itself'):
        tenfold.save(items, target)


def test_state_dict_that_contains_its_object_is_refused(target):
    class Loop:
        def state_dict(self):
            return {"me": self}

    with pytest.raises(ValueError, match='key "me": it contains itself'):
        tenfold.save(Loop(), target)


def test_too_deep_nesting_is_refused(target):
    tree = {"x": torch.zeros(1)}
    for _ in range(2000):
        tree = {"a": tree}
    with pytest.raises(ValueError, match="nested too deeply: expected at most 512 levels"):
        tenfold.save(tree, target)


@pytest.mark.parametrize("levels", [600, 100_000])
def test_too_deep_nesting_of_frozensets_is_refused(target, levels):
    value = frozenset()
    for _ in range(levels):
        value = frozenset([value])
    message = 'key "v": nested too deeply: expected at most 512 levels'
    with pytest.raises(ValueError, match=message):
        tenfold.save({"v": value, "x": torch.zeros(1)}, target)
    assert not target.exists()


def test_512_levels_of_containers_are_supported(tmp_path):
    value = frozenset()
    for _ in range(510):
        value = frozenset([value])
    tenfold.save({"v": value, "x": torch.zeros(1)}, tmp_path / "t")
    found = tenfold.load(tmp_path / "t")["v"]
    for _ in range(510):
        (found,) = found
    assert found == frozenset()


def test_too_deep_nesting_of_keys_is_refused(tmp_path, target):
    key = ()
    for level in range(10_000):
        if level == 510:  # the key is allowed, but the notes document adds levels
            with pytest.raises(ValueError, match='nodes "d": nested too deeply'):
                tenfold.save({"d": {key: torch.zeros(1)}}, tmp_path / "k.safetensors")
        key = (key,)
    message = 'key "d": key: nested too deeply: expected at most 512 levels'
    with pytest.raises(ValueError, match=message):
        tenfold.save({"d": {key: torch.zeros(1)}}, target)
    assert not any(tmp_path.iterdir())


def test_safetensors_refuses_dicts_nested_too_deep_for_its_document(tmp_path):
    tree = {"x": torch.zeros(1)}
    for _ in range(170):
        tree = {"a": tree}
    with pytest.raises(tenfold.UnsupportedError) as caught:
        tenfold.save(tree, tmp_path / "m.safetensors")
    message = str(caught.value)
    assert message.startswith(str(tmp_path / 'm.safetensors: key "a.a.'))
    assert "nested too deeply: expected at most 512 levels of json" in message
    assert not any(tmp_path.iterdir())
    tenfold.save(tree["a"], tmp_path / "m.safetensors")
    found = tenfold.load(tmp_path / "m.safetensors")
    for _ in range(169):
        found = found["a"]
    assert found.keys() == {"x"}


def test_exception_of_state_dict_propagates(target):
    class Broken:
        def state_dict(self):
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        tenfold.save({"a": Broken()}, target)


def test_nested_tensors_are_refused_by_safetensors(tmp_path):
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(1)])
    with pytest.raises(tenfold.UnsupportedError, match=r'key "a\.n"'):
        tenfold.save({"a": {"n": nested}}, tmp_path / "x.safetensors")
    assert not (tmp_path / "x.safetensors").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("m.npz", {"a": torch.ones(1)}),
        ("m.safetensors", torch.ones(1, dtype=torch.complex128)),
        ("m.pt", 2**2039),
    ],
)
def test_value_unsupported_by_the_format_is_named_with_path_and_key(tmp_path, name, value):
    path = tmp_path / name
    tenfold.save({"k": value}, tmp_path / "folder")
    for write in (
        lambda: tenfold.save({"k": value}, path),
        lambda: tenfold.convert(tmp_path / "folder", path),
    ):
        with pytest.raises(tenfold.UnsupportedError) as caught:
            write()
        assert str(caught.value).startswith(f'{path}: key "k')
    assert not path.exists()


def test_sizes_that_do_not_fit_int64_are_refused(target):
    tree = tenfold.TensorDict({}, batch_size=[2**63])
    with pytest.raises(
        ValueError, match="shape: expected lengths that fit int64, found 9223372036854775808"
    ):
        tenfold.save(tree, target)


def test_load_into_a_tensor_that_exceeds_its_storage_is_refused():
    tensor = _resized(torch.zeros(1000), 40)
    with pytest.raises(tenfold.UnsupportedError, match="whose storage has only 40 bytes"):
        tenfold.load_into({"x": tensor}, {"x": torch.ones(1000)})
