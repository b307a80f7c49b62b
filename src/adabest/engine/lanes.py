"""Lanes: runs as generators, advanced in lock-step by one engine.

A lane yields a ``Request`` whenever its clients have work, and is sent their ``Answers``; a ``ServerStep``, and is sent
an ``Update``; an ``EvaluationRequest``, and is sent an ``EvaluationResult``. At its end it returns a result. It doesn't
know whether other lanes are advanced with it.
"""

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from adabest.algorithms.base import Update
from adabest.engine.evaluation import EvaluationRequest, EvaluationResult
from adabest.engine.interface import Answers, Engine, Request
from adabest.engine.server_step import ServerStep, take_server_steps

Result = TypeVar("Result")
Asked = Request | ServerStep | EvaluationRequest
Told = Answers | Update | EvaluationResult
Lane = Generator[Asked, Any, Result]


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
    asked: dict[int, Asked] = {}

    def move(number: int, told: Told | Exception | None) -> None:
        lane = lanes[number]
        try:
            if isinstance(told, Exception):
                asked[number] = lane.throw(told)
            else:
                asked[number] = next(lane) if told is None else lane.send(told)
        except StopIteration as end:
            results[number] = end.value

    try:
        for number in range(len(lanes)):
            move(number, None)
        while asked:
            waiting, told = _tell(asked, engine)
            for number, result in zip(waiting, told, strict=True):
                move(number, result)
    except BaseException as error:
        final = _raised_in_all(lanes, error)
        if final is error:
            raise
        raise final from error
    return [results[number] for number in range(len(lanes))]


def _tell(asked: dict[int, Asked], engine: Engine) -> tuple[list[int], Sequence[Told | Exception]]:
    """Executes all that was asked of one kind, and takes it from what was asked.

    Clients come last, so that as many lanes as possible wait for theirs, who then train at the same time.

    Returns:
        The lanes that asked, and what each is told.
    """
    steps, evaluations, requests = dict[int, ServerStep](), dict[int, EvaluationRequest](), dict[int, Request]()
    for number, one in asked.items():
        match one:
            case ServerStep():
                steps[number] = one
            case EvaluationRequest():
                evaluations[number] = one
            case _:
                requests[number] = one
    told: Sequence[Told | Exception]
    if steps:
        told = take_server_steps(list(steps.values()))
    elif evaluations:
        told = engine.evaluate(list(evaluations.values()))
    else:
        told = engine.exchange(list(requests.values()))
    waiting = list(steps or evaluations or requests)
    for number in waiting:
        del asked[number]
    return waiting, told


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
