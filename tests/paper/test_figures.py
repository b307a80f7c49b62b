"""The paper's figures: their panels, what their lines show, and that they can be told apart without colours."""

from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from paper_results import curves, everyone, made, of

from adabest.paper.rendering import render
from adabest.paper.scores import smooth
from adabest.report.figure import save_figure
from adabest.runs.results_file import Result

CHURN = {"fixed": 0.0, "churn": 0.1}
MUS = [f"{name},mu={mu}" for name in ("adabest", "feddyn") for mu in ("0.02", "0.04", "0.08", "0.16")]


def drawn(name: str, runs: list[Result], key: str | None = None) -> Figure:
    return render(name, of(runs, name)).figures[key or name]


def line_of(axes: Axes, text: str) -> Line2D:
    (found,) = [line for line in axes.lines if line.get_label() == text]
    return found


def points(line: Line2D) -> list[list[float]]:
    return [list(point) for point in np.asarray(line.get_xydata()).tolist()]


def curve_of(run: Result, metric: str, scale: float = 1.0) -> list[list[Any]]:
    return [[r, pytest.approx(scale * value)] for r, value in zip(*run.curve(metric), strict=True)]


def names(figure: Figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def brightness(line: Line2D) -> float:
    return float(np.dot([0.299, 0.587, 0.114], to_rgb(line.get_color())))


def title(figure: Figure) -> str:
    (legend,) = figure.legends
    return legend.get_title().get_text()


class TestStability:
    RUNS = everyone(["cifar100"])
    METRICS = (("scored_loss", 1.0), ("cloud_norm", 1.0), ("scored_accuracy", 100.0))

    def test_three_panels_share_their_rounds(self) -> None:
        figure = drawn("fig-stability", self.RUNS)
        assert [axes.get_ylabel() for axes in figure.axes] == ["test loss", "‖θ‖", "test accuracy (%)"]
        assert [axes.get_yscale() for axes in figure.axes] == ["log", "linear", "linear"]
        assert [axes.get_xlabel() for axes in figure.axes] == ["", "", "round"]
        assert len({axes.get_xlim() for axes in figure.axes}) == 1
        figure.draw_without_rendering()
        shown = [text.get_text() for text in figure.axes[0].get_yticklabels()]
        assert {"1", "2", "5", "10"} <= set(shown)
        assert figure.axes[0].get_title() == "CIFAR-100, 1000 clients, 5 a round, α = 0.3, 3 seeds"
        assert names(figure) == ["FedAvg", "FedDyn", "SCAFFOLD", "AdaBest"]

    def test_lines_are_means_and_bands_deviations(self) -> None:
        figure = drawn("fig-stability", self.RUNS)
        own = [run for run in self.RUNS if run.entry == "feddyn"]
        for axes, (metric, scale) in zip(figure.axes, self.METRICS, strict=True):
            values = [[scale * value for value in run.curve(metric)[1]] for run in own]
            means = [fmean(column) for column in zip(*values, strict=True)]
            shown = points(line_of(axes, "FedDyn"))
            assert shown == [[r, pytest.approx(mean)] for r, mean in zip(own[0].curve(metric)[0], means, strict=True)]
            spreads = [stdev(column) for column in zip(*values, strict=True)]
            if any(spreads):
                order = [line.get_label() for line in axes.lines].index("FedDyn")
                edges = {round(height, 6) for _, height in np.asarray(axes.collections[order].get_paths()[0].vertices)}
                assert {round(m + s, 6) for m, s in zip(means, spreads, strict=True)} <= edges
                assert {round(m - s, 6) for m, s in zip(means, spreads, strict=True)} <= edges

    def test_one_seed_has_no_band(self) -> None:
        figure = drawn("fig-stability", everyone(["cifar100"], seeds=1))
        assert not any(axes.collections for axes in figure.axes)
        assert "seed 0" in figure.axes[0].get_title()

    def test_divergence_is_marked(self) -> None:
        lost = made("cifar100", "feddyn", [10, 5], rounds=400, status="diverged", reason="not finite")
        accuracy = drawn("fig-stability", [lost]).axes[-1]
        assert [points(line) for line in accuracy.lines if line.get_marker() == "x"] == [[[400, 5]]]

    def test_lines_differ_without_colours(self) -> None:
        lines = drawn("fig-stability", self.RUNS).axes[0].lines
        assert len({str(line.get_linestyle()) for line in lines}) == 4
        assert len({line.get_marker() for line in lines}) == 4
        shades = sorted(brightness(line) for line in lines)
        assert min(np.diff(shades)) > 0.1
        marked = []
        for line in lines:
            every: Any = line.get_markevery()
            marked.append(set(range(every[0], len(points(line)), every[1])))
        assert len(set.union(*marked)) == sum(map(len, marked))  # no two markers in one place

    def test_an_easy_task(self) -> None:
        figure = drawn("fig-stability-emnist", everyone(["mnist"]))
        accuracy, norm = figure.axes
        assert (accuracy.get_ylabel(), norm.get_ylabel()) == ("test accuracy (%)", "‖θ‖")
        assert "MNIST, in place of EMNIST-L" in accuracy.get_title()
        assert "in place of" not in drawn("fig-stability-emnist", everyone(["emnist-l"])).axes[0].get_title()
        climbing = min(min(run.curve("scored_accuracy")[1][:4]) for run in everyone(["mnist"]))
        assert accuracy.get_ylim()[0] > 100 * climbing


class TestOverfitting:
    def test_train_is_solid_and_smoothed_and_test_dash_dotted(self) -> None:
        runs = everyone(["cifar100"])
        figure = drawn("fig-overfitting", runs)
        (axes,) = figure.axes
        assert names(figure) == ["FedDyn", "SCAFFOLD", "AdaBest", "train", "test"]
        for entry, text in {"scaffold": "SCAFFOLD", "feddyn": "FedDyn", "adabest": "AdaBest"}.items():
            (run,) = [run for run in runs if (run.entry, run.seed) == (entry, 0)]
            train = line_of(axes, text)
            rounds, values = run.curve("train_accuracy")
            smoothed = [[r, pytest.approx(100 * value)] for r, value in zip(rounds, smooth(values), strict=True)]
            assert (train.get_linestyle(), points(train)) == ("-", smoothed)
            (test,) = [
                line for line in axes.lines if line.get_color() == train.get_color() and line.get_linestyle() == "-."
            ]
            assert points(test) == curve_of(run, "scored_accuracy", 100)

    def test_the_first_seed_that_all_have_is_drawn(self) -> None:
        runs = [run for run in everyone(["cifar100"]) if (run.entry, run.seed) != ("feddyn", 0)]
        rendered = render("fig-overfitting", of(runs, "fig-stability"))
        assert {line[1] for line in rendered.tables["final"].rows} == {"1"}
        assert title(rendered.figures["fig-overfitting"]).endswith("seed 1")


class TestScale:
    def test_four_panels(self) -> None:
        cells = ["balanced/100", "unbalanced/1000", "balanced/1000"]
        runs = [curves(cell, "adabest", 0, top=20.0 + number) for number, cell in enumerate(cells)]
        figure = drawn("fig-scale", runs)
        assert [axes.get_title() for axes in figure.axes] == [
            "balanced, 1000 clients",
            "balanced, 100 clients",
            "unbalanced, 1000 clients",
            "unbalanced, 100 clients",
        ]
        shown = [[points(line) for line in axes.lines] for axes in figure.axes]
        accuracies = [[curve_of(run, "scored_accuracy", 100)] for run in runs]
        assert shown == [accuracies[2], accuracies[0], accuracies[1], []]
        assert [text.get_text() for text in figure.axes[3].texts] == ["not run"]
        assert figure.axes[0].get_ylim() == figure.axes[2].get_ylim()


class TestSensitivity:
    def test_mu(self) -> None:
        runs = everyone(["mnist"], seeds=1, entries=MUS)
        figure = drawn("fig-mu", runs)
        assert [axes.get_title() for axes in figure.axes] == ["AdaBest", "FedDyn", "", ""]
        assert [axes.get_ylabel() for axes in figure.axes] == ["test accuracy (%)", "", "‖θ‖", ""]
        assert names(figure) == ["μ = 0.02", "μ = 0.04", "μ = 0.08", "μ = 0.16"]
        by_entry = {run.entry: run for run in runs}
        for column, algorithm in enumerate(("adabest", "feddyn")):
            run = by_entry[f"{algorithm},mu=0.08"]
            accuracy, norm = figure.axes[column], figure.axes[2 + column]
            assert points(line_of(accuracy, "μ = 0.08")) == curve_of(run, "scored_accuracy", 100)
            assert points(line_of(norm, "μ = 0.08")) == curve_of(run, "cloud_norm")
        assert len({axes.get_ylim() for axes in figure.axes}) == 4
        left, right = (line_of(axes, "μ = 0.16") for axes in figure.axes[:2])
        assert (left.get_color(), left.get_marker()) == (right.get_color(), right.get_marker())

    def test_mu_shows_where_norms_settle(self) -> None:
        norms = [50.0, 12.5, 12.0, 12.25, 12.0, 12.0, 12.0]  # evaluated in rounds 100 to 700; a fifth is 140
        run = made("mnist", "adabest,mu=0.02", [90.0] * 7, rounds=700, cloud_norm=norms)
        assert drawn("fig-mu", [run]).axes[2].get_ylim() == pytest.approx((11.87, 12.63))  # 0.06 · 0.5 + 0.1 around

    def test_two_data_sets_are_two_figures(self) -> None:
        runs = everyone(["mnist", "emnist-l"], seeds=1, entries=MUS)
        assert list(render("fig-mu", of(runs, "fig-mu")).figures) == ["fig-mu-mnist", "fig-mu-emnist-l"]

    def test_beta(self) -> None:
        betas = ("0", "0.2", "0.4", "0.6", "0.8", "0.9", "0.95", "0.98", "1")
        runs = [
            made(f"cifar100/{cell}", f"adabest,beta={beta}", 40 + 5 * float(beta) + 30 * float(cell) + seed, seed=seed)
            for cell in ("0.1", "0.005", "0.02")
            for beta in betas
            for seed in (0, 2)
            if (cell, beta) != ("0.005", "1")
        ]
        runs.append(made("cifar100/0.005", "adabest,beta=1", 1.0, rounds=9, status="diverged", reason="∞"))
        (axes,) = drawn("fig-beta", runs).axes
        assert (axes.get_xscale(), axes.get_xlabel()) == ("log", "share of clients in a round")
        assert axes.get_xticks().tolist() == [0.005, 0.02, 0.1]
        line = line_of(axes, "β = 0.8")
        assert points(line) == [[0.005, pytest.approx(45.15)], [0.02, pytest.approx(45.6)], [0.1, pytest.approx(48)]]
        assert [place for place, _ in points(line_of(axes, "β = 1"))] == [0.02, 0.1]
        (lost,) = [other for other in axes.lines if other.get_marker() == "x"]
        assert lost.get_xdata() == [0.005]
        assert lost.get_color() == line_of(axes, "β = 1").get_color()
        looks = {(str(one.get_linestyle()), one.get_marker()) for one in axes.lines if one is not lost}
        assert len(looks) == len(betas)
        heights = {round(height, 3) for _, height in np.asarray(axes.collections[0].get_paths()[0].vertices)}
        assert {round(41.15 + stdev([0, 2]), 3), round(41.15 - stdev([0, 2]), 3)} <= heights


class TestPopulation:
    def test_a_column_for_each(self) -> None:
        runs = everyone(["fixed", "churn"], seeds=2)
        figure = drawn("population", runs)
        assert [axes.get_title() for axes in figure.axes] == ["fixed", "churn", "", "", "", ""]
        assert [axes.get_ylabel() for axes in figure.axes[::2]] == ["present", "test accuracy (%)", "‖θ‖"]
        shaded = np.asarray(figure.axes[1].collections[0].get_paths()[0].vertices)
        assert {value for value in runs[0].columns["present"] if value} <= {height for _, height in shaded.tolist()}
        assert len(figure.axes[3].lines) == len(figure.axes[5].lines) == 4

    def test_the_title_says_what_all_have_in_common(self) -> None:
        shared = {"clients": 100, "participation": 0.1, "partition": "iid"}
        fixed, churn = (made(cell, "adabest", 50.0, settings={**shared, "churn": rate}) for cell, rate in CHURN.items())
        assert title(drawn("population", [fixed])) == "fixed, 100 clients, 10 a round, IID, seed 0"
        assert title(drawn("population", [fixed, churn])) == "100 clients, IID, seed 0"


class TestTable1:
    def test_ours_inside_the_papers(self) -> None:
        runs = [
            made("cifar100/10/iid", "adabest", accuracy, seed=n, rounds=1200) for n, accuracy in enumerate((54, 56))
        ]
        runs += [made("cifar10/1/0.3", "fedavg", 80.0), made("cifar10/1/iid", "fedavg", 1.0, status="diverged")]
        figure = drawn("table1", runs, "agreement")
        small, large = figure.axes
        assert [axes.get_title() for axes in figure.axes] == ["CIFAR-10", "CIFAR-100"]
        assert [text.get_text() for text in small.get_yticklabels()] == ["1 %, α = 0.3", "1 %, IID", "10 %, IID"]
        centres = [points(line)[0][0] for line in large.lines if line.get_marker() == "o" and points(line)]
        assert centres == pytest.approx([55.58, 55.0])
        assert [points(line)[0][0] for line in small.lines if line.get_marker() == "s"] == pytest.approx([82.21, 80.0])
        assert names(figure) == ["FedAvg", "AdaBest", "ours", "paper"]

    def test_runs_of_another_length_arent_put_beside_the_papers(self) -> None:
        short = made("cifar100/10/iid", "adabest", 20.0, rounds=300)
        assert list(render("table1", of([short])).figures) == ["curves"]
        whole = made("cifar10/1/iid", "adabest", 85.0, rounds=1000)
        assert [axes.get_title() for axes in drawn("table1", [short, whole], "agreement").axes] == ["CIFAR-10"]

    def test_curves_of_every_cell(self) -> None:
        runs = everyone(["cifar10/1/iid", "cifar10/1/0.03", "cifar100/10/iid"], seeds=1)
        figure = drawn("table1", runs, "curves")
        assert [axes.get_title() for axes in figure.axes] == ["α = 0.03", "IID", "", ""]
        assert [axes.get_ylabel() for axes in figure.axes] == ["CIFAR-10, 1 %", "", "CIFAR-100, 10 %", ""]
        assert [len(axes.lines) for axes in figure.axes] == [4, 4, 0, 4]
        assert points(line_of(figure.axes[3], "AdaBest")) == curve_of(runs[-1], "scored_accuracy", 100)


def test_figures_are_saved_in_both_forms(tmp_path: Path) -> None:
    figure = drawn("fig-scale", everyone(["balanced/1000"]))
    assert [path.name for path in save_figure(figure, tmp_path / "fig-scale")] == ["fig-scale.png", "fig-scale.svg"]
