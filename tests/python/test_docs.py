"""The Python code of README.md, docs/ and the README.md of top-level folders runs unchanged.

The blocks of a page run in order, in an empty folder. A block that needs a library which
the tests do not install has an info string such as `python requires=lmdb`. It runs separately, and
only if the library is installed.
"""

import gzip
import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import tenfold  # noqa: E402

ROOT = Path(__file__).parents[2]
TEXTS = {
    page: page.read_text()
    for page in sorted(
        [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md")]
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
    """Returns the code with the line numbers of the page, so that errors point to the page."""
    line = TEXTS[page].count("\n", 0, block.start(2))
    return compile("\n" * line + block[2], str(page), "exec")


def test_every_python_block_is_found():
    for page in PAGES:
        assert TEXTS[page].count("```python") == len(BLOCK.findall(TEXTS[page])), page


def anchors(text):
    """Returns the anchors that GitHub generates for the headings."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_point_to_existing_files_and_headings(page):
    for link in re.findall(r"\]\(((?!https?:)[^)\s]+)\)", TEXTS[page]):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.read_text()), link


# PyTorch raises this warning if dcp.load is called without a process group.
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # dataclasses look up the module of a class, so `__name__` must be that of an existing module.
    scope = {"__name__": "__main__"}
    for block in BLOCK.finditer(TEXTS[page]):
        if not block[1]:
            exec(compiled(page, block), scope)


@pytest.mark.parametrize(("page", "block"), ALONE)
def test_python_blocks_that_need_another_library_run(page, block, tmp_path, monkeypatch):
    pytest.importorskip(block[1], reason=f"{block[1]} is not installed")
    monkeypatch.chdir(tmp_path)
    exec(compiled(page, block), {"__name__": "__main__"})


def test_shell_commands_of_the_readme_run(tmp_path):
    state = {"model": {"weight": torch.rand(3, 2), "bias": torch.rand(3)}}
    tenfold.save(state, tmp_path / "run" / "step_3")
    tenfold.save({"model": {**state["model"], "bias": torch.rand(3)}}, tmp_path / "run" / "step_4")
    torch.save(state, tmp_path / "downloaded.pt")
    with gzip.open(tmp_path / "trips-1.csv.gz", "wt") as file:
        file.write("id,distance\n1,0.5\n")

    section = TEXTS[ROOT / "README.md"].split("## Shell\n")[1].split("\n## ")[0]
    commands = re.search(r"```sh\n(.*?)```", section, re.DOTALL)[1].splitlines()
    assert len(commands) >= 10
    for command in commands:
        program, *arguments = shlex.split(command, comments=True)
        assert program == "tenfold"
        arguments = [str(next(tmp_path.glob(a), a)) if "trips-" in a else a for a in arguments]
        done = subprocess.run(
            [sys.executable, "-m", "tenfold", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        # The two steps differ, so the exit status of diff is 1.
        assert done.returncode == (arguments[0] == "diff"), f"{command}\n{done.stdout}{done.stderr}"
    assert tenfold.load(tmp_path / "weights.safetensors")["model"]["bias"].dtype == torch.bfloat16
    assert len(tenfold.Dataset(tmp_path / "trips")) == 1


def test_summary_of_the_measurements_matches_their_tables():
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / "summary.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_measured_table_replaces_the_one_of_its_benchmark(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "bench")
    import summary

    def table(title, median):
        return f"### {title}\n\n| contender | median ms |\n| a | {median} |\n"

    page = "\n".join(["Machine", table("Save", 1), table("Load", 1), table("Other", 1)])
    tables = summary.updated_tables(page, {"save": table("Save", 2), "new": table("New", 2)})
    assert [re.findall(r"### (.+)|\| (\d) \|", one) for one in tables] == [
        [(title, ""), ("", median)]
        for title, median in [("Save", "2"), ("Load", "1"), ("Other", "1"), ("New", "2")]
    ]
    page = "\n".join(tables)
    tables = summary.updated_tables(page, {"save": table("Save, renamed", 3)})
    assert [one.split("\n", 1)[0] for one in tables] == [
        "### Save, renamed", "### Load", "### Other", "### New",
    ]  # fmt: skip


def test_signatures_in_the_docs_match_the_functions():
    stated = re.findall(
        r"`tenfold\.(\w+)\(([^`]*\*,[^`]*?)\)(?: -> \w+)?`", TEXTS[ROOT / "docs/python.md"]
    )
    assert len(stated) >= 6
    for name, parameters in stated:
        found = inspect.signature(getattr(tenfold, name))
        without_types = [p.replace(annotation=p.empty) for p in found.parameters.values()]
        signature = inspect.Signature(without_types)
        assert re.sub(r"\s+", " ", parameters) == str(signature)[1:-1].replace("'", '"'), name
