"""Runs: what survives. Settings, files, checkpoints, resuming, and the loop over rounds with its callbacks."""
