"""The paper's claims, each with a verdict, the number of seeds and the numbers behind it, from results alone."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from adabest.paper.agreement import Line, lines
from adabest.paper.facts import DATASETS, HETEROGENEITIES, cells_in_order, label
from adabest.paper.ranking import Order, orders
from adabest.paper.result_tables import Runs
from adabest.paper.scores import score
from adabest.paper.sensitivity import ratios_at_the_end
from adabest.report.entries import mean_curve
from adabest.report.table import Table
from adabest.runs.results_file import Result, Results

Ruling = Literal["holds", "holds in part", "doesn't hold"]

_NEARLY_TWO_FOLD = 1.8
_EARLY = 0.2  # part of the rounds after which growth of a norm counts
_GROWTH = 2.0  # of a norm that grows without end, from then to the last round
_SETTLED = 1.1  # of a norm that doesn't
_LOST = 0.5  # of its best accuracy, that an unstable run loses
_KEPT = 0.95  # of its best accuracy, that a stable run keeps


class Claim(NamedTuple):
    """A claim of the paper, and what our results say of it.

    Attributes:
        words: The claim.
        ruling: Whether it holds.
        seeds: How many seeds that is based on.
        numbers: The numbers behind it.
    """

    words: str
    ruling: Ruling
    seeds: str
    numbers: str


def claims_table(results: Sequence[Results]) -> Table:
    """The claims that results tell anything of.

    Args:
        results: Results of table1, fig-scale and fig-stability; those of other experiments are left alone.
    """
    runs = {of.experiment: {cell: of.of(cell) for cell in cells_in_order(of.cells())} for of in results}
    found = [
        *_of_table_1(runs.get("table1", {})),
        *_of_scale(runs.get("fig-scale", {})),
        *_of_stability(runs.get("fig-stability", {})),
    ]
    return Table(("claim", "verdict", "n", "numbers"), tuple(found), "The paper's claims")


def claims_notes() -> list[str]:
    """The rules behind the verdicts."""
    return [
        "Of Table 1, a claim holds if it does in every setting (or figure), and in part if it does in some. The gain "
        f"holds if a ratio is at least {_NEARLY_TWO_FOLD}.",
        f"A norm explodes if it grows {_GROWTH:g}-fold after the first fifth of the rounds, and doesn't if it grows by "
        f"at most {_SETTLED - 1:.0%}; accuracy is lost below {_LOST:.0%} of its best, and kept above {_KEPT:.0%}.",
        "The paper has no such rules; they are ours, made when these results were known.",
    ]


def _of_table_1(runs: Runs) -> list[Claim]:
    compared = [line for line in lines(runs) if line.verdict is not None]
    found = {name: order for name, order in orders(compared).items() if not order.length}
    if not found:
        return []
    within = sum(line.verdict is not None and line.verdict.within for line in compared)
    same = sum(order.same for order in found.values())
    alike, pairs = (sum(counts) for counts in zip(*(order.alike for order in found.values()), strict=True))
    seeds = _range([len(line.ours.values) for line in compared])
    return [
        Claim(
            "Table 1: the accuracies",
            _ruling(within, len(compared)),
            seeds,
            f"{within} of {len(compared)} figures within what is allowed",
        ),
        Claim(
            "Table 1: the order of the algorithms",
            _ruling(same, len(found)),
            seeds,
            f"{same} of {len(found)} settings; {alike} of {pairs} pairs of algorithms",
        ),
        _first(found, compared, seeds),
    ]


def _first(found: Mapping[str, Order], compared: Sequence[Line], seeds: str) -> Claim:
    """That AdaBest is first: in how many settings, and in which it isn't."""
    won = {name for name, order in found.items() if "adabest" in order.ours[0]}
    by_data = [
        f"{words} {len(won & names)} of {len(names)}"
        for key, words in DATASETS.items()
        if (names := {line.name for line in compared if line.cell.dataset == key} & set(found))
    ]
    lost = [
        f"{line.cell.participation} % {DATASETS[line.cell.dataset]} {HETEROGENEITIES[line.cell.heterogeneity]} "
        f"({' = '.join(map(label, found[line.name].ours[0]))})"
        for line in compared
        if line.algorithm == "adabest" and line.name in set(found) - won
    ]
    numbers = f"{len(won)} of {len(found)} settings ({', '.join(by_data)})"
    if lost:
        numbers += f"; another is first at {', '.join(lost)}"
    return Claim("Table 1: AdaBest is first", _ruling(len(won), len(found)), seeds, numbers)


def _of_scale(runs: Runs) -> list[Claim]:
    """That AdaBest is nearly twice as accurate as the second best, in some cases."""
    found = ratios_at_the_end(runs)
    if not found:
        return []
    holding = [cell for cell, ratio in found.items() if ratio >= _NEARLY_TWO_FOLD]
    numbers = "accuracy over the second best's: " + ", ".join(f"{ratio:.2f} ({cell})" for cell, ratio in found.items())
    seeds = _range([len(score(group).values) for entries in runs.values() for group in entries.values()])
    words = "fig-scale: nearly a two-fold gain, in some cases"
    return [Claim(words, "holds" if holding else "doesn't hold", seeds, numbers)]


def _of_stability(runs: Runs) -> list[Claim]:
    """That FedDyn's ‖θ‖ grows without end and its accuracy is lost, and that AdaBest's don't."""
    found = []
    for entries in runs.values():
        for algorithm, words, grows in (
            ("feddyn", "fig-stability: FedDyn's ‖θ‖ explodes, and its accuracy is lost", True),
            ("adabest", "fig-stability: AdaBest's ‖θ‖ doesn't, and its accuracy is kept", False),
        ):
            course = _course(entries.get(algorithm, []))
            if course is None:
                continue
            growth, kept = course.last_norm / course.early_norm, course.last / course.best
            right = [growth >= _GROWTH, kept <= _LOST] if grows else [growth <= _SETTLED, kept >= _KEPT]
            best, last = 100 * course.best, 100 * course.last
            numbers = (
                f"‖θ‖ {course.early_norm:.1f} in round {course.early_round:,}, {course.last_norm:.1f} in round "
                f"{course.last_round:,}; accuracy {best:.1f} % at best, {last:.1f} % at the end"
            )
            found.append(Claim(words, _ruling(sum(right), len(right)), str(len(entries[algorithm])), numbers))
    return found


class _Course(NamedTuple):
    """‖θ‖ after the first part of the rounds and at the end, and the best and the last accuracy; means over seeds."""

    early_round: int
    early_norm: float
    last_round: int
    last_norm: float
    best: float
    last: float


def _course(runs: Sequence[Result]) -> _Course | None:
    norm, accuracy = (mean_curve(runs, metric) for metric in ("cloud_norm", "scored_accuracy"))
    if not len(norm.rounds) or not len(accuracy.rounds):
        return None
    early = int((norm.rounds >= _EARLY * norm.rounds[-1]).argmax())
    return _Course(
        int(norm.rounds[early]),
        float(norm.mean[early]),
        int(norm.rounds[-1]),
        float(norm.mean[-1]),
        float(accuracy.mean.max()),
        float(accuracy.mean[-1]),
    )


def _ruling(holding: int, cases: int) -> Ruling:
    """All, some or none of the cases."""
    return "holds" if holding == cases else "holds in part" if holding else "doesn't hold"


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"
