"""`tenfold.Dataset`: rows, columns and views."""

from __future__ import annotations

import errno
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tenfold
from tenfold import Dataset

ROWS = 1000


def ids(ds: Dataset) -> list[int]:
    return ds[:]["id"].tolist()


def test_a_row_is_a_dict_of_tensors_without_the_first_dimension(ds: Dataset) -> None:
    row = ds[5]
    assert list(row) == ds.columns == ["x", "id", "flag", "half", "frame", "camera"]
    assert row["id"].shape == ()
    assert row["id"] == 5
    assert row["frame"].shape == (2, 4)
    assert row["camera"]["gain"] == 5.0
    assert ds[-1]["id"] == ROWS - 1


@pytest.mark.parametrize(
    "index",
    [
        [3, 1, 2],
        [],
        [-1, 0],
        slice(2, 9),
        slice(None, None, 100),
        slice(9, 2, -3),
        slice(990, 5000),
        range(0, 50, 7),
        np.array([5, 4]),
        np.array([5, 4], dtype=np.int32),
        np.array([[1, 2], [3, 4]]),
        torch.tensor([7, 7, 0]),
        torch.tensor([[1, 2, 3]], dtype=torch.int32),
        torch.tensor([200, 3], dtype=torch.uint8),
        torch.arange(ROWS) > 990,
        np.arange(ROWS) % 400 == 0,
        [i < 2 for i in range(ROWS)],
    ],
    ids=str,
)
def test_several_rows_equal_the_result_of_torch_indexing(
    ds: Dataset, path: Path, index: object
) -> None:
    tree = tenfold.load(path)
    batch = ds[index]
    plain = torch.arange(ROWS).numpy()[list(index) if isinstance(index, range) else index]
    rows = torch.from_numpy(np.ascontiguousarray(plain))
    for name in ("x", "id", "flag", "half", "frame"):
        expected = tree[name][rows.long()]
        assert batch[name].dtype == expected.dtype
        assert torch.equal(batch[name], expected), name
    assert torch.equal(batch["camera"]["gain"], tree["camera", "gain"][rows.long()])


@pytest.mark.parametrize(
    ("index", "error"),
    [
        (ROWS, IndexError),
        (-ROWS - 1, IndexError),
        ([0, ROWS], IndexError),
        (torch.tensor([ROWS]), IndexError),
        (1.0, TypeError),
        (None, TypeError),
        (True, TypeError),
        (torch.tensor([1.5]), TypeError),
        ((1, 2), IndexError),
        (torch.ones(5, dtype=torch.bool), IndexError),
        ([True, False], IndexError),
        ("nope", KeyError),
        (("camera", "nope"), KeyError),
    ],
    ids=str,
)
def test_an_invalid_index_is_an_error(ds: Dataset, index: object, error: type) -> None:
    with pytest.raises(error):
        ds[index]


@pytest.mark.parametrize("framework", ["torch", "numpy"])
@pytest.mark.parametrize("values", [[[1], [1, 2]], ["a", "b"]], ids=["ragged", "strings"])
def test_ragged_rows_and_strings_take_indices_of_one_dimension(
    tmp_path: Path, values: list[Any], framework: Any
) -> None:
    tenfold.ingest({"x": values}, tmp_path / "d")
    ds = Dataset(tmp_path / "d", framework=framework)
    with pytest.raises(tenfold.UnsupportedError, match="indices of one dimension, found 2"):
        ds[np.zeros((2, 2), np.int64)]


def test_a_column_is_a_view_of_the_mapping(ds: Dataset, path: Path) -> None:
    tree = tenfold.load(path)
    assert torch.equal(ds["x"], tree["x"])
    assert torch.equal(ds["camera", "gain"], tree["camera", "gain"])
    assert torch.equal(ds["camera.gain"], tree["camera", "gain"])
    assert torch.equal(ds["camera"]["gain"], tree["camera", "gain"])
    column, part = ds["id"], ds.range(10, 20)["id"]
    assert part.tolist() == list(range(10, 20))
    assert ds["id"].data_ptr() == column.data_ptr()
    assert part.data_ptr() == column[10:].data_ptr()
    assert ds.take([5, 3])["id"].tolist() == [5, 3]


def test_the_validity_of_a_column_is_a_column_of_bools(tmp_path: Path) -> None:
    rows = [
        {"age": age, "score": score, "name": name, "r": {"n": age}, "full": 1}
        for age, score, name in [(1, None, "a"), (None, 2.0, None), (3, 3.0, "c"), (4, None, "")]
    ]
    ds = tenfold.ingest(rows, tmp_path / "ds")
    expected = {
        "age.valid": [True, False, True, True],
        "score.valid": [False, True, True, False],
        "name.valid": [True, False, True, True],
        "r.n.valid": [True, False, True, True],
    }
    views = {
        "all": (ds, [0, 1, 2, 3]),
        "range": (ds.range(1, 3), [1, 2]),
        "take": (ds.take([3, 1, 1]), [3, 1, 1]),
        "pickled": (pickle.loads(pickle.dumps(ds.range(1, 4))), [1, 2, 3]),
        "concat": (tenfold.concat([ds.range(2, 4), ds]), [2, 3, 0, 1, 2, 3]),
        "mapped": (ds.map(lambda batch: batch, batched=True), [0, 1, 2, 3]),
        "mapped rows": (ds.range(1, 3).map(dict), [1, 2]),
    }
    for view, (shown, indices) in views.items():
        for name, valid in expected.items():
            found = shown[name]
            assert found.dtype == torch.bool
            assert found.tolist() == [valid[i] for i in indices], (view, name)
    assert ds["r", "n.valid"].tolist() == expected["r.n.valid"]
    selected = ds.select(["score.valid", "score"])
    assert selected[1]["score.valid"].item() is True
    assert selected[:]["score.valid"].tolist() == expected["score.valid"]
    loader = tenfold.BatchLoader(selected, batch_size=3)
    assert next(iter(loader))["score.valid"].tolist() == expected["score.valid"][:3]
    with pytest.raises(KeyError, match=r"no column \"full\.valid\""):
        ds["full.valid"]
    with pytest.raises(KeyError, match=r"full\.valid"):
        ds.map(dict)["full.valid"]
    # Values that the function sets are valid; columns that it drops are missing.
    filled = ds.map(lambda row: {**row, "score": row["score"].nan_to_num(0)})
    assert filled["score.valid"].tolist() == [True] * 4
    with pytest.raises(KeyError, match=r"score"):
        ds.map(lambda row: {"age": row["age"]})["score.valid"]


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_validity_of_mapped_floats_without_rows_or_with_ragged_rows_is_read(
    tmp_path: Path, framework: Any
) -> None:
    vector = tenfold.Column("float32", (2,), nullable=True)
    ragged = tenfold.Column("float32", ragged=True, nullable=True)
    with tenfold.create(tmp_path / "ds", {"v": vector, "r": ragged}) as made:
        made.append([{"v": [1, 2], "r": [1]}, {"v": None, "r": [2, 3]}])
    ds = Dataset(tmp_path / "ds", framework=framework).map(lambda row: {**row})
    assert ds["v.valid"].tolist() == [True, False]
    assert ds.head(0)["v.valid"].tolist() == []
    assert ds["r.valid"].tolist() == [True, True]
    with pytest.raises(KeyError, match=r"r\.valid"):
        ds.map(lambda row: {"r": row["r"]})["r.valid"]
    with pytest.raises(KeyError, match=r"v\.valid"):
        ds.map(lambda row: {"v": "text"})["v.valid"]


def test_batch_is_a_copy(ds: Dataset) -> None:
    batch = ds[[1, 2]]
    batch["id"].zero_()
    assert ds[[1, 2]]["id"].tolist() == [1, 2]


def test_views_compose(ds: Dataset) -> None:
    view = ds.range(100, 200).take([5, -1, 5]).range(1, 3).select(["id"])
    assert ids(view) == [199, 105]
    assert view.columns == ["id"]
    assert ids(ds.filter(lambda batch: batch["id"] % 250 == 0)) == [0, 250, 500, 750]
    assert ids(ds.shard(rank=1, world_size=3)) == list(range(334, 667))
    assert ids(ds.select(["camera", "id"]).range(3, 1)) == []
    assert list(ds.select([("camera", "gain")])[0]) == ["camera"]


@given(
    fractions=st.lists(st.integers(0, 10), min_size=1, max_size=5).filter(any),
    seed=st.none() | st.integers(0, 2**32),
)
@settings(max_examples=30, deadline=None)
def test_split_assigns_every_row_once(fractions: list[int], seed: int | None) -> None:
    data = Dataset({"id": torch.arange(137)})
    parts = data.split([part / sum(fractions) for part in fractions], seed=seed)
    assert sorted(row for part in parts for row in ids(part)) == list(range(137))
    for part, fraction in zip(parts, fractions, strict=True):
        assert abs(len(part) - 137 * fraction / sum(fractions)) <= 1


def test_split_sizes_must_sum_to_one_or_to_the_rows(ds: Dataset) -> None:
    with pytest.raises(ValueError, match="sum to 1"):
        ds.split([0.5, 0.4])
    with pytest.raises(ValueError, match="sum to 1000"):
        ds.split([500, 400])


def test_concat_and_mix_combine_rows_and_refuse_another_schema(ds: Dataset) -> None:
    both = tenfold.concat([ds.range(0, 3), ds.range(500, 502)])
    assert ids(both) == [0, 1, 2, 500, 501]
    mixed = tenfold.mix([ds.range(0, 100), ds.range(900, 910)], [0.8, 0.2])
    late = [row for row in ids(mixed) if row >= 900]
    assert late == list(range(900, 910))
    assert 36 <= len(mixed) - len(late) <= 44
    other = Dataset({"id": torch.arange(3, dtype=torch.int32)})
    with pytest.raises(ValueError, match=r'column "id".*int64.*int32'):
        tenfold.concat([ds.select(["id"]), other])
    with pytest.raises(ValueError, match=r'column "id".*int64.*int32'):
        tenfold.mix([ds.select(["id"]), other], [0.5, 0.5])


def test_mapped_rows_are_stacked_into_batches(ds: Dataset) -> None:
    mapped = ds.map(lambda row: {"double": row["id"] * 2, "name": str(int(row["id"]))})
    assert mapped[3] == {"double": torch.tensor(6), "name": "3"}
    batch = mapped[[1, 4]]
    assert batch["double"].tolist() == [2, 8]
    assert batch["name"] == ["1", "4"]
    assert mapped["double"].tolist()[:3] == [0, 2, 4]
    batched = ds.map(lambda batch: {"sum": batch["x"].sum(1)}, batched=True)
    assert batched[2]["sum"].shape == ()
    assert torch.allclose(batched[[2, 3]]["sum"], ds["x"][[2, 3]].sum(1))
    chained = mapped.map(lambda row: row["double"] + 1)
    assert chained[1] == 3

    def fail(row: dict) -> dict:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        ds.map(fail)[0]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["id", "id.valid", ("camera", "gain")])
def test_column_of_mapped_rows_that_are_not_dicts_is_a_type_error(ds: Dataset, name: Any) -> None:
    for function in (lambda row: row["id"], lambda row: (row["id"], row["id"])):
        with pytest.raises(TypeError, match=r'column ".*": expected dicts as the results of map'):
            ds.head(3).map(function)[name]


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_mapped_lists_of_strings_stay_lists(tmp_path: Path, framework: Any) -> None:
    columns = {
        "tags": {"dtype": "string", "ragged": True},
        "raw": {"dtype": "bytes", "ragged": True},
    }
    tags = [["a", "bb"], ["c"], [], ["d"], ["e"], []]
    rows = [{"tags": row, "raw": [text.encode() for text in row]} for row in tags]
    tenfold.ingest(rows, tmp_path / "rows", schema=columns)
    ds = Dataset(tmp_path / "rows", framework=framework)
    mapped = ds.map(dict)
    for chosen in (slice(0, 6), slice(3, 5), slice(3, 4), slice(2, 3), slice(0, 0), [5, 2]):
        assert mapped[chosen] == ds[chosen]
        assert ds.map(lambda row: {"r": row})[chosen] == {"r": ds[chosen]}
    assert mapped["tags"] == tags
    (batch,) = tenfold.BatchLoader(mapped, 6, pad=0)
    assert batch == ds[:]
    assert tenfold.collate(mapped.__getitems__([3, 4])) == ds[3:5]


def test_ragged_arrays_of_strings_are_not_padded(path: Path) -> None:
    ds = Dataset(path, framework="numpy")
    texts = ds.range(0, 2).map(lambda row: {"t": np.array(["a"] * (1 + int(row["id"])))})
    (batch,) = tenfold.BatchLoader(texts, 2, pad=0)
    assert [row.tolist() for row in batch["t"]] == [["a"], ["a", "a"]]


def test_mapped_rows_with_different_keys_are_refused(ds: Dataset) -> None:
    mapped = ds.map(lambda row: {"a": 1} if int(row["id"]) == 1 else {"a": 1, "b": 2})
    message = r"sample 1 of the batch: expected the keys of the first sample, \['a'\]"
    with pytest.raises(ValueError, match=message):
        mapped[[1, 4]]
    nested = ds.map(lambda row: {"n": {str(int(row["id"])): 1}})
    with pytest.raises(ValueError, match='entry "n": expected the keys of the first sample'):
        nested[[1, 4]]


def test_names_of_python_types_mean_the_same_without_numpy(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["numpy"] = sys.modules["torch"] = None
import tenfold
print(tenfold.create(sys.argv[1], {"x": "float", "n": "int"}).schema)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "without")]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    with tenfold.create(tmp_path / "with", {"x": "float", "n": "int"}) as created:
        assert found == str(created.schema) == "x: float64\nn: int64"


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda batch: {"x": batch["x"][:-1], "id": batch["id"]}, "column 'x'"),
        (lambda batch: {"deep": {"x": torch.cat([batch["x"], batch["x"]])}}, "column 'deep.x'"),
        (lambda batch: (batch["id"], batch["id"][:0]), "column '1'"),
        (lambda batch: batch["id"][1:], "expected"),
        (lambda batch: {"t": ["one"] * (len(batch["id"]) + 1)}, "column 't'"),
    ],
)
def test_batched_map_must_keep_the_number_of_rows(
    ds: Dataset, function: object, named: str
) -> None:
    mapped = ds.map(function, batched=True)
    calls = {
        "batch": lambda: mapped[0:3],
        "row": lambda: mapped[0],
        "indices": lambda: mapped[torch.tensor([[0, 1], [2, 3], [4, 5]])],
        "rows": lambda: list(mapped),
        "items": lambda: mapped.__getitems__([0, 1, 2]),
        "loader": lambda: next(iter(tenfold.BatchLoader(mapped, 3))),
        "stream": lambda: next(iter(tenfold.IterableDataset(mapped))),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=rf"function of batches: .*{named}.*found"):
            print(name, call())


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_batched_map_may_return_nested_tensors_only_if_jagged(ds: Dataset) -> None:
    def nested(batch: dict, layout: torch.layout) -> dict:
        return {"n": torch.nested.nested_tensor([*batch["x"]], layout=layout)}

    jagged = ds.map(lambda batch: nested(batch, torch.jagged), batched=True)
    assert jagged[0:3]["n"].size(0) == 3
    strided = ds.map(lambda batch: nested(batch, torch.strided), batched=True)
    message = "column 'n': expected a nested tensor of layout torch.jagged, found torch.strided; "
    for call in (lambda: strided[0:3], lambda: strided[0], lambda: list(strided)):
        with pytest.raises(ValueError, match=message):
            call()


def test_row_of_a_batched_map_is_a_row_of_each_result(ds: Dataset) -> None:
    mapped = ds.map(lambda batch: (batch["id"], {"x": batch["x"]}), batched=True)
    number, rest = mapped[7]
    assert number == 7
    assert torch.equal(rest["x"], ds["x"][7])


def test_transform_argument_maps_rows(path: Path) -> None:
    assert Dataset(path, transform=lambda row: row["id"])[7] == 7


def test_iteration_yields_every_row(ds: Dataset) -> None:
    assert [int(row["id"]) for row in ds.range(100, 700)] == list(range(100, 700))
    assert [int(row) for row in ds.range(0, 3).map(lambda row: row["id"])] == [0, 1, 2]


def test_dataset_and_its_views_pickle_by_path(ds: Dataset) -> None:
    view = ds.range(100, 900).split([0.5, 0.5], seed=3)[1].select(["id"]).take([1, 2])
    again = pickle.loads(pickle.dumps(view))
    assert ids(again) == ids(view)
    assert len(pickle.dumps(ds)) < 1000
    with pytest.raises(tenfold.UnsupportedError, match="save it first"):
        pickle.dumps(Dataset({"id": torch.arange(3)}))


def _doubled(row: dict) -> dict:
    return {"id": row["id"] * 2}


def test_a_pickled_view_of_a_replaced_data_set_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ds"
    tenfold.ingest([{"id": i} for i in range(8)], path)
    ds = Dataset(path)
    pickled = [
        pickle.dumps(some)
        for some in (ds, ds.range(2, 4), tenfold.concat([ds, ds]), ds.split([0.5, 0.5])[0])
    ]
    for text in pickled:
        assert len(pickle.loads(text)) > 0
    tenfold.ingest([{"id": -i} for i in range(8)], path, overwrite=True)
    opened_before = pickle.dumps(ds.range(2, 4))
    for text in [*pickled, opened_before]:
        with pytest.raises(OSError, match="replaced since it was opened; open it again") as raised:
            pickle.loads(text)
        assert raised.value.errno == errno.ESTALE
    assert ids(pickle.loads(pickle.dumps(Dataset(path).range(2, 4)))) == [-2, -3]


def test_unpickled_view_excludes_rows_appended_later(tmp_path: Path) -> None:
    path = tmp_path / "ds"
    tenfold.ingest([{"id": i} for i in range(6)], path)
    ds = Dataset(path)
    views = [ds.shard(rank=1, world_size=2), ds.take([-1, 0]), tenfold.concat([ds, ds.range(0, 2)])]
    pickled = [pickle.dumps(view) for view in views]
    with Dataset(path, "r+") as writer:
        writer.extend([{"id": i} for i in range(6, 9)])
    for view, text in zip(views, pickled, strict=True):
        again = pickle.loads(text)
        assert ids(again) == ids(view)
        assert ids(pickle.loads(pickle.dumps(again))) == ids(view)
    assert len(pickle.loads(pickle.dumps(ds))) == 9


def test_pickle_of_nested_concat_does_not_grow_exponentially(ds: Dataset) -> None:
    joined = tenfold.concat([ds.range(0, 2), ds.range(4, 6)])
    for _ in range(40):  # 2**40 parts, if each level doubled their number
        joined = tenfold.concat([joined.range(2, 4), joined.range(0, 2)])
    again = pickle.loads(pickle.dumps(joined))
    assert ids(again) == ids(joined) == [0, 1, 4, 5]


def test_concat_and_mix_pickle_by_the_paths_of_their_parts(ds: Dataset) -> None:
    mapped = ds.select(["id"]).map(_doubled)
    parts = [mapped.range(0, 100), mapped.shard(rank=1, world_size=3)]
    for joined in (tenfold.concat(parts), tenfold.mix(parts, [0.7, 0.3])):
        view = joined.range(5, 120).map(_doubled).take([100, 0])
        again = pickle.loads(pickle.dumps(view))
        assert ids(again) == ids(view)
        assert ids(pickle.loads(pickle.dumps(again))) == ids(view)
    with pytest.raises(tenfold.UnsupportedError, match="save it first"):
        pickle.dumps(tenfold.concat([Dataset({"id": torch.arange(3)})]))


def test_filter_accepts_only_bool_masks(ds: Dataset) -> None:
    some = [i % 3 == 0 for i in range(ROWS)]
    expected = list(range(0, ROWS, 3))
    for mask in (some, torch.tensor(some), np.array(some), lambda batch: batch["id"] % 3 == 0):
        assert ids(ds.filter(mask)) == expected
    assert ids(ds.range(0, 0).filter([])) == []
    assert ids(ds.range(0, 0).filter(lambda batch: batch["id"] > 0)) == []
    for mask in ([0] * ROWS, torch.zeros(ROWS, dtype=torch.int64), lambda batch: batch["id"]):
        with pytest.raises(TypeError, match="filter: mask: expected bools, found int"):
            ds.filter(mask)
    for mask in (some[1:], torch.tensor(some[1:]), lambda batch: [True]):
        with pytest.raises(IndexError, match=rf"filter: mask: expected shape \({ROWS},\)"):
            ds.filter(mask)


@pytest.mark.parametrize("mask", [True, None, 1, iter([True]), lambda batch: len(batch)])
def test_filter_without_a_list_of_bools_is_a_type_error(ds: Dataset, mask: Any) -> None:
    with pytest.raises(TypeError, match="filter: mask: expected a list, tensor or array of bools"):
        ds.filter(mask)


def test_filter_accepts_masks_of_pyarrow(ds: Dataset) -> None:
    pa = pytest.importorskip("pyarrow")
    some = [i % 3 == 0 for i in range(ROWS)]
    for mask in (pa.array(some), pa.chunked_array([some[:7], some[7:]])):
        assert ids(ds.filter(mask)) == list(range(0, ROWS, 3))
    with pytest.raises(TypeError, match="filter: mask: expected bools, found object"):
        ds.filter(pa.array([None, *some[1:]]))


@pytest.mark.parametrize("value", [torch.tensor([True, False]), np.zeros((2, 0), bool)])
def test_a_filter_list_of_arrays_is_a_type_error(ds: Dataset, value: Any) -> None:
    with pytest.raises(
        TypeError, match="filter: mask: expected bools, found an array of bools of shape"
    ):
        ds.filter([value] * ROWS)


def test_messages_of_take_name_the_argument_once(ds: Dataset) -> None:
    with pytest.raises(TypeError, match=r"^take: indices: expected integers or bools, found float"):
        ds.take(np.array([1.0]))
    with pytest.raises(IndexError, match=r"^take: mask: expected shape \("):
        ds.take(np.array([True]))


def test_a_filter_is_called_with_blocks_of_rows() -> None:
    sizes = []

    def is_even(batch: dict) -> torch.Tensor:
        sizes.append(len(batch["id"]))
        return batch["id"] % 2 == 0

    rows = 150_000
    assert ids(Dataset({"id": torch.arange(rows)}).filter(is_even)) == list(range(0, rows, 2))
    assert sizes == [65_536, 65_536, rows - 2 * 65_536]


def test_any_tree_of_equally_long_tensors_is_a_data_set(tmp_path: Path) -> None:
    columns = {"x": torch.rand(7, 2), "y": torch.arange(7)}
    for name in ("a.safetensors", "folder"):
        data = Dataset(tenfold.save(columns, tmp_path / name, durable=False))
        assert torch.equal(data[[6, 0]]["x"], columns["x"][[6, 0]])
    with pytest.raises(ValueError, match="same number of rows: expected 7, found 6"):
        Dataset({"x": torch.rand(7), "y": torch.arange(6)})
    message = (
        'entry "x.1": all columns of a data set have the same number of rows: expected 2, found 1; '
        "each tensor of a list is a column"
    )
    with pytest.raises(ValueError, match=message):
        Dataset({"x": [torch.zeros(2, 3), torch.zeros(1, 2)]})
    with pytest.raises(ValueError, match=r"batch_size.*expected \[N\], found \[\]"):
        Dataset(tenfold.TensorDict({"x": torch.rand(7)}))


def test_the_schema_is_a_mapping_that_survives_json(ds: Dataset) -> None:
    schema = ds.schema
    assert schema["frame"] == tenfold.Column("uint8", (2, 4))
    assert str(schema).splitlines()[0] == "x: float32[3]"
    assert str(schema).splitlines()[-1] == "camera.gain: float64"
    assert tenfold.Schema.from_json(schema.to_json()) == schema
    assert "1,000 rows" in repr(ds)


def test_integers_beyond_64_bits_raise_clear_errors(tmp_path: Path) -> None:
    ds = tenfold.ingest([{"x": 1}, {"x": 2}], tmp_path / "d")
    for index in (2**63, 2**70, -(2**70)):
        with pytest.raises(IndexError, match=r"data set: expected an index in \[-2, 2\)"):
            ds[index]
    with pytest.raises(IndexError, match=f"row {-(2**63)}: expected an index"):
        ds[-(2**63)]
    with pytest.raises(IndexError):
        ds[[2**70]]
    with pytest.raises(ValueError, match="shard: world_size: expected an int that fits int64"):
        ds.shard(rank=0, world_size=2**70)
    with pytest.raises(ValueError, match=f"shard: .* found rank {-(2**63)} of 1$"):
        ds.shard(rank=-(2**63), world_size=1)
    with pytest.raises(ValueError, match="split: seed: expected 0 to 18446744073709551615"):
        ds.split([1, 1], seed=2**64)
    with pytest.raises(TypeError, match=r"permutation: size: expected an int, found 2\.5"):
        tenfold.permutation(2.5)
    with pytest.raises(ValueError, match="permutation: seed: expected 0 to 18446744073709551615"):
        tenfold.permutation(2, seed=-1)


def test_ints_of_numpy_and_torch_are_options_but_bools_are_not(ds: Dataset) -> None:
    with pytest.raises(TypeError, match="split: size: expected an int, found True"):
        ds.split([True, 1])
    for flag in (True, torch.tensor(True), np.bool_(True)):
        with pytest.raises(TypeError, match="head: n: expected an int"):
            ds.head(flag)
    for number in (torch.tensor([1]), np.uint8(1), np.array(1)):
        assert len(ds.head(number)) == 1


def test_concat_and_mix_accept_iterators_and_reject_non_lists(ds: Dataset) -> None:
    assert len(tenfold.concat(ds.range(0, n) for n in (2, 3))) == 5
    assert len(tenfold.mix((ds.range(0, 4) for _ in range(2)), [1, 1])) == 8
    for join in (tenfold.concat, lambda parts: tenfold.mix(parts, [1])):
        for parts in (ds, "path", None, 3):
            with pytest.raises(TypeError, match="expected a list of data sets"):
                join(parts)
        with pytest.raises(TypeError, match=r"found str; open a folder with tenfold.Dataset"):
            join(["path"])


def test_lists_of_bools_of_numpy_and_torch_are_masks(tmp_path: Path) -> None:
    ds = tenfold.ingest({"x": [10, 11, 12]}, tmp_path / "d")
    for mask in (list(np.array([True, False, True])), list(torch.tensor([True, False, True]))):
        assert ds[mask]["x"].tolist() == [10, 12]
        with pytest.raises(IndexError, match=r"mask: expected shape \(3,\), found \(2,\)"):
            ds[mask[1:]]


def test_uint64_indices_do_not_wrap(ds: Dataset) -> None:
    for index in (np.uint64(2**64 - 1), np.array([2**64 - 1], np.uint64), [2**64 - 1]):
        with pytest.raises(IndexError, match="found one that int64 does not hold"):
            ds[index]
    for index in (torch.tensor([-1]).view(torch.uint64), np.array(2**63, np.uint64)):
        with pytest.raises(IndexError):
            ds[index]
    assert int(ds[np.uint64(3)]["id"]) == 3


def test_pandas_series_are_valid_indices(ds: Dataset) -> None:
    pd = pytest.importorskip("pandas")
    assert ds[pd.Series([3, 1])]["id"].tolist() == [3, 1]
    assert ds.take(pd.Index([5]))["id"].tolist() == [5]
    assert ds.filter(lambda batch: pd.Series(batch["id"].numpy() < 2))["id"].tolist() == [0, 1]


def test_invalid_columns_and_indices_raise(ds: Dataset) -> None:
    with pytest.raises(TypeError, match="select: columns: expected a list of names, found None"):
        ds.select(None)  # type: ignore[arg-type]
    with pytest.raises(IndexError, match=r"take: indices: expected one dimension, found shape"):
        ds.take(torch.tensor([[0, 1], [2, 3]]))
    with pytest.raises(ValueError, match="split: sizes: expected fractions that sum to 1"):
        ds.split([float("nan")])
