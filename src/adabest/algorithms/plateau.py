"""Decay on a plateau: a number shrinks when a norm has stopped changing."""

import torch
from torch import Tensor

_TOLERANCE = 0.01


def no_norms(like: Tensor, patience: int) -> Tensor:
    """An empty memory of twice ``patience`` norms: −∞ everywhere, ``[..., 2 · patience]``."""
    return like.new_full((*like.shape[:-1], 2 * patience), -torch.inf, dtype=torch.float64)


def decay_on_plateau(value: Tensor, norms: Tensor, vector: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    """Multiplies a value by a factor when the mean of the later half of its norms is within 1 % of the earlier half's.

    Then the memory of norms is emptied. Until it is full, the value stays: missing norms are −∞, and no mean is within
    1 % of that.

    Args:
        value: ``[..., 1]``.
        norms: The last norms, oldest first, ``[..., 2 · patience]``. With a length of 0, the value never changes.
        vector: This round's vector, whose norm is added, ``[..., P]``.
        factor: The factor.

    Returns:
        The value and the memory after this round.
    """
    if norms.shape[-1] == 0:
        return value, norms
    newest = torch.linalg.vector_norm(vector, dim=-1, keepdim=True, dtype=torch.float64)
    norms = torch.cat([norms[..., 1:], newest], dim=-1)
    earlier, later = (half.mean(dim=-1, keepdim=True) for half in norms.chunk(2, dim=-1))
    flat = (later - earlier).abs() <= _TOLERANCE * earlier
    return torch.where(flat, factor * value, value), torch.where(flat, -torch.inf, norms)
