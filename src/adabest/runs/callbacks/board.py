"""The progress display of several runs: one bar per run, if there are few, and one line about all."""

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from adabest.engine.metrics import Metrics
from adabest.errors import Diverged
from adabest.runs.callbacks.memory_use import memory_used
from adabest.runs.callbacks.progress import (
    BarReporter,
    DeviceShare,
    LastScore,
    Lines,
    Reporter,
    device_words,
    make_bars,
    no_device,
    reporter,
    standard_error,
    terminal_console,
)

_MOST_BARS = 8
Clock = Callable[[], float]


class Board:
    """A progress display of runs. This one shows each run as if it were alone.

    Attributes:
        device_share: Gives the share of the time in which a GPU works, if there is one.
    """

    def __init__(self, *, show: bool) -> None:
        self._show = show
        self.device_share: DeviceShare = no_device

    def __enter__(self) -> "Board":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Does nothing; a live board stops drawing."""

    def reporter(self, label: str, first: int, rounds: int) -> Reporter:
        """The reporter of a run whose last finished round is ``first``."""
        return reporter(label, first, rounds, show=self._show, device_share=self.device_share)


class LaneReporter(Reporter):
    """The reporter of one of several runs.

    Attributes:
        label: The run's label.
        first: The last round that was finished before.
        round: The last finished round.
        rounds: The last round of the run.
        speed: Local steps per second.
        over: Whether the run makes no further rounds here.
        done: Whether it is finished or diverged, and not only interrupted.
        told: The last score, in words.
    """

    def __init__(self, label: str, first: int, rounds: int, board: "LaneBoard", bar: Reporter) -> None:
        self.label, self.first, self.round, self.rounds = label, first, first, rounds
        self.speed, self.over, self.done = 0.0, False, False
        self._score = LastScore()
        self.told = self._score.update(None, self.metric)
        self._board, self._bar = board, bar

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over, self.done = True, kind is None or issubclass(kind, Diverged)
        if self.done:
            self._board.ended(self, "" if kind is None else f", diverged: {error}")

    def show(self, round_number: int, metrics: Metrics | None, steps_per_second: float) -> None:
        """Stores the round, the speed and the score, and updates the board."""
        self.round, self.speed = round_number, steps_per_second
        self.told = self._score.update(metrics, self.metric)
        self._bar.metric = self.metric
        self._bar.show(round_number, metrics, steps_per_second)
        self._board.moved()

    def ends_at(self, round_number: int) -> None:
        """Makes the round the last one."""
        self.rounds = round_number
        self._bar.ends_at(round_number)


class LaneBoard(Board):
    """The progress of several runs. This one shows nothing."""

    def __init__(self, rounds: Sequence[int], clock: Clock = time.monotonic) -> None:
        super().__init__(show=False)
        self._runs, self._rounds = len(rounds), sum(rounds)
        self._clock, self._begun = clock, clock()
        self._lanes: list[LaneReporter] = []

    def reporter(self, label: str, first: int, rounds: int) -> Reporter:
        """The reporter of one of the runs."""
        self._lanes.append(LaneReporter(label, first, rounds, self, self._bar(label, first, rounds)))
        self._rounds -= rounds
        return self._lanes[-1]

    def moved(self) -> None:
        """Called when a run has finished a round."""

    def ended(self, lane: LaneReporter, how: str) -> None:
        """Called when a run has ended."""

    def words(self) -> str:
        """The progress of all runs, in one line."""
        at_work = [lane for lane in self._lanes if not lane.over]
        words = [f"{sum(lane.done for lane in self._lanes)} of {self._runs} runs done"]
        if at_work:
            slowest = min(at_work, key=lambda lane: lane.round / lane.rounds)
            words += [f"{len(at_work)} at work, the slowest in round {slowest.round}/{slowest.rounds}"]
        words += [f"{sum(lane.speed for lane in at_work):,.0f} steps/s"]
        words += device_words(self.device_share)
        memory = memory_used()
        words += [] if memory is None else [f"{memory / 1e9:.1f} GB"]
        done = sum(lane.round - lane.first for lane in self._lanes)
        left = self._rounds + sum(lane.rounds - lane.round for lane in at_work)
        words += [f"{(self._clock() - self._begun) / done * left:.0f} s left"] if done else []
        return ", ".join(words)

    def _bar(self, label: str, first: int, rounds: int) -> Reporter:
        return Reporter()


class LineBoard(LaneBoard):
    """A board for files, pipes and notebooks: now and then a line about all runs, and one for each run that ends."""

    def __init__(self, rounds: Sequence[int], stream: TextIO, clock: Clock = time.monotonic) -> None:
        super().__init__(rounds, clock)
        self._lines, self._said = Lines(stream), clock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lines.close()

    def moved(self) -> None:
        """Writes a line, if it is time for one."""
        if self._clock() - self._said >= self._lines.seconds:
            self._said = self._clock()
            self._lines.news(self.words())

    def ended(self, lane: LaneReporter, how: str) -> None:
        """Writes how a run ended."""
        self._lines.keep(f"{lane.label}: round {lane.round}/{lane.rounds}, {lane.told}{how}")


class LiveBoard(LaneBoard):
    """A board for terminals, redrawn in place: a bar for each run, if there are few, and a line about all."""

    def __init__(self, rounds: Sequence[int], console: Console, clock: Clock = time.monotonic) -> None:
        super().__init__(rounds, clock)
        self._bars = make_bars(console) if len(rounds) <= _MOST_BARS else None
        self._live = Live(console=console, get_renderable=self._picture)

    def __enter__(self) -> "LiveBoard":
        self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def _picture(self) -> Group:
        return Group(*([] if self._bars is None else [self._bars]), Text(self.words()))

    def _bar(self, label: str, first: int, rounds: int) -> Reporter:
        return Reporter() if self._bars is None else BarReporter(label, first, rounds, self._bars)


def make_board(rounds: Sequence[int], lanes: int, *, show: bool) -> Board:
    """The board for standard error: live on a terminal, else in lines.

    Args:
        rounds: How many rounds each run has.
        lanes: How many runs are trained together.
        show: Whether to show progress at all.
    """
    if not show or lanes == 1:
        return Board(show=show)
    stream = standard_error()
    console = terminal_console(stream)
    return LineBoard(rounds, stream) if console is None else LiveBoard(rounds, console)
