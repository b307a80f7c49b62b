"""Local training on CPU cores equals the reference engine's, whatever the number of threads, and ends cleanly."""

import functools
import math
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from scored import scored_model
from small import BATCH_SIZE, make_dataset, make_partition
from torch import Tensor, nn
from torch.nn import functional

from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.base import Algorithm
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.feddyn import FedDyn
from adabest.algorithms.fedprox import FedProx
from adabest.algorithms.scaffold import Scaffold
from adabest.data.augmentation import flip_crop, none
from adabest.engine.cpu import linear as chain
from adabest.engine.cpu import linear_steps, malloc
from adabest.engine.cpu.autograd import Replicas, _pool_first
from adabest.engine.cpu.linear import Chain
from adabest.engine.cpu.trainer import CpuTrainer
from adabest.engine.cpu.whole_steps import clip_factor
from adabest.engine.cpu.workers import side_by_side
from adabest.engine.gate_rules import Gate
from adabest.engine.local_step import LocalTraining
from adabest.engine.metrics import Metrics
from adabest.engine.reference import ReferenceEngine
from adabest.engine.simulation import Rules, Simulation
from adabest.errors import Diverged
from adabest.federation.roster import Attendance
from adabest.models.keyed import prepare
from adabest.runs.build import make_batched_engine
from adabest.tasks.base import Heartbeat
from adabest.tasks.classification import ClassificationTask

ROUNDS = 3


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def task_with(module: nn.Module, *, unbalance: float = 0.0, **options: Any) -> ClassificationTask:
    dataset = make_dataset()
    prepared = prepare(module, torch.zeros(2, 1, 6, 6))
    settings = {"epochs": 2, "batch_size": BATCH_SIZE, "seed": 7, "dtype": torch.float64, **options}
    return ClassificationTask(dataset, make_partition(dataset, unbalance=unbalance), prepared, **settings)


def linear() -> nn.Module:
    """Layers of all kinds: with and without bias, with and without relu."""
    layers = [nn.Flatten(), nn.Linear(36, 8, bias=False), nn.ReLU(), nn.Linear(8, 7), nn.Linear(7, 5), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(5, 3, bias=False))


def convolutional() -> nn.Module:
    layers = [
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.3),
        nn.Flatten(),
        nn.Linear(16, 6),
        nn.ReLU(),
    ]
    return nn.Sequential(*layers, nn.Dropout(0.5), nn.Linear(6, 3))


class Unused(nn.Module):
    """A model with a parameter that never gets a gradient, and one whose gradient autograd only expands."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.never, self.shift = nn.Linear(36, 3), nn.Linear(2, 2), nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.linear(x.flatten(1)) * (1 + self.shift)
        return result


MODELS: dict[str, Callable[[], nn.Module]] = {
    "linear": linear,
    "convolutional": convolutional,
    "with unused parameters": Unused,
}
ALGORITHMS: list[Algorithm] = [AdaBest(mu=0.3), FedAvg(), FedDyn(mu=0.1), FedProx(mu=0.5), Scaffold()]


def seeded(model: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return MODELS[model]()


def simulated(
    algorithm: Algorithm,
    task: ClassificationTask,
    engine: Callable[[Heartbeat], Any],
    **training: Any,
) -> Simulation:
    settings = {"learning_rate": 0.3, "weight_decay": 1e-2, "clip": 0.7, "gate": Gate(), **training}
    rules = Rules(gate=settings.pop("gate"))
    return Simulation(
        algorithm,
        task,
        task.partition.training,
        training=LocalTraining(**settings),
        attendance=Attendance(participation=0.5, seed=1),
        rules=rules,
        engine=engine,
    )


def apart(one: Simulation, other: Simulation) -> float:
    pairs = [(one.state.cloud, other.state.cloud), (one.state.aggregate, other.state.aggregate)]
    pairs.append((scored_model(one), scored_model(other)))
    return max(float((a - b).norm() / b.norm()) for a, b in pairs)


@functools.cache
def reference_run(algorithm: Algorithm, model: str) -> tuple[Simulation, list[Metrics | None]]:
    """What cores are compared with, whatever their number."""
    simulation = simulated(algorithm, task_with(seeded(model), unbalance=0.6), ReferenceEngine)
    return simulation, [simulation.step(evaluate=True) for _ in range(ROUNDS)]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: type(algorithm).__name__)
@pytest.mark.parametrize("model", MODELS)
def test_training_equals_the_reference(algorithm: Algorithm, model: str, threads: int) -> None:
    truth, metrics = reference_run(algorithm, model)
    run = simulated(algorithm, task_with(seeded(model), unbalance=0.6), make_batched_engine)
    for reference in metrics:
        cores = run.step(evaluate=True)
        assert reference is not None
        assert cores is not None
        for name in ("train_loss", "train_accuracy"):
            assert cores[name] == pytest.approx(reference[name], rel=1e-12)
    assert apart(run, truth) < 1e-12


@pytest.mark.parametrize("options", [{"clip": 0.0}, {"weight_decay": 0.0}, {"clip": 1e9}], ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_training_without_clipping_or_decay_equals_the_reference(options: dict[str, float], model: str) -> None:
    runs = [
        simulated(AdaBest(), task_with(seeded(model)), e, **options) for e in (ReferenceEngine, make_batched_engine)
    ]
    for run in runs:
        run.step()
    assert apart(runs[1], runs[0]) < 1e-13


def squared(scores: Tensor, labels: Tensor) -> Tensor:
    return ((scores - functional.one_hot(labels, scores.shape[1])) ** 2).mean()


@pytest.mark.parametrize("options", [{"augmentation": flip_crop}, {"loss": squared}], ids=["augmented", "own loss"])
@pytest.mark.parametrize("model", ["linear", "convolutional"])
def test_augmentation_and_own_losses_equal_the_reference(options: dict[str, Any], model: str) -> None:
    runs = [
        simulated(AdaBest(), task_with(seeded(model), **options), e) for e in (ReferenceEngine, make_batched_engine)
    ]
    for run in runs:
        run.step()
    assert apart(runs[1], runs[0]) < 1e-13


def reversed_batch(images: Tensor, keys: Tensor) -> Tensor:
    """Mixes each image with another one of the batch."""
    return 0.8 * images + 0.2 * images.flip(0)


@pytest.mark.parametrize("batch_size", [BATCH_SIZE, 64, 1])
@pytest.mark.parametrize("augmentation", [none, flip_crop, reversed_batch], ids=lambda a: a.__name__)
@pytest.mark.parametrize("batching", ["short", "replacement"])
@pytest.mark.parametrize("model", ["linear", "convolutional"])
def test_other_batches_equal_the_reference(model: str, batching: str, augmentation: Any, batch_size: int) -> None:
    options: dict[str, Any] = {"batching": batching, "augmentation": augmentation, "batch_size": batch_size}
    runs = [
        simulated(AdaBest(), task_with(seeded(model), unbalance=0.6, **options), e)
        for e in (ReferenceEngine, make_batched_engine)
    ]
    for _ in range(2):
        reference, cores = (run.step(evaluate=True) for run in runs)
        assert reference is not None
        assert cores is not None
        for name in ("train_loss", "train_accuracy"):
            assert cores[name] == pytest.approx(reference[name], rel=1e-12)
    assert apart(runs[1], runs[0]) < 1e-12


@pytest.mark.parametrize("model", MODELS)
def test_the_number_of_threads_changes_no_bit(model: str) -> None:
    results = []
    for count in (1, 2, 3):
        before = torch.get_num_threads()
        torch.set_num_threads(count)
        try:
            task = task_with(seeded(model), unbalance=0.6, dtype=torch.float32)
            run = simulated(AdaBest(), task, partial(make_batched_engine, threads=count))
            for _ in range(ROUNDS):
                run.step()
            assert torch.get_num_threads() == count
        finally:
            torch.set_num_threads(before)
        results.append(run.state.cloud)
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("most", [1, 7, None])
def test_chunks_change_nothing_but_rounding(most: int | None) -> None:
    reference = simulated(AdaBest(), task_with(linear_of(5), unbalance=0.6), ReferenceEngine)
    chunked = simulated(
        AdaBest(),
        task_with(linear_of(5), unbalance=0.6),
        lambda beat: make_batched_engine(beat, clients_in_parallel=most),
    )
    for run in (reference, chunked):
        for _ in range(ROUNDS):
            run.step()
    assert apart(chunked, reference) < 1e-13


def linear_of(seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return linear()


class TestWithoutPython:
    def test_torch_script_gives_the_bits_that_python_gives(self, monkeypatch: pytest.MonkeyPatch) -> None:
        runs = []
        for function in (linear_steps.scripted_steps(), linear_steps.local_steps):
            monkeypatch.setattr(chain, "scripted_steps", lambda function=function: function)
            runs.append(simulated(FedDyn(mu=0.1), task_with(seeded("linear"), unbalance=0.6), make_batched_engine))
            for _ in range(ROUNDS):
                runs[-1].step()
        assert torch.equal(runs[0].state.cloud, runs[1].state.cloud)

    def test_steps_are_python_where_there_is_no_torch_script(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def gone(function: Any) -> Any:
            raise RuntimeError("no longer supported")

        assert linear_steps.scripted_steps() is not linear_steps.local_steps
        monkeypatch.setattr(torch.jit, "script", gone)
        assert linear_steps.scripted_steps.__wrapped__() is linear_steps.local_steps


class TestChoice:
    def test_linear_layers_are_computed_by_hand(self) -> None:
        assert isinstance(CpuTrainer(task_with(linear()))._method, Chain)

    def test_everything_else_goes_through_autograd(self) -> None:
        assert isinstance(CpuTrainer(task_with(convolutional()))._method, Replicas)
        assert isinstance(CpuTrainer(task_with(linear(), loss=squared))._method, Replicas)

    def test_as_many_clients_are_stacked_as_fit_the_cache(self) -> None:
        small, large = (
            CpuTrainer(task_with(module))._method
            for module in (linear(), nn.Sequential(nn.Flatten(), nn.Linear(36, 30000), nn.Linear(30000, 3)))
        )
        assert small.clients_at_a_time > 10
        assert large.clients_at_a_time == 1


class TestDivergence:
    @pytest.mark.parametrize("model", ["linear", "convolutional"])
    def test_divergence_names_client_and_step_like_the_reference(self, model: str, threads: int) -> None:
        said = []
        for engine in (ReferenceEngine, make_batched_engine):
            task = task_with(seeded(model), unbalance=0.6, dtype=torch.float32)
            run = simulated(FedAvg(), task, engine, learning_rate=1e30, clip=0.0, gate=Gate("stop"))
            with pytest.raises(Diverged) as caught:
                run.step()
            said.append(str(caught.value).rsplit(" was ", 1)[0])  # one says inf where the other says nan
        assert said[0] == said[1]
        assert "its training loss at local step" in said[0]


class Interrupted(BaseException):
    """What a user's signal becomes."""


class TestThreads:
    @pytest.mark.parametrize(("model", "beats"), [("linear", 0), ("convolutional", 0), ("convolutional", 5)])
    def test_an_interruption_ends_all_threads(self, model: str, beats: int, threads: int) -> None:
        left, threads_before = [beats], set(threading.enumerate())

        def beat() -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Interrupted

        run = simulated(AdaBest(), task_with(seeded(model)), lambda _: make_batched_engine(beat))
        before = run.state
        with pytest.raises(Interrupted):
            run.step()
        assert set(threading.enumerate()) <= threads_before
        assert torch.get_num_threads() == threads
        assert run.state is before

    def test_an_interruption_while_only_others_work(self) -> None:
        before, threads_before = torch.get_num_threads(), set(threading.enumerate())
        torch.set_num_threads(2)
        started, mine = threading.Event(), threading.main_thread()

        def short(beat: Heartbeat) -> int:
            if threading.current_thread() is mine:
                started.wait(10)
                return 1
            started.set()
            while True:
                beat()

        def interrupt() -> None:
            raise Interrupted

        try:
            with pytest.raises(Interrupted):
                side_by_side([short, short], interrupt, 2)
            assert set(threading.enumerate()) <= threads_before
        finally:
            torch.set_num_threads(before)

    def test_an_error_in_one_thread_ends_the_others(self, threads: int) -> None:
        threads_before = set(threading.enumerate())

        def endless(beat: Heartbeat) -> int:
            while True:
                beat()

        def broken(beat: Heartbeat) -> int:
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            side_by_side([broken, *[endless] * (threads - 1)], lambda: None, threads)
        assert set(threading.enumerate()) <= threads_before
        assert torch.get_num_threads() == threads

    def test_results_come_in_order(self, threads: int) -> None:
        def piece(number: int) -> Callable[[Heartbeat], int]:
            return lambda beat: number

        assert side_by_side([piece(number) for number in range(20)], lambda: None, threads) == list(range(20))

    def test_errors_say_where_they_happened(self, threads: int) -> None:
        def fails_late(images: Tensor, keys: Tensor) -> Tensor:
            if keys.numel() > 2:
                raise RuntimeError("no")
            return images

        task = task_with(convolutional(), augmentation=fails_late)
        with pytest.raises(RuntimeError) as caught:
            simulated(FedAvg(), task, make_batched_engine).step()
        assert "in local step 0" in caught.value.__notes__
        assert any(note.startswith("in round 1, client ") for note in caught.value.__notes__)


class TestPoolingFirst:
    def test_gives_the_same_values_and_gradients_on_ties(self) -> None:
        before, after = (nn.Sequential(nn.ReLU(), nn.MaxPool2d(2)) for _ in range(2))
        _pool_first(after)
        assert isinstance(after[0], nn.MaxPool2d)
        x = torch.randint(-2, 3, (4, 2, 8, 8)).to(torch.float64)  # many are equal
        results = []
        for module in (before, after):
            own = x.clone().requires_grad_()
            y = module(own)
            y.backward(torch.arange(y.numel(), dtype=y.dtype).view(y.shape) + 1)
            results.append((y.detach(), own.grad))
        assert torch.equal(results[0][0], results[1][0])
        assert results[0][1] is not None
        assert results[1][1] is not None
        assert torch.equal(results[0][1], results[1][1])

    def test_leaves_other_layers_where_they_are(self) -> None:
        layers = [nn.ReLU(), nn.AvgPool2d(2), nn.MaxPool2d(2), nn.ReLU()]
        assert list(_pool_first(nn.Sequential(*layers)).children()) == layers


@pytest.mark.parametrize(
    ("norm", "clip", "factor"),
    [
        (1.0, 2.0, 1.0),
        (4.0, 2.0, 0.5),
        (0.0, 2.0, 1.0),
        (5.0, 0.0, 1.0),
        (float("inf"), 2.0, None),
        (float("nan"), 2.0, None),
    ],
)
def test_clip_factor(norm: float, clip: float, factor: float | None) -> None:
    found = clip_factor(norm, clip)
    assert math.isnan(found) if factor is None else found == factor


class TestMemory:
    def test_settings_are_put_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[tuple[int, int]] = []
        library = type("Library", (), {"mallopt": staticmethod(lambda *call: calls.append(call))})
        monkeypatch.setattr(malloc, "_has_glibc", lambda: True)
        monkeypatch.setattr("ctypes.CDLL", lambda name: library)
        with malloc.freed_memory_kept():
            assert calls == [(-3, 2**31 - 1), (-1, 2**31 - 1)]
        assert calls[2:] == [(-3, 2**25), (-1, 2**26)]

    def test_other_libraries_are_left_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(malloc, "_has_glibc", lambda: False)
        monkeypatch.setattr("ctypes.CDLL", None)
        with malloc.freed_memory_kept():
            pass
