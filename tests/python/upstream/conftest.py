"""Fixtures of the tests that compare tenfold with other libraries: tensordict, torch, ..."""

import functools
import pathlib
import sys
import warnings

import pytest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))  # trees and describe.py, also imported by old_version.py


@pytest.fixture(autouse=True)
def _no_advice():
    """Ignores warnings of other libraries, and the warning of tenfold about float8 and float4."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", message=".*nested tensors.*")
        warnings.filterwarnings("ignore", message="ComplexHalf support is experimental")
        warnings.filterwarnings("ignore", message=".*cannot load float8 and float4")
        yield


@pytest.fixture(scope="session")
def memmap_of(tmp_path_factory):
    """Returns a function that takes the name of a tree, and writes it with tensordict's `memmap`.

    The function returns the folder. Each folder is written once, and must not be changed.
    """
    import trees

    root = tmp_path_factory.mktemp("memmap")

    @functools.cache
    def write(name: str) -> pathlib.Path:
        path = root / name
        trees.build(name).memmap(path)
        return path

    return write


@pytest.fixture(scope="session")
def save_of(tmp_path_factory):
    """Returns a function that takes the name of a tree, and writes it with `tenfold.save`.

    The function returns the folder. Each folder is written once, and must not be changed.
    """
    import trees

    import tenfold

    root = tmp_path_factory.mktemp("save")

    @functools.cache
    def write(name: str) -> pathlib.Path:
        with warnings.catch_warnings():  # float8 has a separate test
            warnings.simplefilter("ignore")
            return tenfold.save(trees.build(name), root / name, durable=False, progress=False)

    return write
