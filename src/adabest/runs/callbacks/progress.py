"""The progress display of one run: a live line on a terminal, one that is rewritten in a notebook, else plain lines."""

import contextlib
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from adabest.engine.metrics import Metrics
from adabest.errors import Diverged, Interrupted
from adabest.runs.callbacks.base import Callback, Ending, Row, RunView, told_model
from adabest.tasks.objectives.metric import ACCURACY, Metric

SECONDS_BETWEEN_LINES = 5.0
_SECONDS_IN_NOTEBOOKS = 1.0  # between two texts of a line that is rewritten

# What is shown of the first metric, in words: the first that a round has.
_SHOWN = {
    "scored": "{}",
    "aggregate": "{} of the aggregate",
    "cloud": "{} of the cloud model",
    "averaged": "{} of the averaged model",
    "validation": "validation {}",
}

DeviceShare = Callable[[], float | None]
"""Gives the share of the time in which a GPU works; None if there is none, or it isn't known yet."""


def no_device() -> None:
    """The share of a process without a GPU."""


def device_words(share: DeviceShare) -> list[str]:
    """What progress says of the GPU; nothing if there is nothing to say."""
    known = share()
    return [] if known is None else [f"GPU {100 * known:.0f} % busy"]


class Heedless:
    """A stream whose failures are ignored: if its reader has closed it, the run goes on without progress."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes; does nothing if the stream is closed or broken."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flushes; does nothing if the stream is closed or broken."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


def standard_error() -> TextIO:
    """The stream that progress is written to."""
    return cast(TextIO, Heedless(sys.stderr))


def terminal_console(stream: TextIO) -> Console | None:
    """A console for live displays; None where the stream isn't a terminal, as in a notebook."""
    # In a notebook, rich would draw with ipywidgets, and warn where they aren't installed.
    console = Console(file=stream, force_jupyter=False)
    return console if console.is_terminal else None


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook: its output is no terminal, but lines can be rewritten."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class Lines:
    """Lines of text for files and pipes, one below the other; in a notebook, the latest news is rewritten in place.

    Attributes:
        seconds: The time between two lines of news.
    """

    def __init__(self, stream: TextIO, *, in_place: bool | None = None) -> None:
        self._stream = stream
        self._in_place = in_notebook() if in_place is None else in_place
        self.seconds = _SECONDS_IN_NOTEBOOKS if self._in_place else SECONDS_BETWEEN_LINES
        self._shown = 0  # letters of the line that is going to be rewritten

    def news(self, text: str) -> None:
        """Shows a line that the next one may replace."""
        if self._in_place:
            self._write(f"\r{text.ljust(self._shown)}")
            self._shown = len(text)
        else:
            self._write(f"{text}\n")

    def keep(self, text: str) -> None:
        """Shows a line that stays."""
        self._write(f"\r{text.ljust(self._shown)}\n" if self._shown else f"{text}\n")
        self._shown = 0

    def close(self) -> None:
        """Ends a line that would have been rewritten, so that other output doesn't continue it."""
        if self._shown:
            self._write("\n")
        self._shown = 0

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class Reporter:
    """The reporter of a run's progress. This one shows nothing.

    Attributes:
        metric: What is shown of models.
    """

    metric: Metric = ACCURACY

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Does nothing; a live reporter stops drawing."""

    def show(self, round_number: int, metrics: Metrics | None, steps_per_second: float) -> None:
        """Shows a finished round; ``metrics`` are those of the round, if it was evaluated."""

    def ends_at(self, round_number: int) -> None:
        """Makes a round, which is shown next, the last one of a run that ends early."""


class Blinded(Reporter):
    """Shows a run through another reporter, without its score on the test set."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def show(self, round_number: int, metrics: Metrics | None, steps_per_second: float) -> None:
        """Passes on the round with what validation clients say alone."""
        name = f"validation_{self._reporter.metric.name}"
        seen = None if metrics is None else {name: metrics[name]}
        self._reporter.show(round_number, seen, steps_per_second)

    def ends_at(self, round_number: int) -> None:
        """Passes on the last round."""
        self._reporter.ends_at(round_number)


class LastScore:
    """The last known value of a metric, in words."""

    def __init__(self) -> None:
        self._words = ""

    def update(self, metrics: Metrics | None, metric: Metric) -> str:
        """Takes the value of a round, if it was evaluated: that on the test set, unless it is hidden."""
        for model, words in _SHOWN.items():
            value = None if metrics is None else metrics.get(f"{model}_{metric.name}")
            if value is not None:
                self._words = f"{words.format(metric.words)} {metric.shown(value)}"
                break
        return self._words or f"{metric.words} –"


def make_bars(console: Console) -> Progress:
    """An empty set of progress bars for a terminal."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[details]}", markup=False),
        TimeRemainingColumn(),
        console=console,
    )


class BarReporter(Reporter):
    """One of several progress bars."""

    def __init__(
        self, label: str, first: int, rounds: int, bars: Progress, *, device_share: DeviceShare = no_device
    ) -> None:
        self._score, self._device_share = LastScore(), device_share
        self._bar = bars
        self._task = bars.add_task(label, total=rounds, completed=first, details="")

    def show(self, round_number: int, metrics: Metrics | None, steps_per_second: float) -> None:
        """Moves the bar."""
        told = self._score.update(metrics, self.metric)
        details = [told, f"{steps_per_second:,.0f} steps/s", *device_words(self._device_share)]
        self._bar.update(self._task, completed=round_number, details=" · ".join(details))

    def ends_at(self, round_number: int) -> None:
        """Shortens the bar."""
        self._bar.update(self._task, total=round_number)


class LiveReporter(BarReporter):
    """A reporter for terminals: a progress bar, redrawn in place."""

    def __init__(
        self, label: str, first: int, rounds: int, console: Console, *, device_share: DeviceShare = no_device
    ) -> None:
        super().__init__(label, first, rounds, make_bars(console), device_share=device_share)

    def __enter__(self) -> "LiveReporter":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


class LineReporter(Reporter):
    """A reporter for files, pipes and notebooks: a line every few seconds, and one for the last round."""

    def __init__(
        self,
        label: str,
        first: int,
        rounds: int,
        stream: TextIO,
        clock: Callable[[], float] = time.monotonic,
        *,
        device_share: DeviceShare = no_device,
    ) -> None:
        self._label, self._first, self._rounds = label, first, rounds
        self._lines, self._clock, self._device_share = Lines(stream), clock, device_share
        self._score = LastScore()
        self._begun = self._said = clock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lines.close()

    def show(self, round_number: int, metrics: Metrics | None, steps_per_second: float) -> None:
        """Writes a line, if it is time for one."""
        told = self._score.update(metrics, self.metric)
        now = self._clock()
        if round_number < self._rounds and now - self._said < self._lines.seconds:
            return
        self._said = now
        left = (now - self._begun) / (round_number - self._first) * (self._rounds - round_number)
        words = [
            f"{self._label}: round {round_number}/{self._rounds}",
            told,
            f"{steps_per_second:,.0f} steps/s",
            *device_words(self._device_share),
            f"{left:.0f} s left",
        ]
        line = ", ".join(words)
        if round_number < self._rounds:
            self._lines.news(line)
        else:
            self._lines.keep(line)

    def ends_at(self, round_number: int) -> None:
        """Makes the round the last one."""
        self._rounds = round_number


def reporter(label: str, first: int, rounds: int, *, show: bool, device_share: DeviceShare = no_device) -> Reporter:
    """The reporter for standard error: live on a terminal, else in lines."""
    if not show:
        return Reporter()
    stream = standard_error()
    console = terminal_console(stream)
    if console is not None:
        return LiveReporter(label, first, rounds, console, device_share=device_share)
    return LineReporter(label, first, rounds, stream, device_share=device_share)


class ShownProgress(Callback):
    """Shows a run's progress through a reporter."""

    def __init__(
        self,
        make_reporter: Callable[[int], Reporter],
        *,
        blind: bool,
        score: str = "scored",
        metric: Metric = ACCURACY,
    ) -> None:
        """Makes the callback.

        Args:
            make_reporter: Makes the reporter, given the last round that was finished before.
            blind: Whether scores on the test set are hidden, since the run is used to choose hyper-parameters.
            score: The model that is shown.
            metric: What is shown of it.
        """
        self._make_reporter, self._blind, self._score, self._metric = make_reporter, blind, score, metric
        self._metrics: Row | None = None

    def start(self, run: RunView) -> None:
        """Makes and starts the reporter."""
        self._reporter = self._make_reporter(run.first_round).__enter__()
        self._reporter.metric = self._metric
        self._show = Blinded(self._reporter) if self._blind else self._reporter

    def after_evaluation(self, run: RunView, metrics: Row) -> None:
        """Keeps the metrics until the round is shown; of the models, only the one that is told."""
        models = (told_model(metrics, self._score, self._metric), "validation")
        self._metrics = {name: metrics.get(name) for name in (f"{model}_{self._metric.name}" for model in models)}

    def after_round(self, run: RunView) -> None:
        """Shows the round."""
        if run.stop_reason is not None:
            self._show.ends_at(run.rounds)
        self._show.show(run.round, None if self._metrics is None else dict(self._metrics), run.steps_per_second)
        self._metrics = None

    def end(self, run: RunView, ending: Ending) -> None:
        """Shows how the run ended."""
        error: Exception | None = None
        if ending.status == "diverged":
            error = Diverged(ending.reason)
        elif ending.status != "finished":
            error = Interrupted()
        self._reporter.__exit__(None if error is None else type(error), error, None)
