"""From a data set to clients: partitioners, held-out clients, populations that change, cohorts and batches."""

from adabest.federation.partition import (
    NATURAL,
    Partition,
    Scheme,
    check_scheme,
    cut,
    default_partition,
    default_validation_clients,
)
from adabest.federation.partitioners import PARTITIONERS, Deal
from adabest.federation.roster import Attendance, Roster
from adabest.federation.sampling import SAMPLERS, Draw

__all__ = [
    "NATURAL",
    "PARTITIONERS",
    "SAMPLERS",
    "Attendance",
    "Deal",
    "Draw",
    "Partition",
    "Roster",
    "Scheme",
    "check_scheme",
    "cut",
    "default_partition",
    "default_validation_clients",
]
