"""Weights of a population that changes, drawn from in time that grows with the logarithm of its size."""

import numpy as np


class WeightTree:
    """A Fenwick tree of whole-number weights of items 0 … n−1: a prefix sum takes log₂ n steps.

    Node i, from 1, holds the sum of the last (i & −i) weights up to the i-th.
    """

    def __init__(self, weights: np.ndarray) -> None:
        sums = np.concatenate([[0], np.cumsum(weights, dtype=np.int64)])
        nodes = np.arange(len(sums))
        self._nodes = sums - sums[nodes - (nodes & -nodes)]
        self._top = 1 << (len(weights).bit_length() - 1)
        self.total = int(sums[-1])

    def add(self, item: int, weight: int) -> None:
        """Adds to an item's weight."""
        self.total += weight
        node = item + 1
        while node < len(self._nodes):
            self._nodes[node] += weight
            node += node & -node

    def find(self, target: int) -> int:
        """The item in whose share of the total a number in [0, total) falls."""
        node, step = 0, self._top
        while step:
            if node + step < len(self._nodes) and self._nodes[node + step] <= target:
                node += step
                target -= int(self._nodes[node])
            step //= 2
        return node
