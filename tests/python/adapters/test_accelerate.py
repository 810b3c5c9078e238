"""`tenfold.accelerate` saves the state of an Accelerator like Accelerate's `save_state`."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")
accelerate = pytest.importorskip("accelerate", reason="Accelerate is not installed")

from accelerate.state import AcceleratorState, GradientState, PartialState  # noqa: E402
from accelerate.utils import ProjectConfiguration  # noqa: E402

import tenfold  # noqa: E402
from tenfold import _staging  # noqa: E402
from tenfold.accelerate import load_state, save_state  # noqa: E402
from tenfold.checkpoint import _rng  # noqa: E402


@pytest.fixture(autouse=True)
def _fresh():
    yield
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


class Counter:
    """A registered object."""

    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> dict:
        return {"count": self.count, "history": torch.arange(self.count)}

    def load_state_dict(self, state: dict) -> None:
        assert len(state["history"]) == state["count"]
        self.count = state["count"]


class Training:
    """All objects that an Accelerator saves. epoch() uses the RNGs of Python, NumPy and torch."""

    def __init__(self, seed: int = 0, num_models: int = 1, **options) -> None:
        for state in (AcceleratorState, GradientState, PartialState):
            state._reset_state()
        self.seed(seed)
        self.accelerator = accelerate.Accelerator(cpu=True, **options)
        self.models = [
            torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
            for _ in range(num_models)
        ]
        self.optimizers = [torch.optim.AdamW(model.parameters(), lr=0.1) for model in self.models]
        self.schedulers = [
            torch.optim.lr_scheduler.CosineAnnealingLR(o, 9) for o in self.optimizers
        ]
        rows = torch.arange(48.0).reshape(16, 3) / 48
        loader = torch.utils.data.DataLoader(rows, batch_size=4, shuffle=True)
        prepared = self.accelerator.prepare(
            *self.models, *self.optimizers, *self.schedulers, loader
        )
        n = num_models
        self.models, self.optimizers = prepared[:n], prepared[n : 2 * n]
        self.schedulers, self.loader = prepared[2 * n : 3 * n], prepared[-1]
        self.counter = Counter()
        self.accelerator.register_for_checkpointing(self.counter)

    @staticmethod
    def seed(seed: int) -> None:
        random.seed(seed)
        numpy.random.seed(seed)
        torch.manual_seed(seed)

    def epoch(self) -> list[float]:
        losses = []
        for rows in self.loader:
            noise = random.random() + float(numpy.random.rand())
            loss = sum(model(rows).pow(2).mean() for model in self.models) * noise
            self.accelerator.backward(loss)
            for optimizer, scheduler in zip(self.optimizers, self.schedulers, strict=True):
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            self.counter.count += 1
            losses.append(loss.item())
        return losses


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("num_models", [1, 2])
def test_resumed_training_has_the_losses_of_an_uninterrupted_one(tmp_path, num_models) -> None:
    training = Training(num_models=num_models)
    training.epoch()
    assert save_state(training.accelerator, tmp_path / "state") == tmp_path / "state"
    expected = training.epoch()
    again = Training(seed=9, num_models=num_models)
    assert load_state(again.accelerator, str(tmp_path / "state")) == tmp_path / "state"
    assert again.counter.count == 4
    assert again.loader.iteration == 1
    assert again.epoch() == expected
    stems = ["model", "optimizer", "scheduler"]
    files = [f"{stem}{suffix}.safetensors" for stem in stems for suffix in ["", "_1"][:num_models]]
    files += ["custom_checkpoint_0.safetensors", "random_states_0.safetensors"]
    assert names(tmp_path / "state") == sorted([*files, "sampler.safetensors", _staging.MANIFEST])
    for file in files:
        assert tenfold.verify(tmp_path / "state" / file).ok
    assert not any(b"pickle" in (tmp_path / "state" / file).read_bytes() for file in files)


def test_loads_files_saved_by_accelerate(tmp_path) -> None:
    training = Training()
    training.epoch()
    training.accelerator.save_state(tmp_path / "state")
    expected = training.epoch()
    again = Training(seed=9)
    load_state(again.accelerator, tmp_path / "state")
    assert again.counter.count == 4
    assert again.epoch() == expected


def test_random_numbers_of_accelerate_are_restored(tmp_path) -> None:
    training = Training()
    training.epoch()
    training.accelerator.save_state(tmp_path / "state")

    def draw() -> tuple[float, float, float]:
        return random.random(), float(numpy.random.rand()), torch.rand(1).item()

    expected = draw()
    again = Training(seed=9)
    load_state(again.accelerator, tmp_path / "state")
    assert draw() == expected


def test_random_states_of_accelerate_that_cannot_be_restored_are_warnings(
    tmp_path, monkeypatch
) -> None:
    training = Training()
    training.accelerator.save_state(tmp_path / "state")
    path = tmp_path / "state/random_states_0.pkl"
    states = torch.load(path, weights_only=False)
    states["torch_cuda_manual_seed"] = [torch.get_rng_state()]
    torch.save(states, path)
    expected = torch.rand(1)

    def missing() -> None:
        raise ImportError("No module named 'numpy'")

    again = Training(seed=9)
    monkeypatch.setattr(_rng, "numpy_module", missing)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with (
        pytest.warns(UserWarning, match="numpy: random numbers are not restored"),
        pytest.warns(UserWarning, match="cuda from device 0: random numbers are not restored"),
    ):
        load_state(again.accelerator, tmp_path / "state")
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("stem", ["model", "optimizer", "random_states_0", "custom_checkpoint_0"])
def test_flipped_bit_raises_and_changes_no_object(tmp_path, stem) -> None:
    training = Training()
    training.epoch()
    save_state(training.accelerator, tmp_path / "state")
    flip(tmp_path / "state" / f"{stem}.safetensors")
    again = Training(seed=9)
    before = {name: value.clone() for name, value in again.models[0].state_dict().items()}
    random_before = torch.get_rng_state()
    with pytest.raises(tenfold.CorruptFileError, match=rf"{stem}\.safetensors: expected CRC-32"):
        load_state(again.accelerator, tmp_path / "state")
    for name, value in again.models[0].state_dict().items():
        assert torch.equal(value, before[name])
    assert torch.equal(torch.get_rng_state(), random_before)
    assert again.counter.count == 0


def test_failed_save_keeps_the_previous_state(tmp_path) -> None:
    training = Training()
    training.epoch()
    save_state(training.accelerator, tmp_path / "state")
    training.counter.state_dict = lambda: {"function": print}
    with pytest.raises(tenfold.UnsupportedError, match="function"):
        save_state(training.accelerator, tmp_path / "state")
    assert names(tmp_path) == ["state"]
    again = Training(seed=9)
    load_state(again.accelerator, tmp_path / "state")
    assert again.counter.count == 4


KILLED = """
import sys, torch
from accelerate import Accelerator
from tenfold.accelerate import save_state
accelerator = Accelerator(cpu=True)
model = accelerator.prepare(torch.nn.Linear(300, 300))
class Step:
    def state_dict(self): return {"step": step}
    def load_state_dict(self, state): pass
accelerator.register_for_checkpointing(Step())
for step in range(100_000):
    torch.nn.init.constant_(model.weight, step)
    save_state(accelerator, sys.argv[1])
    print(step, flush=True)
"""


def test_sigkill_during_save_leaves_a_complete_state(tmp_path, kill_after) -> None:
    step = int(kill_after(KILLED, 7, tmp_path / "state"))
    assert _staging.check(tmp_path / "state")
    found = tenfold.load(tmp_path / "state/custom_checkpoint_0.safetensors")["step"]
    assert found >= step
    assert bool((tenfold.load(tmp_path / "state/model.safetensors")["weight"] == found).all())


def test_automatic_checkpoint_naming_respects_total_limit(tmp_path) -> None:
    project = ProjectConfiguration(
        project_dir=str(tmp_path), automatic_checkpoint_naming=True, total_limit=2
    )
    training = Training(project_config=project)
    for _ in range(3):
        training.epoch()
        saved = save_state(training.accelerator)
    assert saved == tmp_path / "checkpoints/checkpoint_2"
    assert names(tmp_path / "checkpoints") == ["checkpoint_1", "checkpoint_2"]
    training.counter.count = 0
    assert load_state(training.accelerator) == saved
    assert training.counter.count == 12
    saved.rename(saved.with_name("_checkpoint_2.replaced"))  # by an interrupted replacement
    assert load_state(training.accelerator) == saved
    saved.rename(saved.with_name("_checkpoint_2.replaced"))
    training.accelerator.project_configuration.iteration = 0  # as after a restart
    assert save_state(training.accelerator) == tmp_path / "checkpoints/checkpoint_3"
    assert names(tmp_path / "checkpoints") == ["checkpoint_2", "checkpoint_3"]
    assert training.accelerator.project_configuration.iteration == 4
    training.accelerator.project_configuration.iteration = 10
    assert save_state(training.accelerator) == tmp_path / "checkpoints/checkpoint_10"
    assert names(tmp_path / "checkpoints") == ["checkpoint_10", "checkpoint_3"]


@pytest.mark.parametrize("call", [save_state, load_state])
def test_automatic_checkpoint_naming_needs_a_project_directory(call) -> None:
    project = ProjectConfiguration(automatic_checkpoint_naming=True)
    with pytest.raises(ValueError, match=r"project_dir: expected a path .*, found None"):
        call(Training(project_config=project).accelerator)


def test_a_compiled_model_has_the_names_of_the_unwrapped_model(tmp_path) -> None:
    accelerator = accelerate.Accelerator(cpu=True)
    model = torch.nn.Linear(2, 3)
    accelerator.prepare(torch.compile(model, backend="eager"))
    weight = model.weight.detach().clone()
    save_state(accelerator, tmp_path / "ours")
    accelerator.save_state(tmp_path / "theirs")
    assert set(tenfold.load(tmp_path / "ours/model.safetensors")) == {"weight", "bias"}
    for folder in ("ours", "theirs"):
        torch.nn.init.zeros_(model.weight)
        load_state(accelerator, tmp_path / folder)
        assert torch.equal(model.weight, weight)


def test_save_and_load_expand_the_home_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    accelerator = Training().accelerator
    assert save_state(accelerator, "~/state") == tmp_path / "state"
    assert load_state(accelerator, "~/state") == tmp_path / "state"


def test_hooks_can_write_files_and_remove_weights(tmp_path) -> None:
    training = Training(num_models=2)

    def save_hook(models, weights, folder) -> None:
        Path(folder, "first.txt").write_text(type(models[0]).__name__)
        weights.pop(0)

    def load_hook(models, folder) -> None:
        assert Path(folder, "first.txt").read_text() == "Sequential"
        models.pop(0)

    training.accelerator.register_save_state_pre_hook(save_hook)
    training.accelerator.register_load_state_pre_hook(load_hook)
    save_state(training.accelerator, tmp_path / "state")
    assert "first.txt" in names(tmp_path / "state")
    assert "model_1.safetensors" not in names(tmp_path / "state")
    expected = training.models[1][0].weight.clone()
    torch.nn.init.zeros_(training.models[1][0].weight)
    load_state(training.accelerator, tmp_path / "state")
    assert torch.equal(training.models[1][0].weight, expected)


def test_folder_with_foreign_files_is_not_overwritten(tmp_path) -> None:
    training = Training()
    (tmp_path / "work").mkdir()
    (tmp_path / "work/thesis.tex").write_text("x")
    with pytest.raises(FileExistsError, match=r"thesis\.tex.*use a separate folder"):
        save_state(training.accelerator, tmp_path / "work")
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileExistsError):
        save_state(training.accelerator, tmp_path / "file")
    assert names(tmp_path / "work") == ["thesis.tex"]
    save_state(training.accelerator, tmp_path / "state")
    (tmp_path / "state/notes.txt").write_text("a good one")
    save_state(training.accelerator, tmp_path / "state")
    assert (tmp_path / "state/notes.txt").read_text() == "a good one"


def test_replaces_a_checkpoint_of_accelerate_that_has_more_files(tmp_path) -> None:
    training = Training()
    training.accelerator.register_for_checkpointing(Counter())
    training.accelerator.save_state(tmp_path / "state")
    assert "custom_checkpoint_1.pkl" in names(tmp_path / "state")
    (tmp_path / "state/notes.txt").write_text("mine")
    training = Training()
    training.epoch()
    save_state(training.accelerator, tmp_path / "state")
    assert {Path(name).suffix for name in names(tmp_path / "state")} == {
        ".safetensors",
        ".json",
        ".txt",
    }
    again = Training(seed=9)
    load_state(again.accelerator, tmp_path / "state")
    assert again.counter.count == 4


def test_misuse_raises_clear_errors(tmp_path) -> None:
    training = Training()
    with pytest.raises(ValueError, match="output_dir"):
        save_state(training.accelerator)
    with pytest.raises(ValueError, match="input_dir"):
        load_state(training.accelerator)
    with pytest.raises(FileNotFoundError, match="none"):
        load_state(training.accelerator, tmp_path / "none")
    with pytest.raises(TypeError, match="strict"):
        load_state(training.accelerator, tmp_path, strict="yes")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"empty: expected model\.safetensors"):
        load_state(training.accelerator, tmp_path / "empty")
    save_state(training.accelerator, tmp_path / "state")
    training.accelerator._custom_objects.clear()
    with pytest.raises(ValueError, match="expected the states of 0 registered objects, found more"):
        load_state(training.accelerator, tmp_path / "state")
    other = Training()
    other.models[0][0] = torch.nn.Linear(3, 5)
    with pytest.raises(ValueError, match=r"0\.weight"):
        load_state(other.accelerator, tmp_path / "state")


def test_sharded_training_raises_unsupported_error(tmp_path, monkeypatch) -> None:
    training = Training()
    monkeypatch.setattr(
        type(training.accelerator), "distributed_type", accelerate.DistributedType.FSDP
    )
    with pytest.raises(tenfold.UnsupportedError, match=r"FSDP.*accelerator\.save_state\(\)"):
        save_state(training.accelerator, tmp_path / "state")


def test_a_stateful_loader_resumes_within_an_epoch(tmp_path) -> None:
    pytest.importorskip("torchdata", reason="torchdata is not installed")
    config = accelerate.DataLoaderConfiguration(
        use_stateful_dataloader=True, use_seedable_sampler=True
    )
    training = Training(dataloader_config=config)
    batches = iter(training.loader)
    next(batches)
    save_state(training.accelerator, tmp_path / "state")
    expected = [batch.tolist() for batch in batches]
    again = Training(seed=9, dataloader_config=config)
    load_state(again.accelerator, tmp_path / "state")
    assert [batch.tolist() for batch in again.loader] == expected


RANKS = """
import sys, random, torch
from accelerate import Accelerator
from tenfold.accelerate import load_state, save_state
accelerator = Accelerator(cpu=True)
rank = accelerator.process_index
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.AdamW(model.parameters())
model, optimizer = accelerator.prepare(model, optimizer)
random.seed(rank)
accelerator.backward(model(torch.rand(4, 2)).sum())
optimizer.step()
save_state(accelerator, sys.argv[1])
expected = random.random()
weight = accelerator.unwrap_model(model).weight.clone()
torch.nn.init.zeros_(accelerator.unwrap_model(model).weight)
load_state(accelerator, sys.argv[1])
assert random.random() == expected
assert torch.equal(accelerator.unwrap_model(model).weight, weight)
"""


FAILING_RANKS = """
import os, sys, torch
import tenfold.accelerate
from accelerate import Accelerator
from tenfold import UnsupportedError, _staging
from tenfold.accelerate import load_state, save_state
accelerator = Accelerator(cpu=True)
rank = accelerator.process_index
model = accelerator.prepare(torch.nn.Linear(2, 2))
class Held:
    value = 1
    def state_dict(self): return {"value": self.value}
    def load_state_dict(self, state): self.value = state["value"]
held = Held()
accelerator.register_for_checkpointing(held)
save_state(accelerator, sys.argv[1])

def fails(kind, text, failing, call, *arguments):
    try:
        call(accelerator, sys.argv[1])
    except kind as error:
        assert text in str(error), error
        assert ("rank %d:" % failing in str(error)) == (rank != failing), error
    else:
        raise AssertionError("no error")

held.value = print  # only rank 0 writes it
fails(UnsupportedError, "expected", 0, save_state)
held.value = 2
def own(self): raise RuntimeError("no state today")
if rank == 1:
    Held.state_dict = own
fails(RuntimeError, "no state today", 1, save_state)
Held.state_dict = lambda self: {"value": self.value}
rename = _staging._rename_over
def full(folder, path): raise OSError(28, "No space left on device")
_staging._rename_over = full
fails(OSError, "No space left", 0, save_state)
_staging._rename_over = rename
assert rank or os.listdir(os.path.dirname(sys.argv[1])) == ["state"]
project = accelerator.project_configuration
project.set_directories(os.path.dirname(os.path.dirname(sys.argv[1])))
project.automatic_checkpoint_naming = True
prune = tenfold.accelerate._prune
tenfold.accelerate._prune = full
fails(OSError, "No space left", 0, save_state)
tenfold.accelerate._prune = prune
project.automatic_checkpoint_naming = False
load_state(accelerator, sys.argv[1])
assert held.value == 1
"""


DAMAGED_NODE = """
import shutil, sys, torch
from pathlib import Path
import tenfold.accelerate
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from tenfold.accelerate import load_state, save_state
accelerator = Accelerator(cpu=True, project_config=ProjectConfiguration(save_on_each_node=True))
rank = accelerator.process_index
model = accelerator.prepare(torch.nn.Linear(2, 2))
path = Path(sys.argv[1])
save_state(accelerator, path)
weight = next(model.parameters())
torch.nn.init.zeros_(weight)
# Two nodes: each process is the first one of its node, and has a folder of its own.
type(accelerator).is_local_main_process = True
folder = path.with_name("node%d" % rank)
shutil.copytree(path, folder)
if rank == 1:
    file = folder / "random_states_0.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
check = tenfold.accelerate.check
tenfold.accelerate.check = lambda path: check(folder)
try:
    load_state(accelerator, path)
except tenfold.CorruptFileError as error:
    assert "node1: random_states_0.safetensors: expected CRC-32" in str(error), error
else:
    raise AssertionError("no error")
assert not weight.any()
"""


@pytest.mark.timeout(300)
def test_a_damaged_file_on_one_node_raises_in_all_processes(tmp_path) -> None:
    run_two(DAMAGED_NODE, tmp_path, tmp_path / "saved/state")


def run_two(program: str, folder: Path, state: Path) -> None:
    (folder / "program.py").write_text(program)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(folder / "program.py"), str(state)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=140)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_a_save_that_fails_in_one_process_fails_in_all(tmp_path) -> None:
    run_two(FAILING_RANKS, tmp_path, tmp_path / "saved/state")


@pytest.mark.timeout(300)
def test_two_processes_save_and_load_one_state(tmp_path) -> None:
    run_two(RANKS, tmp_path, tmp_path / "state")
    assert names(tmp_path / "state") == [
        "model.safetensors",
        "optimizer.safetensors",
        "random_states_0.safetensors",
        "random_states_1.safetensors",
        _staging.MANIFEST,
    ]
    # The names lack the prefix of DistributedDataParallel.
    assert sorted(tenfold.load(tmp_path / "state/model.safetensors")) == ["bias", "weight"]


def test_without_accelerate_the_error_names_the_extra(run_python) -> None:
    program = """
import sys
sys.modules["accelerate"] = None
try:
    import tenfold.accelerate
except ImportError as error:
    assert 'pip install "tenfold[accelerate]"' in str(error), error
else:
    sys.exit("imported")
"""
    run_python(program)
