"""MemoryMappedTensor: tensors that map a file or shared memory."""

import copy
import os
import pickle
import sys

import numpy as np
import pytest
import torch

import tenfold
from helpers import DTYPES, bytes_of, make_tensor
from tenfold import MemmapTensor, MemoryMappedTensor, _core


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.memmap"


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 3)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_and_shape_round_trips(path, dtype, shape):
    source = make_tensor(shape, dtype)
    made = MemoryMappedTensor.from_tensor(source, filename=path)
    again = MemoryMappedTensor.from_filename(path, dtype, shape)
    for tensor in (made, again, MemoryMappedTensor.from_tensor(source)):
        assert type(tensor) is MemoryMappedTensor
        assert (tensor.dtype, tensor.shape) == (dtype, torch.Size(shape))
        assert bytes_of(tensor.clone()) == bytes_of(source)
    assert path.exists() == bool(source.numel())


def test_memmap_tensor_is_an_alias():
    assert MemmapTensor is MemoryMappedTensor


def test_the_file_name_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = MemoryMappedTensor.zeros(3, filename="x.memmap")
    assert made.filename == str(tmp_path / "x.memmap")
    with pytest.raises(RuntimeError, match="no file"):
        MemoryMappedTensor.zeros(3).filename  # noqa: B018


def test_writes_reach_the_file_and_operations_return_plain_tensors(path):
    made = MemoryMappedTensor.zeros(2, 3, filename=path)
    made[1] += 5
    made.flush()
    assert path.read_bytes() == bytes_of(torch.tensor([[0.0] * 3, [5.0] * 3]))
    for result in (made + 1, made.sum(0), made.clone(), made[[0]], made[made > 0], made.T):
        assert type(result) is torch.Tensor


@pytest.mark.parametrize(
    "index", [0, slice(1, None), (1, 2), (slice(None), 1), None, ..., (0, None), (..., 0)], ids=str
)
def test_view_of_a_mapped_tensor_keeps_its_file(path, index):
    made = MemoryMappedTensor.from_tensor(torch.arange(6.0).view(2, 3), filename=path)
    part = made[index]
    assert type(part) is MemoryMappedTensor
    assert part.filename == made.filename
    again = pickle.loads(pickle.dumps(part))
    assert torch.equal(again, torch.arange(6.0).view(2, 3)[index])
    again.fill_(-1)
    assert torch.equal(part, torch.full_like(part, -1))


def test_views_of_views_pickle_by_their_position_in_the_file(path):
    made = MemoryMappedTensor.from_tensor(torch.arange(24.0).view(2, 3, 4), filename=path)
    for part in (made[1][::2][0], made.unbind(1)[2][1], made.split(2, 2)[1][:, 1], list(made)[1]):
        assert type(part) is MemoryMappedTensor
        assert torch.equal(pickle.loads(pickle.dumps(part)), part)
        assert len(pickle.dumps(part)) < 1000


def test_from_tensor_returns_a_tensor_already_mapped_from_the_file(path, tmp_path):
    made = MemoryMappedTensor.from_tensor(torch.ones(3), filename=path)
    assert MemoryMappedTensor.from_tensor(made, filename=path) is made
    with pytest.raises(RuntimeError, match=r"/y: .*mapped from .*x\.memmap.*copy_existing"):
        MemoryMappedTensor.from_tensor(made, filename=tmp_path / "y")
    copied = MemoryMappedTensor.from_tensor(made, filename=tmp_path / "y", copy_existing=True)
    assert copied.filename == str(tmp_path / "y")
    anonymous = MemoryMappedTensor.from_tensor(made)
    assert MemoryMappedTensor.from_tensor(anonymous) is anonymous


@pytest.mark.parametrize("source", [torch.ones(2, 3), torch.ones(3, 2).t()])
def test_from_tensor_changes_the_shape_or_creates_no_file(path, source):
    source[0, 1] = 5
    for shape in ((3,), (0,), (2, 4), torch.tensor([[2], [3]])):
        with pytest.raises(RuntimeError, match="shape: expected a shape of 6 elements"):
            MemoryMappedTensor.from_tensor(source, filename=path, shape=shape)
        assert not path.exists()
    made = MemoryMappedTensor.from_tensor(source, filename=path, shape=(6,))
    assert made.tolist() == [1, 5, 1, 1, 1, 1]


def test_existing_file_raises_unless_existsok(path):
    MemoryMappedTensor.ones(3, filename=path)
    with pytest.raises(RuntimeError, match=r"x\.memmap: the file already exists.*existsok"):
        MemoryMappedTensor.zeros(3, filename=path)
    made = MemoryMappedTensor.zeros(3, filename=path, existsok=True)
    assert made.tolist() == [0, 0, 0]


def test_symlink_is_not_written_through(path, tmp_path):
    target = tmp_path / "target"
    target.write_bytes(b"untouched")
    path.symlink_to(target)
    for existsok in (False, True):
        with pytest.raises(RuntimeError, match="through symlink"):
            MemoryMappedTensor.from_tensor(torch.ones(3), filename=path, existsok=existsok)
    assert target.read_bytes() == b"untouched"


@pytest.mark.parametrize("filename", ["x.memmap", None], ids=["file", "anonymous"])
def test_constructors_fill_as_torch_does(tmp_path, filename):
    def options(name):
        return {} if filename is None else {"filename": tmp_path / name}

    like = torch.zeros(2, 3, dtype=torch.int16)
    assert MemoryMappedTensor.empty(2, 3, **options("a")).shape == (2, 3)
    zeros = MemoryMappedTensor.zeros((2, 3), **options("b"))
    assert (zeros.dtype, zeros.tolist()) == (torch.float32, [[0] * 3] * 2)
    assert MemoryMappedTensor.ones(shape=[2, 3], dtype=torch.int8, **options("c")).sum() == 6
    full = MemoryMappedTensor.full((2,), fill_value=7, dtype=torch.int64, **options("d"))
    assert full.tolist() == [7, 7]
    for made, value in (
        (MemoryMappedTensor.empty_like(like, **options("e")), None),
        (MemoryMappedTensor.zeros_like(like, **options("f")), 0),
        (MemoryMappedTensor.ones_like(like, **options("g")), 1),
        (MemoryMappedTensor.full_like(like, 9, **options("h")), 9),
    ):
        assert (made.dtype, made.shape) == (torch.int16, (2, 3)), value
        assert value is None or (made == value).all(), value
    with pytest.raises(RuntimeError, match="CPU"):
        MemoryMappedTensor.zeros(2, device="meta")
    with pytest.raises(ValueError, match="cpu"):
        MemoryMappedTensor(torch.zeros(2), device="meta")


@pytest.mark.parametrize("value", [0, 1, 7, True, 2.5])
def test_full_has_the_default_dtype_as_in_tensordict(path, value):
    made = MemoryMappedTensor.full(2, fill_value=value, filename=path)
    assert made.dtype == torch.float32
    assert made.tolist() == [float(value)] * 2


def test_full_keeps_the_sign_of_zero(path):
    made = MemoryMappedTensor.full(2, fill_value=-0.0, filename=path)
    assert torch.signbit(made).tolist() == [True, True]


def test_full_of_a_value_that_the_dtype_lacks_creates_no_file(path):
    with pytest.raises(RuntimeError, match="cannot be converted"):
        MemoryMappedTensor.full(2, fill_value=1j, filename=path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("value", "error", "match"),
    [
        (None, TypeError, "fill_value: expected a number, found None"),
        ("7", TypeError, "fill_value: expected a number, found '7'"),
        (10**400, OverflowError, "too big"),
        (1e300, RuntimeError, "overflow"),
    ],
    ids=str,
)
def test_full_of_a_value_that_is_no_number_of_the_dtype_creates_no_file(path, value, error, match):
    with pytest.raises(error, match=match):
        MemoryMappedTensor.full(2, fill_value=value, filename=path)
    with pytest.raises(error, match=match):
        MemoryMappedTensor.full_like(torch.zeros(2), value, filename=path)
    assert not path.exists()


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_tensors_that_no_file_can_store_create_none(path):
    for tensor in (
        torch.eye(3).to_sparse(),
        torch.ones(3, device="meta"),
        torch.ones(3).to_mkldnn(),
    ):
        with pytest.raises(NotImplementedError, match="expected a dense tensor"):
            MemoryMappedTensor.from_tensor(tensor, filename=path)
    quantized = torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.quint8)
    with pytest.raises(NotImplementedError, match="found a quantized tensor"):
        MemoryMappedTensor.from_tensor(quantized, filename=path)
    assert not path.exists()
    made = MemoryMappedTensor.from_tensor(
        torch.ones(3, device="meta"), filename=path, copy_data=False
    )
    assert made.tolist() == [0, 0, 0]


def test_negative_sizes_create_no_file(path):
    for sizes in ([[-2]], [[-1, -3]], [[2, -1], [3, 4]], [[1, 1], [-1, -1]]):
        for filename in (path, None):
            with pytest.raises(RuntimeError, match="shape: expected lengths of 0 or more"):
                MemoryMappedTensor.empty(torch.tensor(sizes), filename=filename)
    assert not path.exists()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_from_tensor_copies_into_components_of_as_many_elements(path):
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.zeros(1, 3)])
    for source, shape, match in (
        (nested, torch.tensor([[9]]), "expected sizes of 2 components, .* found 1"),
        (
            nested,
            torch.tensor([[1, 3], [2, 3]]),
            r"component 0: expected sizes whose product is 6.* \[1, 3\]",
        ),
        (nested, torch.tensor([[2, 3], [1, 2], [1, 1]]), "of 2 components, .* found 3"),
        (nested, (9,), r"sizes for a nested tensor, found \[9\]"),
        (torch.zeros(9), torch.tensor([[2, 3], [1, 3]]), "of 9 components, .* found 2"),
    ):
        with pytest.raises(RuntimeError, match=f"shape: .*{match}"):
            MemoryMappedTensor.from_tensor(source, filename=path, shape=shape)
        assert not path.exists()
    for source, shape, expected in (
        (nested, [[6], [3]], [[1] * 6, [0] * 3]),
        (torch.arange(6).view(2, 3), [[3], [3]], [[0, 1, 2], [3, 4, 5]]),
        (torch.tensor(5), [[2], [1]], [[5, 5], [5]]),
    ):
        made = MemoryMappedTensor.from_tensor(source, shape=torch.tensor(shape))
        assert [part.tolist() for part in torch.Tensor.unbind(made)] == expected


def test_unsupported_tensors_are_clear_errors(path):
    with pytest.raises(RuntimeError, match="requires grad"):
        MemoryMappedTensor.from_tensor(torch.zeros(2, requires_grad=True), filename=path)
    with pytest.raises(TypeError, match=r"expected a torch\.Tensor, found ndarray"):
        MemoryMappedTensor.from_tensor(torch.zeros(2).numpy(), filename=path)
    jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    with pytest.raises(NotImplementedError, match="jagged"):
        MemoryMappedTensor.from_tensor(jagged, filename=path)
    assert not path.exists()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("named", [True, False])
def test_strided_nested_tensors_are_mapped(path, named):
    parts = [torch.arange(6.0).view(2, 3), torch.arange(3.0).view(1, 3)]
    nested = torch.nested.nested_tensor(parts)
    made = MemoryMappedTensor.from_tensor(nested, filename=path if named else None)
    found = [made]
    if named:
        sizes = torch.tensor([[2, 3], [1, 3]])
        found.append(MemoryMappedTensor.from_filename(path, torch.float32, sizes))
        found.append(pickle.loads(pickle.dumps(made)))
    for tensor in found:
        assert type(tensor) is MemoryMappedTensor
        for part, expected in zip(torch.Tensor.unbind(tensor), parts, strict=True):
            assert torch.equal(part, expected)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_like_forms_refuse_nested_tensors(path, layout):
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)
    for name in ("empty_like", "zeros_like", "ones_like", "full_like"):
        arguments = (nested, 7) if name == "full_like" else (nested,)
        with pytest.raises(ValueError, match="expected a tensor that is not nested"):
            getattr(MemoryMappedTensor, name)(*arguments, filename=path)
    assert not path.exists()


def test_from_storage_of_a_file_maps_that_file(path):
    MemoryMappedTensor.from_tensor(torch.arange(6.0), filename=path)
    storage = torch.UntypedStorage.from_file(str(path), shared=True, nbytes=24)
    made = MemoryMappedTensor.from_storage(storage, dtype=torch.float32, shape=(2, 3))
    assert made.filename == str(path)
    made[0, 0] = 9
    assert MemoryMappedTensor.from_filename(path, torch.float32, (6,))[0] == 9
    with pytest.raises(RuntimeError, match="associated filename"):
        MemoryMappedTensor.from_storage(storage, dtype=torch.float32, filename="elsewhere")


def test_from_storage_takes_a_relative_path_for_the_same_file(path, monkeypatch):
    MemoryMappedTensor.from_tensor(torch.arange(6.0), filename=path)
    monkeypatch.chdir(path.parent)
    for of_storage, given in ((path.name, path), (str(path), path.name), (path.name, path.name)):
        storage = torch.UntypedStorage.from_file(of_storage, shared=True, nbytes=24)
        made = MemoryMappedTensor.from_storage(storage, dtype=torch.float32, filename=given)
        assert made.filename == str(path)


# --- modes and bad files -------------------------------------------------------------------------


def test_mode_r_changes_memory_only(path):
    MemoryMappedTensor.from_tensor(torch.zeros(3), filename=path)
    private = MemoryMappedTensor.from_filename(path, torch.float32, (3,), mode="r")
    private.fill_(1)
    assert path.read_bytes() == bytes(12)
    MemoryMappedTensor.from_filename(path, torch.float32, (3,), mode="r+").fill_(1)
    assert path.read_bytes() != bytes(12)
    with pytest.raises(ValueError, match="found 'w'"):
        MemoryMappedTensor.from_filename(path, torch.float32, (3,), mode="w")


def test_truncated_file_raises_and_is_not_extended(path):
    path.write_bytes(b"\x01" * 10)
    with pytest.raises(tenfold.CorruptFileError, match="expected 12 bytes, found 10"):
        MemoryMappedTensor.from_filename(path, torch.float32, (3,))
    assert path.read_bytes() == b"\x01" * 10
    with pytest.raises(FileNotFoundError):
        MemoryMappedTensor.from_filename(f"{path}2", torch.float32, (3,))
    assert not os.path.exists(f"{path}2")


def test_unpickling_after_the_file_was_replaced_raises(path, tmp_path):
    data = pickle.dumps(MemoryMappedTensor.from_tensor(torch.zeros(3), filename=path))
    other = tmp_path / "other"
    other.write_bytes(bytes(12))
    os.replace(other, path)
    with pytest.raises(OSError, match="the file was replaced after the tensor was mapped"):
        pickle.loads(data)


def test_plain_pickle_refuses_anonymous_tensors():
    with pytest.raises(RuntimeError, match="multiprocessing"):
        pickle.dumps(MemoryMappedTensor.zeros(3))


def test_a_deep_copy_is_in_memory(path):
    made = MemoryMappedTensor.ones(3, filename=path)
    copied = copy.deepcopy(made)
    copied.fill_(5)
    assert type(copied) is torch.Tensor
    assert made.tolist() == [1, 1, 1]


def test_parameter_mapped_from_a_file_is_trained_in_place(path):
    made = MemoryMappedTensor.from_tensor(torch.ones(3), filename=path)
    parameter = torch.nn.Parameter(made)
    assert isinstance(parameter, torch.nn.Parameter)
    assert parameter.filename == str(path)
    (parameter * 2).sum().backward()
    torch.optim.SGD([parameter], lr=0.5).step()
    assert MemoryMappedTensor.from_filename(path, torch.float32, (3,)).tolist() == [0, 0, 0]
    tenfold.save({"w": parameter}, path.with_name("saved"))
    assert tenfold.load(path.with_name("saved"))["w"].tolist() == [0, 0, 0]


def test_a_mapped_file_of_invalid_arguments_releases_its_handler() -> None:
    handler = object()
    before = sys.getrefcount(handler)
    for path, mode in (("a\0b", "r+"), ("a", "bad")):
        with pytest.raises(ValueError, match=r"null byte|unknown mode"):
            _core.MappedFile(path, mode, 0, handler)
    assert sys.getrefcount(handler) == before


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda path: MemoryMappedTensor(object()), RuntimeError, "source: .*, found object"),
        (lambda path: MemoryMappedTensor(str(path)), TypeError, "found no dtype and no shape"),
        (
            lambda path: MemoryMappedTensor(torch.ones(2), device=3.5),
            TypeError,
            r"device: .*, found 3\.5",
        ),
        (
            lambda path: MemoryMappedTensor.from_tensor(torch.ones(2), filename=3),
            TypeError,
            "filename: .*, found int",
        ),
        (
            lambda path: MemoryMappedTensor.from_tensor(torch.ones(2), shape="ab"),
            TypeError,
            "shape: .*, found 'ab'",
        ),
        (
            lambda path: MemoryMappedTensor.from_tensor(torch.ones(2).to_sparse(), filename=path),
            NotImplementedError,
            "input: expected a dense tensor, found a sparse tensor; to_dense",
        ),
        (
            lambda path: MemoryMappedTensor.from_filename(path, int, (2,)),
            TypeError,
            "dtype: .*, found <class 'int'>",
        ),
        (
            lambda path: MemoryMappedTensor.from_filename(path, torch.int64, torch.ones(2)),
            TypeError,
            r"shape: .*, found tensor\(\[1\., 1\.\]\)",
        ),
        (
            lambda path: MemoryMappedTensor.from_filename(
                path, torch.int64, torch.tensor([[1, -2]])
            ),
            RuntimeError,
            r"shape: expected lengths of 0 or more, found \[1, -2\]",
        ),
        (
            lambda path: MemoryMappedTensor.from_storage(torch.ones(2)),
            TypeError,
            "storage: .*, found Tensor",
        ),
        (
            lambda path: MemoryMappedTensor.from_storage(
                torch.ones(3).untyped_storage(), dtype=torch.float32, shape=(4,)
            ),
            RuntimeError,
            r"shape: .* 3 elements of torch\.float32 .*, found \[4\]",
        ),
        (lambda path: MemoryMappedTensor.empty(2, "a"), TypeError, r"shape: .*found \(2, 'a'\)"),
        (lambda path: MemoryMappedTensor.empty(2, dtype="f"), ValueError, "dtype: .*found 'f'"),
        (lambda path: MemoryMappedTensor.empty_like(3), TypeError, "input: .*, found int"),
        (
            lambda path: MemoryMappedTensor.full(2, fill_value="a", filename=path),
            TypeError,
            "fill_value: expected a number, found 'a'",
        ),
    ],
)
def test_errors_name_the_argument_and_create_no_file(path, call, kind, message):
    with pytest.raises(kind, match=message):
        call(path)
    assert not path.exists()


def test_shapes_and_dtypes_of_numpy_and_ints_are_accepted(path):
    assert MemoryMappedTensor.empty(2, dtype=np.dtype("int16"), filename=path).dtype == torch.int16
    assert MemoryMappedTensor.from_filename(path, "torch.int16", 2).shape == (2,)
    assert MemoryMappedTensor.from_filename(path, np.int16, np.array([1, 2])).shape == (1, 2)
    assert MemoryMappedTensor.empty_like(np.ones(2)).dtype == torch.float64
    storage = torch.ones(6).untyped_storage()
    made = MemoryMappedTensor.from_storage(storage, dtype=torch.float32, shape=(-1, 2))
    assert made.shape == (3, 2)
