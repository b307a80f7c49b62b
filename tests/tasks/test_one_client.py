"""The task of one client, made of its own samples: it trains bit for bit as in a simulation of all clients."""

import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from side_by_side import StackedEngine
from small import BATCH_SIZE, EPOCHS, SEED, make_dataset, make_network, make_partition, make_task
from torch import Tensor, nn
from torch.nn import functional

import adabest
from adabest.algorithms.base import Algorithm, Population, ServerContext, Work
from adabest.algorithms.feddane import FedDane
from adabest.algorithms.feddyn import FedDyn
from adabest.data.augmentation import flip_crop, none
from adabest.data.dataset import Dataset
from adabest.data.synthetic import synthetic
from adabest.engine.evaluation import EvaluationRequest
from adabest.engine.gpu.evaluation import GpuEvaluator
from adabest.engine.interface import Answers, Engine, Request
from adabest.engine.local_step import LocalTraining
from adabest.engine.reference import ReferenceEngine
from adabest.engine.trainer import Unbatchable
from adabest.errors import InputError
from adabest.federation.partition import Partition
from adabest.models.factory import build_model
from adabest.runs.build import make_batched_engine
from adabest.tasks.base import Task, no_heartbeat
from adabest.tasks.classification import ClassificationTask
from adabest.tasks.one_client import one_client_task

ROUND = 3
FAR = 10**12
ENGINES: dict[str, Callable[..., Engine]] = {"reference": ReferenceEngine, "batched": make_batched_engine}

every_engine = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def alone(dataset: Dataset, partition: Partition, client: int, **options: Any) -> ClassificationTask:
    """The task of one client of a partition, of its own samples and the data set's normalisation."""
    own = torch.from_numpy(partition.of(client))
    settings: dict[str, Any] = {
        "model": make_network(),
        "classes": dataset.classes,
        "mean": dataset.mean,
        "std": dataset.std,
        "epochs": EPOCHS,
        "batch_size": BATCH_SIZE,
        "seed": SEED,
        **options,
    }
    return one_client_task(client, dataset.x_train[own], dataset.y_train[own], **settings)


def tiny(client: int = 3, **options: Any) -> ClassificationTask:
    """A client with five samples of the striped images."""
    data = make_dataset()
    settings = {"x_train": data.x_train[:5], "y_train": data.y_train[:5], "model": make_network(), "classes": 3}
    return one_client_task(client, **{**settings, **options})


def request_of(task: Task, clients: list[int], algorithm: Algorithm, phase: int = 0) -> Request:
    """A request in which neither the message nor the clients' states are zero."""
    start, context = task.initial_model(), ServerContext(ROUND, phase, 0.1, 0.1, Population(10, 17.0))
    message = algorithm.downlink(algorithm.server_init(start), start, context)
    message = type(message)(*(field + 0.01 for field in message))
    fresh = algorithm.client_init(start)
    kept = type(fresh)(*(field + 0.02 for field in fresh))
    training, work = LocalTraining(weight_decay=1e-3, clip=1.0), algorithm.phases[phase]
    return Request(algorithm, task, training, work, dict.fromkeys(clients, kept), message, context)


def answers_of(
    engine: Callable[..., Engine], task: Task, clients: list[int], algorithm: Algorithm, phase: int = 0
) -> Answers:
    """The clients' answers to a request."""
    (answers,) = engine(no_heartbeat).exchange([request_of(task, clients, algorithm, phase)])
    assert isinstance(answers, Answers)
    return answers


def assert_same_bits(whole: Answers, one: Answers, client: int) -> None:
    """A client's row of the answers of all is the only row of its own."""
    place = whole.clients.index(client)
    assert one.clients == [client]
    assert one.steps == [whole.steps[place]]
    for of_all, own in ((whole.states, one.states), (whole.replies, one.replies)):
        assert type(own) is type(of_all)
        for field_of_all, field in zip(of_all, own, strict=True):
            assert field.dtype == field_of_all.dtype
            assert torch.equal(field[0], field_of_all[place])


def compare(
    engine: Callable[..., Engine], whole: ClassificationTask, make_one: Callable[[int], ClassificationTask]
) -> None:
    """Each client trains alone as it does among all clients."""
    clients = whole.partition.training[:4].tolist()
    together = answers_of(engine, whole, clients, FedDyn())
    assert len(set(map(whole.samples, clients))) > 1
    for client in clients:
        one = make_one(client)
        assert one.samples(client) == whole.samples(client)
        assert torch.equal(one.initial_model(), whole.initial_model())
        assert_same_bits(together, answers_of(engine, one, [client], FedDyn()), client)


class TestSameBits:
    @every_engine
    @every_dtype
    @pytest.mark.parametrize("augmentation", [none, flip_crop])
    @pytest.mark.parametrize("dropout", [0.0, 0.4])
    def test_a_client_alone_trains_as_among_all(
        self, engine: Any, dtype: torch.dtype, augmentation: Any, dropout: float
    ) -> None:
        options: Any = {"dtype": dtype, "augmentation": augmentation}
        whole = make_task(unbalance=0.8, dropout=dropout, **options)
        model, data = make_network(dropout), make_dataset()
        compare(engine, whole, lambda client: alone(data, whole.partition, client, model=model, **options))

    @every_engine
    @pytest.mark.parametrize("batching", ["short", "replacement"])
    def test_a_client_with_other_batches_trains_as_among_all(self, engine: Any, batching: str) -> None:
        whole = make_task(unbalance=0.8, batching=batching)
        compare(engine, whole, lambda client: alone(make_dataset(), whole.partition, client, batching=batching))

    @every_dtype
    @pytest.mark.parametrize("augmentation", [none, flip_crop])
    def test_the_program_of_gpus_trains_it_as_among_all(self, dtype: torch.dtype, augmentation: Any) -> None:
        options: Any = {"dtype": dtype, "augmentation": augmentation}
        partition = make_partition(make_dataset(), unbalance=0.8)
        for client in partition.training[:3].tolist():
            whole = make_task(unbalance=0.8, dropout=0.4, **options)
            one = alone(make_dataset(), whole.partition, client, model=make_network(0.4), **options)
            # One client at a time: in plain torch the last bits may depend on how many are stacked.
            expected = answers_of(StackedEngine, whole, [client], FedDyn())
            assert_same_bits(expected, answers_of(StackedEngine, one, [client], FedDyn()), client)

    @every_engine
    def test_a_convolutional_model_named_by_a_specification_is_the_same(self, engine: Any) -> None:
        data = synthetic(samples=120, shape=(1, 16, 16), classes=3, test=5)
        partition = make_partition(data, unbalance=0.5)
        model = build_model("cnn", torch.zeros(2, 1, 16, 16), 3, SEED)
        options: Any = {"epochs": 1, "batch_size": BATCH_SIZE, "seed": SEED, "augmentation": flip_crop}
        whole = ClassificationTask(data, partition, model, **options)
        compare(engine, whole, lambda client: alone(data, partition, client, **{"model": "cnn", **options}))

    @every_engine
    @every_dtype
    @pytest.mark.parametrize("stored", [True, False])
    def test_synthetic_inputs_train_stored_or_made_on_access(
        self, engine: Any, dtype: torch.dtype, stored: bool
    ) -> None:
        data = synthetic(samples=240, shape=(1, 6, 6), classes=3, test=5)
        partition = make_partition(data, unbalance=0.8)
        options: Any = {"epochs": EPOCHS, "batch_size": BATCH_SIZE, "seed": SEED, "dtype": dtype}
        whole = ClassificationTask(data, partition, make_network(), **options)

        def one(client: int) -> ClassificationTask:
            own = torch.from_numpy(partition.of(client))
            inputs = data.x_train[own] if stored else MadeOnAccess(data.x_train, own)
            task = one_client_task(
                client, inputs, data.y_train[own], make_network(), classes=3, mean=data.mean, std=data.std, **options
            )
            assert isinstance(task.data.x_train, Tensor) is stored
            return task

        compare(engine, whole, one)

    @every_engine
    @every_dtype
    def test_the_full_gradient_is_the_same(self, engine: Any, dtype: torch.dtype) -> None:
        whole = make_task(unbalance=0.8, dropout=0.4, dtype=dtype)
        algorithm = FedDane()
        phase = algorithm.phases.index(Work.GRADIENT)
        clients = whole.partition.training[:3].tolist()
        together = answers_of(engine, whole, clients, algorithm, phase)
        for client in clients:
            one = alone(make_dataset(), whole.partition, client, model=make_network(0.4), dtype=dtype)
            w = torch.linspace(-1, 1, one.initial_model().numel(), dtype=dtype)
            assert torch.equal(one.full_gradient(w, client), whole.full_gradient(w, client))
            assert_same_bits(together, answers_of(engine, one, [client], algorithm, phase), client)

    @every_engine
    def test_steps_that_the_caller_gives_stand_for_everyones_mean(self, engine: Any) -> None:
        whole = make_task(unbalance=0.8, local_steps="mean")
        steps = whole.most_steps

        def one(client: int) -> ClassificationTask:
            task = alone(make_dataset(), whole.partition, client, local_steps="mean", steps=steps)
            assert task.steps(client) == task.most_steps == steps
            return task

        compare(engine, whole, one)

    def test_arrays_train_as_tensors_do(self) -> None:
        data = make_dataset()
        arrays = tiny(x_train=data.x_train[:5].numpy(), y_train=data.y_train[:5].tolist(), mean=100.0, std=[[[50.0]]])
        tensors = tiny(mean=torch.tensor(100.0), std=torch.tensor(50.0))
        expected = answers_of(ReferenceEngine, tensors, [3], FedDyn())
        assert_same_bits(expected, answers_of(ReferenceEngine, arrays, [3], FedDyn()), 3)

    @every_engine
    def test_several_clients_alone_train_in_one_exchange(self, engine: Any) -> None:
        """Their runs have samples at the same places, but not the same samples."""
        whole = make_task(unbalance=0.8)
        clients = whole.partition.training[:3].tolist()
        together = answers_of(engine, whole, clients, FedDyn())
        tasks = [alone(make_dataset(), whole.partition, client) for client in clients]
        requests = [request_of(task, [client], FedDyn()) for client, task in zip(clients, tasks, strict=True)]
        for client, answers in zip(clients, engine(no_heartbeat).exchange(requests), strict=True):
            assert isinstance(answers, Answers)
            assert_same_bits(together, answers, client)


@dataclass(frozen=True)
class MadeOnAccess:
    """Some samples of inputs that are made on access."""

    inputs: Any
    numbers: Tensor

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self.numbers), *self.inputs.shape[1:]))

    @property
    def dtype(self) -> torch.dtype:
        return self.inputs.dtype  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, samples: Any) -> Tensor:
        return self.inputs[self.numbers[samples]]  # type: ignore[no-any-return]

    def to(self, place: Any) -> "MadeOnAccess":
        return MadeOnAccess(self.inputs.to(place), self.numbers.to(place))

    def fingerprint(self) -> bytes:
        return bytes(self.inputs.fingerprint()) + self.numbers.numpy().tobytes()


class TestTaskOfOneClient:
    def test_memory_does_not_grow_with_the_clients_number(self) -> None:
        tracemalloc.start()
        try:
            task = tiny(FAR)
            answers_of(ReferenceEngine, task, [FAR], FedDyn())
            assert tracemalloc.get_traced_memory()[1] < 2**24
        finally:
            tracemalloc.stop()
        assert (task.samples(FAR), task.steps(FAR), task.most_steps) == (5, 5, 5)

    @pytest.mark.parametrize("client", [0, FAR, 2**63 - 1])
    def test_any_number_names_the_draws(self, client: int) -> None:
        task, other = tiny(client, batch_size=2), tiny(7, batch_size=2)
        answers = answers_of(ReferenceEngine, task, [client], FedDyn())
        batched = answers_of(make_batched_engine, task, [client], FedDyn())
        elsewhere = answers_of(ReferenceEngine, other, [7], FedDyn())
        for own, fast, another in zip(answers.replies, batched.replies, elsewhere.replies, strict=True):
            torch.testing.assert_close(own, fast)
            if own.numel() > 1:
                assert not torch.equal(own, another)

    def test_a_numpy_number_is_a_number(self) -> None:
        assert tiny(np.int64(4)).samples(4) == 5  # type: ignore[arg-type]

    @every_engine
    @pytest.mark.parametrize("steps", [{}, {"local_steps": "mean", "steps": 4}])
    def test_another_client_is_refused(self, engine: Any, steps: Any) -> None:
        task, w = tiny(FAR, **steps), make_task().initial_model()
        message = f"samples of client {FAR} alone, not those of client 0"
        asked: list[Callable[[], Any]] = [
            lambda: task.samples(0),
            lambda: task.steps(0),
            lambda: task.local_pass(w, 0, 1, 0),
            lambda: task.full_gradient(w, 0),
            lambda: task.partition.of(0),
            lambda: answers_of(engine, task, [0], FedDyn()),
            lambda: answers_of(engine, task, [FAR, 0], FedDyn()),
        ]
        for ask in asked:
            with pytest.raises(InputError, match=message):
                ask()

    @every_engine
    def test_a_test_set_is_judged_as_in_the_whole_data_set(self, engine: Any) -> None:
        data, whole = make_dataset(), make_task()
        client = int(whole.partition.training[0])
        one = alone(data, whole.partition, client, x_test=data.x_test, y_test=data.y_test)
        w = one.initial_model()
        assert one.test(w) == whole.test(w)
        assert one.validate(w) is None
        (result,) = engine(no_heartbeat).evaluate([EvaluationRequest(one, {"cloud": w}, w)])
        assert (result.tests, result.validation) == ({"cloud": whole.test(w)}, None)

    @every_engine
    def test_a_test_without_test_samples_is_refused(self, engine: Any) -> None:
        task = tiny()
        model = task.initial_model()
        request = EvaluationRequest(task, {"cloud": model}, model)
        for judge in (lambda: task.test(task.initial_model()), lambda: engine(no_heartbeat).evaluate([request])):
            with pytest.raises(InputError, match="of client 3 has no test samples; give x_test and y_test"):
                judge()

    def test_the_evaluator_of_gpus_leaves_it_to_the_task(self) -> None:
        with pytest.raises(Unbatchable, match="no test samples"):
            GpuEvaluator(tiny(model="logistic"))

    def test_layers_that_look_at_the_batch_take_a_single_sample(self) -> None:
        model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(36, track_running_stats=False), nn.Linear(36, 3))
        data = make_dataset()
        task = tiny(x_train=data.x_train[:1], y_train=data.y_train[:1], model=model)
        assert answers_of(ReferenceEngine, task, [3], FedDyn()).steps == [5]

    def test_the_users_module_is_left_as_it_is(self) -> None:
        model = make_network(dropout=0.4)
        tiny(model=model, dtype=torch.float64)
        assert isinstance(model[3], nn.Dropout)  # type: ignore[index]
        assert all(p.dtype == torch.float32 for p in model.parameters())

    def test_the_package_has_it(self) -> None:
        assert adabest.one_client_task is one_client_task


IMAGES, LABELS = make_dataset().x_train[:5], make_dataset().y_train[:5]
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "label too large": ({"y_train": LABELS + 3}, "of client 3: there is a label 5, but only 3 classes"),
    "label below 0": ({"y_train": LABELS - 3}, "of client 3: y_train has the label -3; labels count from 0"),
    "labels not whole": ({"y_train": LABELS.float()}, "y_train holds torch.float32, and classes are whole numbers"),
    "no samples": ({"x_train": IMAGES[:0], "y_train": LABELS[:0]}, "same, non-zero number of samples"),
    "lengths differ": ({"y_train": LABELS[:4]}, r"x_train \(5, 1, 6, 6\) and y_train \(4,\) should have the same"),
    "labels in a table": ({"y_train": LABELS[:, None]}, "classification has one label a sample"),
    "one number": ({"x_train": 1.0}, "x at least two dimensions"),
    "not finite": ({"x_train": IMAGES / 0.0}, "x_train holds values that aren't finite"),
    "ids for a model that looks none up": ({"x_train": IMAGES.int()}, "can't take ids from 1 to 217, .* nn.Embedding"),
    "no or yes": ({"x_train": IMAGES.bool()}, "x_train should hold bytes .* or floating-point numbers"),
    "ids that are normalised": ({"x_train": IMAGES.int(), "mean": 1.0}, "are ids and aren't normalised; leave mean"),
    "no numbers": ({"x_train": ["a"] * 5}, "x_train can't be used as numbers"),
    "test labels missing": ({"x_test": IMAGES}, "x_test and y_test come together; give both"),
    "test inputs missing": ({"y_test": LABELS}, "x_test and y_test come together; give both"),
    "test of another shape": ({"x_test": IMAGES[..., :5], "y_test": LABELS}, "differ in shape or type"),
    "test of another type": ({"x_test": IMAGES.float(), "y_test": LABELS}, "differ in shape or type"),
    "test label too large": ({"x_test": IMAGES, "y_test": LABELS + 3}, "there is a label 5, but only 3 classes"),
    "test set empty": ({"x_test": IMAGES[:0], "y_test": LABELS[:0]}, "x_test .* non-zero number of samples"),
    "mean not finite": ({"mean": float("nan")}, "mean isn't finite; it should be a finite number"),
    "mean too long": ({"mean": torch.zeros(2, 1, 1)}, "mean can't be used.* for inputs of shape"),
    "mean a text": ({"mean": "grey"}, "mean can't be used"),
    "std zero": ({"std": 0.0}, "divided by std, and must be above 0"),
    "client negative": ({"client": -1}, "client = -1: a client's number is at least 0"),
    "client too large": ({"client": 2**63}, "a client's number is at least 0 and below 2"),
    "client a text": ({"client": "three"}, "client = 'three': a client's number is a whole number"),
    "mean steps unknown": ({"local_steps": "mean"}, "can't know the mean of everyone; give .* steps=K"),
    "steps of its own": ({"steps": 4}, "steps = 4: the client's samples decide that, unless local_steps is 'mean'"),
    "no step": ({"local_steps": "mean", "steps": 0}, "steps = 0: clients make at least one step"),
    "unknown steps": ({"local_steps": "most"}, "local_steps = 'most': it is 'own' or 'mean'"),
    "no epoch": ({"epochs": 0}, "epochs = 0"),
    "no batch": ({"batch_size": 0}, "batch_size = 0"),
    "half precision": ({"dtype": torch.float16}, "torch.float32 or torch.float64"),
    "model for other inputs": ({"model": nn.Sequential(nn.Flatten(), nn.Linear(35, 3))}, "the model can't take inputs"),
    "model for other classes": ({"classes": 4}, "the model gives 3 class scores, but the data set has 4 classes"),
    "loss of each sample": (
        {"loss": lambda scores, y: functional.cross_entropy(scores, y, reduction="none")},
        "the loss <lambda> should be a function .* not a tensor of shape .*; take its mean",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_before_training(name: str) -> None:
    changes, message = BAD[name]
    with pytest.raises(InputError, match=message):
        tiny(**changes)
