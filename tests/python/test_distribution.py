"""What the installed package says about itself."""

import re
from importlib import metadata


def read(name: str) -> str:
    """A file of the .dist-info folder."""
    text = metadata.distribution("tenfold").read_text(name)
    assert text is not None, f"no {name}"
    return text


def test_the_description_has_no_links_into_the_repository():
    description = metadata.metadata("tenfold").get_payload()
    assert "# tenfold" in description
    assert "](https://" in description
    assert not re.findall(r"\]\((?!https?://)[^)]*\)", description)


def test_the_notices_name_each_licence_that_is_shipped():
    files = metadata.metadata("tenfold").get_all("License-File")
    assert {"LICENSE", "NOTICE"} <= set(files)
    notice = read("licenses/NOTICE")
    named = set(re.findall(r"licenses/\S+\.txt", notice))
    assert named == set(files) - {"LICENSE", "NOTICE"}
    for name in files:
        assert len(read(f"licenses/{name}")) > 500


def test_the_extra_all_takes_every_other_extra():
    extras = set(metadata.metadata("tenfold").get_all("Provides-Extra"))
    (taken,) = (
        requirement
        for requirement in metadata.requires("tenfold")
        if requirement.startswith("tenfold[")
    )
    assert set(re.search(r"\[(.*)\]", taken)[1].split(",")) == extras - {"all"}
