"""Metrics of the user's own: scikit-learn's by name, and functions of outputs and targets."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.metrics
import torch
from small_tasks import settings_of
from tiny_runs import ends_after
from torch import Tensor
from torch.nn import functional

import adabest
from adabest.data.loading import load_dataset
from adabest.errors import InputError, Interrupted
from adabest.tasks.objectives.base import Objective
from adabest.tasks.objectives.catalog import CLASSIFICATION, make_objective
from adabest.tasks.objectives.metric import Metric
from adabest.tasks.own_metrics import make_own_metrics, try_own_metrics

SMALL: dict[str, Any] = {
    "dataset": "digits",
    "model": "logistic",
    "clients": 10,
    "validation_clients": 3,
    "rounds": 2,
    "epochs": 1,
    "evaluate_every": 1,
    "show": False,
}


def margin(outputs: Tensor, targets: Tensor) -> float:
    """The mean lead of the true class over the next best."""
    true = outputs.gather(1, targets[:, None])[:, 0]
    rest = outputs.scatter(1, targets[:, None], -torch.inf).amax(dim=1)
    return float((true - rest).mean())


def percent_accuracy(outputs: Tensor, targets: Tensor) -> float:
    return 100 * float((outputs.argmax(dim=1) == targets).double().mean())


def nothing_of_nothing(outputs: Tensor, targets: Tensor) -> float:
    return 0 / 0


@dataclass
class TopTwo(Objective):
    """A task of one's own that has no hash: whether the true class is among the first two."""

    metrics = (Metric("top_two", is_share=True),)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets, label_smoothing=0.1)

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        found = (outputs.topk(2, dim=1).indices == targets[:, None]).any(dim=1).double()
        return torch.stack([found, torch.ones_like(found)], dim=1)

    def values(self, sums: Tensor) -> Tensor:
        return sums[..., :1] / sums[..., 1:]


def accuracy(outputs: Tensor, targets: Tensor) -> float:
    return float((outputs.argmax(dim=1) == targets).double().mean())


def no_number(outputs: Tensor, targets: Tensor) -> str:
    return "good"


def test_they_are_those_of_the_models(tmp_path: Path) -> None:
    done = adabest.run(out=tmp_path / "run", metrics=["f1_macro", "roc_auc_ovr", margin], **SMALL)
    data = load_dataset("digits", None)
    for which in ("scored", "aggregate", "cloud"):
        with torch.no_grad():
            outputs = done.load_model(which)((data.x_test.float() - data.mean) / data.std)
        said = outputs.argmax(dim=1)
        expected = {
            "f1_macro": sklearn.metrics.f1_score(data.y_test, said, average="macro"),
            "roc_auc_ovr": sklearn.metrics.roc_auc_score(
                data.y_test, outputs.double().softmax(dim=1), multi_class="ovr"
            ),
            "margin": margin(outputs, data.y_test),
        }
        for name, value in expected.items():
            assert done.final[f"{which}_{name}"] == pytest.approx(value, rel=1e-5), name
    assert done.metric.name == "accuracy"
    assert [metric.name for metric in done.judged_by] == ["accuracy", "f1_macro", "roc_auc_ovr", "margin"]
    assert done.final["validation_margin"] is not None


def test_nothing_else_changes(tmp_path: Path) -> None:
    plain = adabest.run(out=tmp_path / "plain", **SMALL)
    measured = adabest.run(out=tmp_path / "measured", metrics=["f1_macro"], **SMALL)
    assert plain.final.items() <= measured.final.items()
    for name in ("model.safetensors", "cloud.safetensors"):
        assert (plain.folder / name).read_bytes() == (measured.folder / name).read_bytes()


def test_of_other_tasks(tmp_path: Path) -> None:
    labelled = adabest.run(out=tmp_path / "a", metrics=["roc_auc", "f1_weighted"], **settings_of("multi-label"))
    assert 0 < labelled.final["scored_roc_auc"] <= 1
    quantities = adabest.run(out=tmp_path / "b", metrics=["neg_mean_squared_error"], **settings_of("regression"))
    assert -quantities.final["scored_neg_mean_squared_error"] == pytest.approx(quantities.final["scored_rmse"] ** 2)


def test_names_of_sklearn_work_for_tokens_pixels_and_tasks_of_ones_own(tmp_path: Path) -> None:
    for task in ("next-token", "segmentation"):
        done = adabest.run(out=tmp_path / task, metrics=["balanced_accuracy", "neg_log_loss"], **settings_of(task))
        assert done.final["scored_neg_log_loss"] == pytest.approx(-done.final["scored_loss"], rel=1e-5)
        assert 0 < done.final["scored_balanced_accuracy"] <= 1
    done = adabest.run(out=tmp_path / "own", task=TopTwo(), metrics=["f1_macro"], **SMALL)
    assert 0 < done.final["scored_f1_macro"] < done.final["scored_top_two"]


@pytest.mark.parametrize("labels", [1, 2, 3])
def test_areas_under_curves_of_any_number_of_labels(labels: int) -> None:
    (area,) = make_own_metrics(["roc_auc"], make_objective("multi-label"))
    generator = torch.Generator().manual_seed(0)
    outputs, targets = torch.randn(40, labels, generator=generator), torch.randn(40, labels, generator=generator) > 0
    expected = sklearn.metrics.roc_auc_score(targets, outputs)
    assert area.value(outputs, targets.long()) == pytest.approx(expected)


def test_a_single_score_is_that_of_class_one() -> None:
    (area, right) = make_own_metrics(["roc_auc", "f1"], CLASSIFICATION)
    scores, classes = torch.tensor([0.3, -0.1, 2.0, -3.0]), torch.tensor([1, 1, 1, 0])
    for shaped in (scores, scores[:, None]):
        assert area.value(shaped, classes) == 1.0
        assert right.value(shaped, classes) == pytest.approx(sklearn.metrics.f1_score(classes, scores > 0))


def test_percentages_of_a_function_called_accuracy_are_kept(tmp_path: Path) -> None:
    done = adabest.run(out=tmp_path / "run", metrics=[percent_accuracy], **SMALL)
    assert done.final["scored_percent_accuracy"] == pytest.approx(100 * done.final["scored_accuracy"])


def test_a_model_that_gives_no_numbers_has_no_metric() -> None:
    """Its run diverges by its loss, which is told; scikit-learn would raise ValueError."""
    (area, log_loss) = make_own_metrics(["roc_auc_ovr", "neg_log_loss"], CLASSIFICATION)
    outputs, targets = torch.full((4, 3), torch.nan), torch.tensor([0, 1, 2, 0])
    assert np.isnan(area.value(outputs, targets))
    assert np.isnan(log_loss.value(outputs, targets))


def test_a_division_by_zero_is_no_value() -> None:
    (ratio,) = make_own_metrics([nothing_of_nothing], CLASSIFICATION)
    assert np.isnan(ratio.value(torch.zeros(2, 2), torch.tensor([0, 1])))
    assert np.isnan(ratio.value_or_nan(torch.zeros(2, 2), torch.tensor([0, 1])))


def test_a_run_is_resumed_with_its_functions(tmp_path: Path) -> None:
    whole = adabest.run(out=tmp_path / "whole", metrics=[margin, "f1_macro"], **SMALL)
    with pytest.raises(Interrupted), ends_after(5):
        adabest.run(out=tmp_path / "cut", metrics=[margin, "f1_macro"], **SMALL, checkpoint_every=1)
    with pytest.raises(InputError, match=r"pass it again, as in adabest\.resume\(folder, metrics="):
        adabest.resume(tmp_path / "cut", show=False)
    resumed = adabest.resume(tmp_path / "cut", metrics=[margin, "f1_macro"], show=False)
    assert isinstance(resumed, adabest.Run)
    assert resumed.final == whole.final


def test_lanes_share_them(tmp_path: Path) -> None:
    made = adabest.compare(algorithms=["fedavg", "adabest"], out=tmp_path / "two", metrics=["f1_macro"], **SMALL)
    for of in made.runs.values():
        alone = adabest.run(
            out=tmp_path / of.config.algorithm, algorithm=of.config.algorithm, metrics=["f1_macro"], **SMALL
        )
        assert of.final == alone.final


class TestRefusals:
    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ("f1_makro", r"unknown metric 'f1_makro'.*f1_macro"),
            (f"{__name__}:no_number", "metric 'no_number' can't be computed on the test set"),
            (f"{__name__}:SMALL", "is a dict, not a function"),
            ("accuracy", "the task has accuracy already; leave it out"),
            (f"{__name__}:accuracy", "the task has accuracy already; give your function another name"),
            ("jaccard_samples", "can't be computed on the test set"),
        ],
    )
    def test_before_any_training(self, tmp_path: Path, given: str, words: str) -> None:
        with pytest.raises(InputError, match=words):
            adabest.run(out=tmp_path / "run", metrics=[given], **SMALL)
        assert not (tmp_path / "run" / "metrics.jsonl").exists()

    def test_a_client_that_lacks_a_class_is_left_out(self) -> None:
        (score,) = make_own_metrics(["roc_auc_ovr"], CLASSIFICATION)
        assert np.isnan(score.value_or_nan(torch.randn(4, 3), torch.tensor([0, 0, 1, 1])))

    @pytest.mark.parametrize(
        ("wrong", "words"),
        [
            (lambda loss: loss.expand(4), r"not a tensor of shape \(4,\); take its mean"),
            (lambda loss: loss.item(), r"not \d.*, a float; leave \.item\(\), float\(\) and NumPy out"),
        ],
    )
    def test_a_wrong_loss_of_a_task_of_ones_own_is_named(self, tmp_path: Path, wrong: Any, words: str) -> None:
        class Unreduced(TopTwo):
            def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
                found: Tensor = wrong(super().loss(outputs, targets))
                return found

        with pytest.raises(InputError, match=rf"the loss of task Unreduced should be a function .* {words}"):
            adabest.run(out=tmp_path / "run", task=Unreduced(), **SMALL)


def test_a_metric_that_compares_each_output_with_each_target_is_refused() -> None:
    def spread_out(outputs: Tensor, targets: Tensor) -> float:
        return float((outputs - targets).abs().mean())

    def in_shape(outputs: Tensor, targets: Tensor) -> float:
        return spread_out(outputs.reshape(targets.shape), targets)

    def first_column(outputs: Tensor, targets: Tensor) -> float:
        return spread_out(outputs[:, 0], targets)

    regression, targets = make_objective("regression"), torch.linspace(-1, 1, 20)
    fine = make_own_metrics([in_shape, first_column, "neg_mean_squared_error"], regression)
    try_own_metrics(fine, torch.zeros(2, 1), targets)
    with pytest.raises(InputError, match=r"metric 'spread_out' compares each .* \(20, 1\) .*\(20,\); .*\.reshape"):
        try_own_metrics(make_own_metrics([spread_out], regression), torch.zeros(2, 1), targets)
