"""Local training is what plain torch does with the same batches; the parts of the engine keep their word."""

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small import (
    BATCH_SIZE,
    EPOCHS,
    SEED,
    make_dataset,
    make_network,
    make_partition,
    make_simulation,
    make_task,
    plain_batches,
    plain_inputs,
    plain_network,
    plain_sgd,
)
from torch import Tensor, nn
from torch.nn import functional

from adabest import random
from adabest.algorithms import progressive
from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.base import Correction
from adabest.algorithms.fedavg import FedAvg
from adabest.data.augmentation import flip_crop, none
from adabest.engine.local_step import LocalTraining, local_step
from adabest.engine.reduction import reduce_replies
from adabest.engine.scored_model import ScoredModel
from adabest.engine.simulation import Rules
from adabest.errors import InputError, Interrupted
from adabest.models.keyed import KeyedDropout, prepare
from adabest.random import Purpose
from adabest.tasks.classification import ClassificationTask

FLOAT64: Any = {"dtype": torch.float64}


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a.double(), b.double(), rtol=1e-10, atol=1e-12)


def gradient_of(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    loss = functional.cross_entropy(module(x), y)
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(module.parameters()))])


class TestLocalStep:
    W = torch.tensor([1.0, 2.0], dtype=torch.float64)
    GRADIENT = torch.tensor([3.0, 4.0], dtype=torch.float64)
    OFFSET = torch.tensor([-1.0, 0.0], dtype=torch.float64)

    def step(self, training: LocalTraining, eta: float = 0.5, **correction: Any) -> list[float]:
        moved = local_step(self.W, self.GRADIENT, Correction(self.W, **correction), eta, training)
        assert torch.equal(self.W, torch.tensor([1.0, 2.0], dtype=torch.float64))  # the argument is untouched
        return moved.tolist()

    def test_by_hand(self) -> None:
        free = LocalTraining(clip=0)
        assert self.step(free) == [1 - 1.5, 2 - 2.0]
        assert self.step(free, scale=2.0) == [1 - 3.0, 2 - 4.0]
        assert self.step(free, offset=self.OFFSET) == [1 - 0.5 * 2, 2 - 0.5 * 4]
        assert self.step(free, rho=0.5) == [1 - 0.5 * 3.5, 2 - 0.5 * 5]
        assert self.step(free, rho_prime=0.5) == [1 - 0.5 * 3.5, 2 - 0.5 * 5]
        # 2 (3, 4) + (-1, 0) + .5 (1, 2) + (.25 + .25) (1, 2) = (6, 10)
        all_of_it: dict[str, Any] = {"scale": 2.0, "offset": self.OFFSET, "rho": 0.5, "rho_prime": 0.25}
        assert self.step(LocalTraining(clip=0, weight_decay=0.25), **all_of_it) == [1 - 3.0, 2 - 5.0]

    def test_clipping_covers_the_corrections_but_no_decay(self) -> None:
        # (3, 4) has norm 5 and becomes (1.5, 2); λ and ρ' come on top.
        assert self.step(LocalTraining(clip=2.5)) == pytest.approx([1 - 0.75, 2 - 1.0])
        decayed = self.step(LocalTraining(clip=2.5, weight_decay=2.0), rho_prime=1.0)
        assert decayed == pytest.approx([1 - 0.5 * (1.5 + 3), 2 - 0.5 * (2 + 6)])
        # ρ w and the offset are inside: (3, 4) + (3, 2) + 2 (1, 2) = (8, 10), cut to norm 1.
        inside = self.step(LocalTraining(clip=1.0), offset=torch.tensor([3.0, 2.0]).double(), rho=2.0)
        assert inside == pytest.approx([1 - 4 / math.hypot(8, 10), 2 - 5 / math.hypot(8, 10)])
        # The scale is inside too: half of (3, 4) is short enough.
        assert self.step(LocalTraining(clip=2.5), scale=0.5) == pytest.approx([1 - 0.75, 2 - 1.0])

    def test_clipping_leaves_short_gradients_alone(self) -> None:
        assert self.step(LocalTraining(clip=5.0)) == self.step(LocalTraining(clip=0))
        assert self.step(LocalTraining(clip=1e6)) == self.step(LocalTraining(clip=0))

    def test_zero_gradient(self) -> None:
        still = local_step(self.W, torch.zeros_like(self.W), Correction(self.W), 0.5, LocalTraining(clip=1.0))
        assert torch.equal(still, self.W)

    @given(st.integers(0, 1000))
    def test_batched_is_one_by_one(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        w, gradient, offset = torch.randn(3, 4, 5, 6, generator=generator, dtype=torch.float64) * 3
        scale, rho, rho_prime = torch.rand(3, 4, 5, 1, generator=generator, dtype=torch.float64)
        training = LocalTraining(clip=4.0, weight_decay=0.1)
        together = local_step(w, gradient, Correction(w, scale, offset, rho, rho_prime), 0.1, training)
        for place in np.ndindex(4, 5):
            numbers = [float(x[place]) for x in (scale, rho, rho_prime)]
            correction = Correction(w[place], numbers[0], offset[place], numbers[1], numbers[2])
            close(local_step(w[place], gradient[place], correction, 0.1, training), together[place])


class TestSettings:
    def test_the_rate_decays_from_round_to_round(self) -> None:
        training = LocalTraining(learning_rate=0.1, learning_rate_decay=0.5)
        assert [training.eta(t) for t in (1, 2, 4)] == [0.1, 0.05, 0.0125]
        assert LocalTraining() == LocalTraining(0.1, 0.998, 0.0, 10.0)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("learning_rate", 0.0),
            ("learning_rate", -1.0),
            ("learning_rate", math.inf),
            ("learning_rate_decay", 0.0),
            ("learning_rate_decay", 1.001),
            ("weight_decay", -1e-9),
            ("weight_decay", math.nan),
            ("clip", -1.0),
            ("clip", math.inf),
        ],
    )
    def test_ranges_of_local_training(self, name: str, value: float) -> None:
        with pytest.raises(InputError, match=f"{name} = {value}: it must be finite and"):
            LocalTraining(**{name: value})

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("server_rate", 0.0),
            ("server_rate", math.inf),
        ],
    )
    def test_ranges_of_rules(self, name: str, value: float) -> None:
        with pytest.raises(InputError, match=f"{name} = {value}: it must be above 0"):
            Rules(**{name: value})  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"epochs": 0}, "epochs = 0: clients need at least one pass"),
            ({"batch_size": 0}, "batch_size = 0: a batch needs at least one sample"),
            ({"loss": lambda scores, y: functional.cross_entropy(scores, y, reduction="none")}, "a scalar"),
            ({"loss": lambda scores, y: 1.0}, "a scalar"),
            ({"loss": lambda scores, y: y.sum()}, "a scalar"),
            ({"loss": lambda scores, y: scores + torch.zeros(99)}, "the loss can't be computed from class scores"),
        ],
    )
    def test_bad_tasks_are_refused_before_any_work(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            make_task(**options)

    def test_any_loss_with_the_right_signature(self) -> None:
        def squares(scores: Tensor, y: Tensor) -> Tensor:
            return ((scores - functional.one_hot(y, 3)) ** 2).mean()

        task = make_task(loss=squares, **FLOAT64)
        client, w = int(task.partition.training[0]), task.initial_model()
        batch = plain_batches(task.partition, client, 1)[0]
        data = make_dataset()
        loss = squares(plain_network(w)(plain_inputs(data.x_train[batch])), data.y_train[batch])
        close(task.local_pass(w, client, 1, 0).loss, loss)


class TestClassificationTask:
    @pytest.mark.parametrize("augmented", [False, True])
    def test_local_pass_is_plain_torch_on_the_batch(self, augmented: bool) -> None:
        task = make_task(unbalance=0.5, augmentation=flip_crop if augmented else none, **FLOAT64)
        data, w = make_dataset(), task.initial_model()
        client = int(task.partition.training[2])
        for step, batch in enumerate(plain_batches(task.partition, client, round_number=4)):
            x, y = plain_inputs(data.x_train[batch]), data.y_train[batch]
            if augmented:
                x = flip_crop(x, random.bits(SEED, Purpose.AUGMENTATION, 4, client, step, torch.arange(BATCH_SIZE)))
            local_pass = task.local_pass(w, client, 4, step)
            network = plain_network(w)
            close(local_pass.gradient, gradient_of(network, x, y))
            close(local_pass.loss, functional.cross_entropy(network(x), y))
            assert float(local_pass.accuracy) == float((network(x).argmax(1) == y).double().mean())
        assert step + 1 == task.steps(client)

    def test_dropout_is_keyed_by_seed_round_client_and_step(self) -> None:
        task = make_task(dropout=0.5)
        (layer,) = (layer for layer in task.model.module.modules() if isinstance(layer, KeyedDropout))
        w, client = task.initial_model(), int(task.partition.training[2])
        first = task.local_pass(w, client, 4, 1)
        assert layer.key == (SEED, 4, client, 1)
        gradient = first.gradient.clone()
        assert not torch.equal(gradient, gradient_of(plain_network(w, torch.float32), *self.batch(task, client, 4, 1)))
        assert torch.equal(task.local_pass(w, client, 4, 1).gradient, gradient)

    @staticmethod
    def batch(task: ClassificationTask, client: int, round_number: int, step: int) -> tuple[Tensor, Tensor]:
        chosen, data = plain_batches(task.partition, client, round_number)[step], make_dataset()
        return plain_inputs(data.x_train[chosen]).float(), data.y_train[chosen]

    def test_full_gradient_is_the_mean_over_samples(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("adabest.tasks.classification._EVALUATION_BATCH", 5)  # parts of unequal size
        task = make_task(dropout=0.5, augmentation=flip_crop, **FLOAT64)
        data, w, client = make_dataset(), task.initial_model(), int(task.partition.training[0])
        own = torch.from_numpy(task.partition.of(client))
        each = [
            gradient_of(plain_network(w), plain_inputs(data.x_train[i : i + 1]), data.y_train[i : i + 1]) for i in own
        ]
        close(task.full_gradient(w, client), torch.stack(each).mean(0))
        assert task.model.module.training

    def test_test_scores_by_hand(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("adabest.tasks.classification._EVALUATION_BATCH", 7)
        task = make_task(dropout=0.5, augmentation=flip_crop, **FLOAT64)
        data, w = make_dataset(), torch.linspace(-1, 1, task.initial_model().numel(), dtype=torch.float64)
        with torch.no_grad():
            output = plain_network(w)(plain_inputs(data.x_test))
        scores = task.test(w)
        assert scores.loss == pytest.approx(float(functional.cross_entropy(output, data.y_test)), rel=1e-12)
        assert scores.accuracy == float((output.argmax(1) == data.y_test).double().mean())
        assert task.model.module.training

    def test_validation_scores_by_hand(self) -> None:
        task = make_task(unbalance=0.5, validation=12, dropout=0.5, **FLOAT64)
        data, w = make_dataset(), task.initial_model()
        accuracies = []
        for client in task.partition.validation:
            own = torch.from_numpy(task.partition.of(client))
            right = plain_network(w)(plain_inputs(data.x_train[own])).argmax(1) == data.y_train[own]
            accuracies.append(float(right.double().mean()))
        scores = task.validate(w)
        assert scores is not None
        assert scores.accuracy == pytest.approx(np.mean(accuracies))
        assert scores.spread == pytest.approx(np.std(accuracies))
        assert scores.worst_tenth == pytest.approx(np.mean(sorted(accuracies)[:2]))  # ⌈12 / 10⌉ of them

    def test_nobody_to_validate_on(self) -> None:
        task = make_task(validation=0)
        assert task.validate(task.initial_model()) is None

    def test_steps_are_the_clients_own_or_the_mean(self) -> None:
        own, mean = make_task(unbalance=0.8), make_task(unbalance=0.8, local_steps="mean", batch_size=1)
        sizes = own.partition.samples
        assert [own.samples(client) for client in range(len(sizes))] == sizes.tolist()
        assert [own.steps(client) for client in range(len(sizes))] == [
            EPOCHS * math.ceil(n / BATCH_SIZE) for n in sizes.tolist()
        ]
        everyone = EPOCHS * math.ceil(sizes[own.partition.training].mean())
        assert everyone != EPOCHS * math.ceil(sizes.mean())  # validation clients don't count
        assert {mean.steps(client) for client in range(len(sizes))} == {everyone}
        assert len({own.steps(client) for client in range(len(sizes))}) > 2

    def test_mean_steps_can_be_more_or_fewer_than_ones_own(self) -> None:
        task, w = make_task(unbalance=0.8, local_steps="mean"), make_task().initial_model()
        sizes = task.partition.samples
        for client in (int(sizes.argmin()), int(sizes.argmax())):
            losses = [float(task.local_pass(w, client, 1, step).loss) for step in range(task.steps(client))]
            assert len(set(losses)) > len(losses) // 2
            with pytest.raises(IndexError):
                task.local_pass(w, client, 1, task.steps(client))

    def test_the_initial_model_is_a_copy(self) -> None:
        task = make_task()
        first = task.initial_model()
        first.zero_()
        task.test(first)
        assert task.initial_model().abs().sum() > 0


class TestReferenceEngine:
    @pytest.mark.parametrize(
        "training",
        [
            LocalTraining(clip=0, weight_decay=0),
            LocalTraining(learning_rate=0.2, learning_rate_decay=0.9, weight_decay=0.01, clip=0.5),
        ],
    )
    def test_a_clients_training_is_plain_sgd(self, training: LocalTraining) -> None:
        task = make_task(unbalance=0.4, **FLOAT64)
        simulation = make_simulation(FedAvg(), task, training=training)
        for round_number, place in ((1, 4), (2, 4), (3, 0)):  # one of them twice in a row, with other batches
            client = int(task.partition.training[place])
            start = simulation.state.cloud
            model, losses, accuracies = plain_sgd(task.partition, start, client, round_number, training)
            metrics = simulation.step(evaluate=True, cohort=np.array([client]))
            close(simulation.state.aggregate, model)
            assert metrics is not None
            assert metrics["train_loss"] == pytest.approx(np.mean(losses), rel=1e-10)
            assert metrics["train_accuracy"] == pytest.approx(np.mean(accuracies), rel=1e-12)

    def test_clipping_was_active_in_that_comparison(self) -> None:
        task = make_task(unbalance=0.4, **FLOAT64)
        client = int(task.partition.training[4])
        norms = [
            float(task.local_pass(task.initial_model(), client, 1, step).gradient.norm())
            for step in range(task.steps(client))
        ]
        assert max(norms) > 0.5

    def test_a_users_error_says_where_it_happened(self) -> None:
        calls = 0

        def loss(scores: Tensor, y: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            if calls == 1 + steps + 4:  # one call to try the loss, one round, four steps
                raise RuntimeError("my loss is broken")
            return functional.cross_entropy(scores, y)

        partition = make_partition(make_dataset())
        client = int(partition.training[3])
        steps = EPOCHS * math.ceil(len(partition.of(client)) / BATCH_SIZE)
        task = make_task(loss=loss)
        simulation = make_simulation(FedAvg(), task)
        simulation.step(cohort=np.array([client]))
        with pytest.raises(RuntimeError, match="my loss is broken") as caught:
            simulation.step(cohort=np.array([client]))
        assert caught.value.__notes__ == ["in local step 3", f"in round 2, client {client}"]

    def test_our_own_errors_are_left_as_they_are(self) -> None:
        def stop() -> None:
            raise Interrupted("enough")

        with pytest.raises(Interrupted) as caught:
            make_simulation(FedAvg(), make_task(), heartbeat=stop).step()
        assert not hasattr(caught.value, "__notes__")

    def test_the_heartbeat_comes_once_a_step(self) -> None:
        beats = []
        simulation = make_simulation(FedAvg(), make_task(), heartbeat=lambda: beats.append(1))
        simulation.step()
        assert len(beats) == simulation.state.local_steps


class TestReduction:
    class Reply(NamedTuple):
        model: Tensor
        samples: Tensor

    def test_means_do_not_depend_on_the_order_of_arrival(self) -> None:
        generator = torch.Generator().manual_seed(0)
        # Magnitudes so different that another order would round otherwise.
        replies = [
            (client, self.Reply(torch.randn(50, generator=generator) * 10.0**client, torch.tensor([client + 1.0])))
            for client in range(6)
        ]
        means = {"model": ("one", "samples"), "samples": ("one",)}
        straight, reversed_ = reduce_replies(means, replies), reduce_replies(means, replies[::-1])
        assert straight.count == 6
        for field, weights in means.items():
            for weight in weights:
                assert torch.equal(straight.mean(field, weight), reversed_.mean(field, weight))
        models = torch.stack([reply.model for _, reply in replies]).double()
        torch.testing.assert_close(straight.mean("model").double(), models.mean(0), rtol=1e-5, atol=1e-2)
        weighted = (models * torch.arange(1.0, 7.0)[:, None]).sum(0) / 21
        torch.testing.assert_close(straight.mean("model", "samples").double(), weighted, rtol=1e-5, atol=1e-2)
        assert straight.mean("samples").tolist() == [3.5]

    def test_counts_beyond_float32_are_added_exactly(self) -> None:
        counts = [2**24 - 1, 2**24 - 3, 1, 1, 7]  # float32 knows each of them, but not their sums on the way
        replies = [(client, self.Reply(torch.zeros(3), torch.tensor([float(n)]))) for client, n in enumerate(counts)]
        reduced = reduce_replies({"model": ("one",), "samples": ("one",)}, replies)
        assert float(reduced.count * reduced.mean("samples")) != sum(counts)
        assert reduced.total("samples").dtype == torch.float64
        assert reduced.total("samples").tolist() == [sum(counts)]
        algorithm = AdaBest()
        server = algorithm.server_init(torch.zeros(3))
        assert progressive.count(server, reduced)[0].tolist() == [sum(counts)]

    def test_an_undeclared_mean_is_named(self) -> None:
        replies = reduce_replies({"model": ("one",)}, [(0, self.Reply(torch.zeros(1), torch.ones(1)))])
        with pytest.raises(KeyError, match=r"'model' under 'samples': it isn't declared.*model under one"):
            replies.mean("model", "samples")


class TestScoredModel:
    def test_nobody_yet(self) -> None:
        initial = torch.tensor([1.0, 2.0])
        assert torch.equal(ScoredModel.empty(initial).value(initial), initial)
        assert torch.equal(ScoredModel.empty(initial).value(initial, all_samples=5.0), initial)

    @given(
        st.lists(st.tuples(st.integers(0, 4), st.integers(-100, 100)), min_size=1, max_size=12),
        st.lists(st.integers(1, 9), min_size=5, max_size=5),
    )
    def test_is_the_weighted_mean_of_the_latest(self, updates: list[tuple[int, int]], sizes: list[int]) -> None:
        initial = torch.tensor([7.0], dtype=torch.float64)
        scored, latest = ScoredModel.empty(initial), dict[int, int]()
        for client, value in updates:
            previous = torch.tensor([float(latest[client])]) if client in latest else None
            scored = scored.with_models([(torch.tensor([float(value)]), previous, sizes[client])])
            latest[client] = value
        seen = [latest[c] for c in sorted(latest)]
        weights = [sizes[c] for c in sorted(latest)]
        assert scored.value(initial).item() == pytest.approx(np.average(seen, weights=weights), abs=1e-9)
        everyone = [latest.get(c, 7.0) for c in range(5)]
        found = scored.value(initial, all_samples=float(sum(sizes))).item()
        assert found == pytest.approx(np.average(everyone, weights=sizes), abs=1e-9)

    def test_equal_counts_weigh_exactly_one(self) -> None:
        models = torch.rand(6, 50, generator=torch.Generator().manual_seed(0))
        plain = weighted = ScoredModel.empty(models[0])
        for model in models:
            plain, weighted = (s.with_models([(model, None, n)]) for s, n in ((plain, 1.0), (weighted, 436.0)))
        assert torch.equal(plain.value(models[0]), weighted.value(models[0]))


def test_the_example_network_is_the_plain_one() -> None:
    # What the comparisons above lean on.
    task = make_task(**FLOAT64)
    assert isinstance(task, ClassificationTask)
    assert torch.equal(task.initial_model(), nn.utils.parameters_to_vector(make_network().parameters()).double())
    assert prepare(make_network(0.5), torch.zeros(2, 1, 6, 6)) is not None


def test_a_loss_without_a_gradient_is_refused_at_once() -> None:
    def wrong_ones(scores: Tensor, y: Tensor) -> Tensor:
        return (scores.argmax(dim=1) != y).float().mean()

    with pytest.raises(InputError, match="the loss should be a function"):
        make_task(loss=wrong_ones)
