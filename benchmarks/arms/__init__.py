"""What is measured: each module is a program of its own, which ``benchmarks.arms.worker`` connects to its parent.

A module must import nothing but the standard library, NumPy, its neighbours here, ``benchmarks.tasks`` and the package
that it measures: it is run in that package's own environment.
"""
