"""The files of runs and of results: written atomically, proven by checksums, read as data."""
