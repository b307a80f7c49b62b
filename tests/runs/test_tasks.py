"""Every task that ``--task`` knows, and a user's own: in runs, comparisons, sweeps and tunings, on every engine."""

import json
import math
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_tasks import TASKS, Absolute, Language, data_of, settings_of
from tiny_runs import ends_after
from torch import Tensor, nn

import adabest
from adabest.data.dataset import from_arrays
from adabest.engine.gpu.trainer import GpuTrainer, Precision
from adabest.errors import InputError, Interrupted
from adabest.experiments.choice import Point
from adabest.runs import build
from adabest.runs.files.records import check_identity

FILES = ("metrics.jsonl", "model.safetensors", "aggregate.safetensors", "cloud.safetensors")
FIRST = {
    "multi-label": "f1_micro",
    "regression": "rmse",
    "next-token": "perplexity",
    "segmentation": "mean_iou",
    "own": "near",
}
every_task = pytest.mark.parametrize("task", sorted(TASKS))


def run(out: Path, kind: str, **changes: Any) -> adabest.Run:
    return adabest.run(out=out, **settings_of(kind) | changes)


def results(done: adabest.Run) -> list[bytes]:
    return [(done.folder / name).read_bytes() for name in FILES]


@every_task
def test_a_model_learns(tmp_path: Path, task: str) -> None:
    done = run(tmp_path / "run", task, rounds=8)
    assert done.metric.name == FIRST[task]
    names = [metric.name for metric in done.judged_by]
    assert {f"{model}_{name}" for model in ("scored", "aggregate", "cloud") for name in names} <= done.final.keys()
    assert "scored_accuracy" not in done.final or "accuracy" in names
    first, last = (row[f"scored_{done.metric.name}"] for row in (done.metrics[0], done.metrics[-1]))
    assert done.metric.is_better(last, first)
    assert done.final["scored_loss"] < done.metrics[0]["scored_loss"]


@every_task
def test_what_is_told_is_that_of_the_stored_model(tmp_path: Path, task: str) -> None:
    done = run(tmp_path / "run", task)
    data = data_of(task)
    kind = TASKS[task]["model"]
    module = None if isinstance(kind, str) else kind(data.input_shape, done.identity["classes"])
    with torch.no_grad():
        outputs = done.load_model(module=module)(data.x_test)
    targets = data.y_test
    match task:
        case "multi-label":
            said = outputs > 0
            expected = 2 * float((said & (targets > 0)).sum()) / float(said.sum() + targets.sum())
        case "regression":
            expected = math.sqrt(float(((outputs.double() - targets) ** 2).mean()))
        case "next-token":
            counted = targets >= 0
            expected = float(torch.nn.functional.cross_entropy(outputs[counted], targets[counted]).exp())
        case "segmentation":
            said = outputs.argmax(dim=1)
            ratios = [((said == c) & (targets == c)).sum() / ((said == c) | (targets == c)).sum() for c in range(3)]
            expected = float(torch.stack([ratio for ratio in ratios if not ratio.isnan()]).mean())
        case _:
            expected = float(((outputs - targets).abs() < 0.4).double().mean())
    assert done.final[f"scored_{FIRST[task]}"] == pytest.approx(expected, rel=1e-5)


@every_task
def test_engines_agree_in_float64(tmp_path: Path, task: str) -> None:
    rows = [
        run(tmp_path / engine, task, engine=engine, precision="float64", algorithm="adabest").final
        for engine in ("reference", "batched")
    ]
    assert rows[0].keys() == rows[1].keys()
    for name, value in rows[0].items():
        assert rows[1][name] == (None if value is None else pytest.approx(value, rel=1e-9)), name


@every_task
def test_the_gpu_program_agrees_on_a_cpu(tmp_path: Path, task: str) -> None:
    """bfloat16 goes through the program that GPUs run, which has paths of its own for outputs and losses."""
    half, full = (run(tmp_path / precision, task, precision=precision).final for precision in ("bf16", "float32"))
    for name in (f"scored_{FIRST[task]}", f"train_{FIRST[task]}", "train_loss"):
        assert half[name] == pytest.approx(full[name], rel=0.05), name


@every_task
def test_clients_side_by_side_agree_with_the_reference(
    tmp_path: Path, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program of GPUs, with all clients of a round in it at once, some of which make fewer steps."""
    changes = {"precision": "float64", "algorithm": "adabest", "participation": 1.0, "unbalance": 0.5}
    reference = run(tmp_path / "reference", task, engine="reference", **changes)
    monkeypatch.setattr(build, "CpuTrainer", lambda given, *others: GpuTrainer(given, Precision(), None))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing falls back to one client after another
        stacked = run(tmp_path / "stacked", task, **changes)
    for name, value in reference.final.items():
        assert stacked.final[name] == (None if value is None else pytest.approx(value, rel=1e-9)), name


@every_task
def test_a_run_is_resumed_exactly(tmp_path: Path, task: str) -> None:
    whole = run(tmp_path / "whole", task)
    with pytest.raises(Interrupted), ends_after(40):
        run(tmp_path / "cut", task, checkpoint_every=1)
    objects = {name: value for name, value in settings_of(task).items() if name in ("dataset", "model")}
    resumed = adabest.resume(tmp_path / "cut", show=False, trust=True, **objects)
    assert isinstance(resumed, adabest.Run)
    assert results(resumed) == results(whole)


@every_task
def test_lanes_are_what_runs_alone_are(tmp_path: Path, task: str) -> None:
    together = adabest.compare(algorithms=["fedavg", "adabest"], out=tmp_path / "two", **settings_of(task))
    for of in together.runs.values():
        assert results(of) == results(run(tmp_path / of.config.algorithm, task, algorithm=of.config.algorithm))
    head = together.table.head[1]
    assert head == {"next-token": "perplexity", "regression": "rmse"}.get(task, f"{FIRST[task].replace('_', ' ')} %")
    assert (tmp_path / "two" / "figure.png").stat().st_size > 0


@every_task
def test_full_gradients_agree(tmp_path: Path, task: str) -> None:
    rows = [
        run(tmp_path / engine, task, engine=engine, precision="float64", algorithm="scaffold-gradient").final
        for engine in ("reference", "batched")
    ]
    assert rows[1]["cloud_norm"] == pytest.approx(rows[0]["cloud_norm"], rel=1e-9)


def test_a_task_given_as_an_object_has_its_own_loss(tmp_path: Path) -> None:
    named = run(tmp_path / "named", "own")
    passed = run(tmp_path / "passed", "own", task=Absolute(bound=0.4))
    assert passed.config.loss is None
    assert results(passed) == results(named)
    with pytest.raises(Interrupted), ends_after(40):
        run(tmp_path / "cut", "own", task=Absolute(bound=0.4), checkpoint_every=1)
    with pytest.raises(InputError, match=r"adabest\.resume\(folder, task="):
        adabest.resume(tmp_path / "cut", dataset=data_of("own"), show=False)
    resumed = adabest.resume(tmp_path / "cut", dataset=data_of("own"), task=Absolute(bound=0.4), show=False)
    assert isinstance(resumed, adabest.Run)
    assert results(resumed) == results(named)


@pytest.mark.parametrize(
    ("engine", "precision"), [("reference", "float32"), ("batched", "float32"), ("batched", "bf16")]
)
def test_batches_without_a_value_are_left_out_of_the_mean(tmp_path: Path, engine: str, precision: str) -> None:
    """F1 isn't defined for a batch in which no label occurs or is predicted."""
    generator = np.random.default_rng(0)
    inputs, labels = generator.normal(size=(60, 4)).astype(np.float32), np.zeros((60, 2), np.int64)
    labels[::6] = 1
    settings = settings_of("multi-label") | {"dataset": from_arrays(inputs, labels, inputs, labels, name="rare")}
    changes = {"model": "logistic", "batch_size": 2, "rounds": 6, "engine": engine, "precision": precision}
    done = adabest.run(out=tmp_path / "run", **settings | changes)
    assert all(0 <= row["train_f1_micro"] <= 1 for row in done.metrics)


class TestLowerIsBetter:
    def test_a_share_that_is_not_there_is_the_worst(self) -> None:
        errors = adabest.Metric("errors", higher_is_better=False, is_share=True)
        lost, poor = Point({"a": 1}, [None], ["diverged"], errors), Point({"a": 2}, [0.9], ["finished"], errors)
        assert lost.goodness < poor.goodness

    def test_a_run_ends_where_the_metric_is_low_enough(self, tmp_path: Path) -> None:
        whole = run(tmp_path / "whole", "next-token", rounds=12, evaluate_every=1)
        rounds, values = whole.curve("scored_perplexity")
        goal = values[5]
        ended = run(tmp_path / "early", "next-token", rounds=12, evaluate_every=1, stop_at=goal)
        assert ended.round == next(number for number, value in zip(rounds, values, strict=True) if value <= goal)
        assert ended.reason == f"the scored model's perplexity of {goal:.4f} reaches stop_at = {goal:g}"

    def test_a_run_ends_when_it_gets_no_better(self, tmp_path: Path) -> None:
        ended = run(tmp_path / "run", "regression", rounds=30, learning_rate=1e-9, stop_after=4, evaluate_every=2)
        assert ended.round < 30
        assert "the best validation rmse is" in str(ended.reason)

    def test_tables_tell_the_first_round_below_a_target(self, tmp_path: Path) -> None:
        made = adabest.compare(algorithms=["fedavg"], out=tmp_path / "c", target=1e6, **settings_of("next-token"))
        assert made.table.head[3] == "rounds to 1e+06"
        assert made.table.rows[0][3] == "2"
        made = adabest.compare(algorithms=["fedavg"], out=tmp_path / "d", target=1.0, **settings_of("next-token"))
        assert made.table.rows[0][3] == "never"

    def test_the_target_by_default_is_one_that_all_reach(self, tmp_path: Path) -> None:
        made = adabest.compare(algorithms=["fedavg", "feddyn"], out=tmp_path / "c", **settings_of("next-token"))
        goal = float(made.table.head[3].removeprefix("rounds to "))
        best = [min(one.curve("scored_perplexity")[1]) for one in made.runs.values()]
        assert max(best) <= goal <= max(best) * 1.11

    def test_points_are_ordered_and_chosen_by_the_lowest(self, tmp_path: Path) -> None:
        rates = {"learning_rate": [1e-4, 0.1, 0.2]}
        settings = {name: value for name, value in settings_of("next-token").items() if name != "learning_rate"}
        swept = adabest.sweep(vary=rates, out=tmp_path / "sweep", algorithm="fedavg", **settings)
        values = [float(row[1]) for row in swept.table.rows]
        assert values == sorted(values)
        assert swept.table.head[1:3] == ("validation", "perplexity")
        tuned = adabest.tune(vary=rates, out=tmp_path / "tune", algorithm="fedavg", **settings)
        assert tuned.table.head[1] == "validation perplexity"
        lowest = min(tuned.runs.values(), key=lambda one: one.final["validation_perplexity"])
        assert tuned.chosen == {"learning_rate": lowest.config.learning_rate}

    def test_the_worst_clients_are_those_with_the_highest(self, tmp_path: Path) -> None:
        done = run(tmp_path / "run", "regression")
        assert done.final["validation_worst_tenth"] >= done.final["validation_rmse"]


class TestReports:
    def test_a_value_too_large_for_a_number_is_no_missing_model(self, tmp_path: Path) -> None:
        def loud(shape: tuple[int, ...], classes: int) -> nn.Module:
            model = Language(shape, classes)
            nn.init.normal_(model.table.weight, std=1e4)
            return model

        settings = settings_of("next-token") | {"model": loud, "learning_rate": 1e-9, "evaluate_every": 1}
        made = adabest.compare(algorithms=["fedavg"], out=tmp_path / "c", **settings)
        (done,) = made.runs.values()
        assert done.final["scored_loss"] > 710  # whose exponential is beyond float64
        assert done.final["scored_perplexity"] is None
        assert made.table.rows[0][1] == "–"
        assert "perplexity isn’t defined, loss" in (done.folder / "log.txt").read_text(encoding="utf-8")
        page = adabest.write_report(done.folder, html=tmp_path / "page.html").read_text(encoding="utf-8")
        assert "no scored model" not in page

    def test_the_page_speaks_of_the_metric(self, tmp_path: Path) -> None:
        run(tmp_path / "run", "next-token")
        page = adabest.write_report(tmp_path / "run", html=tmp_path / "page.html").read_text(encoding="utf-8")
        assert "Perplexity is that of the scored model on the test set in the last evaluated round; lower is" in page
        found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
        families = {family["name"]: family["scale"] for family in json.loads(found[0])["families"]}
        assert families["Perplexity"] == "number"
        assert families["Accuracy"] == "percent"

    def test_runs_of_two_metrics_are_not_compared(self, tmp_path: Path) -> None:
        run(tmp_path / "one", "next-token")
        run(tmp_path / "two", "regression")
        with pytest.raises(InputError, match="judged by perplexity and rmse"):
            adabest.write_report([tmp_path / "one", tmp_path / "two"], html=tmp_path / "page.html")
        listed = adabest.list_runs(tmp_path)
        assert listed.table.head[-1] == "score"
        assert any(row[-1].startswith("perplexity ") for row in listed.table.rows)

    def test_the_log_and_progress_speak_of_it(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        done = run(tmp_path / "run", "next-token", show=True)
        log = (done.folder / "log.txt").read_text(encoding="utf-8")
        assert f"scored perplexity {done.final['scored_perplexity']:.4f}, loss" in log
        assert f"perplexity {done.final['scored_perplexity']:.4g}" in capsys.readouterr().err


def test_a_partition_without_labels_has_no_skew_of_labels(tmp_path: Path) -> None:
    """It was 0 on the page, as if clients had one class each."""
    dealt = adabest.partition(dataset=data_of("regression"), task="regression", clients=5)
    assert not any("mean" in name for name in dealt.statistics)
    axes = dealt.plot().axes[0]
    assert "entropy" not in axes.get_title()
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("clients", "")
    run(tmp_path / "run", "regression", dataset="small_tasks:data_of,task=regression")
    page = adabest.write_report(tmp_path / "run", html=tmp_path / "page.html", trust=True).read_text(encoding="utf-8")
    assert "entropy" not in page
    assert "<span>numbers of samples, one column per client</span>" in page
    assert '<div class="ticks" aria-hidden="true"></div>' in page
    assert "one row per class" not in page


class TestRefusals:
    def test_labels_are_needed_to_deal_by_them(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"partition 'dirichlet' deals samples by their labels.*use iid"):
            run(tmp_path / "run", "regression", partition="dirichlet")
        assert run(tmp_path / "other", "regression").config.partition == "iid"

    def test_classification_of_quantities(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="use --task regression"):
            run(tmp_path / "run", "regression", task="classification")

    def test_cross_entropy_of_quantities(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"it is that of classes.*leave --loss out"):
            run(tmp_path / "run", "regression", loss="cross-entropy")

    def test_a_loss_that_compares_each_output_with_each_target(self, tmp_path: Path) -> None:
        """As torch's own losses do with outputs [batch, 1] and targets [batch], with a warning of theirs."""

        def spread_out(outputs: Tensor, targets: Tensor) -> Tensor:
            return (outputs - targets).abs().mean()

        def in_shape(outputs: Tensor, targets: Tensor) -> Tensor:
            return spread_out(outputs.reshape(targets.shape), targets)

        def first_column(outputs: Tensor, targets: Tensor) -> Tensor:
            return spread_out(outputs[:, 0], targets)

        plane = data_of("regression")
        assert isinstance(plane.x_train, Tensor)
        dataset = from_arrays(plane.x_train, plane.y_train[:, 0], plane.x_test, plane.y_test[:, 0])
        with pytest.raises(InputError, match=r"spread_out compares each .* \(2, 1\) and targets \(2,\) .*\.reshape"):
            run(tmp_path / "run", "regression", dataset=dataset, loss=spread_out)
        right, other = (
            run(tmp_path / loss.__name__, "regression", dataset=dataset, loss=loss) for loss in (in_shape, first_column)
        )
        assert right.final == other.final

    def test_a_class_in_place_of_an_object(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"pass an object of it, as in Absolute\(\)"):
            run(tmp_path / "run", "own", task=Absolute)

    def test_a_model_of_the_wrong_shape(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"outputs of shape \(42,\) for one .* 7 tokens at each of 6 places"):
            run(
                tmp_path / "run",
                "next-token",
                model=lambda shape, classes: nn.Sequential(nn.Embedding(7, 7), nn.Flatten()),
            )

    @pytest.mark.parametrize(("task", "value"), [("multi-label", 1.5), ("regression", float("inf"))])
    def test_goals_that_no_metric_reaches(self, tmp_path: Path, task: str, value: float) -> None:
        with pytest.raises(InputError, match="stop_at"):
            run(tmp_path / "run", task, stop_at=value)
        with pytest.raises(InputError, match="target"):
            adabest.compare(algorithms=["fedavg"], out=tmp_path / "compare", target=value, **settings_of(task))

    def test_a_task_that_a_file_names_is_not_imported(self, tmp_path: Path) -> None:
        with pytest.raises(Interrupted), ends_after(40):
            run(tmp_path / "run", "own", checkpoint_every=1)
        with pytest.raises(InputError, match=r"task 'small_tasks:Absolute' isn't imported: it was named by a file"):
            adabest.resume(tmp_path / "run", dataset=data_of("own"), show=False)

    def test_a_damaged_list_of_metrics(self, tmp_path: Path) -> None:
        identity = dict(run(tmp_path / "run", "regression").identity)
        for metrics in ([], [{"name": "Root"}], "rmse", [{"name": "rmse", "higher_is_better": "no"}]):
            with pytest.raises(InputError, match="metric"):
                check_identity("identity.json", identity | {"metrics": metrics})


def test_older_runs_are_judged_by_accuracy(tmp_path: Path) -> None:
    done = adabest.run(out=tmp_path / "run", dataset="digits", clients=10, rounds=1, epochs=1, show=False)
    assert "metrics" not in done.identity
    assert done.metric == adabest.Metric("accuracy", is_share=True)
    assert "task" not in done.config.essence()
    assert done.config.loss == "cross-entropy"
