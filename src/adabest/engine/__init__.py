"""How a round is executed. ``interface`` is all that the outside needs to know of an engine."""
