"""Local training is what plain torch does with the same batches; the parts of the engine keep their word."""

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from replies import reduce_pairs
from small import (
    BATCH_SIZE,
    EPOCHS,
    make_dataset,
    make_network,
    make_partition,
    make_simulation,
    make_task,
    plain_sgd,
)
from torch import Tensor, nn
from torch.nn import functional

from adabest.algorithms import progressive
from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.fedavg import FedAvg
from adabest.engine.local_step import LocalTraining
from adabest.engine.scored_model import ScoredModel
from adabest.engine.simulation import Rules
from adabest.errors import InputError, Interrupted
from adabest.models.keyed import prepare
from adabest.tasks.classification import ClassificationTask

FLOAT64: Any = {"dtype": torch.float64}


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a.double(), b.double(), rtol=1e-10, atol=1e-12)


class TestRules:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("server_rate", 0.0),
            ("server_rate", math.inf),
        ],
    )
    def test_a_server_rate_out_of_range_is_refused(self, name: str, value: float) -> None:
        with pytest.raises(InputError, match=f"{name} = {value}: it must be above 0"):
            Rules(**{name: value})  # type: ignore[arg-type]


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
        straight, reversed_ = reduce_pairs(means, replies), reduce_pairs(means, replies[::-1])
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
        reduced = reduce_pairs({"model": ("one",), "samples": ("one",)}, replies)
        assert float(reduced.count * reduced.mean("samples")) != sum(counts)
        assert reduced.total("samples").dtype == torch.float64
        assert reduced.total("samples").tolist() == [sum(counts)]
        algorithm = AdaBest()
        server = algorithm.server_init(torch.zeros(3))
        assert progressive.count(server, reduced)[0].tolist() == [sum(counts)]

    def test_an_undeclared_mean_is_named(self) -> None:
        replies = reduce_pairs({"model": ("one",)}, [(0, self.Reply(torch.zeros(1), torch.ones(1)))])
        with pytest.raises(
            InputError, match=r"'model' under 'samples': it isn't declared.*model under one\. .*one\", \"samples"
        ):
            replies.mean("model", "samples")


class TestScoredModel:
    def test_the_scored_model_of_nobody_is_the_initial_one(self) -> None:
        initial = torch.tensor([1.0, 2.0])
        assert torch.equal(ScoredModel.empty(initial).value(initial), initial)
        assert torch.equal(ScoredModel.empty(initial).value(initial, all_samples=5.0), initial)

    @given(
        st.lists(st.tuples(st.integers(0, 4), st.integers(-100, 100)), min_size=1, max_size=12),
        st.lists(st.integers(1, 9), min_size=5, max_size=5),
    )
    def test_the_scored_model_is_the_weighted_mean_of_the_latest(
        self, updates: list[tuple[int, int]], sizes: list[int]
    ) -> None:
        initial = torch.tensor([7.0], dtype=torch.float64)
        scored, latest = ScoredModel.empty(initial), dict[int, int]()
        for client, value in updates:
            previous = torch.tensor([float(latest[client])]) if client in latest else None
            scored = scored.with_models(torch.tensor([[float(value)]]), [previous], [sizes[client]])
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
            plain, weighted = (s.with_models(model[None], [None], [n]) for s, n in ((plain, 1.0), (weighted, 436.0)))
        assert torch.equal(plain.value(models[0]), weighted.value(models[0]))


def test_the_example_network_is_the_plain_one() -> None:
    # What the comparisons above lean on.
    task = make_task(**FLOAT64)
    assert isinstance(task, ClassificationTask)
    assert torch.equal(task.initial_model(), nn.utils.parameters_to_vector(make_network().parameters()).double())
    assert prepare(make_network(0.5), torch.zeros(2, 1, 6, 6)) is not None
