"""Loads of a LibTorch module in C++. The C++ program bench/libtorch.cpp times them.

The program links the library that `make build` makes in build/release. The environment variable
TENFOLD_BUILD names another build folder.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import torch
import trees
from harness import ROOT, Goal, Result, Timing

import tenfold

BUILD = Path(os.environ.get("TENFOLD_BUILD", ROOT / "build" / "release"))


def compiled() -> Path | None:
    """Compiles bench/libtorch.cpp. Prints a message and returns None if the library is missing."""
    source, program = ROOT / "bench" / "libtorch.cpp", ROOT / "build" / "bench" / "libtorch"
    library = BUILD / "src" / "libtenfold.a"
    if not library.exists():
        print(f"libtorch_load_into is left out: {library} is missing; `make build` makes it")
        return None
    header = ROOT / "include" / "tenfold" / "torch.hpp"
    inputs = max(path.stat().st_mtime for path in (source, header, library))
    if program.exists() and program.stat().st_mtime > inputs:
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    home = Path(torch.__file__).parent
    include, libraries = home / "include", home / "lib"
    linked = subprocess.run(
        ["pkg-config", "--static", "--libs", "tenfold"],
        env={**os.environ, "PKG_CONFIG_PATH": str(BUILD)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    command = ["g++", "-std=c++20", "-O2", str(source), f"-L{library.parent}"]
    command += linked.stdout.split()
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    command += [f"-I{ROOT / 'include'}", f"-isystem{include}"]
    command += [f"-isystem{include / 'torch/csrc/api/include'}"]
    command += [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-ltorch", "-ltorch_cpu", "-lc10"]
    subprocess.run([*command, "-o", str(program)], check=True)
    return program


def libtorch_load_into(work: Path, repetitions: int) -> Result | None:
    program = compiled()
    if program is None:
        return None
    tree = trees.gpt2_with_adam()
    one, folder, pickled = work / "model.safetensors", work / "model", work / "model.pt"
    tenfold.save(tree, one, durable=False)
    tenfold.save(tree, folder, durable=False)
    del tree
    done = subprocess.run(
        [program, one, folder, pickled, str(repetitions)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    measured = {name: Timing(seconds) for name, seconds in json.loads(done.stdout).items()}
    goals = [
        Goal(f"load_into, {kind}, {threads}", f"pread of the safetensors file, {threads}", 0.9)
        for kind in ("safetensors", "folder")
        for threads in ("1 thread", "2 threads")
    ]
    title = "LibTorch: copy 592 parameters, 1.5 GB, from cached files into a C++ module"
    return Result("libtorch_load_into", title, measured, goals)


ALL = [libtorch_load_into]
