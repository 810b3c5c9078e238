"""The Python of README and docs/ runs as it stands, each page from its top in its own folder.

A block that needs a library which the tests do not install names it behind the language,
```python requires=lmdb, and stands for itself: it is run alone, where that library is installed.
"""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
TEXTS = {
    page: page.read_text()
    for page in sorted(
        [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *ROOT.glob("*/README.md")]
    )
}
BLOCK = re.compile(r"^```python(?: requires=(\w+))?\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [page for page, text in TEXTS.items() if "```python" in text]
ALONE = [
    pytest.param(page, block, id=f"{page.name}-{block[1]}")
    for page in PAGES
    for block in BLOCK.finditer(TEXTS[page])
    if block[1]
]


def compiled(page, block):
    """Code whose line numbers are those of the page."""
    line = TEXTS[page].count("\n", 0, block.start(2))
    return compile("\n" * line + block[2], str(page), "exec")


def test_every_block_of_python_is_known():
    for page in PAGES:
        assert TEXTS[page].count("```python") == len(BLOCK.findall(TEXTS[page])), page


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # A module of its own, because dataclasses look theirs up.
    scope = {"__name__": "__main__"}
    for block in BLOCK.finditer(TEXTS[page]):
        if not block[1]:
            exec(compiled(page, block), scope)


@pytest.mark.parametrize(("page", "block"), ALONE)
def test_python_that_needs_another_library_runs(page, block, tmp_path, monkeypatch):
    pytest.importorskip(block[1], reason=f"{block[1]} is not installed")
    monkeypatch.chdir(tmp_path)
    exec(compiled(page, block), {"__name__": "__main__"})
