"""Accuracy over the entropy of partitions: lines by hand, what the paper's accuracy needs, and how unsure that is."""

import dataclasses
import math
from pathlib import Path

import pytest
from paper_results import made, of

from adabest.paper.entropy import (
    FittedLine,
    Point,
    entropy_figure,
    entropy_notes,
    entropy_points,
    fit,
    lines_table,
    seeds_table,
)
from adabest.paper.facts import Reported
from adabest.runs.results_file import Result, Results

CELL = "cifar10/1/0.03"


def run(entropy: float, accuracy: float, seed: int = 0, entry: str = "fedavg", precision: str = "bf16") -> Result:
    plain = made(CELL, entry, accuracy, seed=seed, settings={"precision": precision})
    return dataclasses.replace(plain, partition={"mean_label_entropy": entropy})


def line(*points: tuple[float, float]) -> FittedLine:
    found = fit([Point("cifar10", "fedavg", seed, x, y, False) for seed, (x, y) in enumerate(points)])
    assert found is not None
    return found


class TestPoints:
    def test_only_finished_runs_at_one_per_cent_count(self) -> None:
        kept = run(0.9, 70.0)
        others = [
            dataclasses.replace(kept, cell="cifar10/10/0.03"),
            dataclasses.replace(kept, status="diverged"),
            dataclasses.replace(kept, entry="fedavg,clip=0"),
            dataclasses.replace(kept, partition={}),
        ]
        assert entropy_points([of([kept, *others])]) == [Point("cifar10", "fedavg", 0, 0.9, 70.0, False)]

    def test_runs_in_float32_are_marked(self) -> None:
        results = [of([run(1.1, 76.0, seed=2)]), of([run(1.1, 76.5, seed=2, precision="float32")])]
        (row,) = seeds_table(entropy_points(results)).rows
        assert row == ("CIFAR-10", "2", "1.10", "76.00, 76.50*", "–", "–", "–")


class TestLine:
    def test_a_line_by_hand(self) -> None:
        found = line((0.8, 70.0), (1.0, 71.0), (1.2, 74.0))
        assert found.slope == pytest.approx(10.0)  # (−.2 · −5/3 + .2 · 7/3) / .08
        assert found.at(1.0) == pytest.approx(71.6667, abs=1e-4)
        # Residuals 1/3, −2/3, 1/3: squares sum to 2/3, with one degree of freedom.
        assert found.residual == pytest.approx(math.sqrt(2 / 3))
        assert found.slope_error == pytest.approx(math.sqrt(2 / 3 / 0.08))
        assert found.needed(76.6667) == pytest.approx(1.5, abs=1e-4)

    def test_three_seeds_leave_the_interval_open(self) -> None:
        assert line((0.8, 70.0), (1.0, 71.0), (1.2, 74.0)).interval(Reported(78.0, 0.8)) is None

    def test_a_steep_line_has_an_interval_around_its_estimate(self) -> None:
        found = line((0.8, 70.0), (0.9, 71.1), (1.0, 71.9), (1.1, 73.1), (1.2, 74.0))
        interval = found.interval(Reported(76.0, 0.5))
        assert interval is not None
        low, high = interval
        assert low < (found.needed(76.0) or 0) < high
        # At its ends the distance to the line is what t, the residuals and the paper's σ allow.
        for end in interval:
            error = found.residual or 0
            allowed = 3.182 * math.sqrt(error**2 * (1 / 5 + (end - 1.0) ** 2 / found.spread) + 0.5**2 / 5)
            assert abs(found.at(end) - 76.0) == pytest.approx(allowed)

    def test_two_points_tell_nothing_of_errors(self) -> None:
        found = line((0.8, 70.0), (1.2, 74.0))
        assert (found.residual, found.slope_error, found.interval(Reported(76.0, 0.5))) == (None, None, None)

    def test_a_falling_line_needs_nothing(self) -> None:
        assert line((0.8, 74.0), (1.2, 70.0)).needed(78.0) is None

    def test_one_entropy_makes_no_line(self) -> None:
        assert fit([Point("cifar10", "fedavg", seed, 1.0, 70.0 + seed, False) for seed in (0, 1)]) is None


class TestTable:
    def test_extra_runs_make_a_row_of_their_own(self) -> None:
        runs = [run(0.8, 70.0), run(1.2, 74.0, seed=1), run(1.0, 71.0, seed=2, precision="float32")]
        plain, both = lines_table(entropy_points([of(runs)])).rows
        assert plain == ("CIFAR-10", "FedAvg", "2", "10.0", "78.18 ± 0.80", "1.62", "open", "0.80 to 1.20")
        assert both[1:4] == ("FedAvg, * included", "3", "10.0 ± 2.9")

    def test_two_runs_of_a_seed_are_one_point(self) -> None:
        runs = [run(0.8, 70.0), run(1.0, 70.5, seed=2), run(1.0, 71.5, seed=2, precision="float32")]
        both = lines_table(entropy_points([of([*runs, run(1.2, 74.0, seed=1)])])).rows[1]
        assert both[1:4] == ("FedAvg, * included", "3", "10.0 ± 2.9")  # as of 70, 71 and 74 by hand

    def test_an_interval_that_ends_beyond_what_is_possible_has_no_end(self) -> None:
        steep = [run(0.8 + 0.1 * seed, 70.0 + seed + 0.1 * (seed % 2), seed=seed) for seed in range(5)]
        unsure = [run(0.8 + 0.1 * seed, 70.0 + seed + 1.2 * (seed % 2), seed=seed) for seed in range(5)]
        assert lines_table(entropy_points([of(steep)])).rows[0][6] == "1.50 to 1.74"
        assert lines_table(entropy_points([of(unsure)])).rows[0][6] == "1.30 or more"

    def test_an_impossible_entropy_is_none(self) -> None:
        runs = [run(0.8, 70.0), run(1.2, 70.1, seed=1)]
        assert lines_table(entropy_points([of(runs)])).rows[0][5] == "–"  # ten classes have 2.3 nats at most


def test_committed_runs_are_drawn() -> None:
    root = Path(__file__).parents[2] / "results"
    points = entropy_points([Results.read(path) for path in sorted((root / "table1").glob("*-1.json"))])
    assert {point.dataset for point in points} == {"cifar10", "cifar100"}
    assert [axes.get_title() for axes in entropy_figure(points).axes] == [
        "CIFAR-10, 1 %, α = 0.03",
        "CIFAR-100, 1 %, α = 0.03",
    ]
    assert len(entropy_notes()) == 4
