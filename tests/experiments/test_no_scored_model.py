"""An algorithm without a scored model, as replies don't tell its clients' models: everything works, and says so."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import RESULTS, Killed, break_off, command, log, resume, run, tiny

import adabest
from adabest.engine.metrics import Metrics
from adabest.errors import InputError
from adabest.experiments.run_list import list_runs, show
from adabest.report.figure import comparison_figure, sweep_figure
from adabest.report.table import comparison_table
from adabest.runs.callbacks.early_stopping import reason_to_stop
from adabest.runs.callbacks.progress import LastScore, LineReporter
from adabest.tasks.objectives.metric import ACCURACY

NOVA: dict[str, Any] = {"algorithm": "relatives:Differences"}
MODELS = [name for name in RESULTS if name != "model.safetensors"]


@pytest.fixture(scope="module")
def nova(tmp_path_factory: pytest.TempPathFactory) -> adabest.Run:
    return run(tmp_path_factory.mktemp("nova") / "run", **NOVA)


def test_a_run_has_null_for_what_the_scored_model_has(nova: adabest.Run) -> None:
    assert nova.status == "finished"
    assert all(row["scored_accuracy"] is None and row["scored_loss"] is None for row in nova.metrics)
    assert nova.final["aggregate_accuracy"] > 0
    assert nova.final["validation_accuracy"] is not None
    assert nova.curve("scored_accuracy") == ([], [])


def test_the_validation_accuracy_is_that_of_the_aggregate(nova: adabest.Run, tmp_path: Path) -> None:
    """FedAvg's one round on clients with equal numbers of steps and samples is FedNova's, up to rounding."""
    mine, theirs = (
        run(tmp_path / name, algorithm=name, rounds=1, participation=1.0, partition="iid", precision="float64")
        for name in ("relatives:Differences", "fedavg")
    )
    assert mine.final["validation_accuracy"] == pytest.approx(theirs.final["validation_accuracy"])


def test_the_log_tells_the_accuracy_of_the_aggregate(nova: adabest.Run) -> None:
    assert f"round 5: aggregate accuracy {nova.final['aggregate_accuracy']:.4f}, loss " in log(nova.folder)


def test_progress_shows_the_accuracy_of_the_aggregate() -> None:
    score = LastScore()
    aggregate: Metrics = {"scored_accuracy": None, "aggregate_accuracy": 0.5, "validation_accuracy": 0.25}
    assert score.update(aggregate, ACCURACY) == "accuracy of the aggregate 50.0 %"
    assert score.update({"validation_accuracy": 0.25}, ACCURACY) == "validation accuracy 25.0 %"
    assert score.update(None, ACCURACY) == "validation accuracy 25.0 %"
    stream = io.StringIO()
    reporter = LineReporter("nova", 0, 1, stream)
    reporter.show(1, {"scored_accuracy": None, "aggregate_accuracy": 0.5}, 10.0)
    assert "accuracy of the aggregate 50.0 %" in stream.getvalue()


def test_its_models_are_the_others(nova: adabest.Run, tmp_path: Path) -> None:
    assert sorted(path.name for path in nova.folder.glob("*.safetensors")) == sorted(
        name for name in MODELS if name.endswith(".safetensors")
    )
    message = "has no scored model: its clients' models can't be told from their replies; its aggregate model takes"
    with pytest.raises(InputError, match=message):
        _ = nova.model
    with pytest.raises(InputError, match=message):
        nova.export("safetensors", out=tmp_path / "model.safetensors")
    module = adabest.load(nova.folder, trust=True).load_model("aggregate")
    assert all(bool(torch.isfinite(value).all()) for value in module.state_dict().values())
    assert nova.export("safetensors", "aggregate", out=tmp_path / "aggregate.safetensors").is_file()


def test_lists_and_tables_say_so(nova: adabest.Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert list_runs(nova.folder.parent).table.rows[0][-1] == "– (no scored model)"
    assert ("scored accuracy", "–") in show(nova.folder)["result"].rows or command("show", nova.folder) == 0
    table = comparison_table({"nova": nova})
    aggregate = f"{100 * nova.final['aggregate_accuracy']:.1f}"
    assert table.rows[0][1] == f"– (no scored model: the aggregate has {aggregate})"
    assert table.rows[0][2] == f"{100 * nova.final['cloud_accuracy']:.1f}"
    assert table.rows[0][3] == "–"
    several = comparison_table({"nova": [nova, nova]})
    assert several.rows[0][1] == f"– (no scored model: the aggregate has {aggregate} ± 0.0)"


def test_a_comparison_has_both_kinds(tmp_path: Path) -> None:
    algorithms = ["relatives:Differences", "fedavg"]
    made = adabest.compare(algorithms=algorithms, out=tmp_path / "both", show=False, **tiny())
    without, plain = made.table.rows
    assert "no scored model: the aggregate has" in without[1]
    assert float(plain[1]) > 0
    assert not made.table.head[3].endswith("to 0 %"), "the target is one that those with a scored model reach"
    assert plain[3].isdigit()
    nova, avg = made.entries.values()
    figure = comparison_figure({"nova": nova, "avg": avg})
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["nova (aggregate: no scored model)", "avg"]
    assert all(np.size(line.get_xdata()) == 3 for line in figure.axes[0].get_lines())
    sweep_figure({"nova": nova})
    text = adabest.write_report(tmp_path / "both", html=tmp_path / "page.html").read_text(encoding="utf-8")
    assert ": no scored model, since clients’ models can’t be told from their replies" in text


def test_a_killed_run_resumes_to_the_same_files(nova: adabest.Run, tmp_path: Path) -> None:
    break_off(tmp_path / "killed", 40, Killed, **NOVA, checkpoint_every=1)
    resumed = resume(tmp_path / "killed", allow=[NOVA["algorithm"]])
    assert resumed.status == "finished"
    for name in MODELS:
        assert (resumed.folder / name).read_bytes() == (nova.folder / name).read_bytes()


def test_the_aggregate_ends_a_run_early(tmp_path: Path) -> None:
    rows = [{"round": 1, "scored_accuracy": None, "aggregate_accuracy": 0.9, "validation_accuracy": None}]
    assert reason_to_stop(rows, stop_at=0.9) == "the aggregate model's accuracy of 0.9000 reaches stop_at = 0.9"
    rows += [{**rows[0], "round": 5, "aggregate_accuracy": 0.8}]
    assert reason_to_stop(rows, stop_after=4) == ("no gain in 4 rounds: the best test accuracy is 0.9000, of round 1")
    ended = run(tmp_path / "run", **NOVA, rounds=30, evaluate_every=1, stop_at=0.4)
    assert ended.round < 30
    assert str(ended.reason).startswith("the aggregate model's accuracy of ")


def test_tuning_goes_by_the_validation_of_the_aggregate(tmp_path: Path) -> None:
    settings = tiny(**NOVA)
    tuned = adabest.tune(vary={"learning_rate": [0.1, 1e-6]}, out=tmp_path / "tuned", show=False, **settings)
    assert tuned.chosen == {"learning_rate": 0.1}
