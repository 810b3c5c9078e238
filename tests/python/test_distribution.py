"""Exports and metadata of the installed package."""

import json
import os
import re
import shutil
import subprocess
from importlib import metadata

import tenfold._core

LINKED = {
    *("xxHash", "libdeflate", "zlib", "zstd", "bzip2", "xz"),
    *("fmt", "CLI11", "nanobind", "robin-map"),
}


def objdump(*options: str) -> str:
    program = shutil.which("objdump", path=f"{os.environ['PATH']}:/usr/bin")
    return subprocess.run(
        [program, *options, tenfold._core.__file__], capture_output=True, text=True, check=True
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
    # The importlib_metadata package, if a test has imported it, stores the description as a header.
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
