"""The log of a run: a line for every evaluation, for replies left out, for skipped rounds, and for the end."""

from collections.abc import Callable

from adabest.engine.gate import GateNotes
from adabest.runs.callbacks.base import Callback, Ending, Row, RunView, told_model
from adabest.tasks.objectives.metric import ACCURACY, Metric

_MOST_REJECTIONS = 20  # that are told at a time


class Log(Callback):
    """Writes ``log.txt``."""

    def __init__(self, way_to_resume: Callable[[], str], score: str = "scored", metric: Metric = ACCURACY) -> None:
        """Makes the callback.

        Args:
            way_to_resume: Gives the command or call that resumes the run.
            score: The model that is told of.
            metric: What is told of it.
        """
        self._way_to_resume, self._score, self._metric = way_to_resume, score, metric

    def after_evaluation(self, run: RunView, metrics: Row) -> None:
        """Writes the replies left out since the last evaluation, then the first metric, the loss and the speed."""
        _tell(run, run.simulation.told)
        which = told_model(metrics, self._score, self._metric)
        which = "aggregate" if metrics.get(f"{which}_loss") is None else which  # an average that hasn't begun
        value = metrics.get(f"{which}_{self._metric.name}")
        told = f"{which} {self._metric.words} {'isn’t defined' if value is None else f'{value:.4f}'}"
        run.files.log(
            f"round {metrics['round']}: {told}, loss {metrics[f'{which}_loss']:.4f}, "
            f"{run.steps_per_second:,.0f} steps/s"
        )

    def after_round(self, run: RunView) -> None:
        """Says that a round was skipped."""
        if run.skipped:
            run.files.log(f"round {run.round} is skipped: no client is present")

    def end(self, run: RunView, ending: Ending) -> None:
        """Says how the run ended."""
        reason = "" if ending.reason is None else f": {ending.reason}"
        if ending.status == "finished":
            run.files.log(f"finished after round {ending.round}{reason}")
        elif ending.status == "diverged":
            _tell(run, run.simulation.untold())
            run.files.log(f"diverged in round {ending.round}{reason}")
        elif ending.status == "interrupted":
            run.files.log(f"interrupted after round {ending.round}; resume with: {self._way_to_resume()}")
        else:
            run.files.log(f"broken off after round {ending.round}{reason}")


def _tell(run: RunView, notes: GateNotes) -> None:
    """Writes the replies that were left out, the first ones if they are many, and the rounds without any other."""
    for rejection in notes.rejections[:_MOST_REJECTIONS]:
        run.files.log(rejection.words())
    if len(notes.rejections) > _MOST_REJECTIONS:
        run.files.log(f"{len(notes.rejections) - _MOST_REJECTIONS} more replies are left out; metrics.jsonl has them")
    for round_number in notes.skips:
        run.files.log(f"round {round_number} is skipped: no reply was accepted")
