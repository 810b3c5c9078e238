"""Invalid arguments and failures: errors name the cause, and the next save works."""

import errno
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import torch

import tenfold


def state(value=1.0):
    return {"w": torch.full((100,), value), "epoch": int(value)}


def assert_steps_and_next_save(manager, steps):
    """Asserts that these steps exist and are complete, and that the next save works."""
    assert manager.all_steps() == steps
    assert all(manager.verify(step).ok for step in steps)
    number = max(steps, default=0) + 1
    manager.save(number, state(number))
    assert manager.restore().state["epoch"] == number
    manager.close()
    names = {path.name for path in manager.directory.iterdir()}
    assert names == {f"step_{step:08}" for step in [*steps, number]}


@pytest.mark.parametrize("step", [-1, 1.5, "3", None, True, 1 << 63, torch.ones(2)])
def test_step_must_be_a_non_negative_integer(tmp_path, step):
    manager = tenfold.CheckpointManager(tmp_path)
    manager.save(1, state())
    expected = (TypeError, ValueError, OverflowError)
    with pytest.raises(expected, match="step"):
        manager.save(step, state())
    if step is not None:
        with pytest.raises(expected, match="step"):
            manager.restore({}, step=step)
    for call in (manager.should_save, manager.metadata, manager.path, manager.verify):
        with pytest.raises(expected):
            call(step)
    assert_steps_and_next_save(manager, [1])


def test_numpy_integers_are_valid_steps(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path)
    manager.save(np.int64(0), state())
    assert_steps_and_next_save(manager, [0])


@pytest.mark.parametrize("loss", [np.full(1, 0.5), np.full((1, 1), 0.5), torch.full((1,), 0.5)])
def test_metrics_may_be_arrays_with_one_element(tmp_path, loss):
    manager = tenfold.CheckpointManager(tmp_path)
    manager.save(1, state(), metrics={"loss": loss})
    assert manager.metadata(1)["metrics"] == {"loss": 0.5}


@pytest.mark.parametrize(
    "metrics",
    [
        {"loss": "low"},
        {1: 2.0},
        [("loss", 1)],
        {"loss": 1j},
        {"loss": np.ones(2)},
        {"loss": np.array("1")},
        {"loss": np.array([True])},
    ],
)
def test_metrics_that_are_not_names_and_numbers_raise(tmp_path, metrics):
    manager = tenfold.CheckpointManager(tmp_path, best="loss")
    with pytest.raises(TypeError, match="metrics"):
        manager.save(1, state(), metrics=metrics)
    assert_steps_and_next_save(manager, [])


def test_steps_may_have_different_entries(tmp_path):
    """restore() compares the entries of a step with the requested ones."""
    manager = tenfold.CheckpointManager(tmp_path, share_unchanged=True)
    manager.save(1, {"a": torch.ones(3), "gone": 1})
    manager.save(2, {"a": torch.ones(3), "new": {"b": torch.zeros(2)}})
    assert list(manager.restore(step=1).state) == ["a", "gone"]
    assert list(manager.restore().state) == ["a", "new"]
    wanted = {"a": None, "gone": None}
    with pytest.raises(KeyError, match=r"the entries differ: .*'gone'.*'new'"):
        manager.restore(wanted)
    assert wanted == {"a": None, "gone": None}
    report = manager.restore(wanted, strict=False).report
    assert (report.missing, report.unexpected) == (("gone",), ("new",))


def test_objects_without_state_dict_methods_are_refused_by_key(tmp_path):
    class Gives:
        def state_dict(self):
            return {"a": 1}

    class Fails(Gives):
        def state_dict(self):
            raise RuntimeError("no state today")

        def load_state_dict(self, state):
            pass

    manager = tenfold.CheckpointManager(tmp_path)
    for wrong in (object(), Gives(), Gives, lambda: 1, iter(())):
        with pytest.raises(tenfold.UnsupportedError, match='"odd"'):
            manager.save(1, {**state(), "odd": wrong})
    with pytest.raises(RuntimeError, match="no state today"):
        manager.save(1, {**state(), "odd": Fails()})
    for wrong in ([1], None, torch.ones(2), "state"):
        with pytest.raises(TypeError, match="app_state: expected a dict"):
            manager.save(1, wrong)
    assert_steps_and_next_save(manager, [])


def test_entries_that_are_no_state_of_their_object_are_named(tmp_path):
    module = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(module.parameters())
    manager = tenfold.CheckpointManager(tmp_path)
    manager.save(1, {"m": [1], "o": [1], "p": {"x": 1}})
    for name, target, expected in (
        ("m", module, "state of a module, found list"),
        ("o", optimizer, "state of an optimizer, found list"),
        ("p", optimizer, r"groups of sizes \[2\], found \[\]"),
    ):
        with pytest.raises(ValueError, match=f'entry "{name}": expected .*{expected}'):
            manager.restore({name: target}, keys=name)


@pytest.mark.parametrize("async_save", [False, True, "overlap"])
def test_container_that_contains_itself_is_named(tmp_path, async_save):
    manager = tenfold.CheckpointManager(tmp_path, async_save=async_save)
    cycle = []
    cycle.append(cycle)
    with pytest.raises(ValueError, match=r'step_00000001: key "a\.0": it contains itself: '):
        manager.save(1, {"a": cycle})
    assert_steps_and_next_save(manager, [])


def test_key_that_is_longer_than_a_file_name_is_restored(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path, format="memmap")
    saved = {**state(), "model": {"k" * 300: torch.ones(2)}}
    assert manager.estimate(saved).num_bytes > 0
    manager.save(1, saved)
    assert manager.restore().state["model"]["k" * 300].tolist() == [1, 1]


@pytest.mark.parametrize("value", [1, {"w": torch.ones(2)}])
def test_name_with_a_lone_surrogate_is_refused_before_anything_is_written(tmp_path, value):
    manager = tenfold.CheckpointManager(tmp_path)
    wrong = {**state(), "m\udc80": value}
    for call in (manager.estimate, lambda wrong: manager.save(1, wrong), manager.restore):
        with pytest.raises(ValueError, match=r"app_state: name: expected Unicode text.*m\\udc80"):
            call(wrong)
    assert_steps_and_next_save(manager, [])


@pytest.mark.parametrize("place", ["run", "run/below"])
def test_error_names_a_file_in_place_of_the_directory(tmp_path, place):
    manager = tenfold.CheckpointManager(tmp_path / place)
    (tmp_path / "run").write_text("notes of a run")
    if place == "run":
        with pytest.raises(NotADirectoryError, match="found a file"):
            tenfold.CheckpointManager(tmp_path / place)
    with pytest.raises(OSError, match="run"):
        manager.save(1, state())
    with pytest.raises(OSError, match="run"):
        manager.restore()
    if place == "run":  # "run/below" counts as a missing directory, because "run" is a file
        with pytest.raises(OSError, match="run"):
            manager.all_steps()
        with pytest.raises(OSError, match="run"):
            manager.restore(state(), missing_ok=True)
    assert (tmp_path / "run").read_text() == "notes of a run"
    (tmp_path / "run").unlink()
    assert_steps_and_next_save(manager, [])


SMALL_FILES = """
import resource, signal, sys, torch, tenfold
mode, folder = sys.argv[1:]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
manager = tenfold.CheckpointManager(folder, max_to_keep=1, async_save=mode == "async")
manager.save(1, {"w": torch.ones(1000), "epoch": 1})
manager.wait()
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, unlimited[1]))
try:
    manager.save(2, {"w": torch.ones(1 << 20), "epoch": 2})
    manager.wait()
    sys.exit("it was saved")
except OSError as error:
    print(error)
assert manager.all_steps() == [1] and manager.verify(1).ok
resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
manager.save(3, {"w": torch.ones(1 << 20), "epoch": 3})
manager.close()
assert manager.all_steps() == [3] and manager.verify(3).ok
"""


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_failed_write_names_the_file_and_keeps_existing_steps(tmp_path, mode):
    done = subprocess.run(
        [sys.executable, "-c", SMALL_FILES, mode, str(tmp_path / "run")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "w.safetensors" in done.stdout
    assert "file too large" in done.stdout
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["step_00000003"]


def lines_on_tmpfs(program, folder):
    """Mounts a tmpfs of 4 MiB at `folder`, runs `program FOLDER`, and returns its output lines."""
    mount = 'mount -t tmpfs -o size=4m tmpfs "$1" && exec "$0" -c "$PROGRAM" "$1"'
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", mount, sys.executable, str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, "PROGRAM": program},
    )
    if done.returncode != 0 and ("unshare" in done.stderr or "mount:" in done.stderr):
        pytest.skip(f"this system permits no mounts: {done.stderr}")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


FULL_DISK = """
import os, sys, torch, tenfold
folder = sys.argv[1]
manager = tenfold.CheckpointManager(folder + "/run", max_to_keep=1)
manager.save(1, {"w": torch.ones(1 << 18), "epoch": 1})
for size in (1 << 20, 3 << 18):  # in floats: the whole disk, and more than its free space
    try:
        manager.save(2, {"w": torch.ones(size), "epoch": 2})
        sys.exit("it was saved")
    except OSError as error:
        print(error.errno, error)
    assert manager.all_steps() == [1] and manager.verify(1).ok
manager.save(3, {"w": torch.zeros(1 << 18), "epoch": 3})
manager.close()
print(os.listdir(folder + "/run"))
"""


def test_full_disk_error_names_the_file_and_keeps_existing_steps(tmp_path):
    *failures, names = lines_on_tmpfs(FULL_DISK, tmp_path)
    assert [line.split()[0] for line in failures] == ["28", "28"]
    assert all(f"{tmp_path}/run" in line for line in failures)
    assert names == "['step_00000003']"


READ_ONLY_FILE_SYSTEM = """
import os, subprocess, sys, torch, tenfold
folder = sys.argv[1]
def remount(how):
    subprocess.run(["mount", "-o", f"remount,{how}", folder], check=True)
managers = [tenfold.CheckpointManager(f"{folder}/{name}", max_to_keep=1) for name in ("run", "new")]
managers[0].save(1, {"w": torch.ones(100), "epoch": 1})
remount("ro")
for manager in managers:
    try:
        manager.save(2, {"w": torch.ones(100), "epoch": 2})
        sys.exit("it was saved")
    except OSError as error:
        print(error.errno, error)
assert managers[0].all_steps() == [1] and managers[0].verify(1).ok
assert tenfold.CheckpointManager(f"{folder}/run").restore().state["epoch"] == 1
remount("rw")
for manager in managers:
    manager.save(3, {"w": torch.ones(100), "epoch": 3})
    manager.close()
    assert manager.all_steps() == [3] and manager.verify(3).ok
    print(os.listdir(manager.directory))
"""


def test_read_only_file_system_is_named_and_keeps_existing_steps(tmp_path):
    *failures, names, new_names = lines_on_tmpfs(READ_ONLY_FILE_SYSTEM, tmp_path)
    assert [line.split()[0] for line in failures] == ["30", "30"]
    assert f"{tmp_path}/run" in failures[0]
    assert str(tmp_path) in failures[1]
    assert "read-only file system" in failures[0].lower()
    assert names == new_names == "['step_00000003']"


# A file cannot be removed while something is mounted on it.
BUSY_FILE = """
import os, subprocess, sys, time, torch, tenfold, warnings
run = sys.argv[1] + "/run"
manager = tenfold.CheckpointManager(run, max_to_keep=1)
manager.save(1, {"w": torch.ones(100), "epoch": 1})
busy = "w.safetensors"
subprocess.run(["mount", "--bind", f"{run}/step_00000001/{busy}", f"{run}/step_00000001/{busy}"])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for step in (2, 3):
        manager.save(step, {"w": torch.ones(100) * step, "epoch": step})
        assert manager.all_steps() == [step] and manager.verify(step).ok
    manager.close()
print(len([w for w in caught if "a removed step cannot be deleted yet" in str(w.message)]))
print(*sorted(os.listdir(run)))
subprocess.run(["umount", f"{run}/.trash-0/{busy}"], check=True)
manager.save(4, {"w": torch.ones(100) * 4, "epoch": 4})
manager.close()
print(*sorted(os.listdir(run)))
"""


def test_failed_removal_of_a_pruned_step_is_a_warning_and_is_retried(tmp_path):
    warned, before, after = lines_on_tmpfs(BUSY_FILE, tmp_path)
    assert int(warned) >= 1
    assert before == ".trash-0 step_00000003"
    assert after == "step_00000004"


def test_too_little_space_names_what_pruning_would_free(small_disk):
    run = small_disk / "run"
    with tenfold.CheckpointManager(run) as manager:
        for step in (1, 2):
            manager.save(step, {"w": torch.full((1 << 20,), float(step)), "epoch": step})
    manager = tenfold.CheckpointManager(run, max_to_keep=1)
    manager.restore()
    large = torch.zeros(20 << 20)
    with pytest.raises(OSError, match=r"pruning would free 4\.\d MB") as caught:
        manager.save(3, {"w": large})
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(run)
    numbers = re.search(r"expected (\d+) bytes free, found (\d+)", str(caught.value))
    assert large.nbytes <= int(numbers[1]) < large.nbytes + 100_000
    assert int(numbers[2]) < 16 << 20
    assert manager.all_steps() == [1, 2]
    manager.save(3, {"w": torch.ones(3)})
    manager.close()
    assert [path.name for path in run.iterdir()] == ["step_00000003"]


READ_ONLY = """
import os, sys, torch, tenfold
folder = sys.argv[1]
manager = tenfold.CheckpointManager(folder, max_to_keep=1)
manager.save(1, {"epoch": 1})
manager.close()
os.chmod(folder, 0o555)
if os.geteuid() == 0:
    os.seteuid(65534)  # root may write everywhere
try:
    manager.save(2, {"epoch": 2})
    sys.exit("it was saved")
except PermissionError as error:
    print(error)
reader = tenfold.CheckpointManager(folder)
assert reader.restore().state["epoch"] == 1
if os.getuid() == 0:
    os.seteuid(0)
os.chmod(folder, 0o755)
manager.save(3, {"epoch": 3})
manager.close()
print(os.listdir(folder))
"""


def test_read_only_directory_can_be_restored_and_save_names_it():
    # pytest's folders are closed to other users, so use another one.
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        run = os.path.join(place, "run")
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, run], capture_output=True, text=True
        )
    assert done.returncode == 0, done.stdout + done.stderr
    refused, names = done.stdout.splitlines()
    assert run in refused
    assert "permission denied" in refused
    assert names == "['step_00000003']"
