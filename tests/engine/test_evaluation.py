"""Models that are judged side by side have the scores that their task gives them one by one."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import odd_models
import pytest
import torch
from side_by_side import Case, StackedEngine, make_dataset, simulate
from torch import Tensor, nn

from adabest.algorithms.adabest import AdaBest
from adabest.engine.evaluation import EvaluationRequest, EvaluationResult, Evaluators, evaluate_one_by_one
from adabest.engine.gpu import evaluation as gpu_evaluation
from adabest.engine.gpu import trainer
from adabest.engine.gpu.evaluation import GpuEvaluator, make_gpu_evaluator
from adabest.engine.gpu.trainer import Precision
from adabest.engine.simulation import Simulation
from adabest.engine.trainer import Unbatchable
from adabest.errors import Diverged
from adabest.federation.partition import Scheme, cut
from adabest.models.factory import build_model
from adabest.tasks.base import Scores, no_heartbeat
from adabest.tasks.classification import ClassificationTask

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
KIND = "tests"


def _models() -> dict[str, str | nn.Module]:
    """Models with the same weights, whatever was drawn before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return {
            "linear": "mlp,hidden=9x5",
            "convolutions": nn.Sequential(
                nn.Conv2d(2, 5, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(5, 4, 2, padding=1),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(64, 6),
                nn.ReLU(),
                nn.Linear(6, 3),
            ),
            "a convolution at the end": nn.Sequential(
                nn.Conv2d(2, 5, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(5, 3, 2), nn.Flatten()
            ),
            "shortcuts": odd_models.make("shortcuts"),
            "a sum at the end": odd_models.make("shortcuts of features"),
            "norms": nn.Sequential(
                nn.Conv2d(2, 6, 3),
                nn.GroupNorm(2, 6),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Flatten(),
                nn.Linear(24, 5),
                nn.LayerNorm(5),
                nn.ReLU(),
                nn.Linear(5, 3),
                nn.GroupNorm(1, 3, affine=False),
            ),
            "pools": nn.Sequential(
                nn.Conv2d(2, 5, 3, padding=1),
                nn.MaxPool2d(3, 2, 1),
                nn.Conv2d(5, 3, 1),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
            ),
        }


MODELS = _models()
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def make_task(
    model: str | nn.Module = "mlp,hidden=9x5",
    *,
    seed: int = 0,
    validation: int = 4,
    dtype: torch.dtype = torch.float64,
    **options: Any,
) -> ClassificationTask:
    """A task whose partition depends on the seed, with unequal validation clients."""
    dataset = make_dataset(odd_models.INPUT)
    scheme = Scheme(8, validation, "dirichlet", alpha=0.5, unbalance=0.5, seed=seed)
    partition = cut(dataset.y_train.numpy(), dataset.classes, scheme)
    example = (dataset.x_train[:2].float() - dataset.mean) / dataset.std
    return ClassificationTask(
        dataset,
        partition,
        build_model(model, example, dataset.classes, seed),
        seed=seed,
        dtype=dtype,
        device=DEVICE,
        **{"kind": KIND, **options},
    )


def drawn_models(task: ClassificationTask, count: int, seed: int = 0) -> list[Tensor]:
    """Models that are neither alike nor right about everything."""
    generator = torch.Generator().manual_seed(seed)
    start = task.initial_model()
    noise = torch.randn((count, len(start)), generator=generator, dtype=torch.float64).to(start)
    return list(start + noise)


def request(task: ClassificationTask, count: int, seed: int = 0) -> EvaluationRequest:
    models = dict(zip(["scored", "aggregate", "cloud", "averaged"], drawn_models(task, count, seed), strict=False))
    return EvaluationRequest(task, models, models["scored"])


def assert_close(found: EvaluationResult, expected: EvaluationResult, rel: float) -> None:
    assert list(found.tests) == list(expected.tests)
    for name, scores in expected.tests.items():
        assert found.tests[name].loss == pytest.approx(scores.loss, rel=rel)
        assert found.tests[name].values == scores.values
    assert found.validation == expected.validation


@pytest.fixture
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven samples at a time: the 20 test samples and those of the validation clients don't fill their last step."""
    monkeypatch.setattr(gpu_evaluation, "_FEWEST_SAMPLES", 7)
    monkeypatch.setattr(gpu_evaluation, "_MOST_SAMPLES", 7)


def use_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="Triton isn't installed")
    from adabest.engine.gpu.kernels.fused import Fused

    kernels = Fused("ieee")
    monkeypatch.setattr(trainer, "operators", lambda *_args, **_options: kernels)


@every_model
@pytest.mark.usefixtures("few_samples")
def test_stacked_scores_are_those_of_the_task(model: str | nn.Module) -> None:
    tasks = [make_task(model, seed=seed) for seed in (0, 1)]
    requests = [request(tasks[0], 3), request(tasks[1], 4, seed=1), request(tasks[0], 1, seed=2)]
    found = GpuEvaluator(tasks[0]).evaluate(requests, no_heartbeat)
    for result, own in zip(found, requests, strict=True):
        expected = evaluate_one_by_one(own, no_heartbeat)
        assert expected.validation is not None
        assert_close(result, expected, rel=1e-12)
    assert len({result.validation for result in found}) == 3


@pytest.mark.parametrize("model", ["convolutions", "norms"])
@pytest.mark.usefixtures("few_samples")
def test_scores_by_kernels_are_those_of_the_task_whoever_is_judged_beside(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernels(monkeypatch)
    tasks = [make_task(MODELS[model], seed=seed, validation=2, dtype=torch.float32) for seed in (0, 1)]
    evaluator = GpuEvaluator(tasks[0])
    requests = [request(tasks[0], 1), request(tasks[1], 2, seed=1)]
    together = evaluator.evaluate(requests, no_heartbeat)
    for number, own in enumerate(requests):
        assert_close(together[number], evaluate_one_by_one(own, no_heartbeat), rel=1e-5)
        assert evaluator.evaluate([own], no_heartbeat) == [together[number]]
    evaluator._models_at_once = 2
    assert evaluator.evaluate(requests[::-1], no_heartbeat) == together[::-1]


@pytest.mark.parametrize("where", ["in front of a relu", "in the scores", "in the weights"])
@pytest.mark.usefixtures("few_samples")
def test_runs_that_are_too_large_for_float16_are_judged_again(where: str) -> None:
    """In front of a relu: the first layer's activations are infinite, and the second one's relu would hide it."""
    task = make_task("mlp,hidden=4x3", validation=2, dtype=torch.float32)
    small, large = task.initial_model(), task.initial_model()
    places = task.model.unflatten(large)
    names = list(places)
    if where == "in front of a relu":
        places[names[1]].fill_(1e5)
        places[names[2]].fill_(-1e-3)
    elif where == "in the scores":
        places[names[-1]].copy_(torch.tensor([1e5, 2e5, 3e5]))
    else:
        places[names[0]][0, 0] = 1e5
    requests = [EvaluationRequest(task, {"scored": model}, model) for model in (small, large)]
    halved, precise = (
        GpuEvaluator(task, operand).evaluate(requests, no_heartbeat) for operand in (torch.float16, None)
    )
    assert halved[1] == precise[1]
    assert halved[0].tests["scored"].loss != precise[0].tests["scored"].loss
    assert np.isfinite(halved[1].tests["scored"].loss)


@pytest.mark.usefixtures("few_samples")
def test_models_can_be_judged_with_shorter_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    use_kernels(monkeypatch)
    task = make_task(dtype=torch.float32)
    own = request(task, 2)
    found = GpuEvaluator(task, torch.float16).evaluate([own], no_heartbeat)[0]
    for name, scores in evaluate_one_by_one(own, no_heartbeat).tests.items():
        assert found.tests[name].loss == pytest.approx(scores.loss, rel=0.01)


def test_a_model_with_two_names_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task()
    evaluator = GpuEvaluator(task)
    judged: list[int] = []
    judge = evaluator._judge

    def counting(models: Sequence[Tensor], *args: Any, **options: Any) -> Any:
        judged.append(len(models))
        return judge(models, *args, **options)

    monkeypatch.setattr(evaluator, "_judge", counting)
    scored, aggregate = drawn_models(task, 2)
    own = EvaluationRequest(task, {"scored": scored, "aggregate": aggregate, "cloud": aggregate}, scored)
    assert_close(evaluator.evaluate([own], no_heartbeat)[0], evaluate_one_by_one(own, no_heartbeat), rel=1e-12)
    assert judged == [2, 1]


def test_kernels_are_compiled_at_the_same_time_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    task = make_task()
    evaluator = GpuEvaluator(task)
    operators = evaluator._setting.operators
    gather = operators.gather

    def counted_gather(*args: Any) -> None:
        calls.append("gather")
        gather(*args)

    def compile_together(work: Callable[[], None]) -> None:
        calls.append("compile")
        work()

    monkeypatch.setattr(operators, "gather", counted_gather)
    monkeypatch.setattr(operators, "compile_together", compile_together)
    evaluator._compiled = False
    own = request(task, 1)
    for _ in range(2):
        found = evaluator.evaluate([own], no_heartbeat)[0]
    assert calls == ["compile", "gather", *["gather"] * 4]  # test and validation, twice
    assert_close(found, evaluate_one_by_one(own, no_heartbeat), rel=1e-12)


def test_tasks_without_validation_clients_have_no_validation_scores() -> None:
    tasks = [make_task(validation=0), make_task(validation=4)]
    requests = [request(task, 2) for task in tasks]
    evaluator = GpuEvaluator(tasks[0])
    assert evaluator.evaluate(requests[:1], no_heartbeat)[0].validation is None
    without, with_clients = evaluator.evaluate(requests, no_heartbeat)
    assert without.validation is None
    assert_close(with_clients, evaluate_one_by_one(requests[1], no_heartbeat), rel=1e-12)


def test_fewer_models_are_judged_at_a_time_when_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task()
    evaluator = GpuEvaluator(task)
    sizes: list[int] = []

    class Greedy(gpu_evaluation._Pass):
        def __init__(self, own: Any, models: int, samples: int, device: torch.device) -> None:
            sizes.append(models)
            if models > 2:
                raise torch.OutOfMemoryError
            super().__init__(own, models, samples, device)

    evaluator._models_at_once = 4
    own = request(task, 4)
    expected = evaluate_one_by_one(own, no_heartbeat)
    monkeypatch.setattr(gpu_evaluation, "_Pass", Greedy)
    assert_close(evaluator.evaluate([own], no_heartbeat)[0], expected, rel=1e-12)
    assert sizes == [4, 2, 1]  # the second two models use the buffers of the first two
    evaluator._models_at_once = 1
    monkeypatch.setattr(Greedy, "__init__", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError))
    with pytest.raises(torch.OutOfMemoryError):
        evaluator.evaluate([own], no_heartbeat)


def test_a_loss_that_isnt_finite_is_told() -> None:
    task = make_task()
    broken = task.initial_model() * torch.nan
    sound = task.initial_model()
    own = EvaluationRequest(task, {"scored": sound, "cloud": broken}, sound)
    tests = GpuEvaluator(task).evaluate([own], no_heartbeat)[0].tests
    assert np.isfinite(tests["scored"].loss)
    assert np.isnan(tests["cloud"].loss)


def _absolute(scores: Tensor, labels: Tensor) -> Tensor:
    return scores.abs().mean() + 0.0 * labels.sum()


@pytest.mark.parametrize(
    ("model", "options"),
    [("mlp,hidden=9", {"loss": _absolute}), (odd_models.make("mixed"), {})],
)
def test_own_losses_and_layers_cant_be_stacked(model: Any, options: dict[str, Any]) -> None:
    with pytest.raises(Unbatchable):
        GpuEvaluator(make_task(model, **options))


def test_an_evaluator_is_made_only_for_short_precisions_on_a_gpu() -> None:
    for precision in (Precision(), Precision(half=True), Precision(tf32=True)):
        made = make_gpu_evaluator(make_task(dtype=torch.float32), precision)
        assert (made is not None) == (DEVICE.type == "cuda" and precision != Precision())


class TestEvaluators:
    def test_requests_go_to_the_evaluator_of_their_kind(self) -> None:
        stacked, other = make_task(), make_task(kind="other")
        asked: list[ClassificationTask] = []
        batches: list[int] = []

        class Counting(GpuEvaluator):
            def evaluate(self, requests: Sequence[EvaluationRequest], heartbeat: Any) -> list[EvaluationResult]:
                batches.append(len(requests))
                return super().evaluate(requests, heartbeat)

        def make(task: ClassificationTask) -> Counting | None:
            asked.append(task)
            return Counting(task) if task is stacked else None

        evaluators = Evaluators(no_heartbeat, make)
        requests = [request(task, 2, seed) for seed, task in enumerate([stacked, other, stacked])]
        for _ in range(2):
            for found, own in zip(evaluators.evaluate(requests), requests, strict=True):
                assert_close(found, evaluate_one_by_one(own, no_heartbeat), rel=1e-12)
        assert asked == [stacked, other]
        assert batches == [2, 2]


class TestOneByOne:
    def test_nothing_is_judged_after_a_loss_that_isnt_finite(self) -> None:
        task = make_task()
        broken = task.initial_model() * torch.inf
        models = {"scored": task.initial_model(), "aggregate": broken, "cloud": task.initial_model()}
        found = evaluate_one_by_one(EvaluationRequest(task, models, models["scored"]), no_heartbeat)
        assert list(found.tests) == ["scored", "aggregate"]
        assert found.validation is None

    def test_a_test_loss_that_isnt_finite_ends_a_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        task = make_task()
        simulation = Simulation(AdaBest(), task, task.partition.training)
        monkeypatch.setattr(task, "test", lambda *_: Scores(float("inf"), {"accuracy": 0.5}))
        with pytest.raises(Diverged, match="the test loss of the scored model is inf"):
            simulation.step(evaluate=True)
        assert simulation.state.round == 0


@pytest.mark.parametrize("name", ["dropping functions", "transformer", "mixed"])
def test_a_model_that_was_trained_side_by_side_can_be_looked_at_again(name: str) -> None:
    """Draws of dropout in ``vmap`` leave nothing behind that can't be used after it."""
    case = Case(odd_models.make(name), odd_models.INPUT, kind=KIND)
    simulation = simulate(AdaBest(), case, StackedEngine)
    simulation.step()
    task = simulation._task
    assert isinstance(task, ClassificationTask)
    task.model.module.train()
    with pytest.raises(Unbatchable):
        GpuEvaluator(task)
    task.model.module(task.example())
