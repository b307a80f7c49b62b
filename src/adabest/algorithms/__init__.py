"""The algorithms: ``base`` has the idea, each file one instance of it, and ``catalog`` their names."""
