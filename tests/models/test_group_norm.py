"""GroupNorm in place of BatchNorm: which groups, which weights, and runs that know it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import Killed, break_off, results, resume, run
from torch import nn

import adabest
from adabest.errors import InputError
from adabest.models.group_norm import replace_batch_norm
from adabest.models.keyed import prepare


def network() -> nn.Sequential:
    """A classifier of the stripes with BatchNorm."""
    layers = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 6), nn.BatchNorm1d(6)]
    return nn.Sequential(*layers, nn.Linear(6, 3))


def replaced(module: nn.Module) -> Any:
    return replace_batch_norm(module)


@pytest.mark.parametrize(
    ("layer", "groups"),
    [
        (nn.BatchNorm2d(32), 4),
        (nn.BatchNorm2d(8), 1),
        (nn.BatchNorm2d(12), 1),
        (nn.BatchNorm3d(16), 2),
        (nn.BatchNorm1d(32), 1),
        (nn.SyncBatchNorm(24), 3),
    ],
)
def test_groups_have_eight_channels_where_they_fit(layer: nn.Module, groups: int) -> None:
    (found,) = replaced(nn.Sequential(layer))
    assert isinstance(found, nn.GroupNorm)
    assert found.num_groups == groups


def test_weights_and_what_is_frozen_are_kept() -> None:
    layer = nn.BatchNorm2d(16, eps=0.5)
    nn.init.constant_(layer.weight, 3.0)
    nn.init.constant_(layer.bias, 0.25)
    layer.bias.requires_grad_(False)
    (found,) = replaced(nn.Sequential(layer))
    x = torch.linspace(-1, 1, 2 * 16 * 4).sin().reshape(2, 16, 2, 2)
    by_hand = x.reshape(2, 2, 32)
    by_hand = (by_hand - by_hand.mean(2, keepdim=True)) / (by_hand.var(2, keepdim=True, correction=0) + 0.5).sqrt()
    torch.testing.assert_close(found(x), 3 * by_hand.reshape(x.shape) + 0.25)
    assert (found.weight.requires_grad, found.bias.requires_grad) == (True, False)
    assert not list(found.buffers())


def test_layers_without_weights_and_shared_layers_stay_so() -> None:
    shared = nn.BatchNorm2d(8, affine=False)
    first, nested = replaced(nn.Sequential(shared, nn.Sequential(shared)))
    assert first is nested[0]
    assert first.weight is None


def test_the_users_module_keeps_its_batch_norm() -> None:
    mine, example = network(), torch.zeros(2, 1, 6, 6)
    with pytest.raises(InputError, match=r"layer '1' \(BatchNorm2d\) .*batch_norm=group .*--batch-norm group"):
        prepare(mine, example)
    module = prepare(mine, example, batch_norm="group")
    assert not any("running" in name for name in module.state_dict())
    assert isinstance(mine[1], nn.BatchNorm2d)


@pytest.mark.parametrize("model", ["mlp,hidden=8", nn.Sequential(nn.Flatten(), nn.Linear(36, 3))])
def test_a_model_without_batch_norm_is_told_of(tmp_path: Path, model: Any) -> None:
    with pytest.warns(UserWarning, match="batch_norm has no effect: the model has no BatchNorm"):
        run(tmp_path / "run", model=model, batch_norm="group")


@pytest.mark.parametrize("engine", ["reference", "batched"])
def test_a_run_knows_what_it_replaced(engine: Any, tmp_path: Path) -> None:
    mine = network()
    done = run(tmp_path / "run", model=mine, batch_norm="group", engine=engine)
    loaded = adabest.load(tmp_path / "run")
    assert loaded.config.batch_norm == "group"
    assert loaded.config.essence()["batch_norm"] == "group"
    again = loaded.load_model(module=network())
    x = torch.linspace(-1, 1, 72).reshape(2, 1, 6, 6)
    assert torch.equal(again(x), done.model(x))


def test_a_killed_run_goes_on_with_what_was_replaced(tmp_path: Path) -> None:
    mine = network()
    whole = run(tmp_path / "whole", model=mine, batch_norm="group", checkpoint_every=1)
    break_off(tmp_path / "broken", 30, Killed, model=mine, batch_norm="group", checkpoint_every=1)
    resume(tmp_path / "broken", model=mine)
    assert results(tmp_path / "broken") == results(whole.folder)
