"""Making the runs of a specification: tuning, lanes, what is kept, what is refused, and files of results."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_specification import make_specification
from tiny_runs import Killed, ends_after, with_algorithm

import adabest
from adabest.errors import InputError, Interrupted
from adabest.experiments.choice import Point, choose
from adabest.experiments.run_group import make_runs
from adabest.paper import experiment_runs
from adabest.paper.experiment_runs import ExperimentRequest, ExperimentRuns
from adabest.paper.specification import Rule, Specification
from adabest.runs.build import environment
from adabest.runs.results_file import Choice, PointRow, Result, Results, provenance_of, read_choices, write_choices


def request(
    specification: Specification | None = None, cells: list[str] | None = None, **parts: Any
) -> ExperimentRequest:
    chosen = specification or make_specification()
    return ExperimentRequest(
        **{
            "specification": chosen,
            "cells": chosen.chosen_cells(cells or []),
            "entries": chosen.chosen_entries(),
            "seeds": [0],
            **parts,
        }
    )


def make(folder: Path, asked: ExperimentRequest) -> Results:
    making = ExperimentRuns(asked, folder)
    making.check()
    return making.make(lambda so_far: so_far.write(folder / "small.json"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Results]:
    folder = tmp_path_factory.mktemp("small")
    return folder, make(folder, request(seeds=[0, 1]))


class TestMade:
    def test_every_entry_of_every_cell_with_every_seed(self, made: tuple[Path, Results]) -> None:
        _, results = made
        cells = ["iid/few", "iid/all", "skewed/few", "skewed/all"]
        assert sorted(results.cells()) == sorted(cells)
        for cell in cells:
            of_cell = results.of(cell)
            assert list(of_cell) == ["fedavg", "adabest"]
            assert all([run.seed for run in runs] == [0, 1] for runs in of_cell.values())
        assert all(run.status == "finished" and run.round == 4 for run in results.runs)

    def test_settings_are_those_of_cell_and_entry(self, made: tuple[Path, Results]) -> None:
        _, results = made
        for run in results.runs:
            skew, size = run.cell.split("/")
            assert run.settings["partition"] == {"iid": "iid", "skewed": "dirichlet"}[skew]
            assert run.settings["participation"] == {"few": 0.5, "all": 1.0}[size]
            assert run.settings["algorithm"] == run.entry
            if run.entry == "adabest":
                assert run.settings["beta"] == (run.chosen["beta"] if size == "few" else 0.5)
                assert bool(run.chosen) == (size == "few")

    def test_the_choice_is_that_of_the_validation_clients(self, made: tuple[Path, Results]) -> None:
        folder, results = made
        assert sorted(entry.cells for entry in results.tuning) == ["iid/few", "skewed/few"]
        for entry in results.tuning:
            assert (entry.algorithm, entry.rounds, entry.seeds) == ("adabest", 2, [0, 1])
            points = []
            for row in entry.grid:
                beta = row["point"]["beta"]
                runs = [adabest.load(folder / "tuning" / entry.cells / f"adabest,beta={beta},seed={s}") for s in (0, 1)]
                assert row["validation_accuracy"] == [run.final["validation_accuracy"] for run in runs]
                assert all(len(run.metrics) == 1 and run.config.rounds == 2 for run in runs)
                assert all("averaged_accuracy" not in run.final for run in runs)
                points.append(Point(row["point"], row["validation_accuracy"], row["status"]))
            assert entry.chosen == choose(points)
        assert read_choices(folder / "choices.json") == results.tuning

    def test_results_are_what_the_runs_say(self, made: tuple[Path, Results]) -> None:
        folder, results = made
        for kept in results.runs:
            run = adabest.load(folder / kept.cell / f"{kept.entry},seed={kept.seed}")
            assert kept.final == run.final
            rounds, accuracies = kept.curve("scored_accuracy")
            assert rounds == [2, 4]
            assert accuracies == pytest.approx(run.curve("scored_accuracy")[1], rel=1e-5)
            assert kept.partition == run.identity["partition"]
            assert kept.provenance["torch"] == run.environment["torch"]
            assert kept.final["averaged_accuracy"] is not None

    def test_runs_of_a_cell_are_lanes_and_cells_apart_are_not(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        together: list[list[str]] = []

        def watched(planned: Any, folder: Path, **options: Any) -> Any:
            together.append(list(planned.runs))
            assert options["lanes"] == 3
            return make_runs(planned, folder, **options)

        monkeypatch.setattr(experiment_runs, "make_runs", watched)
        make(tmp_path, request(lanes=3, choices=[Choice("*", "adabest", {"beta": 0.2}, [], 1, [0])]))
        assert [sorted({label.split("/")[0] for label in labels}) for labels in together] == [["iid"], ["skewed"]]
        assert [len(labels) for labels in together] == [4, 4]

    def test_runs_of_all_seeds_are_lanes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        together: list[tuple[int, int]] = []

        def watched(planned: Any, folder: Path, **options: Any) -> Any:
            together.append((len(planned.runs), options["lanes"]))
            return make_runs(planned, folder, **options)

        monkeypatch.setattr(experiment_runs, "make_runs", watched)
        make(tmp_path, request(cells=["*/all"], seeds=[0, 1, 2]))
        assert together == [(6, 6), (6, 6)]

    @pytest.mark.parametrize(("fitting", "lanes"), [(1, 2), (5, 5), (6, 6)])
    def test_lanes_are_those_of_one_seed_and_more_as_far_as_the_memory_goes(
        self, fitting: int, lanes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[int] = []

        def watched(planned: Any, folder: Path, **options: Any) -> Any:
            asked.append(options["lanes"])
            return make_runs(planned, folder, **options)

        monkeypatch.setattr(experiment_runs, "fitting_lanes", lambda runs: fitting)
        monkeypatch.setattr(experiment_runs, "make_runs", watched)
        results = make(tmp_path, request(cells=["iid/all"], seeds=[0, 1, 2]))
        assert asked == [lanes]
        assert [run.seed for run in results.runs] == [0, 0, 1, 1, 2, 2]

    def test_results_are_told_as_runs_end_and_in_the_order_of_seeds(self, tmp_path: Path) -> None:
        asked = request(cells=["*/all"], seeds=[1, 0], lanes=1)
        told: list[list[tuple[str, str, int]]] = []
        making = ExperimentRuns(asked, tmp_path)
        making.make(lambda so_far: told.append([run.key for run in so_far.runs]))
        order = [
            (cell, entry, seed) for seed in (1, 0) for cell in ("iid/all", "skewed/all") for entry in asked.entries
        ]
        assert told[-1] == order
        assert [len(keys) for keys in told] == [1, 2, 3, 4, 4, 5, 6, 7, 8, 8]
        assert all(keys == [key for key in order if key in keys] for keys in told)

    def test_while_tuning_progress_tells_nothing_of_the_test_set(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        blind: dict[str, bool] = {}

        def watched(planned: Any, folder: Path, **options: Any) -> Any:
            blind[folder.name] = options["blind"]
            return make_runs(planned, folder, **options)

        monkeypatch.setattr(experiment_runs, "make_runs", watched)
        make(tmp_path, request(cells=["iid/few"]))
        assert blind == {"tuning": True, tmp_path.name: False}

    def test_a_run_alone_is_the_same_run(self, made: tuple[Path, Results], tmp_path: Path) -> None:
        _, results = made
        kept = next(run for run in results.runs if run.key == ("skewed/few", "adabest", 1))
        alone = adabest.run(**with_algorithm(kept.settings), out=tmp_path / "alone", show=False)
        assert alone.final == kept.final


class TestAgain:
    def test_finished_runs_are_kept(self, made: tuple[Path, Results]) -> None:
        folder, results = made
        before = {path: path.stat().st_mtime_ns for path in folder.rglob("metrics.jsonl")}
        again = make(folder, request(seeds=[0, 1], choices=read_choices(folder / "choices.json")))
        assert {run.key: run.final for run in again.runs} == {run.key: run.final for run in results.runs}
        assert {path: path.stat().st_mtime_ns for path in folder.rglob("metrics.jsonl")} == before

    def test_more_seeds_later_do_not_change_the_choice(self, made: tuple[Path, Results], tmp_path: Path) -> None:
        cell = ["iid/few"]
        first = make(tmp_path, request(cells=cell))
        more = make(tmp_path, request(cells=cell, seeds=[0, 1], choices=read_choices(tmp_path / "choices.json")))
        assert more.tuning == first.tuning
        assert not (tmp_path / "tuning" / "iid/few" / "adabest,beta=0.1,seed=1").exists()

    def test_broken_off_again_and_again_it_ends_the_same(self, made: tuple[Path, Results], tmp_path: Path) -> None:
        _, results = made
        asked = request(cells=["iid/few"], seeds=[0, 1], lanes=2)  # a round of more lanes takes longer than that
        for times in range(60):
            kept = tmp_path / "choices.json"
            choices = read_choices(kept) if kept.is_file() else []
            try:
                with ends_after(18, (Interrupted, Killed)[times % 2]):
                    again = make(tmp_path, replace(asked, choices=choices))
                break
            except (Interrupted, Killed):
                continue
        assert times > 3
        assert again.tuning[0].chosen == next(t.chosen for t in results.tuning if t.cells == "iid/few")
        expected = {run.key: run.columns for run in results.runs if run.cell == "iid/few"}
        assert {run.key: run.columns for run in again.runs} == expected

    def test_other_settings_are_refused_before_anything_is_run(self, tmp_path: Path) -> None:
        cell = ["iid/all"]
        make(tmp_path, request(cells=cell))
        other = ExperimentRuns(request(cells=[*cell, "skewed/all"], rounds=5), tmp_path)
        with pytest.raises(InputError, match=r"holds a run with other settings \(rounds\); choose another folder$"):
            other.check()
        assert not (tmp_path / "skewed").exists()


class TestAsked:
    def test_fewer_rounds_are_for_the_tuning_too(self, tmp_path: Path) -> None:
        results = make(tmp_path, request(cells=["iid/few"], rounds=1))
        assert {run.round for run in results.runs} == {1}
        assert {entry.rounds for entry in results.tuning} == {1}

    def test_choices_of_another_algorithm_or_cell_do_not_count(self, tmp_path: Path) -> None:
        choices = [
            Choice("skewed/*", "adabest", {"beta": 0.2}, [], 1, [0]),
            Choice("*", "feddyn", {"mu": 1.0}, [], 1, [0]),
        ]
        results = make(tmp_path, request(cells=["iid/all"], choices=choices))
        assert {run.settings.get("beta") for run in results.runs} == {None, 0.5}

    def test_choices_win_over_what_is_fixed(self, tmp_path: Path) -> None:
        results = make(
            tmp_path, request(cells=["iid/all"], choices=[Choice("*", "adabest", {"beta": 0.2}, [], 1, [0])])
        )
        assert [run.settings["beta"] for run in results.runs if run.entry == "adabest"] == [0.2]

    @pytest.mark.usefixtures("trusting")
    def test_an_algorithm_that_diverges_everywhere_is_in_the_results_as_that(self, tmp_path: Path) -> None:
        lost = make_specification(
            entries={"bomb": {"algorithm": "tiny_runs:Bomb"}},
            fixed=[],
            tuned=[Rule("*", ["bomb"], {}, {"fuse": [1, 2]}, 3)],
        )
        results = make(tmp_path, request(lost, cells=["iid/few"], entries=["bomb"]))
        assert [(run.status, run.round, run.settings["fuse"]) for run in results.runs] == [("diverged", 1, 1)]
        assert [row["status"] for row in results.tuning[0].grid] == [["diverged"], ["diverged"]]


class TestPrecision:
    @pytest.mark.parametrize(
        ("execution", "precision"),
        [
            ({}, None),
            ({"device": "cpu"}, None),
            ({"device": "cuda"}, "bf16"),
            ({"device": "cuda:1", "engine": "batched"}, "bf16"),
            ({"device": "cuda", "engine": "reference"}, None),
            ({"device": "cuda", "precision": "float32"}, "float32"),
            ({"device": "cpu", "precision": "float64"}, "float64"),
        ],
    )
    def test_the_specification_has_it_for_kernels_and_the_call_wins(
        self, execution: dict[str, Any], precision: str | None
    ) -> None:
        asked = request(make_specification(gpu={"precision": "bf16"}), execution=execution)
        assert asked.settings(asked.cells[0], "fedavg", seed=0).get("precision") == precision

    def test_on_a_cpu_runs_are_in_float32(self, tmp_path: Path) -> None:
        asked = request(make_specification(gpu={"precision": "bf16"}), cells=["iid/all"], execution={"device": "cpu"})
        assert {run.settings["precision"] for run in make(tmp_path, asked).runs} == {"float32"}


class TestChoice:
    def test_the_highest_mean(self) -> None:
        points = [
            Point({"beta": b}, [v, w], ["finished"] * 2)
            for b, v, w in [(0.2, 0.5, 0.6), (0.4, 0.9, 0.1), (0.6, 0.6, 0.6)]
        ]
        assert choose(points) == {"beta": 0.6}

    def test_ties_go_to_the_smaller_value(self) -> None:
        points = [Point({"beta": b, "mu": m}, [0.5], ["finished"]) for b, m in [(0.4, 0.1), (0.2, 0.3), (0.2, 0.2)]]
        assert choose(points) == {"beta": 0.2, "mu": 0.2}

    def test_a_diverged_point_loses(self) -> None:
        points = [
            Point({"beta": 1.0}, [0.99, 0.99], ["finished", "diverged"]),
            Point({"beta": 0.0}, [0.1, 0.1], ["finished"] * 2),
        ]
        assert choose(points) == {"beta": 0.0}
        assert choose(points[:1]) is None

    def test_a_point_without_validation_loses(self) -> None:
        assert choose([Point({"beta": 1.0}, [None], ["finished"])]) is None


class TestFiles:
    def test_round_trip(self, made: tuple[Path, Results], tmp_path: Path) -> None:
        folder, results = made
        assert Results.read(folder / "small.json") == results
        write_choices(tmp_path / "c.json", results.tuning)
        assert read_choices(tmp_path / "c.json") == results.tuning

    def test_merged_results_are_each_once(self, made: tuple[Path, Results]) -> None:
        _, results = made
        first, second = (Results("small", [run for run in results.runs if run.seed == seed]) for seed in (0, 1))
        assert {run.key for run in first.merged(second).runs} == {run.key for run in results.runs}
        newer = [replace(run, status="diverged") for run in first.runs]
        assert first.merged(Results("small", newer)).runs == newer

    def test_choices_that_agree_become_one_of_all_seeds(self) -> None:
        first, second = (_choice(seed, chosen=0.2) for seed in (0, 1))
        (both,) = Results("a", [], [first]).merged(Results("a", [], [second])).tuning
        assert both.seeds == [0, 1]
        assert [row["validation_accuracy"] for row in both.grid] == [[0.5, 0.75], [0.25, 0.5]]
        assert Results("a", [], [both]).merged(Results("a", [], [second])).tuning == [second]  # they share a seed

    @pytest.mark.parametrize("change", [{"chosen": {"beta": 0.4}}, {"rounds": 7}, {"grid": []}])
    def test_of_choices_that_differ_the_later_wins(self, change: dict[str, Any]) -> None:
        first, second = _choice(0, chosen=0.2), replace(_choice(1, chosen=0.2), **change)
        assert Results("a", [], [first]).merged(Results("a", [], [second])).tuning == [second]

    def test_results_of_another_experiment(self) -> None:
        with pytest.raises(InputError, match="results of a and of b don't belong together"):
            Results("a", []).merged(Results("b", []))

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ("[]", "should hold a JSON object"),
            ("{}", "should have experiment, runs, tuning"),
            ("{", "isn't JSON"),
            ('{"experiment": "a", "runs": [{}], "tuning": []}', "this is no result"),
        ],
    )
    def test_a_file_of_something_else_is_refused(self, content: str, words: str, tmp_path: Path) -> None:
        path = tmp_path / "x.json"
        path.write_text(content)
        with pytest.raises(InputError, match=words):
            Results.read(path)

    def test_a_missing_file_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="can't read"):
            Results.read(tmp_path / "x.json")

    @pytest.mark.parametrize(
        ("words", "kept"),
        [
            (
                ["/home/me/bin/adabest", "reproduce", "table1", "--out", "/home/me/x", "--seeds", "0"],
                "adabest reproduce table1 --seeds 0",
            ),
            (["adabest", "reproduce", "--data-dir=/home/me", "--device", "cpu"], "adabest reproduce --device cpu"),
            (["adabest", "reproduce", "--out", "my own files/x y", "--seeds", "0"], "adabest reproduce --seeds 0"),
            (["adabest", "reproduce", "--cells", "cifar10/*"], "adabest reproduce --cells 'cifar10/*'"),
            (["/home/me/adabest/__main__.py", "reproduce"], "adabest reproduce"),
            (["/home/me/all_of_it.py", "--fast"], "all_of_it.py --fast"),
        ],
    )
    def test_commands_can_be_repeated_and_do_not_tell_where_files_lay(
        self, words: list[str], kept: str, made: tuple[Path, Results], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder, _ = made
        run = adabest.load(folder / "iid/few/fedavg,seed=0")
        monkeypatch.setattr("sys.argv", words)
        again = replace(run, environment=environment(run.config))
        assert Result.of(again, "c", "e", {}).provenance["command"] == kept

    @pytest.mark.parametrize(
        ("noted", "kept"), [("", ""), ("adabest run --out=it's --rounds 3", "adabest run --rounds 3")]
    )
    def test_commands_that_were_noted_otherwise(self, noted: str, kept: str) -> None:
        assert provenance_of({"command": noted})["command"] == kept

    def test_curves_skip_what_was_not_measured(self, made: tuple[Path, Results]) -> None:
        _, results = made
        run = replace(results.runs[0], columns={"round": [1, 2, 3], "h_norm": [None, 0.5, 0.25]})
        assert run.curve("h_norm") == ([2, 3], [0.5, 0.25])
        assert run.curve("unknown") == ([], [])

    def test_the_file_is_small_and_plain(self, made: tuple[Path, Results]) -> None:
        folder, results = made
        lines = (folder / "small.json").read_text().splitlines()
        assert len([line for line in lines if line.startswith('{"cell"')]) == len(results.runs)
        assert json.loads((folder / "small.json").read_text())["experiment"] == "small"


def _choice(seed: int, *, chosen: float) -> Choice:
    grid: list[PointRow] = [
        {"point": {"beta": beta}, "validation_accuracy": [accuracy + seed / 4], "status": ["finished"]}
        for beta, accuracy in ((0.2, 0.5), (0.4, 0.25))
    ]
    return Choice("*", "adabest", {"beta": chosen}, grid, 500, [seed])
