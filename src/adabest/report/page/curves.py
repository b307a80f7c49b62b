"""The curves of a page: the metrics to choose from, and as many points of each line as can be drawn."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from adabest.report.entries import Curve, mean_curve
from adabest.report.page.page_runs import PageRun
from adabest.tasks.objectives.metric import Metric

_MOST_POINTS = 500  # of a line: more than there are pixels to tell them apart
_FEWEST_POINTS = 40
_ALL_POINTS = 150_000  # of all lines: two megabytes or three
_DIGITS = 5


@dataclass(frozen=True)
class Family:
    """Metrics that are looked at in the same way.

    Attributes:
        name: What the reader chooses.
        scale: Percentages, plain numbers, or numbers of things.
        metrics: What each metric is called, in a word and in full.
    """

    name: str
    scale: Literal["percent", "number", "count"]
    metrics: Mapping[str, tuple[str, str]]


_OF_MODELS = {
    "scored": ("Scored", "{} of the scored model on the test set"),
    "aggregate": ("Aggregate", "{} of the aggregate model θ̄ on the test set"),
    "cloud": ("Cloud", "{} of the cloud model θ on the test set"),
    "averaged": ("Averaged", "{} of the averaged model on the test set"),
    "validation": ("Validation", "{} on validation clients of the model told of, mean"),
    "train": ("Training", "{} on the batches of local steps"),
    "local_global": ("Clients", "{} of the model told of on what training clients hold out, mean over clients"),
    "local_own": ("Own models", "{} of clients’ own latest models on what they hold out, mean over clients"),
}
_OF_CLIENTS = {
    "validation": "validation clients",
    "local_global": "training clients, of the model told of",
    "local_own": "training clients, of their own models",
}
_FAMILIES = (
    Family(
        "Loss",
        "number",
        {
            "scored_loss": ("Scored", "Loss of the scored model on the test set"),
            "aggregate_loss": ("Aggregate", "Loss of the aggregate model θ̄ on the test set"),
            "cloud_loss": ("Cloud", "Loss of the cloud model θ on the test set"),
            "averaged_loss": ("Averaged", "Loss of the averaged model on the test set"),
            "train_loss": ("Training", "Loss on the batches of local steps"),
        },
    ),
    Family("‖θ‖", "number", {"cloud_norm": ("Cloud", "Norm of the cloud model, ‖θ‖")}),
    Family(
        "‖h‖",
        "number",
        {
            "h_norm": ("Server", "Norm of the server’s estimate, ‖h‖"),
            "client_h_norm": ("Clients", "Norm of the clients’ estimates, ‖hᵢ‖, mean"),
        },
    ),
    Family(
        "Participation",
        "count",
        {
            "cohort": ("Cohort", "Clients that took part in the round"),
            "present": ("Present", "Training clients that were present in the round"),
            "rejected": ("Left out", "Replies that were left out so far"),
            "unanswered": ("Skipped", "Rounds so far in which no reply was accepted"),
        },
    ),
)
_OTHERS = {"h_cosine": ("Cosine", "Cosine of the angle between h and the round’s mean pseudo-gradient")}
_SPREADS = {"spread": "standard deviation over", "worst_tenth": "worst tenth of", "best_tenth": "best tenth of"}
_ELSEWHERE = {"round", "bytes_down", "bytes_up", "local_steps"}


def curves(entries: Mapping[str, Sequence[PageRun]]) -> dict[str, Any]:
    """What the page draws: families of metrics, and for each metric a line of each entry, or none.

    A line has rounds, means, standard deviations (none if all are 0) and the ends of runs that didn't finish as
    planned. Rounds are given as the number of one of ``grids``, since most lines share theirs.
    """
    judged = [_family(metric) for metric in _metrics(entries)]
    judged += [_by_client(metric) for metric in _metrics(entries)[:1]]
    every = (*judged, *_FAMILIES, _others(entries, judged))
    families = [found for family in every if (found := _measured(family, entries)).metrics]
    lines = sum(len(family.metrics) for family in families) * len(entries)
    limit = max(_FEWEST_POINTS, min(_MOST_POINTS, _ALL_POINTS // max(1, lines)))
    grids: dict[tuple[int, ...], int] = {}
    drawn = {
        metric: [_line(group, metric, limit, grids) for group in entries.values()]
        for family in families
        for metric in family.metrics
    }
    return {
        "families": [
            {
                "name": family.name,
                "scale": family.scale,
                "metrics": [[name, *words] for name, words in family.metrics.items()],
            }
            for family in families
        ],
        "lines": drawn,
        "grids": [list(grid) for grid in grids],
    }


def thin(curve: Curve, limit: int) -> Curve:
    """At most ``limit`` points of a curve: the first, the last, and of each stretch between the lowest and the highest.

    So a spike of a single round stays to be seen.
    """
    count = len(curve.rounds)
    if count <= limit:
        return curve
    stretches = (limit - 2) // 2
    starts = (count - 2) * np.arange(stretches) // stretches
    stretch = np.repeat(np.arange(stretches), np.diff(starts, append=count - 2))
    inner = curve.mean[1:-1]
    kept = [np.array([0, count - 1])]
    for extreme in (np.fmin, np.fmax):
        places = np.flatnonzero(inner == extreme.reduceat(inner, starts)[stretch])
        _, first = np.unique(stretch[places], return_index=True)
        kept.append(1 + places[first])
    indices = np.unique(np.concatenate(kept))
    return Curve(curve.rounds[indices], curve.mean[indices], curve.spread[indices])


def _line(
    group: Sequence[PageRun], metric: str, limit: int, grids: dict[tuple[int, ...], int]
) -> dict[str, Any] | None:
    curve = thin(mean_curve([one.run for one in group], metric), limit)
    if not len(curve.rounds):
        return None
    line: dict[str, Any] = {
        "grid": grids.setdefault(tuple(curve.rounds.tolist()), len(grids)),
        "mean": [_five_digits(value) for value in curve.mean.tolist()],
    }
    if curve.spread.any():
        line["spread"] = [_five_digits(value) for value in curve.spread.tolist()]
    ends = [_end(one, metric) for one in group if one.ending != "finished" and len(one.run.points(metric).rounds)]
    return {**line, "ends": ends} if ends else line


def _end(one: PageRun, metric: str) -> list[Any]:
    rounds, values = one.run.points(metric)
    return [int(rounds[-1]), _five_digits(float(values[-1])), one.ending]


def _measured(family: Family, entries: Mapping[str, Sequence[PageRun]]) -> Family:
    """What of a family was measured in any run."""
    runs = [one.run for group in entries.values() for one in group]
    there = {name: words for name, words in family.metrics.items() if any(len(run.points(name).rounds) for run in runs)}
    return Family(family.name, family.scale, there)


def _metrics(entries: Mapping[str, Sequence[PageRun]]) -> list[Metric]:
    """What models of any run are judged by, each once."""
    runs = [one.run for group in entries.values() for one in group]
    return list(dict.fromkeys(metric for run in runs for metric in run.judged_by))


def _family(metric: Metric) -> Family:
    """The curves of one metric of a task."""
    words = metric.words[0].upper() + metric.words[1:]
    named = {f"{model}_{metric.name}": (word, text.format(words)) for model, (word, text) in _OF_MODELS.items()}
    return Family(words, "percent" if metric.is_share else "number", named)


def _by_client(metric: Metric) -> Family:
    """The curves of how the first metric differs from client to client."""
    named = {
        f"{who}_{part}": (f"{part.replace('_', ' ')}, {who.rpartition('_')[2]}", f"{metric.words}: {words} {whose}")
        for who, whose in _OF_CLIENTS.items()
        for part, words in _SPREADS.items()
    }
    return Family("Clients", "percent" if metric.is_share else "number", named)


def _others(entries: Mapping[str, Sequence[PageRun]], judged: Sequence[Family]) -> Family:
    """What else algorithms measure."""
    known = _ELSEWHERE.union(*(family.metrics for family in (*judged, *_FAMILIES)))
    names = dict.fromkeys(name for group in entries.values() for one in group for name in one.run.final)
    return Family("More", "number", {name: _OTHERS.get(name, (name, name)) for name in names if name not in known})


def _five_digits(value: float) -> float | None:
    """A number to as many digits as can be drawn; None if it isn't finite."""
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
