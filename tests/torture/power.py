"""Simulates power failures during durable saves, by the ioctl FS_IOC_SHUTDOWN of ext4 and xfs.

FS_IOC_SHUTDOWN stops a mounted file system at once: the device gets no further writes, except, if
requested, those of the journal. Unmounting and mounting the file system again replays the journal,
as after a power failure.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from case import BAD, Clock, Options, Row, classify
from children import LoopingChild, in_boot, in_child
from writers import LARGE, Writer

COLUMNS = ("power failures", "whole", *BAD)
_SHUTDOWN = 0x8004587D
# Flags: journal records in memory are written first, or are lost like other unwritten data.
_LOG_FLUSHED, _LOG_LOST = 1, 2
_MAKE = {"ext4": ["mkfs.ext4", "-q", "-F"], "xfs": ["mkfs.xfs", "-q", "-f"]}
_MIB = {"ext4": 96, "xfs": 320}


class Disk:
    """A file system in the file `image` of a folder, mounted on its subfolder `mounted`."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self._image = folder / "image"
        self.mounted = folder / "mounted"
        self.mounted.mkdir()
        with open(self._image, "wb") as image:
            image.truncate(_MIB[kind] << 20)
        _call(*_MAKE[kind], self._image)
        self.mount()

    def mount(self) -> None:
        _call("mount", "-o", "loop", self._image, self.mounted)

    def fail(self, flag: int) -> None:
        """Simulates a power failure. `flag`: _LOG_FLUSHED or _LOG_LOST."""
        fd = os.open(self.mounted, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", flag))
        finally:
            os.close(fd)

    def unmount(self) -> None:
        """Unmounts the disk after killed processes have closed their files (slow under load).

        A lazy unmount would leave the file system alive while its image is mounted again.
        """
        give_up = time.monotonic() + 300
        while subprocess.run(["umount", self.mounted], capture_output=True).returncode:
            if time.monotonic() > give_up:
                raise OSError(f"{self.mounted}: cannot be unmounted")
            time.sleep(0.05)


def _call(*command: object) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{command[0]}: {done.stderr.strip() or done.stdout.strip()}")


@contextmanager
def _disk(kind: str) -> Iterator[Disk]:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="torture-", dir=memory))
    disk = None
    try:
        disk = Disk(kind, folder)
        yield disk
    finally:
        if disk is not None:
            subprocess.run(["umount", "-l", disk.mounted], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


def why_not(kind: str) -> str:
    """Returns the reason why this kind of file system cannot be tested here; empty if it can."""
    if shutil.which(_MAKE[kind][0]) is None:
        return f"no {_MAKE[kind][0]}"
    try:
        with _disk(kind) as disk:
            disk.fail(_LOG_LOST)
    except OSError as error:
        return str(error)
    return ""


def run(options: Options) -> list[Row]:
    """After a power failure the path has the last version saved durably, or the next one."""
    writers = options.writers()
    writers = [w for w in writers if w.is_peer or w.promises_durability]
    wanted = options.count or (1 if options.short else 30)
    rows = []
    kinds = ["ext4"] if options.short else ["ext4", "xfs"]
    for number, kind in enumerate(kinds):
        reason = why_not(kind)
        if reason:
            rows.append(Row(f"{kind}", counts={"skipped": reason}))
            continue
        clock = Clock((options.end - time.monotonic()) / (len(kinds) - number), len(writers))
        for writer in writers:
            row = Row(f"{writer.name}, {kind}", writer.is_peer, dict.fromkeys(COLUMNS, 0))
            try:
                with _disk(kind) as disk:  # a new one, in case the last one is damaged
                    _fail(writer, disk, wanted, clock.next_subject(), row, options)
            except (RuntimeError, OSError) as error:
                row.problem(str(error))
                row.counts["failed to save"] = str(error)[:60]
            rows.append(options.finished(row))
    return rows


def _fail(writer: Writer, disk: Disk, wanted: int, end: float, row: Row, options: Options) -> None:
    random = options.random(row.subject)
    folder = disk.mounted / "d"
    path = folder / writer.file_name

    def start_again() -> int:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        made = in_child(lambda: writer.save(path, 1, LARGE, True))
        if not made.returned:
            raise RuntimeError(f"cannot save: {made.value}")
        os.sync()
        return 1

    start = start_again()
    while int(row.counts["power failures"]) < wanted:
        if time.monotonic() > end and int(row.counts["power failures"]) >= 1:
            break
        boot = int(row.counts["power failures"])
        child = LoopingChild(lambda boot=boot: _steps(writer, path, boot), start)
        child.ready()
        # In half of the trials, the failure comes right after a save returned.
        if random.random() < 0.5:
            child.next()
        else:
            time.sleep(random.uniform(0, 0.04))
        if child.error:  # it failed before the power failure
            child.kill()
            raise RuntimeError(f"cannot save: {child.error}")
        disk.fail(random.choice((_LOG_FLUSHED, _LOG_LOST)))
        done = child.kill()
        disk.unmount()
        disk.mount()
        outcome = in_child(lambda boot=boot: _found(writer, path, boot + 1))
        what = classify(outcome, {done, done + 1})
        row.count("power failures")
        row.count(what)
        if what == "whole" and int(outcome.value) < 300:
            start = int(outcome.value)
            continue
        if what != "whole":
            row.problem(
                f"power failure {row.counts['power failures']}: expected version {done} or "
                f"{done + 1}, {what}: {outcome.kind} {outcome.value}"
            )
        start = start_again()


def _steps(writer: Writer, path: Path, boot: int) -> Callable[[int], None]:
    in_boot(boot)
    return writer.steps(path, LARGE, True)


def _found(writer: Writer, path: Path, boot: int) -> int | None:
    in_boot(boot)
    warnings.simplefilter("ignore")  # about ignored data of an earlier boot
    return (writer.found_after_power_failure or writer.found)(path)
