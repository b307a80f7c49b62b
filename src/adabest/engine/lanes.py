"""Lanes: runs as generators, advanced in lock-step by one engine.

A lane yields a ``Request`` whenever its clients have work, and is sent their ``Answers``; it yields a ``ServerStep``
whenever its server has, and is sent an ``Update``. At its end it returns a result. It doesn't know whether other lanes
are advanced with it.
"""

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from adabest.algorithms.base import Update
from adabest.engine.interface import Answers, Engine, Request
from adabest.engine.server_step import ServerStep, take_server_steps
from adabest.errors import Diverged

Result = TypeVar("Result")
Lane = Generator[Request | ServerStep, Any, Result]


def advance(lane: Lane[Result], engine: Engine) -> Result:
    """Runs a single lane to its end.

    Raises:
        Diverged: If the run diverges and the lane doesn't catch it.
    """
    return advance_together([lane], engine)[0]


def advance_together(lanes: Sequence[Lane[Result]], engine: Engine) -> list[Result]:
    """Runs lanes to their ends; requests that are there at the same time go to the engine in one call.

    An exception in a lane or in the engine is raised in all other lanes, too, so that each can save its state.
    """
    results: dict[int, Result] = {}
    requests: dict[int, Request] = {}
    steps: dict[int, ServerStep] = {}

    def move(number: int, answer: Answers | Update | Diverged | None) -> None:
        lane = lanes[number]
        try:
            if isinstance(answer, Diverged):
                asked = lane.throw(answer)
            else:
                asked = next(lane) if answer is None else lane.send(answer)
        except StopIteration as end:
            results[number] = end.value
            return
        if isinstance(asked, ServerStep):
            steps[number] = asked
        else:
            requests[number] = asked

    try:
        for number in range(len(lanes)):
            move(number, None)
        while requests or steps:
            # Servers first, so that as many lanes as possible wait for their clients, who then train at the same time.
            waiting = list(steps or requests)
            answers: Sequence[Answers | Update | Diverged]
            if steps:
                answers = take_server_steps([steps.pop(number) for number in waiting])
            else:
                answers = engine.exchange([requests.pop(number) for number in waiting])
            for number, answer in zip(waiting, answers, strict=True):
                move(number, answer)
    except BaseException as error:
        final = _raised_in_all(lanes, error)
        if final is error:
            raise
        raise final from error
    return [results[number] for number in range(len(lanes))]


def _raised_in_all(lanes: Sequence[Lane[Result]], error: BaseException) -> BaseException:
    """Raises an error in every lane that hasn't ended.

    Returns:
        The exception that is raised in the end: the first of another type that a lane raised in turn, else the first
        that a lane raised, else the error itself.
    """
    raised_in_turn: list[BaseException] = []
    for lane in lanes:
        try:
            lane.throw(error)
            lane.close()  # it has caught the error and waits for an answer, which won't come
        except StopIteration:
            pass  # the lane has saved its state
        except Exception as raised:
            if raised is not error:
                raised_in_turn.append(raised)
        except BaseException as raised:  # a second Ctrl-C: the other lanes needn't save their states
            error = raised
    if not isinstance(error, Exception):
        return error
    unforeseen = [raised for raised in raised_in_turn if type(raised) is not type(error)]
    return [*unforeseen, *raised_in_turn, error][0]
