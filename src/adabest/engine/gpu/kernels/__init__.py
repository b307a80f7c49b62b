"""The operators of a batched program as Triton kernels, and their twins in plain torch; ``choice`` picks."""
