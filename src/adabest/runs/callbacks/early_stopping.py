"""Early stopping, decided from a run's metrics alone, so that a resumed run stops in the same round."""

from collections.abc import Iterable, Mapping
from typing import Any

from adabest.runs.callbacks.base import Callback, Row, RunView, told_model


class EarlyStopping(Callback):
    """Ends a run that reaches an accuracy, or hasn't improved for a number of rounds."""

    def __init__(self, stop_at: float | None, stop_after: int | None, score: str = "scored") -> None:
        self._stop_at, self._stop_after, self._score = stop_at, stop_after, score

    def after_evaluation(self, run: RunView, metrics: Row) -> None:
        """Asks the run to stop if there is a reason; the last round ends it anyway."""
        if run.round < run.rounds:
            reason = reason_to_stop(run.rows, stop_at=self._stop_at, stop_after=self._stop_after, score=self._score)
            if reason is not None:
                run.stop(reason)


def reason_to_stop(
    rows: Iterable[Mapping[str, Any]],
    *,
    stop_at: float | None = None,
    stop_after: int | None = None,
    score: str = "scored",
) -> str | None:
    """The reason to end a run with these metrics early; None if there is none.

    Args:
        rows: The metrics of all evaluated rounds so far. Rows without an accuracy are ignored.
        stop_at: The accuracy on the test set at which a run ends.
        stop_after: The rounds without a new best accuracy, on the validation clients if there are any, after which it
            ends.
        score: The model whose accuracy on the test set counts. Where there is no scored one, it is the aggregate.
    """
    best, best_round = -1.0, 0
    for row in rows:
        which = told_model(row, score)
        test, validation = row.get(f"{which}_accuracy"), row.get("validation_accuracy")
        if test is None:
            continue
        if stop_at is not None and test >= stop_at:
            return f"the {which} model's accuracy of {test:.4f} reaches stop_at = {stop_at:g}"
        accuracy = test if validation is None else validation
        since = row["round"] - best_round
        if accuracy > best:
            best, best_round = accuracy, row["round"]
        elif stop_after is not None and since >= stop_after:
            where = "test" if validation is None else "validation"
            return f"no gain in {since} rounds: the best {where} accuracy is {best:.4f}, of round {best_round}"
    return None
