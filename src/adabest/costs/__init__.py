"""Costs of a round, what it computes, stores and sends: formulas, counts, measurements, and the paper's own figures."""
