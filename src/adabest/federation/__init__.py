"""From a data set to clients: partitioners, held-out clients, populations that change, cohorts and batches."""
