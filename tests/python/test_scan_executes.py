"""`scan` reports no file as safe if loading it with Python can execute code.

A child process loads generated files with torch.load, pickle.load and numpy.load. Its audit hook
records and blocks pickled globals that are not allowed, and calls of modules such as `os`.
"""

import io
import itertools
import json
import os
import pickle
import random
import subprocess
import sys
import tarfile
import zipfile

import numpy
import pytest
import torch

import tenfold

CHILD = r"""
import io, json, os, pickle, re, resource, sys, warnings
import numpy, torch
warnings.simplefilter("ignore")
reached, armed = [], False
WATCHED = ("os.", "subprocess.", "socket.", "shutil.", "ctypes.", "exec", "pty.")
HARMLESS = {"os.scandir", "os.listdir", "os.fwalk"}

def hook(event, arguments):
    if not armed:
        return
    if event == "pickle.find_class":
        name = f"{arguments[0]}.{arguments[1]}"
        # Python cannot import a module whose name has other characters.
        if name not in allowed and re.fullmatch(r"[\w.-]+", arguments[0]):
            reached.append(name)
            raise RuntimeError("blocked")
    elif event.startswith(WATCHED) and event not in HARMLESS:
        reached.append(event)
        raise RuntimeError("blocked")

allowed = set(json.loads(sys.argv[2]))
for new in (True, False):
    warm = io.BytesIO()
    torch.save({"w": torch.ones(2)}, warm, _use_new_zipfile_serialization=new)
    warm.seek(0)
    torch.load(warm, weights_only=False)
sys.addaudithook(hook)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
resource.setrlimit(resource.RLIMIT_CPU, (300, 300))
# Limit the memory, because a pickle with a memo index beyond 2^30 would take gigabytes.
with open("/proc/self/statm") as statm:
    room = int(statm.read().split()[0]) * resource.getpagesize() + (512 << 20)
resource.setrlimit(resource.RLIMIT_AS, (room, room))

def by_numpy(path):
    loaded = numpy.load(path, allow_pickle=True)
    if isinstance(loaded, numpy.lib.npyio.NpzFile):
        for name in loaded.files:
            try:
                loaded[name]
            except Exception:
                pass

def by_pickle(path):
    with open(path, "rb") as file:
        pickle.load(file)

def by_torch(path):
    torch.load(path, weights_only=False)

found = {}
for name in sorted(os.listdir(sys.argv[1])):
    path = os.path.join(sys.argv[1], name)
    for load in (by_pickle, by_torch, by_numpy):
        armed = True
        try:
            load(path)
        except BaseException:
            pass
        armed = False
        if reached:
            found.setdefault(name, []).extend(reached)
            reached.clear()
print(json.dumps(found))
"""

# Globals that real checkpoints use. The child process does not block them.
ALLOWED = [
    "collections.OrderedDict",
    "torch._utils._rebuild_tensor_v2",
    "torch.FloatStorage",
    "numpy.dtype",
    "numpy.ndarray",
    "numpy._core.multiarray._reconstruct",
    "numpy.core.multiarray._reconstruct",
]
MAGIC = 0x1950A86A20F9469CFC6C

CALLS = {
    "global": b"cposix\nmkdir\n(VMARK\ntR",
    "inst": b"(VMARK\niposix\nmkdir\n",
    "obj": b"(cposix\nmkdir\nVMARK\no",
    "strings": b"S'posix'\nS'mkdir'\n\x93(VMARK\ntR",
    "texts": b"\x8c\x05posix\x8c\x05mkdir\x93\x8c\x04MARK\x85R",
    "binary strings": b"U\x05posixU\x05mkdir\x93(VMARK\ntR",
    "memo": b"Vposix\np1\n0Vmkdir\np2\n0g1\ng2\n\x93(VMARK\ntR",
    "unknown": b"cxml.dom.minidom\nparseString\n(VMARK\ntR",
    "import": b"cthis\nx\n",
}
# Opcodes without effect, most in spellings that Python accepts and no pickler writes. They precede
# the dangerous call.
BEFORE = [
    b"",
    b"N0",
    b"(0",
    b"(1",
    b"(NNN1",
    b"I0x10\n0",
    b"I010\n0",
    b"I 7\n0",
    b"L1_0\n0",
    b"L0x1fL\n0",
    b"F+1.0\n0",
    b"F1e-999\n0",
    b"Fnan\n0",
    b"Np 1\n0",
    b"Np1_0\n0",
    b"](NNtb0",
    b"(Nl(K\x00Nu0",
    b"\x96\x01\0\0\0\0\0\0\0xK\x07a0",
    b"S'\\q'\n0",
    b"Vabc\n0",
    b"\x8b\x00\x08\0\0" + b"\x01" * 2048 + b"0",
    b"C\x01x\x980",
    b"\x95\0\0\0\0\0\0\0\0",
    b"(" * 1500 + b"1" * 1500,
    b"(V" + b"a" * 1_300_000 + b"\n0",
]
AFTER = [b".", b"", b"N.", b"\xff", b"." + bytes(40)]
HEADS = [b"", b"\x80\x02", b"\x80\x04", b"\x80\x05"]


def pickles():
    for head, before, after in itertools.product(HEADS, BEFORE, AFTER):
        for name, call in CALLS.items():
            if len(before) > 10_000 and (name not in ("global", "texts") or after != b"."):
                continue
            yield head + before + call + after


def old_torch():
    numbers = [pickle.dumps(MAGIC, protocol) for protocol in range(6)]
    numbers += [
        b"L%dL\n." % MAGIC,
        b"L%#xL\n." % MAGIC,
        b"I%d\n." % MAGIC,
        b"\x80\x00" + numbers[0],
    ]
    numbers += [b"N0" + numbers[0], b"c__builtin__\nint\n(V%d\ntR." % MAGIC]
    evil = [call + b"." for call in CALLS.values()]
    good = [pickle.dumps(1001, 2), pickle.dumps({}, 2), pickle.dumps({"a": 1}, 2), b"]."]
    for number in numbers:
        for place, bad in itertools.product(range(5), evil):
            parts = [number, *good]
            parts.insert(place, bad)
            for head in (b"", b"\x80\x02"):
                parts[place] = head + bad
                yield b"".join(parts) + bytes(range(64))
                del_one = parts[: place + 1] + parts[place + 2 :]
                yield b"".join(del_one) + bytes(range(64))
    for place in range(1, 5):
        parts = [b"I%d\n." % 1001, b"N.", b"N.", b"]."]
        parts.insert(place - 1, CALLS["global"] + b".")
        yield b"L%d\n." % MAGIC + b"".join(parts[:4])


def npy(descr, body, version=1):
    header = (b"{'descr': %s, 'fortran_order': False, 'shape': (1,), }" % descr).ljust(117) + b"\n"
    size = len(header).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + header + body


DESCRS = [
    b"'O'",
    b"'|O'",
    b"'object'",
    b"'object_'",
    b"'|\\x4f'",
    b"'\\117'",
    b"'\\N{LATIN CAPITAL LETTER O}'",
    b"'|' 'O'",
    b"'obj' 'ect'",
    b"'obj'\n'ect'",
    b"'obj' #\n'ect'",
    b"('obj' 'ect')",
    b"'''object'''",
    b"'O8'",
    b"'T'",
    b"'\\x54'",
    b"[('a', 'O')]",
    b"[('a', '<i4'), ('b', [('c', '|O')])]",
    b"'i4,O'",
    b"'2O'",
    b"('O', (1,))",
    b'"O"',
]


def arrays():
    for descr, version in itertools.product(DESCRS, (1, 2, 3)):
        for name in ("global", "texts", "unknown"):
            yield npy(descr, CALLS[name] + b".", version)


def zipped(entries, method=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return out.getvalue()


def archives():
    long = b"(V" + b"a" * 1_100_000 + b"\n0"
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        for record in ("data.pkl", "DATA.PKL", "Data.pkl", "data.PkL"):
            for before in (b"", b"\x80\x02", long, b"I0x10\n0"):
                for name in ("global", "texts"):
                    body = before + CALLS[name] + b"."
                    yield zipped([(f"a/{record}", body), ("a/version", b"3\n")], method)
                    yield zipped([("a/version", b"3\n"), (f"a/{record}", body)], method)
        for descr in DESCRS:
            member = npy(descr, CALLS["global"] + b".")
            yield zipped([("x.npy", member)], method)
            yield zipped([("data.pkl", b"N."), ("data/0", member)], method)
    evil = zipped([("a/data.pkl", CALLS["global"] + b"."), ("a/version", b"3\n")])
    good = zipped([("a/data.pkl", b"}."), ("a/version", b"3\n")])
    objects = zipped([("x.npy", npy(b"'O'", CALLS["global"] + b"."))])
    empty = zipped([])
    yield from (evil + good, good + evil, empty + evil, empty + objects, good + objects)
    yield from (objects + empty, evil + empty, evil + bytes(100))
    for kind in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=kind) as archive:
            for name in ("storages", "tensors", "pickle"):
                data = CALLS["global"] + b"."
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
        yield out.getvalue()
        yield without_tar_magic(out.getvalue())


def without_tar_magic(data):
    """Returns the archive in the format before ustar, which has no magic."""
    data = bytearray(data)
    for at in range(0, len(data), 512):
        if data[at + 257 : at + 262] == b"ustar":
            data[at + 257 : at + 265] = bytes(8)
            data[at + 148 : at + 156] = b" " * 8
            data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])
    return bytes(data)


def mutations(seeds, count):
    rng = random.Random(7)
    seeds = [seed for seed in seeds if len(seed) < 4096]
    for _ in range(count):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(len(data) + 1)
            kind = rng.randrange(3)
            if kind == 0 and place < len(data):
                data[place] = rng.choice([rng.randrange(256), *b"c.0N(\n\x93R"])
            elif kind == 1:
                data[place:place] = rng.choice(
                    [b"N", b"0", b".", b"(", b"\n", b"I1\n0", b"\x80\x02"]
                )
            else:
                del data[place : place + rng.randint(1, 4)]
        yield bytes(data)


def executed_by_python(folder):
    run = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder), json.dumps(ALLOWED)],
        capture_output=True,
        text=True,
        cwd=folder.parent,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout)


def is_safe(path):
    try:
        return tenfold.scan(path).safe
    except tenfold.Error:
        return False


FAMILIES = {"pickles": pickles, "old_torch": old_torch, "arrays": arrays, "archives": archives}


@pytest.mark.parametrize("family", FAMILIES)
def test_files_that_execute_code_are_never_reported_safe(tmp_path, family):
    files = list(FAMILIES[family]())
    files += mutations(files, 500)
    folder = tmp_path / "files"
    folder.mkdir()
    suffixes = itertools.cycle(["", ".pt", ".memmap", ".npy", ".bin"])
    for i, (data, suffix) in enumerate(zip(files, suffixes, strict=False)):
        (folder / f"{i}{suffix}").write_bytes(data)
    reached = executed_by_python(folder)
    assert len(reached) > len(files) // 20  # the loaders did load something
    missed = {name: what for name, what in reached.items() if is_safe(folder / name)}
    shown = {name: ((folder / name).read_bytes()[:80], what) for name, what in missed.items()}
    assert not shown
    assert not (tmp_path / "MARK").exists()


def test_ordinary_files_are_reported_safe(tmp_path):
    torch.save({"w": torch.ones(3)}, tmp_path / "new.pt")
    torch.save({"w": torch.ones(3)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    numpy.savez(tmp_path / "a.npz", a=numpy.ones(3))
    plain = numpy.zeros(3, [("Time", "<f4"), ("a", ">i8"), ("b", "U3"), ("d", "M8[s]")])
    numpy.save(tmp_path / "plain.npy", plain)
    numpy.save(tmp_path / "bool.npy", numpy.ones((2, 3), bool, order="F"))
    for protocol in range(6):
        (tmp_path / f"{protocol}.pkl").write_bytes(pickle.dumps([1, "x", {"a": 1.5}], protocol))
        (tmp_path / f"{protocol}").write_bytes(pickle.dumps([1, "x", {"a": 1.5}], protocol))
    (tmp_path / "a.csv").write_text("city,name\n1,2\n")
    (tmp_path / "README").write_text("could you\nplease read\n")
    (tmp_path / "m.py").write_text("import os\nclass A:\n    pass\n")
    tenfold.save({"w": torch.arange(640, 700)}, tmp_path / "tree")
    rng = numpy.random.default_rng(0)
    (tmp_path / "m").mkdir()
    for i in range(2000):
        (tmp_path / "m" / f"{i}.memmap").write_bytes(rng.bytes(256))
    report = tenfold.scan(tmp_path)
    assert report.safe, [found for found in report.findings if found.risk != "safe"]
