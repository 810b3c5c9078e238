"""The examples of tensordict's page "Saving TensorDict and tensorclass objects".

The tests repeat the code of the page, but import from tenfold and add assertions.
"""

import pathlib
import tempfile

import pytest
import torch
from torch import nn

import tenfold


def names():
    """Returns the classes and the function that the examples import."""
    from tenfold import MemoryMappedTensor, TensorDict, TensorDictBase, tensorclass
    from tenfold.utils import print_directory_tree

    return MemoryMappedTensor, TensorDict, TensorDictBase, tensorclass, print_directory_tree


def tree(path, indent=""):
    """Returns the names below a path, indented by four spaces a level; folders end in "/"."""
    lines = [indent + path.name + ("/" if path.is_dir() else "")]
    if path.is_dir():
        for item in sorted(path.iterdir()):
            lines += tree(item, indent + "    ")
    return lines


def expected(text, root):
    return [line.replace("ROOT", root) for line in text.strip("\n").splitlines()]


def test_a_model_is_saved_by_many_threads_and_loaded(tmp_path):
    from tenfold import TensorDict

    model = nn.Transformer(d_model=32, nhead=4, dim_feedforward=64)
    weights = TensorDict.from_module(model)
    weights_disk = weights.memmap(tmp_path / "dir", num_threads=32)
    new_weights = TensorDict.load_memmap(tmp_path / "dir")
    assert (weights_disk == new_weights).all()
    assert (weights == new_weights).all()
    assert set(new_weights.keys(True, True)) == set(weights.keys(True, True))
    new_model = nn.Transformer(d_model=32, nhead=4, dim_feedforward=64)
    new_weights.to_module(new_model)
    for name, parameter in model.state_dict().items():
        assert torch.equal(new_model.state_dict()[name], parameter), name


def test_dataset_of_a_million_rows_is_preallocated(tmp_path):
    from tenfold import MemoryMappedTensor, TensorDict

    def make_datum():
        return TensorDict({"image": torch.randint(255, (3, 64, 64)), "label": 0}, batch_size=[])

    dataset_size = 1_000_000
    datum = make_datum()
    data = datum.expand(dataset_size)
    assert data["image"].untyped_storage().data_ptr() == datum["image"].untyped_storage().data_ptr()
    data_disk = data.memmap_like(tmp_path / "data")
    del data

    image, label = tmp_path / "data" / "image.memmap", tmp_path / "data" / "label.memmap"
    assert image.stat().st_size == dataset_size * 3 * 64 * 64 * 8  # 98 GB
    assert label.stat().st_size == dataset_size * 8
    assert image.stat().st_blocks * 512 < 1 << 20
    assert label.stat().st_blocks * 512 < 1 << 20

    assert data_disk.batch_size == torch.Size([dataset_size])
    assert data_disk.is_memmap()
    assert isinstance(data_disk["image"], MemoryMappedTensor)
    data_disk[dataset_size - 1] = datum
    last = TensorDict.load_memmap(tmp_path / "data")[dataset_size - 1]
    assert (last == datum).all()
    assert image.stat().st_blocks * 512 < 1 << 20


@pytest.mark.parametrize("method", ["memmap_", "memmap", "memmap_like"])
def test_memmap_without_a_prefix_is_anonymous(method):
    from tenfold import MemoryMappedTensor, TensorDict

    td = TensorDict({"a": torch.rand(10), "b": {"c": torch.rand(10)}}, [10])
    made = getattr(td, method)()
    assert isinstance(made["a"], MemoryMappedTensor)
    assert isinstance(made["b", "c"], MemoryMappedTensor)
    assert made.is_memmap()
    assert (made is td) == (method == "memmap_")


def test_folders_follow_the_nesting_of_keys(tmp_path, monkeypatch, capsys):
    _, TensorDict, _, _, print_directory_tree = names()  # noqa: N806

    monkeypatch.chdir(tmp_path)
    td = TensorDict({"a": torch.rand(10), "b": {"c": torch.rand(10)}}, [10])
    td.memmap_(prefix="tensordict")

    assert tree(tmp_path / "tensordict") == expected(
        """
tensordict/
    a.memmap
    b/
        c.memmap
        meta.json
    meta.json
""",
        "tensordict",
    )
    printed = print_directory_tree("tensordict", display_metadata=False)
    assert sorted(printed.splitlines()) == sorted(tree(tmp_path / "tensordict"))
    assert pathlib.Path(td.saved_path).resolve() == tmp_path / "tensordict"


def make_data(tenfold_tensorclass, TensorDict):  # noqa: N803
    td_list = [TensorDict({"item": i}, batch_size=[]) for i in range(4)]

    @tenfold_tensorclass
    class MyClass:
        data: torch.Tensor
        metadata: str

    tc = MyClass(torch.randn(3), metadata="some text", batch_size=[])
    data = TensorDict({"td_list": torch.stack(td_list), "tensorclass": tc}, [])
    return MyClass, tc, data


def test_stacks_and_tensorclasses_round_trip(capsys):
    _, TensorDict, TensorDictBase, tensorclass, print_directory_tree = names()  # noqa: N806

    my_class, tc, data = make_data(tensorclass, TensorDict)
    with tempfile.TemporaryDirectory() as tempdir:
        data.memmap_(tempdir)

        loaded_data = TensorDictBase.load_memmap(tempdir)
        assert (loaded_data == data).all()
        printed = print_directory_tree(tempdir)
        root = pathlib.Path(tempdir).name
        found = tree(pathlib.Path(tempdir))

    assert isinstance(loaded_data["tensorclass"], my_class)
    assert loaded_data["tensorclass"].metadata == "some text"
    assert torch.equal(loaded_data["tensorclass"].data, tc.data)
    assert loaded_data["td_list"].batch_size == torch.Size([4])
    assert loaded_data["td_list", "item"].tolist() == [0, 1, 2, 3]
    # torch.stack of TensorDicts with equal keys and shapes is dense: one file for four items.
    assert found == expected(
        """
ROOT/
    meta.json
    td_list/
        item.memmap
        meta.json
    tensorclass/
        _tensordict/
            data.memmap
            meta.json
            metadata/
                meta.json
        meta.json
""",
        root,
    )
    assert sorted(printed.splitlines()[1:]) == sorted(found)
    assert printed.splitlines()[0].startswith("Directory size: ")


def test_lazy_stack_writes_the_published_folder_tree():
    """The page predates the dense torch.stack: it shows the folder tree of a lazy stack."""
    _, TensorDict, TensorDictBase, tensorclass, _ = names()  # noqa: N806

    _, _, data = make_data(tensorclass, TensorDict)
    data["td_list"] = tenfold.lazy_stack(list(data["td_list"].unbind(0)))
    with tempfile.TemporaryDirectory() as tempdir:
        data.memmap_(tempdir)
        loaded_data = TensorDictBase.load_memmap(tempdir)
        assert (loaded_data == data).all()
        found = tree(pathlib.Path(tempdir))
        root = pathlib.Path(tempdir).name
    items = "".join(
        f"""
        {i}/
            item.memmap
            meta.json"""
        for i in range(4)
    )
    assert found == expected(
        f"""
ROOT/
    meta.json
    td_list/{items}
        meta.json
    tensorclass/
        _tensordict/
            data.memmap
            meta.json
            metadata/
                meta.json
        meta.json
""",
        root,
    )


def test_mapping_twice_returns_the_same_tensors():
    from tenfold import TensorDict

    td = TensorDict({"a": 1}, [])
    td0 = td.memmap()
    td1 = td0.memmap()
    assert td0["a"] is td1["a"]


def test_mapped_tensors_are_not_copied_to_another_path_implicitly():
    from tenfold import TensorDict

    td = TensorDict({"a": 1}, [])
    with tempfile.TemporaryDirectory() as tmpdir_0:
        td0 = td.memmap(tmpdir_0)
        td0 = td.memmap(tmpdir_0)  # works, results are just overwritten
        with tempfile.TemporaryDirectory() as tmpdir_1:
            with pytest.raises(RuntimeError, match="copy_existing=True"):
                td0.memmap(tmpdir_1)
            with pytest.raises(FileNotFoundError):
                TensorDict.load_memmap(tmpdir_1)  # breaks!
        with tempfile.TemporaryDirectory() as tmpdir_1:
            td0.memmap(tmpdir_1, copy_existing=True)
            td_load = TensorDict.load_memmap(tmpdir_1)  # works!
            assert (td_load == td).all()
        assert (TensorDict.load_memmap(tmpdir_0) == td).all()
