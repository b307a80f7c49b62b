"""Checks of an algorithm: what every algorithm must do, whatever it computes, on a small made-up federation.

They are the cheap part of the suite that this package's own algorithms are tested with. A federation of six clients, a
network of some dozens of numbers and a few rounds show each fault within a second or so.
"""

import copy
import functools
import math
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, ClientContext, ServerContext
from adabest.data.dataset import Dataset, from_arrays
from adabest.engine.gate_rules import Gate
from adabest.engine.interface import Answers, Engine, Request
from adabest.engine.lanes import advance_together
from adabest.engine.local_step import LocalTraining
from adabest.engine.reduction import ReducedReplies
from adabest.engine.reference import ReferenceEngine
from adabest.engine.server_step import ServerStep, may_be_stacked, take_stacked
from adabest.engine.simulation import Rules, Simulation
from adabest.engine.state import Snapshot
from adabest.errors import AdabestError, InputError
from adabest.federation.partition import Partition, Scheme, cut
from adabest.federation.roster import Attendance
from adabest.model_part import Part
from adabest.models.factory import build_model
from adabest.registry import naming
from adabest.runs.build import make_batched_engine
from adabest.runs.settings.algorithm_specification import make_algorithm
from adabest.tasks.base import Heartbeat, no_heartbeat
from adabest.tasks.classification import ClassificationTask

_CLIENTS, _CLASSES = 6, 3
_ROUNDS = 4
_LEARNING_ROUNDS = 20
_LEARNT = 0.9  # of the initial test loss
_ROUNDING = 1e-9  # of float64, relative to the model, after some rounds of sums in another order
_FUNCTIONS = (
    "server_init",
    "client_init",
    "downlink",
    "client_start",
    "client_finish",
    "server_step",
    "client_model",
    "client_estimate",
    "personal_model",
)

_MakeEngine = Callable[[Heartbeat], Engine]


@dataclass(frozen=True)
class AlgorithmCheck:
    """What came of one check of an algorithm.

    Attributes:
        name: The check.
        state: Whether the algorithm passed it; ``skipped`` if it can't be made, as after a failed first round.
        words: What holds, or the fault in a sentence.
    """

    name: str
    state: Literal["passed", "failed", "skipped"]
    words: str


def check(algorithm: str | Algorithm) -> list[AlgorithmCheck]:
    """Says what is wrong with an algorithm, by runs of a small made-up federation. No file is written.

    Args:
        algorithm: The algorithm, as a name with hyper-parameters or as an object: my_module:MyAlgorithm,mu=0.1

    Returns:
        A finding for each check.

    Raises:
        InputError: If there is no such algorithm, or its hyper-parameters can't be used.
    """
    with naming(algorithm):
        checked = make_algorithm(algorithm)
    found = list[AlgorithmCheck]()
    for name, (words, function) in _CHECKS.items():
        failed = {one.name for one in found if one.state == "failed"}
        missing = next((other for other in _needed_by(name) if other in failed), None)
        if missing is not None:
            found.append(AlgorithmCheck(name, "skipped", f"without {missing}, it can't be seen whether {words}"))
            continue
        try:
            function(checked)
        except _Skipped as reason:
            found.append(AlgorithmCheck(name, "skipped", str(reason)))
        except Exception as error:
            found.append(AlgorithmCheck(name, "failed", _sentence(error)))
        else:
            found.append(AlgorithmCheck(name, "passed", words))
    return found


def _needed_by(name: str) -> tuple[str, ...]:
    """The checks without which one can't be made."""
    # Where two equal runs differ, so do any others, and what makes them differ isn't known.
    return ("rounds", "repeats") if name in _COMPARING else ("rounds",)


class _Failed(AdabestError):
    """A fault, in a sentence."""


class _Skipped(AdabestError):
    """A check doesn't concern the algorithm."""


def _sentence(error: Exception) -> str:
    """What an exception says; of one that isn't ours, also where it was raised."""
    if isinstance(error, AdabestError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"in line {last.lineno} of {Path(last.filename).name}"
    return f"{last.name} raised {type(error).__name__} {where}: {error}"


# --- The federation ---------------------------------------------------------------------------------------------------


class _MadeUp(NamedTuple):
    """The data that clients learn from.

    Attributes:
        dataset: Points around a centre for each class.
        partition: Who has which.
    """

    dataset: Dataset
    partition: Partition


@functools.cache
def _made_up() -> _MadeUp:
    generator = np.random.default_rng(0)

    def split(count: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.arange(count) % _CLASSES
        x = generator.normal(size=(count, 4)) + 2 * np.eye(4)[y]
        return x.astype(np.float32), y

    dataset = from_arrays(*split(90), *split(60), name="made-up points")
    scheme = Scheme(_CLIENTS, 0, "dirichlet", alpha=0.5, unbalance=0.5, seed=0)
    return _MadeUp(dataset, cut(dataset.y_train.numpy(), dataset.classes, scheme))


class _MadeUpTask(ClassificationTask):
    """A task in whose small model any part that isn't there is the last layer."""

    def mask_of(self, part: Part) -> Tensor:
        try:
            return super().mask_of(part)
        except InputError:
            return super().mask_of(Part(last_layers=1))


def _task(seed: int = 0, dtype: torch.dtype = torch.float64) -> ClassificationTask:
    dataset, partition = _made_up()
    example = (dataset.x_train[:2].float() - dataset.mean) / dataset.std
    return _MadeUpTask(
        dataset,
        partition,
        build_model("mlp,hidden=5", example, dataset.classes, seed),
        epochs=2,
        batch_size=7,
        seed=seed,
        dtype=dtype,
        kind="check",  # the models of lanes are of one kind, so that they train together
    )


def _federation(
    algorithm: Algorithm,
    engine: _MakeEngine = ReferenceEngine,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    participation: float = 0.5,
) -> Simulation:
    return Simulation(
        copy.deepcopy(algorithm),  # as fresh as in a process of its own, whatever it remembers
        _task(seed, dtype),
        _made_up().partition.training,
        training=LocalTraining(learning_rate_decay=0.9, weight_decay=1e-3, clip=10.0),
        attendance=Attendance(participation=participation, seed=seed),
        rules=Rules(gate=Gate(policy="stop")),  # no client is faulty here, so a bad reply is the algorithm's fault
        engine=engine,
    )


def _batched(heartbeat: Heartbeat) -> Engine:
    return make_batched_engine(heartbeat, threads=1)


def _run(simulation: Simulation, rounds: int = _ROUNDS) -> Simulation:
    for _ in range(rounds):
        simulation.step()
    return simulation


def _refuse_difference(found: Simulation, expected: Simulation, words: str) -> None:
    """Refuses two runs that don't agree to the last bit."""
    name = _difference(found.snapshot(), expected.snapshot())
    if name is not None:
        raise _Failed(f"{words}; the first thing to differ is {name}")


def _difference(one: Snapshot, other: Snapshot) -> str | None:
    """The name of the first thing in which two snapshots differ."""
    if one.tensors.keys() != other.tensors.keys():
        return "what is kept"
    for name, tensor in one.tensors.items():
        if not (tensor.dtype == other.tensors[name].dtype and torch.equal(tensor, other.tensors[name])):
            return _plain(name)
    return next((_plain(name) for name in one.numbers if one.numbers[name] != other.numbers.get(name)), None)


def _plain(name: str) -> str:
    """The words for a thing in a snapshot."""
    room, _, field = name.rpartition(".")
    return {"server": f"the server's {field}", "clients": f"the clients' {field}"}.get(room.split(".")[0], name)


# --- The checks -------------------------------------------------------------------------------------------------------


def _check_first_rounds(algorithm: Algorithm) -> None:
    """Shapes, types, means and generators are looked at by the engine itself."""
    for phase in range(len(algorithm.phases)):
        algorithm.message_type(phase), algorithm.reply_type(phase)
    simulation = _federation(algorithm)
    simulation.step(evaluate=True)
    _personal_models(_run(simulation, 1))


def _check_types(algorithm: Algorithm) -> None:
    for dtype in (torch.float32, torch.float64):
        simulation = _run(_federation(algorithm, dtype=dtype))
        size = len(simulation.state.cloud)
        for name, tensor in simulation.snapshot().tensors.items():
            is_algorithms = name.partition(".")[0] not in {"scored", "averaged"}
            if is_algorithms and tensor.is_floating_point() and tensor.shape[-1:] == (size,) and tensor.dtype != dtype:
                have, want = (str(one).removeprefix("torch.") for one in (tensor.dtype, dtype))
                raise _Failed(f"with a model in {want}, {_plain(name)} becomes {have}")


def _check_purity(algorithm: Algorithm) -> None:
    inner, watched = copy.deepcopy(algorithm), copy.copy(algorithm)

    def watch(name: str) -> None:
        def function(*given: Any) -> Any:
            before = [tensor.clone() for tensor in _tensors_in(given)]
            found = getattr(inner, name)(*given)
            if not all(map(_same, before, _tensors_in(given))):
                raise _Failed(
                    f"{name} writes into a tensor that it was given; it should compute a new one, as x + y does and "
                    "x.add_(y) or x += y doesn't"
                )
            return found

        # Hyper-parameters are frozen, so the functions are replaced behind the dataclass's back.
        object.__setattr__(watched, name, function)

    for name in _FUNCTIONS:
        watch(name)
    _personal_models(_run(_federation(watched)))


def _personal_models(simulation: Simulation) -> list[Tensor]:
    """The models that clients use for themselves."""
    return [simulation.personal_model(client) for client in simulation.clients_with_models()]


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(torch.equal(one, other))


def _tensors_in(given: Any) -> Iterator[Tensor]:
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, tuple):
        for part in given:
            yield from _tensors_in(part)
    elif isinstance(given, ReducedReplies):
        yield from given.all_means()
    elif isinstance(given, ClientContext | ServerContext):
        yield from _tensors_in(tuple(getattr(given, part.name) for part in fields(given)))


def _check_repeats(algorithm: Algorithm) -> None:
    one, other = (_run(_federation(algorithm)) for _ in range(2))
    _refuse_difference(
        other, one, "two runs with the same seed differ: its functions remember something, or draw random numbers"
    )


def _check_resume(algorithm: Algorithm) -> None:
    begun, resumed = _run(_federation(algorithm), 2), _federation(algorithm)
    resumed.restore(begun.snapshot())
    _run(resumed, _ROUNDS - 2)
    _refuse_difference(
        resumed,
        _run(_federation(algorithm)),
        "a run that is resumed after round 2 differs from an unbroken one: something is remembered outside of the "
        "Server and Client states",
    )


class _Reversed(ReferenceEngine):
    """The reference engine, with the last client first."""

    def exchange(self, requests: Sequence[Request]) -> list[Answers]:
        """Executes requests, and gives the answers in the order in which they were asked for."""
        return [
            _backwards(answers)
            for answers in super().exchange(
                [one._replace(clients=dict(reversed(list(one.clients.items())))) for one in requests]
            )
        ]


def _backwards(answers: Answers) -> Answers:
    def flipped(stacked: Any) -> Any:
        return type(stacked)(*(field.flip(0) for field in stacked))

    return answers._replace(
        clients=answers.clients[::-1],
        states=flipped(answers.states),
        replies=flipped(answers.replies),
        steps=answers.steps[::-1],
        scores=answers.scores[::-1],
    )


def _check_order(algorithm: Algorithm) -> None:
    _refuse_difference(
        _run(_federation(algorithm, _Reversed)),
        _run(_federation(algorithm)),
        "the order in which clients are computed matters: something goes from one client to the next",
    )


def _check_engines(algorithm: Algorithm) -> None:
    truth = _run(_federation(algorithm))
    try:
        found = _run(_federation(algorithm, _batched))
    except Exception as error:
        raise _Failed(
            f"with all clients at once, where vectors have the shape [clients, P], it fails: {_sentence(error)}"
        ) from error
    scale = max(1.0, float(truth.state.cloud.norm()))
    one, other = found.snapshot().tensors, truth.snapshot().tensors
    for name, tensor in other.items():
        if tensor.is_floating_point() and not float((one[name] - tensor).norm()) <= _ROUNDING * scale:
            raise _Failed(
                f"with all clients at once, {_plain(name)} differs from that of one client after another: sums and "
                "norms should be along the last dimension, as x.sum(-1, keepdim=True)"
            )


def _check_lanes(algorithm: Algorithm) -> None:
    seeds = (0, 1, 2)
    lanes, shared = [_federation(algorithm, _batched, seed=seed) for seed in seeds], _batched(no_heartbeat)
    for _ in range(_ROUNDS):
        advance_together([lane.round() for lane in lanes], shared)
    for lane, seed in zip(lanes, seeds, strict=True):
        alone = _run(_federation(algorithm, _batched, seed=seed))
        _refuse_difference(lane, alone, "a run beside others, as in a sweep, differs from the same run alone")


def _check_stacking(algorithm: Algorithm) -> None:
    if not may_be_stacked(algorithm):
        raise _Skipped("the algorithm doesn't say that server steps of several runs may be stacked")
    steps = [_first_server_step(_federation(algorithm, seed=seed)) for seed in (0, 1, 2)]
    try:
        together = take_stacked(steps)
    except Exception as error:
        raise _Failed(f"it says that server steps may be stacked, but that fails: {_sentence(error)}") from error
    for step, found in zip(steps, together, strict=True):
        alone = step.alone()
        if isinstance(alone, Exception):
            raise alone
        if not all(map(_same, _tensors_in(tuple(found)), _tensors_in(tuple(alone)))):
            raise _Failed(
                "it says that server steps may be stacked, but a step beside others differs from the same step alone"
            )


def _first_server_step(simulation: Simulation) -> ServerStep:
    """The first server step that a run asks for; the run goes no further."""
    lane = simulation.round()
    asked = next(lane)
    while not isinstance(asked, ServerStep):
        assert isinstance(asked, Request)
        asked = lane.send(simulation.engine.exchange([asked])[0])
    lane.close()
    return asked


def _check_learning(algorithm: Algorithm) -> None:
    simulation = _federation(algorithm, _batched, participation=1.0)  # not all algorithms can do with less
    task = _task()
    before = task.test(simulation.state.cloud).loss
    best = {"cloud": before, "aggregate": before}
    for number in range(1, _LEARNING_ROUNDS + 1):
        _run(simulation, 1)
        for name, least in best.items():
            loss = task.test(getattr(simulation.state, name)).loss
            if not math.isfinite(loss):
                raise _Failed(f"after {number} rounds, the test loss of the {name} model isn't finite")
            best[name] = min(least, loss)
    for name, loss in best.items():
        # The best, not the last: an algorithm with momentum may overshoot so small a task.
        if loss > _LEARNT * before:
            raise _Failed(
                f"within {_LEARNING_ROUNDS} rounds with everyone, the test loss of the {name} model falls from "
                f"{before:.3g} to {loss:.3g} at best; it should fall by a tenth, and FedAvg's falls by half"
            )


# By name: what holds, and the check. Those that others need come first.
_CHECKS: dict[str, tuple[str, Callable[[Algorithm], None]]] = {
    "rounds": ("its functions return what it declares, in shape and type", _check_first_rounds),
    "types": ("float32 stays float32, and float64 stays float64", _check_types),
    "purity": ("its functions write into no tensor that they were given", _check_purity),
    "repeats": ("two runs are equal to the last bit", _check_repeats),
    "resume": ("a resumed run is equal to an unbroken one, to the last bit", _check_resume),
    "order": ("the order in which clients are computed doesn't matter", _check_order),
    "engines": ("all clients at once come to the numbers of one after another", _check_engines),
    "lanes": ("runs beside each other are equal to each alone, to the last bit", _check_lanes),
    "stacking": ("stacked server steps are equal to each alone, to the last bit", _check_stacking),
    "learning": ("it learns a small made-up task, and stays finite", _check_learning),
}
_COMPARING = ("resume", "order", "engines", "lanes", "stacking")  # hold one run against another, beside repeats
