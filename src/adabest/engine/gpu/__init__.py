"""Clients side by side in one program, as a GPU is fastest; a CPU can run it, too, in plain torch."""
