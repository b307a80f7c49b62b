"""The arms of a GPU. Data stay on it as bytes, batches are picked there by index, and a round ends with a wait for it.

Each is also right on a CPU, where tests compare it with plain autograd.
"""
