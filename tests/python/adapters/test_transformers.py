"""`tenfold.transformers.AtomicCheckpointMixin` in Hugging Face's own Trainer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="Accelerate is not installed")

HERE = Path(__file__).parent
sys.path.append(str(HERE))

from tiny_trainer import AtomicTrainer, make  # noqa: E402

import tenfold  # noqa: E402
from tenfold import _staging  # noqa: E402
from tenfold.transformers import AtomicCheckpointMixin  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def flip(path: Path, offset: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if offset is None else offset] ^= 4
    path.write_bytes(data)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Runs a training without interruption. Returns its folder and the losses by step."""
    folder = tmp_path_factory.mktemp("whole")
    trainer, losses = make(folder)
    trainer.train()
    return folder, losses


@pytest.fixture
def run(whole, tmp_path):
    shutil.copytree(whole[0], tmp_path / "run")
    return tmp_path / "run"


def test_checkpoints_have_the_files_of_trainer_and_a_manifest(whole) -> None:
    folder, _ = whole
    assert names(folder) == ["checkpoint-12", "checkpoint-4", "checkpoint-8"]
    for path in folder.iterdir():
        manifest = json.loads((path / _staging.MANIFEST).read_text())
        assert sorted([*manifest["files"], _staging.MANIFEST]) == names(path)
        assert {"model.safetensors", "optimizer.pt", "rng_state.pth", "trainer_state.json"} <= set(
            manifest["files"]
        )
        assert _staging.check(path)


def test_resumed_training_has_the_losses_of_an_uninterrupted_one(whole, run) -> None:
    shutil.rmtree(run / "checkpoint-12")
    shutil.rmtree(run / "checkpoint-8")
    trainer, losses = make(run)
    trainer.train(resume_from_checkpoint=True)
    assert losses == {step: loss for step, loss in whole[1].items() if step > 4}
    assert names(run) == ["checkpoint-12", "checkpoint-4", "checkpoint-8"]


def test_plain_trainer_resumes_from_our_checkpoint(whole, run) -> None:
    trainer, losses = make(run, transformers.Trainer)
    trainer.train(resume_from_checkpoint=str(run / "checkpoint-4"))
    assert losses == {step: loss for step, loss in whole[1].items() if step > 4}


def test_resumes_from_checkpoints_of_plain_trainer(whole, tmp_path) -> None:
    make(tmp_path, transformers.Trainer, max_steps=12)[0].train()
    shutil.rmtree(tmp_path / "checkpoint-12")
    trainer, losses = make(tmp_path)
    trainer.train(resume_from_checkpoint=True)
    assert losses == {step: loss for step, loss in whole[1].items() if step > 8}


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.pt", "trainer_state.json", "training_args.bin"]
)
def test_flipped_bit_raises_corrupt_file_error(run, name) -> None:
    flip(run / "checkpoint-8" / name)
    trainer, losses = make(run)
    with pytest.raises(tenfold.CorruptFileError, match=rf"checkpoint-8: {name}: expected CRC-32"):
        trainer.train(resume_from_checkpoint=str(run / "checkpoint-8"))
    assert losses == {}


def test_missing_and_truncated_files_are_both_named_in_the_error(run) -> None:
    (run / "checkpoint-8/scheduler.pt").unlink()
    os.truncate(run / "checkpoint-8/model.safetensors", 100)
    with pytest.raises(tenfold.CorruptFileError) as caught:
        make(run)[0].train(resume_from_checkpoint=str(run / "checkpoint-8"))
    assert "scheduler.pt: expected" in str(caught.value)
    assert "model.safetensors: expected" in str(caught.value)


def test_flip_of_any_manifest_byte_except_whitespace_is_detected(run) -> None:
    path = run / "checkpoint-8" / _staging.MANIFEST
    original = path.read_bytes()
    missed = []
    for offset in range(len(original)):
        flip(path, offset)
        try:
            _staging.check(path.parent)
        except (tenfold.CorruptFileError, tenfold.UnsupportedError):
            pass
        else:
            missed.append(chr(original[offset]))
        path.write_bytes(original)
    assert set(missed) <= {" ", "\n"}, missed


def test_resume_skips_damaged_checkpoints_with_a_warning(whole, run) -> None:
    flip(run / "checkpoint-12/model.safetensors")
    (run / "checkpoint-20").mkdir()  # left by a Trainer that crashed during a save
    trainer, losses = make(run)
    with pytest.warns(
        UserWarning,
        match=r"checkpoint-12: model\.safetensors.*training resumes from .*checkpoint-8",
    ):
        trainer.train(resume_from_checkpoint=True)
    assert losses == {step: loss for step, loss in whole[1].items() if step > 8}


def test_resume_fails_if_every_checkpoint_is_damaged(run) -> None:
    for path in run.iterdir():
        flip(path / "optimizer.pt")
    with pytest.raises(tenfold.CorruptFileError, match="all checkpoints are damaged"):
        make(run)[0].train(resume_from_checkpoint=True)


def test_missing_checkpoint_raises_the_error_of_trainer(tmp_path) -> None:
    with pytest.raises(ValueError, match="No valid checkpoint"):
        make(tmp_path)[0].train(resume_from_checkpoint=True)
    with pytest.raises(ValueError, match="valid checkpoint"):
        make(tmp_path)[0].train(resume_from_checkpoint=str(tmp_path / "none"))


def test_save_total_limit_keeps_the_newest_and_the_best(tmp_path) -> None:
    trainer, _ = make(
        tmp_path,
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="loss",
        learning_rate=0.5,
        eval_strategy="steps",
        eval_steps=2,
        save_steps=2,
    )
    trainer.train()
    best = Path(trainer.state.best_model_checkpoint)
    assert len(names(tmp_path)) == 2
    assert {best.name, "checkpoint-12"} <= set(names(tmp_path))
    assert best.parent == tmp_path
    state = json.loads((tmp_path / "checkpoint-12/trainer_state.json").read_text())
    assert state["best_model_checkpoint"] == str(best)
    # The best weights were loaded.
    saved = tenfold.load(best / "model.safetensors")
    for name, value in trainer.model.state_dict().items():
        if name in saved:
            assert torch.equal(saved[name], value), name


def test_saved_state_names_the_final_path_of_the_best_checkpoint(tmp_path) -> None:
    options = {"eval_strategy": "steps", "eval_steps": 4, "metric_for_best_model": "loss"}
    make(tmp_path, load_best_model_at_end=True, max_steps=4, **options)[0].train()
    text = (tmp_path / "checkpoint-4/trainer_state.json").read_text()
    assert json.loads(text)["best_model_checkpoint"] == str(tmp_path / "checkpoint-4")
    assert ".staged-" not in text


def test_a_damaged_best_checkpoint_is_not_loaded(tmp_path) -> None:
    class Damaging(AtomicTrainer):
        def _save_checkpoint(self, model, trial) -> None:
            super()._save_checkpoint(model, trial)
            flip(Path(self.state.best_model_checkpoint) / "model.safetensors")

    options = {"eval_strategy": "steps", "eval_steps": 4, "metric_for_best_model": "loss"}
    trainer, _ = make(tmp_path, Damaging, load_best_model_at_end=True, max_steps=4, **options)
    with pytest.raises(tenfold.CorruptFileError, match=r"checkpoint-4: model\.safetensors"):
        trainer.train()


@pytest.mark.parametrize("part", ["save_model", "_save_rng_state", "_save_optimizer_and_scheduler"])
def test_failed_save_leaves_no_partial_checkpoint(tmp_path, part) -> None:
    class Failing(AtomicTrainer):
        pass

    def fail(self, *arguments, **options) -> None:
        if self.state.global_step == 8:
            raise OSError(28, "No space left on device")
        getattr(super(Failing, self), part)(*arguments, **options)

    setattr(Failing, part, fail)
    with pytest.raises(OSError, match="No space left"):
        make(tmp_path, Failing)[0].train()
    assert names(tmp_path) == ["checkpoint-4"]


def test_an_existing_checkpoint_is_replaced_and_unrelated_files_are_kept(run) -> None:
    (run / "checkpoint-8/eval/deep").mkdir(parents=True)
    (run / "checkpoint-8/eval/deep/results.txt").write_text("0.5")
    before = (run / "checkpoint-8/optimizer.pt").read_bytes()
    make(run, seed=11)[0].train()
    assert (run / "checkpoint-8/optimizer.pt").read_bytes() != before
    assert (run / "checkpoint-8/eval/deep/results.txt").read_text() == "0.5"
    assert _staging.check(run / "checkpoint-8")
    assert names(run) == ["checkpoint-12", "checkpoint-4", "checkpoint-8"]


def test_two_renames_replace_exchange_and_a_crash_between_them_is_repaired(
    run, monkeypatch
) -> None:
    monkeypatch.setattr(_staging, "_exchange", lambda folder, path: False)
    make(run, max_steps=4)[0].train()
    assert names(run) == ["checkpoint-12", "checkpoint-4", "checkpoint-8"]
    for argument in (str(run / "checkpoint-8"), True):
        shutil.rmtree(run / "checkpoint-12")
        (run / "checkpoint-8").rename(run / "_checkpoint-8.replaced")
        trainer, losses = make(run)
        trainer.train(resume_from_checkpoint=argument)
        assert min(losses) == 9


def test_staging_folders_of_dead_processes_only_are_removed(tmp_path) -> None:
    dead = tmp_path / "_checkpoint-2.staged-0123abcd"
    dead.mkdir()
    living = _staging.Staging(tmp_path / "checkpoint-3")
    mine = tmp_path / "_checkpoint-2.staged"  # no name of a staging folder
    mine.mkdir()
    make(tmp_path, max_steps=4)[0].train()
    assert not dead.exists()
    assert living.folder.exists()
    living.close()
    assert names(tmp_path) == ["_checkpoint-2.staged", "checkpoint-4"]


KILLED = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
from tiny_trainer import AtomicTrainer, make

class Telling(AtomicTrainer):
    def _save_rng_state(self, folder):
        print(self.state.global_step, flush=True)
        super()._save_rng_state(folder)

make(sys.argv[1], Telling, save_steps=1, max_steps=100_000, save_total_limit=2)[0].train()
"""


def test_sigkill_leaves_complete_checkpoints_and_training_resumes(tmp_path, kill_after) -> None:
    step = int(kill_after(KILLED, 4, tmp_path))
    left = [path for path in tmp_path.iterdir() if path.name.startswith("checkpoint-")]
    assert left
    assert all(_staging.check(path) for path in left)
    assert max(int(path.name.split("-")[1]) for path in left) >= step - 1
    trainer, losses = make(tmp_path, max_steps=step + 5, save_steps=1, save_total_limit=2)
    trainer.train(resume_from_checkpoint=True)
    assert min(losses) >= step
    assert names(tmp_path) == [f"checkpoint-{n}" for n in (step + 4, step + 5)]


def test_push_to_hub_receives_the_final_checkpoint_path(tmp_path, monkeypatch) -> None:
    pushed = []

    def push(self, folder) -> None:
        pushed.append(folder)
        assert _staging.check(Path(folder))

    monkeypatch.setattr(transformers.Trainer, "_push_from_checkpoint", push)
    trainer, _ = make(tmp_path, save_only_model=True)
    trainer.args.push_to_hub = True
    trainer._save_checkpoint(trainer.model, None)
    assert pushed == [str(tmp_path / "checkpoint-0")]


def test_wrong_base_class_order_raises_type_error() -> None:
    with pytest.raises(TypeError, match=r"class Wrong\(AtomicCheckpointMixin, Trainer\)"):

        class Wrong(transformers.Trainer, AtomicCheckpointMixin):
            pass


RANKS = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
from tiny_trainer import make
trainer, losses = make(sys.argv[1], max_steps=int(sys.argv[2]), save_steps=2, save_total_limit=2)
trainer.train(resume_from_checkpoint=sys.argv[3] == "resume")
print("losses", losses)
"""


def run_two_ranks(program: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(program), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=140)
    assert done.returncode == 0, done.stdout + done.stderr


FAILING_PRUNE = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import tenfold.transformers
from tiny_trainer import make
def full(paths): raise OSError(28, "No space left on device")
tenfold.transformers.remove_all = full
trainer, losses = make(sys.argv[1], max_steps=2, save_steps=1, save_total_limit=1)
try:
    trainer.train()
except OSError as error:
    assert "No space left" in str(error), error
else:
    raise AssertionError("no error")
"""


@pytest.mark.timeout(300)
def test_a_removal_that_fails_in_one_process_fails_in_all(tmp_path) -> None:
    program = tmp_path / "program.py"
    program.write_text(FAILING_PRUNE)
    run_two_ranks(program, str(tmp_path / "run"))


@pytest.mark.timeout(300)
def test_two_processes_write_one_checkpoint(tmp_path) -> None:
    program = tmp_path / "program.py"
    program.write_text(RANKS)
    folder = tmp_path / "run"

    def train(steps: int, how: str) -> None:
        run_two_ranks(program, str(folder), str(steps), how)

    train(4, "new")
    assert names(folder) == ["checkpoint-2", "checkpoint-4"]
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= set(names(folder / "checkpoint-4"))
    flip(folder / "checkpoint-4/rng_state_1.pth")
    train(6, "resume")
    assert names(folder) == ["checkpoint-4", "checkpoint-6"]
    assert all(_staging.check(path) for path in folder.iterdir())


SHARDED = """
import os
import sys
from pathlib import Path
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import transformers
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from tenfold.distributed import StorageWriter

folder = Path(sys.argv[1])
dist.init_process_group("gloo")
torch.manual_seed(0)
config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=16, n_positions=8)
model = transformers.GPT2LMHeadModel(config)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
tokens = torch.arange(8).unsqueeze(0)
model(input_ids=tokens, labels=tokens).loss.backward()
optimizer.step()
for name in ("model.safetensors", "sharded/model.safetensors.index.json"):
    writer = StorageWriter(folder / name, shard_size=2000 if name.endswith("json") else None)
    dcp.save(get_model_state_dict(model), storage_writer=writer)
whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
if dist.get_rank() == 0:
    config.save_pretrained(folder)
    config.save_pretrained(folder / "sharded")
    torch.save(whole, folder / "expected.pt")
dist.destroy_process_group()
# With any storage writer, torch's own threads sometimes abort a regular exit ("terminate called
# without an active exception").
os._exit(0)
"""


@pytest.mark.timeout(300)
def test_from_pretrained_reads_what_two_ranks_of_sharded_training_saved(tmp_path) -> None:
    pytest.importorskip("torch.distributed.fsdp")
    program = tmp_path / "program.py"
    program.write_text(SHARDED)
    run_two_ranks(program, str(tmp_path))
    expected = torch.load(tmp_path / "expected.pt")
    for folder in (tmp_path, tmp_path / "sharded"):
        loaded = transformers.GPT2LMHeadModel.from_pretrained(folder).state_dict()
        assert loaded.keys() == expected.keys()
        for name, tensor in expected.items():
            assert torch.equal(loaded[name], tensor), name


def test_without_transformers_the_error_names_the_extra(run_python) -> None:
    program = """
import sys
sys.modules["transformers"] = None
try:
    import tenfold.transformers
except ImportError as error:
    assert 'pip install "tenfold[transformers]"' in str(error), error
else:
    sys.exit("imported")
"""
    run_python(program)
