"""The public calls and their results: a run, a comparison, a sweep, a tuning, with their tables and figures."""
