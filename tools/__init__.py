"""What makes the pages of the docs out of the package and of results."""
