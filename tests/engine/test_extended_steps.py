"""Steps with a diagonal, a shift, a second gradient or momentum; several trainings in a round; drawn numbers of steps.

The reference engine is held against loops in plain NumPy, and the other engines against it.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import odd_models
import pytest
import torch
from extended import PARTS, CoinTosses, Ditto, Extended
from quadratics import random_quadratics
from side_by_side import Case, StackedEngine, assert_alike, simulate
from small import assert_same
from torch import Tensor
from torch.nn import functional

from adabest import random
from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.base import Work
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.feddane import FedDane
from adabest.data.augmentation import flip_crop
from adabest.engine.lanes import advance_together
from adabest.engine.local_step import Adam, LocalTraining
from adabest.engine.reference import ReferenceEngine
from adabest.engine.simulation import Simulation
from adabest.engine.step_numbers import UniformSteps
from adabest.errors import InputError
from adabest.federation.batches import batch_table
from adabest.federation.roster import Attendance
from adabest.runs.build import make_batched_engine
from adabest.tasks.base import no_heartbeat
from adabest.tasks.quadratic import QuadraticTask

CLIENTS = 4
MLP = Case("mlp,hidden=9x5", (2, 6, 6))
LOGISTIC = Case("logistic", (5,))
MIXED = Case(odd_models.make("mixed"), (2, 6, 6))

each_part = pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS.keys())


def simulate_quadratics(algorithm: Any, task: QuadraticTask, training: LocalTraining) -> Simulation:
    return Simulation(
        algorithm, task, np.arange(CLIENTS), training=training, attendance=Attendance(participation=1.0, seed=5)
    )


# --- The reference engine ---------------------------------------------------------------------------------------------


def plain_rounds(
    task: QuadraticTask, parts: tuple[str, ...], training: LocalTraining, steps_of: Any, rounds: int
) -> Iterator[np.ndarray]:
    """θ after each round of ``Extended``, written from the formulas."""
    curvatures, centres = task.curvatures.numpy(), task.centres.numpy()
    counts = np.array(task.counts, dtype=np.float64)
    cloud = task.origin.numpy()
    velocity = 0.1 * cloud
    for t in range(1, rounds + 1):
        eta = training.learning_rate * training.learning_rate_decay ** (t - 1)
        models, velocities = [], []
        for i in range(CLIENTS):

            def gradient(w: np.ndarray, i: int = i) -> np.ndarray:
                return np.asarray(curvatures[i] @ (w - centres[i]))

            own = 1 / counts[i]
            w, m, before = cloud, velocity, cloud
            anchor = (0.9 - own / 2) * cloud
            if "anchor" in parts:
                before = anchor
            first = second = np.zeros_like(cloud)
            for k in range(1, steps_of(t, i) + 1):
                point = w
                if "shift" in parts:
                    point = point + 0.3 * (own + 0.1) * np.cos(50 * cloud)
                if "radius" in parts:
                    ascent = gradient(point)
                    point = point + (0.1 + own) * ascent / np.sqrt(ascent @ ascent)
                u = gradient(point)
                if "previous" in parts:
                    u = u - gradient(before)
                elif "anchor" in parts:
                    u = u - gradient(anchor)
                before = w
                d = u * (1 + 0.5 * np.sin(100 * cloud)) if "diagonal" in parts else u
                if "offset" in parts:
                    d = d + 0.01 * own * cloud

                def clip(x: np.ndarray) -> np.ndarray:
                    return x * min(1.0, training.clip / np.sqrt(x @ x)) if training.clip else x

                if "sum" in parts:
                    m = m + d
                    d = clip(m)
                elif "momentum" in parts:
                    m = (0.4 + own / 2) * m + clip(d)
                    d = m
                else:
                    d = clip(d)
                if training.optimizer is not None:
                    b1, b2, eps = training.optimizer.beta1, training.optimizer.beta2, training.optimizer.eps
                    first, second = b1 * first + (1 - b1) * d, b2 * second + (1 - b2) * d**2
                    d = first / (1 - b1**k) / (np.sqrt(second / (1 - b2**k)) + eps)
                w = w - eta * (d + training.weight_decay * w)
            models.append(w)
            velocities.append(m)
        cloud = (counts / counts.sum()) @ np.stack(models)
        velocity = np.mean(velocities, axis=0)
        yield cloud


TRAININGS = {
    "free": LocalTraining(learning_rate=0.1, learning_rate_decay=0.8, clip=0.0),
    "clipped": LocalTraining(learning_rate=0.1, learning_rate_decay=0.8, clip=0.7, weight_decay=0.05),
    "adam": LocalTraining(learning_rate=0.05, clip=0.7, weight_decay=0.05, optimizer=Adam(0.8, 0.95, 1e-4)),
}


@pytest.mark.parametrize("name", TRAININGS)
@each_part
def test_every_part_gives_the_models_of_a_plain_loop(parts: tuple[str, ...], name: str) -> None:
    task, training = random_quadratics(1, CLIENTS, unbalanced=True), TRAININGS[name]
    simulation = simulate_quadratics(Extended(parts=parts), task, training)
    for expected in plain_rounds(task, parts, training, lambda t, i: task.paces[i], 4):
        simulation.step()
        np.testing.assert_allclose(simulation.state.cloud.numpy(), expected, rtol=0, atol=1e-12)


@each_part
def test_every_part_changes_the_model(parts: tuple[str, ...]) -> None:
    """Otherwise the comparison above could hold for the wrong reason."""
    task = random_quadratics(1, CLIENTS, unbalanced=True)
    clouds = []
    for own in (parts, *(parts[:place] + parts[place + 1 :] for place in range(len(parts)))):
        simulation = simulate_quadratics(Extended(parts=own), task, TRAININGS["clipped"])
        for _ in range(3):
            simulation.step()
        clouds.append(simulation.state.cloud)
    assert min(float((clouds[0] - other).norm()) for other in clouds[1:]) > 1e-4


def test_drawn_numbers_of_steps_are_each_clients_own_in_every_round() -> None:
    task, drawn = random_quadratics(1, CLIENTS), UniformSteps(1, 5)
    training = LocalTraining(learning_rate=0.1, clip=0.0, steps=drawn)
    simulation = simulate_quadratics(Extended(), task, training)

    def steps_of(t: int, i: int) -> int:
        return int(drawn.of(5, t, np.array([i]))[0])

    for expected in plain_rounds(task, (), training, steps_of, 4):
        simulation.step()
        np.testing.assert_allclose(simulation.state.cloud.numpy(), expected, rtol=0, atol=1e-12)
    everything = [[steps_of(t, i) for i in range(CLIENTS)] for t in range(1, 5)]
    assert simulation.state.local_steps == int(np.sum(everything))
    assert len(set(map(tuple, everything))) == 4


def test_an_algorithm_draws_the_same_number_of_steps_for_all() -> None:
    task = random_quadratics(1, CLIENTS, unbalanced=True)
    simulation = simulate_quadratics(CoinTosses(), task, LocalTraining(clip=0.0, steps=UniformSteps(7, 9)))
    made = [0]
    for _ in range(12):
        simulation.step()
        made.append(simulation.state.local_steps)
    each = np.diff(made)
    assert not np.any(each % CLIENTS)
    assert len(set(each.tolist())) > 2


@pytest.mark.parametrize("wrong", [0, True, 2.5])
def test_a_wrong_number_of_steps_is_refused(wrong: Any) -> None:
    class Wrong(FedAvg):
        def common_steps(self, context: Any) -> Any:
            return wrong

    simulation = simulate_quadratics(Wrong(), random_quadratics(1, CLIENTS), LocalTraining())
    with pytest.raises(InputError, match=r"algorithm Wrong: common_steps returned .*; it should be None or a whole"):
        simulation.step()


# --- Several trainings in a round -------------------------------------------------------------------------------------


def test_each_training_of_a_round_has_batches_of_its_own() -> None:
    """Both are plain descent on batches that are drawn here by name; the first has the names of a single phase."""
    simulation = simulate(Ditto(pull=0.0), LOGISTIC, ReferenceEngine, LocalTraining(clip=0, learning_rate=0.5))
    task: Any = simulation._task
    client = int(simulation.cohort(1)[0])
    simulation.step(cohort=np.array([client]))
    own = task.partition.of(client)
    ends, w = [], task.initial_model()
    for word in (1, 1 + 2**40):  # the second one starts where the first one ends
        places = batch_table(task.seed, word, np.array([client]), np.array([len(own)]), epochs=2, batch_size=7)
        for chosen in own[places.reshape(-1, 7)]:
            task.model.load(w)
            x, y = task.inputs(torch.from_numpy(chosen)), task.data.y_train[chosen]
            gradients = torch.autograd.grad(task.loss(task.model.module(x), y), task.model.module.parameters())
            w = w - 0.5 * torch.cat([gradient.flatten() for gradient in gradients])
        ends.append(w)
    torch.testing.assert_close(simulation.state.cloud, ends[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(simulation.client_state(client).own, ends[1], rtol=1e-12, atol=1e-12)


def test_a_gradient_before_a_training_changes_none_of_its_draws() -> None:
    assert random.round_word(7, 0) == 7
    assert random.round_word(7, 1) == 7 + 2**40

    class GradientFirst(FedAvg):
        phases = (Work.GRADIENT, Work.TRAIN)

        def server_step(self, server: Any, cloud: Tensor, replies: Any, context: Any) -> Any:
            found = super().server_step(server, cloud, replies, context)
            return found if context.phase else found._replace(aggregate=cloud, cloud=cloud)

    one, other = (simulate(algorithm, LOGISTIC, ReferenceEngine) for algorithm in (FedAvg(), GradientFirst()))
    for _ in range(2):
        one.step()
        other.step()
    assert torch.equal(one.state.cloud, other.state.cloud)


def test_the_scored_model_is_that_of_the_phase_that_has_models() -> None:
    """Ditto's own models are trained last, and aren't the clients' models."""
    ditto, fedavg = (simulate(algorithm, LOGISTIC, ReferenceEngine) for algorithm in (Ditto(), FedAvg()))
    for _ in range(3):
        ditto.step()
        fedavg.step()
    mine, its = ditto.scored_model(), fedavg.scored_model()
    assert mine is not None
    assert its is not None
    assert torch.equal(mine, its)
    client = ditto.clients_with_models()[0]
    assert torch.equal(ditto.client_model(client), fedavg.client_model(client))
    assert not torch.equal(ditto.client_model(client), ditto.client_state(client).own)


# --- Full gradients ---------------------------------------------------------------------------------------------------


def test_full_gradients_on_cores_are_the_tasks_whatever_the_number_of_threads() -> None:
    engines: list[Any] = [ReferenceEngine, *(partial(make_batched_engine, threads=threads) for threads in (1, 3))]
    made = [simulate(FedDane(), MIXED, engine) for engine in engines]
    for simulation in made:
        simulation.step()
    first, *others = (simulation.state.server.h for simulation in made)
    assert all(torch.equal(first, other) for other in others)


def test_an_error_in_a_full_gradient_says_where_it_happened() -> None:
    def smaller(outputs: Tensor, y: Tensor) -> Tensor:
        if len(y) > 7:
            raise RuntimeError("no")
        return functional.cross_entropy(outputs, y)

    simulation = simulate(FedDane(), MLP._replace(options=(("loss", smaller),)), make_batched_engine)
    with pytest.raises(RuntimeError, match="no") as caught:
        simulation.step()
    assert any(note.startswith("in round 1, client ") for note in caught.value.__notes__)


# --- The other engines ------------------------------------------------------------------------------------------------

ENGINES: dict[str, Any] = {"cpu": make_batched_engine, "stacked": StackedEngine}
every_engine = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())
CLIPPED = LocalTraining(clip=0.5, weight_decay=1e-2, learning_rate_decay=0.9)
ADAM = replace(CLIPPED, learning_rate=0.01, optimizer=Adam(0.8, 0.95, 1e-4))


@every_engine
@each_part
def test_every_part_agrees_with_the_reference(parts: tuple[str, ...], engine: Any) -> None:
    assert_alike(Extended(parts=parts), MLP, engine, rounds=2, training=CLIPPED)


@every_engine
@pytest.mark.parametrize("parts", [(), PARTS["all"]], ids=["plain", "all"])
def test_adam_agrees_with_the_reference(parts: tuple[str, ...], engine: Any) -> None:
    assert_alike(Extended(parts=parts), MLP, engine, rounds=2, training=ADAM)


@every_engine
@pytest.mark.parametrize("case", [MIXED, LOGISTIC, MLP._replace(augmentation=flip_crop)], ids=["mixed", "tiny", "flip"])
def test_all_parts_agree_with_the_reference_on_other_models(case: Case, engine: Any) -> None:
    assert_alike(Extended(parts=PARTS["all"]), case, engine, rounds=2, training=ADAM)


@every_engine
@pytest.mark.parametrize("batching", ["short", "replacement"])
def test_other_batches_agree_with_the_reference(batching: str, engine: Any) -> None:
    case = MLP._replace(options=(("batching", batching),))
    assert_alike(Extended(parts=("radius", "anchor")), case, engine, rounds=1, training=CLIPPED)


@every_engine
def test_several_trainings_agree_with_the_reference(engine: Any) -> None:
    case = Case(odd_models.make("transformer"), odd_models.INPUT)  # with dropout
    assert_alike(Ditto(), case, engine, rounds=2)
    assert_alike(Ditto(), MLP._replace(augmentation=flip_crop), engine, rounds=2)


@every_engine
@pytest.mark.parametrize("algorithm", [FedAvg(), CoinTosses()], ids=["by client", "for all"])
def test_drawn_numbers_of_steps_agree_with_the_reference(algorithm: Any, engine: Any) -> None:
    """More steps than the clients' own, and fewer."""
    training = replace(CLIPPED, steps=UniformSteps(1, 40))
    assert_alike(algorithm, MLP, engine, rounds=3, training=training)


LANES = [Extended(parts=parts) for parts in PARTS.values()] + [AdaBest(), FedAvg(), Ditto(), CoinTosses()]


@pytest.mark.parametrize("engine", [make_batched_engine], ids=["cpu"])
def test_lanes_of_all_kinds_have_the_bits_of_single_runs(engine: Any) -> None:
    assert_lanes_as_alone(LANES, MLP._replace(kind="mlp"), engine)


def assert_lanes_as_alone(algorithms: list[Any], case: Case, engine: Any) -> None:
    """Runs of different algorithms, every third one by Adam."""
    trainings = [ADAM if number % 3 == 2 else CLIPPED for number in range(len(algorithms))]
    runs = list(zip(algorithms, trainings, strict=True))
    alone = [simulate(algorithm, case, engine, training) for algorithm, training in runs]
    together = [simulate(algorithm, case, engine, training) for algorithm, training in runs]
    for simulation in alone:
        simulation.step()
    advance_together([simulation.round() for simulation in together], engine(no_heartbeat))
    for mine, its in zip(together, alone, strict=True):
        assert_same(mine.snapshot(), its.snapshot())
