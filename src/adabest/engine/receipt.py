"""The receipt of replies: the gate first, then the reduction of those that are accepted."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from adabest.algorithms.base import Replies
from adabest.engine.gate import (
    Columns,
    Suspicions,
    Verdict,
    are_good,
    inspect,
    judge,
    remember,
    sound_states,
    suspicions,
)
from adabest.engine.gate_rules import Gate
from adabest.engine.interface import Answers, ClientScores, Request, TrainingScores, stacked_states
from adabest.engine.private_part import private_bytes
from adabest.engine.reduction import reduce_replies


class Received(NamedTuple):
    """What the server has of a phase of a round.

    Attributes:
        request: What was asked.
        clients: The clients that answered, in the order of the request.
        verdict: Whose replies are accepted.
        reduce: Gives the accepted ones, averaged, and what tells later that one of them isn't good after all; None if
            none is accepted.
        steps: The number of local steps that each client made.
        scores: How their training went, some clients after others.
        bytes_up: The bytes of all replies, without what is private.
        remembered: The norms of the last accepted replies; None where no limit needs them.
        answers: The answers themselves, where the clients live in this process.
    """

    request: Request
    clients: list[int]
    verdict: Verdict
    reduce: Callable[[], tuple[Replies, Suspicions | None]] | None
    steps: list[int]
    scores: tuple[TrainingScores, ...]
    bytes_up: int
    remembered: Tensor | None = None
    answers: Answers | None = None

    def scores_by_client(self) -> dict[int, ClientScores]:
        """How the training of the clients went; waits until it is known."""
        return {own.client: own for scores in self.scores for own in scores.read()}


def assume(request: Request, answers: Answers) -> Received:
    """Averages replies that are in this process, as if all were good."""
    columns = Columns.of(request.algorithm, request.context.phase, request.gate.limit)

    def reduce() -> tuple[Replies, Suspicions]:
        reduced = reduce_replies(request.algorithm.means, answers.clients, answers.replies)
        return reduced, suspicions(
            columns, answers.replies, reduced.all_means(), request.algorithm.means, answers.states
        )

    verdict = Verdict(answers.clients, [True] * len(answers.clients))
    return _received(request, answers, verdict, reduce)


def receive(request: Request, answers: Answers, gate: Gate, remembered: Tensor | None = None) -> Received:
    """Judges and averages replies that are in this process.

    Args:
        request: What was asked.
        answers: What the clients answered.
        gate: The rules of the gate.
        remembered: The norms of replies accepted before in this phase.
    """
    columns = Columns.of(request.algorithm, request.context.phase, gate.limit)
    if not columns.norms and not answers.faults and are_good(columns, answers.replies):
        everyone = Verdict(answers.clients, [True] * len(answers.clients))
        answers = with_sound_states(request, answers)
        return _received(
            request,
            answers,
            everyone,
            lambda: (reduce_replies(request.algorithm.means, answers.clients, answers.replies), None),
        )
    facts = inspect(columns, request.message.cloud, answers.replies, len(answers.clients))
    verdict = judge(answers.clients, facts, columns, gate.limit, remembered, faults=answers.faults)
    answers = with_sound_states(request, answers)

    def reduce() -> tuple[Replies, None]:
        # Where all are accepted, the reduction does, and costs, what it would without a gate.
        accepted = None if all(verdict.accepted) else verdict.accepted
        return reduce_replies(request.algorithm.means, answers.clients, answers.replies, accepted), None

    received = _received(request, answers, verdict, reduce if any(verdict.accepted) else None)
    if not gate.limit.of_median:
        return received
    return received._replace(remembered=remember(remembered, facts, columns, verdict.accepted))


def with_sound_states(request: Request, answers: Answers) -> Answers:
    """Answers in which a client whose new state isn't finite has its old one."""
    if not request.message.cloud.is_cuda:
        return answers  # the engine has seen to it
    before = stacked_states([request.clients[client] for client in answers.clients])
    return answers._replace(states=sound_states(answers.states, before))


def _received(
    request: Request,
    answers: Answers,
    verdict: Verdict,
    reduce: Callable[[], tuple[Replies, Suspicions | None]] | None,
) -> Received:
    hidden = private_bytes(request.private, type(answers.replies), request.message.cloud)
    return Received(
        request=request,
        clients=answers.clients,
        verdict=verdict,
        reduce=reduce,
        steps=answers.steps,
        scores=answers.scores,
        bytes_up=sum(field.numel() * field.element_size() for field in answers.replies) - len(answers.clients) * hidden,
        answers=answers,
    )
