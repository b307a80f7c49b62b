"""How algorithms steer: what is drawn are the points of a run, checked against the same run in NumPy."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from cohorts import draw_cohort
from halfway import Halfway
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Annotation
from quadratics import random_quadratics, simulate
from tiny_runs import Bomb, command

import adabest
from adabest import FedAvg, InputError
from adabest.algorithms.base import Work
from adabest.algorithms.feddane import FedDane
from adabest.experiments.steering import Move, plane, steer
from adabest.experiments.steering_figure import steering_figure
from adabest.runs.settings.call_arguments import STEERING_ALGORITHMS

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "steering.md"
PICTURE = PAGE.parent.parent / "assets" / "steering.png"

# The clients of the plane once more: eigenvalues and the angle of the first one's direction, and centres.
ANGLES = ((1.0, 0.15, 110), (1.0, 0.15, 70), (0.5, 0.2, 90))
CENTRES = np.array([[4.1, 2.1], [0.3, 2.7], [3.2, -0.7]])
START, ETA, STEPS, ROUNDS = np.array([-2.5, -1.5]), 0.25, 5, 4
MU, BETA = 0.3, 0.8


def curvature(steep: float, flat: float, degrees: float) -> np.ndarray:
    along = np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])
    across = np.array([-along[1], along[0]])
    return np.asarray(steep * np.outer(along, along) + flat * np.outer(across, across))


CURVATURES = [curvature(*angle) for angle in ANGLES]
OPTIMUM = np.linalg.solve(sum(CURVATURES), sum(a @ c for a, c in zip(CURVATURES, CENTRES, strict=True)))


@dataclass
class Round:
    """What NumPy found."""

    paths: dict[int, np.ndarray]
    plain: dict[int, np.ndarray]
    aggregate: np.ndarray
    cloud: np.ndarray


def descend(client: int, start: np.ndarray, offset: np.ndarray, spring: float = 0.0) -> np.ndarray:
    points = [start]
    for _ in range(STEPS):
        w = points[-1]
        gradient = CURVATURES[client] @ (w - CENTRES[client])
        points.append(w - ETA * (gradient + offset + spring * (w - start)))
    return np.stack(points)


def play(name: str, cohorts: list[list[int]]) -> list[Round]:
    """An algorithm's rounds by the protocol's table; all clients are equally large."""
    zero = np.zeros(2)
    theta, theta_bar, h = START, START, zero
    h_of, last = [zero] * 3, [0] * 3
    rounds = []
    for t, cohort in enumerate(cohorts, start=1):
        offsets = {"fedavg": zero, "scaffold-m": h, "feddyn": zero, "adabest": zero}
        spring = MU if name == "feddyn" else 0.0
        paths = {i: descend(i, theta, offsets[name] - h_of[i], spring) for i in cohort}
        plain = {i: descend(i, theta, zero) for i in cohort}
        before, theta_bar = theta_bar, np.mean([path[-1] for path in paths.values()], axis=0)
        share = len(cohort) / 3
        for i, path in paths.items():
            g_i = theta - path[-1]
            if name == "scaffold-m":
                h_of[i] = h_of[i] - h + g_i / (STEPS * ETA)
            elif name == "feddyn":
                h_of[i] = h_of[i] + MU * g_i
            elif name == "adabest":
                h_of[i] = h_of[i] / (t - last[i]) + MU * g_i
            last[i] = t
        if name == "scaffold-m":
            h = (1 - share) * h + share / (STEPS * ETA) * (theta - theta_bar)
        elif name == "feddyn":
            h = h + share * (theta - theta_bar)
        elif name == "adabest":
            h = BETA * (before - theta_bar)
        theta = theta_bar - h if name in ("feddyn", "adabest") else theta_bar
        rounds.append(Round(paths, plain, theta_bar, theta))
    return rounds


def lines(axes: Axes) -> dict[str, np.ndarray]:
    """What is drawn as a line or a point, by its label."""
    found = {str(line.get_label()): np.asarray(line.get_xydata()) for line in axes.lines}
    assert len(found) == len(axes.lines)
    return found


def arrows(axes: Axes) -> list[np.ndarray]:
    """From where to where every arrow goes."""
    return [np.array([text.xyann, text.xy]) for text in axes.texts if isinstance(text, Annotation)]


def assert_close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=0, atol=1e-12)


def assert_on_the_map(figure: Figure) -> None:
    """One map for all, so that panels can be compared, with everything on it."""
    boxes = {(axes.get_xlim(), axes.get_ylim()) for axes in figure.axes}
    assert len(boxes) == 1
    ((left, right), (bottom, top)) = boxes.pop()
    points = np.concatenate([points for axes in figure.axes for points in lines(axes).values()])
    assert np.all((points > [left, bottom]) & (points < [right, top]))


@pytest.fixture(scope="module")
def figure() -> Figure:
    """The default one."""
    task = plane()
    return steering_figure(task, steer(STEERING_ALGORITHMS, task, rounds=ROUNDS, participation=0.67, seed=0))


class TestWhatIsDrawn:
    @pytest.mark.parametrize("panel", range(4))
    def test_the_figure_shows_the_run(self, figure: Figure, panel: int) -> None:
        axes, name = figure.axes[panel], ("fedavg", "scaffold-m", "feddyn", "adabest")[panel]
        assert axes.get_title().split(",")[0] == name
        cohorts = [draw_cohort(0, t, np.arange(3), 2).tolist() for t in range(1, ROUNDS + 1)]
        rounds = play(name, cohorts)
        drawn = lines(axes)
        expected: dict[str, Any] = {"cloud 0": [START], "optimum": [OPTIMUM]}
        expected |= {f"optimum of client {i}": [centre] for i, centre in enumerate(CENTRES)}
        steered = []
        for t, one in enumerate(rounds, start=1):
            before = rounds[t - 2].aggregate if t > 1 else START
            expected |= {f"aggregate {t}": [one.aggregate], f"cloud {t}": [one.cloud]}
            expected |= {f"mean {t}": [before, one.aggregate]}
            expected |= {f"path {t}, client {i}": path for i, path in one.paths.items()}
            corrected = [i for i in one.paths if not np.allclose(one.paths[i], one.plain[i], rtol=0, atol=1e-12)]
            expected |= {f"plain {t}, client {i}": one.plain[i] for i in corrected}
            if name in ("feddyn", "adabest"):
                steered.append([one.aggregate, one.cloud])
        assert drawn.keys() == expected.keys()
        for label, points in expected.items():
            assert_close(drawn[label], points)
        assert_close(np.array(arrows(axes)).reshape(-1, 2, 2), np.array(steered).reshape(-1, 2, 2))

    def test_corrections_are_there_to_be_seen(self, figure: Figure) -> None:
        """FedAvg's clients are never corrected; the others' are, from the round on in which they know something."""
        plain = [[label for label in lines(axes) if label.startswith("plain")] for axes in figure.axes]
        assert [len(labels) for labels in plain] == [0, 6, 8, 5]

    def test_models_are_numbered(self, figure: Figure) -> None:
        for axes in figure.axes:
            numbers = {
                (text.get_text(), text.get_position()) for text in axes.texts if not isinstance(text, Annotation)
            }
            drawn = lines(axes)
            models = [label for label in drawn if label.split()[0] in ("cloud", "aggregate")]
            assert numbers == {(label.split()[1], tuple(drawn[label][0])) for label in models}

    def test_everything_is_on_the_map(self, figure: Figure) -> None:
        assert_on_the_map(figure)

    def test_the_rings_are_those_of_the_common_objective(self, figure: Figure) -> None:
        def height(point: np.ndarray) -> float:
            at = [0.5 * (point - c) @ a @ (point - c) for a, c in zip(CURVATURES, CENTRES, strict=True)]
            best = [0.5 * (OPTIMUM - c) @ a @ (OPTIMUM - c) for a, c in zip(CURVATURES, CENTRES, strict=True)]
            return float(np.mean(at) - np.mean(best))

        for axes in figure.axes:
            (rings,) = axes.collections
            paths = rings.get_paths()
            assert len(paths) == 10
            for ring in paths:
                heights = [height(vertex) for vertex in np.asarray(ring.vertices)]
                assert heights == pytest.approx([heights[0]] * len(heights), rel=0.01)

    def test_the_legend_explains_it(self, figure: Figure) -> None:
        (legend,) = figure.legends
        text = " ".join(entry.get_text() for entry in legend.get_texts())
        assert all(
            word in text for word in ("client a", "client b", "client c", "θ̄", "θ,", "−h", "optimum", "uncorrected")
        )


@dataclass(frozen=True)
class Twice(FedAvg):
    """Two rounds of FedAvg in one."""

    phases: ClassVar[tuple[Work, ...]] = (Work.TRAIN, Work.TRAIN)


class TestRecording:
    @pytest.mark.parametrize(("participation", "size"), [(0.1, 1), (0.67, 2), (1.0, 3), (1, 3)])
    def test_cohorts_are_those_of_the_seed(self, participation: float, size: int) -> None:
        moves = steer(["fedavg", "adabest"], plane(), rounds=5, participation=participation, seed=3)
        for rounds in moves.values():
            cohorts = [sorted(move.legs) for move in rounds]
            assert cohorts == [draw_cohort(3, t, np.arange(3), size).tolist() for t in range(1, 6)]

    def test_a_round_begins_where_the_last_one_ended(self) -> None:
        (moves,) = steer(["adabest"], plane(), rounds=6, participation=0.67, seed=1).values()
        assert torch.equal(moves[0].start, plane().origin)
        for before, after in pairwise(moves):
            assert torch.equal(after.start, before.cloud)
        for move in moves:
            assert all(torch.equal(leg.path[0], move.start) for leg in move.legs.values())
            mean = torch.stack([leg.path[-1] for leg in move.legs.values()]).mean(dim=0)
            torch.testing.assert_close(mean, move.aggregate, rtol=0, atol=1e-14)

    def test_two_algorithms_that_are_the_same_draw_the_same(self) -> None:
        one, other = steer(["fedavg", "adabest,mu=0,beta=0"], plane(), rounds=4, participation=0.67, seed=0).values()
        assert all(torch.equal(a.cloud, b.cloud) for a, b in zip(one, other, strict=True))

    def test_only_training_is_a_path(self) -> None:
        """A round of FedDANE collects gradients first, at one point; then its clients train."""
        (moves,) = steer([FedDane(mu=0.1)], plane(), rounds=2, participation=1.0, seed=0).values()
        for move in moves:
            assert [leg.path.shape for leg in move.legs.values()] == [(STEPS + 1, 2)] * 3
            assert all(torch.equal(leg.path[0], move.start) for leg in move.legs.values())

    def test_of_two_trainings_the_last_one_is_drawn(self) -> None:
        (moves,) = steer([Twice()], plane(), rounds=2, participation=1.0, seed=0).values()
        (once, again) = steer(["fedavg"], plane(), rounds=2, participation=1.0, seed=0)["fedavg"]
        assert torch.equal(moves[0].cloud, again.cloud)
        assert all(torch.equal(moves[0].legs[client].path, leg.path) for client, leg in again.legs.items())
        assert torch.equal(moves[0].start, once.start)

    def test_whole_numbers_may_be_floats(self) -> None:
        three: Any = 3.0
        (moves,) = steer(["fedavg"], plane(), rounds=three, participation=1.0, seed=0).values()
        assert len(moves) == 3

    def test_divergence_is_told(self) -> None:
        with pytest.raises(InputError, match="bomb diverges in round 3 of the illustration: the cloud model"):
            steer([Bomb()], plane(), rounds=4, participation=1.0, seed=0)

    def test_the_latest_model_of_a_client(self) -> None:
        simulation = simulate(FedAvg(), random_quadratics(0, 3))
        initial = simulation.state.cloud
        simulation.step(cohort=np.array([1]))
        assert torch.equal(simulation.client_model(0), initial)
        assert torch.equal(simulation.client_model(1), simulation.state.aggregate)
        kept = simulation.client_model(1)
        simulation.step(cohort=np.array([1]))
        assert not torch.equal(simulation.client_model(1), kept)  # what was read stays what it was


class TestQuadratics:
    def test_the_gradient_is_that_of_the_objective(self) -> None:
        task = random_quadratics(2, 4, unbalanced=True)
        w = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
        (gradient,) = torch.autograd.grad(task.objective(w), w)
        share = torch.tensor(task.counts, dtype=torch.float64) / sum(task.counts)
        parts = torch.stack([task.full_gradient(w.detach(), i) for i in range(4)])
        torch.testing.assert_close(gradient, share @ parts, rtol=0, atol=1e-12)

    def test_many_points_at_once(self) -> None:
        task = random_quadratics(2, 4, unbalanced=True)
        points = torch.arange(18, dtype=torch.float64).reshape(2, 3, 3)
        found = task.objective(points)
        assert found.shape == (2, 3)
        assert float(found[1, 2]) == pytest.approx(task.test(points[1, 2]).loss, rel=1e-14)
        losses = [float(task.local_pass(points[1, 2], i, 1, 0).loss) * task.counts[i] for i in range(4)]
        assert float(found[1, 2]) == pytest.approx(sum(losses) / sum(task.counts), rel=1e-14)

    def test_nothing_is_better_than_the_optimum(self) -> None:
        task = random_quadratics(5, 4, unbalanced=True)
        best = task.optimum()
        for direction in torch.eye(3, dtype=torch.float64):
            for side in (-1e-3, 1e-3):
                assert task.test(best + side * direction).loss > task.test(best).loss


def panels(moves: dict[str, list[Move]]) -> list[bool]:
    return [axes.axison for axes in steering_figure(plane(), moves).axes]


class TestFigure:
    def test_an_algorithm_of_your_own_is_drawn(self) -> None:
        moves = steer([Halfway()], plane(), rounds=2, participation=1.0, seed=0)
        figure = steering_figure(plane(), moves)
        first, second = (move for move in moves["halfway"])
        assert_close(arrows(figure.axes[0])[1], torch.stack([second.aggregate, second.cloud]))
        assert_close((first.start + first.aggregate) / 2, first.cloud)

    @pytest.mark.parametrize(("count", "shown"), [(1, [True]), (2, [True] * 2), (3, [True] * 3 + [False])])
    def test_panels(self, count: int, shown: list[bool]) -> None:
        names = [f"adabest,beta=0.{number}" for number in range(count)]
        assert panels(steer(names, plane(), rounds=1, participation=1.0, seed=0)) == shown

    def test_a_map_keeps_its_shape(self) -> None:
        """However far one algorithm goes astray."""
        wild = steer(["feddyn,mu=60"], plane(), rounds=6, participation=1.0, seed=0)
        figure = steering_figure(plane(), wild)
        assert_on_the_map(figure)
        width, height = figure.get_size_inches()
        assert width == pytest.approx(10.8)
        assert 6 < height < 13


class TestWritten:
    def test_from_python(self, tmp_path: Path) -> None:
        made = adabest.illustrate(algorithms=["fedavg", Halfway()], rounds=2, out=tmp_path / "deep" / "figure")
        assert made.files == [tmp_path / "deep" / "figure.png", tmp_path / "deep" / "figure.svg"]
        assert sorted((tmp_path / "deep").iterdir()) == made.files  # and nothing half-written
        assert list(made.moves) == ["fedavg", "halfway"]
        assert [len(rounds) for rounds in made.moves.values()] == [2, 2]
        assert np.ptp(imread(made.files[0])[..., :3]) > 0.5
        assert "<svg" in made.files[1].read_text(encoding="utf-8")

    def test_defaults(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        made = adabest.illustrate()
        assert list(made.moves) == list(STEERING_ALGORITHMS)
        assert made.files == [Path("steering.png"), Path("steering.svg")]

    def test_from_the_command_line(self, workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (workplace / "mine.py").write_text("from halfway import Halfway as Mine\n", encoding="utf-8")
        options = ["--rounds", "3", "--participation", "1", "--seed", "2", "--out", "figure"]
        assert command("illustrate", "--algorithms", "fedavg", "adabest,beta=0.5", "mine:Mine", *options) == 0
        assert capsys.readouterr().out == "Written: figure.png\nWritten: figure.svg\n"
        text = Path("figure.svg").read_text(encoding="utf-8")
        assert all(title in text for title in ("<!-- fedavg -->", "<!-- adabest, beta=0.5 -->", "<!-- mine.Mine -->"))

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"algorithms": ["fedavgg"]}, "unknown algorithm 'fedavgg'; did you mean 'fedavg'"),
            ({"algorithms": ["adabest,bta=1"]}, "unknown setting 'bta'; did you mean 'beta'"),
            ({"algorithms": ["adabest,beta=2"]}, r"beta = 2.0 is out of range: it must be a finite number in \[0, 1\]"),
            ({"algorithms": []}, r"algorithms should be a list of names, with at least one, not \[\]"),
            ({"algorithms": "fedavg"}, "algorithms should be a list of names, with at least one, not 'fedavg'"),
            ({"algorithms": [FedAvg]}, "an algorithm should be a name or an Algorithm, not a ABCMeta"),
            ({"algorithms": ["fedavg", "feddyn", "feddyn"]}, "the algorithm 'feddyn' is named twice"),
            ({"rounds": 0}, "rounds = 0: at least 1 and at most 1,000 are drawn"),
            ({"rounds": 1.5}, "rounds should be a whole number, not 1.5"),
            ({"participation": 0.0}, "participation = 0.0: it must be above 0 and at most 1"),
            ({"participation": "all"}, "participation should be a number, not 'all'"),
            ({"seed": "x"}, "seed should be a whole number, not 'x'"),
            ({"out": ""}, "a figure needs a name, not ''"),
        ],
    )
    def test_bad_input(self, settings: dict[str, Any], message: str, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=message):
            adabest.illustrate(**{"out": tmp_path / "figure", **settings})
        assert list(tmp_path.iterdir()) == []

    def test_a_place_that_cannot_be_written(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "file").touch()
        assert command("illustrate", "--rounds", "1", "--out", tmp_path / "file" / "figure") == 2
        assert "can't write the figure" in capsys.readouterr().err


def distances(algorithms: list[str], rounds: int, participation: float) -> list[list[float]]:
    """How far θ̄ is from the optimum after every round, for each algorithm."""
    moves = steer(algorithms, plane(), rounds=rounds, participation=participation, seed=0)
    return [[float(np.linalg.norm(move.aggregate.numpy() - OPTIMUM)) for move in run] for run in moves.values()]


class TestPage:
    TEXT = PAGE.read_text(encoding="utf-8")

    def test_the_pages_commands_work(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        commands = re.findall(r"^adabest (illustrate.*)$", self.TEXT, re.MULTILINE)
        assert len(commands) == 4
        for line in commands:
            assert command(*line.split()) == 0
        assert len(list(tmp_path.iterdir())) == 2 * len(commands)

    def test_the_pages_code_works(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (code,) = re.findall(r"```python\n(.*?)```", self.TEXT, re.DOTALL)
        exec(code, {})
        assert capsys.readouterr().out.count("tensor(") == 3 * (3 + 2)

    def test_the_pages_picture_is_current(self) -> None:
        assert "../assets/steering.png" in self.TEXT
        assert PICTURE.stat().st_size < 150_000
        assert imread(PICTURE).shape[1] == 1620

    def test_the_pages_table_is_current(self) -> None:
        rows = re.findall(r"^\| (\S+) \| ([\d.]+) \| ([\d.]+) \|$", self.TEXT, re.MULTILINE)
        assert [name for name, _, _ in rows] == list(STEERING_ALGORITHMS)
        found = distances(list(STEERING_ALGORITHMS), 300, 0.67)
        assert [(f"{run[3]:.2f}", f"{np.mean(run[200:]):.2f}") for run in found] == [row[1:] for row in rows]

    def test_the_pages_other_numbers_are_current(self) -> None:
        feddyn = steer(["feddyn,mu=0.3"], plane(), rounds=4, participation=0.67, seed=0)["feddyn,mu=0.3"]
        lengths = [f"{float((move.cloud - move.aggregate).norm()):.2f}" for move in feddyn]
        text = " ".join(self.TEXT.split())
        assert f"{lengths[0]}, {lengths[1]}, {lengths[2]} and {lengths[3]} long" in text
        shown, trained = distances(["adabest,mu=0.3,beta=0.8", "adabest,mu=0.02,beta=0.96"], 600, 1.0)
        assert f"is {shown[-1]:.2f} away from the star" in text
        assert f"at μ = .02 and β = .96 it is {trained[-1]:.2f}" in text


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in; the module of it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("mine", None)
