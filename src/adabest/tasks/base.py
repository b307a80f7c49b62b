"""The interface of tasks: the objective of every client, and how a model is judged.

The engines know objectives only through it, so the same round trains a network on images and a quadratic in a test.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from torch import Tensor

from adabest.model_part import Part
from adabest.tasks.objectives.metric import Metric

Heartbeat = Callable[[], None]


def no_heartbeat() -> None:
    """A heartbeat that never interrupts."""


class LocalPass(NamedTuple):
    """One forward and backward pass of a client.

    Attributes:
        gradient: ∇L(w) over the batch, ``[P]``; valid until the next pass.
        loss: The batch's loss.
        value: The batch's value of the task's first metric.
    """

    gradient: Tensor
    loss: Tensor
    value: Tensor


class Scores(NamedTuple):
    """Loss and metrics of a model on the test set, metrics by name."""

    loss: float
    values: Mapping[str, float]


class ValidationScores(NamedTuple):
    """The first metric on the validation clients: mean over clients, standard deviation, mean of the worst tenth.

    Attributes:
        mean: The mean.
        spread: The standard deviation.
        worst_tenth: The mean over the worst tenth of clients.
        others: The means over clients of the user's own metrics, by name; None if there are none.
    """

    mean: float
    spread: float
    worst_tenth: float
    others: Mapping[str, float] | None = None


class Task(Protocol):
    """The clients' objectives, and how a model is judged."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What models are judged by; the first is what is told of them."""

    def initial_model(self) -> Tensor:
        """θ_0."""

    def mask_of(self, part: Part) -> Tensor:
        """Which numbers of a model belong to a part of it, bool ``[P]``.

        Raises:
            InputError: If the model has no such part.
        """

    def samples(self, client: int) -> int:
        """n_i."""

    def steps(self, client: int) -> int:
        """K_i."""

    def local_pass(self, w: Tensor, client: int, round_number: int, step: int) -> LocalPass:
        """The gradient of client i's objective on the batch of this step (from 0)."""

    def full_gradient(self, w: Tensor, client: int) -> Tensor:
        """The gradient of client i's objective over all its samples."""

    def test(self, w: Tensor, heartbeat: Heartbeat = no_heartbeat) -> Scores:
        """The scores of a model on the test set."""

    def validate(self, w: Tensor, heartbeat: Heartbeat = no_heartbeat) -> ValidationScores | None:
        """The scores of a model on the clients that never train; None if there are none."""
