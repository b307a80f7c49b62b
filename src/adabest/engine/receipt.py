"""The receipt of replies: the gate first, then the reduction of those that are accepted."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from adabest.algorithms.base import Replies
from adabest.engine.gate import Columns, Verdict, inspect, judge, remember
from adabest.engine.gate_rules import Gate
from adabest.engine.interface import Answers, ClientScores, Request, TrainingScores
from adabest.engine.reduction import reduce_replies


class Received(NamedTuple):
    """What the server has of a phase of a round.

    Attributes:
        request: What was asked.
        clients: The clients that answered, in the order of the request.
        verdict: Whose replies are accepted.
        reduce: Gives the accepted ones, averaged; None where it is known that there are none.
        steps: The number of local steps that each client made.
        scores: How their training went, some clients after others.
        bytes_up: The bytes of all replies.
        remembered: The norms of the last accepted replies; None where no limit needs them.
        answers: The answers themselves, where the clients live in this process.
    """

    request: Request
    clients: list[int]
    verdict: Verdict
    reduce: Callable[[], Replies] | None
    steps: list[int]
    scores: tuple[TrainingScores, ...]
    bytes_up: int
    remembered: Tensor | None = None
    answers: Answers | None = None

    def scores_by_client(self) -> dict[int, ClientScores]:
        """How the training of the clients went; waits until it is known."""
        return {own.client: own for scores in self.scores for own in scores.read()}


def receive(
    request: Request, answers: Answers, gate: Gate, remembered: Tensor | None = None, among: Tensor | None = None
) -> Received:
    """Judges and averages replies that are in this process.

    Args:
        request: What was asked.
        answers: What the clients answered.
        gate: The rules of the gate.
        remembered: The norms of replies accepted before in this phase.
        among: Whether each client was accepted in the phases before; None if there were none.
    """
    columns = Columns.of(request.algorithm, request.context.phase, gate.limit)
    facts = inspect(columns, request.message.cloud, answers.replies)
    verdict = judge(answers.clients, facts, columns, gate.limit, remembered, faults=answers.faults, among=among)

    # Whether all are accepted is found out here: the reduction does, and costs, what it would without a gate.
    known = verdict.accepted() if verdict.is_there else None
    accepted = None if known == answers.clients else verdict.mask

    def reduce() -> Replies:
        return reduce_replies(request.algorithm.means, answers.clients, answers.replies, accepted)

    return Received(
        request=request,
        clients=answers.clients,
        verdict=verdict,
        reduce=None if known == [] else reduce,
        steps=answers.steps,
        scores=answers.scores,
        bytes_up=sum(field.numel() * field.element_size() for field in answers.replies),
        remembered=remember(remembered, facts, columns, verdict.mask) if gate.limit.of_median else None,
        answers=answers,
    )
