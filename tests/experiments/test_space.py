"""Spaces that Optuna searches: what they may be, which points come out of them, and that they come out again."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from figures import catch_figures
from tiny_runs import Killed, arguments, command, contents, ends_after, results, resume_comparison, run, tiny

import adabest
from adabest import extras
from adabest.errors import InputError, Interrupted
from adabest.experiments.choice import Point
from adabest.experiments.run_group import RunGroup, make_runs
from adabest.experiments.search import plan_search
from adabest.experiments.space import SearchRange, Space, Values, ends, proposals, read_space, write_space
from adabest.runs.results_file import read_choices
from adabest.runs.settings.run_plan import Plan

SPACE = ["beta=0:1", "mu=0.001:0.1:log", "batch-size=4,8"]


@pytest.fixture(autouse=True)
def no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than everything else."""
    catch_figures(monkeypatch)


def tune(out: Path, **changes: Any) -> adabest.Tuning:
    return adabest.tune(
        out=out, show=False, **tiny(**{"space": SPACE, "trials": 6, "lanes": 2, "rounds": 2, **changes})
    )


class TestReading:
    def test_ranges_and_values(self) -> None:
        texts = ["beta=0:1", "mu=0.001:0.1:log", "batch-size=4,8", "epochs=1:5", "model=mlp,hidden=4;logistic"]
        space = read_space(texts, "adabest")
        assert space == {
            "beta": SearchRange(0.0, 1.0, log=False, whole=False),
            "mu": SearchRange(0.001, 0.1, log=True, whole=False),
            "batch_size": Values((4, 8)),
            "epochs": SearchRange(1, 5, log=False, whole=True),
            "model": Values(("mlp,hidden=4", "logistic")),
        }
        assert read_space(write_space(space), "adabest") == space
        epochs = read_space(["epochs=1:5"], "adabest")["epochs"]
        assert isinstance(epochs, SearchRange)
        assert type(epochs.low) is int

    def test_from_a_mapping(self) -> None:
        assert read_space({"mu": "0.01:1:log", "local_steps": ["own", "mean"]}, "feddyn") == {
            "mu": SearchRange(0.01, 1.0, log=True, whole=False),
            "local_steps": Values(("own", "mean")),
        }

    @pytest.mark.usefixtures("trusting")
    @pytest.mark.parametrize(
        ("space", "words"),
        [
            (["beta=1:0"], "the first number must be below the second"),
            (["beta=1:1"], "the first number must be below the second"),
            (["beta=0:inf"], "both finite"),
            (["mu=0:1:log"], "only numbers above 0 have a logarithm"),
            (["mu=0.1:1:lin"], "should be low:high or low:high:log"),
            (["mu=0.1:1:log:2"], "should be low:high or low:high:log"),
            (["beta=a:1"], "beta should be a number or 'auto', not 'a'"),
            (["beta=auto:1"], "beta isn't a number, so it has no range"),
            (["beta=0:auto"], "beta isn't a number, so it has no range"),
            (["batch_size=1.5:3"], "batch_size should be a whole number, not '1.5'"),
            (["model=mlp:cnn"], "model isn't a number, so it has no range"),
            (["rates=1:2"], "rates isn't a number, so it has no range"),
            (["often=0:1"], "often isn't a number, so it has no range"),
            (["local_steps=own:mean"], "local_steps"),
            (["beta=0.5"], "leaves nothing to search"),
            (["beta=0.5,0.5"], "space: a value of beta is named twice"),
            (["beta=0:1", "beta=0:0.5"], "space names a setting twice"),
            (["beta"], "space: 'beta' should be a setting"),
            (["betta=0:1"], "unknown setting 'betta'; did you mean 'beta'"),
            ({"beta": 0.5}, "leaves nothing to search"),
            ({"model": [[1], object()]}, "should be numbers or words"),
            ({}, "there must be settings and what they may be"),
            ("beta=0:1", "there must be settings and what they may be"),
            (["seed=0:9"], "seed can't be varied: pass `seeds`"),
            (["dataset=digits,mnist"], "dataset can't be varied"),
        ],
    )
    def test_what_no_spaces_are(self, space: Any, words: str) -> None:
        with pytest.raises(InputError, match=words):
            read_space(space, "tiny_runs:Several")

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"space": ["beta=0:2"]}, "beta = 2.0 is out of range"),
            ({"space": ["beta=-1:1"]}, "beta = -1.0 is out of range"),
            ({"space": ["batch_size=0:4"]}, "batch_size = 0: it must be at least 1"),
            ({"space": ["rounds=1:4"]}, "rounds can't be tuned"),
            ({"space": ["threads=1:4"]}, "threads can't be varied: no result depends on it"),
            ({"trials": 0}, "trials = 0: at least 1 point"),
            ({"trials": 1.5}, "trials = 1.5: at least 1 point"),
            ({"validation_clients": 0}, "which needs validation_clients"),
        ],
    )
    def test_mistakes_are_found_before_anything_is_begun(
        self, changes: dict[str, Any], words: str, tmp_path: Path
    ) -> None:
        with pytest.raises(InputError, match=words):
            tune(tmp_path / "all", **changes)
        assert not (tmp_path / "all").exists()

    def test_the_ends_have_every_value(self) -> None:
        space = read_space(["beta=0:1", "epochs=1:5", "model=mlp,cnn,logistic"], "adabest")
        points = ends(space)
        assert {point["beta"] for point in points} == {0.0, 1.0}
        assert {point["epochs"] for point in points} == {1, 5}
        assert {point["model"] for point in points} == {"mlp", "cnn", "logistic"}
        assert len({json.dumps(point) for point in points}) == len(points) == 5

    @pytest.mark.parametrize(
        ("of", "value", "rounded"),
        [
            (SearchRange(0.0, 1.0, log=False, whole=False), 0.123456, 0.1235),
            (SearchRange(0.0, 1.0, log=False, whole=False), 0.000012, 0.0),
            (SearchRange(0.0, 0.01, log=False, whole=False), 0.00123456, 0.001235),
            (SearchRange(1000.1, 1000.2, log=False, whole=False), 1000.1234567, 1000.12346),
            (SearchRange(1e-5, 10.0, log=True, whole=False), 0.0000123456, 0.00001235),
            (SearchRange(1e-5, 10.0, log=True, whole=False), 3.14159, 3.142),
            (SearchRange(0.012344, 1.0, log=True, whole=False), 0.0123441, 0.012344),  # never outside
            (SearchRange(3, 9, log=False, whole=True), 7, 7),
        ],
    )
    def test_no_more_digits_than_make_a_difference(self, of: SearchRange, value: float, rounded: float) -> None:
        assert of.rounded(value) == rounded

    def test_without_optuna(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(extras, "is_installed", lambda package: package != "optuna")
        monkeypatch.setitem(sys.modules, "optuna", None)
        with pytest.raises(InputError, match=r'the search of a space needs .*: pip install "adabest\[optuna\]"'):
            tune(tmp_path / "all")
        assert not (tmp_path / "all").exists()
        tune(tmp_path / "grid", space=None, trials=None, vary={"beta": [0.5]})


def played(space: Space, trials: int, at_a_time: int, seed: int, best: float = 0.3) -> list[list[dict[str, Any]]]:
    """All proposals, if what comes of a point is how near its β is to the best."""
    batches, search = [], proposals(space, trials, at_a_time, seed)
    points = next(search)
    while True:
        batches.append(points)
        outcomes = [Point(point, [1 - abs(point["beta"] - best)], ["finished"]) for point in points]
        try:
            points = search.send(outcomes)
        except StopIteration:
            return batches


def flat(batches: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [point for batch in batches for point in batch]


@pytest.fixture(scope="module")
def optuna() -> Any:
    return pytest.importorskip("optuna", reason="Optuna isn't installed")


@pytest.mark.usefixtures("optuna")
class TestProposals:
    space = read_space([*SPACE, "epochs=1:3", "model=mlp,hidden=4;logistic"], "adabest")

    def test_so_many_at_a_time_all_in_the_space(self) -> None:
        batches = played(self.space, 11, 4, seed=0)
        assert [len(batch) for batch in batches] == [4, 4, 3]
        for point in flat(batches):
            assert list(point) == ["beta", "mu", "batch_size", "epochs", "model"]
            assert 0 <= point["beta"] <= 1
            assert 0.001 <= point["mu"] <= 0.1
            assert point["batch_size"] in (4, 8)
            assert point["epochs"] in (1, 2, 3)
            assert point["model"] in ("mlp,hidden=4", "logistic")

    def test_the_same_again_and_others_with_another_seed(self) -> None:
        first = played(self.space, 30, 4, seed=5)
        assert played(self.space, 30, 4, seed=5) == first
        assert played(self.space, 30, 4, seed=5 + 2**32) == first
        assert played(self.space, 30, 4, seed=6)[0] != first[0]

    def test_more_trials_begin_with_the_same(self) -> None:
        few, more = (flat(played(self.space, trials, 4, seed=5)) for trials in (18, 30))
        assert more[:18] == few

    def test_it_learns(self) -> None:
        space = read_space(["beta=0:1"], "adabest")
        late = [point["beta"] for point in flat(played(space, 60, 4, seed=0))[40:]]
        assert sum(abs(beta - 0.3) for beta in late) / 20 < 0.12  # 0.29, if they were drawn at random

    def test_what_diverges_is_kept_away_from(self) -> None:
        """However high its accuracy was before: here it rises with β, up to where all is lost."""
        search = proposals(read_space(["beta=0:1"], "adabest"), 60, 4, seed=0)
        points, tried = next(search), []
        for _ in range(14):
            lost = ["diverged" if point["beta"] > 0.5 else "finished" for point in points]
            tried += points
            points = search.send([Point(p, [p["beta"]], [status]) for p, status in zip(points, lost, strict=True)])
        late = [point["beta"] for point in tried[-20:]]
        assert sum(0.25 < beta <= 0.5 for beta in late) > 10
        assert max(beta for beta in late if beta <= 0.5) > 0.45

    def test_nobody_is_told_of_a_study(self, optuna: Any) -> None:
        before, said = optuna.logging.get_verbosity(), io.StringIO()
        handler = logging.StreamHandler(said)
        logging.getLogger("optuna").addHandler(handler)
        try:
            played(self.space, 2, 2, seed=0)
        finally:
            logging.getLogger("optuna").removeHandler(handler)
        assert said.getvalue() == ""
        assert optuna.logging.get_verbosity() == before


@pytest.mark.usefixtures("optuna")
class TestSearching:
    def test_every_trial_is_a_run(self, tmp_path: Path) -> None:
        done = tune(tmp_path / "all")
        assert len(done.entries) == 6
        chosen = done.chosen
        assert chosen is not None
        (choice,) = read_choices(tmp_path / "all" / "choices.json")
        assert choice.chosen == chosen
        assert [entry["point"] for entry in choice.grid] == [
            {name: ({**run.config.hyperparameters, **vars(run.config)})[name] for name in chosen}
            for run in done.runs.values()
        ]
        names = {path.name for path in (tmp_path / "all").iterdir() if path.is_dir()}
        assert names == {
            ",".join(["adabest", *(f"{name}={value}" for name, value in entry["point"].items())])
            for entry in choice.grid
        }
        accuracies = [float(row[3]) for row in done.table.rows]
        assert accuracies == sorted(accuracies, reverse=True)
        assert [row[-1] for row in done.table.rows] == ["chosen", "", "", "", "", ""]
        alone = run(tmp_path / "one", rounds=2, **chosen)
        label = next(name for name, made in done.runs.items() if made.config.digest() == alone.config.digest())
        assert results(done.folder / label) == results(alone.folder)

    @pytest.mark.parametrize("error", [Interrupted, Killed])
    def test_broken_off_again_and_again(self, error: type[BaseException], tmp_path: Path) -> None:
        """A rerun proposes what it proposed before, and finds those runs there."""
        settings: dict[str, Any] = {"seeds": [0, 1], "lanes": 4, "checkpoint_every": 1}
        straight = tune(tmp_path / "straight", **settings)
        for times in range(20):
            try:
                with ends_after(150, error):
                    if times % 2:
                        done: Any = resume_comparison(tmp_path / "all")
                    else:
                        done = tune(tmp_path / "all", **settings)
                    break
            except (Interrupted, Killed):
                continue
        else:
            pytest.fail("it doesn't get anywhere")
        assert times > 2
        assert list(done.runs) == list(straight.runs)
        assert len({path.parent for path in (tmp_path / "all").glob("*/config.toml")}) == 12  # none besides
        assert done.chosen == straight.chosen
        assert done.table == straight.table
        for label in straight.runs:
            assert results(done.folder / label) == results(straight.folder / label)

    def test_more_trials_cost_their_own_runs(self, tmp_path: Path) -> None:
        few = tune(tmp_path / "all", trials=3)
        before = contents(few.folder / next(iter(few.runs)))
        more = tune(tmp_path / "all", trials=5)
        assert list(more.runs)[:3] == list(few.runs)
        assert contents(few.folder / next(iter(few.runs))) == before
        before_all = {label: contents(more.folder / label) for label in more.runs}
        again = tune(tmp_path / "all", trials=5, overwrite=True)
        assert list(again.runs) == list(more.runs)
        for label, before in before_all.items():
            assert contents(again.folder / label) != before  # the timings are others

    def test_a_point_that_is_proposed_again_isnt_run_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made: list[str] = []

        def counted(planned: Plan, folder: Path, **how: Any) -> RunGroup:
            made.extend(planned.runs)
            return make_runs(planned, folder, **how)

        monkeypatch.setattr(sys.modules["adabest.experiments.search"], "make_runs", counted)
        done = tune(tmp_path / "all", space=["epochs=1,2"], trials=7, lanes=3)
        assert sorted(made) == sorted(done.runs)
        assert set(done.runs) == {"adabest,epochs=1", "adabest,epochs=2"}
        assert len(done.table.rows) == 2

    def test_seeds_share_the_lanes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[tuple[int, int, int]] = []

        def noted(space: Space, trials: int, at_a_time: int, seed: int) -> Iterator[list[Any]]:
            asked.append((trials, at_a_time, seed))
            return iter([[]])

        monkeypatch.setattr(sys.modules["adabest.experiments.search"], "proposals", noted)
        plan_search(tiny(), space=SPACE)
        plan_search(tiny(), space=SPACE, lanes=7, seeds=[4, 5, 6])
        plan_search(tiny(), space=SPACE, lanes=1, seeds=[0, 1])
        plan_search(tiny(seed=3), space=SPACE, trials=5)
        assert asked == [(30, 8, 0), (30, 2, 4), (30, 1, 0), (5, 8, 3)]

    def test_on_the_command_line_and_from_a_file(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        done = tune(tmp_path / "python")
        given = arguments(**tiny(rounds=2), trials=6, lanes=2)
        assert command("tune", *given, "--out", tmp_path / "cli", "--space", *SPACE) == 0
        assert "Chosen: beta = " in capsys.readouterr().out
        (tmp_path / "all.toml").write_text(
            "trials = 6\nlanes = 2\n[space]\nbeta = '0:1'\nmu = '0.001:0.1:log'\nbatch_size = [4, 8]\n"
        )
        assert command("tune", tmp_path / "all.toml", *given, "--out", tmp_path / "file") == 0
        assert command("resume", tmp_path / "file") == 0
        for place in ("cli", "file"):
            assert (tmp_path / place / "table.csv").read_bytes() == (done.folder / "table.csv").read_bytes()

    def test_bad_input_on_the_command_line(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        given = arguments(**tiny(), out=tmp_path / "all")
        assert command("tune", *given, "--space", "beta=1:0") == 2
        assert "the first number must be below the second" in capsys.readouterr().err
        (tmp_path / "all.toml").write_text("[space]\nbeta = '1'\n")
        assert command("tune", tmp_path / "all.toml", *given) == 2
        assert "leaves nothing to search" in capsys.readouterr().err
