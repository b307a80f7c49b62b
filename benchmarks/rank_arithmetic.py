"""Ranks by arithmetic: the bytes that each sends in a round, where clients train, and how long rounds take on GPUs."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from adabest.engine.distributed.placement import Slices, share_out

_ALIGNED = 16  # bytes: tensors in a parcel begin at multiples
_FLOAT = 4  # bytes
_SEED = 0
LEAST_EFFICIENCY = 0.5  # under it, more ranks are called not worth it


# --- Bytes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Traffic:
    """What an algorithm sends in a round, in vectors of the model's length and in numbers.

    Attributes:
        parameters: P.
        message_numbers: Numbers in the message, beside one vector.
        reply_vectors: Vectors in a reply that are averaged.
        means: Means of vectors that rank 0 gets.
        state_vectors: Vectors in the state of a client.
        state_numbers: Numbers in it.
    """

    parameters: int
    message_numbers: int = 0
    reply_vectors: int = 1
    means: int = 1
    state_vectors: int = 0
    state_numbers: int = 0

    @property
    def message(self) -> int:
        """The bytes of the message to each rank."""
        return _padded(_FLOAT * self.parameters) + _ALIGNED * self.message_numbers

    @property
    def state(self) -> int:
        """The bytes of a client's state when it moves."""
        return self.state_vectors * _padded(_FLOAT * self.parameters) + _ALIGNED * self.state_numbers


def adabest(parameters: int) -> Traffic:
    """AdaBest: θ and n̄ down, θ_i up; h_i and t'_i are kept."""
    return Traffic(parameters, message_numbers=1, state_vectors=1, state_numbers=1)


def fedavg(parameters: int) -> Traffic:
    """FedAvg: θ down, θ_i up; nothing is kept."""
    return Traffic(parameters)


ALGORITHMS = {"adabest": adabest, "fedavg": fedavg}


def round_bytes(traffic: Traffic, clients: Sequence[int], moves: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """The bytes that each rank sends and receives in a round.

    Args:
        traffic: What the algorithm sends.
        clients: How many clients train at each rank.
        moves: The rank that a client's state leaves and the one that it goes to, for each that moves.
    """
    size = len(clients)
    slices = Slices(traffic.parameters, size)
    found = []
    for rank, own in enumerate(clients):
        width = slices.width(rank)
        reply, mean = _FLOAT * traffic.reply_vectors, _FLOAT * traffic.means
        sent = reply * own * (traffic.parameters - width)
        received = reply * (sum(clients) - own) * width
        if rank == 0:
            sent += traffic.message * (size - 1)
            received += mean * (traffic.parameters - width)
        else:
            sent += mean * width
            received += traffic.message
        sent += traffic.state * sum(source == rank != target for source, target in moves)
        received += traffic.state * sum(target == rank != source for source, target in moves)
        found.append((sent, received))
    return found


def _padded(length: int) -> int:
    return math.ceil(length / _ALIGNED) * _ALIGNED


# --- Placement --------------------------------------------------------------------------------------------------------


class Placed(NamedTuple):
    """How rounds are shared out, on average over rounds.

    Attributes:
        makespan: Local steps of the rank that has the most.
        share: Local steps of all ranks over the number of ranks.
        moved: States that move in a round.
        most_moved: States that leave or reach the rank that has the most such.
    """

    makespan: float
    share: float
    moved: float
    most_moved: float


def local_steps(population: int, mean: int, spread: float) -> list[int]:
    """K_i of clients whose sizes are lognormal, or equal if ``spread`` is 0."""
    sizes = np.exp(np.random.default_rng(_SEED).normal(scale=spread, size=population))
    return [max(1, round(value)) for value in (sizes * mean / sizes.mean()).tolist()]


def place(steps: Sequence[int], cohort: int, ranks: int, rule: str, rounds: int = 300) -> Placed:
    """Shares out the cohorts of many rounds.

    The first third isn't counted: clients that take part for the first time have no state that could move.

    Args:
        steps: K_i of every client.
        cohort: Clients of a round.
        ranks: How many there are.
        rule: ``balanced``, as the package does it, or ``home``: a client's number modulo the ranks.
        rounds: How many.
    """
    generator = np.random.default_rng(_SEED)
    homes: dict[int, int] = {}
    made = []
    for number in range(rounds):
        clients = sorted(generator.choice(len(steps), cohort, replace=False).tolist())
        own = [steps[client] for client in clients]
        if rule == "home":
            chosen = [client % ranks for client in clients]
        else:
            chosen = share_out(own, [homes.get(client) for client in clients], ranks)
        moves = [(homes[client], rank) for client, rank in zip(clients, chosen, strict=True) if client in homes]
        moves = [(source, target) for source, target in moves if source != target]
        homes |= dict(zip(clients, chosen, strict=True))
        loads, ends = [0] * ranks, [[0] * ranks, [0] * ranks]
        for rank, load in zip(chosen, own, strict=True):
            loads[rank] += load
        for move in moves:
            for end, rank in zip(ends, move, strict=True):
                end[rank] += 1
        if number >= rounds // 3:
            made.append((max(loads), sum(own) / ranks, len(moves), max(map(max, ends))))
    return Placed(*(float(np.mean(column)) for column in zip(*made, strict=True)))


# --- Rounds on GPUs ---------------------------------------------------------------------------------------------------


class Link(NamedTuple):
    """What connects ranks.

    Attributes:
        name: What it is called.
        nominal: Bytes a second of one rank in one direction, as the maker says.
        efficiency: The part of it that is reckoned with.
        latency: Seconds of one collective operation.
    """

    name: str
    nominal: float
    efficiency: float
    latency: float

    @property
    def bandwidth(self) -> float:
        """Bytes a second that are reckoned with."""
        return self.nominal * self.efficiency


LINKS = {
    "nvlink": Link("NVLink 4, 450 GB/s each way", 450e9, 0.8, 20e-6),
    "infiniband": Link("InfiniBand NDR, 400 Gb/s a GPU", 50e9, 0.8, 30e-6),
    "ethernet": Link("Ethernet, 25 Gb/s a GPU", 3.125e9, 0.8, 60e-6),
    "shared-ethernet": Link("Ethernet, 25 Gb/s for 8 GPUs of a node", 3.125e9 / 8, 0.8, 60e-6),
}


@dataclass(frozen=True)
class Job:
    """A round by arithmetic.

    Attributes:
        name: What tables call it.
        model: The model whose rates are taken.
        traffic: What is sent.
        clients: Clients of a round, all with as many local steps.
        steps: K_i.
    """

    name: str
    model: str
    traffic: Traffic
    clients: int = 100
    steps: int = 50


class Fixed(NamedTuple):
    """Seconds of a round that more ranks don't shorten.

    Attributes:
        alone: What a round takes beside the kernels, also on one GPU: tables of batches, server step, files.
        control: Orders and answers between ranks, by the number of ranks at which they were measured.
        lateness: By how much a wait for others ends later than what it waits for.
    """

    alone: float
    control: Mapping[int, float]
    lateness: float

    def seconds(self, ranks: int) -> float:
        """The sum at a number of ranks: control is a straight line between measurements, and flat beyond the last."""
        if ranks == 1:
            return self.alone
        known = sorted(self.control)
        return self.alone + self.lateness + float(np.interp(ranks, known, [self.control[size] for size in known]))


class RoundTime(NamedTuple):
    """A round on some ranks, in seconds.

    Attributes:
        ranks: How many.
        training: The kernels of the rank with the most clients.
        exchange: Message, replies and means on the link.
        moving: States that move, on the link.
        fixed: What doesn't get shorter.
        efficiency: The time on one rank, over ranks times this time.
    """

    ranks: int
    training: float
    exchange: float
    moving: float
    fixed: float
    efficiency: float

    @property
    def seconds(self) -> float:
        """The whole."""
        return self.training + self.exchange + self.moving + self.fixed


def step_seconds(rates: Mapping[int, float], clients: int) -> float:
    """The time of one local step of clients that train side by side.

    Between two numbers of clients that were measured the time is a straight line; beyond the last, a client-step costs
    as much as there.

    Args:
        rates: Microseconds a client-step, by the number of clients side by side.
        clients: The number of clients.
    """
    known = sorted(rates)
    if clients >= known[-1]:
        return clients * rates[known[-1]] * 1e-6
    for low, high in itertools.pairwise(known):
        if low <= clients <= high:
            begin, end = low * rates[low], high * rates[high]
            return (begin + (end - begin) * (clients - low) / (high - low)) * 1e-6
    raise ValueError(f"{clients} clients are fewer than the {known[0]} of the first rate")


def round_time(
    job: Job, rates: Mapping[int, float], link: Link, ranks: int, *, fixed: Fixed, moved: float
) -> RoundTime:
    """A round of a job on some ranks.

    Args:
        job: The job.
        rates: Microseconds a client-step, by the number of clients side by side.
        link: What connects the ranks.
        ranks: How many.
        fixed: What doesn't get shorter.
        moved: States that leave or reach the busiest rank.
    """
    alone = job.steps * step_seconds(rates, job.clients) + fixed.alone
    share = math.ceil(job.clients / ranks)
    training = job.steps * step_seconds(rates, share)
    if ranks == 1:
        return RoundTime(1, training, 0.0, 0.0, fixed.alone, 1.0)
    rank_bytes = _FLOAT * job.traffic.parameters
    # A broadcast in a ring passes each link once; of replies all but a rank's own slice leave it; rank 0 gets means.
    sent = job.traffic.message + (ranks - 1) / ranks * rank_bytes * (
        share * job.traffic.reply_vectors + job.traffic.means
    )
    exchange = sent / link.bandwidth + 3 * link.latency
    moving = moved * job.traffic.state / link.bandwidth + (link.latency if moved else 0.0)
    rest = fixed.seconds(ranks)
    whole = training + exchange + moving + rest
    return RoundTime(ranks, training, exchange, moving, rest, alone / (ranks * whole))


def last_worthwhile(
    job: Job, rates: Mapping[int, float], link: Link, fixed: Fixed, moved: Mapping[int, float] | None = None
) -> int:
    """The largest number of ranks, up to one a client, before the efficiency falls under a half for the first time.

    Args:
        job: The job.
        rates: Microseconds a client-step, by the number of clients side by side.
        link: What connects the ranks.
        fixed: What doesn't get shorter.
        moved: States that leave or reach the busiest rank, at some numbers of ranks; a straight line in between. None
            if there are no states.
    """
    known = sorted(moved or {2: 0.0})
    states = [moved[size] if moved else 0.0 for size in known]
    worth = 1
    for ranks in range(2, job.clients + 1):
        own = float(np.interp(ranks, known, states))
        if round_time(job, rates, link, ranks, fixed=fixed, moved=own).efficiency < LEAST_EFFICIENCY:
            break
        worth = ranks
    return worth


def as_rates(stored: Mapping[str, Any]) -> dict[int, float]:
    """Rates as JSON has them, with numbers for keys."""
    return {int(clients): float(value) for clients, value in stored.items()}
