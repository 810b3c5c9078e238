import math

import pytest
import torch

import tenfold
from helpers import DTYPES, make_tensor

TREE = {
    "model": {"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(3)},
    "betas": (0.9, 0.99),
    "step": 7,
}


def changed(**entries):
    return {**TREE, **entries}


def test_saved_tree_equals_its_source(target):
    tenfold.save(TREE, target)
    report = tenfold.diff(target, TREE)
    assert report.same
    assert (report.added, report.removed, report.changed) == ((), (), ())
    assert report.num_leaves == 4
    assert repr(report) == "DiffReport(same: 4 tensors and values)"


def test_error_measures_match_torch(target):
    old, new = TREE["model"]["w"], TREE["model"]["w"] + torch.tensor([0.0, 0.5, -0.25])
    tenfold.save(TREE, target)
    (change,) = tenfold.diff(target, changed(model={**TREE["model"], "w": new})).changed
    assert (change.key, change.kind) == ("model.w", "values")
    assert change.max_abs == (old - new).abs().max()
    assert change.rel_l2 == pytest.approx(((old - new).norm() / old.norm()).item())
    cosine = torch.nn.functional.cosine_similarity(old.flatten(), new.flatten(), dim=0)
    assert change.cosine == pytest.approx(cosine.item(), rel=1e-6)
    assert change.num_different == 4


@pytest.mark.parametrize(("rtol", "atol"), [(0, 0), (0.1, 0), (0, 0.3), (1e-3, 1e-3)])
def test_tolerance_matches_allclose(rtol, atol):
    generator = torch.Generator().manual_seed(1)
    for scale in (0.0, 1e-4, 1e-2, 0.2):
        a = torch.randn(50, generator=generator, dtype=torch.float64)
        b = a + scale * torch.rand(50, generator=generator, dtype=torch.float64)
        a[7] = b[7] = math.nan
        expected = torch.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
        assert tenfold.diff({"x": a}, {"x": b}, rtol=rtol, atol=atol).same == expected


@pytest.mark.filterwarnings("ignore:.*tensordict 0.15.3 cannot load")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_is_compared(tmp_path, dtype):
    tensor = make_tensor((5, 4), dtype)
    tenfold.save({"x": tensor}, tmp_path / "a")
    assert tenfold.diff({"x": tensor}, tmp_path / "a").same


def test_added_removed_and_changed_keys_are_listed():
    report = tenfold.diff(TREE, changed(step=8, extra=torch.ones(1), betas=[0.9, 0.99]))
    assert report.added == ("extra",)
    assert report.removed == ()
    assert [(c.key, c.kind) for c in report.changed] == [("betas", "json"), ("step", "json")]
    assert math.isnan(report.changed[0].cosine)
    assert tenfold.diff(changed(extra=torch.ones(1)), TREE).removed == ("extra",)


def test_dtype_change_has_error_measures():
    half = {**TREE["model"], "w": TREE["model"]["w"].half()}
    (change,) = tenfold.diff(TREE, changed(model=half), atol=1).changed
    assert (change.kind, change.max_abs, change.b) == ("dtype", 0.0, "float16 [2, 3]")
    assert change.what == "float32 [2, 3] -> float16 [2, 3]"


def test_modules_can_be_compared_with_files(tmp_path):
    module = torch.nn.Linear(3, 2)
    tenfold.save(module.state_dict(), tmp_path / "m")
    assert tenfold.diff(tmp_path / "m", module).same


def test_report_is_shown_as_a_table():
    report = tenfold.diff(TREE, changed(step=8, **{"<b>": torch.ones(1)}))
    assert repr(report).splitlines() == [
        "DiffReport(1 changed, 0 removed, 1 added)",
        "key   change  what    differ  max abs  rel l2  cosine",
        "step  json    7 -> 8  -       -        -       -",
        "<b>   added",
    ]
    html = report._repr_html_()
    assert "<td>7 -&gt; 8</td>" in html
    assert "&lt;b&gt;" in html
    assert "<b>" not in html


def test_missing_file_and_invalid_tolerance_raise(tmp_path):
    with pytest.raises(FileNotFoundError):
        tenfold.diff(tmp_path / "nothing", TREE)
    with pytest.raises(ValueError, match="rtol: expected 0 or more, found -1"):
        tenfold.diff(TREE, TREE, rtol=-1)


@pytest.mark.parametrize("wrong", ["x", "0.5", b"0.5", None, 1j, torch.ones(2)])
@pytest.mark.parametrize("name", ["rtol", "atol"])
def test_a_tolerance_must_be_a_number(name, wrong):
    with pytest.raises(TypeError, match=f"diff: {name}: expected a float, found "):
        tenfold.diff(TREE, TREE, **{name: wrong})


def saved_by_torch(path, value):
    torch.save({"a": value}, path)
    return path


def test_sparse_tensors_of_different_shapes_differ(tmp_path):
    parts = ([[0, 1], [0, 1]], [1.0, 1.0])
    one = {"a": torch.sparse_coo_tensor(*parts, (2, 2))}
    other = {"a": torch.sparse_coo_tensor(*parts, (2, 3))}
    assert tenfold.diff(one, one).same
    (change,) = tenfold.diff(one, other).changed
    assert (change.key, change.kind) == ("a", "node")
    assert "[2, 3]" in change.b


def test_opaque_objects_of_different_classes_differ(tmp_path):
    one = saved_by_torch(tmp_path / "a.pt", torch.nn.ReLU)
    other = saved_by_torch(tmp_path / "b.pt", torch.nn.GELU)
    assert tenfold.diff(one, one).same
    (change,) = tenfold.diff(one, other).changed
    assert "ReLU" in change.a
    assert "GELU" in change.b


@pytest.mark.filterwarnings("ignore")
def test_tensors_that_cannot_be_compared_are_reported_as_changed(tmp_path):
    def packed(tensor):
        return torch.quantize_per_channel(tensor, torch.ones(1), torch.zeros(1), 0, torch.quint4x2)

    one = saved_by_torch(tmp_path / "a.pt", packed(torch.ones(1, 3)))
    other = saved_by_torch(tmp_path / "b.pt", packed(torch.zeros(1, 3)))
    (change,) = tenfold.diff(one, other).changed
    assert "whose bytes are not compared" in change.a


def test_a_report_has_no_truth_value() -> None:
    for other in (TREE, changed(extra=torch.ones(1))):
        with pytest.raises(TypeError, match=r"^DiffReport: .*use \.same$"):
            bool(tenfold.diff(TREE, other))
