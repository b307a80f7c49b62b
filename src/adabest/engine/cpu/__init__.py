"""Local training on CPU cores."""
