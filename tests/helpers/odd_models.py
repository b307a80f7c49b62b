"""Classifiers of 2×6×6 images with all that users write into a model, for the tests of what engines make of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

INPUT = (2, 6, 6)
FEATURES = 72
CLASSES = 3


class Written(nn.Module):
    """A model whose forward pass is a function of the model and its input."""

    def __init__(self, function: Callable[[Any, Tensor], Any], **layers: Any) -> None:
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.function(self, x)
        return scores


def _with_functions(self: Any, x: Tensor) -> Any:
    x = functional.max_pool2d(torch.relu(self.conv(x)), 2)
    return self.out(functional.relu(self.hidden(torch.flatten(x, 1)), inplace=True))


def _residual(self: Any, x: Tensor) -> Any:
    x = self.conv(x)
    return self.out((x + self.inner(functional.relu(x))).mean(dim=(2, 3)))


def _with_shortcuts(self: Any, x: Tensor) -> Any:
    x = functional.relu(self.stem(x))
    x = functional.relu(self.second(functional.relu(self.first(x))) + self.same(x), inplace=True)
    y = self.fourth(functional.relu(self.third(x)))
    y += self.shortcut(x)
    return self.out(functional.relu(y).flatten(1))


def _with_shortcuts_of_features(self: Any, x: Tensor) -> Any:
    x = functional.relu(self.first(x.flatten(1)))
    x = x + self.second(functional.relu(self.inner(x)))
    return self.out(x) + self.aside(x)


def _with_many_ways(self: Any, x: Tensor) -> Any:
    x = self.dropout(self.stem(x))
    pooled = functional.max_pool2d(functional.relu(self.first(x)), 2)
    y = torch.add(pooled, self.second(x))
    return self.out(self.last(functional.relu(y.add(self.third(x)))).flatten(1))


def _with_pooled_shortcuts(self: Any, x: Tensor) -> Any:
    """Pooling and a norm read what convolutions with padding read, too."""
    x = self.stem(x)
    x = self.first(x) + functional.avg_pool2d(x, 2) + functional.max_pool2d(x, 2)
    x = functional.relu(self.norm(x) + self.second(x))
    return self.out(x.mean(dim=(2, 3)))


def _with_ways_in_one(self: Any, x: Tensor) -> Any:
    x = self.stem(x)
    x = self.first(x).flatten(1) + x.flatten(1)
    return self.out(functional.relu(x))


def _changed_in_place(self: Any, x: Tensor) -> Any:
    x = self.stem(x)
    y = self.first(functional.relu(x, inplace=True))
    return self.out((y + x).flatten(1))


def _with_a_value_that_nobody_reads(self: Any, x: Tensor) -> Any:
    x = self.stem(x)
    y = self.first(x)
    self.second(x)
    return self.out((y + x).flatten(1))


def _changed_under_another_name(self: Any, x: Tensor) -> Any:
    y = self.stem(x)
    z = y
    z += self.first(x)
    return self.out((y + z).flatten(1))


def _with_a_sum_beside_a_function(self: Any, x: Tensor) -> Any:
    x = torch.tanh(self.stem(x))
    return self.out((self.first(x) + x).flatten(1))


def _with_a_sum_beside_dropout(self: Any, x: Tensor) -> Any:
    x = self.dropout(self.stem(x))
    return self.out((self.first(x) + x).flatten(1))


def _normed_beside(self: Any, x: Tensor) -> Any:
    x = self.stem(x).flatten(1)
    return self.out(self.first(x) + self.norm(x))


def _normed_images_beside(channels: int) -> nn.Module:
    features = channels * 36
    norm = nn.LayerNorm(features)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return Written(
        _normed_beside,
        stem=nn.Conv2d(2, channels, 3, padding=1),
        first=nn.Linear(features, features),
        norm=norm,
        out=nn.Linear(features, CLASSES),
    )


def _with_one_relu_for_all(self: Any, x: Tensor) -> Any:
    """As torchvision writes its residual networks."""
    x = self.pool(self.relu(self.norm(self.stem(x))))
    y = self.relu(self.first_norm(self.first(x)))
    y = self.second_norm(self.second(y))
    y += x
    return self.out(torch.flatten(self.pool(self.relu(y)), 1))


def _with_one_dropout_for_all(self: Any, x: Tensor) -> Any:
    x = self.dropout(functional.relu(self.stem(x)))
    return self.out(self.dropout(functional.relu(self.first(x))).flatten(1))


def _shared(self: Any, x: Tensor) -> Any:
    x = self.first(x.flatten(1))
    return self.out(self.inner(functional.relu(self.inner(x))))


def _tied(self: Any, x: Tensor) -> Any:
    x = functional.relu(self.first(x.flatten(1)))
    return self.out(functional.linear(x, self.first.weight.t()))


def _gated(self: Any, x: Tensor) -> Any:
    value, gate = self.first(x.flatten(1)).chunk(2, dim=1)
    return self.out(value * torch.sigmoid(gate))


def _patches(self: Any, x: Tensor) -> Any:
    x = functional.relu(self.first(x.reshape(-1, 12)))
    return self.out(x.reshape(-1, 24))


def _direct_parameter(self: Any, x: Tensor) -> Any:
    return self.out(self.scale * self.first(x.flatten(1)) + self.shift)


def _branching(self: Any, x: Tensor) -> Any:
    x = self.first(x.flatten(1))
    if len(x.shape) == 2 and x.shape[1] > 4:
        x = functional.relu(x)
    return self.out(x)


def _on_shape_of_batch(self: Any, x: Tensor) -> Any:
    x = self.first(x.view(x.size(0), -1))
    return self.out(x if x.shape[0] > 1000 else functional.relu(x))


def _recurrent(self: Any, x: Tensor) -> Any:
    states, _ = self.cell(x.flatten(1, 2))
    return self.out(states[:, -1])


def _depends_on_data(self: Any, x: Tensor) -> Any:
    x = self.first(x.flatten(1))
    return self.out(x * 2 if x.sum() > 0 else x)


def _two_inputs_of_one(self: Any, x: Tensor) -> Any:
    return self.out(torch.cat([self.first(x.flatten(1)), x.mean(dim=(2, 3))], dim=1))


def _dropping_functions(self: Any, x: Tensor) -> Any:
    x = functional.dropout2d(functional.relu(self.conv(x)), 0.3, self.training)
    x = functional.dropout(self.hidden(x.flatten(1)), 0.2, self.training, inplace=True)
    x = functional.dropout(functional.relu(x), training=self.training)
    return self.out(functional.alpha_dropout(x, 0.1, self.training))


def _attending(self: Any, x: Tensor) -> Any:
    x = x.flatten(1, 2).transpose(0, 1)  # [12, batch, 6]: torch's default, with the samples second
    x, _ = self.attention(x, x, x)
    return self.out(x.mean(dim=0))


def _scaled_attention(self: Any, x: Tensor) -> Any:
    query, key, value = self.first(x.flatten(1, 2)).unflatten(2, (3, 2, 3)).permute(2, 0, 3, 1, 4)
    p = 0.3 if self.training else 0.0
    x = functional.scaled_dot_product_attention(query, key, value, dropout_p=p, is_causal=True)
    return self.out(x.mean(dim=2).flatten(1))


def _transforming(self: Any, x: Tensor) -> Any:
    return self.out(self.encoder(x.flatten(1, 2)).mean(dim=1))


def _transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.1, batch_first=True)
    return Written(_transforming, encoder=nn.TransformerEncoder(layer, 2), out=nn.Linear(6, CLASSES))


class Output(NamedTuple):
    """What models of some libraries give: class scores, and more."""

    logits: Tensor
    hidden: Tensor


def _with_logits(self: Any, x: Tensor) -> Any:
    hidden = functional.relu(self.first(x.flatten(1)))
    return Output(self.out(hidden), hidden)


def _frozen() -> nn.Module:
    layers = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 3))
    layers[0].weight.requires_grad_(False)
    for parameter in layers[3].parameters():
        parameter.requires_grad_(False)
    return layers


def _frozen_then_normed() -> nn.Module:
    layers = nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, CLASSES))
    for parameter in layers[0].parameters():
        parameter.requires_grad_(False)
    return layers


def _with_buffer() -> nn.Module:
    model = Written(lambda self, x: self.out(x.flatten(1) * self.mask), out=nn.Linear(FEATURES, CLASSES))
    model.register_buffer("mask", torch.rand(FEATURES))
    return model


def _hooked() -> nn.Module:
    layer = nn.Linear(FEATURES, 6)
    layer.register_forward_hook(lambda _layer, _given, result: result * 0.5)
    return nn.Sequential(nn.Flatten(), layer, nn.ReLU(), nn.Linear(6, CLASSES))


def _hooked_relu() -> nn.Module:
    relu = nn.ReLU()
    relu.register_forward_hook(lambda _layer, _given, result: result * 0.5)
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), relu, nn.MaxPool2d(2), relu, nn.Flatten(), nn.Linear(36, 3))


def _changed_under_another_name_by_nothing() -> nn.Module:
    first = nn.Conv2d(2, 4, 3, padding=1)
    for parameter in first.parameters():
        nn.init.zeros_(parameter)
    return Written(
        _changed_under_another_name, stem=nn.Conv2d(2, 4, 3, padding=1), first=first, out=nn.Linear(144, CLASSES)
    )


def _unused() -> nn.Module:
    return Written(lambda self, x: self.out(x.flatten(1)), out=nn.Linear(FEATURES, CLASSES), spare=nn.Linear(2, 2))


def _mixed() -> nn.Module:
    """All kinds of layers in a row, with dropout of both sorts."""
    return nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(5, 6, (2, 3), padding=(1, 1), bias=False),
        nn.GroupNorm(2, 6),
        nn.Dropout2d(0.3),
        nn.Conv2d(6, 4, 3, stride=2, padding=1),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Dropout(0.4),
        nn.Linear(16, 7),
        nn.ReLU(),
        nn.Linear(7, 6, bias=False),
        nn.Tanh(),
        nn.Linear(6, CLASSES),
    )


def _group_norms() -> nn.Module:
    """Group norms with relu and pooling, between convolutions with padding, and without parameters."""
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1),
        nn.GroupNorm(2, 6),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 5, 2, padding=1, bias=False),
        nn.GroupNorm(5, 5, affine=False),
        nn.Flatten(),
        nn.Linear(80, CLASSES),
    )


def _layer_norms() -> nn.Module:
    """Norms of features at every place: first, behind linear layers and others, and last."""
    return nn.Sequential(
        nn.Flatten(),
        nn.LayerNorm(FEATURES, bias=False),
        nn.Linear(FEATURES, 9),
        nn.ReLU(),
        nn.LayerNorm(9),
        nn.ReLU(),
        nn.Linear(9, 6),
        nn.GroupNorm(3, 6),
        nn.Tanh(),
        nn.GroupNorm(2, 6),
        nn.Linear(6, CLASSES),
        nn.LayerNorm(CLASSES),
    )


def _pools() -> nn.Module:
    """Pooling that no kernel of a convolution has: windows that overlap, means, and means of whole images."""
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, padding=1),
        nn.Conv2d(6, 5, 2, padding=1, bias=False),
        nn.AvgPool2d((3, 2), 1, padding=(1, 1)),
        nn.GroupNorm(1, 5),
        nn.MaxPool2d(3, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.LayerNorm(5),
        nn.Linear(5, CLASSES),
    )


def _with_means(self: Any, x: Tensor) -> Any:
    x = functional.adaptive_avg_pool2d(self.conv(x), (2, None))
    x = functional.avg_pool2d(input=self.inner(x).tanh(), kernel_size=1)
    return self.out(functional.avg_pool2d(self.last(x), (1, 2)).mean(dim=(2, 3)))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "functions": lambda: Written(
        _with_functions, conv=nn.Conv2d(2, 5, 3), hidden=nn.Linear(20, 6), out=nn.Linear(6, CLASSES)
    ),
    "residual": lambda: Written(
        _residual, conv=nn.Conv2d(2, 4, 3), inner=nn.Conv2d(4, 4, 3, padding=1), out=nn.Linear(4, CLASSES)
    ),
    "shortcuts": lambda: Written(
        _with_shortcuts,
        stem=nn.Conv2d(2, 4, 3, padding=1),
        first=nn.Conv2d(4, 4, 3, padding=1, bias=False),
        second=nn.Conv2d(4, 4, 3, padding="same"),
        same=nn.Identity(),
        third=nn.Conv2d(4, 18, 3, stride=2, padding=1),
        fourth=nn.Conv2d(18, 18, 3, padding=1, bias=False),
        shortcut=nn.Conv2d(4, 18, 1, stride=2, bias=False),
        out=nn.Linear(162, CLASSES),
    ),
    "shortcuts of features": lambda: Written(
        _with_shortcuts_of_features,
        first=nn.Linear(FEATURES, 9),
        inner=nn.Linear(9, 5),
        second=nn.Linear(5, 9),
        out=nn.Linear(9, CLASSES),
        aside=nn.Linear(9, CLASSES, bias=False),
    ),
    "many ways": lambda: Written(
        _with_many_ways,
        stem=nn.Conv2d(2, 5, 3, padding=1),
        dropout=nn.Dropout2d(0.2),
        first=nn.Conv2d(5, 4, 3, padding=1),
        second=nn.Conv2d(5, 4, 2, stride=2),
        third=nn.Conv2d(5, 4, (1, 5), stride=(2, 2), padding=(0, 2)),
        last=nn.Conv2d(4, 4, 3, padding=2, stride=(1, 2)),
        out=nn.Linear(60, CLASSES),
    ),
    "pooled shortcuts": lambda: Written(
        _with_pooled_shortcuts,
        stem=nn.Conv2d(2, 4, 3, padding=1),
        first=nn.Conv2d(4, 4, 3, stride=2, padding=1),
        norm=nn.GroupNorm(2, 4),
        second=nn.Conv2d(4, 4, 3, padding=1, bias=False),
        out=nn.Linear(4, CLASSES),
    ),
    "ways in one": lambda: Written(
        _with_ways_in_one,
        stem=nn.Conv2d(2, 4, 3, padding=1),
        first=nn.Conv2d(4, 4, 3, padding=1),
        out=nn.Linear(144, CLASSES),
    ),
    "changed in place": lambda: Written(
        _changed_in_place,
        stem=nn.Conv2d(2, 4, 3, padding=1),
        first=nn.Conv2d(4, 4, 3, padding=1),
        out=nn.Linear(144, CLASSES),
    ),
    "one relu for all": lambda: Written(
        _with_one_relu_for_all,
        relu=nn.ReLU(inplace=True),
        pool=nn.MaxPool2d(2),
        stem=nn.Conv2d(2, 4, 3, padding=1, bias=False),
        norm=nn.GroupNorm(2, 4),
        first=nn.Conv2d(4, 4, 3, padding=1, bias=False),
        first_norm=nn.GroupNorm(2, 4),
        second=nn.Conv2d(4, 4, 3, padding=1, bias=False),
        second_norm=nn.GroupNorm(2, 4),
        out=nn.Linear(4, CLASSES),
    ),
    "one dropout for all": lambda: Written(
        _with_one_dropout_for_all,
        dropout=nn.Dropout2d(0.3),
        stem=nn.Conv2d(2, 4, 3, padding=1),
        first=nn.Conv2d(4, 4, 3, padding=1),
        out=nn.Linear(144, CLASSES),
    ),
    "changed under another name": lambda: Written(
        _changed_under_another_name,
        stem=nn.Conv2d(2, 4, 3, padding=1),
        first=nn.Conv2d(2, 4, 3, padding=1),
        out=nn.Linear(144, CLASSES),
    ),
    "changed at first by nothing": _changed_under_another_name_by_nothing,
    "hooked relu": _hooked_relu,
    "sum beside a function": lambda: Written(
        _with_a_sum_beside_a_function,
        stem=nn.Conv2d(2, 4, 3, padding=1),
        first=nn.Conv2d(4, 4, 3, padding=1),
        out=nn.Linear(144, CLASSES),
    ),
    "sum beside dropout": lambda: Written(
        _with_a_sum_beside_dropout,
        stem=nn.Conv2d(2, 4, 3, padding=1),
        dropout=nn.Dropout2d(0.3),
        first=nn.Conv2d(4, 4, 3, padding=1),
        out=nn.Linear(144, CLASSES),
    ),
    "normed images beside": lambda: _normed_images_beside(4),
    "normed wide images beside": lambda: _normed_images_beside(16),
    "unread": lambda: Written(
        _with_a_value_that_nobody_reads,
        stem=nn.Conv2d(2, 4, 3, padding=1),
        first=nn.Conv2d(4, 4, 3, padding=1),
        second=nn.Conv2d(4, 4, 3, padding=1),
        out=nn.Linear(144, CLASSES),
    ),
    "shared": lambda: Written(_shared, first=nn.Linear(FEATURES, 5), inner=nn.Linear(5, 5), out=nn.Linear(5, CLASSES)),
    "tied": lambda: Written(_tied, first=nn.Linear(FEATURES, 5), out=nn.Linear(FEATURES, CLASSES)),
    "gated": lambda: Written(_gated, first=nn.Linear(FEATURES, 10), out=nn.Linear(5, CLASSES)),
    "patches": lambda: Written(_patches, first=nn.Linear(12, 4), out=nn.Linear(24, CLASSES)),
    "direct parameter": lambda: Written(
        _direct_parameter,
        first=nn.Linear(FEATURES, 5),
        out=nn.Linear(5, CLASSES),
        scale=nn.Parameter(torch.rand(5)),
        shift=nn.Parameter(torch.rand(1)),
    ),
    "branching": lambda: Written(_branching, first=nn.Linear(FEATURES, 5), out=nn.Linear(5, CLASSES)),
    "shape of batch": lambda: Written(_on_shape_of_batch, first=nn.Linear(FEATURES, 5), out=nn.Linear(5, CLASSES)),
    "two inputs of one": lambda: Written(_two_inputs_of_one, first=nn.Linear(FEATURES, 5), out=nn.Linear(7, CLASSES)),
    "logits": lambda: Written(_with_logits, first=nn.Linear(FEATURES, 5), out=nn.Linear(5, CLASSES)),
    "dropping functions": lambda: Written(
        _dropping_functions, conv=nn.Conv2d(2, 4, 3), hidden=nn.Linear(64, 6), out=nn.Linear(6, CLASSES)
    ),
    "attention": lambda: Written(
        _attending, attention=nn.MultiheadAttention(6, 2, dropout=0.3), out=nn.Linear(6, CLASSES)
    ),
    "scaled attention": lambda: Written(_scaled_attention, first=nn.Linear(6, 18), out=nn.Linear(6, CLASSES)),
    "transformer": _transformer,
    "frozen": _frozen,
    "buffer": _with_buffer,
    "hooked": _hooked,
    "unused": _unused,
    "weight norm": lambda: nn.Sequential(
        nn.Flatten(), nn.utils.parametrizations.weight_norm(nn.Linear(FEATURES, 5)), nn.ReLU(), nn.Linear(5, CLASSES)
    ),
    "pool of three": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(16, CLASSES)
    ),
    "overlapping pool": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.MaxPool2d(2, stride=1), nn.ReLU(), nn.Flatten(), nn.Linear(36, CLASSES)
    ),
    "odd pool": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 2), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(16, CLASSES)
    ),
    "strided": lambda: nn.Sequential(nn.Conv2d(2, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(16, CLASSES)),
    "same padding": lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding="same"), nn.Flatten(), nn.Linear(144, CLASSES)),
    "convolutions only": lambda: nn.Sequential(nn.Conv2d(2, 20, 3), nn.ReLU(), nn.Conv2d(20, CLASSES, 4), nn.Flatten()),
    "strided at the end": lambda: nn.Sequential(
        nn.Conv2d(2, 5, 3), nn.ReLU(), nn.Conv2d(5, CLASSES, 4, stride=2), nn.Flatten()
    ),
    "relu at the end": lambda: nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, CLASSES), nn.ReLU()),
    "normed at the end": lambda: nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, CLASSES), nn.LayerNorm(CLASSES)),
    "flattened, then normed": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, CLASSES)
    ),
    "double relu and pool": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.ReLU(), nn.ReLU(), nn.MaxPool2d(2), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, CLASSES)
    ),
    "batch statistics": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4, track_running_stats=False), nn.Flatten(), nn.Linear(64, CLASSES)
    ),
    "in place": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.ReLU6(inplace=True),
        nn.Flatten(),
        nn.Linear(64, 5),
        nn.SiLU(inplace=True),
        nn.Linear(5, 3),
    ),
    "normed at the start": lambda: nn.Sequential(
        nn.GroupNorm(1, 2), nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, CLASSES)
    ),
    "frozen, then normed": _frozen_then_normed,
    "group norms": _group_norms,
    "pools": _pools,
    "means": lambda: Written(
        _with_means,
        conv=nn.Conv2d(2, 5, 3),
        inner=nn.Conv2d(5, 4, 1),
        last=nn.Conv2d(4, 17, 1),
        out=nn.Linear(17, CLASSES),
    ),
    "layer norms": _layer_norms,
    "mixed": _mixed,
    "recurrent, with dropout": lambda: Written(
        _recurrent, cell=nn.GRU(6, 5, num_layers=2, dropout=0.4, batch_first=True), out=nn.Linear(5, CLASSES)
    ),
    "recurrent": lambda: Written(_recurrent, cell=nn.LSTM(6, 5, batch_first=True), out=nn.Linear(5, CLASSES)),
}

# What can't be computed for many clients at once.
ONE_BY_ONE: dict[str, Callable[[], nn.Module]] = {
    "depends on data": lambda: Written(_depends_on_data, first=nn.Linear(FEATURES, 5), out=nn.Linear(5, CLASSES)),
}


def make(name: str, seed: int = 0) -> nn.Module:
    """One of the models, with weights of its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return (MODELS | ONE_BY_ONE)[name]()
