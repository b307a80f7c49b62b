"""The tables beside the figures: final numbers, rounds to targets, models, claims, and where it all comes from."""

import dataclasses
from typing import Any

import pytest
from paper_results import everyone, made, of

from adabest import InputError
from adabest.paper.claims import claims_notes, claims_table
from adabest.paper.rendering import RENDERINGS, Rendered, render
from adabest.paper.specification import read_specification, specification_names
from adabest.report.numbers import mean_and_spread
from adabest.runs.results_file import Choice, PointRow, Result, Results

CELL = "cifar10/10/iid"
TABLES_ALONE = ("beta-auto", "beta-auto-digits", "beta-auto-mnist")  # experiments without figures


def table1(*runs: Result) -> Rendered:
    return render("table1", of(runs))


class TestRounds:
    def test_the_first_evaluated_round(self) -> None:
        runs = [
            made(CELL, "fedavg", [50, 72, 74, 76], rounds=1200),  # evaluated in rounds 300, 600, 900, 1200
            made(CELL, "adabest", [71, 75, 79, 85], rounds=1200),
        ]
        table = table1(*runs).tables["rounds"]
        assert table.head == ("cell", "target %", "fedavg", "adabest")
        assert table.rows == (
            (CELL, "70", "600", "300 (2.0×)"),
            (CELL, "75", "1200", "600 (2.0×)"),
            (CELL, "80", "never", "1200 (> 1.0×)"),
            (CELL, "84", "never", "1200 (> 1.0×)"),
        )

    def test_means_over_seeds(self) -> None:
        runs = [
            made(CELL, "fedavg", [50, 60, 75, 76], seed=0, rounds=1200),
            made(CELL, "fedavg", [50, 71, 73, 74], seed=1, rounds=1200),
            made(CELL, "adabest", [70, 75, 76, 77], seed=0, rounds=1200),
            made(CELL, "adabest", [60, 70, 76, 77], seed=1, rounds=1200),
            made(CELL, "scaffold", [10, 20, 30, 75], seed=0, rounds=1200),
            made(CELL, "scaffold", [10, 20, 30, 40], seed=1, rounds=1200),
        ]
        first, second = table1(*runs).tables["rounds"].rows
        # FedAvg: 900 and 600. AdaBest: 300 and 600. SCAFFOLD gets there with one seed of two.
        assert first == (CELL, "70", "750", "1200 (1 of 2)", "450 (1.7×)")
        # Where only a part of FedAvg's seeds gets there, nothing can be said of how much sooner others do.
        assert second == (CELL, "75", "900 (1 of 2)", "1200 (1 of 2)", "750")

    def test_nothing_is_sooner_than_what_diverged(self) -> None:
        lost = made(CELL, "fedavg", [50], rounds=300, status="diverged")
        table = table1(lost, made(CELL, "adabest", [71, 72], rounds=1200)).tables["rounds"]
        assert table.rows == ((CELL, "70", "never", "600"),)

    def test_targets_that_nobody_reaches_are_left_out(self) -> None:
        assert table1(made(CELL, "adabest", [10.0])).tables["rounds"].rows == ()


class TestModels:
    def test_side_by_side(self) -> None:
        models: dict[str, Any] = {"aggregate_accuracy": 0.81, "cloud_accuracy": 0.8}
        runs = [
            made(CELL, "adabest", 85.0, seed=0, **models, averaged_accuracy=0.86),
            made(CELL, "adabest", 84.0, seed=1, **models, averaged_accuracy=0.84),
            made(CELL, "fedavg", 80.0, **models),
        ]
        table = table1(*runs).tables["models"]
        assert table.head == ("cell", "model", "fedavg", "adabest")
        assert [line[1:] for line in table.rows] == [
            ("scored", "80.00", "84.50 ± 0.71"),
            ("averaged", "–", "85.00 ± 1.41"),
            ("aggregate θ̄", "81.00", "81.00 ± 0.00"),
            ("cloud θ", "80.00", "80.00 ± 0.00"),
        ]

    def test_a_model_that_no_run_has_is_left_out(self) -> None:
        assert [line[1] for line in table1(made(CELL, "adabest", 85.0)).tables["models"].rows] == ["scored"]


class TestFinal:
    def test_means_and_deviations(self) -> None:
        runs = [
            made("cifar100", "feddyn", 20.0, seed=0, cloud_norm=100.0, h_norm=0.5, rounds=5000),
            made("cifar100", "feddyn", 22.0, seed=1, cloud_norm=104.0, h_norm=0.5, rounds=5000),
            made("cifar100", "feddyn", 1.0, seed=2, cloud_norm=9e9, rounds=70, status="diverged", reason="∞"),
            made("cifar100", "fedavg", 30.0, cloud_norm=12345.6, rounds=5000),
        ]
        table = render("fig-stability", of(runs, "fig-stability")).tables["final"]
        assert table.rows == (
            ("cifar100", "fedavg", "30.00", "1", "5000", "12,346", "–"),
            (
                "cifar100",
                "feddyn",
                "21.00 ± 1.41 (1 diverged in round 70)",
                "2 of 3",
                "5000",
                "102.0 ± 2.8",
                "0.5000 ± 0.0000",
            ),
        )

    @pytest.mark.parametrize(
        ("values", "text"),
        [
            ([12.34567], "12.35"),
            ([12.3, 12.31], "12.30 ± 0.01"),
            ([0.0154, 0.0156], "0.01550 ± 0.00014"),
            ([0.0], "0"),
            ([1.5e9, 2.5e9], "2e+09"),
            ([], "–"),
        ],
    )
    def test_numbers_of_any_size(self, values: list[float], text: str) -> None:
        assert mean_and_spread(values, places=None) == text

    def test_training_beside_testing(self) -> None:
        train = [0.1, 0.2, 0.6, 0.4, 0.5, 0.3]
        run = made("cifar100", "feddyn", [10, 30, 20, 15, 12, 11], rounds=600, train_accuracy=train)
        (line,) = render("fig-overfitting", of([run], "fig-stability")).tables["final"].rows
        # Smoothed over five: .3, .325, .36, .4, .45, .4
        assert line == ("feddyn", "0", "45.00 (500)", "40.00", "30.00 (200)", "11.00")

    def test_overfitting_needs_someone_to_show(self) -> None:
        with pytest.raises(InputError, match="fig-overfitting shows scaffold, feddyn, adabest"):
            render("fig-overfitting", of([made("cifar100", "fedavg", 1.0)], "fig-stability"))


class TestClaims:
    def test_nearly_two_fold(self) -> None:
        runs = [
            made("balanced/1000", "adabest", [9, 30, 40, 39], seed=0, rounds=1000),
            made("balanced/1000", "adabest", [9, 30, 40, 41], seed=1, rounds=1000),
            made("balanced/1000", "scaffold", [1, 15, 16, 25], rounds=1000),
            made("balanced/1000", "fedavg", [2, 18, 20, 22], rounds=1000),
            made("balanced/100", "fedavg", [20], rounds=1000),
        ]
        table = render("fig-scale", of(runs, "fig-scale")).tables["ratio"]
        # 40 / 25 at the end; 40 / 20 in round 750; 9 / 2 in round 250 is larger.
        assert table.rows == (("balanced/1000", "40.00", "25.00 (SCAFFOLD)", "1.60", "4.50 (round 250)"),)
        early = [dataclasses.replace(run, columns={**run.columns, "round": [50, 500, 750, 1000]}) for run in runs[:4]]
        (line,) = render("fig-scale", of(early, "fig-scale")).tables["ratio"].rows
        assert line[-1] == "2.00 (round 750)"  # the first tenth of the rounds says nothing

    def test_the_best_beta_of_each_participation(self) -> None:
        points = {("0.1", "0"): 40, ("0.1", "0.8"): 44, ("0.1", "1"): 44.001, ("0.005", "0"): 30, ("0.005", "0.8"): 28}
        runs = [made(f"cifar100/{share}", f"adabest,beta={b}", value) for (share, b), value in points.items()]
        runs.append(made("cifar100/0.005", "adabest,beta=1", 1.0, rounds=20, status="diverged", reason="∞"))
        table = render("fig-beta", of(runs, "fig-beta")).tables["beta"]
        assert table.head == ("β", "0.005", "0.1")
        assert table.rows == (
            ("0", "**30.00**", "40.00"),
            ("0.8", "28.00", "**44.00**"),
            ("1", "diverged in round 20", "**44.00**"),
        )

    def test_auto_stands_beside_the_best_fixed_beta(self) -> None:
        points = {("0.1", "0.8"): 44, ("0.1", "0.9"): 45, ("0.1", "auto"): 46, ("0.005", "0.8"): 28}
        runs = [made(f"cifar100/{share}", f"adabest,beta={b}", value) for (share, b), value in points.items()]
        rendered = render("fig-beta", of(runs, "fig-beta"))
        assert rendered.tables["auto"].head[1] == "best fixed β"
        assert rendered.tables["auto"].rows == (("0.1", "0.9", "45.00", "46.00", "1", "+1.00"),)
        assert rendered.tables["beta"].rows[-1] == ("auto", "–", "**46.00**")
        assert "auto" not in render("fig-beta", of(runs[:2], "fig-beta")).tables

    def test_auto_stands_beside_the_tuned_beta_of_the_same_seeds(self) -> None:
        tuned = [made(CELL, "adabest", 80.0 + seed, seed=seed, settings={"beta": 0.96}) for seed in (0, 1, 2)]
        auto = [made(CELL, "adabest,beta=auto", 80.0, seed=seed) for seed in (0, 2, 3)]
        other = [made(CELL, "fedavg", 99.0), made("cifar10/1/iid", "adabest,beta=auto", 80.0)]
        rendered = render("beta-auto", of([*auto, *tuned, *other], "beta-auto"))
        assert rendered.tables["auto"].head[1] == "tuned β"
        assert rendered.tables["auto"].rows == ((CELL, "0.96", "81.00 ± 1.41", "80.00 ± 0.00", "2", "−1.00"),)
        assert {line[1] for line in rendered.tables["final"].rows} == {"adabest", "adabest,beta=auto"}

    @pytest.mark.parametrize("entry", ["adabest,beta=often", "adabest,mu=auto"])
    def test_other_words_than_auto_are_refused(self, entry: str) -> None:
        with pytest.raises(InputError, match="should be a number"):
            render("fig-beta", of([made("cifar100/0.1", entry, 1.0)], "fig-beta"))

    def test_mnist_stands_above_the_papers_emnist_l(self) -> None:
        runs = [made("mnist/10/iid", name, value) for name, value in (("fedavg", 97.0), ("adabest", 98.0))]
        runs += [made("mnist/10/iid", "fedavg", 97.5, seed=seed) for seed in (1, 2)]
        rendered = render("table1-mnist", of(runs, "table1-mnist"))
        ours, theirs = rendered.tables["accuracy"].rows
        assert ours == ("10 %", "IID", "MNIST, ours", "97.33 ± 0.29", "–", "–", "**98.00 (n = 1)**")
        assert theirs[:3] == ("10 %", "IID", "EMNIST-L, the paper's")
        assert "±" in theirs[3]
        assert theirs[6].startswith("**")
        assert not {"comparison", "summary"} & set(rendered.tables)

    def test_a_variant_stands_beside_its_plain_form(self) -> None:
        cell = "cifar100/10/iid"
        runs = [
            made(cell, "scaffold", 46.0),
            made(cell, "scaffold", 40.0, seed=7),  # no variant has this seed
            made(cell, "scaffold,control_rate=undecayed", 45.0, seed=0),
            made(cell, "scaffold,control_rate=undecayed", 45.2, seed=1),
            made(cell, "feddyn,clip=0", 49.0),
            made(cell, "adabest", 55.0),
            made("cifar10/1/iid", "scaffold", 80.0),
        ]
        rendered = render("misses-scaffold", of(runs, "misses-scaffold"))
        assert rendered.tables["misses"].rows == (
            (cell, "feddyn,clip=0", "49.00", "1", "–", "49.60 ± 0.24", "−0.60", "yes"),
            (cell, "scaffold", "46.00", "1", "–", "44.30 ± 0.22", "+1.70", "no"),
            (cell, "scaffold,control_rate=undecayed", "45.10 ± 0.14", "2", "−1.00", "44.30 ± 0.22", "+0.80", "no"),
        )
        assert rendered.figures == {}


class TestRulings:
    """Each claim of the paper: whether it holds, by how many seeds, and the numbers."""

    def rulings(self, *results: Results) -> dict[str, tuple[str, ...]]:
        return {row[0].split(":")[1].split(",")[0].strip(): row[1:] for row in claims_table(results).rows}

    def cells(self, **accuracies: float) -> list[Result]:
        return [made(CELL, name, value, rounds=1200) for name, value in accuracies.items()]

    def test_table_1_holds_where_all_of_it_does(self) -> None:
        runs = self.cells(fedavg=81.35, feddyn=83.56, scaffold=83.50, adabest=85.78)
        found = self.rulings(of(runs))
        assert found["the accuracies"] == ("holds", "1", "4 of 4 figures within what is allowed")
        assert found["the order of the algorithms"] == ("holds", "1", "1 of 1 settings; 6 of 6 pairs of algorithms")
        assert found["AdaBest is first"] == ("holds", "1", "1 of 1 settings (CIFAR-10 1 of 1)")

    def test_table_1_holds_in_part_or_not_at_all(self) -> None:
        runs = self.cells(fedavg=81.35, feddyn=83.56, scaffold=88.0, adabest=85.78)
        runs += [made(CELL, "fedavg", 81.35, rounds=1200, seed=1)]
        found = self.rulings(of(runs))
        assert found["the accuracies"] == ("holds in part", "1 to 2", "3 of 4 figures within what is allowed")
        assert found["the order of the algorithms"][0] == "doesn't hold"
        ruling, _, numbers = found["AdaBest is first"]
        assert ruling == "doesn't hold"
        assert numbers.endswith("another is first at 10 % CIFAR-10 IID (SCAFFOLD)")

    @pytest.mark.parametrize(("ours", "ruling"), [(45.0, "holds"), (44.9, "doesn't hold")])
    def test_nearly_two_fold_begins_at_one_point_eight(self, ours: float, ruling: str) -> None:
        runs = [made("balanced/1000", "adabest", ours), made("balanced/1000", "fedavg", 25.0)]
        (found,) = self.rulings(of(runs, "fig-scale")).values()
        assert found[0] == ruling
        assert found[2].endswith(f"{ours / 25:.2f} (balanced/1000)")

    @pytest.mark.parametrize(
        ("norms", "accuracies", "rulings"),
        [
            ([10, 15, 20, 25, 30], [20, 30, 20, 10, 5], ("holds", "doesn't hold")),
            ([10, 10, 10, 10, 10.5], [20, 30, 40, 40, 39], ("doesn't hold", "holds")),
            ([10, 15, 20, 25, 30], [20, 30, 40, 40, 40], ("holds in part", "holds in part")),
        ],
    )
    def test_norms_explode_or_settle(
        self, norms: list[float], accuracies: list[float], rulings: tuple[str, str]
    ) -> None:
        runs = [made("cifar100", name, accuracies, cloud_norm=norms) for name in ("feddyn", "adabest")]
        found = self.rulings(of(runs, "fig-stability"))
        assert tuple(row[0] for row in found.values()) == rulings
        assert found["FedDyn's ‖θ‖ explodes"][2].startswith(f"‖θ‖ 10.0 in round 200, {norms[-1]:.1f} in round 1,000;")

    def test_what_was_not_run_makes_no_claim(self) -> None:
        assert claims_table([of([made("cifar100", "fedavg", 1.0)], "fig-stability")]).rows == ()
        assert len(claims_notes()) == 3


class TestWhereItComesFrom:
    def test_each_command_once(self) -> None:
        runs = [
            made(CELL, "adabest", 85.0, seed=2, command="adabest reproduce table1 --seeds 2"),
            *(made(CELL, name, 85.0, seed=seed) for name in ("fedavg", "adabest") for seed in (1, 0)),
        ]
        table = table1(*runs).tables["provenance"]
        assert table.head == ("command", "runs", "seeds", "commit", "device", "torch", "adabest")
        assert table.rows == (
            ("adabest reproduce table1 --seeds 2", "1", "2", "abc1234", "cpu", "2.11", "0.3"),
            ("adabest reproduce table1", "4", "0, 1", "abc1234", "cpu", "2.11", "0.3"),
        )

    def test_choices_on_validation_clients_are_shown(self) -> None:
        grid: list[PointRow] = [
            {"point": {"beta": 0.2}, "validation_accuracy": [0.4, 0.42], "status": ["finished", "finished"]},
            {"point": {"beta": 0.4}, "validation_accuracy": [0.5, 0.52], "status": ["finished", "finished"]},
            {"point": {"beta": 0.6}, "validation_accuracy": [0.9, None], "status": ["finished", "diverged"]},
        ]
        tuning = Choice("cifar10/1/*", "adabest", {"beta": 0.4}, grid, 500, [0, 1])
        chosen: dict[str, Any] = {"settings": {"beta": 0.4}, "chosen": {"beta": 0.4}}
        runs = [made("cifar10/1/iid", "adabest", 85.0, **chosen), made(CELL, "adabest", 85.0, settings={"beta": 0.96})]
        rendered = render("table1", of(runs, tuning=[tuning]))
        assert rendered.tables["tuning"].rows == (
            (
                "cifar10/1/*",
                "AdaBest",
                "beta = 0.2: 41.00; **beta = 0.4: 51.00**; beta = 0.6: diverged",
                "500",
                "0, 1",
            ),
        )
        said = "AdaBest: β = 0.4, chosen on validation clients (cifar10/1/iid); β = 0.96 (cifar10/10/iid)."
        assert said in rendered.notes
        assert "tuning" not in table1(*runs).tables

    def test_seeds_that_differ_in_beta_are_told(self) -> None:
        runs = [made(CELL, "adabest", 85.0, seed=seed, settings={"beta": b}) for seed, b in ((0, 0.2), (1, 0.4))]
        said = "Seeds of cifar10/10/iid differ in β: β = 0.2 (seeds 0); β = 0.4 (seeds 1). Their mean is of neither."
        assert said in table1(*runs).notes

    def test_how_long_runs_are(self) -> None:
        runs = [made(CELL, "adabest", 85.0, seed=seed, settings={"evaluate_every": 20}) for seed in (0, 1)]
        assert "Rounds: 1,000, evaluated every 20." in table1(*runs).notes


class TestEveryExperiment:
    """All that has a specification, with the names that the specification gives."""

    @pytest.mark.parametrize("name", specification_names())
    def test_a_rendering_has_numbers_and_their_provenance(self, name: str) -> None:
        specification = read_specification(name)
        cells = [cell.name for cell in specification.chosen_cells()][:4]
        rendered = render(name, of(everyone(cells, seeds=2, entries=list(specification.entries)), name))
        assert {line[0] for line in rendered.tables["final"].rows} >= {cells[-1]} or name == "fig-overfitting"
        assert rendered.tables["provenance"].rows
        assert rendered.notes
        assert bool(rendered.figures) is not (name.startswith("misses") or name in TABLES_ALONE)

    @pytest.mark.parametrize("name", specification_names())
    def test_runs_that_never_got_anywhere(self, name: str) -> None:
        specification = read_specification(name)
        (cell, *_), entries = specification.chosen_cells(), specification.entries
        empty: dict[str, Any] = {"status": "killed", "round": 0, "last": {}, "columns": {}}
        runs = [dataclasses.replace(made(cell.name, entry, 1.0), **empty) for entry in entries]
        rendered = render(name, of(runs, name))
        assert all("–" in line for line in rendered.tables["final"].rows)

    def test_there_are_no_others(self) -> None:
        assert set(RENDERINGS) == set(specification_names())


def test_precisions_that_differ_are_told() -> None:
    runs = everyone(["fixed"])
    for run, precision in zip(runs, ["bf16", *["float32"] * (len(runs) - 1)], strict=True):
        run.settings["precision"] = precision
    said = [text for text in render("population", of(runs, "population")).notes if "precision" in text]
    assert said == [
        f"Runs differ in precision: 1 in bf16, {len(runs) - 1} in float32. Seeds belong together only in the same one."
    ]
    runs[0].settings["precision"] = "float32"
    assert not any("precision" in text for text in render("population", of(runs, "population")).notes)


def test_mnist_says_that_it_stands_in() -> None:
    for name in ("fig-stability-emnist", "fig-mu"):
        said = [text for text in render(name, of(everyone(["mnist"]), name)).notes if "stands in" in text]
        assert len(said) == 1
        assert not any("stands in" in text for text in render(name, of(everyone(["emnist-l"]), name)).notes)
    for name, cell in (("beta-auto-mnist", "mnist/1/iid"), ("zoo", "mnist")):
        runs = everyone([cell])
        for run in runs:
            run.settings["dataset"] = "mnist"
        assert not any("stands in" in text for text in render(name, of(runs, name)).notes)
