"""Objectives: hand-computed losses and metrics, the same metrics by scikit-learn, and sums that add up."""

import math

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

import adabest
from adabest.data.dataset import Dataset, from_arrays
from adabest.errors import InputError
from adabest.tasks.objectives.base import Objective
from adabest.tasks.objectives.catalog import CLASSIFICATION, OBJECTIVES, check_objective, make_objective, try_objective
from adabest.tasks.objectives.metric import ACCURACY, Metric

NAMES = sorted(OBJECTIVES.builtin)
IGNORED = -100


def drawn(name: str, samples: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Outputs and targets of some samples."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(samples, *shape, generator=generator, dtype=torch.float64)

    def whole(most: int, *shape: int) -> Tensor:
        return torch.randint(0, most, (samples, *shape), generator=generator)

    match name:
        case "classification":
            return normal(3), whole(3)
        case "multi-label":
            return normal(4), whole(2, 4)
        case "regression":
            return normal(2, 3), normal(2, 3)
        case "next-token":
            targets = whole(7, 5)
            return normal(5, 7), torch.where(whole(4, 5) == 0, IGNORED, targets)
    targets = whole(3, 4, 4)
    return normal(3, 4, 4), torch.where(whole(5, 4, 4) == 0, IGNORED, targets)


def values_of(name: str, outputs: Tensor, targets: Tensor) -> dict[str, float]:
    objective = make_objective(name)
    values = objective.values(objective.sums(outputs, targets).sum(dim=0)).tolist()
    return {metric.name: value for metric, value in zip(objective.metrics, values, strict=True)}


class TestByHand:
    def test_multi_label(self) -> None:
        outputs = torch.tensor([[1.0, -1.0, 2.0], [3.0, 1.0, -2.0]])
        targets = torch.tensor([[1, 0, 0], [1, 1, 0]])
        # Label 0: two found. Label 1: one found. Label 2: one said in vain.
        assert values_of("multi-label", outputs, targets) == {
            "f1_micro": pytest.approx(6 / 7),
            "f1_macro": pytest.approx(2 / 3),
            "exact_match": 0.5,
        }
        loss = make_objective("multi-label").loss(torch.zeros(1, 2), torch.tensor([[0, 1]]))
        assert float(loss) == pytest.approx(math.log(2))

    def test_a_label_that_nobody_has_or_says_is_left_out_of_the_mean(self) -> None:
        values = values_of("multi-label", torch.tensor([[1.0, -1.0]]), torch.tensor([[1, 0]]))
        assert values["f1_macro"] == 1.0

    def test_regression(self) -> None:
        outputs, targets = torch.tensor([[1.0], [2.0], [6.0]]), torch.tensor([1.0, 4.0, 4.0])
        assert values_of("regression", outputs, targets) == {
            "rmse": pytest.approx(math.sqrt(8 / 3)),
            "mae": pytest.approx(4 / 3),
            "r2": pytest.approx(1 - 8 / 6),
        }
        assert float(make_objective("regression").loss(outputs, targets)) == pytest.approx(8 / 3)

    @pytest.mark.parametrize("value", [0.0, 0.1, 3.3, 1e6 + 0.1])
    def test_r2_of_equal_targets_is_not_defined(self, value: float) -> None:
        targets = torch.full((7,), value, dtype=torch.float64)
        assert math.isnan(values_of("regression", targets[:, None] + 0.1, targets)["r2"])

    def test_a_column_of_outputs_is_no_table_of_differences(self) -> None:
        outputs = torch.tensor([[1.0], [2.0]])
        assert float(make_objective("regression").loss(outputs, torch.tensor([1.0, 2.0]))) == 0.0

    def test_next_token(self) -> None:
        outputs = torch.tensor([[[0.0, 0.0], [math.log(3), 0.0]], [[5.0, 0.0], [0.0, 0.0]]])
        targets = torch.tensor([[0, 1], [IGNORED, -1]])
        surprise = math.log(2) + math.log(4)
        assert values_of("next-token", outputs, targets) == {
            "perplexity": pytest.approx(math.exp(surprise / 2)),
            "accuracy": 0.5,
        }
        objective = make_objective("next-token")
        assert float(objective.loss(outputs, targets)) == pytest.approx(surprise / 2)
        assert objective.weight(targets) == 2

    def test_a_batch_of_padding_has_no_loss(self) -> None:
        outputs = torch.zeros(1, 2, 3, requires_grad=True)
        loss = make_objective("next-token").loss(outputs, torch.full((1, 2), IGNORED))
        loss.backward()  # type: ignore[no-untyped-call]
        assert float(loss.detach()) == 0.0
        assert outputs.grad is not None
        assert not outputs.grad.any()

    def test_segmentation(self) -> None:
        said = torch.tensor([[[0, 1], [1, 1]]])
        outputs = functional.one_hot(said, 3).movedim(-1, 1).double()
        targets = torch.tensor([[[0, 1], [0, IGNORED]]])
        # Class 0: 1 of 2 pixels. Class 1: 1 of 2; the pixel that doesn't count is in neither. Class 2: none at all.
        assert values_of("segmentation", outputs, targets) == {
            "mean_iou": pytest.approx(0.5),
            "pixel_accuracy": pytest.approx(2 / 3),
        }


class TestAgainstOthers:
    def test_multi_label(self) -> None:
        outputs, targets = drawn("multi-label", 200)
        said = (outputs > 0).numpy()
        values = values_of("multi-label", outputs, targets)
        for average in ("micro", "macro"):
            expected = sklearn.metrics.f1_score(targets.numpy(), said, average=average)
            assert values[f"f1_{average}"] == pytest.approx(expected)
        assert values["exact_match"] == pytest.approx(sklearn.metrics.accuracy_score(targets.numpy(), said))

    def test_regression(self) -> None:
        outputs, targets = (part.flatten() for part in drawn("regression", 50))
        values = values_of("regression", outputs[:, None], targets)
        assert values["rmse"] == pytest.approx(sklearn.metrics.root_mean_squared_error(targets, outputs))
        assert values["mae"] == pytest.approx(sklearn.metrics.mean_absolute_error(targets, outputs))
        assert values["r2"] == pytest.approx(sklearn.metrics.r2_score(targets, outputs))

    def test_next_token(self) -> None:
        outputs, targets = drawn("next-token", 20)
        expected = functional.cross_entropy(outputs.movedim(-1, 1), targets, ignore_index=IGNORED)
        assert float(make_objective("next-token").loss(outputs, targets)) == pytest.approx(float(expected))
        assert values_of("next-token", outputs, targets)["perplexity"] == pytest.approx(float(expected.exp()))

    def test_segmentation(self) -> None:
        outputs, targets = drawn("segmentation", 20)
        counted = targets >= 0
        expected = functional.cross_entropy(outputs, targets, ignore_index=IGNORED)
        assert float(make_objective("segmentation").loss(outputs, targets)) == pytest.approx(float(expected))
        said, true = outputs.argmax(dim=1)[counted], targets[counted]
        values = values_of("segmentation", outputs, targets)
        assert values["mean_iou"] == pytest.approx(sklearn.metrics.jaccard_score(true, said, average="macro"))
        assert values["pixel_accuracy"] == pytest.approx(float((said == true).double().mean()))


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=15)
@given(samples=st.integers(2, 12), cut=st.integers(1, 11), seed=st.integers(0, 10_000))
def test_sums_add_up_over_parts_of_the_samples(name: str, samples: int, cut: int, seed: int) -> None:
    objective, (outputs, targets) = make_objective(name), drawn(name, samples, seed)
    sums = objective.sums(outputs, targets)
    assert sums.dtype == torch.float64
    cut = min(cut, samples - 1)
    parts = [objective.sums(outputs[part], targets[part]) for part in (slice(cut), slice(cut, None))]
    assert torch.allclose(torch.cat(parts).sum(dim=0), sums.sum(dim=0), rtol=1e-12, atol=1e-12)
    value = objective.values(sums.sum(dim=0))[0]
    assert torch.equal(objective.batch_value(outputs, targets), value) or bool(value.isnan())


@pytest.mark.parametrize("name", NAMES)
def test_many_clients_at_once_get_the_same(name: str) -> None:
    objective = make_objective(name)
    samples = [drawn(name, 6, seed) for seed in range(3)]
    outputs, targets = (torch.stack(parts) for parts in zip(*samples, strict=True))
    gradients, losses = torch.func.vmap(torch.func.grad_and_value(objective.loss))(outputs, targets)
    values = torch.func.vmap(objective.batch_value)(outputs, targets)
    for place, (own, true) in enumerate(samples):
        gradient, loss = torch.func.grad_and_value(objective.loss)(own, true)
        assert torch.allclose(gradients[place], gradient, rtol=1e-12, atol=1e-14)
        assert float(losses[place]) == pytest.approx(float(loss))
        assert float(values[place]) == pytest.approx(float(objective.batch_value(own, true)))


@pytest.mark.parametrize("name", NAMES)
def test_a_gradient_is_that_of_the_loss(name: str) -> None:
    objective, (outputs, targets) = make_objective(name), drawn(name, 3)
    assert torch.autograd.gradcheck(lambda out: objective.loss(out, targets), outputs.requires_grad_())


def data(y: object, x: object = None) -> Dataset:
    targets = np.asarray(y)
    inputs = np.zeros((len(targets), 4), np.float32) if x is None else np.asarray(x)
    return from_arrays(inputs, targets, inputs, targets, name="made up")


class TestRefusals:
    @pytest.mark.parametrize(
        ("name", "targets", "words"),
        [
            ("classification", [0.5, 1.5], "use --task regression"),
            ("classification", [[0, 2], [1, 0]], "use --task multi-label, next-token or segmentation"),
            (
                "classification",
                [[0, 1], [1, 0]],
                r"shape \(2, 2\), .* give y_train\.argmax\(1\) and y_test\.argmax\(1\)",
            ),
            ("classification", [[0.0, 1.0], [1.0, 0.0]], r"give y_train\.argmax\(1\)"),
            ("classification", [[0], [1]], r"shape \(2, 1\), .* give y_train\[:, 0\] and y_test\[:, 0\]"),
            ("regression", [0, 1], "regression has floating-point targets"),
            ("multi-label", [0, 1], r"y_train \(2,\) should have a row for each sample, with a 0 or 1"),
            ("multi-label", [[0, 2], [1, 0]], "a 0 or 1 for each label"),
            ("next-token", [0, 1], r"whole numbers \[samples, length\]"),
            ("segmentation", [[0, 1], [1, 0]], r"whole numbers \[samples, height, width\]"),
        ],
    )
    def test_targets_that_do_not_fit(self, name: str, targets: object, words: str) -> None:
        with pytest.raises(InputError, match=words):
            make_objective(name).check_data(data(targets))

    def test_a_mask_whose_255_says_that_nothing_counts(self) -> None:
        with pytest.raises(InputError, match=r"label 255, .* such as -100: y\[y == 255\] = -100"):
            make_objective("segmentation").check_data(data([[[0, 1]], [[1, 255]]]))
        make_objective("segmentation").check_data(data([[[254, 1]], [[1, 255]]]))
        make_objective("segmentation").check_data(data([[[0, 1]], [[1, 7]]]))

    def test_tokens_in_bytes_which_are_taken_for_pixels(self) -> None:
        with pytest.raises(InputError, match="give tokens in a wider type, such as int64"):
            make_objective("next-token").check_data(data([[0, 1], [4, 3]], np.array([[0, 1], [2, 4]], np.uint8)))

    @pytest.mark.parametrize(
        ("name", "targets", "shape", "words"),
        [
            ("classification", [0, 1], (3,), "3 class scores, but the data set has 2 classes"),
            ("regression", [[0.5, 1.0], [0.0, 1.0]], (3,), r"a target has the shape \(2,\)"),
            ("multi-label", [[0, 1, 1], [0, 0, 0]], (2,), "3 labels need as many scores"),
            ("next-token", [[0, 1], [4, 3]], (2, 4), r"each of 5 tokens at each of 2 places, \(2, 5\)"),
            ("segmentation", [[[0, 1]], [[4, 3]]], (5, 2, 1), r"it should give \(5, 1, 2\)"),
        ],
    )
    def test_outputs_that_do_not_fit(self, name: str, targets: object, shape: tuple[int, ...], words: str) -> None:
        with pytest.raises(InputError, match=words):
            make_objective(name).check_output(shape, data(targets))

    def test_unknown_names(self) -> None:
        with pytest.raises(InputError, match=r"unknown task 'regresion'.*regression"):
            make_objective("regresion")

    def test_names_of_metrics(self) -> None:
        for name in ("loss", "Mean IoU", "worst_tenth", "", "1st"):
            with pytest.raises(InputError, match="a metric can't be called"):
                Metric(name)

    def test_what_is_no_objective(self) -> None:
        with pytest.raises(InputError, match=r"derives from adabest\.Objective"):
            check_objective(object())

    def test_metrics_must_be_there_once(self) -> None:
        class Without(type(make_objective("regression"))):  # type: ignore[misc]
            metrics = ()

        class Twice(type(make_objective("regression"))):  # type: ignore[misc]
            metrics = (Metric("rmse"), Metric("rmse"))

        with pytest.raises(InputError, match="at least one"):
            check_objective(Without())
        with pytest.raises(InputError, match="two metrics have one name"):
            check_objective(Twice())

    def test_sums_and_values_of_the_wrong_shape(self) -> None:
        class Flat(type(CLASSIFICATION)):  # type: ignore[misc]
            def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
                return torch.ones(len(targets))

        class Scalar(type(CLASSIFICATION)):  # type: ignore[misc]
            def values(self, sums: Tensor) -> Tensor:
                return sums.sum()

        class Percent(type(CLASSIFICATION)):  # type: ignore[misc]
            def values(self, sums: Tensor) -> Tensor:
                return 100 * sums[..., :1] / sums[..., 1:]

        of = (torch.zeros(2, 3), torch.tensor([0, 1]), data([0, 1]))
        with pytest.raises(InputError, match="accuracy is a share, which lies between 0 and 1, and is 50"):
            try_objective(Percent(), *of)
        with pytest.raises(InputError, match=r"sums should give a row for each of 2 samples, not \(2,\)"):
            try_objective(Flat(), *of)
        with pytest.raises(InputError, match=r"values should give \[\.\.\., 1\]"):
            try_objective(Scalar(), *of)


class TestMetric:
    def test_ways(self) -> None:
        perplexity = Metric("perplexity", higher_is_better=False)
        assert perplexity.is_better(2.0, 3.0)
        assert perplexity.reaches(3.0, 3.0)
        assert not perplexity.reaches(3.1, 3.0)
        assert perplexity.is_better(1e9, perplexity.worst)
        assert ACCURACY.reaches(0.5, 0.5)
        assert (ACCURACY.shown(0.954), perplexity.shown(12.3456)) == ("95.4 %", "12.35")
        assert (ACCURACY.head, Metric("mean_iou", is_share=True).head, perplexity.head) == (
            "accuracy %",
            "mean iou %",
            "perplexity",
        )

    @pytest.mark.parametrize("value", [0.0, 1.5, float("nan"), True, "0.5"])
    def test_what_is_no_share(self, value: object) -> None:
        with pytest.raises(InputError, match="stop_at"):
            ACCURACY.check_value("stop_at", value)


def test_objectives_are_shared_by_runs() -> None:
    assert make_objective("regression") is make_objective("regression")
    assert make_objective("classification") is CLASSIFICATION
    assert issubclass(Objective, adabest.Objective)
