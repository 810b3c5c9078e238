"""tenfold and the reference implementation read each other's random safetensors files."""

import json

import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tenfold
from helpers import DTYPES, assert_same, make_tensor

SETTINGS = settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
NAMELESS = (torch.complex32, torch.complex128)
PACKED = getattr(torch, "float4_e2m1fn_x2", None)  # torch 2.8
texts = st.text(st.characters(codec="utf-8"), max_size=10)
names = texts.filter(lambda name: name != "__metadata__")
tensors = st.builds(
    make_tensor,
    st.lists(st.integers(0, 5), max_size=4).map(tuple),
    st.sampled_from([d for d in DTYPES if d not in NAMELESS and d is not PACKED]),
    st.integers(0, 1000),
)
files = st.dictionaries(names, tensors, max_size=6)
# No value is the name of a tensor: tenfold would read such an entry as an alias, because
# save_model writes aliases in this form.
metadata = st.dictionaries(
    texts, texts.map("no name of a tensor {}".format), min_size=1, max_size=3
)


@SETTINGS
@given(file=files, more=st.none() | metadata)
def test_any_file_is_read_as_by_the_reference(tmp_path, file, more):
    path = tmp_path / "m.safetensors"
    safetensors.torch.save_file(file, path, more)
    theirs = safetensors.torch.load_file(path)
    ours = tenfold.load(path)
    assert sorted(ours) == sorted(theirs)
    assert_same({key: ours[key] for key in theirs}, theirs)
    assert tenfold.verify(path).ok


@SETTINGS
@given(file=files)
def test_reference_reads_any_flat_file_of_tenfold(tmp_path, file):
    path = tmp_path / "m.safetensors"
    tenfold.save(file, path, durable=False)
    theirs = safetensors.torch.load_file(path)
    assert sorted(theirs) == sorted(file)
    assert_same({key: theirs[key] for key in file}, file)


@SETTINGS
@given(file=st.dictionaries(names, tensors, min_size=1, max_size=4), data=st.data())
def test_mutated_header_is_refused_or_read_as_by_the_reference(tmp_path, file, data):
    path = tmp_path / "m.safetensors"
    safetensors.torch.save_file(file, path)
    raw = bytearray(path.read_bytes())
    end = 8 + int.from_bytes(raw[:8], "little")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, end - 1))
        raw[at] = data.draw(st.one_of(st.integers(0, 255), st.sampled_from(b'0129"{}[],:')))
    path.write_bytes(raw)
    try:
        ours = tenfold.load(path, format="safetensors")
    except (tenfold.CorruptFileError, tenfold.UnsupportedError):
        return
    try:
        theirs = safetensors.torch.load_file(path)
    except safetensors.SafetensorError as error:
        # tenfold must check all header members that the reference checks, even unused ones.
        header = json.loads(bytes(raw[8 : 8 + int.from_bytes(raw[:8], "little")]))
        pytest.fail(f"the reference refuses what tenfold reads: {error}: {header}")
    assert sorted(ours) == sorted(theirs)
    assert_same({key: ours[key] for key in theirs}, theirs)
