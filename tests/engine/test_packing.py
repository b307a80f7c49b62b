"""Packed parameters: there and back without loss, aligned, with zeros between; and models drawn at random."""

from typing import Any

import numpy as np
import odd_models
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from side_by_side import Case, StackedEngine, assert_alike
from torch import nn

from adabest.algorithms.base import ServerContext, Work
from adabest.algorithms.feddyn import FedDyn
from adabest.engine.cohort_table import CohortTable
from adabest.engine.gpu.kernels import twins
from adabest.engine.gpu.packing import Packing, packing
from adabest.engine.gpu.trainer import GpuTrainer, Precision, setting
from adabest.engine.interface import Request
from adabest.engine.layer_plan import ConvolutionLayer, LinearLayer, plan_layers
from adabest.engine.local_step import LocalTraining
from adabest.engine.trainer import TrainingJob
from adabest.models.keyed import prepare
from adabest.tasks.base import no_heartbeat

CPU = torch.device("cpu")
every_model = pytest.mark.parametrize("name", odd_models.MODELS)


def packing_of(name: str) -> tuple[Packing, dict[str, tuple[int, ...]]]:
    example = torch.zeros(2, *odd_models.INPUT)
    module = prepare(odd_models.make(name), example)
    shapes = {n: tuple(p.shape) for n, p in module.named_parameters() if p.requires_grad}
    return packing(plan_layers(module, example), shapes, twins, CPU), shapes


@every_model
def test_unpacked_models_are_those_that_were_packed(name: str) -> None:
    layout, shapes = packing_of(name)
    count = sum(int(np.prod(shape)) for shape in shapes.values())
    vectors = torch.randn(2, 3, count, dtype=torch.float64)
    packed = layout.pack(vectors)
    assert packed.shape == (2, 3, layout.size)
    assert torch.equal(layout.unpack(packed), vectors)
    assert torch.equal(layout.pack(vectors[0, 0]), packed[0, 0])


@every_model
def test_padding_is_zero(name: str) -> None:
    layout, _ = packing_of(name)
    packed = layout.pack(torch.ones(len(layout.target)))
    assert int(packed.count_nonzero()) == len(layout.target) == int((layout.source >= 0).sum())
    assert set(packed.tolist()) <= {0.0, 1.0}


@every_model
def test_regions_lie_one_after_another_and_aligned(name: str) -> None:
    layout, _ = packing_of(name)
    end = 0
    for region in (region for regions in layout.regions for region in regions):
        assert region.start >= end
        assert region.start % 64 == 0
        end = region.start + region.size
    assert end <= layout.size
    assert layout.size % 64 == 0


def test_a_kernel_has_its_outputs_last() -> None:
    """By hand: two outputs of three channels under 1 × 2 taps."""
    module = prepare(nn.Sequential(nn.Conv2d(3, 2, (1, 2)), nn.Flatten()), torch.zeros(2, 3, 1, 2))
    (layer,) = plan_layers(module, torch.zeros(2, 3, 1, 2))
    assert isinstance(layer, ConvolutionLayer)
    layout = packing((layer,), {"0.weight": (2, 3, 1, 2), "0.bias": (2,)}, twins, CPU)
    weight, bias = layout.regions[0]
    kernel = weight.of(layout.pack(torch.arange(14.0)[None]))[0].view(1, 16, 16)  # a row of taps, run, outputs
    for tap in range(2):
        for channel in range(3):
            # in the model's vector: output, channel, row, column
            assert kernel[0, 3 * tap + channel, :2].tolist() == [2.0 * channel + tap, 6 + 2.0 * channel + tap]
    assert not kernel[0, 6:].any()
    assert not kernel[..., 2:].any()
    assert bias.of(layout.pack(torch.arange(14.0)[None]))[0, :3].tolist() == [12.0, 13.0, 0.0]


def test_a_linear_layer_after_a_convolution_takes_channels_last() -> None:
    example = torch.zeros(2, 1, 2, 3)
    module = prepare(nn.Sequential(nn.Conv2d(1, 2, 1), nn.Flatten(), nn.Linear(12, 1)), example)
    layers = plan_layers(module, example)
    assert isinstance(layers[1], LinearLayer)
    shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
    layout = packing(layers, shapes, twins, CPU)
    vector = torch.cat([torch.zeros(4), torch.arange(12.0), torch.zeros(1)])
    matrix = layout.regions[1][0].of(layout.pack(vector[None]))[0].view(2, 3, 16)
    assert matrix[1, 2, :2].tolist() == [5.0, 11.0]  # the last pixel of the first and of the second channel
    assert matrix[0, 1, :2].tolist() == [1.0, 7.0]
    assert not matrix[..., 2:].any()


def test_padding_stays_zero_through_training() -> None:
    """Offsets, springs and decay act on it, too; only its gradient and its start are zero."""
    task = Case(odd_models.make("mixed"), odd_models.INPUT).task()
    trainer, algorithm = GpuTrainer(task), FedDyn(mu=0.5)
    start = task.initial_model()
    states = FedDyn.Client(torch.randn(3, len(start), dtype=torch.float64))
    message = FedDyn.Message(start, start.new_tensor([10.0]))
    context: Any = type("Context", (), {"samples": start.new_tensor([[9.0], [10.0], [11.0]])})()
    server = ServerContext(round=1, phase=0, eta=0.1, base_eta=0.1)
    request = Request(algorithm, task, LocalTraining(weight_decay=0.1), Work.TRAIN, {}, message, server)
    correction = algorithm.client_start(states, message, context)
    table = CohortTable.of([(request, [0, 1, 2])])
    (trained,) = trainer.train([TrainingJob(request, [0, 1, 2], table, 0, states, context, correction)], no_heartbeat)
    assert trainer._program is not None
    padding = trainer._setting.packing.source < 0
    assert bool(padding.any())
    assert not trainer._program._w[:, padding].any()
    assert float((trained.models - start).norm()) > 0.1


def test_parameters_are_kept_in_the_models_own_type() -> None:
    task = Case(odd_models.make("mixed"), odd_models.INPUT, dtype=torch.float32).task()
    half = setting(task, Precision(half=True))
    assert (half.operand, half.master) == (torch.bfloat16, torch.float32)
    assert (setting(task, Precision()).operand, setting(task, Precision()).master) == (torch.float32, torch.float32)


# --- Models drawn at random -------------------------------------------------------------------------------------------


@st.composite
def models(draw: st.DrawFn) -> nn.Module:
    """A few convolutions, then a few linear layers, with anything between them."""
    torch.manual_seed(draw(st.integers(0, 99)))
    channels, height, width = shape = (2, 6, 6)
    layers: list[nn.Module] = []
    flags = st.booleans()
    for _ in range(draw(st.integers(0, 3))):
        rows, columns = draw(st.sampled_from([(1, 1), (3, 3), (2, 3), (3, 1)]))
        down, right = draw(st.integers(0, rows // 2)), draw(st.integers(0, columns // 2))
        if height + 2 * down < rows + 1 or width + 2 * right < columns + 1:
            break
        outputs = draw(st.sampled_from([1, 4, 16, 18]))
        stride = draw(st.sampled_from([1, 1, 1, 2]))
        layers.append(nn.Conv2d(channels, outputs, (rows, columns), stride, (down, right), bias=draw(flags)))
        channels = outputs
        for kind in draw(st.lists(st.sampled_from(["relu", "pool", "norm", "dropout", "tanh"]), max_size=3)):
            height, width = nn.Sequential(*layers)(torch.zeros(1, *shape)).shape[2:]
            choices = {
                "relu": nn.ReLU(inplace=isinstance(layers[-1], nn.Conv2d) and draw(flags)),
                "pool": nn.MaxPool2d(2) if min(height, width) >= 2 else nn.Identity(),
                "norm": nn.GroupNorm(1, channels) if channels * height * width > 1 else nn.Identity(),
                "dropout": nn.Dropout2d(0.3),
                "tanh": nn.Tanh(),
            }
            layers.append(choices[kind])
        height, width = nn.Sequential(*layers)(torch.zeros(1, *shape)).shape[2:]
    layers.append(nn.Flatten())
    features = channels * height * width
    for _ in range(draw(st.integers(0, 2))):
        outputs = draw(st.sampled_from([1, 5, 16, 20]))
        layers.append(nn.Linear(features, outputs, bias=draw(flags)))
        features = outputs
        layers += [nn.ReLU()] * draw(flags) + [nn.Dropout(0.5)] * draw(flags)
    layers.append(nn.Linear(features, odd_models.CLASSES, bias=draw(flags)))
    return nn.Sequential(*layers, *[nn.Softplus()] * draw(flags))


@settings(max_examples=20)
@given(model=models())
def test_random_models_are_packed_and_unpacked(model: nn.Module) -> None:
    with torch.random.fork_rng(devices=[]):
        case = Case(model, odd_models.INPUT, options=(("epochs", 1), ("batch_size", 9)))
        assert_alike(FedDyn(), case, StackedEngine, rounds=1)


@pytest.mark.soak
@settings(max_examples=400)
@given(model=models())
def test_many_random_models_are_packed_and_unpacked(model: nn.Module) -> None:
    assert_alike(FedDyn(), Case(model, odd_models.INPUT), StackedEngine, rounds=2)
