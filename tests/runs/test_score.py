"""The model that tables, targets, early stopping and tuning speak of: ``--score``."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import log, run, tiny

import adabest
from adabest.errors import InputError
from adabest.report.figure import comparison_figure
from adabest.report.table import comparison_table, rounds_to, runs_table
from adabest.runs.build import build_parts
from adabest.runs.callbacks.early_stopping import reason_to_stop
from adabest.runs.settings.config import Config
from adabest.runs.settings.resolution import resolve

MODELS = ("scored", "aggregate", "cloud", "averaged")
# A server that goes half of the way has a cloud model that the scored one knows nothing of.
HALFWAY: dict[str, Any] = {"server_rate": 0.3, "average_from": 0.0, "algorithm": "fedavg", "validation_clients": 3}


def validated(done: adabest.Run, which: str) -> float:
    """The accuracy of a stored model on the validation clients, computed apart from the run."""
    task = build_parts(*resolve(tiny(**HALFWAY))).task
    vector = torch.cat([parameter.detach().flatten() for parameter in done.load_model(which).parameters()])
    scores = task.validate(vector)
    assert scores is not None
    return scores.mean


@pytest.mark.parametrize("which", MODELS)
def test_validation_is_that_of_the_model_told_of_and_all_else_stays(which: str, tmp_path: Path) -> None:
    plain = run(tmp_path / "plain", **HALFWAY)
    done = run(tmp_path / "run", score=which, **HALFWAY)
    for row, other in zip(done.metrics, plain.metrics, strict=True):
        held_out = {name for name in row if name.startswith("validation_")}
        assert len(held_out) == 3
        assert {k: v for k, v in row.items() if k not in held_out} == {
            k: v for k, v in other.items() if k not in held_out
        }
    assert done.final["validation_accuracy"] == pytest.approx(validated(done, which), abs=1e-9)


def test_the_models_of_these_tests_differ(tmp_path: Path) -> None:
    done = run(tmp_path / "run", **HALFWAY)
    assert len({validated(done, which) for which in MODELS}) >= 3


def test_a_run_is_stopped_by_the_model_told_of() -> None:
    rows = [
        {"round": 1, "scored_accuracy": 0.9, "cloud_accuracy": 0.2, "aggregate_accuracy": 0.8},
        {
            "round": 2,
            "scored_accuracy": 0.9,
            "cloud_accuracy": 0.6,
            "aggregate_accuracy": 0.8,
            "averaged_accuracy": 0.7,
        },
    ]
    assert reason_to_stop(rows[:1], stop_at=0.5, score="cloud") is None
    reason = reason_to_stop(rows, stop_at=0.5, score="cloud")
    assert reason == "the cloud model's accuracy of 0.6000 reaches stop_at = 0.5"
    assert reason_to_stop(rows[:1], stop_at=0.5, score="averaged") is None  # averages begin in the second round
    assert reason_to_stop(rows, stop_at=0.5, score="averaged") is not None


def test_without_validation_clients_a_gain_is_that_of_the_model_told_of() -> None:
    rows = [{"round": t, "scored_accuracy": 0.5 + t / 100, "cloud_accuracy": 0.5} for t in range(1, 6)]
    assert reason_to_stop(rows, stop_after=3) is None
    assert reason_to_stop(rows, stop_after=3, score="cloud") is not None


@pytest.mark.parametrize("which", MODELS)
def test_tables_figures_and_the_log_speak_of_it(which: str, tmp_path: Path) -> None:
    done = run(tmp_path / "run", score=which, **HALFWAY)
    table = comparison_table({"fedavg": done})
    told = "accuracy %" if which == "scored" else f"accuracy % ({which})"
    beside = [f"{model} %" for model in ("averaged", "cloud") if model != which]
    assert table.head[: 2 + len(beside)] == ("algorithm", told, *beside)
    assert table.rows[0][1] == f"{100 * done.final[f'{which}_accuracy']:.1f}"
    for place, name in enumerate(beside):
        assert table.rows[0][2 + place] == f"{100 * done.final[f'{name[:-2]}_accuracy']:.1f}"
    rounds, accuracies = done.curve(f"{which}_accuracy")
    assert rounds_to(done, max(accuracies)) == rounds[accuracies.index(max(accuracies))]
    axes = comparison_figure({"fedavg": done}).axes[0]
    assert axes.get_title() == f"Test accuracy of the {which} model"
    assert np.asarray(axes.lines[0].get_ydata()).tolist() == accuracies
    assert f": {which} accuracy {accuracies[-1]:.4f}, loss {done.final[f'{which}_loss']:.4f}" in log(done.folder)
    listed = runs_table([done]).rows[0][-1]
    assert listed == table.rows[0][1] + ("" if which == "scored" else f" ({which})")


def test_progress_shows_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    adabest.run(out=tmp_path / "run", score="cloud", **tiny(server_rate=0.3))
    done = adabest.load(tmp_path / "run")
    assert f"accuracy of the cloud model {100 * done.final['cloud_accuracy']:.1f} %" in capfd.readouterr().err


def test_tuning_chooses_by_it(tmp_path: Path) -> None:
    """With a rate of nothing the cloud model stays where it began, whatever the clients' models become."""
    settings = tiny(algorithm="fedavg", validation_clients=3, rounds=6, evaluate_every=6)
    rates = {"server_rate": [1e-6, 1.0]}
    tuned = adabest.tune(out=tmp_path / "tuned", vary=rates, score="cloud", show=False, **settings)
    assert tuned.chosen is not None
    assert tuned.chosen["server_rate"] == 1.0


def test_an_average_that_isnt_made_is_refused_before_any_training(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="score averaged: only runs with --average-from have that model"):
        run(tmp_path / "run", score="averaged")


def test_older_runs_keep_their_digests() -> None:
    assert "score" not in Config().essence()
    assert Config(score="cloud").essence()["score"] == "cloud"
