"""Random programs: the same steps in both libraries, with equal states after every step.

A program has up to MAX_LIVE TensorDicts. A step changes one of them or makes a new one from it. If
both libraries raise, their exceptions must match, and the program restarts if the states differ. A
step that saves writes a folder with each library, and each library loads the folder of the *other*
one. The programs are the same in every run. To run COUNT other ones:

    python tests/python/upstream/semantics/test_random_programs.py SEED COUNT
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import pathlib
import random
import sys
import warnings
from typing import Any

import pytest
import tensordict as upstream
import torch
from compare import Raised, assert_described, assert_same_kind, describe, unordered
from fixtures import new_folder
from folders import assert_same_tree, tree_of
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tenfold

KEYS = ("a", "b", "é", "x.y", "with/slash")
NODES = ("n", "m")
BATCHES = ((), (3,), (2, 3), (4, 1, 2))
DTYPES = (torch.float32, torch.int64, torch.bool, torch.float64, torch.bfloat16, torch.uint8)
VALUES = ("text", "", None, 7, 2.5, True, {"k": [1, "two", None]}, ["p", {"q": 1}])
MAX_LIVE = 4
# A program restarts if numel() of one of its TensorDicts, the product of the batch size, exceeds
# this.
MAX_ROWS = 400


def tensor(batch, dtype, seed):
    count = torch.Size(batch).numel() * 2
    return ((torch.arange(count) * 7 + seed) % 11).to(dtype).reshape(*batch, 2)


@dataclasses.dataclass
class Step:
    """A step on one of the n TensorDicts of a program, number `which` % n. It can always run."""

    name: str
    which: int
    number: int
    key: str
    node: str | None
    value: Any

    def __repr__(self):
        path = self.key if self.node is None else f"{self.node}/{self.key}"
        return f"{self.name}(td{self.which}, {self.number}, {path!r}, {self.value!r})"

    @property
    def path(self):
        return self.key if self.node is None else (self.node, self.key)


STEPS = {}


def step(run):
    STEPS[run.__name__] = run
    return run


# Each of these functions takes the library, a TensorDict `td`, the Step, and a TensorDict `other`
# of the program. It returns a new TensorDict, or None if it changed `td` or did nothing.


def known(td, s):
    """Returns the path of an existing entry, or the path of the step if `td` is empty."""
    paths = sorted(td.keys(True), key=str)
    return paths[s.number % len(paths)] if paths else s.path


@step
def build(lib, td, s, other):
    batch = BATCHES[s.number % len(BATCHES)]
    entries = {s.key: tensor(batch, DTYPES[s.number % len(DTYPES)], s.number)}
    made = lib.TensorDict(entries, batch)
    made[NODES[0], "inner"] = tensor(batch, torch.float32, s.number)
    if s.number % 3 == 0:
        made.names = [None, *"stuv"][: len(batch)]
    return made


@step
def set_tensor(lib, td, s, other):
    # Skip nested keys in a tree with stacks and with nodes that have more batch dimensions than the
    # root: tensordict sets the tensor in every node of a stack, even in these nodes.
    if s.node is None or not has_stacks(td) or not has_larger_nodes(td):
        td.set(s.path, tensor(td.batch_size, DTYPES[s.number % len(DTYPES)], s.number))


@step
def set_in_place(lib, td, s, other):
    path = known(td, s)
    td.set_(path, torch.zeros_like(td.get(path)))


@step
def set_value(lib, td, s, other):
    td.set_non_tensor(s.path, s.value)


@step
def set_node(lib, td, s, other):
    td.set(s.node or "n", {s.key: tensor(td.batch_size, torch.float32, s.number)})


@step
def delete(lib, td, s, other):
    td.del_(known(td, s))


@step
def rename(lib, td, s, other):
    td.rename_key_(known(td, s), s.key)


@step
def update(lib, td, s, other):
    # If one of the trees is or contains a stack and the batch sizes differ, skip the update: the
    # error that tensordict raises depends on how many entries it has already updated.
    if other.batch_size == td.batch_size or not (has_stacks(td) or has_stacks(other)):
        td.update(other.clone())


def has_stacks(td):
    nodes = [td, *(td.values(True) if hasattr(td, "values") else ())]
    return any(type(node).__name__ == "LazyStackedTensorDict" for node in nodes)


def has_larger_nodes(td):
    sizes = [len(node.batch_size) for node in td.values(True) if hasattr(node, "batch_size")]
    return any(size > td.batch_dims for size in sizes)


@step
def update_in_place(lib, td, s, other):
    td.update_(td.clone().zero_())


@step
def select(lib, td, s, other):
    return td.select(known(td, s), s.key, strict=s.number % 4 == 0)


@step
def exclude(lib, td, s, other):
    return td.exclude(known(td, s))


@step
def flatten_keys(lib, td, s, other):
    return td.flatten_keys("|")


@step
def unflatten_keys(lib, td, s, other):
    return td.unflatten_keys("|.a"[s.number % 3])


@step
def index(lib, td, s, other):
    return td[indices_of(td)[s.number % 12]]


@step
def assign(lib, td, s, other):
    where = indices_of(td)[s.number % 12]
    td[where] = td[where].clone().zero_()


def indices_of(td):
    rows = td.batch_size[0] if td.batch_dims else 1
    mask = torch.arange(rows) % 2 == 0
    last = torch.arange(rows).flip(0)
    return [
        0, -1, slice(1, None), slice(None, None, 2), None, ..., [0, 0], last, mask, (..., 0),
        (slice(None), None), torch.tensor([[0], [rows - 1]]),
    ]  # fmt: skip


@step
def stack(lib, td, s, other):
    return torch.stack([td, td.clone()], s.number % (td.batch_dims + 1))


@step
def cat(lib, td, s, other):
    return torch.cat([td, td.clone()], s.number % max(1, td.batch_dims))


@step
def lazy_stack(lib, td, s, other):
    parts = [td.clone(), td.clone().zero_()]
    if s.number % 2:
        parts[1].set("only here", tensor(td.batch_size, torch.float32, s.number))
    return lib.lazy_stack(parts, s.number % (td.batch_dims + 1))


@step
def unbind(lib, td, s, other):
    return td.unbind(s.number % max(1, td.batch_dims))[-1]


@step
def reshape(lib, td, s, other):
    return td.reshape(-1)


@step
def permute(lib, td, s, other):
    return td.permute(*reversed(range(td.batch_dims)))


@step
def unsqueeze(lib, td, s, other):
    return td.unsqueeze(s.number % (td.batch_dims + 1))


@step
def squeeze(lib, td, s, other):
    # In tensordict, squeeze() without a dim raises an error if a node is a stack. It also removes
    # names of nodes, but tensordict restores them when it loads the nodes from a folder.
    if td.batch_dims and (any(td.names) or any(map(has_stacks, nodes_of(td)))):
        return td.squeeze(s.number % td.batch_dims)
    return td.squeeze()


def nodes_of(td):
    return [node for node in td.values(True) if hasattr(node, "batch_size")]


@step
def expand(lib, td, s, other):
    return td.expand(2, *td.batch_size)


@step
def clone(lib, td, s, other):
    return td.clone(recurse=s.number % 2 == 0)


@step
def add(lib, td, s, other):
    return td.select(*[k for k, v in td.items(True, True) if torch.is_tensor(v)]).float() + 1


@step
def compare(lib, td, s, other):
    # Skip trees with values that are lists: when tensordict loads such a value, its lists become
    # batch dimensions.
    has_lists = isinstance(s.value, list) or any(map(is_list_of_lists, td.values(True)))
    return None if has_lists else td == td.clone()


def is_list_of_lists(value):
    values = value.tolist() if type(value).__name__ == "NonTensorStack" else None
    while isinstance(values, list) and values:
        if values == VALUES[-1]:
            return True
        values = values[0]
    return False


@step
def lock(lib, td, s, other):
    td.lock_() if s.number % 2 else td.unlock_()


@step
def set_batch_size(lib, td, s, other):
    td.batch_size = td.batch_size[: s.number % (td.batch_dims + 1)]


class Program:
    """The TensorDicts of a program in one library."""

    def __init__(self, lib):
        self.lib = lib
        self.live = [STEPS["build"](lib, None, Step("build", 0, 1, "a", None, None), None)]

    def run(self, s):
        td = self.live[s.which % len(self.live)]
        other = self.live[s.number % len(self.live)]
        made = STEPS[s.name](self.lib, td, s, other)
        if made is not None:
            self.live = [*self.live, made][-MAX_LIVE:]


def save_and_swap(programs, s):
    """Each library saves a TensorDict, then loads the folder that the other library wrote.

    Returns True if tensordict cannot load the folder that it wrote. Then the programs must restart.
    """
    folders = [pathlib.Path(new_folder()) for _ in programs]
    for program, folder in zip(programs, folders, strict=True):
        program.live[s.which % len(program.live)].memmap(folder, copy_existing=True)
    assert_same_tree(tree_of(folders[1]), tree_of(folders[0]), in_order=False)
    try:
        # If a stack of values has no rows, tensordict loses its other dimensions, and may raise.
        upstream.TensorDict.load_memmap(folders[0])
    except RuntimeError:
        return True
    for program, folder in zip(programs, reversed(folders), strict=True):
        program.live = [*program.live, program.lib.TensorDict.load_memmap(folder)][-MAX_LIVE:]
    return False


SAVE = "save_and_swap"


def both(programs, s):
    """Runs a step in both libraries and compares. Returns True if the programs must restart."""
    if s.name == SAVE:
        if save_and_swap(programs, s):
            return True
        raised = [None, None]
    else:
        raised = [attempt(program, s) for program in programs]
    expected, found = raised
    both_raised = expected is not None and found is not None
    if both_raised:
        assert_same_kind(Raised(found), Raised(expected))
    else:
        for error, who in ((expected, "tensordict"), (found, "tenfold")):
            assert error is None, f"only {who} {Raised(error)}"
    try:
        expected_states = states(programs[0])
    except ValueError:
        return True  # a stack of tensordict whose members no longer fit together
    found_states = states(programs[1])
    if both_raised:
        # tensordict may have done a part of the step.
        return expected_states != found_states
    for i, (mine, theirs) in enumerate(zip(expected_states, found_states, strict=True)):
        assert_described(f"td{i}", theirs, mine)
    return any(td.numel() > MAX_ROWS for td in programs[0].live)


def states(program):
    return [unordered(describe(td)) for td in program.live]


def attempt(program, s):
    try:
        program.run(s)
    except Exception as error:
        return error
    return None


steps = st.builds(
    Step,
    name=st.sampled_from([*STEPS, *[SAVE] * 4]),
    which=st.integers(0, MAX_LIVE - 1),
    number=st.integers(0, 11),
    key=st.sampled_from(KEYS),
    node=st.sampled_from([None, *NODES]),
    value=st.sampled_from(VALUES),
)


def failure(program):
    """Runs a program; returns the first difference or other exception, or None."""
    programs = [Program(upstream), Program(tenfold)]
    try:
        for s in program:
            if both(programs, s):
                programs = [Program(upstream), Program(tenfold)]
    except AssertionError as error:
        return error
    except Exception as error:  # of a save, a load or a description
        return Raised(error)
    return None


def shortest(program):
    """Removes steps from a failing program, as long as it still fails."""
    for i in reversed(range(len(program))):
        without = [*program[:i], *program[i + 1 :]]
        program = without if failure(without) else program
    return program


# Hypothesis only generates programs. It takes minutes to shrink one, and shortest() takes a moment.
@settings(
    derandomize=True,
    max_examples=250,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.lists(steps, min_size=6, max_size=20))
def test_random_programs_match_tensordict_after_every_step(program):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if failure(program):
            program = shortest(program)
            pytest.fail(f"{program}\n{failure(program)}", pytrace=False)


def test_every_program_step_can_succeed():
    """A step that always raised would test nothing."""
    succeeded = set()
    for name, number, node in itertools.product(STEPS, range(12), [None, "n"]):
        program = Program(upstream)
        key = "a" if node is None else "inner"
        for first in (0, 1):
            s = Step(name, first, number, key, node, "text")
            with contextlib.suppress(Exception):
                program.run(s)
                succeeded.add(name)
    assert succeeded == set(STEPS)


def random_program(rng):
    return [
        Step(
            rng.choice([*STEPS, *[SAVE] * 4]),
            rng.randrange(MAX_LIVE),
            rng.randrange(12),
            rng.choice(KEYS),
            rng.choice([None, *NODES]),
            rng.choice(VALUES),
        )
        for _ in range(rng.randint(6, 24))
    ]


def main(seed, count):
    """Runs `count` programs; prints the failing ones, shortened, and returns their number."""
    rng = random.Random(seed)
    failed = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(count):
            program = random_program(rng)
            if failure(program):
                failed += 1
                program = shortest(program)
                print(f"--- program {number}\n{program}\n{failure(program)}\n", flush=True)
    print(f"{failed} of {count} programs fail")
    return failed


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])) > 0)
