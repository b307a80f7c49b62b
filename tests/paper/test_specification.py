"""The paper's experiments as data: every specification can be read, and says what it is meant to say."""

import math

import pytest

from adabest.data.catalog import EMNIST_L, MNIST
from adabest.errors import InputError
from adabest.paper.specification import Specification, read_specification, specification_names
from adabest.registry import split_specification
from adabest.runs.settings.algorithm_specification import algorithm_options
from adabest.runs.settings.config import SETTINGS

NAMES = (
    "beta-auto",
    "beta-auto-digits",
    "beta-auto-mnist",
    "beta-auto-settings",
    "fig-beta",
    "fig-mu",
    "fig-overfitting",
    "fig-scale",
    "fig-stability",
    "fig-stability-emnist",
    "misses-adabest",
    "misses-scaffold",
    "misses-skew",
    "population",
    "table1",
    "table1-exact",
    "table1-mnist",
    "zoo",
)


@pytest.fixture(params=NAMES)
def specification(request: pytest.FixtureRequest) -> Specification:
    return read_specification(request.param)


def test_all_are_there() -> None:
    assert tuple(specification_names()) == NAMES


class TestEvery:
    def test_setting_is_one(self, specification: Specification) -> None:
        for cell in specification.all_cells():
            for entry in specification.entries:
                settings = specification.settings_of(cell, entry)
                rule = specification.tuned_by(cell.name, entry)
                tuned = {} if rule is None else rule.points()[0]
                known = {*SETTINGS, *algorithm_options(settings["algorithm"])}
                assert {*settings, *tuned} <= known
                assert isinstance(settings["dataset"], str)

    def test_cohort_is_a_whole_number_of_clients(self, specification: Specification) -> None:
        for cell in specification.all_cells():
            cohort = cell.settings["participation"] * cell.settings["clients"]
            assert math.isclose(cohort, round(cohort))
            assert cohort >= 1

    def test_rule_applies_somewhere(self, specification: Specification) -> None:
        everywhere = [(cell.name, entry) for cell in specification.all_cells() for entry in specification.entries]
        for rule in [*specification.fixed, *specification.tuned]:
            if set(rule.entries) & set(specification.entries):
                assert any(rule.applies(*place) for place in everywhere)

    def test_precision_on_a_gpu_is_that_of_committed_results(self, specification: Specification) -> None:
        assert specification.gpu == {"precision": "bf16"}
        assert "precision" not in specification.settings

    def test_default_cell_is_one(self, specification: Specification) -> None:
        assert specification.chosen_cells()

    def test_name_of_a_cell_is_its_own(self, specification: Specification) -> None:
        names = [cell.name for cell in specification.all_cells()]
        assert len(set(names)) == len(names)


class TestTable1:
    table = read_specification("table1")

    def test_has_the_papers_27_cells_and_4_algorithms(self) -> None:
        assert len(self.table.all_cells()) == 27
        assert list(self.table.entries) == ["fedavg", "feddyn", "scaffold", "adabest"]
        assert list(self.table.seeds) == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize(("percent", "cohort", "rounds"), [("1", 1, 1000), ("10", 10, 1200), ("100", 100, 2000)])
    def test_participation(self, percent: str, cohort: int, rounds: int) -> None:
        for cell in self.table.chosen_cells([f"*/{percent}/*"]):
            assert round(cell.settings["participation"] * cell.settings["clients"]) == cohort
            assert cell.settings["rounds"] == rounds

    def test_beta_is_the_papers_or_tuned_on_its_grid(self) -> None:
        for cell in self.table.all_cells():
            percent = cell.name.split("/")[1]
            rule = self.table.tuned_by(cell.name, "adabest")
            fixed = self.table.settings_of(cell, "adabest").get("beta")
            if percent == "1":
                assert rule is not None
                assert rule.points() == [{"beta": 0.2}, {"beta": 0.4}, {"beta": 0.6}]
                assert rule.rounds == 500
                assert fixed is None
            else:
                assert rule is None
                assert fixed == {"10": 0.96, "100": 0.98}[percent]

    def test_exact_rows_differ_in_the_partition_alone(self) -> None:
        legacy = {cell.name: cell.settings for cell in self.table.all_cells()}
        exact = read_specification("table1-exact").all_cells()
        assert len(exact) == 18
        for cell in exact:
            assert cell.settings == {**legacy[cell.name], "partition": "dirichlet"}


def test_overfitting_is_read_off_the_runs_of_stability() -> None:
    ours, other = read_specification("fig-overfitting"), read_specification("fig-stability")
    assert ours.shares == "fig-stability"
    assert ours.all_cells() == other.all_cells()
    assert ours.entries == other.entries
    assert ours.seeds == other.seeds


def test_beta_varies_in_nine_values_beside_auto_and_is_not_tuned() -> None:
    beta = read_specification("fig-beta")
    values = [values["beta"] for values in beta.entries.values()]
    assert values == [0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 1, "auto"]
    assert not beta.tuned
    assert [round(cell.settings["participation"] * 1000) for cell in beta.all_cells()] == [5, 10, 20, 50, 100]
    assert len({cell.apart for cell in beta.all_cells()}) == 5


class TestMisses:
    @pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("misses")])
    def test_an_entry_has_the_settings_in_its_name(self, name: str) -> None:
        for entry, values in read_specification(name).entries.items():
            algorithm, options = split_specification(entry)
            own = {option: text for option, text in options.items() if option in values}
            assert all(
                str(values[option]) == text or float(values[option]) == float(text) for option, text in own.items()
            )
            assert values["algorithm"] == algorithm or entry == "scaffold,option=1"

    def test_scaffold_may_be_read_otherwise_in_all_cells_of_cifar(self) -> None:
        specification = read_specification("misses-scaffold")
        assert [cell.name for cell in specification.chosen_cells()] == ["cifar100/10/iid"]
        assert len(specification.chosen_cells(["cifar*/1/*", "cifar*/10/*"])) == 12
        assert specification.entries["scaffold,option=1"] == {"algorithm": "scaffold-gradient"}

    def test_adabest_has_the_papers_beta_and_mu_but_for_what_is_changed(self) -> None:
        for entry, values in read_specification("misses-adabest").entries.items():
            if values["algorithm"] == "adabest":
                assert values["mu"] == 0.02 or "mu=" in entry
                assert values["beta"] == 0.96 or "beta=" in entry


class TestBetaAuto:
    def test_differs_from_table_1_in_beta_alone(self) -> None:
        auto, table = read_specification("beta-auto"), read_specification("table1")
        assert [cell.settings for cell in auto.all_cells()] == [cell.settings for cell in table.all_cells()]
        assert len(auto.chosen_cells()) == 12
        for cell in auto.all_cells():
            plain = {**table.settings_of(cell, "adabest"), "beta": "auto"}
            assert auto.settings_of(cell, "adabest,beta=auto") == plain
            assert auto.tuned_by(cell.name, "adabest,beta=auto") is None

    def test_mnist_has_the_cohorts_and_labels_that_constants_were_settled_with(self) -> None:
        mnist = read_specification("beta-auto-mnist")
        cohorts = [round(cell.settings["participation"] * cell.settings["clients"]) for cell in mnist.all_cells()]
        assert cohorts == [1, 1, 1, 3, 3, 3, 10, 10, 10]
        assert [c.settings.get("alpha") for c in mnist.all_cells()] == [0.03, 0.3, None] * 3
        assert {c.settings["partition"] for c in mnist.all_cells()} == {"dirichlet", "iid"}
        values = [values["beta"] for values in mnist.entries.values()]
        assert values == [0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, "auto"]

    def test_digits_differ_from_mnist_in_data_and_seeds_alone(self) -> None:
        digits, mnist = read_specification("beta-auto-digits"), read_specification("beta-auto-mnist")
        own = [cell.settings for cell in digits.chosen_cells()]
        assert own == [{**cell.settings, "dataset": "digits"} for cell in mnist.all_cells()]
        assert digits.entries == mnist.entries
        assert (list(digits.seeds), list(mnist.seeds)) == ([0, 1, 2], [0])

    def test_settings_of_our_own_have_cohorts_that_nothing_was_tuned_for(self) -> None:
        own = read_specification("beta-auto-settings")
        assert [round(cell.settings["participation"] * 100) for cell in own.all_cells()] == [3, 7, 30]
        values = [values["beta"] for values in own.entries.values()]
        assert values == [0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, "auto"]
        assert {(c.settings["partition"], c.settings["alpha"]) for c in own.all_cells()} == {("dirichlet", 0.1)}


def test_mnist_has_the_settings_of_emnist_l() -> None:
    mnist, table = read_specification("table1-mnist"), read_specification("table1")
    assert len(mnist.chosen_cells()) == 6
    theirs = {cell.name: cell for cell in table.all_cells()}
    for cell in mnist.all_cells():
        other = theirs[cell.name.replace("mnist", "emnist-l")]
        assert {**cell.settings, "dataset": "emnist-l"} == other.settings
        assert mnist.settings_of(cell, "adabest").get("beta") == table.settings_of(other, "adabest").get("beta")
    defaults = {"mnist": MNIST.defaults, "emnist-l": EMNIST_L.defaults}
    assert defaults["mnist"] == defaults["emnist-l"]
    assert (defaults["mnist"].weight_decay, defaults["mnist"].augmentation) == (1e-4, "none")


class TestChoosing:
    table = read_specification("table1")

    def test_patterns(self) -> None:
        assert [c.name for c in self.table.chosen_cells(["cifar100/10/iid"])] == ["cifar100/10/iid"]
        assert len(self.table.chosen_cells(["cifar*/1/*", "cifar10/1/iid"])) == 6

    def test_a_pattern_that_fits_nothing(self) -> None:
        with pytest.raises(
            InputError, match=r"table1 has no cell 'cifar100/10/id': cells are called \{emnist-l,cifar10,"
        ):
            self.table.chosen_cells(["cifar10/1/iid", "cifar100/10/id"])

    def test_entries(self) -> None:
        assert self.table.chosen_entries(["adabest", "feddyn"]) == ["feddyn", "adabest"]
        assert self.table.chosen_entries(["fed*"]) == ["fedavg", "feddyn"]
        with pytest.raises(InputError, match=r"no entry 'feddin'; did you mean 'feddyn'"):
            self.table.chosen_entries(["feddin"])

    def test_an_unknown_experiment(self) -> None:
        with pytest.raises(InputError, match=r"no experiment 'tabel1'; did you mean 'table1'"):
            read_specification("tabel1")
