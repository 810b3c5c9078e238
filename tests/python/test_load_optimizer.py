"""load_into for optimizers, compared with torch's load_state_dict."""

import copy

import pytest
import torch

import tenfold
from helpers import assert_same, rename_named_in
from tenfold import _core

OPTIMIZERS = {
    "adam": lambda params: torch.optim.Adam(params, lr=0.02, betas=(0.8, 0.9)),
    "adam-amsgrad": lambda params: torch.optim.Adam(params, amsgrad=True),
    "adam-foreach-maximize": lambda params: torch.optim.Adam(params, foreach=True, maximize=True),
    "adamw": lambda params: torch.optim.AdamW(params, weight_decay=0.1),
    "adamw-fused": lambda params: torch.optim.AdamW(params, fused=True),
    "sgd": lambda params: torch.optim.SGD(params, lr=0.02),
    "sgd-momentum": lambda params: torch.optim.SGD(params, lr=0.02, momentum=0.9, nesterov=True),
    "rmsprop": lambda params: torch.optim.RMSprop(params),
    "rmsprop-centered": lambda params: torch.optim.RMSprop(params, momentum=0.5, centered=True),
    "adagrad": lambda params: torch.optim.Adagrad(params, lr_decay=0.1),
    "lbfgs": lambda params: torch.optim.LBFGS(params, lr=0.1, max_iter=4, history_size=3),
    "lbfgs-wolfe": lambda params: torch.optim.LBFGS(params, line_search_fn="strong_wolfe"),
    "nadam": lambda params: torch.optim.NAdam(params),
    "radam": lambda params: torch.optim.RAdam(params),
    "adamax": lambda params: torch.optim.Adamax(params),
    "asgd": lambda params: torch.optim.ASGD(params),
    "rprop": lambda params: torch.optim.Rprop(params),
    "adadelta": lambda params: torch.optim.Adadelta(params),
    "adafactor": lambda params: torch.optim.Adafactor(params),
}


def model(seed=0, **kwargs):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 3, **kwargs), torch.nn.Tanh(), torch.nn.Linear(3, 1, **kwargs)
    )


def train(net, optimizer, steps):
    x = torch.linspace(-1, 1, 32).reshape(8, 4).to(net[0].weight.dtype)

    def loss():
        optimizer.zero_grad()
        value = (net(x) - 1).square().mean()
        value.backward()
        return value

    return [optimizer.step(loss).item() for _ in range(steps)]


def two_groups(net):
    return [
        {"params": net[0].parameters(), "lr": 0.03, "weight_decay": 0.2},
        {"params": net[2].parameters()},
    ]


def two_named_groups(net):
    first, second = list(net[0].named_parameters("0")), list(net[2].named_parameters("2"))
    return [{"params": first, "lr": 0.03}, {"params": second}]


def stepped(make=torch.optim.Adam, params=lambda net: net.parameters(), steps=3, seed=0):
    net = model(seed)
    optimizer = make(params(net))
    train(net, optimizer, steps)
    return net, optimizer


@pytest.mark.parametrize("target_has_stepped", [False, True], ids=["fresh", "stepped"])
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_matches_load_state_dict_and_training_continues_equally(tmp_path, make, target_has_stepped):
    net, optimizer = stepped(make)
    path = tenfold.save({"model": net, "optimizer": optimizer}, tmp_path / "saved")
    ours, theirs = copy.deepcopy(net), copy.deepcopy(net)
    loaded, judged = make(ours.parameters()), make(theirs.parameters())
    if target_has_stepped:
        for other, changed in ((loaded, ours), (judged, theirs)):
            train(changed, other, 1)
            changed.load_state_dict(net.state_dict())
    report = tenfold.load_into(loaded, tenfold.open(path)["optimizer"])
    assert report.ok
    judged.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # torch would share the tensors
    assert_same(loaded.state_dict(), judged.state_dict())
    for position, state in loaded.state_dict()["state"].items():
        assert {f"state.{position}.{key}" for key in state} - set(report.loaded) <= {
            f"state.{position}.{key}" for key in state if isinstance(state[key], list)
        }
    assert train(ours, loaded, 3) == train(theirs, judged, 3) == train(net, optimizer, 3)


def test_sparse_adam_equals_load_state_dict(tmp_path):
    weight = torch.nn.Parameter(torch.ones(5, 2))
    optimizer = torch.optim.SparseAdam([weight])
    for row in (1, 3):
        values = torch.ones(1, 2)
        weight.grad = torch.sparse_coo_tensor([[row]], values, (5, 2), check_invariants=True)
        optimizer.step()
    path = tenfold.save(optimizer, tmp_path / "saved")
    loaded, judged = torch.optim.SparseAdam([weight]), torch.optim.SparseAdam([weight])
    assert "state.0.step" in tenfold.load_into(loaded, path).loaded  # an int, no tensor
    judged.load_state_dict(optimizer.state_dict())
    assert_same(loaded.state_dict(), judged.state_dict())


@pytest.mark.parametrize("suffix", ["", ".safetensors", ".safetensors.index.json", ".pt"])
@pytest.mark.parametrize("source", ["node", "dict"])
def test_groups_with_different_options_load_from_folders_and_files(tmp_path, suffix, source):
    net, optimizer = stepped(params=two_groups)
    path = tmp_path / f"saved{suffix}"
    checkpoint = {"model": net.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(checkpoint, path) if suffix == ".pt" else tenfold.save(checkpoint, path)
    loaded = torch.optim.Adam(two_groups(model()), lr=0.5)
    opened = tenfold.open(path)["optimizer"]
    report = tenfold.load_into(
        loaded, opened if source == "node" else tenfold.load(path)["optimizer"]
    )
    assert report.ok
    assert {"param_groups.0.lr", "param_groups.1.betas", "state.3.exp_avg_sq"} < set(report.loaded)
    assert_same(loaded.state_dict(), optimizer.state_dict())
    assert loaded.param_groups[0]["betas"] == (0.9, 0.999)


def test_state_without_tensors_is_loaded(tmp_path):
    _, optimizer = stepped(lambda params: torch.optim.SGD(params, lr=0.02), steps=1)
    path = tenfold.save({"optimizer": optimizer}, tmp_path / "saved")
    loaded = torch.optim.SGD(model().parameters(), lr=0.5)
    assert tenfold.load_into(loaded, tenfold.open(path)["optimizer"]).ok
    assert_same(loaded.state_dict(), optimizer.state_dict())


def test_existing_state_tensors_are_filled_in_place(tmp_path):
    _, optimizer = stepped()
    path = tenfold.save(optimizer, tmp_path / "saved")
    net, loaded = stepped(seed=1)
    before = dict(loaded.state[net[0].weight])
    tenfold.load_into(loaded, path)
    assert before.keys() == {"step", "exp_avg", "exp_avg_sq"}
    for name, tensor in loaded.state[net[0].weight].items():
        assert tensor is before[name]
    assert_same(loaded.state_dict(), optimizer.state_dict())


def test_source_without_state_clears_the_target_state(tmp_path):
    fresh = torch.optim.Adam(model().parameters())
    path = tenfold.save(fresh, tmp_path / "saved")
    _, loaded = stepped()
    assert tenfold.load_into(loaded, path).ok
    assert loaded.state_dict()["state"] == {}


def test_shared_state_tensors_stay_shared(tmp_path):
    state = stepped()[1].state_dict()
    state["state"][1]["step"] = state["state"][0]["step"]
    loaded = torch.optim.Adam(model().parameters())
    tenfold.load_into(loaded, tenfold.save(state, tmp_path / "saved"))
    steps = [loaded.state[param]["step"] for param in loaded.param_groups[0]["params"]]
    assert steps[0] is steps[1]
    assert steps[0] is not steps[2]


# --- by name ---


def test_parameters_are_matched_by_name_if_both_have_names(tmp_path):
    net, optimizer = stepped(params=lambda net: net.named_parameters())
    path = tenfold.save(optimizer, tmp_path / "saved")
    other = model(1)
    loaded = torch.optim.Adam(list(other.named_parameters())[::-1])
    report = tenfold.load_into(loaded, path)
    assert report.ok
    for param, expected in zip(other.parameters(), net.parameters(), strict=True):
        assert_same(loaded.state[param], optimizer.state[expected])
    assert loaded.param_groups[0]["param_names"] == ["2.bias", "2.weight", "0.bias", "0.weight"]


def test_groups_in_another_order_are_matched_by_name(tmp_path):
    _, optimizer = stepped(params=two_named_groups)
    path = tenfold.save(optimizer, tmp_path / "saved")
    loaded = torch.optim.Adam(two_named_groups(model(1))[::-1], lr=0.5)
    assert tenfold.load_into(loaded, path).ok
    assert [group["lr"] for group in loaded.param_groups] == [0.001, 0.03]


def one_named_group(net):
    return net.named_parameters()


def weights_and_biases(net):
    named = list(net.named_parameters())
    return [
        {"params": [item for item in named if item[0].endswith("weight")], "weight_decay": 0.1},
        {"params": [item for item in named if item[0].endswith("bias")]},
    ]


@pytest.mark.parametrize(
    ("saved", "wanted", "others"),
    [
        (one_named_group, weights_and_biases, "param_groups.0, param_groups.1"),
        (weights_and_biases, one_named_group, "param_groups.0"),
        (two_named_groups, weights_and_biases, "param_groups.0, param_groups.1"),
    ],
)
def test_different_groups_match_state_by_name_and_keep_options(tmp_path, saved, wanted, others):
    net, optimizer = stepped(params=saved)
    path = tenfold.save(optimizer, tmp_path / "saved")
    other = model(1)
    loaded = torch.optim.Adam(wanted(other), lr=0.5)
    before = copy.deepcopy(loaded.state_dict()["param_groups"])
    with pytest.warns(UserWarning, match=f"{others}: no group of the source"):
        report = tenfold.load_into(loaded, path)
    assert report.ok
    assert not any(name.startswith("param_groups") for name in report.loaded)
    assert_same(loaded.state_dict()["param_groups"], before)
    for param, expected in zip(other.parameters(), net.parameters(), strict=True):
        assert_same(loaded.state[param], optimizer.state[expected])
    train(other, loaded, 1)


def test_rename_of_a_missing_parameter_raises(tmp_path):
    _, optimizer = stepped(params=one_named_group)
    path = tenfold.save(optimizer, tmp_path / "saved")
    loaded = torch.optim.Adam(model(1).named_parameters())
    with pytest.raises(KeyError) as caught:
        tenfold.load_into(loaded, path, rename={"zzz": "y"})
    assert str(caught.value) == f'{path}: rename: no parameter is called "zzz"'


def test_names_on_one_side_only_are_matched_by_order_as_in_torch(tmp_path):
    _, optimizer = stepped(params=lambda net: net.named_parameters())
    path = tenfold.save(optimizer, tmp_path / "saved")
    loaded = torch.optim.Adam(model(1).parameters())
    judged = torch.optim.Adam(model(1).parameters())
    tenfold.load_into(loaded, path)
    judged.load_state_dict(optimizer.state_dict())
    assert_same(loaded.state_dict(), judged.state_dict())


def test_rename_applies_to_parameters_and_a_prefix_is_suggested(tmp_path):
    _, optimizer = stepped(params=lambda net: torch.nn.DataParallel(net).named_parameters())
    path = tenfold.save(optimizer, tmp_path / "saved")
    loaded = torch.optim.Adam(model(1).named_parameters())
    with pytest.raises(ValueError, match="without the source's prefix") as caught:
        tenfold.load_into(loaded, path)
    assert tenfold.load_into(loaded, path, rename=rename_named_in(caught.value)).ok
    assert_same(loaded.state_dict()["state"], optimizer.state_dict()["state"])
    assert loaded.param_groups[0]["param_names"][0] == "0.weight"


def test_unmatched_parameters_are_reported_and_unchanged(tmp_path):
    net, optimizer = stepped(params=lambda net: net.named_parameters())
    path = tenfold.save(optimizer, tmp_path / "saved")
    other, loaded = stepped(params=lambda net: [("0.weight", net[0].weight), ("new", net[2].bias)])
    loaded.param_groups[0]["lr"] = 0.5
    before = copy.deepcopy(loaded.state[other[2].bias])
    state = copy.deepcopy(loaded.state_dict())
    with pytest.raises(ValueError, match="1 missing, 3 unexpected, 0 mismatched"):
        tenfold.load_into(loaded, path)
    assert_same(loaded.state_dict(), state)
    report = tenfold.load_into(loaded, path, strict=False)
    assert report.missing == ("new",)
    assert report.unexpected == ("0.bias", "2.weight", "2.bias")
    assert_same(loaded.state[other[0].weight], optimizer.state[net[0].weight])
    assert_same(loaded.state[other[2].bias], before)
    assert loaded.param_groups[0]["lr"] == 0.001


@pytest.mark.parametrize("suffix", ["", ".safetensors"])
def test_state_keyed_by_parameter_names_is_loaded_by_name(tmp_path, suffix):
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    net, optimizer = stepped(params=two_groups)
    state = get_optimizer_state_dict(net, optimizer)
    assert state["param_groups"][0]["params"] == ["0.weight", "0.bias"]
    path = tenfold.save(state, tmp_path / f"saved{suffix}")
    other = model(1)
    loaded = torch.optim.Adam(two_named_groups(other)[::-1], lr=0.5)
    assert tenfold.load_into(loaded, path).ok
    for (_, param), (_, expected) in zip(
        other.named_parameters(), net.named_parameters(), strict=True
    ):
        assert_same(loaded.state[param], optimizer.state[expected])
    assert [group["lr"] for group in loaded.param_groups] == [0.001, 0.03]
    refused(torch.optim.Adam(two_groups(other)), path, "expected unique names in the optimizer")
    state["state"]["other"] = {"step": torch.ones(())}
    path = tenfold.save(state, tmp_path / f"other{suffix}")
    refused(loaded, path, "1 unexpected")


# --- states that do not fit the optimizer ---


def refused(loaded, path, match):
    before = copy.deepcopy(loaded.state_dict())
    with pytest.raises(ValueError, match=match) as caught:
        tenfold.load_into(loaded, path)
    assert_same(loaded.state_dict(), before)
    return str(caught.value)


def test_group_size_mismatch_lists_the_sizes(tmp_path):
    _, optimizer = stepped(params=two_groups)
    path = tenfold.save(optimizer, tmp_path / "saved")
    net = model(1)
    loaded = torch.optim.Adam(net.parameters())
    text = refused(loaded, path, "1 mismatched")
    assert '"param_groups": expected 1 group of 4 parameters, found 2 groups of 2, 2' in text
    fewer = [{"params": [net[0].weight]}, {"params": net[2].parameters()}]
    loaded = torch.optim.Adam(fewer, lr=0.5)
    text = refused(loaded, path, "1 mismatched")
    assert '"param_groups.0.params": expected 1 parameter, found 2 parameters' in text
    report = tenfold.load_into(loaded, path, strict=False)
    assert report.mismatched == (
        tenfold.Mismatch("param_groups.0.params", "1 parameter", "2 parameters"),
    )
    assert [group["lr"] for group in loaded.param_groups] == [0.5, 0.001]
    assert_same(loaded.state_dict()["state"][1], optimizer.state_dict()["state"][2])
    assert net[0].weight not in loaded.state


def test_state_shape_mismatch_is_refused(tmp_path):
    _, optimizer = stepped()
    path = tenfold.save(optimizer, tmp_path / "saved")
    net = model(1)
    loaded = torch.optim.Adam([*net[2].parameters(), *net[0].parameters()])
    text = refused(loaded, path, "8 mismatched")
    assert '"state.0.exp_avg": expected float32 [1, 3], found float32 [3, 4]' in text
    report = tenfold.load_into(loaded, path, strict=False)
    assert {found.name.split(".")[1] for found in report.mismatched} == set("0123")
    assert list(loaded.state_dict()["state"]) == []


def test_state_of_another_dtype_is_cast_as_in_torch(tmp_path):
    _, optimizer = stepped(torch.optim.NAdam)
    path = tenfold.save(optimizer, tmp_path / "saved")
    double = model(dtype=torch.float64)
    loaded, judged = (torch.optim.NAdam(double.parameters()) for _ in range(2))
    text = refused(loaded, path, "8 mismatched")
    assert (
        '"state.0.exp_avg": expected float64 [3, 4], found float32 [3, 4]; '
        "to convert it, use the option cast" in text
    )
    assert tenfold.load_into(loaded, path, cast=True).ok
    judged.load_state_dict(optimizer.state_dict())
    assert_same(loaded.state_dict(), judged.state_dict())
    assert loaded.state[double[0].weight]["step"].dtype == torch.float32


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="torch has no float4")
@pytest.mark.parametrize("cast", [False, True])
def test_a_dtype_without_casts_is_a_mismatch(tmp_path, cast):
    net, optimizer = stepped()
    packed = torch.ones(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    optimizer.state[net[0].weight]["packed"] = packed
    path = tenfold.save(optimizer, tmp_path / "saved.safetensors")
    report = tenfold.load_into(
        torch.optim.Adam(model(1).parameters()), path, strict=False, cast=cast
    )
    assert report.mismatched == (
        tenfold.Mismatch("state.0.packed", "float32 [2]", "float4_e2m1fn_x2 [2]"),
    )


@pytest.mark.filterwarnings("ignore:.*[Nn]ested")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(2).to_sparse(),
        lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
    ],
)
def test_sparse_and_nested_state_is_refused(tmp_path, make):
    net, optimizer = stepped()
    optimizer.state[net[0].weight]["extra"] = make()
    path = tenfold.save(optimizer, tmp_path / "saved")
    with pytest.raises(tenfold.UnsupportedError, match=r"state\.0\.extra: it cannot be loaded"):
        tenfold.load_into(torch.optim.Adam(model(1).parameters()), path)


def test_state_of_another_optimizer_lists_missing_options(tmp_path):
    _, optimizer = stepped(OPTIMIZERS["sgd-momentum"])
    path = tenfold.save(optimizer, tmp_path / "saved")
    text = refused(torch.optim.Adam(model().parameters()), path, "2 missing")
    assert '"param_groups.0.betas", "param_groups.0.eps"' in text


def test_options_missing_in_older_files_get_torch_defaults(tmp_path):
    state = stepped()[1].state_dict()
    for option in ("foreach", "capturable", "maximize", "fused", "amsgrad", "differentiable"):
        del state["param_groups"][0][option]
    path = tenfold.save(state, tmp_path / "saved")
    loaded, judged = (torch.optim.Adam(model().parameters(), maximize=True) for _ in range(2))
    assert tenfold.load_into(loaded, path).ok
    judged.load_state_dict(state)
    assert_same(loaded.state_dict(), judged.state_dict())
    assert loaded.param_groups[0]["maximize"] is False


def test_state_of_an_unknown_parameter_is_unexpected(tmp_path):
    state = stepped()[1].state_dict()
    state["state"][9] = {"step": torch.ones(())}
    path = tenfold.save(state, tmp_path / "saved")
    assert 'not in the target (1): "state.9"' in refused(
        torch.optim.Adam(model().parameters()), path, "1 unexpected"
    )


def test_two_parameters_cannot_load_the_same_state(tmp_path):
    state = stepped(lambda params: torch.optim.Adam(list(params)[1::2]))[1].state_dict()
    state["param_groups"][0]["params"] = [0, 0]
    path = tenfold.save(state, tmp_path / "saved")
    loaded = torch.optim.Adam([torch.nn.Parameter(torch.zeros(3)) for _ in range(2)])
    text = refused(loaded, path, "1 unexpected, 1 mismatched")
    assert '"state.1": expected state of its own, found that of state.0' in text


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate")
def test_parameter_listed_twice_in_a_group_is_loaded(tmp_path):
    def make():
        return torch.optim.Adam([torch.nn.Parameter(torch.zeros(3))] * 2)

    optimizer, loaded, judged = make(), make(), make()
    optimizer.param_groups[0]["params"][0].grad = torch.ones(3)
    optimizer.step()
    assert tenfold.load_into(loaded, tenfold.save(optimizer, tmp_path / "saved")).ok
    judged.load_state_dict(optimizer.state_dict())
    assert_same(loaded.state_dict(), judged.state_dict())


def test_whole_checkpoint_is_refused_naming_the_optimizer_node(tmp_path):
    path = tenfold.save({"opt": stepped()[1], "x": torch.ones(1)}, tmp_path / "saved")
    loaded = torch.optim.Adam(model().parameters())
    refused(loaded, path, r'expected the keys "state" .*pass tenfold.open\(path\)\["opt"\]')


@pytest.mark.parametrize(
    ("state", "match"),
    [
        ({"x": 1}, "no optimizer state: expected the keys"),
        (
            {"state": 3, "param_groups": []},
            "state: not a valid optimizer state.*expected a dict, found int",
        ),
        ({"state": {}, "param_groups": 3}, "param_groups: .*expected a list or tuple, found int"),
        ({"state": {}, "param_groups": [3]}, r"param_groups\.0: .*expected a dict, found int"),
        (
            {"state": {}, "param_groups": [{"params": ["a", 1]}]},
            r"expected a list or tuple of int only, or of str only, found a list of length \d+",
        ),
        (
            {"state": {}, "param_groups": [{"params": [0], "param_names": []}]},
            "param_names: .*expected a list or tuple of 1 str",
        ),
        (
            {"state": {}, "param_groups": [{"params": [0], "param_names": [3]}]},
            "param_names: .*expected a list or tuple of 1 str",
        ),
    ],
)
def test_invalid_optimizer_state_is_refused(tmp_path, state, match):
    path = tenfold.save({**state, "t": torch.ones(1)}, tmp_path / "saved")
    refused(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))]), path, match)


@pytest.mark.parametrize("change", [lambda names: names[:-1], lambda names: ["more", *names]])
def test_an_optimizer_without_one_name_for_each_parameter_is_refused(tmp_path, change):
    path = tenfold.save(stepped(params=lambda net: net.named_parameters())[1], tmp_path / "saved")
    loaded = torch.optim.Adam(model(1).named_parameters())
    group = loaded.param_groups[0]
    group["param_names"] = change(group["param_names"])
    with pytest.raises(ValueError, match=r"param_groups\.0\.param_names: expected 4 names"):
        tenfold.load_into(loaded, path)
    assert not loaded.state


def test_names_of_a_state_that_are_not_one_for_each_parameter_are_refused():
    names = ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match="expected 1 names, found 4"):
        _core.pair_parameters([(1, ["d"])], [(1, names)])


def test_arguments_that_do_not_apply_are_refused(tmp_path):
    path = tenfold.save(stepped()[1], tmp_path / "saved")
    loaded = torch.optim.Adam(model().parameters())
    with pytest.raises(ValueError, match=r"rename: it does not apply .* no names"):
        tenfold.load_into(loaded, path, rename={})
    with pytest.raises(ValueError, match="keys: they do not apply to an optimizer"):
        tenfold.load_into(loaded, path, keys=["state.*"])


# --- hooks, schedulers and scalers ---


def test_load_state_dict_pre_hook_receives_the_saved_state(tmp_path):
    _, optimizer = stepped()
    path = tenfold.save(optimizer, tmp_path / "saved")
    loaded = torch.optim.Adam(model().parameters())
    seen = []
    loaded.register_load_state_dict_pre_hook(lambda _, state: seen.append(state))
    tenfold.load_into(loaded, path)
    assert_same(seen[0], optimizer.state_dict())
    assert_same(loaded.state_dict(), optimizer.state_dict())


def test_scheduler_and_scaler_resume_from_a_loaded_dict(tmp_path):
    def make():
        optimizer = torch.optim.SGD(model().parameters(), lr=0.1, momentum=0.9)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, 10), scaler

    def step(parts):
        optimizer, scheduler, scaler = parts
        for param in optimizer.param_groups[0]["params"]:
            param.grad = torch.ones_like(param)
        scaler.scale(torch.ones(()))
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        return optimizer.param_groups[0]["lr"], scaler.get_scale()

    saved = make()
    for _ in range(3):
        step(saved)
    names = ("optimizer", "scheduler", "scaler")
    path = tenfold.save(dict(zip(names, saved, strict=True)), tmp_path / "saved")
    loaded = make()
    assert tenfold.load_into(loaded[0], tenfold.open(path)["optimizer"]).ok
    state = tenfold.load(path)
    loaded[1].load_state_dict(state["scheduler"])
    loaded[2].load_state_dict(state["scaler"])
    for one, other in zip(loaded, saved, strict=True):
        assert_same(one.state_dict(), other.state_dict())
    assert [step(loaded) for _ in range(4)] == [step(saved) for _ in range(4)]
