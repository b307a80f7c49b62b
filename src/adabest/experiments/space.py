"""Search spaces: ranges or values of settings, and the points in them that Optuna proposes."""

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from adabest.errors import InputError
from adabest.experiments.choice import Point
from adabest.experiments.sweep import check_axes, read_texts, write_vary
from adabest.extras import require
from adabest.runs.settings.algorithm_specification import algorithm_options, refuse_unknown
from adabest.runs.settings.config import SETTINGS

# Lists of points to be tried together. The results of one list are sent to get the next one.
Proposals = Generator[list[dict[str, Any]], list[Point], None]

_EXAMPLE = "beta=0:1, mu=0.001:0.1:log or batch_size=16,32,64"
_SEEDS = 2**32  # the number of seeds of NumPy's legacy generator, which Optuna uses


@dataclass(frozen=True)
class SearchRange:
    """Numbers from ``low`` to ``high``: uniform or, with ``log``, in their logarithm; with ``whole``, integers."""

    low: float
    high: float
    log: bool
    whole: bool

    def rounded(self, value: float) -> float:
        """A value with no more digits than make a difference, since it becomes part of a folder's name."""
        if self.whole:
            return value
        size = self.high - self.low
        digits = 3 - math.floor(math.log10(min(size, value))) if self.log else 4 - math.floor(math.log10(size))
        return min(max(round(value, digits), self.low), self.high)


@dataclass(frozen=True)
class Values:
    """A set of values without an order."""

    values: tuple[Any, ...]


Space = dict[str, SearchRange | Values]


def read_space(space: Any, algorithm: str) -> Space:
    """A space, from ``{"beta": "0:1", "batch_size": [16, 32]}`` or texts such as ``mu=0.001:0.1:log``.

    Raises:
        InputError: If it has another form, or a setting can't be searched.
    """
    given = dict(space) if isinstance(space, Mapping) else read_texts(space, "space", _EXAMPLE)
    if not given:
        raise InputError(f"there must be settings and what they may be, as in {_EXAMPLE}, not space = {space!r}")
    refuse_unknown(given, SETTINGS | algorithm_options(algorithm))
    return {name: _read(name, what, algorithm) for name, what in given.items()}


def write_space(space: Space) -> list[str]:
    """A space as texts."""
    texts = []
    for name, what in space.items():
        if isinstance(what, SearchRange):
            texts.append(f"{name}={what.low}:{what.high}{':log' if what.log else ''}")
        else:
            texts += write_vary({name: what.values})
    return texts


def ends(space: Space) -> list[dict[str, Any]]:
    """Points that have every value, or both ends of every range, of each setting at least once."""
    values = {name: (d.low, d.high) if isinstance(d, SearchRange) else d.values for name, d in space.items()}
    last = {name: its_own[-1] for name, its_own in values.items()}
    points = [{**last, name: value} for name, its_own in values.items() for value in its_own[:-1]]
    return [*points, last]


def _read(name: str, given: Any, algorithm: str) -> SearchRange | Values:
    values = list(given) if isinstance(given, list | tuple) else [given]
    if len(values) == 1 and isinstance(values[0], str) and ":" in values[0]:
        return _read_range(name, values[0], algorithm)
    if len(values) < 2:
        raise InputError(f"space: {name} = {given!r} leaves nothing to search; say what it may be, as in {_EXAMPLE}")
    return Values(tuple(check_axes({name: values}, algorithm, "space")[name]))


def _read_range(name: str, text: str, algorithm: str) -> SearchRange:
    words = [word.strip() for word in text.split(":")]
    if len(words) not in (2, 3) or words[2:] not in ([], ["log"]):
        raise InputError(f"space: {name} = {text!r} should be low:high or low:high:log, as in {_EXAMPLE}")
    low, high = (check_axes({name: [word]}, algorithm, "space")[name][0] for word in words[:2])
    if not {type(low), type(high)} <= {int, float}:
        raise InputError(f"space: {name} isn't a number, so it has no range; name its values, as in {name}=this,that")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"space: {name} = {text!r}: the first number must be below the second, and both finite")
    if words[2:] and low <= 0:
        raise InputError(f"space: {name} = {text!r}: only numbers above 0 have a logarithm")
    return SearchRange(low, high, log=bool(words[2:]), whole=type(low) is int)


def proposals(space: Space, trials: int, at_a_time: int, seed: int) -> Proposals:
    """Points that Optuna's TPE sampler proposes. Equal seeds and equal results give equal points.

    Args:
        space: The space.
        trials: How many points to propose.
        at_a_time: How many points to propose before their results are known; the sampler spreads them.
        seed: The sampler's seed.

    Raises:
        InputError: If Optuna isn't installed.
    """
    require("the search of a space", "optuna", "optuna")
    return _proposed(space, trials, at_a_time, seed)


def _proposed(space: Space, trials: int, at_a_time: int, seed: int) -> Proposals:
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # else a new study prints a line
    try:
        sampler = optuna.samplers.TPESampler(seed=seed % _SEEDS, constant_liar=True)
        study = optuna.create_study(direction="maximize", sampler=sampler)
    finally:
        optuna.logging.set_verbosity(before)
    distributions: dict[str, optuna.distributions.BaseDistribution] = {}
    for name, what in space.items():
        if isinstance(what, Values):  # by index: Optuna's categories support only plain values
            distributions[name] = optuna.distributions.CategoricalDistribution(range(len(what.values)))
        elif what.whole:
            distributions[name] = optuna.distributions.IntDistribution(int(what.low), int(what.high), log=what.log)
        else:
            distributions[name] = optuna.distributions.FloatDistribution(what.low, what.high, log=what.log)
    for first in range(0, trials, at_a_time):
        asked = [study.ask(distributions) for _ in range(min(at_a_time, trials - first))]
        outcomes = yield [
            {
                name: what.rounded(trial.params[name])
                if isinstance(what, SearchRange)
                else what.values[trial.params[name]]
                for name, what in space.items()
            }
            for trial in asked
        ]
        for trial, outcome in zip(asked, outcomes, strict=True):
            if math.isfinite(outcome.goodness):
                study.tell(trial, outcome.goodness)  # a share's worst for a point that diverged
            else:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
