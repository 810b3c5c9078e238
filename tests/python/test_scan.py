"""`scan` reports which functions a pickle would call, and calls none of them."""

import builtins
import collections
import importlib
import io
import json
import pathlib
import pickle
import subprocess
import sys
import tarfile
import zipfile
import zlib

import numpy
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, MetadataIndex

import tenfold

_DANGEROUS = """
os.system os.popen os.execv os.spawnl posix.system nt.system subprocess.Popen
subprocess.check_output builtins.eval builtins.exec builtins.getattr builtins.setattr
builtins.__import__ builtins.open builtins.compile builtins.globals builtins.breakpoint
builtins.type __builtin__.eval runpy.run_path runpy._run_code torch.hub.load torch.load
torch.storage._load_from_bytes torch.serialization.load torch.jit.load
torch.utils.cpp_extension.load torch.distributed.run.main torch._inductor.codecache.compile_file
numpy.load numpy.testing._private.utils.runstring numpy.f2py.crackfortran.getlincoef
numpy.lib.npyio.load pickle.loads pickle.Unpickler _pickle.loads cPickle.loads dill.loads
cloudpickle.loads joblib.load shutil.rmtree shutil.copy socket.socket socket.create_connection
importlib.import_module importlib._bootstrap._gcd_import ctypes.CDLL ctypes.CFUNCTYPE sys.modules
sys.exit operator.attrgetter operator.methodcaller functools.partial functools.reduce
types.FunctionType types.CodeType code.InteractiveInterpreter codecs.open io.open pty.spawn
pdb.run cProfile.run timeit.timeit marshal.loads webbrowser.open urllib.request.urlopen
asyncio.run multiprocessing.Process pip.main ensurepip.bootstrap zipimport.zipimporter
linecache.getline logging.config.listen pydoc.pipepager doctest.debug_script collections._sys.exit
"""
DANGEROUS = _DANGEROUS.split()


def call(name, protocol=2):
    """Returns a pickle (protocol 0, 2 or 4) that calls the function `name` with "x"."""
    module, _, function = name.rpartition(".")
    if name == "collections._sys.exit":
        module, function = "collections", "_sys.exit"
    if protocol == 4:
        parts = b"".join(
            b"\x8c" + bytes([len(part)]) + part.encode() for part in (module, function)
        )
        return b"\x80\x04" + parts + b"\x93\x8c\x01x\x85R."
    head = b"" if protocol == 0 else b"\x80\x02"
    return head + f"c{module}\n{function}\n(Vx\ntR.".encode()


def test_there_are_enough_gadgets():
    assert len(DANGEROUS) >= 40


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_gadgets_are_reported_as_dangerous_and_not_executed(tmp_path, protocol, monkeypatch):
    paths = {}
    for i, name in enumerate(DANGEROUS):
        paths[name] = tmp_path / f"{i}.pkl"
        paths[name].write_bytes(call(name, protocol))
    (tmp_path / "safe.pkl").write_bytes(pickle.dumps([1]))
    assert tenfold.scan(tmp_path / "safe.pkl").safe
    before = set(sys.modules)
    imported = []
    original = builtins.__import__

    def record(name, *arguments, **named):
        imported.append(name)
        return original(name, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "__import__", record)
        imported.clear()
        found = {name: tenfold._core.scan(path) for name, path in paths.items()}
        seen = list(imported)
    assert seen == []
    assert set(sys.modules) == before
    for name, (num_pickles, findings) in found.items():
        assert num_pickles == 1
        assert [finding[:2] for finding in findings] == [(name, "dangerous")], name


def test_pickles_are_found_at_every_position(tmp_path):
    evil = call("os.system")
    with zipfile.ZipFile(tmp_path / "m.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", evil)
        archive.writestr("a/data/0", b"\x00" * 64)
        archive.writestr("a/extra", call("os.system", 4))
        archive.writestr("a/old", call("os.system", 0))
    report = tenfold.scan(tmp_path / "m.zip")
    assert [found.where for found in report.findings] == [
        'record "a/data.pkl" at byte 2',
        'record "a/extra" at byte 14',
        'record "a/old" at byte 0',
    ]
    objects = io.BytesIO()
    numpy.save(objects, numpy.array([collections.OrderedDict()]), allow_pickle=True)
    (tmp_path / "o.npy").write_bytes(objects.getvalue().replace(b"OrderedDict", b"deque"))
    assert tenfold.scan(tmp_path / "o.npy").num_pickles == 1
    numpy.savez(tmp_path / "o.npz", o=numpy.array([print], dtype=object))
    assert "builtins.print" in [found.name for found in tenfold.scan(tmp_path / "o.npz").findings]


def test_calls_before_damage_are_reported(tmp_path):
    (tmp_path / "m.pkl").write_bytes(call("os.system")[:-1] + b"\xff")
    names = [found.name for found in tenfold.scan(tmp_path / "m.pkl").findings]
    assert names[0] == "os.system"
    assert names[1].startswith("pickle that cannot be read to its end")
    two = pickle.dumps([1]) + call("os.system")
    (tmp_path / "two.pkl").write_bytes(two)
    report = tenfold.scan(tmp_path / "two.pkl")
    assert (report.num_pickles, report.findings[0].name) == (2, "os.system")


@pytest.mark.parametrize("new", [True, False])
def test_checkpoints_are_safe(tmp_path, new):
    model = torch.nn.Linear(2, 3)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    tree = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "sparse": torch.eye(2).to_sparse(),
        "parameter": model.weight,
        "array": numpy.arange(3),
        "half": torch.ones(2, dtype=torch.uint16),
        "quantized": torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.quint8),
        "odd": [b"x", {1}, 1j, torch.float16, torch.device("cpu")],
    }
    if not new:
        del tree["half"]
    torch.save(tree, tmp_path / "m.pt", _use_new_zipfile_serialization=new)
    report = tenfold.scan(tmp_path / "m.pt")
    assert report.safe, [found for found in report.findings if found.risk != "safe"]
    torch.save(model, tmp_path / "module.pt", _use_new_zipfile_serialization=new)
    risks = {found.name: found.risk for found in tenfold.scan(tmp_path / "module.pt").findings}
    assert risks["torch.nn.modules.linear.Linear"] == "suspicious"


@pytest.mark.parametrize("name", ["plain", "flat", "sharded", "fsdp"])
def test_metadata_of_distributed_checkpoints_is_safe(name):
    path = pathlib.Path(__file__).parents[1] / "data" / "dcp" / name / ".metadata"
    report = tenfold.scan(path)
    assert report.num_pickles == 1
    assert report.safe, [found for found in report.findings if found.risk != "safe"]


def cli(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "tenfold", "scan", *map(str, arguments)],
        capture_output=True,
        text=True,
    )


def test_exit_status_of_the_command_reflects_the_findings(tmp_path):
    (tmp_path / "bad.pkl").write_bytes(call("os.system"))
    (tmp_path / "text").write_text("hello")
    bad = cli(tmp_path / "bad.pkl", "--json")
    assert bad.returncode == 1
    assert json.loads(bad.stdout) == [
        {"global": "os.system", "risk": "dangerous", "where": "at byte 2"}
    ]
    assert "dangerous: os.system, at byte 2" in cli(tmp_path / "bad.pkl").stdout
    nothing = cli(tmp_path / "text")
    assert (nothing.returncode, nothing.stdout) == (0, "no pickle inside\n")
    assert json.loads(cli(tmp_path / "text", "--json").stdout) == []
    assert cli(tmp_path / "none").returncode == 2
    folder = cli(tmp_path)
    assert folder.returncode == 1
    assert 'dangerous: os.system, "bad.pkl": at byte 2' in folder.stdout


def test_every_file_of_a_folder_is_scanned(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "w.pkl").write_bytes(call("os.system"))
    torch.save({"w": torch.ones(3)}, tmp_path / "good.pt")
    (tmp_path / "cut.zip").write_bytes(b"PK\x03\x04" + bytes(40))
    # The bytes of a tensor may start like a pickle without being one.
    (tmp_path / "x.memmap").write_bytes(b"\x80\x02" + bytes(range(100)))
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    report = tenfold.scan(tmp_path)
    bad = [found for found in report.findings if found.risk != "safe"]
    assert [found.where for found in bad] == [
        '"cut.zip": at byte 0',
        '"deep/er/w.pkl": at byte 2',
    ]
    assert bad[0].risk == "suspicious"
    assert "cannot be read" in bad[0].name
    assert (bad[1].name, bad[1].risk) == ("os.system", "dangerous")
    assert any(found.where.startswith('"good.pt": record') for found in report.findings)


def test_saved_tree_contains_no_pickles(tmp_path):
    tenfold.save({"w": torch.arange(640, 700)}, tmp_path / "tree")
    assert tenfold.scan(tmp_path / "tree").num_pickles == 0


def test_tar_magic_inside_a_string_does_not_hide_a_pickle(tmp_path):
    text = b"X" + (300).to_bytes(4, "little") + b"a" * 250 + b"ustar" + b"a" * 45
    (tmp_path / "x").write_bytes(b"\x80\x02" + text + b"0cos\nsystem\n(Vx\ntR.")
    assert (tmp_path / "x").read_bytes()[257:262] == b"ustar"
    found = {finding.name: finding.risk for finding in tenfold.scan(tmp_path / "x").findings}
    assert found["os.system"] == "dangerous"


class Calls:
    """An object whose pickle calls os.system."""

    def __reduce__(self):
        import os

        return os.system, ("true",)


@pytest.mark.parametrize("name", ["plain", "flat", "sharded", "fsdp"])
def test_distributed_checkpoints_of_plain_tensors_are_safe(name):
    path = pathlib.Path(__file__).parents[1] / "data" / "dcp" / name
    report = tenfold.scan(path)
    assert report.num_pickles > 1
    assert report.safe, [found for found in report.findings if found.risk != "safe"]


def test_items_of_distributed_checkpoints_are_scanned_and_named_by_key(tmp_path):
    dcp.save({"a": torch.ones(3), "evil": Calls()}, checkpoint_id=tmp_path / "c", no_dist=True)
    (bad,) = [found for found in tenfold.scan(tmp_path / "c").findings if found.risk != "safe"]
    assert (bad.name, bad.risk) == ("posix.system", "dangerous")
    assert bad.where.startswith('"__0_0.distcp": key "evil": record ')


def test_archives_of_a_checkpoint_without_metadata_are_scanned(tmp_path):
    dcp.save({"a": torch.ones(3), "evil": Calls()}, checkpoint_id=tmp_path / "c", no_dist=True)
    file = tmp_path / "c" / "__0_0.distcp"
    names = {found.name: found.risk for found in tenfold.scan(file).findings}
    assert names["posix.system"] == "dangerous"
    dcp.save({"a": torch.ones(3), "b": torch.ones(4)}, checkpoint_id=tmp_path / "d", no_dist=True)
    report = tenfold.scan(tmp_path / "d" / "__0_0.distcp")
    assert report.safe
    assert report.num_pickles >= 2
    (tmp_path / "raw.distcp").write_bytes(bytes(100))
    (found,) = tenfold.scan(tmp_path / "raw.distcp").findings
    assert (found.risk, "not scanned" in found.name) == ("suspicious", True)


def test_bytes_not_named_by_metadata_are_scanned(tmp_path):
    dcp.save({"a": torch.ones(3)}, checkpoint_id=tmp_path, no_dist=True)
    hidden = io.BytesIO()
    torch.save(Calls(), hidden)
    with open(tmp_path / "__0_0.distcp", "ab") as file:
        file.write(hidden.getvalue())
    names = {found.name: found.risk for found in tenfold.scan(tmp_path).findings}
    assert names["posix.system"] == "dangerous"
    with open(tmp_path / "__0_0.distcp", "ab") as file:
        file.write(b"what is this")
    assert any("12 bytes" in found.name for found in tenfold.scan(tmp_path).findings)


def write_metadata(folder, name, items):
    """Writes a .metadata with one key for each item, a byte range (offset, size) of file `name`."""
    storage = {
        MetadataIndex(str(i)): _StorageInfo(name, begin, size)
        for i, (begin, size) in enumerate(items)
    }
    entries = {index.fqn: BytesStorageMetadata() for index in storage}
    metadata = Metadata(entries, storage_data=storage)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))


@pytest.mark.parametrize("cut", [1, 66, 100])
@pytest.mark.parametrize("kind", ["npy", "tar", "zip", "pickle"])
def test_metadata_that_cuts_a_file_does_not_hide_its_content(tmp_path, kind, cut):
    path = tmp_path / "evil"
    if kind == "npy":
        with open(path, "wb") as file:
            numpy.save(file, numpy.array([Calls()], dtype=object))
    elif kind == "tar":
        with tarfile.open(path, "w") as archive:
            archive.add(__file__, "x")
    elif kind == "zip":
        torch.save(Calls(), path)
    else:
        path.write_bytes(pickle.dumps(["x" * 200, Calls()]))
    write_metadata(tmp_path, path.name, [(0, cut), (cut, path.stat().st_size - cut)])
    found = {(found.name, found.risk) for found in tenfold.scan(tmp_path).findings}
    if kind == "tar":
        assert ("tar archive, which is not scanned", "suspicious") in found
    else:
        assert ("posix.system", "dangerous") in found


@pytest.mark.parametrize("protocol", [0, 2])
def test_metadata_that_does_not_name_a_pickle_does_not_hide_it(tmp_path, protocol):
    dcp.save({"a": torch.ones(3)}, checkpoint_id=tmp_path, no_dist=True)
    path = tmp_path / "__0_0.distcp"
    archive = path.read_bytes()
    evil = pickle.dumps(Calls(), protocol)

    def assert_found():
        found = {(found.name, found.risk) for found in tenfold.scan(tmp_path).findings}
        assert ("posix.system", "dangerous") in found

    path.write_bytes(evil)  # the item is beyond the end
    assert_found()
    path.write_bytes(evil + archive)
    write_metadata(tmp_path, path.name, [(len(evil), len(archive))])
    assert_found()
    path.write_bytes(archive + evil + archive)
    second = len(archive) + len(evil)
    write_metadata(tmp_path, path.name, [(0, len(archive)), (second, len(archive))])
    assert_found()
    # A pickle starts before the item, and contains the item in a bytes object. The byte after the
    # item is not an opcode, so no pickle starts there.
    size = (len(archive) + 1).to_bytes(4, "little")
    head = pickle.PROTO + b"\x03" + pickle.BINBYTES + size
    path.write_bytes(head + archive + b"\xff" + pickle.dumps(Calls(), 0))
    write_metadata(tmp_path, path.name, [(len(head), len(archive))])
    assert_found()


def test_overlapping_items_of_metadata_are_suspicious(tmp_path):
    with open(tmp_path / "x", "wb") as file:
        torch.save([1], file)
    size = (tmp_path / "x").stat().st_size
    write_metadata(tmp_path, "x", [(0, size), (0, size)])
    assert tenfold.scan(tmp_path).safe
    write_metadata(tmp_path, "x", [(0, size), (9, size - 9)])
    (bad,) = [found for found in tenfold.scan(tmp_path).findings if found.risk != "safe"]
    assert bad.name == 'item of the key "1" that overlaps another'


@pytest.mark.parametrize("end", [b"", b"PK\x05\x06" + bytes(18)])
def test_bytes_that_resemble_many_archives_are_refused_before_the_timeout(tmp_path, end):
    (tmp_path / "x").write_bytes(b"PK\x03\x04" * 1_000_000 + end)
    with pytest.raises(tenfold.CorruptFileError):
        tenfold.scan(tmp_path / "x")


def test_a_link_that_cannot_be_followed_is_suspicious(tmp_path):
    (tmp_path / "model.pkl").symlink_to("model.pkl")
    (found,) = tenfold.scan(tmp_path).findings
    assert (found.risk, found.where) == ("suspicious", '"model.pkl": at byte 0')


def test_dotted_names_of_numpy_dtypes_are_dangerous(tmp_path):
    names = [b"numpy.dtypes", b"sys.DType"]
    parts = b"".join(b"\x8c" + bytes([len(name)]) + name for name in names)
    (tmp_path / "x.pkl").write_bytes(b"\x80\x04" + parts + b"\x93.")
    (found,) = tenfold.scan(tmp_path / "x.pkl").findings
    assert (found.name, found.risk) == ("numpy.dtypes.sys.DType", "dangerous")


def test_old_name_of_the_object_dtype_is_known(tmp_path):
    header = b"{'descr': 'Object0', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n"
    start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    (tmp_path / "x.npy").write_bytes(start + call("os.system"))
    assert [found.name for found in tenfold.scan(tmp_path / "x.npy").findings] == ["os.system"]


@pytest.mark.parametrize("name", ["m.joblib", "m.z"])
def test_zlib_streams_of_joblib_are_suspicious(tmp_path, name):
    (tmp_path / name).write_bytes(zlib.compress(call("os.system")))
    (found,) = tenfold.scan(tmp_path / name).findings
    assert (found.name, found.risk) == ("zlib stream, which is not scanned", "suspicious")


def test_nested_archives_are_scanned(tmp_path):
    inner = io.BytesIO()
    torch.save({"evil": Calls()}, inner)
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "o.zip", "w", method) as archive:
            archive.writestr("inner.pt", inner.getvalue())
        (bad,) = [
            found for found in tenfold.scan(tmp_path / "o.zip").findings if found.risk != "safe"
        ]
        assert bad.name == "posix.system"
        assert bad.where.startswith('record "inner.pt": record ')


def test_too_deeply_nested_archives_are_suspicious(tmp_path):
    inner = b"x"
    for i in range(12):
        outer = io.BytesIO()
        with zipfile.ZipFile(outer, "w") as archive:
            archive.writestr(f"{i}.zip", inner)
        inner = outer.getvalue()
    (tmp_path / "o.zip").write_bytes(inner)
    (found,) = tenfold.scan(tmp_path / "o.zip").findings
    assert (found.risk, "not scanned" in found.name) == ("suspicious", True)


@pytest.mark.parametrize("module", ["gzip", "bz2", "lzma", "zlib", "tar.gz", "7z"])
def test_compressed_files_are_suspicious(tmp_path, module):
    evil = call("os.system")
    path = tmp_path / "m.pkl"
    if module == "tar.gz":
        with tarfile.open(path, "w:gz") as archive:
            archive.add(__file__)
    elif module == "7z":
        path.write_bytes(b"7z\xbc\xaf\x27\x1c" + bytes(50))
    else:
        path.write_bytes(importlib.import_module(module).compress(evil))
    (found,) = tenfold.scan(path).findings
    assert (found.risk, "not scanned" in found.name) == ("suspicious", True)
    run = cli(path)
    assert run.returncode == 1
    assert "not scanned" in run.stdout


def test_bytes_after_a_pickle_are_reported(tmp_path):
    (tmp_path / "m.pkl").write_bytes(pickle.dumps([1]) + b"\xff" * 9)
    (found,) = tenfold.scan(tmp_path / "m.pkl").findings
    assert found.risk == "suspicious"
    assert found.name == "9 bytes after a pickle that are not a pickle"
    (tmp_path / "m.pkl").write_bytes(pickle.dumps([1]) + call("os.system", 0))
    assert [found.name for found in tenfold.scan(tmp_path / "m.pkl").findings] == ["os.system"]


def test_storages_that_resemble_pickles_or_archives_are_safe(tmp_path):
    for start in (b"\x80\x02cos\nsyst", b"PK\x03\x04" + bytes(8), b"\x1f\x8b\x08" + bytes(9)):
        data = torch.frombuffer(bytearray(start.ljust(64, b"\0")), dtype=torch.uint8)
        torch.save({"w": data}, tmp_path / "m.pt")
        assert tenfold.scan(tmp_path / "m.pt").safe


def test_too_large_records_are_suspicious_and_others_are_scanned(tmp_path):
    with zipfile.ZipFile(tmp_path / "m.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("zeros", "w", force_zip64=True) as record:
            for _ in range(65):
                record.write(bytes(16 << 20))
        archive.writestr("data.pkl", call("os.system"))
    large, bad = tenfold.scan(tmp_path / "m.zip").findings
    assert (large.risk, "not scanned" in large.name) == ("suspicious", True)
    assert bad.name == "os.system"
