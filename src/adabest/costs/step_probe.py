"""Step probe: how long a local step and an evaluation take on this machine, by a few rounds of a small federation.

The probe has the model, the batch size, the engine, the device and the precision of a run, and few clients with few
samples. Nothing is written.
"""

import dataclasses
from typing import NamedTuple

from adabest.algorithms.base import Work
from adabest.costs.section_timer import read_clocks
from adabest.engine.lanes import advance
from adabest.runs.build import build_federation, make_engine
from adabest.runs.process_settings import ProcessSettings
from adabest.runs.settings.config import Config
from adabest.runs.settings.resolution import Components
from adabest.stop_requests import StopRequests

_FEW = 2  # local steps of a client in the first round
_TESTED = 500  # samples of the test set
_MOST_CLIENTS = {"cpu": 8, "cuda": 256}  # side by side; more would take no longer for each step
_ENOUGH = 0.5  # seconds of training
_MOST_ROUNDS = 20


class ProbedTimes(NamedTuple):
    """Times of a probe.

    Attributes:
        clients: How many clients trained side by side.
        steps: How many local steps were timed; a batch of a full gradient, forward and backward, counts as one.
        step: Seconds for one local step of one client.
        evaluation: Seconds for one sample of an evaluation, by all models that are evaluated.
    """

    clients: int
    steps: int
    step: float
    evaluation: float


def clients_in_probe(config: Config, side_by_side: int) -> int:
    """How many clients a probe has, for a run whose program trains ``side_by_side``."""
    return max(1, min(side_by_side, _MOST_CLIENTS["cuda" if config.device.startswith("cuda") else "cpu"]))


def probe_steps(config: Config, components: Components, clients: int, steps: int) -> ProbedTimes:
    """Times some local steps and an evaluation.

    A first round has two steps for each client. If that is quick, others have more, up to the run's own number: what a
    round takes beside its steps then counts as much as in the run.

    Args:
        config: The complete configuration of the run that the times are for.
        components: The objects that the configuration names.
        clients: How many clients train side by side.
        steps: How many local steps a client of the run makes in a round.

    Raises:
        InputError: If anything in the configuration can't be used.
        Interrupted: If a signal asked to stop.
    """
    few = min(_FEW, steps)
    times, seconds = _timed(config, components, clients, few)
    more = min(steps, int(few * _ENOUGH / max(seconds, 1e-9)))
    return times if more <= few else _timed(config, components, clients, more)[0]


def _timed(config: Config, components: Components, clients: int, steps: int) -> tuple[ProbedTimes, float]:
    """The times with a number of local steps for each client, and the seconds of a round."""
    small, parts = _small(config, components, clients, steps)
    with StopRequests() as requests, ProcessSettings.of(small, parts).entered():
        engine = make_engine(small)(requests.heartbeat)
        federation = build_federation(small, parts, requests.heartbeat)
        simulation, device = federation.simulation, federation.task.initial_model().device
        advance(simulation.round(evaluate=True), engine)  # loads and compiles what a first round needs
        begin, rounds = read_clocks(device), 0
        while rounds == 0 or (rounds < _MOST_ROUNDS and read_clocks(device).minus(begin).wall < _ENOUGH):
            advance(simulation.round(evaluate=False), engine)
            rounds += 1
        middle = read_clocks(device)
        advance(simulation.round(evaluate=True), engine)
        trained, whole = middle.minus(begin).wall / rounds, read_clocks(device).minus(middle).wall
    held_out = int(federation.partition.samples[federation.partition.validation].sum())
    evaluated = len(parts.dataset.y_test) + held_out
    # The clients have one batch each, so a full gradient is one more pass over a batch.
    made = clients * (steps + parts.algorithm.phases.count(Work.GRADIENT))
    return ProbedTimes(clients, rounds * made, trained / made, max(0.0, whole - trained) / evaluated), trained


def _small(config: Config, components: Components, clients: int, steps: int) -> tuple[Config, Components]:
    """The configuration of the probe, and its part of the data set."""
    dataset, batch_size = components.dataset, config.batch_size or 1
    validating = min(1, config.validation_clients or 0)
    own = min(batch_size, max(1, len(dataset.y_train) // (clients + validating)))
    used = own * (clients + validating)
    part = dataclasses.replace(
        dataset,
        x_train=dataset.x_train[:used],
        y_train=dataset.y_train[:used],
        x_test=dataset.x_test[:_TESTED],
        y_test=dataset.y_test[:_TESTED],
        clients=None,
    )
    small = dataclasses.replace(
        config,
        clients=clients,
        validation_clients=validating,
        participation=1.0,
        sampler="uniform",
        churn=0.0,
        schedule=(),
        partition="iid",
        unbalance=0.0,
        epochs=steps,  # of one batch each
        local_steps="own",
        rounds=2,  # so that an averaged model, of the second half of the rounds, is evaluated, too
    )
    return small, dataclasses.replace(components, dataset=part)
