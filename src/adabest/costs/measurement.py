"""Measured costs of real rounds: bytes sent and kept, and the times of clients and server.

The rounds are those of a run, with its data, model, engine and device. One round of each algorithm follows another's,
so that whatever slows the machine down slows all of them, and times are compared round by round.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from adabest.algorithms.base import Algorithm
from adabest.algorithms.catalog import CORE
from adabest.costs.cost_file import Cost, MeasuredAlgorithm, MeasuredCosts
from adabest.costs.count import AlgorithmCosts, count_costs
from adabest.costs.formula import Formula, Number
from adabest.costs.round_timing import TimedFederation
from adabest.costs.sizes import Sizes, find_sizes
from adabest.engine.step_numbers import most_steps
from adabest.errors import InputError
from adabest.model_part import Parameter
from adabest.runs.build import environment, make_engine
from adabest.runs.process_settings import ProcessSettings
from adabest.runs.results_file import provenance_of
from adabest.runs.settings.algorithm_specification import check_algorithms
from adabest.runs.settings.config import ENVIRONMENT_SETTINGS, Config
from adabest.runs.settings.resolution import Components
from adabest.runs.settings.run_plan import label_of, plan_algorithms
from adabest.stop_requests import StopRequests

BASELINE = "fedavg"
# Clients have 450 samples, about as in the paper's CIFAR-10: with batches of 45 that is ten steps an epoch.
_DEFAULTS: dict[str, Any] = {
    "dataset": "synthetic,samples=45000,shape=3x32x32,classes=10,test=100",
    "clients": 100,
    "validation_clients": 0,
    "partition": "iid",
}
_COHORTS: dict[str, dict[str, Any]] = {
    "cpu": {"participation": 0.04, "epochs": 1},  # a minute on two cores
    "cuda": {"participation": 0.1, "epochs": 5},  # the paper's
}


def measure_costs(
    settings: Mapping[str, Any] | None = None,
    repeats: int = 9,
    algorithms: Sequence[str | Algorithm] | None = None,
) -> MeasuredCosts:
    """Measures what rounds of algorithms send, keep and take.

    Args:
        settings: The settings of a run, over those of the measurement: made-up images of CIFAR's shape, 100 clients,
            and on a CPU 4 clients a round with one epoch, on a GPU 10 with five. None stands for no setting.
        repeats: How many rounds of each algorithm are measured, after one that isn't.
        algorithms: Specifications such as ``adabest,beta=0.9``, or Algorithm objects; None for the paper's and their
            variants.
            FedAvg joins them if it isn't there.

    Raises:
        InputError: If anything can't be used, or an algorithm diverges.
        Interrupted: If a signal asked to stop.
    """
    if type(repeats) is not int or repeats < 1:
        raise InputError(f"repeats = {repeats!r}: it must be a whole number above 0")
    used = _settings(settings or {})
    # A reply that is left out would make the server's work cheaper.
    runs = plan_algorithms(_with_baseline(algorithms), used | {"rounds": repeats + 1, "bad_replies": "stop"}).runs
    config, components = next(iter(runs.values()))
    _refuse_uneven(config)
    _refuse_drawn_steps(config)
    with StopRequests() as requests, ProcessSettings.of(config, components).entered():
        engine = make_engine(config)(requests.heartbeat)
        federations = [TimedFederation(label, *run, engine, requests.heartbeat) for label, run in runs.items()]
        sizes, named = _sizes(config, components, federations[0])
        counted = {label: count_costs([run[1].algorithm], sizes, named) for label, run in runs.items()}
        for number in range(repeats + 1):
            turn = number % len(federations)  # another one begins each time, so that none always follows the same
            for federation in federations[turn:] + federations[:turn]:
                federation.round(counts=number > 0, evaluate=number == repeats)
        there = environment(config)
    found = {}
    for federation in federations:
        (own,), baseline = counted[federation.label].algorithms.values(), counted[federation.label].baseline
        found[federation.label] = _result(federation, own, baseline, sizes, guarded=config.clip > 0)
    told = {**used, "engine": config.engine, "precision": config.precision}
    plain = {name: value for name, value in told.items() if isinstance(value, bool | int | float | str)}
    return MeasuredCosts(
        sizes=sizes,
        settings={name: value for name, value in plain.items() if name not in ENVIRONMENT_SETTINGS},
        repeats=repeats,
        algorithms=found,
        provenance=provenance_of(there) | {"threads": there["threads"]},
    )


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The given settings over the measurement's own."""
    known = {name: value for name, value in given.items() if value is not None}
    if "rounds" in known:
        raise InputError("costs are measured in `repeats` rounds of each algorithm: leave `rounds` out")
    device = str(known.get("device", Config.device))
    return {**_DEFAULTS, **_COHORTS["cuda" if device.startswith("cuda") else "cpu"], **known}


def _with_baseline(algorithms: Sequence[str | Algorithm] | None) -> list[str | Algorithm]:
    chosen = CORE if algorithms is None else algorithms
    check_algorithms(chosen)
    return [*([] if BASELINE in map(label_of, chosen) else [BASELINE]), *chosen]


def _refuse_uneven(config: Config) -> None:
    if config.sampler == "bernoulli" or config.churn > 0 or config.schedule:
        raise InputError(
            "costs are those of rounds with equally many clients: leave out churn and schedule, and take another "
            "sampler than bernoulli"
        )


def _refuse_drawn_steps(config: Config) -> None:
    if most_steps(config.local_steps) is not None:
        raise InputError(
            f"local_steps = {config.local_steps!r}: costs are those of clients with equally many steps; use own or mean"
        )


def _sizes(config: Config, components: Components, federation: TimedFederation) -> tuple[Sizes, Sequence[Parameter]]:
    """The sizes of what is measured, as far as costs depend on them, and the model's parameters by name.

    Raises:
        InputError: If clients differ in their number of steps.
    """
    dataset, steps = components.dataset, federation.steps()
    if len(steps) > 1:
        raise InputError(
            f"clients make from {min(steps)} to {max(steps)} local steps a round, but costs are those of equal "
            "clients; use unbalance 0 or local_steps mean"
        )
    described = {
        "model": components.model,
        "input_shape": tuple(dataset.input_shape),
        "classes": dataset.classes,
        "batch_size": config.batch_size,
    }
    cohort = {
        "steps": steps.pop(),
        "participants": federation.participants,
        "population": config.clients,
        "precision": "float64" if config.dtype == torch.float64 else "float32",
    }
    return find_sizes(described, None, cohort)


def _cost(
    counted: Formula, paper: Formula | None, unit: int, measured: Number | None = None, *, values: Mapping[str, int]
) -> Cost:
    """A cost; the paper's formula counts things of ``unit`` each."""
    return Cost(
        str(counted),
        _int_or_float(counted.value(values)),
        None if paper is None else str(paper),
        None if paper is None else _int_or_float(unit * paper.value(values)),
        None if measured is None else _int_or_float(measured),
    )


def _int_or_float(value: Number) -> float:
    return int(value) if value == int(value) else float(value)


def _result(
    federation: TimedFederation, counted: AlgorithmCosts, baseline: AlgorithmCosts, sizes: Sizes, *, guarded: bool
) -> MeasuredAlgorithm:
    """What was measured, beside what was expected."""
    values, unit, paper, kept = sizes.values(), sizes.dtype.itemsize, counted.paper, federation.kept()
    cost = functools.partial(_cost, values=values)
    return MeasuredAlgorithm(
        algorithm=federation.label,
        sent={
            "down": cost(counted.down, paper.down, unit, federation.sent("down")),
            "up": cost(counted.up, paper.up, unit, federation.sent("up")),
        },
        kept={
            "client": cost(counted.client_bytes, paper.client_storage, unit, kept["client"]),
            "server": cost(counted.server_bytes, paper.server_storage, unit, kept["server"]),
            "scored_client": cost(counted.scored_client_bytes, None, unit, kept["scored_client"]),
            "scored_server": cost(counted.scored_server_bytes, None, unit, kept["scored_server"]),
        },
        beside=federation.beside(),
        computed={
            "client": cost(counted.client.arithmetic, paper.client, 1),
            "server": cost(counted.server.arithmetic, paper.server, 1),
        },
        expected=_expected(counted, baseline, sizes, guarded=guarded),
        seconds=federation.seconds(),
    )


def _expected(
    counted: AlgorithmCosts, baseline: AlgorithmCosts, sizes: Sizes, *, guarded: bool
) -> dict[str, dict[str, float | None]]:
    """How many times FedAvg's work it should be, if all operations took the same time."""
    bare = sizes.values()
    whole = bare | {"g": sizes.gradient or 0}
    mine, plain = (of.client.arithmetic + (of.guards.arithmetic if guarded else 0) for of in (counted, baseline))
    theirs, papers = counted.paper, baseline.paper
    return {
        "clients": {
            "paper": _ratio(theirs.client, papers.client, whole),
            "counted": None if "G" in mine.symbols() else _ratio(mine, plain, whole),
        },
        "arithmetic": {
            "paper": _ratio(theirs.client, papers.client, bare),
            "counted": _ratio(mine, plain, bare),
        },
        "server": {
            "paper": _ratio(theirs.server, papers.server, bare),
            "counted": _ratio(counted.server.arithmetic, baseline.server.arithmetic, bare),
        },
    }


def _ratio(mine: Formula | None, plain: Formula | None, values: Mapping[str, int]) -> float | None:
    return None if mine is None or plain is None else float(mine.value(values) / plain.value(values))
