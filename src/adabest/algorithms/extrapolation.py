"""A β that sets itself: the extrapolation is kept at a fixed share of one client's own way.

AdaBest sends out θ = θ̄ − h with h = βΔ and Δ = θ̄_prev − θ̄, so β says how far the cloud model runs ahead of the last
aggregate. With few clients a round, or skewed labels, most of Δ is chance, and the next cohort undoes it. What is
nearly the same for all cohorts of one task isn't the best β but the length of the best h, beside the way that one
client goes in a round. So the rule keeps ‖h‖ there::

    β = min(β_max, r G / D)        G² the mean of ‖g_i‖² over replies,  D² that of ‖Δ‖²
    r = r_0 (1 − 3 c / |P|²)       c  the mean of −cos(ḡ_t, Δ_{t−1}), at least 0

Means over rounds forget a tenth a round. G and D follow the learning rate, the cohort's size and the task. c tells how
much of the last change of θ̄ a round undoes: about .15 with IID labels, and .2 with skewed ones. Its factor is
for cohorts of one or two, in which no other client averages a drift out: with one client it is .7 where c is .1, and
.25 where c is .25; with ten it is 1. No formula has the number of clients that there are.

``docs/explanation/beta.md`` derives it, and tells what it was tried on and where it fails.
"""

import torch
from torch import Tensor

from adabest.algorithms.sums import dot

_SHARE = 0.6  # r_0: ‖h‖ beside G
_LARGEST = 0.99  # β_max: a memory of a hundred rounds
_UNDOING = 3.0  # how much an undone change counts, for a cohort of one
_KEPT = 0.9  # of the means, from one round to the next
_MEANS = 4  # G² and D², whose weights cancel, and the weight and the value of c, which has none in the first round


def no_means(like: Tensor) -> Tensor:
    """Means of nothing, ``[..., 4]`` in float64."""
    return like.new_zeros((*like.shape[:-1], _MEANS), dtype=torch.float64)


def next_means(means: Tensor, square: Tensor, pseudo_gradient: Tensor, last: Tensor, change: Tensor) -> Tensor:
    """The means after a round.

    Args:
        means: Those before it.
        square: The mean of ‖g_i‖² over its replies, ``[..., 1]``.
        pseudo_gradient: ḡ_t.
        last: Δ_{t−1}; zero before the second round, when there is no angle.
        change: Δ_t.
    """
    lengths = (dot(pseudo_gradient, pseudo_gradient) * dot(last, last)).sqrt()
    known = lengths > 0
    undone = torch.where(known, -dot(pseudo_gradient, last) / torch.where(known, lengths, 1.0), 0.0)
    newest = torch.cat([square.to(torch.float64), dot(change, change), known.to(torch.float64), undone], dim=-1)
    return _KEPT * means + (1.0 - _KEPT) * newest


def extrapolated_share(means: Tensor, replies: int) -> Tensor:
    """β, float64 ``[..., 1]``.

    Args:
        means: The means after this round.
        replies: |P|.
    """
    square, change, known, undone = (means[..., place : place + 1] for place in range(_MEANS))
    c = (undone / torch.where(known > 0, known, 1.0)).clamp(min=0.0)
    r = _SHARE * (1.0 - _UNDOING * c / replies**2).clamp(min=0.0)
    moved = change > 0
    return torch.where(moved, r * (square / torch.where(moved, change, 1.0)).sqrt(), 0.0).clamp(max=_LARGEST)
