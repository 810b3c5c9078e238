"""Writes the ok-*.zip and bad-*.zip files beside this script, and golden.tsv.

golden.tsv has one entry of an ok file per line: file, entry, method, size, CRC-32 and content in
hexadecimal, as Python's zipfile reads them. expected.txt describes the problem of each bad file.
"""

import io
import pathlib
import struct
import zipfile
import zlib

HERE = pathlib.Path(__file__).parent


class Entry:
    """One entry of an archive. The caller can give any field a wrong value."""

    def __init__(self, name, data=b"", **fields):
        self.name, self.data = name.encode() if isinstance(name, str) else name, data
        self.crc, self.size, self.stored = zlib.crc32(data), len(data), len(data)
        self.method, self.flags, self.extra, self.local_extra = 0, 0, b"", b""
        self.disk, self.offset, self.descriptor = 0, None, b""
        self.local = {}  # fields of the local header that differ
        if fields.pop("deflate", False):
            machine = zlib.compressobj(9, zlib.DEFLATED, -15)
            self.data = machine.compress(data) + machine.flush()
            self.stored, self.method = len(self.data), 8
        for key, value in fields.items():
            assert hasattr(self, key), key
            setattr(self, key, value)

    def header(self, at):
        f = {k: getattr(self, k) for k in ("name", "crc", "size", "stored", "method", "flags")}
        f |= self.local
        signature = f.get("signature", 0x04034B50)
        return (
            struct.pack("<IHHHHHIIIHH", signature, 20, f["flags"], f["method"], 0, 33, f["crc"],
                        f["stored"], f["size"], len(f["name"]), len(self.local_extra))
            + f["name"] + self.local_extra + self.data + self.descriptor
        )  # fmt: skip

    def central(self, at):
        offset = at if self.offset is None else self.offset
        return (
            struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 20, 20, self.flags, self.method, 0, 33,
                        self.crc, self.stored, self.size, len(self.name), len(self.extra), 0,
                        self.disk, 0, 0, offset)
            + self.name + self.extra
        )  # fmt: skip


def archive(*entries, comment=b"", zip64=False, before=b"", between=b"", after=b"", **end):
    out, offsets = before, []
    for entry in entries:
        offsets.append(len(out))
        out += entry.header(len(out))
    start = len(out)
    for entry, at in zip(entries, offsets, strict=True):
        out += entry.central(at)
    size = len(out) - start
    f = {"disk": 0, "count": len(entries), "here": None, "size": size, "offset": start, **end}
    out += between
    if zip64:
        at = len(out)
        big = {"count": f["count"], "size": size, "offset": start, "at": at, "disks": 1, "length": 44}
        big |= zip64 if isinstance(zip64, dict) else {}
        out += struct.pack("<IQHHIIQQQQ", 0x06064B50, big["length"], 45, 45, 0, 0, big["count"],
                           big["count"], big["size"], big["offset"])  # fmt: skip
        out += struct.pack("<IIQI", 0x07064B50, 0, big["at"], big["disks"])
    here = f["count"] if f["here"] is None else f["here"]
    return out + struct.pack("<IHHHHIIH", 0x06054B50, f["disk"], f["disk"], here, f["count"],
                             f["size"], f["offset"], len(comment)) + comment + after  # fmt: skip


def python_zip(method, **options):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method, **options) as out:
        out.comment = b"a comment"
        for name, data in (("a", b"alpha"), ("b/c", b"x" * 3000), ("empty", b""), ("d/", b"")):
            out.writestr(zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0)), data, method)
    return file.getvalue()


def descriptor(data, form):
    return struct.pack(form, zlib.crc32(data), len(data), len(data))


A, B = b"alpha", b"bravo!"
SIGNED = b"PK\x07\x08"
FULL = 0xFFFFFFFF
UNKNOWN = {"crc": 0, "size": 0, "stored": 0}


def wide(*values):
    return struct.pack("<HH" + "Q" * len(values), 1, 8 * len(values), *values)


def later(form, sign=SIGNED):
    return Entry("a", A, flags=0x0808, local=UNKNOWN, descriptor=sign + descriptor(A, form))


GOOD = {
    "nothing": archive(),
    "one": archive(Entry("a", A)),
    "order": archive(Entry("b", B), Entry("a", A)),
    "stored-python": python_zip(zipfile.ZIP_STORED),
    "deflated-python": python_zip(zipfile.ZIP_DEFLATED),
    "deflated": archive(Entry("z", bytes(1000), deflate=True), Entry("a", A)),
    "comment": archive(Entry("a", A), comment=b"PK and more"),
    "utf8": archive(Entry("caf\u00e9/\u96ea", A, flags=0x0800)),
    "padding": archive(Entry("a", A, local_extra=b"FB\x19\x00" + b"Z" * 25)),
    "descriptor": archive(later("<III"), Entry("b", B)),
    "descriptor-wide": archive(later("<IQQ"), Entry("b", B)),
    "descriptor-unsigned": archive(later("<III", b""), Entry("b", B)),
    "zip64-end": archive(Entry("a", A), zip64=True),
    "zip64-end-only": archive(
        Entry("a", A), zip64={"count": 1}, count=0xFFFF, size=FULL, offset=FULL
    ),
    "zip64-entry": archive(
        Entry("b", B),
        Entry("a", A, extra=wide(5, 5, 37), local_extra=wide(5, 5), offset=FULL, size=FULL,
              stored=FULL, local={"size": FULL, "stored": FULL}),
        zip64=True,
    ),
}  # fmt: skip

INSIDE = Entry("in", A).header(0)
WHOLE = archive(Entry("a", A), Entry("b", B))
BAD = {
    "empty": b"",
    "short": WHOLE[:21],
    "not-a-zip": b"\x93NUMPY" + bytes(100),
    "cut": WHOLE[:-1],
    "cut-directory": WHOLE[:100],
    "trailing": archive(Entry("a", A), after=b"!"),
    "leading": b"!" + WHOLE,
    "between": archive(Entry("a", A), between=b"!"),
    "end-count-more": archive(Entry("a", A), count=2),
    "end-count-less": archive(Entry("a", A), Entry("b", B), count=1),
    "end-count-huge": archive(Entry("a", A), count=0xFFFF),
    "end-count-here": archive(Entry("a", A), here=0),
    "end-disk": archive(Entry("a", A), disk=1),
    "end-size": archive(Entry("a", A), size=46),
    "end-offset": archive(Entry("a", A), offset=0),
    "end-offset-huge": archive(Entry("a", A), offset=FULL - 1),
    "zip64-count": archive(Entry("a", A), zip64={"count": 2}),
    "zip64-count-huge": archive(Entry("a", A), zip64={"count": 2**63}, count=0xFFFF),
    "zip64-size-huge": archive(Entry("a", A), zip64={"size": 2**64 - 1}, size=FULL),
    "zip64-offset-huge": archive(Entry("a", A), zip64={"offset": 2**64 - 1}, offset=FULL),
    "zip64-at": archive(Entry("a", A), zip64={"at": 2**64 - 1}),
    "zip64-at-wrong": archive(Entry("a", A), zip64={"at": 0}),
    "zip64-length": archive(Entry("a", A), zip64={"length": 45}),
    "zip64-disks": archive(Entry("a", A), zip64={"disks": 2}),
    "zip64-extra-short": archive(Entry("a", A, size=FULL, extra=wide()), zip64=True),
    "zip64-extra-twice": archive(Entry("a", A, extra=wide(5) + wide(5))),
    "extra-cut": archive(Entry("a", A, extra=b"\x01\x00\x09\x00" + bytes(8))),
    "size-huge": archive(Entry("a", A, size=FULL - 1, stored=FULL - 1)),
    "size-wide": archive(
        Entry("a", A, size=FULL, stored=FULL, extra=wide(2**64 - 1, 2**64 - 1)), zip64=True
    ),
    "size-stored": archive(Entry("a", A, stored=4)),
    "header-outside": archive(Entry("a", A, offset=1 << 30)),
    "header-wrong": archive(Entry("a", A, offset=1)),
    "header-signature": archive(Entry("a", A, local={"signature": 0x04034B51})),
    "disk": archive(Entry("a", A, disk=1)),
    "encrypted": archive(Entry("a", A, flags=1)),
    "encrypted-strong": archive(Entry("a", A, flags=0x41)),
    "encrypted-central": archive(Entry("a", A, flags=0x2000)),
    "patch": archive(Entry("a", A, flags=0x20)),
    "method": archive(Entry("a", A, method=12)),
    "name-empty": archive(Entry("", A)),
    "name-absolute": archive(Entry("/etc/passwd", A)),
    "name-up": archive(Entry("a/../../b", A)),
    "name-up-first": archive(Entry("../b", A)),
    "name-up-last": archive(Entry("a/..", A)),
    "name-dot": archive(Entry("./a", A)),
    "name-double-slash": archive(Entry("a//b", A)),
    "name-backslash": archive(Entry("a\\..\\b", A)),
    "name-drive": archive(Entry("C:/b", A)),
    "name-zero": archive(Entry("a\0b", A)),
    "name-not-utf8": archive(Entry(b"caf\xe9", A)),
    "name-twice": archive(Entry("a", A), Entry("a", B)),
    "folder-with-bytes": archive(Entry("a/", A)),
    "local-name": archive(Entry("a", A, local={"name": b"b"})),
    "local-name-longer": archive(Entry("a", A, local={"name": b"ab"})),
    "local-name-shorter": archive(Entry("ab", A, local={"name": b"a"})),
    "local-method": archive(Entry("a", A, local={"method": 8})),
    "local-flags": archive(Entry("a", A, local={"flags": 8})),
    "local-crc": archive(Entry("a", A, local={"crc": 1})),
    "local-size": archive(Entry("a", A, local={"size": 4})),
    "local-stored": archive(Entry("a", A, local={"stored": 4})),
    "descriptor-missing": archive(Entry("a", A, flags=8, local=UNKNOWN)),
    "descriptor-wrong": archive(
        Entry("a", A, flags=8, local=UNKNOWN, descriptor=SIGNED + descriptor(B, "<III"))
    ),
    "descriptor-local-crc": archive(
        Entry("a", A, flags=8, local={"crc": 7}, descriptor=SIGNED + descriptor(A, "<III"))
    ),
    "overlap-same": archive(Entry("a", A), Entry("b", B, offset=0, local={"name": b"b"})),
    "overlap-inside": archive(Entry("out", INSIDE), Entry("in", A, offset=33)),
    "bomb-ratio": archive(Entry("a", bytes(10), deflate=True, size=10_000_000)),
    "bomb-total": archive(
        *(Entry(f"{i}", bytes(1_000_000), deflate=True) for i in range(2)),
    ),
    "crc": archive(Entry("a", A, crc=1)),
    "crc-deflated": archive(Entry("a", bytes(50), deflate=True, crc=1)),
    "inflate-more": archive(Entry("a", bytes(50), deflate=True, size=49)),
    "inflate-less": archive(Entry("a", bytes(50), deflate=True, size=51)),
    "inflate-none": archive(Entry("a", b"", deflate=True, size=1)),
    "inflate-rubbish": archive(Entry("a", b"\xff" * 9, method=8)),
    "inflate-trailing": archive(Entry("a", b"\x03\x00!", method=8, size=0, crc=0)),
    "inflate-cut": archive(Entry("a", b"\x4b", method=8, size=9)),
}


def main():
    for old in HERE.glob("*.zip"):
        old.unlink()
    lines = []
    for name, data in sorted(GOOD.items(), key=lambda item: item[0] + ".zip"):
        (HERE / f"ok-{name}.zip").write_bytes(data)
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            for info in file.infolist():
                text = file.read(info)
                lines.append(
                    f"ok-{name}.zip\t{info.filename}\t{info.compress_type}\t{info.file_size}\t"
                    f"{info.CRC:08x}\t{text.hex()}\n"
                )
    (HERE / "golden.tsv").write_text("".join(lines), encoding="utf-8")
    for name, data in BAD.items():
        (HERE / f"bad-{name}.zip").write_bytes(data)


if __name__ == "__main__":
    main()
