"""The Python of README and docs/ runs as it stands, each page from its top in its own folder."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    if "```python" in page.read_text()
)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    # A module of its own, because dataclasses look theirs up.
    scope = {"__name__": "__main__"}
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, block.start(1))
        code = compile("\n" * line + block.group(1), str(page), "exec")
        exec(code, scope)
