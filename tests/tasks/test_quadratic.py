"""The quadratic task: gradients, objective and optimum worked out by hand."""

import pytest
import torch
from quadratics import random_quadratics
from torch import Tensor

from adabest.tasks.quadratic import QuadraticTask


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture
def task() -> QuadraticTask:
    """Two clients on a line: f_1 = (w − 1)², with three samples, and f_2 = ½ (w + 3)², with one."""
    return QuadraticTask(
        curvatures=numbers(2.0, 1.0).reshape(2, 1, 1),
        centres=numbers(1.0, -3.0).reshape(2, 1),
        counts=[3, 1],
        paces=[4, 2],
        origin=numbers(5.0),
    )


def test_samples_steps_and_initial_model_are_those_given(task: QuadraticTask) -> None:
    assert [task.samples(client) for client in (0, 1)] == [3, 1]
    assert [task.steps(client) for client in (0, 1)] == [4, 2]
    assert task.initial_model().tolist() == [5.0]


def test_the_initial_model_is_a_copy(task: QuadraticTask) -> None:
    task.initial_model().zero_()
    assert task.initial_model().tolist() == [5.0]


def test_a_local_pass_has_loss_and_gradient_by_hand(task: QuadraticTask) -> None:
    first, second = (task.local_pass(numbers(2.0), client, round_number=1, step=0) for client in (0, 1))
    assert (first.gradient.tolist(), float(first.loss), float(first.value)) == ([2.0], 1.0, 0.0)
    assert (second.gradient.tolist(), float(second.loss), float(second.value)) == ([5.0], 12.5, 0.0)


def test_passes_of_all_rounds_and_steps_are_equal(task: QuadraticTask) -> None:
    w = numbers(2.0)
    passes = [task.local_pass(w, 0, round_number, step) for round_number in (1, 9) for step in (0, 3)]
    assert len({(float(one.gradient), float(one.loss)) for one in passes}) == 1


def test_the_objective_weighs_clients_by_samples(task: QuadraticTask) -> None:
    assert float(task.objective(numbers(2.0))) == (3 * 1.0 + 1 * 12.5) / 4
    assert task.test(numbers(2.0)) == (3.875, {"accuracy": 0.0})


def test_the_objective_takes_any_number_of_points(task: QuadraticTask) -> None:
    points = numbers(0.0, 1.0, 2.0, 3.0, 4.0, 5.0).reshape(2, 3, 1)
    together = task.objective(points)
    assert together.shape == (2, 3)
    one_by_one = torch.stack([task.objective(point) for point in points.reshape(6, 1)])
    torch.testing.assert_close(together.flatten(), one_by_one)


def test_the_optimum_by_hand(task: QuadraticTask) -> None:
    # 3 · 2 (w − 1) + 1 · 1 (w + 3) = 0
    torch.testing.assert_close(task.optimum(), numbers(3 / 7))


@pytest.mark.parametrize("seed", range(3))
def test_gradients_cancel_at_the_optimum(seed: int) -> None:
    task = random_quadratics(seed, clients=4, unbalanced=True)
    weighted = [task.samples(client) * task.full_gradient(task.optimum(), client) for client in range(4)]
    torch.testing.assert_close(sum(weighted, torch.zeros(3)), numbers(0.0, 0.0, 0.0), rtol=0, atol=1e-12)


def test_gradients_are_those_of_automatic_differentiation() -> None:
    task = random_quadratics(0, clients=3)
    for client in range(3):
        w = task.initial_model().requires_grad_()
        away = w - task.centres[client]
        (gradient,) = torch.autograd.grad(0.5 * away @ task.curvatures[client] @ away, w)
        torch.testing.assert_close(task.full_gradient(w.detach(), client), gradient)


def test_a_quadratic_task_has_no_validation_clients(task: QuadraticTask) -> None:
    assert task.validate(numbers(2.0)) is None
