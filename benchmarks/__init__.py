"""How fast this package is, beside others, and how its cost grows: ``python -m benchmarks --help``."""
