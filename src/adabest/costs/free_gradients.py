"""A task whose gradients cost nothing, so that what is left of a client's work is the algorithm's own arithmetic."""

import torch
from torch import Tensor

from adabest.model_part import Part
from adabest.tasks.base import Heartbeat, LocalPass, Scores, ValidationScores, no_heartbeat
from adabest.tasks.objectives.metric import ACCURACY, Metric


class FreeGradients:
    """Equal clients whose gradient is one vector, made beforehand. Its calls are counted.

    Attributes:
        batches: How many gradients of mini-batches were asked for.
        full: How many gradients over all samples of a client were asked for.
    """

    def __init__(self, initial: Tensor, gradient: Tensor, *, steps: int, samples: int, private: int = 0) -> None:
        """Prepares all that clients will ask for.

        Args:
            initial: θ_0.
            gradient: What every gradient is.
            steps: K of each client.
            samples: n_i of each client.
            private: How many numbers any part of the model has.
        """
        self._initial, self._gradient, self._steps, self._samples = initial, gradient, steps, samples
        self._private = private
        self._nothing = torch.zeros(())
        self.batches = self.full = 0

    def initial_model(self) -> Tensor:
        """θ_0."""
        return self._initial

    def mask_of(self, part: Part) -> Tensor:
        """The last numbers, as many as any part has."""
        return torch.arange(len(self._initial)) >= len(self._initial) - self._private

    def samples(self, client: int) -> int:
        """n_i."""
        return self._samples

    def steps(self, client: int) -> int:
        """K_i."""
        return self._steps

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What a trained model would be judged by."""
        return (ACCURACY,)

    def local_pass(self, w: Tensor, client: int, round_number: int, step: int) -> LocalPass:
        """The gradient, and a loss and an accuracy of zero."""
        self.batches += 1
        return LocalPass(self._gradient, self._nothing, self._nothing)

    def full_gradient(self, w: Tensor, client: int) -> Tensor:
        """The gradient."""
        self.full += 1
        return self._gradient

    def test(self, w: Tensor, heartbeat: Heartbeat = no_heartbeat) -> Scores:
        """Zeros: no model is judged."""
        return Scores(0.0, {"accuracy": 0.0})

    def validate(self, w: Tensor, heartbeat: Heartbeat = no_heartbeat) -> ValidationScores | None:
        """None: there are no validation clients."""
        return None
