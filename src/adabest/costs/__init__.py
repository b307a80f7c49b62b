"""What a round computes, stores and sends: formulas, counts, measurements, and the paper's own figures."""
