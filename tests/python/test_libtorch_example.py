"""The C++ programs in examples/libtorch load files saved in Python, and save files for Python.

The tests build the programs as a user would, against an installed tenfold. They install the C++
library from build/release, or from the build folder that TENFOLD_BUILD names.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import tenfold  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "libtorch"
BUILD = Path(os.environ.get("TENFOLD_BUILD", ROOT / "build" / "release"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(*command: object, status: int = 0) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def programs():
    """Builds the programs and returns their folder, which later runs of the tests reuse."""
    if not (BUILD / "tenfold-config.cmake").exists() or not (BUILD / "src/libtenfold.a").exists():
        pytest.skip(f"no C++ build in {BUILD}: `make build` makes one")
    cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if cmake is None:
        pytest.skip("cmake is not installed")
    prefix, build = BUILD / "libtorch-example" / "prefix", BUILD / "libtorch-example" / "build"
    run(cmake, "--install", BUILD, "--component", "cpp", "--prefix", prefix)
    ccache = shutil.which("ccache")
    run(
        # Without optimisation, torch's headers compile in half the time.
        *(cmake, "-S", EXAMPLE, "-B", build, "-D", "CMAKE_BUILD_TYPE=Debug"),
        *("-D", "CMAKE_CXX_FLAGS_DEBUG=-O0"),
        *("-D", f"CMAKE_PREFIX_PATH={prefix};{torch.utils.cmake_prefix_path}"),
        *(["-D", f"CMAKE_CXX_COMPILER_LAUNCHER={ccache}"] if ccache else []),
    )
    run(cmake, "--build", build)
    return build


@pytest.fixture(scope="module")
def program(programs):
    return programs / "language_model"


def imported(name):
    """Imports the Python program of an example, and returns its module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def model(tmp_path):
    """Runs make_model.py in `tmp_path`, and returns the model that it saved."""
    run(sys.executable, EXAMPLE / "make_model.py", tmp_path)
    model = imported("make_model").LanguageModel()
    model.load_state_dict(tenfold.load(tmp_path / "model"))
    return model


def test_model_from_python_has_equal_output_in_libtorch_and_round_trips(program, model, tmp_path):
    output = run(program, tmp_path)
    assert "loaded 16 tensors" in output
    difference = float(output.split("largest difference from Python: ")[1])
    assert difference < 1e-5

    returned = tenfold.load(tmp_path / "returned.safetensors")
    expected = model.state_dict()
    assert type(returned) is OrderedDict
    assert list(returned) == list(expected)
    for name, tensor in expected.items():
        assert torch.equal(returned[name], tensor), name
    assert returned["head.weight"].data_ptr() == returned["embed.weight"].data_ptr()


def test_program_exits_1_if_the_result_differs(program, model, tmp_path):
    expected = dict(tenfold.load(tmp_path / "expected.safetensors"))
    expected["scores"] = expected["scores"] + 0.01
    tenfold.save(expected, tmp_path / "expected.safetensors")
    assert "largest difference from Python: 0.0" in run(program, tmp_path, status=1)


def test_program_lists_missing_and_unexpected_tensors(program, model, tmp_path):
    state = dict(model.state_dict())
    state["norm.scale"] = state.pop("norm.weight")
    tenfold.save(state, tmp_path / "model")
    output = run(program, tmp_path, status=2)
    assert 'missing from the source (1): "norm.weight"' in output
    assert 'not in the target (1): "norm.scale"' in output


OPTIMIZERS = ["adam", "adamw", "sgd", "rmsprop", "adagrad", "lbfgs", "lbfgs_strong_wolfe"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_resumes_in_libtorch_and_back_with_equal_losses(programs, tmp_path, name):
    resume = imported("resume")
    resume.begin(tmp_path, name)
    output = run(programs / "resume", tmp_path, name)
    assert float(output.split("largest difference from Python: ")[1]) < 1e-9
    assert ("LibTorch has no param_groups.0.foreach" in output) is not name.startswith("lbfgs")
    assert resume.go_on(tmp_path, name) < 1e-9

    # torch.load reads the file that C++ saved, and Python loads its model and optimizer states.
    saved = torch.load(tmp_path / "cpp.pt", weights_only=True)
    state = saved["optimizer"]
    net = resume.Net()
    net.load_state_dict(saved["model"])
    optimizer = resume.OPTIMIZERS[name](net.parameters())
    resume.train(net, optimizer, tenfold.load(tmp_path / "data.safetensors"), 1)
    expected = optimizer.state_dict()
    assert list(state) == list(expected)
    assert [list(group) for group in state["param_groups"]] == [
        list(group) for group in expected["param_groups"]
    ]
    assert {key: list(value) for key, value in state["state"].items()} == {
        key: list(value) for key, value in expected["state"].items()
    }
    optimizer.load_state_dict(state)
    for group, saved in zip(optimizer.param_groups, state["param_groups"], strict=True):
        assert {key: group[key] for key in saved if key != "params"} == {
            key: value for key, value in saved.items() if key != "params"
        }


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_step_of_a_checkpoint_manager_resumes_in_libtorch_and_back(programs, tmp_path, name):
    resume = imported("resume")
    resume.begin(tmp_path, name, is_managed=True)
    output = run(programs / "resume", tmp_path, name, "--manager")
    assert float(output.split("largest difference from Python: ")[1].split()[0]) < 1e-9
    assert "LibTorch has no rng.python\n" in output
    assert "warning" not in output
    assert resume.go_on(tmp_path, name, is_managed=True) < 1e-9

    manager = tenfold.CheckpointManager(tmp_path / "run")
    assert manager.all_steps() == [10, 20]
    assert all(manager.verify(step).ok for step in manager.all_steps())
    # The lineage of a step that Python saves next includes the step that C++ saved.
    manager.restore()
    manager.save(30, {"step": 30})
    assert [step for _, step in manager.metadata(30)["lineage"]] == [10, 20, 30]


def test_libtorch_refuses_the_state_of_another_optimizer(programs, tmp_path):
    imported("resume").begin(tmp_path, "sgd")
    output = run(programs / "resume", tmp_path, "adam", status=2)
    assert '"param_groups.0.betas"' in output
    assert not (tmp_path / "cpp.pt").exists()
