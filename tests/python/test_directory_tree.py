"""`tenfold.utils.print_directory_tree`."""

import pytest
import torch

from tenfold import TensorDict
from tenfold.utils import print_directory_tree


def test_files_and_folders_are_listed_in_order(tmp_path, capsys):
    TensorDict({"b": {"c": torch.ones(3)}, "a": torch.zeros(3)}).memmap(tmp_path / "saved")
    text = print_directory_tree(tmp_path / "saved", indent="> ", display_metadata=False)
    assert text == "\n".join(
        [
            "> saved/",
            ">     a.memmap",
            ">     b/",
            ">         c.memmap",
            ">         meta.json",
            ">     meta.json",
        ]
    )
    assert capsys.readouterr().out == text + "\n"


def test_links_below_the_folder_are_listed_but_not_followed(tmp_path):
    saved = tmp_path / "saved"
    (saved / "inner").mkdir(parents=True)
    (saved / "file").write_bytes(b"12345")
    (saved / "loop").symlink_to(".")
    (saved / "dangling").symlink_to("none")
    (saved / "link").symlink_to("file")
    size, *lines = print_directory_tree(saved).splitlines()
    assert size.startswith("Directory size: ")
    names = ["dangling", "file", "inner/", "link", "loop"]
    assert lines == ["saved/"] + [f"    {name}" for name in names]


def test_path_may_be_a_file_or_a_link_to_a_folder(tmp_path):
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved/file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("saved")
    assert print_directory_tree(tmp_path / "saved/file") == "Directory size: 5.00 B\nfile"
    assert print_directory_tree(tmp_path / "link", display_metadata=False) == "link/\n    file"


@pytest.mark.parametrize("display_metadata", [True, False])
def test_missing_path_is_an_error(tmp_path, display_metadata):
    with pytest.raises(FileNotFoundError, match="none"):
        print_directory_tree(tmp_path / "none", display_metadata=display_metadata)
