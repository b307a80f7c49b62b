"""From a data set to clients: partitioners, held-out clients, cohorts and batches."""

from adabest.federation.partition import Partition, Scheme, check_scheme, cut, default_validation_clients
from adabest.federation.partitioners import PARTITIONERS, Deal
from adabest.federation.sampling import cohort_size, draw_cohort

__all__ = [
    "PARTITIONERS",
    "Deal",
    "Partition",
    "Scheme",
    "check_scheme",
    "cohort_size",
    "cut",
    "default_validation_clients",
    "draw_cohort",
]
