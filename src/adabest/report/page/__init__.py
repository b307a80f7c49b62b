"""The page of runs: one HTML file that needs nothing else."""
