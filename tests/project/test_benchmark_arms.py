"""The benchmark's arms train what they say: each one's round equals plain autograd, client by client."""

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.arms import torch_model
from benchmarks.arms.cuda import eager, graph, im2col, torch_round, vmap
from benchmarks.tasks import (
    MLP,
    PAPER,
    Convolution,
    Flatten,
    GroupNorm,
    Linear,
    Mean,
    Pool,
    Relu,
    Residual,
    Task,
)

SMALL: dict[str, Any] = {"population": 4, "samples": 4, "cohort": 3, "epochs": 2, "batch_size": 2, "learning_rate": 0.3}
LAYERS = (
    *(Convolution(3, 5), Relu(), Pool(2), Convolution(2, 4), Relu()),
    *(Flatten(), Linear(6), Relu(), Linear(10)),
)
_BODY = (Convolution(3, 4, padding=1, stride=2, bias=False), GroupNorm(2), Relu(), Convolution(3, 4, padding=1))
RESIDUAL = (
    *(Convolution(3, 4, padding=1, bias=False), GroupNorm(2), Relu(), Pool(2)),
    *(Residual(_BODY, (Convolution(1, 4, stride=2, bias=False),)), Relu()),
    *(Residual((Convolution(3, 4, padding=1), GroupNorm(2))), Relu(), Mean(), Linear(10)),
)
# The norm of the gradients is between .7 and 1.3, so that some are clipped and others aren't.
TASKS = {
    "convolutions": dataclasses.replace(
        PAPER, input_shape=(3, 9, 8), layers=LAYERS, clip=0.9, weight_decay=0.1, **SMALL
    ),
    "linear": dataclasses.replace(MLP, input_shape=(7,), layers=(Linear(5), Relu(), Linear(10)), **SMALL),
    "residual": dataclasses.replace(PAPER, input_shape=(3, 8, 8), layers=RESIDUAL, clip=0.0, **SMALL),
}
PLAIN = {name: task for name, task in TASKS.items() if task.is_plain}


def data_of(task: Task, channels_last: bool = False) -> torch_round.Data:
    x = torch.from_numpy(task.images()).flatten(0, 1)
    if channels_last and x.ndim == 4:
        x = x.permute(0, 2, 3, 1).contiguous()
    return torch_round.Data(task, x, torch.from_numpy(task.labels()).flatten())


def batches(task: Task) -> Tensor:
    torch.manual_seed(1)
    return data_of(task).batches(1)


def round_by_autograd(task: Task, places: Tensor, norms: list[float] | None = None) -> list[Tensor]:
    """The mean of the clients' models, by the rule as it is written, in float64."""
    data = data_of(task)
    server = [parameter.detach().double() for parameter in torch_model.build(task).parameters()]
    models = []
    for client in range(places.shape[1]):
        w = torch.cat([parameter.flatten() for parameter in server])
        for batch in places[:, client]:
            w.requires_grad_()
            module = torch_model.build(task).double()
            pieces = torch.split(w, [parameter.numel() for parameter in server])
            parameters = {
                name: piece.view(parameter.shape)
                for piece, (name, parameter) in zip(pieces, module.named_parameters(), strict=True)
            }
            x = (data.x[batch].double() - 127.5) / 73.9
            loss = functional.cross_entropy(torch.func.functional_call(module, parameters, (x,)), data.y[batch])
            (g,) = torch.autograd.grad(loss, w)
            if norms is not None:
                norms.append(float(g.norm()))
            if task.clip > 0:
                g = g * min(1.0, task.clip / float(g.norm()))
            w = (w - task.learning_rate * (g + task.weight_decay * w)).detach()
        models.append(w)
    mean = torch.stack(models).mean(dim=0)
    pieces = torch.split(mean, [parameter.numel() for parameter in server])
    return [piece.view(parameter.shape) for piece, parameter in zip(pieces, server, strict=True)]


def check(server: list[Tensor], expected: list[Tensor]) -> None:
    for mine, theirs in zip(server, expected, strict=True):
        torch.testing.assert_close(mine.detach().double(), theirs, rtol=1e-4, atol=1e-5)


def eager_round(task: Task, places: Tensor) -> list[Tensor]:
    module = torch_model.build(task)
    arm = eager.Federation(data_of(task), module, [p.detach().clone() for p in module.parameters()], half=False)
    arm.train_clients(places)
    return arm.server


def graph_round(task: Task, places: Tensor) -> list[Tensor]:
    arm = graph.Loop(data_of(task), half=False)
    arm.train_clients(places)
    return arm.server


def vmap_round(task: Task, places: Tensor) -> list[Tensor]:
    arm = vmap.federation(data_of(task), "float32")
    arm.train_clients(places)
    return arm.server


def im2col_round(task: Task, places: Tensor) -> list[Tensor]:
    """The arm's matrices are compared in the shapes of the module's parameters."""
    arm = im2col.federation(data_of(task, channels_last=True), "float32")
    arm.train_clients(places)
    return im2col.parameters(task, arm.server)


TORCH_ROUNDS: dict[str, Callable[[Task, Tensor], list[Tensor]]] = {
    "eager": eager_round,
    "graph": graph_round,
    "vmap": vmap_round,
    "im2col": im2col_round,
}


@pytest.mark.parametrize(
    ("arm", "task"),
    [
        pytest.param(arm, task, id=f"{arm}-{name}")
        for arm in TORCH_ROUNDS
        for name, task in (PLAIN if arm == "im2col" else TASKS).items()
    ],
)
def test_a_round_of_a_torch_arm_is_the_rule_as_it_is_written(arm: str, task: Task) -> None:
    places = batches(task)
    check(TORCH_ROUNDS[arm](task, places), round_by_autograd(task, places))


def jax_parameters(task: Task) -> list[tuple[np.ndarray, np.ndarray]]:
    """The torch model's, as JAX arms keep them: height, width, inputs, outputs."""
    flat = [parameter.detach().numpy() for parameter in torch_model.build(task).parameters()]
    return [
        (weight.transpose(2, 3, 1, 0) if weight.ndim == 4 else weight.T, bias)
        for weight, bias in zip(flat[::2], flat[1::2], strict=True)
    ]


def jax_round_of(arm: Any, task: Task, places: Tensor, patches: bool) -> list[Tensor]:
    import jax

    from benchmarks.arms.cuda import jax_round

    keys = jax.random.split(jax.random.key(0), task.cohort)
    run = jax.jit(arm.round_of(task, half=False, im2col=patches))
    server = jax.tree.map(jax.numpy.asarray, jax_parameters(task))
    trained = run(jax_round.load(task), server, jax.numpy.asarray(places.movedim(1, 0).numpy()), keys)
    result = []
    for weight, bias in trained:
        wide = np.asarray(weight)
        result += [torch.from_numpy((wide.transpose(3, 2, 0, 1) if wide.ndim == 4 else wide.T).copy())]
        result += [torch.from_numpy(np.asarray(bias).copy())]
    return result


@pytest.mark.parametrize("task", PLAIN.values(), ids=PLAIN)
@pytest.mark.parametrize("patches", [False, True], ids=["convolution", "im2col"])
@pytest.mark.filterwarnings("ignore:jax.interpreters:DeprecationWarning")  # DrJAX still uses an older name
@pytest.mark.parametrize(("arm", "package"), [("jax_vmap", "jax"), ("drjax_map", "drjax")])
def test_a_round_of_a_jax_arm_is_the_rule_as_it_is_written(arm: str, package: str, patches: bool, task: Task) -> None:
    pytest.importorskip(package, reason=f"{package} isn't installed")
    module = importlib.import_module(f"benchmarks.arms.cuda.{arm}")
    places = batches(task)
    check(jax_round_of(module, task, places, patches), round_by_autograd(task, places))


@pytest.mark.parametrize("how", ["direct", "im2col"])
def test_a_step_in_jax_on_a_cpu_is_torch_s(how: str) -> None:
    """The task has no ``Flatten``, which puts the numbers of an image into another order there."""
    pytest.importorskip("jax", reason="jax isn't installed")
    import jax

    from benchmarks.arms import jax_model

    task = dataclasses.replace(TASKS["residual"], samples=5, batch_size=5, epochs=1)
    module, initial = torch_model.build(task), jax_model.initial(task)
    order = [part for pair in initial for part in pair if part is not None]
    with torch.no_grad():
        for own, theirs in zip(module.parameters(), order, strict=True):
            wide = torch.from_numpy(np.array(theirs))
            own.copy_(wide.permute(3, 2, 0, 1) if wide.ndim == 4 else wide.t() if wide.ndim == 2 else wide)
    x, y = task.inputs()[0], task.labels()[0]
    loss = functional.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y))
    gradients = torch.autograd.grad(loss, list(module.parameters()))
    expected = [p.detach() - task.learning_rate * g for p, g in zip(module.parameters(), gradients, strict=True)]
    samples = jax.numpy.asarray(jax_model.images(task)[0]), jax.numpy.asarray(y)
    trained = jax_model.train_client(task, how, initial, samples, jax.random.key(0))  # type: ignore[arg-type]
    found = [np.array(part) for pair in trained for part in pair if part is not None]
    for mine, theirs in zip(found, expected, strict=True):
        wide = torch.from_numpy(mine)
        shaped = wide.permute(3, 2, 0, 1) if wide.ndim == 4 else wide.t() if wide.ndim == 2 else wide
        torch.testing.assert_close(shaped, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:There is no current event loop:DeprecationWarning")  # pfl asks for it
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_a_round_of_pfl_is_the_rule_as_it_is_written(task: Task) -> None:
    """It takes each client's samples in their order."""
    pytest.importorskip("pfl", reason="pfl isn't installed")
    from benchmarks.arms.cuda import pfl_simulation

    cohort = task.cohort_of(1)
    own = torch.arange(task.samples).reshape(-1, task.batch_size).repeat(task.epochs, 1)
    places = own[:, None] + torch.from_numpy(cohort)[:, None] * task.samples
    simulation = pfl_simulation.Simulation(task, "cpu", half=False)
    simulation.train_clients(cohort)
    check(simulation.server, round_by_autograd(task, places))


def test_some_gradients_of_the_small_task_are_clipped_and_others_are_not() -> None:
    """Otherwise the tests above would say nothing about clipping."""
    task, norms = TASKS["convolutions"], list[float]()
    round_by_autograd(task, batches(task), norms)
    assert min(norms) < task.clip < max(norms)


def test_a_second_round_starts_from_the_mean() -> None:
    task = TASKS["convolutions"]
    data = data_of(task)
    arm = vmap.federation(data, "float32")
    other = graph.Loop(data, half=False)
    for number in (1, 2):
        places = data.batches(number)
        arm.train_clients(places)
        other.train_clients(places)
    check(arm.server, [parameter.double() for parameter in other.server])


def test_batches_pass_once_over_every_sample_of_the_cohort_in_each_epoch() -> None:
    task = TASKS["linear"]
    places = data_of(task).batches(3)
    assert places.shape == (task.steps, task.cohort, task.batch_size)
    for epoch in places.chunk(task.epochs):
        for client, seen in zip(task.cohort_of(3), epoch.movedim(1, 0), strict=True):
            assert sorted(seen.flatten().tolist()) == [client * task.samples + place for place in range(task.samples)]


def test_the_headline_task_costs_what_the_paper_s_step_costs() -> None:
    assert PAPER.flops_a_sample * PAPER.batch_size == pytest.approx(3.63e9, rel=1e-3)
    assert PAPER.parameters == 797_962
