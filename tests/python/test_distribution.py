"""Exported symbols and metadata of the installed package, and packaging recipes."""

import json
import os
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

import tenfold
from tenfold import _core

REPOSITORY = Path(__file__).parents[2]

LINKED = {
    *("xxHash", "libdeflate", "zlib", "zstd", "bzip2", "xz"),
    *("fmt", "CLI11", "nanobind", "robin-map"),
}


def objdump(*options: str) -> str:
    program = shutil.which("objdump", path=f"{os.environ['PATH']}:/usr/bin")
    return subprocess.run(
        [program, *options, _core.__file__], capture_output=True, text=True, check=True
    ).stdout


def read(name: str) -> str:
    """Returns the text of a file in the .dist-info folder."""
    text = metadata.distribution("tenfold").read_text(name)
    assert text is not None, f"no {name}"
    return text


def test_extension_exports_only_its_init_function():
    exported = {
        line.split()[-1]
        for line in objdump("-T").splitlines()
        if re.match(r"[0-9a-f]{8}", line) and "*UND*" not in line
    }
    assert exported == {"PyInit__core"}


def test_description_has_only_absolute_links():
    message = metadata.metadata("tenfold")
    # If a test has imported the package importlib_metadata, the description is a header.
    description = message.get_payload() or message["Description"]
    assert "# tenfold" in description
    assert "](https://" in description
    assert not re.findall(r"\]\((?!https?://)[^)]*\)", description)


def test_notice_names_each_shipped_license():
    files = metadata.metadata("tenfold").get_all("License-File")
    assert {"LICENSE", "NOTICE"} <= set(files)
    notice = read("licenses/NOTICE")
    named = set(re.findall(r"licenses/\S+\.txt", notice))
    assert named == set(files) - {"LICENSE", "NOTICE"}
    for name in files:
        assert len(read(f"licenses/{name}")) > 500


def test_extra_all_includes_every_extra_except_adapters():
    adapters = {"accelerate", "lightning", "ray", "torchdata", "torchrl", "transformers"}
    extras = set(metadata.metadata("tenfold").get_all("Provides-Extra"))
    (taken,) = (
        requirement
        for requirement in metadata.requires("tenfold")
        if requirement.startswith("tenfold[")
    )
    assert set(re.search(r"\[(.*)\]", taken)[1].split(",")) == extras - {"all"} - adapters


def test_sbom_and_notice_name_linked_libraries():
    bill = json.loads(read("sboms/tenfold.cdx.json"))
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["purl"] == f"pkg:pypi/tenfold@{tenfold.__version__}"
    components = {component["name"]: component for component in bill["components"]}
    assert components.keys() >= LINKED
    assert all(re.match(r"\d+\.\d+", part["version"]) for part in components.values())
    notice = read("licenses/NOTICE")
    for name in components:
        assert ("LLVM" if name == "libc++" else name) in notice


# Names that recipes use for libraries of LINKED, if they differ from the name in lower case.
RECIPES = {
    "vcpkg/ports/tenfold/vcpkg.json": {"xz": "liblzma"},
    "conan/conanfile.py": {"xz": "xz_utils"},
    "conda/recipe.yaml": {"xz": "liblzma-devel"},
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipe_names_each_linked_library(recipe):
    text = (REPOSITORY / "packaging" / recipe).read_text()
    of_python = set() if recipe.startswith("conda") else {"nanobind"}
    for library in LINKED - of_python - {"robin-map"}:  # nanobind contains robin-map
        name = RECIPES[recipe].get(library, library.lower())
        assert re.search(rf'(- |"){name}["/ \n]', text), name


@pytest.mark.parametrize("recipe", ["vcpkg/ports/tenfold/vcpkg.json", "conda/recipe.yaml"])
def test_recipe_has_the_version_of_the_package(recipe):
    text = (REPOSITORY / "packaging" / recipe).read_text()
    found = re.search(r'^ *"?version"?: "([^"]+)"', text, re.MULTILINE)
    assert found[1] == tenfold.__version__


def test_documentation_and_wheels_agree_with_the_metadata():
    package = metadata.metadata("tenfold")
    classifiers = package.get_all("Classifier")
    supported = re.findall(r"Python :: (3\.\d+)", "\n".join(classifiers))
    assert package["Requires-Python"] == f">={supported[0]}"
    project = (REPOSITORY / "pyproject.toml").read_text()
    (built,) = re.findall(r"^build = (\[.*\])$", project, re.MULTILINE)
    assert json.loads(built) == [f"cp{version.replace('.', '')}-*" for version in supported]
    readme = (REPOSITORY / "README.md").read_text()
    floors = re.findall(
        r"^(torch|numpy)>=([0-9.]+);", "\n".join(metadata.requires("tenfold")), re.MULTILINE
    )
    assert sorted(name for name, _ in floors) == ["numpy", "torch"]
    for name, floor in floors:
        assert f"{name} ({floor} or newer)" in readme
