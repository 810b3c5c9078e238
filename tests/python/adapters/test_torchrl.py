"""`tenfold.torchrl.RingStorage` in TorchRL's own replay buffers."""

from __future__ import annotations

import multiprocessing
import pickle
import warnings
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
pytest.importorskip("torchrl", reason="TorchRL is not installed")

from tensordict import NonTensorStack, TensorDict, lazy_stack, tensorclass  # noqa: E402
from torchrl.data import (  # noqa: E402
    LazyTensorStorage,
    ReplayBuffer,
    TensorDictMaxValueWriter,
    TensorDictPrioritizedReplayBuffer,
    TensorDictReplayBuffer,
)
from torchrl.data.replay_buffers.samplers import (  # noqa: E402
    PrioritizedSampler,
    RandomSampler,
    SamplerWithoutReplacement,
    SliceSampler,
)
from torchrl.envs.transforms import Transform  # noqa: E402

import tenfold  # noqa: E402
from tenfold.torchrl import RingStorage, load_buffer, save_buffer  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:Calling update_priority"
)


def rows(first: int, count: int) -> TensorDict:
    """Returns rows. Each row is computed from one number, so that a torn row is detected."""
    number = torch.arange(first, first + count)
    return TensorDict(
        {
            "observation": number[:, None].float().expand(count, 3).clone(),
            "action": number.clone(),
            "next": {"observation": number[:, None].float() + 1, "done": number % 5 == 4},
            "td_error": (number.float() % 7) + 1,
        },
        [count],
    )


def numbers(batch: TensorDict) -> list[int]:
    """Returns the number from which each row of the batch was made. Fails if a row is torn."""
    number = batch["action"]
    assert torch.equal(batch["observation"], number[:, None].float().expand(-1, 3))
    assert torch.equal(batch["next", "observation"], number[:, None].float() + 1)
    assert torch.equal(batch["next", "done"], number % 5 == 4)
    return number.tolist()


class Parameters(Transform):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))


def make(path: Path, size: int = 20, kind=TensorDictReplayBuffer, **options):
    return kind(storage=RingStorage(path, size), batch_size=8, **options)


try:
    import torchrl._torchrl  # noqa: F401
except ImportError:  # built for another torch version
    trees = pytest.mark.skip(reason="TorchRL's prioritized samplers do not load with this torch")
else:
    trees = ()

SAMPLERS = {
    "random": RandomSampler,
    "without replacement": SamplerWithoutReplacement,
    "prioritized": lambda: PrioritizedSampler(20, 0.7, 0.5),
    "slices": lambda: SliceSampler(slice_len=2, end_key=("next", "done"), strict_length=False),
}


@pytest.mark.parametrize(
    "sampler",
    ["random", "without replacement", "slices", pytest.param("prioritized", marks=trees)],
)
def test_samples_match_those_of_in_memory_storage(tmp_path, sampler) -> None:
    mine = make(tmp_path / "ring", sampler=SAMPLERS[sampler]())
    theirs = TensorDictReplayBuffer(
        storage=LazyTensorStorage(20), batch_size=8, sampler=SAMPLERS[sampler]()
    )
    for first in range(0, 63, 9):
        for buffer in (mine, theirs):
            buffer.extend(rows(first, 9))
        for _ in range(3):
            samples = []
            for buffer in (mine, theirs):
                torch.manual_seed(first)
                samples.append(buffer.sample())
            if sampler == "prioritized":  # it draws from its own generator
                assert set(numbers(samples[0])) <= set(mine[:]["action"].tolist())
                mine.update_tensordict_priority(samples[0])
                continue
            assert set(samples[0].keys(True)) == set(samples[1].keys(True))
            for key in samples[1].keys(True, True):
                assert torch.equal(samples[0][key], samples[1][key]), key
    assert len(mine) == len(theirs) == 20
    assert torch.equal(mine[:]["action"], theirs[:]["action"])


@pytest.mark.parametrize(
    "index", [3, slice(2, 9, 3), [5, 0], range(4), torch.tensor([[1, 2], [7, 0]])]
)
def test_indexing_matches_in_memory_storage(tmp_path, index) -> None:
    mine, theirs = make(tmp_path / "ring"), TensorDictReplayBuffer(storage=LazyTensorStorage(20))
    for buffer in (mine, theirs):
        buffer.extend(rows(0, 10))
    found, expected = mine[index], theirs[index]
    assert found.batch_size == expected.batch_size
    for key in expected.keys(True, True):
        assert torch.equal(found[key], expected[key])


def test_a_mask_of_several_dimensions_is_refused(tmp_path) -> None:
    buffer = make(tmp_path / "ring")
    buffer.extend(rows(0, 4))
    assert numbers(buffer[torch.tensor([True, False, True, False])]) == [0, 2]
    with pytest.raises(IndexError, match="a mask of 1 dimension, found 2"):
        buffer[torch.tensor([[True, False], [True, False]])]


def test_rows_are_added_singly_and_in_batches_larger_than_the_buffer(tmp_path) -> None:
    buffer = make(tmp_path / "ring")
    for number in range(25):
        buffer.add(rows(number, 1)[0])
    assert sorted(numbers(buffer[:])) == list(range(5, 25))
    buffer.extend(rows(100, 50))  # more rows than max_size
    assert sorted(numbers(buffer[:])) == list(range(130, 150))


def test_replay_buffer_of_lists_extends_and_samples(tmp_path) -> None:
    buffer = ReplayBuffer(storage=RingStorage(tmp_path / "ring", 5), batch_size=2)
    buffer.extend([rows(number, 1)[0] for number in range(4)])
    assert numbers(buffer[:]) == [0, 1, 2, 3]
    numbers(buffer.sample())


def test_entries_that_only_some_rows_have_are_refused(tmp_path) -> None:
    storage = RingStorage(tmp_path / "ring", 5)
    some = [rows(0, 1)[0], rows(1, 1)[0].set(("next", "q"), torch.tensor(1))]
    for batch in (some, lazy_stack(some), TensorDict({"a": lazy_stack(some)}, [2])):
        with pytest.raises(
            ValueError, match='entry "q": expected it in all rows, found it in some'
        ):
            storage.set(range(2), batch)
    assert len(storage) == 0
    storage.set(range(2), lazy_stack([row.exclude(("next", "q")) for row in some]))
    assert numbers(storage[:]) == [0, 1]


def test_refused_first_rows_leave_no_folder(tmp_path) -> None:
    storage = RingStorage(tmp_path / "ring", 10)
    with pytest.raises(IndexError, match="slot 5: expected a slot that has a row, or the next one"):
        storage.set(5, rows(0, 1)[0])
    assert not (tmp_path / "ring").exists()
    storage.set(0, rows(0, 1)[0].select("action"))
    assert len(storage) == 1


def test_a_slot_after_the_next_one_is_refused_before_rows_are_written(tmp_path) -> None:
    storage = RingStorage(tmp_path / "ring", 10)
    storage.set(range(4), rows(0, 4))
    with pytest.raises(IndexError, match="slot 6: expected a slot that has a row, or the next one"):
        storage.set([0, 4, 6], rows(50, 3))
    with pytest.raises(ValueError, match="expected a value in each new row, found none"):
        storage.set([4, 0], rows(50, 2).exclude("action"))
    assert numbers(storage[:]) == [0, 1, 2, 3]
    storage.set([0, 4, 4, 5, 1], rows(50, 5))
    assert numbers(storage[:]) == [50, 54, 2, 3, 52, 53]


def test_a_value_that_does_not_fit_is_refused_before_rows_are_written(tmp_path) -> None:
    storage = RingStorage(tmp_path / "ring", 10)
    few = TensorDict({"x": torch.arange(4, dtype=torch.int32)}, [4])
    storage.set(range(4), few)
    for value in (torch.tensor([50, 51, 1 << 40]), torch.zeros(3, 1, dtype=torch.int32)):
        for slots in ([0, 4, 5], [4, 0, 5], [4, 5, 0]):
            with pytest.raises(ValueError, match=r'ring: .*column "x": expected'):
                storage.set(slots, TensorDict({"x": value}, [3]))
    assert storage[:]["x"].tolist() == [0, 1, 2, 3]
    storage.set([0, 4, 5], TensorDict({"x": torch.tensor([50, 51, 52])}, [3]))
    assert storage[:]["x"].tolist() == [50, 1, 2, 3, 51, 52]


def test_missing_values_are_written_to_new_and_existing_slots(tmp_path) -> None:
    schema = {"x": tenfold.Column("int32", nullable=True)}
    tenfold.create(tmp_path / "ring", schema, capacity=6).close()
    storage = RingStorage(tmp_path / "ring", 6)
    storage.set(range(3), TensorDict({"x": torch.arange(3)}, [3]))
    valid = torch.tensor([False, True, False, True])
    new = TensorDict({"x": torch.tensor([10, 13, 14, 11]), "x.valid": valid}, [4])
    storage.set([0, 3, 4, 1], new)
    assert storage[:]["x"].tolist() == [10, 11, 2, 13, 14]
    assert storage[:]["x.valid"].tolist() == [False, True, True, True, False]


def test_integers_of_numpy_and_an_empty_list_are_indices(tmp_path) -> None:
    storage = RingStorage(tmp_path / "ring", 10)
    storage.set(np.int64(0), rows(7, 1)[0])
    assert storage[np.int64(0)]["action"] == 7
    assert storage[[]].batch_size == torch.Size([0])
    assert storage[[]]["observation"].shape == (0, 3)


@pytest.mark.parametrize("num_rows", [4, 7])
def test_a_refused_batch_does_not_move_the_next_slot(tmp_path, num_rows) -> None:
    buffer = make(tmp_path / "ring", 6)
    buffer.extend(rows(0, 6)[: min(num_rows, 6)])
    if num_rows > 6:
        buffer.extend(rows(6, 1))
    with pytest.raises(ValueError):
        buffer.extend(TensorDict({"action": torch.zeros(2, 2)}, [2, 2]))
    buffer.extend(rows(10, 2))
    found = numbers(buffer[:])
    assert found == ([0, 1, 2, 3, 10, 11] if num_rows == 4 else [6, 10, 11, 3, 4, 5])


def test_rows_are_assigned_in_place(tmp_path) -> None:
    buffer = make(tmp_path / "ring")
    buffer.extend(rows(0, 12))
    buffer[3] = buffer._storage.get(3).set("td_error", torch.tensor(9.0))
    buffer[[1, 2]] = buffer[[2, 1]]
    assert numbers(buffer[:])[:4] == [0, 2, 1, 3]
    assert buffer[3]["td_error"] == 9
    assert buffer._storage.cursor == len(buffer) == 12
    with pytest.raises(IndexError, match=r"slot 15.*the next one, 12"):
        buffer._storage.set(torch.tensor([15]), buffer[[3]], set_cursor=False)


def test_max_value_writer_keeps_the_rows_of_highest_rank(tmp_path) -> None:
    writer = TensorDictMaxValueWriter(rank_key="td_error")
    buffer = make(tmp_path / "ring", 4, writer=writer)
    buffer.extend(rows(0, 21))
    assert buffer[:]["td_error"].min() >= 6


@pytest.mark.skipif(bool(trees), reason="TorchRL's samplers do not load with this torch")
def test_prioritized_buffer_samples_whole_rows_after_an_update_of_priorities(tmp_path) -> None:
    buffer = make(tmp_path / "ring", kind=TensorDictPrioritizedReplayBuffer, alpha=0.7, beta=0.5)
    buffer.extend(rows(0, 15))
    sample = buffer.sample()
    sample["td_error"] = torch.ones(8)
    buffer.update_tensordict_priority(sample)
    numbers(buffer.sample())


def test_a_new_buffer_appends_after_the_newest_row(tmp_path) -> None:
    buffer = make(tmp_path / "ring")
    buffer.extend(rows(0, 27))
    buffer.storage.close()
    again = make(tmp_path / "ring", None)
    assert len(again) == 20
    again.extend(rows(27, 3))
    assert sorted(numbers(again[:])) == list(range(10, 30))


@pytest.mark.parametrize(
    "sampler", ["random", "without replacement", pytest.param("prioritized", marks=trees)]
)
def test_a_restored_buffer_draws_the_samples_of_an_uninterrupted_one(tmp_path, sampler) -> None:
    buffer = make(tmp_path / "ring", sampler=SAMPLERS[sampler]())
    buffer.extend(rows(0, 12))
    if sampler == "prioritized":
        buffer.update_priority(torch.arange(12), torch.arange(12.0) + 1)
    buffer.sample()
    save_buffer(buffer, tmp_path / "state")
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert not any(path.suffix in (".pkl", ".pt", ".t") for path in files)
    rng = torch.get_rng_state()

    def go_on(buffer) -> list[list[int]]:
        torch.set_rng_state(rng)
        found = []
        for first in (12, 14):
            buffer.extend(rows(first, 2))
            sample = buffer.sample()
            if sampler != "prioritized":
                found.append(numbers(sample))
            found.append(numbers(buffer[:]))
        return found

    expected = go_on(buffer)
    buffer.storage.close()
    again = make(tmp_path / "ring", sampler=SAMPLERS[sampler]())
    assert len(again) == 16
    load_buffer(again, tmp_path / "state")
    assert len(again) == 12  # rows added after the save are not sampled
    with pytest.raises(IndexError):
        again[[12]]
    assert numbers(again[[-1, -12]]) == [11, 0]
    assert numbers(again[::-4]) == [11, 7, 3]
    with pytest.raises(IndexError):
        again[[-13]]
    if sampler == "prioritized":
        tree = again._sampler._sum_tree
        assert [tree[i] for i in range(12)] == pytest.approx(
            [(i + 1 + again._sampler._eps) ** 0.7 for i in range(12)], rel=1e-3
        )
    assert go_on(again) == expected
    assert again.storage._limit is None


def test_the_device_of_the_generator_is_restored(tmp_path, monkeypatch) -> None:
    class OnCuda:
        device = torch.device("cuda:0")
        get_state = torch.Generator().get_state

    buffer = make(tmp_path / "ring")
    buffer.set_rng(OnCuda())
    save_buffer(buffer, tmp_path / "state")
    devices: list[str] = []
    generator = torch.Generator()
    monkeypatch.setattr(torch, "Generator", lambda device: devices.append(device) or generator)
    load_buffer(buffer, tmp_path / "state")
    assert buffer._rng is generator
    assert devices == ["cuda:0"]


def test_warns_of_rows_overwritten_since_the_save(tmp_path) -> None:
    buffer = make(tmp_path / "ring")
    buffer.extend(rows(0, 20))
    save_buffer(buffer, tmp_path / "state")
    buffer.extend(rows(20, 5))
    with pytest.warns(UserWarning, match="newer rows have replaced"):
        load_buffer(buffer, tmp_path / "state")
    buffer.extend(rows(50, 2))  # replaces the oldest rows
    assert buffer._writer._cursor == buffer.storage.cursor == 7
    assert sorted(numbers(buffer[:])) == [*range(7, 25), 50, 51]


def test_rows_added_after_a_state_was_restored_in_the_storage_follow_its_rows(tmp_path) -> None:
    buffer = make(tmp_path / "ring")
    buffer.extend(rows(0, 4))
    state = buffer.storage.state_dict()
    buffer.extend(rows(4, 3))
    buffer.storage.load_state_dict(state)
    buffer.add(rows(50, 1)[0])
    assert numbers(buffer[:]) == [0, 1, 2, 3, 50]


def test_writers_continue_at_the_cursor_once_restored_rows_fill_the_buffer(tmp_path) -> None:
    buffer = make(tmp_path / "ring")
    buffer.extend(rows(0, 12))
    save_buffer(buffer, tmp_path / "state")
    buffer.extend(rows(12, 15))
    with pytest.warns(UserWarning, match="newer rows have replaced"):
        load_buffer(buffer, tmp_path / "state")
    buffer.extend(rows(50, 8))
    assert len(buffer) == 20
    assert buffer._writer._cursor == buffer.storage.cursor == 7


@pytest.mark.parametrize(("saved", "more"), [(3, 20), (3, 37), (20, 20), (12, 9)])
def test_warns_of_overwritten_rows_wherever_the_cursor_is(tmp_path, saved, more) -> None:
    buffer = make(tmp_path / "ring")
    buffer.extend(rows(0, saved))
    save_buffer(buffer, tmp_path / "state")
    for first in range(saved, saved + more, 5):
        buffer.extend(rows(first, min(5, saved + more - first)))
    with pytest.warns(UserWarning, match="newer rows have replaced"):
        load_buffer(buffer, tmp_path / "state")


def test_warns_of_rows_that_were_replaced_after_another_load(tmp_path) -> None:
    buffer = make(tmp_path / "ring")
    buffer.extend(rows(0, 3))
    save_buffer(buffer, tmp_path / "three")
    buffer.extend(rows(3, 5))
    save_buffer(buffer, tmp_path / "eight")
    load_buffer(buffer, tmp_path / "three")
    buffer.extend(rows(50, 5))
    with pytest.warns(UserWarning, match="newer rows have replaced"):
        load_buffer(buffer, tmp_path / "eight")


@pytest.mark.parametrize(("saved", "more"), [(0, 27), (3, 17), (12, 8), (20, 0)])
def test_does_not_warn_while_all_rows_of_the_save_exist(tmp_path, saved, more) -> None:
    buffer = make(tmp_path / "ring")
    if saved:
        buffer.extend(rows(0, saved))
    save_buffer(buffer, tmp_path / "state")
    if more:
        buffer.extend(rows(saved, more))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        load_buffer(buffer, tmp_path / "state")
    assert numbers(buffer[:]) == list(range(saved)) if saved else len(buffer) == 0


def test_a_closed_storage_is_saved_and_pickled(tmp_path) -> None:
    buffer = make(tmp_path / "ring")
    buffer.extend(rows(0, 12))
    buffer.storage.close()
    reader = pickle.loads(pickle.dumps(buffer.storage))
    assert numbers(reader[:]) == list(range(12))
    save_buffer(buffer, tmp_path / "state")
    with pytest.raises(tenfold.UnsupportedError):
        buffer.extend(rows(12, 1))
    again = make(tmp_path / "ring")
    load_buffer(again, tmp_path / "state")
    again.extend(rows(12, 1))
    assert numbers(again[:]) == list(range(13))


def test_a_storage_that_was_closed_before_the_first_row_refuses_rows(tmp_path) -> None:
    with RingStorage(tmp_path / "ring", 20) as storage:
        pass
    with pytest.raises(tenfold.UnsupportedError, match="RingStorage was closed; open it again"):
        storage.set(0, rows(0, 1)[0])
    assert not (tmp_path / "ring").exists()
    make(tmp_path / "ring").extend(rows(0, 3))
    assert numbers(storage[:]) == [0, 1, 2]


def test_a_circular_buffer_that_another_object_creates_is_opened(tmp_path) -> None:
    first, second = make(tmp_path / "ring"), make(tmp_path / "ring")
    reader = pickle.loads(pickle.dumps(first.storage))
    assert not reader.initialized
    first.extend(rows(0, 3))
    assert reader.initialized
    assert numbers(reader[:]) == [0, 1, 2]
    first.storage.close()
    with pytest.raises(FileExistsError, match="created the circular buffer, with 3 rows; repeat"):
        second.extend(rows(3, 2))
    second.extend(rows(3, 2))
    assert numbers(second[:]) == numbers(reader[:]) == list(range(5))


def test_a_circular_buffer_that_another_object_creates_is_written(tmp_path) -> None:
    first, second = (RingStorage(tmp_path / "ring", 20) for _ in range(2))
    first.set(range(3), rows(0, 3))
    first.close()
    second.set(range(2, 5), rows(50, 3))
    assert numbers(second[:]) == [0, 1, 50, 51, 52]
    other = RingStorage(tmp_path / "other", 30)
    RingStorage(tmp_path / "other", 20).set(0, rows(0, 1)[0])
    with pytest.raises(ValueError, match="of 30 rows, found one of 20"):
        len(other)


@pytest.mark.parametrize("absent", ["action", ("next", "done")])
def test_new_rows_that_replace_rows_after_a_load_must_have_all_entries(tmp_path, absent) -> None:
    buffer = make(tmp_path / "ring")
    buffer.extend(rows(0, 12))
    save_buffer(buffer, tmp_path / "state")
    buffer.extend(rows(12, 3))
    load_buffer(buffer, tmp_path / "state")
    with pytest.raises(ValueError, match="expected a value in each new row, found none"):
        buffer.extend(rows(50, 5).exclude(absent))
    assert numbers(buffer[:]) == list(range(12))
    assert tenfold.Dataset(tmp_path / "ring")[:]["action"].tolist() == list(range(15))
    buffer.extend(rows(50, 5))
    assert numbers(buffer[:]) == [*range(12), *range(50, 55)]
    buffer[0] = buffer[[1]][0].exclude(absent)  # slot 0 keeps its old value of the entry
    assert buffer[0]["action"] == (0 if absent == "action" else 1)


def test_buffer_dumps_loads_and_state_dict_round_trip(tmp_path) -> None:
    buffer = make(tmp_path / "ring")
    buffer.extend(rows(0, 12))
    buffer.dumps(tmp_path / "dump")
    buffer.extend(rows(12, 3))
    buffer.loads(tmp_path / "dump")
    assert len(buffer) == 12
    state = buffer.state_dict()
    buffer.extend(rows(50, 2))
    assert numbers(buffer[:])[-2:] == [50, 51]
    buffer.load_state_dict(state)
    assert len(buffer) == 12


@pytest.mark.parametrize("content", [b"", b'{"length"', b"[]", b"\xff", b'{"length": 3}'])
def test_a_damaged_document_of_a_dump_is_refused(tmp_path, content) -> None:
    buffer = make(tmp_path / "ring")
    buffer.extend(rows(0, 12))
    buffer.dumps(tmp_path / "dump")
    (document,) = (tmp_path / "dump").rglob("ring.json")
    document.write_bytes(content)
    with pytest.raises(tenfold.CorruptFileError, match=r"ring\.json: expected "):
        buffer.loads(tmp_path / "dump")
    assert len(buffer) == 12


def test_a_damaged_state_is_refused(tmp_path) -> None:
    buffer = make(tmp_path / "ring")
    buffer.extend(rows(0, 12))
    save_buffer(buffer, tmp_path / "state")
    path = tmp_path / "state/buffer.safetensors"
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    with pytest.raises(tenfold.CorruptFileError, match=r"buffer\.safetensors"):
        load_buffer(buffer, tmp_path / "state")


@pytest.mark.parametrize("failing", ["sampler", "writer", "transform"])
def test_a_state_that_a_component_refuses_changes_nothing(tmp_path, monkeypatch, failing) -> None:
    kind = RandomSampler if failing == "sampler" else SamplerWithoutReplacement
    buffer = make(tmp_path / "ring", sampler=kind())
    buffer.extend(rows(0, 12))
    save_buffer(buffer, tmp_path / "state")
    buffer.storage.close()
    buffer = make(tmp_path / "ring", sampler=SamplerWithoutReplacement())
    buffer.extend(rows(12, 3))
    buffer.sample()
    load = type(buffer._writer).load_state_dict

    def refuse(writer, state) -> None:
        load(writer, state)
        if state["_cursor"] == 12:
            raise KeyError("_cursor")

    if failing == "writer":
        monkeypatch.setattr(type(buffer._writer), "load_state_dict", refuse)
    if failing == "transform":
        buffer.append_transform(Parameters())
    before = [part.state_dict() for part in (buffer._sampler, buffer._writer)]
    with pytest.raises(
        ValueError, match=f"{failing}: expected a state that .* accepts, found another"
    ):
        load_buffer(buffer, tmp_path / "state")
    after = [part.state_dict() for part in (buffer._sampler, buffer._writer)]
    assert str(after) == str(before)
    assert (len(buffer), buffer.storage.cursor) == (15, 15)


@pytest.mark.parametrize("value", ["x", NonTensorStack("x", "y", "z")], ids=["one", "of each row"])
def test_rows_with_strings_are_refused(tmp_path, value) -> None:
    buffer = make(tmp_path / "ring")
    buffer.extend(rows(0, 3))
    with pytest.raises(
        tenfold.UnsupportedError, match=r'entry "s": expected a tensor, found NonTensor(Data|Stack)'
    ):
        buffer.extend(rows(3, 3).set("s", value))
    assert len(buffer) == 3


def test_emptied_buffer_accepts_rows_with_another_schema(tmp_path) -> None:
    buffer = make(tmp_path / "ring")
    buffer.extend(rows(0, 12))
    buffer.empty()
    assert len(buffer) == 0
    with pytest.raises(IndexError, match="empty"):
        buffer[0]
    other = TensorDict({"x": torch.arange(3)}, [3])
    buffer.extend(other)
    assert buffer[:]["x"].tolist() == [0, 1, 2]
    assert tenfold.Dataset(tmp_path / "ring").columns == ["x", "index"]


KILLED = """
import sys, torch
sys.path.append(sys.argv[2])
from test_torchrl import make, rows
buffer = make(sys.argv[1], 5000)
number = 0
while True:
    buffer.extend(rows(number, 1000))
    number += 1000
    print(number, flush=True)
"""


def test_sigkill_of_the_writer_leaves_complete_rows(tmp_path, kill_after) -> None:
    written = int(kill_after(KILLED, 12, tmp_path / "ring", Path(__file__).parent))
    again = make(tmp_path / "ring", 5000)
    found = numbers(again[:])
    assert len(set(found)) == len(found) >= 4000  # rows that were being overwritten are dropped
    assert max(found) >= written - 1
    again.extend(rows(10**6, 500))
    numbers(again[:])


def sample_in_another_process(path: Path, results) -> None:
    buffer = TensorDictReplayBuffer(storage=RingStorage(path, mode="r"), batch_size=8)
    results.put((len(buffer), numbers(buffer.sample())))
    with pytest.raises(tenfold.UnsupportedError, match='mode "r"'):
        buffer.extend(rows(0, 1))
    results.put("refused")


def test_another_process_samples_while_the_writer_is_open(tmp_path) -> None:
    buffer = make(tmp_path / "ring")
    buffer.extend(rows(0, 12))
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=sample_in_another_process, args=(tmp_path / "ring", results))
    process.start()
    length, found = results.get(timeout=100)
    assert results.get(timeout=100) == "refused"
    process.join()
    assert length == 12
    assert set(found) <= set(range(12))


def test_readers_and_unpickled_storages_see_newly_appended_rows(tmp_path) -> None:
    buffer = make(tmp_path / "ring")
    buffer.extend(rows(0, 5))
    readers = [RingStorage(tmp_path / "ring", mode="r"), pickle.loads(pickle.dumps(buffer.storage))]
    buffer.extend(rows(5, 5))
    for reader in readers:
        assert len(reader) == 10
        assert numbers(reader[:]) == list(range(10))
        with pytest.raises(tenfold.UnsupportedError, match='mode "r"'):
            reader.set(0, rows(0, 1)[0])


@tensorclass
class Row:
    x: torch.Tensor


def test_misuse_raises_clear_errors(tmp_path) -> None:
    with pytest.raises(FileNotFoundError):
        RingStorage(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        RingStorage(tmp_path / "none", 10, mode="r")
    with pytest.raises(ValueError, match="mode"):
        RingStorage(tmp_path / "none", 10, mode="w")
    with pytest.raises(ValueError, match="max_size"):
        RingStorage(tmp_path / "none", 0)
    with pytest.raises(TypeError, match="max_size"):
        RingStorage(tmp_path / "none", 1.5)
    tenfold.ingest({"x": torch.arange(3)}, tmp_path / "table")
    with pytest.raises(ValueError, match="expected a circular buffer of 10 rows, found a data set"):
        RingStorage(tmp_path / "table", 10)
    buffer = make(tmp_path / "ring")
    assert len(buffer) == 0
    with pytest.raises(RuntimeError, match="empty"):
        buffer.sample()
    buffer.extend(rows(0, 5))
    with pytest.raises(OSError, match="ring"):
        make(tmp_path / "ring").extend(rows(0, 1))
    buffer.storage.close()
    with pytest.raises(ValueError, match="of 30 rows, found one of 20"):
        RingStorage(tmp_path / "ring", 30)
    buffer = make(tmp_path / "ring")
    with pytest.raises(ValueError, match="action"):
        buffer.extend(rows(0, 2).exclude("action"))
    with pytest.raises(ValueError, match="more"):
        buffer.extend(rows(0, 2).set("more", torch.zeros(2)))
    with pytest.raises(ValueError, match="observation"):
        buffer.extend(rows(0, 2).set("observation", torch.zeros(2, 4)))
    assert len(buffer) == 5
    buffer.extend(rows(5, 2))  # appended after the existing rows
    assert numbers(buffer[:]) == list(range(7))
    with pytest.raises(ValueError, match=r"reshape\(-1\)"):
        make(tmp_path / "other").extend(TensorDict({"x": torch.zeros(2, 3)}, [2, 3]))
    with pytest.raises(TypeError, match=r"expected a TensorDict .*, found Tensor"):
        ReplayBuffer(storage=RingStorage(tmp_path / "other", 5)).extend(torch.zeros(3))
    with pytest.raises(TypeError, match=r"expected a TensorDict .*, found Row"):
        ReplayBuffer(storage=RingStorage(tmp_path / "other", 5)).extend(
            Row(torch.zeros(3), batch_size=[3])
        )
    with pytest.raises(tenfold.UnsupportedError, match='"text"'):
        make(tmp_path / "other").add(TensorDict({"text": "hello", "x": torch.zeros(1)}, []))
    assert not (tmp_path / "other").exists()
    in_memory = TensorDictReplayBuffer(storage=LazyTensorStorage(5))
    with pytest.raises(TypeError, match="expected a buffer over a RingStorage, found LazyTensor"):
        save_buffer(in_memory, tmp_path / "state")
    with pytest.raises(tenfold.UnsupportedError, match="prefetch"):
        save_buffer(make(tmp_path / "other", prefetch=2), tmp_path / "state")


def test_without_torchrl_the_error_names_the_extra(run_python) -> None:
    program = """
import sys
sys.modules["torchrl"] = None
try:
    import tenfold.torchrl
except ImportError as error:
    assert 'pip install "tenfold[torchrl]"' in str(error), error
else:
    sys.exit("imported")
"""
    run_python(program)
