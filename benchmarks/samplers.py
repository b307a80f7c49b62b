"""What a draw of 10 clients and a round of churn cost, for populations of a thousand to ten million."""

import time

import numpy as np

from adabest.federation.roster import Attendance, Roster
from adabest.federation.sampling import SAMPLERS
from adabest.report.table import Table

POPULATIONS = (10**3, 10**4, 10**5, 10**6, 10**7)
COHORT, CHANGES, ROUNDS = 10, 10, 200


def measure() -> dict[str, list[float]]:
    """Microseconds of a round of each kind, for each population."""
    measured = {
        sampler: [_microseconds(population, sampler) for population in POPULATIONS] for sampler in SAMPLERS.builtin
    }
    measured["weighted, one with as much as all others"] = [
        _microseconds(population, "weighted", giant=True) for population in POPULATIONS
    ]
    measured[f"uniform, and {CHANGES} clients that come or go"] = [
        _microseconds(population, "uniform", CHANGES / population) for population in POPULATIONS
    ]
    return measured


def _microseconds(population: int, sampler: str, churn: float = 0.0, *, giant: bool = False) -> float:
    """The mean over rounds of what it takes to let clients come and go and to draw the cohort, the first left out."""
    samples = np.random.default_rng(0).lognormal(sigma=0.3, size=population) * 500 + 1
    if giant:
        samples[0] = samples.sum()
    attendance = Attendance(participation=COHORT / population, sampler=sampler, churn=churn)
    roster = Roster(np.arange(population), samples.astype(np.int64), attendance)
    roster.advance(1)
    roster.cohort()
    begun = time.perf_counter()
    for round_number in range(2, ROUNDS + 2):
        roster.advance(round_number)
        roster.cohort()
    return (time.perf_counter() - begun) / ROUNDS * 1e6


def table(measured: dict[str, list[float]]) -> Table:
    """Draws in numbers."""
    head = (f"{COHORT} of", *(f"{population:,}" for population in POPULATIONS))
    return Table(head, tuple((name, *(f"{t:,.0f} µs" for t in times)) for name, times in measured.items()))
