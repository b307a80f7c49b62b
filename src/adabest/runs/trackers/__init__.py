"""Experiment trackers that get every row of metrics while a run goes on."""
