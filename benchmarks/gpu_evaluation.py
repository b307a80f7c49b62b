"""How long evaluations take on a GPU, and how much number formats change them.

python -m benchmarks.gpu_evaluation

Models of the paper's CNN, trained for a few rounds on images like CIFAR-10's, are judged on 10,000 test samples, and
one in four on the validation clients: side by side in several number formats, and one by one by their task in float32.
"""

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from adabest.algorithms.fedavg import FedAvg
from adabest.data.dataset import Dataset, from_arrays
from adabest.engine.evaluation import EvaluationRequest, EvaluationResult, evaluate_one_by_one
from adabest.engine.gpu.evaluation import GpuEvaluator
from adabest.engine.gpu.trainer import Precision
from adabest.engine.simulation import Simulation
from adabest.federation.partition import Scheme, cut
from adabest.federation.roster import Attendance
from adabest.models.factory import build_model
from adabest.runs.build import make_batched_engine
from adabest.tasks.base import Heartbeat, no_heartbeat
from adabest.tasks.classification import ClassificationTask

NAMES = ("scored", "aggregate", "cloud", "averaged")
FORMATS = {"tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def make_dataset(training: int, test: int, classes: int = 10) -> Dataset:
    """Noisy images of classes that overlap, so that a trained model is right about most of them, not all."""
    generator = np.random.default_rng(0)
    prototypes = generator.normal(size=(classes, 3, 32, 32))

    def split(count: int) -> tuple[np.ndarray, np.ndarray]:
        y = generator.integers(0, classes, count)
        x = np.empty((count, 3, 32, 32), dtype=np.uint8)
        for part in np.array_split(np.arange(count), max(1, count // 5000)):
            noise = generator.normal(scale=14.0, size=(len(part), 3, 32, 32))
            x[part] = np.clip(120 + 4 * (prototypes[y[part]] + noise), 0, 255)
        return x, y

    return from_arrays(*split(training), *split(test), name="like CIFAR-10")


def make_requests(arguments: argparse.Namespace, device: torch.device) -> list[EvaluationRequest]:
    """The models of clients after a few rounds, four to a run."""
    dataset = make_dataset(arguments.training, arguments.test)
    scheme = Scheme(arguments.models, max(1, arguments.models // 10), "iid", alpha=1.0, unbalance=0.0, seed=0)
    partition = cut(dataset.y_train.numpy(), dataset.classes, scheme)
    example = (dataset.x_train[:2].float() - dataset.mean) / dataset.std
    module = build_model("cnn", example, dataset.classes, 0)
    task = ClassificationTask(dataset, partition, module, epochs=1, device=device)

    def engine(heartbeat: Heartbeat) -> Any:
        return make_batched_engine(heartbeat, precision=Precision(half=device.type == "cuda"))

    simulation = Simulation(FedAvg(), task, partition.training, attendance=Attendance(participation=1.0), engine=engine)
    for _ in range(arguments.rounds):
        simulation.step()
    models = [simulation.client_model(client) for client in partition.training.tolist()]
    runs = [models[first : first + len(NAMES)] for first in range(0, len(models), len(NAMES))]
    named = [dict(zip(NAMES, own, strict=False)) for own in runs]
    return [EvaluationRequest(task, models_of_run, models_of_run["scored"]) for models_of_run in named]


def timed(work: Callable[[], list[EvaluationResult]], repeats: int) -> tuple[list[EvaluationResult], float, float]:
    """The scores, the seconds of the first call, which compiles, and the median of those that follow."""
    seconds = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        found = work()
        seconds.append(time.perf_counter() - begin)
    return found, seconds[0], statistics.median(seconds[1:])


def all_one_by_one(requests: list[EvaluationRequest]) -> list[EvaluationResult]:
    """The scores by the task."""
    return [evaluate_one_by_one(request, no_heartbeat) for request in requests]


def rightness_one_by_one(requests: list[EvaluationRequest]) -> np.ndarray:
    """Whether each model classifies each test sample rightly, ``[models, samples]``."""
    rows = []
    for request in requests:
        task = request.task
        assert isinstance(task, ClassificationTask)
        data = task.data
        rows += [task._evaluate(m, data.x_test, data.y_test, no_heartbeat)[1] for m in request.models.values()]
    return np.stack(rows)


def rightness_side_by_side(evaluator: GpuEvaluator, requests: list[EvaluationRequest]) -> np.ndarray:
    """The same by an evaluator."""
    models = [model for request in requests for model in request.models.values()]
    with torch.no_grad():
        found = evaluator._judge(models, [evaluator._test_table] * len(models), no_heartbeat, test=True)
    return found.right[:, : evaluator._test_table.samples].bool().cpu().numpy()


def scores(results: list[EvaluationResult]) -> tuple[np.ndarray, np.ndarray]:
    """The losses and the accuracies of all models on the test set."""
    found = np.array([own for result in results for own in result.tests.values()])
    return found[:, 0], found[:, 1]


def _set_tf32(allowed: bool) -> None:
    """Lets cuDNN and cuBLAS use TF32, as they do in runs in bf16 and tf32, or not."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allowed


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--models", type=int, default=48)
    parser.add_argument("--training", type=int, default=50_000)
    parser.add_argument("--test", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--formats", nargs="+", default=list(FORMATS), choices=list(FORMATS))
    arguments = parser.parse_args()
    torch.backends.cudnn.deterministic = True  # as in a run
    device = torch.device(arguments.device)
    requests = make_requests(arguments, device)
    task: Any = requests[0].task
    one_by_one = functools.partial(all_one_by_one, requests)
    _set_tf32(True)
    _, _, rough = timed(one_by_one, arguments.repeats)
    _set_tf32(False)
    truth, _, seconds = timed(one_by_one, arguments.repeats)
    true_losses, true_accuracies = scores(truth)
    right = rightness_one_by_one(requests)
    print(
        f"{arguments.models} models, {arguments.test} test samples; accuracies {true_accuracies.min():.4f} to "
        f"{true_accuracies.max():.4f}, losses {true_losses.min():.4f} to {true_losses.max():.4f}"
    )
    for name, own in (("float32", seconds), ("tf32", rough)):
        print(f"one by one, {name}: {own * 1e3:.1f} ms, {own * 1e3 / len(requests):.2f} ms a run", flush=True)
    for name in arguments.formats:
        evaluator = GpuEvaluator(task, FORMATS[name])
        evaluate = functools.partial(evaluator.evaluate, heartbeat=no_heartbeat)
        found, first, seconds = timed(functools.partial(evaluate, requests), arguments.repeats)
        alone = [evaluate([request])[0] for request in requests]
        _, _, of_one = timed(functools.partial(evaluate, requests[:1]), arguments.repeats)
        losses, accuracies = scores(found)
        differ = (rightness_side_by_side(evaluator, requests) != right).sum(axis=1)
        moved = accuracies - true_accuracies
        print(
            f"side by side, {name}: {seconds * 1e3:.1f} ms, {seconds * 1e3 / len(requests):.2f} ms a run; "
            f"one run alone {of_one * 1e3:.1f} ms; first call {first:.1f} s; "
            f"{evaluator.samples_at_once} samples of {evaluator._models_at_once} models at a time\n"
            f"    a model's samples that are judged otherwise: {differ.mean():.1f} on average, {differ.max()} at most; "
            f"accuracy moves by {100 * np.abs(moved).mean():.3f} points on average ({100 * moved.mean():+.4f} with its "
            f"sign), {100 * np.abs(moved).max():.3f} at most; "
            f"loss off by {np.abs(losses / true_losses - 1).max():.1e} at most; "
            f"a run alone {'equals' if alone == found else 'DIFFERS FROM'} the same run beside others",
            flush=True,
        )


if __name__ == "__main__":
    main()
