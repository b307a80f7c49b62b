"""``adabest.reproduce``: what it takes, what it refuses before anything is run, and what it keeps in its folder."""

from pathlib import Path
from typing import Any

import pytest
from paper_results import everyone, of
from small_specification import make_specification

import adabest
from adabest.errors import InputError
from adabest.paper import rendering, reproduce
from adabest.runs.results_file import Choice, Results, read_choices, write_choices

CELL = "iid/few"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small experiment stands in for the one of this name."""
    small = make_specification(name="population", shares="population", axes={"scenario": {CELL: {}}}, apart=[])
    for place in (reproduce, rendering):
        monkeypatch.setattr(place, "read_specification", lambda _: small)


def call(folder: Path, **options: Any) -> adabest.Reproduced:
    return adabest.reproduce("population", out=folder, **{"seeds": [0], "show": False, **options})


def tuning(folder: Path, **options: Any) -> list[Choice]:
    results = call(folder, **options).results
    assert isinstance(results, Results)
    return results.tuning


class TestMade:
    def test_results_tables_and_figures_are_written(self, tmp_path: Path) -> None:
        made = call(tmp_path)
        assert Results.read(tmp_path / "population.json") == made.results
        assert all(path.is_file() for path in made.files)
        assert {path.suffix for path in made.files} == {".json", ".md", ".csv", ".png", ".svg"}

    def test_the_choice_is_kept(self, tmp_path: Path) -> None:
        first = tuning(tmp_path)
        assert tuning(tmp_path, seeds=[0, 1]) == first == read_choices(tmp_path / "choices.json")


class TestChoices:
    def test_a_choice_of_too_few_rounds_is_refused(self, tmp_path: Path) -> None:
        call(tmp_path, rounds=1, seeds=[1])
        with pytest.raises(InputError, match=r"iid/few: .*adabest that was made after 1 rounds, where 2 are"):
            call(tmp_path)
        assert not (tmp_path / CELL / "fedavg,seed=0").exists()

    def test_a_choice_of_too_few_rounds_is_taken_if_it_is_named(self, tmp_path: Path) -> None:
        tried = tuning(tmp_path, rounds=1, seeds=[1])
        assert tuning(tmp_path, choices=tmp_path / "choices.json") == tried

    def test_fewer_rounds_take_the_choice_of_more(self, tmp_path: Path) -> None:
        whole = tuning(tmp_path)
        assert tuning(tmp_path, rounds=1, seeds=[1]) == whole

    def test_a_choice_that_leaves_something_open_is_refused(self, tmp_path: Path) -> None:
        write_choices(tmp_path / "mine.json", [Choice("*", "adabest", {"mu": 0.1}, [], 2, [0])])
        with pytest.raises(InputError, match="say mu and nothing of beta, which is tuned there"):
            call(tmp_path / "out", choices=tmp_path / "mine.json")
        assert not (tmp_path / "out").exists()


class TestRefused:
    @pytest.mark.parametrize("lanes", [0, -1, 1.5])
    def test_no_number_of_lanes(self, lanes: Any, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="at least 1 run is trained at a time"):
            call(tmp_path / "out", lanes=lanes)
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("option", [{"cells": [CELL]}, {"seeds": [0]}, {"rounds": 2}, {"device": "cuda"}])
    def test_options_that_results_from_elsewhere_would_ignore_are_refused(
        self, option: dict[str, Any], tmp_path: Path
    ) -> None:
        of(everyone(["fixed"]), "population").write(tmp_path / "kept.json")
        with pytest.raises(InputError, match=f"nothing is run: leave out {next(iter(option))}"):
            adabest.reproduce("population", results=[tmp_path / "kept.json"], out=tmp_path / "out", **option)
        assert not (tmp_path / "out").exists()


class TestCalledAgain:
    def test_the_table_shows_what_earlier_calls_made(self, tmp_path: Path) -> None:
        call(tmp_path, entries="fedavg")
        call(tmp_path, entries=["adabest"], seeds=[1])
        both = Results.read(tmp_path / "population.json")
        assert {run.key for run in both.runs} == {(CELL, "fedavg", 0), (CELL, "adabest", 1)}
        assert [(entry.algorithm, entry.seeds) for entry in both.tuning] == [("adabest", [1])]

    def test_data_that_are_not_there_leave_no_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        axes = {"scenario": {CELL: {"dataset": "emnist-l", "data_dir": str(tmp_path)}, "other": {}}}
        missing = make_specification(name="population", shares="population", axes=axes, apart=[])
        monkeypatch.setattr(reproduce, "read_specification", lambda _: missing)
        with pytest.raises(InputError, match=r"Cells that don't need it can be made alone, as in --cells other"):
            call(tmp_path / "out", data_dir=str(tmp_path))
        assert not (tmp_path / "out").exists()

    def test_resume_says_how_to_go_on(self, tmp_path: Path) -> None:
        call(tmp_path, entries="fedavg")
        with pytest.raises(InputError, match="`adabest reproduce population` continues it"):
            adabest.resume(tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rounds": 0}, "rounds = 0: it must be a whole number above 0"),
        ({"results": []}, "results names no file"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        call(tmp_path, **options)


def test_costs_are_among_the_experiments() -> None:
    with pytest.raises(InputError, match=r"no experiment 'cost'; did you mean 'costs'\? Known: .*, costs, fig-beta"):
        adabest.reproduce("cost")


def test_a_file_of_choices_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{"choices": 3}')
    with pytest.raises(InputError, match="choices should be a list, not 3"):
        call(tmp_path, choices=tmp_path / "c.json")
