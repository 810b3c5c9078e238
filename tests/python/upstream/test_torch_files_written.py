"""torch.load reads files that tenfold wrote: equal values, and equally shared storage."""

import math
import shutil
import subprocess
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tenfold
from helpers import DTYPES, assert_same, make_tensor

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")


def both_ways(path):
    """Loads with weights_only=True, with and without mmap, and asserts equal results."""
    mapped = torch.load(path, weights_only=True, mmap=True)
    assert_same(torch.load(path, weights_only=True), mapped)
    return mapped


tensors = st.builds(
    make_tensor,
    st.lists(st.integers(0, 4), max_size=3).map(tuple),
    st.sampled_from(DTYPES),
    st.integers(0, 100),
)
views = st.builds(
    lambda n: torch.arange(24.0).reshape(2, 3, 4).permute(n), st.permutations(range(3))
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**2039), 2**2039 - 1),
    st.floats(),
    st.text(st.characters(codec="utf-8")),
)
keys = st.text(st.characters(codec="utf-8"), max_size=8)


def containers(children):
    return st.one_of(
        st.dictionaries(keys, children, max_size=4),
        st.dictionaries(st.integers(), children, min_size=1, max_size=4),
        st.dictionaries(keys, children, max_size=4).map(OrderedDict),
        st.lists(children, max_size=4),
        st.lists(children, max_size=4).map(tuple),
    )


trees = containers(st.recursive(st.one_of(tensors, views, scalars), containers, max_leaves=12))


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tree=trees)
def test_torch_loads_any_saved_tree(tmp_path, tree):
    path = tmp_path / "tree.pt"
    tenfold.save(tree, path, durable=False)
    assert_same(both_ways(path), tree)
    assert_same(tenfold.load(path), tree)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_views_of_one_storage_share_it_after_loading(tmp_path, data):
    whole = torch.arange(60, dtype=torch.int32)
    pieces = []
    for _ in range(data.draw(st.integers(1, 5))):
        shape = data.draw(st.lists(st.integers(1, 4), max_size=3))
        strides = [data.draw(st.integers(0, 8)) for _ in shape]
        reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        start = data.draw(st.integers(0, max(0, 59 - reach)))
        if reach < 60:
            pieces.append(whole.as_strided(shape, strides, start))
    path = tmp_path / "views.pt"
    tenfold.save(pieces, path, durable=False)
    for loaded in (both_ways(path), torch.load(path), tenfold.load(path)):
        assert_same(loaded, pieces)
        # If two saved tensors overlap, the loaded ones have the same distance in memory.
        for i, piece in enumerate(loaded):
            for j, other in enumerate(loaded):
                ours = pieces[i].data_ptr() - pieces[j].data_ptr()
                overlap = shares_bytes(pieces[i], pieces[j])
                assert not overlap or piece.data_ptr() - other.data_ptr() == ours


def shares_bytes(a, b):
    return np.shares_memory(a.numpy(), b.numpy())


def test_tied_weights_stay_tied_and_are_stored_once(tmp_path):
    model = torch.nn.Sequential(torch.nn.Embedding(1000, 50), torch.nn.Linear(50, 1000, bias=False))
    model[1].weight = model[0].weight
    path = tenfold.save({"model": model, "transposed": model[0].weight.t()}, tmp_path / "m.pt")
    assert path.stat().st_size < 205_000
    for mapped in (True, False):
        state = torch.load(path, weights_only=True, mmap=mapped)
        addresses = {state["model"][name].data_ptr() for name in ("0.weight", "1.weight")}
        assert addresses == {state["transposed"].data_ptr()}


def test_modules_and_optimizers_continue_from_torch_load(tmp_path):
    torch.manual_seed(0)

    def made():
        model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4))
        return model, torch.optim.AdamW(model.parameters(), lr=0.1, amsgrad=True)

    def step(model, optimizer):
        optimizer.zero_grad()
        model(torch.arange(15.0).reshape(3, 5)).square().sum().backward()
        optimizer.step()

    model, optimizer = made()
    step(model, optimizer)
    tenfold.save({"model": model, "optimizer": optimizer}, tmp_path / "run.pt")
    loaded = both_ways(tmp_path / "run.pt")
    again, its_optimizer = made()
    again.load_state_dict(loaded["model"])
    its_optimizer.load_state_dict(loaded["optimizer"])
    step(model, optimizer)
    step(again, its_optimizer)
    assert_same(again.state_dict(), model.state_dict())
    assert_same(its_optimizer.state_dict(), optimizer.state_dict())


def test_tensordicts_round_trip_and_are_dicts_in_torch(tmp_path):
    inner = tenfold.TensorDict({"y": torch.ones(3, 2, 1)}, batch_size=[3, 2])
    tree = tenfold.TensorDict({"x": torch.zeros(3), "inner": inner}, batch_size=[3])
    path = tenfold.save({"tree": tree, "plain": [1]}, tmp_path / "m.pt")
    loaded = both_ways(path)
    assert_same(loaded["tree"]["inner"]["y"], torch.ones(3, 2, 1))
    ours = tenfold.load(path)
    assert ours["tree"].batch_size == tree.batch_size
    assert ours["tree"]["inner"].batch_size == inner.batch_size
    assert ours["plain"] == [1]


def test_stale_notes_document_is_ignored_with_a_warning(tmp_path):
    tree = tenfold.TensorDict({"x": torch.zeros(3)}, batch_size=[3])
    path = tenfold.save(tree, tmp_path / "m.pt")
    changed = tmp_path / "changed.pt"
    torch.save({"x": torch.zeros(2)}, changed)
    with zipfile.ZipFile(path) as ours, zipfile.ZipFile(changed, "a") as theirs:
        theirs.writestr("changed/tenfold.json", ours.read("m/tenfold.json"))
    with pytest.warns(UserWarning, match=r'tenfold.json": the note of "" is ignored'):
        found = tenfold.load(changed)
    assert_same(found, {"x": torch.zeros(2)})


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".pth.tar", ".bin", ".ckpt"])
def test_folders_and_other_files_convert_to_torch_files(tmp_path, suffix):
    tree = {"a": {"w": torch.rand(3, 4), "n": [1, (2,)]}, "b": torch.arange(5)}
    flat = {"w": torch.rand(3, 4), "b": torch.arange(5)}
    formats = ("memmap", "safetensors", "pt", "tdz", "consolidated", "npz")
    for source in formats:
        saved = flat if source == "npz" else tree
        tenfold.save(saved, tmp_path / source, format=source)
        path = tenfold.convert(tmp_path / source, tmp_path / f"to{suffix}")
        assert_same(both_ways(path), saved)
        path.unlink()


def test_unzip_finds_no_errors(tmp_path):
    path = tenfold.save(
        {str(i): make_tensor((i,), torch.uint8) for i in range(50)}, tmp_path / "m.pt"
    )
    if shutil.which("unzip") is None:
        pytest.skip("unzip is not installed")
    done = subprocess.run(["unzip", "-t", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (2**2039, r'pt: key "a\.0": an integer that torch cannot load: .*found one of 614 digits'),
        (
            torch.nested.nested_tensor([torch.ones(2)]),
            'pt: key "a.0": a nested tensor cannot be stored',
        ),
    ],
    ids=["integer", "nested"],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_values_that_torch_cannot_load_are_refused_before_writing(tmp_path, value, message):
    with pytest.raises(tenfold.UnsupportedError, match=message):
        tenfold.save({"a": [value], "b": torch.ones(1)}, tmp_path / "x.pt")
    assert not list(tmp_path.iterdir())


def test_numbers_round_trip_bit_for_bit(tmp_path):
    numbers = [0.1, -0.0, 5e-324, math.inf, -math.inf, math.nan, 2**63 - 1, -(2**63), 2**64]
    loaded = both_ways(tenfold.save({"numbers": numbers, "x": torch.ones(1)}, tmp_path / "n.pt"))
    assert repr(loaded["numbers"]) == repr(numbers)
