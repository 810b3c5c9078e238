"""Work on files of X MB with at most X/10 MB of memory, not counting pages of files.

The kernel enforces the limit: the process joins a control group (v2, or the memory controller of
v1). From then on it can allocate X/10 MB, and 16 MiB more for libraries and threads. A group counts
pages of files too, but the kernel reclaims them. If no group can be made, RLIMIT_DATA limits
private memory; it also counts copy-on-write maps of files.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from case import Options, Row
from children import in_child
from writers import peers

import tenfold

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
from peak_memory import peak_of


class Limit:
    """A memory limit of child processes: a control group if one can be made, else RLIMIT_DATA."""

    def __init__(self) -> None:
        self.kind = "RLIMIT_DATA"
        self._group: Path | None = None
        name = f"torture-{os.getpid()}"
        for root, kind in (
            (Path("/sys/fs/cgroup"), "cgroup v2"),
            (Path("/sys/fs/cgroup/memory"), "cgroup v1"),
        ):
            group = root / name
            with contextlib.suppress(OSError):
                group.mkdir()
                if self._file(group, kind).exists():
                    self.kind, self._group = kind, group
                    return
                group.rmdir()

    @staticmethod
    def _file(group: Path, kind: str) -> Path:
        return group / ("memory.max" if kind == "cgroup v2" else "memory.limit_in_bytes")

    def enter(self, room: int) -> None:
        """Limits this process to `room` bytes more than it uses now."""
        if self._group is None:
            with open("/proc/self/status") as status:
                data = next(int(line.split()[1]) for line in status if line.startswith("VmData"))
            resource.setrlimit(resource.RLIMIT_DATA, (data * 1024 + room,) * 2)
            return
        # The process's earlier memory is charged to its old cgroup: the limit applies to new memory
        # only.
        self._file(self._group, self.kind).write_text(str(room))
        (self._group / "cgroup.procs").write_text(str(os.getpid()))

    def close(self) -> None:
        if self._group is not None:
            with contextlib.suppress(OSError):
                self._group.rmdir()


@contextlib.contextmanager
def _limit() -> Iterator[Limit]:
    limit = Limit()
    try:
        yield limit
    finally:
        limit.close()


def run(options: Options) -> list[Row]:
    """save, load, convert, verify, restore of X MB with X/10 of memory."""
    megabytes = 64 if options.short else 512
    rows = []
    with _limit() as limit, options.folder() as folder:
        size = megabytes << 20
        source = folder / "m.safetensors"
        made = in_child(lambda: _make(source, size), 600)
        if not made.returned:
            return [Row("memory", counts={"skipped": str(made.value)})]
        works = _works(folder, source, size)
        if options.short:
            works = {name: works[name] for name in ("verify", "convert to a folder")}
        for name, (work, is_peer) in works.items():
            if not options.wants(name):
                continue
            row = Row(name, is_peer, {"MB": megabytes, "limit, MB": megabytes // 10})
            room = size // 10

            def limited(work=work, room=room) -> int:
                warm = folder / "warm.safetensors"
                tenfold.save({"x": torch.zeros(1000)}, warm, durable=False)
                limit.enter(room + (16 << 20))  # libraries that are loaded, threads that are made
                return peak_of(work)

            outcome = in_child(limited, 600)
            row.counts["limited by"] = limit.kind
            if outcome.returned:
                row.counts["peak, MB"] = round(outcome.value / 2**20, 1)
                row.counts["result"] = "done"
                if outcome.value > room:
                    row.counts["result"] = "more than the limit"
                    row.problem(f"took {outcome.value} bytes of {room}")
            else:
                row.counts["peak, MB"] = ""
                row.counts["result"] = f"{outcome.kind} {outcome.value}"[:60]
                row.problem(f"{outcome.kind} {outcome.value} {outcome.last_words}")
            rows.append(row)
    return rows


def _make(path: Path, size: int) -> None:
    """Saves sixteen float32 tensors, `size` bytes in all."""
    tensors = {
        f"layers.{i}.weight": torch.arange(size // 64, dtype=torch.float32).reshape(-1, 1024) + i
        for i in range(16)
    }
    tenfold.save(tensors, path, durable=False)


def _works(folder: Path, source: Path, size: int) -> dict[str, tuple[Callable[[], object], bool]]:
    target = folder / "target"

    def at(suffix: str) -> Path:
        return target.with_name("target" + suffix)

    def restore() -> None:
        mapped = torch.from_file(str(folder / "parameters"), shared=True, size=size // 4)
        into = {
            f"layers.{i}.weight": mapped[i * size // 64 : (i + 1) * size // 64].reshape(-1, 1024)
            for i in range(16)
        }
        tenfold.load_into(into, source)

    def load_some() -> None:
        part = tenfold.load(source, keys=["layers.3.*"])
        assert part["layers.3.weight"].sum() > 0

    def load_all() -> None:
        for tensor in tenfold.load(source).values():
            assert tensor.sum() > 0

    (folder / "parameters").touch()
    os.truncate(folder / "parameters", size)
    works: dict[str, tuple[Callable[[], object], bool]] = {
        "verify": (lambda: tenfold.verify(source), False),
        "convert to a folder": (lambda: tenfold.convert(source, at(""), durable=False), False),
        "convert to .pt": (lambda: tenfold.convert(source, at(".pt"), durable=False), False),
        "convert to .tdz, half": (
            lambda: tenfold.convert(source, at(".tdz"), dtype="float16", durable=False),
            False,
        ),
        "save what was opened": (
            lambda: tenfold.save(tenfold.open(source), at("-2"), durable=False),
            False,
        ),
        "load, some keys": (load_some, False),
        "load, all keys, each summed": (load_all, False),
        "load with verify=True": (lambda: tenfold.load(source, verify=True), False),
        "load_into mapped parameters": (restore, False),
        "diff": (lambda: tenfold.diff(source, source), False),
    }
    names = [writer.name for writer in peers()]
    pickled = folder / "peer.pt"
    if "torch.save" in names:
        in_child(lambda: torch.save(dict(tenfold.load(source)), pickled), 600)
        works["torch.load"] = (lambda: torch.load(pickled), True)
        works["torch.load, mmap, each summed"] = (
            lambda: [tensor.sum() for tensor in torch.load(pickled, mmap=True).values()],
            True,
        )
    if "safetensors" in names:
        from safetensors import safe_open
        from safetensors.torch import load_file

        def one() -> None:
            with safe_open(source, "pt") as file:
                file.get_tensor("layers.3.weight").sum()

        works["safetensors load_file"] = (lambda: load_file(source), True)
        works["safetensors get_tensor"] = (one, True)
    return works
