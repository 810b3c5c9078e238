"""Saves in the background, signals, and restarted jobs."""

import faulthandler
import gc
import os
import signal
import subprocess
import sys
import threading
import types
import warnings
from collections import OrderedDict, defaultdict
from typing import NamedTuple

import numpy as np
import pytest
import torch

import tenfold
from forks import exit_status, forked
from tenfold.checkpoint import _live_tensors, _manager


class Gate:
    """Wraps the native manager. Its saves wait until the test sets `may_go_on`."""

    def __init__(self, native):
        self._native = native
        self.may_go_on = threading.Event()

    def __getattr__(self, name):
        return getattr(self._native, name)

    def save(self, *arguments):
        assert self.may_go_on.wait(60)
        return self._native.save(*arguments)


def value_of(manager, step=None):
    state = {"w": None}
    manager.restore(state, step=step)
    return state["w"]


def test_a_background_save_has_the_state_at_the_call(tmp_path, monkeypatch):
    manager = tenfold.CheckpointManager(tmp_path, async_save=True)
    gate = Gate(manager._native)
    monkeypatch.setattr(manager, "_native", gate)
    w = torch.zeros(1000)
    handle = manager.save(1, {"w": w})
    assert handle.staged.done()
    assert not handle.done()
    w += 1
    assert manager.all_steps() == []
    gate.may_go_on.set()
    assert handle.result(60) == manager.path(1)
    assert torch.equal(value_of(manager), torch.zeros(1000))
    assert repr(handle) == "<SaveHandle step=1 done>"


def test_a_save_in_flight_does_not_block_readers(tmp_path, monkeypatch):
    manager = tenfold.CheckpointManager(tmp_path, async_save=True, every_steps=10)
    manager.save(10, {"w": torch.zeros(3)}).result(60)
    gate = Gate(manager._native)
    monkeypatch.setattr(manager, "_native", gate)
    assert manager.should_save(20)
    handle = manager.save(20, {"w": torch.ones(3)})
    assert not manager.should_save(21)
    assert manager.latest_step() == 10
    assert [status.step for status in manager.status()] == [10]
    manager.set_metrics(10, {"loss": 1.0})
    assert not handle.done()
    gate.may_go_on.set()
    manager.set_metrics(20, {"loss": 0.5})  # waits until the step is saved
    assert manager.metadata(20)["metrics"] == {"loss": 0.5}
    assert manager.should_save(30)


@pytest.mark.parametrize("is_in_flight", [True, False])
def test_a_save_in_a_forked_child_raises_at_once(tmp_path, monkeypatch, is_in_flight):
    manager = tenfold.CheckpointManager(tmp_path, async_save=True)
    gate = Gate(manager._native)
    monkeypatch.setattr(manager, "_native", gate)
    handle = manager.save(1, {"w": torch.zeros(3)})
    if not is_in_flight:
        gate.may_go_on.set()
        handle.result(60)

    def work():
        faulthandler.dump_traceback_later(30, exit=True)  # if the child waits for a lost thread
        with pytest.raises(OSError, match="found a forked child; create a new manager"):
            manager.save(2, {"w": torch.ones(3)})
        if is_in_flight:
            with pytest.raises(OSError, match="found a forked child"):
                manager.close()
        else:
            assert manager.restore().step == 1
            manager.close()

    assert exit_status(forked(work)) == 0
    gate.may_go_on.set()
    manager.close()
    manager.save(3, {"w": torch.ones(3)}).result(60)
    assert manager.all_steps() == [1, 3]


def test_the_next_save_waits_for_the_one_in_flight(tmp_path, monkeypatch):
    manager = tenfold.CheckpointManager(tmp_path, async_save=True)
    gate = Gate(manager._native)
    monkeypatch.setattr(manager, "_native", gate)
    manager.save(1, {"w": torch.zeros(3)})
    second = threading.Thread(target=manager.save, args=(2, {"w": torch.ones(3)}))
    second.start()
    second.join(0.2)
    assert second.is_alive()
    gate.may_go_on.set()
    second.join(60)
    manager.wait()
    assert manager.all_steps() == [1, 2]


def test_each_of_several_async_saves_has_the_state_at_its_call(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path, async_save=True)
    w = torch.zeros(10)
    for step in range(1, 6):
        w.fill_(step)
        manager.save(step, {"w": w, "tied": w})
    manager.wait()
    for step in range(1, 6):
        assert manager.restore(step=step).state["w"].tolist() == [step] * 10


def test_views_of_one_tensor_keep_their_shape_and_dtype(tmp_path):
    x = torch.arange(16.0).reshape(2, 8)
    state = {"m": {"a": x, "b": x.view(4, 4), "c": x.view(torch.int32)}}
    manager = tenfold.CheckpointManager(tmp_path, async_save=True)
    manager.save(1, state).result(60)
    found = manager.restore(step=1).state["m"]
    for name, expected in state["m"].items():
        assert found[name].dtype == expected.dtype
        assert torch.equal(found[name], expected)


def test_async_saves_reuse_the_memory_of_copies(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path, async_save=True)
    w = torch.zeros(1 << 18)
    addresses = set()
    original = manager._pool

    class Watching:
        def copy(self, tree):
            copied = original.copy(tree)
            pointer = copied.describe("w")
            assert pointer[0] == "tensor"
            addresses.add(copied.get("w", "r", _manager._core.Tied())[0].data_ptr())
            return copied

    manager._pool = Watching()
    for step in range(1, 5):
        w.fill_(step)
        manager.save(step, {"w": w}).result(60)
        manager.wait()
        gc.collect()
    assert len(addresses) == 1


def test_async_save_without_memory_blocks_and_warns_once(tmp_path, monkeypatch):
    manager = tenfold.CheckpointManager(tmp_path, async_save=True)

    class Full:
        def copy(self, tree):
            raise MemoryError

    manager._pool = Full()
    with pytest.warns(UserWarning, match="not enough memory"):
        assert manager.save(1, {"w": torch.ones(3)}).done()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert manager.save(2, {"w": torch.zeros(3)}).done()
    assert manager.all_steps() == [1, 2]


def fail_saves(manager, monkeypatch, error, times=1 << 30):
    native = manager._native
    calls = []

    class Failing:
        def __getattr__(self, name):
            return getattr(native, name)

        def save(self, *arguments):
            calls.append(arguments[0])
            if len(calls) <= times:
                raise error
            return native.save(*arguments)

    monkeypatch.setattr(manager, "_native", Failing())
    monkeypatch.setattr("tenfold.checkpoint._background.time.sleep", lambda seconds: None)
    return calls


def test_a_failure_in_the_background_is_raised_once_by_the_next_call(tmp_path, monkeypatch):
    manager = tenfold.CheckpointManager(tmp_path, async_save=True)
    manager.save(1, {"w": torch.ones(3)}).result(60)
    with monkeypatch.context() as patch:
        fail_saves(manager, patch, OSError("full"))
        handle = manager.save(2, {"w": torch.zeros(3)})
        with pytest.raises(OSError, match="full"):
            handle.result(60)
    with pytest.raises(OSError, match="full"):
        manager.save(3, {"w": torch.ones(3)})
    manager.save(4, {"w": torch.zeros(3)}).result(60)
    manager.close()
    assert manager.all_steps() == [1, 4]


def test_on_error_warn_turns_a_failed_save_into_a_warning(tmp_path, monkeypatch):
    manager = tenfold.CheckpointManager(tmp_path, on_error="warn")
    fail_saves(manager, monkeypatch, OSError("full"))
    with pytest.warns(UserWarning, match=r"step 1 was not saved: full"):
        handle = manager.save(1, {"w": torch.ones(3)})
    assert isinstance(handle.exception(), OSError)
    assert repr(handle) == "<SaveHandle step=1 failed>"


@pytest.mark.parametrize("async_save", [False, True, "overlap"])
def test_save_raises_errors_of_extra_and_metrics_whatever_on_error_is(tmp_path, async_save):
    manager = tenfold.CheckpointManager(tmp_path, on_error="warn", async_save=async_save)
    for extra in ((1, 2), {"a": [(1,)]}, {1: 2}, OrderedDict(a=1), "\ud800", float("nan")):
        with pytest.raises(tenfold.UnsupportedError, match="extra: expected a JSON value: "):
            manager.save(1, {"w": torch.ones(3)}, extra=extra)
    with pytest.raises(TypeError, match='metrics: "a": expected a number, found str'):
        manager.save(1, {"w": torch.ones(3)}, metrics={"a": "1"})
    assert manager.all_steps() == []


def test_failed_saves_are_retried(tmp_path, monkeypatch):
    manager = tenfold.CheckpointManager(tmp_path, retries=2)
    calls = fail_saves(manager, monkeypatch, OSError("server"), times=2)
    manager.save(1, {"w": torch.ones(3)})
    assert calls == [1, 1, 1]
    assert manager.all_steps() == [1]


def overlapping(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    manager = tenfold.CheckpointManager(tmp_path, async_save="overlap")
    state = {"model": model, "optimizer": optimizer, "ema": torch.zeros(3)}
    model(torch.randn(5, 4)).sum().backward()
    optimizer.step()
    return manager, state


def test_overlapped_copies_have_the_state_at_the_call(tmp_path):
    manager, state = overlapping(tmp_path)
    for step in range(1, 6):
        expected = {key: value.clone() for key, value in state["model"].state_dict().items()}
        moment = state["optimizer"].state_dict()["state"][0]["exp_avg"].clone()
        manager.save(step, state)
        state["ema"] += 1  # copied before save returned
        state["model"](torch.randn(5, 4)).sum().backward()  # buffers change, too
        with manager.lock():
            state["optimizer"].step()
        manager.wait()
        found = manager.restore(step=step).state
        for key, value in expected.items():
            assert torch.equal(found["model"][key], value), key
        assert torch.equal(found["optimizer"]["state"][0]["exp_avg"], moment)
        assert found["ema"].tolist() == [step - 1] * 3


def test_a_scheduler_may_change_a_tensor_learning_rate_during_an_overlapped_save(
    tmp_path, monkeypatch
):
    manager, state = overlapping(tmp_path)
    optimizer = torch.optim.Adam(state["model"].parameters(), lr=torch.tensor(0.5))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    optimizer.step()
    start = manager._writer.start

    def start_late(handle, work):
        scheduler.step()
        start(handle, work)

    monkeypatch.setattr(manager._writer, "start", start_late)
    manager.save(1, {"optimizer": optimizer}).result(60)
    (group,) = optimizer.param_groups
    assert group["lr"] == 0.25
    assert manager.restore().state["optimizer"]["param_groups"][0]["lr"] == 0.5


def test_a_tensor_learning_rate_of_a_sharded_optimizer_is_copied():
    optimizer = torch.optim.Adam([torch.zeros(2)], lr=torch.tensor(0.5))
    tensors = {"state.0.exp_avg": torch.zeros(2), "param_groups.0.lr": torch.tensor(0.5)}
    sharded = types.SimpleNamespace(parts={"o": tensors}, live={"o": tensors})
    live = _live_tensors.LiveTensors({}, {})
    parts = live.parts_of({"o": optimizer}, sharded)["o"]
    tensors["param_groups.0.lr"] /= 2
    live.require_unchanged(1)
    assert parts["param_groups.0.lr"] == 0.5
    assert parts["state.0.exp_avg"] is tensors["state.0.exp_avg"]


class Pair(NamedTuple):
    a: torch.Tensor
    b: torch.Tensor


def test_overlapped_saves_copy_subclasses_of_containers(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path, async_save="overlap")
    state = {
        "default": defaultdict(list, w=torch.zeros(3)),
        "pair": Pair(torch.zeros(2), torch.zeros(2)),
        "size": torch.zeros(2, 3).shape,
    }
    copied = _live_tensors._copied(state)
    state["default"]["w"] += 1
    state["pair"].a.add_(1)
    assert copied["default"]["w"].tolist() == [0] * 3
    assert copied["pair"].a.tolist() == [0] * 2
    assert copied["size"] == (2, 3)
    assert [type(copied[key]) for key in state] == [type(value) for value in state.values()]
    manager.save(1, {"default": state["default"]}).result(60)
    assert manager.restore().state["default"]["w"].tolist() == [1] * 3


def test_overlapped_saves_copy_tensors_without_a_version(tmp_path):
    class Counting(torch.optim.SGD):
        def __init__(self, parameters):
            super().__init__(parameters)
            self.seen = np.zeros(2)

        def state_dict(self):
            return {**super().state_dict(), "seen": self.seen}

    with torch.inference_mode():
        model = torch.nn.Linear(2, 2)
    optimizer = Counting(torch.nn.Linear(2, 2).parameters())
    manager = tenfold.CheckpointManager(tmp_path, async_save="overlap")
    live = _live_tensors.LiveTensors({"o": optimizer}, {"o": optimizer.state_dict()})
    optimizer.seen += 1
    assert live.states["o"]["seen"].tolist() == [0, 0]
    manager.save(1, {"model": model, "optimizer": optimizer}).result(60)
    found = manager.restore().state
    assert torch.equal(found["model"]["weight"], model.weight)
    assert found["optimizer"]["seen"].tolist() == [1, 1]


def test_a_save_within_the_lock_is_refused_instead_of_waiting_forever(tmp_path):
    manager, state = overlapping(tmp_path)
    with pytest.raises(RuntimeError, match=r"outside of `with manager\.lock\(\)`"), manager.lock():
        manager.save(1, state)
    manager.save(1, state)
    manager.wait()
    assert manager.all_steps() == [1]


def test_a_save_cannot_be_cancelled(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path, async_save=True)
    handle = manager.save(1, {"w": torch.ones(1 << 20)})
    assert not handle.cancel()
    assert not handle.staged.cancel()
    assert repr(handle).startswith("<SaveHandle step=1 ")
    assert handle.result(60).name == handle.path.name


def test_a_tensor_that_changed_before_its_overlapped_copy_fails_the_save(tmp_path, monkeypatch):
    manager, state = overlapping(tmp_path)
    start = manager._writer.start

    def start_late(handle, work):
        with torch.no_grad():
            state["model"][0].weight.add_(1)
        start(handle, work)

    monkeypatch.setattr(manager._writer, "start", start_late)
    handle = manager.save(1, state)
    with pytest.raises(RuntimeError, match=r'"model\.0\.weight" changed before it was copied'):
        handle.result(60)
    with pytest.raises(RuntimeError, match=r"manager\.lock"):
        manager.wait()
    assert manager.all_steps() == []
    assert manager.lock().acquire(timeout=60)


def test_interpreter_exit_waits_for_the_async_save(tmp_path):
    program = (
        "import torch, tenfold\n"
        f"manager = tenfold.CheckpointManager({str(tmp_path)!r}, async_save=True)\n"
        "manager.save(1, {'w': torch.ones(1 << 20)})\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert tenfold.CheckpointManager(tmp_path).verify(1).ok


def test_keyboard_interrupt_leaves_no_partial_step(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path)
    timer = threading.Timer(0.01, lambda: os.kill(os.getpid(), signal.SIGINT))
    state = {"w": torch.ones(1 << 24)}
    try:
        timer.start()
        for step in range(1, 200):
            manager.save(step, state, force=True)
            if step > 2:
                manager.delete(step - 2)
        pytest.fail("was not interrupted")
    except KeyboardInterrupt:
        pass
    assert all(manager.verify(step).ok for step in manager.all_steps())
    manager.save(1000, {"w": torch.zeros(3)})
    manager.close()
    names = [name for name in os.listdir(tmp_path) if not name.startswith("step_")]
    assert names == []


def test_preemption_records_a_signal_and_restores_handlers(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path)
    calls = []
    before = signal.signal(signal.SIGUSR1, lambda *_: calls.append("own"))
    try:
        own = signal.getsignal(signal.SIGUSR1)
        with manager.preemption() as stop:
            assert not stop
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop
            assert stop.signal == signal.SIGTERM
            os.kill(os.getpid(), signal.SIGUSR1)  # a second signal goes to the program's handler
            assert calls == ["own"]
        assert signal.getsignal(signal.SIGUSR1) is own
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_preemption_records_the_first_ctrl_c_and_raises_the_second(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with manager.preemption([signal.SIGINT]) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_preemption_outside_the_main_thread_raises(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path)
    found = []

    def enter():
        try:
            with manager.preemption():
                pass
        except ValueError as error:
            found.append(str(error))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert "main thread" in found[0]


def test_second_signal_terminates_the_process(tmp_path):
    program = (
        "import os, signal, tenfold\n"
        f"manager = tenfold.CheckpointManager({str(tmp_path)!r})\n"
        "with manager.preemption():\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    print('alive')\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == -signal.SIGTERM
    assert run.stdout == ""


def test_follow_yields_the_newest_step_and_then_each_new_one(tmp_path, monkeypatch):
    monkeypatch.setattr(_manager, "_POLL_SECONDS", 0.01)
    writer = tenfold.CheckpointManager(tmp_path)
    for step in (1, 2):
        writer.save(step, {"epoch": step})
    reader = tenfold.CheckpointManager(tmp_path)
    steps = reader.follow(timeout=0.2)
    assert next(steps) == 2
    writer.save(3, {"epoch": 3})
    writer.save(4, {"epoch": 4})
    assert list(steps) == [3, 4]
    assert list(reader.follow(after=1, timeout=0)) == [2, 3, 4]
    assert list(reader.follow(after=4, timeout=0)) == []
    # A step that is saved again counts as new.
    steps = reader.follow(after=3, timeout=0)
    assert next(steps) == 4
    writer.save(4, {"epoch": 5}, force=True)
    assert list(steps) == [4]


def test_follow_of_an_empty_directory_waits_for_the_first_step(tmp_path, monkeypatch):
    monkeypatch.setattr(_manager, "_POLL_SECONDS", 0.01)
    reader = tenfold.CheckpointManager(tmp_path / "run").follow(timeout=60)
    writer = tenfold.CheckpointManager(tmp_path / "run")
    threading.Timer(0.05, lambda: writer.save(1, {"epoch": 1})).start()
    assert next(reader) == 1
