"""The settings of a run: what there are, what they mean, and how they become objects."""
