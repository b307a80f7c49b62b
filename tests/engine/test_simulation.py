"""Rounds: their metrics, their all-or-nothing, and that they repeat to the last bit."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quadratics import random_quadratics, simulate
from scored import scored_model
from small import (
    METRICS,
    assert_same,
    frozen,
    make_dataset,
    make_simulation,
    make_task,
    plain_inputs,
    plain_network,
    plain_sgd,
)
from torch import Tensor
from torch.nn import functional

from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.base import Algorithm, ClientContext, Replies, ServerContext, Update, Work
from adabest.algorithms.catalog import ALGORITHMS, CORE
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.feddyn import FedDyn
from adabest.algorithms.forms import Vector
from adabest.algorithms.scaffold import Scaffold
from adabest.data.augmentation import flip_crop
from adabest.engine.gate import GateNotes
from adabest.engine.gate_rules import Gate
from adabest.engine.local_step import LocalTraining
from adabest.engine.metrics import Metrics
from adabest.engine.simulation import Rules, Simulation
from adabest.errors import Diverged, InputError, Interrupted
from adabest.tasks.base import Heartbeat, Scores, no_heartbeat
from adabest.tasks.classification import ClassificationTask

TRAINING = LocalTraining(weight_decay=1e-3)
FLOAT64: Any = {"dtype": torch.float64}
# Everything that draws random numbers while training.
RANDOM: Any = {"dropout": 0.3, "augmentation": flip_crop}


def evaluated(simulation: Simulation, **options: Any) -> Metrics:
    metrics = simulation.step(evaluate=True, **options)
    assert metrics is not None
    return metrics


def norm(vector: Tensor) -> float:
    return float((vector.double() ** 2).sum().sqrt())


class TestMetrics:
    def test_keys_and_their_order(self) -> None:
        assert tuple(evaluated(make_simulation(FedAvg(), make_task()))) == METRICS

    def test_metrics_come_only_when_asked_for(self) -> None:
        assert make_simulation(FedAvg(), make_task()).step() is None

    def test_the_three_models_are_tested(self) -> None:
        task, data = make_task(**FLOAT64), make_dataset()
        simulation = make_simulation(AdaBest(beta=0.9), task)
        simulation.step()
        metrics = evaluated(simulation)
        models = {
            "scored": scored_model(simulation),
            "aggregate": simulation.state.aggregate,
            "cloud": simulation.state.cloud,
        }
        for name, model in models.items():
            with torch.no_grad():
                output = plain_network(model)(plain_inputs(data.x_test))
            assert metrics[f"{name}_loss"] == pytest.approx(float(functional.cross_entropy(output, data.y_test)))
            assert metrics[f"{name}_accuracy"] == float((output.argmax(1) == data.y_test).double().mean())
        assert len({metrics[f"{name}_loss"] for name in models}) == 3
        validation = task.validate(models["scored"])
        assert validation is not None
        assert (
            metrics["validation_accuracy"],
            metrics["validation_spread"],
            metrics["validation_worst_tenth"],
        ) == validation[:3]

    def test_training_figures_are_means_over_the_cohort(self) -> None:
        task = make_task(unbalance=0.4, **FLOAT64)
        simulation = make_simulation(FedAvg(), task, training=TRAINING)
        each = [
            plain_sgd(task.partition, simulation.state.cloud, client, 1, TRAINING)
            for client in simulation.cohort(1).tolist()
        ]
        metrics = evaluated(simulation)
        assert metrics["train_loss"] == pytest.approx(np.mean([np.mean(losses) for _, losses, _ in each]))
        assert metrics["train_accuracy"] == pytest.approx(np.mean([np.mean(right) for _, _, right in each]))

    def test_norms_and_cosine(self) -> None:
        simulation = make_simulation(AdaBest(mu=0.1, beta=0.8), make_task(**FLOAT64))
        first = evaluated(simulation)
        assert first["h_cosine"] is None  # there was no h before
        before = simulation.state
        metrics = evaluated(simulation)
        now = simulation.state
        h = 0.8 * (before.aggregate - now.aggregate)
        assert metrics["cloud_norm"] == pytest.approx(norm(now.aggregate - h))
        assert metrics["h_norm"] == pytest.approx(norm(h))
        old_h, g = 0.8 * (simulation._task.initial_model() - before.aggregate), before.cloud - now.aggregate
        assert metrics["h_cosine"] == pytest.approx(float(old_h @ g) / (norm(old_h) * norm(g)))
        assert -1 <= float(metrics["h_cosine"] or 0) <= 1

    @pytest.mark.parametrize("rounds", [1, 2, 5])
    def test_mean_client_estimate_is_over_all_that_took_part(self, rounds: int) -> None:
        # Balanced data: h_i acts as μ h_i, at whatever scale it is stored.
        simulation = make_simulation(AdaBest(mu=0.1), make_task(**FLOAT64))
        for _ in range(rounds):
            metrics = evaluated(simulation)
        seen = sorted({int(client) for t in range(1, rounds + 1) for client in simulation.cohort(t)})
        expected = np.mean([0.1 * norm(simulation.client_state(client).h) for client in seen])
        assert metrics["client_h_norm"] == pytest.approx(expected)

    def test_metrics_that_an_algorithm_does_not_have_are_none(self) -> None:
        simulation = make_simulation(FedAvg(), make_task(validation=0))
        simulation.step()
        metrics = evaluated(simulation)
        names = ["h_norm", "client_h_norm", "h_cosine"]
        names += ["validation_accuracy", "validation_spread", "validation_worst_tenth"]
        assert [metrics[name] for name in names] == [None] * 6

    @pytest.mark.parametrize(
        ("algorithm", "vectors_down", "numbers_down", "vectors_up", "numbers_up"),
        [(FedAvg(), 1, 0, 1, 1), (AdaBest(), 1, 1, 1, 1), (FedDyn(), 1, 1, 1, 0), (Scaffold(), 2, 1, 2, 0)],
    )
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_bytes_and_steps_add_up(
        self,
        *,
        algorithm: Algorithm,
        dtype: torch.dtype,
        vectors_down: int,
        numbers_down: int,
        vectors_up: int,
        numbers_up: int,
    ) -> None:
        task = make_task(unbalance=0.4, dtype=dtype)
        simulation = make_simulation(algorithm, task)
        size, length = dtype.itemsize, task.initial_model().numel()
        steps = 0
        for round_number in (1, 2, 3):
            metrics = evaluated(simulation)
            steps += sum(task.steps(client) for client in simulation.cohort(round_number).tolist())
            replies = 3 * round_number
            assert metrics["bytes_down"] == replies * size * (vectors_down * length + numbers_down)
            assert metrics["bytes_up"] == replies * size * (vectors_up * length + numbers_up)
            assert metrics["local_steps"] == steps
            assert metrics["round"] == round_number


class TestScoredModel:
    # Client 0 of the training clients comes back, once right away and once after a pause.
    PLAN = ((0, 1, 4), (0, 5, 6), (2, 4, 7), (0, 2, 9))

    @pytest.mark.parametrize("scored_clients", ["seen", "all"])
    @pytest.mark.parametrize("weighted", [False, True])
    def test_the_scored_model_is_the_mean_of_the_latest_client_models(
        self, weighted: bool, scored_clients: Literal["seen", "all"]
    ) -> None:
        task = make_task(unbalance=0.5, **FLOAT64)
        # Without μ and β, AdaBest's clients train as FedAvg's do, but weigh the same.
        algorithm: Algorithm = FedAvg() if weighted else AdaBest(mu=0.0, beta=0.0)
        simulation = make_simulation(algorithm, task, training=TRAINING, rules=Rules(scored_clients=scored_clients))
        everyone, sizes = task.partition.training.tolist(), task.partition.samples
        assert torch.equal(scored_model(simulation), task.initial_model())
        latest: dict[int, Tensor] = {}
        for round_number, places in enumerate(self.PLAN, start=1):
            cohort = [everyone[place] for place in places]
            for client in cohort:
                start = simulation.state.cloud
                latest[client] = plain_sgd(task.partition, start, client, round_number, TRAINING)[0]
            simulation.step(cohort=np.array(cohort))
            counted = everyone if scored_clients == "all" else sorted(latest)
            models = torch.stack([latest.get(client, task.initial_model()) for client in counted])
            weights = torch.tensor([float(sizes[client]) if weighted else 1.0 for client in counted]).double()
            expected = (weights[:, None] * models).sum(0) / weights.sum()
            torch.testing.assert_close(scored_model(simulation), expected, rtol=1e-10, atol=1e-12)

    def test_memory_is_that_of_the_clients_that_took_part(self) -> None:
        simulation = make_simulation(AdaBest(), make_task())
        assert len(simulation.state.clients) == 0
        for _ in range(3):
            simulation.step()
        seen = {int(client) for t in (1, 2, 3) for client in simulation.cohort(t)}
        assert len(seen) < len(simulation._clients)
        tensors = simulation.snapshot().tensors
        rows = [tensor for name, tensor in tensors.items() if name.startswith("clients.") and name != "clients.ids"]
        used = sum(tensor.numel() * tensor.element_size() for tensor in rows)
        allocated = sum(simulation.state.clients.bytes().values())
        assert used <= allocated <= 2 * used, "what is allocated, not only what is used"
        assert set(tensors["clients.ids"].tolist()) == seen
        assert {len(tensor) for tensor in rows} == {len(seen)}


@dataclass(frozen=True)
class TrainsTwice(FedAvg):
    """A round of two exchanges with training, of which only the second one's models are the latest."""

    phases: ClassVar[tuple[Work, ...]] = (Work.TRAIN, Work.TRAIN)


@dataclass(frozen=True)
class LooksBack(FedAvg):
    """A round that ends with a gradient, which FedAvg's server is then not shown."""

    phases: ClassVar[tuple[Work, ...]] = (Work.TRAIN, Work.GRADIENT)

    def client_finish(self, client: Any, message: Any, model: Tensor, context: ClientContext) -> tuple[Any, Any]:
        return client, self.Reply(model if context.phase == 0 else message.cloud, context.samples)


class TestScoredModelOfSeveralExchanges:
    @pytest.mark.parametrize("algorithm", [TrainsTwice(), LooksBack()])
    def test_every_client_counts_once_with_its_latest_model(self, algorithm: Algorithm) -> None:
        # With everyone there and equal sizes, the mean of the latest models is the aggregate.
        simulation = make_simulation(algorithm, make_task(**FLOAT64), participation=1.0)
        for _ in range(2):
            simulation.step()
            torch.testing.assert_close(scored_model(simulation), simulation.state.aggregate)


class StopAt:
    """A heartbeat that interrupts at one of its beats, if told to."""

    def __init__(self) -> None:
        self.beats = 0
        self.stop_at: int | None = None

    def __call__(self) -> None:
        self.beats += 1
        if self.beats == self.stop_at:
            raise Interrupted("stop")


class TestAllOrNothing:
    @staticmethod
    @functools.cache
    def uninterrupted() -> tuple[int, list[Any]]:
        """The beats of the third round, and the states after the second, third and fourth."""
        heartbeat, states = StopAt(), []
        simulation = make_simulation(AdaBest(mu=0.1), make_task(**RANDOM), heartbeat=heartbeat)
        for round_number in range(1, 5):
            before = heartbeat.beats
            simulation.step(evaluate=True)
            if round_number == 3:
                beats = heartbeat.beats - before
            if round_number > 1:
                states.append(frozen(simulation.snapshot()))
        return beats, states

    @settings(max_examples=12)
    @given(st.integers(0, 10_000))
    def test_an_interrupted_round_leaves_no_trace(self, moment: int) -> None:
        self.interrupt_in_round_three(1 + moment % (self.uninterrupted()[0] - 4))

    @pytest.mark.parametrize("from_the_end", [0, 1, 2, 3])
    def test_an_interrupted_evaluation_leaves_no_trace(self, from_the_end: int) -> None:
        # The last four beats are those of the three test passes and of the validation.
        self.interrupt_in_round_three(self.uninterrupted()[0] - from_the_end)

    def interrupt_in_round_three(self, beat: int) -> None:
        _, (second, third, fourth) = self.uninterrupted()
        heartbeat = StopAt()
        simulation = make_simulation(AdaBest(mu=0.1), make_task(**RANDOM), heartbeat=heartbeat)
        for _ in range(2):
            simulation.step(evaluate=True)
        heartbeat.stop_at = heartbeat.beats + beat
        with pytest.raises(Interrupted):
            simulation.step(evaluate=True)
        assert_same(simulation.snapshot(), second)
        simulation.step(evaluate=True)
        assert_same(simulation.snapshot(), third)
        simulation.step(evaluate=True)
        assert_same(simulation.snapshot(), fourth)

    @pytest.mark.parametrize(
        ("training", "options", "message"),
        [
            # So fast that the loss overflows while training ...
            (
                LocalTraining(learning_rate=1e30, clip=0),
                {},
                r"the reply of client \d+ .* isn't finite \(its training loss at local step \d+ was (nan|inf)\)",
            ),
            # ... or, with a single step, only the model that comes out of it.
            (
                LocalTraining(learning_rate=1e39, clip=0),
                {"epochs": 1, "batch_size": 999},
                r"the reply of client \d+ in round 1 is left out: its field model isn't finite$",
            ),
        ],
    )
    def test_divergence_is_said_and_leaves_the_state(
        self, training: LocalTraining, options: dict[str, Any], message: str
    ) -> None:
        rules = Rules(gate=Gate("stop"))
        simulation = make_simulation(AdaBest(), make_task(**options), training=training, rules=rules)
        before = frozen(simulation.snapshot())
        with pytest.raises(Diverged, match=message):
            simulation.step()
        assert [rejection.round for rejection in simulation.untold().rejections] == [1, 1, 1]
        simulation.state = dataclasses.replace(simulation.state, notes=GateNotes())
        assert_same(simulation.snapshot(), before)

    def test_divergence_in_the_evaluation_is_told(self) -> None:
        class Overflows(ClassificationTask):
            def test(self, w: Tensor, heartbeat: Heartbeat = no_heartbeat) -> Scores:
                return Scores(loss=float("inf"), values={"accuracy": 0.1})

        task = make_task()
        task.__class__ = Overflows
        simulation = make_simulation(AdaBest(), task)
        with pytest.raises(Diverged, match="the test loss of the scored model is inf"):
            simulation.step(evaluate=True)
        assert simulation.state.round == 0
        assert len(simulation.state.clients) == 0


@dataclass(frozen=True)
class Remembers(FedAvg):
    """An algorithm of one's own, whose clients keep something under names that come to mind."""

    class Client(NamedTuple):
        model: Tensor
        ids: Tensor
        estimate_norm: Tensor

    def client_init(self, cloud: Tensor) -> Client:
        return self.Client(torch.zeros_like(cloud), torch.zeros_like(cloud[:1]), torch.zeros_like(cloud[:1]))

    def client_finish(self, client: Any, message: Any, model: Tensor, context: ClientContext) -> tuple[Any, Any]:
        kept = self.Client(torch.full_like(model, 3.0), context.samples * 0 + 5, context.samples * 0 + 6)
        return kept, self.Reply(model, context.samples)


class TestRepeats:
    @pytest.mark.parametrize("name", CORE)
    def test_a_restored_simulation_goes_on_to_the_last_bit(self, name: str) -> None:
        def fresh() -> Simulation:
            return make_simulation(ALGORITHMS.find(name)(), make_task(unbalance=0.4, **RANDOM))

        original, later = fresh(), fresh()
        for _ in range(3):
            original.step()
        snapshot = frozen(original.snapshot())
        later.restore(snapshot)
        assert_same(later.snapshot(), original.snapshot())
        for _ in range(3):
            assert original.step(evaluate=True) == later.step(evaluate=True)
        assert_same(original.snapshot(), later.snapshot())

    def test_a_simulation_can_be_restored_before_its_first_round(self) -> None:
        original, later = (make_simulation(AdaBest(), make_task()) for _ in range(2))
        later.step()
        later.restore(original.snapshot())
        assert evaluated(later) == evaluated(original)

    def test_a_snapshot_is_a_copy(self) -> None:
        simulation = make_simulation(AdaBest(), make_task(), participation=1.0)
        simulation.step()
        snapshot = simulation.snapshot()
        kept = frozen(snapshot)
        simulation.step()
        assert_same(snapshot, kept)

    def test_a_snapshot_can_be_restored_more_than_once(self) -> None:
        original, first, second = (make_simulation(AdaBest(), make_task(), participation=1.0) for _ in range(3))
        original.step()
        snapshot = original.snapshot()
        kept = frozen(snapshot)
        first.restore(snapshot)
        second.restore(snapshot)
        expected = evaluated(first)
        assert_same(snapshot, kept)
        assert evaluated(second) == expected

    def test_client_fields_may_have_any_name(self) -> None:
        simulation = make_simulation(Remembers(), make_task(), participation=1.0)
        for _ in range(2):
            simulation.step()
        client = int(simulation._clients[0])
        restored = make_simulation(Remembers(), make_task(), participation=1.0)
        restored.restore(simulation.snapshot())
        for each in (simulation, restored):
            state = each.client_state(client)
            assert state.model.unique().tolist() == [3.0]
            assert (state.ids.tolist(), state.estimate_norm.tolist()) == ([5.0], [6.0])
        assert torch.equal(scored_model(restored), scored_model(simulation))

    def test_the_order_of_a_cohort_changes_no_bit(self) -> None:
        states = []
        task = make_task(unbalance=0.4, **RANDOM)
        for cohort in itertools.permutations(task.partition.training[[1, 4, 7]].tolist()):
            simulation = make_simulation(Scaffold(), make_task(unbalance=0.4, **RANDOM))
            for _ in range(2):
                simulation.step(cohort=np.array(cohort))
            states.append(frozen(simulation.snapshot()))
        for state in states[1:]:
            assert_same(state, states[0])

    def test_torchs_generator_has_no_part_in_it(self) -> None:
        def run(seed: int) -> tuple[Metrics, Any]:
            torch.manual_seed(seed)
            before = torch.get_rng_state()
            simulation = make_simulation(AdaBest(), make_task(**RANDOM))
            simulation.step()
            metrics = evaluated(simulation)
            assert torch.equal(torch.get_rng_state(), before)
            return metrics, frozen(simulation.snapshot())

        (metrics, state), (other_metrics, other_state) = run(1), run(2)
        assert metrics == other_metrics
        assert_same(state, other_state)

    @pytest.mark.parametrize("what", ["dropout", "augmentation"])
    def test_dropout_and_augmentation_take_part(self, what: str) -> None:
        # Otherwise the tests above would compare nothing.
        with_it, without = (make_simulation(FedAvg(), make_task(**o)) for o in ({what: RANDOM[what]}, {}))
        with_it.step()
        without.step()
        assert not torch.equal(with_it.state.cloud, without.state.cloud)

    def test_the_runs_seed_changes_cohorts_and_the_tasks_seed_batches(self) -> None:
        base, other = (make_simulation(FedAvg(), make_task(), seed=seed) for seed in (0, 1))
        assert [base.cohort(t).tolist() for t in range(1, 9)] != [other.cohort(t).tolist() for t in range(1, 9)]
        same_clients = [make_simulation(FedAvg(), make_task(seed=seed)) for seed in (0, 1)]
        for simulation in same_clients:
            simulation.step()
        assert not torch.equal(same_clients[0].state.cloud, same_clients[1].state.cloud)

    def test_the_partition_seed_changes_only_the_partition(self) -> None:
        tasks = [make_task(partition_seed=seed) for seed in (0, 1)]
        assert tasks[0].partition.fingerprint != tasks[1].partition.fingerprint
        assert torch.equal(tasks[0].initial_model(), tasks[1].initial_model())
        first, second = (make_simulation(FedAvg(), task) for task in tasks)
        for t in range(1, 20):
            places = [
                np.searchsorted(task.partition.training, simulation.cohort(t)).tolist()
                for task, simulation in zip(tasks, (first, second), strict=True)
            ]
            assert places[0] == places[1]

    def test_every_algorithm_sees_the_same_clients(self) -> None:
        plans = set()
        for name in CORE:
            simulation = make_simulation(ALGORITHMS.find(name)(), make_task())
            simulation.step()
            plans.add(tuple(tuple(simulation.cohort(t)) for t in range(1, 20)))
        assert len(plans) == 1

    def test_single_precision_is_close_to_double(self) -> None:
        simulations = [make_simulation(AdaBest(), make_task(dtype=dtype)) for dtype in (torch.float32, torch.float64)]
        for simulation in simulations:
            for _ in range(3):
                simulation.step()
        single, double = (simulation.state for simulation in simulations)
        assert (single.cloud.dtype, double.cloud.dtype) == (torch.float32, torch.float64)
        assert simulations[0].client_state(int(simulations[0].cohort(3)[0])).h.dtype == torch.float32
        torch.testing.assert_close(single.cloud.double(), double.cloud, rtol=1e-3, atol=1e-4)


class TestRules:
    def test_participation(self) -> None:
        for share, size in ((0.3, 3), (0.01, 1), (1.0, 10)):
            assert len(make_simulation(FedAvg(), make_task(), participation=share).cohort(1)) == size

    def test_validation_clients_never_train(self) -> None:
        task = make_task()
        simulation = make_simulation(FedAvg(), task, participation=1.0)
        simulation.step()
        assert set(simulation.snapshot().tensors["clients.ids"].tolist()) == set(task.partition.training.tolist())

    @pytest.mark.parametrize("make", [lambda: AdaBest(beta=0.8), FedDyn])
    def test_the_server_rate_moves_the_cloud_and_nothing_else(self, make: Callable[[], Algorithm]) -> None:
        full, half = (
            make_simulation(make(), make_task(**FLOAT64), rules=Rules(server_rate=rate)) for rate in (1.0, 0.5)
        )
        start = full.state.cloud
        full.step()
        half.step()
        torch.testing.assert_close(half.state.cloud, start + 0.5 * (full.state.cloud - start))
        assert torch.equal(half.state.aggregate, full.state.aggregate)
        assert half.state.h is not None
        assert full.state.h is not None
        assert torch.equal(half.state.h, full.state.h)
        # h of the next round comes from plain aggregates, never from the damped cloud model.
        before = half.state
        half.step()
        if isinstance(make(), AdaBest):
            torch.testing.assert_close(half.state.h, 0.8 * (before.aggregate - half.state.aggregate))


@pytest.mark.parametrize("cohort", [[], [10**6], "validation"])
def test_a_cohort_that_is_none_is_refused(cohort: list[int] | str) -> None:
    task = make_task()
    chosen = task.partition.validation[:1].tolist() if cohort == "validation" else cohort
    with pytest.raises(InputError, match="one or more of the training clients"):
        make_simulation(FedAvg(), task).step(cohort=np.array(chosen, dtype=np.int64))


@dataclasses.dataclass(frozen=True)
class TwoKinds(FedAvg):
    """A plain mean of gradients first, then a sample-weighted mean of models: replies of two kinds."""

    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"gradient": ("one",), "model": ("samples",)}
    phases: ClassVar[tuple[Work, ...]] = (Work.GRADIENT, Work.TRAIN)

    class Gradient(NamedTuple):
        gradient: Vector

    def reply_type(self, phase: int) -> type[Any]:
        return self.Gradient if phase == 0 else self.Reply

    def client_finish(self, client: Any, message: Any, model: Tensor, context: ClientContext) -> tuple[Any, Any]:
        if context.phase == 0:
            return client, self.Gradient(model)
        return super().client_finish(client, message, model, context)

    def server_step(self, server: Any, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        if context.phase == 0:
            return Update(server, cloud, cloud, h=replies.mean("gradient"))
        return super().server_step(server, cloud, replies, context)


def test_exchanges_of_a_round_may_have_replies_of_different_kinds() -> None:
    task = random_quadratics(0, 3, dim=4, unbalanced=True)
    two, one = simulate(TwoKinds(), task), simulate(FedAvg(), task)
    two.step(cohort=np.arange(3))
    one.step(cohort=np.arange(3))
    assert torch.equal(two.state.cloud, one.state.cloud)
    samples_sent = 3 * 8
    assert two.state.bytes_up == one.state.bytes_up + 3 * 4 * 8
    assert one.state.bytes_up == 3 * 4 * 8 + samples_sent


def test_a_cohort_with_a_client_twice_is_refused() -> None:
    with pytest.raises(InputError, match="each once"):
        simulate(FedAvg(), random_quadratics(0, 3, dim=2)).step(cohort=np.array([1, 1]))
