"""Dropout in functions, attention and recurrent layers: the right distribution, keyed draws, and none in evaluation."""

from collections.abc import Callable
from typing import Any

import odd_models
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from adabest.models.keyed import KeyedDropout, prepare, set_dropout_key
from adabest.models.keyed_functions import KeyedDraws, KeyedFunctions

KEY = (0, 1, 2, 3)
DROPPING = ["dropping functions", "attention", "scaled attention", "transformer", "recurrent, with dropout"]
IMAGES = torch.linspace(-1, 1, 4 * 72).reshape(4, *odd_models.INPUT).sin()


def keyed(function: Callable[[], Tensor], *key: int) -> Tensor:
    """What a function gives while its draws have a name."""
    draws = KeyedDraws()
    draws.name_draws(*(key or KEY))
    with KeyedFunctions(draws):
        return function()


@pytest.mark.parametrize(
    ("function", "probability"),
    [
        (lambda x: functional.dropout(x, 0.3), 0.3),
        (lambda x: functional.dropout(x, p=0.3, inplace=True), 0.3),
        (lambda x: torch.dropout(x, 0.3, True), 0.3),
        (lambda x: torch.dropout_(x, 0.3, True), 0.3),
        (functional.dropout, 0.5),
    ],
)
def test_functions_drop_single_entries_at_their_rate(function: Any, probability: float) -> None:
    result = keyed(lambda: function(torch.ones(100, 200)))
    zeros = float((result == 0).double().mean())
    assert abs(zeros - probability) < 5 * (probability * (1 - probability) / 20_000) ** 0.5
    kept = result[result != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - probability)))


@pytest.mark.parametrize(
    ("function", "shape", "channels"),
    [
        (functional.dropout1d, (40, 5, 7), 2),
        (functional.dropout1d, (40, 7), 1),
        (functional.dropout2d, (40, 5, 7, 2), 2),
        (functional.dropout2d, (40, 5, 7), 2),  # a batch of sequences, as torch has it
        (functional.dropout3d, (40, 5, 2, 3, 2), 2),
        (functional.dropout3d, (40, 2, 3, 2), 1),
    ],
)
def test_whole_channels_are_dropped(function: Any, shape: tuple[int, ...], channels: int) -> None:
    result = keyed(lambda: function(torch.ones(shape), 0.5)).flatten(channels)
    assert torch.equal(result, result[..., :1].expand_as(result))
    assert 0.1 < float((result == 0).double().mean()) < 0.9


def test_a_function_in_place_changes_its_input() -> None:
    x = torch.ones(10, 10)
    result = keyed(lambda: functional.dropout(x, 0.5, inplace=True))
    assert result is x
    assert 0 < int((x == 0).sum()) < 100


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    x = torch.linspace(-3, 3, 200_000).mul(0.5).tan().clamp(-2, 2)
    x = (x - x.mean()) / x.std()
    result = keyed(lambda: functional.alpha_dropout(x, 0.2, training=True))
    assert abs(float(result.mean())) < 0.02
    assert abs(float(result.std()) - 1) < 0.02
    lost = (result - result.min()).abs() < 1e-6
    assert abs(float(lost.double().mean()) - 0.2) < 0.01


def test_each_call_and_each_part_of_the_key_draws_anew() -> None:
    x = torch.ones(2000)
    two = keyed(lambda: torch.stack([functional.dropout(x), functional.dropout(x)]))
    layer = KeyedDropout(0.5, layer=0)
    set_dropout_key(layer, *KEY)
    masks = [two[0], two[1], layer(x)]
    masks += [keyed(lambda: functional.dropout(x), *key) for key in ((9, 1, 2, 3), (0, 9, 2, 3), (0, 1, 9, 3))]
    for number, mask in enumerate(masks):
        for other in masks[:number]:
            assert 0.42 < float((mask == other).double().mean()) < 0.58
    assert torch.equal(keyed(lambda: functional.dropout(x)), two[0])


@pytest.mark.parametrize("masking", ["none", "causal", "flags", "numbers"])
def test_attention_drops_its_weights_alone(masking: str) -> None:
    """With values that are the unit vectors, attention gives its weights: each is lost, or scaled up."""
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(2, 4, 8, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    value = torch.eye(8, dtype=torch.float64).expand(2, 4, 8, 8)
    flags = torch.rand(8, 8, generator=generator) > 0.3
    flags |= torch.eye(8, dtype=torch.bool)
    every: dict[str, dict[str, Any]] = {
        "none": {},
        "causal": {"is_causal": True, "scale": 0.7},
        "flags": {"attn_mask": flags},
        "numbers": {"attn_mask": torch.where(flags, 0.3, -1.0).double()},
    }
    options = every[masking]
    whole = functional.scaled_dot_product_attention(query, key, value, **options)
    found = keyed(lambda: functional.scaled_dot_product_attention(query, key, value, dropout_p=0.25, **options))
    kept = found != 0
    torch.testing.assert_close(found[kept], whole[kept] / 0.75)
    rate = float(kept[whole != 0].double().mean())
    assert 0.65 < rate < 0.85
    unchanged = keyed(lambda: functional.scaled_dot_product_attention(query, key, value, **options))
    assert torch.equal(unchanged, whole)


def test_heads_that_share_keys_are_repeated() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, heads, 6, 5, generator=generator) for heads in (4, 2, 2))
    wide = [part.repeat_interleave(2, dim=1) for part in (key, value)]
    attend: Any = functional.scaled_dot_product_attention
    found = keyed(lambda: attend(query, key, value, dropout_p=0.3, enable_gqa=True))
    torch.testing.assert_close(found, keyed(lambda: attend(query, *wide, dropout_p=0.3)))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("both_ways", [False, True])
def test_recurrent_layers_one_by_one_are_torchs_stack(kind: Any, both_ways: bool, monkeypatch: Any) -> None:
    torch.manual_seed(0)
    layer = kind(3, 4, num_layers=3, dropout=0.5, bidirectional=both_ways, batch_first=True).double()
    x = torch.randn(5, 6, 3, dtype=torch.float64)
    dropped = keyed(lambda: layer(x)[0])
    expected, states = layer.eval()(x)
    layer.train()
    monkeypatch.setattr(KeyedDraws, "dropped", lambda self, x, p, channels=0: x)  # what remains is the stack
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.full((5,), 6), batch_first=True)
    for given in (x, packed):
        output, ends = keyed(lambda given=given: layer(given))  # type: ignore[misc]
        if given is packed:
            output, _ = nn.utils.rnn.pad_packed_sequence(output, batch_first=True)
        torch.testing.assert_close(output, expected)
        torch.testing.assert_close(ends, states)
    assert not torch.allclose(dropped, expected)


@pytest.mark.parametrize("name", DROPPING)
def test_models_draw_by_name_in_training_and_not_in_evaluation(name: str) -> None:
    mine = odd_models.make(name)
    state = torch.get_rng_state()
    module = prepare(mine, IMAGES)

    def scores(*key: int) -> Tensor:
        set_dropout_key(module, *key)
        return module(IMAGES)  # type: ignore[no-any-return]

    first = scores(*KEY)
    assert torch.equal(scores(*KEY), first)
    for key in ((9, 1, 2, 3), (0, 9, 2, 3), (0, 1, 9, 3), (0, 1, 2, 9)):
        assert not torch.allclose(scores(*key), first)
    torch.testing.assert_close(module.eval()(IMAGES), mine.eval()(IMAGES))
    assert torch.equal(torch.get_rng_state(), state)
    assert list(module.state_dict()) == list(mine.state_dict())


def test_functions_elsewhere_stay_as_they_are() -> None:
    module = prepare(odd_models.make("transformer"), IMAGES)
    module(IMAGES)
    torch.manual_seed(0)
    first = functional.dropout(torch.ones(100))
    torch.manual_seed(1)
    assert not torch.equal(functional.dropout(torch.ones(100)), first)
