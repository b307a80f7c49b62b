"""The batched engine equals the reference engine: every algorithm, kinds of models, settings of local training."""

import contextlib
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import odd_models
import pytest
import torch
from quadratics import random_quadratics
from quadratics import simulate as simulate_quadratics
from recording import make
from side_by_side import Case, StackedEngine, assert_alike, distance, fitting, run, simulate
from small import assert_same
from torch import Tensor
from torch.nn import functional

from adabest import random
from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.adaptive import Adaptive
from adabest.algorithms.base import Algorithm
from adabest.algorithms.catalog import ALGORITHMS, CORE
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.feddane import FedDane
from adabest.algorithms.feddyn import FedDyn
from adabest.data.augmentation import flip_crop
from adabest.engine import batched
from adabest.engine.cpu.trainer import CpuTrainer
from adabest.engine.gate_rules import Gate
from adabest.engine.gpu.program import Program, StepKind
from adabest.engine.gpu.trainer import GpuTrainer, Precision, setting
from adabest.engine.interface import stacked_states
from adabest.engine.local_step import LocalTraining
from adabest.engine.reference import ReferenceEngine
from adabest.engine.simulation import Rules
from adabest.errors import Diverged, InputError, Interrupted
from adabest.random import Purpose
from adabest.runs.build import make_batched_engine
from adabest.tasks.base import no_heartbeat
from adabest.tasks.classification import ClassificationTask

MLP = Case("mlp,hidden=9x5", (2, 6, 6))
MIXED = Case(odd_models.make("mixed"), (2, 6, 6))
TRANSFORMER = Case(odd_models.make("transformer"), odd_models.INPUT)
CASES = {
    "logistic": Case("logistic", (5,)),
    "mlp": MLP,
    "cnn": Case("cnn", (1, 16, 16), augmentation=flip_crop, options=(("epochs", 1),)),
    "resnet": Case("resnet,width=8", (3, 4, 4), augmentation=flip_crop, options=(("epochs", 1),)),
    "mixed": MIXED,
}
VARIANTS = [
    "adabest,beta=auto",
    "adabest,beta_decay=0.5,patience=1",
    "feddyn,clip_proximal=false",
    "scaffold,sample_mean=progressive",
    "scaffold-m,sample_mean=progressive",
]

every_engine = pytest.mark.parametrize("engine", [StackedEngine, make_batched_engine], ids=["stacked", "chosen"])


def algorithm_of(name: str) -> Algorithm:
    return ALGORITHMS.find(name)()


# --- Algorithms and models --------------------------------------------------------------------------------------------


@every_engine
@pytest.mark.parametrize("unbalance", [0.0, 1.0])
@pytest.mark.parametrize("name", sorted(CORE))
def test_every_algorithm_of_the_core_agrees_with_the_reference_on_an_mlp(
    name: str, unbalance: float, engine: Any
) -> None:
    assert_alike(algorithm_of(name), MLP._replace(unbalance=unbalance), engine)


def limit_of(algorithm: Algorithm, limit: float) -> float:
    """How far engines may be apart: an adaptive server divides by τ, and so multiplies what is rounded."""
    return 1e3 * limit if isinstance(algorithm, Adaptive) else limit


@every_engine
@pytest.mark.parametrize("name", [name for name in ALGORITHMS.names() if name not in CORE])
def test_every_other_algorithm_agrees_with_the_reference_on_an_mlp(name: str, engine: Any) -> None:
    algorithm = algorithm_of(name)
    case = fitting(algorithm, MLP._replace(unbalance=1.0))
    assert_alike(algorithm, case, engine, rounds=2, limit=limit_of(algorithm, 1e-11))


@every_engine
@pytest.mark.parametrize("name", ALGORITHMS.names())
def test_every_restored_run_continues_to_the_last_bit(name: str, engine: Any) -> None:
    algorithm = algorithm_of(name)
    whole, resumed = (simulate(algorithm, fitting(algorithm, MLP), engine) for _ in range(2))
    run(whole, 2)
    resumed.restore(whole.snapshot())
    for simulation in (whole, resumed):
        run(simulation, 1)
    assert_same(whole.snapshot(), resumed.snapshot())


@every_engine
@pytest.mark.parametrize("specification", VARIANTS)
def test_options_of_algorithms_agree_with_the_reference(specification: str, engine: Any) -> None:
    assert_alike(make(specification), CASES["logistic"], engine)


@every_engine
@pytest.mark.parametrize("model", CASES)
def test_every_model_agrees_with_the_reference(model: str, engine: Any) -> None:
    rounds = 2 if model in ("cnn", "resnet") else 3
    assert_alike(AdaBest(), CASES[model], engine, rounds=rounds)


@every_engine
@pytest.mark.parametrize("model", ["logistic", "mlp", "mixed"])
def test_float32_agrees_with_the_reference(model: str, engine: Any) -> None:
    assert_alike(FedDyn(), CASES[model]._replace(dtype=torch.float32), engine, limit=2e-3)


@functools.cache
def odd_case(name: str) -> Case:
    return Case(odd_models.make(name), odd_models.INPUT)


@every_engine
@pytest.mark.parametrize("name", odd_models.MODELS)
def test_odd_models_agree_with_the_reference(name: str, engine: Any) -> None:
    assert_alike(FedDyn(), odd_case(name), engine, rounds=2)


@pytest.mark.soak
@every_engine
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("unbalance", [0.0, 1.0])
@pytest.mark.parametrize("model", CASES)
@pytest.mark.parametrize("name", ALGORITHMS.names())
def test_every_algorithm_agrees_with_the_reference_on_every_model(
    name: str, model: str, unbalance: float, dtype: torch.dtype, engine: Any
) -> None:
    algorithm = algorithm_of(name)
    limit = limit_of(algorithm, 1e-11) if dtype == torch.float64 else 2e-3
    case = fitting(algorithm, CASES[model]._replace(unbalance=unbalance, dtype=dtype))
    assert_alike(algorithm, case, engine, limit=limit)


# --- Algorithms of users ----------------------------------------------------------------------------------------------


class Restless(FedAvg):
    """Everything that a correction may be: clients that start apart, with numbers of their own and for all."""

    def client_start(self, client: Any, message: Any, context: Any) -> Any:
        start = message.cloud * (1 + 0.01 / context.samples)
        return (
            super()
            .client_start(client, message, context)
            ._replace(
                start=start,
                scale=0.5 + 1 / context.steps,
                offset=0.01 * message.cloud,  # one for all
                rho=message.cloud.new_tensor([0.02]),
                rho_prime=0.1 / context.samples,
            )
        )


@every_engine
@pytest.mark.parametrize("algorithm", [Restless()], ids=repr)
def test_algorithms_of_users_agree_with_the_reference(algorithm: Algorithm, engine: Any) -> None:
    assert_alike(algorithm, MLP, engine)


def test_tasks_of_other_kinds_are_left_to_the_reference_engine() -> None:
    task = random_quadratics(0, 4, unbalanced=True)
    mine, truth = simulate_quadratics(AdaBest(), task), simulate_quadratics(AdaBest(), task)
    mine.engine = make_batched_engine(no_heartbeat)
    for simulation in (mine, truth):
        for _ in range(3):
            simulation.step()
    assert torch.equal(mine.state.cloud, truth.state.cloud)


# --- Settings ---------------------------------------------------------------------------------------------------------


def smoothed(scores: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(scores, y, label_smoothing=0.2) + 0.01 * scores.square().mean()


def noisy(images: Tensor, keys: Tensor) -> Tensor:
    """Written for one batch of images, as users see it."""
    draws: Tensor = random.uniform(random.bits(3, Purpose.AUGMENTATION, keys)).to(images.dtype)
    return images + 0.1 * draws[:, None, None, None]


def swapped(images: Tensor, keys: Tensor) -> Tensor:
    """Mixes each image with its neighbour in the batch, which must be one of the same client."""
    return 0.8 * images + 0.2 * images.roll(1, dims=0)


SETTINGS: dict[str, tuple[Case, LocalTraining | None, Rules | None]] = {
    "own loss": (MLP._replace(options=(("loss", smoothed),)), None, None),
    "flip-crop": (MLP._replace(augmentation=flip_crop), None, None),
    "own augmentation": (MIXED._replace(augmentation=noisy), None, None),
    "own augmentation of a batch": (MLP._replace(augmentation=swapped), None, None),
    "no decay, no clip": (MLP, LocalTraining(clip=0), None),
    "a clip that is always active": (MLP, LocalTraining(clip=0.01, weight_decay=0.1), None),
    "mean local steps": (MLP._replace(options=(("local_steps", "mean"),)), None, None),
    "server rate": (MLP, None, Rules(server_rate=0.7, scored_clients="all", average_from=2)),
    "batches larger than clients": (MLP._replace(options=(("batch_size", 64),)), None, None),
    "batches of one": (MLP._replace(options=(("batch_size", 1), ("epochs", 1))), None, None),
    "samples drawn with replacement": (MLP._replace(options=(("batching", "replacement"),)), None, None),
    "short batches": (MLP._replace(options=(("batching", "short"),)), None, None),
    "short batches, flip-crop": (
        MLP._replace(augmentation=flip_crop, options=(("batching", "short"), ("batch_size", 5))),
        None,
        None,
    ),
    "short batches of all kinds of layers": (MIXED._replace(options=(("batching", "short"),)), None, None),
    "short batches of everything": (MIXED._replace(options=(("batching", "short"), ("batch_size", 64))), None, None),
    "short batches of a residual network": (
        CASES["resnet"]._replace(options=(("batching", "short"), ("epochs", 1))),
        None,
        None,
    ),
    "short batches of a transformer": (TRANSFORMER._replace(options=(("batching", "short"),)), None, None),
    "short batches with samples second": (
        Case(odd_models.make("attention"), odd_models.INPUT, options=(("batching", "short"),)),
        None,
        None,
    ),
    "a transformer and a large seed": (TRANSFORMER._replace(seed=2**64 - 3), None, None),
    "a large seed": (MIXED._replace(seed=2**64 - 3), None, None),
}


@every_engine
@pytest.mark.parametrize("name", SETTINGS)
def test_settings_agree_with_the_reference(name: str, engine: Any) -> None:
    case, training, rules = SETTINGS[name]
    assert_alike(AdaBest(), case, engine, training=training, rules=rules)


@dataclass
class Smoothed:
    """A loss that is an object, and like most data classes has no hash."""

    by: float

    def __call__(self, scores: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(scores, y, label_smoothing=self.by)


@every_engine
def test_a_loss_without_a_hash_is_taken(engine: Any) -> None:
    assert_alike(FedAvg(), MLP._replace(options=(("loss", Smoothed(0.1)),)), engine, rounds=1)


@every_engine
@pytest.mark.parametrize("most", [1, 2, 7])
def test_results_dont_depend_on_how_many_train_at_a_time(most: int, engine: Any) -> None:
    assert_alike(FedDyn(), MIXED, functools.partial(engine, clients_in_parallel=most), rounds=2)


def test_no_client_at_a_time_is_refused() -> None:
    with pytest.raises(InputError, match="clients_in_parallel = 0: at least one client"):
        make_batched_engine(no_heartbeat, clients_in_parallel=0)


@every_engine
@pytest.mark.parametrize("model", ["mlp", "mixed", "resnet"])
def test_half_precision_comes_near(model: str, engine: Any) -> None:
    """Bfloat16 has 8 bits: a round of it differs, but not much, and parameters stay in full precision."""
    case = CASES[model]._replace(dtype=torch.float32)
    half = simulate(AdaBest(), case, functools.partial(engine, precision=Precision(half=True)))
    truth = simulate(AdaBest(), case, ReferenceEngine)
    run(half, 1)
    run(truth, 1)
    assert half.state.cloud.dtype == torch.float32
    assert 1e-6 < distance(half, truth) < 0.03


@every_engine
def test_half_precision_with_parts_that_are_not_trained_comes_near(engine: Any) -> None:
    for name in ("frozen", "buffer"):
        case = Case(odd_models.make(name), odd_models.INPUT, dtype=torch.float32)
        half = simulate(AdaBest(), case, functools.partial(engine, precision=Precision(half=True)))
        truth = simulate(AdaBest(), case, ReferenceEngine)
        run(half, 1)
        run(truth, 1)
        assert 1e-6 < distance(half, truth) < 0.03


# --- Memory as kernels read it ----------------------------------------------------------------------------------------


def test_data_in_another_order_of_memory_is_laid_out_anew() -> None:
    task = MLP.task()
    images, labels = task.data.x_train, task.data.y_train
    assert isinstance(images, Tensor)
    turned = images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)  # as images with their channels last come
    task.data = replace(task.data, x_train=turned, y_train=labels.repeat_interleave(2)[::2])
    own = setting(task, Precision())
    assert own.inputs.is_contiguous()
    assert own.labels.is_contiguous()
    assert torch.equal(own.inputs, images)
    assert torch.equal(own.labels, labels)


# --- Streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "waits"), [("logistic", 0), ("mlp", 1)])
def test_only_a_stream_that_was_given_work_is_waited_for(
    model: str, waits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A capture ends in an error if it waits for a stream that never waited for it."""
    main, aside = mock.Mock(), mock.Mock()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: main)
    monkeypatch.setattr(torch.cuda, "stream", lambda _stream: contextlib.nullcontext())
    program = Program(setting(CASES[model].task(), Precision()), 2, 1, torch.device("cpu"))
    program._side_stream = aside
    program._work(StepKind(has_codes=False, has_offset=False))
    assert main.wait_stream.call_count == waits
    assert bool(aside.wait_stream.call_count) == bool(waits)


# --- What can't be batched --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", odd_models.ONE_BY_ONE)
def test_models_that_cant_be_batched_are_trained_one_by_one(name: str) -> None:
    case = Case(odd_models.make(name), odd_models.INPUT)
    with pytest.warns(UserWarning, match="clients train one after another") as warned:
        assert_alike(FedDyn(), case, StackedEngine, limit=0.0)
    assert len(warned) == 1


def test_a_loss_that_cant_be_batched_is_trained_one_by_one() -> None:
    def hardest(scores: Tensor, y: Tensor) -> Tensor:
        losses = functional.cross_entropy(scores, y, reduction="none")
        return losses[losses >= losses.mean()].mean()

    with pytest.warns(UserWarning, match="clients train one after another"):
        assert_alike(FedAvg(), MLP._replace(options=(("loss", hardest),)), StackedEngine, limit=0.0)


@pytest.mark.parametrize(
    "change",
    [
        {"options": (("batching", "short"), ("loss", smoothed))},
        {"options": (("batching", "short"),), "augmentation": swapped},
        {"options": (("batching", "short"),), "model": odd_models.make("batch statistics")},
    ],
    ids=["loss", "augmentation", "model"],
)
def test_what_looks_at_whole_batches_gets_short_ones_one_by_one(change: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match="clients train one after another.*shorter than others"):
        assert_alike(FedAvg(), MLP._replace(**change), StackedEngine, limit=0.0)


# --- Full gradients ---------------------------------------------------------------------------------------------------


GRADIENTS: dict[str, Case] = {
    **CASES,
    "own augmentation": MLP._replace(augmentation=swapped),
    "fewer steps than batches": MLP._replace(options=(("local_steps", 1), ("batch_size", 2))),
    "batches larger than clients": MLP._replace(options=(("batch_size", 64),)),
    "batches of one": MLP._replace(options=(("batch_size", 1), ("epochs", 1))),
    "short batches": MLP._replace(options=(("batching", "short"),)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_full_gradients_side_by_side_agree_with_the_reference(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of unequal sizes; dropout and augmentation are in the second phase alone."""
    mine, truth = (simulate(FedDane(), GRADIENTS[name], engine) for engine in (StackedEngine, ReferenceEngine))
    run(truth, 3)
    monkeypatch.setattr(ClassificationTask, "full_gradient", None)  # nobody asks the task
    run(mine, 3)
    assert distance(mine, truth) < 1e-11
    assert mine.state.local_steps == truth.state.local_steps
    task: Any = mine._task
    assert all(module.training for module in task.model.module.modules())


@pytest.mark.parametrize("name", odd_models.MODELS)
def test_full_gradients_of_odd_models_agree_with_the_reference(name: str) -> None:
    assert_alike(FedDane(), Case(odd_models.make(name), odd_models.INPUT), StackedEngine, rounds=2)


@every_engine
def test_full_gradients_of_an_own_loss_agree_with_the_reference(engine: Any) -> None:
    assert_alike(FedDane(), MLP._replace(options=(("loss", smoothed),)), engine, rounds=2)


@pytest.mark.parametrize("model", ["mlp", "mixed", "resnet"])
def test_full_gradients_in_half_precision_come_near(model: str) -> None:
    case = CASES[model]._replace(dtype=torch.float32)
    half = simulate(FedDane(), case, functools.partial(StackedEngine, precision=Precision(half=True)))
    truth = simulate(FedDane(), case, ReferenceEngine)
    run(half, 1)
    run(truth, 1)
    assert 1e-6 < distance(half, truth) < 0.1  # gradients are larger than models


@pytest.mark.parametrize("most", [1, 2])
def test_full_gradients_dont_depend_on_how_many_are_computed_at_a_time(most: int) -> None:
    assert_alike(FedDane(), MLP, functools.partial(StackedEngine, clients_in_parallel=most), rounds=2)


# --- Ends -------------------------------------------------------------------------------------------------------------


def message_of(engine: Callable[..., Any], case: Case, training: LocalTraining) -> str:
    simulation = simulate(FedAvg(), case, engine, training=training, rules=Rules(gate=Gate("stop")))
    with pytest.raises(Diverged) as diverged:
        run(simulation, 10)
    return f"{simulation.state.round}: {diverged.value}"


@every_engine
@pytest.mark.parametrize("model", ["mlp", "mixed"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_divergence_is_told_in_the_same_words(model: str, dtype: torch.dtype, engine: Any) -> None:
    rate = 1e30 if dtype == torch.float32 else 1e200
    case, training = CASES[model]._replace(dtype=dtype), LocalTraining(learning_rate=rate, clip=0)
    expected = message_of(ReferenceEngine, case, training)
    assert "its training loss at local step" in expected
    assert message_of(engine, case, training) == expected
    assert message_of(functools.partial(engine, clients_in_parallel=1), case, training) == expected


@every_engine
def test_divergence_in_the_very_first_step_is_told(engine: Any) -> None:
    case = MLP._replace(options=(("loss", lambda scores, y: functional.cross_entropy(scores, y) / 0.0),))
    expected = message_of(ReferenceEngine, case, LocalTraining())
    assert expected.endswith("(its training loss at local step 0 was inf)")
    assert message_of(engine, case, LocalTraining()) == expected


@every_engine
def test_a_norm_that_overflows_ends_the_run_only_where_it_is_needed(engine: Any) -> None:
    """Gradients of 1e25 are numbers in float32, but the sum of their squares isn't."""

    def steep(scores: Tensor, y: Tensor) -> Tensor:
        return 1e25 * functional.cross_entropy(scores, y)

    case = CASES["logistic"]._replace(dtype=torch.float32, options=(("loss", steep), ("epochs", 1)))
    free = LocalTraining(clip=0, learning_rate=1e-26)
    assert_alike(FedAvg(), case, engine, training=free, limit=2e-3, rounds=1)
    clipped = LocalTraining(clip=1.0, learning_rate=1e-26)
    assert message_of(engine, case, clipped) == message_of(ReferenceEngine, case, clipped)


@every_engine
def test_an_interruption_leaves_the_state_of_the_round_before(engine: Any) -> None:
    beats = 0

    def heartbeat() -> None:
        nonlocal beats
        beats += 1
        if beats == 25:
            raise Interrupted

    def interrupted(_: Any) -> Any:
        return engine(heartbeat)

    simulation = simulate(AdaBest(), MLP, interrupted)
    with pytest.raises(Interrupted):
        run(simulation, 20)
    truth = simulate(AdaBest(), MLP, ReferenceEngine)
    run(truth, simulation.state.round)
    assert simulation.state.round > 0
    assert distance(simulation, truth) < 1e-11
    run(simulation, 1)  # and it can go on
    run(truth, 1)
    assert distance(simulation, truth) < 1e-11


@every_engine
def test_a_run_goes_on_from_a_snapshot_to_the_last_bit(engine: Any) -> None:
    whole, first, second = (simulate(AdaBest(), MIXED, engine) for _ in range(3))
    run(whole, 4)
    run(first, 2)
    second.restore(first.snapshot())
    run(second, 2)
    one, other = whole.snapshot(), second.snapshot()
    assert one.numbers == other.numbers
    assert all(torch.equal(one.tensors[name], other.tensors[name]) for name in one.tensors)


@every_engine
def test_outcomes_dont_share_memory_with_later_rounds(engine: Any) -> None:
    simulation = simulate(AdaBest(), MLP, engine)
    simulation.step(cohort=np.array([0, 1]))
    before = simulation.snapshot()
    kept = {name: tensor.clone() for name, tensor in before.tensors.items()}
    simulation.step(cohort=np.array([2, 3]))
    assert all(torch.equal(before.tensors[name], kept[name]) for name in kept)
    assert torch.equal(simulation.client_model(0), kept["clients.model"][0])


# --- Memory -----------------------------------------------------------------------------------------------------------


def test_running_out_of_memory_makes_chunks_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    train = GpuTrainer.train

    def scarce(self: GpuTrainer, jobs: Any, heartbeat: Any) -> Any:
        clients = sum(len(job.clients) for job in jobs)
        asked.append(clients)
        if clients > 2:
            raise torch.OutOfMemoryError
        return train(self, jobs, heartbeat)

    monkeypatch.setattr(GpuTrainer, "train", scarce)
    mine = simulate(AdaBest(), MLP, StackedEngine)
    cohort = np.arange(7)
    mine.step(cohort=cohort)
    assert asked == [7, 3, 1, 1, 1, 1, 1, 1, 1]
    truth = simulate(AdaBest(), MLP, ReferenceEngine)
    truth.step(cohort=cohort)
    assert distance(mine, truth) < 1e-11


@pytest.mark.parametrize(
    ("engine", "place", "message"),
    [
        (StackedEngine, GpuTrainer, r"memory on cpu ran out with a single client \(0\.00 GiB .*smaller model"),
        (
            make_batched_engine,
            CpuTrainer,
            r"memory ran out with a single client, whose model takes 0\.0 MiB .*smaller model",
        ),
    ],
)
def test_a_single_client_that_doesnt_fit_is_an_error_with_sizes(
    engine: Any, place: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cpu = place is CpuTrainer

    def nothing(*_: Any) -> Any:
        if on_cpu:
            torch.empty(2**62, dtype=torch.uint8)  # what torch itself raises
        raise torch.OutOfMemoryError

    monkeypatch.setattr(place, "train", nothing)
    simulation = simulate(AdaBest(), MLP, engine)
    with pytest.raises(InputError, match=message):
        simulation.step()


def test_other_errors_of_torch_are_none_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("something else")

    monkeypatch.setattr(CpuTrainer, "train", broken)
    with pytest.raises(RuntimeError, match="something else"):
        simulate(AdaBest(), MLP, make_batched_engine).step()


def test_memory_that_runs_out_while_clients_are_stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    stacked, given = stacked_states, list[int]()

    def scarce(states: Any) -> Any:
        given.append(len(states))
        if len(states) > 2:
            raise torch.OutOfMemoryError
        return stacked(states)

    monkeypatch.setattr(batched, "stacked_states", scarce)
    simulate(AdaBest(), MLP, StackedEngine).step(cohort=np.arange(4))
    assert given == [4, 2, 2]


class TestCapacity:
    @staticmethod
    def trainer(monkeypatch: pytest.MonkeyPatch, free: float, most: int | None = None) -> tuple[GpuTrainer, int]:
        """A trainer on a made-up GPU that has memory for a number of clients."""
        trainer = GpuTrainer(MLP.task(), Precision(), most)
        each = trainer._size()
        trainer._device = torch.device("cuda:0")
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (math.ceil(free * each / 0.5), 0))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _device: 3 * each)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _device: 3 * each)
        return trainer, each

    def test_as_many_as_fit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        trainer, each = self.trainer(monkeypatch, free=6.5)
        assert each > 0
        assert trainer.capacity(100) == 6
        assert trainer.capacity(4) == 4

    def test_no_more_than_wanted_by_the_user(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.trainer(monkeypatch, free=6.5, most=5)[0].capacity(100) == 5

    def test_not_even_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        trainer, _ = self.trainer(monkeypatch, free=0.5)
        with pytest.raises(InputError, match=r"one client's training takes 0\.00 GiB .* 50% are used; use a smaller"):
            trainer.capacity(100)

    def test_size_grows_with_the_clients(self) -> None:
        """The sum over clients is what a program really takes, and six vectors of each are outside of it."""
        trainer = GpuTrainer(MLP.task(), Precision(), None)
        outside = 6 * trainer._setting.packing.size * trainer._setting.master.itemsize
        assert trainer._program_for(5).bytes == 5 * (trainer._size() - outside)


# --- Runs side by side ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "own"), [("logistic", True), ("mlp", True), ("cnn", True), ("resnet", True), ("mixed", False)]
)
def test_runs_train_together_only_where_our_kernels_make_all_sums(model: str, own: bool) -> None:
    task = CASES[model].task()
    on_a_gpu = replace(setting(task, Precision()), operators=object())
    assert on_a_gpu.sums_by_client is own
    assert not setting(task, Precision()).sums_by_client, "plain torch may choose by the number of clients"
    for change in ({"loss": torch.nn.functional.cross_entropy}, {"augment": flip_crop}):
        assert not replace(on_a_gpu, **change).sums_by_client
