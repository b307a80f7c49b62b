"""Objectives: what models are trained for, one file each."""
