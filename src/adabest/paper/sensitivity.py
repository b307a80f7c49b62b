"""Tables of the figures' claims: how much better AdaBest is, which β is best where, and what a variant changes."""

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from adabest.paper.facts import entry_algorithm, entry_options, in_order, label, reported
from adabest.paper.result_tables import Runs, entries_in_order
from adabest.paper.scores import judge, score, smooth
from adabest.report.entries import mean_curve
from adabest.report.numbers import MISSING, as_text, with_sign, with_spread
from adabest.report.table import Table
from adabest.runs.results_file import Result

AUTO = "adabest,beta=auto"
_OURS = "adabest"
_SETTLED = 0.1  # part of the rounds after which a ratio of accuracies says something


def ratio_table(runs: Runs) -> Table:
    """AdaBest's accuracy over the best other's: at the end, and where it is largest."""
    rows = []
    for cell, entries in runs.items():
        if (pair := _ours_and_second(entries)) is not None:
            largest, round_number = _largest_ratio(entries)
            rows.append(
                (
                    cell,
                    f"{pair.ours:.2f}",
                    f"{pair.second:.2f} ({label(pair.name)})",
                    f"{pair.ours / pair.second:.2f}",
                    f"{largest:.2f} (round {round_number})",
                )
            )
    head = ("cell", "AdaBest %", "best other %", "ratio at the end", "largest ratio")
    return Table(head, tuple(rows), "How much better than the second best")


def ratios_at_the_end(runs: Runs) -> dict[str, float]:
    """AdaBest's accuracy over the best other's in the last round, by setting."""
    pairs = {cell: _ours_and_second(entries) for cell, entries in runs.items()}
    return {cell: pair.ours / pair.second for cell, pair in pairs.items() if pair is not None}


class _Pair(NamedTuple):
    """AdaBest's accuracy, and the best other's with its entry's name."""

    ours: float
    second: float
    name: str


def _ours_and_second(entries: Mapping[str, Sequence[Result]]) -> _Pair | None:
    means = {entry: score(group).mean for entry, group in entries.items()}
    others = {entry: mean for entry, mean in means.items() if entry != _OURS and mean is not None}
    ours = means.get(_OURS)
    if ours is None or not others:
        return None
    second = max(others, key=lambda entry: others[entry])
    return _Pair(ours, others[second], second)


def _largest_ratio(entries: Mapping[str, Sequence[Result]]) -> tuple[float, int]:
    """The largest ratio over rounds, of means over seeds, and its round."""
    curves = {entry: mean_curve(group, "scored_accuracy") for entry, group in entries.items()}
    values = {
        entry: dict(zip(curve.rounds.tolist(), curve.mean.tolist(), strict=True)) for entry, curve in curves.items()
    }
    ours = values.pop(_OURS)
    ratios = []
    for round_number, accuracy in ours.items():
        best = max((of.get(round_number, 0.0) for of in values.values()), default=0.0)
        if best and round_number >= _SETTLED * max(ours):
            ratios.append((accuracy / best, round_number))
    return max(ratios, default=(float("nan"), 0))


def train_table(entries: Mapping[str, Sequence[Result]]) -> Table:
    """Training accuracy, smoothed, and test accuracy of one seed: the highest, and the last."""
    rows = []
    for entry, (run, *_) in entries.items():
        rounds, values = run.curve("train_accuracy")
        curves = ((rounds, smooth(values)), run.curve("scored_accuracy"))
        rows.append((entry, str(run.seed), *(cell for curve in curves for cell in _highest_and_last(*curve))))
    head = ("entry", "seed", "highest train % (round)", "last train %", "highest test % (round)", "last test %")
    return Table(head, tuple(rows), "Training and test accuracy")


def _highest_and_last(rounds: Sequence[int], values: Sequence[float]) -> tuple[str, str]:
    if not values:
        return MISSING, MISSING
    highest = max(range(len(values)), key=lambda place: values[place])
    return f"{100 * values[highest]:.2f} ({rounds[highest]})", f"{100 * values[-1]:.2f}"


def beta_table(runs: Runs) -> Table:
    """Final accuracies: a row for each β, a column for each participation, the best of each column bold."""
    best = {}
    for cell, entries in runs.items():
        means = [mean for group in entries.values() if (mean := score(group).mean) is not None]
        best[cell] = max((round(mean, 2) for mean in means), default=None)
    rows = []
    for entry in entries_in_order(runs):
        cells = []
        for cell, entries in runs.items():
            of = score(entries[entry]) if entry in entries else None
            text = of.text() if of else MISSING
            is_best = of is not None and of.mean is not None and round(of.mean, 2) == best[cell]
            cells.append(f"**{text}**" if is_best else text)
        rows.append((entry_options(entry).get("beta", entry), *cells))
    return Table(("β", *runs), tuple(rows), "Test accuracy (%) by β and share of clients in a round")


def auto_table(runs: Runs, words: str) -> Table:
    """β = auto beside the best of the other values, of the same seeds; a row for each setting that has both.

    Args:
        runs: The runs of several seeds, by setting and entry.
        words: What the best of the other values is called: best fixed, or tuned.
    """
    rows = []
    for cell, entries in runs.items():
        pairs = {
            entry: same_seeds(group, entries.get(AUTO, []))
            for entry, group in entries.items()
            if entry != AUTO and entry_algorithm(entry) == _OURS
        }
        means = {entry: mean for entry, (group, _) in pairs.items() if (mean := score(group).mean) is not None}
        if not means:
            continue
        best = max(means, key=lambda entry: means[entry])
        fixed, auto = map(score, pairs[best])
        beta = as_text(pairs[best][0][0].settings.get("beta", entry_options(best).get("beta", MISSING)))
        rows.append((cell, beta, fixed.text(), auto.text(), auto.seeds, _difference(auto.mean, fixed.mean)))
    head = ("cell", f"{words} β", "its accuracy %", "β = auto: accuracy %", "n", "difference")
    return Table(head, tuple(rows), f"β = auto beside the {words} β")


def misses_table(runs: Runs) -> Table:
    """Variants of an algorithm beside its plain form, with the same seeds, and the paper's figure."""
    rows = []
    for cell, entries in runs.items():
        seeds: dict[str, set[int]] = {}
        for entry in filter(entry_options, entries):
            seeds.setdefault(entry_algorithm(entry), set()).update(run.seed for run in entries[entry])
        for entry in (entry for entry in in_order(entries) if entry_algorithm(entry) in seeds):
            shown = with_seeds(entries[entry], seeds[entry_algorithm(entry)])
            of, paper = score(shown), reported(cell, entry_algorithm(entry))
            ours, plain = same_seeds(shown, entries.get(entry_algorithm(entry), []))
            rows.append(
                (
                    cell,
                    entry,
                    of.text(),
                    of.seeds,
                    _difference(score(ours).mean, score(plain).mean) if entry_options(entry) else MISSING,
                    with_spread(paper.mean, paper.std) if paper else MISSING,
                    _difference(of.mean, paper.mean if paper else None),
                    MISSING if paper is None else "yes" if judge(of, paper).within else "no",
                )
            )
    head = ("cell", "entry", "ours %", "n", "to the plain one", "paper %", "to the paper", "within")
    return Table(head, tuple(rows), "Other readings of the protocol")


def with_seeds(runs: Sequence[Result], seeds: Container[int]) -> list[Result]:
    """The runs with some seeds."""
    return [run for run in runs if run.seed in seeds]


def same_seeds(runs: Sequence[Result], others: Sequence[Result]) -> tuple[list[Result], list[Result]]:
    """Two groups of runs, each without the seeds that the other doesn't have."""
    shared = {run.seed for run in runs} & {run.seed for run in others}
    return with_seeds(runs, shared), with_seeds(others, shared)


def _difference(mean: float | None, other: float | None) -> str:
    return MISSING if mean is None or other is None else with_sign(mean - other)
