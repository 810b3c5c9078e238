"""Runs programs of examples/ from the command line, and checks what they print and write."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import tenfold  # noqa: E402
from paths import REPOSITORY  # noqa: E402

EXAMPLES = REPOSITORY / "examples"


def run(name: str, *arguments: object, status: int = 0) -> str:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_a_hub_checkpoint_is_fine_tuned_with_a_new_head(tmp_path: Path) -> None:
    output = run("finetune", tmp_path, "--steps", 100)
    assert "loaded 0.weight, 0.bias, 2.weight, 2.bias\n" in output
    assert len(list((tmp_path / "hub").glob("model-*-of-*.safetensors"))) > 1
    first, last = map(float, re.search(r"loss (\S+) at first, (\S+)", output).groups())
    assert last < first / 2
    assert tenfold.load(tmp_path / "tuned/model.safetensors")["head.bias"].shape == (3,)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_training_resumes_with_the_same_losses(tmp_path: Path, number: int) -> None:
    expected = run("resume", tmp_path / "whole", "--steps", 600).splitlines()
    command = [sys.executable, str(EXAMPLES / "resume.py"), str(tmp_path / "run"), "--steps", "600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins at step 0\n"
        first = process.stdout.readline()
        process.send_signal(number)
        found = [first, *process.stdout]
    assert process.returncode == (0 if number == signal.SIGTERM else -number)
    resumed = run("resume", tmp_path / "run", "--steps", 600).splitlines()
    begun = int(resumed[0].removeprefix("begins at step "))
    assert begun < 600
    if number == signal.SIGTERM:
        assert found[-1].startswith(f"step {begun}: ")
    # A training that SIGTERM stops also prints its last step. The uninterrupted training may not
    # print this step, so `losses` may lack it.
    losses = dict(line.split(": ") for line in expected[1:])
    for line in [*"".join(found).splitlines(), *resumed[1:]]:
        step, loss = line.split(": ")
        assert losses.get(step, loss) == loss
    assert resumed[-1] == expected[-1]


@pytest.mark.timeout(600)
def test_ddp_resumes_after_the_crash_of_a_rank(tmp_path: Path) -> None:
    torchrun = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "--max-restarts",
        "1",
    ]
    arguments = [EXAMPLES / "ddp.py", tmp_path, "--steps", 60, "--die-at", 45]
    command = [sys.executable, *torchrun, *map(str, arguments)]
    environment = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    begun = re.findall(r"2 processes begin at step (\d+)", done.stdout)
    assert begun[0] == "0"
    # The save of step 40 was in flight or finished.
    assert begun[1] in ("20", "40")
    assert "at step 60\n" in done.stdout
    manager = tenfold.CheckpointManager(tmp_path / "run")
    assert manager.latest_step() == 60
    assert manager.metadata(60)["world_size"] == 2
    assert sorted(path.name for path in manager.path(60).iterdir()) == [
        "checkpoint.json",
        "loader.json",
        "model.safetensors",
        "optimizer.safetensors",
        "ranks",
    ]


class RunsACommand:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch executed",)


class Own:
    pass


def test_pt_files_are_converted_and_no_pickle_is_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    weights = {"w": torch.rand(4, 3, dtype=torch.bfloat16), "step": 3}
    (tmp_path / "old" / "deep").mkdir(parents=True)
    torch.save(weights, "old/a.pt")
    torch.save(torch.nn.Linear(2, 2).state_dict(), "old/deep/b.pth")
    torch.save({"w": weights["w"], "hook": RunsACommand()}, "old/dangerous.pt")
    torch.save({"w": weights["w"], "own": Own()}, "old/own.pt")
    torch.save({"w": torch.zeros(1)}, "old/a.pth")
    Path("old/text.bin").write_text("no torch file")

    output = run("convert_pt", "old", "new", status=1)
    assert "2 of 6 files converted" in output
    assert "old/a.pth: not converted: new/a.safetensors was written from old/a.pt\n" in output
    assert "old/text.bin: not converted: old/text.bin: " in output
    assert "old/dangerous.pt: not converted: unpickling it would call posix.system" in output
    assert 'old/own.pt: not converted: old/own.pt: key "own"' in output
    assert not (tmp_path / "executed").exists()
    converted = sorted(str(p.relative_to("new")) for p in Path("new").rglob("*.safetensors"))
    assert converted == ["a.safetensors", "deep/b.safetensors"]
    found = tenfold.load("new/a.safetensors")
    assert torch.equal(found["w"], weights["w"])
    assert found["step"] == 3

    for left in ("dangerous.pt", "own.pt", "a.pth", "text.bin"):
        Path("old", left).unlink()
    assert "2 of 2 files converted" in run("convert_pt", "old", "new")


def test_embeddings_are_served_while_another_process_changes_them(tmp_path: Path) -> None:
    output = run("serve_embeddings", tmp_path, "--count", 1000)
    assert "before: [1.0, 7.0, 0.0] [True, True, False]" in output
    assert "after:  [-1.0, 7.0, 0.0] [True, True, True]" in output


def test_hugging_face_example_ingests_and_trains(tmp_path: Path) -> None:
    pytest.importorskip("datasets", reason="Hugging Face datasets is not installed")
    output = run("from_huggingface", tmp_path)
    assert "input_ids: int32[*]\nlabel: int64\ntext: string\n" in output
    losses = [float(loss) for loss in re.search(r"epoch: (.*)", output).group(1).split()]
    assert losses[-1] < losses[0] / 2


def test_an_lmdb_becomes_a_mapped_dict(tmp_path: Path) -> None:
    pytest.importorskip("lmdb", reason="lmdb is not installed")
    output = run("from_lmdb", tmp_path, "--count", 300)
    assert "300 str keys, image: uint8[3, 8, 8], label: int64" in output
    assert "(3, 3, 8, 8) [3, 1, 0] [True, True, False]" in output
    assert "300 rows in one shuffled epoch" in output


WEBDATASET = """\
3 shards, 800 rows
key: string
image: uint8[8, 8, 3]
caption: string
class: int64
row 700: 000700 picture 700 (8, 8, 3)
rows in an epoch: 800
"""


def test_tar_shards_become_a_data_set(tmp_path: Path) -> None:
    assert run("from_webdataset", tmp_path, "--rows", 800) == WEBDATASET


def test_tar_members_are_split_at_the_first_dot_after_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    import from_webdataset

    with tarfile.open(tmp_path / "shard.tar", "w") as tar:
        for name in ("./v1.2/1.npy", "./v1.2/1.seg.png", "./v1.2/2.npy", "3.npy"):
            tar.addfile(tarfile.TarInfo(name))
    assert list(from_webdataset.samples(tmp_path / "shard.tar")) == [
        {"__key__": "./v1.2/1", "npy": b"", "seg.png": b""},
        {"__key__": "./v1.2/2", "npy": b""},
        {"__key__": "3", "npy": b""},
    ]
    assert "row 9: 000009 picture 9" in run("from_webdataset", tmp_path / "few", "--rows", 10)


def test_tar_shards_give_the_same_rows_with_webdataset(tmp_path: Path) -> None:
    pytest.importorskip("webdataset", reason="webdataset is not installed")
    run("from_webdataset", tmp_path / "ours", "--rows", 800)
    assert run("from_webdataset", tmp_path / "theirs", "--rows", 800, "--library") == WEBDATASET
    difference = tenfold.diff(tmp_path / "ours/pictures", tmp_path / "theirs/pictures")
    assert difference.same, difference
