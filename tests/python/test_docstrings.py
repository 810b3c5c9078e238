"""The examples in docstrings run unchanged, each in its own folder."""

from __future__ import annotations

import doctest
import io
from pathlib import Path

import pytest

pytest.importorskip("torch")

import tenfold
from docstring_examples import Checker, examples, prepare

EXAMPLES = examples()
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def test_docstring_examples_are_found() -> None:
    assert len(EXAMPLES) > 400
    assert {
        *("tenfold", "tenfold.load", "tenfold.Dataset.append", "tenfold.TensorDict.to"),
        *("tenfold.stack", "tenfold.LazyStackedTensorDict.unbind", "tenfold.safetensors.load"),
    } <= {*EXAMPLES}


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("name", EXAMPLES)
def test_docstring_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    test = EXAMPLES[name]
    test.globs = prepare(name, test.docstring or "")
    report = io.StringIO()
    runner = doctest.DocTestRunner(Checker(), optionflags=FLAGS)
    try:
        runner.run(test, out=report.write)
    finally:
        tenfold.set_framework(None)  # an example sets it
    assert runner.failures == 0, report.getvalue()
