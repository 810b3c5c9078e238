"""Random checkpoints: tenfold.load returns the same values as torch.load."""

import collections
import math
import pickle
import struct
import warnings

import numpy
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

import tenfold
from helpers import DTYPES, make_tensor

ELEMENTS = 24  # of each storage
NUMPY_DTYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8"]
NUMPY_DTYPES += ["f2", "f4", "f8", "c8", "c16"]
# The dtypes that torch can load from files in the layout before torch 1.6. torch also writes other
# dtypes in this layout, but cannot load them.
OLD_DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
OLD_DTYPES += [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]

SETTINGS = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

texts = st.text(st.characters(codec="utf-8"), max_size=6)
hashables = st.one_of(st.none(), st.booleans(), st.integers(), texts, st.binary(max_size=4))
values = st.one_of(
    hashables,
    st.integers(-(2**2000), 2**2000),
    st.floats(),
    st.complex_numbers(),
    st.binary(max_size=4).map(bytearray),
    st.sets(hashables, max_size=3),
    st.dictionaries(texts, st.integers(), max_size=3).map(collections.Counter),
    st.lists(st.integers(0, 2**40), max_size=3).map(torch.Size),
    st.sampled_from(
        [
            *DTYPES,
            torch.device("cpu"),
            torch.device("cuda", 3),
            torch.sparse_csr,
            torch.bits2x4,
            torch.per_tensor_affine,
        ]
    ),
)


@st.composite
def views(draw, storages):
    """Draws a view of one of the storages; its shape, offset and strides (also 0) are random."""
    whole = draw(st.sampled_from(storages))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    strides = [draw(st.integers(0, 6)) for _ in shape]
    reach = 0 if 0 in shape else sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    if reach >= ELEMENTS:
        return whole
    view = whole.as_strided(shape, strides, draw(st.integers(0, ELEMENTS - 1 - reach)))
    if view.dtype in (torch.float32, torch.bfloat16) and draw(st.booleans()):
        return torch.nn.Parameter(view, requires_grad=draw(st.booleans()))
    return view


def containers(children):
    return st.one_of(
        st.lists(children, max_size=4),
        st.lists(children, max_size=4).map(tuple),
        st.dictionaries(texts, children, max_size=4),
        st.dictionaries(st.integers(-(2**70), 2**70), children, max_size=3),
        st.dictionaries(texts, children, max_size=4).map(collections.OrderedDict),
    )


def trees_of(leaves):
    return containers(st.recursive(st.one_of(leaves, values), containers, max_leaves=10))


def trees_over(dtypes):
    storages = st.lists(
        st.builds(make_tensor, st.just((ELEMENTS,)), st.sampled_from(dtypes), st.integers(0, 100)),
        min_size=1,
        max_size=3,
    )
    return storages.flatmap(lambda wholes: trees_of(views(wholes)))


trees = trees_over(DTYPES)


def assert_same(ours, theirs, where="root"):
    """Asserts equal classes and values; for tensors also dtypes, strides and requires_grad."""
    if isinstance(theirs, torch.Tensor):
        assert (type(ours), ours.requires_grad) == (type(theirs), theirs.requires_grad), where
        assert (ours.layout, ours.dtype, ours.shape) == (theirs.layout, theirs.dtype, theirs.shape)
        if theirs.layout is torch.strided:
            assert steps_of(ours) == steps_of(theirs), where
            assert bits_of(ours) == bits_of(theirs), where
        else:
            for ours_part, part in zip(parts_of(ours), parts_of(theirs), strict=True):
                assert_same(ours_part, part, where)
        return
    assert type(ours) is type(theirs), where
    if isinstance(theirs, dict):
        assert [*map(repr, ours)] == [*map(repr, theirs)], where
        for key, value in theirs.items():
            assert_same(ours[key], value, f"{where}.{key}")
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), where
        for i, value in enumerate(theirs):
            assert_same(ours[i], value, f"{where}.{i}")
    elif isinstance(theirs, set):
        assert sorted(map(repr, ours)) == sorted(map(repr, theirs)), where
    elif isinstance(theirs, float):
        assert struct.pack("<d", ours) == struct.pack("<d", theirs), where
    else:
        assert repr(ours) == repr(theirs), where


def steps_of(tensor):
    """Returns the strides of dimensions longer than 1, because other strides have no effect."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride for length, stride in pairs if length > 1] if tensor.numel() else []


def torch_load(path):
    try:
        return torch.load(path, weights_only=True)
    except pickle.UnpicklingError:  # for empty bytes, and for opcodes of protocols after 2
        return torch.load(path, weights_only=False)


def bits_of(tensor):
    plain = tensor.detach().clone(memory_format=torch.contiguous_format)
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def parts_of(tensor):
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values(), torch.tensor(tensor.is_coalesced())]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]


def tensors_of(tree):
    if isinstance(tree, torch.Tensor):
        return [tree] if tree.layout is torch.strided else []
    items = tree.values() if isinstance(tree, dict) else tree
    return (
        [tensor for item in items for tensor in tensors_of(item)]
        if isinstance(tree, (dict, list, tuple)) and not isinstance(tree, torch.Size)
        else []
    )


def assert_same_ties(ours, theirs):
    """Asserts that the same tensors share storage in both trees, with equal offsets and sizes."""
    both = zip(tensors_of(ours), tensors_of(theirs), strict=True)
    pairs = [(mine, its) for mine, its in both if its.numel()]
    for i, (mine, its) in enumerate(pairs):
        assert mine.storage_offset() == its.storage_offset()
        assert mine.untyped_storage().nbytes() == its.untyped_storage().nbytes()
        for other, its_other in pairs[:i]:
            tied = its.untyped_storage().data_ptr() == its_other.untyped_storage().data_ptr()
            one = mine.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
            assert one == tied


@SETTINGS
@given(tree=trees, protocol=st.integers(2, 5))
def test_any_zip_file_is_read_as_by_torch(tmp_path, tree, protocol):
    path = tmp_path / "m.pt"
    torch.save(tree, path, pickle_protocol=protocol)
    theirs = torch_load(path)
    ours = tenfold.load(path)
    assert_same(ours, theirs)
    assert_same_ties(ours, theirs)
    assert tenfold.verify(path).ok


@SETTINGS
@given(tree=trees_over(OLD_DTYPES), protocol=st.integers(2, 5))
def test_any_legacy_file_is_read_as_by_torch(tmp_path, tree, protocol):
    path = tmp_path / "m.pt"
    torch.save(tree, path, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
    theirs = torch_load(path)
    ours = tenfold.load(path)
    assert_same(ours, theirs)
    assert_same_ties(ours, theirs)


@st.composite
def sparse_tensors(draw):
    dtype = draw(st.sampled_from([torch.float32, torch.float64, torch.int64, torch.complex64]))
    dense = torch.zeros(draw(st.lists(st.sampled_from([2, 4]), min_size=2, max_size=3)))
    dense = (torch.rand_like(dense) > draw(st.sampled_from([0.2, 0.6, 1.0]))).to(dtype)
    layout = draw(st.sampled_from(["coo", "hybrid", "twice", "csr", "csc", "bsr", "bsc"]))
    if layout in ("coo", "hybrid"):
        return dense.to_sparse(dense.ndim - (layout == "hybrid"))
    if layout == "twice":
        coo = dense.to_sparse()
        return torch.sparse_coo_tensor(
            torch.cat([coo.indices()] * 2, 1), torch.cat([coo.values()] * 2), dense.shape
        )
    if dense.ndim == 3:  # batches hold equal numbers of elements
        dense = dense[:1].expand(3, -1, -1)
    return getattr(dense, f"to_sparse_{layout}")(*([(2, 2)] if layout[0] == "b" else []))


@SETTINGS
@given(tree=trees_of(sparse_tensors()), old=st.booleans())
def test_sparse_tensors_are_read_as_by_torch(tmp_path, tree, old):
    path = tmp_path / "m.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(tree, path, _use_new_zipfile_serialization=not old)
        assert_same(tenfold.load(path), torch_load(path))


def of_numpy(tree):
    """Converts arrays and scalars of NumPy to tensors, as tenfold does."""
    if isinstance(tree, (numpy.ndarray, numpy.generic)):
        return torch.from_numpy(numpy.array(tree))
    if isinstance(tree, dict):
        return {key: of_numpy(value) for key, value in tree.items()}
    return [of_numpy(value) for value in tree]


@SETTINGS
@given(
    tree=st.dictionaries(
        texts,
        st.lists(
            st.one_of(
                st_numpy.arrays(
                    st.sampled_from(NUMPY_DTYPES),
                    st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
                ).flatmap(
                    lambda a: st.sampled_from(
                        [a, a.T, numpy.asfortranarray(a), a[..., :1] if a.ndim else a]
                    )
                ),
                st.floats().map(numpy.float64),
                st.integers(-128, 127).map(numpy.int8),
                st.booleans().map(numpy.bool_),
            ),
            max_size=3,
        ),
        min_size=1,
        max_size=3,
    ),
    protocol=st.integers(2, 5),
    old=st.booleans(),
)
def test_numpy_arrays_are_read_with_equal_values(tmp_path, tree, protocol, old):
    path = tmp_path / "m.pt"
    torch.save(tree, path, pickle_protocol=protocol, _use_new_zipfile_serialization=not old)
    ours = tenfold.load(path)
    theirs = of_numpy(torch.load(path, weights_only=False))
    for key, items in theirs.items():
        for mine, its in zip(ours[key], items, strict=True):
            assert (mine.dtype, mine.shape) == (its.dtype, its.shape)
            assert bits_of(mine) == bits_of(its)


@SETTINGS
@given(tree=trees, data=st.data())
def test_changed_byte_is_detected_or_does_not_change_the_result(tmp_path, tree, data):
    """load with verify=True raises, or returns the saved values."""
    path = tmp_path / "m.pt"
    torch.save(tree, path)
    theirs = torch_load(path)
    raw = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(raw)
    try:
        ours = tenfold.load(path, verify=True)
    except (tenfold.CorruptFileError, tenfold.UnsupportedError):
        return
    assert_same(ours, theirs)


def test_strategies_generate_strides_offsets_overlaps_and_parameters():
    whole = make_tensor((ELEMENTS,), torch.float32)
    found = collections.Counter()

    @settings(max_examples=200, deadline=None, database=None, derandomize=True)
    @given(view=views([whole]))
    def draw(view):
        found["offset"] += view.storage_offset() > 0
        found["strided"] += not view.is_contiguous()
        found["overlapping"] += view.numel() > 0 and 0 in steps_of(view)
        found["empty"] += view.numel() == 0
        found["parameter"] += isinstance(view, torch.nn.Parameter)
        assert math.prod(view.shape) == view.numel()

    draw()
    kinds = ("offset", "strided", "overlapping", "empty", "parameter")
    assert all(found[kind] > 3 for kind in kinds), found
