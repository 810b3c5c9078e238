"""Calls of tenfold's TensorDict against tensordict's. A timing repeats a short call many times."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import tensordict
import torch
import trees
from harness import Blocks, Contender, Goal, Result, Timing, compare, fresh, load_raw
from reading import warmed
from saving import ours, upstream_folder

import tenfold

# Calls per timing: enough for the resolution of the clock, but few, so that other work on the
# machine seldom disturbs a timing.
CALLS = 200


def repeated(call: Callable[[], object], count: int = CALLS) -> Callable[[], None]:
    def run() -> None:
        for _ in range(count):
            call()

    return run


def nested(cls) -> object:
    """Returns a tree of class `cls` with 2,000 leaves in 100 nodes."""
    return cls(
        {f"n{i:02}": {f"leaf{j:02}": torch.rand(256) for j in range(20)} for i in range(100)}, []
    )


def touch(td) -> float:
    """Reads one number of each leaf."""
    return sum(leaf[0].item() for leaf in td.values(True, True))


def calls_load_memmap(work: Path, repetitions: int) -> Result:
    path, floor = work / "calls-load", work / "calls-load-raw"
    tree = nested(tensordict.TensorDict)
    tree.memmap(path)
    raw = load_raw()
    floor.mkdir()
    blocks = Blocks(list(tree.values(True, True)))
    raw.raw_write_files(str(floor).encode(), blocks.count, blocks.pointers, blocks.sizes, 0, 1)

    def bare() -> None:
        assert raw.raw_map_files(str(floor).encode(), blocks.count, 1)

    def load(cls):
        def run() -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                touch(cls.load_memmap(path))

        return run

    return compare(
        "calls_load_memmap",
        "TensorDict.load_memmap and touch each of 2,000 leaves in 100 nodes",
        warmed(
            {
                "tenfold": Contender(load(tenfold.TensorDict)),
                "tensordict": Contender(load(tensordict.TensorDict)),
                "open, map, touch and unmap the same files": Contender(bare),
            }
        ),
        [Goal("tenfold", "tensordict", 3.0)],
        repetitions,
    )


def calls_memmap(work: Path, repetitions: int) -> Result:
    tree = trees.large()
    td = tenfold.TensorDict(tree, [])
    a, b, c = work / "calls-memmap", work / "calls-save", work / "calls-upstream"
    save = ours(tree, b, checksums=False)
    return compare(
        "calls_memmap",
        "TensorDict.memmap of 8 x 64 MiB",
        {
            "tenfold, td.memmap": Contender(lambda: td.memmap(a), lambda: fresh(a)),
            "tenfold.save without checksums": Contender(save, lambda: fresh(b)),
            "tensordict, td.memmap": Contender(lambda: upstream_folder(tree, c), lambda: fresh(c)),
        },
        [
            Goal("tenfold, td.memmap", "tenfold.save without checksums", 0.9),
            Goal("tenfold, td.memmap", "tensordict, td.memmap", 3.0),
        ],
        repetitions,
    )


# The fields of a row, as in a replay buffer, and the number of values of each.
WIDTHS = {"obs": 17, "act": 6, "rew": 1, "done": 1, "next_obs": 17, "logp": 1, "adv": 1, "i": 1}


def rows(cls, work: Path, name: str):
    """Returns 100,000 memory-mapped rows of 8 fields."""
    n = 100_000
    return cls({k: torch.rand(n, w) for k, w in WIDTHS.items()}, [n]).memmap(work / name)


def calls_index(work: Path, repetitions: int) -> Result:
    mine = rows(tenfold.TensorDict, work, "calls-rows")
    theirs = rows(tensordict.TensorDict, work, "calls-rows-td")
    index = torch.randint(100_000, (256,))
    kinds = {"256 random rows": index, "slice of 256": slice(512, 768), "one row": 4242}
    contenders, goals = {}, []
    for kind, key in kinds.items():
        contenders[f"tenfold, {kind}"] = Contender(repeated(lambda key=key: mine[key]))
        contenders[f"tensordict, {kind}"] = Contender(repeated(lambda key=key: theirs[key]))
        goals.append(Goal(f"tenfold, {kind}", f"tensordict, {kind}", 2.0))
    return compare(
        "calls_index",
        f"td[index] on 8 memory-mapped fields, {CALLS} times",
        warmed(contenders),
        goals,
        repetitions,
    )


def calls_access(work: Path, repetitions: int) -> Result:
    source = {"a": {"b": torch.rand(3), "c": torch.rand(3)}, "d": torch.rand(3)}
    mine, theirs = tenfold.TensorDict(source, []), tensordict.TensorDict(source, [])
    value = torch.rand(3)
    return compare(
        "calls_access",
        "Entries of a filled tree in memory, 20,000 times",
        warmed(
            {
                'tenfold, td["a", "b"]': Contender(repeated(lambda: mine["a", "b"], 20_000)),
                'tensordict, td["a", "b"]': Contender(repeated(lambda: theirs["a", "b"], 20_000)),
                'tenfold, td["d"]': Contender(repeated(lambda: mine["d"], 20_000)),
                'tensordict, td["d"]': Contender(repeated(lambda: theirs["d"], 20_000)),
                'tenfold, td.set("d", x)': Contender(
                    repeated(lambda: mine.set("d", value), 20_000)
                ),
                'tensordict, td.set("d", x)': Contender(
                    repeated(lambda: theirs.set("d", value), 20_000)
                ),
            }
        ),
        [
            Goal('tenfold, td["a", "b"]', 'tensordict, td["a", "b"]', 1.0),
            Goal('tenfold, td["d"]', 'tensordict, td["d"]', 1.0),
            Goal('tenfold, td.set("d", x)', 'tensordict, td.set("d", x)', 1.0),
        ],
        repetitions,
    )


def calls_stack(work: Path, repetitions: int) -> Result:
    of_disk = rows(tenfold.TensorDict, work, "calls-stack")
    of_disk_td = rows(tensordict.TensorDict, work, "calls-stack-td")
    mine = [of_disk[i].clone() for i in range(256)]
    theirs = [of_disk_td[i].clone() for i in range(256)]
    keys = list(mine[0].keys())
    return compare(
        "calls_stack",
        "A batch of 256 rows of 8 fields by torch.stack",
        warmed(
            {
                "tenfold, rows of a folder": Contender(
                    lambda: torch.stack([of_disk[i] for i in range(256)])
                ),
                "tensordict, rows of a folder": Contender(
                    lambda: torch.stack([of_disk_td[i] for i in range(256)])
                ),
                "tenfold, rows in memory": Contender(lambda: torch.stack(mine)),
                "tensordict, rows in memory": Contender(lambda: torch.stack(theirs)),
                "torch.stack of each field": Contender(
                    lambda: {k: torch.stack([td[k] for td in mine]) for k in keys}
                ),
            }
        ),
        [
            Goal("tenfold, rows of a folder", "tensordict, rows of a folder", 3.0),
            Goal("tenfold, rows in memory", "tensordict, rows in memory", 3.0),
        ],
        repetitions,
    )


IMPORT = """
import sys, time
if {torch}: import torch
begin = time.perf_counter()
import {module}
print(time.perf_counter() - begin)
"""


def calls_import(work: Path, repetitions: int) -> Result:
    def seconds(module: str, torch: bool) -> float:
        code = IMPORT.format(module=module, torch=torch)
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return float(done.stdout)

    measured = {
        "import tenfold": [seconds("tenfold", False) for _ in range(max(5, repetitions))],
        "import tensordict, torch imported": [seconds("tensordict", True) for _ in range(3)],
    }
    return Result(
        "calls_import",
        "Import",
        {name: Timing(values) for name, values in measured.items()},
        [Goal("import tenfold", at_most_seconds=0.020)],
    )


ALL = [calls_load_memmap, calls_memmap, calls_index, calls_access, calls_stack, calls_import]
