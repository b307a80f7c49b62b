"""The log of a run: a line for every evaluation, for skipped rounds, and for the end."""

from collections.abc import Callable

from adabest.runs.callbacks.base import Callback, Ending, Row, RunView


class Log(Callback):
    """Writes ``log.txt``."""

    def __init__(self, way_to_resume: Callable[[], str]) -> None:
        """Makes the callback.

        Args:
            way_to_resume: Gives the command or call that resumes the run.
        """
        self._way_to_resume = way_to_resume

    def after_evaluation(self, run: RunView, metrics: Row) -> None:
        """Writes the accuracy, the loss and the speed."""
        run.files.log(
            f"round {metrics['round']}: scored accuracy {metrics['scored_accuracy']:.4f}, "
            f"loss {metrics['scored_loss']:.4f}, {run.steps_per_second:,.0f} steps/s"
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
            run.files.log(f"diverged in round {ending.round}{reason}")
        elif ending.status == "interrupted":
            run.files.log(f"interrupted after round {ending.round}; resume with: {self._way_to_resume()}")
        else:
            run.files.log(f"broken off after round {ending.round}{reason}")
