"""Callbacks of the loop over rounds: metrics, log, checkpoints, early stopping, progress."""
