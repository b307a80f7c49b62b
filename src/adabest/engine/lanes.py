"""Runs as lanes: generators that ask for exchanges, advanced in lock-step by one engine.

A lane is anything that yields a ``Request`` whenever its clients have work, is sent their answers, and at its end
returns a result. It doesn't know whether others are advanced with it.
"""

from collections.abc import Generator, Sequence
from typing import TypeVar

from adabest.engine.interface import Answer, Answers, Engine, Request
from adabest.errors import Diverged

Result = TypeVar("Result")
Lane = Generator[Request, list[Answer], Result]


def advance(lane: Lane[Result], engine: Engine) -> Result:
    """Runs a single lane to its end.

    Raises:
        Diverged: If the lane doesn't mind its own divergence.
    """
    return advance_together([lane], engine)[0]


def advance_together(lanes: Sequence[Lane[Result]], engine: Engine) -> list[Result]:
    """Runs lanes to their ends, all exchanges that they ask for at the same time in one go.

    An exception in a lane or in the engine is raised in all the others, too, so that each can save what it has.
    """
    results: dict[int, Result] = {}
    asked: dict[int, Request] = {}

    def move(number: int, answer: Answers | None) -> None:
        lane = lanes[number]
        try:
            if isinstance(answer, Diverged):
                asked[number] = lane.throw(answer)
            else:
                asked[number] = next(lane) if answer is None else lane.send(answer)
        except StopIteration as end:
            results[number] = end.value

    try:
        for number in range(len(lanes)):
            move(number, None)
        while asked:
            waiting = list(asked)
            answers = engine.exchange([asked.pop(number) for number in waiting])
            for number, answer in zip(waiting, answers, strict=True):
                move(number, answer)
    except BaseException as error:
        made_of_it = _told_to_all(lanes, error)
        if made_of_it is error:
            raise
        raise made_of_it from error
    return [results[number] for number in range(len(lanes))]


def _told_to_all(lanes: Sequence[Lane[Result]], error: BaseException) -> BaseException:
    """Raises an error in every lane that hasn't ended, and returns what is to be raised in the end.

    That is what the first of them made of it, unless one failed in another way, which someone ought to know.
    """
    made_of_it: list[BaseException] = []
    for lane in lanes:
        try:
            lane.throw(error)
            lane.close()  # it wants to go on, but there is nobody left to answer
        except StopIteration:
            pass  # it has saved what it had
        except Exception as raised:
            if raised is not error:
                made_of_it.append(raised)
        except BaseException as raised:  # a second Ctrl-C: the lanes that are left needn't save anything either
            error = raised
    if not isinstance(error, Exception):
        return error
    unforeseen = [raised for raised in made_of_it if type(raised) is not type(error)]
    return [*unforeseen, *made_of_it, error][0]
