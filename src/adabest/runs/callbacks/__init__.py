"""What happens beside the loop over rounds: metrics, log, checkpoints, early stopping, progress."""
