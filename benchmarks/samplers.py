"""What a draw of 10 clients and a round of churn cost, for populations of a thousand to ten million; prints a table.

python benchmarks/samplers.py
"""

import time

import numpy as np

from adabest.federation import SAMPLERS, Attendance, Roster
from adabest.report import Table

POPULATIONS = (10**3, 10**4, 10**5, 10**6, 10**7)
COHORT, CHANGES, ROUNDS = 10, 10, 200


def microseconds(population: int, sampler: str, churn: float = 0.0, *, giant: bool = False) -> float:
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


rows = [
    (sampler, *(f"{microseconds(population, sampler):,.0f} µs" for population in POPULATIONS))
    for sampler in SAMPLERS.builtin
]
rows.append(
    (
        "weighted, one with as much as all others",
        *(f"{microseconds(population, 'weighted', giant=True):,.0f} µs" for population in POPULATIONS),
    )
)
rows.append(
    (
        f"uniform, and {CHANGES} clients that come or go",
        *(f"{microseconds(population, 'uniform', CHANGES / population):,.0f} µs" for population in POPULATIONS),
    )
)
print(Table((f"{COHORT} of", *(f"{population:,}" for population in POPULATIONS)), tuple(rows)).markdown())
