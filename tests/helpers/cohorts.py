"""The package's own cohorts, for tests that train without its simulation."""

import numpy as np

from adabest.federation.roster import Attendance, Roster


def draw_cohort(seed: int, round_number: int, clients: np.ndarray, size: int) -> np.ndarray:
    """Who takes part in a round, with so many a round of a population that never changes."""
    attendance = Attendance(participation=size / len(clients), seed=seed)
    roster = Roster(clients, np.ones(len(clients), dtype=np.int64), attendance)
    roster.advance(round_number)
    return roster.cohort()
