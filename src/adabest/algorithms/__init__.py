"""The algorithms: ``base`` states the idea, each other file one algorithm, and ``catalog`` their names."""
