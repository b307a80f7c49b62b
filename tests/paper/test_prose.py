"""Figures in the prose of pages: each is what results/ make of it, at the digits that it is written with."""

import functools
import itertools
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from adabest.paper import agreement, ranking
from adabest.paper.entropy import entropy_points, fit
from adabest.paper.facts import cells_in_order, reported
from adabest.paper.scores import score, smooth
from adabest.paper.sensitivity import ratios_at_the_end
from adabest.runs.results_file import Result, Results

ROOT = Path(__file__).parents[2]
TABLE, FIGURES, README = "docs/results/table1.md", "docs/results/figures.md", "README.md"
NUMBER = r"([−-]?\d*\.?\d+(?:,\d{3})*)"
STABILITY, SCALE = "fig-stability.json", "fig-scale.json"


@functools.cache
def results(pattern: str) -> Results:
    return functools.reduce(Results.merged, map(Results.read, sorted((ROOT / "results").glob(pattern))))


@functools.cache
def prose(page: str) -> str:
    """A page without tables, on one line."""
    text = (ROOT / page).read_text(encoding="utf-8")
    kept = (line for line in text.splitlines() if not line.startswith(("|", "<!--")))
    return " ".join(" ".join(kept).replace("**", "").split())


def runs(cell: str, entry: str, pattern: str = "table1/*.json") -> list[Result]:
    return list(results(pattern).of(cell)[entry])


def mean(cell: str, entry: str, metric: str = "scored_accuracy", pattern: str = "table1/*.json") -> float:
    found = score(runs(cell, entry, pattern), metric).mean
    assert found is not None
    return found


@functools.cache
def lines() -> list[agreement.Line]:
    table = results("table1/*.json")
    return agreement.lines({cell: table.of(cell) for cell in cells_in_order(table.cells())})


def within(algorithm: str = "") -> int:
    return sum(bool(of.verdict and of.verdict.within) for of in lines() if algorithm in ("", of.algorithm))


def misses(*, cell: str = "", algorithm: str = "") -> list[float]:
    """Differences from the paper, in cells that begin so and for an algorithm."""
    return [
        of.verdict.difference
        for of in lines()
        if of.verdict
        and of.verdict.difference is not None
        and of.name.startswith(cell)
        and algorithm in ("", of.algorithm)
    ]


def first(dataset: str = "") -> int:
    found = ranking.orders(lines())
    return sum("adabest" in order.ours[0] for name, order in found.items() if name.startswith(dataset))


def ends(values: Iterable[float]) -> tuple[float, float]:
    found = sorted(values)
    return found[0], found[-1]


def gains(metric: str, algorithm: str, share: str = "10") -> list[float]:
    cells = [cell for cell in results("table1/*.json").cells() if cell.split("/")[1] == share]
    return [mean(cell, algorithm, metric) - mean(cell, algorithm) for cell in cells]


def needed(dataset: str) -> list[float]:
    """The entropies that the paper's accuracies need by the lines of a data set."""
    found = []
    points = entropy_points([results("table1/*.json")])
    for algorithm in ("fedavg", "feddyn", "scaffold", "adabest"):
        line = fit([of for of in points if (of.dataset, of.algorithm) == (dataset, algorithm)])
        paper = reported(f"{dataset}/1/0.03", algorithm)
        assert line is not None
        assert paper is not None
        found.append(line.needed(paper.mean) or 0.0)
    return found


def fedavg_interval() -> tuple[float, float]:
    points = entropy_points([results("table1/*.json"), results("table1-more-seeds.json")])
    line = fit([of for of in points if (of.dataset, of.algorithm) == ("cifar10", "fedavg")])
    paper = reported("cifar10/1/0.03", "fedavg")
    assert line is not None
    assert paper is not None
    low, high = line.interval(paper) or (0.0, 0.0)
    return low, min(high, 2.302585)


def above_aggregate() -> tuple[float, float]:
    skewed = [cell for cell in results("table1/*.json").cells() if cell.endswith("/1/0.03")]
    entries = ("fedavg", "feddyn", "scaffold", "adabest")
    return ends(mean(c, e) - mean(c, e, "aggregate_accuracy") for c in skewed for e in entries)


def of_seed(pattern: str, seed: int) -> float:
    (found,) = [run for run in runs("cifar10/1/0.03", "fedavg", pattern) if run.seed == seed]
    return float(100 * found.final["scored_accuracy"])


def at(pattern: str, cell: str, entry: str, metric: str, round_number: int) -> float:
    (run,) = runs(cell, entry, pattern)
    return dict(zip(*run.curve(metric), strict=True))[round_number]


def trained(entry: str) -> list[float]:
    (run,) = runs("cifar100", entry, "fig-stability.json")
    return [100 * value for value in smooth(run.curve("train_accuracy")[1])]


def mu_range(algorithm: str) -> float:
    found = [mean("mnist", f"{algorithm},mu={mu}", pattern="fig-mu.json") for mu in (0.02, 0.04, 0.08, 0.16)]
    return max(found) - min(found)


def beta_ranges(*betas: str) -> list[float]:
    shares = results("fig-beta.json").cells()
    ranges = []
    for beta in betas:
        low, high = ends(mean(cell, f"adabest,beta={beta}", pattern="fig-beta.json") for cell in shares)
        ranges.append(high - low)
    return ranges


def population(cell: str, entry: str, metric: str = "scored_accuracy") -> float:
    return mean(cell, entry, metric, "population.json")


def scale_ratios() -> dict[str, float]:
    of = results(SCALE)
    return ratios_at_the_end({cell: of.of(cell) for cell in of.cells()})


def churn_gaps() -> list[float]:
    return [population("churn", name) - population("churn", "adabest") for name in ("feddyn", "scaffold")]


# Page, words with # for each number, and the numbers.
SENTENCES: list[tuple[str, str, Callable[[], Iterable[float]]]] = [
    (README, "# of the # figures lie within", lambda: (within(), len(lines()))),
    (README, "SCAFFOLD's and AdaBest's # of 12 each", lambda: {within("scaffold"), within("adabest")}),
    (README, "AdaBest is first in # settings of #", lambda: (first(), len(ranking.orders(lines())))),
    (TABLE, "FedDyn agrees in # figures of 12, FedAvg in #", lambda: (within("feddyn"), within("fedavg"))),
    (TABLE, "SCAFFOLD and AdaBest agree in # of 12 each", lambda: {within("scaffold"), within("adabest")}),
    (TABLE, "the means lie # to # points below", lambda: ends(-of for of in misses(cell="cifar10/1/0.03"))),
    (
        TABLE,
        "by # to # points on CIFAR-10, by # to # on CIFAR-100",
        lambda: (
            *ends(-of for of in misses(cell="cifar10/1/0.03")),
            *ends(-of for of in misses(cell="cifar100/1/0.03")),
        ),
    ),
    (TABLE, "and is # to # points above θ̄", above_aggregate),
    (TABLE, "would need # to # nats", lambda: ends(needed("cifar10"))),
    (TABLE, "with the two runs on a CPU, is # to #", fedavg_interval),
    (
        TABLE,
        "# % in bfloat16 on the GPU, # % in float32 on the CPU",
        lambda: (of_seed("table1/*.json", 2), of_seed("table1-more-seeds.json", 2)),
    ),
    (
        TABLE,
        "(IID and α = .3, by # and #), and at 1 % below it (by # to #)",
        lambda: (
            *misses(cell="cifar100/10/iid", algorithm="scaffold"),
            *misses(cell="cifar100/10/0.3", algorithm="scaffold"),
            *ends(-of for data in ("cifar10", "cifar100") for of in misses(cell=f"{data}/1/", algorithm="scaffold")),
        ),
    ),
    (TABLE, "in all twelve cells, by # to # points", lambda: ends(-of for of in misses(algorithm="adabest"))),
    (
        TABLE,
        "the miss is # points, and the cloud model is # below θ̄ at the end",
        lambda: (
            -misses(cell="cifar10/10/0.03", algorithm="adabest")[0],
            mean("cifar10/10/0.03", "adabest", "aggregate_accuracy")
            - mean("cifar10/10/0.03", "adabest", "cloud_accuracy"),
        ),
    ),
    (
        TABLE,
        "in all six cells: # to # points above the scored one, up to # %",
        lambda: (*ends(gains("averaged_accuracy", "adabest")), mean("cifar100/10/iid", "adabest", "averaged_accuracy")),
    ),
    (
        TABLE,
        "FedDyn gains # to # points by it, FedAvg next to nothing, and SCAFFOLD between # and #",
        lambda: (*ends(gains("averaged_accuracy", "feddyn")), *ends(gains("averaged_accuracy", "scaffold"))),
    ),
    (
        FIGURES,
        "from # at round 1,000 to # at round 5,000, and takes its accuracy along, down to # %",
        lambda: (
            at(STABILITY, "cifar100", "feddyn", "cloud_norm", 1000),
            at(STABILITY, "cifar100", "feddyn", "cloud_norm", 5000),
            mean("cifar100", "feddyn", pattern=STABILITY),
        ),
    ),
    (
        FIGURES,
        "Its accuracy is # times that of the second",
        lambda: ratios_at_the_end({"cifar100": results(STABILITY).of("cifar100")}).values(),
    ),
    (FIGURES, "SCAFFOLD's falls from # to # %", lambda: (max(trained("scaffold")), trained("scaffold")[-1])),
    (
        FIGURES,
        "# times as accurate on balanced data, # times on unbalanced",
        lambda: (scale_ratios()["balanced/1000"], scale_ratios()["unbalanced/1000"]),
    ),
    (
        FIGURES,
        "At 100 clients it is # %",
        lambda: {round(100 * scale_ratios()[f"{balance}/100"] - 100) for balance in ("balanced", "unbalanced")},
    ),
    (
        FIGURES,
        "climbs to # in the first 250 rounds",
        lambda: (max(at("fig-stability-emnist.json", "mnist", "feddyn", "cloud_norm", r) for r in range(50, 251, 50)),),
    ),
    (
        FIGURES,
        "over 50, and settles at #",
        lambda: (mean("mnist", "adabest", "cloud_norm", "fig-stability-emnist.json") / 100,),
    ),
    (
        FIGURES,
        "AdaBest's accuracy differs by # points over an eightfold range of μ, FedDyn's by #",
        lambda: (mu_range("adabest"), mu_range("feddyn")),
    ),
    (FIGURES, "under churn (by # and #)", churn_gaps),
    (
        FIGURES,
        "its ‖θ‖ ends at #, where the fixed population has #",
        lambda: (
            population("growing", "scaffold", "cloud_norm") / 100,
            population("fixed", "scaffold", "cloud_norm") / 100,
        ),
    ),
]


@pytest.mark.parametrize(
    ("page", "words", "numbers"), SENTENCES, ids=[f"{p.split('/')[-1]}: {w}" for p, w, _ in SENTENCES]
)
def test_a_figure_in_prose_is_that_of_the_results(
    page: str, words: str, numbers: Callable[[], Iterable[float]]
) -> None:
    found = re.search(NUMBER.join(re.escape(part) for part in words.split("#")), prose(page))
    assert found, f"{page} has no sentence {words!r}; if it was changed, change it here, too"
    for written, value in itertools.zip_longest(found.groups(), numbers()):
        digits = len(written.partition(".")[2])
        told = float(written.replace("−", "-").replace(",", ""))
        assert abs(told - value) <= 0.5 * 10**-digits + 1e-6, f"{page}: {words!r} says {written}, results {value:.4f}"


def test_adabest_is_first_on_cifar_100_and_in_half_of_cifar_10() -> None:
    assert (first("cifar100/"), first("cifar10/")) == (6, 3)
    assert "first in all six cells" in prose(TABLE)
    assert "On CIFAR-10 it is first in three of six" in prose(TABLE)


def test_sensitivity_to_beta_is_as_told() -> None:
    text = prose(FIGURES)
    assert "up to β = .4 (within 3.5 points); from .6 on it differs by 6 and more" in text
    assert max(beta_ranges("0", "0.2", "0.4")) <= 3.5
    assert min(beta_ranges("0.6", "0.8", "0.9", "0.95", "0.98", "1")) >= 6


def test_runs_not_reached_are_not_there() -> None:
    """If this fails, "Not reached" of Table 1 is no longer true."""
    found = results("table1/*.json")
    seeds = {cell: {run.seed for group in found.of(cell).values() for run in group} for cell in found.cells()}
    assert not any(cell.split("/")[1] == "100" or cell.startswith("emnist") for cell in seeds)
    assert {cell for cell, of in seeds.items() if of != {0, 1, 2}} == {
        f"cifar10/10/{kind}" for kind in ("0.03", "0.3", "iid")
    }
