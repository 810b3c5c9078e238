"""Writing, loading and sharing memory-mapped TensorDicts.

Each `story` is a function that runs in both libraries. Its results and exceptions must match. If it
raises nothing, file names and bytes must be equal, unless a test says otherwise.
test_memmap_growth.py tests growing and refreshing, and test_memmap_differences.py tests intended
differences.
"""

import pickle

import pytest
import torch
from fixtures import FIXTURES, numbers, values
from folders import assert_same_story, assert_same_tree, mapped, relative, tree_of, without

KINDS = (
    "nested_td", "deeper_nested_td", "nested_tensorclass", "idx_td",
    "td_with_names", "td_with_device", "locked_td", "td_with_non_tensor", "td_without_batch_size",
    "nested_stacked_td",
)  # fmt: skip


BUILDERS = [*[pytest.param(FIXTURES[kind], id=kind) for kind in KINDS],
            pytest.param(values, id="values")]  # fmt: skip


# --- writing -------------------------------------------------------------------------------------

WRITERS = {
    "memmap_": lambda td, lib, folder: td.memmap_(folder / "p"),
    "memmap": lambda td, lib, folder: td.memmap(folder / "p"),
    "memmap_of_a_str": lambda td, lib, folder: td.memmap(str(folder / "p")),
    "memmap_deep": lambda td, lib, folder: td.memmap(folder / "a" / "b" / "c"),
    "memmap_like": lambda td, lib, folder: td.memmap_like(folder / "p"),
    "memmap_over_itself": lambda td, lib, folder: [
        td.memmap(folder / "p"),
        td.memmap(folder / "p"),
    ],
    "memmap_into_an_empty_folder": lambda td, lib, folder: [
        (folder / "p").mkdir(),
        td.memmap(folder / "p"),
    ],
    "memmap_then_load": lambda td, lib, folder: [
        td.memmap(folder / "p"),
        lib.TensorDict.load_memmap(folder / "p"),
    ],
    "memmap_copy_existing": lambda td, lib, folder: [
        td.memmap_(folder / "p"),
        td.memmap(folder / "q", copy_existing=True),
    ],
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("build", BUILDERS)
def test_written_files_match_tensordict(tmp_path, build, write):
    assert_same_story(build, write, tmp_path)


@pytest.mark.parametrize("method", ["save", "dumps"])
@pytest.mark.parametrize("build", BUILDERS)
def test_save_adds_only_checksums_to_the_files_of_tensordict(tmp_path, build, method):
    def story(td, lib, folder):
        made = getattr(td, method)(folder / "p")
        return [made, sorted(without(tree_of(folder), "%checksums"))]

    assert_same_story(build, story, tmp_path, files=None)
    trees = [without(tree_of(tmp_path / name), "%checksums") for name in ("tenfold", "tensordict")]
    assert_same_tree(*trees)


@pytest.mark.parametrize("build", BUILDERS)
def test_leaves_are_mapped_from_their_files(tmp_path, build):
    if "stacked" in build.__name__:
        pytest.skip("a lazy stack returns new tensors, stacked from those of its parts")

    def story(td, lib, folder):
        source = td.memmap(folder / "p")
        loaded = lib.TensorDict.load_memmap(folder / "p")
        like = td.memmap_like(folder / "like")
        return [mapped(each, folder) for each in (source, loaded, like)]

    assert_same_story(build, story, tmp_path)


@pytest.mark.parametrize("return_early", [False, True])
@pytest.mark.parametrize("build", BUILDERS)
def test_num_threads_does_not_change_the_result(tmp_path, build, return_early):
    def story(td, lib, folder):
        made = td.memmap(folder / "p", num_threads=2, return_early=return_early)
        made = made.result() if return_early else made
        loaded = lib.TensorDict.load_memmap(folder / "p")
        kinds = [made.is_memmap(), made.is_locked, (made == td).all(), (loaded == td).all()]
        return [*kinds, sorted(without(tree_of(folder), "other.pickle"))]

    # Threads of tensordict may write other.pickle although all values are JSON.
    assert_same_story(build, story, tmp_path, files=None)


def test_return_early_without_threads_returns_the_tree(tmp_path):
    def story(td, lib, folder):
        return td.memmap_(folder / "p", num_threads=0, return_early=True) is td

    assert_same_story(FIXTURES["td"], story, tmp_path)


def test_memmap_like_keeps_values_and_writes_no_tensor(tmp_path):
    def build(lib):
        return values(lib).set("large", torch.ones(2, 1 << 17))

    def story(td, lib, folder):
        made = td.memmap_like(folder / "p")
        return [made, made["text"], made["each"], td["x"].sum()]

    assert_same_story(build, story, tmp_path)
    large = (tmp_path / "tenfold" / "p" / "large.memmap").stat()
    assert large.st_size == 1 << 20
    assert large.st_blocks * 512 < 1 << 16


def test_memmap_like_of_an_expanded_tensordict_matches_tensordict(tmp_path):
    def story(td, lib, folder):
        made = td.expand(1000, *td.batch_size).memmap_like(folder / "p")
        made[3] = td
        return [made.batch_size, lib.TensorDict.load_memmap(folder / "p")[2:5]]

    assert_same_story(FIXTURES["nested_td"], story, tmp_path)


def test_memmap_without_a_prefix_is_anonymous(tmp_path):
    def story(td, lib, folder):
        made = td.memmap()
        again = made.memmap()
        return [
            made,
            made.saved_path,
            made["a"] is again["a"],
            td.is_memmap(),
            td.memmap_() is td,
            td,
            made.memmap(folder / "p")["a"].filename == str(folder / "p" / "a.memmap"),
        ]

    assert_same_story(FIXTURES["nested_td"], story, tmp_path)


# --- leaves that are mapped already --------------------------------------------------------------

IDENTITY = {
    "twice_without_a_prefix": lambda td, lib, folder: (
        lambda first: first["a"] is first.memmap()["a"]
    )(td.memmap()),
    "twice_in_place": lambda td, lib, folder: (
        lambda leaf: leaf is td.memmap_(folder / "p")["a"]
    )(td.memmap_(folder / "p")["a"]),
    "in_place_then_without_a_prefix": lambda td, lib, folder: (
        lambda leaf: [leaf is td.memmap_()["a"], relative(td.saved_path, folder)]
    )(td.memmap_(folder / "p")["a"]),
    "same_prefix": lambda td, lib, folder: (
        lambda first: first["a"] is first.memmap(folder / "p")["a"]
    )(td.memmap(folder / "p")),
    "same_prefix_spelled_otherwise": lambda td, lib, folder: (
        lambda first: first["a"] is first.memmap(str(folder) + "/./p")["a"]
    )(td.memmap(folder / "p")),
    "another_prefix": lambda td, lib, folder: td.memmap(folder / "p").memmap(folder / "q"),
    "another_prefix_in_place": lambda td, lib, folder: td.memmap_(folder / "p").memmap_(folder / "q"),  # noqa: E501
    "another_prefix_by_save": lambda td, lib, folder: td.memmap(folder / "p").save(folder / "q"),
    "another_prefix_loaded": lambda td, lib, folder: [
        td.memmap(folder / "p"),
        lib.TensorDict.load_memmap(folder / "p").memmap(folder / "q"),
    ],
    "another_prefix_copying": lambda td, lib, folder: td.memmap(folder / "p").memmap(
        folder / "q", copy_existing=True
    ),
    "another_prefix_of_a_clone": lambda td, lib, folder: td.memmap(folder / "p").clone().memmap(
        folder / "q"
    ),
    "another_prefix_of_a_row": lambda td, lib, folder: td.memmap(folder / "p")[0].memmap(
        folder / "q"
    ),
    "anonymous_to_a_prefix": lambda td, lib, folder: td.memmap().memmap(folder / "p"),
    "loaded_then_in_place": lambda td, lib, folder: [
        td.memmap(folder / "p"),
        relative(lib.TensorDict.load_memmap(folder / "p").memmap_().saved_path, folder),
    ],
    "memmap_like_of_mapped": lambda td, lib, folder: td.memmap(folder / "p").memmap_like(
        folder / "q"
    ),
    "memmap_like_of_mapped_without_a_prefix": lambda td, lib, folder: [
        td.memmap_(folder / "p").memmap_like(),
        td,
    ],
    "new_leaves_next_to_mapped": lambda td, lib, folder: (
        td.memmap_(folder / "p").unlock_().set("new", torch.ones(td.batch_size)).memmap_(folder / "p")  # noqa: E501
    ),
    "not_existsok": lambda td, lib, folder: [
        td.memmap(folder / "p"),
        td.memmap(folder / "p", existsok=False),
    ],
    "not_existsok_elsewhere": lambda td, lib, folder: td.memmap(folder / "p", existsok=False),
    "not_existsok_threads": lambda td, lib, folder: [
        td.memmap(folder / "p"),
        td.memmap(folder / "p", existsok=False, num_threads=2),
    ],
    "a_file_in_the_way": lambda td, lib, folder: [
        (folder / "p").write_text("x"),
        td.memmap(folder / "p"),
    ],
}  # fmt: skip
IDENTITY_RAISES = {
    **dict.fromkeys(
        ("another_prefix", "another_prefix_in_place", "another_prefix_by_save",
         "another_prefix_loaded", "another_prefix_of_a_row", "not_existsok",
         "not_existsok_threads"),
        RuntimeError,
    ),
    "a_file_in_the_way": NotADirectoryError,
}  # fmt: skip


@pytest.mark.parametrize("name", IDENTITY)
def test_mapping_already_mapped_leaves_matches_tensordict(tmp_path, name):
    raises = IDENTITY_RAISES.get(name)
    assert_same_story(FIXTURES["nested_td"], IDENTITY[name], tmp_path, raises=raises)


# --- state: lock, flag, path ---------------------------------------------------------------------

STATE = {
    "flags": lambda td, lib, folder: [td.is_memmap(), td.is_locked, td.device],
    "saved_path": lambda td, lib, folder: relative(td.saved_path, folder),
    "saved_path_of_a_child": lambda td, lib, folder: relative(
        td["my_nested_td"].saved_path, folder
    ),
    "unlock": lambda td, lib, folder: td.unlock_(),
    "unlock_a_child": lambda td, lib, folder: td["my_nested_td"].unlock_().is_memmap(),
    "unlock_then_lock": lambda td, lib, folder: td.unlock_().lock_().is_memmap(),
    "set": lambda td, lib, folder: td.set("new", torch.ones(td.batch_size)),
    "set_known": lambda td, lib, folder: td.set("a", torch.zeros_like(td["a"])),
    "del": lambda td, lib, folder: td.__delitem__("a"),
    "set_": lambda td, lib, folder: td.set_("a", torch.zeros_like(td["a"])),
    "set_inplace": lambda td, lib, folder: td.set("a", torch.zeros_like(td["a"]), inplace=True),
    "set_at_": lambda td, lib, folder: td.set_at_("a", 7.0, 1),
    "setitem_row": lambda td, lib, folder: td.__setitem__(1, td[0].clone()),
    "setitem_rows": lambda td, lib, folder: td.__setitem__(slice(2), td[2:].clone()),
    "update_": lambda td, lib, folder: td.update_(td.clone().zero_()),
    "zero_": lambda td, lib, folder: td.zero_(),
    "fill_": lambda td, lib, folder: td.fill_("a", 3.0),
    "iadd": lambda td, lib, folder: td.add_(1),
    "apply_": lambda td, lib, folder: td.apply_(lambda x: x.mul_(2)),
    "write_into_a_leaf": lambda td, lib, folder: td["a"].fill_(5),
    "write_into_a_row": lambda td, lib, folder: td[1]["a"].fill_(5),
    "write_into_a_view": lambda td, lib, folder: td.view(-1)["b"].fill_(5),
    "write_into_a_copy": lambda td, lib, folder: td[[0, 1]]["a"].fill_(5),
    "write_into_a_clone": lambda td, lib, folder: td.clone()["a"].fill_(5),
    "row": lambda td, lib, folder: [td[1].is_memmap(), td[1].is_locked],
    "rows": lambda td, lib, folder: [td[:2].is_memmap(), td[1:].is_memmap(), td[None].is_memmap()],
    "list": lambda td, lib, folder: [td[[0]].is_memmap(), td[[0]].is_locked],
    "select": lambda td, lib, folder: [td.select("a").is_memmap(), td.select("a").is_locked],
    "clone": lambda td, lib, folder: td.clone(),
    "flatten_keys": lambda td, lib, folder: td.flatten_keys(),
    "unbind": lambda td, lib, folder: td.unbind(0),
    "split": lambda td, lib, folder: td.split(2),
    "permute": lambda td, lib, folder: td.permute(1, 0, 2, 3),
    "to_the_same_device": lambda td, lib, folder: td.to("cpu") is td,
    "pickle": lambda td, lib, folder: pickle.loads(pickle.dumps(td)),
    "unpickled_writes_to_the_file": lambda td, lib, folder: [
        pickle.loads(pickle.dumps(td))["a"].fill_(9),
        td,
    ],
    "type_of_results": lambda td, lib, folder: [
        type(td["a"]), type(td["a"] + 1), type(td["a"].clone()), type((td + 1)["a"]),
    ],
    "names_after_load": lambda td, lib, folder: [
        td.unlock_(), setattr(td, "names", list("wxyz")), td.memmap_(folder / "p"),
        lib.TensorDict.load_memmap(folder / "p").names,
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", STATE)
def test_state_of_a_mapped_tensordict_matches_tensordict(tmp_path, name):
    def write(td, lib, folder):
        return STATE[name](td.memmap_(folder / "p"), lib, folder)

    raises = RuntimeError if name in ("set", "set_known", "del") else None  # it is locked
    assert_same_story(FIXTURES["nested_td"], write, tmp_path, raises=raises)


@pytest.mark.parametrize("story", STATE.values(), ids=STATE)
def test_state_of_a_loaded_tensordict_matches_tensordict(tmp_path, story):
    """A loaded TensorDict is not locked and not marked as mapped; writes change its files."""
    if story in (STATE["saved_path"], STATE["saved_path_of_a_child"]):
        pytest.skip("only a marked TensorDict has a saved path: see LOADS")

    def write(td, lib, folder):
        td.memmap(folder / "p")
        loaded = lib.TensorDict.load_memmap(folder / "p")
        return [story(loaded, lib, folder), loaded]

    assert_same_story(FIXTURES["nested_td"], write, tmp_path)


# --- loading -------------------------------------------------------------------------------------

LOADS = {
    "class": lambda lib, p: lib.TensorDict.load_memmap(p),
    "base_class": lambda lib, p: lib.TensorDictBase.load_memmap(p),
    "load": lambda lib, p: lib.TensorDict.load(p),
    "of_a_str": lambda lib, p: lib.TensorDict.load_memmap(str(p)),
    "flags": lambda lib, p: (lambda td: [td.is_locked, td.is_memmap(), td.device])(
        lib.TensorDict.load_memmap(p)
    ),
    "subpath": lambda lib, p: lib.TensorDict.load_memmap(p, subpath="my_nested_td"),
    "subpath_tuple": lambda lib, p: lib.TensorDict.load_memmap(p, subpath=("my_nested_td",)),
    "subpath_of_two": lambda lib, p: lib.TensorDict.load_memmap(p, subpath="outer/inner node"),
    "subpath_of_two_tuple": lambda lib, p: lib.TensorDict.load_memmap(
        p, subpath=("outer", "inner node")
    ),
    "subpath_of_a_stack": lambda lib, p: lib.TensorDict.load_memmap(p, subpath=("stack", "1")),
    "subpath_missing": lambda lib, p: lib.TensorDict.load_memmap(p, subpath="zz"),
    "subpath_of_a_leaf": lambda lib, p: lib.TensorDict.load_memmap(p, subpath="a"),
    "subpath_upwards": lambda lib, p: lib.TensorDict.load_memmap(p, subpath="../other"),
    "subpath_empty": lambda lib, p: lib.TensorDict.load_memmap(p, subpath=""),
    "device_cpu": lambda lib, p: lib.TensorDict.load_memmap(p, device="cpu"),
    "device_meta": lambda lib, p: (
        lambda td: [td.device, td["a"].device, td["a"].shape, td["a"].dtype]
    )(lib.TensorDict.load_memmap(p, device="meta")),
    "mode_r": lambda lib, p: lib.TensorDict.load_memmap(p, mode="r"),
    "mode_r_plus": lambda lib, p: lib.TensorDict.load_memmap(p, mode="r+"),
    "mode_unknown": lambda lib, p: lib.TensorDict.load_memmap(p, mode="w"),
    "write_in_mode_none": lambda lib, p: lib.TensorDict.load_memmap(p)["a"].fill_(3),
    "write_in_mode_r": lambda lib, p: lib.TensorDict.load_memmap(p, mode="r")["a"].fill_(3),
    "write_in_mode_r_plus": lambda lib, p: lib.TensorDict.load_memmap(p, mode="r+")["a"].fill_(3),
    "two_loads_share": lambda lib, p: [
        lib.TensorDict.load_memmap(p)["a"].fill_(4),
        lib.TensorDict.load_memmap(p)["a"],
    ],
    "saved_path_after_memmap_": lambda lib, p: (
        lib.TensorDict.load_memmap(p).memmap_().saved_path == p
    ),
    "out": lambda lib, p: lib.TensorDict.load_memmap(p, out=lib.TensorDict({}, [4, 3, 2, 1])),
    "out_is_returned": lambda lib, p: (
        lambda out: lib.TensorDict.load_memmap(p, out=out) is out
    )(lib.TensorDict({}, [4, 3, 2, 1])),
    "out_with_more": lambda lib, p: lib.TensorDict.load_memmap(
        p, out=lib.TensorDict({"more": torch.ones(4, 3, 2, 1)}, [4, 3, 2, 1])
    ),
    "out_locked": lambda lib, p: lib.TensorDict.load_memmap(
        p, out=lib.TensorDict({}, [4, 3, 2, 1]).lock_()
    ),
    "out_of_another_device": lambda lib, p: lib.TensorDict.load_memmap(
        p, device="meta", out=lib.TensorDict({}, [4, 3, 2, 1], device="cpu")
    ),
    "load_memmap_": lambda lib, p: lib.TensorDict({}, [4, 3, 2, 1]).load_memmap_(p),
    "load_memmap_over_entries": lambda lib, p: lib.TensorDict(
        {"a": torch.zeros(4, 3, 2, 1, 5), "more": torch.zeros(4, 3, 2, 1)}, [4, 3, 2, 1]
    ).load_memmap_(p),
    "nothing_there": lambda lib, p: lib.TensorDict.load_memmap(p / "nothing"),
    "no_metadata": lambda lib, p: lib.TensorDict.load_memmap(p.parent),
}  # fmt: skip
LOADS_RAISES = {
    **dict.fromkeys(
        ("subpath_missing", "subpath_of_a_leaf", "subpath_upwards", "mode_unknown",
         "out_of_another_device"),
        ValueError,
    ),
    "out_locked": RuntimeError,
    "nothing_there": FileNotFoundError,
    "no_metadata": FileNotFoundError,
}  # fmt: skip


def to_load(lib):
    td = FIXTURES["nested_td"](lib)
    inner = lib.TensorDict({"x": numbers(4, 3, 2, 1)}, td.batch_size)
    td["outer"] = lib.TensorDict({"inner node": inner}, td.batch_size)
    td["stack"] = lib.lazy_stack(
        [lib.TensorDict({"y": numbers(3, 2, 1, i + 1)}, [3, 2, 1]) for i in range(4)], 0
    )
    return td


@pytest.mark.parametrize("name", LOADS)
def test_load_memmap_options_match_tensordict(tmp_path, name):
    def story(td, lib, folder):
        td.memmap(folder / "p")
        return LOADS[name](lib, folder / "p")

    assert_same_story(to_load, story, tmp_path, raises=LOADS_RAISES.get(name))


@pytest.mark.parametrize("build", BUILDERS)
def test_load_memmap_of_every_fixture_matches_tensordict(tmp_path, build):
    def story(td, lib, folder):
        td.memmap(folder / "p")
        by_class = lib.TensorDict.load_memmap(folder / "p")
        return [by_class, (by_class == td).all(), by_class.batch_size]

    assert_same_story(build, story, tmp_path)


# --- the other library's folders -----------------------------------------------------------------


@pytest.mark.parametrize("build", BUILDERS)
def test_libraries_can_load_and_modify_each_others_folders(tmp_path, build):
    """Each library loads a folder of the other and writes in place; the other sees these writes."""
    import tensordict
    from folders import assert_same_values

    import tenfold

    both = {"tensordict": tensordict, "tenfold": tenfold}
    for (name, writer), other in zip(both.items(), reversed(both.values()), strict=True):
        path = tmp_path / name
        mine = build(writer).memmap_(path)
        theirs = other.TensorDict.load_memmap(path)
        assert_same_values(theirs, writer.TensorDict.load_memmap(path))
        theirs.zero_()
        assert_same_values(mine, theirs)
    assert_same_tree(tree_of(tmp_path / "tenfold"), tree_of(tmp_path / "tensordict"))
