"""Replies of clients, one by one, as a round's."""

from collections.abc import Mapping, Sequence
from typing import Any

from adabest.engine.interface import stacked_states
from adabest.engine.reduction import ReducedReplies, reduce_replies


def reduce_pairs(means: Mapping[str, tuple[str, ...]], replies: Sequence[tuple[int, Any]]) -> ReducedReplies:
    """Averages replies that are given as pairs of a client and its reply."""
    return reduce_replies(means, [client for client, _ in replies], stacked_states([reply for _, reply in replies]))
