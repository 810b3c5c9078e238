"""Growing and refreshing memory-mapped TensorDicts: make_memmap*, memmap_refresh_, append_memmap.

As in test_memmap_life.py, each `story` runs in both libraries, and the results must be equal. The
files must be equal too, unless a test says otherwise.
"""

import json

import pytest
import torch
from fixtures import FIXTURES, numbers, values
from folders import assert_same_story, relative

# --- growing and refreshing ----------------------------------------------------------------------

MAKING = {
    "make_memmap": lambda td: td.make_memmap("new", (4, 3, 2, 1, 7)),
    "make_memmap_size": lambda td: td.make_memmap("new", torch.Size([4, 3, 2, 1])),
    "make_memmap_dtype": lambda td: td.make_memmap("new", (4, 3, 2, 1), dtype=torch.int16),
    "make_memmap_nested": lambda td: td.make_memmap(("my_nested_td", "new"), (4, 3, 2, 1)),
    "make_memmap_in_a_new_node": lambda td: td.make_memmap(("o", "p", "q"), (4, 3, 2, 1)),
    "make_memmap_in_a_child": lambda td: td["my_nested_td"].make_memmap("new", (4, 3, 2, 1)),
    "make_memmap_odd_key": lambda td: td.make_memmap("a/b c", (4, 3, 2, 1)),
    "make_memmap_zero_elements": lambda td: td.make_memmap("new", (4, 3, 2, 1, 0)),
    "make_memmap_twice": lambda td: [td.make_memmap("new", (4, 3, 2, 1)) for _ in range(2)],
    "make_memmap_known": lambda td: td.make_memmap("a", (4, 3, 2, 1)),
    "make_memmap_wrong_shape": lambda td: td.make_memmap("new", (3, 3)),
    "make_memmap_write": lambda td: td.make_memmap("new", (4, 3, 2, 1)).fill_(7),
    "make_memmap_several": lambda td: [td.make_memmap(k, (4, 3, 2, 1)) for k in "zyx"],
    "make_memmap_from_tensor": lambda td: td.make_memmap_from_tensor("new", numbers(4, 3, 2, 1)),
    "from_tensor_strided": lambda td: td.make_memmap_from_tensor(
        "new", numbers(1, 2, 3, 4).permute(3, 2, 1, 0)
    ),
    "from_tensor_without_data": lambda td: td.make_memmap_from_tensor(
        "new", numbers(4, 3, 2, 1), copy_data=False
    ),
    "from_tensor_nested": lambda td: td.make_memmap_from_tensor(
        ("my_nested_td", "new"), numbers(4, 3, 2, 1, dtype=torch.float64)
    ),
    "from_tensor_of_a_mapped_leaf": lambda td: td.make_memmap_from_tensor("new", td["a"]),
    "from_tensor_known": lambda td: td.make_memmap_from_tensor("a", numbers(4, 3, 2, 1)),
    "from_tensor_wrong_shape": lambda td: td.make_memmap_from_tensor("new", numbers(3)),
    "flags": lambda td: [td.make_memmap("new", (4, 3, 2, 1)), td.is_locked, td.is_memmap()],
}  # fmt: skip
MAKING_RAISES = dict.fromkeys(
    ("make_memmap_twice", "make_memmap_known", "make_memmap_wrong_shape", "from_tensor_known",
     "from_tensor_wrong_shape"),
    RuntimeError,
)  # fmt: skip


@pytest.mark.parametrize("name", MAKING)
def test_make_memmap_matches_tensordict(tmp_path, name):
    def story(td, lib, folder):
        td.memmap_(folder / "p")
        made = MAKING[name](td)
        leaf = made[0] if isinstance(made, list) else made
        loaded = lib.TensorDict.load_memmap(folder / "p")
        is_there = [relative(leaf.filename, folder), type(leaf), (folder / "p").exists()]
        return [made, is_there, sorted(loaded.keys(True, True), key=str), loaded]

    assert_same_story(FIXTURES["nested_td"], story, tmp_path, raises=MAKING_RAISES.get(name))


# The cases that are excluded here differ. In anonymous memory, tensordict cannot map empty tensors,
# copies data despite copy_data=False, and does not lock new nodes.
WITHOUT_FILES = MAKING.keys() - {
    "make_memmap_zero_elements", "from_tensor_without_data", "make_memmap_in_a_new_node",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(WITHOUT_FILES))
def test_make_memmap_without_files_matches_tensordict(tmp_path, name):
    def story(td, lib, folder):
        made = MAKING[name](td.memmap_())
        leaf = made[0] if isinstance(made, list) else made
        return [made, type(leaf)]

    assert_same_story(FIXTURES["nested_td"], story, tmp_path, raises=MAKING_RAISES.get(name))


def test_make_memmap_needs_a_mapped_tensordict(tmp_path):
    def story(td, lib, folder):
        td.memmap(folder / "p")
        return lib.TensorDict.load_memmap(folder / "p").make_memmap("new", (4, 3, 2, 1))

    assert_same_story(FIXTURES["nested_td"], story, tmp_path, raises=RuntimeError)


def storage_of(path, nbytes=96):
    path.write_bytes(bytes(range(nbytes)))
    return torch.UntypedStorage.from_file(str(path), shared=True, nbytes=nbytes)


@pytest.mark.parametrize("case", ["its_own_file", "another_file", "wrong_shape", "known"])
def test_make_memmap_from_storage_matches_tensordict(tmp_path, case):
    def story(td, lib, folder):
        td.memmap_(folder / "p")
        name = "other" if case == "another_file" else "new"
        storage = storage_of(folder / "p" / f"{name}.memmap")
        key = "a" if case == "known" else "new"
        shape = (3, 3) if case == "wrong_shape" else (4, 3, 2, 1)
        made = td.make_memmap_from_storage(key, storage, shape, dtype=torch.int32)
        same_memory = made.untyped_storage().data_ptr() == storage.data_ptr()
        return [made, same_memory, lib.TensorDict.load_memmap(folder / "p")["new"]]

    raises = None if case == "its_own_file" else RuntimeError
    assert_same_story(FIXTURES["nested_td"], story, tmp_path, raises=raises)


def test_nested_tensor_is_created_from_its_sizes(tmp_path):
    def story(td, lib, folder):
        td.memmap_(folder / "p")
        made = td.make_memmap("ragged", torch.tensor([[2, 3], [1, 3]]), dtype=torch.float32)
        loaded = lib.TensorDict.load_memmap(folder / "p")["ragged"]
        return [[tuple(part.shape) for part in each.unbind(0)] for each in (made, loaded)]

    assert_same_story(lambda lib: lib.TensorDict({"x": numbers(2)}, [2]), story, tmp_path)


REFRESH = {
    "nothing_changed": lambda other, lib: None,
    "values": lambda other, lib: other["a"].fill_(11),
    "a_new_leaf": lambda other, lib: other.memmap_().make_memmap("new", (4, 3, 2, 1)),
    "a_new_nested_leaf": lambda other, lib: other.memmap_().make_memmap(
        ("my_nested_td", "new"), (4, 3, 2, 1)
    ),
    "a_new_node": lambda other, lib: other.memmap_().make_memmap(("o", "p"), (4, 3, 2, 1)),
}


@pytest.mark.parametrize("change", REFRESH.values(), ids=REFRESH)
def test_refresh_after_external_changes_matches_tensordict(tmp_path, change):
    def story(td, lib, folder):
        td.memmap_(folder / "p")
        change(lib.TensorDict.load_memmap(folder / "p"), lib)
        return [td.memmap_refresh_() is td, td.is_locked, td.is_memmap(), td]

    # tensordict rewrites each meta.json, with the keys in the order in which it loaded them.
    assert_same_story(FIXTURES["nested_td"], story, tmp_path, files="json")


def test_refresh_rereads_values_and_drops_removed_entries(tmp_path):
    def story(td, lib, folder):
        td.memmap_(folder / "p")
        meta = json.loads((folder / "p" / "meta.json").read_text())
        del meta["x"]
        (folder / "p" / "meta.json").write_text(json.dumps(meta))
        text = json.loads((folder / "p" / "text" / "meta.json").read_text())
        (folder / "p" / "text" / "meta.json").write_text(json.dumps({**text, "data": "changed"}))
        td.memmap_refresh_()
        return [list(td.keys()), td["text"]]

    assert_same_story(values, story, tmp_path, files=None)


@pytest.mark.parametrize("how", ["in_memory", "anonymous", "loaded"])
def test_refresh_without_a_saved_path_matches_tensordict(tmp_path, how):
    def story(td, lib, folder):
        if how == "anonymous":
            td.memmap_()
        elif how == "loaded":
            td.memmap(folder / "p")
            td = lib.TensorDict.load_memmap(folder / "p")
        return td.memmap_refresh_()

    assert_same_story(FIXTURES["td"], story, tmp_path, raises=RuntimeError)


APPENDED = {
    "one_row": lambda td, lib: td[:1],
    "three_rows": lambda td, lib: td[torch.tensor([2, 0, 1])],
    "no_rows": lambda td, lib: td[:0],
    "other_keys": lambda td, lib: td[:1].select("a"),
    "other_shape": lambda td, lib: lib.TensorDict({"a": numbers(1, 9), "n": td["n"][:1]}, [1]),
    "other_dtype": lambda td, lib: td[:1].to(torch.float64),
}


@pytest.mark.parametrize("name", APPENDED)
def test_append_memmap_matches_tensordict(tmp_path, name):
    def story(td, lib, folder):
        td.memmap(folder / "p")
        result = lib.append_memmap(folder / "p", APPENDED[name](td, lib).clone())
        return [result, lib.TensorDict.load_memmap(folder / "p")]

    def build(lib):
        return lib.TensorDict(
            {"a": numbers(4, 3), "n": {"x": numbers(4, 2, dtype=torch.int16)}}, [4]
        )

    raises = ValueError if name.startswith("other") else None
    assert_same_story(build, story, tmp_path, raises=raises)
