"""The leaderboard of all algorithms: who is where, what is sent for it, and that all are tuned alike."""

import dataclasses
from typing import Any

import pytest
from paper_results import made

from adabest.algorithms.catalog import ALGORITHMS
from adabest.paper.leaderboard import leaderboard_figure, leaderboard_notes, leaderboard_table, places
from adabest.paper.specification import read_specification
from adabest.runs.results_file import Result

PERSONAL = {"fedbn", "fedper", "ditto"}


def run(entry: str, cloud: list[float], seed: int = 0, bytes_down: int = 100, **changes: Any) -> Result:
    result = made(
        "mnist",
        entry,
        [value + 1 for value in cloud],
        seed=seed,
        rounds=10 * len(cloud),
        cloud_accuracy=[value / 100 for value in cloud],
        settings={"dataset": "mnist", "score": "cloud"},
    )
    last = {**result.last, "bytes_down": bytes_down * len(cloud), "bytes_up": 100 * len(cloud)}
    return dataclasses.replace(result, last=last, **changes)


BOARD = {
    "fedavg": [run("fedavg", [80, 90, 95.5]), run("fedavg", [82, 96, 94.5], seed=1)],
    "adabest": [run("adabest", [70, 97, 96], chosen={"beta": 0.8})],
    "scaffold": [run("scaffold", [50, 60, 40], bytes_down=300)],
    "fedpd": [run("fedpd", [1.0], status="diverged", round=7)],
}


def test_the_best_cloud_model_comes_first_and_what_diverged_last() -> None:
    assert [place.entry for place in places(BOARD)] == ["adabest", "fedavg", "scaffold", "fedpd"]


def test_a_row_has_what_was_reached_sent_and_chosen() -> None:
    table = leaderboard_table("mnist", BOARD)
    rows = {row[0]: dict(zip(table.head, row, strict=True)) for row in table.rows}
    assert rows["adabest"]["chosen"] == "beta = 0.8"
    assert rows["adabest"]["family"] == "ahead"
    assert (rows["adabest"]["cloud %"], rows["adabest"]["scored %"]) == ("96.00", "97.00")
    assert rows["adabest"]["rounds to 95 %"] == "20"
    assert rows["fedavg"]["rounds to 95 %"] == "25"  # the mean of 30 and 20
    assert rows["scaffold"]["rounds to 95 %"] == "never"
    assert (rows["fedavg"]["sent"], rows["scaffold"]["sent"]) == ("1.00", "2.00")
    assert rows["fedavg"]["largest fall"] == "0.75"  # none, and 1.5 points
    assert rows["scaffold"]["largest fall"] == "20.0"
    assert rows["fedpd"]["cloud %"] == "diverged in round 7"
    assert rows["fedavg"]["n"] == "2"


def test_few_seeds_are_told_of() -> None:
    assert any("needs 3 seeds" in note for note in leaderboard_notes({"mnist": BOARD}))


def test_the_figure_names_every_algorithm_and_family() -> None:
    figure = leaderboard_figure({"mnist": BOARD})
    shown = {text.get_text() for axes in figure.axes for text in axes.get_yticklabels()}
    assert shown == set(BOARD)
    legend = {text.get_text() for text in figure.legends[0].get_texts()}
    assert legend == {"averaging", "ahead", "control variates", "dual variables", "scored model"}


class TestSpecification:
    def test_every_algorithm_is_there_but_those_that_are_personal(self) -> None:
        assert set(read_specification("zoo").entries) == set(ALGORITHMS.builtin) - PERSONAL

    @pytest.mark.parametrize("cell", ["mnist", "cifar10"])
    def test_every_algorithm_has_four_trials_of_a_quarter_of_the_rounds_with_one_seed(self, cell: str) -> None:
        zoo = read_specification("zoo")
        (found,) = zoo.chosen_cells([cell])
        for entry in zoo.entries:
            rule = zoo.tuned_by(cell, entry)
            assert rule is not None, entry
            assert len(rule.points()) == 4, entry
            assert list(rule.seeds) == [0]
            assert rule.trial_rounds(found.settings["rounds"]) == {"mnist": 75, "cifar10": 150}[cell]
