"""Metrics of the user's own: scikit-learn's by name, and functions of outputs and targets."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.metrics
import torch
from small_tasks import settings_of
from tiny_runs import ends_after
from torch import Tensor

import adabest
from adabest.data.loading import load_dataset
from adabest.errors import InputError, Interrupted
from adabest.tasks.objectives.catalog import CLASSIFICATION
from adabest.tasks.own_metrics import make_own_metrics

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
            ("accuracy", "two are called 'accuracy'"),
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
