"""What users call and hold: a run, a comparison, a sweep, a tuning, with their tables and figures."""
