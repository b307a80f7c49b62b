"""The classification task: its passes are those of plain torch, its scores those by hand."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from small import BATCH_SIZE, EPOCHS, SEED, make_dataset, make_task, plain_batches, plain_inputs, plain_network
from torch import Tensor, nn
from torch.nn import functional

from adabest import random
from adabest.data.augmentation import flip_crop, none
from adabest.errors import InputError
from adabest.models.keyed import KeyedDropout
from adabest.random import Purpose
from adabest.tasks.classification import ClassificationTask

FLOAT64: Any = {"dtype": torch.float64}


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a.double(), b.double(), rtol=1e-10, atol=1e-12)


def gradient_of(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    loss = functional.cross_entropy(module(x), y)
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(module.parameters()))])


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
            assert float(local_pass.value) == float((network(x).argmax(1) == y).double().mean())
        assert step + 1 == task.steps(client)

    @pytest.mark.parametrize("augmented", [False, True])
    def test_a_short_batch_has_the_mean_over_the_samples_that_are_left(self, augmented: bool) -> None:
        options: Any = {"batching": "short", "augmentation": flip_crop if augmented else none, **FLOAT64}
        task = make_task(unbalance=0.5, **options)
        data, w = make_dataset(), task.initial_model()
        client = next(int(client) for client in task.partition.training if task.samples(client) % BATCH_SIZE > 1)
        batches, left = plain_batches(task.partition, client, round_number=4), task.samples(client) % BATCH_SIZE
        per_epoch = len(batches) // EPOCHS
        for step, full in enumerate(batches):
            batch = full[:left] if step % per_epoch == per_epoch - 1 else full
            x, y = plain_inputs(data.x_train[batch]), data.y_train[batch]
            if augmented:
                x = flip_crop(x, random.bits(SEED, Purpose.AUGMENTATION, 4, client, step, torch.arange(len(batch))))
            local_pass = task.local_pass(w, client, 4, step)
            network = plain_network(w)
            close(local_pass.gradient, gradient_of(network, x, y))
            close(local_pass.loss, functional.cross_entropy(network(x), y))
            assert float(local_pass.value) == float((network(x).argmax(1) == y).double().mean())
        assert step + 1 == task.steps(client)

    def test_samples_drawn_with_replacement_fill_every_batch(self) -> None:
        task = make_task(unbalance=0.5, batching="replacement", **FLOAT64)
        data, w, client = make_dataset(), task.initial_model(), int(task.partition.training[2])
        own, network = task.partition.of(client), plain_network(w)
        per_epoch = task.steps(client) // EPOCHS
        for step in range(task.steps(client)):
            epoch, batch = divmod(step, per_epoch)
            places = torch.arange(batch * BATCH_SIZE, (batch + 1) * BATCH_SIZE)
            words = random.bits(SEED, Purpose.BATCH_TOP_UP, 4, client, epoch, places)
            chosen = torch.from_numpy(own)[random.below(words, len(own))]
            x, y = plain_inputs(data.x_train[chosen]), data.y_train[chosen]
            close(task.local_pass(w, client, 4, step).gradient, gradient_of(network, x, y))

    def test_dropout_is_keyed_by_seed_round_client_and_step(self) -> None:
        task = make_task(dropout=0.5)
        (layer,) = (layer for layer in task.model.module.modules() if isinstance(layer, KeyedDropout))
        w, client = task.initial_model(), int(task.partition.training[2])
        first = task.local_pass(w, client, 4, 1)
        assert layer.draws.key == (SEED, 4, client, 1)
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

    def test_test_scores_are_those_by_hand(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("adabest.tasks.classification._EVALUATION_BATCH", 7)
        task = make_task(dropout=0.5, augmentation=flip_crop, **FLOAT64)
        data, w = make_dataset(), torch.linspace(-1, 1, task.initial_model().numel(), dtype=torch.float64)
        with torch.no_grad():
            output = plain_network(w)(plain_inputs(data.x_test))
        scores = task.test(w)
        assert scores.loss == pytest.approx(float(functional.cross_entropy(output, data.y_test)), rel=1e-12)
        assert scores.values["accuracy"] == float((output.argmax(1) == data.y_test).double().mean())
        assert task.model.module.training

    def test_validation_scores_are_those_by_hand(self) -> None:
        task = make_task(unbalance=0.5, validation=12, dropout=0.5, **FLOAT64)
        data, w = make_dataset(), task.initial_model()
        accuracies = []
        for client in task.partition.validation:
            own = torch.from_numpy(task.partition.of(client))
            right = plain_network(w)(plain_inputs(data.x_train[own])).argmax(1) == data.y_train[own]
            accuracies.append(float(right.double().mean()))
        scores = task.validate(w)
        assert scores is not None
        assert scores.mean == pytest.approx(np.mean(accuracies))
        assert scores.spread == pytest.approx(np.std(accuracies))
        assert scores.worst_tenth == pytest.approx(np.mean(sorted(accuracies)[:2]))  # ⌈12 / 10⌉ of them

    def test_a_task_without_validation_clients_has_no_scores(self) -> None:
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

    def test_batches_go_on_beyond_the_clients_own_number_of_steps(self) -> None:
        """Where the number of steps is drawn: the first batches are those of fewer steps."""
        task, other, w = make_task(), make_task(), make_task().initial_model()
        steps = task.steps(3)
        losses = [float(task.local_pass(w, 3, 1, step).loss) for step in range(3 * steps)]
        assert len(set(losses)) > steps
        assert float(other.local_pass(w, 3, 1, 3 * steps - 1).loss) == losses[-1]
        assert [float(other.local_pass(w, 3, 1, step).loss) for step in range(steps)] == losses[:steps]

    def test_the_initial_model_is_a_copy(self) -> None:
        task = make_task()
        first = task.initial_model()
        first.zero_()
        task.test(first)
        assert task.initial_model().abs().sum() > 0

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"epochs": 0}, "epochs = 0: clients need at least one pass"),
            ({"batch_size": 0}, "batch_size = 0: a batch needs at least one sample"),
            ({"loss": lambda scores, y: functional.cross_entropy(scores, y, reduction="none")}, "a scalar"),
            ({"batching": "shorter"}, "batching = 'shorter': it is one of top-up, short, replacement"),
            ({"loss": lambda scores, y: 1.0}, "a scalar"),
            ({"loss": lambda scores, y: y.sum()}, "a scalar"),
            ({"loss": lambda scores, y: scores + torch.zeros(99)}, "the loss can't be computed from class scores"),
        ],
    )
    def test_bad_tasks_are_refused_before_any_work(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            make_task(**options)

    def test_any_loss_with_the_right_signature_is_taken(self) -> None:
        def squares(scores: Tensor, y: Tensor) -> Tensor:
            return ((scores - functional.one_hot(y, 3)) ** 2).mean()

        task = make_task(loss=squares, **FLOAT64)
        client, w = int(task.partition.training[0]), task.initial_model()
        batch = plain_batches(task.partition, client, 1)[0]
        data = make_dataset()
        loss = squares(plain_network(w)(plain_inputs(data.x_train[batch])), data.y_train[batch])
        close(task.local_pass(w, client, 1, 0).loss, loss)


def test_tasks_of_one_kind_are_tried_out_once() -> None:
    calls = []

    def counted(scores: Tensor, y: Tensor) -> Tensor:
        calls.append(len(y))
        return functional.cross_entropy(scores, y)

    data = make_dataset()
    first = make_task(dataset=data, loss=counted, kind="shared")
    alike = make_task(dataset=data, loss=counted, kind="shared")
    assert first.kind == alike.kind
    assert len(calls) == 1
    other = make_task(dataset=data, loss=counted, kind="other")
    assert other.kind != first.kind
    assert len(calls) == 2
    del first
    make_task(dataset=data, loss=counted, kind="shared")  # nobody is left to vouch for it
    assert len(calls) == 3


def test_a_loss_without_a_gradient_is_refused_at_once() -> None:
    def wrong_ones(scores: Tensor, y: Tensor) -> Tensor:
        return (scores.argmax(dim=1) != y).float().mean()

    with pytest.raises(InputError, match="the loss should be a function"):
        make_task(loss=wrong_ones)
