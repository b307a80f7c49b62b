"""Table 1, ours beside the paper's: the verdict by hand, the order of the algorithms, and what is missing."""

import csv
import fnmatch
import math
import tomllib
from importlib import resources
from pathlib import Path

import pytest
from paper_results import made, of

from adabest import InputError
from adabest.paper.facts import (
    ALGORITHMS,
    Reported,
    all_cells,
    as_table_cell,
    cells_in_order,
    in_order,
    label,
    reported,
)
from adabest.paper.rendering import Rendered, render
from adabest.paper.scores import Score, judge, score, smooth
from adabest.report.table import Table
from adabest.runs.results_file import Result

CELL = "cifar100/10/iid"
PAPER = {"fedavg": 37.45, "feddyn": 49.60, "scaffold": 44.30, "adabest": 55.58}


def seeds(algorithm: str, *accuracies: float, cell: str = CELL, rounds: int = 1200) -> list[Result]:
    return [made(cell, algorithm, accuracy, seed=seed, rounds=rounds) for seed, accuracy in enumerate(accuracies)]


def rendered(*runs: Result, name: str = "table1") -> Rendered:
    return render(name, of(runs, name))


def row(table: Table, *start: str) -> dict[str, str]:
    """The row that begins so, by head."""
    (found,) = [row for row in table.rows if row[: len(start)] == start]
    return dict(zip(table.head, found, strict=True))


def note(result: Rendered, start: str) -> str:
    return next((text for text in result.notes if text.startswith(start)), "")


class TestFacts:
    def test_table_1_is_shipped(self) -> None:
        text = resources.files("adabest.paper").joinpath("table1.csv").read_text(encoding="utf-8")
        assert "Varno et al., AdaBest, ECCV 2022, Table 1" in text.splitlines()[0]
        assert len(list(csv.reader(text.splitlines()[2:]))) == 108
        settings = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
        patterns = settings["tool"]["setuptools"]["package-data"]["adabest"]
        assert any(fnmatch.fnmatch("paper/table1.csv", pattern) for pattern in patterns)

    def test_all_of_it_is_found(self) -> None:
        cells = all_cells()
        assert len(cells) == len(set(cells)) == 27
        assert cells[:4] == ["emnist-l/1/0.03", "emnist-l/1/0.3", "emnist-l/1/iid", "cifar10/1/0.03"]
        assert all(reported(cell, algorithm) for cell in cells for algorithm in ALGORITHMS)
        assert reported("cifar10/1/0.03", "scaffold") == Reported(75.83, 2.36)
        assert reported("cifar100/100/iid", "adabest") == Reported(51.33, 0.41)
        assert reported("mnist/10/iid", "adabest") is None
        assert reported("balanced/1000", "adabest") is None

    def test_names(self) -> None:
        assert as_table_cell("cifar10/1/0.03") == ("cifar10", "1", "0.03")
        assert [as_table_cell(name) for name in ("cifar10/1", "cifar10/5/iid", "cifar10/1/0.5", "0.005")] == [None] * 4
        assert label("adabest,beta=0.9,mu=0.02") == "AdaBest, β = 0.9, μ = 0.02"
        assert label("scaffold") == "SCAFFOLD"
        assert label("mine:Own") == "mine:Own"

    def test_the_order_is_the_papers(self) -> None:
        entries = ["adabest,mu=0.16", "other", "adabest", "scaffold", "adabest,mu=0.02", "fedavg", "feddyn"]
        known = ["fedavg", "feddyn", "scaffold", "adabest", "adabest,mu=0.02", "adabest,mu=0.16"]
        assert in_order(entries) == [*known, "other"]
        assert cells_in_order(["b", "a", "0.1", "0.02"]) == ["0.02", "0.1", "b", "a"]
        assert cells_in_order(["cifar10/10/iid", "cifar100/1/iid", "emnist-l/10/0.3"]) == [
            "cifar100/1/iid",
            "emnist-l/10/0.3",
            "cifar10/10/iid",
        ]


class TestVerdict:
    PAPER = Reported(50.0, 0.4)

    def test_three_seeds_have_a_deviation_of_their_own(self) -> None:
        ours = score(seeds("adabest", 50.0, 51.0, 52.0))
        assert ours.values == pytest.approx((50, 51, 52))
        assert (ours.mean, ours.std) == pytest.approx((51.0, 1.0))  # n - 1; with n it would be 0.816
        verdict = judge(ours, self.PAPER)
        assert verdict.difference == pytest.approx(1.0)
        assert verdict.allowed == pytest.approx(2 * math.sqrt(1.0**2 + 0.4**2))
        assert (verdict.within, verdict.borrowed) == (True, False)

    @pytest.mark.parametrize("count", [1, 2])
    def test_fewer_borrow_the_papers(self, count: int) -> None:
        verdict = judge(score(seeds("adabest", *[51.0, 53.0][:count])), self.PAPER)
        assert verdict.allowed == pytest.approx(2 * math.sqrt(2) * 0.4)
        assert verdict.borrowed

    @pytest.mark.parametrize(
        ("accuracy", "within"), [(51.13, True), (51.14, False), (48.87, True), (48.86, False), (50.0, True)]
    )
    def test_the_limit(self, accuracy: float, within: bool) -> None:
        assert judge(Score((accuracy,), 1200), self.PAPER).within is within  # 2·√(0.16 + 0.16) = 1.1314

    @pytest.mark.parametrize(("accuracy", "within"), [(50.5, True), (50.51, False), (49.5, True), (49.49, False)])
    def test_half_a_point_is_free(self, accuracy: float, within: bool) -> None:
        assert judge(Score((accuracy,), 1200), Reported(50.0, 0.01)).within is within

    def test_a_diverged_run_is_not_within(self) -> None:
        verdict = judge(Score((), 0, lost=(7,)), self.PAPER)
        assert (verdict.difference, verdict.within) == (None, False)
        assert not judge(Score((50.0, 50.0), 1200, lost=(7,)), self.PAPER).within

    def test_only_those_that_got_furthest_count(self) -> None:
        short = made(CELL, "adabest", 20.0, seed=5, rounds=700, status="killed")
        lost = made(CELL, "adabest", 10.0, seed=6, rounds=311, status="diverged", reason="not finite")
        ours = score([*seeds("adabest", 54.0, 56.0), short, lost])
        assert ours.values == pytest.approx((54.0, 56.0))
        assert (ours.round, ours.lost, ours.behind) == (1200, (311,), 1)
        assert ours.text() == "55.00 ± 1.41 (1 diverged in round 311)"
        assert ours.seeds == "2 of 3"

    def test_texts(self) -> None:
        assert Score((54.321,), 1200).text() == "54.32"
        assert Score((), 0, lost=(311,)).text() == "diverged in round 311"
        assert Score((), 0, lost=(311, 402)).text() == "diverged in rounds 311, 402"
        assert Score((), 0).text() == "–"
        assert (Score((), 0).mean, Score((1.0,), 1).std) == (None, 0.0)

    def test_a_running_mean(self) -> None:
        assert smooth([1, 2, 6, 4, 5, 9], width=3) == [1.5, 3, 4, 5, 6, 7]
        assert smooth([]) == []


class TestComparison:
    def test_a_cell(self) -> None:
        runs = [*seeds("adabest", 54.0, 55.0, 56.0), *seeds("fedavg", 38.5), *seeds("feddyn", 49.6, 49.7)]
        result = rendered(*runs, *seeds("scaffold", 46.0))
        table = result.tables["comparison"]
        assert [line[1] for line in table.rows] == list(ALGORITHMS)
        assert row(table, CELL, "adabest") == {
            "cell": CELL,
            "algorithm": "adabest",
            "ours %": "55.00 ± 1.00",
            "n": "3",
            "paper %": "55.58 ± 0.14",
            "difference": "−0.58",
            "allowed": "2.02",  # 2·√(1 + 0.0196)
            "within": "yes",
        }
        assert row(table, CELL, "fedavg")["ours %"] == "38.50"
        assert row(table, CELL, "fedavg")["allowed"] == "1.61†"  # 2·√2·0.57
        assert row(table, CELL, "feddyn")["allowed"] == "0.68†"
        assert [row(table, CELL, "scaffold")[name] for name in ("difference", "within")] == ["+1.70", "no"]
        assert note(result, "†")
        assert note(result, "Largest") == f"Largest differences that are not within: {CELL} scaffold +1.70."

    def test_those_outside_are_listed_by_their_size(self) -> None:
        lost = made(CELL, "feddyn", 10.0, rounds=311, status="diverged")
        runs = [*seeds("adabest", 50.0), *seeds("scaffold", 60.0), *seeds("fedavg", 37.45), lost]
        table = rendered(*runs, *seeds("adabest", 10.0, cell="cifar10/10/iid", rounds=9)).tables["outside"]
        assert [line[1] for line in table.rows] == ["feddyn", "scaffold", "adabest"]

    def test_no_dagger_where_there_are_seeds(self) -> None:
        result = rendered(*seeds("adabest", 54.0, 55.0, 56.0))
        assert "†" not in result.tables["comparison"].markdown() + "".join(result.notes)

    def test_runs_of_another_length_get_no_verdict(self) -> None:
        for rounds in (300, 1300):
            result = rendered(*seeds("adabest", 55.5, rounds=rounds), *seeds("fedavg", 37.0))
            line = row(result.tables["comparison"], CELL, "adabest")
            assert line["ours %"] == f"55.50 (round {rounds})"
            assert [line[name] for name in ("difference", "allowed", "within")] == ["–"] * 3
            order = row(result.tables["ranking"], f"{CELL} (round {rounds})")
            assert order["ours"] == "adabest > fedavg"
            assert [order[name] for name in ("pairs alike", "same order", "same first")] == ["–"] * 3
            assert row(result.tables["headline"])["AdaBest %"] == f"**55.50** (round {rounds}, n = 1) / **55.58**"
            counts = row(result.tables["summary"], "all")
            assert [counts[name] for name in ("compared", "same order", "same first")] == ["1", "–", "–"]
            assert "1,000 / 1,200 / 2,000" in note(result, "Where a round is named")

    def test_every_participation_has_its_rounds(self) -> None:
        for rate, rounds in {"1": 1000, "10": 1200, "100": 2000}.items():
            cell = f"cifar10/{rate}/iid"
            line = row(rendered(*seeds("adabest", 85.0, cell=cell, rounds=rounds)).tables["comparison"], cell)
            assert line["within"] in {"yes", "no"}

    def test_a_diverged_run_is_shown_as_diverged(self) -> None:
        lost = [made(CELL, "feddyn", 10.0, seed=seed, rounds=311, status="diverged") for seed in (3, 4)]
        alone = row(rendered(lost[0], *seeds("adabest", 55.0)).tables["comparison"], CELL, "feddyn")
        assert [alone[name] for name in ("ours %", "n", "difference", "within")] == [
            "diverged in round 311",
            "0 of 1",
            "–",
            "no",
        ]
        result = rendered(*seeds("feddyn", 49.6, 49.6), *lost, *seeds("adabest", 55.58))
        some = row(result.tables["comparison"], CELL, "feddyn")
        assert some["ours %"] == "49.60 ± 0.00 (2 diverged in rounds 311, 311)"
        assert [some[name] for name in ("n", "difference", "within")] == ["2 of 4", "0.00", "no"]
        counts = row(result.tables["summary"], "all")
        assert [counts[name] for name in ("compared", "within", "outside", "diverged")] == ["2", "1", "0", "1"]
        assert "diverged" in note(result, "What diverged")

    def test_seeds_that_were_left_behind_are_named(self) -> None:
        result = rendered(*seeds("adabest", 55.0), made(CELL, "adabest", 30.0, seed=7, rounds=400, status="killed"))
        assert note(result, "Left out") == f"Left out, because other seeds got further: {CELL} adabest (1)."
        assert row(result.tables["comparison"], CELL)["n"] == "1"

    def test_cells_that_were_not_run_are_left_out_and_named(self) -> None:
        runs = [
            made(cell, algorithm, 50.0, rounds=1000)
            for cell in ("cifar10/1/0.03", "cifar10/1/iid")
            for algorithm in ALGORITHMS
            if (cell, algorithm) != ("cifar10/1/iid", "scaffold")
        ]
        result = rendered(*runs)
        assert len(result.tables["comparison"].rows) == 7
        assert note(result, "Not run") == (
            "Not run: `emnist-l/*`, `cifar10/1/0.3`, `cifar100/*`, `cifar10/10/*`, `cifar10/100/*`, "
            "`cifar10/1/iid` (scaffold)."  # stars would be emphasis, were they not code
        )
        assert row(result.tables["headline"], "1 %", "CIFAR-10", "IID")["SCAFFOLD %"] == "–"

    def test_nothing_is_missing_when_all_is_there(self) -> None:
        runs = [made(cell, name, 50.0) for cell in all_cells() for name in ALGORITHMS]
        assert not note(rendered(*runs), "Not run")
        exact = [run for run in runs if not run.cell.endswith("iid")]
        assert not note(rendered(*exact, name="table1-exact"), "Not run")
        assert note(rendered(*exact), "Not run").count("/iid") == 9


class TestRanking:
    def ranked(self, **accuracies: float) -> dict[str, str]:
        runs = [run for algorithm, accuracy in accuracies.items() for run in seeds(algorithm, accuracy)]
        return row(rendered(*runs).tables["ranking"], CELL)

    def test_the_same(self) -> None:
        line = self.ranked(**PAPER)
        assert line["ours"] == line["paper"] == "adabest > feddyn > scaffold > fedavg"
        assert [line[name] for name in ("pairs alike", "same order", "same first")] == ["6 of 6", "yes", "yes"]
        assert line["first: ours"] == line["first: paper"] == "adabest"

    def test_another(self) -> None:
        line = self.ranked(**PAPER | {"scaffold": 56.0})
        assert line["ours"] == "scaffold > adabest > feddyn > fedavg"
        assert [line[name] for name in ("pairs alike", "same order", "same first")] == ["4 of 6", "no", "no"]
        assert line["first: ours"] == "scaffold"

    def test_being_level_contradicts_nothing(self) -> None:
        line = self.ranked(**PAPER | {"feddyn": 55.581})  # 55.58 at two digits
        assert line["ours"] == "feddyn = adabest > scaffold > fedavg"
        assert [line[name] for name in ("pairs alike", "same order", "same first")] == ["6 of 6", "yes", "yes"]
        assert line["first: ours"] == "feddyn = adabest"
        assert self.ranked(**PAPER | {"feddyn": 55.586})["same order"] == "no"

    def test_only_those_that_were_run(self) -> None:
        line = self.ranked(adabest=50.0, scaffold=45.0)
        assert (line["ours"], line["paper"], line["pairs alike"]) == (*["adabest > scaffold"] * 2, "1 of 1")
        assert rendered(*seeds("adabest", 50.0)).tables["ranking"].rows == ()

    def test_a_diverged_algorithm_comes_last(self) -> None:
        lost = [made(CELL, name, 99.0, status="diverged", rounds=9) for name in ("adabest", "fedavg")]
        line = row(rendered(*lost, *seeds("feddyn", 40.0)).tables["ranking"], CELL)
        assert line["ours"] == "feddyn > fedavg = adabest"


class TestInShort:
    def test_the_best_are_bold(self) -> None:
        runs = [run for name, accuracy in (PAPER | {"feddyn": 57.0}).items() for run in seeds(name, accuracy)]
        line = row(rendered(*runs).tables["headline"])
        assert list(line.values()) == [
            "10 %",
            "CIFAR-100",
            "IID",
            "37.45 (n = 1) / 37.45",
            "**57.00** (n = 1) / 49.60",
            "44.30 (n = 1) / 44.30",
            "55.58 (n = 1) / **55.58**",
        ]

    def test_a_single_algorithm_is_not_the_best(self) -> None:
        assert row(rendered(*seeds("feddyn", 57.0)).tables["headline"])["FedDyn %"] == "57.00 (n = 1) / 49.60"

    def test_the_headline_has_spreads_and_tells_of_few_seeds(self) -> None:
        runs = [*seeds("feddyn", 49.0, 50.0), *seeds("adabest", 54.0, 55.0, 56.0)]
        line = row(rendered(*runs).tables["headline"])
        assert line["FedDyn %"] == "49.50 ± 0.71 (n = 2) / 49.60"
        assert line["AdaBest %"] == "**55.00 ± 1.00** / **55.58**"

    def test_the_headline_counts_diverged_runs(self) -> None:
        lost = made(CELL, "feddyn", 10.0, seed=9, rounds=311, status="diverged")
        alone = row(rendered(lost, *seeds("adabest", 55.0)).tables["headline"])
        assert alone["FedDyn %"] == "diverged in round 311 / 49.60"
        some = row(rendered(lost, *seeds("feddyn", 50.0), *seeds("adabest", 55.0)).tables["headline"])
        assert some["FedDyn %"] == "50.00 (n = 1, 1 diverged) / 49.60"

    def test_what_is_within_by_setting(self) -> None:
        runs = [
            *seeds("fedavg", 37.0, 38.0),
            *seeds("feddyn", 57.0),
            *seeds("scaffold", 44.3),
            *seeds("adabest", 55.58),
        ]
        short = seeds("adabest", 50.0, cell="cifar10/10/iid", rounds=300)
        assert rendered(*runs, *short).tables["cells"].rows == (
            ("10 %", "CIFAR-100", "IID", "3 of 4", "FedDyn", "1, 2", "no", "no"),
        )
        alone = rendered(*seeds("adabest", 55.58)).tables["cells"].rows
        assert alone == (("10 %", "CIFAR-100", "IID", "1 of 1", "–", "1", "–", "–"),)

    def test_how_often_ours_is_the_papers(self) -> None:
        low = [run for name, accuracy in PAPER.items() for run in seeds(name, accuracy)]
        cell = "cifar10/1/0.03"
        other = [made(cell, name, accuracy) for name, accuracy in (("adabest", 78.44), ("fedavg", 90.0))]
        table = rendered(*low, *other).tables["summary"]
        assert row(table, "10 %") == dict(
            zip(table.head, ("10 %", "4", "4", "0", "0", "1 of 1", "1 of 1"), strict=True)
        )
        assert list(row(table, "1 %").values())[1:] == ["2", "1", "1", "0", "0 of 1", "0 of 1"]
        assert list(row(table, "CIFAR-100").values())[1:3] == ["4", "4"]
        assert list(row(table, "α = 0.03").values())[1:3] == ["2", "1"]
        assert list(row(table, "FedAvg").values())[1:] == ["2", "1", "1", "0", "–", "–"]
        assert list(row(table, "all").values())[1:] == ["6", "5", "1", "0", "1 of 2", "1 of 2"]
        assert "100 %" not in [line[0] for line in table.rows]


class TestErrors:
    def test_an_unknown_experiment(self) -> None:
        with pytest.raises(
            InputError, match="there are no tables and figures of 'table2'; there are those of table1, "
        ):
            render("table2", of(seeds("adabest", 50.0), "table2"))

    def test_no_results(self) -> None:
        with pytest.raises(InputError, match="there are no results of table1 to show"):
            render("table1", of([]))

    def test_results_of_another_experiment(self) -> None:
        with pytest.raises(InputError, match="results of table1 can't be shown as fig-beta"):
            render("fig-beta", of(seeds("adabest", 50.0)))
