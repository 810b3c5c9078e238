"""The golden files of each version can be opened, verified and loaded, with unchanged content.

tests/data/golden/<version> contains files that tenfold <version> wrote, and expected.json, which
describes the content of these files in the form of golden.py. The tests read a copy without write
permission, and check that they do not change it.
"""

from __future__ import annotations

import json
import shutil
import struct
import sys
import warnings
import zipfile

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tenfold  # noqa: E402
from paths import REPOSITORY  # noqa: E402

DATA = REPOSITORY / "tests" / "data" / "golden"
sys.path.insert(0, str(DATA))

import golden  # noqa: E402
from golden import describe, describe_rows, describe_tensor, digest  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")

VERSIONS = {
    path.parent.name: json.loads(path.read_text()) for path in sorted(DATA.glob("*/expected.json"))
}


def cases(*parts, only=lambda entry: True):
    """Parametrizes a test by (version, entry).

    The entries are those of `parts` in each expected.json, except those for which `only` is false.
    """
    found = [
        pytest.param(version, entry, id=f"{version}-{entry.get('path') or entry['source']}-{i}")
        for version, expected in VERSIONS.items()
        for part in parts
        for i, entry in enumerate(expected[part])
        if only(entry)
    ]
    return pytest.mark.parametrize(("version", "entry"), found)


def state_of(folder):
    return {
        path: (path.stat().st_mode, path.stat().st_mtime_ns, path.is_file() and path.read_bytes())
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    copy = tmp_path_factory.mktemp("golden") / "files"
    for version in VERSIONS:
        shutil.copytree(DATA / version, copy / version)
    for path in [copy, *copy.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = state_of(copy)
    yield copy
    after = state_of(copy)
    for path in [copy, *copy.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert list(after) == list(before)
    assert [path for path in after if after[path] != before[path]] == []


ALL = ("trees", "datasets", "mapped_dicts", "sparse", "mappers")


def is_hierarchy_json(entry):
    return entry["path"].endswith(".json") and not entry["path"].endswith("index.json")


@cases(*ALL, only=lambda entry: not is_hierarchy_json(entry))
def test_golden_file_verifies(files, version, entry):
    report = tenfold.verify(files / version / entry["path"])
    assert report.ok, report.problems
    assert (report.num_checksums > 0) == entry.get("checksums", True)


# --- trees ---


def named(path, loaded):
    """Returns `loaded`. Wraps a bare tensor in a dict whose key is the stem of the file name."""
    return {path.stem: loaded} if isinstance(loaded, torch.Tensor) else loaded


@cases("trees")
def test_golden_tree_loads_unchanged(files, version, entry):
    path = files / version / entry["path"]
    loaded = named(path, tenfold.load(path))
    assert describe(loaded) == entry["tree"]
    tied = [golden.at(loaded, keys) for keys in entry.get("tied", [])]
    assert len({tensor.data_ptr() for tensor in tied}) <= 1
    assert describe(named(path, tenfold.load(path, mode="c", verify=True))) == entry["tree"]


@cases("trees", only=lambda entry: golden.tensors_in(entry["tree"]))
def test_golden_tree_opens_with_each_tensor_unchanged(files, version, entry):
    opened = tenfold.open(files / version / entry["path"])
    for keys, tensor in golden.tensors_in(entry["tree"]):
        assert describe_tensor(golden.at(opened, keys)) == tensor, keys


@cases("memory_mapped")
def test_golden_memory_mapped_tensor_is_unchanged(files, version, entry):
    _, dtype, shape, _ = entry["tensor"]
    tensor = tenfold.MemoryMappedTensor.from_filename(
        files / version / entry["path"], dtype=getattr(torch, dtype), shape=shape
    )
    assert describe_tensor(tensor) == entry["tensor"]


# --- data sets, dictionaries, sparse matrices, state mappers ---


@cases("datasets")
def test_golden_dataset_rows_are_unchanged(files, version, entry):
    ds = tenfold.Dataset(files / version / entry["path"])
    assert len(ds) == entry["rows"]
    names = [name for name, _ in entry["columns"]]
    assert describe_rows([ds[i] for i in range(len(ds))], names) == entry["columns"]
    if "capacity" in entry:
        assert (ds.capacity, ds.cursor) == (entry["capacity"], entry["cursor"])


@cases("datasets")
def test_golden_dataset_batches_equal_its_rows(files, version, entry):
    ds = tenfold.Dataset(files / version / entry["path"])
    batch = ds[list(range(len(ds)))[::-1]]
    for name, described in entry["columns"]:
        if described[0] == "tensor":
            column = batch if name in batch else batch[name.partition(".")[0]]
            found = column[name if name in batch else name.partition(".")[2]]
            assert describe_tensor(torch.stack(found.unbind()[::-1])) == described, name


def key_of(described):
    if isinstance(described, str):
        return described
    kind, text = described
    return int(text) if kind == "int" else bytes.fromhex(text)


@cases("mapped_dicts")
def test_golden_mapped_dict_values_are_unchanged(files, version, entry):
    mapped = tenfold.MappedDict(files / version / entry["path"])
    keys = [key_of(key) for key, _ in entry["items"]]
    assert list(mapped) == keys
    assert [[describe(key), describe(value)] for key, value in mapped.items()] == entry["items"]
    for key, (_, value) in zip(keys, entry["items"], strict=True):
        assert describe(mapped[key]) == value
    missing = key_of(entry["missing"])
    assert missing not in mapped
    _, found = mapped.get_many([*keys, missing])
    assert found.tolist() == [True] * len(keys) + [False]


@cases("sparse")
def test_golden_sparse_matrix_rows_are_unchanged(files, version, entry):
    path = files / version / entry["path"]
    matrix = tenfold.SparseMatrix(path)
    assert matrix.layout == entry["layout"]
    assert describe_tensor(matrix.to_torch()) == entry["stored"]
    assert describe_tensor(tenfold.load(path)) == entry["stored"]
    rows = list(range(matrix.shape[0]))
    assert describe_tensor(matrix.rows(rows)) == entry["dense"]
    assert describe_tensor(matrix.rows(rows, layout="csr").to_dense()) == entry["dense"]
    assert describe_tensor(matrix.cols(list(range(matrix.shape[1])))) == entry["dense"]


def state_of_mapper(described):
    """Converts the description of a state to the state, which is the argument of a state mapper."""
    if not isinstance(described, list):
        return described
    kind, value = described
    if kind == "tuple":
        return tuple(map(state_of_mapper, value))
    return int(value) if kind == "int" else struct.unpack(">d", bytes.fromhex(value))[0]


@cases("mappers")
def test_golden_state_mapper_values_are_unchanged(files, version, entry):
    mapper = tenfold.StateMapper.load(files / version / entry["path"])
    assert type(mapper).__name__ == entry["class"]
    for described, row in entry["answers"]:
        state = state_of_mapper(described)
        if row is None:
            with pytest.raises(KeyError):
                mapper(state)
        else:
            assert describe(mapper(state)) == row, state


# --- orders ---


def order(numbers):
    numbers = numbers if isinstance(numbers, torch.Tensor) else list(numbers)
    array = np.asarray(numbers, "<i8")
    return [len(array), array[:12].tolist(), digest(array.tobytes())]


def counted(n, start=0):
    td = tenfold.TensorDict({"i": torch.arange(start, start + n)}, batch_size=[n])
    return tenfold.Dataset(td)


def ids(rows):
    return [int(row["i"]) for row in rows]


def with_seed(options):
    return {key: int(value) if key == "seed" else value for key, value in options.items()}


@pytest.mark.parametrize("version", VERSIONS)
def test_permutations_are_stable_across_versions(version):
    for n, seed, epoch, expected in VERSIONS[version]["orders"]["permutation"]:
        assert order(tenfold.permutation(n, int(seed), epoch)[:]) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_split_shard_and_mix_are_stable_across_versions(version):
    orders = VERSIONS[version]["orders"]
    for n, seed, expected in orders["split"]:
        parts = counted(n).split([0.6, 0.4], seed=seed)
        assert [order(ids(part)) for part in parts] == expected
    for n, world_size, expected in orders["shard"]:
        parts = [counted(n).shard(rank=rank, world_size=world_size) for rank in range(world_size)]
        assert [order(ids(part)) for part in parts] == expected
    for weights, expected in orders["mix"]:
        sources = [counted(50, 1000 * i) for i in range(len(weights))]
        assert order(ids(tenfold.mix(sources, weights))) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_loader_resumes_from_states_of_older_versions(version):
    for n, options, steps, state, first, second in VERSIONS[version]["orders"]["loader"]:
        loader = tenfold.BatchLoader(counted(n), **with_seed(options))
        assert order(i for batch in loader for i in batch["i"].tolist()) == first
        assert order(i for batch in loader for i in batch["i"].tolist()) == second
        resumed = tenfold.BatchLoader(counted(n), **with_seed(options))
        resumed.load_state_dict(with_seed(state))
        rest = [i for batch in resumed for i in batch["i"].tolist()]
        loader.set_epoch(0)
        whole = [batch["i"].tolist() for batch in loader]
        assert rest == [i for batch in whole[steps:] for i in batch]


@cases("streams")
def test_stream_resumes_from_states_of_older_versions(files, version, entry):
    def stream():
        return tenfold.IterableDataset(files / version / entry["source"], **entry["options"])

    assert [int(row[entry["key"]]) for row in stream()] == entry["order"]
    resumed = stream()
    resumed.load_state_dict(entry["state"])
    assert [int(row[entry["key"]]) for row in resumed] == entry["order"][4:]


# --- other tools read the files of their formats ---


def under(folder):
    return lambda entry: entry["path"].startswith(folder)


@cases("trees", only=under("npy/"))
def test_numpy_reads_golden_arrays(files, version, entry):
    found = np.load(files / version / entry["path"])
    for (key,), tensor in golden.tensors_in(entry["tree"]):
        array = found if isinstance(found, np.ndarray) else found[key]
        assert describe_tensor(torch.from_numpy(array)) == tensor


@cases("trees", only=under("pt/"))
def test_torch_loads_golden_torch_files(files, version, entry):
    found = torch.load(files / version / entry["path"], weights_only=True)
    for keys, tensor in golden.tensors_in(entry["tree"]):
        assert describe_tensor(golden.at(found, keys)) == tensor, keys


@cases("trees", only=under("safetensors/"))
def test_safetensors_reads_golden_files(files, version, entry):
    safetensors = pytest.importorskip("safetensors.torch")
    found = safetensors.load_file(files / version / entry["path"])
    digests = {digest(golden.bytes_of(tensor)) for tensor in found.values()}
    assert {tensor[3] for _, tensor in golden.tensors_in(entry["tree"])} == digests


@cases("trees", only=lambda entry: entry["path"] in ("ranks/torch", "ranks/shards"))
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_torch_reads_the_checkpoints_of_ranks(files, version, entry):
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    if entry["path"] == "ranks/torch":
        reader = dcp.FileSystemReader(files / version / entry["path"])
    else:
        pytest.importorskip("safetensors")
        storage = pytest.importorskip("torch.distributed.checkpoint.hf_storage")
        reader = storage.HuggingFaceStorageReader(str(files / version / entry["path"]))
    tensors = {".".join(keys): tensor for keys, tensor in golden.tensors_in(entry["tree"])}
    into = {
        name: torch.zeros(shape, dtype=getattr(torch, dtype))
        for name, (_, dtype, shape, _) in tensors.items()
    }
    dcp.load(into, storage_reader=reader, no_dist=True)
    assert {name: describe_tensor(tensor) for name, tensor in into.items()} == tensors


READERS = {"memmap": "load_memmap", "tdz": "load_memmap", "consolidated": "from_consolidated"}


@pytest.fixture(scope="module")
def tensordict():
    """Returns the tensordict package, after defining the tensorclass that the files name."""
    package = pytest.importorskip("tensordict")

    @package.tensorclass
    class Frame:
        __module__ = "golden"
        __qualname__ = "Frame"
        image: torch.Tensor
        position: torch.Tensor
        label: str = ""

    return package


def is_read_upstream(entry):
    # tensordict has no name for float8 in a folder.
    return entry["path"].startswith(tuple(READERS)) and entry["path"] != "memmap/dtypes"


@cases("trees", only=is_read_upstream)
def test_tensordict_reads_golden_trees(files, version, entry, tensordict):
    read = getattr(tensordict.TensorDict, READERS[entry["path"].partition("/")[0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = read(files / version / entry["path"])
    for keys, tensor in golden.tensors_in(entry["tree"]):
        assert describe_tensor(golden.at(found, keys)) == tensor, keys


@cases("datasets", only=lambda entry: entry["path"] in ("dataset/records", "dataset/records.tdz"))
def test_tensordict_reads_golden_dataset_columns(files, version, entry, tensordict):
    found = tensordict.TensorDict.load_memmap(files / version / entry["path"])
    columns = dict(entry["columns"])
    assert found.batch_size == (entry["rows"],)
    assert describe_tensor(found["x"]) == columns["x"]
    assert describe_tensor(found.get("at.lat")) == columns["at.lat"]


@cases("trees", only=under("tdz/"))
def test_crcs_of_golden_archives_are_correct(files, version, entry):
    with zipfile.ZipFile(files / version / entry["path"]) as archive:
        assert archive.testzip() is None
