"""Models: modules that map inputs to class scores, and their parameters as one vector."""
