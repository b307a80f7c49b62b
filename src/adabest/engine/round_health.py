"""The health of a round: whether it has diverged, and whose replies count."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from adabest.engine.arrival import Arrival
from adabest.engine.gate import Rejection, Suspicions, finite_if_all_are
from adabest.engine.interface import ClientScores
from adabest.engine.receipt import Received
from adabest.engine.state import State


class RoundHealth(NamedTuple):
    """What tells whether a round has diverged, and whose replies count. On a GPU it may still be on its way.

    Attributes:
        round: The round.
        received: What was received in its phases.
        numbers: Two that are finite if the cloud and the aggregate are, then those of the doubts that aren't finite if
            something is wrong, then those that are below zero.
        doubted_weights: How many the last ones are.
    """

    round: int
    received: tuple[Received, ...]
    numbers: Arrival
    doubted_weights: int

    @classmethod
    def of(cls, after: State, received: Sequence[Received], doubts: Sequence[Suspicions]) -> "RoundHealth":
        """Asks for the facts about a round."""
        models = [finite_if_all_are(model) for model in (after.cloud, after.aggregate)]
        sizes = [size for doubt in doubts for size in doubt.sizes]
        weights = [weight for doubt in doubts for weight in doubt.weights]
        dtype = models[0].dtype
        numbers = [number if number.dtype == dtype else number.to(dtype) for number in (*models, *sizes, *weights)]
        return cls(after.round, tuple(received), Arrival(torch.stack(numbers)), len(weights))

    def is_sound(self) -> bool:
        """Whether nothing speaks against the assumption that all replies are good; waits until it is known."""
        numbers = self.numbers.read().tolist()
        weights = numbers[len(numbers) - self.doubted_weights :]
        return all(map(math.isfinite, numbers)) and all(weight >= 0 for weight in weights)

    def lost_model(self) -> str | None:
        """The model that isn't finite, in words; None if both are. Waits until it is known."""
        found = zip(("cloud", "aggregate"), self.numbers.read().tolist(), strict=False)
        return next((f"the {name} model isn't finite" for name, number in found if not math.isfinite(number)), None)

    def is_answered(self) -> bool:
        """Whether a reply was accepted."""
        return any(self.received[-1].verdict.accepted)

    def rejections(self) -> list[Rejection]:
        """The replies that were left out."""
        rejections = {
            rejection.client: rejection
            for one in reversed(self.received)  # the reason of a client is that of its first phase
            if not all(one.verdict.accepted)  # else nobody needs to know how their training went
            for rejection in one.verdict.rejections(self.round, one.scores_by_client())
        }
        return sorted(rejections.values())

    def accepted_scores(self) -> list[ClientScores]:
        """How the training of the clients went whose replies were accepted; waits until it is known."""
        found = list[ClientScores]()
        for one in self.received:
            accepted = set(one.verdict.accepted_clients())
            found += [own for scores in one.scores for own in scores.read() if own.client in accepted]
        return found
