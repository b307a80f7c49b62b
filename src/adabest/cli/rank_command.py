"""Commands in a torchrun job: rank 0 does what was asked, the others serve it."""

import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from adabest.cli.exit_codes import BAD_INPUT, INTERRUPTED, MACHINE_FAILED
from adabest.cli.failures import tell_failure
from adabest.errors import AdabestError, InputError, Interrupted, RankLost

if TYPE_CHECKING:
    from adabest.engine.distributed.ranks import Ranks
    from adabest.runs.rank_job import RankJob

DEADLINE = "ADABEST_RANK_DEADLINE"
_DEFAULT_DEADLINE = 60.0
_LEAST_DEADLINE = 1.0


def answer_in_job(given: list[str], answer: Callable[[], int]) -> int:
    """Does what the words of a command line ask for, as one of the processes of a torchrun job.

    Args:
        given: The words.
        answer: Does it at rank 0; returns the exit code.

    Raises:
        InputError: If the job can't be joined, or its ranks differ.
        RankLost: If a rank is gone.
    """
    from adabest.engine.distributed.place import Place

    place = Place.of(os.environ)
    deadline = _deadline()
    _share_cores(place.local_size)
    from adabest.engine.distributed.ranks import Ranks
    from adabest.engine.memory_tiers import share_machine
    from adabest.stop_requests import notice_requests

    share_machine(place.local_size)
    ranks = Ranks.join(os.environ, deadline or _DEFAULT_DEADLINE)
    ranks.while_waiting = notice_requests
    try:
        from adabest.runs.rank_job import facts_of_process

        facts = ranks.collect({**facts_of_process(given), DEADLINE: str(deadline)})
        if facts is None:
            return _serve(ranks, given)
        return _conduct(ranks, facts, answer)
    finally:
        ranks.leave()


def _conduct(ranks: "Ranks", facts: list[Any], answer: Callable[[], int]) -> int:
    from adabest.runs.rank_job import RankJob, compare_facts

    job = RankJob(ranks)
    code = 1  # of a traceback
    try:
        if _deadline() is None:  # only now, so that one rank says it
            raise InputError(
                f"{DEADLINE}={os.environ[DEADLINE]!r} should be a number of seconds, at least {_LEAST_DEADLINE:g}"
            )
        compare_facts(facts, ranks.hosts)
        with job.entered():
            code = answer()
        return code
    except SystemExit as end:  # the parser's own way out
        code = end.code if isinstance(end.code, int) else BAD_INPUT
        raise
    except (InputError, Interrupted, KeyboardInterrupt) as error:
        code = BAD_INPUT if isinstance(error, InputError) else INTERRUPTED
        raise
    except RankLost:
        code = MACHINE_FAILED
        raise
    finally:
        _end(job, code)


def _end(job: "RankJob", code: int) -> None:
    """Has the other ranks end. Where one is lost, those that are left find out by themselves."""
    with contextlib.suppress(AdabestError, RuntimeError):
        job.end(code)


def _serve(ranks: "Ranks", given: list[str]) -> int:
    from adabest.runs.rank_worker import serve

    try:
        return serve(ranks, given)
    except RankLost as lost:
        if "rank 0" in str(lost) and not lost.tells_itself:  # else rank 0 says it
            tell_failure(lost)
        return MACHINE_FAILED


def _deadline() -> float | None:
    """Seconds after which a silent rank is lost; None if the variable isn't a number of seconds."""
    text = os.environ.get(DEADLINE, str(_DEFAULT_DEADLINE))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    return seconds if _LEAST_DEADLINE <= seconds < float("inf") else None


def _share_cores(processes: int) -> None:
    """Gives each process of this machine its share of the cores, where torchrun has left one thread to each."""
    import torch

    if processes > 1 and os.environ.get("OMP_NUM_THREADS") == "1" and hasattr(os, "sched_getaffinity"):
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // processes))
