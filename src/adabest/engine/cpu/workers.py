"""Worker threads that train clients side by side, each client on one core.

Torch computes without Python's lock, so threads of this kind keep all cores busy and, unlike several threads within one
operation, never wait for each other. A client that trains alone has one core, too: with several, its sums would be
split among them, and end with other last bits than beside others.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from adabest.engine.threads import one_thread
from adabest.tasks.base import Heartbeat

Result = TypeVar("Result")

_CORES = torch.get_num_threads()  # what torch found, before a run with a small model asks it for a single thread
_HEARTBEAT_SECONDS = 0.05  # between heartbeats while only other threads have work left


class _Stopped(Exception):
    """Another thread has failed, or the user has interrupted."""


def number_of_workers(threads: int | None) -> int:
    """How many clients train at the same time: the threads asked for, by default one per core."""
    return threads or max(_CORES, torch.get_num_threads())


def side_by_side(pieces: Sequence[Callable[[Heartbeat], Result]], heartbeat: Heartbeat, workers: int) -> list[Result]:
    """Does pieces of work, several at a time, with a single thread of torch's for each.

    This thread works along, and only it calls the heartbeat, which may raise; so may a piece. Either ends all pieces at
    their next heartbeat, and nothing runs any more when the exception leaves here.

    Args:
        pieces: The work; each is given what it is to call between steps.
        heartbeat: Called between this thread's steps.
        workers: How many pieces at a time.
    """
    workers = min(workers, len(pieces))
    results: dict[int, Result] = {}
    errors: dict[int, BaseException] = {}
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(pieces)):
        waiting.put(number)
    stopped = threading.Event()

    def check() -> None:
        if stopped.is_set():
            raise _Stopped

    def check_and_beat() -> None:
        check()
        heartbeat()

    def work(beat: Heartbeat) -> None:
        torch.set_num_threads(1)
        while not stopped.is_set():
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                results[number] = pieces[number](beat)
            except _Stopped:
                return
            except BaseException as error:  # is raised again in the calling thread
                errors[number] = error
                stopped.set()

    helpers = [threading.Thread(target=work, args=(check,), daemon=True) for _ in range(workers - 1)]
    with one_thread():
        try:
            for helper in helpers:
                helper.start()
            work(check_and_beat)
            for helper in helpers:
                while helper.is_alive():
                    helper.join(_HEARTBEAT_SECONDS)
                    heartbeat()
        finally:
            stopped.set()
            for helper in helpers:
                helper.join()
    if errors:
        raise errors[min(errors)]
    return [results[number] for number in range(len(pieces))]
