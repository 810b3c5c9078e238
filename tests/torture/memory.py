"""Operations on files of X MB take at most X/10 MB of memory, not counting pages of files.

The kernel enforces the limit: the process joins a control group (v2, or the memory controller of
v1). From then on it can allocate X/10 MB, and 16 MiB more for libraries and threads. A group counts
pages of files too, but the kernel reclaims them. If no group can be made, the memory is only
measured. RLIMIT_DATA is no alternative, because it counts copy-on-write maps of files.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from case import Options, Row
from children import in_child
from writers import peers

import tenfold

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
from peak_memory import peak_of

#: Files of X MB on the disk at the same time: the source, a target with its previous version, the
#: parameters, and the file of torch.save.
_COPIES = 5


class Limit:
    """A memory limit of child processes: a control group, or none if none can be made."""

    def __init__(self) -> None:
        self.kind = "nothing: measured"
        self._group: Path | None = None
        name = f"torture-{os.getpid()}"
        for root, kind in (
            (Path("/sys/fs/cgroup"), "cgroup v2"),
            (Path("/sys/fs/cgroup/memory"), "cgroup v1"),
        ):
            group = root / name
            with contextlib.suppress(OSError):
                group.mkdir()
                # Try to join the group in a child, because this may not be allowed.
                self._group, self.kind = group, kind
                if in_child(lambda: self.enter(1 << 30)).returned:
                    return
                self._group, self.kind = None, "nothing: measured"
                group.rmdir()

    @staticmethod
    def _file(group: Path, kind: str) -> Path:
        return group / ("memory.max" if kind == "cgroup v2" else "memory.limit_in_bytes")

    def enter(self, room: int) -> None:
        """Limits this process to `room` bytes more than it uses now."""
        if self._group is None:
            return
        # Earlier memory of the process stays charged to its old cgroup.
        for file, number in (
            (self._file(self._group, self.kind), room),
            (self._group / "cgroup.procs", os.getpid()),
        ):
            # "r+" fails if no control groups are mounted there: the group is an ordinary folder.
            with open(file, "r+") as opened:
                opened.write(str(number))

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
    """Saves, loads, converts, verifies and restores X MB with X/10 MB of memory."""
    megabytes = 64 if options.short else 4096
    rows: list[Row] = []
    with _limit() as limit, options.folder() as folder:
        size = megabytes << 20
        free = shutil.disk_usage(folder).free
        if free < _COPIES * size:
            reason = f"needs {_COPIES * megabytes} MB of disk, {free >> 20} MB are free"
            return [options.finished(Row("memory", counts={"skipped": reason}))]
        source = folder / "m.safetensors"
        made = in_child(lambda: _make(source, size))
        if not made.returned:
            row = Row("memory", counts={"skipped": str(made.value)})
            row.problem(f"cannot be tested: {made.kind} {made.value} {made.last_words}")
            return [options.finished(row)]
        works = _works(folder, source, size)
        if options.short:
            works = {name: works[name] for name in ("verify", "convert to a folder")}
        for name, (work, is_peer) in works.items():
            if not options.wants(name):
                continue
            row = Row(name, is_peer, {"MB": megabytes, "limit, MB": megabytes // 10})
            rows.append(row)
            if len(rows) > 1 and time.monotonic() > options.end:
                row.counts["result"] = "left out"
                continue
            room = size // 10

            def limited(work=work, room=room) -> int:
                warm = folder / "warm.safetensors"
                tenfold.save({"x": torch.zeros(1000)}, warm, durable=False)
                limit.enter(room + (16 << 20))  # 16 MiB more for libraries and threads
                return peak_of(work)

            outcome = in_child(limited, 3600)
            for target in folder.glob("target*"):
                shutil.rmtree(target) if target.is_dir() else target.unlink()
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
            options.finished(row)
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

    def parameters() -> dict[str, torch.Tensor]:
        mapped = torch.from_file(str(folder / "parameters"), shared=True, size=size // 4)
        return {
            f"layers.{i}.weight": mapped[i * size // 64 : (i + 1) * size // 64].reshape(-1, 1024)
            for i in range(16)
        }

    def step() -> None:
        manager = tenfold.CheckpointManager(at("-run"), durable=False)
        manager.import_step(source, 1)
        assert manager.verify(1).ok
        model = torch.nn.ParameterDict()
        for name, tensor in parameters().items():
            model[name.replace(".", "_")] = torch.nn.Parameter(tensor)
        manager.restore({"model": model}, rename=lambda name: name.replace(".", "_"))
        manager.close()

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
        "convert to .tdz as float16": (
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
        "load_into mapped parameters": (lambda: tenfold.load_into(parameters(), source), False),
        "import, verify and restore a step": (step, False),
        "diff": (lambda: tenfold.diff(source, source), False),
    }
    names = [writer.name for writer in peers()]
    pickled = folder / "peer.pt"
    if "torch.save" in names:
        in_child(lambda: torch.save(dict(tenfold.load(source)), pickled))
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
