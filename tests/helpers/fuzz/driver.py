"""Feeds a target with many inputs in one process, and watches over time and memory."""

import argparse
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from unittest import mock

from fuzz.mutation import damaged
from fuzz.seeds import WORDS, seeds_of
from fuzz.targets import TARGETS

_MOST_SECONDS = 10
_PATIENCE = 6
_MOST_BYTES = 10**9
_UNIT = 1 if sys.platform == "darwin" else 1024  # of what the system tells of memory


@dataclass(frozen=True)
class Fed:
    """What came of feeding a target.

    Attributes:
        target: Its name.
        inputs: How many there were.
        taken: How many of them weren't refused.
        seconds: How long all took.
        slowest: How long the slowest took.
        grown: By how many bytes the largest size of the process grew.
    """

    target: str
    inputs: int
    taken: int
    seconds: float
    slowest: float
    grown: int

    def __str__(self) -> str:
        return (
            f"{self.target}: {self.inputs:,} inputs ({self.taken:,} taken, the others refused) in "
            f"{self.seconds:.0f} s, the slowest in {self.slowest:.2f} s, {self.grown / 10**6:.0f} MB more"
        )


class Escaped(AssertionError):
    """Something else than a refusal came out of a target, or it took too long, or too much memory."""


def feed(target: str, inputs: int, key: int = 0) -> Fed:
    """Feeds a target with its seeds, then with damaged ones.

    Args:
        target: Its name.
        inputs: How many damaged ones.
        key: Another key makes other inputs.

    Raises:
        Escaped: With the number of the input, and the file that it was written to.
    """
    seeds, words = seeds_of(target), WORDS[target]
    for number, seed in enumerate(seeds):
        _feed_one(target, -1 - number, seed)
    before, began, slowest, taken = _largest_size(), time.perf_counter(), 0.0, 0
    for number in range(inputs):
        start = time.perf_counter()
        data = damaged(seeds, words, random.Random(f"{key} {target} {number}"))
        taken += _feed_one(target, number, data)
        slowest = max(slowest, time.perf_counter() - start)
        if _largest_size() - before > _MOST_BYTES:
            raise Escaped(f"{_named(target, number, data)}: the process grew by over {_MOST_BYTES:,} bytes")
    return Fed(target, inputs, taken, time.perf_counter() - began, slowest, _largest_size() - before)


def survey(target: str, inputs: int, key: int = 0) -> Counter[str]:
    """Goes on after what escapes a target, and counts it by its type and the line it comes from."""
    seeds, words = seeds_of(target), WORDS[target]
    escaped: Counter[str] = Counter()
    for number in range(inputs):
        try:
            _feed_one(target, number, damaged(seeds, words, random.Random(f"{key} {target} {number}")))
        except Escaped as error:
            cause = error.__cause__
            assert cause is not None
            frames = traceback.extract_tb(cause.__traceback__)
            ours = [f"{Path(f.filename).name}:{f.lineno}" for f in frames if "adabest" in Path(f.filename).parts]
            place = " < ".join(ours[:-4:-1])
            escaped[f"{type(cause).__name__} at {place}"] += 1
            if escaped[f"{type(cause).__name__} at {place}"] == 1:
                print(error, f"({place})", flush=True)
    return escaped


def _feed_one(target: str, number: int, data: bytes) -> bool:
    """Whether the target took the input."""
    hidden: list[str] = []  # errors that Python can only print, such as in a destructor
    try:
        with _alarm(), mock.patch("sys.unraisablehook", lambda told: hidden.append(repr(told.exc_value))):
            taken = TARGETS[target](data)
        assert not hidden, f"it was printed, not raised: {hidden[0]}"
        return taken
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise Escaped(f"{_named(target, number, data)}: {type(error).__name__}: {str(error)[:300]}") from error


@contextmanager
def _alarm() -> Iterator[None]:
    """Ends what computes for too long, or waits for much longer: on a busy machine, waiting isn't a bug."""

    def ring(_: int, __: FrameType | None) -> None:
        raise TimeoutError(f"it took over {_MOST_SECONDS} s")

    bells = {
        signal.SIGPROF: (signal.ITIMER_PROF, _MOST_SECONDS),
        signal.SIGALRM: (signal.ITIMER_REAL, _PATIENCE * _MOST_SECONDS),
    }
    before = {number: signal.signal(number, ring) for number in bells}
    for timer, seconds in bells.values():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for number, (timer, _) in bells.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def _named(target: str, number: int, data: bytes) -> str:
    """The words for an input, which is written to a file that stays."""
    path = Path(tempfile.gettempdir()) / f"fuzz-{target}-{number}.input"
    path.write_bytes(data)
    return f"{target}, input {number} ({len(data):,} bytes, kept as {path})"


def _largest_size() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT


def with_atheris(target: str, arguments: Sequence[str]) -> None:
    """Hands a target to atheris, which is guided by the lines that an input reaches. It doesn't return."""
    import atheris

    words, seeds = WORDS[target], seeds_of(target)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        generator = random.Random(seed)
        if generator.random() < 0.5:
            return bytes(atheris.Mutate(data, most))
        return damaged([data, *seeds], words, generator)[:most]

    def once(data: bytes) -> None:
        TARGETS[target](data)

    atheris.Setup([sys.argv[0], *arguments], once, custom_mutator=mutate)
    atheris.Fuzz()


def run(arguments: Sequence[str] | None = None) -> None:
    """The command line: see the package's page."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Feed readers with damaged inputs.")
    parser.add_argument("targets", nargs="+", choices=TARGETS)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--key", type=int, default=0)
    parser.add_argument(
        "--atheris", action="store_true", help="further options, such as -max_total_time=60, are its own"
    )
    parser.add_argument("--survey", action="store_true", help="go on after what escapes, and list it")
    given, further = parser.parse_known_args(arguments)
    if given.atheris:
        with_atheris(given.targets[0], further)
    for target in given.targets:
        if given.survey:
            for words, count in survey(target, given.inputs, given.key).most_common():
                print(f"{target}: {count} × {words}", flush=True)
        else:
            print(feed(target, given.inputs, given.key), flush=True)
