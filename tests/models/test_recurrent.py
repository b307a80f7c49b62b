"""Recurrent layers keep their weights where the model's vector has them, and are computed without cuDNN."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from adabest.models.keyed import prepare

SEEN: list[bool] = []


class Watched(nn.GRU):
    """Notes whether cuDNN may compute it."""

    def forward(self, *inputs: Any) -> Any:
        SEEN.append(torch.backends.cudnn.enabled)
        return super().forward(*inputs)


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.reader, self.out = Watched(3, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.out(self.reader(x)[0][:, -1])
        return scores


@pytest.fixture
def prepared() -> nn.Module:
    return prepare(Reader(), torch.rand(2, 5, 3), 2)


@pytest.mark.parametrize("copied", [lambda module: module, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_recurrent_layers_are_computed_without_cudnn(prepared: nn.Module, copied: Any) -> None:
    SEEN.clear()
    copied(prepared)(torch.rand(2, 5, 3))
    assert SEEN == [False]
    assert torch.backends.cudnn.enabled


def test_cudnn_comes_back_after_an_error(prepared: nn.Module) -> None:
    with pytest.raises(RuntimeError):
        prepared(torch.rand(2, 5, 7))
    assert torch.backends.cudnn.enabled


def test_torch_never_moves_the_weights(prepared: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(layer: nn.RNNBase) -> None:
        raise AssertionError("the weights were moved")

    monkeypatch.setattr(nn.RNNBase, "flatten_parameters", moved)
    with pytest.raises(AssertionError, match="moved"):
        Reader().to(torch.float64)
    prepared.to(torch.float64)
    torch.func.functional_call(
        prepared, dict(copy.deepcopy(prepared).named_parameters()), (torch.rand(2, 5, 3).double(),)
    )


def test_the_users_own_model_stays_as_it_is() -> None:
    module = Reader()
    prepare(module, torch.rand(2, 5, 3), 2)
    assert not {"forward", "flatten_parameters"} & vars(module.reader).keys()
