import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TIMED = """
import sys, time
start = time.process_time()  # CPU time, because other programs may run
import tenfold
end = time.process_time()
assert not {"torch", "numpy"} & sys.modules.keys(), "imported torch or numpy"
print((end - start) * 1000)
"""


def test_import_is_fast_and_imports_no_torch_or_numpy(run_python):
    best = min(float(run_python(TIMED)) for _ in range(5))
    assert best < 20


def test_the_command_imports_neither_torch_nor_numpy(run_python, tmp_path):
    import torch

    import tenfold

    tenfold.save({"x": torch.zeros(1)}, tmp_path / "saved")
    program = """
import sys
from tenfold.__main__ import main
sys.argv = ["tenfold", "ls", sys.argv[1]]
status = main()
assert not {"torch", "numpy"} & sys.modules.keys()
sys.exit(status)
"""
    assert "x" in run_python(program, tmp_path / "saved")


def test_opening_and_listing_imports_no_torch(run_python, tmp_path):
    import torch

    import tenfold

    tenfold.save({"a": {"x": torch.zeros(3)}}, tmp_path / "saved")
    program = """
import sys, tenfold
td = tenfold.open(sys.argv[1])
assert td.keys(True) == [("a", "x"), "a"]
assert repr(td) == "TensorDict(batch_size=[], fields={a: {x: f32[3]}})"
assert tenfold.verify(sys.argv[1]).ok
assert "torch" not in sys.modules
"""
    run_python(program, tmp_path / "saved")


def test_every_public_name_resolves():
    import tenfold

    for name in tenfold.__all__:
        assert getattr(tenfold, name) is not None
    assert set(tenfold.__all__) <= set(dir(tenfold))
    for names in tenfold._EXPORTS.values():
        for name in names:
            assert getattr(tenfold, name) is not None


def test_tensordict_and_torchsnapshot_names_have_their_own_modules():
    import tenfold
    import tenfold.snapshot
    import tenfold.tensordict

    for module, names in tenfold._EXPORTS.items():
        home = None
        if module.startswith("tenfold.tensordict"):
            home = tenfold.tensordict
        elif module == "tenfold._io.snapshot":
            home = tenfold.snapshot
        for name in names if home is not None else ():
            assert getattr(home, name) is getattr(tenfold, name)
            assert name in home.__all__
    assert "dense_stack_tds" not in tenfold.__all__
    assert {"TensorDict", "Snapshot", "save", "load"} <= set(tenfold.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        tenfold.tensordict.nothing  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        tenfold.nothing  # noqa: B018


def test_type_stub_has_the_same_names():
    tool = [sys.executable, ROOT / "tools" / "make_stub.py", "--check"]
    assert subprocess.run(tool).returncode == 0


def test_the_module_runs_the_command():
    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "tenfold", *arguments], capture_output=True, text=True
        )

    import tenfold

    assert tenfold.__version__ in run("--version").stdout
    assert run("--version").returncode == 0
    assert run().returncode == 2
    missing = run("ls", "/nothing/there")
    assert missing.returncode == 2
    assert missing.stderr.startswith("tenfold: ")
    assert missing.stdout == ""


def test_closed_pipe_ends_the_command_without_an_error_message(tmp_path):
    import torch

    import tenfold

    tenfold.save({f"key{i}": torch.zeros(1) for i in range(20_000)}, tmp_path / "x.safetensors")
    command = [sys.executable, "-m", "tenfold", "ls", str(tmp_path / "x.safetensors")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == -signal.SIGPIPE


def test_keyboard_interrupt_ends_the_command_with_130(tmp_path):
    import torch

    import tenfold

    if shutil.disk_usage(tmp_path).free < 21 << 30:
        pytest.skip("the disk is too small for the copy, which is interrupted")
    path = tmp_path / "sparse"  # 20 GiB of holes
    tenfold.TensorDict({"x": torch.zeros(1).expand(5, 1 << 30)}).memmap_like(path)
    command = [sys.executable, "-m", "tenfold", "convert", str(path), str(tmp_path / "copy")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    # The temporary file or folder next to the target exists once the copy has started, even on a
    # busy machine.
    while not list(tmp_path.glob(".copy.tenfold-*")):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 130, errors
    assert b"Traceback" not in errors
    assert not (tmp_path / "copy").exists()
