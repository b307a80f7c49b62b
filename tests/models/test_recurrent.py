"""Recurrent layers keep their weights in place, are computed without cuDNN, and can be mapped over clients."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap

from adabest.models.keyed import prepare
from adabest.models.recurrent import settle_recurrent_layers

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


class Told(nn.Module):
    """All that a recurrent layer gives, in one tensor."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        outputs, ends = self.layer(x)
        ends = (ends,) if isinstance(ends, Tensor) else ends
        return torch.cat([one.flatten() for one in (outputs, *ends)])


FORMS: list[dict[str, Any]] = [
    {},
    {"bias": False, "batch_first": True},
    {"num_layers": 3, "batch_first": True},
    {"bidirectional": True, "bias": False},
    {"num_layers": 2, "bidirectional": True},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(
    ("kind", "options"),
    [(nn.LSTM, {}), (nn.LSTM, {"proj_size": 2}), (nn.GRU, {}), (nn.RNN, {}), (nn.RNN, {"nonlinearity": "relu"})],
)
def test_layers_of_many_clients_are_those_of_each(kind: Any, options: dict[str, Any], form: dict[str, Any]) -> None:
    clients = 3
    generator = torch.Generator().manual_seed(0)
    told = Told(kind(3, 4, **form, **options)).double()
    settle_recurrent_layers(told)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(clients, *shape, dtype=torch.float64, generator=generator)

    def one(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        given: Tensor = functional_call(told, parameters, (x,))
        return given

    parameters, x = {name: drawn(*value.shape) for name, value in told.named_parameters()}, drawn(4, 5, 3)
    vjp_of: Any = vjp
    together, back = vjp_of(vmap(one), parameters, x)
    slopes = drawn(*together.shape[1:])
    of_parameters, of_x = back(slopes)
    for client in range(clients):
        mine = {name: value[client] for name, value in parameters.items()}
        alone, its_back = vjp_of(one, mine, x[client])
        torch.testing.assert_close(together[client], alone, rtol=0, atol=1e-13)
        its_parameters, its_x = its_back(slopes[client])
        torch.testing.assert_close(of_x[client], its_x, rtol=0, atol=1e-12)
        for name, value in its_parameters.items():
            torch.testing.assert_close(of_parameters[name][client], value, rtol=0, atol=1e-12)
