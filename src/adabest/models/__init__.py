"""Models: what maps inputs to class scores, and how a model is one vector."""
