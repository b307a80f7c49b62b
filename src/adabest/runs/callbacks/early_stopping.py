"""Early stopping, decided from a run's metrics alone, so that a resumed run stops in the same round."""

from collections.abc import Iterable, Mapping
from typing import Any

from adabest.runs.callbacks.base import Callback, Row, RunView, told_model
from adabest.tasks.objectives.metric import ACCURACY, Metric


class EarlyStopping(Callback):
    """Ends a run that reaches a value of the first metric, or hasn't improved for a number of rounds."""

    def __init__(
        self, stop_at: float | None, stop_after: int | None, score: str = "scored", metric: Metric = ACCURACY
    ) -> None:
        self._stop_at, self._stop_after, self._score, self._metric = stop_at, stop_after, score, metric

    def after_evaluation(self, run: RunView, metrics: Row) -> None:
        """Asks the run to stop if there is a reason; the last round ends it anyway."""
        if run.round < run.rounds:
            rules: dict[str, Any] = {"score": self._score, "metric": self._metric}
            reason = reason_to_stop(run.rows, stop_at=self._stop_at, stop_after=self._stop_after, **rules)
            if reason is not None:
                run.stop(reason)


def reason_to_stop(
    rows: Iterable[Mapping[str, Any]],
    *,
    stop_at: float | None = None,
    stop_after: int | None = None,
    score: str = "scored",
    metric: Metric = ACCURACY,
) -> str | None:
    """The reason to end a run with these metrics early; None if there is none.

    Args:
        rows: The metrics of all evaluated rounds so far. Rows without a value of the metric are ignored.
        stop_at: The value on the test set at which a run ends.
        stop_after: The rounds without a new best value, on the validation clients if there are any, after which it
            ends.
        score: The model whose value on the test set counts. Where there is no scored one, it is the aggregate.
        metric: What the value is one of.
    """
    best, best_round = metric.worst, 0
    rows, validated = list(rows), f"validation_{metric.name}"
    is_validated = any(row.get(validated) is not None for row in rows)
    for row in rows:
        which = told_model(row, score, metric)
        test, validation = row.get(f"{which}_{metric.name}"), row.get(validated)
        if test is None:
            continue
        if stop_at is not None and metric.reaches(test, stop_at):
            return f"the {which} model's {metric.words} of {test:.4f} reaches stop_at = {stop_at:g}"
        # A round in which it isn't defined on validation clients is one without a gain.
        value = (metric.worst if validation is None else validation) if is_validated else test
        since = row["round"] - best_round
        if metric.is_better(value, best):
            best, best_round = value, row["round"]
        elif stop_after is not None and since >= stop_after:
            where = "validation" if is_validated else "test"
            return f"no gain in {since} rounds: the best {where} {metric.words} is {best:.4f}, of round {best_round}"
    return None
